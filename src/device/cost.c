// Costs of the operators. A tensor's bytes are those of its elements, whatever its strides.
#include "device/cost.h"

static double size_of(vx_tensor t)
{
    return t.rank ? (double)vx_tensor_count(t) * vx_dtype_bits(t.dtype) / 8 : 0;
}

// Element-wise cost: `out` is written, `in` are read, `weight` read and counted as weights.
static vx_cost moves(vx_tensor out, double in, double weight)
{
    return (vx_cost){ .bytes = size_of(out) + in + weight, .weight_bytes = weight, .out = { out } };
}

// Rows of a matrix as they are stored, with their share of the scales.
static double size_of_rows(const vx_quant *q, vx_tensor t, double rows)
{
    if (q->kind == VX_QUANT_NONE) return rows * (double)t.shape[1] * vx_dtype_bits(t.dtype) / 8;
    return rows * (double)q->k * vx_quant_bits(q, t.dtype) / 8;
}

vx_cost vx_cost_linear(const vx_linear_args *a)
{
    double weight = 0;
    for (int i = 0; i < a->weight->segments; i++) {
        const vx_weight_segment *s = &a->weight->segment[i];
        weight += size_of_rows(&s->quant, s->weight, (double)s->weight.shape[0]) + size_of(s->bias) + size_of(s->quant.pre_scale);
    }
    double multiplies = (double)a->weight->n * (double)a->weight->k;
    for (int i = 0; i < a->weight->branches; i++) {
        const vx_branch *b = &a->weight->branch[i];
        weight += size_of(b->a) + size_of(b->b);
        multiplies += (double)b->a.shape[0] * (double)(b->a.shape[1] + b->b.shape[0]);
    }
    vx_cost cost = moves(a->out, size_of(a->x), weight);
    cost.flop = 2.0 * (double)a->x.shape[0] * multiplies;
    return cost;
}

vx_cost vx_cost_rms_norm(const vx_rms_norm_args *a)
{
    return moves(a->out, size_of(a->x), size_of(a->w));
}

vx_cost vx_cost_rms_norm_modulate(const vx_rms_norm_modulate_args *a)
{
    return moves(a->out, size_of(a->x) + size_of(a->shift) + size_of(a->scale) + size_of(a->row), size_of(a->w));
}

vx_cost vx_cost_layer_norm(const vx_layer_norm_args *a)
{
    return moves(a->out, size_of(a->x), size_of(a->w) + size_of(a->b));
}
vx_cost vx_cost_add(const vx_add_args *a)
{
    return moves(a->x, size_of(a->x) + size_of(a->y), 0);
}

vx_cost vx_cost_gate_add(const vx_gate_add_args *a)
{
    return moves(a->x, size_of(a->x) + size_of(a->y) + size_of(a->gate) + size_of(a->row), 0);
}

vx_cost vx_cost_gate_add_norm(const vx_gate_add_norm_args *a)
{
    const vx_gate_add_args *add = &a->add;
    const double tables = size_of(add->gate) + size_of(a->norm.shift) + size_of(a->norm.scale) + size_of(add->row);
    vx_cost cost = moves(a->norm.out, 2 * size_of(add->x) + size_of(add->y) + tables, size_of(a->norm.w));
    cost.out[1] = add->x;
    return cost;
}

vx_cost vx_cost_swiglu(const vx_swiglu_args *a)
{
    return moves(a->out, size_of(a->u), 0);
}
vx_cost vx_cost_silu(const vx_silu_args *a)
{
    return moves(a->out, size_of(a->x), 0);
}
vx_cost vx_cost_gelu(const vx_gelu_args *a)
{
    return moves(a->out, size_of(a->x), 0);
}
vx_cost vx_cost_copy(const vx_copy_args *a)
{
    return moves(a->out, size_of(a->x), 0);
}

vx_cost vx_cost_blend(const vx_blend_args *a)
{
    return moves(a->out, size_of(a->out) * a->count, 0);
}

vx_cost vx_cost_affine(const vx_affine_args *a)
{
    return moves(a->out, size_of(a->x) + size_of(a->scale) + size_of(a->shift), 0);
}

vx_cost vx_cost_embed(const vx_embed_args *a)
{
    return moves(a->out, size_of(a->ids), size_of_rows(&a->quant, a->table, (double)a->out.shape[0]));
}

