// Places that are looked at, one level deep:
//
//   FOLDER/diffusion_models, unet    transformers        FOLDER/text_encoders, clip    text encoders, their vision towers
//   FOLDER/vae                       both VAEs           FOLDER itself                 any of them
//   FOLDER/tokenizer, processor, text_encoders           vocab.json or tokenizer.json
#include "weights/single_files.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "weights/foreign.h"
#include "weights/locate.h"
#include "weights/model_file.h"
#include "weights/names.h"
#include "weights/refuse.h"

enum { MOST_FILES = 128 };

typedef struct candidate {
    char *path;
    vx_component_kind kind;
    vx_variant variant; // of a transformer
    bool vision;        // a text encoder's tower without the rest
} candidate;

typedef struct listing {
    vx_model_map *map; // takes the notes
    candidate file[MOST_FILES];
    int count;
    vx_status first_fault; // of a file that could not be read
} listing;

static const char *const places[] = { "", "diffusion_models", "unet", "text_encoders", "clip", "vae" };

static bool is_model_name(const char *name)
{
    if (name[0] == '.') return false;
    return vx_has_suffix(name, ".gguf") || (vx_has_suffix(name, ".safetensors") && vx_refuse_shard_name(name).code == VX_OK);
}

// ---- what a file is ----

static bool has_head(const vx_container *file, const char *part)
{
    for (int i = 0; i < vx_container_count(file); i++)
        if (strstr(vx_container_at(file, i)->name, part)) return true;
    return false;
}

static vx_status classify(listing *l, const char *path)
{
    vx_container file;
    vx_status s = vx_container_open(&file, path);
    if (s.code != VX_OK) {
        vx_model_map_note(l->map, "%s", s.message);
        if (l->first_fault.code == VX_OK) l->first_fault = s;
        return s.code == VX_ERR_MEMORY ? s : vx_ok();
    }
    const int count = vx_container_count(&file);
    const char **names = vx_alloc_array((size_t)count + 1, sizeof *names);
    candidate c = { 0 };
    const char *reason;
    bool known = false;
    for (int i = 0; names && i < count; i++) names[i] = vx_container_at(&file, i)->name;
    if (!names) s = vx_no_memory("for tensor names");
    else known = vx_refuse_adapter(&file).code == VX_OK && vx_names_kind(names, count, &c.kind);
    if (known && c.kind == VX_TRANSFORMER) c.variant = vx_variant_of_file(&file, path, &reason);
    if (known && c.kind == VX_TEXT_ENCODER)
        c.vision = !has_head(&file, "layers.") && !has_head(&file, "token_embd") && !has_head(&file, "embed_tokens");
    vx_free(names);
    vx_container_close(&file);
    if (s.code != VX_OK || !known) return s;
    if (l->count == MOST_FILES)
        return vx_fail(VX_ERR_FILE_LIMIT, "more than %d model files in one place, the last is %s", MOST_FILES,
                       vx_short_path(path));
    c.path = vx_strdup(path);
    VX_NEED_MEMORY(c.path, path);
    l->file[l->count++] = c;
    return vx_ok();
}

static vx_status list_place(listing *l, const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir) return vx_ok(); // no such place
    vx_status s = vx_ok();
    for (struct dirent *e; s.code == VX_OK && (e = readdir(dir));) {
        if (!is_model_name(e->d_name)) continue;
        char *path = vx_path_join(folder, e->d_name);
        if (!path) s = vx_no_memory("for a path");
        else if (vx_file_exists(path)) s = classify(l, path);
        vx_free(path);
    }
    closedir(dir);
    return s;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const candidate *)a)->path, ((const candidate *)b)->path);
}

static vx_status list_all(listing *l, const char *folder)
{
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *path = places[i][0] ? vx_path_join(folder, places[i]) : vx_strdup(folder);
        VX_NEED_MEMORY(path, folder);
        vx_status s = list_place(l, path);
        vx_free(path);
        VX_TRY(s);
    }
    qsort(l->file, (size_t)l->count, sizeof *l->file, by_path); // folders are read in any order
    return vx_ok();
}

// ---- choosing ----

static bool fits(const candidate *c, vx_component_kind kind, bool vision, vx_variant wanted)
{
    if (c->kind != kind || c->vision != vision) return false;
    return kind != VX_TRANSFORMER || wanted == VX_VARIANT_UNKNOWN || c->variant == wanted;
}

static const candidate *only(const listing *l, vx_component_kind kind, bool vision, vx_variant wanted, int *count)
{
    const candidate *found = NULL;
    *count = 0;
    for (int i = 0; i < l->count; i++) {
        if (!fits(&l->file[i], kind, vision, wanted)) continue;
        if (!found) found = &l->file[i];
        (*count)++;
    }
    return found;
}

static vx_status ambiguous(const listing *l, vx_component_kind kind, bool vision, vx_variant wanted, const char *folder)
{
    vx_str names = { 0 };
    int count = 0;
    for (int i = 0; i < l->count; i++)
        if (fits(&l->file[i], kind, vision, wanted))
            vx_str_print(&names, "%s%s", count++ ? ", " : "", vx_short_path(l->file[i].path));
    vx_status s = names.failed ? vx_no_memory("for a message")
                               : vx_fail(VX_ERR_MODEL_AMBIGUOUS, "%s: %d files could be the %s%s: %s", vx_short_path(folder),
                                         count, vx_component_kind_name(kind), vision ? "'s vision tower" : "", names.data);
    vx_str_free(&names);
    return vx_remedy(s, "name one with %s", vision ? "--vision" : vx_component_option(kind));
}

