#include "testing.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/pool.h"
#include "guard.h"
#include "scratch.h"

enum { PAGE = 4096 };

static const char *make_pages(scratch *s, const char *name, int pages)
{
    char *bytes = malloc((size_t)pages * PAGE);
    for (int i = 0; i < pages; i++) memset(bytes + (size_t)i * PAGE, i + 1, PAGE);
    scratch_file(s, name, bytes, (size_t)pages * PAGE);
    free(bytes);
    return s->path;
}

// ---- What is not ours goes to whoever handled SIGBUS before. Children, because each has its own first mapping. ----

static void leave_with_7(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    _exit(info->si_addr ? 7 : 8);
}

static void leave_with_9(int number)
{
    _exit(number == SIGBUS ? 9 : 10);
}

enum before { BEFORE_DEFAULT, BEFORE_INFO, BEFORE_PLAIN, BEFORE_IGNORE };

static void handle_before(enum before before)
{
    struct sigaction a = { 0 };
    if (before == BEFORE_DEFAULT) a.sa_handler = SIG_DFL;
    if (before == BEFORE_IGNORE) a.sa_handler = SIG_IGN;
    if (before == BEFORE_PLAIN) a.sa_handler = leave_with_9;
    if (before == BEFORE_INFO) {
        a.sa_sigaction = leave_with_7;
        a.sa_flags = SA_SIGINFO;
    }
    sigaction(SIGBUS, &a, NULL);
}

// Touches a lost page of a mapping that is not Vortex's, or sends the signal.
static void child(scratch *s, enum before before, bool sent)
{
    handle_before(before);
    vx_mapping *m;
    if (vx_file_map(&m, make_pages(s, "ours", 2), VX_ERR_MODEL_OPEN).code != VX_OK) _exit(20);
    int fd = open(make_pages(s, "theirs", 2), O_RDWR);
    volatile char *bytes = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    if (ftruncate(fd, 0) != 0) _exit(21);
    if (sent) raise(SIGBUS);
    else (void)bytes[PAGE];
    _exit(vx_file_check(m).code == VX_OK ? 0 : 22);
}

static void passes_on_what_is_not_its_own(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        enum before before;
        bool sent;
        int exits, killed;
    } cases[] = {
        { "a fault ends the process by default", BEFORE_DEFAULT, false, 0, SIGBUS },
        { "a signal ends the process by default", BEFORE_DEFAULT, true, 0, SIGBUS },
        { "a fault reaches a handler with information", BEFORE_INFO, false, 7, 0 },
        { "a fault reaches a plain handler", BEFORE_PLAIN, false, 9, 0 },
        { "a fault cannot be ignored", BEFORE_IGNORE, false, 0, SIGBUS },
        { "an ignored signal is ignored", BEFORE_IGNORE, true, 0, 0 },
    };
    scratch s = scratch_create();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) child(&s, cases[i].before, cases[i].sent);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        bool as_wanted = cases[i].killed ? WIFSIGNALED(status) && WTERMSIG(status) == cases[i].killed
                                         : WIFEXITED(status) && WEXITSTATUS(status) == cases[i].exits;
        if (!as_wanted) fail_msg("%s: status %x", cases[i].says, (unsigned)status);
    }
    scratch_destroy(&s);
}

// ---- Mapping ----

static void maps_a_file(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_mapping *m;
    scratch_file(&s, "a", "hello", 5);
    assert_ok(vx_file_map(&m, s.path, VX_ERR_MODEL_OPEN));
    assert_int_equal(vx_mapping_size(m), 5);
    assert_memory_equal(vx_mapping_data(m), "hello", 5);
    assert_string_equal(vx_mapping_path(m), s.path);
    assert_ok(vx_file_check(m));
    vx_file_unmap(&m);
    assert_null(m);
    vx_file_unmap(&m);
    scratch_destroy(&s);
}

static void maps_an_empty_file(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_mapping *m;
    assert_ok(vx_file_map(&m, scratch_file(&s, "empty", "", 0), VX_ERR_MODEL_OPEN));
    assert_int_equal(vx_mapping_size(m), 0);
    assert_non_null(vx_mapping_data(m));
    vx_mapping_prefetch(m, 0, 1);
    assert_ok(vx_file_check(m));
    vx_file_unmap(&m);
    scratch_destroy(&s);
}

