// Noise conventions against the values of the denoiser specification (7.1, 7.2), computed with PyTorch, and the reference's
// own draws (VORTEX_GOLDEN_DATA).
#include "testing.h"

#include <math.h>

#include "golden.h"
#include "sampling/noise.h"
#include "tensor/random.h"

// The canonical clip: 1344 x 768, 124 frames.
enum { C = 24, T = 37, H = 48, W = 84, AC = 32, A = 207, VIDEO = C * T * H * W, AUDIO = 2 * AC * A };

static const vx_noise all[] = { VX_NOISE_SGLANG, VX_NOISE_DIFFUSERS, VX_NOISE_COMFYUI };

static vx_noise_params params(vx_noise convention, uint64_t seed)
{
    return (vx_noise_params){
        .convention = convention, .seed = seed, .video = { C, T, H, W }, .audio_channels = AC, .audio_frames = A
    };
}

static void draw(const vx_noise_params *p, float **video, float **audio)
{
    *video = malloc(VIDEO * sizeof **video);
    *audio = malloc(AUDIO * sizeof **audio);
    assert_ok(vx_noise_draw(p, *video, *audio, NULL));
}

static void is(float found, float want)
{
    if (fabsf(found - want) > fabsf(want) * 6e-8f) fail_msg("%.9g, wanted %.9g", (double)found, (double)want);
}

// A value of an audio latent [2, 32, A].
static float at(const float *audio, int channel, int c, int k)
{
    return audio[(channel * AC + c) * A + k];
}

static void video_noise_is_one_draw_in_every_convention(void **state)
{
    (void)state;
    static const float first[] = { 1.04842591f, 0.583672941f, 0.565790176f, 0.557357967f },
                       last[] = { 0.290215254f, 0.130905315f, 0.901037633f };
    for (int i = 0; i < 3; i++) {
        vx_noise_params p = params(all[i], 440420);
        float *video, *audio;
        draw(&p, &video, &audio);
        for (int k = 0; k < 4; k++) is(video[k], first[k]);
        for (int k = 0; k < 3; k++) is(video[VIDEO - 3 + k], last[k]);
        double sum = 0;
        for (int k = 0; k < VIDEO; k++) sum += (double)video[k];
        assert_true(fabs(sum - -3355.5121872665) < 1e-6);
        // Patch row 0, elements 2 and 3: the second line of the picture.
        is(video[W], 0.709158719f);
        is(video[W + 1], 0.115994155f);
        free(video);
        free(audio);
    }
}

static void audio_noise_goes_on_where_video_ended(void **state)
{
    (void)state;
    float *video, *audio, *comfy;
    vx_noise_params p = params(VX_NOISE_DIFFUSERS, 440420);
    draw(&p, &video, &audio);
    free(video);
    // Drawn as rows: the first values are the channels of the first moment on the left.
    is(at(audio, 0, 0, 0), 0.311458975f);
    is(at(audio, 0, 1, 0), 0.0316027962f);
    is(at(audio, 0, 2, 0), 0.8493222f);
    is(at(audio, 0, 3, 0), 0.32489267f);
    is(at(audio, 1, 31, 206), 0.206101283f);
    double sum = 0;
    for (int k = 0; k < AUDIO; k++) sum += (double)audio[k];
    assert_true(fabs(sum - -129.3960907444) < 1e-8);

    p.convention = VX_NOISE_COMFYUI; // the same numbers at other places
    draw(&p, &video, &comfy);
    free(video);
    is(at(comfy, 0, 0, 0), 0.311458975f);
    is(at(comfy, 0, 1, 0), 0.150295436f);
    is(at(comfy, 0, 2, 0), 1.00392556f);
    is(at(comfy, 0, 3, 0), 0.0522306412f);
    is(at(comfy, 0, 0, 1), 0.0316027962f);
    is(at(comfy, 1, 31, 206), 0.206101283f);
    free(audio);
    free(comfy);
}

