// A device that runs out of memory, or is lost, at any call of a request (fence.h): the request ends with that code and says in
// which stage; nothing is kept, finished latents stay, and the process goes on.
#include "testing.h"

#include "base/sha256.h"
#include "pipeline/fence.h"
#include "pipeline/rig.h"

enum { FRAMES = 22, STAGES = VX_STAGE_DECODE_VIDEO + 1, POINTS = SLOWDOWN > 1 ? 4 : 6 };

static int open_rig(void **state)
{
    rig *r = rig_create();
    rig_sound(r);
    *state = r;
    return 0;
}

// One run of a model behind a fence, and what its callbacks saw.
typedef struct trial {
    rig *r;
    vx_model *model;
    fence *f;
    vx_job *job;
    vx_sha256 delivered;
    int64_t began[STAGES + 1]; // calls before the stage; last: before the end
} trial;

static void on_progress(void *user, const vx_progress *p)
{
    trial *t = user;
    if (p->step == 0) t->began[p->stage_index] = t->f->calls;
}
static bool on_frames(void *user, int64_t first, int64_t count, const uint8_t *rgb)
{
    (void)first;
    vx_sha256_put(&((trial *)user)->delivered, rgb, (size_t)(count * SIDE * SIDE * 3));
    return true;
}
static bool on_sound(void *user, const float *samples, int64_t count)
{
    vx_sha256_put(&((trial *)user)->delivered, samples, (size_t)count * VX_SOUND_CHANNELS * sizeof *samples);
    return true;
}

static void trial_open(trial *t, rig *r)
{
    *t = (trial){ .r = r, .model = rig_model(r), .f = fence_create(r->context->device) };
    rig_move(t->model, &t->f->base);
}
static void trial_close(trial *t) // the fence dies of memory that somebody kept
{
    vx_job_destroy(&t->job);
    vx_model_close(&t->model);
}

static vx_job_callbacks callbacks_of(trial *t)
{
    return (vx_job_callbacks){ VX_INIT(vx_job_callbacks), .progress = on_progress, .frames = on_frames, .sound = on_sound,
                               .user = t };
}

// References make every stage work: the vision tower, both encoders, both decoders.
static vx_status trial_job(trial *t)
{
    const vx_condition references[] = { { VX_INIT(vx_condition), .kind = "image", .path = t->r->picture },
                                        { VX_INIT(vx_condition), .kind = "audio", .path = t->r->sound } };
    const vx_request request = { VX_INIT(vx_request),
                                 .prompt = "A lighthouse, <Picture 1>, at dawn.",
                                 .width = SIDE,
                                 .height = SIDE,
                                 .num_frames = FRAMES,
                                 .evaluations = 2,
                                 .seed_set = true,
                                 .seed = 7,
                                 .conditions = references,
                                 .condition_count = 2,
                                 .reference_short_edge = SIDE };
    const vx_job_callbacks callbacks = callbacks_of(t);
    vx_job_destroy(&t->job);
    return vx_job_create(t->model, &request, &callbacks, &t->job);
}
static vx_status trial_decode(trial *t)
{
    vx_sha256_init(&t->delivered);
    const vx_status s = vx_job_decode(t->job);
    t->began[STAGES] = t->f->calls;
    return s;
}
static vx_status trial_run(trial *t)
{
    VX_TRY(vx_job_run(t->job));
    return trial_decode(t);
}

// ---- undisturbed ----
typedef struct result {
    char latents[65], delivered[65];
} result;

static void latents_of(const vx_job *job, char out[65])
{
    vx_sha256 sum;
    int64_t v[4], a[3];
    const float *video = vx_job_video_latent(job, v), *audio = vx_job_audio_latent(job, a);
    vx_sha256_init(&sum);
    vx_sha256_put(&sum, video, (size_t)(v[0] * v[1] * v[2] * v[3]) * sizeof *video);
    vx_sha256_put(&sum, audio, (size_t)(a[0] * a[1] * a[2]) * sizeof *audio);
    vx_sha256_hex(&sum, out);
}

static result result_of(trial *t)
{
    result out;
    latents_of(t->job, out.latents);
    vx_sha256_hex(&t->delivered, out.delivered);
    return out;
}

typedef struct undisturbed {
    result result;
    int64_t began[STAGES + 1];
    size_t kept; // on the device, between jobs: the audio VAE's folded weights
} undisturbed;

static const undisturbed *without_failure(rig *r)
{
    static undisturbed known;
    if (known.kept) return &known;
    trial t;
    trial_open(&t, r);
    assert_ok(trial_job(&t));
    assert_int_equal(t.f->calls, 0); // planning asks nothing that can fail so
    assert_ok(trial_run(&t));
    known.result = result_of(&t);
    memcpy(known.began, t.began, sizeof known.began);
    vx_job_destroy(&t.job);
    known.kept = t.f->held;
    trial_close(&t);
    return &known;
}

// ---- failures ----
static const char *const stage_names[STAGES] = { "text", "encode", "denoise", "decode_audio", "decode_video" };

// The first call of a stage, the last, and some between.
static int64_t point_of(const undisturbed *u, int stage, int point)
{
    const int64_t first = u->began[stage] + 1, last = u->began[stage + 1];
    assert_true(last > first);
    return first + (last - first) * point / (POINTS - 1);
}

static void same_result(trial *t, const undisturbed *u)
{
    const result got = result_of(t);
    assert_string_equal(got.latents, u->result.latents);
    assert_string_equal(got.delivered, u->result.delivered);
}

