#include "weights/shards.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "weights/foreign.h"

enum {
    MOST_INDEX = 16 << 20, // published indexes are about 100 KB, 65,536 names about 8 MB
    MOST_SHARDS = 192,     // published sets have 14; 256 files can be mapped at a time
};

static void count_file(vx_shards *s, const vx_container *file)
{
    s->tensors += vx_container_count(file);
    for (int i = 0; i < vx_container_count(file); i++) s->bytes += vx_container_at(file, i)->bytes;
}

vx_status vx_shards_open_file(vx_shards *out, const char *path)
{
    *out = (vx_shards){ 0 };
    out->file = vx_alloc_array(MOST_SHARDS, sizeof *out->file);
    VX_NEED_MEMORY(out->file, path);
    vx_status s = vx_shards_add_file(out, path);
    if (s.code != VX_OK) vx_shards_close(out);
    return s;
}

vx_status vx_shards_add_file(vx_shards *s, const char *path)
{
    VX_TRY(vx_container_open(&s->file[s->files], path));
    count_file(s, &s->file[s->files++]);
    return vx_ok();
}

// ---- index ----

// An index names files beside it and no others: a path would let it read what the user did not choose.
static bool is_bare(const char *name)
{
    return name[0] && !strpbrk(name, "/\\:") && !strstr(name, "..") && vx_has_suffix(name, ".safetensors") && strlen(name) < 256;
}

static vx_status open_shard(vx_container *out, const char *index, const char *name)
{
    const char *last = vx_path_name(index);
    char *folder = vx_strndup(index, (size_t)(last - index));
    char *path = folder ? vx_path_join(last > index ? folder : ".", name) : NULL;
    vx_status s;
    struct stat found;
    if (!path) s = vx_no_memory("to open '%s'", name);
    else if (lstat(path, &found) != 0)
        s = vx_fail_remedy(VX_ERR_INDEX, "download the missing file", "%s names '%s', which is not there", vx_short_path(index),
                           name);
    else s = vx_safetensors_open(&out->safetensors, path, NULL);
    vx_free(path);
    vx_free(folder);
    return s;
}

static int find_shard(const vx_shards *s, const char *name)
{
    for (int i = 0; i < s->files; i++)
        if (strcmp(vx_path_name(vx_container_path(&s->file[i])), name) == 0) return i;
    return -1;
}

// Opens the files that the map names, in order of first mention.
static vx_status open_all(vx_shards *out, json_t *map, const char *index)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value)
    {
        const char *name = json_string_value(value);
        if (!name || !is_bare(name))
            return vx_fail(VX_ERR_INDEX,
                           "%s: tensor '%.120s' is mapped to '%.120s', expected the bare name of a .safetensors file",
                           vx_short_path(index), tensor, name ? name : "something else than a string");
        if (find_shard(out, name) >= 0) continue;
        if (out->files == MOST_SHARDS)
            return vx_fail(VX_ERR_FILE_LIMIT, "%s names more than %d files", vx_short_path(index), MOST_SHARDS);
        VX_TRY(open_shard(&out->file[out->files], index, name));
        count_file(out, &out->file[out->files++]);
    }
    return vx_ok();
}

static vx_status check_map(const vx_shards *s, json_t *map, const char *index)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value)
    {
        if (!vx_safetensors_find(s->file[find_shard(s, json_string_value(value))].safetensors, tensor))
            return vx_fail(VX_ERR_INDEX, "%s: tensor '%.200s' is not in '%s'", vx_short_path(index), tensor,
                           json_string_value(value));
    }
    return vx_ok();
}

static vx_status check_files(const vx_shards *s, json_t *map, const char *index)
{
    for (int f = 0; f < s->files; f++) {
        const char *name = vx_path_name(vx_container_path(&s->file[f]));
        for (int i = 0; i < vx_container_count(&s->file[f]); i++) {
            const char *tensor = vx_container_at(&s->file[f], i)->name;
            const char *mapped = json_string_value(json_object_get(map, tensor));
            if (!mapped)
                return vx_fail(VX_ERR_INDEX, "%s does not list tensor '%.200s' of '%s'", vx_short_path(index), tensor, name);
            if (strcmp(mapped, name) != 0)
                return vx_fail(VX_ERR_TENSOR_DUPLICATE, "%s: tensor '%.200s' is in '%s' and in '%s'", vx_short_path(index),
                               tensor, mapped, name);
        }
    }
    return vx_ok();
}

// An integer in what the publishers wrote; some tools write a float or a string.
static void compare_total(vx_shards *s, const json_t *index, const char *path)
{
    const json_t *total = json_object_get(json_object_get(index, "metadata"), "total_size");
    if (!total) return;
    double stated = json_is_number(total)   ? json_number_value(total)
                    : json_is_string(total) ? strtod(json_string_value(total), NULL)
                                            : -1;
    s->other_total = stated != (double)s->bytes;
    if (s->other_total)
        vx_log(VX_LOG_WARNING, "%s says that its tensors take %.0f bytes; they take %" PRIu64, vx_short_path(path), stated,
               s->bytes);
}

static vx_status open_set(vx_shards *out, const json_t *index, const char *path)
{
    json_t *map = json_object_get(index, "weight_map");
    if (!json_is_object(map)) return vx_fail(VX_ERR_INDEX, "%s: 'weight_map' is missing or not an object", vx_short_path(path));
    if (json_object_size(map) == 0) return vx_fail(VX_ERR_INDEX, "%s: 'weight_map' is empty", vx_short_path(path));
    out->file = vx_alloc_array(MOST_SHARDS, sizeof *out->file);
    VX_NEED_MEMORY(out->file, path);
    VX_TRY(open_all(out, map, path));
    VX_TRY(check_map(out, map, path));
    VX_TRY(check_files(out, map, path));
    compare_total(out, index, path);
    return vx_ok();
}

vx_status vx_shards_open_index(vx_shards *out, const char *path)
{
    *out = (vx_shards){ .indexed = true };
    json_t *index;
    VX_TRY(vx_json_of_model(&index, path, MOST_INDEX, VX_ERR_INDEX));
    vx_status s = open_set(out, index, path);
    json_decref(index);
    if (s.code != VX_OK) vx_shards_close(out);
    return s;
}

void vx_shards_close(vx_shards *s)
{
    for (int i = 0; i < s->files; i++) vx_container_close(&s->file[i]);
    vx_free(s->file);
    *s = (vx_shards){ 0 };
}
