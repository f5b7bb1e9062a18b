// vx_conv3d as a product: rows are output channels, columns are the positions of one output frame, k is (tap, channel).
//
// A piece is a rectangle of positions, `height` rows by `width` columns, and a group of row blocks. For each frame tap it
// gathers the input numbers that it needs into a window, padding resolved, which stays in the second-level cache; B rows are
// stretches of the window and are never formed. The weight is packed once, into the tiles that the product wants.
//
//   window      [channel][copy][slot][pitch]. A slot is an input row. Taps (kh) of neighbouring output rows share slots:
//               slot(y, kh) = kh % stride * slots_of_phase + y + kh / stride.
//   by rows     one copy: a tap (kw) is a shift of kw along the row; panels of nr columns begin at the rows' beginnings.
//   flat        rows too narrow for panels, or strided: a copy for each kw, already shifted and thinned out, so that all
//               positions of the piece are one line and panels run across the ends of rows.
//   by taps     where the window of all taps would not fit the cache it holds one tap of rows and columns and up to
//               VX_DENSE_K channels at a time.
//
// Blocks of k never cross a frame tap, so an output frame whose first frame taps only meet zeros begins at a later one.
// Leaving them out changes no bit where weights are finite: the sum begins with +0, and +0 + w * 0 is +0.
#include "base/checked.h"
#include "device/cpu/cpu.h"
#include "device/cpu/dense.h"
#include "device/cpu/element.h"
#include "device/cpu/gather.h"

enum {
    MOST_COLUMNS = 512, // of a piece; fewer where there would be fewer pieces than FEW_PIECES
    LEAST_COLUMNS = 64,
    FEW_PIECES = 32,
    WINDOW_BYTES = 640 << 10, // a third of the second-level cache
    GROUP_ROWS = 160,         // output channels that share a window
    GROUP_ROWS_BY_TAPS = 512, // gathering costs more there
    PACK_CHANNELS = 64,       // whose 27 taps are 7 KiB: they stay in the first-level cache while each tap is picked out
    SEGMENTS_OF_ROW = 3,      // an edge, what lies between, an edge
};

struct shape {
    int64_t co, ci, kt, kh, kw;
    int64_t first_tap; // frame taps before it are never used
    // A piece.
    int64_t width, height, strips, bands, columns, row_columns; // row_columns: from one row's first column of C to the next's
    bool flat, by_taps;
    // Its window.
    int64_t window_kh, window_kw, phases, phase_slots, copies, pitch, channel, window_channels;
    // Blocks of k within a frame tap: some taps of all channels, or some channels of a tap.
    int64_t tap_blocks, block_taps, parts, block_channels;
    int64_t rows, row_blocks, groups, group_blocks, ldc;
    int nr;
    size_t weights, list, offsets, c_offset, window_offset, worker; // bytes; the offsets are within a worker's part
};

struct job {
    const vx_conv3d_args *args;
    const struct vx_dense_kernels *kernels;
    vx_gather_fn gather;
    struct shape s;
    float *weights;
    char *workers;
};

static int64_t round_up(int64_t n, int64_t to)
{
    return vx_ceil_div(n, to) * to;
}

// ---- sizes ----
static void shape_window(struct shape *s, const vx_conv3d_args *a)
{
    s->window_kh = s->by_taps ? 1 : s->kh;
    s->window_kw = s->by_taps ? 1 : s->kw;
    s->window_channels = s->by_taps ? vx_min_i64(s->ci, VX_DENSE_K) : s->ci;
    s->phases = vx_min_i64(a->stride[1], s->window_kh);
    s->phase_slots = s->height + (s->window_kh - 1) / a->stride[1];
    s->copies = s->flat ? s->window_kw : 1;
    s->pitch = s->flat ? s->width : round_up(round_up(s->width, s->nr) + s->window_kw - 1, 16);
    s->row_columns = s->flat ? s->width : round_up(s->width, s->nr);
    s->columns = round_up(s->height * s->row_columns, s->nr);
    s->channel = round_up(s->copies * s->phases * s->phase_slots * s->pitch + (s->flat ? s->nr : 0), 16);
    if (s->channel / 16 % 2 == 0) s->channel += 16; // an odd number of lines: channels spread over the cache's sets
}

