// What the fronts refuse, by name, and what they let through: one row of the table per rule.
#include "rig.h"

static vx_device *dev;
static vx_device *plan;

static int open_all(void **state)
{
    (void)state;
    dev = rig_cpu(NULL, 1);
    assert_ok(vx_device_plan_create(&plan, dev));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    vx_device_destroy(&plan);
    vx_device_destroy(&dev);
    return 0;
}

// Shapes only: refusals come before any work, so no data is needed, and what passes goes to the plan device.
#define T(t, ...)     vx_tensor_of(NULL, VX_##t, __VA_ARGS__)
#define NONE          ((vx_tensor){ 0 })
#define WIDE(t, r, n) vx_tensor_slice(T(t, r, (n) + 8), 1, 0, n)

static vx_tensor columns(vx_tensor t)
{
    return vx_tensor_permute(t, (const int[]){ 1, 0 });
}

static void expect(const char *says, vx_status found, vx_code want, const char *argument)
{
    char name[64];
    if (found.code != want) fail_msg("%s: VX-%d %s, wanted VX-%d", says, (int)found.code, found.message, (int)want);
    if (!argument) return;
    snprintf(name, sizeof name, ": %s", argument);
    if (!strstr(found.message, name)) fail_msg("%s: '%s' does not name %s", says, found.message, argument);
}

static void adds(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        int64_t rows, n, y_rows, y_n;
        vx_dtype x, y;
        vx_code want;
        const char *argument;
    } cases[] = {
        { "takes bf16", 3, 8, 3, 8, VX_BF16, VX_BF16, VX_OK, NULL },
        { "takes f32", 3, 13, 3, 13, VX_F32, VX_F32, VX_OK, NULL },
        { "does nothing for no rows", 0, 8, 0, 8, VX_F32, VX_F32, VX_OK, NULL },
        { "refuses other rows", 3, 8, 2, 8, VX_F32, VX_F32, VX_ERR_SHAPE, "y is [2,8]" },
        { "refuses another width", 3, 8, 3, 9, VX_F32, VX_F32, VX_ERR_SHAPE, "y is [3,9]" },
        { "refuses a mixture", 3, 8, 3, 8, VX_F32, VX_BF16, VX_ERR_DTYPE, "y is BF16" },
        { "takes f16", 3, 8, 3, 8, VX_F16, VX_F16, VX_OK, NULL },
        { "refuses integers", 3, 8, 3, 8, VX_I32, VX_I32, VX_ERR_DTYPE, "x is I32" },
        { "refuses integers", 3, 8, 3, 8, VX_I32, VX_I32, VX_ERR_DTYPE, "x is I32" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const vx_tensor x = vx_tensor_of(NULL, cases[i].x, cases[i].rows, cases[i].n);
        const vx_tensor y = vx_tensor_of(NULL, cases[i].y, cases[i].y_rows, cases[i].y_n);
        expect(cases[i].says, vx_add(plan, x, y), cases[i].want, cases[i].argument);
    }
    expect("rank 1", vx_add(plan, T(F32, 8), T(F32, 8)), VX_ERR_SHAPE, "x");
    expect("no unit stride", vx_add(plan, columns(T(F32, 4, 4)), T(F32, 4, 4)), VX_ERR_SHAPE, "x");
    expect("row strides are free", vx_add(plan, WIDE(F32, 4, 4), T(F32, 4, 4)), VX_OK, NULL);
}

