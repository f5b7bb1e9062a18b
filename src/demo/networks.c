// Names, shapes and formats of the official files (denoiser specification 2.1, text encoder 3.7, video VAE 3, audio VAE A7).
#include <string.h>

#include "demo/demo.h"

const int vx_demo_rates[VX_DEMO_STAGES] = { 5, 5, 2, 2, 2, 2, 2 };
const int vx_demo_kernels[VX_DEMO_KERNELS] = { 3, 7, 11 };

// 1/10000^(j/16) as PyTorch computes it (denoiser specification 1.5): not all are correctly rounded, so they are a table.
static const uint32_t inv_freq[VX_DEMO_ROPE_FREQS] = { 0x3f800000, 0x3f0ff59a, 0x3ea1e89b, 0x3e361887, 0x3dcccccd, 0x3d6655c2,
                                                       0x3d0186e3, 0x3c91ad39, 0x3c23d70a, 0x3bb8449c, 0x3b4f3e38, 0x3ae91528,
                                                       0x3a83126f, 0x3a136a16, 0x39a5cb60, 0x393a7753 };

// First half of the alias-free activation's low pass (audio VAE specification A3); the second half mirrors it.
static const uint32_t filter[6] = { 0x3b04f861, 0x3c19d646, 0xbcd14084, 0xbd6c2a26, 0x3e03a888, 0x3ee2ec65 };

vx_status vx_demo_linear(vx_demo_tensors *set, int64_t n, int64_t k, bool bias, const char *prefix, const char *name)
{
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(n, k), "%s%s.weight", prefix, name));
    return bias ? vx_demo_add(set, VX_DEMO_SHAPE(n), "%s%s.bias", prefix, name) : vx_ok();
}

// ---- transformer ----
static vx_status transformer_block(vx_demo_tensors *set, const vx_demo_sizes *z, const char *stem, int64_t i, bool modulated)
{
    const int64_t hidden = z->denoiser.hidden, inner = z->denoiser.heads * z->denoiser.head_dim;
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s%d.", stem, (int)i);
    set->dtype = VX_BF16;
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(hidden), "%snorm1.weight", prefix));
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(hidden), "%snorm2.weight", prefix));
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(z->denoiser.head_dim), "%sattn.q_norm.weight", prefix));
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(z->denoiser.head_dim), "%sattn.k_norm.weight", prefix));
    VX_TRY(vx_demo_linear(set, 3 * inner, hidden, false, prefix, "attn.qkv_proj"));
    VX_TRY(vx_demo_linear(set, hidden, inner, false, prefix, "attn.out_proj"));
    VX_TRY(vx_demo_linear(set, 2 * z->denoiser.ffn, hidden, false, prefix, "mlp.fc1"));
    VX_TRY(vx_demo_linear(set, hidden, z->denoiser.ffn, false, prefix, "mlp.fc2"));
    return modulated ? vx_demo_linear(set, 18 * hidden, z->denoiser.time_dim, true, prefix, "adaln_proj.linear") : vx_ok();
}

