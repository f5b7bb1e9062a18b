// What the tower reads beside weights: patches of pixels, shares of learned positions, rotary tables. Each is a pure function
// of the grid and made once per block of patches, on the host.
#include <math.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "text/vision_inside.h"

void vx_vision_patch_at(int64_t i, int64_t width, int64_t *row, int64_t *column)
{
    const int64_t unit = i / VX_VISION_UNIT, inner = i % VX_VISION_UNIT, across = width / VX_VISION_MERGE;
    *row = unit / across * VX_VISION_MERGE + inner / VX_VISION_MERGE;
    *column = unit % across * VX_VISION_MERGE + inner % VX_VISION_MERGE;
}

// ---- patches ----
// A pixel has 256 values, so the normalisation is a table: bytes of one act each.
typedef struct shades {
    float f32[256];
    uint16_t bf16[256];
} shades;

static void fill_shades(shades *s)
{
    for (int v = 0; v < 256; v++) {
        s->f32[v] = ((float)v - 127.5f) / 127.5f;
        s->bf16[v] = vx_f32_to_bf16(s->f32[v]);
    }
}

// One patch: [channel][frame][row][column]. `origin` is its first pixel's byte in a frame of `width` pixels.
static void cut(void *patch, vx_dtype act, const shades *s, const uint8_t *const frames[VX_VISION_FRAMES], int64_t origin,
                int64_t width)
{
    int64_t n = 0;
    for (int channel = 0; channel < 3; channel++)
        for (int frame = 0; frame < VX_VISION_FRAMES; frame++)
            for (int64_t y = 0; y < VX_VISION_PATCH; y++) {
                const uint8_t *line = frames[frame] + origin + 3 * y * width + channel;
                for (int64_t x = 0; x < VX_VISION_PATCH; x++, n++) {
                    if (act == VX_BF16) ((uint16_t *)patch)[n] = s->bf16[line[3 * x]];
                    else ((float *)patch)[n] = s->f32[line[3 * x]];
                }
            }
}

vx_status vx_vision_upload_patches(vx_device *dev, vx_tensor patches, int64_t begin, const uint8_t *first, const uint8_t *second,
                                   int64_t width)
{
    const uint8_t *const frames[VX_VISION_FRAMES] = { first, second };
    const int64_t rows = patches.shape[0];
    const size_t bytes = vx_tensor_bytes(patches);
    char *host = vx_alloc(bytes);
    VX_NEED_MEMORY(host, "patches of a picture");
    shades s;
    fill_shades(&s);
    for (int64_t i = 0; i < rows; i++) {
        int64_t row, column;
        vx_vision_patch_at(begin + i, width / VX_VISION_PATCH, &row, &column);
        cut(host + bytes / (size_t)rows * (size_t)i, patches.dtype, &s, frames, 3 * VX_VISION_PATCH * (row * width + column),
            width);
    }
    vx_status status = vx_upload(dev, patches, host);
    vx_free(host);
    return status;
}

// ---- learned positions ----
typedef struct taps {
    int64_t at[2];
    float share[2];
} taps;

// Two taps on an axis of `side` learned positions for place i of n, both ends included. The share of the upper tap is
// 1 - |d - 1| and not d, and the place one f32 product and quotient: the reference's bits (transformers' vision_utils).
static taps taps_of(int64_t i, int64_t n, int64_t side)
{
    const float place = (float)i * (float)(side - 1) / (float)vx_max_i64(n - 1, 1);
    const float lower = floorf(place), d = place - lower;
    return (taps){ .at = { vx_min_i64((int64_t)lower, side - 1), vx_min_i64((int64_t)lower + 1, side - 1) },
                   .share = { 1.0f - d, 1.0f - fabsf(d - 1.0f) } };
}

static void blend_patch(int32_t ids[4], float weights[4], taps rows, taps columns, int64_t side)
{
    for (int corner = 0; corner < 4; corner++) {
        const int y = corner / 2, x = corner % 2;
        ids[corner] = (int32_t)(rows.at[y] * side + columns.at[x]);
        weights[corner] = rows.share[y] * columns.share[x];
    }
}

vx_status vx_vision_upload_positions(vx_device *dev, vx_tensor ids, vx_tensor weights, int64_t grid_side, int64_t grid_height,
                                     int64_t grid_width)
{
    const int64_t n = ids.shape[0];
    int32_t *host_ids = vx_alloc_array((size_t)n, 4 * sizeof *host_ids);
    float *host_weights = vx_alloc_array((size_t)n, 4 * sizeof *host_weights);
    vx_status s = vx_ok();
    if (!host_ids || !host_weights) s = vx_no_memory("for the positions of %lld patches", (long long)n);
    for (int64_t i = 0; i < n && s.code == VX_OK; i++) {
        int64_t row, column;
        vx_vision_patch_at(i, grid_width, &row, &column);
        blend_patch(host_ids + 4 * i, host_weights + 4 * i, taps_of(row, grid_height, grid_side),
                    taps_of(column, grid_width, grid_side), grid_side);
    }
    if (s.code == VX_OK) s = vx_upload(dev, ids, host_ids);
    if (s.code == VX_OK) s = vx_upload(dev, weights, host_weights);
    vx_free(host_ids);
    vx_free(host_weights);
    return s;
}

// ---- rotary tables ----
#define ROPE_THETA 10000.0

// head_dim = 2 * pairs; half of the pairs turn with the row, half with the column. The exponent is an f32 quotient in the
// reference, and so is the reciprocal of an f32 power.
static float inverse_frequency(int64_t k, int64_t pairs)
{
    float exponent = (float)(2 * k) / (float)pairs;
    return 1.0f / (float)pow(ROPE_THETA, (double)exponent);
}

static void fill_rotary(float *cos_table, float *sin_table, int64_t rows, int64_t pairs, int64_t grid_width)
{
    const int64_t half = pairs / 2;
    for (int64_t k = 0; k < half; k++) {
        const float inverse = inverse_frequency(k, pairs);
        for (int64_t i = 0; i < rows; i++) {
            int64_t place[2];
            vx_vision_patch_at(i, grid_width, &place[0], &place[1]);
            for (int axis = 0; axis < 2; axis++) {
                const double angle = (double)((float)place[axis] * inverse);
                cos_table[i * pairs + axis * half + k] = (float)cos(angle);
                sin_table[i * pairs + axis * half + k] = (float)sin(angle);
            }
        }
    }
}

vx_status vx_vision_upload_rotary(vx_device *dev, vx_tensor cos, vx_tensor sin, int64_t grid_width)
{
    const int64_t rows = cos.shape[0], pairs = cos.shape[1];
    float *host = vx_alloc_array((size_t)rows, 2 * (size_t)pairs * sizeof *host);
    VX_NEED_MEMORY(host, "rotary tables of a picture");
    fill_rotary(host, host + rows * pairs, rows, pairs, grid_width);
    vx_status s = vx_upload(dev, cos, host);
    if (s.code == VX_OK) s = vx_upload(dev, sin, host + rows * pairs);
    vx_free(host);
    return s;
}
