// Sources of the tables: denoiser specification 2.3, video VAE specification 3, audio VAE specification A7, text encoder
// specification 5.1, checkpoints specification 6.1.
#include "weights/names.h"

#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "weights/foreign.h"

// A rule replaces whole dotted components: "proj_out" at the head of a name is the output head, elsewhere it is not.
typedef enum place { HEAD, INSIDE } place;
typedef struct rule {
    place place;
    const char *from, *to;
} rule;

static const rule transformer_rules[] = {
    { HEAD, "transformer_blocks", "blocks" },
    { HEAD, "token_refiner.refiner_blocks", "token_refiner.blocks" },
    { HEAD, "proj_in", "video_patch_proj" },
    { HEAD, "audio_proj_in", "audio_patch_proj" },
    { HEAD, "context_embedder", "condition_proj" },
    { HEAD, "time_embedder.linear_1", "time_embedder.proj_in" },
    { HEAD, "time_embedder.linear_2", "time_embedder.proj_out" },
    { HEAD, "norm_out.norm", "final_layer.norm" },
    { HEAD, "norm_out.linear", "final_layer.adaln_proj.linear" },
    { HEAD, "proj_out", "final_layer.video_out" },
    { HEAD, "audio_proj_out", "final_layer.audio_out" },
    { INSIDE, "attn.norm_q", "attn.q_norm" },
    { INSIDE, "attn.norm_k", "attn.k_norm" },
    { INSIDE, "attn.to_out.0", "attn.out_proj" },
    { INSIDE, "ff.net.0.proj", "mlp.fc1" }, // its halves are the other way round
    { INSIDE, "ff.net.2", "mlp.fc2" },
};

static const rule video_rules[] = {
    { HEAD, "encoder.down_blocks", "encoder.down" },
    { HEAD, "decoder.proj_in", "decoder.x_embedder" },
    { INSIDE, "resnets", "block" },
    { INSIDE, "conv_shortcut", "nin_shortcut" },
    { INSIDE, "downsamplers.0", "downsample" },
    { INSIDE, "attn.to_out.0", "attn.to_out" },
    { INSIDE, "ff.net.0.proj", "ff.w1" }, // its halves are the other way round
    { INSIDE, "ff.net.2", "ff.w2" },
};

static const rule audio_rules[] = {
    { INSIDE, "parametrizations.weight.original0", "weight_g" }, // torch.nn.utils.parametrizations.weight_norm
    { INSIDE, "parametrizations.weight.original1", "weight_v" },
};

// The first that fits is the only one that acts: "visual" must not see what "model.visual" has settled.
static const rule text_rules[] = {
    { HEAD, "model.language_model", "model.language_model" },
    { HEAD, "model.visual", "model.visual" },
    { HEAD, "language_model", "model.language_model" },
    { HEAD, "visual", "model.visual" },
    { HEAD, "model", "model.language_model" },
};

// llama.cpp's spelling; its query and key rows stand as transformers has them.
static const rule llama_text_rules[] = {
    { HEAD, "token_embd", "model.language_model.embed_tokens" },
    { HEAD, "output_norm", "model.language_model.norm" },
    { HEAD, "output", "lm_head" },
    { HEAD, "blk", "model.language_model.layers" },
    { INSIDE, "attn_q", "self_attn.q_proj" },
    { INSIDE, "attn_k", "self_attn.k_proj" },
    { INSIDE, "attn_v", "self_attn.v_proj" },
    { INSIDE, "attn_output", "self_attn.o_proj" },
    { INSIDE, "attn_q_norm", "self_attn.q_norm" },
    { INSIDE, "attn_k_norm", "self_attn.k_norm" },
    { INSIDE, "attn_norm", "input_layernorm" },
    { INSIDE, "ffn_norm", "post_attention_layernorm" },
    { INSIDE, "ffn_gate", "mlp.gate_proj" },
    { INSIDE, "ffn_up", "mlp.up_proj" },
    { INSIDE, "ffn_down", "mlp.down_proj" },
};
static const rule llama_vision_rules[] = {
    { HEAD, "v.blk", "model.visual.blocks" },
    { HEAD, "v.post_ln", "model.visual.merger.norm" },
    { HEAD, "mm.0", "model.visual.merger.linear_fc1" },
    { HEAD, "mm.2", "model.visual.merger.linear_fc2" },
    { HEAD, "v.position_embd", "model.visual.pos_embed" },
    { HEAD, "v.patch_embd", "model.visual.patch_embed.proj" }, // .weight and .weight.1: a frame each
    { HEAD, "v.deepstack", "model.visual.deepstack_merger_list" },
    { INSIDE, "attn_qkv", "attn.qkv" },
    { INSIDE, "attn_out", "attn.proj" },
    { INSIDE, "ffn_up", "mlp.linear_fc1" },
    { INSIDE, "ffn_down", "mlp.linear_fc2" },
    { INSIDE, "ln1", "norm1" },
    { INSIDE, "ln2", "norm2" },
    { INSIDE, "fc1", "linear_fc1" },
    { INSIDE, "fc2", "linear_fc2" },
};

