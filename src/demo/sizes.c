// Dimensions. What the model fixes (channels, hop, rotary frequencies) stands in demo.h.
#include "demo/demo.h"

static void statistics(float *mean, float *std, int channels, uint64_t seed, const char *name, float spread, float least)
{
    uint64_t stream = vx_demo_stream(seed, name);
    for (int i = 0; i < channels; i++) {
        mean[i] = spread * vx_demo_normal(&stream);
        std[i] = least + (float)(vx_demo_next(&stream) >> 60) / 16.0f;
    }
}

// No two extents that code could take for one another are equal, and few are multiples of a vector.
void vx_demo_sizes_random(vx_demo_sizes *z, uint64_t seed)
{
    *z = (vx_demo_sizes){
        .denoiser = { .hidden = 84,
                      .layers = 4,
                      .refiner_layers = 2,
                      .heads = 3,
                      .head_dim = 104,
                      .ffn = 140,
                      .timestep_dim = 28,
                      .time_hidden = 52,
                      .time_dim = 36 },
        .text = { .hidden = 44, .layers = 52, .heads = 4, .kv_heads = 2, .head_dim = 24, .ffn = 68, .section = { 6, 3, 3 } },
        .vision = { .hidden = 32, .layers = 4, .heads = 2, .ffn = 40, .side = 6, .deep = { 0, 1, 3 } },
        .video = { .layers = 5, .heads = 3, .head_dim = 24, .levels = 4, .widths = { 32, 32, 32, 32 } },
        .audio = { .latent_dim = 96, .decoder_dim = 128, .encoder_dim = 2, .heads = 4 },
    };
    statistics(z->video_mean, z->video_std, VX_DEMO_VIDEO_CHANNELS, seed, "video latents", 0.5f, 1.0f);
    statistics(z->audio_mean, z->audio_std, VX_DEMO_AUDIO_CHANNELS, seed, "audio latents", 0.3f, 1.2f);
}

void vx_demo_sizes_second(vx_demo_sizes *z)
{
    z->denoiser.hidden = 60;
    z->denoiser.layers = 2;
    z->denoiser.refiner_layers = 1;
    z->denoiser.heads = 2;
    z->denoiser.head_dim = 112;
    z->denoiser.ffn = 76;
    z->denoiser.timestep_dim = 30;
    z->denoiser.time_hidden = 40;
    z->denoiser.time_dim = 20;
}
