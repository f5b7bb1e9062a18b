#include "weights/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/str.h"
#include "tensor/quant.h"
#include "weights/foreign.h"

enum {
    MOST_TENSORS = 65536,
    MOST_PAIRS = 65536,
    MOST_NAME = 4096,
    MOST_DIMS = 4, // ggml's own
    MOST_ALIGNMENT = 65536,
    USUAL_ALIGNMENT = 32,
    PAIR_BYTES = 8 + 1 + 4 + 1,       // the least that a key with its value takes
    TENSOR_BYTES = 8 + 1 + 4 + 4 + 8, // the least that a tensor's description takes
};

// The types of metadata values, by number.
enum { KIND_TEXT = 8, KIND_LIST = 9, KIND_U32 = 4, KIND_I32 = 5 };
static const uint8_t value_bytes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
enum { KINDS = sizeof value_bytes };

typedef struct text {
    const char *data;
    size_t size;
} text;

typedef struct pair {
    text key;
    uint32_t kind, of; // `of`: kind of a list's elements
    uint64_t count;    // elements of a list
    const uint8_t *value;
    size_t size; // bytes of a text or of a list of numbers
} pair;

struct vx_gguf {
    char *path;
    vx_mapping *map; // NULL: parsed from memory
    int count, pairs;
    vx_safetensors_entry *entries; // by offset
    pair *pair;                    // by key
    char *names;
};

// ---- reading in bounds ----

typedef struct cursor {
    const vx_gguf *g;
    const uint8_t *begin, *at, *end;
} cursor;

static size_t left(const cursor *c)
{
    return (size_t)(c->end - c->at);
}

static vx_status ends(const cursor *c, const char *what)
{
    return vx_fail_remedy(VX_ERR_FILE_TRUNCATED, "the download is incomplete: fetch the file again",
                          "%s is %zu bytes and ends inside %s at %zu", vx_short_path(c->g->path), (size_t)(c->end - c->begin),
                          what, (size_t)(c->at - c->begin));
}

static vx_status take(cursor *c, size_t bytes, uint64_t *out, const char *what)
{
    *out = 0;
    if (left(c) < bytes) return ends(c, what);
    for (size_t i = 0; i < bytes; i++) *out |= (uint64_t)c->at[i] << 8 * i;
    c->at += bytes;
    return vx_ok();
}

static vx_status take_u32(cursor *c, uint32_t *out, const char *what)
{
    uint64_t wide;
    VX_TRY(take(c, 4, &wide, what));
    *out = (uint32_t)wide;
    return vx_ok();
}

static vx_status take_text(cursor *c, text *out, const char *what)
{
    uint64_t size;
    VX_TRY(take(c, 8, &size, what));
    if (size > left(c)) return ends(c, what);
    *out = (text){ (const char *)c->at, (size_t)size };
    c->at += size;
    return vx_ok();
}

// A key or a tensor's name.
static vx_status take_name(cursor *c, text *out, const char *what)
{
    VX_TRY(take_text(c, out, what));
    const char *file = vx_short_path(c->g->path);
    if (out->size > MOST_NAME)
        return vx_fail(VX_ERR_FILE_LIMIT, "%s: %s has %zu bytes, at most %d", file, what, out->size, MOST_NAME);
    bool fine = out->size > 0 && vx_utf8_valid(out->data, out->size, NULL);
    for (size_t i = 0; fine && i < out->size; i++) fine = (unsigned char)out->data[i] >= 0x20 && out->data[i] != 0x7f;
    if (fine) return vx_ok();
    return vx_fail(VX_ERR_FILE_FORMAT, "%s: %s is empty, no UTF-8, or has control characters", file, what);
}

// ---- metadata ----

static vx_status bad_kind(const cursor *c, const pair *p, uint32_t kind, const char *what)
{
    return vx_fail(VX_ERR_FILE_FORMAT, "%s: the metadata '%.*s' %s type %" PRIu32, vx_short_path(c->g->path),
                   (int)(p->key.size < 200 ? p->key.size : 200), p->key.data, what, kind);
}

