// Operators on rows, channels and strided tensors on CUDA beside the CPU's: the same bits, NaN to NaN, on fresh random inputs.
// Outputs hold NaN before, and what lies between rows stays as it was. VORTEX_OPS_VECTORS is a file of vectors made by PyTorch.
#include "device/rig.h"

#include "device/arena.h"

static vx_device *cpu, *cuda;
static vx_arena *arena;
static uint32_t seed = 20;
static bool quick; // no rows in the tens of thousands

// ---- tensors on both sides ----
typedef struct both {
    vx_tensor host, far;   // views with the same strides
    vx_tensor block, home; // what they are views of
} both;

// A tensor whose last axis has `before` and `after` more elements around it.
static both make(vx_dtype t, int64_t before, int64_t after, int rank, const int64_t *shape)
{
    int64_t extent[VX_MAX_RANK];
    memcpy(extent, shape, (size_t)rank * sizeof *shape);
    extent[rank - 1] += before + after;
    both b = { .block = rig_make(t, rank, extent), .home = vx_arena_take(arena, t, rank, extent) };
    assert_non_null(b.home.data);
    b.host = vx_tensor_slice(b.block, rank - 1, before, before + shape[rank - 1]);
    b.far = vx_tensor_slice(b.home, rank - 1, before, before + shape[rank - 1]);
    return b;
}
#define tensor(t, before, after, ...) \
    make((t), (before), (after), (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]){ __VA_ARGS__ })

static void give(const both *b)
{
    assert_ok(vx_upload(cuda, b->home, b->block.data));
}
static void drop(both *b)
{
    rig_free(&b->block);
}

static void poison(both *b)
{
    memset(b->block.data, 0xff, vx_tensor_bytes(b->block));
    give(b);
}

// ---- values ----
typedef enum values { RANDOM, POWERS, SUBNORMALS, EXTREMES, NAN_AND_ZERO, CLASSES } values;
static const char *const class_names[] = { "random", "powers of two", "subnormals", "extremes", "rows of NaN and of zeros" };

static void put_bits(vx_tensor t, int64_t i, float v)
{
    if (t.dtype == VX_F32) vx_f32_of(t)[i] = v;
    else ((uint16_t *)t.data)[i] = t.dtype == VX_BF16 ? vx_f32_to_bf16(v) : vx_f32_to_f16(v);
}

static void fill_values(both *b, values v, float scale)
{
    const int64_t count = vx_tensor_count(b->block), n = b->block.shape[b->block.rank - 1];
    const float least = b->block.dtype == VX_F32 ? 0x1p-149f : b->block.dtype == VX_BF16 ? 0x1p-133f : 0x1p-24f;
    const float most = b->block.dtype == VX_F32 ? 0x1.fffffep127f : b->block.dtype == VX_BF16 ? 0x1.fep127f : 65504.0f;
    if (v == RANDOM || v == NAN_AND_ZERO) {
        vx_tensor part = b->block; // a long tensor repeats a stretch of a prime length
        part.rank = 1;
        part.shape[0] = count < 1000003 ? count : 1000003;
        rig_fill(part, seed++, scale);
        const size_t bytes = vx_tensor_bytes(b->block), size = vx_tensor_bytes(part);
        for (size_t at = size; at < bytes; at += size)
            memcpy((char *)b->block.data + at, b->block.data, at + size < bytes ? size : bytes - at);
        for (int64_t i = 0; i < n && v == NAN_AND_ZERO; i++) put_bits(b->block, i, NAN);
        for (int64_t i = n; i < 2 * n && i < count && v == NAN_AND_ZERO; i++) put_bits(b->block, i, 0);
    } else
        for (int64_t i = 0; i < count; i++) {
            const uint32_t u = rig_next(&seed);
            float x = (float)((int)(u & 0xff) - 128) * least;
            if (v == POWERS) x = ldexpf(u & 1 ? 1 : -1, (int)(u >> 1) % 41 - 20);
            if (v == EXTREMES) x = (u & 1 ? 1 : -1) * ((u & 14) == 0 ? INFINITY : (u & 2) ? most : (float)(u & 0xff));
            put_bits(b->block, i, x);
        }
    give(b);
}

static bool is_nan(vx_dtype t, const void *p, size_t i)
{
    if (t == VX_F32) return isnan(((const float *)p)[i]);
    if (t == VX_BF16) return (((const uint16_t *)p)[i] & 0x7fff) > 0x7f80;
    return t == VX_F16 && (((const uint16_t *)p)[i] & 0x7fff) > 0x7c00;
}

static int64_t compared;
// The whole block: numbers and what lies between them. `exact`: NaN's bits, too.
static void same(const char *what, const both *b, bool exact)
{
    const size_t bytes = vx_tensor_bytes(b->block), size = (size_t)vx_dtype_bits(b->block.dtype) / 8;
    char *found = malloc(bytes);
    const char *want = b->block.data;
    assert_non_null(found);
    assert_ok(vx_download(cuda, found, b->home));
    compared += (int64_t)(bytes / size);
    for (size_t i = 0; memcmp(found, want, bytes) != 0 && i < bytes / size; i++) {
        if (memcmp(found + i * size, want + i * size, size) == 0) continue;
        if (!exact && is_nan(b->block.dtype, found, i) && is_nan(b->block.dtype, want, i)) continue;
        uint32_t x = 0, y = 0;
        memcpy(&x, found + i * size, size);
        memcpy(&y, want + i * size, size);
        fail_msg("%s: number %zu is 0x%x, expected 0x%x", what, i, x, y);
    }
    free(found);
}

