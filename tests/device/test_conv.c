// The operators of sound: convolutions against PyTorch's numbers and against the sum that operators.h writes down, bit for
// bit; the alias-free activation against its specification's vector and its definition in scalars.
#include "products.h"

#include <stdbool.h>

typedef struct case_ {
    const char *says;
    bool transposed;
    int64_t ci, co, kernel, stride, padding, dilation, length, out_length;
} case_;

// ---- PyTorch's numbers ----
// tools/make_conv_vectors.py, PyTorch 2.15.0. Every sum is exact, so any order of adding gives these bits.
enum { MOST = 30 };
static const struct {
    case_ c;
    float y[MOST];
} torch_cases[] = {
    { { "plain", false, 3, 2, 3, 1, 1, 1, 7, 7 },
      { -1.90625f, 1.296875f, -1.3125f, 0.71875f, 0.21875f, -2.8125f, 0.953125f, 1.75f, 0.328125f, 2.984375f, 2.078125f, 0.53125f,
        2.328125f, -0.609375f } },
    { { "strided", false, 2, 3, 4, 2, 1, 1, 8, 4 },
      { -0.53125f, -1.25f, -1.5f, 0.5625f, 0.046875f, 2.421875f, 1.609375f, 0.03125f, 2.15625f, 0.03125f, -1.40625f,
        -1.34375f } },
    { { "dilated", false, 2, 2, 3, 1, 5, 5, 9, 9 },
      { -0.375f, -0.96875f, -1.015625f, -1.046875f, -0.875f, 0.09375f, -0.125f, -0.109375f, 0.140625f, 0.515625f, 2.203125f,
        -0.46875f, 0.46875f, -0.28125f, 2.75f, 1.46875f, 1.171875f, 1.859375f } },
    { { "strided by five, uneven padding", false, 2, 2, 10, 5, 3, 1, 15, 3 },
      { -0.03125f, 0.015625f, 0.46875f, 1.0f, 1.453125f, 1.1875f } },
    { { "transposed by two", true, 3, 2, 4, 2, 1, 1, 4, 8 },
      { -1.40625f, 0.15625f, 0.1875f, 0.8125f, -0.96875f, -1.25f, 0.46875f, 0.03125f, 1.109375f, 1.453125f, 0.28125f, 1.296875f,
        1.1875f, 1.359375f, 1.4375f, 0.71875f } },
    { { "transposed by five", true, 2, 2, 9, 5, 2, 1, 3, 15 },
      { 0.125f,     -0.359375f, -0.375f,    -0.328125f, 0.578125f, -1.28125f,  -1.125f,   -0.578125f, -0.109375f, -1.09375f,
        -0.015625f, 0.203125f,  -0.328125f, 0.203125f,  0.1875f,   -0.1875f,   0.890625f, 1.640625f,  0.890625f,  0.28125f,
        1.421875f,  1.390625f,  0.34375f,   1.71875f,   0.96875f,  -0.109375f, 0.609375f, 1.6875f,    1.015625f,  0.859375f } },
    { { "transposed with phases without taps", true, 2, 2, 2, 3, 0, 1, 3, 8 },
      { 0.078125f, -0.921875f, -0.625f, -0.875f, -0.34375f, -0.625f, 0.09375f, -0.875f, 1.65625f, 0.796875f, 0.625f, 0.59375f,
        0.5f, 0.625f, 1.78125f, 0.78125f } },
};

static void fill_eighths(float *x, int64_t count, int64_t seed)
{
    for (int64_t i = 0; i < count; i++) x[i] = (float)((7 * i * i + 3 * i + seed) % 17 - 8) / 8;
}

static vx_tensor weight_of(const case_ *c, float *w)
{
    return c->transposed ? vx_tensor_of(w, VX_F32, c->ci, c->co, c->kernel) : vx_tensor_of(w, VX_F32, c->co, c->ci, c->kernel);
}

static vx_status convolve(vx_device *dev, const case_ *c, vx_tensor out, vx_tensor x, vx_tensor w, vx_tensor bias,
                          vx_tensor residual)
{
    const vx_conv1d_params p = { c->stride, c->padding, c->dilation, bias, residual };
    return c->transposed ? vx_conv_transpose1d(dev, out, x, w, &p) : vx_conv1d(dev, out, x, w, &p);
}

