// The decoder as the reference runs it eagerly: every operator rounds to the activation's format, the residual stream
// included, and the norms round before they multiply by their weight (docs/numerics.md, "Text encoder").
#include "text/language.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "text/language_config.h"
#include "text/rotary.h"

enum { NAME_BYTES = 96, DEEP_LAYERS = 3 }; // layers after which deep-stack features are added

typedef struct layer {
    vx_tensor input_norm, post_norm; // [hidden]
    vx_tensor q_norm, k_norm;        // [head_dim]
    vx_weight qkv;                   // columns: q of all heads, k, v
    vx_weight out;                   // o_proj
    vx_weight gate_up;               // columns: gate, up
    vx_weight down;
} layer;

struct vx_language {
    vx_component *component; // borrowed
    vx_language_config config;
    vx_weight embedding; // [vocabulary, hidden]: its only segment is the table
    layer layer[VX_LANGUAGE_LAYERS];
};

// ---- binding ----
static const char PREFIX[] = "model.language_model.";

static vx_status bind_vector(vx_component *c, int i, const char *name, int64_t n, vx_tensor *out)
{
    char full[NAME_BYTES];
    snprintf(full, sizeof full, "%slayers.%d.%s.weight", PREFIX, i, name);
    return vx_component_get(c, full, VX_DTYPE_NONE, out, n);
}

// Adds the rows of one linear to a weight that writes several side by side.
static vx_status bind_rows(vx_component *c, int i, const char *name, int64_t n, int64_t k, vx_weight *out)
{
    char full[NAME_BYTES];
    snprintf(full, sizeof full, "%slayers.%d.%s", PREFIX, i, name);
    return vx_component_rows(c, full, n, k, false, out);
}

static vx_status bind_layer(vx_component *c, const vx_language_config *g, int i, layer *out)
{
    const int64_t q = g->heads * g->head_dim, kv = g->kv_heads * g->head_dim;
    VX_TRY(bind_vector(c, i, "input_layernorm", g->hidden, &out->input_norm));
    VX_TRY(bind_rows(c, i, "self_attn.q_proj", q, g->hidden, &out->qkv));
    VX_TRY(bind_rows(c, i, "self_attn.k_proj", kv, g->hidden, &out->qkv));
    VX_TRY(bind_rows(c, i, "self_attn.v_proj", kv, g->hidden, &out->qkv));
    VX_TRY(bind_vector(c, i, "self_attn.q_norm", g->head_dim, &out->q_norm));
    VX_TRY(bind_vector(c, i, "self_attn.k_norm", g->head_dim, &out->k_norm));
    VX_TRY(bind_rows(c, i, "self_attn.o_proj", g->hidden, q, &out->out));
    VX_TRY(bind_vector(c, i, "post_attention_layernorm", g->hidden, &out->post_norm));
    VX_TRY(bind_rows(c, i, "mlp.gate_proj", g->intermediate, g->hidden, &out->gate_up));
    VX_TRY(bind_rows(c, i, "mlp.up_proj", g->intermediate, g->hidden, &out->gate_up));
    return bind_rows(c, i, "mlp.down_proj", g->hidden, g->intermediate, &out->down);
}

// What a checkpoint holds beside the 50 layers: the rest of the released model and the vision tower.
static void ignore_rest(vx_component *c, int64_t layers_in_file)
{
    char name[NAME_BYTES];
    for (int64_t i = VX_LANGUAGE_LAYERS; i < layers_in_file; i++) {
        snprintf(name, sizeof name, "%slayers.%" PRId64 ".", PREFIX, i);
        vx_component_ignore(c, name);
    }
    snprintf(name, sizeof name, "%snorm.", PREFIX);
    vx_component_ignore(c, name);
    vx_component_ignore(c, "lm_head.");
    vx_component_ignore(c, "model.visual.");
}

static vx_status bind(vx_language *l, vx_component *c)
{
    vx_language_config *g = &l->config;
    char name[NAME_BYTES];
    VX_TRY(vx_language_config_read(g, c));
    snprintf(name, sizeof name, "%sembed_tokens", PREFIX);
    VX_TRY(vx_component_linear(c, name, g->vocabulary, g->hidden, false, &l->embedding));
    for (int i = 0; i < VX_LANGUAGE_LAYERS; i++) VX_TRY(bind_layer(c, g, i, &l->layer[i]));
    ignore_rest(c, g->layers_in_file);
    return vx_component_finish(c);
}

vx_status vx_language_open(vx_language **out, vx_component *component)
{
    *out = NULL;
    vx_language *l = vx_alloc_array(1, sizeof *l);
    VX_NEED_MEMORY(l, "a language model");
    l->component = component;
    vx_status s = bind(l, component);
    if (s.code != VX_OK) vx_language_close(&l);
    *out = l;
    return s;
}

void vx_language_close(vx_language **language)
{
    vx_free(*language);
    *language = NULL;
}

const vx_language_config *vx_language_config_of(const vx_language *language)
{
    return &language->config;
}

