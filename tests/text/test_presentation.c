// What a prompt becomes, and which prompts are refused (text-encoder specification, 2 and 8).
#include "testing.h"

#include "base/alloc.h"
#include "text/presentation.h"
#include "vectors.h"

#define SMALL VX_TEST_DATA "/tokenizer"

static int set_up(void **state)
{
    vx_tokenizer *t;
    assert_ok(vx_tokenizer_open(&t, SMALL));
    *state = t;
    return 0;
}

static int tear_down(void **state)
{
    vx_tokenizer *t = *state;
    vx_tokenizer_close(&t);
    return 0;
}

static void the_prompt_is_taken_verbatim_as_text(void **state)
{
    const vx_tokenizer *t = *state;
    static const char *const prompts[] = {
        "A", " ", "\n\n", "  spaces around  ", "<d>Hold the line</d>", "<|im_start|><|vision_start|>", "\xe6\xb5\xb7"
    };
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        vx_presentation p;
        vx_tokens tokens = { 0 };
        assert_ok(vx_presentation_prompt(&p, t, prompts[i], strlen(prompts[i])));
        assert_ok(vx_tokenizer_encode(t, prompts[i], strlen(prompts[i]), &tokens));
        assert_int_equal(p.rows, tokens.count);
        assert_memory_equal(p.ids, tokens.ids, (size_t)tokens.count * sizeof *tokens.ids);
        for (int64_t row = 0; row < p.rows; row++) assert_int_equal(p.tags[row], VX_TAG_TEXT);
        vx_free(tokens.ids);
        vx_presentation_free(&p);
        assert_null(p.ids);
    }
}

