// Tensors of a golden safetensors file for tests of a room that does not know the file format: a search in its header.
#ifndef VX_TESTS_SAMPLING_GOLDEN_H
#define VX_TESTS_SAMPLING_GOLDEN_H

#include <stdbool.h>

#include "testing.h"

typedef struct golden_file {
    uint8_t *bytes;
    uint64_t header;
} golden_file;

static inline void golden_open_path(golden_file *f, const char *path)
{
    FILE *in = fopen(path, "rb");
    if (!in) fail_msg("cannot open %s", path);
    fseek(in, 0, SEEK_END);
    const size_t size = (size_t)ftell(in);
    rewind(in);
    f->bytes = malloc(size);
    assert_true(fread(f->bytes, 1, size, in) == size);
    fclose(in);
    memcpy(&f->header, f->bytes, 8);
    assert_true(f->header + 8 < size);
}

// False, with a line, where there is no golden folder.
static inline bool golden_open(golden_file *f, const char *name)
{
    if (!golden_folder()) {
        print_message("skipped: VORTEX_GOLDEN_DATA is not set\n");
        return false;
    }
    char path[512];
    snprintf(path, sizeof path, "%s/expected/%s.safetensors", golden_folder(), name);
    golden_open_path(f, path);
    return true;
}

static inline void golden_close(golden_file *f)
{
    free(f->bytes);
}

// An f32 tensor; *count is its number of values. The header names each tensor once: "name":{...,"data_offsets":[a,b]}.
static inline const float *golden_f32(const golden_file *f, const char *name, int *count)
{
    char key[96];
    const int n = snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = memmem(f->bytes + 8, f->header, key, (size_t)n);
    unsigned long long begin, end;
    const char *offsets = at ? strstr(at, "\"data_offsets\":[") : NULL;
    if (!offsets || sscanf(offsets, "\"data_offsets\":[%llu,%llu]", &begin, &end) != 2) fail_msg("no tensor %s", name);
    *count = (int)((end - begin) / 4);
    return (const float *)(const void *)(f->bytes + 8 + f->header + begin);
}

#endif
