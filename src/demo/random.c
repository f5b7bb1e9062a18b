// Random weights under which no part of a network is idle: a swapped dimension, half or axis shows in the result.
#include <math.h>
#include <string.h>

#include "base/str.h"
#include "demo/demo.h"

uint64_t vx_demo_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t vx_demo_stream(uint64_t seed, const char *name)
{
    uint64_t state = seed;
    for (const char *p = name; *p; p++) state = vx_demo_next(&state) ^ (uint8_t)*p;
    return vx_demo_next(&state);
}

float vx_demo_normal(uint64_t *state)
{
    int ones = 0;
    for (uint64_t bits = vx_demo_next(state); bits; bits &= bits - 1) ones++;
    return (float)(ones - 32) / 4.0f; // 64 coins: mean 32, deviation 4
}

static void fill(vx_demo_tensor *t, uint64_t *stream, float mean, float deviation)
{
    for (int64_t i = 0; i < t->count; i++) t->value[i] = mean + deviation * vx_demo_normal(stream);
}

static float boost(const char *name)
{
    if (strstr(name, "adaln_proj")) return 3.0f;
    return strstr(name, "time_embedder") ? 2.0f : 1.0f;
}

void vx_demo_randomise(vx_demo_tensors *set, uint64_t seed, float scale)
{
    for (int i = 0; i < set->count; i++) {
        vx_demo_tensor *t = &set->tensor[i];
        const char *name = t->name;
        const int64_t fan_in = t->rank ? t->count / t->shape[0] : 1;
        uint64_t stream = vx_demo_stream(seed, name);
        if (vx_has_suffix(name, ".filter") || vx_has_suffix(name, ".inv_freq") || vx_has_suffix(name, ".mask_token") ||
            vx_has_suffix(name, ".zero_k_bias"))
            continue;
        if (vx_has_suffix(name, "self_attn.q_norm.weight") || vx_has_suffix(name, "self_attn.k_norm.weight"))
            fill(t, &stream, 1.25f, 0.25f);
        else if (vx_has_suffix(name, "q_norm.weight") || vx_has_suffix(name, "k_norm.weight")) fill(t, &stream, 2.0f, 0.4f);
        else if (vx_has_suffix(name, ".weight_g")) fill(t, &stream, 0.75f, 0.1f);
        else if (t->rank == 3 && vx_has_suffix(name, ".alpha")) fill(t, &stream, 1.0f, 0.25f);
        else if (t->rank >= 2) fill(t, &stream, 0.0f, boost(name) * scale / sqrtf((float)fan_in));
        else if (strstr(name, "norm") && vx_has_suffix(name, ".weight")) fill(t, &stream, 1.0f, 0.2f);
        else if (strstr(name, ".scale")) fill(t, &stream, 0.5f, 0.2f);
        else fill(t, &stream, 0.0f, 0.1f);
    }
}
