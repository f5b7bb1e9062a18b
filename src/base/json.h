// JSON through Jansson: strict (no duplicate keys, 64-bit integers kept, bounded depth), with errors that name file and key.
#ifndef VX_BASE_JSON_H
#define VX_BASE_JSON_H

#include "base/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// `what` names the text in messages (a path). `depth` limits nesting. The result is owned: json_decref.
vx_status vx_json_parse(json_t **out, const char *text, size_t size, int depth, vx_code code, const char *what);
vx_status vx_json_read(json_t **out, const char *path, size_t limit, int depth, vx_code code);

// Members of an object. `fallback` NULL = required; else a null counts as absent. Integers are integers: 5.0 is none. Errors: VX_ERR_CONFIG naming `what` and the key.
vx_status vx_json_int(const json_t *object, const char *key, const int64_t *fallback, int64_t *out, const char *what);
vx_status vx_json_number(const json_t *object, const char *key, const double *fallback, double *out, const char *what);
vx_status vx_json_bool(const json_t *object, const char *key, const bool *fallback, bool *out, const char *what);
// Borrowed from the object.
vx_status vx_json_string(const json_t *object, const char *key, const char *fallback, const char **out, const char *what);
// Exactly `count` numbers (count < 0: any number up to `capacity`); *found is how many.
vx_status vx_json_ints(const json_t *object, const char *key, int64_t *out, int capacity, int count, int *found,
                       const char *what);
vx_status vx_json_floats(const json_t *object, const char *key, float *out, int capacity, int count, int *found,
                         const char *what);

#endif
