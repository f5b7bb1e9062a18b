// Walks several strided tensors of one shape together, as lines along one axis, over the pool.
//
// Axes of extent 1 go, axes that are one piece of memory in every tensor become one, and the axis along which the first
// tensor (the output) is most dense becomes the line. Element-wise operators do not care in which order they see elements,
// so the result is that of the plain loop nest.
#ifndef VX_DEVICE_CPU_WALK_H
#define VX_DEVICE_CPU_WALK_H

#include "device/cpu/cpu.h"

enum { VX_WALK_TENSORS = 4 };

typedef struct vx_walk {
    int rank, tensors; // rank >= 1
    int64_t shape[VX_MAX_RANK];
    int64_t stride[VX_WALK_TENSORS][VX_MAX_RANK]; // elements
} vx_walk;

// n elements: element i of tensor t is offset[t] + i * step[t] elements from its data.
typedef void (*vx_walk_line)(const void *ctx, int64_t n, const int64_t *offset, const int64_t *step);

// The tensors have the same shape and at least one element.
vx_walk vx_walk_of(int tensors, const vx_tensor *t);
void vx_walk_run(vx_cpu *cpu, const vx_walk *walk, vx_walk_line line, const void *ctx);

// A tensor of t's shape that repeats `vector` along every axis but `axis`.
vx_tensor vx_along_axis(vx_tensor t, vx_tensor vector, int axis);

#endif
