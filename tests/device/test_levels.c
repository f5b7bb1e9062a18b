// The same bits from every instruction set and any number of threads: each operator runs on the plain, single-threaded
// device, and everywhere else against that. Products, attention and convolutions have tests of their own.
#include "rig.h"

static vx_device *plain;
static vx_device *others[12];
static int other_count;
static const int64_t widths[] = { 1, 5, 8, 13, 32, 70, 192, 256, 264, 520, 1024, 5376 };
static const int64_t heights[] = { 1, 2, 31, 33, 100, 150 };
enum { WIDTHS = sizeof widths / sizeof *widths, HEIGHTS = sizeof heights / sizeof *heights };

static int open_all(void **state)
{
    (void)state;
    static const char *const levels[] = { "generic", "avx2", "avx512", "avx512bf16" };
    static const int threads[] = { 1, 2, 4 };
    plain = rig_cpu("generic", 1);
    for (int l = 0; l < 4; l++)
        for (int t = 0; t < 3; t++) others[other_count++] = rig_cpu(levels[l], threads[t]);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    vx_device_destroy(&plain);
    for (int i = 0; i < other_count; i++) vx_device_destroy(&others[i]);
    return 0;
}

// Rows of n with room between them: every operator on rows takes such views.
static vx_tensor spaced(vx_tensor *block, vx_dtype t, int64_t rows, int64_t n, uint32_t seed, float scale)
{
    *block = rig_tensor(t, rows, n + 3);
    rig_fill(*block, seed, scale);
    return vx_tensor_slice(*block, 1, 1, n + 1);
}

enum { INPUTS = 6 };
struct work {
    vx_dtype act, weight;
    int64_t rows, n;
    vx_tensor block[INPUTS], in[INPUTS]; // in[i] is a view of block[i]
};

typedef void (*operation)(vx_device *dev, const struct work *w, vx_tensor out);

static void add(vx_device *dev, const struct work *w, vx_tensor out)
{
    assert_ok(vx_copy(dev, out, w->in[0]));
    assert_ok(vx_add(dev, out, w->in[1]));
}

static void gate_add(vx_device *dev, const struct work *w, vx_tensor out)
{
    assert_ok(vx_copy(dev, out, w->in[0]));
    assert_ok(vx_gate_add(dev, out, w->in[1], vx_tensor_slice(w->in[2], 0, 0, 1), (vx_tensor){ 0 }));
    assert_ok(vx_gate_add(dev, out, w->in[3], w->in[2], w->in[5]));
}

static void rms_norm_once(vx_device *dev, const struct work *w, vx_tensor out)
{
    assert_ok(vx_rms_norm(dev, out, w->in[0], w->in[4], 1e-5f, VX_NORM_ROUND_ONCE));
}

static void rms_norm_twice(vx_device *dev, const struct work *w, vx_tensor out)
{
    assert_ok(vx_rms_norm(dev, out, w->in[0], w->in[4], 1e-6f, VX_NORM_ROUND_TWICE));
}

static void rms_norm_in_place(vx_device *dev, const struct work *w, vx_tensor out)
{
    assert_ok(vx_copy(dev, out, w->in[0]));
    assert_ok(vx_rms_norm(dev, out, out, (vx_tensor){ 0 }, 1e-6f, VX_NORM_ROUND_ONCE));
}

static void rms_norm_modulate(vx_device *dev, const struct work *w, vx_tensor out)
{
    assert_ok(vx_rms_norm_modulate(dev, out, w->in[0], w->in[4], w->in[2], w->in[3], w->in[5], 1e-5f));
}

static void layer_norm(vx_device *dev, const struct work *w, vx_tensor out)
{
    assert_ok(vx_layer_norm(dev, out, w->in[0], w->in[4], vx_tensor_row(w->in[1], 0), 1e-5f));
}

static void layer_norm_without_weights(vx_device *dev, const struct work *w, vx_tensor out)
{
    assert_ok(vx_layer_norm(dev, out, w->in[0], (vx_tensor){ 0 }, (vx_tensor){ 0 }, 1e-5f));
}

