// A whole clip of frames, 17 by 17 and tile by tile, and the condition latent (video VAE specification, sections 6-8).
//
// Stitching is the decoder's (video_stream.c): a tile leaves its raw lowest rows and rightmost columns behind for its
// neighbours, then is blended with theirs, here on the moments. Clips share nothing.
#include <math.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "tensor/mathf.h"
#include "tensor/random.h"
#include "vae/video_encoder_internal.h"

enum { MIN_SIDE = 32, CONDITION_SEED = 42 };
static const float least_logvar = -30.0f, most_logvar = 20.0f;

typedef struct pass {
    const vx_video_encoder *encoder;
    const vx_video_encode *encode;
    vx_device *dev;
    vx_tile_axis y, x;
    int64_t latents, clips, done;
    int64_t batch;           // tiles of a picture at a time; 0: clips
    vx_tensor flag, moments; // [2*channels, latents of a clip, size/16, size/16] of one tile
    vx_tensor right[2], below[VX_MAX_TILES + 1];
    vx_encoder_tile tile;
    float *pixels; // host, of one tile
    float value[VX_COLOURS][256];
} pass;

// The reference's three roundings: to 0..1, minus the mean, over the deviation.
static void fill_values(pass *p)
{
    for (int c = 0; c < VX_COLOURS; c++)
        for (int i = 0; i < 256; i++) p->value[c][i] = ((float)i / 255.0f - vx_video_rgb_mean[c]) / vx_video_rgb_std[c];
}

static vx_status check_output(const vx_video_encoder *e, const vx_video_encode *encode, vx_tensor t, const char *name)
{
    char text[96];
    const int64_t want[] = { e->config.latent_channels, vx_encoded_frames(encode->frames), encode->height / VX_PATCH,
                             encode->width / VX_PATCH };
    if (t.dtype != VX_F32) return vx_fail(VX_ERR_DTYPE, "%s is %s, expected F32", name, vx_dtype_name(t.dtype));
    if (t.rank != 4 || t.shape[0] != want[0] || t.shape[1] != want[1] || t.shape[2] != want[2] || t.shape[3] != want[3])
        return vx_fail(VX_ERR_SHAPE, "%s is %s, expected [%lld,%lld,%lld,%lld]", name, vx_shape_text(text, t), (long long)want[0],
                       (long long)want[1], (long long)want[2], (long long)want[3]);
    return vx_ok();
}

static vx_status check(const vx_video_encoder *e, const vx_device *dev, const vx_video_encode *encode)
{
    if (encode->frames < 1) return vx_fail(VX_ERR_RANGE, "%lld frames, expected at least 1", (long long)encode->frames);
    if (encode->height % VX_PATCH || encode->width % VX_PATCH || encode->height < MIN_SIDE || encode->width < MIN_SIDE)
        return vx_fail(VX_ERR_RANGE, "pictures of %lld x %lld pixels: both must be multiples of %d, at least %d",
                       (long long)encode->width, (long long)encode->height, VX_PATCH, MIN_SIDE);
    if (!encode->pixels && !vx_device_is_plan(dev)) return vx_fail(VX_ERR_INTERNAL, "no pixels were given");
    VX_TRY(check_output(e, encode, encode->mean, "mean"));
    return encode->logvar.rank ? check_output(e, encode, encode->logvar, "logvar") : vx_ok();
}

static bool last_clip(const pass *p, int64_t clip)
{
    return clip + 1 == p->clips;
}

// Frames that the latents of a clip depend on, and those latents.
static int64_t clip_frames(const pass *p, int64_t clip)
{
    if (p->encode->frames == 1) return 1;
    return last_clip(p, clip) ? VX_LAST_FRAMES : VX_CLIP_LENGTH;
}

static int64_t clip_latents(const pass *p, int64_t clip)
{
    if (p->encode->frames == 1) return 1;
    return last_clip(p, clip) ? VX_LAST_LATENTS : VX_CLIP_LATENTS;
}

