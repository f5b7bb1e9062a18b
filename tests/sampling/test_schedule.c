// Sigma lists against the values of the denoiser specification (6.1, 6.2, 6.3, 6.8), which were computed with PyTorch, NumPy
// and SciPy, and against the reference scheduler's grids (VORTEX_GOLDEN_DATA). "Same" is at most one unit in the last place
// for printed values and every bit for stored ones.
#include "testing.h"

#include <math.h>

#include "golden.h"
#include "sampling/schedule.h"
#include "tensor/dtype.h"

static void is_list(const char *what, const float *list, int count, const float *want, int wanted)
{
    if (count != wanted) fail_msg("%s has %d values, wanted %d", what, count, wanted);
    for (int i = 0; i < count; i++)
        if (abs((int)(vx_f32_bits(list[i]) - vx_f32_bits(want[i]))) > 1)
            fail_msg("%s[%d] is %.9g, wanted %.9g", what, i, (double)list[i], (double)want[i]);
}
#define COUNT(a) (int)(sizeof(a) / sizeof *(a))
#define IS_LIST(list, n, ...)                                    \
    do {                                                         \
        const float want_[] = { __VA_ARGS__ };                   \
        is_list(#list " " #n, (list), (n), want_, COUNT(want_)); \
    } while (0)

static vx_sigmas make(vx_schedule schedule, int points)
{
    vx_sigmas s;
    assert_ok(vx_sigmas_make(&s, schedule, points, 12, 3));
    return s;
}

static void the_official_grid_has_the_reference_values(void **state)
{
    (void)state;
    vx_sigmas s = make(VX_SCHEDULE_OFFICIAL, 5);
    IS_LIST(s.video, s.count, 1, 0.972972989f, 0.923076928f, 0.800000012f, 0);
    IS_LIST(s.audio, s.count, 1, 0.899999976f, 0.75f, 0.5f, 0);
    s = make(VX_SCHEDULE_OFFICIAL, 9);
    IS_LIST(s.video, s.count, 1, 0.988235295f, 0.972972989f, 0.952380955f, 0.923076928f, 0.878048778f, 0.800000012f, 0.631578922f,
            0);
    IS_LIST(s.audio, s.count, 1, 0.954545438f, 0.899999976f, 0.833333313f, 0.75f, 0.642857134f, 0.5f, 0.300000012f, 0);
    s = make(VX_SCHEDULE_OFFICIAL, 13);
    IS_LIST(s.video, s.count, 1, 0.992481172f, 0.983606637f, 0.972972989f, 0.959999979f, 0.943820238f, 0.923076928f, 0.895522356f,
            0.857142806f, 0.800000012f, 0.705882311f, 0.521739125f, 0);
    IS_LIST(s.audio, s.count, 1, 0.970588207f, 0.93750006f, 0.899999976f, 0.857142806f, 0.807692349f, 0.75f, 0.681818187f,
            0.599999964f, 0.5f, 0.375f, 0.214285716f, 0);
    s = make(VX_SCHEDULE_OFFICIAL, 50);
    assert_int_equal(s.count, 50);
    IS_LIST(s.video, 4, 1, 0.998266876f, 0.996466458f, 0.994594634f);
    IS_LIST(s.video + 47, 3, 0.338028163f, 0.200000003f, 0);
    IS_LIST(s.audio, 3, 1, 0.993103445f, 0.986014009f);
    IS_LIST(s.audio + 47, 3, 0.113207549f, 0.0588235296f, 0);
    s = make(VX_SCHEDULE_OFFICIAL, 2);
    IS_LIST(s.video, s.count, 1, 0);
    // The 4-step adapter of 6.8: shift 6.
    assert_ok(vx_sigmas_make(&s, VX_SCHEDULE_OFFICIAL, 5, 6, 3));
    IS_LIST(s.video, s.count, 1, 0.947368443f, 0.857142866f, 0.666666687f, 0);
}

// FNV-1a-64 of the bytes of diffusers' MiniMaxH3Scheduler(shift).set_timesteps(n).sigmas, n = 2..400 (torch 2.15):
//   h = (h ^ byte) * 0x100000001b3 from 0xcbf29ce484222325
static void four_hundred_grids_are_equal_in_every_bit(void **state)
{
    (void)state;
    static const struct {
        float shift;
        uint64_t hash;
    } cases[] = { { 3, 0xc45997694cdbef9e }, { 6, 0xdd438dce0921b22d }, { 10, 0x4ab8796ab5ef0d0b }, { 12, 0xf0194d47194f3168 } };
    for (int i = 0; i < COUNT(cases); i++) {
        uint64_t hash = 0xcbf29ce484222325;
        for (int n = 2; n <= 400; n++) {
            vx_sigmas s;
            assert_ok(vx_sigmas_make(&s, VX_SCHEDULE_OFFICIAL, n, cases[i].shift, cases[i].shift));
            const uint8_t *bytes = (const uint8_t *)s.video;
            for (int k = 0; k < 4 * s.count; k++) hash = (hash ^ bytes[k]) * 0x100000001b3;
        }
        if (hash != cases[i].hash) fail_msg("shift %g: %llx", (double)cases[i].shift, (unsigned long long)hash);
    }
}

static void lists_that_lose_unlike_many_points_are_refused(void **state)
{
    (void)state;
    vx_sigmas s;
    // A shift of 3e7 makes all but the last sigmas 1 in f32, a shift of 3 none.
    assert_code(vx_sigmas_make(&s, VX_SCHEDULE_OFFICIAL, 9, 3e8f, 3), VX_ERR_VALUE);
    assert_ok(vx_sigmas_make(&s, VX_SCHEDULE_OFFICIAL, 9, 3e8f, 3e8f));
    IS_LIST(s.video, s.count, 1, 0);
}

// Indices into the table of 1000 and the values of 6.2.
static void the_beta_list_is_canonical(void **state)
{
    (void)state;
    vx_sigmas s = make(VX_SCHEDULE_BETA, 13);
    IS_LIST(s.video, s.count, 1, 0.997517407f, 0.991726577f, 0.982511938f, 0.969359398f, 0.950418532f, 0.923360527f, 0.882958412f,
            0.820614398f, 0.720732987f, 0.548707724f, 0.270676702f, 0);
    IS_LIST(s.audio, s.count, 1, 0.990143001f, 0.967707992f, 0.933534801f, 0.887755394f, 0.827354372f, 0.750749409f, 0.653498769f,
            0.533504963f, 0.392171383f, 0.233108073f, 0.0849056691f, 0);
    static const struct {
        int n, index[20];
    } others[] = { { 4, { 999, 823, 500, 176 } },
                   { 8, { 999, 942, 823, 670, 500, 329, 176, 57 } },
                   { 20, { 999, 986, 959, 922, 876, 823, 765, 703, 637, 569, 500, 430, 362, 296, 234, 176, 123, 77, 40, 13 } } };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        s = make(VX_SCHEDULE_BETA, others[i].n + 1);
        assert_int_equal(s.count, others[i].n + 1);
        for (int k = 0; k < others[i].n; k++) {
            const double u = (others[i].index[k] + 1) / 1000.0, want = 12 * u / (1 + 11 * u);
            if (fabs((double)s.video[k] - want) > 1e-7)
                fail_msg("beta %d[%d] is %.9g, wanted %.9g", others[i].n, k, (double)s.video[k], want);
        }
    }
    // Equal indices are skipped: as many points as evaluations would need more than 1000 distinct ones near the ends.
    s = make(VX_SCHEDULE_BETA, 1001);
    assert_in_range(s.count, 500, 1000);
    for (int k = 1; k < s.count; k++) assert_true(s.video[k] < s.video[k - 1]);
}

