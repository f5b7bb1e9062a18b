// The picture: which encoder, its settings, and RGB to YUV.
//
// Colour: BT.709 matrix, limited range, and tagged so, in the stream and in the container. Untagged BT.601, which the
// references write, is shown with wrong colours by players that assume 709 for HD.
#include <stdio.h>
#include <string.h>

#include <libavutil/imgutils.h>
#include <libavutil/opt.h>

#include "internal.h"

enum {
    GOP = 48, // two seconds at 24 fps: a seek costs at most that
    MPEG4_WORST_SCALE = 31,
    OPENH264_MIN_QP = 1, // the wrapper's own bounds
};

typedef struct candidate {
    const char *name; // as libavcodec spells it
    bool h264;
    bool full_chroma; // takes yuv444p
    void (*settings)(AVCodecContext *codec, AVDictionary **options, int crf);
} candidate;

// The profile follows from the settings: High for 4:2:0, High 4:4:4 Predictive for 4:4:4 and for the lossless crf 0, which
// a profile set here would refuse. In CRF mode x264 never skips a frame.
static void settings_x264(AVCodecContext *codec, AVDictionary **options, int crf)
{
    (void)codec;
    av_dict_set(options, "preset", "medium", 0);
    av_dict_set_int(options, "crf", crf, 0);
}

// No constant quality here: one quantiser for all frames comes nearest. Skipping is this encoder's habit; it must be off.
static void settings_openh264(AVCodecContext *codec, AVDictionary **options, int crf)
{
    codec->qmin = codec->qmax = crf < OPENH264_MIN_QP ? OPENH264_MIN_QP : crf;
    codec->bit_rate = (int64_t)codec->width * codec->height * 24; // out of the way of the quantiser
    av_dict_set(options, "rc_mode", "quality", 0);
    av_dict_set(options, "allow_skip_frames", "0", 0);
}

// Constant quantiser 1..31 for crf 0..51.
static void settings_mpeg4(AVCodecContext *codec, AVDictionary **options, int crf)
{
    (void)options;
    codec->flags |= AV_CODEC_FLAG_QSCALE;
    codec->global_quality = FF_QP2LAMBDA * (1 + crf * (MPEG4_WORST_SCALE - 1) / 51);
}

// In order of preference. Hardware encoders are not tried: what they do differs from machine to machine.
static const candidate candidates[] = {
    { "libx264", true, true, settings_x264 },
    { "libopenh264", true, false, settings_openh264 },
    { "mpeg4", false, false, settings_mpeg4 },
};

static void describe(AVCodecContext *codec, const vx_movie_params *p)
{
    bool full = strcmp(p->pixel_format, "yuv444p") == 0;
    codec->width = p->width;
    codec->height = p->height;
    codec->pix_fmt = full ? AV_PIX_FMT_YUV444P : AV_PIX_FMT_YUV420P;
    codec->time_base = (AVRational){ p->fps_den, p->fps_num };
    codec->framerate = (AVRational){ p->fps_num, p->fps_den };
    codec->sample_aspect_ratio = (AVRational){ 1, 1 };
    codec->gop_size = GOP;
    codec->thread_count = p->threads;
    codec->color_range = AVCOL_RANGE_MPEG;
    codec->colorspace = AVCOL_SPC_BT709;
    codec->color_primaries = AVCOL_PRI_BT709;
    codec->color_trc = AVCOL_TRC_BT709;
    codec->chroma_sample_location = full ? AVCHROMA_LOC_UNSPECIFIED : AVCHROMA_LOC_LEFT;
    codec->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
}

static vx_status make_frame(AVFrame **out, const AVCodecContext *codec)
{
    AVFrame *f = *out = av_frame_alloc();
    if (!f) return vx_fail(VX_ERR_MEMORY, "no memory for a frame");
    f->format = codec->pix_fmt;
    f->width = codec->width;
    f->height = codec->height;
    f->color_range = codec->color_range;
    f->colorspace = codec->colorspace;
    f->color_primaries = codec->color_primaries;
    f->color_trc = codec->color_trc;
    f->chroma_location = codec->chroma_sample_location;
    f->sample_aspect_ratio = codec->sample_aspect_ratio;
    if (av_frame_get_buffer(f, 0) < 0) return vx_fail(VX_ERR_MEMORY, "no memory for a frame of %dx%d", f->width, f->height);
    return vx_ok();
}

