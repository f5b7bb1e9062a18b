// Quantised rows to the numbers that products work on: vx_quant_decode at the processor's width, bit for bit.
#ifndef VX_DEVICE_CPU_DECODE_H
#define VX_DEVICE_CPU_DECODE_H

#include "device/cpu/isa.h"
#include "tensor/quant.h"

// Row r, columns [begin, end) (multiples of vx_quant_step, or end is k) to bf16 or f32, side by side at `out`.
typedef void (*vx_decode_fn)(const vx_quant *quant, vx_tensor values, int64_t r, int64_t begin, int64_t end, vx_dtype to,
                             void *out);

vx_decode_fn vx_decode_for(vx_isa isa);

void vx_decode_generic(const vx_quant *quant, vx_tensor values, int64_t r, int64_t begin, int64_t end, vx_dtype to, void *out);
#if defined(__x86_64__)
void vx_decode_avx2(const vx_quant *quant, vx_tensor values, int64_t r, int64_t begin, int64_t end, vx_dtype to, void *out);
void vx_decode_avx512(const vx_quant *quant, vx_tensor values, int64_t r, int64_t begin, int64_t end, vx_dtype to, void *out);
#endif

#endif