static int64_t window_bytes(const struct shape *s)
{
    return s->window_channels * s->channel * 4;
}

// About `columns` positions: whole rows, or a strip of one.
static void shape_piece(struct shape *s, const vx_conv3d_args *a, int64_t columns)
{
    const int64_t wo = a->out.shape[3], ho = a->out.shape[2];
    s->strips = vx_ceil_div(wo, columns);
    s->width = s->strips > 1 ? round_up(vx_ceil_div(wo, s->strips), s->nr) : wo;
    s->strips = vx_ceil_div(wo, s->width);
    s->height = vx_max_i64(1, vx_min_i64(ho, columns / s->width));
    s->bands = vx_ceil_div(ho, s->height);
    s->flat = a->stride[2] > 1 || round_up(s->width, s->nr) * 8 > s->width * 9;
    shape_window(s, a);
}

static void shape_pieces(struct shape *s, const vx_conv3d_args *a)
{
    int64_t columns = MOST_COLUMNS;
    shape_piece(s, a, columns);
    while (columns > LEAST_COLUMNS && (window_bytes(s) > WINDOW_BYTES || s->strips * s->bands * a->out.shape[1] < FEW_PIECES)) {
        columns /= 2;
        shape_piece(s, a, columns);
    }
    if (window_bytes(s) <= WINDOW_BYTES) return;
    s->by_taps = true;
    shape_piece(s, a, MOST_COLUMNS / 2);
}

static void shape_blocks(struct shape *s)
{
    const int64_t plane = s->kh * s->kw, ci = vx_max_i64(1, s->ci);
    s->parts = vx_ceil_div(ci, VX_DENSE_K);
    s->block_channels = vx_ceil_div(ci, s->parts);
    const int64_t together = s->by_taps || s->parts > 1 ? 1 : vx_min_i64(plane, VX_DENSE_K / ci);
    s->block_taps = vx_ceil_div(plane, vx_ceil_div(plane, together)); // alike, not the last one short
    s->tap_blocks = vx_ceil_div(plane, s->block_taps) * s->parts;
}

static struct shape shape_of(const struct vx_dense_kernels *kernels, const vx_conv3d_args *args)
{
    const vx_tensor w = args->w;
    struct shape s = { .co = w.shape[0], .ci = w.shape[1], .kt = w.shape[2], .kh = w.shape[3], .kw = w.shape[4] };
    s.nr = kernels->nr;
    s.first_tap = vx_conv3d_first_tap(args, args->out.shape[1] - 1);
    shape_pieces(&s, args);
    shape_blocks(&s);
    s.row_blocks = vx_ceil_div(s.co, kernels->mr);
    s.rows = vx_ceil_div(s.co, s.row_blocks); // alike, too
    s.row_blocks = vx_ceil_div(s.co, s.rows);
    s.groups = vx_ceil_div(s.co, s.by_taps ? GROUP_ROWS_BY_TAPS : GROUP_ROWS);
    s.group_blocks = vx_ceil_div(s.row_blocks, s.groups);
    s.ldc = s.columns + 16; // rows of a C tile must not share one set of the first-level cache
    const int64_t tiles = s.row_blocks * (s.kt - s.first_tap) * s.tap_blocks;
    s.weights = vx_align_up((size_t)(tiles * s.rows * VX_DENSE_K_STRIDE) * 4, 4096);
    s.list = vx_align_up((size_t)(s.copies * s.phases * s.phase_slots * SEGMENTS_OF_ROW) * sizeof(vx_segment), 64);
    s.offsets = vx_align_up((size_t)(s.kh * s.kw) * sizeof(ptrdiff_t), 64);
    s.c_offset = s.list + s.offsets;
    s.window_offset = s.c_offset + vx_align_up((size_t)(s.group_blocks * s.rows * s.ldc) * 4, 4096);
    s.worker = s.window_offset + vx_align_up((size_t)window_bytes(&s), 4096);
    return s;
}

