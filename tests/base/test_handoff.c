#include "testing.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/handoff.h"

enum { WORDS = 512, BYTES = WORDS * sizeof(int64_t) };

// Stands before libc's: refuses to start a thread.
static bool no_threads;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (no_threads) return 11; // EAGAIN
    create_fn real;
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attributes, start, argument);
}

static void nap(int milliseconds)
{
    nanosleep(&(struct timespec){ .tv_nsec = milliseconds * 1000000L }, NULL);
}

// The receiver writes plain members: the hand-over orders them.
typedef struct receiver {
    int64_t calls, next; // next: the piece that must come
    int slow;            // milliseconds a call, by turns
    int64_t fail_at;     // call that fails; 0: none
    pthread_t thread;
    bool wrong;
    atomic_bool inside, shut; // in the call; shut: it stays there
} receiver;

static vx_status take(void *user, int64_t first, int64_t count, const void *data)
{
    receiver *r = user;
    const int64_t *words = data;
    if (atomic_exchange(&r->inside, true)) r->wrong = true;
    r->calls++;
    if (first != r->next) r->wrong = true;
    r->next = first + count;
    r->thread = pthread_self();
    if (r->slow && r->calls % 3 == 0) nap(r->slow);
    while (atomic_load(&r->shut)) nap(1);
    for (int64_t i = 0; i < WORDS; i++)
        if (words[i] != first * WORDS + i) r->wrong = true;
    atomic_store(&r->inside, false);
    return r->calls == r->fail_at ? vx_fail(VX_ERR_STORAGE_FULL, "full at piece %lld", (long long)first) : vx_ok();
}

static vx_status make(vx_handoff *h, int64_t first, int64_t count)
{
    void *buffer;
    VX_TRY(vx_handoff_room(h, &buffer));
    int64_t *words = buffer;
    for (int64_t i = 0; i < WORDS; i++) words[i] = first * WORDS + i;
    vx_handoff_put(h, first, count);
    return vx_ok();
}

static void everything_arrives_once_in_order_on_one_other_thread(void **state)
{
    (void)state;
    static const int naps[][2] = { { 0, 0 }, { 2, 0 }, { 0, 2 } }; // receiver's, maker's
    for (size_t n = 0; n < sizeof naps / sizeof naps[0]; n++) {
        receiver r = { .slow = naps[n][0] };
        vx_handoff *h;
        assert_ok(vx_handoff_create(&h, BYTES, take, &r));
        int64_t first = 0, puts = 0;
        for (; puts < 60; puts++) {
            const int64_t count = 1 + puts % 4;
            assert_ok(make(h, first, count));
            first += count;
            if (naps[n][1] && puts % 3 == 0) nap(naps[n][1]);
        }
        assert_ok(vx_handoff_finish(h));
        assert_int_equal(r.calls, puts);
        assert_int_equal(r.next, first);
        assert_false(r.wrong);
        assert_false(pthread_equal(r.thread, pthread_self()));
        assert_ok(make(h, first, 1)); // finished is not ended
        assert_ok(vx_handoff_finish(h));
        assert_int_equal(r.calls, puts + 1);
        vx_handoff_destroy(&h);
        assert_null(h);
        vx_handoff_destroy(&h);
    }
}

static void *open_later(void *user)
{
    receiver *r = user;
    nap(50);
    atomic_store(&r->shut, false);
    return NULL;
}

// Two are on their way at most: the maker may run ahead by the buffers and no further.
static void the_maker_waits_for_room_and_is_told_how_long(void **state)
{
    (void)state;
    receiver r = { 0 };
    vx_handoff *h;
    atomic_store(&r.shut, true);
    assert_ok(vx_handoff_create(&h, BYTES, take, &r));
    assert_ok(make(h, 0, 1));
    assert_ok(make(h, 1, 1)); // while the first is being taken
    while (!atomic_load(&r.inside)) nap(1);
    pthread_t opener;
    const double before = vx_handoff_waited_s(h), began = vx_clock_s();
    assert_int_equal(pthread_create(&opener, NULL, open_later, &r), 0);
    assert_ok(make(h, 2, 1));
    assert_false(atomic_load(&r.shut)); // it came to this line by nothing else
    const double waited = vx_handoff_waited_s(h) - before;
    assert_true(waited > 0 && waited <= vx_clock_s() - began);
    assert_ok(vx_handoff_finish(h));
    pthread_join(opener, NULL);
    assert_int_equal(r.calls, 3);
    assert_false(r.wrong);
    vx_handoff_destroy(&h);
}

