// Times of the attention kernels on the shapes of the pipeline, random numbers, median and best of the repeats:
//   bench_cuda_attention [any]        with `any` the kernel of every architecture, too
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels/attention.h"
#include "tensor/dtype.h"
#include "tensor/random.h"

#define TRY(expression)                                              \
    do {                                                             \
        cudaError_t e_ = (expression);                               \
        if (e_ != cudaSuccess) {                                     \
            printf("%s: %s\n", #expression, cudaGetErrorString(e_)); \
            exit(1);                                                 \
        }                                                            \
    } while (0)

enum { POOL = 1 << 22, PIECE = 100352, REPEATS = 7 };

static const struct {
    const char *says;
    int64_t rows, heads, d, batch;
    bool f16;
} shapes[] = {
    { "denoiser, 1344x768, 124 frames", 37810, 56, 128, 1, false },
    { "denoiser, 15,499 rows", 15499, 56, 128, 1, false },
    { "denoiser, 73,486 rows", 73486, 56, 128, 1, false },
    { "denoiser, 946 rows", 946, 56, 128, 1, false },
    { "video decoder, 1 tile", 1797, 32, 64, 1, true },
    { "video decoder, 7 tiles", 1797, 32, 64, 7, true },
    { "video decoder, 28 tiles", 1797, 32, 64, 28, true },
};

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    struct cudaDeviceProp device;
    if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) {
        printf("no CUDA device: skipped\n");
        return 77;
    }
    const bool any = argc > 1 && !strcmp(argv[1], "any"), hopper = device.major == 9 && device.minor == 0;
    float *normal = malloc(sizeof *normal * POOL);
    uint16_t *act = malloc(sizeof *act * POOL), *pool[2];
    if (!normal || !act) return 1;
    vx_random random;
    vx_random_seed(&random, 440420);
    vx_random_normal(&random, normal, POOL);
    for (int f16 = 0; f16 < 2; f16++) {
        for (int i = 0; i < POOL; i++) act[i] = f16 ? vx_f32_to_f16(normal[i]) : vx_f32_to_bf16(normal[i]);
        TRY(cudaMalloc((void **)&pool[f16], sizeof *act * POOL));
        TRY(cudaMemcpy(pool[f16], act, sizeof *act * POOL, cudaMemcpyHostToDevice));
    }
    cudaEvent_t begin, end;
    TRY(cudaEventCreate(&begin));
    TRY(cudaEventCreate(&end));
    printf("%s, %d multiprocessors\n", device.name, device.multiProcessorCount);

    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        const int64_t rows = shapes[n].rows, heads = shapes[n].heads, d = shapes[n].d, batch = shapes[n].batch,
                      row = 3 * heads * d;
        uint16_t *qkv, *out;
        const size_t count = (size_t)(batch * rows * row);
        TRY(cudaMalloc((void **)&qkv, 2 * count));
        TRY(cudaMalloc((void **)&out, 2 * count / 3));
        for (size_t i = 0; i < count; i += PIECE) // a piece of the pool from another place each time
            TRY(cudaMemcpyAsync(qkv + i, pool[shapes[n].f16] + vx_random_u32(&random) % (POOL - PIECE),
                                2 * (count - i < PIECE ? count - i : PIECE), cudaMemcpyDeviceToDevice, NULL));
        const vx_k_attention a = { .out = out,
                                   .q = qkv,
                                   .k = qkv + heads * d,
                                   .v = qkv + 2 * heads * d,
                                   .sq = rows,
                                   .skv = rows,
                                   .heads = heads,
                                   .kv_heads = heads,
                                   .head_dim = d,
                                   .out_row = heads * d,
                                   .out_head = d,
                                   .q_row = row,
                                   .q_head = d,
                                   .k_row = row,
                                   .k_head = d,
                                   .v_row = row,
                                   .v_head = d,
                                   .batch = batch,
                                   .out_batch = rows * heads * d,
                                   .q_batch = rows * row,
                                   .k_batch = rows * row,
                                   .v_batch = rows * row,
                                   .scale = 1 / sqrtf((float)d),
                                   .f16 = shapes[n].f16 };
        const double flop = 4.0 * (double)rows * (double)rows * (double)(d * heads * batch);
        for (int kernel = hopper ? 0 : 1; kernel < (any || !hopper ? 2 : 1); kernel++) {
            float ms[REPEATS];
            for (int i = -2; i < REPEATS; i++) {
                TRY(cudaEventRecord(begin, NULL));
                TRY(kernel ? vx_k_attention_any(&a, NULL) : vx_k_attention_sm90(&a, device.multiProcessorCount, NULL));
                TRY(cudaEventRecord(end, NULL));
                TRY(cudaEventSynchronize(end));
                if (i >= 0) TRY(cudaEventElapsedTime(&ms[i], begin, end));
            }
            qsort(ms, REPEATS, sizeof *ms, ascending);
            printf("%-32s %-5s median %8.3f ms, best %8.3f ms, %4.0f TFLOP/s\n", shapes[n].says, kernel ? "any" : "sm90",
                   ms[REPEATS / 2], ms[0], flop / ms[REPEATS / 2] * 1e-9);
        }
        TRY(cudaFree(qkv));
        TRY(cudaFree(out));
    }
    return 0;
}
