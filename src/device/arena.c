// One block of device memory, taken from front to back.
//
//   base                    used                              size
//   | block | red | block | red |            free             |
//
// Under AddressSanitizer everything outside the blocks is poisoned, with a red zone behind each, and the free part becomes
// poisoned again on reset: a kernel that runs past its tensor, or uses one that was given back, is caught where it happens.
// The zones count on the plan device too, so that a plan made by such a build fits the run of the same build.
#include "device/arena.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "device/backend.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(a, p, bytes)   ((a)->dev->far ? (void)0 : __asan_poison_memory_region((p), (bytes)))
#define UNPOISON(a, p, bytes) ((a)->dev->far ? (void)0 : __asan_unpoison_memory_region((p), (bytes)))
enum { RED_ZONE = VX_ARENA_ALIGN };
#else
#define POISON(a, p, bytes)   ((void)(a), (void)(p), (void)(bytes))
#define UNPOISON(a, p, bytes) ((void)(a), (void)(p), (void)(bytes))
enum { RED_ZONE = 0 };
#endif

struct vx_arena {
    vx_device *dev;
    char *base; // NULL on the plan device, and for an arena of no bytes
    size_t size, used, high;
};

vx_status vx_arena_create(vx_device *dev, vx_arena **out, size_t bytes)
{
    *out = NULL;
    vx_arena *arena = vx_alloc_array(1, sizeof *arena);
    VX_NEED_MEMORY(arena, "an arena");
    arena->dev = dev;
    arena->size = vx_device_is_plan(dev) ? 0 : bytes;
    if (arena->size > 0) {
        void *base = NULL;
        const vx_status s = dev->ops->memory_alloc(dev, &base, arena->size);
        if (s.code != VX_OK) {
            vx_free(arena);
            return s;
        }
        arena->base = base;
        POISON(arena, arena->base, arena->size);
    }
    *out = arena;
    return vx_ok();
}

void vx_arena_destroy(vx_arena **arena)
{
    if (!arena || !*arena) return;
    vx_arena *a = *arena;
    if (a->base) {
        UNPOISON(a, a->base, a->size);
        a->dev->ops->memory_free(a->dev, a->base, a->size);
    }
    vx_free(a);
    *arena = NULL;
}

// A shape that no address space holds gives a tensor of rank 0, which operators refuse.
vx_tensor vx_arena_take(vx_arena *arena, vx_dtype dtype, int rank, const int64_t *shape)
{
    vx_tensor t = vx_tensor_make(NULL, dtype, rank, shape);
    if (t.rank == 0) return t;
    const size_t begin = arena->used, bytes = vx_tensor_bytes(t);
    size_t end = 0;
    if (!vx_add_size(begin, vx_align_up(bytes, VX_ARENA_ALIGN) + RED_ZONE, &end)) return (vx_tensor){ 0 };
    // A short arena still counts what it was asked for: vx_arena_high then tells what would have been enough.
    arena->used = end;
    if (end > arena->high) arena->high = end;
    if (arena->base && end <= arena->size) {
        t.data = arena->base + begin;
        UNPOISON(arena, t.data, bytes);
    }
    return t;
}

size_t vx_arena_mark(const vx_arena *arena)
{
    return arena->used;
}

void vx_arena_reset(vx_arena *arena, size_t mark)
{
    if (mark >= arena->used) return;
    if (arena->base && mark < arena->size)
        POISON(arena, arena->base + mark, (arena->used < arena->size ? arena->used : arena->size) - mark);
    arena->used = mark;
}

size_t vx_arena_high(const vx_arena *arena)
{
    return arena->high;
}
vx_device *vx_arena_device(const vx_arena *arena)
{
    return arena->dev;
}
