// Who draws what: the three noise conventions (denoiser specification 7.1). Host memory, f32.
#ifndef VX_SAMPLING_NOISE_H
#define VX_SAMPLING_NOISE_H

#include "base/status.h"
#include <stdint.h>

typedef enum vx_noise { VX_NOISE_SGLANG, VX_NOISE_DIFFUSERS, VX_NOISE_COMFYUI } vx_noise;

typedef struct vx_noise_shape {
    int64_t channels, frames, height, width;
} vx_noise_shape;
typedef struct vx_noise_params {
    vx_noise convention;
    uint64_t seed;
    vx_noise_shape video;                 // latent
    int64_t audio_channels, audio_frames; // per stereo channel
    const vx_noise_shape *conditions;     // visual conditions in packed order
    int condition_count;
} vx_noise_params;

// video [channels, T, H, W]; audio [2, channels, A] (as latents, not rows); conditions[i]: latent order, or for comfyui the
// patchified rows brought back to latent order. Any pointer may be NULL if not wanted (the draws happen all the same).
vx_status vx_noise_draw(const vx_noise_params *params, float *video, float *audio, float *const *conditions);

#endif