// ---- operators on rows ----
enum { INPUTS = 8, TABLE = 5 };
struct work {
    vx_dtype act, y, weight;
    int64_t rows, n;
    both in
        [INPUTS]; // 0, 1: rows; 2, 3: tables; 4: weights of a file (host memory on both sides); 5: row map; 6: [rows, 2n]; 7: bias
};
struct side {
    vx_device *dev;
    vx_tensor in[INPUTS], out, spare; // spare: as out
};
typedef void (*operation)(const struct side *s, const struct work *w);

static void add(const struct side *s, const struct work *w)
{
    (void)w;
    assert_ok(vx_copy(s->dev, s->out, s->in[0]));
    assert_ok(vx_add(s->dev, s->out, s->in[1]));
}
static void gate_add(const struct side *s, const struct work *w)
{
    (void)w;
    assert_ok(vx_copy(s->dev, s->out, s->in[0]));
    assert_ok(vx_gate_add(s->dev, s->out, s->in[1], s->in[2], s->in[5]));
    assert_ok(vx_gate_add(s->dev, s->out, s->in[1], vx_tensor_slice(s->in[3], 0, 1, 2), (vx_tensor){ 0 }));
}
static void gate_add_norm(const struct side *s, const struct work *w)
{
    (void)w;
    const vx_gate_add_norm_params p = {
        .gate = s->in[2], .w = s->in[4], .shift = s->in[3], .scale = s->in[2], .row = s->in[5], .eps = 1e-5f
    };
    assert_ok(vx_copy(s->dev, s->out, s->in[0]));
    assert_ok(vx_gate_add_norm(s->dev, s->spare, s->out, s->in[1], &p));
    assert_ok(vx_gate_add_norm(s->dev, s->spare, s->out, s->spare, &p)); // what comes out takes the place of what was added
}
static void rms_once(const struct side *s, const struct work *w)
{
    (void)w;
    assert_ok(vx_rms_norm(s->dev, s->out, s->in[0], s->in[4], 1e-5f, VX_NORM_ROUND_ONCE));
}
static void rms_twice(const struct side *s, const struct work *w)
{
    (void)w;
    assert_ok(vx_rms_norm(s->dev, s->out, s->in[0], s->in[4], 1e-6f, VX_NORM_ROUND_TWICE));
}
static void rms_in_place(const struct side *s, const struct work *w)
{
    (void)w;
    assert_ok(vx_copy(s->dev, s->out, s->in[0]));
    assert_ok(vx_rms_norm(s->dev, s->out, s->out, (vx_tensor){ 0 }, 1e-6f, VX_NORM_ROUND_ONCE));
}
static void modulate(const struct side *s, const struct work *w)
{
    (void)w;
    assert_ok(vx_rms_norm_modulate(s->dev, s->out, s->in[0], s->in[4], s->in[2], s->in[3], s->in[5], 1e-5f));
}
static void layer(const struct side *s, const struct work *w)
{
    (void)w;
    assert_ok(vx_layer_norm(s->dev, s->out, s->in[0], s->in[4], s->in[7], 1e-5f));
}
static void layer_bare(const struct side *s, const struct work *w)
{
    (void)w;
    assert_ok(vx_layer_norm(s->dev, s->out, s->in[0], (vx_tensor){ 0 }, (vx_tensor){ 0 }, 1e-5f));
}
static void swiglu(const struct side *s, const struct work *w)
{
    assert_ok(vx_swiglu(s->dev, s->out, s->in[6], w->rows % 2 == 0));
}
static void silu(const struct side *s, const struct work *w)
{
    (void)w;
    assert_ok(vx_silu(s->dev, s->out, s->in[0]));
}
static void gelu_erf(const struct side *s, const struct work *w)
{
    (void)w;
    assert_ok(vx_gelu(s->dev, s->out, s->in[0], false));
}
static void gelu_tanh(const struct side *s, const struct work *w)
{
    (void)w;
    assert_ok(vx_gelu(s->dev, s->out, s->in[0], true));
}
static void embed(const struct side *s, const struct work *w)
{
    (void)w;
    assert_ok(vx_embed(s->dev, s->out, s->in[3], NULL, s->in[5]));
}

