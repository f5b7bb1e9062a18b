// Fronts of the operators on pictures. All read f32.
#include "device/check.h"

enum { MAX_STRIDED_RANK = 5 };

vx_status vx_fade(vx_device *dev, vx_tensor out, vx_tensor a, vx_tensor b, int axis)
{
    VX_NEED_SHAPE(out.rank > 0 && out.rank <= MAX_STRIDED_RANK, out);
    VX_NEED_SHAPE(vx_same_shape(a, out), a);
    VX_NEED_SHAPE(vx_same_shape(b, out), b);
    VX_NEED_NUMBER(axis >= 0 && axis < out.rank, VX_ERR_SHAPE);
    VX_NEED_DTYPE(out.dtype == VX_F32, out);
    VX_NEED_DTYPE(a.dtype == VX_F32, a);
    VX_NEED_DTYPE(b.dtype == VX_F32, b);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, a);
    VX_NEED_DATA(dev, b);
    return dev->ops->fade(dev, &(vx_fade_args){ out, a, b, axis });
}

vx_status vx_clamp(vx_device *dev, vx_tensor out, vx_tensor x, float lo, float hi)
{
    VX_NEED_SHAPE(x.rank > 0, x);
    VX_NEED_SHAPE(vx_same_shape(out, x), out);
    VX_NEED_NUMBER(lo <= hi, VX_ERR_SHAPE);
    VX_NEED_DTYPE(out.dtype == VX_F32, out);
    VX_NEED_DTYPE(x.dtype == VX_F32, x);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, x);
    return dev->ops->clamp(dev, &(vx_clamp_args){ out, x, lo, hi });
}

vx_status vx_to_u8(vx_device *dev, vx_tensor out, vx_tensor x)
{
    VX_NEED_SHAPE(x.rank > 0, x);
    VX_NEED_SHAPE(vx_same_shape(out, x), out);
    VX_NEED_DTYPE(out.dtype == VX_U8, out);
    VX_NEED_DTYPE(x.dtype == VX_F32, x);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, x);
    return dev->ops->to_u8(dev, &(vx_to_u8_args){ out, x });
}
