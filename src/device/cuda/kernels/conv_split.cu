// Samples and weights of a convolution become parts (conv_parts_inside.h). Samples are split as they are, while their greatest
// magnitude is found; only where that demands it they are split once more.
#include "device/cuda/kernels/conv_parts_inside.h"

namespace
{

enum { AGAIN_BLOCKS = 264 };

__device__ inline unsigned magnitude(float v)
{
    return __float_as_uint(v) & 0x7fffffffu;
}
__device__ inline float two_to(int power)
{
    return __uint_as_float((unsigned)(127 + power) << 23);
}
// The high parts of two neighbours, or the low ones times `up`.
__device__ inline unsigned part_of(float a, float b, bool low, float up)
{
    __half ha = __float2half_rn(a), hb = __float2half_rn(b);
    if (low) {
        ha = __float2half_rn((a - __half2float(ha)) * up);
        hb = __float2half_rn((b - __half2float(hb)) * up);
    }
    return (unsigned)__half_as_ushort(ha) | (unsigned)__half_as_ushort(hb) << 16;
}

// The power of two that samples are divided by: a multiple of 23, 0 while the greatest is in [2^-8, 2^15) or 0. NaN and infinity
// count as the greatest there are; their parts are NaN.
__device__ inline int power_of_samples(unsigned greatest)
{
    if (greatest == 0) return 0;
    const int exponent = (int)(greatest >> 23) - 127, step = (exponent + 8 + 230) / 23 - 10;
    return 23 * (step < -5 ? -5 : step > 5 ? 5 : step);
}

struct spread {
    divider blocks, plane, columns; // blocks of channels; numbers of an input frame, of a row
};

// Blocks first, first + step, ... of 64 positions x 32 channels. Returns the greatest magnitude that the thread met.
__device__ unsigned split(const vx_k_conv &c, const spread &by, const parts &to, int first, int step, float scale)
{
    __shared__ float tile[BLOCK][SPLIT_POSITIONS + 1];
    const int positions = c.frames * c.rows * c.columns, items = ceil_div(positions, SPLIT_POSITIONS) * to.blocks;
    const int across = (int)threadIdx.x % SPLIT_POSITIONS, down = (int)threadIdx.x / SPLIT_POSITIONS;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, pair = lane % 16 * 2;
    unsigned greatest = 0;
    for (int item = first; item < items; item += step) {
        unsigned block, rest, column;
        const int begin = (int)quotient((unsigned)item, by.blocks, &block) * SPLIT_POSITIONS, n = begin + across;
        const int channel = (int)block * BLOCK + down;
        const float *from = nullptr;
        if (n < positions) {
            const unsigned frame = quotient((unsigned)n, by.plane, &rest), row = quotient(rest, by.columns, &column);
            from = c.x + channel * c.x_channel + frame * c.x_frame + row * c.x_row + column;
        }
        float v[BLOCK / (THREADS / SPLIT_POSITIONS)];
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = from && channel + 4 * i < c.ci ? from[4 * i * c.x_channel] : 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            greatest = max(greatest, magnitude(v[i]));
            tile[down + 4 * i][across] = v[i] * scale;
        }
        __syncthreads();
        unsigned *line = reinterpret_cast<unsigned *>(to.x) + ((size_t)(begin + warp) * to.blocks + block) * 32 + lane;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int at = warp + 8 * i;
            if (begin + at >= positions) continue;
            line[(size_t)8 * i * to.blocks * 32] = part_of(tile[pair][at], tile[pair + 1][at], lane >= 16, (float)LOW);
        }
        __syncthreads();
    }
    return greatest;
}

// For all threads of a block.
__device__ unsigned greatest_of(unsigned mine)
{
    __shared__ unsigned all;
    if (threadIdx.x == 0) all = 0;
    __syncthreads();
    atomicMax(&all, mine);
    __syncthreads();
    return all;
}

__global__ void __launch_bounds__(THREADS)
    split_samples(const __grid_constant__ vx_k_conv c, const __grid_constant__ spread by, const __grid_constant__ parts to)
{
    const unsigned greatest = greatest_of(split(c, by, to, blockIdx.x, gridDim.x, 1.0f));
    if (threadIdx.x == 0) to.greatest[blockIdx.x] = greatest;
}

__device__ inline float weight(const vx_k_conv &c, int o, int channel, int tap)
{
    const int64_t taps = (int64_t)c.taps[0] * c.taps[1] * c.taps[2];
    const int64_t row = c.phases ? (int64_t)channel * c.co + o : (int64_t)o * c.ci + channel;
    return widen(c.w, c.w_format, row * taps + tap);
}

