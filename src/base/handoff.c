// Two buffers between a maker and a worker, told apart by counting.
//
//   put   how many buffers were handed over       the maker alone changes it
//   taken how many of them the worker is through  the worker alone changes it
//
//     taken == put       nothing waits: the worker sleeps
//     taken == put - 1   the worker has buffer taken % 2, the maker may fill the other
//     taken == put - 2   both are full: the maker sleeps in room
//
// Buffer put % 2 is the maker's next, taken % 2 the worker's. Both counters and the error are read and written under the mutex,
// which also orders the contents. A worker that failed, or that is told to end, looks at no further buffer.
#include "base/handoff.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/thread.h"

enum { BUFFERS = 2, LINE = 64 };

struct vx_handoff {
    vx_handoff_fn take;
    void *user;
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex;
    pthread_cond_t changed; // one for both: never do both sleep
    char *data;             // [BUFFERS, bytes]
    size_t bytes;
    struct {
        int64_t first, count;
    } piece[BUFFERS];
    int64_t put, taken;
    bool ending;
    vx_status status; // the worker's first error
    double waited;
};

static bool worker_done(const vx_handoff *h)
{
    return h->ending || h->status.code != VX_OK;
}

static void *work(void *argument)
{
    vx_handoff *h = argument;
    pthread_mutex_lock(&h->mutex);
    for (;;) {
        while (!worker_done(h) && h->taken == h->put) pthread_cond_wait(&h->changed, &h->mutex);
        if (worker_done(h)) break;
        const int i = (int)(h->taken % BUFFERS);
        pthread_mutex_unlock(&h->mutex);
        const vx_status s = h->take(h->user, h->piece[i].first, h->piece[i].count, h->data + (size_t)i * h->bytes);
        pthread_mutex_lock(&h->mutex);
        h->taken++;
        h->status = s;
        pthread_cond_signal(&h->changed);
    }
    pthread_mutex_unlock(&h->mutex);
    return NULL;
}

vx_status vx_handoff_create(vx_handoff **out, size_t bytes, vx_handoff_fn take, void *user)
{
    *out = NULL;
    vx_handoff *h = vx_alloc_array(1, sizeof *h);
    VX_NEED_MEMORY(h, "a second thread");
    h->take = take;
    h->user = user;
    h->bytes = vx_align_up(bytes, LINE);
    h->status = vx_ok();
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->changed, NULL);
    void *data = NULL;
    vx_status s = vx_pages_alloc(&data, BUFFERS * h->bytes);
    h->data = data;
    if (s.code == VX_OK) {
        const int error = vx_thread_start(&h->thread, "vortex-taker", work, h);
        h->started = !error;
        if (error) s = vx_fail_errno(VX_ERR_MEMORY, error, "cannot start a thread");
        if (error) s = vx_remedy(s, "raise the limit on processes (ulimit -u)");
    }
    if (s.code == VX_OK) *out = h;
    else vx_handoff_destroy(&h);
    return s;
}

void vx_handoff_destroy(vx_handoff **handoff)
{
    vx_handoff *h = *handoff;
    if (!h) return;
    pthread_mutex_lock(&h->mutex);
    h->ending = true;
    pthread_cond_signal(&h->changed);
    pthread_mutex_unlock(&h->mutex);
    if (h->started) pthread_join(h->thread, NULL);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->mutex);
    vx_pages_free(h->data, BUFFERS * h->bytes);
    vx_free(h);
    *handoff = NULL;
}

// Returns when at most `most` buffers wait, or the worker failed.
static vx_status wait_for(vx_handoff *h, int64_t most)
{
    const double began = vx_clock_s();
    pthread_mutex_lock(&h->mutex);
    while (h->status.code == VX_OK && h->put - h->taken > most) pthread_cond_wait(&h->changed, &h->mutex);
    const vx_status s = h->status;
    pthread_mutex_unlock(&h->mutex);
    h->waited += vx_clock_s() - began;
    return s;
}

vx_status vx_handoff_room(vx_handoff *h, void **buffer)
{
    *buffer = h->data + (size_t)(h->put % BUFFERS) * h->bytes;
    return wait_for(h, BUFFERS - 1);
}

void vx_handoff_put(vx_handoff *h, int64_t first, int64_t count)
{
    pthread_mutex_lock(&h->mutex);
    h->piece[h->put % BUFFERS].first = first;
    h->piece[h->put % BUFFERS].count = count;
    h->put++;
    pthread_cond_signal(&h->changed);
    pthread_mutex_unlock(&h->mutex);
}

vx_status vx_handoff_finish(vx_handoff *h)
{
    return wait_for(h, 0);
}

vx_status vx_handoff_check(vx_handoff *h)
{
    pthread_mutex_lock(&h->mutex);
    const vx_status s = h->status;
    pthread_mutex_unlock(&h->mutex);
    return s;
}

double vx_handoff_waited_s(const vx_handoff *h)
{
    return h->waited;
}
