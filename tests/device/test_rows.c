// Row operators by hand: the fused one is its parts, zeros and ones give what paper gives, edges stay edges.
#include "rig.h"

static vx_device *dev;
static const vx_tensor none;

static int open_all(void **state)
{
    (void)state;
    dev = rig_cpu(NULL, 2);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    vx_device_destroy(&dev);
    return 0;
}

static float number(vx_tensor t, int64_t i)
{
    return t.dtype == VX_F32 ? vx_f32_of(t)[i] : vx_bf16_to_f32(((uint16_t *)t.data)[i]);
}

static float rounded(vx_dtype act, float v)
{
    return act == VX_BF16 ? vx_round_bf16(v) : v;
}

// The fused operator beside its two, x from where the gate left it; and with the result in y's place.
static void check_gate_add_norm(vx_tensor x, vx_tensor w, vx_tensor shift, vx_tensor scale, vx_tensor row)
{
    const vx_gate_add_norm_params p = { .gate = scale, .w = w, .shift = shift, .scale = scale, .row = row, .eps = 1e-5f };
    vx_tensor y = rig_like(x), sum[2] = { rig_like(x), rig_like(x) }, out[2] = { rig_like(x), rig_like(x) };
    rig_fill(y, 4, 2);
    for (int i = 0; i < 2; i++) assert_ok(vx_copy(dev, sum[i], x));
    assert_ok(vx_gate_add(dev, sum[0], y, scale, row));
    assert_ok(vx_rms_norm_modulate(dev, out[0], sum[0], w, shift, scale, row, 1e-5f));
    assert_ok(vx_gate_add_norm(dev, out[1], sum[1], y, &p));
    assert_memory_equal(sum[0].data, sum[1].data, vx_tensor_bytes(x));
    assert_memory_equal(out[0].data, out[1].data, vx_tensor_bytes(x));
    assert_ok(vx_copy(dev, sum[1], x));
    assert_ok(vx_gate_add_norm(dev, y, sum[1], y, &p));
    assert_memory_equal(out[0].data, y.data, vx_tensor_bytes(x));
    for (int i = 0; i < 2; i++) rig_free(&sum[i]), rig_free(&out[i]);
    rig_free(&y);
}

// Without modulation, f32 rows beside f16 ones and files' formats, one gate for all or one for each.
static void gate_add_and_norm_are_the_parts_in_turn(void **state)
{
    (void)state;
    static const struct {
        vx_dtype x, y, out, gate, w;
    } cases[] = { { VX_F32, VX_F16, VX_F16, VX_F32, VX_F32 },
                  { VX_F32, VX_F32, VX_F32, VX_BF16, VX_BF16 },
                  { VX_F32, VX_F16, VX_F32, VX_F16, VX_F16 },
                  { VX_BF16, VX_BF16, VX_BF16, VX_BF16, VX_BF16 },
                  { VX_F16, VX_F16, VX_F16, VX_F16, VX_F32 } };
    for (size_t c = 0; c < 2 * sizeof cases / sizeof *cases; c++) {
        const vx_dtype t = cases[c / 2].x;
        enum { ROWS = 37, N = 264, TABLE = 3 };
        vx_tensor x[2], out[2], y = rig_tensor(cases[c / 2].y, ROWS, N), gate = rig_tensor(cases[c / 2].gate, TABLE, N),
                                w = rig_tensor(cases[c / 2].w, N), row = rig_tensor(VX_I32, ROWS);
        rig_fill(y, 2, 2), rig_fill(gate, 3, 1), rig_fill(w, 4, 1);
        for (int r = 0; r < ROWS; r++) ((int32_t *)row.data)[r] = r % TABLE;
        for (int i = 0; i < 2; i++) {
            x[i] = rig_tensor(t, ROWS, N);
            rig_fill(x[i], 1, 3);
            out[i] = rig_tensor(cases[c / 2].out, ROWS, N);
        }
        const vx_tensor map = c % 2 ? row : none;
        assert_ok(vx_gate_add(dev, x[0], y, gate, map));
        assert_ok(vx_rms_norm(dev, out[0], x[0], w, 1e-5f, VX_NORM_ROUND_ONCE));
        assert_ok(
            vx_gate_add_norm(dev, out[1], x[1], y, &(vx_gate_add_norm_params){ .gate = gate, .w = w, .row = map, .eps = 1e-5f }));
        assert_memory_equal(x[0].data, x[1].data, vx_tensor_bytes(x[0]));
        assert_memory_equal(out[0].data, out[1].data, vx_tensor_bytes(out[0]));
        for (int i = 0; i < 2; i++) rig_free(&x[i]), rig_free(&out[i]);
        rig_free(&y), rig_free(&gate), rig_free(&w), rig_free(&row);
    }
}

