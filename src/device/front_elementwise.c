// Fronts of the element-wise operators of the networks.
#include "device/check.h"

vx_status vx_add(vx_device *dev, vx_tensor x, vx_tensor y)
{
    VX_NEED_SHAPE(vx_is_rank(x, 2), x);
    VX_NEED_SHAPE(vx_is_rank(y, 2) && vx_same_shape(x, y), y);
    VX_NEED_DTYPE(vx_is_act(x.dtype), x);
    VX_NEED_DTYPE(y.dtype == x.dtype, y);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(x) == 0) return vx_ok();
    VX_NEED_DATA(dev, x);
    VX_NEED_DATA(dev, y);
    return dev->ops->add(dev, &(vx_add_args){ x, y });
}

vx_status vx_gate_add(vx_device *dev, vx_tensor x, vx_tensor y, vx_tensor gate, vx_tensor row)
{
    VX_NEED_SHAPE(vx_is_rank(x, 2), x);
    VX_NEED_SHAPE(vx_is_rank(y, 2) && vx_same_shape(x, y), y);
    VX_NEED_SHAPE(vx_is_rank(gate, 2) && gate.shape[0] > 0 && gate.shape[1] == x.shape[1], gate);
    VX_NEED_SHAPE(vx_is_vector_or_none(row, x.shape[0]), row);
    VX_NEED_DTYPE(vx_is_act(x.dtype), x);
    VX_NEED_DTYPE(vx_is_act_or_half(y.dtype, x.dtype), y);
    VX_NEED_DTYPE(gate.dtype == x.dtype || (x.dtype == VX_F32 && vx_is_stored(gate.dtype)), gate);
    VX_NEED_DTYPE(row.rank == 0 || row.dtype == VX_I32, row);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(x) == 0) return vx_ok();
    VX_NEED_DATA(dev, x);
    VX_NEED_DATA(dev, y);
    VX_NEED_DATA(dev, gate);
    VX_NEED_DATA(dev, row);
    return dev->ops->gate_add(dev, &(vx_gate_add_args){ x, y, gate, row });
}

vx_status vx_gate_add_norm(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor y, const vx_gate_add_norm_params *params)
{
    const vx_tensor gate = params->gate, w = params->w, shift = params->shift, scale = params->scale, row = params->row;
    const bool plain = shift.rank == 0 && scale.rank == 0;
    VX_NEED_SHAPE(vx_is_rank(x, 2) && x.shape[1] > 0, x);
    VX_NEED_SHAPE(vx_is_rank(out, 2) && vx_same_shape(out, x) && (!out.data || out.data != x.data), out);
    VX_NEED_SHAPE(vx_is_rank(y, 2) && vx_same_shape(x, y), y);
    VX_NEED_SHAPE(vx_is_rank(gate, 2) && gate.shape[0] > 0 && gate.shape[1] == x.shape[1], gate);
    VX_NEED_SHAPE(vx_is_vector_or_none(w, x.shape[1]), w);
    VX_NEED_SHAPE(plain || (vx_is_rank(shift, 2) && vx_same_shape(shift, gate)), shift);
    VX_NEED_SHAPE(plain || (vx_is_rank(scale, 2) && vx_same_shape(scale, gate)), scale);
    VX_NEED_SHAPE(plain ? vx_is_vector_or_none(row, x.shape[0]) : vx_is_vector(row, x.shape[0]), row);
    VX_NEED_DTYPE(vx_is_act(x.dtype), x);
    VX_NEED_DTYPE(plain ? vx_is_act_or_half(out.dtype, x.dtype) : out.dtype == x.dtype, out);
    VX_NEED_DTYPE(plain ? vx_is_act_or_half(y.dtype, x.dtype) : y.dtype == x.dtype, y);
    VX_NEED_DTYPE(gate.dtype == x.dtype || (plain && x.dtype == VX_F32 && vx_is_stored(gate.dtype)), gate);
    VX_NEED_DTYPE(vx_is_stored_or_none(w), w);
    VX_NEED_DTYPE(plain || shift.dtype == x.dtype, shift);
    VX_NEED_DTYPE(plain || scale.dtype == x.dtype, scale);
    VX_NEED_DTYPE(row.rank == 0 || row.dtype == VX_I32, row);
    VX_NEED_GOING(dev);
    if (x.shape[0] == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, x);
    VX_NEED_DATA(dev, y);
    VX_NEED_DATA(dev, gate);
    VX_NEED_DATA(dev, w);
    VX_NEED_DATA(dev, shift);
    VX_NEED_DATA(dev, scale);
    VX_NEED_DATA(dev, row);
    return dev->ops->gate_add_norm(
        dev, &(vx_gate_add_norm_args){ { x, y, gate, row }, { out, x, w, shift, scale, row, params->eps } });
}

