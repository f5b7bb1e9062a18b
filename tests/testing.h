// cmocka with its prerequisites in the order it wants, and checks that print what they compared.
#ifndef VX_TESTING_H
#define VX_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

#define assert_ok(expression)                                                                  \
    do {                                                                                       \
        vx_status s_ = (expression);                                                           \
        if (s_.code != VX_OK) fail_msg("%s: VX-%d %s", #expression, (int)s_.code, s_.message); \
    } while (0)
#define assert_code(expression, want)                                                                                      \
    do {                                                                                                                   \
        vx_status s_ = (expression);                                                                                       \
        if (s_.code != (want)) fail_msg("%s: VX-%d %s, wanted VX-%d", #expression, (int)s_.code, s_.message, (int)(want)); \
    } while (0)

// What limits of time are multiplied by: sanitizers take theirs.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWDOWN = 8 };
#else
enum { SLOWDOWN = 1 };
#endif

// The golden folder prepared beside the checkout, or NULL: tests that need it print that they skip and return.
static inline const char *golden_folder(void)
{
    return getenv("VORTEX_GOLDEN_DATA");
}

#endif
