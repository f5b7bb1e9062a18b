// Decoders of quantised rows for AVX2.
#include "device/cpu/decode.h"

#include <immintrin.h>

#define DECODE       vx_decode_avx2
#define ROTATE_PAIRS 1 // of x[i], x[i + 4] and two more in the next vector
enum { VL = 8 };
typedef float vf __attribute__((vector_size(32)));
typedef uint32_t vu __attribute__((vector_size(32)));
typedef int32_t vi __attribute__((vector_size(32)));
typedef uint16_t vh __attribute__((vector_size(16)));

static inline vi widen_u8(const uint8_t *p)
{
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
}
static inline vi widen_i8(const uint8_t *p)
{
    return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p));
}
static inline vh widen_half(const uint8_t *p)
{
    return (vh)_mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)p));
}
static inline vi widen_nibbles(const uint8_t *p)
{
    int bytes;
    memcpy(&bytes, p, 4);
    const __m128i x = _mm_cvtsi32_si128(bytes);
    return (vi)_mm256_cvtepu8_epi32(_mm_unpacklo_epi8(x, x));
}
static inline vh narrow(vu x)
{
    const __m256i low = _mm256_and_si256((__m256i)x, _mm256_set1_epi32(0xffff));
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
    return (vh)_mm256_castsi256_si128(both);
}
static inline vf half_to_float(vh x)
{
    return (vf)_mm256_cvtph_ps((__m128i)x);
}
static inline vf swap_1(vf x)
{
    return (vf)_mm256_permute_ps((__m256)x, 0xb1);
}
static inline vf swap_2(vf x)
{
    return (vf)_mm256_permute_ps((__m256)x, 0x4e);
}
static inline vf swap_4(vf x)
{
    return (vf)_mm256_permute2f128_ps((__m256)x, (__m256)x, 1);
}
static inline vf look_up(const float *table, vi i)
{
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), (__m256i)i);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), (__m256i)i);
    return (vf)_mm256_blendv_ps(low, high, (__m256)(i << 28));
}
static inline vf nearest(vf x)
{
    return (vf)_mm256_round_ps((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

#include "device/cpu/decode_kernel.inc"
