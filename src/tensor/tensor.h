// A strided view of numbers that somebody else owns. Passed by value; making one never allocates.
#ifndef VX_TENSOR_TENSOR_H
#define VX_TENSOR_TENSOR_H

#include "base/status.h"
#include "tensor/dtype.h"
#include <stdbool.h>
#include <stdint.h>

enum { VX_MAX_RANK = 8 };

typedef struct vx_tensor {
    vx_dtype dtype;
    int rank;                    // 0: no tensor (as an optional argument)
    int64_t shape[VX_MAX_RANK];  // elements
    int64_t stride[VX_MAX_RANK]; // elements
    void *data;                  // NULL only on the plan back end; read-only where the owner says so
} vx_tensor;

// Contiguous, row-major. vx_tensor_of(p, VX_F32, 3, 24, H, W)
vx_tensor vx_tensor_make(void *data, vx_dtype dtype, int rank, const int64_t *shape);
#define vx_tensor_of(data, dtype, ...) \
    vx_tensor_make((data), (dtype), (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]){ __VA_ARGS__ })

int64_t vx_tensor_count(vx_tensor t); // elements
size_t vx_tensor_bytes(vx_tensor t);  // of a contiguous tensor of this shape
bool vx_tensor_contiguous(vx_tensor t);
bool vx_same_shape(vx_tensor a, vx_tensor b);
// Views. An index outside, or a shape that the strides cannot express, gives a tensor of rank 0: operators refuse it.
vx_tensor vx_tensor_slice(vx_tensor t, int axis, int64_t begin, int64_t end);
vx_tensor vx_tensor_row(vx_tensor t, int64_t i);                          // t[i], one rank less
vx_tensor vx_tensor_split(vx_tensor t, int axis, int64_t inner);          // axis of n becomes [n/inner, inner]
vx_tensor vx_tensor_merge(vx_tensor t, int axis);                         // axis and axis+1 become one, where strides allow
vx_tensor vx_tensor_permute(vx_tensor t, const int *axes);                // out axis i is in axis axes[i]
vx_tensor vx_tensor_reshape(vx_tensor t, int rank, const int64_t *shape); // contiguous tensors only
const char *vx_shape_text(char out[96], vx_tensor t);                     // "[24,37,48,84]"

static inline float *vx_f32_of(vx_tensor t)
{
    return (float *)t.data;
}

#endif
