#include "testing.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "scratch.h"

// ---- System calls that fail on request: these stand before libc's. 0: do not fail. ----

static struct {
    int fsync_file, fsync_folder, renameat2, linkat;
    int write_eintr, write_at_most;
} faults;

static int syncs_of_files, syncs_of_folders;

int fsync(int fd)
{
    struct stat found;
    bool folder = fstat(fd, &found) == 0 && S_ISDIR(found.st_mode);
    (*(folder ? &syncs_of_folders : &syncs_of_files))++;
    errno = folder ? faults.fsync_folder : faults.fsync_file;
    return errno ? -1 : (int)syscall(SYS_fsync, fd);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    errno = faults.renameat2;
    return errno ? -1 : (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    errno = faults.linkat;
    return errno ? -1 : (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    if (faults.write_eintr > 0) {
        faults.write_eintr--;
        errno = EINTR;
        return -1;
    }
    if (faults.write_at_most > 0 && size > (size_t)faults.write_at_most) size = (size_t)faults.write_at_most;
    return syscall(SYS_write, fd, bytes, size);
}

static void no_faults(void)
{
    memset(&faults, 0, sizeof faults);
}

static vx_status write_text(const char *path, const char *text, bool replace)
{
    vx_output *o;
    VX_TRY(vx_output_begin(&o, path, replace));
    vx_status s = vx_output_write(o, text, strlen(text));
    if (s.code != VX_OK) vx_output_discard(&o);
    else s = vx_output_commit(&o);
    assert_null(o);
    return s;
}

// ---- The life of an output ----

static void appears_whole_on_commit(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_output *o;
    char last[256], pid[32];
    snprintf(pid, sizeof pid, ".out.mp4.vortex-%ld-", (long)getpid());
    assert_ok(vx_output_begin(&o, scratch_path(&s, "out.mp4"), false));
    assert_int_equal(scratch_count(&s, last), 1);
    assert_true(vx_has_prefix(last, pid) && vx_has_suffix(last, ".part"));
    assert_string_equal(vx_path_name(vx_output_temporary(o)), last);
    assert_int_equal(access(vx_output_temporary(o), F_OK), 0);
    assert_ok(vx_output_write(o, "one ", 4));
    assert_ok(vx_output_write(o, "", 0));
    assert_int_equal(write(vx_output_fd(o), "two", 3), 3); // as a muxer does
    assert_int_equal(scratch_count(&s, last), 1);
    syncs_of_files = syncs_of_folders = 0;
    assert_ok(vx_output_commit(&o));
    assert_null(o);
    assert_int_equal(syncs_of_files, 1);
    assert_int_equal(syncs_of_folders, 1);
    assert_int_equal(scratch_count(&s, last), 1);
    assert_true(scratch_holds(&s, "out.mp4", "one two"));
    scratch_destroy(&s);
}

static void leaves_nothing_when_discarded(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_output *o;
    assert_ok(vx_output_begin(&o, scratch_path(&s, "out"), false));
    assert_ok(vx_output_write(o, "x", 1));
    vx_output_discard(&o);
    assert_null(o);
    vx_output_discard(&o);
    assert_int_equal(scratch_count(&s, NULL), 0);
    scratch_destroy(&s);
}

static void writes_in_the_present_folder(void **state)
{
    (void)state;
    scratch s = scratch_create();
    char before[PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(s.folder), 0);
    vx_output *o;
    vx_status status = vx_output_begin(&o, "bare", false);
    assert_int_equal(status.code, VX_OK);
    assert_true(vx_has_prefix(vx_output_temporary(o), "./.bare.vortex-"));
    assert_ok(vx_output_commit(&o));
    assert_int_equal(chdir(before), 0);
    assert_true(scratch_holds(&s, "bare", ""));
    scratch_destroy(&s);
}

static void survives_interruptions_and_short_writes(void **state)
{
    (void)state;
    scratch s = scratch_create();
    faults.write_eintr = 3;
    faults.write_at_most = 5;
    vx_status status = write_text(scratch_path(&s, "a"), "a text of some length", false);
    no_faults();
    assert_int_equal(status.code, VX_OK);
    assert_true(scratch_holds(&s, "a", "a text of some length"));
    scratch_destroy(&s);
}

// ---- Names ----

static void does_not_touch_an_existing_file(void **state)
{
    (void)state;
    scratch s = scratch_create();
    scratch_file(&s, "out", "old", 3);
    vx_status status = write_text(s.path, "new", false);
    assert_int_equal(status.code, VX_ERR_OUTPUT_EXISTS);
    assert_mentions(status, s.path);
    assert_true(status.remedy[0]);
    assert_int_equal(symlink("nowhere", scratch_path(&s, "dangling")), 0);
    assert_code(write_text(s.path, "new", false), VX_ERR_OUTPUT_EXISTS);
    assert_true(scratch_holds(&s, "out", "old"));
    assert_int_equal(scratch_count(&s, NULL), 2);
    scratch_destroy(&s);
}

// The ways to give a name: renameat2, link, look and rename.
static const struct {
    const char *says;
    int renameat2, linkat;
} ways[] = {
    { "renameat2", 0, 0 },
    { "link, where renameat2 is unknown", ENOSYS, 0 },
    { "link, where the filesystem cannot keep names", EINVAL, 0 },
    { "look and rename, where there are no links", EINVAL, EPERM },
    { "look and rename, where links are not supported", EINVAL, EOPNOTSUPP },
};

static void keeps_a_file_that_took_the_name_meanwhile(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        scratch s = scratch_create();
        vx_output *o;
        assert_ok(vx_output_begin(&o, scratch_path(&s, "out"), false));
        assert_ok(vx_output_write(o, "new", 3));
        scratch_file(&s, "out", "theirs", 6);
        faults.renameat2 = ways[i].renameat2;
        faults.linkat = ways[i].linkat;
        vx_status status = vx_output_commit(&o);
        no_faults();
        if (status.code != VX_ERR_OUTPUT_EXISTS) fail_msg("%s: VX-%d %s", ways[i].says, (int)status.code, status.message);
        assert_null(o);
        assert_true(scratch_holds(&s, "out", "theirs"));
        assert_int_equal(scratch_count(&s, NULL), 1);
        scratch_destroy(&s);
    }
}

static void gives_the_name_in_every_way(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        scratch s = scratch_create();
        faults.renameat2 = ways[i].renameat2;
        faults.linkat = ways[i].linkat;
        vx_status status = write_text(scratch_path(&s, "out"), "new", false);
        no_faults();
        if (status.code != VX_OK) fail_msg("%s: VX-%d %s", ways[i].says, (int)status.code, status.message);
        assert_true(scratch_holds(&s, "out", "new"));
        assert_int_equal(scratch_count(&s, NULL), 1);
        scratch_destroy(&s);
    }
}

