// The order of the rows of a fused query-key-value matrix. Nothing in names, shapes or formats tells interleaved from grouped
// rows, and the wrong one gives plausible pictures of nothing, so the order follows from who wrote the file, from a look at the
// weights where nobody says, or is refused (public bugs P23; checkpoints specification 6.2).
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "weights/component_inside.h"
#include "weights/foreign.h"

static const char *metadata_of(const vx_component *c, const char *key)
{
    for (int f = 0; f < c->shards.files; f++) {
        const char *value = vx_container_metadata(&c->shards.file[f], key);
        if (value) return value;
    }
    return NULL;
}

// ---- who wrote it ----

// ComfyUI's exporter and merges of its files: {"transformer": {"image_model": "minimax_h3", ...}}.
static bool has_comfy_config(const vx_component *c)
{
    const char *text = metadata_of(c, "config");
    json_t *config = NULL;
    if (!text || vx_json_parse(&config, text, strlen(text), 16, VX_ERR_CONFIG, "metadata").code != VX_OK) return false;
    const char *model = json_string_value(json_object_get(json_object_get(config, "transformer"), "image_model"));
    bool comfy = model && strcmp(model, "minimax_h3") == 0;
    json_decref(config);
    return comfy;
}

static bool has_comfy_markers(const vx_component *c)
{
    if (metadata_of(c, "_quantization_metadata")) return true;
    for (int i = 0; i < c->count; i++)
        if (vx_has_suffix(c->entries[i].name, ".comfy_quant") || strcmp(c->entries[i].name, "scaled_fp8") == 0) return true;
    return false;
}

// None of these keys is in ComfyUI's files.
static bool is_deepbeepmeep(const vx_component *c)
{
    return (metadata_of(c, "repo_id") && metadata_of(c, "partition") && metadata_of(c, "precision")) ||
           metadata_of(c, "adaln_curve_rank");
}

static bool is_gguf(const vx_component *c)
{
    return c->shards.files > 0 && c->shards.file[0].gguf;
}

static bool any_quantised(const vx_component *c)
{
    for (int i = 0; i < c->count; i++)
        if (c->entries[i].layer) return true;
    return false;
}

const char *vx_component_origin(const vx_component *c)
{
    if (is_gguf(c)) return "gguf";
    if (c->kind == VX_TRANSFORMER && is_deepbeepmeep(c)) return "deepbeepmeep";
    if (has_comfy_markers(c) || has_comfy_config(c)) return "comfyui";
    if (c->layout == VX_LAYOUT_DIFFUSERS) return any_quantised(c) ? "lightx2v" : "diffusers";
    if (c->shards.indexed || c->config) return "official";
    // Single files of ComfyUI tell themselves by what only they have: shortened names, statistics, folded weights.
    if (c->kind == VX_TEXT_ENCODER && c->count > 0 && !vx_has_prefix(c->entries[0].entry->name, "model.language_model."))
        return "comfyui";
    if (c->kind == VX_VIDEO_VAE && vx_component_entry_of(c, "latents_mean")) return "comfyui";
    if (c->kind == VX_AUDIO_VAE && vx_component_entry_of(c, "decoder.conv_pre.weight")) return "comfyui";
    return "official";
}

// ---- a look at the weights ----

// Query and key rows pass a norm, value rows do not, so the lengths of value rows stand apart: three classes of bands of a
// head each. Which assignment of bands to classes explains the lengths better says how the rows are ordered.
enum { SAMPLED = 8, LEAST_HEADS = 8, PROBED = 3, MOST_BANDS = 768 };
static const double decisive = 4;

// Of `classes` members: variance between the three classes over that within them.
static double ratio(const double *length, int64_t bands, int64_t heads, bool interleaved)
{
    double sum[3] = { 0 }, all = 0, between = 0, within = 0;
    for (int64_t b = 0; b < bands; b++) {
        sum[interleaved ? b % 3 : b / heads] += length[b];
        all += length[b];
    }
    all /= (double)bands;
    for (int i = 0; i < 3; i++) between += (double)heads * (sum[i] / (double)heads - all) * (sum[i] / (double)heads - all);
    for (int64_t b = 0; b < bands; b++) {
        const double off = length[b] - sum[interleaved ? b % 3 : b / heads] / (double)heads;
        within += off * off;
    }
    return (between / 2) / (within / (double)(bands - 3) + 1e-30);
}

