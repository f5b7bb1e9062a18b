// What the text encoder reads for a request: token ids, and for each row the modality tag that the denoiser uses
// (text-encoder specification, section 2). The prompt is used verbatim: no template, no BOS.
#ifndef VX_TEXT_PRESENTATION_H
#define VX_TEXT_PRESENTATION_H

#include "text/tokenizer.h"

enum { VX_TAG_VIDEO = 0, VX_TAG_TEXT = 1, VX_TAG_AUDIO = 2, VX_MAX_TOKENS = 16384, VX_MAX_PROMPT_BYTES = 65536 };

typedef struct vx_presentation {
    int64_t rows;
    int32_t *ids;  // [rows]
    int32_t *tags; // [rows]
} vx_presentation;

// A prompt alone (t2va). VX_ERR_PROMPT: empty, over a limit (with the count), not UTF-8, or holding <|image_pad|> or
// <|video_pad|>.
vx_status vx_presentation_prompt(vx_presentation *out, const vx_tokenizer *t, const char *prompt, size_t size);
void vx_presentation_free(vx_presentation *p);

#endif
