// Attention for Hopper by wgmma and TMA, after the design of FlashAttention-3.
//
// A block is one producer warpgroup, of which one thread loads, and GROUPS consumer warpgroups of 64 query rows each. Queries,
// keys and values reach shared memory by TMA in panels of 64 channels (rows of 128 bytes, swizzled); a ring of STAGES tiles of KEYS
// keys and one of values, each tile with a barrier "full" (bytes have arrived) and one "empty" (all readers are done). The
// CLUSTER blocks of a cluster have neighbouring query tiles of one head and share every tile of keys and values: each loads a part
// and multicasts it, so the L2 is read once for all of them.
//
// In a consumer the scores of tile j+1 are being multiplied while the softmax of tile j is computed, and its weighted sum runs
// under the softmax of tile j+1; P stays in registers. The groups take turns in issuing products, so that one's softmax falls under the
// products of the others. Keys go from the last tile to the first: only the first step needs a mask.
//
// Numbers: f32 scores and sums, p = exp2(s*c - m*c) with c = scale * log2(e), p rounded to act for the product; the denominator adds
// the unrounded ones. m is a maximum that may lag: see RISE. One order for every grid: bits depend on shapes and values alone.
#include "attention.h"

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>

#pragma nv_diag_suppress 177 // other architectures compile an empty kernel and use none of its functions

enum { PANEL = 64, ROWS = 64 }; // channels a panel; query rows a consumer group
// The maximum of a row follows the scores only when they exceed it by 2^RISE in weight. Weights up to 64 lose nothing, in f32
// or as bf16 or f16, and the partial output is rarely multiplied again.
enum { RISE = 6 };

struct task {
    void *out;
    int sq, skv, heads, shared; // shared: query heads per key head
    int tiles, items;           // query tiles of a cluster per head; work items in all
    int64_t out_row, out_head, out_batch;
    float scale; // of base 2
};

#define REGISTERS_10(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define REGISTERS_30    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," REGISTERS_10(1) REGISTERS_10(2)
#define REGISTERS_60    REGISTERS_30 REGISTERS_10(3) REGISTERS_10(4) REGISTERS_10(5)
#define REGISTERS_32    REGISTERS_30 "%30,%31"
#define REGISTERS_64    REGISTERS_60 "%60,%61,%62,%63"
#define REGISTERS_80    REGISTERS_60 REGISTERS_10(6) "%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define REGISTERS_88    REGISTERS_60 REGISTERS_10(6) REGISTERS_10(7) "%80,%81,%82,%83,%84,%85,%86,%87"
#define REGISTERS_96    REGISTERS_60 REGISTERS_10(6) REGISTERS_10(7) REGISTERS_10(8) "%90,%91,%92,%93,%94,%95"
#define OPERANDS_8(d, i)                                                                                                      \
    "+f"((d)[i]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3]), "+f"((d)[i + 4]), "+f"((d)[i + 5]), "+f"((d)[i + 6]), \
        "+f"((d)[i + 7])
#define OPERANDS_32(d) OPERANDS_8(d, 0), OPERANDS_8(d, 8), OPERANDS_8(d, 16), OPERANDS_8(d, 24)
#define OPERANDS_64(d) OPERANDS_32(d), OPERANDS_8(d, 32), OPERANDS_8(d, 40), OPERANDS_8(d, 48), OPERANDS_8(d, 56)
#define OPERANDS_80(d) OPERANDS_64(d), OPERANDS_8(d, 64), OPERANDS_8(d, 72)
#define OPERANDS_88(d) OPERANDS_80(d), OPERANDS_8(d, 80)
#define OPERANDS_96(d) OPERANDS_88(d), OPERANDS_8(d, 88)

#define SCORES(n, half, type, a, b, c)                                                                                       \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" #c ", 0;\n"                                                               \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" REGISTERS_##half "}, %" #a ", %" #b    \
                                                                                                       ", p, 1, 1, 0, 0;}\n" \
                 : OPERANDS_##half(s)                                                                                        \
                 : "l"(q), "l"(k), "r"(add))
