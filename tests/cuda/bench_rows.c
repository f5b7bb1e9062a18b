// Operators on rows at the released models' sizes: medians of 9 runs by events, and bytes moved (each operand once) over them.
// Random data. The first six are a block of the denoiser; their sum is what a block spends beside products and attention.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "device/arena.h"
#include "device/cuda/cuda.h"

enum { REPEATS = 9, WARM = 3 };

static vx_device *dev;
static vx_arena *arena;
static cudaEvent_t begin, end;

static void need(vx_status s)
{
    if (s.code == VX_OK) return;
    fprintf(stderr, "VX-%d %s\n", (int)s.code, s.message);
    exit(1);
}

static vx_tensor random_tensor(vx_dtype t, int rank, const int64_t *shape)
{
    const vx_tensor far = vx_arena_take(arena, t, rank, shape);
    static uint32_t seed = 7;
    uint16_t *host = vx_alloc(vx_tensor_bytes(far));
    if (!host || !far.data) exit(1);
    const int64_t count = vx_tensor_count(far), period = count < 1000003 ? count : 1000003;
    for (int64_t i = 0; i < period; i++) {
        float sum = -6;
        for (int k = 0; k < 12; k++) {
            seed = seed * 1664525u + 1013904223u;
            sum += (float)(seed >> 8) * 0x1p-24f;
        }
        if (t == VX_F32) ((float *)host)[i] = sum;
        else if (t == VX_I32) ((int32_t *)host)[i] = (int32_t)(i * 3 / count);
        else if (t == VX_U8) ((uint8_t *)host)[i] = (uint8_t)seed;
        else host[i] = t == VX_BF16 ? vx_f32_to_bf16(sum) : vx_f32_to_f16(sum);
    }
    const size_t bytes = vx_tensor_bytes(far), stretch = (size_t)period * (size_t)vx_dtype_bits(t) / 8;
    for (size_t at = stretch; at < bytes; at += stretch)
        memcpy((char *)host + at, host, at + stretch < bytes ? stretch : bytes - at);
    need(vx_upload(dev, far, host));
    vx_free(host);
    return far;
}
#define T(t, ...) \
    random_tensor((t), (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]){ __VA_ARGS__ })

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

#define TIME(name, bytes, call)                                                                                                \
    do {                                                                                                                       \
        float ms[REPEATS];                                                                                                     \
        for (int i_ = -WARM; i_ < REPEATS; i_++) {                                                                             \
            cudaEventRecord(begin, vx_cuda_of(dev)->stream);                                                                   \
            need(call);                                                                                                        \
            cudaEventRecord(end, vx_cuda_of(dev)->stream);                                                                     \
            cudaEventSynchronize(end);                                                                                         \
            if (i_ >= 0) cudaEventElapsedTime(&ms[i_], begin, end);                                                            \
        }                                                                                                                      \
        qsort(ms, REPEATS, sizeof *ms, by_size);                                                                               \
        last = ms[REPEATS / 2];                                                                                                \
        printf("%-44s %8.4f ms %7.0f GB/s  (%.4f to %.4f)\n", name, (double)last, (bytes) / (double)last / 1e6, (double)ms[0], \
               (double)ms[REPEATS - 1]);                                                                                       \
    } while (0)

