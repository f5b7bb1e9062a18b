// Operators on strided tensors. A thread computes places of a few elements from one index; along a line with unit strides
// neighbouring threads meet neighbouring addresses. Where x is dense along another axis than out (a transpose), squares go
// through shared memory, so that both sides are read and written in whole sectors.
#include "device/cuda/kernels/rows_inside.h"
#include "device/cuda/kernels/strided.h"

enum { THREADS = 256, EACH = 4 }; // elements of a thread, THREADS apart

struct places {
    int64_t at[VX_K_TENSORS];
};

template <int TENSORS> static __device__ __noinline__ places place_far(const vx_k_walk &w, int64_t index)
{
    places p = {};
    for (int i = w.rank - 1; i > 0; i--) {
        const int64_t next = index / w.shape[i], c = index - next * w.shape[i];
        for (int t = 0; t < TENSORS; t++) p.at[t] += c * w.stride[t][i];
        index = next;
    }
    for (int t = 0; t < TENSORS; t++) p.at[t] += index * w.stride[t][0];
    return p;
}

// Where element `index` of the walk stands in each tensor. 32-bit division where it is enough: it is three times as fast.
template <int TENSORS> VX_DEVICE places place_of(const vx_k_walk &w, int64_t index)
{
    places p = {};
    if (index <= 0x7fffffff) {
        uint32_t rest = (uint32_t)index;
#pragma unroll 1
        for (int i = w.rank - 1; i > 0; i--) {
            const uint32_t shape = (uint32_t)w.shape[i],
                           next = rest / shape; // an extent beyond the index gives 0 unless it is cut
            const uint32_t c = w.shape[i] > 0x7fffffff ? rest : rest - next * shape;
            for (int t = 0; t < TENSORS; t++) p.at[t] += c * w.stride[t][i];
            rest = w.shape[i] > 0x7fffffff ? 0 : next;
        }
        for (int t = 0; t < TENSORS; t++) p.at[t] += rest * w.stride[t][0];
        return p;
    }
    return place_far<TENSORS>(w, index);
}

static int64_t count_of(const vx_k_walk *w)
{
    int64_t n = 1;
    for (int i = 0; i < w->rank; i++) n *= w->shape[i];
    return n;
}

static unsigned blocks_for(int64_t n)
{
    return (unsigned)((n + THREADS * EACH - 1) / (THREADS * EACH));
}

// body(places) for each element.
template <int TENSORS, typename B>
static __global__ void __launch_bounds__(THREADS) walk_all(const __grid_constant__ vx_k_walk w, int64_t n, B body)
{
    const int64_t first = (int64_t)blockIdx.x * THREADS * EACH + threadIdx.x;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int64_t i = first + k * THREADS;
        if (i < n) body(place_of<TENSORS>(w, i));
    }
}

template <int TENSORS, typename B> static cudaError_t run(const vx_k_walk *walk, cudaStream_t stream, B body)
{
    const int64_t n = count_of(walk);
    walk_all<TENSORS><<<blocks_for(n), THREADS, 0, stream>>>(*walk, n, body);
    return cudaGetLastError();
}

// ---- element by element ----

struct affine_body {
    float *out;
    const float *x, *scale, *shift;
    __device__ void operator()(const places &p) const
    {
        const float product = x[p.at[1]] * scale[p.at[2]];
        out[p.at[0]] = product + shift[p.at[3]];
    }
};

cudaError_t vx_k_affine(const vx_k_walk *walk, float *out, const float *x, const float *scale, const float *shift,
                        cudaStream_t stream)
{
    return run<4>(walk, stream, affine_body{ out, x, scale, shift });
}

struct fade_body {
    float *out;
    const float *a, *b;
    float extent;
    __device__ void operator()(const places &p) const
    {
        const float weight = __fdiv_rn((float)p.at[3], extent);
        const float first = a[p.at[1]] * (1.0f - weight), second = b[p.at[2]] * weight;
        out[p.at[0]] = first + second;
    }
};

cudaError_t vx_k_fade(const vx_k_walk *walk, float *out, const float *a, const float *b, float extent, cudaStream_t stream)
{
    return run<4>(walk, stream, fade_body{ out, a, b, extent });
}

