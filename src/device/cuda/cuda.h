// Inside the room: the CUDA device. C files translate arguments and decide; kernels/*.cu compute, behind launchers with plain
// C signatures (kernels/*.h), and return what CUDA answered.
#ifndef VX_DEVICE_CUDA_CUDA_H
#define VX_DEVICE_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#include "device/backend.h"

typedef struct vx_cuda_weights vx_cuda_weights; // weights.c: copies of file memory, by address
typedef struct vx_cuda_blas vx_cuda_blas;       // linear.c: cuBLASLt, loaded at run time
typedef struct vx_cuda_dnn vx_cuda_dnn;         // cudnn.c: cuDNN, loaded at run time; NULL where there is none
typedef struct vx_cuda_stage vx_cuda_stage;     // memory.c: pinned host memory that everything to and from the card goes through
typedef struct vx_weight_copy vx_weight_copy;   // weights.c: one weight's copy

// Which kernel computed an attention: mma.sync, wgmma, f32, the one for few keys, cuDNN's.
typedef enum vx_cuda_attention_way {
    VX_CUDA_ATTENTION_MMA,
    VX_CUDA_ATTENTION_WGMMA,
    VX_CUDA_ATTENTION_F32,
    VX_CUDA_ATTENTION_SHORT,
    VX_CUDA_ATTENTION_CUDNN,
    VX_CUDA_ATTENTION_WAYS,
} vx_cuda_attention_way;

enum { VX_CUDA_GRAPHS = 128 };             // of a slot: five shapes of the released denoiser, 25 stretches each
enum { VX_CUDA_SHORT_PRODUCTS = 1 << 27 }; // 70 us of an H200 by product_short.cu

// Memory that was given back, for the next one who wants exactly so much: recordings hold its address, and a cudaMalloc of some
// gigabytes takes milliseconds. Two requests of different sizes with four stages each find theirs again.
enum { VX_CUDA_IDLE_BLOCKS = 8 };
typedef struct vx_cuda_block {
    void *p;
    size_t bytes;
} vx_cuda_block;

typedef struct vx_cuda {
    vx_device base;
    int ordinal, sm, multiprocessors; // sm 90: compute capability 9.0
    int shared;                       // bytes of a multiprocessor's memory that one block may take
    bool groups;                      // convolutions' products by warpgroups: a Hopper, and built for it
    char isa[16];                     // "sm_90"
    uint64_t memory;                  // of the card
    cudaStream_t stream;              // all operators, in order
    vx_attention_choice attention;
    // Multiply-adds up to which a product, and each of attention's two, has the processor's bits; tests of the fast kernels set 0.
    int64_t short_products;
    vx_cuda_attention_way attention_ran;             // the last one; replayed stretches do not count
    int64_t attention_calls[VX_CUDA_ATTENTION_WAYS]; // since the device was made
    void *scratch;
    size_t scratch_size, reserved;           // of which somebody reserved; the rest is idle
    int64_t scratch_growths;                 // a plan was too small: a fault that tests count
    vx_cuda_block idle[VX_CUDA_IDLE_BLOCKS]; // given back and kept, the oldest first
    int idle_blocks;
    vx_cuda_weights *weights;
    vx_cuda_blas *blas;
    vx_cuda_dnn *dnn;
    vx_cuda_stage *stage;
    uint64_t held, peak; // bytes by vx_cuda_malloc, idle ones aside: now, and the most since they were looked at anew
    int64_t operation;   // the running operator's number
    vx_status lost;      // not VX_OK: the device is gone, and every call returns this
    int64_t fail_in;     // vx_cuda_fail_next
    cudaError_t fail_error;
    // recording.c
    cudaEvent_t pace[2]; // where stretches begin, by turns
    int64_t stretches;
    int64_t launches; // of those replayed
    bool graphs, capturing;
    bool unrecordable;        // something happened that a recording cannot repeat
    uint64_t epoch;           // advances whenever an address that a recording may hold is given back
    vx_recording *recording;  // the stretch that runs now
    vx_recording *recordings; // all slots, each with the next
} vx_cuda;

static inline vx_cuda *vx_cuda_of(vx_device *dev)
{
    return (vx_cuda *)dev;
}
static inline const vx_cuda *vx_cuda_of_const(const vx_device *dev)
{
    return (const vx_cuda *)dev;
}

