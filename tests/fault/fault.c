// A library to preload: makes one chosen call of the process fail, run short, or be its last.
//
//   VORTEX_FAULT         CALL:K[+]:ACTION   from 1; with + that one and all later ones
//                        CALL    open openat read pread write fsync rename link unlink ftruncate mmap malloc, or any: every
//                                one of them but malloc
//                        ACTION  EIO, ENOSPC, ... (the call fails so), short (half the bytes), kill (SIGKILL, before the call)
//   VORTEX_FAULT_PATH    only calls on files whose path holds this text; for malloc: only calls from such a program or
//                        library; alternatives are separated by |
//   VORTEX_FAULT_COUNTS  a file for the numbers of calls ("write 17"), one a line, and "hits N", written at exit
//
// rename counts renameat and renameat2; link, unlink, open and openat their relatives. Reads and writes of the C library
// itself (stdio) do not come through here. mmap counts anonymous maps (path "anonymous") and maps of files.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OPEN, OPENAT, READ, PREAD, WRITE, FSYNC, RENAME, LINK, UNLINK, FTRUNCATE, MMAP, MALLOC, CALLS };
static const char *const names[CALLS] = { "open",   "openat", "read",   "pread",     "write", "fsync",
                                          "rename", "link",   "unlink", "ftruncate", "mmap",  "malloc" };
enum { NONE = -1, SHORT = -1, KILL = -2 }; // actions; else an errno

static int target = NONE; // index of a call, or CALLS for any
static long long wanted;
static bool for_ever, ready;
static int action;
static char path_filter[256], counts_file[PATH_MAX];
static atomic_llong count[CALLS], all, hits;

static const struct {
    const char *name;
    int value;
} errors[] = { { "EIO", EIO },       { "ENOSPC", ENOSPC }, { "EINTR", EINTR },   { "EACCES", EACCES }, { "EROFS", EROFS },
               { "EMFILE", EMFILE }, { "ENOMEM", ENOMEM }, { "EDQUOT", EDQUOT }, { "EINVAL", EINVAL }, { "ENOENT", ENOENT },
               { "EAGAIN", EAGAIN }, { "EPERM", EPERM },   { "short", SHORT },   { "kill", KILL } };

static void fail_setup(const char *what)
{
    fprintf(stderr, "fault: %s is not understood\n", what);
    _exit(99);
}

static void parse(const char *text)
{
    char call[16], act[16], plus = 0;
    if (sscanf(text, "%15[a-z]:%lld+:%15[A-Za-z]", call, &wanted, act) == 3) plus = '+';
    else if (sscanf(text, "%15[a-z]:%lld:%15[A-Za-z]", call, &wanted, act) != 3) fail_setup(text);
    for (int i = 0; i < CALLS; i++)
        if (!strcmp(call, names[i])) target = i;
    if (!strcmp(call, "any")) target = CALLS;
    for_ever = plus == '+';
    bool known = false;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (!strcmp(act, errors[i].name)) action = errors[i].value, known = true;
    if (target == NONE || !known || wanted < 1) fail_setup(text);
}

static void report(void)
{
    ready = false; // what follows is ours
    FILE *f = fopen(counts_file, "w");
    if (!f) return;
    for (int i = 0; i < CALLS; i++) fprintf(f, "%s %lld\n", names[i], atomic_load(&count[i]));
    fprintf(f, "any %lld\nhits %lld\n", atomic_load(&all), atomic_load(&hits));
    fclose(f);
}

__attribute__((constructor)) static void begin(void)
{
    const char *fault = getenv("VORTEX_FAULT"), *path = getenv("VORTEX_FAULT_PATH"), *counts = getenv("VORTEX_FAULT_COUNTS");
    if (path) snprintf(path_filter, sizeof path_filter, "%s", path);
    if (fault && *fault) parse(fault);
    if (counts) snprintf(counts_file, sizeof counts_file, "%s", counts);
    if (counts) atexit(report);
    ready = true;
}

static bool matches(const char *path)
{
    if (!path_filter[0]) return true;
    if (!path) return false;
    for (const char *p = path_filter; p;) {
        const char *bar = strchr(p, '|');
        size_t n = bar ? (size_t)(bar - p) : strlen(p);
        for (const char *s = path; *s; s++)
            if (!strncmp(s, p, n)) return true;
        p = bar ? bar + 1 : NULL;
    }
    return false;
}

// 0: go on; SHORT: with half the bytes; else the errno to fail with.
static int strike(int call)
{
    long long n = atomic_fetch_add(&count[call], 1) + 1, total = call == MALLOC ? 0 : atomic_fetch_add(&all, 1) + 1;
    if (target == CALLS && call != MALLOC) n = total;
    else if (target != call) return 0;
    if (n < wanted || (n > wanted && !for_ever)) return 0;
    atomic_fetch_add(&hits, 1);
    if (action == KILL) syscall(SYS_kill, getpid(), SIGKILL);
    return action;
}

static const char *path_of(int fd, char buffer[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, buffer, PATH_MAX - 1);
    buffer[n > 0 ? n : 0] = 0;
    return buffer;
}

// The call on `path`, or on what `fd` is open on.
static int check(int call, const char *path, int fd)
{
    char buffer[PATH_MAX];
    if (!ready) return 0;
    int saved = errno;
    bool ours = !path_filter[0] || matches(path ? path : path_of(fd, buffer));
    errno = saved;
    return ours ? strike(call) : 0;
}

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name)
{
    void *f = dlsym(RTLD_NEXT, name);
    if (!f) _exit(98);
    return f;
}

