// Operators on tensors of any strides: affine, fade, clamp, bytes, the search for what is not finite; and the blend.
//
// Lines with unit steps are computed in blocks of a fixed size through local arrays: the compiler makes vectors of such
// loops at any level, and an output may be one of the inputs.
#include "device/cpu/cpu.h"
#include "device/cpu/element.h"
#include "device/cpu/walk.h"
#include <math.h>

enum { BLOCK = 64 };

static bool unit(const int64_t *step, int tensors)
{
    for (int t = 0; t < tensors; t++)
        if (step[t] != 1) return false;
    return true;
}

// ---- affine ----

static void affine_line(const void *ctx, int64_t n, const int64_t *offset, const int64_t *step)
{
    const vx_affine_args *a = ctx;
    float *out = vx_f32_of(a->out) + offset[0];
    const float *x = vx_f32_of(a->x) + offset[1], *scale = vx_f32_of(a->scale) + offset[2],
                *shift = vx_f32_of(a->shift) + offset[3];
    int64_t i = 0;
    if (unit(step, 2) && step[2] == 0)
        for (const float c = *scale, d = *shift; i + BLOCK <= n; i += BLOCK) {
            float t[BLOCK];
            for (int j = 0; j < BLOCK; j++) t[j] = x[i + j] * c + d;
            for (int j = 0; j < BLOCK; j++) out[i + j] = t[j];
        }
    for (; i < n; i++) out[i * step[0]] = x[i * step[1]] * scale[i * step[2]] + shift[i * step[3]];
}

vx_status vx_cpu_affine(vx_device *dev, const vx_affine_args *a)
{
    // A vector of one element has no stride to speak of; the walk drops its axis.
    const vx_tensor t[] = { a->out, a->x, vx_along_axis(a->out, a->scale, a->axis), vx_along_axis(a->out, a->shift, a->axis) };
    const vx_walk walk = vx_walk_of(4, t);
    vx_walk_run(vx_cpu_of(dev), &walk, affine_line, a);
    return vx_ok();
}

// ---- fade ----

static float fade_one(float a, float b, float weight)
{
    return a * (1.0f - weight) + b * weight;
}

// The fourth "tensor" has no data: its offset is the index along the axis.
static void fade_line(const void *ctx, int64_t n, const int64_t *offset, const int64_t *step)
{
    const vx_fade_args *f = ctx;
    float *out = vx_f32_of(f->out) + offset[0];
    const float *a = vx_f32_of(f->a) + offset[1], *b = vx_f32_of(f->b) + offset[2];
    const float extent = (float)f->out.shape[f->axis];
    int64_t i = 0;
    if (unit(step, 3) && step[3] == 0)
        for (const float w = (float)offset[3] / extent, v = 1.0f - w; i + BLOCK <= n; i += BLOCK) {
            float t[BLOCK];
            for (int j = 0; j < BLOCK; j++) t[j] = a[i + j] * v + b[i + j] * w;
            for (int j = 0; j < BLOCK; j++) out[i + j] = t[j];
        }
    for (; i < n; i++) out[i * step[0]] = fade_one(a[i * step[1]], b[i * step[2]], (float)(offset[3] + i * step[3]) / extent);
}

vx_status vx_cpu_fade(vx_device *dev, const vx_fade_args *f)
{
    const vx_tensor index = { .dtype = VX_F32, .rank = 1, .shape = { f->out.shape[f->axis] }, .stride = { 1 } };
    const vx_tensor t[] = { f->out, f->a, f->b, vx_along_axis(f->out, index, f->axis) };
    const vx_walk walk = vx_walk_of(4, t);
    vx_walk_run(vx_cpu_of(dev), &walk, fade_line, f);
    return vx_ok();
}

// ---- clamp and bytes ----

// Written so that NaN passes: both comparisons are false.
static inline float clamp_one(float x, float lo, float hi)
{
    const float y = x < lo ? lo : x;
    return y > hi ? hi : y;
}

static void clamp_line(const void *ctx, int64_t n, const int64_t *offset, const int64_t *step)
{
    const vx_clamp_args *c = ctx;
    float *out = vx_f32_of(c->out) + offset[0];
    const float *x = vx_f32_of(c->x) + offset[1];
    int64_t i = 0;
    if (unit(step, 2))
        for (const float lo = c->lo, hi = c->hi; i + BLOCK <= n; i += BLOCK) {
            float t[BLOCK];
            for (int j = 0; j < BLOCK; j++) t[j] = clamp_one(x[i + j], lo, hi);
            for (int j = 0; j < BLOCK; j++) out[i + j] = t[j];
        }
    for (; i < n; i++) out[i * step[0]] = clamp_one(x[i * step[1]], c->lo, c->hi);
}

vx_status vx_cpu_clamp(vx_device *dev, const vx_clamp_args *c)
{
    const vx_tensor t[] = { c->out, c->x };
    const vx_walk walk = vx_walk_of(2, t);
    vx_walk_run(vx_cpu_of(dev), &walk, clamp_line, c);
    return vx_ok();
}

