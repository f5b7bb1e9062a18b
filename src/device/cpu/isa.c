// What the processor has, by CPUID as the compiler's runtime reads it (it also asks XGETBV whether the system saves the
// wide registers).
#include "device/cpu/isa.h"
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>

// Asked by hand: clang 14 does not know this feature by name.
static int has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

static const char *const names[VX_ISA_COUNT] = { "generic", "avx2", "avx512", "avx512bf16" };

vx_isa vx_isa_best(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return VX_ISA_GENERIC;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl"))
        return VX_ISA_AVX2;
    return __builtin_cpu_supports("avx512bf16") ? VX_ISA_AVX512BF16 : VX_ISA_AVX512;
#else
    return VX_ISA_GENERIC;
#endif
}

const char *vx_isa_name(vx_isa isa)
{
    return names[isa];
}

vx_status vx_isa_choose(vx_isa *out, const char *name)
{
    const vx_isa best = vx_isa_best();
    *out = best;
    if (!name) return vx_ok();
    for (int i = 0; i < VX_ISA_COUNT; i++)
        if (strcmp(name, names[i]) == 0) {
            if (i < (int)best) *out = (vx_isa)i;
            return vx_ok();
        }
    return vx_fail(VX_ERR_VALUE, "'%s' is no instruction set; expected generic, avx2, avx512 or avx512bf16", name);
}
