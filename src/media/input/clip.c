// Opening a clip, and counting it by its packets.
//
// What may be opened: one demuxer, chosen by vx_sniff; decoders of the list below; files, no other protocol. What a file says
// of its sizes is checked before a decoder sees it, and decoders refuse larger pictures themselves.
#include "clip.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libavutil/display.h>
#include <libavutil/intreadwrite.h>
#include <libavutil/mathematics.h>

#include "../ffmpeg/internal.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"

#define FORMATS "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,wav,mp3,flac,ogg"
#define DECODERS                                                                                                         \
    "h264,hevc,vp8,vp9,libdav1d,libaom-av1,mpeg4,mjpeg,ffv1,prores,png,rawvideo,aac,mp3float,mp3,flac,alac,vorbis,opus," \
    "pcm_u8,pcm_s8,pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,pcm_s32le,pcm_s32be,pcm_f32le,pcm_f32be,pcm_f64le,pcm_f64be," \
    "pcm_alaw,pcm_mulaw"

enum {
    MAX_FRAMES = 1 << 14, // more than 1000 frames per second for the longest clip
    MIN_RATE = 1000,
    MAX_RATE = 384000, // what the resampler takes (media/sound.h)
    MAX_CHANNELS = 2,
    TICKS_TO_ROUND = 4, // a time base must be this much finer than frames before its rounding is forgiven
    THREADS = 4,
    THREADS_FROM_PIXELS = 640 * 480, // small pictures are decoded faster than threads start
};

// A hundredth more than the limit is let through: containers round up (public report P10).
static const double max_seconds = VX_INPUT_MAX_SECONDS * 1.01;

vx_status vx_clip_refused(const vx_clip *c, int error, const char *format, ...)
{
    char message[240];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    if (vx_clip_late(c)) return vx_fail(VX_ERR_INPUT_FORMAT, "%s: decoding took more than %d seconds", c->path, VX_INPUT_BUDGET);
    return vx_av_fail(VX_ERR_INPUT_FORMAT, error, "%s: %s", c->path, message);
}

vx_status vx_clip_too_long(const vx_clip *c)
{
    return vx_fail_remedy(VX_ERR_RANGE, "cut it before it is given", "%s: lasts longer than %d seconds", c->path,
                          VX_INPUT_MAX_SECONDS);
}

vx_status vx_clip_without(const vx_clip *c, const char *what)
{
    return vx_fail(VX_ERR_INPUT_FORMAT, "%s: holds no %s", c->path, what);
}

bool vx_clip_late(const vx_clip *c)
{
    return vx_clock_s() > c->deadline;
}

static int on_wait(void *clip)
{
    return vx_clip_late(clip);
}

// ---- opening ----

static bool listed(const char *list, const char *name)
{
    size_t size = strlen(name);
    for (const char *p = list; p; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, name, size) == 0 && (p[size] == ',' || p[size] == 0)) return true;
    }
    return false;
}

static const AVCodec *decoder_of(const AVStream *stream)
{
    const AVCodec *found = avcodec_find_decoder(stream->codecpar->codec_id);
    return found && listed(DECODERS, found->name) ? found : NULL;
}

static vx_status open_file(vx_clip *c)
{
    AVDictionary *options = NULL;
    c->format = avformat_alloc_context();
    char *url = vx_av_url(c->path);
    if (!c->format || !url) {
        vx_free(url);
        return vx_fail(VX_ERR_MEMORY, "no memory for a clip");
    }
    c->format->interrupt_callback = (AVIOInterruptCB){ on_wait, c };
    av_dict_set(&options, "protocol_whitelist", "file", 0);
    av_dict_set(&options, "format_whitelist", FORMATS, 0);
    av_dict_set(&options, "codec_whitelist", DECODERS, 0);
    int error = avformat_open_input(&c->format, url, av_find_input_format(c->demuxer), &options);
    vx_free(url);
    av_dict_free(&options);
    return error < 0 ? vx_clip_refused(c, error, "is not a %s file that can be read", c->demuxer) : vx_ok();
}

static AVStream *first_of(const AVFormatContext *format, enum AVMediaType type)
{
    for (unsigned i = 0; i < format->nb_streams; i++)
        if (format->streams[i]->codecpar->codec_type == type && !(format->streams[i]->disposition & AV_DISPOSITION_ATTACHED_PIC))
            return format->streams[i];
    return NULL;
}

