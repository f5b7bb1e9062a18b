// Members of a component's configuration, in either spelling.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "weights/component.h"
#include "weights/component_inside.h"
#include "weights/foreign.h"

enum { MOST_NUMBERS = 64 };

static const char *config_name(const vx_component *c)
{
    return vx_short_path(c->config_path ? c->config_path : c->path);
}

// The object that holds the last component of a dotted name, and that component; NULL if an object on the way is not there.
static const json_t *holder(const json_t *object, const char *name, const char **last)
{
    for (const char *dot; object && (dot = strchr(name, '.')); name = dot + 1) {
        char key[128];
        size_t size = (size_t)(dot - name);
        if (size >= sizeof key) return NULL;
        memcpy(key, name, size);
        key[size] = 0;
        object = json_object_get(object, key);
    }
    *last = name;
    return object;
}

static const json_t *find(const vx_component *c, const char *name, const char **last)
{
    const json_t *object = holder(c->config, name, last);
    const json_t *value = object ? json_object_get(object, *last) : NULL;
    return value && !json_is_null(value) ? object : NULL;
}

// As find, in the first spelling that is there; required unless `optional`.
static vx_status find_either(const vx_component *c, const char *name, const char *other, bool optional, const json_t **object,
                             const char **last)
{
    *object = find(c, name, last);
    if (!*object && other) *object = find(c, other, last);
    if (*object || optional) return vx_ok();
    if (!c->config)
        return vx_fail(VX_ERR_CONFIG, "%s: no config.json beside the weights says '%s'", vx_short_path(c->path), name);
    return vx_fail(VX_ERR_CONFIG, "%s: '%s'%s%s%s is missing", config_name(c), name, other ? " (or '" : "", other ? other : "",
                   other ? "')" : "");
}

static vx_status check_size(const vx_component *c, const char *name, int64_t lowest, int64_t value)
{
    if (value >= lowest && value <= VX_CONFIG_MAX) return vx_ok();
    return vx_fail(VX_ERR_CONFIG, "%s: '%s' is %" PRId64 ", expected %" PRId64 " to %" PRId64, config_name(c), name, value,
                   lowest, VX_CONFIG_MAX);
}

vx_status vx_config_int(const vx_component *c, const char *name, const char *other_name, const int64_t *fallback, int64_t *out)
{
    const json_t *object;
    const char *last;
    VX_TRY(find_either(c, name, other_name, fallback, &object, &last));
    if (!object) {
        *out = *fallback;
        return vx_ok();
    }
    int64_t value;
    VX_TRY(vx_json_int(object, last, NULL, &value, config_name(c)));
    VX_TRY(check_size(c, last, 1, value));
    *out = value;
    return vx_ok();
}

vx_status vx_config_float(const vx_component *c, const char *name, const char *other_name, const double *fallback, double *out)
{
    const json_t *object;
    const char *last;
    VX_TRY(find_either(c, name, other_name, fallback, &object, &last));
    if (!object) {
        *out = *fallback;
        return vx_ok();
    }
    return vx_json_number(object, last, NULL, out, config_name(c)); // JSON has no infinity, and the parser refuses 1e999
}

vx_status vx_config_ints(const vx_component *c, const char *name, int count, int64_t *out, bool *found)
{
    const json_t *object;
    const char *last;
    VX_TRY(find_either(c, name, NULL, found, &object, &last));
    if (found) *found = object;
    if (!object) return vx_ok();
    int64_t values[MOST_NUMBERS];
    VX_TRY(vx_json_ints(object, last, values, MOST_NUMBERS, count, NULL, config_name(c)));
    for (int i = 0; i < count; i++) VX_TRY(check_size(c, last, 0, values[i]));
    memcpy(out, values, (size_t)count * sizeof *out);
    return vx_ok();
}

vx_status vx_config_floats(const vx_component *c, const char *name, int count, float *out, bool *found)
{
    const json_t *object;
    const char *last;
    VX_TRY(find_either(c, name, NULL, found, &object, &last));
    if (found) *found = object;
    if (!object) return vx_ok();
    float values[MOST_NUMBERS];
    VX_TRY(vx_json_floats(object, last, values, MOST_NUMBERS, count, NULL, config_name(c)));
    memcpy(out, values, (size_t)count * sizeof *out);
    return vx_ok();
}
