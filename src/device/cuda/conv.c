// vx_conv1d and vx_conv_transpose1d, and what they share with vx_conv3d: the choice of a tile.
#include "device/cuda/conv.h"

#include "base/checked.h"

// ---- shared ----
vx_status vx_cuda_conv_check(const char *op, const vx_tensor *tensors, int count)
{
    for (int i = 0; i < count; i++)
        if (vx_tensor_count(tensors[i]) > INT32_MAX)
            return vx_fail(VX_ERR_SHAPE, "%s: %lld numbers in one tensor, the CUDA device takes up to %d", op,
                           (long long)vx_tensor_count(tensors[i]), INT32_MAX);
    return vx_ok();
}

static vx_k_format format_of(vx_dtype dtype)
{
    return dtype == VX_BF16 ? VX_K_BF16 : dtype == VX_F16 ? VX_K_F16 : VX_K_F32;
}

vx_status vx_cuda_conv_weights(vx_cuda *cuda, vx_k_conv *c, vx_tensor w, vx_tensor bias)
{
    VX_TRY(vx_cuda_resident(cuda, &w, false));
    c->w = w.data;
    c->w_format = format_of(w.dtype);
    if (bias.rank == 0) return vx_ok();
    VX_TRY(vx_cuda_resident(cuda, &bias, false));
    c->bias = bias.data;
    c->bias_format = format_of(bias.dtype);
    c->bias_stride = bias.stride[0];
    return vx_ok();
}

// How well a tile's inner loop runs: share of a multiprocessor's peak of products, measured on one H200 (tests/cuda/bench_conv.c).
struct rate {
    float alone, full; // one block there; as many as fit
    int blocks;        // that fit
};
static const struct rate rates[VX_K_CONV_TILES] = {
    [VX_K_CONV_128X128] = { 0.640f, 0.700f, 2 }, [VX_K_CONV_128X64] = { 0.450f, 0.620f, 4 },
    [VX_K_CONV_64X128] = { 0.500f, 0.690f, 4 },  [VX_K_CONV_64X64] = { 0.460f, 0.635f, 4 },
    [VX_K_CONV_64X32] = { 0.340f, 0.515f, 5 },   [VX_K_CONV_32X32] = { 0.186f, 0.490f, 10 },
    [VX_K_CONV_32X128] = { 0.360f, 0.570f, 4 },  [VX_K_CONV_16X256] = { 0.300f, 0.480f, 4 },
    [VX_K_CONV_8X512] = { 0.200f, 0.330f, 4 },
};

// Time of the multiprocessor with the most blocks, in units of its peak; sums are never split, so a small output fills the chip
// by small tiles or not at all.
static double cost(const struct rate *r, int64_t m, int64_t n, int64_t channels, int64_t positions, int64_t planes,
                   int multiprocessors)
{
    const int64_t blocks = vx_ceil_div(channels, m) * vx_ceil_div(positions, n) * planes;
    const int64_t most = vx_ceil_div(blocks, multiprocessors), last = most % r->blocks, rounds = most / r->blocks;
    const double step = (r->full - r->alone) / (r->blocks > 1 ? r->blocks - 1 : 1);
    double time = (double)rounds * r->blocks / r->full;
    if (last) time += (double)last / (r->alone + step * (double)(last - 1));
    return time * (double)(m * n);
}

static double cost_of(vx_k_conv_tile tile, int64_t channels, int64_t positions, int64_t planes, int multiprocessors)
{
    return cost(&rates[tile], vx_k_conv_tile_channels(tile), vx_k_conv_tile_positions(tile), channels, positions, planes,
                multiprocessors);
}

vx_k_conv_tile vx_cuda_conv_pick(const vx_k_conv *c, int multiprocessors)
{
    const int64_t positions = c->phases ? vx_ceil_div(c->out_columns, c->phases) : (int64_t)c->out_rows * c->out_columns;
    const int64_t planes = (int64_t)c->out_frames * (c->phases ? c->phases : 1);
    vx_k_conv_tile best = VX_K_CONV_128X128;
    double least = cost_of(best, c->co, positions, planes, multiprocessors);
    for (int i = 1; i < VX_K_CONV_TILES; i++) {
        const double now = cost_of((vx_k_conv_tile)i, c->co, positions, planes, multiprocessors);
        if (now >= least) continue;
        best = (vx_k_conv_tile)i;
        least = now;
    }
    return best;
}

// The same for products by parts.
static const struct rate parts_rates[VX_K_PARTS_TILES] = {
    [VX_K_PARTS_128X128] = { 0.60f, 0.60f, 1 },      [VX_K_PARTS_128X64] = { 0.34f, 0.55f, 2 },
    [VX_K_PARTS_64X128] = { 0.35f, 0.55f, 2 },       [VX_K_PARTS_64X64] = { 0.26f, 0.60f, 3 },
    [VX_K_PARTS_32X128] = { 0.25f, 0.50f, 3 },       [VX_K_PARTS_GROUP_128X128] = { 1.00f, 1.00f, 1 },
    [VX_K_PARTS_GROUP_128X64] = { 0.80f, 0.80f, 1 }, [VX_K_PARTS_GROUP_64X64] = { 0.45f, 0.80f, 2 },
};

// Which tiles there are, by channels out alone: other instructions have other bits, and these must not depend on positions.
static bool offers(const vx_cuda *cuda, const vx_k_conv *c, vx_k_parts_tile tile)
{
    const bool group = tile >= VX_K_PARTS_GROUP_128X128;
    return group == (cuda->groups && c->co > 32);
}

