// The operators on rows, and those with numbers per channel: arguments to kernels/rows.h. What may lie in a file (norm weights,
// tables, learned gates) is asked for on the device; all else is there.
#include "device/cuda/kernels/rows.h"
#include "device/cuda/cuda.h"

static vx_k_rows rows_of(vx_tensor t)
{
    if (t.rank == 0) return (vx_k_rows){ 0 };
    return (vx_k_rows){ t.data, t.rank == 1 ? 0 : t.stride[0], t.dtype };
}

// The same of what may lie in a file.
static vx_status place(vx_cuda *cuda, vx_k_rows *to, vx_tensor t)
{
    if (t.rank > 0) VX_TRY(vx_cuda_resident(cuda, &t, false));
    *to = rows_of(t);
    return vx_ok();
}

vx_status vx_cuda_rms_norm(vx_device *dev, const vx_rms_norm_args *args)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    vx_k_norm norm = {
        .out = rows_of(args->out),
        .x = rows_of(args->x),
        .eps = args->eps,
        .twice = args->rounding == VX_NORM_ROUND_TWICE,
        .rows = args->x.shape[0],
        .n = args->x.shape[1],
    };
    VX_TRY(place(cuda, &norm.w, args->w));
    return vx_cuda_status(vx_k_rms_norm(&norm, cuda->stream), "vx_rms_norm");
}

static vx_status modulated_norm(vx_cuda *cuda, vx_k_norm *norm, const vx_rms_norm_modulate_args *args)
{
    *norm = (vx_k_norm){
        .out = rows_of(args->out),
        .x = rows_of(args->x),
        .row = args->row.rank ? args->row.data : NULL,
        .eps = args->eps,
        .rows = args->x.shape[0],
        .n = args->x.shape[1],
    };
    VX_TRY(place(cuda, &norm->w, args->w));
    VX_TRY(place(cuda, &norm->shift, args->shift));
    return place(cuda, &norm->scale, args->scale);
}

vx_status vx_cuda_rms_norm_modulate(vx_device *dev, const vx_rms_norm_modulate_args *args)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    vx_k_norm norm;
    VX_TRY(modulated_norm(cuda, &norm, args));
    return vx_cuda_status(vx_k_rms_norm(&norm, cuda->stream), "vx_rms_norm_modulate");
}

vx_status vx_cuda_layer_norm(vx_device *dev, const vx_layer_norm_args *args)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    vx_k_norm norm = {
        .out = rows_of(args->out),
        .x = rows_of(args->x),
        .eps = args->eps,
        .rows = args->x.shape[0],
        .n = args->x.shape[1],
    };
    VX_TRY(place(cuda, &norm.w, args->w));
    VX_TRY(place(cuda, &norm.b, args->b));
    return vx_cuda_status(vx_k_layer_norm(&norm, cuda->stream), "vx_layer_norm");
}

vx_status vx_cuda_add(vx_device *dev, const vx_add_args *args)
{
    const vx_tensor x = args->x;
    return vx_cuda_status(vx_k_add(rows_of(x), rows_of(args->y), x.shape[0], x.shape[1], vx_cuda_of(dev)->stream), "vx_add");
}

vx_status vx_cuda_gate_add(vx_device *dev, const vx_gate_add_args *args)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    const vx_tensor x = args->x;
    const int32_t *row = args->row.rank ? args->row.data : NULL;
    vx_k_rows gate;
    VX_TRY(place(cuda, &gate, args->gate));
    return vx_cuda_status(vx_k_gate_add(rows_of(x), rows_of(args->y), gate, row, x.shape[0], x.shape[1], cuda->stream),
                          "vx_gate_add");
}

vx_status vx_cuda_gate_add_norm(vx_device *dev, const vx_gate_add_norm_args *args)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    vx_k_norm norm;
    vx_k_rows gate;
    VX_TRY(modulated_norm(cuda, &norm, &args->norm));
    VX_TRY(place(cuda, &gate, args->add.gate));
    return vx_cuda_status(vx_k_gate_add_norm(&norm, rows_of(args->add.y), gate, cuda->stream), "vx_gate_add_norm");
}

vx_status vx_cuda_swiglu(vx_device *dev, const vx_swiglu_args *args)
{
    const vx_tensor out = args->out;
    return vx_cuda_status(
        vx_k_swiglu(rows_of(out), rows_of(args->u), args->gate_first, out.shape[0], out.shape[1], vx_cuda_of(dev)->stream),
        "vx_swiglu");
}

static cudaError_t activate(vx_device *dev, vx_tensor out, vx_tensor x, vx_k_function f)
{
    return vx_k_activate(rows_of(out), rows_of(x), f, x.shape[0], x.shape[1], vx_cuda_of(dev)->stream);
}

