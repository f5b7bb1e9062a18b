// Checkpoints of MiniMax H3 that this version does not run, told by name before anything is bound (inside this room only).
#ifndef VX_WEIGHTS_REFUSE_H
#define VX_WEIGHTS_REFUSE_H

#include "weights/component.h"

// A quantised file, whatever its names: by markers, companions, metadata or number formats. VX_ERR_TENSOR_DTYPE.
vx_status vx_refuse_quantised(const vx_safetensors *st);
// A LoRA file. VX_ERR_MODEL_LAYOUT.
vx_status vx_refuse_adapter(const vx_safetensors *st);
// Variants of the network, by canonical names. VX_ERR_MODEL_LAYOUT.
vx_status vx_refuse_variant(const vx_component *c);

#endif
