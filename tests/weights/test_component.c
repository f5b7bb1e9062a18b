// Components: names and layouts, order of QKV rows (public bugs P23), indexes, what is refused, binding and its account.
#include "testing.h"

#include "base/alloc.h"
#include "base/log.h"
#include "files.h"
#include "weights/component.h"

#define F32_1 "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"

static vx_status open_and_close(vx_component_kind kind, const char *path)
{
    vx_component *c = NULL;
    vx_status s = vx_component_open(&c, kind, path);
    if (s.code != VX_OK) assert_null(c);
    vx_component_close(&c);
    return s;
}

// Tensors of one number each, f32.
static const char *put_names(const char *file, const char *const *names, int count, const vx_safetensors_pair *metadata,
                             int pairs)
{
    static const float one[1] = { 1 };
    vx_safetensors_tensor t[32];
    assert_true(count <= 32);
    for (int i = 0; i < count; i++) t[i] = (vx_safetensors_tensor){ names[i], VX_F32, 1, { 1 }, one };
    put_text(file, ""); // makes the folders
    assert_ok(vx_safetensors_write(at(file), true, t, count, metadata, pairs));
    return at(file);
}

#define PUT_NAMES(file, ...)                                                                                                    \
    put_names(file, (const char *const[]){ __VA_ARGS__ }, (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)), \
              NULL, 0)

static const vx_safetensors_pair comfy[] = { { "config",
                                               "{\"transformer\": {\"image_model\": \"minimax_h3\", \"hidden_size\": 2}}" } };
static const vx_safetensors_pair deepbeepmeep[] = {
    { "repo_id", "DeepBeepMeep/MiniMax-H3" }, { "partition", "FL2VA" }, { "precision", "bf16" }, { "source_revision", "1" }
};

// ---- the same small block in every layout ----

enum { HEADS = 3, HEAD_DIM = 4, WIDTH = HEADS * HEAD_DIM, K = 5, FFN = 7 };

// Row r of q (part 0), k or v, column c: distinct numbers.
static uint16_t qkv_number(int part, int r, int c)
{
    return (uint16_t)(0x3c00 + part * 1024 + r * 16 + c);
}

static uint16_t ffn_number(bool gate, int r, int c)
{
    return (uint16_t)(0x4000 + (gate ? 0 : 1024) + r * 16 + c);
}

typedef enum layout { INTERLEAVED, GROUPED, SPLIT } layout;

static void put_block(const char *file, layout l, const vx_safetensors_pair *metadata, int pairs)
{
    uint16_t fused[3 * WIDTH * K], part[3][WIDTH * K], fc1[2 * FFN * K];
    for (int p = 0; p < 3; p++)
        for (int r = 0; r < WIDTH; r++)
            for (int c = 0; c < K; c++) {
                int row = l == INTERLEAVED ? (r / HEAD_DIM) * 3 * HEAD_DIM + p * HEAD_DIM + r % HEAD_DIM : p * WIDTH + r;
                fused[row * K + c] = part[p][r * K + c] = qkv_number(p, r, c);
            }
    for (int r = 0; r < FFN; r++)
        for (int c = 0; c < K; c++) {
            fc1[((l == SPLIT ? FFN : 0) + r) * K + c] = ffn_number(true, r, c);
            fc1[((l == SPLIT ? 0 : FFN) + r) * K + c] = ffn_number(false, r, c);
        }
    const vx_safetensors_tensor official[] = { { "blocks.0.attn.qkv_proj.weight", VX_BF16, 2, { 3 * WIDTH, K }, fused },
                                               { "blocks.0.mlp.fc1.weight", VX_BF16, 2, { 2 * FFN, K }, fc1 },
                                               { "video_patch_proj.weight", VX_BF16, 1, { 1 }, fc1 },
                                               { "audio_patch_proj.weight", VX_BF16, 1, { 1 }, fc1 } };
    const vx_safetensors_tensor diffusers[] = { { "transformer_blocks.0.attn.to_q.weight", VX_BF16, 2, { WIDTH, K }, part[0] },
                                                { "transformer_blocks.0.attn.to_k.weight", VX_BF16, 2, { WIDTH, K }, part[1] },
                                                { "transformer_blocks.0.attn.to_v.weight", VX_BF16, 2, { WIDTH, K }, part[2] },
                                                { "transformer_blocks.0.ff.net.0.proj.weight", VX_BF16, 2, { 2 * FFN, K }, fc1 },
                                                { "proj_in.weight", VX_BF16, 1, { 1 }, fc1 },
                                                { "audio_proj_in.weight", VX_BF16, 1, { 1 }, fc1 } };
    put_text(file, "");
    if (l == SPLIT) assert_ok(vx_safetensors_write(at(file), true, diffusers, 6, metadata, pairs));
    else assert_ok(vx_safetensors_write(at(file), true, official, 4, metadata, pairs));
}

static uint16_t product_weight(const vx_weight *w, int64_t column, int64_t c)
{
    for (int s = 0; s < w->segments; s++) {
        const vx_weight_segment *g = &w->segment[s];
        int64_t row = column - g->column;
        if (row >= 0 && row < g->weight.shape[0]) return ((const uint16_t *)g->weight.data)[row * g->weight.stride[0] + c];
    }
    fail_msg("no segment has column %d", (int)column);
    return 0;
}

static void assert_block(const char *path)
{
    vx_component *c;
    vx_qkv qkv;
    vx_weight fc1;
    bool gate_first;
    assert_ok(vx_component_open(&c, VX_TRANSFORMER, path));
    assert_ok(vx_component_qkv(c, "blocks.0.attn.qkv_proj", HEADS, HEAD_DIM, K, false, &qkv));
    assert_int_equal(qkv.weight.n, 3 * WIDTH);
    assert_int_equal(qkv.weight.k, K);
    for (int p = 0; p < 3; p++)
        for (int r = 0; r < WIDTH; r++)
            for (int k = 0; k < K; k++)
                assert_int_equal(product_weight(&qkv.weight, qkv.offset[p] + r / HEAD_DIM * qkv.head_stride + r % HEAD_DIM, k),
                                 qkv_number(p, r, k));
    assert_ok(vx_component_swiglu(c, "blocks.0.mlp.fc1", FFN, K, false, &fc1, &gate_first));
    for (int r = 0; r < FFN; r++)
        for (int k = 0; k < K; k++) {
            assert_int_equal(product_weight(&fc1, gate_first ? r : FFN + r, k), ffn_number(true, r, k));
            assert_int_equal(product_weight(&fc1, gate_first ? FFN + r : r, k), ffn_number(false, r, k));
        }
    vx_component_ignore(c, "video_patch_proj");
    vx_component_ignore(c, "audio_patch_proj");
    assert_ok(vx_component_finish(c));
    vx_component_close(&c);
}

