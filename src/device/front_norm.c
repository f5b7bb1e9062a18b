// Fronts of the norms.
#include "device/check.h"

vx_status vx_rms_norm(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor w, float eps, vx_norm_rounding rounding)
{
    VX_NEED_SHAPE(vx_is_rank(x, 2) && x.shape[1] > 0, x);
    VX_NEED_SHAPE(vx_is_rank(out, 2) && vx_same_shape(out, x), out);
    VX_NEED_SHAPE(vx_is_vector_or_none(w, x.shape[1]), w);
    VX_NEED_DTYPE(vx_is_act(x.dtype), x);
    VX_NEED_DTYPE(vx_is_act_or_half(out.dtype, x.dtype), out);
    VX_NEED_NUMBER(out.dtype == x.dtype || rounding == VX_NORM_ROUND_ONCE, VX_ERR_DTYPE);
    VX_NEED_DTYPE(vx_is_stored_or_none(w), w);
    VX_NEED_GOING(dev);
    if (x.shape[0] == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, x);
    VX_NEED_DATA(dev, w);
    return dev->ops->rms_norm(dev, &(vx_rms_norm_args){ out, x, w, eps, rounding });
}

vx_status vx_rms_norm_modulate(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor w, vx_tensor shift, vx_tensor scale,
                               vx_tensor row, float eps)
{
    VX_NEED_SHAPE(vx_is_rank(x, 2) && x.shape[1] > 0, x);
    VX_NEED_SHAPE(vx_is_rank(out, 2) && vx_same_shape(out, x), out);
    VX_NEED_SHAPE(vx_is_vector_or_none(w, x.shape[1]), w);
    VX_NEED_SHAPE(vx_is_rank(shift, 2) && shift.shape[0] > 0 && shift.shape[1] == x.shape[1], shift);
    VX_NEED_SHAPE(vx_is_rank(scale, 2) && vx_same_shape(scale, shift), scale);
    VX_NEED_SHAPE(vx_is_vector(row, x.shape[0]), row);
    VX_NEED_DTYPE(vx_is_act(x.dtype), x);
    VX_NEED_DTYPE(out.dtype == x.dtype, out);
    VX_NEED_DTYPE(vx_is_stored_or_none(w), w);
    VX_NEED_DTYPE(shift.dtype == x.dtype, shift);
    VX_NEED_DTYPE(scale.dtype == x.dtype, scale);
    VX_NEED_DTYPE(row.dtype == VX_I32, row);
    VX_NEED_GOING(dev);
    if (x.shape[0] == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, x);
    VX_NEED_DATA(dev, w);
    VX_NEED_DATA(dev, shift);
    VX_NEED_DATA(dev, scale);
    VX_NEED_DATA(dev, row);
    return dev->ops->rms_norm_modulate(dev, &(vx_rms_norm_modulate_args){ out, x, w, shift, scale, row, eps });
}

vx_status vx_layer_norm(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor w, vx_tensor b, float eps)
{
    VX_NEED_SHAPE(vx_is_rank(x, 2) && x.shape[1] > 0, x);
    VX_NEED_SHAPE(vx_is_rank(out, 2) && vx_same_shape(out, x), out);
    VX_NEED_SHAPE(vx_is_vector_or_none(w, x.shape[1]), w);
    VX_NEED_SHAPE(vx_is_vector_or_none(b, x.shape[1]), b);
    VX_NEED_DTYPE(vx_is_act(x.dtype), x);
    VX_NEED_DTYPE(vx_is_act_or_half(out.dtype, x.dtype), out);
    VX_NEED_DTYPE(vx_is_stored_or_none(w), w);
    VX_NEED_DTYPE(vx_is_stored_or_none(b), b);
    VX_NEED_GOING(dev);
    if (x.shape[0] == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, x);
    VX_NEED_DATA(dev, w);
    VX_NEED_DATA(dev, b);
    return dev->ops->layer_norm(dev, &(vx_layer_norm_args){ out, x, w, b, eps });
}