static void take_buffers(pass *p, vx_arena *arena)
{
    int64_t rows = 2 * p->encoder->config.latent_channels, latents = clip_latents(p, 0), frames = clip_frames(p, 0);
    const int64_t pictures = vx_max_i64(1, p->batch);
    int64_t h = p->y.size / VX_PATCH, w = p->x.size / VX_PATCH;
    p->flag = vx_arena_tensor(arena, VX_I32, 1);
    p->moments = vx_arena_tensor(arena, VX_F32, rows * latents * pictures * h * w);
    vx_encoder_tile_create(&p->tile, p->encoder, arena, frames * pictures, p->y.size, p->x.size, p->batch > 0);
    if (p->x.count > 1)
        for (int i = 0; i < 2; i++) p->right[i] = vx_arena_tensor(arena, VX_F32, rows, latents, h, p->x.widest / VX_PATCH);
    if (p->y.count > 1)
        for (int j = 0; j <= p->x.count; j++)
            p->below[j] = vx_arena_tensor(arena, VX_F32, rows, latents, p->y.widest / VX_PATCH, w);
}

// As even as it goes.
static int64_t batch_of(const pass *p, int64_t most)
{
    if (p->encode->frames > 1) return 0;
    const int64_t tiles = (int64_t)p->y.count * p->x.count;
    return vx_ceil_div(tiles, vx_ceil_div(tiles, most));
}

static vx_status prepare(pass *p, vx_arena *arena, int64_t most)
{
    const vx_video_encoder_config *g = &p->encoder->config;
    VX_TRY(vx_tile_axis_plan(&p->y, p->encode->height, g->tile_size, g->tile_overlap, "height"));
    VX_TRY(vx_tile_axis_plan(&p->x, p->encode->width, g->tile_size, g->tile_overlap, "width"));
    p->latents = vx_encoded_frames(p->encode->frames);
    p->clips = vx_ceil_div(p->encode->frames, VX_CLIP_LENGTH);
    p->batch = batch_of(p, most);
    take_buffers(p, arena);
    fill_values(p);
    if (p->encode->pixels) {
        const int64_t frames = clip_frames(p, 0) * vx_max_i64(1, p->batch);
        p->pixels = vx_alloc_array((size_t)(VX_COLOURS * frames), (size_t)(p->y.size * p->x.size) * sizeof(float));
        VX_NEED_MEMORY(p->pixels, "a tile's pixels");
    }
    return vx_upload(p->dev, p->flag, &(int32_t){ 0 });
}

// One frame of a tile, to the f-th of `to` on the host.
static void load_frame(const pass *p, vx_tensor to, int64_t f, int64_t frame, int64_t top, int64_t left)
{
    const vx_video_encode *e = p->encode;
    const int64_t frames = to.shape[1], height = to.shape[2], width = to.shape[3], plane = height * width;
    for (int64_t y = 0; y < height; y++) {
        const uint8_t *from = e->pixels + ((frame * e->height + top + y) * e->width + left) * VX_COLOURS;
        float *row = p->pixels + f * plane + y * width;
        for (int64_t x = 0; x < width; x++)
            for (int c = 0; c < VX_COLOURS; c++) row[c * frames * plane + x] = p->value[c][from[x * VX_COLOURS + c]];
    }
}

// Pixels of tiles from the tile-th on to [3, frames, height, width]: of one tile the frames of a clip, behind the last of which it
// is repeated (section 7), or of pictures a tile each.
static vx_status load_tiles(const pass *p, vx_tensor to, int64_t clip, int tile)
{
    if (!p->encode->pixels) return vx_upload(p->dev, to, NULL);
    for (int64_t f = 0; f < to.shape[1]; f++) {
        const int64_t frame = vx_min_i64(clip * VX_CLIP_LENGTH + (p->batch ? 0 : f), p->encode->frames - 1);
        const int at = tile + (p->batch ? (int)f : 0);
        load_frame(p, to, f, frame, p->y.start[at / p->x.count], p->x.start[at % p->x.count]);
    }
    return vx_upload(p->dev, to, p->pixels);
}

