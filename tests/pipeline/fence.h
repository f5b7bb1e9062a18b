// A device for tests whose memory the host cannot touch, as a GPU's: the CPU back end behind pages that are only open while an
// operator or a copy runs. Host code that reads or writes a device tensor dies where it does so.
#ifndef VX_TESTS_FENCE_H
#define VX_TESTS_FENCE_H

#include <sys/mman.h>

#include "device/backend.h"

enum { FENCE_BLOCKS = 64 };

typedef struct fence {
    vx_device base;
    vx_device *inner;
    struct {
        void *p;
        size_t bytes;
    } block[FENCE_BLOCKS];
    int uploads, downloads;
    uint64_t memory; // what it says is free
} fence;

static void fence_set(fence *f, int protection)
{
    for (int i = 0; i < FENCE_BLOCKS; i++)
        if (f->block[i].p && mprotect(f->block[i].p, f->block[i].bytes, protection)) abort();
}
static fence *fence_open(vx_device *dev)
{
    fence *f = (fence *)dev;
    fence_set(f, PROT_READ | PROT_WRITE);
    return f;
}
static vx_status fence_close(fence *f, vx_status s)
{
    fence_set(f, PROT_NONE);
    return s;
}

static void fence_destroy(vx_device *dev)
{
    free(dev);
}
static const char *fence_isa(const vx_device *dev)
{
    return vx_device_isa(((const fence *)dev)->inner);
}
static int fence_threads(const vx_device *dev)
{
    return vx_device_threads(((const fence *)dev)->inner);
}
static vx_status fence_alloc(vx_device *dev, void **out, size_t bytes)
{
    fence *f = (fence *)dev;
    void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < FENCE_BLOCKS && p != MAP_FAILED; i++)
        if (!f->block[i].p) {
            f->block[i].p = *out = p;
            f->block[i].bytes = bytes;
            return vx_ok();
        }
    return vx_fail(VX_ERR_MEMORY, "no memory behind the fence");
}
static void fence_free(vx_device *dev, void *p, size_t bytes)
{
    fence *f = (fence *)dev;
    for (int i = 0; i < FENCE_BLOCKS; i++)
        if (f->block[i].p == p) f->block[i].p = NULL;
    munmap(p, bytes);
}
static vx_status fence_reserve(vx_device *dev, size_t bytes)
{
    return vx_device_reserve(((fence *)dev)->inner, bytes);
}
static void fence_release(vx_device *dev)
{
    vx_device_release(((fence *)dev)->inner);
}
static vx_status fence_upload(vx_device *dev, vx_tensor to, const void *from)
{
    fence *f = fence_open(dev);
    f->uploads++;
    return fence_close(f, f->inner->ops->upload(f->inner, to, from));
}
static vx_status fence_download(vx_device *dev, void *to, vx_tensor from)
{
    fence *f = fence_open(dev);
    f->downloads++;
    return fence_close(f, f->inner->ops->download(f->inner, to, from));
}
static vx_device_memory fence_memory(const vx_device *dev)
{
    const fence *f = (const fence *)dev;
    return (vx_device_memory){ .total = f->memory, .free = f->memory };
}
static vx_status fence_sync(vx_device *dev)
{
    return vx_device_sync(((fence *)dev)->inner);
}
#define FENCE_OP(op)                                                        \
    static vx_status fence_##op(vx_device *dev, const vx_##op##_args *args) \
    {                                                                       \
        fence *f = fence_open(dev);                                         \
        return fence_close(f, f->inner->ops->op(f->inner, args));           \
    }
VX_OPERATORS(FENCE_OP)
#undef FENCE_OP
#define FENCE_SCRATCH(op)                                                                \
    static size_t fence_##op##_scratch(const vx_device *dev, const vx_##op##_args *args) \
    {                                                                                    \
        const vx_device *inner = ((const fence *)dev)->inner;                            \
        return inner->ops->op##_scratch(inner, args);                                    \
    }
VX_SCRATCH_OPERATORS(FENCE_SCRATCH)
#undef FENCE_SCRATCH

static const struct vx_ops fence_ops = { .destroy = fence_destroy,
                                         .isa = fence_isa,
                                         .threads = fence_threads,
                                         .memory_alloc = fence_alloc,
                                         .memory_free = fence_free,
                                         .reserve = fence_reserve,
                                         .release = fence_release,
                                         .upload = fence_upload,
                                         .download = fence_download,
                                         .sync = fence_sync,
                                         .memory = fence_memory,
#define FENCE_MEMBER(op) .op = fence_##op,
                                         VX_OPERATORS(FENCE_MEMBER)
#undef FENCE_MEMBER
#define FENCE_MEMBER(op) .op##_scratch = fence_##op##_scratch,
                                             VX_SCRATCH_OPERATORS(FENCE_MEMBER)
#undef FENCE_MEMBER
};

// Borrows the CPU device.
static fence *fence_create(vx_device *inner)
{
    fence *f = calloc(1, sizeof *f);
    f->base = (vx_device){ .ops = &fence_ops, .name = "fence", .computes = true, .far = true };
    f->inner = inner;
    f->memory = (uint64_t)24 << 30;
    return f;
}

#endif
