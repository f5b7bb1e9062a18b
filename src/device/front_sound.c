// Fronts of the operators of the audio VAE: convolutions over time and the two activations. All f32.
#include "device/check.h"

static bool is_sound(vx_tensor t)
{
    return (t.rank == 2 || t.rank == 3) && vx_unit_last(t);
}
static int64_t length_of(vx_tensor t)
{
    return t.shape[t.rank - 1];
}
static bool same_lines(vx_tensor a, vx_tensor b)
{
    return a.rank == b.rank && (a.rank == 2 || a.shape[1] == b.shape[1]);
}

// Back ends see [channels, lines, length].
static vx_tensor lines_of(vx_tensor t)
{
    if (t.rank != 2) return t;
    t.rank = 3;
    t.shape[2] = t.shape[1];
    t.stride[2] = t.stride[1];
    t.shape[1] = 1;
    t.stride[1] = t.stride[0];
    return t;
}

static vx_conv1d_args complete(vx_tensor out, vx_tensor x, vx_tensor w, const vx_conv1d_params *params)
{
    const vx_conv1d_params p = params ? *params : (vx_conv1d_params){ 0 };
    return (vx_conv1d_args){ lines_of(out),
                             lines_of(x),
                             w,
                             p.bias,
                             lines_of(p.residual),
                             p.stride ? p.stride : 1,
                             p.padding,
                             p.dilation ? p.dilation : 1 };
}

// Numbers that a file or a configuration may have set: bounded, so that the length formulas below cannot overflow.
static bool sane(const vx_conv1d_args *a)
{
    const int64_t limit = 1 << 20;
    return a->stride >= 1 && a->stride <= limit && a->padding >= 0 && a->padding <= limit && a->dilation >= 1 &&
           a->dilation <= limit;
}

static vx_status check_f32(const char *op, const vx_conv1d_args *a)
{
    if (a->out.dtype != VX_F32) return vx_refuse_dtype(op, "out", "out.dtype == VX_F32", a->out);
    if (a->x.dtype != VX_F32) return vx_refuse_dtype(op, "x", "x.dtype == VX_F32", a->x);
    if (a->w.dtype != VX_F32) return vx_refuse_dtype(op, "w", "w.dtype == VX_F32", a->w);
    if (a->bias.rank && a->bias.dtype != VX_F32) return vx_refuse_dtype(op, "bias", "bias.dtype == VX_F32", a->bias);
    if (a->residual.rank && a->residual.dtype != VX_F32)
        return vx_refuse_dtype(op, "residual", "residual.dtype == VX_F32", a->residual);
    return vx_ok();
}

static vx_status check_data(vx_device *dev, const char *op, const vx_conv1d_args *a)
{
    if (!dev->computes) return vx_ok();
    if (vx_lacks_data(a->out)) return vx_refuse_no_data(op, "out");
    if (vx_lacks_data(a->x)) return vx_refuse_no_data(op, "x");
    if (vx_lacks_data(a->w)) return vx_refuse_no_data(op, "w");
    if (vx_lacks_data(a->bias)) return vx_refuse_no_data(op, "bias");
    if (vx_lacks_data(a->residual)) return vx_refuse_no_data(op, "residual");
    return vx_ok();
}

vx_status vx_conv1d(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor w, const vx_conv1d_params *params)
{
    const vx_conv1d_args a = complete(out, x, w, params);
    const vx_tensor bias = a.bias, residual = params ? params->residual : (vx_tensor){ 0 };
    VX_NEED_NUMBER(sane(&a), VX_ERR_SHAPE);
    VX_NEED_SHAPE(is_sound(x), x);
    VX_NEED_SHAPE(w.rank == 3 && vx_tensor_contiguous(w) && w.shape[1] == x.shape[0] && w.shape[2] > 0, w);
    const int64_t room = length_of(x) + 2 * a.padding - a.dilation * (w.shape[2] - 1) - 1;
    const int64_t length = room < 0 ? 0 : room / a.stride + 1;
    VX_NEED_SHAPE(is_sound(out) && same_lines(out, x) && out.shape[0] == w.shape[0] && length_of(out) == length, out);
    VX_NEED_SHAPE(vx_is_vector_or_none(bias, out.shape[0]), bias);
    VX_NEED_SHAPE(residual.rank == 0 || (is_sound(residual) && vx_same_shape(residual, out)), residual);
    VX_TRY(check_f32(__func__, &a));
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_TRY(check_data(dev, __func__, &a));
    return dev->ops->conv1d(dev, &a);
}

