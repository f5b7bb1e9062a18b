// Which tensors are quantised, how, and which tensors beside them belong to them. The decision is made per layer (checkpoints
// specification 3.1, 3.9): a marker tensor, an entry of the metadata, or, where there is neither, the number format together
// with a scale beside it. GGUF states a type for every tensor.
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/log.h"
#include "weights/component_inside.h"
#include "weights/foreign.h"
#include "weights/names.h"

enum {
    MOST_MARKER = 64 << 10,   // published ones have 19 to 72 bytes
    MOST_METADATA = 16 << 20, // 200 layers take about 20 KB
    MARKER_DEPTH = 8,
    USUAL_ROTATION = 256,
    USUAL_GROUP = 16,
    NVFP4_STEP = 16,
    MXFP8_STEP = 32,
    NAME_SIZE = 512,
};

static const float one[1] = { 1 };

// ---- formats ----

static const struct format {
    const char *name;
    vx_quant_kind kind;
    vx_dtype values; // NONE: I8 or U8
    bool rotated;    // unless the marker says otherwise
} formats[] = {
    { "float8_e4m3fn", VX_QUANT_FP8, VX_F8_E4M3, false },
    { "float8_e5m2", VX_QUANT_FP8, VX_F8_E5M2, false },
    { "nvfp4", VX_QUANT_NVFP4, VX_U8, false },
    { "mxfp8", VX_QUANT_MXFP8, VX_F8_E4M3, false },
    { "int8_tensorwise", VX_QUANT_INT8, VX_I8, false },
    { "convrot_w4a4", VX_QUANT_INT4, VX_DTYPE_NONE, true },
    { "asym_w4a8_int8", VX_QUANT_W4A8, VX_DTYPE_NONE, true },
};

// Endings of what stands beside a quantised matrix, and of what use each is to each kind.
typedef struct companion {
    const char *ending;
    vx_quant_kind kind;
    vx_part part;
    bool optional;
} companion;
static const companion companions[] = {
    { ".weight_scale", VX_QUANT_FP8, VX_PART_SCALE, false },
    { ".scale_weight", VX_QUANT_FP8, VX_PART_SCALE, true }, // the older name of the same
    { ".input_scale", VX_QUANT_FP8, VX_PART_INPUT_SCALE, true },
    { ".scale_input", VX_QUANT_FP8, VX_PART_INPUT_SCALE, true },
    { ".weight_scale", VX_QUANT_INT8, VX_PART_SCALE, false },
    { ".weight_scale", VX_QUANT_NVFP4, VX_PART_BLOCK_SCALE, false },
    { ".weight_scale_2", VX_QUANT_NVFP4, VX_PART_SCALE, false },
    { ".input_scale", VX_QUANT_NVFP4, VX_PART_INPUT_SCALE, true },
    { ".pre_quant_scale", VX_QUANT_NVFP4, VX_PART_PRE_SCALE, true },
    { ".weight_scale", VX_QUANT_MXFP8, VX_PART_BLOCK_SCALE, false },
    { ".weight_scale", VX_QUANT_INT4, VX_PART_SCALE, false },
    { ".weight_s_channel", VX_QUANT_W4A8, VX_PART_SCALE, false },
    { ".weight_s_rel", VX_QUANT_W4A8, VX_PART_BLOCK_SCALE, false },
    { ".weight_codebook", VX_QUANT_W4A8, VX_PART_CODEBOOK, true },
    { ".weight_correction", VX_QUANT_W4A8, VX_PART_CORRECTION, true },
};
enum { COMPANIONS = sizeof companions / sizeof *companions };

void vx_component_note(vx_component *c, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    vx_log(VX_LOG_WARNING, "%s: %s", vx_short_path(c->path), text);
    vx_str_print(&c->notes, "%s%s", c->notes.size ? "\n" : "", text);
}

// ---- views ----

static int64_t rows_of(const vx_safetensors_entry *e)
{
    int64_t rows = e->rank > 1 ? e->shape[0] : 1;
    if (e->ggml) // folded axes stand before the last
        for (int i = 1; i < e->rank - 1; i++) rows *= e->shape[i];
    return rows;
}

vx_tensor vx_component_view(const vx_component_entry *e)
{
    if (e->made.rank) return e->made;
    const vx_safetensors_entry *s = e->entry;
    void *data = e->copy ? e->copy : (void *)(uintptr_t)s->data;
    if (!s->ggml) return vx_tensor_make(data, s->dtype, s->rank, s->shape);
    const int64_t rows = rows_of(s);
    return vx_tensor_of(data, VX_U8, rows, (int64_t)s->bytes / rows);
}

