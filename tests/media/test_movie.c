#include "testing.h"

#include "movies.h"

#include <dlfcn.h>
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <pthread.h>

// ---- An FFmpeg without an encoder: this stands before libavcodec's own. ----

static const char *missing_encoder;

__attribute__((visibility("default"))) const AVCodec *avcodec_find_encoder_by_name(const char *name);

const AVCodec *avcodec_find_encoder_by_name(const char *name)
{
    void *at = NULL;
    for (const AVCodec *c; (c = av_codec_iterate(&at));)
        if (av_codec_is_encoder(c) && strcmp(c->name, name) == 0)
            return missing_encoder && !strcmp(name, missing_encoder) ? NULL : c;
    return NULL;
}

// ---- An encoder that loses a packet: the k-th of all, before anybody sees it. ----

static int losing;

__attribute__((visibility("default"))) int avcodec_receive_packet(AVCodecContext *codec, AVPacket *packet);

int avcodec_receive_packet(AVCodecContext *codec, AVPacket *packet)
{
    int (*real)(AVCodecContext *, AVPacket *);
    *(void **)&real = dlsym(RTLD_NEXT, "avcodec_receive_packet");
    int error = real(codec, packet);
    if (error < 0 || codec->codec_type != AVMEDIA_TYPE_VIDEO || losing == 0 || --losing) return error;
    av_packet_unref(packet);
    return real(codec, packet);
}

static void expect_whole(const char *path, const vx_movie_params *p, bool decode)
{
    vx_movie_facts f;
    assert_ok(vx_movie_inspect(&f, path, decode));
    assert_int_equal(f.width, p->width);
    assert_int_equal(f.height, p->height);
    assert_int_equal(f.frames, p->frames);
    assert_int_equal(f.first_pts_errors, 0);
    assert_int_equal((int64_t)f.fps_num * p->fps_den, (int64_t)f.fps_den * p->fps_num);
    assert_string_equal(f.pixel_format, p->pixel_format);
    assert_string_equal(f.color, "bt709/bt709/bt709 tv");
    assert_true(f.moov_first);
    assert_int_equal(f.samples, p->audio_codec ? p->samples : 0);
    assert_true(fabs(f.video_s - (double)p->frames * p->fps_den / p->fps_num) < 1e-9);
    assert_true(fabs(f.audio_s - (p->audio_codec ? (double)p->samples / p->sample_rate : 0)) < 1e-9);
    assert_string_equal(f.audio_codec, p->audio_codec ? "aac" : "");
    assert_int_equal(f.sample_rate, p->audio_codec ? p->sample_rate : 0);
    assert_int_equal(f.channels, p->audio_codec ? p->channels : 0);
    vx_free(f.comment);
}

// Public report P04: all frames of every length must be there, whatever the sound's length. The model's own sound is 8.33 ms
// longer than the picture, equal, or shorter, by turns (section 2 of the public reports: 800 samples for each of
// round(frames * 40 / 24) latents).
static void keeps_all_frames_of_every_length(void **state)
{
    (void)state;
    static const struct {
        int64_t frames, model_samples;
    } cases[] = { { 22, 29600 }, { 39, 52000 }, { 56, 74400 }, { 124, 165600 }, { 175, 233600 }, { 362, 482400 } };
    scratch s = scratch_create();
    const char *path = scratch_path(&s, "a.mp4");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        vx_movie_params p = small_movie(64, 64, cases[i].frames);
        assert_ok(write_movie(path, &p, paint_bars));
        expect_whole(path, &p, false);
        expect_whole(path, &p, true);
        p.samples = cases[i].model_samples;
        assert_ok(write_movie(path, &p, paint_bars));
        expect_whole(path, &p, false);
    }
    scratch_destroy(&s);
}

// Public report P05: an encoder that may skip frames does so under noise at the lowest quality.
static void skips_no_frame_of_noise(void **state)
{
    (void)state;
    static const char *const encoders[] = { "h264", "mpeg4" };
    scratch s = scratch_create();
    const char *path = scratch_path(&s, "a.mp4");
    for (size_t i = 0; i < sizeof encoders / sizeof encoders[0]; i++) {
        vx_movie_params p = small_movie(128, 64, 73);
        p.crf = 51;
        p.video_codec = encoders[i];
        assert_ok(write_movie(path, &p, paint_noise));
        expect_whole(path, &p, true);
    }
    scratch_destroy(&s);
}

