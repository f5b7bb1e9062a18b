// Convolutions of f32 on matrix units, by parts (conv_parts_inside.h): a product is high high + high low + low high.
//
// The sum. k goes through blocks of 32 channels (outer) and taps (inner); one of each is a step. A step's 32 products are added up
// by the matrix unit, from zero, 16 channels at a time: with low parts of the samples, then of the weights, then of neither. Steps
// are added in order, rounded to nearest: the matrix unit cuts its sums off, and would do so to the long sum. After every 64 steps
// the sum is put aside and begins anew; those segments are added in order. Whether one block runs all segments or each its own
// (and another kernel adds them), how the output is tiled, where a position stands: nothing changes a bit.
// On Hopper, tiles of warpgroups: the products with low parts of the samples have one sum for the whole segment, which the matrix
// unit may cut off, being 2^-11 of the other. It is added at the segment's end. Those tiles have bits of their own.
//
// Which line of samples a position meets with a tap is looked up: a table in shared memory, made once for a block.
#include "device/cuda/kernels/conv_parts_inside.h"
#include "device/cuda/kernels/mma_inside.h"
#include "device/cuda/kernels/wgmma_inside.h"

#pragma nv_diag_suppress 177 // other architectures compile empty kernels and use none of their constants

namespace
{

// ---- products ----
// A block's tile of channels x positions, and a warp's. Tiles of 16 channels a warp are Hopper's: four warps multiply together, and
// four more fetch.
template <int BM_, int BN_, int WM_, int WN_, int STAGES_, int BLOCKS_> struct shape {
    static constexpr int BM = BM_, BN = BN_, WM = WM_, WN = WN_, STAGES = STAGES_, BLOCKS = BLOCKS_;
    static constexpr bool GROUPS = WM == 16;
    static constexpr int ACROSS = BN / WN, THREADS = 32 * (BM / WM) * ACROSS; // that multiply
    static constexpr int FETCHERS = GROUPS ? 128 : THREADS, ALL = GROUPS ? THREADS + FETCHERS : THREADS;
    static constexpr int MT = WM / 16, NT = WN / 8; // tiles of the instruction
    static constexpr int LINES = FETCHERS / PIECES; // that the block fetches at a time
    static constexpr int ROWS_B = BN / LINES;
    static constexpr int SLOT = (BM + BN) * 128, RING = STAGES * SLOT, ASIDE = BM * BN * (int)sizeof(float);
    static_assert(BM % LINES == 0 && BN % LINES == 0 && LINES % 8 == 0 && WN % 16 == 0, "");
};

// (sum * 2^power + bias) + residual
__device__ inline float finish(const vx_k_conv &c, float sum, int power, const float *bias, const float *residual)
{
    float y = ldexpf(sum, power);
    if (bias) y = y + *bias;
    if (residual) y = y + *residual;
    return y;
}

// Two neighbouring positions of a channel, n and n + 1 of the plane.
__device__ inline void write(const vx_k_conv &c, const dividers &by, const place &p, int o, int power, const float *bias, int n,
                             bool wide, float s0, float s1)
{
    const float sum[2] = { s0, s1 };
    const int64_t out = o * c.out_channel + p.frame * c.out_frame;
    const int64_t residual = o * c.residual_channel + p.frame * c.residual_frame;
    unsigned column;
    if (n >= p.count) return;
    if (wide) {
        const unsigned row = quotient((unsigned)n, by.width, &column);
        float2 r = { 0.0f, 0.0f };
        if (c.residual) r = *reinterpret_cast<const float2 *>(c.residual + residual + row * c.residual_row + column);
        const float2 y = { finish(c, s0, power, bias, c.residual ? &r.x : nullptr),
                           finish(c, s1, power, bias, c.residual ? &r.y : nullptr) };
        *reinterpret_cast<float2 *>(c.out + out + row * c.out_row + column) = y;
        return;
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        if (n + j >= p.count) continue;
        unsigned row = 0;
        if (c.phases) column = (unsigned)((n + j) * c.phases + p.phase);
        else row = quotient((unsigned)(n + j), by.width, &column);
        const float *r = c.residual ? c.residual + residual + row * c.residual_row + column : nullptr;
        c.out[out + row * c.out_row + column] = finish(c, sum[j], power, bias, r);
    }
}

// Line of the samples' first block of channels for a tap that the plane has and a position of the tile; -1: zeros.
template <typename S>
__device__ inline void make_table(const vx_k_conv &c, const dividers &by, const parts &from, const place &p, int *table)
{
    for (int i = (int)threadIdx.x; i < p.taps * S::BN; i += S::ALL) {
        const column at = column_at(c, by, p, p.first + i % S::BN);
        const tap_place t = tap_of(c, p.skip + i / S::BN, by);
        const int y = resolve(at.row + t.ky, c.rows, c.reflect), x = resolve(at.column + t.kx * p.delta, c.columns, c.reflect);
        const int frame = p.frame * c.stride[0] + t.kt - c.pad[0];
        table[i] = at.row == NOWHERE || y < 0 || x < 0 ? -1 : ((frame * c.rows + y) * c.columns + x) * from.blocks;
    }
}

// Where the next step's lines come from.
struct source {
    const uint4 *w; // of the tile's first channel
    int tap, block;
    const int *table;
};

__device__ inline source source_at(const vx_k_conv &c, const parts &from, const place &p, int first, int channel,
                                   const int *table)
{
    source s = { nullptr, p.taps ? first % p.taps : 0, p.taps ? first / p.taps : 0, table };
    const taps_of_plane l = plane_taps(c);
    const int64_t row = ((int64_t)p.phase * from.blocks + s.block) * l.most + s.tap + (c.phases ? 0 : p.skip - l.skip);
    s.w = from.w + (row * c.co + channel) * PIECES;
    return s;
}

__device__ inline void advance(const vx_k_conv &c, const place &p, source &s)
{
    s.w += (size_t)c.co * PIECES;
    if (++s.tap < p.taps) return;
    s.tap = 0;
    s.block++;
    s.w += (size_t)(plane_taps(c).most - p.taps) * c.co * PIECES;
}

template <typename S> __device__ inline void fetch_weights(const source &s, int thread, int channels, unsigned slot)
{
    const int line = thread / PIECES;
#pragma unroll
    for (int i = 0; i < S::BM / S::LINES; i++) {
        const bool there = line + i * S::LINES < channels;
        copy_16_once(slot + (unsigned)(thread + i * S::FETCHERS) * 16, s.w + (there ? thread + i * S::FETCHERS : 0), there);
    }
}
template <typename S> __device__ inline void fetch_samples(const parts &from, const source &s, int thread, unsigned slot)
{
    const int line = thread / PIECES, piece = thread % PIECES;
    const unsigned to = slot + S::BM * 128 + (unsigned)(line * PIECES + (piece ^ line % 8)) * 16;
    const int *table = s.table + s.tap * S::BN + line;
#pragma unroll
    for (int i = 0; i < S::ROWS_B; i++) {
        const int at = table[i * S::LINES];
        copy_16(to + i * S::LINES * 128, from.x + (unsigned)((at < 0 ? 0 : at + s.block) * PIECES + piece), at >= 0);
    }
}

// For the low parts of samples.
__device__ inline void divide_by_low(unsigned (&to)[4], const unsigned (&from)[4])
{
    const __half2 by = __halves2half2(__ushort_as_half(0x1000), __ushort_as_half(0x1000)); // 2^-11
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const __half2 h = *reinterpret_cast<const __half2 *>(&from[i]), d = __hmul2(h, by);
        to[i] = *reinterpret_cast<const unsigned *>(&d);
    }
}

