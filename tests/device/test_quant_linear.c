// Quantised weights in products and tables: every level decodes vx_quant_decode's bits, and a product has the bits of the same
// product with the matrix decoded first.
#include "products.h"

#include "device/cpu/decode.h"
#include "quantised.h"

static void every_level_decodes_the_same_bits(void **state)
{
    (void)state;
    static const vx_dtype to[] = { VX_F32, VX_BF16 };
    for (int i = 0; i < FORMATS; i++) {
        const int64_t k = odd_width(&formats[i]), n = 3;
        matrix m = make_matrix(&formats[i], n, k, 127, 3 + (uint64_t)i);
        const int64_t step = vx_quant_step(&m.quant);
        for (int l = 0; l < LEVELS; l++) {
            vx_isa isa;
            assert_ok(vx_isa_choose(&isa, levels[l]));
            for (int t = 0; t < 2; t++) {
                for (int64_t begin = 0; begin < k; begin += (k / 3 + step - 1) / step * step) {
                    const int64_t end = begin ? k : vx_tensor_count(m.values) % 2 ? k : k / 2 / step * step, count = end - begin;
                    float want[1024];
                    char got[1024 * 4 + 8], where[96];
                    for (int64_t r = 0; r < n; r++) {
                        memset(got, 0x5a, sizeof got);
                        vx_quant_decode(&m.quant, m.values, r, begin, end, t == 1, want);
                        vx_decode_for(isa)(&m.quant, m.values, r, begin, end, to[t], got);
                        snprintf(where, sizeof where, "%s, %s, row %d from %d", formats[i].says, levels[l], (int)r, (int)begin);
                        uint16_t half[1024];
                        for (int64_t c = 0; c < count; c++) half[c] = vx_f32_to_bf16(want[c]);
                        assert_same_bits(got, t == 1 ? (void *)half : (void *)want, count, to[t], where);
                        for (size_t c = (size_t)count * element_size(to[t]); c < sizeof got; c++) assert_int_equal(got[c], 0x5a);
                    }
                }
            }
        }
        free_matrix(&m);
    }
}

// All 256 bytes and scales that are zero, subnormal, infinite or NaN.
static void odd_scales_decode_alike(void **state)
{
    (void)state;
    static const float scales[] = { 0.0f, 0x1p-140f, 0x1p-126f, 0x1.fffffep127f, INFINITY };
    uint8_t bytes[256], halves[32 * 34];
    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
    for (int b = 0; b < 32; b++)
        for (int i = 0; i < 34; i++) halves[34 * b + i] = (uint8_t)(b * 37 + i * 11);
    for (int l = 0; l < LEVELS; l++) {
        vx_isa isa;
        assert_ok(vx_isa_choose(&isa, levels[l]));
        for (int s = 0; s < 5; s++) {
            float scale = scales[s];
            static const vx_dtype stored[] = { VX_F8_E4M3, VX_F8_E5M2, VX_I8 };
            for (int t = 0; t < 3; t++) {
                const vx_quant q = { .kind = t < 2 ? VX_QUANT_FP8 : VX_QUANT_INT8,
                                     .k = 256,
                                     .scale = vx_tensor_of(&scale, VX_F32, 1) };
                const vx_tensor values = vx_tensor_of(bytes, stored[t], 1, 256);
                float want[256], got[256];
                vx_quant_decode(&q, values, 0, 0, 256, false, want);
                vx_decode_for(isa)(&q, values, 0, 0, 256, VX_F32, got);
                for (int i = 0; i < 256; i++)
                    assert_true(vx_f32_bits(got[i]) == vx_f32_bits(want[i]) || (isnan(got[i]) && isnan(want[i])));
            }
        }
        const vx_quant q = { .kind = VX_QUANT_GGUF, .type = 8, .k = 32 * 32 };
        const vx_tensor values = vx_tensor_of(halves, VX_U8, 1, 32 * 34);
        float want[32 * 32], got[32 * 32];
        vx_quant_decode(&q, values, 0, 0, 32 * 32, false, want);
        vx_decode_for(isa)(&q, values, 0, 0, 32 * 32, VX_F32, got);
        for (int i = 0; i < 32 * 32; i++)
            assert_true(vx_f32_bits(got[i]) == vx_f32_bits(want[i]) || (isnan(got[i]) && isnan(want[i])));
    }
}

