// Reading. The header is checked against the file before a byte of data is touched:
//   1  [u64 n][n bytes of JSON][data]: n within its limit and the file
//   2  every entry well-formed, its bytes what dtype and shape say
//   3  sorted by offset, each entry begins where the one before ended, the first at 0
//   4  the last ends inside the file (truncation), and at its end (trailing bytes)
#include "weights/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "weights/foreign.h"

enum {
    LENGTH_BYTES = 8,
    MOST_HEADER = 100000000, // inclusive; the reference reader's limit. Real files are padded to 8 MiB at most
    MOST_TENSORS = 65536,
    MOST_NAME = 4096,
    MOST_CONTAINERS = 3 * MOST_TENSORS + 2, // an entry, its shape and offsets each; the header and its metadata
    MOST_COMMAS = 2000000,                  // 12 for an entry of eight axes; the rest for metadata
    MOST_DEPTH = 4,                         // header, entry, list; one more so that the message names the entry
};

struct vx_safetensors {
    char *path;
    vx_mapping *map; // NULL: only a header was parsed
    bool input;
    uint64_t header_bytes, trailing_bytes;
    int count;
    vx_safetensors_entry *entries;        // by offset
    const vx_safetensors_entry **by_name; // sorted: a lookup table that hostile names cannot slow down
    char *names;
    json_t *metadata; // NULL: none
};

// ---- one entry ----

static vx_status bad_entry(const vx_safetensors *st, const char *name, const char *what)
{
    return vx_fail(VX_ERR_FILE_FORMAT, "%s: tensor '%s': %s", vx_short_path(st->path), name, what);
}

static vx_status check_name(const vx_safetensors *st, const char *name, size_t size)
{
    if (size == 0) return vx_fail(VX_ERR_FILE_FORMAT, "%s: a tensor has an empty name", vx_short_path(st->path));
    if (size > MOST_NAME)
        return vx_fail(VX_ERR_FILE_LIMIT, "%s: tensor '%.40s...' has a name of %zu bytes, at most %d", vx_short_path(st->path),
                       name, size, MOST_NAME);
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return vx_fail(VX_ERR_FILE_FORMAT, "%s: the name of tensor '%.*s...' holds the control character 0x%02x",
                           vx_short_path(st->path), (int)i, name, (unsigned char)name[i]);
    return vx_ok();
}

static const char *shape_text(char out[96], int rank, const int64_t *shape)
{
    vx_tensor t = { .rank = rank };
    for (int i = 0; i < rank && i < VX_MAX_RANK; i++) t.shape[i] = shape[i];
    return vx_shape_text(out, t);
}

static vx_status parse_dtype(const vx_safetensors *st, const json_t *value, vx_safetensors_entry *e)
{
    if (!json_is_string(value)) return bad_entry(st, e->name, "'dtype' is not a string");
    e->dtype = vx_dtype_from_name(json_string_value(value), json_string_length(value));
    if (e->dtype == VX_DTYPE_NONE)
        return vx_fail(VX_ERR_TENSOR_DTYPE, "%s: tensor '%s' has the unknown number format '%.40s'", vx_short_path(st->path),
                       e->name, json_string_value(value));
    return vx_ok();
}

static bool parse_unsigned(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static vx_status parse_shape(const vx_safetensors *st, const json_t *value, vx_safetensors_entry *e)
{
    if (!json_is_array(value)) return bad_entry(st, e->name, "'shape' is not a list");
    size_t rank = json_array_size(value);
    if (rank > VX_MAX_RANK)
        return vx_fail(VX_ERR_FILE_LIMIT, "%s: tensor '%s' has %zu axes, at most %d", vx_short_path(st->path), e->name, rank,
                       VX_MAX_RANK);
    e->rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        uint64_t extent;
        if (!parse_unsigned(json_array_get(value, i), &extent))
            return bad_entry(st, e->name, "'shape' holds something else than whole numbers from 0 to 2^63-1");
        e->shape[i] = (int64_t)extent;
    }
    return vx_ok();
}