template <typename S> __device__ inline void add_to(float (&sum)[S::MT][S::NT][4], const float (&d)[S::MT][S::NT][4])
{
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int n = 0; n < S::NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[m][n][i] = __fadd_rn(sum[m][n][i], d[m][n][i]);
}

// The same step by a warpgroup, whose products go on while the threads do. `low` is the sum with the samples' low parts, of the whole
// segment.
template <typename S>
__device__ inline void multiply_groups(unsigned a, unsigned b, float (&d)[S::NT][4], float (&low)[S::NT][4], bool first)
{
    group_begin();
#pragma unroll
    for (unsigned k = 0; k < 2; k++) {
        group_multiply(d, a + 64 + k * 32, b + k * 32, k > 0);
        group_multiply(d, a + k * 32, b + k * 32, true);
    }
    group_commit();
#pragma unroll
    for (unsigned k = 0; k < 2; k++) group_multiply(low, a + k * 32, b + 64 + k * 32, !first || k > 0);
    group_commit();
}

// One step: sum += the products of 32 channels of a tap.
template <typename S> __device__ inline void multiply(unsigned slot, int warp, int lane, float (&sum)[S::MT][S::NT][4])
{
    const unsigned a = slot + (unsigned)(warp / S::ACROSS * S::WM + lane % 16) * 128;
    const unsigned b = slot + (unsigned)(S::BM + warp % S::ACROSS * S::WN + lane % 8 + lane / 16 * 8) * 128;
    const unsigned turn = (unsigned)lane % 8, half_a = (unsigned)lane / 16, half_b = (unsigned)lane / 8 % 2;
    float d[S::MT][S::NT][4] = {};
#pragma unroll
    for (unsigned k = 0; k < 2; k++) {
        unsigned high[S::MT][4], low[4], x_high[S::NT / 2][4], x_low[S::NT / 2][4];
#pragma unroll
        for (int n = 0; n < S::NT / 2; n++) load_4(x_low[n], b + n * 16 * 128 + ((4 + 2 * k + half_b) ^ turn) * 16);
#pragma unroll
        for (int m = 0; m < S::MT; m++) {
            load_4(high[m], a + m * 16 * 128 + ((2 * k + half_a) ^ turn) * 16);
            divide_by_low(low, high[m]);
#pragma unroll
            for (int n = 0; n < S::NT; n++) multiply_f16(d[m][n], low, x_low[n / 2][n % 2 * 2], x_low[n / 2][n % 2 * 2 + 1]);
        }
#pragma unroll
        for (int n = 0; n < S::NT / 2; n++) load_4(x_high[n], b + n * 16 * 128 + ((2 * k + half_b) ^ turn) * 16);
#pragma unroll
        for (int m = 0; m < S::MT; m++) {
            load_4(low, a + m * 16 * 128 + ((4 + 2 * k + half_a) ^ turn) * 16);
#pragma unroll
            for (int n = 0; n < S::NT; n++) multiply_f16(d[m][n], low, x_high[n / 2][n % 2 * 2], x_high[n / 2][n % 2 * 2 + 1]);
        }
#pragma unroll
        for (int m = 0; m < S::MT; m++)
#pragma unroll
            for (int n = 0; n < S::NT; n++)
                multiply_f16(d[m][n], high[m], x_high[n / 2][n % 2 * 2], x_high[n / 2][n % 2 * 2 + 1]);
    }
    add_to<S>(sum, d);
}

