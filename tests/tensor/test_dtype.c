// Formats against their definitions: every code decoded, every rounding boundary encoded, and hashes of PyTorch's results.
#include "testing.h"

#include "tensor/dtype.h"
#include <math.h>

typedef struct format {
    const char *name;
    int exponent, mantissa, bias;
    uint32_t last;     // greatest finite code without sign
    uint32_t overflow; // code of what rounds beyond it
    uint32_t (*encode)(float);
    float (*decode)(uint32_t);
} format;

static uint32_t to_bf16(float x)
{
    return vx_f32_to_bf16(x);
}
static uint32_t to_f16(float x)
{
    return vx_f32_to_f16(x);
}
static uint32_t to_e4m3(float x)
{
    return vx_f32_to_e4m3(x);
}
static uint32_t to_e5m2(float x)
{
    return vx_f32_to_e5m2(x);
}
static uint32_t to_e2m1(float x)
{
    return vx_f32_to_e2m1(x);
}
static float of_bf16(uint32_t c)
{
    return vx_bf16_to_f32((uint16_t)c);
}
static float of_f16(uint32_t c)
{
    return vx_f16_to_f32((uint16_t)c);
}
static float of_e4m3(uint32_t c)
{
    return vx_e4m3_to_f32((uint8_t)c);
}
static float of_e5m2(uint32_t c)
{
    return vx_e5m2_to_f32((uint8_t)c);
}
static float of_e2m1(uint32_t c)
{
    return vx_e2m1_to_f32((uint8_t)c);
}

static const format formats[] = {
    { "bf16", 8, 7, 127, 0x7f7f, 0x7f80, to_bf16, of_bf16 },
    { "f16", 5, 10, 15, 0x7bff, 0x7c00, to_f16, of_f16 },
    { "e4m3", 4, 3, 7, 0x7e, 0x7e, to_e4m3, of_e4m3 },
    { "e5m2", 5, 2, 15, 0x7b, 0x7c, to_e5m2, of_e5m2 },
    { "e2m1", 2, 1, 1, 7, 7, to_e2m1, of_e2m1 },
};
enum { FORMATS = sizeof formats / sizeof *formats };

static uint32_t sign_bit(const format *f)
{
    return 1u << (f->exponent + f->mantissa);
}

// The value of a magnitude code by the text of the standards. Also right for last + 1, the first code that is none.
static double value_of(const format *f, uint32_t code)
{
    const int e = (int)(code >> f->mantissa);
    const double m = (double)(code & ((1u << f->mantissa) - 1)), one = (double)(1u << f->mantissa);
    return e == 0 ? ldexp(m / one, 1 - f->bias) : ldexp(1 + m / one, e - f->bias);
}

// Nearest by search, ties to the even code; all arithmetic is exact in f64.
static uint32_t nearest(const format *f, float x)
{
    const uint32_t sign = signbit(x) ? sign_bit(f) : 0;
    const double a = fabs((double)x);
    uint32_t low = 0, high = f->last + 1;
    if (a >= value_of(f, high)) return sign | f->overflow;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (a >= value_of(f, middle)) low = middle;
        else high = middle;
    }
    const double below = a - value_of(f, low), above = value_of(f, high) - a;
    const uint32_t code = below < above || (below == above && low % 2 == 0) ? low : high;
    return sign | (code > f->last ? f->overflow : code);
}

static void check_encode(const format *f, float x)
{
    const uint32_t want = nearest(f, x), got = f->encode(x);
    if (got != want) fail_msg("%s(%a) is 0x%x, expected 0x%x", f->name, (double)x, (unsigned)got, (unsigned)want);
}

static void every_finite_code_has_the_value_of_the_standard(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++)
        for (uint32_t code = 0; code <= formats[i].last; code++)
            for (int negative = 0; negative < 2; negative++) {
                const double want = negative ? -value_of(&formats[i], code) : value_of(&formats[i], code);
                const float got = formats[i].decode(code | (negative ? sign_bit(&formats[i]) : 0));
                if ((double)got != want || !signbit(got) != !negative)
                    fail_msg("%s 0x%x is %a, expected %a", formats[i].name, (unsigned)code, (double)got, want);
            }
}

static void every_finite_code_survives_a_round_trip(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++)
        for (uint32_t code = 0; code <= formats[i].last; code++) {
            assert_int_equal(formats[i].encode(formats[i].decode(code)), code);
            assert_int_equal(formats[i].encode(formats[i].decode(code | sign_bit(&formats[i]))), code | sign_bit(&formats[i]));
        }
}

