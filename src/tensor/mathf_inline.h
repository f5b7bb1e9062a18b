// The algorithms of mathf.h as straight lines, for inlining and as the text that a vector version follows line by line:
// every statement is one IEEE f32 operation or one operation on the bits, every choice is a blend (x ? a : b on values that
// are both computed), nothing is looked up (but by the range reduction of large angles). Operands of a fma must keep their
// places; nothing else may be contracted. nvcc compiles this page for the device with -fmad=false: the same bits.
// The constants are printed by tools/fit_mathf.py.
#ifndef VX_TENSOR_MATHF_INLINE_H
#define VX_TENSOR_MATHF_INLINE_H

#include "tensor/dtype.h"
#include <math.h>
#include <stdint.h>

// Adding 1.5 * 2^23 rounds to an integer, to nearest even, and leaves it in the low bits of the sum.
#define VX_MATHF_MAGIC      0x1.8p23f
#define VX_MATHF_MAGIC_BITS 0x4b400000u

// e^x = 2^n (1 + r + r^2 q(r)), n = round(x / ln 2), |r| <= ln 2 / 2; q is minimax for the relative error of the whole.
#define VX_EXP_LOG2E  0x1.715476p0f
#define VX_EXP_LN2_HI 0x1.62e43p-1f
#define VX_EXP_LN2_LO -0x1.05c61p-29f
#define VX_EXP_Q0     0x1.0p-1f
#define VX_EXP_Q1     0x1.555466p-3f
#define VX_EXP_Q2     0x1.5552fep-5f
#define VX_EXP_Q3     0x1.1257d2p-7f
#define VX_EXP_Q4     0x1.6ff254p-10f
#define VX_EXP_MIN    -0x1.5d589ep6f // the least x with e^x >= 2^-126
#define VX_EXP_MAX    0x1.62e42ep6f  // the greatest x with a finite result

static inline VX_BOTH float vx_expf_inline(float x)
{
    float y = x < VX_EXP_MIN ? VX_EXP_MIN : x; // NaN passes both
    y = y > VX_EXP_MAX ? VX_EXP_MAX : y;
    const float t = fmaf(y, VX_EXP_LOG2E, VX_MATHF_MAGIC);
    const float n = t - VX_MATHF_MAGIC;
    const float high = fmaf(n, -VX_EXP_LN2_HI, y); // exact
    const float r = fmaf(n, -VX_EXP_LN2_LO, high);
    float q = VX_EXP_Q4;
    q = fmaf(q, r, VX_EXP_Q3);
    q = fmaf(q, r, VX_EXP_Q2);
    q = fmaf(q, r, VX_EXP_Q1);
    q = fmaf(q, r, VX_EXP_Q0);
    const float r2 = r * r;
    // r + r^2 q from the exact part of r: its rounding error would cost a quarter ulp, and the promise of one ulp.
    const float low = fmaf(n, -VX_EXP_LN2_LO, r2 * q);
    const float p = 1.0f + (high + low);
    const uint32_t scale = (vx_f32_bits(t) - VX_MATHF_MAGIC_BITS) << 23; // n into the exponent, modulo 2^32
    float result = vx_f32_from_bits(vx_f32_bits(p) + scale);
    result = x < VX_EXP_MIN ? 0.0f : result;
    result = x > VX_EXP_MAX ? INFINITY : result;
    return x != x ? x : result;
}

// tanh a = a + a^3 P(a^2) up to VX_TANH_SMALL, 1 - 2 / (1 + e^2a) above; P is minimax for the relative error. The sign goes back
// at the end.
#define VX_TANH_SMALL 0.625f
#define VX_TANH_P0    -0x1.555532p-2f
#define VX_TANH_P1    0x1.1106f6p-3f
#define VX_TANH_P2    -0x1.b835a4p-5f
#define VX_TANH_P3    0x1.51f8cep-6f
#define VX_TANH_P4    -0x1.750ce4p-8f

static inline VX_BOTH float vx_tanhf_inline(float x)
{
    const uint32_t sign = vx_f32_bits(x) & 0x80000000u;
    const float a = vx_f32_from_bits(vx_f32_bits(x) ^ sign);
    const float z = a * a;
    float p = VX_TANH_P4;
    p = fmaf(p, z, VX_TANH_P3);
    p = fmaf(p, z, VX_TANH_P2);
    p = fmaf(p, z, VX_TANH_P1);
    p = fmaf(p, z, VX_TANH_P0);
    const float az = a * z;
    const float small = fmaf(az, p, a);
    const float e = vx_expf_inline(a + a); // infinity is fine: 1 - 0
    const float large = 1.0f - 2.0f / (1.0f + e);
    const float value = VX_TANH_SMALL < a ? large : small; // NaN takes the polynomial
    return vx_f32_from_bits(vx_f32_bits(value) ^ sign);
}

