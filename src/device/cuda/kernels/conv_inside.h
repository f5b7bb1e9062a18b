// Inside the kernels of convolutions: what a block computes, and which sample a tap of the weight meets at a position.
#ifndef VX_DEVICE_CUDA_KERNELS_CONV_INSIDE_H
#define VX_DEVICE_CUDA_KERNELS_CONV_INSIDE_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "device/cuda/kernels/conv.h"

static __host__ __device__ inline int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

static __device__ inline float widen(const void *p, vx_k_format format, int64_t i)
{
    if (format == VX_K_BF16) return __bfloat162float(static_cast<const __nv_bfloat16 *>(p)[i]);
    if (format == VX_K_F16) return __half2float(static_cast<const __half *>(p)[i]);
    return static_cast<const float *>(p)[i];
}

// n / by for n < 2^31, with magic = ceil(2^32 / by): one too large at most.
struct divider {
    unsigned by, magic;
};
static inline divider divider_of(int by)
{
    return { (unsigned)by, (unsigned)((((uint64_t)1 << 32) + (unsigned)by - 1) / (unsigned)by) }; // by 1: 0
}
static __device__ inline unsigned quotient(unsigned n, divider d, unsigned *rest)
{
    unsigned q = d.by == 1 ? n : __umulhi(n, d.magic);
    if (q * d.by > n) q--;
    *rest = n - q * d.by;
    return q;
}

// A plane is an output frame, or a phase of a transposed convolution's. How many of the weight's taps it has at most, and how many
// frame taps' worth no plane needs.
struct taps_of_plane {
    int most, skip;
};
static __host__ __device__ inline taps_of_plane plane_taps(const vx_k_conv &c)
{
    const int skip = c.first_tap * c.taps[1] * c.taps[2];
    return { c.phases ? ceil_div(c.taps[2], c.phases) : c.taps[0] * c.taps[1] * c.taps[2] - skip, skip };
}
static __host__ __device__ inline int planes_of(const vx_k_conv &c)
{
    return c.out_frames * (c.phases ? c.phases : 1);
}
// Positions of a plane at most.
static __host__ __device__ inline int positions_of(const vx_k_conv &c)
{
    return c.phases ? ceil_div(c.out_columns, c.phases) : c.out_rows * c.out_columns;
}

// What a block works on, the same for all its threads.
struct place {
    int frame, phase;       // of the output
    int first, count;       // positions: the first of the tile, all of the plane
    int skip, taps;         // taps of the weight that this frame leaves out, and those that are left
    int start, step, delta; // column of x: position * step + start + tap * delta
    int width;              // positions in a row
};

static __device__ inline place plane_of(const vx_k_conv &c, int plane)
{
    const taps_of_plane l = plane_taps(c);
    place p = {};
    if (c.phases) {
        p.phase = plane % c.phases;
        p.frame = plane / c.phases;
        const int reach = p.phase + c.pad[2], first = reach % c.phases;
        p.taps = first < c.taps[2] ? (c.taps[2] - first - 1) / c.phases + 1 : 0;
        p.start = reach / c.phases;
        p.step = 1;
        p.delta = -1;
        p.count = p.width = (c.out_columns - p.phase + c.phases - 1) / c.phases;
    } else {
        p.frame = plane;
        const int before = c.pad[0] - p.frame * c.stride[0], kt = before > c.first_tap ? before : c.first_tap;
        p.skip = kt * c.taps[1] * c.taps[2];
        p.taps = l.most + l.skip - p.skip;
        p.start = -c.pad[2];
        p.step = c.stride[2];
        p.delta = c.dilation;
        p.count = c.out_rows * c.out_columns;
        p.width = c.out_columns;
    }
    return p;
}

// Of block `index` of a grid that cuts every plane into tiles of so many positions.
static __device__ inline place place_of(const vx_k_conv &c, int index, int positions)
{
    const int tiles = ceil_div(positions_of(c), positions);
    place p = plane_of(c, index / tiles);
    p.first = index % tiles * positions;
    return p;
}

// Where number i of an axis of n stands: itself, its mirror image, or -1.
static __device__ inline int resolve(int i, int n, bool reflect)
{
    if (i >= 0 && i < n) return i;
    if (!reflect) return -1;
    return i < 0 ? -i : 2 * (n - 1) - i;
}

// A position that a thread gathers samples of.
struct column {
    int row, column; // of x, for the first tap; row NOWHERE: beyond the last position
};
enum { NOWHERE = -(1 << 30) };

// A tap of the weight; of a transposed convolution, the kx-th of its phase.
struct tap_place {
    int kt, ky, kx;
};
struct dividers {
    divider channels, rows, columns, width; // channels in, taps over rows and over columns, output columns
};
static inline dividers dividers_of(const vx_k_conv &c)
{
    return { divider_of(c.ci > 0 ? c.ci : 1), divider_of(c.taps[1]), divider_of(c.taps[2]), divider_of(c.out_columns) };
}
static __device__ inline tap_place tap_of(const vx_k_conv &c, int tap, const dividers &by)
{
    if (c.phases) return { 0, 0, tap };
    unsigned kx, ky;
    const unsigned kt = quotient(quotient((unsigned)tap, by.columns, &kx), by.rows, &ky);
    return { (int)kt, (int)ky, (int)kx };
}
static __device__ inline column column_at(const vx_k_conv &c, const dividers &by, const place &p, int n)
{
    if (n >= p.count) return { NOWHERE, 0 };
    unsigned across = (unsigned)n;
    const int down = c.phases ? 0 : (int)quotient((unsigned)n, by.width, &across);
    return { down * c.stride[1] - c.pad[1], (int)across * p.step + p.start };
}

#endif
