// Binds the tensors of a transformer: this list, with its shapes, is what a checkpoint must hold (specification 2.1).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "denoiser/network.h"

// 1/10000^(j/16), j = 0..15, as PyTorch computes it in f32: four of them are one unit in the last place away from the
// correctly rounded values, so they cannot be computed here (specification 1.5).
static const uint32_t inv_freq_bits[VX_ROPE_FREQS] = { 0x3f800000, 0x3f0ff59a, 0x3ea1e89b, 0x3e361887, 0x3dcccccd, 0x3d6655c2,
                                                       0x3d0186e3, 0x3c91ad39, 0x3c23d70a, 0x3bb8449c, 0x3b4f3e38, 0x3ae91528,
                                                       0x3a83126f, 0x3a136a16, 0x39a5cb60, 0x393a7753 };
// Files may come from another PyTorch; a larger difference means another model or a damaged file.
enum { INV_FREQ_ULPS = 2 };

static vx_status bind_inv_freq(vx_denoiser *d)
{
    vx_component *c = d->component;
    for (int i = 0; i < VX_ROPE_FREQS; i++) d->inv_freq[i] = vx_f32_from_bits(inv_freq_bits[i]);
    if (!vx_component_has(c, "rope.inv_freq")) return vx_ok();
    vx_tensor t;
    VX_TRY(vx_component_get(c, "rope.inv_freq", VX_F32, &t, VX_ROPE_FREQS));
    memcpy(d->inv_freq, t.data, sizeof d->inv_freq);
    VX_TRY(vx_component_check(c));
    for (int i = 0; i < VX_ROPE_FREQS; i++) {
        int64_t off = (int64_t)vx_f32_bits(d->inv_freq[i]) - (int64_t)inv_freq_bits[i];
        if (off < -INV_FREQ_ULPS || off > INV_FREQ_ULPS)
            return vx_fail(VX_ERR_CONFIG, "%s: rope.inv_freq[%d] is %.9g, expected %.9g", vx_component_path(c), i,
                           (double)d->inv_freq[i], (double)vx_f32_from_bits(inv_freq_bits[i]));
    }
    return vx_ok();
}

// Names of a block's tensors: "blocks.17." and a suffix. No name of this model comes near the limit.
typedef struct name {
    char text[96];
} name;

static const char *join(name *n, const char *prefix, const char *suffix)
{
    snprintf(n->text, sizeof n->text, "%s%s", prefix, suffix);
    return n->text;
}

static vx_status bind_block(vx_denoiser_block *b, const vx_denoiser *d, const char *prefix, bool modulated)
{
    vx_component *c = d->component;
    const vx_denoiser_config *k = &d->config;
    const int64_t inner = k->heads * k->head_dim;
    name n = { "" };
    VX_TRY(vx_component_get(c, join(&n, prefix, "norm1.weight"), VX_DTYPE_NONE, &b->norm1, k->hidden));
    VX_TRY(vx_component_get(c, join(&n, prefix, "norm2.weight"), VX_DTYPE_NONE, &b->norm2, k->hidden));
    VX_TRY(vx_component_get(c, join(&n, prefix, "attn.q_norm.weight"), VX_DTYPE_NONE, &b->q_norm, k->head_dim));
    VX_TRY(vx_component_get(c, join(&n, prefix, "attn.k_norm.weight"), VX_DTYPE_NONE, &b->k_norm, k->head_dim));
    VX_TRY(vx_component_qkv(c, join(&n, prefix, "attn.qkv_proj"), k->heads, k->head_dim, k->hidden, false, &b->qkv));
    VX_TRY(vx_component_linear(c, join(&n, prefix, "attn.out_proj"), k->hidden, inner, false, &b->out_proj));
    VX_TRY(vx_component_swiglu(c, join(&n, prefix, "mlp.fc1"), k->ffn, k->hidden, false, &b->fc1, &b->gate_first));
    VX_TRY(vx_component_linear(c, join(&n, prefix, "mlp.fc2"), k->hidden, k->ffn, false, &b->fc2));
    if (!modulated) return vx_ok();
    VX_TRY(vx_component_linear(c, join(&n, prefix, "adaln_proj.linear"), VX_MODALITIES * VX_MODULATIONS * k->hidden, k->time_dim,
                               true, &b->adaln));
    b->adaln.once = true; // the tables of a request hold all that its evaluations need of it
    return vx_ok();
}

