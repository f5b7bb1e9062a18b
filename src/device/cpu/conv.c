// vx_conv1d and vx_conv_transpose1d as products: rows are output channels, columns are positions in time, k is (tap,
// channel). B is never formed: its row for a tap and a channel is a stretch of that channel's samples.
//
// One engine for both. Output position n = phases * q + phase. For each phase a list of taps; the tap's sample for q stands
// at in_stride * q + at. A convolution has one phase and in_stride = stride, at = tap * dilation - padding; a transposed
// one has stride phases, in_stride = 1, and at = (phase + padding) / stride - u for its taps j = (phase + padding) % stride +
// stride * u. Taps in increasing j, channels inside.
//
// A piece is some row blocks at a stretch of positions. The samples it needs, zeros beyond the ends included, are copied into
// a window [channels][in_stride][span]: sample in_stride * i + r of the window stands at [r][i], so that B rows are dense.
// Pieces of different rows share windows, which are filled for some stretches at a time; where one piece has all rows it
// fills its own. Lines are further stretches, for the weights are the same; short lines are all a piece's.
#include "base/checked.h"
#include "device/cpu/cpu.h"
#include "device/cpu/dense.h"
#include <string.h>

enum {
    WINDOW_FLOATS = 192 << 10, // 768 KiB of the second-level cache for the window of a piece
    MOST_POSITIONS = 512,
    PIECE_BLOCKS = 4,       // row blocks of a piece
    SHARED_BYTES = 8 << 20, // of windows that are filled at a time
    PACK_TAPS = 16,         // taps that are packed at a time
    AHEAD = 8,              // channels of a transposed weight asked for ahead: each is pages away from the last
    FILL_PARTS = 4,         // pieces that fill one of them
};

// Where a tap of the weight is used: it is the index-th of its phase's list.
struct slot {
    int64_t phase, index;
};

struct shape {
    int64_t co, ci, taps, phases, in_stride, lo, li, q_count;
    int64_t least, reach;     // sample 0 of the window of q0 = in_stride * q0 + least; samples it reaches beyond a position's
    int64_t tile, span;       // positions q of a piece; floats of one [r] of the window's channels
    int64_t tiles, stretches; // of a line; of all
    int64_t row_blocks, piece_blocks, block_taps, block_channels, most_blocks;
    int64_t groups, chunk; // pieces that share a window; windows filled at a time
    int mr, nr;
    bool shared;
    size_t taps_bytes, row_weights, weights, window, windows, worker, weights_offset, c_offset;
};

struct job {
    const vx_conv1d_args *args;
    const struct vx_dense_kernels *kernels;
    struct shape s;
    bool transposed;
    struct slot *slot;  // [taps]
    int64_t *tap_count; // [phases]
    ptrdiff_t *offset;  // [phases][taps] of a phase's list, in a window's channel
    char *weights, *windows, *workers;
    int64_t first; // of the stretches whose windows are filled
};

// ---- the taps ----
static int64_t phase_taps(const vx_conv1d_args *args, int64_t taps, bool transposed, int64_t phase)
{
    if (!transposed) return taps;
    const int64_t first = (phase + args->padding) % args->stride;
    return first < taps ? (taps - first - 1) / args->stride + 1 : 0;
}
static int64_t tap_index(const vx_conv1d_args *args, bool transposed, int64_t phase, int64_t u)
{
    return transposed ? (phase + args->padding) % args->stride + args->stride * u : u;
}
static int64_t tap_at(const vx_conv1d_args *args, bool transposed, int64_t phase, int64_t u)
{
    return transposed ? (phase + args->padding) / args->stride - u : u * args->dilation - args->padding;
}

