// Convolutions and the alias-free activation on CUDA: the CPU's bits, whatever the shape and whatever lies between rows; and by
// parts, near them.
#include "conv_rig.h"

static bool by_parts; // what the device is told

// How far products by parts may be from the CPU's, in relative L2. The CPU's is one chain of `products` roundings: 2^-25 times their
// root. The parts' own error is a tenth of what the first term says, that of their shorter sums far below the chain's.
static double near_enough(int64_t products)
{
    return 0x1p-22 + 0x1p-25 * sqrt((double)products);
}
static void assert_near(const both *b, const char *what, int64_t products)
{
    float *found = vx_alloc((size_t)b->span * 4);
    assert_non_null(found);
    assert_ok(vx_download(cuda, found, b->far));
    const float *want = b->host;
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < b->span; i++) {
        if (isnan(want[i]) && isnan(found[i])) continue; // between rows
        if (!isfinite(found[i])) fail_msg("%s: number %lld is %g", what, (long long)i, (double)found[i]);
        difference += ((double)found[i] - want[i]) * ((double)found[i] - want[i]);
        norm += (double)want[i] * want[i];
    }
    const double apart = norm > 0 ? sqrt(difference / norm) : 0;
    if (apart > near_enough(products)) fail_msg("%s: %.2g from the CPU's, expected %.2g", what, apart, near_enough(products));
    vx_free(found);
}
// products: of a sum.
static void assert_result(const both *b, const char *what, int64_t products)
{
    if (by_parts) assert_near(b, what, products);
    else assert_same(b, what);
}

// ---- over time ----
enum { PLAIN, OF_A_FILE, WITH_RESIDUAL, IN_PLACE, WAYS }; // weight and bias in host memory
typedef struct line_case {
    const char *says;
    bool transposed;
    int64_t ci, co, kernel, stride, padding, dilation, length, out_length;
} line_case;

static const line_case line_cases[] = {
    { "one channel to one", false, 1, 1, 7, 1, 3, 1, 100, 100 },
    { "few channels, long", false, 8, 8, 11, 1, 25, 5, 1700, 1700 },
    { "channels and taps over one step of k", false, 70, 30, 11, 1, 5, 1, 90, 90 },
    { "more channels than one tile", false, 700, 17, 3, 1, 1, 1, 40, 40 },
    { "many output channels", false, 16, 130, 3, 1, 3, 3, 70, 70 },
    { "pointwise", false, 33, 40, 1, 1, 0, 1, 67, 67 },
    { "strided by four", false, 20, 24, 8, 4, 2, 1, 1000, 250 },
    { "strided by three with dilation", false, 5, 6, 4, 3, 2, 2, 101, 33 },
    { "padding longer than the input", false, 4, 4, 5, 1, 40, 1, 3, 79 },
    { "transposed by two", true, 32, 16, 4, 2, 1, 1, 700, 1400 },
    { "transposed by five, many channels", true, 540, 60, 9, 5, 2, 1, 41, 205 },
    { "transposed with output padding", true, 6, 5, 9, 5, 2, 1, 10, 52 },
    { "transposed with phases without taps", true, 2, 2, 2, 3, 0, 1, 3, 8 },
    { "decoder: conv_pre", false, 256, 128, 7, 1, 3, 1, 41, 41 },
    { "decoder: first upsampling", true, 128, 64, 9, 5, 2, 1, 41, 205 },
    { "decoder: block of 64", false, 64, 64, 11, 1, 25, 5, 3000, 3000 },
    { "decoder: block of 32", false, 32, 32, 7, 1, 9, 3, 5000, 5000 },
    { "decoder: block of 16", false, 16, 16, 3, 1, 5, 5, 9001, 9001 },
    { "decoder: block of 8", false, 8, 8, 7, 1, 3, 1, 20002, 20002 },
    { "decoder: last upsampling", true, 16, 8, 4, 2, 1, 1, 9000, 18000 },
    { "decoder: to samples", false, 8, 1, 7, 1, 3, 1, 20000, 20000 },
    { "encoder: from samples", false, 1, 64, 7, 1, 3, 1, 16000, 16000 },
    { "encoder: halved", false, 64, 128, 4, 2, 1, 1, 8000, 4000 },
    { "encoder: by four", false, 128, 256, 8, 4, 2, 1, 2000, 500 },
    { "encoder: by five", false, 256, 512, 10, 5, 3, 1, 500, 100 },
    { "encoder: pointwise, wide", false, 512, 512, 1, 1, 0, 1, 1035, 1035 },
    { "encoder: dilated by nine", false, 128, 128, 7, 1, 27, 9, 2070, 2070 },
};

