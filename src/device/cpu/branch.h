// Adapters' branches of vx_linear (branch.c), and the product that they share with it (linear.c).
#ifndef VX_DEVICE_CPU_BRANCH_H
#define VX_DEVICE_CPU_BRANCH_H

#include "device/cpu/cpu.h"
#include <stddef.h>

// How a branch's second product goes onto what `out` holds: out = rn(out + v), v = scale*u; narrow: u and v rounded to bf16.
typedef struct vx_branch_sum {
    float scale;
    bool narrow;
} vx_branch_sum;

// x w^T + bias of any weight, its branches left out, in `scratch` of so many bytes. sum NULL: into out, else onto out.
size_t vx_cpu_product_scratch(const vx_cpu *cpu, const vx_linear_args *args);
void vx_cpu_product(vx_cpu *cpu, const vx_linear_args *args, void *scratch, const vx_branch_sum *sum);

size_t vx_cpu_branch_scratch(const vx_cpu *cpu, const vx_linear_args *args); // 0 without branches
void vx_cpu_branch(vx_cpu *cpu, const vx_linear_args *args, void *scratch);

// Rows of out, `stride` apart, from rows of c, `ldc` apart.
void vx_cpu_branch_finish(void *out, ptrdiff_t stride, vx_dtype dtype, const float *c, int ldc, int rows, int n,
                          vx_branch_sum sum);

#endif
