// Adapters' branches of vx_linear against the composition that operators.h writes down: two products, then the sum with its
// roundings, bit for bit, at every level; and the roundings by hand.
#include "rig.h"

#include "device/backend.h"
#include "device/cpu/cpu.h"

typedef struct case_ {
    const char *says;
    int64_t m, k, n;
    vx_dtype x, out, w;
    int branches;
    struct {
        int64_t rank, rows, column;
        vx_dtype a, b;
        float scale;
    } branch[3];
} case_;

static const case_ cases[] = {
    { "one row, whole width", 1, 64, 40, VX_BF16, VX_BF16, VX_BF16, 1, { { 4, 40, 0, VX_BF16, VX_BF16, 0.5f } } },
    { "two, of other ranks and columns, a negative one",
      37,
      130,
      90,
      VX_BF16,
      VX_BF16,
      VX_BF16,
      2,
      { { 3, 30, 60, VX_BF16, VX_BF16, -0.7f }, { 17, 90, 0, VX_BF16, VX_BF16, 1.0f } } },
    { "factors of f32 beside bf16", 200, 77, 50, VX_BF16, VX_BF16, VX_BF16, 1, { { 5, 50, 0, VX_F32, VX_F32, 0.3f } } },
    { "factors of f16 beside bf16", 3, 77, 50, VX_BF16, VX_BF16, VX_BF16, 1, { { 5, 20, 7, VX_F16, VX_F16, 0.3f } } },
    { "f32 throughout",
      181,
      90,
      70,
      VX_F32,
      VX_F32,
      VX_F32,
      2,
      { { 6, 70, 0, VX_F32, VX_F32, 1.0f }, { 1, 1, 69, VX_BF16, VX_F16, 3.0f } } },
    { "bf16 weights beside f32", 9, 90, 70, VX_F32, VX_F32, VX_BF16, 1, { { 6, 70, 0, VX_BF16, VX_BF16, 0.25f } } },
    { "f32 in, bf16 out", 33, 90, 70, VX_F32, VX_BF16, VX_F32, 1, { { 6, 70, 0, VX_F32, VX_F32, 0.25f } } },
    { "bf16 in, f32 out", 9, 90, 70, VX_BF16, VX_F32, VX_BF16, 1, { { 6, 70, 0, VX_BF16, VX_BF16, 0.3f } } },
    { "more rows than a step", 4101, 16, 20, VX_BF16, VX_BF16, VX_BF16, 1, { { 2, 20, 0, VX_BF16, VX_BF16, 0.5f } } },
};

static vx_weight plain(vx_tensor w)
{
    return (vx_weight){ .n = w.shape[0], .k = w.shape[1], .segments = 1, .segment = { { .weight = w } } };
}

static float value(vx_tensor t, int64_t i)
{
    return t.dtype == VX_F32 ? vx_f32_of(t)[i] : vx_bf16_to_f32(((const uint16_t *)t.data)[i]);
}

static void add_by_the_book(vx_device *dev, vx_tensor out, vx_tensor x, const vx_branch *branch)
{
    const bool narrow = x.dtype == VX_BF16 && branch->a.dtype == VX_BF16 && branch->b.dtype == VX_BF16;
    const int64_t columns = branch->b.shape[0];
    // Products of bf16 x with f32 or f16 factors are not an operator of their own: x is widened, which keeps its values. The
    // sum of pairs has another order then, so the comparison allows for it (see below).
    vx_tensor wide = narrow || x.dtype == VX_F32 ? rig_copy(x) : rig_as(x, VX_F32);
    vx_tensor t = rig_tensor(narrow ? VX_BF16 : VX_F32, x.shape[0], branch->a.shape[0]);
    vx_tensor u = rig_tensor(t.dtype, x.shape[0], columns);
    const vx_weight a = plain(branch->a), b = plain(branch->b);
    assert_ok(vx_linear(dev, t, wide, &a));
    assert_ok(vx_linear(dev, u, t, &b));
    for (int64_t i = 0; i < x.shape[0]; i++)
        for (int64_t j = 0; j < columns; j++) {
            const int64_t at = i * out.shape[1] + branch->column + j;
            float v = branch->scale * value(u, i * columns + j);
            if (narrow) v = vx_round_bf16(v);
            v = value(out, at) + v;
            if (out.dtype == VX_F32) vx_f32_of(out)[at] = v;
            else ((uint16_t *)out.data)[at] = vx_f32_to_bf16(v);
        }
    rig_free(&wide);
    rig_free(&t);
    rig_free(&u);
}

