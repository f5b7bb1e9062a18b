// The tower as the reference runs it eagerly: every operator rounds to the activation's format, rotations once at the end, and
// the learned positions before they are added (docs/numerics.md, "Text encoder").
#include "text/vision.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "text/vision_inside.h"

enum {
    NAME_BYTES = 96,
    // Rows of patches and of the wide half of a block that exist at one time: the largest picture has 65,536, which would be
    // 564 MB of bf16 in the released tower's wide half. No bit depends on it.
    ROWS_AT_ONCE = 2048
};
static const float LAYER_NORM_EPS = 1e-6f;
static const char PREFIX[] = "model.visual.";

typedef struct norm {
    vx_tensor weight, bias;
} norm;

typedef struct merger {
    norm norm; // of a patch, or of a merged feature for the deep-stack features
    vx_weight fc1, fc2;
} merger;

typedef struct block {
    norm norm1, norm2;
    vx_weight qkv, proj, fc1, fc2;
} block;

struct vx_vision {
    vx_component *component; // borrowed
    vx_vision_config config;
    vx_weight patch_embed;
    vx_tensor positions; // [grid_side^2, hidden]
    block *blocks;       // [depth]
    merger merger, deep[VX_VISION_DEEP];
};

// ---- binding ----
static vx_status bind_norm(vx_component *c, const char *name, int64_t n, norm *out)
{
    char full[NAME_BYTES];
    snprintf(full, sizeof full, "%s%s.weight", PREFIX, name);
    VX_TRY(vx_component_get(c, full, VX_DTYPE_NONE, &out->weight, n));
    snprintf(full, sizeof full, "%s%s.bias", PREFIX, name);
    return vx_component_get(c, full, VX_DTYPE_NONE, &out->bias, n);
}

static vx_status bind_linear(vx_component *c, const char *name, const char *part, int64_t n, int64_t k, vx_weight *out)
{
    char full[NAME_BYTES];
    snprintf(full, sizeof full, "%s%s%s", PREFIX, name, part);
    return vx_component_linear(c, full, n, k, true, out);
}

// A convolution whose stride is its kernel is a product; the file keeps the kernel's five axes, or, as exporters to GGUF and to
// flat matrices do, the same numbers in fewer.
static vx_status bind_patch_embed(vx_component *c, int64_t hidden, vx_weight *out)
{
    static const char name[] = "model.visual.patch_embed.proj.weight";
    const int64_t kernel[] = { hidden, 3, VX_VISION_FRAMES, VX_VISION_PATCH, VX_VISION_PATCH };
    const int64_t folded[] = { hidden * 3, VX_VISION_FRAMES, VX_VISION_PATCH, VX_VISION_PATCH };
    const int64_t frame[] = { hidden, 3, VX_VISION_PATCH, VX_VISION_PATCH }, flat[] = { hidden, VX_VISION_PATCH_VALUES };
    vx_tensor weight, bias;
    int64_t shape[VX_MAX_RANK];
    int rank;
    vx_component_shape(c, name, &rank, shape);
    if (vx_component_has(c, "model.visual.patch_embed.proj.weight.1"))
        VX_TRY(vx_component_stack(c, name, "model.visual.patch_embed.proj.weight.1", 4, frame, 2, &weight));
    else if (rank == 2) VX_TRY(vx_component_tensor(c, name, VX_DTYPE_NONE, 2, flat, &weight));
    else if (rank == 4) VX_TRY(vx_component_tensor(c, name, VX_DTYPE_NONE, 4, folded, &weight));
    else VX_TRY(vx_component_tensor(c, name, VX_DTYPE_NONE, 5, kernel, &weight));
    VX_TRY(vx_component_get(c, "model.visual.patch_embed.proj.bias", VX_DTYPE_NONE, &bias, hidden));
    *out = (vx_weight){ .n = hidden, .k = VX_VISION_PATCH_VALUES, .segments = 1 };
    out->segment[0].weight = vx_tensor_reshape(weight, 2, flat);
    out->segment[0].bias = bias;
    return vx_ok();
}