static const char *const kind_names[VX_COMPONENT_KINDS] = { "transformer", "text encoder", "video VAE", "audio VAE" };

const char *vx_component_kind_name(vx_component_kind kind)
{
    return kind_names[kind];
}

const char *vx_component_option(vx_component_kind kind)
{
    static const char *const options[VX_COMPONENT_KINDS] = { "--model", "--text-encoder", "--video-vae", "--audio-vae" };
    return options[kind];
}

// ---- translation ----

// Where `part`, as whole dotted components, begins in `name`; NULL if nowhere.
static const char *find_part(const char *name, const char *part, place where)
{
    size_t size = strlen(part);
    for (const char *at = name;;) {
        if (strncmp(at, part, size) == 0 && (at[size] == '.' || at[size] == 0)) return at;
        if (where == HEAD) return NULL;
        at = strchr(at, '.');
        if (!at) return NULL;
        at++;
    }
}

static char *replace(char *name, const char *at, const rule *r)
{
    vx_str out = { 0 };
    vx_str_print(&out, "%.*s%s%s", (int)(at - name), name, r->to, at + strlen(r->from));
    vx_free(name);
    return vx_str_take(&out);
}

static char *apply(const char *name, const rule *rules, size_t count, bool first_only)
{
    char *out = vx_strdup(name);
    for (size_t i = 0; out && i < count; i++) {
        const char *at = find_part(out, rules[i].from, rules[i].place);
        if (!at) continue;
        out = replace(out, at, &rules[i]);
        if (first_only) break;
    }
    return out;
}

#define APPLY(name, rules, first_only) apply((name), (rules), sizeof(rules) / sizeof *(rules), (first_only))

char *vx_names_canonical(vx_component_kind kind, vx_layout_kind layout, const char *name)
{
    switch (kind) {
    case VX_TEXT_ENCODER:
        if (layout != VX_LAYOUT_LLAMA) return APPLY(name, text_rules, true);
        if (vx_has_prefix(name, "v.") || vx_has_prefix(name, "mm.")) return APPLY(name, llama_vision_rules, false);
        return APPLY(name, llama_text_rules, false);
    case VX_AUDIO_VAE: return APPLY(name, audio_rules, true);
    case VX_VIDEO_VAE: return layout == VX_LAYOUT_DIFFUSERS ? APPLY(name, video_rules, false) : vx_strdup(name);
    case VX_TRANSFORMER: return layout == VX_LAYOUT_DIFFUSERS ? APPLY(name, transformer_rules, false) : vx_strdup(name);
    case VX_COMPONENT_KINDS: break;
    }
    return NULL;
}

// ---- prefix ----

static int count_prefixed(const char *const *names, int count, const char *prefix, size_t size)
{
    int found = 0;
    for (int i = 0; i < count; i++) found += strncmp(names[i], prefix, size) == 0;
    return found;
}

// "text_encoders.<word>.": the word differs between exporters.
static size_t text_encoder_prefix(const char *name)
{
    static const char start[] = "text_encoders.";
    if (!vx_has_prefix(name, start)) return 0;
    const char *dot = strchr(name + sizeof start - 1, '.');
    return dot ? (size_t)(dot - name) + 1 : 0;
}

static bool has_blocks(const char *const *names, int count, size_t skip)
{
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) > skip &&
            (find_part(names[i] + skip, "blocks", HEAD) || find_part(names[i] + skip, "transformer_blocks", HEAD)))
            return true;
    return false;
}

vx_status vx_names_prefix(vx_component_kind kind, const char *const *names, int count, const char *path, size_t *prefix)
{
    static const char *const candidates[VX_COMPONENT_KINDS][5] = {
        [VX_TRANSFORMER] = { "model.diffusion_model.", "diffusion_model.", "transformer.", "model." },
        [VX_VIDEO_VAE] = { "video_vae.", "vae.", "first_stage_model." },
        [VX_AUDIO_VAE] = { "audio_vae.", "model." },
    };
    *prefix = 0;
    int root = 0; // a marker that stands before the prefix
    for (int i = 0; i < count; i++) root += strcmp(names[i], "scaled_fp8") == 0;
    if (count == root) return vx_ok();
    size_t encoder = kind == VX_TEXT_ENCODER ? text_encoder_prefix(names[0]) : 0;
    for (int i = 0; i < 5; i++) {
        const char *candidate = i == 4 ? (encoder ? names[0] : NULL) : candidates[kind][i];
        if (!candidate) continue;
        size_t size = i == 4 ? encoder : strlen(candidate);
        int found = count_prefixed(names, count, candidate, size);
        if (found == 0) continue;
        if (kind == VX_TRANSFORMER && strcmp(candidate, "model.") == 0 && !has_blocks(names, count, size)) continue;
        if (found != count - root && kind == VX_AUDIO_VAE) continue; // "model." may begin the names of another component
        if (found != count - root)
            return vx_fail(VX_ERR_MODEL_LAYOUT, "%s: %d of %d tensors have the prefix '%.*s', expected all or none",
                           vx_short_path(path), found, count, (int)size, candidate);
        *prefix = size;
        return vx_ok();
    }
    return vx_ok();
}

// ---- layout ----

