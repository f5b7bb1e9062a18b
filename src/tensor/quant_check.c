// What makes a quantised matrix one: shapes and formats (no data is read), the values of scales, and every value.
#include "tensor/quant.h"

#include <math.h>
#include <stdio.h>

enum { NVFP4_BLOCK = 16, MXFP8_BLOCK = 32, MOST_ROTATED = 256 };

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static vx_status refuse(const vx_quant *q, vx_dtype stored, vx_code code, const char *what, vx_tensor found, const char *expected)
{
    char shape[96];
    if (found.rank == 0) return vx_fail(code, "%s: %s is missing, expected %s", vx_quant_name(q, stored), what, expected);
    return vx_fail(code, "%s: %s is %s %s, expected %s", vx_quant_name(q, stored), what, vx_dtype_name(found.dtype),
                   vx_shape_text(shape, found), expected);
}

static bool is_one_of(vx_dtype t, const vx_dtype *list)
{
    for (; *list; list++)
        if (*list == t) return true;
    return false;
}

static const vx_dtype f32_only[] = { VX_F32, VX_DTYPE_NONE }, fp8[] = { VX_F8_E4M3, VX_F8_E5M2, VX_DTYPE_NONE },
                      i8_only[] = { VX_I8, VX_DTYPE_NONE }, u8_only[] = { VX_U8, VX_DTYPE_NONE },
                      e4m3_only[] = { VX_F8_E4M3, VX_DTYPE_NONE }, bytes[] = { VX_I8, VX_U8, VX_DTYPE_NONE },
                      e4m3_bytes[] = { VX_F8_E4M3, VX_U8, VX_DTYPE_NONE }, e8m0_bytes[] = { VX_F8_E8M0, VX_U8, VX_DTYPE_NONE },
                      relative[] = { VX_F8_E4M3, VX_U8, VX_F32, VX_DTYPE_NONE },
                      floats[] = { VX_F32, VX_BF16, VX_F16, VX_DTYPE_NONE };

// The formats of a list, as a message names them: "F8_E4M3 or U8".
static const char *formats_text(char out[64], const vx_dtype *list)
{
    size_t used = 0;
    for (int i = 0; list[i] && used < 64; i++)
        used += (size_t)snprintf(out + used, 64 - used, "%s%s", i ? " or " : "", vx_dtype_name(list[i]));
    return out;
}

// A companion or the values: one of `list`, [rows, columns] (rows 0: [columns]); wrong formats before wrong shapes.
static vx_status need(const vx_quant *q, vx_dtype stored, const char *what, vx_tensor t, const vx_dtype *list, int64_t rows,
                      int64_t columns)
{
    char formats[64], expected[160];
    if (rows)
        snprintf(expected, sizeof expected, "%s [%lld,%lld]", formats_text(formats, list), (long long)rows, (long long)columns);
    else snprintf(expected, sizeof expected, "%s [%lld]", formats_text(formats, list), (long long)columns);
    if (t.rank == 0) return refuse(q, stored, VX_ERR_SHAPE, what, t, expected);
    if (!is_one_of(t.dtype, list)) return refuse(q, stored, VX_ERR_DTYPE, what, t, expected);
    const bool fits = rows ? t.rank == 2 && t.shape[0] == rows && t.shape[1] == columns : t.rank == 1 && t.shape[0] == columns;
    if (!fits || (rows && t.shape[1] > 1 && t.stride[1] != 1)) return refuse(q, stored, VX_ERR_SHAPE, what, t, expected);
    return vx_ok();
}

static vx_status need_none(const vx_quant *q, vx_dtype stored, const char *what, vx_tensor t)
{
    return t.rank ? refuse(q, stored, VX_ERR_SHAPE, what, t, "none") : vx_ok();
}

