// Launchers of the operators on rows (operators.h): equal to the CPU's bit for bit, NaN to NaN. Addresses are the device's.
// Rows and heads may have any stride; numbers of a row stand side by side. 16-byte accesses are used where addresses and
// strides allow. The launch goes on `stream`; the result is what CUDA said of it.
#ifndef VX_DEVICE_CUDA_KERNELS_ROWS_H
#define VX_DEVICE_CUDA_KERNELS_ROWS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

// Rows of f32, bf16 or f16. A vector is one row. data NULL: not given.
typedef struct vx_k_rows {
    void *data;
    int64_t stride; // elements from row to row
    vx_dtype dtype;
} vx_k_rows;

typedef struct vx_k_norm {
    vx_k_rows out, x, w, b; // b: layer norm
    vx_k_rows shift, scale; // modulation, rows of a table picked by `row`; or not given
    const int32_t *row;
    float eps;
    bool twice; // VX_NORM_ROUND_TWICE
    int64_t rows, n;
} vx_k_norm;
cudaError_t vx_k_rms_norm(const vx_k_norm *a, cudaStream_t stream); // with shift: rms_norm_modulate
// a->x += gate[row] * y before; a->shift, a->scale and a->row are all given, or not the first two, then row may be NULL: row 0
cudaError_t vx_k_gate_add_norm(const vx_k_norm *a, vx_k_rows y, vx_k_rows gate, cudaStream_t stream);
cudaError_t vx_k_layer_norm(const vx_k_norm *a, cudaStream_t stream);

cudaError_t vx_k_add(vx_k_rows x, vx_k_rows y, int64_t rows, int64_t n, cudaStream_t stream);
// row NULL: row 0 of gate for all
cudaError_t vx_k_gate_add(vx_k_rows x, vx_k_rows y, vx_k_rows gate, const int32_t *row, int64_t rows, int64_t n,
                          cudaStream_t stream);
cudaError_t vx_k_swiglu(vx_k_rows out, vx_k_rows u, bool gate_first, int64_t rows, int64_t n, cudaStream_t stream);
typedef enum vx_k_function { VX_K_SILU, VX_K_GELU_ERF, VX_K_GELU_TANH } vx_k_function;
cudaError_t vx_k_activate(vx_k_rows out, vx_k_rows x, vx_k_function f, int64_t rows, int64_t n, cudaStream_t stream);
cudaError_t vx_k_embed(vx_k_rows out, vx_k_rows table, const int32_t *ids, int64_t rows, int64_t n, cudaStream_t stream);
// ids and weights: four a row, rows ids_stride and weights_stride apart
cudaError_t vx_k_embed_blend(vx_k_rows out, vx_k_rows table, const int32_t *ids, int64_t ids_stride, const float *weights,
                             int64_t weights_stride, int64_t rows, int64_t n, cudaStream_t stream);

typedef struct vx_k_heads {
    void *data;               // [rows, heads, head_dim] of act; NULL: not given
    int64_t row, head, heads; // strides and how many
    vx_k_rows w;              // [head_dim]
} vx_k_heads;
typedef struct vx_k_qk {
    vx_k_heads q, k;
    vx_k_rows cos, sin; // [lines, pairs]: row r turns by line r mod lines
    vx_dtype act;
    int64_t rows, lines, head_dim, pairs; // pairs 0: no rotation
    float eps;
    bool twice, skip_norm, rope_once;
} vx_k_qk;
cudaError_t vx_k_qk_norm_rope(const vx_k_qk *a, cudaStream_t stream);

// ---- channels, f32 ----
typedef struct vx_k_snake_rows {
    float *out;
    const float *x, *alpha;
    int64_t out_stride[2], x_stride[2], alpha_stride; // channels, lines
    int64_t channels, lines, length;
} vx_k_snake_rows;
cudaError_t vx_k_snake_rows_run(const vx_k_snake_rows *a, cudaStream_t stream);
typedef struct vx_k_group_norm {
    float *out;
    const float *x;
    int64_t out_stride[3], x_stride[3]; // channels, frames, rows
    vx_k_rows w, b;                     // stride: from channel to channel
    int64_t channels, frames, height, width, groups;
    float eps;
    bool silu;
} vx_k_group_norm;
cudaError_t vx_k_group_norm_run(const vx_k_group_norm *a, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
