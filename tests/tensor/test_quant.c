// Decoders of quantised matrices against the formats' own packages (tools/make_quant_vectors.py), against the specification's
// golden vectors, and against arithmetic by hand; what the checks refuse.
#include "testing.h"

#include "safetensors_mini.h"

#include <math.h>

#include "tensor/quant.h"

// ---- against the packages ---------------------------------------------------------------------------------------------------
typedef struct vector_case {
    const char *name;
    vx_quant_kind kind;
    int type, rotate, group;
    double tolerance; // of the case's largest value; 0: the same bits
} vector_case;

static const vector_case vector_cases[] = {
    { "fp8_e4m3", VX_QUANT_FP8, 0, 0, 0, 0 },
    { "fp8_e5m2", VX_QUANT_FP8, 0, 0, 0, 0 },
    { "fp8_rows", VX_QUANT_FP8, 0, 0, 0, 0 },
    { "int8", VX_QUANT_INT8, 0, 0, 0, 0 },
    { "int8_rows", VX_QUANT_INT8, 0, 0, 0, 0 },
    { "int8_rotated_4", VX_QUANT_INT8, 0, 4, 0, 0 },
    { "int8_rotated_16", VX_QUANT_INT8, 0, 16, 0, 0 },
    { "int8_rotated_64", VX_QUANT_INT8, 0, 64, 0, 0 },
    { "int8_rotated_256", VX_QUANT_INT8, 0, 256, 0, 0 },
    { "int4_64", VX_QUANT_INT4, 0, 64, 0, 0 },
    { "int4_256", VX_QUANT_INT4, 0, 256, 0, 0 },
    { "w4a8", VX_QUANT_W4A8, 0, 256, 16, 0 },
    { "w4a8_book", VX_QUANT_W4A8, 0, 256, 16, 0 },
    { "w4a8_f32", VX_QUANT_W4A8, 0, 256, 16, 0 },
    // The package adds 256 f32 in the order of its matrix product: 256 * 2^-24, and at most one step of bf16.
    { "w4a8_correction", VX_QUANT_W4A8, 0, 256, 16, 256 * 0x1p-24 },
    { "nvfp4", VX_QUANT_NVFP4, 0, 0, 0, 0 },
    { "mxfp8", VX_QUANT_MXFP8, 0, 0, 0, 0 },
    { "Q4_0", VX_QUANT_GGUF, 2, 0, 0, 0 },
    { "Q4_1", VX_QUANT_GGUF, 3, 0, 0, 0 },
    { "Q5_0", VX_QUANT_GGUF, 6, 0, 0, 0 },
    { "Q5_1", VX_QUANT_GGUF, 7, 0, 0, 0 },
    { "Q8_0", VX_QUANT_GGUF, 8, 0, 0, 0 },
    { "Q2_K", VX_QUANT_GGUF, 10, 0, 0, 0 },
    { "Q3_K", VX_QUANT_GGUF, 11, 0, 0, 0 },
    { "Q4_K", VX_QUANT_GGUF, 12, 0, 0, 0 },
    { "Q5_K", VX_QUANT_GGUF, 13, 0, 0, 0 },
    { "Q6_K", VX_QUANT_GGUF, 14, 0, 0, 0 },
};

static vx_tensor stored(const mini_file *f, const char *name, const char *what)
{
    char key[64];
    snprintf(key, sizeof key, "%s.%s", name, what);
    return mini_has(f, key) ? mini_tensor(f, key) : (vx_tensor){ 0 };
}

static vx_quant quant_of(const mini_file *f, const vector_case *c, int64_t k)
{
    return (vx_quant){ .kind = c->kind,
                       .type = c->type,
                       .rotate = c->rotate,
                       .group = c->group,
                       .k = k,
                       .scale = stored(f, c->name, "scale"),
                       .block_scale = stored(f, c->name, "block_scale"),
                       .codebook = stored(f, c->name, "codebook"),
                       .correction = stored(f, c->name, "correction") };
}

