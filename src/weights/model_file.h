// The transformer's single file as a model, and what names say of the partition (inside this room only).
#ifndef VX_WEIGHTS_MODEL_FILE_H
#define VX_WEIGHTS_MODEL_FILE_H

#include "weights/container.h"
#include "weights/model_map.h"

// "fl2va" and "ref2va", in any case.
vx_variant vx_variant_of_name(const char *name);
// By the names of the two folders above a path.
vx_variant vx_variant_of_parents(const char *path);
// A shift, if the object has it: above 0, at most 100.
vx_status vx_shift_member(const json_t *object, const char *key, double *shift, const char *what);

// Fills component, variant, layout and shifts from the file's header, metadata and name.
vx_status vx_model_file_read(vx_model_map *map, const char *path);
// Which partition a transformer's file is, by the folders above it, its metadata, its name; *reason is set where one says so.
vx_variant vx_variant_of_file(const vx_container *file, const char *path, const char **reason);

#endif