static void seeds_give_the_reference_values(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed;
        float video[3], audio[3];
    } cases[] = { { 0, { -0.747189045f, 0.31168139f, -0.711807311f }, { 0.922783852f, -0.530758023f, -1.38396907f } },
                  { 42, { 0.711576581f, 0.77240634f, 1.56308138f }, { -0.627652287f, -0.705819964f, 0.48717913f } } };
    for (int i = 0; i < 2; i++) {
        vx_noise_params p = params(VX_NOISE_DIFFUSERS, cases[i].seed);
        float *video, *audio;
        draw(&p, &video, &audio);
        for (int k = 0; k < 3; k++) is(video[VIDEO - 3 + k], cases[i].video[k]);
        for (int k = 0; k < 3; k++) is(at(audio, 0, k, 0), cases[i].audio[k]);
        free(video);
        free(audio);
    }
}

static void sglang_starts_audio_from_the_seed_again(void **state)
{
    (void)state;
    vx_noise_params p = params(VX_NOISE_SGLANG, 440420);
    float *video, *audio;
    draw(&p, &video, &audio);
    for (int k = 0; k < A; k++)
        for (int c = 0; c < AC; c++) assert_true(at(audio, 0, c, k) == video[k * AC + c]);
    assert_true(at(audio, 1, 0, 0) == video[A * AC]);
    free(video);
    free(audio);
}

// -- conditions: small shapes, compared with plain draws
// -------------------------------------------------------------------------

enum { SMALL = 24 * 7 * 4 * 6 };

static float *plain(uint64_t seed, int64_t count)
{
    vx_random r;
    vx_random_seed(&r, seed);
    float *x = malloc((size_t)count * sizeof *x);
    vx_random_normal(&r, x, count);
    return x;
}

static const vx_noise_shape references[] = { { 24, 1, 4, 6 }, { 24, 3, 6, 4 } };
static const vx_noise_params with_references = {
    .seed = 7, .video = { 24, 7, 4, 6 }, .audio_channels = 32, .audio_frames = 36, .conditions = references, .condition_count = 2
};
enum { FIRST = 24 * 4 * 6, SECOND = 24 * 3 * 6 * 4 };

static void diffusers_draws_conditions_first(void **state)
{
    (void)state;
    float first[FIRST], second[SECOND], *video = malloc(SMALL * sizeof *video), *want = plain(7, FIRST + SECOND + SMALL);
    vx_noise_params p = with_references;
    p.convention = VX_NOISE_DIFFUSERS;
    assert_ok(vx_noise_draw(&p, video, NULL, (float *const[]){ first, second }));
    assert_memory_equal(first, want, sizeof first);
    assert_memory_equal(second, want + FIRST, sizeof second);
    assert_memory_equal(video, want + FIRST + SECOND, SMALL * sizeof *video);
    // Unwanted draws happen all the same.
    memset(video, 0, SMALL * sizeof *video);
    assert_ok(vx_noise_draw(&p, video, NULL, NULL));
    assert_memory_equal(video, want + FIRST + SECOND, SMALL * sizeof *video);
    free(video);
    free(want);
}

static void sglang_cuts_conditions_from_a_longer_draw(void **state)
{
    (void)state;
    float first[FIRST], second[SECOND], *video = malloc(SMALL * sizeof *video);
    vx_noise_params p = with_references;
    p.convention = VX_NOISE_SGLANG;
    assert_ok(vx_noise_draw(&p, video, NULL, (float *const[]){ first, second }));
    float *want = plain(7, SMALL);
    assert_memory_equal(video, want, SMALL * sizeof *video); // conditions do not move it
    free(want);
    want = plain(7, 24 * 9 * 24); // 7 frames and one more per condition
    for (int c = 0; c < 24; c++) {
        assert_memory_equal(first + c * 24, want + c * 9 * 24, 24 * sizeof *want);
        assert_memory_equal(second + c * 72, want + c * 9 * 24, 72 * sizeof *want);
    }
    free(want);
    free(video);
}

