// q/k norm and rotation in place, queries and keys in one launch.
//
// The usual heads (128 or 64 channels, bf16 or f16): a lane holds 8 neighbouring channels, so 16 or 8 lanes a head and 512 bytes
// an access. The canonical sum wants channels l, l + 32, ... in one place: a transposition of packed pairs between the lanes
// that hold them, then each lane runs its pairs' chains, and the tree goes on with half of the values each step. The partner of
// a rotation sits in the same place of another lane: pairs is a multiple of 8.
// All other heads: a warp a head, lane l holds channels l, l + 32, ...
#include "device/cuda/kernels/rows_inside.h"

enum { WARPS = 4, LOADS = 4 }; // LOADS accesses in flight a lane

// The line of the table for a row: one division where items share the table, none where there is one.
VX_DEVICE int64_t line_of(const vx_k_qk &a, int64_t r)
{
    return r < a.lines ? r : (int64_t)((uint32_t)r % (uint32_t)a.lines); // no card holds 2^32 rows
}

struct heads_job {
    vx_k_qk a;
    int sides; // 1: only q
};

VX_DEVICE float inverse(float sum, float d, float eps)
{
    return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, d) + eps));
}

template <vx_dtype T> VX_DEVICE void widen_pair(float *low, float *high, uint32_t w)
{
    const float2 half = __half22float2(*(const __half2 *)&w);
    *low = T == VX_BF16 ? __uint_as_float(w << 16) : half.x;
    *high = T == VX_BF16 ? __uint_as_float(w & 0xffff0000u) : half.y;
}

template <vx_dtype T> VX_DEVICE void first_term(float acc[2], uint32_t w)
{
    float low, high;
    widen_pair<T>(&low, &high, w);
    acc[0] = low * low;
    acc[1] = high * high;
}
template <vx_dtype T> VX_DEVICE void next_term(float acc[2], uint32_t w)
{
    float low, high;
    widen_pair<T>(&low, &high, w);
    acc[0] = __fmaf_rn(low, low, acc[0]);
    acc[1] = __fmaf_rn(high, high, acc[1]);
}

VX_DEVICE uint32_t swap_word(uint32_t w, int lanes)
{
    return __shfl_xor_sync(EVERYONE, w, lanes);
}
VX_DEVICE float swap_float(float v, int lanes)
{
    return __shfl_xor_sync(EVERYONE, v, lanes);
}

// Sum of the squares of a head's channels, in every one of its lanes.
template <vx_dtype T, int D> VX_DEVICE float sum_of_squares(octet<T> o, int lane)
{
    const bool odd = lane & 4, upper = lane & 8, far = lane & 2, next = lane & 1;
    // Between lanes 4 apart: the even ones keep words 0 and 2 of both, the odd ones words 1 and 3.
    const uint32_t r0 = swap_word(odd ? o.w[0] : o.w[1], 4), r1 = swap_word(odd ? o.w[2] : o.w[3], 4);
    const uint32_t x0 = odd ? r0 : o.w[0], x1 = odd ? o.w[1] : r0, y0 = odd ? r1 : o.w[2], y1 = odd ? o.w[3] : r1;
    if (D == 64) {
        float x[2], y[2];
        first_term<T>(x, x0), next_term<T>(x, x1);
        first_term<T>(y, y0), next_term<T>(y, y1);
        // Accumulator 8 m + 2 word + half, m the lane's two low bits: the tree's steps are lanes 2 and 1 apart, words, halves.
        const float low = swap_float(far ? x[0] : y[0], 2), high = swap_float(far ? x[1] : y[1], 2);
        const float a = (far ? y[0] : x[0]) + low, b = (far ? y[1] : x[1]) + high;
        float v = (next ? b : a) + swap_float(next ? a : b, 1);
        v = v + swap_float(v, 2);
        v = v + swap_float(v, 4);
        return v + swap_float(v, 1);
    }
    // Between lanes 8 apart: one word of all four.
    const uint32_t s0 = swap_word(upper ? x0 : y0, 8), s1 = swap_word(upper ? x1 : y1, 8);
    float acc[2];
    first_term<T>(acc, upper ? s0 : x0);
    next_term<T>(acc, upper ? s1 : x1);
    next_term<T>(acc, upper ? y0 : s0);
    next_term<T>(acc, upper ? y1 : s1);
    // Here the word is the lane's bits 2 and 3.
    float v = (far ? acc[1] : acc[0]) + swap_float(far ? acc[0] : acc[1], 2);
    v = v + swap_float(v, 1);
    v = v + swap_float(v, 8);
    v = v + swap_float(v, 4);
    return v + swap_float(v, 2);
}

