// The presentation of a prompt behind pictures, videos and sound (text-encoder specification, 2.2): labels and time stamps are
// tokenised each on its own, a picture or a pair of frames is a run of pads between two markers.
#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "text/bpe.h"
#include "text/presentation.h"

enum { SIDE = 32, MAX_SIDE = 65536, MAX_VIDEO_FRAMES = 1 << 20, LABEL_BYTES = 64 }; // pixels of a pad's side (4.2)

typedef struct markers {
    int32_t begin, end, picture, frames; // <|vision_start|>, <|vision_end|>, <|image_pad|>, <|video_pad|>
} markers;

typedef struct builder {
    const vx_tokenizer *t;
    markers mark;
    vx_tokens ids;
    vx_vision_place *places;
    int place_count;
    int pictures, videos, sounds; // labels given so far
} builder;

// ---- what is refused ----
static vx_status find(const vx_tokenizer *t, const char *token, int32_t *id)
{
    *id = vx_tokenizer_added(t, token);
    if (*id >= 0) return vx_ok();
    return vx_fail(VX_ERR_TOKENIZER, "the tokenizer's files have no %s, which pictures and videos need", token);
}

static vx_status find_markers(markers *m, const vx_tokenizer *t)
{
    VX_TRY(find(t, "<|vision_start|>", &m->begin));
    VX_TRY(find(t, "<|vision_end|>", &m->end));
    VX_TRY(find(t, "<|image_pad|>", &m->picture));
    return find(t, "<|video_pad|>", &m->frames);
}

static int64_t blocks_of(const vx_shown *s)
{
    if (s->kind == VX_SHOWN_AUDIO) return 0;
    return s->kind == VX_SHOWN_VIDEO ? (s->sampled_frames + 1) / 2 : 1;
}

static vx_status check_shown(const vx_shown *s, int index)
{
    if (s->kind == VX_SHOWN_AUDIO) return vx_ok();
    if (s->height < SIDE || s->width < SIDE || s->height % SIDE || s->width % SIDE || s->height > MAX_SIDE || s->width > MAX_SIDE)
        return vx_fail(VX_ERR_SHAPE,
                       "condition %d is shown with %" PRId64 " rows and %" PRId64 " columns, expected multiples of %d up to %d",
                       index, s->height, s->width, SIDE, MAX_SIDE);
    if (s->kind == VX_SHOWN_VIDEO && (s->sampled_frames < 2 || s->sampled_frames > MAX_VIDEO_FRAMES))
        return vx_fail(VX_ERR_RANGE, "condition %d is a video of %" PRId64 " sampled frames, expected 2 to %d", index,
                       s->sampled_frames, MAX_VIDEO_FRAMES);
    return vx_ok();
}

// Rows of the vision blocks with their markers, an upper bound that needs no tokens; *blocks how many there are.
static vx_status count_blocks(const vx_shown *shown, int count, int64_t *rows, int *blocks)
{
    *rows = 0;
    *blocks = 0;
    for (int i = 0; i < count; i++) {
        VX_TRY(check_shown(&shown[i], i));
        const int64_t own = blocks_of(&shown[i]);
        if (own == 0) continue;
        *rows += own * (shown[i].height / SIDE * (shown[i].width / SIDE) + 2); // below 2^43 each
        if (*rows <= VX_MAX_ROWS) *blocks += (int)own;
    }
    return vx_ok();
}

static vx_status check_rows(int64_t rows)
{
    if (rows <= VX_MAX_ROWS) return vx_ok();
    return vx_fail_remedy(VX_ERR_RANGE, "show fewer, smaller or shorter pictures and videos",
                          "the text encoder would read %" PRId64 " rows of pictures, videos and text, at most %d are taken", rows,
                          VX_MAX_ROWS);
}

// ---- building ----
static vx_status put_text(builder *b, const char *format, int64_t number)
{
    char text[LABEL_BYTES];
    const int size = snprintf(text, sizeof text, format, (long long)number);
    return vx_tokenizer_encode(b->t, text, (size_t)size, &b->ids);
}

static vx_status put_block(builder *b, const vx_shown *s, int condition, int64_t frame)
{
    const int32_t pad = s->kind == VX_SHOWN_VIDEO ? b->mark.frames : b->mark.picture;
    const int64_t grid_height = s->height / SIDE, grid_width = s->width / SIDE, pads = grid_height * grid_width;
    VX_TRY(vx_tokens_put(&b->ids, b->mark.begin));
    b->places[b->place_count++] = (vx_vision_place){ .condition = condition,
                                                     .frame = frame,
                                                     .row = b->ids.count,
                                                     .rows = pads,
                                                     .grid_height = grid_height,
                                                     .grid_width = grid_width };
    for (int64_t i = 0; i < pads; i++) VX_TRY(vx_tokens_put(&b->ids, pad));
    return vx_tokens_put(&b->ids, b->mark.end);
}

