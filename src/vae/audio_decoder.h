// The audio VAE's decoder: BigVGAN with alias-free SnakeBeta, mono; a clip's channels go through it together, and none knows of the
// others (audio specification, A2-A8). f32 throughout. Weight norm is folded once into memory that the decoder owns.
#ifndef VX_VAE_AUDIO_DECODER_H
#define VX_VAE_AUDIO_DECODER_H

#include "device/arena.h"
#include "weights/component.h"

typedef struct vx_audio_decoder vx_audio_decoder;
typedef struct vx_audio_decoder_config {
    int64_t latent_channels, latent_dim, decoder_dim, stages, hop, sample_rate;
    int64_t rate[8], kernel[8];
    float latents_mean[64], latents_std[64];
} vx_audio_decoder_config;

// Binds to the headers alone: enough for a plan. Ignores the encoder's tensors.
vx_status vx_audio_decoder_bind(vx_audio_decoder **out, vx_component *component);
// Reads, widens and folds what the file does not hold as it is used; needed before the first run that computes. Once only.
vx_status vx_audio_decoder_fold(vx_audio_decoder *decoder, vx_device *dev);
// What folding will take, and keep; 0 once it is done.
vx_status vx_audio_decoder_fold_bytes(const vx_audio_decoder *decoder, vx_device *dev, size_t *kept, size_t *passing);
vx_status vx_audio_decoder_open(vx_audio_decoder **out, vx_component *component, vx_device *dev); // both
void vx_audio_decoder_close(vx_audio_decoder **decoder);
const vx_audio_decoder_config *vx_audio_decoder_config_of(const vx_audio_decoder *decoder);

// waveform [2, hop*A] f32 in -1..1   latent [2, channels, A] f32 normalised (unless denormalised). Long clips run in chunks
// with full context (A11): same bits, bounded memory. Not finite: VX_ERR_NOT_FINITE.
vx_status vx_audio_decoder_run(const vx_audio_decoder *decoder, vx_device *dev, vx_arena *arena, vx_tensor waveform,
                               vx_tensor latent, bool denormalised);

#endif