static vx_status open_encoder(AVCodecContext **out, const candidate *c, const vx_movie_params *p)
{
    const AVCodec *found = avcodec_find_encoder_by_name(c->name);
    if (!found) return vx_fail(VX_ERR_ENCODER, "%s is not part of this FFmpeg", c->name);
    if (!c->full_chroma && strcmp(p->pixel_format, "yuv420p") != 0)
        return vx_fail(VX_ERR_ENCODER, "%s takes only yuv420p, not %s", c->name, p->pixel_format);
    AVCodecContext *codec = *out = avcodec_alloc_context3(found);
    if (!codec) return vx_fail(VX_ERR_MEMORY, "no memory for %s", c->name);
    AVDictionary *options = NULL;
    describe(codec, p);
    c->settings(codec, &options, p->crf);
    int error = avcodec_open2(codec, found, &options);
    const AVDictionaryEntry *unknown = av_dict_get(options, "", NULL, AV_DICT_IGNORE_SUFFIX);
    vx_status s = vx_ok();
    if (error < 0) s = vx_av_fail(VX_ERR_ENCODER, error, "%s refuses %dx%d %s", c->name, p->width, p->height, p->pixel_format);
    else if (unknown) s = vx_fail(VX_ERR_ENCODER, "%s does not know the option '%s'", c->name, unknown->key);
    av_dict_free(&options);
    return s;
}

// A black picture in, exactly one packet out.
static vx_status encode_black(AVCodecContext *codec, AVFrame *frame, AVPacket *packet)
{
    ptrdiff_t linesize[4] = { frame->linesize[0], frame->linesize[1], frame->linesize[2], 0 };
    int packets;
    av_image_fill_black(frame->data, linesize, codec->pix_fmt, codec->color_range, codec->width, codec->height);
    VX_TRY(vx_av_encode_one(codec, frame, packet, &packets));
    if (packets != 1) return vx_fail(VX_ERR_ENCODER, "%s makes %d packets of its first frame", codec->codec->name, packets);
    return vx_ok();
}

// The encoder must swallow a frame before hours of work depend on it: opening alone does not prove that it runs.
static vx_status try_encoder(const candidate *c, const vx_movie_params *p, AVPacket *packet)
{
    AVCodecContext *codec = NULL;
    AVFrame *frame = NULL;
    vx_av_log_forget();
    vx_status s = open_encoder(&codec, c, p);
    if (s.code == VX_OK && codec) s = make_frame(&frame, codec);
    if (s.code == VX_OK && frame) s = encode_black(codec, frame, packet);
    av_frame_free(&frame);
    avcodec_free_context(&codec);
    return s;
}

static vx_status choose(const candidate **out, vx_movie *movie, const vx_movie_params *p)
{
    bool any_h264 = strcmp(p->video_codec, "h264") == 0, known = any_h264;
    vx_status first = vx_ok();
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
        const candidate *c = &candidates[i];
        if (!any_h264 && strcmp(p->video_codec, c->name) != 0) continue;
        known = true;
        vx_status s = try_encoder(c, p, movie->packet);
        if (s.code == VX_ERR_MEMORY) return s;
        if (s.code == VX_OK) {
            *out = c;
            if (first.code != VX_OK)
                snprintf(movie->warning, sizeof movie->warning, "%.200s, so the picture is encoded with %s%s", first.message,
                         c->name, c->h264 ? "" : ", which is MPEG-4 part 2 and not H.264");
            return vx_ok();
        }
        if (first.code == VX_OK) first = s;
    }
    if (!known) return vx_fail_field(VX_ERR_VALUE, "video_codec", "video codec '%.40s' is not known; h264 is", p->video_codec);
    return vx_remedy(first, "install an FFmpeg with libx264 (Debian: libavcodec59), or write yuv420p");
}

