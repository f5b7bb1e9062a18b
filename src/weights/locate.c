// What a component's folder may look like:
//
//   config.json  model.safetensors.index.json  model-0000k-of-0000n.safetensors        official, sharded
//   config.json  diffusion_pytorch_model.safetensors[.index.json]                      diffusers
//   config.json  source/config.json  source/model.safetensors                          official video VAE
//   config.json  metadata.json  model.safetensors                                      official audio VAE
//   anything.gguf  mmproj-anything.gguf                                                a text encoder and its vision tower
//   anything.safetensors                                                               one file beside its config.json, or alone
#include "weights/locate.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "weights/foreign.h"
#include "weights/names.h"

enum { MOST_CONFIG = 4 << 20 };

// ---- configuration ----

// Present even if it is a link that leads nowhere: that is a fault to report, not an absent file.
static bool is_there(const char *path)
{
    struct stat found;
    return lstat(path, &found) == 0;
}

// folder/name as JSON; *config NULL if there is none.
static vx_status read_optional(json_t **config, char **path, const char *folder, const char *name)
{
    *config = NULL;
    *path = vx_path_join(folder, name);
    VX_NEED_MEMORY(*path, name);
    vx_status s = is_there(*path) ? vx_json_of_model(config, *path, MOST_CONFIG, VX_ERR_CONFIG) : vx_ok();
    if (*config) return s;
    vx_free(*path);
    *path = NULL;
    return s;
}

// A bare name: a configuration must not lead out of its folder.
static vx_status bare_member(const json_t *config, const char *key, const char *fallback, const char **out, const char *path)
{
    *out = fallback;
    if (!json_object_get(config, key)) return vx_ok();
    VX_TRY(vx_json_string(config, key, NULL, out, vx_short_path(path)));
    if (!**out || strchr(*out, '/') || strchr(*out, '\\') || strstr(*out, ".."))
        return vx_fail(VX_ERR_CONFIG, "%s: '%s' is '%.100s', expected the bare name of something in this folder",
                       vx_short_path(path), key, *out);
    return vx_ok();
}

// Members of `more` that `config` does not have itself.
static vx_status merge(json_t *config, json_t *more)
{
    if (json_is_object(more) && json_object_update_missing(config, more) != 0) return vx_no_memory("for a configuration");
    return vx_ok();
}

// ---- weights in a folder ----

typedef struct listing {
    char *index, *file; // the first of each, in no order
    int indexes, files; // .safetensors.index.json, .safetensors
    char *pickle, *gguf;
    int ggufs;   // without vision towers
    char *tower; // a .gguf of a vision tower: llama.cpp's name for one begins with mmproj
} listing;

static vx_status note(char **slot, const char *name)
{
    if (*slot) return vx_ok();
    *slot = vx_strdup(name);
    VX_NEED_MEMORY(*slot, name);
    return vx_ok();
}

static void listing_free(listing *l)
{
    vx_free(l->index);
    vx_free(l->file);
    vx_free(l->pickle);
    vx_free(l->gguf);
    vx_free(l->tower);
}

static vx_status list_entry(listing *l, const char *name)
{
    if (name[0] == '.') return vx_ok(); // also the unfinished files of download tools
    if (vx_has_suffix(name, ".safetensors.index.json")) {
        l->indexes++;
        return note(&l->index, name);
    }
    if (vx_has_suffix(name, ".safetensors")) {
        l->files++;
        return note(&l->file, name);
    }
    if (vx_has_suffix(name, ".gguf") && vx_has_prefix(name, "mmproj")) return note(&l->tower, name);
    if (vx_has_suffix(name, ".gguf")) {
        l->ggufs++;
        return note(&l->gguf, name);
    }
    if (vx_refuse_pickle_name(name).code != VX_OK) return note(&l->pickle, name);
    return vx_ok();
}

static vx_status list_folder(listing *l, const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir) return vx_fail_errno(VX_ERR_MODEL_OPEN, errno, "cannot list the folder '%s'", folder);
    vx_status s = vx_ok();
    for (struct dirent *e; s.code == VX_OK && (e = readdir(dir));) s = list_entry(l, e->d_name);
    closedir(dir);
    return s;
}

