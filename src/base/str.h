// A growing string, and small helpers. A builder that runs out of memory stays empty and says so once, at the end.
#ifndef VX_BASE_STR_H
#define VX_BASE_STR_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct vx_str {
    char *data; // terminated; NULL while empty
    size_t size;
    size_t capacity;
    bool failed; // an allocation failed: the content is incomplete
} vx_str;

void vx_str_put(vx_str *s, const void *bytes, size_t size);
void vx_str_print(vx_str *s, const char *format, ...) VX_PRINTF(2, 3);
char *vx_str_take(vx_str *s); // the caller frees it with vx_free; NULL if failed; leaves s empty
void vx_str_free(vx_str *s);

bool vx_has_prefix(const char *s, const char *prefix);
bool vx_has_suffix(const char *s, const char *suffix);
// Joins folder and name with one '/'. NULL when out of memory. Free with vx_free.
char *vx_path_join(const char *folder, const char *name);
const char *vx_path_name(const char *path); // what follows the last '/', inside `path`
// True if [s, s+size) is well-formed UTF-8 (no surrogates, no overlong forms, at most U+10FFFF); *bad (may be NULL) is
// the offset of the first byte that starts no whole sequence.
bool vx_utf8_valid(const char *s, size_t size, size_t *bad);
// "1.5 GiB", for messages. Static per call site: writes into `out`.
const char *vx_bytes_text(char out[24], uint64_t bytes);

#endif
