// The operators on rows in vectors of 16, for AVX-512 (F, BW, DQ, VL).
#include "device/cpu/rows.h"

#if defined(__AVX512F__)
#include "device/cpu/element.h"
#include "tensor/mathf_inline.h"
#include <immintrin.h>
#include <math.h>
#include <string.h>

enum { VX_LANES = 16 };
typedef __m512 V;
typedef uint32_t VI __attribute__((vector_size(64)));
typedef __m256i VH;
typedef __m512d VD;

static inline V v_set(float x)
{
    return _mm512_set1_ps(x);
}
static inline VI v_bits(V x)
{
    return (VI)x;
}
static inline V v_from_bits(VI x)
{
    return (V)x;
}
static inline __mmask16 first(int count)
{
    return (__mmask16)((1u << count) - 1);
}

static inline V v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, V x)
{
    _mm512_storeu_ps(p, x);
}
static inline V v_load_part(const float *p, int count)
{
    return _mm512_maskz_loadu_ps(first(count), p);
}
static inline void v_store_part(float *p, int count, V x)
{
    _mm512_mask_storeu_ps(p, first(count), x);
}
static inline VH vh_load(const uint16_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}
static inline void vh_store(uint16_t *p, VH x)
{
    _mm256_storeu_si256((__m256i *)p, x);
}
static inline VH vh_load_part(const uint16_t *p, int count)
{
    return _mm256_maskz_loadu_epi16(first(count), p);
}
static inline void vh_store_part(uint16_t *p, int count, VH x)
{
    _mm256_mask_storeu_epi16(p, first(count), x);
}

static inline VD vd_low(V x)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(x));
}
static inline VD vd_high(V x)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
}
static inline void vd_store(double *p, VD x)
{
    _mm512_storeu_pd(p, x);
}

static inline V v_fma(V a, V b, V c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline V v_min(V a, V b)
{
    return _mm512_min_ps(a, b);
}
static inline V v_max(V a, V b)
{
    return _mm512_max_ps(a, b);
}
static inline V v_less(V a, V b, V x, V y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
static inline V v_nan(V a, V x, V y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), y, x);
}

// vx_f32_to_bf16 before its last shift.
static inline VI v_round_bits(V x)
{
    const __m512i u = (__m512i)x;
    const __mmask16 odd = _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x10000));
    __m512i r = _mm512_add_epi32(u, _mm512_set1_epi32(0x7fff));
    r = _mm512_mask_add_epi32(r, odd, r, _mm512_set1_epi32(1));
    return (VI)_mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), u, _mm512_set1_epi32(0x400000));
}

static inline V v_from_bf16(VH h)
{
    return v_from_bits((VI)_mm512_cvtepu16_epi32(h) << 16);
}
static inline V v_from_f16(VH h)
{
    return _mm512_cvtph_ps(h);
}
static inline VH v_to_f16(V x)
{
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline VH v_upper(VI x)
{
    return _mm512_cvtepi32_epi16((__m512i)(x >> 16));
}

static inline VI vi_load(const uint16_t *p)
{
    return (VI)_mm512_loadu_si512(p);
}

// Lane 4k + i holds vector 4i + k after vi_transpose.
static inline V v_unlace(V x)
{
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), x);
}

// 4 x 4 in each 128-bit group.
static inline void vi_transpose(VI x[4])
{
    const __m512i a = _mm512_unpacklo_epi32((__m512i)x[0], (__m512i)x[1]),
                  b = _mm512_unpackhi_epi32((__m512i)x[0], (__m512i)x[1]);
    const __m512i c = _mm512_unpacklo_epi32((__m512i)x[2], (__m512i)x[3]),
                  d = _mm512_unpackhi_epi32((__m512i)x[2], (__m512i)x[3]);
    x[0] = (VI)_mm512_unpacklo_epi64(a, c);
    x[1] = (VI)_mm512_unpackhi_epi64(a, c);
    x[2] = (VI)_mm512_unpacklo_epi64(b, d);
    x[3] = (VI)_mm512_unpackhi_epi64(b, d);
}

// Element j of 16 vectors of 8 side by side, vector 4i + k in lane 4k + i as above. A register holds two vectors, each in
// two groups; after the transposition even groups hold elements 0 to 3 and odd groups 4 to 7.
static inline void v_octets(V out[8], const float *p)
{
    VI a[4], b[4];
    for (int i = 0; i < 4; i++) {
        a[i] = v_bits(v_load(p + 32 * i));
        b[i] = v_bits(v_load(p + 32 * i + 16));
    }
    vi_transpose(a);
    vi_transpose(b);
    for (int d = 0; d < 4; d++) {
        out[d] = _mm512_shuffle_f32x4(v_from_bits(a[d]), v_from_bits(b[d]), _MM_SHUFFLE(2, 0, 2, 0));
        out[4 + d] = _mm512_shuffle_f32x4(v_from_bits(a[d]), v_from_bits(b[d]), _MM_SHUFFLE(3, 1, 3, 1));
    }
}

static inline V v_fold(const V t[2])
{
    return t[0] + t[1];
}

static inline float v_tree(V t)
{
    t = t + _mm512_shuffle_f32x4(t, t, _MM_SHUFFLE(1, 0, 3, 2));
    t = t + _mm512_shuffle_f32x4(t, t, _MM_SHUFFLE(2, 3, 0, 1));
    t = t + _mm512_permute_ps(t, _MM_SHUFFLE(1, 0, 3, 2));
    t = t + _mm512_permute_ps(t, _MM_SHUFFLE(2, 3, 0, 1));
    return _mm512_cvtss_f32(t);
}

#define EACH_TREE(body) body(0) body(1)
#include "device/cpu/rows_vector.inc"

const struct vx_row_kernels vx_rows_avx512 = VECTOR_ROW_KERNELS;
#endif