static void silu(vx_device *dev, const struct work *w, vx_tensor out)
{
    assert_ok(vx_silu(dev, out, w->in[0]));
}

static void gelu_erf(vx_device *dev, const struct work *w, vx_tensor out)
{
    assert_ok(vx_gelu(dev, out, w->in[0], false));
}

static void gelu_tanh_in_place(vx_device *dev, const struct work *w, vx_tensor out)
{
    assert_ok(vx_copy(dev, out, w->in[0]));
    assert_ok(vx_gelu(dev, out, out, true));
}

static void embed_blend(vx_device *dev, const struct work *w, vx_tensor out)
{
    vx_tensor table = rig_tensor(w->weight, w->rows, w->n), ids = rig_tensor(VX_I32, w->rows, 4),
              weights = rig_tensor(VX_F32, w->rows, 4);
    rig_fill(table, 79, 3);
    rig_fill(weights, 80, 1);
    for (int64_t i = 0; i < 4 * w->rows; i++) ((int32_t *)ids.data)[i] = (int32_t)(i * 7 % w->rows);
    assert_ok(vx_embed_blend(dev, out, table, ids, weights));
    rig_free(&table);
    rig_free(&ids);
    rig_free(&weights);
}

static void swiglu(vx_device *dev, const struct work *w, vx_tensor out)
{
    vx_tensor u = rig_tensor(w->act, w->rows, 2 * w->n);
    rig_fill(u, 77, 8);
    assert_ok(vx_swiglu(dev, out, u, w->rows % 2 == 0));
    rig_free(&u);
}

static void embed(vx_device *dev, const struct work *w, vx_tensor out)
{
    vx_tensor table = rig_tensor(w->weight, w->rows, w->n);
    rig_fill(table, 78, 3);
    assert_ok(vx_embed(dev, out, table, NULL, w->in[5]));
    rig_free(&table);
}

static const struct {
    const char *name;
    operation run;
} operations[] = {
    { "add", add },
    { "gate_add", gate_add },
    { "rms_norm, one rounding", rms_norm_once },
    { "rms_norm, two roundings", rms_norm_twice },
    { "rms_norm in place", rms_norm_in_place },
    { "rms_norm_modulate", rms_norm_modulate },
    { "layer_norm", layer_norm },
    { "layer_norm without weights", layer_norm_without_weights },
    { "silu", silu },
    { "swiglu", swiglu },
    { "embed", embed },
    { "gelu", gelu_erf },
    { "gelu, tanh form, in place", gelu_tanh_in_place },
    { "embed_blend", embed_blend },
};

static void check_everywhere(const char *name, operation run, const struct work *w)
{
    char what[128];
    vx_tensor want = rig_tensor(w->act, w->rows, w->n);
    run(plain, w, want);
    for (int i = 0; i < other_count; i++) {
        vx_tensor found = rig_like(want);
        run(others[i], w, found);
        snprintf(what, sizeof what, "%s, %s, %d threads, %s [%d,%d]", name, vx_device_isa(others[i]),
                 vx_device_threads(others[i]), vx_dtype_name(w->act), (int)w->rows, (int)w->n);
        rig_same_bits(what, found, want);
        rig_free(&found);
    }
    rig_free(&want);
}

static void check_shape(vx_dtype act, int64_t rows, int64_t n)
{
    struct work w = { .act = act, .weight = rows % 2 ? VX_F16 : VX_F32, .rows = rows, .n = n };
    for (int i = 0; i < 4; i++) w.in[i] = spaced(&w.block[i], act, rows, n, (uint32_t)(i + rows * 7 + n), 4);
    w.in[4] = w.block[4] = rig_tensor(w.weight, n);
    rig_fill(w.in[4], 9, 1);
    w.in[5] = w.block[5] = rig_tensor(VX_I32, rows);
    for (int64_t r = 0; r < rows; r++) ((int32_t *)w.in[5].data)[r] = (int32_t)(r * 5 % rows);
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        check_everywhere(operations[i].name, operations[i].run, &w);
    for (int i = 0; i < INPUTS; i++) rig_free(&w.block[i]);
}

