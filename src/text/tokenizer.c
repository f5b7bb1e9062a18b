#include "text/tokenizer.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "text/added.h"
#include "text/bpe.h"
#include "text/pieces.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

enum { MAX_FILE = 64 << 20 }; // the released files are below 3 MiB

struct vx_tokenizer {
    vx_bpe bpe;
    vx_added added;
    int64_t ids;
};

// Work space of one vx_tokenizer_encode.
typedef struct encoder {
    const vx_tokenizer *t;
    vx_codes codes;
    vx_bpe_work work;
    char *bytes; // of one piece, or all pieces
    size_t capacity;
} encoder;

// ---- loading ----
static vx_status load(vx_tokenizer *t, const vx_vocabulary_text *text, const char *config, size_t config_size)
{
    char *name = vx_path_join(text->what, "tokenizer_config.json");
    VX_NEED_MEMORY(name, "a file name");
    vx_status s = vx_added_parse(&t->added, config, config_size, name);
    vx_free(name);
    VX_TRY(s);
    VX_TRY(vx_vocabulary_load(&t->bpe, &t->added, &t->ids, text));
    vx_added_sort(&t->added);
    return vx_ok();
}

vx_status vx_tokenizer_parse(vx_tokenizer **out, const char *vocab, size_t vocab_size, const char *merges, size_t merges_size,
                             const char *config, size_t config_size, const char *what)
{
    *out = NULL;
    vx_tokenizer *t = vx_alloc_array(1, sizeof *t);
    VX_NEED_MEMORY(t, "a tokenizer");
    vx_vocabulary_text text = { vocab, vocab_size, merges, merges_size, what };
    vx_status s = load(t, &text, config, config_size);
    if (s.code != VX_OK) vx_tokenizer_close(&t);
    *out = t;
    return s;
}

// A download that brought a page or a pointer in place of the file; else the parsers' messages would puzzle.
static vx_status check_content(const char *text, size_t size, const char *path)
{
    static const char *const starts[] = { "version https://git-lfs", "<!DOCTYPE", "<!doctype", "<html" };
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (size >= strlen(starts[i]) && memcmp(text, starts[i], strlen(starts[i])) == 0)
            return vx_fail(VX_ERR_FILE_POINTER, "%s: the file begins with '%s'", path, starts[i]);
    return vx_ok();
}

static vx_status read_file(char **text, size_t *size, const char *folder, const char *name, bool optional)
{
    *text = NULL;
    *size = 0;
    char *path = vx_path_join(folder, name);
    VX_NEED_MEMORY(path, "a file name");
    vx_status s = vx_ok();
    if (!optional || vx_file_exists(path)) s = vx_file_read(text, size, path, MAX_FILE, VX_ERR_TOKENIZER);
    if (s.code == VX_OK && *text) s = check_content(*text, *size, path);
    vx_free(path);
    return s;
}

// Without these the text would be conditioned otherwise, silently: '<d>' of a dialogue would be three ordinary tokens.
static vx_status check_complete(const vx_tokenizer *t, const char *folder)
{
    static const char *const needed[] = {
        "<d>",
        "</d>",
        "<|cutoff|>",
        "<|lyrics_start|>",
        "<|lyrics_end|>",
        "<|caption_start|>",
        "<|caption_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|image_pad|>",
        "<|video_pad|>",
    };
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (vx_tokenizer_added(t, needed[i]) < 0)
            return vx_fail_remedy(VX_ERR_TOKENIZER, "take the tokenizer folder of MiniMax H3; the base model's lacks its tokens",
                                  "%s: tokenizer_config.json does not list the token %s", folder, needed[i]);
    return vx_ok();
}

vx_status vx_tokenizer_open(vx_tokenizer **out, const char *folder)
{
    *out = NULL;
    char *vocab = NULL, *merges = NULL, *config = NULL;
    size_t vocab_size, merges_size, config_size;
    vx_status s;
    VX_CATCH(s, done, read_file(&config, &config_size, folder, "tokenizer_config.json", false));
    VX_CATCH(s, done, read_file(&merges, &merges_size, folder, "merges.txt", false));
    VX_CATCH(s, done, read_file(&vocab, &vocab_size, folder, "vocab.json", true));
    VX_CATCH(s, done, vx_tokenizer_parse(out, vocab, vocab_size, merges, merges_size, config, config_size, folder));
    s = check_complete(*out, folder);
    if (s.code != VX_OK) vx_tokenizer_close(out);
done:
    vx_free(vocab);
    vx_free(merges);
    vx_free(config);
    return s;
}

