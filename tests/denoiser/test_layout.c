// Geometry and packing against the tables and the worked example of the denoiser specification (4.1, 4.3, 9), and against
// the layouts that diffusers 0.42.1 built for six requests (VORTEX_GOLDEN_DATA).
#include "testing.h"

#include <math.h>

#include "denoiser/layout.h"
#include "tensor/dtype.h"
#include "weights/safetensors.h"

static const double R = 5.0 / 3.0;

static void lengths_follow_the_table(void **state)
{
    (void)state;
    static const struct {
        int64_t asked, frames, latent, audio;
    } table[] = {
        { 96, 107, 32, 178 },  { 120, 124, 37, 207 },  { 144, 158, 47, 263 },  { 192, 192, 57, 320 },
        { 240, 243, 72, 405 }, { 345, 345, 102, 575 }, { 360, 362, 107, 603 },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_int_equal(vx_align_frames(table[i].asked), table[i].frames);
        assert_int_equal(vx_video_latent_frames(table[i].frames), table[i].latent);
        assert_int_equal(vx_audio_latent_frames(table[i].frames), table[i].audio);
    }
    assert_int_equal(vx_align_frames(0), 5);
    assert_int_equal(vx_align_frames(5), 5);
    assert_int_equal(vx_align_frames(6), 22);
    assert_int_equal(vx_video_latent_frames(5), 2);
    assert_int_equal(vx_video_latent_frames(1), 1);
    assert_int_equal(vx_video_latent_frames(22), 7);
}

static void canvases_follow_the_table(void **state)
{
    (void)state;
    static const struct {
        double w, h;
        int64_t width, height;
    } table[] = {
        { 16, 9, 1344, 768 }, { 21, 9, 1536, 672 }, { 4, 3, 1024, 768 }, { 1, 1, 768, 768 },
        { 3, 4, 768, 1024 },  { 9, 16, 768, 1344 }, { 3, 2, 1152, 768 }, { 4, 1, 2016, 512 },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int64_t width = 0, height = 0;
        assert_true(vx_canvas_size(table[i].w, table[i].h, 768, 768 * 1344, &width, &height));
        assert_int_equal(width, table[i].width);
        assert_int_equal(height, table[i].height);
    }
}

static void a_canvas_side_half_way_goes_to_the_even_multiple(void **state)
{
    (void)state;
    int64_t width, height;
    // 32 * 2.5 and 32 * 3.5 beside a short edge of 32: Python's round gives 2 and 4.
    assert_true(vx_canvas_size(2.5, 1, 32, 1 << 20, &width, &height));
    assert_int_equal(width, 64);
    assert_true(vx_canvas_size(3.5, 1, 32, 1 << 20, &width, &height));
    assert_int_equal(width, 128);
    // A small edge never becomes nothing.
    assert_true(vx_canvas_size(1, 4, 8, 1 << 20, &width, &height));
    assert_int_equal(width, 32);
    assert_int_equal(height, 32);
}

static void a_canvas_outside_one_to_four_is_refused(void **state)
{
    (void)state;
    int64_t width, height;
    assert_false(vx_canvas_size(4.01, 1, 768, 768 * 1344, &width, &height));
    assert_false(vx_canvas_size(1, 4.01, 768, 768 * 1344, &width, &height));
    assert_false(vx_canvas_size(0, 1, 768, 768 * 1344, &width, &height));
    assert_false(vx_canvas_size(1, 0, 768, 768 * 1344, &width, &height));
    assert_false(vx_canvas_size(-1, -1, 768, 768 * 1344, &width, &height));
    assert_false(vx_canvas_size(NAN, 1, 768, 768 * 1344, &width, &height));
    assert_true(vx_canvas_size(1, 4, 768, 768 * 1344, &width, &height));
}

static void text_tags(int32_t *tags, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) tags[i] = VX_MODALITY_TEXT;
}

static void make(vx_layout *l, int64_t text, int64_t frames, int64_t width, int64_t height, const vx_condition_rows *c, int n)
{
    int32_t tags[256];
    text_tags(tags, text);
    assert_ok(vx_layout_create(l, &(vx_layout_params){ text, tags, frames, width, height, c, n }));
}

static const double *at(const vx_layout *l, int64_t row)
{
    return l->position + 3 * row;
}
static void is_at(const vx_layout *l, int64_t row, double t, double h, double w)
{
    const double *p = at(l, row);
    if (p[0] != t || p[1] != h || p[2] != w)
        fail_msg("row %lld is at (%.17g, %.17g, %.17g), wanted (%.17g, %.17g, %.17g)", (long long)row, p[0], p[1], p[2], t, h, w);
}

