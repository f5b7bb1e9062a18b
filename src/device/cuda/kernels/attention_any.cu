// Attention by mma.sync for every architecture from sm_80 on. A block has MT * 16 query rows of one head in each of four warps
// and goes through the keys 64 at a time: scores, softmax, weighted sum, all in registers. Values travel while scores are
// computed, the next keys while the weighted sum is; what this leaves uncovered, the second block on the multiprocessor fills.
//
// Numbers: f32 scores and sums; weights exp2(s*c - m*c), c = scale * log2(e), rounded to act for the product; the denominator
// adds the unrounded ones. Keys come in one order whatever the grid, so the bits depend on shapes and values alone.
#include "attention.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <limits.h>
#include <math.h>

enum { WARPS = 4, THREADS = 32 * WARPS, KEYS = 64, CHUNK = 8, MOST = 65535 }; // MOST: of a grid's second and third side

struct task {
    vx_k_attention a;
    float scale; // > 0, of base 2
    bool negate; // the scale was negative
};

static __device__ __forceinline__ unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}
// 16 bytes to shared memory, zeros where `there` is false.
static __device__ __forceinline__ void copy16(unsigned to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
static __device__ __forceinline__ void copies_begin(void)
{
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}
static __device__ __forceinline__ void copies_end(void)
{
    asm volatile("cp.async.wait_group 0;\n" ::: "memory");
}
static __device__ __forceinline__ void load4(unsigned r[4], unsigned from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}
static __device__ __forceinline__ void load4_turned(unsigned r[4], unsigned from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}
template <bool F16> static __device__ __forceinline__ void multiply(float d[4], const unsigned a[4], unsigned b0, unsigned b1)
{
    if (F16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Two numbers rounded to act, the first in the low half.
template <bool F16> static __device__ __forceinline__ unsigned pack(float low, float high)
{
    unsigned r;
    if (F16) asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(r) : "f"(high), "f"(low));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ int below(int64_t n, int limit)
{
    return n < limit ? (int)n : limit;
}

// ROWS rows of D numbers into shared memory, whose rows are one chunk wider so that eight of them meet in no bank. Zeros where
// there are none. A thread's addresses are sums, not products: the registers belong to the accumulators.
template <int D, int ROWS>
static __device__ __forceinline__ void fetch(unsigned to, const unsigned short *from, int64_t stride, int rows, int d)
{
    constexpr int CHUNKS = D / CHUNK, SIDE = CHUNKS & -CHUNKS, STEP = THREADS / SIDE;
    const int row = threadIdx.x / SIDE, column = threadIdx.x % SIDE * CHUNK;
    const unsigned short *p = from + row * stride + column;
    to += (unsigned)(row * (D + CHUNK) + column) * 2;
#pragma unroll
    for (int i = 0; i < ROWS / STEP; i++) {
#pragma unroll
        for (int j = 0; j < CHUNKS / SIDE; j++)
            copy16(to + (unsigned)(i * STEP * (D + CHUNK) + j * SIDE * CHUNK) * 2, p + j * SIDE * CHUNK,
                   row + i * STEP < rows && column + j * SIDE * CHUNK < d);
        p += STEP * stride;
    }
}

// m16 x n8 accumulators: lane l holds columns 2(l%4), +1 of row l/4 in [0], [1] and of row l/4 + 8 in [2], [3].
template <int MT> struct scores {
    float at[MT][KEYS / 8][4];
};
// Of this lane's rows, [.][0] the first and [.][1] the second of a tile: result so far, greatest score, sum of weights (of the
// lane's own columns until the end).
template <int D, int MT> struct rows {
    float out[MT][D / 8][4], most[MT][2], sum[MT][2];
};

template <int D, int MT> static __device__ __forceinline__ void clear(rows<D, MT> &r)
{
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) r.out[m][n][e] = 0;
        r.most[m][0] = r.most[m][1] = -INFINITY;
        r.sum[m][0] = r.sum[m][1] = 0;
    }
}

// Scores of the warp's queries with the keys; q and k: where this lane's ldmatrix rows begin.
template <int D, int MT, bool F16> static __device__ __forceinline__ void meet_keys(scores<MT> &s, unsigned q, unsigned k)
{
    constexpr int WIDE = D + CHUNK;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) s.at[m][n][e] = 0;
#pragma unroll
    for (int c = 0; c < D / 16; c++) {
        unsigned a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) load4(a[m], q + (m * 16 * WIDE + c * 16) * 2);
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            unsigned b[4];
            load4(b, k + (n * 16 * WIDE + c * 16) * 2);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply<F16>(s.at[m][2 * n], a[m], b[0], b[1]);
                multiply<F16>(s.at[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

template <int MT> static __device__ __forceinline__ void negate(scores<MT> &s)
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) s.at[m][n][e] = -s.at[m][n][e];
}

// Keys from `end` on become invisible to a row; row0: this lane's first row less the first key of the block.
template <int MT> static __device__ __forceinline__ void hide(scores<MT> &s, int row0, int end, bool causal)
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key = n * 8 + (int)(threadIdx.x % 4) * 2 + e % 2, row = row0 + m * 16 + e / 2 * 8;
                if (key >= end || (causal && key > row)) s.at[m][n][e] = -INFINITY;
            }
}

