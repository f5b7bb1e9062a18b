// Convolutions over frames, rows and columns, and the norm over groups of channels: PyTorch's numbers, and the arithmetic
// that operators.h writes down, bit for bit on every level and with any number of threads.
#include "products.h"

#include "device/conv3d_vectors.h"

enum { AXES = 3 };
typedef struct case_ {
    const char *says;
    int64_t ci, co, kernel[AXES], x[AXES], stride[AXES], begin[AXES], end[AXES];
    bool reflect;
    vx_dtype weight;
} case_;

// The network's two kinds: as many rows and columns as before, or half of them.
#define SAME         .stride = { 1, 1, 1 }, .begin = { 2, 1, 1 }, .end = { 0, 1, 1 }, .reflect = true
#define HALF(frames) .stride = { frames, 2, 2 }, .begin = { 2, 0, 0 }, .end = { 0, 1, 1 }, .reflect = true

static const case_ cases[] = {
    { "same size, few channels", 3, 5, { 3, 3, 3 }, { 4, 6, 7 }, SAME, VX_F32 },
    { "one frame only meets one tap", 6, 4, { 3, 3, 3 }, { 1, 5, 5 }, SAME, VX_F32 },
    { "two frames", 2, 2, { 3, 3, 3 }, { 2, 2, 2 }, SAME, VX_F32 },
    { "more k than one block, positions over one piece", 70, 30, { 3, 3, 3 }, { 2, 9, 33 }, SAME, VX_F32 },
    { "row blocks over one group", 9, 200, { 3, 3, 3 }, { 2, 4, 10 }, SAME, VX_F32 },
    { "rows as wide as two panels", 5, 3, { 3, 3, 3 }, { 1, 3, 64 }, SAME, VX_F32 },
    { "rows of half a panel", 4, 7, { 3, 3, 3 }, { 3, 16, 16 }, SAME, VX_F32 },
    { "rows of 300", 2, 3, { 3, 3, 3 }, { 1, 2, 300 }, SAME, VX_F32 },
    { "rows of 600, in strips", 2, 3, { 3, 3, 3 }, { 1, 2, 600 }, SAME, VX_F32 },
    { "a window of one tap at a time", 700, 3, { 3, 3, 3 }, { 1, 2, 64 }, SAME, VX_F32 },
    { "narrow, one tap and part of the channels at a time", 1100, 3, { 3, 3, 3 }, { 1, 4, 16 }, SAME, VX_F32 },
    { "the same at half the size", 1100, 3, { 3, 3, 3 }, { 3, 8, 32 }, HALF(2), VX_F32 },
    { "half the size", 6, 8, { 3, 3, 3 }, { 5, 8, 10 }, HALF(1), VX_F32 },
    { "half the size and frames", 6, 8, { 3, 3, 3 }, { 5, 8, 66 }, HALF(2), VX_F32 },
    { "half of one frame", 6, 8, { 3, 3, 3 }, { 1, 4, 4 }, HALF(2), VX_F32 },
    { "pointwise", 33, 40, { 1, 1, 1 }, { 2, 5, 13 }, .stride = { 1, 1, 1 }, .weight = VX_F32 },
    { "pointwise, more channels than one block of k",
      1100,
      15,
      { 1, 1, 1 },
      { 1, 3, 7 },
      .stride = { 1, 1, 1 },
      .weight = VX_F32 },
    { "zeros around", 4, 6, { 3, 3, 3 }, { 3, 5, 6 }, { 1, 1, 1 }, { 2, 1, 1 }, { 0, 1, 1 }, false, VX_F32 },
    { "nothing around", 4, 6, { 2, 3, 1 }, { 3, 5, 6 }, { 1, 2, 3 }, { 0, 0, 0 }, { 0, 0, 0 }, false, VX_F32 },
    { "a single row between zeros", 3, 4, { 1, 3, 3 }, { 2, 1, 1 }, { 1, 1, 1 }, { 0, 1, 1 }, { 0, 1, 1 }, false, VX_F32 },
    { "a bf16 weight", 20, 17, { 3, 3, 3 }, { 2, 6, 7 }, SAME, VX_BF16 },
    { "an f16 weight", 20, 17, { 3, 3, 3 }, { 2, 6, 7 }, SAME, VX_F16 },
};

