// Implicit products for convolutions (conv.h). Tiles of the packed weights [k][channels] and of the samples [k][positions] wait in
// a ring of shared memory that cp.async fills; every thread sums a rectangle of TM channels x TN positions in registers. Samples
// are gathered four bytes at a time: a tap shifts them by any number of columns, so that wider copies would not be aligned.
#include "device/cuda/kernels/conv_inside.h"

namespace
{

enum { PAD_ROWS = 16 }; // of packed weights behind the last tap: the most that a step of k overhangs

// ---- packed weights: [phase][tap][channel in][channel out, `ld`] ----
struct layout {
    int taps, skip;     // of a phase at most; taps that are left out
    int64_t phase_rows; // rows of a phase, with the overhang
    int phases;
};

__host__ __device__ inline layout layout_of(const vx_k_conv &c)
{
    layout l = {};
    l.phases = c.phases ? c.phases : 1;
    l.skip = plane_taps(c).skip;
    l.taps = plane_taps(c).most;
    l.phase_rows = (int64_t)l.taps * c.ci + PAD_ROWS;
    return l;
}

// What pads a sum is -0 times +0: it changes no bit of it, not even the sign of a zero.
__device__ inline void pack_bias(const vx_k_conv &c, int64_t rows, int ld)
{
    if (c.bias == nullptr || blockIdx.x > 0 || threadIdx.y > 0) return;
    const int o = blockIdx.y * 32 + threadIdx.x;
    if (o < c.co) c.packed[rows * ld + o] = widen(c.bias, c.bias_format, o * c.bias_stride);
}

// A block turns 32 output channels x 32 numbers of their rows of the weight, of which it reads only taps that are used.
__global__ void pack(const __grid_constant__ vx_k_conv c, int ld, divider taps)
{
    __shared__ float tile[32][33];
    const layout l = layout_of(c);
    const unsigned row_length = (unsigned)c.ci * taps.by, at = blockIdx.x * 32, skip = (unsigned)l.skip;
    unsigned tap;
    (void)quotient(at + threadIdx.x, taps, &tap);
    const bool used = tap >= skip && at + threadIdx.x < row_length;
#pragma unroll
    for (int i = threadIdx.y; i < 32; i += 8) {
        const int64_t o = blockIdx.y * 32 + i;
        tile[i][threadIdx.x] = used && o < c.co ? widen(c.w, c.w_format, o * row_length + at + threadIdx.x) : -0.0f;
    }
    __syncthreads();
    const unsigned o = blockIdx.y * 32 + threadIdx.x;
#pragma unroll
    for (unsigned i = threadIdx.y; i < 32; i += 8) {
        const unsigned channel = quotient(at + i, taps, &tap);
        const bool beyond = at + i >= row_length;
        const unsigned over = at + i - row_length;
        const int64_t row = beyond ? (int64_t)l.taps * c.ci + over : (int64_t)(tap - skip) * c.ci + channel;
        if (o < (unsigned)ld && (beyond ? over < PAD_ROWS : tap >= skip)) c.packed[row * ld + o] = tile[threadIdx.x][i];
    }
    pack_bias(c, l.phase_rows, ld);
}

__global__ void pack_transposed(const __grid_constant__ vx_k_conv c, int ld)
{
    const layout l = layout_of(c);
    const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    const int o = blockIdx.y * 32 + threadIdx.x;
    const int phase = (int)(row / l.phase_rows);
    if (phase < c.phases && o < ld) {
        const int in_phase = (int)(row % l.phase_rows), channel = in_phase % c.ci;
        const int tap = (phase + c.pad[2]) % c.phases + in_phase / c.ci * c.phases;
        float w = -0.0f;
        if (tap < c.taps[2] && o < c.co) w = widen(c.w, c.w_format, ((int64_t)channel * c.co + o) * c.taps[2] + tap);
        c.packed[row * ld + o] = w;
    }
    pack_bias(c, l.phase_rows * c.phases, ld);
}

// ---- cp.async ----
__device__ inline void copy_4(float *to, const float *from, bool there)
{
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(there ? 4 : 0) : "memory");
}
__device__ inline void copy_16(float *to, const float *from)
{
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
__device__ inline void commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int PENDING> __device__ inline void await()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// ---- the tile ----
// RAGGED: the channels are no multiple of BK, a step of k holds parts of several taps.
template <int BM_, int BN_, int BK_, int TM_, int TN_, int STAGES_, int BLOCKS_, bool RAGGED_> struct shape {
    static constexpr int BM = BM_, BN = BN_, BK = BK_, TM = TM_, TN = TN_, STAGES = STAGES_, BLOCKS = BLOCKS_;
    static constexpr bool RAGGED = RAGGED_;
    static constexpr int THREADS = BM / TM * (BN / TN);
    static constexpr int COLUMNS = BN > THREADS ? BN / THREADS : 1; // positions that a thread gathers
    static constexpr int ROWS = BN > THREADS ? 1 : THREADS / BN;    // rows of k that the block gathers at a time
    static constexpr bool KEEPS = BM < 64;
    static constexpr int SLOT = BK * (BM + BN);
    // A warp is WY x WX threads.
    static constexpr int WY = BM / TM < 4 ? BM / TM : 4, WX = 32 / WY;
    static constexpr int GM = TM / 4, GN = TN / 4;
    static_assert(BN / TN % WX == 0 && BM / TM % WY == 0 && BK % ROWS == 0, "");
    static_assert(BN % THREADS == 0 || THREADS % BN == 0, "");
};

// The sample of channel 0 for a tap, NULL where there is none.
__device__ inline const float *sample(const vx_k_conv &c, const place &p, column at, tap_place t)
{
    if (at.row == NOWHERE) return nullptr;
    const int y = resolve(at.row + t.ky, c.rows, c.reflect), x = resolve(at.column + t.kx * p.delta, c.columns, c.reflect);
    if (y < 0 || x < 0) return nullptr;
    const int frame = p.frame * c.stride[0] + t.kt - c.pad[0];
    return c.x + frame * c.x_frame + y * c.x_row + x;
}

template <typename S> __device__ inline column column_of(const vx_k_conv &c, const dividers &by, const place &p, int i)
{
    return column_at(c, by, p, p.first + (int)threadIdx.x % S::BN + i * S::THREADS);
}

// Registers are short in the large tiles: there what only a new tap needs is found again then.
template <typename S> struct gather {
    const float *from[S::COLUMNS]; // of the current tap and channel; NULL: zeros
    int tap, channel;              // of the next step: its tap, from 0, and first channel; RAGGED: its first k
    column at[S::KEEPS ? S::COLUMNS : 1];
};

template <typename S>
__device__ inline void gather_step(const vx_k_conv &c, const dividers &by, const place &p, gather<S> &g, float *b)
{
    const int row0 = (int)threadIdx.x / S::BN, place0 = (int)threadIdx.x % S::BN;
    if (S::RAGGED) {
        column at[S::COLUMNS];
#pragma unroll
        for (int i = 0; i < S::COLUMNS; i++) at[i] = column_of<S>(c, by, p, i);
        for (int j = row0; j < S::BK; j += S::ROWS) {
            unsigned channel;
            const int tap = (int)quotient((unsigned)(g.channel + j), by.channels, &channel);
            const tap_place t = tap_of(c, p.skip + tap, by);
#pragma unroll
            for (int i = 0; i < S::COLUMNS; i++) {
                const float *from = tap < p.taps ? sample(c, p, at[i], t) : nullptr;
                const float *here = from ? from + channel * c.x_channel : c.packed;
                copy_4(b + j * S::BN + place0 + i * S::THREADS, here, from != nullptr);
            }
        }
        g.channel += S::BK;
        return;
    }
    if (g.channel == 0) {
        const tap_place t = tap_of(c, p.skip + g.tap, by);
#pragma unroll
        for (int i = 0; i < S::COLUMNS; i++) {
            g.from[i] = sample(c, p, S::KEEPS ? g.at[i] : column_of<S>(c, by, p, i), t);
            if (g.from[i]) g.from[i] += row0 * c.x_channel;
        }
    }
#pragma unroll
    for (int i = 0; i < S::COLUMNS; i++) {
        const bool there = g.from[i] != nullptr;
        const float *from = there ? g.from[i] : c.packed;
        const int64_t stride = there ? c.x_channel * S::ROWS : 0;
#pragma unroll
        for (int j = 0; j < S::BK / S::ROWS; j++) {
            copy_4(b + (row0 + j * S::ROWS) * S::BN + place0 + i * S::THREADS, from, there);
            from += stride;
        }
        if (there) g.from[i] = from;
    }
    g.channel += S::BK;
    if (g.channel == c.ci) {
        g.channel = 0;
        g.tap++;
    }
}

template <typename S> __device__ inline void fetch_weights(const float *w, int ld, float *a)
{
    constexpr int VECTORS = S::BK * S::BM / 4;
#pragma unroll
    for (int i = 0; i < (VECTORS + S::THREADS - 1) / S::THREADS; i++) {
        const int v = i * S::THREADS + (int)threadIdx.x, row = v / (S::BM / 4), at = v % (S::BM / 4) * 4;
        if (VECTORS % S::THREADS == 0 || v < VECTORS) copy_16(a + row * S::BM + at, w + (int64_t)row * ld + at);
    }
}

template <int BLOCK, int GROUPS> __device__ inline void load_fragment(const float *line, int at, float (&to)[GROUPS * 4])
{
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        const float4 v = *reinterpret_cast<const float4 *>(line + g * (BLOCK / GROUPS) + at * 4);
        to[4 * g] = v.x, to[4 * g + 1] = v.y, to[4 * g + 2] = v.z, to[4 * g + 3] = v.w;
    }
}

