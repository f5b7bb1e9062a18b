// vx_linear against the sum that operators.h writes down, bit for bit, at every level and thread count.
#include "products.h"

#include <stdbool.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#ifdef VX_TEST_ONEDNN
#include <dnnl.h>
#endif

typedef struct case_ {
    const char *says;
    int64_t m, k;
    vx_dtype x, out;
    int segments;
    struct {
        int64_t rows, column;
        vx_dtype weight, bias; // bias VX_DTYPE_NONE: none
    } segment[VX_MAX_SEGMENTS];
    int64_t n; // columns of out
    int shift; // bytes by which the weights' addresses are off
} case_;

static const case_ cases[] = {
    { "bf16, one row", 1, 64, VX_BF16, VX_BF16, 1, { { 32, 0, VX_BF16, VX_BF16 } }, 32, 0 },
    { "bf16, few rows, odd k", 3, 77, VX_BF16, VX_F32, 1, { { 45, 0, VX_BF16, VX_F32 } }, 45, 2 },
    { "bf16, four rows, two segments",
      4,
      515,
      VX_BF16,
      VX_F32,
      2,
      { { 37, 0, VX_BF16, VX_BF16 }, { 3, 37, VX_BF16, VX_DTYPE_NONE } },
      40,
      2 },
    { "bf16, five rows", 5, 200, VX_BF16, VX_F32, 1, { { 37, 0, VX_BF16, VX_BF16 } }, 37, 2 },
    { "bf16 weight beside two f32 rows", 2, 77, VX_F32, VX_F32, 1, { { 70, 0, VX_BF16, VX_BF16 } }, 70, 0 },
    { "f16 weight beside two f32 rows", 2, 77, VX_F32, VX_F32, 1, { { 70, 0, VX_F16, VX_BF16 } }, 70, 0 },
    { "f32, three rows", 3, 1100, VX_F32, VX_F32, 1, { { 70, 0, VX_F32, VX_F32 } }, 70, 0 },
    { "bf16, k over one block and odd", 29, 1027, VX_BF16, VX_BF16, 1, { { 70, 0, VX_BF16, VX_DTYPE_NONE } }, 70, 0 },
    { "bf16, many rows, every tail", 171, 519, VX_BF16, VX_BF16, 1, { { 83, 0, VX_BF16, VX_F16 } }, 83, 2 },
    { "bf16, k of one pair", 40, 2, VX_BF16, VX_F32, 1, { { 33, 0, VX_BF16, VX_DTYPE_NONE } }, 33, 0 },
    { "bf16, k of one", 40, 1, VX_BF16, VX_F32, 1, { { 33, 0, VX_BF16, VX_DTYPE_NONE } }, 33, 0 },
    { "bf16, wide", 33, 96, VX_BF16, VX_BF16, 1, { { 1100, 0, VX_BF16, VX_DTYPE_NONE } }, 1100, 0 },
    { "bf16, three segments out of order",
      31,
      130,
      VX_BF16,
      VX_BF16,
      3,
      { { 40, 50, VX_BF16, VX_BF16 }, { 17, 0, VX_BF16, VX_DTYPE_NONE }, { 33, 17, VX_BF16, VX_F32 } },
      90,
      0 },
    { "f32, one row", 1, 100, VX_F32, VX_F32, 1, { { 19, 0, VX_F32, VX_F32 } }, 19, 2 },
    { "f32, many rows, every tail", 181, 530, VX_F32, VX_F32, 1, { { 67, 0, VX_F32, VX_F32 } }, 67, 2 },
    { "f32 x, bf16 out", 16, 40, VX_F32, VX_BF16, 1, { { 32, 0, VX_F32, VX_F32 } }, 32, 0 },
    { "bf16 x beside f16 weights, rounded", 3, 77, VX_BF16, VX_F32, 1, { { 45, 0, VX_F16, VX_F32 } }, 45, 0 },
    { "bf16 x beside f32, f16 and bf16 weights, rounded",
      40,
      1041,
      VX_BF16,
      VX_BF16,
      3,
      { { 34, 0, VX_F32, VX_BF16 }, { 35, 34, VX_F16, VX_F16 }, { 33, 69, VX_BF16, VX_DTYPE_NONE } },
      102,
      0 },
    { "f32 x beside bf16 and f16 weights",
      30,
      1041,
      VX_F32,
      VX_F32,
      3,
      { { 34, 0, VX_BF16, VX_BF16 }, { 35, 34, VX_F16, VX_F16 }, { 33, 69, VX_F32, VX_DTYPE_NONE } },
      102,
      0 },
};

