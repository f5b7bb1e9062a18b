// The decoders of tensor/quant.c and quant_gguf.c, one thread a column, 256 columns a block: a multiple of every format's block,
// so that ConvRot's groups meet in shared memory. Every operation is written as there, and rounded as there.
#include "device/cuda/kernels/quant.h"

#include <cuda_fp16.h>

enum { STRETCH = 256, NVFP4_BLOCK = 16, MXFP8_BLOCK = 32 };
enum { Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13, Q6_K = 14 };

using decoder = vx_k_quant;

static __device__ __forceinline__ float half_of(uint16_t bits)
{
    return __half2float(__ushort_as_half(bits));
}

static __device__ __forceinline__ float half_at(const uint8_t *p)
{
    return half_of(static_cast<uint16_t>(p[0] | p[1] << 8));
}

static __device__ __forceinline__ float with_sign(float x, int negative)
{
    return __uint_as_float(__float_as_uint(x) | (negative ? 0x80000000u : 0));
}

static __device__ float e4m3(uint8_t b)
{
    const unsigned m = b & 0x7fu;
    if (m == 0x7f) return with_sign(__uint_as_float(0x7fc00000u), b & 0x80);
    return with_sign(m < 8 ? static_cast<float>(m) * 0.001953125f : __uint_as_float((m << 20) + (120u << 23)), b & 0x80);
}

static __device__ float e2m1(int code)
{
    const int m = code & 7;
    const float x = m < 2 ? 0.5f * static_cast<float>(m) : __uint_as_float((static_cast<unsigned>(m) << 22) + (126u << 23));
    return with_sign(x, code & 8);
}

static __device__ float e8m0(uint8_t b)
{
    if (b == 0xff) return __uint_as_float(0x7fc00000u);
    return __uint_as_float(b ? static_cast<unsigned>(b) << 23 : 0x00400000u);
}

static __device__ __forceinline__ int nibble(const uint8_t *row, int64_t column)
{
    return (row[column / 2] >> (column & 1 ? 4 : 0)) & 15;
}

