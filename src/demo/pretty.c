// Sizes of the pretty kind, small helpers, and its language model.
#include "demo/pretty.h"

const int vx_demo_note_hz[VX_DEMO_NOTES] = { 160, 200, 240, 320 };

void vx_demo_sizes_pretty(vx_demo_sizes *z)
{
    *z = (vx_demo_sizes){
        .denoiser = { .hidden = 160,
                      .layers = 2,
                      .refiner_layers = 2,
                      .heads = 5,
                      .head_dim = 96,
                      .ffn = 96,
                      .timestep_dim = 16,
                      .time_hidden = 128,
                      .time_dim = 8 },
        .text = { .hidden = 32, .layers = 51, .heads = 2, .kv_heads = 1, .head_dim = 16, .ffn = 48, .section = { 4, 2, 2 } },
        .vision = { .hidden = 32, .layers = 4, .heads = 2, .ffn = 40, .side = 16, .deep = { 0, 1, 2 } },
        .video = { .layers = 2, .heads = 2, .head_dim = 32, .levels = 5, .widths = { 32, 32, 32, 32, 96 } },
        .audio = { .latent_dim = 64, .decoder_dim = 128, .encoder_dim = 2, .heads = 8 },
    };
    for (int i = 0; i < VX_DEMO_VIDEO_CHANNELS; i++) z->video_std[i] = 1.0f;
    for (int i = 0; i < VX_DEMO_AUDIO_CHANNELS; i++) z->audio_std[i] = 1.0f;
}

void vx_demo_fill(vx_demo_tensor *t, float value)
{
    for (int64_t i = 0; i < t->count; i++) t->value[i] = value;
}

float vx_demo_sign(uint64_t *stream)
{
    return vx_demo_next(stream) >> 63 ? 1.0f : -1.0f;
}

// Half as loud as the random kind's, so that 50 layers change a token's row without drowning it.
vx_status vx_demo_pretty_language(vx_demo_tensors *set, const vx_demo_sizes *sizes, uint64_t seed)
{
    (void)sizes;
    vx_demo_randomise(set, seed, 0.25f);
    vx_demo_tensor *embedding = vx_demo_get(set, "model.language_model.embed_tokens.weight");
    for (int64_t i = 0; i < embedding->count; i++) embedding->value[i] *= 16.0f;
    return vx_ok();
}