// cudaSuccess is OK; out of memory VX_ERR_MEMORY; all else VX_ERR_DEVICE with CUDA's words. `what` names the operator.
vx_status vx_cuda_status(cudaError_t error, const char *what);
vx_status vx_cuda_no_memory(const char *what, const char *why); // VX_ERR_MEMORY with these words, and how much is free
// What the table puts around every call: the thread's device, a lost device's answer, simulated faults; and afterwards whether
// the device was lost.
vx_status vx_cuda_begin(vx_cuda *cuda, const char *what);
vx_status vx_cuda_settle(vx_cuda *cuda, vx_status s);
// For tests: the n-th call from now (1 = next) fails with `error`; all but cudaErrorMemoryAllocation lose the device.
void vx_cuda_fail_next(vx_device *dev, int64_t n, cudaError_t error);
// Before anything that a recording cannot hold: what was recorded so far of this stretch runs, the rest runs by itself.
vx_status vx_cuda_interrupt(vx_cuda *cuda);
// The same before what happens once and not when the stretch comes again: a weight's first copy, scratch that grows.
vx_status vx_cuda_pause(vx_cuda *cuda);
vx_status vx_cuda_record(vx_device *dev, vx_recording **slot, const void *identity, size_t bytes, bool *replayed);
vx_status vx_cuda_record_end(vx_device *dev, vx_recording **slot, vx_status inside);
void vx_cuda_record_free(vx_device *dev, vx_recording **slot);
void vx_cuda_graphs(vx_device *dev, bool on);
vx_status vx_cuda_pace_open(vx_cuda *cuda);
void vx_cuda_pace_close(vx_cuda *cuda);
bool vx_cuda_drop_graphs(vx_cuda *cuda); // of all slots; they are captured again when their stretch comes. False: there were none
void vx_cuda_recording_uses(vx_cuda *cuda, vx_weight_copy *copy); // of a weight, while a stretch is being recorded

// memory.c. Device memory by cudaMalloc, for which first what is idle gives way, then graphs, then copies of weights.
vx_status vx_cuda_malloc(vx_cuda *cuda, void **out, size_t bytes, const char *what);
bool vx_cuda_try_malloc(vx_cuda *cuda, void **out, size_t bytes);                        // no weight gives way
void vx_cuda_free(vx_cuda *cuda, void *p, size_t bytes);                                 // waits for what uses it
vx_status vx_cuda_block_take(vx_cuda *cuda, void **out, size_t bytes, const char *what); // an idle one, or by vx_cuda_malloc
void vx_cuda_block_return(vx_cuda *cuda, void *p, size_t bytes);                         // stays, idle
uint64_t vx_cuda_idle(const vx_cuda *cuda);                                              // bytes
void vx_cuda_shed(vx_device *dev);
vx_status vx_cuda_reserve(vx_device *dev, size_t bytes);
void vx_cuda_release(vx_device *dev);
vx_status vx_cuda_stage_open(vx_cuda *cuda);
void vx_cuda_stage_close(vx_cuda *cuda);
enum { VX_CUDA_CHUNK = 8 << 20 };
// Copies at most VX_CUDA_CHUNK bytes into pinned memory and says where; the caller puts a copy from there on `stream` and then
// calls _staged, which lets the piece be reused when the stream has come so far.
vx_status vx_cuda_stage_in(vx_cuda *cuda, const void *host, size_t bytes, void **pinned);
vx_status vx_cuda_staged(vx_cuda *cuda, cudaStream_t stream);
vx_status vx_cuda_upload(vx_device *dev, vx_tensor to, const void *from);
vx_status vx_cuda_download(vx_device *dev, void *to, vx_tensor from);

// weights.c
vx_status vx_cuda_weights_open(vx_cuda *cuda);
void vx_cuda_weights_close(vx_cuda *cuda);
void vx_cuda_weights_trim(vx_cuda *cuda);                // between operators: gives back what streaming needs
bool vx_cuda_weights_yield(vx_cuda *cuda, size_t bytes); // frees copies until so much is free; false: none was left
void vx_cuda_weights_touch(vx_cuda *cuda, vx_weight_copy *copy);
vx_status vx_cuda_weight_budget(vx_device *dev, uint64_t bytes);
vx_status vx_cuda_prefetch(vx_device *dev, vx_tensor weight);
void vx_cuda_forget(vx_device *dev, const void *begin, size_t bytes);
vx_weight_stats vx_cuda_weight_stats(const vx_device *dev);
vx_status vx_cuda_made_up(vx_device *dev, uint64_t seed);
// power.c: fills in the driver's version and clocks and power of the card on this bus, as far as the driver tells them.
void vx_cuda_power(vx_cuda_info *out, const char *bus);