static void gives_the_same_qkv_and_swiglu_in_every_layout(void **state)
{
    (void)state;
    put_block("official/model-00001-of-00001.safetensors", INTERLEAVED, NULL, 0);
    put_text("official/model.safetensors.index.json",
             "{\"metadata\":{},\"weight_map\":{\"blocks.0.attn.qkv_proj.weight\":\"model-00001-of-00001.safetensors\",\"blocks.0."
             "mlp.fc1.weight\":\"model-00001-of-00001.safetensors\",\"video_patch_proj.weight\":\"model-00001-of-00001."
             "safetensors\",\"audio_patch_proj.weight\":\"model-00001-of-00001.safetensors\"}}");
    assert_block(at("official"));
    put_block("class/model.safetensors", INTERLEAVED, NULL, 0);
    put_text("class/config.json", "{\"_class_name\":\"MiniMaxH3DiTModel\"}");
    assert_block(at("class"));
    assert_block(at("class/model.safetensors"));
    put_block("comfy.safetensors", GROUPED, comfy, 1);
    assert_block(at("comfy.safetensors"));
    put_block("deepbeepmeep.safetensors", INTERLEAVED, deepbeepmeep, 4);
    assert_block(at("deepbeepmeep.safetensors"));
    put_block("diffusers/diffusion_pytorch_model.safetensors", SPLIT, NULL, 0);
    assert_block(at("diffusers"));
    assert_block(at("diffusers/diffusion_pytorch_model.safetensors"));
}

static void refuses_a_file_whose_qkv_order_nothing_tells(void **state)
{
    (void)state;
    static const vx_safetensors_pair other[] = { { "format", "pt" },
                                                 { "config", "{\"transformer\": {\"image_model\": \"flux\"}}" } };
    put_block("plain.safetensors", INTERLEAVED, other, 2);
    vx_status s = open_and_close(VX_TRANSFORMER, at("plain.safetensors"));
    assert_int_equal(s.code, VX_ERR_MODEL_QKV);
    assert_says(s, "order of the QKV rows");
    assert_true(s.remedy[0]);
    put_block("folder_without_config/model.safetensors", INTERLEAVED, NULL, 0);
    assert_code(open_and_close(VX_TRANSFORMER, at("folder_without_config")), VX_ERR_MODEL_QKV);
    vx_safetensors_pair both[5] = { comfy[0] };
    memcpy(both + 1, deepbeepmeep, sizeof deepbeepmeep);
    put_block("both.safetensors", GROUPED, both, 5);
    assert_code(open_and_close(VX_TRANSFORMER, at("both.safetensors")), VX_ERR_MODEL_LAYOUT);
    put_block("official/model-00001-of-00001.safetensors", GROUPED, comfy, 1); // beside the index of the test above
    s = open_and_close(VX_TRANSFORMER, at("official"));
    assert_int_equal(s.code, VX_ERR_MODEL_LAYOUT);
    assert_says(s, "grouped");
}

// ---- names ----

