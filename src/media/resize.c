// Separable resampling of 8-bit pictures with fixed-point weights, as Pillow and PyTorch do it.
//
// One axis: output i looks at the window of inputs around its centre (i + 1/2)*scale, scale = in/out; the filter is stretched
// by the scale when reducing. Weights are made and normalised in f64, then rounded to integers with `precision` fraction
// bits; the sum is in int32 and rounds half up. The first of the two passes rounds to bytes before the second reads them,
// so their order shows in the result.
//
//   Pillow   22 bits (8 for the pixel and 2 for the filter's overshoot fill the int32); down first where that saves work
//   PyTorch  as many bits as keep the largest weight of the axis within int16; across first
#include "media/resize.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"

enum { CHANNELS = 3, MAX_SIDE = 65536, PILLOW_PRECISION = 22, STRIP = 2048 };

static const double pi = 3.14159265358979323846;

// One axis of a resize: outputs first .. first+count-1 of `out` are made.
typedef struct axis {
    int64_t in, out, first, count;
    int taps;        // room for each output
    int64_t *start;  // [count] first input
    int *length;     // [count] inputs
    int32_t *weight; // [count, taps]
    int precision;
} axis;

// ---- weights ----

static double sinc(double x)
{
    return x == 0 ? 1 : sin(pi * x) / (pi * x);
}