static void notices_a_lost_frame(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_movie_params p = small_movie(64, 64, 56);
    for (int k = 2; k <= 57; k += 11) { // the first is that of the trial
        losing = k;
        vx_status status = write_movie(scratch_path(&s, "a.mp4"), &p, paint_bars);
        assert_int_equal(status.code, VX_ERR_ENCODER);
        assert_mentions(status, "56 frames");
        assert_mentions(status, "55");
    }
    losing = 1;
    vx_movie *movie;
    p.video_codec = "libx264";
    assert_code(vx_movie_create(&movie, s.path, &p), VX_ERR_ENCODER);
    losing = 0;
    scratch_destroy(&s);
}

// Public report P06: a whole soundtrack at once; and lengths around the encoder's 1024 samples.
static void takes_a_sound_of_any_length(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 165600, 165333, 1, 1023, 1024, 1025, 2048 };
    scratch s = scratch_create();
    const char *path = scratch_path(&s, "a.mp4");
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int channels = 1; channels <= 2; channels++) {
            vx_movie_params p = small_movie(32, 64, 5);
            p.samples = lengths[i];
            p.channels = channels;
            assert_ok(write_movie(path, &p, paint_bars));
            expect_whole(path, &p, false);
            expect_whole(path, &p, true);
        }
    scratch_destroy(&s);
}

static void writes_every_kind_that_the_request_knows(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        int width, height, fps_num, fps_den, crf, bitrate, threads;
        int64_t frames;
        const char *pixel_format, *audio;
    } cases[] = {
        { "one frame", 64, 64, 24, 1, 18, 192000, 1, 1, "yuv420p", "aac" },
        { "no sound", 64, 64, 24, 1, 18, 0, 1, 22, "yuv420p", NULL },
        { "the smallest canvas", 32, 32, 24, 1, 18, 192000, 1, 22, "yuv420p", "aac" },
        { "a row of 32", 128, 32, 24, 1, 18, 192000, 2, 22, "yuv420p", "aac" },
        { "an upright canvas", 32, 128, 24, 1, 18, 192000, 2, 22, "yuv420p", "aac" },
        { "full chroma", 96, 64, 24, 1, 18, 192000, 1, 22, "yuv444p", "aac" },
        { "lossless", 64, 64, 24, 1, 0, 192000, 1, 22, "yuv420p", "aac" },
        { "another rate", 64, 64, 30, 1, 18, 192000, 1, 22, "yuv420p", "aac" },
        { "film's rate", 64, 64, 23976, 1000, 18, 192000, 1, 50, "yuv420p", "aac" },
        { "a rate like 119.88", 64, 64, 119880, 1000, 18, 192000, 1, 200, "yuv420p", "aac" },
        { "one frame a second", 64, 64, 1, 1, 18, 192000, 1, 22, "yuv420p", "aac" },
        { "thin sound", 64, 64, 24, 1, 18, 32000, 1, 22, "yuv420p", "aac" },
        { "the encoder's own threads", 64, 256, 24, 1, 18, 192000, 0, 22, "yuv420p", "aac" },
        { "more threads than rows", 64, 64, 24, 1, 18, 192000, 64, 22, "yuv420p", "aac" },
    };
    scratch s = scratch_create();
    const char *path = scratch_path(&s, "a b:c%d'\xc3\xbc.mp4");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        vx_movie_params p = small_movie(cases[i].width, cases[i].height, cases[i].frames);
        p.fps_num = cases[i].fps_num, p.fps_den = cases[i].fps_den, p.crf = cases[i].crf, p.threads = cases[i].threads;
        p.pixel_format = cases[i].pixel_format, p.audio_codec = cases[i].audio, p.audio_bitrate = cases[i].bitrate;
        vx_status status = write_movie(path, &p, paint_bars);
        if (status.code != VX_OK) fail_msg("%s: %s", cases[i].says, status.message);
        expect_whole(path, &p, false);
        expect_whole(path, &p, true);
    }
    scratch_destroy(&s);
}

