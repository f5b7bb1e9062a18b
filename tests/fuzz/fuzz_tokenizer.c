// Any bytes as text, and any bytes as the tokenizer's files.
//
//   first byte even   the rest is text for a small tokenizer made here
//   first byte odd    the rest is vocab.json, merges.txt, tokenizer_config.json with a byte 0xff between
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// UTF-8 of byte symbols: \304\240 is that of the space, \314\201 (as symbols \303\214 \304\243) a combining acute.
static const char MERGES[] =
    "a a\naa aa\n\304\240 \304\240\n\304\240\304\240 \304\240\304\240\n\304\212 \304\212\nt h\nth e\n\304\240 the\n"
    "\303\214 \304\243\nc a\nca f\n# #\ni n\nin g\n- -\n-- --\n\303\246 \302\265\n";
static const char CONFIG[] = "{\"added_tokens_decoder\":{\"400\":{\"content\":\"<|image_pad|>\"},\"401\":{\"content\":\"<d\"}},"
                             "\"additional_special_tokens\":[\"<d>\",\"</d>\"]}";

static void must(bool condition)
{
    if (!condition) abort();
}

typedef struct collected {
    vx_str text;
    int64_t pieces;
} collected;

static void collect(void *user, const char *text, size_t size)
{
    collected *c = user;
    must(size > 0);
    vx_str_put(&c->text, text, size);
    c->pieces++;
}

// Pieces join to the normalised text, which is its own normal form.
static void check_pieces(const char *text, size_t size)
{
    collected once = { 0 }, twice = { 0 };
    must(vx_tokenizer_pieces(text, size, collect, &once).code == VX_OK);
    must(vx_tokenizer_pieces(once.text.data, once.text.size, collect, &twice).code == VX_OK);
    must(once.pieces == twice.pieces && once.text.size == twice.text.size);
    must(once.text.size == 0 || memcmp(once.text.data, twice.text.data, once.text.size) == 0);
    must(vx_utf8_valid(once.text.data, once.text.size, &(size_t){ 0 }));
    vx_str_free(&once.text);
    vx_str_free(&twice.text);
}

static void check_text(const vx_tokenizer *t, const char *text, size_t size)
{
    size_t bad;
    vx_tokens tokens = { 0 };
    bool valid = vx_utf8_valid(text, size, &bad);
    vx_status s = vx_tokenizer_encode(t, text, size, &tokens);
    must(s.code == (valid ? VX_OK : VX_ERR_PROMPT));
    for (int64_t i = 0; i < tokens.count; i++) must(tokens.ids[i] >= 0 && tokens.ids[i] < vx_tokenizer_vocabulary(t));
    must(valid || tokens.count == 0);
    if (valid) check_pieces(text, size);
    vx_free(tokens.ids);
}

static void try_text(const char *text, size_t size)
{
    static vx_tokenizer *t; // made once: it takes longer than most texts
    if (!t) must(vx_tokenizer_parse(&t, NULL, 0, MERGES, sizeof MERGES - 1, CONFIG, sizeof CONFIG - 1, "fuzz").code == VX_OK);
    check_text(t, text, size);
}

static void try_files(const char *data, size_t size)
{
    const char *part[3] = { data, "", "" };
    size_t bytes[3] = { 0 };
    int parts = 0;
    for (const char *end = data + size; parts < 3; parts++) {
        const char *stop = parts < 2 ? memchr(part[parts], 0xff, (size_t)(end - part[parts])) : NULL;
        bytes[parts] = (size_t)((stop ? stop : end) - part[parts]);
        if (!stop) break;
        part[parts + 1] = stop + 1;
    }
    vx_tokenizer *t;
    vx_status s = vx_tokenizer_parse(&t, bytes[0] ? part[0] : NULL, bytes[0], part[1], bytes[1], part[2], bytes[2], "fuzz");
    must(s.code == VX_OK || s.code == VX_ERR_TOKENIZER);
    must((s.code == VX_OK) == (t != NULL));
    static const char text[] = "the caf\303\251 aaaa    <d>\n\n## -- \346\265\267</d> ing e\314\201";
    if (t) check_text(t, text, sizeof text - 1);
    vx_tokenizer_close(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    if (data[0] % 2) try_files((const char *)data + 1, size - 1);
    else try_text((const char *)data + 1, size - 1);
    return 0;
}
