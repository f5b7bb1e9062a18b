// A whole file from memory: tensors sorted as the reference writer sorts them, so that every tensor is aligned.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/str.h"
#include "weights/safetensors.h"
#include "weights/safetensors_stream.h"

static int compare_tensors(const void *a, const void *b)
{
    const vx_safetensors_tensor *x = a, *y = b;
    int difference = vx_dtype_bits(y->dtype) - vx_dtype_bits(x->dtype);
    return difference ? difference : strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const vx_safetensors_tensor *)a)->name, ((const vx_safetensors_tensor *)b)->name);
}

// What our own reader would refuse is a fault of the caller.
static vx_status check_tensors(vx_safetensors_tensor *sorted, int count)
{
    qsort(sorted, (size_t)count, sizeof *sorted, compare_names);
    for (int i = 0; i < count; i++) {
        const vx_safetensors_tensor *t = &sorted[i];
        size_t bad;
        if (!t->name[0] || strcmp(t->name, "__metadata__") == 0 || !vx_utf8_valid(t->name, strlen(t->name), &bad) ||
            t->rank < 0 || t->rank > VX_MAX_RANK || vx_dtype_bits(t->dtype) == 0)
            return vx_fail(VX_ERR_INTERNAL, "tensor '%.100s' of rank %d and format %s cannot be stored", t->name, t->rank,
                           vx_dtype_name(t->dtype));
        if (i > 0 && strcmp(sorted[i - 1].name, t->name) == 0)
            return vx_fail(VX_ERR_TENSOR_DUPLICATE, "tensor '%.100s' is to be written twice", t->name);
    }
    return vx_ok();
}

static bool data_bytes(const vx_safetensors_tensor *t, size_t *bytes)
{
    int64_t bits = vx_dtype_bits(t->dtype);
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] < 0 || !vx_mul_i64(bits, t->shape[i], &bits)) return false;
    *bytes = (size_t)bits / 8;
    return bits % 8 == 0;
}

static vx_status write_sorted(const char *path, bool replace, const vx_safetensors_tensor *sorted, int count,
                              const vx_safetensors_pair *metadata, int pairs)
{
    vx_safetensors_stream *stream = NULL;
    VX_TRY(vx_safetensors_stream_begin(&stream, path, replace, sorted, count, metadata, pairs));
    vx_status s = vx_ok();
    for (int i = 0; i < count && s.code == VX_OK; i++) {
        size_t bytes;
        if (!data_bytes(&sorted[i], &bytes)) s = vx_fail(VX_ERR_INTERNAL, "tensor '%.100s' cannot be stored", sorted[i].name);
        else if (bytes > 0) s = vx_safetensors_stream_put(stream, sorted[i].data, bytes);
    }
    if (s.code == VX_OK) return vx_safetensors_stream_finish(&stream);
    vx_safetensors_stream_discard(&stream);
    return s;
}

vx_status vx_safetensors_write(const char *path, bool replace, const vx_safetensors_tensor *tensors, int count,
                               const vx_safetensors_pair *metadata, int pairs)
{
    vx_safetensors_tensor *sorted = vx_alloc_array((size_t)count, sizeof *sorted);
    VX_NEED_MEMORY(sorted, "a header");
    if (count > 0) memcpy(sorted, tensors, (size_t)count * sizeof *sorted);
    vx_status s = check_tensors(sorted, count);
    if (s.code == VX_OK) {
        qsort(sorted, (size_t)count, sizeof *sorted, compare_tensors);
        s = write_sorted(path, replace, sorted, count, metadata, pairs);
    }
    vx_free(sorted);
    return s;
}
