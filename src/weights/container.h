// One file of tensors, safetensors or GGUF, told apart by its first bytes (inside this room only). Entries are the same for
// both; metadata is safetensors' alone, GGUF's is read where it is wanted.
#ifndef VX_WEIGHTS_CONTAINER_H
#define VX_WEIGHTS_CONTAINER_H

#include "weights/gguf.h"
#include "weights/safetensors.h"

typedef struct vx_container {
    vx_safetensors *safetensors; // one of the two
    vx_gguf *gguf;
    size_t prefix; // of its names: what was taken off for canonical ones
} vx_container;

vx_status vx_container_open(vx_container *out, const char *path);
void vx_container_close(vx_container *c);
const char *vx_container_path(const vx_container *c);
int vx_container_count(const vx_container *c);
const vx_safetensors_entry *vx_container_at(const vx_container *c, int i);
const char *vx_container_metadata(const vx_container *c, const char *key); // NULL if absent
vx_status vx_container_check(const vx_container *c);
void vx_container_prefetch(const vx_container *c, uint64_t offset, uint64_t bytes);

#endif
