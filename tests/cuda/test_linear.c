// vx_linear on CUDA against sums in double, whatever formats, strides and segments.
#include "card.h"

#include <stdbool.h>

static vx_device *card;

typedef struct case_ {
    const char *says;
    int64_t m, k;
    vx_dtype x, out;
    int segments;
    struct {
        int64_t rows, column;
        vx_dtype weight, bias; // bias VX_DTYPE_NONE: none
    } segment[VX_MAX_SEGMENTS];
    int64_t n, x_gap, out_gap; // elements between rows
} case_;

#define NO_BIAS VX_DTYPE_NONE

static const case_ cases[] = {
    { "bf16, one row", 1, 64, VX_BF16, VX_BF16, 1, { { 32, 0, VX_BF16, VX_BF16 } }, 32, 0, 0 },
    { "bf16, many rows", 300, 512, VX_BF16, VX_BF16, 1, { { 256, 0, VX_BF16, NO_BIAS } }, 256, 0, 0 },
    { "bf16, bias", 300, 512, VX_BF16, VX_BF16, 1, { { 256, 0, VX_BF16, VX_BF16 } }, 256, 0, 0 },
    { "bf16, f32 bias", 300, 512, VX_BF16, VX_BF16, 1, { { 256, 0, VX_BF16, VX_F32 } }, 256, 0, 0 },
    { "bf16, f16 bias", 33, 512, VX_BF16, VX_BF16, 1, { { 250, 0, VX_BF16, VX_F16 } }, 250, 0, 0 },
    { "bf16 to f32", 37, 1000, VX_BF16, VX_F32, 1, { { 130, 0, VX_BF16, NO_BIAS } }, 130, 0, 0 },
    { "bf16 to f32, f32 bias", 37, 1000, VX_BF16, VX_F32, 1, { { 130, 0, VX_BF16, VX_F32 } }, 130, 0, 0 },
    { "bf16 to f32, bf16 bias", 37, 1000, VX_BF16, VX_F32, 1, { { 130, 0, VX_BF16, VX_BF16 } }, 130, 0, 0 },
    { "bf16, odd k, no bias", 37, 77, VX_BF16, VX_BF16, 1, { { 45, 0, VX_BF16, NO_BIAS } }, 45, 0, 0 },
    { "bf16 beside f32 and f16",
      37,
      96,
      VX_BF16,
      VX_BF16,
      2,
      { { 40, 0, VX_F32, VX_F32 }, { 24, 40, VX_F16, VX_F16 } },
      64,
      0,
      0 },
    { "f16, odd k, bias", 37, 77, VX_F16, VX_F16, 1, { { 45, 0, VX_F16, VX_F16 } }, 45, 0, 0 },
    { "f32, odd k, bias to bf16", 37, 77, VX_F32, VX_BF16, 1, { { 45, 0, VX_F16, VX_F16 } }, 45, 0, 0 },
    { "bf16 to f32, odd k, bias", 37, 77, VX_BF16, VX_F32, 1, { { 45, 0, VX_BF16, VX_BF16 } }, 45, 0, 0 },
    { "bf16, odd k", 37, 77, VX_BF16, VX_BF16, 1, { { 45, 0, VX_BF16, VX_BF16 } }, 45, 0, 0 },
    { "bf16, k of 12, odd gaps", 65, 12, VX_BF16, VX_BF16, 1, { { 64, 0, VX_BF16, NO_BIAS } }, 64, 3, 5 },
    { "bf16, k of one", 40, 1, VX_BF16, VX_F32, 1, { { 33, 0, VX_BF16, NO_BIAS } }, 33, 0, 0 },
    { "bf16, gaps", 129, 256, VX_BF16, VX_BF16, 1, { { 128, 0, VX_BF16, VX_BF16 } }, 128, 64, 256 },
    { "bf16, three segments out of order",
      31,
      130,
      VX_BF16,
      VX_BF16,
      3,
      { { 40, 50, VX_BF16, VX_BF16 }, { 17, 0, VX_BF16, NO_BIAS }, { 33, 17, VX_BF16, VX_F32 } },
      90,
      0,
      0 },
    { "bf16, four segments",
      100,
      256,
      VX_BF16,
      VX_BF16,
      4,
      { { 64, 0, VX_BF16, NO_BIAS }, { 64, 64, VX_BF16, NO_BIAS }, { 64, 128, VX_BF16, NO_BIAS }, { 8, 192, VX_BF16, VX_BF16 } },
      200,
      0,
      8 },
    { "bf16, 70,001 rows", 70001, 24, VX_BF16, VX_BF16, 1, { { 16, 0, VX_BF16, NO_BIAS } }, 16, 0, 0 },
    { "bf16, three rows of a wide weight", 3, 512, VX_BF16, VX_BF16, 1, { { 40000, 0, VX_BF16, VX_BF16 } }, 40000, 0, 0 },
    { "f32", 181, 530, VX_F32, VX_F32, 1, { { 67, 0, VX_F32, VX_F32 } }, 67, 0, 0 },
    { "f32, one row", 1, 100, VX_F32, VX_F32, 1, { { 19, 0, VX_F32, NO_BIAS } }, 19, 0, 0 },
    { "f32, long sums", 64, 4096, VX_F32, VX_F32, 1, { { 256, 0, VX_F32, VX_F32 } }, 256, 0, 0 },
    { "f32 to bf16", 50, 96, VX_F32, VX_BF16, 1, { { 200, 0, VX_F32, VX_F32 } }, 200, 0, 0 },
    { "f32 beside bf16, f16 and f32",
      30,
      1041,
      VX_F32,
      VX_F32,
      3,
      { { 34, 0, VX_BF16, VX_BF16 }, { 35, 34, VX_F16, VX_F16 }, { 33, 69, VX_F32, NO_BIAS } },
      102,
      1,
      3 },
    { "f32 beside bf16, three tiles", 2, 16384, VX_F32, VX_F32, 1, { { 4500, 0, VX_BF16, VX_BF16 } }, 4500, 0, 0 },
    { "f16", 100, 320, VX_F16, VX_F16, 1, { { 96, 0, VX_F16, VX_F16 } }, 96, 0, 0 },
    { "f16 beside f32", 100, 320, VX_F16, VX_F16, 1, { { 96, 0, VX_F32, VX_F32 } }, 96, 0, 0 },
    { "f16 beside bf16, to f32", 100, 320, VX_F16, VX_F32, 1, { { 96, 0, VX_BF16, VX_BF16 } }, 96, 8, 8 },
    { "f16 to f32, f16 bias", 10, 321, VX_F16, VX_F32, 1, { { 95, 0, VX_F16, VX_F16 } }, 95, 0, 0 },
};

