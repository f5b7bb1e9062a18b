// FFmpeg's own allocations fail one after the other. Its av_malloc calls posix_memalign: this stands before libc's.
//
// Only those of 512 bytes and more, only while writing, and only the picture: FFmpeg 5.1 calls abort() without the few
// bytes for an option's text (avcodec_alloc_context3), and its H.264 decoder and AAC encoder use a buffer that they did not
// get. Nobody above it can help that.
#include "testing.h"

#include "movies.h"

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>

enum { SMALLEST = 512 };

static atomic_llong countdown; // the call that finds 1 fails, and so do all later ones if `persistent`
static atomic_bool persistent, delivered;

__attribute__((visibility("default"))) int posix_memalign(void **out, size_t alignment, size_t size);

int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (size >= SMALLEST) {
        long long left = atomic_fetch_sub(&countdown, 1);
        if (left == 1 || (left < 1 && persistent)) {
            delivered = true;
            return ENOMEM;
        }
    }
    void *p = memalign(alignment, size);
    if (p) *out = p;
    return p ? 0 : ENOMEM;
}

static void arm(long long k, bool for_ever)
{
    delivered = false;
    persistent = for_ever;
    countdown = k;
}

static bool disarm(void)
{
    persistent = false;
    countdown = 0;
    return delivered;
}

static int open_files(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

static vx_status write_small(const char *path)
{
    vx_movie_params p = small_movie(32, 32, 2);
    p.comment = "{}";
    p.audio_codec = NULL;
    return write_movie(path, &p, paint_bars);
}

static bool is_whole(const char *path)
{
    vx_movie_facts f;
    if (vx_movie_inspect(&f, path, true).code != VX_OK) return false;
    bool whole = f.frames == 2 && f.comment && strcmp(f.comment, "{}") == 0;
    vx_free(f.comment);
    return whole;
}

// No crash, no open file left, and an error. A few times FFmpeg's muxer goes on with a buffer missing and says nothing:
// only reading the file back, every frame decoded, tells.
static void fails_cleanly_without_memory(void **state)
{
    (void)state;
    scratch s = scratch_create();
    const char *path = scratch_path(&s, "a.mp4");
    assert_ok(write_small(path));
    assert_true(is_whole(path));
    int files = open_files(), reported = 0, unnoticed = 0;
    for (int for_ever = 0; for_ever < 2; for_ever++)
        for (long long k = 1, hit = 1; hit; k++) {
            arm(k, for_ever);
            vx_status status = write_small(path);
            hit = disarm();
            assert_int_equal(open_files(), files);
            if (!hit) assert_ok(status);
            if (status.code == VX_OK) {
                unnoticed += !is_whole(path);
                continue;
            }
            assert_true(status.code == VX_ERR_MEMORY || status.code == VX_ERR_ENCODER);
            assert_string_not_equal(status.message, "");
            reported++;
        }
    print_message("%d reported, %d found by reading back\n", reported, unnoticed);
    assert_true(reported > 40 && unnoticed < reported);
    scratch_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(fails_cleanly_without_memory) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
