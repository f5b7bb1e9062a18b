// Keyframes and references without a model: the rules that the request alone decides, then what decoding makes of samples.
// Expected values are those of the command-line contract and of the media specification (B1-B7), by hand.
#include "testing.h"

#include "base/alloc.h"
#include "pipeline/conditions.h"
#include "weights/safetensors.h"

#include "../base/scratch.h"

enum { FRAMES = 39 };

static vx_condition keyframe(int64_t frame)
{
    return (vx_condition){ VX_INIT(vx_condition), .path = "a.png", .keyframe = true, .frame = frame };
}
static vx_condition reference(const char *kind)
{
    return (vx_condition){ VX_INIT(vx_condition), .path = "a.png", .kind = kind };
}

static vx_status judge(vx_conditions *out, const char *task, const vx_condition *given, int count)
{
    *out = (vx_conditions){ 0 };
    return vx_conditions_judge(
        out, &(vx_condition_rules){ .task = task, .given = given, .count = count, .frames = FRAMES, .reference_short_edge = 64 });
}

static const char *const names[] = { "t2va", "i2va", "l2va", "fl2va", "ref2va" };

static void every_task_with_every_input(void **state)
{
    (void)state;
    const vx_condition first[] = { keyframe(0) }, last[] = { keyframe(-1) }, both[] = { keyframe(0), keyframe(38) },
                       inner[] = { keyframe(9) }, several[] = { keyframe(30), keyframe(0), keyframe(9) },
                       refs[] = { reference(NULL), reference("audio") };
    const struct {
        const vx_condition *given;
        int count;
        vx_task natural;
        const char *also; // accepted, and reported as the natural one
    } inputs[] = {
        { NULL, 0, VX_TASK_T2VA, NULL },   { first, 1, VX_TASK_I2VA, "fl2va" }, { last, 1, VX_TASK_L2VA, "fl2va" },
        { both, 2, VX_TASK_FL2VA, NULL },  { inner, 1, VX_TASK_FL2VA, NULL },   { several, 3, VX_TASK_FL2VA, NULL },
        { refs, 2, VX_TASK_REF2VA, NULL },
    };
    static const char *const legal[] = { "no keyframes and no references", "at frame 0", "at the last frame",
                                         "one or more keyframes", "one or more references" };
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        vx_conditions c;
        assert_ok(judge(&c, NULL, inputs[i].given, inputs[i].count));
        assert_int_equal(c.task, inputs[i].natural);
        vx_conditions_free(&c);
        for (int t = 0; t < 5; t++) {
            bool fits = t == (int)inputs[i].natural || (inputs[i].also && !strcmp(inputs[i].also, names[t]));
            vx_status s = judge(&c, names[t], inputs[i].given, inputs[i].count);
            if (s.code != (fits ? VX_OK : VX_ERR_CONFLICT)) fail_msg("input %zu with %s: VX-%d", i, names[t], (int)s.code);
            if (fits) assert_int_equal(c.task, inputs[i].natural);
            else if (!strstr(s.message, legal[t]) || strcmp(s.field, "task")) fail_msg("%s: '%s'", names[t], s.message);
            vx_conditions_free(&c);
        }
    }
}

