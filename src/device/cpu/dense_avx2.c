// The inner loops for AVX2 and FMA: tiles of 6 x 16, 12 sums and 2 columns of B in 16 registers.
#include "device/cpu/dense.h"
#include <immintrin.h>
#include <string.h>

#define MR_MANY 0
enum { VL = 8, NV = 2, MR = 6, PACK_ROWS = 8 };
typedef float vf __attribute__((vector_size(32)));
typedef uint32_t vu __attribute__((vector_size(32)));

static inline vf vf_fma(vf a, vf b, vf c)
{
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

// b where a is not greater, NaN included.
static inline vf vf_max(vf a, vf b)
{
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
}
static inline vf vf_swap_pairs(vf x)
{
    return (vf)_mm256_permute_ps((__m256)x, 0xb1);
}

// Words w[r] = 8 words of row r become w[c] = word c of 8 rows.
static inline __attribute__((always_inline)) void transpose(__m256i w[8])
{
    __m256i t[8], u[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(w[i], w[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(w[i], w[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        w[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
        w[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
    }
}

static inline __attribute__((always_inline)) void thin_words(vu word[8], const char *w, const ptrdiff_t offset[8])
{
    __m256i row[8];
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++) row[r] = _mm256_loadu_si256((const void *)(w + offset[r]));
    transpose(row);
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++) word[r] = (vu)row[r];
}

static int pack_block(float *dst, const char *src, ptrdiff_t stride, int k, vx_dtype dtype, bool swap);
#include "device/cpu/gemm_kernel.inc"

// Eight rows by as many whole vectors as k has; tells how many k were packed.
static int pack_block(float *dst, const char *src, ptrdiff_t stride, int k, vx_dtype dtype, bool swap)
{
    const int size = dtype == VX_F32 ? 4 : 2, step = dtype == VX_BF16 ? 16 : 8;
    const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    int done = 0;
    for (; done + step <= k; done += step) {
        __m256i w[8];
        for (int r = 0; r < 8; r++) {
            const void *from = src + (r * stride + done) * size;
            if (dtype == VX_F16) w[r] = _mm256_castps_si256(_mm256_cvtph_ps(_mm_loadu_si128(from)));
            else w[r] = _mm256_loadu_si256(from);
        }
        transpose(w);
        float *to = dst + (ptrdiff_t)done * NR;
        for (int c = 0; c < 8; c++) {
            if (dtype == VX_BF16) {
                const __m256i even = _mm256_slli_epi32(w[c], 16), odd = _mm256_and_si256(w[c], high);
                _mm256_storeu_si256((void *)(to + 2 * c * NR), swap ? odd : even);
                _mm256_storeu_si256((void *)(to + (2 * c + 1) * NR), swap ? even : odd);
            } else {
                _mm256_storeu_si256((void *)(to + c * NR), w[c]);
            }
        }
    }
    return done;
}

#include "device/cpu/snake_kernel.inc"
#include "device/cpu/softmax_kernel.inc"

const struct vx_dense_kernels vx_dense_avx2 = {
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
