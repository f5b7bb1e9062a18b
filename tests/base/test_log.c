#include "testing.h"

#include <time.h>

#include "base/clock.h"
#include "base/log.h"

typedef struct heard {
    int count;
    vx_log_level level;
    char text[4096];
} heard;

static void hear(void *user, vx_log_level level, const char *text)
{
    heard *h = user;
    h->count++;
    h->level = level;
    snprintf(h->text, sizeof h->text, "%s", text);
}

static void passes_text_and_level_to_the_sink(void **state)
{
    (void)state;
    heard h = { 0 };
    vx_log_set(hear, &h);
    vx_log(VX_LOG_WARNING, "%d of %s", 3, "four");
    assert_int_equal(h.count, 1);
    assert_int_equal(h.level, VX_LOG_WARNING);
    assert_string_equal(h.text, "3 of four");
}

static void cuts_what_is_too_long(void **state)
{
    (void)state;
    heard h = { 0 };
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    vx_log_set(hear, &h);
    vx_log(VX_LOG_DEBUG, "%s", text);
    assert_true(strlen(h.text) >= 800 && strlen(h.text) < sizeof text);
}

static void is_silent_without_a_sink(void **state)
{
    (void)state;
    vx_log_set(NULL, NULL);
    vx_log(VX_LOG_ERROR, "nobody hears");
}

static void clock_counts_seconds(void **state)
{
    (void)state;
    double before = vx_clock_s();
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    double passed = vx_clock_s() - before;
    assert_true(passed >= 0.02 && passed < 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_text_and_level_to_the_sink),
        cmocka_unit_test(cuts_what_is_too_long),
        cmocka_unit_test(is_silent_without_a_sink),
        cmocka_unit_test(clock_counts_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
