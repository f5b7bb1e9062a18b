// cmocka puts its own SIGBUS handler in place for each test and takes it away afterwards, and with it the one that
// vx_file_map installed once. Programs that test shrinking files call guard_keep in main, and guard_restore first in
// each such test (a setup function does not help: it gets handlers of its own).
#ifndef VX_TESTS_BASE_GUARD_H
#define VX_TESTS_BASE_GUARD_H

#include "testing.h"

#include <signal.h>

#include "base/file.h"

static struct sigaction guard_handler;

// Makes vx_file_map install its handler now, before the first test, and remembers it. 0, or -1 for main to return.
static inline int guard_keep(void)
{
    vx_mapping *m;
    if (vx_file_map(&m, "/proc/self/exe", VX_ERR_INTERNAL).code != VX_OK) return -1;
    vx_file_unmap(&m);
    return sigaction(SIGBUS, NULL, &guard_handler);
}

static inline void guard_restore(void)
{
    sigaction(SIGBUS, &guard_handler, NULL);
}

#endif
