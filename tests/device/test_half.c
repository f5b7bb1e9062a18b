// The video decoder's half precision (video VAE specification, 14.1): f32 rows become f16 where a product begins, products and
// attention take f16, f32 rows take f16 results. Every level against the arithmetic of operators.h, one number at a time.
#include "rig.h"

#include "tensor/mathf.h"

static const char *const levels[] = { "generic", "avx2", "avx512" };
enum { LEVELS = 3 };

static float half_of(float x)
{
    return vx_f16_to_f32(vx_f32_to_f16(x));
}

static float number(vx_tensor t, int64_t i)
{
    if (t.dtype == VX_F32) return vx_f32_of(t)[i];
    const uint16_t h = ((uint16_t *)t.data)[i];
    return t.dtype == VX_BF16 ? vx_bf16_to_f32(h) : vx_f16_to_f32(h);
}

static void put_number(vx_tensor t, int64_t i, float v)
{
    if (t.dtype == VX_F32) vx_f32_of(t)[i] = v;
    else ((uint16_t *)t.data)[i] = vx_f32_to_f16(v);
}

static void norms_of_f32_end_in_f16(void **state)
{
    (void)state;
    for (int l = 0; l < LEVELS; l++)
        for (int64_t n = 7; n < 3000; n *= 7) {
            vx_device *dev = rig_cpu(levels[l], 2);
            vx_tensor x = rig_tensor(VX_F32, 5, n), w = rig_tensor(VX_F32, n), full = rig_like(x),
                      half = rig_tensor(VX_F16, 5, n);
            rig_fill(x, 3, 4), rig_fill(w, 4, 2);
            for (int layer = 0; layer < 2; layer++) {
                if (layer) assert_ok(vx_layer_norm(dev, full, x, w, w, 1e-5f));
                else assert_ok(vx_rms_norm(dev, full, x, w, 1e-5f, VX_NORM_ROUND_ONCE));
                vx_tensor want = rig_as(full, VX_F16);
                if (layer) assert_ok(vx_layer_norm(dev, half, x, w, w, 1e-5f));
                else assert_ok(vx_rms_norm(dev, half, x, w, 1e-5f, VX_NORM_ROUND_ONCE));
                rig_same_bits(levels[l], half, want);
                rig_free(&want);
            }
            assert_code(vx_rms_norm(dev, half, x, w, 1e-5f, VX_NORM_ROUND_TWICE), VX_ERR_DTYPE);
            rig_free(&x), rig_free(&w), rig_free(&full), rig_free(&half);
            vx_device_destroy(&dev);
        }
}

static void f32_rows_take_half_results(void **state)
{
    (void)state;
    static const vx_dtype gates[] = { VX_F32, VX_F16, VX_BF16 };
    for (int l = 0; l < LEVELS; l++)
        for (int g = 0; g < 3; g++) {
            vx_device *dev = rig_cpu(levels[l], 1);
            vx_tensor x = rig_tensor(VX_F32, 6, 53), y = rig_tensor(VX_F16, 6, 53), gate = rig_tensor(gates[g], 1, 53);
            rig_fill(x, 5, 4), rig_fill(y, 6, 4), rig_fill(gate, 7, 1);
            vx_tensor want = rig_copy(x);
            for (int64_t i = 0; i < 6 * 53; i++) {
                const float product = number(gate, i % 53) * number(y, i);
                vx_f32_of(want)[i] = vx_f32_of(want)[i] + product;
            }
            assert_ok(vx_gate_add(dev, x, y, gate, (vx_tensor){ 0 }));
            rig_same_bits(levels[l], x, want);
            rig_free(&x), rig_free(&y), rig_free(&gate), rig_free(&want);
            vx_device_destroy(&dev);
        }
}

// By hand: silu, product and sum each rounded to f16; 1.5 * silu(1) = 1.5 * 0.7310586 -> rn(1.5 * rn(0.7310586)).
static void activations_round_to_half_at_each_step(void **state)
{
    (void)state;
    for (int l = 0; l < LEVELS; l++) {
        vx_device *dev = rig_cpu(levels[l], 1);
        vx_tensor u = rig_tensor(VX_F16, 1, 2), out = rig_tensor(VX_F16, 1, 1);
        put_number(u, 0, 1), put_number(u, 1, 1.5f);
        assert_ok(vx_swiglu(dev, out, u, true));
        assert_int_equal(((uint16_t *)out.data)[0], vx_f32_to_f16(1.5f * half_of(0.7310586f)));
        rig_free(&u), rig_free(&out);
        vx_tensor q = rig_tensor(VX_F16, 1, 1, 2), cos = rig_tensor(VX_F16, 1, 1), sin = rig_tensor(VX_F16, 1, 1);
        put_number(q, 0, 1.1f), put_number(q, 1, -0.7f), put_number(cos, 0, 0.3f), put_number(sin, 0, 0.9f);
        const float a = half_of(1.1f), b = half_of(-0.7f), c = half_of(0.3f), s = half_of(0.9f);
        const vx_qk_norm_rope_params turn = { .skip_norm = true, .cos = cos, .sin = sin };
        assert_ok(vx_qk_norm_rope(dev, q, (vx_tensor){ 0 }, &turn));
        assert_int_equal(((uint16_t *)q.data)[0], vx_f32_to_f16(half_of(a * c) - half_of(b * s)));
        assert_int_equal(((uint16_t *)q.data)[1], vx_f32_to_f16(half_of(b * c) + half_of(a * s)));
        rig_free(&q), rig_free(&cos), rig_free(&sin);
        vx_device_destroy(&dev);
    }
}

