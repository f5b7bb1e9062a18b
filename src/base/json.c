// Jansson, made strict. Jansson parses (and frees) nested values by recursion, so nesting is limited before it sees the text.
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

// Where nesting first exceeds `depth`, as a line (0: nowhere). One pass, no memory; text that is not JSON is left to the
// parser, which sees at most `depth` open brackets of it.
static int too_deep_line(const char *text, size_t size, int depth)
{
    bool in_string = false;
    int line = 1, open = 0;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (c == '\n') line++;
        if (in_string) {
            if (c == '\\') i++;
            else if (c == '"') in_string = false;
        } else if (c == '"') in_string = true;
        else if (c == '[' || c == '{') {
            if (++open > depth) return line;
        } else if ((c == ']' || c == '}') && open > 0) open--;
    }
    return 0;
}

vx_status vx_json_parse(json_t **out, const char *text, size_t size, int depth, vx_code code, const char *what)
{
    *out = NULL;
    int line = too_deep_line(text, size, depth);
    if (line > 0) return vx_fail(code, "%s: line %d: JSON nested deeper than %d levels", what, line, depth);
    json_error_t error;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (root) {
        *out = root;
        return vx_ok();
    }
    // Where Jansson runs out of memory it has no text, and not always this code.
    if (json_error_code(&error) == json_error_out_of_memory || !error.text[0])
        return vx_fail(VX_ERR_MEMORY, "no memory to parse %s", what);
    return vx_fail(code, "%s: line %d, column %d: %s", what, error.line, error.column, error.text);
}

vx_status vx_json_read(json_t **out, const char *path, size_t limit, int depth, vx_code code)
{
    *out = NULL;
    char *text;
    size_t size;
    VX_TRY(vx_file_read(&text, &size, path, limit, code));
    vx_status s = vx_json_parse(out, text, size, depth, code, path);
    vx_free(text);
    return s;
}

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number with a fraction";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    case JSON_NULL: return "null";
    }
    return "a value of unknown type";
}

static vx_status wrong_type(const json_t *value, const char *key, const char *wanted, const char *what)
{
    return vx_fail(VX_ERR_CONFIG, "%s: '%s' is %s, expected %s", what, key, type_name(value), wanted);
}

// The member, or NULL in *value when it may be left out and is. Python's None is written as null: it counts as left out.
static vx_status find(const json_t *object, const char *key, bool required, const json_t **value, const char *what)
{
    *value = NULL;
    if (!json_is_object(object)) return vx_fail(VX_ERR_CONFIG, "%s: expected an object with '%s'", what, key);
    *value = json_object_get(object, key);
    if (!required && json_is_null(*value)) *value = NULL;
    if (!*value && required) return vx_fail(VX_ERR_CONFIG, "%s: '%s' is missing", what, key);
    return vx_ok();
}

vx_status vx_json_int(const json_t *object, const char *key, const int64_t *fallback, int64_t *out, const char *what)
{
    const json_t *value;
    VX_TRY(find(object, key, !fallback, &value, what));
    if (value && !json_is_integer(value)) return wrong_type(value, key, "an integer", what);
    *out = value ? (int64_t)json_integer_value(value) : *fallback;
    return vx_ok();
}

vx_status vx_json_number(const json_t *object, const char *key, const double *fallback, double *out, const char *what)
{
    const json_t *value;
    VX_TRY(find(object, key, !fallback, &value, what));
    if (value && !json_is_number(value)) return wrong_type(value, key, "a number", what);
    *out = value ? json_number_value(value) : *fallback;
    return vx_ok();
}

vx_status vx_json_bool(const json_t *object, const char *key, const bool *fallback, bool *out, const char *what)
{
    const json_t *value;
    VX_TRY(find(object, key, !fallback, &value, what));
    if (value && !json_is_boolean(value)) return wrong_type(value, key, "true or false", what);
    *out = value ? json_is_true(value) : *fallback;
    return vx_ok();
}

vx_status vx_json_string(const json_t *object, const char *key, const char *fallback, const char **out, const char *what)
{
    const json_t *value;
    VX_TRY(find(object, key, !fallback, &value, what));
    if (value && !json_is_string(value)) return wrong_type(value, key, "a string", what);
    *out = value ? json_string_value(value) : fallback;
    return vx_ok();
}

// The array with as many members as asked for.
static vx_status find_list(const json_t *object, const char *key, int capacity, int count, const json_t **list, const char *what)
{
    VX_TRY(find(object, key, true, list, what));
    if (!json_is_array(*list)) return wrong_type(*list, key, "an array of numbers", what);
    size_t size = json_array_size(*list);
    if (count >= 0 && size != (size_t)count)
        return vx_fail(VX_ERR_CONFIG, "%s: '%s' has %zu numbers, expected %d", what, key, size, count);
    if (size > (size_t)capacity)
        return vx_fail(VX_ERR_CONFIG, "%s: '%s' has %zu numbers, expected at most %d", what, key, size, capacity);
    return vx_ok();
}

vx_status vx_json_ints(const json_t *object, const char *key, int64_t *out, int capacity, int count, int *found, const char *what)
{
    const json_t *list;
    VX_TRY(find_list(object, key, capacity, count, &list, what));
    size_t size = json_array_size(list);
    for (size_t i = 0; i < size; i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_integer(value))
            return vx_fail(VX_ERR_CONFIG, "%s: '%s'[%zu] is %s, expected an integer", what, key, i, type_name(value));
        out[i] = (int64_t)json_integer_value(value);
    }
    if (found) *found = (int)size;
    return vx_ok();
}

vx_status vx_json_floats(const json_t *object, const char *key, float *out, int capacity, int count, int *found, const char *what)
{
    const json_t *list;
    VX_TRY(find_list(object, key, capacity, count, &list, what));
    size_t size = json_array_size(list);
    for (size_t i = 0; i < size; i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_number(value))
            return vx_fail(VX_ERR_CONFIG, "%s: '%s'[%zu] is %s, expected a number", what, key, i, type_name(value));
        out[i] = (float)json_number_value(value);
        if (!isfinite(out[i]))
            return vx_fail(VX_ERR_CONFIG, "%s: '%s'[%zu] is %g, too large for a 32-bit float", what, key, i,
                           json_number_value(value));
    }
    if (found) *found = (int)size;
    return vx_ok();
}