#define VALUES(n, half, type, a, b, c, d, e)                                                           \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" REGISTERS_##half \
                 "}, {%" #a ",%" #b ",%" #c ",%" #d "}, %" #e ", 1, 1, 1, 1;\n"                        \
                 : OPERANDS_##half(o)                                                                  \
                 : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(v))

// s (+)= 16 channels of 64 queries by KEYS keys, both in shared memory.
template <bool F16, int KEYS> static __device__ __forceinline__ void multiply_scores(float *s, uint64_t q, uint64_t k, int add)
{
    if constexpr (F16 && KEYS == 128) SCORES(128, 64, "f16", 64, 65, 66);
    else if constexpr (F16 && KEYS == 160) SCORES(160, 80, "f16", 80, 81, 82);
    else if constexpr (F16 && KEYS == 176) SCORES(176, 88, "f16", 88, 89, 90);
    else if constexpr (F16 && KEYS == 192) SCORES(192, 96, "f16", 96, 97, 98);
    else if constexpr (KEYS == 128) SCORES(128, 64, "bf16", 64, 65, 66);
    else if constexpr (KEYS == 160) SCORES(160, 80, "bf16", 80, 81, 82);
    else if constexpr (KEYS == 176) SCORES(176, 88, "bf16", 88, 89, 90);
    else SCORES(192, 96, "bf16", 96, 97, 98);
}
// o += weights of 16 keys, in registers, by their D channels in shared memory, channels being next to each other.
template <bool F16, int D> static __device__ __forceinline__ void multiply_values(float *o, const unsigned *p, uint64_t v)
{
    if constexpr (F16 && D == 64) VALUES(64, 32, "f16", 32, 33, 34, 35, 36);
    else if constexpr (F16) VALUES(128, 64, "f16", 64, 65, 66, 67, 68);
    else if constexpr (D == 64) VALUES(64, 32, "bf16", 32, 33, 34, 35, 36);
    else VALUES(128, 64, "bf16", 64, 65, 66, 67, 68);
}
// Nothing that reads or writes these registers moves across.
template <int COUNT> static __device__ __forceinline__ void hold(float *r)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(r[i])::"memory");
}
static __device__ __forceinline__ void products_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
static __device__ __forceinline__ void products_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
template <int PENDING> static __device__ __forceinline__ void products_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(PENDING) : "memory");
}
// A matrix in rows of 128 swizzled bytes, groups of eight rows 1024 bytes apart. `next`: bytes from one panel of 64 to the next
// where the contiguous direction is not the summed one.
static __device__ __forceinline__ uint64_t matrix(unsigned address, unsigned next)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(next >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

static __device__ __forceinline__ unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}
static __device__ __forceinline__ void barrier_init(unsigned barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals) : "memory");
}
static __device__ __forceinline__ void barrier_expect(unsigned barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity)
{
    asm volatile("{.reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again;}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}
static __device__ __forceinline__ void barrier_arrive_here(unsigned barrier, int lane)
{
    if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}
// One arrival from this warp at the barrier of every block of the cluster.
template <int CLUSTER> static __device__ __forceinline__ void barrier_arrive(unsigned barrier, int lane)
{
    if (lane < CLUSTER)
        asm volatile("{.reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1;\n"
                     "mbarrier.arrive.shared::cluster.b64 _, [remote];}\n" ::"r"(barrier),
                     "r"(lane)
                     : "memory");
}
static __device__ __forceinline__ void turn_wait(int group)
{
    asm volatile("bar.sync %0, 256;\n" ::"r"(group + 1) : "memory");
}
static __device__ __forceinline__ void turn_pass(int group)
{
    asm volatile("bar.arrive %0, 256;\n" ::"r"(group + 1) : "memory");
}
// A box of the tensor at (channel, row, head, batch), zeros outside of it.
static __device__ __forceinline__ void load(unsigned to, const CUtensorMap *map, unsigned barrier, int channel, int row, int head,
                                            int batch)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];\n" ::"r"(
            to),
        "l"(map), "r"(barrier), "r"(channel), "r"(row), "r"(head), "r"(batch)
        : "memory");
}
static __device__ __forceinline__ void load_for_all(unsigned to, const CUtensorMap *map, unsigned barrier, int channel, int row,
                                                    int head, int batch, unsigned blocks)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%3, %4, %5, %6}], [%2], %7;\n" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(channel), "r"(row), "r"(head), "r"(batch), "h"((uint16_t)blocks)
                 : "memory");
}
static __device__ __forceinline__ void cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}