static void the_simple_list_has_the_reference_values(void **state)
{
    (void)state;
    vx_sigmas s = make(VX_SCHEDULE_SIMPLE, 5);
    IS_LIST(s.video, s.count, 1, 0.972972989f, 0.923076928f, 0.800000012f, 0);
    s = make(VX_SCHEDULE_SIMPLE, 9);
    vx_sigmas official = make(VX_SCHEDULE_OFFICIAL, 9);
    is_list("simple 8", s.video, s.count, official.video, official.count);
    s = make(VX_SCHEDULE_SIMPLE, 13);
    IS_LIST(s.video, s.count, 1, 0.992513716f, 0.983683884f, 0.972972989f, 0.960057557f, 0.943965554f, 0.923076928f, 0.895650566f,
            0.857509673f, 0.800000012f, 0.70638001f, 0.523908496f, 0);
    s = make(VX_SCHEDULE_SIMPLE, 21);
    IS_LIST(s.video, s.count, 1, 0.995633185f, 0.990825653f, 0.985507309f, 0.979591846f, 0.972972989f, 0.965517223f, 0.957055211f,
            0.947368383f, 0.93617022f, 0.923076928f, 0.907562971f, 0.888888896f, 0.865979373f, 0.837209284f, 0.800000012f, 0.75f,
            0.679245293f, 0.571428597f, 0.387096792f, 0);
    // table[0], the least sigma that there is.
    s = make(VX_SCHEDULE_SIMPLE, 1001);
    IS_LIST(s.video + 999, 2, 0.0118694361f, 0);
}

