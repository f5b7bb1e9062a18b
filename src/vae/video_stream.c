// A whole latent clip, window by window and tile by tile (video VAE specification, sections 8, 10, 11).
//
// Stitching by rule 8.3: every tile is blended with its RAW upper and then with its RAW left neighbour. So a tile leaves
// behind, before it is blended itself, its lowest rows for the tile below and its rightmost columns for the next one; nothing
// else of it is kept. Of a window 17 frames are finished at once and 5 wait for the next window; memory knows no clip length.
//
//            right (one, swapped)          below[j] (one per column, and a spare that takes part in the swap)
//   tile j-1 | ov |  tile j                the row above: ....|below[j]|....
#include "base/checked.h"
#include "vae/video_internal.h"

typedef struct stream {
    const vx_video_decoder *decoder;
    const vx_video_decode *decode;
    vx_device *dev;
    vx_tile_axis y, x;
    int64_t latents, windows, frames, done;
    vx_tensor std, mean, rgb_std, rgb_mean, flag;
    vx_tensor rows, quant;   // [7, h, w, channels] before and after post_quant_conv
    vx_tensor half[2];       // both in f16, of half precision
    vx_tensor main, tail[2]; // [17 | 5, H, W, 3]; the tail of this window and of the last
    vx_tensor pixels;        // [22, size, size, 3] of one tile; rank 0 where one tile is all
    vx_tensor right[2], below[VX_MAX_TILES + 1];
    vx_video_tiles tiles;
} stream;

static vx_status check(const vx_video_decoder *d, const vx_video_decode *decode)
{
    vx_tensor z = decode->latent;
    char text[96];
    if (z.dtype != VX_F32) return vx_fail(VX_ERR_DTYPE, "video latent is %s, expected F32", vx_dtype_name(z.dtype));
    if (z.rank != 4 || z.shape[0] != d->config.latent_channels)
        return vx_fail(VX_ERR_SHAPE, "video latent is %s, expected [%lld, frames, height, width]", vx_shape_text(text, z),
                       (long long)d->config.latent_channels);
    if (z.shape[1] < 3)
        return vx_fail_remedy(VX_ERR_RANGE, "use 5n+2 latent frames: 7, 12, 17, ...",
                              "a clip of %lld latent frames is too short to decode", (long long)z.shape[1]);
    // The canvas of the model is never below 32 pixels (specification 20).
    if (z.shape[2] < 2 || z.shape[3] < 2)
        return vx_fail(VX_ERR_RANGE, "video latent is %s: height and width must be at least 2", vx_shape_text(text, z));
    return vx_ok();
}

static void take_buffers(stream *s, vx_arena *arena)
{
    int64_t channels = s->decoder->config.latent_channels, h = s->decode->latent.shape[2], w = s->decode->latent.shape[3];
    int64_t height = h * VX_PATCH, width = w * VX_PATCH;
    s->std = vx_arena_tensor(arena, VX_F32, channels);
    s->mean = vx_arena_tensor(arena, VX_F32, channels);
    s->rgb_std = vx_arena_tensor(arena, VX_F32, VX_COLOURS);
    s->rgb_mean = vx_arena_tensor(arena, VX_F32, VX_COLOURS);
    s->flag = vx_arena_tensor(arena, VX_I32, 1);
    s->rows = vx_arena_tensor(arena, VX_F32, VX_WINDOW, h, w, channels);
    s->quant = vx_arena_tensor(arena, VX_F32, VX_WINDOW, h, w, channels);
    if (s->decode->half)
        for (int i = 0; i < 2; i++) s->half[i] = vx_arena_tensor(arena, VX_F16, VX_WINDOW, h, w, channels);
    s->main = vx_arena_tensor(arena, VX_F32, VX_MAIN, height, width, VX_COLOURS);
    for (int i = 0; i < 2; i++) s->tail[i] = vx_arena_tensor(arena, VX_F32, VX_TAIL, height, width, VX_COLOURS);
    if (s->y.count * s->x.count == 1) return;
    s->pixels = vx_arena_tensor(arena, VX_F32, VX_KEPT, s->y.size, s->x.size, VX_COLOURS);
    if (s->x.count > 1)
        for (int i = 0; i < 2; i++) s->right[i] = vx_arena_tensor(arena, VX_F32, VX_KEPT, s->y.size, s->x.widest, VX_COLOURS);
    if (s->y.count > 1)
        for (int j = 0; j <= s->x.count; j++)
            s->below[j] = vx_arena_tensor(arena, VX_F32, VX_KEPT, s->y.widest, s->x.size, VX_COLOURS);
}

