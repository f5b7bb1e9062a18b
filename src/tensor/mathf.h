// The one exp, sine and cosine with full range reduction, tanh and erf, in f32: the same bits on every processor and in every
// vector width, because each is a fixed sequence of IEEE operations with fma where written.
#ifndef VX_TENSOR_MATHF_H
#define VX_TENSOR_MATHF_H

#include "tensor/dtype.h"
#include <math.h>
#include <stdint.h>

// e^x, at most 1 ulp off. NaN stays NaN; above 88.72283 infinity, so x / (1 + vx_expf(-x)) is -0 for x <= -89 as in PyTorch;
// below -87.33654, where the result would be subnormal, +0. docs/numerics.md states the error found by an exhaustive test.
float vx_expf(float x);

// sin and cos of any finite x, |error| <= 2^-23 relative to 1; sin(-0) is -0; infinity and NaN give NaN. Three-part
// Cody-Waite for |x| <= 48000, Payne-Hanek above. mathf_inline.h has the statements for a vector version.
float vx_sinf(float x);
float vx_cosf(float x);

// Error at most 2 ulp, odd, NaN gives NaN, infinity gives 1.
float vx_tanhf(float x);
float vx_erff(float x);

#endif
