// Small VAEs in a scratch folder, opened as a user's would be. Their weights come from the formulas of
// tools/make_vae_vectors.py, which made the reference outputs in tests/data/vae.safetensors.
#ifndef VX_TEST_VAE_SMALL_MODEL_H
#define VX_TEST_VAE_SMALL_MODEL_H

#include "rig.h"

#include <ftw.h>
#include <unistd.h>

enum { SMALL_TENSORS = 512, SMALL_NAME = 96 };

typedef struct small_model {
    char folder[128];
    int count;
    vx_safetensors_tensor tensor[SMALL_TENSORS];
    char name[SMALL_TENSORS][SMALL_NAME];
    vx_component *component;
} small_model;

// count numbers in -1..1: SplitMix64 over a counter, from the FNV-1a hash of the name.
static inline void small_numbers(const char *name, float *out, int64_t count)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *c = name; *c; c++) hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
    for (int64_t i = 0; i < count; i++) {
        uint64_t z = hash + (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        out[i] = (float)(z >> 40) * 0x1p-23f - 1.0f;
    }
}

static inline bool ends(const char *name, const char *with)
{
    size_t n = strlen(name), k = strlen(with);
    return n >= k && strcmp(name + n - k, with) == 0;
}

static inline void small_rule(const char *name, int rank, const int64_t *shape, double *offset, double *scale)
{
    double row = 1.0;
    for (int i = 1; i < rank; i++) row *= (double)shape[i];
    *offset = 0.0;
    *scale = sqrt(3.0 / row);
    if (ends(name, ".bias") || ends(name, ".beta")) *scale = 0.1;
    else if (ends(name, ".alpha")) *scale = 0.5;
    else if (ends(name, ".scale1") || ends(name, ".scale2")) *offset = 0.5, *scale = 0.3;
    else if (strstr(name, "norm")) *offset = 1.0, *scale = 0.2;
    else if (strcmp(name, "decoder.conv_post.weight_g") == 0) *offset = 0.1, *scale = 0.0;
    else if (ends(name, "weight_g")) *offset = 1.0, *scale = 0.3;
    else if (ends(name, "register_tokens")) *scale = 1.0;
}

// Its numbers, to be changed by a test before small_open.
static inline float *small_add(small_model *m, const char *name, int rank, const int64_t *shape)
{
    assert_true(m->count < SMALL_TENSORS);
    int k = m->count++;
    snprintf(m->name[k], SMALL_NAME, "%s", name);
    vx_safetensors_tensor *t = &m->tensor[k];
    *t = (vx_safetensors_tensor){ .name = m->name[k], .dtype = VX_F32, .rank = rank };
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= t->shape[i] = shape[i];
    float *x = malloc((size_t)count * sizeof *x);
    double offset, scale;
    small_rule(name, rank, shape, &offset, &scale);
    small_numbers(name, x, count);
    for (int64_t i = 0; i < count; i++) x[i] = (float)offset + (float)scale * x[i];
    t->data = x;
    return x;
}
#define SMALL_ADD(m, name, ...) \
    small_add((m), (name), (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]){ __VA_ARGS__ })

