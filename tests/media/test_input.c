// Pictures, videos and sounds as they are read in, against what Pillow, FFmpeg and PyAV make of the same files
// (tools/make_media_vectors.py, tests/data/media/input/expected.txt).
#include "testing.h"

#include <inttypes.h>
#include <math.h>
#include <sys/wait.h>

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
    bool range = strstr(want, "channels") || strstr(want, "15 seconds"); // the request's ranges, not the file's form
    if (s.code != (range ? VX_ERR_RANGE : VX_ERR_INPUT_FORMAT) || !strstr(s.message, want))
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

// What a name promises counts for nothing, and no text makes another file be opened.
static void refuses_scripts_and_playlists(void **state)
{
    (void)state;
    static const char *const texts[] = { "#EXTM3U\n#EXTINF:1,\n/etc/passwd\n", "ffconcat version 1.0\nfile /etc/passwd\n",
                                         "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\n", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>" };
    static const char *const names[] = { "a.mp4", "a.mp3", "a.png", "a.mkv" };
    scratch s = scratch_create();
    for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++)
        for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
            vx_input_facts facts;
            assert_code(vx_input_probe(&facts, scratch_file(&s, names[n], texts[t], strlen(texts[t]))), VX_ERR_INPUT_FORMAT);
        }
    scratch_destroy(&s);
}

static uint8_t *load(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    uint8_t *bytes = malloc(1 << 20);
    *size = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    return bytes;
}

// 900 million pixels, by the container's word: refused before a decoder sees them.
static void refuses_vast_videos_by_their_headers(void **state)
{
    (void)state;
    scratch s = scratch_create();
    size_t size;
    vx_input_facts facts;
    uint8_t *bytes = load(path_of("r24.mp4"), &size), *entry = memmem(bytes, size, "avc1\0\0\0\0", 8);
    assert_non_null(entry);
    memcpy(entry + 28, "\x75\x30\x75\x30", 4); // 30000, 30000
    vx_status status = vx_input_probe(&facts, scratch_file(&s, "a.mp4", bytes, size));
    assert_int_equal(status.code, VX_ERR_INPUT_FORMAT);
    assert_mentions(status, "30000x30000");
    free(bytes);
    scratch_destroy(&s);
}

// One byte after another is turned round: whatever is read then, an answer comes back, and slots stay in order.
static void survives_damage_anywhere(void **state)
{
    (void)state;
    static const char *const names[] = { "talk.mp4",  "untagged.mkv",    "u8.wav",
                                         "adam7.png", "progressive.jpg", "animated-inner.webp" };
    scratch s = scratch_create();
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        size_t size;
        uint8_t *bytes = load(path_of(names[n]), &size);
        for (size_t i = 0; i < size; i += 1 + size / 60) {
            uint8_t *rgb = NULL;
            float *planar = NULL;
            int64_t a, b, c;
            reel r = { .hash = fnv_start };
            bytes[i] ^= 0xff;
            scratch_file(&s, "a", bytes, size);
            if (vx_input_picture(&rgb, &a, &b, s.path).code == VX_OK) vx_free(rgb);
            (void)vx_input_frames(s.path, 100, collect, &r, &a);
            if (vx_input_sound(&planar, &a, &b, &c, s.path, 0).code == VX_OK) vx_free(planar);
            bytes[i] ^= 0xff;
        }
        free(bytes);
    }
    scratch_destroy(&s);
}

static void says_so_without_a_module(void **state)
{
    (void)state;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        // the module is loaded once for a process; this one has not asked for it yet
        vx_input_facts facts;
        setenv("VORTEX_MEDIA", "/nonexistent/libvortex-media.so", 1);
        _exit(vx_input_probe(&facts, path_of("rgb.png")).code == VX_ERR_ENCODER ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
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
        cmocka_unit_test(says_so_without_a_module), // first: it needs a process without the module
        cmocka_unit_test(refuses_scripts_and_playlists),
        cmocka_unit_test(refuses_vast_videos_by_their_headers),
        cmocka_unit_test(survives_damage_anywhere),
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
