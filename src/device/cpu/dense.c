#include "device/cpu/dense.h"

const struct vx_dense_kernels *vx_dense_kernels(vx_isa isa)
{
#if defined(__x86_64__)
    if (isa >= VX_ISA_AVX512) return &vx_dense_avx512;
    if (isa == VX_ISA_AVX2) return &vx_dense_avx2;
#else
    (void)isa;
#endif
    return &vx_dense_generic;
}