static vx_status bind_blocks(vx_denoiser_block **out, const vx_denoiser *d, const char *prefix, int64_t count, bool modulated)
{
    *out = vx_alloc_array((size_t)count, sizeof **out);
    VX_NEED_MEMORY(*out, "the denoiser's blocks");
    for (int64_t i = 0; i < count; i++) {
        char block[64];
        snprintf(block, sizeof block, "%s%lld.", prefix, (long long)i);
        VX_TRY(bind_block(&(*out)[i], d, block, modulated));
    }
    return vx_ok();
}

// The embedder of a full model, or the table of a pruned one.
static vx_status bind_time(vx_denoiser *d)
{
    vx_component *c = d->component;
    const vx_denoiser_config *k = &d->config;
    if (!k->curve_points) {
        VX_TRY(vx_component_linear(c, "time_embedder.proj_in", k->time_hidden, k->timestep_dim, true, &d->time_in));
        return vx_component_linear(c, "time_embedder.proj_out", k->time_dim, k->time_hidden, true, &d->time_out);
    }
    if (vx_component_has(c, "time_embedder.proj_in.weight"))
        return vx_fail(
            VX_ERR_TENSOR_UNEXPECTED,
            "%s: 'adaln_t_table' and 'time_embedder.proj_in.weight' are both there: a pruned model has no time embedder",
            vx_component_path(c));
    VX_TRY(vx_component_get(c, "adaln_t_table", VX_F32, &d->curve, k->curve_points, k->time_dim));
    // Only full models' adapters ask for these (adapt.c).
    vx_component_ignore(c, "adaln_basis");
    vx_component_ignore(c, "adaln_mean");
    const float *p = d->curve.data;
    for (int64_t i = 0; i < k->curve_points * k->time_dim; i++)
        if (!isfinite(p[i]))
            return vx_fail(VX_ERR_NOT_FINITE, "%s: adaln_t_table[%lld,%lld] is %g", vx_component_path(c),
                           (long long)(i / k->time_dim), (long long)(i % k->time_dim), (double)p[i]);
    return vx_component_check(c);
}

static vx_status bind(vx_denoiser *d)
{
    vx_component *c = d->component;
    VX_TRY(vx_denoiser_config_read(&d->config, c));
    const vx_denoiser_config *k = &d->config;
    VX_TRY(bind_inv_freq(d));
    VX_TRY(vx_component_linear(c, "video_patch_proj", k->hidden, 4 * k->latent_channels, true, &d->video_patch));
    VX_TRY(vx_component_linear(c, "audio_patch_proj", k->hidden, k->audio_channels, true, &d->audio_patch));
    VX_TRY(vx_component_linear(c, "condition_proj", k->hidden, k->text_dim, true, &d->condition));
    VX_TRY(bind_time(d));
    VX_TRY(bind_blocks(&d->refiner, d, "token_refiner.blocks.", k->refiner_layers, false));
    VX_TRY(vx_component_get(c, "token_refiner.final_norm.weight", VX_DTYPE_NONE, &d->refiner_norm, k->hidden));
    VX_TRY(bind_blocks(&d->blocks, d, "blocks.", k->layers, true));
    VX_TRY(vx_component_get(c, "final_layer.norm.weight", VX_DTYPE_NONE, &d->final_norm, k->hidden));
    VX_TRY(vx_component_linear(c, "final_layer.adaln_proj.linear", 2 * k->hidden, k->time_dim, true, &d->final_adaln));
    VX_TRY(vx_component_linear(c, "final_layer.video_out", 4 * k->latent_channels, k->hidden, true, &d->video_out));
    VX_TRY(vx_component_linear(c, "final_layer.audio_out", k->audio_channels, k->hidden, true, &d->audio_out));
    return vx_component_finish(c);
}

vx_status vx_denoiser_open(vx_denoiser **out, vx_component *component)
{
    *out = NULL;
    vx_denoiser *d = vx_alloc_array(1, sizeof *d);
    VX_NEED_MEMORY(d, "the denoiser");
    d->component = component;
    d->stamp = vx_denoiser_stamp();
    vx_status s = bind(d);
    if (s.code != VX_OK) vx_denoiser_close(&d);
    else *out = d;
    return s;
}

void vx_denoiser_close(vx_denoiser **denoiser)
{
    if (!denoiser || !*denoiser) return;
    vx_denoiser_unadapt(*denoiser, NULL);
    vx_free((*denoiser)->refiner);
    vx_free((*denoiser)->blocks);
    vx_free(*denoiser);
    *denoiser = NULL;
}

const vx_denoiser_config *vx_denoiser_config_of(const vx_denoiser *denoiser)
{
    return &denoiser->config;
}