// ---- the forward pass ----
typedef struct pass {
    const vx_language *l;
    vx_device *dev;
    vx_arena *arena;
    vx_dtype act;
    int64_t rows;
    vx_tensor h;        // [rows, hidden] the residual stream: the caller's output
    vx_tensor x;        // [rows, hidden] what a norm or a half layer gives
    vx_tensor cos, sin; // [rows, head_dim / 2]
    vx_tensor broken;   // [layers] i32: not 0 where the residual stream is not finite after the layer
} pass;

// Columns [begin, begin + heads*head_dim) as [rows, heads, head_dim].
static vx_tensor heads_of(vx_tensor t, int64_t begin, int64_t heads, int64_t head_dim)
{
    return vx_tensor_split(vx_tensor_slice(t, 1, begin, begin + heads * head_dim), 1, head_dim);
}

// h += attention(norm(h))
static vx_status attend(const pass *p, const layer *b)
{
    const vx_language_config *g = &p->l->config;
    const int64_t q_columns = g->heads * g->head_dim, kv_columns = g->kv_heads * g->head_dim;
    vx_tensor qkv = vx_arena_tensor(p->arena, p->act, p->rows, q_columns + 2 * kv_columns);
    vx_tensor context = vx_arena_tensor(p->arena, p->act, p->rows, q_columns);
    vx_tensor q = heads_of(qkv, 0, g->heads, g->head_dim);
    vx_tensor k = heads_of(qkv, q_columns, g->kv_heads, g->head_dim);
    vx_tensor v = heads_of(qkv, q_columns + kv_columns, g->kv_heads, g->head_dim);
    const vx_qk_norm_rope_params rope = { .q_weight = b->q_norm,
                                          .k_weight = b->k_norm,
                                          .eps = g->rms_eps,
                                          .rounding = VX_NORM_ROUND_TWICE,
                                          .cos = p->cos,
                                          .sin = p->sin };
    VX_TRY(vx_rms_norm(p->dev, p->x, p->h, b->input_norm, g->rms_eps, VX_NORM_ROUND_TWICE));
    VX_TRY(vx_linear(p->dev, qkv, p->x, &b->qkv));
    VX_TRY(vx_qk_norm_rope(p->dev, q, k, &rope));
    VX_TRY(vx_attention(p->dev, heads_of(context, 0, g->heads, g->head_dim), q, k, v, &(vx_attention_params){ .causal = true }));
    VX_TRY(vx_linear(p->dev, p->x, context, &b->out));
    return vx_add(p->dev, p->h, p->x);
}

// h += mlp(norm(h))
static vx_status feed_forward(const pass *p, const layer *b)
{
    const vx_language_config *g = &p->l->config;
    vx_tensor gate_up = vx_arena_tensor(p->arena, p->act, p->rows, 2 * g->intermediate);
    vx_tensor product = vx_arena_tensor(p->arena, p->act, p->rows, g->intermediate);
    VX_TRY(vx_rms_norm(p->dev, p->x, p->h, b->post_norm, g->rms_eps, VX_NORM_ROUND_TWICE));
    VX_TRY(vx_linear(p->dev, gate_up, p->x, &b->gate_up));
    VX_TRY(vx_swiglu(p->dev, product, gate_up, true));
    VX_TRY(vx_linear(p->dev, p->x, product, &b->down));
    return vx_add(p->dev, p->h, p->x);
}

static vx_tensor rows_of(const pass *p, const vx_language_features *f)
{
    return vx_tensor_slice(p->h, 0, f->row, f->row + f->features.shape[0]);
}

// Pads' embeddings give way to what the tower saw.
static vx_status place_features(const pass *p, const vx_language_run *run)
{
    for (int i = 0; i < run->feature_count; i++)
        VX_TRY(vx_copy(p->dev, rows_of(p, &run->features[i]), run->features[i].features));
    return vx_ok();
}

static vx_status add_deep(const pass *p, int i, const vx_language_run *run)
{
    if (i >= DEEP_LAYERS) return vx_ok();
    for (int k = 0; k < run->feature_count; k++) VX_TRY(vx_add(p->dev, rows_of(p, &run->features[k]), run->features[k].deep[i]));
    return vx_ok();
}

static vx_status run_layer(const pass *p, int i, const vx_language_run *run)
{
    const layer *b = &p->l->layer[i];
    const size_t mark = vx_arena_mark(p->arena);
    vx_status s = attend(p, b);
    vx_arena_reset(p->arena, mark);
    if (s.code == VX_OK) s = feed_forward(p, b);
    vx_arena_reset(p->arena, mark);
    VX_TRY(s);
    VX_TRY(add_deep(p, i, run));
    return vx_mark_not_finite(p->dev, p->broken, i, p->h);
}

// Files are far larger than what a layer computes: the next layer is read while this one works.
static void prefetch(const pass *p, int i)
{
    char name[NAME_BYTES];
    if (i >= VX_LANGUAGE_LAYERS || vx_device_is_plan(p->dev)) return;
    snprintf(name, sizeof name, "%slayers.%d.", PREFIX, i);
    vx_component_prefetch(p->l->component, p->dev, name);
}

