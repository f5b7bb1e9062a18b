// Opening the video decoder: what its configuration says in either spelling, and the tensors that follow from it.
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "vae/statistics.h"
#include "vae/video_internal.h"

enum { RELEASED_HEAD_DIM = 64, MAX_DIM = 1 << 16, MAX_LAYERS = 1024 };

// Sizes that the files do not state come from the shapes: FFN width, register tokens, and everything of a single file.
static vx_status read_sizes(vx_video_decoder *d, vx_component *c)
{
    vx_video_decoder_config *g = &d->config;
    int64_t embed[VX_MAX_RANK], tokens[VX_MAX_RANK], ff[VX_MAX_RANK], layers;
    const int64_t head_dim = RELEASED_HEAD_DIM;
    VX_TRY(vx_video_shape_of(c, "decoder.x_embedder.weight", 2, embed));
    VX_TRY(vx_video_shape_of(c, "decoder.register_tokens", 3, tokens));
    VX_TRY(vx_video_shape_of(c, "decoder.transformer_blocks.0.ff.w1.weight", 2, ff));
    VX_TRY(vx_component_layers(c, "decoder.transformer_blocks.", ".scale1", &layers));
    VX_TRY(vx_config_int(c, "latent_channels", "z_channels", &embed[1], &g->latent_channels));
    VX_TRY(vx_config_int(c, "vit_decoder_kwargs.num_layers", "decoder_num_layers", &layers, &g->layers));
    VX_TRY(vx_config_int(c, "vit_decoder_kwargs.dim_head", "decoder_attention_head_dim", &head_dim, &g->head_dim));
    int64_t heads = vx_max_i64(1, embed[0] / g->head_dim);
    VX_TRY(vx_config_int(c, "vit_decoder_kwargs.heads", "decoder_num_attention_heads", &heads, &g->heads));
    if (g->latent_channels > VX_MAX_LATENT_CHANNELS || g->layers > MAX_LAYERS || g->head_dim > 256 ||
        g->heads > MAX_DIM / g->head_dim)
        return vx_fail(VX_ERR_CONFIG, "%s: %lld latent channels, %lld layers, %lld heads of %lld: too large",
                       vx_component_path(c), (long long)g->latent_channels, (long long)g->layers, (long long)g->heads,
                       (long long)g->head_dim);
    g->dim = g->heads * g->head_dim;
    g->ffn = ff[0] / 2;
    g->register_tokens = tokens[1];
    g->patch_height = g->patch_width = VX_PATCH;
    g->patch_frames = VX_PATCH_FRAMES;
    return vx_ok();
}

static vx_status read_geometry(vx_video_decoder *d, const vx_component *c)
{
    vx_video_decoder_config *g = &d->config;
    const double rotated_part = 0.75, theta = 100.0, norm_eps = 1e-5; // the released values
    VX_TRY(vx_video_tile_size(c, &g->tile_size, &g->tile_overlap));
    double ratio, eps;
    VX_TRY(vx_config_float(c, "vit_decoder_kwargs.rope_dim_ratio", "decoder_rope_dim_ratio", &rotated_part, &ratio));
    VX_TRY(vx_config_float(c, "vit_decoder_kwargs.rope_theta", "decoder_rope_theta", &theta, &d->rope_theta));
    VX_TRY(vx_config_float(c, "decoder_norm_eps", NULL, &norm_eps, &eps));
    int64_t rotated = ratio > 0.0 && ratio <= 1.0 ? (int64_t)((double)g->head_dim * ratio) : 0;
    if (rotated < 6 || rotated % 6 || !(d->rope_theta > 0.0) || !(eps >= 0.0))
        return vx_fail(VX_ERR_CONFIG,
                       "%s: rope_dim_ratio %g of heads of %lld, rope_theta %g, norm eps %g cannot be used: rotated channels"
                       " come in sixes",
                       vx_component_path(c), ratio, (long long)g->head_dim, d->rope_theta, eps);
    d->rope_pairs = rotated / 2;
    d->eps = (float)eps;
    return vx_ok();
}

// ComfyUI's file carries the statistics, rounded to half precision: the configuration's are used, a difference is told.
static vx_status compare_statistics(vx_video_decoder *d, vx_component *c, const char *name, const float *ours)
{
    if (!vx_component_has(c, name)) return vx_ok();
    vx_tensor t;
    VX_TRY(vx_component_get(c, name, VX_DTYPE_NONE, &t, d->config.latent_channels));
    for (int64_t i = 0; i < d->config.latent_channels; i++) {
        float theirs = t.dtype == VX_F32    ? ((const float *)t.data)[i]
                       : t.dtype == VX_BF16 ? vx_bf16_to_f32(((const uint16_t *)t.data)[i])
                                            : vx_f16_to_f32(((const uint16_t *)t.data)[i]);
        if (!(fabsf(theirs - ours[i]) <= 0.002f * (1.0f + fabsf(ours[i])))) {
            vx_component_note(c, "'%s' differs from the configuration at channel %d (%g, %g); the configuration's is used", name,
                              (int)i, (double)theirs, (double)ours[i]);
            break;
        }
    }
    return vx_ok();
}

