// Operators that look at one number of a row at a time: additions, gates, activations, rows of tables.
//
// A warp takes a stretch of a row, U octets a lane: all loads first, then the arithmetic, so that enough of them are in flight.
// 7 octets a lane are 1,792 numbers: the released widths 5,376 and 14,336 are 3 and 8 stretches, nothing idles.
#include "device/cuda/kernels/rows_inside.h"

enum { WARPS = 4 };

struct stretch {
    int64_t rows, n;
    int vectors, of_row; // octets of a row; stretches of a row
};

template <int U> static stretch stretch_of(int64_t rows, int64_t n)
{
    stretch s = { rows, n, (int)((n + OCTET - 1) / OCTET), 0 };
    s.of_row = (s.vectors + U * WARP - 1) / (U * WARP);
    return s;
}

static unsigned blocks_of(const stretch &s)
{
    return (unsigned)((s.rows * s.of_row + WARPS - 1) / WARPS);
}

// first(k, row, element, count), then second(...) of the same, for the octets of this lane.
template <int U, bool WIDE, typename F, typename S> VX_DEVICE void each(const stretch &s, F first, S second)
{
    const int64_t id = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    const int64_t r = id / s.of_row;
    if (r >= s.rows) return;
    const int begin = (int)(id - r * s.of_row) * U * WARP + (int)threadIdx.x % WARP;
#pragma unroll
    for (int k = 0; k < U; k++) {
        const int v = begin + k * WARP;
        if (v < s.vectors) first(k, r, (int64_t)v * OCTET, WIDE ? OCTET : (int)min((int64_t)OCTET, s.n - (int64_t)v * OCTET));
    }
#pragma unroll
    for (int k = 0; k < U; k++) {
        const int v = begin + k * WARP;
        if (v < s.vectors) second(k, r, (int64_t)v * OCTET, WIDE ? OCTET : (int)min((int64_t)OCTET, s.n - (int64_t)v * OCTET));
    }
}

// kernel(T, U, WIDE) names an instance. Odd widths and addresses take element-wise loads, one octet a lane; f32 takes fewer
// octets a lane, they are twice the registers.
#define LAUNCH(instance, s, stream, ...) instance<<<blocks_of(s), WARPS * WARP, 0, stream>>>(s, __VA_ARGS__)
#define RUN_AS(T, MANY, kernel, wide, rows, n, stream, ...)                                  \
    do {                                                                                     \
        if (!(wide)) {                                                                       \
            LAUNCH((kernel<T, 1, false>), stretch_of<1>(rows, n), stream, __VA_ARGS__);      \
        } else if ((n) % (MANY * WARP * OCTET) == 0) {                                       \
            LAUNCH((kernel<T, MANY, true>), stretch_of<MANY>(rows, n), stream, __VA_ARGS__); \
        } else {                                                                             \
            LAUNCH((kernel<T, 2, true>), stretch_of<2>(rows, n), stream, __VA_ARGS__);       \
        }                                                                                    \
    } while (0)
#define RUN(act, kernel, wide, rows, n, stream, ...)                                             \
    do {                                                                                         \
        if ((act) == VX_BF16) RUN_AS(VX_BF16, 7, kernel, wide, rows, n, stream, __VA_ARGS__);    \
        else if ((act) == VX_F16) RUN_AS(VX_F16, 4, kernel, wide, rows, n, stream, __VA_ARGS__); \
        else RUN_AS(VX_F32, 4, kernel, wide, rows, n, stream, __VA_ARGS__);                      \
    } while (0)

static bool wide_rows(vx_k_rows a, vx_k_rows b, int64_t n)
{
    return n % OCTET == 0 && is_wide(a) && is_wide(b);
}

// ---- additions ----

template <vx_dtype T, int U, bool WIDE>
__global__ void __launch_bounds__(WARPS *WARP) add_rows(stretch s, vx_k_rows x, vx_k_rows y)
{
    octet<T> a[U], b[U];
    each<U, WIDE>(
        s,
        [&](int k, int64_t r, int64_t i, int count) {
            a[k] = load<T>(row_at(x, r), i, count, WIDE);
            b[k] = load<T>(row_at(y, r), i, count, WIDE);
        },
        [&](int k, int64_t r, int64_t i, int count) { store<T>(row_at(x, r), i, count, WIDE, add<T>(a[k], b[k])); });
}

