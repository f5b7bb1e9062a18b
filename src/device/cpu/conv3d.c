// vx_conv3d as a product: rows are output channels, columns are the positions of one output frame, k is (tap, channel).
//
// A piece is a stretch of positions and a group of row blocks. k goes by in blocks; for each the piece gathers its B panels,
// [k][nr] of input numbers with the padding resolved, which stay in the second-level cache while every row block of the group
// meets them. The weight is packed once, into the tiles that the product wants. No padded or unfolded copy of the input exists.
//
// Blocks of k never cross a frame tap, so an output frame whose first frame taps only meet zeros begins at a later block.
// Leaving them out changes no bit where weights are finite: the sum begins with +0, and +0 + w * 0 is +0.
#include "base/checked.h"
#include "device/cpu/cpu.h"
#include "device/cpu/dense.h"
#include "device/cpu/element.h"
#include "device/cpu/rows.h"

enum {
    PIECE_COLUMNS = 256, // B panels of VX_DENSE_K x 256 floats are 512 KiB: a quarter of the second-level cache
    GROUP_BLOCKS = 12,   // row blocks that share gathered panels: gathering costs about as much as a fifth of one
};

// Columns of a piece that come from one row of one tap: panel column dst and the following.
struct segment {
    int64_t dst, src, count; // floats; src < 0: zeros
};

struct shape {
    int64_t co, ci, kt, kh, kw, positions, width;
    int64_t first_tap, tap_k, tap_blocks, block; // frame taps before the first are never used; k of a frame tap; its blocks
    int64_t row_blocks, groups, group_blocks, tiles, columns, ldc;
    int mr, nr;
    size_t weights, segments, c_offset, b_offset, worker; // bytes; the offsets are within a worker's part
};

struct job {
    const vx_conv3d_args *args;
    const struct vx_dense_kernels *kernels;
    struct shape s;
    float *weights;
    char *workers;
};

static struct shape shape_of(const struct vx_dense_kernels *kernels, const vx_conv3d_args *args)
{
    const vx_tensor w = args->w, out = args->out;
    struct shape s = { .co = w.shape[0], .ci = w.shape[1], .kt = w.shape[2], .kh = w.shape[3], .kw = w.shape[4] };
    s.mr = kernels->mr;
    s.nr = kernels->nr;
    s.width = out.shape[3];
    s.positions = out.shape[2] * s.width;
    s.first_tap = vx_conv3d_first_tap(args, out.shape[1] - 1);
    s.tap_k = s.kh * s.kw * s.ci;
    s.tap_blocks = vx_ceil_div(s.tap_k, VX_DENSE_K);
    s.block = s.tap_blocks ? vx_ceil_div(s.tap_k, s.tap_blocks) : 0;
    s.row_blocks = vx_ceil_div(s.co, s.mr);
    s.groups = vx_ceil_div(s.row_blocks, GROUP_BLOCKS);
    s.group_blocks = vx_ceil_div(s.row_blocks, s.groups);
    s.columns = vx_min_i64(PIECE_COLUMNS, vx_ceil_div(s.positions, s.nr) * s.nr);
    s.tiles = vx_ceil_div(s.positions, s.columns);
    s.ldc = s.columns + 16; // rows of a C tile must not share one set of the first-level cache
    const int64_t blocks = (s.kt - s.first_tap) * s.tap_blocks;
    s.weights = vx_align_up((size_t)(s.row_blocks * blocks * s.mr * VX_DENSE_K_STRIDE) * 4, 4096);
    s.segments = vx_align_up((size_t)s.columns * sizeof(struct segment), 64);
    s.c_offset = s.segments;
    s.b_offset = s.c_offset + vx_align_up((size_t)(s.group_blocks * s.mr * s.ldc) * 4, 4096);
    s.worker = s.b_offset + vx_align_up((size_t)(s.block * s.columns) * 4, 4096);
    return s;
}

// ---- the weight ----
static float *weight_tile(const struct job *job, int64_t row_block, int64_t tap, int64_t block)
{
    const struct shape *s = &job->s;
    const int64_t blocks = (s->kt - s->first_tap) * s->tap_blocks;
    const int64_t index = row_block * blocks + (tap - s->first_tap) * s->tap_blocks + block;
    return job->weights + index * s->mr * VX_DENSE_K_STRIDE;
}

