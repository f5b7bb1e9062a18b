// Inside the room: the language model's sizes, from config.json's "text_config" or, for a single file, from the tensors.
#ifndef VX_TEXT_LANGUAGE_CONFIG_H
#define VX_TEXT_LANGUAGE_CONFIG_H

#include "text/language.h"

// VX_ERR_CONFIG where the configuration asks for what this model does not have (bias, another activation, another rotary
// layout); VX_ERR_TENSOR_MISSING if the files hold fewer than 50 layers.
vx_status vx_language_config_read(vx_language_config *out, const vx_component *component);

#endif
