// The sound of a clip, at its own rate and layout: decoded, and converted to planar f32 by swresample, which divides integers
// by 2^(bits-1). What the container marks as encoder delay is dropped by the decoder.
#include "clip.h"

#include <string.h>

#include <libswresample/swresample.h>

#include "../ffmpeg/internal.h"
#include "base/alloc.h"
#include "base/checked.h"

enum { MAX_CHANNELS = 2, FIRST_CAPACITY = 1 << 16 };

typedef struct tape {
    vx_clip *clip;
    AVCodecContext *codec;
    SwrContext *converter;
    int channels, rate, format; // of the first decoded frame
    float *plane[MAX_CHANNELS];
    int64_t count, capacity, most;
    int unsure; // an error that may be the end's (MP3)
} tape;

static double seconds_of(const tape *t)
{
    return t->rate ? (double)t->count / t->rate : 0;
}

static vx_status grow(tape *t, int64_t more)
{
    if (t->count + more <= t->capacity) return vx_ok();
    int64_t capacity = vx_max_i64(vx_max_i64(FIRST_CAPACITY, 2 * t->capacity), t->count + more);
    for (int c = 0; c < t->channels; c++) {
        float *grown = vx_realloc(t->plane[c], (size_t)capacity * sizeof *grown);
        VX_NEED_MEMORY(grown, "sound");
        t->plane[c] = grown;
    }
    t->capacity = capacity;
    return vx_ok();
}

static vx_status make_converter(tape *t, const AVFrame *frame)
{
    AVChannelLayout layout;
    t->channels = frame->ch_layout.nb_channels;
    t->rate = frame->sample_rate;
    t->format = frame->format;
    if (t->channels < 1 || t->channels > MAX_CHANNELS || t->rate != t->clip->audio->codecpar->sample_rate)
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: sound of %d channels at %d Hz, which is not what its header says", t->clip->path,
                       t->channels, t->rate);
    av_channel_layout_default(&layout, t->channels);
    int error = swr_alloc_set_opts2(&t->converter, &layout, AV_SAMPLE_FMT_FLTP, t->rate, &layout, t->format, t->rate, 0, NULL);
    if (error >= 0) error = swr_init(t->converter);
    return error < 0 ? vx_clip_refused(t->clip, error, "its sound cannot be converted") : vx_ok();
}

static vx_status take(tape *t, const AVFrame *frame)
{
    if (!t->converter) VX_TRY(make_converter(t, frame));
    if (frame->ch_layout.nb_channels != t->channels || frame->sample_rate != t->rate || frame->format != t->format)
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: at %.2f s the sound changes its rate, channels or format", t->clip->path,
                       seconds_of(t));
    VX_TRY(grow(t, frame->nb_samples));
    uint8_t *into[MAX_CHANNELS] = { 0 };
    for (int c = 0; c < t->channels; c++) into[c] = (uint8_t *)(t->plane[c] + t->count);
    int got =
        swr_convert(t->converter, into, frame->nb_samples, (const uint8_t **)(uintptr_t)frame->extended_data, frame->nb_samples);
    if (got < 0) return vx_clip_refused(t->clip, got, "its sound cannot be converted");
    t->count += got;
    // The scan measured the clip by its packets; what they hold may still be more.
    if (t->count > (int64_t)t->rate * (VX_INPUT_MAX_SECONDS + 1)) return vx_clip_too_long(t->clip);
    return vx_ok();
}

// Junk behind the last frame (old tags) is common in MP3 and no damage; junk between frames is.
static vx_status check_decoded(tape *t, int error)
{
    if (error >= 0 && !t->unsure) return vx_ok();
    if (error == AVERROR(EAGAIN) || error == AVERROR_EOF) return vx_ok();
    if (error < 0 && error != AVERROR(ENOMEM) && t->codec->codec_id == AV_CODEC_ID_MP3) {
        t->unsure = error;
        return vx_ok();
    }
    return vx_clip_refused(t->clip, error < 0 ? error : t->unsure, "the sound is damaged at %.2f s", seconds_of(t));
}

// packet NULL: drain.
static vx_status decode_packet(tape *t, const AVPacket *packet)
{
    AVFrame *frame = t->clip->frame;
    int error = avcodec_send_packet(t->codec, packet);
    if (error < 0) return check_decoded(t, error);
    while (t->count < t->most && (error = avcodec_receive_frame(t->codec, frame)) >= 0) {
        vx_status s = check_decoded(t, error);
        if (s.code == VX_OK) s = take(t, frame);
        av_frame_unref(frame);
        VX_TRY(s);
    }
    return t->count < t->most ? check_decoded(t, error) : vx_ok();
}

static vx_status run(tape *t)
{
    bool end = false;
    VX_TRY(vx_clip_decoder(t->clip, &t->codec, t->clip->audio));
    while (t->count < t->most && !end) {
        VX_TRY(vx_clip_next(t->clip, t->clip->audio, &end));
        vx_status s = decode_packet(t, end ? NULL : t->clip->packet);
        av_packet_unref(t->clip->packet);
        VX_TRY(s);
    }
    if (!t->count) return vx_clip_refused(t->clip, AVERROR_INVALIDDATA, "no sound of it can be decoded");
    t->count = vx_min_i64(t->count, t->most);
    return vx_ok();
}

static vx_status join(const tape *t, float **planar)
{
    size_t n = (size_t)t->count;
    *planar = vx_alloc_array((size_t)t->channels * n, sizeof **planar);
    VX_NEED_MEMORY(*planar, "sound");
    for (int c = 0; c < t->channels; c++) memcpy(*planar + (size_t)c * n, t->plane[c], n * sizeof **planar);
    return vx_ok();
}

vx_status vx_clip_sound(vx_clip *c, float **planar, int64_t *channels, int64_t *samples, int64_t *sample_rate,
                        int64_t max_samples)
{
    tape t = { .clip = c, .most = max_samples > 0 ? max_samples : INT64_MAX };
    vx_status s = run(&t);
    if (s.code == VX_OK) s = join(&t, planar);
    *channels = t.channels;
    *samples = t.count;
    *sample_rate = t.rate;
    avcodec_free_context(&t.codec);
    swr_free(&t.converter);
    for (int i = 0; i < MAX_CHANNELS; i++) vx_free(t.plane[i]);
    return s;
}
