// The sampling loop with a toy velocity: the official step bit for bit against diffusers' scheduler, ComfyUI's formulas
// against their f64 evaluation (tools/make_sampler_vectors.py), coefficients against the tables of the specification.
#include "testing.h"

#include <math.h>

#include "base/alloc.h"
#include "golden.h"
#include "sampling/sampler.h"

enum { VIDEO = 20, AUDIO = 8 };

static void velocity_of(const float *x, const float *y, int64_t k, float *vv, float *va)
{
    for (int i = 0; i < VIDEO; i++) {
        const float a = 0.75f * x[i], b = 0.125f * y[i % AUDIO], c = 0.0625f * (float)k;
        vv[i] = a + (b - c);
    }
    for (int i = 0; i < AUDIO; i++) {
        const float a = 0.25f * x[i], b = 0.5f * y[i], c = 0.03125f * (float)k;
        va[i] = (a - b) + c;
    }
}

static vx_status toy(void *user, int64_t k, vx_tensor video, vx_tensor audio, vx_tensor vv, vx_tensor va)
{
    (void)user;
    velocity_of(video.data, audio.data, k, vv.data, va.data);
    return vx_ok();
}

typedef struct bench {
    vx_device *dev;
    vx_arena *arena;
    float video[VIDEO], audio[AUDIO];
} bench;

static void open_bench(bench *b)
{
    assert_ok(vx_device_cpu_create(&b->dev, &(vx_cpu_params){ .threads = 1 }));
    assert_ok(vx_arena_create(b->dev, &b->arena, 1 << 14));
}

static void close_bench(bench *b)
{
    vx_arena_destroy(&b->arena);
    vx_device_destroy(&b->dev);
}

static vx_status run(bench *b, const vx_sampler_params *p, vx_velocity_fn velocity, void *user)
{
    return vx_sampler_run(b->dev, b->arena, p, vx_tensor_of(b->video, VX_F32, VIDEO / 4, 4),
                          vx_tensor_of(b->audio, VX_F32, AUDIO / 4, 4), velocity, user);
}

static void start(bench *b, const golden_file *f)
{
    int n;
    memcpy(b->video, golden_f32(f, "start.video", &n), sizeof b->video);
    assert_int_equal(n, VIDEO);
    memcpy(b->audio, golden_f32(f, "start.audio", &n), sizeof b->audio);
    assert_int_equal(n, AUDIO);
}

static void runs_match_the_vectors(void **state)
{
    (void)state;
    golden_file f;
    golden_open_path(&f, VX_TEST_DATA "/sampler.safetensors");
    int late_count;
    const float *late = golden_f32(&f, "late.sigmas", &late_count);
    const struct {
        const char *name;
        vx_sampler sampler;
        bool official;
        vx_schedule schedule;
        int points;
        float tolerance; // 0: every bit
    } cases[] = {
        { "official.5", VX_SAMPLER_EULER, true, VX_SCHEDULE_OFFICIAL, 5, 0 },
        { "official.9", VX_SAMPLER_EULER, true, VX_SCHEDULE_OFFICIAL, 9, 0 },
        { "official.late", VX_SAMPLER_EULER, true, VX_SCHEDULE_EXPLICIT, 0, 0 },
        { "comfyui.euler.beta", VX_SAMPLER_EULER, false, VX_SCHEDULE_BETA, 13, 2e-6f },
        { "comfyui.res_multistep.beta", VX_SAMPLER_RES_MULTISTEP, false, VX_SCHEDULE_BETA, 13, 2e-6f },
        { "comfyui.res_multistep.late", VX_SAMPLER_RES_MULTISTEP, false, VX_SCHEDULE_EXPLICIT, 0, 2e-6f },
    };
    bench b;
    open_bench(&b);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_sigmas s;
        assert_ok(cases[i].schedule == VX_SCHEDULE_EXPLICIT ? vx_sigmas_explicit(&s, late, late_count, 12, 3)
                                                            : vx_sigmas_make(&s, cases[i].schedule, cases[i].points, 12, 3));
        start(&b, &f);
        assert_ok(run(&b, &(vx_sampler_params){ cases[i].sampler, cases[i].official, &s, 12, 3 }, toy, NULL));
        const float *mine[] = { b.video, b.audio };
        for (int kind = 0; kind < 2; kind++) {
            char name[64];
            int n;
            snprintf(name, sizeof name, "%s.%s", cases[i].name, kind == 0 ? "video" : "audio");
            const float *want = golden_f32(&f, name, &n);
            for (int k = 0; k < n; k++)
                if (!(fabsf(mine[kind][k] - want[k]) <= cases[i].tolerance * fmaxf(1, fabsf(want[k]))))
                    fail_msg("%s[%d] is %.9g, wanted %.9g", name, k, (double)mine[kind][k], (double)want[k]);
        }
    }
    close_bench(&b);
    golden_close(&f);
}