static vx_status choose_streams(vx_clip *c)
{
    if (c->format->nb_streams > VX_INPUT_MAX_STREAMS)
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: holds %u streams, at most %d", c->path, c->format->nb_streams,
                       VX_INPUT_MAX_STREAMS);
    c->video = first_of(c->format, AVMEDIA_TYPE_VIDEO);
    c->audio = first_of(c->format, AVMEDIA_TYPE_AUDIO);
    for (unsigned i = 0; i < c->format->nb_streams; i++) {
        AVStream *s = c->format->streams[i];
        if (s != c->video && s != c->audio) s->discard = AVDISCARD_ALL;
    }
    return c->video || c->audio ? vx_ok() : vx_clip_without(c, "video and no sound");
}

// Sides may still be 0 before the streams were looked into.
static vx_status check_picture(const vx_clip *c)
{
    const AVCodecParameters *p = c->video->codecpar;
    if (p->width < 0 || p->height < 0 || p->width > VX_INPUT_MAX_SIDE || p->height > VX_INPUT_MAX_SIDE ||
        (int64_t)p->width * p->height > VX_INPUT_MAX_PIXELS)
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: a video of %dx%d; sides may be up to %d and pixels up to %d", c->path, p->width,
                       p->height, VX_INPUT_MAX_SIDE, VX_INPUT_MAX_PIXELS);
    return vx_ok();
}

static vx_status check_sound(const vx_clip *c)
{
    const AVCodecParameters *p = c->audio->codecpar;
    if (p->ch_layout.nb_channels < 1 || p->ch_layout.nb_channels > MAX_CHANNELS)
        return vx_fail_remedy(VX_ERR_RANGE, "mix it down to stereo", "%s: sound of %d channels; 1 or 2 are taken", c->path,
                              p->ch_layout.nb_channels);
    if (p->sample_rate < MIN_RATE || p->sample_rate > MAX_RATE)
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: sound at %d Hz; %d to %d are taken", c->path, p->sample_rate, MIN_RATE,
                       MAX_RATE);
    return vx_ok();
}

static vx_status check_codec(const vx_clip *c, const AVStream *stream)
{
    if (!stream || decoder_of(stream)) return vx_ok();
    return vx_fail_remedy(VX_ERR_INPUT_FORMAT, "convert it, for instance to H.264 and AAC in MP4",
                          "%s: its codec, %s, is not read", c->path, avcodec_get_name(stream->codecpar->codec_id));
}

// What only the streams themselves tell. The decoders that FFmpeg opens for it are held to the limits too.
static vx_status look_into(vx_clip *c)
{
    AVDictionary *options[VX_INPUT_MAX_STREAMS] = { 0 };
    unsigned count = c->format->nb_streams;
    for (unsigned i = 0; i < count; i++) {
        av_dict_set_int(&options[i], "max_pixels", VX_INPUT_MAX_PIXELS, 0);
        av_dict_set_int(&options[i], "threads", 1, 0);
    }
    int error = avformat_find_stream_info(c->format, options);
    for (unsigned i = 0; i < count; i++) av_dict_free(&options[i]);
    return error < 0 ? vx_clip_refused(c, error, "its streams cannot be told") : vx_ok();
}

// The display matrix, as FFmpeg's tools apply it: its angle, counter-clockwise, to the nearest quarter turn, and the flips
// that its diagonals hold besides.
static int orientation_of(const AVStream *stream)
{
    const int32_t *m;
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 31, 102)
    const AVPacketSideData *side = av_packet_side_data_get(stream->codecpar->coded_side_data,
                                                           stream->codecpar->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
    m = side && side->size >= 9 * sizeof *m ? (const int32_t *)(const void *)side->data : NULL;
#else
    size_t size = 0;
    const uint8_t *side = av_stream_get_side_data(stream, AV_PKT_DATA_DISPLAYMATRIX, &size);
    m = side && size >= 9 * sizeof *m ? (const int32_t *)(const void *)side : NULL;
#endif
    double angle = m ? av_display_rotation_get(m) : 0;
    if (isnan(angle)) return 1;
    switch (((int)nearbyint(angle / 90) % 4 + 4) % 4) { // counter-clockwise quarters
    case 1: return m[3] < 0 ? 7 : 8;
    case 2: return m[0] < 0 && m[4] < 0 ? 3 : m[0] < 0 ? 2 : 4;
    case 3: return m[3] > 0 ? 5 : 6;
    default: return m && m[4] < 0 ? 4 : 1;
    }
}

static vx_status open_streams(vx_clip *c)
{
    VX_TRY(choose_streams(c));
    VX_TRY(check_codec(c, c->video));
    VX_TRY(check_codec(c, c->audio));
    if (c->video) VX_TRY(check_picture(c));
    VX_TRY(look_into(c));
    VX_TRY(choose_streams(c)); // some containers show streams only now
    VX_TRY(check_codec(c, c->video));
    VX_TRY(check_codec(c, c->audio));
    if (c->audio) VX_TRY(check_sound(c));
    if (!c->video) return vx_ok();
    if (c->video->codecpar->width < 1 || c->video->codecpar->height < 1)
        return vx_clip_refused(c, AVERROR_INVALIDDATA, "the size of its pictures cannot be told");
    c->orientation = orientation_of(c->video);
    return check_picture(c);
}

