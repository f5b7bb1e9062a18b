// Inside the media module: reading what users bring. Pictures are decoded from memory, clips by FFmpeg from their file.
#ifndef VX_MEDIA_INPUT_INTERNAL_H
#define VX_MEDIA_INPUT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "media/input.h"

// Decoding one file may take so long, in seconds; the caller's own work between frames does not count. A 15 s clip of 4K
// HEVC takes half a minute on one core.
enum { VX_INPUT_BUDGET = 120 };

// ---- sniff.c: what a file is, by its first bytes; names say nothing ----
typedef enum vx_source {
    VX_SOURCE_UNKNOWN,
    VX_SOURCE_JPEG,
    VX_SOURCE_PNG,
    VX_SOURCE_WEBP,
    VX_SOURCE_CLIP,   // demuxer says which
    VX_SOURCE_REFUSED // known, and not read: demuxer is its name for messages
} vx_source;
// demuxer: FFmpeg's name of the one demuxer that may open it, or the name of a refused format. Static.
vx_source vx_sniff(const char **demuxer, const uint8_t *bytes, size_t size);
vx_status vx_source_refused(const char *path, const char *name);
vx_status vx_source_unknown(const char *path, size_t size);

// ---- cut.c ----
bool vx_container_cut(const char *demuxer, const uint8_t *bytes, size_t size); // shorter than it says itself

// ---- orient.c ----
// EXIF orientations: 1 upright, 2 flip across, 3 rotate 180, 4 flip down, 5 transpose, 6 rotate 90 clockwise, 7 transverse,
// 8 rotate 90 counter-clockwise. Any other number means 1.
static inline bool vx_orientation_turns(int orientation)
{
    return orientation >= 5 && orientation <= 8;
}
// RGB, rows of `in` `stride` bytes apart, to tight rows of the upright picture (width and height are those of `in`).
void vx_orient(uint8_t *out, const uint8_t *in, int64_t width, int64_t height, int64_t stride, int orientation);

// ---- exif.c ----
// The orientation that EXIF data holds (with or without "Exif\0\0" in front); 0 if none, or if the data makes no sense.
int vx_exif_orientation(const uint8_t *bytes, size_t size);
// tiff:Orientation of an XMP packet, found as the reference finds it; 0 if none.
int vx_xmp_orientation(const uint8_t *bytes, size_t size);

// ---- jpeg.c, png.c, webp.c: one picture in memory ----
typedef struct vx_picture {
    const char *name; // in messages
    const uint8_t *bytes;
    size_t size;
    double deadline; // vx_clock_s
    // from the header
    int64_t width, height; // as stored
    int orientation;
    const char *format;
    uint8_t *rgb; // [height, width, 3], only if pixels were asked for; owned
} vx_picture;
vx_status vx_jpeg_read(vx_picture *p, bool pixels);
vx_status vx_png_read(vx_picture *p, bool pixels);
vx_status vx_webp_read(vx_picture *p, bool pixels);
// Against the limits; then, if asked, room for the pixels.
vx_status vx_picture_prepare(vx_picture *p, int64_t width, int64_t height, bool pixels);
vx_status vx_picture_damaged(const vx_picture *p, const char *words); // "name: the JPEG is damaged: words"
bool vx_picture_late(const vx_picture *p);
vx_status vx_picture_too_slow(const vx_picture *p);

// ---- picture.c ----
vx_status vx_picture_read(vx_picture *p, bool pixels); // by its kind; as stored, not yet upright
// What vx_input_picture does, from memory.
vx_status vx_picture_decode(uint8_t **rgb, int64_t *width, int64_t *height, const uint8_t *bytes, size_t size, const char *name);

// ---- entry.c: the module's table ----
vx_status vx_entry_probe(vx_input_facts *out, const char *path);
vx_status vx_entry_picture(uint8_t **rgb, int64_t *width, int64_t *height, const char *path);
vx_status vx_entry_frames(const char *path, int64_t max_slots, vx_input_frame_fn frame, void *user, int64_t *slots);
vx_status vx_entry_sound(float **planar, int64_t *channels, int64_t *samples, int64_t *sample_rate, const char *path,
                         int64_t max_samples);

#endif
