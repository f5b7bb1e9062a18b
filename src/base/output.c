// Outputs that appear complete or not at all.
//
//   begin    .NAME.vortex-PID-N.part is created (O_EXCL) in the folder of the final name      temporary
//   write    through vx_output_fd or vx_output_write                                          temporary, growing
//   commit   fsync(file), close, give the final name, fsync(folder)                           final
//   discard  unlink                                                                           nothing
//
// Every step names files relative to a descriptor of the folder, so that neither chdir() nor a renamed folder sends a
// removal elsewhere, and the signal handler needs a descriptor and a short name only.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/file_kind.h"
#include "base/str.h"

enum {
    MOST_OUTPUTS = 256,
    MOST_TRIES = 1000, // names taken by what killed processes with our number left behind
};

typedef enum { ENTRY_FREE, ENTRY_CLAIMED, ENTRY_OPEN } entry_state;

// What a signal handler may need: no pointers that could be freed under it.
typedef struct entry {
    atomic_int state; // entry_state
    int folder;
    char name[NAME_MAX + 1];
} entry;

struct vx_output {
    char *path;      // final
    char *folder;    // as in path, "." if it has none
    char *temporary; // path of the temporary file
    int fd, folder_fd;
    bool replace;
    entry *entry;
};

static entry entries[MOST_OUTPUTS]; // a signal handler has no context
static atomic_uint_fast64_t serial;

static entry *claim(void)
{
    for (int i = 0; i < MOST_OUTPUTS; i++) {
        int expected = ENTRY_FREE;
        if (atomic_compare_exchange_strong(&entries[i].state, &expected, ENTRY_CLAIMED)) return &entries[i];
    }
    return NULL;
}

void vx_output_discard_all_on_signal(void)
{
    int saved = errno;
    for (int i = 0; i < MOST_OUTPUTS; i++)
        if (atomic_load(&entries[i].state) == ENTRY_OPEN) unlinkat(entries[i].folder, entries[i].name, 0);
    errno = saved;
}

// Closes and frees; the temporary file is gone or has its final name.
static void forget(vx_output **out)
{
    vx_output *o = *out;
    if (o->entry) atomic_store(&o->entry->state, ENTRY_FREE);
    if (o->fd >= 0) close(o->fd);
    if (o->folder_fd >= 0) close(o->folder_fd);
    vx_free(o->path);
    vx_free(o->folder);
    vx_free(o->temporary);
    vx_free(o);
    *out = NULL;
}

void vx_output_discard(vx_output **out)
{
    if (!*out) return;
    if ((*out)->temporary) unlinkat((*out)->folder_fd, (*out)->entry->name, 0);
    forget(out);
}

static vx_status exists(const char *path)
{
    return vx_fail_remedy(VX_ERR_OUTPUT_EXISTS, "choose another name, or allow it to be replaced", "'%s' exists already", path);
}

// Refuses what must not or cannot be replaced. A link is followed, so that its target is replaced and the link stays.
static vx_status check_target(char **resolved, const char *path, bool replace, mode_t *mode)
{
    *resolved = NULL;
    *mode = 0;
    struct stat found;
    const char *name = vx_path_name(path);
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return vx_fail(VX_ERR_OUTPUT, "'%s' is not the name of a file", path);
    if (lstat(path, &found) == 0) {
        if (!replace) return exists(path);
        if (S_ISLNK(found.st_mode) && stat(path, &found) == 0) {
            char *target = realpath(path, NULL);
            if (!target) return vx_fail_errno(VX_ERR_OUTPUT, errno, "cannot follow the link '%s'", path);
            *resolved = vx_strdup(target);
            free(target);
            VX_NEED_MEMORY(*resolved, path);
        }
        // rename() would put a file in the place of /dev/null.
        if (!S_ISREG(found.st_mode) && !S_ISLNK(found.st_mode)) {
            vx_free(*resolved);
            *resolved = NULL;
            return vx_fail(VX_ERR_OUTPUT, "'%s' is %s, only a regular file can be replaced", path, vx_file_kind(found.st_mode));
        }
        if (S_ISREG(found.st_mode)) *mode = found.st_mode & 0777;
    } else if (errno != ENOENT) return vx_fail_errno(VX_ERR_OUTPUT, errno, "cannot write '%s'", path);
    if (!*resolved) *resolved = vx_strdup(path);
    VX_NEED_MEMORY(*resolved, path);
    return vx_ok();
}

