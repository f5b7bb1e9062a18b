// The video VAE's encoder: causal 3-D convolutions over 256-pixel tiles and clips of 17 frames (video VAE specification,
// sections 5-8). One frame takes the cheaper exact form. f32 throughout; memory bounded by one tile of one clip.
#ifndef VX_VAE_VIDEO_ENCODER_H
#define VX_VAE_VIDEO_ENCODER_H

#include "device/arena.h"
#include "weights/component.h"

typedef struct vx_video_encoder vx_video_encoder;
typedef struct vx_video_encoder_config {
    int64_t latent_channels, levels, blocks, channels[8], space_stride[8], time_stride[8], tile_size, tile_overlap;
    float latents_mean[64], latents_std[64];
} vx_video_encoder_config;

vx_status vx_video_encoder_open(vx_video_encoder **out, vx_component *component); // leaves the decoder's tensors alone
void vx_video_encoder_close(vx_video_encoder **encoder);
const vx_video_encoder_config *vx_video_encoder_config_of(const vx_video_encoder *encoder);

int64_t vx_encoded_frames(int64_t frames); // 1 gives 1; else clips of 17, padded with the last frame: 17n+5 gives 5n+2

// mean, logvar (clamped to -30..20; rank 0: not wanted) [channels, T, height/16, width/16] f32, the posterior's, un-normalised.
// pixels: [frames, height, width, 3] RGB on the host (NULL on the plan device), sides multiples of 16, at least 32.
typedef struct vx_video_encode {
    const uint8_t *pixels;
    int64_t frames, height, width;
    vx_tensor mean, logvar;
    void (*progress)(void *user, int64_t done, int64_t total); // tiles; may be NULL
    void *user;
} vx_video_encode;
vx_status vx_video_encoder_run(const vx_video_encoder *encoder, vx_device *dev, vx_arena *arena, const vx_video_encode *encode);

// The condition latent of the reference, on the host (6.1): mean + exp(logvar/2)*eps with eps from a generator seeded 42,
// rounded to f16, back to f32, normalised. mean, logvar, out: count = channels*T*h*w, channel-major.
void vx_video_condition(const vx_video_encoder *encoder, const float *mean, const float *logvar, int64_t count_per_channel,
                        float *out);

#endif
