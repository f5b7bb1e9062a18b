// Speed of the operators that memory bounds, at the shapes that the model runs: least time of some runs, GB/s by the plan's
// own count of bytes, one line each.
//   bench_rows [--threads N] [--isa LEVEL] [--runs N] [--rows N] [--cpu-time] [PART OF A NAME]
// --cpu-time counts the threads' processor time instead of the clock's: what is left to trust where others work too.
// tools/bench_rows_torch.py prints the same lines for PyTorch.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "device/operators.h"

enum { DIM = 1024, FFN = 2816, HEADS = 8, HEAD_DIM = 128, PAIRS = 48 };

static vx_tensor fresh(vx_dtype t, int64_t a, int64_t b)
{
    vx_tensor r = vx_tensor_of(NULL, t, a, b);
    if (vx_pages_alloc(&r.data, vx_tensor_bytes(r)).code != VX_OK) exit(5);
    for (int64_t i = 0; i < a * b; i++) {
        const float v = (float)(i * 7919 % 1000) / 250.0f - 2.0f;
        if (t == VX_F32) vx_f32_of(r)[i] = v;
        else if (t == VX_BF16) ((uint16_t *)r.data)[i] = vx_f32_to_bf16(v);
        else if (t == VX_I32) ((int32_t *)r.data)[i] = (int32_t)(i * 3 / (a * b));
    }
    return r;
}

static int64_t rows = 2850;

static vx_status run(vx_device *dev, const char *name, const vx_tensor *t)
{
    const vx_tensor x = t[0], y = t[1], w = t[2], table = t[3], row = t[4], u = t[5], half = t[6], cos = t[7], f = t[8], g = t[9];
    const vx_tensor heads = vx_tensor_split(x, 1, HEAD_DIM), keys = vx_tensor_split(y, 1, HEAD_DIM);
    const vx_tensor turned = vx_tensor_permute(g, (const int[]){ 1, 0 });
    if (!strcmp(name, "rms_norm")) return vx_rms_norm(dev, y, x, w, 1e-5f, VX_NORM_ROUND_ONCE);
    if (!strcmp(name, "rms_norm_modulate")) return vx_rms_norm_modulate(dev, y, x, w, table, table, row, 1e-5f);
    if (!strcmp(name, "layer_norm")) return vx_layer_norm(dev, y, x, w, w, 1e-5f);
    if (!strcmp(name, "layer_norm f32")) return vx_layer_norm(dev, g, f, w, w, 1e-5f);
    if (!strcmp(name, "rms_norm f32")) return vx_rms_norm(dev, g, f, w, 1e-5f, VX_NORM_ROUND_ONCE);
    if (!strcmp(name, "add")) return vx_add(dev, x, y);
    if (!strcmp(name, "gate_add")) return vx_gate_add(dev, x, y, table, row);
    if (!strcmp(name, "swiglu")) return vx_swiglu(dev, half, u, true);
    if (!strcmp(name, "silu")) return vx_silu(dev, y, x);
    if (!strcmp(name, "qk_norm_rope"))
        return vx_qk_norm_rope(dev, heads, keys,
                               &(vx_qk_norm_rope_params){ .q_weight = vx_tensor_slice(w, 0, 0, HEAD_DIM),
                                                          .k_weight = vx_tensor_slice(w, 0, 0, HEAD_DIM),
                                                          .eps = 1e-6f,
                                                          .cos = cos,
                                                          .sin = cos });
    if (!strcmp(name, "copy bf16")) return vx_copy(dev, y, x);
    if (!strcmp(name, "copy bf16 to f32")) return vx_copy(dev, f, x);
    if (!strcmp(name, "copy f32 to bf16")) return vx_copy(dev, x, f);
    if (!strcmp(name, "copy f32 transposed"))
        return vx_copy(dev, vx_tensor_reshape(f, 2, (const int64_t[]){ DIM, rows }), turned);
    if (!strcmp(name, "fade f32")) return vx_fade(dev, f, f, g, 0);
    if (!strcmp(name, "clamp f32")) return vx_clamp(dev, g, f, -1, 1);
    if (!strcmp(name, "affine f32"))
        return vx_affine(dev, g, f, vx_tensor_of(w.data, VX_F32, 1), vx_tensor_of(w.data, VX_F32, 1), 0);
    if (!strcmp(name, "blend f32")) return vx_blend(dev, f, (vx_term[]){ { 0.5f, f }, { 0.25f, g } }, 2);
    return vx_fail(VX_ERR_USAGE, "no operator '%s'", name);
}

static const char *const names[] = { "rms_norm",
                                     "rms_norm_modulate",
                                     "layer_norm",
                                     "rms_norm f32",
                                     "layer_norm f32",
                                     "add",
                                     "gate_add",
                                     "swiglu",
                                     "silu",
                                     "qk_norm_rope",
                                     "copy bf16",
                                     "copy bf16 to f32",
                                     "copy f32 to bf16",
                                     "copy f32 transposed",
                                     "fade f32",
                                     "clamp f32",
                                     "blend f32" };

static double now(bool cpu_time)
{
    struct timespec t;
    if (!cpu_time) return vx_clock_s();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    vx_cpu_params params = { 0 };
    int runs = 30;
    const char *only = "";
    bool cpu_time = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--threads") && i + 1 < argc) params.threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--isa") && i + 1 < argc) params.isa = argv[++i];
        else if (!strcmp(argv[i], "--runs") && i + 1 < argc) runs = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--rows") && i + 1 < argc) rows = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--cpu-time")) cpu_time = true;
        else only = argv[i];
    }
    vx_device *dev = NULL, *plan = NULL;
    if (vx_device_cpu_create(&dev, &params).code != VX_OK || vx_device_plan_create(&plan, dev).code != VX_OK) return 1;
    const vx_tensor t[] = { fresh(VX_BF16, rows, DIM),
                            fresh(VX_BF16, rows, DIM),
                            vx_tensor_row(fresh(VX_BF16, 1, DIM), 0),
                            fresh(VX_BF16, 3, DIM),
                            vx_tensor_row(fresh(VX_I32, 1, rows), 0),
                            fresh(VX_BF16, rows, 2 * FFN),
                            fresh(VX_BF16, rows, FFN),
                            fresh(VX_BF16, rows, PAIRS),
                            fresh(VX_F32, rows, DIM),
                            fresh(VX_F32, rows, DIM) };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double least = 1e9;
        if (!strstr(names[i], only)) continue;
        vx_device_plan_reset(plan);
        vx_status s = run(plan, names[i], t);
        for (int r = 0; r < runs && s.code == VX_OK; r++) {
            const double begin = now(cpu_time);
            s = run(dev, names[i], t);
            const double took = now(cpu_time) - begin;
            if (took < least) least = took;
        }
        if (s.code != VX_OK) {
            fprintf(stderr, "%s: %s\n", names[i], s.message);
            return 1;
        }
        printf("%-24s %8.3f ms %7.2f GB/s\n", names[i], least * 1e3, vx_device_plan_counts(plan).bytes / least * 1e-9);
    }
    vx_device_destroy(&plan);
    vx_device_destroy(&dev);
    return 0;
}
