#include "device/cpu/gather.h"
#include <immintrin.h>

enum { VL = 16 };
typedef __m512 V;

static inline V v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, V x)
{
    _mm512_storeu_ps(p, x);
}
static inline void v_move_part(float *to, const float *from, int n)
{
    const __mmask16 some = (__mmask16)((1u << n) - 1);
    _mm512_mask_storeu_ps(to, some, _mm512_maskz_loadu_ps(some, from));
}
static inline void v_zero_part(float *to, int n)
{
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), _mm512_setzero_ps());
}

// The second load begins one early, so that nothing behind the last number is read.
static inline V v_evens(const float *p)
{
    const __m512i pick = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutex2var_ps(_mm512_loadu_ps(p), pick, _mm512_loadu_ps(p + 15));
}

#include "device/cpu/gather_kernel.inc"

void vx_gather_avx512(float *dst, ptrdiff_t dst_row, const float *src, ptrdiff_t src_row, ptrdiff_t step, int64_t rows,
                      const vx_segment *list, int64_t segments)
{
    gather_any(dst, dst_row, src, src_row, step, rows, list, segments);
}
