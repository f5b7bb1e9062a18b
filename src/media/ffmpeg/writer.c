// A movie under construction: packets of both tracks into one MP4.
//
//   create      encoders tried and opened, header written     nothing yet
//   put_sound   all of the sound encoded at once; libavformat holds the packets (some 100 KB) until the picture has caught
//               up, so that the file is interleaved by decoding time
//   put_frames  pictures encoded, packets written
//   finish      encoders drained, counts compared, index written and moved to the front, file closed
//
// Every frame in must give one packet out (public report P05: encoders skip frames, muxers think nothing of it).
#include <stdio.h>
#include <string.h>

#include <libavutil/mathematics.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "internal.h"

char *vx_av_url(const char *path)
{
    size_t size = strlen(path);
    char *url = vx_alloc(size + sizeof "file:");
    if (url) snprintf(url, size + sizeof "file:", "file:%s", path);
    return url;
}

vx_status vx_av_encode_one(AVCodecContext *codec, AVFrame *frame, AVPacket *packet, int *packets)
{
    *packets = 0;
    frame->pts = 0;
    int error = avcodec_send_frame(codec, frame);
    if (error >= 0) error = avcodec_send_frame(codec, NULL);
    for (; error >= 0 && (error = avcodec_receive_packet(codec, packet)) >= 0; (*packets)++) av_packet_unref(packet);
    return error == AVERROR_EOF ? vx_ok() : vx_av_fail(VX_ERR_ENCODER, error, "%s fails at its first frame", codec->codec->name);
}

static vx_status output_failed(const vx_movie *m, int error)
{
    return vx_av_fail(VX_ERR_OUTPUT, error, "%s: cannot be written", m->path);
}

// ---- opening ----

static vx_status add_stream(vx_movie *m, vx_track *t)
{
    t->stream = avformat_new_stream(m->format, NULL);
    if (!t->stream || avcodec_parameters_from_context(t->stream->codecpar, t->codec) < 0)
        return vx_fail(VX_ERR_MEMORY, "no memory for a stream");
    t->stream->time_base = t->codec->time_base;
    t->stream->avg_frame_rate = t->codec->framerate;
    t->stream->sample_aspect_ratio = t->codec->sample_aspect_ratio;
    return vx_ok();
}

static int64_t gcd(int64_t a, int64_t b)
{
    return b ? gcd(b, a % b) : a;
}

// Durations in the index and in edit lists are in this unit. The default, 1/1000 s, would round a soundtrack by up to 32
// samples; a multiple of both rates is exact, as long as the whole length still fits 32 bits.
static int64_t movie_timescale(const vx_movie_params *p)
{
    int64_t rates = p->audio_codec ? (int64_t)p->fps_num / gcd(p->fps_num, p->sample_rate) * p->sample_rate : p->fps_num;
    int64_t seconds = p->frames * p->fps_den / p->fps_num + 1;
    return rates <= INT32_MAX / seconds ? vx_max_i64(rates, 1000) : 1000;
}

static vx_status write_header(vx_movie *m, const vx_movie_params *p)
{
    AVDictionary *options = NULL;
    av_dict_set(&options, "movflags", "+faststart", 0);
    av_dict_set_int(&options, "movie_timescale", movie_timescale(p), 0);
    // Without "use_metadata_tags" the comment becomes iTunes' (c)cmt, which players and tag readers know.
    int error = p->comment ? av_dict_set(&m->format->metadata, "comment", p->comment, 0) : 0;
    m->format->max_interleave_delta = 0; // hold the sound as long as it takes, not only ten seconds
    if (error >= 0) error = avio_open(&m->format->pb, m->format->url, AVIO_FLAG_WRITE);
    vx_status s = vx_ok();
    if (error < 0) s = output_failed(m, error);
    else if ((error = avformat_write_header(m->format, &options)) < 0)
        s = m->format->pb->error < 0 ? output_failed(m, m->format->pb->error)
                                     : vx_av_fail(VX_ERR_ENCODER, error, "the mp4 muxer refuses");
    av_dict_free(&options);
    return s;
}