enum { MOST_HEADS = 8 };
// Heads of names that only one layout has.
static const char *const signs[VX_COMPONENT_KINDS][2][MOST_HEADS] = {
    [VX_TRANSFORMER] = { { "blocks", "video_patch_proj", "audio_patch_proj", "final_layer" },
                         { "transformer_blocks", "audio_proj_in", "context_embedder", "norm_out" } },
    [VX_VIDEO_VAE] = { { "decoder.x_embedder", "encoder.down", NULL }, { "decoder.proj_in", "encoder.down_blocks", NULL } },
};
// Heads of which one at least must be there, in either layout: other models share the names above.
static const char *const proof[VX_COMPONENT_KINDS][MOST_HEADS] = {
    [VX_TRANSFORMER] = { "audio_patch_proj", "audio_proj_in", "video_patch_proj", "context_embedder" },
    [VX_TEXT_ENCODER] = { "model.language_model", "language_model", "model.layers", "model.embed_tokens", "model.visual",
                          "visual" },
    [VX_VIDEO_VAE] = { "decoder.x_embedder", "decoder.proj_in", "decoder.transformer_blocks" },
    [VX_AUDIO_VAE] = { "dec_in_proj", "pre_block", "decoder.conv_pre" },
};
static const char *const llama[MOST_HEADS] = { "blk", "token_embd", "v.blk", "v.patch_embd" };

static const char *find_sign(const char *const *names, int count, const char *const *heads)
{
    for (int h = 0; h < MOST_HEADS && heads[h]; h++)
        for (int i = 0; i < count; i++)
            if (find_part(names[i], heads[h], HEAD)) return names[i];
    return NULL;
}

// VX_COMPONENT_KINDS: none.
static int other_kind(vx_component_kind kind, const char *const *names, int count)
{
    if (find_sign(names, count, llama)) return VX_TEXT_ENCODER;
    int k = 0;
    while (k < VX_COMPONENT_KINDS && (k == (int)kind || !find_sign(names, count, proof[k]))) k++;
    return k;
}

vx_status vx_names_layout(vx_component_kind kind, const char *const *names, int count, const char *path, vx_layout_kind *layout)
{
    const char *file = vx_short_path(path);
    *layout = VX_LAYOUT_LLAMA;
    if (kind == VX_TEXT_ENCODER && find_sign(names, count, llama)) return vx_ok();
    if (count == 0) return vx_fail(VX_ERR_MODEL_UNKNOWN, "%s holds no tensors: no %s of MiniMax H3", file, kind_names[kind]);
    if (!find_sign(names, count, proof[kind])) {
        static const char *const tower[MOST_HEADS] = { "v.blk", "v.patch_embd" }, *const body[MOST_HEADS] = { "blk",
                                                                                                              "token_embd" };
        const int other = other_kind(kind, names, count);
        if (other == VX_TEXT_ENCODER && find_sign(names, count, tower) && !find_sign(names, count, body))
            return vx_fail_remedy(VX_ERR_MODEL_UNKNOWN, "give it with --vision, beside --text-encoder",
                                  "%s is not the %s of MiniMax H3, it looks like its text encoder's vision tower", file,
                                  kind_names[kind]);
        if (other < VX_COMPONENT_KINDS)
            return vx_remedy(vx_fail(VX_ERR_MODEL_UNKNOWN, "%s is not the %s of MiniMax H3, it looks like its %s", file,
                                     kind_names[kind], kind_names[other]),
                             "give it with %s", vx_component_option((vx_component_kind)other));
        return vx_fail(VX_ERR_MODEL_UNKNOWN,
                       "%s is not the %s of MiniMax H3: looked for tensors like '%s.weight', the first one is '%.100s'", file,
                       kind_names[kind], proof[kind][0], names[0]);
    }
    *layout = VX_LAYOUT_OFFICIAL;
    if (!signs[kind][0][0]) return vx_ok(); // spelled the same in both layouts
    const char *official = find_sign(names, count, signs[kind][0]), *diffusers = find_sign(names, count, signs[kind][1]);
    if (official && diffusers)
        return vx_fail(VX_ERR_MODEL_LAYOUT, "%s mixes two layouts: '%.100s' is an official name, '%.100s' one of diffusers", file,
                       official, diffusers);
    if (diffusers) *layout = VX_LAYOUT_DIFFUSERS;
    return vx_ok();
}

bool vx_names_kind(const char *const *names, int count, vx_component_kind *kind)
{
    const char **bare = vx_alloc_array((size_t)count + 1, sizeof *bare);
    bool found = false;
    for (int k = 0; bare && k < VX_COMPONENT_KINDS && !found; k++) {
        vx_layout_kind layout;
        size_t prefix;
        if (vx_names_prefix((vx_component_kind)k, names, count, "", &prefix).code != VX_OK) continue;
        for (int i = 0; i < count; i++) bare[i] = strlen(names[i]) > prefix ? names[i] + prefix : names[i];
        found = vx_names_layout((vx_component_kind)k, bare, count, "", &layout).code == VX_OK;
        if (found) *kind = (vx_component_kind)k;
    }
    vx_free(bare);
    return found;
}
