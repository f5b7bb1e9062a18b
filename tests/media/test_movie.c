#include "testing.h"

#include "movies.h"

static void expect_whole(const char *path, const vx_movie_params *p, bool decode)
{
    vx_movie_facts f;
    assert_ok(vx_movie_inspect(&f, path, decode));
    assert_int_equal(f.width, p->width);
    assert_int_equal(f.height, p->height);
    assert_int_equal(f.frames, p->frames);
    assert_int_equal(f.first_pts_errors, 0);
    assert_int_equal((int64_t)f.fps_num * p->fps_den, (int64_t)f.fps_den * p->fps_num);
    assert_string_equal(f.video_codec, "h264");
    assert_string_equal(f.pixel_format, p->pixel_format);
    assert_string_equal(f.color, "bt709/bt709/bt709 tv");
    assert_true(f.moov_first);
    assert_int_equal(f.samples, p->audio_codec ? p->samples : 0);
    if (p->audio_codec) {
        assert_string_equal(f.audio_codec, "aac");
        assert_int_equal(f.sample_rate, p->sample_rate);
        assert_int_equal(f.channels, p->channels);
    }
    vx_free(f.comment);
}

// Public report P04: all frames of every length must be there, whatever the sound's length. Not trimmed, the sound is
// 8.33 ms longer, equal or shorter by turns (section 2 of the public reports).
static void every_length_keeps_all_its_frames(void **state)
{
    (void)state;
    static const int64_t frames[] = { 22, 39, 56, 124, 175, 362 };
    scratch s = scratch_create();
    for (size_t i = 0; i < sizeof frames / sizeof frames[0]; i++)
        for (int policy = 0; policy < 2; policy++) {
            vx_movie_params p = small_movie(64, 64, frames[i]);
            if (policy) p.samples = (frames[i] * 40 + 12) / 24 * 800; // the model's own length
            const char *path = scratch_path(&s, "a.mp4");
            assert_ok(write_movie(path, &p, paint_bars));
            expect_whole(path, &p, false);
            expect_whole(path, &p, true);
        }
    scratch_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_keeps_all_its_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