static void replaces_when_asked(void **state)
{
    (void)state;
    scratch s = scratch_create();
    struct stat found;
    scratch_file(&s, "out", "old", 3);
    chmod(s.path, 0640);
    vx_output *o;
    assert_ok(vx_output_begin(&o, s.path, true));
    assert_ok(vx_output_write(o, "new", 3));
    assert_true(scratch_holds(&s, "out", "old")); // until the commit
    assert_ok(vx_output_commit(&o));
    assert_true(scratch_holds(&s, "out", "new"));
    assert_int_equal(stat(s.path, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0640);
    assert_ok(write_text(scratch_path(&s, "fresh"), "x", true)); // nothing to replace
    assert_int_equal(scratch_count(&s, NULL), 2);
    scratch_destroy(&s);
}

static void replaces_the_target_of_a_link(void **state)
{
    (void)state;
    scratch s = scratch_create();
    struct stat found;
    scratch_file(&s, "target", "old", 3);
    assert_int_equal(symlink("target", scratch_path(&s, "link")), 0);
    assert_ok(write_text(s.path, "new", true));
    assert_int_equal(lstat(s.path, &found), 0);
    assert_true(S_ISLNK(found.st_mode));
    assert_true(scratch_holds(&s, "target", "new"));
    scratch_destroy(&s);
}

static void replaces_regular_files_only(void **state)
{
    (void)state;
    scratch s = scratch_create();
    char folder[256];
    memcpy(folder, s.folder, sizeof folder);
    assert_int_equal(mkfifo(scratch_path(&s, "fifo"), 0600), 0);
    assert_int_equal(symlink("/dev/null", scratch_path(&s, "link")), 0);
    const struct {
        const char *path, *found;
    } cases[] = { { "/dev/null", "a device" }, { folder, "a folder" }, { scratch_path(&s, "link"), "a device" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        vx_status status = write_text(cases[i].path, "x", true);
        assert_int_equal(status.code, VX_ERR_OUTPUT);
        assert_mentions(status, cases[i].found);
    }
    assert_code(write_text(scratch_path(&s, "fifo"), "x", true), VX_ERR_OUTPUT);
    assert_int_equal(scratch_count(&s, NULL), 2);
    scratch_destroy(&s);
}

static void refuses_what_is_no_file_name(void **state)
{
    (void)state;
    static const char *const names[] = { "", ".", "..", "folder/", "/" };
    scratch s = scratch_create();
    vx_output *o;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) assert_code(vx_output_begin(&o, names[i], true), VX_ERR_OUTPUT);
    vx_status status = vx_output_begin(&o, scratch_path(&s, "missing/out"), false);
    assert_int_equal(status.code, VX_ERR_OUTPUT);
    assert_mentions(status, "missing'");
    scratch_file(&s, "plain", "", 0);
    assert_code(vx_output_begin(&o, scratch_path(&s, "plain/out"), false), VX_ERR_OUTPUT);
    scratch_destroy(&s);
}

static void shortens_long_names_for_the_temporary_file_only(void **state)
{
    (void)state;
    scratch s = scratch_create();
    char name[NAME_MAX + 2], last[256];
    for (int size = NAME_MAX - 40; size <= NAME_MAX; size++) {
        memset(name, 'n', sizeof name);
        for (int i = size - 3; i >= 3; i -= 3) memcpy(name + i, "\xE6\x97\xA5", 3); // every cut meets a character
        name[size] = 0;
        vx_output *o;
        assert_ok(vx_output_begin(&o, scratch_path(&s, name), false));
        assert_int_equal(scratch_count(&s, last), 1);
        assert_true(vx_utf8_valid(last, strlen(last), NULL));
        assert_true(vx_has_suffix(last, ".part"));
        assert_ok(vx_output_commit(&o));
        assert_int_equal(scratch_count(&s, last), 1);
        assert_string_equal(last, name);
        unlink(scratch_path(&s, name));
    }
    memset(name, 'n', NAME_MAX + 1);
    name[NAME_MAX + 1] = 0;
    vx_output *o;
    assert_code(vx_output_begin(&o, scratch_path(&s, name), false), VX_ERR_OUTPUT);
    assert_int_equal(scratch_count(&s, NULL), 0);
    scratch_destroy(&s);
}

static void opens_many_outputs_of_one_name(void **state)
{
    (void)state;
    scratch s = scratch_create();
    static vx_output *all[256];
    vx_output *more;
    for (int i = 0; i < 256; i++) assert_ok(vx_output_begin(&all[i], scratch_path(&s, "out"), false));
    assert_int_equal(scratch_count(&s, NULL), 256);
    assert_code(vx_output_begin(&more, s.path, false), VX_ERR_OUTPUT);
    assert_ok(vx_output_commit(&all[0]));
    assert_code(vx_output_commit(&all[1]), VX_ERR_OUTPUT_EXISTS); // the first keeps the name
    for (int i = 2; i < 256; i++) vx_output_discard(&all[i]);
    assert_int_equal(scratch_count(&s, NULL), 1);
    scratch_destroy(&s);
}

// ---- Disks and folders that fail ----

static void reports_failing_syncs(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        bool folder, replace;
        int error;
        vx_code want;
        const char *left;
    } cases[] = {
        { "a file that cannot be synced is removed", false, false, EIO, VX_ERR_OUTPUT, NULL },
        { "a full disk noticed at sync", false, false, ENOSPC, VX_ERR_STORAGE_FULL, NULL },
        { "a file that cannot be synced does not replace", false, true, EIO, VX_ERR_OUTPUT, "old" },
        { "a folder that cannot be synced", true, false, EIO, VX_ERR_OUTPUT, NULL },
        { "what was replaced cannot come back", true, true, EIO, VX_ERR_OUTPUT, "new" },
        { "a filesystem that syncs no folders", true, false, EINVAL, VX_OK, "new" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scratch s = scratch_create();
        scratch_path(&s, "out");
        if (cases[i].replace) scratch_file(&s, "out", "old", 3);
        *(cases[i].folder ? &faults.fsync_folder : &faults.fsync_file) = cases[i].error;
        vx_status status = write_text(s.path, "new", cases[i].replace);
        no_faults();
        if (status.code != cases[i].want) fail_msg("%s: VX-%d %s", cases[i].says, (int)status.code, status.message);
        assert_int_equal(scratch_count(&s, NULL), cases[i].left != NULL);
        if (cases[i].left) assert_true(scratch_holds(&s, "out", cases[i].left));
        scratch_destroy(&s);
    }
}

static void says_when_the_folder_vanished(void **state)
{
    (void)state;
    scratch s = scratch_create();
    char folder[600], moved[600];
    vx_output *o;
    snprintf(folder, sizeof folder, "%s", scratch_path(&s, "folder"));
    snprintf(moved, sizeof moved, "%s", scratch_path(&s, "moved"));
    for (int round = 0; round < 3; round++) {
        assert_int_equal(mkdir(folder, 0700), 0);
        assert_ok(vx_output_begin(&o, scratch_path(&s, "folder/out"), round == 2));
        assert_ok(vx_output_write(o, "x", 1));
        if (round == 0) {
            unlink(vx_output_temporary(o));
            assert_int_equal(rmdir(folder), 0);
        } else {
            assert_int_equal(rename(folder, moved), 0);
            if (round == 2) assert_int_equal(mkdir(folder, 0700), 0);
        }
        vx_status status = vx_output_commit(&o);
        assert_int_equal(status.code, VX_ERR_OUTPUT);
        assert_mentions(status, folder);
        // The temporary file is gone from where the folder went: it is empty.
        if (round > 0) assert_int_equal(rmdir(moved), 0);
        rmdir(folder);
    }
    scratch_destroy(&s);
}

static void says_when_its_file_vanished(void **state)
{
    (void)state;
    for (int replace = 0; replace < 2; replace++) {
        scratch s = scratch_create();
        vx_output *o;
        assert_ok(vx_output_begin(&o, scratch_path(&s, "out"), replace));
        unlink(vx_output_temporary(o));
        vx_status status = vx_output_commit(&o);
        assert_int_equal(status.code, VX_ERR_OUTPUT);
        assert_mentions(status, ".part");
        assert_int_equal(scratch_count(&s, NULL), 0);
        scratch_destroy(&s);
    }
}

static void says_when_the_folder_is_read_only(void **state)
{
    (void)state;
    scratch s = scratch_create();
    bool root = geteuid() == 0;
    vx_output *o;
    chmod(s.folder, 0555);
    if (root && seteuid(65534) != 0) return; // root may write anywhere
    vx_status status = vx_output_begin(&o, scratch_path(&s, "out"), false);
    if (root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(status.code, VX_ERR_OUTPUT);
    assert_mentions(status, s.folder);
    chmod(s.folder, 0755);
    scratch_destroy(&s);
}

static void says_when_a_file_grows_too_large(void **state)
{
    (void)state;
    scratch s = scratch_create();
    struct rlimit before, small;
    char bytes[8192] = { 0 };
    vx_output *o;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){ .rlim_cur = 5000, .rlim_max = before.rlim_max };
    assert_ok(vx_output_begin(&o, scratch_path(&s, "out"), false));
    setrlimit(RLIMIT_FSIZE, &small);
    vx_status status = vx_output_write(o, bytes, sizeof bytes);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status.code, VX_ERR_STORAGE_FULL);
    assert_mentions(status, s.path);
    vx_output_discard(&o);
    assert_int_equal(scratch_count(&s, NULL), 0);
    scratch_destroy(&s);
}

