// vx_linear: products of cuBLASLt (blas.c), one a segment, written straight to the segment's columns, wherever formats allow.
//
//   x      weight           product
//   bf16   any              bf16 x bf16, f32 sums; the copy on the device is bf16
//   f16    any              f16 x f16, f32 sums; the copy is f16
//   f32    f32              true f32
//   f32    bf16, f16        a tile of the weight widened in scratch, then true f32: the copy keeps the file's size
//   any    quantised        a tile decoded in scratch, to bf16 beside bf16, else to f32
//
// The bias is part of the product where it can be given in out's format without a rounding of its own, and where rows begin at
// multiples of 16 bytes: there it is added to the f32 sum. (Beside other rows cuBLASLt rounds the product first and adds then.)
// Else the sum goes through scratch as f32. Products of few multiply-adds have the processor's bits. Results depend on shapes, formats and alignment, never on where copies lie.
#include "base/checked.h"
#include "device/cuda/cuda.h"
#include "device/cuda/kernels/convert.h"

enum {
    STEP = 64,               // columns of a tile are a multiple: everything stays aligned
    WEIGHT_TILE = 128 << 20, // bytes of a weight that was widened or decoded
    SUM_TILE = 64 << 20,     // bytes of f32 sums on their way to out
    BRANCH_ROWS = 8192,      // rows of x that a branch takes at once
    ALIGN = 256,
};

// How a segment is multiplied, and what of scratch that takes.
struct way {
    vx_dtype in, sum; // formats of the product
    bool direct;      // the weight's copy on the device is the operand
    bool through;     // sums go through scratch
    bool epilogue;    // the product adds the bias
    bool late_bias;   // added to out, which holds the f32 sums
    int64_t tile;     // rows of the weight at once
    size_t bias_bytes, weight_bytes, sum_bytes, x_bytes;
};

struct scratch {
    char *workspace, *bias, *weight, *sum, *x;
};

static size_t bytes_of(vx_dtype type)
{
    return (size_t)vx_dtype_bits(type) / 8;
}

static int64_t row_stride(vx_tensor t)
{
    return t.shape[0] > 1 ? t.stride[0] : t.shape[1];
}

static int64_t tile_of(size_t bytes, size_t one)
{
    const int64_t rows = (int64_t)(bytes / one) / STEP * STEP;
    return rows > STEP ? rows : STEP;
}

static bool aligned(const void *p, int64_t stride, int64_t column, vx_dtype type)
{
    const size_t width = bytes_of(type);
    return ((uintptr_t)p | (size_t)stride * width | (size_t)column * width) % 16 == 0;
}

// Whether whole vectors of 16 bytes lie side by side in x, the weight and out. Copies of weights always begin at such a place.
static bool is_aligned(const vx_linear_args *args, const vx_weight_segment *segment, bool direct)
{
    const int64_t k = args->x.shape[1];
    return aligned(args->x.data, row_stride(args->x), k, args->x.dtype) &&
           aligned(args->out.data, row_stride(args->out), segment->column, args->out.dtype) &&
           (!direct || aligned(NULL, row_stride(segment->weight), 0, args->x.dtype));
}

static struct way way_of(const vx_linear_args *args, const vx_weight_segment *segment)
{
    const vx_dtype x = args->x.dtype, out = args->out.dtype, bias = segment->bias.rank ? segment->bias.dtype : VX_DTYPE_NONE;
    const int64_t m = args->x.shape[0], k = args->x.shape[1], rows = segment->weight.shape[0];
    const bool quantised = segment->quant.kind != VX_QUANT_NONE;
    struct way w = { .in = x, .tile = rows };
    w.direct = !quantised && (x != VX_F32 || segment->weight.dtype == x);
    w.through = x == VX_F32 && out == VX_BF16;
    if (bias != VX_DTYPE_NONE && !w.through) {
        w.epilogue = is_aligned(args, segment, w.direct);
        if (x == VX_F16 && out == VX_F32 && bias != VX_F16) w.epilogue = false;
        if (x == VX_BF16 && out == VX_BF16 && bias != VX_BF16) w.epilogue = false;
        w.late_bias = !w.epilogue && out == VX_F32;
        w.through = !w.epilogue && out != VX_F32;
    }
    w.sum = w.through ? VX_F32 : out;
    if (!w.direct) w.tile = vx_min_i64(w.tile, tile_of(WEIGHT_TILE, (size_t)k * bytes_of(x)));
    if (w.through) w.tile = vx_min_i64(w.tile, tile_of(SUM_TILE, (size_t)m * 4));
    w.bias_bytes = w.epilogue ? vx_align_up((size_t)rows * bytes_of(out), ALIGN) : 0;
    w.weight_bytes = w.direct ? 0 : vx_align_up((size_t)(w.tile * k) * bytes_of(x), ALIGN);
    w.sum_bytes = w.through ? vx_align_up((size_t)(m * w.tile) * 4, ALIGN) : 0;
    w.x_bytes = quantised && segment->quant.pre_scale.rank ? vx_align_up((size_t)(m * k) * bytes_of(x), ALIGN) : 0;
    return w;
}

