// Stages of a model by running jobs, and the released model that has no files: see bench.c.
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "pipeline/internal.h"
#include "tensor/random.h"

enum { WIDTH = 1344, HEIGHT = 768, FRAMES = 124, EVALUATIONS = 12, TEXT_ROWS = 100, SEED = 440420, WARM_UP = 3 };

// ---- the released model ----
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

vx_status vx_bench_model_open(vx_bench_model *made, vx_context *context, const vx_bench_params *p)
{
    const char *tmp = getenv("TMPDIR");
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
    if (!s.code && !vx_device_far(made->model->device))
        s = vx_remedy(vx_fail_field(VX_ERR_REQUIRED, "model", "the released dimensions with made-up weights need a GPU"),
                      "give --model PATH (vortex demo-model writes a small one), or --device cuda");
    if (!s.code) s = vx_device_made_up(made->model->device, SEED);
    if (!s.code) made->model->made_up = true;
    if (s.code) vx_bench_model_close(made);
    return s;
}

// ---- the workload ----
// A prompt of as many rows as the canonical request has: every " a" is one more.
static char *prompt_of(int words)
{
    vx_str text = { 0 };
    for (int i = 0; i < words; i++) vx_str_print(&text, "%s", i ? " a" : "a");
    if (!text.failed) return text.data;
    vx_str_free(&text);
    return NULL;
}

static vx_status canonical(vx_model *m, vx_request *r, char **prompt)
{
    *r = (vx_request){
        VX_INIT(vx_request),        .width = WIDTH,     .height = HEIGHT, .num_frames = FRAMES, .evaluations = EVALUATIONS,
        .sampler = "res_multistep", .schedule = "beta", .seed_set = true, .seed = SEED
    };
    int words = 1;
    for (int i = 0; i < 2; i++) {
        vx_plan plan = { VX_INIT(vx_plan) };
        vx_free(*prompt);
        r->prompt = *prompt = prompt_of(words);
        VX_NEED_MEMORY(*prompt, "a prompt");
        VX_TRY(vx_plan_request(m, r, &plan));
        if (plan.text_rows >= TEXT_ROWS) break;
        words += (int)(TEXT_ROWS - plan.text_rows);
    }
    return vx_ok();
}

// What the caller left open is the workload's.
static void fill(vx_request *r, const vx_request *workload)
{
    const vx_request *w = workload;
    if (!r->prompt && !r->prompt_embeds) r->prompt = w->prompt;
    if (!r->width && !r->aspect) r->width = w->width, r->height = w->height;
    if (!r->num_frames && r->seconds == 0) r->num_frames = w->num_frames;
    if (!r->evaluations && !r->num_inference_steps && !r->sigma_count) r->evaluations = w->evaluations;
    if (!r->sampler && !r->schedule && !r->sigma_count) r->sampler = w->sampler, r->schedule = w->schedule;
    if (!r->seed_set) r->seed_set = true, r->seed = w->seed;
}

// ---- a job ----
static bool take_frames(void *user, int64_t first, int64_t count, const uint8_t *rgb)
{
    (void)user, (void)first, (void)count, (void)rgb;
    return true;
}
static bool take_sound(void *user, const float *samples, int64_t count)
{
    (void)user, (void)samples, (void)count;
    return true;
}

typedef struct outcome {
    double seconds, flop;
    double step[VX_BENCH_RUNS];
    int steps;
} outcome;

// A decoder needs no sampler before it: normal latents are what it is made for.
static vx_status give_latents(vx_job *job)
{
    const int64_t *v = job->video_shape, *a = job->audio_shape;
    const int64_t video = v[0] * v[1] * v[2] * v[3], audio = a[0] * a[1] * a[2];
    job->video = vx_alloc_array((size_t)video, sizeof *job->video);
    job->audio = vx_alloc_array((size_t)audio, sizeof *job->audio);
    if (!job->video || !job->audio) return vx_fail(VX_ERR_MEMORY, "no memory for latents");
    vx_random random;
    vx_random_seed(&random, job->request.seed);
    vx_random_normal(&random, job->video, video);
    vx_random_normal(&random, job->audio, audio);
    job->have_video = job->have_audio = true;
    return vx_ok();
}

