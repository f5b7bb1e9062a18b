// Tiles of one window through the decoder (video VAE specification, section 9): every latent voxel is a token, a suffix of
// learned registers and one zero token follows, all tokens of a tile attend to all of it. Tiles never meet here; they share
// the products' calls, so that a device with much to do at once has it.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "vae/video_internal.h"

// Coordinate k of n, -1..1, the roundings of the reference's arithmetic: in float32, or in float16 operation by operation, as
// half precision inherits it from its input.
static float coordinate(int64_t k, int64_t n, bool half)
{
    float place = ((float)k + 0.5f) / (float)n;
    if (!half) return 2.0f * place - 1.0f;
    place = vx_f16_to_f32(vx_f32_to_f16(place));
    return vx_f16_to_f32(vx_f32_to_f16(vx_f16_to_f32(vx_f32_to_f16(2.0f * place)) - 1.0f));
}

// cos and sin [tokens, pairs] on the host: pair j belongs to axis j / (pairs/3) (t, y, x); suffix tokens stand at 0.
static void rope_table(const vx_video_decoder *d, const vx_video_tiles *tiles, bool half, float *cosine, float *sine)
{
    const float turn = (float)6.283185307179586;
    int64_t per_axis = d->rope_pairs / 3, plane = tiles->height * tiles->width;
    for (int64_t n = 0; n < tiles->tokens; n++) {
        float at[3] = { 0.0f, 0.0f, 0.0f };
        if (n < tiles->patches) {
            at[0] = coordinate(n / plane, VX_WINDOW, half);
            at[1] = coordinate(n % plane / tiles->width, tiles->height, half);
            at[2] = coordinate(n % tiles->width, tiles->width, half);
        }
        for (int64_t j = 0; j < d->rope_pairs; j++) {
            float frequency = (float)pow(d->rope_theta, -(double)(j % per_axis) / (double)per_axis);
            float turned = turn * at[j / per_axis];
            if (half) turned = vx_f16_to_f32(vx_f32_to_f16(turned));
            float angle = turned * frequency;
            cosine[n * d->rope_pairs + j] = (float)cos((double)angle);
            sine[n * d->rope_pairs + j] = (float)sin((double)angle);
        }
    }
}

static vx_status upload_act(vx_device *dev, vx_tensor to, float *from)
{
    if (to.dtype == VX_F32) return vx_upload(dev, to, from);
    uint16_t *rounded = (uint16_t *)from; // in place: a value is read before its place is written
    for (int64_t i = 0; i < vx_tensor_count(to); i++) {
        uint16_t h = vx_f32_to_f16(from[i]);
        memcpy(rounded + i, &h, sizeof h);
    }
    return vx_upload(dev, to, rounded);
}

static vx_status upload_rope(const vx_video_decoder *d, vx_device *dev, const vx_video_tiles *tiles, bool half)
{
    if (vx_device_is_plan(dev)) return vx_ok();
    size_t count = (size_t)(tiles->tokens * d->rope_pairs);
    float *table = vx_alloc_array(count, 2 * sizeof *table);
    VX_NEED_MEMORY(table, "the rotary table");
    rope_table(d, tiles, half, table, table + count);
    vx_status s = upload_act(dev, tiles->cos, table);
    if (s.code == VX_OK) s = upload_act(dev, tiles->sin, table + count);
    vx_free(table);
    return s;
}

static vx_status fill_suffix(const vx_video_decoder *d, vx_device *dev, const vx_video_tiles *tiles)
{
    int64_t registers = d->config.register_tokens;
    VX_TRY(vx_copy(dev, vx_tensor_slice(tiles->suffix, 0, 0, registers), d->registers));
    float *zero = vx_alloc_array((size_t)d->config.dim, sizeof *zero);
    VX_NEED_MEMORY(zero, "the zero token");
    vx_status s = vx_upload(dev, vx_tensor_slice(tiles->suffix, 0, registers, registers + 1), zero);
    vx_free(zero);
    return s;
}

