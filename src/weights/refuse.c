// Sources: checkpoints specification 3.1, 3.9, 6.2; denoiser specification 3.
#include "weights/refuse.h"

#include <string.h>

#include "base/str.h"
#include "weights/foreign.h"

static const char supported[] = "use a file in one of the formats of docs/formats.md";

// Endings of tensors that only these tools write (checkpoints specification 3.9).
static const struct quantiser {
    const char *ending, *tool;
} quantisers[] = {
    { ".weight._data", "quanto" },
    { ".weight._scale", "quanto" },
    { ".weight_scale_inv", "block-FP8 (128x128)" },
    { ".absmax", "bitsandbytes" },
    { ".nested_absmax", "bitsandbytes" },
    { ".quant_map", "bitsandbytes" },
    { ".weight.quant_state.bitsandbytes__nf4", "bitsandbytes NF4" },
    { ".quant_state.bitsandbytes__fp4", "bitsandbytes FP4" },
    { ".weight_packed", "compressed-tensors" },
    { ".smooth_factor", "SVDQuant (Nunchaku)" },
    { ".smooth_factor_orig", "SVDQuant (Nunchaku)" },
    { ".wscales", "SVDQuant (Nunchaku)" },
    { ".qzeros", "GPTQ or AWQ" },
    { ".g_idx", "GPTQ" },
    { ".weight_zeros", "awq_w4a16" },
    { ".scales", "MLX or GPTQ" },
    { ".qweight", "GPTQ, AWQ or SVDQuant" },
};

static vx_status refuse_tool(const vx_container *file, const char *tool, const char *found, const char *name)
{
    return vx_fail_remedy(VX_ERR_QUANT_FORMAT, supported, "%s is quantised by %s, which is not supported: found %s '%.200s'",
                          vx_short_path(vx_container_path(file)), tool, found, name);
}

vx_status vx_refuse_quantiser(const vx_container *file)
{
    // In order of the table: what several tools write comes after what tells them apart.
    for (size_t k = 0; k < sizeof quantisers / sizeof *quantisers; k++)
        for (int i = 0; i < vx_container_count(file); i++) {
            const char *name = vx_container_at(file, i)->name;
            if (vx_has_suffix(name, quantisers[k].ending)) return refuse_tool(file, quantisers[k].tool, "the tensor", name);
        }
    const char *format = vx_container_metadata(file, "quantization_format");
    if (format && strcmp(format, "int8_convrot") != 0) return refuse_tool(file, format, "the metadata", "quantization_format");
    if (vx_container_metadata(file, "activation_rotation"))
        return refuse_tool(file, "a tool that rotates activations", "the metadata", "activation_rotation");
    return vx_ok();
}

vx_status vx_refuse_adapter(const vx_container *file)
{
    for (int i = 0; i < vx_container_count(file); i++) {
        const char *name = vx_container_at(file, i)->name;
        if (strstr(name, ".lora_") || strstr(name, ".lora."))
            return vx_fail_remedy(
                VX_ERR_MODEL_LAYOUT, "give the model that the adapter was made for, and the adapter with --lora",
                "%s is an adapter (LoRA), not a model: found tensor '%.200s'", vx_short_path(vx_container_path(file)), name);
    }
    return vx_ok();
}

static vx_status variant(const vx_component *c, const char *name, const char *what)
{
    return vx_fail_remedy(VX_ERR_MODEL_LAYOUT, "use the full, unmodified checkpoint",
                          "%s: %s are not supported: found tensor '%.160s'", vx_short_path(vx_component_path(c)), what, name);
}

vx_status vx_refuse_variant(const vx_component *c)
{
    static const struct {
        const char *name, *what;
    } named[] = {
        { "blocks.0.attn.to_gate_compress.weight", "sparse-attention (VSA) checkpoints" },
        { "control_proj_in.weight", "ControlNet checkpoints" },
        { "blocks.0.attn.qv_proj.weight", "checkpoints with keyless attention projections" },
        { "adaln_time_basis", "checkpoints with a basis of time (DynTime)" },
    };
    if (vx_component_kind_of(c) != VX_TRANSFORMER) return vx_ok();
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (vx_component_has(c, named[i].name)) return variant(c, named[i].name, named[i].what);
    if (vx_component_layout(c) == VX_LAYOUT_OFFICIAL && vx_component_has(c, "blocks.0.attn.to_q.weight"))
        return variant(c, "blocks.0.attn.to_q.weight", "official names with separate attention projections (DynTime)");
    // A bank of n heads for n stages of distillation: n times the rows that one patch has columns.
    int rank[2];
    int64_t out[VX_MAX_RANK], in[VX_MAX_RANK];
    vx_component_shape(c, "final_layer.video_out.weight", &rank[0], out);
    vx_component_shape(c, "video_patch_proj.weight", &rank[1], in);
    if (rank[0] == 2 && rank[1] == 2 && in[1] > 0 && out[0] > in[1] && out[0] % in[1] == 0)
        return variant(c, "final_layer.video_out.weight", "checkpoints with a bank of output heads (PDD)");
    return vx_ok();
}
