// Names, shapes and formats of what reads pictures, clips and sounds: the vision tower (text encoder specification 4.7), the
// encoders of the video VAE (3.1, 3.2) and of the audio VAE (A4, A5, A7).
#include "demo/demo.h"

const int vx_demo_encoder_rates[VX_DEMO_ENCODER_STAGES] = { 2, 4, 4, 5, 5 };

// Of a level of the video encoder; the released one has six.
int vx_demo_space_stride(int level)
{
    return level < 4 ? 2 : 1;
}

int vx_demo_time_stride(int level)
{
    return level == 1 || level == 2 ? 2 : 1;
}

static vx_status norm(vx_demo_tensors *set, int64_t n, const char *prefix, const char *name)
{
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(n), "%s%s.weight", prefix, name));
    return vx_demo_add(set, VX_DEMO_SHAPE(n), "%s%s.bias", prefix, name);
}

// ---- vision tower ----
static vx_status merger(vx_demo_tensors *set, const vx_demo_sizes *z, int64_t norm_width, const char *prefix)
{
    const int64_t merged = 4 * z->vision.hidden;
    VX_TRY(norm(set, norm_width, prefix, "norm"));
    VX_TRY(vx_demo_linear(set, merged, merged, true, prefix, "linear_fc1"));
    return vx_demo_linear(set, z->text.hidden, merged, true, prefix, "linear_fc2");
}

vx_status vx_demo_vision(vx_demo_tensors *set, const vx_demo_sizes *z)
{
    const int64_t hidden = z->vision.hidden;
    char prefix[64];
    set->dtype = VX_BF16;
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(hidden, 3, 2, 16, 16), "model.visual.patch_embed.proj.weight"));
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(hidden), "model.visual.patch_embed.proj.bias"));
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(z->vision.side * z->vision.side, hidden), "model.visual.pos_embed.weight"));
    for (int64_t i = 0; i < z->vision.layers; i++) {
        snprintf(prefix, sizeof prefix, "model.visual.blocks.%d.", (int)i);
        VX_TRY(norm(set, hidden, prefix, "norm1"));
        VX_TRY(norm(set, hidden, prefix, "norm2"));
        VX_TRY(vx_demo_linear(set, 3 * hidden, hidden, true, prefix, "attn.qkv"));
        VX_TRY(vx_demo_linear(set, hidden, hidden, true, prefix, "attn.proj"));
        VX_TRY(vx_demo_linear(set, z->vision.ffn, hidden, true, prefix, "mlp.linear_fc1"));
        VX_TRY(vx_demo_linear(set, hidden, z->vision.ffn, true, prefix, "mlp.linear_fc2"));
    }
    for (int k = 0; k < VX_DEMO_DEEP; k++) {
        snprintf(prefix, sizeof prefix, "model.visual.deepstack_merger_list.%d.", k);
        VX_TRY(merger(set, z, 4 * hidden, prefix));
    }
    return merger(set, z, hidden, "model.visual.merger.");
}

// ---- video encoder ----
static vx_status conv3d(vx_demo_tensors *set, int64_t out, int64_t in, int64_t taps, const char *prefix, const char *name)
{
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(out, in, taps, taps, taps), "%s%s.weight", prefix, name));
    return vx_demo_add(set, VX_DEMO_SHAPE(out), "%s%s.bias", prefix, name);
}

// One residual block a level.
vx_status vx_demo_video_encoder(vx_demo_tensors *set, const vx_demo_sizes *z)
{
    const int64_t moments = (int64_t)2 * VX_DEMO_VIDEO_CHANNELS;
    int64_t in = z->video.widths[0];
    set->dtype = VX_F32;
    VX_TRY(conv3d(set, in, 3, 3, "encoder.", "conv_in"));
    for (int level = 0; level < z->video.levels; level++) {
        const int64_t out = z->video.widths[level];
        char prefix[64];
        snprintf(prefix, sizeof prefix, "encoder.down.%d.block.0.", level);
        VX_TRY(norm(set, in, prefix, "norm1"));
        VX_TRY(conv3d(set, out, in, 3, prefix, "conv1"));
        VX_TRY(norm(set, out, prefix, "norm2"));
        VX_TRY(conv3d(set, out, out, 3, prefix, "conv2"));
        if (in != out) VX_TRY(conv3d(set, out, in, 1, prefix, "nin_shortcut"));
        snprintf(prefix, sizeof prefix, "encoder.down.%d.", level);
        if (vx_demo_space_stride(level) == 2) VX_TRY(conv3d(set, out, out, 3, prefix, "downsample.conv"));
        in = out;
    }
    VX_TRY(norm(set, in, "encoder.", "norm_out"));
    VX_TRY(conv3d(set, moments, in, 3, "encoder.", "conv_out"));
    return conv3d(set, moments, moments, 1, "", "quant_conv");
}

