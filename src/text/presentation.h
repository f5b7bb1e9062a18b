// What the text encoder reads for a request: token ids, and for each row the modality tag that the denoiser uses
// (text-encoder specification, section 2). The prompt is used verbatim: no template, no BOS.
#ifndef VX_TEXT_PRESENTATION_H
#define VX_TEXT_PRESENTATION_H

#include <stdbool.h>

#include "text/tokenizer.h"

enum {
    VX_TAG_VIDEO = 0,
    VX_TAG_TEXT = 1,
    VX_TAG_AUDIO = 2,
    VX_MAX_TOKENS = 16384, // of the prompt
    VX_MAX_PROMPT_BYTES = 65536,
    VX_MAX_ROWS = 262144 // of all: the released encoder's max_position_embeddings; nine of the largest pictures are 147,456
};

typedef struct vx_presentation {
    int64_t rows;
    int32_t *ids;  // [rows]
    int32_t *tags; // [rows]
} vx_presentation;

// A prompt alone (t2va). VX_ERR_PROMPT: empty, over a limit (with the count), not UTF-8, or holding <|image_pad|> or
// <|video_pad|>.
vx_status vx_presentation_prompt(vx_presentation *out, const vx_tokenizer *t, const char *prompt, size_t size);
void vx_presentation_free(vx_presentation *p);

// One vision block: where its pads stand and the grid of its features.
typedef struct vx_vision_place {
    int condition;                   // index of the condition it shows
    int64_t frame;                   // videos: sampled frames frame and frame+1 of the block (the last may repeat); pictures 0
    int64_t row, rows;               // pads
    int64_t grid_height, grid_width; // merged: rows = grid_height * grid_width
} vx_vision_place;

// A condition as the presentation sees it, in request order (2.2).
typedef enum vx_shown_kind { VX_SHOWN_KEYFRAME, VX_SHOWN_IMAGE, VX_SHOWN_VIDEO, VX_SHOWN_AUDIO } vx_shown_kind;
typedef struct vx_shown {
    vx_shown_kind kind;
    int64_t height, width;  // pixels that the tower gets (after its own resize rule), visual kinds
    int64_t sampled_frames; // videos: frames at 2 per second, at least 2
    bool sound;             // a video with a soundtrack
} vx_shown;
typedef struct vx_presentation_full {
    vx_presentation tokens;
    vx_vision_place *places; // in order of their rows; NULL if there are none
    int place_count;
    int64_t *positions; // [3][rows]: t, h, w (3.3)
} vx_presentation_full;
// The prompt behind what is shown; shown_count may be 0. Errors: those of vx_presentation_prompt; VX_ERR_RANGE: more than
// VX_MAX_ROWS rows (with the count), or a video of fewer than 2 sampled frames; VX_ERR_SHAPE: sides that are no multiples of 32;
// VX_ERR_TOKENIZER: the files lack a marker or a pad. On an error *out is empty.
vx_status vx_presentation_show(vx_presentation_full *out, const vx_tokenizer *t, const char *prompt, size_t size,
                               const vx_shown *shown, int shown_count);
void vx_presentation_full_free(vx_presentation_full *p);

#endif
