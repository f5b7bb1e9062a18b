// The video VAE's decoder: a bidirectional ViT over 256-pixel tiles and windows of 7 latent frames, blended in space and
// cross-faded in time (video VAE specification, sections 8-11). Streamed: memory does not depend on the clip's length.
#ifndef VX_VAE_VIDEO_DECODER_H
#define VX_VAE_VIDEO_DECODER_H

#include "device/arena.h"
#include "weights/component.h"

typedef struct vx_video_decoder vx_video_decoder;
typedef struct vx_video_decoder_config {
    int64_t latent_channels, layers, heads, head_dim, dim, ffn, register_tokens, patch_height, patch_width, patch_frames;
    int64_t tile_size, tile_overlap; // pixels
    float latents_mean[64], latents_std[64];
} vx_video_decoder_config;

vx_status vx_video_decoder_open(vx_video_decoder **out, vx_component *component); // ignores the encoder's tensors
void vx_video_decoder_close(vx_video_decoder **decoder);
const vx_video_decoder_config *vx_video_decoder_config_of(const vx_video_decoder *decoder);

// Tiles along one axis of `length` pixels (8.1). Returns the count, at most `capacity`; start and overlap in pixels.
int vx_tile_plan(int64_t length, int64_t size, int64_t overlap, int capacity, int64_t *start, int64_t *overlaps);
int64_t vx_decoded_frames(int64_t latent_frames); // T >= 3; 5n+2 gives 17n+5

// Frames of one window, in order: [count, height, width, 3] f32 in 0..1 (clamped, before 8-bit rounding), valid during the
// call, on the device. A failure stops the decode and is passed on.
typedef vx_status (*vx_frames_fn)(void *user, int64_t first, vx_tensor frames);
typedef struct vx_video_decode {
    vx_tensor latent; // [channels, T, H/16, W/16] f32, normalised unless `denormalised`
    bool denormalised;
    bool half;           // half precision: f16 products with f32 sums, f32 residual stream, norms and pixels (specification 14)
    bool exact_rope;     // of half precision: rotary tables from f32 coordinates, as diffusers has them; else from f16 ones
    int batch;           // tiles that go through the layers together; 0 = 1. Shows in memory and, on a GPU, in the last bits
    vx_frames_fn frames; // NULL on the plan device
    void *user;
    vx_status (*progress)(void *user, int64_t done, int64_t total); // tiles; may be NULL. A failure is one as of `frames`
} vx_video_decode;
// Output that is not finite is VX_ERR_NOT_FINITE naming the window. T off the 5n+2 lattice is decoded by rule 10.4; T < 3 is VX_ERR_RANGE.
vx_status vx_video_decoder_run(const vx_video_decoder *decoder, vx_device *dev, vx_arena *arena, const vx_video_decode *decode);

#endif