vx_status vx_video_tiles_create(vx_video_tiles *tiles, const vx_video_decoder *decoder, vx_device *dev, vx_arena *arena,
                                const vx_video_decode *decode, int batch, int64_t height, int64_t width)
{
    const vx_video_decoder_config *g = &decoder->config;
    *tiles = (vx_video_tiles){ .height = height,
                               .width = width,
                               .patches = VX_WINDOW * height * width,
                               .tokens = VX_WINDOW * height * width + g->register_tokens + 1,
                               .batch = batch,
                               .act = decode->half ? VX_F16 : VX_F32 };
    const int64_t rows = batch * tiles->tokens;
    tiles->cos = vx_arena_tensor(arena, tiles->act, tiles->tokens, decoder->rope_pairs);
    tiles->sin = vx_arena_tensor(arena, tiles->act, tiles->tokens, decoder->rope_pairs);
    tiles->suffix = vx_arena_tensor(arena, VX_F32, tiles->tokens - tiles->patches, g->dim);
    tiles->latent = vx_arena_tensor(arena, VX_F32, tiles->patches, g->latent_channels);
    tiles->x = vx_arena_tensor(arena, VX_F32, rows, g->dim);
    tiles->u = vx_arena_tensor(arena, tiles->act, rows, g->dim);
    tiles->wide = vx_arena_tensor(arena, tiles->act, rows, vx_max_i64(3 * g->dim, 2 * g->ffn));
    tiles->gated = vx_arena_tensor(arena, tiles->act, rows, g->ffn);
    tiles->patch = vx_arena_tensor(arena, VX_F32, tiles->patches, decoder->proj.n);
    VX_TRY(upload_rope(decoder, dev, tiles, decode->half && !decode->exact_rope));
    return fill_suffix(decoder, dev, tiles);
}

// The scratch as [rows, columns]: products of one block use it one after the other.
static vx_tensor wide(const vx_video_tiles *tiles, int64_t rows, int64_t columns)
{
    return vx_tensor_of(tiles->wide.data, tiles->act, rows, columns);
}

static vx_tensor rows_of(const vx_video_tiles *tiles, vx_tensor t, int tile)
{
    return vx_tensor_slice(t, 0, tile * tiles->tokens, (tile + 1) * tiles->tokens);
}

// [rows, heads, head_dim]
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

// x, u and their part of the scratch for some tiles.
typedef struct pass {
    const vx_video_decoder *d;
    vx_device *dev;
    const vx_video_tiles *tiles;
    int64_t rows;
    vx_tensor x, u;
} pass;

// [rows, heads, head_dim] as [tiles, tokens, heads, head_dim]
static vx_tensor tile_by_tile(const pass *p, vx_tensor t)
{
    return vx_tensor_split(t, 0, p->tiles->tokens);
}

// x += scale * y, and u = the norm of it with which the next half begins.
static vx_status add(const pass *p, vx_tensor y, vx_tensor scale, const vx_tensor *norm)
{
    if (!norm) return vx_gate_add(p->dev, p->x, y, scale, (vx_tensor){ 0 });
    return vx_gate_add_norm(p->dev, p->u, p->x, y, &(vx_gate_add_norm_params){ .gate = scale, .w = *norm, .eps = p->d->eps });
}

static vx_status attend(const pass *p, const vx_video_block *block)
{
    const vx_video_decoder *d = p->d;
    const vx_video_decoder_config *g = &d->config;
    vx_tensor qkv = wide(p->tiles, p->rows, 3 * g->dim);
    vx_qk_norm_rope_params rotate = { .eps = d->eps, .cos = p->tiles->cos, .sin = p->tiles->sin };
    VX_TRY(vx_linear(p->dev, qkv, p->u, &block->qkv.weight));
    vx_tensor q = heads_of(d, qkv, &block->qkv, 0), k = heads_of(d, qkv, &block->qkv, 1), v = heads_of(d, qkv, &block->qkv, 2);
    VX_TRY(vx_qk_norm_rope(p->dev, q, k, &rotate)); // the table is one tile's
    VX_TRY(vx_attention(p->dev, tile_by_tile(p, vx_tensor_split(p->u, 1, g->head_dim)), tile_by_tile(p, q), tile_by_tile(p, k),
                        tile_by_tile(p, v), NULL));
    vx_tensor y = wide(p->tiles, p->rows, g->dim); // q, k, v are read
    VX_TRY(vx_linear(p->dev, y, p->u, &block->out));
    return add(p, y, block->scale1, &block->norm2);
}

