// Threads that leave the process's signals alone.
#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

// Blocked, a fault of the thread's own would kill the process past the handler of base/mapping.c. SIGPROF serves profilers.
static void block_signals(sigset_t *before)
{
    static const int keep[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF };
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof keep / sizeof keep[0]; i++) sigdelset(&set, keep[i]);
    pthread_sigmask(SIG_SETMASK, &set, before);
}

int vx_thread_start(pthread_t *out, const char *name, void *(*run)(void *), void *argument)
{
    sigset_t before;
    block_signals(&before); // inherited: there is no moment at which the thread has the caller's mask
    const int error = pthread_create(out, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) pthread_setname_np(*out, name);
    return error;
}
