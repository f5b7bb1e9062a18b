// Shared inside the media module: a movie under construction, its two tracks, and errors that come from FFmpeg.
#ifndef VX_MEDIA_FFMPEG_INTERNAL_H
#define VX_MEDIA_FFMPEG_INTERNAL_H

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>

#include "base/status.h"
#include "media/media.h"
#include "media/module.h"

// One encoded stream on its way into the container.
typedef struct vx_track {
    AVCodecContext *codec;
    AVStream *stream;
    AVFrame *frame;  // what the encoder is fed from, reused
    int64_t pushed;  // frames given to the encoder
    int64_t packets; // packets taken from it
} vx_track;

struct vx_movie {
    int width, height, channels;
    int64_t frames, samples;
    char *path;
    AVFormatContext *format;
    AVPacket *packet;
    struct SwsContext *scaler;
    AVFrame *rgb; // what the scaler reads
    vx_track video, audio;
    bool has_audio, sound_given, finished;
    bool broken; // an error was reported: nothing more is written
    char video_encoder[32];
    char warning[320];
};

// ---- log.c: FFmpeg's own words ----
// FFmpeg says what went wrong only in its log. The last line of level error or worse that this thread met is kept, nothing
// is ever printed.
void vx_av_log_capture(void);     // once, when the module is loaded
void vx_av_log_forget(void);      // before a call whose words are of interest
const char *vx_av_log_last(void); // "" if none; borrowed until the next line

// "message: what FFmpeg said". Codes of the operating system in `error` win over `code`: no space, no memory.
vx_status vx_av_fail(vx_code code, int error, const char *format, ...) VX_PRINTF(3, 4);

// ---- video.c, audio.c ----
// Picks an encoder (trying it with one frame) and leaves it open in movie->video; sets video_encoder and warning.
vx_status vx_video_open(vx_movie *movie, const vx_movie_params *params);
vx_status vx_video_scaler(vx_movie *movie);
// One RGB picture into movie->video.frame.
vx_status vx_video_convert(vx_movie *movie, const uint8_t *rgb);
vx_status vx_audio_open(vx_movie *movie, const vx_movie_params *params);
// Samples [first, first + movie->audio.frame->nb_samples) of a planar sound into movie->audio.frame.
vx_status vx_audio_fill(vx_movie *movie, const float *samples, int64_t first, int count);

// ---- writer.c, reader.c: the table's entries ----
vx_status vx_writer_create(vx_movie **out, const char *path, const vx_movie_params *params);
vx_status vx_writer_probe(const vx_movie_params *params, char *warning, size_t size);
void vx_writer_destroy(vx_movie **movie);
vx_status vx_writer_put_sound(vx_movie *movie, const float *samples);
vx_status vx_writer_put_frames(vx_movie *movie, const uint8_t *rgb, int64_t count);
vx_status vx_writer_finish(vx_movie *movie);
vx_status vx_reader_inspect(vx_movie_facts *out, const char *path, bool decode);

// One frame into an encoder and all packets out: how many. The encoder takes no more after that.
vx_status vx_av_encode_one(AVCodecContext *codec, AVFrame *frame, AVPacket *packet, int *packets);

// A local file as FFmpeg's address: "file:" keeps a ':' in the name from being read as a protocol. vx_free.
char *vx_av_url(const char *path);

#endif