// One output channel: [ci][taps] to [taps][ci], cut in blocks. `dtype` is a constant in each instance.
static inline __attribute__((always_inline)) void pack_row(const struct job *job, int64_t row, const vx_dtype dtype)
{
    const struct shape *s = &job->s;
    const int64_t plane = s->kh * s->kw, taps = s->kt * plane;
    const char *w = (const char *)job->args->w.data + row * s->ci * taps * (vx_dtype_bits(dtype) / 8);
    for (int64_t tap = s->first_tap; tap < s->kt; tap++) {
        for (int64_t j = 0; j < plane; j++) {
            for (int64_t c = 0; c < s->ci; c++) {
                const int64_t k = j * s->ci + c;
                float *to = weight_tile(job, row / s->mr, tap, k / s->block) + row % s->mr * VX_DENSE_K_STRIDE;
                to[k % s->block] = vx_get(w, dtype, c * taps + tap * plane + j);
            }
        }
    }
}

// piece: an output channel
static void pack_piece(void *ctx, int64_t row, int worker)
{
    (void)worker;
    const struct job *job = ctx;
    const vx_dtype dtype = job->args->w.dtype;
    if (dtype == VX_F32) pack_row(job, row, VX_F32);
    else if (dtype == VX_BF16) pack_row(job, row, VX_BF16);
    else pack_row(job, row, VX_F16);
}

// ---- gathering ----
// Where number i of an axis of n stands: itself, its mirror image, or nowhere.
static int64_t resolve(int64_t i, int64_t n, bool reflect)
{
    if (i >= 0 && i < n) return i;
    if (!reflect) return -1;
    return i < 0 ? -i : 2 * (n - 1) - i;
}

// Columns dst .. of one panel, all from input row `row`, the first from column `column`.
static struct segment *cut(const vx_conv3d_args *a, struct segment *to, int64_t dst, int64_t count, int64_t row, int64_t column)
{
    const int64_t step = a->stride[2], width = a->x.shape[3];
    while (count > 0) {
        int64_t run = 1, src = row < 0 ? -1 : resolve(column, width, a->reflect);
        if (row < 0) run = count;
        else if (column >= 0 && column < width) run = vx_min_i64(count, (width - 1 - column) / step + 1);
        if (src >= 0) src += row * a->x.stride[2];
        *to++ = (struct segment){ dst, src, run };
        dst += run;
        count -= run;
        column += run * step;
    }
    return to;
}

// The columns first .. first + columns - 1 of an output frame, as one tap of rows and columns sees them.
static int64_t list_segments(const struct job *job, struct segment *list, int64_t first, int64_t kh, int64_t kw, int64_t panel)
{
    const struct shape *s = &job->s;
    const vx_conv3d_args *a = job->args;
    struct segment *to = list;
    for (int64_t i = 0; i < s->columns;) {
        const int64_t dst = i / s->nr * panel + i % s->nr, in_panel = s->nr - i % s->nr, p = first + i;
        if (p >= s->positions) {
            *to++ = (struct segment){ dst, -1, in_panel };
            i += in_panel;
            continue;
        }
        const int64_t y = p / s->width, x = p % s->width, run = vx_min_i64(in_panel, s->width - x);
        const int64_t row = resolve(y * a->stride[1] + kh - a->pad[1], a->x.shape[2], a->reflect);
        to = cut(a, to, dst, run, row, x * a->stride[2] + kw - a->pad[2]);
        i += run;
    }
    return to - list;
}

static void gather_segments(float *dst, const float *src, int64_t step, const struct segment *list, int64_t count)
{
    for (const struct segment *g = list; g < list + count; g++) {
        float *to = dst + g->dst;
        const float *from = src + g->src;
        if (g->src < 0) memset(to, 0, (size_t)g->count * 4);
        else if (step == 1) memcpy(to, from, (size_t)g->count * 4);
        else
            for (int64_t i = 0; i < g->count; i++) to[i] = from[i * step];
    }
}

// k0 .. k1 - 1 of one frame tap: panels [k1 - k0][nr], one after another.
static void gather(const struct job *job, char *mine, int64_t frame, int64_t first, int64_t k0, int64_t k1)
{
    const struct shape *s = &job->s;
    const vx_tensor x = job->args->x;
    struct segment *list = (struct segment *)mine;
    float *b = (float *)(mine + s->b_offset);
    const float *from = vx_f32_of(x) + frame * x.stride[1];
    for (int64_t k = k0; k < k1;) {
        const int64_t tap = k / s->ci, end = vx_min_i64(k1, (tap + 1) * s->ci);
        const int64_t count = list_segments(job, list, first, tap / s->kw, tap % s->kw, (k1 - k0) * s->nr);
        for (; k < end; k++)
            gather_segments(b + (k - k0) * s->nr, from + k % s->ci * x.stride[0], job->args->stride[2], list, count);
    }
}

