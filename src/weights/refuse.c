// Sources: checkpoints specification 3.1, 3.9, 6.2; denoiser specification 3.
#include "weights/refuse.h"

#include <string.h>

#include "base/str.h"
#include "weights/foreign.h"

static const char unquantised[] = "use the official, the diffusers or a BF16 single-file checkpoint";

static vx_status quantised(const vx_safetensors *st, const char *what, const char *name)
{
    return vx_fail_remedy(VX_ERR_TENSOR_DTYPE, unquantised, "%s: quantised checkpoints are not supported: %s '%.200s'",
                          vx_short_path(vx_safetensors_path(st)), what, name);
}

// Companions that only quantisers write: ComfyUI, legacy FP8, ModelOpt, quanto, bitsandbytes, GPTQ/AWQ, MLX.
static bool is_marker(const char *name)
{
    static const char *const endings[] = { ".comfy_quant",      ".weight_scale",    ".weight_scale_2", ".weight_scale_inv",
                                           ".scale_weight",     ".scale_input",     ".input_scale",    ".weight_s_rel",
                                           ".weight_s_channel", ".pre_quant_scale", ".weight._data",   ".weight._scale",
                                           ".absmax",           ".weight_packed",   ".qweight",        ".qzeros",
                                           ".scales",           ".weight_zeros" };
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (vx_has_suffix(name, endings[i])) return true;
    return vx_has_suffix(name, "scaled_fp8");
}

vx_status vx_refuse_quantised(const vx_safetensors *st)
{
    for (int i = 0; i < vx_safetensors_count(st); i++) {
        const vx_safetensors_entry *e = vx_safetensors_at(st, i);
        if (is_marker(e->name)) return quantised(st, "found the tensor", e->name);
        bool real = e->dtype == VX_F32 || e->dtype == VX_BF16 || e->dtype == VX_F16 || e->dtype == VX_F64;
        if (real || !vx_has_suffix(e->name, ".weight")) continue;
        return vx_fail_remedy(VX_ERR_TENSOR_DTYPE, unquantised,
                              "%s: quantised checkpoints are not supported: tensor '%.200s' is %s, "
                              "expected F32, BF16 or F16",
                              vx_short_path(vx_safetensors_path(st)), e->name, vx_dtype_name(e->dtype));
    }
    static const char *const keys[] = { "_quantization_metadata", "quantization_format" };
    for (int i = 0; i < 2; i++)
        if (vx_safetensors_metadata(st, keys[i])) return quantised(st, "found the metadata", keys[i]);
    return vx_ok();
}

vx_status vx_refuse_adapter(const vx_safetensors *st)
{
    for (int i = 0; i < vx_safetensors_count(st); i++) {
        const char *name = vx_safetensors_at(st, i)->name;
        if (strstr(name, ".lora_"))
            return vx_fail_remedy(VX_ERR_MODEL_LAYOUT, "give the model that the adapter was made for",
                                  "%s is an adapter (LoRA), not a model: found tensor '%.200s'",
                                  vx_short_path(vx_safetensors_path(st)), name);
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
        { "adaln_t_table", "pruned checkpoints (an AdaLN curve in place of the time embedder)" },
        { "blocks.0.attn.to_gate_compress.weight", "sparse-attention (VSA) checkpoints" },
        { "control_proj_in.weight", "ControlNet checkpoints" },
        { "blocks.0.attn.qv_proj.weight", "checkpoints with separate or keyless attention projections" },
    };
    if (vx_component_kind_of(c) != VX_TRANSFORMER) return vx_ok();
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (vx_component_has(c, named[i].name)) return variant(c, named[i].name, named[i].what);
    if (vx_component_layout(c) == VX_LAYOUT_OFFICIAL && vx_component_has(c, "blocks.0.attn.to_q.weight"))
        return variant(c, "blocks.0.attn.to_q.weight", "official names with separate attention projections");
    // A bank of n heads for n stages of distillation: n times the rows that one patch has columns.
    int rank[2];
    int64_t out[VX_MAX_RANK], in[VX_MAX_RANK];
    vx_component_shape(c, "final_layer.video_out.weight", &rank[0], out);
    vx_component_shape(c, "video_patch_proj.weight", &rank[1], in);
    if (rank[0] == 2 && rank[1] == 2 && in[1] > 0 && out[0] > in[1] && out[0] % in[1] == 0)
        return variant(c, "final_layer.video_out.weight", "checkpoints with a bank of output heads (PDD)");
    return vx_ok();
}