static struct shape shape_of(const struct vx_dense_kernels *kernels, const vx_conv1d_args *args, bool transposed)
{
    const vx_tensor w = args->w;
    struct shape s = { .co = args->out.shape[0], .lo = args->out.shape[2], .ci = args->x.shape[0], .li = args->x.shape[2] };
    s.mr = kernels->mr;
    s.nr = kernels->nr;
    s.taps = w.shape[2];
    s.phases = transposed ? args->stride : 1;
    s.in_stride = transposed ? 1 : args->stride;
    s.q_count = vx_ceil_div(s.lo, s.phases);
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (int64_t phase = 0; phase < s.phases; phase++) {
        const int64_t count = phase_taps(args, s.taps, transposed, phase);
        if (count == 0) continue;
        const int64_t a = tap_at(args, transposed, phase, 0), b = tap_at(args, transposed, phase, count - 1);
        least = vx_min_i64(least, vx_min_i64(a, b));
        most = vx_max_i64(most, vx_max_i64(a, b));
    }
    s.least = least;
    s.reach = vx_ceil_div(most - least + 1, s.in_stride); // in units of [r]
    const int64_t fits = WINDOW_FLOATS / vx_max_i64(1, s.ci * s.in_stride) - s.reach;
    s.tile = vx_max_i64(s.nr, vx_min_i64(MOST_POSITIONS, fits) / s.nr * s.nr);
    s.tile = vx_min_i64(s.tile, vx_ceil_div(s.q_count, s.nr) * s.nr);
    s.tiles = vx_ceil_div(s.q_count, s.tile);
    s.stretches = s.tiles * args->x.shape[1];
    s.span = (s.tile + s.reach + 15) / 16 * 16;
    s.row_blocks = vx_ceil_div(s.co, s.mr);
    s.piece_blocks = vx_min_i64(PIECE_BLOCKS, s.row_blocks);
    // Blocks of k: whole taps while several fit, else parts of one.
    s.block_channels = vx_min_i64(VX_DENSE_K, vx_max_i64(1, s.ci));
    s.block_taps = s.ci < VX_DENSE_K ? VX_DENSE_K / vx_max_i64(1, s.ci) : 1;
    const int64_t longest = transposed ? vx_ceil_div(s.taps, args->stride) : s.taps;
    s.most_blocks = vx_max_i64(1, vx_ceil_div(longest, s.block_taps) * vx_ceil_div(s.ci, s.block_channels));
    const size_t tile = (size_t)s.mr * VX_DENSE_K_STRIDE * 4, slots = (size_t)(s.phases * s.taps);
    s.taps_bytes = (size_t)s.taps * sizeof(struct slot) + slots * sizeof(ptrdiff_t) + (size_t)s.phases * sizeof(int64_t);
    s.taps_bytes = vx_align_up(s.taps_bytes, 4096);
    s.row_weights = (size_t)(s.phases * s.most_blocks) * tile;
    s.groups = vx_ceil_div(s.row_blocks, s.piece_blocks);
    s.shared = s.groups > 1;
    s.window = vx_align_up((size_t)(s.ci * s.in_stride * s.span) * 4, 64);
    s.chunk = s.stretches;
    if (s.shared) {
        s.chunk = vx_min_i64(s.stretches, vx_max_i64(1, SHARED_BYTES / (int64_t)vx_align_up(s.window, 4096)));
        s.windows = vx_align_up(s.window * (size_t)s.chunk, 4096);
    }
    // Lines of a single stretch go through one piece, where their windows are there together: every row block's weights are used by
    // one piece, which packs them.
    const bool once = s.stretches == 1 || (s.tiles == 1 && s.shared && s.chunk == s.stretches);
    s.weights = once ? 0 : vx_align_up(s.row_weights * (size_t)s.row_blocks, 4096);
    s.weights_offset = s.shared ? 0 : s.window;
    s.c_offset = s.weights_offset + (s.weights ? 0 : s.row_weights);
    s.worker = vx_align_up(s.c_offset + (size_t)(s.phases * s.mr * s.tile) * 4 + (size_t)(s.phases * s.tile) * 4, 4096);
    return s;
}

static void list_taps(struct job *job)
{
    const struct shape *s = &job->s;
    for (int64_t phase = 0; phase < s->phases; phase++) {
        job->tap_count[phase] = phase_taps(job->args, s->taps, job->transposed, phase);
        for (int64_t u = 0; u < job->tap_count[phase]; u++) {
            const int64_t from = tap_at(job->args, job->transposed, phase, u) - s->least;
            const ptrdiff_t offset = from % s->in_stride * s->span + from / s->in_stride;
            job->slot[tap_index(job->args, job->transposed, phase, u)] = (struct slot){ phase, u };
            job->offset[phase * s->taps + u] = offset;
        }
    }
}

