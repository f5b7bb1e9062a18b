// Data handed from its maker to a thread of its own: the maker fills one of two buffers while the thread empties the other.
// The order is kept, nothing is copied, and the maker waits only where both are full.
//
// Threads: one maker. `take` runs on the worker, one call at a time; each side sees what the other wrote before.
// Errors: the first error of `take` is the last call of it. What waits is dropped, and whoever asks gets that error.
#ifndef VX_BASE_HANDOFF_H
#define VX_BASE_HANDOFF_H

#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct vx_handoff vx_handoff;
// Pieces first..first+count-1 of what is made. `data` is valid during the call.
typedef vx_status (*vx_handoff_fn)(void *user, int64_t first, int64_t count, const void *data);

// Two buffers of `bytes` each, and the thread. VX_ERR_MEMORY if there is none or no thread can be started.
vx_status vx_handoff_create(vx_handoff **out, size_t bytes, vx_handoff_fn take, void *user);
// Drops what waits, and returns when the call of `take` that is under way has ended.
void vx_handoff_destroy(vx_handoff **handoff);
// A buffer to fill; waits until one is empty. It is the same one until it is put.
vx_status vx_handoff_room(vx_handoff *handoff, void **buffer);
void vx_handoff_put(vx_handoff *handoff, int64_t first, int64_t count); // hands over the buffer that room gave
// Returns when everything that was put was taken.
vx_status vx_handoff_finish(vx_handoff *handoff);
vx_status vx_handoff_check(vx_handoff *handoff);       // VX_OK or the error so far; does not wait
double vx_handoff_waited_s(const vx_handoff *handoff); // seconds that the maker spent waiting

#endif