static vx_status bind_block(vx_component *c, const vx_vision_config *g, int64_t i, block *out)
{
    char name[NAME_BYTES / 2], norm_name[NAME_BYTES / 2 + 8];
    snprintf(name, sizeof name, "blocks.%" PRId64 ".", i);
    snprintf(norm_name, sizeof norm_name, "%snorm1", name);
    VX_TRY(bind_norm(c, norm_name, g->hidden, &out->norm1));
    snprintf(norm_name, sizeof norm_name, "%snorm2", name);
    VX_TRY(bind_norm(c, norm_name, g->hidden, &out->norm2));
    VX_TRY(bind_linear(c, name, "attn.qkv", 3 * g->hidden, g->hidden, &out->qkv));
    VX_TRY(bind_linear(c, name, "attn.proj", g->hidden, g->hidden, &out->proj));
    VX_TRY(bind_linear(c, name, "mlp.linear_fc1", g->intermediate, g->hidden, &out->fc1));
    return bind_linear(c, name, "mlp.linear_fc2", g->hidden, g->intermediate, &out->fc2);
}

static vx_status bind_merger(vx_component *c, const vx_vision_config *g, const char *name, int64_t norm_width, merger *out)
{
    const int64_t merged = g->hidden * VX_VISION_UNIT;
    char norm_name[NAME_BYTES / 2];
    snprintf(norm_name, sizeof norm_name, "%snorm", name);
    VX_TRY(bind_norm(c, norm_name, norm_width, &out->norm));
    VX_TRY(bind_linear(c, name, "linear_fc1", merged, merged, &out->fc1));
    return bind_linear(c, name, "linear_fc2", g->out_hidden, merged, &out->fc2);
}

static vx_status bind(vx_vision *v, vx_component *c)
{
    vx_vision_config *g = &v->config;
    VX_TRY(vx_vision_config_read(g, c));
    v->blocks = vx_alloc_array((size_t)g->depth, sizeof *v->blocks);
    VX_NEED_MEMORY(v->blocks, "a vision tower");
    VX_TRY(bind_patch_embed(c, g->hidden, &v->patch_embed));
    VX_TRY(vx_component_get(c, "model.visual.pos_embed.weight", VX_DTYPE_NONE, &v->positions, g->grid_side * g->grid_side,
                            g->hidden));
    for (int64_t i = 0; i < g->depth; i++) VX_TRY(bind_block(c, g, i, &v->blocks[i]));
    VX_TRY(bind_merger(c, g, "merger.", g->hidden, &v->merger));
    for (int k = 0; k < VX_VISION_DEEP; k++) {
        char name[NAME_BYTES / 2];
        snprintf(name, sizeof name, "deepstack_merger_list.%d.", k);
        VX_TRY(bind_merger(c, g, name, g->hidden * VX_VISION_UNIT, &v->deep[k]));
    }
    vx_component_ignore(c, "model.language_model.");
    vx_component_ignore(c, "lm_head.");
    return vx_component_finish(c);
}

// Text encoders are published without the tower too; all of one has positions.
static vx_status check_tower(const vx_component *c)
{
    if (vx_component_has(c, "model.visual.pos_embed.weight")) return vx_ok();
    return vx_fail_remedy(
        VX_ERR_MODEL_COMPONENT,
        "use a text encoder with its vision tower (tensors named visual.*), or give the tower's own file with --vision",
        "%s: the text encoder has no vision tower, which pictures and videos need", vx_component_path(c));
}

vx_status vx_vision_open(vx_vision **out, vx_component *component)
{
    *out = NULL;
    VX_TRY(check_tower(component));
    vx_vision *v = vx_alloc_array(1, sizeof *v);
    VX_NEED_MEMORY(v, "a vision tower");
    v->component = component;
    vx_status s = bind(v, component);
    if (s.code != VX_OK) vx_vision_close(&v);
    *out = v;
    return s;
}

void vx_vision_close(vx_vision **vision)
{
    if (*vision) vx_free((*vision)->blocks);
    vx_free(*vision);
    *vision = NULL;
}