static void the_normal_list_shifts_twice(void **state)
{
    (void)state;
    vx_sigmas s = make(VX_SCHEDULE_NORMAL, 13);
    IS_LIST(s.video, s.count, 1, 0.991842508f, 0.982076585f, 0.97017473f, 0.955350041f, 0.936375141f, 0.91122365f, 0.8762936f,
            0.824505925f, 0.739775956f, 0.576012254f, 0.125984251f, 0);
    s = make(VX_SCHEDULE_NORMAL, 2);
    IS_LIST(s.video, s.count, 1, 0);
}

// With another shift the table is that shift's: 6*u/(1+5*u) at u = 0.75, 0.5, 0.25.
static void the_table_follows_the_shift(void **state)
{
    (void)state;
    vx_sigmas s;
    assert_ok(vx_sigmas_make(&s, VX_SCHEDULE_SIMPLE, 5, 6, 3));
    IS_LIST(s.video, s.count, 1, 0.947368443f, 0.857142866f, 0.666666687f, 0);
    // By way of 6.3 the audio list has the official values up to rounding.
    static const float audio[] = { 1, 0.9f, 0.75f, 0.5f, 0 };
    for (int i = 0; i < 5; i++) assert_true(fabsf(s.audio[i] - audio[i]) < 3e-7f);
    assert_ok(vx_sigmas_make(&s, VX_SCHEDULE_SIMPLE, 5, 1, 1));
    IS_LIST(s.video, s.count, 1, 0.75f, 0.5f, 0.25f, 0);
}

static void explicit_lists_are_taken_verbatim(void **state)
{
    (void)state;
    // FastH3's rungs (6.8): video with shift 10, audio with shift 3 of the same clock.
    static const float video[] = { 0.999899864f, 0.985788345f, 0.967575252f,
                                   0.943168104f, 0.909090936f, 0.857142866f,
                                   0.769230783f, 0.588235319f, 0 };
    static const float audio[] = { 0.999666393f, 0.954148412f, 0.899519563f,
                                   0.832740128f, 0.75f,        0.642857134f,
                                   0.5f,         0.300000012f, 0 };
    vx_sigmas s;
    assert_ok(vx_sigmas_explicit(&s, video, COUNT(video), 10, 3));
    assert_int_equal(s.count, COUNT(video));
    assert_memory_equal(s.video, video, sizeof video);
    for (int i = 0; i < s.count; i++) assert_true(fabsf(s.audio[i] - audio[i]) < 2e-6f);
}

static void wrong_lists_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        int count;
        float list[4];
    } cases[] = {
        { "one value", 1, { 0 } },
        { "does not fall", 3, { 1, 1, 0 } },
        { "rises", 4, { 1, 0.5f, 0.6f, 0 } },
        { "above one", 2, { 1.5f, 0 } },
        { "does not end in 0", 2, { 1, 0.5f } },
        { "goes below 0", 3, { 1, 0, -1 } },
        { "NaN first", 3, { NAN, 0.5f, 0 } },
        { "NaN inside", 3, { 1, NAN, 0 } },
        { "only 0", 2, { 0, 0 } },
    };
    vx_sigmas s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_status st = vx_sigmas_explicit(&s, cases[i].list, cases[i].count, 12, 3);
        if (st.code != VX_ERR_VALUE) fail_msg("%s: VX-%d %s", cases[i].says, (int)st.code, st.message);
    }
    assert_code(vx_sigmas_make(&s, VX_SCHEDULE_OFFICIAL, 1, 12, 3), VX_ERR_RANGE);
    assert_code(vx_sigmas_make(&s, VX_SCHEDULE_BETA, VX_MAX_SIGMAS + 1, 12, 3), VX_ERR_RANGE);
    assert_code(vx_sigmas_make(&s, VX_SCHEDULE_BETA, 5, 0, 3), VX_ERR_RANGE);
    assert_code(vx_sigmas_make(&s, VX_SCHEDULE_BETA, 5, 12, INFINITY), VX_ERR_RANGE);
    assert_code(vx_sigmas_make(&s, VX_SCHEDULE_EXPLICIT, 5, 12, 3), VX_ERR_VALUE);
}

