// From a component's path to its weights and its configuration (inside this room only).
#ifndef VX_WEIGHTS_LOCATE_H
#define VX_WEIGHTS_LOCATE_H

#include "weights/component.h"

typedef struct vx_source {
    char *weights; // a .safetensors or .gguf file, or an index if `indexed`
    char *vision;  // text encoder: the file of its vision tower beside it; NULL: none
    bool indexed;
    json_t *config;    // NULL: none
    char *config_path; // of the outermost configuration; NULL: none
} vx_source;

vx_status vx_source_find(vx_source *out, vx_component_kind kind, const char *path);
// VX_ERR_INDEX for a name such as model-00001-of-00013.safetensors: one of a set is not the component.
vx_status vx_refuse_shard_name(const char *path);
void vx_source_free(vx_source *s);

#endif
