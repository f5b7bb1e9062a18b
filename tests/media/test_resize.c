#include "testing.h"

#include <inttypes.h>
#include <time.h>

#include "base/alloc.h"
#include "media/resize.h"

// The picture of tools/make_resize_vectors.py: blocks of 16 pixels, in turn a slope and noise.
static uint8_t *picture(int64_t width, int64_t height)
{
    uint8_t *rgb = vx_alloc((size_t)(width * height * 3)), *p = rgb;
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            for (uint32_t c = 0; c < 3; c++) {
                uint32_t h = x * 374761393u + y * 668265263u + c * 2246822519u;
                h ^= h >> 13;
                h *= 1274126177u;
                h ^= h >> 16;
                *p++ = (uint8_t)(((x >> 4) + (y >> 4)) & 1 ? h : 3 * x + 2 * y + 40 * c);
            }
    return rgb;
}

static uint64_t fnv(const uint8_t *bytes, int64_t count)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < count; i++) h = (h ^ bytes[i]) * 0x100000001b3u;
    return h;
}

static vx_status resize(const char *kind, uint8_t *out, int64_t ow, int64_t oh, const uint8_t *in, int64_t w, int64_t h)
{
    if (!strcmp(kind, "cover")) return vx_resize_cover(out, ow, oh, in, w, h);
    vx_resize_filter filter = !strcmp(kind, "lanczos")   ? VX_RESIZE_LANCZOS
                              : !strcmp(kind, "bicubic") ? VX_RESIZE_BICUBIC
                                                         : VX_RESIZE_BICUBIC_TORCH;
    return vx_resize(out, ow, oh, in, w, h, filter);
}

static void equals_pillow_and_torchvision(void **state)
{
    (void)state;
    FILE *f = fopen(VX_TEST_DATA "/media/resize.txt", "r");
    assert_non_null(f);
    char kind[16];
    int64_t w, h, ow, oh;
    uint64_t want;
    int count = 0;
    while (fscanf(f, "%15s %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNx64, kind, &w, &h, &ow, &oh, &want) == 6) {
        uint8_t *in = picture(w, h), *out = vx_alloc((size_t)(ow * oh * 3));
        assert_ok(resize(kind, out, ow, oh, in, w, h));
        if (fnv(out, ow * oh * 3) != want)
            fail_msg("%s %" PRId64 "x%" PRId64 " -> %" PRId64 "x%" PRId64 " differs", kind, w, h, ow, oh);
        vx_free(in);
        vx_free(out);
        count++;
    }
    fclose(f);
    assert_true(count > 700);
}

// One row, from the specification (B4), found with Pillow 9.4.
static void meets_known_rows(void **state)
{
    (void)state;
    static const uint8_t row[8] = { 0, 64, 128, 192, 255, 10, 250, 30 };
    static const struct {
        vx_resize_filter filter;
        int64_t width;
        uint8_t want[13];
    } cases[] = {
        { VX_RESIZE_LANCZOS, 5, { 19, 121, 216, 123, 121 } },
        { VX_RESIZE_LANCZOS, 13, { 0, 19, 67, 109, 141, 180, 255, 230, 38, 74, 249, 136, 0 } },
        { VX_RESIZE_BICUBIC, 5, { 21, 121, 220, 117, 120 } },
        { VX_RESIZE_BICUBIC, 13, { 0, 21, 66, 106, 145, 185, 243, 238, 49, 75, 249, 125, 14 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int down = 0; down < 2; down++) {
            uint8_t in[24], out[39];
            for (int p = 0; p < 24; p++) in[p] = row[p / 3];
            if (down) assert_ok(vx_resize(out, 1, cases[i].width, in, 1, 8, cases[i].filter));
            else assert_ok(vx_resize(out, cases[i].width, 1, in, 8, 1, cases[i].filter));
            for (int p = 0; p < 3 * cases[i].width; p++) assert_int_equal(out[p], cases[i].want[p / 3]);
        }
}

static void copies_equal_sizes(void **state)
{
    (void)state;
    uint8_t *in = picture(40, 30), *out = vx_alloc(40 * 30 * 3);
    for (int filter = VX_RESIZE_LANCZOS; filter <= VX_RESIZE_BICUBIC_TORCH; filter++) {
        memset(out, 0, 40 * 30 * 3);
        assert_ok(vx_resize(out, 40, 30, in, 40, 30, (vx_resize_filter)filter));
        assert_memory_equal(out, in, 40 * 30 * 3);
    }
    memset(out, 0, 40 * 30 * 3);
    assert_ok(vx_resize_cover(out, 40, 30, in, 40, 30));
    assert_memory_equal(out, in, 40 * 30 * 3);
    vx_free(in);
    vx_free(out);
}

// Two pixels across a square: the covering picture would be 65,536 times wider than the window cut from it.
static void covers_from_extreme_ratios(void **state)
{
    (void)state;
    uint8_t *in = vx_alloc_array(65536, 3), out[64 * 64 * 3];
    for (int i = 0; i < 65536 * 3; i++) in[i] = 77;
    assert_ok(vx_resize_cover(out, 64, 64, in, 65536, 1));
    for (size_t i = 0; i < sizeof out; i++) assert_int_equal(out[i], 77);
    vx_free(in);
}

static void refuses_sides_out_of_range(void **state)
{
    (void)state;
    uint8_t pixel[3] = { 0 };
    assert_code(vx_resize(pixel, 0, 1, pixel, 1, 1, VX_RESIZE_LANCZOS), VX_ERR_RANGE);
    assert_code(vx_resize(pixel, 1, 1, pixel, 1, 65537, VX_RESIZE_LANCZOS), VX_ERR_RANGE);
    assert_code(vx_resize_cover(pixel, 1, 65537, pixel, 1, 1), VX_ERR_RANGE);
}

static void fails_cleanly_without_memory(void **state)
{
    (void)state;
    uint8_t *in = picture(20, 30), *out = vx_alloc(300 * 3);
    for (int k = 1, hit = 1; hit; k++) {
        vx_fault_arm(k, true);
        vx_status s = vx_resize(out, 10, 30, in, 20, 30, VX_RESIZE_LANCZOS);
        hit = vx_fault_disarm();
        assert_int_equal(s.code, hit ? VX_ERR_MEMORY : VX_OK);
        vx_fault_arm(k, true);
        s = vx_resize(out, 10, 20, in, 20, 30, VX_RESIZE_BICUBIC_TORCH);
        hit |= vx_fault_disarm();
        assert_true(s.code == VX_OK || s.code == VX_ERR_MEMORY);
    }
    vx_free(in);
    vx_free(out);
}

static void is_fast_enough(void **state)
{
    (void)state;
    uint8_t *in = picture(4000, 3000), *out = vx_alloc(1344 * 768 * 3);
    clock_t from = clock();
    assert_ok(vx_resize(out, 1344, 768, in, 4000, 3000, VX_RESIZE_LANCZOS));
    double s = (double)(clock() - from) / CLOCKS_PER_SEC;
    print_message("4000x3000 -> 1344x768: %.0f ms\n", s * 1e3);
    assert_true(s < 10); // with sanitizers and on a slow machine too
    vx_free(in);
    vx_free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_pillow_and_torchvision),
        cmocka_unit_test(meets_known_rows),
        cmocka_unit_test(copies_equal_sizes),
        cmocka_unit_test(covers_from_extreme_ratios),
        cmocka_unit_test(refuses_sides_out_of_range),
        cmocka_unit_test(fails_cleanly_without_memory),
        cmocka_unit_test(is_fast_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