vx_tensor vx_component_values(const vx_component_entry *e)
{
    vx_tensor t = vx_component_view(e);
    if (e->entry->ggml || t.rank < 3) return t;
    return vx_tensor_reshape(t, 2, (const int64_t[]){ t.shape[0], vx_tensor_count(t) / (t.shape[0] ? t.shape[0] : 1) });
}

static bool is_packed(vx_quant_kind kind)
{
    return kind == VX_QUANT_NVFP4 || kind == VX_QUANT_INT4 || kind == VX_QUANT_W4A8;
}

void vx_component_entry_shape(const vx_component_entry *e, int *rank, int64_t shape[VX_MAX_RANK])
{
    if (e->made.rank) {
        *rank = e->made.rank;
        memcpy(shape, e->made.shape, sizeof e->made.shape);
        return;
    }
    *rank = e->entry->rank;
    memcpy(shape, e->entry->shape, sizeof e->entry->shape);
    if (e->layer && is_packed(e->layer->quant.kind) && *rank > 0) shape[*rank - 1] *= 2;
}

// A scale as one number, or one a row: exporters write [], [1], [n] or [n, 1].
static vx_tensor scale_view(const vx_component_entry *e)
{
    const vx_safetensors_entry *s = e->entry;
    void *data = e->copy ? e->copy : (void *)(uintptr_t)s->data;
    if (s->rank == 0) return vx_tensor_of(data, s->dtype, 1);
    if (s->rank == 2 && s->shape[1] == 1) return vx_tensor_of(data, s->dtype, s->shape[0]);
    return vx_tensor_make(data, s->dtype, s->rank, s->shape);
}

static void fill(vx_layer *layer)
{
    vx_quant *q = &layer->quant;
    if (layer->part[VX_PART_SCALE]) q->scale = scale_view(layer->part[VX_PART_SCALE]);
    if (layer->part[VX_PART_BLOCK_SCALE]) q->block_scale = vx_component_view(layer->part[VX_PART_BLOCK_SCALE]);
    if (layer->part[VX_PART_PRE_SCALE]) q->pre_scale = vx_component_view(layer->part[VX_PART_PRE_SCALE]);
    if (layer->part[VX_PART_CODEBOOK]) q->codebook = vx_component_view(layer->part[VX_PART_CODEBOOK]);
    if (layer->part[VX_PART_CORRECTION]) q->correction = vx_component_view(layer->part[VX_PART_CORRECTION]);
}

// ---- layers ----

static int stem_size(const char *name, const char *ending)
{
    return (int)(strlen(name) - strlen(ending));
}

static vx_component_entry *beside(const vx_component *c, const char *stem, int size, const char *ending)
{
    char name[NAME_SIZE];
    if (snprintf(name, sizeof name, "%.*s%s", size, stem, ending) >= (int)sizeof name) return NULL;
    return vx_component_entry_of(c, name);
}

// Companions of a kind by name; what the kind does not know stays unclaimed, which is refused later.
static vx_status claim(vx_component *c, vx_component_entry *weight)
{
    char who[320];
    vx_layer *layer = weight->layer;
    const int size = stem_size(weight->name, ".weight");
    for (int i = 0; i < COMPANIONS; i++) {
        const companion *k = &companions[i];
        if (k->kind != layer->quant.kind) continue;
        vx_component_entry *e = beside(c, weight->name, size, k->ending);
        if (!e) continue;
        if (layer->part[k->part])
            return vx_fail(VX_ERR_QUANT_SCALE, "%s has '%s' and '%s', which are the same", vx_component_entry_text(who, weight),
                           layer->part[k->part]->entry->name, e->entry->name);
        layer->part[k->part] = e;
        e->companion = true;
    }
    for (int i = 0; i < COMPANIONS; i++) {
        const companion *k = &companions[i];
        if (k->kind != layer->quant.kind || k->optional || layer->part[k->part]) continue;
        return vx_fail(VX_ERR_QUANT_SCALE, "%s is %s, but '%.*s%s' is missing", vx_component_entry_text(who, weight),
                       vx_quant_name(&layer->quant, weight->entry->dtype), size, weight->name, k->ending);
    }
    return vx_ok();
}

