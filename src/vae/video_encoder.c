// Opening the video encoder: what its configuration says in either spelling, and the tensors that follow from it.
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "vae/statistics.h"
#include "vae/video_encoder_internal.h"

enum { MAX_CHANNELS = 1 << 16, MAX_BLOCKS = 64, MIN_TILE = 32 };

static vx_status check_word(const vx_component *c, const char *name, const char *known)
{
    const char *found = json_string_value(json_object_get(vx_component_config(c), name));
    if (!found || strcmp(found, known) == 0) return vx_ok();
    return vx_fail(VX_ERR_CONFIG, "%s: %s is '%s', only '%s' is known", vx_component_path(c), name, found, known);
}

// The released encoder's ways, which other values would change (specification 2, 5).
static vx_status check_ways(const vx_component *c)
{
    VX_TRY(check_word(c, "padding_mode", "reflect"));
    VX_TRY(check_word(c, "spatial_padding_mode", "reflect"));
    static const char *const on[] = { "causal_encoder", "use_t_isolated_gn", "use_3d_conv" };
    for (size_t i = 0; i < sizeof on / sizeof *on; i++)
        if (json_is_false(json_object_get(vx_component_config(c), on[i])))
            return vx_fail(VX_ERR_CONFIG, "%s: %s is false, only true is known", vx_component_path(c), on[i]);
    const int64_t released = VX_GROUPS;
    int64_t groups;
    VX_TRY(vx_config_int(c, "norm_num_groups", NULL, &released, &groups));
    if (groups != VX_GROUPS)
        return vx_fail(VX_ERR_CONFIG, "%s: norm_num_groups is %lld, only %d is known", vx_component_path(c), (long long)groups,
                       VX_GROUPS);
    return vx_ok();
}

static vx_status read_counts(vx_video_encoder *e, const vx_component *c)
{
    vx_video_encoder_config *g = &e->config;
    int64_t in[VX_MAX_RANK], quant[VX_MAX_RANK], half, blocks;
    VX_TRY(vx_video_shape_of(c, "encoder.conv_in.weight", 5, in));
    VX_TRY(vx_component_layers(c, "encoder.down.", ".block.0.norm1.weight", &g->levels));
    if (g->levels < 1)
        return vx_fail(VX_ERR_TENSOR_MISSING, "%s: 'encoder.down.0.block.0.norm1.weight' is missing", vx_component_path(c));
    if (g->levels > VX_MAX_LEVELS)
        return vx_fail(VX_ERR_TENSOR_UNEXPECTED, "%s: 'encoder.down.' goes up to %lld, at most %d are known",
                       vx_component_path(c), (long long)g->levels - 1, VX_MAX_LEVELS - 1);
    VX_TRY(vx_component_layers(c, "encoder.down.0.block.", ".norm1.weight", &blocks));
    VX_TRY(vx_video_shape_of(c, "quant_conv.weight", 5, quant));
    half = quant[0] / 2 ? quant[0] / 2 : 1;
    VX_TRY(vx_config_int(c, "latent_channels", "z_channels", &half, &g->latent_channels));
    VX_TRY(vx_config_int(c, "num_res_blocks", "layers_per_block", &blocks, &g->blocks));
    if (g->latent_channels > VX_MAX_LATENT_CHANNELS || g->blocks > MAX_BLOCKS)
        return vx_fail(VX_ERR_CONFIG, "%s: %lld latent channels, %lld blocks a level: too large", vx_component_path(c),
                       (long long)g->latent_channels, (long long)g->blocks);
    e->width = in[0];
    return vx_ok();
}

