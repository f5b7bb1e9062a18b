// The trees that people have (checkpoints specification 1.1, 6.2):
//
//   ROOT/FL2VA, ROOT/Ref2VA      official partitions, each: model_index.json with _minimax_h3, transformer/, text_encoder/,
//                                tokenizer/, video_vae/, audio_vae/
//   ROOT                         diffusers: transformer/ (FL2VA), transformer_ref/ (Ref2VA), vae/, scheduler/ and the rest
//   ROOT                         ComfyUI: diffusion_models/, text_encoders/, vae/; or single files side by side
//   a folder, a file             the transformer alone
//
// Both partitions share everything but the transformer, so what one lacks is taken from the other.
#include "weights/model_map.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "weights/census.h"
#include "weights/foreign.h"
#include "weights/model_file.h"
#include "weights/names.h"
#include "weights/single_files.h"

enum { MOST_INDEX = 1 << 20, SCHEMA = 1 };

static const double default_shift = 12, default_audio_shift = 3, most_shift = 100;

// ---- small things ----

static const char *variant_name(vx_variant v)
{
    return v == VX_VARIANT_FL2VA ? "FL2VA" : v == VX_VARIANT_REF2VA ? "Ref2VA" : "unknown";
}

vx_variant vx_variant_of_name(const char *name)
{
    if (strcasecmp(name, "fl2va") == 0) return VX_VARIANT_FL2VA;
    if (strcasecmp(name, "ref2va") == 0) return VX_VARIANT_REF2VA;
    return VX_VARIANT_UNKNOWN;
}

void vx_model_map_note(vx_model_map *map, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    vx_log(VX_LOG_WARNING, "%s", text);
    vx_str_print(&map->notes, "%s%s", map->notes.size ? "\n" : "", text);
}

static vx_status set(char **slot, char *value)
{
    VX_NEED_MEMORY(value, "a path");
    vx_free(*slot);
    *slot = value;
    return vx_ok();
}

static vx_status has_folder(const char *parent, const char *name, bool *there)
{
    *there = false;
    char *path = vx_path_join(parent, name);
    VX_NEED_MEMORY(path, name);
    *there = vx_folder_exists(path);
    vx_status s = vx_refuse_dangling(path, VX_ERR_MODEL_OPEN);
    vx_free(path);
    return s;
}

// parent/name as JSON, NULL if there is no such file.
static vx_status read_member(json_t **out, const char *parent, const char *name)
{
    *out = NULL;
    char *path = vx_path_join(parent, name);
    VX_NEED_MEMORY(path, name);
    vx_status s = vx_refuse_dangling(path, VX_ERR_MODEL_OPEN);
    if (s.code == VX_OK && vx_file_exists(path)) s = vx_json_of_model(out, path, MOST_INDEX, VX_ERR_CONFIG);
    vx_free(path);
    return s;
}

vx_status vx_shift_member(const json_t *object, const char *key, double *shift, const char *what)
{
    if (!json_object_get(object, key)) return vx_ok();
    double value;
    VX_TRY(vx_json_number(object, key, NULL, &value, what));
    if (!(value > 0 && value <= most_shift))
        return vx_fail(VX_ERR_CONFIG, "%s: '%s' is %g, expected 0 to %g", what, key, value, most_shift);
    *shift = value;
    return vx_ok();
}

// ---- a folder's own word ----

// What model_index.json says, if it is MiniMax's.
static vx_status read_model_index(vx_model_map *map, const char *folder, bool *official)
{
    json_t *index;
    *official = false;
    VX_TRY(read_member(&index, folder, "model_index.json"));
    const json_t *own = json_object_get(index, "_minimax_h3");
    vx_status s = vx_ok();
    if (json_is_object(own)) {
        *official = true;
        map->variant_reason = "model_index.json";
        const char *partition = json_string_value(json_object_get(own, "partition"));
        map->variant = partition ? vx_variant_of_name(partition) : VX_VARIANT_UNKNOWN;
        if (map->variant == VX_VARIANT_UNKNOWN)
            s = vx_fail(VX_ERR_CONFIG, "%s/model_index.json: '_minimax_h3.partition' is '%.60s', expected 'fl2va' or 'ref2va'",
                        vx_short_path(folder), partition ? partition : "no string");
        const json_t *schema = json_object_get(own, "schema_version");
        if (schema && json_integer_value(schema) != SCHEMA)
            vx_model_map_note(map, "%s/model_index.json: '_minimax_h3.schema_version' is not %d; read all the same",
                              vx_short_path(folder), SCHEMA);
        const json_t *shifts = json_object_get(own, "sigma_shift_scales");
        if (s.code == VX_OK) s = vx_shift_member(shifts, "video", &map->flow_shift, "model_index.json: sigma_shift_scales");
        if (s.code == VX_OK) s = vx_shift_member(shifts, "audio", &map->audio_flow_shift, "model_index.json: sigma_shift_scales");
    }
    json_decref(index);
    return s;
}

