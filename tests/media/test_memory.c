#include "testing.h"

#include "movies.h"

#include <sys/wait.h>

// What the process holds of its own; the bytes of mapped libraries do not count.
static uint64_t anonymous_bytes(void)
{
    char line[200];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "RssAnon: %llu", &kib) != 1) continue;
    if (f) fclose(f);
    return kib * 1024;
}

static uint64_t measure(const char *path, const vx_movie_params *p)
{
    size_t frame_bytes = (size_t)p->width * (size_t)p->height * 3;
    uint8_t *rgb = vx_alloc_array(1, frame_bytes);
    float *samples = tone(p);
    memset(rgb, 1, frame_bytes);
    uint64_t before = anonymous_bytes(), peak = before;
    vx_movie *movie;
    assert_ok(vx_movie_create(&movie, path, p));
    assert_ok(vx_movie_put_sound(movie, samples));
    for (int64_t i = 0; i < p->frames; i++) {
        paint_bars(rgb, p->width, p->height, i);
        assert_ok(vx_movie_put_frames(movie, rgb, 1));
        uint64_t now = anonymous_bytes();
        if (now > peak) peak = now;
    }
    assert_ok(vx_movie_finish(movie));
    uint64_t end = anonymous_bytes(); // a short movie is encoded here, after the last frame
    if (end > peak) peak = end;
    vx_movie_destroy(&movie);
    vx_free(rgb);
    vx_free(samples);
    return peak - before;
}

// Each in a child: the first movie of a process also fills FFmpeg's tables, which the formula counts. The libraries
// themselves, some 5 MB once loaded, it does not.
static void takes_what_the_plan_says(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("skipped: a sanitizer's memory would be measured\n");
    skip();
#endif
    static const struct {
        int width, height, threads;
        int64_t frames;
        const char *pixel_format;
    } cases[] = { { 256, 256, 2, 70, "yuv420p" },
                  { 640, 384, 2, 70, "yuv420p" },
                  { 640, 384, 1, 60, "yuv444p" },
                  { 1344, 768, 2, 30, "yuv420p" } };
    char text[300];
    assert_ok(vx_media_versions(text, sizeof text)); // loads them
    scratch s = scratch_create();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        vx_movie_params p = small_movie(cases[i].width, cases[i].height, cases[i].frames);
        p.threads = cases[i].threads;
        p.pixel_format = cases[i].pixel_format;
        int ends[2], status;
        uint64_t measured = 0, planned = vx_movie_memory(&p);
        assert_int_equal(pipe(ends), 0);
        pid_t pid = fork();
        if (pid == 0) {
            uint64_t bytes = measure(scratch_path(&s, "a.mp4"), &p);
            _exit(write(ends[1], &bytes, sizeof bytes) != sizeof bytes);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_int_equal(read(ends[0], &measured, sizeof measured), sizeof measured);
        close(ends[0]);
        close(ends[1]);
        print_message("%dx%d %s, %d threads: %.1f MB, planned %.1f\n", p.width, p.height, p.pixel_format, p.threads,
                      (double)measured / 1e6, (double)planned / 1e6);
        assert_true((double)planned > 0.8 * (double)measured && (double)planned < 1.2 * (double)measured);
    }
    scratch_destroy(&s);
}

static void plans_without_the_module(void **state)
{
    (void)state;
    // As the plan asks: no sound, no codec, threads left open.
    vx_movie_params p = { .width = 1344, .height = 768, .frames = 124, .pixel_format = "yuv420p" };
    uint64_t bytes = vx_movie_memory(&p);
    assert_true(bytes > 150u << 20 && bytes < 1u << 30);
    p.frames = 0; // not known yet: a full lookahead
    assert_int_equal(vx_movie_memory(&p), bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_without_the_module),
        cmocka_unit_test(takes_what_the_plan_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
