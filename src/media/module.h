// What the media module gives the core: one symbol, a table of functions that mirror media.h and input.h. Both sides are built from
// this header; the numbers in front let the core refuse a module of another build before calling into it.
#ifndef VX_MEDIA_MODULE_H
#define VX_MEDIA_MODULE_H

#include "media/input.h"
#include "media/media.h"

// Counts changes of anything below, of the structs of media.h and input.h and of vx_status.
enum { VX_MEDIA_MODULE_VERSION = 2 };
#define VX_MEDIA_MODULE_SYMBOL "vortex_media_module"
#define VX_MEDIA_MODULE_FILE   "libvortex-media.so"

typedef struct vx_media_module {
    uint32_t version;
    uint32_t module_bytes, status_bytes, params_bytes, facts_bytes, input_bytes; // sizeof, as the module was compiled
    // params are checked and complete: threads is never 0.
    vx_status (*movie_create)(vx_movie **out, const char *path, const vx_movie_params *params);
    vx_status (*movie_probe)(const vx_movie_params *params, char *warning, size_t size);
    void (*movie_destroy)(vx_movie **movie);
    vx_status (*movie_put_sound)(vx_movie *movie, const float *samples);
    vx_status (*movie_put_frames)(vx_movie *movie, const uint8_t *rgb, int64_t count);
    vx_status (*movie_finish)(vx_movie *movie);
    const char *(*movie_video_encoder)(const vx_movie *movie);
    const char *(*movie_warning)(const vx_movie *movie);
    vx_status (*movie_inspect)(vx_movie_facts *out, const char *path, bool decode);
    vx_status (*versions)(char *text, size_t size);
    vx_status (*input_probe)(vx_input_facts *out, const char *path);
    vx_status (*input_picture)(uint8_t **rgb, int64_t *width, int64_t *height, const char *path);
    vx_status (*input_frames)(const char *path, int64_t max_slots, vx_input_frame_fn frame, void *user, int64_t *slots);
    vx_status (*input_sound)(float **planar, int64_t *channels, int64_t *samples, int64_t *sample_rate, const char *path,
                             int64_t max_samples);
} vx_media_module;

// The one symbol. The table lives as long as the module, which is never unloaded.
typedef const vx_media_module *(*vx_media_module_fn)(void);

// Within the core: finds and loads the module at the first call (media.c).
vx_status vx_media_module_load(const vx_media_module **out);
// Within the core: how many threads the video encoder really gets (memory.c).
int vx_movie_threads(const vx_movie_params *params);

#endif
