// What a finished movie holds, told from its packets or its decoded frames rather than from its header.
//
// The file may come from anywhere: only local MP4 and its kin are opened (no playlists, no references to other files, no
// network), and counts are limited.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <libavutil/intreadwrite.h>
#include <libavutil/mathematics.h>
#include <libavutil/pixdesc.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/file_kind.h"
#include "internal.h"

enum { MAX_STREAMS = 16, MAX_FRAMES = 1 << 22, MAX_BOXES = 4096, MAX_SIDE = 16384 };

typedef struct stamps {
    int64_t *pts; // of each frame, in the stream's time base
    int64_t count, capacity;
} stamps;

typedef struct reading {
    const char *path;
    AVFormatContext *format;
    AVPacket *packet;
    AVFrame *frame;
    AVStream *video, *audio;
    AVCodecContext *video_codec, *audio_codec; // only when decoding
    stamps stamps;
    int64_t audio_ticks; // presented, in the stream's time base, when packets are counted
    int64_t samples;     // presented, when decoding
} reading;

static vx_status refused(const reading *r, int error, const char *what)
{
    return vx_av_fail(VX_ERR_INPUT_FORMAT, error, "%s: %s", r->path, what);
}

// ---- opening ----

static vx_status need_regular(const char *path)
{
    struct stat found;
    if (stat(path, &found) != 0) return vx_fail_errno(VX_ERR_INPUT_OPEN, errno, "%s", path);
    if (!S_ISREG(found.st_mode)) return vx_fail(VX_ERR_INPUT_OPEN, "%s: is %s, not a file", path, vx_file_kind(found.st_mode));
    return vx_ok();
}

static vx_status open_file(reading *r)
{
    AVDictionary *options = NULL;
    char *url = vx_av_url(r->path);
    VX_NEED_MEMORY(url, "a path");
    av_dict_set(&options, "protocol_whitelist", "file", 0);
    av_dict_set(&options, "format_whitelist", "mov,mp4,m4a,3gp,3g2,mj2", 0);
    int error = avformat_open_input(&r->format, url, av_find_input_format("mov"), &options);
    vx_free(url);
    av_dict_free(&options);
    if (error == AVERROR(ENOENT) || error == AVERROR(EACCES))
        return vx_av_fail(VX_ERR_INPUT_OPEN, error, "%s: cannot be opened", r->path);
    if (error < 0) return refused(r, error, "is not an MP4 file that can be read");
    if (r->format->nb_streams > MAX_STREAMS)
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: holds %u streams, at most %d", r->path, r->format->nb_streams, MAX_STREAMS);
    error = avformat_find_stream_info(r->format, NULL);
    return error < 0 ? refused(r, error, "its streams cannot be told") : vx_ok();
}

static vx_status open_decoder(reading *r, AVCodecContext **out, const AVStream *stream)
{
    const AVCodec *found = avcodec_find_decoder(stream->codecpar->codec_id);
    if (!found)
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: there is no decoder for %s", r->path,
                       avcodec_get_name(stream->codecpar->codec_id));
    AVCodecContext *codec = *out = avcodec_alloc_context3(found);
    if (!codec || avcodec_parameters_to_context(codec, stream->codecpar) < 0)
        return vx_fail(VX_ERR_MEMORY, "no memory for a decoder");
    codec->pkt_timebase = stream->time_base;
    codec->max_pixels = (int64_t)MAX_SIDE * MAX_SIDE;
    codec->err_recognition = AV_EF_EXPLODE; // a frame that is patched up is not a frame that was written
    int error = avcodec_open2(codec, found, NULL);
    return error < 0 ? refused(r, error, "a decoder cannot be opened") : vx_ok();
}

static AVStream *first_of(const AVFormatContext *format, enum AVMediaType type)
{
    for (unsigned i = 0; format && i < format->nb_streams; i++)
        if (format->streams[i]->codecpar->codec_type == type && !(format->streams[i]->disposition & AV_DISPOSITION_ATTACHED_PIC))
            return format->streams[i];
    return NULL;
}

static vx_status open_streams(reading *r, bool decode)
{
    r->video = first_of(r->format, AVMEDIA_TYPE_VIDEO);
    r->audio = first_of(r->format, AVMEDIA_TYPE_AUDIO);
    if (!r->video) return vx_fail(VX_ERR_INPUT_FORMAT, "%s: holds no picture", r->path);
    const AVCodecParameters *p = r->video->codecpar;
    if (p->width < 1 || p->height < 1 || p->width > MAX_SIDE || p->height > MAX_SIDE)
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: a picture of %dx%d", r->path, p->width, p->height);
    if (!decode) return vx_ok();
    VX_TRY(open_decoder(r, &r->video_codec, r->video));
    return r->audio ? open_decoder(r, &r->audio_codec, r->audio) : vx_ok();
}