vx_status vx_swiglu(vx_device *dev, vx_tensor out, vx_tensor u, bool gate_first)
{
    VX_NEED_SHAPE(vx_is_rank(u, 2), u);
    VX_NEED_SHAPE(vx_is_rank(out, 2) && out.shape[0] == u.shape[0] && 2 * out.shape[1] == u.shape[1], out);
    VX_NEED_DTYPE(vx_is_act(u.dtype), u);
    VX_NEED_DTYPE(out.dtype == u.dtype, out);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, u);
    return dev->ops->swiglu(dev, &(vx_swiglu_args){ out, u, gate_first });
}

vx_status vx_silu(vx_device *dev, vx_tensor out, vx_tensor x)
{
    VX_NEED_SHAPE(vx_is_rank(x, 2), x);
    VX_NEED_SHAPE(vx_is_rank(out, 2) && vx_same_shape(out, x), out);
    VX_NEED_DTYPE(vx_is_act(x.dtype), x);
    VX_NEED_DTYPE(vx_is_act(out.dtype), out);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, x);
    return dev->ops->silu(dev, &(vx_silu_args){ out, x });
}

vx_status vx_gelu(vx_device *dev, vx_tensor out, vx_tensor x, bool tanh_form)
{
    VX_NEED_SHAPE(vx_is_rank(x, 2), x);
    VX_NEED_SHAPE(vx_is_rank(out, 2) && vx_same_shape(out, x), out);
    VX_NEED_DTYPE(vx_is_act(x.dtype), x);
    VX_NEED_DTYPE(out.dtype == x.dtype, out);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, x);
    return dev->ops->gelu(dev, &(vx_gelu_args){ out, x, tanh_form });
}

static bool copies(vx_dtype out, vx_dtype x)
{
    return (vx_is_stored(out) && vx_is_stored(x)) || (out == x && (x == VX_I32 || x == VX_U8));
}

vx_status vx_copy(vx_device *dev, vx_tensor out, vx_tensor x)
{
    VX_NEED_SHAPE(x.rank > 0, x);
    VX_NEED_SHAPE(vx_same_shape(out, x), out);
    VX_NEED_DTYPE(vx_is_stored(x.dtype) || x.dtype == VX_I32 || x.dtype == VX_U8, x);
    VX_NEED_DTYPE(copies(out.dtype, x.dtype), out);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, x);
    return dev->ops->copy(dev, &(vx_copy_args){ out, x });
}

vx_status vx_blend(vx_device *dev, vx_tensor out, const vx_term *terms, int count)
{
    vx_blend_args args = { .out = out, .count = count };
    VX_NEED_NUMBER(count >= 1 && count <= VX_MAX_TERMS, VX_ERR_SHAPE);
    VX_NEED_SHAPE(out.rank > 0 && vx_tensor_contiguous(out), out);
    VX_NEED_DTYPE(out.dtype == VX_F32, out);
    for (int i = 0; i < count; i++) {
        const vx_tensor x = terms[i].x;
        VX_NEED_SHAPE(vx_same_shape(x, out) && vx_tensor_contiguous(x), x);
        VX_NEED_DTYPE(x.dtype == VX_F32, x);
        args.term[i] = terms[i];
    }
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    for (int i = 0; i < count; i++) {
        const vx_tensor x = terms[i].x;
        VX_NEED_DATA(dev, x);
    }
    return dev->ops->blend(dev, &args);
}

enum { MAX_STRIDED_RANK = 5 };

