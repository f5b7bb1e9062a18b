// Inside the room: the pre-tokeniser of the Qwen2 family as a rule table (text-encoder specification, 1.5).
#ifndef VX_TEXT_PIECES_H
#define VX_TEXT_PIECES_H

#include "text/unicode.h"

// End of the pre-token that begins at i < codes->count. Every piece has at least one code point; none is dropped.
size_t vx_piece_end(const vx_codes *codes, size_t i);

#endif