// Every rule of denoiser specification 2.3, video VAE specification 3, text encoder specification 5.1, and prefixes.
static void translates_names(void **state)
{
    (void)state;
    static const struct {
        vx_component_kind kind;
        const char *beside; // makes the kind and layout known
        const char *in_file, *canonical;
    } names[] = {
        { VX_TRANSFORMER, "audio_proj_in.bias", "proj_in.weight", "video_patch_proj.weight" },
        { VX_TRANSFORMER, "audio_proj_in.bias", "audio_proj_in.weight", "audio_patch_proj.weight" },
        { VX_TRANSFORMER, "audio_proj_in.bias", "context_embedder.bias", "condition_proj.bias" },
        { VX_TRANSFORMER, "audio_proj_in.bias", "time_embedder.linear_1.weight", "time_embedder.proj_in.weight" },
        { VX_TRANSFORMER, "audio_proj_in.bias", "time_embedder.linear_2.bias", "time_embedder.proj_out.bias" },
        { VX_TRANSFORMER, "audio_proj_in.bias", "token_refiner.refiner_blocks.1.attn.norm_q.weight",
          "token_refiner.blocks.1.attn.q_norm.weight" },
        { VX_TRANSFORMER, "audio_proj_in.bias", "token_refiner.final_norm.weight", "token_refiner.final_norm.weight" },
        { VX_TRANSFORMER, "audio_proj_in.bias", "transformer_blocks.49.attn.norm_k.weight", "blocks.49.attn.k_norm.weight" },
        { VX_TRANSFORMER, "audio_proj_in.bias", "transformer_blocks.3.attn.to_out.0.weight", "blocks.3.attn.out_proj.weight" },
        { VX_TRANSFORMER, "audio_proj_in.bias", "transformer_blocks.3.ff.net.0.proj.weight", "blocks.3.mlp.fc1.weight" },
        { VX_TRANSFORMER, "audio_proj_in.bias", "transformer_blocks.3.ff.net.2.weight", "blocks.3.mlp.fc2.weight" },
        { VX_TRANSFORMER, "audio_proj_in.bias", "transformer_blocks.3.adaln_proj.linear.bias",
          "blocks.3.adaln_proj.linear.bias" },
        { VX_TRANSFORMER, "audio_proj_in.bias", "norm_out.norm.weight", "final_layer.norm.weight" },
        { VX_TRANSFORMER, "audio_proj_in.bias", "norm_out.linear.bias", "final_layer.adaln_proj.linear.bias" },
        { VX_TRANSFORMER, "audio_proj_in.bias", "proj_out.weight", "final_layer.video_out.weight" },
        { VX_TRANSFORMER, "audio_proj_in.bias", "audio_proj_out.weight", "final_layer.audio_out.weight" },
        { VX_TRANSFORMER, "transformer.audio_proj_in.bias", "transformer.transformer_blocks.0.norm1.weight",
          "blocks.0.norm1.weight" },
        { VX_TRANSFORMER, "model.diffusion_model.audio_proj_in.bias", "model.diffusion_model.proj_out.bias",
          "final_layer.video_out.bias" },
        { VX_TRANSFORMER, "diffusion_model.audio_proj_in.bias", "diffusion_model.proj_out.bias", "final_layer.video_out.bias" },
        { VX_TRANSFORMER, "model.audio_proj_in.bias", "model.transformer_blocks.0.norm2.weight", "blocks.0.norm2.weight" },
        { VX_VIDEO_VAE, "decoder.proj_in.bias", "encoder.down_blocks.3.resnets.1.conv1.weight",
          "encoder.down.3.block.1.conv1.weight" },
        { VX_VIDEO_VAE, "decoder.proj_in.bias", "encoder.down_blocks.1.resnets.0.conv_shortcut.bias",
          "encoder.down.1.block.0.nin_shortcut.bias" },
        { VX_VIDEO_VAE, "decoder.proj_in.bias", "encoder.down_blocks.0.downsamplers.0.conv.weight",
          "encoder.down.0.downsample.conv.weight" },
        { VX_VIDEO_VAE, "decoder.proj_in.bias", "decoder.proj_in.weight", "decoder.x_embedder.weight" },
        { VX_VIDEO_VAE, "decoder.proj_in.bias", "decoder.proj_out.weight", "decoder.proj_out.weight" },
        { VX_VIDEO_VAE, "decoder.proj_in.bias", "decoder.transformer_blocks.7.attn.to_out.0.bias",
          "decoder.transformer_blocks.7.attn.to_out.bias" },
        { VX_VIDEO_VAE, "decoder.proj_in.bias", "decoder.transformer_blocks.7.ff.net.0.proj.bias",
          "decoder.transformer_blocks.7.ff.w1.bias" },
        { VX_VIDEO_VAE, "decoder.proj_in.bias", "decoder.transformer_blocks.7.ff.net.2.bias",
          "decoder.transformer_blocks.7.ff.w2.bias" },
        { VX_VIDEO_VAE, "decoder.x_embedder.bias", "decoder.transformer_blocks.7.attn.to_out.bias",
          "decoder.transformer_blocks.7.attn.to_out.bias" },
        { VX_AUDIO_VAE, "dec_in_proj.bias", "decoder.ups.0.0.weight_v", "decoder.ups.0.0.weight_v" },
        { VX_AUDIO_VAE, "dec_in_proj.bias", "decoder.conv_pre.parametrizations.weight.original0", "decoder.conv_pre.weight_g" },
        { VX_AUDIO_VAE, "dec_in_proj.bias", "decoder.conv_pre.parametrizations.weight.original1", "decoder.conv_pre.weight_v" },
        { VX_AUDIO_VAE, "audio_vae.dec_in_proj.bias", "audio_vae.decoder.conv_pre.weight", "decoder.conv_pre.weight" },
        { VX_AUDIO_VAE, "model.dec_in_proj.bias", "model.decoder.conv_pre.weight", "decoder.conv_pre.weight" },
        { VX_TEXT_ENCODER, "model.language_model.norm.weight", "model.language_model.layers.0.mlp.up_proj.weight",
          "model.language_model.layers.0.mlp.up_proj.weight" },
        { VX_TEXT_ENCODER, "model.language_model.norm.weight", "model.visual.pos_embed.weight", "model.visual.pos_embed.weight" },
        { VX_TEXT_ENCODER, "model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight",
          "model.language_model.layers.0.mlp.up_proj.weight" },
        { VX_TEXT_ENCODER, "model.embed_tokens.weight", "visual.blocks.0.norm1.bias", "model.visual.blocks.0.norm1.bias" },
        { VX_TEXT_ENCODER, "language_model.embed_tokens.weight", "language_model.layers.0.mlp.up_proj.weight",
          "model.language_model.layers.0.mlp.up_proj.weight" },
        { VX_TEXT_ENCODER, "text_encoders.llm.model.embed_tokens.weight", "text_encoders.llm.visual.pos_embed.weight",
          "model.visual.pos_embed.weight" },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *both[] = { names[i].beside, names[i].in_file };
        bool same = strcmp(both[0], both[1]) == 0;
        vx_component *c;
        vx_status s = vx_component_open(&c, names[i].kind, put_names("a.safetensors", both, same ? 1 : 2, NULL, 0));
        if (s.code != VX_OK) fail_msg("%s: VX-%d %s", names[i].in_file, s.code, s.message);
        if (!vx_component_has(c, names[i].canonical)) fail_msg("%s is not %s", names[i].in_file, names[i].canonical);
        vx_component_close(&c);
    }
}