static size_t bytes_of_way(const struct way *w)
{
    return VX_CUDA_BLAS_WORKSPACE + w->bias_bytes + w->weight_bytes + w->sum_bytes + w->x_bytes;
}

static struct scratch cut(char *base, const struct way *w)
{
    struct scratch s = { .workspace = base };
    s.bias = s.workspace + VX_CUDA_BLAS_WORKSPACE;
    s.weight = s.bias + w->bias_bytes;
    s.sum = s.weight + w->weight_bytes;
    s.x = s.sum + w->sum_bytes;
    return s;
}

// Small products by the definition, for the processor's bits where speed is nothing; the rest by the library.
static vx_status multiply(vx_cuda *cuda, const vx_cuda_product *p, void *workspace)
{
    enum { MOST_ROWS = 16 * 65535 }; // of a grid
    if (p->m > MOST_ROWS || (double)p->m * (double)p->n * (double)p->k > (double)cuda->short_products)
        return vx_cuda_blas_product(cuda, p, workspace);
    const vx_k_matrix out = { p->out, p->out_type, p->out_stride }, x = { (void *)(uintptr_t)p->x, p->in_type, p->x_stride },
                      w = { (void *)(uintptr_t)p->w, p->in_type, p->w_stride };
    return vx_cuda_status(vx_k_product_short(out, x, w, p->bias, p->m, p->n, p->k, cuda->stream), "vx_linear");
}

// ---- operands ----
static vx_k_matrix matrix(vx_tensor t)
{
    return (vx_k_matrix){ t.data, t.dtype, row_stride(t) };
}

static char *element(vx_tensor t, int64_t row, int64_t column)
{
    return (char *)t.data + (size_t)(row * row_stride(t) + column) * bytes_of(t.dtype);
}

// The bias for an epilogue: in out's format, and where vector loads can reach it.
static vx_status bias_for(vx_cuda *cuda, const vx_linear_args *args, const vx_weight_segment *segment, bool once, char *room,
                          const void **out)
{
    vx_tensor bias = segment->bias;
    const bool narrow_first = args->x.dtype == VX_F16; // then out is f16, or f32 beside an f16 bias, whose widening is exact
    VX_TRY(vx_cuda_resident_as(cuda, &bias, narrow_first ? VX_F16 : bias.dtype, once));
    *out = bias.data;
    const bool plain = bias.stride[0] == 1 || bias.shape[0] == 1;
    if (bias.dtype == args->out.dtype && plain && (uintptr_t)bias.data % 16 == 0) return vx_ok();
    *out = room;
    const vx_k_matrix from = { bias.data, bias.dtype, bias.stride[0] }, to = { room, args->out.dtype, 1 };
    return vx_cuda_status(vx_k_convert(to, from, bias.shape[0], 1, cuda->stream), "vx_linear");
}

// Rows of the weight as the product takes them.
static vx_status operand(vx_cuda *cuda, const vx_linear_args *args, const struct way *way, const vx_weight_segment *segment,
                         vx_tensor weight, int64_t row, char *room, vx_cuda_product *p)
{
    p->w = room;
    p->w_stride = p->k;
    if (segment->quant.kind != VX_QUANT_NONE) return vx_cuda_decode(cuda, segment, row, p->n, way->in, args->weight->once, room);
    const vx_k_matrix from = { element(weight, row, 0), weight.dtype, row_stride(weight) }, to = { room, way->in, p->k };
    if (!way->direct) return vx_cuda_status(vx_k_convert(to, from, p->n, p->k, cuda->stream), "vx_linear");
    p->w = from.data;
    p->w_stride = from.stride;
    return vx_ok();
}