// `half`: f32 rows, f16 out (and y of gate_add).
static const struct {
    const char *name;
    operation run;
    bool half;
} operations[] = {
    { "add", add, false },
    { "gate_add", gate_add, false },
    { "gate_add_norm", gate_add_norm, false },
    { "rms_norm", rms_once, true },
    { "rms_norm, two roundings", rms_twice, false },
    { "rms_norm in place", rms_in_place, false },
    { "rms_norm_modulate", modulate, false },
    { "layer_norm", layer, true },
    { "layer_norm without weights", layer_bare, true },
    { "swiglu", swiglu, false },
    { "silu", silu, true },
    { "gelu", gelu_erf, false },
    { "gelu, tanh form", gelu_tanh, false },
    { "embed", embed, true },
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static void run_operation(int i, const struct work *w, vx_dtype out_type, int64_t before, int64_t after, const char *says)
{
    char what[200];
    const size_t mark = vx_arena_mark(arena);
    both out = tensor(out_type, before, after, w->rows, w->n), spare = tensor(out_type, before, after, w->rows, w->n);
    struct side near = { .dev = cpu, .out = out.host, .spare = spare.host },
                far = { .dev = cuda, .out = out.far, .spare = spare.far };
    poison(&out);
    poison(&spare);
    for (int k = 0; k < INPUTS; k++) {
        near.in[k] = w->in[k].host;
        far.in[k] = k == 4 || k == 7 ? w->in[k].host : w->in[k].far;
    }
    operations[i].run(&near, w);
    operations[i].run(&far, w);
    snprintf(what, sizeof what, "%s, %s, %s -> %s [%lld,%lld]", operations[i].name, says, vx_dtype_name(w->act),
             vx_dtype_name(out_type), (long long)w->rows, (long long)w->n);
    same(what, &out, false);
    same(what, &spare, false);
    drop(&out);
    drop(&spare);
    vx_arena_reset(arena, mark);
}

// segments: of equal rows of the tables, borders anywhere.
static void check_rows(vx_dtype act, int64_t rows, int64_t n, int64_t before, int64_t after, values v, int segments, bool big)
{
    const size_t mark = vx_arena_mark(arena);
    struct work w = { .act = act,
                      .y = act,
                      .weight = rows % 3 == 0   ? VX_F16
                                : rows % 3 == 1 ? VX_BF16
                                                : VX_F32,
                      .rows = rows,
                      .n = n };
    w.in[0] = tensor(act, before, after, rows, n);
    w.in[1] = tensor(act, before, after, rows, n);
    w.in[2] = tensor(act, before, after, TABLE + segments, n);
    w.in[3] = tensor(act, before, after, TABLE + segments, n);
    w.in[4] = tensor(w.weight, 0, 0, n);
    w.in[5] = tensor(VX_I32, 0, 0, rows);
    w.in[6] = tensor(act, 2 * before, 2 * after, rows, 2 * n);
    w.in[7] = tensor(w.weight, 0, 0, n);
    for (int k = 0; k < INPUTS; k++)
        if (k != 5) fill_values(&w.in[k], k == 4 || k == 7 ? RANDOM : v, k == 6 ? 8 : 3);
    for (int64_t r = 0; r < rows; r++)
        ((int32_t *)w.in[5].block.data)[r] = (int32_t)((r * segments / rows * 3 + 1) % (TABLE + segments));
    give(&w.in[5]);
    for (int i = 0; i < OPERATIONS; i++) {
        if (big && (operations[i].run == rms_in_place || operations[i].run == layer_bare)) continue;
        run_operation(i, &w, act, before, after, class_names[v]);
        if (act == VX_F32 && operations[i].half) run_operation(i, &w, VX_F16, before, after, class_names[v]);
        if (operations[i].run == silu && act != VX_F32) run_operation(i, &w, VX_F32, before, after, class_names[v]);
    }
    vx_device_forget(cuda, NULL, 0);
    for (int k = 0; k < INPUTS; k++) drop(&w.in[k]);
    vx_arena_reset(arena, mark);
}

static const vx_dtype acts[] = { VX_BF16, VX_F32, VX_F16 };

static void every_width_has_the_cpus_bits(void **state)
{
    (void)state;
    static const int64_t widths[] = { 1,    5,    8,    13,   72,   192,  256,  264,  520,  1023,
                                      1024, 1152, 1792, 2048, 3584, 5120, 5376, 5377, 14336 };
    for (int a = 0; a < 3; a++)
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
            check_rows(acts[a], 3, widths[i], 0, 0, RANDOM, 1, false);
            check_rows(acts[a], 2, widths[i], 1, 2, RANDOM, 1, false);
            if (!quick) check_rows(acts[a], 4, widths[i], 8, 8, RANDOM, 2, false);
        }
}

static void every_height_has_the_cpus_bits(void **state)
{
    (void)state;
    static const int64_t heights[] = { 1, 2, 31, 33, 100, 946 };
    static const int segments[] = { 1, 3, 7 };
    for (size_t i = 0; i < sizeof heights / sizeof *heights; i++)
        for (int s = quick ? 2 : 0; s < 3; s++) check_rows(VX_BF16, heights[i], 5376, 0, 0, RANDOM, segments[s], false);
}

static void every_class_of_values_has_the_cpus_bits(void **state)
{
    (void)state;
    for (int a = 0; a < 3; a++)
        for (int v = 0; v < CLASSES; v++) {
            check_rows(acts[a], 33, 5376, 0, 0, (values)v, 3, false);
            check_rows(acts[a], 5, 77, 0, 0, (values)v, 3, false);
        }
}

static void the_canonical_rows_have_the_cpus_bits(void **state)
{
    (void)state;
    if (quick) return;
    check_rows(VX_BF16, 37810, 5376, 0, 0, RANDOM, 3, true);
}

