// Attention in f32 throughout, by plain fma: what --precision float32 asks for. A block of 256 threads has MQ query rows of one
// head; thread (y, x) of 16 x 16 computes the scores of rows y + 16 i with keys x + 16 j and keeps, of the same rows, columns
// 4 x + 64 c of the result. Keys and values share one buffer, a block of keys at a time.
#include "attention.h"

#include <limits.h>
#include <math.h>

enum { SIDE = 16, THREADS = SIDE * SIDE, QUAD = 4, MOST = 65535 }; // MOST: of a grid's second and third side

// Rows from `rows` on and columns from d on are zeros.
template <int D, int ROWS>
static __device__ __forceinline__ void fetch(float *to, const float *from, int64_t stride, int64_t rows, int d)
{
    constexpr int QUADS = D / QUAD;
    for (int at = threadIdx.x; at < ROWS * QUADS; at += THREADS) {
        const int row = at / QUADS, column = at % QUADS * QUAD;
        float4 four = make_float4(0, 0, 0, 0);
        if (row < rows && column < d) four = *(const float4 *)(from + row * stride + column);
        *(float4 *)(to + row * (D + QUAD) + column) = four;
    }
}

static __device__ __forceinline__ float dot4(float4 a, float4 b, float sum)
{
    return __fmaf_rn(a.w, b.w, __fmaf_rn(a.z, b.z, __fmaf_rn(a.y, b.y, __fmaf_rn(a.x, b.x, sum))));
}
static __device__ __forceinline__ void add4(float4 *sum, float p, float4 v)
{
    sum->x = __fmaf_rn(p, v.x, sum->x);
    sum->y = __fmaf_rn(p, v.y, sum->y);
    sum->z = __fmaf_rn(p, v.z, sum->z);
    sum->w = __fmaf_rn(p, v.w, sum->w);
}
static __device__ __forceinline__ float most_of_row(float x)
{
    for (int o = SIDE / 2; o > 0; o /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, o));
    return x;
}
static __device__ __forceinline__ float sum_of_row(float x)
{
    for (int o = SIDE / 2; o > 0; o /= 2) x = __fadd_rn(x, __shfl_xor_sync(~0u, x, o));
    return x;
}

// Of the thread's rows: result so far, greatest score, sum of weights.
template <int D, int RQ> struct rows {
    float4 out[RQ][D / (SIDE * QUAD)];
    float most[RQ], sum[RQ];
};

template <int D, int RQ> static __device__ __forceinline__ void clear(rows<D, RQ> &r)
{
#pragma unroll
    for (int i = 0; i < RQ; i++) {
#pragma unroll
        for (int c = 0; c < D / (SIDE * QUAD); c++) r.out[i][c] = make_float4(0, 0, 0, 0);
        r.most[i] = -INFINITY;
        r.sum[i] = 0;
    }
}

// Scores of rows y + 16 i with keys x + 16 j; a fma chain over the columns in order.
template <int D, int RQ, int RK>
static __device__ __forceinline__ void meet_keys(float s[RQ][RK], const float *q, const float *k, int d)
{
    constexpr int WIDE = D + QUAD;
#pragma unroll
    for (int i = 0; i < RQ; i++)
#pragma unroll
        for (int j = 0; j < RK; j++) s[i][j] = 0;
#pragma unroll 4
    for (int c = 0; c < d; c += QUAD) {
        float4 mine[RQ];
#pragma unroll
        for (int i = 0; i < RQ; i++) mine[i] = *(const float4 *)(q + SIDE * i * WIDE + c);
#pragma unroll
        for (int j = 0; j < RK; j++) {
            const float4 key = *(const float4 *)(k + SIDE * j * WIDE + c);
#pragma unroll
            for (int i = 0; i < RQ; i++) s[i][j] = dot4(mine[i], key, s[i][j]);
        }
    }
}

// Scores of row i become weights, in shared memory; of the thread's keys 16 j those are seen that lie below `seen`.
template <int D, int RQ, int RK>
static __device__ __forceinline__ void weigh(rows<D, RQ> &r, int i, float s[RK], float *weights, int seen, float scale)
{
    float top = r.most[i];
#pragma unroll
    for (int j = 0; j < RK; j++) {
        s[j] = SIDE * j < seen ? __fmul_rn(s[j], scale) : -INFINITY;
        top = fmaxf(top, s[j]);
    }
    top = most_of_row(top);
    const float correction = r.most[i] == top ? 1.0f : expf(__fsub_rn(r.most[i], top));
    r.most[i] = top;
    float part = 0;
#pragma unroll
    for (int j = 0; j < RK; j++) {
        const float p = expf(__fsub_rn(s[j], top));
        part = __fadd_rn(part, p);
        weights[SIDE * j] = p;
    }
    r.sum[i] = __fmaf_rn(r.sum[i], correction, sum_of_row(part));
#pragma unroll
    for (int c = 0; c < D / (SIDE * QUAD); c++) {
        float4 *const o = &r.out[i][c];
        *o = make_float4(__fmul_rn(o->x, correction), __fmul_rn(o->y, correction), __fmul_rn(o->z, correction),
                         __fmul_rn(o->w, correction));
    }
}

