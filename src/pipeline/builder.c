// Requests from text: every value is parsed and held to its range by the field table, so that a flag, a jobs line and a
// form field of one name mean the same and fail with the same words.
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "pipeline/conditions.h"
#include "pipeline/fields.h"
#include "sampling/schedule.h"

enum { MAX_TEXTS = 64 };

struct vx_request_builder {
    vx_request request;
    vx_media_params media;
    vx_delivery delivery;
    char *texts[MAX_TEXTS]; // text of field i of the table, owned; the structs point at it
    float *sigmas;
    vx_condition condition[VX_MAX_CONDITIONS]; // paths owned
    vx_lora lora[VX_MAX_LORAS];                // paths owned
};

vx_status vx_request_builder_create(vx_request_builder **out)
{
    vx_request_builder *b = vx_alloc_array(1, sizeof *b);
    VX_NEED_MEMORY(b, "a request");
    b->request.struct_size = sizeof b->request;
    b->media.struct_size = sizeof b->media;
    b->delivery.struct_size = sizeof b->delivery;
    *out = b;
    return vx_ok();
}

static void drop_conditions(vx_request_builder *b)
{
    for (int i = 0; i < b->request.condition_count; i++) vx_free((char *)b->condition[i].path);
    b->request.condition_count = 0;
    b->request.conditions = NULL;
}

static void drop_loras(vx_request_builder *b)
{
    for (int i = 0; i < b->request.lora_count; i++) vx_free((char *)b->lora[i].path);
    b->request.lora_count = 0;
    b->request.loras = NULL;
}

void vx_request_builder_destroy(vx_request_builder **builder)
{
    if (!builder || !*builder) return;
    drop_conditions(*builder);
    drop_loras(*builder);
    for (int i = 0; i < MAX_TEXTS; i++) vx_free((*builder)->texts[i]);
    vx_free((*builder)->sigmas);
    vx_free(*builder);
    *builder = NULL;
}

static void *member(vx_request_builder *b, const vx_field_entry *e)
{
    char *base = e->field.group == VX_GROUP_REQUEST ? (char *)&b->request
                 : e->field.group == VX_GROUP_MEDIA ? (char *)&b->media
                                                    : (char *)&b->delivery;
    return base + e->offset;
}

static vx_status wrong(const vx_field_entry *e, vx_code code, const char *value)
{
    const char *want = e->field.range ? e->field.range : e->field.value;
    return vx_fail_field(code, e->field.name, "%s: '%.60s' is not %s%s", e->field.flag, value,
                         code == VX_ERR_RANGE ? "within " : "", want ? want : "a value");
}

// Whole text as a decimal integer; false also on overflow (*overflow tells).
static bool parse_integer(const char *text, int64_t *out, bool *overflow)
{
    char *end;
    *overflow = false;
    if (!isdigit((unsigned char)*text) && !(*text == '-' && isdigit((unsigned char)text[1]))) return false;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (*end) return false;
    *overflow = errno == ERANGE;
    *out = v;
    return !*overflow;
}

static bool parse_number(const char *text, double *out)
{
    char *end;
    if (!*text || isspace((unsigned char)*text)) return false;
    *out = strtod(text, &end);
    return !*end;
}

static vx_status set_integer(vx_request_builder *b, const vx_field_entry *e, const char *value)
{
    int64_t v;
    bool overflow;
    if (!parse_integer(value, &v, &overflow)) return wrong(e, overflow ? VX_ERR_RANGE : VX_ERR_VALUE, value);
    void *at = member(b, e);
    if (e->store == VX_STORE_SEED) {
        if (v < 0) return wrong(e, VX_ERR_RANGE, value);
        *(uint64_t *)at = (uint64_t)v;
        b->request.seed_set = true;
        return vx_ok();
    }
    if (v < (int64_t)e->lo || v > (int64_t)e->hi) return wrong(e, VX_ERR_RANGE, value);
    if (e->store == VX_STORE_I64) *(int64_t *)at = v;
    else *(int *)at = (int)v;
    if (e->store == VX_STORE_CRF) b->media.crf_set = true;
    return vx_ok();
}

static vx_status set_number(vx_request_builder *b, const vx_field_entry *e, const char *value)
{
    double v;
    if (!parse_number(value, &v)) return wrong(e, VX_ERR_VALUE, value);
    if (!(v >= e->lo && v <= e->hi)) return wrong(e, VX_ERR_RANGE, value); // NaN too
    if (e->store == VX_STORE_FLOAT) *(float *)member(b, e) = (float)v;
    else *(double *)member(b, e) = v;
    return vx_ok();
}

