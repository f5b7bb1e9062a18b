// The core's side of the media module: finds and loads it at the first call, checks what was asked, and forwards.
//
// Where it is looked for, first hit wins:
//   $VORTEX_MEDIA                      a file; nothing else is tried
//   F, F/vortex, F/../lib, F/../lib/vortex, F/../<libdir>/vortex
//                                      for F = the folder of the running program, then of the library holding this code
//   libvortex-media.so                 wherever the dynamic linker looks
#include "media/media.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "media/module.h"

static const char remedy[] = "install FFmpeg's libraries (Debian: libavformat59 libswscale6), or build Vortex "
                             "with VORTEX_MEDIA=ON; the environment variable VORTEX_MEDIA names the module";

// The loaded module is state of the process, as dlopen itself is. A failure is not kept: the next call tries again.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const vx_media_module *loaded;

static vx_status check_module(const vx_media_module **out, void *library, const char *path)
{
    vx_media_module_fn entry;
    void *symbol = dlsym(library, VX_MEDIA_MODULE_SYMBOL);
    if (!symbol) return vx_fail_remedy(VX_ERR_ENCODER, remedy, "%s: not a media module of Vortex", path);
    memcpy(&entry, &symbol, sizeof entry); // ISO C has no conversion from void * to a function
    const vx_media_module *m = entry();
    if (m->version != VX_MEDIA_MODULE_VERSION || m->module_bytes != sizeof *m || m->status_bytes != sizeof(vx_status) ||
        m->params_bytes != sizeof(vx_movie_params) || m->facts_bytes != sizeof(vx_movie_facts) ||
        m->input_bytes != sizeof(vx_input_facts))
        return vx_fail_remedy(VX_ERR_ENCODER, "install the media module that was built together with this program",
                              "%s: a media module of another build (interface %u, expected %u)", path, (unsigned)m->version,
                              (unsigned)VX_MEDIA_MODULE_VERSION);
    *out = m;
    return vx_ok();
}

static vx_status open_module(const vx_media_module **out, const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        return vx_fail_remedy(VX_ERR_ENCODER, remedy, "the media module cannot be loaded: %s", why ? why : path);
    }
    vx_status s = check_module(out, library, path);
    if (s.code != VX_OK) dlclose(library);
    return s;
}

// Path without its last part; false if it has only one.
static bool folder_of(char *out, size_t size, const char *path)
{
    const char *name = vx_path_name(path);
    if (name == path) return false;
    int n = snprintf(out, size, "%.*s", (int)(name - path - 1), path);
    return n >= 0 && (size_t)n < size;
}

// The folders to start from; returns how many.
static int anchors(char out[2][1024])
{
    int count = 0;
    char self[1024];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n > 0) {
        self[n] = 0;
        count += folder_of(out[count], sizeof out[count], self);
    }
    Dl_info here;
    if (dladdr(&lock, &here) && here.dli_fname) count += folder_of(out[count], sizeof out[count], here.dli_fname);
    return count;
}

static vx_status search_module(const vx_media_module **out)
{
    static const char *const places[] = { "", "/vortex", "/../lib", "/../lib/vortex", ("/../" VX_LIBDIR "/vortex") };
    const char *named = secure_getenv("VORTEX_MEDIA");
    if (named && named[0]) return open_module(out, named);
    char folder[2][1024];
    int folders = anchors(folder);
    for (int f = 0; f < folders; f++)
        for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
            char path[1200];
            int n = snprintf(path, sizeof path, "%s%s/%s", folder[f], places[p], VX_MEDIA_MODULE_FILE);
            // One that is there and does not load is the answer: its reason must not be hidden by the search going on.
            if (n > 0 && (size_t)n < sizeof path && vx_file_exists(path)) return open_module(out, path);
        }
    return open_module(out, VX_MEDIA_MODULE_FILE);
}

vx_status vx_media_module_load(const vx_media_module **out)
{
    vx_status s = vx_ok();
    pthread_mutex_lock(&lock);
    if (!loaded) s = search_module(&loaded);
    *out = loaded;
    pthread_mutex_unlock(&lock);
    return s;
}

// For functions on a movie, which exists only because the module was loaded.
static const vx_media_module *module_in_use(void)
{
    const vx_media_module *m;
    (void)vx_media_module_load(&m);
    return m;
}

// ---- what was asked ----

// H.264 level 6.2 ends at 139,264 macroblocks; both limits lie far above the model's largest canvas.
enum { MAX_SIDE = 8192, MAX_CHANNELS = 2 };