// Specification 9: 1344 x 768, 124 frames, 100 text rows.
static void the_worked_example_is_reproduced(void **state)
{
    (void)state;
    vx_layout l;
    make(&l, 100, 124, 1344, 768, NULL, 0);
    assert_int_equal(l.rows, 37810);
    assert_int_equal(l.latent_frames, 37);
    assert_int_equal(l.latent_height, 48);
    assert_int_equal(l.latent_width, 84);
    assert_int_equal(l.audio_frames, 207);
    assert_int_equal(l.audio_begin, 100);
    assert_int_equal(l.audio_rows, 414);
    assert_int_equal(l.video_begin, 514);
    assert_int_equal(l.video_rows, 37296);
    assert_int_equal(l.condition_rows, 0);

    const double h0 = 3.9051368637047297, h1 = 4.913042125062669, h23 = 27.08695787493733;
    const double w0 = -5.166010488516722, w1 = -4.158105227158783, w41 = 36.158105227158783;
    is_at(&l, 0, 0, 0, 0);
    is_at(&l, 99, 99, 0, 0);
    is_at(&l, 100, 100, 0, w0);
    is_at(&l, 306, 306, 0, w0);
    assert_true((float)at(&l, 307)[2] == (float)w41);
    assert_true((float)at(&l, 307)[2] == 36.1581039f);
    assert_true(at(&l, 307)[0] == 100 && at(&l, 513)[0] == 306);
    is_at(&l, 514, 100, h0, w0);
    is_at(&l, 514 + 1, 100, h0, w1);
    is_at(&l, 514 + 42, 100, h1, w0);
    assert_true(at(&l, 514 + 23 * 42)[1] == h23);
    static const double times[] = { 100, 101.66666666666667, 108.33333333333333, 115, 121.66666666666667, 128.33333333333334,
                                    130, 136.66666666666669 };
    for (int t = 0; t < 8; t++) assert_true(at(&l, 514 + t * 1008)[0] == times[t]);
    assert_true(at(&l, 514 + 36 * 1008 + 5 * 42 + 7)[0] == 299.9999999999999);

    for (int64_t r = 0; r < l.rows; r++) {
        const int tag = r < 100 ? VX_MODALITY_TEXT : r < 514 ? VX_MODALITY_AUDIO : VX_MODALITY_VIDEO;
        assert_int_equal(l.tag[r], tag);
        assert_int_equal(l.clock[r], tag == VX_MODALITY_AUDIO ? VX_CLOCK_AUDIO : VX_CLOCK_VIDEO);
    }
    vx_layout_free(&l);
}

static void keyframes_add_a_frame_of_rows_each(void **state)
{
    (void)state;
    const vx_condition_rows two[] = { { VX_CONDITION_KEYFRAME, 0, 1, 48, 84, 0 }, { VX_CONDITION_KEYFRAME, 123, 1, 48, 84, 0 } };
    vx_layout l;
    make(&l, 100, 124, 1344, 768, two, 1);
    assert_int_equal(l.rows, 38818);
    vx_layout_free(&l);
    make(&l, 100, 124, 1344, 768, two, 2);
    assert_int_equal(l.rows, 39826);
    assert_int_equal(l.condition_begin, 100);
    assert_int_equal(l.condition_rows, 2016);
    assert_true(at(&l, 100)[0] == 100);
    // 100 + (pairwise sum) - R; f32(305).
    assert_true(at(&l, 1108)[0] == 100 + 206.66666666666663 - R);
    assert_true((float)at(&l, 1108)[0] == 305.0f);
    assert_int_equal(l.clock[1108], VX_CLOCK_VISUAL_CONDITION);
    assert_int_equal(l.tag[1108], VX_MODALITY_VIDEO);
    // The target keeps its own clock and origin.
    assert_true(at(&l, l.audio_begin)[0] == 100 && at(&l, l.video_begin)[0] == 100);
    vx_layout_free(&l);
}

