// The scalar entries, and the range reduction of large angles.
#include "tensor/mathf.h"

#include "tensor/mathf_inline.h"

float vx_expf(float x)
{
    return vx_expf_inline(x);
}

float vx_tanhf(float x)
{
    return vx_tanhf_inline(x);
}

float vx_erff(float x)
{
    return vx_erff_inline(x);
}

// The bits of 2/pi after 32 zeros, most significant first.
static const uint32_t two_over_pi[8] = { 0,           0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
                                         0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu };

static uint32_t word_at(int bit)
{
    const uint64_t two = (uint64_t)two_over_pi[bit / 32] << 32 | two_over_pi[bit / 32 + 1];
    return (uint32_t)(two >> (32 - bit % 32));
}

// Payne and Hanek's reduction for finite a > VX_SIN_LIMIT. a = m 2^e with a 24-bit m, -8 <= e <= 104. Bits of 2/pi whose
// product with a is a multiple of 4 are left out; of the rest 96 are used, from the one that weighs 2^(1-e). The product
// m * window modulo 2^96 then has the quadrant in its top two bits and 62 bits of fraction in the next, wrong by at most 2
// units; no f32 comes nearer to a multiple of pi/2 than about 2^-30, which leaves 30 good bits.
static float reduce_large(float a, uint32_t *quadrant)
{
    const uint32_t bits = vx_f32_bits(a);
    const int e = (int)(bits >> 23) - 150;
    const uint64_t m = (bits & 0x7fffffu) | 0x800000u;
    const int first = 32 + e - 2;
    const uint64_t turns = ((m * word_at(first)) << 32) + m * word_at(first + 32) + ((m * word_at(first + 64)) >> 32);
    const uint64_t nearest = turns + (UINT64_C(1) << 61);
    *quadrant = (uint32_t)(nearest >> 62);
    // What is left of the nearest quadrant, as a signed fraction: nearest's low 62 bits minus a half.
    const int64_t rest = (int64_t)(nearest & ((UINT64_C(1) << 62) - 1)) - (INT64_C(1) << 61);
    return (float)((double)rest * (0x1.921fb54442d18p0 * 0x1p-62));
}

static float sine(float x, uint32_t turned, uint32_t sign)
{
    const float a = vx_f32_from_bits(vx_f32_bits(x) & 0x7fffffffu);
    if (!(a < INFINITY)) return NAN;
    uint32_t quadrant;
    const float r = a <= VX_SIN_LIMIT ? vx_sin_reduce_inline(a, &quadrant) : reduce_large(a, &quadrant);
    return vx_sin_turn_inline(r, quadrant + turned, sign);
}

float vx_sinf(float x)
{
    return sine(x, 0u, vx_f32_bits(x) & 0x80000000u);
}

float vx_cosf(float x)
{
    return sine(x, 1u, 0u);
}
