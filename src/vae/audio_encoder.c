// Opening the audio encoder: sizes from the tensors, checked against the configuration where there is one, and the tensors
// (audio VAE specification, A4, A5, A7).
#include "vae/audio_encoder_internal.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "vae/statistics.h"

enum { MAX_CHANNELS = 1 << 16, MAX_RATE = 128, MAX_HEAD_DIM = 256, NAME_SIZE = 96 };
static const int64_t released_heads = 8, released_rate = 32000;

// The configuration's rates say how many stages there must be; without it every stage that is there counts.
static vx_status count_stages(vx_audio_encoder_config *g, const vx_component *c)
{
    char name[NAME_SIZE];
    g->stages = (int64_t)json_array_size(json_object_get(vx_component_config(c), "encoder_rates"));
    for (bool more = g->stages == 0; more && g->stages <= VX_ENCODER_STAGES; g->stages += more) {
        snprintf(name, sizeof name, "encoder.block.%d.block.4.bias", (int)g->stages + 1);
        more = vx_component_has(c, name);
    }
    if (g->stages == 0)
        return vx_fail(VX_ERR_TENSOR_MISSING, "%s: 'encoder.block.1.block.4.bias' is missing", vx_component_path(c));
    if (g->stages > VX_ENCODER_STAGES)
        return vx_fail(VX_ERR_CONFIG, "%s: %lld encoder stages, at most %d are known", vx_component_path(c), (long long)g->stages,
                       VX_ENCODER_STAGES);
    return vx_ok();
}

static vx_status weight_shape(const vx_component *c, const char *name, int64_t shape[VX_MAX_RANK])
{
    int rank;
    vx_audio_weight_shape(c, name, &rank, shape);
    if (rank == 3 && shape[0] > 0 && shape[1] > 0 && shape[2] > 0) return vx_ok();
    if (rank == 0) return vx_fail(VX_ERR_TENSOR_MISSING, "%s: '%s.weight_v' is missing", vx_component_path(c), name);
    return vx_fail(VX_ERR_TENSOR_SHAPE, "%s: the weight of '%s' must be [out, in, taps]", vx_component_path(c), name);
}

static vx_status read_widths(vx_audio_encoder *e, const vx_component *c)
{
    vx_audio_encoder_config *g = &e->config;
    char name[NAME_SIZE];
    int rank = 0;
    int64_t first[VX_MAX_RANK], last[VX_MAX_RANK], mean[VX_MAX_RANK], w0[VX_MAX_RANK] = { 0 };
    VX_TRY(weight_shape(c, "encoder.block.0", first));
    VX_TRY(count_stages(g, c));
    snprintf(name, sizeof name, "encoder.block.%d", (int)g->stages + 2);
    VX_TRY(weight_shape(c, name, last));
    vx_component_shape(c, "pre_block.mlp.w0.weight", &rank, w0);
    e->ffn = rank ? w0[0] : 1; // an absent one is missed when it is bound
    if (!vx_component_has(c, "mean_proj.weight"))
        return vx_fail(VX_ERR_TENSOR_MISSING, "%s: 'mean_proj.weight' is missing", vx_component_path(c));
    VX_TRY(weight_shape(c, "mean_proj", mean));
    VX_TRY(vx_config_int(c, "latent_channels", "vae_latent_channels", &mean[0], &g->latent_channels));
    VX_TRY(vx_config_int(c, "encoder_dim", NULL, &first[0], &g->encoder_dim));
    VX_TRY(vx_config_int(c, "latent_dim", NULL, &last[0], &g->latent_dim));
    VX_TRY(vx_config_int(c, "num_attention_heads", NULL, &released_heads, &g->heads));
    VX_TRY(vx_config_int(c, "sample_rate", "sampling_rate", &released_rate, &g->sample_rate));
    if (g->latent_channels > VX_MAX_LATENT_CHANNELS || g->latent_dim > MAX_CHANNELS || e->ffn > MAX_CHANNELS ||
        g->encoder_dim > MAX_CHANNELS >> g->stages)
        return vx_fail(VX_ERR_CONFIG, "%s: %lld latent channels, widths %lld, %lld and %lld: too large", vx_component_path(c),
                       (long long)g->latent_channels, (long long)g->encoder_dim, (long long)g->latent_dim, (long long)e->ffn);
    int64_t head_dim = g->latent_dim / g->heads;
    if (g->latent_dim % g->heads || head_dim % 8 || head_dim > MAX_HEAD_DIM || head_dim == 0)
        return vx_fail(VX_ERR_CONFIG, "%s: latent_dim %lld in %lld heads: a head's size must be a multiple of 8 up to %d",
                       vx_component_path(c), (long long)g->latent_dim, (long long)g->heads, MAX_HEAD_DIM);
    return vx_ok();
}

