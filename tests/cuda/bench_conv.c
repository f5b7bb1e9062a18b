// Convolutions and the alias-free activation at the released VAEs' sizes: every layer with every tile, in TFLOP/s with the packing
// of weights, and what a network's convolutions take with the tiles that the device picks. Graph replays, medians, random data.
// `parts`: the same for products by parts, beside the time by fma; errors of both against sums in f64, in relative L2.
//   bench_conv [parts] [image|clip|decode|encode]...
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "device/cuda/conv.h"
#include "device/cuda/kernels/snake.h"

enum { REPEATS = 7, MOST_FLOATS = 160 << 20, MOST_WEIGHTS = 48 << 20 };

static void need(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

// `size`: rows and columns, or with rows == 1 the length.
typedef struct layer {
    const char *name;
    int count, ci, co, frames, rows, columns, kt, k, stride, dilation, transposed, alone;
} layer;

// Half of the 28 tiles of 1344x768: the encoder takes them together, as frames that are pictures of their own.
enum { TILES = 14 };
#define PICTURE(name, count, ci, co, n, k, stride)              \
    {                                                           \
        name, count, ci, co, TILES, n, n, k, k, stride, 1, 0, 1 \
    }
static const layer image[] = {
    PICTURE("conv_in", 1, 3, 128, 256, 3, 1),
    PICTURE("level 0", 4, 128, 128, 256, 3, 1),
    PICTURE("down 0", 1, 128, 128, 256, 3, 2),
    PICTURE("level 1 widen", 1, 128, 256, 128, 3, 1),
    PICTURE("level 1 1x1", 1, 128, 256, 128, 1, 1),
    PICTURE("level 1", 3, 256, 256, 128, 3, 1),
    PICTURE("down 1", 1, 256, 256, 128, 3, 2),
    PICTURE("level 2", 4, 256, 256, 64, 3, 1),
    PICTURE("down 2", 1, 256, 256, 64, 3, 2),
    PICTURE("level 3 widen", 1, 256, 512, 32, 3, 1),
    PICTURE("level 3 1x1", 1, 256, 512, 32, 1, 1),
    PICTURE("level 3", 3, 512, 512, 32, 3, 1),
    PICTURE("down 3", 1, 512, 512, 32, 3, 2),
    PICTURE("level 4", 4, 512, 512, 16, 3, 1),
    PICTURE("level 5 widen", 1, 512, 1024, 16, 3, 1),
    PICTURE("level 5 1x1", 1, 512, 1024, 16, 1, 1),
    PICTURE("level 5", 3, 1024, 1024, 16, 3, 1),
    PICTURE("conv_out", 1, 1024, 48, 16, 3, 1),
    PICTURE("quant", 1, 48, 48, 16, 1, 1),
};
static const layer clip[] = {
    { "level 0, 5 frames", 4, 128, 128, 5, 256, 256, 3, 3, 1, 1, 0, 0 },
    { "level 1, 3 frames", 3, 256, 256, 3, 128, 128, 3, 3, 1, 1, 0, 0 },
    { "level 2, 5 frames", 4, 256, 256, 5, 64, 64, 3, 3, 1, 1, 0, 0 },
    { "level 4, 5 frames", 4, 512, 512, 5, 16, 16, 3, 3, 1, 1, 0, 0 },
};
// Sound: both channels of a clip, as lines.
enum { LINES = 2 };
#define LINE(name, count, ci, co, n, k, stride)                 \
    {                                                           \
        name, count, ci, co, LINES, 1, n, 1, k, stride, 1, 0, 0 \
    }
#define TWICE(name, ci, co, n, k, stride)                   \
    {                                                       \
        name, 1, ci, co, LINES, 1, n, 1, k, stride, 1, 1, 0 \
    }
#define DILATED(name, count, c, n, k)                    \
    {                                                    \
        name, count, c, c, LINES, 1, n, 1, k, 1, 3, 0, 0 \
    }
#define STAGE(i, c, n) \
    DILATED("stage " i " k3", 6, c, n, 3), DILATED("stage " i " k7", 6, c, n, 7), DILATED("stage " i " k11", 6, c, n, 11)
static const layer decode[] = {
    LINE("in_proj", 1, 32, 2048, 207, 1, 1),  LINE("conv_pre", 1, 2048, 1024, 207, 7, 1),
    TWICE("ups 0", 1024, 512, 207, 9, 5),     STAGE("0", 512, 1035),
    TWICE("ups 1", 512, 256, 1035, 9, 5),     STAGE("1", 256, 5175),
    TWICE("ups 2", 256, 128, 5175, 4, 2),     STAGE("2", 128, 10350),
    TWICE("ups 3", 128, 64, 10350, 4, 2),     STAGE("3", 64, 20700),
    TWICE("ups 4", 64, 32, 20700, 4, 2),      STAGE("4", 32, 41400),
    TWICE("ups 5", 32, 16, 41400, 4, 2),      STAGE("5", 16, 82800),
    TWICE("ups 6", 16, 8, 82800, 4, 2),       STAGE("6", 8, 165600),
    LINE("conv_post", 1, 8, 1, 165600, 7, 1),
};
#define UNITS(i, c, n) DILATED("stage " i " k7", 3, c, n, 7), LINE("stage " i " k1", 3, c, c, n, 1, 1)
static const layer encode[] = {
    LINE("first", 1, 1, 64, 165600, 7, 1),      UNITS("1", 64, 165600),
    LINE("down 1", 1, 64, 128, 165600, 4, 2),   UNITS("2", 128, 82800),
    LINE("down 2", 1, 128, 256, 82800, 8, 4),   UNITS("3", 256, 20700),
    LINE("down 3", 1, 256, 512, 20700, 8, 4),   UNITS("4", 512, 5175),
    LINE("down 4", 1, 512, 1024, 5175, 10, 5),  UNITS("5", 1024, 1035),
    LINE("down 5", 1, 1024, 2048, 1035, 10, 5), LINE("last", 1, 2048, 2048, 207, 3, 1),
};

typedef struct bench {
    float *x, *w, *out, *packed, *bias;
    size_t packed_floats, parts_bytes;
    void *parts;
    cudaStream_t stream;
    int multiprocessors;
    vx_cuda card;
} bench;

static void fill(float *to, size_t count, unsigned seed, float scale)
{
    enum { PART = 1 << 20 };
    float *host = malloc(PART * sizeof *host);
    uint64_t s = seed;
    for (size_t at = 0; at < count; at += PART) {
        const size_t n = count - at < PART ? count - at : PART;
        if (at < 4 * (size_t)PART)
            for (size_t i = 0; i < PART; i++) {
                s = s * 6364136223846793005u + 1442695040888963407u;
                host[i] = (float)(int32_t)(s >> 32) * 0x1p-31f * scale;
            }
        need(cudaMemcpy(to + at, host, n * sizeof *host, cudaMemcpyHostToDevice), "copy");
    }
    free(host);
}

static vx_k_conv conv_of(const bench *b, const layer *l)
{
    const int half = l->stride == 2 && l->rows > 1, pad = half ? 0 : l->k / 2;
    vx_k_conv c = {
        .x = b->x, .ci = l->ci, .frames = l->frames, .rows = l->rows, .columns = l->columns, .out = b->out, .co = l->co
    };
    c.x_row = l->columns;
    c.x_frame = (int64_t)l->rows * l->columns;
    c.x_channel = c.x_frame * l->frames;
    c.out_frames = l->frames;
    c.out_rows = l->rows > 1 ? l->rows / l->stride : 1;
    c.out_columns = l->transposed ? l->columns * l->stride : l->columns / l->stride;
    c.out_row = c.out_columns;
    c.out_frame = (int64_t)c.out_rows * c.out_columns;
    c.out_channel = c.out_frame * l->frames;
    c.w = b->w;
    c.bias = b->bias;
    c.bias_stride = 1;
    c.dilation = l->dilation;
    c.taps[0] = l->kt, c.taps[1] = l->rows > 1 ? l->k : 1, c.taps[2] = l->k;
    c.stride[0] = 1, c.stride[1] = l->rows > 1 ? l->stride : 1, c.stride[2] = l->stride;
    c.pad[0] = l->kt - 1, c.pad[1] = l->rows > 1 ? pad : 0;
    c.pad[2] = l->rows > 1     ? pad
               : l->stride > 1 ? l->transposed ? (l->k - l->stride) / 2 : (l->stride + 1) / 2
                               : pad * l->dilation;
    c.first_tap = l->alone ? l->kt - 1 : l->frames < l->kt ? l->kt - l->frames : 0;
    c.reflect = l->rows > 1;
    c.phases = l->transposed ? l->stride : 0;
    if (l->rows == 1 && !l->transposed) { // as vx_conv1d has lines
        c.rows = c.out_rows = l->frames;
        c.frames = c.out_frames = 1;
        c.x_row = c.x_frame;
    }
    c.packed = b->packed;
    return c;
}

static double flop_of(const layer *l, const vx_k_conv *c)
{
    double taps = 0;
    for (int f = 0; f < l->frames; f++) taps += (l->alone ? 1.0 : l->kt - 1 - f > 0 ? 1.0 + f : l->kt) * c->taps[1] * l->k;
    const double positions = l->transposed ? (double)l->columns : (double)(l->rows > 1 ? c->out_rows : 1) * c->out_columns;
    return 2 * taps * positions * l->ci * l->co;
}

static int compare(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// Microseconds of one `run`, of `times` in a graph.
static double time_of(const bench *b, cudaError_t (*run)(const void *what, int how, cudaStream_t), const void *what, int how,
                      int times)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    float ms[REPEATS];
    need(cudaEventCreate(&begin), "event");
    need(cudaEventCreate(&end), "event");
    need(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < times; i++) need(run(what, how, b->stream), "launch");
    need(cudaStreamEndCapture(b->stream, &graph), "capture");
    need(cudaGraphInstantiate(&exec, graph, 0), "graph");
    need(cudaGraphLaunch(exec, b->stream), "warm-up");
    for (int i = 0; i < REPEATS; i++) {
        need(cudaEventRecord(begin, b->stream), "record");
        need(cudaGraphLaunch(exec, b->stream), "replay");
        need(cudaEventRecord(end, b->stream), "record");
        need(cudaEventSynchronize(end), "synchronize");
        need(cudaEventElapsedTime(&ms[i], begin, end), "elapsed");
    }
    need(cudaGraphExecDestroy(exec), "graph");
    need(cudaGraphDestroy(graph), "graph");
    need(cudaEventDestroy(begin), "event");
    need(cudaEventDestroy(end), "event");
    qsort(ms, REPEATS, sizeof *ms, compare);
    return ms[REPEATS / 2] * 1e3 / times;
}

static cudaError_t run_conv(const void *what, int how, cudaStream_t stream)
{
    return vx_k_conv_run(what, (vx_k_conv_tile)how, stream);
}
static cudaError_t run_snake(const void *what, int how, cudaStream_t stream)
{
    (void)how;
    return vx_k_snake_alias_free(what, stream);
}

static cudaError_t run_parts(const void *what, int how, cudaStream_t stream)
{
    return vx_k_parts_run(what, (vx_k_parts_tile)(how / 2), how % 2, stream);
}

static const char *const tile_names[VX_K_CONV_TILES] = { "128x128", "128x64", "64x128", "64x64", "64x32",
                                                         "32x32",   "32x128", "16x256", "8x512" };

static void run_network(const bench *b, const char *name, const layer *layers, int count)
{
    double picked = 0, best_sum = 0, flop = 0;
    printf("%-18s %5s %8s", name, "count", "GFLOP");
    for (int t = 0; t < VX_K_CONV_TILES; t++) printf(" %7s", tile_names[t]);
    printf("  pick: us, share of the fastest\n");
    for (int i = 0; i < count; i++) {
        const layer *l = &layers[i];
        vx_k_conv c = conv_of(b, l);
        const double work = flop_of(l, &c);
        double us[VX_K_CONV_TILES], best = 1e30;
        if (vx_k_conv_packed(&c) > b->packed_floats) {
            printf("%s: scratch is too small\n", l->name);
            exit(1);
        }
        printf("%-18s %5d %8.2f", l->name, l->count, work * 1e-9);
        const int pick = vx_cuda_conv_pick(&c, b->multiprocessors);
        for (int t = 0; t < VX_K_CONV_TILES; t++) {
            us[t] = 1e30;
            // Tiles that are mostly beyond the output's channels are no candidates.
            if (t != pick && (vx_k_conv_tile_channels((vx_k_conv_tile)t) > 2 * l->co ||
                              vx_k_conv_tile_channels((vx_k_conv_tile)t) * 8 < l->co)) {
                printf(" %7s", "");
                continue;
            }
            us[t] = time_of(b, run_conv, &c, t, 3);
            best = us[t] < best ? us[t] : best;
            printf(" %7.2f", work / us[t] * 1e-6);
        }
        printf("  %-7s %7.1f %5.2f\n", tile_names[pick], us[pick], best / us[pick]);
        picked += us[pick] * l->count;
        best_sum += best * l->count;
        flop += work * l->count;
    }
    printf("%-18s %.1f GFLOP: %.3f ms as picked (%.1f TFLOP/s), %.3f ms with the fastest\n\n", name, flop * 1e-9, picked * 1e-3,
           flop / picked * 1e-6, best_sum * 1e-3);
}

// ---- by parts ----
enum { WAYS = 2 * VX_K_PARTS_TILES }; // tile, and a block for each segment
static const char *const way_names[WAYS] = { "128x128", "each", "128x64",   "each", "64x128",  "each", "64x64",  "each",
                                             "32x128",  "each", "g128x128", "each", "g128x64", "each", "g64x64", "each" };

// Some outputs by sums in f64, and how far others are from them in relative L2.
enum { SAMPLES = 400 };
typedef struct truth {
    int64_t at[SAMPLES];
    double sum[SAMPLES];
} truth;

static void find_truth(const bench *b, const vx_k_conv *c, truth *t)
{
    static float *x, *w;
    const size_t inputs = (size_t)c->ci * (size_t)c->x_channel, taps = (size_t)c->taps[0] * c->taps[1] * c->taps[2];
    if (!x) x = malloc((size_t)MOST_FLOATS * sizeof *x), w = malloc((size_t)MOST_WEIGHTS * sizeof *w);
    need(cudaMemcpy(x, b->x, inputs * sizeof *x, cudaMemcpyDeviceToHost), "copy");
    need(cudaMemcpy(w, b->w, (size_t)c->ci * c->co * taps * sizeof *w, cudaMemcpyDeviceToHost), "copy");
    uint64_t seed = 5;
    for (int i = 0; i < SAMPLES; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const int64_t at = (int64_t)((seed >> 16) % (uint64_t)(c->out_channel * c->co)), n = at % c->out_channel;
        const int o = (int)(at / c->out_channel), f = (int)(n / c->out_frame), row = (int)(n % c->out_frame / c->out_row);
        const int column = (int)(n % c->out_row);
        double sum = 0;
        for (size_t k = 0; k < taps; k++) {
            const int kt = (int)(k / ((size_t)c->taps[1] * c->taps[2])), ky = (int)(k / c->taps[2]) % c->taps[1];
            const int kx = (int)(k % c->taps[2]), frame = f * c->stride[0] + kt - c->pad[0];
            int y = row * c->stride[1] + ky - c->pad[1], z = column * c->stride[2] + kx * c->dilation - c->pad[2];
            if (kt < c->first_tap || frame < 0) continue;
            if (c->phases) {
                if ((column + c->pad[2] - kx) % c->phases || column + c->pad[2] < kx) continue;
                z = (column + c->pad[2] - kx) / c->phases;
            }
            if (c->reflect && y < 0) y = -y;
            if (c->reflect && z < 0) z = -z;
            if (c->reflect && y >= c->rows) y = 2 * (c->rows - 1) - y;
            if (c->reflect && z >= c->columns) z = 2 * (c->columns - 1) - z;
            if (y < 0 || y >= c->rows || z < 0 || z >= c->columns) continue;
            for (int i2 = 0; i2 < c->ci; i2++) {
                const size_t weight = c->phases ? ((size_t)i2 * c->co + o) * taps + k : ((size_t)o * c->ci + i2) * taps + k;
                sum += (double)w[weight] * x[i2 * c->x_channel + frame * c->x_frame + y * c->x_row + z];
            }
        }
        float bias;
        need(cudaMemcpy(&bias, b->bias + o, sizeof bias, cudaMemcpyDeviceToHost), "copy");
        t->at[i] = at;
        t->sum[i] = sum + bias;
    }
}

static double error_of(const vx_k_conv *c, const truth *t)
{
    double difference = 0, norm = 0;
    for (int i = 0; i < SAMPLES; i++) {
        float found;
        need(cudaMemcpy(&found, c->out + t->at[i], sizeof found, cudaMemcpyDeviceToHost), "copy");
        difference += (found - t->sum[i]) * (found - t->sum[i]);
        norm += t->sum[i] * t->sum[i];
    }
    return sqrt(difference / norm);
}

static void run_by_parts(const bench *b, const char *name, const layer *layers, int count)
{
    double sum = 0, best_sum = 0, flop = 0, worst[2] = { 0, 0 };
    static truth exact;
    printf("%-18s", name);
    for (int i = 0; i < WAYS; i++) printf(" %7s", way_names[i]);
    printf("  fma, us; as chosen: us, share of the fastest; error of fma, of parts\n");
    for (int i = 0; i < count; i++) {
        const layer *l = &layers[i];
        vx_k_conv c = conv_of(b, l);
        vx_cuda_parts how;
        const double work = flop_of(l, &c);
        const int pick = vx_cuda_conv_pick(&c, b->multiprocessors), segments = vx_k_parts_segments(&c);
        const bool takes = vx_cuda_conv_parts(&b->card, &c, &how);
        const double fma = time_of(b, run_conv, &c, pick, 3);
        double chosen = fma, best = fma, error[2] = { 0, 0 };
        printf("%-18s", l->name);
        if (c.ci >= 16) {
            find_truth(b, &c, &exact);
            error[0] = error_of(&c, &exact);
            for (int k = 0; k < WAYS; k++) {
                const bool each = k % 2;
                const vx_k_parts_tile tile = (vx_k_parts_tile)(k / 2);
                if ((each && (segments < 2 || vx_k_parts_scratch(&c, true) > b->parts_bytes)) ||
                    vx_k_parts_channels(tile) > 2 * (l->co < 16 ? 16 : l->co) || vx_k_parts_channels(tile) * 16 < l->co) {
                    printf(" %7s", "");
                    continue;
                }
                c.packed = b->parts;
                if (vx_k_parts_scratch(&c, each) > b->parts_bytes) printf("(scratch)"), exit(1);
                const double us = time_of(b, run_parts, &c, k, 3);
                if (us < best) best = us;
                if (takes && how.tile == tile && how.each == each) {
                    chosen = us;
                    error[1] = error_of(&c, &exact);
                }
                printf(" %7.2f", work / us * 1e-6);
                fflush(stdout);
            }
        } else {
            printf("%*s", 8 * WAYS, "");
        }
        printf("  %7.1f %-7s%s %7.1f %5.2f %8.1e %8.1e\n", fma, takes ? way_names[2 * how.tile] : "fma",
               takes && how.each ? "e" : " ", chosen, best / chosen, error[0], error[1]);
        for (int k = 0; k < 2; k++) worst[k] = error[k] > worst[k] ? error[k] : worst[k];
        sum += chosen * l->count;
        best_sum += best * l->count;
        flop += work * l->count;
    }
    printf("%-18s %.1f GFLOP: %.3f ms as chosen (%.1f TFLOP/s), %.3f ms with the fastest; errors at most %.1e by fma, %.1e by "
           "parts\n\n",
           name, flop * 1e-9, sum * 1e-3, flop / sum * 1e-6, best_sum * 1e-3, worst[0], worst[1]);
}

static void run_snakes(const bench *b)
{
    static const int channels[] = { 512, 256, 128, 64, 32, 16, 8 };
    double sum = 0;
    printf("alias-free activation, us:");
    for (int i = 0, length = 1035; i < 7; length *= i == 0 ? 5 : 2, i++) {
        const vx_k_snake s = { .out = b->out,
                               .x = b->x,
                               .out_stride = LINES * length,
                               .x_stride = LINES * length,
                               .out_line = length,
                               .x_line = length,
                               .channels = channels[i],
                               .lines = LINES,
                               .length = length,
                               .alpha = b->w,
                               .beta = b->w + 4096,
                               .up = b->bias,
                               .down = b->bias,
                               .alpha_stride = 1,
                               .beta_stride = 1,
                               .up_stride = 1,
                               .down_stride = 1 };
        const double us = time_of(b, run_snake, &s, 0, 3);
        printf(" %dx%d %.1f", channels[i], length, us);
        sum += 18 * us;
    }
    printf("; 18 each %.3f ms\n", sum * 1e-3);
}

int main(int argc, char **argv)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("no CUDA device: skipped\n");
        return 77;
    }
    bench b = { .packed_floats = (size_t)MOST_WEIGHTS, .parts_bytes = (size_t)1 << 30 };
    struct cudaDeviceProp properties;
    need(cudaGetDeviceProperties(&properties, 0), "device");
    b.multiprocessors = properties.multiProcessorCount;
    b.card = (vx_cuda){ .multiprocessors = b.multiprocessors, .shared = (int)properties.sharedMemPerBlockOptin };
    b.card.groups = properties.major == 9 && vx_k_parts_groups();
    need(cudaStreamCreate(&b.stream), "stream");
    need(cudaMalloc((void **)&b.x, MOST_FLOATS * sizeof(float)), "memory");
    need(cudaMalloc((void **)&b.out, MOST_FLOATS * sizeof(float)), "memory");
    need(cudaMalloc((void **)&b.w, MOST_WEIGHTS * sizeof(float)), "memory");
    need(cudaMalloc((void **)&b.packed, b.packed_floats * sizeof(float)), "memory");
    need(cudaMalloc(&b.parts, b.parts_bytes), "memory");
    need(cudaMalloc((void **)&b.bias, 4096 * sizeof(float)), "memory");
    fill(b.x, MOST_FLOATS, 1, 1.0f);
    fill(b.w, MOST_WEIGHTS, 2, 0.1f);
    fill(b.bias, 4096, 3, 1.0f);
    printf("%s, %d multiprocessors\n", properties.name, b.multiprocessors);
#define NETWORK(list)                           \
    {                                           \
#list, list, sizeof list / sizeof *list \
    }
    const struct {
        const char *name;
        const layer *layers;
        size_t count;
    } networks[] = { NETWORK(image), NETWORK(clip), NETWORK(decode), NETWORK(encode) };
    int parts = 0;
    for (int a = 1; a < argc; a++) parts |= strcmp(argv[a], "parts") == 0;
    for (int i = 0; i < 4; i++) {
        int wanted = argc < 2 + parts;
        for (int a = 1; a < argc; a++) wanted |= strcmp(argv[a], networks[i].name) == 0;
        if (!wanted) continue;
        if (!parts) run_network(&b, networks[i].name, networks[i].layers, (int)networks[i].count);
        else run_by_parts(&b, networks[i].name, networks[i].layers, (int)networks[i].count);
        if (networks[i].layers == decode && !parts) run_snakes(&b);
    }
    return 0;
}