vx_status vx_video_open(vx_movie *movie, const vx_movie_params *params)
{
    const candidate *c = &candidates[0];
    VX_TRY(choose(&c, movie, params));
    snprintf(movie->video_encoder, sizeof movie->video_encoder, "%s", c->name);
    VX_TRY(open_encoder(&movie->video.codec, c, params));
    return make_frame(&movie->video.frame, movie->video.codec);
}

// Chroma of 4:2:0 is sited left, as the stream says: horizontally 1 2 1 around its pixel, vertically the mean of two rows,
// which "area" with these two positions (in 1/256 of a pixel) does. Accurate rounding; the bit-exact code paths give the same
// on every processor. Pure red becomes 63, 102, 240.
static vx_status set_scaler(struct SwsContext *scaler, const AVCodecContext *codec)
{
    const struct {
        const char *name;
        int64_t value;
    } options[] = {
        { "srcw", codec->width },
        { "srch", codec->height },
        { "src_format", AV_PIX_FMT_RGB24 },
        { "dstw", codec->width },
        { "dsth", codec->height },
        { "dst_format", codec->pix_fmt },
        { "sws_flags", SWS_AREA | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INP | SWS_BITEXACT },
        { "dst_h_chr_pos", 0 },
        { "dst_v_chr_pos", 128 },
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        int error = av_opt_set_int(scaler, options[i].name, options[i].value, 0);
        if (error < 0) return vx_av_fail(VX_ERR_ENCODER, error, "libswscale has no option %s", options[i].name);
    }
    // Full-range RGB in, limited-range YUV out; brightness, contrast and saturation (16.16) stay as they are.
    const int *bt709 = sws_getCoefficients(SWS_CS_ITU709);
    int error = sws_init_context(scaler, NULL, NULL);
    if (error >= 0) error = sws_setColorspaceDetails(scaler, bt709, 1, bt709, 0, 0, 1 << 16, 1 << 16);
    if (error < 0)
        return vx_av_fail(VX_ERR_ENCODER, error, "libswscale cannot convert %dx%d to BT.709", codec->width, codec->height);
    return vx_ok();
}

// libswscale's vector code reads up to 16 bytes past a picture of RGB24, which may end where the caller's memory does: it
// is given a copy with room behind it.
static vx_status make_copy(vx_movie *movie)
{
    AVFrame *f = movie->rgb = av_frame_alloc();
    if (!f) return vx_fail(VX_ERR_MEMORY, "no memory for a picture");
    f->format = AV_PIX_FMT_RGB24;
    f->width = movie->width;
    f->height = movie->height;
    if (av_frame_get_buffer(f, 0) < 0) return vx_fail(VX_ERR_MEMORY, "no memory for a picture");
    return vx_ok();
}

vx_status vx_video_scaler(vx_movie *movie)
{
    movie->scaler = sws_alloc_context();
    if (!movie->scaler) return vx_fail(VX_ERR_MEMORY, "no memory for a converter of pictures");
    VX_TRY(set_scaler(movie->scaler, movie->video.codec));
    return make_copy(movie);
}

vx_status vx_video_convert(vx_movie *movie, const uint8_t *rgb)
{
    AVFrame *f = movie->video.frame;
    int row = 3 * movie->width;
    av_image_copy_plane(movie->rgb->data[0], movie->rgb->linesize[0], rgb, row, row, movie->height);
    int error = av_frame_make_writable(f); // the encoder may still hold the last picture
    if (error >= 0)
        error = sws_scale(movie->scaler, (const uint8_t *const *)movie->rgb->data, movie->rgb->linesize, 0, movie->height,
                          f->data, f->linesize);
    if (error < 0) return vx_av_fail(VX_ERR_ENCODER, error, "a picture cannot be converted to YUV");
    return vx_ok();
}
