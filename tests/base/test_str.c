#include "testing.h"

#include "base/alloc.h"
#include "base/str.h"

static void builds_text_of_any_length(void **state)
{
    (void)state;
    vx_str s = { 0 };
    for (int i = 0; i < 1000; i++) vx_str_print(&s, "%d,", i);
    vx_str_put(&s, "\0end", 4); // bytes, not strings
    assert_int_equal(s.size, 10 * 2 + 90 * 3 + 900 * 4 + 4);
    assert_int_equal(s.data[s.size], 0);
    assert_memory_equal(s.data, "0,1,2,3,", 8);
    assert_memory_equal(s.data + s.size - 8, "999,\0end", 8);
    char *text = vx_str_take(&s);
    assert_true(s.data == NULL && s.size == 0 && s.capacity == 0 && !s.failed);
    vx_free(text);
}

static void takes_an_empty_string(void **state)
{
    (void)state;
    vx_str s = { 0 };
    vx_str_put(&s, NULL, 0);
    vx_str_print(&s, "%s", "");
    assert_null(s.data);
    char *text = vx_str_take(&s);
    assert_string_equal(text, "");
    vx_free(text);
    vx_str_free(&s);
}

static void stays_empty_once_memory_ran_out(void **state)
{
    (void)state;
    // Allocation 1 is the first 64 bytes, 2 and later are growth.
    for (int k = 1; k <= 4; k++) {
        vx_str s = { 0 };
        vx_fault_arm(k, false);
        for (int i = 0; i < 100; i++) vx_str_print(&s, "line %d\n", i);
        assert_true(vx_fault_disarm());
        assert_true(s.failed && s.size == 0 && s.data == NULL);
        vx_str_put(&s, "more", 4);
        assert_null(s.data);
        assert_null(vx_str_take(&s));
        vx_str_put(&s, "new", 3); // taken: starts afresh
        assert_string_equal(s.data, "new");
        vx_str_free(&s);
    }
}

static void compares_ends(void **state)
{
    (void)state;
    assert_true(vx_has_prefix("model.safetensors", "model"));
    assert_true(vx_has_prefix("x", ""));
    assert_false(vx_has_prefix("mod", "model"));
    assert_true(vx_has_suffix("model.safetensors", ".safetensors"));
    assert_true(vx_has_suffix("x", ""));
    assert_false(vx_has_suffix("ors", "tensors"));
    assert_false(vx_has_suffix("model.gguf", ".safetensors"));
}

static void joins_paths_with_one_slash(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *name, *want;
    } cases[] = {
        { "a", "b", "a/b" }, { "a/", "b", "a/b" }, { "a//", "b", "a/b" },       { "a", "/b", "a/b" }, { "/", "b", "/b" },
        { "", "b", "b" },    { "/a", "", "/a/" },  { "a/b", "c/d", "a/b/c/d" }, { ".", "b", "./b" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *path = vx_path_join(cases[i].folder, cases[i].name);
        assert_string_equal(path, cases[i].want);
        vx_free(path);
    }
    vx_fault_arm(1, true);
    assert_null(vx_path_join("a", "b"));
    vx_fault_disarm();
}

static void finds_the_name_in_a_path(void **state)
{
    (void)state;
    assert_string_equal(vx_path_name("a/b/c.mp4"), "c.mp4");
    assert_string_equal(vx_path_name("c.mp4"), "c.mp4");
    assert_string_equal(vx_path_name("/c"), "c");
    assert_string_equal(vx_path_name("a/"), "");
}

