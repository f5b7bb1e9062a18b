#include "pipeline/source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/str.h"
#include "media/sound.h"
#include "weights/safetensors.h"

struct vx_source {
    char *path;
    vx_input_facts facts;
    vx_safetensors *samples; // NULL for a media file
    const vx_safetensors_entry *pixels, *waveform;
};

static vx_status wrong(const vx_source *s, const char *what)
{
    return vx_fail(VX_ERR_INPUT_FORMAT, "%s: %s", s->path, what);
}

// "25", "30000/1001" or "23.976".
static bool parse_rate(const char *text, int *num, int *den)
{
    char *end;
    double value = strtod(text, &end), below = 1;
    if (end == text) return false;
    if (*end == '/') {
        const char *second = end + 1;
        below = strtod(second, &end);
        if (end == second) return false;
    }
    if (*end || !(value > 0) || !(below > 0) || value / below < 0.5 || value / below > 1000) return false;
    bool whole = value == floor(value) && below == floor(below) && value < 1e8 && below < 1e8;
    *num = whole ? (int)value : (int)nearbyint(value / below * 1000);
    *den = whole ? (int)below : 1000;
    return true;
}

static vx_status read_samples(vx_source *s, bool defaults)
{
    vx_input_facts *f = &s->facts;
    VX_TRY(vx_safetensors_open(&s->samples, s->path, &(vx_safetensors_params){ .input = true }));
    s->pixels = vx_safetensors_find(s->samples, "pixels");
    s->waveform = vx_safetensors_find(s->samples, "waveform");
    if (!s->pixels && !s->waveform) return wrong(s, "neither 'pixels' nor 'waveform' is there");
    snprintf(f->format, sizeof f->format, "safetensors");
    if (s->pixels) {
        const vx_safetensors_entry *p = s->pixels;
        if (p->dtype != VX_U8 || p->rank != 4 || p->shape[3] != 3 || p->shape[0] < 1 || p->shape[1] < 1 || p->shape[2] < 1)
            return wrong(s, "'pixels' is not U8 [N,H,W,3]");
        if (p->shape[1] > VX_INPUT_MAX_SIDE || p->shape[2] > VX_INPUT_MAX_SIDE || p->shape[1] * p->shape[2] > VX_INPUT_MAX_PIXELS)
            return wrong(s, "'pixels' are too large");
        f->kind = p->shape[0] > 1 ? VX_INPUT_VIDEO : VX_INPUT_PICTURE;
        f->height = p->shape[1];
        f->width = p->shape[2];
        const char *fps = vx_safetensors_metadata(s->samples, "fps");
        if (!fps && defaults) fps = "24";
        if (f->kind == VX_INPUT_VIDEO && (!fps || !parse_rate(fps, &f->fps_num, &f->fps_den)))
            return wrong(s, "metadata 'fps' is missing or not a rate");
        if (f->kind == VX_INPUT_VIDEO) f->video_s = (double)p->shape[0] * f->fps_den / f->fps_num;
    } else f->kind = VX_INPUT_SOUND;
    if (s->waveform) {
        const vx_safetensors_entry *w = s->waveform;
        const char *rate = vx_safetensors_metadata(s->samples, "sample_rate");
        char *end = NULL;
        if (!rate && defaults) rate = "32000";
        long hertz = rate ? strtol(rate, &end, 10) : 0;
        if (w->dtype != VX_F32 || w->rank != 2 || w->shape[0] < 1 || w->shape[1] < 1)
            return wrong(s, "'waveform' is not F32 [channels, samples]");
        if (!rate || *end || hertz < 1000 || hertz > 384000)
            return wrong(s, "metadata 'sample_rate' is missing or not within 1000..384000");
        f->sound = true;
        f->sample_rate = (int)hertz;
        f->channels = (int)vx_min_i64(w->shape[0], 1000);
        f->sound_s = (double)w->shape[1] / (double)hertz;
    }
    return vx_ok();
}