// In a child with mounts of its own, which end with it. 42: the system allows no mounts.
static int fill_small_disk(scratch *s)
{
    static char bytes[1 << 20];
    vx_output *o;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return 42;
    if (mount("tmpfs", s->folder, "tmpfs", 0, "size=256k") != 0) return 42;
    if (vx_output_begin(&o, scratch_path(s, "out"), false).code != VX_OK) return 1;
    vx_status status = vx_output_write(o, bytes, sizeof bytes);
    if (status.code != VX_ERR_STORAGE_FULL || !strstr(status.message, s->path)) return 2;
    vx_output_discard(&o);
    return scratch_count(s, NULL) == 0 ? 0 : 3;
}

static void says_when_the_disk_is_full(void **state)
{
    (void)state;
    scratch s = scratch_create();
    int status;
    pid_t pid = fork();
    if (pid == 0) _exit(fill_small_disk(&s));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    scratch_destroy(&s);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 42) {
        print_message("skipped: no mounts here\n");
        skip();
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void gives_memory_back_when_it_runs_out(void **state)
{
    (void)state;
    scratch s = scratch_create();
    scratch_file(&s, "target", "old", 3);
    assert_int_equal(symlink("target", scratch_path(&s, "link")), 0);
    for (int persistent = 0; persistent < 2; persistent++)
        for (int k = 1, hit = 1; hit; k++) {
            vx_fault_arm(k, persistent);
            vx_status status = write_text(s.path, "new", true);
            hit = vx_fault_disarm();
            assert_int_equal(status.code, hit ? VX_ERR_MEMORY : VX_OK);
            assert_int_equal(scratch_count(&s, NULL), 2);
        }
    scratch_destroy(&s);
}

// ---- Signals ----

static void discard_and_leave(int number)
{
    vx_output_discard_all_on_signal();
    _exit(128 + number);
}

static void removes_everything_on_a_second_signal(void **state)
{
    (void)state;
    scratch s = scratch_create();
    char last[256];
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        vx_output *a, *b, *c;
        signal(SIGTERM, discard_and_leave);
        if (vx_output_begin(&a, scratch_path(&s, "a"), false).code != VX_OK) _exit(1);
        if (vx_output_begin(&b, scratch_path(&s, "b"), false).code != VX_OK) _exit(2);
        if (vx_output_begin(&c, scratch_path(&s, "c"), false).code != VX_OK) _exit(3);
        if (vx_output_commit(&b).code != VX_OK) _exit(4);
        if (chdir("/") != 0) _exit(5); // relative names would lead elsewhere
        raise(SIGTERM);
        _exit(6);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 128 + SIGTERM);
    assert_int_equal(scratch_count(&s, last), 1);
    assert_string_equal(last, "b");
    scratch_destroy(&s);
}