struct clamp_body {
    float *out;
    const float *x;
    float lo, hi;
    __device__ void operator()(const places &p) const
    {
        const float v = x[p.at[1]], y = v < lo ? lo : v; // NaN passes both
        out[p.at[0]] = y > hi ? hi : y;
    }
};

cudaError_t vx_k_clamp(const vx_k_walk *walk, float *out, const float *x, float lo, float hi, cudaStream_t stream)
{
    return run<2>(walk, stream, clamp_body{ out, x, lo, hi });
}

struct to_u8_body {
    uint8_t *out;
    const float *x;
    __device__ void operator()(const places &p) const
    {
        const float v = x[p.at[1]], y = v > 0.0f ? v : 0.0f; // also for NaN
        const float scaled = 255.0f * (y > 1.0f ? 1.0f : y);
        out[p.at[0]] = (uint8_t)__float_as_uint(scaled + 0x1p23f); // the nearest integer, ties to even
    }
};

cudaError_t vx_k_to_u8(const vx_k_walk *walk, uint8_t *out, const float *x, cudaStream_t stream)
{
    return run<2>(walk, stream, to_u8_body{ out, x });
}

struct mark_body {
    int32_t *flag;
    const void *x;
    vx_dtype type;
    __device__ void operator()(const places &p) const
    {
        const uint32_t exponent = type == VX_F32 ? 0x7f800000u : type == VX_BF16 ? 0x7f80u : 0x7c00u;
        const uint32_t bits = type == VX_F32 ? ((const uint32_t *)x)[p.at[0]] : ((const uint16_t *)x)[p.at[0]];
        if ((bits & exponent) == exponent) atomicOr(flag, 1);
    }
};

cudaError_t vx_k_mark_not_finite(const vx_k_walk *walk, int32_t *flag, const void *x, vx_dtype type, cudaStream_t stream)
{
    return run<1>(walk, stream, mark_body{ flag, x, type });
}

// The same of one line, 16 bytes at a time: four loads on their way before the first is looked at.
static __global__ void __launch_bounds__(THREADS)
    mark_line(int32_t *flag, const uint4 *x, int64_t count, uint32_t exponent, bool halves)
{
    enum { AHEAD = 4 };
    const int64_t first = (int64_t)blockIdx.x * THREADS * AHEAD + threadIdx.x;
    uint4 v[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        const int64_t at = first + (int64_t)i * THREADS;
        v[i] = at < count ? x[at] : make_uint4(0, 0, 0, 0);
    }
    bool bad = false;
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        const uint32_t words[4] = { v[i].x, v[i].y, v[i].z, v[i].w };
#pragma unroll
        for (int w = 0; w < 4; w++) {
            bad = bad || (words[w] & exponent) == exponent;
            if (halves) bad = bad || (words[w] & exponent << 16) == exponent << 16;
        }
    }
    if (bad) atomicOr(flag, 1);
}

cudaError_t vx_k_mark_line(int32_t *flag, const void *x, vx_dtype type, int64_t bytes, cudaStream_t stream)
{
    const int64_t count = bytes / 16, blocks = (count + 4 * THREADS - 1) / (4 * THREADS);
    const uint32_t exponent = type == VX_F32 ? 0x7f800000u : type == VX_BF16 ? 0x7f80u : 0x7c00u;
    mark_line<<<(unsigned)blocks, THREADS, 0, stream>>>(flag, (const uint4 *)x, count, exponent, type != VX_F32);
    return cudaGetLastError();
}

// ---- blend ----

static __global__ void __launch_bounds__(THREADS) blend(const __grid_constant__ vx_k_blend a, int vector)
{
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * vector;
    if (i >= a.n) return;
    float sum[4];
    for (int t = 0; t < a.terms; t++) {
        float v[4];
        if (vector == 4) *(float4 *)v = *(const float4 *)(a.x[t] + i);
        else v[0] = a.x[t][i];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float product = a.c[t] * v[j];
            sum[j] = t == 0 ? product : sum[j] + product;
        }
    }
    if (vector == 4) *(float4 *)(a.out + i) = *(float4 *)sum;
    else a.out[i] = sum[0];
}

