// One tile of one window through the decoder (video VAE specification, section 9), float32 throughout: every latent voxel is a
// token, a suffix of learned registers and one zero token follows, all attend to all.
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "vae/video_internal.h"

// Coordinate k of n, -1..1, the roundings of the reference's float32 arithmetic.
static float coordinate(int64_t k, int64_t n)
{
    return 2.0f * (((float)k + 0.5f) / (float)n) - 1.0f;
}

// cos and sin [tokens, pairs] on the host: pair j belongs to axis j / (pairs/3) (t, y, x); suffix tokens stand at 0.
static void rope_table(const vx_video_decoder *d, const vx_video_tile *tile, float *cosine, float *sine)
{
    const float turn = (float)6.283185307179586;
    int64_t per_axis = d->rope_pairs / 3, plane = tile->height * tile->width;
    for (int64_t n = 0; n < tile->tokens; n++) {
        float at[3] = { 0.0f, 0.0f, 0.0f };
        if (n < tile->patches) {
            at[0] = coordinate(n / plane, VX_WINDOW);
            at[1] = coordinate(n % plane / tile->width, tile->height);
            at[2] = coordinate(n % tile->width, tile->width);
        }
        for (int64_t j = 0; j < d->rope_pairs; j++) {
            float frequency = (float)pow(d->rope_theta, -(double)(j % per_axis) / (double)per_axis);
            float angle = turn * at[j / per_axis] * frequency;
            cosine[n * d->rope_pairs + j] = (float)cos((double)angle);
            sine[n * d->rope_pairs + j] = (float)sin((double)angle);
        }
    }
}

static vx_status upload_rope(const vx_video_decoder *d, vx_device *dev, const vx_video_tile *tile)
{
    size_t count = (size_t)(tile->tokens * d->rope_pairs);
    float *table = vx_alloc_array(count, 2 * sizeof *table);
    VX_NEED_MEMORY(table, "the rotary table");
    rope_table(d, tile, table, table + count);
    vx_status s = vx_upload(dev, tile->cos, table);
    if (s.code == VX_OK) s = vx_upload(dev, tile->sin, table + count);
    vx_free(table);
    return s;
}

static vx_status fill_suffix(const vx_video_decoder *d, vx_device *dev, const vx_video_tile *tile)
{
    int64_t registers = d->config.register_tokens;
    VX_TRY(vx_copy(dev, vx_tensor_slice(tile->suffix, 0, 0, registers), d->registers));
    float *zero = vx_alloc_array((size_t)d->config.dim, sizeof *zero);
    VX_NEED_MEMORY(zero, "the zero token");
    vx_status s = vx_upload(dev, vx_tensor_slice(tile->suffix, 0, registers, registers + 1), zero);
    vx_free(zero);
    return s;
}

vx_status vx_video_tile_create(vx_video_tile *tile, const vx_video_decoder *decoder, vx_device *dev, vx_arena *arena,
                               int64_t height, int64_t width)
{
    const vx_video_decoder_config *g = &decoder->config;
    int64_t widest = vx_max_i64(vx_max_i64(3 * g->dim, 2 * g->ffn), decoder->proj.n);
    tile->height = height;
    tile->width = width;
    tile->patches = VX_WINDOW * height * width;
    tile->tokens = tile->patches + g->register_tokens + 1;
    tile->cos = vx_arena_tensor(arena, VX_F32, tile->tokens, decoder->rope_pairs);
    tile->sin = vx_arena_tensor(arena, VX_F32, tile->tokens, decoder->rope_pairs);
    tile->suffix = vx_arena_tensor(arena, VX_F32, tile->tokens - tile->patches, g->dim);
    tile->latent = vx_arena_tensor(arena, VX_F32, tile->patches, g->latent_channels);
    tile->x = vx_arena_tensor(arena, VX_F32, tile->tokens, g->dim);
    tile->u = vx_arena_tensor(arena, VX_F32, tile->tokens, g->dim);
    tile->wide = vx_arena_tensor(arena, VX_F32, tile->tokens, widest);
    tile->gated = vx_arena_tensor(arena, VX_F32, tile->tokens, g->ffn);
    VX_TRY(upload_rope(decoder, dev, tile));
    return fill_suffix(decoder, dev, tile);
}

// The scratch as [rows, columns]: products of one block use it one after the other.
static vx_tensor wide(const vx_video_tile *tile, int64_t rows, int64_t columns)
{
    return vx_tensor_of(tile->wide.data, VX_F32, rows, columns);
}

static vx_tensor heads_of(const vx_video_decoder *d, vx_tensor product, const vx_qkv *qkv, int which)
{
    vx_tensor first = vx_tensor_slice(product, 1, qkv->offset[which], qkv->offset[which] + d->config.head_dim);
    first.rank = 3;
    first.shape[1] = d->config.heads;
    first.stride[1] = qkv->head_stride;
    first.shape[2] = d->config.head_dim;
    first.stride[2] = 1;
    return first;
}

static vx_status attend(const vx_video_decoder *d, vx_device *dev, const vx_video_tile *tile, const vx_video_block *block)
{
    const vx_video_decoder_config *g = &d->config;
    vx_tensor qkv = wide(tile, tile->tokens, 3 * g->dim);
    vx_tensor q = heads_of(d, qkv, &block->qkv, 0), k = heads_of(d, qkv, &block->qkv, 1), v = heads_of(d, qkv, &block->qkv, 2);
    vx_qk_norm_rope_params rotate = { .eps = d->eps, .cos = tile->cos, .sin = tile->sin };
    VX_TRY(vx_rms_norm(dev, tile->u, tile->x, block->norm1, d->eps, VX_NORM_ROUND_ONCE));
    VX_TRY(vx_linear(dev, qkv, tile->u, &block->qkv.weight));
    VX_TRY(vx_qk_norm_rope(dev, q, k, &rotate));
    VX_TRY(vx_attention(dev, vx_tensor_split(tile->u, 1, g->head_dim), q, k, v, NULL));
    vx_tensor y = wide(tile, tile->tokens, g->dim); // q, k, v are read
    VX_TRY(vx_linear(dev, y, tile->u, &block->out));
    return vx_gate_add(dev, tile->x, y, block->scale1, (vx_tensor){ 0 });
}

