// One number of a tensor at a time: what the plain operators are written with.
#ifndef VX_DEVICE_CPU_ELEMENT_H
#define VX_DEVICE_CPU_ELEMENT_H

#include "tensor/mathf_inline.h"
#include "tensor/tensor.h"

static inline int64_t vx_element_size(vx_dtype t)
{
    return vx_dtype_bits(t) / 8;
}

// Row i of a tensor [rows, ...].
static inline void *vx_row_at(vx_tensor t, int64_t i)
{
    return (char *)t.data + i * t.stride[0] * vx_element_size(t.dtype);
}

// Reads F32, BF16 or F16.
static inline float vx_get(const void *p, vx_dtype t, int64_t i)
{
    if (t == VX_F32) return ((const float *)p)[i];
    const uint16_t bits = ((const uint16_t *)p)[i];
    return t == VX_BF16 ? vx_bf16_to_f32(bits) : vx_f16_to_f32(bits);
}

static inline void vx_put(void *p, vx_dtype t, int64_t i, float v)
{
    if (t == VX_F32) ((float *)p)[i] = v;
    else ((uint16_t *)p)[i] = t == VX_BF16 ? vx_f32_to_bf16(v) : vx_f32_to_f16(v);
}

// rn() of operators.h: rounding to the format of activations.
static inline float vx_rn(vx_dtype act, float v)
{
    if (act == VX_BF16) return vx_round_bf16(v);
    return act == VX_F16 ? vx_f16_to_f32(vx_f32_to_f16(v)) : v;
}

#endif