void vx_tokenizer_close(vx_tokenizer **t)
{
    if (!*t) return;
    vx_bpe_free(&(*t)->bpe);
    vx_added_free(&(*t)->added);
    vx_free(*t);
    *t = NULL;
}

int32_t vx_tokenizer_added(const vx_tokenizer *t, const char *token)
{
    const vx_added_token *found = vx_added_find(&t->added, token, strlen(token));
    return found ? found->id : -1;
}

int64_t vx_tokenizer_vocabulary(const vx_tokenizer *t)
{
    return t->ids;
}

// ---- encoding ----
static vx_status spell(encoder *e, size_t begin, size_t end, size_t *size)
{
    size_t need = (end - begin) * 4;
    if (need > e->capacity) {
        char *bytes = vx_realloc(e->bytes, need * 2);
        VX_NEED_MEMORY(bytes, "the text of a word");
        e->bytes = bytes;
        e->capacity = need * 2;
    }
    *size = 0;
    for (size_t i = begin; i < end; i++) *size += vx_utf8_put(e->codes.code[i], e->bytes + *size);
    return vx_ok();
}

// One segment between added tokens.
static vx_status encode_segment(encoder *e, const char *text, size_t size, vx_tokens *out)
{
    if (size == 0) return vx_ok();
    VX_TRY(vx_codes_normalize(&e->codes, text, size));
    for (size_t i = 0, end; i < e->codes.count; i = end) {
        size_t bytes;
        end = vx_piece_end(&e->codes, i);
        VX_TRY(spell(e, i, end, &bytes));
        VX_TRY(vx_bpe_apply(&e->t->bpe, &e->work, e->bytes, bytes, out));
    }
    return vx_ok();
}

static vx_status encode(encoder *e, const char *text, size_t size, vx_tokens *out)
{
    size_t begin = 0;
    for (size_t i = 0; i < size;) {
        const vx_added_token *token = vx_added_match(&e->t->added, text + i, size - i);
        if (!token) {
            i++;
            continue;
        }
        VX_TRY(encode_segment(e, text + begin, i - begin, out));
        VX_TRY(vx_tokens_put(out, token->id));
        begin = i += token->size;
    }
    return encode_segment(e, text + begin, size - begin, out);
}

static void encoder_free(encoder *e)
{
    vx_codes_free(&e->codes);
    vx_bpe_work_free(&e->work);
    vx_free(e->bytes);
}

static vx_status check_utf8(const char *text, size_t size)
{
    size_t bad;
    if (vx_utf8_valid(text, size, &bad)) return vx_ok();
    return vx_fail(VX_ERR_PROMPT, "byte %zu (0x%02x) is not UTF-8", bad, (unsigned)(uint8_t)text[bad]);
}

vx_status vx_tokenizer_encode(const vx_tokenizer *t, const char *text, size_t size, vx_tokens *out)
{
    VX_TRY(check_utf8(text, size));
    encoder e = { .t = t };
    vx_status s = encode(&e, text, size, out);
    encoder_free(&e);
    return s;
}

vx_status vx_tokenizer_pieces(const char *text, size_t size, void (*piece)(void *user, const char *text, size_t size), void *user)
{
    VX_TRY(check_utf8(text, size));
    encoder e = { 0 };
    vx_status s = vx_codes_normalize(&e.codes, text, size);
    for (size_t i = 0, end; s.code == VX_OK && i < e.codes.count; i = end) {
        size_t bytes;
        end = vx_piece_end(&e.codes, i);
        s = spell(&e, i, end, &bytes);
        if (s.code == VX_OK) piece(user, e.bytes, bytes);
    }
    encoder_free(&e);
    return s;
}