static vx_status parse_offsets(const vx_safetensors *st, const json_t *value, uint64_t *begin, uint64_t *end, const char *name)
{
    if (!json_is_array(value) || json_array_size(value) != 2 || !parse_unsigned(json_array_get(value, 0), begin) ||
        !parse_unsigned(json_array_get(value, 1), end))
        return bad_entry(st, name, "'data_offsets' is not two whole numbers from 0 to 2^63-1");
    if (*begin > *end) return bad_entry(st, name, "'data_offsets' ends before it begins");
    return vx_ok();
}

// Bytes of dtype and shape. An axis of 0 makes them 0, but the other axes must fit all the same: strides are their products.
static vx_status entry_bytes(const vx_safetensors *st, const vx_safetensors_entry *e, uint64_t *bytes)
{
    int64_t bits = vx_dtype_bits(e->dtype);
    bool empty = false;
    for (int i = 0; i < e->rank; i++) {
        empty |= e->shape[i] == 0;
        if (e->shape[i] > 0 && !vx_mul_i64(bits, e->shape[i], &bits))
            return bad_entry(st, e->name, "its shape overflows 2^63 bits");
    }
    if (empty) bits = 0;
    if (bits % 8 != 0) return bad_entry(st, e->name, "its shape is not a whole number of bytes in its number format");
    *bytes = (uint64_t)bits / 8;
    return vx_ok();
}

static vx_status parse_entry(const vx_safetensors *st, const json_t *value, vx_safetensors_entry *e)
{
    if (!json_is_object(value)) return bad_entry(st, e->name, "its entry is not an object");
    const json_t *dtype = json_object_get(value, "dtype"), *shape = json_object_get(value, "shape"),
                 *offsets = json_object_get(value, "data_offsets");
    if (!dtype || !shape || !offsets) return bad_entry(st, e->name, "its entry lacks 'dtype', 'shape' or 'data_offsets'");
    if (json_object_size(value) != 3)
        return bad_entry(st, e->name, "its entry has other members than 'dtype', 'shape' and 'data_offsets'");
    uint64_t begin = 0, end = 0, bytes = 0;
    VX_TRY(parse_dtype(st, dtype, e));
    VX_TRY(parse_shape(st, shape, e));
    VX_TRY(parse_offsets(st, offsets, &begin, &end, e->name));
    VX_TRY(entry_bytes(st, e, &bytes));
    char text[96];
    if (end - begin != bytes)
        return vx_fail(VX_ERR_FILE_FORMAT, "%s: tensor '%s' takes %" PRIu64 " bytes, but %s of %s needs %" PRIu64,
                       vx_short_path(st->path), e->name, end - begin, shape_text(text, e->rank, e->shape),
                       vx_dtype_name(e->dtype), bytes);
    e->offset = begin; // relative until the whole table is known to be good
    e->bytes = bytes;
    return vx_ok();
}

// ---- the table ----

static int compare_offsets(const void *a, const void *b)
{
    const vx_safetensors_entry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1; // empty tensors first
    return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const vx_safetensors_entry *const *)a)->name, (*(const vx_safetensors_entry *const *)b)->name);
}

static vx_status check_metadata(vx_safetensors *st, json_t *metadata)
{
    if (!metadata) return vx_ok();
    if (!json_is_object(metadata))
        return vx_fail(VX_ERR_FILE_FORMAT, "%s: '__metadata__' is not an object", vx_short_path(st->path));
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return vx_fail(VX_ERR_FILE_FORMAT, "%s: '__metadata__' member '%.80s' is not a string", vx_short_path(st->path), key);
    }
    st->metadata = json_incref(metadata);
    return vx_ok();
}

