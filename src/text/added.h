// Inside the room: the added tokens of tokenizer_config.json (text-encoder specification, 1.2), matched on the raw text.
#ifndef VX_TEXT_ADDED_H
#define VX_TEXT_ADDED_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { VX_MAX_ADDED = 4096, VX_ID_APPEND = -1 };

typedef struct vx_added_token {
    const char *text; // in the list's own memory, terminated
    size_t size;
    int32_t id; // VX_ID_APPEND until the loader has numbered it
} vx_added_token;

typedef struct vx_added {
    vx_added_token *token; // as in the file; after vx_added_sort by first byte, then longest first
    int count;
    int begin[257]; // after sorting: tokens of first byte b are begin[b]..begin[b+1]-1
    char *memory;
} vx_added;

// Those of "added_tokens_decoder" with their ids, then those of "additional_special_tokens" that are not among them.
vx_status vx_added_parse(vx_added *out, const char *config, size_t size, const char *what);
void vx_added_sort(vx_added *added);
// The longest token that the text begins with, or NULL.
const vx_added_token *vx_added_match(const vx_added *added, const char *text, size_t size);
const vx_added_token *vx_added_find(const vx_added *added, const char *text, size_t size);
void vx_added_free(vx_added *added);

#endif
