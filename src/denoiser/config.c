// Dimensions of the transformer, in the spelling of the official or of the diffusers configuration (specification 1.1).
#include "denoiser/network.h"

static vx_status wrong(const vx_component *c, const char *what, int64_t found)
{
    return vx_fail(VX_ERR_CONFIG, "%s: %s, found %lld", vx_component_path(c), what, (long long)found);
}

// Members that only repeat what others say, or that this code has no other value for.
static vx_status check_fixed(const vx_component *c, const vx_denoiser_config *k)
{
    int64_t adaln = VX_MODALITIES * VX_MODULATIONS * k->hidden, final_adaln = 2 * k->hidden, patch[3];
    const int64_t want_adaln = adaln, want_final = final_adaln;
    VX_TRY(vx_config_int(c, "adaln_out_features", NULL, &want_adaln, &adaln));
    if (adaln != want_adaln) return wrong(c, "adaln_out_features must be 18 times hidden_size", adaln);
    VX_TRY(vx_config_int(c, "final_adaln_out_features", NULL, &want_final, &final_adaln));
    if (final_adaln != want_final) return wrong(c, "final_adaln_out_features must be twice hidden_size", final_adaln);
    bool found = false;
    VX_TRY(vx_config_ints(c, "patch_size", 3, patch, &found));
    if (found && (patch[0] != 1 || patch[1] != 2 || patch[2] != 2))
        return vx_fail(VX_ERR_CONFIG, "%s: patch_size must be [1, 2, 2], found [%lld, %lld, %lld]", vx_component_path(c),
                       (long long)patch[0], (long long)patch[1], (long long)patch[2]);
    double theta = 10000;
    VX_TRY(vx_config_float(c, "rope_theta", NULL, &theta, &theta));
    if (theta != 10000) return vx_fail(VX_ERR_CONFIG, "%s: rope_theta must be 10000, found %g", vx_component_path(c), theta);
    return vx_ok();
}

static vx_status from_file(vx_denoiser_config *k, const vx_component *c)
{
    const struct {
        const char *official, *diffusers;
        int64_t *out;
    } ints[] = {
        { "hidden_size", NULL, &k->hidden },
        { "num_layers", NULL, &k->layers },
        { "token_refiner_num_layers", "num_refiner_layers", &k->refiner_layers },
        { "num_attention_heads", NULL, &k->heads },
        { "attention_head_dim", NULL, &k->head_dim },
        { "ffn_hidden_size", "ffn_dim", &k->ffn },
        { "latents_dim", "in_channels", &k->latent_channels },
        { "audio_latents_dim", "audio_in_channels", &k->audio_channels },
        { "text_dim", NULL, &k->text_dim },
        { "timestep_input_dim", "freq_dim", &k->timestep_dim },
        { "time_embed_hidden_size", "time_embed_hidden_dim", &k->time_hidden },
        { "time_embed_dim", NULL, &k->time_dim },
        { "rope_inv_freq_len", "rope_freq_dim", &k->rope_freqs },
    };
    const int64_t absent = 1; // what a pruned model's table takes the place of
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        const bool time = ints[i].out == &k->timestep_dim || ints[i].out == &k->time_hidden || ints[i].out == &k->time_dim;
        VX_TRY(vx_config_int(c, ints[i].official, ints[i].diffusers, k->curve_points && time ? &absent : NULL, ints[i].out));
    }
    double norm, qk_norm, final_norm;
    VX_TRY(vx_config_float(c, "norm_eps", NULL, NULL, &norm));
    VX_TRY(vx_config_float(c, "qk_norm_eps", NULL, NULL, &qk_norm));
    VX_TRY(vx_config_float(c, "final_norm_eps", NULL, NULL, &final_norm));
    k->norm_eps = (float)norm;
    k->qk_norm_eps = (float)qk_norm;
    k->final_norm_eps = (float)final_norm;
    return check_fixed(c, k);
}

// One extent of a tensor; 0 if it is not there, which the check below refuses.
static int64_t extent(const vx_component *c, const char *name, int axis)
{
    int rank = 0;
    int64_t shape[VX_MAX_RANK] = { 0 };
    vx_component_shape(c, name, &rank, shape);
    return axis < rank ? shape[axis] : 0;
}

