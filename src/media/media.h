// Writing and reading finished movies. The work is done by a module of its own, libvortex-media (FFmpeg's libraries), which
// is loaded at the first call: the rest of Vortex runs without it. Nothing of FFmpeg shows here.
//
// Threads: one caller per movie.
#ifndef VX_MEDIA_MEDIA_H
#define VX_MEDIA_MEDIA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

// ---- writing ----
typedef struct vx_movie_params {
    int width, height;
    int fps_num, fps_den;     // time stamps are exact multiples of den/num
    int64_t frames;           // how many will come; vx_movie_finish refuses another number
    const char *video_codec;  // "h264": the best software encoder that is there; or one by name: "libx264", "mpeg4"
    int crf;                  // 0..51
    const char *pixel_format; // "yuv420p" | "yuv444p"
    const char *audio_codec;  // "aac"; NULL = no sound
    int audio_bitrate;        // bits per second
    int sample_rate, channels;
    int64_t samples;     // per channel
    const char *comment; // metadata, or NULL
    int threads;         // of the video encoder; 0 = 1.5 for each processor. The same number gives the same file
} vx_movie_params;

// Tries the encoders with one frame each and no file: before the hours of work whose result they will pack.
// VX_ERR_ENCODER as vx_movie_create; a warning, if `warning` is not NULL, as vx_movie_warning ("" if none).
vx_status vx_movie_probe(const vx_movie_params *params, char *warning, size_t size);

typedef struct vx_movie vx_movie;

// Opens encoders and container on a file that exists already and is empty (the temporary of a vx_output). Encoders are tried
// with what will come, so that a missing or limited one is found here. VX_ERR_ENCODER names it and the remedy.
vx_status vx_movie_create(vx_movie **out, const char *path, const vx_movie_params *params);
void vx_movie_destroy(vx_movie **movie); // also in the middle: the file is left as it is
// All of the sound, planar [channels, samples] in -1..1, once, before the first frame. Interleaved with the frames as they come.
vx_status vx_movie_put_sound(vx_movie *movie, const float *samples);
// RGB frames in order, [count, height, width, 3].
vx_status vx_movie_put_frames(vx_movie *movie, const uint8_t *rgb, int64_t count);
// Drains, writes the index, closes. Counts what went in against what came out.
vx_status vx_movie_finish(vx_movie *movie);
// "libx264", "aac": what was used, for the result; a warning when it is not what was meant (another software encoder). Borrowed.
const char *vx_movie_video_encoder(const vx_movie *movie);
const char *vx_movie_warning(const vx_movie *movie); // NULL if none
// Anonymous memory that writing such a movie takes, for the plan; within 20 % of what is measured.
uint64_t vx_movie_memory(const vx_movie_params *params);

// ---- reading back ----
typedef struct vx_movie_facts {
    int width, height, fps_num, fps_den;
    int64_t frames;           // counted by decoding the stream's packets, not from the header
    int64_t first_pts_errors; // frames whose time stamp is not index*den/num
    char video_codec[32], pixel_format[32], audio_codec[32];
    char color[64]; // "bt709/bt709/bt709 tv": primaries/transfer/matrix range, as FFmpeg names them
    int sample_rate, channels;
    int64_t samples; // presented samples per channel, edit list applied
    double video_s, audio_s;
    bool moov_first;
    char *comment; // NULL if none; vx_free
} vx_movie_facts;
// decode: count by decoding every frame, not only packets. VX_ERR_INPUT_OPEN, VX_ERR_INPUT_FORMAT.
vx_status vx_movie_inspect(vx_movie_facts *out, const char *path, bool decode);

// Whether the module can be loaded, its versions ("libavcodec 59.37.100, libx264 ...") or the reason why not.
vx_status vx_media_versions(char *text, size_t size);

#endif