const vx_vision_config *vx_vision_config_of(const vx_vision *vision)
{
    return &vision->config;
}

// ---- the forward pass ----
typedef struct pass {
    const vx_vision *v;
    vx_device *dev;
    vx_arena *arena;
    vx_dtype act;
    int64_t grid_height, grid_width, patches;
    const uint8_t *first, *second;
    int64_t width;      // pixels
    vx_tensor h;        // [patches, hidden] the residual stream
    vx_tensor x;        // [patches, hidden] what a norm or a half block gives
    vx_tensor cos, sin; // [patches, head_dim / 2] f32
    vx_tensor broken;   // [depth] i32: not 0 where the residual stream is not finite after the block
} pass;

static vx_status embed_patches(const pass *p)
{
    const size_t mark = vx_arena_mark(p->arena);
    for (int64_t begin = 0; begin < p->patches; begin += ROWS_AT_ONCE) {
        const int64_t end = begin + ROWS_AT_ONCE < p->patches ? begin + ROWS_AT_ONCE : p->patches;
        vx_tensor values = vx_arena_tensor(p->arena, p->act, end - begin, VX_VISION_PATCH_VALUES);
        if (!vx_device_is_plan(p->dev)) VX_TRY(vx_vision_upload_patches(p->dev, values, begin, p->first, p->second, p->width));
        VX_TRY(vx_linear(p->dev, vx_tensor_slice(p->h, 0, begin, end), values, &p->v->patch_embed));
        VX_TRY(vx_device_sync(p->dev)); // the next patches go to the same place
        vx_arena_reset(p->arena, mark);
    }
    return vx_ok();
}

static vx_status add_positions(const pass *p)
{
    const size_t mark = vx_arena_mark(p->arena);
    vx_tensor ids = vx_arena_tensor(p->arena, VX_I32, p->patches, 4);
    vx_tensor weights = vx_arena_tensor(p->arena, VX_F32, p->patches, 4);
    if (!vx_device_is_plan(p->dev))
        VX_TRY(vx_vision_upload_positions(p->dev, ids, weights, p->v->config.grid_side, p->grid_height, p->grid_width));
    VX_TRY(vx_embed_blend(p->dev, p->x, p->v->positions, ids, weights));
    vx_arena_reset(p->arena, mark);
    return vx_add(p->dev, p->h, p->x);
}

// Columns [part * hidden, (part + 1) * hidden) as [patches, heads, head_dim].
static vx_tensor heads_of(vx_tensor t, int part, const vx_vision_config *g)
{
    return vx_tensor_split(vx_tensor_slice(t, 1, part * g->hidden, (part + 1) * g->hidden), 1, g->hidden / g->heads);
}

// h += attention(norm(h)), every patch of the block with every other
static vx_status attend(const pass *p, const block *b)
{
    const vx_vision_config *g = &p->v->config;
    vx_tensor qkv = vx_arena_tensor(p->arena, p->act, p->patches, 3 * g->hidden);
    vx_tensor context = vx_arena_tensor(p->arena, p->act, p->patches, g->hidden);
    vx_tensor q = heads_of(qkv, 0, g), k = heads_of(qkv, 1, g), v = heads_of(qkv, 2, g);
    const vx_qk_norm_rope_params rope = { .skip_norm = true, .rope_once = true, .cos = p->cos, .sin = p->sin };
    VX_TRY(vx_layer_norm(p->dev, p->x, p->h, b->norm1.weight, b->norm1.bias, LAYER_NORM_EPS));
    VX_TRY(vx_linear(p->dev, qkv, p->x, &b->qkv));
    VX_TRY(vx_qk_norm_rope(p->dev, q, k, &rope));
    VX_TRY(vx_attention(p->dev, heads_of(context, 0, g), q, k, v, &(vx_attention_params){ 0 }));
    VX_TRY(vx_linear(p->dev, p->x, context, &b->proj));
    return vx_add(p->dev, p->h, p->x);
}

