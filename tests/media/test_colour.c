// Colours on their way through the file, looked at with FFmpeg's decoder.
#include "testing.h"

#include "movies.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <sys/mman.h>

typedef struct picture {
    int width, height, shift; // shift: of chroma, both ways
    uint8_t *plane[3];
} picture;

// The first decoded frame, planes without padding.
static picture first_frame(const char *path)
{
    picture out = { 0 };
    AVFormatContext *format = NULL;
    AVPacket *packet = av_packet_alloc();
    AVFrame *frame = av_frame_alloc();
    assert_int_equal(avformat_open_input(&format, path, NULL, NULL), 0);
    AVCodecParameters *p = format->streams[0]->codecpar;
    const AVCodec *found = avcodec_find_decoder(p->codec_id);
    AVCodecContext *codec = avcodec_alloc_context3(found);
    assert_true(avcodec_parameters_to_context(codec, p) >= 0 && avcodec_open2(codec, found, NULL) >= 0);
    bool got = false;
    while (!got) {
        int error = av_read_frame(format, packet);
        if (error >= 0 && packet->stream_index != 0) {
            av_packet_unref(packet);
            continue;
        }
        assert_true(avcodec_send_packet(codec, error >= 0 ? packet : NULL) >= 0);
        av_packet_unref(packet);
        got = avcodec_receive_frame(codec, frame) >= 0;
    }
    assert_int_equal(frame->colorspace, AVCOL_SPC_BT709);
    assert_int_equal(frame->color_range, AVCOL_RANGE_MPEG);
    out.width = frame->width, out.height = frame->height, out.shift = frame->format == AV_PIX_FMT_YUV444P ? 0 : 1;
    for (int c = 0; c < 3; c++) {
        int w = out.width >> (c ? out.shift : 0), h = out.height >> (c ? out.shift : 0);
        out.plane[c] = malloc((size_t)w * (size_t)h);
        for (int y = 0; y < h; y++)
            memcpy(out.plane[c] + (size_t)y * (size_t)w, frame->data[c] + (ptrdiff_t)y * frame->linesize[c], (size_t)w);
    }
    av_frame_free(&frame);
    av_packet_free(&packet);
    avcodec_free_context(&codec);
    avformat_close_input(&format);
    return out;
}

static void free_picture(picture *p)
{
    for (int c = 0; c < 3; c++) free(p->plane[c]);
}

static const uint8_t *colour; // of paint_flat

static void paint_flat(uint8_t *rgb, int width, int height, int64_t frame)
{
    (void)frame;
    for (int i = 0; i < width * height; i++) memcpy(rgb + 3 * i, colour, 3);
}

// Limited-range BT.709 by its definition: Y = 16 + 219 (0.2126 R + 0.7152 G + 0.0722 B), Cb = 128 + 224 (B - Y') / 1.8556,
// Cr = 128 + 224 (R - Y') / 1.5748. Red is the check value of the audio and media specification, C4.
static void writes_bt709(void **state)
{
    (void)state;
    static const struct {
        uint8_t rgb[3], yuv[3];
    } cases[] = {
        { { 255, 0, 0 }, { 63, 102, 240 } },      { { 0, 255, 0 }, { 173, 42, 26 } }, { { 0, 0, 255 }, { 32, 240, 118 } },
        { { 255, 255, 255 }, { 235, 128, 128 } }, { { 0, 0, 0 }, { 16, 128, 128 } },  { { 255, 255, 0 }, { 219, 16, 138 } },
        { { 128, 128, 128 }, { 126, 128, 128 } },
    };
    static const char *const formats[] = { "yuv420p", "yuv444p" };
    scratch s = scratch_create();
    for (size_t f = 0; f < 2; f++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            vx_movie_params p = small_movie(64, 32, 1);
            p.crf = 0; // lossless: what is decoded is what was converted
            p.pixel_format = formats[f];
            colour = cases[i].rgb;
            assert_ok(write_movie(scratch_path(&s, "a.mp4"), &p, paint_flat));
            picture got = first_frame(s.path);
            for (int c = 0; c < 3; c++) assert_int_equal(got.plane[c][0], cases[i].yuv[c]);
            for (int k = 0; k < 64 * 32; k++) assert_int_equal(got.plane[0][k], cases[i].yuv[0]);
            free_picture(&got);
        }
    scratch_destroy(&s);
}

static int line_at;
static bool line_upright;

static void paint_line(uint8_t *rgb, int width, int height, int64_t frame)
{
    (void)frame;
    memset(rgb, 0, (size_t)width * (size_t)height * 3);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            if ((line_upright ? x : y) == line_at) rgb[3 * (y * width + x)] = 255;
}

// Left-sited chroma: sample i lies on column 2i and weighs columns 2i-1, 2i, 2i+1 with 1 2 1; rows 2i and 2i+1 weigh alike.
// Red adds 112 to Cr.
static void puts_chroma_where_the_stream_says(void **state)
{
    (void)state;
    static const struct {
        bool upright;
        int at, expected[3]; // of Cr - 128 at samples 7, 8, 9 across the line
    } cases[] = {
        { true, 16, { 0, 56, 0 } },
        { true, 17, { 0, 28, 28 } },
        { false, 16, { 0, 56, 0 } },
        { false, 17, { 0, 56, 0 } },
    };
    scratch s = scratch_create();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        vx_movie_params p = small_movie(64, 64, 1);
        p.crf = 0;
        line_at = cases[i].at, line_upright = cases[i].upright;
        assert_ok(write_movie(scratch_path(&s, "a.mp4"), &p, paint_line));
        picture got = first_frame(s.path);
        for (int k = 0; k < 3; k++) {
            int across = 7 + k, along = 12;
            int cr = got.plane[2][line_upright ? along * 32 + across : across * 32 + along];
            assert_in_range(cr - 128 + 1, cases[i].expected[k], cases[i].expected[k] + 2); // one either way for rounding
        }
        free_picture(&got);
    }
    scratch_destroy(&s);
}

// The frame ends where the memory ends: nothing may be read behind it.
static void reads_nothing_behind_a_frame(void **state)
{
    (void)state;
    scratch s = scratch_create();
    for (int width = 32; width <= 160; width += 32) {
        vx_movie_params p = small_movie(width, 32, 2);
        p.audio_codec = NULL;
        size_t page = (size_t)sysconf(_SC_PAGESIZE), frame_bytes = (size_t)width * 32 * 3;
        size_t room = (2 * frame_bytes + page - 1) / page * page;
        uint8_t *memory = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(memory, MAP_FAILED);
        assert_int_equal(mprotect(memory + room, page, PROT_NONE), 0);
        vx_movie *movie;
        assert_ok(vx_movie_create(&movie, scratch_path(&s, "a.mp4"), &p));
        assert_ok(vx_movie_put_frames(movie, memory + room - 2 * frame_bytes, 2));
        assert_ok(vx_movie_finish(movie));
        vx_movie_destroy(&movie);
        munmap(memory, room + page);
    }
    scratch_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_bt709),
        cmocka_unit_test(puts_chroma_where_the_stream_says),
        cmocka_unit_test(reads_nothing_behind_a_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