// [channels, lines, length] with `gap` numbers behind every row; `apart`: the lines stand one after the other, not the channels.
// 0 lines: a plain [channels, length].
static vx_tensor lines_of(int64_t channels, int64_t lines, int64_t length, int64_t gap, bool apart)
{
    const int64_t row = length + gap;
    vx_tensor t = lines ? vx_tensor_of(NULL, VX_F32, channels, lines, length) : vx_tensor_of(NULL, VX_F32, channels, length);
    if (lines) t.stride[1] = apart ? channels * row + gap : row;
    t.stride[0] = apart || !lines ? row : lines * row + gap;
    return t;
}
static int64_t span_of(vx_tensor t)
{
    return t.shape[0] * t.stride[0] + (t.rank == 3 ? t.shape[1] * t.stride[1] : 0);
}

static void run_line(const line_case *c, int way, int64_t gap, int64_t lines, bool apart)
{
    vx_device_parts(cuda, by_parts);
    vx_arena *arena = new_arena();
    const vx_tensor sx = lines_of(c->ci, lines, c->length, gap, apart), so = lines_of(c->co, lines, c->out_length, gap, !apart);
    both x = make(arena, VX_F32, span_of(sx)), w = make(arena, VX_F32, c->ci * c->co * c->kernel);
    both out = make(arena, VX_F32, span_of(so)), residual = make(arena, VX_F32, out.span);
    both bias = make(arena, VX_F32, c->co);
    vx_tensor sw = vx_tensor_of(NULL, VX_F32, c->transposed ? c->ci : c->co, c->transposed ? c->co : c->ci, c->kernel);
    const vx_tensor sb = vx_tensor_of(NULL, VX_F32, c->co);
    if (way != IN_PLACE) poison(&out);
    for (int far = 0; far < 2; far++) {
        vx_tensor (*view)(const both *, vx_tensor) = far ? far_view : near_view;
        vx_tensor (*file)(const both *, vx_tensor) = way == OF_A_FILE ? near_view : view;
        vx_conv1d_params p = { c->stride, c->padding, c->dilation, { 0 }, { 0 } };
        if (way != PLAIN) p.bias = file(&bias, sb);
        if (way == WITH_RESIDUAL) p.residual = view(&residual, so);
        if (way == IN_PLACE) p.residual = view(&out, so);
        vx_status s = c->transposed ? vx_conv_transpose1d(far ? cuda : cpu, view(&out, so), view(&x, sx), file(&w, sw), &p)
                                    : vx_conv1d(far ? cuda : cpu, view(&out, so), view(&x, sx), file(&w, sw), &p);
        if (s.code != VX_OK) fail_msg("%s: %s", c->says, s.message);
    }
    char what[160];
    snprintf(what, sizeof what,
             "%s: %lld -> %lld channels, %lld taps, stride %lld, padding %lld, dilation %lld, %lld lines of %lld, way %d",
             c->says, (long long)c->ci, (long long)c->co, (long long)c->kernel, (long long)c->stride, (long long)c->padding,
             (long long)c->dilation, (long long)lines, (long long)c->length, way);
    assert_result(&out, what, c->ci * c->kernel);
    both *all[] = { &x, &w, &out, &residual, &bias };
    for (int i = 0; i < 5; i++) drop(all[i]);
    vx_arena_destroy(&arena);
}

static void lines_have_the_cpus_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof line_cases / sizeof *line_cases; i++)
        for (int way = 0; way < WAYS; way++) {
            run_line(&line_cases[i], way, way == OF_A_FILE ? 0 : 3, 0, false);
            run_line(&line_cases[i], way, way == OF_A_FILE ? 0 : 3, way == PLAIN ? 3 : 2, way == IN_PLACE);
        }
}