static void comfyui_draws_conditions_as_rows(void **state)
{
    (void)state;
    float first[FIRST], second[SECOND], *want = plain(7, SECOND);
    vx_noise_params p = with_references;
    p.convention = VX_NOISE_COMFYUI;
    assert_ok(vx_noise_draw(&p, NULL, NULL, (float *const[]){ first, second }));
    // second is [24, 3, 6, 4]: row (t*3 + y/2)*2 + x/2, element c*4 + (y%2)*2 + x%2.
    assert_true(second[0] == want[0] && second[1] == want[1] && second[4] == want[2] && second[5] == want[3]);
    assert_true(second[2] == want[96]);                                             // the next patch to the right
    assert_true(second[2 * 4] == want[2 * 96]);                                     // the next line of patches
    assert_true(second[24] == want[6 * 96]);                                        // the next frame
    assert_true(second[23 * 72 + 71] == want[SECOND - 1] && second[72] == want[4]); // the last value; channel 1
    assert_true(first[FIRST - 1] == want[FIRST - 1]);
    free(want);
}

static void shapes_without_sense_are_refused(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        vx_noise_params p = with_references;
        p.convention = all[i];
        p.video.frames = 0;
        float one;
        assert_code(vx_noise_draw(&p, &one, NULL, NULL), VX_ERR_RANGE);
        p.video = (vx_noise_shape){ INT64_MAX / 2, 4, 4, 4 };
        assert_code(vx_noise_draw(&p, &one, NULL, NULL), VX_ERR_RANGE);
    }
    vx_noise_params p = with_references;
    p.convention = VX_NOISE_SGLANG;
    p.video.frames = 1; // three frames are the most that two conditions leave
    p.conditions = (vx_noise_shape[]){ { 24, 4, 4, 6 }, { 24, 1, 4, 6 } };
    float out[24 * 4 * 4 * 6];
    assert_code(vx_noise_draw(&p, NULL, NULL, (float *const[]){ out, NULL }), VX_ERR_RANGE);
}

static void same(const golden_file *f, const char *name, const float *mine, int count)
{
    int n;
    const float *want = golden_f32(f, name, &n);
    assert_int_equal(n, count);
    for (int i = 0; i < n; i++)
        if (mine[i] != want[i]) fail_msg("%s[%d] is %.9g, the reference's %.9g", name, i, (double)mine[i], (double)want[i]);
}

static void torch_drew_the_same(void **state)
{
    (void)state;
    golden_file f;
    if (!golden_open(&f, "comfy.float32")) return;
    enum { V = 24 * 37 * 4 * 6 };
    float *video = malloc(V * sizeof *video), *audio = malloc(AUDIO * sizeof *audio);
    vx_noise_params p = {
        .convention = VX_NOISE_COMFYUI, .seed = 440420, .video = { 24, 37, 4, 6 }, .audio_channels = 32, .audio_frames = A
    };
    assert_ok(vx_noise_draw(&p, video, audio, NULL));
    same(&f, "noise.comfyui.video", video, V);
    same(&f, "noise.comfyui.audio", audio, AUDIO);
    p.convention = VX_NOISE_SGLANG;
    assert_ok(vx_noise_draw(&p, NULL, audio, NULL));
    same(&f, "noise.sglang.audio", audio, AUDIO);
    golden_close(&f);
    if (!golden_open(&f, "t2va.float32")) return;
    p.convention = VX_NOISE_DIFFUSERS;
    assert_ok(vx_noise_draw(&p, NULL, audio, NULL));
    int n;
    const float *rows = golden_f32(&f, "first_call.audio_hidden_states", &n);
    assert_int_equal(n, AUDIO);
    for (int i = 0; i < n; i++) assert_true(rows[i] == at(audio, i / (A * AC), i % AC, i / AC % A));
    golden_close(&f);
    free(video);
    free(audio);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(video_noise_is_one_draw_in_every_convention),
        cmocka_unit_test(audio_noise_goes_on_where_video_ended),
        cmocka_unit_test(seeds_give_the_reference_values),
        cmocka_unit_test(sglang_starts_audio_from_the_seed_again),
        cmocka_unit_test(diffusers_draws_conditions_first),
        cmocka_unit_test(sglang_cuts_conditions_from_a_longer_draw),
        cmocka_unit_test(comfyui_draws_conditions_as_rows),
        cmocka_unit_test(shapes_without_sense_are_refused),
        cmocka_unit_test(torch_drew_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
