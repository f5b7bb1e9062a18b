// Pieces of work along the lines of a walk.
#include "device/cpu/walk.h"
#include "base/checked.h"

// Elements of a piece of work: small enough to share out, large enough that starting a piece costs nothing beside it.
enum { PIECE = 16384 };

struct walk_job {
    const vx_walk *walk;
    vx_walk_line line;
    const void *ctx;
    int64_t lines, lines_of_piece; // short lines: several to a piece
    int64_t parts, part;           // long lines: cut into `parts` of `part` elements
};

static void run_line(const struct walk_job *job, int64_t line, int64_t begin, int64_t end)
{
    const vx_walk *w = job->walk;
    int64_t offset[VX_WALK_TENSORS] = { 0 }, step[VX_WALK_TENSORS] = { 0 };
    const int last = w->rank - 1;
    for (int i = last - 1; i >= 0; i--) {
        const int64_t at = line % w->shape[i];
        line /= w->shape[i];
        for (int t = 0; t < w->tensors; t++) offset[t] += at * w->stride[t][i];
    }
    for (int t = 0; t < w->tensors; t++) {
        step[t] = w->stride[t][last];
        offset[t] += begin * step[t];
    }
    job->line(job->ctx, end - begin, offset, step);
}

static void walk_piece(void *ctx, int64_t piece, int worker)
{
    const struct walk_job *job = ctx;
    const int64_t n = job->walk->shape[job->walk->rank - 1];
    (void)worker;
    if (job->parts > 1) {
        const int64_t begin = piece % job->parts * job->part;
        run_line(job, piece / job->parts, begin, vx_min_i64(begin + job->part, n));
        return;
    }
    const int64_t begin = piece * job->lines_of_piece, end = vx_min_i64(begin + job->lines_of_piece, job->lines);
    for (int64_t i = begin; i < end; i++) run_line(job, i, 0, n);
}

void vx_walk_run(vx_cpu *cpu, const vx_walk *walk, vx_walk_line line, const void *ctx)
{
    const int64_t n = walk->shape[walk->rank - 1];
    struct walk_job job = { .walk = walk, .line = line, .ctx = ctx, .lines = 1, .part = PIECE };
    for (int i = 0; i < walk->rank - 1; i++) job.lines *= walk->shape[i];
    job.parts = vx_ceil_div(n, PIECE);
    job.lines_of_piece = vx_max_i64(1, PIECE / n);
    const int64_t pieces = job.parts > 1 ? job.lines * job.parts : vx_ceil_div(job.lines, job.lines_of_piece);
    vx_pool_run(cpu->pool, pieces, walk_piece, &job);
}