vx_status vx_demo_transformer(vx_demo_tensors *set, const vx_demo_sizes *z)
{
    const int64_t hidden = z->denoiser.hidden, time_dim = z->denoiser.time_dim;
    set->dtype = VX_F32;
    VX_TRY(vx_demo_linear(set, hidden, 4 * VX_DEMO_VIDEO_CHANNELS, true, "", "video_patch_proj"));
    VX_TRY(vx_demo_linear(set, hidden, VX_DEMO_AUDIO_CHANNELS, true, "", "audio_patch_proj"));
    VX_TRY(vx_demo_linear(set, z->denoiser.time_hidden, z->denoiser.timestep_dim, true, "", "time_embedder.proj_in"));
    VX_TRY(vx_demo_linear(set, time_dim, z->denoiser.time_hidden, true, "", "time_embedder.proj_out"));
    VX_TRY(vx_demo_linear(set, 4 * VX_DEMO_VIDEO_CHANNELS, hidden, true, "", "final_layer.video_out"));
    VX_TRY(vx_demo_linear(set, VX_DEMO_AUDIO_CHANNELS, hidden, true, "", "final_layer.audio_out"));
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(VX_DEMO_ROPE_FREQS), "rope.inv_freq"));
    memcpy(set->tensor[set->count - 1].value, inv_freq, sizeof inv_freq); // short enough to be there even in a hollow list
    set->dtype = VX_BF16;
    VX_TRY(vx_demo_linear(set, hidden, z->text.hidden, true, "", "condition_proj"));
    for (int64_t i = 0; i < z->denoiser.refiner_layers; i++) VX_TRY(transformer_block(set, z, "token_refiner.blocks.", i, false));
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(hidden), "token_refiner.final_norm.weight"));
    for (int64_t i = 0; i < z->denoiser.layers; i++) VX_TRY(transformer_block(set, z, "blocks.", i, true));
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(hidden), "final_layer.norm.weight"));
    return vx_demo_linear(set, 2 * hidden, time_dim, true, "", "final_layer.adaln_proj.linear");
}

// ---- language model ----
vx_status vx_demo_language(vx_demo_tensors *set, const vx_demo_sizes *z)
{
    const int64_t hidden = z->text.hidden, q = z->text.heads * z->text.head_dim, kv = z->text.kv_heads * z->text.head_dim;
    set->dtype = VX_BF16;
    VX_TRY(vx_demo_linear(set, z->text.vocabulary, hidden, false, "model.language_model.", "embed_tokens"));
    for (int64_t i = 0; i < z->text.layers; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "model.language_model.layers.%d.", (int)i);
        VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(hidden), "%sinput_layernorm.weight", prefix));
        VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(hidden), "%spost_attention_layernorm.weight", prefix));
        VX_TRY(vx_demo_linear(set, q, hidden, false, prefix, "self_attn.q_proj"));
        VX_TRY(vx_demo_linear(set, kv, hidden, false, prefix, "self_attn.k_proj"));
        VX_TRY(vx_demo_linear(set, kv, hidden, false, prefix, "self_attn.v_proj"));
        VX_TRY(vx_demo_linear(set, hidden, q, false, prefix, "self_attn.o_proj"));
        VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(z->text.head_dim), "%sself_attn.q_norm.weight", prefix));
        VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(z->text.head_dim), "%sself_attn.k_norm.weight", prefix));
        VX_TRY(vx_demo_linear(set, z->text.ffn, hidden, false, prefix, "mlp.gate_proj"));
        VX_TRY(vx_demo_linear(set, z->text.ffn, hidden, false, prefix, "mlp.up_proj"));
        VX_TRY(vx_demo_linear(set, hidden, z->text.ffn, false, prefix, "mlp.down_proj"));
    }
    return vx_demo_vision(set, z);
}

// ---- video VAE ----
vx_status vx_demo_video(vx_demo_tensors *set, const vx_demo_sizes *z)
{
    const int64_t dim = z->video.heads * z->video.head_dim, channels = VX_DEMO_VIDEO_CHANNELS;
    set->dtype = VX_F32;
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(channels, channels, 1, 1, 1), "post_quant_conv.weight"));
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(channels), "post_quant_conv.bias"));
    VX_TRY(vx_demo_linear(set, dim, channels, true, "decoder.", "x_embedder"));
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(1, VX_DEMO_REGISTERS, dim), "decoder.register_tokens"));
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(1, 1, dim), "decoder.mask_token")); // unused by everybody, but in the files
    for (int64_t i = 0; i < z->video.layers; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "decoder.transformer_blocks.%d.", (int)i);
        VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(dim), "%snorm1.weight", prefix));
        VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(dim), "%snorm2.weight", prefix));
        VX_TRY(vx_demo_linear(set, 3 * dim, dim, true, prefix, "attn.to_qkv"));
        VX_TRY(vx_demo_linear(set, dim, dim, true, prefix, "attn.to_out"));
        VX_TRY(vx_demo_linear(set, 8 * dim, dim, true, prefix, "ff.w1"));
        VX_TRY(vx_demo_linear(set, dim, 4 * dim, true, prefix, "ff.w2"));
        VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(dim), "%sscale1", prefix));
        VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(dim), "%sscale2", prefix));
    }
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(dim), "decoder.norm_out.weight"));
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(dim), "decoder.norm_out.bias"));
    VX_TRY(vx_demo_linear(set, VX_DEMO_PATCH, dim, true, "decoder.", "proj_out"));
    return vx_demo_video_encoder(set, z);
}

