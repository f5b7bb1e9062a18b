// Inside the CUDA device: what conv1d, conv_transpose1d and conv3d share.
#ifndef VX_DEVICE_CUDA_CONV_H
#define VX_DEVICE_CUDA_CONV_H

#include "device/cuda/cuda.h"
#include "device/cuda/kernels/conv.h"

// Extents of a product fit an int; the operator is refused otherwise.
vx_status vx_cuda_conv_check(const char *op, const vx_tensor *tensors, int count);
// The weight's place and format, then the bias's (of rank 0: none), on the device.
vx_status vx_cuda_conv_weights(vx_cuda *cuda, vx_k_conv *c, vx_tensor w, vx_tensor bias);
// The tile that is expected to be fastest on so many multiprocessors.
vx_k_conv_tile vx_cuda_conv_pick(const vx_k_conv *c, int multiprocessors);
// By parts: with which tile, and whether every segment of a sum has a block of its own.
typedef struct vx_cuda_parts {
    vx_k_parts_tile tile;
    bool each;
} vx_cuda_parts;
// Whether products by parts are worth their way for this shape, and how. Never looks at how far the card is otherwise busy.
bool vx_cuda_conv_parts(const vx_cuda *cuda, const vx_k_conv *c, vx_cuda_parts *how);
// Bytes that vx_cuda_conv_run will take.
size_t vx_cuda_conv_scratch(const vx_device *dev, const vx_k_conv *c);
// Takes scratch, picks kernel and tile, runs.
vx_status vx_cuda_conv_run(vx_cuda *cuda, vx_k_conv *c, const char *op);

#endif