static vx_status set_size(vx_request_builder *b, const vx_field_entry *e, const char *value)
{
    char first[24];
    const char *x = strchr(value, 'x');
    int64_t w, h;
    bool over_w = false, over_h = false;
    if (!x || x - value >= (ptrdiff_t)sizeof first) return wrong(e, VX_ERR_VALUE, value);
    memcpy(first, value, (size_t)(x - value));
    first[x - value] = 0;
    bool ok_w = parse_integer(first, &w, &over_w), ok_h = parse_integer(x + 1, &h, &over_h);
    if (over_w || over_h) return wrong(e, VX_ERR_RANGE, value);
    if (!ok_w || !ok_h) return wrong(e, VX_ERR_VALUE, value);
    if (w < 32 || w > 4096 || h < 32 || h > 4096) return wrong(e, VX_ERR_RANGE, value);
    b->request.width = (int)w;
    b->request.height = (int)h;
    return vx_ok();
}

static vx_status set_bitrate(vx_request_builder *b, const vx_field_entry *e, const char *value)
{
    char digits[16];
    size_t n = strlen(value);
    bool kilo = n && (value[n - 1] == 'k' || value[n - 1] == 'K'), overflow;
    int64_t v;
    if (n >= sizeof digits) return wrong(e, VX_ERR_VALUE, value);
    memcpy(digits, value, n + 1);
    if (kilo) digits[n - 1] = 0;
    if (!parse_integer(digits, &v, &overflow)) return wrong(e, overflow ? VX_ERR_RANGE : VX_ERR_VALUE, value);
    if (kilo && v < 1000000) v *= 1000;
    if (v < (int64_t)e->lo || v > (int64_t)e->hi) return wrong(e, VX_ERR_RANGE, value);
    *(int *)member(b, e) = (int)v;
    return vx_ok();
}

static vx_status set_sigmas(vx_request_builder *b, const vx_field_entry *e, const char *value)
{
    float *list = vx_alloc_array(VX_MAX_SIGMAS, sizeof *list);
    int count = 0;
    VX_NEED_MEMORY(list, "sigmas");
    for (const char *p = value;;) {
        char *end;
        double v = strtod(p, &end);
        if (end == p || (*end && *end != ',') || count == VX_MAX_SIGMAS) {
            vx_free(list);
            return wrong(e, VX_ERR_VALUE, value);
        }
        list[count++] = (float)v;
        if (!*end) break;
        p = end + 1;
    }
    vx_free(b->sigmas);
    b->sigmas = list;
    b->request.sigmas = list;
    b->request.sigma_count = count;
    return vx_ok();
}

static bool is_choice(const char *choices, const char *value)
{
    size_t n = strlen(value);
    for (const char *p = choices; n && p;) {
        const char *bar = strchr(p, '|');
        size_t length = bar ? (size_t)(bar - p) : strlen(p);
        if (length == n && !memcmp(p, value, n)) return true;
        p = bar ? bar + 1 : NULL;
    }
    return false;
}

// kind NULL: by content. The kind's text must outlive the builder: a literal.
static vx_status add_condition(vx_request_builder *b, const char *field, bool keyframe, int64_t frame, const char *kind,
                               const char *path)
{
    int n = b->request.condition_count;
    if (!*path) return vx_fail_field(VX_ERR_VALUE, field, "%s: the file name is empty", field);
    if (n == VX_MAX_CONDITIONS)
        return vx_fail_field(VX_ERR_RANGE, field, "%s: more than %d conditions", field, VX_MAX_CONDITIONS);
    char *copy = vx_strdup(path);
    VX_NEED_MEMORY(copy, "a request");
    b->condition[n] = (vx_condition){ VX_INIT(vx_condition), .kind = kind, .path = copy, .keyframe = keyframe, .frame = frame };
    b->request.conditions = b->condition;
    b->request.condition_count = n + 1;
    return vx_ok();
}

