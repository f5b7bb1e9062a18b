// The inner loops without any instruction set beyond the compiler's default: 128-bit vectors. On a processor that has
// no fused multiply-add the C library supplies it, slowly and with the same bits.
#include "device/cpu/dense.h"
#include <math.h>
#include <string.h>

#define MR_MANY 0
enum { VL = 4, NV = 4, MR = 6, PACK_ROWS = 4 };
typedef float vf __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));

static inline vf vf_fma(vf a, vf b, vf c)
{
    return (vf){ fmaf(a[0], b[0], c[0]), fmaf(a[1], b[1], c[1]), fmaf(a[2], b[2], c[2]), fmaf(a[3], b[3], c[3]) };
}

// b where a is not greater, NaN included.
static inline vf vf_max(vf a, vf b)
{
    return (vf){ a[0] > b[0] ? a[0] : b[0], a[1] > b[1] ? a[1] : b[1], a[2] > b[2] ? a[2] : b[2], a[3] > b[3] ? a[3] : b[3] };
}
static inline vf vf_swap_pairs(vf x)
{
    return (vf){ x[1], x[0], x[3], x[2] };
}

// Nothing faster than element by element here: 0 of k are packed.
static inline int pack_block(float *dst, const char *src, ptrdiff_t stride, int k, vx_dtype dtype, bool swap)
{
    (void)dst, (void)src, (void)stride, (void)k, (void)dtype, (void)swap;
    return 0;
}

// Four words of four rows.
static inline void thin_words(vu word[4], const char *w, const ptrdiff_t offset[4])
{
    for (int r = 0; r < 4; r++) {
        uint32_t row[4];
        memcpy(row, w + offset[r], 16);
        for (int c = 0; c < 4; c++) word[c][r] = row[c];
    }
}

#include "device/cpu/gemm_kernel.inc"

#include "device/cpu/snake_kernel.inc"
#include "device/cpu/softmax_kernel.inc"

const struct vx_dense_kernels vx_dense_generic = {
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