static vx_status open_tracks(vx_movie *m, const vx_movie_params *p)
{
    m->packet = av_packet_alloc();
    if (!m->packet) return vx_fail(VX_ERR_MEMORY, "no memory for a movie");
    VX_TRY(vx_video_open(m, p));
    VX_TRY(vx_video_scaler(m));
    return m->has_audio ? vx_audio_open(m, p) : vx_ok();
}

static vx_status open_container(vx_movie *m, const vx_movie_params *p)
{
    char *url = vx_av_url(m->path);
    VX_NEED_MEMORY(url, "a movie");
    vx_av_log_forget();
    int error = avformat_alloc_output_context2(&m->format, NULL, "mp4", url);
    vx_free(url);
    if (error < 0) return vx_av_fail(VX_ERR_ENCODER, error, "the mp4 muxer is not part of this FFmpeg");
    VX_TRY(add_stream(m, &m->video));
    if (m->has_audio) VX_TRY(add_stream(m, &m->audio));
    return write_header(m, p);
}

static vx_status allocate(vx_movie **out, const char *path, const vx_movie_params *p)
{
    vx_movie *m = *out = vx_alloc_array(1, sizeof *m);
    VX_NEED_MEMORY(m, "a movie");
    m->width = p->width;
    m->height = p->height;
    m->frames = p->frames;
    m->has_audio = p->audio_codec != NULL;
    m->channels = p->channels;
    m->samples = p->samples;
    m->path = vx_strdup(path);
    VX_NEED_MEMORY(m->path, "a path");
    return vx_ok();
}

vx_status vx_writer_create(vx_movie **out, const char *path, const vx_movie_params *p)
{
    vx_status s = allocate(out, path, p);
    if (s.code == VX_OK && *out) s = open_tracks(*out, p);
    if (s.code == VX_OK && *out) s = open_container(*out, p);
    if (s.code != VX_OK) vx_writer_destroy(out);
    return s;
}

vx_status vx_writer_probe(const vx_movie_params *p, char *warning, size_t size)
{
    vx_movie *m = NULL;
    vx_status s = allocate(&m, "", p);
    if (s.code == VX_OK && m) s = open_tracks(m, p);
    if (s.code == VX_OK && m && warning && size) snprintf(warning, size, "%s", m->warning);
    vx_writer_destroy(&m);
    return s;
}

static void close_track(vx_track *t)
{
    avcodec_free_context(&t->codec);
    av_frame_free(&t->frame);
}

void vx_writer_destroy(vx_movie **movie)
{
    vx_movie *m = *movie;
    if (!m) return;
    close_track(&m->video);
    close_track(&m->audio);
    sws_freeContext(m->scaler);
    av_frame_free(&m->rgb);
    av_packet_free(&m->packet);
    if (m->format) avio_closep(&m->format->pb);
    avformat_free_context(m->format);
    vx_free(m->path);
    vx_free(m);
    *movie = NULL;
}

// ---- packets ----

static vx_status write_packet(vx_movie *m, vx_track *t)
{
    AVPacket *p = m->packet;
    if (t == &m->video) p->duration = 1; // x264's wrapper leaves it open; a frame lasts one unit of the encoder's time base
    av_packet_rescale_ts(p, t->codec->time_base, t->stream->time_base);
    p->stream_index = t->stream->index;
    t->packets++;
    int error = av_interleaved_write_frame(m->format, p); // takes what the packet holds
    if (m->format->pb->error < 0) return output_failed(m, m->format->pb->error);
    return error < 0 ? vx_av_fail(VX_ERR_ENCODER, error, "the mp4 muxer refuses a packet") : vx_ok();
}

