// Opening: files, configuration, names, layout.
#include "weights/component.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "weights/component_inside.h"
#include "weights/foreign.h"
#include "weights/locate.h"
#include "weights/names.h"
#include "weights/refuse.h"

// Text states are taken after layer 50; files hold 64 (text encoder specification 3.2).
enum { TEXT_LAYERS = 50 };

// ---- the table of names ----

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const vx_component_entry *)a)->name, ((const vx_component_entry *)b)->name);
}

static vx_status check_unique(const vx_component *c)
{
    for (int i = 1; i < c->count; i++) {
        const vx_component_entry *a = &c->entries[i - 1], *b = &c->entries[i];
        if (strcmp(a->name, b->name) == 0)
            return vx_fail(VX_ERR_TENSOR_DUPLICATE, "%s: '%.150s' and '%.150s' are the same tensor '%.150s'",
                           vx_short_path(c->path), a->entry->name, b->entry->name, a->name);
    }
    return vx_ok();
}

static void collect(vx_component *c, const char **names)
{
    int n = 0;
    for (int f = 0; f < c->shards.files; f++)
        for (int i = 0; i < vx_safetensors_count(c->shards.file[f]); i++, n++) {
            c->entries[n].file = c->shards.file[f];
            c->entries[n].entry = vx_safetensors_at(c->shards.file[f], i);
            names[n] = c->entries[n].entry->name;
        }
}

static vx_status name_all(vx_component *c, const char **names)
{
    size_t prefix;
    collect(c, names);
    VX_TRY(vx_names_prefix(c->kind, names, c->shards.tensors, c->path, &prefix));
    for (int i = 0; i < c->shards.tensors; i++) names[i] += prefix;
    VX_TRY(vx_names_layout(c->kind, names, c->shards.tensors, c->path, &c->layout));
    for (int i = 0; i < c->shards.tensors; i++) {
        c->entries[i].name = vx_names_canonical(c->kind, c->layout, names[i]);
        VX_NEED_MEMORY(c->entries[i].name, "tensor names");
        c->count++;
    }
    qsort(c->entries, (size_t)c->count, sizeof *c->entries, compare_entries);
    return check_unique(c);
}

static vx_status build_table(vx_component *c)
{
    size_t tensors = (size_t)c->shards.tensors;
    const char **names = vx_alloc_array(tensors, sizeof *names);
    c->entries = vx_alloc_array(tensors, sizeof *c->entries);
    vx_status s = names && c->entries ? name_all(c, names)
                                      : vx_fail(VX_ERR_MEMORY, "no memory for the tensors of %s", vx_short_path(c->path));
    vx_free(names);
    return s;
}

