// Launchers of the operators on tensors of any strides (operators.h). Addresses are the device's; strides in elements.
#ifndef VX_DEVICE_CUDA_KERNELS_STRIDED_H
#define VX_DEVICE_CUDA_KERNELS_STRIDED_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

// vx_walk (device/walk.h): axes are merged, the most dense one of the output is the last.
enum { VX_K_RANK = 8, VX_K_TENSORS = 4 };
typedef struct vx_k_walk {
    int rank; // >= 1
    int64_t shape[VX_K_RANK], stride[VX_K_TENSORS][VX_K_RANK];
} vx_k_walk;

// Conversion between f32, bf16 and f16. walk: out, x.
cudaError_t vx_k_copy_as(const vx_k_walk *walk, void *out, vx_dtype out_type, const void *x, vx_dtype x_type,
                         cudaStream_t stream);
// Bits of `size` bytes an element: 1, 2, 4, 8 or 16, to which addresses are aligned. walk: out, x.
cudaError_t vx_k_move(const vx_k_walk *walk, void *out, const void *x, int size, cudaStream_t stream);

enum { VX_K_MAX_TERMS = 3 };
typedef struct vx_k_blend {
    float *out; // may be any of x
    const float *x[VX_K_MAX_TERMS];
    float c[VX_K_MAX_TERMS];
    int terms;
    int64_t n;
} vx_k_blend;
cudaError_t vx_k_blend_run(const vx_k_blend *a, cudaStream_t stream);
// walk: out, x, scale, shift
cudaError_t vx_k_affine(const vx_k_walk *walk, float *out, const float *x, const float *scale, const float *shift,
                        cudaStream_t stream);
// walk: out, a, b, the index along the axis
cudaError_t vx_k_fade(const vx_k_walk *walk, float *out, const float *a, const float *b, float extent, cudaStream_t stream);
// walk: out, x
cudaError_t vx_k_clamp(const vx_k_walk *walk, float *out, const float *x, float lo, float hi, cudaStream_t stream);
cudaError_t vx_k_to_u8(const vx_k_walk *walk, uint8_t *out, const float *x, cudaStream_t stream);
// walk: x. *flag |= 1
// Of one line of whole vectors: x at a multiple of 16 bytes, bytes a multiple of 16 and not 0.
cudaError_t vx_k_mark_line(int32_t *flag, const void *x, vx_dtype type, int64_t bytes, cudaStream_t stream);
cudaError_t vx_k_mark_not_finite(const vx_k_walk *walk, int32_t *flag, const void *x, vx_dtype type, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