// The steps that a block runs: all, or those of its segment. False: there is no such segment.
__device__ inline bool steps_of(const parts &from, const place &p, int *first, int *steps)
{
    *steps = p.taps * from.blocks;
    *first = 0;
    if (!from.partial) return true;
    *first = (int)blockIdx.z * VX_K_PARTS_SEGMENT;
    if (*first >= *steps && *first > 0) return false;
    *steps = *steps - *first < VX_K_PARTS_SEGMENT ? *steps - *first : VX_K_PARTS_SEGMENT;
    return true;
}

// A thread's sums of segments before the running one, in shared memory behind the ring.
template <typename S> __device__ inline void put_aside(float *aside, bool first, float (&sum)[S::MT][S::NT][4])
{
#pragma unroll
    for (int i = 0; i < S::MT * S::NT * 4; i++) {
        float *one = &sum[i / 4 / S::NT][i / 4 % S::NT][i % 4], *put = aside + i * S::THREADS;
        *put = first ? *one : *put + *one;
        *one = 0.0f;
    }
}
template <typename S> __device__ inline void add_aside(const float *aside, float (&sum)[S::MT][S::NT][4])
{
#pragma unroll
    for (int i = 0; i < S::MT * S::NT * 4; i++) {
        float *one = &sum[i / 4 / S::NT][i / 4 % S::NT][i % 4];
        *one = aside[i * S::THREADS] + *one;
    }
}