vx_status vx_affine(vx_device *dev, vx_tensor out, vx_tensor x, vx_tensor scale, vx_tensor shift, int axis)
{
    VX_NEED_SHAPE(x.rank > 0 && x.rank <= MAX_STRIDED_RANK, x);
    VX_NEED_SHAPE(vx_same_shape(out, x), out);
    VX_NEED_NUMBER(axis >= 0 && axis < x.rank, VX_ERR_SHAPE);
    VX_NEED_SHAPE(vx_is_vector(scale, x.shape[axis]), scale);
    VX_NEED_SHAPE(vx_is_vector(shift, x.shape[axis]), shift);
    VX_NEED_DTYPE(out.dtype == VX_F32, out);
    VX_NEED_DTYPE(x.dtype == VX_F32, x);
    VX_NEED_DTYPE(scale.dtype == VX_F32, scale);
    VX_NEED_DTYPE(shift.dtype == VX_F32, shift);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, x);
    VX_NEED_DATA(dev, scale);
    VX_NEED_DATA(dev, shift);
    return dev->ops->affine(dev, &(vx_affine_args){ out, x, scale, shift, axis });
}

vx_status vx_embed(vx_device *dev, vx_tensor out, vx_tensor table, const vx_quant *quant, vx_tensor ids)
{
    const vx_quant q = quant ? *quant : (vx_quant){ 0 };
    const bool plain = q.kind == VX_QUANT_NONE;
    VX_NEED_SHAPE(vx_is_rank(table, 2), table);
    if (!plain) VX_TRY_IN(vx_quant_check(&q, table), "%s: table", __func__);
    const int64_t n = plain ? table.shape[1] : q.k;
    VX_NEED_SHAPE(vx_is_rank(ids, 1), ids);
    VX_NEED_SHAPE(vx_is_rank(out, 2) && out.shape[0] == ids.shape[0] && out.shape[1] == n, out);
    VX_NEED_SHAPE(q.pre_scale.rank == 0, q.pre_scale);
    VX_NEED_DTYPE(!plain || vx_is_stored(table.dtype), table);
    VX_NEED_DTYPE(ids.dtype == VX_I32, ids);
    VX_NEED_DTYPE(vx_is_act(out.dtype), out);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, table);
    VX_NEED_DATA(dev, ids);
    if (dev->computes && vx_quant_lacks_data(&q)) return vx_refuse_no_data(__func__, "quant");
    return dev->ops->embed(dev, &(vx_embed_args){ out, table, ids, q });
}

vx_status vx_embed_blend(vx_device *dev, vx_tensor out, vx_tensor table, vx_tensor ids, vx_tensor weights)
{
    VX_NEED_SHAPE(vx_is_rank(table, 2), table);
    VX_NEED_SHAPE(vx_is_rank(ids, 2) && ids.shape[1] == VX_CORNERS, ids);
    VX_NEED_SHAPE(vx_is_rank(weights, 2) && vx_same_shape(weights, ids), weights);
    VX_NEED_SHAPE(vx_is_rank(out, 2) && out.shape[0] == ids.shape[0] && out.shape[1] == table.shape[1], out);
    VX_NEED_DTYPE(vx_is_stored(table.dtype), table);
    VX_NEED_DTYPE(ids.dtype == VX_I32, ids);
    VX_NEED_DTYPE(weights.dtype == VX_F32, weights);
    VX_NEED_DTYPE(vx_is_act(out.dtype), out);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(out) == 0) return vx_ok();
    VX_NEED_DATA(dev, out);
    VX_NEED_DATA(dev, table);
    VX_NEED_DATA(dev, ids);
    VX_NEED_DATA(dev, weights);
    return dev->ops->embed_blend(dev, &(vx_embed_blend_args){ out, table, ids, weights });
}

vx_status vx_mark_not_finite(vx_device *dev, vx_tensor flag, int64_t index, vx_tensor x)
{
    VX_NEED_SHAPE(vx_is_rank(flag, 1), flag);
    VX_NEED_NUMBER(index >= 0 && index < flag.shape[0], VX_ERR_SHAPE);
    VX_NEED_SHAPE(x.rank > 0 && x.rank <= MAX_STRIDED_RANK, x);
    VX_NEED_DTYPE(flag.dtype == VX_I32, flag);
    VX_NEED_DTYPE(vx_is_act(x.dtype), x);
    VX_NEED_GOING(dev);
    if (vx_tensor_count(x) == 0) return vx_ok();
    VX_NEED_DATA(dev, flag);
    VX_NEED_DATA(dev, x);
    return dev->ops->mark_not_finite(dev, &(vx_mark_not_finite_args){ flag, index, x });
}