template <typename S> __device__ inline void multiply(const float *a, const float *b, int ty, int tx, float (&sum)[S::TM][S::TN])
{
#pragma unroll
    for (int k = 0; k < S::BK; k++) {
        float w[S::TM], x[S::TN];
        load_fragment<S::BM, S::GM>(a + k * S::BM, ty, w);
        load_fragment<S::BN, S::GN>(b + k * S::BN, tx, x);
#pragma unroll
        for (int i = 0; i < S::TM; i++)
#pragma unroll
            for (int j = 0; j < S::TN; j++) sum[i][j] = __fmaf_rn(w[i], x[j], sum[i][j]);
    }
}

// (sum + bias) + residual; a term that is not there is not added.
template <typename S>
__device__ inline void write(const vx_k_conv &c, const place &p, const float *bias, int ty, int tx, bool wide,
                             float (&sum)[S::TM][S::TN])
{
#pragma unroll
    for (int g = 0; g < S::GN; g++) {
        const int n = p.first + g * (S::BN / S::GN) + tx * 4;
        if (n >= p.count) continue;
#pragma unroll
        for (int i = 0; i < S::TM; i++) {
            const int o = (int)blockIdx.y * S::BM + i / 4 * (S::BM / S::GM) + ty * 4 + i % 4;
            if (o >= c.co) continue;
            float y[4];
#pragma unroll
            for (int j = 0; j < 4; j++) y[j] = bias ? sum[i][4 * g + j] + bias[o] : sum[i][4 * g + j];
            const int64_t out = o * c.out_channel + p.frame * c.out_frame;
            const int64_t residual = o * c.residual_channel + p.frame * c.residual_frame;
            if (wide) {
                const int row = n / p.width, column = n % p.width;
                if (c.residual) {
                    const float4 r = *reinterpret_cast<const float4 *>(c.residual + residual + row * c.residual_row + column);
                    y[0] = y[0] + r.x, y[1] = y[1] + r.y, y[2] = y[2] + r.z, y[3] = y[3] + r.w;
                }
                *reinterpret_cast<float4 *>(c.out + out + row * c.out_row + column) = make_float4(y[0], y[1], y[2], y[3]);
                continue;
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (n + j >= p.count) continue;
                const int row = (n + j) / p.width;
                int column = (n + j) % p.width;
                if (c.phases) column = column * c.phases + p.phase;
                if (c.residual) y[j] = y[j] + c.residual[residual + row * c.residual_row + column];
                c.out[out + row * c.out_row + column] = y[j];
            }
        }
    }
}

