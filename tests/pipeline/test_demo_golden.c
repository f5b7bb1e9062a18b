// The whole path against the public reference, with a checkpoint that the program writes itself: the random demo model, one
// request through the public interface, compared with what diffusers 0.42.1 and transformers 5.24 made of the same files
// (tests/data/demo_random.*.safetensors, tools/make_demo_vectors.py). In float32 two correct programs differ by about 1e-6;
// in the exact arithmetic two orders of summation differ by about 0.01, of which 0.02 lets through no missing rounding of
// the kinds that the denoiser's specification (1.9) lists.
#include "testing.h"

#include <math.h>
#include <unistd.h>

#include "base/scratch.h"
#include "vortex/vortex.h"
#include "weights/safetensors.h"

static const char prompt[] = "The light of a lighthouse on the sea at dawn: <d>\"Hold on!\"</d> Wasser, 灯台, café.";
static const int64_t shown_frames[] = { 0, 9, 21 };
enum { SIDE = 64, FRAMES = 22, SHOWN = 3, FRAME_BYTES = SIDE * SIDE * 3 };

typedef struct rig {
    scratch files;
    char model_path[600];
    vx_context *context;
    vx_model *model;
} rig;

static int open_rig(void **state)
{
    rig *r = calloc(1, sizeof *r);
    r->files = scratch_create();
    snprintf(r->model_path, sizeof r->model_path, "%s", scratch_path(&r->files, "model"));
    // CTest runs this program once more with newer instruction sets masked off.
    assert_ok(vx_context_create(
        &r->context, &(vx_context_params){ VX_INIT(vx_context_params), .threads = 2, .isa = getenv("VORTEX_TEST_ISA") }));
    assert_ok(
        vx_demo_model_write(r->context, r->model_path, &(vx_demo_model_params){ VX_INIT(vx_demo_model_params), .random = true }));
    assert_ok(vx_model_open(r->context, &r->model, &(vx_model_params){ VX_INIT(vx_model_params), .path = r->model_path }));
    *state = r;
    return 0;
}

static int close_rig(void **state)
{
    rig *r = *state;
    vx_model_close(&r->model);
    vx_context_destroy(&r->context);
    scratch_destroy(&r->files);
    free(r);
    return 0;
}

static vx_request request_of(const char *precision)
{
    return (vx_request){ VX_INIT(vx_request),  .prompt = prompt,         .width = SIDE,         .height = SIDE,
                         .num_frames = FRAMES, .num_inference_steps = 3, .seed_set = true,      .seed = 20240607,
                         .noise = "diffusers", .precision = precision,   .record_tensors = true };
}

static vx_safetensors *open_golden(const char *precision)
{
    char path[512];
    vx_safetensors *st;
    snprintf(path, sizeof path, "%s/demo_random.%s.safetensors", VX_TEST_DATA, precision);
    assert_ok(vx_safetensors_open(&st, path, NULL));
    return st;
}

static int64_t count_of(const vx_safetensors_entry *e)
{
    int64_t n = 1;
    for (int i = 0; i < e->rank; i++) n *= e->shape[i];
    return n;
}

static const vx_safetensors_entry *entry_of(const vx_safetensors *st, const char *name, vx_dtype dtype)
{
    const vx_safetensors_entry *e = vx_safetensors_find(st, name);
    if (!e || e->dtype != dtype) fail_msg("%s: no '%s' of the right format", vx_safetensors_path(st), name);
    return e;
}

static void assert_near(const char *name, const float *got, int64_t count, const vx_safetensors *golden, double most)
{
    const vx_safetensors_entry *e = entry_of(golden, name, VX_F32);
    if (count != count_of(e)) fail_msg("%s has %lld values, expected %lld", name, (long long)count, (long long)count_of(e));
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        float want;
        memcpy(&want, (const char *)e->data + 4 * i, 4);
        difference += ((double)got[i] - (double)want) * ((double)got[i] - (double)want);
        norm += (double)want * (double)want;
    }
    double relative = sqrt(difference / norm);
    print_message("  %-20s %.2e of %g\n", name, relative, most);
    if (!(relative <= most)) fail_msg("%s: relative L2 distance %.3e, at most %g", name, relative, most);
}