static void compare(const vector_case *c, vx_tensor want, int64_t r, int64_t begin, const float *got, int64_t count, double most)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = r * want.shape[1] + begin + i;
        const float w = want.dtype == VX_F32 ? vx_f32_of(want)[at] : vx_bf16_to_f32(((const uint16_t *)want.data)[at]);
        const double room = c->tolerance * most + (c->tolerance > 0 && want.dtype == VX_BF16 ? 0x1p-8 * fabs((double)w) : 0);
        const bool same = c->tolerance > 0 ? fabs((double)got[i] - (double)w) <= room : vx_f32_bits(got[i]) == vx_f32_bits(w);
        if (!same)
            fail_msg("%s to %s: row %lld, column %lld is %a, expected %a", c->name, vx_dtype_name(want.dtype), (long long)r,
                     (long long)(begin + i), (double)got[i], (double)w);
    }
}

static void decodes_what_the_packages_decode(void **state)
{
    (void)state;
    mini_file f;
    assert_true(mini_open(&f, VX_TEST_DATA "/quant.safetensors"));
    for (size_t i = 0; i < sizeof vector_cases / sizeof vector_cases[0]; i++) {
        const vector_case *c = &vector_cases[i];
        const vx_tensor values = stored(&f, c->name, "values"), f32 = stored(&f, c->name, "f32"),
                        bf16 = stored(&f, c->name, "bf16");
        const vx_quant q = quant_of(&f, c, f32.shape[1]);
        assert_ok(vx_quant_check(&q, values));
        assert_ok(vx_quant_check_scales(&q, values));
        assert_ok(vx_quant_verify(&q, values));
        double most = 0;
        for (int64_t j = 0; j < vx_tensor_count(f32); j++) most = fmax(most, fabs((double)vx_f32_of(f32)[j]));
        const int64_t step = vx_quant_step(&q);
        assert_true(step >= 1 && step <= 256);
        for (int64_t r = 0; r < f32.shape[0]; r++) {
            // The whole row, and from the middle on.
            for (int64_t begin = 0; begin < q.k; begin += (q.k / 2 + step - 1) / step * step) {
                float out[1024];
                vx_quant_decode(&q, values, r, begin, q.k, false, out);
                compare(c, f32, r, begin, out, q.k - begin, most);
                vx_quant_decode(&q, values, r, begin, q.k, true, out);
                compare(c, bf16, r, begin, out, q.k - begin, most);
            }
        }
    }
    mini_close(&f);
}

// A slice of rows with its companions whole: `row` finds the scales.
static void slices_find_their_scales(void **state)
{
    (void)state;
    mini_file f;
    assert_true(mini_open(&f, VX_TEST_DATA "/quant.safetensors"));
    for (size_t i = 0; i < sizeof vector_cases / sizeof vector_cases[0]; i++) {
        const vector_case *c = &vector_cases[i];
        const vx_tensor values = stored(&f, c->name, "values"), f32 = stored(&f, c->name, "f32");
        vx_quant q = quant_of(&f, c, f32.shape[1]);
        float whole[1024], sliced[1024];
        const int64_t last = values.shape[0] - 1;
        vx_quant_decode(&q, values, last, 0, q.k, false, whole);
        q.row = last;
        const vx_tensor slice = vx_tensor_slice(values, 0, last, last + 1);
        assert_ok(vx_quant_check(&q, slice));
        assert_ok(vx_quant_check_scales(&q, slice));
        vx_quant_decode(&q, slice, 0, 0, q.k, false, sliced);
        assert_memory_equal(sliced, whole, (size_t)q.k * 4);
    }
    mini_close(&f);
}

// ---- against the specification ------------------------------------------------------------------------------------------------
// Section 3.3: a row of four blocks with scale bytes 7E 52 00 00 and amax 7.5.
static void reads_nvfp4_as_the_golden_vectors_say(void **state)
{
    (void)state;
    static uint8_t packed[32] = {
        0xff, 0xee, 0xdc, 0xa9, 0x12, 0x45, 0x66, 0x77, 0x19, 0x2b, 0x4c, 0x5d, 0x5e, 0x6e, 0x6f, 0x7f
    };
    static const float codes[32] = { -6,  -6,   -4, -4,    -3, -2, -1, -.5f, .5f, 1,  2, 3,  4, 4,  6, 6,
                                     .5f, -.5f, 1,  -1.5f, 2,  -2, 3,  -3,   3,   -4, 4, -4, 4, -6, 6, -6 };
    static uint8_t tiles[512] = { 0x7e, 0x52 };
    float scale = vx_f32_from_bits(0x3b370000u), out[64];
    const vx_quant q = { .kind = VX_QUANT_NVFP4,
                         .k = 64,
                         .scale = vx_tensor_of(&scale, VX_F32, 1),
                         .block_scale = vx_tensor_of(tiles, VX_F8_E4M3, 128, 4) };
    const vx_tensor values = vx_tensor_of(packed, VX_U8, 1, 32);
    assert_ok(vx_quant_check(&q, values));
    vx_quant_decode(&q, values, 0, 0, 64, false, out);
    // 0x7e is 448; 0x52 has exponent 10 and mantissa 2: 2^3 * 1.25.
    for (int i = 0; i < 16; i++) assert_true(out[i] == codes[i] * (448.0f * scale));
    for (int i = 16; i < 32; i++) assert_true(out[i] == codes[i] * (10.0f * scale));
    for (int i = 32; i < 64; i++) assert_true(out[i] == 0);
}

