// A tiny transformer whose weights are a hash of each tensor's name: tools/make_denoiser_vectors.py computes the same ones
// and holds the reference's outputs. Written to a folder in either layout, after a test has changed what it wants changed.
#ifndef VX_TESTS_DENOISER_TINY_H
#define VX_TESTS_DENOISER_TINY_H

#include <math.h>
#include <stdbool.h>
#include <unistd.h>

#include "testing.h"

#include "denoiser/denoiser.h"
#include "tensor/dtype.h"
#include "weights/safetensors.h"

enum {
    TINY_HIDDEN = 40,
    TINY_LAYERS = 2,
    TINY_REFINER = 1,
    TINY_HEADS = 2,
    TINY_HEAD_DIM = 104,
    TINY_INNER = TINY_HEADS * TINY_HEAD_DIM,
    TINY_FFN = 48,
    TINY_C = 3,
    TINY_AC = 5,
    TINY_TEXT = 24,
    TINY_FREQ = 16,
    TINY_T_HIDDEN = 20,
    TINY_T_DIM = 12,
    TINY_TENSORS = 128,
};

// f32 in [offset - scale/2, offset + scale/2).
static inline void tiny_values(float *out, const char *name, int64_t count, float scale, float offset)
{
    uint32_t seed = 2166136261u;
    for (const char *c = name; *c; c++) seed = (seed ^ (uint8_t)*c) * 16777619u;
    for (int64_t i = 0; i < count; i++) {
        uint32_t x = seed + (uint32_t)i;
        x ^= x >> 16;
        x *= 0x85ebca6bu;
        x ^= x >> 13;
        x *= 0xc2b2ae35u;
        x ^= x >> 16;
        const float u = (float)(x >> 8) * 0x1p-24f - 0.5f;
        out[i] = u * scale + offset;
    }
}

typedef struct tiny {
    vx_safetensors_tensor tensor[TINY_TENSORS];
    char name[TINY_TENSORS][80];
    int count;
} tiny;

static inline bool tiny_is_f32(const char *name)
{
    static const char *const prefixes[] = { "video_patch_proj", "audio_patch_proj", "time_embedder", "final_layer.video_out",
                                            "final_layer.audio_out" };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

static inline void tiny_put(tiny *t, const char *name, vx_dtype dtype, int rank, int64_t n, int64_t k, void *data)
{
    assert_true(t->count < TINY_TENSORS);
    snprintf(t->name[t->count], sizeof t->name[0], "%s", name);
    t->tensor[t->count] = (vx_safetensors_tensor){ t->name[t->count], dtype, rank, { n, k }, data };
    t->count++;
}

// k = 0: a vector.
static inline void tiny_weight(tiny *t, const char *prefix, const char *suffix, int64_t n, int64_t k)
{
    char name[80];
    snprintf(name, sizeof name, "%s%s", prefix, suffix);
    const int64_t count = k ? n * k : n;
    const bool norm = strstr(name, "norm.weight") || strstr(name, "norm1") || strstr(name, "norm2");
    const bool bias = strstr(name, "bias") != NULL;
    const float scale = norm ? 0.5f : bias ? 0.25f : exp2f((float)rint(log2(4 / sqrt((double)(k ? k : 1)))));
    float *x = malloc((size_t)count * sizeof *x);
    tiny_values(x, name, count, scale, norm ? 1 : 0);
    if (tiny_is_f32(name)) {
        tiny_put(t, name, VX_F32, k ? 2 : 1, n, k, x);
        return;
    }
    uint16_t *rounded = malloc((size_t)count * sizeof *rounded);
    for (int64_t i = 0; i < count; i++) rounded[i] = vx_f32_to_bf16(x[i]);
    free(x);
    tiny_put(t, name, VX_BF16, k ? 2 : 1, n, k, rounded);
}

static inline void tiny_linear(tiny *t, const char *name, int64_t n, int64_t k)
{
    tiny_weight(t, name, ".weight", n, k);
    tiny_weight(t, name, ".bias", n, 0);
}

static inline void tiny_block(tiny *t, const char *prefix)
{
    tiny_weight(t, prefix, "norm1.weight", TINY_HIDDEN, 0);
    tiny_weight(t, prefix, "norm2.weight", TINY_HIDDEN, 0);
    tiny_weight(t, prefix, "attn.q_norm.weight", TINY_HEAD_DIM, 0);
    tiny_weight(t, prefix, "attn.k_norm.weight", TINY_HEAD_DIM, 0);
    tiny_weight(t, prefix, "attn.qkv_proj.weight", 3 * TINY_INNER, TINY_HIDDEN);
    tiny_weight(t, prefix, "attn.out_proj.weight", TINY_HIDDEN, TINY_INNER);
    tiny_weight(t, prefix, "mlp.fc1.weight", 2 * TINY_FFN, TINY_HIDDEN);
    tiny_weight(t, prefix, "mlp.fc2.weight", TINY_HIDDEN, TINY_FFN);
}

// Official names.
static inline tiny *tiny_make(void)
{
    tiny *t = calloc(1, sizeof *t);
    tiny_linear(t, "video_patch_proj", TINY_HIDDEN, 4 * TINY_C);
    tiny_linear(t, "audio_patch_proj", TINY_HIDDEN, TINY_AC);
    tiny_linear(t, "condition_proj", TINY_HIDDEN, TINY_TEXT);
    tiny_linear(t, "time_embedder.proj_in", TINY_T_HIDDEN, TINY_FREQ);
    tiny_linear(t, "time_embedder.proj_out", TINY_T_DIM, TINY_T_HIDDEN);
    for (int i = 0; i < TINY_REFINER; i++) tiny_block(t, "token_refiner.blocks.0.");
    tiny_weight(t, "token_refiner.final_norm", ".weight", TINY_HIDDEN, 0);
    for (int i = 0; i < TINY_LAYERS; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "blocks.%d.", i);
        tiny_block(t, prefix);
        snprintf(prefix, sizeof prefix, "blocks.%d.adaln_proj.linear", i);
        tiny_linear(t, prefix, 18 * TINY_HIDDEN, TINY_T_DIM);
    }
    tiny_weight(t, "final_layer.norm", ".weight", TINY_HIDDEN, 0);
    tiny_linear(t, "final_layer.adaln_proj.linear", 2 * TINY_HIDDEN, TINY_T_DIM);
    tiny_linear(t, "final_layer.video_out", 4 * TINY_C, TINY_HIDDEN);
    tiny_linear(t, "final_layer.audio_out", TINY_AC, TINY_HIDDEN);
    return t;
}

