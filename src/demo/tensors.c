// The list of a file's tensors while their values are made, in f32 whatever the file will hold.
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "demo/demo.h"
#include "weights/safetensors_stream.h"

enum { CONSTANTS = 64 }; // of a hollow list: elements of the longest tensor that has values

vx_status vx_demo_add(vx_demo_tensors *set, int rank, const int64_t *shape, const char *format, ...)
{
    if (set->count == set->capacity) {
        int capacity = set->capacity ? 2 * set->capacity : 256;
        vx_demo_tensor *more = vx_realloc(set->tensor, (size_t)capacity * sizeof *more);
        VX_NEED_MEMORY(more, "the demo model");
        set->tensor = more;
        set->capacity = capacity;
    }
    vx_demo_tensor *t = &set->tensor[set->count];
    *t = (vx_demo_tensor){ .dtype = set->dtype, .rank = rank, .count = 1 };
    for (int i = 0; i < rank; i++) t->count *= t->shape[i] = shape[i];
    va_list args;
    va_start(args, format);
    vsnprintf(t->name, sizeof t->name, format, args);
    va_end(args);
    if (!set->hollow || t->count <= CONSTANTS) {
        t->value = vx_alloc_array((size_t)t->count, sizeof *t->value);
        VX_NEED_MEMORY(t->value, t->name);
    }
    set->count++;
    return vx_ok();
}

vx_demo_tensor *vx_demo_get(vx_demo_tensors *set, const char *format, ...)
{
    char name[VX_DEMO_NAME];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    for (int i = 0; i < set->count; i++)
        if (strcmp(set->tensor[i].name, name) == 0) return &set->tensor[i];
    assert(!"a tensor of this network");
    return NULL;
}

void vx_demo_tensors_free(vx_demo_tensors *set)
{
    for (int i = 0; i < set->count; i++) vx_free(set->tensor[i].value);
    vx_free(set->tensor);
    *set = (vx_demo_tensors){ 0 };
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const vx_demo_tensor *)a)->name, ((const vx_demo_tensor *)b)->name);
}

static size_t stored_bytes(const vx_demo_tensor *t)
{
    return (size_t)t->count * (size_t)vx_dtype_bits(t->dtype) / 8;
}

static vx_safetensors_tensor described(const vx_demo_tensor *t, const void *data)
{
    vx_safetensors_tensor out = { .name = t->name, .dtype = t->dtype, .rank = t->rank, .data = data };
    memcpy(out.shape, t->shape, sizeof t->shape);
    return out;
}

// The tensor's data as the file holds it.
static void convert(uint8_t *bytes, const vx_demo_tensor *t)
{
    if (t->dtype == VX_F32) memcpy(bytes, t->value, stored_bytes(t));
    else
        for (int64_t i = 0; i < t->count; i++) {
            uint16_t half = vx_f32_to_bf16(t->value[i]);
            memcpy(bytes + 2 * i, &half, sizeof half);
        }
}

// Holes in place of values; constants are there.
static vx_status write_hollow(const char *path, const vx_demo_tensor *tensors, int count, bool replace)
{
    vx_safetensors_tensor *list = vx_alloc_array((size_t)count, sizeof *list);
    VX_NEED_MEMORY(list, "the demo model");
    for (int i = 0; i < count; i++) list[i] = described(&tensors[i], NULL);
    vx_safetensors_stream *stream = NULL;
    vx_status s =
        vx_safetensors_stream_begin(&stream, path, replace, list, count, (vx_safetensors_pair[]){ { VX_HOLLOW_KEY, "true" } }, 1);
    for (int i = 0; i < count && s.code == VX_OK; i++) {
        uint8_t bytes[CONSTANTS * sizeof(float)];
        if (tensors[i].value) {
            convert(bytes, &tensors[i]);
            s = vx_safetensors_stream_put(stream, bytes, stored_bytes(&tensors[i]));
        } else s = vx_safetensors_stream_skip(stream, stored_bytes(&tensors[i]));
    }
    if (s.code == VX_OK) s = vx_safetensors_stream_finish(&stream);
    vx_safetensors_stream_discard(&stream);
    vx_free(list);
    return s;
}

static vx_status write_file(const char *folder, const char *name, const vx_demo_tensor *tensors, int count, bool replace)
{
    size_t total = 0;
    bool hollow = false;
    for (int i = 0; i < count; i++) {
        total += stored_bytes(&tensors[i]);
        hollow = hollow || !tensors[i].value;
    }
    if (hollow) {
        char *path = vx_path_join(folder, name);
        VX_NEED_MEMORY(path, "the demo model");
        vx_status s = write_hollow(path, tensors, count, replace);
        vx_free(path);
        return s;
    }
    vx_safetensors_tensor *list = vx_alloc_array((size_t)count, sizeof *list);
    uint8_t *bytes = vx_alloc(total), *next = bytes;
    char *path = vx_path_join(folder, name);
    vx_status s = list && bytes && path ? vx_ok() : vx_no_memory("for the demo model");
    if (s.code == VX_OK) {
        for (int i = 0; i < count; i++, next += stored_bytes(&tensors[i - 1])) {
            convert(next, &tensors[i]);
            list[i] = described(&tensors[i], next);
        }
        s = vx_safetensors_write(path, replace, list, count, (vx_safetensors_pair[]){ { "format", "pt" } }, 1);
    }
    vx_free(list);
    vx_free(bytes);
    vx_free(path);
    return s;
}

// Shards of equally many names, as the official sets are cut by size: names stay in order across them.
static vx_status write_shards(const char *folder, const vx_demo_tensor *tensors, int count, int shards, bool replace)
{
    json_t *map = json_object();
    json_int_t total = 0;
    int share = (count + shards - 1) / shards;
    vx_status s = vx_ok();
    for (int k = 0; k < shards && s.code == VX_OK; k++) {
        char name[64];
        int first = k * share, n = count - first < share ? count - first : share;
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", k + 1, shards);
        for (int i = first; i < first + n; i++) {
            json_object_set_new(map, tensors[i].name, json_string(name));
            total += (json_int_t)stored_bytes(&tensors[i]);
        }
        s = write_file(folder, name, &tensors[first], n, replace);
    }
    if (s.code == VX_OK)
        return vx_demo_json_file(folder, "model.safetensors.index.json",
                                 json_pack("{s:{s:I}, s:o}", "metadata", "total_size", total, "weight_map", map), replace);
    json_decref(map);
    return s;
}

vx_status vx_demo_tensors_write(const vx_demo_tensors *set, const char *folder, int shards, bool replace)
{
    vx_demo_tensor *order = vx_alloc_array((size_t)set->count, sizeof *order); // the values stay the set's
    VX_NEED_MEMORY(order, "the demo model");
    memcpy(order, set->tensor, (size_t)set->count * sizeof *order);
    qsort(order, (size_t)set->count, sizeof *order, by_name);
    vx_status s = shards ? write_shards(folder, order, set->count, shards, replace)
                         : write_file(folder, "model.safetensors", order, set->count, replace);
    vx_free(order);
    return s;
}
