// vx_attention: flash attention over panels. Keys and values of some key heads at a time are packed once; a piece is a
// block of query rows of one head, which goes through the key blocks in order.
//
// For one tile of mr rows and one key block: scores = Q tile x K panels, then softmax row by row, then O += weights x V
// panels. The tile of scores is laid out as an A tile, so the second product reads it where the first left it, in the
// first-level cache; K and V of a block are used by all tiles of the piece while they stand in the second.
//
// A key block's own order: scores as vx_linear sums; row maximum; weights and their sum (dense.h); O is multiplied by the
// correction (not when it is exactly 1), then goes on as one chain over the keys of the block, pairs as in vx_linear.
#include "base/checked.h"
#include "device/cpu/cpu.h"
#include "device/cpu/dense.h"
#include "device/cpu/rows.h"
#include <math.h>

enum {
    KEY_BLOCK = VX_DENSE_K,
    BLOCK_TILES = 10,        // 140 rows: K and V of a block (1 MiB at head_dim 256) cross the third-level cache once for them
    PACKED_BYTES = 64 << 20, // bound of the packed keys and values, unless one head needs more
};

struct shape {
    int64_t sq, skv, heads, kv_heads, d, key_blocks, query_blocks, together; // together: key heads packed at a time
    int mr, nr;
    int64_t key_floats, value_floats; // of one packed key block
    size_t head_bytes, packed, worker, score_offset, out_offset, row_offset;
};

struct job {
    const vx_attention_args *args;
    const struct vx_dense_kernels *kernels;
    struct shape s;
    int64_t first, count; // key heads packed now
    char *packed, *workers;
    const struct vx_row_kernels *rows;
    bool bf16, f16;
};

static int64_t whole(int64_t n, int64_t unit)
{
    return vx_ceil_div(n, unit) * unit;
}

static struct shape shape_of(const struct vx_dense_kernels *kernels, const vx_attention_args *args)
{
    struct shape s = { .sq = args->q.shape[0], .heads = args->q.shape[1], .d = args->q.shape[2], .skv = args->k.shape[0] };
    s.kv_heads = args->k.shape[1];
    s.mr = kernels->mr;
    s.nr = kernels->nr;
    s.key_blocks = vx_ceil_div(s.skv, KEY_BLOCK);
    s.query_blocks = vx_ceil_div(s.sq, s.mr * BLOCK_TILES);
    const int64_t keys = vx_min_i64(KEY_BLOCK, whole(s.skv, 2));
    s.key_floats = whole(keys, s.nr) * s.d;
    s.value_floats = keys * whole(s.d, s.nr);
    s.head_bytes = (size_t)s.key_blocks * (size_t)(s.key_floats + s.value_floats) * 4;
    s.together = vx_min_i64(s.kv_heads, vx_max_i64(1, PACKED_BYTES / (int64_t)s.head_bytes));
    s.packed = vx_align_up(s.head_bytes * (size_t)s.together, 4096);
    const size_t tile = (size_t)s.mr * VX_DENSE_K_STRIDE * 4;
    const int64_t tiles = vx_min_i64(BLOCK_TILES, vx_ceil_div(s.sq, s.mr));
    s.score_offset = (size_t)tiles * tile;
    s.out_offset = s.score_offset + tile;
    s.row_offset = s.out_offset + (size_t)(tiles * s.mr * whole(s.d, s.nr)) * 4;
    s.worker = vx_align_up(s.row_offset + (size_t)(tiles * s.mr) * sizeof(vx_softmax_row), 4096);
    return s;
}

static void *row_of(vx_tensor t, int64_t token, int64_t head, int64_t channel)
{
    return (char *)t.data + (token * t.stride[0] + head * t.stride[1] + channel) * (vx_dtype_bits(t.dtype) / 8);
}

static int keys_in(const struct shape *s, int64_t block)
{
    return (int)vx_min_i64(KEY_BLOCK, s->skv - block * KEY_BLOCK);
}
static float *packed_keys(const struct job *job, int64_t slot, int64_t block)
{
    return (float *)(job->packed + (size_t)slot * job->s.head_bytes) + block * (job->s.key_floats + job->s.value_floats);
}

// piece: one key block of one of the key heads packed now
static void pack_keys_and_values(void *ctx, int64_t piece, int worker)
{
    (void)worker;
    const struct job *job = ctx;
    const struct shape *s = &job->s;
    const vx_tensor k = job->args->k, v = job->args->v;
    const int64_t slot = piece / s->key_blocks, block = piece % s->key_blocks, head = job->first + slot;
    const int keys = keys_in(s, block);
    float *to = packed_keys(job, slot, block);
    for (int j = 0; j < keys; j += s->nr) {
        job->kernels->pack(to + j * s->d, row_of(k, block * KEY_BLOCK + j, head, 0), k.stride[0],
                           (int)vx_min_i64(s->nr, keys - j), (int)s->d, k.dtype, job->bf16);
    }
    to += s->key_floats;
    const int even = job->bf16 ? (keys + 1) & ~1 : keys;
    for (int64_t c = 0; c < s->d; c += s->nr, to += (ptrdiff_t)even * s->nr) {
        job->kernels->spread(to, row_of(v, block * KEY_BLOCK, head, c), v.stride[0], keys, (int)vx_min_i64(s->nr, s->d - c),
                             v.dtype, job->bf16);
    }
}

static void hide_later_keys(const struct job *job, int64_t row, int rows, int64_t key0, int keys, float *scores)
{
    const float never = job->args->scale < 0 ? INFINITY : -INFINITY;
    for (int i = 0; i < rows; i++) {
        for (int64_t j = vx_max_i64(0, row + i + 1 - key0); j < keys; j++) scores[i * VX_DENSE_K_STRIDE + j] = never;
    }
}