static void refuses_what_is_not_this_component(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        vx_component_kind kind;
        const char *names[4];
        vx_code want;
        const char *part;
    } cases[] = {
        { "no tensor at all (P18)", VX_TRANSFORMER, { NULL }, VX_ERR_MODEL_UNKNOWN, "no tensors" },
        { "another model",
          VX_TRANSFORMER,
          { "blocks.0.self_attn.q.weight", "patch_embedding.weight" },
          VX_ERR_MODEL_UNKNOWN,
          "not the transformer" },
        { "a VAE as transformer",
          VX_TRANSFORMER,
          { "decoder.x_embedder.weight" },
          VX_ERR_MODEL_UNKNOWN,
          "looks like its video VAE" },
        { "a transformer as VAE", VX_VIDEO_VAE, { "audio_proj_in.weight" }, VX_ERR_MODEL_UNKNOWN, "looks like its transformer" },
        { "a text encoder as audio VAE",
          VX_AUDIO_VAE,
          { "model.layers.0.mlp.up_proj.weight", "lm_head.weight" },
          VX_ERR_MODEL_UNKNOWN,
          "looks like its text encoder" },
        { "llama.cpp's vision tower as transformer",
          VX_TRANSFORMER,
          { "v.blk.0.attn_out.bias", "v.patch_embd.weight" },
          VX_ERR_MODEL_UNKNOWN,
          "looks like its text encoder's vision tower" },
        { "llama.cpp's text encoder as video VAE",
          VX_VIDEO_VAE,
          { "blk.0.attn_q.weight", "v.blk.0.attn_out.bias" },
          VX_ERR_MODEL_UNKNOWN,
          "looks like its text encoder" },
        { "mixed layouts",
          VX_TRANSFORMER,
          { "audio_proj_in.weight", "blocks.0.norm1.weight" },
          VX_ERR_MODEL_LAYOUT,
          "mixes two layouts" },
        { "mixed prefixes",
          VX_TRANSFORMER,
          { "diffusion_model.audio_proj_in.weight", "proj_in.weight" },
          VX_ERR_MODEL_LAYOUT,
          "prefix 'diffusion_model.'" },
        { "two spellings of one tensor",
          VX_TEXT_ENCODER,
          { "model.layers.0.input_layernorm.weight", "model.language_model.layers.0.input_layernorm.weight" },
          VX_ERR_TENSOR_DUPLICATE,
          "same tensor" },
        { "the sparse gate",
          VX_TRANSFORMER,
          { "audio_patch_proj.weight", "blocks.0.attn.to_gate_compress.weight" },
          VX_ERR_MODEL_LAYOUT,
          "VSA" },
        { "a control net",
          VX_TRANSFORMER,
          { "audio_patch_proj.weight", "control_proj_in.weight" },
          VX_ERR_MODEL_LAYOUT,
          "ControlNet" },
        { "official names with to_q",
          VX_TRANSFORMER,
          { "audio_patch_proj.weight", "blocks.0.attn.to_q.weight" },
          VX_ERR_MODEL_LAYOUT,
          "separate" },
        { "an adapter",
          VX_TRANSFORMER,
          { "diffusion_model.blocks.0.attn.qkv_proj.lora_A.weight", "diffusion_model.blocks.0.attn.qkv_proj.lora_B.weight" },
          VX_ERR_MODEL_LAYOUT,
          "adapter" },
        { "quanto",
          VX_TRANSFORMER,
          { "audio_patch_proj.weight", "blocks.0.mlp.fc1.weight._data" },
          VX_ERR_QUANT_FORMAT,
          "quanto" },
        { "bitsandbytes",
          VX_TRANSFORMER,
          { "audio_patch_proj.weight", "blocks.0.mlp.fc1.weight", "blocks.0.mlp.fc1.weight.absmax" },
          VX_ERR_QUANT_FORMAT,
          "bitsandbytes" },
        { "scales of FP8 blocks",
          VX_TRANSFORMER,
          { "audio_patch_proj.weight", "blocks.0.mlp.fc1.weight_scale_inv" },
          VX_ERR_QUANT_FORMAT,
          "block-FP8" },
        { "SVDQuant",
          VX_TRANSFORMER,
          { "audio_patch_proj.weight", "blocks.0.mlp.fc1.qweight", "blocks.0.mlp.fc1.smooth_factor" },
          VX_ERR_QUANT_FORMAT,
          "SVDQuant" },
        { "MLX",
          VX_TEXT_ENCODER,
          { "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.scales" },
          VX_ERR_QUANT_FORMAT,
          "MLX" },
        { "compressed tensors",
          VX_TRANSFORMER,
          { "audio_patch_proj.weight", "blocks.0.mlp.fc1.weight_packed" },
          VX_ERR_QUANT_FORMAT,
          "compressed-tensors" },
        { "DynTime", VX_TRANSFORMER, { "audio_patch_proj.weight", "adaln_time_basis" }, VX_ERR_MODEL_LAYOUT, "DynTime" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int count = 0;
        while (count < 4 && cases[i].names[count]) count++;
        vx_status s = open_and_close(cases[i].kind, put_names("a.safetensors", cases[i].names, count, comfy, 1));
        if (s.code != cases[i].want || !strstr(s.message, cases[i].part))
            fail_msg("%s: VX-%d '%s'", cases[i].says, s.code, s.message);
    }
}

static void refuses_a_bank_of_heads(void **state)
{
    (void)state;
    static const float zeros[4 * 8];
    vx_safetensors_tensor t[] = { { "final_layer.video_out.weight", VX_F32, 2, { 8, 2 }, zeros },
                                  { "video_patch_proj.weight", VX_F32, 2, { 2, 4 }, zeros } };
    put_text("a.safetensors", "");
    assert_ok(vx_safetensors_write(at("a.safetensors"), true, t, 2, comfy, 1));
    vx_status s = open_and_close(VX_TRANSFORMER, at("a.safetensors"));
    assert_int_equal(s.code, VX_ERR_MODEL_LAYOUT);
    assert_says(s, "PDD");
    t[0].shape[0] = 4;
    assert_ok(vx_safetensors_write(at("a.safetensors"), true, t, 2, comfy, 1));
    assert_ok(open_and_close(VX_TRANSFORMER, at("a.safetensors")));
}

// ---- folders and indexes ----

static int warnings;
static char last_warning[512];
static void count_warnings(void *user, vx_log_level level, const char *text)
{
    (void)user;
    if (level != VX_LOG_WARNING) return;
    warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", text);
}

