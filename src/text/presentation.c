#include "text/presentation.h"

#include "base/alloc.h"

enum { FIELD_BYTES = sizeof(((vx_status *)0)->field) };

// The tokenizer knows no requests; its complaint about the text is one about the prompt.
static vx_status about_prompt(vx_status s)
{
    static const char field[FIELD_BYTES] = "prompt";
    if (s.code == VX_ERR_PROMPT)
        for (int i = 0; i < FIELD_BYTES; i++) s.field[i] = field[i];
    return s;
}

// In the sequence a pad stands for one row of picture features; a prompt brings none.
static vx_status check_pads(const vx_tokenizer *t, const vx_tokens *tokens)
{
    static const char *const pads[] = { "<|image_pad|>", "<|video_pad|>" };
    for (size_t p = 0; p < sizeof pads / sizeof *pads; p++) {
        int32_t id = vx_tokenizer_added(t, pads[p]);
        for (int64_t i = 0; id >= 0 && i < tokens->count; i++)
            if (tokens->ids[i] == id)
                return vx_fail_field(VX_ERR_PROMPT, "prompt", "the prompt holds %s, which stands for a picture's rows", pads[p]);
    }
    return vx_ok();
}

static vx_status encode_checked(vx_tokens *tokens, const vx_tokenizer *t, const char *prompt, size_t size)
{
    if (size == 0) return vx_fail_field(VX_ERR_PROMPT, "prompt", "the prompt is empty");
    if (size > VX_MAX_PROMPT_BYTES)
        return vx_fail_field(VX_ERR_PROMPT, "prompt", "the prompt has %zu bytes, at most %d are taken", size,
                             VX_MAX_PROMPT_BYTES);
    VX_TRY(about_prompt(vx_tokenizer_encode(t, prompt, size, tokens)));
    if (tokens->count > VX_MAX_TOKENS)
        return vx_fail_field(VX_ERR_PROMPT, "prompt", "the prompt has %lld tokens, at most %d are taken",
                             (long long)tokens->count, VX_MAX_TOKENS);
    return check_pads(t, tokens);
}

vx_status vx_presentation_prompt(vx_presentation *out, const vx_tokenizer *t, const char *prompt, size_t size)
{
    *out = (vx_presentation){ 0 };
    vx_tokens tokens = { 0 };
    vx_status s = encode_checked(&tokens, t, prompt, size);
    int32_t *tags = NULL;
    if (s.code == VX_OK && !(tags = vx_alloc_array((size_t)tokens.count, sizeof *tags)))
        s = vx_no_memory("for %lld token tags", (long long)tokens.count);
    if (s.code != VX_OK) {
        vx_free(tokens.ids);
        return s;
    }
    for (int64_t i = 0; i < tokens.count; i++) tags[i] = VX_TAG_TEXT;
    *out = (vx_presentation){ tokens.count, tokens.ids, tags };
    return vx_ok();
}

void vx_presentation_free(vx_presentation *p)
{
    vx_free(p->ids);
    vx_free(p->tags);
    *p = (vx_presentation){ 0 };
}