// An index before a file, because a file beside an index is one of its shards or a leftover; usual names before others.
static vx_status choose(const listing *l, const char *folder, const char **name, bool *indexed)
{
    static const char *const usual[] = { "model.safetensors.index.json", "diffusion_pytorch_model.safetensors.index.json",
                                         "model.safetensors", "diffusion_pytorch_model.safetensors" };
    *name = NULL;
    for (int i = 0; i < 4 && !*name; i++) {
        char *path = vx_path_join(folder, usual[i]);
        VX_NEED_MEMORY(path, usual[i]);
        bool there = is_there(path);
        vx_free(path);
        if (!there || (i >= 2 && l->indexes > 0)) continue;
        *name = usual[i];
        *indexed = i < 2;
    }
    const char *where = vx_short_path(folder);
    if (*name) return vx_ok();
    if (l->indexes > 1 || (l->indexes == 0 && l->files > 1))
        return vx_fail_remedy(VX_ERR_INDEX, "download the set's .safetensors.index.json, or name the one file",
                              "%s: %d .safetensors files and %d indexes with unusual names, expected one set", where, l->files,
                              l->indexes);
    *indexed = l->indexes == 1;
    *name = *indexed ? l->index : l->file;
    if (*name) return vx_ok();
    if (l->ggufs > 1)
        return vx_fail_remedy(VX_ERR_MODEL_AMBIGUOUS, "name the one file", "%s: %d .gguf files, expected one", where, l->ggufs);
    *name = l->gguf;
    if (*name) return vx_ok();
    if (l->pickle)
        return vx_fail_remedy(VX_ERR_FILE_PICKLE, "use the .safetensors files of the same model",
                              "%s holds '%s' and no .safetensors file; pickled files are never opened", where, l->pickle);
    return vx_fail(VX_ERR_MODEL_COMPONENT, "%s: no weights: looked for .safetensors.index.json, .safetensors and .gguf files",
                   where);
}

static vx_status find_weights(vx_source *out, const char *folder)
{
    listing l = { 0 };
    const char *name = NULL;
    vx_status s = list_folder(&l, folder);
    if (s.code == VX_OK) s = choose(&l, folder, &name, &out->indexed);
    if (s.code == VX_OK) {
        out->weights = vx_path_join(folder, name);
        if (name == l.gguf && l.tower) out->vision = vx_path_join(folder, l.tower);
        if (!out->weights || (name == l.gguf && l.tower && !out->vision)) s = vx_no_memory("for a path");
    }
    listing_free(&l);
    return s;
}

// ---- the kinds ----

// The official video VAE keeps weights and the network's own configuration one folder deeper.
static vx_status find_video(vx_source *out, const char *folder)
{
    const char *name = NULL, *file = NULL;
    if (out->config) {
        VX_TRY(bare_member(out->config, "source_path", NULL, &name, out->config_path));
        VX_TRY(bare_member(out->config, "source_safetensors_path", NULL, &file, out->config_path));
    }
    if (!name) return find_weights(out, folder);
    char *source = vx_path_join(folder, name), *path = NULL;
    VX_NEED_MEMORY(source, name);
    json_t *inner = NULL;
    vx_status s = read_optional(&inner, &path, source, "config.json");
    if (s.code == VX_OK) s = merge(out->config, inner);
    if (s.code == VX_OK && file) {
        out->weights = vx_path_join(source, file);
        if (!out->weights) s = vx_no_memory("for a path");
    } else if (s.code == VX_OK) s = find_weights(out, source);
    json_decref(inner);
    vx_free(path);
    vx_free(source);
    return s;
}

// The audio VAE's rates and widths are in what its training wrote.
static vx_status merge_audio(vx_source *out, const char *folder)
{
    const char *name = NULL;
    VX_TRY(bare_member(out->config, "source_metadata_path", "metadata.json", &name, out->config_path));
    json_t *metadata = NULL;
    char *path = NULL;
    vx_status s = read_optional(&metadata, &path, folder, name);
    if (s.code == VX_OK) s = merge(out->config, json_object_get(json_object_get(metadata, "metadata"), "kwargs"));
    json_decref(metadata);
    vx_free(path);
    return s;
}

static vx_status find_audio(vx_source *out, const char *folder)
{
    if (out->config) VX_TRY(merge_audio(out, folder));
    return find_weights(out, folder);
}

static vx_status find_in_folder(vx_source *out, vx_component_kind kind, const char *folder)
{
    VX_TRY(read_optional(&out->config, &out->config_path, folder, "config.json"));
    switch (kind) {
    case VX_VIDEO_VAE: return find_video(out, folder);
    case VX_AUDIO_VAE: return find_audio(out, folder);
    default: return find_weights(out, folder);
    }
}

