// RMS norm, with and without modulation, and layer norm. A warp takes a row: lane l holds vectors l, l + 32, ... of 8 numbers,
// which are the canonical accumulators' own, so the sum needs no shared memory. The denoiser's rows (bf16, up to 5,376 numbers)
// stay in registers, up to 21 vectors a lane; others are read again from the first-level cache. (Rows in shared memory, brought by
// asynchronous copies, took 1.3 times as long.)
#include "device/cuda/kernels/rows_inside.h"

enum { ROWS_OF_BLOCK = 4 };

struct norm_job {
    vx_k_norm a;
    int vectors; // of a row, the last may be short
};

template <vx_dtype X> VX_DEVICE float squares(float acc, octet<X> o)
{
    float v[OCTET];
    widen<X>(v, o);
#pragma unroll
    for (int j = 0; j < OCTET; j++) acc = __fmaf_rn(v[j], v[j], acc); // zeros past the end change nothing
    return acc;
}

template <vx_dtype X> VX_DEVICE float deviations(float acc, octet<X> o, float mean, int count, bool square)
{
    float v[OCTET];
    widen<X>(v, o);
#pragma unroll
    for (int j = 0; j < OCTET; j++) {
        const float d = v[j] - mean;
        const float next = square ? __fmaf_rn(d, d, acc) : acc + d;
        acc = j < count ? next : acc;
    }
    return acc;
}

// The vectors of a row that a lane owns: kept in registers, or read again for each pass (KEEP 0).
template <vx_dtype X, int KEEP, bool WIDE> struct mine {
    octet<X> kept[KEEP ? KEEP : 1];
    const void *x;
    int lane, vectors;
    int64_t n;

    VX_DEVICE_MEMBER int count(int v) const
    {
        const int64_t left = n - (int64_t)v * OCTET;
        return !WIDE && left < OCTET ? (int)left : OCTET;
    }
    VX_DEVICE_MEMBER octet<X> read(int v) const
    {
        return load < X, KEEP ? PASSING : ANY > (x, (int64_t)v * OCTET, count(v), WIDE);
    }
    VX_DEVICE_MEMBER void begin()
    {
#pragma unroll
        for (int k = 0; k < KEEP; k++) {
            const int v = k * WARP + lane;
            if (v < vectors) kept[k] = read(v);
        }
    }
    // body(vector, octet, count) for each of them, in order
    template <typename F> VX_DEVICE_MEMBER void each(F body) const
    {
        if (KEEP) {
#pragma unroll
            for (int k = 0; k < KEEP; k++) {
                const int v = k * WARP + lane;
                if (v < vectors) body(v, kept[k], count(v));
            }
        } else {
#pragma unroll 2
            for (int v = lane; v < vectors; v += WARP) body(v, read(v), count(v));
        }
    }
};

// With KEEP the weight is bf16.
template <vx_dtype X, vx_dtype OUT, int KEEP, bool WIDE, bool MODULATE>
VX_DEVICE void normalise(const mine<X, KEEP, WIDE> &own, const vx_k_norm &a, int64_t r, int64_t modulation)
{
    void *out = row_at(a.out, r);
    const void *shift = row_at(a.shift, modulation), *scale = row_at(a.scale, modulation);
    float acc = 0.0f;
    own.each([&](int, octet<X> o, int) { acc = squares<X>(acc, o); });
    const float inv = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(tree32(acc), (float)a.n) + a.eps));
    own.each([&](int v, octet<X> o, int count) {
        const int64_t i = (int64_t)v * OCTET;
        float y[OCTET], w[OCTET];
        widen<X>(y, o);
#pragma unroll
        for (int j = 0; j < OCTET; j++) y[j] = y[j] * inv;
        if (!MODULATE && a.twice) widen<X>(y, pack<X>(y));
        if (a.w.data) {
            if (KEEP) widen<VX_BF16>(w, load<VX_BF16, STILL>(a.w.data, i, count, WIDE));
            else load_any<STILL>(w, a.w, a.w.data, i, count, WIDE);
#pragma unroll
            for (int j = 0; j < OCTET; j++) y[j] = y[j] * w[j];
        }
        if (MODULATE) {
            float m[OCTET], ones[OCTET];
#pragma unroll
            for (int j = 0; j < OCTET; j++) ones[j] = 1.0f;
            widen<X>(y, pack<X>(y));
            // 1 + scale is rounded before the product: the reference stores it as a tensor.
            widen<X>(m, add<X>(pack<X>(ones), load<X, STILL>(scale, i, count, WIDE)));
#pragma unroll
            for (int j = 0; j < OCTET; j++) y[j] = y[j] * m[j];
            store<X, PASSING>(out, i, count, WIDE, add<X>(pack<X>(y), load<X, STILL>(shift, i, count, WIDE)));
        } else {
            store<OUT, PASSING>(out, i, count, WIDE, pack<OUT>(y));
        }
    });
}

