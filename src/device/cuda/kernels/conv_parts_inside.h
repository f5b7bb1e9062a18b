// Numbers by parts, for convolutions of f32 on matrix units (conv.h). Every number v, brought into f16's range by a power of two,
// becomes
//
//     high = f16(v)     low = f16(v - high)
//
// and a product is high high + high low + low high: what is left out is 2^-22 of it. Of samples low is multiplied by 2^11, so that
// below 2^-14, too, high + low / 2^11 is v but for 2^-36; beside it stand high parts of weights divided by 2^11. Weights are scaled
// for each output channel so that the greatest is in [2^14, 2^15), where low is v - high but for 2^-25. Samples stay as they are
// while the greatest of the tensor is in [2^-8, 2^15), and move by multiples of 2^23 where it is not: so the parts of a sample, as
// a rule, do not depend on what else the tensor holds.
//
// Layout, so that the loop converts nothing and moves 16 bytes at a time: of 32 channels 32 high parts, then 32 low ones, a line
// of 128 bytes. Samples [position][block of channels], weights [phase][block of channels][tap][channel out]. In shared
// memory piece i of 16 bytes of line r stands at i xor r % 8, so that eight lines meet in no bank; weights stand so already here.
#ifndef VX_DEVICE_CUDA_KERNELS_CONV_PARTS_INSIDE_H
#define VX_DEVICE_CUDA_KERNELS_CONV_PARTS_INSIDE_H

#include "device/cuda/kernels/conv_inside.h"

enum {
    BLOCK = 32, // channels of a line
    PIECES = 8, // of 16 bytes in a line
    THREADS = 256,
    SPLIT_POSITIONS = 64,
    SPLIT_BLOCKS = 1056, // at most: eight for each of 132 multiprocessors
    LOW = 2048,          // what the low parts of samples are multiplied by
};

struct parts {
    uint4 *x, *w;
    int *x_power, *w_power; // a number is high + low / 2^11, times 2^power; w_power [co]
    unsigned *greatest;     // [split_blocks] of samples, as bits
    float *partial;         // [segment][co][plane][partial_row]; NULL: a block runs all segments
    int blocks;             // of channels in
    int split_blocks, partial_row;
};

// conv_split.cu: x, w and their powers, from c's samples and weights. Two launches.
cudaError_t vx_k_parts_split(const vx_k_conv *c, const parts *to, cudaStream_t stream);

#endif
