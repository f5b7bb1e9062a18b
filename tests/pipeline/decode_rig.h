// What the tests of decoding share: a small model, and one job with latents whose picture comes in five windows.
#ifndef VX_TESTS_DECODE_RIG_H
#define VX_TESTS_DECODE_RIG_H

#include "testing.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/scratch.h"
#include "pipeline/internal.h"

enum { SIDE = 32, FRAMES = 90, WINDOWS = 5, WINDOW_FRAMES = 17, FRAME_BYTES = SIDE * SIDE * 3 };

typedef struct rig {
    scratch files, out; // the model; what is made
    vx_context *context;
    vx_model *model;
    vx_job *job;
    // What the callbacks saw since `begin`.
    pthread_t caller;
    bool elsewhere; // one of them ran on another thread
    int64_t steps, cancel_at, refuse_at;
    void (*at_step)(struct rig *r);
    int64_t deliveries, frames;
    bool sound, out_of_order;
    uint8_t *picture; // [FRAMES, FRAME_BYTES]
} rig;

static void on_progress(void *user, const vx_progress *p)
{
    rig *r = user;
    if (!pthread_equal(r->caller, pthread_self())) r->elsewhere = true;
    if (strcmp(p->stage, "decode_video") != 0 || p->step == 0) return;
    __atomic_store_n(&r->steps, p->step, __ATOMIC_RELEASE);
    if (p->step == r->cancel_at) vx_job_cancel(r->job);
    if (r->at_step) r->at_step(r);
}

static bool on_sound(void *user, const float *samples, int64_t count)
{
    rig *r = user;
    (void)samples;
    if (!pthread_equal(r->caller, pthread_self())) r->elsewhere = true;
    r->sound = count > 0 && r->frames == 0;
    return true;
}

static bool on_frames(void *user, int64_t first, int64_t count, const uint8_t *rgb)
{
    rig *r = user;
    if (!pthread_equal(r->caller, pthread_self())) r->elsewhere = true;
    if (first != r->frames || first + count > FRAMES) r->out_of_order = true;
    else memcpy(r->picture + first * FRAME_BYTES, rgb, (size_t)count * FRAME_BYTES);
    r->frames += count;
    return ++r->deliveries != r->refuse_at;
}

// sound: decode it too. It takes longer than the picture, and under a sanitizer very long.
static void begin(rig *r, bool sound)
{
    r->caller = pthread_self();
    r->elsewhere = r->sound = r->out_of_order = false;
    r->steps = r->cancel_at = r->refuse_at = r->deliveries = r->frames = 0;
    r->at_step = NULL;
    r->job->cancelled = 0;
    r->job->have_audio = sound;
}

// A file that fails leaves nothing, and no thread of its own.
static int threads_now(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

#define assert_fails_clean(r, expression, code)              \
    do {                                                     \
        const int threads_ = threads_now();                  \
        assert_code(expression, code);                       \
        assert_int_equal(threads_now(), threads_);           \
        assert_int_equal(scratch_count(&(r)->out, NULL), 0); \
        assert_true((r)->job->timings.mux >= 0);             \
    } while (0)

// In place of the rig's job, up to the latents.
static void open_job(rig *r, int width, int height, int64_t frames)
{
    const vx_request request = { VX_INIT(vx_request),  .prompt = "A lighthouse at dawn.",
                                 .width = width,       .height = height,
                                 .num_frames = frames, .evaluations = 1,
                                 .seed_set = true,     .seed = 7 };
    const vx_job_callbacks callbacks = { VX_INIT(vx_job_callbacks), .progress = on_progress, .frames = on_frames,
                                         .sound = on_sound, .user = r };
    r->caller = pthread_self();
    vx_job_destroy(&r->job);
    assert_ok(vx_job_create(r->model, &request, &callbacks, &r->job));
    assert_ok(vx_job_run(r->job));
}

static int open_rig(void **state)
{
    rig *r = calloc(1, sizeof *r);
    r->files = scratch_create();
    r->out = scratch_create();
    r->picture = calloc(FRAMES, FRAME_BYTES);
    assert_ok(vx_context_create(&r->context, &(vx_context_params){ VX_INIT(vx_context_params), .threads = 2 }));
    char path[600];
    snprintf(path, sizeof path, "%s", scratch_path(&r->files, "model"));
    assert_ok(vx_demo_model_write(r->context, path, &(vx_demo_model_params){ VX_INIT(vx_demo_model_params), .random = true }));
    assert_ok(
        vx_model_open(r->context, &r->model, &(vx_model_params){ VX_INIT(vx_model_params), .path = path, .device = "cpu" }));
    open_job(r, SIDE, SIDE, FRAMES);
    *state = r;
    return 0;
}

static int close_rig(void **state)
{
    rig *r = *state;
    vx_job_destroy(&r->job);
    vx_model_close(&r->model);
    vx_context_destroy(&r->context);
    scratch_destroy(&r->files);
    scratch_destroy(&r->out);
    free(r->picture);
    free(r);
    return 0;
}

#endif
