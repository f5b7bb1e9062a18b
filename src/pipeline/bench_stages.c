// Stages of a model by running jobs: see bench.c.
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "pipeline/internal.h"
#include "tensor/random.h"

enum { EVALUATIONS = 12, TEXT_ROWS = 100, WARM_UP = 3 };

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
    *r = (vx_request){ VX_INIT(vx_request),
                       .width = VX_CANONICAL_WIDTH,
                       .height = VX_CANONICAL_HEIGHT,
                       .num_frames = VX_CANONICAL_FRAMES,
                       .evaluations = EVALUATIONS,
                       .sampler = "res_multistep",
                       .schedule = "beta",
                       .seed_set = true,
                       .seed = VX_CANONICAL_SEED };
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

// What the runs of a bench have in common, and what came out.
typedef struct work {
    const vx_bench_run *run;
    const vx_request *request;
    const char *what;
    double seconds, flop; // of the last run
    double step[VX_BENCH_RUNS];
    int steps;
    int64_t replayed, launches; // steps that were replayed, and what they launched
} work;

static bool is(const work *w, const char *what)
{
    return strcmp(w->what, what) == 0;
}

// A decoder needs no sampler before it: normal latents are what it is made for.
static vx_status give_latents(const work *w, vx_job *job)
{
    const int64_t *v = job->video_shape, *a = job->audio_shape;
    const int64_t video = v[0] * v[1] * v[2] * v[3], audio = a[0] * a[1] * a[2];
    vx_random random;
    vx_random_seed(&random, job->request.seed);
    job->have_video = is(w, "video-vae");
    job->have_audio = is(w, "audio-vae");
    if (job->have_video) job->video = vx_alloc_array((size_t)video, sizeof *job->video);
    if (job->have_audio) job->audio = vx_alloc_array((size_t)audio, sizeof *job->audio);
    if (!job->video && !job->audio) return vx_no_memory("for latents");
    if (job->video) vx_random_normal(&random, job->video, video);
    if (job->audio) vx_random_normal(&random, job->audio, audio);
    return vx_ok();
}

static vx_status run_stages(work *w, vx_job *job)
{
    const bool decoder = is(w, "video-vae") || is(w, "audio-vae");
    if (is(w, "text-encoder")) return vx_job_encode_text(job);
    if (decoder) VX_TRY(give_latents(w, job));
    else VX_TRY(vx_job_run(job));
    return is(w, "denoiser") ? vx_ok() : vx_job_decode(job);
}

static void take_times(work *w, const vx_job *job, double seconds)
{
    const vx_timings *t = &job->timings;
    const vx_stage_plan *plan = job->plan.stage;
    if (is(w, "text-encoder")) w->seconds = seconds, w->flop = plan[VX_STAGE_TEXT].flop;
    else if (is(w, "denoiser")) w->seconds = t->denoise, w->flop = plan[VX_STAGE_DENOISE].flop;
    else if (is(w, "audio-vae")) w->seconds = t->decode_audio, w->flop = plan[VX_STAGE_DECODE_AUDIO].flop;
    else if (is(w, "video-vae")) w->seconds = t->decode_video, w->flop = plan[VX_STAGE_DECODE_VIDEO].flop;
    else w->seconds = t->text + t->encode + t->denoise + t->decode_audio + t->decode_video, w->flop = job->plan.flop;
    for (int i = 0; i < job->steps_done && w->steps < VX_BENCH_RUNS; i++) w->step[w->steps++] = job->step_s[i];
    w->replayed += job->reuse.replayed;
}

static void tell_run(json_t *runs, const vx_job *job)
{
    json_t *result = vx_result_object(job);
    json_array_append_new(
        runs, json_pack("{s:O, s:O, s:O, s:O, s:O}", "timings_s", json_object_get(result, "timings_s"), "step_s",
                        json_object_get(result, "step_s"), "reused", json_object_get(result, "reused"), "latents_sha256",
                        json_object_get(result, "latents_sha256"), "peak_bytes", json_object_get(result, "peak_bytes")));
    json_decref(result);
}