// ---- coefficients: what a step does to a state when the denoised estimates are chosen ----

typedef struct probe {
    const vx_sigmas *sigmas;
    double denoised[16]; // of both streams' carried variables, at each step
    double video[17], audio[16];
} probe;

static vx_status choose(void *user, int64_t k, vx_tensor video, vx_tensor audio, vx_tensor vv, vx_tensor va)
{
    probe *p = user;
    const float *x = video.data, *y = audio.data;
    p->video[k] = (double)x[0];
    p->audio[k] = (double)y[0];
    const double s = (double)p->sigmas->video[k], sa = (double)p->sigmas->audio[k];
    for (int i = 0; i < VIDEO; i++) vx_f32_of(vv)[i] = (float)((p->denoised[k] - (double)x[i]) / s);
    for (int i = 0; i < AUDIO; i++) vx_f32_of(va)[i] = (float)((p->denoised[k] / 4 - (double)y[i]) / sa);
    return vx_ok();
}

static void observe(bench *b, probe *p, float from)
{
    for (int i = 0; i < VIDEO; i++) b->video[i] = from;
    for (int i = 0; i < AUDIO; i++) b->audio[i] = from;
    assert_ok(run(b, &(vx_sampler_params){ VX_SAMPLER_RES_MULTISTEP, false, p->sigmas, 12, 3 }, choose, p));
    p->video[p->sigmas->count - 1] = (double)b->video[0];
}

static void steps_have_the_canonical_coefficients(void **state)
{
    (void)state;
    // Specification 6.5: x = a*x + p*D + q*D of the step before; and 6.4: c, the audio that the network sees over the carried.
    static const double table[12][4] = {
        { 0.99751741, 0.00248259, 0, 1 },
        { 0.99419476, 0.01261059, -0.00680535, 0.99260728 },
        { 0.99070849, 0.01675187, -0.00746036, 0.97578086 },
        { 0.98661335, 0.02307164, -0.00968499, 0.95015110 },
        { 0.98046043, 0.03389145, -0.01435188, 0.91581649 },
        { 0.97153043, 0.04940496, -0.02093539, 0.87051567 },
        { 0.95624449, 0.07789867, -0.03414316, 0.81306206 },
        { 0.92939190, 0.12909224, -0.05848414, 0.74012410 },
        { 0.87828460, 0.23191297, -0.11019757, 0.65012877 },
        { 0.76131901, 0.50082166, -0.26214067, 0.54412854 },
        { 0.49329851, 1.23987802, -0.73317653, 0.42483106 },
        { 0, 1, 0, 0.31367925 },
    };
    vx_sigmas s;
    assert_ok(vx_sigmas_make(&s, VX_SCHEDULE_BETA, 13, 12, 3));
    bench b;
    open_bench(&b);
    probe zero = { .sigmas = &s }, even = { .sigmas = &s }, odd = { .sigmas = &s };
    for (int k = 0; k < 12; k++) (k % 2 == 0 ? &even : &odd)->denoised[k] = 1;
    observe(&b, &zero, 1);
    observe(&b, &even, 0);
    observe(&b, &odd, 0);
    for (int k = 0; k < 12; k++) {
        const probe *now = k % 2 == 0 ? &even : &odd, *before = k % 2 == 0 ? &odd : &even;
        const double a = zero.video[k + 1] / zero.video[k], p = now->video[k + 1] - table[k][0] * now->video[k],
                     q = before->video[k + 1] - table[k][0] * before->video[k], c = zero.audio[k] / zero.video[k];
        if (!(fabs(a - table[k][0]) < 3e-7 && fabs(p - table[k][1]) < 3e-7 && fabs(q - table[k][2]) < 3e-7 &&
              fabs(c - table[k][3]) < 3e-7))
            fail_msg("step %d: %.9g %.9g %.9g, c %.9g", k, a, p, q, c);
    }
    close_bench(&b);
}

// -- what holds for every sampler
// --------------------------------------------------------------------------------------------------

typedef struct target {
    const vx_sigmas *sigmas;
    float video, audio;
    uint64_t calls[2]; // of the allocator, at the first and the last evaluation
    int64_t evaluations;
} target;

