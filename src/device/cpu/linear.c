// vx_linear. The weight's rows are cut in panels of nr output columns; a panel never crosses a segment, so a column's sum
// knows nothing of where its neighbours come from.
//
// Three ways to the same sums:
//   many rows   The weight goes by in chunks. While a chunk is multiplied, in pieces of (row group) x (column group), the
//               same pool run packs the next one into the other half of the scratch: nobody waits at a chunk's end.
//   few rows    A piece is a few panels, packed by the worker that needs them, block by block, in its own cache: the
//               weight is read once and what is packed never leaves the cache.
//   1 to 4      Nothing is packed: the weight goes from memory through registers (dense.h, thin).
// Sums over more than VX_DENSE_K numbers wait in C tiles between blocks: one chain over k, as operators.h says.
//
// Quantised segments are decoded on their way into a panel: the worker that packs a block decodes its nr rows of at most
// VX_DENSE_K columns into a page of its own (32 to 64 KiB, second-level cache) and packs from there. Every row is decoded once.
#include "base/checked.h"
#include "device/cpu/branch.h"
#include "device/cpu/decode.h"
#include "device/cpu/dense.h"
#include "device/cpu/element.h"

enum {
    FEW_TILES = 12,  // at most so many tiles of rows: the second way
    FEW_PANELS = 2,  // of a piece: x is widened once for them
    FEW_PIECES = 64, // at least so many, before neighbours go together (a panel asks for its successor)
    MOST_RUN = 8,
    ONE_TILE_BLOCK = 128,  // with a single tile, the block of k whose panel stays in the first-level cache
    GROUP_TILES = 12,      // a group's part of B crosses the third-level cache once per 12 tiles (168 rows): 0.8 bytes a cycle
    GROUP_COLUMNS = 512,   // 512 x VX_DENSE_K floats of B are 1 MiB: half of the second-level cache
    CHUNK_BYTES = 4 << 20, // of packed weight: up to 8 MiB packing costs 0.3 ns per number, at 64 MiB 0.85 ns
    CHUNK_COLUMNS = 256,   // but no fewer columns: x is widened once for them
};

struct shape {
    int64_t m, k, panels, chunk_panels, group_rows, row_groups;
    int mr, nr, group_panels, block;
    bool few, thin, quantised;
    size_t chunk, worker, packed_offset, c_offset, decoded_offset; // bytes; the offsets are within a worker's part
};

struct job {
    const vx_linear_args *args;
    const struct vx_dense_kernels *kernels;
    vx_decode_fn decode;
    const vx_branch_sum *sum; // not NULL: onto what out holds
    struct shape s;
    int64_t first, count, next_first, next_count; // panels of the chunk that is multiplied, and of the one that is packed
    char *chunk, *next_chunk, *workers;
    int64_t multiply_pieces;
    int64_t groups, run; // few rows: groups of panels, and how many neighbours make a piece
    bool swap;
};

struct panel {
    const vx_weight_segment *segment;
    int64_t row;
    int rows;
};

struct rows {
    const void *data;
    ptrdiff_t stride; // elements
    vx_dtype dtype;
};

static struct panel panel_at(const vx_weight *w, int nr, int64_t index)
{
    for (int i = 0;; i++) {
        const int64_t rows = w->segment[i].weight.shape[0], count = vx_ceil_div(rows, nr);
        if (index < count) {
            const int64_t row = index * nr;
            return (struct panel){ &w->segment[i], row, (int)vx_min_i64(nr, rows - row) };
        }
        index -= count;
    }
}

static void *element(vx_tensor t, int64_t row, int64_t column)
{
    return (char *)t.data + (row * t.stride[0] + column) * (vx_dtype_bits(t.dtype) / 8);
}

// Quantised rows, and plain ones that are rounded to bf16 for bf16 x.
static bool is_decoded(const vx_linear_args *args, const vx_weight_segment *segment)
{
    if (segment->quant.kind != VX_QUANT_NONE) return true;
    return args->x.dtype == VX_BF16 && segment->weight.dtype != VX_BF16 && !args->as_stored;
}

// What a segment's rows are when they are packed.
static vx_dtype packed_dtype(const vx_linear_args *args, const vx_weight_segment *segment)
{
    if (!is_decoded(args, segment)) return segment->weight.dtype;
    return args->x.dtype == VX_BF16 ? VX_BF16 : VX_F32;
}