// A stage's convolution has two taps for each sample that it drops.
static vx_status read_rates(vx_audio_encoder *e, const vx_component *c)
{
    vx_audio_encoder_config *g = &e->config;
    bool found;
    VX_TRY(vx_audio_ints(c, "encoder_rates", g->stages, MAX_RATE, g->rate, &found));
    g->hop = 1;
    for (int64_t i = 0; i < g->stages; i++) {
        char name[NAME_SIZE];
        int64_t shape[VX_MAX_RANK];
        snprintf(name, sizeof name, "encoder.block.%d.block.4", (int)i + 1);
        if (!found) {
            VX_TRY(weight_shape(c, name, shape));
            g->rate[i] = shape[2] / 2;
        }
        // A rate of 1 would make a clip longer.
        if (g->rate[i] < 2 || g->rate[i] > MAX_RATE || g->hop * g->rate[i] > MAX_CHANNELS)
            return vx_fail(VX_ERR_CONFIG, "%s: encoder_rates[%d] is %lld, expected 2..%d, all of them at most %d",
                           vx_component_path(c), (int)i, (long long)g->rate[i], MAX_RATE, MAX_CHANNELS);
        g->hop *= g->rate[i];
        e->stage[i] = (vx_audio_encoder_stage){ .rate = g->rate[i], .channels = g->encoder_dim << i };
    }
    return vx_ok();
}

// Stored as [1, channels, 1].
static vx_status get_alpha(vx_audio_encoder *e, const char *name, int64_t channels, vx_tensor *out)
{
    vx_tensor t;
    VX_TRY(vx_component_get(e->weights.component, name, VX_DTYPE_NONE, &t, 1, channels, 1));
    return vx_audio_widen(&e->weights, name, vx_tensor_reshape(t, 1, &channels), out);
}

static vx_status bind_stage(vx_audio_encoder *e, int64_t i)
{
    vx_audio_encoder_stage *s = &e->stage[i];
    int64_t c = s->channels;
    char name[NAME_SIZE];
#define NAME(...) (snprintf(name, sizeof name, __VA_ARGS__), name)
    for (int u = 0; u < VX_ENCODER_UNITS; u++)
        for (int k = 0; k < 2; k++) {
            VX_TRY(get_alpha(e, NAME("encoder.block.%d.block.%d.block.%d.alpha", (int)i + 1, u, 2 * k), c, &s->unit[u].alpha[k]));
            VX_TRY(vx_audio_get_conv(&e->weights, NAME("encoder.block.%d.block.%d.block.%d", (int)i + 1, u, 2 * k + 1), c, c,
                                     k ? 1 : VX_UNIT_KERNEL, c, &s->unit[u].conv[k]));
        }
    VX_TRY(get_alpha(e, NAME("encoder.block.%d.block.3.alpha", (int)i + 1), c, &s->alpha));
    return vx_audio_get_conv(&e->weights, NAME("encoder.block.%d.block.4", (int)i + 1), 2 * c, c, 2 * s->rate, 2 * c, &s->down);
#undef NAME
}

