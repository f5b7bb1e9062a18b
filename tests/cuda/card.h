// Tests of the CUDA device: the card, or the way out where there is none; numbers on both sides.
#ifndef VX_TEST_CARD_H
#define VX_TEST_CARD_H

#include "device/products.h"

#include "device/arena.h"
#include "device/cuda/cuda.h"

// Exits with CTest's number for a skipped test where no CUDA device is there.
static inline vx_device *make_card(void)
{
    vx_device *dev = NULL;
    const vx_status s = vx_device_cuda_create(&dev, NULL);
    if (s.code == VX_ERR_DEVICE_NONE) {
        printf("no CUDA device: skipped (%s)\n", s.message);
        exit(77);
    }
    if (s.code != VX_OK) {
        printf("VX-%d %s\n", (int)s.code, s.message);
        exit(1);
    }
    return dev;
}

// A tensor on the card with these bytes.
static inline vx_tensor put_on_card(vx_device *dev, vx_arena *arena, vx_dtype type, int64_t rows, int64_t columns,
                                    const void *from)
{
    const vx_tensor t = vx_arena_tensor(arena, type, rows, columns);
    assert_non_null(t.data);
    assert_ok(vx_upload(dev, t, from));
    return t;
}

static inline void *fetch(vx_device *dev, vx_tensor t)
{
    void *p = vx_alloc(vx_tensor_bytes(t));
    assert_non_null(p);
    assert_ok(vx_download(dev, p, t));
    return p;
}

#endif