static void linear_by_the_book(const case_ *c, void *out, int64_t out_stride, const void *x, int64_t x_stride, const vx_weight *w)
{
    const bool pairs = c->x == VX_BF16;
    for (int s = 0; s < w->segments; s++) {
        const vx_weight_segment *seg = &w->segment[s];
        for (int64_t i = 0; i < c->m; i++) {
            for (int64_t j = 0; j < seg->weight.shape[0]; j++) {
                float sum = 0;
                for (int64_t k = 0; k < c->k; k++) {
                    int64_t at = pairs && (k ^ 1) < c->k ? k ^ 1 : k;
                    float weight = get(seg->weight.data, seg->weight.dtype, j * seg->weight.stride[0] + at);
                    if (pairs) weight = round_to(VX_BF16, weight);
                    sum = fmaf(get(x, c->x, i * x_stride + at), weight, sum);
                }
                if (seg->bias.rank) sum = sum + get(seg->bias.data, seg->bias.dtype, j);
                put(out, c->out, i * out_stride + seg->column + j, round_to(c->out, sum));
            }
        }
    }
}

static void run_case(const case_ *c)
{
    enum { GAP = 5 };
    vx_weight w = { .n = c->n, .k = c->k, .segments = c->segments };
    for (int s = 0; s < c->segments; s++) {
        const int64_t rows = c->segment[s].rows;
        const vx_dtype t = c->segment[s].weight, b = c->segment[s].bias;
        w.segment[s].weight = vx_tensor_of(make_numbers(t, rows * (c->k + GAP), c->shift, 7 + (uint64_t)s), t, rows, c->k);
        w.segment[s].weight.stride[0] = c->k + GAP;
        w.segment[s].column = c->segment[s].column;
        if (b) w.segment[s].bias = vx_tensor_of(make_numbers(b, rows, c->shift, 70 + (uint64_t)s), b, rows);
    }
    const int64_t x_stride = c->k + GAP, out_stride = c->n + GAP;
    vx_tensor x = vx_tensor_of(make_numbers(c->x, c->m * x_stride, 0, 3), c->x, c->m, c->k);
    x.stride[0] = x_stride;
    void *want = make_numbers(c->out, c->m * out_stride, 0, 4);
    linear_by_the_book(c, want, out_stride, x.data, x_stride, &w);
    for (int l = 0; l < LEVELS; l++) {
        for (int t = 0; t < THREAD_COUNTS; t++) {
            vx_device *dev = make_device(levels[l], thread_counts[t]);
            vx_tensor out = vx_tensor_of(make_numbers(c->out, c->m * out_stride, 0, 4), c->out, c->m, c->n);
            out.stride[0] = out_stride;
            assert_ok(vx_linear(dev, out, x, &w));
            char where[128];
            snprintf(where, sizeof where, "%s, %s, %d threads", c->says, levels[l], thread_counts[t]);
            assert_same_bits(out.data, want, c->m * out_stride, c->out, where);
            free_numbers(out.data, 0);
            vx_device_destroy(&dev);
        }
    }
    for (int s = 0; s < c->segments; s++) {
        free_numbers(w.segment[s].weight.data, c->shift);
        if (c->segment[s].bias) free_numbers(w.segment[s].bias.data, c->shift);
    }
    free_numbers(x.data, 0);
    free_numbers(want, 0);
}

static void sums_in_the_stated_order_at_every_level(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) run_case(&cases[i]);
}

// A column's bits do not know of its neighbours: one weight as one segment, and cut in three.
static void bits_do_not_depend_on_segments(void **state)
{
    (void)state;
    enum { M = 50, K = 600, N = 96 };
    void *data = make_numbers(VX_BF16, N * K, 0, 1), *xs = make_numbers(VX_BF16, M * K, 0, 2);
    vx_weight whole = { .n = N, .k = K, .segments = 1 };
    whole.segment[0].weight = vx_tensor_of(data, VX_BF16, N, K);
    static const int64_t cut[] = { 0, 5, 38, N };
    vx_weight parts = { .n = N, .k = K, .segments = 3 };
    for (int s = 0; s < 3; s++) {
        parts.segment[s].weight = vx_tensor_slice(whole.segment[0].weight, 0, cut[s], cut[s + 1]);
        parts.segment[s].column = cut[s];
    }
    float *a = make_numbers(VX_F32, M * N, 0, 3), *b = make_numbers(VX_F32, M * N, 0, 4);
    vx_device *dev = make_device(NULL, 2);
    assert_ok(vx_linear(dev, vx_tensor_of(a, VX_F32, M, N), vx_tensor_of(xs, VX_BF16, M, K), &whole));
    assert_ok(vx_linear(dev, vx_tensor_of(b, VX_F32, M, N), vx_tensor_of(xs, VX_BF16, M, K), &parts));
    assert_same_bits(b, a, M * N, VX_F32, "three segments");
    // Nor a row's: rows 20..39 alone go another way through the code.
    assert_ok(vx_linear(dev, vx_tensor_of(b, VX_F32, 20, N), vx_tensor_of((uint16_t *)xs + 20 * K, VX_BF16, 20, K), &whole));
    assert_same_bits(b, a + 20 * N, 20 * N, VX_F32, "twenty rows");
    vx_device_destroy(&dev);
    free_numbers(a, 0);
    free_numbers(b, 0);
    free_numbers(data, 0);
    free_numbers(xs, 0);
}

