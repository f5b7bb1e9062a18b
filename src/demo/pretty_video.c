// The pretty video decoder. A token carries its latent (colours with slopes, pretty.h) twice, once negated, so that the mean over
// channels is zero, and a large constant likewise, so that the norms only scale:
//
//   0..23 latent   24..47 the same negated   48 constant   49 its negative
//
// Layer 0 lets every token see the mean colour of its frame and brings a colour to the time of its latent's last frame.
// Layer 1 limits colours softly: inside -1..1 nothing happens, beyond it a colour bends and stops at 1.5; slopes shrink with
// it. The last projection draws the plane through value and slopes on 4 x 16 x 16 pixels.
#include <math.h>

#include "demo/pretty.h"

enum { LATENT = 0, MIRROR = VX_DEMO_VIDEO_CHANNELS, CONSTANT = 2 * VX_DEMO_VIDEO_CHANNELS, CONSTANT_MIRROR };
static const float constant = 64.0f;
static const float open = 24.0f; // silu(24) is 24 to 1e-9

const float vx_demo_pixel_mean[VX_DEMO_COLOURS] = { 0.485f, 0.456f, 0.406f },
            vx_demo_pixel_std[VX_DEMO_COLOURS] = { 0.229f, 0.224f, 0.225f };

// A unit of the gated MLP in the making: rows of w1 (gates, then values), a column of w2.
typedef struct mlp {
    vx_demo_tensor *w1, *b1, *w2;
    int64_t ffn;
    int units;
} mlp;

static mlp open_mlp(vx_demo_tensors *set, int layer)
{
    mlp m = { .w1 = vx_demo_get(set, "decoder.transformer_blocks.%d.ff.w1.weight", layer),
              .b1 = vx_demo_get(set, "decoder.transformer_blocks.%d.ff.w1.bias", layer),
              .w2 = vx_demo_get(set, "decoder.transformer_blocks.%d.ff.w2.weight", layer) };
    m.ffn = m.w2->shape[1];
    return m;
}

// out += amount * silu(slope * gate + bias) * (value + offset), both copies.
static void add_unit(mlp *m, int gate, float slope, float bias, int value, float offset, int out, float amount)
{
    const int unit = m->units++;
    if (gate >= 0) *vx_demo_at(m->w1, unit, gate) = slope;
    m->b1->value[unit] = bias;
    *vx_demo_at(m->w1, m->ffn + unit, value) = 1.0f;
    m->b1->value[m->ffn + unit] = offset;
    *vx_demo_at(m->w2, LATENT + out, unit) = amount;
    *vx_demo_at(m->w2, MIRROR + out, unit) = -amount;
}

static void put_norms(vx_demo_tensors *set, int layer, int64_t dim)
{
    float weight = constant * sqrtf(2.0f / (float)dim); // a token's root mean square, the latent left aside
    vx_demo_fill(vx_demo_get(set, "decoder.transformer_blocks.%d.norm1.weight", layer), weight);
    vx_demo_fill(vx_demo_get(set, "decoder.transformer_blocks.%d.norm2.weight", layer), weight);
    vx_demo_fill(vx_demo_get(set, "decoder.transformer_blocks.%d.scale1", layer), 1.0f);
    vx_demo_fill(vx_demo_get(set, "decoder.transformer_blocks.%d.scale2", layer), 1.0f);
}

// Queries and keys depend on the place alone, and only on its time: every token takes up the mean colour of its own frame.
// The two fastest pairs of the time axis turn by 1.8 and 0.57 from one latent of a window to the next.
static void see_mean_colour(vx_demo_tensors *set, const vx_demo_sizes *z)
{
    static const int channels[] = { VX_DEMO_VALUE, VX_DEMO_SLOPE_T };
    const float ambient = 0.25f, fast = 1.0f,
                slow = 0.58f; // a score of 4.2 and 1.4: 0.5 % from the next latent, 4 % from the third
    vx_demo_tensor *bias = vx_demo_get(set, "decoder.transformer_blocks.0.attn.to_qkv.bias");
    vx_demo_tensor *qkv = vx_demo_get(set, "decoder.transformer_blocks.0.attn.to_qkv.weight");
    vx_demo_tensor *out = vx_demo_get(set, "decoder.transformer_blocks.0.attn.to_out.weight");
    const int64_t head_dim = z->video.head_dim;
    for (int64_t h = 0; h < z->video.heads; h++)
        for (int which = 0; which < 2; which++) {
            bias->value[(3 * h + which) * head_dim] = fast;
            bias->value[(3 * h + which) * head_dim + 1] = slow;
        }
    for (int c = 0; c < VX_DEMO_COLOURS; c++)
        for (int i = 0; i < 2; i++) {
            const int channel = c * VX_DEMO_PARTS + channels[i];
            *vx_demo_at(qkv, 2 * head_dim + 2 * c + i, channel) = 1.0f;
            *vx_demo_at(out, LATENT + channel, 2 * c + i) = ambient;
            *vx_demo_at(out, MIRROR + channel, 2 * c + i) = -ambient;
        }
}

