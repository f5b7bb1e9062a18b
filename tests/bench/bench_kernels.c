// Speed of the heavy operators at the shapes that the model runs: the least time of some runs, GFLOP/s, one line each.
//   bench_kernels [--threads N] [--isa LEVEL] [--runs N] [--cpu-time] [PART OF A NAME]
//   bench_kernels --serve ...   for each name of a shape on standard input its line, until the end of the input
// --cpu-time counts the threads' processor time instead of the clock's: what is left to trust where others work too.
// tools/bench_kernels_torch.py prints the same lines for PyTorch.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "device/operators.h"

typedef struct bench {
    vx_device *dev;
    int runs;
    bool cpu_time;
    const char *only;
} bench;

typedef enum kind { LINEAR, ATTENTION, CONV, CONV_TRANSPOSE, SNAKE, CONV3D, GROUP_NORM } kind;

typedef struct shape {
    const char *name;
    kind kind;
    vx_dtype t;
    int64_t a, b, c, d,
        e; // linear: m k n; attention: tokens heads kv_heads d; conv: ci co kernel length dilation|stride; snake: c length; else the name says it
} shape;

static const shape shapes[] = {
    { "linear bf16 2850x1024->3072", LINEAR, VX_BF16, 2850, 1024, 3072, 0, 0 },
    { "linear bf16 2850x1024->5632", LINEAR, VX_BF16, 2850, 1024, 5632, 0, 0 },
    { "linear bf16 2850x2816->1024", LINEAR, VX_BF16, 2850, 2816, 1024, 0, 0 },
    { "linear bf16 2850x1024->1024", LINEAR, VX_BF16, 2850, 1024, 1024, 0, 0 },
    { "linear bf16 77x1024->3072", LINEAR, VX_BF16, 77, 1024, 3072, 0, 0 },
    { "linear bf16 2x384->18432", LINEAR, VX_BF16, 2, 384, 18432, 0, 0 },
    { "linear bf16 1x4096->4096", LINEAR, VX_BF16, 1, 4096, 4096, 0, 0 },
    { "linear f32 1797x512->1536", LINEAR, VX_F32, 1797, 512, 1536, 0, 0 },
    { "linear f32 1797x512->4096", LINEAR, VX_F32, 1797, 512, 4096, 0, 0 },
    { "linear f32 1797x2048->512", LINEAR, VX_F32, 1797, 2048, 512, 0, 0 },
    { "linear f32 1797x512->512", LINEAR, VX_F32, 1797, 512, 512, 0, 0 },
    { "linear f32 12579x2048->6144", LINEAR, VX_F32, 12579, 2048, 6144, 0, 0 },
    { "attention bf16 2850 8x128", ATTENTION, VX_BF16, 2850, 8, 8, 128, 0 },
    { "attention f32 1797 32x64", ATTENTION, VX_F32, 1797, 32, 32, 64, 0 },
    { "attention f32 1797 8x64", ATTENTION, VX_F32, 1797, 8, 8, 64, 0 },
    { "conv 2048->1024 k7 207", CONV, VX_F32, 2048, 1024, 7, 207, 1 },
    { "convT 1024->512 k9 u5 207", CONV_TRANSPOSE, VX_F32, 1024, 512, 9, 207, 5 },
    { "conv 512->512 k3 1035", CONV, VX_F32, 512, 512, 3, 1035, 1 },
    { "conv 512->512 k11 1035 d5", CONV, VX_F32, 512, 512, 11, 1035, 5 },
    { "convT 512->256 k9 u5 1035", CONV_TRANSPOSE, VX_F32, 512, 256, 9, 1035, 5 },
    { "conv 256->256 k7 5175 d3", CONV, VX_F32, 256, 256, 7, 5175, 3 },
    { "conv 128->128 k7 10350 d3", CONV, VX_F32, 128, 128, 7, 10350, 3 },
    { "conv 64->64 k7 20700 d3", CONV, VX_F32, 64, 64, 7, 20700, 3 },
    { "convT 64->32 k4 u2 20700", CONV_TRANSPOSE, VX_F32, 64, 32, 4, 20700, 2 },
    { "conv 32->32 k7 41400 d3", CONV, VX_F32, 32, 32, 7, 41400, 3 },
    { "conv 16->16 k11 82800 d5", CONV, VX_F32, 16, 16, 11, 82800, 5 },
    { "convT 16->8 k4 u2 82800", CONV_TRANSPOSE, VX_F32, 16, 8, 4, 82800, 2 },
    { "conv 8->8 k3 165600", CONV, VX_F32, 8, 8, 3, 165600, 1 },
    { "conv 8->8 k11 165600 d5", CONV, VX_F32, 8, 8, 11, 165600, 5 },
    { "conv 8->1 k7 165600", CONV, VX_F32, 8, 1, 7, 165600, 1 },
    { "snake 512 1035", SNAKE, VX_F32, 512, 1035, 0, 0, 0 },
    { "snake 64 20700", SNAKE, VX_F32, 64, 20700, 0, 0, 0 },
    { "snake 8 165600", SNAKE, VX_F32, 8, 165600, 0, 0, 0 },
    { "conv3d 3->32 k3 17x256 s1,1", CONV3D, VX_F32, 0, 0, 0, 0, 0 },
    { "conv3d 32->32 k3 17x256 s1,1", CONV3D, VX_F32, 0, 0, 0, 0, 0 },
    { "conv3d 32->32 k3 17x256 s1,2", CONV3D, VX_F32, 0, 0, 0, 0, 0 },
    { "conv3d 32->64 k3 17x128 s1,1", CONV3D, VX_F32, 0, 0, 0, 0, 0 },
    { "conv3d 64->64 k3 17x128 s1,1", CONV3D, VX_F32, 0, 0, 0, 0, 0 },
    { "conv3d 64->64 k3 17x128 s2,2", CONV3D, VX_F32, 0, 0, 0, 0, 0 },
    { "conv3d 64->64 k3 9x64 s1,1", CONV3D, VX_F32, 0, 0, 0, 0, 0 },
    { "conv3d 64->64 k3 9x64 s2,2", CONV3D, VX_F32, 0, 0, 0, 0, 0 },
    { "conv3d 64->128 k3 5x32 s1,1", CONV3D, VX_F32, 0, 0, 0, 0, 0 },
    { "conv3d 128->128 k3 5x32 s1,1", CONV3D, VX_F32, 0, 0, 0, 0, 0 },
    { "conv3d 128->128 k3 5x32 s1,2", CONV3D, VX_F32, 0, 0, 0, 0, 0 },
    { "conv3d 128->128 k3 5x16 s1,1", CONV3D, VX_F32, 0, 0, 0, 0, 0 },
    { "conv3d 512->512 k3 5x32 s1,1", CONV3D, VX_F32, 0, 0, 0, 0, 0 },
    { "conv3d 1024->1024 k3 5x16 s1,1", CONV3D, VX_F32, 0, 0, 0, 0, 0 },
    { "conv3d 128->128 k3 1x32 s1,1", CONV3D, VX_F32, 0, 0, 0, 0, 0 },
    { "conv3d 32->64 k1 17x128 s1,1", CONV3D, VX_F32, 0, 0, 0, 0, 0 },
    { "norm 32 17x256", GROUP_NORM, VX_F32, 0, 0, 0, 0, 0 },
    { "norm 64 17x128", GROUP_NORM, VX_F32, 0, 0, 0, 0, 0 },
    { "norm 128 5x32", GROUP_NORM, VX_F32, 0, 0, 0, 0, 0 },
    { "norm 1024 5x16", GROUP_NORM, VX_F32, 0, 0, 0, 0, 0 },
};