// A single file without a configuration: everything but the patch and the released model's epsilons shows in the shapes.
static vx_status from_shapes(vx_denoiser_config *k, const vx_component *c)
{
    VX_TRY(vx_component_layers(c, "blocks.", ".norm1.weight", &k->layers));
    VX_TRY(vx_component_layers(c, "token_refiner.blocks.", ".norm1.weight", &k->refiner_layers));
    k->hidden = extent(c, "video_patch_proj.weight", 0);
    k->latent_channels = extent(c, "video_patch_proj.weight", 1) / 4;
    k->audio_channels = extent(c, "audio_patch_proj.weight", 1);
    k->head_dim = extent(c, "blocks.0.attn.q_norm.weight", 0);
    if (k->head_dim > 0) k->heads = extent(c, "blocks.0.attn.out_proj.weight", 1) / k->head_dim;
    k->ffn = extent(c, "blocks.0.mlp.fc2.weight", 1);
    k->text_dim = extent(c, "condition_proj.weight", 1);
    k->timestep_dim = extent(c, "time_embedder.proj_in.weight", 1);
    k->time_hidden = extent(c, "time_embedder.proj_in.weight", 0);
    k->time_dim = extent(c, "time_embedder.proj_out.weight", 0);
    k->rope_freqs = VX_ROPE_FREQS;
    k->norm_eps = k->qk_norm_eps = k->final_norm_eps = 1e-5f;
    return vx_ok();
}

// A pruned model: sizes of its table, whatever a configuration of the full one says.
static vx_status read_curve(vx_denoiser_config *k, const vx_component *c)
{
    k->curve_points = extent(c, "adaln_t_table", 0);
    if (!vx_component_has(c, "adaln_t_table")) return vx_ok();
    const int64_t rank = extent(c, "adaln_t_table", 1);
    if (k->curve_points >= 2 && k->curve_points <= VX_CONFIG_MAX && rank >= 1 && rank <= VX_CONFIG_MAX) return vx_ok();
    return vx_fail(VX_ERR_TENSOR_SHAPE, "%s: 'adaln_t_table' is [%lld,%lld], expected [points,rank] with two points at least",
                   vx_component_path(c), (long long)k->curve_points, (long long)rank);
}

static vx_status check(const vx_component *c, const vx_denoiser_config *k)
{
    const struct {
        const char *name;
        int64_t value;
    } positive[] = {
        { "hidden_size", k->hidden },
        { "num_layers", k->layers },
        { "num_attention_heads", k->heads },
        { "attention_head_dim", k->head_dim },
        { "ffn_hidden_size", k->ffn },
        { "latents_dim", k->latent_channels },
        { "text_dim", k->text_dim },
        { "audio_latents_dim", k->audio_channels },
        { "time_embed_dim", k->time_dim },
        { "time_embed_hidden_size", k->time_hidden },
        { "timestep_input_dim", k->timestep_dim },
    };
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i].value < 1 || positive[i].value > VX_CONFIG_MAX)
            return vx_fail(VX_ERR_CONFIG, "%s: %s is %lld", vx_component_path(c), positive[i].name, (long long)positive[i].value);
    if (k->rope_freqs != VX_ROPE_FREQS) return wrong(c, "rope_inv_freq_len must be 16", k->rope_freqs);
    if (k->head_dim % 8 != 0 || k->head_dim < 2 * VX_ROPE_AXES * VX_ROPE_FREQS || k->head_dim > 256)
        return wrong(c, "attention_head_dim must be a multiple of 8 from 96 to 256", k->head_dim);
    if (k->timestep_dim % 2 != 0) return wrong(c, "timestep_input_dim must be even", k->timestep_dim);
    return vx_ok();
}

vx_status vx_denoiser_config_read(vx_denoiser_config *out, vx_component *component)
{
    vx_denoiser_config k = { 0 };
    VX_TRY(read_curve(&k, component));
    VX_TRY(vx_component_config(component) ? from_file(&k, component) : from_shapes(&k, component));
    if (k.curve_points) {
        k.time_dim = extent(component, "adaln_t_table", 1);
        k.timestep_dim = k.time_hidden = 2; // none: what is checked of a full model holds
    }
    VX_TRY(check(component, &k));
    *out = k;
    return vx_ok();
}