// ---- blocks of k ----
struct block {
    int64_t tap, channel; // the first
    int taps, channels;
};

static int64_t blocks_of(const struct job *job, int64_t phase)
{
    const struct shape *s = &job->s;
    return vx_ceil_div(job->tap_count[phase], s->block_taps) * vx_ceil_div(s->ci, s->block_channels);
}
static struct block block_at(const struct job *job, int64_t phase, int64_t index)
{
    const struct shape *s = &job->s;
    const int64_t parts = vx_ceil_div(s->ci, s->block_channels);
    struct block b = { .tap = index / parts * s->block_taps, .channel = index % parts * s->block_channels };
    b.taps = (int)vx_min_i64(s->block_taps, job->tap_count[phase] - b.tap);
    b.channels = (int)vx_min_i64(s->block_channels, s->ci - b.channel);
    return b;
}
// `weights` are one row block's.
static float *weight_tile(const struct shape *s, float *weights, int64_t phase, int64_t block)
{
    return weights + (phase * s->most_blocks + block) * s->mr * VX_DENSE_K_STRIDE;
}

// Taps first .. last - 1 of the weight, of all channels of one part, for one row block. The weight is [co, ci, taps], or
// transposed [ci, co, taps], and is read in the order in which it stands: a page is met once.
static void pack_taps(const struct job *job, int64_t row_block, float *weights, int64_t channel, int first, int last)
{
    const struct shape *s = &job->s;
    float *to[PACK_TAPS];
    const int64_t parts = vx_ceil_div(s->ci, s->block_channels), part = channel / s->block_channels;
    const int channels = (int)vx_min_i64(s->block_channels, s->ci - channel);
    for (int j = first; j < last; j++) {
        const int64_t phase = job->slot[j].phase, u = job->slot[j].index;
        to[j - first] = weight_tile(s, weights, phase, u / s->block_taps * parts + part) + u % s->block_taps * channels;
    }
    const float *w = vx_f32_of(job->args->w);
    const int64_t row = row_block * s->mr, rows = vx_min_i64(s->mr, s->co - row);
    for (int64_t outer = 0; outer < (job->transposed ? channels : rows); outer++) {
        if (job->transposed && outer + AHEAD < channels) {
            const char *line = (const char *)(w + ((channel + outer + AHEAD) * s->co + row) * s->taps);
            for (int64_t b = 0; b < rows * s->taps * 4; b += 64) __builtin_prefetch(line + b);
        }
        for (int64_t inner = 0; inner < (job->transposed ? rows : channels); inner++) {
            const int64_t i = job->transposed ? inner : outer, c = job->transposed ? outer : inner;
            const int64_t at = job->transposed ? (channel + c) * s->co + row + i : (row + i) * s->ci + channel + c;
            for (int j = 0; j < last - first; j++) to[j][i * VX_DENSE_K_STRIDE + c] = w[at * s->taps + first + j];
        }
    }
}

static void pack_row_block(const struct job *job, int64_t row_block, float *weights)
{
    const struct shape *s = &job->s;
    for (int64_t channel = 0; channel < s->ci; channel += s->block_channels) {
        for (int64_t first = 0; first < s->taps; first += PACK_TAPS)
            pack_taps(job, row_block, weights, channel, (int)first, (int)vx_min_i64(s->taps, first + PACK_TAPS));
    }
}

// piece: one row block's weights, every phase
static void pack_weights(void *ctx, int64_t piece, int worker)
{
    (void)worker;
    const struct job *job = ctx;
    pack_row_block(job, piece, (float *)(job->weights + (size_t)piece * job->s.row_weights));
}