// ---- audio encoder ----
static vx_status residual_unit(vx_demo_tensors *set, int64_t channels, int stage, int unit)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "encoder.block.%d.block.%d.block.", stage + 1, unit);
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(1, channels, 1), "%s0.alpha", prefix));
    VX_TRY(vx_demo_normed_conv(set, channels, channels, 7, channels, prefix, "1"));
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(1, channels, 1), "%s2.alpha", prefix));
    return vx_demo_normed_conv(set, channels, channels, 1, channels, prefix, "3");
}

// Attention over frames, its result averaged over the heads and brought to the latent's channels.
static vx_status pre_block(vx_demo_tensors *set, int64_t latent)
{
    static const char *const biases[] = { "q_bias", "zero_k_bias", "v_bias" };
    const int64_t n = VX_DEMO_AUDIO_CHANNELS;
    VX_TRY(norm(set, latent, "pre_block.", "norm1"));
    VX_TRY(vx_demo_linear(set, 3 * latent, latent, false, "pre_block.", "attn.qkv"));
    for (int i = 0; i < 3; i++) VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(latent), "pre_block.attn.%s", biases[i]));
    VX_TRY(vx_demo_linear(set, n, n, true, "pre_block.", "attn.proj"));
    VX_TRY(norm(set, latent, "pre_block.", "norm3"));
    VX_TRY(vx_demo_linear(set, n, latent, true, "pre_block.", "proj"));
    VX_TRY(norm(set, n, "pre_block.", "norm2"));
    VX_TRY(norm(set, n, "pre_block.", "mlp.norm"));
    VX_TRY(vx_demo_linear(set, 2 * n, n, true, "pre_block.", "mlp.w0"));
    VX_TRY(vx_demo_linear(set, 2 * n, n, true, "pre_block.", "mlp.w1"));
    return vx_demo_linear(set, n, 2 * n, true, "pre_block.", "mlp.w2");
}

vx_status vx_demo_audio_encoder(vx_demo_tensors *set, const vx_demo_sizes *z)
{
    static const char *const heads[] = { "mean_proj", "logs_proj" };
    const int64_t n = VX_DEMO_AUDIO_CHANNELS;
    int64_t channels = z->audio.encoder_dim;
    char prefix[64];
    set->dtype = VX_F32;
    VX_TRY(vx_demo_normed_conv(set, channels, 1, 7, channels, "encoder.block.", "0"));
    for (int i = 0; i < VX_DEMO_ENCODER_STAGES; i++, channels *= 2) {
        for (int unit = 0; unit < 3; unit++) VX_TRY(residual_unit(set, channels, i, unit));
        snprintf(prefix, sizeof prefix, "encoder.block.%d.block.", i + 1);
        VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(1, channels, 1), "%s3.alpha", prefix));
        VX_TRY(vx_demo_normed_conv(set, 2 * channels, channels, 2 * vx_demo_encoder_rates[i], 2 * channels, prefix, "4"));
    }
    VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(1, channels, 1), "encoder.block.%d.alpha", VX_DEMO_ENCODER_STAGES + 1));
    snprintf(prefix, sizeof prefix, "encoder.block.%d", VX_DEMO_ENCODER_STAGES + 2);
    VX_TRY(vx_demo_normed_conv(set, z->audio.latent_dim, channels, 3, z->audio.latent_dim, prefix, ""));
    VX_TRY(pre_block(set, z->audio.latent_dim));
    for (int i = 0; i < 2; i++) {
        VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(n, n, 1), "%s.weight", heads[i]));
        VX_TRY(vx_demo_add(set, VX_DEMO_SHAPE(n), "%s.bias", heads[i]));
    }
    return vx_ok();
}