static vx_status allocate(vx_safetensors *st, json_t *header, size_t count)
{
    size_t text = 0;
    const char *key;
    json_t *value;
    json_object_foreach(header, key, value) text += strlen(key) + 1;
    st->entries = vx_alloc_array(count, sizeof *st->entries);
    st->by_name = vx_alloc_array(count, sizeof(vx_safetensors_entry *));
    st->names = vx_alloc(text);
    if (!st->entries || !st->by_name || !st->names) return vx_no_memory("for the header of %s", vx_short_path(st->path));
    return vx_ok();
}

static vx_status fill(vx_safetensors *st, json_t *header)
{
    VX_TRY(check_metadata(st, json_object_get(header, "__metadata__")));
    size_t count = json_object_size(header) - (st->metadata ? 1 : 0);
    if (count > MOST_TENSORS)
        return vx_fail(VX_ERR_FILE_LIMIT, "%s has %zu tensors, at most %d", vx_short_path(st->path), count, MOST_TENSORS);
    VX_TRY(allocate(st, header, count));
    char *at = st->names;
    const char *key;
    json_t *value;
    json_object_foreach(header, key, value)
    {
        if (value == st->metadata) continue;
        size_t size = strlen(key);
        VX_TRY(check_name(st, key, size));
        vx_safetensors_entry *e = &st->entries[st->count++];
        e->name = memcpy(at, key, size + 1);
        at += size + 1;
        VX_TRY(parse_entry(st, value, e));
    }
    return vx_ok();
}

static vx_status check_tiling(vx_safetensors *st, uint64_t data_size, bool strict)
{
    const char *file = vx_short_path(st->path);
    uint64_t end = 0, start = LENGTH_BYTES + st->header_bytes;
    const char *cut = NULL; // the first tensor that is not wholly there
    for (int i = 0; i < st->count; i++) {
        vx_safetensors_entry *e = &st->entries[i];
        if (e->offset > end)
            return vx_fail(VX_ERR_FILE_FORMAT, "%s: %" PRIu64 " bytes before tensor '%s' belong to no tensor", file,
                           e->offset - end, e->name);
        if (e->offset < end)
            return vx_fail(VX_ERR_FILE_FORMAT, "%s: tensor '%s' overlaps tensor '%s'", file, e->name, st->entries[i - 1].name);
        end = e->offset + e->bytes; // no overflow: both are below 2^63
        if (end > data_size && !cut) cut = e->name;
    }
    if (cut)
        return vx_fail_remedy(VX_ERR_FILE_TRUNCATED, "the download is incomplete: fetch the file again",
                              "%s is %" PRIu64 " bytes, its header says %" PRIu64 ": tensor '%s' is cut off", file,
                              start + data_size, start + end, cut);
    st->trailing_bytes = data_size - end;
    if (end < data_size && strict)
        return vx_fail(VX_ERR_FILE_FORMAT, "%s: %" PRIu64 " bytes follow the last tensor", file, data_size - end);
    if (end < data_size)
        vx_log(VX_LOG_WARNING, "%s: %" PRIu64 " bytes follow the last tensor; they are not read", file, data_size - end);
    return vx_ok();
}

static void index_names(vx_safetensors *st)
{
    for (int i = 0; i < st->count; i++) st->by_name[i] = &st->entries[i];
    if (st->count > 1) qsort(st->by_name, (size_t)st->count, sizeof(vx_safetensors_entry *), compare_names);
}

// ---- the header's text ----

typedef struct span {
    const char *text;
    size_t size;
} span;

static int compare_keys(const void *a, const void *b)
{
    const span *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

typedef struct census {
    size_t keys;               // of the outer object
    size_t containers, commas; // everywhere, outside strings
} census;

// One pass without memory; `keys` NULL only counts, else it takes the outer object's keys as written.
static census count_header(const char *text, size_t size, span *keys)
{
    census c = { 0 };
    int depth = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '{' || text[i] == '[') depth++, c.containers++;
        else if (text[i] == '}' || text[i] == ']') depth--;
        c.commas += text[i] == ',';
        if (text[i] != '"') continue;
        size_t begin = i + 1;
        for (i++; i < size && text[i] != '"'; i++)
            if (text[i] == '\\') i++;
        size_t next = i + 1;
        while (next < size && strchr(" \t\r\n", text[next]) && text[next]) next++;
        if (depth != 1 || next >= size || text[next] != ':') continue;
        if (keys) keys[c.keys] = (span){ text + begin, i - begin };
        c.keys++;
    }
    return c;
}