static void tiles_are_where_the_specification_says(void **state)
{
    (void)state;
    static const struct {
        int64_t r, c, at;
    } places[] = { { 0, 1, 1 },  { 0, 4, 512 },       { 1, 0, 16 },      { 31, 3, 499 },
                   { 32, 0, 4 }, { 127, 335, 43007 }, { 128, 0, 43008 }, { 21503, 335, 7225343 } };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        assert_int_equal(vx_quant_tiled(336, places[i].r, places[i].c), places[i].at);
}

// Entry (i, j) of H_4 x ... x H_4, without the root: -1 for every digit where i and j add up to 3.
static int hadamard(int i, int j, int group)
{
    int sign = 1;
    for (; group > 1; group /= 4, i /= 4, j /= 4)
        if (i % 4 + j % 4 == 3) sign = -sign;
    return sign;
}

static void convrot_is_its_own_inverse_and_the_dense_matrix(void **state)
{
    (void)state;
    static const int groups[] = { 4, 16, 64, 256 };
    for (int g = 0; g < 4; g++) {
        const int n = groups[g];
        const float root = sqrtf((float)n);
        for (int j = 0; j < n; j++) {
            float x[512] = { 0 }, sum = 0;
            x[n + j] = 1; // a unit vector in the second group
            vx_convrot(x, 2 * n, n);
            for (int i = 0; i < n; i++) {
                assert_true(x[i] == 0);
                assert_true(x[n + i] == (float)hadamard(i, j, n) / root);
                sum += x[n + i];
            }
            assert_true(sum == 1);
            vx_convrot(x, 2 * n, n);
            for (int i = 0; i < 2 * n; i++) assert_true(x[i] == (i == n + j ? 1.0f : 0.0f));
        }
        uint32_t seed = 5;
        float x[256], y[256];
        for (int i = 0; i < n; i++) x[i] = y[i] = (float)(int32_t)(seed = seed * 1664525u + 1013904223u) * 0x1p-31f;
        vx_convrot(y, n, n);
        for (int i = 0; i < n; i++) {
            double want = 0;
            for (int j = 0; j < n; j++) want += (double)x[j] * hadamard(i, j, n);
            assert_true(fabs((double)y[i] - want / (double)root) < 5e-7);
        }
    }
}

// ---- every code ----------------------------------------------------------------------------------------------------------------
static void decodes_every_code(void **state)
{
    (void)state;
    uint8_t bytes[256];
    float one = 1, half = 0.5f, out[512];
    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
    const vx_tensor scale = vx_tensor_of(&one, VX_F32, 1);
    vx_quant q = { .kind = VX_QUANT_FP8, .k = 256, .scale = scale };
    for (int t = VX_F8_E4M3; t <= VX_F8_E5M2; t++) {
        vx_quant_decode(&q, vx_tensor_of(bytes, (vx_dtype)t, 1, 256), 0, 0, 256, false, out);
        for (int i = 0; i < 256; i++) {
            const float want = t == VX_F8_E4M3 ? vx_e4m3_to_f32((uint8_t)i) : vx_e5m2_to_f32((uint8_t)i);
            assert_true(out[i] == want || (isnan(out[i]) && isnan(want)));
        }
    }
    q = (vx_quant){ .kind = VX_QUANT_INT8, .k = 256, .scale = vx_tensor_of(&half, VX_F32, 1) };
    vx_quant_decode(&q, vx_tensor_of(bytes, VX_I8, 1, 256), 0, 0, 256, false, out);
    for (int i = 0; i < 256; i++) assert_true(out[i] == 0.5f * (float)(i < 128 ? i : i - 256));
    q = (vx_quant){ .kind = VX_QUANT_INT4, .k = 512, .scale = scale };
    vx_quant_decode(&q, vx_tensor_of(bytes, VX_I8, 1, 256), 0, 0, 512, false, out);
    for (int i = 0; i < 256; i++) {
        const int low = i & 15, high = i >> 4;
        assert_true(out[2 * i] == (float)(low < 8 ? low : low - 16));
        assert_true(out[2 * i + 1] == (float)(high < 8 ? high : high - 16));
    }
    // Block scales of MXFP8: 2^(e - 127), but 0 is zero.
    static uint8_t ones[32], tiles[512];
    memset(ones, 0x38, sizeof ones); // 1 in e4m3
    for (int e = 0; e < 255; e++) {
        tiles[0] = (uint8_t)e;
        q = (vx_quant){ .kind = VX_QUANT_MXFP8, .k = 32, .block_scale = vx_tensor_of(tiles, VX_F8_E8M0, 128, 4) };
        vx_quant_decode(&q, vx_tensor_of(ones, VX_F8_E4M3, 1, 32), 0, 0, 32, false, out);
        assert_true(out[31] == (e ? ldexpf(1, e - 127) : 0.0f));
    }
}

