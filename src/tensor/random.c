// Mersenne Twister (Matsumoto and Nishimura 1998) and two ways to normal deviates: blocks of sixteen in f32, and pairs in
// f64 for short draws. The f32 logarithm, sine and cosine are the ones of PyTorch's vector code (Cephes' polynomials with
// the contractions its compiler chose), not mathf.h's: other ones would change about a fifth of the values in the last bit.
#include "tensor/random.h"

#include "tensor/dtype.h"
#include <math.h>
#include <string.h>

enum { WORDS = 624, SHIFT = 397, BLOCK = 16, HALF = BLOCK / 2 };

void vx_random_seed(vx_random *r, uint64_t seed)
{
    r->state[0] = (uint32_t)seed;
    for (uint32_t j = 1; j < WORDS; j++) r->state[j] = 1812433253u * (r->state[j - 1] ^ (r->state[j - 1] >> 30)) + j;
    r->next = WORDS;
    r->has_spare = false;
    r->spare = 0;
}

static uint32_t twist(uint32_t upper, uint32_t lower)
{
    return ((upper & 0x80000000u) | (lower & 0x7fffffffu)) >> 1 ^ ((0u - (lower & 1u)) & 0x9908b0dfu);
}

static void refill(vx_random *r)
{
    uint32_t *s = r->state;
    for (int j = 0; j < WORDS - SHIFT; j++) s[j] = s[j + SHIFT] ^ twist(s[j], s[j + 1]);
    for (int j = WORDS - SHIFT; j < WORDS - 1; j++) s[j] = s[j + SHIFT - WORDS] ^ twist(s[j], s[j + 1]);
    s[WORDS - 1] = s[SHIFT - 1] ^ twist(s[WORDS - 1], s[0]);
    r->next = 0;
}

uint32_t vx_random_u32(vx_random *r)
{
    if (r->next >= WORDS) refill(r);
    uint32_t y = r->state[r->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

// x in (0, 1].
static inline __attribute__((always_inline)) float block_log(float x)
{
    x = x < 0x1p-126f ? 0x1p-126f : x;
    float e = (float)((int32_t)(vx_f32_bits(x) >> 23) - 126);
    const float m = vx_f32_from_bits((vx_f32_bits(x) & 0x807fffffu) | 0x3f000000u);
    const bool low = m < 0.707106781186547524f; // sqrt(1/2)
    e = low ? e - 1.0f : e;
    x = (m - 1.0f) + (low ? m : 0.0f);
    const float z = x * x;
    float y = 7.0376836292e-2f;
    y = fmaf(y, x, -1.1514610310e-1f);
    y = fmaf(y, x, 1.1676998740e-1f);
    y = fmaf(y, x, -1.2420140846e-1f);
    y = fmaf(y, x, 1.4249322787e-1f);
    y = fmaf(y, x, -1.6668057665e-1f);
    y = fmaf(y, x, 2.0000714765e-1f);
    y = fmaf(y, x, -2.4999993993e-1f);
    y = fmaf(y, x, 3.3333331174e-1f);
    y = y * x;
    y = fmaf(y, z, e * -2.12194440e-4f);
    y = fmaf(z, -0.5f, y);
    x = x + y;
    return fmaf(e, 0.693359375f, x);
}

// x in [0, 2 pi).
static inline __attribute__((always_inline)) void block_sincos(float x, float *sine, float *cosine)
{
    const uint32_t j = ((uint32_t)(int32_t)(x * 1.27323954473516f) + 1u) & ~1u; // octant, made even
    const float y = (float)(int32_t)j;
    x = fmaf(y, -0.78515625f, x);
    x = fmaf(y, -2.4187564849853515625e-4f, x);
    x = fmaf(y, -3.77489497744594108e-8f, x);
    const float z = x * x;
    float c = 2.443315711809948e-5f;
    c = fmaf(c, z, -1.388731625493765e-3f);
    c = fmaf(c, z, 4.166664568298827e-2f);
    c = c * z;
    c = fmaf(c, z, -(z * 0.5f));
    c = c + 1.0f;
    float s = -1.9515295891e-4f;
    s = fmaf(s, z, 8.3321608736e-3f);
    s = fmaf(s, z, -1.6666654611e-1f);
    s = s * z;
    s = fmaf(s, x, x);
    const uint32_t s_bits = vx_f32_bits((j & 2u) ? c : s), c_bits = vx_f32_bits((j & 2u) ? s : c);
    *sine = vx_f32_from_bits(s_bits ^ (j & 4u) << 29);
    *cosine = vx_f32_from_bits(c_bits ^ (~(j - 2u) & 4u) << 29);
}

static inline __attribute__((always_inline)) void transform_words(const uint32_t word[BLOCK], float out[BLOCK])
{
    for (int j = 0; j < HALF; j++) {
        const float u1 = 1.0f - (float)(int32_t)(word[j] & 0xffffffu) * 0x1p-24f;
        const float u2 = (float)(int32_t)(word[j + HALF] & 0xffffffu) * 0x1p-24f;
        const float radius = sqrtf(-2.0f * block_log(u1));
        float s, c;
        block_sincos(6.28318548f * u2, &s, &c); // 2 pi in f32
        out[j] = radius * c;
        out[j + HALF] = radius * s;
    }
}

// The same statements compiled twice on x86: without the instruction, every fmaf is a call (same bits, thirty times slower).
#if defined(__x86_64__) && !defined(__FMA__)
__attribute__((target("avx2,fma"))) static void transform_with_fma(const uint32_t word[BLOCK], float out[BLOCK])
{
    transform_words(word, out);
}
static bool have_fma(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
static void transform_with_fma(const uint32_t word[BLOCK], float out[BLOCK])
{
    transform_words(word, out);
}
static bool have_fma(void)
{
    return true;
}
#endif

static void draw_block(vx_random *r, float *out, bool fma)
{
    uint32_t word[BLOCK];
    float value[BLOCK];
    for (int j = 0; j < BLOCK; j++) word[j] = vx_random_u32(r);
    if (fma) transform_with_fma(word, value);
    else transform_words(word, value);
    memcpy(out, value, sizeof value);
}

static double uniform53(vx_random *r)
{
    const uint64_t high = vx_random_u32(r);
    const uint64_t word = high << 32 | vx_random_u32(r);
    return (double)(word & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

static double draw_one(vx_random *r)
{
    if (r->has_spare) {
        r->has_spare = false;
        return r->spare;
    }
    const double u1 = uniform53(r), u2 = uniform53(r);
    const double radius = sqrt(-2.0 * log1p(-u2)), angle = 2.0 * 3.14159265358979323846 * u1;
    r->spare = radius * sin(angle);
    r->has_spare = true;
    return radius * cos(angle);
}

void vx_random_normal(vx_random *r, float *out, int64_t count)
{
    if (count < BLOCK) {
        for (int64_t i = 0; i < count; i++) out[i] = (float)draw_one(r);
        return;
    }
    const bool fma = have_fma();
    const int64_t rest = count % BLOCK;
    for (int64_t i = 0; i + BLOCK <= count; i += BLOCK) draw_block(r, out + i, fma);
    if (rest == 0) return;
    // PyTorch has filled the rest with uniforms by now; it then draws sixteen new ones over the last sixteen places.
    for (int64_t i = 0; i < rest; i++) (void)vx_random_u32(r);
    draw_block(r, out + count - BLOCK, fma);
}
