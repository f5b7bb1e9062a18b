// Devices: where tensors live and operators run. Networks are written against this page and never learn which back end
// they run on. The front (device.c) checks every argument once and names the operator and the argument in its error;
// back ends only compute.
//
// Threads: one caller per device; the flag of vx_device_watch may be set from anywhere, also from a signal handler.
// Numbers: see operators.h.
#ifndef VX_DEVICE_DEVICE_H
#define VX_DEVICE_DEVICE_H

#include "base/status.h"
#include "tensor/tensor.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct vx_device vx_device;

// ---- the computing back end ----
typedef struct vx_cpu_params {
    int threads;     // 0 = one per processor that this process may use
    const char *isa; // NULL = best found; "generic", "avx2", "avx512", "avx512bf16" mask off what is newer
} vx_cpu_params;
vx_status vx_device_cpu_create(vx_device **out, const vx_cpu_params *params); // NULL = defaults
const char *vx_device_isa(const vx_device *dev);                              // "avx2", ...; of a CUDA device "sm_90"

// ---- the CUDA back end ----
typedef enum vx_attention_choice { VX_ATTENTION_AUTO, VX_ATTENTION_OWN, VX_ATTENTION_CUDNN } vx_attention_choice;
typedef struct vx_cuda_params {
    int ordinal; // as CUDA counts
    vx_attention_choice attention;
} vx_cuda_params;
// VX_ERR_DEVICE_NONE where the build has no CUDA back end or no usable device is there: the message says which, the remedy what
// to do.
vx_status vx_device_cuda_create(vx_device **out, const vx_cuda_params *params);
typedef struct vx_cuda_info {
    char name[128], driver[32], cublas[96], cudnn[96]; // "580.65.06"; libraries with version and path; empty: not found
    char driver_cuda[32], runtime[32];                 // "13.0": the CUDA that the driver knows, and that of this build
    int devices, ordinal, sm;                          // sm 90: compute capability 9.0
    uint64_t memory_total, memory_free;
    int sm_clock, memory_clock; // MHz now; 0: the driver does not say
    double power, power_limit;  // W now and at most; 0 likewise
} vx_cuda_info;
bool vx_cuda_built(void);
// For reports, of a CUDA device; of other devices "", NULL and 0.
const char *vx_cuda_attention_used(const vx_device *dev); // the last one: "mma", "wgmma", "short", "f32", "cudnn"; "": none yet
// Line i of what was chosen for products so far: shape, formats, cuBLASLt's algorithm. NULL behind the last.
const char *vx_cuda_product_choice(const vx_device *dev, int i);
int64_t vx_cuda_launches(const vx_device *dev);          // kernels and copies of the stretches replayed so far
vx_status vx_cuda_query(vx_cuda_info *out, int ordinal); // VX_ERR_DEVICE_NONE as above; fills in what it learned before

// ---- plan: runs network code on shapes alone ----
// Accepts tensors without data, computes nothing, counts. `like` (borrowed) says whose scratch needs are counted.
typedef struct vx_plan_counts {
    int64_t calls;
    double flop;         // 2 per multiply-add
    double bytes;        // read and written, each operand once
    double weight_bytes; // of which weights
    size_t scratch;      // the largest need of one operator of `like`
} vx_plan_counts;
vx_status vx_device_plan_create(vx_device **out, const vx_device *like);
vx_plan_counts vx_device_plan_counts(const vx_device *dev);
void vx_device_plan_reset(vx_device *dev);
// The same counts operator by operator: kind 0 to vx_device_plan_kinds() - 1, *op is its name ("linear").
int vx_device_plan_kinds(void);
vx_plan_counts vx_device_plan_kind(const vx_device *dev, int kind, const char **op);
void vx_device_plan_fail(vx_device *dev, int64_t call, vx_code code); // the call-th operator from now (1 = next) fails
bool vx_device_is_plan(const vx_device *dev);

// ---- trace: wraps another back end ----
typedef struct vx_trace_event {
    const char *op;
    double seconds, flop, bytes;
    bool finite;          // of the output; true when not checked
    const vx_tensor *out; // valid during the call; an operator with two outputs gives two events; NULL: it has none
} vx_trace_event;
typedef struct vx_trace_params {
    void (*event)(void *user, const vx_trace_event *event);
    void *user;
    bool check_finite;
} vx_trace_params;
vx_status vx_device_trace_create(vx_device **out, vx_device *inner, const vx_trace_params *params); // borrows inner

void vx_device_destroy(vx_device **dev);
const char *vx_device_name(const vx_device *dev); // "cpu", "plan", ...
int vx_device_threads(const vx_device *dev);