static bool band_length(const vx_quant *q, vx_tensor values, int64_t first, int64_t rows, float *row, double *out)
{
    double square = 0;
    const int64_t step = rows > SAMPLED ? rows / SAMPLED : 1;
    for (int64_t r = first; r < first + rows; r += step) {
        vx_quant_decode(q, values, r, 0, q->k, false, row);
        for (int64_t i = 0; i < q->k; i++) square += (double)row[i] * row[i];
    }
    if (!(square > 0) || !isfinite(square)) return false;
    *out = 0.5 * log(square);
    return true;
}

// -1 grouped, 1 interleaved, 0 neither.
static int probe_block(vx_component *c, int64_t block, float *row, int64_t most_k)
{
    char name[96];
    int rank;
    int64_t norm[VX_MAX_RANK], shape[VX_MAX_RANK];
    double length[MOST_BANDS];
    snprintf(name, sizeof name, "blocks.%lld.attn.q_norm.weight", (long long)block);
    vx_component_shape(c, name, &rank, norm);
    snprintf(name, sizeof name, "blocks.%lld.attn.qkv_proj.weight", (long long)block);
    vx_component_entry *e = vx_component_entry_of(c, name);
    if (rank != 1 || !e || norm[0] < 1) return 0;
    vx_component_entry_shape(e, &rank, shape);
    if (rank != 2 || shape[1] > most_k || shape[0] % (3 * norm[0])) return 0;
    const int64_t heads = shape[0] / norm[0] / 3;
    if (heads < LEAST_HEADS || 3 * heads > MOST_BANDS) return 0;
    if (e->layer ? vx_component_bind_layer(e).code != VX_OK : vx_component_align(e).code != VX_OK) return 0;
    const vx_quant plain = { .k = shape[1] };
    vx_tensor values = vx_component_view(e);
    if (!e->layer && values.dtype != VX_F32 && values.dtype != VX_BF16 && values.dtype != VX_F16) return 0;
    for (int64_t b = 0; b < 3 * heads; b++)
        if (!band_length(e->layer ? &e->layer->quant : &plain, values, b * norm[0], norm[0], row, &length[b])) return 0;
    const double interleaved = ratio(length, 3 * heads, heads, true), grouped = ratio(length, 3 * heads, heads, false);
    return interleaved >= decisive * grouped ? 1 : grouped >= decisive * interleaved ? -1 : 0;
}

static int probe(vx_component *c)
{
    enum { MOST_K = 1 << 16 };
    int64_t layers;
    if (vx_component_layers(c, "blocks.", ".norm1.weight", &layers).code != VX_OK || layers < 1) return 0;
    float *row = vx_alloc((size_t)MOST_K * sizeof *row);
    if (!row) return 0;
    const int64_t wanted = layers < PROBED ? layers : PROBED;
    int sum = 0;
    for (int64_t i = 0; i < wanted; i++) sum += probe_block(c, wanted > 1 ? i * (layers - 1) / (wanted - 1) : 0, row, MOST_K);
    vx_free(row);
    return sum == wanted ? 1 : sum == -wanted ? -1 : 0;
}

void vx_component_check_qkv(vx_component *c)
{
    if (c->kind != VX_TRANSFORMER || c->qkv == VX_QKV_SPLIT || c->qkv_checked) return;
    c->qkv_checked = true;
    const int seen = probe(c);
    if ((seen > 0 && c->qkv == VX_QKV_GROUPED) || (seen < 0 && c->qkv == VX_QKV_INTERLEAVED))
        vx_component_note(c, "the QKV rows look %s, but %s says %s; --qkv-layout decides", seen > 0 ? "interleaved" : "grouped",
                          c->qkv_reason, seen > 0 ? "grouped" : "interleaved");
}

// ---- the decision ----

static vx_status settle(vx_component *c, vx_qkv_order order, const char *reason)
{
    c->qkv = order;
    c->qkv_reason = reason;
    return vx_ok();
}

