// The audio VAE's encoder: strided convolutions, a causal attention projection, the posterior's mean (audio specification,
// A4, A5). Mono: a clip's channels go through it together, and none knows of the others. f32 throughout.
#ifndef VX_VAE_AUDIO_ENCODER_H
#define VX_VAE_AUDIO_ENCODER_H

#include "device/arena.h"
#include "weights/component.h"

typedef struct vx_audio_encoder vx_audio_encoder;
typedef struct vx_audio_encoder_config {
    int64_t encoder_dim, latent_dim, latent_channels, heads, hop, sample_rate, stages, rate[8];
    float latents_mean[64], latents_std[64];
} vx_audio_encoder_config;

// Binds to the headers alone: enough for a plan. Leaves the decoder's tensors alone.
vx_status vx_audio_encoder_bind(vx_audio_encoder **out, vx_component *component);
// Reads, widens and folds what the file does not hold as it is used; needed before the first run that computes. Once only.
vx_status vx_audio_encoder_fold(vx_audio_encoder *encoder, vx_device *dev);
// What folding will take, and keep; 0 once it is done.
vx_status vx_audio_encoder_fold_bytes(const vx_audio_encoder *encoder, vx_device *dev, size_t *kept, size_t *passing);
vx_status vx_audio_encoder_open(vx_audio_encoder **out, vx_component *component, vx_device *dev); // both
void vx_audio_encoder_close(vx_audio_encoder **encoder);
const vx_audio_encoder_config *vx_audio_encoder_config_of(const vx_audio_encoder *encoder);

// mean [channels, latent_channels, ceil(samples/hop)] f32, un-normalised   waveform [channels, samples] f32, at 32 kHz, padded
// here with zeros to whole hops. Not finite: VX_ERR_NOT_FINITE. Empty: VX_ERR_RANGE.
vx_status vx_audio_encoder_run(const vx_audio_encoder *encoder, vx_device *dev, vx_arena *arena, vx_tensor mean,
                               vx_tensor waveform);

#endif