static void refuses_what_cannot_be_written(void **state)
{
    (void)state;
    scratch s = scratch_create();
    const char *path = scratch_path(&s, "a.mp4");
    const vx_movie_params good = small_movie(64, 64, 22);
    static const struct {
        const char *says;
        size_t offset;
        int value;
        vx_code want;
    } numbers[] = {
        { "an odd width", offsetof(vx_movie_params, width), 63, VX_ERR_RANGE },
        { "no height", offsetof(vx_movie_params, height), 0, VX_ERR_RANGE },
        { "a vast height", offsetof(vx_movie_params, height), 1 << 20, VX_ERR_RANGE },
        { "no frame rate", offsetof(vx_movie_params, fps_num), 0, VX_ERR_RANGE },
        { "crf 52", offsetof(vx_movie_params, crf), 52, VX_ERR_RANGE },
        { "six channels", offsetof(vx_movie_params, channels), 6, VX_ERR_RANGE },
        { "no sample rate", offsetof(vx_movie_params, sample_rate), 0, VX_ERR_RANGE },
        { "a rate that AAC lacks", offsetof(vx_movie_params, sample_rate), 31000, VX_ERR_ENCODER },
        { "no bits", offsetof(vx_movie_params, audio_bitrate), 0, VX_ERR_RANGE },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        vx_movie_params p = good;
        vx_movie *movie = NULL;
        memcpy((char *)&p + numbers[i].offset, &numbers[i].value, sizeof numbers[i].value);
        vx_status status = vx_movie_create(&movie, path, &p);
        if (status.code != numbers[i].want || movie) fail_msg("%s: VX-%d %s", numbers[i].says, (int)status.code, status.message);
    }
    static const struct {
        const char *says;
        size_t offset;
        const char *value;
    } texts[] = {
        { "another codec", offsetof(vx_movie_params, video_codec), "vp9" },
        { "another pixel format", offsetof(vx_movie_params, pixel_format), "rgb24" },
        { "another sound", offsetof(vx_movie_params, audio_codec), "opus" },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        vx_movie_params p = good;
        vx_movie *movie = NULL;
        memcpy((char *)&p + texts[i].offset, &texts[i].value, sizeof texts[i].value);
        vx_status status = vx_movie_create(&movie, path, &p);
        if (status.code != VX_ERR_VALUE || movie) fail_msg("%s: VX-%d %s", texts[i].says, (int)status.code, status.message);
        assert_string_not_equal(status.field, "");
    }
    scratch_destroy(&s);
}