static void follows_the_rules_of_indexes(void **state)
{
    (void)state;
    PUT_NAMES("set/one.safetensors", "decoder.x_embedder.weight", "decoder.proj_out.weight");
    PUT_NAMES("set/two.safetensors", "decoder.norm_out.weight");
    PUT_NAMES("set/double.safetensors", "decoder.norm_out.weight", "decoder.x_embedder.weight");
    put_text("outside.safetensors", "");
    put_link("set/dangling.safetensors", "../blobs/1");
#define ONE_        "\"decoder.x_embedder.weight\":\"one.safetensors\",\"decoder.proj_out.weight\":\"one.safetensors\""
#define TWO_        "\"decoder.norm_out.weight\":\"two.safetensors\""
#define MAP(inside) "{\"metadata\":{\"total_size\":12},\"weight_map\":{" inside "}}"
    static const struct {
        const char *says, *index;
        vx_code want;
        const char *part;
        int warnings;
    } cases[] = {
        { "a good set", MAP(ONE_ "," TWO_), VX_OK, "", 0 },
        { "no metadata", "{\"weight_map\":{" ONE_ "," TWO_ "}}", VX_OK, "", 0 },
        { "another total size", "{\"metadata\":{\"total_size\":13},\"weight_map\":{" ONE_ "," TWO_ "}}", VX_OK, "", 1 },
        { "a total size as float", "{\"metadata\":{\"total_size\":12.0},\"weight_map\":{" ONE_ "," TWO_ "}}", VX_OK, "", 0 },
        { "a total size as string", "{\"metadata\":{\"total_size\":\"12\"},\"weight_map\":{" ONE_ "," TWO_ "}}", VX_OK, "", 0 },
        { "not JSON", "{", VX_ERR_INDEX, "line", 0 },
        { "a list", "[]", VX_ERR_INDEX, "object", 0 },
        { "no map", "{\"metadata\":{}}", VX_ERR_INDEX, "weight_map", 0 },
        { "an empty map", MAP(""), VX_ERR_INDEX, "empty", 0 },
        { "a pointer", "version https://git-lfs.github.com/spec/v1\n", VX_ERR_FILE_POINTER, "LFS", 0 },
        { "a page", "<!DOCTYPE html>", VX_ERR_FILE_POINTER, "web page", 0 },
        { "a name twice", MAP(ONE_ "," TWO_ "," TWO_), VX_ERR_INDEX, "duplicate", 0 },
        { "a path above", MAP(ONE_ ",\"decoder.norm_out.weight\":\"../outside.safetensors\""), VX_ERR_INDEX, "bare name", 0 },
        { "an absolute path", MAP(ONE_ ",\"decoder.norm_out.weight\":\"/etc/x.safetensors\""), VX_ERR_INDEX, "bare name", 0 },
        { "a path below", MAP(ONE_ ",\"decoder.norm_out.weight\":\"a/two.safetensors\""), VX_ERR_INDEX, "bare name", 0 },
        { "a backslash", MAP(ONE_ ",\"decoder.norm_out.weight\":\"a\\\\two.safetensors\""), VX_ERR_INDEX, "bare name", 0 },
        { "a drive", MAP(ONE_ ",\"decoder.norm_out.weight\":\"c:two.safetensors\""), VX_ERR_INDEX, "bare name", 0 },
        { "a NUL", MAP(ONE_ ",\"decoder.norm_out.weight\":\"two\\u0000.safetensors\""), VX_ERR_INDEX, "", 0 },
        { "another ending", MAP(ONE_ ",\"decoder.norm_out.weight\":\"two.bin\""), VX_ERR_INDEX, "bare name", 0 },
        { "two dots", MAP(ONE_ ",\"decoder.norm_out.weight\":\"..safetensors\""), VX_ERR_INDEX, "bare name", 0 },
        { "a number", MAP(ONE_ ",\"decoder.norm_out.weight\":2"), VX_ERR_INDEX, "bare name", 0 },
        { "a missing shard (P20)", MAP(ONE_ ",\"decoder.norm_out.weight\":\"three.safetensors\""), VX_ERR_INDEX,
          "'three.safetensors', which is not there", 0 },
        { "a dangling shard (P20)", MAP(ONE_ ",\"decoder.norm_out.weight\":\"dangling.safetensors\""), VX_ERR_MODEL_OPEN,
          "../blobs/1", 0 },
        { "a tensor that is not there", MAP(ONE_ "," TWO_ ",\"decoder.mask_token\":\"two.safetensors\""), VX_ERR_INDEX,
          "'decoder.mask_token' is not in", 0 },
        { "a tensor in the other shard",
          MAP("\"decoder.x_embedder.weight\":\"two.safetensors\",\"decoder.proj_out.weight\":\"one.safetensors\"," TWO_),
          VX_ERR_INDEX, "is not in 'two.safetensors'", 0 },
        { "a tensor not listed", MAP("\"decoder.x_embedder.weight\":\"one.safetensors\"," TWO_), VX_ERR_INDEX,
          "does not list tensor 'decoder.proj_out.weight'", 0 },
        { "a tensor in two shards", MAP(ONE_ ",\"decoder.norm_out.weight\":\"double.safetensors\""), VX_ERR_TENSOR_DUPLICATE,
          "'decoder.x_embedder.weight' is in 'one.safetensors' and in 'double.safetensors'", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_text("set/model.safetensors.index.json", cases[i].index);
        warnings = 0;
        vx_log_set(count_warnings, NULL);
        vx_status s = open_and_close(VX_VIDEO_VAE, at("set"));
        vx_log_set(NULL, NULL);
        if (s.code != cases[i].want || !strstr(s.message, cases[i].part) || warnings != cases[i].warnings)
            fail_msg("%s: VX-%d '%s', %d warnings", cases[i].says, s.code, s.message, warnings);
    }
}

static void finds_the_weights_of_a_folder(void **state)
{
    (void)state;
    vx_component *c;
    PUT_NAMES("one/anything.safetensors", "decoder.x_embedder.weight");
    assert_ok(open_and_close(VX_VIDEO_VAE, at("one")));
    PUT_NAMES("two/a.safetensors", "decoder.x_embedder.weight");
    PUT_NAMES("two/b.safetensors", "decoder.proj_out.weight");
    assert_code(open_and_close(VX_VIDEO_VAE, at("two")), VX_ERR_INDEX);
    PUT_NAMES("two/model.safetensors", "decoder.x_embedder.weight");
    assert_ok(open_and_close(VX_VIDEO_VAE, at("two")));
    put_text("none/readme.md", "");
    assert_code(open_and_close(VX_VIDEO_VAE, at("none")), VX_ERR_MODEL_COMPONENT);
    put_text("pickled/pytorch_model.bin", "x");
    assert_code(open_and_close(VX_VIDEO_VAE, at("pickled")), VX_ERR_FILE_PICKLE);
    put_text("gguf/model.gguf", "GGUF");
    assert_code(open_and_close(VX_VIDEO_VAE, at("gguf")), VX_ERR_FILE_TRUNCATED);
    put_text("ggufs/a.gguf", "GGUF");
    put_text("ggufs/b.gguf", "GGUF");
    assert_code(open_and_close(VX_VIDEO_VAE, at("ggufs")), VX_ERR_MODEL_AMBIGUOUS);
    assert_code(open_and_close(VX_VIDEO_VAE, at("absent")), VX_ERR_MODEL_OPEN);
    put_link("nowhere", "absent");
    vx_status s = open_and_close(VX_VIDEO_VAE, at("nowhere"));
    assert_int_equal(s.code, VX_ERR_MODEL_OPEN);
    assert_says(s, "leads nowhere");
    // A hub cache: the snapshot's files are links to blobs named by hash.
    PUT_NAMES("hub/blobs/0123", "decoder.x_embedder.weight");
    put_text("hub/snapshot/config.json", "{\"latent_channels\":24}");
    put_link("hub/snapshot/diffusion_pytorch_model.safetensors", "../blobs/0123");
    assert_ok(vx_component_open(&c, VX_VIDEO_VAE, at("hub/snapshot")));
    int64_t channels;
    assert_ok(vx_config_int(c, "latent_channels", NULL, NULL, &channels));
    assert_int_equal(channels, 24);
    assert_int_equal(vx_component_bytes(c), 4);
    vx_component_close(&c);
    s = open_and_close(VX_VIDEO_VAE, PUT_NAMES("one/model-00001-of-00013.safetensors", "decoder.x_embedder.weight"));
    assert_int_equal(s.code, VX_ERR_INDEX);
    assert_says(s, "file 1 of a set of 13");
}

static void merges_the_configurations_of_the_official_vaes(void **state)
{
    (void)state;
    vx_component *c;
    int64_t n;
    PUT_NAMES("video/source/w.safetensors", "decoder.x_embedder.weight");
    put_text("video/config.json", "{\"_class_name\":\"MiniMaxH3VideoVAE\",\"source_path\":\"source\",\"source_safetensors_path\":"
                                  "\"w.safetensors\",\"vae_clip_length\":17,\"latents_mean\":[1,2]}");
    put_text("video/source/config.json",
             "{\"_class_name\":\"AutoencoderKLLegacy\",\"ch\":32,\"vit_decoder_kwargs\":{\"heads\":2}}");
    static const char *const paths[] = { "video", "video/source/w.safetensors" };
    for (int i = 0; i < 2; i++) {
        float mean[2];
        bool found;
        assert_ok(vx_component_open(&c, VX_VIDEO_VAE, at(paths[i])));
        assert_ok(vx_config_int(c, "vae_clip_length", "clip_length", NULL, &n));
        assert_int_equal(n, 17);
        assert_ok(vx_config_int(c, "ch", NULL, NULL, &n));
        assert_int_equal(n, 32);
        assert_ok(vx_config_int(c, "vit_decoder_kwargs.heads", "decoder_num_attention_heads", NULL, &n));
        assert_int_equal(n, 2);
        assert_ok(vx_config_floats(c, "latents_mean", 2, mean, &found));
        assert_true(found && mean[1] == 2);
        vx_component_close(&c);
    }
    put_text("video/config.json", "{\"source_path\":\"../video\"}");
    assert_code(open_and_close(VX_VIDEO_VAE, at("video")), VX_ERR_CONFIG);
    put_text("video/config.json", "{\"source_path\":\"source\",\"source_safetensors_path\":\"/etc/passwd\"}");
    assert_code(open_and_close(VX_VIDEO_VAE, at("video")), VX_ERR_CONFIG);
    put_text("video/config.json", "{\"source_path\":1}");
    assert_code(open_and_close(VX_VIDEO_VAE, at("video")), VX_ERR_CONFIG);
    put_text("video/config.json", "{\"source_path\":\"source\",}");
    assert_code(open_and_close(VX_VIDEO_VAE, at("video")), VX_ERR_CONFIG);
    put_text("video/config.json", "version https://git-lfs.github.com/spec/v1");
    assert_code(open_and_close(VX_VIDEO_VAE, at("video")), VX_ERR_FILE_POINTER);

    PUT_NAMES("audio/model.safetensors", "dec_in_proj.weight");
    put_text("audio/config.json", "{\"sample_rate\":32000,\"latent_channels\":32}");
    put_text("audio/metadata.json", "{\"metadata\":{\"kwargs\":{\"decoder_dim\":128,\"sample_rate\":16000}}}");
    assert_ok(vx_component_open(&c, VX_AUDIO_VAE, at("audio")));
    assert_ok(vx_config_int(c, "decoder_dim", NULL, NULL, &n));
    assert_int_equal(n, 128);
    assert_ok(vx_config_int(c, "sample_rate", NULL, NULL, &n));
    assert_int_equal(n, 32000);
    vx_component_close(&c);

    // Beside a file that may be anybody's, only a configuration of this kind counts.
    PUT_NAMES("mixed/comfy_audio.safetensors", "dec_in_proj.weight");
    put_text("mixed/config.json", "{\"_class_name\":\"FluxTransformer2DModel\"}");
    assert_ok(vx_component_open(&c, VX_AUDIO_VAE, at("mixed/comfy_audio.safetensors")));
    assert_null(vx_component_config(c));
    assert_code(vx_config_int(c, "decoder_dim", NULL, NULL, &n), VX_ERR_CONFIG);
    vx_component_close(&c);
}

// ---- configuration ----

static void reads_members_in_either_spelling(void **state)
{
    (void)state;
    vx_component *c;
    PUT_NAMES("config/model.safetensors", "dec_in_proj.weight");
    put_text("config/config.json", "{\"a\":3,\"b_other\":4,\"zero\":0,\"large\":16777217,\"text\":\"x\",\"real\":0.5,\"none\":"
                                   "null,\"list\":[0,8,16],\"floats\":[1,2.5],\"huge\":[1e300],\"in\":{\"side\":{\"n\":7}}}");
    assert_ok(vx_component_open(&c, VX_AUDIO_VAE, at("config")));
    int64_t n, five = 5, list[3];
    double d, half = 0.25;
    float f[2];
    bool found;
    static const struct {
        const char *name, *other;
        bool fallback;
        vx_code want;
        int64_t value;
    } ints[] = {
        { "a", NULL, false, VX_OK, 3 },
        { "a", "b_other", false, VX_OK, 3 },
        { "b", "b_other", false, VX_OK, 4 },
        { "b", NULL, true, VX_OK, 5 },
        { "b", NULL, false, VX_ERR_CONFIG, 0 },
        { "none", NULL, true, VX_OK, 5 },
        { "none", NULL, false, VX_ERR_CONFIG, 0 },
        { "zero", NULL, true, VX_ERR_CONFIG, 0 },
        { "large", NULL, true, VX_ERR_CONFIG, 0 },
        { "text", NULL, true, VX_ERR_CONFIG, 0 },
        { "real", NULL, true, VX_ERR_CONFIG, 0 },
        { "in.side.n", NULL, false, VX_OK, 7 },
        { "in.front.n", NULL, true, VX_OK, 5 },
        { "a.n", NULL, true, VX_OK, 5 },
    };
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        vx_status s = vx_config_int(c, ints[i].name, ints[i].other, ints[i].fallback ? &five : NULL, &n);
        if (s.code != ints[i].want || (s.code == VX_OK && n != ints[i].value))
            fail_msg("%s: VX-%d %s", ints[i].name, s.code, s.message);
        if (s.code != VX_OK) assert_says(s, "config/config.json");
    }
    assert_ok(vx_config_float(c, "real", NULL, NULL, &d));
    assert_true(d == 0.5);
    assert_ok(vx_config_float(c, "unreal", NULL, &half, &d));
    assert_true(d == 0.25);
    assert_ok(vx_config_float(c, "unreal", "a", &half, &d));
    assert_true(d == 3);
    assert_ok(vx_config_ints(c, "list", 3, list, &found));
    assert_true(found && list[0] == 0 && list[2] == 16);
    assert_ok(vx_config_ints(c, "absent", 3, list, &found));
    assert_false(found);
    assert_code(vx_config_ints(c, "absent", 3, list, NULL), VX_ERR_CONFIG);
    assert_code(vx_config_ints(c, "list", 2, list, &found), VX_ERR_CONFIG);
    assert_ok(vx_config_floats(c, "floats", 2, f, NULL));
    assert_true(f[0] == 1 && f[1] == 2.5f);
    assert_code(vx_config_floats(c, "huge", 1, f, &found), VX_ERR_CONFIG);
    vx_component_close(&c);
}