static vx_status bind_convolutions(vx_audio_encoder *e)
{
    const vx_audio_encoder_config *g = &e->config;
    int64_t widest = g->encoder_dim << g->stages;
    char name[NAME_SIZE];
    VX_TRY(vx_audio_get_conv(&e->weights, "encoder.block.0", g->encoder_dim, 1, VX_UNIT_KERNEL, g->encoder_dim, &e->first));
    for (int64_t i = 0; i < g->stages; i++) VX_TRY(bind_stage(e, i));
    snprintf(name, sizeof name, "encoder.block.%d.alpha", (int)g->stages + 1);
    VX_TRY(get_alpha(e, name, widest, &e->alpha));
    snprintf(name, sizeof name, "encoder.block.%d", (int)g->stages + 2);
    return vx_audio_get_conv(&e->weights, name, g->latent_dim, widest, VX_LAST_KERNEL, g->latent_dim, &e->last);
}

static vx_status get_norm(vx_audio_encoder *e, const char *name, int64_t n, vx_audio_norm *norm)
{
    char full[NAME_SIZE];
    snprintf(full, sizeof full, "pre_block.%s.weight", name);
    VX_TRY(vx_component_get(e->weights.component, full, VX_DTYPE_NONE, &norm->weight, n));
    snprintf(full, sizeof full, "pre_block.%s.bias", name);
    return vx_component_get(e->weights.component, full, VX_DTYPE_NONE, &norm->bias, n);
}

// One matrix, and a bias in three parts: queries', keys' (zeros that are stored) and values'.
static vx_status bind_qkv(vx_audio_encoder *e)
{
    static const char *const bias[] = { "pre_block.attn.q_bias", "pre_block.attn.zero_k_bias", "pre_block.attn.v_bias" };
    int64_t dim = e->config.latent_dim;
    vx_tensor weight;
    VX_TRY(vx_component_get(e->weights.component, "pre_block.attn.qkv.weight", VX_DTYPE_NONE, &weight, 3 * dim, dim));
    e->qkv = (vx_weight){ .n = 3 * dim, .k = dim, .segments = 3 };
    for (int i = 0; i < 3; i++) {
        vx_weight_segment *s = &e->qkv.segment[i];
        VX_TRY(vx_component_get(e->weights.component, bias[i], VX_DTYPE_NONE, &s->bias, dim));
        s->weight = vx_tensor_slice(weight, 0, i * dim, (i + 1) * dim);
        s->column = i * dim;
    }
    return vx_ok();
}

// The mean over the heads and the adaptive average pooling of what is left, head_dim to latent_channels, are one product
// with a constant matrix: channel c averages elements floor(c*d/n) to ceil((c+1)*d/n) - 1 of every head (A5).
static vx_status make_pooling(vx_audio_encoder *e)
{
    const vx_audio_encoder_config *g = &e->config;
    int64_t n = g->latent_channels, d = g->latent_dim / g->heads;
    e->pool = vx_alloc_array((size_t)(n * g->latent_dim), sizeof *e->pool);
    VX_NEED_MEMORY(e->pool, "the audio encoder's pooling");
    for (int64_t c = 0; c < n; c++) {
        int64_t begin = c * d / n, end = vx_ceil_div((c + 1) * d, n);
        for (int64_t h = 0; h < g->heads; h++)
            for (int64_t i = begin; i < end; i++)
                e->pool[c * g->latent_dim + h * d + i] = 1.0f / (float)(g->heads * (end - begin));
    }
    e->pooling = (vx_weight){ .n = n, .k = g->latent_dim, .segments = 1 };
    return vx_audio_make_later(&e->weights, vx_tensor_of(e->pool, VX_F32, n, g->latent_dim), (vx_tensor){ 0 },
                               &e->pooling.segment[0].weight);
}

