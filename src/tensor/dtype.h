// Number formats and their exact conversions. Scalars here are the definition; loops over rows live in the back ends.
//
// Rounding is to nearest, ties to even, unless a name says otherwise. Sources: IEEE 754-2019 (f16, f32), the OCP 8-bit
// floating point specification 1.0 (e4m3, e5m2), the OCP microscaling specification 1.0 (e2m1, e8m0).
#ifndef VX_TENSOR_DTYPE_H
#define VX_TENSOR_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Functions that kernels use, too: nvcc wants to be told.
#ifdef __CUDACC__
#define VX_BOTH __host__ __device__
#else
#define VX_BOTH
#endif

typedef enum vx_dtype {
    VX_DTYPE_NONE = 0,
    VX_F32,
    VX_F16,
    VX_BF16,
    VX_F8_E4M3,
    VX_F8_E5M2,
    VX_F8_E8M0,
    VX_F4_E2M1, // stored formats; e2m1 is counted in elements, two to a byte
    VX_F64,
    VX_I64,
    VX_I32,
    VX_I16,
    VX_I8,
    VX_U64,
    VX_U32,
    VX_U16,
    VX_U8,
    VX_BOOL,
    VX_DTYPE_COUNT
} vx_dtype;

int vx_dtype_bits(vx_dtype t);                              // 4, 8, 16, 32, 64; 0 for VX_DTYPE_NONE
const char *vx_dtype_name(vx_dtype t);                      // safetensors' spelling: "F32", "BF16", "F8_E4M3"
vx_dtype vx_dtype_from_name(const char *name, size_t size); // VX_DTYPE_NONE if unknown

static inline VX_BOTH uint32_t vx_f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
static inline VX_BOTH float vx_f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static inline VX_BOTH float vx_bf16_to_f32(uint16_t b)
{
    return vx_f32_from_bits((uint32_t)b << 16);
}
// NaN stays NaN (quiet, sign kept); overflow gives infinity.
static inline VX_BOTH uint16_t vx_f32_to_bf16(float x)
{
    uint32_t u = vx_f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
static inline VX_BOTH float vx_round_bf16(float x)
{
    return vx_bf16_to_f32(vx_f32_to_bf16(x));
}

float vx_f16_to_f32(uint16_t h);
uint16_t vx_f32_to_f16(float x); // overflow gives infinity
float vx_e4m3_to_f32(uint8_t b); // 0x7f, 0xff are NaN; no infinity
uint8_t vx_f32_to_e4m3(float x); // saturates at +-448; NaN gives 0x7f with x's sign
float vx_e5m2_to_f32(uint8_t b);
uint8_t vx_f32_to_e5m2(float x);    // overflow gives infinity; NaN gives 0x7f with x's sign
float vx_e2m1_to_f32(uint8_t code); // low four bits: sign, then 0 .5 1 1.5 2 3 4 6
uint8_t vx_f32_to_e2m1(float x);    // saturates at +-6; the sign of zero is kept; NaN gives 7 with x's sign
float vx_e8m0_to_f32(uint8_t b);    // 2^(b-127); 0xff is NaN; 0 is 2^-127 (subnormal)
// The nearest power of two; halfway (1.5 * 2^k) goes up, which is what IEEE 754 4.3.1 says for one digit of precision and what
// PyTorch's float8_e8m0fnu does from 2^-126 on. NaN, and 1.5 * 2^127 and more, give 0xff; x <= 2^-127, zero and negatives give 0.
uint8_t vx_f32_to_e8m0(float x);

#endif