static void gives_pytorchs_numbers(void **state)
{
    (void)state;
    for (int l = 0; l < LEVELS; l++) {
        vx_device *dev = make_device(levels[l], 2);
        for (size_t i = 0; i < sizeof torch_cases / sizeof torch_cases[0]; i++) {
            const case_ *c = &torch_cases[i].c;
            float x[64], w[128], b[4], y[MOST];
            fill_eighths(x, c->ci * c->length, 1);
            fill_eighths(w, c->ci * c->co * c->kernel, 2);
            fill_eighths(b, c->co, 3);
            assert_ok(convolve(dev, c, vx_tensor_of(y, VX_F32, c->co, c->out_length), vx_tensor_of(x, VX_F32, c->ci, c->length),
                               weight_of(c, w), vx_tensor_of(b, VX_F32, c->co), (vx_tensor){ 0 }));
            assert_same_bits(y, torch_cases[i].y, c->co * c->out_length, VX_F32, c->says);
        }
        vx_device_destroy(&dev);
    }
}

// ---- the stated order ----
static const case_ cases[] = {
    { "one channel to one", false, 1, 1, 7, 1, 3, 1, 100, 100 },
    { "few channels, long", false, 8, 8, 11, 1, 25, 5, 1700, 1700 },
    { "channels and taps over one block of k", false, 70, 30, 11, 1, 5, 1, 90, 90 },
    { "more channels than one block of k", false, 700, 17, 3, 1, 1, 1, 40, 40 },
    { "many output channels", false, 16, 130, 3, 1, 3, 3, 70, 70 },
    { "pointwise", false, 33, 40, 1, 1, 0, 1, 67, 67 },
    { "strided by four", false, 20, 24, 8, 4, 2, 1, 1000, 250 },
    { "strided by three with dilation", false, 5, 6, 4, 3, 2, 2, 101, 33 },
    { "padding longer than the input", false, 4, 4, 5, 1, 40, 1, 3, 79 },
    { "transposed by two", true, 32, 16, 4, 2, 1, 1, 700, 1400 },
    { "transposed by five, many channels", true, 540, 60, 9, 5, 2, 1, 41, 205 },
    { "transposed with output padding", true, 6, 5, 9, 5, 2, 1, 10, 52 },
};

// By increasing tap, then channel; samples beyond the ends count as zeros of the sum. A tap of a transposed convolution that
// would need a sample between two has no term.
static float sum_by_the_book(const case_ *c, const float *x, int64_t x_stride, const float *w, int64_t o, int64_t n)
{
    float sum = 0;
    for (int64_t j = 0; j < c->kernel; j++) {
        const int64_t shifted = c->transposed ? n + c->padding - j : n * c->stride + j * c->dilation - c->padding;
        const int64_t step = c->transposed ? c->stride : 1;
        if (shifted % step) continue;
        for (int64_t i = 0; i < c->ci; i++) {
            const int64_t t = shifted / step;
            const float weight = c->transposed ? w[(i * c->co + o) * c->kernel + j] : w[(o * c->ci + i) * c->kernel + j];
            sum = fmaf(weight, t >= 0 && t < c->length ? x[i * x_stride + t] : 0.0f, sum);
        }
    }
    return sum;
}

enum { PLAIN, WITH_RESIDUAL, IN_PLACE, WAYS };