static int64_t extent(const case_ *c, int i)
{
    return (c->x[i] + c->begin[i] + c->end[i] - c->kernel[i]) / c->stride[i] + 1;
}

static int64_t mirrored(int64_t i, int64_t n)
{
    return i < 0 ? -i : i < n ? i : 2 * n - 2 - i;
}

// Every tap, those on zero frames too: leaving them out must not show.
static float sum_by_the_book(const case_ *c, vx_tensor x, const void *w, int64_t o, const int64_t at[AXES])
{
    const int64_t taps = c->kernel[0] * c->kernel[1] * c->kernel[2];
    float sum = 0;
    for (int64_t tap = 0; tap < taps; tap++) {
        const int64_t k[AXES] = { tap / c->kernel[2] / c->kernel[1], tap / c->kernel[2] % c->kernel[1], tap % c->kernel[2] };
        int64_t from[AXES];
        bool zero = false;
        for (int i = 0; i < AXES; i++) {
            from[i] = at[i] * c->stride[i] + k[i] - c->begin[i];
            if (i > 0 && c->reflect) from[i] = mirrored(from[i], c->x[i]);
            zero = zero || from[i] < 0 || from[i] >= c->x[i];
        }
        const int64_t place = from[0] * x.stride[1] + from[1] * x.stride[2] + from[2];
        for (int64_t i = 0; i < c->ci; i++) {
            const float v = zero ? 0.0f : vx_f32_of(x)[i * x.stride[0] + place];
            sum = fmaf(get(w, c->weight, (o * c->ci + i) * taps + tap), v, sum);
        }
    }
    return sum;
}

static vx_conv3d_params params_of(const case_ *c)
{
    vx_conv3d_params p = { .reflect = c->reflect };
    for (int i = 0; i < AXES; i++) {
        p.stride[i] = c->stride[i];
        p.pad_begin[i] = c->begin[i];
        p.pad_end[i] = c->end[i];
    }
    return p;
}

// A view [channels, frames, rows, columns] with room between rows, frames and channels, and how many numbers it spans.
static vx_tensor loose(int64_t channels, const int64_t extents[AXES], int64_t *count)
{
    enum { GAP = 3 };
    vx_tensor t = vx_tensor_of(NULL, VX_F32, channels, extents[0], extents[1], extents[2]);
    t.stride[2] = t.shape[3] + GAP;
    t.stride[1] = t.shape[2] * t.stride[2] + GAP;
    t.stride[0] = t.shape[1] * t.stride[1] + GAP;
    *count = t.shape[0] * t.stride[0];
    return t;
}

enum { PLAIN, WITH_RESIDUAL, IN_PLACE, WAYS };

static void expect(const case_ *c, int way, vx_tensor sums, const float *b, vx_tensor residual, float *want)
{
    for (int64_t o = 0; o < sums.shape[0]; o++)
        for (int64_t f = 0; f < sums.shape[1]; f++)
            for (int64_t y = 0; y < sums.shape[2]; y++)
                for (int64_t x = 0; x < sums.shape[3]; x++) {
                    const int64_t at = o * sums.stride[0] + f * sums.stride[1] + y * sums.stride[2] + x;
                    const float sum = vx_f32_of(sums)[at];
                    want[at] = way == PLAIN ? sum : (sum + get(b, c->weight, o)) + vx_f32_of(residual)[at];
                }
}