// Shapes and formats of all companions, from the headers.
static vx_status check(const vx_component_entry *weight)
{
    char who[320];
    vx_layer *layer = weight->layer;
    const vx_component_entry *input = layer->part[VX_PART_INPUT_SCALE];
    if (input && (input->entry->dtype != VX_F32 || input->entry->bytes != 4))
        return vx_fail(VX_ERR_QUANT_SCALE, "%s: expected one number of F32", vx_component_entry_text(who, input));
    fill(layer);
    vx_tensor values = vx_component_values(weight);
    vx_status s = vx_quant_check(&layer->quant, values);
    if (s.code == VX_OK) return s;
    s.code = VX_ERR_QUANT_SCALE;
    return vx_within(s, "%s", vx_component_entry_text(who, weight));
}

static vx_status add_layer(vx_component *c, vx_component_entry *weight, vx_quant quant, bool scaled)
{
    weight->layer = vx_alloc_array(1, sizeof *weight->layer);
    VX_NEED_MEMORY(weight->layer, "a quantised tensor");
    const vx_safetensors_entry *e = weight->entry;
    weight->layer->quant = quant;
    if (quant.kind != VX_QUANT_GGUF) {
        int64_t width = 1;
        for (int i = 1; i < e->rank; i++) width *= e->shape[i];
        weight->layer->quant.k = is_packed(quant.kind) ? 2 * width : width;
    }
    if (scaled) VX_TRY(claim(c, weight));
    return check(weight);
}

// ---- markers ----

typedef struct marker {
    const char *format;
    int64_t rotation, group; // 0: not said
    bool rotated, says_rotated;
} marker;

static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value ? value : json_object_get(json_object_get(object, "params"), key);
}

static vx_status marker_int(const json_t *object, const char *key, const char *layer, int64_t *out)
{
    const json_t *value = member(object, key);
    if (!value || json_is_null(value)) return vx_ok();
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > 65536)
        return vx_fail(VX_ERR_QUANT_FORMAT, "'%.200s': '%s' of its marker is no whole number from 1 to 65536", layer, key);
    *out = json_integer_value(value);
    return vx_ok();
}

static vx_status read_marker(marker *m, const json_t *object, const char *layer)
{
    *m = (marker){ 0 };
    if (!json_is_object(object)) return vx_fail(VX_ERR_QUANT_FORMAT, "'%.200s': its marker is no JSON object", layer);
    const json_t *format = member(object, "format"), *rotated = member(object, "convrot");
    if (format && !json_is_string(format))
        return vx_fail(VX_ERR_QUANT_FORMAT, "'%.200s': 'format' of its marker is no text", layer);
    m->format = json_string_value(format);
    if (rotated && !json_is_boolean(rotated))
        return vx_fail(VX_ERR_QUANT_FORMAT, "'%.200s': 'convrot' of its marker is neither true nor false", layer);
    m->says_rotated = rotated;
    m->rotated = json_is_true(rotated);
    VX_TRY(marker_int(object, "convrot_groupsize", layer, &m->rotation));
    VX_TRY(marker_int(object, "group_size", layer, &m->group));
    return m->group ? vx_ok() : marker_int(object, "quant_group_size", layer, &m->group);
}

static const struct format *format_of(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(name, formats[i].name) == 0) return &formats[i];
    return NULL;
}

// Older exporters of INT8 left the format out.
static vx_status apply_guess(vx_component *c, vx_component_entry *weight, marker *m)
{
    char who[320];
    if (weight->entry->dtype != VX_I8 || !beside(c, weight->name, stem_size(weight->name, ".weight"), ".weight_scale"))
        return vx_fail(VX_ERR_QUANT_FORMAT, "%s: its marker names no format", vx_component_entry_text(who, weight));
    if (!strstr(c->notes.data ? c->notes.data : "", "name no format"))
        vx_component_note(c, "markers of INT8 layers name no format ('%.160s' is the first); taken as int8_tensorwise",
                          weight->name);
    m->format = "int8_tensorwise";
    return vx_ok();
}

