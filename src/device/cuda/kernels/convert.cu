// See convert.h. A thread takes elements of a row a block's width apart: neighbours read side by side, whatever the alignment of a
// file's rows. All of this is bound by memory and small beside the products.
#include "device/cuda/kernels/convert.h"

#include <cuda_fp16.h>

enum { WIDTH = 256, PER_THREAD = 8 };

static __device__ __forceinline__ float load(const void *data, vx_dtype type, int64_t i)
{
    if (type == VX_F32) return static_cast<const float *>(data)[i];
    if (type == VX_BF16) return vx_bf16_to_f32(static_cast<const uint16_t *>(data)[i]);
    return __half2float(static_cast<const __half *>(data)[i]);
}

static __device__ __forceinline__ void store(void *data, vx_dtype type, int64_t i, float x)
{
    if (type == VX_F32) static_cast<float *>(data)[i] = x;
    else if (type == VX_BF16) static_cast<uint16_t *>(data)[i] = vx_f32_to_bf16(x);
    else static_cast<__half *>(data)[i] = __float2half_rn(x);
}

static __device__ __forceinline__ float rounded(vx_dtype type, float x)
{
    if (type == VX_BF16) return vx_round_bf16(x);
    if (type == VX_F16) return __half2float(__float2half_rn(x));
    return x;
}

struct copy_as {
    vx_k_matrix x;
    __device__ float operator()(int64_t row, int64_t column, float) const
    {
        return load(x.data, x.dtype, row * x.stride + column);
    }
    static constexpr bool reads_out = false;
};
struct add_bias {
    vx_k_matrix x;
    const void *bias;
    vx_dtype type;
    bool f16;
    __device__ float operator()(int64_t row, int64_t column, float) const
    {
        const float b = load(bias, type, column);
        return __fadd_rn(load(x.data, VX_F32, row * x.stride + column), f16 ? rounded(VX_F16, b) : b);
    }
    static constexpr bool reads_out = false;
};
struct add_scaled {
    vx_k_matrix u;
    float scale;
    __device__ float operator()(int64_t row, int64_t column, float out) const
    {
        return __fadd_rn(out, rounded(u.dtype, __fmul_rn(scale, load(u.data, u.dtype, row * u.stride + column))));
    }
    static constexpr bool reads_out = true;
};
struct scale_columns {
    vx_k_matrix x;
    const void *factor;
    vx_dtype type;
    __device__ float operator()(int64_t row, int64_t column, float) const
    {
        return __fmul_rn(load(x.data, x.dtype, row * x.stride + column), load(factor, type, column));
    }
    static constexpr bool reads_out = false;
};

template <typename F> static __global__ void each(vx_k_matrix out, F f, int64_t rows, int64_t columns)
{
    for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
        const int64_t first = static_cast<int64_t>(blockIdx.x) * WIDTH * PER_THREAD + threadIdx.x;
#pragma unroll
        for (int i = 0; i < PER_THREAD; i++) {
            const int64_t column = first + static_cast<int64_t>(i) * WIDTH, at = row * out.stride + column;
            if (column < columns)
                store(out.data, out.dtype, at, f(row, column, F::reads_out ? load(out.data, out.dtype, at) : 0));
        }
    }
}

template <typename F> static cudaError_t launch(vx_k_matrix out, F f, int64_t rows, int64_t columns, cudaStream_t stream)
{
    if (rows <= 0 || columns <= 0) return cudaSuccess;
    const int64_t across = (columns + WIDTH * PER_THREAD - 1) / (WIDTH * PER_THREAD);
    const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(rows < 65535 ? rows : 65535));
    each<<<grid, WIDTH, 0, stream>>>(out, f, rows, columns);
    return cudaGetLastError();
}

cudaError_t vx_k_convert(vx_k_matrix out, vx_k_matrix x, int64_t rows, int64_t columns, cudaStream_t stream)
{
    return launch(out, copy_as{ x }, rows, columns, stream);
}

cudaError_t vx_k_bias(vx_k_matrix out, vx_k_matrix x, const void *bias, vx_dtype bias_type, bool f16_bias, int64_t rows,
                      int64_t columns, cudaStream_t stream)
{
    return launch(out, add_bias{ x, bias, bias_type, f16_bias }, rows, columns, stream);
}

cudaError_t vx_k_add_scaled(vx_k_matrix out, vx_k_matrix u, float scale, int64_t rows, int64_t columns, cudaStream_t stream)
{
    return launch(out, add_scaled{ u, scale }, rows, columns, stream);
}

cudaError_t vx_k_scale_columns(vx_k_matrix out, vx_k_matrix x, const void *factor, vx_dtype factor_type, int64_t rows,
                               int64_t columns, cudaStream_t stream)
{
    return launch(out, scale_columns{ x, factor, factor_type }, rows, columns, stream);
}

// splitmix64 of the element's number; the ones among its bits are as good as normal: mean 32, deviation 4.
static __global__ void make_up(void *out, vx_dtype dtype, int64_t count, float mean, float deviation, uint64_t seed)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        uint64_t z = seed + 0x9e3779b97f4a7c15u * (uint64_t)(i + 1);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        const float ones = (float)(__popcll(z ^ (z >> 31)) - 32);
        store(out, dtype, i, __fadd_rn(mean, __fmul_rn(deviation, 0.25f * ones)));
    }
}

cudaError_t vx_k_made_up(void *out, vx_dtype dtype, int64_t count, float mean, float deviation, uint64_t seed,
                         cudaStream_t stream)
{
    enum { BLOCKS = 1056 };
    make_up<<<BLOCKS, WIDTH, 0, stream>>>(out, dtype, count, mean, deviation, seed);
    return cudaGetLastError();
}