// Few channels go by fma in any case: by parts there are more.
enum { LEAST = 32 };
static void any_line_has_the_cpus_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        line_case c = { .says = "random", .transposed = i % 2 };
        c.ci = i % 5 ? between(1, 40) : 16 * between(1, 5);
        c.co = between(1, 150);
        c.kernel = between(1, 11);
        c.stride = between(1, 5);
        c.dilation = c.transposed ? 1 : between(1, 5);
        c.padding = between(0, 6);
        c.length = between(1, 400);
        const int64_t reach = c.dilation * (c.kernel - 1) + 1;
        c.out_length = c.transposed ? (c.length - 1) * c.stride - 2 * c.padding + c.kernel + between(0, c.stride - 1)
                       : c.length + 2 * c.padding < reach ? 0
                                                          : (c.length + 2 * c.padding - reach) / c.stride + 1;
        if (by_parts && c.ci < LEAST) c.ci += LEAST;
        if (c.out_length > 0) run_line(&c, (int)between(0, WAYS - 1), between(0, 4), between(0, 3), i % 3 == 0);
    }
}

static void an_empty_input_gives_the_bias(void **state)
{
    (void)state;
    vx_arena *arena = new_arena();
    both x = make(arena, VX_F32, 1), w = make(arena, VX_F32, 18), b = make(arena, VX_F32, 2), y = make(arena, VX_F32, 8);
    float found[8];
    assert_ok(vx_conv1d(cuda, far_view(&y, vx_tensor_of(NULL, VX_F32, 2, 4)), far_view(&x, vx_tensor_of(NULL, VX_F32, 3, 0)),
                        far_view(&w, vx_tensor_of(NULL, VX_F32, 2, 3, 3)),
                        &(vx_conv1d_params){ .padding = 3, .bias = far_view(&b, vx_tensor_of(NULL, VX_F32, 2)) }));
    assert_ok(vx_download(cuda, found, y.far));
    for (int i = 0; i < 8; i++) assert_true(found[i] == ((float *)b.host)[i / 4]);
    both *all[] = { &x, &w, &b, &y };
    for (int i = 0; i < 4; i++) drop(all[i]);
    vx_arena_destroy(&arena);
}

// ---- over pictures ----
enum { AXES = 3 };
typedef struct volume_case {
    const char *says;
    int64_t ci, co, kernel[AXES], x[AXES], stride[AXES], begin[AXES], end[AXES];
    bool reflect;
    vx_dtype weight;
    bool alone;
} volume_case;

// The network's two kinds: as many rows and columns as before, or half of them.
#define SAME         { 1, 1, 1 }, { 2, 1, 1 }, { 0, 1, 1 }, true
#define HALF(frames) { frames, 2, 2 }, { 2, 0, 0 }, { 0, 1, 1 }, true
#define NONE         { 1, 1, 1 }, { 0, 0, 0 }, { 0, 0, 0 }, false