static vx_status check_ids(const vx_language_config *g, const vx_language_run *run)
{
    for (int64_t i = 0; i < run->rows; i++)
        if (run->ids[i] < 0 || run->ids[i] >= g->vocabulary)
            return vx_fail(VX_ERR_CONFIG, "token %d of row %" PRId64 " is outside the text encoder's %" PRId64 " embeddings",
                           (int)run->ids[i], i, g->vocabulary);
    return vx_ok();
}

static vx_status prepare(pass *p, const vx_language_run *run)
{
    const vx_language_config *g = &p->l->config;
    vx_tensor ids = vx_arena_tensor(p->arena, VX_I32, p->rows);
    p->x = vx_arena_tensor(p->arena, p->act, p->rows, g->hidden);
    p->cos = vx_arena_tensor(p->arena, p->act, p->rows, g->head_dim / 2);
    p->sin = vx_arena_tensor(p->arena, p->act, p->rows, g->head_dim / 2);
    p->broken = vx_arena_tensor(p->arena, VX_I32, VX_LANGUAGE_LAYERS);
    if (!vx_device_is_plan(p->dev)) {
        VX_TRY(check_ids(g, run));
        static const int32_t none[VX_LANGUAGE_LAYERS];
        VX_TRY(vx_upload(p->dev, p->broken, none));
        VX_TRY(vx_upload(p->dev, ids, run->ids));
        VX_TRY(vx_rotary_upload(p->dev, p->cos, p->sin, g, run->positions));
    }
    const vx_weight_segment *table = &p->l->embedding.segment[0];
    VX_TRY(vx_embed(p->dev, p->h, table->weight, table->quant.kind == VX_QUANT_NONE ? NULL : &table->quant, ids));
    return place_features(p, run);
}

// Asked once at the end: a look after every layer would stop a device that works ahead.
static vx_status check_finite(const pass *p)
{
    int32_t broken[VX_LANGUAGE_LAYERS];
    if (vx_device_is_plan(p->dev)) return vx_ok();
    VX_TRY(vx_download(p->dev, broken, p->broken));
    for (int i = 0; i < VX_LANGUAGE_LAYERS; i++)
        if (broken[i]) return vx_fail(VX_ERR_NOT_FINITE, "text encoder layer %d gives NaN or infinity", i);
    return vx_ok();
}

static vx_status encode(pass *p, const vx_language_run *run)
{
    prefetch(p, 0);
    VX_TRY(prepare(p, run));
    for (int i = 0; i < VX_LANGUAGE_LAYERS; i++) {
        prefetch(p, i + 1);
        VX_TRY_IN(run_layer(p, i, run), "text encoder layer %d", i);
        if (run->layer_done) run->layer_done(run->user, i);
    }
    VX_TRY(vx_device_sync(p->dev)); // the work space goes back to the arena
    return check_finite(p);
}

static vx_status check_features(const vx_language_run *run, int64_t hidden, vx_dtype act)
{
    char shape[96];
    for (int i = 0; i < run->feature_count; i++) {
        const vx_language_features *f = &run->features[i];
        const int64_t count = f->features.shape[0];
        if (f->features.rank != 2 || f->row < 0 || count > run->rows || f->row > run->rows - count)
            return vx_fail(VX_ERR_SHAPE, "vx_language_encode: features %d are %s for rows %" PRId64 " and on of %" PRId64, i,
                           vx_shape_text(shape, f->features), f->row, run->rows);
        for (int k = 0; k <= DEEP_LAYERS; k++) {
            const vx_tensor t = k < DEEP_LAYERS ? f->deep[k] : f->features;
            if (t.rank != 2 || t.shape[0] != count || t.shape[1] != hidden)
                return vx_fail(VX_ERR_SHAPE, "vx_language_encode: features %d are %s, expected [%" PRId64 ",%" PRId64 "]", i,
                               vx_shape_text(shape, t), count, hidden);
            if (t.dtype != act)
                return vx_fail(VX_ERR_DTYPE, "vx_language_encode: features %d are %s, expected %s", i, vx_dtype_name(t.dtype),
                               vx_dtype_name(act));
        }
    }
    return vx_ok();
}

vx_status vx_language_encode(const vx_language *l, vx_device *dev, vx_arena *arena, vx_tensor out, const vx_language_run *run)
{
    char shape[96];
    if (out.rank != 2 || out.shape[0] != run->rows || out.shape[1] != l->config.hidden)
        return vx_fail(VX_ERR_SHAPE, "%s: out is %s, expected [%" PRId64 ",%" PRId64 "]", __func__, vx_shape_text(shape, out),
                       run->rows, l->config.hidden);
    if (out.dtype != VX_BF16 && out.dtype != VX_F32)
        return vx_fail(VX_ERR_DTYPE, "%s: out is %s, expected BF16 or F32", __func__, vx_dtype_name(out.dtype));
    VX_TRY(check_features(run, l->config.hidden, out.dtype));
    if (run->rows == 0) return vx_ok();
    const size_t mark = vx_arena_mark(arena);
    pass p = { .l = l, .dev = dev, .arena = arena, .act = out.dtype, .rows = run->rows, .h = out };
    vx_status s = encode(&p, run);
    vx_arena_reset(arena, mark);
    return s;
}
