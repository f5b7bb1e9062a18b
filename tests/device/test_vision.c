// The operators of the picture and sound encoders, one number at a time: what operators.h writes down, and PyTorch's GELU.
#include "rig.h"

#include "device/gelu_vectors.h"
#include "tensor/mathf.h"

static const char *const levels[] = { "generic", "avx2", "avx512" };
enum { LEVELS = 3 };

static void gelu_is_pytorchs(void **state)
{
    (void)state;
    for (int l = 0; l < LEVELS; l++) {
        vx_device *dev = rig_cpu(levels[l], 1);
        for (int tanh_form = 0; tanh_form < 2; tanh_form++) {
            float x[GELUS], y[GELUS];
            memcpy(x, gelu_x, sizeof x);
            assert_ok(vx_gelu(dev, vx_tensor_of(y, VX_F32, 1, GELUS), vx_tensor_of(x, VX_F32, 1, GELUS), tanh_form));
            for (int i = 0; i < GELUS; i++) {
                const float want = tanh_form ? gelu_tanh[i] : gelu_erf[i];
                if (!(fabsf(y[i] - want) <= 1e-6f * fmaxf(1, fabsf(want))))
                    fail_msg("gelu(%g) is %.9g, expected %.9g", (double)x[i], (double)y[i], (double)want);
            }
        }
        vx_device_destroy(&dev);
    }
}

// One rounding to bf16 at the end, none between.
static void gelu_rounds_once(void **state)
{
    (void)state;
    enum { N = 4096 };
    vx_tensor x = rig_tensor(VX_BF16, 1, N), y = rig_like(x), wide = rig_as(x, VX_F32), exact = rig_like(wide);
    vx_device *dev = rig_cpu(NULL, 1);
    rig_fill(x, 3, 6);
    rig_free(&wide);
    wide = rig_as(x, VX_F32);
    for (int tanh_form = 0; tanh_form < 2; tanh_form++) {
        assert_ok(vx_gelu(dev, y, x, tanh_form));
        assert_ok(vx_gelu(dev, exact, wide, tanh_form));
        for (int i = 0; i < N; i++) assert_int_equal(((uint16_t *)y.data)[i], vx_f32_to_bf16(vx_f32_of(exact)[i]));
    }
    rig_free(&x);
    rig_free(&y);
    rig_free(&wide);
    rig_free(&exact);
    vx_device_destroy(&dev);
}

static void embed_blend_adds_four_rows_in_order(void **state)
{
    (void)state;
    enum { ROWS = 5, N = 21, VOCAB = 9 };
    static const vx_dtype tables[] = { VX_F32, VX_BF16, VX_F16 }, acts[] = { VX_F32, VX_BF16 };
    vx_tensor ids = rig_tensor(VX_I32, ROWS, 4), weights = rig_tensor(VX_F32, ROWS, 4);
    rig_fill(weights, 2, 1);
    for (int i = 0; i < 4 * ROWS; i++) ((int32_t *)ids.data)[i] = i * 5 % VOCAB;
    for (int c = 0; c < 6 * LEVELS; c++) {
        vx_device *dev = rig_cpu(levels[c / 6], 2);
        vx_tensor wide = rig_tensor(VX_F32, VOCAB, N);
        rig_fill(wide, 4, 2);
        vx_tensor table = rig_as(wide, tables[c % 3]), out = rig_tensor(acts[c / 3 % 2], ROWS, N), want = rig_like(out);
        vx_tensor read = rig_as(table, VX_F32);
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < N; i++) {
                const int32_t *id = (const int32_t *)ids.data + 4 * r;
                const float *w = vx_f32_of(weights) + 4 * r, *t = vx_f32_of(read) + i;
                const float sum = ((w[0] * t[id[0] * N] + w[1] * t[id[1] * N]) + w[2] * t[id[2] * N]) + w[3] * t[id[3] * N];
                if (want.dtype == VX_F32) vx_f32_of(want)[r * N + i] = sum;
                else ((uint16_t *)want.data)[r * N + i] = vx_f32_to_bf16(sum);
            }
        assert_ok(vx_embed_blend(dev, out, table, ids, weights));
        rig_same_bits(levels[c / 6], out, want);
        rig_free(&wide);
        rig_free(&table);
        rig_free(&out);
        rig_free(&want);
        rig_free(&read);
        vx_device_destroy(&dev);
    }
    rig_free(&ids);
    rig_free(&weights);
}

