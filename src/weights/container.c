#include "weights/container.h"

#include "base/file.h"
#include "weights/foreign.h"

// A file that cannot be read is left to the reader of safetensors, which says what it found instead.
static vx_status begins_as_gguf(const char *path, bool *is)
{
    vx_mapping *map;
    *is = false;
    vx_status s = vx_file_map(&map, path, VX_ERR_MODEL_OPEN);
    if (s.code != VX_OK) return s.code == VX_ERR_MEMORY ? s : vx_ok();
    *is = vx_gguf_is(vx_mapping_data(map), vx_mapping_size(map));
    vx_file_unmap(&map);
    return vx_ok();
}

vx_status vx_container_open(vx_container *out, const char *path)
{
    bool gguf;
    *out = (vx_container){ 0 };
    VX_TRY(begins_as_gguf(path, &gguf));
    return gguf ? vx_gguf_open(&out->gguf, path) : vx_safetensors_open(&out->safetensors, path, NULL);
}

void vx_container_close(vx_container *c)
{
    vx_safetensors_close(&c->safetensors);
    vx_gguf_close(&c->gguf);
}

const char *vx_container_path(const vx_container *c)
{
    return c->gguf ? vx_gguf_path(c->gguf) : vx_safetensors_path(c->safetensors);
}

int vx_container_count(const vx_container *c)
{
    return c->gguf ? vx_gguf_count(c->gguf) : vx_safetensors_count(c->safetensors);
}

const vx_safetensors_entry *vx_container_at(const vx_container *c, int i)
{
    return c->gguf ? vx_gguf_at(c->gguf, i) : vx_safetensors_at(c->safetensors, i);
}

const char *vx_container_metadata(const vx_container *c, const char *key)
{
    return c->safetensors ? vx_safetensors_metadata(c->safetensors, key) : NULL;
}

vx_status vx_container_check(const vx_container *c)
{
    return c->gguf ? vx_gguf_check(c->gguf) : vx_safetensors_check(c->safetensors);
}

void vx_container_prefetch(const vx_container *c, uint64_t offset, uint64_t bytes)
{
    if (c->gguf) vx_gguf_prefetch(c->gguf, offset, bytes);
    else vx_safetensors_prefetch(c->safetensors, offset, bytes);
}
