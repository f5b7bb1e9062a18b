// Inside the kernels on rows: eight numbers of a format at a time, and the sums of operators.h across a warp.
#ifndef VX_DEVICE_CUDA_KERNELS_ROWS_INSIDE_H
#define VX_DEVICE_CUDA_KERNELS_ROWS_INSIDE_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "device/cuda/kernels/rows.h"
#include "tensor/mathf_inline.h"

#define VX_DEVICE        static __device__ __forceinline__
#define VX_DEVICE_MEMBER __device__ __forceinline__

enum { OCTET = 8, WARP = 32 };
#define EVERYONE 0xffffffffu

// ---- one number ----

VX_DEVICE float from_f16(uint16_t h)
{
    const float v = __half2float(__ushort_as_half(h));
    // The instruction may change a NaN's payload; vx_f16_to_f32 keeps it and makes it quiet.
    const uint32_t nan = 0x7fc00000u | (uint32_t)(h & 0x8000u) << 16 | (uint32_t)(h & 0x3ffu) << 13;
    return (h & 0x7fffu) > 0x7c00u ? vx_f32_from_bits(nan) : v;
}

VX_DEVICE uint16_t to_f16(float x)
{
    const uint32_t u = vx_f32_bits(x);
    const uint16_t nan = (uint16_t)((u >> 16 & 0x8000u) | 0x7e00u | (u >> 13 & 0x3ffu));
    return (u & 0x7fffffffu) > 0x7f800000u ? nan : __half_as_ushort(__float2half_rn(x));
}

template <vx_dtype T> VX_DEVICE float get(const void *p, int64_t i)
{
    if (T == VX_F32) return ((const float *)p)[i];
    const uint16_t h = ((const uint16_t *)p)[i];
    return T == VX_BF16 ? vx_bf16_to_f32(h) : from_f16(h);
}
template <vx_dtype T> VX_DEVICE void put(void *p, int64_t i, float v)
{
    if (T == VX_F32) ((float *)p)[i] = v;
    else ((uint16_t *)p)[i] = T == VX_BF16 ? vx_f32_to_bf16(v) : to_f16(v);
}
VX_DEVICE float get_any(vx_dtype t, const void *p, int64_t i)
{
    return t == VX_F32 ? get<VX_F32>(p, i) : t == VX_BF16 ? get<VX_BF16>(p, i) : get<VX_F16>(p, i);
}
// rn() of operators.h.
template <vx_dtype T> VX_DEVICE float rn(float v)
{
    if (T == VX_BF16) return vx_round_bf16(v);
    return T == VX_F16 ? from_f16(to_f16(v)) : v;
}

// ---- eight numbers as they are stored ----

template <vx_dtype T> struct octet {
    enum { WORDS = T == VX_F32 ? 8 : 4 };
    uint32_t w[WORDS];
};

// What is known of a place. STILL: nobody writes there while the kernel runs, so a load need not keep its place among stores.
// PASSING: nobody comes back to it, so it should not drive tables that all rows share from the first-level cache.
enum traffic { ANY, STILL, PASSING };