// The weighted sum goes on; a fma chain over the keys in order.
template <int D, int RQ, int MK>
static __device__ __forceinline__ void add_values(rows<D, RQ> &r, const float *weights, const float *v)
{
    constexpr int WIDE = D + QUAD, PWIDE = MK + QUAD;
#pragma unroll 2
    for (int j = 0; j < MK; j += QUAD) {
        float4 p[RQ];
#pragma unroll
        for (int i = 0; i < RQ; i++) p[i] = *(const float4 *)(weights + SIDE * i * PWIDE + j);
#pragma unroll
        for (int c = 0; c < D / (SIDE * QUAD); c++) {
            const float *const at = v + j * WIDE + c * SIDE * QUAD;
            const float4 v0 = *(const float4 *)at, v1 = *(const float4 *)(at + WIDE);
            const float4 v2 = *(const float4 *)(at + 2 * WIDE), v3 = *(const float4 *)(at + 3 * WIDE);
#pragma unroll
            for (int i = 0; i < RQ; i++) {
                add4(&r.out[i][c], p[i].x, v0);
                add4(&r.out[i][c], p[i].y, v1);
                add4(&r.out[i][c], p[i].z, v2);
                add4(&r.out[i][c], p[i].w, v3);
            }
        }
    }
}

template <int D, int RQ>
static __device__ __forceinline__ void store(const rows<D, RQ> &r, const vx_k_attention &a, float *to, int64_t row0, int x)
{
#pragma unroll
    for (int i = 0; i < RQ; i++)
#pragma unroll
        for (int c = 0; c < D / (SIDE * QUAD); c++) {
            const int column = (c * SIDE + x) * QUAD;
            const int64_t row = row0 + SIDE * i;
            const float4 o = r.out[i][c];
            if (row < a.sq && column < a.head_dim)
                *(float4 *)(to + row * a.out_row + column) = make_float4(__fdiv_rn(o.x, r.sum[i]), __fdiv_rn(o.y, r.sum[i]),
                                                                         __fdiv_rn(o.z, r.sum[i]), __fdiv_rn(o.w, r.sum[i]));
        }
}

template <int D, int MQ, int MK>
static __global__ void __launch_bounds__(THREADS) attend(const __grid_constant__ vx_k_attention a)
{
    constexpr int RQ = MQ / SIDE, RK = MK / SIDE, WIDE = D + QUAD, PWIDE = MK + QUAD;
    extern __shared__ __align__(16) float numbers[];
    float *const q = numbers, *const kv = q + MQ * WIDE, *const weights = kv + MK * WIDE;
    const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE, d = (int)a.head_dim;
    const int64_t batch = blockIdx.z, head = blockIdx.y, key_head = head / (a.heads / a.kv_heads);
    const int64_t row0 = (int64_t)(a.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * MQ;
    const int64_t keys = a.causal ? min(a.skv, row0 + MQ) : a.skv;
    const float *const from = (const float *)a.q + batch * a.q_batch + head * a.q_head + row0 * a.q_row;
    const float *const k = (const float *)a.k + batch * a.k_batch + key_head * a.k_head;
    const float *const v = (const float *)a.v + batch * a.v_batch + key_head * a.v_head;
    fetch<D, MQ>(q, from, a.q_row, a.sq - row0, d);
    rows<D, RQ> r;
    clear(r);
    for (int64_t first = 0; first < keys; first += MK) {
        float s[RQ][RK];
        __syncthreads();
        fetch<D, MK>(kv, k + first * a.k_row, a.k_row, a.skv - first, d);
        __syncthreads();
        meet_keys<D, RQ, RK>(s, q + y * WIDE, kv + x * WIDE, d);
        __syncthreads();
        fetch<D, MK>(kv, v + first * a.v_row, a.v_row, a.skv - first, d);
#pragma unroll
        for (int i = 0; i < RQ; i++) {
            const int64_t end = a.causal ? min(a.skv, row0 + y + SIDE * i + 1) : a.skv;
            const int seen = (int)min(end - first - x, (int64_t)MK);
            weigh<D, RQ, RK>(r, i, s[i], weights + (y + SIDE * i) * PWIDE + x, seen, a.scale);
        }
        __syncthreads();
        add_values<D, RQ, MK>(r, weights + y * PWIDE, kv + x * QUAD);
    }
    store<D, RQ>(r, a, (float *)a.out + batch * a.out_batch + head * a.out_head, row0 + y, x);
}

template <int D, int MQ, int MK> static cudaError_t launch(const vx_k_attention *a, cudaStream_t stream)
{
    constexpr int BYTES = ((MQ + MK) * (D + QUAD) + MQ * (MK + QUAD)) * (int)sizeof(float);
    const int64_t tiles = (a->sq + MQ - 1) / MQ;
    const int64_t batch = a->batch ? a->batch : 1;
    if (tiles > INT_MAX || a->heads > MOST || batch > MOST) return cudaErrorInvalidValue;
    const cudaError_t error = cudaFuncSetAttribute(attend<D, MQ, MK>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    if (error != cudaSuccess) return error;
    attend<D, MQ, MK><<<dim3((unsigned)tiles, (unsigned)a->heads, (unsigned)batch), THREADS, BYTES, stream>>>(*a);
    return cudaGetLastError();
}

cudaError_t vx_k_attention_f32(const vx_k_attention *a, cudaStream_t stream)
{
    if (a->head_dim < 8 || a->head_dim > 256 || a->head_dim % 8 != 0) return cudaErrorInvalidValue;
    if (a->head_dim <= 64) return launch<64, 64, 64>(a, stream);
    if (a->head_dim <= 128) return launch<128, 64, 64>(a, stream);
    return launch<256, 32, 32>(a, stream);
}
