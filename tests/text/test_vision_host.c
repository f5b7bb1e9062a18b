// What the host prepares for the vision tower: patches, shares of positions, and the size that pictures are resized to.
#include "testing.h"

#include "checkpoint.h"
#include "text/vision_inside.h"
#include "vectors.h"

static void patches_stand_by_merged_features(void **state)
{
    (void)state;
    // 6 patches wide: units of 2 x 2 in raster order, inside each its rows (text-encoder specification, 4.3)
    static const int64_t want[][2] = { { 0, 0 }, { 0, 1 }, { 1, 0 }, { 1, 1 }, { 0, 2 }, { 0, 3 }, { 1, 2 },
                                       { 1, 3 }, { 0, 4 }, { 0, 5 }, { 1, 4 }, { 1, 5 }, { 2, 0 }, { 2, 1 } };
    for (int64_t i = 0; i < (int64_t)(sizeof want / sizeof *want); i++) {
        int64_t row, column;
        vx_vision_patch_at(i, 6, &row, &column);
        assert_int_equal(row, want[i][0]);
        assert_int_equal(column, want[i][1]);
    }
}

// Two frames of 32 x 64 whose bytes say where they are: value = 64*frame + 16*channel + row/4 + column/8.
static void a_patch_holds_channels_then_frames_then_rows(void **state)
{
    (void)state;
    enum { HEIGHT = 32, WIDTH = 64, PATCHES = 8 };
    static uint8_t frame[2][HEIGHT][WIDTH][3];
    for (int f = 0; f < 2; f++)
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < WIDTH; x++)
                for (int c = 0; c < 3; c++) frame[f][y][x][c] = (uint8_t)(64 * f + 16 * c + y / 4 + x / 8);
    vx_device *dev;
    vx_arena *arena;
    assert_ok(vx_device_cpu_create(&dev, &(vx_cpu_params){ .threads = 1 }));
    assert_ok(vx_arena_create(dev, &arena, 1 << 20));
    for (int half = 0; half < 2; half++) {
        vx_tensor patches = vx_arena_tensor(arena, half ? VX_BF16 : VX_F32, PATCHES - 3, VX_VISION_PATCH_VALUES);
        assert_ok(vx_vision_upload_patches(dev, patches, 3, &frame[0][0][0][0], &frame[1][0][0][0], WIDTH));
        float *got = widen(patches);
        for (int64_t i = 0; i < PATCHES - 3; i++) {
            int64_t row, column, n = i * VX_VISION_PATCH_VALUES;
            vx_vision_patch_at(i + 3, WIDTH / 16, &row, &column);
            for (int c = 0; c < 3; c++)
                for (int f = 0; f < 2; f++)
                    for (int y = 0; y < 16; y++)
                        for (int x = 0; x < 16; x++, n++) {
                            const float v = (float)frame[f][16 * row + y][16 * column + x][c];
                            const float want = (v - 127.5f) / 127.5f;
                            assert_true(got[n] == (half ? vx_bf16_to_f32(vx_f32_to_bf16(want)) : want));
                        }
        }
        free(got);
    }
    vx_arena_destroy(&arena);
    vx_device_destroy(&dev);
}

// Values of transformers' get_vision_interpolation_indices_and_weights for a grid of 4 x 20 on a table of 8 x 8.
static void positions_blend_the_corners_around_them(void **state)
{
    (void)state;
    vx_device *dev;
    vx_arena *arena;
    assert_ok(vx_device_cpu_create(&dev, &(vx_cpu_params){ .threads = 1 }));
    assert_ok(vx_arena_create(dev, &arena, 1 << 16));
    vx_tensor ids = vx_arena_tensor(arena, VX_I32, 80, 4), weights = vx_arena_tensor(arena, VX_F32, 80, 4);
    assert_ok(vx_vision_upload_positions(dev, ids, weights, 8, 4, 20));
    static const struct {
        int patch;
        int32_t ids[4];
        float weights[4];
    } want[] = {
        { 0, { 0, 1, 8, 9 }, { 0x1p+0f, 0, 0, 0 } },
        { 1, { 0, 1, 8, 9 }, { 0x1.435e5p-1f, 0x1.79436p-2f, 0, 0 } },
        { 3, { 16, 17, 24, 25 }, { 0x1.af286ep-2f, 0x1.f70484p-3f, 0x1.af2864p-3f, 0x1.f70478p-4f } },
        { 4, { 0, 1, 8, 9 }, { 0x1.0d7944p-2f, 0x1.79435ep-1f, 0, 0 } },
        { 6, { 16, 17, 24, 25 }, { 0x1.674c5ep-3f, 0x1.f70482p-2f, 0x1.674c56p-4f, 0x1.f70476p-3f } },
        { 13, { 2, 3, 10, 11 }, { 0x1.af287p-2f, 0x1.286bc8p-1f, 0, 0 } },
        { 35, { 22, 23, 30, 31 }, { 0x1.f70484p-2f, 0x1.674c58p-3f, 0x1.f70478p-3f, 0x1.674c5p-4f } },
        { 39, { 23, 23, 31, 31 }, { 0x1.555558p-1f, 0, 0x1.55555p-2f, 0 } },
        { 41, { 32, 33, 40, 41 }, { 0x1.af2878p-3f, 0x1.f7049p-4f, 0x1.af2864p-2f, 0x1.f70478p-3f } },
        { 62, { 59, 60, 59, 60 }, { 0x1.435e5p-2f, 0x1.5e50d8p-1f, 0, 0 } },
        { 78, { 62, 63, 62, 63 }, { 0x1.79436p-2f, 0x1.435e5p-1f, 0, 0 } },
        { 79, { 63, 63, 63, 63 }, { 0x1p+0f, 0, 0, 0 } },
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_memory_equal((int32_t *)ids.data + 4 * want[i].patch, want[i].ids, sizeof want[i].ids);
        assert_memory_equal(vx_f32_of(weights) + 4 * want[i].patch, want[i].weights, sizeof want[i].weights);
    }
    vx_arena_destroy(&arena);
    vx_device_destroy(&dev);
}

