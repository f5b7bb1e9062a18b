// The language model of Qwen3-VL: 50 decoder layers; the result is the residual stream after them, without the final norm
// (text-encoder specification, section 3). Layers beyond 50, the final norm and the head are neither read nor demanded.
#ifndef VX_TEXT_LANGUAGE_H
#define VX_TEXT_LANGUAGE_H

#include "device/arena.h"
#include "weights/component.h"

enum { VX_LANGUAGE_LAYERS = 50 };

typedef struct vx_language vx_language;
typedef struct vx_language_config {
    int64_t hidden, heads, kv_heads, head_dim, intermediate, vocabulary, layers_in_file;
    float rms_eps;
    double rope_theta;
    int mrope_section[3];
} vx_language_config;

// Binds the weights (borrowed: the component outlives it). The vision tower's tensors are left alone.
vx_status vx_language_open(vx_language **out, vx_component *component);
void vx_language_close(vx_language **language);
const vx_language_config *vx_language_config_of(const vx_language *language);

// A run of rows whose embedding is replaced by vision features, and to which the deep-stack features are added after
// layers 0, 1, 2 (3.5). On the device, act.
typedef struct vx_language_features {
    int64_t row;                 // first row
    vx_tensor features, deep[3]; // [count, hidden]
} vx_language_features;
typedef struct vx_language_run {
    const int32_t *ids;
    const int64_t *positions;
    int64_t rows;
    const vx_language_features *features;
    int feature_count;
    void (*layer_done)(void *user, int layer);
    void *user;
} vx_language_run;
// out [rows, hidden] act (bf16: the exact arithmetic; f32: every rounding omitted). ids [rows], on the host, in 0..vocabulary-1.
// positions [3][rows] (t, h, w), on the host; NULL = 0..rows-1 on all three. Scratch comes from the arena and is given back.
// Works on the plan device (ids may then be NULL). layer_done (may be NULL) is called after each layer.
// features (feature_count of them; borrowed): see above; the pads' ids do not matter. The plan device needs their shapes too.
// Errors: VX_ERR_NOT_FINITE names the first layer whose residual stream holds NaN or infinity; VX_ERR_CONFIG: an id outside;
// VX_ERR_SHAPE, _DTYPE: out or features.
vx_status vx_language_encode(const vx_language *language, vx_device *dev, vx_arena *arena, vx_tensor out,
                             const vx_language_run *run);

#endif