static void leaves_the_temporary_file_at_most_when_killed(void **state)
{
    (void)state;
    scratch s = scratch_create();
    char last[256];
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        vx_output *o;
        if (vx_output_begin(&o, scratch_path(&s, "out"), false).code != VX_OK) _exit(1);
        if (vx_output_write(o, "half", 4).code != VX_OK) _exit(2);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(scratch_count(&s, last), 1);
    assert_true(vx_has_prefix(last, ".out.vortex-"));
    assert_ok(write_text(scratch_path(&s, "out"), "whole", false)); // and is in nobody's way
    scratch_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appears_whole_on_commit),
        cmocka_unit_test(leaves_nothing_when_discarded),
        cmocka_unit_test(writes_in_the_present_folder),
        cmocka_unit_test(survives_interruptions_and_short_writes),
        cmocka_unit_test(does_not_touch_an_existing_file),
        cmocka_unit_test(keeps_a_file_that_took_the_name_meanwhile),
        cmocka_unit_test(gives_the_name_in_every_way),
        cmocka_unit_test(replaces_when_asked),
        cmocka_unit_test(replaces_the_target_of_a_link),
        cmocka_unit_test(replaces_regular_files_only),
        cmocka_unit_test(refuses_what_is_no_file_name),
        cmocka_unit_test(shortens_long_names_for_the_temporary_file_only),
        cmocka_unit_test(opens_many_outputs_of_one_name),
        cmocka_unit_test(reports_failing_syncs),
        cmocka_unit_test(says_when_the_folder_vanished),
        cmocka_unit_test(says_when_its_file_vanished),
        cmocka_unit_test(says_when_the_folder_is_read_only),
        cmocka_unit_test(says_when_a_file_grows_too_large),
        cmocka_unit_test(says_when_the_disk_is_full),
        cmocka_unit_test(gives_memory_back_when_it_runs_out),
        cmocka_unit_test(removes_everything_on_a_second_signal),
        cmocka_unit_test(leaves_the_temporary_file_at_most_when_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
