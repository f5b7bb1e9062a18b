// The operators on tensors of any strides: merged axes to kernels/strided.h.
#include "device/cuda/kernels/strided.h"
#include "device/cuda/cuda.h"
#include "device/walk.h"

_Static_assert((int)VX_K_RANK == (int)VX_MAX_RANK && (int)VX_K_TENSORS == (int)VX_WALK_TENSORS, "one walk for both");
_Static_assert((int)VX_K_MAX_TERMS == (int)VX_MAX_TERMS, "as many terms");

static vx_k_walk walk_of(int tensors, const vx_tensor *t)
{
    const vx_walk w = vx_walk_of(tensors, t);
    vx_k_walk k = { .rank = w.rank };
    for (int i = 0; i < w.rank; i++) {
        k.shape[i] = w.shape[i];
        for (int j = 0; j < tensors; j++) k.stride[j][i] = w.stride[j][i];
    }
    return k;
}

// Numbers that move unchanged go in the largest pieces that addresses, strides and the line's length allow: of 16, 8, 4 or 2
// bytes, where a line is one piece of memory on both sides.
static int merge_elements(vx_k_walk *w, const void *out, const void *x, int size)
{
    const int last = w->rank - 1;
    while (size < 16 && w->stride[0][last] == 1 && w->stride[1][last] == 1) {
        uint64_t odd = (uint64_t)(uintptr_t)out | (uint64_t)(uintptr_t)x | (uint64_t)(w->shape[last] * size);
        for (int i = 0; i < last; i++) odd |= (uint64_t)(w->stride[0][i] * size) | (uint64_t)(w->stride[1][i] * size);
        if (odd % (2 * (uint64_t)size) != 0) break;
        w->shape[last] /= 2;
        for (int i = 0; i < last; i++) w->stride[0][i] /= 2, w->stride[1][i] /= 2;
        size *= 2;
    }
    return size;
}

vx_status vx_cuda_copy(vx_device *dev, const vx_copy_args *args)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    vx_tensor x = args->x;
    const vx_tensor out = args->out;
    VX_TRY(vx_cuda_resident(cuda, &x, false)); // learned rows may lie in a file
    const vx_tensor both[] = { out, x };
    vx_k_walk walk = walk_of(2, both);
    if (out.dtype != x.dtype)
        return vx_cuda_status(vx_k_copy_as(&walk, out.data, out.dtype, x.data, x.dtype, cuda->stream), "vx_copy");
    const int size = merge_elements(&walk, out.data, x.data, vx_dtype_bits(x.dtype) / 8);
    return vx_cuda_status(vx_k_move(&walk, out.data, x.data, size, cuda->stream), "vx_copy");
}

vx_status vx_cuda_blend(vx_device *dev, const vx_blend_args *args)
{
    vx_k_blend blend = { .out = vx_f32_of(args->out), .terms = args->count, .n = vx_tensor_count(args->out) };
    for (int i = 0; i < args->count; i++) {
        blend.x[i] = vx_f32_of(args->term[i].x);
        blend.c[i] = args->term[i].c;
    }
    return vx_cuda_status(vx_k_blend_run(&blend, vx_cuda_of(dev)->stream), "vx_blend");
}

vx_status vx_cuda_affine(vx_device *dev, const vx_affine_args *args)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    vx_tensor scale = args->scale, shift = args->shift;
    VX_TRY(vx_cuda_resident(cuda, &scale, false));
    VX_TRY(vx_cuda_resident(cuda, &shift, false));
    const vx_tensor t[] = { args->out, args->x, vx_along_axis(args->out, scale, args->axis),
                            vx_along_axis(args->out, shift, args->axis) };
    const vx_k_walk walk = walk_of(4, t);
    return vx_cuda_status(
        vx_k_affine(&walk, vx_f32_of(args->out), vx_f32_of(args->x), vx_f32_of(scale), vx_f32_of(shift), cuda->stream),
        "vx_affine");
}

vx_status vx_cuda_fade(vx_device *dev, const vx_fade_args *args)
{
    const int64_t extent = args->out.shape[args->axis];
    // The fourth "tensor" has no data: its offset is the index along the axis.
    const vx_tensor index = { .dtype = VX_F32, .rank = 1, .shape = { extent }, .stride = { 1 } };
    const vx_tensor t[] = { args->out, args->a, args->b, vx_along_axis(args->out, index, args->axis) };
    const vx_k_walk walk = walk_of(4, t);
    return vx_cuda_status(
        vx_k_fade(&walk, vx_f32_of(args->out), vx_f32_of(args->a), vx_f32_of(args->b), (float)extent, vx_cuda_of(dev)->stream),
        "vx_fade");
}

vx_status vx_cuda_clamp(vx_device *dev, const vx_clamp_args *args)
{
    const vx_tensor t[] = { args->out, args->x };
    const vx_k_walk walk = walk_of(2, t);
    return vx_cuda_status(
        vx_k_clamp(&walk, vx_f32_of(args->out), vx_f32_of(args->x), args->lo, args->hi, vx_cuda_of(dev)->stream), "vx_clamp");
}

vx_status vx_cuda_to_u8(vx_device *dev, const vx_to_u8_args *args)
{
    const vx_tensor t[] = { args->out, args->x };
    const vx_k_walk walk = walk_of(2, t);
    return vx_cuda_status(vx_k_to_u8(&walk, args->out.data, vx_f32_of(args->x), vx_cuda_of(dev)->stream), "vx_to_u8");
}

vx_status vx_cuda_mark_not_finite(vx_device *dev, const vx_mark_not_finite_args *args)
{
    enum { VECTOR = 16 };
    int32_t *flag = (int32_t *)args->flag.data + args->index;
    const vx_tensor x = args->x;
    const size_t bytes = vx_tensor_bytes(x);
    if (vx_tensor_contiguous(x) && bytes && bytes % VECTOR == 0 && (uintptr_t)x.data % VECTOR == 0)
        return vx_cuda_status(vx_k_mark_line(flag, x.data, x.dtype, (int64_t)bytes, vx_cuda_of(dev)->stream),
                              "vx_mark_not_finite");
    const vx_k_walk walk = walk_of(1, &x);
    return vx_cuda_status(vx_k_mark_not_finite(&walk, flag, x.data, x.dtype, vx_cuda_of(dev)->stream), "vx_mark_not_finite");
}
