// The decoders of quantised matrices, a stretch of a row at a time: the definition that vector versions follow bit by bit.
// ggml's blocks are in quant_gguf.c, the checks in quant_check.c.
#include "tensor/quant.h"

#include "tensor/quant_gguf.h"
#include <math.h>

enum {
    NVFP4_BLOCK = 16,
    MXFP8_BLOCK = 32,
    STRETCH = 256, // columns decoded at once: a multiple of every step
};

int64_t vx_quant_tiled(int64_t columns, int64_t r, int64_t c)
{
    const int64_t tiles = (columns + 3) / 4;
    return (r / 128 * tiles + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
}

void vx_convrot(float *x, int64_t count, int group)
{
    float root = 1;
    for (int s = 1; s < group; s *= 4) root *= 0.5f;
    for (int64_t g = 0; g < count; g += group) {
        float *p = x + g;
        for (int s = 1; s < group; s *= 4) {
            for (int i = 0; i < group; i++) {
                if (i / s % 4) continue;
                const float a = p[i] + p[i + s], b = p[i + 2 * s] + p[i + 3 * s];
                const float c = p[i] - p[i + s], d = p[i + 2 * s] - p[i + 3 * s];
                p[i] = a + d;
                p[i + s] = a - d;
                p[i + 2 * s] = b + c;
                p[i + 3 * s] = b - c;
            }
        }
        for (int i = 0; i < group; i++) p[i] *= root;
    }
}

const char *vx_quant_name(const vx_quant *quant, vx_dtype stored)
{
    switch (quant->kind) {
    case VX_QUANT_FP8: return stored == VX_F8_E5M2 ? "fp8_e5m2" : "fp8_e4m3";
    case VX_QUANT_INT8: return quant->rotate ? "int8_convrot" : "int8";
    case VX_QUANT_NVFP4: return quant->pre_scale.rank ? "nvfp4_awq" : "nvfp4";
    case VX_QUANT_MXFP8: return "mxfp8";
    case VX_QUANT_INT4: return quant->rotate ? "convrot_w4a4" : "int4";
    case VX_QUANT_W4A8: return "asym_w4a8_int8";
    case VX_QUANT_GGUF: return vx_gguf_name(quant->type) ? vx_gguf_name(quant->type) : "unknown GGUF type";
    default: return vx_dtype_name(stored);
    }
}

double vx_quant_bits(const vx_quant *quant, vx_dtype stored)
{
    const double k = quant->k > 0 ? (double)quant->k : 1;
    const double row = quant->scale.rank && quant->scale.shape[0] > 1 ? 32 / k : 0;
    switch (quant->kind) {
    case VX_QUANT_FP8:
    case VX_QUANT_INT8: return 8 + row;
    case VX_QUANT_NVFP4: return 4 + 8.0 / NVFP4_BLOCK;
    case VX_QUANT_MXFP8: return 8 + 8.0 / MXFP8_BLOCK;
    case VX_QUANT_INT4: return 4 + row;
    case VX_QUANT_W4A8: {
        double scales = vx_dtype_bits(quant->block_scale.dtype);
        if (quant->correction.rank) scales += vx_dtype_bits(quant->correction.dtype);
        return 4 + scales / (quant->group > 0 ? quant->group : 1) + row;
    }
    case VX_QUANT_GGUF:
        return vx_gguf_block(quant->type) ? 8.0 * vx_gguf_block_bytes(quant->type) / vx_gguf_block(quant->type) : 0;
    default: return vx_dtype_bits(stored);
    }
}

int64_t vx_quant_step(const vx_quant *quant)
{
    switch (quant->kind) {
    case VX_QUANT_NVFP4: return NVFP4_BLOCK;
    case VX_QUANT_MXFP8: return MXFP8_BLOCK;
    case VX_QUANT_INT4:
    case VX_QUANT_W4A8: return quant->rotate ? quant->rotate : 2;
    case VX_QUANT_INT8: return quant->rotate ? quant->rotate : 1;
    case VX_QUANT_GGUF: return vx_gguf_block(quant->type);
    default: return 1;
    }
}

static const uint8_t *row_of(vx_tensor values, int64_t r)
{
    return (const uint8_t *)values.data + r * values.stride[0]; // all formats are of bytes
}

static float f32_at(vx_tensor t, int64_t i)
{
    float x;
    memcpy(&x, (const char *)t.data + i * t.stride[0] * 4, 4);
    return x;
}

// The scale of a row, or the tensor's only one.
static float scale_of(const vx_quant *q, int64_t r)
{
    return f32_at(q->scale, q->scale.shape[0] == 1 ? 0 : q->row + r);
}

static int nibble(const uint8_t *row, int64_t column)
{
    return (row[column / 2] >> (column & 1 ? 4 : 0)) & 15;
}

static void decode_fp8(const vx_quant *q, vx_tensor values, int64_t r, int64_t begin, int64_t count, bool as_bf16, float *out)
{
    const uint8_t *row = row_of(values, r) + begin;
    float scale = scale_of(q, r);
    if (as_bf16 && q->scale.shape[0] == 1) scale = vx_round_bf16(scale);
    for (int64_t i = 0; i < count; i++)
        out[i] = (values.dtype == VX_F8_E5M2 ? vx_e5m2_to_f32(row[i]) : vx_e4m3_to_f32(row[i])) * scale;
}

static void rotate_and_scale(const vx_quant *q, float scale, int64_t count, float *out)
{
    if (q->rotate) vx_convrot(out, count, q->rotate);
    for (int64_t i = 0; i < count; i++) out[i] *= scale;
}

static void decode_int8(const vx_quant *q, vx_tensor values, int64_t r, int64_t begin, int64_t count, float *out)
{
    const int8_t *row = (const int8_t *)row_of(values, r) + begin;
    for (int64_t i = 0; i < count; i++) out[i] = row[i];
    rotate_and_scale(q, scale_of(q, r), count, out);
}

static void decode_int4(const vx_quant *q, vx_tensor values, int64_t r, int64_t begin, int64_t count, float *out)
{
    const uint8_t *row = row_of(values, r);
    for (int64_t i = 0; i < count; i++) out[i] = (float)((nibble(row, begin + i) ^ 8) - 8);
    rotate_and_scale(q, scale_of(q, r), count, out);
}

static float relative_scale(const vx_quant *q, int64_t r, int64_t g)
{
    const int64_t i = (q->row + r) * q->block_scale.shape[1] + g;
    if (q->block_scale.dtype == VX_F32) {
        float x;
        memcpy(&x, (const char *)q->block_scale.data + 4 * i, 4);
        return x;
    }
    return vx_e4m3_to_f32(((const uint8_t *)q->block_scale.data)[i]);
}

static float correction_of(const vx_quant *q, int64_t r, int64_t g)
{
    const vx_tensor t = q->correction;
    const int64_t i = g * t.stride[0] + (q->row + r) * t.stride[1];
    uint16_t h;
    float x;
    if (t.dtype == VX_F32) {
        memcpy(&x, (const char *)t.data + 4 * i, 4);
        return x;
    }
    memcpy(&h, (const char *)t.data + 2 * i, 2);
    return t.dtype == VX_BF16 ? vx_bf16_to_f32(h) : vx_f16_to_f32(h);
}

static void decode_w4a8(const vx_quant *q, vx_tensor values, int64_t r, int64_t begin, int64_t count, float *out)
{
    const uint8_t *row = row_of(values, r);
    const float scale = scale_of(q, r);
    for (int64_t i = 0; i < count; i++) {
        const int code = nibble(row, begin + i);
        const int64_t g = (begin + i) / q->group;
        const float v = q->codebook.rank ? f32_at(q->codebook, code) : (float)(code - 8);
        float x = rintf(v * relative_scale(q, r, g)) + 0.0f; // no -0: the butterfly's order would show in the sign of zeros
        x = x < -127 ? -127 : x > 127 ? 127 : x;
        out[i] = q->correction.rank ? x * scale + correction_of(q, r, g) : x;
    }
    if (!q->correction.rank) rotate_and_scale(q, scale, count, out);
    else if (q->rotate) vx_convrot(out, count, q->rotate);
}

static void decode_nvfp4(const vx_quant *q, vx_tensor values, int64_t r, int64_t begin, int64_t count, float *out)
{
    const uint8_t *row = row_of(values, r), *block_scale = q->block_scale.data;
    const float scale = f32_at(q->scale, 0);
    const int64_t blocks = (q->k + NVFP4_BLOCK - 1) / NVFP4_BLOCK;
    for (int64_t i = 0; i < count; i++) {
        const int64_t column = begin + i;
        const float e = vx_e4m3_to_f32(block_scale[vx_quant_tiled(blocks, q->row + r, column / NVFP4_BLOCK)]);
        out[i] = vx_e2m1_to_f32((uint8_t)nibble(row, column ^ 1)) * (e * scale);
    }
}

static void decode_mxfp8(const vx_quant *q, vx_tensor values, int64_t r, int64_t begin, int64_t count, float *out)
{
    const uint8_t *row = row_of(values, r) + begin, *block_scale = q->block_scale.data;
    const int64_t blocks = (q->k + MXFP8_BLOCK - 1) / MXFP8_BLOCK;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t e = block_scale[vx_quant_tiled(blocks, q->row + r, (begin + i) / MXFP8_BLOCK)];
        out[i] = vx_e4m3_to_f32(row[i]) * (e ? vx_e8m0_to_f32(e) : 0.0f);
    }
}

