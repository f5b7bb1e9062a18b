// What quantised weights cost in products, beside bf16: processor time, the least of some runs taken in turns, one thread.
//   bench_quant [--isa LEVEL] [--runs N] [PART OF A FORMAT'S NAME]
// Columns: rows x k -> n; each line a format, its time over bf16's, and the nanoseconds it adds per weight.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "device/operators.h"

static const struct {
    int64_t m, k, n;
} shapes[] = { { 2850, 1024, 3072 }, { 100, 1024, 3072 }, { 100, 2816, 1024 }, { 2, 1024, 3072 } };
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static const struct {
    const char *name;
    vx_quant_kind kind;
    int type, rotate, group;
    vx_dtype stored;
} formats[] = {
    { "bf16", VX_QUANT_NONE, 0, 0, 0, VX_BF16 },
    { "fp8", VX_QUANT_FP8, 0, 0, 0, VX_F8_E4M3 },
    { "fp8 e5m2", VX_QUANT_FP8, 0, 0, 0, VX_F8_E5M2 },
    { "int8", VX_QUANT_INT8, 0, 0, 0, VX_I8 },
    { "int8 convrot 64", VX_QUANT_INT8, 0, 64, 0, VX_I8 },
    { "int8 convrot 256", VX_QUANT_INT8, 0, 256, 0, VX_I8 },
    { "mxfp8", VX_QUANT_MXFP8, 0, 0, 0, VX_F8_E4M3 },
    { "nvfp4", VX_QUANT_NVFP4, 0, 0, 0, VX_U8 },
    { "convrot_w4a4", VX_QUANT_INT4, 0, 256, 0, VX_I8 },
    { "asym_w4a8_int8", VX_QUANT_W4A8, 0, 256, 16, VX_I8 },
    { "Q4_0", VX_QUANT_GGUF, 2, 0, 0, VX_U8 },
    { "Q4_1", VX_QUANT_GGUF, 3, 0, 0, VX_U8 },
    { "Q5_0", VX_QUANT_GGUF, 6, 0, 0, VX_U8 },
    { "Q5_1", VX_QUANT_GGUF, 7, 0, 0, VX_U8 },
    { "Q8_0", VX_QUANT_GGUF, 8, 0, 0, VX_U8 },
    { "Q2_K", VX_QUANT_GGUF, 10, 0, 0, VX_U8 },
    { "Q3_K", VX_QUANT_GGUF, 11, 0, 0, VX_U8 },
    { "Q4_K", VX_QUANT_GGUF, 12, 0, 0, VX_U8 },
    { "Q5_K", VX_QUANT_GGUF, 13, 0, 0, VX_U8 },
    { "Q6_K", VX_QUANT_GGUF, 14, 0, 0, VX_U8 },
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static uint32_t state = 12345;

// Bytes of moderate exponents, whatever they are read as; floats and bf16 around 1.
static vx_tensor numbers(vx_dtype t, int64_t rows, int64_t columns)
{
    vx_tensor x = vx_tensor_of(NULL, t, rows, columns);
    if (vx_pages_alloc(&x.data, vx_tensor_bytes(x)).code != VX_OK) exit(1);
    for (int64_t i = 0; i < rows * columns; i++) {
        state = state * 1664525u + 1013904223u;
        const float v = (float)(int32_t)state * 0x1p-31f;
        if (t == VX_F32) ((float *)x.data)[i] = 1 + 0.5f * v;
        else if (t == VX_BF16) ((uint16_t *)x.data)[i] = vx_f32_to_bf16(v);
        else ((uint8_t *)x.data)[i] = (uint8_t)(state >> 24 & 0xbb);
    }
    return x;
}

static vx_weight_segment prepare(int format, int64_t k, int64_t n)
{
    vx_quant q = { .kind = formats[format].kind,
                   .type = formats[format].type,
                   .rotate = formats[format].rotate,
                   .group = formats[format].group,
                   .k = k };
    int64_t width = k;
    switch (q.kind) {
    case VX_QUANT_GGUF: width = k / vx_gguf_block(q.type) * vx_gguf_block_bytes(q.type); break;
    case VX_QUANT_NVFP4:
        width = k / 2;
        q.block_scale = numbers(VX_F8_E4M3, (n + 127) / 128 * 128, (k / 16 + 3) / 4 * 4);
        break;
    case VX_QUANT_MXFP8:
        q.block_scale = numbers(VX_U8, (n + 127) / 128 * 128, (k / 32 + 3) / 4 * 4);
        memset(q.block_scale.data, 120, vx_tensor_bytes(q.block_scale)); // subnormal products would be what is measured
        break;
    case VX_QUANT_INT4: width = k / 2; break;
    case VX_QUANT_W4A8:
        width = k / 2;
        q.block_scale = numbers(VX_F8_E4M3, n, k / q.group);
        q.codebook = vx_tensor_row(numbers(VX_F32, 1, 16), 0);
        break;
    default: break;
    }
    const bool one = q.kind == VX_QUANT_FP8 || q.kind == VX_QUANT_NVFP4;
    if (q.kind != VX_QUANT_NONE && q.kind != VX_QUANT_GGUF && q.kind != VX_QUANT_MXFP8)
        q.scale = vx_tensor_row(numbers(VX_F32, 1, one ? 1 : n), 0);
    if (q.block_scale.dtype == VX_F8_E4M3)
        for (int64_t i = 0; i < vx_tensor_count(q.block_scale); i++) ((uint8_t *)q.block_scale.data)[i] &= 0x3b;
    return (vx_weight_segment){ .weight = numbers(formats[format].stored, n, width), .quant = q };
}

int main(int argc, char **argv)
{
    int runs = 7;
    const char *only = NULL;
    vx_cpu_params params = { .threads = 1 };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc) params.isa = argv[++i];
        else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc) runs = atoi(argv[++i]);
        else only = argv[i];
    }
    vx_device *dev;
    if (vx_device_cpu_create(&dev, &params).code != VX_OK) return 1;
    for (int s = 0; s < SHAPES; s++) {
        const int64_t m = shapes[s].m, k = shapes[s].k, n = shapes[s].n;
        const vx_tensor x = numbers(VX_BF16, m, k), out = numbers(VX_BF16, m, n);
        vx_weight_segment segment[FORMATS];
        double best[FORMATS];
        for (int f = 0; f < FORMATS; f++) segment[f] = prepare(f, k, n), best[f] = INFINITY;
        printf("%d x %d -> %d\n", (int)m, (int)k, (int)n);
        for (int run = 0; run <= runs; run++) {
            for (int f = 0; f < FORMATS; f++) {
                if (f && only && !strstr(formats[f].name, only)) continue;
                const vx_weight w = { .n = n, .k = k, .segments = 1, .segment = { segment[f] } };
                const int repeat = m < 1000 ? 5 : 1;
                const clock_t start = clock();
                for (int i = 0; i < repeat; i++) {
                    const vx_status status = vx_linear(dev, out, x, &w);
                    if (status.code == VX_OK) continue;
                    fprintf(stderr, "%s: %s\n", formats[f].name, status.message);
                    return 1;
                }
                const double took = (double)(clock() - start) / CLOCKS_PER_SEC / repeat;
                if (run && took < best[f]) best[f] = took; // the first run warms up
            }
        }
        for (int f = 0; f < FORMATS; f++)
            if (best[f] < INFINITY)
                printf("  %-18s %8.3f ms  %5.2f  %+6.2f ns\n", formats[f].name, best[f] * 1e3, best[f] / best[0],
                       (best[f] - best[0]) / (double)(k * n) * 1e9);
        fflush(stdout);
    }
    vx_device_destroy(&dev);
    return 0;
}