// ---- blocks of k ----
struct block {
    int64_t tap, taps, channel, channels;
};

static struct block block_at(const struct shape *s, int64_t index)
{
    struct block b = { .tap = index / s->parts * s->block_taps, .channel = index % s->parts * s->block_channels };
    b.taps = vx_min_i64(s->block_taps, s->kh * s->kw - b.tap);
    b.channels = vx_min_i64(s->block_channels, s->ci - b.channel);
    return b;
}

static float *weight_tile(const struct job *job, int64_t row_block, int64_t frame_tap, int64_t block)
{
    const struct shape *s = &job->s;
    const int64_t index = (row_block * (s->kt - s->first_tap) + frame_tap - s->first_tap) * s->tap_blocks + block;
    return job->weights + index * s->rows * VX_DENSE_K_STRIDE;
}

// Some channels of one output channel, one block: [channels][all taps] to [taps][channels]. `dtype` is a constant in each
// instance.
static inline __attribute__((always_inline)) void pack_channels(float *to, const void *w, const struct shape *s, struct block b,
                                                                int64_t frame_tap, int64_t first, int64_t last,
                                                                const vx_dtype dtype)
{
    const int64_t plane = s->kh * s->kw, taps = s->kt * plane;
    for (int64_t j = 0; j < b.taps; j++, to += b.channels) {
        const int64_t at = frame_tap * plane + b.tap + j;
        for (int64_t c = first; c < last; c++) to[c - b.channel] = vx_get(w, dtype, c * taps + at);
    }
}

// piece: an output channel. The weight is read in the order in which it stands.
static void pack_piece(void *ctx, int64_t row, int worker)
{
    (void)worker;
    const struct job *job = ctx;
    const struct shape *s = &job->s;
    const vx_tensor w = job->args->w;
    const char *from = (const char *)w.data + row * w.stride[0] * vx_element_size(w.dtype);
    for (int64_t c = 0; c < s->ci; c += PACK_CHANNELS) {
        for (int64_t i = 0; i < (s->kt - s->first_tap) * s->tap_blocks; i++) {
            const int64_t tap = s->first_tap + i / s->tap_blocks;
            const struct block b = block_at(s, i % s->tap_blocks);
            const int64_t first = vx_max_i64(c, b.channel), last = vx_min_i64(c + PACK_CHANNELS, b.channel + b.channels);
            if (first >= last) continue;
            float *to = weight_tile(job, row / s->rows, tap, i % s->tap_blocks) + row % s->rows * VX_DENSE_K_STRIDE;
            if (w.dtype == VX_F32) pack_channels(to, from, s, b, tap, first, last, VX_F32);
            else if (w.dtype == VX_BF16) pack_channels(to, from, s, b, tap, first, last, VX_BF16);
            else pack_channels(to, from, s, b, tap, first, last, VX_F16);
        }
    }
}

// ---- the window ----
struct piece {
    int64_t frame, y, x, rows, columns; // of the output
    float *c, *window;
    vx_segment *list;
    ptrdiff_t *offsets;
};

// Where number i of an axis of n stands: itself, its mirror image, or nowhere.
static int64_t resolve(int64_t i, int64_t n, bool reflect)
{
    if (i >= 0 && i < n) return i;
    if (!reflect) return -1;
    return i < 0 ? -i : 2 * (n - 1) - i;
}

