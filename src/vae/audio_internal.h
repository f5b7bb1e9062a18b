// Inside the room: the audio decoder's weights, folded, and how much of its neighbours a stretch of sound needs.
#ifndef VX_VAE_AUDIO_INTERNAL_H
#define VX_VAE_AUDIO_INTERNAL_H

#include "vae/audio_decoder.h"

enum { VX_AUDIO_STAGES = 8, VX_AUDIO_BLOCKS = 3, VX_AUDIO_PAIRS = 8, VX_AUDIO_TAPS = 12 };

typedef struct vx_audio_conv {
    vx_tensor weight, bias; // bias of rank 0: none
} vx_audio_conv;

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

// What the file does not hold as it is used: `from` widened, and folded with `gain` where that is there.
typedef struct vx_audio_made {
    vx_tensor from, gain;
    vx_tensor *to;
} vx_audio_made;

struct vx_audio_decoder {
    vx_audio_decoder_config config;
    vx_component *component; // borrowed
    vx_arena *weights;       // what had to be folded or widened; NULL until then
    vx_audio_made *made;
    int64_t made_count, made_capacity;
    size_t largest;  // bytes of one of them, widened
    int blocks;      // AMP blocks of a stage
    int64_t context; // latents on each side that a latent's samples depend on
    vx_audio_conv in_proj, pre, post;
    vx_audio_stage stage[VX_AUDIO_STAGES];
    vx_audio_activation last;
};

// Binds, from headers. The sizes in d->config, d->blocks and the stages' rates and dilations are set.
vx_status vx_audio_weights_bind(vx_audio_decoder *d, vx_component *c);
// Shape of a convolution's weight in any of its spellings; rank 0 if absent.
void vx_audio_weight_shape(const vx_component *c, const char *name, int *rank, int64_t shape[VX_MAX_RANK]);
// One folded weight: w[i] = v[i] * (g[i] / |v[i]|), norm and product in double, rounded once. v [rows, row], g [rows].
void vx_audio_fold(float *out, const float *v, const float *g, int64_t rows, int64_t row);

// The context of the released model is 29 (A11).
int64_t vx_audio_context(const vx_audio_decoder *d);
// vx_audio_decoder_run with chunks of at most `chunk` latents.
vx_status vx_audio_decoder_run_chunked(const vx_audio_decoder *decoder, vx_device *dev, vx_arena *arena, vx_tensor waveform,
                                       vx_tensor latent, bool denormalised, int64_t chunk);

#endif
