// Runs the lines of a walk (device/walk.h) over the pool.
#ifndef VX_DEVICE_CPU_WALK_H
#define VX_DEVICE_CPU_WALK_H

#include "device/cpu/cpu.h"
#include "device/walk.h"

// n elements: element i of tensor t is offset[t] + i * step[t] elements from its data.
typedef void (*vx_walk_line)(const void *ctx, int64_t n, const int64_t *offset, const int64_t *step);

void vx_walk_run(vx_cpu *cpu, const vx_walk *walk, vx_walk_line line, const void *ctx);

#endif
