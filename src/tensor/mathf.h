// The one exp, and sine and cosine with full range reduction, in f32: the same bits on every processor and in every
// vector width, because each is a fixed sequence of IEEE operations with fma where written. Error at most 1 ulp.
#ifndef VX_TENSOR_MATHF_H
#define VX_TENSOR_MATHF_H

#include <math.h>
#include <stdint.h>
#include "tensor/dtype.h"

// e^x. NaN stays NaN; above 88.72284 infinity; below -87.33655 the result is flushed to +0 (subnormals are not made).
// docs/numerics.md derives the polynomial and states the error found by an exhaustive test.
float vx_expf(float x);

// sin and cos of any finite x, |error| <= 2^-22 relative to 1; infinity and NaN give NaN. Three-part Cody-Waite for
// |x| <= 48000, Payne-Hanek in f64 above.
float vx_sinf(float x);
float vx_cosf(float x);

#endif