cudaError_t vx_k_add(vx_k_rows x, vx_k_rows y, int64_t rows, int64_t n, cudaStream_t stream)
{
    RUN(x.dtype, add_rows, wide_rows(x, y, n), rows, n, stream, x, y);
    return cudaGetLastError();
}

// y of f32 or half precision beside f32 x, gate of any format; all the same otherwise.
template <vx_dtype T, int U, bool WIDE>
__global__ void __launch_bounds__(WARPS *WARP)
    gate_add_rows(stretch s, vx_k_rows x, vx_k_rows y, vx_k_rows gate, const int32_t *row)
{
    octet<T> a[U], b[U];
    octet<VX_F16> half[T == VX_F32 ? U : 1];
    const void *gates = NULL;
    each<U, WIDE>(
        s,
        [&](int k, int64_t r, int64_t i, int count) {
            if (k == 0) gates = row_at(gate, row ? row[r] : 0);
            a[k] = load<T>(row_at(x, r), i, count, WIDE);
            if (T == VX_F32 && y.dtype == VX_F16) half[T == VX_F32 ? k : 0] = load<VX_F16>(row_at(y, r), i, count, WIDE);
            else b[k] = load<T>(row_at(y, r), i, count, WIDE);
        },
        [&](int k, int64_t r, int64_t i, int count) {
            float g[OCTET], v[OCTET];
            if (T == VX_F32) load_any<STILL>(g, gate, gates, i, count, WIDE);
            else widen<T>(g, load<T, STILL>(gates, i, count, WIDE));
            if (T == VX_F32 && y.dtype == VX_F16) widen<VX_F16>(v, half[T == VX_F32 ? k : 0]);
            else widen<T>(v, b[k]);
#pragma unroll
            for (int j = 0; j < OCTET; j++) g[j] = g[j] * v[j];
            store<T>(row_at(x, r), i, count, WIDE, add<T>(a[k], pack<T>(g)));
        });
}

cudaError_t vx_k_gate_add(vx_k_rows x, vx_k_rows y, vx_k_rows gate, const int32_t *row, int64_t rows, int64_t n,
                          cudaStream_t stream)
{
    RUN(x.dtype, gate_add_rows, wide_rows(x, y, n) && is_wide(gate), rows, n, stream, x, y, gate, row);
    return cudaGetLastError();
}

// ---- activations ----

template <vx_dtype T> static __device__ __noinline__ uint32_t silu_of_two(uint32_t w)
{
    const float low = vx_silu_inline(get<T>(&w, 0)), high = vx_silu_inline(get<T>(&w, 1));
    return T == VX_BF16 ? vx_f32_to_bf16(low) | (uint32_t)vx_f32_to_bf16(high) << 16 : to_f16(low) | (uint32_t)to_f16(high) << 16;
}

// No NaN among them, and none of magnitude 87 or more.
VX_DEVICE bool all_small(octet<VX_BF16> o)
{
    __nv_bfloat162 most = __habs2(*(const __nv_bfloat162 *)&o.w[0]);
#pragma unroll
    for (int j = 1; j < 4; j++) most = __hmax2_nan(most, __habs2(*(const __nv_bfloat162 *)&o.w[j]));
    return __hblt2(most, __float2bfloat162_rn(87.0f));
}
VX_DEVICE bool all_small(octet<VX_F16> o)
{
    __half2 most = __habs2(*(const __half2 *)&o.w[0]);
#pragma unroll
    for (int j = 1; j < 4; j++) most = __hmax2_nan(most, __habs2(*(const __half2 *)&o.w[j]));
    return __hblt2(most, __float2half2_rn(87.0f));
}

