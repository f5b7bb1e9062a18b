// A folder for the files of one test, removed with everything in it.
#ifndef VX_TESTS_BASE_SCRATCH_H
#define VX_TESTS_BASE_SCRATCH_H

#include "testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct scratch {
    char folder[256];
    char path[600]; // of the last scratch_path
} scratch;

static inline scratch scratch_create(void)
{
    const char *base = getenv("TMPDIR");
    scratch s = { 0 };
    snprintf(s.folder, sizeof s.folder, "%s/vortex-test-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(s.folder)) fail_msg("cannot create %s", s.folder);
    return s;
}

static inline int scratch_remove_one(const char *path, const struct stat *found, int type, struct FTW *walk)
{
    (void)found, (void)type, (void)walk;
    return remove(path);
}

static inline void scratch_destroy(scratch *s)
{
    nftw(s->folder, scratch_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static inline const char *scratch_path(scratch *s, const char *name)
{
    snprintf(s->path, sizeof s->path, "%s/%s", s->folder, name);
    return s->path;
}

// Writes a file and gives its path.
static inline const char *scratch_file(scratch *s, const char *name, const void *bytes, size_t size)
{
    FILE *f = fopen(scratch_path(s, name), "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f) != 0) fail_msg("cannot write %s", s->path);
    return s->path;
}

// How many names the folder holds, and the last of them.
static inline int scratch_count(const scratch *s, char last[256])
{
    DIR *folder = opendir(s->folder);
    int count = 0;
    for (struct dirent *e; folder && (e = readdir(folder));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (last) snprintf(last, 256, "%s", e->d_name);
        count++;
    }
    if (folder) closedir(folder);
    return count;
}

static inline bool scratch_holds(scratch *s, const char *name, const char *text)
{
    char found[256] = { 0 };
    FILE *f = fopen(scratch_path(s, name), "rb");
    if (!f) return false;
    size_t size = fread(found, 1, sizeof found - 1, f);
    fclose(f);
    return size == strlen(text) && memcmp(found, text, size) == 0;
}

#define assert_mentions(status, part)                                                                          \
    do {                                                                                                       \
        if (!strstr((status).message, (part))) fail_msg("'%s' does not mention '%s'", (status).message, part); \
    } while (0)

#endif
