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

// llama.cpp numbers the deep-stack mergers by the vision block that each follows; canonical names count them.
static vx_status number_deepstack(vx_component_entry *entries, int count)
{
    static const char prefix[] = "model.visual.deepstack_merger_list.";
    enum { SIZE = sizeof prefix - 1, MOST = 64 };
    bool used[MOST] = { false };
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < count; i++) {
            if (!vx_has_prefix(entries[i].name, prefix)) continue;
            char *end;
            const long block = strtol(entries[i].name + SIZE, &end, 10);
            if (end == entries[i].name + SIZE || *end != '.' || block < 0 || block >= MOST) continue; // refused as unexpected
            used[block] = true;
            if (pass == 0) continue;
            int before = 0;
            for (long b = 0; b < block; b++) before += used[b];
            vx_str name = { 0 };
            vx_str_print(&name, "%s%d%s", prefix, before, end);
            vx_free(entries[i].name);
            entries[i].name = vx_str_take(&name);
            VX_NEED_MEMORY(entries[i].name, "tensor names");
        }
    return vx_ok();
}

// The entries of files [first, last), which share a prefix and a layout.
static vx_status name_files(vx_component *c, int first, int last, const char **names)
{
    vx_layout_kind layout;
    size_t prefix;
    const int begin = c->count;
    int n = 0;
    for (int f = first; f < last; f++)
        for (int i = 0; i < vx_container_count(&c->shards.file[f]); i++, n++) {
            c->entries[begin + n].file = &c->shards.file[f];
            c->entries[begin + n].entry = vx_container_at(&c->shards.file[f], i);
            names[n] = c->entries[begin + n].entry->name;
        }
    VX_TRY(vx_names_prefix(c->kind, names, n, c->path, &prefix));
    for (int f = first; f < last; f++) c->shards.file[f].prefix = prefix;
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], "scaled_fp8") != 0) names[i] += prefix; // stands at the root, or behind the prefix
    VX_TRY(vx_names_layout(c->kind, names, n, c->path, &layout));
    if (first == 0) c->layout = layout;
    for (int i = 0; i < n; i++) {
        c->entries[begin + i].name = vx_names_canonical(c->kind, layout, names[i]);
        VX_NEED_MEMORY(c->entries[begin + i].name, "tensor names");
        c->count++;
    }
    return layout == VX_LAYOUT_LLAMA ? number_deepstack(c->entries + begin, n) : vx_ok();
}

static vx_status name_all(vx_component *c, const char **names)
{
    if (c->shards.indexed) VX_TRY(name_files(c, 0, c->shards.files, names));
    else
        for (int f = 0; f < c->shards.files; f++) VX_TRY(name_files(c, f, f + 1, names));
    qsort(c->entries, (size_t)c->count, sizeof *c->entries, compare_entries);
    return check_unique(c);
}

static vx_status build_table(vx_component *c)
{
    size_t tensors = (size_t)c->shards.tensors;
    const char **names = vx_alloc_array(tensors, sizeof *names);
    c->entries = vx_alloc_array(tensors, sizeof *c->entries);
    vx_status s = names && c->entries ? name_all(c, names) : vx_no_memory("for the tensors of %s", vx_short_path(c->path));
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

// ---- what the exporter says ----

static vx_status check_extent(const vx_component *c, const json_t *config, const char *key, const char *name, int axis)
{
    int64_t shape[VX_MAX_RANK];
    int rank;
    const json_t *said = json_object_get(config, key);
    vx_component_shape(c, name, &rank, shape);
    if (!json_is_integer(said) || rank != 2 || json_integer_value(said) == shape[axis]) return vx_ok();
    return vx_fail(VX_ERR_CONFIG, "%s: the metadata 'config' says that %s is %lld, the shape of '%s' says %lld",
                   vx_short_path(c->path), key, (long long)json_integer_value(said), name, (long long)shape[axis]);
}

// Metadata is a hint and shapes decide, but a contradiction means that one of them is another model's.
static vx_status check_metadata(const vx_component *c)
{
    const vx_safetensors *st = c->shards.file[0].safetensors;
    const char *text = st && c->kind == VX_TRANSFORMER ? vx_safetensors_metadata(st, "config") : NULL;
    json_t *config;
    if (!text || vx_json_parse(&config, text, strlen(text), 16, VX_ERR_CONFIG, "metadata").code != VX_OK) return vx_ok();
    const json_t *of = json_object_get(config, "transformer");
    vx_status s = check_extent(c, of, "hidden_size", "video_patch_proj.weight", 0);
    if (s.code == VX_OK) s = check_extent(c, of, "time_embed_dim", "time_embedder.proj_out.weight", 0);
    if (s.code == VX_OK) s = check_extent(c, of, "adaln_curve_grid", "adaln_t_table", 0);
    if (s.code == VX_OK) s = check_extent(c, of, "adaln_curve_rank", "adaln_t_table", 1);
    json_decref(config);
    return s;
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
        [VX_TRANSFORMER] = { "rope.inv_freq", "adaln_basis", "adaln_mean" },
        [VX_TEXT_ENCODER] = { "lm_head.", "model.language_model.norm." },
        [VX_VIDEO_VAE] = { "decoder.mask_token", "latents_mean", "latents_std" },
        [VX_AUDIO_VAE] = { "latents_mean", "latents_std" },
    };
    for (int i = 0; i < 3 && prefixes[c->kind][i]; i++) vx_component_ignore(c, prefixes[c->kind][i]);
    if (c->kind == VX_TEXT_ENCODER) ignore_late_layers(c);
}

