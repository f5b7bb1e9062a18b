#include "testing.h"

#include "base/alloc.h"
#include "base/checked.h"

static void gives_distinct_pointers_for_nothing(void **state)
{
    (void)state;
    void *a = vx_alloc(0), *b = vx_alloc(0), *c = vx_alloc_array(0, 8), *d = vx_alloc_array(8, 0);
    assert_true(a && b && c && d && a != b && b != c && c != d);
    vx_free(a), vx_free(b), vx_free(c), vx_free(d);
    vx_free(NULL);
}

static void zeroes_arrays_and_refuses_overflow(void **state)
{
    (void)state;
    unsigned char *p = vx_alloc_array(100, 7);
    for (int i = 0; i < 700; i++) assert_int_equal(p[i], 0);
    vx_free(p);
    assert_null(vx_alloc_array(SIZE_MAX / 2 + 1, 2));
    assert_null(vx_alloc_array(SIZE_MAX, SIZE_MAX));
}

static void keeps_content_when_it_grows(void **state)
{
    (void)state;
    char *p = vx_realloc(NULL, 4);
    memcpy(p, "abc", 4);
    p = vx_realloc(p, 4000);
    assert_string_equal(p, "abc");
    p = vx_realloc(p, 0); // not a free
    assert_non_null(p);
    vx_free(p);
}

static void copies_strings(void **state)
{
    (void)state;
    char *a = vx_strdup("lighthouse"), *b = vx_strndup("lighthouse", 5), *c = vx_strndup("ab", 9);
    assert_string_equal(a, "lighthouse");
    assert_string_equal(b, "light");
    assert_string_equal(c, "ab");
    vx_free(a), vx_free(b), vx_free(c);
}

static void gives_zeroed_aligned_pages(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 4096, 4097, 5 << 20 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *p;
        uint64_t before = vx_alloc_calls();
        assert_ok(vx_pages_alloc(&p, sizes[i]));
        assert_int_equal(vx_alloc_calls(), before + 1);
        assert_int_equal((uintptr_t)p % 4096, 0);
        unsigned char *bytes = p;
        for (size_t k = 0; k < sizes[i]; k += 511) assert_int_equal(bytes[k], 0);
        memset(p, 1, sizes[i]);
        vx_pages_free(p, sizes[i]);
    }
    vx_pages_free(NULL, 4096);
}

static void refuses_more_pages_than_there_are(void **state)
{
    (void)state;
    static const size_t sizes[] = { SIZE_MAX, SIZE_MAX - 4096, (size_t)1 << 62 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *p = &p;
        assert_code(vx_pages_alloc(&p, sizes[i]), VX_ERR_MEMORY);
        assert_null(p);
    }
    void *p;
    assert_non_null(strstr(vx_pages_alloc(&p, (size_t)1 << 62).message, "4.0 EiB"));
}

static void counts_calls(void **state)
{
    (void)state;
    uint64_t before = vx_alloc_calls();
    void *p = vx_alloc(1);
    p = vx_realloc(p, 2);
    vx_free(p);
    vx_free(vx_strdup("x"));
    vx_free(vx_alloc_array(SIZE_MAX, 2)); // failed calls count
    assert_int_equal(vx_alloc_calls() - before, 4);
}

static void fails_the_kth_call_once(void **state)
{
    (void)state;
    for (int k = 1; k <= 4; k++) {
        vx_fault_arm(k, false);
        for (int call = 1; call <= 6; call++) {
            void *p = vx_alloc(8);
            assert_int_equal(p == NULL, call == k);
            vx_free(p);
        }
        assert_true(vx_fault_disarm());
    }
}

static void fails_the_kth_call_and_all_later_ones(void **state)
{
    (void)state;
    vx_fault_arm(2, true);
    void *a = vx_alloc(8), *b = vx_alloc_array(1, 1), *c = vx_realloc(NULL, 3), *d = vx_strdup("d"), *e;
    vx_status s = vx_pages_alloc(&e, 4096);
    assert_true(vx_fault_disarm());
    assert_non_null(a);
    assert_null(b);
    assert_null(c);
    assert_null(d);
    assert_null(e);
    assert_int_equal(s.code, VX_ERR_MEMORY);
    vx_free(a);
}