vx_status vx_cuda_silu(vx_device *dev, const vx_silu_args *args)
{
    return vx_cuda_status(activate(dev, args->out, args->x, VX_K_SILU), "vx_silu");
}

vx_status vx_cuda_gelu(vx_device *dev, const vx_gelu_args *args)
{
    return vx_cuda_status(activate(dev, args->out, args->x, args->tanh_form ? VX_K_GELU_TANH : VX_K_GELU_ERF), "vx_gelu");
}

vx_status vx_cuda_embed(vx_device *dev, const vx_embed_args *args)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    const vx_tensor out = args->out;
    vx_k_rows table;
    if (args->quant.kind != VX_QUANT_NONE) return vx_cuda_embed_decoded(cuda, args);
    VX_TRY(place(cuda, &table, args->table));
    return vx_cuda_status(vx_k_embed(rows_of(out), table, args->ids.data, out.shape[0], out.shape[1], cuda->stream), "vx_embed");
}

vx_status vx_cuda_embed_blend(vx_device *dev, const vx_embed_blend_args *args)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    const vx_tensor out = args->out, ids = args->ids, weights = args->weights;
    vx_k_rows table;
    VX_TRY(place(cuda, &table, args->table));
    return vx_cuda_status(vx_k_embed_blend(rows_of(out), table, ids.data, ids.stride[0], weights.data, weights.stride[0],
                                           out.shape[0], out.shape[1], cuda->stream),
                          "vx_embed_blend");
}

static vx_status heads_of(vx_cuda *cuda, vx_k_heads *to, vx_tensor t, vx_tensor w)
{
    *to = (vx_k_heads){ 0 };
    if (t.rank == 0 || t.shape[1] == 0) return vx_ok();
    *to = (vx_k_heads){ .data = t.data, .row = t.stride[0], .head = t.stride[1], .heads = t.shape[1] };
    return place(cuda, &to->w, w);
}

vx_status vx_cuda_qk_norm_rope(vx_device *dev, const vx_qk_norm_rope_args *args)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    const vx_qk_norm_rope_params *p = &args->params;
    vx_k_qk qk = {
        .cos = rows_of(p->cos),
        .sin = rows_of(p->sin),
        .act = args->q.dtype,
        .rows = args->q.shape[0],
        .lines = p->cos.rank ? p->cos.shape[0] : args->q.shape[0],
        .head_dim = args->q.shape[2],
        .pairs = p->cos.rank ? p->cos.shape[1] : 0,
        .eps = p->eps,
        .twice = p->rounding == VX_NORM_ROUND_TWICE,
        .skip_norm = p->skip_norm,
        .rope_once = p->rope_once,
    };
    VX_TRY(heads_of(cuda, &qk.q, args->q, p->q_weight));
    VX_TRY(heads_of(cuda, &qk.k, args->k, p->k_weight));
    return vx_cuda_status(vx_k_qk_norm_rope(&qk, cuda->stream), "vx_qk_norm_rope");
}

vx_status vx_cuda_snake(vx_device *dev, const vx_snake_args *args)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    const vx_tensor out = args->out, x = args->x;
    vx_tensor alpha = args->alpha;
    VX_TRY(vx_cuda_resident(cuda, &alpha, false));
    const vx_k_snake_rows rows = {
        .out = vx_f32_of(out),
        .x = vx_f32_of(x),
        .alpha = vx_f32_of(alpha),
        .out_stride = { out.stride[0], out.stride[1] },
        .x_stride = { x.stride[0], x.stride[1] },
        .alpha_stride = alpha.stride[0],
        .channels = x.shape[0],
        .lines = x.shape[1],
        .length = x.shape[2],
    };
    return vx_cuda_status(vx_k_snake_rows_run(&rows, cuda->stream), "vx_snake");
}

vx_status vx_cuda_group_norm(vx_device *dev, const vx_group_norm_args *args)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    const vx_tensor out = args->out, x = args->x;
    vx_k_group_norm norm = {
        .out = vx_f32_of(out),
        .x = vx_f32_of(x),
        .out_stride = { out.stride[0], out.stride[1], out.stride[2] },
        .x_stride = { x.stride[0], x.stride[1], x.stride[2] },
        .channels = x.shape[0],
        .frames = x.shape[1],
        .height = x.shape[2],
        .width = x.shape[3],
        .groups = args->groups,
        .eps = args->eps,
        .silu = args->silu,
    };
    VX_TRY(place(cuda, &norm.w, args->w));
    VX_TRY(place(cuda, &norm.b, args->b));
    norm.w.stride = args->w.stride[0];
    norm.b.stride = args->b.stride[0];
    return vx_cuda_status(vx_k_group_norm_run(&norm, cuda->stream), "vx_group_norm");
}
