// Shared by the tests of products, attention and convolutions: repeatable numbers, and every level and thread count.
#ifndef VX_TEST_PRODUCTS_H
#define VX_TEST_PRODUCTS_H

#include "testing.h"

#include <math.h>

#include "base/alloc.h"
#include "device/operators.h"
#include "tensor/mathf.h"

// Sanitizers watch memory and threads, not bits: there two widths and two thread counts do, as everything runs ten times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const char *const levels[] = { "avx2", "avx512bf16" };
static const int thread_counts[] = { 1, 4 };
enum { LEVELS = 2, THREAD_COUNTS = 2 };
#else
static const char *const levels[] = { "generic", "avx2", "avx512", "avx512bf16" };
static const int thread_counts[] = { 1, 2, 4 };
enum { LEVELS = 4, THREAD_COUNTS = 3 };
#endif

// Knuth's 64-bit linear congruence; about uniform in -1..1, with few bits left over for ties.
static inline float next_number(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*state >> 32) * 0x1p-31f;
}

static inline size_t element_size(vx_dtype t)
{
    return (size_t)vx_dtype_bits(t) / 8;
}
static inline void put(void *data, vx_dtype t, int64_t i, float x)
{
    const uint16_t h = t == VX_BF16 ? vx_f32_to_bf16(x) : t == VX_F16 ? vx_f32_to_f16(x) : 0;
    if (t == VX_F32) memcpy((char *)data + 4 * i, &x, 4);
    else memcpy((char *)data + 2 * i, &h, 2);
}
static inline float get(const void *data, vx_dtype t, int64_t i)
{
    float x;
    uint16_t h;
    if (t == VX_F32) {
        memcpy(&x, (const char *)data + 4 * i, 4);
        return x;
    }
    memcpy(&h, (const char *)data + 2 * i, 2);
    return t == VX_BF16 ? vx_bf16_to_f32(h) : vx_f16_to_f32(h);
}
static inline float round_to(vx_dtype t, float x)
{
    return t == VX_BF16 ? vx_round_bf16(x) : t == VX_F16 ? vx_f16_to_f32(vx_f32_to_f16(x)) : x;
}

// `count` numbers in memory of their own, `shift` bytes from an aligned address. Freed with free_numbers.
static inline void *make_numbers(vx_dtype t, int64_t count, int shift, uint64_t seed)
{
    char *p = vx_alloc((size_t)count * element_size(t) + 64 + (size_t)shift);
    assert_non_null(p);
    p += shift;
    uint64_t state = seed * 977 + 1;
    for (int64_t i = 0; i < count; i++) put(p, t, i, next_number(&state));
    return p;
}
static inline void free_numbers(void *p, int shift)
{
    vx_free((char *)p - shift);
}

static inline vx_device *make_device(const char *isa, int threads)
{
    vx_device *dev = NULL;
    assert_ok(vx_device_cpu_create(&dev, &(vx_cpu_params){ .threads = threads, .isa = isa }));
    return dev;
}

// The memory that an output stands in is compared whole: what lies between its rows must stay as it was.
static inline void assert_same_bits(const void *got, const void *want, int64_t count, vx_dtype t, const char *where)
{
    for (int64_t i = 0; i < count; i++) {
        if (memcmp((const char *)got + (size_t)i * element_size(t), (const char *)want + (size_t)i * element_size(t),
                   element_size(t)) != 0)
            fail_msg("%s: element %lld is %.9g, expected %.9g", where, (long long)i, (double)get(got, t, i),
                     (double)get(want, t, i));
    }
}

#endif
