// Format: see safetensors.h. The header is padded with spaces so that the data begins at a multiple of 8.
#include "weights/safetensors_stream.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"

struct vx_safetensors_stream {
    vx_output *output;
    uint64_t expected, written;
};

static bool tensor_bytes(const vx_safetensors_tensor *t, uint64_t *bytes)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] < 0 || !vx_mul_i64(n, t->shape[i], &n)) return false;
    int64_t bits;
    if (!vx_mul_i64(n, vx_dtype_bits(t->dtype), &bits) || bits % 8) return false;
    *bytes = (uint64_t)bits / 8;
    return true;
}

// The header as JSON, and the number of data bytes it announces.
static vx_status header(char **text, uint64_t *total, const vx_safetensors_tensor *tensors, int count,
                        const vx_safetensors_pair *metadata, int pairs)
{
    json_t *root = json_object();
    bool ok = root;
    *total = 0;
    for (int i = 0; ok && i < count; i++) {
        uint64_t bytes;
        json_t *shape = json_array();
        if (!tensor_bytes(&tensors[i], &bytes)) {
            json_decref(shape);
            json_decref(root);
            return vx_fail(VX_ERR_INTERNAL, "tensor %s has a shape that cannot be stored", tensors[i].name);
        }
        for (int d = 0; d < tensors[i].rank; d++) json_array_append_new(shape, json_integer(tensors[i].shape[d]));
        ok = !json_object_set_new(root, tensors[i].name,
                                  json_pack("{s:s, s:o, s:[I, I]}", "dtype", vx_dtype_name(tensors[i].dtype), "shape", shape,
                                            "data_offsets", (json_int_t)*total, (json_int_t)*total + (json_int_t)bytes));
        *total += bytes;
    }
    if (ok && pairs) {
        json_t *meta = json_object();
        for (int i = 0; i < pairs; i++) json_object_set_new(meta, metadata[i].key, json_string(metadata[i].value));
        ok = !json_object_set_new(root, "__metadata__", meta);
    }
    *text = ok ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return *text ? vx_ok() : vx_fail(VX_ERR_MEMORY, "no memory for a header");
}

vx_status vx_safetensors_stream_begin(vx_safetensors_stream **out, const char *path, bool replace,
                                      const vx_safetensors_tensor *tensors, int count, const vx_safetensors_pair *metadata,
                                      int pairs)
{
    char *text = NULL;
    vx_safetensors_stream *s = vx_alloc_array(1, sizeof *s);
    VX_NEED_MEMORY(s, "a file");
    vx_status status = header(&text, &s->expected, tensors, count, metadata, pairs);
    if (!status.code) status = vx_output_begin(&s->output, path, replace);
    if (!status.code) {
        size_t size = strlen(text), padded = vx_align_up(size, 8);
        uint8_t length[8];
        for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)padded >> (8 * i));
        status = vx_output_write(s->output, length, sizeof length);
        if (!status.code) status = vx_output_write(s->output, text, size);
        if (!status.code) status = vx_output_write(s->output, "       ", padded - size);
    }
    free(text); // Jansson's
    if (status.code) {
        vx_safetensors_stream_discard(&s);
        return status;
    }
    *out = s;
    return vx_ok();
}

vx_status vx_safetensors_stream_put(vx_safetensors_stream *s, const void *bytes, size_t size)
{
    s->written += size;
    return vx_output_write(s->output, bytes, size);
}

vx_status vx_safetensors_stream_skip(vx_safetensors_stream *s, uint64_t size)
{
    const int fd = vx_output_fd(s->output);
    const off_t end = lseek(fd, (off_t)size, SEEK_CUR);
    s->written += size;
    if (end < 0 || ftruncate(fd, end) != 0)
        return vx_fail_errno(VX_ERR_OUTPUT, errno, "%s: cannot make a hole", vx_output_temporary(s->output));
    return vx_ok();
}

vx_status vx_safetensors_stream_finish(vx_safetensors_stream **stream)
{
    vx_safetensors_stream *s = *stream;
    vx_status status = s->written == s->expected ? vx_output_commit(&s->output)
                                                 : vx_fail(VX_ERR_INTERNAL, "%llu bytes came for tensors of %llu",
                                                           (unsigned long long)s->written, (unsigned long long)s->expected);
    vx_safetensors_stream_discard(stream);
    return status;
}

void vx_safetensors_stream_discard(vx_safetensors_stream **stream)
{
    if (!stream || !*stream) return;
    vx_output_discard(&(*stream)->output);
    vx_free(*stream);
    *stream = NULL;
}
