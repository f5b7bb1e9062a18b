// Requests: from text to the struct, and from the struct to its normal form. Ranges are those of the command-line contract.
#include "testing.h"

#include "base/alloc.h"
#include "base/file.h"
#include "pipeline/fields.h"
#include "pipeline/internal.h"

static vx_request_builder *fresh(void)
{
    vx_request_builder *b = NULL;
    assert_ok(vx_request_builder_create(&b));
    return b;
}

static void values_at_and_beyond_each_limit(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
        vx_code want;
    } cases[] = {
        { "frames", "1", VX_OK },
        { "frames", "362", VX_OK },
        { "frames", "0", VX_ERR_RANGE },
        { "frames", "363", VX_ERR_RANGE },
        { "frames", "-1", VX_ERR_RANGE },
        { "frames", "99999999999999999999", VX_ERR_RANGE },
        { "frames", "12x", VX_ERR_VALUE },
        { "frames", "", VX_ERR_VALUE },
        { "frames", " 12", VX_ERR_VALUE },
        { "frames", "1e2", VX_ERR_VALUE },
        { "steps", "1", VX_OK },
        { "steps", "1000", VX_OK },
        { "steps", "0", VX_ERR_RANGE },
        { "steps", "1001", VX_ERR_RANGE },
        { "num_inference_steps", "2", VX_OK },
        { "num-inference-steps", "1001", VX_OK },
        { "num_inference_steps", "1", VX_ERR_RANGE },
        { "num_inference_steps", "1002", VX_ERR_RANGE },
        { "seed", "0", VX_OK },
        { "seed", "9223372036854775807", VX_OK },
        { "seed", "9223372036854775808", VX_ERR_RANGE },
        { "seed", "-1", VX_ERR_RANGE },
        { "seed", "0x10", VX_ERR_VALUE },
        { "size", "32x32", VX_OK },
        { "size", "4096x1024", VX_OK },
        { "size", "31x32", VX_ERR_RANGE },
        { "size", "4097x1024", VX_ERR_RANGE },
        { "size", "32", VX_ERR_VALUE },
        { "size", "x", VX_ERR_VALUE },
        { "size", "32x32x32", VX_ERR_VALUE },
        { "size", "99999999999999999999x32", VX_ERR_RANGE },
        { "shift", "100", VX_OK },
        { "shift", "0.5", VX_OK },
        { "shift", "0", VX_ERR_RANGE },
        { "shift", "100.1", VX_ERR_RANGE },
        { "shift", "nan", VX_ERR_RANGE },
        { "shift", "inf", VX_ERR_RANGE },
        { "shift", "1,5", VX_ERR_VALUE },
        { "audio_shift", "3", VX_OK },
        { "audio_shift", "-3", VX_ERR_RANGE },
        { "fps", "1", VX_OK },
        { "fps", "120", VX_OK },
        { "fps", "0.9", VX_ERR_RANGE },
        { "fps", "121", VX_ERR_RANGE },
        { "crf", "0", VX_OK },
        { "crf", "51", VX_OK },
        { "crf", "52", VX_ERR_RANGE },
        { "crf", "-1", VX_ERR_RANGE },
        { "outputs", "1", VX_OK },
        { "outputs", "100", VX_OK },
        { "outputs", "0", VX_ERR_RANGE },
        { "outputs", "101", VX_ERR_RANGE },
        { "audio_bitrate", "192k", VX_OK },
        { "audio_bitrate", "32000", VX_OK },
        { "audio_bitrate", "31999", VX_ERR_RANGE },
        { "audio_bitrate", "513k", VX_ERR_RANGE },
        { "audio_bitrate", "k", VX_ERR_VALUE },
        { "sampler", "euler", VX_OK },
        { "sampler", "res_multistep", VX_OK },
        { "sampler", "heun", VX_ERR_VALUE },
        { "sampler", "", VX_ERR_VALUE },
        { "sampler", "euler|res_multistep", VX_ERR_VALUE },
        { "schedule", "beta", VX_OK },
        { "schedule", "karras", VX_ERR_VALUE },
        { "noise", "comfyui", VX_OK },
        { "noise", "cuda", VX_ERR_VALUE },
        { "precision", "fast", VX_ERR_VALUE },
        { "vae_precision", "float16", VX_OK },
        { "vae_precision", "bfloat16", VX_ERR_VALUE },
        { "vae_rope", "float32", VX_OK },
        { "vae_rope", "float64", VX_ERR_VALUE },
        { "sigmas", "1,0.5,0", VX_OK },
        { "sigmas", "1,,0", VX_ERR_VALUE },
        { "sigmas", "1,0.5,", VX_ERR_VALUE },
        { "sigmas", "a", VX_ERR_VALUE },
        { "no_metadata", "true", VX_OK },
        { "no_metadata", "yes", VX_ERR_VALUE },
        { "guidance_scale", "1", VX_ERR_UNAVAILABLE },
        { "negative_prompt", "", VX_ERR_UNAVAILABLE },
        { "lora_alpha", "8", VX_ERR_REQUIRED },
        { "lora", "x", VX_OK },
        { "lora", "a:b.safetensors:-0.5", VX_OK },
        { "lora", "a:0", VX_OK },
        { "lora", "", VX_ERR_VALUE },
        { "lora", ":1", VX_ERR_VALUE },
        { "lora", "a:inf", VX_ERR_RANGE },
        { "lora", "a:nan", VX_ERR_RANGE },
        { "lora", "a:1e39", VX_ERR_RANGE },
        { "lora_mode", "merge", VX_OK },
        { "lora_mode", "on", VX_ERR_VALUE },
        { "lora_allow_partial", "true", VX_OK },
        { "turbo", "4", VX_OK },
        { "turbo", "9", VX_ERR_RANGE },
        { "first", "a.png", VX_OK },
        { "first", "", VX_ERR_VALUE },
        { "last", "a.png", VX_OK },
        { "ref", "a.png", VX_OK },
        { "ref", "video:", VX_ERR_VALUE },
        { "keyframe", "0=a.png", VX_OK },
        { "keyframe", "-1=a.png", VX_OK },
        { "keyframe", "9223372036854775808=a.png", VX_ERR_RANGE },
        { "keyframe", "a.png", VX_ERR_VALUE },
        { "keyframe", "=a.png", VX_ERR_VALUE },
        { "keyframe", "1.5=a.png", VX_ERR_VALUE },
        { "keyframe", "0=", VX_ERR_VALUE },
        { "conditions", "[]", VX_OK },
        { "conditions", "[{\"uri\":\"a.png\"}]", VX_OK },
        { "conditions", "{}", VX_ERR_VALUE },
        { "conditions", "[{}]", VX_ERR_VALUE },
        { "conditions", "[{\"uri\":\"a.png\",\"weight\":1}]", VX_ERR_USAGE },
        { "conditions", "[{\"uri\":\"a.png\",\"type\":\"text\"}]", VX_ERR_VALUE },
        { "conditions", "[{\"uri\":\"a.png\",\"role\":\"style\"}]", VX_ERR_VALUE },
        { "conditions", "[{\"uri\":\"a.png\",\"role\":\"keyframe\"}]", VX_ERR_REQUIRED },
        { "conditions", "[{\"uri\":\"a.mkv\",\"start_time_seconds\":1}]", VX_ERR_UNAVAILABLE },
        { "colour", "red", VX_ERR_USAGE },
        { "", "x", VX_ERR_USAGE },
        { "num_frames", "22", VX_OK },
        { "flow_shift", "6", VX_OK },
        { "n", "2", VX_OK },
        { "evaluations", "12", VX_OK },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_request_builder *b = fresh();
        vx_status s = vx_request_builder_set(b, cases[i].name, cases[i].value);
        if (s.code != cases[i].want)
            fail_msg("%s = '%s': VX-%d %s, wanted VX-%d", cases[i].name, cases[i].value, (int)s.code, s.message,
                     (int)cases[i].want);
        if (s.code && s.code != VX_ERR_USAGE) assert_true(s.field[0]);
        vx_request_builder_destroy(&b);
    }
}

