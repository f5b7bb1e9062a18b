// The one way to heap memory, so that tests can make the k-th allocation fail and count what a loop allocates.
// Threads: all functions may be called from any thread; vx_fault_arm is for tests, from one thread at a time.
#ifndef VX_BASE_ALLOC_H
#define VX_BASE_ALLOC_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *vx_alloc(size_t bytes);                    // NULL when there is none; 0 bytes gives a unique pointer
void *vx_alloc_array(size_t count, size_t size); // zeroed; NULL also when count * size overflows
void *vx_realloc(void *p, size_t bytes);
char *vx_strdup(const char *s);
char *vx_strndup(const char *s, size_t n);
void vx_free(void *p); // NULL is fine

// Page-aligned zero memory for arenas and scratch, returned to the system by vx_pages_free. It counts as an allocation.
vx_status vx_pages_alloc(void **out, size_t bytes);
void vx_pages_free(void *p, size_t bytes);

uint64_t vx_alloc_calls(void); // successful and failed calls since the start of the process

// Makes the k-th (1-based) allocation from now fail, and all later ones too if `persistent`.
void vx_fault_arm(int64_t k, bool persistent);
bool vx_fault_disarm(void); // true if a fault was delivered since arming

// VX_ERR_MEMORY, "no memory for a path (81 bytes)": what the caller says, and how much this thread asked for in vain.
vx_status vx_no_memory(const char *format, ...) VX_PRINTF(1, 2);

#define VX_NEED_MEMORY(p, what)                          \
    do {                                                 \
        if (!(p)) return vx_no_memory("for %s", (what)); \
    } while (0)

#endif