// Numbers of files beside bf16 x: every f16, and f32 of every kind.
static void plain_numbers_are_rounded_alike(void **state)
{
    (void)state;
    enum { COUNT = 65536 + 5 };
    const vx_quant none = { 0 };
    uint16_t *halves = make_numbers(VX_F16, COUNT, 0, 1), *got = make_numbers(VX_BF16, COUNT, 0, 2);
    uint32_t *words = make_numbers(VX_F32, COUNT, 0, 3);
    for (int i = 0; i < COUNT; i++) halves[i] = (uint16_t)i, words[i] = (uint32_t)i * 65537u;
    for (int l = 0; l < LEVELS; l++) {
        vx_isa isa;
        assert_ok(vx_isa_choose(&isa, levels[l]));
        vx_decode_for(isa)(&none, vx_tensor_of(halves, VX_F16, 1, COUNT), 0, 0, COUNT, VX_BF16, got);
        for (int i = 0; i < COUNT; i++) assert_int_equal(got[i], vx_f32_to_bf16(vx_f16_to_f32(halves[i])));
        vx_decode_for(isa)(&none, vx_tensor_of(words, VX_F32, 1, COUNT), 0, 0, COUNT, VX_BF16, got);
        for (int i = 0; i < COUNT; i++) assert_int_equal(got[i], vx_f32_to_bf16(vx_f32_from_bits(words[i])));
    }
    free_numbers(halves, 0);
    free_numbers(got, 0);
    free_numbers(words, 0);
}

// ---- products ----------------------------------------------------------------------------------------------------------------
// x times what pre_scale says, then vx_linear with the decoded matrix, on the plain level.
static void product_of_decoded(const matrix *m, vx_tensor bias, vx_tensor x, vx_tensor out)
{
    const vx_quant *q = &m->quant;
    const int64_t n = m->values.shape[0], k = q->k;
    const vx_dtype t = x.dtype == VX_BF16 ? VX_BF16 : VX_F32;
    float *row = vx_alloc((size_t)k * 4);
    void *decoded = vx_alloc((size_t)(n * k) * 4), *scaled = vx_alloc((size_t)(x.shape[0] * k) * 4);
    assert_true(row && decoded && scaled);
    for (int64_t r = 0; r < n; r++) {
        vx_quant_decode(q, m->values, r, 0, k, t == VX_BF16, row);
        for (int64_t i = 0; i < k; i++) put(decoded, t, r * k + i, row[i]);
    }
    for (int64_t i = 0; i < x.shape[0]; i++)
        for (int64_t j = 0; j < k; j++) {
            const float v = get(x.data, x.dtype, i * x.stride[0] + j);
            put(scaled, x.dtype, i * k + j, q->pre_scale.rank ? round_to(x.dtype, v * vx_f32_of(q->pre_scale)[j]) : v);
        }
    vx_weight w = { .n = n, .k = k, .segments = 1 };
    w.segment[0].weight = vx_tensor_of(decoded, t, n, k);
    w.segment[0].bias = bias;
    vx_device *dev = make_device(NULL, 1);
    assert_ok(vx_linear(dev, out, vx_tensor_of(scaled, x.dtype, x.shape[0], k), &w));
    vx_device_destroy(&dev);
    vx_free(row);
    vx_free(decoded);
    vx_free(scaled);
}

