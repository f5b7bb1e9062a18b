// The released model that has no files: its dimensions, and weights that a GPU makes up.
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"
#include "pipeline/internal.h"

static int take_away(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st, (void)kind, (void)where;
    return remove(path);
}

void vx_bench_model_close(vx_bench_model *made)
{
    vx_model_close(&made->model);
    if (made->folder) nftw(made->folder, take_away, 16, FTW_DEPTH | FTW_PHYS);
    vx_free(made->folder);
    made->folder = NULL;
}

// Before half a gigabyte of files is written.
static vx_status need_gpu(vx_context *context, const vx_bench_params *p)
{
    vx_device *device, *planner;
    VX_TRY(vx_open_device(context, p->device, p->attention, p->no_graphs, &device, &planner));
    if (device == context->device)
        return vx_remedy(vx_fail_field(VX_ERR_REQUIRED, "model", "the released dimensions with made-up weights need a GPU"),
                         "give --model PATH (vortex demo-model writes a small one), or --device cuda");
    vx_device_destroy(&planner);
    vx_device_destroy(&device);
    return vx_ok();
}

vx_status vx_bench_model_open(vx_bench_model *made, vx_context *context, const vx_bench_params *p)
{
    const char *tmp = getenv("TMPDIR");
    *made = (vx_bench_model){ 0 };
    VX_TRY(need_gpu(context, p));
    *made = (vx_bench_model){ .folder = vx_path_join(tmp && *tmp ? tmp : "/tmp", "vortex-bench-XXXXXX") };
    VX_NEED_MEMORY(made->folder, "a path");
    if (!mkdtemp(made->folder)) {
        vx_status s = vx_fail(VX_ERR_OUTPUT, "%s: no folder for the bench's files could be made", made->folder);
        vx_free(made->folder);
        made->folder = NULL;
        return s;
    }
    vx_status s = vx_demo_model_write(
        context, made->folder, &(vx_demo_model_params){ VX_INIT(vx_demo_model_params), .released = true, .replace = true });
    if (!s.code)
        s = vx_model_open(context, &made->model,
                          &(vx_model_params){ VX_INIT(vx_model_params), .path = made->folder, .device = p->device,
                                              .attention = p->attention, .no_graphs = p->no_graphs });
    if (!s.code) s = vx_device_made_up(made->model->device, VX_CANONICAL_SEED);
    if (!s.code) made->model->made_up = true;
    if (s.code) vx_bench_model_close(made);
    return s;
}
