// Heap and pages, with a counter and one injectable fault.
//
// The fault is a countdown: every call takes one from it, and the call that finds 1 fails (and, when persistent, every
// call that finds less). Relaxed order is enough: nothing is published through these numbers.
#include "base/alloc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/str.h"

// Transparent huge pages are this large on x86-64 and on arm64 with 4 KiB pages; smaller areas cannot hold one.
enum { HUGE_PAGE = 2 << 20 };

static atomic_uint_fast64_t calls;
static atomic_bool armed, fault_persistent, delivered;
static atomic_int_fast64_t countdown;
static _Thread_local size_t wanted; // by the thread's last call in vain

static bool refused(void)
{
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    if (!atomic_load_explicit(&armed, memory_order_relaxed)) return false;
    int_fast64_t left = atomic_fetch_sub_explicit(&countdown, 1, memory_order_relaxed);
    bool hit = left == 1 || (left < 1 && atomic_load_explicit(&fault_persistent, memory_order_relaxed));
    if (hit) atomic_store_explicit(&delivered, true, memory_order_relaxed);
    return hit;
}

static void *given(void *p, size_t bytes)
{
    if (!p) wanted = bytes;
    return p;
}

void *vx_alloc(size_t bytes)
{
    return given(refused() ? NULL : malloc(bytes ? bytes : 1), bytes); // malloc(0) may give NULL
}

void *vx_alloc_array(size_t count, size_t size)
{
    size_t bytes = SIZE_MAX;
    const bool counted = vx_mul_size(count, size, &bytes);
    return given(refused() || !counted ? NULL : calloc(1, bytes ? bytes : 1), bytes);
}

void *vx_realloc(void *p, size_t bytes)
{
    return given(refused() ? NULL : realloc(p, bytes ? bytes : 1), bytes); // realloc(p, 0) would free p
}

char *vx_strdup(const char *s)
{
    return vx_strndup(s, strlen(s));
}

char *vx_strndup(const char *s, size_t n)
{
    size_t size = strnlen(s, n);
    char *copy = vx_alloc(size + 1);
    if (!copy) return NULL;
    memcpy(copy, s, size);
    copy[size] = 0;
    return copy;
}

void vx_free(void *p)
{
    free(p);
}

static bool whole_pages(size_t bytes, size_t *rounded)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), padded;
    if (!vx_add_size(bytes ? bytes : 1, page - 1, &padded)) return false;
    *rounded = padded & ~(page - 1);
    return true;
}

vx_status vx_pages_alloc(void **out, size_t bytes)
{
    *out = NULL;
    size_t size = 0;
    void *p = MAP_FAILED;
    if (!refused() && whole_pages(bytes, &size)) p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        char text[24];
        return vx_fail(VX_ERR_MEMORY, "no memory for %s of working space", vx_bytes_text(text, bytes));
    }
    // A hint only: kernels built without huge pages answer EINVAL.
    if (size >= HUGE_PAGE) (void)madvise(p, size, MADV_HUGEPAGE);
    *out = p;
    return vx_ok();
}

void vx_pages_free(void *p, size_t bytes)
{
    size_t size;
    if (p && whole_pages(bytes, &size)) munmap(p, size);
}

vx_status vx_no_memory(const char *format, ...)
{
    char what[sizeof((vx_status *)0)->message];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    return vx_fail(VX_ERR_MEMORY, "no memory %s (%zu bytes)", what, wanted);
}

uint64_t vx_alloc_calls(void)
{
    return atomic_load_explicit(&calls, memory_order_relaxed);
}

void vx_fault_arm(int64_t k, bool persistent)
{
    atomic_store(&countdown, k);
    atomic_store(&fault_persistent, persistent);
    atomic_store(&delivered, false);
    atomic_store(&armed, true);
}

bool vx_fault_disarm(void)
{
    atomic_store(&armed, false);
    return atomic_load(&delivered);
}