// ch * ch_mult (official), block_out_channels (diffusers), or what the tensors have.
static vx_status read_widths(vx_video_encoder *e, const vx_component *c)
{
    vx_video_encoder_config *g = &e->config;
    bool multiples, widths;
    int64_t base = e->width;
    VX_TRY(vx_config_ints(c, "ch_mult", (int)g->levels, g->channels, &multiples));
    if (multiples) {
        VX_TRY(vx_config_int(c, "ch", NULL, NULL, &base));
        for (int64_t i = 0; i < g->levels; i++)
            g->channels[i] = g->channels[i] <= MAX_CHANNELS && base <= MAX_CHANNELS ? g->channels[i] * base : 0;
    }
    int64_t ignored[VX_MAX_LEVELS] = { 0 };
    VX_TRY(vx_config_ints(c, "block_out_channels", (int)g->levels, multiples ? ignored : g->channels, &widths));
    for (int64_t i = 0; i < g->levels; i++) {
        if (!multiples && !widths) {
            char name[64];
            int64_t shape[VX_MAX_RANK];
            snprintf(name, sizeof name, "encoder.down.%d.block.0.conv1.weight", (int)i);
            VX_TRY(vx_video_shape_of(c, name, 5, shape));
            g->channels[i] = shape[0];
        }
        if (g->channels[i] < VX_GROUPS || g->channels[i] > MAX_CHANNELS || g->channels[i] % VX_GROUPS)
            return vx_fail(VX_ERR_CONFIG, "%s: level %d has %lld channels, expected a multiple of %d up to %d",
                           vx_component_path(c), (int)i, (long long)g->channels[i], VX_GROUPS, MAX_CHANNELS);
    }
    if (e->width % VX_GROUPS || e->width > MAX_CHANNELS || base != e->width)
        return vx_fail(VX_ERR_TENSOR_SHAPE, "%s: 'encoder.conv_in.weight' has %lld rows, expected %lld, a multiple of %d",
                       vx_component_path(c), (long long)e->width, (long long)base, VX_GROUPS);
    return vx_ok();
}

// A list of strides of 1 and 2 under either name.
static vx_status strides(const vx_component *c, const char *name, const char *other, int64_t levels, int64_t *out, bool *found)
{
    VX_TRY(vx_config_ints(c, name, (int)levels, out, found));
    if (!*found) VX_TRY(vx_config_ints(c, other, (int)levels, out, found));
    for (int64_t i = 0; *found && i < levels; i++)
        if (out[i] != 1 && out[i] != 2)
            return vx_fail(VX_ERR_CONFIG, "%s: %s of level %d is %lld, expected 1 or 2", vx_component_path(c), name, (int)i,
                           (long long)out[i]);
    return vx_ok();
}

// Without a configuration the tensors tell where space is halved; where time is, only the released network is known.
static vx_status read_strides(vx_video_encoder *e, const vx_component *c)
{
    static const int64_t released_time[] = { 1, 2, 2, 1, 1, 1 };
    enum { RELEASED_LEVELS = sizeof released_time / sizeof *released_time };
    vx_video_encoder_config *g = &e->config;
    bool space, time;
    int64_t space_product = 1, time_product = 1;
    VX_TRY(strides(c, "space_down", "spatial_downsample_factors", g->levels, g->space_stride, &space));
    VX_TRY(strides(c, "time_down", "temporal_downsample_factors", g->levels, g->time_stride, &time));
    if (!time && g->levels != RELEASED_LEVELS)
        return vx_fail(VX_ERR_CONFIG, "%s: time_down of %lld levels is missing from the configuration", vx_component_path(c),
                       (long long)g->levels);
    for (int64_t i = 0; i < g->levels; i++) {
        char name[64];
        snprintf(name, sizeof name, "encoder.down.%d.downsample.conv.weight", (int)i);
        if (!space) g->space_stride[i] = vx_component_has(c, name) ? 2 : 1;
        if (!time) g->time_stride[i] = released_time[i];
        space_product *= g->space_stride[i];
        time_product *= g->time_stride[i];
        // The reference pads such a convolution's frames only.
        if (g->time_stride[i] > g->space_stride[i])
            return vx_fail(VX_ERR_CONFIG, "%s: level %d halves time but not space", vx_component_path(c), (int)i);
    }
    if (space_product != VX_PATCH || time_product != VX_PATCH_FRAMES)
        return vx_fail(VX_ERR_CONFIG, "%s: the levels divide space by %lld and time by %lld, only %d and %d are known",
                       vx_component_path(c), (long long)space_product, (long long)time_product, VX_PATCH, VX_PATCH_FRAMES);
    return vx_ok();
}

static vx_status read_geometry(vx_video_encoder *e, const vx_component *c)
{
    vx_video_encoder_config *g = &e->config;
    const double released = 1e-6;
    double eps;
    VX_TRY(vx_video_tile_size(c, &g->tile_size, &g->tile_overlap));
    if (g->tile_size < MIN_TILE) // padding by reflection needs two cells (specification 5.5)
        return vx_fail(VX_ERR_CONFIG, "%s: tiles of %lld pixels, expected at least %d", vx_component_path(c),
                       (long long)g->tile_size, MIN_TILE);
    VX_TRY(vx_config_float(c, "norm_eps", NULL, &released, &eps));
    if (!(eps >= 0.0)) return vx_fail(VX_ERR_CONFIG, "%s: norm_eps is %g", vx_component_path(c), eps);
    e->eps = (float)eps;
    return vx_statistics_read(c, g->latent_channels, vx_video_latents_mean, vx_video_latents_std, 24, g->latents_mean,
                              g->latents_std);
}

