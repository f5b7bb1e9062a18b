// Fronts of attention and of what prepares its queries and keys.
#include "device/check.h"
#include <math.h>

static bool is_heads(vx_tensor t, vx_tensor like)
{
    return vx_is_rank(t, 3) && t.shape[0] == like.shape[0] && t.shape[2] == like.shape[2];
}

static bool repeats(int64_t rows, int64_t table)
{
    return rows == table || (table > 0 && rows % table == 0);
}

vx_status vx_qk_norm_rope(vx_device *dev, vx_tensor q, vx_tensor k, const vx_qk_norm_rope_params *params)
{
    const vx_tensor q_weight = params->q_weight, k_weight = params->k_weight, cos = params->cos, sin = params->sin;
    VX_NEED_SHAPE(vx_is_rank(q, 3) && q.shape[2] > 0, q);
    VX_NEED_SHAPE(k.rank == 0 || is_heads(k, q), k);
    VX_NEED_SHAPE(vx_is_vector_or_none(q_weight, q.shape[2]), q_weight);
    VX_NEED_SHAPE(vx_is_vector_or_none(k_weight, q.shape[2]), k_weight);
    VX_NEED_SHAPE(cos.rank == 0 || (vx_is_rank(cos, 2) && repeats(q.shape[0], cos.shape[0]) && 2 * cos.shape[1] <= q.shape[2]),
                  cos);
    VX_NEED_SHAPE((cos.rank == 0 && sin.rank == 0) || (vx_is_rank(sin, 2) && vx_same_shape(sin, cos)), sin);
    VX_NEED_DTYPE(vx_is_act(q.dtype), q);
    VX_NEED_DTYPE(k.rank == 0 || k.dtype == q.dtype, k);
    VX_NEED_DTYPE(vx_is_stored_or_none(q_weight), q_weight);
    VX_NEED_DTYPE(vx_is_stored_or_none(k_weight), k_weight);
    const vx_dtype turn = params->rope_once ? VX_F32 : q.dtype;
    VX_NEED_DTYPE(cos.rank == 0 || cos.dtype == turn, cos);
    VX_NEED_DTYPE(sin.rank == 0 || sin.dtype == turn, sin);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(q) == 0 && vx_tensor_count(k) == 0) return vx_ok();
    VX_NEED_DATA(dev, q);
    VX_NEED_DATA(dev, k);
    VX_NEED_DATA(dev, q_weight);
    VX_NEED_DATA(dev, k_weight);
    VX_NEED_DATA(dev, cos);
    VX_NEED_DATA(dev, sin);
    return dev->ops->qk_norm_rope(dev, &(vx_qk_norm_rope_args){ q, k, *params });
}

vx_status vx_attention(vx_device *dev, vx_tensor out, vx_tensor q, vx_tensor k, vx_tensor v, const vx_attention_params *params)
{
    enum { MAX_HEAD_DIM = 256 };
    const vx_attention_params p = params ? *params : (vx_attention_params){ 0 };
    VX_NEED_SHAPE(vx_is_rank(q, 3) || vx_is_rank(q, 4), q);
    const int rows = q.rank - 3, heads = rows + 1, d = rows + 2; // axes
    VX_NEED_SHAPE(q.shape[d] > 0 && q.shape[d] % 8 == 0 && q.shape[d] <= MAX_HEAD_DIM, q);
    VX_NEED_SHAPE(vx_is_rank(k, q.rank) && k.shape[rows] > 0 && k.shape[d] == q.shape[d], k);
    VX_NEED_SHAPE(k.shape[heads] > 0 && q.shape[heads] % k.shape[heads] == 0, k);
    VX_NEED_SHAPE(rows == 0 || k.shape[0] == q.shape[0], k);
    VX_NEED_SHAPE(!p.causal || k.shape[rows] == q.shape[rows], k);
    VX_NEED_SHAPE(vx_is_rank(v, k.rank) && vx_same_shape(v, k), v);
    VX_NEED_SHAPE(vx_is_rank(out, q.rank) && vx_same_shape(out, q), out);
    VX_NEED_DTYPE(vx_is_act(q.dtype), q);
    VX_NEED_DTYPE(k.dtype == q.dtype, k);
    VX_NEED_DTYPE(v.dtype == q.dtype, v);
    VX_NEED_DTYPE(out.dtype == q.dtype, out);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, q);
    VX_NEED_DATA(dev, k);
    VX_NEED_DATA(dev, v);
    const float scale = p.scale != 0 ? p.scale : 1.0f / sqrtf((float)q.shape[d]);
    return dev->ops->attention(dev, &(vx_attention_args){ out, q, k, v, scale, p.causal });
}
