// Rows of the packed sequence: text, conditions in packed order, target audio, target video.
//
// Positions are f64 and follow the reference's order of operations, because it stores them: frame times are a running sum
// added to the origin, the grid is numpy.linspace(endpoint=False) times 32 element by element, and the last keyframe's
// time uses NumPy's pairwise sum, whose last bits differ from the running sum from 17 latent frames on
// (denoiser specification 4.3).
#include "denoiser/layout.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"

// One audio latent is one unit of time (40 per second); a frame of 24 per second is 5/3 of it.
static const double frame_span = 5.0 / 3.0;

// Pixel frames behind latent frame k: the video VAE codes chunks of 17 frames as 1 + 4 + 4 + 4 + 4.
static double latent_span(int64_t k)
{
    return frame_span * (k % 5 == 0 ? 1 : 4);
}

int64_t vx_align_frames(int64_t frames)
{
    if (frames <= 5) return 5;
    return vx_ceil_div(frames - 5, 17) * 17 + 5;
}

int64_t vx_video_latent_frames(int64_t frames)
{
    if (frames < 5) return 1;
    return 5 * (frames - 5) / 17 + 2;
}

// rint is half to even in the default rounding mode, which nothing here changes.
int64_t vx_audio_latent_frames(int64_t frames)
{
    return (int64_t)rint((double)frames / 24.0 * 40.0);
}

static int64_t nearest_32(double v)
{
    return vx_max_i64(32, (int64_t)rint(v / 32.0) * 32);
}

int vx_canvas_size(double ratio_width, double ratio_height, int64_t short_edge, int64_t max_pixels, int64_t *width,
                   int64_t *height)
{
    double r = ratio_width / ratio_height;
    if (!(ratio_width > 0) || !(ratio_height > 0) || !(r >= 0.25 && r <= 4.0)) return 0;
    double w = r >= 1 ? (double)short_edge * r : (double)short_edge;
    double h = r >= 1 ? (double)short_edge : (double)short_edge / r;
    double area = w * h;
    if (area > (double)max_pixels) {
        double shrink = sqrt((double)max_pixels / area);
        w *= shrink;
        h *= shrink;
    }
    *width = nearest_32(w);
    *height = nearest_32(h);
    return 1;
}

// ---- positions ----

typedef struct grid {
    double left, step;
    int64_t patches;
} grid;

// An axis of `extent` latents of a picture whose sides have the geometric mean `mean`.
static grid grid_of(int64_t extent, double mean)
{
    double ratio = (double)extent / mean;
    double left = (1 - ratio) / 2;
    double stop = left + ratio;
    int64_t patches = extent / 2;
    return (grid){ left, (stop - left) / (double)patches, patches };
}

static double grid_at(grid g, int64_t i)
{
    return ((double)i * g.step + g.left) * 32;
}

typedef struct plane {
    grid h, w;
} plane;

static plane plane_of(int64_t height, int64_t width)
{
    double mean = sqrt((double)(height * width));
    return (plane){ grid_of(height, mean), grid_of(width, mean) };
}

// NumPy's summation of the spans of latent frames [begin, begin + n): eight interleaved sums, blocks of at most 128.
static double pairwise_spans(int64_t begin, int64_t n)
{
    if (n < 8) {
        double s = 0;
        for (int64_t i = 0; i < n; i++) s += latent_span(begin + i);
        return s;
    }
    if (n > 128) {
        int64_t half = n / 2 - n / 2 % 8;
        return pairwise_spans(begin, half) + pairwise_spans(begin + half, n - half);
    }
    double r[8];
    for (int j = 0; j < 8; j++) r[j] = latent_span(begin + j);
    int64_t i = 8;
    for (; i < n - n % 8; i += 8)
        for (int j = 0; j < 8; j++) r[j] += latent_span(begin + i + j);
    double s = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    for (; i < n; i++) s += latent_span(begin + i);
    return s;
}

static double sequential_spans(int64_t n)
{
    double s = 0;
    for (int64_t k = 0; k < n; k++) s += latent_span(k);
    return s;
}

// ---- rows ----