static void assert_dumped_near(const vx_safetensors *dump, const char *name, const vx_safetensors *golden, double most)
{
    const vx_safetensors_entry *e = entry_of(dump, name, VX_F32);
    assert_near(name, e->data, count_of(e), golden, most);
}

static void assert_same_bytes(const vx_safetensors *dump, const char *name, const vx_safetensors *golden)
{
    const vx_safetensors_entry *a = vx_safetensors_find(dump, name), *b = vx_safetensors_find(golden, name);
    if (!a || !b) fail_msg("'%s' is missing", name);
    if (a->dtype != b->dtype || a->bytes != b->bytes || memcmp(a->data, b->data, a->bytes) != 0) fail_msg("'%s' differs", name);
}

typedef struct shown {
    float *sound;
    int64_t samples, frames;
    uint8_t picture[SHOWN][FRAME_BYTES];
} shown;

static bool take_sound(void *user, const float *samples, int64_t count)
{
    shown *s = user;
    s->samples = count;
    s->sound = malloc((size_t)count * 2 * sizeof *s->sound);
    memcpy(s->sound, samples, (size_t)count * 2 * sizeof *s->sound);
    return true;
}

static bool take_frames(void *user, int64_t first, int64_t count, const uint8_t *rgb)
{
    shown *s = user;
    for (int i = 0; i < SHOWN; i++)
        if (shown_frames[i] >= first && shown_frames[i] < first + count)
            memcpy(s->picture[i], rgb + (shown_frames[i] - first) * FRAME_BYTES, FRAME_BYTES);
    s->frames += count;
    return true;
}

// Runs a request; the dump is opened and to be closed by the caller, the job to be destroyed.
static void run(rig *r, const vx_request *request, const vx_job_callbacks *callbacks, vx_job **job, vx_safetensors **dump)
{
    char path[600];
    assert_ok(vx_job_create(r->model, request, callbacks, job));
    assert_ok(vx_job_run(*job));
    snprintf(path, sizeof path, "%s", scratch_path(&r->files, "dump.safetensors"));
    assert_ok(vx_job_dump_tensors(*job, path, true));
    assert_ok(vx_safetensors_open(dump, path, NULL));
}

static void assert_latents_near(vx_job *job, const vx_safetensors *golden, double most)
{
    int64_t v[4], a[3];
    const float *video = vx_job_video_latent(job, v), *audio = vx_job_audio_latent(job, a);
    assert_near("video", video, v[0] * v[1] * v[2] * v[3], golden, most);
    assert_near("audio", audio, a[0] * a[1] * a[2], golden, most);
}

static void assert_sound_near(const shown *s, const vx_safetensors *golden, double most)
{
    // The reference gives the latents' 37 * 800 samples, the clip has 22 / 24 s of them.
    const vx_safetensors_entry *e = entry_of(golden, "waveform", VX_F32);
    const float *want = e->data;
    assert_true(s->samples > 0 && s->samples <= e->shape[1]);
    double difference = 0, norm = 0;
    for (int64_t c = 0; c < 2; c++)
        for (int64_t i = 0; i < s->samples; i++) {
            double w = (double)want[c * e->shape[1] + i], d = (double)s->sound[c * s->samples + i] - w;
            difference += d * d;
            norm += w * w;
        }
    print_message("  %-20s %.2e of %g\n", "waveform", sqrt(difference / norm), most);
    if (!(sqrt(difference / norm) <= most))
        fail_msg("waveform: relative L2 distance %.3e, at most %g", sqrt(difference / norm), most);
}

