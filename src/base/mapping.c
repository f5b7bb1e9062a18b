// Files mapped for reading, and the guard against their shrinking.
//
// A page of a mapping that the file no longer covers raises SIGBUS when touched. The handler finds the mapping in a table of
// atomics, marks it and lays zero pages from the lost page to the mapping's end: one page only would cost a signal and a
// piece of the address space for each further page, and what lies behind a lost page of a shrunk file is lost too. The
// reader goes on over zeros until it asks vx_file_check.
//
// A table entry is claimed by its mapping, then: start, then end; released: end = 0 first. A reader that finds the same end
// before and after reading start has a pair that belongs together.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/file_kind.h"
#include "base/str.h"

enum { MOST_MAPPINGS = 256 };

typedef struct guard {
    atomic_bool used;
    atomic_uintptr_t start, end; // whole pages
    atomic_bool lost;
} guard;

struct vx_mapping {
    char *path;
    const uint8_t *data;
    size_t size;
    guard *guard; // NULL: empty file
};

// The handler has no argument through which it could reach a context, so these are the process's.
static guard guards[MOST_MAPPINGS];
static struct sigaction previous;
static uintptr_t page_size;
static int install_error;

static void pass_on(int number, siginfo_t *info, void *context)
{
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(number, info, context);
        return;
    }
    if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(number);
        return;
    }
    bool sent = info->si_code <= 0; // by kill() and the like, not by a fault
    if (sent && previous.sa_handler == SIG_IGN) return;
    // The default action is taken when the instruction faults again, or the repeated signal arrives, after we return.
    struct sigaction standard = { .sa_handler = SIG_DFL };
    sigaction(SIGBUS, &standard, NULL);
    if (sent) raise(number);
}

static bool cover(guard *g, uintptr_t address)
{
    uintptr_t end = atomic_load(&g->end), start = atomic_load(&g->start);
    if (end == 0 || address < start || address >= end || atomic_load(&g->end) != end) return false;
    uintptr_t page = address & ~(page_size - 1);
    atomic_store(&g->lost, true);
    // The bare system call: POSIX lists no mmap() for handlers, and sanitizers take the function for a write to the pages.
    // Read-only: a write would be a bug and must fault.
    long at = syscall(SYS_mmap, page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L);
    return at != -1;
}

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    bool ours = false;
    // BUS_ADRERR alone: memory failures (BUS_MCEERR_*) are not the file's.
    if (info->si_code == BUS_ADRERR)
        for (int i = 0; i < MOST_MAPPINGS && !ours; i++) ours = cover(&guards[i], (uintptr_t)info->si_addr);
    if (!ours) pass_on(number, info, context);
    errno = saved;
}

static void install(void)
{
    page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct sigaction mine = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    sigemptyset(&mine.sa_mask);
    // Asked for before installing: a signal that arrives in between must find it.
    if (sigaction(SIGBUS, NULL, &previous) != 0 || sigaction(SIGBUS, &mine, NULL) != 0) install_error = errno;
}

static guard *claim(const void *data, size_t size)
{
    for (int i = 0; i < MOST_MAPPINGS; i++) {
        bool expected = false;
        if (!atomic_compare_exchange_strong(&guards[i].used, &expected, true)) continue;
        atomic_store(&guards[i].lost, false);
        atomic_store(&guards[i].start, (uintptr_t)data);
        atomic_store(&guards[i].end, (uintptr_t)data + vx_align_up(size, page_size));
        return &guards[i];
    }
    return NULL;
}

static void release(guard *g)
{
    atomic_store(&g->end, 0);
    atomic_store(&g->used, false);
}

const char *vx_file_kind(mode_t mode)
{
    if (S_ISREG(mode)) return "a regular file";
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a FIFO";
    if (S_ISSOCK(mode)) return "a socket";
    if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
    return "neither file nor folder";
}

static vx_status expect_regular(const struct stat *found, const char *path, vx_code code)
{
    if (S_ISREG(found->st_mode)) return vx_ok();
    return vx_fail(code, "'%s' is %s, expected a regular file", path, vx_file_kind(found->st_mode));
}