// FFmpeg's reason is in the message, and nowhere else.
static void keeps_the_terminal_clean(void **state)
{
    (void)state;
    scratch s = scratch_create();
    struct stat said;
    vx_movie_params p = small_movie(64, 64, 22);
    vx_movie *movie;
    vx_movie_facts f;
    p.sample_rate = 31000;
    fflush(stderr);
    int terminal = dup(STDERR_FILENO), file = open(scratch_path(&s, "stderr"), O_RDWR | O_CREAT, 0600);
    assert_true(terminal >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    vx_status refused = vx_movie_create(&movie, scratch_path(&s, "a.mp4"), &p);
    vx_status unread = vx_movie_inspect(&f, scratch_file(&s, "b.mp4", "\0\0\0\x08moov", 8), false);
    p.sample_rate = 32000;
    vx_status written = write_movie(scratch_path(&s, "a.mp4"), &p, paint_bars);
    fflush(stderr);
    assert_true(dup2(terminal, STDERR_FILENO) >= 0 && fstat(file, &said) == 0);
    close(terminal);
    close(file);
    assert_int_equal(said.st_size, 0);
    assert_int_equal(refused.code, VX_ERR_ENCODER);
    assert_mentions(refused, "ample rate"); // "Specified sample rate 31000 is not supported by the aac encoder"
    assert_int_equal(unread.code, VX_ERR_INPUT_FORMAT);
    assert_ok(written);
    scratch_destroy(&s);
}

static void holds_the_caller_to_the_order(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_movie_params p = small_movie(64, 64, 3);
    static uint8_t rgb[4 * 64 * 64 * 3];
    float *samples = tone(&p);
    vx_movie *movie;
    assert_ok(vx_movie_create(&movie, scratch_path(&s, "a.mp4"), &p));
    assert_code(vx_movie_put_frames(movie, rgb, 1), VX_ERR_INTERNAL); // sound first
    assert_ok(vx_movie_put_sound(movie, samples));
    assert_code(vx_movie_put_sound(movie, samples), VX_ERR_INTERNAL);
    assert_ok(vx_movie_put_frames(movie, rgb, 2));
    assert_code(vx_movie_finish(movie), VX_ERR_INTERNAL); // one is missing
    assert_code(vx_movie_put_frames(movie, rgb, 2), VX_ERR_INTERNAL);
    assert_ok(vx_movie_put_frames(movie, rgb, 0));
    assert_ok(vx_movie_put_frames(movie, rgb, 1));
    assert_ok(vx_movie_finish(movie));
    assert_code(vx_movie_finish(movie), VX_ERR_INTERNAL);
    vx_movie_destroy(&movie);
    vx_movie_destroy(&movie); // NULL is fine
    expect_whole(s.path, &p, true);
    vx_free(samples);
    scratch_destroy(&s);
}

static void leaves_the_file_when_destroyed_in_the_middle(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_movie_params p = small_movie(64, 64, 60);
    static uint8_t rgb[64 * 64 * 3];
    float *samples = tone(&p);
    vx_movie *movie;
    vx_movie_facts facts;
    assert_ok(vx_movie_create(&movie, scratch_path(&s, "a.mp4"), &p));
    assert_ok(vx_movie_put_sound(movie, samples));
    for (int i = 0; i < 30; i++) assert_ok(vx_movie_put_frames(movie, rgb, 1));
    vx_movie_destroy(&movie);
    assert_int_equal(access(s.path, F_OK), 0);
    assert_code(vx_movie_inspect(&facts, s.path, false), VX_ERR_INPUT_FORMAT);
    vx_free(samples);
    scratch_destroy(&s);
}

static void names_a_sample_that_is_no_number(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_movie_params p = small_movie(64, 64, 22);
    float *samples = tone(&p);
    vx_movie *movie;
    samples[p.samples + 2000] = NAN;
    assert_ok(vx_movie_create(&movie, scratch_path(&s, "a.mp4"), &p));
    vx_status status = vx_movie_put_sound(movie, samples);
    assert_int_equal(status.code, VX_ERR_NOT_FINITE);
    assert_mentions(status, "sample 2000 of channel 1");
    vx_movie_destroy(&movie);
    vx_free(samples);
    scratch_destroy(&s);
}

static void says_that_a_bit_rate_is_beyond_aac(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_movie_params p = small_movie(64, 64, 3);
    vx_movie *movie;
    p.audio_bitrate = 512000; // 6144 bits for each channel of 1024 samples: 384000 at 32 kHz stereo
    assert_ok(vx_movie_create(&movie, scratch_path(&s, "a.mp4"), &p));
    assert_non_null(vx_movie_warning(movie));
    assert_non_null(strstr(vx_movie_warning(movie), "384000"));
    vx_movie_destroy(&movie);
    scratch_destroy(&s);
}

// Sound and picture side by side in the file, as a player reads it, also when the sound came ten seconds early.
static void interleaves_sound_and_picture(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_movie_params p = small_movie(64, 64, 362);
    assert_ok(write_movie(scratch_path(&s, "a.mp4"), &p, paint_bars));
    AVFormatContext *format = NULL;
    AVPacket *packet = av_packet_alloc();
    double at[2] = { 0, 0 };
    int64_t last = 0;
    assert_int_equal(avformat_open_input(&format, s.path, NULL, NULL), 0);
    for (int i = 0; i < 2; i++) // the header's durations are those of the tracks to the sample
        assert_int_equal(av_compare_ts(format->streams[i]->duration, format->streams[i]->time_base, i ? p.samples : p.frames,
                                       (AVRational){ 1, i ? 32000 : 24 }),
                         0);
    while (av_read_frame(format, packet) >= 0) {
        assert_true(packet->pos > last); // the demuxer reads in the order of time: it is that of the file
        last = packet->pos;
        at[packet->stream_index] = (double)packet->dts * av_q2d(format->streams[packet->stream_index]->time_base);
        assert_true(fabs(at[0] - at[1]) < 0.2);
        av_packet_unref(packet);
    }
    av_packet_free(&packet);
    avformat_close_input(&format);
    scratch_destroy(&s);
}

// A name that looks like an address, and relative, as the temporary file of an output is.
static void writes_to_a_name_with_a_colon(void **state)
{
    (void)state;
    scratch s = scratch_create();
    char before[1024];
    vx_movie_params p = small_movie(64, 64, 3);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(s.folder), 0);
    vx_status status = write_movie(".http:a.mp4.part", &p, paint_bars);
    if (status.code == VX_OK) expect_whole(".http:a.mp4.part", &p, true);
    assert_int_equal(chdir(before), 0);
    assert_ok(status);
    scratch_destroy(&s);
}

