// The definition of the operators on rows, one number at a time. Every line below is one rounding of operators.h.
#include "device/cpu/element.h"
#include "device/cpu/rows.h"
#include "tensor/mathf.h"
#include <math.h>
#include <string.h>

enum { LANES = 32, VECTOR = 8 };

// All lanes at once: t[l] += t[l xor o]. Addition commutes, so the lower half alone holds the same bits.
static float tree32(float t[LANES])
{
    for (int o = LANES / 2; o > 0; o /= 2)
        for (int l = 0; l < o; l++) t[l] += t[l + o];
    return t[0];
}

typedef enum sum_kind { SUM, SUM_SQUARES } sum_kind;

// Of x - mean. The sum adds, the sum of squares uses fma.
static float row_sum(const void *x, vx_dtype act, int64_t n, sum_kind kind, float mean)
{
    float t[LANES] = { 0 };
    for (int64_t i = 0; i < n; i++) {
        float *acc = &t[i / VECTOR % LANES];
        const float d = vx_get(x, act, i) - mean;
        *acc = kind == SUM ? *acc + d : fmaf(d, d, *acc);
    }
    return tree32(t);
}

static float inverse_rms(const void *x, vx_dtype act, int64_t n, float eps)
{
    return 1.0f / sqrtf(row_sum(x, act, n, SUM_SQUARES, 0) / (float)n + eps);
}

static void plain_rms_norm(const vx_rms_norm_args *a, int64_t begin, int64_t end)
{
    const int64_t n = a->x.shape[1];
    const vx_dtype act = a->x.dtype;
    for (int64_t r = begin; r < end; r++) {
        const void *x = vx_row_at(a->x, r);
        void *out = vx_row_at(a->out, r);
        const float inv = inverse_rms(x, act, n, a->eps);
        for (int64_t i = 0; i < n; i++) {
            float y = vx_get(x, act, i) * inv;
            if (a->rounding == VX_NORM_ROUND_TWICE) y = vx_rn(act, y);
            if (a->w.rank) y = y * vx_get(a->w.data, a->w.dtype, i);
            vx_put(out, a->out.dtype, i, y);
        }
    }
}

static void plain_rms_norm_modulate(const vx_rms_norm_modulate_args *a, int64_t begin, int64_t end)
{
    const int64_t n = a->x.shape[1];
    const vx_dtype act = a->x.dtype;
    const int32_t *row = a->row.data;
    for (int64_t r = begin; r < end; r++) {
        const void *x = vx_row_at(a->x, r), *shift = vx_row_at(a->shift, row[r]), *scale = vx_row_at(a->scale, row[r]);
        void *out = vx_row_at(a->out, r);
        const float inv = inverse_rms(x, act, n, a->eps);
        for (int64_t i = 0; i < n; i++) {
            float y = vx_get(x, act, i) * inv;
            if (a->w.rank) y = y * vx_get(a->w.data, a->w.dtype, i);
            y = vx_rn(act, y);
            // 1 + scale is rounded before the product: the reference stores it as a tensor.
            y = vx_rn(act, y * vx_rn(act, 1.0f + vx_get(scale, act, i)));
            vx_put(out, act, i, y + vx_get(shift, act, i));
        }
    }
}

static void plain_layer_norm(const vx_layer_norm_args *a, int64_t begin, int64_t end)
{
    const int64_t n = a->x.shape[1];
    const vx_dtype act = a->x.dtype;
    for (int64_t r = begin; r < end; r++) {
        const void *x = vx_row_at(a->x, r);
        void *out = vx_row_at(a->out, r);
        const float mean = row_sum(x, act, n, SUM, 0) / (float)n;
        const float deviation = sqrtf(row_sum(x, act, n, SUM_SQUARES, mean) / (float)n + a->eps);
        for (int64_t i = 0; i < n; i++) {
            float y = (vx_get(x, act, i) - mean) / deviation;
            if (a->w.rank) y = y * vx_get(a->w.data, a->w.dtype, i);
            if (a->b.rank) y = y + vx_get(a->b.data, a->b.dtype, i);
            vx_put(out, a->out.dtype, i, y);
        }
    }
}