bool vx_cuda_conv_parts(const vx_cuda *cuda, const vx_k_conv *c, vx_cuda_parts *how)
{
    const int64_t positions = c->phases ? vx_ceil_div(c->out_columns, c->phases) : (int64_t)c->out_rows * c->out_columns;
    const int64_t planes = (int64_t)c->out_frames * (c->phases ? c->phases : 1), segments = vx_k_parts_segments(c);
    const int64_t taps = (int64_t)c->taps[0] * c->taps[1] * c->taps[2], k = c->ci * (c->phases ? taps / c->phases : taps);
    if (c->ci < 32 || c->co < 16 || k < 128 || c->frames == 0 || c->rows == 0 || c->columns == 0) return false;
    double least = -1;
    for (int i = 0; i < VX_K_PARTS_TILES; i++) {
        if (!offers(cuda, c, (vx_k_parts_tile)i)) continue;
        for (int each = 0; each < (segments > 1 ? 2 : 1); each++) {
            if (vx_k_parts_shared(c, (vx_k_parts_tile)i, each) > cuda->shared) continue;
            const int m = vx_k_parts_channels((vx_k_parts_tile)i), n = vx_k_parts_positions((vx_k_parts_tile)i);
            double now = cost(&parts_rates[i], m, n, c->co, positions, each ? planes * segments : planes, cuda->multiprocessors);
            // Sums that are written and read again, and one more launch.
            if (each) now = now / (double)segments + 0.06 * (double)(c->co * positions * planes) / cuda->multiprocessors;
            if (least >= 0 && now >= least) continue;
            *how = (vx_cuda_parts){ (vx_k_parts_tile)i, each };
            least = now;
        }
    }
    return least >= 0;
}

static bool by_parts(const vx_cuda *cuda, const vx_k_conv *c, vx_cuda_parts *how)
{
    return cuda->base.parts && vx_cuda_conv_parts(cuda, c, how);
}

size_t vx_cuda_conv_scratch(const vx_device *dev, const vx_k_conv *c)
{
    vx_cuda_parts how;
    if (by_parts(vx_cuda_of_const(dev), c, &how)) return vx_k_parts_scratch(c, how.each);
    return vx_k_conv_packed(c) * sizeof(float);
}

vx_status vx_cuda_conv_run(vx_cuda *cuda, vx_k_conv *c, const char *op)
{
    void *scratch;
    vx_cuda_parts how;
    VX_TRY(vx_cuda_scratch(cuda, vx_cuda_conv_scratch(&cuda->base, c), &scratch));
    c->packed = scratch;
    if (by_parts(cuda, c, &how)) return vx_cuda_status(vx_k_parts_run(c, how.tile, how.each, cuda->stream), op);
    return vx_cuda_status(vx_k_conv_run(c, vx_cuda_conv_pick(c, cuda->multiprocessors), cuda->stream), op);
}

// ---- over time ----
// Lines are frames that no tap connects; or, but for transposed ones, rows: then a tile takes the end of one line and the beginning of
// the next.
static vx_k_conv line_of(const vx_conv1d_args *a, bool transposed)
{
    vx_k_conv c = {
        .x = vx_f32_of(a->x),
        .x_channel = a->x.stride[0],
        .x_frame = a->x.stride[1],
        .ci = (int)a->x.shape[0],
        .frames = (int)a->x.shape[1],
        .rows = 1,
        .columns = (int)a->x.shape[2],
        .out = vx_f32_of(a->out),
        .out_channel = a->out.stride[0],
        .out_frame = a->out.stride[1],
        .co = (int)a->out.shape[0],
        .out_frames = (int)a->out.shape[1],
        .out_rows = 1,
        .out_columns = (int)a->out.shape[2],
        .taps = { 1, 1, (int)a->w.shape[2] },
        .stride = { 1, 1, (int)a->stride },
        .pad = { 0, 0, (int)a->padding },
        .dilation = (int)a->dilation,
        .phases = transposed ? (int)a->stride : 0,
    };
    if (a->residual.rank) {
        c.residual = vx_f32_of(a->residual);
        c.residual_channel = a->residual.stride[0];
        c.residual_frame = a->residual.stride[1];
    }
    if (!transposed) {
        c.rows = c.out_rows = c.frames;
        c.frames = c.out_frames = 1;
        c.x_row = c.x_frame;
        c.out_row = c.out_frame;
        c.residual_row = c.residual_frame;
    }
    return c;
}

static size_t scratch_of(const vx_device *dev, const vx_conv1d_args *args, bool transposed)
{
    const vx_k_conv c = line_of(args, transposed);
    return vx_cuda_conv_scratch(dev, &c);
}

static vx_status run(vx_device *dev, const vx_conv1d_args *args, bool transposed, const char *op)
{
    vx_k_conv c = line_of(args, transposed);
    VX_TRY(vx_cuda_conv_check(op, (const vx_tensor[]){ args->out, args->x, args->w }, 3));
    VX_TRY(vx_cuda_conv_weights(vx_cuda_of(dev), &c, args->w, args->bias));
    return vx_cuda_conv_run(vx_cuda_of(dev), &c, op);
}

size_t vx_cuda_conv1d_scratch(const vx_device *dev, const vx_conv1d_args *args)
{
    return scratch_of(dev, args, false);
}
size_t vx_cuda_conv_transpose1d_scratch(const vx_device *dev, const vx_conv1d_args *args)
{
    return scratch_of(dev, args, true);
}
vx_status vx_cuda_conv1d(vx_device *dev, const vx_conv1d_args *args)
{
    return run(dev, args, false, "vx_conv1d");
}
vx_status vx_cuda_conv_transpose1d(vx_device *dev, const vx_conv1d_args *args)
{
    return run(dev, args, true, "vx_conv_transpose1d");
}