// ---- a piece ----
static void fill_line(const struct shape *s, float *to, const float *x, int64_t begin)
{
    // Sample begin + i, i < span.
    const int64_t before = vx_min_i64(s->span, vx_max_i64(0, -begin));
    const int64_t end = vx_max_i64(before, vx_min_i64(s->span, s->li - begin));
    memset(to, 0, (size_t)before * 4);
    if (end > before) memcpy(to + before, x + begin + before, (size_t)(end - before) * 4);
    memset(to + end, 0, (size_t)(s->span - end) * 4);
}

static void fill_window(const struct job *job, float *window, int64_t stretch, int64_t first, int64_t last)
{
    const struct shape *s = &job->s;
    const int64_t begin = stretch % s->tiles * s->tile * s->in_stride + s->least, line = stretch / s->tiles;
    window += first * s->in_stride * s->span;
    for (int64_t c = first; c < last; c++) {
        const float *x = vx_f32_of(job->args->x) + c * job->args->x.stride[0] + line * job->args->x.stride[1];
        if (s->in_stride == 1) {
            fill_line(s, window, x, begin);
            window += s->span;
            continue;
        }
        for (int64_t r = 0; r < s->in_stride; r++, window += s->span) {
            for (int64_t i = 0; i < s->span; i++) {
                const int64_t at = begin + i * s->in_stride + r;
                window[i] = at >= 0 && at < s->li ? x[at] : 0.0f;
            }
        }
    }
}

// The sums of one row block and phase: c[rows][tile].
static void multiply(const struct job *job, float *weights, int rows, int64_t phase, const float *window, float *c, int64_t count)
{
    const struct shape *s = &job->s;
    const int64_t blocks = blocks_of(job, phase);
    if (blocks == 0) memset(c, 0, (size_t)(rows * s->tile) * 4);
    for (int64_t i = 0; i < blocks; i++) {
        const struct block b = block_at(job, phase, i);
        const float *a = weight_tile(s, weights, phase, i);
        vx_dense_rows rows_of_b = { .offset = job->offset + phase * s->taps + b.tap, .outer = b.taps, .inner = b.channels };
        rows_of_b.step = s->in_stride * s->span;
        for (int64_t j = 0; j < count; j += s->nr) {
            rows_of_b.b = window + b.channel * rows_of_b.step + j;
            job->kernels->tile(rows, a, &rows_of_b, c + j, s->tile, i > 0);
        }
    }
}

static float *row_at(vx_tensor t, int64_t row, int64_t line)
{
    return vx_f32_of(t) + row * t.stride[0] + line * t.stride[1];
}

// Phases interleave, bias and residual are added. `mixed` has room for one row.
static void write_rows(const struct job *job, int64_t row, int rows, int64_t stretch, const float *c, float *mixed)
{
    const struct shape *s = &job->s;
    const vx_conv1d_args *a = job->args;
    const int64_t line = stretch / s->tiles, n0 = stretch % s->tiles * s->tile * s->phases;
    const int64_t count = vx_min_i64(s->lo - n0, s->tile * s->phases);
    for (int i = 0; i < rows; i++) {
        const float *from = c + i * s->tile;
        if (s->phases > 1) {
            for (int64_t phase = 0; phase < s->phases; phase++) {
                const float *sums = from + phase * s->mr * s->tile;
                for (int64_t q = 0; q * s->phases + phase < count; q++) mixed[q * s->phases + phase] = sums[q];
            }
            from = mixed;
        }
        const float *bias = a->bias.rank ? vx_f32_of(a->bias) + (row + i) * a->bias.stride[0] : NULL;
        const float *residual = a->residual.rank ? row_at(a->residual, row + i, line) + n0 : NULL;
        job->kernels->finish_row(row_at(a->out, row + i, line) + n0, from, bias, residual, (int)count);
    }
}

// piece: a share of the channels of one of the windows filled now
static void fill_shared(void *ctx, int64_t piece, int worker)
{
    (void)worker;
    const struct job *job = ctx;
    const int64_t slot = piece / FILL_PARTS, part = piece % FILL_PARTS, ci = job->s.ci;
    float *window = (float *)(job->windows + (size_t)slot * job->s.window);
    fill_window(job, window, job->first + slot, part * ci / FILL_PARTS, (part + 1) * ci / FILL_PARTS);
}

