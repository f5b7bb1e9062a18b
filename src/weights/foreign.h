// What stands in place of a safetensors file: pickles, pointers, web pages, other containers. Each has its own message,
// because "bad header" sends people looking in the wrong place (inside this room only).
#ifndef VX_WEIGHTS_FOREIGN_H
#define VX_WEIGHTS_FOREIGN_H

#include "base/status.h"
#include <jansson.h>
#include <stddef.h>

// The folder's and the file's name of a path, for messages: long paths would push the facts out of them.
const char *vx_short_path(const char *path);

// VX_ERR_FILE_PICKLE by the ending of the name alone.
vx_status vx_refuse_pickle_name(const char *path);
// By the first bytes; OK if they are nothing known.
vx_status vx_refuse_foreign(const void *bytes, size_t size, const char *path);
// `code` with the target's name when path is a link that leads nowhere; OK otherwise, also for a missing path.
vx_status vx_refuse_dangling(const char *path, vx_code code);

// A JSON file of a checkpoint: a dangling link and a pointer or web page in its place are told apart from bad JSON.
vx_status vx_json_of_model(json_t **out, const char *path, size_t limit, vx_code code);

#endif