// `count` numbers of input row `row` (< 0: zeros) from `column` on, every stride-th, to dst and on.
static vx_segment *cut(const vx_conv3d_args *a, vx_segment *to, int64_t dst, int64_t count, int64_t row, int64_t column)
{
    const int64_t step = a->stride[2], width = a->x.shape[3];
    while (count > 0) {
        int64_t run = 1, src = row < 0 ? -1 : resolve(column, width, a->reflect);
        if (row < 0) run = count;
        else if (column >= 0 && column < width) run = vx_min_i64(count, (width - 1 - column) / step + 1);
        if (src >= 0) src += row * a->x.stride[2];
        *to++ = (vx_segment){ dst, src, (int32_t)run };
        dst += run;
        count -= run;
        column += run * step;
    }
    return to;
}

static int64_t slot_of(const struct shape *s, const vx_conv3d_args *a, int64_t y, int64_t kh)
{
    return kh % a->stride[1] * s->phase_slots + y + kh / a->stride[1];
}

// Taps kh0, kw0 and, in a window of all taps, those after them, as every channel sees them.
static int64_t list_segments(const struct job *job, const struct piece *p, int64_t kh0, int64_t kw0)
{
    const struct shape *s = &job->s;
    const vx_conv3d_args *a = job->args;
    const int64_t slots = s->phases * s->phase_slots, last = (p->rows - 1) * a->stride[1] + s->window_kh - 1;
    const int64_t count = s->flat ? p->columns : p->columns + s->window_kw - 1;
    vx_segment *to = p->list;
    for (int64_t copy = 0; copy < s->copies; copy++) {
        for (int64_t slot = 0; slot < slots; slot++) {
            const int64_t down = slot % s->phase_slots * a->stride[1] + slot / s->phase_slots;
            if (down > last) continue; // a slot that no tap reads
            const int64_t row = resolve(p->y * a->stride[1] + down + kh0 - a->pad[1], a->x.shape[2], a->reflect);
            to = cut(a, to, (copy * slots + slot) * s->pitch, count, row, p->x * a->stride[2] + copy + kw0 - a->pad[2]);
        }
    }
    return to - p->list;
}

static void fill_window(const struct job *job, const struct piece *p, int64_t frame_tap, struct block b)
{
    const struct shape *s = &job->s;
    const vx_conv3d_args *a = job->args;
    const bool all = !s->by_taps;
    const int64_t frame = p->frame * a->stride[0] + frame_tap - a->pad[0];
    const int64_t count = list_segments(job, p, all ? 0 : b.tap / s->kw, all ? 0 : b.tap % s->kw);
    const float *from = vx_f32_of(a->x) + frame * a->x.stride[1] + (all ? 0 : b.channel) * a->x.stride[0];
    job->gather(p->window, s->channel, from, a->x.stride[0], a->stride[2], all ? s->ci : b.channels, p->list, count);
}

// ---- a piece ----
// One block of k, from a window that holds it, times the weights of a group of row blocks.
static void multiply(const struct job *job, const struct piece *p, int64_t frame_tap, int64_t index, int64_t block0,
                     int64_t block1, bool load)
{
    const struct shape *s = &job->s;
    const struct block b = block_at(s, index);
    // Flat, all positions are one line; else a line is a row.
    const int64_t slots = s->phases * s->phase_slots, lines = s->flat ? 1 : p->rows;
    const int64_t length = s->flat ? (p->rows - 1) * s->width + p->columns : p->columns;
    for (int64_t i = 0; i < b.taps; i++) {
        const int64_t kh = s->by_taps ? 0 : (b.tap + i) / s->kw, kw = s->by_taps ? 0 : (b.tap + i) % s->kw;
        p->offsets[i] = slot_of(s, job->args, 0, kh) * s->pitch + (s->flat ? kw * slots * s->pitch : kw);
    }
    vx_dense_rows rows = { .offset = p->offsets, .outer = (int)b.taps, .inner = (int)b.channels, .step = s->channel };
    const float *window = p->window + (s->by_taps ? 0 : b.channel * s->channel);
    for (int64_t block = block0; block < block1; block++) {
        const float *a = weight_tile(job, block, frame_tap, index);
        float *c = p->c + (block - block0) * s->rows * s->ldc;
        const int count = (int)vx_min_i64(s->rows, s->co - block * s->rows);
        for (int64_t line = 0; line < lines; line++) {
            for (int64_t i = 0; i < length; i += s->nr) {
                rows.b = window + line * s->pitch + i;
                job->kernels->tile(count, a, &rows, c + line * s->row_columns + i, s->ldc, load);
            }
        }
    }
}

