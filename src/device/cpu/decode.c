#include "device/cpu/decode.h"

enum { STRETCH = 256 }; // a multiple of every step

vx_decode_fn vx_decode_for(vx_isa isa)
{
#if defined(__x86_64__)
    if (isa >= VX_ISA_AVX512) return vx_decode_avx512;
    if (isa == VX_ISA_AVX2) return vx_decode_avx2;
#else
    (void)isa;
#endif
    return vx_decode_generic;
}

void vx_decode_generic(const vx_quant *quant, vx_tensor values, int64_t r, int64_t begin, int64_t end, vx_dtype to, void *out)
{
    if (to == VX_F32) {
        vx_quant_decode(quant, values, r, begin, end, false, out);
        return;
    }
    uint16_t *h = out;
    for (int64_t c = begin; c < end; c += STRETCH) {
        float y[STRETCH];
        const int64_t count = end - c < STRETCH ? end - c : STRETCH;
        vx_quant_decode(quant, values, r, c, c + count, true, y);
        for (int64_t i = 0; i < count; i++) *h++ = vx_f32_to_bf16(y[i]);
    }
}
