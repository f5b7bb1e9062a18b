// Attention: which kernel computes it. The choice looks at shapes, strides, formats, the architecture and cuDNN's version, never
// at a clock, because the kernels differ in their last bits.
#include "device/cuda/kernels/attention.h"
#include "base/checked.h"
#include "device/cuda/cuda.h"
#include <string.h>

const char *vx_cuda_attention_name(vx_cuda_attention_way way)
{
    static const char *const names[] = { "mma", "wgmma", "f32", "short", "cudnn" };
    return way >= 0 && way < VX_CUDA_ATTENTION_WAYS ? names[way] : "";
}

const char *vx_cuda_attention_used(const vx_device *dev)
{
    if (strcmp(dev->name, "cuda") != 0) return "";
    const vx_cuda *cuda = vx_cuda_of_const(dev);
    int64_t calls = 0;
    for (int i = 0; i < VX_CUDA_ATTENTION_WAYS; i++) calls += cuda->attention_calls[i];
    return calls > 0 ? vx_cuda_attention_name(cuda->attention_ran) : "";
}

static vx_k_attention kernel_args(const vx_attention_args *args)
{
    const int64_t items = vx_attention_items(args);
    const vx_attention_args first = vx_attention_item(args, 0);
    vx_k_attention a = {
        .out = first.out.data,
        .q = first.q.data,
        .k = first.k.data,
        .v = first.v.data,
        .sq = first.q.shape[0],
        .skv = first.k.shape[0],
        .heads = first.q.shape[1],
        .kv_heads = first.k.shape[1],
        .head_dim = first.q.shape[2],
        .out_row = first.out.stride[0],
        .out_head = first.out.stride[1],
        .q_row = first.q.stride[0],
        .q_head = first.q.stride[1],
        .k_row = first.k.stride[0],
        .k_head = first.k.stride[1],
        .v_row = first.v.stride[0],
        .v_head = first.v.stride[1],
        .batch = items,
        .scale = first.scale,
        .causal = first.causal,
        .f16 = first.q.dtype == VX_F16,
    };
    if (items == 1) return a; // strides of axes of one do not matter, here and below
    a.out_batch = args->out.stride[0];
    a.q_batch = args->q.stride[0];
    a.k_batch = args->k.stride[0];
    a.v_batch = args->v.stride[0];
    return a;
}

// What the kernels and cuDNN read: lines that begin at multiples of 16 bytes (f32: 32).
static bool lines_up(vx_tensor t)
{
    for (int i = 0; i + 1 < t.rank; i++)
        if (t.shape[i] != 1 && t.stride[i] % 8 != 0) return false;
    return (uintptr_t)t.data % 16 == 0;
}

static bool all_line_up(const vx_attention_args *args)
{
    return lines_up(args->q) && lines_up(args->k) && lines_up(args->v) && lines_up(args->out);
}

// ---- the choice ----
// Shapes that cuDNN is offered at all: the others are the own kernels' also where the user asked for cuDNN. With a negative scale
// 9.19 gives NaN.
static bool for_cudnn(const vx_attention_args *args)
{
    enum { WIDEST = 128, FEWEST = 128 }; // few queries it splits over the keys, and gives other bits the next time
    const vx_tensor q = vx_attention_item(args, 0).q;
    return !args->causal && q.shape[0] >= FEWEST && args->scale > 0 && q.dtype != VX_F32 && q.shape[2] <= WIDEST &&
           all_line_up(args);
}

// docs/performance.md has the measurements. On Hopper the own kernels win where it is worth while: at width 72 cuDNN is faster,
// but saves 4 ms over a whole vision tower, for which it would have to start. Data-centre Blackwell runs mma.sync far below its
// peak; there the choice follows from the architecture and is not measured.
static bool cudnn_is_faster(const vx_cuda *cuda, const vx_attention_args *args)
{
    enum { BLACKWELL = 100, BLACKWELL_END = 110, LONG = 4096 };
    return cuda->sm >= BLACKWELL && cuda->sm < BLACKWELL_END && vx_attention_item(args, 0).k.shape[0] >= LONG &&
           vx_cuda_dnn_version(cuda);
}

static bool wants_cudnn(const vx_cuda *cuda, const vx_attention_args *args)
{
    if (cuda->attention == VX_ATTENTION_OWN || !for_cudnn(args)) return false;
    return cuda->attention == VX_ATTENTION_CUDNN || cudnn_is_faster(cuda, args);
}

// Speed is nothing there, parity with the processor is.
static bool is_short(const vx_cuda *cuda, const vx_k_attention *a)
{
    return (double)a->sq * (double)a->skv * (double)a->heads * (double)a->head_dim <= (double)cuda->short_products;
}

static vx_cuda_attention_way own_way(const vx_cuda *cuda, const vx_k_attention *a, vx_dtype dtype)
{
    enum { HOPPER = 90 };
    if (dtype == VX_F32) return VX_CUDA_ATTENTION_F32;
    if (is_short(cuda, a) && vx_k_attention_short_takes(a)) return VX_CUDA_ATTENTION_SHORT;
    return cuda->sm == HOPPER && vx_k_attention_sm90_takes(a) ? VX_CUDA_ATTENTION_WGMMA : VX_CUDA_ATTENTION_MMA;
}