// x, or what the segment's factors make of it.
static vx_status input(vx_cuda *cuda, const vx_linear_args *args, const struct way *way, const vx_weight_segment *segment,
                       char *room, vx_cuda_product *p)
{
    p->x = args->x.data;
    p->x_stride = row_stride(args->x);
    if (way->x_bytes == 0) return vx_ok();
    vx_tensor factor = segment->quant.pre_scale;
    VX_TRY(vx_cuda_resident(cuda, &factor, args->weight->once));
    const vx_k_matrix to = { room, args->x.dtype, p->k };
    p->x = room;
    p->x_stride = p->k;
    return vx_cuda_status(vx_k_scale_columns(to, matrix(args->x), factor.data, factor.dtype, p->m, p->k, cuda->stream),
                          "vx_linear");
}

// Rows of the weight from `row` on: columns of out.
static vx_status finish(vx_cuda *cuda, const vx_linear_args *args, const struct way *way, const vx_weight_segment *segment,
                        vx_tensor bias, int64_t row, int64_t rows, char *sums)
{
    const int64_t m = args->out.shape[0];
    const vx_k_matrix out = { element(args->out, 0, segment->column + row), args->out.dtype, row_stride(args->out) };
    const vx_k_matrix sum = way->through ? (vx_k_matrix){ sums, VX_F32, rows } : out;
    if (!way->through && !way->late_bias) return vx_ok();
    if (bias.rank == 0) return vx_cuda_status(vx_k_convert(out, sum, m, rows, cuda->stream), "vx_linear");
    const char *b = (const char *)bias.data + (size_t)row * bytes_of(bias.dtype);
    return vx_cuda_status(vx_k_bias(out, sum, b, bias.dtype, args->x.dtype == VX_F16, m, rows, cuda->stream), "vx_linear");
}

static vx_status multiply_segment(vx_cuda *cuda, const vx_linear_args *args, const vx_weight_segment *segment, char *base)
{
    const bool once = args->weight->once, quantised = segment->quant.kind != VX_QUANT_NONE;
    const struct way way = way_of(args, segment);
    const struct scratch s = cut(base, &way);
    vx_tensor weight = segment->weight, bias = segment->bias;
    const void *added = NULL;
    if (way.epilogue) VX_TRY(bias_for(cuda, args, segment, once, s.bias, &added));
    else VX_TRY(vx_cuda_resident(cuda, &bias, once));
    if (!quantised) VX_TRY(vx_cuda_resident_as(cuda, &weight, way.direct ? way.in : weight.dtype, once));
    vx_cuda_product p = { .m = args->x.shape[0], .k = args->x.shape[1], .in_type = way.in, .out_type = way.sum };
    VX_TRY(input(cuda, args, &way, segment, s.x, &p));
    const int64_t n = weight.shape[0];
    for (int64_t row = 0; row < n; row += way.tile) {
        p.n = vx_min_i64(way.tile, n - row);
        p.out = way.through ? s.sum : element(args->out, 0, segment->column + row);
        p.out_stride = way.through ? p.n : row_stride(args->out);
        p.bias = added ? (const char *)added + (size_t)row * bytes_of(way.sum) : NULL;
        VX_TRY(operand(cuda, args, &way, segment, weight, row, s.weight, &p));
        VX_TRY(multiply(cuda, &p, s.workspace));
        VX_TRY(finish(cuda, args, &way, segment, bias, row, p.n, s.sum));
    }
    return vx_ok();
}

// ---- branches ----
// t = x a^T and u = t b^T, some rows of x at a time, then out += scale * u. All bf16: t, u, the product and the sum are rounded;
// else everything is f32 but out.
struct branch {
    vx_dtype format;
    int64_t rows;
    size_t x, a, b, t, u; // bytes of scratch; x, a, b where they must be widened
};

static struct branch branch_of(const vx_linear_args *args, const vx_branch *branch)
{
    const vx_dtype x = args->x.dtype, a = branch->a.dtype, b = branch->b.dtype;
    const int64_t rank = branch->a.shape[0];
    struct branch s = { .rows = vx_min_i64(BRANCH_ROWS, args->x.shape[0]) };
    s.format = x == VX_BF16 && a == VX_BF16 && b == VX_BF16 ? VX_BF16 : VX_F32;
    const size_t width = bytes_of(s.format);
    s.x = s.format == x ? 0 : vx_align_up((size_t)(s.rows * args->x.shape[1]) * width, ALIGN);
    s.a = s.format == a ? 0 : vx_align_up((size_t)vx_tensor_count(branch->a) * width, ALIGN);
    s.b = s.format == b ? 0 : vx_align_up((size_t)vx_tensor_count(branch->b) * width, ALIGN);
    s.t = vx_align_up((size_t)(s.rows * rank) * width, ALIGN);
    s.u = vx_align_up((size_t)(s.rows * branch->b.shape[0]) * width, ALIGN);
    return s;
}