// Weights are rounded to x's format, biases only to f16.
static double as_weight(vx_dtype x, float v)
{
    return x == VX_F16 ? (double)vx_f16_to_f32(vx_f32_to_f16(v)) : x == VX_BF16 ? (double)vx_round_bf16(v) : (double)v;
}
static double as_bias(vx_dtype x, float v)
{
    return x == VX_F16 ? as_weight(x, v) : (double)v;
}

static double by_the_book(const case_ *c, const vx_weight_segment *s, const void *x, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t k = 0; k < c->k; k++)
        sum +=
            (double)get(x, c->x, i * (c->k + c->x_gap) + k) * as_weight(c->x, get(s->weight.data, s->weight.dtype, j * c->k + k));
    return s->bias.rank ? sum + as_bias(c->x, get(s->bias.data, s->bias.dtype, j)) : sum;
}

static float narrow(vx_dtype t, double v)
{
    return t == VX_BF16 ? vx_round_bf16((float)v) : t == VX_F16 ? vx_f16_to_f32(vx_f32_to_f16((float)v)) : (float)v;
}

static double steps_apart(vx_dtype t, double a, double b)
{
    if (t == VX_F32) return 0;
    int exponent;
    const double size = fmax(fabs(a), fabs(b));
    if (size == 0) return 0;
    (void)frexp(size, &exponent);
    return fabs(a - b) / ldexp(1.0, exponent - (t == VX_BF16 ? 8 : 11));
}

