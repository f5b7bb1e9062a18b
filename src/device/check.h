// How a front refuses: the message names the operator, the argument, the condition that does not hold and what was found.
// The macros stand in the body of the public operator, whose name they take from __func__.
#ifndef VX_DEVICE_CHECK_H
#define VX_DEVICE_CHECK_H

#include "device/backend.h"

vx_status vx_refuse_shape(const char *op, const char *argument, const char *condition, vx_tensor found);
vx_status vx_refuse_dtype(const char *op, const char *argument, const char *condition, vx_tensor found);
vx_status vx_refuse_no_data(const char *op, const char *argument);
vx_status vx_refuse_cancelled(const char *op);

#define VX_NEED_SHAPE(condition, argument)                                                     \
    do {                                                                                       \
        if (!(condition)) return vx_refuse_shape(__func__, #argument, #condition, (argument)); \
    } while (0)
#define VX_NEED_DTYPE(condition, argument)                                                     \
    do {                                                                                       \
        if (!(condition)) return vx_refuse_dtype(__func__, #argument, #condition, (argument)); \
    } while (0)
// A number among the arguments; `code` is VX_ERR_SHAPE for an axis or a count.
#define VX_NEED_NUMBER(condition, code)                                                          \
    do {                                                                                         \
        if (!(condition)) return vx_fail((code), "%s: does not hold: %s", __func__, #condition); \
    } while (0)
// After the shapes: an arena that was planned too small gives tensors without data.
#define VX_NEED_DATA(dev, argument)                                                                    \
    do {                                                                                               \
        if ((dev)->computes && vx_lacks_data(argument)) return vx_refuse_no_data(__func__, #argument); \
    } while (0)
#define VX_NEED_GOING(dev)                                                       \
    do {                                                                         \
        if ((dev)->watch && *(dev)->watch) return vx_refuse_cancelled(__func__); \
    } while (0)

static inline bool vx_lacks_data(vx_tensor t)
{
    return t.rank > 0 && !t.data && vx_tensor_count(t) > 0;
}
static inline bool vx_quant_lacks_data(const vx_quant *q)
{
    return vx_lacks_data(q->scale) || vx_lacks_data(q->block_scale) || vx_lacks_data(q->pre_scale) ||
           vx_lacks_data(q->codebook) || vx_lacks_data(q->correction);
}
static inline bool vx_is_act(vx_dtype t)
{
    return t == VX_BF16 || t == VX_F32 || t == VX_F16;
}
// An output that takes part in the rounding of x, or half precision made of f32.
static inline bool vx_is_act_or_half(vx_dtype out, vx_dtype x)
{
    return out == x || (out == VX_F16 && x == VX_F32);
}
// Formats in which a file stores what operators read as numbers.
static inline bool vx_is_stored(vx_dtype t)
{
    return t == VX_BF16 || t == VX_F32 || t == VX_F16;
}
static inline bool vx_unit_last(vx_tensor t)
{
    return t.rank > 0 && (t.shape[t.rank - 1] <= 1 || t.stride[t.rank - 1] == 1);
}
static inline bool vx_is_rank(vx_tensor t, int rank)
{
    return t.rank == rank && vx_unit_last(t);
}
// A vector of n numbers side by side.
static inline bool vx_is_vector(vx_tensor t, int64_t n)
{
    return vx_is_rank(t, 1) && t.shape[0] == n;
}
static inline bool vx_is_vector_or_none(vx_tensor t, int64_t n)
{
    return t.rank == 0 || vx_is_vector(t, n);
}
static inline bool vx_is_stored_or_none(vx_tensor t)
{
    return t.rank == 0 || vx_is_stored(t.dtype);
}

#endif