static void gate_adds(void **state)
{
    (void)state;
    const vx_tensor x = T(BF16, 3, 8), y = x, gate = T(BF16, 2, 8), row = T(I32, 3);
    expect("takes a row map", vx_gate_add(plan, x, y, gate, row), VX_OK, NULL);
    expect("takes none", vx_gate_add(plan, x, y, gate, NONE), VX_OK, NULL);
    expect("y", vx_gate_add(plan, x, T(BF16, 3, 9), gate, row), VX_ERR_SHAPE, "y");
    expect("gate", vx_gate_add(plan, x, y, T(BF16, 2, 7), row), VX_ERR_SHAPE, "gate");
    expect("gate of no rows", vx_gate_add(plan, x, y, T(BF16, 0, 8), row), VX_ERR_SHAPE, "gate");
    expect("row", vx_gate_add(plan, x, y, gate, T(I32, 4)), VX_ERR_SHAPE, "row");
    expect("row's format", vx_gate_add(plan, x, y, gate, T(F32, 3)), VX_ERR_DTYPE, "row");
    expect("f32 gate beside bf16", vx_gate_add(plan, x, y, T(F32, 2, 8), row), VX_ERR_DTYPE, "gate");
    expect("a file's gate beside f32", vx_gate_add(plan, T(F32, 3, 8), T(F32, 3, 8), T(F16, 1, 8), NONE), VX_OK, NULL);
}

static void gates_with_norms(void **state)
{
    (void)state;
    const vx_tensor x = T(BF16, 3, 8), table = T(BF16, 2, 8), row = T(I32, 3), w = T(F32, 8);
    const vx_gate_add_norm_params good = { table, w, table, table, row, 1 };
    vx_gate_add_norm_params p = good;
#define WITH(field, value) (p = good, p.field = (value), vx_gate_add_norm(plan, x, x, x, &p))
    expect("takes", vx_gate_add_norm(plan, x, x, x, &good), VX_OK, NULL);
    expect("no weight", WITH(w, NONE), VX_OK, NULL);
    expect("out", vx_gate_add_norm(plan, T(BF16, 3, 9), x, x, &good), VX_ERR_SHAPE, "out");
    expect("out's format", vx_gate_add_norm(plan, T(F16, 3, 8), x, x, &good), VX_ERR_DTYPE, "out");
    expect("y", vx_gate_add_norm(plan, x, x, T(BF16, 2, 8), &good), VX_ERR_SHAPE, "y");
    expect("y's format", vx_gate_add_norm(plan, x, x, T(F16, 3, 8), &good), VX_ERR_DTYPE, "y");
    expect("gate", WITH(gate, T(BF16, 2, 7)), VX_ERR_SHAPE, "gate");
    expect("gate's format", WITH(gate, T(F32, 2, 8)), VX_ERR_DTYPE, "gate");
    expect("w", WITH(w, T(F32, 7)), VX_ERR_SHAPE, "w");
    expect("shift", WITH(shift, T(BF16, 3, 8)), VX_ERR_SHAPE, "shift");
    expect("scale's format", WITH(scale, T(F32, 2, 8)), VX_ERR_DTYPE, "scale");
    expect("no row map", WITH(row, NONE), VX_ERR_SHAPE, "row");
    expect("shift alone", WITH(scale, NONE), VX_ERR_SHAPE, "scale");
    expect("scale alone", WITH(shift, NONE), VX_ERR_SHAPE, "shift");
    vx_gate_add_norm_params plain = { .gate = T(F16, 1, 8), .w = w, .eps = 1 };
    expect("plain, half", vx_gate_add_norm(plan, T(F16, 3, 8), T(F32, 3, 8), T(F16, 3, 8), &plain), VX_OK, NULL);
    expect("plain, y's format", vx_gate_add_norm(plan, T(F16, 3, 8), T(F32, 3, 8), T(BF16, 3, 8), &plain), VX_ERR_DTYPE, "y");
    expect("plain, out's format", vx_gate_add_norm(plan, T(BF16, 3, 8), T(F32, 3, 8), T(F16, 3, 8), &plain), VX_ERR_DTYPE, "out");
    expect("plain, gate's format", vx_gate_add_norm(plan, x, x, x, &plain), VX_ERR_DTYPE, "gate");
    plain.row = T(I32, 2);
    expect("plain, row", vx_gate_add_norm(plan, T(F16, 3, 8), T(F32, 3, 8), T(F16, 3, 8), &plain), VX_ERR_SHAPE, "row");
    expect("row's format", WITH(row, T(F32, 3)), VX_ERR_DTYPE, "row");
    uint16_t numbers[8] = { 0 };
    const vx_tensor same = vx_tensor_of(numbers, VX_BF16, 1, 8);
    expect("out is x", vx_gate_add_norm(plan, same, same, same, &(vx_gate_add_norm_params){ same, w, same, same, T(I32, 1), 1 }),
           VX_ERR_SHAPE, "out");
#undef WITH
}

