// A device for tests whose memory the host cannot touch, as a GPU's: the CPU back end behind pages that are only open while an
// operator or a copy runs. Host code that reads or writes a device tensor dies where it does so. It can fail as a GPU does: out of
// memory once, or lost for good.
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
    uint64_t memory;            // what it says is free
    size_t held, peak, scratch; // scratch counts as held
    int64_t calls, fail_at;     // calls so far: operators, allocations, uploads, downloads; the one that fails, 0: none
    vx_code failure;
    bool lost;
} fence;

// The n-th call from now (1 = next) answers VX_ERR_MEMORY, it alone; or VX_ERR_DEVICE, as does every call after it.
static inline void fence_fail(fence *f, int64_t n, vx_code code)
{
    f->fail_at = f->calls + n;
    f->failure = code;
}
static vx_status fence_alive(const fence *f, const char *what)
{
    return f->lost ? vx_fail(VX_ERR_DEVICE, "%s: the device behind the fence is lost", what) : vx_ok();
}
static vx_status fence_begin(fence *f, const char *what)
{
    const bool now = ++f->calls == f->fail_at;
    if (now && f->failure == VX_ERR_MEMORY) return vx_fail(VX_ERR_MEMORY, "%s: no memory behind the fence", what);
    f->lost = f->lost || now;
    return fence_alive(f, what);
}

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
    if (((fence *)dev)->held > 0) abort(); // somebody kept memory
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
static void fence_hold(fence *f, size_t bytes)
{
    f->held += bytes;
    if (f->held > f->peak) f->peak = f->held;
}
static vx_status fence_alloc(vx_device *dev, void **out, size_t bytes)
{
    fence *f = (fence *)dev;
    VX_TRY(fence_begin(f, "device memory"));
    void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < FENCE_BLOCKS && p != MAP_FAILED; i++)
        if (!f->block[i].p) {
            f->block[i].p = *out = p;
            f->block[i].bytes = bytes;
            fence_hold(f, bytes);
            return vx_ok();
        }
    return vx_fail(VX_ERR_MEMORY, "no memory behind the fence");
}
static void fence_free(vx_device *dev, void *p, size_t bytes)
{
    fence *f = (fence *)dev;
    for (int i = 0; i < FENCE_BLOCKS; i++)
        if (f->block[i].p == p) f->block[i].p = NULL;
    f->held -= bytes;
    munmap(p, bytes);
}
static vx_status fence_reserve(vx_device *dev, size_t bytes)
{
    fence *f = (fence *)dev;
    VX_TRY(fence_begin(f, "scratch"));
    if (bytes > f->scratch) {
        fence_hold(f, bytes - f->scratch);
        f->scratch = bytes;
    }
    return vx_device_reserve(f->inner, bytes);
}
static void fence_release(vx_device *dev)
{
    fence *f = (fence *)dev;
    f->held -= f->scratch;
    f->scratch = 0;
    vx_device_release(f->inner);
}
static vx_status fence_upload(vx_device *dev, vx_tensor to, const void *from)
{
    VX_TRY(fence_begin((fence *)dev, "upload"));
    fence *f = fence_open(dev);
    f->uploads++;
    return fence_close(f, f->inner->ops->upload(f->inner, to, from));
}
static vx_status fence_download(vx_device *dev, void *to, vx_tensor from)
{
    VX_TRY(fence_begin((fence *)dev, "download"));
    fence *f = fence_open(dev);
    f->downloads++;
    return fence_close(f, f->inner->ops->download(f->inner, to, from));
}
static vx_device_memory fence_memory(const vx_device *dev)
{
    const fence *f = (const fence *)dev;
    const uint64_t memory = f->lost ? 0 : f->memory; // as CUDA answers
    return (vx_device_memory){ .total = memory, .free = memory, .held = f->held, .peak = f->peak };
}
static void fence_memory_reset(vx_device *dev)
{
    ((fence *)dev)->peak = ((fence *)dev)->held;
}
static vx_status fence_sync(vx_device *dev)
{
    VX_TRY(fence_alive((fence *)dev, "sync"));
    return vx_device_sync(((fence *)dev)->inner);
}
#define FENCE_OP(op)                                                        \
    static vx_status fence_##op(vx_device *dev, const vx_##op##_args *args) \
    {                                                                       \
        VX_TRY(fence_begin((fence *)dev, "vx_" #op));                       \
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
                                         .memory_reset = fence_memory_reset,
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