cudaError_t vx_k_blend_run(const vx_k_blend *a, cudaStream_t stream)
{
    bool wide = a->n % 4 == 0 && (uintptr_t)a->out % 16 == 0;
    for (int t = 0; t < a->terms; t++) wide = wide && (uintptr_t)a->x[t] % 16 == 0;
    const int vector = wide ? 4 : 1;
    blend<<<(unsigned)((a->n / vector + THREADS - 1) / THREADS), THREADS, 0, stream>>>(*a, vector);
    return cudaGetLastError();
}

// ---- copies ----

// Formats with the same bits an element are moved, not converted.
template <typename U> struct move_body {
    U *out;
    const U *x;
    __device__ void operator()(const places &p) const { out[p.at[0]] = x[p.at[1]]; }
};

template <vx_dtype OUT, vx_dtype X> VX_DEVICE float convert_one(float v)
{
    return v;
}
template <vx_dtype OUT, vx_dtype X> struct convert_body {
    void *out;
    const void *x;
    __device__ void operator()(const places &p) const { put<OUT>(out, p.at[0], get<X>(x, p.at[1])); }
};

// Whole octets of lines with unit strides on both sides. walk: the last axis counts octets.
template <vx_dtype OUT, vx_dtype X> struct convert_octets {
    void *out;
    const void *x;
    __device__ void operator()(const places &p) const
    {
        float v[OCTET];
        widen_exactly<X>(v, load<X>(x, p.at[1], OCTET, true));
        store<OUT>(out, p.at[0], OCTET, true, pack_exactly<OUT>(v));
    }
};

enum { TILE = 32, TILE_ROWS = 8 };

// The axis along which x is dense where that is not the line's.
static int dense_axis(const vx_k_walk *w)
{
    const int last = w->rank - 1;
    if (w->stride[1][last] == 1 || w->shape[last] < 8) return -1;
    for (int i = 0; i < last; i++)
        if (w->stride[1][i] == 1 && w->shape[i] >= 8) return i;
    return -1;
}

struct tile_job {
    vx_k_walk w;
    int axis;
    int64_t columns, rows; // tiles along the line and along the axis
};

// body.read(place) gives a word, body.write(place, word) takes it.
template <typename B>
static __global__ void __launch_bounds__(TILE *TILE_ROWS) transpose(const __grid_constant__ tile_job job, B body)
{
    __shared__ typename B::word tile[TILE][TILE + 1];
    const vx_k_walk &w = job.w;
    const int last = w.rank - 1, x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    int64_t rest = blockIdx.x;
    const int64_t column = rest % job.columns * TILE;
    rest /= job.columns;
    const int64_t row = rest % job.rows * TILE;
    rest /= job.rows;
    int64_t from = 0, to = 0;
    for (int i = last - 1; i >= 0; i--) {
        if (i == job.axis) continue;
        const int64_t c = rest % w.shape[i];
        rest /= w.shape[i];
        to += c * w.stride[0][i];
        from += c * w.stride[1][i];
    }
    const int64_t width = w.shape[last], height = w.shape[job.axis];
#pragma unroll
    for (int k = 0; k < TILE; k += TILE_ROWS)
        if (column + y + k < width && row + x < height)
            tile[y + k][x] = body.read(from + (column + y + k) * w.stride[1][last] + (row + x) * w.stride[1][job.axis]);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; k += TILE_ROWS)
        if (row + y + k < height && column + x < width)
            body.write(to + (row + y + k) * w.stride[0][job.axis] + (column + x) * w.stride[0][last], tile[x][y + k]);
}

template <typename U> struct move_tile {
    typedef U word;
    U *out;
    const U *x;
    __device__ U read(int64_t i) const { return x[i]; }
    __device__ void write(int64_t i, U v) const { out[i] = v; }
};

template <vx_dtype OUT, vx_dtype X> struct convert_tile {
    typedef float word;
    void *out;
    const void *x;
    __device__ float read(int64_t i) const { return get<X>(x, i); }
    __device__ void write(int64_t i, float v) const { put<OUT>(out, i, v); }
};