static void not_finite_numbers_arrive(void **state)
{
    (void)state;
    enum { M = 30, K = 40, N = 33 };
    float *x = make_numbers(VX_F32, M * K, 0, 1), *y = make_numbers(VX_F32, M * N, 0, 2);
    void *data = make_numbers(VX_F32, N * K, 0, 3);
    x[3 * K + 7] = NAN;
    x[5 * K + 39] = INFINITY;
    vx_weight w = { .n = N, .k = K, .segments = 1 };
    w.segment[0].weight = vx_tensor_of(data, VX_F32, N, K);
    for (int l = 0; l < LEVELS; l++) {
        vx_device *dev = make_device(levels[l], 1);
        assert_ok(vx_linear(dev, vx_tensor_of(y, VX_F32, M, N), vx_tensor_of(x, VX_F32, M, K), &w));
        for (int i = 0; i < M * N; i++) {
            if (i / N == 3) assert_true(isnan(y[i]));
            else if (i / N == 5) assert_true(isinf(y[i]));
            else assert_true(isfinite(y[i]));
        }
        vx_device_destroy(&dev);
    }
    free_numbers(x, 0);
    free_numbers(y, 0);
    free_numbers(data, 0);
}

#if defined(__x86_64__) && !defined(__clang_analyzer__)
__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) static float dot_by_instruction(const uint16_t *x,
                                                                                                const uint16_t *w, int64_t k)
{
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < k; i += 2) {
        uint32_t a, b;
        memcpy(&a, x + i, 4);
        memcpy(&b, w + i, 4);
        sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32((int)a), (__m512bh)_mm512_set1_epi32((int)b));
    }
    return _mm512_cvtss_f32(sum);
}

// The order of pairs is that of the processor's own instruction, which other programs use: same bits, except that it takes
// subnormal operands and results for zero.
static void has_the_bits_of_vdpbf16ps(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx512bf16")) {
        print_message("skipped: no AVX512_BF16 here\n");
        return;
    }
    enum { K = 256, N = 200 };
    uint16_t *x = make_numbers(VX_BF16, K, 0, 1), *w = make_numbers(VX_BF16, N * K, 0, 2);
    float y[N];
    vx_weight weight = { .n = N, .k = K, .segments = 1 };
    weight.segment[0].weight = vx_tensor_of(w, VX_BF16, N, K);
    vx_device *dev = make_device(NULL, 1);
    assert_ok(vx_linear(dev, vx_tensor_of(y, VX_F32, 1, N), vx_tensor_of(x, VX_BF16, 1, K), &weight));
    for (int j = 0; j < N; j++) {
        const float want = dot_by_instruction(x, w + j * K, K);
        assert_same_bits(&y[j], &want, 1, VX_F32, "VDPBF16PS");
    }
    // 2^-70 * 2^-60 is subnormal: kept here, zero there.
    for (int i = 0; i < K; i++) x[i] = w[i] = 0;
    x[0] = vx_f32_to_bf16(0x1p-70f);
    w[0] = vx_f32_to_bf16(0x1p-60f);
    assert_ok(vx_linear(dev, vx_tensor_of(y, VX_F32, 1, N), vx_tensor_of(x, VX_BF16, 1, K), &weight));
    assert_true(y[0] == 0x1p-130f);
    assert_true(dot_by_instruction(x, w, K) == 0);
    // So is 2^-130 as an operand.
    x[0] = vx_f32_to_bf16(0x1p-130f);
    w[0] = vx_f32_to_bf16(0x1p100f);
    assert_ok(vx_linear(dev, vx_tensor_of(y, VX_F32, 1, N), vx_tensor_of(x, VX_BF16, 1, K), &weight));
    assert_true(y[0] == 0x1p-30f);
    assert_true(dot_by_instruction(x, w, K) == 0);
    vx_device_destroy(&dev);
    free_numbers(x, 0);
    free_numbers(w, 0);
}
#endif