static void follows_links_and_outlives_the_name(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_mapping *m;
    char target[600];
    snprintf(target, sizeof target, "%s", make_pages(&s, "blob", 2));
    assert_int_equal(symlink(target, scratch_path(&s, "link")), 0);
    assert_ok(vx_file_map(&m, s.path, VX_ERR_MODEL_OPEN));
    unlink(target);
    assert_int_equal(vx_mapping_data(m)[PAGE], 2);
    assert_ok(vx_file_check(m));
    vx_file_unmap(&m);
    scratch_destroy(&s);
}

static void says_what_stands_in_place_of_a_file(void **state)
{
    (void)state;
    scratch s = scratch_create();
    char paths[5][600];
    snprintf(paths[0], 600, "%s", scratch_path(&s, "missing"));
    snprintf(paths[1], 600, "%s", s.folder);
    snprintf(paths[2], 600, "%s", scratch_path(&s, "fifo"));
    assert_int_equal(mkfifo(paths[2], 0600), 0);
    snprintf(paths[3], 600, "/dev/null");
    snprintf(paths[4], 600, "%s", scratch_path(&s, "socket"));
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", paths[4]);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    static const char *const found[] = { "No such file", "a folder", "a FIFO", "a device", "a socket" };
    for (int i = 0; i < 5; i++) {
        vx_mapping *m = (vx_mapping *)&m;
        vx_status status = vx_file_map(&m, paths[i], VX_ERR_MODEL_OPEN);
        assert_int_equal(status.code, VX_ERR_MODEL_OPEN);
        assert_null(m);
        assert_mentions(status, paths[i]);
        assert_mentions(status, found[i]);
    }
    close(fd);
    scratch_destroy(&s);
}

static void prefetches_any_range(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_mapping *m;
    assert_ok(vx_file_map(&m, make_pages(&s, "a", 3), VX_ERR_MODEL_OPEN));
    static const size_t ranges[][2] = { { 0, 0 },        { 1, 1 },        { PAGE - 1, 2 },
                                        { 5, SIZE_MAX }, { 3 * PAGE, 1 }, { SIZE_MAX, SIZE_MAX } };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) vx_mapping_prefetch(m, ranges[i][0], ranges[i][1]);
    assert_int_equal(vx_mapping_data(m)[2 * PAGE], 3);
    vx_file_unmap(&m);
    scratch_destroy(&s);
}

// ---- The guard ----

static void survives_a_shrinking_file(void **state)
{
    (void)state;
    guard_restore();
    scratch s = scratch_create();
    vx_mapping *m, *other;
    assert_ok(vx_file_map(&m, make_pages(&s, "a", 8), VX_ERR_MODEL_OPEN));
    assert_ok(vx_file_map(&other, make_pages(&s, "b", 8), VX_ERR_MODEL_OPEN));
    scratch_path(&s, "a");
    assert_int_equal(truncate(s.path, 2 * PAGE), 0);
    const volatile uint8_t *bytes = vx_mapping_data(m);
    assert_ok(vx_file_check(m)); // nothing lost was touched yet
    assert_int_equal(bytes[0], 1);
    assert_ok(vx_file_check(m));
    errno = 12345;
    assert_int_equal(bytes[5 * PAGE + 17], 0);
    assert_int_equal(errno, 12345);
    for (int i = 2; i < 8; i++) assert_int_equal(bytes[i * PAGE], 0);
    assert_int_equal(bytes[PAGE], 2); // what the file still holds stays
    vx_status status = vx_file_check(m);
    assert_int_equal(status.code, VX_ERR_FILE_CHANGED);
    assert_mentions(status, s.path);
    assert_mentions(status, "from 32768 to 8192 bytes");
    assert_code(vx_file_check(m), VX_ERR_FILE_CHANGED); // it stays so
    assert_ok(vx_file_check(other));
    assert_int_equal(vx_mapping_data(other)[7 * PAGE], 8);
    vx_file_unmap(&m);
    vx_file_unmap(&other);
    // The place in the table is used again, without the mark.
    assert_ok(vx_file_map(&m, make_pages(&s, "c", 1), VX_ERR_MODEL_OPEN));
    assert_ok(vx_file_check(m));
    vx_file_unmap(&m);
    scratch_destroy(&s);
}

static void notices_a_file_that_shrank_and_grew_again(void **state)
{
    (void)state;
    guard_restore();
    scratch s = scratch_create();
    vx_mapping *m;
    assert_ok(vx_file_map(&m, make_pages(&s, "a", 4), VX_ERR_MODEL_OPEN));
    assert_int_equal(truncate(s.path, 0), 0);
    assert_int_equal(((const volatile uint8_t *)vx_mapping_data(m))[PAGE], 0);
    assert_int_equal(truncate(s.path, 4 * PAGE), 0);
    vx_status status = vx_file_check(m);
    assert_int_equal(status.code, VX_ERR_FILE_CHANGED);
    assert_mentions(status, "changed");
    vx_file_unmap(&m);
    scratch_destroy(&s);
}