vx_status vx_clip_open(vx_clip *c, const char *path, const char *demuxer)
{
    *c = (vx_clip){ .path = path, .demuxer = demuxer, .deadline = vx_clock_s() + VX_INPUT_BUDGET };
    vx_av_log_forget();
    VX_TRY(open_file(c));
    c->packet = av_packet_alloc();
    c->frame = av_frame_alloc();
    if (!c->packet || !c->frame) return vx_fail(VX_ERR_MEMORY, "no memory for a packet");
    VX_TRY(open_streams(c));
    vx_av_log_forget();
    return vx_ok();
}

void vx_clip_close(vx_clip *c)
{
    av_packet_free(&c->packet);
    av_frame_free(&c->frame);
    avformat_close_input(&c->format);
}

vx_status vx_clip_decoder(const vx_clip *c, AVCodecContext **out, const AVStream *stream)
{
    const AVCodec *found = decoder_of(stream);
    const AVCodecDescriptor *about = avcodec_descriptor_get(stream->codecpar->codec_id);
    AVCodecContext *codec = *out = avcodec_alloc_context3(found);
    if (!codec || avcodec_parameters_to_context(codec, stream->codecpar) < 0)
        return vx_fail(VX_ERR_MEMORY, "no memory for a decoder");
    codec->pkt_timebase = stream->time_base;
    codec->max_pixels = VX_INPUT_MAX_PIXELS;
    bool large = (int64_t)codec->width * codec->height >= THREADS_FROM_PIXELS, ffv1 = codec->codec_id == AV_CODEC_ID_FFV1;
    // FFV1 says that a slice is damaged only in its log, which is kept for the calling thread alone.
    codec->thread_count = large && !ffv1 ? THREADS : 1;
    codec->err_recognition = AV_EF_CRCCHECK;
    // Where no picture needs another one, an error is an error. Elsewhere it may only mean that a clip was cut out of a
    // longer one and begins with pictures that lean on what is gone.
    if (ffv1 || (about && about->props & AV_CODEC_PROP_INTRA_ONLY)) codec->err_recognition |= AV_EF_EXPLODE;
    int error = avcodec_open2(codec, found, NULL);
    return error < 0 ? vx_clip_refused(c, error, "a decoder cannot be opened") : vx_ok();
}

// ---- packets ----

// Matroska and MOV end quietly where a file was cut off: only FFmpeg's log says so.
static bool says_cut(const char *words)
{
    return strstr(words, "ended prematurely") || strstr(words, "partial file");
}

vx_status vx_clip_next(vx_clip *c, const AVStream *stream, bool *end)
{
    int error;
    *end = false;
    while ((error = av_read_frame(c->format, c->packet)) >= 0) {
        if (vx_clip_late(c)) return vx_clip_refused(c, AVERROR_EXIT, "is late");
        if (c->packet->flags & AV_PKT_FLAG_CORRUPT)
            return vx_clip_refused(c, AVERROR_INVALIDDATA, "is damaged near byte %lld", (long long)avio_tell(c->format->pb));
        if (!stream || c->packet->stream_index == stream->index) return vx_ok();
        av_packet_unref(c->packet);
    }
    if (error != AVERROR_EOF)
        return vx_clip_refused(c, error, "cannot be read beyond byte %lld", (long long)avio_tell(c->format->pb));
    if (says_cut(vx_av_log_last())) return vx_clip_refused(c, AVERROR_INVALIDDATA, "is cut off");
    *end = true;
    return vx_ok();
}

// ---- the scan ----

typedef struct scan {
    int64_t *stamp; // of each frame, in the stream's time base
    int64_t count, last_end, sound_ticks;
} scan;

static vx_status scan_video(vx_clip *c, scan *s)
{
    const AVPacket *p = c->packet;
    int64_t stamp = p->pts != AV_NOPTS_VALUE ? p->pts : p->dts != AV_NOPTS_VALUE ? p->dts : s->last_end;
    if (s->count == MAX_FRAMES) return vx_fail(VX_ERR_INPUT_FORMAT, "%s: more than %d frames", c->path, MAX_FRAMES);
    // Stamps beyond this are nonsense, and sums with them would overflow.
    if (stamp > INT64_MAX / 4 || stamp < INT64_MIN / 4 || p->duration > INT64_MAX / 4 || p->duration < 0)
        return vx_clip_too_long(c);
    s->stamp[s->count++] = stamp;
    s->last_end = s->count == 1 ? stamp + p->duration : vx_max_i64(s->last_end, stamp + p->duration);
    double span = (double)(s->last_end - s->stamp[0]) * av_q2d(c->video->time_base);
    return span > max_seconds ? vx_clip_too_long(c) : vx_ok();
}