static size_t bytes_of_branch(const struct branch *s)
{
    return VX_CUDA_BLAS_WORKSPACE + s->x + s->a + s->b + s->t + s->u;
}

// `t` where the device has it, in the branch's format.
static vx_status widened(vx_cuda *cuda, vx_tensor *t, vx_dtype format, char *room)
{
    if (t->dtype == format) return vx_ok();
    const vx_tensor from = *t;
    *t = vx_tensor_of(room, format, from.shape[0], from.shape[1]);
    return vx_cuda_status(vx_k_convert(matrix(*t), matrix(from), from.shape[0], from.shape[1], cuda->stream), "vx_linear");
}

static vx_status product(vx_cuda *cuda, vx_tensor out, vx_tensor x, vx_tensor w, char *workspace)
{
    const vx_cuda_product p = { .m = x.shape[0],
                                .n = w.shape[0],
                                .k = x.shape[1],
                                .out_stride = row_stride(out),
                                .x_stride = row_stride(x),
                                .w_stride = row_stride(w),
                                .out_type = out.dtype,
                                .in_type = x.dtype,
                                .out = out.data,
                                .x = x.data,
                                .w = w.data };
    return multiply(cuda, &p, workspace);
}

static vx_status add_branch(vx_cuda *cuda, const vx_linear_args *args, const vx_branch *branch, char *base)
{
    const struct branch s = branch_of(args, branch);
    char *x_room = base + VX_CUDA_BLAS_WORKSPACE, *a_room = x_room + s.x, *b_room = a_room + s.a, *t_room = b_room + s.b,
         *u_room = t_room + s.t;
    vx_tensor a = branch->a, b = branch->b;
    VX_TRY(vx_cuda_resident(cuda, &a, args->weight->once));
    VX_TRY(vx_cuda_resident(cuda, &b, args->weight->once));
    VX_TRY(widened(cuda, &a, s.format, a_room));
    VX_TRY(widened(cuda, &b, s.format, b_room));
    for (int64_t row = 0; row < args->x.shape[0]; row += s.rows) {
        const int64_t rows = vx_min_i64(s.rows, args->x.shape[0] - row);
        vx_tensor x = vx_tensor_slice(args->x, 0, row, row + rows);
        const vx_tensor t = vx_tensor_of(t_room, s.format, rows, a.shape[0]);
        const vx_tensor u = vx_tensor_of(u_room, s.format, rows, b.shape[0]);
        VX_TRY(widened(cuda, &x, s.format, x_room));
        VX_TRY(product(cuda, t, x, a, base));
        VX_TRY(product(cuda, u, t, b, base));
        const vx_k_matrix out = { element(args->out, row, branch->column), args->out.dtype, row_stride(args->out) };
        VX_TRY(vx_cuda_status(vx_k_add_scaled(out, matrix(u), branch->scale, rows, b.shape[0], cuda->stream), "vx_linear"));
    }
    return vx_ok();
}

// ---- the operator ----
size_t vx_cuda_linear_scratch(const vx_device *dev, const vx_linear_args *args)
{
    (void)dev;
    size_t most = 0;
    for (int i = 0; i < args->weight->segments; i++) {
        const struct way w = way_of(args, &args->weight->segment[i]);
        const size_t bytes = bytes_of_way(&w);
        if (bytes > most) most = bytes;
    }
    for (int i = 0; i < args->weight->branches; i++) {
        const struct branch s = branch_of(args, &args->weight->branch[i]);
        const size_t bytes = bytes_of_branch(&s);
        if (bytes > most) most = bytes;
    }
    return most;
}

vx_status vx_cuda_linear(vx_device *dev, const vx_linear_args *args)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    void *base;
    VX_TRY(vx_cuda_scratch(cuda, vx_cuda_linear_scratch(dev, args), &base));
    for (int i = 0; i < args->weight->segments; i++) {
        if (args->weight->segment[i].weight.shape[0] == 0) continue;
        VX_TRY(multiply_segment(cuda, args, &args->weight->segment[i], base));
    }
    for (int i = 0; i < args->weight->branches; i++) VX_TRY(add_branch(cuda, args, &args->weight->branch[i], base));
    return vx_ok();
}