// What the files say themselves; *told false: nothing.
static vx_status by_files(vx_component *c, bool *told)
{
    *told = true;
    const char *class_name = json_string_value(json_object_get(c->config, "_class_name"));
    const bool official = class_name && strcmp(class_name, "MiniMaxH3DiTModel") == 0;
    const bool comfy = has_comfy_config(c), deepbeepmeep = is_deepbeepmeep(c);
    if (comfy && (deepbeepmeep || c->shards.indexed))
        return vx_fail(VX_ERR_MODEL_LAYOUT, "%s: the metadata says ComfyUI's grouped QKV rows, the %s says interleaved ones",
                       vx_short_path(c->path), deepbeepmeep ? "rest of the metadata" : "index of an official set");
    if (is_gguf(c)) return settle(c, VX_QKV_GROUPED, "GGUF");
    if (deepbeepmeep) { // its 8-bit files were made from ComfyUI's
        const char *format = metadata_of(c, "quantization_format");
        if (format && strcmp(format, "int8_convrot") == 0) return settle(c, VX_QKV_GROUPED, "DeepBeepMeep's metadata");
        return settle(c, VX_QKV_INTERLEAVED, "DeepBeepMeep's metadata");
    }
    if (comfy) return settle(c, VX_QKV_GROUPED, "ComfyUI's metadata");
    if (has_comfy_markers(c)) return settle(c, VX_QKV_GROUPED, "ComfyUI's markers");
    if (c->shards.indexed) return settle(c, VX_QKV_INTERLEAVED, "the index of an official set");
    if (official) return settle(c, VX_QKV_INTERLEAVED, "the official configuration");
    *told = false;
    return vx_ok();
}

// The user decides, and hears of it where the files say otherwise: the wrong order gives a plausible wrong picture.
static vx_status by_user(vx_component *c, vx_qkv_order order, bool told)
{
    if (told && c->qkv != order)
        vx_component_note(c, "--qkv-layout %s is used, but %s says %s QKV rows",
                          order == VX_QKV_GROUPED ? "grouped" : "interleaved", c->qkv_reason,
                          order == VX_QKV_GROUPED ? "interleaved" : "grouped");
    return settle(c, order, "--qkv-layout");
}

vx_status vx_component_decide_qkv(vx_component *c, vx_qkv_statement stated)
{
    settle(c, c->layout == VX_LAYOUT_DIFFUSERS ? VX_QKV_SPLIT : VX_QKV_INTERLEAVED, "the names");
    if (c->kind != VX_TRANSFORMER || c->layout == VX_LAYOUT_DIFFUSERS) return vx_ok();
    bool told;
    const vx_status s = by_files(c, &told);
    if (stated != VX_QKV_BY_FILE)
        return by_user(c, stated == VX_QKV_STATED_GROUPED ? VX_QKV_GROUPED : VX_QKV_INTERLEAVED, told && !s.code);
    VX_TRY(s);
    if (told) return vx_ok();
    const int seen = probe(c);
    if (seen) {
        settle(c, seen > 0 ? VX_QKV_INTERLEAVED : VX_QKV_GROUPED, "the lengths of the rows");
        vx_component_note(c, "nothing says the order of the QKV rows; by their lengths they are %s (--qkv-layout states it)",
                          seen > 0 ? "interleaved" : "grouped");
        return vx_ok();
    }
    return vx_fail_remedy(VX_ERR_MODEL_QKV,
                          "say --qkv-layout grouped (ComfyUI's rows) or --qkv-layout interleaved (official rows)",
                          "%s: the order of the QKV rows cannot be told (grouped as ComfyUI writes them, or interleaved as the "
                          "official files are): no metadata, markers or config.json say it, nor do the rows",
                          vx_short_path(c->path));
}

const char *vx_component_qkv_order(const vx_component *c, const char **reason)
{
    static const char *const names[] = {
        [VX_QKV_SPLIT] = "separate", [VX_QKV_INTERLEAVED] = "interleaved", [VX_QKV_GROUPED] = "grouped"
    };
    *reason = c->qkv_reason;
    return names[c->qkv];
}