static vx_weight make_weight(const case_ *c, bool once)
{
    vx_weight w = { .n = c->n, .k = c->k, .segments = c->segments, .once = once };
    for (int s = 0; s < c->segments; s++) {
        const int64_t rows = c->segment[s].rows;
        const vx_dtype bias = c->segment[s].bias;
        w.segment[s].weight =
            vx_tensor_of(make_numbers(c->segment[s].weight, rows * c->k, 0, (uint64_t)s + 3), c->segment[s].weight, rows, c->k);
        if (bias != NO_BIAS) w.segment[s].bias = vx_tensor_of(make_numbers(bias, rows, 0, (uint64_t)s + 30), bias, rows);
        w.segment[s].column = c->segment[s].column;
    }
    return w;
}

static void free_weight(vx_weight *w)
{
    for (int s = 0; s < w->segments; s++) {
        vx_device_forget(card, w->segment[s].weight.data, vx_tensor_bytes(w->segment[s].weight));
        vx_free(w->segment[s].weight.data);
        if (!w->segment[s].bias.rank) continue;
        vx_device_forget(card, w->segment[s].bias.data, vx_tensor_bytes(w->segment[s].bias));
        vx_free(w->segment[s].bias.data);
    }
}

static void *run_case(const case_ *c, vx_weight *w, const void *x, vx_arena *arena)
{
    vx_arena_reset(arena, 0);
    const int64_t out_stride = c->n + c->out_gap;
    vx_tensor far_x = put_on_card(card, arena, c->x, c->m, c->k + c->x_gap, x);
    void *poison = vx_alloc((size_t)(c->m * out_stride) * element_size(c->out));
    assert_non_null(poison);
    memset(poison, 0xff, (size_t)(c->m * out_stride) * element_size(c->out)); // NaN in every format
    vx_tensor far_out = put_on_card(card, arena, c->out, c->m, out_stride, poison);
    assert_ok(vx_linear(card, vx_tensor_slice(far_out, 1, 0, c->n), vx_tensor_slice(far_x, 1, 0, c->k), w));
    assert_ok(vx_download(card, poison, far_out));
    return poison;
}

static void check_case(const case_ *c, const vx_weight *w, const void *x, const void *out)
{
    const int64_t stride = c->n + c->out_gap;
    double error = 0, norm = 0, most = 0;
    int64_t equal = 0;
    for (int s = 0; s < w->segments; s++) {
        for (int64_t i = 0; i < c->m; i++) {
            for (int64_t j = 0; j < w->segment[s].weight.shape[0]; j++) {
                const double want = by_the_book(c, &w->segment[s], x, i, j);
                const double got = (double)get(out, c->out, i * stride + w->segment[s].column + j);
                error += (got - want) * (got - want);
                norm += want * want;
                equal += got == (double)narrow(c->out, want);
                most = fmax(most, steps_apart(c->out, got, want));
            }
        }
    }
    for (int64_t i = 0; i < c->m; i++)
        for (int64_t j = c->n; j < stride; j++)
            if (!isnan(get(out, c->out, i * stride + j))) fail_msg("%s: wrote between rows", c->says);
    error = sqrt(error / norm);
    const double limit = c->out == VX_F32 ? 1e-6 : c->out == VX_BF16 ? 2e-3 : 3e-4;
    printf("  %-36s relative L2 %.2e, equal to the rounded sum %.4f, at most %.2f steps off\n", c->says, error,
           (double)equal / (double)(c->m * c->n), most);
    if (!(error <= limit)) fail_msg("%s: relative L2 %.3e, at most %.1e", c->says, error, limit);
}

static void every_case_is_near_the_sum(void **state)
{
    (void)state;
    vx_arena *arena;
    assert_ok(vx_arena_create(card, &arena, 64 << 20));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const case_ *c = &cases[i];
        void *x = make_numbers(c->x, c->m * (c->k + c->x_gap), 0, 7);
        vx_weight w = make_weight(c, false);
        void *out = run_case(c, &w, x, arena);
        check_case(c, &w, x, out);
        w.once = true;
        void *again = run_case(c, &w, x, arena);
        assert_memory_equal(out, again, (size_t)(c->m * (c->n + c->out_gap)) * element_size(c->out));
        vx_free(out);
        vx_free(again);
        vx_free(x);
        free_weight(&w);
    }
    vx_arena_destroy(&arena);
}