static void json_means_the_same_as_flags(void **state)
{
    (void)state;
    vx_request_builder *b = fresh();
    const char *text = "{\"prompt\":\"a\", \"num-inference-steps\":5, \"size\":\"96x64\", \"seed\":9223372036854775807, "
                       "\"shift\":6.5, \"sigmas\":[1, 0.25, 0], \"no_metadata\":true, \"audio_bitrate\":64000}";
    assert_ok(vx_request_builder_json(b, text, strlen(text)));
    const vx_request *r = vx_request_builder_request(b);
    assert_string_equal(r->prompt, "a");
    assert_int_equal(r->num_inference_steps, 5);
    assert_int_equal(r->width, 96);
    assert_int_equal(r->height, 64);
    assert_true(r->seed_set && r->seed == INT64_MAX);
    assert_true(r->flow_shift == 6.5f);
    assert_int_equal(r->sigma_count, 3);
    assert_true(r->sigmas[1] == 0.25f);
    assert_true(vx_request_builder_media(b)->no_metadata);
    assert_int_equal(vx_request_builder_media(b)->audio_bitrate, 64000);
    vx_request_builder *copy = fresh();
    assert_ok(vx_request_builder_copy(copy, b));
    vx_request_builder_destroy(&b);
    assert_string_equal(vx_request_builder_request(copy)->prompt, "a");
    assert_true(vx_request_builder_request(copy)->sigmas[1] == 0.25f);
    vx_request_builder_destroy(&copy);
}