// FRAME=IMG
static vx_status set_keyframe(vx_request_builder *b, const vx_field_entry *e, const char *value)
{
    char digits[24];
    const char *equals = strchr(value, '=');
    int64_t frame;
    bool overflow;
    if (!equals || equals - value >= (ptrdiff_t)sizeof digits) return wrong(e, VX_ERR_VALUE, value);
    memcpy(digits, value, (size_t)(equals - value));
    digits[equals - value] = 0;
    if (!parse_integer(digits, &frame, &overflow)) return wrong(e, overflow ? VX_ERR_RANGE : VX_ERR_VALUE, value);
    return add_condition(b, e->field.name, true, frame, NULL, equals + 1);
}

static const char *const reference_kinds[] = { "image", "video", "audio" };

// [KIND:]PATH
static vx_status set_reference(vx_request_builder *b, const vx_field_entry *e, const char *value)
{
    for (size_t i = 0; i < sizeof reference_kinds / sizeof *reference_kinds; i++) {
        size_t n = strlen(reference_kinds[i]);
        if (!strncmp(value, reference_kinds[i], n) && value[n] == ':')
            return add_condition(b, e->field.name, false, 0, reference_kinds[i], value + n + 1);
    }
    return add_condition(b, e->field.name, false, 0, NULL, value);
}

// One object {type, uri, role, frame_index}, no other key (service contract 2.2).
static vx_status set_condition_object(vx_request_builder *b, const json_t *o, const char *field)
{
    static const char *const keys[] = { "type", "uri", "role", "frame_index", "start_time_seconds", "frame" };
    const char *key, *kind = NULL;
    json_t *member;
    if (!json_is_object(o)) return vx_fail_field(VX_ERR_VALUE, field, "%s: a list of objects is wanted", field);
    json_object_foreach((json_t *)o, key, member)
    {
        bool known = false;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) known = known || !strcmp(key, keys[i]);
        if (!known) return vx_fail_field(VX_ERR_USAGE, field, "%s: '%.40s' is not a member of a condition", field, key);
    }
    const json_t *uri = json_object_get(o, "uri"), *type = json_object_get(o, "type"), *role = json_object_get(o, "role"),
                 *start = json_object_get(o, "start_time_seconds");
    const json_t *frame = json_object_get(o, "frame_index") ? json_object_get(o, "frame_index") : json_object_get(o, "frame");
    if (!json_is_string(uri) || (type && !json_is_string(type)) || (role && !json_is_string(role)) ||
        (frame && !json_is_integer(frame)))
        return vx_fail_field(VX_ERR_VALUE, field, "%s: uri, type and role are strings, frame_index is an integer", field);
    if (start && json_number_value(start) != 0)
        return vx_fail_field(VX_ERR_UNAVAILABLE, field, "start_time_seconds other than 0 is not supported in this version");
    bool keyframe = role ? !strcmp(json_string_value(role), "keyframe") : frame != NULL;
    if (role && !keyframe && strcmp(json_string_value(role), "reference"))
        return vx_fail_field(VX_ERR_VALUE, field, "%s: role '%.40s' is none of keyframe, reference", field,
                             json_string_value(role));
    if (keyframe && !frame) return vx_fail_field(VX_ERR_REQUIRED, field, "%s: a keyframe needs frame_index", field);
    const char *told = type ? json_string_value(type) : NULL, *path = json_string_value(uri);
    for (size_t i = 0; told && i < sizeof reference_kinds / sizeof *reference_kinds; i++)
        if (!strcmp(told, reference_kinds[i])) kind = reference_kinds[i];
    if (told && !kind) return vx_fail_field(VX_ERR_VALUE, field, "%s: type '%.40s' is none of image, video, audio", field, told);
    if (strlen(path) != json_string_length(uri)) return vx_fail_field(VX_ERR_VALUE, field, "%s holds a zero character", field);
    return add_condition(b, field, keyframe, json_integer_value(frame), keyframe ? NULL : kind, path);
}

static vx_status set_condition_list(vx_request_builder *b, const json_t *list, const char *field)
{
    if (!json_is_array(list)) return vx_fail_field(VX_ERR_VALUE, field, "%s: a list is wanted", field);
    for (size_t i = 0; i < json_array_size(list); i++) VX_TRY(set_condition_object(b, json_array_get(list, i), field));
    return vx_ok();
}

static vx_status set_conditions(vx_request_builder *b, const vx_field_entry *e, const char *value)
{
    json_t *list = NULL;
    VX_TRY(vx_json_parse(&list, value, strlen(value), 4, VX_ERR_VALUE, e->field.flag));
    vx_status s = set_condition_list(b, list, e->field.name);
    json_decref(list);
    return s;
}