// piece: some row blocks at one of the stretches of now, or at all; neighbours share the window
static void convolve(void *ctx, int64_t piece, int worker)
{
    const struct job *job = ctx;
    const struct shape *s = &job->s;
    const int64_t first = piece % s->groups * s->piece_blocks;
    const int64_t begin = job->first + piece / s->groups, end = s->weights ? begin + 1 : s->stretches;
    char *mine = job->workers + (size_t)worker * s->worker;
    float *c = (float *)(mine + s->c_offset), *mixed = c + s->phases * s->mr * s->tile;
    if (!s->shared) fill_window(job, (float *)mine, begin, 0, s->ci);
    for (int64_t block = first; block < vx_min_i64(s->row_blocks, first + s->piece_blocks); block++) {
        const int64_t row = block * s->mr;
        const int rows = (int)vx_min_i64(s->mr, s->co - row);
        float *weights = (float *)(s->weights ? job->weights + (size_t)block * s->row_weights : mine + s->weights_offset);
        if (!s->weights) pack_row_block(job, block, weights);
        for (int64_t stretch = begin; stretch < end; stretch++) {
            const float *window = (float *)(s->shared ? job->windows + (size_t)(stretch - job->first) * s->window : mine);
            const int64_t count = vx_min_i64(s->tile, s->q_count - stretch % s->tiles * s->tile);
            for (int64_t phase = 0; phase < s->phases; phase++)
                multiply(job, weights, rows, phase, window, c + phase * s->mr * s->tile, count);
            write_rows(job, row, rows, stretch, c, mixed);
        }
    }
}

// ---- entries ----
static size_t scratch_of(const vx_device *dev, const vx_conv1d_args *args, bool transposed)
{
    const vx_cpu *cpu = vx_cpu_of_const(dev);
    const struct shape s = shape_of(vx_dense_kernels(cpu->isa), args, transposed);
    return s.taps_bytes + s.weights + s.windows + s.worker * (size_t)cpu->threads;
}

static vx_status run(vx_device *dev, const vx_conv1d_args *args, bool transposed)
{
    vx_cpu *cpu = vx_cpu_of(dev);
    struct job job = { .args = args, .kernels = vx_dense_kernels(cpu->isa), .transposed = transposed };
    job.s = shape_of(job.kernels, args, transposed);
    const size_t slots = (size_t)(job.s.phases * job.s.taps);
    void *scratch;
    VX_TRY(vx_cpu_scratch(cpu, scratch_of(dev, args, transposed), &scratch));
    job.slot = scratch;
    job.offset = (ptrdiff_t *)(job.slot + job.s.taps);
    job.tap_count = (int64_t *)(job.offset + slots);
    job.weights = (char *)scratch + job.s.taps_bytes;
    job.windows = job.weights + job.s.weights;
    job.workers = job.windows + job.s.windows;
    list_taps(&job);
    if (job.s.weights) vx_pool_run(cpu->pool, job.s.row_blocks, pack_weights, &job);
    for (; job.first < job.s.stretches; job.first += job.s.chunk) {
        const int64_t stretches = vx_min_i64(job.s.chunk, job.s.stretches - job.first);
        if (job.s.shared) vx_pool_run(cpu->pool, stretches * FILL_PARTS, fill_shared, &job);
        vx_pool_run(cpu->pool, (job.s.weights ? stretches : 1) * job.s.groups, convolve, &job);
    }
    return vx_ok();
}

size_t vx_cpu_conv1d_scratch(const vx_device *dev, const vx_conv1d_args *args)
{
    return scratch_of(dev, args, false);
}
size_t vx_cpu_conv_transpose1d_scratch(const vx_device *dev, const vx_conv1d_args *args)
{
    return scratch_of(dev, args, true);
}

vx_status vx_cpu_conv1d(vx_device *dev, const vx_conv1d_args *args)
{
    return run(dev, args, false);
}
vx_status vx_cpu_conv_transpose1d(vx_device *dev, const vx_conv1d_args *args)
{
    return run(dev, args, true);
}
