// cuDNN's backend descriptors without its C++ frontend: the library's functions, found at run time, and a builder of graphs
// that keeps the first error and frees what it made.
#ifndef VX_DEVICE_CUDA_CUDNN_GRAPH_H
#define VX_DEVICE_CUDA_CUDNN_GRAPH_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "device/cuda/cudnn_abi.h"

typedef struct vx_dnn_library {
    void *loaded;
    vx_dnn_status (*create)(vx_dnn_handle *);
    vx_dnn_status (*destroy)(vx_dnn_handle);
    vx_dnn_status (*set_stream)(vx_dnn_handle, cudaStream_t);
    size_t (*version)(void);
    const char *(*error)(vx_dnn_status);
    void (*last_error)(char *, size_t);
    vx_dnn_status (*make)(int, vx_dnn_descriptor *);
    vx_dnn_status (*unmake)(vx_dnn_descriptor);
    vx_dnn_status (*finish)(vx_dnn_descriptor);
    vx_dnn_status (*set)(vx_dnn_descriptor, int, int, int64_t, const void *);
    vx_dnn_status (*get)(vx_dnn_descriptor, int, int, int64_t, int64_t *, void *);
    vx_dnn_status (*execute)(vx_dnn_handle, vx_dnn_descriptor, vx_dnn_descriptor);
    char named[96]; // "9.19.0 (path)"
} vx_dnn_library;

// The newest libcudnn.so.9 among the folders of VORTEX_LIBRARY_PATH and the default search. Two versions never meet in one
// process: cuDNN's parts stay loaded and the second's would be mixed with the first's. VX_ERR_UNSUPPORTED: none.
vx_status vx_dnn_library_open(vx_dnn_library *out);

// The library's word for a status and what it says of the last call that failed, in one line.
void vx_dnn_reason(const vx_dnn_library *library, vx_dnn_status status, char *out, size_t size);

typedef struct vx_dnn_builder {
    const vx_dnn_library *library;
    vx_dnn_handle handle; // for plans
    vx_dnn_status status; // of the first call that failed; later calls do nothing
    const char *failed;   // what it was about
    int count;
    vx_dnn_descriptor made[64];
} vx_dnn_builder;

vx_dnn_descriptor vx_dnn_make(vx_dnn_builder *b, int type, const char *what);
void vx_dnn_set(vx_dnn_builder *b, vx_dnn_descriptor d, int name, int type, int64_t count, const void *values);
void vx_dnn_set_descriptor(vx_dnn_builder *b, vx_dnn_descriptor d, int name, vx_dnn_descriptor value);
void vx_dnn_finish(vx_dnn_builder *b, vx_dnn_descriptor d);
void vx_dnn_clear(vx_dnn_builder *b); // frees all

typedef enum vx_dnn_kind { VX_DNN_REAL, VX_DNN_VIRTUAL, VX_DNN_BY_VALUE } vx_dnn_kind;
// Of rank 4; virtual: lives inside the graph; by value: a number of the host.
vx_dnn_descriptor vx_dnn_tensor(vx_dnn_builder *b, int64_t id, int type, const int64_t shape[4], const int64_t stride[4],
                                vx_dnn_kind kind);
// Operations computed in f32. `y` absent (NULL) for functions of one argument.
vx_dnn_descriptor vx_dnn_matmul(vx_dnn_builder *b, vx_dnn_descriptor out, vx_dnn_descriptor x, vx_dnn_descriptor y);
vx_dnn_descriptor vx_dnn_pointwise(vx_dnn_builder *b, int mode, vx_dnn_descriptor out, vx_dnn_descriptor x, vx_dnn_descriptor y);
vx_dnn_descriptor vx_dnn_reduce(vx_dnn_builder *b, int op, vx_dnn_descriptor out, vx_dnn_descriptor x);
// The first plan that the library's heuristics propose, that gives the same bits every time and that can be built; it is the
// caller's. NULL: none.
vx_dnn_descriptor vx_dnn_plan(vx_dnn_builder *b, const vx_dnn_descriptor *operations, int count);

#endif
