// The component from inside: shared by the files that open and that bind (inside this room only).
#ifndef VX_WEIGHTS_COMPONENT_INSIDE_H
#define VX_WEIGHTS_COMPONENT_INSIDE_H

#include "weights/component.h"
#include "weights/shards.h"

typedef enum vx_qkv_order {
    VX_QKV_SPLIT,       // three matrices
    VX_QKV_INTERLEAVED, // rows q0 k0 v0 q1 k1 v1 ..., a head each
    VX_QKV_GROUPED,     // rows q0 q1 ... k0 k1 ... v0 v1 ...
} vx_qkv_order;

typedef struct vx_component_entry {
    char *name; // canonical
    const vx_safetensors_entry *entry;
    const vx_safetensors *file;
    void *copy; // aligned, of a misaligned tensor
    size_t copy_bytes;
    bool bound, ignored;
} vx_component_entry;

struct vx_component {
    vx_component_kind kind;
    vx_layout_kind layout;
    vx_qkv_order qkv;
    char *path;        // as opened
    char *config_path; // NULL: none
    json_t *config;    // NULL: none
    vx_shards shards;
    int count;
    vx_component_entry *entries; // by canonical name
};

// The entry of a canonical name, or NULL.
vx_component_entry *vx_component_entry_of(const vx_component *c, const char *name);
// The first entry, in order of name, that is not below `name`: those with a prefix follow one another from there.
int vx_component_lower_bound(const vx_component *c, const char *name);

#endif
