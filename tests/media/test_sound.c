#include "testing.h"

#include <inttypes.h>
#include <math.h>

#include "base/alloc.h"
#include "media/sound.h"

// Samples that torchaudio 2.11.1 made of a saw of f32 fractions (tools/make_resize_vectors.py).
static void meets_torchaudio(void **state)
{
    (void)state;
    FILE *f = fopen(VX_TEST_DATA "/media/resample.txt", "r");
    assert_non_null(f);
    int64_t from, to, samples, count;
    int picks, rates = 0;
    double worst = 0;
    while (fscanf(f, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %d", &from, &to, &samples, &count, &picks) == 5) {
        float *in = vx_alloc_array((size_t)samples, sizeof *in), *out = vx_alloc_array((size_t)count, sizeof *out);
        for (int64_t i = 0; i < samples; i++) in[i] = (float)(i * 7919 % 2003 - 1001) / 1001.0f;
        assert_int_equal(vx_resampled_count(samples, from, to), count);
        assert_ok(vx_resample(out, in, samples, from, to));
        for (int p = 0; p < picks; p++) {
            int64_t at;
            float want;
            assert_int_equal(fscanf(f, "%" SCNd64 " %f", &at, &want), 2);
            worst = fmax(worst, fabs((double)out[at] - (double)want));
            if (fabsf(out[at] - want) > 2e-6f)
                fail_msg("%" PRId64 " -> %" PRId64 " Hz, sample %" PRId64 ": %.9g, wanted %.9g", from, to, at, (double)out[at],
                         (double)want);
        }
        vx_free(in);
        vx_free(out);
        rates++;
    }
    fclose(f);
    print_message("%d rates, largest difference %.1e\n", rates, worst);
    assert_int_equal(rates, 15);
}

// Specification B8.
static void meets_the_signal_check(void **state)
{
    (void)state;
    static const struct {
        int64_t from, count;
        float want[8];
    } cases[] = {
        { 48000, 7, { 0.0928292647f, 0.2538350821f, 0.3942885399f, 0.5619193316f, 0.6756945848f, 0.9019721746f, 0.8204032779f } },
        { 44100,
          8,
          { 0.0938717797f, 0.2408223450f, 0.3758103251f, 0.5063034892f, 0.6718673110f, 0.7424456477f, 1.0375206470f,
            0.3948267102f } },
    };
    for (int c = 0; c < 2; c++) {
        float in[10], out[8];
        for (int i = 0; i < 10; i++) in[i] = (float)(i + 1) / 10.0f;
        assert_int_equal(vx_resampled_count(10, cases[c].from, 32000), cases[c].count);
        assert_ok(vx_resample(out, in, 10, cases[c].from, 32000));
        for (int i = 0; i < cases[c].count; i++) assert_float_equal(out[i], cases[c].want[i], 2e-6);
    }
}

// An impulse at a multiple of the block shows phase 0's weights (specification B8, "kernel check values").
static void shows_the_kernel(void **state)
{
    (void)state;
    static const float want[10] = { 0.660000026f,   0.270691812f,    -0.118959866f,  -0.00502682896f, 0.0427480116f,
                                    -0.0217233393f, -0.00172294478f, 0.00528259948f, -0.00107644743f, -1.635e-06f };
    for (int offset = -9; offset <= 9; offset++) {
        float in[90] = { 0 }, out[60];
        in[30 + offset] = 1;
        assert_ok(vx_resample(out, in, 90, 48000, 32000));
        assert_float_equal(out[20], want[abs(offset)], 1e-8);
    }
}

// torch.ceil of a float32 quotient: torchaudio's lengths.
static void counts_as_torchaudio(void **state)
{
    (void)state;
    static const struct {
        int64_t samples, from, to, want;
    } cases[] = {
        { 370050, 44100, 32000, 268517 }, { 370049, 44100, 32000, 268517 }, { 661500, 44100, 32000, 480000 },
        { 441000, 44100, 32000, 320000 }, { 100001, 44100, 32000, 72564 },  { 10, 48000, 32000, 7 },
        { 1, 44100, 32000, 1 },           { 0, 44100, 32000, 0 },           { 12345, 32000, 32000, 12345 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(vx_resampled_count(cases[i].samples, cases[i].from, cases[i].to), cases[i].want);
}

// P33: whatever the rate, 440 Hz stay 440 Hz. A second of it crosses zero 880 times.
static void keeps_the_pitch(void **state)
{
    (void)state;
    static const int64_t rates[] = { 8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000, 88200, 96000, 192000 };
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        int64_t count = vx_resampled_count(rates[i], rates[i], 32000);
        float *in = vx_alloc_array((size_t)rates[i], sizeof *in), *out = vx_alloc_array((size_t)count, sizeof *out);
        for (int64_t k = 0; k < rates[i]; k++)
            in[k] = (float)sin(2 * 3.14159265358979 * 440 * ((double)k + 0.3) / (double)rates[i]);
        assert_ok(vx_resample(out, in, rates[i], rates[i], 32000));
        assert_int_equal(count, 32000);
        int crossings = 0;
        for (int64_t k = 1; k < count; k++) crossings += (out[k - 1] < 0) != (out[k] < 0);
        assert_in_range(crossings, 879, 880);
        vx_free(in);
        vx_free(out);
    }
}

static void refuses_rates_out_of_range(void **state)
{
    (void)state;
    float x = 0;
    assert_code(vx_resample(&x, &x, 1, 999, 32000), VX_ERR_RANGE);
    assert_code(vx_resample(&x, &x, 1, 32000, 384001), VX_ERR_RANGE);
    assert_ok(vx_resample(&x, &x, 0, 44100, 32000));
}

static void fails_cleanly_without_memory(void **state)
{
    (void)state;
    float in[100] = { 0 }, out[100];
    for (int k = 1, hit = 1; hit; k++) {
        vx_fault_arm(k, false);
        vx_status s = vx_resample(out, in, 100, 44100, 32000);
        hit = vx_fault_disarm();
        assert_int_equal(s.code, hit ? VX_ERR_MEMORY : VX_OK);
    }
}

// floor(i*24/fps + 1/2): by hand.
static void puts_frames_on_the_grid(void **state)
{
    (void)state;
    static const struct {
        int64_t num, den;
        int64_t want[9];
    } cases[] = {
        { 24, 1, { 0, 1, 2, 3, 4, 5, 6, 7, 8 } },       { 30, 1, { 0, 1, 2, 2, 3, 4, 5, 6, 6 } },
        { 12, 1, { 0, 2, 4, 6, 8, 10, 12, 14, 16 } },   { 48, 1, { 0, 1, 1, 2, 2, 3, 3, 4, 4 } },
        { 10, 1, { 0, 2, 5, 7, 10, 12, 14, 17, 19 } },  { 24000, 1001, { 0, 1, 2, 3, 4, 5, 6, 7, 8 } },
        { 30000, 1001, { 0, 1, 2, 2, 3, 4, 5, 6, 6 } }, { 60, 1, { 0, 0, 1, 1, 2, 2, 2, 3, 3 } },
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (int64_t i = 0; i < 9; i++) assert_int_equal(vx_frame_slot(i, cases[c].num, cases[c].den), cases[c].want[i]);
    assert_int_equal(vx_frame_slot(499, 24000, 1001), 499); // the half frame that NTSC film gains comes at 500
    assert_int_equal(vx_frame_slot(500, 24000, 1001), 501);
    assert_true(vx_frame_slot(INT64_MAX / 4, 1, 1001) == INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meets_torchaudio),
        cmocka_unit_test(meets_the_signal_check),
        cmocka_unit_test(shows_the_kernel),
        cmocka_unit_test(counts_as_torchaudio),
        cmocka_unit_test(keeps_the_pitch),
        cmocka_unit_test(refuses_rates_out_of_range),
        cmocka_unit_test(fails_cleanly_without_memory),
        cmocka_unit_test(puts_frames_on_the_grid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
