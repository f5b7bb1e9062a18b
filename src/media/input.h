// Reading what users bring: pictures, videos and sound, by the media module (libjpeg-turbo, libpng, libwebp for pictures, so
// that pixels equal the reference's; FFmpeg's libraries for the rest), through an allow-list of containers and codecs.
//
// Input is untrusted: sizes, seconds and streams are checked before anything is decoded, decoding is bounded in time and
// memory, and what is refused is named. Errors: VX_ERR_INPUT_OPEN (cannot be read), VX_ERR_INPUT_FORMAT (not what it should
// be, damaged, larger than is decoded, or refused by the allow-list), VX_ERR_RANGE (longer than a clip may be, or channels
// that are not taken), VX_ERR_ENCODER (no media module).
#ifndef VX_MEDIA_INPUT_H
#define VX_MEDIA_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum vx_input_kind { VX_INPUT_PICTURE, VX_INPUT_VIDEO, VX_INPUT_SOUND } vx_input_kind;

enum {
    VX_INPUT_MAX_PIXELS = 100 * 1000 * 1000, // of one picture or frame
    VX_INPUT_MAX_SIDE = 32768,
    VX_INPUT_MAX_STREAMS = 16,
    VX_INPUT_MAX_SECONDS = 15, // of a clip, as presented; a hundredth more is let through (public report P10)
};

// From headers and packets, without decoding: what a header says of seconds is not believed. Sizes are upright (EXIF
// orientation, display matrix). A longer clip, a codec or a number of channels that is not taken is refused here already.
typedef struct vx_input_facts {
    vx_input_kind kind;
    int64_t width, height;
    int fps_num, fps_den; // videos: average rate; 0/1 unknown
    double video_s;       // 0 unknown
    bool sound;           // a sound, or a video with a soundtrack
    int sample_rate, channels;
    double sound_s;
    char format[32], codec[32];
} vx_input_facts;
vx_status vx_input_probe(vx_input_facts *out, const char *path);

// A picture as RGB [height, width, 3], upright, alpha dropped, first frame of an animation. Owned: vx_free.
vx_status vx_input_picture(uint8_t **rgb, int64_t *width, int64_t *height, const char *path);

// Frames on the 24 per second grid, in order: each source frame fills `count` consecutive slots (at least 1; frames that fill
// none are not delivered). By time stamps, relative to the first frame; by the constant-rate form where all distances are
// equal (B7). Ends after max_slots slots. A false return of the callback ends it without error.
typedef bool (*vx_input_frame_fn)(void *user, int64_t slot, int64_t count, const uint8_t *rgb, int64_t width, int64_t height);
vx_status vx_input_frames(const char *path, int64_t max_slots, vx_input_frame_fn frame, void *user, int64_t *slots);

// Sound at its own rate, planar [channels, samples] f32, 1 or 2 channels (more are refused), at most max_samples per channel
// (0 = all). Integer formats divide by 2^(bits-1). Owned: vx_free.
vx_status vx_input_sound(float **planar, int64_t *channels, int64_t *samples, int64_t *sample_rate, const char *path,
                         int64_t max_samples);

#endif