static void json_that_is_not_a_request_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        vx_code want;
    } cases[] = {
        { "[]", VX_ERR_VALUE },
        { "", VX_ERR_VALUE },
        { "{", VX_ERR_VALUE },
        { "{\"prompt\":\"a\",\"prompt\":\"b\"}", VX_ERR_VALUE },
        { "{\"prompt\":null}", VX_ERR_VALUE },
        { "{\"prompt\":{}}", VX_ERR_VALUE },
        { "{\"steps\":1.5}", VX_ERR_VALUE },
        { "{\"steps\":\"x\"}", VX_ERR_VALUE },
        { "{\"steps\":1e3}", VX_ERR_VALUE },
        { "{\"seed\":18446744073709551616}", VX_ERR_VALUE },
        { "{\"nonsense\":1}", VX_ERR_USAGE },
        { "{\"prompt\":\"a\\u0000b\"}", VX_ERR_VALUE },
        { "{\"sigmas\":[1,\"a\"]}", VX_ERR_VALUE },
        { "{\"sigmas\":[[1]]}", VX_ERR_VALUE },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_request_builder *b = fresh();
        vx_status s = vx_request_builder_json(b, cases[i].text, strlen(cases[i].text));
        if (s.code != cases[i].want)
            fail_msg("%s: VX-%d %s, wanted VX-%d", cases[i].text, (int)s.code, s.message, (int)cases[i].want);
        vx_request_builder_destroy(&b);
    }
}

// ---- the normal form ----
static vx_code resolve(vx_request r, vx_resolved *out)
{
    vx_notes notes = { 0 };
    vx_resolved resolved;
    r.struct_size = sizeof r;
    vx_status s = vx_resolve(&resolved, &r, NULL, false, &notes);
    if (!s.code && out) *out = resolved;
    if (!s.code) vx_resolved_free(&resolved);
    vx_notes_free(&notes);
    return s.code;
}