static void swap(vx_tensor *a, vx_tensor *b)
{
    vx_tensor t = *a;
    *a = *b;
    *b = t;
}

// `edge` with the latents of this clip and, on `axis`, `extent` cells.
static vx_tensor cut(vx_tensor edge, int64_t latents, int axis, int64_t extent)
{
    return vx_tensor_slice(vx_tensor_slice(edge, 1, 0, latents), axis, 0, extent);
}

// Leaves the raw edges of tile (i, j) and blends it with those of its neighbours.
static vx_status blend(pass *p, int i, int j, vx_tensor t)
{
    const int64_t latents = t.shape[1], height = t.shape[2], width = t.shape[3];
    const int64_t low = i + 1 < p->y.count ? p->y.overlap[i] / VX_PATCH : 0;
    const int64_t side = j + 1 < p->x.count ? p->x.overlap[j] / VX_PATCH : 0;
    vx_tensor *spare = &p->below[p->x.count];
    if (low > 0) VX_TRY(vx_copy(p->dev, cut(*spare, latents, 2, low), vx_tensor_slice(t, 2, height - low, height)));
    if (side > 0) VX_TRY(vx_copy(p->dev, cut(p->right[1], latents, 3, side), vx_tensor_slice(t, 3, width - side, width)));
    if (i > 0) {
        int64_t extent = p->y.overlap[i - 1] / VX_PATCH;
        vx_tensor top = vx_tensor_slice(t, 2, 0, extent);
        VX_TRY(vx_fade(p->dev, top, cut(p->below[j], latents, 2, extent), top, 2));
    }
    if (j > 0) {
        int64_t extent = p->x.overlap[j - 1] / VX_PATCH;
        vx_tensor start = vx_tensor_slice(t, 3, 0, extent);
        VX_TRY(vx_fade(p->dev, start, cut(p->right[0], latents, 3, extent), start, 3));
    }
    if (low > 0) swap(&p->below[j], spare);
    if (side > 0) swap(&p->right[0], &p->right[1]);
    return vx_ok();
}

// What is left of a blended tile when the overlaps behind are cut, into its place in mean and logvar.
static vx_status place(const pass *p, int i, int j, int64_t clip, vx_tensor t)
{
    const int64_t channels = p->encoder->config.latent_channels, first = clip * VX_CLIP_LATENTS;
    const int64_t height = t.shape[2] - (i + 1 < p->y.count ? p->y.overlap[i] / VX_PATCH : 0);
    const int64_t width = t.shape[3] - (j + 1 < p->x.count ? p->x.overlap[j] / VX_PATCH : 0);
    const int64_t top = p->y.start[i] / VX_PATCH, left = p->x.start[j] / VX_PATCH;
    vx_tensor to[2] = { p->encode->mean, p->encode->logvar };
    t = vx_tensor_slice(vx_tensor_slice(t, 2, 0, height), 3, 0, width);
    for (int k = 0; k < 2 && to[k].rank; k++) {
        to[k] = vx_tensor_slice(to[k], 1, first, first + t.shape[1]);
        to[k] = vx_tensor_slice(vx_tensor_slice(to[k], 2, top, top + height), 3, left, left + width);
    }
    VX_TRY(vx_copy(p->dev, to[0], vx_tensor_slice(t, 0, 0, channels)));
    if (to[1].rank == 0) return vx_ok();
    return vx_clamp(p->dev, to[1], vx_tensor_slice(t, 0, channels, 2 * channels), least_logvar, most_logvar);
}

static vx_status finish_tile(pass *p, int i, int j, int64_t clip, vx_tensor t)
{
    VX_TRY(vx_mark_not_finite(p->dev, p->flag, 0, t)); // before the clamp, which would hide infinity
    VX_TRY(blend(p, i, j, t));
    VX_TRY(place(p, i, j, clip, t));
    p->done++;
    if (p->encode->progress) p->encode->progress(p->encode->user, p->done, p->clips * p->y.count * p->x.count);
    return vx_ok();
}

