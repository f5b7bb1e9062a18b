// What it costs that weights lie in host memory: the first pass, which copies them, a pass over copies, and passes over weights
// that stream through the ring, with and without prefetching.
#include "base/alloc.h"
#include "base/clock.h"
#include "device/arena.h"
#include "device/cuda/cuda.h"
#include "device/operators.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 10, N = 28672, K = 5376 };

static vx_device *dev;
static vx_tensor weight[LAYERS], x, y;

static void fail(vx_status s)
{
    if (s.code == VX_OK) return;
    fprintf(stderr, "VX-%d %s\n", (int)s.code, s.message);
    exit(s.code == VX_ERR_DEVICE_NONE ? 77 : 1);
}

static double pass(bool ahead)
{
    fail(vx_device_sync(dev));
    const double begin = vx_clock_s();
    for (int i = 0; i < LAYERS; i++) {
        const vx_weight w = { .n = N, .k = K, .segments = 1, .segment = { { .weight = weight[i] } } };
        fail(vx_linear(dev, y, x, &w));
        if (ahead) fail(vx_device_prefetch(dev, weight[(i + 1) % LAYERS]));
    }
    fail(vx_device_sync(dev));
    return vx_clock_s() - begin;
}

int main(int argc, char **argv)
{
    const int64_t m = argc > 1 ? atoll(argv[1]) : 37810;
    const size_t bytes = (size_t)N * K * 2;
    vx_arena *arena;
    fail(vx_device_cuda_create(&dev, NULL));
    fail(vx_arena_create(dev, &arena, (size_t)m * (N + K) * 2 + 4096));
    x = vx_arena_tensor(arena, VX_BF16, m, K);
    y = vx_arena_tensor(arena, VX_BF16, m, N);
    uint64_t s = 88172645463325252u;
    for (int i = 0; i < LAYERS; i++) {
        uint16_t *p = vx_alloc(bytes);
        if (!p) return 1;
        for (size_t j = 0; j < bytes / 2 && i == 0; j++) {
            s ^= s << 13, s ^= s >> 7, s ^= s << 17;
            p[j] = vx_f32_to_bf16(0.03f * ((float)((s & 0xffff) + (s >> 16 & 0xffff)) / 65536 - 1));
        }
        if (i > 0) memcpy(p, weight[0].data, bytes);
        weight[i] = vx_tensor_of(p, VX_BF16, N, K);
    }
    for (int64_t row = 0; row < m; row += N) { // x from the same numbers
        const int64_t rows = m - row < N ? m - row : N;
        fail(vx_upload(dev, vx_tensor_slice(x, 0, row, row + rows), weight[0].data));
    }
    const double gigabytes = (double)bytes * LAYERS * 1e-9;
    printf("%lld rows, %d weights of %.0f MB\n", (long long)m, LAYERS, (double)bytes * 1e-6);
    const double first = pass(false);
    printf("first pass      %7.1f ms\n", first * 1e3);
    for (int i = 0; i < 2; i++) printf("resident        %7.1f ms\n", pass(false) * 1e3);
    for (int ahead = 0; ahead < 2; ahead++) {
        vx_device_forget(dev, NULL, 0);
        fail(vx_device_weight_budget(dev, 1));
        for (int i = 0; i < 3; i++) {
            const double t = pass(ahead != 0);
            printf("streamed%s %7.1f ms, %.1f GB/s\n", ahead ? ", ahead" : "       ", t * 1e3, gigabytes / t);
        }
    }
    vx_arena_destroy(&arena);
    vx_device_destroy(&dev);
    for (int i = 0; i < LAYERS; i++) vx_free(weight[i].data);
    return 0;
}