// One output channel's weights. `used`: taps that some plane has. Four numbers of a thread are on their way at a time.
__device__ void split_weights(const vx_k_conv &c, divider used, const parts &to, int o)
{
    enum { AT_ONCE = 4 };
    const taps_of_plane l = plane_taps(c);
    const unsigned numbers = (unsigned)c.ci * used.by, lines = (unsigned)to.blocks * used.by;
    const bool side_by_side = !c.phases && l.skip == 0;
    unsigned greatest = 0;
    for (unsigned i = threadIdx.x; i < numbers; i += AT_ONCE * THREADS) {
        float v[AT_ONCE];
#pragma unroll
        for (unsigned j = 0; j < AT_ONCE; j++) {
            const unsigned at = i + j * THREADS;
            unsigned tap;
            const unsigned channel = side_by_side ? 0 : quotient(at, used, &tap);
            v[j] = at >= numbers  ? 0.0f
                   : side_by_side ? widen(c.w, c.w_format, (int64_t)o * numbers + at)
                                  : weight(c, o, (int)channel, (int)tap + l.skip);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) greatest = max(greatest, magnitude(v[j]));
    }
    greatest = greatest_of(greatest);
    const int exponent = (int)(greatest >> 23) - 127, power = greatest == 0 || exponent < -112 ? -126 : exponent - 14;
    const float scale = two_to(-power);
    if (threadIdx.x == 0) to.w_power[o] = power;
    const int lane = (int)threadIdx.x % 32, pair = lane % 16 * 2;
    for (unsigned i = threadIdx.x / 32; i < lines; i += AT_ONCE * (THREADS / 32)) {
        float v[AT_ONCE][2];
        unsigned block[AT_ONCE], tap[AT_ONCE];
#pragma unroll
        for (unsigned j = 0; j < AT_ONCE; j++) {
            const unsigned at = i + j * (THREADS / 32);
            block[j] = quotient(at, used, &tap[j]);
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const int channel = (int)block[j] * BLOCK + pair + k;
                v[j][k] = at < lines && channel < c.ci ? weight(c, o, channel, (int)tap[j] + l.skip) : 0.0f;
            }
        }
#pragma unroll
        for (unsigned j = 0; j < AT_ONCE; j++) {
            if (i + j * (THREADS / 32) >= lines) continue;
            int phase = 0, at = (int)tap[j];
            if (c.phases) { // phase + pad = tap, but for multiples of phases
                phase = (at % c.phases - c.pad[2] % c.phases + c.phases) % c.phases;
                at = at / c.phases;
            }
            const size_t line = (((size_t)phase * to.blocks + block[j]) * l.most + at) * c.co + o;
            const int turned = (lane / 4 ^ o % 8) * 4 + lane % 4;
            reinterpret_cast<unsigned *>(to.w)[line * 32 + turned] = part_of(v[j][0] * scale, v[j][1] * scale, lane >= 16, 1.0f);
        }
    }
}

// A block for each output channel; those behind them bring samples into range that were not.
__global__ void __launch_bounds__(THREADS) split_rest(const __grid_constant__ vx_k_conv c, const __grid_constant__ spread by,
                                                      divider used, const __grid_constant__ parts to)
{
    if ((int)blockIdx.x < c.co) {
        split_weights(c, used, to, blockIdx.x);
        return;
    }
    unsigned greatest = 0;
    for (int i = threadIdx.x; i < to.split_blocks; i += THREADS) greatest = max(greatest, to.greatest[i]);
    const int power = power_of_samples(greatest_of(greatest)), first = (int)blockIdx.x - c.co;
    if (first == 0 && threadIdx.x == 0) *to.x_power = power;
    if (power) split(c, by, to, first, AGAIN_BLOCKS, two_to(-power));
}

} // namespace

cudaError_t vx_k_parts_split(const vx_k_conv *c, const parts *to, cudaStream_t stream)
{
    const spread by = { divider_of(to->blocks), divider_of(c->rows * c->columns), divider_of(c->columns) };
    const int used = c->phases ? c->taps[2] : plane_taps(*c).most;
    split_samples<<<to->split_blocks, THREADS, 0, stream>>>(*c, by, *to);
    split_rest<<<c->co + AGAIN_BLOCKS, THREADS, 0, stream>>>(*c, by, divider_of(used), *to);
    return cudaGetLastError();
}
