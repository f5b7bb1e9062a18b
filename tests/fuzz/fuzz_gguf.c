// A GGUF file, any bytes: what is accepted lies inside the file, and no name is there twice.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/quant.h"
#include "weights/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition) abort();
}

static void check_entry(const vx_gguf *g, int i, size_t size, uint64_t *end)
{
    const vx_safetensors_entry *e = vx_gguf_at(g, i);
    int64_t count = 1;
    must(e && e->name && e->name[0] && e->rank >= 0 && e->rank <= VX_MAX_RANK);
    for (int a = 0; a < e->rank; a++) {
        must(e->shape[a] >= 1 && count <= INT64_MAX / e->shape[a]);
        count *= e->shape[a];
    }
    const uint64_t block = e->ggml ? (uint64_t)vx_gguf_block(e->ggml) : 1;
    const uint64_t bytes = e->ggml ? (uint64_t)vx_gguf_block_bytes(e->ggml) : (uint64_t)vx_dtype_bits(e->dtype) / 8;
    must(block > 0 && bytes > 0 && e->bytes == (uint64_t)count / block * bytes);
    must(e->offset >= *end && e->offset <= size && e->bytes <= size - e->offset);
    *end = e->offset + e->bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vx_gguf *g;
    vx_status s = vx_gguf_parse(&g, data, size, "fuzz");
    must((s.code == VX_OK) == (g != NULL));
    if (!g) {
        must(s.code / 1000 == 3 && s.message[0]);
        return 0;
    }
    uint64_t end = 0;
    for (int i = 0; i < vx_gguf_count(g); i++) check_entry(g, i, size, &end);
    must(vx_gguf_at(g, -1) == NULL && vx_gguf_at(g, vx_gguf_count(g)) == NULL);
    size_t length;
    const char *text = vx_gguf_text(g, "general.architecture", &length);
    must(!text || (length <= size && (const uint8_t *)text >= data && (const uint8_t *)text + length <= data + size));
    vx_gguf_close(&g);
    return 0;
}
