// Frames on their way out: to callbacks on the caller's thread, to files on a thread of their own; and every way in which a
// decode ends early.
#include "pipeline/decode_rig.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "weights/safetensors.h"

static const char *file(rig *r)
{
    return scratch_path(&r->out, "frames.safetensors");
}

static void callbacks_get_whole_windows_on_the_callers_thread(void **state)
{
    rig *r = *state;
    begin(r, true);
    assert_ok(vx_job_decode(r->job));
    assert_int_equal(r->frames, FRAMES);
    assert_int_equal(r->deliveries, WINDOWS + 1); // and the tail of the last
    assert_int_equal(r->steps, WINDOWS);
    assert_true(r->sound);
    assert_false(r->out_of_order);
    assert_false(r->elsewhere);
}

static void a_file_gets_the_frames_that_callbacks_get(void **state)
{
    rig *r = *state;
    begin(r, false);
    assert_ok(vx_job_decode(r->job));
    const int threads = threads_now();
    assert_ok(vx_job_save_tensors(r->job, file(r), false));
    assert_int_equal(threads_now(), threads);
    assert_false(r->elsewhere); // progress
    vx_safetensors *st;
    assert_ok(vx_safetensors_open(&st, file(r), NULL));
    const vx_safetensors_entry *e = vx_safetensors_find(st, "frames");
    assert_non_null(e);
    assert_int_equal(e->bytes, (size_t)FRAMES * FRAME_BYTES * sizeof(float));
    const float *x = e->data;
    for (int64_t i = 0; i < FRAMES * FRAME_BYTES; i++)
        if (r->picture[i] != (uint8_t)nearbyintf(255.0f * x[i])) fail_msg("byte %lld of the frames differs", (long long)i);
    vx_safetensors_close(&st);
    remove(file(r));
}

static void a_receiver_that_says_stop_is_asked_no_more(void **state)
{
    rig *r = *state;
    begin(r, false);
    r->refuse_at = 2;
    vx_status s = vx_job_decode(r->job);
    assert_code(s, VX_ERR_CANCELLED);
    assert_mentions(s, "cancelled by the receiver of the frames");
    assert_int_equal(r->deliveries, 2);
    assert_int_equal(r->steps, 2);
}

static void cancelled_in_the_middle(void **state)
{
    rig *r = *state;
    for (int64_t step = 1; step <= 3; step++) {
        begin(r, false);
        r->cancel_at = step;
        assert_fails_clean(r, vx_job_save_tensors(r->job, file(r), false), VX_ERR_CANCELLED);
        assert_int_equal(r->steps, step);
    }
}

// The worker fails at its first piece. Two more pieces have room, so the decode ends in the window after it, and says what the
// file said.
static void a_full_disk_ends_the_decode_soon(void **state)
{
    rig *r = *state;
    struct rlimit before, limit;
    begin(r, false);
    assert_ok(vx_job_save_tensors(r->job, file(r), false));
    struct stat whole;
    assert_int_equal(stat(file(r), &whole), 0);
    remove(file(r));
    const rlim_t frames = (rlim_t)FRAMES * FRAME_BYTES * sizeof(float);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)whole.st_size - frames + FRAME_BYTES;
    begin(r, false);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    vx_status s = vx_job_save_tensors(r->job, file(r), false);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_code(s, VX_ERR_STORAGE_FULL);
    assert_mentions(s, "decode_video: ");
    assert_null(strstr(s.message, "window")); // of the decoder: it is not its fault
    assert_true(r->steps >= 1 && r->steps <= 2);
    assert_int_equal(scratch_count(&r->out, NULL), 0);
    begin(r, false);
    assert_ok(vx_job_save_tensors(r->job, file(r), false)); // the job is as good as before
    remove(file(r));
}

static void allocations_that_fail_are_errors(void **state)
{
    rig *r = *state;
    for (int k = 1, hit = 1; hit; k += 1 + k / 4) {
        begin(r, false);
        const int threads = threads_now();
        vx_fault_arm(k, false);
        vx_status s = vx_job_save_tensors(r->job, file(r), true);
        hit = vx_fault_disarm();
        assert_code(s, hit ? VX_ERR_MEMORY : VX_OK);
        assert_int_equal(threads_now(), threads);
        if (hit) assert_int_equal(scratch_count(&r->out, NULL), 0);
    }
    remove(file(r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callbacks_get_whole_windows_on_the_callers_thread),
        cmocka_unit_test(a_file_gets_the_frames_that_callbacks_get),
        cmocka_unit_test(a_receiver_that_says_stop_is_asked_no_more),
        cmocka_unit_test(cancelled_in_the_middle),
        cmocka_unit_test(a_full_disk_ends_the_decode_soon),
        cmocka_unit_test(allocations_that_fail_are_errors),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
