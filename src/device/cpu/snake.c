// vx_snake_alias_free: pieces are stretches of one channel of a line; the doubled signal lives only on a worker's stack.
#include "base/checked.h"
#include "device/cpu/cpu.h"
#include "device/cpu/dense.h"
#include "tensor/mathf.h"

struct job {
    const vx_snake_alias_free_args *args;
    const struct vx_dense_kernels *kernels;
    int64_t tiles; // of a channel of a line
};

static void activate(void *ctx, int64_t piece, int worker)
{
    (void)worker;
    const struct job *job = ctx;
    const vx_snake_alias_free_args *a = job->args;
    const int64_t row = piece / job->tiles, channel = row / a->x.shape[1], line = row % a->x.shape[1];
    const int64_t length = a->x.shape[2], start = piece % job->tiles * VX_SNAKE_TILE;
    vx_snake_run run = {
        .out = vx_f32_of(a->out) + channel * a->out.stride[0] + line * a->out.stride[1] + start,
        .x = vx_f32_of(a->x) + channel * a->x.stride[0] + line * a->x.stride[1],
        .start = start,
        .length = length,
        .count = (int)vx_min_i64(VX_SNAKE_TILE, length - start),
        .alpha = vx_expf(vx_f32_of(a->alpha)[channel * a->alpha.stride[0]]),
        .gain = 1.0f / (vx_expf(vx_f32_of(a->beta)[channel * a->beta.stride[0]]) + 1e-9f),
    };
    for (int t = 0; t < 12; t++) {
        run.up[t] = vx_f32_of(a->up)[t * a->up.stride[0]];
        run.down[t] = vx_f32_of(a->down)[t * a->down.stride[0]];
    }
    job->kernels->snake(&run);
}

size_t vx_cpu_snake_alias_free_scratch(const vx_device *dev, const vx_snake_alias_free_args *args)
{
    (void)dev, (void)args;
    return 0;
}

vx_status vx_cpu_snake_alias_free(vx_device *dev, const vx_snake_alias_free_args *args)
{
    vx_cpu *cpu = vx_cpu_of(dev);
    struct job job = { args, vx_dense_kernels(cpu->isa), vx_ceil_div(args->x.shape[2], VX_SNAKE_TILE) };
    vx_pool_run(cpu->pool, args->x.shape[0] * args->x.shape[1] * job.tiles, activate, &job);
    return vx_ok();
}
