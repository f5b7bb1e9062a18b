// A pool whose workers join a job and are not waited for unless they did.
//
// One word tells everything about the present job: its number, whether it is open, and how many workers are in it.
//
//     63           32 31   30                0
//     +--------------+----+------------------+
//     | job number   |open| workers inside   |
//     +--------------+----+------------------+
//
// run     writes the job's fields, then stores number+1, open, 0 inside: nobody reads the fields before that store.
// worker  enters by compare-and-swap (inside + 1) only while the job is open and new to it; leaves by subtracting 1.
// run     works too; when no piece is left it clears `open` and waits until nobody is inside. From then on nobody reads
//         the fields, so the next run may write them. A worker that wakes too late finds the job closed and holds up nobody.
//
// Sleeping goes through the mutex. Each side announces that it sleeps before it looks at the word a last time, and the
// other changes the word before it looks for sleepers, all in sequentially consistent order: one of them sees the other.
#include "base/pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"

#define JOB_OPEN   (UINT64_C(1) << 31)
#define JOB_INSIDE (JOB_OPEN - 1)

// Operators follow each other within microseconds and waking a thread costs several, so both sides look again for a while.
static const double SPIN_S = 5e-6;
enum { MOST_THREADS = 4096 };

typedef struct worker {
    struct vx_pool *pool;
    pthread_t thread;
    int index;
} worker;

struct vx_pool {
    int threads, started;
    bool spin;
    worker *workers; // [threads - 1]
    pthread_mutex_t mutex;
    pthread_cond_t wake, finished;
    atomic_int sleepers;
    atomic_bool caller_sleeps, stop;
    atomic_uint_fast64_t job;
    vx_pool_fn fn;
    void *ctx;
    int64_t pieces;
    // All workers write `next`, all read the rest: apart, so that a claimed piece does not take the rest from their caches.
    char apart[64];
    atomic_int_fast64_t next;
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static bool is_new(uint64_t job, uint64_t last)
{
    return (job & JOB_OPEN) && job >> 32 != last;
}

static void work(vx_pool *pool, int index)
{
    for (;;) {
        int64_t piece = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (piece >= pool->pieces) return;
        pool->fn(pool->ctx, piece, index);
    }
}

static void leave(vx_pool *pool)
{
    uint64_t before = atomic_fetch_sub(&pool->job, 1);
    if ((before & JOB_OPEN) || (before & JOB_INSIDE) != 1 || !atomic_load(&pool->caller_sleeps)) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_signal(&pool->finished);
    pthread_mutex_unlock(&pool->mutex);
}

// Returns when there is a job that is not `last`, or the pool ends.
static void wait_for_job(vx_pool *pool, uint64_t last)
{
    if (pool->spin) {
        double until = vx_clock_s() + SPIN_S;
        do {
            for (int i = 0; i < 16; i++) {
                if (is_new(atomic_load(&pool->job), last)) return;
                relax();
            }
        } while (vx_clock_s() < until);
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1);
    while (!atomic_load(&pool->stop) && !is_new(atomic_load(&pool->job), last)) pthread_cond_wait(&pool->wake, &pool->mutex);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *argument)
{
    worker *self = argument;
    vx_pool *pool = self->pool;
    uint64_t last = 0;
    while (!atomic_load(&pool->stop)) {
        uint64_t job = atomic_load(&pool->job);
        if (!is_new(job, last)) wait_for_job(pool, last);
        else if (atomic_compare_exchange_weak(&pool->job, &job, job + 1)) {
            last = job >> 32;
            work(pool, self->index);
            leave(pool);
        }
    }
    return NULL;
}

// Processors that this process may use; sched_getaffinity refuses a set that is too small for the machine.
static int processors(void)
{
    for (int capacity = 1024; capacity <= 1 << 20; capacity *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)capacity);
        if (!set) return 1;
        size_t size = CPU_ALLOC_SIZE((size_t)capacity);
        int error = sched_getaffinity(0, size, set) == 0 ? 0 : errno;
        int count = error ? 0 : CPU_COUNT_S(size, set);
        CPU_FREE(set);
        if (!error) return count > 0 ? count : 1;
        if (error != EINVAL) return 1;
    }
    return 1;
}