static vx_status read_schedulers(vx_model_map *map, const char *folder)
{
    json_t *video = NULL, *audio = NULL;
    vx_status s = read_member(&video, folder, "scheduler/scheduler_config.json");
    if (s.code == VX_OK) s = read_member(&audio, folder, "audio_scheduler/scheduler_config.json");
    if (s.code == VX_OK) s = vx_shift_member(video, "shift", &map->flow_shift, "scheduler/scheduler_config.json");
    if (s.code == VX_OK) s = vx_shift_member(audio, "shift", &map->audio_flow_shift, "audio_scheduler/scheduler_config.json");
    json_decref(video);
    json_decref(audio);
    return s;
}

// By the class that config.json names; *known false if it names neither.
static vx_status read_class(const char *folder, bool *known, vx_layout_kind *layout)
{
    json_t *config;
    VX_TRY(read_member(&config, folder, "config.json"));
    const char *name = json_string_value(json_object_get(config, "_class_name"));
    bool diffusers = name && strcmp(name, "MiniMaxH3Transformer3DModel") == 0;
    *known = diffusers || (name && strcmp(name, "MiniMaxH3DiTModel") == 0);
    if (*known) *layout = diffusers ? VX_LAYOUT_DIFFUSERS : VX_LAYOUT_OFFICIAL;
    json_decref(config);
    return vx_ok();
}

// ---- components ----

static const char *const folders[VX_COMPONENT_KINDS][2] = {
    [VX_TRANSFORMER] = { "transformer", NULL },
    [VX_TEXT_ENCODER] = { "text_encoder", NULL },
    [VX_VIDEO_VAE] = { "video_vae", "vae" },
    [VX_AUDIO_VAE] = { "audio_vae", NULL },
};

static vx_status take_folder(char **slot, const char *parent, const char *name)
{
    if (*slot || !name) return vx_ok();
    bool there;
    VX_TRY(has_folder(parent, name, &there));
    return there ? set(slot, vx_path_join(parent, name)) : vx_ok();
}

static vx_status has_vocabulary(const char *folder, bool *there)
{
    static const char *const files[] = { "vocab.json", "tokenizer.json" };
    *there = false;
    for (int i = 0; i < 2 && !*there; i++) {
        char *path = vx_path_join(folder, files[i]);
        VX_NEED_MEMORY(path, folder);
        *there = vx_file_exists(path);
        vx_free(path);
    }
    return vx_ok();
}

// The tokenizer's files may also lie in the processor's folder or beside the text encoder's weights.
static vx_status take_tokenizer(char **slot, const char *parent)
{
    static const char *const places[] = { "tokenizer", "processor", "text_encoder" };
    VX_TRY(take_folder(slot, parent, places[0]));
    for (int i = 1; i < 3 && !*slot; i++) {
        char *folder = vx_path_join(parent, places[i]);
        bool there;
        VX_NEED_MEMORY(folder, places[i]);
        const vx_status s = has_vocabulary(folder, &there);
        if (there) *slot = folder;
        else vx_free(folder);
        VX_TRY(s);
    }
    return vx_ok();
}

// What is missing so far, except the transformer.
static vx_status take_shared(vx_model_map *map, const char *folder)
{
    for (int kind = VX_TEXT_ENCODER; kind < VX_COMPONENT_KINDS; kind++)
        for (int i = 0; i < 2; i++) VX_TRY(take_folder(&map->component[kind], folder, folders[kind][i]));
    return take_tokenizer(&map->tokenizer, folder);
}