// ---- a piece ----
static float *row_at(vx_tensor t, int64_t channel, int64_t frame, int64_t y, int64_t x)
{
    return t.rank ? vx_f32_of(t) + channel * t.stride[0] + frame * t.stride[1] + y * t.stride[2] + x : NULL;
}

static void write_row(const struct job *job, int64_t channel, int64_t frame, int64_t first, const float *c)
{
    const struct shape *s = &job->s;
    const vx_conv3d_args *a = job->args;
    float bias = 0;
    if (a->bias.rank) bias = vx_get(a->bias.data, a->bias.dtype, channel * a->bias.stride[0]);
    const int64_t end = vx_min_i64(s->positions, first + s->columns);
    for (int64_t p = first; p < end;) {
        const int64_t y = p / s->width, x = p % s->width, run = vx_min_i64(end - p, s->width - x);
        job->kernels->finish_row(row_at(a->out, channel, frame, y, x), c + (p - first), a->bias.rank ? &bias : NULL,
                                 row_at(a->residual, channel, frame, y, x), (int)run);
        p += run;
    }
}

static void convolve(void *ctx, int64_t piece, int worker)
{
    const struct job *job = ctx;
    const struct shape *s = &job->s;
    const int64_t group = piece % s->groups, first = piece / s->groups % s->tiles * s->columns;
    const int64_t frame = piece / s->groups / s->tiles;
    const int64_t block0 = group * s->group_blocks, block1 = vx_min_i64(s->row_blocks, block0 + s->group_blocks);
    const int64_t columns = vx_min_i64(s->columns, vx_ceil_div(s->positions - first, s->nr) * s->nr);
    char *mine = job->workers + (size_t)worker * s->worker;
    float *c = (float *)(mine + s->c_offset), *b = (float *)(mine + s->b_offset);
    const int64_t begin = vx_conv3d_first_tap(job->args, frame);
    const ptrdiff_t none = 0;
    if (s->tap_k == 0) memset(c, 0, (size_t)(s->group_blocks * s->mr * s->ldc) * 4);
    for (int64_t tap = begin; tap < s->kt; tap++) {
        for (int64_t i = 0; i < s->tap_blocks; i++) {
            const int64_t k0 = i * s->block, k1 = vx_min_i64(s->tap_k, k0 + s->block);
            gather(job, mine, frame * job->args->stride[0] + tap - job->args->pad[0], first, k0, k1);
            for (int64_t block = block0; block < block1; block++) {
                const int rows = (int)vx_min_i64(s->mr, s->co - block * s->mr);
                const float *a = weight_tile(job, block, tap, i);
                for (int64_t j = 0; j < columns; j += s->nr) {
                    const vx_dense_rows from = { b + j * (k1 - k0), &none, 1, (int)(k1 - k0), s->nr };
                    job->kernels->tile(rows, a, &from, c + (block - block0) * s->mr * s->ldc + j, s->ldc, tap > begin || i > 0);
                }
            }
        }
    }
    for (int64_t row = block0 * s->mr; row < vx_min_i64(s->co, block1 * s->mr); row++)
        write_row(job, row, frame, first, c + (row - block0 * s->mr) * s->ldc);
}

size_t vx_cpu_conv3d_scratch(const vx_device *dev, const vx_conv3d_args *args)
{
    const vx_cpu *cpu = vx_cpu_of_const(dev);
    const struct shape s = shape_of(vx_dense_kernels(cpu->isa), args);
    return s.weights + s.worker * (size_t)cpu->threads;
}

vx_status vx_cpu_conv3d(vx_device *dev, const vx_conv3d_args *args)
{
    vx_cpu *cpu = vx_cpu_of(dev);
    struct job job = { .args = args, .kernels = vx_dense_kernels(cpu->isa) };
    job.s = shape_of(job.kernels, args);
    void *scratch;
    VX_TRY(vx_cpu_scratch(cpu, vx_cpu_conv3d_scratch(dev, args), &scratch));
    job.weights = scratch;
    job.workers = (char *)scratch + job.s.weights;
    vx_pool_run(cpu->pool, job.s.co, pack_piece, &job);
    vx_pool_run(cpu->pool, args->out.shape[1] * job.s.tiles * job.s.groups, convolve, &job);
    return vx_ok();
}
