// Both partitions in the official layout:
//
//   FL2VA/
//     transformer/    config.json  model-0000k-of-00002.safetensors  model.safetensors.index.json
//     text_encoder/   the same
//     tokenizer/      vocab.json  merges.txt  tokenizer_config.json
//     video_vae/      config.json  source/config.json  source/model.safetensors
//     audio_vae/      config.json  config.yaml  metadata.json  model.safetensors
//     model_index.json
//   Ref2VA/
//     transformer/  model_index.json    the rest is FL2VA's
//
// The two model_index.json come last, so that what was interrupted does not look like a model.
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "demo/demo.h"
#include "demo/pretty.h"
#include "vortex/vortex.h"

enum { SHARDS = 2, SPARE_ROWS = 8, DEFAULT_SEED = 1, RELEASED_VOCABULARY = 151936 };

typedef struct writing {
    const char *root; // of the partition
    bool random, released, replace;
    uint64_t seed;
    vx_demo_sizes sizes;
} writing;

// ---- files ----
vx_status vx_demo_text_file(const char *folder, const char *name, const char *text, size_t size, bool replace)
{
    char *path = vx_path_join(folder, name);
    VX_NEED_MEMORY(path, name);
    vx_output *out = NULL;
    vx_status s = vx_output_begin(&out, path, replace);
    if (s.code == VX_OK) s = vx_output_write(out, text, size);
    if (s.code == VX_OK) s = vx_output_commit(&out);
    else if (out) vx_output_discard(&out);
    vx_free(path);
    return s;
}

vx_status vx_demo_json_file(const char *folder, const char *name, json_t *value, bool replace)
{
    char *text = value ? json_dumps(value, JSON_INDENT(2)) : NULL;
    json_decref(value);
    if (!text) return vx_fail(VX_ERR_MEMORY, "no memory for %s", name);
    vx_status s = vx_demo_text_file(folder, name, text, strlen(text), replace);
    free(text); // Jansson's
    return s;
}

static vx_status make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0) return vx_ok();
    if (errno == EEXIST && vx_folder_exists(path)) return vx_ok();
    return vx_fail_errno(VX_ERR_OUTPUT, errno, "cannot make the folder '%s'", path);
}

static vx_status check_empty(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir) return vx_fail_errno(VX_ERR_OUTPUT, errno, "cannot list the folder '%s'", path);
    bool empty = true;
    for (struct dirent *e; empty && (e = readdir(dir));) empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    closedir(dir);
    if (empty) return vx_ok();
    return vx_fail_remedy(VX_ERR_OUTPUT_EXISTS, "choose another folder, or allow it to be written into",
                          "the folder '%s' is not empty", path);
}

// ---- components ----
// Makes root/name and calls the writer with it.
static vx_status in_folder(writing *w, const char *name, vx_status (*write)(writing *w, const char *folder))
{
    char *folder = vx_path_join(w->root, name);
    VX_NEED_MEMORY(folder, name);
    vx_status s = make_folder(folder);
    if (s.code == VX_OK) s = write(w, folder);
    vx_free(folder);
    return s;
}

typedef vx_status (*list_fn)(vx_demo_tensors *set, const vx_demo_sizes *sizes);
typedef vx_status (*paint_fn)(vx_demo_tensors *set, const vx_demo_sizes *sizes, uint64_t seed);

static vx_status write_weights(const writing *w, const char *folder, int shards, list_fn list, float scale, paint_fn paint)
{
    // The audio VAE is folded on the host: its numbers must be there.
    vx_demo_tensors set = { .hollow = w->released && list != vx_demo_audio };
    vx_status s = list(&set, &w->sizes);
    if (s.code == VX_OK && set.hollow) s = vx_ok();
    else if (s.code == VX_OK && w->random) vx_demo_randomise(&set, w->seed, scale);
    else if (s.code == VX_OK) s = paint(&set, &w->sizes, w->seed);
    if (s.code == VX_OK) s = vx_demo_tensors_write(&set, folder, shards, w->replace);
    vx_demo_tensors_free(&set);
    return s;
}

static vx_status write_transformer(writing *w, const char *folder)
{
    VX_TRY(vx_demo_json_file(folder, "config.json", vx_demo_transformer_config(&w->sizes), w->replace));
    return write_weights(w, folder, SHARDS, vx_demo_transformer, 1.0f, vx_demo_pretty_transformer);
}