static bool is_thin(const vx_linear_args *args)
{
    for (int i = 0; i < args->weight->segments; i++) {
        if (packed_dtype(args, &args->weight->segment[i]) == VX_F16) return false;
    }
    return args->x.shape[0] <= VX_DENSE_THIN; // measured: docs/speed.md
}

// Of a worker's page for the decoded rows of a panel, VX_DENSE_K_STRIDE apart; 0 if nothing is quantised.
static size_t decoded_bytes(const struct vx_dense_kernels *kernels, const vx_linear_args *args)
{
    for (int i = 0; i < args->weight->segments; i++) {
        if (!is_decoded(args, &args->weight->segment[i])) continue;
        return (size_t)kernels->nr * VX_DENSE_K_STRIDE * (args->x.dtype == VX_BF16 ? 2 : 4);
    }
    return 0;
}

static struct shape shape_of(const struct vx_dense_kernels *kernels, const vx_linear_args *args)
{
    struct shape s = { .m = args->x.shape[0], .k = args->x.shape[1], .mr = kernels->mr, .nr = kernels->nr };
    for (int i = 0; i < args->weight->segments; i++) s.panels += vx_ceil_div(args->weight->segment[i].weight.shape[0], s.nr);
    const size_t a = vx_align_up((size_t)s.mr * VX_DENSE_K_STRIDE * 4, 64), tile = (size_t)s.mr * (size_t)s.nr * 4;
    const int64_t tiles = vx_ceil_div(s.m, s.mr);
    const size_t decoded = decoded_bytes(kernels, args);
    s.thin = is_thin(args);
    if (s.thin) {
        s.chunk = vx_align_up((size_t)(s.m * s.k) * 4, 4096); // x, widened
        s.worker = vx_align_up(decoded, 4096);
        return s;
    }
    s.packed_offset = a;
    s.few = tiles <= FEW_TILES;
    if (s.few) {
        s.block = tiles == 1 && !decoded ? ONE_TILE_BLOCK : VX_DENSE_K; // what is decoded begins at whole groups
        s.group_panels = tiles == 1 ? 1 : FEW_PANELS;
        s.c_offset = a + (size_t)(s.group_panels * s.block * s.nr) * 4;
        s.decoded_offset = vx_align_up(s.c_offset + (size_t)(tiles * s.group_panels) * tile, 64);
        s.worker = vx_align_up(s.decoded_offset + decoded, 4096);
        return s;
    }
    s.block = VX_DENSE_K;
    // Fewer rows, smaller groups: enough pieces to share out.
    s.group_rows = (tiles >= 16 * GROUP_TILES ? GROUP_TILES : GROUP_TILES / 2) * s.mr;
    s.row_groups = vx_ceil_div(s.m, s.group_rows);
    s.group_panels = GROUP_COLUMNS / s.nr / (s.row_groups >= 8 ? 1 : 2);
    const int64_t panel_bytes = (s.k + 1) * s.nr * 4; // with its bias
    s.chunk_panels = vx_min_i64(s.panels, vx_max_i64(CHUNK_COLUMNS / s.nr, CHUNK_BYTES / panel_bytes));
    s.chunk = vx_align_up((size_t)(s.chunk_panels * panel_bytes), 4096);
    s.c_offset = a;
    s.decoded_offset = vx_align_up(a + (size_t)(GROUP_TILES * s.group_panels) * tile, 64);
    s.worker = vx_align_up(s.decoded_offset + decoded, 4096);
    return s;
}

static void widen_bias(float *to, struct panel p)
{
    const vx_tensor b = p.segment->bias;
    for (int j = 0; j < p.rows; j++) {
        const int64_t i = (p.row + j) * b.stride[0];
        uint16_t h;
        if (b.dtype == VX_F32) {
            memcpy(to + j, (const char *)b.data + 4 * i, 4);
            continue;
        }
        memcpy(&h, (const char *)b.data + 2 * i, 2);
        to[j] = b.dtype == VX_BF16 ? vx_bf16_to_f32(h) : vx_f16_to_f32(h);
    }
}