static vx_status apply_marker(vx_component *c, vx_component_entry *weight, marker *m)
{
    char who[320];
    if (weight->layer) return vx_fail(VX_ERR_QUANT_FORMAT, "%s is marked twice", vx_component_entry_text(who, weight));
    if (!m->format) VX_TRY(apply_guess(c, weight, m));
    const struct format *f = format_of(m->format);
    const vx_dtype is = weight->entry->dtype;
    if (!f)
        return vx_fail_remedy(VX_ERR_QUANT_FORMAT, "use a file in one of the formats of docs/formats.md",
                              "%s: its format '%.60s' is not supported", vx_component_entry_text(who, weight), m->format);
    if (f->values != VX_DTYPE_NONE && is != f->values)
        return vx_fail(VX_ERR_QUANT_FORMAT, "%s is %s, but its format '%s' stores %s", vx_component_entry_text(who, weight),
                       vx_dtype_name(is), f->name, vx_dtype_name(f->values));
    vx_quant q = { .kind = f->kind };
    const bool can_rotate = f->kind == VX_QUANT_INT8 || f->kind == VX_QUANT_INT4 || f->kind == VX_QUANT_W4A8;
    if (m->rotated && !can_rotate)
        return vx_fail(VX_ERR_QUANT_FORMAT, "%s: '%s' with a rotation is not supported", vx_component_entry_text(who, weight),
                       f->name);
    if (m->says_rotated ? m->rotated : f->rotated) q.rotate = m->rotation ? (int)m->rotation : USUAL_ROTATION;
    if (f->kind == VX_QUANT_W4A8) q.group = m->group ? (int)m->group : USUAL_GROUP;
    return add_layer(c, weight, q, true);
}

static vx_status find_marked(vx_component *c, const char *stem, int size, vx_component_entry **weight)
{
    *weight = beside(c, stem, size, ".weight");
    if (*weight) return vx_ok();
    return vx_fail(VX_ERR_TENSOR_MISSING, "%s: '%.*s' is marked as quantised, but has no weight", vx_short_path(c->path),
                   size < 200 ? size : 200, stem);
}

static vx_status parse_marker(vx_component *c, vx_component_entry *weight, const char *text, size_t size)
{
    char what[320];
    json_t *object;
    marker m;
    snprintf(what, sizeof what, "%s: marker of '%.160s'", vx_short_path(vx_container_path(weight->file)), weight->name);
    VX_TRY(vx_json_parse(&object, text, size, MARKER_DEPTH, VX_ERR_QUANT_FORMAT, what));
    vx_status s = vx_within(read_marker(&m, object, weight->name), "%s", vx_short_path(vx_container_path(weight->file)));
    if (s.code == VX_OK) s = apply_marker(c, weight, &m);
    json_decref(object);
    return s;
}

static vx_status read_tensor_marker(vx_component *c, vx_component_entry *e)
{
    char who[320];
    vx_component_entry *weight;
    const vx_safetensors_entry *s = e->entry;
    if (s->dtype != VX_U8 || s->rank != 1)
        return vx_fail(VX_ERR_QUANT_FORMAT, "%s: expected a list of U8", vx_component_entry_text(who, e));
    if (s->bytes > MOST_MARKER)
        return vx_fail(VX_ERR_FILE_LIMIT, "%s: %" PRIu64 " bytes, at most %d", vx_component_entry_text(who, e), s->bytes,
                       MOST_MARKER);
    VX_TRY(find_marked(c, e->name, stem_size(e->name, ".comfy_quant"), &weight));
    e->companion = true;
    return parse_marker(c, weight, s->data, (size_t)s->bytes);
}

// {"format_version": "1.0", "layers": {"blocks.0.mlp.fc1": {"format": ...}, ...}}
static vx_status read_metadata_layers(vx_component *c, const json_t *layers, size_t prefix, const char *prefix_text)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)layers, name, value)
    {
        const char *bare = prefix && strncmp(name, prefix_text, prefix) == 0 ? name + prefix : name;
        char *canonical = vx_names_canonical(c->kind, c->layout, bare);
        VX_NEED_MEMORY(canonical, "tensor names");
        vx_component_entry *weight;
        marker m;
        vx_status s = find_marked(c, canonical, (int)strlen(canonical), &weight);
        if (s.code == VX_OK) s = vx_within(read_marker(&m, value, canonical), "%s", vx_short_path(c->path));
        // A file may say it twice, by tensor and by metadata; the tensor was read first.
        if (s.code == VX_OK && !weight->layer) s = apply_marker(c, weight, &m);
        vx_free(canonical);
        VX_TRY(s);
    }
    return vx_ok();
}

