// The operators on rows of activations: one loop each, for rows begin to end - 1, per instruction set.
//
// vx_rows_plain is the definition. The others repeat it lane by lane with the same operations in the same order, so all
// give the same bits (tests/device/test_levels.c).
#ifndef VX_DEVICE_CPU_ROWS_H
#define VX_DEVICE_CPU_ROWS_H

#include "device/backend.h"

// X(operator, a tensor that has the rows)
#define VX_ROW_OPERATORS(X) \
    X(rms_norm, x)          \
    X(rms_norm_modulate, x) \
    X(layer_norm, x)        \
    X(add, x)               \
    X(gate_add, x)          \
    X(swiglu, u)            \
    X(silu, x)              \
    X(gelu, x)              \
    X(embed_blend, out)     \
    X(qk_norm_rope, q)

typedef struct vx_plane_norm {
    float mean, deviation, w, b;
    bool silu;
} vx_plane_norm;

struct vx_row_kernels {
#define VX_ROW_MEMBER(op, rows) void (*op)(const vx_##op##_args *args, int64_t begin, int64_t end);
    VX_ROW_OPERATORS(VX_ROW_MEMBER)
#undef VX_ROW_MEMBER
    // n numbers side by side, from one of F32, BF16, F16 to another or the same.
    void (*convert)(void *out, vx_dtype out_type, const void *x, vx_dtype x_type, int64_t n);
    // out[i] = x[i] + gain * sin(alpha * x[i])^2, n numbers side by side.
    void (*snake)(float *out, const float *x, float alpha, float gain, int64_t n);
    // Sum of x[i][j] - mean over rows, `stride` apart, of n numbers, or of the squares; in the order of vx_group_norm.
    double (*plane_sum)(const float *x, int64_t stride, int64_t rows, int64_t n, float mean, bool squares);
    // out[i] = (x[i] - mean) / deviation * w + b, then silu if told, n numbers side by side.
    void (*normalise)(float *out, const float *x, const vx_plane_norm *norm, int64_t n);
};

extern const struct vx_row_kernels vx_rows_plain, vx_rows_avx2, vx_rows_avx512;

const struct vx_row_kernels *vx_row_kernels_for(int isa); // vx_isa

#endif