static void every_width_gives_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < WIDTHS; i++) {
        check_shape(VX_BF16, 3, widths[i]);
        check_shape(VX_F32, 2, widths[i]);
        check_shape(VX_F16, 2, widths[i]);
    }
}

// One bf16 in 65,536 tells two f32 apart that differ in the last place: it takes many rows to see the order of a sum.
static void sums_of_bf16_have_one_order(void **state)
{
    (void)state;
    check_shape(VX_BF16, 700, 1024 + 264);
    check_shape(VX_F16, 300, 1024 + 264);
}

static void every_height_gives_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < HEIGHTS; i++) {
        check_shape(VX_BF16, heights[i], 40);
        check_shape(VX_F32, heights[i], 24);
    }
}

// The official layout: q, k and v interleaved by head in one product.
static void heads_in_views(vx_device *dev, vx_tensor qkv, vx_tensor cos, vx_tensor sin, vx_tensor w, vx_norm_rounding rounding,
                           bool once)
{
    vx_tensor q = { 0 }, k = { 0 };
    q = vx_tensor_slice(qkv, 2, 0, 1);
    q = vx_tensor_merge(q, 2);
    k = vx_tensor_slice(qkv, 2, 1, 2);
    k = vx_tensor_merge(k, 2);
    const vx_qk_norm_rope_params p = { .q_weight = w,
                                       .k_weight = w,
                                       .eps = 1e-6f,
                                       .rounding = rounding,
                                       .cos = cos,
                                       .sin = sin,
                                       .rope_once = once,
                                       .skip_norm = once };
    assert_ok(vx_qk_norm_rope(dev, q, k, &p));
}

static void heads_give_the_same_bits(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, heads, d, pairs;
        vx_dtype act;
        vx_norm_rounding rounding;
        bool once;
    } cases[] = {
        { 37, 3, 128, 48, VX_BF16, VX_NORM_ROUND_ONCE, false }, { 5, 2, 128, 64, VX_BF16, VX_NORM_ROUND_TWICE, false },
        { 70, 2, 128, 0, VX_BF16, VX_NORM_ROUND_ONCE, false },  { 3, 1, 72, 36, VX_BF16, VX_NORM_ROUND_ONCE, false },
        { 2, 5, 20, 7, VX_BF16, VX_NORM_ROUND_TWICE, false },   { 37, 3, 128, 48, VX_F32, VX_NORM_ROUND_ONCE, false },
        { 3, 2, 33, 5, VX_F32, VX_NORM_ROUND_TWICE, false },    { 1, 1, 8, 4, VX_F32, VX_NORM_ROUND_ONCE, false },
        { 9, 3, 72, 36, VX_BF16, VX_NORM_ROUND_ONCE, true },    { 9, 3, 72, 36, VX_F32, VX_NORM_ROUND_ONCE, true },
        { 19, 4, 64, 24, VX_F16, VX_NORM_ROUND_ONCE, false },   { 3, 2, 33, 5, VX_F16, VX_NORM_ROUND_TWICE, false },
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const int64_t rows = cases[c].rows, heads = cases[c].heads, d = cases[c].d, pairs = cases[c].pairs;
        vx_tensor qkv = rig_tensor(cases[c].act, rows, heads, 3, d), w = rig_tensor(VX_BF16, d), cos = { 0 }, sin = { 0 };
        rig_fill(qkv, 1, 3);
        rig_fill(w, 2, 2);
        if (pairs) {
            const vx_dtype turn = cases[c].once ? VX_F32 : cases[c].act;
            const int64_t lines = rows % 3 ? rows : rows / 3; // a table for three items, where that is whole
            cos = rig_tensor(turn, lines, pairs);
            sin = rig_tensor(turn, lines, pairs);
            rig_fill(cos, 3, 1);
            rig_fill(sin, 4, 1);
        }
        vx_tensor want = rig_copy(qkv);
        heads_in_views(plain, want, cos, sin, w, cases[c].rounding, cases[c].once);
        for (int i = 0; i < other_count; i++) {
            vx_tensor found = rig_copy(qkv);
            heads_in_views(others[i], found, cos, sin, w, cases[c].rounding, cases[c].once);
            rig_same_bits(vx_device_isa(others[i]), found, want);
            rig_free(&found);
        }
        rig_free(&want);
        rig_free(&qkv);
        rig_free(&w);
        rig_free(&cos);
        rig_free(&sin);
    }
}

