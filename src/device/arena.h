// Planned memory of one device: one block, taken from front to back, given back to a mark.
//
// The plan device's arena has no memory: vx_arena_take gives tensors without data and only the high-water mark counts,
// by the same code path that will take the memory for real. So: run the stage on a plan device with a plan arena, then
// create the real arena with vx_arena_high(plan arena). A short plan is our bug: the tensor comes without data and the
// operator that gets it fails with VX_ERR_INTERNAL.
#ifndef VX_DEVICE_ARENA_H
#define VX_DEVICE_ARENA_H

#include "device/device.h"

typedef struct vx_arena vx_arena;

enum { VX_ARENA_ALIGN = 64 };

vx_status vx_arena_create(vx_device *dev, vx_arena **out, size_t bytes); // plan device: bytes is ignored
void vx_arena_destroy(vx_arena **arena);
vx_tensor vx_arena_take(vx_arena *arena, vx_dtype dtype, int rank, const int64_t *shape); // contiguous, aligned to 64
#define vx_arena_tensor(arena, dtype, ...) \
    vx_arena_take((arena), (dtype), (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]){ __VA_ARGS__ })
size_t vx_arena_mark(const vx_arena *arena);
void vx_arena_reset(vx_arena *arena, size_t mark); // everything taken since is gone
size_t vx_arena_high(const vx_arena *arena);
vx_device *vx_arena_device(const vx_arena *arena);

#endif