// Before the parser builds its tree, which can be seventy times the text: 100 MB of "{}," would be 7 GB.
static vx_status limit_values(const vx_safetensors *st, const char *text, size_t size)
{
    const char *file = vx_short_path(st->path);
    census c = count_header(text, size, NULL);
    if (c.keys > MOST_TENSORS + 1)
        return vx_fail(VX_ERR_FILE_LIMIT, "%s has %zu tensors, at most %d", file, c.keys, MOST_TENSORS);
    if (c.containers > MOST_CONTAINERS || c.commas > MOST_COMMAS)
        return vx_fail(VX_ERR_FILE_LIMIT, "%s: the header has %zu lists and objects and %zu commas, at most %d and %d", file,
                       c.containers, c.commas, MOST_CONTAINERS, MOST_COMMAS);
    return vx_ok();
}

// The parser names a duplicate only when it is short and not where it stands, so a refused header is searched once more:
// a tensor that is there twice is told from any other fault.
static vx_status explain(const vx_safetensors *st, const char *text, size_t size, vx_status fault)
{
    size_t count = count_header(text, size, NULL).keys;
    if (count < 2) return fault;
    span *keys = vx_alloc_array(count, sizeof *keys);
    VX_NEED_MEMORY(keys, "the names of a header");
    count_header(text, size, keys);
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count; i++) {
        if (compare_keys(&keys[i - 1], &keys[i]) != 0) continue;
        static const char metadata[] = "__metadata__";
        bool is_metadata = keys[i].size == sizeof metadata - 1 && memcmp(keys[i].text, metadata, keys[i].size) == 0;
        fault = vx_fail(is_metadata ? VX_ERR_FILE_FORMAT : VX_ERR_TENSOR_DUPLICATE, "%s: %s'%.*s' is in the header twice",
                        vx_short_path(st->path), is_metadata ? "" : "tensor ", keys[i].size < 200 ? (int)keys[i].size : 200,
                        keys[i].text);
        break;
    }
    vx_free(keys);
    return fault;
}

static vx_status parse(vx_safetensors *st, const char *text, size_t size, uint64_t data_size, bool strict)
{
    st->header_bytes = size;
    if (size > MOST_HEADER)
        return vx_fail(VX_ERR_FILE_LIMIT, "%s: the header is %zu bytes, at most %d", vx_short_path(st->path), size, MOST_HEADER);
    // Published files are padded with up to 8 MiB of spaces.
    while (size > 0 && strchr(" \t\r\n", text[size - 1]) && text[size - 1]) size--;
    VX_TRY(limit_values(st, text, size));
    json_t *header;
    vx_status s = vx_json_parse(&header, text, size, MOST_DEPTH, VX_ERR_FILE_FORMAT, vx_short_path(st->path));
    if (s.code == VX_ERR_FILE_FORMAT) return explain(st, text, size, s);
    if (s.code != VX_OK) return s;
    s = json_is_object(header) ? fill(st, header)
                               : vx_fail(VX_ERR_FILE_FORMAT, "%s: the header is not a JSON object", vx_short_path(st->path));
    json_decref(header);
    if (s.code != VX_OK) return s;
    if (st->count > 1) qsort(st->entries, (size_t)st->count, sizeof *st->entries, compare_offsets);
    VX_TRY(check_tiling(st, data_size, strict));
    for (int i = 0; i < st->count; i++) st->entries[i].offset += LENGTH_BYTES + st->header_bytes;
    index_names(st);
    return vx_ok();
}

// ---- opening ----