static void check_case(const case_ *c, const char *isa, int threads)
{
    vx_device *dev = rig_cpu(isa, threads);
    vx_tensor x = rig_tensor(c->x, c->m, c->k), w = rig_tensor(c->w, c->n, c->k);
    vx_tensor got = rig_tensor(c->out, c->m, c->n), want = rig_like(got);
    memset(got.data, 0xff, vx_tensor_bytes(got)); // NaN
    vx_branch branch[3];
    rig_fill(x, 1, 1);
    rig_fill(w, 2, 0.2f);
    for (int i = 0; i < c->branches; i++) {
        branch[i] = (vx_branch){ rig_tensor(c->branch[i].a, c->branch[i].rank, c->k),
                                 rig_tensor(c->branch[i].b, c->branch[i].rows, c->branch[i].rank), c->branch[i].column,
                                 c->branch[i].scale };
        rig_fill(branch[i].a, 10 + (uint32_t)i, 0.3f);
        rig_fill(branch[i].b, 20 + (uint32_t)i, 0.3f);
    }
    vx_weight weight = plain(w);
    assert_ok(vx_linear(dev, want, x, &weight));
    bool mixed = false;
    for (int i = 0; i < c->branches; i++) {
        add_by_the_book(dev, want, x, &branch[i]);
        mixed = mixed || (c->x == VX_BF16 && branch[i].a.dtype != VX_BF16);
    }
    weight.branch = branch;
    weight.branches = c->branches;
    // What the plan counts is all that is taken: a device that reserved it need not grow.
    vx_cpu *cpu = vx_cpu_of(dev);
    assert_ok(vx_device_reserve(dev, vx_cpu_linear_scratch(dev, &(vx_linear_args){ got, x, &weight, false })));
    const int64_t growths = cpu->scratch_growths;
    assert_ok(vx_linear(dev, got, x, &weight));
    assert_int_equal(cpu->scratch_growths, growths);
    if (!mixed) {
        if (memcmp(got.data, want.data, vx_tensor_bytes(got)) != 0) fail_msg("%s: other bits (%s)", c->says, isa);
    } else {
        for (int64_t i = 0; i < vx_tensor_count(got); i++) // one unit of bf16 in the last place
            if (!(fabsf(value(got, i) - value(want, i)) <= 0x1p-7f * fabsf(value(want, i)) + 1e-6f))
                fail_msg("%s: element %lld is %g, expected %g", c->says, (long long)i, (double)value(got, i),
                         (double)value(want, i));
    }
    for (int i = 0; i < c->branches; i++) {
        rig_free(&branch[i].a);
        rig_free(&branch[i].b);
    }
    rig_free(&x);
    rig_free(&w);
    rig_free(&got);
    rig_free(&want);
    vx_device_destroy(&dev);
}

static void adds_one_after_the_other_with_pefts_roundings(void **state)
{
    (void)state;
    static const char *const levels[] = { "generic", "avx2", "avx512" };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) check_case(&cases[i], levels[l], l == 0 ? 1 : 2);
}

// By hand: every step of the chain rounds, so 1 + (1 + 2^-9) * ... would differ if one were left out.
static void each_step_rounds(void **state)
{
    (void)state;
    vx_device *dev = rig_cpu(NULL, 1);
    uint16_t x[2] = { vx_f32_to_bf16(1), vx_f32_to_bf16(0x1p-9f) }, w[2] = { 0, 0 }, a[2], b[1], out[1];
    a[0] = a[1] = b[0] = vx_f32_to_bf16(1);
    const vx_branch branch = { vx_tensor_of(a, VX_BF16, 1, 2), vx_tensor_of(b, VX_BF16, 1, 1), 0, 1.005f };
    vx_weight weight = plain(vx_tensor_of(w, VX_BF16, 1, 2));
    weight.branch = &branch;
    weight.branches = 1;
    assert_ok(vx_linear(dev, vx_tensor_of(out, VX_BF16, 1, 1), vx_tensor_of(x, VX_BF16, 1, 2), &weight));
    // t = bf16(1 + 2^-9) = 1, u = 1, v = bf16(1.005) = 1 + 2^-7; unrounded t would give bf16(1.00696) = the same, but
    // with f32 factors the sum is rounded once: 1.005 * (1 + 2^-9) = 1.00696 -> 1 + 2^-7.
    assert_int_equal(out[0], vx_f32_to_bf16(1.0078125f));
    // Onto a large sum: 256 + 1.0078 = 257.0078 -> 258 or 256: ties and halves of bf16 at 256 are 1.
    w[0] = vx_f32_to_bf16(256);
    x[1] = 0;
    assert_ok(vx_linear(dev, vx_tensor_of(out, VX_BF16, 1, 1), vx_tensor_of(x, VX_BF16, 1, 2), &weight));
    assert_int_equal(out[0], vx_f32_to_bf16(258));
    vx_device_destroy(&dev);
}

