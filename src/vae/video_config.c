// What the two halves of the video VAE read from its configuration alike: numbers that are fixed, and tiles.
#include <string.h>

#include "vae/video_internal.h"

const float vx_video_rgb_mean[VX_COLOURS] = { 0.485f, 0.456f, 0.406f };
const float vx_video_rgb_std[VX_COLOURS] = { 0.229f, 0.224f, 0.225f };

enum { MAX_TILE = 1 << 16, MAX_AXIS = 1 << 18 };

// The official files fix these in code; a file that says otherwise describes another network.
vx_status vx_video_check_config(const vx_component *c)
{
    static const struct {
        const char *name, *other;
        int64_t value;
    } fixed[] = {
        { "vae_clip_length", "clip_length", VX_CLIP_LENGTH },
        { "vae_token_drop", "token_drop", VX_TOKEN_DROP },
        { "vae_ratio", NULL, VX_PATCH },
        { "vae_ratio_t", NULL, VX_PATCH_FRAMES },
        { "out_ch", "out_channels", VX_COLOURS },
    };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        int64_t found;
        VX_TRY(vx_config_int(c, fixed[i].name, fixed[i].other, &fixed[i].value, &found));
        if (found != fixed[i].value)
            return vx_fail(VX_ERR_CONFIG, "%s: %s is %lld, only %lld is known", vx_component_path(c), fixed[i].name,
                           (long long)found, (long long)fixed[i].value);
    }
    // Tiling is part of the picture (specification 0.2): 0 is out of the range of a count and refused there.
    static const char *const tiling[] = { "vae_encoder_tiling", "vae_decoder_tiling" };
    for (size_t i = 0; i < 2; i++) {
        int64_t on, released = 1;
        VX_TRY_IN(vx_config_int(c, tiling[i], NULL, &released, &on), "tiling cannot be switched off");
    }
    const json_t *config = vx_component_config(c);
    if (json_is_true(json_object_get(config, "causal_decoder")))
        return vx_fail(VX_ERR_CONFIG, "%s: causal_decoder is true, only a decoder with full attention is known",
                       vx_component_path(c));
    const char *norm = json_string_value(json_object_get(config, "pixel_norm_type"));
    if (norm && strcmp(norm, "imagenet") != 0)
        return vx_fail(VX_ERR_CONFIG, "%s: pixel_norm_type is '%s', only 'imagenet' is known", vx_component_path(c), norm);
    return vx_ok();
}

vx_status vx_video_shape_of(const vx_component *c, const char *name, int rank, int64_t shape[VX_MAX_RANK])
{
    int found = 0;
    vx_component_shape(c, name, &found, shape);
    if (found == 0) return vx_fail(VX_ERR_TENSOR_MISSING, "%s: '%s' is missing", vx_component_path(c), name);
    if (found != rank)
        return vx_fail(VX_ERR_TENSOR_SHAPE, "%s: '%s' has %d axes, expected %d", vx_component_path(c), name, found, rank);
    for (int i = 0; i < rank; i++)
        if (shape[i] < 1 || shape[i] > MAX_AXIS)
            return vx_fail(VX_ERR_TENSOR_SHAPE, "%s: axis %d of '%s' is %lld", vx_component_path(c), i, name,
                           (long long)shape[i]);
    return vx_ok();
}

vx_status vx_video_tile_size(const vx_component *c, int64_t *size, int64_t *overlap)
{
    const int64_t released_size = 256, released_overlap = 64;
    VX_TRY(vx_config_int(c, "vae_tile_size", NULL, &released_size, size));
    VX_TRY(vx_config_int(c, "vae_tile_overlap_min", NULL, &released_overlap, overlap));
    if (*size % VX_PATCH || *overlap % VX_PATCH || *overlap >= *size || *size > MAX_TILE)
        return vx_fail(VX_ERR_CONFIG,
                       "%s: tiles of %lld pixels with an overlap of %lld: both must be multiples of %d, the overlap smaller",
                       vx_component_path(c), (long long)*size, (long long)*overlap, VX_PATCH);
    return vx_ok();
}