static void norm_and_modulation_are_the_parts_in_turn(void **state)
{
    (void)state;
    static const struct {
        vx_dtype act;
        int64_t rows, n;
    } cases[] = { { VX_BF16, 1, 8 }, { VX_BF16, 33, 1024 }, { VX_BF16, 100, 77 }, { VX_F32, 31, 192 }, { VX_BF16, 0, 8 } };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const vx_dtype act = cases[c].act;
        const int64_t rows = cases[c].rows, n = cases[c].n;
        // The table as the network has it: six vectors a row, of which these are two.
        vx_tensor x = rig_tensor(act, rows, n), w = rig_tensor(VX_BF16, n), table = rig_tensor(act, 7, 6, n);
        vx_tensor row = rig_tensor(VX_I32, rows), normed = rig_like(x), out = rig_like(x);
        rig_fill(x, 1, 3);
        rig_fill(w, 2, 2);
        rig_fill(table, 3, 1);
        for (int64_t r = 0; r < rows; r++) ((int32_t *)row.data)[r] = (int32_t)(r * 3 % 7);
        const vx_tensor shift = vx_tensor_merge(vx_tensor_slice(table, 1, 3, 4), 1);
        const vx_tensor scale = vx_tensor_merge(vx_tensor_slice(table, 1, 4, 5), 1);
        assert_ok(vx_rms_norm(dev, normed, x, w, 1e-5f, VX_NORM_ROUND_ONCE));
        assert_ok(vx_rms_norm_modulate(dev, out, x, w, shift, scale, row, 1e-5f));
        check_gate_add_norm(x, w, shift, scale, row);
        for (int64_t i = 0; i < rows * n; i++) {
            const int64_t at = i / n * 3 % 7 * 6 * n + i % n;
            const float one_plus = rounded(act, 1.0f + number(table, at + 4 * n));
            const float product = rounded(act, number(normed, i) * one_plus);
            const float want = rounded(act, product + number(table, at + 3 * n));
            assert_int_equal(vx_f32_bits(number(out, i)), vx_f32_bits(want));
        }
        rig_free(&x);
        rig_free(&w);
        rig_free(&table);
        rig_free(&row);
        rig_free(&normed);
        rig_free(&out);
    }
}

// 3 and 4 have the mean square 12.5; with eps 3.5 the root is 4 and the results are exact.
static void rms_norm_by_hand(void **state)
{
    (void)state;
    float x[] = { 3, 4 }, w[] = { 2, -1 }, out[2];
    assert_ok(vx_rms_norm(dev, vx_tensor_of(out, VX_F32, 1, 2), vx_tensor_of(x, VX_F32, 1, 2), vx_tensor_of(w, VX_F32, 2), 3.5f,
                          VX_NORM_ROUND_ONCE));
    assert_true(out[0] == 1.5f && out[1] == -1.0f);
}