static void leaves_the_block_when_growing_fails(void **state)
{
    (void)state;
    char *p = vx_strdup("keep");
    vx_fault_arm(1, false);
    assert_null(vx_realloc(p, 1000));
    assert_true(vx_fault_disarm());
    assert_string_equal(p, "keep");
    vx_free(p);
}

static void says_when_no_fault_was_met(void **state)
{
    (void)state;
    vx_fault_arm(3, true);
    vx_free(vx_alloc(1));
    vx_free(vx_alloc(1));
    assert_false(vx_fault_disarm());
    void *p = vx_alloc(1);
    assert_non_null(p);
    vx_free(p);
}

static vx_status needs_memory(bool fail)
{
    if (fail) vx_fault_arm(1, false);
    void *p = vx_alloc_array(100, 7);
    (void)vx_fault_disarm();
    VX_NEED_MEMORY(p, "a thing");
    vx_free(p);
    return vx_ok();
}

static void names_what_had_no_memory(void **state)
{
    (void)state;
    assert_ok(needs_memory(false));
    vx_status s = needs_memory(true);
    assert_int_equal(s.code, VX_ERR_MEMORY);
    assert_string_equal(s.message, "no memory for a thing (700 bytes)");
    assert_null(vx_alloc_array(SIZE_MAX / 2, 3));
    assert_string_equal(vx_no_memory("to count %d", 3).message, "no memory to count 3 (18446744073709551615 bytes)");
}

static void checks_arithmetic(void **state)
{
    (void)state;
    size_t u = 5;
    int64_t i = 5;
    assert_false(vx_mul_size(SIZE_MAX / 3 + 1, 3, &u));
    assert_false(vx_add_size(SIZE_MAX, 1, &u));
    assert_int_equal(u, 5); // untouched
    assert_true(vx_mul_size(SIZE_MAX / 3, 3, &u) && u == SIZE_MAX / 3 * 3);
    assert_true(vx_add_size(SIZE_MAX - 1, 1, &u) && u == SIZE_MAX);
    assert_false(vx_mul_i64(INT64_MIN, -1, &i));
    assert_false(vx_mul_i64(INT64_C(1) << 32, INT64_C(1) << 31, &i));
    assert_int_equal(i, 5);
    assert_true(vx_mul_i64(INT64_C(-3), 7, &i) && i == -21);
    assert_int_equal(vx_ceil_div(0, 4), 0);
    assert_int_equal(vx_ceil_div(8, 4), 2);
    assert_int_equal(vx_ceil_div(9, 4), 3);
    assert_int_equal(vx_align_up(0, 64), 0);
    assert_int_equal(vx_align_up(1, 64), 64);
    assert_int_equal(vx_align_up(64, 64), 64);
    assert_int_equal(vx_min_i64(-1, 2), -1);
    assert_int_equal(vx_max_i64(-1, 2), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_distinct_pointers_for_nothing),
        cmocka_unit_test(zeroes_arrays_and_refuses_overflow),
        cmocka_unit_test(keeps_content_when_it_grows),
        cmocka_unit_test(copies_strings),
        cmocka_unit_test(gives_zeroed_aligned_pages),
        cmocka_unit_test(refuses_more_pages_than_there_are),
        cmocka_unit_test(counts_calls),
        cmocka_unit_test(fails_the_kth_call_once),
        cmocka_unit_test(fails_the_kth_call_and_all_later_ones),
        cmocka_unit_test(leaves_the_block_when_growing_fails),
        cmocka_unit_test(says_when_no_fault_was_met),
        cmocka_unit_test(names_what_had_no_memory),
        cmocka_unit_test(checks_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
