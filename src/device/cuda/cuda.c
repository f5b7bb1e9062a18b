// The CUDA device: its life, and its table.
#include "device/cuda/cuda.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "device/cuda/kernels/conv.h"
#include <stdio.h>
#include <string.h>

// ---- around every call ----
vx_status vx_cuda_begin(vx_cuda *cuda, const char *what)
{
    if (cuda->lost.code != VX_OK) return vx_within(cuda->lost, "%s", what);
    VX_TRY(vx_cuda_status(cudaSetDevice(cuda->ordinal), what));
    if (cuda->fail_in > 0 && --cuda->fail_in == 0) {
        const vx_status s = vx_cuda_status(cuda->fail_error, what);
        if (s.code == VX_ERR_DEVICE) cuda->lost = s;
        cuda->unrecordable = true;
        return s;
    }
    cuda->operation++;
    return vx_ok();
}

// A refused launch fails this call alone. An error that every later call answers, too, means that the context is gone: the
// event tells, which may be asked even in the middle of a recording.
vx_status vx_cuda_settle(vx_cuda *cuda, vx_status s)
{
    if (s.code == VX_OK) return s;
    (void)cudaGetLastError();
    cuda->unrecordable = true;
    if (s.code != VX_ERR_DEVICE || cuda->lost.code != VX_OK) return s;
    cudaEvent_t event;
    cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error == cudaSuccess) {
        error = cudaEventQuery(event);
        (void)cudaEventDestroy(event);
    }
    (void)cudaGetLastError();
    if (error != cudaSuccess) cuda->lost = s;
    return s;
}

void vx_cuda_fail_next(vx_device *dev, int64_t n, cudaError_t error)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    cuda->fail_in = n;
    cuda->fail_error = error;
}