static vx_status add_lora(vx_request_builder *b, const char *field, const char *path, size_t size, const vx_lora *like)
{
    const int n = b->request.lora_count;
    if (!size) return vx_fail_field(VX_ERR_VALUE, field, "%s: the file name is empty", field);
    if (n == VX_MAX_LORAS) return vx_fail_field(VX_ERR_RANGE, field, "%s: more than %d adapters", field, VX_MAX_LORAS);
    char *copy = vx_strndup(path, size);
    VX_NEED_MEMORY(copy, "a request");
    b->lora[n] = *like;
    b->lora[n].struct_size = sizeof b->lora[n];
    b->lora[n].path = copy;
    b->request.loras = b->lora;
    b->request.lora_count = n + 1;
    return vx_ok();
}

// FILE[:STRENGTH]: what follows the last colon is a strength if it is a number.
static vx_status set_lora(vx_request_builder *b, const vx_field_entry *e, const char *value)
{
    const char *colon = strrchr(value, ':');
    double strength;
    if (!colon || !parse_number(colon + 1, &strength))
        return add_lora(b, e->field.name, value, strlen(value), &(vx_lora){ .strength = 1 });
    if (!isfinite((float)strength))
        return vx_fail_field(VX_ERR_RANGE, e->field.name, "%s: '%.60s': the strength is no finite number", e->field.flag, value);
    return add_lora(b, e->field.name, value, (size_t)(colon - value),
                    &(vx_lora){ .strength_set = true, .strength = (float)strength });
}

static vx_status set_lora_alpha(vx_request_builder *b, const vx_field_entry *e, const char *value)
{
    double alpha;
    if (!parse_number(value, &alpha)) return wrong(e, VX_ERR_VALUE, value);
    if (!(alpha >= e->lo && alpha <= e->hi)) return wrong(e, VX_ERR_RANGE, value);
    if (!b->request.lora_count)
        return vx_fail_field(VX_ERR_REQUIRED, e->field.name, "%s: no adapter was named before it", e->field.flag);
    b->lora[b->request.lora_count - 1].alpha = alpha;
    return vx_ok();
}

// {name or path, strength or scale, alpha} (service contract 2.2).
static vx_status set_lora_object(vx_request_builder *b, const json_t *o, const char *field)
{
    vx_lora lora = { .strength = 1 };
    const char *key, *path = NULL;
    json_t *member;
    json_object_foreach((json_t *)o, key, member)
    {
        const bool named = !strcmp(key, "name") || !strcmp(key, "path");
        if (named && json_is_string(member) && strlen(json_string_value(member)) == json_string_length(member)) {
            if (path) return vx_fail_field(VX_ERR_CONFLICT, field, "%s: name and path exclude each other", field);
            path = json_string_value(member);
        } else if ((!strcmp(key, "strength") || !strcmp(key, "scale")) && json_is_number(member)) {
            lora.strength_set = true;
            lora.strength = (float)json_number_value(member);
            if (!isfinite(lora.strength)) return vx_fail_field(VX_ERR_RANGE, field, "%s: %s is no finite number", field, key);
        } else if (!strcmp(key, "alpha") && json_is_number(member)) {
            lora.alpha = json_number_value(member);
            if (!(lora.alpha > 0)) return vx_fail_field(VX_ERR_RANGE, field, "%s: alpha %g is not above 0", field, lora.alpha);
        } else
            return vx_fail_field(VX_ERR_VALUE, field,
                                 "%s: '%.40s' of an adapter: wanted are name (or path), a text, and strength (or scale) and "
                                 "alpha, numbers",
                                 field, key);
    }
    if (!path) return vx_fail_field(VX_ERR_REQUIRED, field, "%s: an adapter needs a name", field);
    return add_lora(b, field, path, strlen(path), &lora);
}

static vx_status set_text(vx_request_builder *b, const vx_field_entry *e, const char *value, int index)
{
    if (e->field.kind == VX_FIELD_CHOICE && !is_choice(e->field.value, value))
        return vx_fail_field(VX_ERR_VALUE, e->field.name, "%s: '%.60s' is none of %s", e->field.flag, value, e->field.value);
    if (e->field.kind == VX_FIELD_FILE && !*value)
        return vx_fail_field(VX_ERR_VALUE, e->field.name, "%s: the file name is empty", e->field.flag);
    char *copy = vx_strdup(value);
    VX_NEED_MEMORY(copy, "a request");
    vx_free(b->texts[index]);
    b->texts[index] = copy;
    *(const char **)member(b, e) = copy;
    return vx_ok();
}

