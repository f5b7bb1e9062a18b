// torchaudio's windowed-sinc resampler (sinc_interp_hann, 6 zero crossings, roll-off 0.99) and the 24 per second grid.
//
// With O = from/gcd and N = to/gcd, output q*N + r reads inputs around q*O + r*O/N; phase r has its own weights. They are
// made in f64 (but for the phase, see tap_at) and rounded to f32, as torchaudio's transform does. Only weights inside the window
// are kept: the others are zero. Sums are in f64, rounded once; torchaudio's order of f32 sums is its convolution's secret.
#include "media/sound.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"

enum { MIN_RATE = 1000, MAX_RATE = 384000, CROSSINGS = 6, GRID = 24 };

static const double pi = 3.14159265358979323846, rolloff = 0.99;

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int64_t vx_resampled_count(int64_t samples, int64_t from, int64_t to)
{
    if (samples < 1 || from == to) return vx_max_i64(samples, 0);
    int64_t g = gcd(from, to), o = from / g, n = to / g, product;
    if (!vx_mul_i64(n, samples, &product)) return 0;
    // The quotient is rounded to f32 before the ceiling: about one length of 44.1 kHz in a hundred loses a sample.
    int64_t count = (int64_t)ceilf((float)((double)product / (double)o));
    // The convolution's own length ends it where f32 rounded up by more than a block.
    return vx_min_i64(count, (samples / o + 1) * n);
}

typedef struct phases {
    int64_t o, n;
    double base;
    int taps;     // of a phase
    float *tap;   // [count, taps]
    int64_t *low; // [count] offset of the first tap from q*O
} phases;

// The phase r/N is rounded to f32: torch divides two integers so, whatever the rest is in. At 44.1 kHz that moves single
// weights by 1e-5.
static float tap_at(const phases *p, int64_t r, int64_t offset)
{
    double t = ((double)(-(float)r / (float)p->n) + (double)offset / (double)p->o) * p->base;
    t = fmin(fmax(t, -CROSSINGS), CROSSINGS);
    double window = cos(t * pi / CROSSINGS / 2), angle = t * pi;
    return (float)((angle == 0 ? 1 : sin(angle) / angle) * (window * window * (p->base / (double)p->o)));
}

static vx_status make_phases(phases *p, int64_t o, int64_t n, int64_t count)
{
    *p = (phases){ .o = o, .n = n, .base = (double)vx_min_i64(o, n) * rolloff };
    double reach = CROSSINGS / p->base * (double)o;
    p->taps = 2 * (int)ceil(reach) + 1;
    p->tap = vx_alloc_array((size_t)count, (size_t)p->taps * sizeof *p->tap);
    p->low = vx_alloc_array((size_t)count, sizeof *p->low);
    if (!p->tap || !p->low) return vx_no_memory("for a resampler");
    for (int64_t r = 0; r < count; r++) {
        p->low[r] = (int64_t)ceil((double)r / (double)n * (double)o - reach);
        for (int t = 0; t < p->taps; t++) p->tap[r * p->taps + t] = tap_at(p, r, p->low[r] + t);
    }
    return vx_ok();
}

static void run_phases(float *out, const float *in, int64_t samples, int64_t count, const phases *p)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t r = i % p->n, at = i / p->n * p->o + p->low[r];
        const float *tap = p->tap + r * p->taps;
        int first = (int)vx_max_i64(0, -at), last = (int)vx_min_i64(p->taps, vx_max_i64(samples - at, 0));
        double sum = 0;
        for (int t = first; t < last; t++) sum += (double)tap[t] * (double)in[at + t];
        out[i] = (float)sum;
    }
}

vx_status vx_resample(float *out, const float *in, int64_t samples, int64_t from, int64_t to)
{
    if (from < MIN_RATE || from > MAX_RATE || to < MIN_RATE || to > MAX_RATE)
        return vx_fail(VX_ERR_RANGE, "sound at %lld Hz cannot be resampled to %lld Hz: rates must be within %d..%d",
                       (long long)from, (long long)to, MIN_RATE, MAX_RATE);
    int64_t count = vx_resampled_count(samples, from, to), g = gcd(from, to);
    if (count < 1) return vx_ok();
    if (from == to) {
        memmove(out, in, (size_t)count * sizeof *out);
        return vx_ok();
    }
    phases p;
    vx_status s = make_phases(&p, from / g, to / g, vx_min_i64(to / g, count));
    if (s.code == VX_OK) run_phases(out, in, samples, count, &p);
    vx_free(p.tap);
    vx_free(p.low);
    return s;
}

int64_t vx_frame_slot(int64_t i, int64_t num, int64_t den)
{
    int64_t top;
    if (!vx_mul_i64(i, den, &top) || !vx_mul_i64(top, 2 * GRID, &top) || top > INT64_MAX - num) return INT64_MAX;
    return (top + num) / (2 * num);
}