typedef struct setup {
    vx_tensor out, in[5];
    vx_weight weight;
    vx_conv1d_params conv;
    vx_conv3d_params conv3d;
    double flop;
} setup;

static vx_tensor numbers(vx_dtype t, int rank, const int64_t *extent)
{
    vx_tensor x = vx_tensor_make(NULL, t, rank, extent);
    // Pages, as arenas have them: large ones where the system gives them.
    if (vx_pages_alloc(&x.data, vx_tensor_bytes(x)).code != VX_OK) exit(1);
    uint32_t state = 12345;
    for (int64_t i = 0; i < vx_tensor_count(x); i++) {
        state = state * 1664525u + 1013904223u;
        const float v = (float)(int32_t)state * 0x1p-31f;
        if (t == VX_F32) ((float *)x.data)[i] = v;
        else ((uint16_t *)x.data)[i] = vx_f32_to_bf16(v);
    }
    return x;
}
#define NUMBERS(t, ...) numbers((t), (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / 8), (const int64_t[]){ __VA_ARGS__ })

// "conv3d ci->co kN framesxside sframes,rows": the encoder's padding, all around or below and to the right.
static setup prepare_conv3d(const char *name)
{
    int64_t ci = 0, co = 0, k = 0, t = 0, side = 0, frames = 0, rows = 0;
    if (sscanf(name, "conv3d %" SCNd64 "->%" SCNd64 " k%" SCNd64 " %" SCNd64 "x%" SCNd64 " s%" SCNd64 ",%" SCNd64, &ci, &co, &k,
               &t, &side, &frames, &rows) != 7)
        exit(1);
    const int64_t begin = k > 1 && rows == 1, end = k > 1, out_t = (t - 1) / frames + 1, out = side / rows;
    setup p = { 0 };
    p.in[0] = NUMBERS(VX_F32, ci, t, side, side);
    p.in[1] = NUMBERS(VX_F32, co, ci, k, k, k);
    p.in[2] = NUMBERS(VX_F32, co);
    p.out = NUMBERS(VX_F32, co, out_t, out, out);
    p.conv3d = (vx_conv3d_params){ .stride = { frames, rows, rows },
                                   .pad_begin = { k - 1, begin, begin },
                                   .pad_end = { 0, end, end },
                                   .reflect = k > 1,
                                   .bias = p.in[2] };
    p.flop = 2.0 * (double)(ci * co * k * k * k) * (double)(out_t * out * out);
    return p;
}