// Faults of a user's input are the 7000s.
static vx_status told_as(bool input, vx_status s)
{
    if (!input || s.code / 1000 != 3) return s;
    s.code = s.code == VX_ERR_MODEL_OPEN ? VX_ERR_INPUT_OPEN : VX_ERR_INPUT_FORMAT;
    return s;
}

// NULL: no memory.
static vx_safetensors *create(const char *path, bool input)
{
    vx_safetensors *st = vx_alloc_array(1, sizeof *st);
    if (!st) return NULL;
    st->path = vx_strdup(path);
    st->input = input;
    if (!st->path) vx_safetensors_close(&st);
    return st;
}

static vx_status open_mapped(vx_safetensors *st, bool strict)
{
    const char *file = vx_short_path(st->path);
    const uint8_t *data = vx_mapping_data(st->map);
    uint64_t size = vx_mapping_size(st->map), length = 0;
    VX_TRY(vx_refuse_pickle_name(st->path));
    if (size < LENGTH_BYTES)
        return vx_fail_remedy(VX_ERR_FILE_TRUNCATED, "fetch the file again",
                              "%s is %" PRIu64 " bytes, expected at least %d: the header's length and a header", file, size,
                              LENGTH_BYTES);
    for (int i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)data[i] << 8 * i;
    if (length > MOST_HEADER) {
        // No other file in circulation begins with eight bytes that are a possible length, so only here a look is needed.
        VX_TRY(vx_refuse_foreign(data, size < 512 ? (size_t)size : 512, st->path));
        return vx_fail(VX_ERR_FILE_LIMIT,
                       "%s: the header would be %" PRIu64 " bytes, at most %d; the file may not be safetensors", file, length,
                       MOST_HEADER);
    }
    if (length > size - LENGTH_BYTES)
        return vx_fail_remedy(VX_ERR_FILE_TRUNCATED, "the download is incomplete: fetch the file again",
                              "%s is %" PRIu64 " bytes, its header alone ends at %" PRIu64, file, size, LENGTH_BYTES + length);
    VX_TRY(parse(st, (const char *)data + LENGTH_BYTES, (size_t)length, size - LENGTH_BYTES - length, strict));
    for (int i = 0; i < st->count; i++) st->entries[i].data = data + st->entries[i].offset;
    return vx_file_check(st->map);
}

vx_status vx_safetensors_open(vx_safetensors **out, const char *path, const vx_safetensors_params *params)
{
    vx_safetensors_params p = params ? *params : (vx_safetensors_params){ 0 };
    *out = NULL;
    vx_safetensors *st = create(path, p.input);
    VX_NEED_MEMORY(st, path);
    vx_status s = vx_refuse_dangling(path, VX_ERR_MODEL_OPEN);
    if (s.code == VX_OK) s = vx_file_map(&st->map, path, VX_ERR_MODEL_OPEN);
    if (s.code == VX_OK) s = open_mapped(st, p.strict);
    if (s.code != VX_OK) {
        vx_safetensors_close(&st);
        return told_as(p.input, s);
    }
    *out = st;
    return s;
}

vx_status vx_safetensors_parse(vx_safetensors **out, const void *header, size_t size, uint64_t data_size, const char *path)
{
    *out = NULL;
    vx_safetensors *st = create(path, false);
    VX_NEED_MEMORY(st, path);
    vx_status s = parse(st, header, size, data_size, false);
    if (s.code != VX_OK) vx_safetensors_close(&st);
    *out = st;
    return s;
}

void vx_safetensors_close(vx_safetensors **out)
{
    vx_safetensors *st = *out;
    if (!st) return;
    vx_file_unmap(&st->map);
    json_decref(st->metadata);
    vx_free(st->entries);
    vx_free(st->by_name);
    vx_free(st->names);
    vx_free(st->path);
    vx_free(st);
    *out = NULL;
}

// ---- looking ----

const char *vx_safetensors_path(const vx_safetensors *st)
{
    return st->path;
}

int vx_safetensors_count(const vx_safetensors *st)
{
    return st->count;
}

