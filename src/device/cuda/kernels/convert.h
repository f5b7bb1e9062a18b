// Launchers of what the linear needs beside its products: conversions between number formats, biases, additions. Addresses are the
// device's, strides in elements, formats those of tensor/dtype.h (f32, bf16, f16). Rounding is to nearest even.
#ifndef VX_DEVICE_CUDA_KERNELS_CONVERT_H
#define VX_DEVICE_CUDA_KERNELS_CONVERT_H

#include "tensor/dtype.h"
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vx_k_matrix {
    void *data;
    vx_dtype dtype;
    int64_t stride; // between rows
} vx_k_matrix;

// out = x, rows by columns.
cudaError_t vx_k_convert(vx_k_matrix out, vx_k_matrix x, int64_t rows, int64_t columns, cudaStream_t stream);
// out = rn(x + bias), x f32; the bias rounded to f16 first where f16_bias. x may be out.
cudaError_t vx_k_bias(vx_k_matrix out, vx_k_matrix x, const void *bias, vx_dtype bias_type, bool f16_bias, int64_t rows,
                      int64_t columns, cudaStream_t stream);
// out = rn(out + rn(scale * u)), the inner rounding to the format of u.
cudaError_t vx_k_add_scaled(vx_k_matrix out, vx_k_matrix u, float scale, int64_t rows, int64_t columns, cudaStream_t stream);
// out = rn(x * factor[column]), out and x of one format.
cudaError_t vx_k_scale_columns(vx_k_matrix out, vx_k_matrix x, const void *factor, vx_dtype factor_type, int64_t rows,
                               int64_t columns, cudaStream_t stream);

// out [m, n] = x [m, k] w [n, k]^T + bias [n] (of out's format, or NULL), x and w of one format: one f32 chain over k as vx_linear
// is defined, one rounding. m at most 16 * 65,535.
cudaError_t vx_k_product_short(vx_k_matrix out, vx_k_matrix x, vx_k_matrix w, const void *bias, int64_t m, int64_t n, int64_t k,
                               cudaStream_t stream);
// count random numbers near normal, the same for the same seed.
cudaError_t vx_k_made_up(void *out, vx_dtype dtype, int64_t count, float mean, float deviation, uint64_t seed,
                         cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