// A chunk holds its panels' biases, then for each block of k the panels one after another, so that what is asked for ahead
// of a panel's end is the next panel.
static float *bias_in(char *chunk, const struct shape *s, int64_t i)
{
    return (float *)chunk + i * s->nr;
}
static float *panel_in(char *chunk, const struct shape *s, int64_t count, int64_t i, int64_t k, int inner)
{
    return (float *)chunk + s->chunk_panels * s->nr + (count * k + i * inner) * s->nr;
}

// A worker's part of the scratch.
static char *part_of(const struct job *job, int worker)
{
    return job->workers + (size_t)worker * job->s.worker;
}

// Columns k to k + inner of a panel's rows as numbers: where they stand, or decoded by the worker into its page.
static struct rows rows_of(const struct job *job, struct panel p, int64_t k, int inner, int worker)
{
    const vx_tensor w = p.segment->weight;
    if (!is_decoded(job->args, p.segment)) return (struct rows){ element(w, p.row, k), w.stride[0], w.dtype };
    const struct rows r = { part_of(job, worker) + job->s.decoded_offset, VX_DENSE_K_STRIDE, packed_dtype(job->args, p.segment) };
    const ptrdiff_t step = r.stride * (vx_dtype_bits(r.dtype) / 8);
    for (int j = 0; j < p.rows; j++)
        job->decode(&p.segment->quant, w, p.row + j, k, k + inner, r.dtype,
                    (char *)part_of(job, worker) + job->s.decoded_offset + j * step);
    return r;
}

static void pack_block(const struct job *job, float *to, struct panel p, int64_t k, int inner, int worker)
{
    const struct rows r = rows_of(job, p, k, inner, worker);
    job->kernels->pack(to, r.data, r.stride, p.rows, inner, r.dtype, job->swap);
}

static void pack_panel(const struct job *job, int64_t i, int worker)
{
    const struct shape *s = &job->s;
    const struct panel p = panel_at(job->args->weight, s->nr, job->next_first + i);
    for (int64_t k = 0; k < s->k; k += s->block) {
        const int inner = (int)vx_min_i64(s->block, s->k - k);
        pack_block(job, panel_in(job->next_chunk, s, job->next_count, i, k, inner), p, k, inner, worker);
    }
    if (p.segment->bias.rank) widen_bias(bias_in(job->next_chunk, s, i), p);
}

// Adds the bias and rounds the rows of one finished C tile.
static void finish_tile(const struct job *job, struct panel p, int64_t row, int rows, const float *c, const float *bias)
{
    const vx_tensor out = job->args->out;
    void *to = element(out, row, p.segment->column + p.row);
    if (job->sum) vx_cpu_branch_finish(to, out.stride[0], out.dtype, c, job->s.nr, rows, p.rows, *job->sum);
    else job->kernels->finish(to, out.stride[0], out.dtype, c, bias, rows, p.rows);
}

// Asks for the part-th of `parts` shares of the tile of x that comes next: waiting for all of it when it is widened would
// cost 3 to 5 percent.
static void ask_for_rows(const struct job *job, int64_t row, int64_t bottom, int64_t k, int64_t part, int64_t parts)
{
    const vx_tensor x = job->args->x;
    const struct shape *s = &job->s;
    const int64_t last = vx_min_i64(bottom, row + (part + 1) * s->mr / parts);
    const int64_t bytes = vx_min_i64(s->block, s->k - k) * (vx_dtype_bits(x.dtype) / 8);
    for (int64_t i = row + part * s->mr / parts; i < last; i++) {
        const char *line = element(x, i, k);
        for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(line + b, 0, 2);
    }
}

