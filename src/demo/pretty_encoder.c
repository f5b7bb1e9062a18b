// The pretty video encoder: the latent of a cell of 16 x 16 pixels holds, for each colour, the plane that fits it best (least
// squares), as the decoder draws planes. All of it is linear. By channel, of each colour c:
//
//   3c value   3c+1 slope along x   3c+2 slope along y      per pixel, on levels 0..3
//
// A convolution with stride fits the plane of 2 x 2 smaller planes. Residual blocks add nothing. The last norm would take the
// mean away, were it not for a large constant: the shortcut of level 4 makes a group of each channel s, together with K and
// -K. Then the deviation is K sqrt(2/3) whatever s is, and the mean, s/3, comes back from what the norm leaves of K and -K.
// Of a clip, a latent takes the last frame that it may see.
#include <math.h>

#include "demo/pretty.h"

enum { PLANE = 3, SIGNALS = PLANE * VX_DEMO_COLOURS, TAPS = 27, CENTRE = 2 * 9 + 4, NOW = 2 * 9 };
static const float constant = 64.0f, raised = 24.0f; // silu(24 + x) is 24 + x to 1e-5 for x above -12
static const float reduced = 16.0f;                  // K and -K are brought within reach of that
static const float steeper = 16.0f;                  // slopes come to the norm as large as values

// Of m pixels in a row, the mean square of the distance from their middle.
static float spread(int m)
{
    return (float)(m * m - 1) / 12.0f;
}

// Weights of one step from n x n to 2n x 2n pixels. With quarters' means v and slopes s, the slope of the whole is
// ((v_right - v_left) n/4 + s spread(n)) / spread(2n).
static void fit_planes(vx_demo_tensor *down, int n)
{
    const float step = (float)n / 8.0f / spread(2 * n), keep = 0.25f * spread(n) / spread(2 * n);
    for (int c = 0; c < VX_DEMO_COLOURS; c++)
        for (int quarter = 0; quarter < 4; quarter++) {
            const int y = quarter / 2, x = quarter % 2, tap = NOW + 3 * y + x, value = PLANE * c;
            *vx_demo_at(down, value, value * TAPS + tap) = 0.25f;
            *vx_demo_at(down, value + 1, value * TAPS + tap) = x ? step : -step;
            *vx_demo_at(down, value + 2, value * TAPS + tap) = y ? step : -step;
            *vx_demo_at(down, value + 1, (value + 1) * TAPS + tap) = keep;
            *vx_demo_at(down, value + 2, (value + 2) * TAPS + tap) = keep;
        }
}

static void take_pixels_in(vx_demo_tensors *set)
{
    vx_demo_tensor *weight = vx_demo_get(set, "encoder.conv_in.weight"), *bias = vx_demo_get(set, "encoder.conv_in.bias");
    for (int c = 0; c < VX_DEMO_COLOURS; c++) {
        *vx_demo_at(weight, PLANE * c, c * TAPS + CENTRE) = vx_demo_pixel_std[c] / VX_DEMO_CONTRAST;
        bias->value[PLANE * c] = (vx_demo_pixel_mean[c] - 0.5f) / VX_DEMO_CONTRAST;
    }
}

static void make_groups(vx_demo_tensors *set)
{
    vx_demo_tensor *weight = vx_demo_get(set, "encoder.down.4.block.0.nin_shortcut.weight"),
                   *bias = vx_demo_get(set, "encoder.down.4.block.0.nin_shortcut.bias");
    vx_demo_tensor *scale = vx_demo_get(set, "encoder.norm_out.weight"), *shift = vx_demo_get(set, "encoder.norm_out.bias");
    const float deviation = constant * sqrtf(2.0f / 3.0f);
    for (int i = 0; i < SIGNALS; i++) {
        *vx_demo_at(weight, 3 * i, i) = i % PLANE ? steeper : 1.0f;
        bias->value[3 * i + 1] = constant;
        bias->value[3 * i + 2] = -constant;
        scale->value[3 * i] = deviation;
        scale->value[3 * i + 1] = scale->value[3 * i + 2] = deviation / reduced;
        for (int k = 0; k < 3; k++) shift->value[3 * i + k] = raised;
    }
}

// Channel 3i of a group is s - m + raised, the other two add up to 2 (raised - m / reduced).
static void give_latents_out(vx_demo_tensors *set)
{
    vx_demo_tensor *weight = vx_demo_get(set, "encoder.conv_out.weight"), *bias = vx_demo_get(set, "encoder.conv_out.bias");
    vx_demo_tensor *quant = vx_demo_get(set, "quant_conv.weight");
    static const int parts[PLANE] = { VX_DEMO_VALUE, VX_DEMO_SLOPE_X, VX_DEMO_SLOPE_Y };
    const float pixels = VX_DEMO_LENGTH_SPACE * 16.0f / VX_DEMO_LATENT_UNITS, certain = -30.0f; // of the log variance
    for (int i = 0; i < SIGNALS; i++) {
        const int out = i / PLANE * VX_DEMO_PARTS + parts[i % PLANE];
        const float gain = i % PLANE ? pixels / steeper : 1.0f;
        *vx_demo_at(weight, out, 3 * i * TAPS + CENTRE) = gain;
        *vx_demo_at(weight, out, (3 * i + 1) * TAPS + CENTRE) = -0.5f * reduced * gain;
        *vx_demo_at(weight, out, (3 * i + 2) * TAPS + CENTRE) = -0.5f * reduced * gain;
        bias->value[out] = (reduced - 1.0f) * raised * gain;
    }
    bias->value[VX_DEMO_LATENT_SINGLE] = 1.0f;
    for (int i = 0; i < 2 * VX_DEMO_VIDEO_CHANNELS; i++) {
        *vx_demo_at(quant, i, i) = 1.0f;
        if (i >= VX_DEMO_VIDEO_CHANNELS) bias->value[i] = certain;
    }
}

void vx_demo_pretty_video_encoder(vx_demo_tensors *set)
{
    take_pixels_in(set);
    for (int level = 0; level < 4; level++)
        fit_planes(vx_demo_get(set, "encoder.down.%d.downsample.conv.weight", level), 1 << level);
    make_groups(set);
    give_latents_out(set);
}