// ---- the table ----
#define AROUND(op)                                                           \
    static vx_status around_##op(vx_device *dev, const vx_##op##_args *args) \
    {                                                                        \
        VX_TRY(vx_cuda_begin(vx_cuda_of(dev), "vx_" #op));                   \
        return vx_cuda_settle(vx_cuda_of(dev), vx_cuda_##op(dev, args));     \
    }
VX_OPERATORS(AROUND)
#undef AROUND

static void cuda_destroy(vx_device *dev)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    (void)cudaSetDevice(cuda->ordinal);
    if (cuda->stream) (void)cudaStreamSynchronize(cuda->stream);
    if (cuda->weights) {
        vx_cuda_release(dev);
        vx_cuda_shed(dev);
        vx_cuda_weights_close(cuda);
    }
    vx_cuda_dnn_close(cuda);
    vx_cuda_blas_close(cuda);
    vx_cuda_stage_close(cuda);
    vx_cuda_pace_close(cuda);
    if (cuda->stream) (void)cudaStreamDestroy(cuda->stream);
    (void)cudaGetLastError();
    vx_free(cuda);
}

static const char *cuda_isa(const vx_device *dev)
{
    const vx_cuda *cuda = vx_cuda_of_const(dev);
    return cuda->isa;
}

static int cuda_threads(const vx_device *dev)
{
    return vx_cuda_of_const(dev)->multiprocessors;
}

static vx_status alloc_zeroed(vx_cuda *cuda, void **out, size_t bytes)
{
    VX_TRY(vx_cuda_interrupt(cuda));
    VX_TRY(vx_cuda_block_take(cuda, out, bytes, "device memory"));
    const vx_status s = vx_cuda_status(cudaMemsetAsync(*out, 0, bytes, cuda->stream), "device memory");
    if (s.code == VX_OK) return s;
    vx_cuda_free(cuda, *out, bytes);
    *out = NULL;
    return s;
}

static vx_status cuda_memory_alloc(vx_device *dev, void **out, size_t bytes)
{
    *out = NULL;
    VX_TRY(vx_cuda_begin(vx_cuda_of(dev), "device memory"));
    return vx_cuda_settle(vx_cuda_of(dev), alloc_zeroed(vx_cuda_of(dev), out, bytes));
}

static void cuda_memory_free(vx_device *dev, void *p, size_t bytes)
{
    (void)cudaSetDevice(vx_cuda_of(dev)->ordinal);
    (void)vx_cuda_interrupt(vx_cuda_of(dev));
    vx_cuda_block_return(vx_cuda_of(dev), p, bytes);
}

static vx_status cuda_reserve(vx_device *dev, size_t bytes)
{
    VX_TRY(vx_cuda_begin(vx_cuda_of(dev), "scratch"));
    return vx_cuda_settle(vx_cuda_of(dev), vx_cuda_reserve(dev, bytes));
}

static vx_status cuda_upload(vx_device *dev, vx_tensor to, const void *from)
{
    VX_TRY(vx_cuda_begin(vx_cuda_of(dev), "upload"));
    return vx_cuda_settle(vx_cuda_of(dev), vx_cuda_upload(dev, to, from));
}

static vx_status cuda_download(vx_device *dev, void *to, vx_tensor from)
{
    VX_TRY(vx_cuda_begin(vx_cuda_of(dev), "download"));
    return vx_cuda_settle(vx_cuda_of(dev), vx_cuda_download(dev, to, from));
}

static vx_status synchronize(vx_cuda *cuda)
{
    VX_TRY(vx_cuda_interrupt(cuda));
    return vx_cuda_status(cudaStreamSynchronize(cuda->stream), "the CUDA device");
}

static vx_status cuda_sync(vx_device *dev)
{
    VX_TRY(vx_cuda_begin(vx_cuda_of(dev), "sync"));
    return vx_cuda_settle(vx_cuda_of(dev), synchronize(vx_cuda_of(dev)));
}

static vx_device_memory cuda_memory(const vx_device *dev)
{
    const vx_cuda *cuda = vx_cuda_of_const(dev);
    size_t free = 0, total = 0;
    if (cudaSetDevice(cuda->ordinal) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) free = total = 0;
    (void)cudaGetLastError();
    return (vx_device_memory){ .total = total, .free = free + vx_cuda_idle(cuda), .held = cuda->held, .peak = cuda->peak };
}

static void cuda_memory_reset(vx_device *dev)
{
    vx_cuda_of(dev)->peak = vx_cuda_of(dev)->held;
}

static vx_status cuda_weight_budget(vx_device *dev, uint64_t bytes)
{
    VX_TRY(vx_cuda_begin(vx_cuda_of(dev), "weight budget"));
    return vx_cuda_settle(vx_cuda_of(dev), vx_cuda_weight_budget(dev, bytes));
}

static vx_status cuda_prefetch(vx_device *dev, vx_tensor weight)
{
    VX_TRY(vx_cuda_begin(vx_cuda_of(dev), "prefetch"));
    return vx_cuda_settle(vx_cuda_of(dev), vx_cuda_prefetch(dev, weight));
}

static vx_status cuda_record(vx_device *dev, vx_recording **slot, const void *identity, size_t bytes, bool *replayed)
{
    VX_TRY(vx_cuda_begin(vx_cuda_of(dev), "record"));
    return vx_cuda_settle(vx_cuda_of(dev), vx_cuda_record(dev, slot, identity, bytes, replayed));
}

static void cuda_trim(vx_device *dev)
{
    vx_cuda_weights_trim(vx_cuda_of(dev));
}

static const struct vx_ops cuda_ops = {
    .destroy = cuda_destroy,
    .isa = cuda_isa,
    .threads = cuda_threads,
    .memory_alloc = cuda_memory_alloc,
    .memory_free = cuda_memory_free,
    .reserve = cuda_reserve,
    .release = vx_cuda_release,
    .upload = cuda_upload,
    .download = cuda_download,
    .sync = cuda_sync,
#define MEMBER(op) .op = around_##op,
    VX_OPERATORS(MEMBER)
#undef MEMBER
#define MEMBER(op) .op##_scratch = vx_cuda_##op##_scratch,
        VX_SCRATCH_OPERATORS(MEMBER)
#undef MEMBER
            .weight_budget = cuda_weight_budget,
    .prefetch = cuda_prefetch,
    .forget = vx_cuda_forget,
    .weights = vx_cuda_weight_stats,
    .trim = cuda_trim,
    .made_up = vx_cuda_made_up,
    .memory = cuda_memory,
    .memory_reset = cuda_memory_reset,
    .shed = vx_cuda_shed,
    .record = cuda_record,
    .record_end = vx_cuda_record_end,
    .record_free = vx_cuda_record_free,
    .graphs = vx_cuda_graphs,
};

// ---- what is there ----
bool vx_cuda_built(void)
{
    return true;
}

static vx_status no_device(cudaError_t error)
{
    (void)cudaGetLastError();
    if (error == cudaErrorInsufficientDriver)
        return vx_fail_remedy(VX_ERR_DEVICE_NONE, "install NVIDIA's driver, or use --device cpu",
                              "no CUDA driver that this build can use (%s)", cudaGetErrorString(error));
    if (error == cudaSuccess || error == cudaErrorNoDevice)
        return vx_fail_remedy(VX_ERR_DEVICE_NONE, "use --device cpu", "no CUDA device was found");
    return vx_fail_remedy(VX_ERR_DEVICE_NONE, "look at nvidia-smi, or use --device cpu", "CUDA does not start: %s (%s)",
                          cudaGetErrorString(error), cudaGetErrorName(error));
}

static void version_text(char *out, size_t size, int version)
{
    if (version > 0) snprintf(out, size, "%d.%d", version / 1000, version % 1000 / 10);
}

enum { OLDEST = 80 }; // compute capability 8.0: bf16 in the matrix units

static vx_status look_at_device(struct cudaDeviceProp *properties, int *devices, int ordinal)
{
    const cudaError_t error = cudaGetDeviceCount(devices);
    if (error != cudaSuccess || *devices == 0) return no_device(error);
    if (ordinal < 0 || ordinal >= *devices)
        return vx_fail_remedy(VX_ERR_DEVICE_NONE, "choose another one", "CUDA device %d was asked for, there are 0 to %d",
                              ordinal, *devices - 1);
    VX_TRY(vx_cuda_status(cudaGetDeviceProperties(properties, ordinal), "CUDA device"));
    const int sm = 10 * properties->major + properties->minor;
    if (sm < OLDEST)
        return vx_fail_remedy(VX_ERR_DEVICE_NONE, "use a card of compute capability 8.0 or newer, or --device cpu",
                              "%s has compute capability %d.%d, 8.0 or newer is needed", properties->name, properties->major,
                              properties->minor);
    return vx_ok();
}

vx_status vx_cuda_query(vx_cuda_info *out, int ordinal)
{
    *out = (vx_cuda_info){ .ordinal = ordinal };
    int version = 0;
    if (cudaDriverGetVersion(&version) == cudaSuccess) version_text(out->driver_cuda, sizeof out->driver_cuda, version);
    if (cudaRuntimeGetVersion(&version) == cudaSuccess) version_text(out->runtime, sizeof out->runtime, version);
    char text[sizeof out->cublas];
    if (vx_cuda_blas_find(text, sizeof text)) memcpy(out->cublas, text, sizeof text);
    vx_cuda probe = { .ordinal = ordinal };
    vx_cuda_dnn_open(&probe);
    if (vx_cuda_dnn_version(&probe)) snprintf(out->cudnn, sizeof out->cudnn, "%s", vx_cuda_dnn_version(&probe));
    vx_cuda_dnn_close(&probe);
    struct cudaDeviceProp properties = { 0 };
    const vx_status s = look_at_device(&properties, &out->devices, ordinal);
    memcpy(out->name, properties.name, sizeof out->name - 1);
    out->sm = 10 * properties.major + properties.minor;
    out->memory_total = properties.totalGlobalMem;
    VX_TRY(s);
    int before = 0;
    size_t free = 0, total = 0;
    (void)cudaGetDevice(&before);
    vx_status found = vx_cuda_status(cudaSetDevice(ordinal), "CUDA device");
    if (found.code == VX_OK) found = vx_cuda_status(cudaMemGetInfo(&free, &total), "CUDA device");
    (void)cudaSetDevice(before);
    out->memory_free = free;
    char bus[32];
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal) == cudaSuccess) vx_cuda_power(out, bus);
    return found;
}