// The encoder needs to know how many ids the tokenizer has, and which ones are special.
static vx_status write_tokenizer(writing *w, const char *folder)
{
    json_t *special = NULL;
    int64_t ids = 0;
    VX_TRY(vx_demo_tokenizer_write(folder, w->replace, &ids, &special));
    w->sizes.text.vocabulary = ids + SPARE_ROWS; // the released table has rows that no token uses, too
    if (w->released) w->sizes.text.vocabulary = RELEASED_VOCABULARY;
    char *encoder = vx_path_join(w->root, "text_encoder");
    vx_status s = encoder ? make_folder(encoder) : vx_no_memory("for a path");
    if (s.code == VX_OK) s = vx_demo_json_file(encoder, "config.json", vx_demo_language_config(&w->sizes, special), w->replace);
    if (s.code == VX_OK) s = write_weights(w, encoder, SHARDS, vx_demo_language, 0.4f, vx_demo_pretty_language);
    json_decref(special);
    vx_free(encoder);
    return s;
}

static vx_status write_video_source(writing *w, const char *folder)
{
    VX_TRY(vx_demo_json_file(folder, "config.json", vx_demo_video_source_config(&w->sizes), w->replace));
    return write_weights(w, folder, 0, vx_demo_video, 1.2f, vx_demo_pretty_video);
}

static vx_status write_video(writing *w, const char *folder)
{
    VX_TRY(vx_demo_json_file(folder, "config.json", vx_demo_video_config(&w->sizes), w->replace));
    return in_folder(w, "video_vae/source", write_video_source);
}

static vx_status write_audio(writing *w, const char *folder)
{
    char yaml[160];
    int size = snprintf(yaml, sizeof yaml,
                        "model_config:\n  sr: 32000\n  decoder_dim: %d\n  audio_channel: 1\n  vae_latent_channels: %d\n",
                        (int)w->sizes.audio.decoder_dim, VX_DEMO_AUDIO_CHANNELS);
    VX_TRY(vx_demo_json_file(folder, "config.json", vx_demo_audio_config(&w->sizes), w->replace));
    VX_TRY(vx_demo_text_file(folder, "config.yaml", yaml, (size_t)size, w->replace));
    VX_TRY(vx_demo_json_file(folder, "metadata.json", vx_demo_audio_metadata(&w->sizes), w->replace));
    return write_weights(w, folder, 0, vx_demo_audio, 1.0f, vx_demo_pretty_audio);
}

// ---- partitions ----
static vx_status write_first(writing *w, const char *folder)
{
    writing part = *w;
    part.root = folder;
    VX_TRY(in_folder(&part, "transformer", write_transformer));
    VX_TRY(in_folder(&part, "tokenizer", write_tokenizer));
    VX_TRY(in_folder(&part, "video_vae", write_video));
    return in_folder(&part, "audio_vae", write_audio);
}

static vx_status write_second(writing *w, const char *folder)
{
    writing part = *w;
    part.root = folder;
    part.seed = vx_demo_stream(w->seed, "Ref2VA");
    if (w->released) part.sizes = w->sizes;
    else if (w->random) vx_demo_sizes_second(&part.sizes);
    else part.sizes.denoiser.refiner_layers = 1;
    return in_folder(&part, "transformer", write_transformer);
}

static vx_status write_first_index(writing *w, const char *folder)
{
    return vx_demo_json_file(folder, "model_index.json", vx_demo_model_index(false), w->replace);
}

static vx_status write_second_index(writing *w, const char *folder)
{
    return vx_demo_json_file(folder, "model_index.json", vx_demo_model_index(true), w->replace);
}

vx_status vx_demo_model_write(vx_context *context, const char *folder, const vx_demo_model_params *params)
{
    (void)context; // nothing here is computed on a device
    vx_demo_model_params p = { 0 };
    if (params) {
        if (!params->struct_size || params->struct_size > sizeof p)
            return vx_fail(VX_ERR_USAGE, "the demo model's parameters were not initialised with VX_INIT");
        memcpy(&p, params, params->struct_size);
    }
    if (!folder || !*folder) return vx_fail_field(VX_ERR_REQUIRED, "folder", "no folder was named for the demo model");
    writing w = { .root = folder,
                  .random = p.random || p.released,
                  .released = p.released,
                  .replace = p.replace,
                  .seed = p.seed ? p.seed : DEFAULT_SEED };
    if (w.released) vx_demo_sizes_released(&w.sizes);
    else if (w.random) vx_demo_sizes_random(&w.sizes, w.seed);
    else vx_demo_sizes_pretty(&w.sizes);
    VX_TRY(make_folder(folder));
    if (!p.replace) VX_TRY(check_empty(folder));
    VX_TRY(in_folder(&w, "FL2VA", write_first));
    VX_TRY(in_folder(&w, "Ref2VA", write_second));
    VX_TRY(in_folder(&w, "FL2VA", write_first_index));
    return in_folder(&w, "Ref2VA", write_second_index);
}
