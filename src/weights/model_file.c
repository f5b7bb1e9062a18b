#include "weights/model_file.h"

#include <ctype.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "weights/locate.h"
#include "weights/names.h"
#include "weights/refuse.h"

// Is `part` in `text`, whatever the case of `text`?
static bool holds(const char *text, const char *part)
{
    size_t size = strlen(part);
    for (; *text; text++) {
        size_t i = 0;
        while (i < size && tolower((unsigned char)text[i]) == part[i]) i++;
        if (i == size) return true;
    }
    return false;
}

// File names of repackaged checkpoints; one that names both says nothing.
static vx_variant variant_of_file_name(const char *name)
{
    bool fl2va = holds(name, "fl2v") || holds(name, "t2va"), ref2va = holds(name, "ref2v");
    return fl2va == ref2va ? VX_VARIANT_UNKNOWN : fl2va ? VX_VARIANT_FL2VA : VX_VARIANT_REF2VA;
}

vx_variant vx_variant_of_parents(const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    while (end > 0 && path[end - 1] != '/') end--; // the path's own name
    for (int level = 0; level < 2 && end > 0; level++) {
        while (end > 0 && path[end - 1] == '/') end--;
        size_t begin = end;
        while (begin > 0 && path[begin - 1] != '/') begin--;
        char name[32];
        size_t size = end - begin;
        if (size < sizeof name) {
            memcpy(name, path + begin, size);
            name[size] = 0;
            vx_variant v = vx_variant_of_name(name);
            if (v != VX_VARIANT_UNKNOWN) return v;
        }
        end = begin;
    }
    return VX_VARIANT_UNKNOWN;
}

vx_variant vx_variant_of_file(const vx_container *file, const char *path, const char **reason)
{
    // A folder's name is the publisher's, metadata the exporter's, a file's name anybody's.
    vx_variant v = vx_variant_of_parents(path);
    if (v != VX_VARIANT_UNKNOWN) return *reason = "the folder's name", v;
    const char *partition = vx_container_metadata(file, "partition");
    if (partition) v = vx_variant_of_name(partition);
    if (v != VX_VARIANT_UNKNOWN) return *reason = "the file's metadata", v;
    v = variant_of_file_name(vx_path_name(path));
    if (v != VX_VARIANT_UNKNOWN) *reason = "the file's name";
    return v;
}

static vx_status read_layout(vx_model_map *map, const vx_container *file, const char *path)
{
    int count = vx_container_count(file);
    const char **names = vx_alloc_array((size_t)count, sizeof *names);
    VX_NEED_MEMORY(names, "tensor names");
    for (int i = 0; i < count; i++) names[i] = vx_container_at(file, i)->name;
    size_t prefix = 0;
    vx_status s = vx_names_prefix(VX_TRANSFORMER, names, count, path, &prefix);
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) > prefix) names[i] += prefix;
    if (s.code == VX_OK) s = vx_names_layout(VX_TRANSFORMER, names, count, path, &map->layout);
    vx_free(names);
    return s;
}

// ComfyUI's exporter writes the shifts into its 'config'.
static vx_status read_shifts(vx_model_map *map, const vx_container *file)
{
    const char *text = vx_container_metadata(file, "config");
    json_t *config;
    if (!text || vx_json_parse(&config, text, strlen(text), 16, VX_ERR_CONFIG, "metadata").code != VX_OK) return vx_ok();
    const json_t *transformer = json_object_get(config, "transformer");
    vx_status s = vx_shift_member(transformer, "sigma_shift_video", &map->flow_shift, "metadata 'config'");
    if (s.code == VX_OK) s = vx_shift_member(transformer, "sigma_shift_audio", &map->audio_flow_shift, "metadata 'config'");
    json_decref(config);
    return s;
}

vx_status vx_model_file_read(vx_model_map *map, const char *path)
{
    vx_container file;
    VX_TRY(vx_refuse_shard_name(path));
    VX_TRY(vx_container_open(&file, path));
    vx_status s = vx_refuse_adapter(&file);
    if (s.code == VX_OK) s = read_layout(map, &file, path);
    if (s.code == VX_OK) s = read_shifts(map, &file);
    if (s.code == VX_OK) map->variant = vx_variant_of_file(&file, path, &map->variant_reason);
    vx_container_close(&file);
    VX_TRY(s);
    char *copy = vx_strdup(path);
    VX_NEED_MEMORY(copy, path);
    vx_free(map->component[VX_TRANSFORMER]);
    map->component[VX_TRANSFORMER] = copy;
    return vx_ok();
}
