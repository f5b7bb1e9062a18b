// Cuts the operators on rows into pieces of a fixed number of rows and hands them to the pool.
#include "device/cpu/rows.h"
#include "base/checked.h"
#include "device/cpu/cpu.h"
#include "device/cpu/decode.h"
#include "device/cpu/element.h"

// Fixed, so that no result can depend on the number of threads; 64 rows of 1,024 bf16 are 128 KiB, half of a small L2.
enum { ROWS_OF_PIECE = 64 };

const struct vx_row_kernels *vx_row_kernels_for(int isa)
{
#if defined(__x86_64__)
    if (isa >= VX_ISA_AVX512) return &vx_rows_avx512;
    if (isa >= VX_ISA_AVX2) return &vx_rows_avx2;
#endif
    (void)isa;
    return &vx_rows_plain;
}

#define ROW_OPERATOR(op, rows_of)                                                       \
    struct op##_job {                                                                   \
        const vx_##op##_args *args;                                                     \
        void (*kernel)(const vx_##op##_args *, int64_t, int64_t);                       \
        int64_t rows;                                                                   \
    };                                                                                  \
    static void op##_piece(void *ctx, int64_t piece, int worker)                        \
    {                                                                                   \
        const struct op##_job *job = ctx;                                               \
        const int64_t begin = piece * ROWS_OF_PIECE;                                    \
        (void)worker;                                                                   \
        job->kernel(job->args, begin, vx_min_i64(begin + ROWS_OF_PIECE, job->rows));    \
    }                                                                                   \
    vx_status vx_cpu_##op(vx_device *dev, const vx_##op##_args *args)                   \
    {                                                                                   \
        const vx_cpu *cpu = vx_cpu_of(dev);                                             \
        struct op##_job job = { args, cpu->rows->op, args->rows_of.shape[0] };          \
        vx_pool_run(cpu->pool, vx_ceil_div(job.rows, ROWS_OF_PIECE), op##_piece, &job); \
        return vx_ok();                                                                 \
    }
VX_ROW_OPERATORS(ROW_OPERATOR)
#undef ROW_OPERATOR

// A piece is in the cache when it is normalised.
struct gate_add_norm_job {
    const vx_gate_add_norm_args *args;
    const struct vx_row_kernels *kernels;
};

static void gate_add_norm_piece(void *ctx, int64_t piece, int worker)
{
    const struct gate_add_norm_job *job = ctx;
    const int64_t begin = piece * ROWS_OF_PIECE, end = vx_min_i64(begin + ROWS_OF_PIECE, job->args->add.x.shape[0]);
    (void)worker;
    const vx_rms_norm_modulate_args *norm = &job->args->norm;
    job->kernels->gate_add(&job->args->add, begin, end);
    if (norm->shift.rank) job->kernels->rms_norm_modulate(norm, begin, end);
    else job->kernels->rms_norm(&(vx_rms_norm_args){ norm->out, norm->x, norm->w, norm->eps, VX_NORM_ROUND_ONCE }, begin, end);
}

vx_status vx_cpu_gate_add_norm(vx_device *dev, const vx_gate_add_norm_args *args)
{
    const vx_cpu *cpu = vx_cpu_of(dev);
    struct gate_add_norm_job job = { args, cpu->rows };
    vx_pool_run(cpu->pool, vx_ceil_div(args->add.x.shape[0], ROWS_OF_PIECE), gate_add_norm_piece, &job);
    return vx_ok();
}

struct embed_job {
    const vx_embed_args *args;
    const struct vx_row_kernels *kernels;
    vx_decode_fn decode;
};

// One row of a quantised table. Half precision goes by f32, a piece at a time.
static void embed_decoded(const struct embed_job *job, int64_t r, int64_t id)
{
    enum { STRETCH = 512 }; // a multiple of every step
    const vx_embed_args *a = job->args;
    if (a->out.dtype != VX_F16) {
        job->decode(&a->quant, a->table, id, 0, a->quant.k, a->out.dtype, vx_row_at(a->out, r));
        return;
    }
    for (int64_t c = 0; c < a->quant.k; c += STRETCH) {
        float y[STRETCH];
        const int64_t end = vx_min_i64(a->quant.k, c + STRETCH);
        job->decode(&a->quant, a->table, id, c, end, VX_F32, y);
        job->kernels->convert((uint16_t *)vx_row_at(a->out, r) + c, VX_F16, y, VX_F32, end - c);
    }
}

static void embed_piece(void *ctx, int64_t piece, int worker)
{
    const struct embed_job *job = ctx;
    const vx_embed_args *a = job->args;
    const int32_t *ids = a->ids.data;
    const int64_t begin = piece * ROWS_OF_PIECE, end = vx_min_i64(begin + ROWS_OF_PIECE, a->out.shape[0]);
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        if (a->quant.kind != VX_QUANT_NONE) embed_decoded(job, r, ids[r]);
        else
            job->kernels->convert(vx_row_at(a->out, r), a->out.dtype, vx_row_at(a->table, ids[r]), a->table.dtype,
                                  a->out.shape[1]);
    }
}

vx_status vx_cpu_embed(vx_device *dev, const vx_embed_args *args)
{
    const vx_cpu *cpu = vx_cpu_of(dev);
    struct embed_job job = { args, cpu->rows, vx_decode_for(cpu->isa) };
    vx_pool_run(cpu->pool, vx_ceil_div(args->out.shape[0], ROWS_OF_PIECE), embed_piece, &job);
    return vx_ok();
}
