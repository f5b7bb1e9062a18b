// Inside the room: several strided tensors of one shape, seen as lines along one axis.
//
// Axes of extent 1 go, axes that are one piece of memory in every tensor become one, and the axis along which the first
// tensor (the output) is most dense becomes the line. Element-wise operators do not care in which order they see elements,
// so the result is that of the plain loop nest.
#ifndef VX_DEVICE_WALK_H
#define VX_DEVICE_WALK_H

#include "tensor/tensor.h"

enum { VX_WALK_TENSORS = 4 };

typedef struct vx_walk {
    int rank, tensors; // rank >= 1
    int64_t shape[VX_MAX_RANK];
    int64_t stride[VX_WALK_TENSORS][VX_MAX_RANK]; // elements
} vx_walk;

// The tensors have the same shape and at least one element.
vx_walk vx_walk_of(int tensors, const vx_tensor *t);

// A tensor of t's shape that repeats `vector` along every axis but `axis`.
vx_tensor vx_along_axis(vx_tensor t, vx_tensor vector, int axis);

#endif