static void norms(void **state)
{
    (void)state;
    const vx_tensor x = T(BF16, 3, 8), w = T(F32, 8), table = T(BF16, 2, 8), row = T(I32, 3);
    expect("rms", vx_rms_norm(plan, x, x, w, 1e-5f, VX_NORM_ROUND_ONCE), VX_OK, NULL);
    expect("rms, ones", vx_rms_norm(plan, x, x, NONE, 1e-5f, VX_NORM_ROUND_ONCE), VX_OK, NULL);
    expect("rms, w", vx_rms_norm(plan, x, x, T(F32, 7), 1e-5f, VX_NORM_ROUND_ONCE), VX_ERR_SHAPE, "w");
    expect("rms, w's format", vx_rms_norm(plan, x, x, T(I32, 8), 1e-5f, VX_NORM_ROUND_ONCE), VX_ERR_DTYPE, "w");
    expect("rms, out", vx_rms_norm(plan, T(BF16, 2, 8), x, w, 1e-5f, VX_NORM_ROUND_ONCE), VX_ERR_SHAPE, "out");
    expect("rms, out's format", vx_rms_norm(plan, T(F32, 3, 8), x, w, 1e-5f, VX_NORM_ROUND_ONCE), VX_ERR_DTYPE, "out");
    expect("rms, no columns", vx_rms_norm(plan, T(BF16, 3, 0), T(BF16, 3, 0), NONE, 0, VX_NORM_ROUND_ONCE), VX_ERR_SHAPE, "x");
    expect("modulate", vx_rms_norm_modulate(plan, x, x, w, table, table, row, 1e-5f), VX_OK, NULL);
    expect("modulate, shift", vx_rms_norm_modulate(plan, x, x, w, T(BF16, 2, 9), table, row, 1e-5f), VX_ERR_SHAPE, "shift");
    expect("modulate, scale", vx_rms_norm_modulate(plan, x, x, w, table, T(BF16, 3, 8), row, 1e-5f), VX_ERR_SHAPE, "scale");
    expect("modulate, row", vx_rms_norm_modulate(plan, x, x, w, table, table, NONE, 1e-5f), VX_ERR_SHAPE, "row is missing");
    expect("modulate, scale's format", vx_rms_norm_modulate(plan, x, x, w, table, T(F32, 2, 8), row, 1e-5f), VX_ERR_DTYPE,
           "scale");
    expect("layer", vx_layer_norm(plan, x, x, w, w, 1e-5f), VX_OK, NULL);
    expect("layer, b", vx_layer_norm(plan, x, x, w, T(F32, 9), 1e-5f), VX_ERR_SHAPE, "b");
}