static vx_status take_list(cursor *c, pair *p)
{
    VX_TRY(take_u32(c, &p->of, "a list"));
    VX_TRY(take(c, 8, &p->count, "a list"));
    if (p->of >= KINDS || p->of == KIND_LIST) return bad_kind(c, p, p->of, "is a list of");
    p->value = c->at;
    if (p->of == KIND_TEXT) {
        if (p->count > left(c) / 8) return ends(c, "a list of texts");
        for (uint64_t i = 0; i < p->count; i++) {
            text ignored;
            VX_TRY(take_text(c, &ignored, "a list of texts"));
        }
        return vx_ok();
    }
    if (p->count > left(c) / value_bytes[p->of]) return ends(c, "a list");
    p->size = (size_t)p->count * value_bytes[p->of];
    c->at += p->size;
    return vx_ok();
}

static vx_status take_pair(cursor *c, pair *p)
{
    VX_TRY(take_name(c, &p->key, "a metadata key"));
    VX_TRY(take_u32(c, &p->kind, "the metadata"));
    if (p->kind >= KINDS) return bad_kind(c, p, p->kind, "has");
    if (p->kind == KIND_LIST) return take_list(c, p);
    if (p->kind == KIND_TEXT) {
        text value;
        VX_TRY(take_text(c, &value, "a text of the metadata"));
        p->value = (const uint8_t *)value.data;
        p->size = value.size;
        return vx_ok();
    }
    p->value = c->at;
    p->size = value_bytes[p->kind];
    if (left(c) < p->size) return ends(c, "the metadata");
    c->at += p->size;
    return vx_ok();
}