// The sums of a warp whose tile begins at `channel` and position `begin` of the plane.
template <typename S>
__device__ inline void write_all(const vx_k_conv &c, const dividers &by, const parts &from, const place &p, int channel,
                                 int begin, bool wide, const float (&sum)[S::MT][S::NT][4])
{
    const bool each = from.partial != nullptr;
    const int plane = c.phases ? p.frame * c.phases + p.phase : p.frame, planes = planes_of(c), lane = (int)threadIdx.x % 32;
    const int x_power = each ? 0 : *from.x_power;
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int o = channel + m * 16 + half * 8 + lane / 4;
            if (o >= c.co) continue;
            float *partial = from.partial + (((int64_t)blockIdx.z * c.co + o) * planes + plane) * from.partial_row;
            const int power = each ? 0 : x_power + from.w_power[o];
            const float bias = c.bias && !each ? widen(c.bias, c.bias_format, o * c.bias_stride) : 0.0f;
#pragma unroll
            for (int i = 0; i < S::NT; i++) {
                const int n = begin + i * 8 + lane % 4 * 2;
                const float *d = &sum[m][i][half * 2];
                if (each) {
                    if (n < p.count) *reinterpret_cast<float2 *>(partial + n) = make_float2(d[0], d[1]);
                } else {
                    write(c, by, p, o, power, c.bias ? &bias : nullptr, n, wide, d[0], d[1]);
                }
            }
        }
}

template <typename S>
__global__ void __launch_bounds__(S::THREADS, S::BLOCKS)
    convolve(const __grid_constant__ vx_k_conv c, const __grid_constant__ dividers by, const __grid_constant__ parts from,
             bool wide)
{
    extern __shared__ __align__(1024) uint4 memory[];
    const unsigned ring = shared_address(memory);
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32, channels = c.co - (int)blockIdx.y * S::BM;
    const place p = place_of(c, blockIdx.x, S::BN);
    int steps, first;
    if (!steps_of(from, p, &first, &steps)) return;
    int *table = reinterpret_cast<int *>(memory) + S::RING / 4;
    make_table<S>(c, by, from, p, table);
    __syncthreads();
    source s = source_at(c, from, p, first, (int)blockIdx.y * S::BM, table);
    float sum[S::MT][S::NT][4] = {};
    float *aside = reinterpret_cast<float *>(table) + plane_taps(c).most * S::BN + thread;
    const auto fetch = [&](unsigned slot) {
        fetch_weights<S>(s, thread, channels, slot);
        fetch_samples<S>(from, s, thread, slot);
        advance(c, p, s);
    };
#pragma unroll
    for (int i = 0; i < S::STAGES - 1; i++) {
        if (i < steps) fetch(ring + i * S::SLOT);
        commit();
    }
    int now = 0, next = S::STAGES - 1;
    for (int step = 0; step < steps; step++) {
        await<S::STAGES - 2>();
        __syncthreads(); // the lines are there for all, and the slot of the next ones is read by none
        if (step + S::STAGES - 1 < steps) fetch(ring + next * S::SLOT);
        commit();
        multiply<S>(ring + now * S::SLOT, warp, lane, sum);
        now = now + 1 == S::STAGES ? 0 : now + 1;
        next = next + 1 == S::STAGES ? 0 : next + 1;
        if ((step + 1) % VX_K_PARTS_SEGMENT == 0 && step + 1 < steps) put_aside<S>(aside, step + 1 == VX_K_PARTS_SEGMENT, sum);
    }
    if (steps > VX_K_PARTS_SEGMENT) add_aside<S>(aside, sum);
    write_all<S>(c, by, from, p, (int)blockIdx.y * S::BM + warp / S::ACROSS * S::WM, p.first + warp % S::ACROSS * S::WN, wide,
                 sum);
}