static const volume_case volume_cases[] = {
    { "same size, few channels", 3, 5, { 3, 3, 3 }, { 4, 6, 7 }, SAME, VX_F32, false },
    { "one frame meets one tap", 6, 4, { 3, 3, 3 }, { 1, 5, 5 }, SAME, VX_F32, false },
    { "two frames", 2, 2, { 3, 3, 3 }, { 2, 2, 2 }, SAME, VX_F32, false },
    { "rows of 300", 2, 3, { 3, 3, 3 }, { 1, 2, 300 }, SAME, VX_F32, false },
    { "many channels", 700, 3, { 3, 3, 3 }, { 1, 2, 64 }, SAME, VX_F32, false },
    { "half the size and frames", 6, 8, { 3, 3, 3 }, { 5, 8, 66 }, HALF(2), VX_F32, false },
    { "half of one frame", 6, 8, { 3, 3, 3 }, { 1, 4, 4 }, HALF(2), VX_F32, false },
    { "pointwise", 33, 40, { 1, 1, 1 }, { 2, 5, 13 }, NONE, VX_F32, false },
    { "zeros around", 4, 6, { 3, 3, 3 }, { 3, 5, 6 }, { 1, 1, 1 }, { 2, 1, 1 }, { 0, 1, 1 }, false, VX_F32, false },
    { "nothing around", 4, 6, { 2, 3, 1 }, { 3, 5, 6 }, { 1, 2, 3 }, { 0, 0, 0 }, { 0, 0, 0 }, false, VX_F32, false },
    { "a single row between zeros", 3, 4, { 1, 3, 3 }, { 2, 1, 1 }, { 1, 1, 1 }, { 0, 1, 1 }, { 0, 1, 1 }, false, VX_F32, false },
    { "a bf16 weight", 20, 17, { 3, 3, 3 }, { 2, 6, 7 }, SAME, VX_BF16, false },
    { "an f16 weight", 32, 17, { 3, 3, 3 }, { 2, 6, 7 }, SAME, VX_F16, false },
    { "encoder: from colours", 3, 128, { 3, 3, 3 }, { 2, 32, 32 }, SAME, VX_F32, false },
    { "encoder: 128 channels", 128, 128, { 3, 3, 3 }, { 1, 48, 64 }, SAME, VX_F32, false },
    { "encoder: 128 channels of f16, frames", 128, 128, { 3, 3, 3 }, { 3, 24, 24 }, SAME, VX_F16, false },
    { "encoder: 128 channels, half the size", 128, 128, { 3, 3, 3 }, { 3, 32, 32 }, HALF(1), VX_F32, false },
    { "encoder: 256 channels, half the frames", 256, 256, { 3, 3, 3 }, { 5, 16, 16 }, HALF(2), VX_BF16, false },
    { "encoder: pictures, 128 channels", 128, 128, { 3, 3, 3 }, { 5, 16, 16 }, SAME, VX_F32, true },
    { "encoder: pictures, half the size", 64, 70, { 3, 3, 3 }, { 4, 16, 18 }, HALF(1), VX_BF16, true },
    { "encoder: shortcut", 128, 256, { 1, 1, 1 }, { 2, 16, 16 }, NONE, VX_F32, false },
    { "encoder: 512 channels", 512, 512, { 3, 3, 3 }, { 1, 16, 16 }, SAME, VX_F32, false },
    { "encoder: to moments", 256, 48, { 3, 3, 3 }, { 2, 16, 16 }, SAME, VX_F32, false },
    { "encoder: moments", 48, 48, { 1, 1, 1 }, { 2, 16, 16 }, NONE, VX_F32, false },
};

// [channels, frames, rows, columns] with `gap` numbers behind rows, frames and channels.
static vx_tensor loose(int64_t channels, const int64_t extents[AXES], int64_t gap)
{
    vx_tensor t = vx_tensor_of(NULL, VX_F32, channels, extents[0], extents[1], extents[2]);
    t.stride[2] = t.shape[3] + gap;
    t.stride[1] = t.shape[2] * t.stride[2] + gap;
    t.stride[0] = t.shape[1] * t.stride[1] + gap;
    return t;
}

