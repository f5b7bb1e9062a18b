// Inside the floor: what inspect.c asks of the other file about one component.
#ifndef VX_PIPELINE_INSPECT_H
#define VX_PIPELINE_INSPECT_H

#include "pipeline/internal.h"

extern const char *const vx_component_words[VX_COMPONENT_KINDS]; // "transformer", "text_encoder", ...

typedef struct vx_inspection {
    json_t *problems; // list of {code, message, remedy}
    json_t *warnings; // list of strings
    vx_status first;  // of the problems
} vx_inspection;
void vx_inspection_add(vx_inspection *i, vx_status s);

// Layout, exporter, formats, order of rows, oddities: new reference.
json_t *vx_inspect_component(vx_component *c, vx_component_kind kind);
json_t *vx_inspect_dimensions(const vx_model *m); // of the networks that are bound
// What GPUs of usual sizes hold of the components that are open.
json_t *vx_inspect_memory(const vx_model *m);
// What is odd about the model's files, as far as they were opened: strings that name the file, onto `list`.
void vx_file_warnings(json_t *list, const vx_model *m);
void vx_inspect_verify(vx_inspection *i, vx_component *c);
void vx_inspect_verify_adapter(vx_inspection *i, const char *path);

#endif