static void plain_add(const vx_add_args *a, int64_t begin, int64_t end)
{
    const vx_dtype act = a->x.dtype;
    for (int64_t r = begin; r < end; r++) {
        void *x = vx_row_at(a->x, r);
        const void *y = vx_row_at(a->y, r);
        for (int64_t i = 0; i < a->x.shape[1]; i++) vx_put(x, act, i, vx_get(x, act, i) + vx_get(y, act, i));
    }
}

static void plain_gate_add(const vx_gate_add_args *a, int64_t begin, int64_t end)
{
    const vx_dtype act = a->x.dtype;
    const int32_t *row = a->row.rank ? a->row.data : NULL;
    for (int64_t r = begin; r < end; r++) {
        void *x = vx_row_at(a->x, r);
        const void *y = vx_row_at(a->y, r), *gate = vx_row_at(a->gate, row ? row[r] : 0);
        for (int64_t i = 0; i < a->x.shape[1]; i++) {
            const float gated = vx_rn(act, vx_get(gate, a->gate.dtype, i) * vx_get(y, a->y.dtype, i));
            vx_put(x, act, i, vx_get(x, act, i) + gated);
        }
    }
}

static void plain_swiglu(const vx_swiglu_args *a, int64_t begin, int64_t end)
{
    const int64_t n = a->out.shape[1], gate = a->gate_first ? 0 : n, value = n - gate;
    const vx_dtype act = a->u.dtype;
    for (int64_t r = begin; r < end; r++) {
        const void *u = vx_row_at(a->u, r);
        void *out = vx_row_at(a->out, r);
        for (int64_t i = 0; i < n; i++)
            vx_put(out, act, i, vx_rn(act, vx_silu_inline(vx_get(u, act, gate + i))) * vx_get(u, act, value + i));
    }
}

static void plain_silu(const vx_silu_args *a, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++) {
        const void *x = vx_row_at(a->x, r);
        void *out = vx_row_at(a->out, r);
        for (int64_t i = 0; i < a->x.shape[1]; i++) vx_put(out, a->out.dtype, i, vx_silu_inline(vx_get(x, a->x.dtype, i)));
    }
}

static void plain_gelu(const vx_gelu_args *a, int64_t begin, int64_t end)
{
    const vx_dtype act = a->x.dtype;
    for (int64_t r = begin; r < end; r++) {
        const void *x = vx_row_at(a->x, r);
        void *out = vx_row_at(a->out, r);
        for (int64_t i = 0; i < a->x.shape[1]; i++) vx_put(out, act, i, vx_gelu_inline(vx_get(x, act, i), a->tanh_form));
    }
}

static void plain_embed_blend(const vx_embed_blend_args *a, int64_t begin, int64_t end)
{
    const vx_tensor table = a->table;
    for (int64_t r = begin; r < end; r++) {
        const int32_t *ids = vx_row_at(a->ids, r);
        const float *w = vx_row_at(a->weights, r);
        void *out = vx_row_at(a->out, r);
        for (int64_t i = 0; i < a->out.shape[1]; i++) {
            float sum = w[0] * vx_get(vx_row_at(table, ids[0]), table.dtype, i);
            for (int c = 1; c < VX_CORNERS; c++) sum = sum + w[c] * vx_get(vx_row_at(table, ids[c]), table.dtype, i);
            vx_put(out, a->out.dtype, i, sum);
        }
    }
}

static float head_inverse_rms(const void *x, vx_dtype act, int64_t d, float eps)
{
    float t[LANES] = { 0 };
    for (int64_t i = 0; i < d; i++) {
        const float v = vx_get(x, act, i);
        t[i % LANES] = i < LANES ? v * v : fmaf(v, v, t[i % LANES]);
    }
    return 1.0f / sqrtf(tree32(t) / (float)d + eps);
}

