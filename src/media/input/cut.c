// Containers that say how long they are: a file that ends before that was cut off. FFmpeg reads such a file to its end and
// says so only sometimes.
#include "internal.h"

#include <string.h>

// One EBML number; *unknown if all its bits are set. 0 bytes read: it does not fit.
static size_t ebml_size(const uint8_t *b, size_t left, uint64_t *value, bool *unknown)
{
    size_t length = 1;
    if (!left || !b[0]) return 0;
    while (!(b[0] & 0x80 >> (length - 1))) length++;
    if (length > left) return 0;
    uint64_t mask = UINT64_MAX >> (64 - 7 * length);
    *value = 0;
    for (size_t i = 0; i < length; i++) *value = *value << 8 | b[i];
    *value &= mask;
    *unknown = *value == mask;
    return length;
}

// The header's element, then the segment's: identifiers of four bytes.
static bool matroska_cut(const uint8_t *b, size_t size)
{
    uint64_t length;
    bool unknown;
    size_t at = 0;
    for (int element = 0; element < 2; element++) {
        if (size - at < 4) return true;
        size_t used = ebml_size(b + at + 4, size - at - 4, &length, &unknown);
        if (!used || unknown) return false;
        at += 4 + used;
        if (length > size - at) return true;
        at += (size_t)length;
    }
    return false;
}

// Writers that cannot go back leave 0 or the largest number.
static bool riff_cut(const uint8_t *b, size_t size)
{
    if (size < 8 || memcmp(b, "RIFF", 4) != 0) return false;
    uint32_t length = (uint32_t)b[4] | (uint32_t)b[5] << 8 | (uint32_t)b[6] << 16 | (uint32_t)b[7] << 24;
    return length && length < UINT32_MAX - 8 && length > size - 8;
}

bool vx_container_cut(const char *demuxer, const uint8_t *bytes, size_t size)
{
    if (!strcmp(demuxer, "matroska")) return matroska_cut(bytes, size);
    if (!strcmp(demuxer, "wav") || !strcmp(demuxer, "avi")) return riff_cut(bytes, size);
    return false;
}