static inline void tiny_free(tiny *t)
{
    for (int i = 0; i < t->count; i++) free((void *)(uintptr_t)t->tensor[i].data);
    free(t);
}

// A tensor to change; its data are the test's own.
static inline vx_safetensors_tensor *tiny_find(tiny *t, const char *name)
{
    for (int i = 0; i < t->count; i++)
        if (strcmp(t->name[i], name) == 0) return &t->tensor[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static inline void tiny_remove(tiny *t, const char *name)
{
    vx_safetensors_tensor *x = tiny_find(t, name);
    const int64_t i = x - t->tensor;
    free((void *)(uintptr_t)x->data);
    t->count--;
    for (int64_t k = i; k < t->count; k++) {
        t->tensor[k] = t->tensor[k + 1];
        memcpy(t->name[k], t->name[k + 1], sizeof t->name[k]);
        t->tensor[k].name = t->name[k];
    }
}

// ---- folders ----

static const char tiny_official_config[] =
    "{\"_class_name\":\"MiniMaxH3DiTModel\",\"hidden_size\":40,\"num_layers\":2,\"token_refiner_num_layers\":1,\"num_attention_"
    "heads\":2,\"attention_head_dim\":104,"
    "\"ffn_hidden_size\":48,\"latents_dim\":3,\"audio_latents_dim\":5,\"patch_size\":[1,2,2],\"text_dim\":24,"
    "\"timestep_input_dim\":16,\"time_embed_hidden_size\":20,\"time_embed_dim\":12,\"adaln_out_features\":720,"
    "\"final_adaln_out_features\":80,\"rope_inv_freq_len\":16,\"norm_eps\":1e-5,\"qk_norm_eps\":1e-5,\"final_norm_eps\":1e-5}";
static const char tiny_diffusers_config[] =
    "{\"_class_name\":\"MiniMaxH3Transformer3DModel\",\"hidden_size\":40,\"num_layers\":2,\"num_refiner_layers\":1,"
    "\"num_attention_heads\":2,\"attention_head_dim\":104,\"ffn_dim\":48,\"in_channels\":3,\"audio_in_channels\":5,"
    "\"patch_size\":[1,2,2],\"text_dim\":24,\"freq_dim\":16,\"time_embed_hidden_dim\":20,\"time_embed_dim\":12,"
    "\"rope_freq_dim\":16,\"rope_theta\":10000.0,\"norm_eps\":1e-5,\"qk_norm_eps\":1e-5,\"final_norm_eps\":1e-5}";

typedef struct tiny_folder {
    char path[64], weights[96], config[96];
} tiny_folder;

static inline void tiny_write(const tiny *t, tiny_folder *f, const char *config)
{
    snprintf(f->path, sizeof f->path, "/tmp/vx-denoiser-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    snprintf(f->weights, sizeof f->weights, "%s/model.safetensors", f->path);
    snprintf(f->config, sizeof f->config, "%s/config.json", f->path);
    assert_ok(vx_safetensors_write(f->weights, false, t->tensor, t->count, NULL, 0));
    FILE *out = fopen(f->config, "w");
    assert_non_null(out);
    fputs(config, out);
    fclose(out);
}

static inline void tiny_erase(tiny_folder *f)
{
    unlink(f->weights);
    unlink(f->config);
    rmdir(f->path);
}

// Rows [begin, begin + n) of a matrix as a matrix of their own; `stride` rows apart in blocks of `block` rows.
static inline void *tiny_rows(const vx_safetensors_tensor *x, int64_t begin, int64_t n, int64_t block, int64_t stride)
{
    const size_t row = (size_t)x->shape[1] * 2;
    uint8_t *out = malloc((size_t)n * row);
    for (int64_t i = 0; i < n; i++)
        memcpy(out + (size_t)i * row, (const uint8_t *)x->data + (size_t)(begin + i / block * stride + i % block) * row, row);
    return out;
}

static inline void tiny_rename(char out[80], const char *name)
{
    static const char *const rules[][2] = {
        { "token_refiner.blocks.", "token_refiner.refiner_blocks." },
        { "blocks.", "transformer_blocks." },
        { "video_patch_proj", "proj_in" },
        { "audio_patch_proj", "audio_proj_in" },
        { "condition_proj", "context_embedder" },
        { "time_embedder.proj_in", "time_embedder.linear_1" },
        { "time_embedder.proj_out", "time_embedder.linear_2" },
        { "final_layer.norm", "norm_out.norm" },
        { "final_layer.adaln_proj", "norm_out" },
        { "final_layer.video_out", "proj_out" },
        { "final_layer.audio_out", "audio_proj_out" },
    };
    static const char *const inner[][2] = { { "attn.q_norm", "attn.norm_q" },
                                            { "attn.k_norm", "attn.norm_k" },
                                            { "attn.out_proj", "attn.to_out.0" },
                                            { "mlp.fc2", "ff.net.2" } };
    snprintf(out, 80, "%s", name);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strncmp(name, rules[i][0], strlen(rules[i][0])) == 0) {
            snprintf(out, 80, "%s%s", rules[i][1], name + strlen(rules[i][0]));
            break;
        }
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
        char *at = strstr(out, inner[i][0]), tail[80];
        if (!at) continue;
        snprintf(tail, sizeof tail, "%s", at + strlen(inner[i][0]));
        snprintf(at, (size_t)(out + 80 - at), "%s%s", inner[i][1], tail);
    }
}

// The same checkpoint as diffusers writes it: three matrices for q, k, v, and the halves of fc1 exchanged.
static inline tiny *tiny_as_diffusers(const tiny *t)
{
    tiny *d = calloc(1, sizeof *d);
    for (int i = 0; i < t->count; i++) {
        const vx_safetensors_tensor *x = &t->tensor[i];
        char name[80], *at;
        tiny_rename(name, t->name[i]);
        if ((at = strstr(name, "attn.qkv_proj"))) {
            for (int c = 0; c < 3; c++) {
                snprintf(at, (size_t)(name + 80 - at), "attn.to_%c.weight", "qkv"[c]);
                tiny_put(d, name, VX_BF16, 2, TINY_INNER, TINY_HIDDEN,
                         tiny_rows(x, c * TINY_HEAD_DIM, TINY_INNER, TINY_HEAD_DIM, 3 * TINY_HEAD_DIM));
            }
        } else if ((at = strstr(name, "mlp.fc1"))) {
            snprintf(at, (size_t)(name + 80 - at), "ff.net.0.proj.weight");
            tiny_put(d, name, VX_BF16, 2, 2 * TINY_FFN, TINY_HIDDEN, tiny_rows(x, TINY_FFN, 2 * TINY_FFN, TINY_FFN, -TINY_FFN));
        } else {
            const size_t bytes = (size_t)(x->shape[0] * (x->rank == 2 ? x->shape[1] : 1) * vx_dtype_bits(x->dtype) / 8);
            void *data = malloc(bytes);
            memcpy(data, x->data, bytes);
            tiny_put(d, name, x->dtype, x->rank, x->shape[0], x->shape[1], data);
        }
    }
    return d;
}

#endif
