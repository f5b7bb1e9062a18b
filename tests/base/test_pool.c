#include "testing.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/pool.h"

enum { MOST_PIECES = 5000 };

// Stands before libc's: makes the k-th start of a thread fail.
static int fail_start = -1;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (fail_start > 0 && --fail_start == 0) return 11; // EAGAIN
    create_fn real;
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attributes, start, argument);
}

typedef struct seen {
    int threads;
    atomic_int times[MOST_PIECES];
    atomic_int outside;            // pieces run under a worker number that does not exist
    atomic_int inside[16], shared; // workers in use by two threads at once
} seen;

static void see(void *ctx, int64_t piece, int worker)
{
    seen *s = ctx;
    if (worker < 0 || worker >= s->threads) {
        atomic_fetch_add(&s->outside, 1);
        return;
    }
    if (atomic_fetch_add(&s->inside[worker], 1) != 0) atomic_fetch_add(&s->shared, 1);
    atomic_fetch_add(&s->times[piece], 1);
    atomic_fetch_sub(&s->inside[worker], 1);
}

static void runs_every_piece_exactly_once(void **state)
{
    (void)state;
    static const int threads[] = { 1, 2, 4, 7 };
    static const int64_t pieces[] = { 0, 1, 2, 3, 7, 64, MOST_PIECES };
    static seen s;
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
        vx_pool *pool;
        assert_ok(vx_pool_create(&pool, threads[t]));
        assert_int_equal(vx_pool_threads(pool), threads[t]);
        for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
            memset(&s, 0, sizeof s);
            s.threads = threads[t];
            vx_pool_run(pool, pieces[p], see, &s);
            for (int64_t i = 0; i < MOST_PIECES; i++) assert_int_equal(s.times[i], i < pieces[p]);
            assert_int_equal(s.outside, 0);
            assert_int_equal(s.shared, 0);
        }
        vx_pool_destroy(&pool);
        assert_null(pool);
    }
}

typedef struct plain {
    int64_t pieces;
    int64_t value[16]; // written by whoever runs the piece, read by the caller: the pool orders them
} plain;

static void write_square(void *ctx, int64_t piece, int worker)
{
    (void)worker;
    plain *p = ctx;
    p->value[piece] += piece * p->pieces;
}

static void serves_ten_thousand_jobs(void **state)
{
    (void)state;
    static const int threads[] = { 2, 4, 7 };
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
        vx_pool *pool;
        assert_ok(vx_pool_create(&pool, threads[t]));
        for (int run = 0; run < 10000; run++) {
            plain p = { .pieces = run % 17 };
            vx_pool_run(pool, p.pieces, write_square, &p);
            for (int64_t i = 0; i < 16; i++)
                if (p.value[i] != (i < p.pieces ? i * p.pieces : 0)) fail_msg("run %d, piece %d", run, (int)i);
            if (run % 2500 == 0) sched_yield(), usleep(200); // workers fall asleep
        }
        vx_pool_destroy(&pool);
    }
}

static void nothing(void *ctx, int64_t piece, int worker)
{
    (void)ctx, (void)piece, (void)worker;
}

static void ends_at_any_moment(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        vx_pool *pool;
        assert_ok(vx_pool_create(&pool, 4));
        for (int k = 0; k < i % 5; k++) vx_pool_run(pool, 8, nothing, NULL);
        vx_pool_destroy(&pool);
    }
    vx_pool *none = NULL;
    vx_pool_destroy(&none);
}

static void meet(void *ctx, int64_t piece, int worker)
{
    (void)piece, (void)worker;
    atomic_int *arrived = ctx;
    atomic_fetch_add(arrived, 1);
    for (int i = 0; i < 10000 && atomic_load(arrived) < 4; i++) usleep(1000);
}

// Each of four pieces waits for the other three: with fewer threads at work it would last ten seconds and end short.
static void runs_pieces_at_the_same_time(void **state)
{
    (void)state;
    vx_pool *pool;
    assert_ok(vx_pool_create(&pool, 4));
    for (int i = 0; i < 20; i++) {
        atomic_int arrived = 0;
        vx_pool_run(pool, 4, meet, &arrived);
        assert_int_equal(arrived, 4);
        if (i % 5 == 0) usleep(2000);
    }
    vx_pool_destroy(&pool);
}