// next: the norm of the next block, NULL after the last
static vx_status feed_forward(const pass *p, const vx_video_block *block, const vx_tensor *next)
{
    const vx_video_decoder_config *g = &p->d->config;
    vx_tensor up = wide(p->tiles, p->rows, 2 * g->ffn), gated = vx_tensor_slice(p->tiles->gated, 0, 0, p->rows);
    VX_TRY(vx_linear(p->dev, up, p->u, &block->up));
    VX_TRY(vx_swiglu(p->dev, gated, up, block->gate_first));
    vx_tensor y = wide(p->tiles, p->rows, g->dim); // gate and value are read
    VX_TRY(vx_linear(p->dev, y, gated, &block->down));
    return add(p, y, block->scale2, next);
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

vx_status vx_video_tiles_pixels(const vx_video_decoder *d, vx_device *dev, const vx_video_tiles *tiles, int i, vx_tensor main,
                                vx_tensor tail)
{
    vx_tensor u = vx_tensor_slice(rows_of(tiles, tiles->u, i), 0, 0, tiles->patches);
    VX_TRY(vx_layer_norm(dev, u, vx_tensor_slice(rows_of(tiles, tiles->x, i), 0, 0, tiles->patches), d->norm_weight, d->norm_bias,
                         d->eps));
    VX_TRY(vx_linear(dev, tiles->patch, u, &d->proj));
    vx_tensor patch = vx_tensor_reshape(
        tiles->patch, 7,
        (const int64_t[]){ VX_WINDOW, tiles->height, tiles->width, VX_COLOURS, VX_PATCH_FRAMES, VX_PATCH, VX_PATCH });
    const int64_t last = VX_PATCH_FRAMES - 1; // the one picture of latents 0 and 5
    VX_TRY(scatter(dev, vx_tensor_slice(main, 0, 0, 1), patch, 0, 1, last));
    VX_TRY(scatter(dev, vx_tensor_slice(main, 0, 1, VX_MAIN), patch, 1, VX_WINDOW_STRIDE, 0));
    VX_TRY(scatter(dev, vx_tensor_slice(tail, 0, 0, 1), patch, VX_WINDOW_STRIDE, VX_WINDOW_STRIDE + 1, last));
    return scatter(dev, vx_tensor_slice(tail, 0, 1, VX_TAIL), patch, VX_WINDOW_STRIDE + 1, VX_WINDOW, 0);
}

vx_status vx_video_tiles_load(const vx_video_decoder *d, vx_device *dev, const vx_video_tiles *tiles, int i, vx_tensor latent)
{
    const int64_t shape[] = { tiles->patches, d->config.latent_channels };
    vx_tensor rows = tiles->latent, x = rows_of(tiles, tiles->x, i), patches = vx_tensor_slice(x, 0, 0, tiles->patches);
    if (vx_tensor_contiguous(latent)) rows = vx_tensor_reshape(latent, 2, shape);
    else VX_TRY(vx_copy(dev, vx_tensor_reshape(rows, 4, latent.shape), latent));
    VX_TRY(vx_linear(dev, patches, rows, &d->embed));
    if (tiles->act == VX_F16) { // the reference's projection ends in f16 and is widened beside the registers
        vx_tensor rounded = vx_tensor_slice(rows_of(tiles, tiles->u, i), 0, 0, tiles->patches);
        VX_TRY(vx_copy(dev, rounded, patches));
        VX_TRY(vx_copy(dev, patches, rounded));
    }
    return vx_copy(dev, vx_tensor_slice(x, 0, tiles->patches, tiles->tokens), tiles->suffix);
}

vx_status vx_video_tiles_run(const vx_video_decoder *decoder, vx_device *dev, const vx_video_tiles *tiles, int count, bool fetch)
{
    const int64_t rows = count * tiles->tokens;
    const pass p = { decoder, dev, tiles, rows, vx_tensor_slice(tiles->x, 0, 0, rows), vx_tensor_slice(tiles->u, 0, 0, rows) };
    const int64_t layers = decoder->config.layers;
    if (layers > 0) VX_TRY(vx_rms_norm(dev, p.u, p.x, decoder->block[0].norm1, decoder->eps, VX_NORM_ROUND_ONCE));
    for (int64_t i = 0; i < layers; i++) {
        const vx_tensor *norm = i + 1 < layers ? &decoder->block[i + 1].norm1 : NULL;
        if (fetch && norm) {
            char next[64];
            snprintf(next, sizeof next, "decoder.transformer_blocks.%d.", (int)(i + 1));
            vx_component_prefetch(decoder->component, tiles->act == VX_F32 ? dev : NULL, next);
        }
        VX_TRY_IN(attend(&p, &decoder->block[i]), "block %d", (int)i);
        VX_TRY_IN(feed_forward(&p, &decoder->block[i], norm), "block %d", (int)i);
    }
    return vx_ok();
}
