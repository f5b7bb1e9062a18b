// Writing a safetensors file whose data does not fit in memory at once: the header first, then the tensors' bytes in order.
#ifndef VX_WEIGHTS_SAFETENSORS_STREAM_H
#define VX_WEIGHTS_SAFETENSORS_STREAM_H

#include "weights/safetensors.h"

typedef struct vx_safetensors_stream vx_safetensors_stream;

// Metadata of a file whose tensors are holes (src/demo/hollow.c): it plans, but must not run.
#define VX_HOLLOW_KEY "vortex_hollow"

// The tensors' data members are ignored; their order is the order of the bytes to come.
vx_status vx_safetensors_stream_begin(vx_safetensors_stream **out, const char *path, bool replace,
                                      const vx_safetensors_tensor *tensors, int count, const vx_safetensors_pair *metadata,
                                      int pairs);
vx_status vx_safetensors_stream_put(vx_safetensors_stream *stream, const void *bytes, size_t size);
// A hole of `size` bytes: they read as zeros and take no room where the file system can do that.
vx_status vx_safetensors_stream_skip(vx_safetensors_stream *stream, uint64_t size);
// Gives the file its name; VX_ERR_INTERNAL if fewer or more bytes came than the header says.
vx_status vx_safetensors_stream_finish(vx_safetensors_stream **stream);
void vx_safetensors_stream_discard(vx_safetensors_stream **stream); // nothing is left behind

#endif