#define FAIL(call, path, fd)               \
    do {                                   \
        int error = check(call, path, fd); \
        if (error > 0) {                   \
            errno = error;                 \
            return -1;                     \
        }                                  \
    } while (0)

#define MODE_OF(flags, mode)               \
    mode_t mode = 0;                       \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list list;                      \
        va_start(list, flags);             \
        mode = va_arg(list, mode_t);       \
        va_end(list);                      \
    }

int open(const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    FAIL(OPEN, path, -1);
    return REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    FAIL(OPEN, path, -1);
    return REAL(open64)(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    FAIL(OPENAT, path, -1);
    return REAL(openat)(folder, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    FAIL(OPENAT, path, -1);
    return REAL(openat64)(folder, path, flags, mode);
}

// Fortified callers.
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int folder, const char *path, int flags);
int __open_2(const char *path, int flags)
{
    return open(path, flags);
}
int __open64_2(const char *path, int flags)
{
    return open64(path, flags);
}
int __openat_2(int folder, const char *path, int flags)
{
    return openat(folder, path, flags);
}

static size_t shortened(int call, int fd, size_t size, int *error)
{
    *error = check(call, NULL, fd);
    return *error == SHORT && size > 1 ? size / 2 : size;
}

#define COUNTED(call, fd, size)               \
    int error;                                \
    size = shortened(call, fd, size, &error); \
    if (error > 0) {                          \
        errno = error;                        \
        return -1;                            \
    }

ssize_t read(int fd, void *to, size_t size)
{
    COUNTED(READ, fd, size)
    return REAL(read)(fd, to, size);
}

ssize_t pread(int fd, void *to, size_t size, off_t at)
{
    COUNTED(PREAD, fd, size)
    return REAL(pread)(fd, to, size, at);
}

ssize_t pread64(int fd, void *to, size_t size, off64_t at)
{
    COUNTED(PREAD, fd, size)
    return REAL(pread64)(fd, to, size, at);
}

ssize_t write(int fd, const void *from, size_t size)
{
    COUNTED(WRITE, fd, size)
    return REAL(write)(fd, from, size);
}

int fsync(int fd)
{
    FAIL(FSYNC, NULL, fd);
    return REAL(fsync)(fd);
}

int rename(const char *from, const char *to)
{
    FAIL(RENAME, to, -1);
    return REAL(rename)(from, to);
}

int renameat(int a, const char *from, int b, const char *to)
{
    FAIL(RENAME, to, -1);
    return REAL(renameat)(a, from, b, to);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    FAIL(RENAME, to, -1);
    return REAL(renameat2)(a, from, b, to, flags);
}

int link(const char *from, const char *to)
{
    FAIL(LINK, to, -1);
    return REAL(link)(from, to);
}

int linkat(int a, const char *from, int b, const char *to, int flags)
{
    FAIL(LINK, to, -1);
    return REAL(linkat)(a, from, b, to, flags);
}

int unlink(const char *path)
{
    FAIL(UNLINK, path, -1);
    return REAL(unlink)(path);
}

int unlinkat(int folder, const char *path, int flags)
{
    FAIL(UNLINK, path, -1);
    return REAL(unlinkat)(folder, path, flags);
}

int ftruncate(int fd, off_t size)
{
    FAIL(FTRUNCATE, NULL, fd);
    return REAL(ftruncate)(fd, size);
}

static int map_error(int flags, int fd)
{
    int error = flags & MAP_ANONYMOUS ? check(MMAP, "anonymous", -1) : check(MMAP, NULL, fd);
    if (error > 0) errno = error;
    return error > 0;
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (map_error(flags, fd)) return MAP_FAILED;
    return REAL(mmap)(at, size, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t offset)
{
    if (map_error(flags, fd)) return MAP_FAILED;
    return REAL(mmap64)(at, size, protection, flags, fd, offset);
}

// ---- memory: glibc's own names, because dlsym may allocate ----
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static bool no_memory(const void *caller)
{
    if (!ready) return false;
    Dl_info from;
    if (path_filter[0] && target == MALLOC && (!dladdr(caller, &from) || !from.dli_fname || !matches(from.dli_fname)))
        return false;
    if (strike(MALLOC) <= 0) return false;
    errno = ENOMEM;
    return true;
}
#define NO_MEMORY no_memory(__builtin_return_address(0))

void *malloc(size_t size)
{
    return NO_MEMORY ? NULL : __libc_malloc(size);
}
void *calloc(size_t n, size_t size)
{
    return NO_MEMORY ? NULL : __libc_calloc(n, size);
}
void *realloc(void *p, size_t size)
{
    return NO_MEMORY ? NULL : __libc_realloc(p, size);
}
void *memalign(size_t alignment, size_t size)
{
    return NO_MEMORY ? NULL : __libc_memalign(alignment, size);
}
void *aligned_alloc(size_t alignment, size_t size)
{
    return NO_MEMORY ? NULL : __libc_memalign(alignment, size);
}
int posix_memalign(void **out, size_t alignment, size_t size)
{
    void *p = NO_MEMORY ? NULL : __libc_memalign(alignment, size);
    if (p) *out = p;
    return p ? 0 : ENOMEM;
}
