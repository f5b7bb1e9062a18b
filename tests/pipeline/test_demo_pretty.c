// The constructed demo model does what it is for: pictures that are smooth in space and time, a chord at a pleasant level,
// another clip for another seed or prompt. Measured on a small canvas, through the public interface.
#include "testing.h"

#include <math.h>

#include "base/scratch.h"
#include "vortex/vortex.h"

enum { SIDE = 128, FRAMES = 22, RATE = 32000 };
static const int notes[] = { 160, 200, 240, 320 }; // hertz

typedef struct rig {
    scratch files;
    vx_context *context;
    vx_model *model;
} rig;

static int open_rig(void **state)
{
    rig *r = calloc(1, sizeof *r);
    r->files = scratch_create();
    const char *path = scratch_path(&r->files, "model");
    assert_ok(vx_context_create(&r->context, &(vx_context_params){ VX_INIT(vx_context_params), .threads = 2 }));
    assert_ok(vx_demo_model_write(r->context, path, NULL));
    assert_ok(vx_model_open(r->context, &r->model, &(vx_model_params){ VX_INIT(vx_model_params), .path = path }));
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

typedef struct clip {
    float *sound; // [2, samples]
    int64_t samples, frames;
    uint8_t picture[FRAMES][SIDE][SIDE][3];
} clip;

static bool take_sound(void *user, const float *samples, int64_t count)
{
    clip *c = user;
    c->samples = count;
    c->sound = malloc((size_t)count * 2 * sizeof *c->sound);
    memcpy(c->sound, samples, (size_t)count * 2 * sizeof *c->sound);
    return true;
}

static bool take_frames(void *user, int64_t first, int64_t count, const uint8_t *rgb)
{
    clip *c = user;
    memcpy(c->picture[first], rgb, (size_t)count * sizeof c->picture[0]);
    c->frames += count;
    return true;
}

static clip *make_clip(rig *r, const char *prompt, uint64_t seed)
{
    clip *c = calloc(1, sizeof *c);
    vx_job *job;
    vx_request request = { VX_INIT(vx_request),  .prompt = prompt, .width = SIDE,    .height = SIDE,
                           .num_frames = FRAMES, .evaluations = 6, .seed_set = true, .seed = seed };
    assert_ok(vx_job_create(
        r->model, &request,
        &(vx_job_callbacks){ VX_INIT(vx_job_callbacks), .frames = take_frames, .sound = take_sound, .user = c }, &job));
    assert_ok(vx_job_run(job));
    assert_ok(vx_job_decode(job));
    assert_int_equal(c->frames, FRAMES);
    vx_job_destroy(&job);
    return c;
}

static void free_clip(clip *c)
{
    free(c->sound);
    free(c);
}

// Mean absolute difference of bytes `step` apart, over all frames.
static double mean_step(const clip *a, const clip *b, size_t step)
{
    const uint8_t *x = (const uint8_t *)a->picture, *y = (const uint8_t *)b->picture;
    double sum = 0;
    size_t n = sizeof a->picture - step;
    for (size_t i = 0; i < n; i++) sum += abs((int)x[i] - (int)y[i + step]);
    return sum / (double)n;
}

static double deviation(const clip *c)
{
    const uint8_t *x = (const uint8_t *)c->picture;
    double sum = 0, square = 0, n = (double)sizeof c->picture;
    for (size_t i = 0; i < sizeof c->picture; i++) {
        sum += x[i];
        square += (double)x[i] * x[i];
    }
    return sqrt(square / n - sum / n * (sum / n));
}

// Noise of this deviation would put neighbours apart by more than the deviation itself; here it is a fraction.
static void pictures_are_smooth_in_space_and_time(void **state)
{
    clip *c = make_clip(*state, "A lighthouse at dawn.", 7);
    double all = deviation(c), across = mean_step(c, c, 3), in_time = mean_step(c, c, sizeof c->picture[0]);
    print_message("  deviation %.1f, between pixels %.2f, between frames %.2f\n", all, across, in_time);
    assert_true(all > 10);
    assert_true(across < 0.1 * all);
    assert_true(in_time < 0.15 * all);
    free_clip(c);
}

static void seeds_and_prompts_make_other_clips(void **state)
{
    clip *a = make_clip(*state, "A lighthouse at dawn.", 7), *b = make_clip(*state, "A lighthouse at dawn.", 8),
         *c = make_clip(*state, "Rain falls on a green forest.", 7), *d = make_clip(*state, "A lighthouse at dawn.", 7);
    print_message("  another seed %.1f, another prompt %.1f\n", mean_step(a, b, 0), mean_step(a, c, 0));
    assert_true(mean_step(a, b, 0) > 10);
    assert_true(mean_step(a, c, 0) > 10);
    assert_true(mean_step(a, d, 0) == 0);
    free_clip(a);
    free_clip(b);
    free_clip(c);
    free_clip(d);
}

// Power of the part of x that is a sinusoid of this frequency.
static double tone_power(const float *x, int64_t n, int hertz)
{
    double c = 0, s = 0;
    for (int64_t i = 0; i < n; i++) {
        double phase = 6.283185307179586 * hertz * (double)i / RATE;
        c += (double)x[i] * cos(phase);
        s += (double)x[i] * sin(phase);
    }
    return 2 * (c * c + s * s) / ((double)n * (double)n);
}

static void sound_is_a_chord_at_a_pleasant_level(void **state)
{
    clip *c = make_clip(*state, "A lighthouse at dawn.", 7);
    const int64_t n = c->samples / 800 * 800; // whole periods of all notes
    for (int channel = 0; channel < 2; channel++) {
        const float *x = c->sound + channel * c->samples;
        double power = 0, tones = 0, peak = 0;
        for (int64_t i = 0; i < n; i++) {
            power += (double)x[i] * (double)x[i] / (double)n;
            if (fabs((double)x[i]) > peak) peak = fabs((double)x[i]);
        }
        for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) tones += tone_power(x, n, notes[i]);
        print_message("  channel %d: %.1f dBFS, peak %.2f, %.0f %% in the notes\n", channel, 10 * log10(power), peak,
                      100 * tones / power);
        assert_true(10 * log10(power) > -24 && 10 * log10(power) < -9);
        assert_true(peak < 0.98);
        assert_true(tones > 0.95 * power);
    }
    free_clip(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_smooth_in_space_and_time),
        cmocka_unit_test(seeds_and_prompts_make_other_clips),
        cmocka_unit_test(sound_is_a_chord_at_a_pleasant_level),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
