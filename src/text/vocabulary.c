// Ids come from vocab.json where there is one. Without it they follow from the released table's structure: 0..255 are the
// byte symbols in GPT-2's order, 256 + r is what merge r makes. With it everything is verified against everything: a file
// cut short or taken from another model shows as a symbol that no merge makes, or a merge of unknown symbols.
#include "text/vocabulary.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/str.h"
#include "text/symbols.h"
#include "text/unicode.h"

// GPT-2's byte symbols: printable bytes stand for themselves, the others are U+0100, U+0101, ... in order; printable ones
// come first in the table.
static bool byte_is_printable(int b)
{
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
}

typedef struct byte_symbol {
    uint8_t byte;
    char text[4];
    size_t size;
} byte_symbol;

static void byte_symbols(byte_symbol table[256])
{
    int n = 0, next = 0x100;
    for (int printable = 1; printable >= 0; printable--)
        for (int b = 0; b < 256; b++)
            if (byte_is_printable(b) == (bool)printable) {
                table[n].byte = (uint8_t)b;
                table[n].size = vx_utf8_put(printable ? b : next++, table[n].text);
                n++;
            }
}

static size_t count_of(const char *text, size_t size, char c)
{
    size_t n = 0;
    for (const char *p = text, *end = text + size; (p = memchr(p, c, (size_t)(end - p))); p++) n++;
    return n;
}

static vx_status open_symbols(vx_symbols *s, const vx_vocabulary_text *text, const char *vocab_name)
{
    if (!text->vocab)
        return vx_symbols_init(s, 256 + count_of(text->merges, text->merges_size, '\n') + 1, 1024 + text->merges_size);
    VX_TRY(vx_symbols_init(s, count_of(text->vocab, text->vocab_size, '"') / 2 + 1, text->vocab_size));
    vx_status status = vx_symbols_from_json(s, text->vocab, text->vocab_size, VX_MAX_TOKEN_ID, vocab_name);
    if (status.code != VX_OK) vx_symbols_free(s);
    return status;
}

static vx_status bind_bytes(vx_bpe *bpe, vx_symbols *s, bool given, const char *vocab_name)
{
    byte_symbol table[256];
    byte_symbols(table);
    for (int i = 0; i < 256; i++) {
        vx_symbol *x = given ? vx_symbols_find(s, table[i].text, table[i].size, "", 0)
                             : vx_symbols_add(s, table[i].text, table[i].size, "", 0, i);
        if (!x)
            return vx_fail(VX_ERR_TOKENIZER, "%s: the symbol '%.*s' of byte %d is missing", vocab_name, (int)table[i].size,
                           table[i].text, table[i].byte);
        x->made = true;
        bpe->byte_id[table[i].byte] = x->id;
    }
    return vx_ok();
}

typedef struct merge_line {
    const char *left, *right;
    size_t left_size, right_size;
} merge_line;

// One merge; `n` is the line's number, for messages.
static vx_status add_merge(vx_bpe *bpe, vx_symbols *s, bool given, const merge_line *m, size_t n, const char *name)
{
    const vx_symbol *left = vx_symbols_find(s, m->left, m->left_size, "", 0);
    const vx_symbol *right = vx_symbols_find(s, m->right, m->right_size, "", 0);
    if (!left || !right)
        return vx_fail(VX_ERR_TOKENIZER, "%s: line %zu: nothing before makes '%.*s'", name, n,
                       (int)vx_min_i64(left ? (int64_t)m->right_size : (int64_t)m->left_size, 60), left ? m->right : m->left);
    int32_t left_id = left->id, right_id = right->id;
    vx_symbol *made = given ? vx_symbols_find(s, m->left, m->left_size, m->right, m->right_size)
                            : vx_symbols_add(s, m->left, m->left_size, m->right, m->right_size, (int32_t)(256 + bpe->merges));
    if (!made)
        return vx_fail(VX_ERR_TOKENIZER, "%s: line %zu: '%.*s%.*s' %s", name, n, (int)vx_min_i64((int64_t)m->left_size, 60),
                       m->left, (int)vx_min_i64((int64_t)m->right_size, 60), m->right,
                       given ? "is not in vocab.json" : "is made twice, so its id needs vocab.json");
    made->made = true;
    if (!vx_bpe_add(bpe, left_id, right_id, made->id)) return vx_fail(VX_ERR_TOKENIZER, "%s: line %zu repeats a merge", name, n);
    return vx_ok();
}

static vx_status read_merges(vx_bpe *bpe, vx_symbols *s, const vx_vocabulary_text *text, const char *name)
{
    bool given = text->vocab != NULL;
    const char *p = text->merges, *end = p + text->merges_size;
    // Without vocab.json nothing else would show that the end is lost.
    if (!given && p < end && end[-1] != '\n')
        return vx_fail(VX_ERR_TOKENIZER, "%s: the last line has no end: the file is cut", name);
    for (size_t n = 1; p < end; n++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p)), *next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        if (stop > p && stop[-1] == '\r') stop--;                                // a symbol never holds a carriage return
        bool header = n == 1 && stop - p >= 9 && memcmp(p, "#version:", 9) == 0; // other lines may well begin with '#'
        if (!header) {
            const char *space = memchr(p, ' ', (size_t)(stop - p));
            if (!space || space == p || space + 1 == stop || memchr(space + 1, ' ', (size_t)(stop - space - 1)))
                return vx_fail(VX_ERR_TOKENIZER, "%s: line %zu is not two symbols with one space between", name, n);
            merge_line m = { p, space + 1, (size_t)(space - p), (size_t)(stop - space - 1) };
            VX_TRY(add_merge(bpe, s, given, &m, n, name));
        }
        p = next;
    }
    return vx_ok();
}

