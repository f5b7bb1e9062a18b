// Launcher of the decoder of quantised matrices: the bits of tensor/quant.h's vx_quant_decode. Addresses are the device's.
#ifndef VX_DEVICE_CUDA_KERNELS_QUANT_H
#define VX_DEVICE_CUDA_KERNELS_QUANT_H

#include "device/cuda/kernels/convert.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum vx_k_quant_kind { VX_K_FP8, VX_K_INT8, VX_K_NVFP4, VX_K_MXFP8, VX_K_INT4, VX_K_W4A8, VX_K_GGUF } vx_k_quant_kind;

// The members mean what those of vx_quant mean; strides in elements.
typedef struct vx_k_quant {
    vx_k_quant_kind kind;
    int type, rotate, group; // rotate 0: not; group at least 1
    int block, block_bytes;  // of a GGUF type
    int64_t k, row;
    const uint8_t *values;
    int64_t stride;
    vx_dtype values_type;
    const float *scale;
    int64_t scale_count, scale_stride;
    const void *block_scale;
    vx_dtype block_type;
    int64_t block_columns;
    const float *codebook; // NULL: none
    int64_t codebook_stride;
    const void *correction; // NULL: none
    vx_dtype correction_type;
    int64_t correction_group, correction_row; // strides
    bool as_bf16;                             // set by the launcher
} vx_k_quant;

// Rows [row, row + rows), all columns, to `out`: f32, bf16 by the kind's own rule, or f16 (the f32 result rounded).
cudaError_t vx_k_quant_decode(const vx_k_quant *quant, int64_t row, int64_t rows, vx_k_matrix out, cudaStream_t stream);
// The same of rows ids[0], ids[1], ... ids[rows - 1].
cudaError_t vx_k_quant_embed(const vx_k_quant *quant, const int32_t *ids, int64_t rows, vx_k_matrix out, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