// bf16 with one scale: the scale is rounded first. 1.0048828125 lies between bf16 1 and 1.0078125, nearer to the latter; times
// 1.125 the exact product rounds to 1.1328125 either way, times 1.75 it does not.
static void fp8_rounds_the_scale_of_a_tensor_first(void **state)
{
    (void)state;
    uint8_t code[1] = { 0x3e }; // 1.75
    float scales[2] = { 1.0048828125f, 1.0048828125f }, out[1];
    vx_quant q = { .kind = VX_QUANT_FP8, .k = 1, .scale = vx_tensor_of(scales, VX_F32, 1) };
    const vx_tensor values = vx_tensor_of(code, VX_F8_E4M3, 1, 1);
    vx_quant_decode(&q, values, 0, 0, 1, true, out);
    assert_true(out[0] == vx_round_bf16(1.75f * 1.0078125f));
    q.scale = vx_tensor_of(scales, VX_F32, 2); // scales of rows are not rounded
    vx_quant_decode(&q, values, 0, 0, 1, true, out);
    assert_true(out[0] == vx_round_bf16(1.75f * 1.0048828125f));
    assert_true(vx_round_bf16(1.75f * 1.0078125f) != vx_round_bf16(1.75f * 1.0048828125f));
}

// ---- refusals -------------------------------------------------------------------------------------------------------------------
#define T(type, ...) vx_tensor_of(NULL, VX_##type, __VA_ARGS__)

static void expect(vx_status s, vx_code code, const char *part)
{
    if (s.code != code || (part && !strstr(s.message, part)))
        fail_msg("VX-%d '%s', expected VX-%d with '%s'", (int)s.code, s.message, (int)code, part ? part : "");
}

