#include "device/cpu/gather.h"
#include <immintrin.h>

enum { VL = 8 };
typedef __m256 V;

static inline V v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void v_store(float *p, V x)
{
    _mm256_storeu_ps(p, x);
}
static inline __m256i first(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline void v_move_part(float *to, const float *from, int n)
{
    _mm256_maskstore_ps(to, first(n), _mm256_maskload_ps(from, first(n)));
}
static inline void v_zero_part(float *to, int n)
{
    _mm256_maskstore_ps(to, first(n), _mm256_setzero_ps());
}

// The second load begins one early, so that nothing behind the last number is read.
static inline V v_evens(const float *p)
{
    const __m256 low = _mm256_loadu_ps(p), high = _mm256_loadu_ps(p + 7);
    const __m256 pairs = _mm256_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 2, 0));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(pairs), _MM_SHUFFLE(3, 1, 2, 0)));
}

#include "device/cpu/gather_kernel.inc"

void vx_gather_avx2(float *dst, ptrdiff_t dst_row, const float *src, ptrdiff_t src_row, ptrdiff_t step, int64_t rows,
                    const vx_segment *list, int64_t segments)
{
    gather_any(dst, dst_row, src, src_row, step, rows, list, segments);
}
