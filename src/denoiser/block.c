// One transformer block: pre-norm attention and SwiGLU, in the main stack modulated per row by its timestep and modality
// (specification 1.3, 1.6, 1.7, 1.9).
#include "base/checked.h"
#include "denoiser/network.h"

enum { WIDE_ALIGN = 64 };

static int64_t aligned(int64_t elements)
{
    return vx_ceil_div(elements, WIDE_ALIGN) * WIDE_ALIGN;
}

static int64_t inner_of(const vx_denoiser_config *config)
{
    return config->heads * config->head_dim;
}

// The MLP is wider than attention: it takes the rows in as many equal parts as it is times wider, whole tiles of a matrix unit.
// Few rows are no parts.
static int64_t rows_of_part(const vx_denoiser_config *config, int64_t rows)
{
    enum { TILE = 256 };
    const int64_t parts = vx_ceil_div(config->ffn, inner_of(config)), part = vx_ceil_div(vx_ceil_div(rows, parts), TILE) * TILE;
    return vx_min_i64(rows, vx_max_i64(part, VX_DENOISER_CHUNK));
}

// For attention `wide` holds     [rows, 3*inner] q, k, v, then [rows, hidden] the projection of what `narrow` has of them
// while the MLP runs, a part's   [part, 2*ffn] gate and value | [part, ffn] their product
int64_t vx_denoiser_wide(const vx_denoiser_config *config, int64_t rows)
{
    const int64_t attention = rows * vx_max_i64(3 * inner_of(config), config->hidden), part = rows_of_part(config, rows);
    return vx_max_i64(attention, aligned(part * 2 * config->ffn) + part * config->ffn);
}

// Rows that go into a product, [rows, hidden], or attention's, [rows, inner].
int64_t vx_denoiser_narrow(const vx_denoiser_config *config, int64_t rows)
{
    return rows * vx_max_i64(inner_of(config), config->hidden);
}

// The first [rows, columns] of a buffer.
static vx_tensor top_of(vx_tensor buffer, int64_t rows, int64_t columns)
{
    return vx_tensor_reshape(vx_tensor_slice(buffer, 0, 0, rows * columns), 2, (const int64_t[]){ rows, columns });
}

static vx_tensor h_of(const vx_denoiser_buffers *b)
{
    return top_of(b->narrow, b->x.shape[0], b->x.shape[1]);
}

static vx_tensor carve(vx_tensor wide, int64_t *at, int64_t rows, int64_t columns)
{
    vx_tensor t = vx_tensor_slice(wide, 0, *at, *at + rows * columns);
    *at += aligned(rows * columns);
    return vx_tensor_reshape(t, 2, (const int64_t[]){ rows, columns });
}

// [rows, heads, head_dim] inside the fused product, whatever order the file has its columns in.
static vx_tensor heads_of(vx_tensor product, const vx_qkv *qkv, int which, const vx_denoiser_config *k)
{
    vx_tensor t = vx_tensor_slice(product, 1, qkv->offset[which], qkv->offset[which] + k->head_dim);
    if (t.rank != 2) return t;
    t.rank = 3;
    t.shape[1] = k->heads;
    t.shape[2] = k->head_dim;
    t.stride[1] = qkv->head_stride;
    t.stride[2] = 1;
    return t;
}

// *y = attention(h), in `wide`; h is overwritten.
static vx_status attention(vx_device *dev, const vx_denoiser_config *k, const vx_denoiser_block *block,
                           const vx_denoiser_buffers *b, const vx_denoiser_rows *rows, vx_tensor *y)
{
    const int64_t count = b->x.shape[0];
    vx_tensor product = top_of(b->wide, count, 3 * inner_of(k)), out = top_of(b->narrow, count, inner_of(k));
    VX_TRY(vx_linear(dev, product, h_of(b), &block->qkv.weight));
    vx_tensor q = heads_of(product, &block->qkv, 0, k);
    vx_tensor key = heads_of(product, &block->qkv, 1, k);
    vx_tensor v = heads_of(product, &block->qkv, 2, k);
    vx_qk_norm_rope_params rope = {
        .q_weight = block->q_norm, .k_weight = block->k_norm, .eps = k->qk_norm_eps, .rounding = VX_NORM_ROUND_ONCE
    };
    if (rows) {
        rope.cos = rows->cos;
        rope.sin = rows->sin;
    }
    VX_TRY(vx_qk_norm_rope(dev, q, key, &rope));
    VX_TRY(vx_attention(dev, vx_tensor_split(out, 1, k->head_dim), q, key, v, &(vx_attention_params){ 0 }));
    *y = top_of(b->wide, count, k->hidden); // q, k, v are read
    return vx_linear(dev, *y, out, &block->out_proj);
}

