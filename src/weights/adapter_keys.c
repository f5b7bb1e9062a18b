#include "weights/adapter_keys.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

enum { MOST_BLOCKS = VX_ADAPTER_BLOCKS };

// ---- methods that are not run ----

static const struct {
    const char *piece, *what;
} refused[] = {
    { ".dora_scale", "DoRA" },
    { ".lora_magnitude_vector", "DoRA" },
    { ".lokr_", "LoKr" },
    { ".hada_", "LoHa" },
    { ".lora_mid", "LoCon with a middle" },
    { ".set_weight", "replaced weights" },
    { ".oft_", "OFT" },
    { ".oft_R", "OFT" },
    { ".boft_", "BOFT" },
    { ".lora_embedding_", "an embedding's LoRA" },
};

// ---- modules ----

static const struct {
    const char *text;
    bool refiner, diffusers;
} stems[] = {
    { "blocks.#.", false, false },
    { "transformer_blocks.#.", false, true },
    { "token_refiner.blocks.#.", true, false },
    { "token_refiner.refiner_blocks.#.", true, true },
};

static const struct {
    const char *text;
    vx_adapter_kind kind;
    vx_adapter_part part;
    bool diffusers;
} inner[] = {
    { "attn.qkv_proj", VX_MODULE_QKV, VX_PART_WHOLE, false },  { "attn.to_q", VX_MODULE_QKV, VX_PART_Q_OF_QKV, true },
    { "attn.to_k", VX_MODULE_QKV, VX_PART_K_OF_QKV, true },    { "attn.to_v", VX_MODULE_QKV, VX_PART_V_OF_QKV, true },
    { "attn.q_proj", VX_MODULE_QKV, VX_PART_Q_OF_QKV, false }, { "attn.k_proj", VX_MODULE_QKV, VX_PART_K_OF_QKV, false },
    { "attn.v_proj", VX_MODULE_QKV, VX_PART_V_OF_QKV, false }, { "attn.out_proj", VX_MODULE_OUT, VX_PART_WHOLE, false },
    { "attn.to_out.0", VX_MODULE_OUT, VX_PART_WHOLE, true },   { "mlp.fc1", VX_MODULE_FC1, VX_PART_WHOLE, false },
    { "ff.net.0.proj", VX_MODULE_FC1, VX_PART_WHOLE, true },   { "mlp.fc2", VX_MODULE_FC2, VX_PART_WHOLE, false },
    { "ff.net.2", VX_MODULE_FC2, VX_PART_WHOLE, true },        { "adaln_proj.linear", VX_MODULE_ADALN, VX_PART_WHOLE, false },
};

static const struct {
    const char *official, *diffusers;
    vx_adapter_kind kind;
} single[] = {
    { "video_patch_proj", "proj_in", VX_MODULE_VIDEO_PATCH },
    { "audio_patch_proj", "audio_proj_in", VX_MODULE_AUDIO_PATCH },
    { "condition_proj", "context_embedder", VX_MODULE_CONDITION },
    { "time_embedder.proj_in", "time_embedder.linear_1", VX_MODULE_TIME_IN },
    { "time_embedder.proj_out", "time_embedder.linear_2", VX_MODULE_TIME_OUT },
    { "final_layer.adaln_proj.linear", "norm_out.linear", VX_MODULE_FINAL_ADALN },
    { "final_layer.video_out", "proj_out", VX_MODULE_VIDEO_OUT },
    { "final_layer.audio_out", "audio_proj_out", VX_MODULE_AUDIO_OUT },
};

const char *vx_adapter_module_name(char out[64], vx_adapter_module m)
{
    if (m.kind < VX_MODULE_VIDEO_PATCH) {
        const char *tail = "";
        for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
            if (inner[i].kind == m.kind && inner[i].part == VX_PART_WHOLE && !inner[i].diffusers) tail = inner[i].text;
        snprintf(out, 64, "%sblocks.%d.%s", m.refiner ? "token_refiner." : "", m.block, tail);
        return out;
    }
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        if (single[i].kind == m.kind) snprintf(out, 64, "%s", single[i].official);
    return out;
}

// Reads the template's text from *s; '.' may stand as '_', '#' is a number without leading zeros.
static bool take(const char **s, const char *template, int *block, bool *flat)
{
    const char *p = *s;
    for (; *template; template ++) {
        if (*template == '#') {
            int n = 0, digits = 0;
            for (; *p >= '0' && *p <= '9' && digits < 4; p++, digits++) n = n * 10 + (*p - '0');
            if (digits == 0 || n >= MOST_BLOCKS || (digits > 1 && p[-digits] == '0')) return false;
            *block = n;
        } else if (*template == '.' && *p == '_') {
            *flat = true;
            p++;
        } else if (*template != *p++) return false;
    }
    *s = p;
    return true;
}