static void scratch_is_what_was_told(void **state)
{
    (void)state;
    vx_arena *arena;
    assert_ok(vx_arena_create(card, &arena, 64 << 20));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const case_ *c = &cases[i];
        void *x = make_numbers(c->x, c->m * (c->k + c->x_gap), 0, 7);
        vx_weight w = make_weight(c, false);
        const vx_linear_args args = { vx_tensor_of(NULL, c->out, c->m, c->n), vx_tensor_of(NULL, c->x, c->m, c->k), &w, false };
        vx_device_release(card);
        assert_ok(vx_device_reserve(card, card->ops->linear_scratch(card, &args)));
        const int64_t growths = vx_cuda_of(card)->scratch_growths;
        vx_free(run_case(c, &w, x, arena));
        assert_int_equal(vx_cuda_of(card)->scratch_growths, growths);
        vx_free(x);
        free_weight(&w);
    }
    vx_arena_destroy(&arena);
}

// Adapters: the CPU's sum, to the rounding of out.
static void branches_follow_the_cpu(void **state)
{
    (void)state;
    enum { M = 70, N = 96, K = 128, R = 8, COLUMN = 32, ROWS = 48 };
    static const struct {
        vx_dtype x, out, weight, a, b;
        double limit;
    } table[] = {
        { VX_BF16, VX_BF16, VX_BF16, VX_BF16, VX_BF16, 4e-3 }, { VX_BF16, VX_BF16, VX_BF16, VX_F32, VX_F32, 4e-3 },
        { VX_BF16, VX_F32, VX_BF16, VX_BF16, VX_BF16, 4e-3 },  { VX_BF16, VX_F32, VX_BF16, VX_F16, VX_F32, 1e-6 },
        { VX_F32, VX_F32, VX_BF16, VX_BF16, VX_F16, 1e-6 },    { VX_F32, VX_F32, VX_F32, VX_F32, VX_F32, 1e-6 },
    };
    vx_device *cpu = make_device(NULL, 1);
    vx_arena *arena;
    assert_ok(vx_arena_create(card, &arena, 16 << 20));
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        vx_arena_reset(arena, 0);
        void *x = make_numbers(table[i].x, M * K, 0, 5), *weight = make_numbers(table[i].weight, N * K, 0, 6);
        void *a = make_numbers(table[i].a, R * K, 0, 8), *b = make_numbers(table[i].b, ROWS * R, 0, 9);
        void *out = make_numbers(table[i].out, M * N, 0, 1);
        const vx_branch branch[2] = { { vx_tensor_of(a, table[i].a, R, K), vx_tensor_of(b, table[i].b, ROWS, R), COLUMN, 0.7f },
                                      { vx_tensor_of(a, table[i].a, R, K), vx_tensor_of(b, table[i].b, ROWS, R), 0, -0.25f } };
        const vx_weight w = { .n = N,
                              .k = K,
                              .segments = 1,
                              .segment = { { .weight = vx_tensor_of(weight, table[i].weight, N, K) } },
                              .branch = branch,
                              .branches = 2 };
        assert_ok(vx_linear(cpu, vx_tensor_of(out, table[i].out, M, N), vx_tensor_of(x, table[i].x, M, K), &w));
        const vx_tensor far_x = put_on_card(card, arena, table[i].x, M, K, x);
        const vx_tensor far_out = vx_arena_tensor(arena, table[i].out, M, N);
        assert_ok(vx_linear(card, far_out, far_x, &w));
        void *got = fetch(card, far_out);
        double error = 0, norm = 0;
        for (int64_t j = 0; j < M * N; j++) {
            const double d = (double)get(got, table[i].out, j) - (double)get(out, table[i].out, j);
            error += d * d;
            norm += (double)get(out, table[i].out, j) * (double)get(out, table[i].out, j);
        }
        printf("  branches, row %zu: relative L2 %.2e\n", i, sqrt(error / norm));
        assert_true(sqrt(error / norm) <= table[i].limit);
        vx_device_forget(card, NULL, 0);
        vx_free(x), vx_free(weight), vx_free(a), vx_free(b), vx_free(out), vx_free(got);
    }
    vx_arena_destroy(&arena);
    vx_device_destroy(&cpu);
}