// Scales of rows: one for the tensor (where it may be), or enough for the rows of this slice.
static vx_status need_scale(const vx_quant *q, vx_tensor values, bool tensor, bool row)
{
    const vx_tensor s = q->scale;
    const int64_t rows = q->row + values.shape[0];
    char expected[96];
    if (!row) snprintf(expected, sizeof expected, "F32 [1]");
    else snprintf(expected, sizeof expected, "F32 %s[%lld] or longer", tensor ? "[1] or " : "", (long long)rows);
    if (s.rank == 0) return refuse(q, values.dtype, VX_ERR_SHAPE, "scale", s, expected);
    if (s.dtype != VX_F32) return refuse(q, values.dtype, VX_ERR_DTYPE, "scale", s, expected);
    const bool fits = s.rank == 1 && ((tensor && s.shape[0] == 1) || (row && s.shape[0] >= rows));
    return fits ? vx_ok() : refuse(q, values.dtype, VX_ERR_SHAPE, "scale", s, expected);
}

// Scales in 128x4 tiles: whole bands of rows, at least as far as this slice goes.
static vx_status need_tiles(const vx_quant *q, vx_tensor values, int64_t block, const vx_dtype *list)
{
    const vx_tensor s = q->block_scale;
    const int64_t columns = round_up((q->k + block - 1) / block, 4), rows = round_up(q->row + values.shape[0], 128);
    char formats[64], expected[160];
    snprintf(expected, sizeof expected, "%s [%lld or more,%lld] in tiles of 128x4", formats_text(formats, list), (long long)rows,
             (long long)columns);
    if (s.rank == 0) return refuse(q, values.dtype, VX_ERR_SHAPE, "block_scale", s, expected);
    if (!is_one_of(s.dtype, list)) return refuse(q, values.dtype, VX_ERR_DTYPE, "block_scale", s, expected);
    if (s.rank != 2 || s.shape[0] < rows || s.shape[0] % 128 || s.shape[1] != columns || !vx_tensor_contiguous(s))
        return refuse(q, values.dtype, VX_ERR_SHAPE, "block_scale", s, expected);
    return vx_ok();
}

static vx_status check_rotation(const vx_quant *q, vx_dtype stored)
{
    const int g = q->rotate;
    const bool may = q->kind == VX_QUANT_INT8 || q->kind == VX_QUANT_INT4 || q->kind == VX_QUANT_W4A8;
    if (g == 0) return vx_ok();
    if (!may) return vx_fail(VX_ERR_SHAPE, "%s: rotated in groups of %d, expected not to be", vx_quant_name(q, stored), g);
    if (g != 4 && g != 16 && g != 64 && g != MOST_ROTATED)
        return vx_fail(VX_ERR_SHAPE, "%s: rotated in groups of %d, expected 4, 16, 64 or 256", vx_quant_name(q, stored), g);
    if (q->k % g)
        return vx_fail(VX_ERR_SHAPE, "%s: rotated in groups of %d, which do not divide %lld columns", vx_quant_name(q, stored), g,
                       (long long)q->k);
    return vx_ok();
}

static vx_status check_w4a8(const vx_quant *q, vx_tensor values)
{
    const vx_dtype stored = values.dtype;
    if (q->k % 2)
        return vx_fail(VX_ERR_SHAPE, "%s: %lld columns, expected an even number", vx_quant_name(q, stored), (long long)q->k);
    if (q->group < 1 || q->k % q->group)
        return vx_fail(VX_ERR_SHAPE, "%s: groups of %d do not divide %lld columns", vx_quant_name(q, stored), q->group,
                       (long long)q->k);
    VX_TRY(need(q, stored, "values", values, bytes, values.shape[0], q->k / 2));
    VX_TRY(need_scale(q, values, false, true));
    const int64_t rows = q->scale.shape[0], groups = q->k / q->group;
    VX_TRY(need(q, stored, "block_scale", q->block_scale, relative, rows, groups));
    if (!vx_tensor_contiguous(q->block_scale))
        return refuse(q, stored, VX_ERR_SHAPE, "block_scale", q->block_scale, "no gaps between its rows");
    if (q->codebook.rank) VX_TRY(need(q, stored, "codebook", q->codebook, f32_only, 0, 16));
    if (q->correction.rank) VX_TRY(need(q, stored, "correction", q->correction, floats, groups, rows));
    return vx_ok();
}