static setup prepare_norm(const char *name)
{
    int64_t c = 0, t = 0, side = 0;
    if (sscanf(name, "norm %" SCNd64 " %" SCNd64 "x%" SCNd64, &c, &t, &side) != 3) exit(1);
    setup p = { 0 };
    p.in[0] = NUMBERS(VX_F32, c, t, side, side);
    p.in[1] = NUMBERS(VX_F32, c);
    p.in[2] = NUMBERS(VX_F32, c);
    p.out = NUMBERS(VX_F32, c, t, side, side);
    p.flop = 8.0 * (double)(c * t * side * side); // the formula's, without the sigmoid
    return p;
}

static setup prepare(const shape *s)
{
    if (s->kind == CONV3D) return prepare_conv3d(s->name);
    if (s->kind == GROUP_NORM) return prepare_norm(s->name);
    setup p = { 0 };
    const int64_t a = s->a, b = s->b, c = s->c, d = s->d, e = s->e;
    switch (s->kind) {
    case LINEAR:
        p.in[0] = NUMBERS(s->t, a, b);
        p.in[1] = NUMBERS(s->t, c, b);
        p.out = NUMBERS(s->t, a, c);
        p.weight = (vx_weight){ .n = c, .k = b, .segments = 1, .segment = { { .weight = p.in[1] } } };
        p.flop = 2.0 * (double)(a * b * c);
        break;
    case ATTENTION:
        p.in[0] = NUMBERS(s->t, a, b, d);
        p.in[1] = NUMBERS(s->t, a, c, d);
        p.in[2] = NUMBERS(s->t, a, c, d);
        p.out = NUMBERS(s->t, a, b, d);
        p.flop = 4.0 * (double)(a * a * b * d);
        break;
    case CONV:
        p.in[0] = NUMBERS(s->t, a, d);
        p.in[1] = NUMBERS(s->t, b, a, c);
        p.in[2] = NUMBERS(s->t, b);
        p.out = NUMBERS(s->t, b, d);
        p.conv = (vx_conv1d_params){ 1, (c - 1) * e / 2, e, p.in[2], { 0 } };
        p.flop = 2.0 * (double)(a * b * c * d);
        break;
    case CONV_TRANSPOSE:
        p.in[0] = NUMBERS(s->t, a, d);
        p.in[1] = NUMBERS(s->t, a, b, c);
        p.in[2] = NUMBERS(s->t, b);
        p.out = NUMBERS(s->t, b, d * e);
        p.conv = (vx_conv1d_params){ e, (c - e) / 2, 1, p.in[2], { 0 } };
        p.flop = 2.0 * (double)(a * b * c * d);
        break;
    case SNAKE:
        p.in[0] = NUMBERS(s->t, a, b);
        p.in[1] = NUMBERS(s->t, a);
        p.in[2] = NUMBERS(s->t, a);
        p.in[3] = NUMBERS(s->t, 12);
        p.in[4] = NUMBERS(s->t, 12);
        p.out = NUMBERS(s->t, a, b);
        p.flop = 2.0 * (double)(a * b) * 24; // the filters alone
        break;
    case CONV3D:
    case GROUP_NORM: break;
    }
    return p;
}

