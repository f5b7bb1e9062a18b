// Front of the matrix product: arguments checked once.
#include "device/check.h"

static vx_status check_quantised(const vx_weight_segment *s, int64_t k)
{
    VX_TRY(vx_quant_check(&s->quant, s->weight));
    if (s->quant.k != k)
        return vx_fail(VX_ERR_SHAPE, "%s of %lld columns, expected %lld", vx_quant_name(&s->quant, s->weight.dtype),
                       (long long)s->quant.k, (long long)k);
    return vx_ok();
}

static vx_status check_segment(const char *op, const vx_weight *w, int i, vx_dtype x)
{
    const vx_weight_segment *s = &w->segment[i];
    const bool plain = s->quant.kind == VX_QUANT_NONE;
    char shape[96];
    if (!plain) VX_TRY_IN(check_quantised(s, w->k), "%s: weight of segment %d", op, i);
    else if (s->weight.rank != 2 || !vx_unit_last(s->weight) || s->weight.shape[1] != w->k)
        return vx_fail(VX_ERR_SHAPE, "%s: weight of segment %d is %s, expected [rows,%lld] with unit last stride", op, i,
                       vx_shape_text(shape, s->weight), (long long)w->k);
    const int64_t rows = s->weight.shape[0];
    if (s->column < 0 || rows < 0 || s->column > w->n - rows)
        return vx_fail(VX_ERR_SHAPE, "%s: segment %d writes columns %lld to %lld of %lld", op, i, (long long)s->column,
                       (long long)s->column + rows, (long long)w->n);
    if (!vx_is_vector_or_none(s->bias, rows))
        return vx_fail(VX_ERR_SHAPE, "%s: bias of segment %d is %s, expected [%lld]", op, i, vx_shape_text(shape, s->bias),
                       (long long)rows);
    if (plain && !vx_is_stored(s->weight.dtype))
        return vx_fail(VX_ERR_DTYPE, "%s: weight of segment %d is %s, expected F32, BF16 or F16", op, i,
                       vx_dtype_name(s->weight.dtype));
    if (s->quant.pre_scale.rank && x == VX_F16)
        return vx_fail(VX_ERR_DTYPE, "%s: segment %d scales its input, which needs x of F32 or BF16", op, i);
    if (!vx_is_stored_or_none(s->bias))
        return vx_fail(VX_ERR_DTYPE, "%s: bias of segment %d is %s, expected F32, BF16 or F16", op, i,
                       vx_dtype_name(s->bias.dtype));
    return vx_ok();
}

// Every output column is written once: the rows add up to n, and no two segments overlap.
static vx_status check_weight(const char *op, const vx_weight *w, vx_dtype x)
{
    if (w->segments < 1 || w->segments > VX_MAX_SEGMENTS)
        return vx_fail(VX_ERR_SHAPE, "%s: a weight of %d segments, expected 1 to %d", op, w->segments, VX_MAX_SEGMENTS);
    int64_t rows = 0;
    for (int i = 0; i < w->segments; i++) {
        VX_TRY(check_segment(op, w, i, x));
        const int64_t begin = w->segment[i].column, end = begin + w->segment[i].weight.shape[0];
        rows += end - begin;
        for (int j = 0; j < i; j++) {
            const int64_t other = w->segment[j].column, other_end = other + w->segment[j].weight.shape[0];
            if (begin < other_end && other < end)
                return vx_fail(VX_ERR_SHAPE, "%s: segments %d and %d write the same columns", op, j, i);
        }
    }
    if (rows != w->n)
        return vx_fail(VX_ERR_SHAPE, "%s: segments have %lld rows, expected %lld", op, (long long)rows, (long long)w->n);
    return vx_ok();
}

static vx_status check_branch(const char *op, const vx_weight *w, int i)
{
    const vx_branch *b = &w->branch[i];
    char a_text[96], b_text[96];
    if (b->a.rank != 2 || b->b.rank != 2 || !vx_tensor_contiguous(b->a) || !vx_tensor_contiguous(b->b) || b->a.shape[1] != w->k ||
        b->a.shape[0] < 1 || b->b.shape[1] != b->a.shape[0])
        return vx_fail(VX_ERR_SHAPE, "%s: factors of branch %d are %s and %s, expected [r,%lld] and [rows,r], contiguous", op, i,
                       vx_shape_text(a_text, b->a), vx_shape_text(b_text, b->b), (long long)w->k);
    const int64_t rows = b->b.shape[0];
    if (b->column < 0 || rows < 1 || b->column > w->n - rows)
        return vx_fail(VX_ERR_SHAPE, "%s: branch %d adds to columns %lld to %lld of %lld", op, i, (long long)b->column,
                       (long long)b->column + rows, (long long)w->n);
    if (!vx_is_stored(b->a.dtype) || !vx_is_stored(b->b.dtype))
        return vx_fail(VX_ERR_DTYPE, "%s: factors of branch %d are %s and %s, expected F32, BF16 or F16", op, i,
                       vx_dtype_name(b->a.dtype), vx_dtype_name(b->b.dtype));
    return vx_ok();
}

static vx_status check_branches(const char *op, const vx_weight *w, vx_dtype x, vx_dtype out)
{
    if (w->branches < 0 || (w->branches > 0 && !w->branch))
        return vx_fail(VX_ERR_SHAPE, "%s: a weight of %d branches that are not there", op, w->branches);
    if (w->branches > 0 && (x == VX_F16 || out == VX_F16))
        return vx_fail(VX_ERR_DTYPE, "%s: branches take F32 or BF16, not F16", op);
    for (int i = 0; i < w->branches; i++) VX_TRY(check_branch(op, w, i));
    return vx_ok();
}

static bool weight_lacks_data(const vx_weight *w)
{
    for (int i = 0; i < w->branches; i++)
        if (vx_lacks_data(w->branch[i].a) || vx_lacks_data(w->branch[i].b)) return true;
    for (int i = 0; i < w->segments; i++)
        if (vx_lacks_data(w->segment[i].weight) || vx_lacks_data(w->segment[i].bias) || vx_quant_lacks_data(&w->segment[i].quant))
            return true;
    return false;
}

vx_status vx_linear(vx_device *dev, vx_tensor out, vx_tensor x, const vx_weight *w)
{
    VX_NEED_SHAPE(vx_is_rank(x, 2) && x.shape[1] == w->k && w->k > 0, x);
    VX_NEED_SHAPE(vx_is_rank(out, 2) && out.shape[0] == x.shape[0] && out.shape[1] == w->n, out);
    VX_NEED_DTYPE(vx_is_act(x.dtype), x);
    VX_NEED_DTYPE(out.dtype == VX_F32 || out.dtype == x.dtype || (out.dtype == VX_BF16 && x.dtype == VX_F32), out);
    VX_TRY(check_weight(__func__, w, x.dtype));
    VX_TRY(check_branches(__func__, w, x.dtype, out.dtype));
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, x);
    if (dev->computes && weight_lacks_data(w)) return vx_refuse_no_data(__func__, "w");
    return dev->ops->linear(dev, &(vx_linear_args){ out, x, w, false });
}