const vx_safetensors_entry *vx_safetensors_at(const vx_safetensors *st, int i)
{
    return i >= 0 && i < st->count ? &st->entries[i] : NULL;
}

const vx_safetensors_entry *vx_safetensors_find(const vx_safetensors *st, const char *name)
{
    int low = 0, high = st->count;
    while (low < high) {
        int middle = low + (high - low) / 2, order = strcmp(st->by_name[middle]->name, name);
        if (order == 0) return st->by_name[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

const char *vx_safetensors_metadata(const vx_safetensors *st, const char *key)
{
    return st->metadata ? json_string_value(json_object_get(st->metadata, key)) : NULL;
}

uint64_t vx_safetensors_header_bytes(const vx_safetensors *st)
{
    return st->header_bytes;
}

uint64_t vx_safetensors_trailing_bytes(const vx_safetensors *st)
{
    return st->trailing_bytes;
}

vx_status vx_safetensors_check(const vx_safetensors *st)
{
    return st->map ? told_as(st->input, vx_file_check(st->map)) : vx_ok();
}

void vx_safetensors_prefetch(const vx_safetensors *st, uint64_t offset, uint64_t bytes)
{
    if (st->map) vx_mapping_prefetch(st->map, (size_t)offset, (size_t)bytes);
}

// ---- copying to f32 ----

// Any alignment, hence memcpy. false: not a floating-point format that stands alone.
static bool widen(float *out, const uint8_t *in, int64_t count, vx_dtype dtype)
{
    switch (dtype) {
    case VX_F32:
        if (count > 0) memcpy(out, in, (size_t)count * 4);
        return true;
    case VX_BF16:
    case VX_F16:
        for (int64_t i = 0; i < count; i++) {
            uint16_t half;
            memcpy(&half, in + 2 * i, 2);
            out[i] = dtype == VX_BF16 ? vx_bf16_to_f32(half) : vx_f16_to_f32(half);
        }
        return true;
    case VX_F64:
        for (int64_t i = 0; i < count; i++) {
            double number;
            memcpy(&number, in + 8 * i, 8);
            out[i] = (float)number;
        }
        return true;
    case VX_F8_E4M3:
        for (int64_t i = 0; i < count; i++) out[i] = vx_e4m3_to_f32(in[i]);
        return true;
    case VX_F8_E5M2:
        for (int64_t i = 0; i < count; i++) out[i] = vx_e5m2_to_f32(in[i]);
        return true;
    default: return false;
    }
}

static vx_status read_f32(const vx_safetensors *st, const char *name, int rank, const int64_t *shape, float *out)
{
    const char *file = vx_short_path(st->path);
    const vx_safetensors_entry *e = vx_safetensors_find(st, name);
    if (!e) return vx_fail(VX_ERR_TENSOR_MISSING, "%s: tensor '%s' is missing", file, name);
    bool same = e->rank == rank;
    for (int i = 0; same && i < rank; i++) same = shape[i] == -1 || shape[i] == e->shape[i];
    if (!same) {
        char a[96], b[96];
        return vx_fail(VX_ERR_TENSOR_SHAPE, "%s: tensor '%s': shape %s, expected %s (-1: any)", file, name,
                       shape_text(a, e->rank, e->shape), shape_text(b, rank, shape));
    }
    if (!e->data) return vx_fail(VX_ERR_INTERNAL, "%s: only the header was read", file);
    int64_t count = (int64_t)(e->bytes * 8) / vx_dtype_bits(e->dtype);
    if (!widen(out, e->data, count, e->dtype))
        return vx_fail(VX_ERR_TENSOR_DTYPE, "%s: tensor '%s' is %s, expected F32, BF16, F16 or another float", file, name,
                       vx_dtype_name(e->dtype));
    return vx_file_check(st->map);
}

vx_status vx_safetensors_read_f32(const vx_safetensors *st, const char *name, int rank, const int64_t *shape, float *out)
{
    return told_as(st->input, read_f32(st, name, rank, shape, out));
}