// f32 rows that take half-precision products and gates of any format.
static void half_products_meet_f32_rows(void **state)
{
    (void)state;
    static const vx_dtype gates[] = { VX_F32, VX_F16, VX_BF16 };
    for (int g = 0; g < 3; g++)
        for (int half = 0; half < 2; half++)
            for (int64_t n = 63; n < 2049; n = n == 63 ? 64 : n * 32) {
                const size_t mark = vx_arena_mark(arena);
                both x = tensor(VX_F32, 0, 0, 50, n), y = tensor(half ? VX_F16 : VX_F32, 0, 0, 50, n),
                     gate = tensor(gates[g], 0, 0, 1, n);
                fill_values(&x, RANDOM, 4), fill_values(&y, RANDOM, 4), fill_values(&gate, RANDOM, 1);
                assert_ok(vx_gate_add(cpu, x.host, y.host, gate.host, (vx_tensor){ 0 }));
                assert_ok(vx_gate_add(cuda, x.far, y.far, gate.host, (vx_tensor){ 0 }));
                same("gate_add", &x, false);
                for (int narrow = 0; narrow < 2; narrow++) {
                    both out = tensor(narrow ? VX_F16 : VX_F32, 0, 0, 50, n);
                    const vx_gate_add_norm_params p = { .gate = gate.host, .w = vx_tensor_row(gate.host, 0), .eps = 1e-5f };
                    poison(&out);
                    assert_ok(vx_gate_add_norm(cpu, out.host, x.host, y.host, &p));
                    assert_ok(vx_gate_add_norm(cuda, out.far, x.far, y.far, &p));
                    same("gate_add_norm's x", &x, false);
                    same("gate_add_norm", &out, false);
                    drop(&out);
                }
                vx_device_forget(cuda, NULL, 0);
                drop(&x), drop(&y), drop(&gate);
                vx_arena_reset(arena, mark);
            }
}

// The shorter way of SwiGLU for f16: all 65,536 gates beside a value of one, those that need the longer way apart from the others.
static void swiglu_of_every_f16_has_the_cpus_bits(void **state)
{
    (void)state;
    const size_t mark = vx_arena_mark(arena);
    both out = tensor(VX_F16, 0, 0, 256, 256), u = tensor(VX_F16, 0, 0, 256, 512);
    for (int i = 0; i < 65536; i++) {
        ((uint16_t *)u.block.data)[i / 256 * 512 + i % 256] = (uint16_t)i;
        ((uint16_t *)u.block.data)[i / 256 * 512 + 256 + i % 256] = 0x3c00;
    }
    give(&u);
    poison(&out);
    assert_ok(vx_swiglu(cpu, out.host, u.host, true));
    assert_ok(vx_swiglu(cuda, out.far, u.far, true));
    same("swiglu of every f16", &out, false);
    drop(&out), drop(&u);
    vx_arena_reset(arena, mark);
}

static void positions_have_the_cpus_bits(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int64_t n = 8; n < 1153; n = n == 8 ? 77 : n + 1075) {
            const size_t mark = vx_arena_mark(arena);
            both out = tensor(acts[t], 0, 0, 40, n), table = tensor(acts[(t + 1) % 3], 0, 0, 20, n),
                 ids = tensor(VX_I32, 0, 1, 40, 4), weights = tensor(VX_F32, 0, 3, 40, 4);
            fill_values(&table, RANDOM, 2), fill_values(&weights, RANDOM, 1);
            for (int i = 0; i < 200; i++) ((int32_t *)ids.block.data)[i] = i * 7 % 20;
            give(&ids);
            poison(&out);
            assert_ok(vx_embed_blend(cpu, out.host, table.host, ids.host, weights.host));
            assert_ok(vx_embed_blend(cuda, out.far, table.host, ids.far, weights.far));
            same("embed_blend", &out, false);
            vx_device_forget(cuda, NULL, 0);
            drop(&out), drop(&table), drop(&ids), drop(&weights);
            vx_arena_reset(arena, mark);
        }
}

// All finite bf16: the hash is that of the acceleration specification, 2.6. And the shorter way of SwiGLU: with a value of one
// it gives what silu gives, for all 65,536.
static void silu_of_every_bf16_has_the_known_hash(void **state)
{
    (void)state;
    const size_t mark = vx_arena_mark(arena);
    both x = tensor(VX_BF16, 0, 0, 256, 256), out = tensor(VX_BF16, 0, 0, 256, 256), u = tensor(VX_BF16, 0, 0, 256, 512);
    for (int i = 0; i < 65536; i++) {
        ((uint16_t *)x.block.data)[i] = (uint16_t)i;
        ((uint16_t *)u.block.data)[i / 256 * 512 + i % 256] = (uint16_t)i;
        ((uint16_t *)u.block.data)[i / 256 * 512 + 256 + i % 256] = 0x3f80;
    }
    give(&x), give(&u);
    for (int way = 0; way < 2; way++) {
        poison(&out);
        if (way == 0) {
            assert_ok(vx_silu(cpu, out.host, x.host));
            assert_ok(vx_silu(cuda, out.far, x.far));
        } else {
            assert_ok(vx_swiglu(cpu, out.host, u.host, true));
            assert_ok(vx_swiglu(cuda, out.far, u.far, true));
        }
        same(way ? "swiglu" : "silu", &out, false);
        assert_ok(vx_download(cuda, out.block.data, out.home));
        uint32_t hash = 2166136261u;
        for (int i = 0; i < 65536; i++) {
            if ((i & 0x7f80) == 0x7f80) continue;
            const uint16_t y = ((uint16_t *)out.block.data)[i];
            hash = (hash ^ (y & 0xff)) * 16777619u;
            hash = (hash ^ (uint32_t)(y >> 8)) * 16777619u;
        }
        assert_int_equal(hash, 0xae5f97a0u);
    }
    drop(&x), drop(&out), drop(&u);
    vx_arena_reset(arena, mark);
}

// ---- queries and keys ----
typedef struct head_case {
    int64_t rows, heads, d, pairs;
    vx_dtype act;
    vx_norm_rounding rounding;
    bool once, skip, grouped; // grouped: [Q | K | V], else interleaved by head
} head_case;