static void run_volume(const volume_case *c, int way, int64_t gap)
{
    vx_device_parts(cuda, by_parts);
    int64_t extents[AXES];
    for (int i = 0; i < AXES; i++) extents[i] = (c->x[i] + c->begin[i] + c->end[i] - c->kernel[i]) / c->stride[i] + 1;
    const vx_tensor sx = loose(c->ci, c->x, gap), so = loose(c->co, extents, gap);
    const vx_tensor sw = vx_tensor_of(NULL, VX_F32, c->co, c->ci, c->kernel[0], c->kernel[1], c->kernel[2]);
    const vx_tensor sb = vx_tensor_of(NULL, VX_F32, c->co);
    vx_arena *arena = new_arena();
    both x = make(arena, VX_F32, c->ci * sx.stride[0]), w = make(arena, c->weight, vx_tensor_count(sw));
    both out = make(arena, VX_F32, c->co * so.stride[0]), residual = make(arena, VX_F32, out.span);
    both bias = make(arena, c->weight, c->co);
    if (way != IN_PLACE) poison(&out);
    for (int far = 0; far < 2; far++) {
        vx_tensor (*view)(const both *, vx_tensor) = far ? far_view : near_view;
        vx_tensor (*file)(const both *, vx_tensor) = way == OF_A_FILE ? near_view : view;
        vx_conv3d_params p = { .reflect = c->reflect, .alone = c->alone };
        for (int i = 0; i < AXES; i++) {
            p.stride[i] = c->stride[i];
            p.pad_begin[i] = c->begin[i];
            p.pad_end[i] = c->end[i];
        }
        if (way != PLAIN) p.bias = file(&bias, sb);
        if (way == WITH_RESIDUAL) p.residual = view(&residual, so);
        if (way == IN_PLACE) p.residual = view(&out, so);
        vx_status s = vx_conv3d(far ? cuda : cpu, view(&out, so), view(&x, sx), file(&w, sw), &p);
        if (s.code != VX_OK) fail_msg("%s: %s", c->says, s.message);
    }
    char what[128];
    snprintf(what, sizeof what, "%s: %lld -> %lld channels, %lldx%lldx%lld, way %d", c->says, (long long)c->ci, (long long)c->co,
             (long long)c->x[0], (long long)c->x[1], (long long)c->x[2], way);
    assert_result(&out, what, vx_tensor_count(sw) / c->co);
    both *all[] = { &x, &w, &out, &residual, &bias };
    for (int i = 0; i < 5; i++) drop(all[i]);
    vx_arena_destroy(&arena);
}

static void volumes_have_the_cpus_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof volume_cases / sizeof *volume_cases; i++)
        for (int way = 0; way < WAYS; way++) run_volume(&volume_cases[i], way, way == OF_A_FILE ? 0 : 3);
}

static void any_volume_has_the_cpus_bits(void **state)
{
    (void)state;
    static const vx_dtype dtypes[] = { VX_F32, VX_BF16, VX_F16 };
    for (int n = 0; n < 150; n++) {
        volume_case c = { .says = "random", .ci = n % 3 ? between(1, 40) : 16 * between(1, 4), .co = between(1, 140) };
        c.weight = dtypes[n % 3];
        c.reflect = n % 2;
        bool fits = true;
        for (int i = 0; i < AXES; i++) {
            c.kernel[i] = between(1, 3);
            c.x[i] = between(i ? 2 : 1, i ? 30 : 5);
            c.stride[i] = between(1, 2);
            c.begin[i] = i ? between(0, 1) : between(0, c.kernel[0] - 1);
            c.end[i] = i ? between(0, 1) : 0;
            fits = fits && c.x[i] + c.begin[i] + c.end[i] >= c.kernel[i];
        }
        if (by_parts && c.ci < LEAST) c.ci += LEAST;
        if (fits) run_volume(&c, (int)between(0, WAYS - 1), between(0, 4));
    }
}

// out.near has what every tile must give.
static void run_every_tile(const vx_k_conv *c, both *out)
{
    float *empty = vx_alloc((size_t)out->span * 4);
    assert_non_null(empty);
    for (int64_t i = 0; i < out->span; i++) empty[i] = NAN;
    for (int tile = 0; tile < VX_K_CONV_TILES; tile++) {
        char what[64];
        snprintf(what, sizeof what, "tile %d, %d channels", tile, c->ci);
        assert_ok(vx_upload(cuda, out->far, empty));
        assert_int_equal(vx_k_conv_run(c, (vx_k_conv_tile)tile, vx_cuda_of(cuda)->stream), cudaSuccess);
        assert_same(out, what);
    }
    vx_free(empty);
}