static vx_status feed_forward(const vx_video_decoder *d, vx_device *dev, const vx_video_tile *tile, const vx_video_block *block)
{
    const vx_video_decoder_config *g = &d->config;
    vx_tensor up = wide(tile, tile->tokens, 2 * g->ffn);
    VX_TRY(vx_rms_norm(dev, tile->u, tile->x, block->norm2, d->eps, VX_NORM_ROUND_ONCE));
    VX_TRY(vx_linear(dev, up, tile->u, &block->up));
    VX_TRY(vx_swiglu(dev, tile->gated, up, block->gate_first));
    vx_tensor y = wide(tile, tile->tokens, g->dim); // gate and value are read
    VX_TRY(vx_linear(dev, y, tile->gated, &block->down));
    return vx_gate_add(dev, tile->x, y, block->scale2, (vx_tensor){ 0 });
}

// patch [T, h, w, c, dt, dy, dx] to pixels [frame, y, x, c], for latents [t0, t1) and their raw frames from `skip` on. Colour by
// colour, so that a copy's lines are the 16 pixels of a patch and not the 3 colours of a pixel (five times the speed).
static vx_status scatter(vx_device *dev, vx_tensor pixels, vx_tensor patch, int64_t t0, int64_t t1, int64_t skip)
{
    vx_tensor from = vx_tensor_slice(vx_tensor_slice(patch, 0, t0, t1), 4, skip, VX_PATCH_FRAMES);
    // [t, dt, h, dy, w, dx, c], then in the order of `from`
    vx_tensor to = vx_tensor_split(vx_tensor_split(vx_tensor_split(pixels, 2, VX_PATCH), 1, VX_PATCH), 0, VX_PATCH_FRAMES - skip);
    to = vx_tensor_permute(to, (const int[]){ 0, 2, 4, 6, 1, 3, 5 });
    for (int64_t c = 0; c < VX_COLOURS; c++)
        VX_TRY(vx_copy(dev, vx_tensor_slice(to, 3, c, c + 1), vx_tensor_slice(from, 3, c, c + 1)));
    return vx_ok();
}

static vx_status to_pixels(const vx_video_decoder *d, vx_device *dev, const vx_video_tile *tile, vx_tensor main, vx_tensor tail)
{
    vx_tensor u = vx_tensor_slice(tile->u, 0, 0, tile->patches), y = wide(tile, tile->patches, d->proj.n);
    VX_TRY(vx_layer_norm(dev, u, vx_tensor_slice(tile->x, 0, 0, tile->patches), d->norm_weight, d->norm_bias, d->eps));
    VX_TRY(vx_linear(dev, y, u, &d->proj));
    vx_tensor patch = vx_tensor_reshape(
        y, 7, (const int64_t[]){ VX_WINDOW, tile->height, tile->width, VX_COLOURS, VX_PATCH_FRAMES, VX_PATCH, VX_PATCH });
    const int64_t last = VX_PATCH_FRAMES - 1; // the one picture of latents 0 and 5
    VX_TRY(scatter(dev, vx_tensor_slice(main, 0, 0, 1), patch, 0, 1, last));
    VX_TRY(scatter(dev, vx_tensor_slice(main, 0, 1, VX_MAIN), patch, 1, VX_WINDOW_STRIDE, 0));
    VX_TRY(scatter(dev, vx_tensor_slice(tail, 0, 0, 1), patch, VX_WINDOW_STRIDE, VX_WINDOW_STRIDE + 1, last));
    return scatter(dev, vx_tensor_slice(tail, 0, 1, VX_TAIL), patch, VX_WINDOW_STRIDE + 1, VX_WINDOW, 0);
}

vx_status vx_video_tile_run(const vx_video_decoder *decoder, vx_device *dev, const vx_video_tile *tile, vx_tensor latent,
                            vx_tensor main, vx_tensor tail, bool fetch)
{
    const int64_t shape[] = { tile->patches, decoder->config.latent_channels };
    vx_tensor rows = tile->latent;
    if (vx_tensor_contiguous(latent)) rows = vx_tensor_reshape(latent, 2, shape);
    else VX_TRY(vx_copy(dev, vx_tensor_reshape(rows, 4, latent.shape), latent));
    VX_TRY(vx_linear(dev, vx_tensor_slice(tile->x, 0, 0, tile->patches), rows, &decoder->embed));
    VX_TRY(vx_copy(dev, vx_tensor_slice(tile->x, 0, tile->patches, tile->tokens), tile->suffix));
    for (int64_t i = 0; i < decoder->config.layers; i++) {
        if (fetch && i + 1 < decoder->config.layers) {
            char next[64];
            snprintf(next, sizeof next, "decoder.transformer_blocks.%d.", (int)(i + 1));
            vx_component_prefetch(decoder->component, dev, next);
        }
        VX_TRY_IN(attend(decoder, dev, tile, &decoder->block[i]), "block %d", (int)i);
        VX_TRY_IN(feed_forward(decoder, dev, tile, &decoder->block[i]), "block %d", (int)i);
    }
    return to_pixels(decoder, dev, tile, main, tail);
}
