// Frames of a clip on the grid of 24 per second (audio-and-media specification B7).
//
// A decoded frame is held until the next one tells how many slots it fills; only then is it converted. Where two share a
// slot the later stays. The last one is held to the slot of its end.
#include "clip.h"

#include <math.h>
#include <string.h>

#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>

#include "../ffmpeg/internal.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "media/sound.h"

enum { GRID = 24, ROW_ALIGN = 64 };

typedef struct film {
    vx_clip *clip;
    AVCodecContext *codec;
    AVFrame *held; // decoded, not yet delivered
    int64_t held_slot, held_end;
    int64_t first, next; // stamps: of the first frame, and of the one after the last
    int64_t decoded;
    struct SwsContext *scaler;
    AVFrame *rgb;   // as stored: rows with room behind them, which swscale writes into
    uint8_t *tight; // upright
    int width, height;
    int64_t max_slots, slots;
    vx_input_frame_fn deliver;
    void *user;
    bool done;
} film;

// ---- time ----

static int64_t round_seconds(double seconds)
{
    return (int64_t)floor(seconds * GRID + 0.5);
}

static int64_t slot_of(const film *f, int64_t stamp)
{
    double seconds = (double)(stamp - f->first) * av_q2d(f->clip->video->time_base);
    if (!f->clip->constant_rate) return round_seconds(seconds);
    return vx_frame_slot((int64_t)nearbyint(seconds * av_q2d(f->clip->rate)), f->clip->rate.num, f->clip->rate.den);
}

static int64_t frame_ticks(const film *f, const AVFrame *frame)
{
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(58, 2, 100)
    int64_t ticks = frame->duration;
#else
    int64_t ticks = frame->pkt_duration;
#endif
    double base = av_q2d(f->clip->video->time_base);
    if (f->clip->rate.num > 0 && (f->clip->constant_rate || ticks <= 0))
        return (int64_t)nearbyint(1 / av_q2d(f->clip->rate) / base);
    return vx_max_i64(ticks, 0);
}

static double seconds_of(const film *f, int64_t stamp)
{
    return (double)(stamp - f->first) * av_q2d(f->clip->video->time_base);
}

// ---- colours ----

static bool is_full_range(const AVFrame *frame)
{
    const AVPixFmtDescriptor *about = av_pix_fmt_desc_get(frame->format);
    return frame->color_range == AVCOL_RANGE_JPEG || (about && strncmp(about->name, "yuvj", 4) == 0);
}

// The matrix that the frame names, BT.601 if none; limited range unless it says otherwise; everything else swscale's
// default, which is what the references show (B7).
static vx_status convert(film *f)
{
    AVFrame *in = f->held;
    f->scaler = sws_getCachedContext(f->scaler, f->width, f->height, in->format, f->width, f->height, AV_PIX_FMT_RGB24,
                                     SWS_BILINEAR, NULL, NULL, NULL);
    if (!f->scaler)
        return vx_clip_refused(f->clip, AVERROR(EINVAL), "its pixel format, %s, cannot be converted",
                               av_get_pix_fmt_name(in->format) ? av_get_pix_fmt_name(in->format) : "unknown");
    const int *matrix = sws_getCoefficients(in->colorspace == AVCOL_SPC_RGB ? SWS_CS_DEFAULT : (int)in->colorspace);
    // Refused for RGB sources, which have no matrix.
    (void)sws_setColorspaceDetails(f->scaler, matrix, is_full_range(in), sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16,
                                   1 << 16);
    int rows = sws_scale(f->scaler, (const uint8_t *const *)in->data, in->linesize, 0, f->height, f->rgb->data, f->rgb->linesize);
    if (rows != f->height) return vx_clip_refused(f->clip, AVERROR_INVALIDDATA, "a frame cannot be converted");
    vx_orient(f->tight, f->rgb->data[0], f->width, f->height, f->rgb->linesize[0], f->clip->orientation);
    return vx_ok();
}

static vx_status make_pictures(film *f, const AVFrame *like)
{
    f->width = like->width;
    f->height = like->height;
    f->rgb = av_frame_alloc();
    f->tight = vx_alloc((size_t)f->width * (size_t)f->height * 3);
    if (!f->rgb || !f->tight) return vx_fail(VX_ERR_MEMORY, "no memory for a frame of %dx%d", f->width, f->height);
    f->rgb->format = AV_PIX_FMT_RGB24;
    f->rgb->width = (int)vx_align_up((size_t)f->width, ROW_ALIGN);
    f->rgb->height = f->height;
    int error = av_frame_get_buffer(f->rgb, 0);
    return error < 0 ? vx_av_fail(VX_ERR_MEMORY, error, "a frame of %dx%d", f->width, f->height) : vx_ok();
}

// ---- delivery ----