static void run_on(const case_ *c, int way, const char *isa, int threads, vx_tensor x, vx_tensor w, vx_tensor b,
                   vx_tensor residual, const float *want, int64_t count)
{
    char where[160];
    vx_device *dev = make_device(isa, threads);
    vx_tensor y = residual;
    y.data = make_numbers(VX_F32, count, 0, 4); // as the residual
    vx_conv3d_params p = params_of(c);
    if (way != PLAIN) p.bias = b, p.residual = way == IN_PLACE ? y : residual;
    snprintf(where, sizeof where, "%s, way %d, %s, %d threads", c->says, way, isa, threads);
    assert_ok(vx_conv3d(dev, y, x, w, &p));
    assert_same_bits(y.data, want, count, VX_F32, where);
    free_numbers(y.data, 0);
    vx_device_destroy(&dev);
}

static void run_case(const case_ *c)
{
    const int64_t out[AXES] = { extent(c, 0), extent(c, 1), extent(c, 2) };
    int64_t x_count, count;
    vx_tensor x = loose(c->ci, c->x, &x_count), r = loose(c->co, out, &count), sums = r;
    vx_tensor w = vx_tensor_of(NULL, c->weight, c->co, c->ci, c->kernel[0], c->kernel[1], c->kernel[2]);
    x.data = make_numbers(VX_F32, x_count, 0, 1);
    w.data = make_numbers(c->weight, vx_tensor_count(w), 0, 2);
    const vx_tensor b = vx_tensor_of(make_numbers(c->weight, c->co, 0, 3), c->weight, c->co);
    r.data = make_numbers(VX_F32, count, 0, 4);
    sums.data = make_numbers(VX_F32, count, 0, 5);
    for (int64_t o = 0; o < c->co; o++)
        for (int64_t p = 0; p < out[0] * out[1] * out[2]; p++) {
            const int64_t at[AXES] = { p / out[2] / out[1], p / out[2] % out[1], p % out[2] };
            vx_f32_of(sums)[o * r.stride[0] + at[0] * r.stride[1] + at[1] * r.stride[2] + at[2]] =
                sum_by_the_book(c, x, w.data, o, at);
        }
    for (int way = 0; way < WAYS; way++) {
        float *want = make_numbers(VX_F32, count, 0, 4);
        expect(c, way, sums, b.data, r, want);
        for (int l = 0; l < LEVELS; l++)
            for (int t = 0; t < THREAD_COUNTS; t++) run_on(c, way, levels[l], thread_counts[t], x, w, b, r, want, count);
        free_numbers(want, 0);
    }
    free_numbers(x.data, 0);
    free_numbers(w.data, 0);
    free_numbers(b.data, 0);
    free_numbers(r.data, 0);
    free_numbers(sums.data, 0);
}

static void convolutions_add_in_the_stated_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) run_case(&cases[i]);
}

// A batch of pictures has the bits of the pictures one by one.
static void frames_alone_are_clips_of_one_frame(void **state)
{
    (void)state;
    enum { CI = 20, CO = 9, T = 4, H = 6, W = 10, COUNT = CO * T * H * W };
    float *w = make_numbers(VX_F32, CO * CI * 27, 0, 1), *x = make_numbers(VX_F32, CI * T * H * W, 0, 2);
    float *all = make_numbers(VX_F32, COUNT, 0, 3), *one = make_numbers(VX_F32, COUNT, 0, 4);
    const vx_tensor tw = vx_tensor_of(w, VX_F32, CO, CI, 3, 3, 3), tx = vx_tensor_of(x, VX_F32, CI, T, H, W);
    const vx_tensor tone = vx_tensor_of(one, VX_F32, CO, T, H, W), tall = vx_tensor_of(all, VX_F32, CO, T, H, W);
    vx_conv3d_params p = { .pad_begin = { 2, 1, 1 }, .pad_end = { 0, 1, 1 }, .reflect = true };
    for (int l = 0; l < LEVELS; l++) {
        vx_device *dev = make_device(levels[l], 2);
        p.alone = false;
        for (int64_t f = 0; f < T; f++)
            assert_ok(vx_conv3d(dev, vx_tensor_slice(tone, 1, f, f + 1), vx_tensor_slice(tx, 1, f, f + 1), tw, &p));
        p.alone = true;
        assert_ok(vx_conv3d(dev, tall, tx, tw, &p));
        assert_same_bits(all, one, COUNT, VX_F32, levels[l]);
        p.pad_begin[0] = 1;
        assert_code(vx_conv3d(dev, vx_tensor_of(all, VX_F32, CO, T - 1, H, W), tx, tw, &p), VX_ERR_SHAPE);
        p.pad_begin[0] = 2;
        vx_device_destroy(&dev);
    }
    free_numbers(w, 0);
    free_numbers(x, 0);
    free_numbers(all, 0);
    free_numbers(one, 0);
}