static void run_case(const case_ *c)
{
    enum { GAP = 3 };
    const int64_t x_stride = c->length + GAP, y_stride = c->out_length + GAP, count = c->co * y_stride;
    float *x = make_numbers(VX_F32, c->ci * x_stride, 0, 1), *w = make_numbers(VX_F32, c->ci * c->co * c->kernel, 0, 2);
    float *b = make_numbers(VX_F32, c->co, 0, 3), *r = make_numbers(VX_F32, count, 0, 4);
    float *sum = make_numbers(VX_F32, count, 0, 5), *want = make_numbers(VX_F32, count, 0, 6);
    for (int64_t o = 0; o < c->co; o++) {
        for (int64_t n = 0; n < c->out_length; n++) sum[o * y_stride + n] = sum_by_the_book(c, x, x_stride, w, o, n);
    }
    vx_tensor tx = vx_tensor_of(x, VX_F32, c->ci, c->length), tr = vx_tensor_of(r, VX_F32, c->co, c->out_length);
    tx.stride[0] = x_stride;
    tr.stride[0] = y_stride;
    for (int way = 0; way < WAYS; way++) {
        memcpy(want, r, (size_t)count * 4);
        for (int64_t o = 0; o < c->co; o++) {
            for (int64_t n = 0; n < c->out_length; n++) {
                const int64_t at = o * y_stride + n;
                want[at] = way == PLAIN ? sum[at] : (sum[at] + b[o]) + r[at];
            }
        }
        for (int l = 0; l < LEVELS; l++) {
            for (int t = 0; t < THREAD_COUNTS; t++) {
                vx_device *dev = make_device(levels[l], thread_counts[t]);
                float *y = make_numbers(VX_F32, count, 0, 4); // as r
                vx_tensor ty = tr;
                ty.data = y;
                assert_ok(convolve(dev, c, ty, tx, weight_of(c, w),
                                   way == PLAIN ? (vx_tensor){ 0 } : vx_tensor_of(b, VX_F32, c->co),
                                   way == PLAIN      ? (vx_tensor){ 0 }
                                   : way == IN_PLACE ? ty
                                                     : tr));
                char where[128];
                snprintf(where, sizeof where, "%s, way %d, %s, %d threads", c->says, way, levels[l], thread_counts[t]);
                assert_same_bits(y, want, count, VX_F32, where);
                free_numbers(y, 0);
                vx_device_destroy(&dev);
            }
        }
    }
    free_numbers(x, 0);
    free_numbers(w, 0);
    free_numbers(b, 0);
    free_numbers(r, 0);
    free_numbers(sum, 0);
    free_numbers(want, 0);
}

static void convolutions_add_in_the_stated_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) run_case(&cases[i]);
}

static void an_empty_input_gives_the_bias(void **state)
{
    (void)state;
    float w[2 * 3 * 3] = { 0 }, b[2] = { 1.5f, -2 }, y[2 * 4], nothing[1];
    vx_device *dev = make_device(NULL, 1);
    assert_ok(vx_conv1d(dev, vx_tensor_of(y, VX_F32, 2, 4), vx_tensor_of(nothing, VX_F32, 3, 0), vx_tensor_of(w, VX_F32, 2, 3, 3),
                        &(vx_conv1d_params){ .padding = 3, .bias = vx_tensor_of(b, VX_F32, 2) }));
    for (int i = 0; i < 8; i++) assert_true(y[i] == b[i / 4]);
    vx_device_destroy(&dev);
}

// ---- the alias-free activation ----
// Audio VAE specification, A3: the filter's bits, symmetric.
static const uint32_t half_filter[6] = { 0x3b04f861, 0x3c19d646, 0xbcd14084, 0xbd6c2a26, 0x3e03a888, 0x3ee2ec65 };

static void fill_filter(float f[12])
{
    for (int i = 0; i < 6; i++) f[i] = f[11 - i] = vx_f32_from_bits(half_filter[i]);
}

static void activation_gives_the_specifications_vector(void **state)
{
    (void)state;
    static const float want[6] = { 0.2544714808f, 1.8231542110f, 0.2645235062f, -0.0960652605f, -0.1123674586f, 0.2985931039f };
    float x[6] = { 0, 1, 0, 0, -0.5f, 0.25f }, y[6], alpha = 0.2f, beta = -0.3f, filter[12];
    fill_filter(filter);
    const vx_tensor f = vx_tensor_of(filter, VX_F32, 12);
    for (int l = 0; l < LEVELS; l++) {
        vx_device *dev = make_device(levels[l], 1);
        assert_ok(vx_snake_alias_free(dev, vx_tensor_of(y, VX_F32, 1, 6), vx_tensor_of(x, VX_F32, 1, 6),
                                      vx_tensor_of(&alpha, VX_F32, 1), vx_tensor_of(&beta, VX_F32, 1), f, f));
        for (int i = 0; i < 6; i++) assert_true(fabsf(y[i] - want[i]) < 1e-6f);
        vx_device_destroy(&dev);
    }
}