// erf a = a + a P(a^2) up to VX_ERF_SMALL, 1 - e^G(a) above with G near log(1 - erf); from VX_ERF_MAX on it is 1.
#define VX_ERF_SMALL 0.875f
#define VX_ERF_MAX   4.0f
#define VX_ERF_P0    0x1.06eba8p-3f
#define VX_ERF_P1    -0x1.812744p-2f
#define VX_ERF_P2    0x1.ce2d5cp-4f
#define VX_ERF_P3    -0x1.b7ff9p-6f
#define VX_ERF_P4    0x1.543188p-8f
#define VX_ERF_P5    -0x1.a4d088p-11f
#define VX_ERF_P6    0x1.49fd94p-14f
#define VX_ERF_G0    -0x1.18215ap-13f
#define VX_ERF_G1    -0x1.20c06cp0f
#define VX_ERF_G2    -0x1.46026cp-1f
#define VX_ERF_G3    -0x1.ab5352p-4f
#define VX_ERF_G4    0x1.6f5532p-6f
#define VX_ERF_G5    -0x1.954ffcp-9f
#define VX_ERF_G6    0x1.a58484p-13f

static inline VX_BOTH float vx_erff_inline(float x)
{
    const uint32_t sign = vx_f32_bits(x) & 0x80000000u;
    float a = vx_f32_from_bits(vx_f32_bits(x) ^ sign);
    a = a > VX_ERF_MAX ? VX_ERF_MAX : a; // NaN passes
    const float z = a * a;
    float p = VX_ERF_P6;
    p = fmaf(p, z, VX_ERF_P5);
    p = fmaf(p, z, VX_ERF_P4);
    p = fmaf(p, z, VX_ERF_P3);
    p = fmaf(p, z, VX_ERF_P2);
    p = fmaf(p, z, VX_ERF_P1);
    p = fmaf(p, z, VX_ERF_P0);
    const float small = fmaf(a, p, a);
    float g = VX_ERF_G6;
    g = fmaf(g, a, VX_ERF_G5);
    g = fmaf(g, a, VX_ERF_G4);
    g = fmaf(g, a, VX_ERF_G3);
    g = fmaf(g, a, VX_ERF_G2);
    g = fmaf(g, a, VX_ERF_G1);
    g = fmaf(g, a, VX_ERF_G0);
    const float large = 1.0f - vx_expf_inline(g);
    const float value = VX_ERF_SMALL < a ? large : small;
    return vx_f32_from_bits(vx_f32_bits(value) ^ sign);
}

// k = round(a * 2/pi); r = a - k pi/2 with pi/2 in three parts of 24 bits, the first product exact; then the polynomials
// sin r = r + r^3 S(r^2) and cos r = 1 - r^2/2 + r^4 C(r^2) for |r| <= pi/4, of which k picks one and a sign.
#define VX_SIN_LIMIT     48000.0f // k < 2^15: k times the first part fits the fma's exact result
#define VX_SIN_2_OVER_PI 0x1.45f306p-1f
#define VX_SIN_PIO2_1    0x1.921fb6p0f
#define VX_SIN_PIO2_2    -0x1.777a5cp-25f
#define VX_SIN_PIO2_3    -0x1.ee59dap-50f
#define VX_SIN_S0        -0x1.555552p-3f
#define VX_SIN_S1        0x1.110aeep-7f
#define VX_SIN_S2        -0x1.9a41d6p-13f
#define VX_SIN_C0        0x1.55554ap-5f
#define VX_SIN_C1        -0x1.6c098ep-10f
#define VX_SIN_C2        0x1.98c33ap-16f

// For 0 <= a <= VX_SIN_LIMIT. *quadrant: its two low bits count.
static inline VX_BOTH float vx_sin_reduce_inline(float a, uint32_t *quadrant)
{
    const float t = fmaf(a, VX_SIN_2_OVER_PI, VX_MATHF_MAGIC);
    const float k = t - VX_MATHF_MAGIC;
    float r = fmaf(k, -VX_SIN_PIO2_1, a);
    r = fmaf(k, -VX_SIN_PIO2_2, r);
    r = fmaf(k, -VX_SIN_PIO2_3, r);
    *quadrant = vx_f32_bits(t);
    return r;
}

// sin(r + quadrant pi/2) with its sign bit flipped by `sign` (0 or 0x80000000).
static inline VX_BOTH float vx_sin_turn_inline(float r, uint32_t quadrant, uint32_t sign)
{
    const float z = r * r;
    float s = VX_SIN_S2;
    s = fmaf(s, z, VX_SIN_S1);
    s = fmaf(s, z, VX_SIN_S0);
    const float rz = r * z;
    s = fmaf(rz, s, r);
    float c = VX_SIN_C2;
    c = fmaf(c, z, VX_SIN_C1);
    c = fmaf(c, z, VX_SIN_C0);
    const float h = fmaf(z, -0.5f, 1.0f);
    const float zz = z * z;
    c = fmaf(zz, c, h);
    const float value = (quadrant & 1u) ? c : s;
    return vx_f32_from_bits(vx_f32_bits(value) ^ ((quadrant & 2u) << 30) ^ sign);
}