static void elementwise(void **state)
{
    (void)state;
    expect("swiglu", vx_swiglu(plan, T(BF16, 3, 4), T(BF16, 3, 8), true), VX_OK, NULL);
    expect("swiglu, out", vx_swiglu(plan, T(BF16, 3, 8), T(BF16, 3, 8), true), VX_ERR_SHAPE, "out");
    expect("swiglu, format", vx_swiglu(plan, T(F32, 3, 4), T(BF16, 3, 8), true), VX_ERR_DTYPE, "out");
    expect("silu between formats", vx_silu(plan, T(BF16, 3, 4), T(F32, 3, 4)), VX_OK, NULL);
    expect("silu, out", vx_silu(plan, T(BF16, 3, 5), T(F32, 3, 4)), VX_ERR_SHAPE, "out");
    expect("gelu", vx_gelu(plan, T(BF16, 3, 4), T(BF16, 3, 4), true), VX_OK, NULL);
    expect("gelu between formats", vx_gelu(plan, T(BF16, 3, 4), T(F32, 3, 4), true), VX_ERR_DTYPE, "out");
    expect("gelu, out", vx_gelu(plan, T(F32, 3, 5), T(F32, 3, 4), false), VX_ERR_SHAPE, "out");
    const vx_tensor ids = T(I32, 3, 4), weights = T(F32, 3, 4), table = T(F16, 9, 8);
    expect("embed_blend", vx_embed_blend(plan, T(BF16, 3, 8), table, ids, weights), VX_OK, NULL);
    expect("embed_blend of three", vx_embed_blend(plan, T(BF16, 3, 8), table, T(I32, 3, 3), weights), VX_ERR_SHAPE, "ids");
    expect("embed_blend, weights", vx_embed_blend(plan, T(BF16, 3, 8), table, ids, T(F32, 2, 4)), VX_ERR_SHAPE, "weights");
    expect("embed_blend, out", vx_embed_blend(plan, T(BF16, 3, 9), table, ids, weights), VX_ERR_SHAPE, "out");
    expect("embed_blend, bf16", vx_embed_blend(plan, T(BF16, 3, 8), table, ids, T(BF16, 3, 4)), VX_ERR_DTYPE, "weights");
    expect("copy of any rank", vx_copy(plan, T(BF16, 2, 2, 2, 2, 2, 2, 2, 2), T(F32, 2, 2, 2, 2, 2, 2, 2, 2)), VX_OK, NULL);
    expect("copy of integers", vx_copy(plan, T(I32, 4), T(I32, 4)), VX_OK, NULL);
    expect("copy between integers", vx_copy(plan, T(I32, 4), T(U8, 4)), VX_ERR_DTYPE, "out");
    expect("copy of an unknown format", vx_copy(plan, T(F64, 4), T(F64, 4)), VX_ERR_DTYPE, "x");
    expect("copy of nothing", vx_copy(plan, NONE, NONE), VX_ERR_SHAPE, "x is missing");
    const vx_term terms[] = { { 1, T(F32, 4) }, { 1, T(F32, 4) }, { 1, T(F32, 5) } };
    expect("blend", vx_blend(plan, T(F32, 4), terms, 2), VX_OK, NULL);
    expect("blend, a term", vx_blend(plan, T(F32, 4), terms, 3), VX_ERR_SHAPE, "x is [5]");
    expect("blend of none", vx_blend(plan, T(F32, 4), terms, 0), VX_ERR_SHAPE, NULL);
    expect("blend of four", vx_blend(plan, T(F32, 4), terms, 4), VX_ERR_SHAPE, NULL);
    expect("blend of bf16", vx_blend(plan, T(BF16, 4), terms, 1), VX_ERR_DTYPE, "out");
    expect("affine", vx_affine(plan, T(F32, 3, 4), T(F32, 3, 4), T(F32, 3), T(F32, 3), 0), VX_OK, NULL);
    expect("affine, axis", vx_affine(plan, T(F32, 3, 4), T(F32, 3, 4), T(F32, 3), T(F32, 3), 2), VX_ERR_SHAPE, NULL);
    expect("affine, scale", vx_affine(plan, T(F32, 3, 4), T(F32, 3, 4), T(F32, 4), T(F32, 3), 0), VX_ERR_SHAPE, "scale");
    expect("embed", vx_embed(plan, T(BF16, 3, 4), T(F16, 9, 4), NULL, T(I32, 3)), VX_OK, NULL);
    expect("embed, ids", vx_embed(plan, T(BF16, 3, 4), T(F16, 9, 4), NULL, T(I64, 3)), VX_ERR_DTYPE, "ids");
    expect("embed, out", vx_embed(plan, T(BF16, 3, 5), T(F16, 9, 4), NULL, T(I32, 3)), VX_ERR_SHAPE, "out");
    expect("mark", vx_mark_not_finite(plan, T(I32, 2), 1, T(BF16, 4)), VX_OK, NULL);
    expect("mark, index", vx_mark_not_finite(plan, T(I32, 2), 2, T(BF16, 4)), VX_ERR_SHAPE, NULL);
}

static vx_weight weight_of(vx_dtype t, int64_t n, int64_t k)
{
    return (vx_weight){ .n = n, .k = k, .segments = 1, .segment = { { .weight = vx_tensor_of(NULL, t, n, k) } } };
}

