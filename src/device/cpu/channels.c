// Operators with numbers per channel: the snake, and the norm over groups of channels of one frame.
#include "base/checked.h"
#include "device/cpu/cpu.h"
#include "device/cpu/element.h"
#include "device/cpu/rows.h"
#include <math.h>

// ---- snake ----

enum { STRETCH = 8192 }; // samples of a piece

struct snake_job {
    const vx_snake_args *args;
    const struct vx_row_kernels *kernels;
    int64_t stretches; // of a channel of a line
};

// Of a line, or of a frame.
static float *plane(vx_tensor t, int64_t channel, int64_t frame)
{
    return vx_f32_of(t) + channel * t.stride[0] + frame * t.stride[1];
}

static void snake_piece(void *ctx, int64_t piece, int worker)
{
    (void)worker;
    const struct snake_job *job = ctx;
    const vx_snake_args *a = job->args;
    const int64_t row = piece / job->stretches, start = piece % job->stretches * STRETCH;
    const int64_t channel = row / a->x.shape[1], line = row % a->x.shape[1];
    const float alpha = vx_f32_of(a->alpha)[channel * a->alpha.stride[0]];
    float *out = plane(a->out, channel, line) + start;
    const float *x = plane(a->x, channel, line) + start;
    job->kernels->snake(out, x, alpha, 1.0f / (alpha + 1e-9f), vx_min_i64(STRETCH, a->x.shape[2] - start));
}

vx_status vx_cpu_snake(vx_device *dev, const vx_snake_args *args)
{
    vx_cpu *cpu = vx_cpu_of(dev);
    struct snake_job job = { args, cpu->rows, vx_ceil_div(args->x.shape[2], STRETCH) };
    vx_pool_run(cpu->pool, args->x.shape[0] * args->x.shape[1] * job.stretches, snake_piece, &job);
    return vx_ok();
}

// ---- group norm ----

struct norm_job {
    const vx_group_norm_args *args;
    const struct vx_row_kernels *kernels;
};

// Over the channels of the group, in order.
static double group_sum(const struct norm_job *job, int64_t first, int64_t count, int64_t frame, float mean, bool squares)
{
    const vx_tensor x = job->args->x;
    double sum = 0;
    for (int64_t c = first; c < first + count; c++)
        sum += job->kernels->plane_sum(plane(x, c, frame), x.stride[2], x.shape[2], x.shape[3], mean, squares);
    return sum;
}

// piece: one group of one frame. Its numbers are read three times; those of the released network fit the second-level cache.
static void norm_piece(void *ctx, int64_t piece, int worker)
{
    (void)worker;
    const struct norm_job *job = ctx;
    const vx_group_norm_args *a = job->args;
    const vx_tensor x = a->x;
    const int64_t frame = piece / a->groups, count = x.shape[0] / a->groups, first = piece % a->groups * count;
    const double n = (double)(count * x.shape[2] * x.shape[3]);
    const float mean = (float)(group_sum(job, first, count, frame, 0, false) / n);
    const float variance = (float)(group_sum(job, first, count, frame, mean, true) / n);
    vx_plane_norm norm = { .mean = mean, .deviation = sqrtf(variance + a->eps), .silu = a->silu };
    for (int64_t c = first; c < first + count; c++) {
        norm.w = vx_get(a->w.data, a->w.dtype, c * a->w.stride[0]);
        norm.b = vx_get(a->b.data, a->b.dtype, c * a->b.stride[0]);
        for (int64_t r = 0; r < x.shape[2]; r++)
            job->kernels->normalise(plane(a->out, c, frame) + r * a->out.stride[2], plane(x, c, frame) + r * x.stride[2], &norm,
                                    x.shape[3]);
    }
}

vx_status vx_cpu_group_norm(vx_device *dev, const vx_group_norm_args *args)
{
    vx_cpu *cpu = vx_cpu_of(dev);
    struct norm_job job = { args, cpu->rows };
    vx_pool_run(cpu->pool, args->x.shape[1] * args->groups, norm_piece, &job);
    return vx_ok();
}