static vx_status open_folder(vx_output *o)
{
    size_t size = (size_t)(vx_path_name(o->path) - o->path);
    while (size > 1 && o->path[size - 1] == '/') size--;
    o->folder = size > 0 ? vx_strndup(o->path, size) : vx_strdup(".");
    VX_NEED_MEMORY(o->folder, o->path);
    o->folder_fd = open(o->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (o->folder_fd < 0) return vx_fail_errno(VX_ERR_OUTPUT, errno, "cannot write to folder '%s'", o->folder);
    return vx_ok();
}

// The final name is cut, at a character, when what is put around it would not fit.
static void temporary_name(char out[NAME_MAX + 1], const char *name)
{
    char tail[64];
    int tail_size =
        snprintf(tail, sizeof tail, ".vortex-%ld-%llu.part", (long)getpid(), (unsigned long long)atomic_fetch_add(&serial, 1));
    size_t size = strlen(name), room = (size_t)(NAME_MAX - 1 - tail_size);
    if (size > room) {
        size = room;
        while (size > 0 && ((unsigned char)name[size] & 0xC0) == 0x80) size--;
    }
    snprintf(out, NAME_MAX + 1, ".%.*s%s", (int)size, name, tail);
}

static vx_status create_temporary(vx_output *o, mode_t mode)
{
    const char *name = vx_path_name(o->path);
    if (strlen(name) > NAME_MAX) return vx_fail_errno(VX_ERR_OUTPUT, ENAMETOOLONG, "cannot write '%s'", o->path);
    o->entry = claim();
    if (!o->entry)
        return vx_fail(VX_ERR_OUTPUT, "cannot write '%s': %d outputs are open, the most at a time", o->path, MOST_OUTPUTS);
    o->entry->folder = o->folder_fd;
    for (int i = 0; i < MOST_TRIES && o->fd < 0; i++) {
        temporary_name(o->entry->name, name);
        o->fd = openat(o->folder_fd, o->entry->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (o->fd < 0 && errno != EEXIST) break;
    }
    if (o->fd < 0) return vx_fail_errno(VX_ERR_OUTPUT, errno, "cannot create a file in folder '%s'", o->folder);
    atomic_store(&o->entry->state, ENTRY_OPEN);
    o->temporary = vx_path_join(o->folder, o->entry->name);
    if (!o->temporary) {
        unlinkat(o->folder_fd, o->entry->name, 0);
        return vx_no_memory("to write '%s'", o->path);
    }
    // Whoever kept the replaced file to themselves keeps the new one so. A filesystem without permissions may refuse.
    if (mode) (void)fchmod(o->fd, mode);
    return vx_ok();
}

vx_status vx_output_begin(vx_output **out, const char *path, bool replace)
{
    *out = NULL;
    mode_t mode;
    vx_output *o = vx_alloc_array(1, sizeof *o);
    VX_NEED_MEMORY(o, path);
    o->fd = o->folder_fd = -1;
    o->replace = replace;
    vx_status s;
    VX_CATCH(s, fail, check_target(&o->path, path, replace, &mode));
    VX_CATCH(s, fail, open_folder(o));
    VX_CATCH(s, fail, create_temporary(o, mode));
    *out = o;
    return s;
fail:
    forget(&o);
    return s;
}

const char *vx_output_temporary(const vx_output *o)
{
    return o->temporary;
}

int vx_output_fd(const vx_output *o)
{
    return o->fd;
}

vx_status vx_output_write(vx_output *o, const void *bytes, size_t size)
{
    const char *p = bytes;
    while (size > 0) {
        ssize_t wrote = write(o->fd, p, size);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return vx_fail_errno(VX_ERR_OUTPUT, errno, "cannot write '%s'", o->path);
        p += wrote;
        size -= (size_t)wrote;
    }
    return vx_ok();
}

// A folder that was removed, or moved and replaced, would take the file to where nobody looks.
static vx_status check_folder(const vx_output *o)
{
    struct stat held, named;
    if (fstat(o->folder_fd, &held) != 0 || stat(o->folder, &named) != 0)
        return vx_fail_errno(VX_ERR_OUTPUT, errno, "cannot write '%s': folder '%s' is gone", o->path, o->folder);
    if (held.st_dev != named.st_dev || held.st_ino != named.st_ino)
        return vx_fail(VX_ERR_OUTPUT, "cannot write '%s': folder '%s' was moved or replaced meanwhile", o->path, o->folder);
    return vx_ok();
}

static bool unsupported(int error)
{
    return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP || error == EPERM;
}

// Gives the final name unless it is taken: in one step where the filesystem can, else with a second link (which refuses a
// name that is taken), else (no links: FAT, some network filesystems) by looking first. 0 or errno.
static int name_if_free(const vx_output *o, const char *name)
{
    int folder = o->folder_fd;
    const char *temporary = o->entry->name;
    if (renameat2(folder, temporary, folder, name, RENAME_NOREPLACE) == 0) return 0;
    if (!unsupported(errno)) return errno;
    if (linkat(folder, temporary, folder, name, 0) == 0) {
        unlinkat(folder, temporary, 0);
        return 0;
    }
    if (!unsupported(errno)) return errno;
    struct stat found;
    if (fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) == 0) return EEXIST;
    return renameat(folder, temporary, folder, name) == 0 ? 0 : errno;
}

static vx_status finish_file(vx_output *o)
{
    if (fsync(o->fd) != 0) return vx_fail_errno(VX_ERR_OUTPUT, errno, "cannot write '%s' to its disk", o->path);
    int fd = o->fd;
    o->fd = -1;
    if (close(fd) != 0 && errno != EINTR) return vx_fail_errno(VX_ERR_OUTPUT, errno, "cannot write '%s' to its disk", o->path);
    return check_folder(o);
}

static vx_status give_name(const vx_output *o)
{
    const char *name = vx_path_name(o->path);
    int error;
    if (o->replace) error = renameat(o->folder_fd, o->entry->name, o->folder_fd, name) == 0 ? 0 : errno;
    else error = name_if_free(o, name);
    if (error == EEXIST && !o->replace) return exists(o->path);
    if (error == ENOENT)
        return vx_fail(VX_ERR_OUTPUT, "cannot write '%s': its temporary file '%s' is gone", o->path, o->temporary);
    if (error) return vx_fail_errno(VX_ERR_OUTPUT, error, "cannot give '%s' its name", o->path);
    return vx_ok();
}

// A name that is not on the disk is no finished output. What was replaced cannot come back, so then the new file stays.
static vx_status finish_folder(const vx_output *o)
{
    if (fsync(o->folder_fd) == 0 || errno == EINVAL || errno == EOPNOTSUPP) return vx_ok(); // cannot sync folders
    vx_status s = vx_fail_errno(VX_ERR_OUTPUT, errno, "cannot write folder '%s' to its disk", o->folder);
    if (!o->replace) unlinkat(o->folder_fd, vx_path_name(o->path), 0);
    return s;
}

vx_status vx_output_commit(vx_output **out)
{
    vx_output *o = *out;
    vx_status s = finish_file(o);
    if (s.code == VX_OK) s = give_name(o);
    if (s.code != VX_OK) {
        vx_output_discard(out);
        return s;
    }
    s = finish_folder(o);
    forget(out);
    return s;
}
