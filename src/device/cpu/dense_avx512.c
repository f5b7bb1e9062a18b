// The inner loops for AVX-512: tiles of 14 x 32, 28 sums, 2 columns of B and one of A in 32 registers.
#include "device/cpu/dense.h"
#include <immintrin.h>
#include <string.h>

#define MR_MANY 1
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
static inline bool vm_any(vu mask)
{
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
}
static inline vf vf_swap_pairs(vf x)
{
    return (vf)_mm512_permute_ps((__m512)x, 0xb1);
}

// Words w[r] = 16 words of row r become w[c] = word c of 16 rows.
static inline void transpose(__m512i w[16])
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

static int pack_block(float *dst, const char *src, ptrdiff_t stride, int k, vx_dtype dtype, bool swap);
#include "device/cpu/gemm_kernel.inc"

// Sixteen rows by as many whole vectors as k has; tells how many k were packed.
static int pack_block(float *dst, const char *src, ptrdiff_t stride, int k, vx_dtype dtype, bool swap)
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

#include "device/cpu/snake_kernel.inc"
#include "device/cpu/softmax_kernel.inc"

const struct vx_dense_kernels vx_dense_avx512 = {
    .mr = MR,
    .nr = NR,
    .tile = tile,
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