static vx_status bind_block(vx_video_decoder *d, vx_component *c, int64_t i)
{
    const vx_video_decoder_config *g = &d->config;
    vx_video_block *b = &d->block[i];
    char name[96];
#define NAME(suffix) (snprintf(name, sizeof name, "decoder.transformer_blocks.%d." suffix, (int)i), name)
    VX_TRY(vx_component_get(c, NAME("norm1.weight"), VX_DTYPE_NONE, &b->norm1, g->dim));
    VX_TRY(vx_component_qkv(c, NAME("attn.to_qkv"), g->heads, g->head_dim, g->dim, true, &b->qkv));
    VX_TRY(vx_component_linear(c, NAME("attn.to_out"), g->dim, g->dim, true, &b->out));
    VX_TRY(vx_component_get(c, NAME("scale1"), VX_DTYPE_NONE, &b->scale1, g->dim));
    VX_TRY(vx_component_get(c, NAME("norm2.weight"), VX_DTYPE_NONE, &b->norm2, g->dim));
    VX_TRY(vx_component_swiglu(c, NAME("ff.w1"), g->ffn, g->dim, true, &b->up, &b->gate_first));
    VX_TRY(vx_component_linear(c, NAME("ff.w2"), g->dim, g->ffn, true, &b->down));
    VX_TRY(vx_component_get(c, NAME("scale2"), VX_DTYPE_NONE, &b->scale2, g->dim));
#undef NAME
    b->scale1 = vx_tensor_split(b->scale1, 0, g->dim);
    b->scale2 = vx_tensor_split(b->scale2, 0, g->dim);
    return vx_ok();
}

static vx_status bind(vx_video_decoder *d, vx_component *c)
{
    const vx_video_decoder_config *g = &d->config;
    vx_tensor kernel, bias;
    VX_TRY(
        vx_component_get(c, "post_quant_conv.weight", VX_DTYPE_NONE, &kernel, g->latent_channels, g->latent_channels, 1, 1, 1));
    VX_TRY(vx_component_get(c, "post_quant_conv.bias", VX_DTYPE_NONE, &bias, g->latent_channels));
    // A convolution of one voxel is a product over channels.
    kernel = vx_tensor_reshape(kernel, 2, (const int64_t[]){ g->latent_channels, g->latent_channels });
    d->post_quant = (vx_weight){
        .n = g->latent_channels, .k = g->latent_channels, .segments = 1, .segment = { { .weight = kernel, .bias = bias } }
    };
    VX_TRY(vx_component_linear(c, "decoder.x_embedder", g->dim, g->latent_channels, true, &d->embed));
    VX_TRY(vx_component_get(c, "decoder.register_tokens", VX_DTYPE_NONE, &d->registers, 1, g->register_tokens, g->dim));
    d->registers = vx_tensor_row(d->registers, 0);
    VX_TRY(vx_component_get(c, "decoder.norm_out.weight", VX_DTYPE_NONE, &d->norm_weight, g->dim));
    VX_TRY(vx_component_get(c, "decoder.norm_out.bias", VX_DTYPE_NONE, &d->norm_bias, g->dim));
    VX_TRY(
        vx_component_linear(c, "decoder.proj_out", VX_COLOURS * VX_PATCH_FRAMES * VX_PATCH * VX_PATCH, g->dim, true, &d->proj));
    d->block = vx_alloc_array((size_t)g->layers, sizeof *d->block);
    VX_NEED_MEMORY(d->block, "the video decoder's layers");
    for (int64_t i = 0; i < g->layers; i++) VX_TRY(bind_block(d, c, i));
    VX_TRY(compare_statistics(d, c, "latents_mean", g->latents_mean));
    VX_TRY(compare_statistics(d, c, "latents_std", g->latents_std));
    // Present or not, a decode needs none of these; the mask token is not used at inference by anybody.
    static const char *const others[] = { "encoder.", "quant_conv.", "decoder.mask_token" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) vx_component_ignore(c, others[i]);
    return vx_component_finish(c);
}

static vx_status open_from(vx_video_decoder *d, vx_component *c)
{
    VX_TRY(vx_video_check_config(c));
    VX_TRY(read_sizes(d, c));
    VX_TRY(read_geometry(d, c));
    VX_TRY(vx_statistics_read(c, d->config.latent_channels, vx_video_latents_mean, vx_video_latents_std, 24,
                              d->config.latents_mean, d->config.latents_std));
    return bind(d, c);
}

vx_status vx_video_decoder_open(vx_video_decoder **out, vx_component *component)
{
    *out = NULL;
    vx_video_decoder *d = vx_alloc_array(1, sizeof *d);
    VX_NEED_MEMORY(d, "the video decoder");
    d->component = component;
    vx_status s = open_from(d, component);
    if (s.code != VX_OK) {
        vx_video_decoder_close(&d);
        return vx_within(s, "video VAE");
    }
    *out = d;
    return vx_ok();
}

void vx_video_decoder_close(vx_video_decoder **decoder)
{
    if (!*decoder) return;
    vx_free((*decoder)->block);
    vx_free(*decoder);
    *decoder = NULL;
}

const vx_video_decoder_config *vx_video_decoder_config_of(const vx_video_decoder *decoder)
{
    return &decoder->config;
}
