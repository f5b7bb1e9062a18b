// Speed of vx_linear on the shapes of the canonical request, and the algorithms chosen. With an argument N, up to N of cuBLASLt's
// proposals are tried for each shape first.
#include "base/alloc.h"
#include "device/arena.h"
#include "device/cuda/cuda.h"
#include "device/operators.h"
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 9, SHAPES = 4 };
static const struct {
    int64_t n, k;
} shapes[SHAPES] = { { 21504, 5376 }, { 5376, 7168 }, { 28672, 5376 }, { 5376, 14336 } };

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void fail(vx_status s)
{
    if (s.code == VX_OK) return;
    fprintf(stderr, "VX-%d %s\n", (int)s.code, s.message);
    exit(s.code == VX_ERR_DEVICE_NONE ? 77 : 1);
}

// About normal numbers, so that the matrix units draw the power that real ones make them draw.
static void randomise(vx_device *dev, vx_tensor t, float scale)
{
    const int64_t n = vx_tensor_count(t);
    uint16_t *p = vx_alloc((size_t)n * 2);
    uint64_t s = 88172645463325252u + (uint64_t)n;
    for (int64_t i = 0; p && i < n; i++) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        const float sum = (float)((s & 0xffff) + (s >> 16 & 0xffff) + (s >> 32 & 0xffff) + (s >> 48)) / 65536 - 2;
        p[i] = vx_f32_to_bf16(scale * 1.7f * sum);
    }
    fail(vx_upload(dev, t, p));
    vx_free(p);
}

int main(int argc, char **argv)
{
    const int tune = argc > 1 ? atoi(argv[1]) : 0;
    const int64_t m = argc > 2 ? atoll(argv[2]) : 37810;
    vx_device *dev;
    vx_arena *arena;
    fail(vx_device_cuda_create(&dev, NULL));
    vx_cuda *cuda = vx_cuda_of(dev);
    vx_cuda_blas_tune(dev, tune);
    printf("cuBLASLt %s, %lld rows, %d candidates\n", vx_cuda_blas_version(cuda), (long long)m, tune);
    fail(vx_arena_create(dev, &arena, (size_t)m * (28672 + 14336) * 2 + ((size_t)1 << 30)));
    const vx_tensor x = vx_arena_tensor(arena, VX_BF16, m * 14336), y = vx_arena_tensor(arena, VX_BF16, m * 28672);
    vx_tensor w[SHAPES];
    randomise(dev, x, 1);
    for (int i = 0; i < SHAPES; i++) {
        w[i] = vx_arena_tensor(arena, VX_BF16, shapes[i].n, shapes[i].k);
        randomise(dev, w[i], 0.02f);
    }
    cudaEvent_t event[SHAPES + 1];
    for (int i = 0; i <= SHAPES; i++) fail(vx_cuda_status(cudaEventCreate(&event[i]), "event"));
    {
        float ms[SHAPES][ROUNDS], sum[ROUNDS];
        for (int r = -3; r < ROUNDS; r++) {
            for (int i = 0; i < SHAPES; i++) {
                const vx_weight weight = { .n = shapes[i].n, .k = shapes[i].k, .segments = 1, .segment = { { .weight = w[i] } } };
                vx_tensor in = x, out = y;
                in = vx_tensor_of(x.data, VX_BF16, m, shapes[i].k);
                out = vx_tensor_of(y.data, VX_BF16, m, shapes[i].n);
                fail(vx_cuda_status(cudaEventRecord(event[i], cuda->stream), "event"));
                fail(vx_linear(dev, out, in, &weight));
            }
            fail(vx_cuda_status(cudaEventRecord(event[SHAPES], cuda->stream), "event"));
            fail(vx_device_sync(dev));
            if (r < 0) continue;
            sum[r] = 0;
            for (int i = 0; i < SHAPES; i++) {
                fail(vx_cuda_status(cudaEventElapsedTime(&ms[i][r], event[i], event[i + 1]), "event"));
                sum[r] += ms[i][r];
            }
        }
        for (int i = 0; i < SHAPES; i++) {
            qsort(ms[i], ROUNDS, sizeof(float), by_size);
            const double flop = 2.0 * (double)m * (double)shapes[i].n * (double)shapes[i].k;
            printf("%6lld x %5lld  %8.3f ms (%.3f to %.3f)  %6.1f TFLOP/s\n", (long long)shapes[i].n, (long long)shapes[i].k,
                   (double)ms[i][ROUNDS / 2], (double)ms[i][0], (double)ms[i][ROUNDS - 1],
                   flop / (double)ms[i][ROUNDS / 2] / 1e9);
        }
        qsort(sum, ROUNDS, sizeof(float), by_size);
        printf("sum of a block %8.3f ms (%.3f to %.3f)\n", (double)sum[ROUNDS / 2], (double)sum[0], (double)sum[ROUNDS - 1]);
        for (int i = 0; vx_cuda_product_choice(dev, i); i++) printf("  %s\n", vx_cuda_product_choice(dev, i));
    }
    vx_arena_destroy(&arena);
    vx_device_destroy(&dev);
    return 0;
}
