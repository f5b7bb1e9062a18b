// The scalar entries.
#include "tensor/mathf.h"

#include "tensor/mathf_inline.h"

float vx_expf(float x)
{
    return vx_expf_inline(x);
}

float vx_tanhf(float x)
{
    return vx_tanhf_inline(x);
}

float vx_erff(float x)
{
    return vx_erff_inline(x);
}

float vx_sinf(float x)
{
    return vx_sine_inline(x, 0u, vx_f32_bits(x) & 0x80000000u);
}

float vx_cosf(float x)
{
    return vx_sine_inline(x, 1u, 0u);
}