static void norm_head(void *x, vx_dtype act, int64_t d, vx_tensor w, const vx_qk_norm_rope_params *p)
{
    const float inv = head_inverse_rms(x, act, d, p->eps);
    for (int64_t i = 0; i < d; i++) {
        float y = vx_get(x, act, i) * inv;
        if (p->rounding == VX_NORM_ROUND_TWICE) y = vx_rn(act, y);
        if (w.rank) y = y * vx_get(w.data, w.dtype, i);
        vx_put(x, act, i, y);
    }
}

static void rotate_head(void *x, vx_dtype act, const void *cos, const void *sin, int64_t r)
{
    for (int64_t j = 0; j < r; j++) {
        const float c = vx_get(cos, act, j), s = vx_get(sin, act, j);
        const float a = vx_get(x, act, j), b = vx_get(x, act, j + r);
        vx_put(x, act, j, vx_rn(act, a * c) - vx_rn(act, b * s));
        vx_put(x, act, j + r, vx_rn(act, b * c) + vx_rn(act, a * s));
    }
}

static void rotate_head_once(void *x, vx_dtype act, const float *cos, const float *sin, int64_t r)
{
    for (int64_t j = 0; j < r; j++) {
        const float a = vx_get(x, act, j), b = vx_get(x, act, j + r);
        vx_put(x, act, j, a * cos[j] - b * sin[j]);
        vx_put(x, act, j + r, b * cos[j] + a * sin[j]);
    }
}

static void norm_rope(vx_tensor t, vx_tensor w, const vx_qk_norm_rope_params *p, int64_t begin, int64_t end)
{
    if (t.rank == 0) return;
    for (int64_t r = begin; r < end; r++)
        for (int64_t h = 0; h < t.shape[1]; h++) {
            void *x = (char *)vx_row_at(t, r) + h * t.stride[1] * vx_element_size(t.dtype);
            if (!p->skip_norm) norm_head(x, t.dtype, t.shape[2], w, p);
            if (!p->cos.rank) continue;
            const int64_t pairs = p->cos.shape[1], line = r % p->cos.shape[0];
            if (p->rope_once) rotate_head_once(x, t.dtype, vx_row_at(p->cos, line), vx_row_at(p->sin, line), pairs);
            else rotate_head(x, t.dtype, vx_row_at(p->cos, line), vx_row_at(p->sin, line), pairs);
        }
}

static void plain_qk_norm_rope(const vx_qk_norm_rope_args *a, int64_t begin, int64_t end)
{
    norm_rope(a->q, a->params.q_weight, &a->params, begin, end);
    norm_rope(a->k, a->params.k_weight, &a->params, begin, end);
}

static void plain_convert(void *out, vx_dtype out_type, const void *x, vx_dtype x_type, int64_t n)
{
    if (out_type == x_type) memcpy(out, x, (size_t)(n * vx_element_size(x_type)));
    else
        for (int64_t i = 0; i < n; i++) vx_put(out, out_type, i, vx_get(x, x_type, i));
}

static void plain_snake(float *out, const float *x, float alpha, float gain, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float s = vx_sinf(alpha * x[i]);
        out[i] = x[i] + gain * (s * s);
    }
}

static double plain_plane_sum(const float *x, int64_t stride, int64_t rows, int64_t n, float mean, bool squares)
{
    double t[LANES] = { 0 };
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < n; i++) {
            const float d = x[r * stride + i] - mean;
            t[i % LANES] += squares ? (double)d * d : (double)d; // the square of an f32 is exact in f64
        }
    }
    for (int o = LANES / 2; o > 0; o /= 2)
        for (int l = 0; l < o; l++) t[l] += t[l + o];
    return t[0];
}

static void plain_normalise(float *out, const float *x, const vx_plane_norm *norm, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float y = (x[i] - norm->mean) / norm->deviation;
        y = y * norm->w;
        y = y + norm->b;
        out[i] = norm->silu ? vx_silu_inline(y) : y;
    }
}

const struct vx_row_kernels vx_rows_plain = {
#define MEMBER(op, rows) .op = plain_##op,
    VX_ROW_OPERATORS(MEMBER)
#undef MEMBER
        .convert = plain_convert,
    .snake = plain_snake,
    .plane_sum = plain_plane_sum,
    .normalise = plain_normalise,
};