// rn(silu(g)) of eight bf16 or f16. For |g| < 87 a shorter way to the same bits, all 65,536 of them (tests/cuda/test_rows.c): the
// exponential without its last half ulp, and a quotient by the approximate reciprocal and one correction, which makes the result
// the same for any reciprocal within 2 ulp. Half the instructions, and without it the arithmetic would outlast the memory.
template <vx_dtype T> VX_DEVICE octet<T> silu_octet(octet<T> o)
{
    float g[OCTET];
    widen<T>(g, o);
    if (all_small(o)) {
#pragma unroll
        for (int j = 0; j < OCTET; j++) {
            const float t = __fmaf_rn(g[j], -VX_EXP_LOG2E, VX_MATHF_MAGIC);
            const float n = t - VX_MATHF_MAGIC;
            const float r = __fmaf_rn(n, -VX_EXP_LN2_LO, __fmaf_rn(n, -VX_EXP_LN2_HI, -g[j]));
            float q = __fmaf_rn(VX_EXP_Q4, r, VX_EXP_Q3);
            q = __fmaf_rn(q, r, VX_EXP_Q2);
            q = __fmaf_rn(q, r, VX_EXP_Q1);
            q = __fmaf_rn(q, r, VX_EXP_Q0);
            const float p = __fmaf_rn(__fmaf_rn(q, r, 1.0f), r, 1.0f);
            const float d = 1.0f + __uint_as_float(__float_as_uint(p) + (__float_as_uint(t) << 23));
            float reciprocal;
            asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(d));
            const float y = g[j] * reciprocal;
            const float rest = __fmaf_rn(y, d, -g[j]);
            g[j] = __fmaf_rn(-rest, reciprocal, y); // in this form -0 stays -0
        }
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) o.w[j] = silu_of_two<T>(o.w[j]);
        return o;
    }
    return pack<T>(g);
}

VX_DEVICE octet<VX_F32> silu_octet(octet<VX_F32> o)
{
    float g[OCTET];
    widen<VX_F32>(g, o);
#pragma unroll
    for (int j = 0; j < OCTET; j++) g[j] = vx_silu_inline(g[j]);
    return pack<VX_F32>(g);
}

template <vx_dtype T, int U, bool WIDE>
__global__ void __launch_bounds__(WARPS *WARP) swiglu_rows(stretch s, vx_k_rows out, vx_k_rows u, int64_t gate, int64_t value)
{
    octet<T> a[U], b[U];
    each<U, WIDE>(
        s,
        [&](int k, int64_t r, int64_t i, int count) {
            a[k] = load<T>(row_at(u, r), gate + i, count, WIDE);
            b[k] = load<T>(row_at(u, r), value + i, count, WIDE);
        },
        [&](int k, int64_t r, int64_t i, int count) {
            float g[OCTET], v[OCTET];
            widen<T>(g, silu_octet(a[k]));
            widen<T>(v, b[k]);
#pragma unroll
            for (int j = 0; j < OCTET; j++) g[j] = g[j] * v[j];
            store<T>(row_at(out, r), i, count, WIDE, pack<T>(g));
        });
}

cudaError_t vx_k_swiglu(vx_k_rows out, vx_k_rows u, bool gate_first, int64_t rows, int64_t n, cudaStream_t stream)
{
    const int64_t gate = gate_first ? 0 : n;
    RUN(u.dtype, swiglu_rows, wide_rows(out, u, n), rows, n, stream, out, u, gate, n - gate);
    return cudaGetLastError();
}

template <int F> VX_DEVICE float activation(float x)
{
    if (F == VX_K_SILU) return vx_silu_inline(x);
    return vx_gelu_inline(x, F == VX_K_GELU_TANH);
}

VX_DEVICE void store_any(vx_k_rows r, void *row, int64_t i, int count, bool wide, const float v[OCTET])
{
    if (r.dtype == VX_BF16) store<VX_BF16>(row, i, count, wide, pack_exactly<VX_BF16>(v));
    else if (r.dtype == VX_F16) store<VX_F16>(row, i, count, wide, pack_exactly<VX_F16>(v));
    else store<VX_F32>(row, i, count, wide, pack_exactly<VX_F32>(v));
}