// Twice rounding shows where x/rms needs more than 8 bits: 1.00390625 rounds to 1 before the weight of 3.
static void rounding_twice_rounds_before_the_weight(void **state)
{
    (void)state;
    float f[] = { 1.0f, 1.0f };
    uint16_t x[2], out[2], w[2] = { vx_f32_to_bf16(3.0f), vx_f32_to_bf16(3.0f) };
    for (int i = 0; i < 2; i++) x[i] = vx_f32_to_bf16(f[i]);
    const float eps = 1.0f / (1.00390625f * 1.00390625f) - 1.0f; // inv = 1.00390625, a tie in bf16 that goes to 1
    const vx_tensor ox = vx_tensor_of(out, VX_BF16, 1, 2), ix = vx_tensor_of(x, VX_BF16, 1, 2), iw = vx_tensor_of(w, VX_BF16, 2);
    assert_ok(vx_rms_norm(dev, ox, ix, iw, eps, VX_NORM_ROUND_TWICE));
    assert_true(vx_bf16_to_f32(out[0]) == 3.0f);
    assert_ok(vx_rms_norm(dev, ox, ix, iw, eps, VX_NORM_ROUND_ONCE));
    assert_true(vx_bf16_to_f32(out[0]) == 3.015625f); // 3.01171875 lies between 3 and 3.015625, nearer to the latter
}

// Mean 2, variance 4 of (0, 4): the results are -1 and 1 exactly with eps 0.
static void layer_norm_by_hand(void **state)
{
    (void)state;
    float x[] = { 0, 4 }, w[] = { 2, 3 }, b[] = { 0.5f, -1 }, out[2];
    assert_ok(vx_layer_norm(dev, vx_tensor_of(out, VX_F32, 1, 2), vx_tensor_of(x, VX_F32, 1, 2), vx_tensor_of(w, VX_F32, 2),
                            vx_tensor_of(b, VX_F32, 2), 0));
    assert_true(out[0] == -1.5f && out[1] == 2.0f);
}

static void a_row_of_zeros_stays_zero(void **state)
{
    (void)state;
    vx_tensor x = rig_tensor(VX_BF16, 2, 100), out = rig_like(x);
    memset(out.data, 0x7f, vx_tensor_bytes(out));
    assert_ok(vx_rms_norm(dev, out, x, none, 1e-5f, VX_NORM_ROUND_ONCE));
    rig_same_bits("rms", out, x);
    assert_ok(vx_layer_norm(dev, out, x, none, none, 1e-5f));
    rig_same_bits("layer", out, x);
    rig_free(&x);
    rig_free(&out);
}

// The canonical order: elements 8v to 8v+7 meet in accumulator v mod 32. 2^24 swallows a 1 that is added to it alone, so
// the sum tells who met whom: squares of 2^12 in vector 0 and of 1 in vector 32 share an accumulator, vector 1 does not.
static void sums_of_squares_go_to_32_accumulators(void **state)
{
    (void)state;
    enum { N = 33 * 8 };
    static const struct {
        int where;
        float sum;
    } cases[] = { { 32 * 8, 0x1p24f }, { 1 * 8, 0x1p24f + 2 } };
    for (int c = 0; c < 2; c++) {
        float x[N] = { 0 }, out[N];
        x[0] = 0x1p12f;
        x[cases[c].where] = 1;
        x[cases[c].where + 1] = 1; // two: 2^24 + 2 is an f32
        assert_ok(vx_rms_norm(dev, vx_tensor_of(out, VX_F32, 1, N), vx_tensor_of(x, VX_F32, 1, N), none, 0, VX_NORM_ROUND_ONCE));
        const float inv = 1.0f / sqrtf(cases[c].sum / N);
        assert_int_equal(vx_f32_bits(out[0]), vx_f32_bits(0x1p12f * inv));
        assert_true(out[cases[c].where] == inv);
    }
}

static void silu_at_its_edges(void **state)
{
    (void)state;
    static const struct {
        float x, y;
    } cases[] = { { 0.0f, 0.0f }, { -0.0f, -0.0f }, { 200.0f, 200.0f }, { -200.0f, -0.0f }, { INFINITY, INFINITY } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float x = cases[i].x, y = 1;
        assert_ok(vx_silu(dev, vx_tensor_of(&y, VX_F32, 1, 1), vx_tensor_of(&x, VX_F32, 1, 1)));
        assert_int_equal(vx_f32_bits(y), vx_f32_bits(cases[i].y));
    }
}