static void linears(void **state)
{
    (void)state;
    vx_weight w = weight_of(VX_BF16, 6, 8);
    expect("bf16", vx_linear(plan, T(BF16, 3, 6), T(BF16, 3, 8), &w), VX_OK, NULL);
    expect("bf16 in, f32 out", vx_linear(plan, T(F32, 3, 6), T(BF16, 3, 8), &w), VX_OK, NULL);
    expect("f32 beside a bf16 weight", vx_linear(plan, T(F32, 3, 6), T(F32, 3, 8), &w), VX_OK, NULL);
    expect("no rows", vx_linear(plan, T(F32, 0, 6), T(F32, 0, 8), &w), VX_OK, NULL);
    expect("x", vx_linear(plan, T(BF16, 3, 6), T(BF16, 3, 9), &w), VX_ERR_SHAPE, "x");
    expect("out", vx_linear(plan, T(BF16, 3, 7), T(BF16, 3, 8), &w), VX_ERR_SHAPE, "out");
    expect("f16 in, bf16 out", vx_linear(plan, T(BF16, 3, 6), T(F16, 3, 8), &w), VX_ERR_DTYPE, "out");
    expect("f16 in", vx_linear(plan, T(F16, 3, 6), T(F16, 3, 8), &w), VX_OK, NULL);
    expect("f16 out", vx_linear(plan, T(F16, 3, 6), T(F32, 3, 8), &w), VX_ERR_DTYPE, "out");
    w.segment[0].bias = T(F32, 5);
    expect("bias", vx_linear(plan, T(BF16, 3, 6), T(BF16, 3, 8), &w), VX_ERR_SHAPE, "bias of segment 0");
    w = weight_of(VX_F32, 6, 8);
    expect("f32 weight beside bf16", vx_linear(plan, T(BF16, 3, 6), T(BF16, 3, 8), &w), VX_OK, NULL);
    w = weight_of(VX_U8, 6, 8);
    expect("weight of bytes", vx_linear(plan, T(F32, 3, 6), T(F32, 3, 8), &w), VX_ERR_DTYPE, "weight of segment 0 is U8");
    w = weight_of(VX_F32, 6, 8);
    w.segments = 2;
    w.segment[0].weight = T(F32, 2, 8);
    w.segment[1] = (vx_weight_segment){ .weight = T(F16, 4, 8), .column = 2 };
    expect("two segments", vx_linear(plan, T(F32, 3, 6), T(F32, 3, 8), &w), VX_OK, NULL);
    w.segment[1].column = 1;
    expect("overlap", vx_linear(plan, T(F32, 3, 6), T(F32, 3, 8), &w), VX_ERR_SHAPE, "segments 0 and 1 write");
    w.segment[1].column = 3;
    expect("past the end", vx_linear(plan, T(F32, 3, 6), T(F32, 3, 8), &w), VX_ERR_SHAPE, "segment 1 writes columns 3 to 7");
    w.segments = 1;
    expect("a gap", vx_linear(plan, T(F32, 3, 6), T(F32, 3, 8), &w), VX_ERR_SHAPE, "segments have 2 rows");
    w.segments = 5;
    expect("too many", vx_linear(plan, T(F32, 3, 6), T(F32, 3, 8), &w), VX_ERR_SHAPE, "a weight of 5 segments");
}

