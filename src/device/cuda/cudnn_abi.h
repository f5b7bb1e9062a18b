// The numbers of cuDNN 9's binary interface that we use, so that neither the library nor its headers are needed to build.
// tests/cuda/test_cudnn_abi.c compares them with the headers where they are installed.
#ifndef VX_DEVICE_CUDA_CUDNN_ABI_H
#define VX_DEVICE_CUDA_CUDNN_ABI_H

typedef int vx_dnn_status;
typedef void *vx_dnn_handle;
typedef void *vx_dnn_descriptor;

#define VX_DNN_CONSTANTS(X)                        \
    X(STATUS_SUCCESS, 0)                           \
    X(STATUS_NOT_SUPPORTED, 3000)                  \
    X(DATA_FLOAT, 0)                               \
    X(DATA_HALF, 2)                                \
    X(DATA_BFLOAT16, 9)                            \
    X(TYPE_DATA_TYPE, 1)                           \
    X(TYPE_HANDLE, 0)                              \
    X(TYPE_BOOLEAN, 2)                             \
    X(TYPE_INT64, 3)                               \
    X(TYPE_VOID_PTR, 6)                            \
    X(TYPE_HEUR_MODE, 8)                           \
    X(TYPE_NUMERICAL_NOTE, 11)                     \
    X(TYPE_POINTWISE_MODE, 14)                     \
    X(TYPE_BACKEND_DESCRIPTOR, 15)                 \
    X(TYPE_REDUCTION_OPERATOR_TYPE, 18)            \
    X(BACKEND_POINTWISE_DESCRIPTOR, 0)             \
    X(BACKEND_ENGINE_DESCRIPTOR, 2)                \
    X(BACKEND_ENGINECFG_DESCRIPTOR, 3)             \
    X(BACKEND_ENGINEHEUR_DESCRIPTOR, 4)            \
    X(BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)        \
    X(BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)  \
    X(BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)       \
    X(BACKEND_VARIANT_PACK_DESCRIPTOR, 16)         \
    X(BACKEND_TENSOR_DESCRIPTOR, 17)               \
    X(BACKEND_MATMUL_DESCRIPTOR, 18)               \
    X(BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)     \
    X(BACKEND_REDUCTION_DESCRIPTOR, 21)            \
    X(BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)  \
    X(BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, 41)   \
    X(ATTR_POINTWISE_MODE, 0)                      \
    X(ATTR_POINTWISE_MATH_PREC, 1)                 \
    X(ATTR_ENGINEHEUR_MODE, 200)                   \
    X(ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)        \
    X(ATTR_ENGINEHEUR_RESULTS, 202)                \
    X(ATTR_ENGINECFG_ENGINE, 300)                  \
    X(ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)      \
    X(ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)     \
    X(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750) \
    X(ATTR_OPERATION_POINTWISE_XDESC, 751)         \
    X(ATTR_OPERATION_POINTWISE_BDESC, 752)         \
    X(ATTR_OPERATION_POINTWISE_YDESC, 753)         \
    X(ATTR_OPERATIONGRAPH_OPS, 801)                \
    X(ATTR_TENSOR_BYTE_ALIGNMENT, 900)             \
    X(ATTR_TENSOR_DATA_TYPE, 901)                  \
    X(ATTR_TENSOR_DIMENSIONS, 902)                 \
    X(ATTR_TENSOR_STRIDES, 903)                    \
    X(ATTR_TENSOR_UNIQUE_ID, 906)                  \
    X(ATTR_TENSOR_IS_VIRTUAL, 907)                 \
    X(ATTR_TENSOR_IS_BY_VALUE, 908)                \
    X(ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)          \
    X(ATTR_VARIANT_PACK_DATA_POINTERS, 1001)       \
    X(ATTR_VARIANT_PACK_WORKSPACE, 1003)           \
    X(ATTR_ENGINE_NUMERICAL_NOTE, 1303)            \
    X(ATTR_MATMUL_COMP_TYPE, 1500)                 \
    X(ATTR_OPERATION_MATMUL_ADESC, 1520)           \
    X(ATTR_OPERATION_MATMUL_BDESC, 1521)           \
    X(ATTR_OPERATION_MATMUL_CDESC, 1522)           \
    X(ATTR_OPERATION_MATMUL_DESC, 1523)            \
    X(ATTR_REDUCTION_OPERATOR, 1600)               \
    X(ATTR_REDUCTION_COMP_TYPE, 1601)              \
    X(ATTR_OPERATION_REDUCTION_XDESC, 1610)        \
    X(ATTR_OPERATION_REDUCTION_YDESC, 1611)        \
    X(ATTR_OPERATION_REDUCTION_DESC, 1612)         \
    X(ATTR_OPERATION_SDPA_FWD_QDESC, 2800)         \
    X(ATTR_OPERATION_SDPA_FWD_KDESC, 2801)         \
    X(ATTR_OPERATION_SDPA_FWD_VDESC, 2802)         \
    X(ATTR_OPERATION_SDPA_FWD_ODESC, 2803)         \
    X(ATTR_OPERATION_SDPA_FWD_SCALEDESC, 2805)     \
    X(NUMERICAL_NOTE_NONDETERMINISTIC, 4)          \
    X(POINTWISE_MUL, 1)                            \
    X(POINTWISE_ADD, 0)                            \
    X(POINTWISE_DIV, 6)                            \
    X(POINTWISE_SUB, 9)                            \
    X(POINTWISE_LOG, 15)                           \
    X(POINTWISE_EXP, 13)                           \
    X(REDUCE_TENSOR_ADD, 0)                        \
    X(REDUCE_TENSOR_MAX, 3)                        \
    X(HEUR_MODE_A, 3)

// Marked as deprecated in newer headers, and still wanted: without it 9.14 and 9.19 propose no engine.
enum { VX_DNN_ATTR_OPERATIONGRAPH_HANDLE = 800 };

#define VX_DNN_CONSTANT(name, value) VX_DNN_##name = (value),
enum { VX_DNN_CONSTANTS(VX_DNN_CONSTANT) };
#undef VX_DNN_CONSTANT

#endif
