// From the spelling of a file to canonical names (inside this room only): one common prefix is taken off, then diffusers'
// names become official ones. Only names change; what holds other rows (q, k, v in three; halves of a SwiGLU) is the
// business of vx_component_qkv and _swiglu.
#ifndef VX_WEIGHTS_NAMES_H
#define VX_WEIGHTS_NAMES_H

#include "weights/component.h"

// Length of the prefix that all names share and that is not part of canonical names.
vx_status vx_names_prefix(vx_component_kind kind, const char *const *names, int count, const char *path, size_t *prefix);

// Names without the prefix. VX_ERR_MODEL_UNKNOWN if they are not this kind's, VX_ERR_MODEL_LAYOUT if they mix layouts.
vx_status vx_names_layout(vx_component_kind kind, const char *const *names, int count, const char *path, vx_layout_kind *layout);

// Which component a file of these names (with whatever prefix) is; false if none.
bool vx_names_kind(const char *const *names, int count, vx_component_kind *kind);

// Canonical name, owned by the caller; NULL when out of memory.
char *vx_names_canonical(vx_component_kind kind, vx_layout_kind layout, const char *name);

const char *vx_component_kind_name(vx_component_kind kind); // "transformer", ...
const char *vx_component_option(vx_component_kind kind);    // that names it: "--model", "--text-encoder", ...

#endif