static void attentions(void **state)
{
    (void)state;
    const vx_tensor q = T(BF16, 5, 4, 16), kv = T(BF16, 7, 2, 16);
    const vx_attention_params causal = { .causal = true };
    expect("grouped", vx_attention(plan, q, q, kv, kv, NULL), VX_OK, NULL);
    expect("causal", vx_attention(plan, q, q, q, q, &causal), VX_OK, NULL);
    expect("causal needs equals", vx_attention(plan, q, q, kv, kv, &causal), VX_ERR_SHAPE, "k");
    expect("heads", vx_attention(plan, q, q, T(BF16, 7, 3, 16), T(BF16, 7, 3, 16), NULL), VX_ERR_SHAPE, "k");
    expect("no keys", vx_attention(plan, q, q, T(BF16, 0, 4, 16), T(BF16, 0, 4, 16), NULL), VX_ERR_SHAPE, "k");
    expect("v", vx_attention(plan, q, q, kv, T(BF16, 8, 2, 16), NULL), VX_ERR_SHAPE, "v");
    expect("width", vx_attention(plan, T(F32, 5, 4, 12), T(F32, 5, 4, 12), T(F32, 5, 4, 12), T(F32, 5, 4, 12), NULL),
           VX_ERR_SHAPE, "q");
    expect("out", vx_attention(plan, T(F32, 5, 4, 16), q, kv, kv, NULL), VX_ERR_DTYPE, "out");
    const vx_tensor items = T(BF16, 3, 5, 4, 16), sets = T(BF16, 3, 7, 2, 16);
    expect("items", vx_attention(plan, items, items, sets, sets, NULL), VX_OK, NULL);
    expect("causal items", vx_attention(plan, items, items, items, items, &causal), VX_OK, NULL);
    expect("no items",
           vx_attention(plan, T(BF16, 0, 5, 4, 16), T(BF16, 0, 5, 4, 16), T(BF16, 0, 7, 2, 16), T(BF16, 0, 7, 2, 16), NULL),
           VX_OK, NULL);
    expect("keys of other items", vx_attention(plan, items, items, T(BF16, 2, 7, 2, 16), T(BF16, 2, 7, 2, 16), NULL),
           VX_ERR_SHAPE, "k");
    expect("keys of no items", vx_attention(plan, items, items, kv, kv, NULL), VX_ERR_SHAPE, "k");
    expect("causal items need equals", vx_attention(plan, items, items, sets, sets, &causal), VX_ERR_SHAPE, "k");
    expect("values of no items", vx_attention(plan, items, items, sets, kv, NULL), VX_ERR_SHAPE, "v");
    expect("one output", vx_attention(plan, q, items, sets, sets, NULL), VX_ERR_SHAPE, "out");
    expect("width of items",
           vx_attention(plan, T(F32, 2, 5, 4, 12), T(F32, 2, 5, 4, 12), T(F32, 2, 5, 4, 12), T(F32, 2, 5, 4, 12), NULL),
           VX_ERR_SHAPE, "q");
    expect("two axes", vx_attention(plan, T(BF16, 4, 16), T(BF16, 4, 16), kv, kv, NULL), VX_ERR_SHAPE, "q");
    vx_qk_norm_rope_params p = { .q_weight = T(F32, 16), .cos = T(BF16, 5, 6), .sin = T(BF16, 5, 6) };
    expect("norm and rotation", vx_qk_norm_rope(plan, q, T(BF16, 5, 2, 16), &p), VX_OK, NULL);
    expect("queries alone", vx_qk_norm_rope(plan, q, NONE, &p), VX_OK, NULL);
    expect("rows of k", vx_qk_norm_rope(plan, q, kv, &p), VX_ERR_SHAPE, "k");
    expect("a table twice", vx_qk_norm_rope(plan, T(BF16, 10, 2, 16), NONE, &p), VX_OK, NULL);
    expect("a table and a half", vx_qk_norm_rope(plan, T(BF16, 7, 2, 16), NONE, &p), VX_ERR_SHAPE, "cos");
    p.sin = NONE;
    expect("cos without sin", vx_qk_norm_rope(plan, q, NONE, &p), VX_ERR_SHAPE, "sin is missing");
    p.sin = p.cos = T(BF16, 5, 9);
    expect("too many pairs", vx_qk_norm_rope(plan, q, NONE, &p), VX_ERR_SHAPE, "cos");
    p.sin = p.cos = T(F32, 5, 6);
    expect("format of the table", vx_qk_norm_rope(plan, q, NONE, &p), VX_ERR_DTYPE, "cos");
    p.rope_once = true;
    expect("f32 table of a rotation rounded once", vx_qk_norm_rope(plan, q, NONE, &p), VX_OK, NULL);
}

