// Disks that fill up or fail under the writer, and memory that runs out inside FFmpeg.
#include "testing.h"

#include "movies.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>

// ---- write(2), which libavformat calls: this stands before libc's. ----

static struct {
    bool on;
    int64_t room; // bytes until `error`
    int error;    // from then on, or only once
    bool once;
    int interrupted; // so many calls end with EINTR first
    size_t at_most;  // short writes; 0: as asked
} disk;

__attribute__((visibility("default"))) ssize_t write(int fd, const void *bytes, size_t size);

ssize_t write(int fd, const void *bytes, size_t size)
{
    if (!disk.on || fd <= 2) return syscall(SYS_write, fd, bytes, size);
    if (disk.interrupted > 0) {
        disk.interrupted--;
        errno = EINTR;
        return -1;
    }
    if (disk.at_most && size > disk.at_most) size = disk.at_most;
    if (disk.error && disk.room < (int64_t)size) {
        errno = disk.error;
        if (disk.once) disk.error = 0;
        return -1;
    }
    disk.room -= (int64_t)size;
    return syscall(SYS_write, fd, bytes, size);
}

static vx_status write_on(const char *path, int64_t room, int error, bool once)
{
    vx_movie_params p = small_movie(64, 64, 22);
    disk.room = room, disk.error = error, disk.once = once, disk.on = true;
    vx_status s = write_movie(path, &p, paint_noise);
    memset(&disk, 0, sizeof disk);
    return s;
}

// The file is some 120 KB; its index is then written over the first bytes and everything behind it moved.
static int64_t bytes_of_writing(const char *path)
{
    vx_movie_params p = small_movie(64, 64, 22);
    disk.on = true;
    assert_ok(write_movie(path, &p, paint_noise));
    int64_t written = -disk.room;
    memset(&disk, 0, sizeof disk);
    return written;
}

static void says_when_the_disk_is_full_wherever_it_happens(void **state)
{
    (void)state;
    scratch s = scratch_create();
    const char *path = scratch_path(&s, "a.mp4");
    int64_t all = bytes_of_writing(path);
    assert_true(all > 100000);
    for (int i = 0; i < 20; i++) {
        vx_status status = write_on(path, all * i / 20, i % 2 ? ENOSPC : EDQUOT, false);
        assert_int_equal(status.code, VX_ERR_STORAGE_FULL);
        assert_mentions(status, path);
    }
    assert_int_equal(write_on(path, all - 1, ENOSPC, false).code, VX_ERR_STORAGE_FULL);
    assert_ok(write_on(path, all, ENOSPC, false));
    scratch_destroy(&s);
}

// Not only when the file is closed: there are hours between.
static void stops_soon_after_the_disk_is_full(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_movie_params p = small_movie(64, 64, 200);
    vx_movie *movie;
    p.audio_codec = NULL;
    for (int i = 0; i < 2; i++) {
        disk.room = 1000, disk.error = i ? EIO : ENOSPC, disk.on = true;
        assert_ok(vx_movie_create(&movie, scratch_path(&s, "a.mp4"), &p));
        assert_code(write_frames(movie, &p, paint_noise, 1), i ? VX_ERR_OUTPUT : VX_ERR_STORAGE_FULL);
        assert_code(vx_movie_finish(movie), VX_ERR_INTERNAL);
        vx_movie_destroy(&movie);
        memset(&disk, 0, sizeof disk);
    }
    scratch_destroy(&s);
}

// An error that comes once must not be forgotten by the time the file is closed.
static void reports_an_error_that_comes_once(void **state)
{
    (void)state;
    scratch s = scratch_create();
    const char *path = scratch_path(&s, "a.mp4");
    int64_t all = bytes_of_writing(path);
    for (int i = 0; i < 20; i++) {
        vx_status status = write_on(path, all * i / 20, EIO, true);
        assert_int_equal(status.code, VX_ERR_OUTPUT);
        assert_mentions(status, path);
        assert_mentions(status, strerror(EIO));
    }
    scratch_destroy(&s);
}

static void hides_short_and_interrupted_writes(void **state)
{
    (void)state;
    scratch s = scratch_create();
    const char *path = scratch_path(&s, "a.mp4");
    vx_movie_params p = small_movie(64, 64, 22);
    vx_movie_facts f;
    disk.interrupted = 5, disk.at_most = 1000, disk.on = true;
    vx_status status = write_movie(path, &p, paint_noise);
    memset(&disk, 0, sizeof disk);
    assert_ok(status);
    assert_ok(vx_movie_inspect(&f, path, true));
    assert_int_equal(f.frames, 22);
    scratch_destroy(&s);
}

static void names_a_file_that_cannot_be_opened(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_movie_params p = small_movie(64, 64, 22);
    vx_movie *movie;
    vx_status status = vx_movie_create(&movie, scratch_path(&s, "no/a.mp4"), &p);
    assert_int_equal(status.code, VX_ERR_OUTPUT);
    assert_mentions(status, "no/a.mp4");
    assert_null(movie);
    status = vx_movie_create(&movie, s.folder, &p);
    assert_int_equal(status.code, VX_ERR_OUTPUT);
    scratch_destroy(&s);
}

// ---- A real disk of a few sizes. In a child with mounts of its own, which end with it. 42: the system allows none. ----

static int fill_small_disk(scratch *s, int kib)
{
    char options[40];
    vx_movie_params p = small_movie(64, 64, 22);
    snprintf(options, sizeof options, "size=%dk", kib);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return 42;
    if (mount("tmpfs", s->folder, "tmpfs", 0, options) != 0) return 42;
    vx_status status = write_movie(scratch_path(s, "a.mp4"), &p, paint_noise);
    if (kib >= 1024) return status.code == VX_OK ? 0 : 1;
    return status.code == VX_ERR_STORAGE_FULL && strstr(status.message, s->path) ? 0 : 2;
}

static void says_when_a_real_disk_is_full(void **state)
{
    (void)state;
    static const int sizes[] = { 4, 16, 64, 1024 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        scratch s = scratch_create();
        int status;
        pid_t pid = fork();
        if (pid == 0) _exit(fill_small_disk(&s, sizes[i]));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        scratch_destroy(&s);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 42) {
            print_message("skipped: no mounts here\n");
            skip();
        }
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_when_the_disk_is_full_wherever_it_happens),
        cmocka_unit_test(stops_soon_after_the_disk_is_full),
        cmocka_unit_test(reports_an_error_that_comes_once),
        cmocka_unit_test(hides_short_and_interrupted_writes),
        cmocka_unit_test(names_a_file_that_cannot_be_opened),
        cmocka_unit_test(says_when_a_real_disk_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
