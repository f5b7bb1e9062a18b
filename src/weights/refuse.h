// Checkpoints of MiniMax H3 that this version does not run, told by name before anything is bound (inside this room only).
#ifndef VX_WEIGHTS_REFUSE_H
#define VX_WEIGHTS_REFUSE_H

#include "weights/component.h"
#include "weights/container.h"

// Formats of other quantisers, told by what only they write. VX_ERR_QUANT_FORMAT.
vx_status vx_refuse_quantiser(const vx_container *file);
// A LoRA file. VX_ERR_MODEL_LAYOUT.
vx_status vx_refuse_adapter(const vx_container *file);
// Variants of the network, by canonical names. VX_ERR_MODEL_LAYOUT.
vx_status vx_refuse_variant(const vx_component *c);

#endif