// Codes, midpoints between codes (including the one to the first value beyond), and the f32 on both sides of each.
static void rounding_turns_exactly_at_the_midpoints(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++)
        for (uint32_t code = 0; code <= formats[i].last; code++) {
            const double a = value_of(&formats[i], code), b = value_of(&formats[i], code + 1);
            const float points[] = { (float)a, (float)((a + b) / 2) };
            for (int p = 0; p < 2; p++) {
                const float x = points[p];
                const float near[] = { x, nextafterf(x, INFINITY), nextafterf(x, -INFINITY) };
                for (int n = 0; n < 3; n++) {
                    if (!isfinite(near[n])) continue;
                    check_encode(&formats[i], near[n]);
                    check_encode(&formats[i], -near[n]);
                }
            }
        }
}

static void rounding_agrees_with_a_search_on_arbitrary_values(void **state)
{
    (void)state;
    uint32_t u = 1;
    for (int n = 0; n < 300000; n++) {
        u = u * 1664525u + 1013904223u;
        // Half of them any bits, half between 2^-15 and 2^48.
        const uint32_t bits = n % 2 ? u : (u & 0x807fffffu) | (112u + (u >> 26)) << 23;
        const float x = vx_f32_from_bits(bits);
        if (!isfinite(x)) continue;
        for (int i = 0; i < FORMATS; i++) check_encode(&formats[i], x);
    }
}

static void specials_are_what_the_header_says(void **state)
{
    (void)state;
    static const struct {
        uint32_t x;
        uint32_t bf16, f16, e4m3, e5m2, e2m1, e8m0;
    } cases[] = {
        { 0x7f800000u, 0x7f80, 0x7c00, 0x7e, 0x7c, 7, 0xff },  // infinity
        { 0xff800000u, 0xff80, 0xfc00, 0xfe, 0xfc, 15, 0 },    // -infinity
        { 0x7fc00000u, 0x7fc0, 0x7e00, 0x7f, 0x7f, 7, 0xff },  // NaN
        { 0xffc00000u, 0xffc0, 0xfe00, 0xff, 0xff, 15, 0xff }, // -NaN
        { 0x7f800001u, 0x7fc0, 0x7e00, 0x7f, 0x7f, 7, 0xff },  // a signalling NaN whose payload is all in the lost bits
        { 0x80000000u, 0x8000, 0x8000, 0x80, 0x80, 8, 0 },     // -0
        { 0x80000001u, 0x8000, 0x8000, 0x80, 0x80, 8, 0 },     // the least negative subnormal
        { 0x7f7fffffu, 0x7f80, 0x7c00, 0x7e, 0x7c, 7, 0xff },  // the greatest f32
        { 0xbdcccccdu, 0xbdcd, 0xae66, 0x9d, 0xae, 8, 0 },     // -0.1: keeps its sign where it becomes zero
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const float x = vx_f32_from_bits(cases[i].x);
        assert_int_equal(vx_f32_to_bf16(x), cases[i].bf16);
        assert_int_equal(vx_f32_to_f16(x), cases[i].f16);
        assert_int_equal(vx_f32_to_e4m3(x), cases[i].e4m3);
        assert_int_equal(vx_f32_to_e5m2(x), cases[i].e5m2);
        assert_int_equal(vx_f32_to_e2m1(x), cases[i].e2m1);
        assert_int_equal(vx_f32_to_e8m0(x), cases[i].e8m0);
    }
    for (uint32_t sign = 0; sign < 2; sign++) {
        assert_true(isinf(vx_f16_to_f32((uint16_t)(0x7c00 | sign << 15))) && isinf(vx_e5m2_to_f32((uint8_t)(0x7c | sign << 7))));
        for (uint32_t payload = 1; payload < 0x400; payload++) {
            const float x = vx_f16_to_f32((uint16_t)(sign << 15 | 0x7c00 | payload));
            assert_int_equal(vx_f32_bits(x), sign << 31 | 0x7fc00000u | payload << 13); // as vcvtph2ps
            assert_int_equal(vx_f32_to_f16(x), sign << 15 | 0x7e00 | payload);
        }
        for (uint32_t payload = 1; payload < 4; payload++)
            assert_true(isnan(vx_e5m2_to_f32((uint8_t)(sign << 7 | 0x7c | payload))));
        assert_true(isnan(vx_e4m3_to_f32((uint8_t)(sign << 7 | 0x7f))));
        assert_int_equal(!!signbit(vx_e4m3_to_f32((uint8_t)(sign << 7 | 0x7f))), sign);
    }
    assert_float_equal(vx_e2m1_to_f32(0xf3), 1.5f, 0); // only the low four bits count
}

