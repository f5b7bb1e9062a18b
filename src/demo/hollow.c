// The released model's dimensions in files without numbers: whole headers and configurations, data that is a hole. Such a
// checkpoint takes no room and opens, binds and plans as the real one does; a device that was told to makes up its weights
// (vx_device_made_up). What the host itself reads (the audio VAE is folded there) is random and really written.
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "demo/demo.h"

// Denoiser specification 1.1, text encoder 3.2 and 5, video VAE 3, audio VAE A1. Of the language model the 50 layers that run.
void vx_demo_sizes_released(vx_demo_sizes *z)
{
    *z = (vx_demo_sizes){
        .denoiser = { .hidden = 5376,
                      .layers = 50,
                      .refiner_layers = 2,
                      .heads = 56,
                      .head_dim = 128,
                      .ffn = 14336,
                      .timestep_dim = 256,
                      .time_hidden = 5376,
                      .time_dim = 2688 },
        .text = { .hidden = 5120,
                  .layers = 50,
                  .heads = 64,
                  .kv_heads = 8,
                  .head_dim = 128,
                  .ffn = 25600,
                  .section = { 24, 20, 20 } },
        .vision = { .hidden = 1152, .layers = 27, .heads = 16, .ffn = 4304, .side = 48, .deep = { 8, 16, 24 } },
        .video = { .layers = 36, .heads = 32, .head_dim = 64, .levels = 6, .widths = { 128, 256, 256, 512, 512, 1024 } },
        .audio = { .latent_dim = 2048, .decoder_dim = 1024, .encoder_dim = 64, .heads = 8 },
    };
    vx_demo_sizes other; // for the statistics of its latents
    vx_demo_sizes_random(&other, 1);
    memcpy(z->video_mean, other.video_mean, sizeof z->video_mean);
    memcpy(z->video_std, other.video_std, sizeof z->video_std);
    memcpy(z->audio_mean, other.audio_mean, sizeof z->audio_mean);
    memcpy(z->audio_std, other.audio_std, sizeof z->audio_std);
}