// runs: NULL, or where to tell of it.
static vx_status run_job(vx_model *m, work *w, const vx_request *request, json_t *runs)
{
    vx_job_callbacks callbacks = { VX_INIT(vx_job_callbacks), .frames = take_frames, .sound = take_sound };
    vx_job *job;
    vx_free(m->cache.prompt); // a cached prompt would time nothing
    m->cache.prompt = NULL;
    VX_TRY(vx_job_create(m, request, &callbacks, &job));
    if (w->run->params->cancelled) job->watched = w->run->params->cancelled;
    vx_device_watch(m->device, job->watched);
    const int64_t launches = vx_cuda_launches(m->device);
    const double began = vx_clock_s();
    vx_status s = run_stages(w, job);
    take_times(w, job, vx_clock_s() - began);
    vx_device_watch(m->device, NULL);
    w->launches += vx_cuda_launches(m->device) - launches;
    if (!s.code && runs) tell_run(runs, job);
    if (!s.code) json_object_set_new(w->run->report, "request", vx_request_object(job));
    vx_job_destroy(&job);
    return s;
}

// ---- operators of a run ----
static vx_status traced_job(vx_model *m, vx_bench_tally *tally, void *user)
{
    work *w = user;
    (void)tally;
    return run_job(m, w, w->request, NULL);
}

// Of a denoiser the second evaluation: the first one makes copies of weights and chooses algorithms.
typedef struct second_step {
    vx_bench_tally *tally;
    const vx_request *request;
} second_step;

static void on_step(void *user, const vx_progress *p)
{
    const second_step *s = user;
    vx_bench_pause(s->tally, strcmp(p->stage, "denoise") != 0 || p->step != 1);
}

static vx_status traced_step(vx_model *m, vx_bench_tally *tally, void *user)
{
    second_step *second = user;
    vx_request two = *second->request;
    two.evaluations = 2;
    second->tally = tally;
    vx_bench_pause(tally, true);
    vx_job *job = NULL;
    vx_job_callbacks callbacks = { VX_INIT(vx_job_callbacks), .progress = on_step, .user = second };
    VX_TRY(vx_job_create(m, &two, &callbacks, &job));
    vx_status s = vx_job_run(job);
    vx_job_destroy(&job);
    return s;
}

static vx_status tell_operators(vx_model *m, work *w, const vx_plan *plan)
{
    json_t *o = w->run->report;
    vx_bench_tally *tally = NULL;
    const bool denoiser = is(w, "denoiser");
    if (is(w, "generate") || (denoiser && plan->evaluations < WARM_UP)) return vx_ok(); // the stages' benches have it
    second_step second = { .request = w->request };
    vx_status s = denoiser ? vx_bench_trace(m, &tally, traced_step, &second) : vx_bench_trace(m, &tally, traced_job, w);
    if (!s.code) json_object_set_new(o, denoiser ? "operators_of_a_step" : "operators_of_a_run", vx_bench_operators(tally));
    if (!s.code && denoiser) vx_bench_tell_blocks(tally, vx_denoiser_config_of(m->denoiser)->layers, o);
    vx_free(tally);
    return s;
}

// ---- stages ----
static void tell_steps(json_t *o, const work *w, int64_t blocks)
{
    json_object_set_new(o, "step_median_s", json_real(vx_bench_median(w->step, w->steps)));
    json_object_set_new(o, "steps", json_integer(w->steps));
    if (!w->replayed) return;
    json_object_set_new(o, "launches_per_step", json_integer((json_int_t)(w->launches / w->replayed)));
    json_object_set_new(o, "launches_per_block", json_real((double)w->launches / (double)(w->replayed * blocks)));
}