static void denoiser(int64_t rows)
{
    enum { H = 5376, A = 56, D = 128, F = 14336 };
    const size_t mark = vx_arena_mark(arena);
    float last, sum = 0;
    const double row = (double)rows;
    vx_tensor x = T(VX_BF16, rows, H), y = T(VX_BF16, rows, H), table = T(VX_BF16, 9, 6, H), map = T(VX_I32, rows),
              w = T(VX_BF16, H);
    vx_tensor big = T(VX_BF16, rows, 2 * F), gated = T(VX_BF16, rows, F), cos = T(VX_BF16, rows, 48), sin = T(VX_BF16, rows, 48),
              head = T(VX_BF16, D);
    vx_tensor part[6];
    for (int i = 0; i < 6; i++) {
        part[i] = vx_tensor_slice(table, 1, i, i + 1);
        part[i] = vx_tensor_merge(part[i], 1);
    }
    vx_tensor qkv = big;
    qkv.shape[1] = 3 * A * D;
    qkv.stride[0] = 3 * A * D;
    const vx_tensor q = vx_tensor_split(vx_tensor_slice(qkv, 1, 0, A * D), 1, D),
                    k = vx_tensor_split(vx_tensor_slice(qkv, 1, A * D, 2 * A * D), 1, D);
    const vx_qk_norm_rope_params turn = { .q_weight = head, .k_weight = head, .eps = 1e-5f, .cos = cos, .sin = sin };
    printf("denoiser, %lld rows\n", (long long)rows);
    const vx_gate_add_norm_params half = {
        .gate = part[2], .w = w, .shift = part[0], .scale = part[1], .row = map, .eps = 1e-5f
    };
    TIME("gate, add, norm and modulation (twice a block)", row * H * 8, vx_gate_add_norm(dev, y, x, y, &half));
    sum += 2 * last;
    TIME("q/k norm and rotation", row * A * D * 8, vx_qk_norm_rope(dev, q, k, &turn));
    sum += last;
    TIME("SwiGLU", row * F * 6, vx_swiglu(dev, gated, big, true));
    sum += last;
    printf("%-44s %8.4f ms\n", "a block", (double)sum);
    TIME("norm and modulation", row * H * 4, vx_rms_norm_modulate(dev, y, x, w, part[0], part[1], map, 1e-5f));
    TIME("gate and add", row * H * 6, vx_gate_add(dev, x, y, part[2], map));
    TIME("RMS norm", row * H * 4, vx_rms_norm(dev, y, x, w, 1e-5f, VX_NORM_ROUND_ONCE));
    TIME("addition", row * H * 6, vx_add(dev, x, y));
    vx_arena_reset(arena, mark);
}

// Fourteen tiles of the decoder at once: 7 x 16 x 16 patches, 4 registers and a zero token each.
static void video_decoder(void)
{
    enum { TOKENS = 1797, ROWS = 14 * TOKENS, N = 2048, HEADS = 32, D = 64, F = 8192 };
    const size_t mark = vx_arena_mark(arena);
    float last;
    vx_tensor x = T(VX_F32, ROWS, N), half = T(VX_F16, ROWS, N), w = T(VX_F32, N), gate = T(VX_F32, 1, N),
              u = T(VX_F16, ROWS, 2 * F), gated = T(VX_F16, ROWS, F), qkv = T(VX_F16, ROWS, 3 * HEADS * D),
              cos = T(VX_F16, TOKENS, 24), head = T(VX_F32, D);
    const vx_tensor q = vx_tensor_split(vx_tensor_slice(qkv, 1, 0, N), 1, D),
                    k = vx_tensor_split(vx_tensor_slice(qkv, 1, N, 2 * N), 1, D);
    const vx_qk_norm_rope_params turn = { .q_weight = head, .k_weight = head, .eps = 1e-5f, .cos = cos, .sin = cos };
    printf("video decoder, %d rows\n", ROWS);
    TIME("RMS norm, f32 to f16", (double)ROWS * N * 6, vx_rms_norm(dev, half, x, w, 1e-5f, VX_NORM_ROUND_ONCE));
    TIME("layer norm, f32", (double)ROWS * N * 8, vx_layer_norm(dev, x, x, w, w, 1e-5f));
    TIME("q/k norm and rotation, f16", (double)ROWS * N * 8, vx_qk_norm_rope(dev, q, k, &turn));
    TIME("gate and add, f16 to f32", (double)ROWS * N * 10, vx_gate_add(dev, x, half, gate, (vx_tensor){ 0 }));
    TIME("gate, add and norm, f16 and f32", (double)ROWS * N * 12,
         vx_gate_add_norm(dev, half, x, half, &(vx_gate_add_norm_params){ .gate = gate, .w = w, .eps = 1e-5f }));
    TIME("SwiGLU, f16", (double)ROWS * F * 6, vx_swiglu(dev, gated, u, true));
    vx_arena_reset(arena, mark);
}

