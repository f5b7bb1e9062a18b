// Adapters against diffusers 0.42.1 and PEFT: the random demo model with tests/data/adapters, the same low-rank factors in five
// spellings, one adapter and two, at several strengths (tools/make_adapter_vectors.py). In float32 two correct programs differ
// by about 1e-6. And the same adapters beside the weights and merged into them.
#include "testing.h"

#include <math.h>

#include "base/file.h"
#include "base/scratch.h"
#include "pipeline/internal.h"
#include "weights/safetensors.h"

static const char prompt[] = "The light of a lighthouse on the sea at dawn: <d>\"Hold on!\"</d> Wasser, 灯台, café.";

typedef struct rig {
    scratch files;
    vx_context *context;
    vx_model *model;
    vx_safetensors *expected;
} rig;

static int open_rig(void **state)
{
    rig *r = calloc(1, sizeof *r);
    r->files = scratch_create();
    const char *path = scratch_path(&r->files, "model");
    assert_ok(vx_context_create(&r->context, &(vx_context_params){ VX_INIT(vx_context_params), .threads = 2 }));
    assert_ok(vx_demo_model_write(r->context, path, &(vx_demo_model_params){ VX_INIT(vx_demo_model_params), .random = true }));
    assert_ok(vx_model_open(r->context, &r->model, &(vx_model_params){ VX_INIT(vx_model_params), .path = path }));
    assert_ok(vx_safetensors_open(&r->expected, VX_TEST_DATA "/adapters/expected.safetensors", NULL));
    *state = r;
    return 0;
}

static int close_rig(void **state)
{
    rig *r = *state;
    vx_safetensors_close(&r->expected);
    vx_model_close(&r->model);
    vx_context_destroy(&r->context);
    scratch_destroy(&r->files);
    free(r);
    return 0;
}

typedef struct use {
    const char *file;
    float strength;
} use;

static const char *data_path(char out[400], const char *file)
{
    if (*file == '/') snprintf(out, 400, "%s", file);
    else snprintf(out, 400, "%s/adapters/%s.safetensors", VX_TEST_DATA, file);
    return out;
}

static void run(rig *r, const char *precision, const char *mode, const use *uses, int count, vx_job **job)
{
    char path[2][400];
    vx_lora lora[2];
    for (int i = 0; i < count; i++)
        lora[i] = (vx_lora){ VX_INIT(vx_lora), .path = data_path(path[i], uses[i].file), .strength_set = true,
                             .strength = uses[i].strength };
    const vx_request request = { VX_INIT(vx_request),  .prompt = prompt,         .width = 64,          .height = 64,
                                 .num_frames = 22,     .num_inference_steps = 3, .seed_set = true,     .seed = 20240607,
                                 .noise = "diffusers", .precision = precision,   .latents_only = true, .loras = lora,
                                 .lora_count = count,  .lora_mode = mode };
    assert_ok(vx_job_create(r->model, &request, NULL, job));
    assert_ok(vx_job_run(*job));
}

static double distance(const float *got, const float *want, int64_t count)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        norm += (double)want[i] * (double)want[i];
    }
    return sqrt(difference / norm);
}

// The larger of video and audio.
static double distance_to(const rig *r, vx_job *job, const char *name)
{
    int64_t v[4], a[3];
    const float *video = vx_job_video_latent(job, v), *audio = vx_job_audio_latent(job, a);
    char full[80];
    snprintf(full, sizeof full, "%s.video", name);
    const vx_safetensors_entry *e = vx_safetensors_find(r->expected, full);
    snprintf(full, sizeof full, "%s.audio", name);
    const vx_safetensors_entry *f = vx_safetensors_find(r->expected, full);
    if (!e || !f) fail_msg("no '%s'", name);
    assert_int_equal(e->bytes, (size_t)(v[0] * v[1] * v[2] * v[3]) * 4);
    assert_int_equal(f->bytes, (size_t)(a[0] * a[1] * a[2]) * 4);
    return fmax(distance(video, e->data, v[0] * v[1] * v[2] * v[3]), distance(audio, f->data, a[0] * a[1] * a[2]));
}

static const struct {
    const char *name; // of the expected latents
    use uses[2];
    int count;
} cases[] = {
    { "diffusers:0.7", { { "diffusers", 0.7f } }, 1 },
    { "diffusers:0.7", { { "peft", 0.7f } }, 1 },
    { "diffusers:0.7", { { "comfy", 0.7f } }, 1 },
    { "diffusers:0.7", { { "kohya", 0.7f } }, 1 },
    { "diffusers:0.7", { { "diffsynth", 0.7f } }, 1 },
    { "diffusers:-0.5", { { "diffusers", -0.5f } }, 1 },
    { "diffusers:-0.5", { { "comfy", -0.5f } }, 1 },
    { "none", { { "diffusers", 0 } }, 1 },
    { "none", { { "two", 0 }, { "kohya", 0 } }, 2 },
    { "diffusers:1", { { "diffusers", 1 } }, 1 },
    { "diffusers:1", { { "diffsynth", 1 } }, 1 },
    { "two:1", { { "two", 1 } }, 1 },
    { "diffusers:0.7,two:-0.5", { { "diffusers", 0.7f }, { "two", -0.5f } }, 2 },
    { "diffusers:0.7,two:-0.5", { { "diffsynth", 0.7f }, { "two", -0.5f } }, 2 },
    { "none", { { NULL, 0 } }, 0 }, // after all the others: nothing of them is left
};