template <typename B> static cudaError_t run_tiles(const vx_k_walk *walk, int axis, cudaStream_t stream, B body)
{
    tile_job job = { *walk, axis, (walk->shape[walk->rank - 1] + TILE - 1) / TILE, (walk->shape[axis] + TILE - 1) / TILE };
    int64_t blocks = job.columns * job.rows;
    for (int i = 0; i < walk->rank - 1; i++)
        if (i != axis) blocks *= walk->shape[i];
    transpose<<<(unsigned)blocks, TILE * TILE_ROWS, 0, stream>>>(job, body);
    return cudaGetLastError();
}

template <typename U> static cudaError_t move_as(const vx_k_walk *walk, void *out, const void *x, cudaStream_t stream)
{
    const int axis = dense_axis(walk);
    if (axis >= 0) return run_tiles(walk, axis, stream, move_tile<U>{ (U *)out, (const U *)x });
    return run<2>(walk, stream, move_body<U>{ (U *)out, (const U *)x });
}

cudaError_t vx_k_move(const vx_k_walk *walk, void *out, const void *x, int size, cudaStream_t stream)
{
    switch (size) {
    case 1: return move_as<uint8_t>(walk, out, x, stream);
    case 2: return move_as<uint16_t>(walk, out, x, stream);
    case 4: return move_as<uint32_t>(walk, out, x, stream);
    case 8: return run<2>(walk, stream, move_body<uint2>{ (uint2 *)out, (const uint2 *)x });
    case 16: return run<2>(walk, stream, move_body<uint4>{ (uint4 *)out, (const uint4 *)x });
    default: return cudaErrorInvalidValue;
    }
}

static bool octets(const vx_k_walk *w, const void *out, int out_size, const void *x, int x_size)
{
    const int last = w->rank - 1;
    bool wide = w->stride[0][last] == 1 && w->stride[1][last] == 1 && w->shape[last] % OCTET == 0;
    wide = wide && (uintptr_t)out % 16 == 0 && (uintptr_t)x % 16 == 0;
    for (int i = 0; i < last; i++) wide = wide && w->stride[0][i] * out_size % 16 == 0 && w->stride[1][i] * x_size % 16 == 0;
    return wide;
}

template <vx_dtype OUT, vx_dtype X>
static cudaError_t convert_as(const vx_k_walk *walk, void *out, const void *x, cudaStream_t stream)
{
    if (octets(walk, out, OUT == VX_F32 ? 4 : 2, x, X == VX_F32 ? 4 : 2)) {
        vx_k_walk w = *walk;
        w.shape[w.rank - 1] /= OCTET;
        w.stride[0][w.rank - 1] = w.stride[1][w.rank - 1] = OCTET;
        return run<2>(&w, stream, convert_octets<OUT, X>{ out, x });
    }
    const int axis = dense_axis(walk);
    if (axis >= 0) return run_tiles(walk, axis, stream, convert_tile<OUT, X>{ out, x });
    return run<2>(walk, stream, convert_body<OUT, X>{ out, x });
}

cudaError_t vx_k_copy_as(const vx_k_walk *walk, void *out, vx_dtype out_type, const void *x, vx_dtype x_type, cudaStream_t stream)
{
    if (out_type == VX_F32 && x_type == VX_BF16) return convert_as<VX_F32, VX_BF16>(walk, out, x, stream);
    if (out_type == VX_F32 && x_type == VX_F16) return convert_as<VX_F32, VX_F16>(walk, out, x, stream);
    if (out_type == VX_BF16 && x_type == VX_F32) return convert_as<VX_BF16, VX_F32>(walk, out, x, stream);
    if (out_type == VX_BF16 && x_type == VX_F16) return convert_as<VX_BF16, VX_F16>(walk, out, x, stream);
    if (out_type == VX_F16 && x_type == VX_F32) return convert_as<VX_F16, VX_F32>(walk, out, x, stream);
    if (out_type == VX_F16 && x_type == VX_BF16) return convert_as<VX_F16, VX_BF16>(walk, out, x, stream);
    return cudaErrorInvalidValue;
}