// ---- binding ----

static void binds_by_name_shape_and_format(void **state)
{
    (void)state;
    static const float numbers[12] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
    const vx_safetensors_tensor t[] = { { "dec_in_proj.weight", VX_F32, 2, { 3, 4 }, numbers },
                                        { "dec_in_proj.bias", VX_F32, 1, { 3 }, numbers },
                                        { "decoder.count", VX_I32, 1, { 2 }, numbers },
                                        { "latents_mean", VX_F32, 1, { 2 }, numbers } };
    put_text("a.safetensors", "");
    assert_ok(vx_safetensors_write(at("a.safetensors"), true, t, 4, NULL, 0));
    vx_component *c;
    vx_tensor x;
    vx_weight w;
    assert_ok(vx_component_open(&c, VX_AUDIO_VAE, at("a.safetensors")));
    vx_status s = vx_component_finish(c);
    assert_int_equal(s.code, VX_ERR_TENSOR_UNEXPECTED);
    assert_says(s, "3 tensors do not belong to this model: 'dec_in_proj.bias', 'dec_in_proj.weight', 'decoder.count'");
    s = vx_component_get(c, "dec_in_proj.weight", VX_DTYPE_NONE, &x, 4, 3);
    assert_int_equal(s.code, VX_ERR_TENSOR_SHAPE);
    assert_says(s, "a.safetensors: tensor 'dec_in_proj.weight': shape [3,4], expected [4,3]");
    assert_code(vx_component_get(c, "dec_in_proj.weight", VX_DTYPE_NONE, &x, 12), VX_ERR_TENSOR_SHAPE);
    s = vx_component_get(c, "dec_in_proj.weight", VX_BF16, &x, 3, 4);
    assert_int_equal(s.code, VX_ERR_TENSOR_DTYPE);
    assert_says(s, "F32, expected BF16");
    assert_code(vx_component_get(c, "decoder.count", VX_DTYPE_NONE, &x, 2), VX_ERR_TENSOR_DTYPE);
    s = vx_component_get(c, "absent", VX_DTYPE_NONE, &x, 2);
    assert_int_equal(s.code, VX_ERR_TENSOR_MISSING);
    assert_says(s, "'absent' [2] is missing");
    assert_code(vx_component_linear(c, "decoder", 3, 4, true, &w), VX_ERR_TENSOR_MISSING);
    assert_ok(vx_component_linear(c, "dec_in_proj", 3, 4, true, &w));
    assert_true(w.segments == 1 && w.n == 3 && w.k == 4 && w.segment[0].column == 0);
    assert_memory_equal(w.segment[0].weight.data, numbers, sizeof numbers);
    assert_int_equal(w.segment[0].bias.shape[0], 3);
    assert_ok(vx_component_linear(c, "dec_in_proj", 3, 4, false, &w));
    assert_int_equal(w.segment[0].bias.rank, 0);
    assert_ok(vx_component_get(c, "decoder.count", VX_I32, &x, 2));
    assert_ok(vx_component_finish(c));
    assert_ok(vx_component_get(c, "latents_mean", VX_F32, &x, 2)); // ignored is not hidden
    int rank;
    int64_t shape[VX_MAX_RANK];
    vx_component_shape(c, "dec_in_proj.weight", &rank, shape);
    assert_true(rank == 2 && shape[0] == 3 && shape[1] == 4);
    vx_component_shape(c, "absent", &rank, shape);
    assert_int_equal(rank, 0);
    vx_component_prefetch(c, NULL, "dec_in_proj.");
    vx_component_close(&c);
}

