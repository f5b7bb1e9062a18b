// Branches of vx_linear: out[:, column..] += scale * (x a^T) b^T, one adapter after the other, onto the finished product.
// t = x a^T goes through the scratch, some rows at a time; the second product adds its tiles to `out` as they are done, so
// nothing as wide as the output is ever held.
//
// Roundings are PEFT's. Factors of bf16 beside bf16 x: t, u = t b^T, scale * u and the sum are each rounded to bf16. Any
// other pair computes in f32 and the sum alone is rounded to out's format: so it is with f32 x, and so PEFT does with
// factors that were saved as f32.
#include "device/cpu/branch.h"
#include "base/checked.h"

enum { ROWS = 4096 }; // rows of t: 6 MiB of f32 at rank 384, while a's panels are still packed for many rows

static vx_dtype format_of_t(const vx_branch *branch, vx_dtype x)
{
    return x == VX_BF16 && branch->a.dtype == VX_BF16 && branch->b.dtype == VX_BF16 ? VX_BF16 : VX_F32;
}

static vx_weight plain(vx_tensor w)
{
    return (vx_weight){ .n = w.shape[0], .k = w.shape[1], .segments = 1, .segment = { { .weight = w } } };
}

// The two products of one branch for some rows.
typedef struct step {
    vx_weight a, b;
    vx_linear_args first, second;
    size_t t_bytes;
} step;

static void plan_step(step *s, const vx_linear_args *args, const vx_branch *branch, int64_t begin, int64_t rows)
{
    const int64_t rank = branch->a.shape[0], columns = branch->b.shape[0];
    s->a = plain(branch->a);
    s->b = plain(branch->b);
    vx_tensor t = vx_tensor_of(NULL, format_of_t(branch, args->x.dtype), rows, rank);
    s->t_bytes = vx_align_up(vx_tensor_bytes(t), 4096);
    s->first = (vx_linear_args){ t, vx_tensor_slice(args->x, 0, begin, begin + rows), &s->a, true };
    vx_tensor out = vx_tensor_slice(args->out, 0, begin, begin + rows);
    s->second = (vx_linear_args){ vx_tensor_slice(out, 1, branch->column, branch->column + columns), t, &s->b, true };
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t vx_cpu_branch_scratch(const vx_cpu *cpu, const vx_linear_args *args)
{
    size_t most = 0;
    for (int i = 0; i < args->weight->branches; i++) {
        // A last step of few rows may take another way through the product, with other needs.
        const int64_t rows = args->x.shape[0], sizes[] = { vx_min_i64(rows, ROWS), rows % ROWS };
        for (int j = 0; j < 2; j++) {
            step s;
            if (sizes[j] == 0) continue;
            plan_step(&s, args, &args->weight->branch[i], 0, sizes[j]);
            most =
                larger(most, s.t_bytes + larger(vx_cpu_product_scratch(cpu, &s.first), vx_cpu_product_scratch(cpu, &s.second)));
        }
    }
    return most;
}

void vx_cpu_branch(vx_cpu *cpu, const vx_linear_args *args, void *scratch)
{
    for (int i = 0; i < args->weight->branches; i++) {
        const vx_branch *branch = &args->weight->branch[i];
        for (int64_t begin = 0; begin < args->x.shape[0]; begin += ROWS) {
            step s;
            plan_step(&s, args, branch, begin, vx_min_i64(ROWS, args->x.shape[0] - begin));
            s.first.out.data = s.second.x.data = scratch;
            void *rest = (char *)scratch + s.t_bytes;
            vx_cpu_product(cpu, &s.first, rest, NULL);
            vx_cpu_product(cpu, &s.second, rest, &(vx_branch_sum){ branch->scale, s.first.out.dtype == VX_BF16 });
        }
    }
}

static void add_f32(float *out, const float *c, int n, vx_branch_sum sum)
{
    for (int j = 0; j < n; j++) {
        const float v = sum.narrow ? vx_round_bf16(sum.scale * vx_round_bf16(c[j])) : sum.scale * c[j];
        out[j] = out[j] + v;
    }
}

static void add_bf16(uint16_t *out, const float *c, int n, vx_branch_sum sum)
{
    for (int j = 0; j < n; j++) {
        const float v = sum.narrow ? vx_round_bf16(sum.scale * vx_round_bf16(c[j])) : sum.scale * c[j];
        out[j] = vx_f32_to_bf16(vx_bf16_to_f32(out[j]) + v);
    }
}

void vx_cpu_branch_finish(void *out, ptrdiff_t stride, vx_dtype dtype, const float *c, int ldc, int rows, int n,
                          vx_branch_sum sum)
{
    for (int i = 0; i < rows; i++, c += ldc) {
        if (dtype == VX_F32) add_f32((float *)out + i * stride, c, n, sum);
        else add_bf16((uint16_t *)out + i * stride, c, n, sum);
    }
}
