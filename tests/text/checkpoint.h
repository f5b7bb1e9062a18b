// A text encoder whose weights come from a formula: the one that tools/make_language_vectors.py and make_vision_vectors.py give
// to transformers. Also what both tests do with vectors.
#ifndef VX_TEST_TEXT_CHECKPOINT_H
#define VX_TEST_TEXT_CHECKPOINT_H

#include "testing.h"

#include <math.h>
#include <unistd.h>

#include "text/language.h"
#include "weights/safetensors.h"

enum { HIDDEN = 32, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 16, INTERMEDIATE = 40, VOCABULARY = 64, LAYERS = 51, MAX_TENSORS = 768 };

typedef struct checkpoint {
    char folder[64];
    vx_safetensors_tensor tensor[MAX_TENSORS];
    char name[MAX_TENSORS][96];
    int count;
} checkpoint;

static inline uint64_t seed_of(const char *name)
{
    uint64_t seed = 14695981039346656037u;
    for (const char *p = name; *p; p++) seed = (seed ^ (uint8_t)*p) * 1099511628211u;
    return seed;
}

static inline float uniform(uint64_t seed, int64_t i)
{
    uint64_t z = seed + ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (float)(z >> 40) * 0x1p-23f - 1.0f;
}

static inline float weight_of(const char *name, float u)
{
    const size_t size = strlen(name);
    if (size > 4 && strcmp(name + size - 4, "bias") == 0) return 0.25f * u;
    if (strstr(name, "norm")) return 1.0f + 0.25f * u;
    return u * (strstr(name, "patch_embed") ? 0.0625f : strstr(name, "embed") ? 1.0f : 0.25f);
}

static inline void put_shaped(checkpoint *c, const char *name, int rank, const int64_t *shape)
{
    const uint64_t seed = seed_of(name);
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= shape[i];
    uint16_t *data = malloc((size_t)count * sizeof *data);
    for (int64_t i = 0; i < count; i++) data[i] = vx_f32_to_bf16(weight_of(name, uniform(seed, i)));
    const int k = c->count++;
    assert_true(k < MAX_TENSORS);
    snprintf(c->name[k], sizeof c->name[k], "%s", name);
    c->tensor[k] = (vx_safetensors_tensor){ .name = c->name[k], .dtype = VX_BF16, .rank = rank, .data = data };
    memcpy(c->tensor[k].shape, shape, (size_t)rank * sizeof *shape);
}

// columns 0: a vector
static inline void put(checkpoint *c, const char *name, int64_t rows, int64_t columns)
{
    put_shaped(c, name, columns ? 2 : 1, (const int64_t[]){ rows, columns });
}

static inline void put_layer(checkpoint *c, int i)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
    } parts[] = {
        { "input_layernorm", HIDDEN, 0 },
        { "post_attention_layernorm", HIDDEN, 0 },
        { "self_attn.q_proj", HEADS * HEAD_DIM, HIDDEN },
        { "self_attn.k_proj", KV_HEADS * HEAD_DIM, HIDDEN },
        { "self_attn.v_proj", KV_HEADS * HEAD_DIM, HIDDEN },
        { "self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM },
        { "self_attn.q_norm", HEAD_DIM, 0 },
        { "self_attn.k_norm", HEAD_DIM, 0 },
        { "mlp.gate_proj", INTERMEDIATE, HIDDEN },
        { "mlp.up_proj", INTERMEDIATE, HIDDEN },
        { "mlp.down_proj", HIDDEN, INTERMEDIATE },
    };
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        char name[96];
        snprintf(name, sizeof name, "model.language_model.layers.%d.%s.weight", i, parts[k].name);
        put(c, name, parts[k].rows, parts[k].columns);
    }
}

static inline void put_language(checkpoint *c, int layers)
{
    put(c, "model.language_model.embed_tokens.weight", VOCABULARY, HIDDEN);
    for (int i = 0; i < layers; i++) put_layer(c, i);
}

static inline void begin_checkpoint(checkpoint *c)
{
    c->count = 0;
    strcpy(c->folder, "/tmp/vortex-text-XXXXXX");
    assert_non_null(mkdtemp(c->folder));
}

static inline void write_tensors(checkpoint *c)
{
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", c->folder);
    assert_ok(vx_safetensors_write(path, true, c->tensor, c->count, NULL, 0));
    for (int i = 0; i < c->count; i++) free((void *)(uintptr_t)c->tensor[i].data);
}

static inline void write_text(const char *folder, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static inline void remove_checkpoint(const checkpoint *c)
{
    char path[128];
    static const char *const names[] = { "model.safetensors", "config.json" };
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", c->folder, names[i]);
        unlink(path);
    }
    rmdir(c->folder);
}

// ---- vectors ----
static inline double relative(const float *got, const float *want, int64_t count)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += (double)want[i] * want[i];
    }
    return sqrt(difference / size);
}

static inline float *read_floats(const vx_safetensors *st, const char *name, int64_t *rows, int64_t columns)
{
    const vx_safetensors_entry *e = vx_safetensors_find(st, name);
    if (!e) fail_msg("no %s", name);
    assert_true(e->rank >= 2);
    assert_int_equal(e->shape[e->rank - 1], columns);
    *rows = 1;
    for (int i = 0; i + 1 < e->rank; i++) *rows *= e->shape[i];
    float *out = malloc((size_t)(*rows * columns) * sizeof *out);
    assert_ok(vx_safetensors_read_f32(st, name, e->rank, e->shape, out));
    return out;
}

// A contiguous tensor of the CPU back end, widened.
static inline float *widen(vx_tensor t)
{
    const int64_t count = vx_tensor_count(t);
    float *out = malloc((size_t)count * sizeof *out);
    for (int64_t i = 0; i < count; i++)
        out[i] = t.dtype == VX_BF16 ? vx_bf16_to_f32(((const uint16_t *)t.data)[i]) : vx_f32_of(t)[i];
    return out;
}

#endif