// ---- birth ----
static vx_status open_all(vx_cuda *cuda)
{
    VX_TRY(vx_cuda_status(cudaSetDevice(cuda->ordinal), "CUDA device"));
    VX_TRY(vx_cuda_status(cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking), "CUDA device"));
    VX_TRY(vx_cuda_pace_open(cuda));
    VX_TRY(vx_cuda_stage_open(cuda));
    VX_TRY(vx_cuda_weights_open(cuda));
    cuda->groups = cuda->sm == 90 && vx_k_parts_groups();
    VX_TRY(vx_cuda_blas_open(cuda));
    vx_cuda_dnn_open(cuda);
    if (cuda->attention == VX_ATTENTION_CUDNN) VX_TRY_IN(vx_cuda_dnn_found(cuda), "attention by cuDNN");
    return vx_device_born(&cuda->base);
}

vx_status vx_device_cuda_create(vx_device **out, const vx_cuda_params *params)
{
    const vx_cuda_params p = params ? *params : (vx_cuda_params){ 0 };
    struct cudaDeviceProp properties;
    int devices = 0;
    *out = NULL;
    VX_TRY(look_at_device(&properties, &devices, p.ordinal));
    vx_cuda *cuda = vx_alloc_array(1, sizeof *cuda);
    VX_NEED_MEMORY(cuda, "the CUDA device");
    cuda->base = (vx_device){ .ops = &cuda_ops, .name = "cuda", .computes = true, .far = true, .has_parts = true };
    cuda->ordinal = p.ordinal;
    cuda->sm = 10 * properties.major + properties.minor;
    cuda->multiprocessors = properties.multiProcessorCount;
    cuda->memory = properties.totalGlobalMem;
    cuda->shared = (int)properties.sharedMemPerBlockOptin;
    cuda->attention = p.attention;
    cuda->graphs = true;
    cuda->short_products = VX_CUDA_SHORT_PRODUCTS;
    snprintf(cuda->isa, sizeof cuda->isa, "sm_%d", cuda->sm);
    const vx_status s = open_all(cuda);
    if (s.code != VX_OK) {
        cuda_destroy(&cuda->base);
        return s;
    }
    *out = &cuda->base;
    return vx_ok();
}
