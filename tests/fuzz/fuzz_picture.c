// Any bytes as a picture: JPEG, PNG, WebP, their EXIF and XMP.
//
// Promises (reliability specification T33): an answer of the kinds that are documented; pixels if and only if it is a good
// one, as many as the header said, within the limits.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "media/input/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Larger ones only take longer.
enum { MOST_PIXELS = 1 << 22 };

static void must(bool condition)
{
    if (!condition) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned sum = 0;
    vx_picture header = { .name = "fuzz", .bytes = data, .size = size };
    vx_status s = vx_picture_read(&header, false);
    must(!header.rgb && (s.code == VX_OK || (s.code == VX_ERR_INPUT_FORMAT && s.message[0])));
    if (s.code != VX_OK || header.width * header.height > MOST_PIXELS) return 0;
    uint8_t *rgb;
    int64_t width = 0, height = 0;
    s = vx_picture_decode(&rgb, &width, &height, data, size, "fuzz");
    must((s.code == VX_OK) == (rgb != NULL));
    must(s.code == VX_OK || s.code == VX_ERR_INPUT_FORMAT || s.code == VX_ERR_MEMORY);
    if (!rgb) return 0;
    bool turned = vx_orientation_turns(header.orientation);
    must(width == (turned ? header.height : header.width) && height == (turned ? header.width : header.height));
    must(width >= 1 && height >= 1 && width <= VX_INPUT_MAX_SIDE && height <= VX_INPUT_MAX_SIDE);
    for (int64_t i = 0; i < width * height * 3; i++) sum += rgb[i];
    must(sum <= 255u * 3 * MOST_PIXELS);
    vx_free(rgb);
    return 0;
}