// A quarter turn swaps the halves of the rotated channels; what lies behind them stays.
static void a_quarter_turn_swaps_the_halves(void **state)
{
    (void)state;
    float x[] = { 1, 2, 3, 4, 5, 6 }, cos[] = { 0, 0 }, sin[] = { 1, 1 };
    static const float want[] = { -3, -4, 1, 2, 5, 6 };
    const vx_qk_norm_rope_params p = { .skip_norm = true,
                                       .cos = vx_tensor_of(cos, VX_F32, 1, 2),
                                       .sin = vx_tensor_of(sin, VX_F32, 1, 2) };
    assert_ok(vx_qk_norm_rope(dev, vx_tensor_of(x, VX_F32, 1, 1, 6), none, &p));
    for (int i = 0; i < 6; i++) assert_true(x[i] == want[i]);
}

// Items below each other turn by one table: as many calls with it.
static void a_table_serves_items_in_turn(void **state)
{
    (void)state;
    enum { ITEMS = 3, ROWS = 5, HEADS = 2 };
    static const vx_dtype types[] = { VX_F32, VX_BF16, VX_F16 };
    for (int n = 0; n < 6; n++) {
        const vx_dtype t = types[n % 3];
        const bool once = n / 3;
        const int64_t width = 64, pairs = 24;
        vx_tensor q[2], turn = rig_tensor(once ? VX_F32 : t, 2, ROWS, pairs);
        rig_fill(turn, 5, 1);
        for (int i = 0; i < 2; i++) {
            q[i] = rig_tensor(t, ITEMS * ROWS, HEADS, width);
            rig_fill(q[i], 6, 2);
        }
        const vx_qk_norm_rope_params p = {
            .eps = 1e-6f, .skip_norm = once, .rope_once = once, .cos = vx_tensor_row(turn, 0), .sin = vx_tensor_row(turn, 1)
        };
        assert_ok(vx_qk_norm_rope(dev, q[0], none, &p));
        for (int i = 0; i < ITEMS; i++)
            assert_ok(vx_qk_norm_rope(dev, vx_tensor_slice(q[1], 0, i * ROWS, (i + 1) * ROWS), none, &p));
        assert_memory_equal(q[0].data, q[1].data, vx_tensor_bytes(q[0]));
        rig_free(&turn), rig_free(&q[0]), rig_free(&q[1]);
    }
}

static void no_rows_are_no_work(void **state)
{
    (void)state;
    vx_tensor x = rig_tensor(VX_BF16, 0, 8), u = rig_tensor(VX_BF16, 0, 16), table = rig_tensor(VX_BF16, 1, 8);
    vx_tensor row = rig_tensor(VX_I32, 0), q = rig_tensor(VX_BF16, 0, 2, 8);
    assert_ok(vx_rms_norm(dev, x, x, none, 1, VX_NORM_ROUND_ONCE));
    assert_ok(vx_rms_norm_modulate(dev, x, x, none, table, table, row, 1));
    assert_ok(vx_layer_norm(dev, x, x, none, none, 1));
    assert_ok(vx_add(dev, x, x));
    assert_ok(vx_gate_add(dev, x, x, table, row));
    assert_ok(vx_swiglu(dev, x, u, true));
    assert_ok(vx_silu(dev, x, x));
    assert_ok(vx_copy(dev, x, x));
    assert_ok(vx_embed(dev, x, table, NULL, row));
    assert_ok(vx_qk_norm_rope(dev, q, q, &(vx_qk_norm_rope_params){ .eps = 1 }));
    rig_free(&x);
    rig_free(&u);
    rig_free(&table);
    rig_free(&row);
    rig_free(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gate_add_and_norm_are_the_parts_in_turn),
        cmocka_unit_test(norm_and_modulation_are_the_parts_in_turn),
        cmocka_unit_test(rms_norm_by_hand),
        cmocka_unit_test(rounding_twice_rounds_before_the_weight),
        cmocka_unit_test(layer_norm_by_hand),
        cmocka_unit_test(a_row_of_zeros_stays_zero),
        cmocka_unit_test(sums_of_squares_go_to_32_accumulators),
        cmocka_unit_test(silu_at_its_edges),
        cmocka_unit_test(a_quarter_turn_swaps_the_halves),
        cmocka_unit_test(a_table_serves_items_in_turn),
        cmocka_unit_test(no_rows_are_no_work),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