// ---- audio VAE ----
vx_status vx_demo_normed_conv(vx_demo_tensors *set, int64_t rows, int64_t columns, int64_t kernel, int64_t bias,
                              const char *prefix, const char *name)
{
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(rows, columns, kernel), "%s%s.weight_v", prefix, name));
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(rows, 1, 1), "%s%s.weight_g", prefix, name));
    return bias ? vx_demo_add(set, VX_DEMO_SHAPE(bias), "%s%s.bias", prefix, name) : vx_ok();
}

static vx_status activation(vx_demo_tensors *set, int64_t channels, const char *prefix)
{
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(channels), "%s.act.alpha", prefix));
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(channels), "%s.act.beta", prefix));
    for (int k = 0; k < 2; k++) {
        VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(1, 1, 12), "%s.%s.filter", prefix, k ? "downsample.lowpass" : "upsample"));
        float *value = set->tensor[set->count - 1].value;
        for (int i = 0; i < 12; i++) value[i] = vx_f32_from_bits(filter[i < 6 ? i : 11 - i]);
    }
    return vx_ok();
}

static vx_status residual_block(vx_demo_tensors *set, int64_t n, int64_t channels, int64_t kernel)
{
    for (int i = 0; i < VX_DEMO_PAIRS; i++)
        for (int k = 0; k < 2; k++) {
            char prefix[64], name[32];
            snprintf(prefix, sizeof prefix, "decoder.resblocks.%d.", (int)n);
            snprintf(name, sizeof name, "convs%d.%d", k + 1, i);
            VX_TRY(vx_demo_normed_conv(set, channels, channels, kernel, channels, prefix, name));
            snprintf(prefix, sizeof prefix, "decoder.resblocks.%d.activations.%d", (int)n, 2 * i + k);
            VX_TRY(activation(set, channels, prefix));
        }
    return vx_ok();
}

vx_status vx_demo_audio(vx_demo_tensors *set, const vx_demo_sizes *z)
{
    const int64_t latent = z->audio.latent_dim;
    int64_t channels = z->audio.decoder_dim;
    set->dtype = VX_F32;
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(latent, VX_DEMO_AUDIO_CHANNELS, 1), "dec_in_proj.weight"));
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(latent), "dec_in_proj.bias"));
    VX_TRY(vx_demo_normed_conv(set, channels, latent, 7, channels, "decoder.", "conv_pre"));
    for (int i = 0; i < VX_DEMO_STAGES; i++) {
        const int rate = vx_demo_rates[i];
        char name[32];
        snprintf(name, sizeof name, "ups.%d.0", i);
        VX_TRY(vx_demo_normed_conv(set, channels, channels / 2, 2 * rate - rate % 2, channels / 2, "decoder.", name));
        channels /= 2;
        for (int k = 0; k < VX_DEMO_KERNELS; k++)
            VX_TRY(residual_block(set, VX_DEMO_KERNELS * i + k, channels, vx_demo_kernels[k]));
    }
    VX_TRY(activation(set, channels, "decoder.activation_post"));
    VX_TRY(vx_demo_normed_conv(set, 1, channels, 7, 0, "decoder.", "conv_post"));
    return vx_demo_audio_encoder(set, z);
}