// Scratch of the running operator; grows only where a plan was too small.
vx_status vx_cuda_scratch(vx_cuda *cuda, size_t bytes, void **out);
// Makes t->data an address on the device: left alone if it is one, else the device's copy of the file's bytes (weights.c).
// `once`: the copy is not kept. The copy is valid for work put on cuda->stream until the next call with `once` or eviction,
// which wait for it by events.
vx_status vx_cuda_resident(vx_cuda *cuda, vx_tensor *t, bool once);
// The same, converted to `dtype` (f32|bf16|f16, rounded to nearest even) on the way; the converted copy is what is kept.
vx_status vx_cuda_resident_as(vx_cuda *cuda, vx_tensor *t, vx_dtype dtype, bool once);

#define VX_CUDA_DECLARE(op) vx_status vx_cuda_##op(vx_device *dev, const vx_##op##_args *args);
VX_OPERATORS(VX_CUDA_DECLARE)
#undef VX_CUDA_DECLARE
#define VX_CUDA_DECLARE(op) size_t vx_cuda_##op##_scratch(const vx_device *dev, const vx_##op##_args *args);
VX_SCRATCH_OPERATORS(VX_CUDA_DECLARE)
#undef VX_CUDA_DECLARE

// blas.c. Algorithms are chosen when a shape is first met, and kept: the same bits from then on.
vx_status vx_cuda_blas_open(vx_cuda *cuda);
void vx_cuda_blas_close(vx_cuda *cuda);
const char *vx_cuda_blas_version(const vx_cuda *cuda); // "13.1.0 (path)"
// The same without a device, for vx_cuda_query; false: not found, and `out` says what was tried.
bool vx_cuda_blas_find(char *out, size_t size);
enum { VX_CUDA_BLAS_WORKSPACE = 32 << 20 };
// out[m,n] = x[m,k] w[n,k]^T (+ bias[n]), sums in f32, one rounding to out's format.
typedef struct vx_cuda_product {
    int64_t m, n, k;
    int64_t out_stride, x_stride, w_stride; // elements
    vx_dtype out_type, in_type;             // x and w: bf16, f16 or f32
    void *out;
    const void *x, *w, *bias; // bias in out's format, or NULL
} vx_cuda_product;
vx_status vx_cuda_blas_product(vx_cuda *cuda, const vx_cuda_product *p, void *workspace);
// For benches: products of shapes first met from now on are tried with up to `candidates` algorithms and the fastest is kept
// (0: cuBLASLt's first proposal, which is never timed).
void vx_cuda_blas_tune(vx_device *dev, int candidates);

const char *vx_cuda_attention_name(vx_cuda_attention_way way); // "mma", "wgmma", "f32", "short", "cudnn"

// quant.c. Rows of a quantised segment as f32, bf16 or f16, one after the other at `out` on the device.
vx_status vx_cuda_decode(vx_cuda *cuda, const vx_weight_segment *segment, int64_t row, int64_t rows, vx_dtype type, bool once,
                         void *out);
// vx_embed of a quantised table.
vx_status vx_cuda_embed_decoded(vx_cuda *cuda, const vx_embed_args *args);

// cudnn.c. VX_ERR_UNSUPPORTED: no library, or no engine for this shape; the caller takes the own kernel.
void vx_cuda_dnn_open(vx_cuda *cuda);
void vx_cuda_dnn_close(vx_cuda *cuda);
vx_status vx_cuda_dnn_found(const vx_cuda *cuda);     // VX_ERR_UNSUPPORTED: there is none, and why
const char *vx_cuda_dnn_version(const vx_cuda *cuda); // "9.19.0 (path)", or NULL
vx_status vx_cuda_dnn_attention(vx_cuda *cuda, const vx_attention_args *args);
size_t vx_cuda_dnn_attention_scratch(const vx_cuda *cuda, const vx_attention_args *args);

#endif