vx_status vx_denoiser_run_mlp(vx_device *dev, const vx_denoiser_config *k, const vx_denoiser_block *block, vx_tensor rows,
                              vx_tensor wide)
{
    const int64_t count = rows.shape[0], step = rows_of_part(k, count);
    for (int64_t begin = 0; begin < count; begin += step) {
        const int64_t end = vx_min_i64(begin + step, count);
        int64_t at = 0;
        vx_tensor u = carve(wide, &at, end - begin, 2 * k->ffn);
        vx_tensor y = carve(wide, &at, end - begin, k->ffn);
        vx_tensor h = vx_tensor_slice(rows, 0, begin, end);
        VX_TRY(vx_linear(dev, u, h, &block->fc1));
        VX_TRY(vx_swiglu(dev, y, u, block->gate_first));
        VX_TRY(vx_linear(dev, h, y, &block->fc2));
    }
    return vx_ok();
}

vx_tensor vx_denoiser_part(vx_tensor table, int64_t part)
{
    return vx_tensor_merge(vx_tensor_slice(table, 1, part, part + 1), 1);
}

vx_status vx_denoiser_run_plain(vx_device *dev, const vx_denoiser_config *k, const vx_denoiser_block *block,
                                const vx_denoiser_buffers *b)
{
    vx_tensor h = h_of(b), y;
    VX_TRY(vx_rms_norm(dev, h, b->x, block->norm1, k->norm_eps, VX_NORM_ROUND_ONCE));
    VX_TRY(attention(dev, k, block, b, NULL, &y));
    VX_TRY(vx_add(dev, b->x, y));
    VX_TRY(vx_rms_norm(dev, h, b->x, block->norm2, k->norm_eps, VX_NORM_ROUND_ONCE));
    VX_TRY(vx_denoiser_run_mlp(dev, k, block, h, b->wide));
    return vx_add(dev, b->x, h);
}

static vx_tensor part(const vx_denoiser_rows *rows, int which)
{
    return vx_denoiser_part(rows->modulation, which);
}

vx_status vx_denoiser_enter(vx_device *dev, const vx_denoiser_config *config, const vx_denoiser_block *block,
                            const vx_denoiser_buffers *b, const vx_denoiser_rows *rows)
{
    return vx_rms_norm_modulate(dev, h_of(b), b->x, block->norm1, part(rows, VX_SHIFT_MSA), part(rows, VX_SCALE_MSA), rows->map,
                                config->norm_eps);
}

vx_status vx_denoiser_run_block(vx_device *dev, const vx_denoiser_config *config, const vx_denoiser_block *block,
                                const vx_denoiser_buffers *b, const vx_denoiser_rows *rows, const vx_denoiser_block *next,
                                const vx_denoiser_rows *next_rows)
{
    vx_tensor h = h_of(b), y;
    VX_TRY(attention(dev, config, block, b, rows, &y));
    const vx_gate_add_norm_params middle = { .gate = part(rows, VX_GATE_MSA),
                                             .w = block->norm2,
                                             .shift = part(rows, VX_SHIFT_MLP),
                                             .scale = part(rows, VX_SCALE_MLP),
                                             .row = rows->map,
                                             .eps = config->norm_eps };
    VX_TRY(vx_gate_add_norm(dev, h, b->x, y, &middle));
    VX_TRY(vx_denoiser_run_mlp(dev, config, block, h, b->wide));
    if (!next) return vx_gate_add(dev, b->x, h, part(rows, VX_GATE_MLP), rows->map);
    const vx_gate_add_norm_params end = { .gate = part(rows, VX_GATE_MLP),
                                          .w = next->norm1,
                                          .shift = part(next_rows, VX_SHIFT_MSA),
                                          .scale = part(next_rows, VX_SCALE_MSA),
                                          .row = rows->map,
                                          .eps = config->norm_eps };
    return vx_gate_add_norm(dev, h, b->x, h, &end);
}
