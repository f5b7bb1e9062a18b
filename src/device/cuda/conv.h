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
// Takes scratch, picks a tile, runs.
vx_status vx_cuda_conv_run(vx_cuda *cuda, vx_k_conv *c, const char *op);

#endif