// Where the block scale of a row and a group stands: tiles of 128 rows and 4 groups.
static __device__ int64_t tiled(int64_t columns, int64_t r, int64_t c)
{
    return (r / 128 * ((columns + 3) / 4) + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
}

// ---- ggml's blocks: weight i of block b ----
static __device__ float halves(const uint8_t *qs, uint32_t fifth, int zero, float d, float m, bool has_m, int i)
{
    const int low = i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
    const float y = static_cast<float>((low | static_cast<int>(fifth >> i & 1) << 4) - zero) * d;
    return has_m ? y + m : y;
}

static __device__ uint32_t word_at(const uint8_t *p)
{
    return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 | static_cast<uint32_t>(p[2]) << 16 |
           static_cast<uint32_t>(p[3]) << 24;
}

static __device__ float q45_k(const uint8_t *b, const uint8_t *qh, const uint8_t *qs, int i)
{
    const int g = i / 32, l = i % 32;
    const uint8_t *s = b + 4;
    const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
    const int min = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
    int q = qs[g / 2 * 32 + l] >> g % 2 * 4 & 15;
    if (qh) q += (qh[l] >> g & 1) * 16;
    return half_at(b) * static_cast<float>(scale) * static_cast<float>(q) - half_at(b + 2) * static_cast<float>(min);
}

static __device__ float q6_k(const uint8_t *b, int i)
{
    const int h = i / 128, quarter = i / 32 % 4, l = i % 32;
    const int low = b[64 * h + 32 * (quarter & 1) + l] >> (quarter & 2) * 2 & 15;
    const int high = b[128 + 32 * h + l] >> 2 * quarter & 3;
    return half_at(b + 208) * static_cast<float>(static_cast<int8_t>(b[192 + i / 16])) *
           static_cast<float>((low | high << 4) - 32);
}

static __device__ float q2_k(const uint8_t *b, int i)
{
    const int h = i / 128, j = i / 32 % 4, l = i % 32, sc = b[i / 16];
    return half_at(b + 80) * static_cast<float>(sc & 15) * static_cast<float>(b[16 + 32 * h + l] >> 2 * j & 3) -
           half_at(b + 82) * static_cast<float>(sc >> 4);
}

static __device__ float q3_k(const uint8_t *b, int i)
{
    const uint8_t *s = b + 96;
    const int h = i / 128, j = i / 32 % 4, l = i % 32, g = i / 16;
    const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4, scale = (low | (s[8 + g % 4] >> 2 * (g / 4) & 3) << 4) - 32;
    const int q = (b[32 + 32 * h + l] >> 2 * j & 3) - (b[l] >> (4 * h + j) & 1 ? 0 : 4);
    return half_at(b + 108) * static_cast<float>(scale) * static_cast<float>(q);
}

static __device__ float gguf(int type, const uint8_t *b, int i)
{
    switch (type) {
    case Q4_0: return halves(b + 2, 0, 8, half_at(b), 0, false, i);
    case Q4_1: return halves(b + 4, 0, 0, half_at(b), half_at(b + 2), true, i);
    case Q5_0: return halves(b + 6, word_at(b + 2), 16, half_at(b), 0, false, i);
    case Q5_1: return halves(b + 8, word_at(b + 4), 0, half_at(b), half_at(b + 2), true, i);
    case Q8_0: return static_cast<float>(static_cast<int8_t>(b[2 + i])) * half_at(b);
    case Q2_K: return q2_k(b, i);
    case Q3_K: return q3_k(b, i);
    case Q4_K: return q45_k(b, nullptr, b + 16, i);
    case Q5_K: return q45_k(b, b + 16, b + 48, i);
    default: return q6_k(b, i);
    }
}

// ---- one weight, before ConvRot and what follows it ----
static __device__ float row_scale(const decoder &q, int64_t r)
{
    return q.scale[q.scale_count == 1 ? 0 : (q.row + r) * q.scale_stride];
}

static __device__ __forceinline__ const uint8_t *scales_of(const decoder &q)
{
    return static_cast<const uint8_t *>(q.block_scale);
}

static __device__ float correction(const decoder &q, int64_t r, int64_t g)
{
    const int64_t i = g * q.correction_group + (q.row + r) * q.correction_row;
    if (q.correction_type == VX_F32) return static_cast<const float *>(q.correction)[i];
    const uint16_t h = static_cast<const uint16_t *>(q.correction)[i];
    return q.correction_type == VX_BF16 ? vx_bf16_to_f32(h) : half_of(h);
}

static __device__ float w4a8(const decoder &q, const uint8_t *row, int64_t r, int64_t column)
{
    const int code = nibble(row, column);
    const int64_t g = column / q.group, at = (q.row + r) * q.block_columns + g;
    const float v = q.codebook ? q.codebook[code * q.codebook_stride] : static_cast<float>(code - 8);
    const float relative = q.block_type == VX_F32 ? static_cast<const float *>(q.block_scale)[at]
                                                  : e4m3(static_cast<const uint8_t *>(q.block_scale)[at]);
    float x = rintf(v * relative) + 0.0f;
    x = x < -127 ? -127 : x > 127 ? 127 : x;
    return q.correction ? x * row_scale(q, r) + correction(q, r, g) : x;
}

static __device__ float value(const decoder &q, int64_t r, int64_t column)
{
    const uint8_t *row = q.values + r * q.stride;
    switch (q.kind) {
    case VX_K_FP8: {
        const float scale = row_scale(q, r);
        const float x = q.values_type == VX_F8_E5M2 ? half_of(static_cast<uint16_t>(row[column] << 8)) : e4m3(row[column]);
        return x * (q.as_bf16 && q.scale_count == 1 ? vx_round_bf16(scale) : scale);
    }
    case VX_K_INT8: return static_cast<float>(static_cast<int8_t>(row[column]));
    case VX_K_INT4: return static_cast<float>((nibble(row, column) ^ 8) - 8);
    case VX_K_W4A8: return w4a8(q, row, r, column);
    case VX_K_NVFP4: {
        const int64_t blocks = (q.k + NVFP4_BLOCK - 1) / NVFP4_BLOCK;
        const float e = e4m3(scales_of(q)[tiled(blocks, q.row + r, column / NVFP4_BLOCK)]);
        return e2m1(nibble(row, column ^ 1)) * (e * q.scale[0]);
    }
    case VX_K_MXFP8: {
        const int64_t blocks = (q.k + MXFP8_BLOCK - 1) / MXFP8_BLOCK;
        const uint8_t e = scales_of(q)[tiled(blocks, q.row + r, column / MXFP8_BLOCK)];
        return e4m3(row[column]) * (e ? e8m0(e) : 0.0f);
    }
    default: return gguf(q.type, row + column / q.block * q.block_bytes, static_cast<int>(column % q.block));
    }
}

// ConvRot's butterfly over groups of x, all threads of the block together.
static __device__ float rotated(float mine, int group, float *x)
{
    const int i = static_cast<int>(threadIdx.x);
    float root = 1;
    x[i] = mine;
    __syncthreads();
    for (int s = 1; s < group; s *= 4) {
        root *= 0.5f;
        if (i / s % 4 == 0) {
            const float a = x[i] + x[i + s], b = x[i + 2 * s] + x[i + 3 * s];
            const float c = x[i] - x[i + s], d = x[i + 2 * s] - x[i + 3 * s];
            x[i] = a + d;
            x[i + s] = a - d;
            x[i + 2 * s] = b + c;
            x[i + 3 * s] = b - c;
        }
        __syncthreads();
    }
    const float result = x[i] * root;
    __syncthreads(); // before the next row is put there
    return result;
}

static __device__ void store(const vx_k_matrix &out, int64_t i, float x)
{
    if (out.dtype == VX_F32) static_cast<float *>(out.data)[i] = x;
    else if (out.dtype == VX_BF16) static_cast<uint16_t *>(out.data)[i] = vx_f32_to_bf16(x);
    else static_cast<__half *>(out.data)[i] = __float2half_rn(x);
}

// Row i of out is row ids[i] of the matrix, or without ids row first + i.
static __global__ void decode(decoder q, const int32_t *ids, int64_t first, int64_t rows, vx_k_matrix out)
{
    __shared__ float group[STRETCH];
    const int64_t column = static_cast<int64_t>(blockIdx.x) * STRETCH + threadIdx.x;
    const bool scaled = q.kind == VX_K_INT8 || q.kind == VX_K_INT4 || (q.kind == VX_K_W4A8 && !q.correction);
    for (int64_t i = blockIdx.y; i < rows; i += gridDim.y) {
        const int64_t row = ids ? ids[i] : first + i;
        float x = column < q.k ? value(q, row, column) : 0;
        if (q.rotate) x = rotated(x, q.rotate, group);
        if (column >= q.k) continue;
        if (scaled) x *= row_scale(q, row);
        store(out, i * out.stride + column, x);
    }
}

static cudaError_t launch(const vx_k_quant *quant, const int32_t *ids, int64_t row, int64_t rows, vx_k_matrix out,
                          cudaStream_t stream)
{
    if (rows <= 0 || quant->k <= 0) return cudaSuccess;
    vx_k_quant q = *quant;
    q.as_bf16 = out.dtype == VX_BF16;
    const dim3 grid(static_cast<unsigned>((q.k + STRETCH - 1) / STRETCH), static_cast<unsigned>(rows < 65535 ? rows : 65535));
    decode<<<grid, STRETCH, 0, stream>>>(q, ids, row, rows, out);
    return cudaGetLastError();
}

cudaError_t vx_k_quant_decode(const vx_k_quant *quant, int64_t row, int64_t rows, vx_k_matrix out, cudaStream_t stream)
{
    return launch(quant, nullptr, row, rows, out, stream);
}

cudaError_t vx_k_quant_embed(const vx_k_quant *quant, const int32_t *ids, int64_t rows, vx_k_matrix out, cudaStream_t stream)
{
    return launch(quant, ids, 0, rows, out, stream);
}