// ---- sizes ----
static void sizes_follow_the_rule(void **state)
{
    (void)state;
    static const struct {
        int64_t frames, height, width, to_height, to_width; // frames 0: a picture
    } cases[] = {
        // the table of text-encoder specification, 4.2
        { 0, 768, 1344, 768, 1344 },
        { 0, 768, 768, 768, 768 },
        { 0, 544, 960, 544, 960 },
        { 0, 480, 864, 480, 864 },
        { 0, 192, 320, 224, 352 },
        { 0, 2048, 2048, 2048, 2048 },
        { 0, 2048, 3648, 2048, 3648 },
        { 0, 2048, 8192, 2048, 8192 },
        { 24, 768, 1344, 768, 1344 },
        { 26, 768, 1344, 736, 1280 },
        { 31, 768, 1344, 672, 1184 },
        { 31, 768, 768, 768, 768 },
        { 25, 768, 1344, 736, 1312 }, // the odd frame counts twice
        // transformers' smart_resize: halves go to the even multiple; above the largest size; sides too small
        { 0, 336, 400, 320, 384 },
        { 0, 368, 400, 384, 384 },
        { 0, 4096, 4100, 4096, 4096 },
        { 0, 1, 100, 32, 2560 },
        { 2, 32, 32, 64, 64 },
        { 3, 32, 32, 32, 32 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t height, width;
        if (cases[i].frames) vx_vision_video_size(cases[i].frames, cases[i].height, cases[i].width, &height, &width);
        else vx_vision_picture_size(cases[i].height, cases[i].width, &height, &width);
        if (height != cases[i].to_height || width != cases[i].to_width)
            fail_msg("%d frames of %d x %d: %d x %d", (int)cases[i].frames, (int)cases[i].height, (int)cases[i].width,
                     (int)height, (int)width);
    }
}

static int64_t number(const json_t *row, const char *key)
{
    return json_integer_value(json_object_get(row, key));
}

static void released_sizes_are_reproduced(void **state)
{
    (void)state;
    char path[512];
    if (!golden_tokenizer(path)) return;
    json_t *root = load_json(path), *row;
    const json_t *sizes = json_object_get(root, "smart_resize");
    size_t i;
    int compared = 0;
    int64_t height, width;
    json_array_foreach(json_object_get(sizes, "image_official"), i, row)
    {
        vx_vision_picture_size(number(row, "height"), number(row, "width"), &height, &width);
        assert_int_equal(height, number(row, "out_height"));
        assert_int_equal(width, number(row, "out_width"));
        compared++;
    }
    json_array_foreach(json_object_get(sizes, "video"), i, row)
    {
        const json_t *want = json_object_get(row, "out_ceil");
        vx_vision_video_size(number(row, "sampled_frames"), number(row, "height"), number(row, "width"), &height, &width);
        assert_int_equal(height, json_integer_value(json_array_get(want, 0)));
        assert_int_equal(width, json_integer_value(json_array_get(want, 1)));
        compared++;
    }
    assert_true(compared > 20);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patches_stand_by_merged_features),        cmocka_unit_test(a_patch_holds_channels_then_frames_then_rows),
        cmocka_unit_test(positions_blend_the_corners_around_them), cmocka_unit_test(sizes_follow_the_rule),
        cmocka_unit_test(released_sizes_are_reproduced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