vx_status vx_request_builder_set(vx_request_builder *b, const char *name, const char *value)
{
    const vx_field_entry *e = vx_field_find(name);
    if (!e) return vx_fail_field(VX_ERR_USAGE, name, "'%.60s' is not a field of a request", name);
    if (e->field.refusal) return vx_fail_field(VX_ERR_UNAVAILABLE, e->field.name, "%s: %s", e->field.flag, e->field.refusal);
    switch (e->store) {
    case VX_STORE_TEXT: return set_text(b, e, value, (int)(e - vx_field_table));
    case VX_STORE_INT:
    case VX_STORE_I64:
    case VX_STORE_SEED:
    case VX_STORE_CRF: return set_integer(b, e, value);
    case VX_STORE_FLOAT:
    case VX_STORE_DOUBLE: return set_number(b, e, value);
    case VX_STORE_SIZE: return set_size(b, e, value);
    case VX_STORE_SIGMAS: return set_sigmas(b, e, value);
    case VX_STORE_BITRATE: return set_bitrate(b, e, value);
    case VX_STORE_LORA: return set_lora(b, e, value);
    case VX_STORE_LORA_ALPHA: return set_lora_alpha(b, e, value);
    case VX_STORE_BOOL:
        if (strcmp(value, "true") && strcmp(value, "false")) return wrong(e, VX_ERR_VALUE, value);
        *(bool *)member(b, e) = !strcmp(value, "true");
        return vx_ok();
    case VX_STORE_FIRST: return add_condition(b, e->field.name, true, 0, NULL, value);
    case VX_STORE_LAST: return add_condition(b, e->field.name, true, -1, NULL, value);
    case VX_STORE_KEYFRAME: return set_keyframe(b, e, value);
    case VX_STORE_REFERENCE: return set_reference(b, e, value);
    case VX_STORE_CONDITIONS: return set_conditions(b, e, value);
    case VX_STORE_NONE: break;
    }
    return vx_fail(VX_ERR_INTERNAL, "field %s has no place", e->field.name);
}

// A JSON value as the text that the flag of the same name would have.
static vx_status json_as_text(const char *name, const json_t *value, vx_str *text)
{
    if (json_is_string(value) && strlen(json_string_value(value)) != json_string_length(value))
        return vx_fail_field(VX_ERR_VALUE, name, "%s holds a zero character", name);
    if (json_is_string(value)) vx_str_print(text, "%s", json_string_value(value));
    else if (json_is_integer(value)) vx_str_print(text, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        vx_str_print(text, json_real_value(value) == floor(json_real_value(value)) ? "%.1f" : "%.17g",
                     json_real_value(value)); // 1e3 is no integer
    else if (json_is_boolean(value)) vx_str_print(text, "%s", json_is_true(value) ? "true" : "false");
    else if (json_is_array(value) && json_array_size(value) <= VX_MAX_SIGMAS) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            const json_t *item = json_array_get(value, i);
            if (!json_is_number(item)) return vx_fail_field(VX_ERR_VALUE, name, "%s: item %zu is not a number", name, i);
            vx_str_print(text, "%s%.9g", i ? "," : "", json_number_value(item));
        }
    } else return vx_fail_field(VX_ERR_VALUE, name, "%s: a string, a number, true, false or a list of numbers is wanted", name);
    if (text->failed) return vx_no_memory("for a request");
    if (!text->data) vx_str_print(text, "%s", "");
    return vx_ok();
}

static bool is_condition(const vx_field_entry *e)
{
    return e && e->store >= VX_STORE_FIRST;
}