// One row group times one column group of the packed chunk.
static void multiply_group(const struct job *job, int64_t piece, int worker)
{
    const struct shape *s = &job->s;
    const vx_tensor x = job->args->x;
    const int64_t first = piece / s->row_groups * s->group_panels, top = piece % s->row_groups * s->group_rows;
    const int64_t panels = vx_min_i64(s->group_panels, job->count - first), bottom = vx_min_i64(s->m, top + s->group_rows);
    float *a = (float *)part_of(job, worker), *c0 = (float *)((char *)a + s->c_offset);
    const ptrdiff_t none = 0;
    for (int64_t k = 0; k < s->k; k += s->block) {
        const int inner = (int)vx_min_i64(s->block, s->k - k);
        float *c = c0;
        for (int64_t row = top; row < bottom; row += s->mr) {
            const int rows = (int)vx_min_i64(s->mr, bottom - row);
            const bool turn = row + s->mr >= bottom;
            const int64_t next_row = turn ? top : row + s->mr, next_k = turn ? k + inner : k;
            job->kernels->widen(a, element(x, row, k), x.stride[0], rows, inner, x.dtype, job->swap);
            for (int64_t i = first; i < first + panels; i++, c += s->mr * s->nr) {
                if (next_k < s->k) ask_for_rows(job, next_row, bottom, next_k, i - first, panels);
                const vx_dense_rows b = { panel_in(job->chunk, s, job->count, i, k, inner), &none, 1, inner, s->nr };
                job->kernels->tile(rows, a, &b, c, s->nr, k > 0);
                if (k + inner < s->k) continue;
                const struct panel p = panel_at(job->args->weight, s->nr, job->first + i);
                finish_tile(job, p, row, rows, c, p.segment->bias.rank ? bias_in(job->chunk, s, i) : NULL);
            }
        }
    }
}

static void chunk_piece(void *ctx, int64_t piece, int worker)
{
    const struct job *job = ctx;
    if (piece < job->multiply_pieces) multiply_group(job, piece, worker);
    else pack_panel(job, piece - job->multiply_pieces, worker);
}

static void many_rows(vx_pool *pool, struct job *job)
{
    const struct shape *s = &job->s;
    job->next_count = s->chunk_panels;
    vx_pool_run(pool, job->next_count, chunk_piece, job);
    while (job->next_count > 0) {
        char *packed = job->next_chunk;
        job->next_chunk = job->chunk;
        job->chunk = packed;
        job->first = job->next_first;
        job->count = job->next_count;
        job->next_first += job->count;
        job->next_count = vx_min_i64(s->chunk_panels, s->panels - job->next_first);
        job->multiply_pieces = s->row_groups * vx_ceil_div(job->count, s->group_panels);
        vx_pool_run(pool, job->multiply_pieces + job->next_count, chunk_piece, job);
    }
}

// Asks for the same block of the panel after this one. A block of a panel is nr short stretches of memory far from each other:
// the processor sees no pattern in them.
static void ask_for_panel(const struct shape *s, struct panel p, int64_t k, int inner)
{
    const vx_tensor w = p.segment->weight;
    const int64_t width = w.shape[1] * (vx_dtype_bits(w.dtype) / 8), bytes = vx_ceil_div(inner * width, s->k);
    for (int64_t row = p.row + s->nr; row < vx_min_i64(w.shape[0], p.row + 2 * s->nr); row++) {
        const char *line = (const char *)element(w, row, 0) + k * width / s->k;
        for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(line + b, 0, 2);
    }
}

// All rows times a few panels, packed here.
static void multiply_few(const struct job *job, int64_t piece, int worker)
{
    const struct shape *s = &job->s;
    const vx_tensor x = job->args->x;
    char *mine = part_of(job, worker);
    float *a = (float *)mine, *packed = (float *)(mine + s->packed_offset), *c0 = (float *)(mine + s->c_offset);
    const int64_t first = piece * s->group_panels, last = vx_min_i64(s->panels, first + s->group_panels);
    const ptrdiff_t none = 0;
    for (int64_t k = 0; k < s->k; k += s->block) {
        const int inner = (int)vx_min_i64(s->block, s->k - k);
        for (int64_t i = first; i < last; i++) {
            const struct panel p = panel_at(job->args->weight, s->nr, i);
            ask_for_panel(s, p, k, inner);
            pack_block(job, packed + (i - first) * inner * s->nr, p, k, inner, worker);
        }
        float *c = c0;
        for (int64_t row = 0; row < s->m; row += s->mr) {
            const int rows = (int)vx_min_i64(s->mr, s->m - row);
            job->kernels->widen(a, element(x, row, k), x.stride[0], rows, inner, x.dtype, job->swap);
            for (int64_t i = first; i < last; i++, c += s->mr * s->nr) {
                const vx_dense_rows b = { packed + (i - first) * inner * s->nr, &none, 1, inner, s->nr };
                job->kernels->tile(rows, a, &b, c, s->nr, k > 0);
            }
        }
    }
    for (int64_t i = first; i < last; i++) {
        const struct panel p = panel_at(job->args->weight, s->nr, i);
        float bias[VX_DENSE_MAX_NR];
        if (p.segment->bias.rank) widen_bias(bias, p);
        for (int64_t row = 0; row < s->m; row += s->mr) {
            const float *c = c0 + (row / s->mr * (last - first) + (i - first)) * s->mr * s->nr;
            finish_tile(job, p, row, (int)vx_min_i64(s->mr, s->m - row), c, p.segment->bias.rank ? bias : NULL);
        }
    }
}

