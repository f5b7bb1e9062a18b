// Inside the room: byte-pair merges by rank.
#ifndef VX_TEXT_BPE_H
#define VX_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>

#include "text/tokenizer.h"

typedef struct vx_bpe_slot {
    uint64_t pair; // left id << 32 | right id
    int32_t rank;  // -1: empty
} vx_bpe_slot;

typedef struct vx_bpe {
    int32_t byte_id[256];
    int32_t *merged; // [merges] id that a merge makes, by rank
    int64_t merges;
    vx_bpe_slot *slot; // open addressing, at most half full
    uint64_t mask;
} vx_bpe;

vx_status vx_bpe_init(vx_bpe *bpe, int64_t merges); // room for so many
// Adds the merge of the next rank. False if the pair is there already.
bool vx_bpe_add(vx_bpe *bpe, int32_t left, int32_t right, int32_t merged);
void vx_bpe_free(vx_bpe *bpe);

// Work space of one caller, kept between pieces; free with vx_bpe_work_free.
typedef struct vx_bpe_work {
    int32_t *id, *next, *prev, *rank;
    uint64_t *heap;
    size_t capacity;
} vx_bpe_work;
void vx_bpe_work_free(vx_bpe_work *work);

// Appends the ids of one pre-token: one symbol per byte; then, while an adjacent pair has a rank, the lowest, leftmost on
// a tie, is merged. O(n log n).
vx_status vx_bpe_apply(const vx_bpe *bpe, vx_bpe_work *work, const char *bytes, size_t n, vx_tokens *out);

vx_status vx_tokens_put(vx_tokens *tokens, int32_t id);

#endif
