// Tiles along an axis and frames of a latent clip, against the tables of the video VAE specification (8.1, 10, 12).
#include "testing.h"

#include "vae/video_decoder.h"

enum { MOST = 32 };

static void released_sizes_have_the_tiles_of_the_table(void **state)
{
    (void)state;
    static const struct {
        int64_t length;
        int count;
        int64_t start[14], overlap[13];
    } rows[] = {
        { 96, 1, { 0 }, { 0 } },
        { 256, 1, { 0 }, { 0 } },
        { 480, 3, { 0, 112, 224 }, { 144, 144 } },
        { 544, 3, { 0, 144, 288 }, { 112, 112 } },
        { 576, 3, { 0, 160, 320 }, { 96, 96 } },
        { 704, 4, { 0, 144, 288, 448 }, { 112, 112, 96 } },
        { 768, 4, { 0, 160, 336, 512 }, { 96, 80, 80 } },
        { 832, 4, { 0, 192, 384, 576 }, { 64, 64, 64 } },
        { 864, 5, { 0, 144, 288, 448, 608 }, { 112, 112, 96, 96 } },
        { 960, 5, { 0, 176, 352, 528, 704 }, { 80, 80, 80, 80 } },
        { 1024, 5, { 0, 192, 384, 576, 768 }, { 64, 64, 64, 64 } },
        { 1152, 6, { 0, 176, 352, 528, 704, 896 }, { 80, 80, 80, 80, 64 } },
        { 1280, 7, { 0, 160, 320, 496, 672, 848, 1024 }, { 96, 96, 80, 80, 80, 80 } },
        { 1344, 7, { 0, 176, 352, 528, 704, 896, 1088 }, { 80, 80, 80, 80, 64, 64 } },
        { 1536, 8, { 0, 176, 352, 528, 704, 896, 1088, 1280 }, { 80, 80, 80, 80, 64, 64, 64 } },
        { 2048, 11, { 0, 176, 352, 528, 704, 880, 1056, 1232, 1408, 1600, 1792 }, { 80, 80, 80, 80, 80, 80, 80, 80, 64, 64 } },
        { 2688,
          14,
          { 0, 176, 352, 528, 704, 896, 1088, 1280, 1472, 1664, 1856, 2048, 2240, 2432 },
          { 80, 80, 80, 80, 64, 64, 64, 64, 64, 64, 64, 64, 64 } },
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        int64_t start[MOST], overlap[MOST];
        assert_int_equal(vx_tile_plan(rows[r].length, 256, 64, MOST, start, overlap), rows[r].count);
        for (int k = 0; k < rows[r].count; k++) assert_int_equal(start[k], rows[r].start[k]);
        for (int k = 0; k + 1 < rows[r].count; k++) assert_int_equal(overlap[k], rows[r].overlap[k]);
    }
}

static void tiles_cover_every_length_exactly(void **state)
{
    (void)state;
    for (int64_t length = 272; length <= 4096; length += 16) {
        int64_t start[MOST], overlap[MOST];
        int n = vx_tile_plan(length, 256, 64, MOST, start, overlap);
        assert_true(n >= 2);
        assert_int_equal(start[0], 0);
        assert_int_equal(start[n - 1] + 256, length);
        for (int k = 0; k + 1 < n; k++) {
            assert_true(overlap[k] >= 64 && overlap[k] % 16 == 0);
            assert_int_equal(start[k + 1], start[k] + 256 - overlap[k]);
        }
        assert_true((n - 1) * 256 - (n - 2) * 64 < length); // one tile fewer would not reach
    }
}

static void a_plan_that_does_not_fit_is_none(void **state)
{
    (void)state;
    int64_t start[4], overlap[4];
    assert_int_equal(vx_tile_plan(864, 256, 64, 4, start, overlap), 0);
    assert_int_equal(vx_tile_plan(0, 256, 64, 4, start, overlap), 0);
    assert_int_equal(vx_tile_plan(864, 256, 256, 4, start, overlap), 0);
    assert_int_equal(vx_tile_plan(INT64_MAX / 2, 256, 64, 4, start, overlap), 0);
}

// The procedure of section 10, step by step: pad, windows of 17 + 5 frames, cut.
static int64_t frames_by_procedure(int64_t latents)
{
    int64_t pad = (5 - (latents + 3) % 5) % 5, windows = (latents + 3 + pad) / 5 - 1, frames = windows * 17 + 5;
    for (int64_t k = 0; k < pad; k++) frames -= (latents + k) % 5 == 0 ? 1 : 4;
    return frames;
}

static void clips_of_3_to_120_latents_have_the_frames_of_the_procedure(void **state)
{
    (void)state;
    for (int64_t t = 3; t <= 120; t++) assert_int_equal(vx_decoded_frames(t), frames_by_procedure(t));
}

static void known_clips_have_their_frames(void **state)
{
    (void)state;
    static const int64_t rows[][2] = { { 0, 0 },  { 1, 0 },   { 2, 0 },    { 3, 9 },    { 4, 13 },    { 5, 17 },   { 6, 18 },
                                       { 7, 22 }, { 12, 39 }, { 37, 124 }, { 72, 243 }, { 107, 362 }, { 102, 345 } };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) assert_int_equal(vx_decoded_frames(rows[r][0]), rows[r][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(released_sizes_have_the_tiles_of_the_table),
        cmocka_unit_test(tiles_cover_every_length_exactly),
        cmocka_unit_test(a_plan_that_does_not_fit_is_none),
        cmocka_unit_test(clips_of_3_to_120_latents_have_the_frames_of_the_procedure),
        cmocka_unit_test(known_clips_have_their_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
