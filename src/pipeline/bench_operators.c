// Operators of one block of the transformer on random numbers: the released block on a GPU, one of a fifth of its width and a
// fourteenth of its rows on the processor.
#include <string.h>

#include "base/clock.h"
#include "base/sha256.h"
#include "device/operators.h"
#include "pipeline/internal.h"
#include "tensor/random.h"

typedef struct block {
    int64_t rows, hidden, heads, ffn;
} block;
enum { HEAD_DIM = 128, ROPE = 48, SLICE = 1 << 20 };
static const block released = { 37810, 5376, 56, 14336 }, small = { 2850, 1024, 8, 2752 };

typedef struct operation {
    vx_device *device;
    vx_tensor t[8];
    vx_weight weight;
    vx_qk_norm_rope_params rope;
} operation;

// Random numbers repeat after a mebi-element: they are there to be no zeros.
static vx_status random_tensor(operation *o, vx_arena *arena, vx_tensor *out, int64_t rows, int64_t columns, float scale)
{
    *out = vx_arena_tensor(arena, VX_BF16, rows, columns);
    if (vx_device_is_plan(o->device)) return vx_ok();
    vx_random random;
    vx_random_seed(&random, 440420);
    float *normal = vx_alloc_array(SLICE, sizeof *normal);
    uint16_t *bits = vx_alloc_array(SLICE, sizeof *bits);
    vx_status s = normal && bits ? vx_ok() : vx_no_memory("for random numbers");
    if (!s.code) vx_random_normal(&random, normal, SLICE);
    for (int64_t i = 0; i < SLICE && !s.code; i++) bits[i] = vx_f32_to_bf16(normal[i] * scale);
    vx_tensor flat = vx_tensor_reshape(*out, 1, (const int64_t[]){ rows * columns });
    for (int64_t at = 0; at < rows * columns && !s.code; at += SLICE) {
        int64_t end = at + SLICE < rows * columns ? at + SLICE : rows * columns;
        s = vx_upload(o->device, vx_tensor_slice(flat, 0, at, end), bits);
    }
    vx_free(normal);
    vx_free(bits);
    return s;
}

typedef vx_status (*run_fn)(operation *o);
static vx_status run_linear(operation *o)
{
    return vx_linear(o->device, o->t[0], o->t[1], &o->weight);
}
static vx_status run_attention(operation *o)
{
    return vx_attention(o->device, o->t[0], o->t[1], o->t[2], o->t[3], NULL);
}
static vx_status run_half(operation *o)
{
    const vx_gate_add_norm_params p = {
        .gate = o->t[3], .w = o->t[2], .shift = o->t[4], .scale = o->t[4], .row = o->t[5], .eps = 1e-5f
    };
    return vx_gate_add_norm(o->device, o->t[0], o->t[1], o->t[6], &p);
}
static vx_status run_rope(operation *o)
{
    return vx_qk_norm_rope(o->device, o->t[0], o->t[1], &o->rope);
}
static vx_status run_swiglu(operation *o)
{
    return vx_swiglu(o->device, o->t[0], o->t[1], true);
}