static const char *last_name(char out[128], const char *path)
{
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/') size--;
    size_t begin = size;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    size_t length = size - begin < 127 ? size - begin : 127;
    memcpy(out, path + begin, length);
    out[length] = 0;
    return out;
}

static vx_status take_partition(vx_model_map *map, const char *folder)
{
    bool official, known;
    char name[128];
    VX_TRY(read_model_index(map, folder, &official));
    vx_variant by_name = vx_variant_of_name(last_name(name, folder));
    if (!official) {
        map->variant = by_name;
        if (by_name != VX_VARIANT_UNKNOWN) map->variant_reason = "the folder's name";
    } else if (by_name != VX_VARIANT_UNKNOWN && by_name != map->variant)
        vx_model_map_note(map, "the folder '%s' holds the %s partition, as its model_index.json says", name,
                          variant_name(map->variant));
    VX_TRY(take_folder(&map->component[VX_TRANSFORMER], folder, "transformer"));
    if (map->component[VX_TRANSFORMER]) VX_TRY(read_class(map->component[VX_TRANSFORMER], &known, &map->layout));
    return take_shared(map, folder);
}

static vx_status take_diffusers(vx_model_map *map, const char *folder, vx_variant wanted)
{
    bool fl2va, ref2va, known;
    VX_TRY(has_folder(folder, "transformer", &fl2va));
    VX_TRY(has_folder(folder, "transformer_ref", &ref2va));
    map->variant = wanted == VX_VARIANT_UNKNOWN ? (fl2va ? VX_VARIANT_FL2VA : VX_VARIANT_REF2VA) : wanted;
    if (map->variant == VX_VARIANT_FL2VA ? !fl2va : !ref2va)
        return vx_fail_remedy(VX_ERR_MODEL_VARIANT,
                              "download the missing folder, or ask for a task of the partition that is there",
                              "%s: the %s transformer ('%s') is not there, only the other partition's", vx_short_path(folder),
                              variant_name(map->variant), map->variant == VX_VARIANT_FL2VA ? "transformer" : "transformer_ref");
    map->layout = VX_LAYOUT_DIFFUSERS;
    map->variant_reason = "the folder's name";
    VX_TRY(take_folder(&map->component[VX_TRANSFORMER], folder,
                       map->variant == VX_VARIANT_FL2VA ? "transformer" : "transformer_ref"));
    VX_TRY(read_class(map->component[VX_TRANSFORMER], &known, &map->layout));
    VX_TRY(read_schedulers(map, folder));
    return take_shared(map, folder);
}

// ---- the tree ----

typedef struct tree {
    bool fl2va, ref2va; // partitions below
    bool transformer, transformer_ref;
    bool official; // itself a partition
} tree;

static vx_status look(tree *t, const char *folder)
{
    vx_model_map scratch = { 0 };
    bool video_vae;
    VX_TRY(has_folder(folder, "FL2VA", &t->fl2va));
    VX_TRY(has_folder(folder, "Ref2VA", &t->ref2va));
    VX_TRY(has_folder(folder, "transformer", &t->transformer));
    VX_TRY(has_folder(folder, "transformer_ref", &t->transformer_ref));
    VX_TRY(has_folder(folder, "video_vae", &video_vae));
    vx_status s = read_model_index(&scratch, folder, &t->official);
    vx_str_free(&scratch.notes); // who takes the partition reads it again
    VX_TRY(s);
    t->official |= t->transformer && video_vae && !t->transformer_ref;
    return vx_ok();
}

