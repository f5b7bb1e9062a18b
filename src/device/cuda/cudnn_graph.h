// cuDNN's backend descriptors without its C++ frontend: the library's functions, found at run time, and a builder of graphs
// that keeps the first error and frees what it made.
#ifndef VX_DEVICE_CUDA_CUDNN_GRAPH_H
#define VX_DEVICE_CUDA_CUDNN_GRAPH_H

#include <cudnn_graph.h>

#include "base/status.h"

typedef struct vx_dnn_library {
    void *loaded;
    cudnnStatus_t (*create)(cudnnHandle_t *);
    cudnnStatus_t (*destroy)(cudnnHandle_t);
    cudnnStatus_t (*set_stream)(cudnnHandle_t, cudaStream_t);
    size_t (*version)(void);
    const char *(*error)(cudnnStatus_t);
    void (*last_error)(char *, size_t);
    cudnnStatus_t (*make)(cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t *);
    cudnnStatus_t (*unmake)(cudnnBackendDescriptor_t);
    cudnnStatus_t (*finish)(cudnnBackendDescriptor_t);
    cudnnStatus_t (*set)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t,
                         const void *);
    cudnnStatus_t (*get)(cudnnBackendDescriptor_t const, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t,
                         int64_t *, void *);
    cudnnStatus_t (*execute)(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t);
    char named[96]; // "9.19.0 (path)"
} vx_dnn_library;

// The newest libcudnn.so.9 among the folders of VORTEX_LIBRARY_PATH and the default search. Two versions never meet in one
// process: cuDNN's parts stay loaded and the second's would be mixed with the first's. VX_ERR_UNSUPPORTED: none.
vx_status vx_dnn_library_open(vx_dnn_library *out);

// The library's word for a status and what it says of the last call that failed, in one line.
void vx_dnn_reason(const vx_dnn_library *library, cudnnStatus_t status, char *out, size_t size);

typedef struct vx_dnn_builder {
    const vx_dnn_library *library;
    cudnnStatus_t status; // of the first call that failed; later calls do nothing
    const char *failed;   // what it was about
    int count;
    cudnnBackendDescriptor_t made[64];
} vx_dnn_builder;

cudnnBackendDescriptor_t vx_dnn_make(vx_dnn_builder *b, cudnnBackendDescriptorType_t type, const char *what);
void vx_dnn_set(vx_dnn_builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void *values);
void vx_dnn_set_descriptor(vx_dnn_builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                           cudnnBackendDescriptor_t value);
void vx_dnn_finish(vx_dnn_builder *b, cudnnBackendDescriptor_t d);
void vx_dnn_clear(vx_dnn_builder *b); // frees all

typedef enum vx_dnn_kind { VX_DNN_REAL, VX_DNN_VIRTUAL, VX_DNN_BY_VALUE } vx_dnn_kind;
// Of rank 4; virtual: lives inside the graph; by value: a number of the host.
cudnnBackendDescriptor_t vx_dnn_tensor(vx_dnn_builder *b, int64_t id, cudnnDataType_t type, const int64_t shape[4],
                                       const int64_t stride[4], vx_dnn_kind kind);
// Operations computed in f32. `y` absent (NULL) for functions of one argument.
cudnnBackendDescriptor_t vx_dnn_matmul(vx_dnn_builder *b, cudnnBackendDescriptor_t out, cudnnBackendDescriptor_t x,
                                       cudnnBackendDescriptor_t y);
cudnnBackendDescriptor_t vx_dnn_pointwise(vx_dnn_builder *b, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t out,
                                          cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y);
cudnnBackendDescriptor_t vx_dnn_reduce(vx_dnn_builder *b, cudnnReduceTensorOp_t op, cudnnBackendDescriptor_t out,
                                       cudnnBackendDescriptor_t x);
// The first plan that the library's heuristics propose, that gives the same bits every time and that can be built; it is the
// caller's. NULL: none.
cudnnBackendDescriptor_t vx_dnn_plan(vx_dnn_builder *b, const cudnnBackendDescriptor_t *operations, int count);

#endif
