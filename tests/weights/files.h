// Files that tests make: a folder of their own, safetensors files from a header's text, trees from tables.
#ifndef VX_TEST_FILES_H
#define VX_TEST_FILES_H

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "testing.h"

static char folder[64]; // made by make_folder, removed with all in it by remove_folder

static inline int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/vortex-weights-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_one(const char *path, const struct stat *s, int type, struct FTW *where)
{
    (void)s, (void)type, (void)where;
    return remove(path);
}

static inline int remove_folder(void **state)
{
    (void)state;
    return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

// Path below the folder, in one of a few static buffers.
static inline const char *at(const char *name)
{
    static char paths[8][512];
    static int next;
    char *path = paths[next = (next + 1) % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

// Writes a file and the folders above it.
static inline const char *put(const char *name, const void *bytes, size_t size)
{
    const char *path = at(name);
    char above[512];
    for (const char *p = path + strlen(folder) + 1; (p = strchr(p, '/')); p++) {
        snprintf(above, sizeof above, "%.*s", (int)(p - path), path);
        mkdir(above, 0777);
    }
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    return path;
}

static inline const char *put_text(const char *name, const char *text)
{
    return put(name, text, strlen(text));
}

static inline void put_link(const char *name, const char *target)
{
    assert_int_equal(symlink(target, at(name)), 0);
}

// [u64 size][header][data bytes 0, 1, 2, ...], malloc'd.
static inline unsigned char *container(const char *header, size_t header_size, size_t data, size_t *size)
{
    *size = 8 + header_size + data;
    unsigned char *all = malloc(*size);
    assert_non_null(all);
    for (int i = 0; i < 8; i++) all[i] = (unsigned char)((uint64_t)header_size >> 8 * i);
    memcpy(all + 8, header, header_size);
    for (size_t i = 0; i < data; i++) all[8 + header_size + i] = (unsigned char)i;
    return all;
}

static inline const char *put_container(const char *name, const char *header, size_t data)
{
    size_t size;
    unsigned char *all = container(header, strlen(header), data, &size);
    const char *path = put(name, all, size);
    free(all);
    return path;
}

#define assert_says(status, part)                                                                      \
    do {                                                                                               \
        vx_status said_ = (status);                                                                    \
        if (!strstr(said_.message, (part))) fail_msg("'%s' does not say '%s'", said_.message, (part)); \
    } while (0)

#endif