// A partition below `folder`; what it lacks of the shared components comes from the other one or from diffusers' folders.
static vx_status take_below(vx_model_map *map, const tree *t, const char *folder, vx_variant wanted)
{
    static const char *const names[] = { "FL2VA", "Ref2VA" };
    bool second = wanted == VX_VARIANT_REF2VA || (wanted == VX_VARIANT_UNKNOWN && !t->fl2va);
    if (second ? !t->ref2va : !t->fl2va) {
        if (second ? t->transformer_ref : t->transformer) return take_diffusers(map, folder, wanted);
        return vx_fail_remedy(VX_ERR_MODEL_VARIANT, "download the missing partition, or ask for a task of the one that is there",
                              "%s: the %s partition is not there, only %s", vx_short_path(folder), names[second], names[!second]);
    }
    char *chosen = vx_path_join(folder, names[second]);
    VX_NEED_MEMORY(chosen, names[second]);
    vx_status s = take_partition(map, chosen);
    vx_free(chosen);
    VX_TRY(s);
    if (second ? t->fl2va : t->ref2va) {
        char *other = vx_path_join(folder, names[!second]);
        VX_NEED_MEMORY(other, names[!second]);
        s = take_shared(map, other);
        vx_free(other);
        VX_TRY(s);
    }
    return take_shared(map, folder);
}

static vx_status refuse_folder(const char *folder)
{
    vx_component_kind part;
    bool vocabulary;
    if (vx_folder_look(folder, &part) && part != VX_TRANSFORMER)
        return vx_remedy(vx_fail(VX_ERR_MODEL_UNKNOWN, "'%s' is no model, it holds the %s of MiniMax H3 alone", folder,
                                 vx_component_kind_name(part)),
                         "give it with %s, and the model's folder or its transformer with --model", vx_component_option(part));
    VX_TRY(has_vocabulary(folder, &vocabulary));
    if (vocabulary)
        return vx_fail_remedy(VX_ERR_MODEL_UNKNOWN, "give it with --tokenizer, and the model with --model",
                              "'%s' is no model, it holds a tokenizer alone", folder);
    return vx_fail_remedy(
        VX_ERR_MODEL_UNKNOWN, "give the downloaded model's folder, or the transformer's .safetensors or .gguf file",
        "'%s' holds no MiniMax H3 model: looked for FL2VA/, Ref2VA/, transformer/, transformer_ref/, model_index.json "
        "with '_minimax_h3', and config.json of its transformer",
        folder);
}

// The transformer's folder alone.
static vx_status take_component(vx_model_map *map, const char *folder)
{
    bool known;
    VX_TRY(read_class(folder, &known, &map->layout));
    if (!known) return refuse_folder(folder);
    char name[128];
    last_name(name, folder);
    if (map->layout == VX_LAYOUT_DIFFUSERS && strcmp(name, "transformer_ref") == 0) map->variant = VX_VARIANT_REF2VA;
    else if (map->layout == VX_LAYOUT_DIFFUSERS && strcmp(name, "transformer") == 0) map->variant = VX_VARIANT_FL2VA;
    else map->variant = vx_variant_of_parents(folder);
    if (map->variant != VX_VARIANT_UNKNOWN) map->variant_reason = "the folder's name";
    return set(&map->component[VX_TRANSFORMER], vx_strdup(folder));
}

static vx_status take_folder_model(vx_model_map *map, const vx_model_map_params *p, vx_variant wanted)
{
    const char *folder = p->model;
    bool files;
    tree t = { 0 };
    VX_TRY(look(&t, folder));
    if (t.official) return take_partition(map, folder);
    if (t.fl2va || t.ref2va) return take_below(map, &t, folder, wanted);
    if (t.transformer || t.transformer_ref) return take_diffusers(map, folder, wanted);
    VX_TRY(vx_single_files_here(folder, &files));
    if (files) {
        VX_TRY(vx_single_files_take(map, folder, p, wanted));
        if (map->component[VX_TRANSFORMER]) return vx_ok();
    }
    return take_component(map, folder);
}

// What lies around a transformer's file, if it is in one of ComfyUI's folders.
static vx_status take_around(vx_model_map *map, const vx_model_map_params *p)
{
    const char *end = vx_path_name(p->model);
    while (end > p->model && end[-1] == '/') end--;
    char *parent = vx_strndup(p->model, (size_t)(end - p->model));
    VX_NEED_MEMORY(parent, p->model);
    char name[128];
    last_name(name, parent);
    vx_status s = vx_ok();
    if (strcmp(name, "diffusion_models") == 0 || strcmp(name, "unet") == 0) {
        char *above = vx_path_join(parent, "..");
        s = above ? vx_single_files_take(map, above, p, VX_VARIANT_UNKNOWN) : vx_no_memory("for a path");
        vx_free(above);
    }
    vx_free(parent);
    return s;
}

