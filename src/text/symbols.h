// Inside the room: a dictionary from symbol strings to ids, used while the tokenizer's files are read.
#ifndef VX_TEXT_SYMBOLS_H
#define VX_TEXT_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct vx_symbol {
    const char *text; // in the dictionary's memory
    uint32_t size, hash;
    int32_t id;
    bool made; // a byte symbol, the product of a merge, or an added token
} vx_symbol;

typedef struct vx_symbols {
    vx_symbol *symbol;
    size_t count, capacity;
    int32_t *slot; // index into symbol, -1 empty; at most half full
    size_t mask;
    char *memory;
    size_t used, room;
} vx_symbols;

// Room for so many symbols with so many bytes together; both are promised by the caller.
vx_status vx_symbols_init(vx_symbols *s, size_t capacity, size_t bytes);
void vx_symbols_free(vx_symbols *s);

// The symbol spelt by a followed by b, or NULL.
vx_symbol *vx_symbols_find(const vx_symbols *s, const char *a, size_t a_size, const char *b, size_t b_size);
// Adds it; NULL if it is there already (or the promise was broken).
vx_symbol *vx_symbols_add(vx_symbols *s, const char *a, size_t a_size, const char *b, size_t b_size, int32_t id);

// Adds the members of a JSON object of integers. Jansson takes 140 ms for the 151,643 members of the released file, this
// 23 ms, and a refused request has one second. Errors: VX_ERR_TOKENIZER naming `what` and the byte.
vx_status vx_symbols_from_json(vx_symbols *s, const char *text, size_t size, int32_t max_id, const char *what);

#endif
