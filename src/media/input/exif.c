// As much of EXIF and XMP as the orientation needs. Broken data counts as none: a picture is not refused for its label.
//
// EXIF is a TIFF:  "II" or "MM" (byte order)  42:2  offset of the first directory:4
// A directory:     entries:2, then each entry  tag:2 type:2 count:4 value:4 (or its offset)
#include "internal.h"

#include <string.h>

enum { TAG_ORIENTATION = 0x112, TYPE_BYTE = 1, TYPE_SHORT = 3, TYPE_LONG = 4, ENTRY = 12 };

typedef struct tiff {
    const uint8_t *bytes;
    size_t size;
    bool big;
} tiff;

// 0 beyond the end: no tag, type or count that means anything.
static uint32_t number(const tiff *t, size_t at, int width)
{
    uint32_t value = 0;
    if (at > t->size || t->size - at < (size_t)width) return 0;
    for (int i = 0; i < width; i++) value = value << 8 | t->bytes[at + (size_t)(t->big ? i : width - 1 - i)];
    return value;
}

static int entry_value(const tiff *t, size_t at)
{
    uint32_t type = number(t, at + 2, 2), value = 0;
    if (number(t, at + 4, 4) != 1) return 0;
    if (type == TYPE_BYTE) value = number(t, at + 8, 1);
    if (type == TYPE_SHORT) value = number(t, at + 8, 2);
    if (type == TYPE_LONG) value = number(t, at + 8, 4);
    return value <= INT16_MAX ? (int)value : INT16_MAX;
}

int vx_exif_orientation(const uint8_t *bytes, size_t size)
{
    if (size >= 6 && memcmp(bytes, "Exif\0\0", 6) == 0) bytes += 6, size -= 6;
    tiff t = { bytes, size, size >= 2 && bytes[0] == 'M' };
    if (size < 8 || (memcmp(bytes, "II*\0", 4) != 0 && memcmp(bytes, "MM\0*", 4) != 0)) return 0;
    size_t directory = number(&t, 4, 4);
    uint32_t entries = number(&t, directory, 2);
    int found = 0;
    for (uint32_t i = 0; i < entries; i++) {
        size_t at = directory + 2 + (size_t)i * ENTRY;
        if (at > size || size - at < ENTRY) break;
        if (number(&t, at, 2) == TAG_ORIENTATION) found = entry_value(&t, at);
    }
    return found;
}

int vx_xmp_orientation(const uint8_t *bytes, size_t size)
{
    static const char name[] = "tiff:Orientation";
    const uint8_t *end = bytes + size;
    for (const uint8_t *p = bytes; (p = memmem(p, (size_t)(end - p), name, sizeof name - 1));) {
        p += sizeof name - 1;
        // an attribute, or an element
        size_t skip = end - p >= 3 && p[0] == '=' && p[1] == '"' ? 2 : end - p >= 2 && p[0] == '>' ? 1 : 0;
        if (skip && p[skip] >= '0' && p[skip] <= '9') return p[skip] - '0';
    }
    return 0;
}