// Takes what an operation needs; `what` is one of the names of measure() below.
static vx_status set_up(operation *o, vx_arena *arena, const block *b, const char *what, double *flop, double *bytes)
{
    const int64_t inner = b->heads * HEAD_DIM;
    const struct {
        const char *name;
        int64_t n, k;
    } linears[] = { { "qkv", 3 * inner, b->hidden },
                    { "out", b->hidden, inner },
                    { "fc1", 2 * b->ffn, b->hidden },
                    { "fc2", b->hidden, b->ffn } };
    *flop = *bytes = 0;
    for (int i = 0; i < 4; i++) {
        if (strcmp(what, linears[i].name)) continue;
        const int64_t n = linears[i].n, k = linears[i].k;
        o->t[0] = vx_arena_tensor(arena, VX_BF16, b->rows, n);
        VX_TRY(random_tensor(o, arena, &o->t[1], b->rows, k, 1));
        o->weight = (vx_weight){ .n = n, .k = k, .segments = 1 };
        *flop = 2.0 * (double)b->rows * (double)n * (double)k;
        return random_tensor(o, arena, &o->weight.segment[0].weight, n, k, 0.02f);
    }
    if (!strcmp(what, "attention")) {
        vx_tensor qkv;
        VX_TRY(random_tensor(o, arena, &qkv, b->rows, 3 * inner, 1));
        o->t[0] = vx_tensor_split(vx_arena_tensor(arena, VX_BF16, b->rows, inner), 1, HEAD_DIM);
        for (int i = 0; i < 3; i++)
            o->t[1 + i] = vx_tensor_split(vx_tensor_slice(qkv, 1, i * inner, (i + 1) * inner), 1, HEAD_DIM);
        *flop = 4.0 * (double)b->rows * (double)b->rows * (double)inner;
        return vx_ok();
    }
    if (!strcmp(what, "qk_norm_rope")) {
        vx_tensor qkv, w, angle;
        VX_TRY(random_tensor(o, arena, &qkv, b->rows, 3 * inner, 1));
        VX_TRY(random_tensor(o, arena, &w, 1, HEAD_DIM, 1));
        VX_TRY(random_tensor(o, arena, &angle, b->rows, ROPE, 0.5f));
        for (int i = 0; i < 2; i++) o->t[i] = vx_tensor_split(vx_tensor_slice(qkv, 1, i * inner, (i + 1) * inner), 1, HEAD_DIM);
        o->rope = (vx_qk_norm_rope_params){
            .q_weight = vx_tensor_row(w, 0), .k_weight = vx_tensor_row(w, 0), .eps = 1e-5f, .cos = angle, .sin = angle
        };
        *bytes = 8.0 * (double)b->rows * (double)inner;
        return vx_ok();
    }
    if (!strcmp(what, "swiglu")) {
        o->t[0] = vx_arena_tensor(arena, VX_BF16, b->rows, b->ffn);
        *bytes = 6.0 * (double)b->rows * (double)b->ffn;
        return random_tensor(o, arena, &o->t[1], b->rows, 2 * b->ffn, 1);
    }
    // Gate with addition, norm with modulation: tables of three rows, one for each modality.
    vx_tensor w;
    o->t[0] = vx_arena_tensor(arena, VX_BF16, b->rows, b->hidden);
    VX_TRY(random_tensor(o, arena, &o->t[1], b->rows, b->hidden, 1));
    VX_TRY(random_tensor(o, arena, &o->t[6], b->rows, b->hidden, 1));
    VX_TRY(random_tensor(o, arena, &w, 1, b->hidden, 1));
    o->t[2] = vx_tensor_row(w, 0);
    VX_TRY(random_tensor(o, arena, &o->t[3], 3, b->hidden, 0.001f)); // gates that leave the sum where it is
    VX_TRY(random_tensor(o, arena, &o->t[4], 3, b->hidden, 1));
    o->t[5] = vx_arena_tensor(arena, VX_I32, b->rows);
    *bytes = 8.0 * (double)b->rows * (double)b->hidden;
    if (vx_device_is_plan(o->device)) return vx_ok();
    int32_t *row = vx_alloc_array((size_t)b->rows, sizeof *row);
    VX_NEED_MEMORY(row, "a row map");
    for (int64_t i = 0; i < b->rows; i++) row[i] = i < 100 ? 1 : i < 514 ? 2 : 0; // text, sound, picture
    vx_status s = vx_upload(o->device, o->t[5], row);
    vx_free(row);
    return s;
}

static vx_status hash_of(operation *o, char hex[65])
{
    vx_tensor t = o->t[0];
    if (!vx_tensor_contiguous(t)) return hex[0] = 0, vx_ok(); // written in place among others
    enum { MOST_ROWS = 512 };                                 // two gigabytes would take longer to hash than all runs
    if (t.shape[0] > MOST_ROWS) t = vx_tensor_slice(t, 0, 0, MOST_ROWS);
    void *host = vx_alloc(vx_tensor_bytes(t));
    VX_NEED_MEMORY(host, "a result");
    vx_status s = vx_download(o->device, host, t);
    vx_sha256 hash;
    vx_sha256_init(&hash);
    vx_sha256_put(&hash, host, vx_tensor_bytes(t));
    vx_sha256_hex(&hash, hex);
    vx_free(host);
    return s;
}

typedef struct measured {
    double sample[VX_BENCH_RUNS], flop, bytes;
    int64_t n, k; // of a product
    char hex[65];
} measured;

