// NFC with utf8proc's tables. The ordering of combining marks is our own: utf8proc's exchanges neighbours, which takes
// quadratic time for a long run of marks in falling order, and a prompt may be anything.
#include "text/unicode.h"

#include <stdbool.h>
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "base/checked.h"

enum {
    FIRST_MARK = 0x300, // no code point below it is a mark or changes under NFC
    SHORT_RUN = 32,     // up to here insertion beats counting
    CLASSES = 256,      // canonical combining classes are bytes
};

static vx_status reserve(vx_codes *codes, size_t more)
{
    size_t need, bytes;
    if (!vx_add_size(codes->count, more, &need) || !vx_mul_size(need, 8, &bytes))
        return vx_fail(VX_ERR_PROMPT, "the text is too long");
    if (need <= codes->capacity) return vx_ok();
    size_t capacity = codes->capacity + codes->capacity / 2;
    if (capacity < need) capacity = need;
    int32_t *code = vx_realloc(codes->code, capacity * sizeof *code);
    VX_NEED_MEMORY(code, "code points");
    codes->code = code;
    uint8_t *kind = vx_realloc(codes->kind, capacity);
    VX_NEED_MEMORY(kind, "character classes");
    codes->kind = kind;
    codes->capacity = capacity;
    return vx_ok();
}

void vx_codes_free(vx_codes *codes)
{
    vx_free(codes->code);
    vx_free(codes->kind);
    *codes = (vx_codes){ 0 };
}

// One code point of well-formed UTF-8.
static int32_t next_code(const uint8_t **p)
{
    const uint8_t *s = *p;
    int bytes = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    static const uint8_t first[5] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    int32_t c = s[0] & first[bytes];
    for (int i = 1; i < bytes; i++) c = c << 6 | (s[i] & 0x3f);
    *p = s + bytes;
    return c;
}

size_t vx_utf8_put(int32_t c, char out[4])
{
    if (c < 0x80) return out[0] = (char)c, 1;
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[5] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    for (size_t i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n] | c);
    return n;
}

vx_char_class vx_char_class_of(int32_t c)
{
    // White space as the regular expression's \s has it; not utf8proc's separators, which know no control characters.
    if ((c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
        c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000)
        return VX_CHAR_SPACE;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return VX_CHAR_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return VX_CHAR_NUMBER;
    default: return VX_CHAR_OTHER;
    }
}

static uint8_t combining_class(int32_t c)
{
    return (uint8_t)utf8proc_get_property(c)->combining_class;
}

// Stable order by combining class of a run of marks (all classes > 0).
static vx_status order_marks(int32_t *code, size_t n)
{
    if (n <= SHORT_RUN) {
        for (size_t i = 1; i < n; i++) {
            int32_t c = code[i];
            uint8_t k = combining_class(c);
            size_t j = i;
            for (; j > 0 && combining_class(code[j - 1]) > k; j--) code[j] = code[j - 1];
            code[j] = c;
        }
        return vx_ok();
    }
    int32_t *copy = vx_alloc(n * sizeof *copy);
    VX_NEED_MEMORY(copy, "combining marks");
    memcpy(copy, code, n * sizeof *copy);
    size_t at[CLASSES + 1] = { 0 };
    for (size_t i = 0; i < n; i++) at[combining_class(copy[i]) + 1]++;
    for (int k = 0; k < CLASSES; k++) at[k + 1] += at[k];
    for (size_t i = 0; i < n; i++) code[at[combining_class(copy[i])]++] = copy[i];
    vx_free(copy);
    return vx_ok();
}

static vx_status decompose(vx_codes *out, const uint8_t *text, size_t size)
{
    for (const uint8_t *p = text, *end = text + size; p < end;) {
        int32_t c = next_code(&p);
        for (;;) {
            size_t room = out->capacity - out->count;
            utf8proc_ssize_t n =
                utf8proc_decompose_char(c, out->code + out->count, (utf8proc_ssize_t)room, UTF8PROC_DECOMPOSE, NULL);
            if (n < 0) return vx_fail(VX_ERR_INTERNAL, "utf8proc cannot decompose U+%04X: %s", (unsigned)c, utf8proc_errmsg(n));
            if ((size_t)n <= room) {
                out->count += (size_t)n;
                break;
            }
            VX_TRY(reserve(out, (size_t)n));
        }
    }
    for (size_t i = 0; i < out->count;) {
        size_t begin = i;
        while (i < out->count && combining_class(out->code[i]) > 0) i++;
        VX_TRY(order_marks(out->code + begin, i - begin));
        if (i == begin) i++;
    }
    return vx_ok();
}

vx_status vx_codes_normalize(vx_codes *out, const char *text, size_t size)
{
    out->count = 0;
    if (size == 0) return vx_ok(); // text may be NULL
    const uint8_t *begin = (const uint8_t *)text, *end = begin + size;
    VX_TRY(reserve(out, size));
    bool plain = true;
    for (const uint8_t *p = begin; p < end;) {
        int32_t c = next_code(&p);
        plain = plain && c < FIRST_MARK;
        out->code[out->count++] = c;
    }
    if (!plain) {
        out->count = 0;
        VX_TRY(decompose(out, begin, size));
        utf8proc_ssize_t n =
            utf8proc_normalize_utf32(out->code, (utf8proc_ssize_t)out->count, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        if (n < 0) return vx_fail(VX_ERR_INTERNAL, "utf8proc cannot compose the text: %s", utf8proc_errmsg(n));
        out->count = (size_t)n;
    }
    for (size_t i = 0; i < out->count; i++) out->kind[i] = (uint8_t)vx_char_class_of(out->code[i]);
    return vx_ok();
}