static vx_status prepare(stream *s, vx_arena *arena)
{
    const vx_video_decoder_config *g = &s->decoder->config;
    VX_TRY(vx_tile_axis_plan(&s->y, s->decode->latent.shape[2] * VX_PATCH, g->tile_size, g->tile_overlap, "height"));
    VX_TRY(vx_tile_axis_plan(&s->x, s->decode->latent.shape[3] * VX_PATCH, g->tile_size, g->tile_overlap, "width"));
    s->latents = s->decode->latent.shape[1];
    s->windows = vx_ceil_div(s->latents + VX_TOKEN_DROP, VX_WINDOW_STRIDE) - 1;
    s->frames = vx_decoded_frames(s->latents);
    take_buffers(s, arena);
    int tiles = s->y.count * s->x.count, batch = s->decode->batch > 0 ? s->decode->batch : 1;
    VX_TRY(vx_video_tiles_create(&s->tiles, s->decoder, s->dev, arena, s->decode, batch < tiles ? batch : tiles,
                                 s->y.size / VX_PATCH, s->x.size / VX_PATCH));
    VX_TRY(vx_upload(s->dev, s->std, g->latents_std));
    VX_TRY(vx_upload(s->dev, s->mean, g->latents_mean));
    VX_TRY(vx_upload(s->dev, s->rgb_std, vx_video_rgb_std));
    VX_TRY(vx_upload(s->dev, s->rgb_mean, vx_video_rgb_mean));
    return vx_upload(s->dev, s->flag, &(int32_t){ 0 });
}

// Latents [from, to) of the clip into the window's rows at `at`: un-normalised, channels last.
static vx_status load(stream *s, int64_t at, int64_t from, int64_t to)
{
    vx_tensor z = vx_tensor_slice(s->decode->latent, 1, from, to);
    vx_tensor rows = vx_tensor_permute(vx_tensor_slice(s->rows, 0, at, at + to - from), (const int[]){ 3, 0, 1, 2 });
    if (s->decode->denormalised) return vx_copy(s->dev, rows, z);
    return vx_affine(s->dev, rows, z, s->std, s->mean, 0);
}

// The last latent is repeated where the window reaches beyond the clip (10.1).
static vx_status load_window(stream *s, int64_t window)
{
    int64_t first = window * VX_WINDOW_STRIDE, there = vx_min_i64(VX_WINDOW, s->latents - first);
    VX_TRY(load(s, 0, first, first + there));
    for (int64_t k = there; k < VX_WINDOW; k++) VX_TRY(load(s, k, s->latents - 1, s->latents));
    const int64_t shape[] = { vx_tensor_count(s->rows) / s->decoder->config.latent_channels, s->decoder->config.latent_channels };
    if (!s->decode->half)
        return vx_linear(s->dev, vx_tensor_reshape(s->quant, 2, shape), vx_tensor_reshape(s->rows, 2, shape),
                         &s->decoder->post_quant);
    VX_TRY(vx_copy(s->dev, s->half[0], s->rows));
    VX_TRY(vx_linear(s->dev, vx_tensor_reshape(s->half[1], 2, shape), vx_tensor_reshape(s->half[0], 2, shape),
                     &s->decoder->post_quant));
    return vx_copy(s->dev, s->quant, s->half[1]);
}