static void counts_the_processors_it_may_use(void **state)
{
    (void)state;
    cpu_set_t all, one;
    vx_pool *pool;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_ok(vx_pool_create(&pool, 0));
    assert_int_equal(vx_pool_threads(pool), CPU_COUNT(&all));
    vx_pool_destroy(&pool);
    int first = 0;
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return;
    assert_ok(vx_pool_create(&pool, 0));
    assert_int_equal(vx_pool_threads(pool), 1);
    vx_pool_destroy(&pool);
    sched_setaffinity(0, sizeof all, &all);
}

static void refuses_impossible_numbers_of_threads(void **state)
{
    (void)state;
    static const int threads[] = { -1, 4097, 1 << 30 };
    for (size_t i = 0; i < 3; i++) {
        vx_pool *pool = (vx_pool *)&pool;
        assert_code(vx_pool_create(&pool, threads[i]), VX_ERR_RANGE);
        assert_null(pool);
    }
}

static void cleans_up_when_it_cannot_start(void **state)
{
    (void)state;
    vx_pool *pool;
    for (int k = 1, hit = 1; hit; k++) {
        vx_fault_arm(k, false);
        vx_status s = vx_pool_create(&pool, 3);
        hit = vx_fault_disarm();
        assert_int_equal(s.code, hit ? VX_ERR_MEMORY : VX_OK);
        assert_int_equal(pool == NULL, hit);
        vx_pool_destroy(&pool);
    }
    for (int k = 1; k <= 3; k++) {
        fail_start = k;
        vx_status s = vx_pool_create(&pool, 4);
        fail_start = -1;
        assert_int_equal(s.code, VX_ERR_MEMORY);
        assert_non_null(strstr(s.message, "worker thread"));
        assert_true(s.remedy[0]);
        assert_null(pool);
    }
}

typedef struct masks {
    atomic_int wrong, workers;
} masks;

static void look_at_mask(void *ctx, int64_t piece, int worker)
{
    masks *m = ctx;
    sigset_t set;
    (void)piece;
    usleep(1000); // so that others get pieces
    if (worker == 0) return;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    atomic_fetch_add(&m->workers, 1);
    if (!sigismember(&set, SIGINT) || !sigismember(&set, SIGTERM) || sigismember(&set, SIGBUS) || sigismember(&set, SIGSEGV))
        atomic_fetch_add(&m->wrong, 1);
}

static void leaves_signals_to_the_caller(void **state)
{
    (void)state;
    vx_pool *pool;
    sigset_t set;
    masks m = { 0 };
    assert_ok(vx_pool_create(&pool, 4));
    for (int i = 0; i < 100 && m.workers == 0; i++) vx_pool_run(pool, 16, look_at_mask, &m);
    vx_pool_destroy(&pool);
    assert_true(m.workers > 0);
    assert_int_equal(m.wrong, 0);
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    assert_false(sigismember(&set, SIGINT)); // the caller's own mask is as before
}

static void allocates_nothing_in_a_run(void **state)
{
    (void)state;
    vx_pool *pool;
    assert_ok(vx_pool_create(&pool, 4));
    uint64_t before = vx_alloc_calls();
    for (int i = 0; i < 100; i++) vx_pool_run(pool, 50, nothing, NULL);
    assert_int_equal(vx_alloc_calls(), before);
    vx_pool_destroy(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_every_piece_exactly_once),
        cmocka_unit_test(serves_ten_thousand_jobs),
        cmocka_unit_test(ends_at_any_moment),
        cmocka_unit_test(runs_pieces_at_the_same_time),
        cmocka_unit_test(counts_the_processors_it_may_use),
        cmocka_unit_test(refuses_impossible_numbers_of_threads),
        cmocka_unit_test(cleans_up_when_it_cannot_start),
        cmocka_unit_test(leaves_signals_to_the_caller),
        cmocka_unit_test(allocates_nothing_in_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
