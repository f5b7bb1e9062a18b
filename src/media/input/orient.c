// Turning and mirroring: an upright pixel (x, y) lies in the stored picture at start + x*right + y*down.
#include "internal.h"

#include <string.h>

enum { CHANNELS = 3 };

void vx_orient(uint8_t *out, const uint8_t *in, int64_t width, int64_t height, int64_t stride, int orientation)
{
    int64_t last_column = (width - 1) * CHANNELS, last_row = (height - 1) * stride;
    const struct {
        int64_t start, right, down;
    } walks[9] = {
        { 0, CHANNELS, stride },                        // none
        { 0, CHANNELS, stride },                        // 1
        { last_column, -CHANNELS, stride },             // 2 flip across
        { last_row + last_column, -CHANNELS, -stride }, // 3 rotate 180
        { last_row, CHANNELS, -stride },                // 4 flip down
        { 0, stride, CHANNELS },                        // 5 transpose
        { last_row, -stride, CHANNELS },                // 6 rotate 90 clockwise
        { last_row + last_column, -stride, -CHANNELS }, // 7 transverse
        { last_column, stride, -CHANNELS },             // 8 rotate 90 counter-clockwise
    };
    int which = orientation >= 1 && orientation <= 8 ? orientation : 1;
    bool turns = vx_orientation_turns(which);
    int64_t wide = turns ? height : width, high = turns ? width : height;
    for (int64_t y = 0; y < high; y++) {
        const uint8_t *p = in + walks[which].start + y * walks[which].down;
        if (walks[which].right == CHANNELS) {
            memcpy(out, p, (size_t)(wide * CHANNELS));
            out += wide * CHANNELS;
            continue;
        }
        for (int64_t x = 0; x < wide; x++, out += CHANNELS, p += walks[which].right) {
            out[0] = p[0];
            out[1] = p[1];
            out[2] = p[2];
        }
    }
}