static vx_status measure(vx_device *device, const block *b, const char *what, run_fn run, int runs, measured *m)
{
    operation *o = vx_alloc_array(1, sizeof *o);
    VX_NEED_MEMORY(o, "an operation");
    vx_device *plan = NULL;
    vx_arena *arena = NULL;
    vx_status s = vx_device_plan_create(&plan, device);
    o->device = plan;
    if (!s.code) s = vx_arena_create(plan, &arena, 0);
    if (!s.code) s = set_up(o, arena, b, what, &m->flop, &m->bytes);
    if (!s.code) s = run(o);
    const size_t bytes = arena ? vx_arena_high(arena) : 0, scratch = s.code ? 0 : vx_device_plan_counts(plan).scratch;
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    memset(o, 0, sizeof *o);
    o->device = device;
    if (!s.code) s = vx_arena_create(device, &arena, bytes);
    if (!s.code) s = vx_device_reserve(device, scratch);
    if (!s.code) s = set_up(o, arena, b, what, &m->flop, &m->bytes);
    m->n = o->weight.n;
    m->k = o->weight.k;
    for (int i = -1; i < runs && !s.code; i++) { // the first warms up
        s = vx_device_sync(device);
        double began = vx_clock_s();
        if (!s.code) s = run(o);
        if (!s.code) s = vx_device_sync(device);
        if (i >= 0) m->sample[i] = vx_clock_s() - began;
    }
    if (!s.code) s = hash_of(o, m->hex);
    vx_arena_destroy(&arena);
    vx_device_release(device);
    vx_free(o);
    return s;
}

static json_t *part_object(const char *name, int times, const measured *m, int runs)
{
    const double median = vx_bench_median(m->sample, runs);
    json_t *part = json_pack("{s:s, s:i, s:f, s:o}", "name", name, "times_a_block", times, "median_s", median, "samples_s",
                             vx_bench_samples(m->sample, runs));
    if (m->n > 0) json_object_set_new(part, "n_k", json_pack("[I, I]", (json_int_t)m->n, (json_int_t)m->k));
    if (m->flop > 0) json_object_set_new(part, "flop", json_real(m->flop));
    if (m->flop > 0) json_object_set_new(part, "tflop_per_s", json_real(m->flop / median * 1e-12));
    if (m->bytes > 0) json_object_set_new(part, "bytes", json_real(m->bytes));
    if (m->bytes > 0) json_object_set_new(part, "gbyte_per_s", json_real(m->bytes / median * 1e-9));
    if (*m->hex) json_object_set_new(part, "head_sha256", json_string(m->hex));
    return part;
}

vx_status vx_bench_operator(vx_bench_run *run, vx_device *device)
{
    static const struct {
        const char *group, *name;
        run_fn run;
        int times; // in a block
    } all[] = {
        { "linear", "qkv", run_linear, 1 },
        { "linear", "out", run_linear, 1 },
        { "linear", "fc1", run_linear, 1 },
        { "linear", "fc2", run_linear, 1 },
        { "attention", "attention", run_attention, 1 },
        { "elementwise", "gate_add_norm", run_half, 2 },
        { "elementwise", "qk_norm_rope", run_rope, 1 },
        { "elementwise", "swiglu", run_swiglu, 1 },
    };
    const block *b = vx_device_far(device) ? &released : &small;
    json_t *parts = json_array();
    json_object_set_new(run->report, "rows", json_integer(b->rows));
    json_object_set_new(run->report, "hidden", json_integer(b->hidden));
    json_object_set_new(run->report, "operators", parts);
    measured *m = vx_alloc_array(1, sizeof *m);
    VX_NEED_MEMORY(m, "a bench");
    vx_device_watch(device, run->params->cancelled);
    vx_status s = vx_ok();
    for (size_t i = 0; i < sizeof all / sizeof *all && !s.code; i++) {
        if (strcmp(all[i].group, run->params->what)) continue;
        s = measure(device, b, all[i].name, all[i].run, run->runs, m);
        if (s.code) break;
        json_array_append_new(parts, part_object(all[i].name, all[i].times, m, run->runs));
        for (int k = 0; k < run->runs; k++) run->sample[k] += all[i].times * m->sample[k];
        run->flop += all[i].times * m->flop;
        run->bytes += all[i].times * m->bytes;
    }
    vx_device_watch(device, NULL);
    vx_free(m);
    vx_bench_tell_choices(run->report, device);
    return s;
}
