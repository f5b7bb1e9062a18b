#include "testing.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "scratch.h"

static vx_status parse(json_t **out, const char *text, int depth)
{
    return vx_json_parse(out, text, strlen(text), depth, VX_ERR_CONFIG, "config.json");
}

static void keeps_64_bit_integers(void **state)
{
    (void)state;
    json_t *root;
    int64_t value;
    assert_ok(parse(&root, "{\"low\": -9223372036854775808, \"high\": 9223372036854775807, \"odd\": 9007199254740993}", 4));
    assert_ok(vx_json_int(root, "low", NULL, &value, "x"));
    assert_true(value == INT64_MIN);
    assert_ok(vx_json_int(root, "high", NULL, &value, "x"));
    assert_true(value == INT64_MAX);
    assert_ok(vx_json_int(root, "odd", NULL, &value, "x")); // 2^53 + 1: no double holds it
    assert_true(value == INT64_C(9007199254740993));
    json_decref(root);
}

// Each with a part of the message.
static void refuses_what_is_not_strict_json(void **state)
{
    (void)state;
    static const struct {
        const char *text, *mentions;
    } cases[] = {
        { "", "line 1" },
        { "{", "line 1" },
        { "{}{}", "line 1" },
        { "[1,]", "line 1" },
        { "{\"a\":1,}", "line 1" },
        { "{'a':1}", "line 1" },
        { "\n\n {\"a\" 1}", "line 3, column" },
        { "{\"a\":1,\n\"b\":2,\n\"a\":3}", "line 3" },
        { "{\"x\":{\"head_dim\":1,\"head_dim\":1}}", "head_dim" },
        { "[9223372036854775808]", "too big" },
        { "[-9223372036854775809]", "too " },
        { "[1e999]", "line 1" },
        { "[NaN]", "line 1" },
        { "[Infinity]", "line 1" },
        { "[01]", "line 1" },
        { "[+1]", "line 1" },
        { "[.5]", "line 1" },
        { "[\"\xFF\"]", "0xff" },
        { "[\"\\ud800\"]", "line 1" },
        { "[\"\\u0000\"]", "line 1" },
        { "[\"a\nb\"]", "line 1" },
        { "\xEF\xBB\xBF{}", "line 1" },
        { "5", "line 1" },
        { "[1] // comment", "line 1" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *root = (json_t *)&root;
        vx_status s = parse(&root, cases[i].text, 8);
        if (s.code != VX_ERR_CONFIG || root) fail_msg("'%s': VX-%d", cases[i].text, (int)s.code);
        assert_memory_equal(s.message, "config.json: ", 13);
        assert_mentions(s, cases[i].mentions);
    }
    json_t *root;
    assert_code(vx_json_parse(&root, "{", 1, 8, VX_ERR_TOKENIZER, "t"), VX_ERR_TOKENIZER);
}

static void reads_no_further_than_its_size(void **state)
{
    (void)state;
    json_t *root;
    assert_ok(vx_json_parse(&root, "[1]]]", 3, 8, VX_ERR_CONFIG, "x"));
    json_decref(root);
    assert_ok(vx_json_parse(&root, "{\"a\":1}      ", 13, 8, VX_ERR_CONFIG, "x")); // safetensors pads with blanks
    json_decref(root);
    assert_code(vx_json_parse(&root, "[\"\\", 3, 8, VX_ERR_CONFIG, "x"), VX_ERR_CONFIG);
    assert_code(vx_json_parse(&root, "[1]\0", 4, 8, VX_ERR_CONFIG, "x"), VX_ERR_CONFIG);
}

static void limits_nesting(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int depth;
        vx_code want;
    } cases[] = {
        { "[[[]]]", 3, VX_OK },
        { "[[[]]]", 2, VX_ERR_CONFIG },
        { "{\"a\":[{\"b\":1}]}", 3, VX_OK },
        { "{\"a\":[{\"b\":1}]}", 2, VX_ERR_CONFIG },
        { "[[],[],[],[],[]]", 2, VX_OK },         // closed ones do not count
        { "[\"[[[[[[{{{{\"]", 1, VX_OK },         // nor those in strings
        { "[\"\\\"[[[[\", \"\\\\\"]", 1, VX_OK }, // nor after an escaped quote
        { "[\"\\\\\",[1]]", 1, VX_ERR_CONFIG },   // an escaped backslash escapes no quote
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *root;
        vx_status s = parse(&root, cases[i].text, cases[i].depth);
        if (s.code != cases[i].want) fail_msg("%s: VX-%d %s", cases[i].text, (int)s.code, s.message);
        json_decref(root);
    }
    json_t *root;
    vx_status s = parse(&root, "[\n[\n[", 2);
    assert_string_equal(s.message, "config.json: line 3: JSON nested deeper than 2 levels");
}

