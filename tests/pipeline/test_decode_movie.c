// Frames on their way into an MP4, with an encoder that is slow, fails, or is waited for.
#include "pipeline/decode_rig.h"

#include <dlfcn.h>
#include <libavcodec/avcodec.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"

// Stands before libavcodec's, also for the media module.
typedef struct encoder {
    int64_t given, fail_at; // frames of the picture; -1: when there are no more
    int nap_ms;             // for each frame
    rig *wait_for;          // the second frame stays until this rig has so many tiles
    int64_t tiles;
    bool late; // it stayed in vain
    pthread_t thread;
    bool moved; // another thread gave a frame
    atomic_bool failed;
} encoder;
static encoder fake;

__attribute__((visibility("default"))) int avcodec_send_frame(AVCodecContext *codec, const AVFrame *frame);

static void nap(int milliseconds)
{
    nanosleep(&(struct timespec){ .tv_nsec = milliseconds * 1000000L }, NULL);
}

int avcodec_send_frame(AVCodecContext *codec, const AVFrame *frame)
{
    int (*real)(AVCodecContext *, const AVFrame *);
    *(void **)&real = dlsym(RTLD_NEXT, "avcodec_send_frame");
    // The encoder is tried with one picture first, by an encoder of its own whose only time stamp is 0 and which ends at once.
    if (avcodec_get_type(codec->codec_id) != AVMEDIA_TYPE_VIDEO) return real(codec, frame);
    if (!frame) return fake.fail_at == -1 && fake.given == FRAMES ? AVERROR(ENOMEM) : real(codec, frame);
    if (frame->pts == 0) fake.given = 0;
    if (fake.given && !pthread_equal(fake.thread, pthread_self())) fake.moved = true;
    fake.thread = pthread_self();
    fake.given++;
    if (fake.nap_ms) nap(fake.nap_ms);
    if (fake.wait_for && fake.given == 2) {
        const double until = vx_clock_s() + 20;
        while (__atomic_load_n(&fake.wait_for->steps, __ATOMIC_ACQUIRE) < fake.tiles && vx_clock_s() < until) nap(1);
        fake.late = __atomic_load_n(&fake.wait_for->steps, __ATOMIC_ACQUIRE) < fake.tiles;
    }
    if (fake.given != fake.fail_at) return real(codec, frame);
    atomic_store(&fake.failed, true);
    return AVERROR_EXTERNAL;
}

static vx_status write_movie(rig *r, const char *name)
{
    return vx_job_write_mp4(r->job, scratch_path(&r->out, name),
                            &(vx_media_params){ VX_INIT(vx_media_params), .no_metadata = true, .replace = true });
}

static size_t read_all(rig *r, const char *name, char *text, size_t size)
{
    FILE *f = fopen(scratch_path(&r->out, name), "rb");
    assert_non_null(f);
    size = fread(text, 1, size, f);
    fclose(f);
    remove(r->out.path);
    return size;
}

static void windows_are_decoded_while_frames_are_encoded(void **state)
{
    rig *r = *state;
    begin(r, true);
    fake = (encoder){ .wait_for = r, .tiles = 2 };
    assert_ok(write_movie(r, "a.mp4"));
    assert_false(fake.late);
    assert_int_equal(fake.given, FRAMES);
    assert_false(fake.moved);
    assert_false(pthread_equal(fake.thread, pthread_self()));
    assert_false(r->elsewhere);
    remove(scratch_path(&r->out, "a.mp4"));
}

static void the_file_does_not_depend_on_who_waits_for_whom(void **state)
{
    rig *r = *state;
    enum { ROOM = 8 << 20 };
    char *text[2] = { malloc(ROOM), malloc(ROOM) };
    size_t size[2];
    for (int i = 0; i < 2; i++) {
        begin(r, true);
        fake = (encoder){ .nap_ms = i ? 5 : 0 };
        assert_ok(write_movie(r, "a.mp4"));
        size[i] = read_all(r, "a.mp4", text[i], ROOM);
    }
    assert_true(size[0] > 1000 && size[0] < ROOM);
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(text[0], text[1], size[0]);
    free(text[0]);
    free(text[1]);
}