template <typename S>
__global__ void __launch_bounds__(S::THREADS, S::BLOCKS)
    convolve(const __grid_constant__ vx_k_conv c, const __grid_constant__ dividers by, int ld, bool wide)
{
    __shared__ __align__(16) float ring[S::STAGES][S::SLOT];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    constexpr int ACROSS = S::BN / S::TN / S::WX;
    const int tx = warp % ACROSS * S::WX + lane % S::WX, ty = warp / ACROSS * S::WY + lane / S::WX;
    const layout l = layout_of(c);
    const place p = place_of(c, blockIdx.x, S::BN);
    gather<S> g = {};
    if (S::KEEPS) {
#pragma unroll
        for (int i = 0; i < S::COLUMNS; i++) g.at[i] = column_of<S>(c, by, p, i);
    }
    const int steps = ceil_div(p.taps * c.ci, S::BK);
    const int64_t row = p.phase * l.phase_rows + (int64_t)(c.phases ? 0 : p.skip - l.skip) * c.ci;
    const float *w = c.packed + row * ld + blockIdx.y * S::BM;
    float sum[S::TM][S::TN] = {};
#pragma unroll
    for (int s = 0; s < S::STAGES - 1; s++) {
        if (s < steps) {
            fetch_weights<S>(w, ld, ring[s]);
            gather_step<S>(c, by, p, g, ring[s] + S::BK * S::BM);
            w += (int64_t)S::BK * ld;
        }
        commit();
    }
    int now = 0, next = S::STAGES - 1;
    for (int step = 0; step < steps; step++) {
        await<S::STAGES - 2>();
        __syncthreads(); // the samples are there for all, and the slot behind them is read by none
        if (step + S::STAGES - 1 < steps) {
            fetch_weights<S>(w, ld, ring[next]);
            gather_step<S>(c, by, p, g, ring[next] + S::BK * S::BM);
            w += (int64_t)S::BK * ld;
        }
        commit();
        multiply<S>(ring[now], ring[now] + S::BK * S::BM, ty, tx, sum);
        now = now + 1 == S::STAGES ? 0 : now + 1;
        next = next + 1 == S::STAGES ? 0 : next + 1;
    }
    write<S>(c, p, c.bias ? c.packed + l.phase_rows * l.phases * ld : nullptr, ty, tx, wide, sum);
}