// What the device would pick for a small test is not what it picks for a network: every tile, on one shape that is a multiple of
// nothing, with ragged channels and with whole steps of them.
static void every_tile_has_the_same_bits(void **state)
{
    (void)state;
    static const int channels[] = { 16, 48, 21 };
    for (int n = 0; n < 3; n++) {
        const int ci = channels[n], co = 137, rows = 19, columns = 29, plane = rows * columns;
        vx_arena *arena = new_arena();
        both x = make(arena, VX_F32, ci * plane), w = make(arena, VX_F32, (int64_t)co * ci * 9), bias = make(arena, VX_F32, co);
        both out = make(arena, VX_F32, co * plane);
        const int64_t extents[AXES] = { 1, rows, columns };
        vx_conv3d_params p = { .pad_begin = { 0, 1, 1 }, .pad_end = { 0, 1, 1 }, .reflect = true };
        p.bias = near_view(&bias, vx_tensor_of(NULL, VX_F32, co));
        assert_ok(vx_conv3d(cpu, near_view(&out, loose(co, extents, 0)), near_view(&x, loose(ci, extents, 0)),
                            near_view(&w, vx_tensor_of(NULL, VX_F32, co, ci, 1, 3, 3)), &p));
        vx_k_conv c = { .x = x.far.data, .x_channel = plane, .x_frame = plane, .x_row = columns, .ci = ci, .frames = 1 };
        c.rows = c.out_rows = rows;
        c.columns = c.out_columns = columns;
        c.out = out.far.data;
        c.out_channel = c.out_frame = plane;
        c.out_row = columns;
        c.co = co;
        c.out_frames = 1;
        c.w = w.far.data;
        c.bias = bias.far.data;
        c.bias_stride = c.dilation = 1;
        c.reflect = true;
        for (int i = 0; i < AXES; i++) c.taps[i] = i ? 3 : 1, c.stride[i] = 1, c.pad[i] = i ? 1 : 0;
        c.packed = vx_arena_tensor(arena, VX_F32, (int64_t)vx_k_conv_packed(&c)).data;
        run_every_tile(&c, &out);
        both *all[] = { &x, &w, &bias, &out };
        for (int i = 0; i < 4; i++) drop(all[i]);
        vx_arena_destroy(&arena);
    }
}

// The same of lines, transposed: planes are phases and lines.
static void every_tile_takes_lines(void **state)
{
    (void)state;
    static const int channels[] = { 32, 21 };
    enum { LINES = 3, PHASES = 5, TAPS = 9, CO = 137, LENGTH = 110, OUT = LENGTH * PHASES };
    for (int n = 0; n < 2; n++) {
        const int ci = channels[n];
        vx_arena *arena = new_arena();
        const vx_tensor sx = lines_of(ci, LINES, LENGTH, 1, true), so = lines_of(CO, LINES, OUT, 3, false);
        both x = make(arena, VX_F32, span_of(sx)), w = make(arena, VX_F32, (int64_t)CO * ci * TAPS);
        both out = make(arena, VX_F32, span_of(so));
        poison(&out);
        assert_ok(vx_conv_transpose1d(cpu, near_view(&out, so), near_view(&x, sx),
                                      near_view(&w, vx_tensor_of(NULL, VX_F32, ci, CO, TAPS)),
                                      &(vx_conv1d_params){ .stride = PHASES, .padding = (TAPS - PHASES) / 2 }));
        vx_k_conv c = { .x = x.far.data, .x_channel = sx.stride[0], .x_frame = sx.stride[1], .ci = ci, .frames = LINES };
        c.rows = c.out_rows = 1;
        c.columns = LENGTH;
        c.out = out.far.data;
        c.out_channel = so.stride[0];
        c.out_frame = so.stride[1];
        c.co = CO;
        c.out_frames = LINES;
        c.out_columns = OUT;
        c.w = w.far.data;
        for (int i = 0; i < AXES; i++) c.taps[i] = c.stride[i] = 1;
        c.taps[2] = TAPS;
        c.phases = c.stride[2] = PHASES;
        c.pad[2] = (TAPS - PHASES) / 2;
        c.dilation = 1;
        c.packed = vx_arena_tensor(arena, VX_F32, (int64_t)vx_k_conv_packed(&c)).data;
        run_every_tile(&c, &out);
        both *all[] = { &x, &w, &out };
        for (int i = 0; i < 3; i++) drop(all[i]);
        vx_arena_destroy(&arena);
    }
}