template <vx_dtype X, vx_dtype OUT, int KEEP, bool WIDE, bool MODULATE>
__global__ void __launch_bounds__(ROWS_OF_BLOCK *WARP) rms_rows(const __grid_constant__ norm_job job)
{
    const vx_k_norm &a = job.a;
    const int64_t r = (int64_t)blockIdx.x * ROWS_OF_BLOCK + threadIdx.x / WARP;
    if (r >= a.rows) return;
    mine<X, KEEP, WIDE> own = { {}, row_at(a.x, r), (int)threadIdx.x % WARP, job.vectors, a.n };
    own.begin();
    normalise<X, OUT, KEEP, WIDE, MODULATE>(own, a, r, MODULATE ? a.row[r] : 0);
}

// x += gate * y, then its norm and modulation: bf16 rows that stay in registers. y comes in small parts, so that four blocks have room:
// with parts of 7 it are two, and a tenth slower.
template <int KEEP>
__global__ void __launch_bounds__(ROWS_OF_BLOCK *WARP, 4)
    gate_norm_rows(const __grid_constant__ norm_job job, vx_k_rows y, vx_k_rows gate)
{
    constexpr int PART = 3;
    static_assert(KEEP % PART == 0, "");
    const vx_k_norm &a = job.a;
    const int64_t r = (int64_t)blockIdx.x * ROWS_OF_BLOCK + threadIdx.x / WARP;
    if (r >= a.rows) return;
    mine<VX_BF16, KEEP, true> own = { {}, row_at(a.x, r), (int)threadIdx.x % WARP, job.vectors, a.n };
    void *x = row_at(a.x, r);
    const int64_t modulation = a.row[r];
    const void *added = row_at(y, r), *gates = row_at(gate, modulation);
    own.begin();
#pragma unroll
    for (int part = 0; part < KEEP; part += PART) {
        octet<VX_BF16> b[PART];
#pragma unroll
        for (int k = 0; k < PART; k++) {
            const int v = (part + k) * WARP + own.lane;
            if (v < own.vectors) b[k] = load<VX_BF16, PASSING>(added, (int64_t)v * OCTET, OCTET, true);
        }
#pragma unroll
        for (int k = 0; k < PART; k++) {
            const int v = (part + k) * WARP + own.lane;
            if (v >= own.vectors) continue;
            float g[OCTET], p[OCTET];
            widen<VX_BF16>(g, load<VX_BF16, STILL>(gates, (int64_t)v * OCTET, OCTET, true));
            widen<VX_BF16>(p, b[k]);
#pragma unroll
            for (int j = 0; j < OCTET; j++) g[j] = g[j] * p[j];
            own.kept[part + k] = add<VX_BF16>(own.kept[part + k], pack<VX_BF16>(g));
            store<VX_BF16, PASSING>(x, (int64_t)v * OCTET, OCTET, true, own.kept[part + k]);
        }
    }
    normalise<VX_BF16, VX_BF16, KEEP, true, true>(own, a, r, modulation);
}

// ---- f32 rows beside f16 ones, without modulation: the video decoder's ----
// A lane with eight f32 side by side would touch half a sector at a time. Here it takes fours l, l + 32, ..., and the sums wander: those
// of vectors 0 to 15 lie in the even lanes, whose fours are a vector's first half; the second half is added in the lane beside it.
// Likewise 16 to 31, whose fours follow. Between vectors a sum is back in the even lane.
struct four {
    float v[4];
};

VX_DEVICE four four_of(const vx_k_rows &r, const void *row, int i) // four i of a row that does not change
{
    four f;
    if (r.dtype == VX_F32) {
        const float4 a = __ldg((const float4 *)row + i);
        f.v[0] = a.x, f.v[1] = a.y, f.v[2] = a.z, f.v[3] = a.w;
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) f.v[j] = get_any(r.dtype, row, 4 * (int64_t)i + j);
    }
    return f;
}

VX_DEVICE float add_squares(float acc, const four &x)
{
#pragma unroll
    for (int j = 0; j < 4; j++) acc = __fmaf_rn(x.v[j], x.v[j], acc);
    return acc;
}

VX_DEVICE float add_pair(float acc, const four &x)
{
    acc = __shfl_xor_sync(EVERYONE, add_squares(acc, x), 1);
    return __shfl_xor_sync(EVERYONE, add_squares(acc, x), 1);
}