static void run_heads(const head_case *c, values v, vx_dtype weight)
{
    const size_t mark = vx_arena_mark(arena);
    char what[160];
    const int64_t lines = c->rows % 3 ? c->rows : c->rows / 3; // a table for three items, where that is whole
    both qkv = tensor(c->act, 0, 0, c->rows, c->grouped ? 3 : c->heads, c->grouped ? c->heads : 3, c->d),
         w = tensor(VX_BF16, 0, 0, 2, c->d), turn[2] = { { .host = { 0 } } };
    if (weight != VX_DTYPE_NONE) {
        drop(&w);
        w = tensor(weight, 0, 0, 2, c->d);
    }
    fill_values(&qkv, v, 3), fill_values(&w, RANDOM, 2);
    for (int i = 0; i < 2 && c->pairs; i++) {
        turn[i] = tensor(c->once ? VX_F32 : c->act, 0, 0, lines, c->pairs);
        fill_values(&turn[i], RANDOM, 1);
    }
    for (int far = 0; far < 2; far++) {
        const vx_tensor all = far ? qkv.far : qkv.host;
        const int axis = c->grouped ? 1 : 2;
        vx_tensor q = vx_tensor_merge(vx_tensor_slice(all, axis, 0, 1), axis == 1 ? 1 : 2),
                  k = vx_tensor_merge(vx_tensor_slice(all, axis, 1, 2), axis == 1 ? 1 : 2);
        vx_qk_norm_rope_params p = { .eps = 1e-5f, .rounding = c->rounding, .rope_once = c->once, .skip_norm = c->skip };
        if (weight != VX_DTYPE_NONE) p.q_weight = vx_tensor_row(w.host, 0), p.k_weight = vx_tensor_row(w.host, 1);
        if (c->pairs) p.cos = far ? turn[0].far : turn[0].host, p.sin = far ? turn[1].far : turn[1].host;
        assert_ok(vx_qk_norm_rope(far ? cuda : cpu, q, k, &p));
    }
    snprintf(what, sizeof what, "heads of %lld, %lld pairs, %s, %lld rows, %s", (long long)c->d, (long long)c->pairs,
             vx_dtype_name(c->act), (long long)c->rows, class_names[v]);
    same(what, &qkv, false);
    vx_device_forget(cuda, NULL, 0);
    drop(&qkv), drop(&w), drop(&turn[0]), drop(&turn[1]);
    vx_arena_reset(arena, mark);
}

static void heads_have_the_cpus_bits(void **state)
{
    (void)state;
    static const head_case cases[] = {
        { 37, 56, 128, 48, VX_BF16, VX_NORM_ROUND_ONCE, false, false, true },
        { 100, 56, 128, 48, VX_BF16, VX_NORM_ROUND_ONCE, false, false, false },
        { 946, 7, 128, 48, VX_BF16, VX_NORM_ROUND_ONCE, false, false, true },
        { 1, 1, 128, 48, VX_BF16, VX_NORM_ROUND_ONCE, false, false, true },
        { 31, 9, 128, 64, VX_BF16, VX_NORM_ROUND_TWICE, false, false, true },
        { 33, 40, 128, 64, VX_BF16, VX_NORM_ROUND_TWICE, false, false, false },
        { 70, 2, 128, 0, VX_BF16, VX_NORM_ROUND_ONCE, false, false, true },
        { 129, 32, 64, 24, VX_F16, VX_NORM_ROUND_ONCE, false, false, true },
        { 5, 3, 64, 24, VX_F16, VX_NORM_ROUND_ONCE, false, false, false },
        { 40, 5, 64, 24, VX_BF16, VX_NORM_ROUND_ONCE, false, false, true },
        { 40, 5, 64, 24, VX_F32, VX_NORM_ROUND_ONCE, false, false, true },
        { 102, 5, 128, 48, VX_BF16, VX_NORM_ROUND_ONCE, false, false, true },
        { 9, 3, 72, 36, VX_BF16, VX_NORM_ROUND_ONCE, true, true, true },
        { 9, 3, 72, 36, VX_F32, VX_NORM_ROUND_ONCE, true, true, false },
        { 9, 3, 72, 36, VX_BF16, VX_NORM_ROUND_ONCE, false, true, true },
        { 3, 2, 33, 5, VX_F32, VX_NORM_ROUND_TWICE, false, false, true },
        { 2, 5, 20, 7, VX_F16, VX_NORM_ROUND_TWICE, false, false, true },
        { 4, 2, 256, 100, VX_BF16, VX_NORM_ROUND_TWICE, false, false, true },
    };
    static const vx_dtype weights[] = { VX_BF16, VX_F32, VX_F16, VX_DTYPE_NONE };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int w = 0; w < 4; w++) run_heads(&cases[i], RANDOM, weights[w]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int v = 1; v < CLASSES; v++) run_heads(&cases[i], (values)v, VX_BF16);
    if (!quick) run_heads(&(head_case){ 37810, 8, 128, 48, VX_BF16, VX_NORM_ROUND_ONCE, false, false, true }, RANDOM, VX_BF16);
}

// ---- copies and other strided operators ----
static int64_t between(int64_t least, int64_t most)
{
    return least + (int64_t)(rig_next(&seed) % (uint32_t)(most - least + 1));
}

