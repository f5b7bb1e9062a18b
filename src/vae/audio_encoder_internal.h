// Inside the room: the audio encoder's layers.
#ifndef VX_VAE_AUDIO_ENCODER_INTERNAL_H
#define VX_VAE_AUDIO_ENCODER_INTERNAL_H

#include "vae/audio_encoder.h"
#include "vae/audio_weights.h"

enum { VX_ENCODER_STAGES = 8, VX_ENCODER_UNITS = 3, VX_UNIT_KERNEL = 7, VX_LAST_KERNEL = 3 };

// A residual unit: snake, dilated convolution, snake, product over channels.
typedef struct vx_audio_unit {
    vx_tensor alpha[2];
    vx_audio_conv conv[2];
} vx_audio_unit;

typedef struct vx_audio_encoder_stage {
    int64_t rate, channels; // channels before the strided convolution, which doubles them
    vx_audio_unit unit[VX_ENCODER_UNITS];
    vx_tensor alpha;
    vx_audio_conv down;
} vx_audio_encoder_stage;

typedef struct vx_audio_norm {
    vx_tensor weight, bias;
} vx_audio_norm;

struct vx_audio_encoder {
    vx_audio_encoder_config config;
    vx_audio_weights weights;
    int64_t context; // latents on each side that a latent depends on, before attention
    int64_t ffn;
    float *pool; // host, what `pooling` is made from
    vx_audio_conv first, last;
    vx_audio_encoder_stage stage[VX_ENCODER_STAGES];
    vx_tensor alpha; // before `last`
    vx_audio_norm norm1, norm2, norm3, mlp_norm;
    vx_weight qkv, pooling, attention_out, proj, gate, value, down, mean;
};

extern const int64_t vx_audio_unit_dilation[VX_ENCODER_UNITS];

// The released model's is 12 (A4).
int64_t vx_audio_encoder_context(const vx_audio_encoder_config *config);
// vx_audio_encoder_run with convolutions in chunks of at most `chunk` latents of each channel.
vx_status vx_audio_encoder_run_chunked(const vx_audio_encoder *encoder, vx_device *dev, vx_arena *arena, vx_tensor mean,
                                       vx_tensor waveform, int64_t chunk);

#endif
