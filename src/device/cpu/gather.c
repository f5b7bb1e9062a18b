#include "device/cpu/gather.h"
#include <string.h>

vx_gather_fn vx_gather_for(vx_isa isa)
{
#if defined(__x86_64__)
    if (isa >= VX_ISA_AVX512) return vx_gather_avx512;
    if (isa == VX_ISA_AVX2) return vx_gather_avx2;
#else
    (void)isa;
#endif
    return vx_gather_generic;
}

void vx_gather_generic(float *dst, ptrdiff_t dst_row, const float *src, ptrdiff_t src_row, ptrdiff_t step, int64_t rows,
                       const vx_segment *list, int64_t segments)
{
    for (; rows > 0; rows--, dst += dst_row, src += src_row) {
        for (const vx_segment *g = list; g < list + segments; g++) {
            float *to = dst + g->dst;
            const float *from = src + g->src;
            if (g->src < 0) memset(to, 0, (size_t)g->count * 4);
            else if (step == 1) memcpy(to, from, (size_t)g->count * 4);
            else
                for (int32_t i = 0; i < g->count; i++) to[i] = from[i * step];
        }
    }
}