static void put_row(vx_layout *l, int64_t *row, int modality, int clock, double t, double h, double w)
{
    int64_t r = (*row)++;
    l->tag[r] = modality;
    l->clock[r] = (uint8_t)clock;
    l->position[3 * r] = t;
    l->position[3 * r + 1] = h;
    l->position[3 * r + 2] = w;
    l->followed[clock] = true;
}

static void put_video(vx_layout *l, int64_t *row, int clock, int64_t frames, plane p, double origin)
{
    double elapsed = 0;
    for (int64_t j = 0; j < frames; j++) {
        double t = origin + elapsed;
        for (int64_t y = 0; y < p.h.patches; y++) {
            double h = grid_at(p.h, y);
            for (int64_t x = 0; x < p.w.patches; x++) put_row(l, row, VX_MODALITY_VIDEO, clock, t, h, grid_at(p.w, x));
        }
        elapsed += latent_span(j);
    }
}

// The left channel sits at the left edge of the picture, the right one at the right edge.
static void put_audio(vx_layout *l, int64_t *row, int clock, int64_t frames, plane p, double origin)
{
    for (int channel = 0; channel < 2; channel++) {
        double w = grid_at(p.w, channel == 0 ? 0 : p.w.patches - 1);
        for (int64_t k = 0; k < frames; k++) put_row(l, row, VX_MODALITY_AUDIO, clock, origin + (double)k, 0, w);
    }
}

static bool is_visual(vx_condition_kind kind)
{
    return kind != VX_CONDITION_AUDIO;
}

// Time after a reference, and before it.
static double advance(const vx_condition_rows *c)
{
    switch (c->kind) {
    case VX_CONDITION_IMAGE: return 1.0;
    case VX_CONDITION_AUDIO: return (double)c->audio_frames;
    case VX_CONDITION_VIDEO: return fmax((double)c->audio_frames, sequential_spans(c->latent_frames));
    case VX_CONDITION_KEYFRAME: break;
    }
    return 0;
}

static double keyframe_time(const vx_layout_params *p, const vx_condition_rows *c, int64_t latent_frames, double origin)
{
    if (c->frame == 0) return origin;
    // The official anchor of a last picture: one frame before the end of the clip.
    if (c->frame == p->frames - 1) return origin + pairwise_spans(0, latent_frames) - frame_span;
    return origin + frame_span * (double)c->frame;
}

static void put_condition(vx_layout *l, int64_t *row, const vx_condition_rows *c, double origin, plane target)
{
    plane own = is_visual(c->kind) ? plane_of(c->latent_height, c->latent_width) : target;
    put_audio(l, row, VX_CLOCK_AUDIO_CONDITION, c->audio_frames, own, origin);
    if (is_visual(c->kind)) put_video(l, row, VX_CLOCK_VISUAL_CONDITION, c->latent_frames, own, origin);
}

static vx_status fill(vx_layout *l, const vx_layout_params *p)
{
    double target_origin = (double)p->text_rows;
    for (int i = 0; i < p->condition_count; i++) target_origin += advance(&p->conditions[i]);

    plane target = plane_of(l->latent_height, l->latent_width);
    int64_t row = 0;
    for (int64_t i = 0; i < p->text_rows; i++) put_row(l, &row, p->text_tags[i], VX_CLOCK_VIDEO, (double)i, 0, 0);
    double cursor = (double)p->text_rows;
    for (int i = 0; i < p->condition_count; i++) {
        const vx_condition_rows *c = &p->conditions[i];
        bool keyframe = c->kind == VX_CONDITION_KEYFRAME;
        put_condition(l, &row, c, keyframe ? keyframe_time(p, c, l->latent_frames, target_origin) : cursor, target);
        cursor += advance(c);
    }
    put_audio(l, &row, VX_CLOCK_AUDIO, l->audio_frames, target, target_origin);
    put_video(l, &row, VX_CLOCK_VIDEO, l->latent_frames, target, target_origin);
    if (row != l->rows)
        return vx_fail(VX_ERR_INTERNAL, "layout: %lld rows written, %lld counted", (long long)row, (long long)l->rows);
    return vx_ok();
}

// ---- checks and counts ----