// A weight of any rank and its bias, one value for each of its rows.
static vx_status bind_one(vx_component *c, const char *prefix, const char *name, vx_video_affine *out, int rank,
                          const int64_t *shape)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s.weight", prefix, name);
    VX_TRY(vx_component_tensor(c, full, VX_DTYPE_NONE, rank, shape, &out->weight));
    snprintf(full, sizeof full, "%s%s.bias", prefix, name);
    return vx_component_tensor(c, full, VX_DTYPE_NONE, 1, shape, &out->bias);
}

static vx_status bind_conv(vx_component *c, const char *prefix, const char *name, int64_t out, int64_t in, int64_t taps,
                           vx_video_affine *conv)
{
    return bind_one(c, prefix, name, conv, 5, (const int64_t[]){ out, in, taps, taps, taps });
}

static vx_status bind_level(vx_video_encoder *e, vx_component *c, int64_t level, int64_t in)
{
    const vx_video_encoder_config *g = &e->config;
    int64_t out = g->channels[level];
    char prefix[64];
    for (int64_t i = 0; i < g->blocks; i++, in = out) {
        vx_video_resnet *b = &e->block[level * g->blocks + i];
        snprintf(prefix, sizeof prefix, "encoder.down.%d.block.%d.", (int)level, (int)i);
        VX_TRY(bind_one(c, prefix, "norm1", &b->norm1, 1, &in));
        VX_TRY(bind_conv(c, prefix, "conv1", out, in, 3, &b->conv1));
        VX_TRY(bind_one(c, prefix, "norm2", &b->norm2, 1, &out));
        VX_TRY(bind_conv(c, prefix, "conv2", out, out, 3, &b->conv2));
        if (in != out) VX_TRY(bind_conv(c, prefix, "nin_shortcut", out, in, 1, &b->shortcut));
    }
    snprintf(prefix, sizeof prefix, "encoder.down.%d.", (int)level);
    return g->space_stride[level] == 2 ? bind_conv(c, prefix, "downsample.conv", out, out, 3, &e->down[level]) : vx_ok();
}

static vx_status bind(vx_video_encoder *e, vx_component *c)
{
    const vx_video_encoder_config *g = &e->config;
    int64_t in = e->width, moments = 2 * g->latent_channels;
    VX_TRY(bind_conv(c, "encoder.", "conv_in", in, VX_COLOURS, 3, &e->conv_in));
    e->block = vx_alloc_array((size_t)(g->levels * g->blocks), sizeof *e->block);
    VX_NEED_MEMORY(e->block, "the video encoder's blocks");
    for (int64_t i = 0; i < g->levels; in = g->channels[i], i++) VX_TRY(bind_level(e, c, i, in));
    VX_TRY(bind_one(c, "encoder.", "norm_out", &e->norm_out, 1, &in));
    VX_TRY(bind_conv(c, "encoder.", "conv_out", moments, in, 3, &e->conv_out));
    VX_TRY(bind_conv(c, "", "quant_conv", moments, moments, 1, &e->quant));
    // Statistics inside a file are the decoder's to compare.
    static const char *const others[] = { "decoder.", "post_quant_conv.", "latents_" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) vx_component_ignore(c, others[i]);
    return vx_component_finish(c);
}

static vx_status open_from(vx_video_encoder *e, vx_component *c)
{
    VX_TRY(vx_video_check_config(c));
    VX_TRY(check_ways(c));
    VX_TRY(read_counts(e, c));
    VX_TRY(read_widths(e, c));
    VX_TRY(read_strides(e, c));
    VX_TRY(read_geometry(e, c));
    return bind(e, c);
}

vx_status vx_video_encoder_open(vx_video_encoder **out, vx_component *component)
{
    *out = NULL;
    vx_video_encoder *e = vx_alloc_array(1, sizeof *e);
    VX_NEED_MEMORY(e, "the video encoder");
    e->component = component;
    vx_status s = open_from(e, component);
    if (s.code != VX_OK) {
        vx_video_encoder_close(&e);
        return vx_within(s, "video VAE");
    }
    *out = e;
    return vx_ok();
}

void vx_video_encoder_close(vx_video_encoder **encoder)
{
    if (!*encoder) return;
    vx_free((*encoder)->block);
    vx_free(*encoder);
    *encoder = NULL;
}

const vx_video_encoder_config *vx_video_encoder_config_of(const vx_video_encoder *encoder)
{
    return &encoder->config;
}