static void compare_product(const format *f, int64_t rows, vx_dtype x_type, int level, int threads)
{
    enum { N = 75, GAP = 3 };
    // Over one block of k and not a multiple of it.
    const int64_t k = f->kind == VX_QUANT_GGUF || f->rotate == 256 ? 768
                      : f->kind == VX_QUANT_W4A8 || f->rotate      ? 576
                                                                   : odd_width(f);
    matrix m = make_matrix(f, N, k, 60, 11);
    void *xs = make_numbers(x_type, rows * (k + GAP), 0, 5), *bias = make_numbers(VX_BF16, N, 0, 6);
    vx_tensor x = vx_tensor_of(xs, x_type, rows, k);
    x.stride[0] = k + GAP;
    const vx_tensor b = vx_tensor_of(bias, VX_BF16, N);
    const vx_dtype out = x_type == VX_F16 ? VX_F32 : x_type;
    void *want = make_numbers(out, rows * N, 0, 7), *got = make_numbers(out, rows * N, 0, 8);
    product_of_decoded(&m, b, x, vx_tensor_of(want, out, rows, N));
    vx_device *dev = make_device(levels[level], threads);
    vx_weight w = { .n = N, .k = k, .segments = 1 };
    w.segment[0] = (vx_weight_segment){ .weight = m.values, .bias = b, .quant = m.quant };
    assert_ok(vx_linear(dev, vx_tensor_of(got, out, rows, N), x, &w));
    char where[128];
    snprintf(where, sizeof where, "%s, %d rows of %s, %s", f->says, (int)rows, vx_dtype_name(x_type), levels[level]);
    assert_same_bits(got, want, rows * N, out, where);
    vx_device_destroy(&dev);
    free_numbers(xs, 0);
    free_numbers(bias, 0);
    free_numbers(want, 0);
    free_numbers(got, 0);
    free_matrix(&m);
}

static void products_have_the_bits_of_the_decoded_matrix(void **state)
{
    (void)state;
    static const int64_t rows[] = { 1, 4, 5, 29, 190 }; // each way through linear.c
    for (int i = 0; i < FORMATS; i++) {
        for (int r = 0; r < 5; r++) {
            for (int l = 0; l < LEVELS; l++) {
                if (strcmp(levels[l], "generic") == 0 && (r == 4 || i % 4)) continue; // slow, and has no code of its own
                compare_product(&formats[i], rows[r], VX_BF16, l, 1 + (i + r) % 3);
                if (r < 4 && (i + l) % 2) compare_product(&formats[i], rows[r], VX_F32, l, 1 + (i + r) % 3);
            }
        }
        if (!formats[i].scaled_input) compare_product(&formats[i], 17, VX_F16, LEVELS - 1, 2);
    }
}

// Plain and quantised segments side by side, out of order, one with a factor for its input; k beyond one block.
static void segments_of_many_formats(void **state)
{
    (void)state;
    enum { M = 33, K = 768, N = 40 };
    static const int which[] = { 25, 10, 8 }; // Q4_K, nvfp4 awq, int8 rotated by 256
    static const int64_t column[] = { 80, 0, 120, 40 };
    void *xs = make_numbers(VX_BF16, M * K, 0, 1), *plain = make_numbers(VX_BF16, N * K, 0, 2);
    const vx_tensor x = vx_tensor_of(xs, VX_BF16, M, K), none = { 0 };
    uint16_t *want = make_numbers(VX_BF16, M * 4 * N, 0, 3), *got = make_numbers(VX_BF16, M * 4 * N, 0, 4);
    matrix m[3];
    vx_weight w = { .n = 4 * N, .k = K, .segments = 4 };
    for (int i = 0; i < 3; i++) {
        vx_tensor part = vx_tensor_slice(vx_tensor_of(want, VX_BF16, M, 4 * N), 1, column[i], column[i] + N);
        m[i] = make_matrix(&formats[which[i]], N, K, 0, 20 + (uint64_t)i);
        w.segment[i] = (vx_weight_segment){ .weight = m[i].values, .column = column[i], .quant = m[i].quant };
        product_of_decoded(&m[i], none, x, part);
    }
    w.segment[3] = (vx_weight_segment){ .weight = vx_tensor_of(plain, VX_BF16, N, K), .column = column[3] };
    vx_weight last = { .n = N, .k = K, .segments = 1 };
    last.segment[0].weight = w.segment[3].weight;
    vx_device *dev = make_device(NULL, 2);
    assert_ok(vx_linear(dev, vx_tensor_slice(vx_tensor_of(want, VX_BF16, M, 4 * N), 1, column[3], column[3] + N), x, &last));
    assert_ok(vx_linear(dev, vx_tensor_of(got, VX_BF16, M, 4 * N), x, &w));
    assert_same_bits(got, want, M * 4 * N, VX_BF16, "four segments");
    vx_device_destroy(&dev);
    for (int i = 0; i < 3; i++) free_matrix(&m[i]);
    free_numbers(xs, 0);
    free_numbers(plain, 0);
    free_numbers(want, 0);
    free_numbers(got, 0);
}