static void close_all(reading *r)
{
    avcodec_free_context(&r->video_codec);
    avcodec_free_context(&r->audio_codec);
    av_packet_free(&r->packet);
    av_frame_free(&r->frame);
    avformat_close_input(&r->format);
    vx_free(r->stamps.pts);
}

// ---- counting ----

static vx_status add_stamp(reading *r, int64_t pts)
{
    stamps *s = &r->stamps;
    if (s->count == MAX_FRAMES) return vx_fail(VX_ERR_INPUT_FORMAT, "%s: more than %d frames", r->path, MAX_FRAMES);
    if (s->count == s->capacity) {
        int64_t capacity = s->capacity ? 2 * s->capacity : 512;
        int64_t *grown = vx_realloc(s->pts, (size_t)capacity * sizeof *grown);
        VX_NEED_MEMORY(grown, "time stamps");
        s->pts = grown;
        s->capacity = capacity;
    }
    s->pts[s->count++] = pts;
    return vx_ok();
}

// What a player drops at the start (encoder delay) and at the end of this packet, in samples.
static int64_t skipped(const AVPacket *p)
{
    size_t size = 0;
    const uint8_t *side = av_packet_get_side_data(p, AV_PKT_DATA_SKIP_SAMPLES, &size);
    return side && size >= 10 ? (int64_t)AV_RL32(side) + AV_RL32(side + 4) : 0;
}

// 0 for what cannot be expressed: damaged files hold rates and durations of any kind, av_rescale_q answers INT64_MIN.
static int64_t rescaled(int64_t value, AVRational from, AVRational to)
{
    if (from.num < 1 || from.den < 1 || to.num < 1 || to.den < 1) return 0;
    return vx_max_i64(0, av_rescale_q(value, from, to));
}

static vx_status count_packet(reading *r, const AVPacket *p)
{
    if (p->flags & AV_PKT_FLAG_DISCARD) return vx_ok(); // outside the edit list
    if (p->stream_index == r->video->index) return add_stamp(r, p->pts);
    if (!r->audio || p->stream_index != r->audio->index) return vx_ok();
    int64_t drop = rescaled(skipped(p), (AVRational){ 1, r->audio->codecpar->sample_rate }, r->audio->time_base);
    if (p->duration > drop && __builtin_add_overflow(r->audio_ticks, p->duration - drop, &r->audio_ticks))
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: the sound's length is nonsense", r->path);
    return vx_ok();
}

// AVFrame.duration came with FFmpeg 6 and replaced pkt_duration.
static int64_t frame_duration(const AVFrame *f)
{
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(58, 2, 100)
    return f->duration;
#else
    return f->pkt_duration;
#endif
}

static vx_status count_frame(reading *r, const AVCodecContext *codec)
{
    const AVFrame *f = r->frame;
    if (codec == r->video_codec) return add_stamp(r, f->best_effort_timestamp);
    // AAC decodes whole frames; the container says how much of the last one is sound.
    int64_t presented = frame_duration(f) > 0
                            ? rescaled(frame_duration(f), r->audio->time_base, (AVRational){ 1, f->sample_rate })
                            : f->nb_samples;
    r->samples += vx_min_i64(f->nb_samples, presented);
    return vx_ok();
}

// packet NULL: drain.
static vx_status decode_packet(reading *r, AVCodecContext *codec, const AVPacket *packet)
{
    if (!codec) return vx_ok();
    int error = avcodec_send_packet(codec, packet);
    if (error < 0 && error != AVERROR_EOF) return refused(r, error, "a packet cannot be decoded");
    while ((error = avcodec_receive_frame(codec, r->frame)) >= 0) {
        VX_TRY(count_frame(r, codec));
        av_frame_unref(r->frame);
    }
    return error == AVERROR(EAGAIN) || error == AVERROR_EOF ? vx_ok() : refused(r, error, "a frame cannot be decoded");
}

static vx_status read_packets(reading *r, bool decode)
{
    int error;
    r->packet = av_packet_alloc();
    r->frame = av_frame_alloc();
    if (!r->packet || !r->frame) return vx_fail(VX_ERR_MEMORY, "no memory for a packet");
    while ((error = av_read_frame(r->format, r->packet)) >= 0) {
        bool video = r->packet->stream_index == r->video->index, audio = r->audio && r->packet->stream_index == r->audio->index;
        vx_status s = !decode ? count_packet(r, r->packet)
                              : decode_packet(r,
                                              video   ? r->video_codec
                                              : audio ? r->audio_codec
                                                      : NULL,
                                              r->packet);
        av_packet_unref(r->packet);
        VX_TRY(s);
    }
    if (error != AVERROR_EOF) return refused(r, error, "cannot be read to its end");
    VX_TRY(decode_packet(r, r->video_codec, NULL));
    return decode_packet(r, r->audio_codec, NULL);
}