static void prompts_that_cannot_be_conditioned_are_refused(void **state)
{
    const vx_tokenizer *t = *state;
    static const struct {
        const char *says, *text;
        size_t size;
        const char *message;
    } cases[] = {
        { "empty", "", 0, "empty" },
        { "an image pad", "a <|image_pad|> b", 17, "<|image_pad|>" },
        { "a video pad at the end", "<|video_pad|>", 13, "<|video_pad|>" },
        { "not UTF-8", "abc\xff", 4, "byte 3" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_presentation p;
        vx_status s = vx_presentation_prompt(&p, t, cases[i].text, cases[i].size);
        if (s.code != VX_ERR_PROMPT || strcmp(s.field, "prompt") != 0 || !strstr(s.message, cases[i].message))
            fail_msg("%s: VX-%d '%s' field '%s'", cases[i].says, (int)s.code, s.message, s.field);
        assert_null(p.ids);
        assert_int_equal(p.rows, 0);
    }
}

static void limits_are_told_with_the_count(void **state)
{
    const vx_tokenizer *t = *state;
    static char text[VX_MAX_PROMPT_BYTES + 1];
    vx_presentation p;
    memset(text, '7', sizeof text); // one token each: more than 16,384
    vx_status s = vx_presentation_prompt(&p, t, text, VX_MAX_PROMPT_BYTES + 1);
    assert_int_equal(s.code, VX_ERR_PROMPT);
    assert_string_equal(s.field, "prompt");
    assert_non_null(strstr(s.message, "65537 bytes"));
    s = vx_presentation_prompt(&p, t, text, VX_MAX_TOKENS + 1);
    assert_int_equal(s.code, VX_ERR_PROMPT);
    assert_string_equal(s.field, "prompt");
    assert_non_null(strstr(s.message, "16385 tokens"));
    assert_ok(vx_presentation_prompt(&p, t, text, VX_MAX_TOKENS));
    assert_int_equal(p.rows, VX_MAX_TOKENS);
    vx_presentation_free(&p);
    memset(text, 'a', sizeof text);
    assert_ok(vx_presentation_prompt(&p, t, text, VX_MAX_PROMPT_BYTES));
    vx_presentation_free(&p);
}

static void a_failed_allocation_is_no_fault_of_the_prompt(void **state)
{
    const vx_tokenizer *t = *state;
    bool hit = true;
    for (int k = 1; hit; k++) {
        vx_presentation p;
        vx_fault_arm(k, true);
        vx_status s = vx_presentation_prompt(&p, t, "a lighthouse", 12);
        hit = vx_fault_disarm();
        assert_int_equal(s.code, hit ? VX_ERR_MEMORY : VX_OK);
        vx_presentation_free(&p);
    }
}

// ---- behind pictures, videos and sound ----
// A walk over the rows of a presentation, with the position that text has there.
typedef struct walk {
    const vx_tokenizer *t;
    vx_presentation_full p;
    int64_t row, now;
} walk;

static void expect_position(const walk *w, int64_t row, int64_t t, int64_t height, int64_t width)
{
    assert_int_equal(w->p.positions[row], t);
    assert_int_equal(w->p.positions[w->p.tokens.rows + row], height);
    assert_int_equal(w->p.positions[2 * w->p.tokens.rows + row], width);
}

static void expect_text(walk *w, const char *text)
{
    vx_tokens tokens = { 0 };
    assert_ok(vx_tokenizer_encode(w->t, text, strlen(text), &tokens));
    assert_true(w->row + tokens.count <= w->p.tokens.rows);
    for (int64_t i = 0; i < tokens.count; i++, w->row++, w->now++) {
        if (w->p.tokens.ids[w->row] != tokens.ids[i]) fail_msg("'%s': row %d is another token", text, (int)w->row);
        assert_int_equal(w->p.tokens.tags[w->row], VX_TAG_TEXT);
        expect_position(w, w->row, w->now, w->now, w->now);
    }
    vx_free(tokens.ids);
}

static void expect_block(walk *w, const char *pad, int place)
{
    const vx_vision_place *at = &w->p.places[place];
    const vx_presentation *p = &w->p.tokens;
    assert_int_equal(p->ids[w->row], vx_tokenizer_added(w->t, "<|vision_start|>"));
    assert_int_equal(at->row, w->row + 1);
    assert_int_equal(at->rows, at->grid_height * at->grid_width);
    for (int64_t i = 0; i < at->rows; i++) assert_int_equal(p->ids[at->row + i], vx_tokenizer_added(w->t, pad));
    assert_int_equal(p->ids[at->row + at->rows], vx_tokenizer_added(w->t, "<|vision_end|>"));
    for (int64_t i = -1; i <= at->rows; i++) assert_int_equal(p->tags[at->row + i], VX_TAG_VIDEO);
    expect_position(w, w->row, w->now, w->now, w->now);
    w->now++;
    for (int64_t y = 0; y < at->grid_height; y++)
        for (int64_t x = 0; x < at->grid_width; x++)
            expect_position(w, at->row + y * at->grid_width + x, w->now, w->now + y, w->now + x);
    w->row = at->row + at->rows;
    w->now += at->grid_height > at->grid_width ? at->grid_height : at->grid_width;
    expect_position(w, w->row++, w->now, w->now, w->now);
    w->now++;
}

static void references_are_shown_in_request_order(void **state)
{
    walk w = { .t = *state };
    static const vx_shown shown[] = {
        { .kind = VX_SHOWN_AUDIO },
        { .kind = VX_SHOWN_IMAGE, .height = 64, .width = 96 },
        { .kind = VX_SHOWN_VIDEO, .height = 32, .width = 64, .sampled_frames = 5, .sound = true },
        { .kind = VX_SHOWN_VIDEO, .height = 64, .width = 32, .sampled_frames = 2 },
        { .kind = VX_SHOWN_IMAGE, .height = 32, .width = 32 },
    };
    assert_ok(vx_presentation_show(&w.p, w.t, "go", 2, shown, 5));
    expect_text(&w, "<Audio 1>: ");
    expect_text(&w, "<Picture 1>: ");
    expect_block(&w, "<|image_pad|>", 0);
    expect_text(&w, "<Audio 2>: ");
    expect_text(&w, "<Video 1>: ");
    expect_text(&w, "<0.2 seconds>");
    expect_block(&w, "<|video_pad|>", 1);
    expect_text(&w, "<1.2 seconds>");
    expect_block(&w, "<|video_pad|>", 2);
    expect_text(&w, "<2.0 seconds>");
    expect_block(&w, "<|video_pad|>", 3);
    expect_text(&w, "<Video 2>: ");
    expect_text(&w, "<0.2 seconds>");
    expect_block(&w, "<|video_pad|>", 4);
    expect_text(&w, "<Picture 2>: ");
    expect_block(&w, "<|image_pad|>", 5);
    expect_text(&w, "go");
    assert_int_equal(w.row, w.p.tokens.rows);
    assert_int_equal(w.p.place_count, 6);
    static const int64_t want[6][4] = { { 1, 0, 2, 3 }, { 2, 0, 1, 2 }, { 2, 2, 1, 2 },
                                        { 2, 4, 1, 2 }, { 3, 0, 2, 1 }, { 4, 0, 1, 1 } };
    for (int i = 0; i < 6; i++) {
        assert_int_equal(w.p.places[i].condition, want[i][0]);
        assert_int_equal(w.p.places[i].frame, want[i][1]);
        assert_int_equal(w.p.places[i].grid_height, want[i][2]);
        assert_int_equal(w.p.places[i].grid_width, want[i][3]);
    }
    vx_presentation_full_free(&w.p);
    assert_null(w.p.places);
}

static void a_prompt_behind_nothing_is_the_prompt(void **state)
{
    const vx_tokenizer *t = *state;
    vx_presentation alone;
    vx_presentation_full p;
    assert_ok(vx_presentation_prompt(&alone, t, "a lighthouse", 12));
    assert_ok(vx_presentation_show(&p, t, "a lighthouse", 12, NULL, 0));
    assert_int_equal(p.tokens.rows, alone.rows);
    assert_memory_equal(p.tokens.ids, alone.ids, (size_t)alone.rows * sizeof *alone.ids);
    assert_memory_equal(p.tokens.tags, alone.tags, (size_t)alone.rows * sizeof *alone.tags);
    for (int64_t i = 0; i < 3 * alone.rows; i++) assert_int_equal(p.positions[i], i % alone.rows);
    assert_int_equal(p.place_count, 0);
    vx_presentation_full_free(&p);
    vx_presentation_free(&alone);
}

static void what_cannot_be_shown_is_refused(void **state)
{
    const vx_tokenizer *t = *state;
    static const struct {
        const char *says;
        vx_shown shown;
        int times;
        vx_code want;
        const char *message;
    } cases[] = {
        { "nine of the largest pictures", { VX_SHOWN_IMAGE, 2048, 8192, 0, false }, 9, VX_OK, "" },
        { "sixteen of them", { VX_SHOWN_IMAGE, 2048, 8192, 0, false }, 16, VX_ERR_RANGE, "2621" },
        { "a video of one frame", { VX_SHOWN_VIDEO, 64, 64, 1, false }, 1, VX_ERR_RANGE, "1 sampled" },
        { "a video of no end", { VX_SHOWN_VIDEO, 64, 64, INT64_MAX, false }, 1, VX_ERR_RANGE, "sampled frames" },
        { "a video of a million frames", { VX_SHOWN_VIDEO, 65536, 65536, 1 << 20, false }, 16, VX_ERR_RANGE, "at most 262144" },
        { "other sides", { VX_SHOWN_IMAGE, 64, 48, 0, false }, 1, VX_ERR_SHAPE, "multiples of 32" },
        { "no pixels", { VX_SHOWN_KEYFRAME, 0, 0, 0, false }, 1, VX_ERR_SHAPE, "multiples of 32" },
        { "a negative side", { VX_SHOWN_KEYFRAME, -64, -64, 0, false }, 1, VX_ERR_SHAPE, "multiples of 32" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_shown shown[16];
        vx_presentation_full p;
        for (int k = 0; k < 16; k++) shown[k] = cases[i].shown;
        vx_status s = vx_presentation_show(&p, t, "go", 2, shown, cases[i].times);
        if (s.code != cases[i].want || !strstr(s.message, cases[i].message))
            fail_msg("%s: VX-%d '%s'", cases[i].says, (int)s.code, s.message);
        vx_presentation_full_free(&p);
    }
    vx_presentation_full p;
    assert_code(vx_presentation_show(&p, t, "", 0, &cases[0].shown, 1), VX_ERR_PROMPT);
    assert_null(p.tokens.ids);
}

static void a_tokenizer_without_markers_shows_only_text(void **state)
{
    (void)state;
    vx_tokenizer *t;
    vx_presentation_full p;
    size_t size;
    char *merges = read_text(SMALL, "merges.txt", &size);
    assert_ok(vx_tokenizer_parse(&t, NULL, 0, merges, size, "{}", 2, "small"));
    assert_ok(vx_presentation_show(&p, t, "go", 2, &(vx_shown){ .kind = VX_SHOWN_AUDIO }, 1));
    vx_presentation_full_free(&p);
    vx_status s = vx_presentation_show(&p, t, "go", 2, &(vx_shown){ .kind = VX_SHOWN_IMAGE, .height = 64, .width = 64 }, 1);
    assert_int_equal(s.code, VX_ERR_TOKENIZER);
    assert_non_null(strstr(s.message, "<|vision_start|>"));
    vx_tokenizer_close(&t);
    vx_free(merges);
}

static void failed_allocations_leave_nothing(void **state)
{
    const vx_tokenizer *t = *state;
    static const vx_shown shown[] = { { .kind = VX_SHOWN_VIDEO, .height = 64, .width = 640, .sampled_frames = 3, .sound = true },
                                      { .kind = VX_SHOWN_IMAGE, .height = 64, .width = 64 } };
    bool hit = true;
    for (int k = 1; hit; k++) {
        vx_presentation_full p;
        vx_fault_arm(k, true);
        vx_status s = vx_presentation_show(&p, t, "a lighthouse", 12, shown, 2);
        hit = vx_fault_disarm();
        assert_int_equal(s.code, hit ? VX_ERR_MEMORY : VX_OK);
        if (hit) assert_null(p.tokens.ids);
        vx_presentation_full_free(&p);
    }
}

// ---- released presentations ----
static vx_shown shown_of(const json_t *item, bool keyframes)
{
    const char *type = json_string_value(json_object_get(item, "type"));
    const json_t *grid = json_object_get(item, "grid"); // of patches
    vx_shown s = { .height = 16 * json_integer_value(json_array_get(grid, 0)),
                   .width = 16 * json_integer_value(json_array_get(grid, 1)),
                   .sampled_frames = json_integer_value(json_object_get(item, "sampled_frames")),
                   .sound = json_is_true(json_object_get(item, "has_audio")) };
    s.kind = strcmp(type, "audio") == 0   ? VX_SHOWN_AUDIO
             : strcmp(type, "video") == 0 ? VX_SHOWN_VIDEO
             : keyframes                  ? VX_SHOWN_KEYFRAME
                                          : VX_SHOWN_IMAGE;
    return s;
}

// Run-length pairs [value, count].
static void check_runs(const char *name, const int32_t *got, int64_t rows, const json_t *runs)
{
    int64_t row = 0;
    size_t i;
    const json_t *run;
    json_array_foreach((json_t *)(uintptr_t)runs, i, run)
    {
        const int64_t value = json_integer_value(json_array_get(run, 0)), count = json_integer_value(json_array_get(run, 1));
        assert_true(row + count <= rows);
        for (int64_t k = 0; k < count; k++, row++)
            if (got[row] != value) fail_msg("%s: row %d is %d, expected %d", name, (int)row, got[row], (int)value);
    }
    assert_int_equal(row, rows);
}

static void check_positions(const char *name, const vx_presentation_full *p, const json_t *want)
{
    static const char *const keys[] = { "positions_t", "positions_h", "positions_w" };
    const int64_t rows = p->tokens.rows;
    for (int axis = 0; axis < 3; axis++) {
        const json_t *list = json_object_get(want, keys[axis]);
        const int64_t *own = p->positions + axis * rows;
        for (int64_t i = 0; i < (int64_t)json_array_size(list); i++)
            if (own[i] != json_integer_value(json_array_get(list, (size_t)i)))
                fail_msg("%s: %s of row %d", name, keys[axis], (int)i);
        assert_int_equal(own[rows - 1],
                         json_integer_value(json_array_get(json_object_get(want, "final_position"), (size_t)axis)));
    }
}

static int check_presentation(const vx_tokenizer *t, const json_t *want)
{
    const json_t *items = json_object_get(want, "items"), *prompt = json_object_get(want, "prompt");
    const char *name = json_string_value(json_object_get(want, "name"));
    vx_shown shown[8];
    const size_t count = json_array_size(items);
    vx_presentation_full p;
    assert_true(count <= 8);
    for (size_t i = 0; i < count; i++) shown[i] = shown_of(json_array_get(items, i), strncmp(name, "fl2va", 5) == 0);
    assert_ok(vx_presentation_show(&p, t, json_string_value(prompt), json_string_length(prompt), shown, (int)count));
    check_runs(name, p.tokens.ids, p.tokens.rows, json_object_get(want, "ids_rle"));
    check_runs(name, p.tokens.tags, p.tokens.rows, json_object_get(want, "tags_rle"));
    check_positions(name, &p, want);
    const int32_t picture = vx_tokenizer_added(t, "<|image_pad|>"), frames = vx_tokenizer_added(t, "<|video_pad|>");
    int64_t pads = 0, placed = 0;
    for (int64_t i = 0; i < p.tokens.rows; i++) pads += p.tokens.ids[i] == picture || p.tokens.ids[i] == frames;
    for (int i = 0; i < p.place_count; i++) placed += p.places[i].rows;
    assert_int_equal(placed, pads);
    vx_presentation_full_free(&p);
    return count > 0;
}

static void check_labels(const vx_tokenizer *t, const json_t *want)
{
    const json_t *labels = json_object_get(want, "labels");
    const vx_shown shown = { .kind = VX_SHOWN_VIDEO,
                             .height = 32,
                             .width = 32,
                             .sampled_frames = (int64_t)json_array_size(json_object_get(want, "sampled_indices")) };
    walk w = { .t = t };
    assert_ok(vx_presentation_show(&w.p, t, "go", 2, &shown, 1));
    assert_int_equal(w.p.place_count, json_array_size(labels));
    expect_text(&w, "<Video 1>: ");
    for (int i = 0; i < w.p.place_count; i++) {
        expect_text(&w, json_string_value(json_array_get(labels, (size_t)i)));
        expect_block(&w, "<|video_pad|>", i);
    }
    vx_presentation_full_free(&w.p);
}

static void released_presentations_are_reproduced(void **state)
{
    (void)state;
    char path[512], vectors[512];
    if (!golden_folder()) {
        print_message("skipped: VORTEX_GOLDEN_DATA is not set\n");
        return;
    }
    if (!golden_tokenizer(vectors)) return;
    json_t *root = load_json(vectors), *row;
    vx_tokenizer *t;
    snprintf(path, sizeof path, "%s/official/FL2VA/tokenizer", golden_folder());
    assert_ok(vx_tokenizer_open(&t, path));
    size_t i;
    int compared = 0, with_pictures = 0;
    json_array_foreach(json_object_get(root, "presentations"), i, row)
    {
        with_pictures += check_presentation(t, row);
        compared++;
    }
    assert_int_equal(compared, 9);
    assert_true(with_pictures > 0);
    json_array_foreach(json_object_get(root, "video_timestamps"), i, row) check_labels(t, row);
    json_decref(root);
    vx_tokenizer_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_prompt_is_taken_verbatim_as_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(prompts_that_cannot_be_conditioned_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(limits_are_told_with_the_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failed_allocation_is_no_fault_of_the_prompt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(references_are_shown_in_request_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_prompt_behind_nothing_is_the_prompt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_shown_is_refused, set_up, tear_down),
        cmocka_unit_test(a_tokenizer_without_markers_shows_only_text),
        cmocka_unit_test_setup_teardown(failed_allocations_leave_nothing, set_up, tear_down),
        cmocka_unit_test(released_presentations_are_reproduced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