// A latent's colour is that of its first frame. Of single frames the decoder keeps the last of four pictures, so all latents
// are brought to their last frame: three frames on, except where the first is the only one.
static void move_to_last_frame(vx_demo_tensors *set)
{
    mlp m = open_mlp(set, 0);
    const float ahead = 3.0f * VX_DEMO_FRAME_UNITS / VX_DEMO_LENGTH_TIME;
    for (int c = 0; c < VX_DEMO_COLOURS; c++)
        add_unit(&m, VX_DEMO_LATENT_SINGLE, -open, open, c * VX_DEMO_PARTS + VX_DEMO_SLOPE_T, 0.0f, c * VX_DEMO_PARTS,
                 ahead / open);
}

// S'(f) = h(f+2) - h(f+1) - h(f-1) + h(f-2) with the hinge h is 1 within -1..1 and 0 beyond -2..2; S(f) is the sum of h(f+b)^2/2
// with the same signs, less 3/2. The residual stream wants S(f) - f, and (S'(f) - 1) times each slope.
static void limit_colours(vx_demo_tensors *set)
{
    static const struct {
        float at, sign;
    } hinges[] = { { 2.0f, 1.0f }, { 1.0f, -1.0f }, { -1.0f, -1.0f }, { -2.0f, 1.0f } };
    mlp m = open_mlp(set, 1);
    vx_demo_tensor *bias = vx_demo_get(set, "decoder.transformer_blocks.1.ff.w2.bias");
    for (int c = 0; c < VX_DEMO_COLOURS; c++) {
        const int value = c * VX_DEMO_PARTS;
        for (int part = 0; part < VX_DEMO_PARTS; part++) {
            for (size_t i = 0; i < sizeof hinges / sizeof *hinges; i++)
                add_unit(&m, value, open, open * hinges[i].at, value + part, part ? 0.0f : hinges[i].at, value + part,
                         hinges[i].sign / open * (part ? 1.0f : 0.5f));
            add_unit(&m, -1, 0.0f, open, value + part, 0.0f, value + part, -1.0f / open);
        }
        bias->value[LATENT + value] = -1.5f;
        bias->value[MIRROR + value] = 1.5f;
    }
}

static void draw_planes(vx_demo_tensors *set, int64_t dim)
{
    vx_demo_fill(vx_demo_get(set, "decoder.norm_out.weight"), constant * sqrtf(2.0f / (float)dim));
    vx_demo_tensor *weight = vx_demo_get(set, "decoder.proj_out.weight"), *bias = vx_demo_get(set, "decoder.proj_out.bias");
    const float pixel = VX_DEMO_LATENT_UNITS / 16.0f / VX_DEMO_LENGTH_SPACE, frame = VX_DEMO_FRAME_UNITS / VX_DEMO_LENGTH_TIME;
    for (int i = 0; i < VX_DEMO_PATCH; i++) {
        const int c = i / (4 * 16 * 16), dt = i / (16 * 16) % 4, dy = i / 16 % 16, dx = i % 16, value = c * VX_DEMO_PARTS;
        const float gain = VX_DEMO_CONTRAST / vx_demo_pixel_std[c];
        bias->value[i] = (0.5f - vx_demo_pixel_mean[c]) / vx_demo_pixel_std[c];
        *vx_demo_at(weight, i, value) = gain;
        *vx_demo_at(weight, i, value + VX_DEMO_SLOPE_X) = gain * ((float)dx - 7.5f) * pixel;
        *vx_demo_at(weight, i, value + VX_DEMO_SLOPE_Y) = gain * ((float)dy - 7.5f) * pixel;
        *vx_demo_at(weight, i, value + VX_DEMO_SLOPE_T) = gain * ((float)dt - 3.0f) * frame;
    }
}

vx_status vx_demo_pretty_video(vx_demo_tensors *set, const vx_demo_sizes *z, uint64_t seed)
{
    (void)seed; // the same for all
    const int64_t dim = z->video.heads * z->video.head_dim;
    vx_demo_tensor *quant = vx_demo_get(set, "post_quant_conv.weight"), *embed = vx_demo_get(set, "decoder.x_embedder.weight");
    vx_demo_tensor *bias = vx_demo_get(set, "decoder.x_embedder.bias");
    for (int i = 0; i < VX_DEMO_VIDEO_CHANNELS; i++) {
        *vx_demo_at(quant, i, i) = 1.0f;
        *vx_demo_at(embed, LATENT + i, i) = 1.0f;
        *vx_demo_at(embed, MIRROR + i, i) = -1.0f;
    }
    bias->value[CONSTANT] = constant;
    bias->value[CONSTANT_MIRROR] = -constant;
    for (int layer = 0; layer < (int)z->video.layers; layer++) put_norms(set, layer, dim);
    see_mean_colour(set, z);
    move_to_last_frame(set);
    limit_colours(set);
    draw_planes(set, dim);
    vx_demo_pretty_video_encoder(set);
    return vx_ok();
}