static double lanczos(double x)
{
    return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

// The window of output i, and its normalised weights.
static void weigh(double *weight, int64_t *start, int *length, const axis *a, int64_t i, vx_resize_filter filter)
{
    double scale = (double)a->in / (double)a->out, stretch = fmax(scale, 1);
    double support = (filter == VX_RESIZE_LANCZOS ? 3 : 2) * stretch, centre = ((double)i + 0.5) * scale, sum = 0;
    // Conversion truncates toward zero, as the reference's does; at the left edge that matters before the clip.
    int64_t low = vx_max_i64(0, (int64_t)(centre - support + 0.5)), high = vx_min_i64(a->in, (int64_t)(centre + support + 0.5));
    *start = low;
    *length = (int)(high - low);
    for (int t = 0; t < *length; t++) {
        double x = ((double)(low + t) - centre + 0.5) * (1 / stretch);
        weight[t] = filter == VX_RESIZE_LANCZOS ? lanczos(x) : bicubic(x);
        sum += weight[t];
    }
    for (int t = 0; t < *length && sum != 0; t++) weight[t] /= sum;
}

static int32_t fixed(double weight, int precision)
{
    return (int32_t)(weight * (double)(1 << precision) + (weight < 0 ? -0.5 : 0.5));
}

static int torch_precision(double largest)
{
    int p = 0;
    while (p < PILLOW_PRECISION && (int)(0.5 + largest * (double)(1 << (p + 1))) < 1 << 15) p++;
    return p;
}

static void axis_free(axis *a)
{
    vx_free(a->start);
    vx_free(a->length);
    vx_free(a->weight);
}

static void axis_fill(axis *a, double *scratch, vx_resize_filter filter)
{
    double largest = 0;
    a->precision = PILLOW_PRECISION;
    // The largest weight is that of the whole axis, also where only a part of it is made.
    for (int64_t i = 0; filter == VX_RESIZE_BICUBIC_TORCH && i < a->out; i++) {
        int64_t start;
        int length;
        weigh(scratch, &start, &length, a, i, filter);
        for (int t = 0; t < length; t++) largest = fmax(largest, scratch[t]);
    }
    if (filter == VX_RESIZE_BICUBIC_TORCH) a->precision = torch_precision(largest);
    for (int64_t i = 0; i < a->count; i++) {
        weigh(scratch, &a->start[i], &a->length[i], a, a->first + i, filter);
        for (int t = 0; t < a->length[i]; t++) a->weight[i * a->taps + t] = fixed(scratch[t], a->precision);
    }
}

static vx_status axis_make(axis *a, int64_t in, int64_t out, int64_t first, int64_t count, vx_resize_filter filter)
{
    double stretch = fmax((double)in / (double)out, 1);
    *a = (axis){ .in = in, .out = out, .first = first, .count = count };
    a->taps = 2 * (int)ceil((filter == VX_RESIZE_LANCZOS ? 3 : 2) * stretch) + 1;
    size_t n = (size_t)count;
    a->start = vx_alloc_array(n, sizeof *a->start);
    a->length = vx_alloc_array(n, sizeof *a->length);
    a->weight = vx_alloc_array(n, (size_t)a->taps * sizeof *a->weight);
    double *scratch = vx_alloc_array((size_t)a->taps, sizeof *scratch);
    bool there = a->start && a->length && a->weight && scratch;
    if (there) axis_fill(a, scratch, filter);
    vx_free(scratch);
    return there ? vx_ok() : vx_no_memory("for a resize's weights");
}

// ---- passes ----

static inline uint8_t to_byte(int32_t sum, int precision)
{
    sum >>= precision;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

// [rows, a->in] -> [rows, a->count]
static void pass_across(uint8_t *out, const uint8_t *in, int64_t rows, const axis *a)
{
    const int32_t half = 1 << (a->precision - 1);
    for (int64_t y = 0; y < rows; y++, in += a->in * CHANNELS)
        for (int64_t x = 0; x < a->count; x++, out += CHANNELS) {
            const uint8_t *p = in + a->start[x] * CHANNELS;
            const int32_t *w = a->weight + x * a->taps;
            int32_t r = half, g = half, b = half;
            for (int t = 0; t < a->length[x]; t++, p += CHANNELS) {
                r += p[0] * w[t];
                g += p[1] * w[t];
                b += p[2] * w[t];
            }
            out[0] = to_byte(r, a->precision);
            out[1] = to_byte(g, a->precision);
            out[2] = to_byte(b, a->precision);
        }
}

// [a->in rows from `origin` on, bytes] -> [a->count, bytes]; in strips whose sums stay in the first cache.
static void pass_down(uint8_t *out, const uint8_t *in, int64_t origin, int64_t bytes, const axis *a)
{
    int32_t sum[STRIP];
    for (int64_t y = 0; y < a->count; y++, out += bytes)
        for (int64_t from = 0; from < bytes; from += STRIP) {
            int n = (int)vx_min_i64(STRIP, bytes - from);
            const uint8_t *p = in + (a->start[y] - origin) * bytes + from;
            for (int i = 0; i < n; i++) sum[i] = 1 << (a->precision - 1);
            for (int t = 0; t < a->length[y]; t++, p += bytes) {
                const int32_t w = a->weight[y * a->taps + t];
                for (int i = 0; i < n; i++) sum[i] += p[i] * w;
            }
            for (int i = 0; i < n; i++) out[from + i] = to_byte(sum[i], a->precision);
        }
}

static vx_status middle_alloc(uint8_t **out, int64_t width, int64_t height)
{
    size_t bytes;
    if (!vx_mul_size((size_t)width * CHANNELS, (size_t)height, &bytes) || !(*out = vx_alloc(bytes)))
        return vx_no_memory("for a resize by way of %lldx%lld", (long long)width, (long long)height);
    return vx_ok();
}

static vx_status down_then_across(uint8_t *out, const uint8_t *in, const axis *h, const axis *v)
{
    uint8_t *middle;
    VX_TRY(middle_alloc(&middle, h->in, v->count));
    pass_down(middle, in, 0, h->in * CHANNELS, v);
    pass_across(out, middle, v->count, h);
    vx_free(middle);
    return vx_ok();
}

// Only the rows that the second pass reads are made by the first.
static vx_status across_then_down(uint8_t *out, const uint8_t *in, const axis *h, const axis *v)
{
    uint8_t *middle;
    int64_t low = v->start[0], high = v->start[v->count - 1] + v->length[v->count - 1];
    VX_TRY(middle_alloc(&middle, h->count, high - low));
    pass_across(middle, in + low * h->in * CHANNELS, high - low, h);
    pass_down(out, middle, low, h->count * CHANNELS, v);
    vx_free(middle);
    return vx_ok();
}

static void copy_window(uint8_t *out, const uint8_t *in, const axis *h, const axis *v)
{
    for (int64_t y = 0; y < v->count; y++)
        memcpy(out + y * h->count * CHANNELS, in + ((v->first + y) * h->in + h->first) * CHANNELS, (size_t)(h->count * CHANNELS));
}

// A pass whose size does not change is left out: its weights would be 1, but a window would still have to be cut.
static vx_status run(uint8_t *out, const uint8_t *in, const axis *h, const axis *v, vx_resize_filter filter)
{
    bool across = h->in != h->out || h->count != h->out, down = v->in != v->out || v->count != v->out;
    int64_t less_high = v->in - v->out, less_wide = h->in - h->out;
    if (h->in == h->out && v->in == v->out) copy_window(out, in, h, v);
    else if (!down) pass_across(out, in, v->count, h);
    else if (!across) pass_down(out, in, 0, h->in * CHANNELS, v);
    else if (filter != VX_RESIZE_BICUBIC_TORCH && less_high > 0 && less_high > 2 * less_wide)
        return down_then_across(out, in, h, v);
    else return across_then_down(out, in, h, v);
    return vx_ok();
}

typedef struct window {
    int64_t left, top, width, height;
} window;

// The window of the picture that resizing to out_width x out_height would give.
static vx_status resize_window(uint8_t *out, window w, int64_t out_width, int64_t out_height, const uint8_t *in, int64_t width,
                               int64_t height, vx_resize_filter filter)
{
    axis h, v = { 0 };
    vx_status s = axis_make(&h, width, out_width, w.left, w.width, filter);
    if (s.code == VX_OK) s = axis_make(&v, height, out_height, w.top, w.height, filter);
    if (s.code == VX_OK) s = run(out, in, &h, &v, filter);
    axis_free(&h);
    axis_free(&v);
    return s;
}

static vx_status check_sides(int64_t out_width, int64_t out_height, int64_t width, int64_t height)
{
    const int64_t sides[] = { out_width, out_height, width, height };
    for (int i = 0; i < 4; i++)
        if (sides[i] < 1 || sides[i] > MAX_SIDE)
            return vx_fail(VX_ERR_RANGE, "a picture of %lldx%lld cannot be resized to %lldx%lld: sides must be within 1..%d",
                           (long long)width, (long long)height, (long long)out_width, (long long)out_height, MAX_SIDE);
    return vx_ok();
}

vx_status vx_resize(uint8_t *out, int64_t out_width, int64_t out_height, const uint8_t *in, int64_t width, int64_t height,
                    vx_resize_filter filter)
{
    VX_TRY(check_sides(out_width, out_height, width, height));
    return resize_window(out, (window){ 0, 0, out_width, out_height }, out_width, out_height, in, width, height, filter);
}

vx_status vx_resize_cover(uint8_t *out, int64_t out_width, int64_t out_height, const uint8_t *in, int64_t width, int64_t height)
{
    VX_TRY(check_sides(out_width, out_height, width, height));
    double scale = fmax((double)out_width / (double)width, (double)out_height / (double)height);
    // Python's round: half to even, which is what nearbyint does in the default mode. What will be cut off is not made, so
    // the covering picture may be wider than any that is held.
    int64_t wide = vx_max_i64(out_width, (int64_t)nearbyint((double)width * scale));
    int64_t high = vx_max_i64(out_height, (int64_t)nearbyint((double)height * scale));
    window w = { (wide - out_width) / 2, (high - out_height) / 2, out_width, out_height };
    return resize_window(out, w, wide, high, in, width, height, VX_RESIZE_LANCZOS);
}