// The held frame fills [held_slot, end).
static vx_status deliver(film *f, int64_t end)
{
    int64_t count = vx_min_i64(end, f->max_slots) - f->held_slot;
    if (count > 0) {
        bool turned = vx_orientation_turns(f->clip->orientation);
        VX_TRY(convert(f));
        double before = vx_clock_s();
        bool more =
            f->deliver(f->user, f->held_slot, count, f->tight, turned ? f->height : f->width, turned ? f->width : f->height);
        f->clip->deadline += vx_clock_s() - before;
        f->slots = f->held_slot + count;
        f->done = !more || f->slots >= f->max_slots;
    }
    return vx_ok();
}

static vx_status take(film *f, AVFrame *frame)
{
    int64_t stamp = frame->best_effort_timestamp;
    if (frame->flags & AV_FRAME_FLAG_CORRUPT || frame->decode_error_flags)
        return vx_clip_refused(f->clip, AVERROR_INVALIDDATA, "frame %lld (%.2f s) is damaged", (long long)f->decoded,
                               seconds_of(f, f->next));
    if (!f->decoded) {
        f->first = stamp == AV_NOPTS_VALUE ? 0 : stamp;
        VX_TRY(make_pictures(f, frame));
    }
    if (stamp == AV_NOPTS_VALUE) stamp = f->decoded ? f->next : f->first;
    if (frame->width != f->width || frame->height != f->height)
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: frame %lld is %dx%d, those before are %dx%d", f->clip->path,
                       (long long)f->decoded, frame->width, frame->height, f->width, f->height);
    int64_t slot = vx_max_i64(slot_of(f, stamp), f->decoded ? f->held_slot : 0);
    if (f->decoded && slot > f->held_slot) VX_TRY(deliver(f, slot));
    f->decoded++;
    f->next = stamp + frame_ticks(f, frame);
    f->held_slot = slot;
    av_frame_unref(f->held);
    av_frame_move_ref(f->held, frame);
    return vx_ok();
}

static vx_status finish(film *f)
{
    if (!f->decoded) return vx_clip_refused(f->clip, AVERROR_INVALIDDATA, "no frame of it can be decoded");
    if (f->done) return vx_ok();
    // A clip shorter than half a slot is still a picture.
    int64_t end = slot_of(f, f->next);
    return deliver(f, f->held_slot == 0 ? vx_max_i64(end, 1) : end);
}

// ---- decoding ----

// Errors before the first frame are a clip's ragged start: decoding begins with what can be decoded.
static vx_status check_decoded(film *f, int error)
{
    if (f->codec->codec_id == AV_CODEC_ID_FFV1 && vx_av_log_last()[0]) error = AVERROR_INVALIDDATA;
    if (error >= 0 || error == AVERROR(EAGAIN) || error == AVERROR_EOF || (!f->decoded && error != AVERROR(ENOMEM)))
        return vx_ok();
    return vx_clip_refused(f->clip, error, "frame %lld (%.2f s) cannot be decoded", (long long)f->decoded,
                           f->decoded ? seconds_of(f, f->next) : 0.0);
}

// packet NULL: drain.
static vx_status decode_packet(film *f, const AVPacket *packet)
{
    AVFrame *frame = f->clip->frame;
    int error = avcodec_send_packet(f->codec, packet);
    VX_TRY(check_decoded(f, error));
    while (!f->done && (error = avcodec_receive_frame(f->codec, frame)) >= 0) {
        vx_status s = check_decoded(f, error);
        if (s.code == VX_OK) s = take(f, frame);
        av_frame_unref(frame);
        VX_TRY(s);
        if (vx_clip_late(f->clip)) return vx_clip_refused(f->clip, AVERROR_EXIT, "is late");
    }
    return f->done ? vx_ok() : check_decoded(f, error);
}

static vx_status run(film *f)
{
    bool end = false;
    f->held = av_frame_alloc();
    if (!f->held) return vx_fail(VX_ERR_MEMORY, "no memory for a frame");
    VX_TRY(vx_clip_decoder(f->clip, &f->codec, f->clip->video));
    while (!f->done && !end) {
        VX_TRY(vx_clip_next(f->clip, f->clip->video, &end));
        vx_status s = decode_packet(f, end ? NULL : f->clip->packet);
        av_packet_unref(f->clip->packet);
        VX_TRY(s);
    }
    return finish(f);
}

vx_status vx_clip_frames(vx_clip *c, int64_t max_slots, vx_input_frame_fn frame, void *user, int64_t *slots)
{
    film f = { .clip = c, .max_slots = max_slots, .deliver = frame, .user = user };
    vx_status s = run(&f);
    *slots = f.slots;
    avcodec_free_context(&f.codec);
    av_frame_free(&f.held);
    av_frame_free(&f.rgb);
    sws_freeContext(f.scaler);
    vx_free(f.tight);
    return s;
}
