// Which instruction sets this processor has and the caller allows.
#ifndef VX_DEVICE_CPU_ISA_H
#define VX_DEVICE_CPU_ISA_H

#include "base/status.h"

// Each level holds those before it. Files compiled for a level end in its name: gemm_avx512bf16.c.
typedef enum vx_isa {
    VX_ISA_GENERIC,
    VX_ISA_AVX2,       // AVX2, FMA, F16C
    VX_ISA_AVX512,     // AVX-512 F, BW, DQ, VL
    VX_ISA_AVX512BF16, // and BF16
    VX_ISA_COUNT
} vx_isa;

vx_isa vx_isa_best(void);
const char *vx_isa_name(vx_isa isa);
// The level called `name`, or the best below it that the processor has; NULL = the best. VX_ERR_VALUE for another name.
vx_status vx_isa_choose(vx_isa *out, const char *name);

#endif