static vx_status run(vx_device *dev, const shape *s, const setup *p)
{
    switch (s->kind) {
    case LINEAR: return vx_linear(dev, p->out, p->in[0], &p->weight);
    case ATTENTION: return vx_attention(dev, p->out, p->in[0], p->in[1], p->in[2], NULL);
    case CONV: return vx_conv1d(dev, p->out, p->in[0], p->in[1], &p->conv);
    case CONV_TRANSPOSE: return vx_conv_transpose1d(dev, p->out, p->in[0], p->in[1], &p->conv);
    case CONV3D: return vx_conv3d(dev, p->out, p->in[0], p->in[1], &p->conv3d);
    case GROUP_NORM: return vx_group_norm(dev, p->out, p->in[0], p->in[1], p->in[2], 32, 1e-6f, true);
    default: return vx_snake_alias_free(dev, p->out, p->in[0], p->in[1], p->in[2], p->in[3], p->in[4]);
    }
}

static double seconds(const bench *b)
{
    if (b->cpu_time) return (double)clock() / CLOCKS_PER_SEC;
    return vx_clock_s();
}

static int measure(const bench *b, const shape *s)
{
    setup p = prepare(s);
    double best = INFINITY;
    for (int i = 0; i < b->runs; i++) {
        const double start = seconds(b);
        const vx_status status = run(b->dev, s, &p);
        const double took = seconds(b) - start;
        if (status.code != VX_OK) {
            fprintf(stderr, "%s: %s\n", s->name, status.message);
            return 1;
        }
        if (i > 0 && took < best) best = took; // the first run warms up
    }
    printf("%-30s %9.3f ms %8.1f GFLOP/s\n", s->name, best * 1e3, p.flop / best * 1e-9);
    fflush(stdout);
    vx_pages_free(p.out.data, vx_tensor_bytes(p.out));
    for (int i = 0; i < 5; i++) {
        if (p.in[i].rank) vx_pages_free(p.in[i].data, vx_tensor_bytes(p.in[i]));
    }
    return 0;
}

static int serve(const bench *b)
{
    char name[64];
    int failed = 0;
    while (fgets(name, sizeof name, stdin)) {
        name[strcspn(name, "\n")] = 0;
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            if (strcmp(shapes[i].name, name) == 0) failed |= measure(b, &shapes[i]);
        }
    }
    return failed;
}

int main(int argc, char **argv)
{
    bool serving = false;
    bench b = { .runs = 6 };
    vx_cpu_params params = { 0 };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) params.threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc) params.isa = argv[++i];
        else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc) b.runs = atoi(argv[++i]) + 1;
        else if (strcmp(argv[i], "--cpu-time") == 0) b.cpu_time = true;
        else if (strcmp(argv[i], "--serve") == 0) serving = true;
        else b.only = argv[i];
    }
    const vx_status s = vx_device_cpu_create(&b.dev, &params);
    if (s.code != VX_OK) {
        fprintf(stderr, "%s\n", s.message);
        return 1;
    }
    int failed = serving ? serve(&b) : 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] && !serving; i++) {
        if (!b.only || strstr(shapes[i].name, b.only)) failed |= measure(&b, &shapes[i]);
    }
    vx_device_destroy(&b.dev);
    return failed;
}
