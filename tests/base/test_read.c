#include "testing.h"

#include <sys/wait.h>

#include "base/alloc.h"
#include "base/file.h"
#include "scratch.h"

static void reads_a_whole_file(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 4095, 4096, 4097, 100000 };
    scratch s = scratch_create();
    char *bytes = malloc(100000);
    for (size_t i = 0; i < 100000; i++) bytes[i] = (char)(i * 7);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *text;
        size_t size;
        scratch_file(&s, "a", bytes, sizes[i]);
        assert_ok(vx_file_read(&text, &size, s.path, sizes[i], VX_ERR_INPUT_OPEN)); // just within the limit
        assert_int_equal(size, sizes[i]);
        assert_memory_equal(text, bytes, size);
        assert_int_equal(text[size], 0);
        vx_free(text);
        if (sizes[i] == 0) continue;
        text = bytes;
        vx_status status = vx_file_read(&text, &size, s.path, sizes[i] - 1, VX_ERR_INPUT_OPEN);
        assert_int_equal(status.code, VX_ERR_FILE_LIMIT);
        assert_mentions(status, s.path);
        assert_null(text);
    }
    free(bytes);
    scratch_destroy(&s);
}

static void says_what_cannot_be_read(void **state)
{
    (void)state;
    scratch s = scratch_create();
    char *text;
    size_t size;
    vx_status status = vx_file_read(&text, &size, scratch_path(&s, "missing"), 10, VX_ERR_PROMPT_FILE);
    assert_int_equal(status.code, VX_ERR_PROMPT_FILE);
    assert_mentions(status, "missing");
    assert_mentions(status, "No such file");
    status = vx_file_read(&text, &size, s.folder, 10, VX_ERR_PROMPT_FILE);
    assert_int_equal(status.code, VX_ERR_PROMPT_FILE);
    assert_mentions(status, "a folder");
    scratch_destroy(&s);
}

// A child writes in small pieces into a FIFO or into our standard input.
static pid_t write_slowly(int fd, const char *path, size_t total)
{
    pid_t pid = fork();
    if (pid != 0) return pid;
    if (fd < 0) fd = open(path, O_WRONLY);
    for (size_t at = 0; at < total; at += 1000) {
        char piece[1000];
        memset(piece, 'a' + (int)(at / 1000 % 26), sizeof piece);
        if (write(fd, piece, sizeof piece) != (ssize_t)sizeof piece) _exit(1);
        if (at % 5000 == 0) usleep(500);
    }
    _exit(0);
}

static void reads_pipes_to_their_end(void **state)
{
    (void)state;
    scratch s = scratch_create();
    char *text;
    size_t size;
    int status;
    assert_int_equal(mkfifo(scratch_path(&s, "fifo"), 0600), 0);
    pid_t pid = write_slowly(-1, s.path, 50000);
    assert_ok(vx_file_read(&text, &size, s.path, 50000, VX_ERR_INPUT_OPEN));
    assert_int_equal(size, 50000);
    assert_true(text[0] == 'a' && text[49999] == 'a' + 49 % 26 && text[50000] == 0);
    vx_free(text);
    waitpid(pid, &status, 0);
    scratch_destroy(&s);
}

static void reads_standard_input(void **state)
{
    (void)state;
    int before = dup(STDIN_FILENO), ends[2], status;
    for (int round = 0; round < 2; round++) {
        char *text;
        size_t size;
        assert_int_equal(pipe(ends), 0);
        pid_t pid = write_slowly(ends[1], NULL, 20000);
        close(ends[1]);
        dup2(ends[0], STDIN_FILENO);
        close(ends[0]);
        vx_status s = vx_file_read(&text, &size, "-", round ? 19999 : 20000, VX_ERR_INPUT_OPEN);
        dup2(before, STDIN_FILENO);
        waitpid(pid, &status, 0);
        assert_int_equal(s.code, round ? VX_ERR_FILE_LIMIT : VX_OK);
        if (round) assert_mentions(s, "standard input");
        else assert_int_equal(size, 20000);
        vx_free(text);
    }
    close(before);
}

static void stops_at_the_limit_of_endless_files(void **state)
{
    (void)state;
    char *text;
    size_t size;
    assert_code(vx_file_read(&text, &size, "/dev/zero", 100000, VX_ERR_INPUT_OPEN), VX_ERR_FILE_LIMIT);
}

static void gives_memory_back_when_it_runs_out(void **state)
{
    (void)state;
    scratch s = scratch_create();
    char *text;
    size_t size;
    // /proc/self/maps says it is 0 bytes long: the buffer grows several times.
    const char *paths[] = { scratch_file(&s, "a", "hello", 5), "/proc/self/maps" };
    for (int p = 0; p < 2; p++)
        for (int k = 1, hit = 1; hit; k++) {
            vx_fault_arm(k, true);
            vx_status status = vx_file_read(&text, &size, paths[p], 1 << 20, VX_ERR_INPUT_OPEN);
            hit = vx_fault_disarm();
            assert_int_equal(status.code, hit ? VX_ERR_MEMORY : VX_OK);
            if (!hit) assert_true(size >= 5);
            vx_free(text);
        }
    scratch_destroy(&s);
}

static void tells_files_from_folders(void **state)
{
    (void)state;
    scratch s = scratch_create();
    char folder[256];
    memcpy(folder, s.folder, sizeof folder);
    scratch_file(&s, "a", "", 0);
    assert_true(vx_file_exists(s.path));
    assert_false(vx_folder_exists(s.path));
    assert_true(vx_folder_exists(folder));
    assert_false(vx_file_exists(folder));
    scratch_path(&s, "missing");
    assert_false(vx_file_exists(s.path));
    assert_false(vx_folder_exists(s.path));
    scratch_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_whole_file),
        cmocka_unit_test(says_what_cannot_be_read),
        cmocka_unit_test(reads_pipes_to_their_end),
        cmocka_unit_test(reads_standard_input),
        cmocka_unit_test(stops_at_the_limit_of_endless_files),
        cmocka_unit_test(gives_memory_back_when_it_runs_out),
        cmocka_unit_test(tells_files_from_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