static void combinations_are_judged(void **state)
{
    (void)state;
    static const float falling[] = { 1, 0.5f, 0 }, rising[] = { 0.5f, 1, 0 }, open_end[] = { 1, 0.5f }, above[] = { 1.5f, 0 };
    const struct {
        const char *says;
        vx_request r;
        vx_code want;
    } cases[] = {
        { "a prompt is enough", { .prompt = "a" }, VX_OK },
        { "no prompt", { .width = 96, .height = 64 }, VX_ERR_REQUIRED },
        { "an empty prompt", { .prompt = "" }, VX_ERR_PROMPT },
        { "a prompt that is not UTF-8", { .prompt = "caf\xe9" }, VX_ERR_PROMPT },
        { "an overlong form", { .prompt = "\xc0\xaf" }, VX_ERR_PROMPT },
        { "embeddings in place of a prompt", { .prompt_embeds = "e.safetensors" }, VX_OK },
        { "t2va by name", { .prompt = "a", .task = "t2va" }, VX_OK },
        { "a task without its inputs", { .prompt = "a", .task = "ref2va" }, VX_ERR_CONFLICT },
        { "a task that is none", { .prompt = "a", .task = "v2v" }, VX_ERR_VALUE },
        { "width alone", { .prompt = "a", .width = 96 }, VX_ERR_REQUIRED },
        { "not a multiple of 32", { .prompt = "a", .width = 96, .height = 48 }, VX_ERR_RANGE },
        { "ratio 4:1", { .prompt = "a", .width = 512, .height = 128 }, VX_OK },
        { "beyond 4:1", { .prompt = "a", .width = 544, .height = 128 }, VX_ERR_RANGE },
        { "the largest area", { .prompt = "a", .width = 2688, .height = 1536 }, VX_OK },
        { "beyond the largest area", { .prompt = "a", .width = 2720, .height = 1536 }, VX_ERR_RANGE },
        { "size and aspect", { .prompt = "a", .width = 96, .height = 64, .aspect = "16:9" }, VX_ERR_CONFLICT },
        { "aspect beyond 4:1", { .prompt = "a", .aspect = "41:10" }, VX_ERR_RANGE },
        { "aspect nonsense", { .prompt = "a", .aspect = "wide" }, VX_ERR_VALUE },
        { "5 frames are below 22", { .prompt = "a", .num_frames = 5 }, VX_ERR_RANGE },
        { "6 frames become 22", { .prompt = "a", .num_frames = 6 }, VX_OK },
        { "the most frames", { .prompt = "a", .num_frames = 362 }, VX_OK },
        { "beyond the most frames", { .prompt = "a", .num_frames = 363 }, VX_ERR_RANGE },
        { "frames and seconds", { .prompt = "a", .num_frames = 124, .seconds = 5 }, VX_ERR_CONFLICT },
        { "seconds beyond 15", { .prompt = "a", .seconds = 15.2 }, VX_ERR_RANGE },
        { "steps twice", { .prompt = "a", .evaluations = 4, .num_inference_steps = 5 }, VX_ERR_CONFLICT },
        { "sigmas", { .prompt = "a", .sigmas = falling, .sigma_count = 3 }, VX_OK },
        { "sigmas with steps", { .prompt = "a", .sigmas = falling, .sigma_count = 3, .evaluations = 2 }, VX_ERR_CONFLICT },
        { "sigmas with a schedule", { .prompt = "a", .sigmas = falling, .sigma_count = 3, .schedule = "beta" }, VX_ERR_CONFLICT },
        { "sigmas with a shift", { .prompt = "a", .sigmas = falling, .sigma_count = 3, .flow_shift = 6 }, VX_ERR_CONFLICT },
        { "rising sigmas", { .prompt = "a", .sigmas = rising, .sigma_count = 3 }, VX_ERR_RANGE },
        { "sigmas that do not end in 0", { .prompt = "a", .sigmas = open_end, .sigma_count = 2 }, VX_ERR_RANGE },
        { "sigmas above 1", { .prompt = "a", .sigmas = above, .sigma_count = 2 }, VX_ERR_RANGE },
        { "seed beyond 63 bits", { .prompt = "a", .seed_set = true, .seed = (uint64_t)1 << 63 }, VX_ERR_RANGE },
        { "an unknown sampler", { .prompt = "a", .sampler = "heun" }, VX_ERR_VALUE },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_code code = resolve(cases[i].r, NULL);
        bool same = code == cases[i].want || (cases[i].want == VX_ERR_RANGE && cases[i].r.sigma_count && code == VX_ERR_VALUE);
        if (!same) fail_msg("%s: VX-%d, wanted VX-%d", cases[i].says, (int)code, (int)cases[i].want);
    }
}

