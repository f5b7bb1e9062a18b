// Numbers of pictures into the rows of a product's B panels: the inner loop of vx_conv3d's gathering.
#ifndef VX_DEVICE_CPU_GATHER_H
#define VX_DEVICE_CPU_GATHER_H

#include "device/cpu/isa.h"
#include <stddef.h>
#include <stdint.h>

// `count` floats to dst and on; from src, src + step, ...; src < 0: zeros.
typedef struct vx_segment {
    ptrdiff_t dst, src;
    int32_t count;
} vx_segment;

// For row 0, 1, ... rows - 1: the segments of src + row * src_row go to dst + row * dst_row.
typedef void (*vx_gather_fn)(float *dst, ptrdiff_t dst_row, const float *src, ptrdiff_t src_row, ptrdiff_t step, int64_t rows,
                             const vx_segment *list, int64_t segments);

vx_gather_fn vx_gather_for(vx_isa isa);

void vx_gather_generic(float *dst, ptrdiff_t dst_row, const float *src, ptrdiff_t src_row, ptrdiff_t step, int64_t rows,
                       const vx_segment *list, int64_t segments);
#if defined(__x86_64__)
void vx_gather_avx2(float *dst, ptrdiff_t dst_row, const float *src, ptrdiff_t src_row, ptrdiff_t step, int64_t rows,
                    const vx_segment *list, int64_t segments);
void vx_gather_avx512(float *dst, ptrdiff_t dst_row, const float *src, ptrdiff_t src_row, ptrdiff_t step, int64_t rows,
                      const vx_segment *list, int64_t segments);
#endif

#endif
