// Convolutions of f32 as implicit products: rows are output channels, columns are output positions, k is (tap, channel), taps outer.
// One thread owns a sum and walks all of k in order by fma, so results are those of the CPU definition, bit for bit.
//
// A line is a row of a picture, or a frame of one row; no tap and no stride lies between lines. A transposed convolution is
// `phases` convolutions of stride 1, of frames of one row, whose outputs interleave: output n = phases * q + phase takes taps
// j = (phase + pad) % phases + phases * u from sample q + (phase + pad) / phases - u.
#ifndef VX_DEVICE_CUDA_KERNELS_CONV_H
#define VX_DEVICE_CUDA_KERNELS_CONV_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum vx_k_format { VX_K_F32, VX_K_BF16, VX_K_F16 } vx_k_format;

// How an output is cut into the tiles of thread blocks: channels x positions.
typedef enum vx_k_conv_tile {
    VX_K_CONV_128X128,
    VX_K_CONV_128X64,
    VX_K_CONV_64X128,
    VX_K_CONV_64X64,
    VX_K_CONV_64X32,
    VX_K_CONV_32X32,
    VX_K_CONV_32X128,
    VX_K_CONV_16X256,
    VX_K_CONV_8X512,
    VX_K_CONV_TILES
} vx_k_conv_tile;
int vx_k_conv_tile_channels(vx_k_conv_tile tile);
int vx_k_conv_tile_positions(vx_k_conv_tile tile);

// Columns stand side by side everywhere; strides are in floats.
typedef struct vx_k_conv {
    const float *x;
    int64_t x_channel, x_frame, x_row;
    int ci, frames, rows, columns;
    float *out;
    int64_t out_channel, out_frame, out_row;
    int co, out_frames, out_rows, out_columns;
    const float *residual; // NULL: none; may be out
    int64_t residual_channel, residual_frame, residual_row;
    const void *w; // [co, ci, taps], transposed [ci, co, taps]
    vx_k_format w_format;
    const void *bias; // NULL: none
    vx_k_format bias_format;
    int64_t bias_stride;
    int taps[3], stride[3], pad[3], dilation; // frames, rows, columns; only columns may be dilated
    int first_tap;                            // frame taps that no output frame needs
    int phases;                               // 0: not transposed
    bool reflect;
    float *packed; // vx_k_conv_packed(c) floats of scratch
} vx_k_conv;

size_t vx_k_conv_packed(const vx_k_conv *c);
// Two launches: weights and bias are widened and laid out by k, then the products.
cudaError_t vx_k_conv_run(const vx_k_conv *c, vx_k_conv_tile tile, cudaStream_t stream);

// ---- by parts, on matrix units (sm_80 and newer) ----
// The same convolution with products of f32 put together from three of f16, summed in f32 in one order: the same bits on every run,
// whatever the tile and whatever `each`. What is left of a sum's accuracy stands in docs/numerics.md. There must be samples.
typedef enum vx_k_parts_tile {
    VX_K_PARTS_128X128,
    VX_K_PARTS_128X64,
    VX_K_PARTS_64X128,
    VX_K_PARTS_64X64,
    VX_K_PARTS_32X128,
    VX_K_PARTS_GROUP_128X128, // of warpgroups: Hopper's alone
    VX_K_PARTS_GROUP_128X64,
    VX_K_PARTS_GROUP_64X64,
    VX_K_PARTS_TILES
} vx_k_parts_tile;
// Whether the device that is set, a Hopper, has the kernels of its own in this program.
bool vx_k_parts_groups(void);
int vx_k_parts_channels(vx_k_parts_tile tile);
int vx_k_parts_positions(vx_k_parts_tile tile);
// A sum is cut into segments of so many steps of 32 numbers of k.
enum { VX_K_PARTS_SEGMENT = 64 };
int vx_k_parts_segments(const vx_k_conv *c);
int vx_k_parts_shared(const vx_k_conv *c, vx_k_parts_tile tile, bool each); // bytes of shared memory of a block
// each: a block for every segment, and a launch that adds them up; else a block runs all of its tile's.
size_t vx_k_parts_scratch(const vx_k_conv *c, bool each); // bytes at c->packed
// Three launches: samples; weights, and samples once more where their range demands it; products.
cudaError_t vx_k_parts_run(const vx_k_conv *c, vx_k_parts_tile tile, bool each, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