// ---- variant and overrides ----

static vx_status settle_variant(vx_model_map *map, const vx_model_map_params *p)
{
    const char *where = vx_short_path(p->model);
    if (map->variant == VX_VARIANT_UNKNOWN && p->stated != VX_VARIANT_UNKNOWN) {
        map->variant = p->stated;
        map->variant_reason = "--variant";
    } else if (p->stated != VX_VARIANT_UNKNOWN && p->stated != map->variant)
        return vx_fail(VX_ERR_MODEL_VARIANT, "%s is the %s partition, but --variant says %s", where, variant_name(map->variant),
                       variant_name(p->stated));
    if (p->variant == VX_VARIANT_UNKNOWN || p->variant == map->variant) return vx_ok();
    if (map->variant != VX_VARIANT_UNKNOWN)
        return vx_fail_remedy(VX_ERR_MODEL_VARIANT, "use the other partition, or the folder that holds both",
                              "%s is the %s partition, the request needs %s", where, variant_name(map->variant),
                              variant_name(p->variant));
    if (p->variant == VX_VARIANT_REF2VA)
        return vx_fail_remedy(VX_ERR_MODEL_VARIANT, "if it is Ref2VA, say --variant ref2va",
                              "%s: nothing says which partition this is, and the request needs Ref2VA", where);
    vx_model_map_note(map, "%s: nothing says which partition this is; taken for FL2VA", where);
    return vx_ok();
}

static vx_status override(char **slot, const char *path, bool folder_only)
{
    if (!path) return vx_ok();
    VX_TRY(vx_refuse_dangling(path, VX_ERR_MODEL_OPEN));
    if (!vx_folder_exists(path) && (folder_only || !vx_file_exists(path)))
        return vx_fail(VX_ERR_MODEL_OPEN, "'%s' is not there%s", path, folder_only ? " or not a folder" : "");
    return set(slot, vx_strdup(path));
}

static vx_status find(vx_model_map *map, const vx_model_map_params *p)
{
    VX_TRY(set(&map->root, vx_strdup(p->model)));
    VX_TRY(vx_refuse_dangling(p->model, VX_ERR_MODEL_OPEN));
    vx_variant wanted = p->variant == VX_VARIANT_UNKNOWN ? p->stated : p->variant;
    if (vx_folder_exists(p->model)) VX_TRY(take_folder_model(map, p, wanted));
    else {
        VX_TRY(vx_model_file_read(map, p->model)); // also says what a path is that is neither
        VX_TRY(take_around(map, p));
    }
    VX_TRY(settle_variant(map, p));
    VX_TRY(override(&map->component[VX_TEXT_ENCODER], p->text_encoder, false));
    VX_TRY(override(&map->component[VX_VIDEO_VAE], p->video_vae, false));
    VX_TRY(override(&map->component[VX_AUDIO_VAE], p->audio_vae, false));
    VX_TRY(override(&map->vision, p->vision, false));
    return override(&map->tokenizer, p->tokenizer, true);
}

vx_status vx_model_map_find(vx_model_map *out, const vx_model_map_params *params)
{
    *out = (vx_model_map){ .flow_shift = default_shift, .audio_flow_shift = default_audio_shift };
    vx_status s = find(out, params);
    if (s.code != VX_OK) vx_model_map_free(out);
    return s;
}

void vx_model_map_free(vx_model_map *map)
{
    for (int i = 0; i < VX_COMPONENT_KINDS; i++) vx_free(map->component[i]);
    vx_free(map->tokenizer);
    vx_free(map->vision);
    vx_free(map->root);
    vx_str_free(&map->notes);
    *map = (vx_model_map){ 0 };
}

vx_status vx_model_map_need(const vx_model_map *map, vx_component_kind kind)
{
    if (map->component[kind]) return vx_ok();
    return vx_remedy(vx_fail(VX_ERR_MODEL_COMPONENT, "%s: no %s: looked for %s%s%s", vx_short_path(map->root),
                             vx_component_kind_name(kind), folders[kind][0], folders[kind][1] ? ", " : "",
                             folders[kind][1] ? folders[kind][1] : ""),
                     "name it with %s", vx_component_option(kind));
}