static vx_status check_gguf(const vx_quant *q, vx_tensor values)
{
    const int block = vx_gguf_block(q->type);
    if (!block) {
        const char *name = vx_gguf_name(q->type);
        return vx_fail(VX_ERR_DTYPE, "GGUF type %d (%s) is not decoded here", q->type, name ? name : "unknown");
    }
    if (q->k % block)
        return vx_fail(VX_ERR_SHAPE, "%s: %lld columns are no whole blocks of %d", vx_gguf_name(q->type), (long long)q->k, block);
    return need(q, values.dtype, "values", values, u8_only, values.shape[0], q->k / block * vx_gguf_block_bytes(q->type));
}

// What a kind has no use for must not be there: it would be silently ignored.
static vx_status check_superfluous(const vx_quant *q, vx_dtype t)
{
    const bool scaled = q->kind != VX_QUANT_MXFP8 && q->kind != VX_QUANT_GGUF;
    const bool blocks = q->kind == VX_QUANT_NVFP4 || q->kind == VX_QUANT_MXFP8 || q->kind == VX_QUANT_W4A8;
    if (!scaled) VX_TRY(need_none(q, t, "scale", q->scale));
    if (!blocks) VX_TRY(need_none(q, t, "block_scale", q->block_scale));
    if (q->kind == VX_QUANT_W4A8) return vx_ok();
    VX_TRY(need_none(q, t, "codebook", q->codebook));
    return need_none(q, t, "correction", q->correction);
}

vx_status vx_quant_check(const vx_quant *q, vx_tensor values)
{
    const vx_dtype t = values.dtype;
    if (q->kind <= VX_QUANT_NONE || q->kind >= VX_QUANT_KINDS)
        return vx_fail(VX_ERR_DTYPE, "quantised kind %d is unknown", (int)q->kind);
    if (values.rank != 2) return refuse(q, t, VX_ERR_SHAPE, "values", values, "a matrix");
    if (q->k < 1 || q->row < 0)
        return vx_fail(VX_ERR_SHAPE, "%s: %lld columns from row %lld on, expected a matrix", vx_quant_name(q, t), (long long)q->k,
                       (long long)q->row);
    VX_TRY(check_rotation(q, t));
    VX_TRY(check_superfluous(q, t));
    if (q->pre_scale.rank) VX_TRY(need(q, t, "pre_scale", q->pre_scale, floats, 0, q->k));
    const int64_t n = values.shape[0];
    switch (q->kind) {
    case VX_QUANT_FP8: VX_TRY(need(q, t, "values", values, fp8, n, q->k)); return need_scale(q, values, true, true);
    case VX_QUANT_INT8: VX_TRY(need(q, t, "values", values, i8_only, n, q->k)); return need_scale(q, values, true, true);
    case VX_QUANT_INT4:
        if (q->k % 2)
            return vx_fail(VX_ERR_SHAPE, "%s: %lld columns, expected an even number", vx_quant_name(q, t), (long long)q->k);
        VX_TRY(need(q, t, "values", values, bytes, n, q->k / 2));
        return need_scale(q, values, true, true);
    case VX_QUANT_NVFP4:
        VX_TRY(need(q, t, "values", values, u8_only, n, round_up(q->k, NVFP4_BLOCK) / 2));
        VX_TRY(need_scale(q, values, true, false));
        return need_tiles(q, values, NVFP4_BLOCK, e4m3_bytes);
    case VX_QUANT_MXFP8:
        VX_TRY(need(q, t, "values", values, e4m3_only, n, round_up(q->k, MXFP8_BLOCK)));
        return need_tiles(q, values, MXFP8_BLOCK, e8m0_bytes);
    case VX_QUANT_W4A8: return check_w4a8(q, values);
    default: return check_gguf(q, values);
    }
}

// ---- values of scales ------------------------------------------------------------------------------------------------------
static float float_at(vx_tensor t, int64_t i)
{
    uint16_t h;
    if (t.dtype == VX_F32) {
        float x;
        memcpy(&x, (const char *)t.data + 4 * i, 4);
        return x;
    }
    memcpy(&h, (const char *)t.data + 2 * i, 2);
    return t.dtype == VX_BF16 ? vx_bf16_to_f32(h) : vx_f16_to_f32(h);
}