// h += mlp(norm(h))
static vx_status feed_forward(const pass *p, const block *b)
{
    const vx_vision_config *g = &p->v->config;
    VX_TRY(vx_layer_norm(p->dev, p->x, p->h, b->norm2.weight, b->norm2.bias, LAYER_NORM_EPS));
    const int64_t most = p->patches < ROWS_AT_ONCE ? p->patches : ROWS_AT_ONCE;
    vx_tensor wide_rows = vx_arena_tensor(p->arena, p->act, most, g->intermediate);
    for (int64_t begin = 0; begin < p->patches; begin += most) {
        const int64_t end = begin + most < p->patches ? begin + most : p->patches;
        vx_tensor x = vx_tensor_slice(p->x, 0, begin, end), wide = vx_tensor_slice(wide_rows, 0, 0, end - begin);
        VX_TRY(vx_linear(p->dev, wide, x, &b->fc1));
        VX_TRY(vx_gelu(p->dev, wide, wide, true));
        VX_TRY(vx_linear(p->dev, x, wide, &b->fc2));
    }
    return vx_add(p->dev, p->h, p->x);
}

static vx_tensor merged(vx_tensor t)
{
    return vx_tensor_reshape(t, 2, (const int64_t[]){ t.shape[0] / VX_VISION_UNIT, t.shape[1] * VX_VISION_UNIT });
}

// The main features are normalised patch by patch, the deep-stack ones after merging.
static vx_status merge(const pass *p, vx_tensor out, const merger *m, bool patch_norm)
{
    vx_tensor x = merged(p->x);
    vx_tensor wide = vx_arena_tensor(p->arena, p->act, x.shape[0], x.shape[1]);
    VX_TRY(vx_layer_norm(p->dev, patch_norm ? p->x : x, patch_norm ? p->h : merged(p->h), m->norm.weight, m->norm.bias,
                         LAYER_NORM_EPS));
    VX_TRY(vx_linear(p->dev, wide, x, &m->fc1));
    VX_TRY(vx_gelu(p->dev, wide, wide, false));
    return vx_linear(p->dev, out, wide, &m->fc2);
}

static vx_status run_block(const pass *p, int64_t i, const vx_tensor deep[VX_VISION_DEEP])
{
    const vx_vision *v = p->v;
    const size_t mark = vx_arena_mark(p->arena);
    VX_TRY(attend(p, &v->blocks[i]));
    vx_arena_reset(p->arena, mark);
    VX_TRY(feed_forward(p, &v->blocks[i]));
    vx_arena_reset(p->arena, mark);
    for (int k = 0; k < VX_VISION_DEEP; k++)
        if (v->config.deep[k] == i) VX_TRY(merge(p, deep[k], &v->deep[k], false));
    vx_arena_reset(p->arena, mark);
    return vx_mark_not_finite(p->dev, p->broken, i, p->h);
}

static void prefetch(const pass *p, int64_t i)
{
    char name[NAME_BYTES];
    if (i >= p->v->config.depth || vx_device_is_plan(p->dev)) return;
    snprintf(name, sizeof name, "%sblocks.%" PRId64 ".", PREFIX, i);
    vx_component_prefetch(p->v->component, p->dev, name);
}

static vx_status prepare(pass *p)
{
    const vx_vision_config *g = &p->v->config;
    const int64_t pairs = g->hidden / g->heads / 2;
    p->h = vx_arena_tensor(p->arena, p->act, p->patches, g->hidden);
    p->x = vx_arena_tensor(p->arena, p->act, p->patches, g->hidden);
    p->cos = vx_arena_tensor(p->arena, VX_F32, p->patches, pairs);
    p->sin = vx_arena_tensor(p->arena, VX_F32, p->patches, pairs);
    p->broken = vx_arena_tensor(p->arena, VX_I32, g->depth);
    if (!vx_device_is_plan(p->dev)) {
        int32_t *none = vx_alloc_array((size_t)g->depth, sizeof *none);
        VX_NEED_MEMORY(none, "flags of vision blocks");
        vx_status s = vx_upload(p->dev, p->broken, none);
        vx_free(none);
        VX_TRY(s);
        VX_TRY(vx_vision_upload_rotary(p->dev, p->cos, p->sin, p->grid_width));
    }
    VX_TRY(embed_patches(p));
    return add_positions(p);
}