// Each extent of a condition; far above anything real, so that the products below cannot overflow.
enum { MAX_EXTENT = 1 << 16, MAX_ROWS = 1 << 24 };

static bool within(int64_t v, int64_t lo, int64_t hi)
{
    return v >= lo && v <= hi;
}

static vx_status check_condition(const vx_layout_params *p, int i, const vx_layout *l)
{
    const vx_condition_rows *c = &p->conditions[i];
    if (!within((int64_t)c->kind, VX_CONDITION_KEYFRAME, VX_CONDITION_AUDIO))
        return vx_fail(VX_ERR_RANGE, "condition %d: unknown kind %d", i, (int)c->kind);
    if (!within(c->audio_frames, c->kind == VX_CONDITION_AUDIO, MAX_EXTENT))
        return vx_fail(VX_ERR_RANGE, "condition %d: %lld audio latents", i, (long long)c->audio_frames);
    if (!is_visual(c->kind)) return vx_ok();
    bool even = c->latent_height % 2 == 0 && c->latent_width % 2 == 0;
    if (!even || !within(c->latent_height, 2, MAX_EXTENT) || !within(c->latent_width, 2, MAX_EXTENT) ||
        !within(c->latent_frames, 1, MAX_EXTENT))
        return vx_fail(VX_ERR_RANGE, "condition %d: a latent of %lld frames, %lld x %lld; height and width must be even", i,
                       (long long)c->latent_frames, (long long)c->latent_height, (long long)c->latent_width);
    if (c->kind == VX_CONDITION_IMAGE && (c->latent_frames != 1 || c->audio_frames != 0))
        return vx_fail(VX_ERR_RANGE, "condition %d: an image has one latent frame and no sound", i);
    if (c->kind != VX_CONDITION_KEYFRAME) return vx_ok();
    if (!within(c->frame, 0, p->frames - 1))
        return vx_fail_field(VX_ERR_RANGE, "keyframes", "frame %lld lies outside the clip of %lld frames", (long long)c->frame,
                             (long long)p->frames);
    if (c->latent_height != l->latent_height || c->latent_width != l->latent_width)
        return vx_fail(VX_ERR_RANGE, "condition %d: the keyframe's latent is %lld x %lld, the target's %lld x %lld", i,
                       (long long)c->latent_height, (long long)c->latent_width, (long long)l->latent_height,
                       (long long)l->latent_width);
    if (c->latent_frames > 1 &&
        frame_span * (double)c->frame + sequential_spans(c->latent_frames) > sequential_spans(l->latent_frames) + 1e-6)
        return vx_fail_field(VX_ERR_RANGE, "keyframes",
                             "a clip of %lld latent frames at frame %lld does not fit into %lld frames",
                             (long long)c->latent_frames, (long long)c->frame, (long long)p->frames);
    if (c->audio_frames > 0 && (double)c->audio_frames > floor((double)l->audio_frames - frame_span * (double)c->frame))
        return vx_fail_field(VX_ERR_RANGE, "keyframes", "%lld audio latents at frame %lld do not fit into %lld",
                             (long long)c->audio_frames, (long long)c->frame, (long long)l->audio_frames);
    return vx_ok();
}

