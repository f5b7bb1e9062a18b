// The log sink.
#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

// Room for a whole status (field, message and remedy) and what a caller writes around it.
enum { LOG_TEXT = 1024 };

static vx_log_fn sink;
static void *sink_user;

void vx_log_set(vx_log_fn fn, void *user)
{
    sink = fn;
    sink_user = user;
}

void vx_log(vx_log_level level, const char *format, ...)
{
    if (!sink) return;
    char text[LOG_TEXT];
    va_list list;
    va_start(list, format);
    int size = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (size >= 0) sink(sink_user, level, text);
}