static void same_bits_every_time(void **state)
{
    (void)state;
    vx_arena *arena;
    assert_ok(vx_arena_create(card, &arena, 64 << 20));
    const case_ c = { "", 777, 1536, VX_BF16, VX_BF16, 1, { { 640, 0, VX_BF16, VX_BF16 } }, 640, 0, 0 };
    void *x = make_numbers(c.x, c.m * c.k, 0, 7);
    vx_weight w = make_weight(&c, false);
    void *first = run_case(&c, &w, x, arena);
    for (int i = 0; i < 5; i++) {
        void *again = run_case(&c, &w, x, arena);
        assert_memory_equal(first, again, (size_t)(c.m * c.n) * 2);
        vx_free(again);
    }
    vx_device *other = card;
    card = make_card();
    vx_cuda_of(card)->short_products = 0;
    vx_arena *fresh;
    assert_ok(vx_arena_create(card, &fresh, 64 << 20));
    void *again = run_case(&c, &w, x, fresh);
    assert_memory_equal(first, again, (size_t)(c.m * c.n) * 2);
    vx_arena_destroy(&fresh);
    vx_device_destroy(&card);
    card = other;
    vx_free(again), vx_free(first), vx_free(x);
    free_weight(&w);
    vx_arena_destroy(&arena);
}

// Few multiply-adds: the definition's chain, whatever formats, strides and segments.
static void small_products_have_the_cpus_bits(void **state)
{
    (void)state;
    vx_device *cpu;
    vx_arena *arena;
    assert_ok(vx_device_cpu_create(&cpu, NULL));
    assert_ok(vx_arena_create(card, &arena, 512 << 20));
    vx_cuda_of(card)->short_products = INT64_MAX;
    int compared = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const case_ *c = &cases[i];
        if (c->m * c->n * c->k > VX_CUDA_SHORT_PRODUCTS) continue;
        void *x = make_numbers(c->x, c->m * (c->k + c->x_gap), 0, 7);
        vx_weight w = make_weight(c, false);
        void *got = run_case(c, &w, x, arena);
        const size_t bytes = (size_t)(c->m * (c->n + c->out_gap)) * element_size(c->out);
        void *want = vx_alloc(bytes);
        assert_non_null(want);
        memset(want, 0xff, bytes);
        vx_tensor near_out = vx_tensor_of(want, c->out, c->m, c->n + c->out_gap),
                  near_x = vx_tensor_of(x, c->x, c->m, c->k + c->x_gap);
        assert_ok(vx_linear(cpu, vx_tensor_slice(near_out, 1, 0, c->n), vx_tensor_slice(near_x, 1, 0, c->k), &w));
        if (memcmp(got, want, bytes) != 0) fail_msg("%s: other bits than the processor's", c->says);
        compared++;
        vx_free(got), vx_free(want), vx_free(x);
        free_weight(&w);
    }
    assert_true(compared > 15);
    vx_cuda_of(card)->short_products = 0;
    vx_arena_destroy(&arena);
    vx_device_destroy(&cpu);
}

int main(void)
{
    card = make_card();
    vx_cuda_of(card)->short_products = 0; // the library's products on small shapes, too
    printf("  cuBLASLt %s\n", vx_cuda_blas_version(vx_cuda_of(card)));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_is_near_the_sum),        cmocka_unit_test(scratch_is_what_was_told),
        cmocka_unit_test(branches_follow_the_cpu),           cmocka_unit_test(same_bits_every_time),
        cmocka_unit_test(small_products_have_the_cpus_bits),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vx_device_destroy(&card);
    return failed;
}