// However slow the encoder is: the stages' times are the time that passed.
static void the_times_add_up(void **state)
{
    rig *r = *state;
    for (int i = 0; i < 2; i++) {
        begin(r, true);
        fake = (encoder){ .nap_ms = i ? 10 : 0 };
        const vx_timings before = r->job->timings;
        const double began = vx_clock_s();
        assert_ok(write_movie(r, "a.mp4"));
        const double wall = vx_clock_s() - began;
        const vx_timings *t = &r->job->timings;
        const double sum = t->decode_audio - before.decode_audio + t->decode_video - before.decode_video + t->mux - before.mux;
        print_message("  %.3f s of which %.3f in stages, mux %.3f\n", wall, sum, t->mux - before.mux);
        assert_true(sum <= wall &&
                    sum > 0.5 * wall); // the movie is opened, its sound encoded, the request written outside of them
        if (i) assert_true(t->mux - before.mux > 0.3); // 0.9 s of naps, less what was decoded meanwhile
    }
    remove(scratch_path(&r->out, "a.mp4"));
}

static void an_encoder_that_fails_ends_the_decode(void **state)
{
    rig *r = *state;
    static const int64_t places[] = { 1 /* at the trial */, 2, 17, 18, 40, FRAMES - 1, FRAMES, -1 };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        begin(r, true);
        fake = (encoder){ .fail_at = places[i] };
        const vx_code code = places[i] == -1 ? VX_ERR_MEMORY : VX_ERR_ENCODER;
        const int threads = threads_now();
        const vx_status s = write_movie(r, "a.mp4");
        print_message("  frame %lld: %s\n", (long long)places[i], s.message);
        assert_code(s, code);
        assert_int_equal(threads_now(), threads);
        assert_int_equal(scratch_count(&r->out, NULL), 0);
        // Two pieces of nine frames may be on their way: the decoder is at most two windows further.
        if (places[i] > 1) assert_true(r->steps <= places[i] / WINDOW_FRAMES + 3);
    }
}

static void until_it_failed(rig *r)
{
    const double until = vx_clock_s() + 20;
    if (r->steps != 3) return;
    while (!atomic_load(&fake.failed) && vx_clock_s() < until) nap(1);
    nap(50); // on its way to the worker
}

// Two windows of two tiles: the decoder does not finish the second window to hear of what happened to the first.
static void a_window_is_not_finished_for_an_encoder_that_failed(void **state)
{
    rig *r = *state;
    open_job(r, 384, 96, 39);
    begin(r, true);
    fake = (encoder){ .fail_at = 2, .wait_for = r, .tiles = 3 };
    r->at_step = until_it_failed;
    assert_fails_clean(r, write_movie(r, "a.mp4"), VX_ERR_ENCODER);
    assert_true(atomic_load(&fake.failed));
    assert_int_equal(r->steps, 3);
    begin(r, true);
    fake = (encoder){ 0 };
    assert_ok(write_movie(r, "a.mp4"));
    assert_int_equal(r->steps, 4);
    remove(scratch_path(&r->out, "a.mp4"));
    open_job(r, SIDE, SIDE, FRAMES);
}

static void cancelled_while_frames_are_encoded(void **state)
{
    rig *r = *state;
    for (int64_t step = 1; step <= WINDOWS; step++) {
        begin(r, true);
        fake = (encoder){ .nap_ms = 2 };
        r->cancel_at = step;
        assert_fails_clean(r, write_movie(r, "a.mp4"), VX_ERR_CANCELLED);
        assert_int_equal(r->steps, step);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_are_decoded_while_frames_are_encoded),
        cmocka_unit_test(the_file_does_not_depend_on_who_waits_for_whom),
        cmocka_unit_test(the_times_add_up),
        cmocka_unit_test(an_encoder_that_fails_ends_the_decode),
        cmocka_unit_test(a_window_is_not_finished_for_an_encoder_that_failed),
        cmocka_unit_test(cancelled_while_frames_are_encoded),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