// scipy.stats.beta.ppf(u, 0.6, 0.6), from the specification.
static void the_inverse_beta_function_is_accurate(void **state)
{
    (void)state;
    static const double want[] = { 0.97071121, 0.90851320, 0.82431962, 0.72458671, 0.61477937, 0.5,
                                   0.38522063, 0.27541329, 0.17568038, 0.09148680, 0.02928879 };
    for (int i = 0; i < 11; i++) assert_true(fabs(vx_beta_ppf((11 - i) / 12.0, 0.6, 0.6) - want[i]) < 6e-9);
    assert_true(vx_beta_ppf(0.5, 0.6, 0.6) == 0.5);
    assert_true(vx_beta_ppf(0, 0.6, 0.6) == 0 && vx_beta_ppf(1, 0.6, 0.6) == 1);
    // Closed forms: I_x(1,1) = x; I_x(2,1) = x^2; I_x(1/2,1/2) = 2/pi asin(sqrt x); I_x(1,3) = 1-(1-x)^3.
    for (int i = 1; i < 200; i++) {
        const double u = i / 200.0, s = sin(u * acos(-1.0) / 2);
        assert_true(fabs(vx_beta_ppf(u, 1, 1) - u) < 1e-14);
        assert_true(fabs(vx_beta_ppf(u, 2, 1) - sqrt(u)) < 1e-14);
        assert_true(fabs(vx_beta_ppf(u, 0.5, 0.5) - s * s) < 1e-13);
        assert_true(fabs(vx_beta_ppf(u, 1, 3) - (1 - cbrt(1 - u))) < 1e-13);
    }
    assert_true(fabs(vx_beta_ppf(1e-9, 2, 1) - sqrt(1e-9)) < 1e-18);
}

// ---- the reference's lists ----

static void same_bits(const char *name, const float *list, int count, const golden_file *f)
{
    int wanted;
    const float *want = golden_f32(f, name, &wanted);
    if (count != wanted) fail_msg("%s has %d values, %d made", name, wanted, count);
    for (int k = 0; k < count; k++)
        if (list[k] != want[k]) fail_msg("%s[%d] is %.9g, the reference's %.9g", name, k, (double)list[k], (double)want[k]);
}

static void the_reference_scheduler_makes_the_same_grids(void **state)
{
    (void)state;
    golden_file f;
    if (!golden_open(&f, "schedules")) return;
    static const int points[] = { 2, 3, 5, 9, 13, 21, 31, 50 }, shifts[] = { 3, 6, 10, 12 };
    for (int i = 0; i < COUNT(points); i++)
        for (int j = 0; j < COUNT(shifts); j++) {
            char name[64];
            snprintf(name, sizeof name, "n%d.shift%d.sigmas", points[i], shifts[j]);
            vx_sigmas s;
            assert_ok(vx_sigmas_make(&s, VX_SCHEDULE_OFFICIAL, points[i], (float)shifts[j], (float)shifts[j]));
            same_bits(name, s.video, s.count, &f);
            same_bits(name, s.audio, s.count, &f);
        }
    golden_close(&f);
}

static void the_comfyui_lists_are_the_same(void **state)
{
    (void)state;
    golden_file f;
    if (!golden_open(&f, "comfy.float32")) return;
    vx_sigmas s = make(VX_SCHEDULE_BETA, 5);
    same_bits("beta.sigmas", s.video, s.count, &f);
    same_bits("beta.audio_sigmas", s.audio, s.count, &f);
    s = make(VX_SCHEDULE_SIMPLE, 5);
    same_bits("simple.sigmas", s.video, s.count, &f);
    same_bits("simple.audio_sigmas", s.audio, s.count, &f);
    golden_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_official_grid_has_the_reference_values),
        cmocka_unit_test(four_hundred_grids_are_equal_in_every_bit),
        cmocka_unit_test(lists_that_lose_unlike_many_points_are_refused),
        cmocka_unit_test(the_beta_list_is_canonical),
        cmocka_unit_test(the_simple_list_has_the_reference_values),
        cmocka_unit_test(the_normal_list_shifts_twice),
        cmocka_unit_test(the_table_follows_the_shift),
        cmocka_unit_test(explicit_lists_are_taken_verbatim),
        cmocka_unit_test(wrong_lists_are_refused),
        cmocka_unit_test(the_inverse_beta_function_is_accurate),
        cmocka_unit_test(the_reference_scheduler_makes_the_same_grids),
        cmocka_unit_test(the_comfyui_lists_are_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