// Lengths that differ by less than the stride give the same input length: a longer one is torch's output_padding.
vx_status vx_conv_transpose1d(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor w, const vx_conv1d_params *params)
{
    const vx_conv1d_args a = complete(out, x, w, params);
    const vx_tensor bias = a.bias, residual = params ? params->residual : (vx_tensor){ 0 };
    VX_NEED_NUMBER(sane(&a), VX_ERR_SHAPE);
    VX_NEED_NUMBER(a.dilation == 1, VX_ERR_SHAPE);
    VX_NEED_SHAPE(is_sound(x), x);
    VX_NEED_SHAPE(w.rank == 3 && vx_tensor_contiguous(w) && w.shape[0] == x.shape[0] && w.shape[2] > 0, w);
    const int64_t shortest = length_of(x) == 0 ? 0 : (length_of(x) - 1) * a.stride - 2 * a.padding + w.shape[2];
    VX_NEED_SHAPE(is_sound(out) && same_lines(out, x) && out.shape[0] == w.shape[1], out);
    VX_NEED_SHAPE(length_of(out) >= shortest && length_of(out) - shortest < a.stride, out);
    VX_NEED_SHAPE(vx_is_vector_or_none(bias, out.shape[0]), bias);
    VX_NEED_SHAPE(residual.rank == 0 || (is_sound(residual) && vx_same_shape(residual, out)), residual);
    VX_TRY(check_f32(__func__, &a));
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_TRY(check_data(dev, __func__, &a));
    return dev->ops->conv_transpose1d(dev, &a);
}

vx_status vx_snake_alias_free(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor alpha, vx_tensor beta, vx_tensor up,
                              vx_tensor down)
{
    enum { TAPS = 12 };
    VX_NEED_SHAPE(is_sound(x), x);
    VX_NEED_SHAPE(is_sound(out) && vx_same_shape(out, x), out);
    VX_NEED_SHAPE(vx_is_vector(alpha, x.shape[0]), alpha);
    VX_NEED_SHAPE(vx_is_vector(beta, x.shape[0]), beta);
    VX_NEED_SHAPE(vx_is_vector(up, TAPS), up);
    VX_NEED_SHAPE(vx_is_vector(down, TAPS), down);
    VX_NEED_DTYPE(out.dtype == VX_F32, out);
    VX_NEED_DTYPE(x.dtype == VX_F32, x);
    VX_NEED_DTYPE(alpha.dtype == VX_F32, alpha);
    VX_NEED_DTYPE(beta.dtype == VX_F32, beta);
    VX_NEED_DTYPE(up.dtype == VX_F32, up);
    VX_NEED_DTYPE(down.dtype == VX_F32, down);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, x);
    VX_NEED_DATA(dev, alpha);
    VX_NEED_DATA(dev, beta);
    VX_NEED_DATA(dev, up);
    VX_NEED_DATA(dev, down);
    return dev->ops->snake_alias_free(dev, &(vx_snake_alias_free_args){ lines_of(out), lines_of(x), alpha, beta, up, down });
}

vx_status vx_snake(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor alpha)
{
    VX_NEED_SHAPE(is_sound(x), x);
    VX_NEED_SHAPE(is_sound(out) && vx_same_shape(out, x), out);
    VX_NEED_SHAPE(vx_is_vector(alpha, x.shape[0]), alpha);
    VX_NEED_DTYPE(out.dtype == VX_F32, out);
    VX_NEED_DTYPE(x.dtype == VX_F32, x);
    VX_NEED_DTYPE(alpha.dtype == VX_F32, alpha);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, x);
    VX_NEED_DATA(dev, alpha);
    return dev->ops->snake(dev, &(vx_snake_args){ lines_of(out), lines_of(x), alpha });
}