int vx_component_lower_bound(const vx_component *c, const char *name)
{
    int low = 0, high = c->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (strcmp(c->entries[middle].name, name) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

vx_component_entry *vx_component_entry_of(const vx_component *c, const char *name)
{
    int at = vx_component_lower_bound(c, name);
    return at < c->count && strcmp(c->entries[at].name, name) == 0 ? &c->entries[at] : NULL;
}

// ---- order of q, k and v ----

static const char *metadata_of(const vx_component *c, const char *key)
{
    for (int f = 0; f < c->shards.files; f++) {
        const char *value = vx_safetensors_metadata(c->shards.file[f], key);
        if (value) return value;
    }
    return NULL;
}

// ComfyUI's exporter and merges of its files: {"transformer": {"image_model": "minimax_h3", ...}}.
static bool is_comfy(const vx_component *c)
{
    const char *text = metadata_of(c, "config");
    json_t *config = NULL;
    if (!text || vx_json_parse(&config, text, strlen(text), 16, VX_ERR_CONFIG, "metadata").code != VX_OK) return false;
    const char *model = json_string_value(json_object_get(json_object_get(config, "transformer"), "image_model"));
    bool comfy = model && strcmp(model, "minimax_h3") == 0;
    json_decref(config);
    return comfy;
}

// DeepBeepMeep's files keep the official order; none of these keys is in ComfyUI's.
static bool is_deepbeepmeep(const vx_component *c)
{
    return (metadata_of(c, "repo_id") && metadata_of(c, "partition") && metadata_of(c, "precision")) ||
           metadata_of(c, "adaln_curve_rank");
}

// Nothing in names, shapes or statistics tells the two orders apart and the wrong one gives plausible pictures of nothing,
// so the order follows from who wrote the file, or is refused (public bugs P23; checkpoints specification 6.2).
static vx_status decide_qkv(vx_component *c)
{
    c->qkv = c->layout == VX_LAYOUT_DIFFUSERS ? VX_QKV_SPLIT : VX_QKV_INTERLEAVED;
    if (c->kind != VX_TRANSFORMER || c->layout == VX_LAYOUT_DIFFUSERS) return vx_ok();
    const char *class_name = json_string_value(json_object_get(c->config, "_class_name"));
    bool official = c->shards.indexed || (class_name && strcmp(class_name, "MiniMaxH3DiTModel") == 0);
    bool comfy = is_comfy(c), deepbeepmeep = is_deepbeepmeep(c);
    if (comfy && (deepbeepmeep || c->shards.indexed))
        return vx_fail(VX_ERR_MODEL_LAYOUT, "%s: the metadata says ComfyUI's grouped QKV rows, the %s says interleaved ones",
                       vx_short_path(c->path), deepbeepmeep ? "rest of the metadata" : "index of an official set");
    if (comfy) c->qkv = VX_QKV_GROUPED;
    if (comfy || deepbeepmeep || official) return vx_ok();
    return vx_fail_remedy(
        VX_ERR_MODEL_LAYOUT,
        "use the official folder with its config.json, the diffusers folder, or a file with its publisher's metadata",
        "%s: the order of the QKV rows cannot be told (grouped as ComfyUI writes them, or interleaved as the official "
        "files are): neither 'config' nor 'repo_id' metadata, nor the config.json of an official folder",
        vx_short_path(c->path));
}

// ---- what no network needs ----

static void ignore_late_layers(vx_component *c)
{
    static const char prefix[] = "model.language_model.layers.";
    for (int i = vx_component_lower_bound(c, prefix); i < c->count && vx_has_prefix(c->entries[i].name, prefix); i++)
        if (strtol(c->entries[i].name + sizeof prefix - 1, NULL, 10) >= TEXT_LAYERS) c->entries[i].ignored = true;
}

static void ignore_unneeded(vx_component *c)
{
    static const char *const prefixes[VX_COMPONENT_KINDS][3] = {
        [VX_TRANSFORMER] = { "rope.inv_freq" },
        [VX_TEXT_ENCODER] = { "lm_head.", "model.language_model.norm." },
        [VX_VIDEO_VAE] = { "decoder.mask_token", "latents_mean", "latents_std" },
        [VX_AUDIO_VAE] = { "latents_mean", "latents_std" },
    };
    for (int i = 0; i < 3 && prefixes[c->kind][i]; i++) vx_component_ignore(c, prefixes[c->kind][i]);
    if (c->kind == VX_TEXT_ENCODER) ignore_late_layers(c);
}

// ---- public ----

static vx_status open_files(vx_component *c, const char *weights, bool indexed)
{
    if (indexed) VX_TRY(vx_shards_open_index(&c->shards, weights));
    else VX_TRY(vx_shards_open_file(&c->shards, weights));
    for (int f = 0; f < c->shards.files; f++) {
        VX_TRY(vx_refuse_adapter(c->shards.file[f]));
        VX_TRY(vx_refuse_quantised(c->shards.file[f]));
    }
    return vx_ok();
}

static vx_status open_component(vx_component *c)
{
    vx_source source;
    VX_TRY(vx_source_find(&source, c->kind, c->path));
    c->config = json_incref(source.config);
    c->config_path = source.config_path;
    source.config_path = NULL;
    vx_status s = open_files(c, source.weights, source.indexed);
    vx_source_free(&source);
    VX_TRY(s);
    VX_TRY(build_table(c));
    VX_TRY(vx_refuse_variant(c));
    VX_TRY(decide_qkv(c));
    ignore_unneeded(c);
    return vx_ok();
}

vx_status vx_component_open(vx_component **out, vx_component_kind kind, const char *path)
{
    *out = NULL;
    vx_component *c = vx_alloc_array(1, sizeof *c);
    VX_NEED_MEMORY(c, "a component");
    c->kind = kind;
    c->path = vx_strdup(path);
    vx_status s = c->path ? open_component(c) : vx_fail(VX_ERR_MEMORY, "no memory to open '%s'", path);
    if (s.code != VX_OK) {
        vx_component_close(&c);
        return vx_within(s, "%s", vx_component_kind_name(kind));
    }
    *out = c;
    return s;
}

void vx_component_close(vx_component **out)
{
    vx_component *c = *out;
    if (!c) return;
    for (int i = 0; i < c->shards.tensors && c->entries; i++) {
        vx_free(c->entries[i].name);
        if (c->entries[i].copy) vx_pages_free(c->entries[i].copy, c->entries[i].copy_bytes);
    }
    vx_free(c->entries);
    vx_shards_close(&c->shards);
    json_decref(c->config);
    vx_free(c->config_path);
    vx_free(c->path);
    vx_free(c);
    *out = NULL;
}

vx_component_kind vx_component_kind_of(const vx_component *c)
{
    return c->kind;
}

vx_layout_kind vx_component_layout(const vx_component *c)
{
    return c->layout;
}

const char *vx_component_path(const vx_component *c)
{
    return c->path;
}

const json_t *vx_component_config(const vx_component *c)
{
    return c->config;
}

uint64_t vx_component_bytes(const vx_component *c)
{
    return c->shards.bytes;
}

vx_status vx_component_check(const vx_component *c)
{
    for (int f = 0; f < c->shards.files; f++) VX_TRY(vx_safetensors_check(c->shards.file[f]));
    return vx_ok();
}