static void few_rows_piece(void *ctx, int64_t piece, int worker)
{
    const struct job *job = ctx;
    const int64_t last = vx_min_i64(job->groups, (piece + 1) * job->run);
    for (int64_t group = piece * job->run; group < last; group++) multiply_few(job, group, worker);
}

static void few_rows(vx_pool *pool, struct job *job)
{
    job->groups = vx_ceil_div(job->s.panels, job->s.group_panels);
    job->run = vx_max_i64(1, vx_min_i64(MOST_RUN, job->groups / FEW_PIECES));
    vx_pool_run(pool, vx_ceil_div(job->groups, job->run), few_rows_piece, job);
}

// piece: neighbouring strips of thin_columns output columns
static void thin_piece(void *ctx, int64_t piece, int worker)
{
    const struct job *job = ctx;
    const struct shape *s = &job->s;
    const int columns = job->kernels->thin_columns;
    for (int64_t strip = piece * job->run; strip < vx_min_i64(job->groups, (piece + 1) * job->run); strip++) {
        const struct panel p = panel_at(job->args->weight, columns, strip);
        const bool plain = !is_decoded(job->args, p.segment);
        float c[VX_DENSE_THIN * VX_DENSE_MAX_NR], bias[VX_DENSE_MAX_NR];
        for (int64_t k = 0; k < s->k;) {
            const int64_t inner = plain ? s->k : vx_min_i64(VX_DENSE_K, s->k - k);
            const struct rows r = rows_of(job, p, k, (int)inner, worker);
            job->kernels->thin((int)s->m, (const float *)job->chunk + k, s->k, r.data, r.stride, p.rows, inner, r.dtype,
                               job->swap, c, k > 0);
            k += inner;
        }
        if (p.segment->bias.rank) widen_bias(bias, p);
        finish_tile(job, p, 0, (int)s->m, c, p.segment->bias.rank ? bias : NULL);
    }
}

static void thin_rows(vx_pool *pool, struct job *job)
{
    const vx_tensor x = job->args->x;
    for (int64_t i = 0; i < job->s.m; i++) {
        for (int64_t k = 0; k < job->s.k; k += VX_DENSE_K)
            job->kernels->widen((float *)job->chunk + i * job->s.k + k, element(x, i, k), 0, 1,
                                (int)vx_min_i64(VX_DENSE_K, job->s.k - k), x.dtype, job->swap);
    }
    for (int i = 0; i < job->args->weight->segments; i++)
        job->groups += vx_ceil_div(job->args->weight->segment[i].weight.shape[0], job->kernels->thin_columns);
    job->run = vx_max_i64(1, vx_min_i64(MOST_RUN, job->groups / FEW_PIECES));
    vx_pool_run(pool, vx_ceil_div(job->groups, job->run), thin_piece, job);
}

// ---- factors of the input -----------------------------------------------------------------------------------------------------
// Segments with a pre_scale are products of their own, of an x that was multiplied first; those without go together.
static bool next_part(const vx_weight *w, int *begin, vx_weight *part, vx_tensor *factor)
{
    const int first = *begin;
    if (first == w->segments) return false;
    *part = *w;
    part->branches = 0;
    part->segments = 0;
    *factor = w->segment[first].quant.pre_scale;
    int i = first;
    do {
        part->segment[part->segments] = w->segment[i++];
        part->segment[part->segments++].quant.pre_scale.rank = 0;
    } while (!factor->rank && i < w->segments && !w->segment[i].quant.pre_scale.rank);
    *begin = i;
    return true;
}

static size_t scaled_bytes(const vx_linear_args *args)
{
    return vx_align_up((size_t)(args->x.shape[0] * args->x.shape[1]) * (size_t)(vx_dtype_bits(args->x.dtype) / 8), 4096);
}