// Angles on both sides of the border where vectors stop reducing them, and what is no number.
static void snakes_give_the_same_bits(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 1, 13, 1024, 9001 };
    for (int i = 0; i < 4; i++) {
        vx_tensor x = rig_tensor(VX_F32, 3, lengths[i] + 5), alpha = rig_tensor(VX_F32, 3);
        rig_fill(x, 11, 4);
        vx_f32_of(alpha)[0] = 0.7f, vx_f32_of(alpha)[1] = -1.3f, vx_f32_of(alpha)[2] = 600; // times 90: over the border
        const vx_tensor view = vx_tensor_slice(x, 1, 2, lengths[i] + 2);
        if (lengths[i] > 8000) vx_f32_of(x)[8000] = INFINITY, vx_f32_of(x)[8001] = NAN;
        vx_tensor want = rig_tensor(VX_F32, 3, lengths[i]);
        assert_ok(vx_snake(plain, want, view, alpha));
        for (int j = 0; j < other_count; j++) {
            vx_tensor found = rig_like(want);
            assert_ok(vx_copy(others[j], found, view));
            assert_ok(vx_snake(others[j], found, found, alpha));
            rig_same_bits(vx_device_isa(others[j]), found, want);
            rig_free(&found);
        }
        rig_free(&want);
        rig_free(&x);
        rig_free(&alpha);
    }
}

static void every_conversion_gives_the_same_bits(void **state)
{
    (void)state;
    static const vx_dtype types[] = { VX_F32, VX_BF16, VX_F16 };
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++) {
            vx_tensor x = rig_tensor(types[from], 65536 + 13), want = rig_make(types[to], 1, x.shape);
            if (types[from] == VX_F32) rig_fill(x, 5, 70000);
            else
                for (int i = 0; i < 65536; i++) ((uint16_t *)x.data)[i] = (uint16_t)i; // every number of the format
            assert_ok(vx_copy(plain, want, x));
            for (int i = 0; i < other_count; i++) {
                vx_tensor found = rig_like(want);
                assert_ok(vx_copy(others[i], found, x));
                rig_same_bits(vx_device_isa(others[i]), found, want);
                rig_free(&found);
            }
            rig_free(&x);
            rig_free(&want);
        }
}

// A norm of NaN is NaN on every level, and the row beside it is not touched by it.
static void a_row_of_nan_stays_alone(void **state)
{
    (void)state;
    vx_tensor x = rig_tensor(VX_BF16, 3, 300);
    rig_fill(x, 6, 2);
    for (int i = 0; i < 300; i++) ((uint16_t *)x.data)[300 + i] = 0x7fc0;
    for (int i = 0; i < other_count; i++) {
        vx_tensor out = rig_like(x);
        assert_ok(vx_rms_norm(others[i], out, x, (vx_tensor){ 0 }, 1e-5f, VX_NORM_ROUND_ONCE));
        for (int j = 0; j < 900; j++) {
            const float y = vx_bf16_to_f32(((uint16_t *)out.data)[j]);
            assert_true(j / 300 == 1 ? isnan(y) : isfinite(y));
        }
        rig_free(&out);
    }
    rig_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_bf16_have_one_order),
        cmocka_unit_test(every_width_gives_the_same_bits),
        cmocka_unit_test(every_height_gives_the_same_bits),
        cmocka_unit_test(heads_give_the_same_bits),
        cmocka_unit_test(every_conversion_gives_the_same_bits),
        cmocka_unit_test(a_row_of_nan_stays_alone),
        cmocka_unit_test(snakes_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
