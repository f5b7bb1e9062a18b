// A matrix of every quantised format, of random bytes: for the tests of what multiplies them.
#ifndef VX_TEST_QUANTISED_H
#define VX_TEST_QUANTISED_H

#include "products.h"

#include "tensor/quant.h"

// A matrix of random bytes with the companions of its kind.
typedef struct matrix {
    vx_quant quant;
    vx_tensor values;
    void *owned[6];
    int count;
} matrix;

typedef struct format {
    const char *says;
    vx_quant_kind kind;
    int type, rotate, group;
    vx_dtype stored;
    bool by_row, book, corrected, scaled_input;
} format;

static const format formats[] = {
    { "fp8 e4m3, tensor", VX_QUANT_FP8, 0, 0, 0, VX_F8_E4M3, false, false, false, false },
    { "fp8 e4m3, rows", VX_QUANT_FP8, 0, 0, 0, VX_F8_E4M3, true, false, false, false },
    { "fp8 e5m2, tensor", VX_QUANT_FP8, 0, 0, 0, VX_F8_E5M2, false, false, false, false },
    { "int8, tensor", VX_QUANT_INT8, 0, 0, 0, VX_I8, false, false, false, false },
    { "int8, rows", VX_QUANT_INT8, 0, 0, 0, VX_I8, true, false, false, false },
    { "int8, rotated 4", VX_QUANT_INT8, 0, 4, 0, VX_I8, true, false, false, false },
    { "int8, rotated 16", VX_QUANT_INT8, 0, 16, 0, VX_I8, true, false, false, false },
    { "int8, rotated 64", VX_QUANT_INT8, 0, 64, 0, VX_I8, true, false, false, false },
    { "int8, rotated 256", VX_QUANT_INT8, 0, 256, 0, VX_I8, true, false, false, false },
    { "nvfp4", VX_QUANT_NVFP4, 0, 0, 0, VX_U8, false, false, false, false },
    { "nvfp4 awq", VX_QUANT_NVFP4, 0, 0, 0, VX_U8, false, false, false, true },
    { "mxfp8", VX_QUANT_MXFP8, 0, 0, 0, VX_F8_E4M3, false, false, false, false },
    { "int4", VX_QUANT_INT4, 0, 0, 0, VX_I8, true, false, false, false },
    { "int4, rotated 256", VX_QUANT_INT4, 0, 256, 0, VX_I8, true, false, false, false },
    { "w4a8, uniform", VX_QUANT_W4A8, 0, 256, 16, VX_I8, true, false, false, false },
    { "w4a8, codebook", VX_QUANT_W4A8, 0, 256, 16, VX_I8, true, true, false, false },
    { "w4a8, correction", VX_QUANT_W4A8, 0, 256, 32, VX_I8, true, true, true, false },
    { "w4a8, groups of 8", VX_QUANT_W4A8, 0, 64, 8, VX_I8, true, true, true, false },
    { "Q4_0", VX_QUANT_GGUF, 2, 0, 0, VX_U8, false, false, false, false },
    { "Q4_1", VX_QUANT_GGUF, 3, 0, 0, VX_U8, false, false, false, false },
    { "Q5_0", VX_QUANT_GGUF, 6, 0, 0, VX_U8, false, false, false, false },
    { "Q5_1", VX_QUANT_GGUF, 7, 0, 0, VX_U8, false, false, false, false },
    { "Q8_0", VX_QUANT_GGUF, 8, 0, 0, VX_U8, false, false, false, false },
    { "Q2_K", VX_QUANT_GGUF, 10, 0, 0, VX_U8, false, false, false, false },
    { "Q3_K", VX_QUANT_GGUF, 11, 0, 0, VX_U8, false, false, false, false },
    { "Q4_K", VX_QUANT_GGUF, 12, 0, 0, VX_U8, false, false, false, false },
    { "Q5_K", VX_QUANT_GGUF, 13, 0, 0, VX_U8, false, false, false, false },
    { "Q6_K", VX_QUANT_GGUF, 14, 0, 0, VX_U8, false, false, false, false },
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static inline uint64_t bits(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static inline void *own(matrix *m, size_t bytes)
{
    void *p = vx_alloc(bytes ? bytes : 1);
    assert_non_null(p);
    m->owned[m->count++] = p;
    return p;
}

static inline vx_tensor floats(matrix *m, int64_t n, uint64_t *seed, float base, float spread)
{
    float *p = own(m, (size_t)n * 4);
    for (int64_t i = 0; i < n; i++) p[i] = base + spread * next_number(seed);
    return vx_tensor_of(p, VX_F32, n);
}

static inline vx_tensor byte_tensor(matrix *m, vx_dtype t, int64_t rows, int64_t columns, uint64_t *seed, unsigned least,
                                    unsigned most)
{
    uint8_t *p = own(m, (size_t)(rows * columns));
    for (int64_t i = 0; i < rows * columns; i++) p[i] = (uint8_t)(least + bits(seed) % (most - least + 1));
    return vx_tensor_of(p, t, rows, columns);
}

// In the blocks of ggml the f16 among the bytes become small numbers, lest everything be infinite.
static inline void tame_halves(vx_tensor values, int type)
{
    static const int at[15][2] = { [3] = { 0, 2 },  [7] = { 0, 2 },  [10] = { 80, 82 },  [11] = { 108, 108 },
                                   [12] = { 0, 2 }, [13] = { 0, 2 }, [14] = { 208, 208 } };
    const int bytes = vx_gguf_block_bytes(type);
    uint8_t *p = values.data;
    for (int64_t b = 0; b < vx_tensor_count(values) / bytes; b++)
        for (int i = 0; i < 2; i++) p[b * bytes + at[type][i] + 1] = (p[b * bytes + at[type][i] + 1] & 0x83) | 0x20;
}

static inline matrix make_matrix(const format *f, int64_t n, int64_t k, int64_t row, uint64_t seed)
{
    matrix m = { .quant = { .kind = f->kind, .type = f->type, .rotate = f->rotate, .group = f->group, .k = k, .row = row } };
    vx_quant *q = &m.quant;
    int64_t width = k;
    if (f->kind == VX_QUANT_NVFP4) width = (k + 15) / 16 * 8;
    else if (f->kind == VX_QUANT_MXFP8) width = (k + 31) / 32 * 32;
    else if (f->kind == VX_QUANT_INT4 || f->kind == VX_QUANT_W4A8) width = k / 2;
    else if (f->kind == VX_QUANT_GGUF) width = k / vx_gguf_block(f->type) * vx_gguf_block_bytes(f->type);
    m.values = byte_tensor(&m, f->stored, n, width, &seed, 0, 255);
    if (f->kind == VX_QUANT_GGUF) tame_halves(m.values, f->type);
    uint8_t *v = m.values.data;
    for (int64_t i = 0; i < n * width && (f->stored == VX_F8_E4M3 || f->stored == VX_F8_E5M2); i++)
        if ((v[i] & 0x7f) >= (f->stored == VX_F8_E4M3 ? 0x7f : 0x7c)) v[i] = 0x31; // no NaN: sums must say something
    if (f->kind != VX_QUANT_MXFP8 && f->kind != VX_QUANT_GGUF)
        q->scale = floats(&m, f->by_row ? row + n : 1, &seed, 0.02f, 0.01f);
    const int64_t bands = (row + n + 127) / 128 * 128;
    if (f->kind == VX_QUANT_NVFP4)
        q->block_scale = byte_tensor(&m, VX_F8_E4M3, bands, ((k + 15) / 16 + 3) / 4 * 4, &seed, 0, 0x7e);
    if (f->kind == VX_QUANT_MXFP8) q->block_scale = byte_tensor(&m, VX_U8, bands, ((k + 31) / 32 + 3) / 4 * 4, &seed, 120, 128);
    if (f->kind == VX_QUANT_W4A8) q->block_scale = byte_tensor(&m, VX_F8_E4M3, row + n, k / f->group, &seed, 0, 0x6a);
    if (f->book) q->codebook = floats(&m, 16, &seed, 0, 1);
    if (f->corrected) {
        q->correction = floats(&m, k / f->group * (row + n), &seed, 0, 0.3f);
        q->correction = vx_tensor_of(q->correction.data, VX_F32, k / f->group, row + n);
    }
    if (f->scaled_input) q->pre_scale = floats(&m, k, &seed, 1, 0.5f);
    assert_ok(vx_quant_check(q, m.values));
    return m;
}

static inline void free_matrix(matrix *m)
{
    for (int i = 0; i < m->count; i++) vx_free(m->owned[i]);
}

// Widths with whole groups and, where the format allows it, tails.
static inline int64_t odd_width(const format *f)
{
    switch (f->kind) {
    case VX_QUANT_GGUF: return vx_gguf_block(f->type) * 3;
    case VX_QUANT_INT4: return f->rotate ? 768 : 534;
    case VX_QUANT_W4A8: return 768;
    case VX_QUANT_INT8: return f->rotate ? f->rotate * (f->rotate > 64 ? 3 : 9) : 531;
    case VX_QUANT_NVFP4: return 547;
    case VX_QUANT_MXFP8: return 523;
    default: return 541;
    }
}

#endif