static inline vx_safetensors_tensor *small_find(small_model *m, const char *name)
{
    for (int i = 0; i < m->count; i++)
        if (strcmp(m->name[i], name) == 0) return &m->tensor[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static inline float *small_data(small_model *m, const char *name)
{
    return (float *)(uintptr_t)small_find(m, name)->data;
}

static inline void small_drop(small_model *m, const char *name)
{
    vx_safetensors_tensor *t = small_find(m, name);
    free((void *)(uintptr_t)t->data);
    int last = --m->count, k = (int)(t - m->tensor);
    memmove(m->name[k], m->name[last], SMALL_NAME);
    m->tensor[k] = m->tensor[last];
    m->tensor[k].name = m->name[k];
}

static inline void small_narrow(small_model *m, const char *name, vx_dtype to)
{
    vx_safetensors_tensor *t = small_find(m, name);
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++) count *= t->shape[i];
    const float *x = t->data;
    uint16_t *half = malloc((size_t)count * sizeof *half);
    for (int64_t i = 0; i < count; i++) half[i] = to == VX_F16 ? vx_f32_to_f16(x[i]) : vx_f32_to_bf16(x[i]);
    free((void *)(uintptr_t)t->data);
    t->data = half;
    t->dtype = to;
}

static inline vx_status small_open(small_model *m, vx_component_kind kind, const char *config)
{
    char path[192];
    snprintf(m->folder, sizeof m->folder, "%s/vortex-vae-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(m->folder));
    if (config) {
        snprintf(path, sizeof path, "%s/config.json", m->folder);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(config, f);
        fclose(f);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", m->folder);
    assert_ok(vx_safetensors_write(path, false, m->tensor, m->count, NULL, 0));
    return vx_component_open(&m->component, kind, config ? m->folder : path);
}

static inline int small_remove(const char *path, const struct stat *s, int type, struct FTW *walk)
{
    (void)s, (void)type, (void)walk;
    return remove(path);
}

static inline void small_close(small_model *m)
{
    vx_component_close(&m->component);
    for (int i = 0; i < m->count; i++) free((void *)(uintptr_t)m->tensor[i].data);
    if (m->folder[0]) nftw(m->folder, small_remove, 8, FTW_DEPTH | FTW_PHYS);
    free(m);
}

// "latents_mean" and "latents_std" as members of a configuration.
static inline void small_statistics(char *out, size_t size, int channels)
{
    float mean[64], std[64];
    size_t used = 0;
    small_numbers("latents_mean", mean, channels);
    small_numbers("latents_std", std, channels);
    for (int k = 0; k < 2; k++) {
        used += (size_t)snprintf(out + used, size - used, "%s\"latents_%s\": [", k ? ", " : "", k ? "std" : "mean");
        for (int i = 0; i < channels; i++)
            used += (size_t)snprintf(out + used, size - used, "%s%.9g", i ? "," : "",
                                     (double)(k ? 1.25f + std[i] * 0.5f : mean[i] * 0.5f));
        used += (size_t)snprintf(out + used, size - used, "]");
    }
}

static inline vx_tensor small_latent(const char *name, int rank, const int64_t *shape)
{
    vx_tensor t = vx_tensor_make(NULL, VX_F32, rank, shape);
    float *x = t.data = malloc(vx_tensor_bytes(t));
    small_numbers(name, x, vx_tensor_count(t));
    for (int64_t i = 0; i < vx_tensor_count(t); i++) x[i] *= 1.7f;
    return t;
}
#define SMALL_LATENT(name, ...) \
    small_latent((name), (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]){ __VA_ARGS__ })

// ---- video ----

typedef struct small_video {
    int heads, layers, registers, ffn_mult, tile, overlap;
    const char *more; // members of the configuration, with a leading comma
} small_video;

// The decoder of tools/make_vae_vectors.py's main(), first and second.
static const small_video small_video_first = { 2, 2, 4, 4, 64, 32, "" }, small_video_second = { 1, 1, 2, 3, 64, 16, "" };

static inline small_model *small_video_tensors(const small_video *v)
{
    small_model *m = calloc(1, sizeof *m);
    int64_t dim = v->heads * 64, ffn = dim * v->ffn_mult;
    char name[SMALL_NAME];
    SMALL_ADD(m, "post_quant_conv.weight", 24, 24, 1, 1, 1);
    SMALL_ADD(m, "post_quant_conv.bias", 24);
    SMALL_ADD(m, "decoder.x_embedder.weight", dim, 24);
    SMALL_ADD(m, "decoder.x_embedder.bias", dim);
    SMALL_ADD(m, "decoder.register_tokens", 1, v->registers, dim);
    SMALL_ADD(m, "decoder.norm_out.weight", dim);
    SMALL_ADD(m, "decoder.norm_out.bias", dim);
    SMALL_ADD(m, "decoder.proj_out.weight", 3072, dim);
    SMALL_ADD(m, "decoder.proj_out.bias", 3072);
#define BLOCK(suffix) (snprintf(name, sizeof name, "decoder.transformer_blocks.%d." suffix, i), name)
    for (int i = 0; i < v->layers; i++) {
        SMALL_ADD(m, BLOCK("norm1.weight"), dim);
        SMALL_ADD(m, BLOCK("norm2.weight"), dim);
        SMALL_ADD(m, BLOCK("scale1"), dim);
        SMALL_ADD(m, BLOCK("scale2"), dim);
        SMALL_ADD(m, BLOCK("attn.to_qkv.weight"), 3 * dim, dim);
        SMALL_ADD(m, BLOCK("attn.to_qkv.bias"), 3 * dim);
        SMALL_ADD(m, BLOCK("attn.to_out.weight"), dim, dim);
        SMALL_ADD(m, BLOCK("attn.to_out.bias"), dim);
        SMALL_ADD(m, BLOCK("ff.w1.weight"), 2 * ffn, dim);
        SMALL_ADD(m, BLOCK("ff.w1.bias"), 2 * ffn);
        SMALL_ADD(m, BLOCK("ff.w2.weight"), dim, ffn);
        SMALL_ADD(m, BLOCK("ff.w2.bias"), dim);
    }
#undef BLOCK
    return m;
}

static inline vx_status small_video_open(small_model *m, const small_video *v, vx_video_decoder **d)
{
    char statistics[2048], config[4096];
    small_statistics(statistics, sizeof statistics, 24);
    snprintf(config, sizeof config,
             "{%s, \"latent_channels\": 24, \"vae_tile_size\": %d, \"vae_tile_overlap_min\": %d,"
             " \"vit_decoder_kwargs\": {\"heads\": %d, \"dim_head\": 64, \"num_layers\": %d}%s}",
             statistics, v->tile, v->overlap, v->heads, v->layers, v->more);
    *d = NULL;
    VX_TRY(small_open(m, VX_VIDEO_VAE, config));
    return vx_video_decoder_open(d, m->component);
}

// ---- audio ----

typedef struct small_audio {
    int channels, width, decoder_dim, stages, rate[4], kernel[4], blocks, block_kernel[3], pairs;
    const char *config; // members after the statistics
} small_audio;

static const small_audio small_audio_two = {
    8,
    32,
    16,
    2,
    { 2, 2 },
    { 4, 4 },
    2,
    { 3, 7 },
    2,
    "\"decoder_rates\": [2,2], \"decoder_kernel_sizes\": [4,4], \"encoder_rates\": [2,2], \"resblock_kernel_sizes\": [3,7],"
    " \"resblock_dilation_sizes\": [[1,3],[1,3]]",
};
static const small_audio small_audio_three = {
    6, 24, 32, 3, { 5, 2, 2 }, { 9, 4, 4 }, 3, { 3, 7, 11 }, 3, "\"decoder_rates\": [5,2,2]",
};

static inline void small_conv(small_model *m, const char *name, int64_t a, int64_t b, int64_t k, int64_t biases)
{
    char full[SMALL_NAME];
    snprintf(full, sizeof full, "%.80s.weight_v", name);
    SMALL_ADD(m, full, a, b, k);
    snprintf(full, sizeof full, "%.80s.weight_g", name);
    SMALL_ADD(m, full, a, 1, 1);
    snprintf(full, sizeof full, "%.80s.bias", name);
    if (biases) SMALL_ADD(m, full, biases);
}

static inline small_model *small_audio_tensors(const small_audio *a)
{
    small_model *m = calloc(1, sizeof *m);
    char name[SMALL_NAME];
    int64_t c = a->decoder_dim;
    SMALL_ADD(m, "dec_in_proj.weight", a->width, a->channels, 1);
    SMALL_ADD(m, "dec_in_proj.bias", a->width);
    small_conv(m, "decoder.conv_pre", c, a->width, 7, c);
#define NAME(...) (snprintf(name, sizeof name, __VA_ARGS__), name)
    for (int i = 0; i < a->stages; i++, c /= 2) {
        small_conv(m, NAME("decoder.ups.%d.0", i), c, c / 2, a->kernel[i], c / 2);
        for (int r = 0; r < a->blocks; r++)
            for (int l = 0; l < a->pairs; l++)
                for (int k = 0; k < 2; k++) {
                    int n = i * a->blocks + r;
                    small_conv(m, NAME("decoder.resblocks.%d.convs%d.%d", n, k + 1, l), c / 2, c / 2, a->block_kernel[r], c / 2);
                    SMALL_ADD(m, NAME("decoder.resblocks.%d.activations.%d.act.alpha", n, 2 * l + k), c / 2);
                    SMALL_ADD(m, NAME("decoder.resblocks.%d.activations.%d.act.beta", n, 2 * l + k), c / 2);
                }
    }
#undef NAME
    SMALL_ADD(m, "decoder.activation_post.act.alpha", c);
    SMALL_ADD(m, "decoder.activation_post.act.beta", c);
    small_conv(m, "decoder.conv_post", 1, c, 7, 0);
    return m;
}

static inline vx_status small_audio_open(small_model *m, const small_audio *a, vx_device *dev, vx_audio_decoder **d)
{
    char statistics[2048], config[4096];
    small_statistics(statistics, sizeof statistics, a->channels);
    snprintf(config, sizeof config, "{%s, %s}", statistics, a->config);
    *d = NULL;
    VX_TRY(small_open(m, VX_AUDIO_VAE, config));
    return vx_audio_decoder_open(d, m->component, dev);
}

#endif