static float *row_at(vx_tensor t, int64_t channel, int64_t frame, int64_t y, int64_t x)
{
    return t.rank ? vx_f32_of(t) + channel * t.stride[0] + frame * t.stride[1] + y * t.stride[2] + x : NULL;
}

static void write_channel(const struct job *job, const struct piece *p, int64_t channel, const float *c)
{
    const vx_conv3d_args *a = job->args;
    float bias = 0;
    if (a->bias.rank) bias = vx_get(a->bias.data, a->bias.dtype, channel * a->bias.stride[0]);
    for (int64_t y = 0; y < p->rows; y++, c += job->s.row_columns)
        job->kernels->finish_row(row_at(a->out, channel, p->frame, p->y + y, p->x), c, a->bias.rank ? &bias : NULL,
                                 row_at(a->residual, channel, p->frame, p->y + y, p->x), (int)p->columns);
}

static void convolve(void *ctx, int64_t index, int worker)
{
    const struct job *job = ctx;
    const struct shape *s = &job->s;
    const vx_tensor out = job->args->out;
    char *mine = job->workers + (size_t)worker * s->worker;
    struct piece p = { .list = (vx_segment *)mine, .offsets = (ptrdiff_t *)(mine + s->list) };
    p.c = (float *)(mine + s->c_offset);
    p.window = (float *)(mine + s->window_offset);
    const int64_t group = index % s->groups, rectangle = index / s->groups;
    p.x = rectangle % s->strips * s->width;
    p.y = rectangle / s->strips % s->bands * s->height;
    p.frame = rectangle / s->strips / s->bands;
    p.columns = vx_min_i64(s->width, out.shape[3] - p.x);
    p.rows = vx_min_i64(s->height, out.shape[2] - p.y);
    const int64_t block0 = group * s->group_blocks, block1 = vx_min_i64(s->row_blocks, block0 + s->group_blocks);
    const int64_t begin = vx_conv3d_first_tap(job->args, p.frame);
    if (s->ci == 0) memset(p.c, 0, (size_t)(s->group_blocks * s->rows * s->ldc) * 4);
    for (int64_t tap = begin; tap < s->kt && s->ci > 0; tap++) {
        for (int64_t i = 0; i < s->tap_blocks; i++) {
            if (i == 0 || s->by_taps) fill_window(job, &p, tap, block_at(s, i));
            multiply(job, &p, tap, i, block0, block1, tap > begin || i > 0);
        }
    }
    for (int64_t row = block0 * s->rows; row < vx_min_i64(s->co, block1 * s->rows); row++)
        write_channel(job, &p, row, p.c + (row - block0 * s->rows) * s->ldc);
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
    struct job job = { .args = args, .kernels = vx_dense_kernels(cpu->isa), .gather = vx_gather_for(cpu->isa) };
    job.s = shape_of(job.kernels, args);
    void *scratch;
    VX_TRY(vx_cpu_scratch(cpu, vx_cpu_conv3d_scratch(dev, args), &scratch));
    job.weights = scratch;
    job.workers = (char *)scratch + job.s.weights;
    vx_pool_run(cpu->pool, job.s.co, pack_piece, &job);
    vx_pool_run(cpu->pool, args->out.shape[1] * job.s.bands * job.s.strips * job.s.groups, convolve, &job);
    return vx_ok();
}
