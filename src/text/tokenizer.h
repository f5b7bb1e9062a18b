// Qwen2 byte-level BPE as the released tokenizer files define it (text-encoder specification, section 1): added tokens
// first, on the raw text; NFC; the pre-tokeniser's rule table; byte symbols; merges by rank.
//
// Threads: encoding may run on several threads at once. Files: vocab.json (verified against merges.txt), merges.txt,
// tokenizer_config.json. Special ids come from the files, never from constants.
#ifndef VX_TEXT_TOKENIZER_H
#define VX_TEXT_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct vx_tokenizer vx_tokenizer;

typedef struct vx_tokens {
    int32_t *ids;
    int64_t count, capacity;
} vx_tokens; // grown with vx_realloc; free ids with vx_free

vx_status vx_tokenizer_open(vx_tokenizer **out, const char *folder);
// The same from memory (fuzzing, tests). `what` names it in errors; vocab may be NULL.
vx_status vx_tokenizer_parse(vx_tokenizer **out, const char *vocab, size_t vocab_size, const char *merges, size_t merges_size,
                             const char *config, size_t config_size, const char *what);
void vx_tokenizer_close(vx_tokenizer **t);

// Appends the ids of UTF-8 text. VX_ERR_PROMPT for invalid UTF-8 (names the byte). Time is O(n log n) for any text.
vx_status vx_tokenizer_encode(const vx_tokenizer *t, const char *text, size_t size, vx_tokens *out);
// Id of an added token, e.g. "<|image_pad|>"; -1 if the files do not have it.
int32_t vx_tokenizer_added(const vx_tokenizer *t, const char *token);
int64_t vx_tokenizer_vocabulary(const vx_tokenizer *t); // ids are below this
// The pre-tokens of one segment, as byte ranges: for tests. Calls piece for each.
vx_status vx_tokenizer_pieces(const char *text, size_t size, void (*piece)(void *user, const char *text, size_t size),
                              void *user);

#endif