// ---- numbering ----
// The ids given so far, so that one given twice is refused. Grows with the ids: most files are small, an id may be large.
typedef struct id_set {
    uint8_t *taken;
    size_t size;
    int32_t highest;
    const char *what;
} id_set;

static vx_status grow(id_set *ids, int32_t id)
{
    size_t size = (size_t)vx_max_i64((int64_t)id + 1, 2 * (int64_t)ids->size);
    uint8_t *taken = vx_realloc(ids->taken, size);
    VX_NEED_MEMORY(taken, "token ids");
    memset(taken + ids->size, 0, size - ids->size);
    ids->taken = taken;
    ids->size = size;
    return vx_ok();
}

static vx_status claim(id_set *ids, int32_t id, const char *text, size_t size)
{
    int shown = (int)vx_min_i64((int64_t)size, 60);
    if (id > VX_MAX_TOKEN_ID)
        return vx_fail(VX_ERR_TOKENIZER, "%s: '%.*s' has id %d, at most %d", ids->what, shown, text, (int)id, VX_MAX_TOKEN_ID);
    if ((size_t)id >= ids->size) VX_TRY(grow(ids, id));
    if (ids->taken[id]) return vx_fail(VX_ERR_TOKENIZER, "%s: id %d of '%.*s' is taken already", ids->what, (int)id, shown, text);
    ids->taken[id] = 1;
    if (id > ids->highest) ids->highest = id;
    return vx_ok();
}

// An added token that stands in vocab.json has its id from there.
static vx_status number_added(vx_added_token *t, vx_symbols *s, id_set *ids)
{
    vx_symbol *x = vx_symbols_find(s, t->text, t->size, "", 0);
    if (x && t->id != VX_ID_APPEND && x->id != t->id)
        return vx_fail(VX_ERR_TOKENIZER, "%s: '%.60s' is %d in tokenizer_config.json and %d in vocab.json", ids->what, t->text,
                       (int)t->id, (int)x->id);
    if (x) {
        x->made = true;
        t->id = x->id;
        return vx_ok();
    }
    if (t->id == VX_ID_APPEND) t->id = ids->highest + 1;
    return claim(ids, t->id, t->text, t->size);
}

static vx_status number_all(vx_added *added, vx_symbols *s, id_set *ids)
{
    for (size_t i = 0; i < s->count; i++) VX_TRY(claim(ids, s->symbol[i].id, s->symbol[i].text, s->symbol[i].size));
    for (int append = 0; append < 2; append++) // those with an id first: the others come after the highest
        for (int i = 0; i < added->count; i++)
            if ((added->token[i].id == VX_ID_APPEND) == (append == 1)) VX_TRY(number_added(&added->token[i], s, ids));
    for (size_t i = 0; i < s->count; i++)
        if (!s->symbol[i].made)
            return vx_fail(VX_ERR_TOKENIZER,
                           "%s: no line of merges.txt makes '%.*s' of vocab.json: one of the files is cut or foreign", ids->what,
                           (int)vx_min_i64(s->symbol[i].size, 60), s->symbol[i].text);
    return vx_ok();
}

static vx_status fill(vx_bpe *bpe, vx_added *added, vx_symbols *s, int64_t *ids, const vx_vocabulary_text *text,
                      const char *vocab_name, const char *merges_name)
{
    VX_TRY(bind_bytes(bpe, s, text->vocab != NULL, vocab_name));
    VX_TRY(read_merges(bpe, s, text, merges_name));
    id_set set = { .highest = -1, .what = text->what };
    vx_status status = number_all(added, s, &set);
    vx_free(set.taken);
    *ids = (int64_t)set.highest + 1;
    return status;
}

vx_status vx_vocabulary_load(vx_bpe *bpe, vx_added *added, int64_t *ids, const vx_vocabulary_text *text)
{
    *bpe = (vx_bpe){ 0 };
    size_t lines = count_of(text->merges, text->merges_size, '\n') + 1;
    if (lines > VX_MAX_TOKEN_ID) return vx_fail(VX_ERR_TOKENIZER, "%s: merges.txt has %zu lines", text->what, lines);
    char *vocab_name = vx_path_join(text->what, "vocab.json"), *merges_name = vx_path_join(text->what, "merges.txt");
    vx_symbols symbols = { 0 };
    vx_status status = vx_no_memory("for the names of the tokenizer's files");
    if (vocab_name && merges_name) status = open_symbols(&symbols, text, vocab_name);
    if (status.code == VX_OK) status = vx_bpe_init(bpe, (int64_t)lines);
    if (status.code == VX_OK) status = fill(bpe, added, &symbols, ids, text, vocab_name, merges_name);
    if (status.code != VX_OK) vx_bpe_free(bpe);
    vx_symbols_free(&symbols);
    vx_free(vocab_name);
    vx_free(merges_name);
    return status;
}
