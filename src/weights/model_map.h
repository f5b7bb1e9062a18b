// Where the components of a model are, from the path that the user gave: an official partition (FL2VA, Ref2VA) or the
// root above it, a diffusers folder, ComfyUI's folder (diffusion_models/, text_encoders/, vae/) or any folder of single files,
// or the transformer's single file with the other components named one by one or lying in such a folder around it.
#ifndef VX_WEIGHTS_MODEL_MAP_H
#define VX_WEIGHTS_MODEL_MAP_H

#include "base/str.h"
#include "weights/component.h"

typedef enum vx_variant { VX_VARIANT_UNKNOWN, VX_VARIANT_FL2VA, VX_VARIANT_REF2VA } vx_variant;

typedef struct vx_model_map_params {
    const char *model;                                            // required
    const char *text_encoder, *video_vae, *audio_vae, *tokenizer; // override what `model` says; NULL = from model
    const char *vision;                                           // the text encoder's tower, where that is another file
    vx_variant variant; // what the request needs (chooses the partition below a root), or UNKNOWN
    vx_variant stated;  // --variant: believed where nothing else says it; a contradiction is an error
} vx_model_map_params;

typedef struct vx_model_map {
    char *component[VX_COMPONENT_KINDS]; // folder or file; NULL = not there (asked for later: VX_ERR_MODEL_COMPONENT)
    char *tokenizer;                     // folder
    char *vision;                        // file of the text encoder's tower; NULL: in the text encoder
    char *root;                          // the folder or file that these were found from
    vx_variant variant;
    const char *variant_reason;          // how the partition was told; NULL: it was not
    vx_layout_kind layout;               // of the transformer
    double flow_shift, audio_flow_shift; // the checkpoint's own; 12 and 3 where nothing says
    vx_str notes;                        // what is odd about the files that were looked at, a line each
} vx_model_map;

// Looks at names, index and config files only. Errors: VX_ERR_MODEL_OPEN (missing path, dangling link), VX_ERR_MODEL_UNKNOWN
// (lists what was looked for), VX_ERR_MODEL_VARIANT, VX_ERR_MODEL_AMBIGUOUS (lists the candidates).
vx_status vx_model_map_find(vx_model_map *out, const vx_model_map_params *params);
void vx_model_map_free(vx_model_map *map);
// A warning that is also kept in notes.
void vx_model_map_note(vx_model_map *map, const char *format, ...) VX_PRINTF(2, 3);
// VX_ERR_MODEL_COMPONENT naming what is missing and the option that supplies it.
vx_status vx_model_map_need(const vx_model_map *map, vx_component_kind kind);

#endif
