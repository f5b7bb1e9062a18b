// vx_linear. The weight's rows are cut in panels of nr output columns; a panel never crosses a segment, so a column's sum
// knows nothing of where its neighbours come from.
//
// Two ways through the same loops:
//   many rows   a chunk of panels is packed into shared scratch once, then pieces of (row group) x (column group) use it
//   few rows    a piece is one panel, packed by the worker that needs it, block by block: the weight is read once and
//               what is packed never leaves the cache
// Sums over more than VX_DENSE_K numbers wait in a C buffer between blocks: one chain over k, as operators.h says.
#include "base/checked.h"
#include "device/cpu/cpu.h"
#include "device/cpu/dense.h"

enum {
    FEW_TILES = 2,          // at most so many tiles of rows: the second way
    GROUP_ROWS = 168,       // a row group's part of B crosses the third-level cache once per 168 rows: 0.8 bytes a cycle
    GROUP_COLUMNS = 512,    // 512 x VX_DENSE_K floats of B are 1 MiB: half of the second-level cache
    CHUNK_BYTES = 64 << 20, // bound of the packed weight
};

struct shape {
    int64_t m, k, panels, chunk_panels, group_rows, row_groups;
    int mr, nr, group_panels;
    bool few;
    size_t packed, bias, worker, c_offset; // bytes; c_offset within a worker's part
};

struct job {
    const vx_linear_args *args;
    const struct vx_dense_kernels *kernels;
    struct shape s;
    int64_t first, count; // panels of this chunk
    float *packed, *bias;
    char *workers;
    bool swap;
};