static vx_status read_metadata(vx_component *c, const vx_container *file)
{
    const char *text = vx_container_metadata(file, "_quantization_metadata");
    if (!text) return vx_ok();
    json_t *object;
    char what[200];
    snprintf(what, sizeof what, "%.120s: metadata '_quantization_metadata'", vx_short_path(vx_container_path(file)));
    if (strlen(text) > MOST_METADATA) return vx_fail(VX_ERR_FILE_LIMIT, "%s has more than %d bytes", what, MOST_METADATA);
    VX_TRY(vx_json_parse(&object, text, strlen(text), MARKER_DEPTH, VX_ERR_QUANT_FORMAT, what));
    const json_t *layers = json_object_get(object, "layers");
    const char *spelled = vx_container_count(file) ? vx_container_at(file, 0)->name : "";
    vx_status s = json_is_object(layers) ? read_metadata_layers(c, layers, file->prefix, spelled)
                                         : vx_fail(VX_ERR_QUANT_FORMAT, "%s: 'layers' is missing or no object", what);
    json_decref(object);
    return s;
}

// ---- without a marker ----

static bool any_scale(const vx_component *c)
{
    for (int i = 0; i < c->count; i++)
        if (vx_has_suffix(c->entries[i].name, ".weight_scale") || vx_has_suffix(c->entries[i].name, ".scale_weight") ||
            strcmp(c->entries[i].name, "scaled_fp8") == 0)
            return true;
    return false;
}

// Numbers of eight bits that stand for themselves: written by a cast, without scales anywhere in the file.
static vx_status add_cast(vx_component *c, vx_component_entry *weight)
{
    char who[320];
    if (any_scale(c))
        return vx_fail(VX_ERR_QUANT_SCALE, "%s is %s and has no scale, which others in the file have",
                       vx_component_entry_text(who, weight), vx_dtype_name(weight->entry->dtype));
    if (!strstr(c->notes.data ? c->notes.data : "", "without scales"))
        vx_component_note(c, "8-bit floats without scales ('%.160s' is the first): taken as cast, not scaled", weight->name);
    return add_layer(c, weight, (vx_quant){ .kind = VX_QUANT_FP8, .scale = vx_tensor_of((void *)(uintptr_t)one, VX_F32, 1) },
                     false);
}

static vx_status read_unmarked(vx_component *c, vx_component_entry *weight)
{
    char who[320];
    const vx_dtype is = weight->entry->dtype;
    const int size = stem_size(weight->name, ".weight");
    const bool scale = beside(c, weight->name, size, ".weight_scale") || beside(c, weight->name, size, ".scale_weight");
    if (is == VX_F8_E4M3 || is == VX_F8_E5M2) {
        const vx_component_entry *s = beside(c, weight->name, size, ".weight_scale");
        if (s && s->entry->dtype != VX_F32)
            return vx_fail_remedy(VX_ERR_QUANT_FORMAT, "use a file with ComfyUI's markers (comfy_quant)",
                                  "%s has scales of %s and no marker: their format and order cannot be told",
                                  vx_component_entry_text(who, weight), vx_dtype_name(s->entry->dtype));
        return scale ? add_layer(c, weight, (vx_quant){ .kind = VX_QUANT_FP8 }, true) : add_cast(c, weight);
    }
    if (is == VX_I8 && scale) return add_layer(c, weight, (vx_quant){ .kind = VX_QUANT_INT8 }, true);
    if (is == VX_U8 && beside(c, weight->name, size, ".weight_scale_2"))
        return vx_fail_remedy(VX_ERR_QUANT_FORMAT, "use a file with ComfyUI's markers (comfy_quant)",
                              "%s looks like NVFP4 without a marker: the order of its scales cannot be told",
                              vx_component_entry_text(who, weight));
    if (is != VX_I8 && is != VX_U8) return vx_ok();
    return vx_fail(VX_ERR_QUANT_FORMAT, "%s is %s, and nothing beside it says how to read it",
                   vx_component_entry_text(who, weight), vx_dtype_name(is));
}

// ---- all ----

static bool is_companion_name(const char *name)
{
    for (int i = 0; i < COMPANIONS; i++)
        if (vx_has_suffix(name, companions[i].ending)) return true;
    return vx_has_suffix(name, ".weight_zeros");
}

static vx_status check_claimed(const vx_component *c)
{
    char who[320];
    for (int i = 0; i < c->count; i++) {
        const vx_component_entry *e = &c->entries[i];
        if (!e->companion && is_companion_name(e->name))
            return vx_fail(VX_ERR_QUANT_SCALE, "%s belongs to no quantised tensor of a format that has it",
                           vx_component_entry_text(who, e));
    }
    return vx_ok();
}