// ---- PyTorch's numbers ----
static void fill_eighths(float *x, int64_t count, int64_t seed)
{
    for (int64_t i = 0; i < count; i++) x[i] = (float)((7 * i * i + 3 * i + seed) % 17 - 8) / 8;
}

// Every sum is exact, so any order of adding gives these bits.
static void gives_pytorchs_convolutions(void **state)
{
    (void)state;
    float x[400], w[400], b[8], y[CONV3D_MOST];
    for (int l = 0; l < LEVELS; l++) {
        vx_device *dev = make_device(levels[l], 2);
        for (size_t i = 0; i < sizeof conv3d_vectors / sizeof conv3d_vectors[0]; i++) {
            const int64_t *d = conv3d_vectors[i].d; // ci co kt kh kw t h w, strides, "half": padding only behind
            vx_conv3d_params p = { .stride = { d[8], d[9], d[10] }, .reflect = d[4] > 1 };
            p.pad_begin[0] = d[2] - 1;
            for (int axis = 1; axis < AXES && d[4] > 1; axis++) p.pad_begin[axis] = !d[11], p.pad_end[axis] = 1;
            fill_eighths(x, d[0] * d[5] * d[6] * d[7], 1);
            fill_eighths(w, d[0] * d[1] * d[2] * d[3] * d[4], 2);
            fill_eighths(b, d[1], 3);
            p.bias = vx_tensor_of(b, VX_F32, d[1]);
            const int64_t *o = conv3d_vectors[i].out;
            assert_ok(vx_conv3d(dev, vx_tensor_of(y, VX_F32, d[1], o[0], o[1], o[2]),
                                vx_tensor_of(x, VX_F32, d[0], d[5], d[6], d[7]),
                                vx_tensor_of(w, VX_F32, d[1], d[0], d[2], d[3], d[4]), &p));
            assert_same_bits(y, conv3d_vectors[i].y, d[1] * o[0] * o[1] * o[2], VX_F32, conv3d_vectors[i].says);
        }
        vx_device_destroy(&dev);
    }
}

// ---- group norm ----
static void gives_pytorchs_group_norm(void **state)
{
    (void)state;
    enum { C = 4, T = 2, H = 2, W = 3 };
    float x[C * T * H * W], w[C], b[C], y[C * T * H * W];
    fill_eighths(x, C * T * H * W, 1);
    fill_eighths(w, C, 2);
    fill_eighths(b, C, 3);
    const vx_tensor tx = vx_tensor_of(x, VX_F32, C, T, H, W), ty = vx_tensor_of(y, VX_F32, C, T, H, W);
    for (int l = 0; l < LEVELS; l++) {
        vx_device *dev = make_device(levels[l], 1);
        for (int silu = 0; silu < 2; silu++) {
            assert_ok(vx_group_norm(dev, ty, tx, vx_tensor_of(w, VX_F32, C), vx_tensor_of(b, VX_F32, C), 2, 1e-6f, silu));
            for (int i = 0; i < C * T * H * W; i++)
                if (!(fabsf(y[i] - group_norm_vector[silu][i]) <= 5e-7f))
                    fail_msg("element %d is %.9g, expected %.9g", i, (double)y[i], (double)group_norm_vector[silu][i]);
        }
        vx_device_destroy(&dev);
    }
}