static vx_status bind_block(vx_audio_encoder *e, vx_component *c)
{
    const vx_audio_encoder_config *g = &e->config;
    int64_t n = g->latent_channels;
    VX_TRY(get_norm(e, "norm1", g->latent_dim, &e->norm1));
    VX_TRY(bind_qkv(e));
    VX_TRY(make_pooling(e));
    VX_TRY(vx_component_linear(c, "pre_block.attn.proj", n, n, true, &e->attention_out));
    VX_TRY(get_norm(e, "norm3", g->latent_dim, &e->norm3));
    VX_TRY(vx_component_linear(c, "pre_block.proj", n, g->latent_dim, true, &e->proj));
    VX_TRY(get_norm(e, "norm2", n, &e->norm2));
    VX_TRY(get_norm(e, "mlp.norm", n, &e->mlp_norm));
    VX_TRY(vx_component_linear(c, "pre_block.mlp.w0", e->ffn, n, true, &e->gate));
    VX_TRY(vx_component_linear(c, "pre_block.mlp.w1", e->ffn, n, true, &e->value));
    VX_TRY(vx_component_linear(c, "pre_block.mlp.w2", n, e->ffn, true, &e->down));
    vx_tensor weight, bias; // a convolution of one sample
    VX_TRY(vx_component_get(c, "mean_proj.weight", VX_DTYPE_NONE, &weight, n, n, 1));
    VX_TRY(vx_component_get(c, "mean_proj.bias", VX_DTYPE_NONE, &bias, n));
    weight = vx_tensor_reshape(weight, 2, (const int64_t[]){ n, n });
    e->mean = (vx_weight){ .n = n, .k = n, .segments = 1, .segment = { { .weight = weight, .bias = bias } } };
    return vx_ok();
}

static vx_status bind_from(vx_audio_encoder *e, vx_component *c)
{
    VX_TRY(read_widths(e, c));
    VX_TRY(read_rates(e, c));
    e->context = vx_audio_encoder_context(&e->config);
    VX_TRY(vx_audio_statistics(c, e->config.latent_channels, e->config.latents_mean, e->config.latents_std));
    VX_TRY(bind_convolutions(e));
    VX_TRY(bind_block(e, c));
    // The posterior's deviation is never used (A1).
    static const char *const others[] = { "decoder.", "dec_in_proj.", "logs_proj." };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) vx_component_ignore(c, others[i]);
    return vx_component_finish(c);
}

vx_status vx_audio_encoder_bind(vx_audio_encoder **out, vx_component *component)
{
    *out = NULL;
    vx_audio_encoder *e = vx_alloc_array(1, sizeof *e);
    VX_NEED_MEMORY(e, "the audio encoder");
    e->weights.component = component;
    vx_status s = bind_from(e, component);
    if (s.code != VX_OK) {
        vx_audio_encoder_close(&e);
        return vx_within(s, "audio VAE");
    }
    *out = e;
    return vx_ok();
}

vx_status vx_audio_encoder_fold(vx_audio_encoder *encoder, vx_device *dev)
{
    return vx_audio_weights_make(&encoder->weights, dev);
}

vx_status vx_audio_encoder_fold_bytes(const vx_audio_encoder *encoder, vx_device *dev, size_t *kept, size_t *passing)
{
    return vx_audio_weights_bytes(&encoder->weights, dev, kept, passing);
}

vx_status vx_audio_encoder_open(vx_audio_encoder **out, vx_component *component, vx_device *dev)
{
    VX_TRY(vx_audio_encoder_bind(out, component));
    vx_status s = vx_audio_encoder_fold(*out, dev);
    if (s.code == VX_OK) return s;
    vx_audio_encoder_close(out);
    return vx_within(s, "audio VAE");
}

void vx_audio_encoder_close(vx_audio_encoder **encoder)
{
    if (!*encoder) return;
    vx_audio_weights_free(&(*encoder)->weights);
    vx_free((*encoder)->pool);
    vx_free(*encoder);
    *encoder = NULL;
}

const vx_audio_encoder_config *vx_audio_encoder_config_of(const vx_audio_encoder *encoder)
{
    return &encoder->config;
}
