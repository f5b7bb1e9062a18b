// What the tests of the VAEs share: devices and planned arenas, frames gathered from the callback, comparisons.
#ifndef VX_TEST_VAE_RIG_H
#define VX_TEST_VAE_RIG_H

#include "testing.h"

#include <math.h>

#include "vae/audio_decoder.h"
#include "vae/video_decoder.h"
#include "weights/safetensors.h"

static inline vx_device *cpu_device(int threads)
{
    vx_device *dev = NULL;
    assert_ok(vx_device_cpu_create(&dev, &(vx_cpu_params){ .threads = threads }));
    return dev;
}

// Frames gathered on the heap.
typedef struct film {
    vx_device *dev;
    float *data;
    int64_t count, height, width, capacity, calls, fail_at;
} film;

static inline vx_status film_take(void *user, int64_t first, vx_tensor frames)
{
    film *f = user;
    if (f->fail_at && ++f->calls == f->fail_at) return vx_fail(VX_ERR_STORAGE_FULL, "the disk is full");
    assert_int_equal(first, f->count);
    assert_int_equal(frames.rank, 4);
    assert_int_equal(frames.shape[3], 3);
    f->height = frames.shape[1];
    f->width = frames.shape[2];
    f->count += frames.shape[0];
    size_t frame = (size_t)(f->height * f->width * 3);
    f->data = realloc(f->data, (size_t)f->count * frame * sizeof(float));
    assert_non_null(f->data);
    return vx_download(f->dev, f->data + (size_t)first * frame, frames);
}

static inline const float *film_frame(const film *f, int64_t i)
{
    assert_true(i < f->count);
    return f->data + i * f->height * f->width * 3;
}

// Bytes that a decode of this shape takes, by the code that takes them.
static inline size_t video_plan(const vx_video_decoder *d, const vx_device *like, vx_tensor latent, bool denormalised,
                                size_t *scratch)
{
    vx_device *plan = NULL;
    vx_arena *arena = NULL;
    assert_ok(vx_device_plan_create(&plan, like));
    assert_ok(vx_arena_create(plan, &arena, 0));
    latent.data = NULL;
    assert_ok(vx_video_decoder_run(d, plan, arena, &(vx_video_decode){ .latent = latent, .denormalised = denormalised }));
    size_t high = vx_arena_high(arena);
    if (scratch) *scratch = vx_device_plan_counts(plan).scratch;
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    return high;
}

static inline vx_status video_run(const vx_video_decoder *d, vx_device *dev, film *f, vx_tensor latent, bool denormalised)
{
    vx_arena *arena = NULL;
    size_t scratch, bytes = video_plan(d, dev, latent, denormalised, &scratch);
    assert_ok(vx_device_reserve(dev, scratch));
    assert_ok(vx_arena_create(dev, &arena, bytes));
    f->dev = dev;
    vx_status s = vx_video_decoder_run(
        d, dev, arena, &(vx_video_decode){ .latent = latent, .denormalised = denormalised, .frames = film_take, .user = f });
    assert_int_equal(vx_arena_mark(arena), 0);
    vx_arena_destroy(&arena);
    return s;
}

static inline double relative_error(const float *got, const float *want, int64_t count)
{
    double difference = 0.0, norm = 0.0;
    for (int64_t i = 0; i < count; i++) {
        double d = (double)got[i] - (double)want[i];
        difference += d * d;
        norm += (double)want[i] * (double)want[i];
    }
    return sqrt(difference / norm);
}

#define assert_close(got, want, count, limit)                                                      \
    do {                                                                                           \
        double error_ = relative_error((got), (want), (count));                                    \
        if (!(error_ <= (limit))) fail_msg("relative L2 %g, at most %g", error_, (double)(limit)); \
    } while (0)

#endif
