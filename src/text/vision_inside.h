// Inside the room: what the files of the vision tower share.
#ifndef VX_TEXT_VISION_INSIDE_H
#define VX_TEXT_VISION_INSIDE_H

#include "text/vision.h"

// The size rules of vision.h take no configuration, so these are the only sizes that are opened.
enum {
    VX_VISION_PATCH = 16,
    VX_VISION_FRAMES = 2, // frames of one patch
    VX_VISION_MERGE = 2,
    VX_VISION_SIDE = VX_VISION_PATCH * VX_VISION_MERGE, // pixels of a merged feature's side
    VX_VISION_UNIT = VX_VISION_MERGE * VX_VISION_MERGE, // patches of a merged feature
    VX_VISION_PATCH_VALUES = 3 * VX_VISION_FRAMES * VX_VISION_PATCH * VX_VISION_PATCH,
    VX_VISION_DEEP = 3,
    VX_VISION_MAX_SIDE = 65536 // pixels
};

// VX_ERR_CONFIG where the configuration asks for what this tower does not have.
vx_status vx_vision_config_read(vx_vision_config *out, const vx_component *component);

// ---- what the host prepares for a block of patches ----
// Patches stand by merged features: (row, column) of patch i of a grid `width` patches wide (4.3).
void vx_vision_patch_at(int64_t i, int64_t width, int64_t *row, int64_t *column);

// Patches [begin, begin + patches.shape[0]) of two frames of [height, width, 3] pixels.   patches [n, PATCH_VALUES] act
vx_status vx_vision_upload_patches(vx_device *dev, vx_tensor patches, int64_t begin, const uint8_t *first, const uint8_t *second,
                                   int64_t width);

// Corners of every patch in the table of positions, and their shares (4.5).   ids [n, 4] i32   weights [n, 4] f32
// Cosines and sines of rows and columns (4.6).   cos, sin [n, head_dim / 2] f32
// grid_height, grid_width: patches; n their product.
vx_status vx_vision_upload_positions(vx_device *dev, vx_tensor ids, vx_tensor weights, int64_t grid_side, int64_t grid_height,
                                     int64_t grid_width);
vx_status vx_vision_upload_rotary(vx_device *dev, vx_tensor cos, vx_tensor sin, int64_t grid_width);

#endif
