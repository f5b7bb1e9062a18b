// Starting a thread of the library's own.
#ifndef VX_BASE_THREAD_H
#define VX_BASE_THREAD_H

#include <pthread.h>

// 0, or what pthread_create says. The thread takes no signal that is sent to the process: those are the caller's business (Ctrl-C
// runs its handler on its thread). Its own faults stay open to handlers. name: at most 15 bytes, for debuggers.
int vx_thread_start(pthread_t *out, const char *name, void *(*run)(void *), void *argument);

#endif