static void sounds_and_pictures(void **state)
{
    (void)state;
    const vx_tensor x = T(F32, 3, 20), w = T(F32, 5, 3, 7);
    // (20 + 2*3 - 2*6 - 1)/2 + 1 = 7
    const vx_conv1d_params p = { .stride = 2, .padding = 3, .dilation = 2, .bias = T(F32, 5), .residual = T(F32, 5, 7) };
    expect("conv", vx_conv1d(plan, T(F32, 5, 7), x, w, &p), VX_OK, NULL);
    expect("conv, defaults", vx_conv1d(plan, T(F32, 5, 14), x, w, NULL), VX_OK, NULL);
    expect("conv, length", vx_conv1d(plan, T(F32, 5, 8), x, w, &p), VX_ERR_SHAPE, "out");
    expect("conv, channels", vx_conv1d(plan, T(F32, 5, 14), x, T(F32, 5, 4, 7), NULL), VX_ERR_SHAPE, "w");
    const vx_conv1d_params two = { .stride = 2, .padding = 3, .dilation = 2, .residual = T(F32, 5, 2, 7) };
    expect("conv, lines", vx_conv1d(plan, T(F32, 5, 2, 7), T(F32, 3, 2, 20), w, &two), VX_OK, NULL);
    expect("conv, lines to one", vx_conv1d(plan, T(F32, 5, 14), T(F32, 3, 2, 20), w, NULL), VX_ERR_SHAPE, "out");
    expect("conv, lines to others", vx_conv1d(plan, T(F32, 5, 3, 14), T(F32, 3, 2, 20), w, NULL), VX_ERR_SHAPE, "out");
    expect("conv, residual of one", vx_conv1d(plan, T(F32, 5, 2, 7), T(F32, 3, 2, 20), w, &p), VX_ERR_SHAPE, "residual");
    expect("conv, four axes", vx_conv1d(plan, T(F32, 5, 1, 2, 14), T(F32, 3, 1, 2, 20), w, NULL), VX_ERR_SHAPE, "x");
    expect("conv, format", vx_conv1d(plan, T(F32, 5, 14), T(BF16, 3, 20), w, NULL), VX_ERR_DTYPE, "x");
    // (20 - 1)*4 - 2*2 + 8 = 80
    const vx_conv1d_params up = { .stride = 4, .padding = 2 };
    expect("transposed", vx_conv_transpose1d(plan, T(F32, 5, 80), x, T(F32, 3, 5, 8), &up), VX_OK, NULL);
    expect("transposed, length", vx_conv_transpose1d(plan, T(F32, 5, 79), x, T(F32, 3, 5, 8), &up), VX_ERR_SHAPE, "out");
    expect("transposed, lines", vx_conv_transpose1d(plan, T(F32, 5, 2, 80), T(F32, 3, 2, 20), T(F32, 3, 5, 8), &up), VX_OK, NULL);
    expect("transposed, lines to others", vx_conv_transpose1d(plan, T(F32, 5, 3, 80), T(F32, 3, 2, 20), T(F32, 3, 5, 8), &up),
           VX_ERR_SHAPE, "out");
    const vx_tensor c = T(F32, 3), f = T(F32, 12), lines = T(F32, 3, 2, 20);
    expect("snake", vx_snake_alias_free(plan, x, x, c, c, f, f), VX_OK, NULL);
    expect("snake, lines", vx_snake_alias_free(plan, lines, lines, c, c, f, f), VX_OK, NULL);
    expect("snake, lines to one", vx_snake_alias_free(plan, x, lines, c, c, f, f), VX_ERR_SHAPE, "out");
    expect("plain snake, lines", vx_snake(plan, lines, lines, c), VX_OK, NULL);
    expect("plain snake, lines to one", vx_snake(plan, x, lines, c), VX_ERR_SHAPE, "out");
    expect("snake, filter", vx_snake_alias_free(plan, x, x, c, c, T(F32, 11), f), VX_ERR_SHAPE, "up");
    expect("plain snake", vx_snake(plan, x, x, c), VX_OK, NULL);
    expect("plain snake, alpha", vx_snake(plan, x, x, T(F32, 4)), VX_ERR_SHAPE, "alpha");
    expect("plain snake, format", vx_snake(plan, x, x, T(BF16, 3)), VX_ERR_DTYPE, "alpha");
    expect("fade", vx_fade(plan, x, x, x, 1), VX_OK, NULL);
    expect("fade, b", vx_fade(plan, x, x, T(F32, 3, 21), 1), VX_ERR_SHAPE, "b");
    expect("fade, axis", vx_fade(plan, x, x, x, -1), VX_ERR_SHAPE, NULL);
    expect("clamp", vx_clamp(plan, x, x, -1, 1), VX_OK, NULL);
    expect("clamp, bounds", vx_clamp(plan, x, x, 1, -1), VX_ERR_SHAPE, NULL);
    expect("bytes", vx_to_u8(plan, T(U8, 3, 20), x), VX_OK, NULL);
    expect("bytes, out", vx_to_u8(plan, T(F32, 3, 20), x), VX_ERR_DTYPE, "out");
}