// A view of one of several kinds: whole, cut on each axis, axes changed.
static void view_of(both *b, const int *axes, int rank, const int64_t *shape, const int64_t *room)
{
    for (int far = 0; far < 2; far++) {
        vx_tensor t = far ? b->home : b->block;
        for (int i = 0; i < rank; i++) t = vx_tensor_slice(t, i, room[i], room[i] + shape[i]);
        vx_tensor p = t;
        for (int i = 0; i < rank; i++) p.shape[axes[i]] = t.shape[i], p.stride[axes[i]] = t.stride[i];
        if (far) b->far = p;
        else b->host = p;
    }
}

// A block whose axes stand in a random order, with or without room around, seen with axes in order.
static both any_view(vx_dtype t, int rank, const int64_t *shape, bool shuffle)
{
    int axes[VX_MAX_RANK];
    int64_t inner[VX_MAX_RANK], room[VX_MAX_RANK], extent[VX_MAX_RANK];
    for (int i = 0; i < rank; i++) axes[i] = i;
    for (int i = rank - 1; i > 0 && shuffle; i--) {
        const int j = (int)between(0, i), a = axes[i];
        axes[i] = axes[j], axes[j] = a;
    }
    const bool loose = between(0, 1);
    for (int i = 0; i < rank; i++) {
        inner[i] = shape[axes[i]];
        room[i] = loose ? between(0, 2) * (between(0, 1) ? 4 : 1) : 0;
        extent[i] = inner[i] + room[i] + (loose ? between(0, 2) * (between(0, 1) ? 4 : 1) : 0);
    }
    both b = make(t, 0, 0, rank, extent);
    view_of(&b, axes, rank, inner, room);
    return b;
}

static void bytes(both *b)
{
    uint8_t *p = b->block.data;
    for (size_t i = 0; i < vx_tensor_bytes(b->block); i++) p[i] = (uint8_t)rig_next(&seed);
    give(b);
}

static void copies_have_the_cpus_bits(void **state)
{
    (void)state;
    static const vx_dtype types[] = { VX_F32, VX_BF16, VX_F16, VX_I32, VX_U8 };
    for (int i = 0; i < (quick ? 400 : 1500); i++) {
        const size_t mark = vx_arena_mark(arena);
        const int from = (int)between(0, 4), to = from < 3 ? (int)between(0, 2) : from, rank = (int)between(1, 6);
        int64_t shape[VX_MAX_RANK];
        for (int k = 0; k < rank; k++) shape[k] = between(1, rank < 3 ? 300 : rank < 4 ? 40 : 9) * (between(0, 3) ? 1 : 8);
        for (int k = 0; k < rank && rank > 3; k++) shape[k] = shape[k] > 16 ? 16 : shape[k];
        both x = any_view(types[from], rank, shape, i % 3), out = any_view(types[to], rank, shape, i % 2);
        bytes(&x); // every bit pattern, NaN among them
        poison(&out);
        for (int k = 0; k < rank && i % 5 == 0; k++) // a number repeats, or a part does
            if (between(0, 1)) x.host.stride[k] = x.far.stride[k] = 0;
        assert_ok(vx_copy(cpu, out.host, x.host));
        assert_ok(vx_copy(cuda, out.far, x.far));
        char what[64];
        snprintf(what, sizeof what, "copy %d, %s to %s, rank %d", i, vx_dtype_name(types[from]), vx_dtype_name(types[to]), rank);
        same(what, &out, true);
        drop(&x), drop(&out);
        vx_arena_reset(arena, mark);
    }
}

static void strided_operators_have_the_cpus_bits(void **state)
{
    (void)state;
    for (int i = 0; i < (quick ? 150 : 600); i++) {
        const size_t mark = vx_arena_mark(arena);
        const int rank = (int)between(1, 5), axis = (int)between(0, rank - 1);
        int64_t shape[VX_MAX_RANK];
        for (int k = 0; k < rank; k++) shape[k] = between(1, rank < 3 ? 200 : 12);
        both x = any_view(VX_F32, rank, shape, true), y = any_view(VX_F32, rank, shape, true),
             out = any_view(VX_F32, rank, shape, true), u8 = any_view(VX_U8, rank, shape, true),
             scale = tensor(VX_F32, 0, 0, shape[axis]), shift = tensor(VX_F32, 0, 0, shape[axis]), flag = tensor(VX_I32, 0, 0, 3),
             half = any_view(i % 2 ? VX_BF16 : VX_F16, rank, shape, true);
        if (i % 4) fill_values(&x, i % 8 == 1 ? EXTREMES : RANDOM, 2);
        else bytes(&x);
        fill_values(&y, RANDOM, 2), fill_values(&scale, RANDOM, 2), fill_values(&shift, RANDOM, 2),
            fill_values(&half, i % 3 ? RANDOM : EXTREMES, 2);
        poison(&out);
        assert_ok(vx_affine(cpu, out.host, x.host, scale.host, shift.host, axis));
        assert_ok(vx_affine(cuda, out.far, x.far, scale.far, shift.far, axis));
        same("affine", &out, false);
        assert_ok(vx_fade(cpu, out.host, x.host, y.host, axis));
        assert_ok(vx_fade(cuda, out.far, x.far, y.far, axis));
        same("fade", &out, false);
        assert_ok(vx_clamp(cpu, out.host, x.host, -0.75f, 0.5f));
        assert_ok(vx_clamp(cuda, out.far, x.far, -0.75f, 0.5f));
        same("clamp", &out, true);
        poison(&u8);
        assert_ok(vx_to_u8(cpu, u8.host, x.host));
        assert_ok(vx_to_u8(cuda, u8.far, x.far));
        same("to_u8", &u8, true);
        memset(flag.block.data, 0, 12);
        give(&flag);
        assert_ok(vx_mark_not_finite(cpu, flag.host, 1, x.host));
        assert_ok(vx_mark_not_finite(cuda, flag.far, 1, x.far));
        assert_ok(vx_mark_not_finite(cpu, flag.host, 2, half.host));
        assert_ok(vx_mark_not_finite(cuda, flag.far, 2, half.far));
        same("mark_not_finite", &flag, true);
        drop(&x), drop(&y), drop(&out), drop(&u8), drop(&scale), drop(&shift), drop(&flag), drop(&half);
        vx_arena_reset(arena, mark);
    }
}

