// FFmpeg's log, kept from the terminal; and errors made from it.
//
// The callback is one for the whole process (FFmpeg has no other). The line is kept per thread, so that two movies written
// at once do not read each other's errors; what an encoder's own worker thread says is lost, and the error code is used.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

static _Thread_local char last[240];

static void keep(void *object, int level, const char *format, va_list list)
{
    if (level > AV_LOG_ERROR) return;
    char line[sizeof last];
    int prefix = 0;
    av_log_format_line2(object, level, format, list, line, sizeof line, &prefix);
    // "[libx264 @ 0x5581c0] text\n": the address says nothing to people and differs in every run.
    char *text = line, *closing = strstr(line, "] ");
    if (line[0] == '[' && closing) text = closing + 2;
    size_t size = strlen(text);
    while (size && (text[size - 1] == '\n' || text[size - 1] == ' ')) text[--size] = 0;
    if (size) snprintf(last, sizeof last, "%s", text);
}

void vx_av_log_capture(void)
{
    av_log_set_callback(keep);
}

void vx_av_log_forget(void)
{
    last[0] = 0;
}

const char *vx_av_log_last(void)
{
    return last;
}

vx_status vx_av_fail(vx_code code, int error, const char *format, ...)
{
    char message[300], known[AV_ERROR_MAX_STRING_SIZE] = "";
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    // POSIX codes are small (AVERROR(e) is -e); FFmpeg's own are four letters, below -2^24.
    if (error < 0 && error > -4096) {
        vx_status s = vx_fail_errno(code, -error, "%s", message);
        if (s.code != code || !last[0]) return s;
    }
    av_strerror(error, known, sizeof known);
    return vx_fail(code, "%s: %s", message, last[0] ? last : known);
}