// frame NULL: there are no more.
static vx_status encode(vx_movie *m, vx_track *t, const AVFrame *frame)
{
    vx_av_log_forget();
    int error = avcodec_send_frame(t->codec, frame);
    if (error < 0) return vx_av_fail(VX_ERR_ENCODER, error, "%s refuses frame %lld", t->codec->codec->name, (long long)t->pushed);
    if (frame) t->pushed++;
    while ((error = avcodec_receive_packet(t->codec, m->packet)) >= 0) VX_TRY(write_packet(m, t));
    if (error != AVERROR(EAGAIN) && error != AVERROR_EOF)
        return vx_av_fail(VX_ERR_ENCODER, error, "%s fails after frame %lld", t->codec->codec->name, (long long)t->pushed);
    return vx_ok();
}

static vx_status put_sound(vx_movie *m, const float *samples)
{
    int frame_size = m->audio.codec->frame_size;
    for (int64_t first = 0; first < m->samples; first += frame_size) {
        VX_TRY(vx_audio_fill(m, samples, first, (int)vx_min_i64(frame_size, m->samples - first)));
        m->audio.frame->pts = first;
        VX_TRY(encode(m, &m->audio, m->audio.frame));
    }
    return encode(m, &m->audio, NULL);
}

static vx_status put_frames(vx_movie *m, const uint8_t *rgb, int64_t count)
{
    size_t frame_bytes = (size_t)m->width * (size_t)m->height * 3;
    for (int64_t i = 0; i < count; i++) {
        VX_TRY(vx_video_convert(m, rgb + (size_t)i * frame_bytes));
        m->video.frame->pts = m->video.pushed;
        VX_TRY(encode(m, &m->video, m->video.frame));
    }
    return vx_ok();
}

static vx_status finish(vx_movie *m)
{
    VX_TRY(encode(m, &m->video, NULL));
    if (m->video.packets != m->video.pushed)
        return vx_fail(VX_ERR_ENCODER, "%s was given %lld frames and wrote %lld", m->video_encoder, (long long)m->video.pushed,
                       (long long)m->video.packets);
    vx_av_log_forget();
    int error = av_write_trailer(m->format);
    if (m->format->pb->error < 0) error = m->format->pb->error;
    int closing = avio_closep(&m->format->pb);
    if (error >= 0) error = closing;
    return error < 0 ? output_failed(m, error) : vx_ok();
}

// ---- the table's entries ----

static vx_status marked(vx_movie *m, vx_status s)
{
    if (s.code != VX_OK) m->broken = true;
    return s;
}

static vx_status need_open(const vx_movie *m)
{
    if (m->broken || m->finished)
        return vx_fail(VX_ERR_INTERNAL, "%s: the movie is %s", m->path, m->finished ? "finished" : "broken");
    return vx_ok();
}

vx_status vx_writer_put_sound(vx_movie *m, const float *samples)
{
    VX_TRY(need_open(m));
    if (!m->has_audio || m->sound_given || m->video.pushed)
        return vx_fail(VX_ERR_INTERNAL, "%s: sound comes once, before the first frame, and only if it was asked for", m->path);
    m->sound_given = true;
    return marked(m, put_sound(m, samples));
}

vx_status vx_writer_put_frames(vx_movie *m, const uint8_t *rgb, int64_t count)
{
    VX_TRY(need_open(m));
    if (m->has_audio && !m->sound_given) return vx_fail(VX_ERR_INTERNAL, "%s: the sound must come before the frames", m->path);
    if (count < 0 || count > m->frames - m->video.pushed)
        return vx_fail(VX_ERR_INTERNAL, "%s: %lld frames after %lld, expected %lld in all", m->path, (long long)count,
                       (long long)m->video.pushed, (long long)m->frames);
    return marked(m, put_frames(m, rgb, count));
}

vx_status vx_writer_finish(vx_movie *m)
{
    VX_TRY(need_open(m));
    if (m->video.pushed != m->frames)
        return vx_fail(VX_ERR_INTERNAL, "%s: %lld frames came, expected %lld", m->path, (long long)m->video.pushed,
                       (long long)m->frames);
    vx_status s = marked(m, finish(m));
    m->finished = s.code == VX_OK;
    return s;
}