static void float32_follows_diffusers_in_every_spelling(void **state)
{
    rig *r = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_job *job;
        run(r, "float32", NULL, cases[i].uses, cases[i].count, &job);
        const double off = distance_to(r, job, cases[i].name);
        print_message("  %-24s as %-10s %.1e\n", cases[i].name, cases[i].count ? cases[i].uses[0].file : "nothing", off);
        if (!(off <= 1e-5)) fail_msg("%s as %s: %.3e", cases[i].name, cases[i].uses[0].file, off);
        vx_job_destroy(&job);
    }
}

// The model's weights are bf16: a merged weight is within half a unit in its last place, 2^-9 of it, of the exact sum (every bit
// of it: tests/denoiser/test_adapt.c). Measured: that moves the latents by 9e-3; the adapter moves them by 0.6.
static void merged_agrees_to_the_rounding_of_weights(void **state)
{
    rig *r = *state;
    vx_job *job;
    run(r, "float32", "merge", cases[0].uses, 1, &job);
    double off = distance_to(r, job, "diffusers:0.7");
    print_message("  merged, one %.1e\n", off);
    assert_true(off > 1e-6 && off < 2e-2);
    vx_job_destroy(&job);
    run(r, "float32", "merge", cases[12].uses, 2, &job);
    off = distance_to(r, job, "diffusers:0.7,two:-0.5");
    print_message("  merged, two %.1e\n", off);
    assert_true(off > 1e-6 && off < 2e-2);
    vx_job_destroy(&job);
    // And what was merged is gone again.
    run(r, "float32", NULL, NULL, 0, &job);
    assert_true(distance_to(r, job, "none") <= 1e-5);
    vx_job_destroy(&job);
}

// In the exact arithmetic every step of a branch rounds to bf16.
static void exact_stays_near(void **state)
{
    rig *r = *state;
    vx_job *job;
    run(r, "exact", "branch", cases[0].uses, 1, &job);
    const double off = distance_to(r, job, "diffusers:0.7");
    print_message("  exact %.1e\n", off);
    assert_true(off < 0.03);
    vx_job_destroy(&job);
}

// Two jobs prepared one after the other and run in the other order: each has its own adapters.
static void jobs_do_not_share_adapters(void **state)
{
    rig *r = *state;
    char path[400];
    const vx_lora lora = { VX_INIT(vx_lora), .path = data_path(path, "diffusers"), .strength_set = true, .strength = 0.7f };
    vx_request request = { VX_INIT(vx_request),  .prompt = prompt,         .width = 64,          .height = 64,
                           .num_frames = 22,     .num_inference_steps = 3, .seed_set = true,     .seed = 20240607,
                           .noise = "diffusers", .precision = "float32",   .latents_only = true, .loras = &lora,
                           .lora_count = 1 };
    vx_job *with, *without;
    assert_ok(vx_job_create(r->model, &request, NULL, &with));
    request.lora_count = 0;
    assert_ok(vx_job_create(r->model, &request, NULL, &without));
    assert_ok(vx_job_run(with));
    assert_ok(vx_job_run(without));
    assert_true(distance_to(r, with, "diffusers:0.7") <= 1e-5);
    assert_true(distance_to(r, without, "none") <= 1e-5);
    vx_job_destroy(&with);
    vx_job_destroy(&without);
}

// A training writes its next adapter under the name of the last, by renaming or into the file itself.
static void another_file_under_the_same_name_is_another_adapter(void **state)
{
    static const struct {
        const char *file, *expected;
        bool renamed;
    } turns[] = { { "diffusers", "diffusers:1", false }, { "two", "two:1", true }, { "diffusers", "diffusers:1", false } };
    rig *r = *state;
    char name[600], next[600], from[400];
    snprintf(name, sizeof name, "%s", scratch_path(&r->files, "style.safetensors"));
    snprintf(next, sizeof next, "%s", scratch_path(&r->files, "next.safetensors"));
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        char *bytes;
        size_t size;
        assert_ok(vx_file_read(&bytes, &size, data_path(from, turns[i].file), 1 << 24, VX_ERR_INPUT_OPEN));
        scratch_file(&r->files, turns[i].renamed ? "next.safetensors" : "style.safetensors", bytes, size);
        if (turns[i].renamed) assert_int_equal(rename(next, name), 0);
        vx_free(bytes);
        vx_job *job;
        run(r, "float32", NULL, &(use){ name, 1 }, 1, &job);
        assert_true(distance_to(r, job, turns[i].expected) <= 1e-5);
        vx_job_destroy(&job);
    }
}

static void reports_say_what_was_matched(void **state)
{
    rig *r = *state;
    vx_job *job;
    char *text;
    run(r, "float32", NULL, cases[12].uses, 2, &job);
    assert_ok(vx_job_result(job, &text));
    json_t *o = json_loads(text, 0, NULL), *list = json_object_get(o, "adapters"), *a = json_array_get(list, 0);
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(json_string_value(json_object_get(a, "name")), "diffusers.safetensors");
    assert_int_equal(json_integer_value(json_object_get(a, "modules")), 21);
    assert_int_equal(json_integer_value(json_object_get(a, "keys")), 42);
    assert_string_equal(json_string_value(json_object_get(a, "alpha_from")), "metadata");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "alpha_from")), "rank");
    assert_true(fabs(json_number_value(json_object_get(json_array_get(list, 1), "scale")) + 0.5) < 1e-9);
    assert_null(strstr(text, VX_TEST_DATA));
    json_decref(o);
    vx_text_free(text);
    vx_job_destroy(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float32_follows_diffusers_in_every_spelling),
        cmocka_unit_test(merged_agrees_to_the_rounding_of_weights),
        cmocka_unit_test(exact_stays_near),
        cmocka_unit_test(jobs_do_not_share_adapters),
        cmocka_unit_test(another_file_under_the_same_name_is_another_adapter),
        cmocka_unit_test(reports_say_what_was_matched),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