static bool has_factor(const vx_weight *w)
{
    for (int i = 0; i < w->segments; i++)
        if (w->segment[i].quant.pre_scale.rank) return true;
    return false;
}

struct scaling {
    vx_tensor to, x, factor;
};

// piece: a row
static void scale_row(void *ctx, int64_t row, int worker)
{
    (void)worker;
    const struct scaling *job = ctx;
    const vx_dtype t = job->x.dtype;
    for (int64_t k = 0; k < job->x.shape[1]; k++) {
        const float f = vx_get(job->factor.data, job->factor.dtype, k * job->factor.stride[0]);
        vx_put(vx_row_at(job->to, row), t, k, vx_get(vx_row_at(job->x, row), t, k) * f);
    }
}

static size_t plain_scratch(const vx_cpu *cpu, const vx_linear_args *args)
{
    const struct shape s = shape_of(vx_dense_kernels(cpu->isa), args);
    return (s.thin ? 1 : 2) * s.chunk + s.worker * (size_t)cpu->threads;
}

static void plain_product(vx_cpu *cpu, const vx_linear_args *args, void *scratch, const vx_branch_sum *sum)
{
    struct job job = { .args = args, .kernels = vx_dense_kernels(cpu->isa), .sum = sum, .swap = args->x.dtype == VX_BF16 };
    job.decode = vx_decode_for(cpu->isa);
    const struct shape *s = &job.s;
    job.s = shape_of(job.kernels, args);
    job.chunk = scratch;
    job.next_chunk = job.chunk + s->chunk;
    job.workers = job.chunk + (s->thin ? 1 : 2) * s->chunk;
    if (s->thin) thin_rows(cpu->pool, &job);
    else if (s->few) few_rows(cpu->pool, &job);
    else many_rows(cpu->pool, &job);
}

size_t vx_cpu_product_scratch(const vx_cpu *cpu, const vx_linear_args *args)
{
    if (!has_factor(args->weight)) return plain_scratch(cpu, args);
    vx_weight part;
    vx_tensor factor;
    size_t most = 0;
    for (int i = 0; next_part(args->weight, &i, &part, &factor);) {
        const size_t bytes = plain_scratch(cpu, &(vx_linear_args){ args->out, args->x, &part, args->as_stored });
        most = bytes > most ? bytes : most;
    }
    return scaled_bytes(args) + most;
}

void vx_cpu_product(vx_cpu *cpu, const vx_linear_args *args, void *scratch, const vx_branch_sum *sum)
{
    if (!has_factor(args->weight)) {
        plain_product(cpu, args, scratch, sum);
        return;
    }
    const vx_tensor scaled = vx_tensor_of(scratch, args->x.dtype, args->x.shape[0], args->x.shape[1]);
    vx_weight part;
    vx_tensor factor;
    for (int i = 0; next_part(args->weight, &i, &part, &factor);) {
        struct scaling job = { scaled, args->x, factor };
        if (factor.rank) vx_pool_run(cpu->pool, args->x.shape[0], scale_row, &job);
        const vx_linear_args with = { args->out, factor.rank ? scaled : args->x, &part, args->as_stored };
        plain_product(cpu, &with, (char *)scratch + scaled_bytes(args), sum);
    }
}

size_t vx_cpu_linear_scratch(const vx_device *dev, const vx_linear_args *args)
{
    const vx_cpu *cpu = vx_cpu_of_const(dev);
    if (args->x.dtype == VX_F16) return vx_cpu_linear_half_scratch(cpu, args);
    const size_t product = vx_cpu_product_scratch(cpu, args), branch = vx_cpu_branch_scratch(cpu, args);
    return product > branch ? product : branch;
}

vx_status vx_cpu_linear(vx_device *dev, const vx_linear_args *args)
{
    vx_cpu *cpu = vx_cpu_of(dev);
    if (args->x.dtype == VX_F16) return vx_cpu_linear_half(cpu, args);
    void *scratch;
    VX_TRY(vx_cpu_scratch(cpu, vx_cpu_linear_scratch(dev, args), &scratch));
    vx_cpu_product(cpu, args, scratch, NULL);
    vx_cpu_branch(cpu, args, scratch);
    return vx_ok();
}