// The same on Hopper. Barrier `full` of a slot: its lines are there; `empty`: all warps have read it.
template <typename S>
__global__ void __launch_bounds__(S::ALL, S::BLOCKS)
    convolve_groups(const __grid_constant__ vx_k_conv c, const __grid_constant__ dividers by, const __grid_constant__ parts from,
                    bool wide, unsigned barriers)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL // else an empty kernel: vx_k_parts_groups
    // Registers for three sums, and what is left for the fetchers of the 168 that a launch of 384 threads gives each.
    constexpr int MANY = S::WN == 128 ? 224 : 168, FEW = 56;
    static_assert(S::THREADS != 256 || 2 * MANY + FEW <= 3 * 168, "");
    extern __shared__ __align__(1024) uint4 memory[];
    const unsigned ring = shared_address(memory), full = ring + barriers, empty = full + 8 * S::STAGES;
    const int thread = (int)threadIdx.x, warp = thread / 32;
    const place p = place_of(c, blockIdx.x, S::BN);
    int steps, first;
    if (!steps_of(from, p, &first, &steps)) return;
    if (thread < S::STAGES) {
        barrier_init(full + 8 * thread, S::FETCHERS + 1);
        barrier_init(empty + 8 * thread, S::THREADS / 32);
    }
    int *table = reinterpret_cast<int *>(memory) + S::RING / 4;
    make_table<S>(c, by, from, p, table);
    __syncthreads();
    if (thread >= S::THREADS) {
        registers_less<FEW>();
        const int channels = c.co - (int)blockIdx.y * S::BM, lines = channels < S::BM ? channels : S::BM;
        source s = source_at(c, from, p, first, (int)blockIdx.y * S::BM, table);
        for (int step = 0; step < steps; step++) {
            const int slot = step % S::STAGES, round = step / S::STAGES;
            if (round > 0) barrier_wait(empty + 8 * slot, (unsigned)(round - 1) % 2);
            if (thread == S::THREADS) {
                barrier_expect(full + 8 * slot, (unsigned)lines * 128);
                copy_bulk(ring + slot * S::SLOT, s.w, (unsigned)lines * 128, full + 8 * slot);
            }
            fetch_samples<S>(from, s, thread - S::THREADS, ring + slot * S::SLOT);
            barrier_arrive_behind_copies(full + 8 * slot);
            advance(c, p, s);
        }
        commit();
        await<0>();
        return;
    }
    registers_more<MANY>();
    const int group = warp / 4, row = group / S::ACROSS * 64, column = group % S::ACROSS * S::WN;
    float sum[1][S::NT][4] = {}, d[1][S::NT][4], low[1][S::NT][4];
    float *aside = reinterpret_cast<float *>(table) + plane_taps(c).most * S::BN + thread;
    for (int step = 0; step < steps;) {
        const int begin = step, end = step + VX_K_PARTS_SEGMENT < steps ? step + VX_K_PARTS_SEGMENT : steps;
        for (; step < end; step++) {
            const int slot = step % S::STAGES;
            barrier_wait(full + 8 * slot, (unsigned)(step / S::STAGES) % 2);
            show_to_groups();
            const unsigned a = ring + slot * S::SLOT + (unsigned)row * 128;
            const unsigned b = ring + slot * S::SLOT + (unsigned)(S::BM + column) * 128;
            multiply_groups<S>(a, b, d[0], low[0], step == begin);
            group_wait<1>(); // low products of this step may go on, those of the last are done
            if (step > 0 && thread % 32 == 0) barrier_arrive(empty + 8 * ((step - 1) % S::STAGES));
            hold(d[0]);
            add_to<S>(sum, d);
        }
        group_wait<0>();
        hold(low[0]);
#pragma unroll
        for (int i = 0; i < S::NT * 4; i++)
            sum[0][i / 4][i % 4] = __fadd_rn(sum[0][i / 4][i % 4], low[0][i / 4][i % 4] * (1.0f / LOW));
        if (end < steps) put_aside<S>(aside, begin == 0, sum);
    }
    if (steps > VX_K_PARTS_SEGMENT) add_aside<S>(aside, sum);
    write_all<S>(c, by, from, p, (int)blockIdx.y * S::BM + row + warp % 4 * 16, p.first + column, wide, sum);
#endif
}

