// Operators with numbers per channel: the snake, and the norm over groups of channels of one frame.
#include "device/cuda/kernels/rows_inside.h"

// ---- snake ----

enum { SNAKE_THREADS = 256 };

// blocks: of a channel of a line
static __global__ void __launch_bounds__(SNAKE_THREADS) snake(const __grid_constant__ vx_k_snake_rows a, int blocks)
{
    const int64_t row = blockIdx.x / blocks, channel = row / a.lines, line = row % a.lines;
    const float alpha = a.alpha[channel * a.alpha_stride];
    const float gain = __fdiv_rn(1.0f, alpha + 1e-9f);
    const float *from = a.x + channel * a.x_stride[0] + line * a.x_stride[1];
    float *out = a.out + channel * a.out_stride[0] + line * a.out_stride[1];
    for (int64_t i = (int64_t)(blockIdx.x % blocks) * SNAKE_THREADS + threadIdx.x; i < a.length;
         i += (int64_t)blocks * SNAKE_THREADS) {
        const float x = from[i];
        const float s = vx_sinf_inline(alpha * x);
        const float square = s * s;
        const float term = gain * square;
        out[i] = x + term;
    }
}

cudaError_t vx_k_snake_rows_run(const vx_k_snake_rows *a, cudaStream_t stream)
{
    const int64_t blocks = (a->length + 4 * SNAKE_THREADS - 1) / (4 * SNAKE_THREADS);
    snake<<<(unsigned)(a->channels * a->lines * blocks), SNAKE_THREADS, 0, stream>>>(*a, (int)blocks);
    return cudaGetLastError();
}

// ---- group norm ----

// A block takes a group of a frame, a warp a channel at a time: the sum of a channel has an order (lane l takes columns l,
// l + 32, ... of row after row) that no second warp may share. What makes it fast are the loads of AHEAD columns that wait
// together, and that all warps take part in what follows the sums.
enum { GROUP_WARPS = 16, AHEAD = 32 };

VX_DEVICE double tree32_double(double t)
{
#pragma unroll
    for (int o = WARP / 2; o > 0; o /= 2) t = t + __shfl_xor_sync(EVERYONE, t, o);
    return t;
}

template <bool SQUARES> VX_DEVICE double take(double t, float x, float mean)
{
    const double d = (double)(x - mean);
    return t + (SQUARES ? d * d : d); // the square of an f32 is exact
}

template <bool SQUARES> VX_DEVICE double plane_sum(const float *x, int64_t stride, int64_t rows, int64_t n, float mean, int lane)
{
    double t = 0.0;
    // Rows side by side whose width is whole are one long row.
    if (stride == n && n % WARP == 0) n = n * rows, rows = 1;
    for (int64_t r = 0; r < rows; r++, x += stride) {
        int64_t i = lane;
        for (; i + (AHEAD - 1) * WARP < n; i += AHEAD * WARP) {
            float v[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++) v[k] = x[i + k * WARP];
#pragma unroll
            for (int k = 0; k < AHEAD; k++) t = take<SQUARES>(t, v[k], mean);
        }
        for (; i < n; i += WARP) t = take<SQUARES>(t, x[i], mean);
    }
    return tree32_double(t);
}

// Over the channels of the group, in order.
template <bool SQUARES>
VX_DEVICE double group_sum(const vx_k_group_norm &a, const float *x, int64_t count, float mean, double *sums)
{
    const int lane = threadIdx.x % WARP, warps = GROUP_WARPS;
    double sum = 0.0;
    for (int64_t first = 0; first < count; first += warps) {
        const int64_t c = first + threadIdx.x / WARP;
        if (c < count) {
            const double t = plane_sum<SQUARES>(x + c * a.x_stride[0], a.x_stride[2], a.height, a.width, mean, lane);
            if (lane == 0) sums[threadIdx.x / WARP] = t;
        }
        __syncthreads();
        for (int64_t k = 0; k < warps && first + k < count; k++) sum = sum + sums[k];
        __syncthreads();
    }
    return sum;
}

static __global__ void __launch_bounds__(GROUP_WARPS *WARP) group_norm(const __grid_constant__ vx_k_group_norm a)
{
    __shared__ double sums[GROUP_WARPS];
    const int64_t frame = blockIdx.x / a.groups, count = a.channels / a.groups, first = blockIdx.x % a.groups * count;
    const float *x = a.x + first * a.x_stride[0] + frame * a.x_stride[1];
    float *out = a.out + first * a.out_stride[0] + frame * a.out_stride[1];
    const double n = (double)(count * a.height * a.width);
    const float mean = (float)(group_sum<false>(a, x, count, 0.0f, sums) / n);
    const float variance = (float)(group_sum<true>(a, x, count, mean, sums) / n);
    const float deviation = __fsqrt_rn(variance + a.eps);
    const int64_t lines = count * a.height;
    // Every number is read and written by one thread, after all have read it for the sums: out may be x.
    for (int64_t line = threadIdx.x / WARP; line < lines; line += GROUP_WARPS) {
        const int64_t c = line / a.height, r = line - c * a.height;
        const float w = get_any(a.w.dtype, a.w.data, (first + c) * a.w.stride),
                    b = get_any(a.b.dtype, a.b.data, (first + c) * a.b.stride);
        const float *from = x + c * a.x_stride[0] + r * a.x_stride[2];
        float *to = out + c * a.out_stride[0] + r * a.out_stride[2];
#pragma unroll 4
        for (int64_t i = threadIdx.x % WARP; i < a.width; i += WARP) {
            float y = __fdiv_rn(from[i] - mean, deviation);
            y = y * w;
            y = y + b;
            to[i] = a.silu ? vx_silu_inline(y) : y;
        }
    }
}

cudaError_t vx_k_group_norm_run(const vx_k_group_norm *a, cudaStream_t stream)
{
    group_norm<<<(unsigned)(a->frames * a->groups), GROUP_WARPS * WARP, 0, stream>>>(*a);
    return cudaGetLastError();
}