// P: octets of pairs (0: no rotation).
template <vx_dtype T, int D, int P, bool TWICE>
__global__ void __launch_bounds__(WARPS *WARP, P ? 6 : 8) usual_heads(const __grid_constant__ heads_job job)
{
    enum { LANES = D / OCTET, HEADS = WARP / LANES }; // of a head; at an access
    const vx_k_qk &a = job.a;
    const int64_t id = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP, r = id / job.sides;
    if (r >= a.rows) return;
    const vx_k_heads &side = id - r * job.sides ? a.k : a.q;
    const int lane = (int)threadIdx.x % WARP, part = lane % LANES, head = lane / LANES;
    const int64_t step = side.head * 2; // bytes
    char *x = (char *)side.data + r * side.row * 2 + head * step + part * 16;
    float w[OCTET];
    octet<T> c = {}, s = {};
#pragma unroll
    for (int j = 0; j < OCTET; j++) w[j] = 1.0f;
    if (side.w.data) load_any(w, side.w, side.w.data, part * OCTET, OCTET, true);
    const int other = part < P ? lane + P : part < 2 * P ? lane - P : lane;
    if (P && part < 2 * P) {
        const int pair = (part < P ? part : part - P) * OCTET;
        const int64_t line = line_of(a, r);
        c = load<T>(row_at(a.cos, line), pair, OCTET, true);
        s = load<T>(row_at(a.sin, line), pair, OCTET, true);
        // a - b is a + -b, and -rn(b) is rn(-b): the first of a pair gets the sine's sign changed.
#pragma unroll
        for (int j = 0; j < 4; j++) s.w[j] ^= part < P ? 0x80008000u : 0u;
    }
    for (int64_t h = 0; h < side.heads; h += HEADS * LOADS) {
        octet<T> o[LOADS] = {};
#pragma unroll
        for (int l = 0; l < LOADS; l++)
            if (h + l * HEADS + head < side.heads) o[l] = load<T>(x + (h + l * HEADS) * step, 0, OCTET, true);
#pragma unroll
        for (int l = 0; l < LOADS; l++) {
            float y[OCTET];
            const float inv = inverse(sum_of_squares<T, D>(o[l], lane), (float)D, a.eps);
            widen<T>(y, o[l]);
#pragma unroll
            for (int j = 0; j < OCTET; j++) y[j] = y[j] * inv;
            if (TWICE) widen<T>(y, pack<T>(y));
#pragma unroll
            for (int j = 0; j < OCTET; j++) y[j] = y[j] * w[j];
            octet<T> n = pack<T>(y);
            if (P) {
                octet<T> partner;
#pragma unroll
                for (int j = 0; j < 4; j++) partner.w[j] = __shfl_sync(EVERYONE, n.w[j], other);
                float z[OCTET], cosine[OCTET], sine[OCTET];
                widen<T>(y, n);
                widen<T>(z, partner);
                widen<T>(cosine, c);
                widen<T>(sine, s);
#pragma unroll
                for (int j = 0; j < OCTET; j++) {
                    y[j] = y[j] * cosine[j];
                    z[j] = z[j] * sine[j];
                }
                const octet<T> turned = add<T>(pack<T>(y), pack<T>(z));
                if (part < 2 * P) n = turned;
            }
            if (h + l * HEADS + head < side.heads) store<T>(x + (h + l * HEADS) * step, 0, OCTET, true, n);
        }
    }
}

// ---- all other heads ----

template <vx_dtype T> VX_DEVICE float normed(const vx_k_qk &a, const vx_k_heads &side, const void *x, int64_t i, float inv)
{
    float y = get<T>(x, i);
    if (a.skip_norm) return y;
    y = y * inv;
    if (a.twice) y = rn<T>(y);
    if (side.w.data) y = y * get_any(side.w.dtype, side.w.data, i);
    return rn<T>(y);
}

