// The vision tower of Qwen3-VL: pictures and frame pairs to feature rows for the language model (text-encoder
// specification, section 4). Pixels come already resized by the rule below (media/resize.h does that).
#ifndef VX_TEXT_VISION_H
#define VX_TEXT_VISION_H

#include "device/arena.h"
#include "weights/component.h"

typedef struct vx_vision vx_vision;
typedef struct vx_vision_config {
    int64_t hidden, heads, depth, intermediate, out_hidden, patch, temporal_patch, merge, grid_side;
    int64_t deep[3]; // blocks after which deep-stack features are taken
} vx_vision_config;

// Binds model.visual.* (the language model's tensors are left alone). Borrows the component.
// VX_ERR_MODEL_COMPONENT: the files hold no tower.
vx_status vx_vision_open(vx_vision **out, vx_component *component);
void vx_vision_close(vx_vision **vision);
const vx_vision_config *vx_vision_config_of(const vx_vision *vision);

// The size that the tower wants for a picture, and for a video of `frames` sampled frames (4.2). Sides are at least 1.
void vx_vision_picture_size(int64_t height, int64_t width, int64_t *to_height, int64_t *to_width);
void vx_vision_video_size(int64_t frames, int64_t height, int64_t width, int64_t *to_height, int64_t *to_width);

// One block: a picture (second = NULL: shown twice) or two sampled frames, RGB [height, width, 3] on the host (NULL on the plan
// device), sides multiples of 32 up to 65,536.   features, deep[3] [height*width/1024, out_hidden] act
// Scratch comes from the arena and is given back. Errors: VX_ERR_NOT_FINITE names the first block whose residual stream holds
// NaN or infinity.
vx_status vx_vision_encode(const vx_vision *vision, vx_device *dev, vx_arena *arena, vx_tensor features, const vx_tensor deep[3],
                           const uint8_t *first, const uint8_t *second, int64_t height, int64_t width);

#endif
