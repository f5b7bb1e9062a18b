// Two lists make the added tokens: "added_tokens_decoder" with ids, and "additional_special_tokens" without; the seven
// tokens of MiniMax H3 are in the second only. The reference appends unknown ones after the highest id, in list order.
#include "text/added.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/json.h"

enum { CONFIG_DEPTH = 16, MAX_ID_DIGITS = 9 };

void vx_added_free(vx_added *added)
{
    vx_free(added->token);
    vx_free(added->memory);
    *added = (vx_added){ 0 };
}

const vx_added_token *vx_added_find(const vx_added *added, const char *text, size_t size)
{
    for (int i = 0; i < added->count; i++)
        if (added->token[i].size == size && memcmp(added->token[i].text, text, size) == 0) return &added->token[i];
    return NULL;
}

// `used` counts the bytes of added->memory that hold earlier tokens.
static vx_status append(vx_added *added, size_t *used, const json_t *text, int32_t id, const char *what)
{
    if (!json_is_string(text)) return vx_fail(VX_ERR_TOKENIZER, "%s: an added token is not a string", what);
    size_t size = json_string_length(text);
    if (size == 0) return vx_fail(VX_ERR_TOKENIZER, "%s: an added token is empty", what);
    if (added->count == VX_MAX_ADDED) return vx_fail(VX_ERR_TOKENIZER, "%s: more than %d added tokens", what, VX_MAX_ADDED);
    char *copy = added->memory + *used;
    memcpy(copy, json_string_value(text), size + 1);
    *used += size + 1;
    added->token[added->count++] = (vx_added_token){ copy, size, id };
    return vx_ok();
}

// Trimming, whole words only, and matching after normalisation are not what this model's files ask for.
static vx_status check_plain(const json_t *token, const char *what)
{
    static const char *const flags[] = { "lstrip", "rstrip", "single_word", "normalized" };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (json_is_true(json_object_get(token, flags[i])))
            return vx_fail(VX_ERR_TOKENIZER, "%s: added token with '%s': true is not supported", what, flags[i]);
    return vx_ok();
}

static bool parse_id(const char *text, int32_t *id)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > MAX_ID_DIGITS || text[n]) return false;
    *id = (int32_t)strtol(text, NULL, 10);
    return true;
}

static vx_status numbered(vx_added *added, size_t *used, json_t *decoder, const char *what)
{
    if (!decoder || json_is_null(decoder)) return vx_ok();
    if (!json_is_object(decoder)) return vx_fail(VX_ERR_TOKENIZER, "%s: 'added_tokens_decoder' is not an object", what);
    const char *key;
    json_t *token;
    json_object_foreach(decoder, key, token)
    {
        int32_t id;
        if (!parse_id(key, &id)) return vx_fail(VX_ERR_TOKENIZER, "%s: '%.40s' is not the id of an added token", what, key);
        VX_TRY(check_plain(token, what));
        const json_t *text = json_object_get(token, "content");
        for (int i = 0; i < added->count; i++)
            if (added->token[i].id == id || (json_is_string(text) && strcmp(added->token[i].text, json_string_value(text)) == 0))
                return vx_fail(VX_ERR_TOKENIZER, "%s: added token %d '%.60s' is there twice", what, (int)added->token[i].id,
                               added->token[i].text);
        VX_TRY(append(added, used, text, id, what));
    }
    return vx_ok();
}

static vx_status unnumbered(vx_added *added, size_t *used, const json_t *list, const char *what)
{
    if (!list || json_is_null(list)) return vx_ok();
    if (!json_is_array(list)) return vx_fail(VX_ERR_TOKENIZER, "%s: 'additional_special_tokens' is not an array", what);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *text = json_array_get(list, i);
        if (json_is_object(text)) { // older files write the whole token
            VX_TRY(check_plain(text, what));
            text = json_object_get(text, "content");
        }
        if (json_is_string(text) && vx_added_find(added, json_string_value(text), json_string_length(text))) continue;
        VX_TRY(append(added, used, text, VX_ID_APPEND, what));
    }
    return vx_ok();
}

static vx_status collect(vx_added *added, const json_t *root, const char *what)
{
    if (!json_is_object(root)) return vx_fail(VX_ERR_TOKENIZER, "%s: not a JSON object", what);
    static const char *const switches[] = { "add_prefix_space", "add_bos_token", "add_eos_token" };
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        if (json_is_true(json_object_get(root, switches[i])))
            return vx_fail(VX_ERR_TOKENIZER, "%s: '%s': true is not supported", what, switches[i]);
    size_t used = 0;
    VX_TRY(numbered(added, &used, json_object_get(root, "added_tokens_decoder"), what));
    return unnumbered(added, &used, json_object_get(root, "additional_special_tokens"), what);
}

vx_status vx_added_parse(vx_added *out, const char *config, size_t size, const char *what)
{
    *out = (vx_added){ 0 };
    json_t *root;
    VX_TRY(vx_json_parse(&root, config, size, CONFIG_DEPTH, VX_ERR_TOKENIZER, what));
    out->token = vx_alloc_array(VX_MAX_ADDED, sizeof *out->token);
    out->memory = vx_alloc(size + 1); // a string in quotes is longer than its bytes and a terminator
    vx_status s = out->token && out->memory ? collect(out, root, what) : vx_no_memory("for the added tokens of %s", what);
    json_decref(root);
    if (s.code != VX_OK) vx_added_free(out);
    return s;
}

static int by_first_byte_then_longest(const void *a, const void *b)
{
    const vx_added_token *x = a, *y = b;
    int p = (uint8_t)x->text[0], q = (uint8_t)y->text[0];
    if (p != q) return p - q;
    return x->size < y->size ? 1 : x->size > y->size ? -1 : strcmp(x->text, y->text);
}

void vx_added_sort(vx_added *added)
{
    qsort(added->token, (size_t)added->count, sizeof *added->token, by_first_byte_then_longest);
    int i = 0;
    for (int b = 0; b <= 256; b++) {
        while (i < added->count && (uint8_t)added->token[i].text[0] < b) i++;
        added->begin[b] = i;
    }
}

const vx_added_token *vx_added_match(const vx_added *added, const char *text, size_t size)
{
    if (size == 0) return NULL;
    uint8_t b = (uint8_t)text[0];
    for (int i = added->begin[b]; i < added->begin[b + 1]; i++) {
        const vx_added_token *t = &added->token[i];
        if (t->size <= size && memcmp(t->text, text, t->size) == 0) return t;
    }
    return NULL;
}