// ---- Metadata ----

static void gives_the_comment_back(void **state)
{
    (void)state;
    static char large[200 << 10];
    memset(large, 'x', sizeof large - 1);
    memcpy(large, "{\"prompt\":\"", 11);
    memcpy(large + sizeof large - 3, "\"}", 2);
    static char json[60 << 10];
    memset(json, 'y', sizeof json - 1);
    const char *const comments[] = {
        "short", "{\"prompt\":\"Ein Leuchtturm \xe7\x81\xaf\xe5\x8f\xb0 \xf0\x9f\x8e\xac \\\"Hold the line,\\\" she says.\\n\"}",
        json, large, "a=b;c=d#\\\n\ttabs"
    };
    scratch s = scratch_create();
    const char *path = scratch_path(&s, "a.mp4");
    for (size_t i = 0; i < sizeof comments / sizeof comments[0]; i++) {
        vx_movie_params p = small_movie(64, 64, 5);
        vx_movie_facts f;
        p.comment = comments[i];
        assert_ok(write_movie(path, &p, paint_bars));
        assert_ok(vx_movie_inspect(&f, path, false));
        assert_non_null(f.comment);
        assert_string_equal(f.comment, comments[i]);
        vx_free(f.comment);
    }
    vx_movie_params p = small_movie(64, 64, 5);
    vx_movie_facts f;
    assert_ok(write_movie(path, &p, paint_bars));
    assert_ok(vx_movie_inspect(&f, path, false));
    assert_null(f.comment);
    scratch_destroy(&s);
}

static size_t read_bytes(char *out, size_t capacity, const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t size = fread(out, 1, capacity, f);
    fclose(f);
    assert_true(size > 0 && size < capacity);
    return size;
}

static void makes_the_same_file_again(void **state)
{
    (void)state;
    scratch s = scratch_create();
    static char first[1 << 20], second[1 << 20];
    for (int threads = 1; threads <= 2; threads++) {
        vx_movie_params p = small_movie(64, 128, 56);
        p.threads = threads;
        p.comment = "{}";
        size_t size[2];
        for (int i = 0; i < 2; i++) {
            assert_ok(write_movie(scratch_path(&s, i ? "a.mp4" : "b.mp4"), &p, paint_noise));
            size[i] = read_bytes(i ? second : first, sizeof first, s.path);
        }
        assert_int_equal(size[0], size[1]);
        assert_memory_equal(first, second, size[0]);
    }
    scratch_destroy(&s);
}

typedef struct writing {
    pthread_t thread;
    char path[700];
    vx_status status;
} writing;

static void *write_beside(void *at)
{
    writing *w = at;
    vx_movie_params p = small_movie(64, 64, 56);
    w->status = write_movie(w->path, &p, paint_noise);
    return NULL;
}