static vx_status check_finite(const pass *p)
{
    const int64_t depth = p->v->config.depth;
    if (vx_device_is_plan(p->dev)) return vx_ok();
    int32_t *broken = vx_alloc_array((size_t)depth, sizeof *broken);
    VX_NEED_MEMORY(broken, "flags of vision blocks");
    vx_status s = vx_download(p->dev, broken, p->broken);
    for (int64_t i = 0; i < depth && s.code == VX_OK; i++)
        if (broken[i]) s = vx_fail(VX_ERR_NOT_FINITE, "vision block %" PRId64 " gives NaN or infinity", i);
    vx_free(broken);
    return s;
}

static vx_status encode(pass *p, vx_tensor features, const vx_tensor deep[VX_VISION_DEEP])
{
    prefetch(p, 0);
    VX_TRY(prepare(p));
    for (int64_t i = 0; i < p->v->config.depth; i++) {
        prefetch(p, i + 1);
        VX_TRY_IN(run_block(p, i, deep), "vision block %" PRId64, i);
    }
    VX_TRY(merge(p, features, &p->v->merger, true));
    VX_TRY(vx_device_sync(p->dev)); // the work space goes back to the arena
    return check_finite(p);
}

static vx_status check_sides(int64_t height, int64_t width)
{
    const int64_t sides[2] = { height, width };
    for (int i = 0; i < 2; i++)
        if (sides[i] < VX_VISION_SIDE || sides[i] > VX_VISION_MAX_SIDE || sides[i] % VX_VISION_SIDE)
            return vx_fail(VX_ERR_SHAPE,
                           "vx_vision_encode: a picture of %" PRId64 " rows and %" PRId64
                           " columns, expected multiples of %d up to %d",
                           height, width, VX_VISION_SIDE, VX_VISION_MAX_SIDE);
    return vx_ok();
}

static vx_status check_output(vx_tensor t, const char *name, int64_t rows, int64_t columns, vx_dtype act)
{
    char shape[96];
    if (t.rank != 2 || t.shape[0] != rows || t.shape[1] != columns)
        return vx_fail(VX_ERR_SHAPE, "vx_vision_encode: %s is %s, expected [%" PRId64 ",%" PRId64 "]", name,
                       vx_shape_text(shape, t), rows, columns);
    if (t.dtype != act || (act != VX_BF16 && act != VX_F32))
        return vx_fail(VX_ERR_DTYPE, "vx_vision_encode: %s is %s, expected %s", name, vx_dtype_name(t.dtype),
                       act == VX_BF16 || act == VX_F32 ? vx_dtype_name(act) : "BF16 or F32");
    return vx_ok();
}

vx_status vx_vision_encode(const vx_vision *v, vx_device *dev, vx_arena *arena, vx_tensor features, const vx_tensor deep[3],
                           const uint8_t *first, const uint8_t *second, int64_t height, int64_t width)
{
    VX_TRY(check_sides(height, width));
    pass p = { .v = v,
               .dev = dev,
               .arena = arena,
               .act = features.dtype,
               .grid_height = height / VX_VISION_PATCH,
               .grid_width = width / VX_VISION_PATCH,
               .patches = height / VX_VISION_PATCH * (width / VX_VISION_PATCH),
               .first = first,
               .second = second ? second : first,
               .width = width };
    VX_TRY(check_output(features, "features", p.patches / VX_VISION_UNIT, v->config.out_hidden, p.act));
    for (int k = 0; k < VX_VISION_DEEP; k++)
        VX_TRY(check_output(deep[k], "deep", p.patches / VX_VISION_UNIT, v->config.out_hidden, p.act));
    const size_t mark = vx_arena_mark(arena);
    vx_status s = encode(&p, features, deep);
    vx_arena_reset(arena, mark);
    return s;
}