static void swap(vx_tensor *a, vx_tensor *b)
{
    vx_tensor t = *a;
    *a = *b;
    *b = t;
}

// b = a faded into b along x. Colour by colour, here and below: then a line is a row of pixels, not one pixel.
static vx_status fade_columns(vx_device *dev, vx_tensor b, vx_tensor a)
{
    for (int64_t c = 0; c < VX_COLOURS; c++) {
        vx_tensor plane = vx_tensor_slice(b, 3, c, c + 1);
        VX_TRY(vx_fade(dev, plane, vx_tensor_slice(a, 3, c, c + 1), plane, 2));
    }
    return vx_ok();
}

// Leaves the raw edges of tile (i, j), blends it with those of its neighbours, and puts it in its place.
static vx_status stitch(stream *s, int i, int j, vx_tensor tail)
{
    vx_tensor t = s->pixels, *spare = &s->below[s->x.count];
    const int64_t height = s->y.size, width = s->x.size;
    const int64_t low = i + 1 < s->y.count ? s->y.overlap[i] : 0, side = j + 1 < s->x.count ? s->x.overlap[j] : 0;
    if (low > 0) VX_TRY(vx_copy(s->dev, vx_tensor_slice(*spare, 1, 0, low), vx_tensor_slice(t, 1, height - low, height)));
    if (side > 0) VX_TRY(vx_copy(s->dev, vx_tensor_slice(s->right[1], 2, 0, side), vx_tensor_slice(t, 2, width - side, width)));
    if (i > 0) {
        int64_t e = s->y.overlap[i - 1];
        vx_tensor top = vx_tensor_slice(t, 1, 0, e);
        VX_TRY(vx_fade(s->dev, top, vx_tensor_slice(s->below[j], 1, 0, e), top, 1));
    }
    if (j > 0) {
        int64_t e = s->x.overlap[j - 1];
        VX_TRY(fade_columns(s->dev, vx_tensor_slice(t, 2, 0, e), vx_tensor_slice(s->right[0], 2, 0, e)));
    }
    if (low > 0) swap(&s->below[j], spare);
    if (side > 0) swap(&s->right[0], &s->right[1]);
    vx_tensor cut = vx_tensor_slice(vx_tensor_slice(t, 1, 0, height - low), 2, 0, width - side);
    vx_tensor to[2] = { s->main, tail };
    for (int k = 0; k < 2; k++) {
        to[k] = vx_tensor_slice(to[k], 1, s->y.start[i], s->y.start[i] + height - low);
        to[k] = vx_tensor_slice(to[k], 2, s->x.start[j], s->x.start[j] + width - side);
    }
    VX_TRY(vx_copy(s->dev, to[0], vx_tensor_slice(cut, 0, 0, VX_MAIN)));
    return vx_copy(s->dev, to[1], vx_tensor_slice(cut, 0, VX_MAIN, VX_KEPT));
}

// Tiles [first, first + count) of the window, in order of rows, through the layers together and then one by one into the
// picture.
static vx_status run_tiles(stream *s, int first, int count, vx_tensor tail)
{
    bool alone = s->pixels.rank == 0;
    for (int k = 0; k < count; k++) {
        int64_t y = s->y.start[(first + k) / s->x.count] / VX_PATCH, x = s->x.start[(first + k) % s->x.count] / VX_PATCH;
        vx_tensor latent = vx_tensor_slice(vx_tensor_slice(s->quant, 1, y, y + s->tiles.height), 2, x, x + s->tiles.width);
        VX_TRY(vx_video_tiles_load(s->decoder, s->dev, &s->tiles, k, latent));
    }
    VX_TRY(vx_video_tiles_run(s->decoder, s->dev, &s->tiles, count, s->done == 0));
    for (int k = 0; k < count; k++) {
        vx_tensor main = alone ? s->main : vx_tensor_slice(s->pixels, 0, 0, VX_MAIN);
        vx_tensor rest = alone ? tail : vx_tensor_slice(s->pixels, 0, VX_MAIN, VX_KEPT);
        VX_TRY(vx_video_tiles_pixels(s->decoder, s->dev, &s->tiles, k, main, rest));
        if (!alone) VX_TRY(stitch(s, (first + k) / s->x.count, (first + k) % s->x.count, tail));
        s->done++;
        if (s->decode->progress) VX_TRY(s->decode->progress(s->decode->user, s->done, s->windows * s->y.count * s->x.count));
    }
    return vx_ok();
}

