// Whole small files.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/file_kind.h"
#include "base/str.h"

// A pipe does not say how much it holds.
enum { FIRST_BYTES = 4096 };

static vx_status too_large(const char *name, size_t limit)
{
    char text[24];
    return vx_fail(VX_ERR_FILE_LIMIT, "%s is larger than %s, the most that is read of such a file", name,
                   vx_bytes_text(text, limit));
}

// Reads to the end; one byte beyond `limit` tells a file that is too large from one that just fits.
static vx_status read_all(int fd, char **text, size_t *size, size_t expected, size_t limit, vx_code code, const char *name)
{
    size_t capacity = expected < limit ? expected : limit;
    if (!vx_add_size(capacity, 2, &capacity)) return too_large(name, limit);
    char *data = vx_alloc(capacity);
    VX_NEED_MEMORY(data, name);
    size_t filled = 0;
    for (;;) {
        ssize_t got = read(fd, data + filled, capacity - 1 - filled);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            vx_status s = vx_fail_errno(code, errno, "cannot read %s", name);
            vx_free(data);
            return s;
        }
        if (got == 0) break;
        filled += (size_t)got;
        if (filled > limit) {
            vx_free(data);
            return too_large(name, limit);
        }
        if (filled < capacity - 1) continue;
        size_t larger;
        char *moved = vx_mul_size(capacity, 2, &larger) ? vx_realloc(data, larger) : NULL;
        if (!moved) {
            vx_free(data);
            return vx_no_memory("for %s", name);
        }
        data = moved;
        capacity = larger;
    }
    data[filled] = 0;
    *text = data;
    *size = filled;
    return vx_ok();
}

static vx_status read_path(char **text, size_t *size, const char *path, const char *name, size_t limit, vx_code code)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) return vx_fail_errno(code, errno, "cannot open %s", name);
    struct stat found;
    vx_status s;
    if (fstat(fd, &found) != 0) s = vx_fail_errno(code, errno, "cannot open %s", name);
    else if (S_ISDIR(found.st_mode)) s = vx_fail(code, "%s is %s, expected a file", name, vx_file_kind(found.st_mode));
    else if (S_ISREG(found.st_mode) && (uintmax_t)found.st_size > limit) s = too_large(name, limit);
    else s = read_all(fd, text, size, S_ISREG(found.st_mode) ? (size_t)found.st_size : FIRST_BYTES, limit, code, name);
    close(fd);
    return s;
}

vx_status vx_file_read(char **text, size_t *size, const char *path, size_t limit, vx_code code)
{
    *text = NULL;
    *size = 0;
    if (strcmp(path, "-") == 0) return read_all(STDIN_FILENO, text, size, FIRST_BYTES, limit, code, "standard input");
    vx_str name = { 0 };
    vx_str_print(&name, "'%s'", path);
    vx_status s = name.failed ? vx_no_memory("to read '%s'", path) : read_path(text, size, path, name.data, limit, code);
    vx_str_free(&name);
    return s;
}

bool vx_file_exists(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && !S_ISDIR(found.st_mode);
}

bool vx_folder_exists(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

bool vx_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

void vx_file_state(char out[VX_FILE_STATE], const char *path)
{
    struct stat f;
    out[0] = 0;
    if (stat(path, &f) == 0) // ctime: writing moves it, whatever copies the times of the original
        snprintf(out, VX_FILE_STATE, "%llx.%llx %llx %llx.%lx", (unsigned long long)f.st_dev, (unsigned long long)f.st_ino,
                 (unsigned long long)f.st_size, (unsigned long long)f.st_ctim.tv_sec, (unsigned long)f.st_ctim.tv_nsec);
}