bool divides(int64_t a, int64_t b, int64_t c)
{
    return a % 4 == 0 && b % 4 == 0 && c % 4 == 0;
}
bool aligned(const void *p)
{
    return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

// Whether four neighbouring positions of out and residual are 16 aligned bytes.
bool can_write_wide(const vx_k_conv &c)
{
    if (c.phases || c.out_columns % 4 || !aligned(c.out) || !divides(c.out_channel, c.out_frame, c.out_row)) return false;
    return !c.residual || (aligned(c.residual) && divides(c.residual_channel, c.residual_frame, c.residual_row));
}

template <typename S> cudaError_t launch(const vx_k_conv &c, cudaStream_t stream)
{
    const layout l = layout_of(c);
    const int ld = ceil_div(c.co, S::BM) * S::BM, lines = ceil_div(ld, 32);
    const dim3 pack_block(32, 8);
    if (c.phases) {
        const unsigned blocks = (unsigned)((l.phase_rows * l.phases + 7) / 8);
        pack_transposed<<<dim3(blocks, lines), pack_block, 0, stream>>>(c, ld);
    } else {
        const int64_t numbers = (int64_t)c.ci * c.taps[0] * c.taps[1] * c.taps[2] + PAD_ROWS;
        const divider taps = divider_of(c.taps[0] * c.taps[1] * c.taps[2]);
        pack<<<dim3((unsigned)((numbers + 31) / 32), lines), pack_block, 0, stream>>>(c, ld, taps);
    }
    const dim3 grid((unsigned)(planes_of(c) * ceil_div(positions_of(c), S::BN)), ld / S::BM);
    convolve<S><<<grid, S::THREADS, 0, stream>>>(c, dividers_of(c), ld, can_write_wide(c));
    return cudaGetLastError();
}

// The general shapes take any number of channels, at a price.
template <typename S, typename GENERAL> cudaError_t choose(const vx_k_conv &c, cudaStream_t stream)
{
    return c.ci % S::BK == 0 ? launch<S>(c, stream) : launch<GENERAL>(c, stream);
}

using any_wide = shape<64, 128, 16, 8, 8, 3, 1, true>;
using any_flat = shape<8, 512, 8, 8, 4, 2, 1, true>;

} // namespace

