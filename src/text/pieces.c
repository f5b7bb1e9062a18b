// The rules stand for the ordered alternation
//
//   (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N} | ?[^\s\p{L}\p{N}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
//
// of the released tokenizer (the fourth alternative begins with an optional space U+0020). First match wins; a run is
// scanned at most twice, so the time is linear.
#include "text/pieces.h"

#include <stdbool.h>

static bool is_newline(int32_t c)
{
    return c == '\r' || c == '\n';
}

// Case folding as (?i:) does it for the few letters of rule 1: U+017F, the long s, folds to s.
static int32_t folded(int32_t c)
{
    if (c >= 'A' && c <= 'Z') return c + ('a' - 'A');
    return c == 0x17f ? 's' : c;
}

// Rule 1: 's 't 'm 'd 're 've 'll. Returns the length, or 0.
static size_t contraction(const vx_codes *t, size_t i)
{
    if (t->code[i] != '\'' || i + 1 >= t->count) return 0;
    int32_t a = folded(t->code[i + 1]);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if (i + 2 >= t->count) return 0;
    int32_t b = folded(t->code[i + 2]);
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

static size_t run_end(const vx_codes *t, size_t i, vx_char_class kind)
{
    while (i < t->count && t->kind[i] == kind) i++;
    return i;
}

// Rules 5 to 7: a run of white space up to its last line break; without one, all of it at the end of the text, else all
// but the last character, which then leads the next word.
static size_t space_end(const vx_codes *t, size_t i)
{
    size_t end = run_end(t, i, VX_CHAR_SPACE);
    for (size_t j = end; j > i; j--)
        if (is_newline(t->code[j - 1])) return j;
    return end == t->count || end - i == 1 ? end : end - 1;
}

size_t vx_piece_end(const vx_codes *t, size_t i)
{
    size_t length = contraction(t, i);
    if (length) return i + length;

    bool leads = t->kind[i] != VX_CHAR_LETTER && t->kind[i] != VX_CHAR_NUMBER && !is_newline(t->code[i]);
    size_t j = leads ? i + 1 : i;
    if (j < t->count && t->kind[j] == VX_CHAR_LETTER) return run_end(t, j, VX_CHAR_LETTER); // rule 2

    if (t->kind[i] == VX_CHAR_NUMBER) return i + 1; // rule 3: one digit, one token

    j = t->code[i] == ' ' ? i + 1 : i;
    if (j < t->count && t->kind[j] == VX_CHAR_OTHER) { // rule 4
        j = run_end(t, j, VX_CHAR_OTHER);
        while (j < t->count && is_newline(t->code[j])) j++;
        return j;
    }
    return space_end(t, i);
}