static int compare_text(text a, text b)
{
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

static int compare_pairs(const void *a, const void *b)
{
    return compare_text(((const pair *)a)->key, ((const pair *)b)->key);
}

static vx_status take_pairs(vx_gguf *g, cursor *c, uint64_t count)
{
    const char *file = vx_short_path(g->path);
    if (count > MOST_PAIRS)
        return vx_fail(VX_ERR_FILE_LIMIT, "%s: %" PRIu64 " metadata values, at most %d", file, count, MOST_PAIRS);
    if (count > left(c) / PAIR_BYTES) return ends(c, "the metadata");
    g->pair = vx_alloc_array((size_t)count, sizeof *g->pair);
    VX_NEED_MEMORY(g->pair, "a file's metadata");
    for (; g->pairs < (int)count; g->pairs++) VX_TRY(take_pair(c, &g->pair[g->pairs]));
    if (count > 1) qsort(g->pair, (size_t)count, sizeof *g->pair, compare_pairs);
    for (int i = 1; i < g->pairs; i++)
        if (compare_pairs(&g->pair[i - 1], &g->pair[i]) == 0)
            return vx_fail(VX_ERR_FILE_FORMAT, "%s: the metadata '%.*s' is there twice", file,
                           (int)(g->pair[i].key.size < 200 ? g->pair[i].key.size : 200), g->pair[i].key.data);
    return vx_ok();
}

static const pair *find_pair(const vx_gguf *g, const char *key)
{
    int low = 0, high = g->pairs;
    const text wanted = { key, strlen(key) };
    while (low < high) {
        int middle = low + (high - low) / 2, order = compare_text(g->pair[middle].key, wanted);
        if (order == 0) return &g->pair[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

static uint32_t number_of(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static vx_status read_alignment(const vx_gguf *g, uint32_t *out)
{
    const pair *p = find_pair(g, "general.alignment");
    *out = USUAL_ALIGNMENT;
    if (!p) return vx_ok();
    const char *file = vx_short_path(g->path);
    if (p->kind != KIND_U32)
        return vx_fail(VX_ERR_FILE_FORMAT, "%s: general.alignment has type %" PRIu32 ", expected %d", file, p->kind, KIND_U32);
    *out = number_of(p->value);
    if (*out >= 1 && *out <= MOST_ALIGNMENT && (*out & (*out - 1)) == 0) return vx_ok();
    return vx_fail(VX_ERR_FILE_FORMAT, "%s: general.alignment is %" PRIu32 ", expected a power of two up to %d", file, *out,
                   MOST_ALIGNMENT);
}

// ---- tensors ----

// ggml's numbers of formats that are no blocks.
static vx_dtype plain_dtype(uint32_t type)
{
    switch (type) {
    case 0: return VX_F32;
    case 1: return VX_F16;
    case 24: return VX_I8;
    case 25: return VX_I16;
    case 26: return VX_I32;
    case 27: return VX_I64;
    case 28: return VX_F64;
    case 30: return VX_BF16;
    default: return VX_DTYPE_NONE;
    }
}

static vx_status unknown_type(const vx_gguf *g, const char *name, uint32_t type)
{
    const char *known = type < 256 ? vx_gguf_name((int)type) : NULL;
    return vx_fail_remedy(VX_ERR_QUANT_FORMAT, "use a file in one of Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, F16, BF16",
                          "%s: tensor '%.160s' is stored as ggml type %" PRIu32 "%s%s%s, which is not supported",
                          vx_short_path(g->path), name, type, known ? " (" : "", known ? known : "", known ? ")" : "");
}

// Bytes from shape and type; ggml's first axis, our last, is cut into blocks.
static vx_status size_of(const vx_gguf *g, vx_safetensors_entry *e, uint32_t type)
{
    const char *file = vx_short_path(g->path);
    int64_t count = 1, bytes;
    for (int i = 0; i < e->rank; i++)
        if (!vx_mul_i64(count, e->shape[i], &count))
            return vx_fail(VX_ERR_FILE_FORMAT, "%s: the sizes of tensor '%.200s' multiply to more than 2^63", file, e->name);
    e->dtype = plain_dtype(type);
    int64_t block = 1, block_bytes = vx_dtype_bits(e->dtype) / 8;
    if (e->dtype == VX_DTYPE_NONE) {
        block = type < 256 ? vx_gguf_block((int)type) : 0;
        if (block == 0) return unknown_type(g, e->name, type);
        block_bytes = vx_gguf_block_bytes((int)type);
        e->dtype = VX_U8;
        e->ggml = (int)type;
    }
    const int64_t row = e->rank > 0 ? e->shape[e->rank - 1] : 1;
    if (row % block && count % block == 0)
        return vx_fail_remedy(VX_ERR_QUANT_FORMAT, "use a file whose rows are whole blocks",
                              "%s: tensor '%.200s' packs blocks of %" PRId64 " (%s) across its rows of %" PRId64
                              " weights, which is not supported",
                              file, e->name, block, vx_gguf_name((int)type), row);
    if (row % block)
        return vx_fail(VX_ERR_FILE_FORMAT,
                       "%s: tensor '%.200s' has rows of %" PRId64 " weights, expected a multiple of %" PRId64 " for %s", file,
                       e->name, row, block, vx_gguf_name((int)type));
    if (!vx_mul_i64(count / block, block_bytes, &bytes))
        return vx_fail(VX_ERR_FILE_FORMAT, "%s: the bytes of tensor '%.200s' are more than 2^63", file, e->name);
    e->bytes = (uint64_t)bytes;
    return vx_ok();
}

// The shape before it was folded into four axes, if the exporter wrote it down and rows stay whole blocks.
static void unfold(const vx_gguf *g, vx_safetensors_entry *e)
{
    char key[MOST_NAME + 64];
    snprintf(key, sizeof key, "comfy.gguf.orig_shape.%s", e->name);
    const pair *p = find_pair(g, key);
    if (!p || p->kind != KIND_LIST || p->of != KIND_I32 || p->count < 1 || p->count > VX_MAX_RANK) return;
    int64_t shape[VX_MAX_RANK] = { 0 }, count = 1, have = 1;
    for (int i = 0; i < e->rank; i++) have *= e->shape[i];
    for (uint64_t i = 0; i < p->count; i++) {
        shape[i] = (int32_t)number_of(p->value + 4 * i);
        if (shape[i] < 1 || !vx_mul_i64(count, shape[i], &count)) return;
    }
    if (count != have || (e->ggml && shape[p->count - 1] % vx_gguf_block(e->ggml))) return;
    e->rank = (int)p->count;
    memcpy(e->shape, shape, sizeof(int64_t) * (size_t)p->count);
}

static vx_status take_tensor(vx_gguf *g, cursor *c, vx_safetensors_entry *e, char **pool)
{
    text name;
    uint32_t dims, type;
    VX_TRY(take_name(c, &name, "a tensor's name"));
    e->name = memcpy(*pool, name.data, name.size);
    (*pool)[name.size] = 0;
    *pool += name.size + 1;
    VX_TRY(take_u32(c, &dims, "the table of tensors"));
    if (dims > MOST_DIMS)
        return vx_fail(VX_ERR_FILE_LIMIT, "%s: tensor '%.200s' has %" PRIu32 " dimensions, at most %d", vx_short_path(g->path),
                       e->name, dims, MOST_DIMS);
    e->rank = (int)dims;
    for (int i = e->rank - 1; i >= 0; i--) {
        uint64_t extent;
        VX_TRY(take(c, 8, &extent, "the table of tensors"));
        if (extent < 1 || extent > INT64_MAX)
            return vx_fail(VX_ERR_FILE_FORMAT, "%s: tensor '%.200s' has a dimension of %" PRIu64 ", expected 1 to 2^63-1",
                           vx_short_path(g->path), e->name, extent);
        e->shape[i] = (int64_t)extent;
    }
    VX_TRY(take_u32(c, &type, "the table of tensors"));
    VX_TRY(take(c, 8, &e->offset, "the table of tensors"));
    VX_TRY(size_of(g, e, type));
    unfold(g, e);
    return vx_ok();
}

static int compare_offsets(const void *a, const void *b)
{
    const vx_safetensors_entry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static vx_status check_unique(const vx_gguf *g)
{
    const char **names = vx_alloc_array((size_t)g->count, sizeof *names);
    VX_NEED_MEMORY(names, "tensor names");
    for (int i = 0; i < g->count; i++) names[i] = g->entries[i].name;
    if (g->count > 1) qsort(names, (size_t)g->count, sizeof *names, compare_names);
    vx_status s = vx_ok();
    for (int i = 1; i < g->count && s.code == VX_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            s = vx_fail(VX_ERR_TENSOR_DUPLICATE, "%s: tensor '%.200s' is in the file twice", vx_short_path(g->path), names[i]);
    vx_free(names);
    return s;
}

// Offsets become those of the file. Holes are padding.
static vx_status place(vx_gguf *g, const cursor *c, uint32_t alignment)
{
    const char *file = vx_short_path(g->path);
    const uint64_t size = (uint64_t)(c->end - c->begin), head = (uint64_t)(c->at - c->begin);
    const uint64_t start = (head + alignment - 1) & ~(uint64_t)(alignment - 1);
    uint64_t end = start;
    for (int i = 0; i < g->count; i++) {
        vx_safetensors_entry *e = &g->entries[i];
        if (e->offset % alignment)
            return vx_fail(VX_ERR_FILE_FORMAT, "%s: tensor '%.200s' begins at %" PRIu64 ", expected a multiple of %" PRIu32, file,
                           e->name, e->offset, alignment);
        if (start > size || e->offset > size - start || e->bytes > size - start - e->offset)
            return vx_fail_remedy(VX_ERR_FILE_TRUNCATED, "the download is incomplete: fetch the file again",
                                  "%s is %" PRIu64 " bytes; tensor '%.200s' has %" PRIu64 " at %" PRIu64
                                  " behind a head of %" PRIu64,
                                  file, size, e->name, e->bytes, e->offset, start);
        e->offset += start;
        if (e->offset < end)
            return vx_fail(VX_ERR_FILE_FORMAT, "%s: tensor '%.200s' begins inside the one before it", file, e->name);
        end = e->offset + e->bytes;
        e->data = c->begin + e->offset;
    }
    return vx_ok();
}

static vx_status take_tensors(vx_gguf *g, cursor *c, uint64_t count)
{
    if (count > MOST_TENSORS)
        return vx_fail(VX_ERR_FILE_LIMIT, "%s: %" PRIu64 " tensors, at most %d", vx_short_path(g->path), count, MOST_TENSORS);
    if (count > left(c) / TENSOR_BYTES) return ends(c, "the table of tensors");
    g->entries = vx_alloc_array((size_t)count, sizeof *g->entries);
    // A name's length takes eight bytes in the file and its end one here.
    g->names = vx_alloc(left(c) < (size_t)count * (MOST_NAME + 1) ? left(c) : (size_t)count * (MOST_NAME + 1));
    if (!g->entries || !g->names) return vx_no_memory("for the tensors of %s", vx_short_path(g->path));
    char *pool = g->names;
    for (; g->count < (int)count; g->count++) VX_TRY(take_tensor(g, c, &g->entries[g->count], &pool));
    VX_TRY(check_unique(g));
    if (g->count > 1) qsort(g->entries, (size_t)g->count, sizeof *g->entries, compare_offsets);
    return vx_ok();
}

// ---- the file ----

static vx_status read_version(vx_gguf *g, cursor *c)
{
    uint32_t version;
    const char *file = vx_short_path(g->path);
    if (!vx_gguf_is(c->begin, left(c))) return vx_fail(VX_ERR_FILE_FORMAT, "%s does not begin with 'GGUF'", file);
    c->at += 4;
    VX_TRY(take_u32(c, &version, "the head"));
    if (version == 2 || version == 3) return vx_ok();
    if ((version & 0xffff) == 0)
        return vx_fail(VX_ERR_FILE_FORMAT, "%s is a big-endian GGUF file; only little-endian ones are read", file);
    return vx_fail(VX_ERR_FILE_FORMAT, "%s is GGUF version %" PRIu32 ", expected 2 or 3", file, version);
}

static vx_status parse(vx_gguf *g, const void *bytes, size_t size)
{
    cursor c = { .g = g, .begin = bytes, .at = bytes, .end = (const uint8_t *)bytes + size };
    uint64_t tensors, pairs;
    uint32_t alignment;
    VX_TRY(read_version(g, &c));
    VX_TRY(take(&c, 8, &tensors, "the head"));
    VX_TRY(take(&c, 8, &pairs, "the head"));
    VX_TRY(take_pairs(g, &c, pairs));
    VX_TRY(read_alignment(g, &alignment));
    VX_TRY(take_tensors(g, &c, tensors));
    return place(g, &c, alignment);
}

static vx_gguf *create(const char *path)
{
    vx_gguf *g = vx_alloc_array(1, sizeof *g);
    if (!g) return NULL;
    g->path = vx_strdup(path);
    if (!g->path) vx_gguf_close(&g);
    return g;
}

static vx_status finish(vx_gguf **out, vx_gguf *g, vx_status s)
{
    if (s.code != VX_OK) vx_gguf_close(&g);
    *out = g;
    return s;
}

vx_status vx_gguf_open(vx_gguf **out, const char *path)
{
    *out = NULL;
    vx_gguf *g = create(path);
    VX_NEED_MEMORY(g, path);
    vx_status s = vx_refuse_dangling(path, VX_ERR_MODEL_OPEN);
    if (s.code == VX_OK) s = vx_file_map(&g->map, path, VX_ERR_MODEL_OPEN);
    if (s.code == VX_OK) s = parse(g, vx_mapping_data(g->map), vx_mapping_size(g->map));
    if (s.code == VX_OK) s = vx_file_check(g->map);
    return finish(out, g, s);
}

vx_status vx_gguf_parse(vx_gguf **out, const void *bytes, size_t size, const char *path)
{
    *out = NULL;
    vx_gguf *g = create(path);
    VX_NEED_MEMORY(g, path);
    return finish(out, g, parse(g, bytes, size));
}

void vx_gguf_close(vx_gguf **out)
{
    vx_gguf *g = *out;
    if (!g) return;
    vx_file_unmap(&g->map);
    vx_free(g->entries);
    vx_free(g->pair);
    vx_free(g->names);
    vx_free(g->path);
    vx_free(g);
    *out = NULL;
}

bool vx_gguf_is(const void *bytes, size_t size)
{
    return size >= 4 && memcmp(bytes, "GGUF", 4) == 0;
}

const char *vx_gguf_path(const vx_gguf *g)
{
    return g->path;
}

int vx_gguf_count(const vx_gguf *g)
{
    return g->count;
}

const vx_safetensors_entry *vx_gguf_at(const vx_gguf *g, int i)
{
    return i >= 0 && i < g->count ? &g->entries[i] : NULL;
}

int vx_gguf_metadata_count(const vx_gguf *g)
{
    return g->pairs;
}

const char *vx_gguf_text(const vx_gguf *g, const char *key, size_t *size)
{
    const pair *p = find_pair(g, key);
    if (!p || p->kind != KIND_TEXT) return NULL;
    *size = p->size;
    return (const char *)p->value;
}

vx_status vx_gguf_check(const vx_gguf *g)
{
    return g->map ? vx_file_check(g->map) : vx_ok();
}

void vx_gguf_prefetch(const vx_gguf *g, uint64_t offset, uint64_t bytes)
{
    if (g->map) vx_mapping_prefetch(g->map, (size_t)offset, (size_t)bytes);
}