static void lists_ten_unexpected_tensors(void **state)
{
    (void)state;
    const char *names[14];
    char text[14][32];
    for (int i = 0; i < 14; i++) {
        snprintf(text[i], sizeof text[i], i ? "extra.%02d" : "dec_in_proj.weight", i);
        names[i] = text[i];
    }
    vx_component *c;
    assert_ok(vx_component_open(&c, VX_AUDIO_VAE, put_names("a.safetensors", names, 14, NULL, 0)));
    vx_component_ignore(c, "dec_in_proj.");
    vx_status s = vx_component_finish(c);
    assert_int_equal(s.code, VX_ERR_TENSOR_UNEXPECTED);
    assert_says(s, "13 tensors do");
    assert_says(s, "'extra.10', ...");
    assert_null(strstr(s.message, "'extra.11'"));
    vx_component_ignore(c, "extra.");
    assert_ok(vx_component_finish(c));
    vx_component_close(&c);
}

static void needs_no_text_layer_above_fifty(void **state)
{
    (void)state;
    vx_component *c;
    assert_ok(vx_component_open(
        &c, VX_TEXT_ENCODER,
        PUT_NAMES("a.safetensors", "model.language_model.layers.49.input_layernorm.weight",
                  "model.language_model.layers.5.input_layernorm.weight", "model.language_model.layers.50.input_layernorm.weight",
                  "model.language_model.layers.63.mlp.up_proj.weight", "lm_head.weight", "model.language_model.norm.weight")));
    vx_status s = vx_component_finish(c);
    assert_int_equal(s.code, VX_ERR_TENSOR_UNEXPECTED);
    assert_says(s, "2 tensors");
    vx_component_ignore(c, "model.language_model.layers.5.");
    vx_component_ignore(c, "model.language_model.layers.49.");
    assert_ok(vx_component_finish(c));
    vx_component_close(&c);
}