// What a player drops at the start (encoder delay) and at the end of this packet, in samples.
static int64_t skipped(const AVPacket *p)
{
    size_t size = 0;
    const uint8_t *side = av_packet_get_side_data(p, AV_PKT_DATA_SKIP_SAMPLES, &size);
    return side && size >= 10 ? (int64_t)AV_RL32(side) + AV_RL32(side + 4) : 0;
}

static vx_status scan_audio(vx_clip *c, scan *s)
{
    AVRational sample = { 1, c->audio->codecpar->sample_rate };
    int64_t ticks = c->packet->duration - av_rescale_q(skipped(c->packet), sample, c->audio->time_base);
    if (ticks > 0 && __builtin_add_overflow(s->sound_ticks, ticks, &s->sound_ticks)) return vx_clip_too_long(c);
    c->sound_s = (double)s->sound_ticks * av_q2d(c->audio->time_base);
    return c->sound_s > max_seconds ? vx_clip_too_long(c) : vx_ok();
}

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// Stamps that rounding to a coarse time base (Matroska's milliseconds) moved off an even grid still mean that grid.
static bool fits_rate(const scan *s, AVRational base, AVRational rate)
{
    if (rate.num < 1 || rate.den < 1) return false;
    double ticks = av_q2d(av_inv_q(rate)) / av_q2d(base);
    if (ticks < TICKS_TO_ROUND) return false;
    for (int64_t i = 1; i < s->count; i++)
        if (fabs((double)(s->stamp[i] - s->stamp[0]) - (double)i * ticks) >= 1) return false;
    return true;
}

static bool has_equal_distances(const scan *s)
{
    for (int64_t i = 2; i < s->count; i++)
        if (s->stamp[i] - s->stamp[i - 1] != s->stamp[1] - s->stamp[0]) return false;
    return s->count >= 2 && s->stamp[1] > s->stamp[0];
}

static void tell_rate(vx_clip *c, scan *s)
{
    AVRational base = c->video->time_base, average = c->video->avg_frame_rate;
    qsort(s->stamp, (size_t)s->count, sizeof *s->stamp, by_time);
    c->frames = s->count;
    c->rate = average.num > 0 && average.den > 0 ? average : c->video->r_frame_rate;
    if (has_equal_distances(s)) {
        int64_t step = s->stamp[1] - s->stamp[0];
        // 1001-rates in milliseconds are never equal, so an equal step in ticks is the rate itself
        if (step <= INT_MAX && av_reduce(&c->rate.num, &c->rate.den, base.den, base.num * step, INT_MAX)) c->constant_rate = true;
    }
    if (!c->constant_rate) c->constant_rate = fits_rate(s, base, c->rate);
    if (c->rate.num < 1 || c->rate.den < 1) c->rate = (AVRational){ 0, 1 };
    int64_t span = s->last_end - s->stamp[0];
    c->video_s = (double)span * av_q2d(base);
    if (c->constant_rate) c->video_s = (double)s->count / av_q2d(c->rate);
}

static vx_status scan_packets(vx_clip *c, scan *s)
{
    for (;;) {
        bool end;
        VX_TRY(vx_clip_next(c, NULL, &end));
        if (end) break;
        vx_status t = vx_ok();
        bool hidden = c->packet->flags & AV_PKT_FLAG_DISCARD; // outside the edit list
        if (!hidden && c->video && c->packet->stream_index == c->video->index) t = scan_video(c, s);
        if (!hidden && c->audio && c->packet->stream_index == c->audio->index) t = scan_audio(c, s);
        av_packet_unref(c->packet);
        VX_TRY(t);
    }
    if (c->video && !s->count) return vx_clip_without(c, "frame");
    if (c->video) tell_rate(c, s);
    if (c->video && c->video_s > max_seconds) return vx_clip_too_long(c);
    if (!c->video && c->sound_s <= 0) return vx_clip_without(c, "sound that lasts");
    return vx_ok();
}

vx_status vx_clip_scan(vx_clip *c)
{
    scan s = { .stamp = vx_alloc_array(MAX_FRAMES, sizeof *s.stamp) };
    VX_NEED_MEMORY(s.stamp, "time stamps");
    vx_status t = scan_packets(c, &s);
    vx_free(s.stamp);
    return t;
}