static void writes_several_at_once(void **state)
{
    (void)state;
    scratch s = scratch_create();
    writing w[3];
    static char bytes[3][1 << 20];
    size_t size[3];
    for (int i = 0; i < 3; i++) {
        snprintf(w[i].path, sizeof w[i].path, "%s/%d.mp4", s.folder, i);
        assert_int_equal(pthread_create(&w[i].thread, NULL, write_beside, &w[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(w[i].thread, NULL);
        assert_ok(w[i].status);
        size[i] = read_bytes(bytes[i], sizeof bytes[i], w[i].path);
        assert_int_equal(size[i], size[0]);
        assert_memory_equal(bytes[i], bytes[0], size[0]);
    }
    scratch_destroy(&s);
}

// ---- Encoders that are not there ----

static void tries_encoders_without_a_file(void **state)
{
    (void)state;
    char warning[400] = "old";
    vx_movie_params p = small_movie(64, 64, 22);
    assert_ok(vx_movie_probe(&p, warning, sizeof warning));
    assert_string_equal(warning, "");
    p.audio_codec = NULL;
    assert_ok(vx_movie_probe(&p, NULL, 0));
    p.crf = -1;
    assert_code(vx_movie_probe(&p, NULL, 0), VX_ERR_RANGE);
}

static void uses_another_encoder_and_says_so(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_movie_params p = small_movie(64, 64, 22);
    vx_movie *movie;
    assert_ok(vx_movie_create(&movie, scratch_path(&s, "a.mp4"), &p));
    assert_string_equal(vx_movie_video_encoder(movie), "libx264");
    assert_null(vx_movie_warning(movie));
    vx_movie_destroy(&movie);
    missing_encoder = "libx264";
    assert_ok(vx_movie_create(&movie, s.path, &p));
    assert_string_not_equal(vx_movie_video_encoder(movie), "libx264");
    assert_non_null(vx_movie_warning(movie));
    assert_non_null(strstr(vx_movie_warning(movie), "libx264 is not part of this FFmpeg"));
    assert_non_null(strstr(vx_movie_warning(movie), vx_movie_video_encoder(movie)));
    vx_movie_destroy(&movie);
    assert_ok(write_movie(s.path, &p, paint_bars));
    expect_whole(s.path, &p, true);
    char warning[400];
    assert_ok(vx_movie_probe(&p, warning, sizeof warning));
    assert_non_null(strstr(warning, "libx264 is not part of this FFmpeg"));
    p.pixel_format = "yuv444p"; // which no other of them takes
    vx_status status = vx_movie_create(&movie, s.path, &p);
    missing_encoder = NULL;
    assert_int_equal(status.code, VX_ERR_ENCODER);
    assert_mentions(status, "libx264");
    assert_string_not_equal(status.remedy, "");
    scratch_destroy(&s);
}

static void refuses_sound_without_an_encoder_before_any_frame(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_movie_params p = small_movie(64, 64, 22);
    vx_movie *movie;
    missing_encoder = "aac";
    vx_status status = vx_movie_create(&movie, scratch_path(&s, "a.mp4"), &p);
    assert_code(vx_movie_probe(&p, NULL, 0), VX_ERR_ENCODER);
    missing_encoder = NULL;
    assert_int_equal(status.code, VX_ERR_ENCODER);
    assert_mentions(status, "aac");
    assert_string_not_equal(status.remedy, "");
    assert_null(movie);
    scratch_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_all_frames_of_every_length),
        cmocka_unit_test(skips_no_frame_of_noise),
        cmocka_unit_test(notices_a_lost_frame),
        cmocka_unit_test(takes_a_sound_of_any_length),
        cmocka_unit_test(writes_every_kind_that_the_request_knows),
        cmocka_unit_test(refuses_what_cannot_be_written),
        cmocka_unit_test(keeps_the_terminal_clean),
        cmocka_unit_test(holds_the_caller_to_the_order),
        cmocka_unit_test(leaves_the_file_when_destroyed_in_the_middle),
        cmocka_unit_test(names_a_sample_that_is_no_number),
        cmocka_unit_test(says_that_a_bit_rate_is_beyond_aac),
        cmocka_unit_test(interleaves_sound_and_picture),
        cmocka_unit_test(writes_to_a_name_with_a_colon),
        cmocka_unit_test(gives_the_comment_back),
        cmocka_unit_test(makes_the_same_file_again),
        cmocka_unit_test(writes_several_at_once),
        cmocka_unit_test(tries_encoders_without_a_file),
        cmocka_unit_test(uses_another_encoder_and_says_so),
        cmocka_unit_test(refuses_sound_without_an_encoder_before_any_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
