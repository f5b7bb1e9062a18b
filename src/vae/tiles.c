// The arithmetic of clips: tiles along one axis (video VAE specification, 8.1), frames of a latent clip (section 12), latents of a
// clip of frames (section 7).
#include "base/checked.h"
#include "vae/video_encoder.h"
#include "vae/video_internal.h"

// Tiles meet on the latent grid, so slack is given to the overlaps in steps of one latent cell.
enum { CELL = 16 };

int vx_tile_plan(int64_t length, int64_t size, int64_t overlap, int capacity, int64_t *start, int64_t *overlaps)
{
    if (capacity < 1 || length < 1 || size < 1 || overlap < 0 || overlap >= size) return 0;
    start[0] = 0;
    if (size >= length) return 1;
    int64_t count = vx_ceil_div(length, size);
    count = vx_max_i64(count, vx_ceil_div(length - overlap, size - overlap));
    if (count > capacity) return 0;
    for (int64_t k = 0; k + 1 < count; k++) overlaps[k] = overlap;
    int64_t cells = (size * count - overlap * (count - 1) - length) / CELL;
    for (int64_t i = 0; i < cells; i++) overlaps[i % (count - 1)] += CELL;
    for (int64_t k = 0; k + 1 < count; k++) start[k + 1] = start[k] + size - overlaps[k];
    return (int)count;
}

vx_status vx_tile_axis_plan(vx_tile_axis *a, int64_t length, int64_t size, int64_t overlap, const char *name)
{
    a->count = vx_tile_plan(length, size, overlap, VX_MAX_TILES, a->start, a->overlap);
    if (a->count == 0)
        return vx_fail_field(VX_ERR_RANGE, name, "%lld pixels need more than %d tiles", (long long)length, VX_MAX_TILES);
    a->size = vx_min_i64(length, size);
    a->widest = 0;
    for (int k = 0; k + 1 < a->count; k++) a->widest = vx_max_i64(a->widest, a->overlap[k]);
    return vx_ok();
}

// Every fifth latent frame, from the first on, holds one picture; the others hold four.
int64_t vx_decoded_frames(int64_t latent_frames)
{
    if (latent_frames < 3) return 0;
    int64_t rest = latent_frames % 5;
    return latent_frames / 5 * 17 + (rest > 0 ? 1 + 4 * (rest - 1) : 0);
}

// Every clip gives five; of the last three are dropped, once (section 7).
int64_t vx_encoded_frames(int64_t frames)
{
    if (frames < 2) return frames == 1;
    return VX_CLIP_LATENTS * vx_ceil_div(frames, VX_CLIP_LENGTH) - VX_TOKEN_DROP;
}