typedef struct readers {
    scratch *folder;
    vx_mapping *shared;
    atomic_int wrong;
} readers;

// Readers of one shrunk mapping, while others map, shrink, touch and unmap files of their own.
static void read_and_remap(void *ctx, int64_t piece, int worker)
{
    (void)worker;
    readers *r = ctx;
    const volatile uint8_t *bytes = vx_mapping_data(r->shared);
    for (int i = 63; i > 0; i--)
        if (bytes[(size_t)i * PAGE] != 0) atomic_fetch_add(&r->wrong, 1);
    char path[600];
    snprintf(path, sizeof path, "%s/own-%d", r->folder->folder, (int)piece);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    vx_mapping *m;
    if (ftruncate(fd, 2 * PAGE) != 0 || vx_file_map(&m, path, VX_ERR_MODEL_OPEN).code != VX_OK) {
        atomic_fetch_add(&r->wrong, 1);
        return;
    }
    bool shrinks = piece % 2;
    if (shrinks && ftruncate(fd, PAGE) != 0) atomic_fetch_add(&r->wrong, 1);
    if (((const volatile uint8_t *)vx_mapping_data(m))[PAGE] != 0) atomic_fetch_add(&r->wrong, 1);
    if ((vx_file_check(m).code == VX_ERR_FILE_CHANGED) != shrinks) atomic_fetch_add(&r->wrong, 1);
    vx_file_unmap(&m);
    close(fd);
}

static void guards_many_threads(void **state)
{
    (void)state;
    guard_restore();
    scratch s = scratch_create();
    readers r = { .folder = &s };
    vx_pool *pool;
    assert_ok(vx_pool_create(&pool, 4));
    assert_ok(vx_file_map(&r.shared, make_pages(&s, "shared", 64), VX_ERR_MODEL_OPEN));
    assert_int_equal(truncate(s.path, PAGE), 0);
    vx_pool_run(pool, 200, read_and_remap, &r);
    assert_int_equal(r.wrong, 0);
    assert_code(vx_file_check(r.shared), VX_ERR_FILE_CHANGED);
    vx_file_unmap(&r.shared);
    vx_pool_destroy(&pool);
    scratch_destroy(&s);
}

static void refuses_the_257th_mapping(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_mapping *all[256], *more;
    make_pages(&s, "a", 1);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 256; i++) assert_ok(vx_file_map(&all[i], s.path, VX_ERR_MODEL_OPEN));
        vx_status status = vx_file_map(&more, s.path, VX_ERR_MODEL_OPEN);
        assert_int_equal(status.code, VX_ERR_FILE_LIMIT);
        assert_null(more);
        for (int i = 0; i < 256; i++) vx_file_unmap(&all[i]);
    }
    scratch_destroy(&s);
}

static void gives_memory_back_when_it_runs_out(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_mapping *m;
    make_pages(&s, "a", 1);
    for (int persistent = 0; persistent < 2; persistent++)
        for (int k = 1, hit = 1; hit; k++) {
            vx_fault_arm(k, persistent);
            vx_status status = vx_file_map(&m, s.path, VX_ERR_MODEL_OPEN);
            hit = vx_fault_disarm();
            assert_int_equal(status.code, hit ? VX_ERR_MEMORY : VX_OK);
            vx_file_unmap(&m);
        }
    scratch_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest first[] = {
        cmocka_unit_test(passes_on_what_is_not_its_own), // before this process has a handler
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_a_file),
        cmocka_unit_test(maps_an_empty_file),
        cmocka_unit_test(follows_links_and_outlives_the_name),
        cmocka_unit_test(says_what_stands_in_place_of_a_file),
        cmocka_unit_test(prefetches_any_range),
        cmocka_unit_test(survives_a_shrinking_file),
        cmocka_unit_test(notices_a_file_that_shrank_and_grew_again),
        cmocka_unit_test(guards_many_threads),
        cmocka_unit_test(refuses_the_257th_mapping),
        cmocka_unit_test(gives_memory_back_when_it_runs_out),
    };
    int failed = cmocka_run_group_tests(first, NULL, NULL);
    if (guard_keep() != 0) return 1;
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
