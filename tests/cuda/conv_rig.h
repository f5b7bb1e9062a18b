// What the tests of convolutions on CUDA share: the two devices, and tensors on both sides.
#ifndef VX_TESTS_CUDA_CONV_RIG_H
#define VX_TESTS_CUDA_CONV_RIG_H

#include "testing.h"

#include <math.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "device/arena.h"
#include "device/cuda/conv.h"
#include "device/operators.h"

static vx_device *cpu, *cuda;

// ---- tensors on both sides ----
// `span` floats of a format on host and device; views of both have the same strides.
typedef struct both {
    void *host;
    vx_tensor far;
    vx_dtype dtype;
    int64_t span;
} both;

static uint64_t seed = 1;
static inline float next_number(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}
static inline int64_t between(int64_t least, int64_t most)
{
    return least + (int64_t)((next_number() + 1) * 0.5f * 0.9999f * (float)(most - least + 1));
}

static inline both make(vx_arena *arena, vx_dtype dtype, int64_t span)
{
    both b = { .dtype = dtype, .span = vx_max_i64(1, span) };
    const size_t size = (size_t)vx_dtype_bits(dtype) / 8;
    b.host = vx_alloc((size_t)b.span * size);
    assert_non_null(b.host);
    for (int64_t i = 0; i < b.span; i++) {
        const float v = next_number();
        const uint16_t h = dtype == VX_BF16 ? vx_f32_to_bf16(v) : vx_f32_to_f16(v);
        if (dtype == VX_F32) ((float *)b.host)[i] = v;
        else ((uint16_t *)b.host)[i] = h;
    }
    b.far = vx_arena_tensor(arena, dtype, b.span);
    assert_non_null(b.far.data);
    assert_ok(vx_upload(cuda, b.far, b.host));
    return b;
}
static inline void poison(both *b)
{
    for (int64_t i = 0; i < b->span; i++) ((float *)b->host)[i] = NAN;
    assert_ok(vx_upload(cuda, b->far, b->host));
}

static inline vx_tensor near_view(const both *b, vx_tensor shape)
{
    shape.data = b->host;
    shape.dtype = b->dtype;
    return shape;
}
static inline vx_tensor far_view(const both *b, vx_tensor shape)
{
    shape.data = b->far.data;
    shape.dtype = b->dtype;
    return shape;
}

static inline void assert_same(const both *b, const char *what)
{
    uint32_t *found = vx_alloc((size_t)b->span * 4);
    assert_non_null(found);
    assert_ok(vx_download(cuda, found, b->far));
    const uint32_t *want = b->host;
    for (int64_t i = 0; i < b->span; i++) {
        float f;
        memcpy(&f, &want[i], 4);
        // A NaN's sign and payload are nobody's promise.
        float g;
        memcpy(&g, &found[i], 4);
        if (isnan(f) && isnan(g)) continue;
        if (found[i] != want[i]) fail_msg("%s: number %lld is %.9g, expected %.9g", what, (long long)i, (double)g, (double)f);
    }
    vx_free(found);
}

// The device keeps copies of what lies in files, by address.
static inline void drop(both *b)
{
    vx_device_forget(cuda, b->host, (size_t)b->span * (size_t)vx_dtype_bits(b->dtype) / 8);
    vx_free(b->host);
}

enum { ARENA_BYTES = 256 << 20 };
static inline vx_arena *new_arena(void)
{
    vx_arena *arena = NULL;
    assert_ok(vx_arena_create(cuda, &arena, ARENA_BYTES));
    return arena;
}

// Opens both devices, runs the tests, closes. 77: there is no card.
#define RUN_ON_BOTH(tests)                                              \
    vx_status s = vx_device_cuda_create(&cuda, &(vx_cuda_params){ 0 }); \
    if (s.code == VX_ERR_DEVICE_NONE) {                                 \
        printf("no CUDA device: skipped\n");                            \
        return 77;                                                      \
    }                                                                   \
    if (s.code == VX_OK) s = vx_device_cpu_create(&cpu, NULL);          \
    if (s.code != VX_OK) {                                              \
        printf("%s\n", s.message);                                      \
        return 1;                                                       \
    }                                                                   \
    if (argc > 1) cmocka_set_test_filter(argv[1]);                      \
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);       \
    vx_device_destroy(&cpu);                                            \
    vx_device_destroy(&cuda);                                           \
    return failed

#endif