// ---- the index's place, by hand ----

// A file is a row of boxes, each with its size (big-endian, itself included) and a name of four letters:
//   size:4 name:4 ...      size 1: the size is in the 8 bytes that follow; size 0: to the end of the file
static vx_status find_moov_first(bool *out, const char *path)
{
    *out = false;
    FILE *f = fopen(path, "rb");
    if (!f) return vx_fail_errno(VX_ERR_INPUT_OPEN, errno, "%s", path);
    int64_t at = 0;
    for (int box = 0; box < MAX_BOXES; box++) {
        uint8_t head[16];
        if (fseeko(f, (off_t)at, SEEK_SET) != 0 || fread(head, 1, 8, f) != 8) break;
        uint64_t size = AV_RB32(head);
        *out = memcmp(head + 4, "moov", 4) == 0;
        if (*out || memcmp(head + 4, "mdat", 4) == 0) break;
        if (size == 1) size = fread(head + 8, 1, 8, f) == 8 ? AV_RB64(head + 8) : 0;
        if (size < 8 || size > (uint64_t)(INT64_MAX - at)) break;
        at += (int64_t)size;
    }
    fclose(f);
    return vx_ok();
}

// ---- facts ----

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// Frames in presentation order against index * fps_den / fps_num, compared as fractions.
static int64_t stamp_errors(reading *r, AVRational rate)
{
    int64_t errors = 0;
    if (!r->stamps.count || rate.num < 1 || rate.den < 1) return r->stamps.count;
    qsort(r->stamps.pts, (size_t)r->stamps.count, sizeof *r->stamps.pts, by_time);
    for (int64_t i = 0; i < r->stamps.count; i++)
        errors += av_compare_ts(r->stamps.pts[i], r->video->time_base, i, av_inv_q(rate)) != 0;
    return errors;
}

static const char *or_unknown(const char *name)
{
    return name ? name : "unknown";
}

static void tell_video(vx_movie_facts *out, reading *r)
{
    const AVCodecParameters *p = r->video->codecpar;
    AVRational rate = r->video->avg_frame_rate.num > 0 ? r->video->avg_frame_rate : r->video->r_frame_rate;
    out->width = p->width;
    out->height = p->height;
    out->fps_num = rate.num;
    out->fps_den = rate.den;
    out->frames = r->stamps.count;
    out->first_pts_errors = stamp_errors(r, rate);
    out->video_s = rate.num > 0 ? (double)out->frames * rate.den / rate.num : 0;
    snprintf(out->video_codec, sizeof out->video_codec, "%s", avcodec_get_name(p->codec_id));
    snprintf(out->pixel_format, sizeof out->pixel_format, "%s", or_unknown(av_get_pix_fmt_name(p->format)));
    snprintf(out->color, sizeof out->color, "%s/%s/%s %s", or_unknown(av_color_primaries_name(p->color_primaries)),
             or_unknown(av_color_transfer_name(p->color_trc)), or_unknown(av_color_space_name(p->color_space)),
             or_unknown(av_color_range_name(p->color_range)));
}

static void tell_audio(vx_movie_facts *out, const reading *r, bool decode)
{
    if (!r->audio) return;
    const AVCodecParameters *p = r->audio->codecpar;
    out->sample_rate = p->sample_rate;
    out->channels = p->ch_layout.nb_channels;
    out->samples = decode ? r->samples : rescaled(r->audio_ticks, r->audio->time_base, (AVRational){ 1, p->sample_rate });
    out->audio_s = p->sample_rate > 0 ? (double)out->samples / p->sample_rate : 0;
    snprintf(out->audio_codec, sizeof out->audio_codec, "%s", avcodec_get_name(p->codec_id));
}

static vx_status read_movie(vx_movie_facts *out, reading *r, bool decode)
{
    VX_TRY(need_regular(r->path));
    vx_av_log_forget();
    VX_TRY(open_file(r));
    VX_TRY(open_streams(r, decode));
    VX_TRY(read_packets(r, decode));
    VX_TRY(find_moov_first(&out->moov_first, r->path));
    tell_video(out, r);
    tell_audio(out, r, decode);
    const AVDictionaryEntry *comment = av_dict_get(r->format->metadata, "comment", NULL, 0);
    if (comment) {
        out->comment = vx_strdup(comment->value);
        VX_NEED_MEMORY(out->comment, "a comment");
    }
    return vx_ok();
}

vx_status vx_reader_inspect(vx_movie_facts *out, const char *path, bool decode)
{
    reading r = { .path = path };
    vx_status s = read_movie(out, &r, decode);
    close_all(&r);
    if (s.code != VX_OK) *out = (vx_movie_facts){ 0 }; // the comment is the last thing taken: nothing is lost here
    return s;
}
