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

vx_status vx_cuda_decode(vx_cuda *cuda, const vx_weight_segment *segment, int64_t row, int64_t rows, vx_dtype type, bool once,
                         void *out)
{
    vx_quant q = segment->quant;
    vx_tensor values = segment->weight;
    vx_tensor *companions[] = { &q.scale, &q.block_scale, &q.codebook, &q.correction, &values };
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++) VX_TRY(vx_cuda_resident(cuda, companions[i], once));
    const vx_k_quant k = { .kind = kind_of(q.kind),
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
    const vx_k_matrix to = { out, type, q.k };
    return vx_cuda_status(vx_k_quant_decode(&k, row, rows, to, cuda->stream), "decoding a weight");
}