static void survives_a_million_brackets(void **state)
{
    (void)state;
    static const size_t counts[] = { 3000, 1000000 };
    for (size_t i = 0; i < 2; i++) {
        char *text = vx_alloc(counts[i]);
        json_t *root;
        for (size_t k = 0; k < counts[i]; k++) text[k] = k % 2 ? '[' : '{';
        vx_status s = vx_json_parse(&root, text, counts[i], 64, VX_ERR_CONFIG, "x");
        assert_int_equal(s.code, VX_ERR_CONFIG);
        assert_mentions(s, "64");
        memset(text, '[', counts[i]);
        assert_code(vx_json_parse(&root, text, counts[i], 64, VX_ERR_CONFIG, "x"), VX_ERR_CONFIG);
        vx_free(text);
    }
}

static const char members[] =
    "{\"i\": 7, \"r\": 7.0, \"half\": 0.5, \"t\": true, \"f\": false, \"s\": \"text\", \"n\": null,"
    " \"a\": [1, 2, 3], \"mixed\": [1, 2.5], \"bad\": [1, \"2\"], \"large\": [1e300], \"o\": {}, \"e\": []}";

static void takes_members_of_the_right_type(void **state)
{
    (void)state;
    json_t *root;
    int64_t i;
    double d;
    bool b;
    const char *s;
    assert_ok(parse(&root, members, 4));
    assert_ok(vx_json_int(root, "i", NULL, &i, "x"));
    assert_int_equal(i, 7);
    assert_ok(vx_json_number(root, "i", NULL, &d, "x"));
    assert_true(d == 7.0);
    assert_ok(vx_json_number(root, "half", NULL, &d, "x"));
    assert_true(d == 0.5);
    assert_ok(vx_json_bool(root, "t", NULL, &b, "x"));
    assert_true(b);
    assert_ok(vx_json_bool(root, "f", &(bool){ true }, &b, "x"));
    assert_false(b);
    assert_ok(vx_json_string(root, "s", NULL, &s, "x"));
    assert_string_equal(s, "text");
    json_decref(root);
}

static void falls_back_when_absent_or_null(void **state)
{
    (void)state;
    static const char *const keys[] = { "absent", "n" };
    json_t *root;
    assert_ok(parse(&root, members, 4));
    for (size_t k = 0; k < 2; k++) {
        int64_t i;
        double d;
        bool b;
        const char *s;
        assert_ok(vx_json_int(root, keys[k], &(int64_t){ 3 }, &i, "x"));
        assert_int_equal(i, 3);
        assert_ok(vx_json_number(root, keys[k], &(double){ 1.5 }, &d, "x"));
        assert_true(d == 1.5);
        assert_ok(vx_json_bool(root, keys[k], &(bool){ true }, &b, "x"));
        assert_true(b);
        assert_ok(vx_json_string(root, keys[k], "else", &s, "x"));
        assert_string_equal(s, "else");
    }
    json_decref(root);
}

