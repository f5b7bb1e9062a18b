// The operators on rows in vectors of 8, for AVX2, FMA and F16C.
#include "device/cpu/rows.h"

#if defined(__AVX2__)
#include "device/cpu/element.h"
#include "tensor/mathf_inline.h"
#include <immintrin.h>
#include <math.h>
#include <string.h>

enum { VX_LANES = 8 };
typedef __m256 V;
typedef uint32_t VI __attribute__((vector_size(32)));
typedef __m128i VH;
typedef __m256d VD;

static inline V v_set(float x)
{
    return _mm256_set1_ps(x);
}
static inline VI v_bits(V x)
{
    return (VI)x;
}
static inline V v_from_bits(VI x)
{
    return (V)x;
}

static inline V v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void v_store(float *p, V x)
{
    _mm256_storeu_ps(p, x);
}
static inline VH vh_load(const uint16_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}
static inline void vh_store(uint16_t *p, VH x)
{
    _mm_storeu_si128((__m128i *)p, x);
}

// AVX2 masks no 16-bit lanes: parts go through a whole vector in memory.
static inline V v_load_part(const float *p, int count)
{
    float whole[VX_LANES] = { 0 };
    memcpy(whole, p, (size_t)count * sizeof *p);
    return v_load(whole);
}

static inline void v_store_part(float *p, int count, V x)
{
    float whole[VX_LANES];
    v_store(whole, x);
    memcpy(p, whole, (size_t)count * sizeof *p);
}

static inline VH vh_load_part(const uint16_t *p, int count)
{
    uint16_t whole[VX_LANES] = { 0 };
    memcpy(whole, p, (size_t)count * sizeof *p);
    return vh_load(whole);
}

static inline void vh_store_part(uint16_t *p, int count, VH x)
{
    uint16_t whole[VX_LANES];
    vh_store(whole, x);
    memcpy(p, whole, (size_t)count * sizeof *p);
}

static inline VD vd_low(V x)
{
    return _mm256_cvtps_pd(_mm256_castps256_ps128(x));
}
static inline VD vd_high(V x)
{
    return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
}
static inline void vd_store(double *p, VD x)
{
    _mm256_storeu_pd(p, x);
}

static inline V v_fma(V a, V b, V c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline V v_min(V a, V b)
{
    return _mm256_min_ps(a, b);
}
static inline V v_max(V a, V b)
{
    return _mm256_max_ps(a, b);
}
static inline V v_less(V a, V b, V x, V y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
static inline V v_nan(V a, V x, V y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

// vx_f32_to_bf16 before its last shift.
static inline VI v_round_bits(V x)
{
    const VI u = v_bits(x);
    return v_bits(v_nan(x, v_from_bits(u | 0x400000u), v_from_bits(u + 0x7fffu + ((u >> 16) & 1u))));
}

static inline V v_from_bf16(VH h)
{
    return v_from_bits((VI)_mm256_cvtepu16_epi32(h) << 16);
}
static inline V v_from_f16(VH h)
{
    return _mm256_cvtph_ps(h);
}
static inline VH v_to_f16(V x)
{
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline VH v_upper(VI x)
{
    const __m256i low = (__m256i)(x >> 16);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), _MM_SHUFFLE(3, 1, 2, 0)));
}

static inline VI vi_load(const uint16_t *p)
{
    return (VI)_mm256_loadu_si256((const __m256i *)p);
}

static inline V v_unlace(V x)
{
    return _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// 4 x 4 in each 128-bit group.
static inline void vi_transpose(VI x[4])
{
    const __m256i a = _mm256_unpacklo_epi32((__m256i)x[0], (__m256i)x[1]),
                  b = _mm256_unpackhi_epi32((__m256i)x[0], (__m256i)x[1]);
    const __m256i c = _mm256_unpacklo_epi32((__m256i)x[2], (__m256i)x[3]),
                  d = _mm256_unpackhi_epi32((__m256i)x[2], (__m256i)x[3]);
    x[0] = (VI)_mm256_unpacklo_epi64(a, c);
    x[1] = (VI)_mm256_unpackhi_epi64(a, c);
    x[2] = (VI)_mm256_unpacklo_epi64(b, d);
    x[3] = (VI)_mm256_unpackhi_epi64(b, d);
}

// Element j of 8 vectors of 8 side by side, vector 2i + k in lane 4k + i as above. A register holds one vector in two groups;
// after the transposition the first group holds elements 0 to 3 and the second 4 to 7.
static inline void v_octets(V out[8], const float *p)
{
    VI a[4], b[4];
    for (int i = 0; i < 4; i++) {
        a[i] = v_bits(v_load(p + 16 * i));
        b[i] = v_bits(v_load(p + 16 * i + 8));
    }
    vi_transpose(a);
    vi_transpose(b);
    for (int d = 0; d < 4; d++) {
        out[d] = _mm256_permute2f128_ps(v_from_bits(a[d]), v_from_bits(b[d]), 0x20);
        out[4 + d] = _mm256_permute2f128_ps(v_from_bits(a[d]), v_from_bits(b[d]), 0x31);
    }
}

static inline V v_fold(const V t[4])
{
    return (t[0] + t[2]) + (t[1] + t[3]);
}

static inline float v_tree(V t)
{
    t = t + _mm256_permute2f128_ps(t, t, 1);
    t = t + _mm256_permute_ps(t, _MM_SHUFFLE(1, 0, 3, 2));
    t = t + _mm256_permute_ps(t, _MM_SHUFFLE(2, 3, 0, 1));
    return _mm256_cvtss_f32(t);
}

#define EACH_TREE(body) body(0) body(1) body(2) body(3)
#include "device/cpu/rows_vector.inc"

const struct vx_row_kernels vx_rows_avx2 = VECTOR_ROW_KERNELS;
#endif