// With what a plan run counts set aside, the heavy operators allocate nothing.
static void scratch_is_what_a_plan_counts(void **state)
{
    (void)state;
    static const struct {
        int64_t m, k, n;
    } sizes[] = { { 2, 700, 100 }, { 50, 700, 100 }, { 400, 1100, 300 } };
    enum { ROOM = 400 * 1100 };
    for (int l = 0; l < LEVELS; l++) {
        vx_device *dev = make_device(levels[l], 2), *plan = NULL;
        assert_ok(vx_device_plan_create(&plan, dev));
        float *a = make_numbers(VX_F32, ROOM, 0, 1), *b = make_numbers(VX_F32, ROOM, 0, 2), *y = make_numbers(VX_F32, ROOM, 0, 3);
        for (int i = 0; i < 6; i++) {
            uint64_t before = 0;
            for (int pass = 0; pass < 2; pass++) {
                vx_device *on = pass == 0 ? plan : dev;
                if (i < 3) {
                    vx_weight w = { .n = sizes[i].n, .k = sizes[i].k, .segments = 1 };
                    w.segment[0].weight = vx_tensor_of(b, VX_F32, w.n, w.k);
                    assert_ok(
                        vx_linear(on, vx_tensor_of(y, VX_F32, sizes[i].m, w.n), vx_tensor_of(a, VX_F32, sizes[i].m, w.k), &w));
                } else if (i == 3) {
                    const vx_tensor kv = vx_tensor_of(b, VX_F32, 600, 2, 40);
                    assert_ok(
                        vx_attention(on, vx_tensor_of(y, VX_F32, 90, 4, 40), vx_tensor_of(a, VX_F32, 90, 4, 40), kv, kv, NULL));
                } else if (i == 4) {
                    assert_ok(vx_conv1d(on, vx_tensor_of(y, VX_F32, 70, 901), vx_tensor_of(a, VX_F32, 30, 900),
                                        vx_tensor_of(b, VX_F32, 70, 30, 4), &(vx_conv1d_params){ .padding = 2 }));
                } else {
                    assert_ok(vx_conv_transpose1d(on, vx_tensor_of(y, VX_F32, 30, 1800), vx_tensor_of(a, VX_F32, 70, 900),
                                                  vx_tensor_of(b, VX_F32, 70, 30, 4),
                                                  &(vx_conv1d_params){ .stride = 2, .padding = 1 }));
                }
                if (pass == 1) continue;
                assert_ok(vx_device_reserve(dev, vx_device_plan_counts(plan).scratch));
                vx_device_plan_reset(plan);
                before = vx_alloc_calls();
            }
            assert_int_equal(vx_alloc_calls(), before);
        }
        free_numbers(a, 0);
        free_numbers(b, 0);
        free_numbers(y, 0);
        vx_device_destroy(&plan);
        vx_device_destroy(&dev);
    }
}

#ifdef VX_TEST_ONEDNN
static void agrees_with_onednn(void **state)
{
    (void)state;
    enum { M = 200, K = 700, N = 130 };
    float *x = make_numbers(VX_F32, M * K, 0, 1), *w = make_numbers(VX_F32, N * K, 0, 2);
    float *y = make_numbers(VX_F32, M * N, 0, 3), *z = make_numbers(VX_F32, M * N, 0, 4);
    vx_weight weight = { .n = N, .k = K, .segments = 1 };
    weight.segment[0].weight = vx_tensor_of(w, VX_F32, N, K);
    vx_device *dev = make_device(NULL, 2);
    assert_ok(vx_linear(dev, vx_tensor_of(y, VX_F32, M, N), vx_tensor_of(x, VX_F32, M, K), &weight));
    assert_int_equal(dnnl_sgemm('N', 'T', M, N, K, 1.0f, x, K, w, K, 0.0f, z, N), dnnl_success);
    // Both sums of 700 terms of at most 1 are wrong by less than 700 * 2^-24 * the sum of magnitudes, at random by its root.
    for (int i = 0; i < M * N; i++) assert_true(fabsf(y[i] - z[i]) < 1e-4f);
    vx_device_destroy(&dev);
    free_numbers(x, 0);
    free_numbers(w, 0);
    free_numbers(y, 0);
    free_numbers(z, 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_in_the_stated_order_at_every_level),
        cmocka_unit_test(bits_do_not_depend_on_segments),
        cmocka_unit_test(not_finite_numbers_arrive),
#if defined(__x86_64__) && !defined(__clang_analyzer__)
        cmocka_unit_test(has_the_bits_of_vdpbf16ps),
#endif
        cmocka_unit_test(scratch_is_what_a_plan_counts),
#ifdef VX_TEST_ONEDNN
        cmocka_unit_test(agrees_with_onednn),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