static vx_status refuse_scale(const vx_quant *q, vx_dtype stored, const char *what, int64_t i, float found, const char *expected)
{
    return vx_fail(VX_ERR_QUANT_SCALE, "%s: %s %lld is %g, expected %s", vx_quant_name(q, stored), what, (long long)i,
                   (double)found, expected);
}

static bool row_is_zero(const vx_quant *q, vx_tensor values, int64_t r)
{
    const uint8_t *row = (const uint8_t *)values.data + r * values.stride[0];
    const bool sign_only = q->kind == VX_QUANT_FP8 || q->kind == VX_QUANT_NVFP4; // -0 is zero
    const uint8_t mask = !sign_only ? 0xff : q->kind == VX_QUANT_FP8 ? 0x7f : 0x77;
    for (int64_t i = 0; i < values.shape[1]; i++)
        if (row[i] & mask) return false;
    return true;
}

// F32 scales: finite and not negative, and zero only over zeros. Asymmetric codes have no zero code to look for.
static vx_status check_f32_scales(const vx_quant *q, vx_tensor values)
{
    const bool one = q->scale.shape[0] == 1;
    const int64_t rows = values.shape[0];
    for (int64_t r = 0; r < (one ? 1 : rows); r++) {
        const int64_t at = one ? 0 : q->row + r;
        const float s = float_at(q->scale, at * q->scale.stride[0]);
        if (!isfinite(s) || s < 0) return refuse_scale(q, values.dtype, "scale", at, s, "a finite number, not negative");
        if (s != 0 || q->kind == VX_QUANT_W4A8) continue;
        for (int64_t i = r; i < (one ? rows : r + 1); i++)
            if (!row_is_zero(q, values, i))
                return refuse_scale(q, values.dtype, "scale", at, s, "more than 0 where the values are not all 0");
    }
    return vx_ok();
}

// Bytes of E4M3 without sign and NaN, or of E8M0 below 0xff, eight at a time. The place of the first other one, or -1.
static int64_t bad_scale_byte(const uint8_t *p, int64_t count, bool e8m0)
{
    const uint64_t high = 0x8080808080808080u, ones = 0x0101010101010101u;
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        uint64_t u;
        memcpy(&u, p + i, 8);
        // e4m3: no bit 7, and adding one to the other seven does not reach it. e8m0: the complement has no zero byte.
        const uint64_t bad = e8m0 ? (~u - ones) & u & high : (u | ((u & ~high) + ones)) & high;
        if (bad) break;
    }
    for (; i < count; i++)
        if (e8m0 ? p[i] == 0xff : p[i] >= 0x7f) return i;
    return -1;
}

static vx_status check_block_scales(const vx_quant *q, vx_tensor values)
{
    const vx_tensor s = q->block_scale;
    const bool e8m0 = q->kind == VX_QUANT_MXFP8;
    // A slice looks at its own rows, and in tiles at the bands that hold them.
    const int64_t first = e8m0 || q->kind == VX_QUANT_NVFP4 ? q->row / 128 * 128 : q->row;
    const int64_t end =
        first == q->row && q->kind == VX_QUANT_W4A8 ? q->row + values.shape[0] : round_up(q->row + values.shape[0], 128);
    const int64_t begin = first * s.shape[1], count = (end - first) * s.shape[1];
    if (s.dtype == VX_F32) {
        for (int64_t i = begin; i < begin + count; i++) {
            const float x = float_at(s, i);
            if (!isfinite(x) || x < 0) return refuse_scale(q, values.dtype, "block scale", i, x, "a finite number, not negative");
        }
        return vx_ok();
    }
    const int64_t bad = bad_scale_byte((const uint8_t *)s.data + begin, count, e8m0);
    if (bad < 0) return vx_ok();
    return vx_fail(VX_ERR_QUANT_SCALE, "%s: block scale %lld is the byte 0x%02x, expected %s", vx_quant_name(q, values.dtype),
                   (long long)(begin + bad), ((const uint8_t *)s.data)[begin + bad],
                   e8m0 ? "less than 0xff" : "at most 0x7e: neither negative nor NaN");
}