static const int tile_channels[VX_K_CONV_TILES] = { 128, 128, 64, 64, 64, 32, 32, 16, 8 };
static const int tile_positions[VX_K_CONV_TILES] = { 128, 64, 128, 64, 32, 32, 128, 256, 512 };

int vx_k_conv_tile_channels(vx_k_conv_tile tile)
{
    return tile_channels[tile];
}
int vx_k_conv_tile_positions(vx_k_conv_tile tile)
{
    return tile_positions[tile];
}

size_t vx_k_conv_packed(const vx_k_conv *c)
{
    const layout l = layout_of(*c);
    const size_t ld = (size_t)ceil_div(c->co, 128) * 128; // any tile's
    return ((size_t)l.phase_rows * l.phases + 1) * ld;
}

cudaError_t vx_k_conv_run(const vx_k_conv *c, vx_k_conv_tile tile, cudaStream_t stream)
{
    switch (tile) {
    case VX_K_CONV_128X128: return choose<shape<128, 128, 16, 8, 8, 3, 2, false>, any_wide>(*c, stream);
    case VX_K_CONV_128X64: return choose<shape<128, 64, 16, 8, 8, 3, 4, false>, any_wide>(*c, stream);
    case VX_K_CONV_64X128: return choose<shape<64, 128, 16, 8, 8, 3, 4, false>, any_wide>(*c, stream);
    case VX_K_CONV_64X64: // longer steps where they come out even: a twentieth faster
        if (c->ci % 32 == 0) return launch<shape<64, 64, 32, 8, 4, 2, 4, false>>(*c, stream);
        return choose<shape<64, 64, 16, 8, 4, 3, 4, false>, any_wide>(*c, stream);
    case VX_K_CONV_64X32: return choose<shape<64, 32, 16, 4, 4, 4, 4, false>, any_wide>(*c, stream);
    case VX_K_CONV_32X32: return choose<shape<32, 32, 16, 4, 4, 4, 4, false>, any_wide>(*c, stream);
    case VX_K_CONV_32X128: return choose<shape<32, 128, 16, 8, 4, 3, 4, false>, any_wide>(*c, stream);
    case VX_K_CONV_16X256: return choose<shape<16, 256, 16, 8, 4, 2, 4, false>, any_flat>(*c, stream);
    case VX_K_CONV_8X512: return choose<shape<8, 512, 8, 8, 4, 2, 4, false>, any_flat>(*c, stream);
    default: return cudaErrorInvalidValue;
    }
}
