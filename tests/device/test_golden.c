// Operators against PyTorch's eager bf16: tests/data/ops.safetensors (tools/make_ops_vectors.py, torch 2.15.0).
#include "rig.h"

static mini_file file;
static vx_device *dev;

static int open_all(void **state)
{
    (void)state;
    assert_true(mini_open(&file, VX_TEST_DATA "/ops.safetensors"));
    dev = rig_cpu(NULL, 2);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    vx_device_destroy(&dev);
    mini_close(&file);
    return 0;
}

static vx_tensor named(const char *name)
{
    return mini_tensor(&file, name);
}

// Sums are in another order than PyTorch's, which differs between its own versions: at least 99.99 % equal and the rest one
// step apart (acceleration specification 2.3). Small tensors may have one such element.
static void nearly_same(const char *what, vx_tensor found, vx_tensor want)
{
    const uint16_t *a = found.data, *b = want.data;
    const int64_t count = vx_tensor_count(want);
    int64_t off = 0;
    for (int64_t i = 0; i < count; i++) {
        const int step = rig_ulps(a[i], b[i]);
        if (step > 1) fail_msg("%s: element %lld is %d steps off", what, (long long)i, step);
        off += step;
    }
    if (off > 1 && off * 10000 > count) fail_msg("%s: %lld of %lld differ", what, (long long)off, (long long)count);
}

static void close_to(const char *what, vx_tensor found, vx_tensor want, double tolerance)
{
    for (int64_t i = 0; i < vx_tensor_count(want); i++) {
        const double a = vx_f32_of(found)[i], b = vx_f32_of(want)[i];
        if (!(fabs(a - b) <= tolerance * (1 + fabs(b))))
            fail_msg("%s: element %lld is %g, expected %g", what, (long long)i, a, b);
    }
}

static void rms_norm_equals_torch(void **state)
{
    (void)state;
    static const struct {
        const char *x, *w, *y;
        float eps;
        vx_norm_rounding rounding;
    } cases[] = {
        { "norm.x", "norm.weight", "norm.rms.y", 1e-5f, VX_NORM_ROUND_ONCE },
        { "norm.x", "norm.weight", "norm.rms_twice.y", 1e-6f, VX_NORM_ROUND_TWICE },
        { "wide.x", "wide.weight", "wide.y", 1e-5f, VX_NORM_ROUND_ONCE },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_tensor x = named(cases[i].x), out = rig_like(x);
        assert_ok(vx_rms_norm(dev, out, x, named(cases[i].w), cases[i].eps, cases[i].rounding));
        nearly_same(cases[i].y, out, named(cases[i].y));
        rig_free(&out);
    }
}

static void layer_norm_equals_torch(void **state)
{
    (void)state;
    vx_tensor x = named("norm.x"), out = rig_like(x);
    assert_ok(vx_layer_norm(dev, out, x, named("norm.weight"), named("norm.bias"), 1e-6f));
    nearly_same("norm.layer.y", out, named("norm.layer.y"));
    rig_free(&out);
}

// f32: sums of 192 terms in two orders differ by a few units in the last place.
static void f32_norms_are_close_to_torch(void **state)
{
    (void)state;
    vx_tensor x = rig_as(named("norm.x"), VX_F32), out = rig_like(x);
    assert_ok(vx_rms_norm(dev, out, x, named("norm.weight"), 1e-5f, VX_NORM_ROUND_ONCE));
    close_to("norm.f32.rms.y", out, named("norm.f32.rms.y"), 1e-6);
    assert_ok(vx_layer_norm(dev, out, x, named("norm.weight"), named("norm.bias"), 1e-6f));
    close_to("norm.f32.layer.y", out, named("norm.f32.layer.y"), 1e-6);
    rig_free(&x);
    rig_free(&out);
}

// A row of ones and eps 0 has the norm of ones: what is left is the modulation.
static void modulate_equals_torch(void **state)
{
    (void)state;
    vx_tensor x = named("modulate.x"), ones = rig_like(x), want = named("modulate.y"), out = rig_like(x);
    for (int64_t i = 0; i < vx_tensor_count(x); i++) ((uint16_t *)ones.data)[i] = 0x3f80;
    for (int64_t i = 0; i < x.shape[0]; i++) { // the weight carries the row's own numbers
        vx_tensor row = vx_tensor_slice(named("row"), 0, i, i + 1);
        assert_ok(vx_rms_norm_modulate(dev, vx_tensor_slice(out, 0, i, i + 1), vx_tensor_slice(ones, 0, i, i + 1),
                                       vx_tensor_row(x, i), named("modulate.shift"), named("modulate.scale"), row, 0));
    }
    rig_same_bits("modulate", out, want);
    rig_free(&ones);
    rig_free(&out);
}

static void gate_add_and_add_equal_torch(void **state)
{
    (void)state;
    const vx_tensor none = { 0 };
    vx_tensor x = rig_copy(named("gate_add.x"));
    assert_ok(vx_gate_add(dev, x, named("gate_add.y"), named("gate_add.gate"), named("row")));
    rig_same_bits("gate_add", x, named("gate_add.out"));
    rig_free(&x);
    x = rig_copy(named("gate_add.x"));
    assert_ok(vx_gate_add(dev, x, named("gate_add.y"), named("gate_add.gate"), none));
    rig_same_bits("gate_add of row 0", x, named("gate_add.first_row.out"));
    rig_free(&x);
    x = rig_copy(named("gate_add.x"));
    assert_ok(vx_add(dev, x, named("gate_add.y")));
    rig_same_bits("add", x, named("add.out"));
    rig_free(&x);
}

