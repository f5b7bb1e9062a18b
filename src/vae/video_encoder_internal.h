// Inside the room: the video encoder's weights and one tile of one clip.
#ifndef VX_VAE_VIDEO_ENCODER_INTERNAL_H
#define VX_VAE_VIDEO_ENCODER_INTERNAL_H

#include "vae/video_encoder.h"
#include "vae/video_internal.h"

// Of the last clip three latents are dropped. Latent r depends on frames 0..4r of its clip (specification 5.6), so its
// first five frames are enough, and copies of the last frame are needed only where fewer than five are left.
enum { VX_MAX_LEVELS = 8, VX_LAST_LATENTS = VX_CLIP_LATENTS - VX_TOKEN_DROP, VX_LAST_FRAMES = 5, VX_GROUPS = 32 };

typedef struct vx_video_affine {
    vx_tensor weight, bias;
} vx_video_affine;

typedef struct vx_video_resnet {
    vx_video_affine norm1, conv1, norm2, conv2;
    vx_video_affine shortcut; // rank 0 where the width stays
} vx_video_resnet;

struct vx_video_encoder {
    vx_video_encoder_config config;
    vx_component *component; // borrowed
    float eps;
    int64_t width; // channels after conv_in
    vx_video_affine conv_in, norm_out, conv_out, quant;
    vx_video_resnet *block; // [levels * blocks]
    vx_video_affine down[VX_MAX_LEVELS];
};

// Three buffers of one tile, each as large as the largest activation: what a block reads, and two to work in.
typedef struct vx_encoder_tile {
    vx_tensor x, a, b; // flat
    bool pictures;     // the frames are as many tiles of pictures, which know nothing of each other
} vx_encoder_tile;

void vx_encoder_tile_create(vx_encoder_tile *tile, const vx_video_encoder *encoder, vx_arena *arena, int64_t frames,
                            int64_t height, int64_t width, bool pictures);
// Where the tile's pixels go before it is run: [3, frames, height, width], ImageNet-normalised.
vx_tensor vx_encoder_tile_pixels(const vx_encoder_tile *tile, int64_t frames, int64_t height, int64_t width);
// moments [2*latent_channels, latents, height/16, width/16] of those pixels; of pictures a latent each.
//   fetch: ask for the next level's weights while one runs (the first tile of a cold file)
vx_status vx_encoder_tile_run(const vx_video_encoder *encoder, vx_device *dev, const vx_encoder_tile *tile, vx_tensor moments,
                              vx_tensor pixels, bool fetch);

// Of a picture up to `most` tiles at a time, 1 to VX_CLIP_LENGTH: the same bits, and no more memory than a clip takes.
vx_status vx_video_encoder_run_batched(const vx_video_encoder *encoder, vx_device *dev, vx_arena *arena,
                                       const vx_video_encode *encode, int64_t most);

#endif