static vx_status start_workers(vx_pool *pool)
{
    vx_status s = vx_ok();
    for (; pool->started < pool->threads - 1; pool->started++) {
        worker *w = &pool->workers[pool->started];
        *w = (worker){ .pool = pool, .index = pool->started + 1 };
        char name[24]; // of which 11 are used: at most 4096 threads
        snprintf(name, sizeof name, "vortex-%d", w->index);
        int error = vx_thread_start(&w->thread, name, worker_main, w);
        if (error) {
            // EAGAIN stands for memory and for the limit on processes alike.
            s = vx_fail_errno(VX_ERR_MEMORY, error, "cannot start worker thread %d of %d", w->index, pool->threads - 1);
            s = vx_remedy(s, "use fewer threads, or raise the limit on processes (ulimit -u)");
            break;
        }
    }
    return s;
}

vx_status vx_pool_create(vx_pool **out, int threads)
{
    *out = NULL;
    if (threads < 0 || threads > MOST_THREADS)
        return vx_fail(VX_ERR_RANGE, "%d threads, expected 0 (one per processor) to %d", threads, MOST_THREADS);
    int available = processors();
    if (threads == 0) threads = available < MOST_THREADS ? available : MOST_THREADS;
    vx_pool *pool = vx_alloc_array(1, sizeof *pool);
    VX_NEED_MEMORY(pool, "a thread pool");
    pool->threads = threads;
    pool->spin = threads <= available; // more threads than processors: a spinning one keeps a working one from running
    pool->workers = vx_alloc_array((size_t)threads, sizeof *pool->workers);
    if (!pool->workers) {
        vx_free(pool);
        return vx_no_memory("for %d worker threads", threads);
    }
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->finished, NULL);
    vx_status s = start_workers(pool);
    if (s.code != VX_OK) vx_pool_destroy(&pool);
    *out = pool;
    return s;
}

void vx_pool_destroy(vx_pool **out)
{
    vx_pool *pool = *out;
    if (!pool) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->stop, true);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
    for (int i = 0; i < pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
    vx_free(pool->workers);
    vx_free(pool);
    *out = NULL;
}

int vx_pool_threads(const vx_pool *pool)
{
    return pool->threads;
}

// Wakes no more sleepers than there are pieces for.
static void wake_workers(vx_pool *pool, int64_t wanted)
{
    if (atomic_load(&pool->sleepers) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    if (wanted >= pool->threads - 1) pthread_cond_broadcast(&pool->wake);
    else
        for (int64_t i = 0; i < wanted; i++) pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

static void wait_until_empty(vx_pool *pool)
{
    if (pool->spin) {
        double until = vx_clock_s() + SPIN_S;
        do {
            for (int i = 0; i < 16; i++) {
                if ((atomic_load(&pool->job) & JOB_INSIDE) == 0) return;
                relax();
            }
        } while (vx_clock_s() < until);
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_sleeps, true);
    while ((atomic_load(&pool->job) & JOB_INSIDE) != 0) pthread_cond_wait(&pool->finished, &pool->mutex);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->mutex);
}

void vx_pool_run(vx_pool *pool, int64_t pieces, vx_pool_fn fn, void *ctx)
{
    if (pool->threads == 1 || pieces <= 1) {
        for (int64_t piece = 0; piece < pieces; piece++) fn(ctx, piece, 0);
        return;
    }
    pool->fn = fn;
    pool->ctx = ctx;
    pool->pieces = pieces;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    // The number wraps after 2^32 jobs: a worker asleep for exactly that many would sit out one job, no more.
    uint64_t number = (atomic_load(&pool->job) >> 32) + 1;
    atomic_store(&pool->job, number << 32 | JOB_OPEN);
    wake_workers(pool, pieces - 1);
    work(pool, 0);
    uint64_t before = atomic_fetch_and(&pool->job, ~JOB_OPEN);
    if ((before & JOB_INSIDE) != 0) wait_until_empty(pool);
}
