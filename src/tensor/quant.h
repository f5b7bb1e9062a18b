// Quantised matrices: what their bytes mean (checkpoints specification, sections 3 and 4). A matrix of n rows and k columns is
// stored row by row; every row can be decoded by itself, a stretch of whole groups at a time.
//
// Decoding is defined for two results. F32: the value that the format means, in binary32, products as written for each kind.
// BF16: what the format's own tools give when they decode to bf16 (one rounding unless a kind says otherwise).
// Sources: comfy-kitchen's eager back end, ggml's reference decoders, the papers named in the checkpoints specification.
#ifndef VX_TENSOR_QUANT_H
#define VX_TENSOR_QUANT_H

#include "tensor/tensor.h"

typedef enum vx_quant_kind {
    VX_QUANT_NONE, // a plain tensor
    VX_QUANT_FP8,  // values F8_E4M3|F8_E5M2 [n,k]; scale F32 [1] or [n]
    VX_QUANT_INT8, // values I8 [n,k]; scale F32 [1] or [n]; rotated in groups of `rotate` (0: not)
    VX_QUANT_NVFP4, // values U8 [n,k/2], the even element in the high nibble; block_scale F8_E4M3 [n,k/16] in 128x4 tiles; scale F32 [1]
    VX_QUANT_MXFP8, // values F8_E4M3 [n,k]; block_scale F8_E8M0|U8 [n,k/32] in 128x4 tiles
    VX_QUANT_INT4,  // values I8 [n,k/2], the even element in the low nibble, two's complement; scale F32 [n]; rotated
    VX_QUANT_W4A8,  // values I8 [n,k/2], low nibble first, unsigned; block_scale F8_E4M3|U8|F32 [n,k/group]; scale F32 [n];
                    // codebook F32 [16] or none; correction [k/group,n] or none; rotated
    VX_QUANT_GGUF,  // values U8 [n, bytes of a row]; type is ggml's number
    VX_QUANT_KINDS
} vx_quant_kind;

// How the bytes of a matrix are read. All zero: not quantised. The values themselves are a vx_tensor beside it whose shape[0]
// is n and whose shape[1] is the stored width (k, k/2 or bytes).
typedef struct vx_quant {
    vx_quant_kind kind;
    int type;              // VX_QUANT_GGUF: 2 Q4_0, 3 Q4_1, 6 Q5_0, 7 Q5_1, 8 Q8_0, 10..14 Q2_K..Q6_K
    int rotate;            // ConvRot group: a power of 4 that divides k, or 0
    int group;             // columns that share a block scale
    int64_t k;             // columns
    int64_t row;           // of the first row within its scales: a slice of a matrix keeps its companions whole
    vx_tensor scale;       // F32
    vx_tensor block_scale; // rank 0: none
    vx_tensor pre_scale;   // [k] factor of the input, applied in its dtype and rounded; rank 0: none
    vx_tensor codebook, correction;
} vx_quant;

// Name as inspect and docs/formats.md print it: "fp8_e4m3", "int8_convrot", "nvfp4", "Q4_K".
const char *vx_quant_name(const vx_quant *quant, vx_dtype stored);
// Bits that a weight takes with its scales.
double vx_quant_bits(const vx_quant *quant, vx_dtype stored);
// Columns [begin, end) may be decoded where both are multiples of this (or end is k).
int64_t vx_quant_step(const vx_quant *quant);
// VX_ERR_SHAPE, VX_ERR_DTYPE naming what does not fit: shapes and formats of the values and all companions.
vx_status vx_quant_check(const vx_quant *quant, vx_tensor values);

// Row r of the matrix, columns [begin, end), to f32 (as_bf16: rounded to bf16 values by the kind's own rule, held as f32).
// Pure functions of the bytes; no thread touches another's memory; `out` has room for end - begin.
void vx_quant_decode(const vx_quant *quant, vx_tensor values, int64_t r, int64_t begin, int64_t end, bool as_bf16, float *out);

// In place: groups of `group` (4, 16, 64, 256) times the regular Hadamard matrix of ConvRot; its own inverse.
void vx_convrot(float *x, int64_t count, int group);

// ggml's block types: 0 if the number is none that is decoded here.
int vx_gguf_block(int type);        // weights in a block
int vx_gguf_block_bytes(int type);  // bytes of a block
const char *vx_gguf_name(int type); // "Q4_K"; NULL if unknown to ggml

#endif
