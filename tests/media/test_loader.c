#include "testing.h"

#include "movies.h"

#include <sys/wait.h>

#include "base/str.h"

// The module is loaded once for a process; each of these is a fresh one.
static void in_child(void (*body)(scratch *s))
{
    scratch s = scratch_create();
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        body(&s);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    scratch_destroy(&s);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define expect(condition)                                                                             \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            fprintf(stderr, "line %d: %s: '%s' '%s'\n", __LINE__, #condition, st.message, st.remedy); \
            _exit(1);                                                                                 \
        }                                                                                             \
    } while (0)

static void missing(scratch *s)
{
    char text[300] = "old";
    vx_movie *movie = (vx_movie *)s;
    vx_movie_facts facts;
    vx_movie_params p = small_movie(64, 64, 22);
    setenv("VORTEX_MEDIA", "/nonexistent/libvortex-media.so", 1);
    vx_status st = vx_media_versions(text, sizeof text);
    expect(st.code == VX_ERR_ENCODER);
    expect(strstr(st.message, "/nonexistent/libvortex-media.so"));
    expect(strstr(st.remedy, "FFmpeg") && strstr(st.remedy, "VORTEX_MEDIA=ON"));
    expect(text[0] == 0);
    st = vx_movie_create(&movie, "/nonexistent/a.mp4", &p);
    expect(st.code == VX_ERR_ENCODER && !movie);
    st = vx_movie_inspect(&facts, "/nonexistent/a.mp4", false);
    expect(st.code == VX_ERR_ENCODER);
    expect(vx_movie_memory(&p) > 0);
}

static void other_library(scratch *s)
{
    (void)s;
    char text[300];
    setenv("VORTEX_MEDIA", "libm.so.6", 1);
    vx_status st = vx_media_versions(text, sizeof text);
    expect(st.code == VX_ERR_ENCODER && strstr(st.message, "libm.so.6") && strstr(st.message, "not a media module"));
}

static void no_library(scratch *s)
{
    char text[300];
    setenv("VORTEX_MEDIA", scratch_file(s, "libvortex-media.so", "no ELF", 6), 1);
    vx_status st = vx_media_versions(text, sizeof text);
    expect(st.code == VX_ERR_ENCODER && strstr(st.message, s->path));
}

static void tried_again(scratch *s)
{
    char text[300], module[1024];
    snprintf(module, sizeof module, "%s", getenv("VORTEX_MEDIA"));
    missing(s);
    setenv("VORTEX_MEDIA", module, 1);
    vx_status st = vx_media_versions(text, sizeof text);
    expect(st.code == VX_OK && strstr(text, "libavcodec "));
}

// The module lies one folder above the tests: found from a program in bin/, or beside it.
static void found_by_place(scratch *s)
{
    static const char *const places[][2] = {
        { "bin", "bin" }, { "bin", "lib" }, { "bin", "lib/vortex" }, { "bin", "bin/vortex" }
    };
    char self[1024], module[1024], command[4096];
    vx_status st = vx_ok();
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    expect(n > 0);
    self[n] = 0;
    snprintf(module, sizeof module, "%s", getenv("VORTEX_MEDIA"));
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(command, sizeof command,
                 "cd %s && rm -rf bin lib && mkdir -p %s %s && cp '%s' bin/program && cp '%s' %s/libvortex-media.so && "
                 "env -u VORTEX_MEDIA VORTEX_TEST_PLACE=%s bin/program >/dev/null 2>&1",
                 s->folder, places[i][0], places[i][1], self, module, places[i][1], places[i][1]);
        snprintf(st.message, sizeof st.message, "%s", places[i][1]);
        expect(system(command) == 0);
    }
    snprintf(command, sizeof command,
             "cd %s && rm -rf bin/vortex && env -u VORTEX_MEDIA VORTEX_TEST_PLACE=none bin/program 2>/dev/null", s->folder);
    expect(system(command) != 0);
}

static void says_why_without_a_module(void **state)
{
    (void)state;
    in_child(missing);
}

static void refuses_another_library(void **state)
{
    (void)state;
    in_child(other_library);
    in_child(no_library);
}

static void tries_again_after_a_failure(void **state)
{
    (void)state;
    in_child(tried_again);
}

static void looks_beside_the_program_and_in_lib(void **state)
{
    (void)state;
    in_child(found_by_place);
}

static void tells_the_versions(void **state)
{
    (void)state;
    char text[300], cut[12];
    assert_ok(vx_media_versions(text, sizeof text));
    assert_true(vx_has_prefix(text, "libavcodec "));
    assert_non_null(strstr(text, " aac"));
    assert_ok(vx_media_versions(cut, sizeof cut));
    assert_memory_equal(cut, text, sizeof cut - 1);
    assert_int_equal(cut[sizeof cut - 1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_why_without_a_module),   cmocka_unit_test(refuses_another_library),
        cmocka_unit_test(tries_again_after_a_failure), cmocka_unit_test(looks_beside_the_program_and_in_lib),
        cmocka_unit_test(tells_the_versions),
    };
    if (getenv("VORTEX_TEST_PLACE")) { // a copy of this program, put somewhere by found_by_place
        char text[300];
        return vx_media_versions(text, sizeof text).code == VX_OK ? 0 : 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