static vx_status run_job(vx_model *m, const vx_request *request, const char *what, json_t *runs, outcome *out)
{
    vx_job_callbacks callbacks = { VX_INIT(vx_job_callbacks), .frames = take_frames, .sound = take_sound };
    vx_job *job = NULL;
    const bool text = !strncmp(what, "text", 4), denoiser = !strcmp(what, "denoiser");
    const bool decoder = !strcmp(what, "video-vae") || !strcmp(what, "audio-vae");
    vx_free(m->cache.prompt); // a cached prompt would time nothing
    m->cache.prompt = NULL;
    VX_TRY(vx_job_create(m, request, &callbacks, &job));
    double began = vx_clock_s();
    vx_status s = decoder ? give_latents(job) : text ? vx_job_encode_text(job) : vx_job_run(job);
    if (!s.code && !text && !denoiser) s = vx_job_decode(job);
    const vx_timings *t = &job->timings;
    const vx_plan *p = &job->plan;
    if (text) out->seconds = vx_clock_s() - began, out->flop = p->stage[VX_STAGE_TEXT].flop;
    else if (denoiser) out->seconds = t->denoise, out->flop = p->stage[VX_STAGE_DENOISE].flop;
    else if (!strcmp(what, "audio-vae")) out->seconds = t->decode_audio, out->flop = p->stage[VX_STAGE_DECODE_AUDIO].flop;
    else if (!strcmp(what, "video-vae")) out->seconds = t->decode_video, out->flop = p->stage[VX_STAGE_DECODE_VIDEO].flop;
    else out->seconds = t->text + t->denoise + t->decode_audio + t->decode_video, out->flop = p->flop;
    for (int i = 0; i < job->steps_done && out->steps < VX_BENCH_RUNS; i++) out->step[out->steps++] = job->step_s[i];
    if (!s.code) {
        json_t *result = vx_result_object(job);
        json_array_append_new(
            runs, json_pack("{s:O, s:O, s:O, s:O, s:O}", "timings_s", json_object_get(result, "timings_s"), "step_s",
                            json_object_get(result, "step_s"), "reused", json_object_get(result, "reused"), "latents_sha256",
                            json_object_get(result, "latents_sha256"), "peak_bytes", json_object_get(result, "peak_bytes")));
        json_decref(result);
    }
    vx_job_destroy(&job);
    return s;
}

// What one evaluation's operators take, each waited for: the sums are more than the step, which does not wait.
typedef struct tally {
    struct {
        const char *op;
        double seconds, flop, bytes;
        int calls;
    } kind[64];
    int kinds;
    bool on;
} tally;

static void count(void *user, const vx_trace_event *e)
{
    tally *t = user;
    int i = 0;
    if (!t->on || e->seconds == 0) return;
    while (i < t->kinds && strcmp(t->kind[i].op, e->op)) i++;
    if (i == (int)(sizeof t->kind / sizeof *t->kind)) return;
    if (i == t->kinds) t->kind[t->kinds++].op = e->op;
    t->kind[i].seconds += e->seconds;
    t->kind[i].flop += e->flop;
    t->kind[i].bytes += e->bytes;
    t->kind[i].calls++;
}

static void second_step(void *user, const vx_progress *p)
{
    ((tally *)user)->on = !strcmp(p->stage, "denoise") && p->step == 1;
}

static vx_status trace_step(vx_model *m, const vx_request *request, json_t *report)
{
    vx_device *inner = m->device, *trace = NULL;
    vx_job *job = NULL;
    tally *t = vx_alloc_array(1, sizeof *t);
    VX_NEED_MEMORY(t, "a trace");
    vx_request two = *request;
    two.evaluations = 2;
    vx_job_callbacks callbacks = { VX_INIT(vx_job_callbacks), .progress = second_step, .user = t };
    vx_status s = vx_device_trace_create(&trace, inner, &(vx_trace_params){ .event = count, .user = t });
    if (!s.code) s = vx_job_create(m, &two, &callbacks, &job);
    if (!s.code) {
        m->device = trace;
        s = vx_job_run(job);
        m->device = inner;
    }
    vx_job_destroy(&job);
    vx_device_destroy(&trace);
    json_t *list = json_array();
    for (int i = 0; i < t->kinds; i++)
        json_array_append_new(list, json_pack("{s:s, s:i, s:f, s:f, s:f}", "operator", t->kind[i].op, "calls", t->kind[i].calls,
                                              "seconds", t->kind[i].seconds, "flop", t->kind[i].flop, "bytes", t->kind[i].bytes));
    json_object_set_new(report, "operators_of_a_step", list);
    vx_free(t);
    return s;
}

// ---- encoders ----
static vx_status encode_once(vx_model *m, const char *what, const uint8_t *rgb, const float *sound, int64_t samples)
{
    return strcmp(what, "image-encoder") ? vx_encode_sound_once(m, sound, samples)
                                         : vx_encode_picture_once(m, rgb, HEIGHT, WIDTH);
}

