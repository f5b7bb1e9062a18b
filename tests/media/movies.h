// Small movies for tests: a recipe, pictures that are easy to tell apart, and the file that comes of them.
#ifndef VX_TESTS_MEDIA_MOVIES_H
#define VX_TESTS_MEDIA_MOVIES_H

#include "testing.h"

#include <math.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "media/media.h"

#include "../base/scratch.h"

typedef void (*painter)(uint8_t *rgb, int width, int height, int64_t frame);

// A small movie like the real ones: 24 fps, stereo at 32 kHz as long as the picture.
static inline vx_movie_params small_movie(int width, int height, int64_t frames)
{
    return (vx_movie_params){ .width = width,
                              .height = height,
                              .fps_num = 24,
                              .fps_den = 1,
                              .frames = frames,
                              .video_codec = "h264",
                              .crf = 18,
                              .pixel_format = "yuv420p",
                              .audio_codec = "aac",
                              .audio_bitrate = 192000,
                              .sample_rate = 32000,
                              .channels = 2,
                              .samples = (frames * 32000 + 12) / 24,
                              .threads = 1 };
}

static inline void paint_bars(uint8_t *rgb, int width, int height, int64_t frame)
{
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++, rgb += 3) {
            rgb[0] = (uint8_t)(4 * x + 8 * frame);
            rgb[1] = (uint8_t)(4 * y);
            rgb[2] = (uint8_t)((x + y + 3 * frame) & 32 ? 200 : 40);
        }
}

// What no encoder can predict. The numbers are a linear congruence (Numerical Recipes' constants).
static inline void paint_noise(uint8_t *rgb, int width, int height, int64_t frame)
{
    uint32_t state = (uint32_t)frame * 2654435761u + 1;
    for (int64_t i = 0; i < 3 * (int64_t)width * height; i++) {
        state = state * 1664525u + 1013904223u;
        rgb[i] = (uint8_t)(state >> 24);
    }
}

static inline float *tone(const vx_movie_params *p)
{
    float *samples = vx_alloc_array((size_t)p->samples * (size_t)p->channels, sizeof *samples);
    for (int64_t i = 0; i < p->samples * p->channels; i++) samples[i] = 0.5f * sinf((float)(i % p->samples) * 0.0864f); // 440 Hz
    return samples;
}

// Gives `chunk` frames at a time.
static inline vx_status write_frames(vx_movie *movie, const vx_movie_params *p, painter paint, int64_t chunk)
{
    size_t frame_bytes = (size_t)p->width * (size_t)p->height * 3;
    uint8_t *rgb = vx_alloc_array((size_t)chunk, frame_bytes);
    vx_status s = vx_ok();
    for (int64_t i = 0; i < p->frames && s.code == VX_OK; i += chunk) {
        int64_t count = p->frames - i < chunk ? p->frames - i : chunk;
        for (int64_t k = 0; k < count; k++) paint(rgb + (size_t)k * frame_bytes, p->width, p->height, i + k);
        s = vx_movie_put_frames(movie, rgb, count);
    }
    vx_free(rgb);
    return s;
}

static inline vx_status write_movie(const char *path, const vx_movie_params *p, painter paint)
{
    vx_movie *movie;
    VX_TRY(vx_movie_create(&movie, path, p));
    vx_status s = vx_ok();
    if (p->audio_codec) {
        float *samples = tone(p);
        s = vx_movie_put_sound(movie, samples);
        vx_free(samples);
    }
    if (s.code == VX_OK) s = write_frames(movie, p, paint, 17);
    if (s.code == VX_OK) s = vx_movie_finish(movie);
    vx_movie_destroy(&movie);
    assert_null(movie);
    return s;
}

#endif
