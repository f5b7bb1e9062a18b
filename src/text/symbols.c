#include "text/symbols.h"

#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "text/unicode.h"

enum { EMPTY = -1 };

vx_status vx_symbols_init(vx_symbols *s, size_t capacity, size_t bytes)
{
    size_t slots = 1024;
    while (slots < capacity * 2) slots *= 2;
    *s = (vx_symbols){ .capacity = capacity, .mask = slots - 1, .room = bytes };
    s->symbol = vx_alloc_array(capacity + 1, sizeof *s->symbol);
    s->slot = vx_alloc_array(slots, sizeof *s->slot);
    s->memory = vx_alloc(bytes + 1);
    if (!s->symbol || !s->slot || !s->memory) {
        vx_symbols_free(s);
        return vx_no_memory("for a vocabulary of %zu symbols", capacity);
    }
    memset(s->slot, 0xff, slots * sizeof *s->slot); // EMPTY
    return vx_ok();
}

void vx_symbols_free(vx_symbols *s)
{
    vx_free(s->symbol);
    vx_free(s->slot);
    vx_free(s->memory);
    *s = (vx_symbols){ 0 };
}

// FNV-1a: can be continued from one part of a symbol to the next.
static uint32_t hash_more(uint32_t h, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)p[i]) * 16777619u;
    return h;
}

static uint32_t hash_of(const char *a, size_t a_size, const char *b, size_t b_size)
{
    uint32_t h = hash_more(hash_more(2166136261u, a, a_size), b, b_size);
    return h ^ h >> 15; // the low bits of FNV-1a alone cluster for short symbols
}

static bool spells(const vx_symbol *x, const char *a, size_t a_size, const char *b, size_t b_size)
{
    return x->size == a_size + b_size && memcmp(x->text, a, a_size) == 0 && memcmp(x->text + a_size, b, b_size) == 0;
}

// The slot that holds the symbol, or the empty one where it would go.
static size_t slot_of(const vx_symbols *s, uint32_t hash, const char *a, size_t a_size, const char *b, size_t b_size)
{
    size_t i = hash & s->mask;
    for (; s->slot[i] != EMPTY; i = (i + 1) & s->mask) {
        const vx_symbol *x = &s->symbol[s->slot[i]];
        if (x->hash == hash && spells(x, a, a_size, b, b_size)) break;
    }
    return i;
}

vx_symbol *vx_symbols_find(const vx_symbols *s, const char *a, size_t a_size, const char *b, size_t b_size)
{
    size_t i = slot_of(s, hash_of(a, a_size, b, b_size), a, a_size, b, b_size);
    return s->slot[i] == EMPTY ? NULL : &s->symbol[s->slot[i]];
}

vx_symbol *vx_symbols_add(vx_symbols *s, const char *a, size_t a_size, const char *b, size_t b_size, int32_t id)
{
    uint32_t hash = hash_of(a, a_size, b, b_size);
    size_t i = slot_of(s, hash, a, a_size, b, b_size), size = a_size + b_size;
    if (s->slot[i] != EMPTY || s->count == s->capacity || size > s->room - s->used) return NULL;
    char *copy = s->memory + s->used;
    memcpy(copy, a, a_size);
    memcpy(copy + a_size, b, b_size);
    s->used += size;
    s->slot[i] = (int32_t)s->count;
    s->symbol[s->count] = (vx_symbol){ copy, (uint32_t)size, hash, id, false };
    return &s->symbol[s->count++];
}

// ---- the JSON of vocab.json ----
typedef struct reader {
    const char *text, *what;
    size_t at, size;
} reader;

static vx_status malformed(const reader *r, const char *expected)
{
    return vx_fail(VX_ERR_TOKENIZER, "%s: byte %zu: expected %s", r->what, r->at,
                   r->at < r->size ? expected : "more: the file is cut");
}

static void skip_space(reader *r)
{
    while (r->at < r->size &&
           (r->text[r->at] == ' ' || r->text[r->at] == '\n' || r->text[r->at] == '\r' || r->text[r->at] == '\t'))
        r->at++;
}

static bool take(reader *r, char c)
{
    skip_space(r);
    if (r->at >= r->size || r->text[r->at] != c) return false;
    r->at++;
    return true;
}

static bool hex4(reader *r, int32_t *out)
{
    if (r->size - r->at < 4) return false;
    *out = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        char c = r->text[r->at];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return false;
        *out = *out << 4 | digit;
    }
    return true;
}

// After a backslash. Writes at most 4 bytes, never more than were read.
static bool unescape(reader *r, char *to, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", plain[] = "\"\\/\b\f\n\r\t";
    if (r->at >= r->size) return false;
    char c = r->text[r->at++];
    const char *p = c ? strchr(from, c) : NULL;
    if (p) {
        to[(*n)++] = plain[p - from];
        return true;
    }
    int32_t code, low;
    if (c != 'u' || !hex4(r, &code) || code == 0 || (code >= 0xdc00 && code <= 0xdfff)) return false;
    if (code >= 0xd800 && code <= 0xdbff) {
        if (r->size - r->at < 2 || r->text[r->at] != '\\' || r->text[r->at + 1] != 'u') return false;
        r->at += 2;
        if (!hex4(r, &low) || low < 0xdc00 || low > 0xdfff) return false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *n += vx_utf8_put(code, to + *n);
    return true;
}

// A string into `to`, which has room for as many bytes as are left to read.
static bool take_string(reader *r, char *to, size_t *n)
{
    *n = 0;
    if (!take(r, '"')) return false;
    while (r->at < r->size) {
        char c = r->text[r->at++];
        if (c == '"') return true;
        if ((uint8_t)c < 0x20) return false;
        if (c != '\\') to[(*n)++] = c;
        else if (!unescape(r, to, n)) return false;
    }
    return false;
}

static bool take_id(reader *r, int32_t max_id, int32_t *id)
{
    skip_space(r);
    size_t begin = r->at;
    int64_t value = 0;
    for (; r->at < r->size && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++) {
        value = value * 10 + (r->text[r->at] - '0');
        if (value > max_id) return false;
    }
    *id = (int32_t)value;
    return r->at > begin && (r->text[begin] != '0' || r->at == begin + 1);
}

vx_status vx_symbols_from_json(vx_symbols *s, const char *text, size_t size, int32_t max_id, const char *what)
{
    reader r = { text, what, 0, size };
    size_t bad;
    if (!vx_utf8_valid(text, size, &bad)) return vx_fail(VX_ERR_TOKENIZER, "%s: byte %zu is not UTF-8", what, bad);
    char *key = vx_alloc(size + 1);
    VX_NEED_MEMORY(key, "a vocabulary");
    vx_status status = vx_ok();
    if (!take(&r, '{')) status = malformed(&r, "an object");
    for (bool more = !take(&r, '}'); more && status.code == VX_OK; more = !take(&r, '}')) {
        size_t n;
        int32_t id;
        if (s->count && !take(&r, ',')) status = malformed(&r, "',' or '}'");
        else if (!take_string(&r, key, &n) || n == 0) status = malformed(&r, "a symbol in quotes");
        else if (!take(&r, ':') || !take_id(&r, max_id, &id)) status = malformed(&r, "':' and an id");
        else if (!vx_symbols_add(s, key, n, "", 0, id))
            status = vx_fail(VX_ERR_TOKENIZER, "%s: '%.*s' is there twice", what, (int)(n < 60 ? n : 60), key);
    }
    skip_space(&r);
    if (status.code == VX_OK && r.at != size) status = malformed(&r, "the end of the file");
    vx_free(key);
    return status;
}
