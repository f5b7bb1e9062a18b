// Inside the room: one block of ggml's formats.
#ifndef VX_TENSOR_QUANT_GGUF_H
#define VX_TENSOR_QUANT_GGUF_H

#include <stdint.h>

// A block of `type` (which vx_gguf_block knows) to vx_gguf_block(type) numbers.
void vx_gguf_decode(int type, const uint8_t *block, float *out);

#endif