// An arena that was planned too small gives tensors without data: the operator says which.
static void missing_memory_is_named(void **state)
{
    (void)state;
    vx_tensor x = rig_tensor(VX_F32, 2, 4);
    expect("x", vx_add(dev, T(F32, 2, 4), x), VX_ERR_INTERNAL, "x has no memory: the plan was short");
    expect("y", vx_add(dev, x, T(F32, 2, 4)), VX_ERR_INTERNAL, "y has no memory: the plan was short");
    vx_weight w = weight_of(VX_F32, 4, 4);
    expect("w", vx_linear(dev, x, x, &w), VX_ERR_INTERNAL, "w has no memory");
    expect("nothing is needed for no rows", vx_add(dev, T(F32, 0, 4), T(F32, 0, 4)), VX_OK, NULL);
    expect("upload", vx_upload(dev, T(F32, 4), x.data), VX_ERR_INTERNAL, "to has no memory");
    rig_free(&x);
}

static void a_watched_flag_cancels_before_the_work(void **state)
{
    (void)state;
    volatile int flag = 0;
    vx_tensor x = rig_tensor(VX_F32, 2, 4), y = rig_tensor(VX_F32, 2, 4);
    for (int i = 0; i < 8; i++) vx_f32_of(y)[i] = 1;
    vx_device_watch(dev, &flag);
    assert_ok(vx_add(dev, x, y));
    flag = 1;
    expect("cancelled", vx_add(dev, x, y), VX_ERR_CANCELLED, NULL);
    assert_true(vx_f32_of(x)[0] == 1);
    expect("shapes come first", vx_add(dev, x, T(F32, 2, 5)), VX_ERR_SHAPE, "y");
    vx_device_watch(dev, NULL);
    assert_ok(vx_add(dev, x, y));
    assert_true(vx_f32_of(x)[0] == 2);
    rig_free(&x);
    rig_free(&y);
}

static void instruction_sets_have_names(void **state)
{
    (void)state;
    vx_device *other = NULL;
    assert_code(vx_device_cpu_create(&other, &(vx_cpu_params){ .isa = "mmx" }), VX_ERR_VALUE);
    assert_code(vx_device_cpu_create(&other, &(vx_cpu_params){ .threads = -1 }), VX_ERR_RANGE);
    assert_null(other);
    other = rig_cpu("generic", 3);
    assert_string_equal(vx_device_isa(other), "generic");
    assert_string_equal(vx_device_name(other), "cpu");
    assert_int_equal(vx_device_threads(other), 3);
    assert_false(vx_device_is_plan(other));
    vx_device_destroy(&other);
    assert_null(other);
    vx_device_destroy(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adds),
        cmocka_unit_test(gate_adds),
        cmocka_unit_test(gates_with_norms),
        cmocka_unit_test(norms),
        cmocka_unit_test(elementwise),
        cmocka_unit_test(linears),
        cmocka_unit_test(attentions),
        cmocka_unit_test(sounds_and_pictures),
        cmocka_unit_test(missing_memory_is_named),
        cmocka_unit_test(a_watched_flag_cancels_before_the_work),
        cmocka_unit_test(instruction_sets_have_names),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