static void refuses_shapes_and_formats_by_name(void **state)
{
    (void)state;
    const struct {
        vx_quant q;
        vx_tensor values;
        vx_code code;
        const char *part;
    } cases[] = {
        { { .kind = VX_QUANT_FP8, .k = 8, .scale = T(F32, 1) }, T(F8_E5M2, 4, 8), VX_OK, NULL },
        { { .kind = VX_QUANT_FP8, .k = 8 },
          T(F8_E4M3, 4, 8),
          VX_ERR_SHAPE,
          "fp8_e4m3: scale is missing, expected F32 [1] or [4] or longer" },
        { { .kind = VX_QUANT_FP8, .k = 8, .scale = T(F32, 1) },
          T(I8, 4, 8),
          VX_ERR_DTYPE,
          "values is I8 [4,8], expected F8_E4M3 or F8_E5M2 [4,8]" },
        { { .kind = VX_QUANT_FP8, .k = 8, .scale = T(BF16, 1) }, T(F8_E4M3, 4, 8), VX_ERR_DTYPE, "scale is BF16 [1]" },
        { { .kind = VX_QUANT_FP8, .k = 8, .scale = T(F32, 3) }, T(F8_E4M3, 4, 8), VX_ERR_SHAPE, "scale is F32 [3]" },
        { { .kind = VX_QUANT_FP8, .k = 8, .rotate = 4, .scale = T(F32, 1) },
          T(F8_E4M3, 4, 8),
          VX_ERR_SHAPE,
          "expected not to be" },
        { { .kind = VX_QUANT_INT8, .k = 8, .row = 2, .scale = T(F32, 6) }, T(I8, 4, 8), VX_OK, NULL },
        { { .kind = VX_QUANT_INT8, .k = 8, .row = 3, .scale = T(F32, 6) },
          T(I8, 4, 8),
          VX_ERR_SHAPE,
          "scale is F32 [6], expected F32 [1] or [7] or longer" },
        { { .kind = VX_QUANT_INT8, .k = 9, .scale = T(F32, 1) },
          T(I8, 4, 8),
          VX_ERR_SHAPE,
          "values is I8 [4,8], expected I8 [4,9]" },
        { { .kind = VX_QUANT_INT8, .k = 64, .rotate = 32, .scale = T(F32, 1) },
          T(I8, 4, 64),
          VX_ERR_SHAPE,
          "groups of 32, expected 4, 16, 64 or 256" },
        { { .kind = VX_QUANT_INT8, .k = 72, .rotate = 16, .scale = T(F32, 1) },
          T(I8, 4, 72),
          VX_ERR_SHAPE,
          "do not divide 72 columns" },
        { { .kind = VX_QUANT_INT8, .k = 8, .scale = T(F32, 1), .block_scale = T(F8_E4M3, 4, 1) },
          T(I8, 4, 8),
          VX_ERR_SHAPE,
          "block_scale is F8_E4M3 [4,1], expected none" },
        { { .kind = VX_QUANT_INT8, .k = 8, .scale = T(F32, 1), .codebook = T(F32, 16) }, T(I8, 4, 8), VX_ERR_SHAPE, "codebook" },
        { { .kind = VX_QUANT_INT8, .k = 8, .scale = T(F32, 1), .pre_scale = T(F32, 4) },
          T(I8, 4, 8),
          VX_ERR_SHAPE,
          "pre_scale is F32 [4], expected F32 or BF16 or F16 [8]" },
        { { .kind = VX_QUANT_NVFP4, .k = 32, .scale = T(F32, 1), .block_scale = T(F8_E4M3, 128, 4) }, T(U8, 4, 16), VX_OK, NULL },
        { { .kind = VX_QUANT_NVFP4, .k = 24, .scale = T(F32, 1), .block_scale = T(F8_E4M3, 128, 4) }, T(U8, 4, 16), VX_OK, NULL },
        { { .kind = VX_QUANT_NVFP4, .k = 32, .scale = T(F32, 4), .block_scale = T(F8_E4M3, 128, 4) },
          T(U8, 4, 16),
          VX_ERR_SHAPE,
          "scale is F32 [4], expected F32 [1]" },
        { { .kind = VX_QUANT_NVFP4, .k = 32, .scale = T(F32, 1), .block_scale = T(F8_E4M3, 4, 2) },
          T(U8, 4, 16),
          VX_ERR_SHAPE,
          "in tiles of 128x4" },
        { { .kind = VX_QUANT_NVFP4, .k = 32, .scale = T(F32, 1), .block_scale = T(F32, 128, 4) },
          T(U8, 4, 16),
          VX_ERR_DTYPE,
          "block_scale is F32 [128,4]" },
        { { .kind = VX_QUANT_NVFP4, .k = 32, .row = 126, .scale = T(F32, 1), .block_scale = T(U8, 128, 4) },
          T(U8, 4, 16),
          VX_ERR_SHAPE,
          "[256 or more,4]" },
        { { .kind = VX_QUANT_MXFP8, .k = 64, .block_scale = T(U8, 128, 4) }, T(F8_E4M3, 4, 64), VX_OK, NULL },
        { { .kind = VX_QUANT_MXFP8, .k = 64, .block_scale = T(F8_E4M3, 128, 4) },
          T(F8_E4M3, 4, 64),
          VX_ERR_DTYPE,
          "expected F8_E8M0 or U8" },
        { { .kind = VX_QUANT_MXFP8, .k = 64, .scale = T(F32, 1), .block_scale = T(U8, 128, 4) },
          T(F8_E4M3, 4, 64),
          VX_ERR_SHAPE,
          "scale is F32 [1], expected none" },
        { { .kind = VX_QUANT_INT4, .k = 7, .scale = T(F32, 1) }, T(I8, 4, 3), VX_ERR_SHAPE, "expected an even number" },
        { { .kind = VX_QUANT_INT4, .k = 64, .rotate = 64, .scale = T(F32, 4) },
          T(I8, 4, 64),
          VX_ERR_SHAPE,
          "values is I8 [4,64], expected I8 or U8 [4,32]" },
        { { .kind = VX_QUANT_W4A8, .k = 64, .group = 16, .scale = T(F32, 4), .block_scale = T(U8, 4, 4) },
          T(I8, 4, 32),
          VX_OK,
          NULL },
        { { .kind = VX_QUANT_W4A8, .k = 64, .group = 24, .scale = T(F32, 4), .block_scale = T(U8, 4, 4) },
          T(I8, 4, 32),
          VX_ERR_SHAPE,
          "groups of 24" },
        { { .kind = VX_QUANT_W4A8, .k = 64, .group = 16, .scale = T(F32, 4), .block_scale = T(U8, 4, 5) },
          T(I8, 4, 32),
          VX_ERR_SHAPE,
          "block_scale is U8 [4,5]" },
        { { .kind = VX_QUANT_W4A8, .k = 64, .group = 16, .scale = T(F32, 4), .block_scale = T(U8, 4, 4) },
          T(I8, 4, 48),
          VX_ERR_SHAPE,
          "values is I8 [4,48]" },
        { { .kind = VX_QUANT_W4A8, .k = 64, .group = 16, .scale = T(F32, 4), .block_scale = T(U8, 4, 4), .codebook = T(F32, 8) },
          T(I8, 4, 32),
          VX_ERR_SHAPE,
          "codebook is F32 [8], expected F32 [16]" },
        { { .kind = VX_QUANT_W4A8,
            .k = 64,
            .group = 16,
            .scale = T(F32, 4),
            .block_scale = T(U8, 4, 4),
            .correction = T(F32, 4, 5) },
          T(I8, 4, 32),
          VX_ERR_SHAPE,
          "correction is F32 [4,5], expected F32 or BF16 or F16 [4,4]" },
        { { .kind = VX_QUANT_GGUF, .type = 12, .k = 512 }, T(U8, 4, 288), VX_OK, NULL },
        { { .kind = VX_QUANT_GGUF, .type = 12, .k = 512 },
          T(U8, 4, 144),
          VX_ERR_SHAPE,
          "Q4_K: values is U8 [4,144], expected U8 [4,288]" },
        { { .kind = VX_QUANT_GGUF, .type = 14, .k = 128 },
          T(U8, 4, 105),
          VX_ERR_SHAPE,
          "Q6_K: 128 columns are no whole blocks of 256" },
        { { .kind = VX_QUANT_GGUF, .type = 19, .k = 256 },
          T(U8, 4, 50),
          VX_ERR_DTYPE,
          "GGUF type 19 (IQ1_S) is not decoded here" },
        { { .kind = VX_QUANT_GGUF, .type = 99, .k = 256 }, T(U8, 4, 50), VX_ERR_DTYPE, "GGUF type 99 (unknown)" },
        { { .kind = VX_QUANT_KINDS, .k = 256 }, T(U8, 4, 50), VX_ERR_DTYPE, "unknown" },
        { { .kind = VX_QUANT_INT8, .k = 8, .scale = T(F32, 1) }, T(I8, 8), VX_ERR_SHAPE, "expected a matrix" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect(vx_quant_check(&cases[i].q, cases[i].values), cases[i].code, cases[i].part);
}

static void refuses_scales_that_are_none(void **state)
{
    (void)state;
    static const float bad[] = { NAN, INFINITY, -INFINITY, -1e-30f };
    int8_t ints[2][4] = { { 0 }, { 1, 2, 3, 4 } };
    float scale[2] = { 1, 1 };
    vx_quant q = { .kind = VX_QUANT_INT8, .k = 4, .scale = vx_tensor_of(scale, VX_F32, 2) };
    const vx_tensor values = vx_tensor_of(ints, VX_I8, 2, 4);
    for (int i = 0; i < 4; i++) {
        scale[1] = bad[i];
        expect(vx_quant_check_scales(&q, values), VX_ERR_QUANT_SCALE, "int8: scale 1 is");
    }
    scale[1] = 0;
    expect(vx_quant_check_scales(&q, values), VX_ERR_QUANT_SCALE, "more than 0 where the values are not all 0");
    scale[0] = 0, scale[1] = 1; // over a row of zeros
    expect(vx_quant_check_scales(&q, values), VX_OK, NULL);
    float factors[4] = { 1, 1, NAN, 1 };
    q.pre_scale = vx_tensor_of(factors, VX_F32, 4);
    expect(vx_quant_check_scales(&q, values), VX_ERR_QUANT_SCALE, "factor of the input 2");

    static uint8_t tiles[512], zeros[4 * 16];
    vx_quant fp4 = { .kind = VX_QUANT_NVFP4,
                     .k = 32,
                     .scale = vx_tensor_of(scale + 1, VX_F32, 1),
                     .block_scale = vx_tensor_of(tiles, VX_F8_E4M3, 128, 4) };
    vx_quant mx = { .kind = VX_QUANT_MXFP8, .k = 64, .block_scale = vx_tensor_of(tiles, VX_U8, 128, 4) };
    static uint8_t eights[4 * 64];
    const vx_tensor v4 = vx_tensor_of(zeros, VX_U8, 4, 16), v8 = vx_tensor_of(eights, VX_F8_E4M3, 4, 64);
    for (int b = 0; b < 256; b++) {
        for (int at = 0; at < 512; at += at < 16 ? 1 : 165) {
            tiles[at] = (uint8_t)b;
            expect(vx_quant_check_scales(&fp4, v4), b < 0x7f ? VX_OK : VX_ERR_QUANT_SCALE, NULL);
            expect(vx_quant_check_scales(&mx, v8), b < 0xff ? VX_OK : VX_ERR_QUANT_SCALE, NULL);
            tiles[at] = 0;
        }
    }
    int8_t codes[8] = { 0 };
    float relative[1] = { 2 }, book[16] = { 0 }, correction[1] = { 0 };
    vx_quant w = { .kind = VX_QUANT_W4A8,
                   .k = 16,
                   .group = 16,
                   .scale = vx_tensor_of(scale + 1, VX_F32, 1),
                   .block_scale = vx_tensor_of(relative, VX_F32, 1, 1),
                   .codebook = vx_tensor_of(book, VX_F32, 16),
                   .correction = vx_tensor_of(correction, VX_F32, 1, 1) };
    const vx_tensor v = vx_tensor_of(codes, VX_I8, 1, 8);
    assert_ok(vx_quant_check(&w, v));
    assert_ok(vx_quant_check_scales(&w, v));
    relative[0] = -1;
    expect(vx_quant_check_scales(&w, v), VX_ERR_QUANT_SCALE, "block scale 0 is -1");
    relative[0] = 1, book[7] = INFINITY;
    expect(vx_quant_check_scales(&w, v), VX_ERR_QUANT_SCALE, "codebook entry 7");
    book[7] = 0, correction[0] = NAN;
    expect(vx_quant_check_scales(&w, v), VX_ERR_QUANT_SCALE, "correction 0");
}

static void finds_every_value_that_is_not_finite(void **state)
{
    (void)state;
    float scale = 1;
    uint8_t bytes[2 * 300];
    memset(bytes, 0x33, sizeof bytes);
    vx_quant q = { .kind = VX_QUANT_FP8, .k = 300, .scale = vx_tensor_of(&scale, VX_F32, 1) };
    vx_tensor values = vx_tensor_of(bytes, VX_F8_E4M3, 2, 300);
    assert_ok(vx_quant_verify(&q, values));
    bytes[599] = 0xff;
    expect(vx_quant_verify(&q, values), VX_ERR_NOT_FINITE, "fp8_e4m3: row 1, column 299 is");
    bytes[599] = 0x7c;
    assert_ok(vx_quant_verify(&q, values));
    values.dtype = VX_F8_E5M2;
    expect(vx_quant_verify(&q, values), VX_ERR_NOT_FINITE, "fp8_e5m2: row 1, column 299 is inf");
    uint8_t sixes[8] = { 0x77 };
    static uint8_t tiles[512] = { 0x7e };
    float huge = 0x1p120f; // times 448 and 6
    q = (vx_quant){ .kind = VX_QUANT_NVFP4,
                    .k = 16,
                    .scale = vx_tensor_of(&huge, VX_F32, 1),
                    .block_scale = vx_tensor_of(tiles, VX_F8_E4M3, 128, 4) };
    expect(vx_quant_verify(&q, vx_tensor_of(sixes, VX_U8, 1, 8)), VX_ERR_NOT_FINITE, "nvfp4: row 0, column 0 is inf");
    huge = 0x1p99f;
    assert_ok(vx_quant_verify(&q, vx_tensor_of(sixes, VX_U8, 1, 8)));
    uint8_t block[34] = { 0x00, 0x7c, 1 }; // d is infinity
    q = (vx_quant){ .kind = VX_QUANT_GGUF, .type = 8, .k = 32 };
    expect(vx_quant_verify(&q, vx_tensor_of(block, VX_U8, 1, 34)), VX_ERR_NOT_FINITE, "Q8_0: row 0, column 0");
    // Plain tensors, also with gaps.
    uint16_t half[3][8] = { { 0 } };
    q = (vx_quant){ 0 };
    vx_tensor plain = vx_tensor_slice(vx_tensor_of(half, VX_F16, 3, 8), 1, 0, 5);
    half[1][6] = 0x7c00; // in the gap
    assert_ok(vx_quant_verify(&q, plain));
    half[2][4] = 0x7c01;
    expect(vx_quant_verify(&q, plain), VX_ERR_NOT_FINITE, "F16: row 2, column 4");
    plain.dtype = VX_BF16; // 0x7c01 is a large number there
    assert_ok(vx_quant_verify(&q, plain));
}

static void names_and_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        vx_quant q;
        vx_dtype stored;
        double bits;
    } cases[] = {
        { "BF16", { .kind = VX_QUANT_NONE }, VX_BF16, 16 },
        { "fp8_e5m2", { .kind = VX_QUANT_FP8, .k = 64 }, VX_F8_E5M2, 8 },
        { "int8_convrot", { .kind = VX_QUANT_INT8, .k = 64, .rotate = 64, .scale = { .rank = 1, .shape = { 9 } } }, VX_I8, 8.5 },
        { "nvfp4", { .kind = VX_QUANT_NVFP4, .k = 64 }, VX_U8, 4.5 },
        { "nvfp4_awq", { .kind = VX_QUANT_NVFP4, .k = 64, .pre_scale = { .rank = 1 } }, VX_U8, 4.5 },
        { "mxfp8", { .kind = VX_QUANT_MXFP8, .k = 64 }, VX_F8_E4M3, 8.25 },
        { "convrot_w4a4", { .kind = VX_QUANT_INT4, .k = 64, .rotate = 64 }, VX_I8, 4 },
        { "asym_w4a8_int8", { .kind = VX_QUANT_W4A8, .k = 64, .group = 16, .block_scale = { .dtype = VX_U8 } }, VX_I8, 4.5 },
        { "Q4_K", { .kind = VX_QUANT_GGUF, .type = 12 }, VX_U8, 4.5 },
        { "Q6_K", { .kind = VX_QUANT_GGUF, .type = 14 }, VX_U8, 6.5625 },
        { "Q2_K", { .kind = VX_QUANT_GGUF, .type = 10 }, VX_U8, 2.625 },
        { "Q3_K", { .kind = VX_QUANT_GGUF, .type = 11 }, VX_U8, 3.4375 },
        { "Q8_0", { .kind = VX_QUANT_GGUF, .type = 8 }, VX_U8, 8.5 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(vx_quant_name(&cases[i].q, cases[i].stored), cases[i].name);
        assert_true(vx_quant_bits(&cases[i].q, cases[i].stored) == cases[i].bits);
    }
    assert_null(vx_gguf_name(-1));
    assert_null(vx_gguf_name(4)); // removed
    assert_int_equal(vx_gguf_block(30), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_what_the_packages_decode),
        cmocka_unit_test(slices_find_their_scales),
        cmocka_unit_test(reads_nvfp4_as_the_golden_vectors_say),
        cmocka_unit_test(tiles_are_where_the_specification_says),
        cmocka_unit_test(convrot_is_its_own_inverse_and_the_dense_matrix),
        cmocka_unit_test(decodes_every_code),
        cmocka_unit_test(fp8_rounds_the_scale_of_a_tensor_first),
        cmocka_unit_test(refuses_shapes_and_formats_by_name),
        cmocka_unit_test(refuses_scales_that_are_none),
        cmocka_unit_test(finds_every_value_that_is_not_finite),
        cmocka_unit_test(names_and_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