static void defaults_are_the_contracts(void **state)
{
    (void)state;
    vx_resolved r;
    assert_int_equal(resolve((vx_request){ .prompt = "a" }, &r), VX_OK);
    assert_int_equal(r.width, 1344);
    assert_int_equal(r.height, 768);
    assert_int_equal(r.frames, 124);
    assert_int_equal(r.evaluations, 49);
    assert_int_equal(r.sigmas.count, 50);
    assert_true(r.shift == 12 && r.audio_shift == 3 && r.step == VX_STEP_OFFICIAL && r.act == VX_BF16 &&
                r.noise == VX_NOISE_SGLANG && r.seed_drawn);
    assert_int_equal(resolve((vx_request){ .prompt = "a", .seconds = 5 }, &r), VX_OK);
    assert_int_equal(r.frames, 124); // 120 aligned up
    // res_multistep on the official list, and euler on the simple one, are ComfyUI's formulas.
    assert_int_equal(resolve((vx_request){ .prompt = "a", .sampler = "res_multistep" }, &r), VX_OK);
    assert_int_equal(r.step, VX_STEP_COMFYUI);
    assert_int_equal(resolve((vx_request){ .prompt = "a", .schedule = "simple" }, &r), VX_OK);
    assert_int_equal(r.step, VX_STEP_COMFYUI);
}

// Public report P56: "random" was chosen once per process.
static void every_request_draws_its_own_seed(void **state)
{
    (void)state;
    vx_resolved a, b, c;
    resolve((vx_request){ .prompt = "a" }, &a);
    resolve((vx_request){ .prompt = "a" }, &b);
    resolve((vx_request){ .prompt = "a" }, &c);
    assert_true(a.seed != b.seed && b.seed != c.seed && a.seed <= INT64_MAX);
    resolve((vx_request){ .prompt = "a", .seed_set = true, .seed = 0 }, &a);
    assert_true(a.seed == 0 && !a.seed_drawn);
}

static void a_request_without_its_size_is_refused(void **state)
{
    (void)state;
    vx_notes notes = { 0 };
    vx_resolved out;
    vx_request r = { .prompt = "a" };
    assert_code(vx_resolve(&out, &r, NULL, false, &notes), VX_ERR_USAGE);
    r.struct_size = sizeof r + 8; // a newer caller's struct: its last members are unknown here
    assert_code(vx_resolve(&out, &r, NULL, false, &notes), VX_ERR_USAGE);
}

static void the_error_page_lists_every_code(void **state)
{
    (void)state;
    char *page = NULL;
    size_t size;
    assert_ok(vx_file_read(&page, &size, VX_TEST_DATA "/../../docs/errors.md", 1 << 20, VX_ERR_INTERNAL));
#define LISTED(name, number, text) \
    if (!strstr(page, "| VX-" #number " |") || !strstr(page, text)) fail_msg("docs/errors.md lacks VX-%d (%s)", number, text);
    VX_CODES(LISTED)
#undef LISTED
#define HELPED(name, number, text)         \
    if (!strstr(page, vx_code_help(name))) \
        fail_msg("docs/errors.md lacks what helps with VX-%d (%s)", number, vx_code_help(name));
    VX_CODES(HELPED)
#undef HELPED
    vx_free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_at_and_beyond_each_limit),
        cmocka_unit_test(json_means_the_same_as_flags),
        cmocka_unit_test(json_that_is_not_a_request_is_refused),
        cmocka_unit_test(combinations_are_judged),
        cmocka_unit_test(defaults_are_the_contracts),
        cmocka_unit_test(every_request_draws_its_own_seed),
        cmocka_unit_test(a_request_without_its_size_is_refused),
        cmocka_unit_test(the_error_page_lists_every_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