// `count` tiles of a picture, or one of a clip.
static vx_status run_tiles(pass *p, int tile, int count, int64_t clip)
{
    const int64_t frames = p->batch ? count : clip_frames(p, clip), latents = p->batch ? count : clip_latents(p, clip);
    vx_tensor pixels = vx_encoder_tile_pixels(&p->tile, frames, p->y.size, p->x.size);
    vx_tensor t = vx_tensor_of(p->moments.data, VX_F32, 2 * p->encoder->config.latent_channels, latents, p->y.size / VX_PATCH,
                               p->x.size / VX_PATCH);
    VX_TRY(load_tiles(p, pixels, clip, tile));
    VX_TRY(vx_encoder_tile_run(p->encoder, p->dev, &p->tile, t, pixels, p->done == 0));
    for (int k = 0; k < count; k++) {
        const int i = (tile + k) / p->x.count, j = (tile + k) % p->x.count;
        VX_TRY(finish_tile(p, i, j, clip, p->batch ? vx_tensor_slice(t, 1, k, k + 1) : t));
    }
    return vx_ok();
}

static vx_status run_clip(pass *p, int64_t clip)
{
    const int tiles = p->y.count * p->x.count, step = p->batch ? (int)p->batch : 1;
    for (int tile = 0; tile < tiles; tile += step)
        VX_TRY_IN(run_tiles(p, tile, (int)vx_min_i64(step, tiles - tile), clip), "tile %d,%d", tile / p->x.count,
                  tile % p->x.count);
    int32_t bad = 0;
    VX_TRY(vx_download(p->dev, &bad, p->flag));
    VX_TRY(vx_component_check(p->encoder->component));
    return bad ? vx_fail(VX_ERR_NOT_FINITE, "the latents hold NaN or infinity") : vx_ok();
}

vx_status vx_video_encoder_run_batched(const vx_video_encoder *encoder, vx_device *dev, vx_arena *arena,
                                       const vx_video_encode *encode, int64_t most)
{
    pass p = { .encoder = encoder, .encode = encode, .dev = dev };
    VX_TRY_IN(check(encoder, dev, encode), "video encoder");
    size_t mark = vx_arena_mark(arena);
    vx_status status = prepare(&p, arena, most);
    for (int64_t clip = 0; status.code == VX_OK && clip < p.clips; clip++) {
        status = run_clip(&p, clip);
        if (status.code != VX_OK) status = vx_within(status, "clip %d of %d", (int)clip, (int)p.clips);
    }
    vx_free(p.pixels);
    vx_arena_reset(arena, mark);
    return status.code == VX_OK ? status : vx_within(status, "video encoder");
}

// A tile of a picture does not fill a card. A processor it does, and there one at a time stays in the caches.
vx_status vx_video_encoder_run(const vx_video_encoder *encoder, vx_device *dev, vx_arena *arena, const vx_video_encode *encode)
{
    return vx_video_encoder_run_batched(encoder, dev, arena, encode, vx_device_far(dev) ? VX_CLIP_LENGTH : 1);
}

void vx_video_condition(const vx_video_encoder *encoder, const float *mean, const float *logvar, int64_t count_per_channel,
                        float *out)
{
    const vx_video_encoder_config *g = &encoder->config;
    vx_random random;
    vx_random_seed(&random, CONDITION_SEED);
    vx_random_normal(&random, out, g->latent_channels * count_per_channel);
    for (int64_t c = 0; c < g->latent_channels; c++)
        for (int64_t i = c * count_per_channel; i < (c + 1) * count_per_channel; i++) {
            float noise = vx_expf(0.5f * logvar[i]) * out[i], z = vx_f16_to_f32(vx_f32_to_f16(mean[i] + noise));
            out[i] = (z - g->latents_mean[c]) / g->latents_std[c];
        }
}
