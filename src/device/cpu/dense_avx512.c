// The inner loops for AVX-512: tiles of 14 x 32, 28 sums, 2 columns of B and one of A in 32 registers.
#include "device/cpu/dense.h"
#include <immintrin.h>
#include <string.h>

#define MR_MANY      1
#define VU_WIDEN(h)  (vu) _mm512_cvtepu16_epi32((__m256i)(h))
#define VH_NARROW(u) (vh) _mm512_cvtepi32_epi16((__m512i)(u))
enum { VL = 16, NV = 2, MR = 14, PACK_ROWS = 16 };
typedef float vf __attribute__((vector_size(64)));
typedef uint32_t vu __attribute__((vector_size(64)));

static inline vf vf_fma(vf a, vf b, vf c)
{
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

// b where a is not greater, NaN included.
static inline vf vf_max(vf a, vf b)
{
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
}

// Words w[r] = 16 words of row r become w[c] = word c of 16 rows.
static inline __attribute__((always_inline)) void transpose(__m512i w[16])
{
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(w[i], w[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(w[i], w[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        w[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        w[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        w[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        w[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(w[i], w[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(w[i], w[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(w[i + 8], w[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(w[i + 8], w[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        w[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        w[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        w[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        w[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

static inline __attribute__((always_inline)) void thin_words(vu word[16], const char *w, const ptrdiff_t offset[16])
{
    __m512i row[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) row[r] = _mm512_loadu_si512(w + offset[r]);
    transpose(row);
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) word[r] = (vu)row[r];
}

static int pack_block(float *dst, const char *src, ptrdiff_t stride, int k, vx_dtype dtype, bool swap);
#include "device/cpu/gemm_kernel.inc"

#define VX_OWN_SOFTMAX_PARTS
#include "tensor/mathf_inline.h"

// As in softmax_kernel.inc, less what masks make superfluous: scaling by 2^n keeps NaN and is exact for x >= VX_EXP_MIN.
static inline vf vf_exp(vf x)
{
    const vf magic = vf_splat(VX_MATHF_MAGIC);
    const __mmask16 keep = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(VX_EXP_MIN), _CMP_NLT_UQ);
    const vf y = vf_max(vf_splat(VX_EXP_MIN), x);
    const vf n = vf_fma(y, vf_splat(VX_EXP_LOG2E), magic) - magic;
    const vf high = vf_fma(n, vf_splat(-VX_EXP_LN2_HI), y);
    const vf r = vf_fma(n, vf_splat(-VX_EXP_LN2_LO), high);
    vf q = vf_fma(vf_splat(VX_EXP_Q4), r, vf_splat(VX_EXP_Q3));
    q = vf_fma(q, r, vf_splat(VX_EXP_Q2));
    q = vf_fma(q, r, vf_splat(VX_EXP_Q1));
    q = vf_fma(q, r, vf_splat(VX_EXP_Q0));
    const vf low = vf_fma(n, vf_splat(-VX_EXP_LN2_LO), (r * r) * q);
    const vf p = vf_splat(1.0f) + (high + low);
    return (vf)_mm512_maskz_scalef_ps(keep, (__m512)p, (__m512)n);
}

// One shuffle of bytes cuts the low halves off and exchanges the pairs. A NaN descends from a bf16 one or is the default one:
// its low half is zero and the addition cannot carry out of it.
static inline vf vf_bf16_weight(vf e)
{
    const __m512i u = (__m512i)e;
    const __mmask16 odd = _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x10000));
    __m512i nearest = _mm512_add_epi32(u, _mm512_set1_epi32(0x7fff));
    nearest = _mm512_mask_add_epi32(nearest, odd, nearest, _mm512_set1_epi32(1));
    const __m128i cut = _mm_setr_epi8(-1, -1, 6, 7, -1, -1, 2, 3, -1, -1, 14, 15, -1, -1, 10, 11);
    return (vf)_mm512_shuffle_epi8(nearest, _mm512_broadcast_i32x4(cut));
}

static inline float vf_most(const vf v[NV])
{
    return _mm512_reduce_max_ps(_mm512_max_ps((__m512)v[0], (__m512)v[1]));
}

static inline float vf_tree32(const vf v[2])
{
    __m512 t = _mm512_add_ps((__m512)v[0], (__m512)v[1]);
    t = _mm512_add_ps(t, _mm512_shuffle_f32x4(t, t, 0x4e));
    t = _mm512_add_ps(t, _mm512_shuffle_f32x4(t, t, 0xb1));
    t = _mm512_add_ps(t, _mm512_permute_ps(t, 0x4e));
    t = _mm512_add_ps(t, _mm512_permute_ps(t, 0xb1));
    return _mm512_cvtss_f32(t);
}

// Sixteen rows by as many whole vectors as k has; tells how many k were packed. One instance per dtype and swap.
static inline __attribute__((always_inline)) int pack_rows(float *dst, const char *src, ptrdiff_t stride, int k,
                                                           const vx_dtype dtype, const bool swap)
{
    const int size = dtype == VX_F32 ? 4 : 2, step = dtype == VX_BF16 ? 32 : 16;
    const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
    int done = 0;
    for (; done + step <= k; done += step) {
        __m512i w[16];
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++) {
            const void *from = src + (r * stride + done) * size;
            if (dtype == VX_F16) w[r] = _mm512_castps_si512(_mm512_cvtph_ps(_mm256_loadu_si256(from)));
            else w[r] = _mm512_loadu_si512(from);
        }
        transpose(w);
        float *to = dst + (ptrdiff_t)done * NR;
#pragma GCC unroll 16
        for (int c = 0; c < 16; c++) {
            if (dtype == VX_BF16) {
                const __m512i even = _mm512_slli_epi32(w[c], 16), odd = _mm512_and_si512(w[c], high);
                _mm512_storeu_si512(to + 2 * c * NR, swap ? odd : even);
                _mm512_storeu_si512(to + (2 * c + 1) * NR, swap ? even : odd);
            } else {
                _mm512_storeu_si512(to + c * NR, w[c]);
            }
        }
    }
    return done;
}

static int pack_block(float *dst, const char *src, ptrdiff_t stride, int k, vx_dtype dtype, bool swap)
{
    if (dtype == VX_F32) return pack_rows(dst, src, stride, k, VX_F32, false);
    if (dtype == VX_F16) return pack_rows(dst, src, stride, k, VX_F16, false);
    return swap ? pack_rows(dst, src, stride, k, VX_BF16, true) : pack_rows(dst, src, stride, k, VX_BF16, false);
}

#include "device/cpu/snake_kernel.inc"
#include "device/cpu/softmax_kernel.inc"

const struct vx_dense_kernels vx_dense_avx512 = {
    .mr = MR,
    .nr = NR,
    .thin_columns = PACK_ROWS,
    .tile = tile,
    .thin = thin,
    .pack = pack,
    .widen = widen,
    .spread = spread,
    .finish = finish,
    .divide = divide,
    .finish_row = finish_row,
    .rescale = rescale,
    .softmax = softmax,
    .snake = snake,
};
