// The copy with conversion between any strides. A transpose goes in square tiles, so that each cache line of either side is
// met once while it is near.
#include "device/cpu/cpu.h"
#include "device/cpu/element.h"
#include "device/cpu/rows.h"
#include "device/cpu/walk.h"
#include <string.h>

struct copy_job {
    const vx_copy_args *args;
    const struct vx_row_kernels *kernels;
};

static void copy_same(char *out, const char *x, int64_t n, int64_t out_step, int64_t x_step, int64_t size)
{
    if (size == 4)
        for (int64_t i = 0; i < n; i++) ((uint32_t *)out)[i * out_step] = ((const uint32_t *)x)[i * x_step];
    else if (size == 2)
        for (int64_t i = 0; i < n; i++) ((uint16_t *)out)[i * out_step] = ((const uint16_t *)x)[i * x_step];
    else
        for (int64_t i = 0; i < n; i++) out[i * out_step] = x[i * x_step];
}

static void copy_run(const struct copy_job *job, char *out, const char *x, int64_t n, int64_t out_step, int64_t x_step)
{
    const vx_dtype out_type = job->args->out.dtype, x_type = job->args->x.dtype;
    if (out_step == 1 && x_step == 1) job->kernels->convert(out, out_type, x, x_type, n);
    else if (out_type == x_type) copy_same(out, x, n, out_step, x_step, vx_element_size(x_type));
    else
        for (int64_t i = 0; i < n; i++) vx_put(out, out_type, i * out_step, vx_get(x, x_type, i * x_step));
}

static void copy_line(const void *ctx, int64_t n, const int64_t *offset, const int64_t *step)
{
    const struct copy_job *job = ctx;
    char *out = (char *)job->args->out.data + offset[0] * vx_element_size(job->args->out.dtype);
    const char *x = (const char *)job->args->x.data + offset[1] * vx_element_size(job->args->x.dtype);
    copy_run(job, out, x, n, step[0], step[1]);
}

enum { TILE = 32, PITCH = TILE + 1 };

// The axis along which x is dense, where that is not the line's: the walk then runs over tiles of that axis and the line.
static int dense_axis(const vx_walk *w)
{
    const int last = w->rank - 1;
    if (w->stride[1][last] == 1 || w->shape[last] < TILE) return -1;
    for (int i = 0; i < last; i++)
        if (w->stride[1][i] == 1 && w->shape[i] >= 8) return i;
    return -1;
}

struct tile_job {
    struct copy_job copy;
    const vx_walk *walk;
    int axis;
    int64_t columns, rows; // tiles along the line and along the axis
};

static void tile_piece(void *ctx, int64_t piece, int worker)
{
    const struct tile_job *job = ctx;
    const vx_walk *w = job->walk;
    const int last = w->rank - 1;
    const int64_t column = piece % job->columns * TILE, row = piece / job->columns % job->rows * TILE;
    const int64_t width = w->shape[last] - column < TILE ? w->shape[last] - column : TILE;
    const int64_t height = w->shape[job->axis] - row < TILE ? w->shape[job->axis] - row : TILE;
    int64_t rest = piece / job->columns / job->rows, offset[2];
    (void)worker;
    for (int t = 0; t < 2; t++) offset[t] = column * w->stride[t][last] + row * w->stride[t][job->axis];
    for (int i = last - 1; i >= 0; i--) {
        if (i == job->axis) continue;
        for (int t = 0; t < 2; t++) offset[t] += rest % w->shape[i] * w->stride[t][i];
        rest /= w->shape[i];
    }
    const vx_copy_args *a = job->copy.args;
    const int64_t size = vx_element_size(a->x.dtype), out_size = vx_element_size(a->out.dtype);
    const char *x = (const char *)a->x.data + offset[1] * size;
    char *out = (char *)a->out.data + offset[0] * out_size;
    // Through a tile of our own: rows of x a power of two apart share few places of the cache, so each is read once, whole.
    char tile[TILE * PITCH * sizeof(uint32_t)] __attribute__((aligned(64)));
    for (int64_t c = 0; c < width; c++)
        memcpy(tile + c * PITCH * size, x + c * w->stride[1][last] * size, (size_t)(height * size));
    for (int64_t r = 0; r < height; r++)
        copy_run(&job->copy, out + r * w->stride[0][job->axis] * out_size, tile + r * size, width, w->stride[0][last], PITCH);
}

vx_status vx_cpu_copy(vx_device *dev, const vx_copy_args *args)
{
    vx_cpu *cpu = vx_cpu_of(dev);
    const vx_tensor t[] = { args->out, args->x };
    const vx_walk walk = vx_walk_of(2, t);
    const struct copy_job copy = { args, cpu->rows };
    const int axis = dense_axis(&walk);
    if (axis < 0) {
        vx_walk_run(cpu, &walk, copy_line, &copy);
        return vx_ok();
    }
    struct tile_job job = { copy, &walk, axis, (walk.shape[walk.rank - 1] + TILE - 1) / TILE,
                            (walk.shape[axis] + TILE - 1) / TILE };
    int64_t pieces = job.columns * job.rows;
    for (int i = 0; i < walk.rank - 1; i++)
        if (i != axis) pieces *= walk.shape[i];
    vx_pool_run(cpu->pool, pieces, tile_piece, &job);
    return vx_ok();
}
