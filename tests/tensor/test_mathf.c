// exp, sine, cosine, tanh and erf against the C library in f64, over a stride of all f32 (the exhaustive figures are in docs/numerics.md).
#include "testing.h"

#include "tensor/mathf.h"
#include "tensor/mathf_inline.h"
#include <math.h>

// Distance in units in the last place of the f32 that holds `want`.
static double ulps(float got, double want)
{
    int exponent;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1, exponent < -125 ? -149 : exponent - 24);
}

static void exp_is_right_to_one_ulp(void **state)
{
    (void)state;
    double worst = 0;
    float at = 0;
    for (uint64_t u = 0; u < UINT64_C(1) << 32; u += 509) { // a prime: every exponent, unrelated mantissas
        const float x = vx_f32_from_bits((uint32_t)u);
        if (!(x >= VX_EXP_MIN && x <= VX_EXP_MAX)) continue;
        const double error = ulps(vx_expf(x), exp((double)x));
        if (error > worst) worst = error, at = x;
    }
    print_message("exp: at most %.4f ulp, at %a\n", worst, (double)at);
    assert_true(worst <= 0.91);                                             // 0.9057 is the maximum over all f32
    assert_true(ulps(vx_expf(0x1.20601ap+2f), exp(0x1.20601ap+2)) <= 0.91); // where it is
}

static void exp_has_exact_ends(void **state)
{
    (void)state;
    static const struct {
        float x, want;
    } cases[] = {
        { 0.0f, 1.0f },      { -0.0f, 1.0f },     { 0x1p-149f, 1.0f }, { INFINITY, INFINITY }, { -INFINITY, 0.0f },
        { 89.0f, INFINITY }, { 3e38f, INFINITY }, { -104.0f, 0.0f },   { -3e38f, 0.0f },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(vx_f32_bits(vx_expf(cases[i].x)), vx_f32_bits(cases[i].want));
    assert_true(isnan(vx_expf(NAN)) && isnan(vx_expf(-NAN)));
    // The limits are the f32 next to ln(2^128 - 2^103) and ln(2^-126).
    assert_true(isfinite(vx_expf(VX_EXP_MAX)) && isinf(vx_expf(nextafterf(VX_EXP_MAX, INFINITY))));
    assert_true(exp((double)VX_EXP_MAX) < 0x1.ffffffp127 && exp((double)nextafterf(VX_EXP_MAX, INFINITY)) >= 0x1.ffffffp127);
    assert_true(vx_expf(VX_EXP_MIN) >= 0x1p-126f);
    assert_int_equal(vx_f32_bits(vx_expf(nextafterf(VX_EXP_MIN, -INFINITY))), 0);
    assert_true(exp((double)VX_EXP_MIN) >= 0x1p-126 && exp((double)nextafterf(VX_EXP_MIN, -INFINITY)) < 0x1p-126);
}

static void silu_of_every_bf16_has_the_published_hash(void **state)
{
    (void)state;
    uint32_t hash = 2166136261u, inputs = 0; // acceleration specification 2.6
    for (uint32_t b = 0; b < 65536; b++) {
        const float g = vx_bf16_to_f32((uint16_t)b);
        if (!isfinite(g)) continue;
        const uint16_t s = vx_f32_to_bf16(g / (1.0f + vx_expf(-g)));
        hash = (hash ^ (s & 0xffu)) * 16777619u;
        hash = (hash ^ (s >> 8)) * 16777619u;
        inputs++;
    }
    assert_int_equal(inputs, 65280);
    assert_int_equal(hash, 0xae5f97a0u);
}

static void sine_and_cosine_are_near_the_last_bit(void **state)
{
    (void)state;
    double worst = 0, worst_ulps = 0;
    float at = 0;
    for (uint32_t u = 0; u < 0x7f800000u; u += 1021) {
        const float x = vx_f32_from_bits(u);
        const float got[2] = { vx_sinf(x), vx_cosf(x) };
        const double want[2] = { sin((double)x), cos((double)x) };
        for (int i = 0; i < 2; i++) {
            const double error = fabs((double)got[i] - want[i]), relative = ulps(got[i], want[i]);
            if (error > worst) worst = error, at = x;
            if (relative > worst_ulps) worst_ulps = relative;
        }
        if (vx_sinf(-x) != -got[0] || vx_cosf(-x) != got[1]) fail_msg("no symmetry at %a", (double)x);
    }
    print_message("sin, cos: at most %.3f 2^-24 (at %a) and %.3f ulp\n", worst * 0x1p24, (double)at, worst_ulps);
    assert_true(worst <= 0x1p-23);
    assert_true(worst_ulps <= 1.6); // no loss near the zeros either
}

// f32 near multiples of pi/2 (numerators of convergents of pi, and 16367173 * 2^72, the nearest of all with 1.6e-9), which need
// most bits of the reduction, and both sides of its border.
static void sine_survives_the_worst_cancellation(void **state)
{
    (void)state;
    static const float hard[] = {
        0x1.921fb6p0f, 0x1.921fb6p1f, 355.0f,       710.0f,     103993.0f,  104348.0f,      208341.0f,
        312689.0f,     833719.0f,     1146408.0f,   4272943.0f, 5419351.0f, 0x1.6ac5b2p62f, 16367173.0f * 0x1p72f,
        48000.0f,      48000.004f,    3.4028235e38f
    };
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++)
        for (int half = 0; half < 2; half++) {
            const float x = half ? hard[i] * 0.5f : hard[i];
            if (ulps(vx_sinf(x), sin((double)x)) > 1.6)
                fail_msg("sin %a: %a, expected %a", (double)x, (double)vx_sinf(x), sin((double)x));
            if (ulps(vx_cosf(x), cos((double)x)) > 1.6)
                fail_msg("cos %a: %a, expected %a", (double)x, (double)vx_cosf(x), cos((double)x));
        }
}