template <vx_dtype T> __global__ void __launch_bounds__(WARPS *WARP) any_heads(const __grid_constant__ heads_job job)
{
    const vx_k_qk &a = job.a;
    const int64_t id = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP, all = a.q.heads + (job.sides > 1 ? a.k.heads : 0);
    const int64_t r = id / all, h = id - r * all;
    if (r >= a.rows) return;
    const vx_k_heads &side = h < a.q.heads ? a.q : a.k;
    char *x = (char *)side.data + (r * side.row + (h < a.q.heads ? h : h - a.q.heads) * side.head) * (T == VX_F32 ? 4 : 2);
    const int64_t lane = threadIdx.x % WARP, d = a.head_dim, p = a.pairs;
    float inv = 1.0f;
    if (!a.skip_norm) {
        float acc = 0.0f;
        for (int64_t i = lane; i < d; i += WARP) {
            const float v = get<T>(x, i);
            acc = i < WARP ? v * v : __fmaf_rn(v, v, acc);
        }
        inv = inverse(tree32(acc), (float)d, a.eps);
    }
    __syncwarp();
    const int64_t line = p ? line_of(a, r) : 0;
    for (int64_t j = lane; j < p; j += WARP) {
        const float n = normed<T>(a, side, x, j, inv), m = normed<T>(a, side, x, j + p, inv);
        if (a.rope_once) {
            const float c = get<VX_F32>(row_at(a.cos, line), j), s = get<VX_F32>(row_at(a.sin, line), j);
            put<T>(x, j, n * c - m * s);
            put<T>(x, j + p, m * c + n * s);
        } else {
            const float c = get<T>(row_at(a.cos, line), j), s = get<T>(row_at(a.sin, line), j);
            put<T>(x, j, rn<T>(n * c) - rn<T>(m * s));
            put<T>(x, j + p, rn<T>(m * c) + rn<T>(n * s));
        }
    }
    if (a.skip_norm) return;
    for (int64_t i = 2 * p + lane; i < d; i += WARP) put<T>(x, i, normed<T>(a, side, x, i, inv));
}

static bool wide_heads(const vx_k_heads *h)
{
    return !h->data ||
           ((uintptr_t)h->data % 16 == 0 && h->row % OCTET == 0 && h->head % OCTET == 0 && (uintptr_t)h->w.data % 16 == 0);
}

// True if one of the usual instances took it.
template <vx_dtype T> static bool launch_usual(const heads_job &job, cudaStream_t stream)
{
    const vx_k_qk &a = job.a;
    const unsigned blocks = (unsigned)((a.rows * job.sides + WARPS - 1) / WARPS);
#define TAKE(d, p, second)                                                      \
    if (a.head_dim == d && a.pairs == p * OCTET && a.twice == second) {         \
        usual_heads<T, d, p, second><<<blocks, WARPS * WARP, 0, stream>>>(job); \
        return true;                                                            \
    }
    if constexpr (T == VX_BF16) {
        TAKE(128, 6, false) // the denoiser
        TAKE(128, 8, true)  // the language model
        TAKE(128, 0, false) // the denoiser's text rows
    }
    TAKE(64, 3, false) // the video decoder
#undef TAKE
    return false;
}

cudaError_t vx_k_qk_norm_rope(const vx_k_qk *a, cudaStream_t stream)
{
    const heads_job job = { *a, a->k.data && a->k.heads > 0 ? 2 : 1 };
    const bool wide = wide_heads(&a->q) && wide_heads(&a->k) && is_wide(a->cos) && is_wide(a->sin);
    if (wide && !a->skip_norm && !a->rope_once) {
        if (a->act == VX_BF16 && launch_usual<VX_BF16>(job, stream)) return cudaGetLastError();
        if (a->act == VX_F16 && launch_usual<VX_F16>(job, stream)) return cudaGetLastError();
    }
    const int64_t heads = a->q.heads + (job.sides > 1 ? a->k.heads : 0);
    const unsigned blocks = (unsigned)((a->rows * heads + WARPS - 1) / WARPS);
    if (blocks == 0) return cudaSuccess;
#define ANY(t) any_heads<t><<<blocks, WARPS * WARP, 0, stream>>>(job)
    EACH_ACT(a->act, ANY);
#undef ANY
    return cudaGetLastError();
}