// The same lists, random ones too, told that products may go by parts.
static void by_parts_all_are_near(void **state)
{
    by_parts = true;
    lines_have_the_cpus_bits(state);
    any_line_has_the_cpus_bits(state);
    volumes_have_the_cpus_bits(state);
    any_volume_has_the_cpus_bits(state);
    by_parts = false;
    vx_device_parts(cuda, false);
}

// ---- the alias-free activation ----
// Audio VAE specification, A3: the filter's bits, symmetric.
static const uint32_t half_filter[6] = { 0x3b04f861, 0x3c19d646, 0xbcd14084, 0xbd6c2a26, 0x3e03a888, 0x3ee2ec65 };

enum { CHANNELS = 5, GAP = 2 };
static void run_activation(int64_t length, int64_t lines, bool apart)
{
    // Angles far beyond what the polynomial's reduction takes, and just above.
    static const float alphas[CHANNELS] = { 0.3f, 12.0f, -0.5f, 20.0f, 60.0f };
    const vx_tensor from = lines_of(CHANNELS, lines, length, GAP, apart), to = lines_of(CHANNELS, lines, length, GAP, !apart);
    vx_arena *arena = new_arena();
    both x = make(arena, VX_F32, span_of(from)), y = make(arena, VX_F32, span_of(to));
    both alpha = make(arena, VX_F32, CHANNELS), beta = make(arena, VX_F32, CHANNELS), up = make(arena, VX_F32, 12);
    both down = make(arena, VX_F32, 12);
    float *numbers = x.host;
    for (int64_t i = 0; i < x.span; i += 3) numbers[i] *= 4;
    if (length > 20) numbers[length + GAP + 11] = INFINITY;
    for (int i = 0; i < CHANNELS; i++) ((float *)alpha.host)[i] = alphas[i];
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 2; k++) {
            memcpy((float *)up.host + (k ? 11 - i : i), &half_filter[i], 4);
            memcpy((float *)down.host + (k ? 11 - i : i), &half_filter[i], 4);
        }
    ((float *)up.host)[3] = 0.01f; // not symmetric: an order of taps reversed by mistake shows
    ((float *)down.host)[4] = -0.2f;
    assert_ok(vx_upload(cuda, x.far, x.host));
    assert_ok(vx_upload(cuda, alpha.far, alpha.host));
    assert_ok(vx_upload(cuda, up.far, up.host));
    assert_ok(vx_upload(cuda, down.far, down.host));
    poison(&y);
    const vx_tensor rows = vx_tensor_of(NULL, VX_F32, CHANNELS), taps = vx_tensor_of(NULL, VX_F32, 12);
    assert_ok(vx_snake_alias_free(cpu, near_view(&y, to), near_view(&x, from), near_view(&alpha, rows), near_view(&beta, rows),
                                  near_view(&up, taps), near_view(&down, taps)));
    assert_ok(vx_snake_alias_free(cuda, far_view(&y, to), far_view(&x, from), far_view(&alpha, rows), far_view(&beta, rows),
                                  near_view(&up, taps), near_view(&down, taps)));
    char what[64];
    snprintf(what, sizeof what, "%lld lines of %lld", (long long)lines, (long long)length);
    assert_same(&y, what);
    both *all[] = { &x, &y, &alpha, &beta, &up, &down };
    for (int i = 0; i < 6; i++) drop(all[i]);
    vx_arena_destroy(&arena);
}

static void activations_have_the_cpus_bits(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 1, 2, 3, 5, 17, 511, 512, 513, 516, 1023, 1025, 2100, 20000 };
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (int64_t lines = 0; lines < 4; lines++) run_activation(lengths[n], lines, lines == 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_have_the_cpus_bits),       cmocka_unit_test(any_line_has_the_cpus_bits),
        cmocka_unit_test(an_empty_input_gives_the_bias),  cmocka_unit_test(volumes_have_the_cpus_bits),
        cmocka_unit_test(any_volume_has_the_cpus_bits),   cmocka_unit_test(every_tile_has_the_same_bits),
        cmocka_unit_test(every_tile_takes_lines),         cmocka_unit_test(by_parts_all_are_near),
        cmocka_unit_test(activations_have_the_cpus_bits),
    };
    RUN_ON_BOTH(tests);
}