// ---- tensors that do not line up: copies that do ----
static vx_tensor packed(vx_tensor t, void *at)
{
    return vx_tensor_make(at, t.dtype, t.rank, t.shape);
}

static size_t packed_bytes(vx_tensor t)
{
    enum { LINE = 256 };
    return lines_up(t) ? 0 : vx_align_up(vx_tensor_bytes(t), LINE);
}

static size_t all_packed_bytes(const vx_attention_args *args)
{
    return packed_bytes(args->q) + packed_bytes(args->k) + packed_bytes(args->v) + packed_bytes(args->out);
}

static vx_status line_up(vx_cuda *cuda, const vx_attention_args *args, vx_attention_args *lined)
{
    void *scratch;
    *lined = *args;
    VX_TRY(vx_cuda_scratch(cuda, all_packed_bytes(args), &scratch));
    const vx_tensor *const from[] = { &args->q, &args->k, &args->v, &args->out };
    vx_tensor *const to[] = { &lined->q, &lined->k, &lined->v, &lined->out };
    char *at = scratch;
    for (int i = 0; i < 4; i++) {
        const size_t bytes = packed_bytes(*from[i]);
        if (bytes == 0) continue;
        *to[i] = packed(*from[i], at);
        at += bytes;
        if (i < 3) VX_TRY(vx_cuda_copy(&cuda->base, &(vx_copy_args){ *to[i], *from[i] }));
    }
    return vx_ok();
}

// ---- the operator ----
size_t vx_cuda_attention_scratch(const vx_device *dev, const vx_attention_args *args)
{
    const vx_cuda *cuda = vx_cuda_of_const(dev);
    const vx_attention_args first = vx_attention_item(args, 0);
    return wants_cudnn(cuda, args) ? vx_cuda_dnn_attention_scratch(cuda, &first) : all_packed_bytes(args);
}

static vx_status by_own_kernel(vx_cuda *cuda, const vx_attention_args *args);
static vx_status one_by_one(vx_cuda *cuda, const vx_attention_args *args)
{
    for (int64_t i = 0; i < vx_attention_items(args); i++) {
        const vx_attention_args item = vx_attention_item(args, i);
        VX_TRY(by_own_kernel(cuda, &item));
    }
    return vx_ok();
}

// One launch for all items. What is chosen is what one item alone would get: so each has the bits of its own call.
static vx_status by_own_kernel(vx_cuda *cuda, const vx_attention_args *args)
{
    enum { MOST = 65535 }; // blocks along z
    const vx_attention_args first = vx_attention_item(args, 0);
    const vx_k_attention a = kernel_args(args), one = kernel_args(&first);
    const vx_cuda_attention_way way = own_way(cuda, &one, first.q.dtype);
    cudaError_t error;
    if (a.batch > MOST || (way == VX_CUDA_ATTENTION_WGMMA && !vx_k_attention_sm90_takes(&a))) return one_by_one(cuda, args);
    if (way == VX_CUDA_ATTENTION_F32) error = vx_k_attention_f32(&a, cuda->stream);
    else if (way == VX_CUDA_ATTENTION_SHORT) error = vx_k_attention_short(&a, cuda->stream);
    else if (way == VX_CUDA_ATTENTION_WGMMA) error = vx_k_attention_sm90(&a, cuda->multiprocessors, cuda->stream);
    else error = vx_k_attention_any(&a, cuda->stream);
    cuda->attention_calls[way]++;
    cuda->attention_ran = way;
    return vx_cuda_status(error, "attention");
}

// A plan belongs to one item: for several of them cuDNN might choose another engine.
static vx_status by_cudnn(vx_cuda *cuda, const vx_attention_args *args)
{
    for (int64_t i = 0; i < vx_attention_items(args); i++) {
        const vx_attention_args item = vx_attention_item(args, i);
        VX_TRY(vx_cuda_dnn_attention(cuda, &item));
        cuda->attention_calls[VX_CUDA_ATTENTION_CUDNN]++;
        cuda->attention_ran = VX_CUDA_ATTENTION_CUDNN;
    }
    return vx_ok();
}

vx_status vx_cuda_attention(vx_device *dev, const vx_attention_args *args)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    if (wants_cudnn(cuda, args)) {
        const vx_status s = by_cudnn(cuda, args);
        if (s.code != VX_ERR_UNSUPPORTED || cuda->attention == VX_ATTENTION_CUDNN) return s;
    }
    if (all_line_up(args)) return by_own_kernel(cuda, args);
    vx_attention_args lined;
    VX_TRY(line_up(cuda, args, &lined));
    VX_TRY(by_own_kernel(cuda, &lined));
    if (lines_up(args->out)) return vx_ok();
    return vx_cuda_copy(dev, &(vx_copy_args){ args->out, lined.out });
}