static vx_status check_finite(const vx_quant *q, vx_dtype stored, const char *what, vx_tensor t)
{
    const int64_t columns = t.rank == 2 ? t.shape[1] : t.rank ? t.shape[0] : 0, rows = t.rank == 2 ? t.shape[0] : 1;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < columns; i++) {
            const float x = float_at(t, t.rank == 2 ? r * t.stride[0] + i : i * t.stride[0]);
            if (!isfinite(x)) return refuse_scale(q, stored, what, r * columns + i, x, "a finite number");
        }
    }
    return vx_ok();
}

vx_status vx_quant_check_scales(const vx_quant *q, vx_tensor values)
{
    if (q->kind == VX_QUANT_NONE || values.shape[0] == 0) return vx_ok();
    if (q->scale.rank) VX_TRY(check_f32_scales(q, values));
    if (q->block_scale.rank) VX_TRY(check_block_scales(q, values));
    VX_TRY(check_finite(q, values.dtype, "codebook entry", q->codebook));
    VX_TRY(check_finite(q, values.dtype, "correction", q->correction));
    return check_finite(q, values.dtype, "factor of the input", q->pre_scale);
}

// ---- every value -----------------------------------------------------------------------------------------------------------
static vx_status refuse_value(const vx_quant *q, vx_dtype stored, int64_t row, int64_t column, float found)
{
    return vx_fail(VX_ERR_NOT_FINITE, "%s: row %lld, column %lld is %g", vx_quant_name(q, stored), (long long)row,
                   (long long)column, (double)found);
}

// Integers and E2M1 have no code that is not finite: with scales that were checked only a huge one could overflow.
static bool is_always_finite(const vx_quant *q)
{
    if (q->kind != VX_QUANT_INT8 && q->kind != VX_QUANT_INT4 && q->kind != VX_QUANT_NVFP4 && q->kind != VX_QUANT_W4A8)
        return false;
    if (q->correction.rank) return false;
    for (int64_t i = 0; i < q->scale.shape[0]; i++)
        if (!(float_at(q->scale, i * q->scale.stride[0]) < 0x1p100f)) return false;
    return true;
}

static vx_status verify_rows(const vx_quant *q, vx_tensor values)
{
    float out[256];
    for (int64_t r = 0; r < values.shape[0]; r++) {
        for (int64_t c = 0; c < q->k; c += 256) {
            const int64_t end = c + 256 < q->k ? c + 256 : q->k;
            vx_quant_decode(q, values, r, c, end, false, out);
            float sum = 0; // of x - x, which is 0 or NaN
            for (int64_t i = 0; i < end - c; i++) sum += out[i] - out[i];
            if (sum == 0) continue;
            for (int64_t i = 0; i < end - c; i++)
                if (!isfinite(out[i])) return refuse_value(q, values.dtype, r, c + i, out[i]);
        }
    }
    return vx_ok();
}

// A plain tensor of any rank and strides, axis by axis.
static vx_status verify_plain(vx_tensor t, int64_t *before)
{
    const vx_quant none = { 0 };
    if (t.rank > 1) {
        for (int64_t i = 0; i < t.shape[0]; i++) VX_TRY(verify_plain(vx_tensor_row(t, i), before));
        return vx_ok();
    }
    const int64_t n = t.rank ? t.shape[0] : 0;
    for (int64_t i = 0; i < n; i++) {
        const float x = float_at(t, i * t.stride[0]);
        if (!isfinite(x)) return refuse_value(&none, t.dtype, *before, i, x);
    }
    (*before)++;
    return vx_ok();
}

vx_status vx_quant_verify(const vx_quant *q, vx_tensor values)
{
    int64_t rows = 0;
    if (q->kind == VX_QUANT_NONE) return is_one_of(values.dtype, floats) ? verify_plain(values, &rows) : vx_ok();
    VX_TRY(vx_quant_check_scales(q, values));
    return is_always_finite(q) ? vx_ok() : verify_rows(q, values);
}