static void scratch_is_planned_and_small(void **state)
{
    (void)state;
    enum { K = 1024, N = 300, MOST = 400 };
    static const int64_t rows[] = { 2, 9, 77, MOST };
    void *xs = make_numbers(VX_BF16, MOST * K, 0, 1), *out = make_numbers(VX_BF16, MOST * N, 0, 2),
         *plain = make_numbers(VX_BF16, N * K, 0, 3);
    for (int i = 0; i < FORMATS; i++) {
        if (formats[i].kind == VX_QUANT_W4A8 && formats[i].rotate == 64) continue;
        matrix m = make_matrix(&formats[i], N, K, 0, 9);
        for (int r = 0; r < 4; r++) {
            vx_device *dev = make_device(NULL, 2), *plan = NULL;
            assert_ok(vx_device_plan_create(&plan, dev));
            const vx_tensor x = vx_tensor_of(xs, VX_BF16, rows[r], K), y = vx_tensor_of(out, VX_BF16, rows[r], N);
            vx_weight w = { .n = N, .k = K, .segments = 1 };
            w.segment[0].weight = vx_tensor_of(plain, VX_BF16, N, K);
            assert_ok(vx_linear(plan, y, x, &w));
            const size_t before = vx_device_plan_counts(plan).scratch;
            vx_device_plan_reset(plan);
            w.segment[0] = (vx_weight_segment){ .weight = m.values, .quant = m.quant };
            assert_ok(vx_linear(plan, y, x, &w));
            const vx_plan_counts counts = vx_device_plan_counts(plan);
            // A page per worker, and x once more where it is multiplied first.
            const size_t scaled = formats[i].scaled_input ? (size_t)(rows[r] * K) * 2 + 4096 : 0;
            assert_true(counts.scratch <= before + scaled + 2 * (32 * 528 * 2 + 2 * 65536));
            const double stored =
                (double)N * K * vx_quant_bits(&m.quant, m.values.dtype) / 8 + (formats[i].scaled_input ? 4 * K : 0);
            assert_true(counts.weight_bytes == stored);
            assert_ok(vx_device_reserve(dev, counts.scratch));
            const uint64_t calls = vx_alloc_calls();
            assert_ok(vx_linear(dev, y, x, &w));
            assert_int_equal(vx_alloc_calls(), calls);
            vx_device_destroy(&plan);
            vx_device_destroy(&dev);
        }
        free_matrix(&m);
    }
    free_numbers(xs, 0);
    free_numbers(out, 0);
    free_numbers(plain, 0);
}

