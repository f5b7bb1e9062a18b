// What the tests of the operators share: devices of every level, tensors on the heap, comparison by bits.
#ifndef VX_TEST_DEVICE_RIG_H
#define VX_TEST_DEVICE_RIG_H

#include "safetensors_mini.h"

#include <math.h>

#include "device/operators.h"

static inline vx_device *rig_cpu(const char *isa, int threads)
{
    vx_device *dev = NULL;
    assert_ok(vx_device_cpu_create(&dev, &(vx_cpu_params){ .threads = threads, .isa = isa }));
    return dev;
}

// Contiguous, zeroed, owned: rig_free. Each is a block of its own, so that AddressSanitizer sees its end.
static inline vx_tensor rig_make(vx_dtype t, int rank, const int64_t *shape)
{
    vx_tensor r = vx_tensor_make(NULL, t, rank, shape);
    r.data = calloc(1, vx_tensor_bytes(r) ? vx_tensor_bytes(r) : 1);
    return r;
}
#define rig_tensor(t, ...) \
    rig_make((t), (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]){ __VA_ARGS__ })

static inline void rig_free(vx_tensor *t)
{
    free(t->data);
    t->data = NULL;
}

static inline vx_tensor rig_like(vx_tensor t)
{
    return rig_make(t.dtype, t.rank, t.shape);
}

static inline vx_tensor rig_copy(vx_tensor t)
{
    vx_tensor r = rig_like(t);
    memcpy(r.data, t.data, vx_tensor_bytes(t));
    return r;
}

// The same numbers in another float format.
static inline vx_tensor rig_as(vx_tensor t, vx_dtype to)
{
    vx_tensor r = rig_make(to, t.rank, t.shape);
    for (int64_t i = 0; i < vx_tensor_count(t); i++) {
        const uint16_t *h = t.data;
        const float v = t.dtype == VX_F32 ? vx_f32_of(t)[i] : t.dtype == VX_BF16 ? vx_bf16_to_f32(h[i]) : vx_f16_to_f32(h[i]);
        if (to == VX_F32) vx_f32_of(r)[i] = v;
        else ((uint16_t *)r.data)[i] = to == VX_BF16 ? vx_f32_to_bf16(v) : vx_f32_to_f16(v);
    }
    return r;
}

static inline uint32_t rig_next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

// Numbers in -scale..scale with some zeros of both signs, tiny and large ones between them.
static inline void rig_fill(vx_tensor t, uint32_t seed, float scale)
{
    static const float special[] = { 0.0f, -0.0f, 1e-39f, -2e-38f, 0x1p-20f, 90.0f, -90.0f, 1.0f };
    for (int64_t i = 0; i < vx_tensor_count(t); i++) {
        const uint32_t u = rig_next(&seed);
        float v = ((float)(u & 0xffff) / 32768.0f - 1.0f) * scale;
        if ((u >> 16) % 61 == 0) v = special[(u >> 3) & 7];
        if (t.dtype == VX_F32) vx_f32_of(t)[i] = v;
        else if (t.dtype == VX_BF16) ((uint16_t *)t.data)[i] = vx_f32_to_bf16(v);
        else if (t.dtype == VX_F16) ((uint16_t *)t.data)[i] = vx_f32_to_f16(v);
        else if (t.dtype == VX_I32) ((int32_t *)t.data)[i] = (int32_t)(u & 0xffff);
        else ((uint8_t *)t.data)[i] = (uint8_t)u;
    }
}

static inline void rig_same_bits(const char *what, vx_tensor found, vx_tensor want)
{
    const size_t size = (size_t)vx_dtype_bits(want.dtype) / 8, bytes = vx_tensor_bytes(want);
    assert_int_equal(found.dtype, want.dtype);
    assert_int_equal(vx_tensor_bytes(found), bytes);
    for (size_t i = 0; i < bytes / size; i++)
        if (memcmp((char *)found.data + i * size, (char *)want.data + i * size, size) != 0) {
            uint32_t a = 0, b = 0;
            memcpy(&a, (char *)found.data + i * size, size);
            memcpy(&b, (char *)want.data + i * size, size);
            fail_msg("%s: element %zu is 0x%x, expected 0x%x", what, i, a, b);
        }
}

// Steps between two bf16 on the number line.
static inline int rig_ulps(uint16_t a, uint16_t b)
{
    const int x = a & 0x8000 ? -(a & 0x7fff) : a, y = b & 0x8000 ? -(b & 0x7fff) : b;
    return x > y ? x - y : y - x;
}

#endif