static vx_status straight(void *user, int64_t k, vx_tensor video, vx_tensor audio, vx_tensor vv, vx_tensor va)
{
    target *t = user;
    if (k == 0) t->calls[0] = vx_alloc_calls();
    t->calls[1] = vx_alloc_calls();
    t->evaluations++;
    for (int i = 0; i < VIDEO; i++) vx_f32_of(vv)[i] = (t->video - vx_f32_of(video)[i]) / t->sigmas->video[k];
    for (int i = 0; i < AUDIO; i++) vx_f32_of(va)[i] = (t->audio - vx_f32_of(audio)[i]) / t->sigmas->audio[k];
    return vx_ok();
}

static void a_straight_path_ends_at_its_target(void **state)
{
    (void)state;
    bench b;
    open_bench(&b);
    for (int sampler = 0; sampler < 3; sampler++) {
        vx_sigmas s;
        assert_ok(vx_sigmas_make(&s, sampler == 0 ? VX_SCHEDULE_OFFICIAL : VX_SCHEDULE_SIMPLE, 9, 12, 3));
        for (int i = 0; i < VIDEO; i++) b.video[i] = (float)i - 9;
        for (int i = 0; i < AUDIO; i++) b.audio[i] = (float)i - 4;
        target t = { .sigmas = &s, .video = 0.75f, .audio = -1.5f };
        const vx_sampler_params p = { sampler == 2 ? VX_SAMPLER_RES_MULTISTEP : VX_SAMPLER_EULER, sampler == 0, &s, 12, 3 };
        assert_ok(run(&b, &p, straight, &t));
        for (int i = 0; i < VIDEO; i++) assert_true(fabsf(b.video[i] - 0.75f) < 1e-5f);
        for (int i = 0; i < AUDIO; i++) assert_true(fabsf(b.audio[i] + 1.5f) < 1e-5f);
        assert_int_equal(t.evaluations, 8);
        assert_int_equal(t.calls[0], t.calls[1]); // nothing is allocated between evaluations
        assert_int_equal(vx_arena_mark(b.arena), 0);
    }
    close_bench(&b);
}

static vx_status fails_at_the_third(void *user, int64_t k, vx_tensor video, vx_tensor audio, vx_tensor vv, vx_tensor va)
{
    if (k == 2) return vx_fail(VX_ERR_NOT_FINITE, "block 17");
    return straight(user, k, video, audio, vv, va);
}

static void an_error_of_the_network_is_passed_on(void **state)
{
    (void)state;
    bench b;
    open_bench(&b);
    for (int official = 0; official < 2; official++) {
        vx_sigmas s;
        assert_ok(vx_sigmas_make(&s, VX_SCHEDULE_OFFICIAL, 9, 12, 3));
        memset(b.video, 0, sizeof b.video);
        memset(b.audio, 0, sizeof b.audio);
        target t = { .sigmas = &s };
        vx_status st = run(&b, &(vx_sampler_params){ VX_SAMPLER_EULER, official, &s, 12, 3 }, fails_at_the_third, &t);
        assert_int_equal(st.code, VX_ERR_NOT_FINITE);
        assert_string_equal(st.message, "block 17");
        assert_int_equal(vx_arena_mark(b.arena), 0);
    }
    close_bench(&b);
}

static vx_status nothing(void *user, int64_t k, vx_tensor video, vx_tensor audio, vx_tensor vv, vx_tensor va)
{
    (void)k;
    (void)video, (void)audio, (void)vv, (void)va;
    ++*(int *)user;
    return vx_ok();
}

static void a_plan_finds_the_memory_that_a_run_takes(void **state)
{
    (void)state;
    for (int official = 0; official < 2; official++) {
        vx_device *plan;
        vx_arena *arena;
        vx_sigmas s;
        int calls = 0;
        assert_ok(vx_sigmas_make(&s, VX_SCHEDULE_OFFICIAL, 5, 12, 3));
        const vx_sampler_params p = { VX_SAMPLER_EULER, official, &s, 12, 3 };
        assert_ok(vx_device_plan_create(&plan, NULL));
        assert_ok(vx_arena_create(plan, &arena, 0));
        assert_ok(vx_sampler_run(plan, arena, &p, vx_tensor_of(NULL, VX_F32, VIDEO / 4, 4),
                                 vx_tensor_of(NULL, VX_F32, AUDIO / 4, 4), nothing, &calls));
        assert_int_equal(calls, 4);
        const size_t need = vx_arena_high(arena);
        vx_arena_destroy(&arena);
        vx_device_destroy(&plan);
        bench b = { 0 };
        assert_ok(vx_device_cpu_create(&b.dev, &(vx_cpu_params){ .threads = 1 }));
        assert_ok(vx_arena_create(b.dev, &b.arena, need));
        target t = { .sigmas = &s };
        assert_ok(run(&b, &p, straight, &t));
        close_bench(&b);
        assert_ok(vx_device_cpu_create(&b.dev, &(vx_cpu_params){ .threads = 1 }));
        assert_ok(vx_arena_create(b.dev, &b.arena, need - VX_ARENA_ALIGN));
        assert_code(run(&b, &p, nothing, &calls), VX_ERR_INTERNAL);
        close_bench(&b);
    }
}

