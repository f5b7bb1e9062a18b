// Building and passing on errors. The message is made where the fact is known; callers add where they were; only the
// program's outermost layer prints.
#ifndef VX_BASE_STATUS_H
#define VX_BASE_STATUS_H

#include "vortex/status.h"

#define VX_PRINTF(text, first) __attribute__((format(printf, text, first)))

static inline vx_status vx_ok(void)
{
    return (vx_status){ VX_OK, "", "", "" };
}

// An error with a message, and the remedy of its code. Truncation is silent (the front of a message says most).
vx_status vx_fail(vx_code code, const char *format, ...) VX_PRINTF(2, 3);
// The same with what the user can do about it.
vx_status vx_fail_remedy(vx_code code, const char *remedy, const char *format, ...) VX_PRINTF(3, 4);
// An error about one member of a request.
vx_status vx_fail_field(vx_code code, const char *field, const char *format, ...) VX_PRINTF(3, 4);
// Prefixes the message with "where: ".
vx_status vx_within(vx_status inner, const char *format, ...) VX_PRINTF(2, 3);
// Sets the remedy if there is none yet but the code's.
vx_status vx_remedy(vx_status inner, const char *format, ...) VX_PRINTF(2, 3);
// errno to a status: ENOSPC, EDQUOT and EFBIG become VX_ERR_STORAGE_FULL and ENOMEM VX_ERR_MEMORY, whatever `code` is.
vx_status vx_fail_errno(vx_code code, int error, const char *format, ...) VX_PRINTF(3, 4);

static inline vx_code vx_code_of(vx_status s)
{
    return s.code;
}
int vx_code_exit(vx_code code);            // exit status: 0, 1..7, 130
const char *vx_code_summary(vx_code code); // the line of docs/errors.md
const char *vx_code_remedy(vx_code code);  // what helps where nobody knows better: of memory and devices, else ""

#define VX_TRY(expression)                     \
    do {                                       \
        vx_status vx_s_ = (expression);        \
        if (vx_s_.code != VX_OK) return vx_s_; \
    } while (0)

#define VX_TRY_IN(expression, ...)                                     \
    do {                                                               \
        vx_status vx_s_ = (expression);                                \
        if (vx_s_.code != VX_OK) return vx_within(vx_s_, __VA_ARGS__); \
    } while (0)

// For functions that must clean up: stores the status and jumps.
#define VX_CATCH(status, label, expression)     \
    do {                                        \
        (status) = (expression);                \
        if ((status).code != VX_OK) goto label; \
    } while (0)

#endif