VX_DEVICE uint4 load_passing(const uint4 *p)
{
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
VX_DEVICE void store_passing(uint4 *p, uint4 v)
{
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

// Elements i to i + count - 1, zeros after them. `wide`: count is 8 and the address is a multiple of 16.
template <vx_dtype T, traffic WHAT = ANY> VX_DEVICE octet<T> load(const void *row, int64_t i, int count, bool wide)
{
    octet<T> o;
    if (wide) {
        const uint4 *p = (const uint4 *)((const char *)row + i * (T == VX_F32 ? 4 : 2));
#pragma unroll
        for (int q = 0; q < octet<T>::WORDS / 4; q++) {
            const uint4 v = WHAT == STILL ? __ldg(p + q) : WHAT == PASSING ? load_passing(p + q) : p[q];
            o.w[4 * q] = v.x, o.w[4 * q + 1] = v.y, o.w[4 * q + 2] = v.z, o.w[4 * q + 3] = v.w;
        }
        return o;
    }
#pragma unroll
    for (int j = 0; j < octet<T>::WORDS; j++) {
        if (T == VX_F32) o.w[j] = j < count ? ((const uint32_t *)row)[i + j] : 0u;
        else {
            const uint32_t low = 2 * j < count ? ((const uint16_t *)row)[i + 2 * j] : 0u;
            const uint32_t high = 2 * j + 1 < count ? ((const uint16_t *)row)[i + 2 * j + 1] : 0u;
            o.w[j] = low | high << 16;
        }
    }
    return o;
}

template <vx_dtype T, traffic WHAT = ANY> VX_DEVICE void store(void *row, int64_t i, int count, bool wide, octet<T> o)
{
    if (wide) {
        uint4 *p = (uint4 *)((char *)row + i * (T == VX_F32 ? 4 : 2));
#pragma unroll
        for (int q = 0; q < octet<T>::WORDS / 4; q++) {
            const uint4 v = make_uint4(o.w[4 * q], o.w[4 * q + 1], o.w[4 * q + 2], o.w[4 * q + 3]);
            if (WHAT == PASSING) store_passing(p + q, v);
            else p[q] = v;
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < octet<T>::WORDS; j++) {
        if (T == VX_F32) {
            if (j < count) ((uint32_t *)row)[i + j] = o.w[j];
        } else {
            if (2 * j < count) ((uint16_t *)row)[i + 2 * j] = (uint16_t)o.w[j];
            if (2 * j + 1 < count) ((uint16_t *)row)[i + 2 * j + 1] = (uint16_t)(o.w[j] >> 16);
        }
    }
}

// A NaN stays one; what its bits are is not said.
template <vx_dtype T> VX_DEVICE void widen(float v[OCTET], octet<T> o)
{
#pragma unroll
    for (int j = 0; j < octet<T>::WORDS; j++) {
        if (T == VX_F32) v[j] = __uint_as_float(o.w[j]);
        else if (T == VX_BF16) {
            v[2 * j] = __uint_as_float(o.w[j] << 16);
            v[2 * j + 1] = __uint_as_float(o.w[j] & 0xffff0000u);
        } else {
            const float2 two = __half22float2(*(const __half2 *)&o.w[j]);
            v[2 * j] = two.x, v[2 * j + 1] = two.y;
        }
    }
}

// Rounds. What a NaN's bits are is not said: for results of arithmetic.
template <vx_dtype T> VX_DEVICE octet<T> pack(const float v[OCTET])
{
    octet<T> o;
#pragma unroll
    for (int j = 0; j < octet<T>::WORDS; j++) {
        if (T == VX_F32) o.w[j] = __float_as_uint(v[j]);
        else if (T == VX_BF16) {
            const __nv_bfloat162 two = __floats2bfloat162_rn(v[2 * j], v[2 * j + 1]);
            o.w[j] = *(const uint32_t *)&two;
        } else {
            const __half2 two = __floats2half2_rn(v[2 * j], v[2 * j + 1]);
            o.w[j] = *(const uint32_t *)&two;
        }
    }
    return o;
}

// The same, a NaN's bits as vx_f32_to_bf16 and vx_f32_to_f16 make them: for conversions.
template <vx_dtype T> VX_DEVICE octet<T> pack_exactly(const float v[OCTET])
{
    octet<T> o;
#pragma unroll
    for (int j = 0; j < octet<T>::WORDS; j++) {
        if (T == VX_F32) o.w[j] = __float_as_uint(v[j]);
        else if (T == VX_BF16) o.w[j] = vx_f32_to_bf16(v[2 * j]) | (uint32_t)vx_f32_to_bf16(v[2 * j + 1]) << 16;
        else o.w[j] = to_f16(v[2 * j]) | (uint32_t)to_f16(v[2 * j + 1]) << 16;
    }
    return o;
}

// rn(a + b). The sum of two bf16 rounded to f32 and then to bf16 is the sum rounded once: 24 >= 2 * 8 + 2 digits, and both have
// f32's range of exponents. So the packed addition has the same bits at a seventh of the instructions.
template <vx_dtype T> VX_DEVICE octet<T> add(octet<T> a, octet<T> b)
{
    if (T == VX_BF16) {
        octet<T> o;
#pragma unroll
        for (int j = 0; j < octet<T>::WORDS; j++) {
            const __nv_bfloat162 sum = __hadd2_rn(*(const __nv_bfloat162 *)&a.w[j], *(const __nv_bfloat162 *)&b.w[j]);
            o.w[j] = *(const uint32_t *)&sum;
        }
        return o;
    }
    float x[OCTET], y[OCTET];
    widen<T>(x, a);
    widen<T>(y, b);
#pragma unroll
    for (int j = 0; j < OCTET; j++) x[j] = x[j] + y[j];
    return pack<T>(x);
}

// The same, a NaN's bits as vx_f16_to_f32 makes them.
template <vx_dtype T> VX_DEVICE void widen_exactly(float v[OCTET], octet<T> o)
{
    widen<T>(v, o);
    if (T == VX_F16) {
#pragma unroll
        for (int j = 0; j < OCTET / 2; j++)
            v[2 * j] = from_f16((uint16_t)o.w[j]), v[2 * j + 1] = from_f16((uint16_t)(o.w[j] >> 16));
    }
}

template <traffic WHAT = ANY>
VX_DEVICE void load_any(float v[OCTET], vx_k_rows r, const void *row, int64_t i, int count, bool wide)
{
    if (r.dtype == VX_BF16) widen<VX_BF16>(v, load<VX_BF16, WHAT>(row, i, count, wide));
    else if (r.dtype == VX_F16) widen_exactly<VX_F16>(v, load<VX_F16, WHAT>(row, i, count, wide));
    else widen<VX_F32>(v, load<VX_F32, WHAT>(row, i, count, wide));
}

// ---- rows ----

VX_DEVICE void *row_at(vx_k_rows r, int64_t i)
{
    return (char *)r.data + i * r.stride * (r.dtype == VX_F32 ? 4 : 2);
}

// Whether whole octets of every row may be read at once.
static inline bool is_wide(vx_k_rows r)
{
    return !r.data || ((uintptr_t)r.data % 16 == 0 && r.stride % (r.dtype == VX_F32 ? 4 : 8) == 0);
}

// The canonical tree; all lanes get the same bits.
VX_DEVICE float tree32(float t)
{
#pragma unroll
    for (int o = WARP / 2; o > 0; o /= 2) t = t + __shfl_xor_sync(EVERYONE, t, o);
    return t;
}

// body(type) with a constant for each of the formats of activations.
#define EACH_ACT(dtype, body)           \
    do {                                \
        if ((dtype) == VX_BF16) {       \
            body(VX_BF16);              \
        } else if ((dtype) == VX_F16) { \
            body(VX_F16);               \
        } else {                        \
            body(VX_F32);               \
        }                               \
    } while (0)

#endif