// Four rows of the table for each of out.
vx_cost vx_cost_embed_blend(const vx_embed_blend_args *a)
{
    vx_tensor rows = a->out;
    rows.dtype = a->table.dtype;
    return moves(a->out, size_of(a->ids) + size_of(a->weights), 4 * size_of(rows));
}

vx_cost vx_cost_mark_not_finite(const vx_mark_not_finite_args *a)
{
    return (vx_cost){ .bytes = size_of(a->x) };
}

vx_cost vx_cost_qk_norm_rope(const vx_qk_norm_rope_args *a)
{
    const vx_qk_norm_rope_params *p = &a->params;
    const double weight = size_of(p->q_weight) + size_of(p->k_weight);
    vx_cost cost = moves(a->q, size_of(a->q) + 2 * size_of(a->k) + size_of(p->cos) + size_of(p->sin), weight);
    cost.out[1] = a->k;
    return cost;
}

vx_cost vx_cost_attention(const vx_attention_args *a)
{
    vx_cost cost = moves(a->out, size_of(a->q) + size_of(a->k) + size_of(a->v), 0);
    const int rows = a->q.rank - 3;
    const double sq = (double)a->q.shape[rows], skv = (double)a->k.shape[rows];
    const double pairs = (a->causal ? sq * (sq + 1) / 2 : sq * skv) * (double)vx_attention_items(a);
    cost.flop = 4 * pairs * (double)a->q.shape[rows + 1] * (double)a->q.shape[rows + 2];
    return cost;
}

vx_cost vx_cost_conv1d(const vx_conv1d_args *a)
{
    vx_cost cost = moves(a->out, size_of(a->x) + size_of(a->residual), size_of(a->w) + size_of(a->bias));
    cost.flop = 2.0 * (double)vx_tensor_count(a->w) * (double)(a->out.shape[1] * a->out.shape[2]);
    return cost;
}

// Each input element meets every tap once.
vx_cost vx_cost_conv_transpose1d(const vx_conv1d_args *a)
{
    vx_cost cost = moves(a->out, size_of(a->x) + size_of(a->residual), size_of(a->w) + size_of(a->bias));
    cost.flop = 2.0 * (double)vx_tensor_count(a->w) * (double)(a->x.shape[1] * a->x.shape[2]);
    return cost;
}

// Twelve taps down and, at twice the rate, six taps up.
vx_cost vx_cost_snake_alias_free(const vx_snake_alias_free_args *a)
{
    vx_cost cost = moves(a->out, size_of(a->x), size_of(a->alpha) + size_of(a->beta) + size_of(a->up) + size_of(a->down));
    cost.flop = 2.0 * 24 * (double)vx_tensor_count(a->x);
    return cost;
}

vx_cost vx_cost_snake(const vx_snake_args *a)
{
    return moves(a->out, size_of(a->x), size_of(a->alpha));
}

// Taps that are left out count neither as work nor as bytes of the weight.
vx_cost vx_cost_conv3d(const vx_conv3d_args *a)
{
    const vx_tensor out = a->out, w = a->w;
    const int64_t least = vx_conv3d_first_tap(a, out.shape[1] - 1);
    const double share = (double)(w.shape[2] - least) / (double)w.shape[2];
    vx_cost cost = moves(out, size_of(a->x) + size_of(a->residual), size_of(w) * share + size_of(a->bias));
    int64_t taps = 0;
    for (int64_t f = 0; f < out.shape[1]; f++) taps += w.shape[2] - vx_conv3d_first_tap(a, f);
    const double of_a_tap = 2.0 * (double)(w.shape[0] * w.shape[1]) * (double)(w.shape[3] * w.shape[4]);
    cost.flop = of_a_tap * (double)taps * (double)(out.shape[2] * out.shape[3]);
    return cost;
}

vx_cost vx_cost_group_norm(const vx_group_norm_args *a)
{
    return moves(a->out, size_of(a->x), size_of(a->w) + size_of(a->b));
}

vx_cost vx_cost_fade(const vx_fade_args *a)
{
    return moves(a->out, size_of(a->a) + size_of(a->b), 0);
}
vx_cost vx_cost_clamp(const vx_clamp_args *a)
{
    return moves(a->out, size_of(a->x), 0);
}
vx_cost vx_cost_to_u8(const vx_to_u8_args *a)
{
    return moves(a->out, size_of(a->x), 0);
}