template <int FOURS>
__global__ void __launch_bounds__(ROWS_OF_BLOCK *WARP, 4)
    gate_norm_half(const __grid_constant__ norm_job job, vx_k_rows y, vx_k_rows gate)
{
    constexpr int PART = 8;
    static_assert(FOURS % PART == 0, "");
    const vx_k_norm &a = job.a;
    const int64_t r = (int64_t)blockIdx.x * ROWS_OF_BLOCK + threadIdx.x / WARP;
    if (r >= a.rows) return;
    const int lane = (int)threadIdx.x % WARP, fours = (int)(a.n / 4);
    float4 *x = (float4 *)row_at(a.x, r);
    const uint2 *added = (const uint2 *)row_at(y, r);
    uint2 *out = (uint2 *)row_at(a.out, r);
    const void *gates = row_at(gate, a.row ? a.row[r] : 0);
    four own[FOURS];
#pragma unroll
    for (int k = 0; k < FOURS; k++) {
        const int i = k * WARP + lane;
        const float4 v = i < fours ? x[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f); // zeros change no sum
        own[k].v[0] = v.x, own[k].v[1] = v.y, own[k].v[2] = v.z, own[k].v[3] = v.w;
    }
#pragma unroll
    for (int part = 0; part < FOURS; part += PART) {
        uint2 b[PART];
#pragma unroll
        for (int k = 0; k < PART; k++) {
            const int i = (part + k) * WARP + lane;
            if (i < fours) b[k] = added[i];
        }
#pragma unroll
        for (int k = 0; k < PART; k++) {
            const int i = (part + k) * WARP + lane;
            if (i >= fours) continue;
            const four g = four_of(gate, gates, i);
            const float2 low = __half22float2(*(const __half2 *)&b[k].x), high = __half22float2(*(const __half2 *)&b[k].y);
            const float p[4] = { low.x, low.y, high.x, high.y };
            float *v = own[part + k].v;
#pragma unroll
            for (int j = 0; j < 4; j++) v[j] = v[j] + g.v[j] * p[j];
            x[i] = make_float4(v[0], v[1], v[2], v[3]);
        }
    }
    float lower = 0.0f, upper = 0.0f;
#pragma unroll
    for (int k = 0; k < FOURS; k += 2) {
        lower = add_pair(lower, own[k]);
        upper = add_pair(upper, own[k + 1]);
    }
    lower = __shfl_sync(EVERYONE, lower, 2 * lane % WARP);
    upper = __shfl_sync(EVERYONE, upper, 2 * lane % WARP);
    const float sum = tree32(lane < WARP / 2 ? lower : upper);
    const float inv = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, (float)a.n) + a.eps));
#pragma unroll
    for (int k = 0; k < FOURS; k++) {
        const int i = k * WARP + lane;
        if (i >= fours) continue;
        float *v = own[k].v;
#pragma unroll
        for (int j = 0; j < 4; j++) v[j] = v[j] * inv;
        if (a.w.data) {
            const four w = four_of(a.w, a.w.data, i);
#pragma unroll
            for (int j = 0; j < 4; j++) v[j] = v[j] * w.v[j];
        }
        const __half2 low = __floats2half2_rn(v[0], v[1]), high = __floats2half2_rn(v[2], v[3]);
        out[i] = make_uint2(*(const uint32_t *)&low, *(const uint32_t *)&high);
    }
}

template <vx_dtype X, vx_dtype OUT, bool WIDE>
__global__ void __launch_bounds__(ROWS_OF_BLOCK *WARP) layer_rows(const __grid_constant__ norm_job job)
{
    const vx_k_norm &a = job.a;
    const int64_t r = (int64_t)blockIdx.x * ROWS_OF_BLOCK + threadIdx.x / WARP;
    if (r >= a.rows) return;
    mine<X, 0, WIDE> own = { {}, row_at(a.x, r), (int)threadIdx.x % WARP, job.vectors, a.n };
    void *out = row_at(a.out, r);
    own.begin();
    float acc = 0.0f;
    own.each([&](int, octet<X> o, int count) { acc = deviations<X>(acc, o, 0.0f, count, false); });
    const float mean = __fdiv_rn(tree32(acc), (float)a.n);
    acc = 0.0f;
    own.each([&](int, octet<X> o, int count) { acc = deviations<X>(acc, o, mean, count, true); });
    const float deviation = __fsqrt_rn(__fdiv_rn(tree32(acc), (float)a.n) + a.eps);
    own.each([&](int v, octet<X> o, int count) {
        const int64_t i = (int64_t)v * OCTET;
        float y[OCTET], w[OCTET];
        widen<X>(y, o);
#pragma unroll
        for (int j = 0; j < OCTET; j++) y[j] = __fdiv_rn(y[j] - mean, deviation);
        if (a.w.data) {
            load_any<STILL>(w, a.w, a.w.data, i, count, WIDE);
#pragma unroll
            for (int j = 0; j < OCTET; j++) y[j] = y[j] * w[j];
        }
        if (a.b.data) {
            load_any<STILL>(w, a.b, a.b.data, i, count, WIDE);
#pragma unroll
            for (int j = 0; j < OCTET; j++) y[j] = y[j] + w[j];
        }
        store<OUT>(out, i, count, WIDE, pack<OUT>(y));
    });
}

