// JPEG by libjpeg(-turbo) with its defaults, which are the reference's: accurate integer transform, smooth chroma.
//
// libjpeg leaves by longjmp; everything that must be given back lies in jpeg_work, outside the frame that is left.
#include "internal.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "base/alloc.h"

enum {
    // A progressive picture may repeat scans without end; each costs a pass over the whole of it. Encoders write about 10.
    MAX_SCANS = 100,
    APP1 = JPEG_APP0 + 1,
    MAX_MARKER = 0xffff,
};

typedef struct jpeg_work {
    struct jpeg_error_mgr errors; // first: libjpeg hands back its address
    struct jpeg_progress_mgr progress;
    struct jpeg_decompress_struct d;
    vx_picture *picture;
    uint8_t *inks; // a row of four inks
    int64_t row;
    bool late, many_scans;
    char words[JMSG_LENGTH_MAX];
    jmp_buf out;
} jpeg_work;

static void on_error(j_common_ptr d)
{
    jpeg_work *w = (jpeg_work *)d->err;
    d->err->format_message(d, w->words);
    longjmp(w->out, 1);
}

// libjpeg goes on after these with grey in place of what is lost. Here a picture is whole or refused; what is only untidy
// (bytes between segments, a strange version number) passes.
static void on_message(j_common_ptr d, int level)
{
    if (level >= 0) return;
    switch (d->err->msg_code) {
    case JWRN_ARITH_BAD_CODE:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC: on_error(d); break;
    default: break;
    }
}

static void on_output(j_common_ptr d)
{
    (void)d;
}

static void on_progress(j_common_ptr d)
{
    jpeg_work *w = (jpeg_work *)d->err;
    w->late = vx_picture_late(w->picture);
    w->many_scans = w->d.input_scan_number > MAX_SCANS;
    if (w->late || w->many_scans) longjmp(w->out, 1);
}

static int mul255(int a, int b)
{
    int t = a * b + 128;
    return ((t >> 8) + t) >> 8;
}

// Inks to RGB as the reference converts them: taken for inverted whether or not Adobe's marker says so.
static void mix_inks(uint8_t *rgb, const uint8_t *inks, int64_t width)
{
    for (int64_t x = 0; x < width; x++, inks += 4, rgb += 3) {
        int white = inks[3];
        for (int c = 0; c < 3; c++) {
            int v = white - mul255(255 - inks[c], white);
            rgb[c] = (uint8_t)(v < 0 ? 0 : v);
        }
    }
}

static bool has_prefix(const struct jpeg_marker_struct *m, const char *prefix, size_t size)
{
    return m->marker == APP1 && m->data_length >= size && memcmp(m->data, prefix, size) == 0;
}

static int orientation_of(const struct jpeg_decompress_struct *d)
{
    static const char exif[] = "Exif\0", xmp[] = "http://ns.adobe.com/xap/1.0/"; // both with the 0 at their ends
    int found = 0;
    for (const struct jpeg_marker_struct *m = d->marker_list; m && !found; m = m->next)
        if (has_prefix(m, exif, sizeof exif)) found = vx_exif_orientation(m->data, m->data_length);
    for (const struct jpeg_marker_struct *m = d->marker_list; m && !found; m = m->next)
        if (has_prefix(m, xmp, sizeof xmp)) found = vx_xmp_orientation(m->data + sizeof xmp, m->data_length - sizeof xmp);
    return found;
}

static vx_status read_header(jpeg_work *w)
{
    vx_picture *p = w->picture;
    jpeg_create_decompress(&w->d);
    w->d.progress = &w->progress;
    jpeg_mem_src(&w->d, p->bytes, (unsigned long)p->size);
    jpeg_save_markers(&w->d, APP1, MAX_MARKER);
    jpeg_read_header(&w->d, TRUE);
    int parts = w->d.num_components;
    if (parts != 1 && parts != 3 && parts != 4)
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: a JPEG of %d components, which stand for no colours", p->name, parts);
    p->orientation = orientation_of(&w->d);
    return vx_ok();
}

static void read_rows(jpeg_work *w)
{
    vx_picture *p = w->picture;
    bool inks = w->d.num_components == 4;
    w->d.out_color_space = inks ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&w->d);
    for (w->row = 0; w->row < p->height;) {
        uint8_t *rgb = p->rgb + w->row * p->width * 3;
        JSAMPROW into = inks ? w->inks : rgb;
        if (jpeg_read_scanlines(&w->d, &into, 1) != 1) continue;
        if (inks) mix_inks(rgb, w->inks, p->width);
        w->row++;
    }
    jpeg_finish_decompress(&w->d);
}

static vx_status read_picture(jpeg_work *w, bool pixels)
{
    if (setjmp(w->out)) {
        if (w->late) return vx_picture_too_slow(w->picture);
        if (w->many_scans) return vx_fail(VX_ERR_INPUT_FORMAT, "%s: a JPEG of more than %d scans", w->picture->name, MAX_SCANS);
        char words[JMSG_LENGTH_MAX + 40];
        snprintf(words, sizeof words, "%s (row %lld of %lld)", w->words, (long long)w->row, (long long)w->picture->height);
        return vx_picture_damaged(w->picture, w->picture->height ? words : w->words);
    }
    VX_TRY(read_header(w));
    VX_TRY(vx_picture_prepare(w->picture, w->d.image_width, w->d.image_height, pixels));
    if (!pixels) return vx_ok();
    w->inks = vx_alloc_array(w->d.image_width, 4);
    VX_NEED_MEMORY(w->inks, "a row of a picture");
    read_rows(w);
    return vx_ok();
}

vx_status vx_jpeg_read(vx_picture *p, bool pixels)
{
    jpeg_work *w = vx_alloc_array(1, sizeof *w);
    VX_NEED_MEMORY(w, "a JPEG");
    p->format = "jpeg";
    w->picture = p;
    w->d.err = jpeg_std_error(&w->errors);
    w->errors.error_exit = on_error;
    w->errors.emit_message = on_message;
    w->errors.output_message = on_output;
    w->progress.progress_monitor = on_progress;
    vx_status s = read_picture(w, pixels);
    jpeg_destroy_decompress(&w->d);
    vx_free(w->inks);
    vx_free(w);
    return s;
}