static void the_first_error_is_the_last_call(void **state)
{
    (void)state;
    for (int64_t fail_at = 1; fail_at <= 5; fail_at++) {
        receiver r = { .fail_at = fail_at };
        vx_handoff *h;
        assert_ok(vx_handoff_create(&h, BYTES, take, &r));
        vx_status s = vx_ok();
        int64_t puts = 0;
        for (; puts < 20 && s.code == VX_OK; puts++) s = make(h, puts, 1);
        assert_code(s, VX_ERR_STORAGE_FULL);
        assert_true(puts <= fail_at + 3); // not later than the buffers reach
        char want[64];
        snprintf(want, sizeof want, "full at piece %lld", (long long)fail_at - 1);
        assert_string_equal(s.message, want);
        s = vx_handoff_check(h);
        assert_string_equal(s.message, want);
        s = vx_handoff_finish(h);
        assert_string_equal(s.message, want);
        assert_code(make(h, puts, 1), VX_ERR_STORAGE_FULL);
        assert_int_equal(r.calls, fail_at);
        vx_handoff_destroy(&h);
    }
}

static void an_error_of_the_last_piece_is_found_by_finish(void **state)
{
    (void)state;
    receiver r = { .fail_at = 3 };
    vx_handoff *h;
    assert_ok(vx_handoff_create(&h, BYTES, take, &r));
    atomic_store(&r.shut, true);
    assert_ok(make(h, 0, 1));
    atomic_store(&r.shut, false);
    assert_ok(make(h, 1, 1));
    assert_ok(make(h, 2, 1));
    assert_code(vx_handoff_finish(h), VX_ERR_STORAGE_FULL);
    vx_handoff_destroy(&h);
}

static void ending_drops_what_waits_and_outlives_the_call_under_way(void **state)
{
    (void)state;
    receiver r = { 0 };
    vx_handoff *h;
    atomic_store(&r.shut, true);
    assert_ok(vx_handoff_create(&h, BYTES, take, &r));
    assert_ok(make(h, 0, 1));
    while (!atomic_load(&r.inside)) nap(1);
    assert_ok(make(h, 1, 1));
    pthread_t opener;
    assert_int_equal(pthread_create(&opener, NULL, open_later, &r), 0);
    vx_handoff_destroy(&h);
    assert_false(atomic_load(&r.inside));
    assert_int_equal(r.calls, 1);
    assert_false(r.wrong);
    pthread_join(opener, NULL);
}

static void without_memory_or_threads_there_is_an_error(void **state)
{
    (void)state;
    receiver r = { 0 };
    vx_handoff *h;
    for (int k = 1, hit = 1; hit; k++) {
        vx_fault_arm(k, false);
        vx_status s = vx_handoff_create(&h, BYTES, take, &r);
        hit = vx_fault_disarm();
        assert_code(s, hit ? VX_ERR_MEMORY : VX_OK);
        assert_true(hit ? !h : h != NULL);
        vx_handoff_destroy(&h);
    }
    no_threads = true;
    vx_status s = vx_handoff_create(&h, BYTES, take, &r);
    no_threads = false;
    assert_code(s, VX_ERR_MEMORY);
    assert_non_null(strstr(s.remedy, "ulimit -u"));
    assert_null(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_arrives_once_in_order_on_one_other_thread),
        cmocka_unit_test(the_maker_waits_for_room_and_is_told_how_long),
        cmocka_unit_test(the_first_error_is_the_last_call),
        cmocka_unit_test(an_error_of_the_last_piece_is_found_by_finish),
        cmocka_unit_test(ending_drops_what_waits_and_outlives_the_call_under_way),
        cmocka_unit_test(without_memory_or_threads_there_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
