// WebP by libwebp. Of an animation, its first frame on a canvas of zeros, as the reference's decoder starts.
#include "internal.h"

#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

static int orientation_of(WebPDemuxer *demuxer)
{
    WebPChunkIterator chunk;
    int found = 0;
    if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk)) {
        found = vx_exif_orientation(chunk.chunk.bytes, chunk.chunk.size);
        WebPDemuxReleaseChunkIterator(&chunk);
    }
    if (!found && WebPDemuxGetChunk(demuxer, "XMP ", 1, &chunk)) {
        found = vx_xmp_orientation(chunk.chunk.bytes, chunk.chunk.size);
        WebPDemuxReleaseChunkIterator(&chunk);
    }
    return found;
}

static vx_status read_frame(vx_picture *p, const WebPIterator *frame)
{
    int64_t x = frame->x_offset, y = frame->y_offset, w = frame->width, h = frame->height;
    if (x < 0 || y < 0 || w < 1 || h < 1 || x + w > p->width || y + h > p->height)
        return vx_picture_damaged(p, "a frame lies outside its canvas");
    size_t stride = (size_t)p->width * 3, start = (size_t)y * stride + (size_t)x * 3;
    if (w != p->width || h != p->height) memset(p->rgb, 0, stride * (size_t)p->height);
    if (!WebPDecodeRGBInto(frame->fragment.bytes, frame->fragment.size, p->rgb + start, stride * (size_t)p->height - start,
                           (int)stride))
        return vx_picture_damaged(p, "its pixels cannot be decoded");
    return vx_ok();
}

static vx_status read_picture(vx_picture *p, WebPDemuxer *demuxer, bool pixels)
{
    WebPIterator frame;
    p->orientation = orientation_of(demuxer);
    VX_TRY(vx_picture_prepare(p, WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_WIDTH), WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_HEIGHT),
                              pixels));
    if (!pixels) return vx_ok();
    if (!WebPDemuxGetFrame(demuxer, 1, &frame)) return vx_picture_damaged(p, "it holds no frame");
    vx_status s = read_frame(p, &frame);
    WebPDemuxReleaseIterator(&frame);
    return s;
}

vx_status vx_webp_read(vx_picture *p, bool pixels)
{
    WebPData data = { p->bytes, p->size };
    p->format = "webp";
    WebPDemuxer *demuxer = WebPDemux(&data);
    if (!demuxer) return vx_picture_damaged(p, "its chunks do not fit together, or it ends too early");
    vx_status s = read_picture(p, demuxer, pixels);
    WebPDemuxDelete(demuxer);
    return s;
}