static void counts_layers_and_finds_gaps(void **state)
{
    (void)state;
    vx_component *c;
    int64_t layers;
    assert_ok(
        vx_component_open(&c, VX_TRANSFORMER,
                          put_names("a.safetensors",
                                    (const char *const[]){ "audio_patch_proj.weight", "blocks.0.a", "blocks.1.a", "blocks.2.a",
                                                           "blocks.10.b", "blocks.9.b", "blocks.x.a", "blocks.01.a" },
                                    8, comfy, 1)));
    assert_ok(vx_component_layers(c, "blocks.", ".a", &layers));
    assert_int_equal(layers, 3);
    assert_ok(vx_component_layers(c, "blocks.", ".c", &layers));
    assert_int_equal(layers, 0);
    vx_status s = vx_component_layers(c, "blocks.", ".b", &layers);
    assert_int_equal(s.code, VX_ERR_TENSOR_MISSING);
    assert_says(s, "'blocks.0.b' is missing, but 'blocks.10.b' is there");
    vx_component_close(&c);
}

static int copies;
static void count_copies(void *user, vx_log_level level, const char *text)
{
    (void)user;
    copies += level == VX_LOG_INFO && strstr(text, "misaligned");
}

static void copies_misaligned_tensors_once(void **state)
{
    (void)state;
    static const char header[] =
        "{ \"decoder.pad\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"dec_in_proj.weight\":{\"dtype\":\"F32\","
        "\"shape\":[2],\"data_offsets\":[1,9]},\"decoder.half\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[9,13]}}";
    vx_component *c;
    vx_tensor x, y;
    assert_ok(vx_component_open(&c, VX_AUDIO_VAE, put_container("a.safetensors", header, 13)));
    copies = 0;
    vx_log_set(count_copies, NULL);
    for (int i = 0; i < 2; i++) {
        assert_ok(vx_component_get(c, "dec_in_proj.weight", VX_F32, &x, 2));
        assert_ok(vx_component_get(c, "decoder.half", VX_BF16, &y, 2));
    }
    vx_log_set(NULL, NULL);
    static const unsigned char bytes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }; // put_container counts up
    assert_memory_equal(x.data, bytes, 8);
    assert_memory_equal(y.data, bytes + 8, 4);
    assert_int_equal((uintptr_t)x.data % 4, 0);
    int misaligned = ((8 + (int)sizeof header - 1 + 1) % 4 != 0) + ((8 + (int)sizeof header - 1 + 9) % 2 != 0);
    assert_true(misaligned > 0);
    assert_int_equal(copies, misaligned);
    vx_component_close(&c);
}

static void gives_memory_back_whichever_allocation_fails(void **state)
{
    (void)state;
    put_block("fault/model-00001-of-00001.safetensors", INTERLEAVED, NULL, 0);
    put_text("fault/config.json", "{\"_class_name\":\"MiniMaxH3DiTModel\"}");
    put_text("fault/model.safetensors.index.json",
             "{\"weight_map\":{\"blocks.0.attn.qkv_proj.weight\":\"model-00001-of-00001.safetensors\",\"blocks.0.mlp.fc1."
             "weight\":\"model-00001-of-00001.safetensors\",\"video_patch_proj.weight\":\"model-00001-of-00001.safetensors\","
             "\"audio_patch_proj.weight\":\"model-00001-of-00001.safetensors\"}}");
    put_block("fault_diffusers/diffusion_pytorch_model.safetensors", SPLIT, NULL, 0);
    static const char *const paths[] = { "fault", "fault_diffusers", "fault_diffusers/diffusion_pytorch_model.safetensors" };
    for (int p = 0; p < 6; p++)
        for (int64_t k = 1, hit = 1; hit; k++) {
            char path[512];
            snprintf(path, sizeof path, "%s", at(paths[p / 2]));
            vx_component *c;
            vx_qkv qkv;
            vx_fault_arm(k, p % 2);
            vx_status s = vx_component_open(&c, VX_TRANSFORMER, path);
            if (s.code == VX_OK) s = vx_component_qkv(c, "blocks.0.attn.qkv_proj", HEADS, HEAD_DIM, K, false, &qkv);
            hit = vx_fault_disarm();
            assert_int_equal(s.code, hit ? VX_ERR_MEMORY : VX_OK);
            vx_component_close(&c);
            assert_true(k < 1000);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_same_qkv_and_swiglu_in_every_layout),
        cmocka_unit_test(refuses_a_file_whose_qkv_order_nothing_tells),
        cmocka_unit_test(translates_names),
        cmocka_unit_test(refuses_what_is_not_this_component),
        cmocka_unit_test(refuses_a_bank_of_heads),
        cmocka_unit_test(follows_the_rules_of_indexes),
        cmocka_unit_test(finds_the_weights_of_a_folder),
        cmocka_unit_test(merges_the_configurations_of_the_official_vaes),
        cmocka_unit_test(reads_members_in_either_spelling),
        cmocka_unit_test(binds_by_name_shape_and_format),
        cmocka_unit_test(lists_ten_unexpected_tensors),
        cmocka_unit_test(needs_no_text_layer_above_fifty),
        cmocka_unit_test(counts_layers_and_finds_gaps),
        cmocka_unit_test(copies_misaligned_tensors_once),
        cmocka_unit_test(gives_memory_back_whichever_allocation_fails),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
