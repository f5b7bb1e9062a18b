// The inner loops of products, attention, convolutions and the alias-free activation, one table per instruction set.
// dense_*.c give the vector type and its fused multiply-add; the *_kernel.inc files are compiled once for each.
//
// Everything multiplies in f32: an fma on widened bf16 has the bits that VDPBF16PS has (less that instruction's flush of
// subnormals), and is twice as fast where VDPBF16PS issues every second cycle (docs/speed.md).
//
// Layouts
//   A tile   [rows <= mr][VX_DENSE_K_STRIDE]   rows of activations (or weights, or probabilities), a block of k
//   B panel  [k][nr]                           nr columns, k-major; or any rows of nr floats at a fixed step
//   C tile   [rows][ldc]
// "swap" stores each pair of k odd element first: the order of operators.h for bf16 x bf16. A lone last element stays.
#ifndef VX_DEVICE_CPU_DENSE_H
#define VX_DEVICE_CPU_DENSE_H

#include "device/cpu/isa.h"
#include "tensor/dtype.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VX_DENSE_K = 512,        // k of one A tile; also the key block of vx_attention
    VX_DENSE_K_STRIDE = 528, // 33 cache lines: rows of a tile must not share one set of the first-level cache
    VX_DENSE_THIN = 4,
    VX_DENSE_MAX_NR = 32,
};

// Where a product's B rows stand: for o in 0..outer-1, for i in 0..inner-1 the row b + offset[o] + i * step.
typedef struct vx_dense_rows {
    const float *b;
    const ptrdiff_t *offset;
    int outer, inner;
    ptrdiff_t step;
} vx_dense_rows;

// One query row's running softmax over a block of keys.
typedef struct vx_softmax_row {
    float max, sum;   // in: of the blocks before (-inf, 0); out: with this block
    float correction; // out: exp(old max - new max), what the partial outputs are multiplied by
} vx_softmax_row;

// A stretch of one channel's alias-free activation: outputs start .. start + count - 1 of `length`.
enum { VX_SNAKE_TILE = 1024 };
typedef struct vx_snake_run {
    float *out;     // [count]
    const float *x; // [length], the whole channel
    int64_t start, length;
    int count;         // <= VX_SNAKE_TILE
    float alpha, gain; // exp(alpha), 1 / (exp(beta) + 1e-9)
    float up[12], down[12];
} vx_snake_run;

struct vx_dense_kernels {
    int mr, nr;
    int thin_columns; // of one call of thin
    // c[i][j] = (load ? c[i][j] : 0) + sum of a[i][k] * B[k][j], one fma after another in the order of rows. j < nr.
    void (*tile)(int rows, const float *a, const vx_dense_rows *b, float *c, ptrdiff_t ldc, bool load);
    // rows (<= nr) rows of k numbers, `stride` apart, become the panel dst[k][nr]; missing rows are zero.
    void (*pack)(float *dst, const void *src, ptrdiff_t stride, int rows, int k, vx_dtype dtype, bool swap);
    // Rows of k numbers become an A tile.
    void (*widen)(float *dst, const void *src, ptrdiff_t stride, int rows, int k, vx_dtype dtype, bool swap);
    // A few rows (<= VX_DENSE_THIN) straight from the weight: c[i][j] = (load ? c[i][j] : 0) + sum of x[i][k] * w[j][k],
    // j < count <= thin_columns, c of rows of nr. x is widened, its rows x_stride apart, with the pairs changed as `swap` says. Not for f16.
    void (*thin)(int rows, const float *x, ptrdiff_t x_stride, const void *w, ptrdiff_t stride, int count, int64_t k,
                 vx_dtype dtype, bool swap, float *c, bool load);
    // Rows of n numbers (<= nr), `stride` apart, become rows of nr of a B panel, the rest zero. With `swap` and an odd count
    // a row of zeros stands before the lone last one, so that pairs are whole.
    void (*spread)(float *dst, const void *src, ptrdiff_t stride, int rows, int n, vx_dtype dtype, bool swap);
    // Rows of out, `stride` apart: out[i][j] = rn(c[i][j] (+ bias[j])), j < n <= nr; c has rows of nr; bias may be NULL.
    void (*finish)(void *out, ptrdiff_t stride, vx_dtype dtype, const float *c, const float *bias, int rows, int n);
    // out[j] = rn(c[j] / divisor), j < n.
    void (*divide)(void *out, vx_dtype dtype, const float *c, float divisor, int n);
    // out[j] = (c[j] (+ *bias)) (+ residual[j]), j < n; out may be residual.
    void (*finish_row)(float *out, const float *c, const float *bias, const float *residual, int n);
    // c[j] *= factor, j < n.
    void (*rescale)(float *c, float factor, int n);
    // Rows of an A tile of scores: s[j] = rn(exp(scale * s[j] - max)), j < n; zero from n to the next multiple of nr. With
    // `bf16` pairs change places. A row's sum adds the unrounded values: 32 partial sums (j mod 32), tree32, onto the
    // corrected sum before.
    void (*softmax)(float *s, int rows, int n, float scale, bool bf16, vx_softmax_row *row);
    void (*snake)(const vx_snake_run *run);
};

const struct vx_dense_kernels *vx_dense_kernels(vx_isa isa);

extern const struct vx_dense_kernels vx_dense_generic;
#if defined(__x86_64__)
extern const struct vx_dense_kernels vx_dense_avx2, vx_dense_avx512;
#endif

#endif