static void e2m1_ties_go_as_the_nvfp4_table_says(void **state)
{
    (void)state;
    static const struct {
        float x;
        int code;
    } ties[] = { { .25f, 0 }, { .75f, 2 },    { 1.25f, 2 }, { 1.75f, 4 }, { 2.5f, 4 }, { 3.5f, 6 },
                 { 5.f, 6 },  { 5.0001f, 7 }, { -.1f, 8 },  { 7.f, 7 },   { 1e30f, 7 } };
    for (size_t i = 0; i < sizeof ties / sizeof *ties; i++) assert_int_equal(vx_f32_to_e2m1(ties[i].x), ties[i].code);
}

static void e8m0_is_a_power_of_two(void **state)
{
    (void)state;
    for (int b = 0; b < 255; b++) {
        assert_true((double)vx_e8m0_to_f32((uint8_t)b) == ldexp(1, b - 127));
        assert_int_equal(vx_f32_to_e8m0(vx_e8m0_to_f32((uint8_t)b)), b);
        const float half = vx_e8m0_to_f32((uint8_t)b) * 1.5f; // exact, b = 254 too: below 2^128
        assert_int_equal(vx_f32_to_e8m0(half), b + 1);
        assert_int_equal(vx_f32_to_e8m0(nextafterf(half, 0)), b);
        if (b > 0) assert_int_equal(vx_f32_to_e8m0(nextafterf(vx_e8m0_to_f32((uint8_t)b), 0)), b);
    }
    assert_true(isnan(vx_e8m0_to_f32(0xff)));
    assert_int_equal(vx_f32_to_e8m0(-1.0f), 0);
    assert_int_equal(vx_f32_to_e8m0(0x1p-140f), 0);
}

static uint32_t fnv(uint32_t h, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) h = (h ^ (value >> 8 * i & 0xffu)) * 16777619u;
    return h;
}

// PyTorch 2.15 on x = the f32 with bits 65537 i, i = 0..65535, NaN replaced by 0; FNV-1a-32 of the bytes of x.to(type):
// bfloat16, float16, float8_e5m2; float8_e4m3fn after clamp(-448, 448) (its own overflow is NaN); float8_e8m0fnu with 1 in
// the place of what is not in [2^-126, 1.5 * 2^127): of subnormals it makes 2^-126 where 2^-127 is nearer.
static void conversions_agree_with_pytorch(void **state)
{
    (void)state;
    uint32_t bf16 = 2166136261u, f16 = bf16, e5m2 = bf16, e4m3 = bf16, e8m0 = bf16;
    for (uint32_t i = 0; i < 65536; i++) {
        float x = vx_f32_from_bits(i * 65537u);
        if (isnan(x)) x = 0;
        bf16 = fnv(bf16, vx_f32_to_bf16(x), 2);
        f16 = fnv(f16, vx_f32_to_f16(x), 2);
        e5m2 = fnv(e5m2, vx_f32_to_e5m2(x), 1);
        e4m3 = fnv(e4m3, vx_f32_to_e4m3(x), 1);
        e8m0 = fnv(e8m0, vx_f32_to_e8m0(x >= 0x1p-126f && x < 0x1.8p127f ? x : 1.0f), 1);
    }
    assert_int_equal(bf16, 0xf43948a9u);
    assert_int_equal(f16, 0xf8a9c832u);
    assert_int_equal(e5m2, 0x1a888dc5u);
    assert_int_equal(e4m3, 0x4971ce65u);
    assert_int_equal(e8m0, 0x289a16c5u);
}

// The NVFP4 quantiser's recipe (checkpoints specification 3.3) over blocks of 16, first element in the high nibble.
static uint8_t nvfp4_block(const float x[16], float tensor_scale, uint8_t packed[8])
{
    float amax = 0;
    for (int i = 0; i < 16; i++) amax = fmaxf(amax, fabsf(x[i]));
    const uint8_t scale = vx_f32_to_e4m3(fminf(amax / 6.0f / tensor_scale, 448.0f));
    const float t = tensor_scale * vx_e4m3_to_f32(scale);
    memset(packed, 0, 8);
    for (int i = 0; i < 16 && t != 0; i++) packed[i / 2] |= (uint8_t)(vx_f32_to_e2m1(x[i] / t) << (i % 2 ? 0 : 4));
    return scale;
}