// Adding 2^23 to 0..255 leaves the nearest integer, ties to even, in the low bits. NaN, which has no nearest byte, is 0.
static inline uint8_t byte_of(float x)
{
    const float y = x > 0.0f ? x : 0.0f; // also for NaN
    const float v = 255.0f * (y > 1.0f ? 1.0f : y);
    return (uint8_t)vx_f32_bits(v + 0x1p23f);
}

static void to_u8_line(const void *ctx, int64_t n, const int64_t *offset, const int64_t *step)
{
    const vx_to_u8_args *u = ctx;
    uint8_t *out = (uint8_t *)u->out.data + offset[0];
    const float *x = vx_f32_of(u->x) + offset[1];
    int64_t i = 0;
    if (step[1] == 1)
        for (; i + BLOCK <= n; i += BLOCK) {
            uint8_t t[BLOCK];
            for (int j = 0; j < BLOCK; j++) t[j] = byte_of(x[i + j]);
            for (int j = 0; j < BLOCK; j++) out[(i + j) * step[0]] = t[j];
        }
    for (; i < n; i++) out[i * step[0]] = byte_of(x[i * step[1]]);
}

vx_status vx_cpu_to_u8(vx_device *dev, const vx_to_u8_args *u)
{
    const vx_tensor t[] = { u->out, u->x };
    const vx_walk walk = vx_walk_of(2, t);
    vx_walk_run(vx_cpu_of(dev), &walk, to_u8_line, u);
    return vx_ok();
}

// ---- what is not finite ----

// The exponent of NaN and infinity is all ones: bits of the sign shifted out, nothing else reaches so far.
static uint32_t not_finite_f32(const uint32_t *x, int64_t n, int64_t step)
{
    uint32_t most = 0;
    int64_t i = 0;
    if (step == 1)
        for (; i + BLOCK <= n; i += BLOCK) {
            uint32_t found = 0;
            for (int j = 0; j < BLOCK; j++) found |= (x[i + j] & 0x7f800000u) == 0x7f800000u;
            most |= found;
        }
    for (; i < n; i++) most |= (x[i * step] & 0x7f800000u) == 0x7f800000u;
    return most;
}

static uint32_t not_finite_half(const uint16_t *x, int64_t n, int64_t step, uint16_t exponent)
{
    uint32_t most = 0;
    int64_t i = 0;
    if (step == 1)
        for (; i + BLOCK <= n; i += BLOCK) {
            uint16_t found = 0;
            for (int j = 0; j < BLOCK; j++) found |= (x[i + j] & exponent) == exponent;
            most |= found;
        }
    for (; i < n; i++) most |= (x[i * step] & exponent) == exponent;
    return most;
}

static void mark_line(const void *ctx, int64_t n, const int64_t *offset, const int64_t *step)
{
    const vx_mark_not_finite_args *m = ctx;
    const uint32_t found = m->x.dtype == VX_F32 ? not_finite_f32((const uint32_t *)m->x.data + offset[0], n, step[0])
                                                : not_finite_half((const uint16_t *)m->x.data + offset[0], n, step[0],
                                                                  m->x.dtype == VX_BF16 ? 0x7f80u : 0x7c00u);
    int32_t *flag = (int32_t *)m->flag.data + m->index;
    if (found) __atomic_fetch_or(flag, 1, __ATOMIC_RELAXED); // pieces meet here; the order of ors does not matter
}

vx_status vx_cpu_mark_not_finite(vx_device *dev, const vx_mark_not_finite_args *m)
{
    const vx_walk walk = vx_walk_of(1, &m->x);
    vx_walk_run(vx_cpu_of(dev), &walk, mark_line, m);
    return vx_ok();
}

// ---- blend ----

// `count` is a constant where it is called, so that the loops become vectors.
static inline void blend_block(const vx_blend_args *a, int64_t at, int count)
{
    float t[BLOCK];
    for (int j = 0; j < count; j++) t[j] = a->term[0].c * vx_f32_of(a->term[0].x)[at + j];
    for (int k = 1; k < a->count; k++)
        for (int j = 0; j < count; j++) t[j] = t[j] + a->term[k].c * vx_f32_of(a->term[k].x)[at + j];
    for (int j = 0; j < count; j++) vx_f32_of(a->out)[at + j] = t[j];
}

static void blend_line(const void *ctx, int64_t n, const int64_t *offset, const int64_t *step)
{
    int64_t i = 0;
    (void)step; // contiguous by contract
    for (; i + BLOCK <= n; i += BLOCK) blend_block(ctx, offset[0] + i, BLOCK);
    for (; i < n; i++) blend_block(ctx, offset[0] + i, 1);
}

vx_status vx_cpu_blend(vx_device *dev, const vx_blend_args *a)
{
    const vx_walk walk = vx_walk_of(1, &a->out);
    vx_walk_run(vx_cpu_of(dev), &walk, blend_line, a);
    return vx_ok();
}