// ComfyUI's rule for other frames, three lattice points by hand: o + 5/3*frame.
static void inner_keyframes_sit_at_their_frame(void **state)
{
    (void)state;
    static const struct {
        int64_t frame;
        double t;
    } points[] = { { 3, 12 }, { 60, 107 }, { 99, 172 } }; // 7 text rows: 7+5, 7+100, 7+165
    for (int i = 0; i < 3; i++) {
        const vx_condition_rows c = { VX_CONDITION_KEYFRAME, points[i].frame, 1, 4, 6, 0 };
        vx_layout l;
        make(&l, 7, 124, 96, 64, &c, 1);
        is_at(&l, 7, points[i].t, at(&l, l.video_begin)[1], at(&l, l.video_begin)[2]);
        is_at(&l, 7 + 5, points[i].t, at(&l, l.video_begin + 5)[1], at(&l, l.video_begin + 5)[2]);
        vx_layout_free(&l);
    }
}

static void a_keyframe_clip_goes_on_from_its_frame(void **state)
{
    (void)state;
    const vx_condition_rows c = { VX_CONDITION_KEYFRAME, 6, 2, 4, 6, 8 };
    vx_layout l;
    make(&l, 7, 124, 96, 64, &c, 1);
    const double w0 = at(&l, l.video_begin)[2], w2 = at(&l, l.video_begin + 2)[2];
    is_at(&l, 7, 17, 0, w0); // 7 + 5/3*6, left channel
    is_at(&l, 7 + 7, 24, 0, w0);
    is_at(&l, 7 + 8, 17, 0, w2); // right channel
    assert_int_equal(l.clock[7], VX_CLOCK_AUDIO_CONDITION);
    assert_true(at(&l, 7 + 16)[0] == 17);
    assert_true(at(&l, 7 + 16 + 6)[0] == 17 + R);
    vx_layout_free(&l);
}

// References advance the clock in request order; the target begins where it stands; keyframes follow the target's origin.
static void references_advance_the_clock(void **state)
{
    (void)state;
    const vx_condition_rows c[] = { { VX_CONDITION_IMAGE, 0, 1, 10, 14, 0 },
                                    { VX_CONDITION_VIDEO, 0, 7, 6, 8, 12 },
                                    { VX_CONDITION_AUDIO, 0, 0, 0, 0, 52 },
                                    { VX_CONDITION_KEYFRAME, 0, 1, 4, 6, 0 } };
    vx_layout l;
    make(&l, 10, 124, 96, 64, c, 4);
    double span = 0; // 1+4+4+4+4+1+4 pixel frames
    for (int k = 0; k < 7; k++) span += R * (k % 5 == 0 ? 1 : 4);
    const double origin = 11 + span + 52;
    const int64_t image = 10, sound = image + 35, video = sound + 24, voice = video + 84, key = voice + 104;
    assert_int_equal(l.audio_begin, key + 6);
    assert_true(at(&l, image)[0] == 10);
    assert_true(at(&l, sound)[0] == 11 && at(&l, sound + 11)[0] == 22);
    assert_true(at(&l, sound)[2] == at(&l, video)[2]); // the soundtrack stands on its own video's grid
    assert_true(at(&l, sound + 12)[2] == at(&l, video + 3)[2]);
    assert_true(at(&l, video)[0] == 11);
    assert_true(at(&l, voice)[0] == 11 + span);
    assert_true(at(&l, voice)[2] == at(&l, l.video_begin)[2]); // a voice on the target's
    assert_true(at(&l, key)[0] == origin);
    assert_true(at(&l, l.audio_begin)[0] == origin && at(&l, l.video_begin)[0] == origin);
    assert_int_equal(vx_layout_indices(&l, VX_MODALITY_VIDEO, NULL), 35 + 84 + 6 + 222);
    assert_int_equal(vx_layout_indices(&l, VX_MODALITY_AUDIO, NULL), 24 + 104 + 414);
    assert_int_equal(vx_layout_indices(&l, VX_MODALITY_TEXT, NULL), 10);
    vx_layout_free(&l);
}

// The longer of picture and sound moves the clock: seven latent frames last 36.67, 42 sounds 42.
static void a_longer_soundtrack_moves_the_clock(void **state)
{
    (void)state;
    const vx_condition_rows c = { VX_CONDITION_VIDEO, 0, 7, 4, 6, 42 };
    vx_layout l;
    make(&l, 10, 124, 96, 64, &c, 1);
    assert_true(at(&l, l.audio_begin)[0] == 52 && at(&l, l.video_begin)[0] == 52);
    vx_layout_free(&l);
}