// Adds up segments. A thread has two positions of one channel.
__global__ void __launch_bounds__(THREADS) add_segments(const __grid_constant__ vx_k_conv c, const __grid_constant__ dividers by,
                                                        const __grid_constant__ parts from, bool wide)
{
    const int o = (int)blockIdx.y, plane = (int)blockIdx.z, n = (int)(blockIdx.x * THREADS + threadIdx.x) * 2;
    const place p = plane_of(c, plane);
    if (n >= p.count) return;
    const int64_t segment = (int64_t)c.co * planes_of(c) * from.partial_row;
    const float *partial = from.partial + ((int64_t)o * planes_of(c) + plane) * from.partial_row + n;
    float2 sum = *reinterpret_cast<const float2 *>(partial);
    for (int i = 1; i * VX_K_PARTS_SEGMENT < p.taps * from.blocks; i++) {
        const float2 v = *reinterpret_cast<const float2 *>(partial + i * segment);
        sum.x = sum.x + v.x;
        sum.y = sum.y + v.y;
    }
    const float bias = c.bias ? widen(c.bias, c.bias_format, o * c.bias_stride) : 0.0f;
    write(c, by, p, o, *from.x_power + from.w_power[o], c.bias ? &bias : nullptr, n, wide, sum.x, sum.y);
}

