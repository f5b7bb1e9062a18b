// A small reader of safetensors for tests: the file in memory, tensors by name as views into it. It trusts the file.
#ifndef VX_SAFETENSORS_MINI_H
#define VX_SAFETENSORS_MINI_H

#include "testing.h"

#include <jansson.h>

#include "tensor/tensor.h"

typedef struct mini_file {
    char *bytes; // NULL: not there
    char *data;
    json_t *header;
} mini_file;

// False if the file cannot be read.
static inline bool mini_open(mini_file *f, const char *path)
{
    *f = (mini_file){ 0 };
    FILE *in = fopen(path, "rb");
    if (!in) return false;
    fseek(in, 0, SEEK_END);
    const long size = ftell(in);
    rewind(in);
    f->bytes = malloc((size_t)size);
    uint64_t header = 0;
    if (f->bytes && fread(f->bytes, 1, (size_t)size, in) == (size_t)size) memcpy(&header, f->bytes, sizeof header);
    fclose(in);
    f->header = json_loadb(f->bytes + sizeof header, header, 0, NULL);
    f->data = f->bytes + sizeof header + header;
    if (f->header) return true;
    free(f->bytes);
    f->bytes = NULL;
    return false;
}

static inline void mini_close(mini_file *f)
{
    json_decref(f->header);
    free(f->bytes);
    *f = (mini_file){ 0 };
}

static inline bool mini_has(const mini_file *f, const char *name)
{
    return json_object_get(f->header, name) != NULL;
}

// A scalar becomes [1]. The test fails if the name is not there.
static inline vx_tensor mini_tensor(const mini_file *f, const char *name)
{
    const json_t *entry = json_object_get(f->header, name);
    if (!entry) {
        fail_msg("no tensor '%s'", name);
        return (vx_tensor){ 0 };
    }
    const json_t *shape = json_object_get(entry, "shape");
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    int64_t extent[VX_MAX_RANK] = { 1 };
    const int rank = (int)json_array_size(shape);
    for (int i = 0; i < rank; i++) extent[i] = json_integer_value(json_array_get(shape, (size_t)i));
    const json_int_t begin = json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
    return vx_tensor_make(f->data + begin, vx_dtype_from_name(type, strlen(type)), rank ? rank : 1, extent);
}

// A string of the file's metadata, or NULL.
static inline const char *mini_metadata(const mini_file *f, const char *key)
{
    return json_string_value(json_object_get(json_object_get(f->header, "__metadata__"), key));
}

#endif