// Expected offsets: UnicodeDecodeError.start of Python's bytes.decode("utf-8"); -1: decodes.
static void tells_utf8_from_other_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *says, *bytes;
        size_t size;
        int bad;
    } cases[] = {
        { "empty", "", 0, -1 },
        { "ASCII with NUL", "a\0b", 3, -1 },
        { "lowest and highest of two bytes", "\xC2\x80\xDF\xBF", 4, -1 },
        { "lowest and highest of three bytes", "\xE0\xA0\x80\xEF\xBF\xBF", 6, -1 },
        { "around the surrogates", "\xED\x9F\xBF\xEE\x80\x80", 6, -1 },
        { "lowest and highest of four bytes", "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF", 8, -1 },
        { "a byte order mark",
          "\xEF\xBB\xBF"
          "a",
          4, -1 },
        { "a continuation alone", "a\x80", 2, 1 },
        { "overlong NUL", "\xC0\x80", 2, 0 },
        { "overlong slash in two bytes", "\xC1\xAF", 2, 0 },
        { "overlong in three bytes", "\xE0\x9F\xBF", 3, 0 },
        { "overlong in four bytes", "\xF0\x8F\xBF\xBF", 4, 0 },
        { "first surrogate", "ab\xED\xA0\x80", 5, 2 },
        { "last surrogate", "\xED\xBF\xBF", 3, 0 },
        { "above U+10FFFF", "\xF4\x90\x80\x80", 4, 0 },
        { "five bytes", "\xF8\x88\x80\x80\x80", 5, 0 },
        { "0xFF", "abc\xFF", 4, 3 },
        { "cut after one of two", "a\xC3", 2, 1 },
        { "cut after two of three", "\xE6\x97", 2, 0 },
        { "cut after three of four", "\xF0\x9F\x98", 3, 0 },
        { "second byte missing",
          "\xE6"
          "a\x97",
          3, 0 },
        { "third byte missing",
          "\xE6\x97"
          "a",
          3, 0 },
        { "fourth byte missing",
          "\xF0\x9F\x98"
          "a",
          4, 0 },
        { "two leads", "\xC3\xC3\xA9", 3, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t bad = 99;
        bool valid = vx_utf8_valid(cases[i].bytes, cases[i].size, &bad);
        if (valid != (cases[i].bad < 0) || (!valid && (int)bad != cases[i].bad))
            fail_msg("%s: %d at %zu", cases[i].says, valid, bad);
        vx_utf8_valid(cases[i].bytes, cases[i].size, NULL);
    }
}

// Every scalar value encodes to what is accepted, and nothing of four bytes beyond those is: 0x10FFFF + 1 - 2048 surrogates.
static void accepts_exactly_the_scalar_values(void **state)
{
    (void)state;
    int accepted = 0;
    for (unsigned long first = 0xC0; first < 0x100; first++)
        for (unsigned long rest = 0; rest < 1UL << 18; rest++) {
            char s[4] = { (char)first, (char)(0x80 | rest >> 12), (char)(0x80 | (rest >> 6 & 63)), (char)(0x80 | (rest & 63)) };
            size_t size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
            if (rest & ((1UL << 6 * (4 - size)) - 1)) continue; // the bytes that a shorter sequence does not have
            accepted += vx_utf8_valid(s, size, NULL);
        }
    assert_int_equal(accepted, 0x110000 - 2048 - 128);
}

static void writes_sizes_for_people(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *want;
    } cases[] = {
        { 0, "0 bytes" },
        { 1, "1 byte" },
        { 1023, "1023 bytes" },
        { 1024, "1.0 KiB" },
        { 1536, "1.5 KiB" },
        { 1048524, "1023.9 KiB" }, // 1023.949
        { 1048525, "1.0 MiB" },    // 1023.9502, which rounds to 1024.0
        { UINT64_C(1) << 30, "1.0 GiB" },
        { UINT64_C(1610612736), "1.5 GiB" },
        { UINT64_C(150323855360), "140.0 GiB" },
        { UINT64_C(3) << 40, "3.0 TiB" },
        { UINT64_C(7) << 49, "3.5 PiB" },
        { UINT64_C(1) << 62, "4.0 EiB" },
        { UINT64_MAX, "16.0 EiB" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[24];
        assert_string_equal(vx_bytes_text(text, cases[i].bytes), cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builds_text_of_any_length),       cmocka_unit_test(takes_an_empty_string),
        cmocka_unit_test(stays_empty_once_memory_ran_out), cmocka_unit_test(compares_ends),
        cmocka_unit_test(joins_paths_with_one_slash),      cmocka_unit_test(finds_the_name_in_a_path),
        cmocka_unit_test(tells_utf8_from_other_bytes),     cmocka_unit_test(accepts_exactly_the_scalar_values),
        cmocka_unit_test(writes_sizes_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