// A job that ends in the given call. Its latents are there if and only if they were finished.
static void fail_at(trial *t, const undisturbed *u, int stage, int64_t call, vx_code code)
{
    char where[32], latents[65];
    assert_ok(trial_job(t));
    fence_fail(t->f, call, code);
    const vx_status s = trial_run(t);
    snprintf(where, sizeof where, "%s: ", stage_names[stage]);
    if (s.code != code || strncmp(s.message, where, strlen(where)) != 0)
        fail_msg("call %d, in %s: VX-%d %s", (int)call, stage_names[stage], (int)s.code, s.message);
    assert_int_equal(vx_job_has_latents(t->job), stage > VX_STAGE_DENOISE);
    if (!vx_job_has_latents(t->job)) return;
    latents_of(t->job, latents);
    assert_string_equal(latents, u->result.latents);
}

// But the folded weights that the model keeps from job to job, where it came so far as to make them.
static void nothing_is_held(const trial *t, const undisturbed *u)
{
    size_t encoder, decoder, passing;
    assert_ok(vx_audio_encoder_fold_bytes(t->model->audio_encoder, &t->f->base, &encoder, &passing));
    assert_ok(vx_audio_decoder_fold_bytes(t->model->audio, &t->f->base, &decoder, &passing));
    assert_int_equal(t->f->held, u->kept - encoder - decoder);
}

// The next job ends well, and so does the same one when it is tried again: at every other point, the last of a stage among them.
static void no_memory_ends_one_request(void **state)
{
    const undisturbed *u = without_failure(*state);
    for (int stage = 0; stage < STAGES; stage++)
        for (int point = 0; point < POINTS; point++) {
            trial t;
            trial_open(&t, *state);
            fail_at(&t, u, stage, point_of(u, stage, point), VX_ERR_MEMORY);
            nothing_is_held(&t, u);
            if (point % 2 == 0) assert_ok(trial_job(&t));
            assert_ok(trial_run(&t));
            same_result(&t, u);
            assert_int_equal(t.f->held, u->kept);
            trial_close(&t);
        }
}

// Its pictures were given back when they were encoded, and it has no other text than the model's last.
static void a_failed_job_does_not_outlive_the_next_one(void **state)
{
    const undisturbed *u = without_failure(*state);
    const vx_request request = { VX_INIT(vx_request), .prompt = "A lighthouse.", .width = SIDE,       .height = SIDE,
                                 .evaluations = 1,    .num_frames = FRAMES,      .latents_only = true };
    trial t;
    trial_open(&t, *state);
    fail_at(&t, u, VX_STAGE_DENOISE, point_of(u, VX_STAGE_DENOISE, 1), VX_ERR_MEMORY);
    vx_job *failed = t.job;
    assert_ok(vx_job_create(t.model, &request, NULL, &t.job));
    assert_ok(vx_job_run(t.job));
    assert_code(vx_job_run(failed), VX_ERR_USAGE);
    vx_job_destroy(&failed);
    trial_close(&t);
}

// ---- a lost device ----
static const char *saved(rig *r)
{
    return scratch_path(&r->files, "latents.safetensors");
}

static vx_status from_latents(trial *t)
{
    const vx_job_callbacks callbacks = callbacks_of(t);
    vx_job_destroy(&t->job);
    return vx_job_from_latents(t->model, saved(t->r), false, NULL, &callbacks, &t->job);
}

// What is asked of the model from then on is refused for the loss: not for memory, of which a lost device has none either.
static void all_is_refused(trial *t)
{
    const vx_request request = { VX_INIT(vx_request), .prompt = "A lighthouse." };
    const vx_encode_params picture = { VX_INIT(vx_encode_params), .pixels = t->r->picture };
    vx_plan plan = { VX_INIT(vx_plan) };
    char *json = NULL;
    assert_code(trial_job(t), VX_ERR_DEVICE);
    assert_null(t->job);
    assert_code(vx_plan_request(t->model, &request, &plan), VX_ERR_DEVICE);
    assert_code(vx_plan_json(t->model, &request, &json), VX_ERR_DEVICE);
    assert_code(vx_encode(t->model, &picture, scratch_path(&t->r->files, "picture-latent.safetensors"), true), VX_ERR_DEVICE);
}

// Latents that were finished are the job's to save, and decoded elsewhere they give what they would have given here.
static void latents_survive(trial *t, const undisturbed *u)
{
    trial other;
    assert_ok(vx_job_save_latents(t->job, saved(t->r), true));
    assert_code(from_latents(t), VX_ERR_DEVICE);
    trial_open(&other, t->r);
    assert_ok(from_latents(&other));
    assert_ok(trial_decode(&other));
    same_result(&other, u);
    trial_close(&other);
}

static void a_lost_device_ends_one_request_and_all_that_follow(void **state)
{
    const undisturbed *u = without_failure(*state);
    for (int stage = 0; stage < STAGES; stage++)
        for (int point = 0; point < POINTS; point++) {
            trial t;
            trial_open(&t, *state);
            fail_at(&t, u, stage, point_of(u, stage, point), VX_ERR_DEVICE);
            nothing_is_held(&t, u);
            assert_code(trial_run(&t), VX_ERR_DEVICE);
            if (vx_job_has_latents(t.job)) latents_survive(&t, u);
            all_is_refused(&t);
            trial_close(&t);
        }
}

// Nobody computes when the device goes: the plan is where it shows.
static void a_device_lost_between_requests(void **state)
{
    const undisturbed *u = without_failure(*state);
    trial t;
    trial_open(&t, *state);
    assert_ok(trial_job(&t));
    assert_ok(trial_run(&t));
    same_result(&t, u);
    t.f->lost = true;
    all_is_refused(&t);
    trial_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_memory_ends_one_request),
        cmocka_unit_test(a_failed_job_does_not_outlive_the_next_one),
        cmocka_unit_test(a_lost_device_ends_one_request_and_all_that_follow),
        cmocka_unit_test(a_device_lost_between_requests),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