// Is this the configuration of such a component? Beside a file of any name lie files of any origin.
static bool is_config_of(vx_component_kind kind, const json_t *config)
{
    static const char *const classes[VX_COMPONENT_KINDS][3] = {
        [VX_TRANSFORMER] = { "MiniMaxH3DiTModel", "MiniMaxH3Transformer3DModel" },
        [VX_VIDEO_VAE] = { "MiniMaxH3VideoVAE", "AutoencoderKLLegacy", "AutoencoderKLMiniMaxH3" },
        [VX_AUDIO_VAE] = { "MiniMaxH3AudioVAE", "AutoencoderKLMiniMaxH3Audio" },
    };
    if (kind == VX_TEXT_ENCODER) return json_is_object(json_object_get(config, "text_config"));
    const char *name = json_string_value(json_object_get(config, "_class_name"));
    for (int i = 0; name && i < 3 && classes[kind][i]; i++)
        if (strcmp(name, classes[kind][i]) == 0) return true;
    return false;
}

// The wrapper of the official video VAE, whose weights were named by themselves: one folder up, if it points down here.
static vx_status find_wrapper(vx_source *out, const char *folder)
{
    char *above = vx_path_join(folder, "..");
    VX_NEED_MEMORY(above, folder);
    json_t *wrapper = NULL;
    char *path = NULL;
    vx_status s = read_optional(&wrapper, &path, above, "config.json");
    vx_free(above);
    vx_free(path);
    if (s.code == VX_OK && json_object_get(wrapper, "source_path")) s = merge(out->config, wrapper);
    json_decref(wrapper);
    return s;
}

static vx_status find_config_beside(vx_source *out, vx_component_kind kind, const char *folder)
{
    VX_TRY(read_optional(&out->config, &out->config_path, folder, "config.json"));
    if (!out->config) return vx_ok();
    if (!is_config_of(kind, out->config)) {
        vx_log(VX_LOG_INFO, "%s is not the configuration of a %s; it is not used", vx_short_path(out->config_path),
               vx_component_kind_name(kind));
        json_decref(out->config);
        vx_free(out->config_path);
        out->config = NULL;
        out->config_path = NULL;
        return vx_ok();
    }
    if (kind == VX_AUDIO_VAE) return merge_audio(out, folder);
    return kind == VX_VIDEO_VAE && !json_object_get(out->config, "latents_mean") ? find_wrapper(out, folder) : vx_ok();
}

vx_status vx_refuse_shard_name(const char *path)
{
    int which, of, end = 0;
    const char *dash = strrchr(path, '-'); // ...-00001-of-00013.safetensors
    if (!dash || dash - path < 9) return vx_ok();
    if (sscanf(dash - 9, "-%5d-of-%5d.safetensors%n", &which, &of, &end) != 2 || end == 0 || of < 2) return vx_ok();
    return vx_fail_remedy(VX_ERR_INDEX, "give the folder that holds the set", "%s is file %d of a set of %d", vx_short_path(path),
                          which, of);
}

static vx_status find_beside(vx_source *out, vx_component_kind kind, const char *path)
{
    VX_TRY(vx_refuse_shard_name(path));
    out->weights = vx_strdup(path);
    VX_NEED_MEMORY(out->weights, path);
    const char *name = vx_path_name(path);
    char *folder = name > path ? vx_strndup(path, (size_t)(name - path)) : vx_strdup(".");
    VX_NEED_MEMORY(folder, path);
    vx_status s = find_config_beside(out, kind, folder);
    vx_free(folder);
    return s;
}

vx_status vx_source_find(vx_source *out, vx_component_kind kind, const char *path)
{
    *out = (vx_source){ 0 };
    vx_status s = vx_refuse_dangling(path, VX_ERR_MODEL_OPEN);
    if (s.code == VX_OK) s = vx_folder_exists(path) ? find_in_folder(out, kind, path) : find_beside(out, kind, path);
    if (s.code != VX_OK) vx_source_free(out);
    return s;
}

void vx_source_free(vx_source *s)
{
    vx_free(s->weights);
    vx_free(s->vision);
    vx_free(s->config_path);
    json_decref(s->config);
    *s = (vx_source){ 0 };
}