static void decode_gguf(const vx_quant *q, vx_tensor values, int64_t r, int64_t begin, int64_t count, float *out)
{
    const int block = vx_gguf_block(q->type), bytes = vx_gguf_block_bytes(q->type);
    const uint8_t *from = row_of(values, r) + begin / block * bytes;
    for (int64_t i = 0; i < count; i += block, from += bytes) vx_gguf_decode(q->type, from, out + i);
}

static void decode_plain(vx_tensor values, int64_t r, int64_t begin, int64_t count, float *out)
{
    const char *row = (const char *)values.data + r * values.stride[0] * (vx_dtype_bits(values.dtype) / 8);
    for (int64_t i = 0; i < count; i++) {
        uint16_t h;
        if (values.dtype == VX_F32) {
            memcpy(out + i, row + 4 * (begin + i), 4);
            continue;
        }
        memcpy(&h, row + 2 * (begin + i), 2);
        out[i] = values.dtype == VX_BF16 ? vx_bf16_to_f32(h) : vx_f16_to_f32(h);
    }
}

void vx_quant_decode(const vx_quant *quant, vx_tensor values, int64_t r, int64_t begin, int64_t end, bool as_bf16, float *out)
{
    const int64_t count = end - begin;
    switch (quant->kind) {
    case VX_QUANT_FP8: decode_fp8(quant, values, r, begin, count, as_bf16, out); break;
    case VX_QUANT_INT8: decode_int8(quant, values, r, begin, count, out); break;
    case VX_QUANT_NVFP4: decode_nvfp4(quant, values, r, begin, count, out); break;
    case VX_QUANT_MXFP8: decode_mxfp8(quant, values, r, begin, count, out); break;
    case VX_QUANT_INT4: decode_int4(quant, values, r, begin, count, out); break;
    case VX_QUANT_W4A8: decode_w4a8(quant, values, r, begin, count, out); break;
    case VX_QUANT_GGUF: decode_gguf(quant, values, r, begin, count, out); break;
    default: decode_plain(values, r, begin, count, out); break;
    }
    if (as_bf16)
        for (int64_t i = 0; i < count; i++) out[i] = vx_round_bf16(out[i]);
}
