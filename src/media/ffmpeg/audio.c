// The sound: AAC-LC by FFmpeg's own encoder, fed in frames of 1024 samples (it refuses any other size but a shorter last).
#include <stdio.h>
#include <string.h>

#include <libavutil/channel_layout.h>

#include "internal.h"

// ISO/IEC 14496-3: an AAC frame holds at most 6144 bits per channel.
enum { MAX_BITS_PER_FRAME = 6144, FRAME_SAMPLES = 1024 };

static int64_t highest_bitrate(const vx_movie_params *p)
{
    return (int64_t)MAX_BITS_PER_FRAME * p->channels * p->sample_rate / FRAME_SAMPLES;
}

static vx_status open_encoder(AVCodecContext **out, const vx_movie_params *p)
{
    const AVCodec *found = avcodec_find_encoder_by_name("aac");
    if (!found)
        return vx_fail_remedy(VX_ERR_ENCODER, "install a complete FFmpeg, or ask for no sound",
                              "the encoder aac is not part of this FFmpeg");
    AVCodecContext *codec = *out = avcodec_alloc_context3(found);
    if (!codec) return vx_fail(VX_ERR_MEMORY, "no memory for aac");
    int64_t highest = highest_bitrate(p);
    codec->sample_fmt = AV_SAMPLE_FMT_FLTP;
    codec->sample_rate = p->sample_rate;
    codec->bit_rate = p->audio_bitrate < highest ? p->audio_bitrate : highest;
    codec->time_base = (AVRational){ 1, p->sample_rate };
    codec->thread_count = 1;
    codec->flags |= AV_CODEC_FLAG_GLOBAL_HEADER | AV_CODEC_FLAG_BITEXACT; // bit-exact: no version text in every stream
    av_channel_layout_default(&codec->ch_layout, p->channels);
    int error = avcodec_open2(codec, found, NULL);
    if (error < 0) return vx_av_fail(VX_ERR_ENCODER, error, "aac refuses %d channels at %d Hz", p->channels, p->sample_rate);
    if (codec->frame_size != FRAME_SAMPLES)
        return vx_fail(VX_ERR_ENCODER, "aac takes %d samples at a time, expected %d", codec->frame_size, FRAME_SAMPLES);
    return vx_ok();
}

static vx_status make_frame(AVFrame **out, const AVCodecContext *codec)
{
    AVFrame *f = *out = av_frame_alloc();
    if (!f) return vx_fail(VX_ERR_MEMORY, "no memory for a frame of sound");
    f->format = codec->sample_fmt;
    f->sample_rate = codec->sample_rate;
    f->nb_samples = FRAME_SAMPLES;
    if (av_channel_layout_copy(&f->ch_layout, &codec->ch_layout) < 0 || av_frame_get_buffer(f, 0) < 0)
        return vx_fail(VX_ERR_MEMORY, "no memory for a frame of sound");
    return vx_ok();
}

// Silence in, at least one packet out.
static vx_status encode_silence(AVCodecContext *codec, AVFrame *frame, AVPacket *packet)
{
    int packets;
    for (int c = 0; c < frame->ch_layout.nb_channels; c++) memset(frame->extended_data[c], 0, FRAME_SAMPLES * sizeof(float));
    VX_TRY(vx_av_encode_one(codec, frame, packet, &packets));
    return packets ? vx_ok() : vx_fail(VX_ERR_ENCODER, "aac makes nothing of its first frame");
}

static vx_status try_encoder(const vx_movie_params *p, AVPacket *packet)
{
    AVCodecContext *codec = NULL;
    AVFrame *frame = NULL;
    vx_av_log_forget();
    vx_status s = open_encoder(&codec, p);
    if (s.code == VX_OK && codec) s = make_frame(&frame, codec);
    if (s.code == VX_OK && frame) s = encode_silence(codec, frame, packet);
    av_frame_free(&frame);
    avcodec_free_context(&codec);
    return s;
}

vx_status vx_audio_open(vx_movie *movie, const vx_movie_params *params)
{
    VX_TRY(try_encoder(params, movie->packet));
    VX_TRY(open_encoder(&movie->audio.codec, params));
    VX_TRY(make_frame(&movie->audio.frame, movie->audio.codec));
    if (params->audio_bitrate > movie->audio.codec->bit_rate) {
        size_t used = strlen(movie->warning);
        snprintf(movie->warning + used, sizeof movie->warning - used, "%sAAC at %d Hz reaches %lld bits per second, not %d",
                 used ? "; " : "", params->sample_rate, (long long)movie->audio.codec->bit_rate, params->audio_bitrate);
    }
    return vx_ok();
}

vx_status vx_audio_fill(vx_movie *movie, const float *samples, int64_t first, int count)
{
    AVFrame *f = movie->audio.frame;
    f->nb_samples = FRAME_SAMPLES; // a shorter last frame must not shrink the buffer that make_writable compares with
    if (av_frame_make_writable(f) < 0) return vx_fail(VX_ERR_MEMORY, "no memory for a frame of sound");
    f->nb_samples = count;
    for (int c = 0; c < movie->channels; c++) {
        const float *in = samples + (int64_t)c * movie->samples + first;
        float *to = (float *)f->extended_data[c];
        for (int i = 0; i < count; i++) {
            if (!(in[i] - in[i] == 0)) // NaN or infinite: the encoder would only say "invalid argument"
                return vx_fail(VX_ERR_NOT_FINITE, "sample %lld of channel %d is %g", (long long)first + i, c, (double)in[i]);
            to[i] = in[i] < -1 ? -1 : in[i] > 1 ? 1 : in[i];
        }
    }
    return vx_ok();
}