static void sine_has_exact_ends(void **state)
{
    (void)state;
    assert_int_equal(vx_f32_bits(vx_sinf(0.0f)), 0);
    assert_int_equal(vx_f32_bits(vx_sinf(-0.0f)), 0x80000000u);
    assert_int_equal(vx_f32_bits(vx_sinf(-0x1p-149f)), 0x80000001u);
    assert_float_equal(vx_cosf(0.0f), 1.0f, 0);
    static const float none[] = { INFINITY, -INFINITY, NAN };
    for (int i = 0; i < 3; i++) assert_true(isnan(vx_sinf(none[i])) && isnan(vx_cosf(none[i])));
}

static void tanh_and_erf_are_right_to_two_ulps(void **state)
{
    (void)state;
    double worst[2] = { 0 };
    for (uint32_t u = 0; u < 0x7f800000u; u += 1021) {
        const float x = vx_f32_from_bits(u), got[2] = { vx_tanhf(x), vx_erff(x) };
        const double want[2] = { tanh((double)x), erf((double)x) };
        for (int i = 0; i < 2; i++) worst[i] = fmax(worst[i], ulps(got[i], want[i]));
        if (vx_tanhf(-x) != -got[0] || vx_erff(-x) != -got[1]) fail_msg("no symmetry at %a", (double)x);
        if (!(got[0] <= 1 && got[1] <= 1)) fail_msg("above 1 at %a", (double)x);
    }
    print_message("tanh, erf: at most %.3f and %.3f ulp\n", worst[0], worst[1]);
    assert_true(worst[0] <= 1.33 && worst[1] <= 1.48);                       // 1.3244 and 1.4717 over all f32 from 2^-25 to 20
    assert_true(ulps(vx_tanhf(0x1.411556p-1f), tanh(0x1.411556p-1)) > 1.32); // where they are
    assert_true(ulps(vx_erff(0x1.bdf94ap-1f), erf(0x1.bdf94ap-1)) > 1.47);
}

static void tanh_and_erf_have_exact_ends(void **state)
{
    (void)state;
    float (*const functions[])(float) = { vx_tanhf, vx_erff };
    for (int i = 0; i < 2; i++) {
        float (*const f)(float) = functions[i];
        assert_int_equal(vx_f32_bits(f(0.0f)), 0);
        assert_int_equal(vx_f32_bits(f(-0.0f)), 0x80000000u);
        assert_true(f(INFINITY) == 1 && f(-INFINITY) == -1 && f(3e38f) == 1 && f(20.0f) == 1);
        assert_true(isnan(f(NAN)) && isnan(f(-NAN)));
    }
}

static void the_inline_forms_give_the_same_bits(void **state)
{
    (void)state;
    for (uint32_t u = 0; u <= 0x473b8000u; u += 65521) { // up to VX_SIN_LIMIT
        const float x = vx_f32_from_bits(u);
        for (int sign = 0; sign < 2; sign++) {
            const float y = sign ? -x : x;
            assert_int_equal(vx_f32_bits(vx_sinf_small_inline(y)), vx_f32_bits(vx_sinf(y)));
            assert_int_equal(vx_f32_bits(vx_cosf_small_inline(y)), vx_f32_bits(vx_cosf(y)));
        }
    }
    assert_float_equal(vx_f32_from_bits(0x473b8000u), VX_SIN_LIMIT, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_right_to_one_ulp),
        cmocka_unit_test(exp_has_exact_ends),
        cmocka_unit_test(silu_of_every_bf16_has_the_published_hash),
        cmocka_unit_test(sine_and_cosine_are_near_the_last_bit),
        cmocka_unit_test(sine_survives_the_worst_cancellation),
        cmocka_unit_test(sine_has_exact_ends),
        cmocka_unit_test(tanh_and_erf_are_right_to_two_ulps),
        cmocka_unit_test(tanh_and_erf_have_exact_ends),
        cmocka_unit_test(the_inline_forms_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