static vx_status take(char **slot, const listing *l, vx_component_kind kind, bool vision, vx_variant wanted, const char *folder)
{
    int count;
    const candidate *c = only(l, kind, vision, wanted, &count);
    if (*slot || !c) return vx_ok();
    if (count > 1) return ambiguous(l, kind, vision, wanted, folder);
    *slot = vx_strdup(c->path);
    VX_NEED_MEMORY(*slot, c->path);
    return vx_ok();
}

// Where both partitions lie side by side and no task says which, it is the one that makes clips from prompts.
static vx_status take_transformer(vx_model_map *map, const listing *l, const char *folder, vx_variant wanted)
{
    int all, count;
    (void)only(l, VX_TRANSFORMER, false, VX_VARIANT_UNKNOWN, &all);
    if (all == 0) return vx_ok();
    vx_variant chosen = VX_VARIANT_UNKNOWN; // any
    if (all > 1) {
        chosen = wanted == VX_VARIANT_UNKNOWN ? VX_VARIANT_FL2VA : wanted;
        (void)only(l, VX_TRANSFORMER, false, chosen, &count);
        if (count == 0 && wanted == VX_VARIANT_UNKNOWN) chosen = VX_VARIANT_UNKNOWN;
        else if (count == 0)
            return vx_fail_remedy(VX_ERR_MODEL_VARIANT, "download the other partition, or name a file with --model and --variant",
                                  "%s: none of its %d transformers is known as the %s partition", vx_short_path(folder), all,
                                  wanted == VX_VARIANT_REF2VA ? "Ref2VA" : "FL2VA");
    }
    char *path = NULL;
    VX_TRY(take(&path, l, VX_TRANSFORMER, false, chosen, folder));
    vx_status s = vx_model_file_read(map, path);
    vx_free(path);
    return s;
}

static vx_status take_tokenizer(char **slot, const char *folder)
{
    static const char *const names[] = { "tokenizer", "processor", "text_encoders/tokenizer", "text_encoders", "clip" };
    static const char *const files[] = { "vocab.json", "tokenizer.json" };
    for (int i = 0; i < 5; i++)
        for (int f = 0; f < 2 && !*slot; f++) {
            char *at = vx_path_join(folder, names[i]), *file = at ? vx_path_join(at, files[f]) : NULL;
            const bool failed = !file, there = file && vx_file_exists(file);
            vx_free(file);
            if (there) *slot = at;
            else vx_free(at);
            if (failed) return vx_no_memory("for a path");
        }
    return vx_ok();
}

static vx_status take_all(vx_model_map *map, const listing *l, const char *folder, const vx_model_map_params *p,
                          vx_variant wanted)
{
    const char *const named[VX_COMPONENT_KINDS] = { map->component[VX_TRANSFORMER], p->text_encoder, p->video_vae, p->audio_vae };
    if (!named[VX_TRANSFORMER]) VX_TRY(take_transformer(map, l, folder, wanted));
    for (int k = VX_TEXT_ENCODER; k < VX_COMPONENT_KINDS; k++)
        if (!named[k]) VX_TRY(take(&map->component[k], l, (vx_component_kind)k, false, VX_VARIANT_UNKNOWN, folder));
    if (!named[VX_TEXT_ENCODER] && !p->vision) VX_TRY(take(&map->vision, l, VX_TEXT_ENCODER, true, VX_VARIANT_UNKNOWN, folder));
    if (!p->tokenizer) VX_TRY(take_tokenizer(&map->tokenizer, folder));
    if (!map->component[VX_TRANSFORMER] && l->first_fault.code != VX_OK) return l->first_fault;
    return vx_ok();
}

vx_status vx_single_files_take(vx_model_map *map, const char *folder, const vx_model_map_params *params, vx_variant wanted)
{
    listing *l = vx_alloc_array(1, sizeof *l);
    VX_NEED_MEMORY(l, "a folder's files");
    l->map = map;
    vx_status s = list_all(l, folder);
    if (s.code == VX_OK) s = take_all(map, l, folder, params, wanted);
    for (int i = 0; i < l->count; i++) vx_free(l->file[i].path);
    vx_free(l);
    return s;
}

vx_status vx_single_files_here(const char *folder, bool *here)
{
    *here = false;
    for (int i = 1; i < 3 && !*here; i++) {
        char *path = vx_path_join(folder, places[i]);
        VX_NEED_MEMORY(path, folder);
        *here = vx_folder_exists(path);
        vx_free(path);
    }
    char *config = vx_path_join(folder, "config.json");
    VX_NEED_MEMORY(config, folder);
    const bool configured = vx_file_exists(config);
    vx_free(config);
    if (*here || configured) return vx_ok();
    DIR *dir = opendir(folder);
    if (!dir) return vx_ok();
    for (struct dirent *e; !*here && (e = readdir(dir));) *here = is_model_name(e->d_name);
    closedir(dir);
    return vx_ok();
}