// Looks before it opens, because opening a FIFO waits and opening a device may do something; and again afterwards, because
// the name may have changed hands.
static vx_status open_regular(int *fd, struct stat *found, const char *path, vx_code code)
{
    if (stat(path, found) != 0) return vx_fail_errno(code, errno, "cannot open '%s'", path);
    VX_TRY(expect_regular(found, path, code));
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*fd < 0) return vx_fail_errno(code, errno, "cannot open '%s'", path);
    vx_status s =
        fstat(*fd, found) == 0 ? expect_regular(found, path, code) : vx_fail_errno(code, errno, "cannot open '%s'", path);
    if (s.code != VX_OK) close(*fd);
    return s;
}

static vx_status map_pages(vx_mapping *m, int fd, vx_code code)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    if (install_error) return vx_fail_errno(VX_ERR_INTERNAL, install_error, "cannot guard mapped files against SIGBUS");
    void *data = mmap(NULL, m->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        char text[24];
        return vx_fail_errno(code, errno, "cannot map the %s of '%s'", vx_bytes_text(text, m->size), m->path);
    }
    m->guard = claim(data, m->size);
    if (!m->guard) {
        munmap(data, m->size);
        return vx_fail(VX_ERR_FILE_LIMIT, "cannot map '%s': %d files are mapped, the most at a time", m->path, MOST_MAPPINGS);
    }
    m->data = data;
    return vx_ok();
}

vx_status vx_file_map(vx_mapping **out, const char *path, vx_code code)
{
    *out = NULL;
    int fd = -1;
    struct stat found;
    VX_TRY(open_regular(&fd, &found, path, code));
    vx_status s = vx_ok();
    vx_mapping *m = vx_alloc_array(1, sizeof *m);
    char *copy = vx_strdup(path);
    if (!m || !copy) s = vx_no_memory("to open '%s'", path);
    else if ((uintmax_t)found.st_size > SIZE_MAX / 2)
        s = vx_fail(code, "'%s' is %jd bytes, too large to map", path, (intmax_t)found.st_size);
    else {
        *m = (vx_mapping){ .path = copy, .data = (const uint8_t *)"", .size = (size_t)found.st_size };
        if (m->size > 0) s = map_pages(m, fd, code); // mmap refuses to map nothing
    }
    close(fd);
    if (s.code == VX_OK) {
        *out = m;
        return s;
    }
    vx_free(copy);
    vx_free(m);
    return s;
}

void vx_file_unmap(vx_mapping **out)
{
    vx_mapping *m = *out;
    if (!m) return;
    if (m->guard) {
        release(m->guard);
        munmap((void *)(uintptr_t)m->data, m->size);
    }
    vx_free(m->path);
    vx_free(m);
    *out = NULL;
}

const uint8_t *vx_mapping_data(const vx_mapping *m)
{
    return m->data;
}

size_t vx_mapping_size(const vx_mapping *m)
{
    return m->size;
}

const char *vx_mapping_path(const vx_mapping *m)
{
    return m->path;
}

vx_status vx_file_check(const vx_mapping *m)
{
    if (!m->guard || !atomic_load(&m->guard->lost)) return vx_ok();
    struct stat now;
    if (stat(m->path, &now) == 0 && now.st_size >= 0 && (uintmax_t)now.st_size < m->size)
        return vx_fail_remedy(VX_ERR_FILE_CHANGED, "do not write to the file while it is in use; start again",
                              "'%s' shrank from %zu to %jd bytes while in use", m->path, m->size, (intmax_t)now.st_size);
    return vx_fail_remedy(VX_ERR_FILE_CHANGED, "check the disk and the file, then start again",
                          "a part of '%s' could no longer be read: the file changed, or its disk failed", m->path);
}

void vx_mapping_prefetch(const vx_mapping *m, size_t offset, size_t bytes)
{
    if (!m->guard || offset >= m->size) return;
    if (bytes > m->size - offset) bytes = m->size - offset;
    size_t start = offset & ~((size_t)page_size - 1);
    (void)madvise((void *)(uintptr_t)(m->data + start), offset + bytes - start, MADV_WILLNEED);
}
