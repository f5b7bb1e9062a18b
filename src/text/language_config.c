// Single files carry no configuration: their sizes are read off the tensors, and what tensors do not show (eps, theta, the
// rotary sections) is as released (text_encoder/config.json of MiniMax-H3).
#include "text/language_config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define RELEASED_RMS_EPS    1e-6
#define RELEASED_ROPE_THETA 5e6
static const int64_t RELEASED_SECTION[3] = { 24, 20, 20 };

// vx_attention takes these head sizes.
enum { HEAD_DIM_STEP = 8, MAX_HEAD_DIM = 256 };

static vx_status shape_of(const vx_component *c, const char *name, int rank, int64_t shape[VX_MAX_RANK])
{
    int found;
    vx_component_shape(c, name, &found, shape);
    if (found == rank) return vx_ok();
    const vx_status s =
        vx_fail(found ? VX_ERR_TENSOR_SHAPE : VX_ERR_TENSOR_MISSING, "%s: '%s' %s", vx_component_path(c), name,
                found ? "has another rank than a text encoder's" : "is missing: this is no Qwen3-VL text encoder");
    const bool tower =
        !vx_component_has(c, "model.language_model.embed_tokens.weight") && vx_component_has(c, "model.visual.pos_embed.weight");
    return tower ? vx_remedy(s, "it is a vision tower: give it with --vision, and the text encoder beside it") : s;
}

static vx_status from_tensors(vx_language_config *g, const vx_component *c)
{
    int64_t embed[VX_MAX_RANK], q[VX_MAX_RANK], k[VX_MAX_RANK], norm[VX_MAX_RANK], gate[VX_MAX_RANK];
    VX_TRY(shape_of(c, "model.language_model.embed_tokens.weight", 2, embed));
    VX_TRY(shape_of(c, "model.language_model.layers.0.self_attn.q_proj.weight", 2, q));
    VX_TRY(shape_of(c, "model.language_model.layers.0.self_attn.k_proj.weight", 2, k));
    VX_TRY(shape_of(c, "model.language_model.layers.0.self_attn.q_norm.weight", 1, norm));
    VX_TRY(shape_of(c, "model.language_model.layers.0.mlp.gate_proj.weight", 2, gate));
    if (norm[0] < 1) return vx_fail(VX_ERR_TENSOR_SHAPE, "%s: the query norm is empty", vx_component_path(c));
    *g = (vx_language_config){ .hidden = embed[1],
                               .vocabulary = embed[0],
                               .head_dim = norm[0],
                               .heads = q[0] / norm[0],
                               .kv_heads = k[0] / norm[0],
                               .intermediate = gate[0],
                               .rms_eps = (float)RELEASED_RMS_EPS,
                               .rope_theta = RELEASED_ROPE_THETA };
    for (int i = 0; i < 3; i++) g->mrope_section[i] = (int)RELEASED_SECTION[i];
    return vx_ok();
}

// transformers 5 moved "rope_theta" and "rope_scaling" into one "rope_parameters".
static vx_status read_rotary(vx_language_config *g, const vx_component *c)
{
    const double theta = RELEASED_ROPE_THETA;
    int64_t section[3];
    bool found;
    memcpy(section, RELEASED_SECTION, sizeof section);
    VX_TRY(vx_config_float(c, "text_config.rope_theta", "text_config.rope_parameters.rope_theta", &theta, &g->rope_theta));
    VX_TRY(vx_config_ints(c, "text_config.rope_scaling.mrope_section", 3, section, &found));
    if (!found) VX_TRY(vx_config_ints(c, "text_config.rope_parameters.mrope_section", 3, section, &found));
    for (int i = 0; i < 3; i++) g->mrope_section[i] = (int)section[i];
    return vx_ok();
}

