// The CPU back end from inside: its state, its scratch, and the operators that live in files of their own.
//
// Rules for an operator:
//   1. Work is cut into pieces that do not depend on the number of threads; a piece's result does not depend on which
//      thread runs it.
//   2. The plain C version is the definition. A version for a newer instruction set gives the same bits wherever
//      operators.h states the arithmetic completely; the tests run every level.
//   3. Scratch comes from vx_cpu_scratch, one call per operator, and the size is what <operator>_scratch says.
#ifndef VX_DEVICE_CPU_CPU_H
#define VX_DEVICE_CPU_CPU_H

#include "base/pool.h"
#include "device/backend.h"
#include "device/cpu/isa.h"

struct vx_row_kernels; // rows.h

typedef struct vx_cpu {
    vx_device base; // first: a vx_device * of this back end is a vx_cpu *
    vx_pool *pool;
    int threads;
    vx_isa isa;
    const struct vx_row_kernels *rows; // the row operators' loops for this level
    void *scratch;
    size_t scratch_size;
    int64_t scratch_growths; // how often an operator needed more than was reserved: faults of a plan
} vx_cpu;

static inline vx_cpu *vx_cpu_of(vx_device *dev)
{
    return (vx_cpu *)dev;
}
static inline const vx_cpu *vx_cpu_of_const(const vx_device *dev)
{
    return (const vx_cpu *)dev;
}

// At least `bytes`, page-aligned, content undefined, valid until the operator returns. Grows what is there if needed.
vx_status vx_cpu_scratch(vx_cpu *cpu, size_t bytes, void **out);

#define VX_CPU_PROTOTYPE(op) vx_status vx_cpu_##op(vx_device *dev, const vx_##op##_args *args);
VX_OPERATORS(VX_CPU_PROTOTYPE)
#undef VX_CPU_PROTOTYPE
#define VX_CPU_PROTOTYPE(op) size_t vx_cpu_##op##_scratch(const vx_device *dev, const vx_##op##_args *args);
VX_SCRATCH_OPERATORS(VX_CPU_PROTOTYPE)
#undef VX_CPU_PROTOTYPE

// linear_half.c: where x is f16.
size_t vx_cpu_linear_half_scratch(const vx_cpu *cpu, const vx_linear_args *args);
vx_status vx_cpu_linear_half(vx_cpu *cpu, const vx_linear_args *args);

#endif