// Sums in f64: lane l takes columns l, l + 32, ... of row after row; the tree; then channels in order.
static double channel_sum(const float *x, int64_t pitch, int64_t rows, int64_t columns, float mean, bool squares)
{
    double t[32] = { 0 }, next[32];
    for (int64_t y = 0; y < rows; y++)
        for (int64_t i = 0; i < columns; i++) {
            const float d = x[y * pitch + i] - mean;
            t[i % 32] = t[i % 32] + (squares ? (double)d * (double)d : (double)d);
        }
    for (int o = 16; o > 0; o /= 2) {
        for (int l = 0; l < 32; l++) next[l] = t[l] + t[l ^ o];
        memcpy(t, next, sizeof t);
    }
    return t[0];
}

static void norm_by_the_book(vx_tensor x, int64_t groups, const float *w, const float *b, bool silu, float *want)
{
    const int64_t count = x.shape[0] / groups, rows = x.shape[2], columns = x.shape[3];
    for (int64_t f = 0; f < x.shape[1]; f++)
        for (int64_t g = 0; g < groups; g++) {
            float stats[2] = { 0, 0 };
            for (int pass = 0; pass < 2; pass++) {
                double sum = 0;
                for (int64_t c = g * count; c < (g + 1) * count; c++)
                    sum = sum + channel_sum(vx_f32_of(x) + c * x.stride[0] + f * x.stride[1], x.stride[2], rows, columns,
                                            stats[0], pass);
                stats[pass] = (float)(sum / (double)(count * rows * columns));
            }
            const float deviation = sqrtf(stats[1] + 1e-6f);
            for (int64_t c = g * count; c < (g + 1) * count; c++)
                for (int64_t i = 0; i < rows * columns; i++) {
                    const int64_t at = c * x.stride[0] + f * x.stride[1] + i / columns * x.stride[2] + i % columns;
                    float y = (vx_f32_of(x)[at] - stats[0]) / deviation;
                    y = y * w[c];
                    y = y + b[c];
                    want[at] = silu ? y / (1.0f + vx_expf(-y)) : y;
                }
        }
}

static void norms_add_in_the_stated_order(void **state)
{
    (void)state;
    static const int64_t shapes[][5] = {
        { 4, 2, 3, 5, 2 }, { 6, 1, 2, 64, 6 }, { 6, 3, 7, 45, 1 }, { 2, 2, 16, 16, 1 }, { 3, 1, 1, 300, 3 }
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const int64_t *s = shapes[i];
        int64_t count;
        vx_tensor x = loose(s[0], s + 1, &count);
        x.data = make_numbers(VX_F32, count, 0, 1);
        float *w = make_numbers(VX_F32, s[0], 0, 2), *b = make_numbers(VX_F32, s[0], 0, 3);
        for (int silu = 0; silu < 2; silu++) {
            float *want = make_numbers(VX_F32, count, 0, 1);
            norm_by_the_book(x, s[4], w, b, silu, want);
            for (int l = 0; l < LEVELS; l++)
                for (int t = 0; t < THREAD_COUNTS; t++) {
                    vx_device *dev = make_device(levels[l], thread_counts[t]);
                    vx_tensor y = x; // in place
                    y.data = make_numbers(VX_F32, count, 0, 1);
                    assert_ok(vx_group_norm(dev, y, y, vx_tensor_of(w, VX_F32, s[0]), vx_tensor_of(b, VX_F32, s[0]), s[4], 1e-6f,
                                            silu));
                    assert_same_bits(y.data, want, count, VX_F32, levels[l]);
                    free_numbers(y.data, 0);
                    vx_device_destroy(&dev);
                }
            free_numbers(want, 0);
        }
        free_numbers(x.data, 0);
        free_numbers(w, 0);
        free_numbers(b, 0);
    }
}