static void swiglu_equals_torch_in_both_orders(void **state)
{
    (void)state;
    vx_tensor want = named("swiglu.value_first.y"), out = rig_like(want);
    assert_ok(vx_swiglu(dev, out, named("swiglu.u"), false));
    rig_same_bits("value first", out, want);
    assert_ok(vx_swiglu(dev, out, named("swiglu.u"), true));
    rig_same_bits("gate first", out, named("swiglu.gate_first.y"));
    rig_free(&out);
}

static void silu_equals_torch(void **state)
{
    (void)state;
    vx_tensor want = named("silu.bf16.y"), out = rig_like(want);
    assert_ok(vx_silu(dev, out, named("silu.x")));
    rig_same_bits("silu", out, want);
    rig_free(&out);
}

// All finite bf16: the hash is that of the acceleration specification, 2.6.
static void silu_of_every_bf16_has_the_known_hash(void **state)
{
    (void)state;
    static const char *const levels[] = { "generic", "avx2", "avx512" };
    vx_tensor x = rig_tensor(VX_BF16, 256, 256), out = rig_like(x);
    for (int i = 0; i < 65536; i++) ((uint16_t *)x.data)[i] = (uint16_t)i;
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        vx_device *level = rig_cpu(levels[l], 1);
        uint32_t hash = 2166136261u;
        assert_ok(vx_silu(level, out, x));
        for (int i = 0; i < 65536; i++) {
            if ((i & 0x7f80) == 0x7f80) continue;
            const uint16_t y = ((uint16_t *)out.data)[i];
            hash = (hash ^ (y & 0xff)) * 16777619u;
            hash = (hash ^ (uint32_t)(y >> 8)) * 16777619u;
        }
        assert_int_equal(hash, 0xae5f97a0u);
        vx_device_destroy(&level);
    }
    rig_free(&x);
    rig_free(&out);
}

static void rotation_equals_torch(void **state)
{
    (void)state;
    const vx_tensor none = { 0 };
    vx_tensor q = rig_copy(named("rope.q"));
    assert_ok(vx_qk_norm_rope(
        dev, q, none, &(vx_qk_norm_rope_params){ .skip_norm = true, .cos = named("rope.cos"), .sin = named("rope.sin") }));
    rig_same_bits("rope", q, named("rope.y"));
    rig_free(&q);
}

static void norm_of_heads_equals_torch(void **state)
{
    (void)state;
    const vx_tensor none = { 0 };
    vx_tensor q = rig_copy(named("qk.q"));
    assert_ok(vx_qk_norm_rope(dev, q, none, &(vx_qk_norm_rope_params){ .q_weight = named("qk.weight"), .eps = 1e-6f }));
    nearly_same("qk.norm.y", q, named("qk.norm.y"));
    rig_free(&q);
}

// Norm, then rotation, in one call is what the two calls give.
static void norm_and_rotation_are_the_two_in_turn(void **state)
{
    (void)state;
    const vx_tensor none = { 0 };
    vx_tensor q = rig_copy(named("qk.q")), want = rig_copy(named("qk.q"));
    const vx_tensor w = named("qk.weight"), cos = named("rope.cos"), sin = named("rope.sin");
    assert_ok(vx_qk_norm_rope(dev, q, none, &(vx_qk_norm_rope_params){ .q_weight = w, .eps = 1e-6f, .cos = cos, .sin = sin }));
    assert_ok(vx_qk_norm_rope(dev, want, none, &(vx_qk_norm_rope_params){ .q_weight = w, .eps = 1e-6f }));
    assert_ok(vx_qk_norm_rope(dev, want, none, &(vx_qk_norm_rope_params){ .skip_norm = true, .cos = cos, .sin = sin }));
    rig_same_bits("norm and rotation", q, want);
    rig_free(&q);
    rig_free(&want);
}

static void copies_round_as_torch(void **state)
{
    (void)state;
    vx_tensor want = named("copy.bf16.y"), out = rig_like(want);
    assert_ok(vx_copy(dev, out, named("silu.x")));
    rig_same_bits("to bf16", out, want);
    rig_free(&out);
    want = named("copy.f16.y");
    out = rig_like(want);
    assert_ok(vx_copy(dev, out, named("silu.x")));
    rig_same_bits("to f16", out, want);
    rig_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rms_norm_equals_torch),
        cmocka_unit_test(layer_norm_equals_torch),
        cmocka_unit_test(f32_norms_are_close_to_torch),
        cmocka_unit_test(modulate_equals_torch),
        cmocka_unit_test(gate_add_and_add_equal_torch),
        cmocka_unit_test(swiglu_equals_torch_in_both_orders),
        cmocka_unit_test(silu_equals_torch),
        cmocka_unit_test(silu_of_every_bf16_has_the_known_hash),
        cmocka_unit_test(rotation_equals_torch),
        cmocka_unit_test(norm_of_heads_equals_torch),
        cmocka_unit_test(norm_and_rotation_are_the_two_in_turn),
        cmocka_unit_test(copies_round_as_torch),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
