// A block takes a stretch of one channel of a line; the doubled signal lives in shared memory as its even and its odd samples, as on the CPU.
//   even[i] = 2 sum_t up[1+2t] x[i+2-t]     odd[i] = 2 sum_t up[2t] x[i+3-t]      t = 0..5, the first by a product, then fma
//   y[m] = sum_t down[t] v[2m+t-5]          t = 0..11, v[2i] = even[i], v[2i+1] = odd[i] after the snake
// exp is tensor/mathf_inline.h itself, the sine line by line without its sign.
#include "device/cuda/kernels/snake.h"

#include "tensor/mathf_inline.h"

namespace
{

enum { THREADS = 128, TILE = 512, HALO = 3, TAPS = 12 };

// 32 bits of 2/pi after 32 zeros, from bit `bit` on.
__device__ inline uint32_t word_at(int bit)
{
    constexpr uint32_t two_over_pi[8] = { 0,           0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
                                          0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu };
    const uint64_t two = (uint64_t)two_over_pi[bit / 32] << 32 | two_over_pi[bit / 32 + 1];
    return (uint32_t)(two >> (32 - bit % 32));
}

// Payne and Hanek, as in mathf.c; out of line: rare.
__device__ __noinline__ float reduce_large(float a, uint32_t *quadrant)
{
    const uint32_t bits = __float_as_uint(a);
    const int e = (int)(bits >> 23) - 150;
    const uint64_t m = (bits & 0x7fffffu) | 0x800000u;
    const int first = 32 + e - 2;
    const uint64_t turns = ((m * word_at(first)) << 32) + m * word_at(first + 32) + ((m * word_at(first + 64)) >> 32);
    const uint64_t nearest = turns + (UINT64_C(1) << 61);
    *quadrant = (uint32_t)(nearest >> 62);
    const int64_t rest = (int64_t)(nearest & ((UINT64_C(1) << 62) - 1)) - (INT64_C(1) << 61);
    return (float)((double)rest * (0x1.921fb54442d18p0 * 0x1p-62));
}

// sin(x)^2, both roundings; signs are left out all the way, the square has none.
__device__ inline float sine_squared(float x)
{
    const float a = fabsf(x);
    const float t = __fmaf_rn(a, VX_SIN_2_OVER_PI, VX_MATHF_MAGIC);
    const float k = t - VX_MATHF_MAGIC;
    uint32_t quadrant = __float_as_uint(t);
    float r = __fmaf_rn(k, -VX_SIN_PIO2_1, a);
    r = __fmaf_rn(k, -VX_SIN_PIO2_2, r);
    r = __fmaf_rn(k, -VX_SIN_PIO2_3, r);
    if (!(a <= VX_SIN_LIMIT)) { // NaN too
        if (!(a < __int_as_float(0x7f800000))) return __int_as_float(0x7fc00000);
        r = reduce_large(a, &quadrant);
    }
    const float z = r * r;
    float s = __fmaf_rn(VX_SIN_S2, z, VX_SIN_S1);
    s = __fmaf_rn(s, z, VX_SIN_S0);
    s = __fmaf_rn(r * z, s, r);
    float c = __fmaf_rn(VX_SIN_C2, z, VX_SIN_C1);
    c = __fmaf_rn(c, z, VX_SIN_C0);
    c = __fmaf_rn(z * z, c, __fmaf_rn(z, -0.5f, 1.0f));
    const float value = quadrant & 1u ? c : s;
    return value * value;
}

__device__ inline int clamp(int i, int last)
{
    return i < 0 ? 0 : i > last ? last : i;
}

__global__ void __launch_bounds__(THREADS) snake_alias_free(const __grid_constant__ vx_k_snake s, int tiles)
{
    __shared__ float x[TILE + 4 * HALO], even[TILE + 2 * HALO], odd[TILE + 2 * HALO];
    const int row = blockIdx.x / tiles, start = blockIdx.x % tiles * TILE;
    const int channel = row / s.lines, line = row % s.lines;
    const int count = s.length - start < TILE ? s.length - start : TILE;
    const float *from = s.x + channel * s.x_stride + line * s.x_line;
    float up[TAPS], down[TAPS];
#pragma unroll
    for (int t = 0; t < TAPS; t++) {
        up[t] = 2.0f * s.up[t * s.up_stride]; // doubling is exact: before the sum or after it
        down[t] = s.down[t * s.down_stride];
    }
    const float alpha = vx_expf_inline(s.alpha[channel * s.alpha_stride]);
    const float gain = 1.0f / (vx_expf_inline(s.beta[channel * s.beta_stride]) + 1e-9f);
    for (int i = threadIdx.x; i < count + 4 * HALO; i += THREADS) x[i] = from[clamp(start + i - 2 * HALO, s.length - 1)];
    __syncthreads();
    for (int i = threadIdx.x; i < count + 2 * HALO; i += THREADS) {
        // Beyond the ends the activated signal repeats itself, not the input.
        const int number = start + i - HALO, inside = clamp(number, s.length - 1);
        const float *here = x + inside - start + 2 * HALO;
        float e = up[1] * here[2], o = up[0] * here[3];
#pragma unroll
        for (int t = 1; t < 6; t++) {
            e = __fmaf_rn(up[1 + 2 * t], here[2 - t], e);
            o = __fmaf_rn(up[2 * t], here[3 - t], o);
        }
        e = e + gain * sine_squared(alpha * e);
        o = o + gain * sine_squared(alpha * o);
        even[i] = number > inside ? o : e;
        odd[i] = number < inside ? e : o;
    }
    __syncthreads();
    float *out = s.out + channel * s.out_stride + line * s.out_line + start;
    for (int m = threadIdx.x; m < count; m += THREADS) {
        const float *e = even + m + HALO, *o = odd + m + HALO;
        float y = down[0] * o[-3];
#pragma unroll
        for (int t = 1; t < TAPS; t++) y = __fmaf_rn(down[t], t & 1 ? e[(t - 5) / 2] : o[(t - 6) / 2], y);
        out[m] = y;
    }
}

} // namespace

cudaError_t vx_k_snake_alias_free(const vx_k_snake *s, cudaStream_t stream)
{
    const int tiles = (s->length + TILE - 1) / TILE;
    const unsigned blocks = (unsigned)s->channels * (unsigned)s->lines * (unsigned)tiles;
    snake_alias_free<<<blocks, THREADS, 0, stream>>>(*s, tiles);
    return cudaGetLastError();
}
