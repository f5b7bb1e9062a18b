// What depends on the request alone and not on the latents: rotary tables from the positions, and the modulation tables of
// every timestep that the request will see, so that the loop reads no time embedder and no modulation weights.
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "denoiser/network.h"
#include "tensor/mathf.h"

// f64 functions of f32 arguments, rounded: what a good f32 library gives, with full range reduction (the first axis is in
// radians at its lowest frequency and reaches thousands), and the same on every machine.
static float cosine(float x)
{
    return (float)cos((double)x);
}
static float sine(float x)
{
    return (float)sin((double)x);
}

static vx_status upload_act(vx_device *dev, vx_tensor to, const float *from)
{
    if (to.dtype == VX_F32) return vx_upload(dev, to, from);
    const size_t count = (size_t)vx_tensor_count(to);
    uint16_t *rounded = vx_alloc_array(count, sizeof *rounded);
    VX_NEED_MEMORY(rounded, "a rotary table");
    for (size_t i = 0; i < count; i++) rounded[i] = vx_f32_to_bf16(from[i]);
    vx_status s = vx_upload(dev, to, rounded);
    vx_free(rounded);
    return s;
}

// The three axes side by side, each with all frequencies. Neighbouring rows share coordinates: the axes that stay are copied.
static void fill_rotary(const vx_denoiser *d, const vx_layout *layout, float *c, float *s)
{
    enum { WIDTH = VX_ROPE_AXES * VX_ROPE_FREQS };
    for (int64_t row = 0; row < layout->rows; row++)
        for (int axis = 0; axis < VX_ROPE_AXES; axis++) {
            const double *position = layout->position + VX_ROPE_AXES * row + axis;
            const int64_t at = row * WIDTH + axis * VX_ROPE_FREQS;
            const bool same = row > 0 && position[0] == position[-VX_ROPE_AXES];
            for (int j = 0; j < VX_ROPE_FREQS; j++) {
                const float angle = (float)*position * d->inv_freq[j];
                c[at + j] = same ? c[at - WIDTH + j] : cosine(angle);
                s[at + j] = same ? s[at - WIDTH + j] : sine(angle);
            }
        }
}

vx_status vx_denoiser_rotary(vx_device *dev, const vx_denoiser *d, const vx_layout *layout, vx_tensor cos, vx_tensor sin)
{
    if (vx_device_is_plan(dev)) return vx_ok();
    const size_t count = (size_t)layout->rows * VX_ROPE_AXES * VX_ROPE_FREQS;
    float *host = vx_alloc_array(count, 2 * sizeof *host);
    VX_NEED_MEMORY(host, "rotary tables");
    fill_rotary(d, layout, host, host + count);
    vx_status s = upload_act(dev, cos, host);
    if (s.code == VX_OK) s = upload_act(dev, sin, host + count);
    vx_free(host);
    return s;
}

// Cosines first; t is in [0, 1] and not multiplied by 1000 (specification 1.8).
static void sinusoid(float *out, int64_t width, float t)
{
    const int64_t half = width / 2;
    const float log_period = -9.21034037197618f; // -ln(10000) in f32, as PyTorch sees a Python scalar beside f32
    for (int64_t k = 0; k < half; k++) {
        const float angle = t * vx_expf(log_period * (float)k / (float)half);
        out[k] = cosine(angle);
        out[half + k] = sine(angle);
    }
}

// s [count, time_dim] act = rn(silu(temb)): everything before the last rounding is f32.
static vx_status embed_time(vx_device *dev, vx_arena *arena, const vx_denoiser *d, const float *t, int64_t count, vx_tensor s)
{
    const vx_denoiser_config *k = &d->config;
    float *host = vx_alloc_array((size_t)count, (size_t)k->timestep_dim * sizeof *host);
    VX_NEED_MEMORY(host, "the timesteps' sinusoids");
    for (int64_t i = 0; i < count; i++) sinusoid(host + i * k->timestep_dim, k->timestep_dim, t[i]);
    vx_tensor wave = vx_arena_tensor(arena, VX_F32, count, k->timestep_dim);
    vx_tensor hidden = vx_arena_tensor(arena, VX_F32, count, k->time_hidden);
    vx_tensor active = vx_arena_tensor(arena, VX_F32, count, k->time_hidden);
    vx_tensor temb = vx_arena_tensor(arena, VX_F32, count, k->time_dim);
    vx_status status = vx_upload(dev, wave, host);
    vx_free(host);
    VX_TRY(status);
    VX_TRY(vx_linear(dev, hidden, wave, &d->time_in));
    VX_TRY(vx_silu(dev, active, hidden));
    VX_TRY(vx_linear(dev, temb, active, &d->time_out));
    return vx_silu(dev, s, temb);
}

// A pruned model holds silu(time embedding) as a curve of few dimensions over 0..1, at equal distances: between two points
// torch.lerp (checkpoints specification 3.8). No activation follows, and the projection is f32 throughout.
static vx_status follow_curve(vx_device *dev, const vx_denoiser *d, const float *t, int64_t count, vx_tensor s)
{
    const int64_t rank = d->config.time_dim, last = d->config.curve_points - 1;
    const float *table = d->curve.data;
    if (vx_device_is_plan(dev)) return vx_ok();
    float *host = vx_alloc_array((size_t)(count * rank), sizeof *host);
    VX_NEED_MEMORY(host, "the timesteps' points of the curve");
    for (int64_t i = 0; i < count; i++) {
        const float place = fminf(fmaxf(t[i], 0.0f), 1.0f) * (float)last;
        int64_t at = (int64_t)floorf(place);
        if (at > last - 1) at = last - 1;
        const float f = place - (float)at, *a = table + at * rank, *b = a + rank;
        for (int64_t j = 0; j < rank; j++)
            host[i * rank + j] = f < 0.5f ? a[j] + f * (b[j] - a[j]) : b[j] - (b[j] - a[j]) * (1.0f - f);
    }
    vx_status status = vx_upload(dev, s, host);
    vx_free(host);
    return status;
}

static vx_status project(vx_device *dev, const vx_denoiser *d, vx_tensor s, int64_t count, vx_tensor blocks, vx_tensor head)
{
    const vx_denoiser_config *k = &d->config;
    for (int64_t i = 0; i < k->layers; i++) {
        char next[64];
        snprintf(next, sizeof next, "blocks.%lld.adaln_proj.", (long long)i + 1);
        vx_component_prefetch(d->component, dev, next);
        const int64_t flat[] = { count, VX_MODALITIES * VX_MODULATIONS * k->hidden };
        const vx_tensor out = vx_tensor_reshape(vx_tensor_row(blocks, i), 2, flat);
        VX_TRY_IN(vx_linear(dev, out, s, &d->blocks[i].adaln), "block %lld", (long long)i);
    }
    return vx_linear(dev, vx_tensor_reshape(head, 2, (const int64_t[]){ count, 2 * k->hidden }), s, &d->final_adaln);
}

vx_status vx_denoiser_modulation(vx_device *dev, vx_arena *arena, const vx_denoiser *d, const float *t, int64_t count,
                                 vx_tensor blocks, vx_tensor head)
{
    const size_t mark = vx_arena_mark(arena);
    const bool pruned = d->config.curve_points > 0;
    vx_tensor s = vx_arena_tensor(arena, pruned ? VX_F32 : head.dtype, count, d->config.time_dim);
    vx_status status = pruned ? follow_curve(dev, d, t, count, s) : embed_time(dev, arena, d, t, count, s);
    if (status.code == VX_OK) status = project(dev, d, s, count, blocks, head);
    vx_arena_reset(arena, mark);
    return status;
}