// ---- tables -------------------------------------------------------------------------------------------------------------------
static void embeds_the_rows_asked_for(void **state)
{
    (void)state;
    static const vx_dtype outs[] = { VX_BF16, VX_F32, VX_F16 };
    static int32_t ids[] = { 5, 0, 199, 5, 130 };
    for (int i = 0; i < FORMATS; i++) {
        if (formats[i].scaled_input) continue;
        const int64_t k = odd_width(&formats[i]);
        matrix m = make_matrix(&formats[i], 200, k, 0, 30);
        for (int t = 0; t < 3; t++) {
            for (int l = 0; l < LEVELS; l++) {
                vx_device *dev = make_device(levels[l], 2);
                void *out = make_numbers(outs[t], 5 * k, 0, 1);
                assert_ok(vx_embed(dev, vx_tensor_of(out, outs[t], 5, k), m.values, &m.quant, vx_tensor_of(ids, VX_I32, 5)));
                for (int r = 0; r < 5; r++) {
                    float row[1024];
                    char want[4096];
                    vx_quant_decode(&m.quant, m.values, ids[r], 0, k, outs[t] == VX_BF16, row);
                    for (int64_t c = 0; c < k; c++) put(want, outs[t], c, row[c]);
                    assert_same_bits((char *)out + (size_t)(r * k) * element_size(outs[t]), want, k, outs[t], formats[i].says);
                }
                free_numbers(out, 0);
                vx_device_destroy(&dev);
            }
        }
        free_matrix(&m);
    }
}

static void refuses_what_does_not_fit(void **state)
{
    (void)state;
    vx_device *dev = make_device(NULL, 1);
    matrix m = make_matrix(&formats[4], 20, 64, 0, 1);
    void *xs = make_numbers(VX_F32, 3 * 64, 0, 1), *out = make_numbers(VX_F32, 3 * 20, 0, 2);
    vx_weight w = { .n = 20, .k = 64, .segments = 1 };
    w.segment[0] = (vx_weight_segment){ .weight = m.values, .quant = m.quant };
    const vx_tensor x = vx_tensor_of(xs, VX_F32, 3, 64), y = vx_tensor_of(out, VX_F32, 3, 20);
    assert_ok(vx_linear(dev, y, x, &w));
    w.segment[0].quant.row = 1;
    vx_status s = vx_linear(dev, y, x, &w);
    assert_int_equal(s.code, VX_ERR_SHAPE);
    assert_non_null(strstr(s.message, "vx_linear: weight of segment 0: int8: scale is F32 [20]"));
    w.segment[0].quant.row = 0;
    w.segment[0].quant.k = 32;
    w.segment[0].weight.shape[1] = 32;
    s = vx_linear(dev, y, x, &w);
    assert_int_equal(s.code, VX_ERR_SHAPE);
    assert_non_null(strstr(s.message, "int8 of 32 columns, expected 64"));
    w.segment[0] = (vx_weight_segment){ .weight = m.values, .quant = m.quant };
    w.segment[0].quant.scale.data = NULL;
    assert_int_equal(vx_linear(dev, y, x, &w).code, VX_ERR_INTERNAL);
    w.segment[0] = (vx_weight_segment){ .weight = m.values, .quant = m.quant };
    w.segment[0].quant.pre_scale = vx_tensor_of(xs, VX_F32, 64);
    assert_code(vx_linear(dev, y, vx_tensor_of(xs, VX_F16, 3, 64), &w), VX_ERR_DTYPE);
    static int32_t ids[3];
    assert_code(vx_embed(dev, x, m.values, &w.segment[0].quant, vx_tensor_of(ids, VX_I32, 3)), VX_ERR_SHAPE);
    vx_device_destroy(&dev);
    free_numbers(xs, 0);
    free_numbers(out, 0);
    free_matrix(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_decodes_the_same_bits), cmocka_unit_test(odd_scales_decode_alike),
        cmocka_unit_test(plain_numbers_are_rounded_alike),   cmocka_unit_test(products_have_the_bits_of_the_decoded_matrix),
        cmocka_unit_test(segments_of_many_formats),          cmocka_unit_test(scratch_is_planned_and_small),
        cmocka_unit_test(embeds_the_rows_asked_for),         cmocka_unit_test(refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