static void what_the_request_alone_rules_out(void **state)
{
    (void)state;
    vx_condition many[VX_MAX_CONDITIONS + 1];
    for (int i = 0; i <= VX_MAX_CONDITIONS; i++) many[i] = reference(NULL);
    const vx_condition mixed[] = { keyframe(0), reference(NULL) }, beyond[] = { keyframe(FRAMES) }, before[] = { keyframe(-40) },
                       least[] = { keyframe(INT64_MIN) }, largest[] = { keyframe(INT64_MAX) }, kind[] = { reference("text") },
                       twice[] = { keyframe(0), keyframe(-39) };
    const vx_condition nameless[] = { { VX_INIT(vx_condition) } }, empty[] = { { VX_INIT(vx_condition), .path = "" } };
    const struct {
        const char *says;
        const char *task;
        const vx_condition *given;
        int count;
        vx_code want;
        const char *field;
    } cases[] = {
        { "a task that is none", "v2va", NULL, 0, VX_ERR_VALUE, "task" },
        { "an empty task", "", NULL, 0, VX_ERR_VALUE, "task" },
        { "keyframes and references", NULL, mixed, 2, VX_ERR_UNAVAILABLE, "conditions" },
        { "a frame behind the end", NULL, beyond, 1, VX_ERR_RANGE, "keyframe" },
        { "a frame before the start", NULL, before, 1, VX_ERR_RANGE, "keyframe" },
        { "the least number", NULL, least, 1, VX_ERR_RANGE, "keyframe" },
        { "the largest number", NULL, largest, 1, VX_ERR_RANGE, "keyframe" },
        { "one frame, named twice", NULL, twice, 2, VX_ERR_CONFLICT, "keyframe" },
        { "13 references", NULL, many, 13, VX_ERR_RANGE, "ref" },
        { "12 references", NULL, many, 12, VX_OK, "" },
        { "more than there can be", NULL, many, VX_MAX_CONDITIONS + 1, VX_ERR_RANGE, "conditions" },
        { "a kind that is none", NULL, kind, 1, VX_ERR_VALUE, "ref" },
        { "no file", NULL, nameless, 1, VX_ERR_REQUIRED, "conditions" },
        { "an empty name", NULL, empty, 1, VX_ERR_REQUIRED, "conditions" },
        { "a number without a list", NULL, NULL, 1, VX_ERR_VALUE, "conditions" },
        { "less than none", NULL, many, -1, VX_ERR_VALUE, "conditions" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_conditions c;
        vx_status s = judge(&c, cases[i].task, cases[i].given, cases[i].count);
        if (s.code != cases[i].want || (s.code && strcmp(s.field, cases[i].field)))
            fail_msg("%s: VX-%d of '%s': %s", cases[i].says, (int)s.code, s.field, s.message);
        vx_conditions_free(&c);
    }
}

// 39 frames are 12 latents; the pixel frames of each, by hand (1 + 4 + 4 + 4 + 4 from 0, from 17 and from 34 on).
static void two_keyframes_need_two_latent_frames(void **state)
{
    (void)state;
    static const int latent[FRAMES] = { 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4,  4,  4,  5,  6, 6,
                                        6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 9, 9, 9, 9, 10, 11, 11, 11, 11 };
    for (int64_t i = 0; i < FRAMES; i++)
        for (int64_t j = 0; j < FRAMES; j++) {
            const vx_condition two[] = { keyframe(i), keyframe(j - FRAMES) };
            vx_conditions c;
            vx_status s = judge(&c, NULL, two, 2);
            if (s.code != (latent[i] == latent[j] ? VX_ERR_CONFLICT : VX_OK))
                fail_msg("%lld and %lld: VX-%d", (long long)i, (long long)j, (int)s.code);
            if (!s.code) assert_true(c.item[0].frame == (i < j ? i : j) && c.item[1].frame == (i < j ? j : i));
            vx_conditions_free(&c);
        }
}

// ---- what decoding makes of them ----
static const char *put_pixels(scratch *s, const char *name, int64_t frames, int64_t height, int64_t width, uint8_t first)
{
    size_t bytes = (size_t)(frames * height * width) * 3;
    uint8_t *rgb = vx_alloc(bytes);
    for (size_t i = 0; i < bytes; i++) rgb[i] = (uint8_t)(first + i * 7 % 251);
    const vx_safetensors_tensor t = { "pixels", VX_U8, 4, { frames, height, width, 3 }, rgb };
    const char *path = scratch_path(s, name);
    assert_ok(vx_safetensors_write(path, true, &t, 1, (vx_safetensors_pair[]){ { "fps", "24" } }, 1));
    vx_free(rgb);
    return path;
}

static const char *put_sound(scratch *s, const char *name, int64_t channels, int64_t samples, const char *rate)
{
    float *wave = vx_alloc_array((size_t)(channels * samples), sizeof *wave);
    for (int64_t i = 0; i < channels * samples; i++) wave[i] = (float)(i % 97) / 97;
    const vx_safetensors_tensor t = { "waveform", VX_F32, 2, { channels, samples }, wave };
    const char *path = scratch_path(s, name);
    assert_ok(vx_safetensors_write(path, true, &t, 1, (vx_safetensors_pair[]){ { "sample_rate", rate } }, 1));
    vx_free(wave);
    return path;
}

static vx_status load(vx_conditions *c, const vx_condition *given, int count, int64_t frames, int64_t width, int64_t height)
{
    const vx_condition_rules rules = { .given = given,
                                       .count = count,
                                       .frames = frames,
                                       .reference_short_edge = 768,
                                       .canvas_short_edge = 64,
                                       .canvas_max_pixels = 8192 };
    *c = (vx_conditions){ 0 };
    vx_status s = vx_conditions_judge(c, &rules);
    return s.code ? s : vx_conditions_load(c, &rules, width, height);
}

// Halves go to even: 784 is 24.5 times 32 (public reports, section 2, the rounding trap).
static void pictures_are_sized_as_the_reference_sizes_them(void **state)
{
    (void)state;
    static const struct {
        int64_t width, height, to_width, to_height;
    } cases[] = {
        { 784, 768, 768, 768 }, { 768, 784, 768, 768 }, { 1232, 768, 1216, 768 }, { 48, 32, 1152, 768 }, { 32, 128, 768, 3072 }
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scratch s = scratch_create();
        vx_conditions c;
        const vx_condition one = { VX_INIT(vx_condition),
                                   .path = put_pixels(&s, "a.safetensors", 1, cases[i].height, cases[i].width, 0) };
        assert_ok(load(&c, &one, 1, 22, 96, 64));
        assert_int_equal(c.item[0].kind, VX_CONDITION_IMAGE);
        assert_int_equal(c.item[0].width, cases[i].to_width);
        assert_int_equal(c.item[0].height, cases[i].to_height);
        vx_condition_rows rows;
        vx_conditions_rows(&c, &rows);
        assert_true(rows.latent_frames == 1 && rows.latent_width == cases[i].to_width / 16);
        vx_conditions_free(&c);
        scratch_destroy(&s);
    }
}

// Down to 17n+5 for the VAE, whole below 22, and never beyond the clip.
static void videos_are_cut_for_the_vae(void **state)
{
    (void)state;
    static const struct {
        int64_t given, clip, frames, encoded, latents, sampled;
    } cases[] = { { 13, 124, 13, 13, 2, 2 },      { 21, 124, 21, 21, 7, 2 },  { 22, 124, 22, 22, 7, 2 },
                  { 38, 124, 38, 22, 7, 4 },      { 39, 124, 39, 39, 12, 4 }, { 64, 124, 64, 56, 17, 6 },
                  { 130, 124, 124, 124, 37, 11 }, { 130, 22, 22, 22, 7, 2 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scratch s = scratch_create();
        vx_conditions c;
        const vx_condition one = { VX_INIT(vx_condition), .path = put_pixels(&s, "a.safetensors", cases[i].given, 32, 48, 0) };
        assert_ok(load(&c, &one, 1, cases[i].clip, 96, 64));
        const vx_prepared *p = &c.item[0];
        vx_shown shown;
        vx_conditions_shown(&c, &shown);
        if (p->frames != cases[i].frames || p->encoded_frames != cases[i].encoded ||
            vx_prepared_latent_frames(p) != cases[i].latents || shown.sampled_frames != cases[i].sampled)
            fail_msg("%lld frames in %lld: %lld, %lld, %lld, %lld", (long long)cases[i].given, (long long)cases[i].clip,
                     (long long)p->frames, (long long)p->encoded_frames, (long long)vx_prepared_latent_frames(p),
                     (long long)shown.sampled_frames);
        assert_true(p->width == 96 && p->height == 64); // 3:2 with a short edge of 64
        vx_conditions_free(&c);
        scratch_destroy(&s);
    }
}

// Cut to the clip at its own rate, then resampled; a latent is 800 samples at 32 kHz.
static void sounds_are_cut_to_the_clip(void **state)
{
    (void)state;
    static const struct {
        int64_t samples;
        const char *rate;
        int64_t clip, kept, latents;
    } cases[] = { { 800, "32000", 22, 800, 1 },
                  { 801, "32000", 22, 801, 2 },
                  { 40000, "32000", 22, 29333, 37 },
                  { 16000, "16000", 22, 29332, 37 },
                  { 48000, "48000", 124, 32000, 40 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scratch s = scratch_create();
        vx_conditions c;
        char picture[600];
        snprintf(picture, sizeof picture, "%s", put_pixels(&s, "a.safetensors", 1, 32, 48, 0));
        const vx_condition two[] = { { VX_INIT(vx_condition), .path = picture },
                                     { VX_INIT(vx_condition),
                                       .path = put_sound(&s, "b.safetensors", 1, cases[i].samples, cases[i].rate) } };
        assert_ok(load(&c, two, 2, cases[i].clip, 96, 64));
        const vx_prepared *p = &c.item[1];
        assert_int_equal(p->kind, VX_CONDITION_AUDIO);
        assert_int_equal(p->samples, cases[i].kept);
        assert_int_equal(vx_prepared_audio_frames(p), cases[i].latents);
        assert_memory_equal(p->sound, p->sound + p->samples, (size_t)p->samples * sizeof *p->sound); // mono on both sides
        vx_conditions_free(&c);
        scratch_destroy(&s);
    }
}

// The earliest is stretched to the canvas, the others are cropped to it (B5).
static void the_earliest_keyframe_is_stretched_and_others_cropped(void **state)
{
    (void)state;
    scratch s = scratch_create();
    enum { SIDE = 96 };
    static uint8_t half[SIDE * SIDE * 3]; // black above, white below: cropping keeps the edge sharp where it is
    memset(half + sizeof half / 2, 255, sizeof half / 2);
    const vx_safetensors_tensor t = { "pixels", VX_U8, 4, { 1, SIDE, SIDE, 3 }, half };
    const char *path = scratch_path(&s, "a.safetensors");
    assert_ok(vx_safetensors_write(path, true, &t, 1, (vx_safetensors_pair[]){ { "fps", "24" } }, 1));
    const vx_condition two[] = { { VX_INIT(vx_condition), .path = path, .keyframe = true, .frame = -1 },
                                 { VX_INIT(vx_condition), .path = path, .keyframe = true, .frame = 0 } };
    vx_conditions c;
    assert_ok(load(&c, two, 2, 22, 96, 64));
    assert_true(c.item[0].frame == 0 && c.item[1].frame == 21);
    const uint8_t *stretched = c.item[0].pixels, *cropped = c.item[1].pixels;
    assert_memory_equal(cropped, half + 16 * SIDE * 3, 96 * 64 * 3); // the middle 64 of 96 rows, untouched
    assert_memory_not_equal(stretched, cropped, 96 * 64 * 3);
    bool there;
    int64_t width, height;
    assert_ok(vx_conditions_anchor(&c, &there, &width, &height));
    assert_true(there && width == SIDE && height == SIDE);
    vx_conditions_free(&c);
    scratch_destroy(&s);
}

static void limits_are_those_of_the_contract(void **state)
{
    (void)state;
    scratch s = scratch_create();
    enum { PICTURE, TALL, VIDEO, SHORT, LONG, HALF, VOICE, BRIEF, THREE, FILES };
    char path[FILES][600];
    const char *made[FILES];
#define KEEP(i, expression) snprintf(path[i], sizeof path[i], "%s", expression), made[i] = path[i]
    KEEP(PICTURE, put_pixels(&s, "picture.safetensors", 1, 32, 48, 0));
    KEEP(TALL, put_pixels(&s, "tall.safetensors", 1, 129, 32, 0));
    KEEP(VIDEO, put_pixels(&s, "video.safetensors", 13, 32, 32, 0));
    KEEP(SHORT, put_pixels(&s, "short.safetensors", 12, 32, 32, 0));
    KEEP(LONG, put_pixels(&s, "long.safetensors", 372, 32, 32, 0)); // 15.5 s
    KEEP(HALF, put_pixels(&s, "half.safetensors", 182, 32, 32, 0)); // 7.58 s: two are 15.17 s
    KEEP(VOICE, put_sound(&s, "voice.safetensors", 2, 16000, "32000"));
    KEEP(BRIEF, put_sound(&s, "brief.safetensors", 1, 799, "32000"));
    KEEP(THREE, put_sound(&s, "three.safetensors", 3, 16000, "32000"));
#undef KEEP
    const struct {
        const char *says;
        int file[12], count;
        const char *kind;
        vx_code want;
        bool late; // headers do not tell
    } cases[] = {
        { "nine pictures", { 0, 0, 0, 0, 0, 0, 0, 0, 0 }, 9, NULL, VX_OK, false },
        { "ten", { 0 }, 10, NULL, VX_ERR_RANGE, false },
        { "three videos", { VIDEO, VIDEO, VIDEO }, 3, NULL, VX_OK, false },
        { "four", { VIDEO, VIDEO, VIDEO, VIDEO }, 4, NULL, VX_ERR_RANGE, false },
        { "three voices", { PICTURE, VOICE, VOICE, VOICE }, 4, NULL, VX_OK, false },
        { "four", { PICTURE, VOICE, VOICE, VOICE, VOICE }, 5, NULL, VX_ERR_RANGE, false },
        { "voices alone", { VOICE, VOICE }, 2, NULL, VX_ERR_CONFLICT, false },
        { "a voice with a video", { VOICE, VIDEO }, 2, NULL, VX_OK, false },
        { "1:4.03", { TALL }, 1, NULL, VX_ERR_RANGE, false },
        { "twelve frames", { SHORT }, 1, NULL, VX_ERR_RANGE, true },
        { "15.5 seconds", { LONG }, 1, NULL, VX_ERR_RANGE, false },
        { "7.58 seconds", { HALF }, 1, NULL, VX_OK, false },
        { "twice that", { HALF, HALF }, 2, NULL, VX_ERR_RANGE, false },
        { "799 samples", { PICTURE, BRIEF }, 2, NULL, VX_ERR_RANGE, true },
        { "three channels", { PICTURE, THREE }, 2, NULL, VX_ERR_RANGE, false },
        { "a picture said to be a video", { PICTURE }, 1, "video", VX_ERR_INPUT_FORMAT, false },
        { "a video said to be a picture", { VIDEO }, 1, "image", VX_ERR_INPUT_FORMAT, false },
        { "a mute video said to be a sound", { VIDEO }, 1, "audio", VX_ERR_INPUT_FORMAT, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_condition given[12];
        vx_conditions c;
        for (int k = 0; k < cases[i].count; k++)
            given[k] = (vx_condition){ VX_INIT(vx_condition), .path = made[cases[i].file[k]], .kind = cases[i].kind };
        vx_status status = load(&c, given, cases[i].count, 22, 96, 64);
        if (status.code != cases[i].want || (status.code && strcmp(status.field, "ref")))
            fail_msg("%s: VX-%d of '%s': %s", cases[i].says, (int)status.code, status.field, status.message);
        if (status.code && !cases[i].late) // nothing was decoded
            for (int k = 0; k < c.count; k++) assert_true(!c.item[k].pixels && !c.item[k].sound);
        vx_conditions_free(&c);
    }
    scratch_destroy(&s);
}

// The key stands for all that encoding depends on: equal inputs share it, whatever their names.
static void the_key_is_of_the_content(void **state)
{
    (void)state;
    scratch s = scratch_create();
    char a[600], b[600], other[600];
    snprintf(a, sizeof a, "%s", put_pixels(&s, "a.safetensors", 1, 32, 48, 0));
    snprintf(b, sizeof b, "%s", put_pixels(&s, "b.safetensors", 1, 32, 48, 0));
    snprintf(other, sizeof other, "%s", put_pixels(&s, "c.safetensors", 1, 32, 48, 1));
    const struct {
        const char *path[2];
        int count;
        bool keyframe, same;
    } cases[] = { { { a }, 1, false, true },     { { b }, 1, false, true },         { { other }, 1, false, false },
                  { { a, a }, 2, false, false }, { { a, other }, 2, false, false }, { { other, a }, 2, false, false },
                  { { a }, 1, true, false } };
    char seen[7][65];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_conditions c;
        vx_condition given[2];
        for (int k = 0; k < cases[i].count; k++)
            given[k] = (vx_condition){ VX_INIT(vx_condition), .path = cases[i].path[k], .keyframe = cases[i].keyframe };
        assert_ok(load(&c, given, cases[i].count, 22, 96, 64));
        memcpy(seen[i], c.key, sizeof c.key);
        for (size_t k = 0; k < i; k++) assert_int_equal(!strcmp(seen[i], seen[k]), cases[i].same && cases[k].same);
        vx_conditions_free(&c);
    }
    scratch_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_with_every_input),
        cmocka_unit_test(what_the_request_alone_rules_out),
        cmocka_unit_test(two_keyframes_need_two_latent_frames),
        cmocka_unit_test(pictures_are_sized_as_the_reference_sizes_them),
        cmocka_unit_test(videos_are_cut_for_the_vae),
        cmocka_unit_test(sounds_are_cut_to_the_clip),
        cmocka_unit_test(the_earliest_keyframe_is_stretched_and_others_cropped),
        cmocka_unit_test(limits_are_those_of_the_contract),
        cmocka_unit_test(the_key_is_of_the_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