// ---- cancellation: every operator looks before it starts ----
// *flag != 0 makes the next operator return VX_ERR_CANCELLED. NULL takes it away. Borrowed.
void vx_device_watch(vx_device *dev, const volatile int *flag);

// ---- products by parts ----
// on: convolutions may put a product of two f32 together from products of their halves (22 digits of 24 in all), where the device
// has matrix units for that; operators.h says what holds then. Off, and on the CPU, every product is an f32's own. Scratch that a
// plan counts is that of the setting at the time. Of a trace device, the setting of the device inside it counts.
void vx_device_parts(vx_device *dev, bool on); // default off
bool vx_device_has_parts(const vx_device *dev);

// ---- memory ----
// Device memory is asked for before work starts; operators take scratch from what vx_device_reserve set aside and grow it
// only when a plan was too small (which the tests count as a fault).
vx_status vx_device_reserve(vx_device *dev, size_t scratch_bytes);
void vx_device_release(vx_device *dev); // gives the scratch back

// What is given back a device may keep at its place, for work of the same size that comes again: it counts as free, and it gives
// way to everything else that the device takes. Shed gives it up at once, with what recordings take.
void vx_device_shed(vx_device *dev);

// Of a device with memory of its own, in bytes: all of it, free now, taken by this device, the most that it ever took since the
// last reset. All zero of devices that work in the host's.
typedef struct vx_device_memory {
    uint64_t total, free, held, peak;
} vx_device_memory;
vx_device_memory vx_device_memory_of(const vx_device *dev);
void vx_device_memory_reset(vx_device *dev); // peak = held
bool vx_device_far(const vx_device *dev);    // the host cannot read its memory

// Copies between host memory and a contiguous tensor. On return the host's memory may be reused or read.
vx_status vx_upload(vx_device *dev, vx_tensor to, const void *from);
vx_status vx_download(vx_device *dev, void *to, vx_tensor from);
vx_status vx_device_sync(vx_device *dev);

// ---- weights of files ----
// Operators take weights where they lie: in mapped files. A device with its own memory works on copies, found by address, made
// when an operator first needs one or when it was told ahead. Of devices that read host memory these do nothing.
typedef struct vx_weight_stats {
    uint64_t budget, resident, copied; // bytes: may be held, is held, went over the bus so far
    int64_t hits, misses;
} vx_weight_stats;
// Bytes that copies may take from now on (what is held stays until it must give way); 0: whatever is free when it is needed.
vx_status vx_device_weight_budget(vx_device *dev, uint64_t bytes);
// Begins to copy; a hint. Must not be called for memory that is about to go.
vx_status vx_device_prefetch(vx_device *dev, vx_tensor weight);
// Drops the copies of what lies in [begin, begin + bytes): before the memory goes away or changes. NULL: all.
void vx_device_forget(vx_device *dev, const void *begin, size_t bytes);
vx_weight_stats vx_device_weights(const vx_device *dev);
// Gives back what weights passing by took (a window over them): they come again only when they are used again.
void vx_device_trim(vx_device *dev);
// From now on copies of what reads as zeros hold random numbers (matrices N(0, 1/fan in), vectors near 1; the same for the same seed and order of first
// use): benches of weights that nobody has. VX_ERR_UNSUPPORTED of devices that work in host memory.
vx_status vx_device_made_up(vx_device *dev, uint64_t seed);

// ---- recorded stretches of operators ----
// A device may record a stretch of operators and replay it at once. Begin says in *replayed whether the stretch of this
// identity ran already; if not, the caller calls the operators and then end, which runs what was recorded. Identity: the slot
// and all bytes of `identity`, copied and compared whole. They must hold whatever the operators' arguments are made of: tensors
// with their shapes and addresses, scalars, and which weights are meant. What the device itself may change underneath (its
// copies of weights, its scratch) it looks after. Devices that do not record answer false and do nothing at the end.
// A slot may outlive what its recordings worked on, not the device.
// Recorded or not, a device that works behind the host's back lets the host be one stretch ahead of the one that runs, and takes a
// cancellation at the beginning of the next one.
typedef struct vx_recording vx_recording;
vx_status vx_device_record(vx_device *dev, vx_recording **slot, const void *identity, size_t bytes, bool *replayed);
vx_status vx_device_record_end(vx_device *dev, vx_recording **slot, vx_status inside); // inside: how the operators ended
void vx_device_record_free(vx_device *dev, vx_recording **slot);
void vx_device_graphs(vx_device *dev, bool on); // default on

#endif