static vx_status bench_encoder(vx_bench_run *run, vx_model *m)
{
    enum { SAMPLES = FRAMES * 32000 / 24 };
    const char *what = run->params->what;
    const bool picture = !strcmp(what, "image-encoder");
    uint8_t *rgb = vx_alloc((size_t)WIDTH * HEIGHT * 3);
    float *sound = vx_alloc_array((size_t)SAMPLES * VX_SOUND_CHANNELS, sizeof *sound);
    vx_status s = rgb && sound ? vx_model_encoders(m, false, picture, !picture) : vx_fail(VX_ERR_MEMORY, "no memory for samples");
    for (int i = 0; i < WIDTH * HEIGHT * 3 && !s.code; i++) rgb[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24);
    for (int i = 0; i < SAMPLES * VX_SOUND_CHANNELS && !s.code; i++)
        sound[i] = (float)((uint32_t)i * 2654435761u >> 16) / 65536.0f - 0.5f;
    for (int i = -1; i < run->runs && !s.code; i++) {
        double began = vx_clock_s();
        s = encode_once(m, what, rgb, sound, SAMPLES);
        if (i >= 0) run->sample[i] = vx_clock_s() - began;
    }
    vx_free(rgb);
    vx_free(sound);
    return s;
}

static void tell_steps(json_t *o, const outcome *all)
{
    const double median = vx_bench_median(all->step, all->steps);
    json_object_set_new(o, "step_median_s", json_real(median));
    json_object_set_new(o, "steps", json_integer(all->steps));
}

static void tell_memory(json_t *o, const vx_model *m, const vx_plan *plan)
{
    const vx_weight_stats w = vx_device_weights(m->device);
    json_object_set_new(o, "sampling_bytes", json_integer((json_int_t)m->stage_peak[VX_TRANSFORMER]));
    json_object_set_new(o, "sampling_bytes_planned", json_integer((json_int_t)plan->stage[VX_STAGE_DENOISE].device_bytes));
    json_object_set_new(o, "weights",
                        json_pack("{s:I, s:I, s:I, s:I}", "resident_bytes", (json_int_t)w.resident, "copied_bytes",
                                  (json_int_t)w.copied, "hits", (json_int_t)w.hits, "misses", (json_int_t)w.misses));
    json_object_set_new(o, "attention", json_string(vx_cuda_attention_used(m->device)));
}

vx_status vx_bench_stage(vx_bench_run *run, vx_model *m)
{
    const char *what = run->params->what;
    json_t *o = run->report, *runs = json_array();
    json_object_set_new(o, "runs", runs);
    if (vx_has_suffix(what, "-encoder") && strcmp(what, "text-encoder")) return bench_encoder(run, m);
    vx_request request = { VX_INIT(vx_request), .prompt = "A lighthouse at dawn. \"Hold the line,\" she says.", .seed_set = true,
                           .seed = SEED };
    char *prompt = NULL;
    outcome *all = vx_alloc_array(1, sizeof *all);
    VX_NEED_MEMORY(all, "a bench");
    vx_status s = vx_ok();
    if (m->made_up) s = canonical(m, &request, &prompt);
    if (run->params->request) {
        vx_request given = *run->params->request;
        fill(&given, &request);
        request = given;
    }
    vx_request first = request; // the warm-up brings weights and plans; three steps of it are as good as all
    const bool stated = first.num_inference_steps || first.sigma_count;
    if (!strcmp(what, "denoiser") && !stated && first.evaluations > WARM_UP) first.evaluations = WARM_UP;
    if (!s.code) s = run_job(m, &first, what, runs, all);
    json_array_clear(runs);
    all->steps = 0;
    for (int i = 0; i < run->runs && !s.code; i++) {
        s = run_job(m, &request, what, runs, all);
        run->sample[i] = all->seconds;
    }
    run->flop = all->flop;
    vx_plan plan = { VX_INIT(vx_plan) };
    if (!s.code) s = vx_plan_request(m, &request, &plan);
    if (!s.code) {
        json_object_set_new(o, "rows", json_integer(plan.rows));
        if (all->steps) tell_steps(o, all);
        if (vx_device_far(m->device)) tell_memory(o, m, &plan);
        if (!strcmp(what, "denoiser") && plan.evaluations >= WARM_UP) s = trace_step(m, &request, o);
    }
    vx_free(prompt);
    vx_free(all);
    return s;
}
