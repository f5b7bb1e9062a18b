// A picture from memory: limits, the library for its kind, upright.
#include "internal.h"

#include "base/alloc.h"
#include "base/clock.h"

vx_status vx_picture_prepare(vx_picture *p, int64_t width, int64_t height, bool pixels)
{
    if (width < 1 || height < 1 || width > VX_INPUT_MAX_SIDE || height > VX_INPUT_MAX_SIDE ||
        width * height > VX_INPUT_MAX_PIXELS)
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: a picture of %lldx%lld; sides may be up to %d and pixels up to %d", p->name,
                       (long long)width, (long long)height, VX_INPUT_MAX_SIDE, VX_INPUT_MAX_PIXELS);
    p->width = width;
    p->height = height;
    if (!pixels) return vx_ok();
    p->rgb = vx_alloc((size_t)(width * height) * 3);
    if (!p->rgb) return vx_no_memory("for a picture of %lldx%lld", (long long)width, (long long)height);
    return vx_ok();
}

vx_status vx_picture_damaged(const vx_picture *p, const char *words)
{
    return vx_fail(VX_ERR_INPUT_FORMAT, "%s: the %s picture is damaged: %s", p->name, p->format, words);
}

bool vx_picture_late(const vx_picture *p)
{
    return vx_clock_s() > p->deadline;
}

vx_status vx_picture_too_slow(const vx_picture *p)
{
    return vx_fail(VX_ERR_INPUT_FORMAT, "%s: decoding took more than %d seconds", p->name, VX_INPUT_BUDGET);
}

vx_status vx_picture_read(vx_picture *p, bool pixels)
{
    const char *name;
    p->deadline = vx_clock_s() + VX_INPUT_BUDGET;
    switch (vx_sniff(&name, p->bytes, p->size)) {
    case VX_SOURCE_JPEG: return vx_jpeg_read(p, pixels);
    case VX_SOURCE_PNG: return vx_png_read(p, pixels);
    case VX_SOURCE_WEBP: return vx_webp_read(p, pixels);
    case VX_SOURCE_CLIP: return vx_fail(VX_ERR_INPUT_FORMAT, "%s: is a video or sound, not a picture", p->name);
    case VX_SOURCE_REFUSED: return vx_source_refused(p->name, name);
    case VX_SOURCE_UNKNOWN: break;
    }
    return vx_source_unknown(p->name, p->size);
}

static vx_status turn(vx_picture *p)
{
    if (p->orientation < 2 || p->orientation > 8) return vx_ok();
    uint8_t *upright = vx_alloc((size_t)(p->width * p->height) * 3);
    VX_NEED_MEMORY(upright, "a turned picture");
    vx_orient(upright, p->rgb, p->width, p->height, p->width * 3, p->orientation);
    vx_free(p->rgb);
    p->rgb = upright;
    return vx_ok();
}

vx_status vx_picture_decode(uint8_t **rgb, int64_t *width, int64_t *height, const uint8_t *bytes, size_t size, const char *name)
{
    vx_picture p = { .name = name, .bytes = bytes, .size = size };
    *rgb = NULL;
    vx_status s = vx_picture_read(&p, true);
    if (s.code == VX_OK) s = turn(&p);
    if (s.code != VX_OK) {
        vx_free(p.rgb);
        return s;
    }
    bool turned = vx_orientation_turns(p.orientation);
    *rgb = p.rgb;
    *width = turned ? p.height : p.width;
    *height = turned ? p.width : p.height;
    return s;
}
