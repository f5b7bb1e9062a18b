// Conversions between f32 and the small formats, all through one description: a sign, `exponent` bits with a bias, and
// `mantissa` bits. What the formats do differently (infinity, saturation, NaN) is left to the caller of encode.
#include "tensor/dtype.h"

typedef struct format {
    int mantissa; // stored bits
    int bias;
    int sign; // bit position of the sign
} format;

static const format f16 = { 10, 15, 15 };
static const format e4m3 = { 3, 7, 7 };
static const format e5m2 = { 2, 15, 7 };
static const format e2m1 = { 1, 1, 3 };

static const struct {
    const char *name;
    int bits;
} dtypes[VX_DTYPE_COUNT] = {
    [VX_DTYPE_NONE] = { "none", 0 }, [VX_F32] = { "F32", 32 },        [VX_F16] = { "F16", 16 },        [VX_BF16] = { "BF16", 16 },
    [VX_F8_E4M3] = { "F8_E4M3", 8 }, [VX_F8_E5M2] = { "F8_E5M2", 8 }, [VX_F8_E8M0] = { "F8_E8M0", 8 }, [VX_F4_E2M1] = { "F4", 4 },
    [VX_F64] = { "F64", 64 },        [VX_I64] = { "I64", 64 },        [VX_I32] = { "I32", 32 },        [VX_I16] = { "I16", 16 },
    [VX_I8] = { "I8", 8 },           [VX_U64] = { "U64", 64 },        [VX_U32] = { "U32", 32 },        [VX_U16] = { "U16", 16 },
    [VX_U8] = { "U8", 8 },           [VX_BOOL] = { "BOOL", 8 },
};

static int known(vx_dtype t)
{
    return (int)t > VX_DTYPE_NONE && t < VX_DTYPE_COUNT;
}

int vx_dtype_bits(vx_dtype t)
{
    return known(t) ? dtypes[t].bits : 0;
}

const char *vx_dtype_name(vx_dtype t)
{
    return dtypes[known(t) ? t : VX_DTYPE_NONE].name;
}

vx_dtype vx_dtype_from_name(const char *name, size_t size)
{
    for (int t = VX_DTYPE_NONE + 1; t < VX_DTYPE_COUNT; t++)
        if (strlen(dtypes[t].name) == size && memcmp(dtypes[t].name, name, size) == 0) return (vx_dtype)t;
    return VX_DTYPE_NONE;
}

// 2^e for -126 <= e <= 127.
static float power_of_two(int e)
{
    return vx_f32_from_bits((uint32_t)(e + 127) << 23);
}

// The code without its sign of a value that is no special code.
static float decode(uint32_t code, format f)
{
    if (code >> f.mantissa == 0) return (float)code * power_of_two(1 - f.bias - f.mantissa);
    return vx_f32_from_bits((code << (23 - f.mantissa)) + ((uint32_t)(127 - f.bias) << 23));
}

// |x| rounded to nearest even as if the exponent had no end, so the result may exceed the format's largest code. x is no NaN.
static uint32_t encode(float x, format f)
{
    const uint32_t magnitude = vx_f32_bits(x) & 0x7fffffffu;
    if (magnitude >= (uint32_t)(128 - f.bias) << 23) {
        const int drop = 23 - f.mantissa;
        const uint32_t u = magnitude - ((uint32_t)(127 - f.bias) << 23);
        return (u + (1u << (drop - 1)) - 1 + ((u >> drop) & 1u)) >> drop; // a carry out of the mantissa is the next exponent
    }
    // Below the least normal the step is constant: adding 2^23 steps makes the f32 adder round to whole steps.
    const float anchor = power_of_two(23 + 1 - f.bias - f.mantissa);
    return vx_f32_bits(vx_f32_from_bits(magnitude) + anchor) - vx_f32_bits(anchor);
}

static uint32_t sign_of(float x, format f)
{
    return (vx_f32_bits(x) >> 31) << f.sign;
}

static float with_sign(float magnitude, uint32_t code, format f)
{
    return vx_f32_from_bits(vx_f32_bits(magnitude) | ((code >> f.sign) & 1u) << 31);
}

static int is_nan(float x)
{
    return (vx_f32_bits(x) & 0x7fffffffu) > 0x7f800000u;
}

static uint32_t at_most(uint32_t code, uint32_t limit)
{
    return code < limit ? code : limit;
}

float vx_f16_to_f32(uint16_t h)
{
    const uint32_t magnitude = h & 0x7fffu;
    if (magnitude < 0x7c00u) return with_sign(decode(magnitude, f16), h, f16);
    // Payload kept and NaN made quiet, as the processors' own conversion does.
    const uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0;
    return with_sign(vx_f32_from_bits(0x7f800000u | (magnitude & 0x3ffu) << 13 | quiet), h, f16);
}

uint16_t vx_f32_to_f16(float x)
{
    const uint32_t sign = sign_of(x, f16);
    if (is_nan(x)) return (uint16_t)(sign | 0x7e00u | ((vx_f32_bits(x) >> 13) & 0x3ffu));
    return (uint16_t)(sign | at_most(encode(x, f16), 0x7c00u));
}

float vx_e4m3_to_f32(uint8_t b)
{
    const uint32_t magnitude = b & 0x7fu;
    return with_sign(magnitude == 0x7fu ? vx_f32_from_bits(0x7fc00000u) : decode(magnitude, e4m3), b, e4m3);
}

uint8_t vx_f32_to_e4m3(float x)
{
    return (uint8_t)(sign_of(x, e4m3) | (is_nan(x) ? 0x7fu : at_most(encode(x, e4m3), 0x7eu)));
}

float vx_e5m2_to_f32(uint8_t b)
{
    // The upper half of an f16.
    return vx_f16_to_f32((uint16_t)(b << 8));
}

uint8_t vx_f32_to_e5m2(float x)
{
    return (uint8_t)(sign_of(x, e5m2) | (is_nan(x) ? 0x7fu : at_most(encode(x, e5m2), 0x7cu)));
}

float vx_e2m1_to_f32(uint8_t code)
{
    return with_sign(decode(code & 7u, e2m1), code, e2m1);
}

uint8_t vx_f32_to_e2m1(float x)
{
    return (uint8_t)(sign_of(x, e2m1) | (is_nan(x) ? 7u : at_most(encode(x, e2m1), 7u)));
}

float vx_e8m0_to_f32(uint8_t b)
{
    if (b == 0xff) return vx_f32_from_bits(0x7fc00000u);
    return b == 0 ? vx_f32_from_bits(0x00400000u) : vx_f32_from_bits((uint32_t)b << 23);
}

uint8_t vx_f32_to_e8m0(float x)
{
    if (is_nan(x)) return 0xff;
    if (x <= vx_f32_from_bits(0x00400000u)) return 0;
    // Half the unit of the exponent field is 1.5 * 2^k: it carries into the next exponent. Between 2^-127 and 2^-126 the
    // field is 0 and the midpoint 0x00600000.
    const uint32_t u = vx_f32_bits(x);
    return (uint8_t)(u < 0x00800000u ? u >= 0x00600000u : (u + 0x00400000u) >> 23);
}
