// Decoders of quantised rows for AVX-512.
#include "device/cpu/decode.h"

#include <immintrin.h>

#define DECODE       vx_decode_avx512
#define ROTATE_PAIRS 0
enum { VL = 16 };
typedef float vf __attribute__((vector_size(64)));
typedef uint32_t vu __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef uint16_t vh __attribute__((vector_size(32)));

static inline vi widen_u8(const uint8_t *p)
{
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
}
static inline vi widen_i8(const uint8_t *p)
{
    return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p));
}
static inline vh widen_half(const uint8_t *p)
{
    return (vh)_mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p));
}
static inline vi widen_nibbles(const uint8_t *p)
{
    const __m128i x = _mm_loadl_epi64((const void *)p);
    return (vi)_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(x, x));
}
static inline vh narrow(vu x)
{
    return (vh)_mm512_cvtepi32_epi16((__m512i)x);
}
static inline vf half_to_float(vh x)
{
    return (vf)_mm512_cvtph_ps((__m256i)x);
}
static inline vf swap_1(vf x)
{
    return (vf)_mm512_permute_ps((__m512)x, 0xb1);
}
static inline vf swap_2(vf x)
{
    return (vf)_mm512_permute_ps((__m512)x, 0x4e);
}
static inline vf swap_4(vf x)
{
    return (vf)_mm512_shuffle_f32x4((__m512)x, (__m512)x, 0xb1);
}
static inline vf swap_8(vf x)
{
    return (vf)_mm512_shuffle_f32x4((__m512)x, (__m512)x, 0x4e);
}
static inline vf look_up(const float *table, vi i)
{
    return (vf)_mm512_permutexvar_ps((__m512i)i, _mm512_loadu_ps(table));
}
static inline vf nearest(vf x)
{
    return (vf)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

#include "device/cpu/decode_kernel.inc"