static void timesteps_are_distinct_and_ascending(void **state)
{
    (void)state;
    vx_layout l;
    float t[VX_CLOCKS];
    int index[VX_CLOCKS];
    make(&l, 10, 124, 96, 64, NULL, 0);
    assert_int_equal(vx_layout_timesteps(&l, 0, 0, t, index), 1);
    assert_int_equal(index[VX_CLOCK_VIDEO], 0);
    assert_int_equal(index[VX_CLOCK_AUDIO], 0);
    assert_int_equal(index[VX_CLOCK_VISUAL_CONDITION], -1);
    // Step 1 of the canonical list: 1 - 0.997517407, 1 - 0.990143001.
    assert_int_equal(vx_layout_timesteps(&l, 0.002482593f, 0.009856999f, t, index), 2);
    assert_true(t[0] == 0.002482593f && t[1] == 0.009856999f);
    assert_int_equal(index[VX_CLOCK_VIDEO], 0);
    assert_int_equal(index[VX_CLOCK_AUDIO], 1);
    vx_layout_free(&l);

    const vx_condition_rows c[] = { { VX_CONDITION_IMAGE, 0, 1, 4, 6, 0 }, { VX_CONDITION_AUDIO, 0, 0, 0, 0, 3 } };
    make(&l, 10, 124, 96, 64, c, 2);
    assert_int_equal(vx_layout_timesteps(&l, 0.25f, 0.5f, t, index), 4);
    assert_true(t[0] == 0.25f && t[1] == 0.5f && t[2] == 0.999f && t[3] == 1.0f);
    for (int i = 0; i < VX_CLOCKS; i++) assert_int_equal(index[i], i);
    // Cleaner than the condition: the condition follows.
    assert_int_equal(vx_layout_timesteps(&l, 0.9995f, 0.9f, t, index), 3);
    assert_int_equal(index[VX_CLOCK_VISUAL_CONDITION], index[VX_CLOCK_VIDEO]);
    vx_layout_free(&l);
}

