// Fronts of the operators of the video VAE's encoder: [channels, frames, rows, columns], f32.
#include "device/check.h"

// Numbers that a file or a configuration may have set: bounded, so that the extents below cannot overflow.
static bool sane(const vx_conv3d_params *p)
{
    const int64_t limit = 1 << 20;
    for (int i = 0; i < 3; i++)
        if (p->stride[i] < 1 || p->stride[i] > limit || p->pad_begin[i] < 0 || p->pad_begin[i] > limit) return false;
    return p->pad_begin[1] <= 1 && p->pad_begin[2] <= 1 && p->pad_end[0] == 0 && p->pad_end[1] >= 0 && p->pad_end[1] <= 1 &&
           p->pad_end[2] >= 0 && p->pad_end[2] <= 1;
}

static int64_t extent(const vx_conv3d_params *p, int axis, int64_t x, int64_t kernel)
{
    const int64_t room = x + p->pad_begin[axis] + p->pad_end[axis] - kernel;
    return room < 0 ? 0 : room / p->stride[axis] + 1;
}

// -1 reads 1: there has to be one.
static bool can_reflect(const vx_conv3d_params *p, vx_tensor x)
{
    for (int i = 1; i < 3; i++)
        if (p->reflect && p->pad_begin[i] + p->pad_end[i] > 0 && x.shape[i + 1] == 1) return false;
    return true;
}

vx_status vx_conv3d(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor weight, const vx_conv3d_params *params)
{
    vx_conv3d_params p = params ? *params : (vx_conv3d_params){ 0 };
    for (int i = 0; i < 3; i++) p.stride[i] = p.stride[i] ? p.stride[i] : 1;
    const vx_tensor bias = p.bias, residual = p.residual;
    VX_NEED_NUMBER(sane(&p), VX_ERR_SHAPE);
    VX_NEED_SHAPE(vx_is_rank(x, 4), x);
    VX_NEED_SHAPE(weight.rank == 5 && vx_tensor_contiguous(weight) && weight.shape[1] == x.shape[0], weight);
    VX_NEED_SHAPE(weight.shape[2] > 0 && weight.shape[3] > 0 && weight.shape[4] > 0, weight);
    VX_NEED_NUMBER(p.pad_begin[0] < weight.shape[2], VX_ERR_SHAPE);
    VX_NEED_NUMBER(!p.alone || (p.stride[0] == 1 && p.pad_begin[0] == weight.shape[2] - 1), VX_ERR_SHAPE);
    VX_NEED_SHAPE(can_reflect(&p, x), x);
    VX_NEED_SHAPE(vx_is_rank(out, 4) && out.shape[0] == weight.shape[0], out);
    VX_NEED_SHAPE(out.shape[1] == extent(&p, 0, x.shape[1], weight.shape[2]), out);
    VX_NEED_SHAPE(out.shape[2] == extent(&p, 1, x.shape[2], weight.shape[3]), out);
    VX_NEED_SHAPE(out.shape[3] == extent(&p, 2, x.shape[3], weight.shape[4]), out);
    VX_NEED_SHAPE(vx_is_vector_or_none(bias, out.shape[0]), bias);
    VX_NEED_SHAPE(residual.rank == 0 || (vx_is_rank(residual, 4) && vx_same_shape(residual, out)), residual);
    VX_NEED_DTYPE(out.dtype == VX_F32, out);
    VX_NEED_DTYPE(x.dtype == VX_F32, x);
    VX_NEED_DTYPE(vx_is_stored(weight.dtype), weight);
    VX_NEED_DTYPE(vx_is_stored_or_none(bias), bias);
    VX_NEED_DTYPE(residual.rank == 0 || residual.dtype == VX_F32, residual);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, x);
    VX_NEED_DATA(dev, weight);
    VX_NEED_DATA(dev, bias);
    VX_NEED_DATA(dev, residual);
    vx_conv3d_args args = { out, x, weight, bias, residual, .reflect = p.reflect, .alone = p.alone };
    for (int i = 0; i < 3; i++) {
        args.stride[i] = p.stride[i];
        args.pad[i] = p.pad_begin[i];
    }
    return dev->ops->conv3d(dev, &args);
}

vx_status vx_group_norm(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor w, vx_tensor b, int64_t groups, float eps,
                        bool silu)
{
    VX_NEED_SHAPE(vx_is_rank(x, 4), x);
    VX_NEED_SHAPE(vx_is_rank(out, 4) && vx_same_shape(out, x), out);
    VX_NEED_SHAPE(vx_is_vector(w, x.shape[0]), w);
    VX_NEED_SHAPE(vx_is_vector(b, x.shape[0]), b);
    VX_NEED_NUMBER(groups > 0 && x.shape[0] % groups == 0, VX_ERR_SHAPE);
    VX_NEED_DTYPE(out.dtype == VX_F32, out);
    VX_NEED_DTYPE(x.dtype == VX_F32, x);
    VX_NEED_DTYPE(vx_is_stored(w.dtype), w);
    VX_NEED_DTYPE(vx_is_stored(b.dtype), b);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, x);
    VX_NEED_DATA(dev, w);
    VX_NEED_DATA(dev, b);
    return dev->ops->group_norm(dev, &(vx_group_norm_args){ out, x, w, b, groups, eps, silu });
}
