// Single files carry no configuration: sizes are read off the tensors; the number of heads and the blocks of the deep-stack
// features, which tensors do not show, are as released (text_encoder/config.json of MiniMax-H3).
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "text/vision_inside.h"

enum { RELEASED_HEADS = 16, RELEASED_THETA = 10000, HEAD_DIM_STEP = 8, MAX_HEAD_DIM = 256 }; // what vx_attention takes
static const int64_t RELEASED_DEEP[VX_VISION_DEEP] = { 8, 16, 24 };

static vx_status shape_of(const vx_component *c, const char *name, int rank, int64_t shape[VX_MAX_RANK])
{
    int found;
    vx_component_shape(c, name, &found, shape);
    if (found == rank) return vx_ok();
    return vx_fail(found ? VX_ERR_TENSOR_SHAPE : VX_ERR_TENSOR_MISSING, "%s: '%s' %s", vx_component_path(c), name,
                   found ? "has another rank than a vision tower's" : "is missing from the vision tower");
}

static vx_status from_tensors(vx_vision_config *g, int64_t *positions, const vx_component *c)
{
    int64_t table[VX_MAX_RANK], mlp[VX_MAX_RANK], out[VX_MAX_RANK];
    VX_TRY(shape_of(c, "model.visual.pos_embed.weight", 2, table));
    VX_TRY(shape_of(c, "model.visual.blocks.0.mlp.linear_fc1.weight", 2, mlp));
    VX_TRY(shape_of(c, "model.visual.merger.linear_fc2.weight", 2, out));
    *positions = table[0];
    g->hidden = table[1];
    g->intermediate = mlp[0];
    g->out_hidden = out[0];
    g->heads = RELEASED_HEADS;
    g->patch = VX_VISION_PATCH;
    g->temporal_patch = VX_VISION_FRAMES;
    g->merge = VX_VISION_MERGE;
    memcpy(g->deep, RELEASED_DEEP, sizeof g->deep);
    return vx_component_layers(c, "model.visual.blocks.", ".norm1.weight", &g->depth);
}

static vx_status read_sizes(vx_vision_config *g, int64_t *positions, const vx_component *c)
{
    const int64_t patch = VX_VISION_PATCH, frames = VX_VISION_FRAMES, merge = VX_VISION_MERGE;
    VX_TRY(vx_config_int(c, "vision_config.hidden_size", NULL, NULL, &g->hidden));
    VX_TRY(vx_config_int(c, "vision_config.num_heads", NULL, NULL, &g->heads));
    VX_TRY(vx_config_int(c, "vision_config.depth", NULL, NULL, &g->depth));
    VX_TRY(vx_config_int(c, "vision_config.intermediate_size", NULL, NULL, &g->intermediate));
    VX_TRY(vx_config_int(c, "vision_config.out_hidden_size", NULL, NULL, &g->out_hidden));
    VX_TRY(vx_config_int(c, "vision_config.num_position_embeddings", NULL, NULL, positions));
    VX_TRY(vx_config_int(c, "vision_config.patch_size", NULL, &patch, &g->patch));
    VX_TRY(vx_config_int(c, "vision_config.temporal_patch_size", NULL, &frames, &g->temporal_patch));
    VX_TRY(vx_config_int(c, "vision_config.spatial_merge_size", NULL, &merge, &g->merge));
    return vx_config_ints(c, "vision_config.deepstack_visual_indexes", VX_VISION_DEEP, g->deep, NULL);
}

// Switches of the same family that would need other code: refused, never passed over.
static vx_status check_switches(const vx_component *c)
{
    const int64_t channels = 3;
    const double theta = RELEASED_THETA;
    int64_t found_channels;
    double found_theta;
    const char *act = json_string_value(json_object_get(json_object_get(vx_component_config(c), "vision_config"), "hidden_act"));
    if (act && strcmp(act, "gelu_pytorch_tanh") != 0)
        return vx_fail(VX_ERR_CONFIG, "%s: vision_config.hidden_act is '%s', expected 'gelu_pytorch_tanh'", vx_component_path(c),
                       act);
    VX_TRY(vx_config_int(c, "vision_config.in_channels", NULL, &channels, &found_channels));
    VX_TRY(vx_config_float(c, "vision_config.rope_parameters.rope_theta", NULL, &theta, &found_theta));
    if (found_channels == channels && found_theta == theta) return vx_ok();
    return vx_fail(VX_ERR_CONFIG, "%s: vision_config has in_channels %" PRId64 " and rope_theta %g, expected 3 and %d",
                   vx_component_path(c), found_channels, found_theta, RELEASED_THETA);
}

static vx_status check_sizes(const vx_vision_config *g, int64_t positions, const vx_component *c)
{
    const char *path = vx_component_path(c);
    if (g->patch != VX_VISION_PATCH || g->temporal_patch != VX_VISION_FRAMES || g->merge != VX_VISION_MERGE)
        return vx_fail(VX_ERR_CONFIG,
                       "%s: vision patches of %" PRId64 " pixels and %" PRId64 " frames, merged by %" PRId64
                       ", expected 16, 2 and 2",
                       path, g->patch, g->temporal_patch, g->merge);
    if (g->grid_side < 1 || g->grid_side * g->grid_side != positions)
        return vx_fail(VX_ERR_CONFIG, "%s: %" PRId64 " vision positions are no square", path, positions);
    if (g->hidden % g->heads || g->hidden / g->heads % HEAD_DIM_STEP || g->hidden / g->heads > MAX_HEAD_DIM)
        return vx_fail(VX_ERR_CONFIG,
                       "%s: %" PRId64 " vision heads share a width of %" PRId64 ", expected heads of a multiple of %d up to %d",
                       path, g->heads, g->hidden, HEAD_DIM_STEP, MAX_HEAD_DIM);
    for (int k = 0; k < VX_VISION_DEEP; k++)
        if (g->deep[k] >= g->depth || (k > 0 && g->deep[k] <= g->deep[k - 1]))
            return vx_fail(VX_ERR_CONFIG,
                           "%s: deep-stack features after vision blocks %" PRId64 ", %" PRId64 ", %" PRId64
                           ", expected increasing indices below %" PRId64,
                           path, g->deep[0], g->deep[1], g->deep[2], g->depth);
    return vx_ok();
}

vx_status vx_vision_config_read(vx_vision_config *out, const vx_component *c)
{
    int64_t positions;
    *out = (vx_vision_config){ 0 };
    if (vx_component_config(c)) {
        VX_TRY(check_switches(c));
        VX_TRY(read_sizes(out, &positions, c));
    } else {
        VX_TRY(from_tensors(out, &positions, c));
    }
    out->grid_side = (int64_t)sqrt((double)positions);
    const vx_status s = check_sizes(out, positions, c);
    if (vx_component_config(c)) return s;
    return vx_remedy(s, "put the text encoder's config.json beside the file: without it heads and deep-stack features are taken "
                        "as released");
}