// A pair's time is the mean of b and b + 0.5 seconds, b.25, printed with one decimal and ties to even; that of a last frame
// without a partner is b itself. Written out, because C libraries differ on the tie.
static vx_status put_video(builder *b, const vx_shown *s, int condition)
{
    VX_TRY(put_text(b, "<Video %lld>: ", ++b->videos));
    for (int64_t frame = 0; frame < s->sampled_frames; frame += 2) {
        const bool pair = frame + 1 < s->sampled_frames;
        VX_TRY(put_text(b, pair ? "<%lld.2 seconds>" : "<%lld.0 seconds>", frame / 2));
        VX_TRY(put_block(b, s, condition, frame));
    }
    return vx_ok();
}

// A soundtrack's label stands before its video's.
static vx_status put_condition(builder *b, const vx_shown *s, int condition)
{
    if (s->kind == VX_SHOWN_AUDIO || (s->kind == VX_SHOWN_VIDEO && s->sound)) VX_TRY(put_text(b, "<Audio %lld>: ", ++b->sounds));
    if (s->kind == VX_SHOWN_AUDIO) return vx_ok();
    if (s->kind == VX_SHOWN_VIDEO) return put_video(b, s, condition);
    VX_TRY(put_text(b, "<Picture %lld>: ", ++b->pictures));
    return put_block(b, s, condition, 0);
}

static vx_status put_all(builder *b, const vx_shown *shown, int count, const vx_presentation *prompt)
{
    for (int i = 0; i < count; i++) {
        VX_TRY(put_condition(b, &shown[i], i));
        VX_TRY(check_rows(b->ids.count + prompt->rows));
    }
    for (int64_t i = 0; i < prompt->rows; i++) VX_TRY(vx_tokens_put(&b->ids, prompt->ids[i]));
    return vx_ok();
}

// ---- tags and positions ----
static void fill_tags(int32_t *tags, int64_t rows, const vx_vision_place *places, int count)
{
    for (int64_t row = 0; row < rows; row++) tags[row] = VX_TAG_TEXT;
    for (int i = 0; i < count; i++)
        for (int64_t row = places[i].row - 1; row <= places[i].row + places[i].rows; row++)
            tags[row] = VX_TAG_VIDEO; // and markers
}

// Text counts on all three axes; pads share one time and take rows and columns from there; what follows goes on behind the
// longer side (3.3).
static void fill_positions(int64_t *positions, int64_t rows, const vx_vision_place *places, int count)
{
    int64_t *t = positions, *h = positions + rows, *w = positions + 2 * rows;
    int64_t row = 0, now = 0;
    for (int i = 0; i <= count; i++) {
        const int64_t text_end = i < count ? places[i].row : rows;
        for (; row < text_end; row++, now++) t[row] = h[row] = w[row] = now;
        if (i == count) break;
        for (int64_t pad = 0; pad < places[i].rows; pad++, row++) {
            t[row] = now;
            h[row] = now + pad / places[i].grid_width;
            w[row] = now + pad % places[i].grid_width;
        }
        now += places[i].grid_height > places[i].grid_width ? places[i].grid_height : places[i].grid_width;
    }
}

static vx_status complete(vx_presentation_full *out, builder *b)
{
    const int64_t rows = b->ids.count;
    int32_t *tags = vx_alloc_array((size_t)rows, sizeof *tags);
    int64_t *positions = vx_alloc_array((size_t)rows, 3 * sizeof *positions);
    if (!tags || !positions) {
        vx_free(tags);
        vx_free(positions);
        return vx_no_memory("for the positions of %" PRId64 " rows", rows);
    }
    fill_tags(tags, rows, b->places, b->place_count);
    fill_positions(positions, rows, b->places, b->place_count);
    *out = (vx_presentation_full){
        .tokens = { rows, b->ids.ids, tags }, .places = b->places, .place_count = b->place_count, .positions = positions
    };
    return vx_ok();
}

static vx_status build(vx_presentation_full *out, builder *b, const vx_presentation *prompt, const vx_shown *shown, int count)
{
    int64_t block_rows;
    int blocks;
    VX_TRY(count_blocks(shown, count, &block_rows, &blocks));
    VX_TRY(check_rows(block_rows + prompt->rows));
    if (blocks > 0) {
        VX_TRY(find_markers(&b->mark, b->t));
        b->places = vx_alloc_array((size_t)blocks, sizeof *b->places);
        VX_NEED_MEMORY(b->places, "the places of pictures");
    }
    VX_TRY(put_all(b, shown, count, prompt));
    return complete(out, b);
}

vx_status vx_presentation_show(vx_presentation_full *out, const vx_tokenizer *t, const char *prompt, size_t size,
                               const vx_shown *shown, int shown_count)
{
    vx_presentation text;
    builder b = { .t = t };
    *out = (vx_presentation_full){ 0 };
    VX_TRY(vx_presentation_prompt(&text, t, prompt, size));
    vx_status s = build(out, &b, &text, shown, shown_count);
    vx_presentation_free(&text);
    if (s.code == VX_OK) return s;
    vx_free(b.ids.ids);
    vx_free(b.places);
    return s;
}

void vx_presentation_full_free(vx_presentation_full *p)
{
    vx_presentation_free(&p->tokens);
    vx_free(p->places);
    vx_free(p->positions);
    *p = (vx_presentation_full){ 0 };
}