struct panel {
    const vx_weight_segment *segment;
    int64_t row;
    int rows;
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

static const void *element(vx_tensor t, int64_t row, int64_t column)
{
    return (const char *)t.data + (row * t.stride[0] + column) * (vx_dtype_bits(t.dtype) / 8);
}

static struct shape shape_of(const struct vx_dense_kernels *kernels, const vx_linear_args *args)
{
    struct shape s = { .m = args->x.shape[0], .k = args->x.shape[1], .mr = kernels->mr, .nr = kernels->nr };
    for (int i = 0; i < args->weight->segments; i++) s.panels += vx_ceil_div(args->weight->segment[i].weight.shape[0], s.nr);
    s.few = s.m <= FEW_TILES * s.mr;
    const size_t a = vx_align_up((size_t)s.mr * VX_DENSE_K_STRIDE * 4, 64), tile = (size_t)s.mr * (size_t)s.nr * 4;
    if (s.few) {
        const size_t b = (size_t)VX_DENSE_K * (size_t)s.nr * 4;
        s.chunk_panels = s.panels;
        s.c_offset = a + b;
        s.worker = vx_align_up(s.c_offset + FEW_TILES * tile, 4096);
        return s;
    }
    const int64_t panel_bytes = vx_max_i64(s.k, 1) * s.nr * 4;
    s.chunk_panels = vx_min_i64(s.panels, vx_max_i64(1, CHUNK_BYTES / panel_bytes));
    s.group_rows = GROUP_ROWS / s.mr * s.mr;
    s.row_groups = vx_ceil_div(s.m, s.group_rows);
    // Fewer rows, narrower column groups: enough pieces to share out.
    s.group_panels = GROUP_COLUMNS / s.nr / (s.row_groups >= 16 ? 1 : s.row_groups >= 4 ? 2 : 4);
    s.packed = (size_t)s.chunk_panels * (size_t)panel_bytes;
    s.bias = vx_align_up((size_t)s.chunk_panels * (size_t)s.nr * 4, 4096);
    s.c_offset = a;
    s.worker = vx_align_up(a + (size_t)(s.group_rows / s.mr) * (size_t)s.group_panels * tile, 4096);
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

static void pack_panel(void *ctx, int64_t piece, int worker)
{
    (void)worker;
    const struct job *job = ctx;
    const struct shape *s = &job->s;
    const struct panel p = panel_at(job->args->weight, s->nr, job->first + piece);
    const vx_tensor w = p.segment->weight;
    float *to = job->packed + piece * s->k * s->nr;
    for (int64_t k = 0; k < s->k; k += VX_DENSE_K) {
        job->kernels->pack(to + k * s->nr, element(w, p.row, k), w.stride[0], p.rows, (int)vx_min_i64(VX_DENSE_K, s->k - k),
                           w.dtype, job->swap);
    }
    if (p.segment->bias.rank) widen_bias(job->bias + piece * s->nr, p);
}

// Adds the bias and rounds the rows of one finished C tile.
static void finish_tile(const struct job *job, struct panel p, int64_t row, int rows, const float *c, const float *bias)
{
    const vx_tensor out = job->args->out;
    for (int i = 0; i < rows; i++) {
        job->kernels->finish((void *)element(out, row + i, p.segment->column + p.row), out.dtype, c + i * job->s.nr, bias,
                             p.rows);
    }
}

// One row group times one column group of the packed chunk.
static void multiply_group(void *ctx, int64_t piece, int worker)
{
    const struct job *job = ctx;
    const struct shape *s = &job->s;
    const vx_tensor x = job->args->x;
    const int64_t first = piece / s->row_groups * s->group_panels, top = piece % s->row_groups * s->group_rows;
    const int64_t panels = vx_min_i64(s->group_panels, job->count - first), bottom = vx_min_i64(s->m, top + s->group_rows);
    float *a = (float *)(job->workers + (size_t)worker * s->worker);
    float *c0 = (float *)((char *)a + s->c_offset);
    const ptrdiff_t none = 0;
    for (int64_t k = 0; k < s->k; k += VX_DENSE_K) {
        const int inner = (int)vx_min_i64(VX_DENSE_K, s->k - k);
        float *c = c0;
        for (int64_t row = top; row < bottom; row += s->mr) {
            const int rows = (int)vx_min_i64(s->mr, bottom - row);
            job->kernels->widen(a, element(x, row, k), x.stride[0], rows, inner, x.dtype, job->swap);
            for (int64_t i = first; i < first + panels; i++, c += s->mr * s->nr) {
                const vx_dense_rows b = { job->packed + (i * s->k + k) * s->nr, &none, 1, inner, s->nr };
                job->kernels->tile(rows, a, &b, c, s->nr, k > 0);
                if (k + inner < s->k) continue;
                const struct panel p = panel_at(job->args->weight, s->nr, job->first + i);
                finish_tile(job, p, row, rows, c, p.segment->bias.rank ? job->bias + i * s->nr : NULL);
            }
        }
    }
}

// All rows times one panel, packed here.
static void multiply_panel(void *ctx, int64_t piece, int worker)
{
    const struct job *job = ctx;
    const struct shape *s = &job->s;
    const vx_tensor x = job->args->x;
    const struct panel p = panel_at(job->args->weight, s->nr, piece);
    const vx_tensor w = p.segment->weight;
    float *a = (float *)(job->workers + (size_t)worker * s->worker);
    float *packed = a + s->mr * VX_DENSE_K_STRIDE, *c = (float *)((char *)a + s->c_offset);
    const ptrdiff_t none = 0;
    for (int64_t k = 0; k < s->k; k += VX_DENSE_K) {
        const int inner = (int)vx_min_i64(VX_DENSE_K, s->k - k);
        job->kernels->pack(packed, element(w, p.row, k), w.stride[0], p.rows, inner, w.dtype, job->swap);
        const vx_dense_rows b = { packed, &none, 1, inner, s->nr };
        for (int64_t row = 0; row < s->m; row += s->mr) {
            const int rows = (int)vx_min_i64(s->mr, s->m - row);
            job->kernels->widen(a, element(x, row, k), x.stride[0], rows, inner, x.dtype, job->swap);
            job->kernels->tile(rows, a, &b, c + row * s->nr, s->nr, k > 0);
        }
    }
    float bias[VX_DENSE_MAX_NR];
    if (p.segment->bias.rank) widen_bias(bias, p);
    finish_tile(job, p, 0, (int)s->m, c, p.segment->bias.rank ? bias : NULL);
}

size_t vx_cpu_linear_scratch(const vx_device *dev, const vx_linear_args *args)
{
    const vx_cpu *cpu = vx_cpu_of_const(dev);
    const struct shape s = shape_of(vx_dense_kernels(cpu->isa), args);
    return s.packed + s.bias + s.worker * (size_t)cpu->threads;
}

vx_status vx_cpu_linear(vx_device *dev, const vx_linear_args *args)
{
    vx_cpu *cpu = vx_cpu_of(dev);
    struct job job = { .args = args, .kernels = vx_dense_kernels(cpu->isa), .swap = args->x.dtype == VX_BF16 };
    const struct shape *s = &job.s;
    job.s = shape_of(job.kernels, args);
    void *scratch;
    VX_TRY(vx_cpu_scratch(cpu, vx_cpu_linear_scratch(dev, args), &scratch));
    job.packed = scratch;
    job.bias = (float *)((char *)scratch + s->packed);
    job.workers = (char *)job.bias + s->bias;
    if (s->few) {
        vx_pool_run(cpu->pool, s->panels, multiply_panel, &job);
        return vx_ok();
    }
    for (job.first = 0; job.first < s->panels; job.first += s->chunk_panels) {
        job.count = vx_min_i64(s->chunk_panels, s->panels - job.first);
        vx_pool_run(cpu->pool, job.count, pack_panel, &job);
        vx_pool_run(cpu->pool, s->row_groups * vx_ceil_div(job.count, s->group_panels), multiply_group, &job);
    }
    return vx_ok();
}