static void blends_have_the_cpus_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        const size_t mark = vx_arena_mark(arena);
        both t[4];
        vx_term near[3], far[3];
        for (int k = 0; k < 4; k++) {
            t[k] = tensor(VX_F32, 0, 0, 1000 + i % 5);
            fill_values(&t[k], i % 7 == 6 ? EXTREMES : RANDOM, 3);
        }
        for (int k = 0; k < 3; k++) {
            near[k] = (vx_term){ 0.3f * (float)(k + i) - 2, t[k].host };
            far[k] = (vx_term){ near[k].c, t[k].far };
        }
        const both *out = &t[i % 4];
        assert_ok(vx_blend(cpu, out->host, near, i % 3 + 1));
        assert_ok(vx_blend(cuda, out->far, far, i % 3 + 1));
        same("blend", out, false);
        for (int k = 0; k < 4; k++) drop(&t[k]);
        vx_arena_reset(arena, mark);
    }
}

// ---- channels ----
static void snakes_have_the_cpus_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        const size_t mark = vx_arena_mark(arena);
        const int64_t lines = i % 4, length = between(1, 9001), n = length * (lines ? lines : 1);
        both x = tensor(VX_F32, i % 3, i % 2, 7, n), alpha = tensor(VX_F32, 0, 0, 7);
        fill_values(&x, i % 5 == 4 ? EXTREMES : RANDOM, 4), fill_values(&alpha, RANDOM, 3);
        for (int k = 0; k < 4; k++) vx_f32_of(alpha.block)[k] = ldexpf(1.37f, 8 * k * k); // angles of every size
        give(&alpha);
        both out = tensor(VX_F32, 2, 1, 7, n);
        poison(&out);
        for (int far = 0; far < 2; far++) {
            vx_tensor from = far ? x.far : x.host, to = far ? out.far : out.host;
            if (lines) from = vx_tensor_split(from, 1, length), to = vx_tensor_split(to, 1, length);
            assert_ok(vx_snake(far ? cuda : cpu, to, from, far ? alpha.far : alpha.host));
        }
        same("snake", &out, false);
        drop(&x), drop(&alpha), drop(&out);
        vx_arena_reset(arena, mark);
    }
}

static void group_norms_have_the_cpus_bits(void **state)
{
    (void)state;
    static const int64_t cases[][5] = {
        // channels, frames, rows, columns, groups
        { 128, 3, 64, 64, 32 }, { 64, 2, 7, 13, 32 },   { 512, 1, 16, 16, 32 },   { 6, 2, 5, 40, 2 },
        { 4, 1, 1, 1, 4 },      { 1024, 1, 9, 32, 32 }, { 128, 1, 256, 256, 32 },
    };
    for (size_t i = 0; i < 3 * sizeof cases / sizeof *cases; i++) {
        const int64_t *c = cases[i / 3];
        const int gap = i % 3 == 1 ? 3 : 0;
        const size_t mark = vx_arena_mark(arena);
        const vx_dtype t = acts[i % 3];
        both x = tensor(VX_F32, 0, gap, c[0], c[1], c[2], c[3]), out = tensor(VX_F32, 0, gap, c[0], c[1], c[2], c[3]),
             w = tensor(t, 0, 0, c[0]), b = tensor(t, 0, 0, c[0]);
        fill_values(&x, RANDOM, 3), fill_values(&w, RANDOM, 2), fill_values(&b, RANDOM, 2);
        poison(&out);
        assert_ok(vx_group_norm(cpu, out.host, x.host, w.host, b.host, c[4], 1e-6f, i % 2));
        assert_ok(vx_group_norm(cuda, out.far, x.far, w.host, b.host, c[4], 1e-6f, i % 2));
        same("group_norm", &out, false);
        assert_ok(vx_group_norm(cpu, x.host, x.host, w.host, b.host, c[4], 1e-6f, true));
        assert_ok(vx_group_norm(cuda, x.far, x.far, w.host, b.host, c[4], 1e-6f, true));
        same("group_norm in place", &x, false);
        vx_device_forget(cuda, NULL, 0);
        drop(&x), drop(&out), drop(&w), drop(&b);
        vx_arena_reset(arena, mark);
    }
}

// ---- PyTorch's own ----
static mini_file vectors;

static vx_tensor far_copy(const char *name)
{
    const vx_tensor t = mini_tensor(&vectors, name);
    const vx_tensor far = vx_arena_take(arena, t.dtype, t.rank, t.shape);
    assert_non_null(far.data);
    assert_ok(vx_upload(cuda, far, t.data));
    return far;
}

static void equals(vx_tensor far, const char *name)
{
    vx_tensor found = rig_like(far);
    assert_ok(vx_download(cuda, found.data, far));
    rig_same_bits(name, found, mini_tensor(&vectors, name));
    rig_free(&found);
}