// A list of references or keyframes has one member for each; everything else is one value.
static vx_status set_json(vx_request_builder *b, const char *key, const json_t *value)
{
    const vx_field_entry *e = vx_field_find(key);
    if (e && e->store == VX_STORE_CONDITIONS && json_is_array(value)) return set_condition_list(b, value, e->field.name);
    if (is_condition(e) && json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            const json_t *item = json_array_get(value, i);
            if (e->store == VX_STORE_KEYFRAME && json_is_object(item)) VX_TRY(set_condition_object(b, item, e->field.name));
            else if (!json_is_array(item)) VX_TRY(set_json(b, key, item));
            else return vx_fail_field(VX_ERR_VALUE, e->field.name, "%s: a list in a list", e->field.name);
        }
        return vx_ok();
    }
    if (e && json_is_null(value)) return vx_fail_field(VX_ERR_VALUE, key, "%.60s: null is no value: leave the member out", key);
    if (e && e->store == VX_STORE_LORA && json_is_object(value)) return set_lora_object(b, value, e->field.name);
    if (e && e->store == VX_STORE_LORA && json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            if (json_is_array(json_array_get(value, i)))
                return vx_fail_field(VX_ERR_VALUE, e->field.name, "%s: a list in a list", e->field.name);
            VX_TRY(set_json(b, key, json_array_get(value, i)));
        }
        return vx_ok();
    }
    if (e && e->store == VX_STORE_LORA && !json_is_string(value))
        return vx_fail_field(VX_ERR_VALUE, key, "%s: a file's name, {name, strength, alpha}, or a list of these is wanted", key);
    vx_str as_text = { 0 };
    vx_status s = json_as_text(key, value, &as_text);
    if (!s.code) s = vx_request_builder_set(b, key, as_text.data ? as_text.data : "");
    vx_str_free(&as_text);
    return s;
}

vx_status vx_request_builder_json(vx_request_builder *b, const char *text, size_t size)
{
    json_t *object = NULL;
    vx_status s = vx_json_parse(&object, text, size, 4, VX_ERR_VALUE, "request");
    if (s.code) return s;
    if (!json_is_object(object)) s = vx_fail(VX_ERR_VALUE, "a request is a JSON object");
    const char *key;
    json_t *value;
    bool replaces = false, adapts = false; // a job that names conditions, or adapters, has none of the defaults'
    if (!s.code) json_object_foreach(object, key, value)
        {
            const vx_field_entry *e = vx_field_find(key);
            replaces = replaces || is_condition(e);
            adapts = adapts || (e && e->store == VX_STORE_LORA);
        }
    if (replaces) drop_conditions(b);
    if (adapts) drop_loras(b);
    if (!s.code) json_object_foreach(object, key, value)
        {
            s = set_json(b, key, value);
            if (s.code) break;
        }
    json_decref(object);
    return s;
}

vx_status vx_request_builder_copy(vx_request_builder *to, const vx_request_builder *from)
{
    for (int i = 0; i < MAX_TEXTS; i++) {
        vx_free(to->texts[i]);
        to->texts[i] = NULL;
    }
    vx_free(to->sigmas);
    to->sigmas = NULL;
    drop_conditions(to);
    drop_loras(to);
    to->request = from->request;
    to->request.loras = NULL;
    to->request.lora_count = 0;
    to->request.conditions = NULL;
    to->request.condition_count = 0;
    to->media = from->media;
    to->delivery = from->delivery;
    for (int i = 0; i < vx_field_count; i++) {
        const vx_field_entry *e = &vx_field_table[i];
        if (e->store != VX_STORE_TEXT) continue;
        *(const char **)member(to, e) = NULL;
        if (!from->texts[i]) continue;
        to->texts[i] = vx_strdup(from->texts[i]);
        VX_NEED_MEMORY(to->texts[i], "a request");
        *(const char **)member(to, e) = to->texts[i];
    }
    for (int i = 0; i < from->request.condition_count; i++) {
        const vx_condition *c = &from->condition[i];
        VX_TRY(add_condition(to, "conditions", c->keyframe, c->frame, c->kind, c->path));
    }
    for (int i = 0; i < from->request.lora_count; i++)
        VX_TRY(add_lora(to, "lora", from->lora[i].path, strlen(from->lora[i].path), &from->lora[i]));
    to->request.sigmas = NULL;
    if (from->request.sigma_count > 0) {
        to->sigmas = vx_alloc_array(VX_MAX_SIGMAS, sizeof *to->sigmas);
        VX_NEED_MEMORY(to->sigmas, "a request");
        memcpy(to->sigmas, from->sigmas, (size_t)from->request.sigma_count * sizeof *to->sigmas);
        to->request.sigmas = to->sigmas;
    }
    return vx_ok();
}

const vx_request *vx_request_builder_request(const vx_request_builder *b)
{
    return &b->request;
}
const vx_media_params *vx_request_builder_media(const vx_request_builder *b)
{
    return &b->media;
}
const vx_delivery *vx_request_builder_delivery(const vx_request_builder *b)
{
    return &b->delivery;
}
