// Inside the room: from the text of vocab.json and merges.txt to the merge table.
#ifndef VX_TEXT_VOCABULARY_H
#define VX_TEXT_VOCABULARY_H

#include "text/added.h"
#include "text/bpe.h"

typedef struct vx_vocabulary_text {
    const char *vocab; // NULL: ids follow from the merges
    size_t vocab_size;
    const char *merges;
    size_t merges_size;
    const char *what; // the folder, for messages
} vx_vocabulary_text;

enum { VX_MAX_TOKEN_ID = (1 << 24) - 1 };

// Fills bpe, numbers the added tokens, and gives the bound of all ids.
vx_status vx_vocabulary_load(vx_bpe *bpe, vx_added *added, int64_t *ids, const vx_vocabulary_text *text);

#endif
