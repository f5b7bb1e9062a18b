// Errors by value: formatting, context and the table of codes.
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

// vsnprintf cuts at a byte; a cut inside a UTF-8 sequence would make the whole message invalid in a JSON answer.
static void drop_cut_sequence(char *text)
{
    size_t size = strlen(text), lead = size;
    while (lead > 0 && size - lead < 4 && ((unsigned char)text[lead - 1] & 0xC0) == 0x80) lead--;
    if (lead == 0) return;
    unsigned char first = (unsigned char)text[lead - 1];
    size_t need = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
    if (size - (lead - 1) < need) text[lead - 1] = 0;
}

static void print_list(char *out, size_t capacity, const char *format, va_list list)
{
    int wanted = vsnprintf(out, capacity, format, list);
    if (wanted < 0) out[0] = 0;
    else if ((size_t)wanted >= capacity) drop_cut_sequence(out);
}

static void VX_PRINTF(3, 4) print(char *out, size_t capacity, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    print_list(out, capacity, format, list);
    va_end(list);
}

static vx_status of_list(vx_code code, const char *format, va_list list)
{
    vx_status s = { .code = code };
    print_list(s.message, sizeof s.message, format, list);
    print(s.remedy, sizeof s.remedy, "%s", vx_code_remedy(code));
    return s;
}

vx_status vx_fail(vx_code code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vx_status s = of_list(code, format, list);
    va_end(list);
    return s;
}

vx_status vx_fail_remedy(vx_code code, const char *remedy, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vx_status s = of_list(code, format, list);
    va_end(list);
    print(s.remedy, sizeof s.remedy, "%s", remedy);
    return s;
}

vx_status vx_fail_field(vx_code code, const char *field, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vx_status s = of_list(code, format, list);
    va_end(list);
    print(s.field, sizeof s.field, "%s", field);
    return s;
}

vx_status vx_within(vx_status inner, const char *format, ...)
{
    if (inner.code == VX_OK) return inner;
    char where[sizeof inner.message];
    va_list list;
    va_start(list, format);
    print_list(where, sizeof where, format, list);
    va_end(list);
    vx_status s = inner;
    print(s.message, sizeof s.message, "%s: %s", where, inner.message);
    return s;
}

vx_status vx_remedy(vx_status inner, const char *format, ...)
{
    const bool own = inner.remedy[0] && strcmp(inner.remedy, vx_code_remedy(inner.code)) != 0;
    if (inner.code == VX_OK || own) return inner;
    va_list list;
    va_start(list, format);
    print_list(inner.remedy, sizeof inner.remedy, format, list);
    va_end(list);
    return inner;
}

vx_status vx_fail_errno(vx_code code, int error, const char *format, ...)
{
    if (error == ENOSPC || error == EDQUOT || error == EFBIG) code = VX_ERR_STORAGE_FULL;
    if (error == ENOMEM) code = VX_ERR_MEMORY;
    char what[sizeof((vx_status *)0)->message], reason[128];
    va_list list;
    va_start(list, format);
    print_list(what, sizeof what, format, list);
    va_end(list);
    return vx_fail(code, "%s: %s", what, strerror_r(error, reason, sizeof reason));
}

int vx_code_exit(vx_code code)
{
    // 130 is what a shell reports for a program ended by SIGINT (128 + 2).
    return code == VX_ERR_CANCELLED ? 130 : (int)code / 1000;
}

const char *vx_code_summary(vx_code code)
{
    switch (code) {
    case VX_OK: return "no error";
#define VX_CODE_SUMMARY(name, number, text) \
    case name: return text;
        VX_CODES(VX_CODE_SUMMARY)
#undef VX_CODE_SUMMARY
    }
    return "an unknown code";
}

// Where the message alone leaves the reader with nothing to do. Others say what is accepted, or where to look.
const char *vx_code_remedy(vx_code code)
{
    switch (code) {
    case VX_ERR_MEMORY: return "close other programs, or ask for fewer frames or a smaller picture";
    case VX_ERR_MEMORY_PLAN: return "ask for a smaller --size or fewer --frames";
    case VX_ERR_DEVICE_NONE: return "use --device cpu";
    case VX_ERR_DEVICE: return "look at nvidia-smi and the system's log; a new run starts afresh";
    default: return "";
    }
}
