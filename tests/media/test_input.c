// Pictures, videos and sounds as they are read in, against what Pillow, FFmpeg and PyAV make of the same files
// (tools/make_media_vectors.py, tests/data/media/input/expected.txt).
#include "testing.h"

#include <inttypes.h>
#include <math.h>

#include "base/alloc.h"
#include "media/input.h"

#include "../base/scratch.h"

#define FOLDER VX_TEST_DATA "/media/input/"

static const char *path_of(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, FOLDER "%s", name);
    return path;
}

static uint64_t fnv(uint64_t h, const void *bytes, size_t size)
{
    const uint8_t *p = bytes;
    for (size_t i = 0; i < size; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static const uint64_t fnv_start = 0xcbf29ce484222325u;

typedef struct reel {
    int64_t slots, width, height, frames, stop_after;
    uint64_t hash;
    uint8_t *pixels; // if wanted: of the frames, not the slots
    size_t size;
} reel;

static bool collect(void *user, int64_t slot, int64_t count, const uint8_t *rgb, int64_t width, int64_t height)
{
    reel *r = user;
    size_t bytes = (size_t)(width * height * 3);
    assert_true(slot == r->slots && count >= 1);
    assert_true(r->frames == 0 || (width == r->width && height == r->height));
    for (int64_t i = 0; i < count; i++) r->hash = fnv(r->hash, rgb, bytes);
    if (r->pixels) {
        r->pixels = realloc(r->pixels, r->size + bytes * (size_t)count);
        for (int64_t i = 0; i < count; i++, r->size += bytes) memcpy(r->pixels + r->size, rgb, bytes);
    }
    r->slots += count;
    r->width = width;
    r->height = height;
    return ++r->frames != r->stop_after;
}

// ---- the lines of expected.txt ----

static void check_picture(const char *name, const char *rest)
{
    int64_t width, height, found_width, found_height;
    uint64_t want;
    uint8_t *rgb;
    vx_input_facts facts;
    assert_int_equal(sscanf(rest, "%" SCNd64 " %" SCNd64 " %" SCNx64, &width, &height, &want), 3);
    vx_status s = vx_input_picture(&rgb, &found_width, &found_height, path_of(name));
    if (s.code != VX_OK) fail_msg("%s: %s", name, s.message);
    if (found_width != width || found_height != height || fnv(fnv_start, rgb, (size_t)(width * height * 3)) != want)
        fail_msg("%s: other pixels (%" PRId64 "x%" PRId64 ")", name, found_width, found_height);
    vx_free(rgb);
    assert_ok(vx_input_probe(&facts, path_of(name)));
    if (facts.kind != VX_INPUT_PICTURE || facts.width != width || facts.height != height)
        fail_msg("%s: the probe says %" PRId64 "x%" PRId64, name, facts.width, facts.height);
}

static void check_frames(const char *name, const char *rest)
{
    int64_t slots, width, height, found;
    uint64_t want;
    reel r = { .hash = fnv_start };
    vx_input_facts facts;
    assert_int_equal(sscanf(rest, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNx64, &slots, &width, &height, &want), 4);
    vx_status s = vx_input_frames(path_of(name), 1000, collect, &r, &found);
    if (s.code != VX_OK) fail_msg("%s: %s", name, s.message);
    if (found != slots || r.slots != slots || r.width != width || r.height != height || r.hash != want)
        fail_msg("%s: %" PRId64 " slots of %" PRId64 "x%" PRId64 " and other pixels, wanted %" PRId64, name, found, r.width,
                 r.height, slots);
    s = vx_input_probe(&facts, path_of(name));
    if (s.code != VX_OK) fail_msg("%s: %s", name, s.message);
    assert_true(facts.kind == VX_INPUT_VIDEO && facts.width == width && facts.height == height);
    if (fabs(facts.video_s - (double)slots / 24) > 0.75 / 24) fail_msg("%s: the probe says %.3f s", name, facts.video_s);
}

static float *read_sound(const char *name, const char **rest, int64_t *channels, int64_t *samples)
{
    int64_t rate, found_rate, found_channels, found_samples;
    int used;
    float *planar;
    vx_input_facts facts;
    assert_int_equal(sscanf(*rest, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %n", channels, samples, &rate, &used), 3);
    *rest += used;
    vx_status s = vx_input_sound(&planar, &found_channels, &found_samples, &found_rate, path_of(name), 0);
    if (s.code != VX_OK) fail_msg("%s: %s", name, s.message);
    if (found_channels != *channels || found_samples != *samples || found_rate != rate)
        fail_msg("%s: %" PRId64 " x %" PRId64 " samples at %" PRId64 " Hz, wanted %" PRId64 " x %" PRId64, name, found_channels,
                 found_samples, found_rate, *channels, *samples);
    assert_ok(vx_input_probe(&facts, path_of(name)));
    assert_true(facts.sound && facts.sample_rate == rate && facts.channels == *channels);
    if (fabs(facts.sound_s - (double)*samples / (double)rate) > 0.05) fail_msg("%s: the probe says %.3f s", name, facts.sound_s);
    return planar;
}

static void check_sound(const char *name, const char *rest)
{
    int64_t channels, samples;
    uint64_t want;
    float *planar = read_sound(name, &rest, &channels, &samples);
    assert_int_equal(sscanf(rest, "%" SCNx64, &want), 1);
    if (fnv(fnv_start, planar, (size_t)(channels * samples) * sizeof *planar) != want) fail_msg("%s: other samples", name);
    vx_free(planar);
}

// The last bits of a lossy decoder depend on the machine's instructions.
static void check_near(const char *name, const char *rest)
{
    int64_t channels, samples, channel, at;
    int count, used;
    float want;
    float *planar = read_sound(name, &rest, &channels, &samples);
    assert_int_equal(sscanf(rest, "%d %n", &count, &used), 1);
    for (rest += used; count > 0; count--, rest += used) {
        assert_int_equal(sscanf(rest, "%" SCNd64 " %" SCNd64 " %f %n", &channel, &at, &want, &used), 3);
        if (fabsf(planar[channel * samples + at] - want) > 1e-4f)
            fail_msg("%s: sample %" PRId64 " is %g, wanted %g", name, at, (double)planar[channel * samples + at], (double)want);
    }
    vx_free(planar);
}

static void check_refused(const char *name, const char *rest)
{
    uint8_t *rgb = NULL;
    float *planar = NULL;
    int64_t a, b, c;
    reel r = { .hash = fnv_start };
    vx_status s = vx_input_picture(&rgb, &a, &b, path_of(name));
    assert_null(rgb);
    if (strstr(s.message, "is a video or sound")) s = vx_input_frames(path_of(name), 1000, collect, &r, &a);
    if (strstr(s.message, "holds no video")) s = vx_input_sound(&planar, &a, &b, &c, path_of(name), 0);
    assert_null(planar);
    char want[200];
    snprintf(want, sizeof want, "%.*s", (int)strcspn(rest, "\n"), rest);
    if (s.code != VX_ERR_INPUT_FORMAT || !strstr(s.message, want))
        fail_msg("%s: VX-%d '%s' does not mention '%s'", name, (int)s.code, s.message, want);
}

static void check_lines(const char *kind, void (*check)(const char *name, const char *rest), int at_least)
{
    static char line[4000];
    FILE *f = fopen(FOLDER "expected.txt", "r");
    assert_non_null(f);
    int count = 0;
    while (fgets(line, sizeof line, f)) {
        char word[16], name[64];
        int used;
        assert_int_equal(sscanf(line, "%15s %63s %n", word, name, &used), 2);
        if (strcmp(word, kind)) continue;
        check(name, line + used);
        count++;
    }
    fclose(f);
    print_message("%d files\n", count);
    assert_true(count >= at_least);
}

static void reads_pictures_as_pillow(void **state)
{
    (void)state;
    check_lines("picture", check_picture, 50);
}

static void reads_videos_as_the_reference(void **state)
{
    (void)state;
    check_lines("frames", check_frames, 24);
}

static void reads_sounds_exactly(void **state)
{
    (void)state;
    check_lines("sound", check_sound, 8);
}

static void reads_lossy_sounds(void **state)
{
    (void)state;
    check_lines("near", check_near, 5);
}

static void refuses_what_is_damaged_or_too_large(void **state)
{
    (void)state;
    check_lines("refused", check_refused, 17);
}

// ---- the rest of the contract ----

static void stops_where_told(void **state)
{
    (void)state;
    int64_t slots;
    reel r = { .hash = fnv_start };
    assert_ok(vx_input_frames(path_of("r12.mp4"), 3, collect, &r, &slots)); // each frame fills two slots
    assert_true(slots == 3 && r.frames == 2);
    r = (reel){ .hash = fnv_start, .stop_after = 1 };
    assert_ok(vx_input_frames(path_of("r24.mp4"), 100, collect, &r, &slots));
    assert_true(slots == 1 && r.frames == 1);
    r = (reel){ .hash = fnv_start };
    assert_ok(vx_input_frames(path_of("r24.mp4"), 0, collect, &r, &slots));
    assert_true(slots == 0 && r.frames == 0);
    float *planar;
    int64_t channels, samples, rate;
    assert_ok(vx_input_sound(&planar, &channels, &samples, &rate, path_of("s16.wav"), 100));
    assert_true(channels == 2 && samples == 100 && rate == 44100);
    vx_free(planar);
}

static void names_what_is_missing(void **state)
{
    (void)state;
    float *planar;
    uint8_t *rgb;
    int64_t a, b, c;
    reel r = { .hash = fnv_start };
    vx_input_facts facts;
    vx_status s = vx_input_sound(&planar, &a, &b, &c, path_of("r24.mp4"), 0);
    assert_int_equal(s.code, VX_ERR_INPUT_FORMAT);
    assert_mentions(s, "holds no sound");
    s = vx_input_frames(path_of("s16.wav"), 10, collect, &r, &a);
    assert_int_equal(s.code, VX_ERR_INPUT_FORMAT);
    assert_mentions(s, "holds no video");
    s = vx_input_frames(path_of("rgb.png"), 10, collect, &r, &a);
    assert_int_equal(s.code, VX_ERR_INPUT_FORMAT);
    assert_mentions(s, "is a picture");
    s = vx_input_picture(&rgb, &a, &b, path_of("s16.wav"));
    assert_int_equal(s.code, VX_ERR_INPUT_FORMAT);
    assert_mentions(s, "not a picture");
    assert_code(vx_input_probe(&facts, path_of("none.png")), VX_ERR_INPUT_OPEN);
    assert_code(vx_input_probe(&facts, FOLDER), VX_ERR_INPUT_OPEN);
    assert_code(vx_input_picture(&rgb, &a, &b, "http://127.0.0.1:9/a.png"), VX_ERR_INPUT_OPEN);
}

static void tells_what_it_holds(void **state)
{
    (void)state;
    vx_input_facts f;
    assert_ok(vx_input_probe(&f, path_of("talk.mp4")));
    assert_true(f.kind == VX_INPUT_VIDEO && f.sound && f.fps_num == 24 && f.fps_den == 1 && f.channels == 2);
    assert_string_equal(f.codec, "h264");
    assert_string_equal(f.format, "mov");
    assert_ok(vx_input_probe(&f, path_of("r23.mp4")));
    assert_true(f.fps_num == 24000 && f.fps_den == 1001 && !f.sound);
    assert_ok(vx_input_probe(&f, path_of("exif6.jpg")));
    assert_true(f.kind == VX_INPUT_PICTURE && f.width == 8 && f.height == 12 && f.fps_num == 0 && f.fps_den == 1);
    assert_string_equal(f.codec, "jpeg");
    assert_ok(vx_input_probe(&f, path_of("mp3.mp3")));
    assert_true(f.kind == VX_INPUT_SOUND && f.sound && f.video_s == 0);
}

// P36, P37: a broken label is no reason to refuse a picture; each byte of it is turned round once.
static void survives_broken_labels(void **state)
{
    (void)state;
    scratch s = scratch_create();
    static uint8_t bytes[4000];
    FILE *f = fopen(path_of("exif-before-xmp.jpg"), "rb");
    size_t size = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    uint8_t *exif = memmem(bytes, size, "Exif", 4);
    assert_non_null(exif);
    for (int i = 6; i < 32; i++) {
        uint8_t *rgb;
        int64_t w, h;
        exif[i] ^= 0xff;
        assert_ok(vx_input_picture(&rgb, &w, &h, scratch_file(&s, "a.jpg", bytes, size)));
        assert_int_equal(w * h, 96);
        vx_free(rgb);
        exif[i] ^= 0xff;
    }
    scratch_destroy(&s);
}

// ---- the golden inputs ----

// One tensor of a safetensors file whose header is what safetensors itself writes.
static void *tensor_of(const char *path, const char *name, size_t *size)
{
    static char header[4096];
    FILE *f = fopen(path, "rb");
    uint64_t bytes, from, to;
    char key[40];
    assert_non_null(f);
    assert_int_equal(fread(&bytes, 8, 1, f), 1);
    assert_true(bytes < sizeof header && fread(header, 1, bytes, f) == bytes);
    header[bytes] = 0;
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(header, key);
    if (!at) return fclose(f), NULL;
    at = strstr(at, "\"data_offsets\":[");
    assert_int_equal(sscanf(at, "\"data_offsets\":[%" SCNu64 ",%" SCNu64, &from, &to), 2);
    *size = (size_t)(to - from);
    void *data = malloc(*size);
    fseek(f, (long)(8 + bytes + from), SEEK_SET);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

// floor(i*24/fps + 1/2) of the stored frames, in doubles.
static void check_golden_frames(const char *path, const uint8_t *pixels, size_t size, int64_t frames, double fps)
{
    int64_t found, slots = (int64_t)floor((double)frames * 24 / fps + 0.5);
    size_t bytes = size / (size_t)frames;
    reel r = { .hash = fnv_start, .pixels = malloc(1) };
    assert_ok(vx_input_frames(path, 1000, collect, &r, &found));
    assert_true(found == slots && r.size == bytes * (size_t)slots);
    for (int64_t i = 0; i < frames; i++) {
        int64_t from = (int64_t)floor((double)i * 24 / fps + 0.5), to = (int64_t)floor((double)(i + 1) * 24 / fps + 0.5);
        for (int64_t slot = from; slot < to; slot++)
            assert_memory_equal(r.pixels + (size_t)slot * bytes, pixels + (size_t)i * bytes, bytes);
    }
    free(r.pixels);
}

static void equals_the_golden_inputs(void **state)
{
    (void)state;
    static const struct {
        const char *name, *ending;
        int64_t frames;
        double fps;
    } cases[] = { { "first", "png", 0, 0 },  { "last", "png", 0, 0 },  { "subject", "png", 0, 0 }, { "motion", "mkv", 45, 30 },
                  { "talk", "mkv", 27, 25 }, { "voice", "wav", 0, 0 }, { "stereo", "wav", 0, 0 } };
    const char *golden = golden_folder();
    if (!golden) {
        print_message("skipped: VORTEX_GOLDEN_DATA is not set\n");
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[600], samples[600];
        size_t size;
        snprintf(path, sizeof path, "%s/inputs/%s.%s", golden, cases[i].name, cases[i].ending);
        snprintf(samples, sizeof samples, "%s/inputs/%s.safetensors", golden, cases[i].name);
        uint8_t *pixels = tensor_of(samples, "pixels", &size), *rgb;
        int64_t w, h, n;
        if (pixels && cases[i].frames) check_golden_frames(path, pixels, size, cases[i].frames, cases[i].fps);
        else if (pixels) {
            assert_ok(vx_input_picture(&rgb, &w, &h, path));
            assert_int_equal(w * h * 3, size);
            assert_memory_equal(rgb, pixels, size);
            vx_free(rgb);
        }
        free(pixels);
        float *waveform = tensor_of(samples, "waveform", &size), *planar;
        if (waveform) {
            assert_ok(vx_input_sound(&planar, &w, &h, &n, path, 0));
            assert_int_equal(w * h * 4, size);
            assert_memory_equal(planar, waveform, size);
            vx_free(planar);
        }
        free(waveform);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_pictures_as_pillow),
        cmocka_unit_test(reads_videos_as_the_reference),
        cmocka_unit_test(reads_sounds_exactly),
        cmocka_unit_test(reads_lossy_sounds),
        cmocka_unit_test(refuses_what_is_damaged_or_too_large),
        cmocka_unit_test(stops_where_told),
        cmocka_unit_test(names_what_is_missing),
        cmocka_unit_test(tells_what_it_holds),
        cmocka_unit_test(survives_broken_labels),
        cmocka_unit_test(equals_the_golden_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