// For |x| <= VX_SIN_LIMIT only. The sine works on |x| and puts the sign back, so that -0 stays -0.
static inline VX_BOTH float vx_sinf_small_inline(float x)
{
    uint32_t quadrant;
    const float r = vx_sin_reduce_inline(vx_f32_from_bits(vx_f32_bits(x) & 0x7fffffffu), &quadrant);
    return vx_sin_turn_inline(r, quadrant, vx_f32_bits(x) & 0x80000000u);
}

static inline VX_BOTH float vx_cosf_small_inline(float x)
{
    uint32_t quadrant;
    const float r = vx_sin_reduce_inline(vx_f32_from_bits(vx_f32_bits(x) & 0x7fffffffu), &quadrant);
    return vx_sin_turn_inline(r, quadrant + 1u, 0u);
}

// The 32 bits of 2/pi, after 32 zeros, from `bit` on, most significant first.
static inline VX_BOTH uint32_t vx_two_over_pi_inline(int bit)
{
    const uint32_t words[8] = { 0, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu };
    const uint64_t two = (uint64_t)words[bit / 32] << 32 | words[bit / 32 + 1];
    return (uint32_t)(two >> (32 - bit % 32));
}

// Payne and Hanek's reduction for finite a > VX_SIN_LIMIT. a = m 2^e with a 24-bit m, -8 <= e <= 104. Bits of 2/pi whose
// product with a is a multiple of 4 are left out; of the rest 96 are used, from the one that weighs 2^(1-e). The product
// m * window modulo 2^96 then has the quadrant in its top two bits and 62 bits of fraction in the next, wrong by at most 2
// units; no f32 comes nearer to a multiple of pi/2 than about 2^-30, which leaves 30 good bits.
static inline VX_BOTH float vx_sin_reduce_large_inline(float a, uint32_t *quadrant)
{
    const uint32_t bits = vx_f32_bits(a);
    const int e = (int)(bits >> 23) - 150;
    const uint64_t m = (bits & 0x7fffffu) | 0x800000u;
    const int first = 32 + e - 2;
    const uint64_t turns = ((m * vx_two_over_pi_inline(first)) << 32) + m * vx_two_over_pi_inline(first + 32) +
                           ((m * vx_two_over_pi_inline(first + 64)) >> 32);
    const uint64_t nearest = turns + ((uint64_t)1 << 61);
    *quadrant = (uint32_t)(nearest >> 62);
    // What is left of the nearest quadrant, as a signed fraction: nearest's low 62 bits minus a half.
    const int64_t rest = (int64_t)(nearest & (((uint64_t)1 << 62) - 1)) - ((int64_t)1 << 61);
    return (float)((double)rest * (0x1.921fb54442d18p0 * 0x1p-62));
}

// sin(|x| + turned pi/2), sign flipped by `sign`, for any x.
static inline VX_BOTH float vx_sine_inline(float x, uint32_t turned, uint32_t sign)
{
    const float a = vx_f32_from_bits(vx_f32_bits(x) & 0x7fffffffu);
    if (!(a < INFINITY)) return NAN;
    uint32_t quadrant;
    const float r = a <= VX_SIN_LIMIT ? vx_sin_reduce_inline(a, &quadrant) : vx_sin_reduce_large_inline(a, &quadrant);
    return vx_sin_turn_inline(r, quadrant + turned, sign);
}

static inline VX_BOTH float vx_sinf_inline(float x)
{
    return vx_sine_inline(x, 0u, vx_f32_bits(x) & 0x80000000u);
}

// ---- activations, as operators.h says them ----

static inline VX_BOTH float vx_silu_inline(float g)
{
    return g / (1.0f + vx_expf_inline(-g));
}

// sqrt(1/2), sqrt(2/pi), rounded to f32.
#define VX_SQRT_HALF      0x1.6a09e6p-1f
#define VX_SQRT_2_OVER_PI 0x1.988454p-1f
#define VX_GELU_CUBE      0.044715f

static inline VX_BOTH float vx_gelu_inline(float x, int tanh_form)
{
    const float half = 0.5f * x;
    if (!tanh_form) return half * (1.0f + vx_erff_inline(x * VX_SQRT_HALF));
    const float square = x * x;
    const float cube = square * x;
    const float cubic = VX_GELU_CUBE * cube;
    return half * (1.0f + vx_tanhf_inline(VX_SQRT_2_OVER_PI * (x + cubic)));
}

#endif
