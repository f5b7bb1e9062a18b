// Inside the room: the CUDA device. C files translate arguments and decide; kernels/*.cu compute, behind launchers with plain
// C signatures (kernels/*.h), and return what CUDA answered.
#ifndef VX_DEVICE_CUDA_CUDA_H
#define VX_DEVICE_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#include "device/backend.h"

typedef struct vx_cuda_weights vx_cuda_weights; // weights.c: copies of file memory, by address
typedef struct vx_cuda_blas vx_cuda_blas;       // linear.c: cuBLASLt, loaded at run time
typedef struct vx_cuda_dnn vx_cuda_dnn;         // cudnn.c: cuDNN, loaded at run time; NULL where there is none

typedef struct vx_cuda {
    vx_device base;
    int ordinal, sm, multiprocessors; // sm 90: compute capability 9.0
    cudaStream_t stream;              // all operators, in order
    vx_attention_choice attention;
    void *scratch;
    size_t scratch_size;
    int64_t scratch_growths; // a plan was too small: a fault that tests count
    vx_cuda_weights *weights;
    vx_cuda_blas *blas;
    vx_cuda_dnn *dnn;
} vx_cuda;

static inline vx_cuda *vx_cuda_of(vx_device *dev)
{
    return (vx_cuda *)dev;
}
static inline const vx_cuda *vx_cuda_of_const(const vx_device *dev)
{
    return (const vx_cuda *)dev;
}

// cudaSuccess is OK; out of memory VX_ERR_MEMORY; all else VX_ERR_DEVICE with CUDA's words. `what` names the operator.
vx_status vx_cuda_status(cudaError_t error, const char *what);
// Scratch of the running operator; grows only where a plan was too small.
vx_status vx_cuda_scratch(vx_cuda *cuda, size_t bytes, void **out);
// Makes t->data an address on the device: left alone if it is one, else the device's copy of the file's bytes (weights.c).
// `once`: the copy is not kept. The copy is valid for work put on cuda->stream until the next call with `once` or eviction,
// which wait for it by events.
vx_status vx_cuda_resident(vx_cuda *cuda, vx_tensor *t, bool once);
// The same, converted to `dtype` (f32|bf16|f16, rounded to nearest even) on the way; the converted copy is what is kept.
vx_status vx_cuda_resident_as(vx_cuda *cuda, vx_tensor *t, vx_dtype dtype, bool once);

#define VX_CUDA_DECLARE(op) vx_status vx_cuda_##op(vx_device *dev, const vx_##op##_args *args);
VX_OPERATORS(VX_CUDA_DECLARE)
#undef VX_CUDA_DECLARE
size_t vx_cuda_linear_scratch(const vx_device *dev, const vx_linear_args *args);
size_t vx_cuda_attention_scratch(const vx_device *dev, const vx_attention_args *args);
size_t vx_cuda_conv1d_scratch(const vx_device *dev, const vx_conv1d_args *args);
size_t vx_cuda_conv_transpose1d_scratch(const vx_device *dev, const vx_conv1d_args *args);
size_t vx_cuda_snake_alias_free_scratch(const vx_device *dev, const vx_snake_alias_free_args *args);
size_t vx_cuda_conv3d_scratch(const vx_device *dev, const vx_conv3d_args *args);

// cudnn.c. VX_ERR_UNSUPPORTED: no library, or no engine for this shape; the caller takes the own kernel.
void vx_cuda_dnn_open(vx_cuda *cuda);
void vx_cuda_dnn_close(vx_cuda *cuda);
const char *vx_cuda_dnn_version(const vx_cuda *cuda); // "9.19.0 (path)", or NULL
vx_status vx_cuda_dnn_attention(vx_cuda *cuda, const vx_attention_args *args);
size_t vx_cuda_dnn_attention_scratch(const vx_cuda *cuda, const vx_attention_args *args);

#endif