static int64_t clamp(int64_t i, int64_t last)
{
    return i < 0 ? 0 : i > last ? last : i;
}

// The closed forms of A3 in scalars.
static void activate_by_the_book(float *y, const float *x, int64_t length, float alpha, float beta, const float *up,
                                 const float *down)
{
    float *v = vx_alloc((size_t)length * 2 * sizeof *v);
    const float a = vx_expf(alpha), gain = 1.0f / (vx_expf(beta) + 1e-9f);
    for (int64_t j = 0; j < 2 * length; j++) {
        float u = 0;
        for (int t = 0; t < 6; t++) {
            const float f = up[((j + 15) & 1) + 2 * t], s = x[clamp((j + 5) / 2 - t, length - 1)];
            u = t == 0 ? f * s : fmaf(f, s, u);
        }
        u = 2 * u;
        const float s = vx_sinf(a * u);
        v[j] = u + gain * (s * s);
    }
    for (int64_t m = 0; m < length; m++) {
        y[m] = down[0] * v[clamp(2 * m - 5, 2 * length - 1)];
        for (int t = 1; t < 12; t++) y[m] = fmaf(down[t], v[clamp(2 * m + t - 5, 2 * length - 1)], y[m]);
    }
    vx_free(v);
}

static void activation_is_its_definition_at_every_level(void **state)
{
    (void)state;
    enum { CHANNELS = 3, GAP = 2 };
    static const int64_t lengths[] = { 1, 2, 3, 5, 17, 1023, 1024, 1025, 1028, 2100 };
    // The second channel's angles go far beyond what the vector sine takes, and 60000 lies just above.
    float alpha[CHANNELS] = { 0.3f, 12.0f, -0.5f }, beta[CHANNELS] = { -0.3f, 0.1f, 1.0f }, up[12], down[12];
    fill_filter(up);
    fill_filter(down);
    up[3] = 0.01f; // not symmetric: an order of taps reversed by mistake shows
    down[4] = -0.2f;
    for (size_t n = 0; n < sizeof lengths / sizeof lengths[0]; n++) {
        const int64_t length = lengths[n], stride = length + GAP, count = CHANNELS * stride;
        float *x = make_numbers(VX_F32, count, 0, n), *want = make_numbers(VX_F32, count, 0, 99);
        for (int64_t i = 0; i < count; i += 3) x[i] *= 4;
        if (length > 20) x[stride + 11] = INFINITY;
        for (int c = 0; c < CHANNELS; c++)
            activate_by_the_book(want + c * stride, x + c * stride, length, alpha[c], beta[c], up, down);
        vx_tensor tx = vx_tensor_of(x, VX_F32, CHANNELS, length), ty = tx;
        tx.stride[0] = ty.stride[0] = stride;
        for (int l = 0; l < LEVELS; l++) {
            for (int t = 0; t < THREAD_COUNTS; t++) {
                vx_device *dev = make_device(levels[l], thread_counts[t]);
                float *y = ty.data = make_numbers(VX_F32, count, 0, 99);
                assert_ok(vx_snake_alias_free(dev, ty, tx, vx_tensor_of(alpha, VX_F32, CHANNELS),
                                              vx_tensor_of(beta, VX_F32, CHANNELS), vx_tensor_of(up, VX_F32, 12),
                                              vx_tensor_of(down, VX_F32, 12)));
                char where[64];
                snprintf(where, sizeof where, "length %lld, %s", (long long)length, levels[l]);
                for (int64_t i = 0; i < count; i++) {
                    if (isnan(want[i]) && isnan(y[i])) continue; // its sign and payload are nobody's promise
                    assert_same_bits(&y[i], &want[i], 1, VX_F32, where);
                }
                free_numbers(y, 0);
                vx_device_destroy(&dev);
            }
        }
        free_numbers(x, 0);
        free_numbers(want, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_pytorchs_numbers),
        cmocka_unit_test(convolutions_add_in_the_stated_order),
        cmocka_unit_test(an_empty_input_gives_the_bias),
        cmocka_unit_test(activation_gives_the_specifications_vector),
        cmocka_unit_test(activation_is_its_definition_at_every_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
