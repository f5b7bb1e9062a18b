// The module's one symbol.
#include <stdio.h>
#include <string.h>

#include <libavutil/mem.h>

#include "../input/internal.h"
#include "internal.h"

// A lying file may ask for tables of any size; no allocation that Vortex needs from FFmpeg comes near this.
enum { MAX_ALLOCATION = 512 << 20 };

static const char *video_encoder(const vx_movie *movie)
{
    return movie->video_encoder;
}

static const char *warning(const vx_movie *movie)
{
    return movie->warning[0] ? movie->warning : NULL;
}

static vx_status versions(char *text, size_t size)
{
    static const char *const names[] = { "libx264", "libopenh264", "mpeg4", "aac" };
    const struct {
        const char *name;
        unsigned version;
    } libraries[] = { { "libavcodec", avcodec_version() },
                      { "libavformat", avformat_version() },
                      { "libswscale", swscale_version() } };
    size_t used = 0;
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0] && used < size; i++) {
        unsigned v = libraries[i].version;
        used += (size_t)snprintf(text + used, size - used, "%s%s %u.%u.%u", i ? ", " : "", libraries[i].name, AV_VERSION_MAJOR(v),
                                 AV_VERSION_MINOR(v), AV_VERSION_MICRO(v));
    }
    const char *before = "; encoders ";
    for (size_t i = 0; i < sizeof names / sizeof names[0] && used < size; i++) {
        if (!avcodec_find_encoder_by_name(names[i])) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s", before, names[i]);
        before = " ";
    }
    return vx_ok();
}

__attribute__((visibility("default"))) const vx_media_module *vortex_media_module(void);

const vx_media_module *vortex_media_module(void)
{
    static const vx_media_module table = {
        .version = VX_MEDIA_MODULE_VERSION,
        .module_bytes = sizeof(vx_media_module),
        .status_bytes = sizeof(vx_status),
        .params_bytes = sizeof(vx_movie_params),
        .facts_bytes = sizeof(vx_movie_facts),
        .input_bytes = sizeof(vx_input_facts),
        .movie_create = vx_writer_create,
        .movie_probe = vx_writer_probe,
        .movie_destroy = vx_writer_destroy,
        .movie_put_sound = vx_writer_put_sound,
        .movie_put_frames = vx_writer_put_frames,
        .movie_finish = vx_writer_finish,
        .movie_video_encoder = video_encoder,
        .movie_warning = warning,
        .movie_inspect = vx_reader_inspect,
        .versions = versions,
        .input_probe = vx_entry_probe,
        .input_picture = vx_entry_picture,
        .input_frames = vx_entry_frames,
        .input_sound = vx_entry_sound,
    };
    vx_av_log_capture();
    av_max_alloc(MAX_ALLOCATION);
    return &table;
}
