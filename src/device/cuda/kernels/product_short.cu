// Products that are too small for speed to matter, by the definition of vx_linear (device/operators.h): one chain over k an output,
// so the processor's bits. A block of threads computes 16 x 16 outputs; x and the weight go by in shared memory, widened.
#include "device/cuda/kernels/convert.h"

#include <cuda_fp16.h>

enum { SIDE = 16, STEP = 32 };

static __device__ __forceinline__ float widened(const void *data, vx_dtype type, int64_t i)
{
    if (type == VX_F32) return static_cast<const float *>(data)[i];
    if (type == VX_BF16) return vx_bf16_to_f32(static_cast<const uint16_t *>(data)[i]);
    return __half2float(static_cast<const __half *>(data)[i]);
}

// Rows [first, first + SIDE) and columns [begin, begin + STEP) of a matrix; what lies outside is zero.
static __device__ void bring(float (*to)[STEP + 1], const vx_k_matrix &from, int64_t first, int64_t rows, int64_t begin,
                             int64_t k)
{
    const int thread = (int)(threadIdx.y * SIDE + threadIdx.x);
    for (int i = thread; i < SIDE * STEP; i += SIDE * SIDE) {
        const int row = i / STEP, column = i % STEP;
        const bool there = first + row < rows && begin + column < k;
        to[row][column] = there ? widened(from.data, from.dtype, (first + row) * from.stride + begin + column) : 0.0f;
    }
}

static __global__ void __launch_bounds__(SIDE *SIDE)
    multiply(vx_k_matrix out, vx_k_matrix x, vx_k_matrix w, const void *bias, int64_t m, int64_t n, int64_t k)
{
    __shared__ float xs[SIDE][STEP + 1], ws[SIDE][STEP + 1];
    const int64_t row = (int64_t)blockIdx.y * SIDE + threadIdx.y, column = (int64_t)blockIdx.x * SIDE + threadIdx.x;
    const bool pairs = x.dtype == VX_BF16; // of which the odd element comes first
    float sum = 0.0f;
    for (int64_t begin = 0; begin < k; begin += STEP) {
        bring(xs, x, (int64_t)blockIdx.y * SIDE, m, begin, k);
        bring(ws, w, (int64_t)blockIdx.x * SIDE, n, begin, k);
        __syncthreads();
        const int count = k - begin < STEP ? (int)(k - begin) : STEP;
        for (int i = 0; i < (count + 1) / 2 * 2; i++) {
            const int at = pairs ? i ^ 1 : i;
            if (at < count) sum = __fmaf_rn(xs[threadIdx.y][at], ws[threadIdx.x][at], sum);
        }
        __syncthreads();
    }
    if (row >= m || column >= n) return;
    if (bias) sum = __fadd_rn(sum, widened(bias, out.dtype, column));
    const int64_t at = row * out.stride + column;
    if (out.dtype == VX_F32) static_cast<float *>(out.data)[at] = sum;
    else if (out.dtype == VX_BF16) static_cast<uint16_t *>(out.data)[at] = vx_f32_to_bf16(sum);
    else static_cast<__half *>(out.data)[at] = __float2half_rn(sum);
}

cudaError_t vx_k_product_short(vx_k_matrix out, vx_k_matrix x, vx_k_matrix w, const void *bias, int64_t m, int64_t n, int64_t k,
                               cudaStream_t stream)
{
    const dim3 blocks((unsigned)((n + SIDE - 1) / SIDE), (unsigned)((m + SIDE - 1) / SIDE));
    multiply<<<blocks, dim3(SIDE, SIDE), 0, stream>>>(out, x, w, bias, m, n, k);
    return cudaGetLastError();
}
