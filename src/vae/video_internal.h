// Inside the room: what both halves of the video VAE share, the decoder's weights, one tile of one window.
#ifndef VX_VAE_VIDEO_INTERNAL_H
#define VX_VAE_VIDEO_INTERNAL_H

#include "vae/video_decoder.h"

// The geometry follows from clips of 17 frames, 3 dropped latents and patches of 4 x 16 x 16 (specification 2, 10). Latent 0
// and 5 of a window stand for one frame each: of their four raw frames only the last is a picture.
//
//   latents   0    1..4    5    6
//   raw     0-3   4-19  20-23  24-27
//   kept      3   4-19     23  24-27       main = 3..19 (17 frames), tail = 23..27 (5 frames)
enum {
    VX_PATCH = 16,
    VX_PATCH_FRAMES = 4,
    VX_COLOURS = 3,
    VX_CLIP_LENGTH = 17,
    VX_TOKEN_DROP = 3,
    VX_CLIP_LATENTS = 5,
    VX_WINDOW = 7,        // latents decoded at once
    VX_WINDOW_STRIDE = 5, // of which the last two come again in the next window
    VX_MAIN = 17,
    VX_TAIL = 5,
    VX_KEPT = VX_MAIN + VX_TAIL,
};

// ImageNet's, in which the network works (specification 2, pixel norm).
extern const float vx_video_rgb_mean[VX_COLOURS], vx_video_rgb_std[VX_COLOURS];

// One axis cut into tiles.
enum { VX_MAX_TILES = 64 };
typedef struct vx_tile_axis {
    int count;
    int64_t size, widest;                               // of a tile and of the largest overlap, pixels
    int64_t start[VX_MAX_TILES], overlap[VX_MAX_TILES]; // overlap[k] lies between tiles k and k+1
} vx_tile_axis;
vx_status vx_tile_axis_plan(vx_tile_axis *axis, int64_t length, int64_t size, int64_t overlap, const char *name);

// VX_ERR_CONFIG where a configuration describes another network: clip length, ratios, tiling, pixel norm.
vx_status vx_video_check_config(const vx_component *c);
vx_status vx_video_tile_size(const vx_component *c, int64_t *size, int64_t *overlap);
// Shape of a tensor that must be there with `rank` axes.
vx_status vx_video_shape_of(const vx_component *c, const char *name, int rank, int64_t shape[VX_MAX_RANK]);

typedef struct vx_video_block {
    vx_tensor norm1, norm2, scale1, scale2; // [dim]; scales as [1, dim]
    vx_qkv qkv;
    vx_weight out, up, down;
    bool gate_first;
} vx_video_block;

struct vx_video_decoder {
    vx_video_decoder_config config;
    vx_component *component; // borrowed
    float eps;
    int64_t rope_pairs; // rotated channel pairs of a head, a third for each axis
    double rope_theta;
    vx_weight post_quant, embed, proj;
    vx_tensor registers; // [register_tokens, dim]
    vx_tensor norm_weight, norm_bias;
    vx_video_block *block;
};

// Buffers and tables of a batch of tiles of VX_WINDOW x height x width latents, from the caller's arena. The tiles of a batch
// lie one after the other: rows tokens*i on of x, u, wide and gated are tile i's.
//
// Float32 throughout, or half precision (specification 14.3): operands of the products, queries, keys, values and gates are
// f16, the residual stream, norms and pixels f32.
typedef struct vx_video_tiles {
    int64_t height, width;      // latents
    int64_t patches, tokens;    // of a tile, without and with the suffix (registers, one zero token)
    int batch;                  // tiles at most
    vx_dtype act;               // VX_F32 or VX_F16
    vx_tensor cos, sin, suffix; // [tokens, pairs] act, [tokens - patches, dim] f32
    vx_tensor latent;           // [patches, channels] f32
    vx_tensor x, u;             // [batch*tokens, dim] f32, act
    vx_tensor wide, gated;      // scratch for the widest product; [batch*tokens, ffn]; act
    vx_tensor patch;            // [patches, 3*4*16*16] f32: of one tile
} vx_video_tiles;

vx_status vx_video_tiles_create(vx_video_tiles *tiles, const vx_video_decoder *decoder, vx_device *dev, vx_arena *arena,
                                const vx_video_decode *decode, int batch, int64_t height, int64_t width);
// The batch's tile i begins with a latent [7, height, width, channels] f32 after post_quant_conv, any strides but the last.
vx_status vx_video_tiles_load(const vx_video_decoder *decoder, vx_device *dev, const vx_video_tiles *tiles, int i,
                              vx_tensor latent);
// All layers for the first `count` tiles. fetch: ask for the next block's weights while one runs (the first batch of a cold file)
vx_status vx_video_tiles_run(const vx_video_decoder *decoder, vx_device *dev, const vx_video_tiles *tiles, int count, bool fetch);
// Pixels of tile i, ImageNet-normalised, before any blending.   main [17, 16*height, 16*width, 3] f32, tail [5, ...], any strides
vx_status vx_video_tiles_pixels(const vx_video_decoder *decoder, vx_device *dev, const vx_video_tiles *tiles, int i,
                                vx_tensor main, vx_tensor tail);

#endif