// Scores become weights; what there is of the result is scaled where a maximum grew.
template <int D, int MT> static __device__ __forceinline__ void weigh(scores<MT> &s, rows<D, MT> &r, float scale)
{
    float correction[MT][2];
    bool grew = false;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = r.most[m][h];
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) top = fmaxf(top, fmaxf(s.at[m][n][2 * h], s.at[m][n][2 * h + 1]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            grew |= top != r.most[m][h];
            correction[m][h] = exp2_fast(__fmul_rn(__fsub_rn(r.most[m][h], top), scale));
            r.most[m][h] = top;
            const float less = __fmul_rn(top, scale);
            float part = __fmul_rn(r.sum[m][h], correction[m][h]);
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; e++) {
                    const float p = exp2_fast(__fmaf_rn(s.at[m][n][e], scale, -less));
                    s.at[m][n][e] = p;
                    part = __fadd_rn(part, p);
                }
            r.sum[m][h] = part;
        }
    // A factor of one changes nothing, and after the first blocks maxima seldom grow.
    if (!__any_sync(~0u, grew)) return;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) r.out[m][n][e] = __fmul_rn(r.out[m][n][e], correction[m][e / 2]);
}

// The weighted sum goes on; v: where this lane's ldmatrix rows begin.
template <int D, int MT, bool F16>
static __device__ __forceinline__ void add_values(rows<D, MT> &r, const scores<MT> &s, unsigned v)
{
#pragma unroll
    for (int c = 0; c < KEYS / 16; c++) {
        unsigned a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *p = s.at[m][2 * c + i / 2] + i % 2 * 2;
                a[m][i] = pack<F16>(p[0], p[1]);
            }
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            unsigned b[4];
            load4_turned(b, v + (c * 16 * (D + CHUNK) + n * 16) * 2);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply<F16>(r.out[m][2 * n], a[m], b[0], b[1]);
                multiply<F16>(r.out[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// Result over sum, rounded, to whole lines by way of `staged`: the shared memory of the warp's queries, which nobody else reads.
template <int D, int MT, bool F16>
static __device__ __forceinline__ void store(const rows<D, MT> &r, unsigned short *staged, unsigned short *to, int64_t stride,
                                             int64_t count, int d)
{
    constexpr int WIDE = D + CHUNK, CHUNKS = D / CHUNK;
    const int lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float total = r.sum[m][h];
            total = __fadd_rn(total, __shfl_xor_sync(~0u, total, 1));
            total = __fadd_rn(total, __shfl_xor_sync(~0u, total, 2));
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                *(unsigned *)(staged + (m * 16 + h * 8 + lane / 4) * WIDE + n * 8 + lane % 4 * 2) =
                    pack<F16>(__fdiv_rn(r.out[m][n][2 * h], total), __fdiv_rn(r.out[m][n][2 * h + 1], total));
        }
    __syncwarp();
#pragma unroll 4
    for (int at = lane; at < MT * 16 * CHUNKS; at += 32) {
        const int row = at / CHUNKS, column = at % CHUNKS * CHUNK;
        if (row < count && column < d) *(uint4 *)(to + row * stride + column) = *(const uint4 *)(staged + row * WIDE + column);
    }
}

template <int D, int MT, bool F16>
static __global__ void __launch_bounds__(THREADS, (D <= 128 ? 2 : 1)) attend(const __grid_constant__ struct task t)
{
    constexpr int ROWS = WARPS * MT * 16, WIDE = D + CHUNK;
    extern __shared__ __align__(128) unsigned short memory[];
    const int lane = threadIdx.x % 32, mine = threadIdx.x / 32 * MT * 16, d = (int)t.a.head_dim; // mine: the warp's first row
    const int64_t batch = blockIdx.z, head = blockIdx.y, key_head = head / (t.a.heads / t.a.kv_heads);
    // The last rows see the most keys when causal: they begin first.
    const int64_t row0 = (int64_t)(t.a.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * ROWS;
    const int64_t keys = t.a.causal ? min(t.a.skv, row0 + ROWS) : t.a.skv;
    const int blocks = (int)((keys + KEYS - 1) / KEYS);
    const unsigned q_shared = shared_address(memory), k_shared = q_shared + ROWS * WIDE * 2,
                   v_shared = k_shared + KEYS * WIDE * 2;
    const unsigned short *const q = (const unsigned short *)t.a.q + batch * t.a.q_batch + head * t.a.q_head;
    const unsigned short *k = (const unsigned short *)t.a.k + batch * t.a.k_batch + key_head * t.a.k_head;
    const unsigned short *v = (const unsigned short *)t.a.v + batch * t.a.v_batch + key_head * t.a.v_head;

    fetch<D, ROWS>(q_shared, q + row0 * t.a.q_row, t.a.q_row, below(t.a.sq - row0, ROWS), d);
    fetch<D, KEYS>(k_shared, k, t.a.k_row, below(t.a.skv, KEYS), d);
    copies_begin();
    const unsigned q_lane = q_shared + (unsigned)((mine + lane % 16) * WIDE + lane / 16 * 8) * 2;
    const unsigned k_lane = k_shared + (unsigned)((lane % 8 + lane / 16 * 8) * WIDE + lane / 8 % 2 * 8) * 2;
    const unsigned v_lane = v_shared + (unsigned)(lane % 16 * WIDE + lane / 16 * 8) * 2;
    rows<D, MT> r;
    clear(r);
    for (int block = 0; block < blocks; block++) {
        const int64_t first = (int64_t)block * KEYS;
        copies_end();
        __syncthreads();
        fetch<D, KEYS>(v_shared, v, t.a.v_row, below(t.a.skv - first, KEYS), d);
        copies_begin();
        v += KEYS * t.a.v_row;
        scores<MT> s;
        meet_keys<D, MT, F16>(s, q_lane, k_lane);
        copies_end();
        __syncthreads();
        if (block + 1 < blocks) {
            k += KEYS * t.a.k_row;
            fetch<D, KEYS>(k_shared, k, t.a.k_row, below(t.a.skv - first - KEYS, KEYS), d);
            copies_begin();
        }
        if (t.negate) negate<MT>(s);
        if (first + KEYS > t.a.skv || (t.a.causal && first + KEYS - 1 > row0 + mine))
            hide<MT>(s, (int)(row0 - first) + mine + lane / 4, below(t.a.skv - first, KEYS), t.a.causal);
        weigh<D, MT>(s, r, t.scale);
        add_values<D, MT, F16>(r, s, v_lane);
    }
    unsigned short *const out = (unsigned short *)t.a.out + batch * t.a.out_batch + head * t.a.out_head;
    store<D, MT, F16>(r, memory + mine * WIDE, out + (row0 + mine) * t.a.out_row, t.a.out_row, t.a.sq - row0 - mine, d);
}

template <int D, bool F16> static cudaError_t launch(const struct task *t, cudaStream_t stream)
{
    constexpr int MT = D <= 128 ? 2 : 1, ROWS = WARPS * MT * 16, BYTES = (ROWS + 2 * KEYS) * (D + CHUNK) * 2;
    const int64_t tiles = (t->a.sq + ROWS - 1) / ROWS;
    const int64_t batch = t->a.batch ? t->a.batch : 1;
    if (tiles > INT_MAX || t->a.heads > MOST || batch > MOST) return cudaErrorInvalidValue;
    const cudaError_t error = cudaFuncSetAttribute(attend<D, MT, F16>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    if (error != cudaSuccess) return error;
    attend<D, MT, F16><<<dim3((unsigned)tiles, (unsigned)t->a.heads, (unsigned)batch), THREADS, BYTES, stream>>>(*t);
    return cudaGetLastError();
}

template <bool F16> static cudaError_t launch_width(const struct task *t, cudaStream_t stream)
{
    const int64_t d = t->a.head_dim;
    if (d <= 32) return launch<32, F16>(t, stream);
    if (d <= 64) return launch<64, F16>(t, stream);
    if (d <= 80) return launch<80, F16>(t, stream);
    if (d <= 128) return launch<128, F16>(t, stream);
    if (d <= 192) return launch<192, F16>(t, stream);
    return launch<256, F16>(t, stream);
}

cudaError_t vx_k_attention_any(const vx_k_attention *a, cudaStream_t stream)
{
    if (a->head_dim < 8 || a->head_dim > 256 || a->head_dim % 8 != 0) return cudaErrorInvalidValue;
    struct task t = { *a, fabsf(a->scale) * 1.44269504088896341f, a->scale < 0 };
    return a->f16 ? launch_width<true>(&t, stream) : launch_width<false>(&t, stream);
}