static void nvfp4_blocks_match_the_golden_bytes(void **state)
{
    (void)state;
    static const uint8_t want[5][9] = {
        { 0x7e, 0xff, 0xee, 0xdc, 0xa9, 0x12, 0x45, 0x66, 0x77 },
        { 0x52, 0x19, 0x2b, 0x4c, 0x5d, 0x5e, 0x6e, 0x6f, 0x7f },
        { 0, 0, 0, 0, 0, 0, 0, 0, 0 },
        { 0, 0, 0, 0, 0, 0, 0, 0, 0 },
        { 0x7e, 0x76, 0x64, 0x42, 0x20, 0xfe, 0xec, 0xca, 0xa8 },
    };
    static const float steps[8] = { 6, 5, 3.5f, 2.5f, 1.75f, 1.25f, .75f, .25f };
    float x[5][16];
    for (int i = 0; i < 16; i++) {
        x[0][i] = (float)i - 7.5f;
        x[1][i] = vx_round_bf16(0.01f * (float)(i + 1)) * (i % 2 ? -1.0f : 1.0f);
        x[2][i] = 0;
        x[3][i] = vx_round_bf16(1e-5f) * (i % 2 ? 1.0f : -1.0f);
        x[4][i] = 448 * steps[i % 8] * (i < 8 ? 1.0f : -1.0f);
    }
    const float scale = vx_round_bf16(7.5f / 2688);
    assert_int_equal(vx_f32_bits(scale), 0x3B370000);
    for (int b = 0; b < 5; b++) {
        uint8_t got[9];
        got[0] = nvfp4_block(x[b], b < 4 ? scale : 1.0f, got + 1);
        assert_memory_equal(got, want[b], 9);
    }
}

static void names_are_those_of_safetensors(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        vx_dtype t;
        int bits;
    } names[] = {
        { "F64", VX_F64, 64 },        { "F32", VX_F32, 32 },        { "F16", VX_F16, 16 },        { "BF16", VX_BF16, 16 },
        { "F8_E4M3", VX_F8_E4M3, 8 }, { "F8_E5M2", VX_F8_E5M2, 8 }, { "F8_E8M0", VX_F8_E8M0, 8 }, { "F4", VX_F4_E2M1, 4 },
        { "I64", VX_I64, 64 },        { "I32", VX_I32, 32 },        { "I16", VX_I16, 16 },        { "I8", VX_I8, 8 },
        { "U64", VX_U64, 64 },        { "U32", VX_U32, 32 },        { "U16", VX_U16, 16 },        { "U8", VX_U8, 8 },
        { "BOOL", VX_BOOL, 8 },
    };
    assert_int_equal(sizeof names / sizeof *names, VX_DTYPE_COUNT - 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_string_equal(vx_dtype_name(names[i].t), names[i].name);
        assert_int_equal(vx_dtype_from_name(names[i].name, strlen(names[i].name)), names[i].t);
        assert_int_equal(vx_dtype_bits(names[i].t), names[i].bits);
    }
    static const char *const strange[] = { "", "F", "F322", "f32", "none", "F8_E4M3FNUZ", "C64", "F6_E2M3" };
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++)
        assert_int_equal(vx_dtype_from_name(strange[i], strlen(strange[i])), VX_DTYPE_NONE);
    assert_int_equal(vx_dtype_from_name("BF16 and more", 4), VX_BF16);
    assert_int_equal(vx_dtype_bits(VX_DTYPE_NONE), 0);
    assert_string_equal(vx_dtype_name(VX_DTYPE_COUNT), "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_finite_code_has_the_value_of_the_standard),
        cmocka_unit_test(every_finite_code_survives_a_round_trip),
        cmocka_unit_test(rounding_turns_exactly_at_the_midpoints),
        cmocka_unit_test(rounding_agrees_with_a_search_on_arbitrary_values),
        cmocka_unit_test(specials_are_what_the_header_says),
        cmocka_unit_test(e2m1_ties_go_as_the_nvfp4_table_says),
        cmocka_unit_test(e8m0_is_a_power_of_two),
        cmocka_unit_test(conversions_agree_with_pytorch),
        cmocka_unit_test(nvfp4_blocks_match_the_golden_bytes),
        cmocka_unit_test(names_are_those_of_safetensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