static void element_wise_results_are_pytorchs(void **state)
{
    (void)state;
    const char *path = getenv("VORTEX_OPS_VECTORS");
    if (!path) {
        print_message("VORTEX_OPS_VECTORS is not set: skipped\n");
        skip();
    }
    assert_true(mini_open(&vectors, path));
    const size_t mark = vx_arena_mark(arena);
    vx_tensor x = far_copy("gate_add.x");
    assert_ok(vx_gate_add(cuda, x, far_copy("gate_add.y"), far_copy("gate_add.gate"), far_copy("gate_add.row")));
    equals(x, "gate_add.out");
    const vx_tensor y = mini_tensor(&vectors, "swiglu.y");
    vx_tensor out = vx_arena_take(arena, VX_BF16, 2, y.shape);
    assert_ok(vx_swiglu(cuda, out, far_copy("swiglu.value_gate"), false));
    equals(out, "swiglu.y");
    const vx_tensor silu_y = mini_tensor(&vectors, "silu_temb.y");
    out = vx_arena_take(arena, VX_BF16, 2, silu_y.shape);
    assert_ok(vx_silu(cuda, out, far_copy("silu_temb.x")));
    equals(out, "silu_temb.y");
    vx_tensor q = far_copy("rope.q");
    const vx_qk_norm_rope_params turn = { .skip_norm = true, .cos = far_copy("rope.cos"), .sin = far_copy("rope.sin") };
    assert_ok(vx_qk_norm_rope(cuda, q, (vx_tensor){ 0 }, &turn));
    equals(q, "rope.y");
    // A row of ones and eps 0 has the norm of ones: with the row's numbers as the weight, what is left is the modulation.
    const vx_tensor shift = far_copy("modulate.shift"), scale = far_copy("modulate.scale"), row = far_copy("modulate.row"),
                    numbers = far_copy("modulate.x");
    vx_tensor ones = rig_like(mini_tensor(&vectors, "modulate.x"));
    for (int64_t i = 0; i < vx_tensor_count(ones); i++) ((uint16_t *)ones.data)[i] = 0x3f80;
    const vx_tensor far_ones = vx_arena_take(arena, VX_BF16, 2, ones.shape);
    assert_ok(vx_upload(cuda, far_ones, ones.data));
    out = vx_arena_take(arena, VX_BF16, 2, ones.shape);
    for (int64_t i = 0; i < ones.shape[0]; i++)
        assert_ok(vx_rms_norm_modulate(cuda, vx_tensor_slice(out, 0, i, i + 1), vx_tensor_slice(far_ones, 0, i, i + 1),
                                       vx_tensor_row(numbers, i), shift, scale, vx_tensor_slice(row, 0, i, i + 1), 0));
    equals(out, "modulate.y");
    // Sums have another order than PyTorch's: at most one step, one in 10,000.
    const vx_tensor want = mini_tensor(&vectors, "norm.y");
    assert_ok(vx_rms_norm(cuda, out, far_copy("norm.x"), far_copy("norm.weight"), 1e-5f, VX_NORM_ROUND_ONCE));
    assert_ok(vx_download(cuda, ones.data, out));
    int64_t off = 0;
    for (int64_t i = 0; i < vx_tensor_count(want); i++) {
        const int step = rig_ulps(((uint16_t *)ones.data)[i], ((uint16_t *)want.data)[i]);
        assert_true(step <= 1);
        off += step;
    }
    assert_true(off <= 1);
    rig_free(&ones);
    mini_close(&vectors);
    vx_arena_reset(arena, mark);
}

int main(void)
{
    vx_status s = vx_device_cuda_create(&cuda, &(vx_cuda_params){ 0 });
    if (s.code == VX_ERR_DEVICE_NONE) {
        printf("no CUDA device: skipped\n");
        return 77;
    }
    quick = getenv("VORTEX_QUICK") && *getenv("VORTEX_QUICK");
    if (s.code == VX_OK) s = vx_device_cpu_create(&cpu, NULL);
    if (s.code == VX_OK) s = vx_arena_create(cuda, &arena, (size_t)(quick ? 1 : 5) << 30);
    if (s.code != VX_OK) {
        printf("%s\n", s.message);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silu_of_every_bf16_has_the_known_hash),
        cmocka_unit_test(swiglu_of_every_f16_has_the_cpus_bits),
        cmocka_unit_test(element_wise_results_are_pytorchs),
        cmocka_unit_test(heads_have_the_cpus_bits),
        cmocka_unit_test(every_class_of_values_has_the_cpus_bits),
        cmocka_unit_test(every_width_has_the_cpus_bits),
        cmocka_unit_test(half_products_meet_f32_rows),
        cmocka_unit_test(positions_have_the_cpus_bits),
        cmocka_unit_test(blends_have_the_cpus_bits),
        cmocka_unit_test(snakes_have_the_cpus_bits),
        cmocka_unit_test(group_norms_have_the_cpus_bits),
        cmocka_unit_test(strided_operators_have_the_cpus_bits),
        cmocka_unit_test(copies_have_the_cpus_bits),
        cmocka_unit_test(every_height_has_the_cpus_bits),
        cmocka_unit_test(the_canonical_rows_have_the_cpus_bits),
    };
    if (getenv("VORTEX_TEST")) cmocka_set_test_filter(getenv("VORTEX_TEST"));
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%lld numbers compared\n", (long long)compared);
    vx_arena_destroy(&arena);
    vx_device_destroy(&cpu);
    vx_device_destroy(&cuda);
    return failed;
}