static vx_status read_sizes(vx_language_config *g, const vx_component *c)
{
    const double eps = RELEASED_RMS_EPS;
    double rms_eps;
    VX_TRY(vx_config_int(c, "text_config.hidden_size", NULL, NULL, &g->hidden));
    VX_TRY(vx_config_int(c, "text_config.vocab_size", NULL, NULL, &g->vocabulary));
    VX_TRY(vx_config_int(c, "text_config.num_attention_heads", NULL, NULL, &g->heads));
    VX_TRY(vx_config_int(c, "text_config.num_key_value_heads", NULL, NULL, &g->kv_heads));
    const int64_t head_dim = g->hidden / g->heads; // the reference's default
    VX_TRY(vx_config_int(c, "text_config.head_dim", NULL, &head_dim, &g->head_dim));
    VX_TRY(vx_config_int(c, "text_config.intermediate_size", NULL, NULL, &g->intermediate));
    VX_TRY(vx_config_float(c, "text_config.rms_norm_eps", NULL, &eps, &rms_eps));
    g->rms_eps = (float)rms_eps;
    return read_rotary(g, c);
}

// Switches of the same family that would need other code: refused, never passed over.
static vx_status check_switches(const vx_component *c)
{
    const json_t *text = json_object_get(vx_component_config(c), "text_config");
    if (json_is_true(json_object_get(text, "attention_bias")))
        return vx_fail(VX_ERR_CONFIG, "%s: text_config.attention_bias is true, but this model has none", vx_component_path(c));
    const char *act = json_string_value(json_object_get(text, "hidden_act"));
    if (act && strcmp(act, "silu") != 0)
        return vx_fail(VX_ERR_CONFIG, "%s: text_config.hidden_act is '%s', expected 'silu'", vx_component_path(c), act);
    static const char *const groups[] = { "rope_scaling", "rope_parameters" };
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        const json_t *rope = json_object_get(text, groups[i]);
        const char *type = json_string_value(json_object_get(rope, "rope_type"));
        if (type && strcmp(type, "default") != 0)
            return vx_fail(VX_ERR_CONFIG, "%s: text_config.%s.rope_type is '%s', expected 'default'", vx_component_path(c),
                           groups[i], type);
        if (json_is_false(json_object_get(rope, "mrope_interleaved")))
            return vx_fail(VX_ERR_CONFIG, "%s: text_config.%s.mrope_interleaved is false, expected true", vx_component_path(c),
                           groups[i]);
    }
    return vx_ok();
}

static vx_status check_sizes(const vx_language_config *g, const vx_component *c)
{
    const char *path = vx_component_path(c);
    if (g->head_dim < 1 || g->head_dim % HEAD_DIM_STEP || g->head_dim > MAX_HEAD_DIM)
        return vx_fail(VX_ERR_CONFIG, "%s: a head size of %" PRId64 ", expected a multiple of %d up to %d", path, g->head_dim,
                       HEAD_DIM_STEP, MAX_HEAD_DIM);
    if (g->kv_heads < 1 || g->heads < 1 || g->heads % g->kv_heads)
        return vx_fail(VX_ERR_CONFIG, "%s: %" PRId64 " query heads cannot share %" PRId64 " key heads", path, g->heads,
                       g->kv_heads);
    if (g->heads > VX_CONFIG_MAX / g->head_dim)
        return vx_fail(VX_ERR_CONFIG, "%s: %" PRId64 " heads of %" PRId64 " are too many", path, g->heads, g->head_dim);
    if (!(g->rope_theta > 0) || !(g->rms_eps > 0))
        return vx_fail(VX_ERR_CONFIG, "%s: rope_theta %g and rms_norm_eps %g must be positive", path, g->rope_theta,
                       (double)g->rms_eps);
    return vx_ok();
}

vx_status vx_language_config_read(vx_language_config *out, const vx_component *c)
{
    *out = (vx_language_config){ 0 };
    if (vx_component_config(c)) {
        VX_TRY(check_switches(c));
        VX_TRY(read_sizes(out, c));
    } else {
        VX_TRY(from_tensors(out, c));
    }
    VX_TRY(check_sizes(out, c));
    VX_TRY(vx_component_layers(c, "model.language_model.layers.", ".input_layernorm.weight", &out->layers_in_file));
    if (out->layers_in_file < VX_LANGUAGE_LAYERS)
        return vx_fail(VX_ERR_TENSOR_MISSING,
                       "%s: %" PRId64 " layers, expected at least %d: the conditioning is taken after layer %d",
                       vx_component_path(c), out->layers_in_file, VX_LANGUAGE_LAYERS, VX_LANGUAGE_LAYERS);
    return vx_ok();
}