static bool parse_block(vx_adapter_key *key, const char *text)
{
    for (size_t i = 0; i < sizeof stems / sizeof *stems; i++) {
        for (size_t j = 0; j < sizeof inner / sizeof *inner; j++) {
            const char *s = text;
            bool flat = false;
            int block = 0;
            if (!take(&s, stems[i].text, &block, &flat)) break;
            if (!take(&s, inner[j].text, &block, &flat) || *s) continue;
            if (stems[i].refiner && inner[j].kind == VX_MODULE_ADALN) continue;
            key->module = (vx_adapter_module){ inner[j].kind, stems[i].refiner, block };
            key->part = inner[j].part;
            key->flat = flat;
            key->diffusers = stems[i].diffusers || inner[j].diffusers;
            key->value_first = inner[j].kind == VX_MODULE_FC1 && inner[j].diffusers;
            return true;
        }
    }
    return false;
}

static bool parse_module(vx_adapter_key *key, const char *text)
{
    if (parse_block(key, text)) return true;
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
        for (int diffusers = 0; diffusers < 2; diffusers++) {
            const char *s = text;
            bool flat = false;
            int block = 0;
            if (!take(&s, diffusers ? single[i].diffusers : single[i].official, &block, &flat) || *s) continue;
            key->module = (vx_adapter_module){ single[i].kind, false, 0 };
            key->part = VX_PART_WHOLE;
            key->flat = flat;
            key->diffusers = diffusers;
            return true;
        }
    }
    return false;
}

// ---- suffixes ----

static const struct {
    const char *text;
    vx_adapter_role role;
} factors[] = {
    { ".lora_A", VX_ROLE_A },    { ".lora_B", VX_ROLE_B },  { ".lora_down", VX_ROLE_A }, { ".lora_up", VX_ROLE_B },
    { ".lora.down", VX_ROLE_A }, { ".lora.up", VX_ROLE_B }, { ".lora.A", VX_ROLE_A },    { ".lora.B", VX_ROLE_B },
};
// The longer one of two that end alike comes first.
static const struct {
    const char *text;
    vx_adapter_role role;
} whole[] = {
    { ".alpha", VX_ROLE_ALPHA },      { ".diff", VX_ROLE_DIFF },
    { ".diff_b", VX_ROLE_DIFF_BIAS }, { ".reshape_weight", VX_ROLE_RESHAPE },
    { ".weight", VX_ROLE_BANK },      { ".bias", VX_ROLE_BANK_BIAS },
};

// ".weight", or ".<name>.weight" with PEFT's name of the adapter.
static bool ends_factor(const char *s, bool *is_default)
{
    *is_default = vx_has_prefix(s, ".default.");
    if (strcmp(s, ".weight") == 0) return true;
    if (*s++ != '.') return false;
    const char *dot = strchr(s, '.');
    return dot && dot > s && strcmp(dot, ".weight") == 0;
}

// The suffix's place in the name, NULL if there is none that is known.
static const char *find_suffix(vx_adapter_key *key, const char *name)
{
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        const char *at = strstr(name, factors[i].text);
        if (!at || !ends_factor(at + strlen(factors[i].text), &key->default_)) continue;
        key->role = factors[i].role;
        return at;
    }
    key->default_ = false;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        if (!vx_has_suffix(name, whole[i].text)) continue;
        key->role = whole[i].role;
        return name + strlen(name) - strlen(whole[i].text);
    }
    return NULL;
}

static const char *after_prefix(vx_adapter_key *key, const char *name)
{
    static const char *const prefixes[] = { "base_model.model.", "model.diffusion_model.", "diffusion_model.",
                                            "transformer_ref.",  "transformer.",           "model.",
                                            "lora_unet_" };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        if (!vx_has_prefix(name, prefixes[i])) continue;
        key->reference = i == 3;
        return name + strlen(prefixes[i]);
    }
    return name;
}

vx_key_answer vx_adapter_key_parse(vx_adapter_key *out, const char *name, const char **what)
{
    *out = (vx_adapter_key){ 0 };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strstr(name, refused[i].piece)) {
            *what = refused[i].what;
            return VX_KEY_REFUSED;
        }
    char module[96];
    const char *start = after_prefix(out, name), *end = find_suffix(out, start);
    if (!end || (size_t)(end - start) >= sizeof module) return VX_KEY_UNKNOWN;
    memcpy(module, start, (size_t)(end - start));
    module[end - start] = 0;
    if (!parse_module(out, module)) return VX_KEY_UNKNOWN;
    const bool head = out->module.kind == VX_MODULE_VIDEO_OUT || out->module.kind == VX_MODULE_AUDIO_OUT;
    if ((out->role == VX_ROLE_BANK || out->role == VX_ROLE_BANK_BIAS || out->role == VX_ROLE_RESHAPE) && !head)
        return VX_KEY_UNKNOWN;
    return VX_KEY_KNOWN;
}
