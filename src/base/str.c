// The growing string, paths, UTF-8, sizes as text.
#include "base/str.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"

enum { FIRST_CAPACITY = 64 };

static void give_up(vx_str *s)
{
    vx_free(s->data);
    *s = (vx_str){ .failed = true };
}

// Room for `more` bytes and the terminator; false once the builder has failed.
static bool reserve(vx_str *s, size_t more)
{
    if (s->failed) return false;
    size_t need;
    if (!vx_add_size(s->size, more, &need) || !vx_add_size(need, 1, &need)) {
        give_up(s);
        return false;
    }
    if (need <= s->capacity) return true;
    size_t capacity = s->capacity ? s->capacity : FIRST_CAPACITY;
    while (capacity < need)
        if (!vx_mul_size(capacity, 2, &capacity)) capacity = need;
    char *data = vx_realloc(s->data, capacity);
    if (!data) {
        give_up(s);
        return false;
    }
    s->data = data;
    s->capacity = capacity;
    return true;
}

void vx_str_put(vx_str *s, const void *bytes, size_t size)
{
    if (size == 0 || !reserve(s, size)) return;
    memcpy(s->data + s->size, bytes, size);
    s->size += size;
    s->data[s->size] = 0;
}

void vx_str_print(vx_str *s, const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int size = vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (size < 0) give_up(s);
    else if (size > 0 && reserve(s, (size_t)size)) {
        vsnprintf(s->data + s->size, (size_t)size + 1, format, again);
        s->size += (size_t)size;
    }
    va_end(again);
}

char *vx_str_take(vx_str *s)
{
    char *data = s->data;
    if (!data && !s->failed) data = vx_strdup("");
    *s = (vx_str){ 0 };
    return data;
}

void vx_str_free(vx_str *s)
{
    vx_free(s->data);
    *s = (vx_str){ 0 };
}

bool vx_has_prefix(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool vx_has_suffix(const char *s, const char *suffix)
{
    size_t size = strlen(s), want = strlen(suffix);
    return size >= want && memcmp(s + size - want, suffix, want) == 0;
}

char *vx_path_join(const char *folder, const char *name)
{
    size_t size = strlen(folder);
    bool absolute = folder[0] == '/';
    while (size > 0 && folder[size - 1] == '/') size--;
    while (name[0] == '/') name++;
    vx_str path = { 0 };
    vx_str_put(&path, folder, size);
    if (size > 0 || absolute) vx_str_put(&path, "/", 1);
    vx_str_put(&path, name, strlen(name));
    return vx_str_take(&path);
}

const char *vx_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// Length of the well-formed sequence at s, 0 if there is none: table 3-7 of the Unicode standard. Only the second byte
// has limits of its own (E0, F0: no overlong forms; ED: no surrogates; F4: at most U+10FFFF).
static size_t utf8_sequence(const unsigned char *s, size_t size)
{
    unsigned char first = s[0], low = 0x80, high = 0xBF;
    if (first < 0x80) return 1;
    if (first < 0xC2 || first > 0xF4) return 0;
    size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (size < length) return 0;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xF0) low = 0x90;
    if (first == 0xED) high = 0x9F;
    if (first == 0xF4) high = 0x8F;
    if (s[1] < low || s[1] > high) return 0;
    for (size_t i = 2; i < length; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    return length;
}

bool vx_utf8_valid(const char *s, size_t size, size_t *bad)
{
    const unsigned char *bytes = (const unsigned char *)s;
    for (size_t at = 0; at < size;) {
        size_t length = utf8_sequence(bytes + at, size - at);
        if (length == 0) {
            if (bad) *bad = at;
            return false;
        }
        at += length;
    }
    return true;
}

const char *vx_bytes_text(char out[24], uint64_t bytes)
{
    static const char units[][4] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    if (bytes < 1024) {
        snprintf(out, 24, "%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
        return out;
    }
    // Whole numbers, because printf's decimal point depends on the locale. 1,048,525 bytes and more are 1.0 MiB: the
    // tenths are rounded before the unit is chosen.
    int unit = 0;
    uint64_t tenths;
    for (;; unit++) {
        int shift = 10 * (unit + 1);
        uint64_t whole = bytes >> shift, rest = bytes & ((UINT64_C(1) << shift) - 1);
        uint64_t fraction = shift <= 50 ? (rest * 10 + (UINT64_C(1) << (shift - 1))) >> shift
                                        : ((rest >> 10) * 10 + (UINT64_C(1) << (shift - 11))) >> (shift - 10);
        tenths = whole * 10 + fraction;
        if (tenths < 10240 || unit == 5) break;
    }
    snprintf(out, 24, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, units[unit]);
    return out;
}
