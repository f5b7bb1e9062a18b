// Attention that is too small for speed to matter, by the definition (device/operators.h): the same operations in the same order as
// the processor's, so the same bits. A block of threads takes one query of one head; the logits of a block of keys lie side by side
// in shared memory.
#include "device/cuda/kernels/attention.h"
#include "tensor/mathf_inline.h"

#include <cuda_fp16.h>

enum { THREADS = 128, KEYS = 512, WIDTH = 256, LANES = 32, MOST = 65535 }; // MOST: blocks of threads along y and z

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

// The greatest of x over the block of threads, all of which get it.
static __device__ float most_of_all(float x)
{
    __shared__ float highest[THREADS / LANES];
    const int thread = (int)threadIdx.x;
    for (int o = LANES / 2; o > 0; o /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, o));
    if (thread % LANES == 0) highest[thread / LANES] = x;
    __syncthreads();
    for (int w = 0; w < THREADS / LANES; w++) x = fmaxf(x, highest[w]);
    return x;
}

// 32 sums and their tree, in the first warp; the others get 0.
static __device__ float sum_of(const float *e, int keys)
{
    const int thread = (int)threadIdx.x;
    if (thread >= LANES) return 0.0f;
    float sum = 0.0f;
    for (int j = thread; j < keys; j += LANES) sum = __fadd_rn(sum, e[j]);
    for (int o = LANES / 2; o > 0; o /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, o));
    return sum;
}

static __global__ void __launch_bounds__(THREADS) attend_short(vx_k_attention a)
{
    __shared__ float q[WIDTH], e[KEYS], total;
    const int width = (int)a.head_dim, thread = (int)threadIdx.x;
    const int64_t i = blockIdx.x, head = blockIdx.y, item = blockIdx.z, group = head / (a.heads / a.kv_heads);
    const int64_t all = a.causal ? i + 1 : a.skv;
    const uint16_t *query = (const uint16_t *)a.q + item * a.q_batch + i * a.q_row + head * a.q_head;
    for (int x = thread; x < width; x += THREADS) q[x] = widened(query[x], a.f16);
    __syncthreads();

    float most = -INFINITY, weight = 0.0f, out[WIDTH / THREADS] = { 0 }; // weight: the denominator, in the first warp
    for (int64_t first = 0; first < all; first += KEYS) {
        const int keys = (int)(all - first < KEYS ? all - first : KEYS);
        const uint16_t *key = (const uint16_t *)a.k + item * a.k_batch + first * a.k_row + group * a.k_head;
        float now = most;
        for (int j = thread; j < keys; j += THREADS) {
            e[j] = __fmul_rn(dot(q, key + j * a.k_row, width, a.f16), a.scale);
            now = e[j] > now ? e[j] : now;
        }
        now = most_of_all(now);
        const float correction = most == now ? 1.0f : vx_expf_inline(__fsub_rn(most, now));
        most = now;
        for (int j = thread; j < keys; j += THREADS) e[j] = vx_expf_inline(__fsub_rn(e[j], most));
        __syncthreads();
        weight = __fadd_rn(__fmul_rn(weight, correction), sum_of(e, keys));

        const uint16_t *value = (const uint16_t *)a.v + item * a.v_batch + first * a.v_row + group * a.v_head;
        for (int n = 0; n < WIDTH / THREADS; n++) {
            const int x = thread + n * THREADS;
            if (x >= width) break;
            float sum = first && correction != 1.0f ? __fmul_rn(out[n], correction) : out[n];
            for (int j = 0; j < (keys + 1) / 2 * 2; j++) {
                const int at = a.f16 ? j : j ^ 1;
                if (at >= keys) continue; // the twin of the last: weight zero
                sum = __fmaf_rn(widened(rounded(e[at], a.f16), a.f16), widened(value[at * a.v_row + x], a.f16), sum);
            }
            out[n] = sum;
        }
        __syncthreads(); // e is read
    }
    if (thread == 0) total = weight;
    __syncthreads();
    uint16_t *to = (uint16_t *)a.out + item * a.out_batch + i * a.out_row + head * a.out_head;
    for (int n = 0; n < WIDTH / THREADS && thread + n * THREADS < width; n++)
        to[thread + n * THREADS] = rounded(__fdiv_rn(out[n], total), a.f16);
}

bool vx_k_attention_short_takes(const vx_k_attention *a)
{
    return a->head_dim <= WIDTH && a->heads <= MOST && a->batch <= MOST;
}

cudaError_t vx_k_attention_short(const vx_k_attention *a, cudaStream_t stream)
{
    if (a->sq <= 0) return cudaSuccess;
    attend_short<<<dim3((unsigned)a->sq, (unsigned)a->heads, (unsigned)(a->batch ? a->batch : 1)), THREADS, 0, stream>>>(*a);
    return cudaGetLastError();
}