static vx_status check_finite(stream *s, vx_tensor tail)
{
    int32_t bad = 0;
    VX_TRY(vx_mark_not_finite(s->dev, s->flag, 0, s->main));
    VX_TRY(vx_mark_not_finite(s->dev, s->flag, 0, tail));
    VX_TRY(vx_download(s->dev, &bad, s->flag));
    VX_TRY(vx_component_check(s->decoder->component));
    return bad ? vx_fail(VX_ERR_NOT_FINITE, "decoded frames hold NaN or infinity") : vx_ok();
}

// Pixels of frames [first, first + count) to RGB in place, then to the caller; frames beyond the clip's end are cut.
static vx_status emit(stream *s, vx_tensor frames, int64_t first)
{
    int64_t count = vx_min_i64(frames.shape[0], s->frames - first);
    if (count <= 0) return vx_ok();
    frames = vx_tensor_slice(frames, 0, 0, count);
    for (int64_t c = 0; c < VX_COLOURS; c++) {
        vx_tensor plane = vx_tensor_slice(frames, 3, c, c + 1);
        VX_TRY(vx_affine(s->dev, plane, plane, vx_tensor_slice(s->rgb_std, 0, c, c + 1),
                         vx_tensor_slice(s->rgb_mean, 0, c, c + 1), 3));
    }
    VX_TRY(vx_clamp(s->dev, frames, frames, 0.0f, 1.0f));
    return s->decode->frames ? s->decode->frames(s->decode->user, first, frames) : vx_ok();
}

static vx_status run_window(stream *s, int64_t window)
{
    vx_tensor tail = s->tail[window & 1], last = s->tail[(window & 1) ^ 1];
    VX_TRY(load_window(s, window));
    const int tiles = s->y.count * s->x.count;
    for (int first = 0; first < tiles; first += s->tiles.batch) {
        int count = tiles - first < s->tiles.batch ? tiles - first : s->tiles.batch;
        VX_TRY_IN(run_tiles(s, first, count, tail), "tile %d,%d", first / s->x.count, first % s->x.count);
    }
    VX_TRY(check_finite(s, tail));
    if (window > 0) {
        vx_tensor head = vx_tensor_slice(s->main, 0, 0, VX_TAIL);
        VX_TRY(vx_fade(s->dev, head, last, head, 0));
    }
    VX_TRY(emit(s, s->main, window * VX_MAIN));
    return window + 1 == s->windows ? emit(s, tail, (window + 1) * VX_MAIN) : vx_ok();
}

vx_status vx_video_decoder_run(const vx_video_decoder *decoder, vx_device *dev, vx_arena *arena, const vx_video_decode *decode)
{
    stream s = { .decoder = decoder, .decode = decode, .dev = dev };
    VX_TRY_IN(check(decoder, decode), "video decoder");
    size_t mark = vx_arena_mark(arena);
    vx_status status = prepare(&s, arena);
    for (int64_t window = 0; status.code == VX_OK && window < s.windows; window++) {
        status = run_window(&s, window);
        if (status.code != VX_OK) status = vx_within(status, "window %d of %d", (int)window, (int)s.windows);
    }
    vx_arena_reset(arena, mark);
    return status.code == VX_OK ? status : vx_within(status, "video decoder");
}