// Rare and short, so the formats are looked up.
template <int F, bool WIDE> __global__ void __launch_bounds__(WARPS *WARP) activate_rows(stretch s, vx_k_rows out, vx_k_rows x)
{
    each<1, WIDE>(
        s, [](int, int64_t, int64_t, int) {},
        [&](int, int64_t r, int64_t i, int count) {
            float v[OCTET];
            load_any(v, x, row_at(x, r), i, count, WIDE);
#pragma unroll
            for (int j = 0; j < OCTET; j++) v[j] = activation<F>(v[j]);
            store_any(out, row_at(out, r), i, count, WIDE, v);
        });
}

cudaError_t vx_k_activate(vx_k_rows out, vx_k_rows x, vx_k_function f, int64_t rows, int64_t n, cudaStream_t stream)
{
    const stretch s = stretch_of<1>(rows, n);
#define ONE(f)                                                                         \
    do {                                                                               \
        if (wide_rows(out, x, n)) LAUNCH((activate_rows<f, true>), s, stream, out, x); \
        else LAUNCH((activate_rows<f, false>), s, stream, out, x);                     \
    } while (0)
    if (f == VX_K_SILU) ONE(VX_K_SILU);
    else if (f == VX_K_GELU_ERF) ONE(VX_K_GELU_ERF);
    else ONE(VX_K_GELU_TANH);
#undef ONE
    return cudaGetLastError();
}

// ---- rows of tables ----

template <bool WIDE>
__global__ void __launch_bounds__(WARPS *WARP) embed_rows(stretch s, vx_k_rows out, vx_k_rows table, const int32_t *ids)
{
    each<1, WIDE>(
        s, [](int, int64_t, int64_t, int) {},
        [&](int, int64_t r, int64_t i, int count) {
            const void *from = row_at(table, ids[r]);
            void *to = row_at(out, r);
            if (out.dtype == table.dtype) { // the bits, also of NaN
                if (out.dtype == VX_F32) store<VX_F32>(to, i, count, WIDE, load<VX_F32>(from, i, count, WIDE));
                else store<VX_BF16>(to, i, count, WIDE, load<VX_BF16>(from, i, count, WIDE));
                return;
            }
            float v[OCTET];
            load_any<STILL>(v, table, from, i, count, WIDE);
            store_any(out, to, i, count, WIDE, v);
        });
}

cudaError_t vx_k_embed(vx_k_rows out, vx_k_rows table, const int32_t *ids, int64_t rows, int64_t n, cudaStream_t stream)
{
    const stretch s = stretch_of<1>(rows, n);
    if (wide_rows(out, table, n)) LAUNCH((embed_rows<true>), s, stream, out, table, ids);
    else LAUNCH((embed_rows<false>), s, stream, out, table, ids);
    return cudaGetLastError();
}

template <bool WIDE>
__global__ void __launch_bounds__(WARPS *WARP) embed_blend_rows(stretch s, vx_k_rows out, vx_k_rows table, const int32_t *ids,
                                                                int64_t ids_stride, const float *weights, int64_t weights_stride)
{
    each<1, WIDE>(
        s, [](int, int64_t, int64_t, int) {},
        [&](int, int64_t r, int64_t i, int count) {
            const int32_t *id = ids + r * ids_stride;
            const float *w = weights + r * weights_stride;
            float sum[OCTET], v[OCTET];
#pragma unroll
            for (int c = 0; c < 4; c++) {
                load_any<STILL>(v, table, row_at(table, id[c]), i, count, WIDE);
#pragma unroll
                for (int j = 0; j < OCTET; j++) {
                    const float product = w[c] * v[j];
                    sum[j] = c == 0 ? product : sum[j] + product;
                }
            }
            store_any(out, row_at(out, r), i, count, WIDE, sum);
        });
}

cudaError_t vx_k_embed_blend(vx_k_rows out, vx_k_rows table, const int32_t *ids, int64_t ids_stride, const float *weights,
                             int64_t weights_stride, int64_t rows, int64_t n, cudaStream_t stream)
{
    const stretch s = stretch_of<1>(rows, n);
    if (wide_rows(out, table, n))
        LAUNCH((embed_blend_rows<true>), s, stream, out, table, ids, ids_stride, weights, weights_stride);
    else LAUNCH((embed_blend_rows<false>), s, stream, out, table, ids, ids_stride, weights, weights_stride);
    return cudaGetLastError();
}