static void assert_frames_near(const shown *s, const vx_safetensors *golden)
{
    const vx_safetensors_entry *e = entry_of(golden, "frames_uint8", VX_U8);
    assert_int_equal(s->frames, FRAMES);
    assert_int_equal(e->bytes, sizeof s->picture);
    const uint8_t *got = (const uint8_t *)s->picture, *want = e->data;
    int different = 0;
    for (size_t i = 0; i < sizeof s->picture; i++) {
        int d = abs((int)got[i] - (int)want[i]);
        if (d > 1) fail_msg("byte %zu of the frames is %d, expected %d", i, got[i], want[i]);
        different += d;
    }
    print_message("  %-20s %d of %zu bytes differ\n", "frames", different, sizeof s->picture);
    assert_true(different * 1000 <= (int)sizeof s->picture);
}

static void float32_follows_the_reference_to_rounding(void **state)
{
    rig *r = *state;
    shown *s = calloc(1, sizeof *s);
    vx_job *job;
    vx_safetensors *dump, *golden = open_golden("float32");
    vx_request request = request_of("float32");
    run(r, &request, &(vx_job_callbacks){ VX_INIT(vx_job_callbacks), .frames = take_frames, .sound = take_sound, .user = s },
        &job, &dump);
    static const char *const same[] = { "token_ids",
                                        "text_token_tags",
                                        "first_call.hidden_states",
                                        "first_call.audio_hidden_states",
                                        "first_call.position_ids",
                                        "layout.token_tags",
                                        "layout.timestep_indices",
                                        "layout.text_indices",
                                        "layout.audio_indices",
                                        "layout.video_indices",
                                        "timestep.0",
                                        "timestep.1" };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) assert_same_bytes(dump, same[i], golden);
    static const char *const near[] = { "prompt_embeds", "velocity.video.0", "velocity.audio.0", "velocity.video.1",
                                        "velocity.audio.1" };
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) assert_dumped_near(dump, near[i], golden, 1e-5);
    assert_latents_near(job, golden, 1e-5);
    assert_ok(vx_job_decode(job));
    assert_sound_near(s, golden, 1e-5);
    assert_frames_near(s, golden);
    vx_safetensors_close(&dump);
    vx_safetensors_close(&golden);
    vx_job_destroy(&job);
    free(s->sound);
    free(s);
}

static void exact_rounds_where_the_reference_rounds(void **state)
{
    rig *r = *state;
    vx_job *job;
    vx_safetensors *dump, *golden = open_golden("bfloat16");
    vx_request request = request_of("exact");
    run(r, &request, NULL, &job, &dump);
    assert_same_bytes(dump, "token_ids", golden);
    // Row 0 sees neither a rotation nor a softmax: every rounding of 50 layers shows in its bits.
    const vx_safetensors_entry *got = entry_of(dump, "prompt_embeds", VX_F32), *want = entry_of(golden, "prompt_embeds", VX_F32);
    assert_int_equal(got->shape[1], want->shape[1]);
    assert_memory_equal(got->data, want->data, (size_t)got->shape[1] * 4);
    static const char *const near[] = { "prompt_embeds", "velocity.video.0", "velocity.audio.0", "velocity.video.1",
                                        "velocity.audio.1" };
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) assert_dumped_near(dump, near[i], golden, 0.02);
    assert_latents_near(job, golden, 0.02);
    vx_safetensors_close(&dump);
    vx_safetensors_close(&golden);
    vx_job_destroy(&job);
}

static void exact_is_closer_with_the_references_own_embeddings(void **state)
{
    rig *r = *state;
    vx_job *job;
    vx_safetensors *dump, *golden = open_golden("bfloat16");
    vx_request request = request_of("exact");
    request.prompt = NULL;
    request.prompt_embeds = vx_safetensors_path(golden);
    run(r, &request, NULL, &job, &dump);
    assert_dumped_near(dump, "velocity.video.0", golden, 0.008);
    vx_safetensors_close(&dump);
    vx_safetensors_close(&golden);
    vx_job_destroy(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float32_follows_the_reference_to_rounding),
        cmocka_unit_test(exact_rounds_where_the_reference_rounds),
        cmocka_unit_test(exact_is_closer_with_the_references_own_embeddings),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