static void a_group_norm_with_silu_is_the_two_operators(void **state)
{
    (void)state;
    enum { C = 6, T = 2, H = 5, W = 37, COUNT = C * T * H * W };
    float *x = make_numbers(VX_F32, COUNT, 0, 1), *w = make_numbers(VX_BF16, C, 0, 2), *b = make_numbers(VX_F16, C, 0, 3);
    float *fused = make_numbers(VX_F32, COUNT, 0, 4), *steps = make_numbers(VX_F32, COUNT, 0, 5);
    const vx_tensor tx = vx_tensor_of(x, VX_F32, C, T, H, W), tw = vx_tensor_of(w, VX_BF16, C), tb = vx_tensor_of(b, VX_F16, C);
    vx_device *dev = make_device(NULL, 2);
    assert_ok(vx_group_norm(dev, vx_tensor_of(fused, VX_F32, C, T, H, W), tx, tw, tb, 3, 1e-6f, true));
    assert_ok(vx_group_norm(dev, vx_tensor_of(steps, VX_F32, C, T, H, W), tx, tw, tb, 3, 1e-6f, false));
    const vx_tensor rows = vx_tensor_of(steps, VX_F32, C, T * H * W);
    assert_ok(vx_silu(dev, rows, rows));
    assert_same_bits(fused, steps, COUNT, VX_F32, "group_norm and silu");
    vx_device_destroy(&dev);
    free_numbers(x, 0);
    free_numbers(w, 0);
    free_numbers(b, 0);
    free_numbers(fused, 0);
    free_numbers(steps, 0);
}

// A plan's figure is what the operator takes: no growth, and not less than the weight.
static void scratch_is_bounded_by_a_frame(void **state)
{
    (void)state;
    vx_device *cpu = make_device(NULL, 2), *plan = NULL;
    size_t scratch[2];
    assert_ok(vx_device_plan_create(&plan, cpu));
    for (int i = 0; i < 2; i++) {
        const int64_t t = i ? 1700 : 17;
        vx_device_plan_reset(plan);
        assert_ok(vx_conv3d(plan, vx_tensor_of(NULL, VX_F32, 32, t, 64, 64), vx_tensor_of(NULL, VX_F32, 32, t, 64, 64),
                            vx_tensor_of(NULL, VX_F32, 32, 32, 3, 3, 3),
                            &(vx_conv3d_params){ .pad_begin = { 2, 1, 1 }, .pad_end = { 0, 1, 1 }, .reflect = true }));
        scratch[i] = vx_device_plan_counts(plan).scratch;
    }
    assert_int_equal(scratch[0], scratch[1]);
    assert_true(scratch[0] > 32 * 32 * 27 * 4);
    vx_device_destroy(&plan);
    vx_device_destroy(&cpu);
}

// ---- refusals ----
static const struct {
    const char *says;
    int64_t x[4], w[5], out[4], stride[AXES], begin[AXES], end[AXES];
    vx_code want;
} refusals[] = {
    { "takes what the network sends", { 2, 3, 4, 4 }, { 5, 2, 3, 3, 3 }, { 5, 3, 4, 4 }, { 0 }, { 2, 1, 1 }, { 0, 1, 1 }, VX_OK },
    { "does nothing without channels out",
      { 2, 3, 4, 4 },
      { 0, 2, 3, 3, 3 },
      { 0, 3, 4, 4 },
      { 0 },
      { 2, 1, 1 },
      { 0, 1, 1 },
      VX_OK },
    { "refuses other channels",
      { 2, 3, 4, 4 },
      { 5, 3, 3, 3, 3 },
      { 5, 3, 4, 4 },
      { 0 },
      { 2, 1, 1 },
      { 0, 1, 1 },
      VX_ERR_SHAPE },
    { "refuses a wrong number of frames",
      { 2, 3, 4, 4 },
      { 5, 2, 3, 3, 3 },
      { 5, 2, 4, 4 },
      { 0 },
      { 2, 1, 1 },
      { 0, 1, 1 },
      VX_ERR_SHAPE },
    { "refuses a wrong number of rows",
      { 2, 3, 4, 4 },
      { 5, 2, 3, 3, 3 },
      { 5, 3, 3, 4 },
      { 0 },
      { 2, 1, 1 },
      { 0, 1, 1 },
      VX_ERR_SHAPE },
    { "refuses a wrong number of columns",
      { 2, 3, 4, 4 },
      { 5, 2, 3, 3, 3 },
      { 5, 3, 4, 2 },
      { 0 },
      { 2, 1, 1 },
      { 0, 1, 1 },
      VX_ERR_SHAPE },
    { "refuses two rows of padding",
      { 2, 3, 4, 4 },
      { 5, 2, 3, 3, 3 },
      { 5, 3, 6, 4 },
      { 0 },
      { 2, 2, 1 },
      { 0, 2, 1 },
      VX_ERR_SHAPE },
    { "refuses frames behind", { 2, 3, 4, 4 }, { 5, 2, 3, 3, 3 }, { 5, 3, 4, 4 }, { 0 }, { 1, 1, 1 }, { 1, 1, 1 }, VX_ERR_SHAPE },
    { "refuses more frames in front than taps",
      { 2, 3, 4, 4 },
      { 5, 2, 3, 3, 3 },
      { 5, 4, 4, 4 },
      { 0 },
      { 3, 1, 1 },
      { 0, 1, 1 },
      VX_ERR_SHAPE },
    { "refuses to mirror a single row",
      { 2, 3, 1, 4 },
      { 5, 2, 3, 3, 3 },
      { 5, 3, 1, 4 },
      { 0 },
      { 2, 1, 1 },
      { 0, 1, 1 },
      VX_ERR_SHAPE },
    { "refuses a negative stride",
      { 2, 3, 4, 4 },
      { 5, 2, 3, 3, 3 },
      { 5, 3, 4, 4 },
      { 1, -1, 1 },
      { 2, 1, 1 },
      { 0, 1, 1 },
      VX_ERR_SHAPE },
};

