#include "testing.h"

#include <errno.h>

#include "base/str.h"

static void carries_code_and_message(void **state)
{
    (void)state;
    vx_status s = vx_fail(VX_ERR_SHAPE, "%d is not %s", 3, "four");
    assert_int_equal(s.code, VX_ERR_SHAPE);
    assert_string_equal(s.message, "3 is not four");
    assert_string_equal(s.field, "");
    assert_string_equal(s.remedy, "");
    assert_int_equal(vx_code_of(vx_ok()), VX_OK);
}

static void carries_field_and_remedy(void **state)
{
    (void)state;
    vx_status s = vx_fail_field(VX_ERR_RANGE, "frames", "%d frames, at most %d", 500, 400);
    assert_string_equal(s.field, "frames");
    assert_string_equal(s.message, "500 frames, at most 400");
    s = vx_remedy(s, "ask for %d", 400);
    assert_string_equal(s.remedy, "ask for 400");
    assert_string_equal(vx_remedy(s, "or not").remedy, "ask for 400");
    s = vx_fail_remedy(VX_ERR_MEMORY, "use 100% less", "no memory");
    assert_string_equal(s.remedy, "use 100% less");
    assert_string_equal(vx_remedy(s, "or not").remedy, "use 100% less");
    assert_string_equal(vx_remedy(vx_ok(), "nothing to do").remedy, "");
}

// Whoever makes an error of memory or of a device, and however: it says what helps. Better words take the place of these.
static void memory_and_devices_have_a_remedy(void **state)
{
    (void)state;
#define CHECK(name, number, text) assert_int_equal(*vx_code_remedy(name) != 0, number / 1000 == 5 || number / 1000 == 6);
    VX_CODES(CHECK)
#undef CHECK
    const char *memory = vx_code_remedy(VX_ERR_MEMORY), *device = vx_code_remedy(VX_ERR_DEVICE);
    vx_status s = vx_fail(VX_ERR_MEMORY, "none");
    assert_string_equal(s.remedy, memory);
    assert_string_equal(vx_within(s, "text").remedy, memory);
    assert_string_equal(vx_remedy(s, "ask for %d", 400).remedy, "ask for 400");
    assert_string_equal(vx_fail_errno(VX_ERR_OUTPUT, ENOMEM, "a file").remedy, memory);
    assert_string_equal(vx_fail_errno(VX_ERR_OUTPUT, EACCES, "a file").remedy, "");
    assert_string_equal(vx_fail_field(VX_ERR_DEVICE, "device", "gone").remedy, device);
}

static vx_status fails_inside(void)
{
    VX_TRY_IN(vx_fail(VX_ERR_TENSOR_SHAPE, "'x' is [8, 4]"), "a.safetensors");
    return vx_ok();
}

static vx_status passes_on(int *after)
{
    VX_TRY(vx_ok());
    VX_TRY_IN(fails_inside(), "block %d", 17);
    (*after)++;
    return vx_ok();
}

static void tells_where_from_the_outside_in(void **state)
{
    (void)state;
    int after = 0;
    vx_status s = passes_on(&after);
    assert_int_equal(s.code, VX_ERR_TENSOR_SHAPE);
    assert_string_equal(s.message, "block 17: a.safetensors: 'x' is [8, 4]");
    assert_int_equal(after, 0);
    assert_string_equal(vx_within(vx_ok(), "nowhere").message, "");
}

static void cuts_long_messages_at_a_character(void **state)
{
    (void)state;
    char text[2000];
    // Every offset of a 3-byte character against the end of the message.
    for (int shift = 0; shift < 4; shift++) {
        vx_str s = { 0 };
        for (int i = 0; i < shift; i++) vx_str_put(&s, "a", 1);
        while (s.size < 900) vx_str_put(&s, "\xE6\x97\xA5", 3);
        snprintf(text, sizeof text, "%s", s.data);
        vx_str_free(&s);
        vx_status cut = vx_fail(VX_ERR_PROMPT, "%s", text);
        size_t size = strlen(cut.message);
        assert_true(size >= sizeof cut.message - 4 && size < sizeof cut.message);
        assert_true(vx_utf8_valid(cut.message, size, NULL));
        cut = vx_within(cut, "prompt");
        assert_true(vx_utf8_valid(cut.message, strlen(cut.message), NULL));
        assert_memory_equal(cut.message, "prompt: ", 8);
        cut = vx_fail_field(VX_ERR_PROMPT, text, "x");
        assert_true(vx_utf8_valid(cut.field, strlen(cut.field), NULL));
    }
}

static void maps_errno(void **state)
{
    (void)state;
    static const struct {
        int error;
        vx_code want;
    } cases[] = {
        { ENOSPC, VX_ERR_STORAGE_FULL }, { EDQUOT, VX_ERR_STORAGE_FULL }, { EFBIG, VX_ERR_STORAGE_FULL },
        { ENOMEM, VX_ERR_MEMORY },       { ENOENT, VX_ERR_INPUT_OPEN },   { EACCES, VX_ERR_INPUT_OPEN },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        vx_status s = vx_fail_errno(VX_ERR_INPUT_OPEN, cases[i].error, "cannot open '%s'", "x");
        assert_int_equal(s.code, cases[i].want);
        assert_memory_equal(s.message, "cannot open 'x': ", 17);
        assert_string_equal(s.message + 17, strerror(cases[i].error));
    }
}

static void exits_with_the_class_of_the_code(void **state)
{
    (void)state;
    static const struct {
        vx_code code;
        int want;
    } cases[] = {
        { VX_OK, 0 },
        { VX_ERR_INTERNAL, 1 },
        { VX_ERR_NOT_FINITE, 1 },
        { VX_ERR_USAGE, 2 },
        { VX_ERR_CONFIG, 3 },
        { VX_ERR_STORAGE_FULL, 4 },
        { VX_ERR_MEMORY_PLAN, 5 },
        { VX_ERR_DEVICE, 6 },
        { VX_ERR_INPUT_OPEN, 7 },
        { VX_ERR_CANCELLED, 130 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) assert_int_equal(vx_code_exit(cases[i].code), cases[i].want);
}

static void summarises_every_code(void **state)
{
    (void)state;
#define CHECK(name, number, text)                     \
    assert_string_equal(vx_code_summary(name), text); \
    assert_true(name == 8001 || (vx_code_exit(name) >= 1 && vx_code_exit(name) <= 7));
    VX_CODES(CHECK)
#undef CHECK
    assert_string_equal(vx_code_summary(VX_OK), "no error");
    assert_string_equal(vx_code_summary((vx_code)9999), "an unknown code");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carries_code_and_message),          cmocka_unit_test(carries_field_and_remedy),
        cmocka_unit_test(memory_and_devices_have_a_remedy),  cmocka_unit_test(tells_where_from_the_outside_in),
        cmocka_unit_test(cuts_long_messages_at_a_character), cmocka_unit_test(maps_errno),
        cmocka_unit_test(exits_with_the_class_of_the_code),  cmocka_unit_test(summarises_every_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