static void vision_rotates_with_one_rounding(void **state)
{
    (void)state;
    enum { ROWS = 3, HEADS = 2, D = 72, R = D / 2 };
    vx_tensor q = rig_tensor(VX_BF16, ROWS, HEADS, D), cos = rig_tensor(VX_F32, ROWS, R), sin = rig_tensor(VX_F32, ROWS, R);
    rig_fill(q, 1, 3);
    rig_fill(cos, 2, 1);
    rig_fill(sin, 3, 1);
    vx_tensor want = rig_copy(q);
    uint16_t *w = want.data;
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < HEADS; h++)
            for (int j = 0; j < R; j++) {
                uint16_t *head = w + (r * HEADS + h) * D;
                const float c = vx_f32_of(cos)[r * R + j], s = vx_f32_of(sin)[r * R + j];
                const float a = vx_bf16_to_f32(head[j]), b = vx_bf16_to_f32(head[j + R]);
                head[j] = vx_f32_to_bf16(a * c - b * s);
                head[j + R] = vx_f32_to_bf16(b * c + a * s);
            }
    for (int l = 0; l < LEVELS; l++) {
        vx_device *dev = rig_cpu(levels[l], 1);
        vx_tensor found = rig_copy(q);
        vx_qk_norm_rope_params p = { .skip_norm = true, .rope_once = true, .cos = cos, .sin = sin };
        assert_ok(vx_qk_norm_rope(dev, found, (vx_tensor){ 0 }, &p));
        rig_same_bits(levels[l], found, want);
        p.rope_once = false; // then the tables are of the queries' format
        assert_int_equal(vx_qk_norm_rope(dev, found, (vx_tensor){ 0 }, &p).code, VX_ERR_DTYPE);
        rig_free(&found);
        vx_device_destroy(&dev);
    }
    rig_free(&q);
    rig_free(&cos);
    rig_free(&sin);
    rig_free(&want);
}

static void snake_is_its_formula(void **state)
{
    (void)state;
    enum { C = 2, L = 100 };
    vx_tensor x = rig_tensor(VX_F32, C, L), alpha = rig_tensor(VX_F32, C);
    rig_fill(x, 1, 3);
    vx_f32_of(alpha)[0] = 1.7f, vx_f32_of(alpha)[1] = 0.02f;
    vx_tensor want = rig_like(x);
    for (int i = 0; i < C * L; i++) {
        const float v = vx_f32_of(x)[i], a = vx_f32_of(alpha)[i / L], s = vx_sinf(a * v);
        vx_f32_of(want)[i] = v + 1.0f / (a + 1e-9f) * (s * s);
        const double exact = (double)v + sin((double)a * v) * sin((double)a * v) / ((double)a + 1e-9);
        assert_true(fabs((double)vx_f32_of(want)[i] - exact) <= 1e-5 * fmax(1, fabs(exact)));
    }
    for (int l = 0; l < LEVELS; l++) {
        vx_device *dev = rig_cpu(levels[l], 1);
        vx_tensor out = rig_like(x);
        assert_ok(vx_snake(dev, out, x, alpha));
        rig_same_bits(levels[l], out, want);
        rig_free(&out);
        vx_device_destroy(&dev);
    }
    rig_free(&x);
    rig_free(&alpha);
    rig_free(&want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu_is_pytorchs),
        cmocka_unit_test(gelu_rounds_once),
        cmocka_unit_test(embed_blend_adds_four_rows_in_order),
        cmocka_unit_test(vision_rotates_with_one_rounding),
        cmocka_unit_test(snake_is_its_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