static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}
// Two numbers rounded to act, the first in the low half.
template <bool F16> static __device__ __forceinline__ unsigned pack(float low, float high)
{
    unsigned r;
    if (F16) asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(r) : "f"(high), "f"(low));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

// Position in a ring of STAGES tiles: the parity flips with each round.
struct ring {
    int stage;
    unsigned parity;
};
template <int STAGES> static __device__ __forceinline__ void advance(struct ring *r)
{
    if (++r->stage == STAGES) {
        r->stage = 0;
        r->parity ^= 1;
    }
}

// A thread of a group has rows lane/4 and lane/4 + 8 of its warp's 16, and in each every column 8j + 2(lane%4) + {0, 1}:
// x[4j], x[4j+1] of the first, x[4j+2], x[4j+3] of the second.
struct softmax {
    float m[2], l[2]; // maximum of scores; this thread's part of the denominator
};

// The greatest score of each row, the same in its four threads.
template <int KEYS> static __device__ __forceinline__ void row_maximum(float most[2], const float *s)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float a = fmaxf(s[2 * r], s[2 * r + 1]), b = fmaxf(s[2 * r + 4], s[2 * r + 5]);
#pragma unroll
        for (int j = 2; j < KEYS / 8; j++) {
            if (j % 2 == 0) a = fmaxf(a, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
            else b = fmaxf(b, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
        }
        a = fmaxf(a, b);
        a = fmaxf(a, __shfl_xor_sync(~0u, a, 1));
        most[r] = fmaxf(a, __shfl_xor_sync(~0u, a, 2));
    }
}
// s becomes the weights; l grows by them.
template <int KEYS> static __device__ __forceinline__ void weights(float *s, struct softmax *x, float scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float shift = __fmul_rn(-x->m[r], scale), a = 0, b = 0;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
            s[4 * j + 2 * r] = exp2_fast(__fmaf_rn(s[4 * j + 2 * r], scale, shift));
            s[4 * j + 2 * r + 1] = exp2_fast(__fmaf_rn(s[4 * j + 2 * r + 1], scale, shift));
            a = __fadd_rn(a, s[4 * j + 2 * r]);
            b = __fadd_rn(b, s[4 * j + 2 * r + 1]);
        }
        x->l[r] = __fadd_rn(x->l[r], __fadd_rn(a, b));
    }
}