static vx_status open_source(vx_source **out, const char *path, bool samples)
{
    vx_source *s = vx_alloc_array(1, sizeof *s);
    VX_NEED_MEMORY(s, "an input");
    s->path = vx_strdup(path);
    vx_status status = s->path ? vx_ok() : vx_no_memory("for an input");
    if (!status.code && samples) status = read_samples(s, true);
    else if (!status.code)
        status = vx_has_suffix(path, ".safetensors") ? read_samples(s, false) : vx_input_probe(&s->facts, path);
    if (status.code) vx_source_close(&s);
    else *out = s;
    return status;
}

vx_status vx_source_open(vx_source **out, const char *path)
{
    return open_source(out, path, false);
}

vx_status vx_source_open_samples(vx_source **out, const char *path)
{
    return open_source(out, path, true);
}

const uint8_t *vx_source_pixels(const vx_source *source)
{
    return source->pixels ? source->pixels->data : NULL;
}

void vx_source_close(vx_source **source)
{
    if (!source || !*source) return;
    vx_safetensors_close(&(*source)->samples);
    vx_free((*source)->path);
    vx_free(*source);
    *source = NULL;
}

const vx_input_facts *vx_source_facts(const vx_source *s)
{
    return &s->facts;
}
int64_t vx_source_frames(const vx_source *s)
{
    return s->pixels ? s->pixels->shape[0] : 0;
}

vx_status vx_source_picture(const vx_source *s, uint8_t **rgb, int64_t *width, int64_t *height)
{
    if (!s->samples) return vx_input_picture(rgb, width, height, s->path);
    if (!s->pixels) return wrong(s, "there are no 'pixels'");
    size_t bytes = (size_t)(s->pixels->shape[1] * s->pixels->shape[2]) * 3;
    *rgb = vx_alloc(bytes);
    VX_NEED_MEMORY(*rgb, "a picture");
    memcpy(*rgb, s->pixels->data, bytes);
    *height = s->pixels->shape[1];
    *width = s->pixels->shape[2];
    return vx_safetensors_check(s->samples);
}

vx_status vx_source_each_frame(const vx_source *s, int64_t max_slots, vx_input_frame_fn frame, void *user, int64_t *slots)
{
    if (!s->samples) return vx_input_frames(s->path, max_slots, frame, user, slots);
    if (!s->pixels) return wrong(s, "there are no 'pixels'");
    int64_t n = s->pixels->shape[0], num = s->facts.fps_num ? s->facts.fps_num : 24,
            den = s->facts.fps_den ? s->facts.fps_den : 1;
    size_t bytes = (size_t)(s->pixels->shape[1] * s->pixels->shape[2]) * 3;
    *slots = 0;
    for (int64_t i = 0; i < n && *slots < max_slots; i++) {
        int64_t begin = vx_frame_slot(i, num, den), end = vx_min_i64(vx_frame_slot(i + 1, num, den), max_slots);
        if (end <= begin) continue;
        *slots = end;
        if (!frame(user, begin, end - begin, (const uint8_t *)s->pixels->data + (size_t)i * bytes, s->pixels->shape[2],
                   s->pixels->shape[1]))
            break;
    }
    return vx_safetensors_check(s->samples);
}

vx_status vx_source_sound(const vx_source *s, float **planar, int64_t *channels, int64_t *samples, int64_t *sample_rate,
                          int64_t max_samples)
{
    if (!s->samples) return vx_input_sound(planar, channels, samples, sample_rate, s->path, max_samples);
    if (!s->waveform) return wrong(s, "there is no 'waveform'");
    const vx_safetensors_entry *w = s->waveform;
    if (w->shape[0] > 2) return wrong(s, "'waveform' has more than 2 channels");
    *channels = w->shape[0];
    *sample_rate = s->facts.sample_rate;
    *samples = max_samples ? vx_min_i64(w->shape[1], max_samples) : w->shape[1];
    size_t row = (size_t)*samples * sizeof(float);
    *planar = vx_alloc(row * (size_t)*channels);
    VX_NEED_MEMORY(*planar, "a sound");
    for (int64_t c = 0; c < *channels; c++)
        memcpy((char *)*planar + (size_t)c * row, (const float *)w->data + c * w->shape[1], row);
    for (int64_t i = 0; i < *samples * *channels; i++)
        if (!isfinite((*planar)[i])) {
            vx_free(*planar);
            return wrong(s, "'waveform' holds NaN or infinity");
        }
    return vx_safetensors_check(s->samples);
}
