// Pictures resized exactly as the reference does: Pillow's and PyTorch's 8-bit resampling (audio-and-media specification B4,
// text-encoder specification 4.2). Host only, RGB [height, width, 3].
#ifndef VX_MEDIA_RESIZE_H
#define VX_MEDIA_RESIZE_H

#include <stdint.h>

#include "base/status.h"

typedef enum vx_resize_filter {
    VX_RESIZE_LANCZOS,       // Pillow 13, whose order of passes depends on the sizes
    VX_RESIZE_BICUBIC,       // Pillow 13
    VX_RESIZE_BICUBIC_TORCH, // torchvision's antialiased bicubic on uint8: 16-bit weights, always rows first across
} vx_resize_filter;
// Equal sizes copy. VX_ERR_MEMORY; sizes at least 1, at most 65,536 a side.
vx_status vx_resize(uint8_t *out, int64_t out_width, int64_t out_height, const uint8_t *in, int64_t width, int64_t height,
                    vx_resize_filter filter);
// Scale to cover, then crop the centre with floor division (B5, the follower).
vx_status vx_resize_cover(uint8_t *out, int64_t out_width, int64_t out_height, const uint8_t *in, int64_t width, int64_t height);

#endif