static void names_file_and_key_of_a_wrong_member(void **state)
{
    (void)state;
    json_t *root;
    assert_ok(parse(&root, members, 4));
    int64_t i, is[3];
    double d;
    bool b;
    const char *s;
    float fs[3];
    const int64_t zero = 0;
    const struct {
        vx_status status;
        const char *want;
    } cases[] = {
        { vx_json_int(root, "absent", NULL, &i, "c.json"), "c.json: 'absent' is missing" },
        { vx_json_int(root, "n", NULL, &i, "c.json"), "c.json: 'n' is null, expected an integer" },
        { vx_json_int(root, "r", NULL, &i, "c.json"), "c.json: 'r' is a number with a fraction, expected an integer" },
        { vx_json_int(root, "s", &zero, &i, "c.json"), "c.json: 's' is a string, expected an integer" },
        { vx_json_number(root, "t", NULL, &d, "c.json"), "c.json: 't' is a boolean, expected a number" },
        { vx_json_bool(root, "i", NULL, &b, "c.json"), "c.json: 'i' is an integer, expected true or false" },
        { vx_json_string(root, "o", NULL, &s, "c.json"), "c.json: 'o' is an object, expected a string" },
        { vx_json_ints(root, "i", is, 3, 3, NULL, "c.json"), "c.json: 'i' is an integer, expected an array of numbers" },
        { vx_json_ints(root, "a", is, 3, 2, NULL, "c.json"), "c.json: 'a' has 3 numbers, expected 2" },
        { vx_json_ints(root, "a", is, 2, -1, NULL, "c.json"), "c.json: 'a' has 3 numbers, expected at most 2" },
        { vx_json_ints(root, "mixed", is, 3, -1, NULL, "c.json"),
          "c.json: 'mixed'[1] is a number with a fraction, expected an integer" },
        { vx_json_floats(root, "bad", fs, 3, -1, NULL, "c.json"), "c.json: 'bad'[1] is a string, expected a number" },
        { vx_json_floats(root, "large", fs, 3, -1, NULL, "c.json"),
          "c.json: 'large'[0] is 1e+300, too large for a 32-bit float" },
        { vx_json_floats(root, "absent", fs, 3, -1, NULL, "c.json"), "c.json: 'absent' is missing" },
        { vx_json_int(json_object_get(root, "a"), "i", &zero, &i, "c.json"), "c.json: expected an object with 'i'" },
        { vx_json_int(NULL, "i", &zero, &i, "c.json"), "c.json: expected an object with 'i'" },
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        assert_int_equal(cases[k].status.code, VX_ERR_CONFIG);
        assert_string_equal(cases[k].status.message, cases[k].want);
    }
    json_decref(root);
}

static void takes_lists(void **state)
{
    (void)state;
    json_t *root;
    int64_t is[4];
    float fs[4];
    int found = -1;
    assert_ok(parse(&root, members, 4));
    assert_ok(vx_json_ints(root, "a", is, 4, -1, &found, "x"));
    assert_true(found == 3 && is[0] == 1 && is[1] == 2 && is[2] == 3);
    assert_ok(vx_json_ints(root, "a", is, 3, 3, &found, "x"));
    assert_ok(vx_json_ints(root, "e", is, 0, 0, &found, "x"));
    assert_int_equal(found, 0);
    assert_ok(vx_json_floats(root, "mixed", fs, 4, 2, NULL, "x"));
    assert_true(fs[0] == 1.0f && fs[1] == 2.5f);
    json_decref(root);
}

static void reads_files(void **state)
{
    (void)state;
    scratch s = scratch_create();
    json_t *root;
    scratch_file(&s, "a.json", "{\"a\": 1}", 8);
    assert_ok(vx_json_read(&root, s.path, 100, 4, VX_ERR_CONFIG));
    json_decref(root);
    assert_code(vx_json_read(&root, s.path, 7, 4, VX_ERR_CONFIG), VX_ERR_FILE_LIMIT);
    assert_null(root);
    assert_code(vx_json_read(&root, scratch_path(&s, "none"), 7, 4, VX_ERR_MODEL_OPEN), VX_ERR_MODEL_OPEN);
    scratch_file(&s, "b.json", "{\"a\": 1,\n \"a\": 1}", 18);
    vx_status status = vx_json_read(&root, s.path, 100, 4, VX_ERR_INDEX);
    assert_int_equal(status.code, VX_ERR_INDEX);
    assert_mentions(status, "b.json");
    assert_mentions(status, "\"a\"");
    scratch_path(&s, "a.json");
    for (int k = 1, hit = 1; hit; k++) {
        vx_fault_arm(k, true);
        status = vx_json_read(&root, s.path, 100, 4, VX_ERR_CONFIG);
        hit = vx_fault_disarm();
        assert_int_equal(status.code, hit ? VX_ERR_MEMORY : VX_OK);
        json_decref(root);
    }
    scratch_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_64_bit_integers),
        cmocka_unit_test(refuses_what_is_not_strict_json),
        cmocka_unit_test(reads_no_further_than_its_size),
        cmocka_unit_test(limits_nesting),
        cmocka_unit_test(survives_a_million_brackets),
        cmocka_unit_test(takes_members_of_the_right_type),
        cmocka_unit_test(falls_back_when_absent_or_null),
        cmocka_unit_test(names_file_and_key_of_a_wrong_member),
        cmocka_unit_test(takes_lists),
        cmocka_unit_test(reads_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