template <bool F16, int D, int KEYS, int GROUPS, int CLUSTER, int STAGES, bool TURNS>
__global__ __launch_bounds__(128 * (GROUPS + 1), 1) void attend(const __grid_constant__ CUtensorMap q_map,
                                                                const __grid_constant__ CUtensorMap k_map,
                                                                const __grid_constant__ CUtensorMap v_map, const struct task t)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int PANELS = D / PANEL, Q_BYTES = ROWS * D * 2, TILE_BYTES = KEYS * D * 2, PANEL_BYTES = KEYS * PANEL * 2;
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned queries = shared_address(memory), keys = queries + GROUPS * Q_BYTES, values = keys + STAGES * TILE_BYTES;
    const unsigned barriers = values + STAGES * TILE_BYTES;
    const unsigned q_full = barriers, q_empty = q_full + 8 * GROUPS, k_full = q_empty + 8 * GROUPS, k_empty = k_full + 8 * STAGES,
                   v_full = k_empty + 8 * STAGES, v_empty = v_full + 8 * STAGES;
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), lane = threadIdx.x % 32;
    const int rank = CLUSTER == 1 ? 0 : blockIdx.x % CLUSTER, first = blockIdx.x / CLUSTER, step = gridDim.x / CLUSTER;
    const int tiles = (t.skv + KEYS - 1) / KEYS;

    if (threadIdx.x == 0) {
        for (int i = 0; i < GROUPS; i++) {
            barrier_init(q_full + 8 * i, 1);
            barrier_init(q_empty + 8 * i, 4);
        }
        for (int i = 0; i < STAGES; i++) {
            barrier_init(k_full + 8 * i, 1);
            barrier_init(k_empty + 8 * i, 4 * GROUPS * CLUSTER);
            barrier_init(v_full + 8 * i, 1);
            barrier_init(v_empty + 8 * i, 4 * GROUPS * CLUSTER);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    if (CLUSTER > 1) cluster_sync();
    else __syncthreads();

    if (warpgroup == 0) {
        if constexpr (GROUPS == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;\n");
        else asm volatile("setmaxnreg.dec.sync.aligned.u32 32;\n");
        if (threadIdx.x == 0) {
            struct ring k_ring = { 0, 1 }, v_ring = { 0, 1 };
            unsigned q_parity = 1;
            for (int item = first; item < t.items; item += step) {
                const int head = item / t.tiles % t.heads, batch = item / t.tiles / t.heads, shared = head / t.shared;
                const int row = ((item % t.tiles) * CLUSTER + rank) * GROUPS * ROWS;
                for (int tile = tiles - 1; tile >= -1; tile--) {
                    if (tile >= 0) {
                        const unsigned full = k_full + 8 * k_ring.stage;
                        barrier_wait(k_empty + 8 * k_ring.stage, k_ring.parity);
                        barrier_expect(full, TILE_BYTES);
                        if (CLUSTER > 1)
                            load_for_all(keys + k_ring.stage * TILE_BYTES + rank * PANEL_BYTES, &k_map, full, rank * PANEL,
                                         tile * KEYS, shared, batch, 3);
                        else
                            for (int i = 0; i < PANELS; i++)
                                load(keys + k_ring.stage * TILE_BYTES + i * PANEL_BYTES, &k_map, full, i * PANEL, tile * KEYS,
                                     shared, batch);
                        advance<STAGES>(&k_ring);
                    }
                    if (tile == tiles - 1) {
                        for (int g = 0; g < GROUPS; g++) {
                            barrier_wait(q_empty + 8 * g, q_parity);
                            barrier_expect(q_full + 8 * g, Q_BYTES);
                            for (int i = 0; i < PANELS; i++)
                                load(queries + g * Q_BYTES + i * ROWS * PANEL * 2, &q_map, q_full + 8 * g, i * PANEL,
                                     row + g * ROWS, head, batch);
                        }
                        q_parity ^= 1;
                    } else {
                        const unsigned full = v_full + 8 * v_ring.stage;
                        barrier_wait(v_empty + 8 * v_ring.stage, v_ring.parity);
                        barrier_expect(full, TILE_BYTES);
                        if (CLUSTER > 1)
                            load_for_all(values + v_ring.stage * TILE_BYTES + rank * PANEL_BYTES, &v_map, full, rank * PANEL,
                                         (tile + 1) * KEYS, shared, batch, 3);
                        else
                            for (int i = 0; i < PANELS; i++)
                                load(values + v_ring.stage * TILE_BYTES + i * PANEL_BYTES, &v_map, full, i * PANEL,
                                     (tile + 1) * KEYS, shared, batch);
                        advance<STAGES>(&v_ring);
                    }
                }
            }
        }
    } else {
        if constexpr (GROUPS == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;\n");
        else asm volatile("setmaxnreg.inc.sync.aligned.u32 160;\n");
        const int group = warpgroup - 1, next = group + 1 == GROUPS ? 0 : group + 1;
        const unsigned my_queries = queries + group * Q_BYTES;
        struct ring k_ring = { 0, 0 }, v_ring = { 0, 0 };
        unsigned q_parity = 0;
        float o[D / 2], s[KEYS / 2];
        unsigned p[KEYS / 4];
        if (TURNS && group == GROUPS - 1) turn_pass(0);

        for (int item = first; item < t.items; item += step) {
            struct softmax x;
            barrier_wait(q_full + 8 * group, q_parity);
            q_parity ^= 1;
            barrier_wait(k_full + 8 * k_ring.stage, k_ring.parity);
            hold<KEYS / 2>(s);
            products_begin();
#pragma unroll
            for (int i = 0; i < D / 16; i++)
                multiply_scores<F16, KEYS>(s, matrix(my_queries + i / 4 * ROWS * PANEL * 2 + i % 4 * 32, 0),
                                           matrix(keys + k_ring.stage * TILE_BYTES + i / 4 * PANEL_BYTES + i % 4 * 32, 0), i > 0);
            products_commit();
            products_wait<0>();
            hold<KEYS / 2>(s);
            barrier_arrive<CLUSTER>(k_empty + 8 * k_ring.stage, lane);
            advance<STAGES>(&k_ring);
            if (tiles == 1) barrier_arrive_here(q_empty + 8 * group, lane);
            const int left = t.skv - (tiles - 1) * KEYS - 2 * (lane % 4);
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (8 * j + i % 2 >= left) s[4 * j + i] = -INFINITY;
            row_maximum<KEYS>(x.m, s);
            x.l[0] = x.l[1] = 0;
            weights<KEYS>(s, &x, t.scale);
#pragma unroll
            for (int i = 0; i < KEYS / 4; i++) p[i] = pack<F16>(s[2 * i], s[2 * i + 1]);
#pragma unroll
            for (int i = 0; i < D / 2; i++) o[i] = 0;

            for (int tile = tiles - 2; tile >= 0; tile--) {
                barrier_wait(k_full + 8 * k_ring.stage, k_ring.parity);
                if (TURNS) turn_wait(group);
                hold<KEYS / 2>(s);
                products_begin();
#pragma unroll
                for (int i = 0; i < D / 16; i++)
                    multiply_scores<F16, KEYS>(s, matrix(my_queries + i / 4 * ROWS * PANEL * 2 + i % 4 * 32, 0),
                                               matrix(keys + k_ring.stage * TILE_BYTES + i / 4 * PANEL_BYTES + i % 4 * 32, 0),
                                               i > 0);
                products_commit();
                barrier_wait(v_full + 8 * v_ring.stage, v_ring.parity);
                hold<D / 2>(o);
                products_begin();
#pragma unroll
                for (int i = 0; i < KEYS / 16; i++)
                    multiply_values<F16, D>(o, p + 4 * i,
                                            matrix(values + v_ring.stage * TILE_BYTES + i * 16 * PANEL * 2, PANEL_BYTES));
                products_commit();
                if (TURNS) turn_pass(next);
                products_wait<1>();
                hold<KEYS / 2>(s);
                barrier_arrive<CLUSTER>(k_empty + 8 * k_ring.stage, lane);
                advance<STAGES>(&k_ring);
                if (tile == 0) barrier_arrive_here(q_empty + 8 * group, lane);

                float most[2], fall[2];
                row_maximum<KEYS>(most, s);
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const bool rises = __fmul_rn(__fsub_rn(most[r], x.m[r]), t.scale) > RISE;
                    fall[r] = rises ? exp2_fast(__fmul_rn(__fsub_rn(x.m[r], most[r]), t.scale)) : 1.0f;
                    x.m[r] = rises ? most[r] : x.m[r];
                    x.l[r] = __fmul_rn(x.l[r], fall[r]);
                }
                weights<KEYS>(s, &x, t.scale);
                products_wait<0>();
                hold<D / 2>(o);
                hold<KEYS / 2>(s);
                barrier_arrive<CLUSTER>(v_empty + 8 * v_ring.stage, lane);
                advance<STAGES>(&v_ring);
                if (__any_sync(~0u, fall[0] != 1.0f || fall[1] != 1.0f)) {
#pragma unroll
                    for (int i = 0; i < D / 2; i++) o[i] = __fmul_rn(o[i], fall[i / 2 % 2]);
                }
#pragma unroll
                for (int i = 0; i < KEYS / 4; i++) p[i] = pack<F16>(s[2 * i], s[2 * i + 1]);
            }

            barrier_wait(v_full + 8 * v_ring.stage, v_ring.parity);
            hold<D / 2>(o);
            products_begin();
#pragma unroll
            for (int i = 0; i < KEYS / 16; i++)
                multiply_values<F16, D>(o, p + 4 * i,
                                        matrix(values + v_ring.stage * TILE_BYTES + i * 16 * PANEL * 2, PANEL_BYTES));
            products_commit();
            float inverse[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float l = x.l[r];
                l = __fadd_rn(l, __shfl_xor_sync(~0u, l, 1));
                l = __fadd_rn(l, __shfl_xor_sync(~0u, l, 2));
                inverse[r] = __frcp_rn(l);
            }
            products_wait<0>();
            hold<D / 2>(o);
            barrier_arrive<CLUSTER>(v_empty + 8 * v_ring.stage, lane);
            advance<STAGES>(&v_ring);

            // Four threads have the eight columns of a group two by two; after an exchange each has all eight of every fourth group.
            const int head = item / t.tiles % t.heads, batch = item / t.tiles / t.heads, of4 = lane % 4;
            const int row =
                (((item % t.tiles) * CLUSTER + rank) * GROUPS + group) * ROWS + threadIdx.x % 128 / 32 * 16 + lane / 4;
            uint16_t *out = (uint16_t *)t.out + batch * t.out_batch + head * t.out_head + row * t.out_row + of4 * 8;
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int i = 0; i < D / 32; i++) {
                    unsigned w[4];
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        w[j] = pack<F16>(__fmul_rn(o[16 * i + 4 * j + 2 * r], inverse[r]),
                                         __fmul_rn(o[16 * i + 4 * j + 2 * r + 1], inverse[r]));
#pragma unroll
                    for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
                        for (int j = 0; j < 4; j++)
                            if (!(j & bit)) {
                                const unsigned got = __shfl_xor_sync(~0u, of4 & bit ? w[j] : w[j + bit], bit);
                                if (of4 & bit) w[j] = got;
                                else w[j + bit] = got;
                            }
                    if (row + 8 * r < t.sq) *(uint4 *)(out + 8 * r * t.out_row + 32 * i) = make_uint4(w[0], w[1], w[2], w[3]);
                }
        }
    }
    if (CLUSTER > 1) cluster_sync(); // a neighbour may still write into this block's memory
#endif
}

static bool multiple(int64_t stride, int64_t count)
{
    return stride % 8 == 0 && stride >= 0 && (count == 1 || (stride > 0 && stride < (int64_t)1 << 38));
}
// A program that was built without sm_90a has the empty kernel, which takes a few registers.
static bool compiled(void)
{
    enum { FEW = 64 };
    cudaFuncAttributes found;
    const cudaError_t error = cudaFuncGetAttributes(&found, (const void *)attend<false, 128, 176, 2, 2, 2, true>);
    if (error != cudaSuccess) (void)cudaGetLastError();
    return error == cudaSuccess && found.numRegs > FEW;
}
extern "C" bool vx_k_attention_sm90_takes(const vx_k_attention *a)
{
    const int64_t batch = a->batch ? a->batch : 1, limit = (int64_t)1 << 30;
    const uintptr_t addresses = (uintptr_t)a->out | (uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->v;
    return !a->causal && (a->head_dim == 64 || a->head_dim == 128) && a->scale > 0 && addresses % 16 == 0 && a->sq > 0 &&
           a->skv > 0 && a->sq < limit && a->skv < limit && a->heads > 0 && a->kv_heads > 0 && a->heads % a->kv_heads == 0 &&
           batch > 0 && (a->sq / 64 + 4) * a->heads * batch < limit && multiple(a->q_row, a->sq) &&
           multiple(a->q_head, a->heads) && multiple(a->q_batch, batch) && multiple(a->k_row, a->skv) &&
           multiple(a->k_head, a->kv_heads) && multiple(a->k_batch, batch) && multiple(a->v_row, a->skv) &&
           multiple(a->v_head, a->kv_heads) && multiple(a->v_batch, batch) && multiple(a->out_row, a->sq) &&
           multiple(a->out_head, a->heads) && multiple(a->out_batch, batch) && compiled();
}

typedef CUresult encode(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                        const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                        CUtensorMapFloatOOBfill);

static cudaError_t describe(CUtensorMap *map, encode *make, const vx_k_attention *a, const void *data, int64_t rows,
                            int64_t heads, int64_t row, int64_t head, int64_t next, int box)
{
    const int64_t batch = a->batch ? a->batch : 1;
    const cuuint64_t shape[4] = { (cuuint64_t)a->head_dim, (cuuint64_t)rows, (cuuint64_t)heads, (cuuint64_t)batch };
    // The step along a direction of one element is never taken, but has to look like one.
    const cuuint64_t strides[3] = { (cuuint64_t)(rows > 1 ? 2 * row : 2 * a->head_dim),
                                    (cuuint64_t)(heads > 1 ? 2 * head : 2 * a->head_dim),
                                    (cuuint64_t)(batch > 1 ? 2 * next : 2 * a->head_dim) };
    const cuuint32_t boxes[4] = { PANEL, (cuuint32_t)box, 1, 1 }, ones[4] = { 1, 1, 1, 1 };
    CUresult result = make(map, a->f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)data,
                           shape, strides, boxes, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

template <bool F16, int D, int KEYS, int GROUPS, int CLUSTER, int STAGES, bool TURNS>
static cudaError_t launch(const vx_k_attention *a, int multiprocessors, cudaStream_t stream)
{
    void *entry = NULL;
    cudaDriverEntryPointQueryResult found;
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    if (error != cudaSuccess) return error;
    if (found != cudaDriverEntryPointSuccess || !entry) return cudaErrorNotSupported;

    CUtensorMap q, k, v;
    encode *make = (encode *)entry;
    error = describe(&q, make, a, a->q, a->sq, a->heads, a->q_row, a->q_head, a->q_batch, ROWS);
    if (error == cudaSuccess) error = describe(&k, make, a, a->k, a->skv, a->kv_heads, a->k_row, a->k_head, a->k_batch, KEYS);
    if (error == cudaSuccess) error = describe(&v, make, a, a->v, a->skv, a->kv_heads, a->v_row, a->v_head, a->v_batch, KEYS);
    if (error != cudaSuccess) return error;

    struct task t;
    const int rows = GROUPS * ROWS * CLUSTER, clusters = multiprocessors < CLUSTER ? 1 : multiprocessors / CLUSTER;
    t.out = a->out;
    t.sq = (int)a->sq;
    t.skv = (int)a->skv;
    t.heads = (int)a->heads;
    t.shared = (int)(a->heads / a->kv_heads);
    t.tiles = (t.sq + rows - 1) / rows;
    t.items = (int)(t.tiles * a->heads * (a->batch ? a->batch : 1));
    t.out_row = a->out_row;
    t.out_head = a->out_head;
    t.out_batch = a->out_batch;
    t.scale = a->scale * 1.4426950408889634f;

    const size_t bytes = GROUPS * ROWS * D * 2 + 2 * STAGES * KEYS * D * 2 + 8 * (2 * GROUPS + 4 * STAGES);
    void (*kernel)(CUtensorMap, CUtensorMap, CUtensorMap, struct task) = attend<F16, D, KEYS, GROUPS, CLUSTER, STAGES, TURNS>;
    error = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (error != cudaSuccess) return error;
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = CLUSTER;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(CLUSTER * (t.items < clusters ? t.items : clusters));
    config.blockDim = dim3(128 * (GROUPS + 1));
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    void *arguments[] = { &q, &k, &v, &t };
    return cudaLaunchKernelExC(&config, (const void *)kernel, arguments);
}
extern "C" cudaError_t vx_k_attention_sm90(const vx_k_attention *a, int multiprocessors, cudaStream_t stream)
{
    if (a->head_dim == 64)
        return a->f16 ? launch<true, 64, 128, 3, 1, 2, true>(a, multiprocessors, stream)
                      : launch<false, 64, 128, 3, 1, 2, true>(a, multiprocessors, stream);
    return a->f16 ? launch<true, 128, 176, 2, 2, 2, true>(a, multiprocessors, stream)
                  : launch<false, 128, 176, 2, 2, 2, true>(a, multiprocessors, stream);
}