static vx_status measure(vx_layout *l, const vx_layout_params *p)
{
    if (!within(p->text_rows, 1, MAX_ROWS) || !p->text_tags)
        return vx_fail(VX_ERR_RANGE, "layout: %lld text rows", (long long)p->text_rows);
    for (int64_t i = 0; i < p->text_rows; i++)
        if (p->text_tags[i] != VX_MODALITY_TEXT && p->text_tags[i] != VX_MODALITY_VIDEO)
            return vx_fail(VX_ERR_RANGE, "layout: text row %lld has tag %d", (long long)i, (int)p->text_tags[i]);
    if (!within(p->frames, 5, 17 * MAX_EXTENT / 5) || p->frames % 17 != 5)
        return vx_fail_field(VX_ERR_RANGE, "frames", "%lld frames: the number must be 17n+5", (long long)p->frames);
    if (!within(p->width, 32, 16 * MAX_EXTENT) || !within(p->height, 32, 16 * MAX_EXTENT) || p->width % 32 != 0 ||
        p->height % 32 != 0)
        return vx_fail_field(VX_ERR_RANGE, "width", "%lld x %lld: both must be multiples of 32", (long long)p->width,
                             (long long)p->height);
    l->text_rows = p->text_rows;
    l->latent_frames = vx_video_latent_frames(p->frames);
    l->latent_height = p->height / 16;
    l->latent_width = p->width / 16;
    l->audio_frames = vx_audio_latent_frames(p->frames);
    l->audio_rows = 2 * l->audio_frames;
    l->video_rows = l->latent_frames * (l->latent_height / 2) * (l->latent_width / 2);
    for (int i = 0; i < p->condition_count; i++) {
        VX_TRY(check_condition(p, i, l));
        const vx_condition_rows *c = &p->conditions[i];
        l->condition_rows += 2 * c->audio_frames;
        if (is_visual(c->kind)) l->condition_rows += c->latent_frames * (c->latent_height / 2) * (c->latent_width / 2);
        if (l->condition_rows > MAX_ROWS) break;
    }
    l->condition_begin = l->text_rows;
    l->audio_begin = l->condition_begin + l->condition_rows;
    l->video_begin = l->audio_begin + l->audio_rows;
    l->rows = l->video_begin + l->video_rows;
    if (l->rows > MAX_ROWS)
        return vx_fail(VX_ERR_RANGE, "the packed sequence has %lld rows, at most %d", (long long)l->rows, MAX_ROWS);
    return vx_ok();
}

vx_status vx_layout_create(vx_layout *out, const vx_layout_params *params)
{
    *out = (vx_layout){ 0 };
    vx_layout l = { 0 };
    VX_TRY(measure(&l, params));
    vx_status s = vx_ok();
    l.tag = vx_alloc_array((size_t)l.rows, sizeof *l.tag);
    l.position = vx_alloc_array((size_t)l.rows, 3 * sizeof *l.position);
    l.clock = vx_alloc_array((size_t)l.rows, sizeof *l.clock);
    if (!l.tag || !l.position || !l.clock) s = vx_no_memory("for a layout of %lld rows", (long long)l.rows);
    if (s.code == VX_OK) s = fill(&l, params);
    if (s.code != VX_OK) vx_layout_free(&l);
    else *out = l;
    return s;
}

void vx_layout_free(vx_layout *layout)
{
    if (!layout) return;
    vx_free(layout->tag);
    vx_free(layout->position);
    vx_free(layout->clock);
    *layout = (vx_layout){ 0 };
}

int vx_layout_timesteps(const vx_layout *layout, float t_video, float t_audio, float distinct[VX_CLOCKS], int index[VX_CLOCKS])
{
    // f32(0.999) and 1: how clean the reference calls its conditions, whatever the step (specification 5).
    const float t[VX_CLOCKS] = { t_video, t_audio, fmaxf(t_video, 0.999f), 1.0f };
    int count = 0;
    for (int c = 0; c < VX_CLOCKS; c++) {
        if (!layout->followed[c]) continue;
        int at = 0;
        while (at < count && distinct[at] < t[c]) at++;
        if (at < count && distinct[at] == t[c]) continue;
        memmove(distinct + at + 1, distinct + at, (size_t)(count - at) * sizeof *distinct);
        distinct[at] = t[c];
        count++;
    }
    for (int c = 0; c < VX_CLOCKS; c++) {
        index[c] = -1;
        for (int i = 0; i < count && layout->followed[c]; i++)
            if (distinct[i] == t[c]) index[c] = i;
    }
    return count;
}

int64_t vx_layout_indices(const vx_layout *layout, int tag, int32_t *out)
{
    int64_t count = 0;
    int64_t begin = tag == VX_MODALITY_TEXT ? 0 : layout->text_rows;
    int64_t end = tag == VX_MODALITY_TEXT ? layout->text_rows : layout->rows;
    for (int64_t r = begin; r < end; r++) {
        if (tag != VX_MODALITY_TEXT && layout->tag[r] != tag) continue;
        if (out) out[count] = (int32_t)r;
        count++;
    }
    return count;
}
