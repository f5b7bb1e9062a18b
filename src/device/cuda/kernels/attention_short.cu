// Attention over few keys, all of them in one block of the definition (device/operators.h): the same operations in the same order
// as the processor's, so the same bits. A block of threads takes one query of one head: logits lie side by side in shared memory.
#include "device/cuda/kernels/attention.h"
#include "tensor/mathf_inline.h"

#include <cuda_fp16.h>

enum { THREADS = 128, KEYS = 512, WIDTH = 256, LANES = 32 };

static __device__ __forceinline__ float widened(uint16_t bits, bool f16)
{
    return f16 ? __half2float(__ushort_as_half(bits)) : vx_bf16_to_f32(bits);
}
static __device__ __forceinline__ uint16_t rounded(float x, bool f16)
{
    return f16 ? __half_as_ushort(__float2half_rn(x)) : vx_f32_to_bf16(x);
}

// bf16 products go in pairs, the odd element first.
static __device__ __forceinline__ float dot(const float *q, const uint16_t *k, int width, bool f16)
{
    float sum = 0.0f;
    for (int x = 0; x < width; x++) {
        const int at = f16 ? x : x ^ 1;
        sum = __fmaf_rn(q[at], widened(k[at], f16), sum);
    }
    return sum;
}

static __global__ void __launch_bounds__(THREADS) attend_short(vx_k_attention a)
{
    __shared__ float q[WIDTH], e[KEYS], highest[THREADS / LANES], total;
    const int width = (int)a.head_dim, thread = (int)threadIdx.x;
    const int64_t i = blockIdx.x, head = blockIdx.y, group = head / (a.heads / a.kv_heads);
    const int keys = (int)(a.causal ? i + 1 : a.skv);
    const uint16_t *query = (const uint16_t *)a.q + i * a.q_row + head * a.q_head;
    for (int x = thread; x < width; x += THREADS) q[x] = widened(query[x], a.f16);
    __syncthreads();

    float most = -INFINITY;
    for (int j = thread; j < keys; j += THREADS) {
        const uint16_t *key = (const uint16_t *)a.k + j * a.k_row + group * a.k_head;
        e[j] = __fmul_rn(dot(q, key, width, a.f16), a.scale);
        most = e[j] > most ? e[j] : most;
    }
    for (int o = LANES / 2; o > 0; o /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, o));
    if (thread % LANES == 0) highest[thread / LANES] = most;
    __syncthreads();
    for (int w = 0; w < THREADS / LANES; w++) most = fmaxf(most, highest[w]);

    for (int j = thread; j < keys; j += THREADS) e[j] = vx_expf_inline(__fsub_rn(e[j], most));
    __syncthreads();
    if (thread < LANES) { // 32 sums, then their tree
        float sum = 0.0f;
        for (int j = thread; j < keys; j += LANES) sum = __fadd_rn(sum, e[j]);
        for (int o = LANES / 2; o > 0; o /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, o));
        if (thread == 0) total = sum;
    }
    __syncthreads();

    uint16_t *out = (uint16_t *)a.out + i * a.out_row + head * a.out_head;
    const uint16_t *value = (const uint16_t *)a.v + group * a.v_head;
    for (int x = thread; x < width; x += THREADS) {
        float sum = 0.0f;
        for (int j = 0; j < (keys + 1) / 2 * 2; j++) {
            const int at = a.f16 ? j : j ^ 1;
            if (at >= keys) continue; // the twin of the last: weight zero
            sum = __fmaf_rn(widened(rounded(e[at], a.f16), a.f16), widened(value[at * a.v_row + x], a.f16), sum);
        }
        out[x] = rounded(__fdiv_rn(sum, total), a.f16);
    }
}

bool vx_k_attention_short_takes(const vx_k_attention *a)
{
    return a->skv <= KEYS && a->head_dim <= WIDTH && a->batch <= 1 && a->heads <= 65535;
}

cudaError_t vx_k_attention_short(const vx_k_attention *a, cudaStream_t stream)
{
    if (a->sq <= 0) return cudaSuccess;
    attend_short<<<dim3((unsigned)a->sq, (unsigned)a->heads), THREADS, 0, stream>>>(*a);
    return cudaGetLastError();
}
