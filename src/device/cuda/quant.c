// Quantised matrices on the card: their bytes are copied as they are in the file, and decoded where and when a product needs them.
#include "device/cuda/kernels/quant.h"
#include "device/cuda/cuda.h"

static vx_k_quant_kind kind_of(vx_quant_kind kind)
{
    switch (kind) {
    case VX_QUANT_FP8: return VX_K_FP8;
    case VX_QUANT_INT8: return VX_K_INT8;
    case VX_QUANT_NVFP4: return VX_K_NVFP4;
    case VX_QUANT_MXFP8: return VX_K_MXFP8;
    case VX_QUANT_INT4: return VX_K_INT4;
    case VX_QUANT_W4A8: return VX_K_W4A8;
    default: return VX_K_GGUF;
    }
}

static bool rotates(vx_quant_kind kind)
{
    return kind == VX_QUANT_INT8 || kind == VX_QUANT_INT4 || kind == VX_QUANT_W4A8;
}

// A matrix with its companions on the card, as kernels take it.
static vx_status place(vx_cuda *cuda, vx_k_quant *out, vx_quant q, vx_tensor values, bool once)
{
    enum { PARTS = 5 };
    vx_tensor *parts[PARTS] = { &q.scale, &q.block_scale, &q.codebook, &q.correction, &values };
    for (int i = 0; i < PARTS; i++) VX_TRY(vx_cuda_resident(cuda, parts[i], once));
    *out = (vx_k_quant){ .kind = kind_of(q.kind),
                         .type = q.type,
                         .rotate = rotates(q.kind) ? q.rotate : 0,
                         .group = q.group > 0 ? q.group : 1,
                         .block = q.kind == VX_QUANT_GGUF ? vx_gguf_block(q.type) : 1,
                         .block_bytes = vx_gguf_block_bytes(q.type),
                         .k = q.k,
                         .row = q.row,
                         .values = values.data,
                         .stride = values.stride[0],
                         .values_type = values.dtype,
                         .scale = q.scale.data,
                         .scale_count = q.scale.shape[0],
                         .scale_stride = q.scale.stride[0],
                         .block_scale = q.block_scale.data,
                         .block_type = q.block_scale.dtype,
                         .block_columns = q.block_scale.shape[1],
                         .codebook = q.codebook.rank ? q.codebook.data : NULL,
                         .codebook_stride = q.codebook.stride[0],
                         .correction = q.correction.rank ? q.correction.data : NULL,
                         .correction_type = q.correction.dtype,
                         .correction_group = q.correction.stride[0],
                         .correction_row = q.correction.stride[1] };
    return vx_ok();
}

vx_status vx_cuda_embed_decoded(vx_cuda *cuda, const vx_embed_args *args)
{
    vx_k_quant k;
    const vx_tensor out = args->out;
    VX_TRY(place(cuda, &k, args->quant, args->table, false));
    const vx_k_matrix to = { out.data, out.dtype, out.shape[0] > 1 ? out.stride[0] : out.shape[1] };
    return vx_cuda_status(vx_k_quant_embed(&k, args->ids.data, out.shape[0], to, cuda->stream), "vx_embed");
}

vx_status vx_cuda_decode(vx_cuda *cuda, const vx_weight_segment *segment, int64_t row, int64_t rows, vx_dtype type, bool once,
                         void *out)
{
    vx_k_quant k;
    VX_TRY(place(cuda, &k, segment->quant, segment->weight, once));
    const vx_k_matrix to = { out, type, k.k };
    return vx_cuda_status(vx_k_quant_decode(&k, row, rows, to, cuda->stream), "decoding a weight");
}