// Of the stage alone that is timed; "generate" has the sampler's, the longest.
static void tell_memory(json_t *o, const vx_model *m, const work *w, const vx_plan *plan)
{
    const bool text = is(w, "text-encoder"), audio = is(w, "audio-vae"), video = is(w, "video-vae");
    const vx_component_kind kind = text ? VX_TEXT_ENCODER : audio ? VX_AUDIO_VAE : video ? VX_VIDEO_VAE : VX_TRANSFORMER;
    const int stage = text ? VX_STAGE_TEXT : audio ? VX_STAGE_DECODE_AUDIO : video ? VX_STAGE_DECODE_VIDEO : VX_STAGE_DENOISE;
    const vx_weight_stats weights = vx_device_weights(m->device);
    json_object_set_new(o, "stage_bytes", json_integer((json_int_t)m->stage_peak[kind]));
    json_object_set_new(o, "stage_bytes_planned", json_integer((json_int_t)plan->stage[stage].device_bytes));
    json_object_set_new(o, "weights",
                        json_pack("{s:I, s:I, s:I, s:I}", "resident_bytes", (json_int_t)weights.resident, "copied_bytes",
                                  (json_int_t)weights.copied, "hits", (json_int_t)weights.hits, "misses",
                                  (json_int_t)weights.misses));
}

void vx_bench_tell_choices(json_t *o, const vx_device *device)
{
    if (!vx_device_far(device)) return;
    json_t *products = json_array();
    const char *choice;
    for (int i = 0; (choice = vx_cuda_product_choice(device, i)); i++) json_array_append_new(products, json_string(choice));
    json_object_set_new(o, "attention", json_string(vx_cuda_attention_used(device)));
    json_object_set_new(o, "products", products);
}

static vx_status time_stage(vx_bench_run *run, vx_model *m, work *w, json_t *runs)
{
    // The warm-up brings weights and plans; three steps of it are as good as all.
    vx_request first = *w->request;
    const bool stated = first.num_inference_steps || first.sigma_count;
    if (is(w, "denoiser") && !stated && first.evaluations > WARM_UP) first.evaluations = WARM_UP;
    VX_TRY(run_job(m, w, &first, NULL));
    w->steps = 0;
    w->replayed = w->launches = 0;
    for (int i = 0; i < run->runs; i++) {
        VX_TRY(run_job(m, w, w->request, runs));
        run->sample[i] = w->seconds;
    }
    run->flop = w->flop;
    return vx_ok();
}

static vx_status bench_stage(vx_bench_run *run, vx_model *m, work *w)
{
    json_t *o = run->report, *runs = json_array();
    json_object_set_new(o, "runs", runs);
    VX_TRY(time_stage(run, m, w, runs));
    vx_plan plan = { VX_INIT(vx_plan) };
    VX_TRY(vx_plan_request(m, w->request, &plan));
    json_object_set_new(o, "rows", json_integer(plan.rows));
    if (w->steps) tell_steps(o, w, vx_denoiser_config_of(m->denoiser)->layers);
    if (vx_device_far(m->device)) tell_memory(o, m, w, &plan);
    VX_TRY(tell_operators(m, w, &plan));
    vx_bench_tell_choices(o, m->device);
    return vx_ok();
}

vx_status vx_bench_stage(vx_bench_run *run, vx_model *m)
{
    const char *what = run->params->what;
    if (vx_has_suffix(what, "-encoder") && strcmp(what, "text-encoder")) return vx_bench_encoder(run, m);
    vx_request request = { VX_INIT(vx_request), .prompt = "A lighthouse at dawn. \"Hold the line,\" she says.", .seed_set = true,
                           .seed = VX_CANONICAL_SEED };
    char *prompt = NULL;
    work *w = vx_alloc_array(1, sizeof *w);
    VX_NEED_MEMORY(w, "a bench");
    vx_status s = vx_ok();
    if (m->made_up) s = canonical(m, &request, &prompt);
    if (run->params->request) {
        vx_request given = *run->params->request;
        fill(&given, &request);
        request = given;
    }
    *w = (work){ .run = run, .request = &request, .what = what };
    if (is(w, "audio-vae")) request.width = request.height = 32; // no picture is decoded, and none planned for
    if (!s.code) s = bench_stage(run, m, w);
    vx_free(prompt);
    vx_free(w);
    return s;
}
