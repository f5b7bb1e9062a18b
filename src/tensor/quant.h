// Quantised matrices: what their bytes mean (checkpoints specification, sections 3 and 4). A matrix of n rows and k columns is
// stored row by row; every row can be decoded by itself, a stretch of whole groups at a time.
//
// Decoding is defined for two results, operation by operation in binary32, so that any processor gives the same bits. F32: the
// value that the format means. BF16: that value rounded once, unless a kind says otherwise. Subnormal scales count.
//   FP8     w * scale. BF16 with one scale for the tensor: bf16(w * bf16(scale)), as ComfyUI's eager tools do
//   INT8    q * scale; rotated: ((H q) / sqrt(G)) * scale, where the sum of integers is exact and scale is the only rounding
//   NVFP4   code * (e4m3(block scale) * scale), two products; BF16 is one rounding of that
//   MXFP8   w * 2^(b - 127); b = 0 means 0.0
//   INT4    as INT8
//   W4A8    i = clamp(rint(v * s_rel), -127, 127), v = codebook[c] or c - 8; then as INT8 with scale; with a correction
//           (i * scale) + correction, then vx_convrot in f32
//   GGUF    ggml's formulas, products from left to right, then the one difference or sum
// Sources: comfy-kitchen's eager back end, ggml's reference decoders, section 9 of the specification where tools disagree.
#ifndef VX_TENSOR_QUANT_H
#define VX_TENSOR_QUANT_H

#include "tensor/tensor.h"

typedef enum vx_quant_kind {
    VX_QUANT_NONE,  // a plain tensor
    VX_QUANT_FP8,   // values F8_E4M3|F8_E5M2 [n,k]; scale F32 [1] or [n]
    VX_QUANT_INT8,  // values I8 [n,k]; scale F32 [1] or [n]; rotated in groups of `rotate` (0: not)
    VX_QUANT_NVFP4, // values U8 [n,rup(k,16)/2], the even element in the high nibble; block_scale F8_E4M3|U8 in 128x4 tiles,
                    // [rup(n,128),rup(k/16,4)]; scale F32 [1]
    VX_QUANT_MXFP8, // values F8_E4M3 [n,rup(k,32)]; block_scale F8_E8M0|U8 in 128x4 tiles, [rup(n,128),rup(k/32,4)]
    VX_QUANT_INT4,  // values I8|U8 [n,k/2], the even element in the low nibble, two's complement; scale F32 [1] or [n]; rotated
    VX_QUANT_W4A8,  // values I8|U8 [n,k/2], low nibble first, unsigned; block_scale F8_E4M3|U8|F32 [n,k/group]; scale F32 [n];
                    // codebook F32 [16] or none; correction F32|BF16|F16 [k/group,n] or none; rotated
    VX_QUANT_GGUF,  // values U8 [n, bytes of a row]; type is ggml's number
    VX_QUANT_KINDS
} vx_quant_kind;

// How the bytes of a matrix are read. All zero: not quantised. The values themselves are a vx_tensor beside it whose shape[0]
// is n, whose shape[1] is the stored width (k, k/2 or bytes) and whose rows may stand any distance apart.
typedef struct vx_quant {
    vx_quant_kind kind;
    int type;              // VX_QUANT_GGUF: 2 Q4_0, 3 Q4_1, 6 Q5_0, 7 Q5_1, 8 Q8_0, 10..14 Q2_K..Q6_K
    int rotate;            // ConvRot group: 4, 16, 64 or 256, dividing k, or 0
    int group;             // VX_QUANT_W4A8: columns that share a block scale
    int64_t k;             // columns
    int64_t row;           // of the first row within its scales: a slice of a matrix keeps its companions whole
    vx_tensor scale;       // F32, rank 1
    vx_tensor block_scale; // contiguous; rank 0: none
    vx_tensor pre_scale;   // [k] F32|BF16|F16 factor of the input, applied in its dtype and rounded; rank 0: none
    vx_tensor codebook, correction;
} vx_quant;

// Name as inspect and docs/formats.md print it: "fp8_e4m3", "int8", "int8_convrot", "nvfp4", "nvfp4_awq", "mxfp8",
// "convrot_w4a4", "asym_w4a8_int8", "Q4_K".
const char *vx_quant_name(const vx_quant *quant, vx_dtype stored);
// Bits that a weight takes with its scales (those of a row counted for k columns, those of a tensor not at all).
double vx_quant_bits(const vx_quant *quant, vx_dtype stored);
// Columns [begin, end) may be decoded where both are multiples of this (or end is k). At most 256.
int64_t vx_quant_step(const vx_quant *quant);
// VX_ERR_SHAPE, VX_ERR_DTYPE naming what does not fit: shapes and formats of the values and all companions. Reads no data.
vx_status vx_quant_check(const vx_quant *quant, vx_tensor values);
// After vx_quant_check, with data. The scales of these rows: each finite and not negative (0 only where all values of its rows
// are 0), E4M3 no NaN, E8M0 not 0xff; codebook, correction and pre_scale finite. VX_ERR_QUANT_SCALE with the place.
// Reads companions only: 1/16 of an NVFP4 matrix; nothing of GGUF, whose scales stand among the values.
vx_status vx_quant_check_scales(const vx_quant *quant, vx_tensor values);
// vx_quant_check_scales, and every value: VX_ERR_NOT_FINITE with row and column of the first that is NaN or infinite, also of a
// plain F32, BF16 or F16 tensor of any shape (kind VX_QUANT_NONE).
vx_status vx_quant_verify(const vx_quant *quant, vx_tensor values);

// Row r of the matrix, columns [begin, end), to f32 (as_bf16: rounded to bf16 values by the kind's own rule, held as f32).
// Pure functions of the bytes; no thread touches another's memory; `out` has room for end - begin.
void vx_quant_decode(const vx_quant *quant, vx_tensor values, int64_t r, int64_t begin, int64_t end, bool as_bf16, float *out);

// In place: groups of `group` (4, 16, 64, 256) times the regular Hadamard matrix of ConvRot; its own inverse.
//   for s = 1, 4, 16, 64 below group, x0..x3 at distance s:  a = x0+x1, b = x2+x3, c = x0-x1, d = x2-x3;
//   x0 = a+d, x1 = a-d, x2 = b+c, x3 = b-c;  after the last, all times 1/sqrt(group)
void vx_convrot(float *x, int64_t count, int group);
// Where the block scale (r, c) of a matrix with `columns` of them stands in 128x4 tiles.
int64_t vx_quant_tiled(int64_t columns, int64_t r, int64_t c);

// ggml's block types: 0 if the number is none that is decoded here.
int vx_gguf_block(int type);        // weights in a block
int vx_gguf_block_bytes(int type);  // bytes of a block
const char *vx_gguf_name(int type); // "Q4_K"; NULL if unknown to ggml

#endif
