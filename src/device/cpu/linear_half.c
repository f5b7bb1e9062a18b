// vx_linear in half precision: weights and biases of any format are rounded to f16 before they meet an f16 x. Once per panel
// that is done in a worker's own memory; the rest is linear.c's way with few rows.
#include "base/checked.h"
#include "device/cpu/cpu.h"
#include "device/cpu/decode.h"
#include "device/cpu/dense.h"
#include "device/cpu/element.h"
#include "device/cpu/rows.h"

struct job {
    const vx_linear_args *args;
    const struct vx_dense_kernels *kernels;
    const struct vx_row_kernels *rows;
    vx_decode_fn decode;
    char *workers;
    size_t worker, panel, a, c; // bytes of a worker's part; offsets within it, the panel of f16 at 0
};

static size_t layout(struct job *job)
{
    const int64_t k = job->args->x.shape[1], nr = job->kernels->nr, mr = job->kernels->mr;
    job->panel = vx_align_up((size_t)(nr * k) * 2, 64);
    job->a = vx_align_up(job->panel + (size_t)(nr * k) * 4, 64);
    job->c = vx_align_up(job->a + (size_t)mr * VX_DENSE_K_STRIDE * 4, 64);
    job->worker = vx_align_up(job->c + (size_t)(mr * nr) * 4, 4096);
    return job->worker;
}

// One row of a quantised segment, decoded to f32 first.
static void half_row_decoded(const struct job *job, uint16_t *to, const vx_weight_segment *s, int64_t row)
{
    for (int64_t k = 0; k < s->quant.k; k += VX_DENSE_K) {
        float y[VX_DENSE_K];
        const int64_t end = vx_min_i64(s->quant.k, k + VX_DENSE_K);
        job->decode(&s->quant, s->weight, row, k, end, VX_F32, y);
        job->rows->convert(to + k, VX_F16, y, VX_F32, end - k);
    }
}

static void half_rows(const struct job *job, uint16_t *to, const vx_weight_segment *s, int64_t row, int64_t rows)
{
    const int64_t k = job->args->x.shape[1];
    for (int64_t j = 0; j < rows; j++) {
        if (s->quant.kind != VX_QUANT_NONE) half_row_decoded(job, to + j * k, s, row + j);
        else job->rows->convert(to + j * k, VX_F16, vx_row_at(s->weight, row + j), s->weight.dtype, k);
    }
}

// nr columns of a segment, from `row` of its weight on, for all rows of x.
static void multiply(const struct job *job, const vx_weight_segment *s, int64_t row, char *mine)
{
    const vx_tensor x = job->args->x, out = job->args->out;
    const struct vx_dense_kernels *kernels = job->kernels;
    const int64_t k = x.shape[1], nr = kernels->nr, columns = vx_min_i64(nr, s->weight.shape[0] - row);
    uint16_t *half = (uint16_t *)mine, half_bias[VX_DENSE_MAX_NR];
    float *panel = (float *)(mine + job->panel), *a = (float *)(mine + job->a), *c = (float *)(mine + job->c);
    float bias[VX_DENSE_MAX_NR];
    half_rows(job, half, s, row, columns);
    for (int64_t at = 0; at < k; at += VX_DENSE_K)
        kernels->pack(panel + at * nr, half + at, k, (int)columns, (int)vx_min_i64(VX_DENSE_K, k - at), VX_F16, false);
    if (s->bias.rank) {
        job->rows->convert(half_bias, VX_F16, (const char *)s->bias.data + row * vx_element_size(s->bias.dtype), s->bias.dtype,
                           columns);
        job->rows->convert(bias, VX_F32, half_bias, VX_F16, columns);
    }
    for (int64_t top = 0; top < x.shape[0]; top += kernels->mr) {
        const int rows = (int)vx_min_i64(kernels->mr, x.shape[0] - top);
        for (int64_t at = 0; at < k; at += VX_DENSE_K) {
            const int inner = (int)vx_min_i64(VX_DENSE_K, k - at);
            const ptrdiff_t none = 0;
            const vx_dense_rows b = { panel + at * nr, &none, 1, inner, nr };
            kernels->widen(a, (const uint16_t *)vx_row_at(x, top) + at, x.stride[0], rows, inner, VX_F16, false);
            kernels->tile(rows, a, &b, c, nr, at > 0);
        }
        char *to = (char *)vx_row_at(out, top) + (s->column + row) * vx_element_size(out.dtype);
        for (int i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                vx_put(to, out.dtype, i * out.stride[0] + j, s->bias.rank ? c[i * nr + j] + bias[j] : c[i * nr + j]);
    }
}

// piece: one panel, counted through the segments
static void panel_piece(void *ctx, int64_t piece, int worker)
{
    const struct job *job = ctx;
    const vx_weight_segment *s = job->args->weight->segment;
    for (;; s++) {
        const int64_t panels = vx_ceil_div(s->weight.shape[0], job->kernels->nr);
        if (piece < panels) break;
        piece -= panels;
    }
    multiply(job, s, piece * job->kernels->nr, job->workers + (size_t)worker * job->worker);
}

size_t vx_cpu_linear_half_scratch(const vx_cpu *cpu, const vx_linear_args *args)
{
    struct job job = { .args = args, .kernels = vx_dense_kernels(cpu->isa) };
    return layout(&job) * (size_t)cpu->threads;
}

vx_status vx_cpu_linear_half(vx_cpu *cpu, const vx_linear_args *args)
{
    struct job job = {
        .args = args, .kernels = vx_dense_kernels(cpu->isa), .rows = cpu->rows, .decode = vx_decode_for(cpu->isa)
    };
    const size_t bytes = layout(&job) * (size_t)cpu->threads;
    void *scratch;
    VX_TRY(vx_cpu_scratch(cpu, bytes, &scratch));
    job.workers = scratch;
    int64_t panels = 0;
    for (int i = 0; i < args->weight->segments; i++)
        panels += vx_ceil_div(args->weight->segment[i].weight.shape[0], job.kernels->nr);
    vx_pool_run(cpu->pool, panels, panel_piece, &job);
    return vx_ok();
}