static void bad_layouts_are_refused(void **state)
{
    (void)state;
    int32_t tags[4], odd[4] = { 1, 1, 2, 1 };
    text_tags(tags, 4);
    const vx_condition_rows outside = { VX_CONDITION_KEYFRAME, 124, 1, 4, 6, 0 },
                            other = { VX_CONDITION_KEYFRAME, 0, 1, 6, 6, 0 }, uneven = { VX_CONDITION_VIDEO, 0, 2, 5, 6, 0 },
                            silent = { VX_CONDITION_AUDIO, 0, 0, 0, 0, 0 }, loud = { VX_CONDITION_IMAGE, 0, 1, 4, 6, 2 },
                            late = { VX_CONDITION_KEYFRAME, 123, 2, 4, 6, 0 };
    const struct {
        const char *says;
        vx_layout_params params;
    } cases[] = {
        { "no text", { 0, tags, 124, 96, 64, NULL, 0 } },
        { "audio among the text", { 4, odd, 124, 96, 64, NULL, 0 } },
        { "frames that are not 17n+5", { 4, tags, 125, 96, 64, NULL, 0 } },
        { "an uneven width", { 4, tags, 124, 90, 64, NULL, 0 } },
        { "an enormous height", { 4, tags, 124, 96, (int64_t)1 << 40, NULL, 0 } },
        { "more rows than a sequence may have", { 4, tags, 5 + 17 * 1000, 16384, 16384, NULL, 0 } },
        { "a keyframe behind the end", { 4, tags, 124, 96, 64, &outside, 1 } },
        { "a keyframe of another size", { 4, tags, 124, 96, 64, &other, 1 } },
        { "an odd latent", { 4, tags, 124, 96, 64, &uneven, 1 } },
        { "a voice of no length", { 4, tags, 124, 96, 64, &silent, 1 } },
        { "an image with sound", { 4, tags, 124, 96, 64, &loud, 1 } },
        { "a clip over the end", { 4, tags, 124, 96, 64, &late, 1 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_layout l;
        vx_status s = vx_layout_create(&l, &cases[i].params);
        if (s.code != VX_ERR_RANGE) fail_msg("%s: VX-%d %s", cases[i].says, (int)s.code, s.message);
        assert_null(l.tag);
    }
}

// ---- the reference's layouts ----

static const void *golden(const vx_safetensors *st, const char *name, int64_t count)
{
    const vx_safetensors_entry *e = vx_safetensors_find(st, name);
    if (!e) fail_msg("no %s", name);
    int64_t n = 1;
    for (int i = 0; i < e->rank; i++) n *= e->shape[i];
    if (n != count) fail_msg("%s has %lld values, %lld made", name, (long long)n, (long long)count);
    return e->data;
}

static void same_ints(const vx_safetensors *st, const char *name, const int32_t *mine, int64_t count)
{
    const int32_t *want = golden(st, name, count);
    for (int64_t i = 0; i < count; i++)
        if (mine[i] != want[i]) fail_msg("%s[%lld] is %d, the reference's %d", name, (long long)i, (int)mine[i], (int)want[i]);
}

static void same_layout(const vx_safetensors *st, const vx_layout *l)
{
    same_ints(st, "layout.token_tags", l->tag, l->rows);
    int32_t *indices = malloc((size_t)l->rows * sizeof *indices);
    static const struct {
        const char *name;
        int tag;
    } kinds[] = { { "layout.text_indices", VX_MODALITY_TEXT },
                  { "layout.audio_indices", VX_MODALITY_AUDIO },
                  { "layout.video_indices", VX_MODALITY_VIDEO } };
    for (int i = 0; i < 3; i++) {
        int64_t n = vx_layout_indices(l, kinds[i].tag, indices);
        same_ints(st, kinds[i].name, indices, n);
    }
    const double *want = golden(st, "first_call.position_ids", 3 * l->rows);
    for (int64_t i = 0; i < 3 * l->rows; i++)
        if (l->position[i] != want[i])
            fail_msg("position %lld,%lld is %.17g, the reference's %.17g", (long long)(i / 3), (long long)(i % 3), l->position[i],
                     want[i]);
    float t[VX_CLOCKS];
    int index[VX_CLOCKS];
    int count = vx_layout_timesteps(l, 0, 0, t, index);
    assert_memory_equal(t, golden(st, "first_call.timestep", count), (size_t)count * sizeof *t);
    for (int64_t r = 0; r < l->rows; r++) indices[r] = index[l->clock[r]];
    same_ints(st, "layout.timestep_indices", indices, l->rows);
    free(indices);
}

static void the_reference_packs_the_same_way(void **state)
{
    (void)state;
    if (!golden_folder()) {
        print_message("skipped: VORTEX_GOLDEN_DATA is not set\n");
        return;
    }
    const vx_condition_rows first = { VX_CONDITION_KEYFRAME, 0, 1, 4, 6, 0 }, last = { VX_CONDITION_KEYFRAME, 123, 1, 4, 6, 0 };
    const struct {
        const char *task;
        int count;
        vx_condition_rows c[3];
    } tasks[] = {
        { "t2va", 0, { { 0 } } },
        { "i2va", 1, { first } },
        { "l2va", 1, { last } },
        { "fl2va", 2, { first, last } },
        { "ref2va",
          3,
          { { VX_CONDITION_IMAGE, 0, 1, 10, 14, 0 },
            { VX_CONDITION_VIDEO, 0, 7, 6, 8, 0 },
            { VX_CONDITION_AUDIO, 0, 0, 0, 0, 52 } } },
        { "ref2va_talk",
          3,
          { { VX_CONDITION_VIDEO, 0, 7, 4, 6, 42 },
            { VX_CONDITION_AUDIO, 0, 0, 0, 0, 36 },
            { VX_CONDITION_IMAGE, 0, 1, 14, 8, 0 } } },
    };
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/expected/%s.float32.safetensors", golden_folder(), tasks[i].task);
        vx_safetensors *st;
        assert_ok(vx_safetensors_open(&st, path, NULL));
        const vx_safetensors_entry *tags = vx_safetensors_find(st, "text_token_tags");
        assert_non_null(tags);
        vx_layout l;
        assert_ok(
            vx_layout_create(&l, &(vx_layout_params){ tags->shape[0], tags->data, 124, 96, 64, tasks[i].c, tasks[i].count }));
        same_layout(st, &l);
        vx_layout_free(&l);
        vx_safetensors_close(&st);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_follow_the_table),
        cmocka_unit_test(canvases_follow_the_table),
        cmocka_unit_test(a_canvas_side_half_way_goes_to_the_even_multiple),
        cmocka_unit_test(a_canvas_outside_one_to_four_is_refused),
        cmocka_unit_test(the_worked_example_is_reproduced),
        cmocka_unit_test(keyframes_add_a_frame_of_rows_each),
        cmocka_unit_test(inner_keyframes_sit_at_their_frame),
        cmocka_unit_test(a_keyframe_clip_goes_on_from_its_frame),
        cmocka_unit_test(references_advance_the_clock),
        cmocka_unit_test(a_longer_soundtrack_moves_the_clock),
        cmocka_unit_test(timesteps_are_distinct_and_ascending),
        cmocka_unit_test(bad_layouts_are_refused),
        cmocka_unit_test(the_reference_packs_the_same_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