vx_status vx_component_read_layers(vx_component *c)
{
    for (int i = 0; i < c->count; i++) {
        vx_component_entry *e = &c->entries[i];
        const vx_safetensors_entry *s = e->entry;
        if (s->ggml)
            VX_TRY(add_layer(c, e, (vx_quant){ .kind = VX_QUANT_GGUF, .type = s->ggml, .k = s->rank ? s->shape[s->rank - 1] : 1 },
                             false));
    }
    for (int i = 0; i < c->count; i++)
        if (vx_has_suffix(c->entries[i].name, ".comfy_quant")) VX_TRY(read_tensor_marker(c, &c->entries[i]));
    for (int f = 0; f < c->shards.files; f++) VX_TRY(read_metadata(c, &c->shards.file[f]));
    for (int i = 0; i < c->count; i++) {
        vx_component_entry *e = &c->entries[i];
        if (strcmp(e->name, "scaled_fp8") == 0) e->companion = true;
        if (!e->layer && vx_has_suffix(e->name, ".weight")) VX_TRY(read_unmarked(c, e));
    }
    return check_claimed(c);
}

// ---- binding ----

vx_status vx_component_bind_layer(vx_component_entry *e)
{
    vx_layer *layer = e->layer;
    if (layer->ready) return vx_ok();
    for (int i = 0; i < VX_PARTS; i++) {
        if (!layer->part[i]) continue;
        VX_TRY(vx_component_align(layer->part[i]));
        layer->part[i]->bound = true;
    }
    fill(layer);
    VX_TRY(vx_component_align(e));
    char who[320];
    // Scales of blocks are a sixteenth of the file: vx_component_check_scales reads those.
    const vx_tensor scale = layer->quant.scale;
    for (int64_t i = 0; i < (scale.rank ? scale.shape[0] : 0); i++) {
        const float value = vx_f32_of(scale)[i];
        if (isfinite(value) && !signbit(value)) continue;
        return vx_fail(VX_ERR_QUANT_SCALE, "%s: scale %" PRId64 " is %g, expected a finite number that is not negative",
                       vx_component_entry_text(who, e), i, (double)value);
    }
    layer->ready = true;
    return vx_ok();
}

vx_status vx_component_check_scales(vx_component *c)
{
    char who[320];
    for (int i = 0; i < c->count; i++) {
        vx_component_entry *e = &c->entries[i];
        if (!e->layer || !e->layer->ready || e->layer->checked) continue;
        const vx_status s = vx_quant_check_scales(&e->layer->quant, vx_component_values(e));
        if (s.code != VX_OK)
            return vx_remedy(vx_within(s, "%s", vx_component_entry_text(who, e)),
                             "the file is damaged or was exported wrongly: fetch it again, or another export");
        VX_TRY(vx_container_check(e->file));
        e->layer->checked = true;
    }
    return vx_ok();
}

vx_status vx_component_decode(vx_component *c, vx_component_entry *e)
{
    char who[320];
    if (e->made.rank) return vx_ok();
    VX_TRY(vx_component_bind_layer(e));
    const vx_quant *q = &e->layer->quant;
    const vx_tensor values = vx_component_values(e);
    int64_t shape[VX_MAX_RANK], count = 1;
    int rank;
    vx_component_entry_shape(e, &rank, shape);
    for (int i = 0; i < rank; i++) count *= shape[i];
    const int64_t rows = values.shape[0];
    if (values.rank != 2 || rows * q->k != count)
        return vx_fail(VX_ERR_QUANT_FORMAT, "%s is padded, which is only read in a matrix", vx_component_entry_text(who, e));
    void *memory;
    VX_TRY_IN(vx_pages_alloc(&memory, (size_t)count * sizeof(float)), "%s", vx_component_entry_text(who, e));
    for (int64_t r = 0; r < rows; r++) vx_quant_decode(q, values, r, 0, q->k, false, (float *)memory + r * q->k);
    if (e->copy) vx_pages_free(e->copy, e->copy_bytes);
    e->copy = memory;
    e->copy_bytes = (size_t)count * sizeof(float);
    e->made = vx_tensor_make(memory, VX_F32, rank, shape);
    if (rank == 1 && !strstr(c->notes.data ? c->notes.data : "", "norm weights are quantised"))
        vx_component_note(c, "norm weights are quantised ('%.160s' is the first, as %s); expect damaged output", e->name,
                          vx_quant_name(q, e->entry->dtype));
    return vx_container_check(e->file);
}

void vx_component_free_layers(vx_component *c)
{
    for (int i = 0; i < c->count; i++) vx_free(c->entries[i].layer);
    vx_str_free(&c->notes);
}
