// PNG by libpng: eight bits a channel, alpha dropped and not composited, no gamma, no profile.
//
// 16 bits: colours keep the high byte, as the reference does. Grey alone is scaled by 1/257: the reference makes white of
// whatever exceeds 255 there, which nobody can want.
#include "internal.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <png.h>

enum { SIGNATURE = 8, MAX_CHUNK = 8 << 20, MAX_CHUNKS = 100000, ROWS_PER_LOOK = 64 };

typedef struct png_work {
    png_structp png;
    png_infop info;
    vx_picture *picture;
    size_t at; // bytes read
    int64_t row;
    bool late;
    char words[120];
    jmp_buf out;
} png_work;

static void on_error(png_structp png, png_const_charp words)
{
    png_work *w = png_get_error_ptr(png);
    snprintf(w->words, sizeof w->words, "%s", words);
    longjmp(w->out, 1);
}

static void on_warning(png_structp png, png_const_charp words)
{
    (void)png, (void)words;
}

static void on_read(png_structp png, png_bytep out, size_t count)
{
    png_work *w = png_get_io_ptr(png);
    if (w->picture->size - w->at < count) png_error(png, "it ends too early");
    memcpy(out, w->picture->bytes + w->at, count);
    w->at += count;
}

// ---- the orientation, from the chunks themselves ----

// libpng would read chunks behind the pixels only after them. A chunk:  size:4 name:4 data checksum:4
static int orientation_of(const vx_picture *p)
{
    static const char xmp[] = "XML:com.adobe.xmp\0\0\0"; // keyword, not compressed; the language tags follow
    int exif = 0, other = 0;
    size_t at = SIGNATURE;
    for (int i = 0; i < MAX_CHUNKS && p->size - at >= 12; i++) {
        const uint8_t *b = p->bytes + at;
        size_t size = (size_t)b[0] << 24 | (size_t)b[1] << 16 | (size_t)b[2] << 8 | b[3];
        if (size > p->size - at - 12) break;
        if (memcmp(b + 4, "eXIf", 4) == 0 && !exif) exif = vx_exif_orientation(b + 8, size);
        if (memcmp(b + 4, "iTXt", 4) == 0 && size >= sizeof xmp && memcmp(b + 8, xmp, sizeof xmp - 1) == 0)
            other = vx_xmp_orientation(b + 8, size);
        at += size + 12;
    }
    return exif ? exif : other;
}

// ---- pixels ----

// Whatever is stored becomes RGB of eight bits.
static void ask_for_rgb(png_work *w)
{
    int type = png_get_color_type(w->png, w->info), depth = png_get_bit_depth(w->png, w->info);
    if (depth == 16 && type == PNG_COLOR_TYPE_GRAY) png_set_scale_16(w->png);
    else if (depth == 16) png_set_strip_16(w->png);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(w->png);
    if (type == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(w->png);
    if (!(type & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(w->png);
    png_set_strip_alpha(w->png);
}

static vx_status read_rows(png_work *w)
{
    vx_picture *p = w->picture;
    size_t row_bytes = (size_t)p->width * 3;
    ask_for_rgb(w);
    int passes = png_set_interlace_handling(w->png);
    png_read_update_info(w->png, w->info);
    if (png_get_rowbytes(w->png, w->info) != row_bytes)
        return vx_fail(VX_ERR_INTERNAL, "%s: libpng makes rows of %zu bytes for %lld pixels", p->name,
                       png_get_rowbytes(w->png, w->info), (long long)p->width);
    for (int pass = 0; pass < passes; pass++)
        for (w->row = 0; w->row < p->height; w->row++) {
            if (w->row % ROWS_PER_LOOK == 0 && vx_picture_late(p)) return vx_picture_too_slow(p);
            png_read_row(w->png, p->rgb + (size_t)w->row * row_bytes, NULL);
        }
    return vx_ok();
}

static vx_status read_picture(png_work *w, bool pixels)
{
    vx_picture *p = w->picture;
    if (setjmp(w->out)) {
        char words[200];
        snprintf(words, sizeof words, "%s (row %lld of %lld)", w->words, (long long)w->row, (long long)p->height);
        return vx_picture_damaged(p, p->height ? words : w->words);
    }
    png_set_user_limits(w->png, VX_INPUT_MAX_SIDE, VX_INPUT_MAX_SIDE);
    png_set_chunk_malloc_max(w->png, MAX_CHUNK);
    // Labels are passed over: pixels do not depend on them, and libpng 1.6.39 takes the memory that an eXIf chunk claims
    // to need, up to 2 GiB, before it looks whether the file has so much.
    png_set_keep_unknown_chunks(w->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_read_fn(w->png, w, on_read);
    png_read_info(w->png, w->info);
    p->orientation = orientation_of(p);
    VX_TRY(vx_picture_prepare(p, png_get_image_width(w->png, w->info), png_get_image_height(w->png, w->info), pixels));
    return pixels ? read_rows(w) : vx_ok();
}

vx_status vx_png_read(vx_picture *p, bool pixels)
{
    png_work w = { .picture = p };
    vx_status s;
    p->format = "png";
    w.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &w, on_error, on_warning);
    w.info = w.png ? png_create_info_struct(w.png) : NULL;
    s = w.info ? read_picture(&w, pixels) : vx_fail(VX_ERR_MEMORY, "no memory for a PNG");
    png_destroy_read_struct(&w.png, &w.info, NULL);
    return s;
}
