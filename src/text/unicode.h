// Inside the room: code points of a piece of text, normalised, with the class that the pre-tokeniser asks for.
// Tables: utf8proc (Unicode 15).
#ifndef VX_TEXT_UNICODE_H
#define VX_TEXT_UNICODE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum vx_char_class { VX_CHAR_OTHER, VX_CHAR_LETTER, VX_CHAR_NUMBER, VX_CHAR_SPACE } vx_char_class;

// Reused from segment to segment; free with vx_codes_free.
typedef struct vx_codes {
    int32_t *code;
    uint8_t *kind; // vx_char_class of each
    size_t count, capacity;
} vx_codes;

// Replaces the content with the NFC of well-formed UTF-8. Time is linear in the size, whatever the order of the marks.
vx_status vx_codes_normalize(vx_codes *out, const char *text, size_t size);
void vx_codes_free(vx_codes *codes);

vx_char_class vx_char_class_of(int32_t code);
size_t vx_utf8_put(int32_t code, char out[4]); // bytes written

#endif