static void refuses_what_does_not_fit(void **state)
{
    (void)state;
    vx_device *dev = make_device(NULL, 1);
    float x[400], w[400], out[600];
    fill_eighths(x, 400, 1);
    fill_eighths(w, 400, 2);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        vx_conv3d_params p = { .reflect = true };
        memcpy(p.stride, refusals[i].stride, sizeof p.stride);
        memcpy(p.pad_begin, refusals[i].begin, sizeof p.pad_begin);
        memcpy(p.pad_end, refusals[i].end, sizeof p.pad_end);
        const vx_status s =
            vx_conv3d(dev, vx_tensor_make(out, VX_F32, 4, refusals[i].out), vx_tensor_make(x, VX_F32, 4, refusals[i].x),
                      vx_tensor_make(w, VX_F32, 5, refusals[i].w), &p);
        if (s.code != refusals[i].want)
            fail_msg("%s: code %d, expected %d", refusals[i].says, (int)s.code, (int)refusals[i].want);
    }
    const vx_tensor t = vx_tensor_of(x, VX_F32, 4, 1, 3, 3), half = vx_tensor_of(x, VX_BF16, 4, 1, 3, 3),
                    four = vx_tensor_of(w, VX_F32, 4);
    assert_int_equal(vx_group_norm(dev, t, t, four, four, 3, 1e-6f, true).code, VX_ERR_SHAPE);
    assert_int_equal(vx_group_norm(dev, t, t, four, four, 0, 1e-6f, true).code, VX_ERR_SHAPE);
    assert_int_equal(vx_group_norm(dev, t, t, vx_tensor_of(w, VX_F32, 3), four, 2, 1e-6f, true).code, VX_ERR_SHAPE);
    assert_int_equal(vx_group_norm(dev, half, half, four, four, 2, 1e-6f, true).code, VX_ERR_DTYPE);
    vx_device_destroy(&dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_pytorchs_convolutions),
        cmocka_unit_test(convolutions_add_in_the_stated_order),
        cmocka_unit_test(frames_alone_are_clips_of_one_frame),
        cmocka_unit_test(gives_pytorchs_group_norm),
        cmocka_unit_test(norms_add_in_the_stated_order),
        cmocka_unit_test(scratch_is_bounded_by_a_frame),
        cmocka_unit_test(a_group_norm_with_silu_is_the_two_operators),
        cmocka_unit_test(refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