static bool all_wide(const vx_k_norm *a)
{
    return a->n % OCTET == 0 && is_wide(a->out) && is_wide(a->x) && is_wide(a->shift) && is_wide(a->scale) &&
           (uintptr_t)a->w.data % 16 == 0 && (uintptr_t)a->b.data % 16 == 0;
}

static norm_job job_of(const vx_k_norm *a, unsigned *blocks)
{
    *blocks = (unsigned)((a->rows + ROWS_OF_BLOCK - 1) / ROWS_OF_BLOCK);
    return { *a, (int)((a->n + OCTET - 1) / OCTET) };
}

enum { MOST = 21, MOST_FOURS = 16, THREADS = ROWS_OF_BLOCK * WARP };

// Whether rows of bf16 stay in registers.
static bool stays(const vx_k_norm *a, const norm_job &job)
{
    return all_wide(a) && job.vectors <= MOST * WARP && (!a->w.data || a->w.dtype == VX_BF16);
}

template <vx_dtype X, vx_dtype OUT, bool MODULATE> static void launch_rms(const vx_k_norm *a, cudaStream_t stream)
{
    unsigned blocks;
    const norm_job job = job_of(a, &blocks);
    if constexpr (X == VX_BF16) {
        if (stays(a, job)) {
            rms_rows<X, OUT, MOST, true, MODULATE><<<blocks, THREADS, 0, stream>>>(job);
            return;
        }
    }
    if (all_wide(a)) rms_rows<X, OUT, 0, true, MODULATE><<<blocks, THREADS, 0, stream>>>(job);
    else rms_rows<X, OUT, 0, false, MODULATE><<<blocks, THREADS, 0, stream>>>(job);
}

template <vx_dtype X, vx_dtype OUT> static void launch_layer(const vx_k_norm *a, cudaStream_t stream)
{
    unsigned blocks;
    const norm_job job = job_of(a, &blocks);
    if (all_wide(a)) layer_rows<X, OUT, true><<<blocks, ROWS_OF_BLOCK * WARP, 0, stream>>>(job);
    else layer_rows<X, OUT, false><<<blocks, ROWS_OF_BLOCK * WARP, 0, stream>>>(job);
}

cudaError_t vx_k_rms_norm(const vx_k_norm *a, cudaStream_t stream)
{
#define PLAIN(t)    launch_rms<t, t, false>(a, stream)
#define MODULATE(t) launch_rms<t, t, true>(a, stream)
    if (a->shift.data) EACH_ACT(a->x.dtype, MODULATE);
    else if (a->x.dtype == VX_F32 && a->out.dtype == VX_F16) launch_rms<VX_F32, VX_F16, false>(a, stream);
    else EACH_ACT(a->x.dtype, PLAIN);
#undef PLAIN
#undef MODULATE
    return cudaGetLastError();
}

cudaError_t vx_k_gate_add_norm(const vx_k_norm *a, vx_k_rows y, vx_k_rows gate, cudaStream_t stream)
{
    unsigned blocks;
    const norm_job job = job_of(a, &blocks);
    if (a->x.dtype == VX_BF16 && a->shift.data && stays(a, job) && is_wide(y) && is_wide(gate)) {
        gate_norm_rows<MOST><<<blocks, THREADS, 0, stream>>>(job, y, gate);
        return cudaGetLastError();
    }
    const bool half = a->x.dtype == VX_F32 && a->out.dtype == VX_F16 && y.dtype == VX_F16;
    if (half && all_wide(a) && a->n <= MOST_FOURS * 4 * WARP && is_wide(y) && is_wide(gate)) {
        gate_norm_half<MOST_FOURS><<<blocks, THREADS, 0, stream>>>(job, y, gate);
        return cudaGetLastError();
    }
    const cudaError_t error = vx_k_gate_add(a->x, y, gate, a->row, a->rows, a->n, stream);
    return error == cudaSuccess ? vx_k_rms_norm(a, stream) : error;
}

cudaError_t vx_k_layer_norm(const vx_k_norm *a, cudaStream_t stream)
{
#define PLAIN(t) launch_layer<t, t>(a, stream)
    if (a->x.dtype == VX_F32 && a->out.dtype == VX_F16) launch_layer<VX_F32, VX_F16>(a, stream);
    else EACH_ACT(a->x.dtype, PLAIN);
#undef PLAIN
    return cudaGetLastError();
}