// ---- public ----

// A file given as a vision tower has one of its tensors at least: else other checks would speak of the wrong file.
static vx_status check_tower(const vx_container *file)
{
    for (int i = 0; i < vx_container_count(file); i++) {
        const char *name = vx_container_at(file, i)->name;
        if (vx_has_prefix(name, "v.") || vx_has_prefix(name, "visual.") || strstr(name, ".visual.")) return vx_ok();
    }
    return vx_fail(VX_ERR_MODEL_UNKNOWN, "%s is no vision tower: it has no tensors named visual.* or v.*",
                   vx_short_path(vx_container_path(file)));
}

static vx_status open_files(vx_component *c, const char *weights, bool indexed, const char *vision)
{
    if (indexed) VX_TRY(vx_shards_open_index(&c->shards, weights));
    else VX_TRY(vx_shards_open_file(&c->shards, weights));
    if (vision && indexed) return vx_fail(VX_ERR_MODEL_LAYOUT, "%s: a set of shards takes no file of a vision tower", c->path);
    if (vision) {
        VX_TRY(vx_shards_add_file(&c->shards, vision));
        VX_TRY(check_tower(&c->shards.file[c->shards.files - 1]));
    }
    for (int f = 0; f < c->shards.files; f++) {
        VX_TRY(vx_refuse_adapter(&c->shards.file[f]));
        VX_TRY(vx_refuse_quantiser(&c->shards.file[f]));
    }
    return vx_ok();
}

static void note_oddities(vx_component *c)
{
    if (c->shards.other_total) vx_str_print(&c->notes, "the index says another size of all tensors than they take");
    for (int f = 0; f < c->shards.files; f++) {
        const vx_safetensors *st = c->shards.file[f].safetensors;
        if (st && vx_safetensors_trailing_bytes(st))
            vx_str_print(&c->notes, "%s%llu bytes after the last tensor", c->notes.size ? "\n" : "",
                         (unsigned long long)vx_safetensors_trailing_bytes(st));
        if (st && vx_safetensors_header_bytes(st) >= 8 << 20)
            vx_str_print(&c->notes, "%sa header of %llu bytes", c->notes.size ? "\n" : "",
                         (unsigned long long)vx_safetensors_header_bytes(st));
    }
}

static vx_status open_component(vx_component *c, const vx_component_params *params)
{
    vx_source source;
    VX_TRY(vx_source_find(&source, c->kind, c->path));
    c->config = json_incref(source.config);
    c->config_path = source.config_path;
    source.config_path = NULL;
    vx_status s = open_files(c, source.weights, source.indexed, params->vision ? params->vision : source.vision);
    vx_source_free(&source);
    VX_TRY(s);
    note_oddities(c);
    VX_TRY(build_table(c));
    VX_TRY(vx_refuse_variant(c));
    VX_TRY(check_metadata(c));
    VX_TRY(vx_component_read_layers(c));
    VX_TRY(vx_component_decide_qkv(c, params->qkv));
    ignore_unneeded(c);
    return vx_ok();
}

vx_status vx_component_open(vx_component **out, vx_component_kind kind, const char *path)
{
    return vx_component_open_as(out, kind, path, NULL);
}

vx_status vx_component_open_as(vx_component **out, vx_component_kind kind, const char *path, const vx_component_params *params)
{
    *out = NULL;
    vx_component *c = vx_alloc_array(1, sizeof *c);
    VX_NEED_MEMORY(c, "a component");
    c->kind = kind;
    c->path = vx_strdup(path);
    vx_status s = c->path ? open_component(c, params ? params : &(vx_component_params){ 0 }) : vx_no_memory("to open '%s'", path);
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
    vx_component_free_layers(c);
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
    for (int f = 0; f < c->shards.files; f++) VX_TRY(vx_container_check(&c->shards.file[f]));
    return vx_ok();
}

const char *vx_component_notes(const vx_component *c)
{
    return c->notes.data ? c->notes.data : "";
}