// A quantised base: the product of its decoded numbers, then the branch on x as it is, before any rotation or factor of the input
// that belongs to the base alone.
static void branches_stand_beside_quantised_weights(void **state)
{
    (void)state;
    enum { M = 7, K = 64, N = 32, R = 3 };
    vx_tensor x = rig_tensor(VX_F32, M, K), a = rig_tensor(VX_F32, R, K), b = rig_tensor(VX_F32, N, R);
    vx_tensor int8 = rig_tensor(VX_I8, N, K), int8_scale = rig_tensor(VX_F32, N), pre = rig_tensor(VX_F32, K);
    vx_tensor nibbles = rig_tensor(VX_U8, N, K / 2), block_scale = rig_tensor(VX_F8_E4M3, 128, 4), scale = rig_tensor(VX_F32, 1);
    rig_fill(x, 1, 1);
    rig_fill(a, 2, 0.3f);
    rig_fill(b, 3, 0.3f);
    rig_fill(int8, 4, 1);
    rig_fill(nibbles, 5, 1);
    for (int i = 0; i < 128 * 4; i++) ((uint8_t *)block_scale.data)[i] = (uint8_t)(0x30 + i % 16);
    for (int i = 0; i < N; i++) vx_f32_of(int8_scale)[i] = 0.001f * (float)(1 + i % 5);
    for (int i = 0; i < K; i++) vx_f32_of(pre)[i] = i % 2 ? 0.5f : 2.0f;
    vx_f32_of(scale)[0] = 0.01f;
    const vx_quant quants[] = { { .kind = VX_QUANT_INT8, .rotate = 16, .k = K, .scale = int8_scale },
                                { .kind = VX_QUANT_NVFP4, .group = 16, .k = K, .scale = scale, .block_scale = block_scale },
                                { .kind = VX_QUANT_INT8, .k = K, .scale = int8_scale, .pre_scale = pre } };
    const vx_tensor stored[] = { int8, nibbles, int8 };
    vx_device *dev = rig_cpu(NULL, 2);
    for (int q = 0; q < 3; q++) {
        const vx_branch branch = { a, b, 0, -0.7f };
        vx_tensor w = rig_tensor(VX_F32, N, K), scaled = rig_copy(x), got = rig_tensor(VX_F32, M, N), want = rig_like(got);
        for (int64_t r = 0; r < N; r++) vx_quant_decode(&quants[q], stored[q], r, 0, K, false, vx_f32_of(w) + r * K);
        for (int i = 0; quants[q].pre_scale.rank && i < M * K; i++) vx_f32_of(scaled)[i] *= vx_f32_of(pre)[i % K];
        vx_weight decoded = plain(w), base = { .n = N, .k = K, .segments = 1, .branch = &branch, .branches = 1 };
        base.segment[0] = (vx_weight_segment){ .weight = stored[q], .quant = quants[q] };
        assert_ok(vx_linear(dev, want, scaled, &decoded));
        add_by_the_book(dev, want, x, &branch);
        assert_ok(vx_linear(dev, got, x, &base));
        if (memcmp(got.data, want.data, vx_tensor_bytes(got)) != 0) fail_msg("quantised base %d: other bits", q);
        rig_free(&w);
        rig_free(&scaled);
        rig_free(&got);
        rig_free(&want);
    }
    vx_device_destroy(&dev);
    vx_tensor *all[] = { &x, &a, &b, &int8, &int8_scale, &pre, &nibbles, &block_scale, &scale };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) rig_free(all[i]);
}

static void refuses_factors_that_do_not_fit(void **state)
{
    (void)state;
    vx_device *dev = rig_cpu(NULL, 1);
    vx_tensor x = rig_tensor(VX_F32, 2, 8), w = rig_tensor(VX_F32, 6, 8), out = rig_tensor(VX_F32, 2, 6);
    vx_tensor a = rig_tensor(VX_F32, 3, 8), b = rig_tensor(VX_F32, 6, 3), whole = rig_tensor(VX_I32, 6, 3);
    const struct {
        vx_branch branch;
        vx_code code;
    } bad[] = {
        { { vx_tensor_slice(a, 1, 0, 7), b, 0, 1 }, VX_ERR_SHAPE },
        { { a, vx_tensor_slice(b, 1, 0, 2), 0, 1 }, VX_ERR_SHAPE },
        { { a, b, 1, 1 }, VX_ERR_SHAPE },
        { { a, b, -1, 1 }, VX_ERR_SHAPE },
        { { a, whole, 0, 1 }, VX_ERR_DTYPE },
        { { a, vx_tensor_of(NULL, VX_F32, 6, 3), 0, 1 }, VX_ERR_INTERNAL },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        vx_weight weight = plain(w);
        weight.branch = &bad[i].branch;
        weight.branches = 1;
        const vx_status s = vx_linear(dev, out, x, &weight);
        assert_true(s.code != VX_OK);
        if (bad[i].code != VX_ERR_INTERNAL) assert_int_equal(s.code, bad[i].code);
    }
    rig_free(&x);
    rig_free(&w);
    rig_free(&out);
    rig_free(&a);
    rig_free(&b);
    rig_free(&whole);
    vx_device_destroy(&dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adds_one_after_the_other_with_pefts_roundings),
        cmocka_unit_test(each_step_rounds),
        cmocka_unit_test(branches_stand_beside_quantised_weights),
        cmocka_unit_test(refuses_factors_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
