// One tile of one clip, or some tiles of pictures, through the encoder (video VAE specification, section 5), float32 throughout.
//
// Three buffers are enough. A block reads x and works in a and b:
//
//   a = silu(norm1(x))   b = conv1(a)   b = silu(norm2(b))   x = conv2(b) + x             width stays
//                                                            a = shortcut(x)
//                                                            a = conv2(b) + a   x <-> a   width changes
#include <stdio.h>

#include "base/checked.h"
#include "vae/video_encoder_internal.h"

// Extents of an activation behind its channels.
typedef struct extent {
    int64_t frames, height, width;
} extent;

typedef struct run {
    const vx_video_encoder *encoder;
    vx_device *dev;
    vx_tensor x, a, b; // flat
    extent at;
    bool pictures;
} run;

// Two frames of zeros in front: the convolution is causal. A frame alone meets only the last third of the weight.
static const vx_conv3d_params same = { .pad_begin = { 2, 1, 1 }, .pad_end = { 0, 1, 1 }, .reflect = true };

static extent halved(const vx_video_encoder_config *g, int64_t level, extent e, bool pictures)
{
    if (!pictures) e.frames = (e.frames - 1) / g->time_stride[level] + 1;
    e.height /= g->space_stride[level];
    e.width /= g->space_stride[level];
    return e;
}

void vx_encoder_tile_create(vx_encoder_tile *tile, const vx_video_encoder *encoder, vx_arena *arena, int64_t frames,
                            int64_t height, int64_t width, bool pictures)
{
    const vx_video_encoder_config *g = &encoder->config;
    extent e = { frames, height, width };
    int64_t most = encoder->width * frames * height * width;
    for (int64_t i = 0; i < g->levels; i++) {
        most = vx_max_i64(most, g->channels[i] * e.frames * e.height * e.width);
        e = halved(g, i, e, pictures);
    }
    most = vx_max_i64(most, 2 * g->latent_channels * e.frames * e.height * e.width);
    tile->pictures = pictures;
    tile->x = vx_arena_tensor(arena, VX_F32, most);
    tile->a = vx_arena_tensor(arena, VX_F32, most);
    tile->b = vx_arena_tensor(arena, VX_F32, most);
}

// `a` is free until the first block.
vx_tensor vx_encoder_tile_pixels(const vx_encoder_tile *tile, int64_t frames, int64_t height, int64_t width)
{
    return vx_tensor_of(tile->a.data, VX_F32, VX_COLOURS, frames, height, width);
}

static vx_tensor shaped(const run *r, vx_tensor flat, int64_t channels)
{
    return vx_tensor_of(flat.data, VX_F32, channels, r->at.frames, r->at.height, r->at.width);
}

static void swap(vx_tensor *a, vx_tensor *b)
{
    vx_tensor t = *a;
    *a = *b;
    *b = t;
}

static vx_status convolve(const run *r, vx_tensor out, vx_tensor x, const vx_video_affine *conv, vx_conv3d_params params,
                          vx_tensor residual)
{
    params.bias = conv->bias;
    params.residual = residual;
    params.alone = r->pictures && params.pad_begin[0] > 0;
    return vx_conv3d(r->dev, out, x, conv->weight, &params);
}

static vx_status normalise(const run *r, vx_tensor out, vx_tensor x, const vx_video_affine *norm)
{
    return vx_group_norm(r->dev, out, x, norm->weight, norm->bias, VX_GROUPS, r->encoder->eps, true);
}

static vx_status run_block(run *r, const vx_video_resnet *block)
{
    const vx_tensor none = { 0 };
    int64_t in = block->conv1.weight.shape[1], out = block->conv1.weight.shape[0];
    vx_tensor x = shaped(r, r->x, in), a = shaped(r, r->a, in), b = shaped(r, r->b, out);
    VX_TRY(normalise(r, a, x, &block->norm1));
    VX_TRY(convolve(r, b, a, &block->conv1, same, none));
    VX_TRY(normalise(r, b, b, &block->norm2));
    if (in == out) return convolve(r, x, b, &block->conv2, same, x);
    a = shaped(r, r->a, out);
    VX_TRY(convolve(r, a, x, &block->shortcut, (vx_conv3d_params){ 0 }, none));
    VX_TRY(convolve(r, a, b, &block->conv2, same, a));
    swap(&r->x, &r->a);
    return vx_ok();
}

// Rows and columns are padded behind only (specification 5.2).
static vx_status downsample(run *r, int64_t level)
{
    const vx_video_encoder_config *g = &r->encoder->config;
    const vx_conv3d_params params = { .stride = { r->pictures ? 1 : g->time_stride[level], 2, 2 },
                                      .pad_begin = { 2, 0, 0 },
                                      .pad_end = { 0, 1, 1 },
                                      .reflect = true };
    vx_tensor x = shaped(r, r->x, g->channels[level]);
    r->at = halved(g, level, r->at, r->pictures);
    VX_TRY(convolve(r, shaped(r, r->a, g->channels[level]), x, &r->encoder->down[level], params, (vx_tensor){ 0 }));
    swap(&r->x, &r->a);
    return vx_ok();
}

static vx_status run_level(run *r, int64_t level)
{
    const vx_video_encoder_config *g = &r->encoder->config;
    for (int64_t i = 0; i < g->blocks; i++)
        VX_TRY_IN(run_block(r, &r->encoder->block[level * g->blocks + i]), "block %d", (int)i);
    return g->space_stride[level] == 2 ? downsample(r, level) : vx_ok();
}

vx_status vx_encoder_tile_run(const vx_video_encoder *encoder, vx_device *dev, const vx_encoder_tile *tile, vx_tensor moments,
                              vx_tensor pixels, bool fetch)
{
    const vx_video_encoder_config *g = &encoder->config;
    const vx_tensor none = { 0 };
    run r = { encoder, dev, tile->x, tile->a, tile->b, { pixels.shape[1], pixels.shape[2], pixels.shape[3] }, tile->pictures };
    VX_TRY(convolve(&r, shaped(&r, r.x, encoder->width), pixels, &encoder->conv_in, same, none));
    for (int64_t i = 0; i < g->levels; i++) {
        if (fetch && i + 1 < g->levels) {
            char next[32];
            snprintf(next, sizeof next, "encoder.down.%d.", (int)(i + 1));
            vx_component_prefetch(encoder->component, dev, next);
        }
        VX_TRY_IN(run_level(&r, i), "level %d", (int)i);
    }
    vx_tensor x = shaped(&r, r.x, g->channels[g->levels - 1]), y = shaped(&r, r.a, 2 * g->latent_channels);
    VX_TRY(normalise(&r, x, x, &encoder->norm_out));
    VX_TRY(convolve(&r, y, x, &encoder->conv_out, same, none));
    return convolve(&r, moments, y, &encoder->quant, (vx_conv3d_params){ 0 }, none);
}
