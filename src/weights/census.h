// What files are and hold, for reports: nothing here is needed to run a model.
#ifndef VX_WEIGHTS_CENSUS_H
#define VX_WEIGHTS_CENSUS_H

#include "weights/component.h"
#include "weights/model_map.h"

// A file by its header: which component, or an adapter, or neither.
typedef struct vx_file_facts {
    bool component, adapter;
    vx_component_kind kind;
    vx_variant variant; // of a transformer, and how it was told (NULL: it was not)
    const char *variant_reason;
} vx_file_facts;
// Errors: those of the container.
vx_status vx_file_look(vx_file_facts *out, const char *path);
// Does a folder hold one part alone, as text_encoder/ does? By the names of its tensors; false for whatever cannot be read.
bool vx_folder_look(const char *folder, vx_component_kind *kind);

// Tensors by format ("BF16", "int8_convrot", "Q4_K"), companions counted with what they belong to; largest first.
typedef struct vx_format_count {
    const char *name;
    int64_t tensors;
    uint64_t bytes;
} vx_format_count;
enum { VX_MOST_FORMATS = 32 };
int vx_component_formats(const vx_component *c, vx_format_count out[VX_MOST_FORMATS]);

// Bytes of the tensors whose names begin with prefix and do not contain `without` (NULL: all).
uint64_t vx_component_bytes_of(const vx_component *c, const char *prefix, const char *without);

// Reads everything: values that are NaN or infinite, scales that no quantiser writes. `found` is called for each tensor with a
// fault; the result is the first of them.
vx_status vx_component_verify(vx_component *c, void (*found)(void *user, vx_status fault), void *user);

#endif
