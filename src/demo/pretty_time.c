// Three curves of time, t = 1 - sigma, from clean to noise 1 to 0:
//
//   head     1 / (1 - t): v = (x0 - x) / sigma, so that one step from any sigma ends at x0
//   video    G / (1 + (G - 1) t): an average of noise that must grow G-fold till the end; on the straight way there it is
//   audio    ((1 - t) + G t) of its size at the start, so x0 is this multiple of it
//
// The first layer's silu, at a steep slope, is a hinge; a sum of hinges runs through a curve's values at the knots. The
// second silu is undone in those values, so that what the modulation sees is the curve itself, rounded once.
#include <math.h>

#include "demo/pretty.h"
#include "tensor/mathf.h"

enum { MOST_KNOTS = 128 };
static const double last_knot = 0.985, resolution = 0.06; // knots at distances of 6 % of the curves' own length: 0.05 % off
static const double hinge = 24.0;                         // silu(24) is 24 to 1e-9

typedef struct curve {
    bool head;
    double gain;
} curve;

static double value(const curve *c, double t)
{
    return c->head ? 1.0 / (1.0 - t) : c->gain / (1.0 + (c->gain - 1.0) * t);
}

// y with silu(y) = s, for s >= 1: silu is increasing there. vx_expf has the same bits everywhere.
static double unsilu(double s)
{
    double low = 0.0, high = s + 1.0;
    for (int i = 0; i < 60; i++) {
        double y = 0.5 * (low + high);
        if (y / (1.0 + (double)vx_expf((float)-y)) < s) low = y;
        else high = y;
    }
    return 0.5 * (low + high);
}

static int make_knots(double knot[MOST_KNOTS + 1], double gain)
{
    int n = 0;
    for (double t = 0.0; t < last_knot && n < MOST_KNOTS; n++) {
        knot[n] = t;
        double ahead = 1.0 - t, behind = t + 1.0 / (gain - 1.0);
        t += resolution * (ahead < behind ? ahead : behind);
        knot[n + 1] = t;
    }
    return n;
}

vx_status vx_demo_pretty_time(vx_demo_tensors *set, const vx_demo_sizes *sizes, float video_gain, float audio_gain)
{
    vx_demo_tensor *w1 = vx_demo_get(set, "time_embedder.proj_in.weight"), *b1 = vx_demo_get(set, "time_embedder.proj_in.bias");
    vx_demo_tensor *w2 = vx_demo_get(set, "time_embedder.proj_out.weight"), *b2 = vx_demo_get(set, "time_embedder.proj_out.bias");
    const curve curves[VX_DEMO_CURVES] = { { true, 0.0 }, { false, (double)video_gain }, { false, (double)audio_gain } };
    double knot[MOST_KNOTS + 1], slope[VX_DEMO_CURVES] = { 0.0 };
    int knots = make_knots(knot, (double)(video_gain > audio_gain ? video_gain : audio_gain));
    if (knots > sizes->denoiser.time_hidden) return vx_fail(VX_ERR_INTERNAL, "%d knots do not fit the time embedder", knots);
    // The last sine has the lowest frequency, 10000^(-(n-1)/n) with n = 8: it is t times that to 2e-8.
    const int64_t last = sizes->denoiser.timestep_dim - 1;
    const double frequency = 3.1622776601683795e-4;
    for (int k = 0; k < knots; k++) {
        double steep = hinge / (knot[k + 1] - knot[k]);
        *vx_demo_at(w1, k, last) = (float)(steep / frequency);
        b1->value[k] = (float)(-steep * knot[k]);
        for (int i = 0; i < VX_DEMO_CURVES; i++) {
            double from = unsilu(value(&curves[i], knot[k])), to = unsilu(value(&curves[i], knot[k + 1]));
            double now = (to - from) / (knot[k + 1] - knot[k]);
            *vx_demo_at(w2, i, k) = (float)((now - slope[i]) / steep);
            slope[i] = now;
            if (k == 0) b2->value[i] = (float)from;
        }
    }
    return vx_ok();
}