// ---- launching ----
size_t up_to_256(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

// Where everything lies in scratch; returns the size.
size_t lay_out(const vx_k_conv &c, bool each, char *scratch, parts *to)
{
    const size_t positions = (size_t)c.frames * c.rows * c.columns, blocks = (size_t)ceil_div(c.ci, BLOCK);
    const size_t items = (positions + SPLIT_POSITIONS - 1) / SPLIT_POSITIONS * blocks;
    const size_t weights = (size_t)(c.phases ? c.phases : 1) * plane_taps(c).most * blocks * c.co * 128;
    to->blocks = (int)blocks;
    to->split_blocks = items < (size_t)SPLIT_BLOCKS ? (int)items : SPLIT_BLOCKS;
    to->partial_row = ceil_div(positions_of(c), 2) * 2;
    size_t at = 0;
    const auto take = [&](size_t bytes) {
        char *p = scratch + at;
        at += up_to_256(bytes);
        return p;
    };
    to->x = reinterpret_cast<uint4 *>(take(positions * blocks * 128));
    to->w = reinterpret_cast<uint4 *>(take(weights));
    to->w_power = reinterpret_cast<int *>(take((size_t)c.co * sizeof(int)));
    to->x_power = reinterpret_cast<int *>(take(sizeof(int)));
    to->greatest = reinterpret_cast<unsigned *>(take(SPLIT_BLOCKS * sizeof(unsigned)));
    to->partial = nullptr;
    if (each) {
        const size_t segment = (size_t)c.co * planes_of(c) * to->partial_row * sizeof(float);
        to->partial = reinterpret_cast<float *>(take(segment * vx_k_parts_segments(&c)));
    }
    return at;
}

bool even(int64_t a, int64_t b, int64_t c)
{
    return a % 2 == 0 && b % 2 == 0 && c % 2 == 0;
}
bool aligned(const void *p)
{
    return reinterpret_cast<uintptr_t>(p) % 8 == 0;
}

// Whether two neighbouring positions of out and residual are 8 aligned bytes.
bool can_write_wide(const vx_k_conv &c)
{
    if (c.phases || c.out_columns % 2 || !aligned(c.out) || !even(c.out_channel, c.out_frame, c.out_row)) return false;
    return !c.residual || (aligned(c.residual) && even(c.residual_channel, c.residual_frame, c.residual_row));
}

enum { BARRIERS = 64 }; // bytes, the last of a block's shared memory

template <typename S> int shared_bytes(const vx_k_conv &c, bool aside)
{
    return S::RING + plane_taps(c).most * S::BN * (int)sizeof(int) + (aside ? S::ASIDE : 0) + (S::GROUPS ? BARRIERS : 0);
}

template <typename S> cudaError_t launch(const vx_k_conv &c, const parts &to, cudaStream_t stream)
{
    const int segments = vx_k_parts_segments(&c), bytes = shared_bytes<S>(c, !to.partial && segments > 1);
    const dim3 grid((unsigned)(planes_of(c) * ceil_div(positions_of(c), S::BN)), (unsigned)ceil_div(c.co, S::BM),
                    to.partial ? (unsigned)segments : 1);
    if constexpr (S::GROUPS) {
        const cudaError_t e = cudaFuncSetAttribute(convolve_groups<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        if (e != cudaSuccess) return e;
        const unsigned barriers = (unsigned)(bytes - BARRIERS);
        convolve_groups<S><<<grid, S::ALL, bytes, stream>>>(c, dividers_of(c), to, can_write_wide(c), barriers);
    } else {
        const cudaError_t e = cudaFuncSetAttribute(convolve<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        if (e != cudaSuccess) return e;
        convolve<S><<<grid, S::ALL, bytes, stream>>>(c, dividers_of(c), to, can_write_wide(c));
    }
    return cudaGetLastError();
}

using group_64x64 = shape<64, 64, 16, 64, 4, 2>;

// f of the tile's shape.
template <typename R, typename F> R with_shape(vx_k_parts_tile tile, R otherwise, F f)
{
    switch (tile) {
    case VX_K_PARTS_128X128: return f(shape<128, 128, 64, 32, 3, 1>());
    case VX_K_PARTS_128X64: return f(shape<128, 64, 64, 32, 3, 2>());
    case VX_K_PARTS_64X128: return f(shape<64, 128, 64, 32, 3, 2>());
    case VX_K_PARTS_64X64: return f(shape<64, 64, 32, 32, 3, 3>());
    case VX_K_PARTS_32X128: return f(shape<32, 128, 32, 32, 3, 3>());
    case VX_K_PARTS_GROUP_128X128: return f(shape<128, 128, 16, 128, 4, 1>());
    case VX_K_PARTS_GROUP_128X64: return f(shape<128, 64, 16, 64, 4, 1>());
    case VX_K_PARTS_GROUP_64X64: return f(group_64x64());
    default: return otherwise;
    }
}

} // namespace

bool vx_k_parts_groups(void)
{
    enum { EMPTY = 32 }; // registers that the empty kernel stays below by far
    cudaFuncAttributes a;
    const cudaError_t e = cudaFuncGetAttributes(&a, convolve_groups<group_64x64>);
    if (e != cudaSuccess) (void)cudaGetLastError();
    return e == cudaSuccess && a.numRegs > EMPTY;
}

int vx_k_parts_channels(vx_k_parts_tile tile)
{
    return with_shape(tile, 0, [](auto s) { return decltype(s)::BM; });
}
int vx_k_parts_positions(vx_k_parts_tile tile)
{
    return with_shape(tile, 0, [](auto s) { return decltype(s)::BN; });
}
int vx_k_parts_shared(const vx_k_conv *c, vx_k_parts_tile tile, bool each)
{
    const bool aside = !each && vx_k_parts_segments(c) > 1;
    return with_shape(tile, 0, [=](auto s) { return shared_bytes<decltype(s)>(*c, aside); });
}

int vx_k_parts_segments(const vx_k_conv *c)
{
    const int steps = plane_taps(*c).most * ceil_div(c->ci, BLOCK);
    return steps ? ceil_div(steps, VX_K_PARTS_SEGMENT) : 1;
}

size_t vx_k_parts_scratch(const vx_k_conv *c, bool each)
{
    parts to;
    return lay_out(*c, each, nullptr, &to);
}

cudaError_t vx_k_parts_run(const vx_k_conv *c, vx_k_parts_tile tile, bool each, cudaStream_t stream)
{
    parts to;
    lay_out(*c, each, reinterpret_cast<char *>(c->packed), &to);
    const cudaError_t split = vx_k_parts_split(c, &to, stream);
    if (split != cudaSuccess) return split;
    const cudaError_t e = with_shape(tile, cudaErrorInvalidValue, [&](auto s) { return launch<decltype(s)>(*c, to, stream); });
    if (e != cudaSuccess || !each) return e;
    const dim3 grid((unsigned)ceil_div(ceil_div(positions_of(*c), 2), THREADS), (unsigned)c->co, (unsigned)planes_of(*c));
    add_segments<<<grid, THREADS, 0, stream>>>(*c, dividers_of(*c), to, can_write_wide(*c));
    return cudaGetLastError();
}
