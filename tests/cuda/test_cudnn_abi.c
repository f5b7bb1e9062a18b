// The numbers in cudnn_abi.h are those of cuDNN's headers, where these are installed.
#include "device/cuda/cudnn_abi.h"

#include <stdio.h>

#if __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>

#define SAME(name, value) _Static_assert((int)CUDNN_##name == (value), #name);
VX_DNN_CONSTANTS(SAME)
#undef SAME
_Static_assert(sizeof(cudnnStatus_t) == sizeof(vx_dnn_status), "status");
_Static_assert(sizeof(cudnnBackendDescriptor_t) == sizeof(vx_dnn_descriptor), "descriptor");
_Static_assert(sizeof(cudnnHandle_t) == sizeof(vx_dnn_handle), "handle");
_Static_assert(sizeof(cudnnDataType_t) == sizeof(int), "number format");
_Static_assert(sizeof(cudnnBackendAttributeName_t) == sizeof(int), "attribute");
_Static_assert(sizeof(cudnnPointwiseMode_t) == sizeof(int), "function");

int main(void)
{
    printf("the same as cuDNN %d's headers\n", CUDNN_VERSION);
    return 0;
}
#else
int main(void)
{
    printf("no headers of cuDNN: skipped\n");
    return 77;
}
#endif