static vx_status check_picture(const vx_movie_params *p)
{
    if (p->width < 2 || p->height < 2 || p->width > MAX_SIDE || p->height > MAX_SIDE || p->width % 2 || p->height % 2)
        return vx_fail(VX_ERR_RANGE, "a picture of %dx%d cannot be encoded; both sides must be even, 2..%d", p->width, p->height,
                       MAX_SIDE);
    if (p->fps_num < 1 || p->fps_den < 1) return vx_fail(VX_ERR_RANGE, "frame rate %d/%d", p->fps_num, p->fps_den);
    if (p->frames < 1 || p->frames > INT32_MAX) return vx_fail(VX_ERR_RANGE, "%lld frames", (long long)p->frames);
    if (p->crf < 0 || p->crf > 51) return vx_fail_field(VX_ERR_RANGE, "crf", "crf %d is not within 0..51", p->crf);
    if (p->threads < 0 || p->threads > 1024) return vx_fail(VX_ERR_RANGE, "%d threads", p->threads);
    if (!p->video_codec) return vx_fail(VX_ERR_REQUIRED, "no video codec was named");
    if (!p->pixel_format || (strcmp(p->pixel_format, "yuv420p") != 0 && strcmp(p->pixel_format, "yuv444p") != 0))
        return vx_fail_field(VX_ERR_VALUE, "pixel_format", "pixel format '%.40s' is none of yuv420p, yuv444p",
                             p->pixel_format ? p->pixel_format : "");
    return vx_ok();
}

static vx_status check_sound(const vx_movie_params *p)
{
    if (!p->audio_codec) return vx_ok();
    if (strcmp(p->audio_codec, "aac") != 0)
        return vx_fail_field(VX_ERR_VALUE, "audio_codec", "audio codec '%.40s' is not known; aac is", p->audio_codec);
    if (p->channels < 1 || p->channels > MAX_CHANNELS) return vx_fail(VX_ERR_RANGE, "sound of %d channels", p->channels);
    if (p->sample_rate < 8000 || p->sample_rate > 96000) return vx_fail(VX_ERR_RANGE, "sound at %d Hz", p->sample_rate);
    if (p->samples < 1 || p->samples > INT32_MAX) return vx_fail(VX_ERR_RANGE, "%lld samples", (long long)p->samples);
    if (p->audio_bitrate < 1000) return vx_fail(VX_ERR_RANGE, "sound at %d bits per second", p->audio_bitrate);
    return vx_ok();
}

// ---- the contract, forwarded ----

// What the module is handed: checked, and with threads resolved.
static vx_status prepare(const vx_media_module **m, vx_movie_params *resolved, const vx_movie_params *params)
{
    VX_TRY(check_picture(params));
    VX_TRY(check_sound(params));
    VX_TRY(vx_media_module_load(m));
    *resolved = *params;
    resolved->threads = vx_movie_threads(params);
    return vx_ok();
}

vx_status vx_movie_probe(const vx_movie_params *params, char *warning, size_t size)
{
    const vx_media_module *m;
    vx_movie_params resolved;
    if (warning && size) warning[0] = 0;
    VX_TRY(prepare(&m, &resolved, params));
    return m->movie_probe(&resolved, warning, size);
}

vx_status vx_movie_create(vx_movie **out, const char *path, const vx_movie_params *params)
{
    const vx_media_module *m;
    vx_movie_params resolved;
    *out = NULL;
    VX_TRY(prepare(&m, &resolved, params));
    return m->movie_create(out, path, &resolved);
}

void vx_movie_destroy(vx_movie **movie)
{
    if (movie && *movie) module_in_use()->movie_destroy(movie);
}

vx_status vx_movie_put_sound(vx_movie *movie, const float *samples)
{
    return module_in_use()->movie_put_sound(movie, samples);
}

vx_status vx_movie_put_frames(vx_movie *movie, const uint8_t *rgb, int64_t count)
{
    return module_in_use()->movie_put_frames(movie, rgb, count);
}

vx_status vx_movie_finish(vx_movie *movie)
{
    return module_in_use()->movie_finish(movie);
}

const char *vx_movie_video_encoder(const vx_movie *movie)
{
    return module_in_use()->movie_video_encoder(movie);
}

const char *vx_movie_warning(const vx_movie *movie)
{
    return module_in_use()->movie_warning(movie);
}

vx_status vx_movie_inspect(vx_movie_facts *out, const char *path, bool decode)
{
    const vx_media_module *m;
    *out = (vx_movie_facts){ 0 };
    VX_TRY(vx_media_module_load(&m));
    return m->movie_inspect(out, path, decode);
}

vx_status vx_media_versions(char *text, size_t size)
{
    const vx_media_module *m;
    if (size) text[0] = 0;
    VX_TRY(vx_media_module_load(&m));
    return m->versions(text, size);
}