static void contradictions_are_refused(void **state)
{
    (void)state;
    bench b;
    open_bench(&b);
    vx_sigmas s;
    assert_ok(vx_sigmas_make(&s, VX_SCHEDULE_OFFICIAL, 5, 12, 3));
    target t = { .sigmas = &s };
    assert_code(run(&b, &(vx_sampler_params){ VX_SAMPLER_RES_MULTISTEP, true, &s, 12, 3 }, straight, &t), VX_ERR_CONFLICT);
    assert_code(run(&b, &(vx_sampler_params){ VX_SAMPLER_EULER, false, &s, 0, 3 }, straight, &t), VX_ERR_RANGE);
    assert_code(run(&b, &(vx_sampler_params){ VX_SAMPLER_EULER, true, NULL, 12, 3 }, straight, &t), VX_ERR_VALUE);
    close_bench(&b);
}

// By hand: x + (sigma - next) v, a product and a sum in f32; the toy's velocity does not matter to that.
static vx_status constant(void *user, int64_t k, vx_tensor video, vx_tensor audio, vx_tensor vv, vx_tensor va)
{
    (void)user, (void)k, (void)video, (void)audio;
    for (int i = 0; i < VIDEO; i++) vx_f32_of(vv)[i] = 0.1f * (float)(i + 1);
    for (int i = 0; i < AUDIO; i++) vx_f32_of(va)[i] = -0.3f * (float)(i + 1);
    return vx_ok();
}

static void the_plain_step_adds_the_difference_of_sigmas(void **state)
{
    (void)state;
    bench b;
    vx_sigmas s;
    float x[VIDEO], y[AUDIO];
    open_bench(&b);
    assert_ok(vx_sigmas_make(&s, VX_SCHEDULE_OFFICIAL, 5, 6, 3));
    for (int i = 0; i < VIDEO; i++) x[i] = b.video[i] = 0.01f * (float)i;
    for (int i = 0; i < AUDIO; i++) y[i] = b.audio[i] = 0.7f - 0.01f * (float)i;
    assert_ok(run(&b, &(vx_sampler_params){ VX_SAMPLER_EULER, VX_STEP_PLAIN, &s, 6, 3 }, constant, NULL));
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < VIDEO; i++) {
            const float d = (s.video[k] - s.video[k + 1]) * (0.1f * (float)(i + 1));
            x[i] = x[i] + d;
        }
        for (int i = 0; i < AUDIO; i++) {
            const float d = (s.audio[k] - s.audio[k + 1]) * (-0.3f * (float)(i + 1));
            y[i] = y[i] + d;
        }
    }
    assert_memory_equal(b.video, x, sizeof x);
    assert_memory_equal(b.audio, y, sizeof y);
    close_bench(&b);
}

static void timesteps_are_one_less_sigma(void **state)
{
    (void)state;
    vx_sigmas s;
    float video[12], audio[12];
    assert_ok(vx_sigmas_make(&s, VX_SCHEDULE_OFFICIAL, 5, 12, 3));
    vx_sampler_timesteps(&(vx_sampler_params){ VX_SAMPLER_EULER, true, &s, 12, 3 }, video, audio);
    for (int k = 0; k < 4; k++) assert_true(video[k] == 1 - s.video[k] && audio[k] == 1 - s.audio[k]);
    // Specification 9, step 1 of the canonical list.
    assert_ok(vx_sigmas_make(&s, VX_SCHEDULE_BETA, 13, 12, 3));
    vx_sampler_timesteps(&(vx_sampler_params){ VX_SAMPLER_RES_MULTISTEP, false, &s, 12, 3 }, video, audio);
    assert_true(video[0] == 0 && audio[0] == 0);
    assert_true(fabsf(video[1] - 0.002482593f) < 1.3e-7f);
    assert_true(fabsf(audio[1] - 0.009856999f) < 2e-7f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_match_the_vectors),
        cmocka_unit_test(steps_have_the_canonical_coefficients),
        cmocka_unit_test(a_straight_path_ends_at_its_target),
        cmocka_unit_test(an_error_of_the_network_is_passed_on),
        cmocka_unit_test(a_plan_finds_the_memory_that_a_run_takes),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(the_plain_step_adds_the_difference_of_sigmas),
        cmocka_unit_test(timesteps_are_one_less_sigma),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
