// The alias-free activation, with the bits of the CPU definition.
#ifndef VX_DEVICE_CUDA_KERNELS_SNAKE_H
#define VX_DEVICE_CUDA_KERNELS_SNAKE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// All strides in floats.
typedef struct vx_k_snake {
    float *out;
    const float *x;
    int64_t out_stride, x_stride; // from channel to channel
    int64_t out_line, x_line;     // from line to line of a channel
    int channels, lines, length;
    const float *alpha, *beta, *up, *down; // log scale as stored; 12 taps
    int64_t alpha_stride, beta_stride, up_stride, down_stride;
} vx_k_snake;
cudaError_t vx_k_snake_alias_free(const vx_k_snake *s, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
