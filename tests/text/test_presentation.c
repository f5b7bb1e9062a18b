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

static void released_presentations_of_prompts_are_reproduced(void **state)
{
    (void)state;
    char path[512];
    if (!golden_folder()) {
        print_message("skipped: VORTEX_GOLDEN_DATA is not set\n");
        return;
    }
    snprintf(path, sizeof path, "%s/tokenizer.json", golden_folder());
    if (!vx_file_exists(path)) {
        print_message("skipped: %s is not there\n", path);
        return;
    }
    json_t *root = load_json(path), *row;
    vx_tokenizer *t;
    snprintf(path, sizeof path, "%s/official/FL2VA/tokenizer", golden_folder());
    assert_ok(vx_tokenizer_open(&t, path));
    size_t i;
    int compared = 0;
    json_array_foreach(json_object_get(root, "presentations"), i, row)
    {
        if (json_array_size(json_object_get(row, "items"))) continue; // with pictures: not made from a prompt alone
        const json_t *prompt = json_object_get(row, "prompt"), *tags = json_object_get(row, "tags");
        vx_presentation p;
        assert_ok(vx_presentation_prompt(&p, t, json_string_value(prompt), json_string_length(prompt)));
        vx_tokens tokens = { p.ids, p.rows, p.rows };
        assert_ids(json_string_value(json_object_get(row, "name")), &tokens, json_object_get(row, "ids"));
        for (int64_t k = 0; k < p.rows; k++) assert_int_equal(p.tags[k], json_integer_value(json_array_get(tags, (size_t)k)));
        vx_presentation_free(&p);
        compared++;
    }
    assert_true(compared > 0);
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
        cmocka_unit_test(released_presentations_of_prompts_are_reproduced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
