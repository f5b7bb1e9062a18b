// `vortex bench`: one operator on random numbers, or one stage of a model, timed after a warm-up. Every sample is reported.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/sha256.h"
#include "device/operators.h"
#include "pipeline/internal.h"
#include "tensor/random.h"

enum { MAX_RUNS = 1000 };

typedef struct bench {
    vx_context *context;
    vx_model *model;
    vx_job *job; // the request's, prepared
    vx_tensor t[8];
    vx_weight weight;
    double flop, bytes;
    const void *result; // hashed
    size_t result_bytes;
    double sample[MAX_RUNS];
} bench;

static int by_value(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static vx_tensor random_tensor(vx_arena *arena, vx_random *random, vx_dtype dtype, int64_t rows, int64_t columns, float scale)
{
    vx_tensor t = vx_arena_tensor(arena, dtype, rows, columns);
    int64_t n = rows * columns;
    for (int64_t i = 0; t.data && i < n;) {
        float block[4096];
        int64_t count = n - i < 4096 ? n - i : 4096;
        vx_random_normal(random, block, count);
        for (int64_t j = 0; j < count; j++, i++) {
            if (dtype == VX_F32) ((float *)t.data)[i] = block[j] * scale;
            else ((uint16_t *)t.data)[i] = vx_f32_to_bf16(block[j] * scale);
        }
    }
    return t;
}

static vx_status run_linear(bench *b)
{
    return vx_linear(b->context->device, b->t[0], b->t[1], &b->weight);
}
static vx_status run_attention(bench *b)
{
    return vx_attention(b->context->device, b->t[0], b->t[1], b->t[2], b->t[3], NULL);
}
static vx_status run_elementwise(bench *b)
{
    return vx_rms_norm_modulate(b->context->device, b->t[0], b->t[1], b->t[2], b->t[3], b->t[4], b->t[5], 1e-5f);
}

// Shapes of one block at the rows of a 256x256, 124-frame clip, hidden 1024.
enum { ROWS = 2850, HIDDEN = 1024, HEADS = 8, HEAD_DIM = 128 };

static vx_status operator_bench(bench *b, const char *what, int runs, json_t *o)
{
    vx_arena *arena = NULL;
    vx_random random;
    vx_random_seed(&random, 440420);
    VX_TRY(vx_arena_create(b->context->device, &arena, (size_t)256 << 20));
    vx_status (*run)(bench *) = run_linear;
    if (!strcmp(what, "linear")) {
        b->t[0] = vx_arena_tensor(arena, VX_BF16, ROWS, 3 * HEADS * HEAD_DIM);
        b->t[1] = random_tensor(arena, &random, VX_BF16, ROWS, HIDDEN, 1);
        b->weight = (vx_weight){ .n = 3 * HEADS * HEAD_DIM, .k = HIDDEN, .segments = 1 };
        b->weight.segment[0].weight = random_tensor(arena, &random, VX_BF16, 3 * HEADS * HEAD_DIM, HIDDEN, 0.03f);
        b->flop = 2.0 * ROWS * HIDDEN * 3 * HEADS * HEAD_DIM;
    } else if (!strcmp(what, "attention")) {
        run = run_attention;
        for (int i = 0; i < 4; i++)
            b->t[i] = vx_tensor_split(random_tensor(arena, &random, VX_BF16, ROWS, HEADS * HEAD_DIM, 1), 1, HEAD_DIM);
        b->flop = 4.0 * ROWS * ROWS * HEADS * HEAD_DIM;
    } else {
        run = run_elementwise;
        b->t[0] = vx_arena_tensor(arena, VX_BF16, ROWS, HIDDEN);
        b->t[1] = random_tensor(arena, &random, VX_BF16, ROWS, HIDDEN, 1);
        b->t[2] = vx_tensor_row(random_tensor(arena, &random, VX_BF16, 1, HIDDEN, 1), 0);
        b->t[3] = random_tensor(arena, &random, VX_BF16, 3, HIDDEN, 1);
        b->t[4] = random_tensor(arena, &random, VX_BF16, 3, HIDDEN, 1);
        b->t[5] = vx_arena_tensor(arena, VX_I32, ROWS);
        for (int i = 0; i < ROWS; i++) ((int32_t *)b->t[5].data)[i] = i % 3;
        b->bytes = 2.0 * 2 * ROWS * HIDDEN;
    }
    vx_status s = run(b);
    for (int i = 0; i < runs && !s.code; i++) {
        double began = vx_clock_s();
        s = run(b);
        b->sample[i] = vx_clock_s() - began;
    }
    json_object_set_new(o, "shape",
                        json_pack("{s:i, s:i, s:i}", "rows", ROWS, "hidden", HIDDEN, "columns",
                                  !strcmp(what, "linear") ? 3 * HEADS * HEAD_DIM : HIDDEN));
    char hex[65];
    vx_sha256 hash;
    vx_sha256_init(&hash);
    vx_sha256_put(&hash, b->t[0].data, vx_tensor_bytes(b->t[0]));
    vx_sha256_hex(&hash, hex);
    json_object_set_new(o, "result_sha256", json_string(hex));
    vx_arena_destroy(&arena);
    return s;
}

static vx_status drop_sound(void *self, const float *samples, int64_t count)
{
    (void)self, (void)samples, (void)count;
    return vx_ok();
}

static bool take_frames(void *user, int64_t first, int64_t count, const uint8_t *rgb)
{
    (void)user, (void)first, (void)count, (void)rgb;
    return true;
}

static bool take_sound(void *user, const float *samples, int64_t count)
{
    (void)user;
    return !drop_sound(NULL, samples, count).code;
}

static vx_status stage_run(vx_model *model, const vx_request *request, const char *what, double *seconds, double *flop, json_t *o)
{
    vx_job_callbacks callbacks = { VX_INIT(vx_job_callbacks), .frames = take_frames, .sound = take_sound };
    vx_job *job = NULL;
    bool decodes = strcmp(what, "text") && strcmp(what, "denoiser");
    vx_free(model->cache.prompt); // a cached prompt would time nothing
    model->cache.prompt = NULL;
    VX_TRY(vx_job_create(model, request, &callbacks, &job));
    vx_status s = vx_job_run(job);
    if (!s.code && decodes) s = vx_job_decode(job);
    const vx_timings *t = &job->timings;
    if (!strcmp(what, "text")) *seconds = t->text, *flop = job->plan.stage[VX_STAGE_TEXT].flop;
    else if (!strcmp(what, "denoiser")) *seconds = t->denoise, *flop = job->plan.stage[VX_STAGE_DENOISE].flop;
    else if (!strcmp(what, "audio-vae")) *seconds = t->decode_audio, *flop = job->plan.stage[VX_STAGE_DECODE_AUDIO].flop;
    else if (!strcmp(what, "video-vae")) *seconds = t->decode_video, *flop = job->plan.stage[VX_STAGE_DECODE_VIDEO].flop;
    else *seconds = t->text + t->denoise + t->decode_audio + t->decode_video, *flop = job->plan.flop;
    if (!s.code) {
        json_t *result = vx_result_object(job);
        json_t *runs = json_object_get(o, "runs");
        json_array_append_new(runs, json_pack("{s:O, s:O, s:O}", "timings_s", json_object_get(result, "timings_s"), "step_s",
                                              json_object_get(result, "step_s"), "latents_sha256",
                                              json_object_get(result, "latents_sha256")));
        json_object_set(o, "rows", json_object_get(result, "rows"));
        json_decref(result);
    }
    vx_job_destroy(&job);
    return s;
}

vx_status vx_bench(vx_context *context, const vx_bench_params *params, char **json)
{
    static const char *const operators[] = { "linear", "attention", "elementwise" }, *const stages[] = { "text", "denoiser",
                                                                                                         "video-vae", "audio-vae",
                                                                                                         "generate" };
    vx_bench_params p = { 0 };
    if (!params || !params->struct_size || params->struct_size > sizeof p)
        return vx_fail(VX_ERR_USAGE, "the bench parameters were not initialised with VX_INIT");
    memcpy(&p, params, params->struct_size);
    int runs = p.runs ? p.runs : 3, kind = 0;
    if (runs < 1 || runs > MAX_RUNS) return vx_fail_field(VX_ERR_RANGE, "runs", "runs %d is not within 1..%d", runs, MAX_RUNS);
    for (int i = 0; i < 3; i++)
        if (p.what && !strcmp(p.what, operators[i])) kind = 1;
    for (int i = 0; i < 5; i++)
        if (p.what && !strcmp(p.what, stages[i])) kind = 2;
    if (!kind)
        return vx_fail(VX_ERR_USAGE,
                       "bench '%.40s' is none of linear, attention, elementwise, text, denoiser, video-vae, audio-vae, generate",
                       p.what ? p.what : "");
    if (kind == 2 && !p.model)
        return vx_remedy(vx_fail_field(VX_ERR_REQUIRED, "model", "bench %s needs a model", p.what),
                         "give --model PATH; `vortex demo-model` writes a small one");
    bench *b = vx_alloc_array(1, sizeof *b);
    VX_NEED_MEMORY(b, "a bench");
    b->context = context;
    json_t *o = json_object();
    json_object_set_new(o, "what", json_string(p.what));
    json_object_set_new(o, "vortex_version", json_string(vx_version()));
    json_object_set_new(o, "device", json_string(vx_device_name(context->device)));
    json_object_set_new(o, "instruction_set", json_string(vx_device_isa(context->device)));
    json_object_set_new(o, "threads", json_integer(context->threads));
    vx_status s = vx_ok();
    if (kind == 1) s = operator_bench(b, p.what, runs, o);
    else {
        vx_request request = { VX_INIT(vx_request), .prompt = "A lighthouse at dawn. \"Hold the line,\" she says.",
                               .seed_set = true, .seed = 440420 };
        json_object_set_new(o, "runs", json_array());
        double warm;
        s = stage_run(p.model, p.request ? p.request : &request, p.what, &warm, &b->flop, o);
        json_array_clear(json_object_get(o, "runs"));
        for (int i = 0; i < runs && !s.code; i++)
            s = stage_run(p.model, p.request ? p.request : &request, p.what, &b->sample[i], &b->flop, o);
    }
    if (!s.code) {
        json_t *samples = json_array();
        for (int i = 0; i < runs; i++) json_array_append_new(samples, json_real(b->sample[i]));
        json_object_set_new(o, "samples_s", samples);
        qsort(b->sample, (size_t)runs, sizeof *b->sample, by_value);
        double median = b->sample[runs / 2];
        json_object_set_new(o, "median_s", json_real(median));
        json_object_set_new(o, "min_s", json_real(b->sample[0]));
        if (b->flop > 0) json_object_set_new(o, "gflop_per_s", json_real(b->flop / median * 1e-9));
        if (b->bytes > 0) json_object_set_new(o, "gbyte_per_s", json_real(b->bytes / median * 1e-9));
        s = vx_json_text(o, json);
    } else json_decref(o);
    vx_free(b);
    return s;
}