static void products_round_weights_to_half_first(void **state)
{
    (void)state;
    static const vx_dtype types[] = { VX_F32, VX_BF16, VX_F16 };
    static const int64_t shapes[][3] = { { 1, 3, 9 }, { 17, 40, 513 }, { 33, 70, 1100 }, { 2, 130, 64 } };
    for (int l = 0; l < LEVELS; l++)
        for (int t = 0; t < 3; t++)
            for (int i = 0; i < 4; i++)
                for (int f32 = 0; f32 < 2; f32++) {
                    const int64_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2], first = n / 3;
                    vx_device *dev = rig_cpu(levels[l], 2);
                    vx_tensor x = rig_tensor(VX_F16, m, k), a = rig_tensor(types[t], first, k),
                              b = rig_tensor(types[(t + 1) % 3], n - first, k), bias = rig_tensor(types[t], n - first),
                              out = rig_tensor(f32 ? VX_F32 : VX_F16, m, n), want = rig_like(out);
                    rig_fill(x, 8, 1), rig_fill(a, 9, 1), rig_fill(b, 10, 1), rig_fill(bias, 11, 1);
                    const vx_weight w = { .n = n,
                                          .k = k,
                                          .segments = 2,
                                          .segment = { { .weight = a, .column = n - first }, { .weight = b, .bias = bias } } };
                    for (int64_t r = 0; r < m; r++)
                        for (int64_t j = 0; j < n; j++) {
                            const bool second = j < n - first;
                            float sum = 0;
                            for (int64_t c = 0; c < k; c++)
                                sum = fmaf(number(x, r * k + c),
                                           half_of(second ? number(b, j * k + c) : number(a, (j - n + first) * k + c)), sum);
                            put_number(want, r * n + j, second ? sum + half_of(number(bias, j)) : sum);
                        }
                    assert_ok(vx_linear(dev, out, x, &w));
                    rig_same_bits(levels[l], out, want);
                    rig_free(&x), rig_free(&a), rig_free(&b), rig_free(&bias), rig_free(&out), rig_free(&want);
                    vx_device_destroy(&dev);
                }
}

// Against sums in f64 with weights rounded to f16 as the operator says: what is left is the order of f32 sums.
static void attention_rounds_weights_to_half(void **state)
{
    (void)state;
    enum { ROWS = 37, KEYS = 300, HEADS = 2, D = 64 };
    for (int l = 0; l < LEVELS; l++) {
        vx_device *dev = rig_cpu(levels[l], 2);
        vx_tensor q = rig_tensor(VX_F16, ROWS, HEADS, D), k = rig_tensor(VX_F16, KEYS, HEADS, D),
                  v = rig_tensor(VX_F16, KEYS, HEADS, D), out = rig_like(q);
        rig_fill(q, 12, 1), rig_fill(k, 13, 1), rig_fill(v, 14, 1);
        for (int64_t i = 0; i < KEYS * HEADS * D; i++) // no 90 among them
            for (int t = 0; t < 3; t++) {
                const vx_tensor all[] = { q, k, v };
                if (i < vx_tensor_count(all[t]) && fabsf(number(all[t], i)) > 1) put_number(all[t], i, 0.25f);
            }
        assert_ok(vx_attention(dev, out, q, k, v, NULL));
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t h = 0; h < HEADS; h++) {
                double score[KEYS], most = -INFINITY, sum = 0;
                for (int64_t j = 0; j < KEYS; j++) {
                    score[j] = 0;
                    for (int64_t c = 0; c < D; c++)
                        score[j] += (double)number(q, (r * HEADS + h) * D + c) * number(k, (j * HEADS + h) * D + c);
                    score[j] /= 8;
                    most = score[j] > most ? score[j] : most;
                }
                for (int64_t j = 0; j < KEYS; j++) sum += exp(score[j] - most);
                for (int64_t c = 0; c < D; c++) {
                    double y = 0;
                    for (int64_t j = 0; j < KEYS; j++)
                        y += (double)half_of((float)exp(score[j] - most)) * number(v, (j * HEADS + h) * D + c);
                    assert_true(fabs(number(out, (r * HEADS + h) * D + c) - y / sum) < 1e-4 + 6e-4 * fabs(y / sum));
                }
            }
        rig_free(&q), rig_free(&k), rig_free(&v), rig_free(&out);
        vx_device_destroy(&dev);
    }
}

// By hand: weights 1 and e^-1 = 0.36787944, in f16 0.36791992; values -368 and 1000 leave the difference.
static void a_weight_is_rounded_before_it_meets_its_value(void **state)
{
    (void)state;
    for (int l = 0; l < LEVELS; l++) {
        vx_device *dev = rig_cpu(levels[l], 1);
        vx_tensor q = rig_tensor(VX_F16, 1, 1, 8), k = rig_tensor(VX_F16, 2, 1, 8), v = rig_tensor(VX_F16, 2, 1, 8),
                  out = rig_like(q);
        put_number(q, 0, -1), put_number(k, 8, 1), put_number(v, 0, -368), put_number(v, 8, 1000);
        assert_ok(vx_attention(dev, out, q, k, v, &(vx_attention_params){ .scale = 1 }));
        assert_true(fabsf(number(out, 0) - (367.91992f - 368) / 1.36787944f) < 1e-4f);
        rig_free(&q), rig_free(&k), rig_free(&v), rig_free(&out);
        vx_device_destroy(&dev);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_of_f32_end_in_f16),
        cmocka_unit_test(f32_rows_take_half_results),
        cmocka_unit_test(activations_round_to_half_at_each_step),
        cmocka_unit_test(products_round_weights_to_half_first),
        cmocka_unit_test(attention_rounds_weights_to_half),
        cmocka_unit_test(a_weight_is_rounded_before_it_meets_its_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