static void others(void)
{
    const size_t mark = vx_arena_mark(arena);
    float last;
    enum { N = 1 << 26, SIDE = 1 << 13 };
    vx_tensor a = T(VX_F32, N), b = T(VX_F32, N), h = T(VX_BF16, N), h2 = T(VX_BF16, N), u8 = T(VX_U8, N);
    const vx_term terms[] = { { 0.3f, a }, { 0.7f, b } };
    printf("others\n");
    TIME("copy f32", N * 8.0, vx_copy(dev, b, a));
    TIME("copy bf16", N * 4.0, vx_copy(dev, h2, h));
    TIME("f32 to bf16", N * 6.0, vx_copy(dev, h, a));
    TIME("bf16 to f32", N * 6.0, vx_copy(dev, a, h));
    const vx_tensor square = vx_tensor_reshape(a, 2, (const int64_t[]){ SIDE, SIDE }),
                    turned = vx_tensor_permute(square, (const int[]){ 1, 0 });
    TIME("transpose f32", N * 8.0, vx_copy(dev, vx_tensor_reshape(b, 2, (const int64_t[]){ SIDE, SIDE }), turned));
    const vx_tensor small = vx_tensor_permute(vx_tensor_reshape(h, 2, (const int64_t[]){ SIDE, SIDE }), (const int[]){ 1, 0 });
    TIME("transpose bf16", N * 4.0, vx_copy(dev, vx_tensor_reshape(h2, 2, (const int64_t[]){ SIDE, SIDE }), small));
    // [24, t, h, w] to rows [t, h/2, w/2, 24, 2, 2] as the denoiser's patches
    const vx_tensor latent = vx_tensor_of(a.data, VX_F32, 24, 37, 24, 2, 42, 2);
    const vx_tensor rows = vx_tensor_of(h.data, VX_BF16, 37, 24, 42, 24, 2, 2);
    TIME("patches", 24 * 37 * 48 * 84 * 6.0, vx_copy(dev, rows, vx_tensor_permute(latent, (const int[]){ 1, 2, 4, 0, 3, 5 })));
    TIME("blend of two", N * 12.0, vx_blend(dev, b, terms, 2));
    TIME("clamp", N * 8.0, vx_clamp(dev, b, a, -1, 1));
    TIME("to bytes", N * 5.0, vx_to_u8(dev, u8, a));
    const vx_tensor picture = vx_tensor_of(a.data, VX_F32, 128, 8, 256, 256),
                    painted = vx_tensor_of(b.data, VX_F32, 128, 8, 256, 256);
    const vx_tensor w = T(VX_F32, 128);
    TIME("group norm and silu, 128 x 8 x 256 x 256", N * 8.0, vx_group_norm(dev, painted, picture, w, w, 32, 1e-6f, true));
    vx_tensor flag = T(VX_I32, 1);
    TIME("is all finite, f32", N * 4.0,
         vx_mark_not_finite(dev, flag, 0, vx_tensor_reshape(b, 2, (const int64_t[]){ SIDE, SIDE })));
    vx_arena_reset(arena, mark);
}

int main(void)
{
    const vx_status s = vx_device_cuda_create(&dev, &(vx_cuda_params){ 0 });
    if (s.code == VX_ERR_DEVICE_NONE) {
        printf("no CUDA device: skipped\n");
        return 77;
    }
    need(s);
    need(vx_arena_create(dev, &arena, (size_t)12 << 30));
    setvbuf(stdout, NULL, _IOLBF, 0);
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    denoiser(37810);
    video_decoder();
    others();
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    vx_arena_destroy(&arena);
    vx_device_destroy(&dev);
    return 0;
}
