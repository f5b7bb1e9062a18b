// Launchers of the attention kernels. q, k, v, out are device addresses; strides in elements; the last stride is 1 and head and
// row strides are multiples of 8. heads % kv_heads == 0. scale multiplies the logits (natural exponential). The launch goes on
// `stream`; the result is what CUDA said of it. Reproducible: the bits depend on shapes and values alone.
#ifndef VX_DEVICE_CUDA_KERNELS_ATTENTION_H
#define VX_DEVICE_CUDA_KERNELS_ATTENTION_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vx_k_attention {
    void *out;
    const void *q, *k, *v;
    int64_t sq, skv, heads, kv_heads, head_dim;
    int64_t out_row, out_head, q_row, q_head, k_row, k_head, v_row, v_head; // strides
    int64_t batch, out_batch, q_batch, k_batch, v_batch; // independent sequences and their strides; batch 0 = 1
    float scale;
    bool causal;
    bool f16; // else bf16
} vx_k_attention;

// Hopper: wgmma and TMA, head_dim 64 or 128, not causal. False from _takes: use the general one.
bool vx_k_attention_sm90_takes(const vx_k_attention *a);
cudaError_t vx_k_attention_sm90(const vx_k_attention *a, int multiprocessors, cudaStream_t stream);
// Every architecture from sm_80 on, by mma.sync: head_dim a multiple of 8 up to 256.
cudaError_t vx_k_attention_any(const vx_k_attention *a, cudaStream_t stream);
// The processor's bits (bf16, f16), slowly. One sequence, head_dim up to 256.
bool vx_k_attention_short_takes(const vx_k_attention *a);
cudaError_t vx_k_attention_short(const vx_k_attention *a, cudaStream_t stream);
// f32 data and products (no TF32): q, k, v, out are float.
cudaError_t vx_k_attention_f32(const vx_k_attention *a, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
