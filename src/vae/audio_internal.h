// Inside the room: the audio decoder's layers, and how much of its neighbours a stretch of sound needs.
#ifndef VX_VAE_AUDIO_INTERNAL_H
#define VX_VAE_AUDIO_INTERNAL_H

#include "vae/audio_decoder.h"
#include "vae/audio_weights.h"

enum { VX_AUDIO_STAGES = 8, VX_AUDIO_BLOCKS = 3, VX_AUDIO_PAIRS = 8, VX_AUDIO_TAPS = 12 };

typedef struct vx_audio_activation {
    vx_tensor alpha, beta, up, down;
} vx_audio_activation;

// An AMP block: pairs of convolutions, the first dilated, each after an activation of its own.
typedef struct vx_audio_block {
    int64_t kernel, pairs, dilation[VX_AUDIO_PAIRS];
    vx_audio_conv conv[VX_AUDIO_PAIRS][2];
    vx_audio_activation activation[VX_AUDIO_PAIRS][2];
} vx_audio_block;

typedef struct vx_audio_stage {
    int64_t rate, kernel, channels; // channels after the transposed convolution
    vx_audio_conv up;
    vx_audio_block block[VX_AUDIO_BLOCKS];
} vx_audio_stage;

struct vx_audio_decoder {
    vx_audio_decoder_config config;
    vx_audio_weights weights;
    int blocks;      // AMP blocks of a stage
    int64_t context; // latents on each side that a latent's samples depend on
    vx_audio_conv in_proj, pre, post;
    vx_audio_stage stage[VX_AUDIO_STAGES];
    vx_audio_activation last;
};

// Binds, from headers. The sizes in d->config, d->blocks and the stages' rates and dilations are set.
vx_status vx_audio_decoder_weights(vx_audio_decoder *d);

// The context of the released model is 29 (A11).
int64_t vx_audio_context(const vx_audio_decoder *d);
// vx_audio_decoder_run with chunks of at most `chunk` latents of each channel.
vx_status vx_audio_decoder_run_chunked(const vx_audio_decoder *decoder, vx_device *dev, vx_arena *arena, vx_tensor waveform,
                                       vx_tensor latent, bool denormalised, int64_t chunk);

#endif
