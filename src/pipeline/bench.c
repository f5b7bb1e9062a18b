// `vortex bench`: one operator, or one stage of a model, timed after a warm-up. Every sample is reported, beside what it ran on.
// Without a model the released dimensions run on a GPU with made-up weights.
#include <stdlib.h>
#include <string.h>

#include "pipeline/internal.h"

static const char *const operators[] = { "linear", "attention", "elementwise" };
static const char *const stages[] = { "text-encoder",  "denoiser",      "video-vae", "audio-vae",
                                      "image-encoder", "audio-encoder", "generate" };
enum { OPERATORS = 3, STAGES = sizeof stages / sizeof *stages, DEFAULT_RUNS = 3 };

static bool among(const char *what, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(what, names[i])) return true;
    return false;
}

static int by_value(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

double vx_bench_median(const double *samples, int count)
{
    double sorted[VX_BENCH_RUNS];
    memcpy(sorted, samples, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

json_t *vx_bench_samples(const double *samples, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(list, json_real(samples[i]));
    return list;
}

// What the numbers belong to.
static void tell_machine(json_t *o, const vx_context *context, const vx_device *device)
{
    json_object_set_new(o, "vortex_version", json_string(vx_version()));
    json_object_set_new(o, "commit", json_string(vx_commit()));
    json_object_set_new(o, "build", json_string(vx_build()));
    json_object_set_new(o, "device", json_string(vx_device_name(device)));
    json_object_set_new(o, "instruction_set", json_string(vx_device_isa(device)));
    json_object_set_new(o, "threads", json_integer(context->threads));
    vx_cuda_info info;
    if (!vx_device_far(device) || vx_cuda_query(&info, 0).code) return;
    json_object_set_new(o, "gpu",
                        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:i, s:i, s:f, s:f}", "name", info.name, "driver",
                                  info.driver, "driver_cuda", info.driver_cuda, "runtime", info.runtime, "cublaslt", info.cublas,
                                  "cudnn", info.cudnn, "memory_bytes", (json_int_t)info.memory_total, "sm_clock_mhz",
                                  info.sm_clock, "memory_clock_mhz", info.memory_clock, "power_w", info.power, "power_limit_w",
                                  info.power_limit));
}

static void tell_samples(const vx_bench_run *run)
{
    json_t *o = run->report;
    const double median = vx_bench_median(run->sample, run->runs);
    json_object_set_new(o, "samples_s", vx_bench_samples(run->sample, run->runs));
    json_object_set_new(o, "median_s", json_real(median));
    if (run->flop > 0) json_object_set_new(o, "gflop_per_s", json_real(run->flop / median * 1e-9));
    if (run->bytes > 0) json_object_set_new(o, "gbyte_per_s", json_real(run->bytes / median * 1e-9));
}

static vx_status bench_operator(vx_bench_run *run, vx_context *context)
{
    const vx_bench_params *p = run->params;
    vx_device *device = p->model ? p->model->device : NULL, *planner = NULL;
    if (!device) VX_TRY(vx_open_device(context, p->device, p->attention, p->no_graphs, &device, &planner));
    tell_machine(run->report, context, device);
    vx_status s = vx_bench_operator(run, device);
    if (planner && device != context->device) {
        vx_device_destroy(&planner);
        vx_device_destroy(&device);
    }
    return s;
}

static vx_status bench_stage(vx_bench_run *run, vx_context *context)
{
    vx_bench_model made = { .model = run->params->model };
    if (!made.model) VX_TRY(vx_bench_model_open(&made, context, run->params));
    tell_machine(run->report, context, made.model->device);
    vx_status s = vx_bench_stage(run, made.model);
    if (made.folder) vx_bench_model_close(&made);
    return s;
}

vx_status vx_bench(vx_context *context, const vx_bench_params *params, char **json)
{
    vx_bench_params p = { 0 };
    if (!params || !params->struct_size || params->struct_size > sizeof p)
        return vx_fail(VX_ERR_USAGE, "the bench parameters were not initialised with VX_INIT");
    memcpy(&p, params, params->struct_size);
    const bool operation = p.what && among(p.what, operators, OPERATORS), stage = p.what && among(p.what, stages, STAGES);
    if (!operation && !stage)
        return vx_fail(VX_ERR_USAGE,
                       "bench '%.40s' is none of linear, attention, elementwise, text-encoder, denoiser, video-vae, audio-vae, "
                       "image-encoder, audio-encoder, generate",
                       p.what ? p.what : "");
    if (p.runs < 0 || p.runs > VX_BENCH_RUNS)
        return vx_fail_field(VX_ERR_RANGE, "runs", "runs %d is not within 1..%d", p.runs, VX_BENCH_RUNS);
    vx_bench_run *run = vx_alloc_array(1, sizeof *run);
    VX_NEED_MEMORY(run, "a bench");
    run->params = &p;
    run->runs = p.runs ? p.runs : DEFAULT_RUNS;
    run->report = json_object();
    json_object_set_new(run->report, "what", json_string(p.what));
    vx_status s = operation ? bench_operator(run, context) : bench_stage(run, context);
    if (!s.code) {
        tell_samples(run);
        s = vx_json_text(run->report, json);
    } else json_decref(run->report);
    vx_free(run);
    return s;
}
