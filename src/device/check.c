// The refusals of the fronts, in one wording.
#include "device/check.h"

vx_status vx_refuse_shape(const char *op, const char *argument, const char *condition, vx_tensor found)
{
    char shape[96];
    if (found.rank == 0) return vx_fail(VX_ERR_SHAPE, "%s: %s is missing; does not hold: %s", op, argument, condition);
    return vx_fail(VX_ERR_SHAPE, "%s: %s is %s; does not hold: %s", op, argument, vx_shape_text(shape, found), condition);
}

vx_status vx_refuse_dtype(const char *op, const char *argument, const char *condition, vx_tensor found)
{
    return vx_fail(VX_ERR_DTYPE, "%s: %s is %s; does not hold: %s", op, argument, vx_dtype_name(found.dtype), condition);
}

vx_status vx_refuse_no_data(const char *op, const char *argument)
{
    return vx_fail(VX_ERR_INTERNAL, "%s: %s has no memory: the plan was short", op, argument);
}

vx_status vx_refuse_cancelled(const char *op)
{
    return vx_fail(VX_ERR_CANCELLED, "%s: cancelled", op);
}