// The weights that meet the values, rounded.
static void round_to_half(const struct job *job, int rows, int keys, float *scores)
{
    uint16_t half[KEY_BLOCK];
    for (int i = 0; i < rows; i++, scores += VX_DENSE_K_STRIDE) {
        job->rows->convert(half, VX_F16, scores, VX_F32, keys);
        job->rows->convert(scores, VX_F32, half, VX_F16, keys);
    }
}

// One tile of query rows meets one key block.
static void tile_block(const struct job *job, const float *packed, int64_t block, int64_t row, int rows, const float *q,
                       float *scores, float *out, vx_softmax_row *state)
{
    const struct shape *s = &job->s;
    const int keys = keys_in(s, block), even = job->bf16 ? (keys + 1) & ~1 : keys;
    const int64_t width = whole(s->d, s->nr), key0 = block * KEY_BLOCK;
    const ptrdiff_t none = 0;
    for (int j = 0; j < keys; j += s->nr) {
        const vx_dense_rows b = { packed + j * s->d, &none, 1, (int)s->d, s->nr };
        job->kernels->tile(rows, q, &b, scores + j, VX_DENSE_K_STRIDE, false);
    }
    if (job->args->causal) hide_later_keys(job, row, rows, key0, keys, scores);
    job->kernels->softmax(scores, rows, keys, job->args->scale, job->bf16, state);
    if (job->f16) round_to_half(job, rows, keys, scores);
    for (int i = 0; i < rows && block > 0; i++) {
        if (state[i].correction != 1.0f) job->kernels->rescale(out + i * width, state[i].correction, (int)width);
    }
    packed += s->key_floats;
    for (int64_t c = 0; c < width; c += s->nr, packed += (ptrdiff_t)even * s->nr) {
        const vx_dense_rows b = { packed, &none, 1, even, s->nr };
        job->kernels->tile(rows, scores, &b, out + c, width, block > 0);
    }
}

// piece: one block of query rows of one head
static void attend(void *ctx, int64_t piece, int worker)
{
    const struct job *job = ctx;
    const struct shape *s = &job->s;
    const vx_tensor q = job->args->q, o = job->args->out;
    const int64_t group = s->heads / s->kv_heads, width = whole(s->d, s->nr);
    const int64_t slot = piece / s->query_blocks / group, head = (job->first * group) + piece / s->query_blocks;
    const int64_t top = piece % s->query_blocks * s->mr * BLOCK_TILES;
    const int64_t bottom = vx_min_i64(s->sq, top + s->mr * BLOCK_TILES);
    char *mine = job->workers + (size_t)worker * s->worker;
    float *tiles = (float *)mine, *scores = (float *)(mine + s->score_offset), *out = (float *)(mine + s->out_offset);
    vx_softmax_row *state = (vx_softmax_row *)(mine + s->row_offset);
    for (int64_t row = top; row < bottom; row += s->mr) {
        job->kernels->widen(tiles + (row - top) * VX_DENSE_K_STRIDE, row_of(q, row, head, 0), q.stride[0],
                            (int)vx_min_i64(s->mr, bottom - row), (int)s->d, q.dtype, job->bf16);
    }
    for (int64_t i = 0; i < bottom - top; i++) state[i] = (vx_softmax_row){ .max = -INFINITY };
    for (int64_t block = 0; block < s->key_blocks; block++) {
        for (int64_t row = top; row < bottom; row += s->mr) {
            const int rows = (int)vx_min_i64(s->mr, bottom - row);
            if (job->args->causal && block * KEY_BLOCK > row + rows - 1) continue;
            tile_block(job, packed_keys(job, slot, block), block, row, rows, tiles + (row - top) * VX_DENSE_K_STRIDE, scores,
                       out + (row - top) * width, state + (row - top));
        }
    }
    for (int64_t i = 0; i < bottom - top; i++)
        job->kernels->divide(row_of(o, top + i, head, 0), o.dtype, out + i * width, state[i].sum, (int)s->d);
}

size_t vx_cpu_attention_scratch(const vx_device *dev, const vx_attention_args *args)
{
    const vx_cpu *cpu = vx_cpu_of_const(dev);
    const vx_attention_args first = vx_attention_item(args, 0);
    const struct shape s = shape_of(vx_dense_kernels(cpu->isa), &first);
    return s.packed + s.worker * (size_t)cpu->threads;
}

static vx_status attend_item(vx_cpu *cpu, const vx_attention_args *args)
{
    struct job job = { .args = args, .kernels = vx_dense_kernels(cpu->isa), .rows = cpu->rows };
    job.bf16 = args->q.dtype == VX_BF16;
    job.f16 = args->q.dtype == VX_F16;
    job.s = shape_of(job.kernels, args);
    void *scratch;
    VX_TRY(vx_cpu_scratch(cpu, job.s.packed + job.s.worker * (size_t)cpu->threads, &scratch));
    job.packed = scratch;
    job.workers = job.packed + job.s.packed;
    const int64_t group = job.s.heads / job.s.kv_heads;
    for (job.first = 0; job.first < job.s.kv_heads; job.first += job.s.together) {
        job.count = vx_min_i64(job.s.together, job.s.kv_heads - job.first);
        vx_pool_run(cpu->pool, job.count * job.s.key_blocks, pack_keys_and_values, &job);
        vx_pool_run(cpu->pool, job.count * group * job.s.query_blocks, attend, &job);
    }
    return vx_ok();
}

vx_status vx_cpu_attention(vx_device *dev, const vx_attention_args *args)
{
    for (int64_t i = 0; i < vx_attention_items(args); i++) {
        const vx_attention_args item = vx_attention_item(args, i);
        VX_TRY(attend_item(vx_cpu_of(dev), &item));
    }
    return vx_ok();
}
