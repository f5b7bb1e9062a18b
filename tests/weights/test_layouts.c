// The same numbers in every layout; the order of QKV rows seen from the weights; folders of single files.
#include "gguf_file.h"

#include "base/str.h"
#include "weights/component.h"
#include "weights/model_map.h"

enum { HEADS = 8, HEAD_DIM = 4, WIDTH = HEADS * HEAD_DIM, K = 32 };

static const vx_safetensors_pair comfy[] = { { "config", "{\"transformer\": {\"image_model\": \"minimax_h3\"}}" } };

// Row r of q (part 0), k or v. Value rows are longer, as in real weights.
static float number(int part, int r, int c)
{
    return (part == 2 ? 3.0f : 1.0f) * (float)((r * 7 + c * 3 + part) % 13 - 6);
}

static void fill_qkv(float *out, bool grouped)
{
    for (int p = 0; p < 3; p++)
        for (int r = 0; r < WIDTH; r++)
            for (int c = 0; c < K; c++) {
                int row = grouped ? p * WIDTH + r : (r / HEAD_DIM) * 3 * HEAD_DIM + p * HEAD_DIM + r % HEAD_DIM;
                out[row * K + c] = number(p, r, c);
            }
}

static void assert_rows(vx_component *c)
{
    vx_qkv q;
    assert_ok(vx_component_qkv(c, "blocks.0.attn.qkv_proj", HEADS, HEAD_DIM, K, false, &q));
    const vx_weight_segment *s = &q.weight.segment[0];
    float row[K];
    for (int p = 0; p < 3; p++)
        for (int r = 0; r < WIDTH; r++) {
            const int64_t at = q.offset[p] + r / HEAD_DIM * q.head_stride + r % HEAD_DIM;
            vx_quant_decode(&s->quant, s->weight, at, 0, K, false, row);
            for (int i = 0; i < K; i++) assert_true(row[i] == number(p, r, i));
        }
}

// One block's worth of a transformer, so that the rows can be looked at.
static const char *put_transformer(const char *file, bool grouped, const vx_safetensors_pair *metadata, int pairs)
{
    static float qkv[3 * WIDTH * K], small[K];
    fill_qkv(qkv, grouped);
    const vx_safetensors_tensor t[] = { { "blocks.0.attn.qkv_proj.weight", VX_F32, 2, { 3 * WIDTH, K }, qkv },
                                        { "blocks.0.attn.q_norm.weight", VX_F32, 1, { HEAD_DIM }, small },
                                        { "blocks.0.norm1.weight", VX_F32, 1, { K }, small },
                                        { "audio_patch_proj.weight", VX_F32, 1, { 1 }, small } };
    put_text(file, "");
    assert_ok(vx_safetensors_write(at(file), true, t, 4, metadata, pairs));
    return at(file);
}

static vx_component *open_transformer(const char *path, vx_qkv_statement stated)
{
    vx_component *c;
    char copy[512];
    snprintf(copy, sizeof copy, "%s", path);
    assert_ok(vx_component_open_as(&c, VX_TRANSFORMER, copy, &(vx_component_params){ .qkv = stated }));
    return c;
}

static void assert_order(vx_component *c, const char *order, const char *by)
{
    const char *reason;
    assert_string_equal(vx_component_qkv_order(c, &reason), order);
    assert_string_equal(reason, by);
    assert_rows(c);
}

static void tells_the_order_of_the_rows(void **state)
{
    (void)state;
    static const vx_safetensors_pair bf16[] = { { "repo_id", "DeepBeepMeep/MiniMax-H3" },
                                                { "partition", "FL2VA" },
                                                { "precision", "bf16" } };
    static const vx_safetensors_pair int8[] = { { "repo_id", "DeepBeepMeep/MiniMax-H3" },
                                                { "partition", "FL2VA" },
                                                { "precision", "int8" },
                                                { "quantization_format", "int8_convrot" } };
    const struct {
        const vx_safetensors_pair *metadata;
        int pairs;
        bool grouped;
        vx_qkv_statement stated;
        const char *reason, *note; // note: NULL for none
    } cases[] = {
        { comfy, 1, true, VX_QKV_BY_FILE, "ComfyUI's metadata", NULL },
        { bf16, 3, false, VX_QKV_BY_FILE, "DeepBeepMeep's metadata", NULL },
        { int8, 4, true, VX_QKV_BY_FILE, "DeepBeepMeep's metadata", NULL },
        { NULL, 0, true, VX_QKV_STATED_GROUPED, "--qkv-layout", NULL },
        { comfy, 1, true, VX_QKV_STATED_GROUPED, "--qkv-layout", NULL },
        { comfy, 1, false, VX_QKV_STATED_INTERLEAVED, "--qkv-layout",
          "--qkv-layout interleaved is used, but ComfyUI's metadata says grouped QKV rows" },
        { bf16, 3, true, VX_QKV_STATED_GROUPED, "--qkv-layout",
          "--qkv-layout grouped is used, but DeepBeepMeep's metadata says interleaved QKV rows" },
        { NULL, 0, true, VX_QKV_BY_FILE, "the lengths of the rows", "by their lengths they are grouped" },
        { NULL, 0, false, VX_QKV_BY_FILE, "the lengths of the rows", "by their lengths they are interleaved" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_component *c = open_transformer(put_transformer("t.safetensors", cases[i].grouped, cases[i].metadata, cases[i].pairs),
                                           cases[i].stated);
        assert_order(c, cases[i].grouped ? "grouped" : "interleaved", cases[i].reason);
        vx_component_check_qkv(c);
        if (cases[i].note) assert_non_null(strstr(vx_component_notes(c), cases[i].note));
        else assert_string_equal(vx_component_notes(c), "");
        vx_component_close(&c);
    }
    // P23: metadata and weights that contradict each other are told, and the metadata is believed.
    vx_component *c = open_transformer(put_transformer("t.safetensors", false, comfy, 1), VX_QKV_BY_FILE);
    vx_component_check_qkv(c);
    assert_non_null(strstr(vx_component_notes(c), "look interleaved"));
    vx_component_close(&c);
}

static void reads_grouped_rows_of_gguf(void **state)
{
    (void)state;
    static bytes file;
    static float qkv[3 * WIDTH * K];
    fill_qkv(qkv, true);
    file.size = 0;
    add_head(&file, 3, 2, 0);
    add_tensor(&file, "model.diffusion_model.blocks.0.attn.qkv_proj.weight", NE(K, 3 * WIDTH), 8, 0);
    add_tensor(&file, "model.diffusion_model.audio_patch_proj.weight", NE(1, 1), 0, 3 * WIDTH * K / 32 * 34);
    add_data(&file, 32, 0);
    for (int i = 0; i < 3 * WIDTH; i++) { // Q8_0 with a scale of 1: these numbers are whole
        add_number(&file, 0x3c00, 2);
        for (int c = 0; c < K; c++) add_number(&file, (uint64_t)(int64_t)qkv[i * K + c], 1);
    }
    add_data(&file, 32, 4);
    put("fl2va.gguf", file.data, file.size);
    vx_component *c = open_transformer(at("fl2va.gguf"), VX_QKV_BY_FILE);
    assert_order(c, "grouped", "GGUF");
    assert_string_equal(vx_component_origin(c), "gguf");
    vx_component_close(&c);
}

// P24: llama.cpp's names and its vision file, with the frames of the patch embedding apart.
static void understands_llama_names(void **state)
{
    (void)state;
    static bytes file;
    static const char *const language[][2] = {
        { "token_embd.weight", "model.language_model.embed_tokens.weight" },
        { "output_norm.weight", "model.language_model.norm.weight" },
        { "output.weight", "lm_head.weight" },
        { "blk.7.attn_q.weight", "model.language_model.layers.7.self_attn.q_proj.weight" },
        { "blk.7.attn_k.weight", "model.language_model.layers.7.self_attn.k_proj.weight" },
        { "blk.7.attn_v.weight", "model.language_model.layers.7.self_attn.v_proj.weight" },
        { "blk.7.attn_output.weight", "model.language_model.layers.7.self_attn.o_proj.weight" },
        { "blk.7.attn_q_norm.weight", "model.language_model.layers.7.self_attn.q_norm.weight" },
        { "blk.7.attn_k_norm.weight", "model.language_model.layers.7.self_attn.k_norm.weight" },
        { "blk.7.attn_norm.weight", "model.language_model.layers.7.input_layernorm.weight" },
        { "blk.7.ffn_norm.weight", "model.language_model.layers.7.post_attention_layernorm.weight" },
        { "blk.7.ffn_gate.weight", "model.language_model.layers.7.mlp.gate_proj.weight" },
        { "blk.7.ffn_up.weight", "model.language_model.layers.7.mlp.up_proj.weight" },
        { "blk.7.ffn_down.weight", "model.language_model.layers.7.mlp.down_proj.weight" },
    };
    static const char *const vision[][2] = {
        { "v.blk.26.attn_qkv.bias", "model.visual.blocks.26.attn.qkv.bias" },
        { "v.blk.26.attn_out.weight", "model.visual.blocks.26.attn.proj.weight" },
        { "v.blk.26.ffn_up.weight", "model.visual.blocks.26.mlp.linear_fc1.weight" },
        { "v.blk.26.ffn_down.weight", "model.visual.blocks.26.mlp.linear_fc2.weight" },
        { "v.blk.26.ln1.weight", "model.visual.blocks.26.norm1.weight" },
        { "v.blk.26.ln2.bias", "model.visual.blocks.26.norm2.bias" },
        { "v.post_ln.weight", "model.visual.merger.norm.weight" },
        { "mm.0.weight", "model.visual.merger.linear_fc1.weight" },
        { "mm.2.bias", "model.visual.merger.linear_fc2.bias" },
        { "v.position_embd.weight", "model.visual.pos_embed.weight" },
        { "v.patch_embd.bias", "model.visual.patch_embed.proj.bias" },
        { "v.deepstack.8.norm.weight", "model.visual.deepstack_merger_list.0.norm.weight" },
        { "v.deepstack.16.fc1.weight", "model.visual.deepstack_merger_list.1.linear_fc1.weight" },
        { "v.deepstack.24.fc2.bias", "model.visual.deepstack_merger_list.2.linear_fc2.bias" },
        { "v.patch_embd.weight", "model.visual.patch_embed.proj.weight" },
        { "v.patch_embd.weight.1", "model.visual.patch_embed.proj.weight.1" },
    };
    enum { L = sizeof language / sizeof *language, V = sizeof vision / sizeof *vision };
    file.size = 0;
    add_head(&file, 3, L, 0);
    for (int i = 0; i < L; i++) add_tensor(&file, language[i][0], NE(8), 0, (uint64_t)i * 32);
    add_data(&file, 32, L * 32);
    put("llm/text.gguf", file.data, file.size);
    file.size = 0;
    add_head(&file, 3, V, 0);
    for (int i = 0; i < V; i++)
        if (i < V - 2) add_tensor(&file, vision[i][0], NE(8), 0, (uint64_t)i * 32);
        else add_tensor(&file, vision[i][0], NE(2, 1, 1, 2), 0, (uint64_t)i * 32); // [2, 1, 1, 2]
    add_data(&file, 32, V * 32);
    put("llm/mmproj-F16.gguf", file.data, file.size);
    vx_component *c;
    assert_ok(vx_component_open(&c, VX_TEXT_ENCODER, at("llm")));
    assert_int_equal(vx_component_layout(c), VX_LAYOUT_LLAMA);
    for (int i = 0; i < L; i++)
        if (!vx_component_has(c, language[i][1])) fail_msg("%s is not %s", language[i][0], language[i][1]);
    for (int i = 0; i < V; i++)
        if (!vx_component_has(c, vision[i][1])) fail_msg("%s is not %s", vision[i][0], vision[i][1]);
    vx_tensor t, first, second;
    assert_ok(vx_component_get(c, vision[V - 2][1], VX_F32, &first, 2, 1, 1, 2));
    assert_ok(vx_component_get(c, vision[V - 1][1], VX_F32, &second, 2, 1, 1, 2));
    for (int twice = 0; twice < 2; twice++) {
        assert_ok(vx_component_stack(c, vision[V - 2][1], vision[V - 1][1], 4, (const int64_t[]){ 2, 1, 1, 2 }, 2, &t));
        assert_int_equal(t.rank, 5);
        assert_true(t.shape[0] == 2 && t.shape[1] == 1 && t.shape[2] == 2 && t.shape[3] == 1 && t.shape[4] == 2);
        for (int n = 0; n < 2; n++)
            for (int f = 0; f < 2; f++)
                assert_memory_equal(vx_f32_of(t) + 4 * n + 2 * f, vx_f32_of(f ? second : first) + 2 * n, 8);
    }
    vx_component_close(&c);
}

// A quantised vector of a stock converter: decoded and told.
static void tells_of_quantised_norms(void **state)
{
    (void)state;
    static bytes file;
    file.size = 0;
    add_head(&file, 3, 2, 0);
    add_tensor(&file, "blocks.0.norm1.weight", NE(32), 8, 0);
    add_tensor(&file, "audio_patch_proj.weight", NE(1), 0, 64);
    add_data(&file, 32, 0);
    add_number(&file, 0x3800, 2); // 0.5
    for (int i = 0; i < 32; i++) add_number(&file, (uint64_t)i, 1);
    add_data(&file, 32, 4);
    put("norms.gguf", file.data, file.size);
    vx_component *c = open_transformer(at("norms.gguf"), VX_QKV_BY_FILE);
    vx_tensor t;
    assert_ok(vx_component_get(c, "blocks.0.norm1.weight", VX_DTYPE_NONE, &t, 32));
    for (int i = 0; i < 32; i++) assert_true(vx_f32_of(t)[i] == 0.5f * (float)i);
    assert_non_null(strstr(vx_component_notes(c), "norm weights are quantised"));
    vx_component_close(&c);
}

// ---- folders of single files ----

static void put_one(const char *file, const char *name)
{
    static const float one[1] = { 1 };
    const vx_safetensors_tensor t[] = { { name, VX_F32, 1, { 1 }, one } };
    put_text(file, "");
    assert_ok(vx_safetensors_write(at(file), true, t, 1, NULL, 0));
}

static vx_status find(const vx_model_map_params *p, vx_model_map *map)
{
    return vx_model_map_find(map, p);
}

static void assert_ends(const char *path, const char *end)
{
    assert_non_null(path);
    if (!vx_has_suffix(path, end)) fail_msg("%s does not end in %s", path, end);
}

static void finds_the_files_of_a_comfy_folder(void **state)
{
    (void)state;
    vx_model_map map;
    put_one("models/diffusion_models/h3_FL2VA_x.safetensors", "audio_patch_proj.weight");
    put_one("models/diffusion_models/h3_ref2va_x.safetensors", "model.diffusion_model.audio_patch_proj.weight");
    put_one("models/diffusion_models/other_model.safetensors", "double_blocks.0.img_attn.qkv.weight");
    put_one("models/text_encoders/a.safetensors", "model.layers.0.mlp.up_proj.weight");
    put_one("models/vae/names_say_nothing.safetensors", "decoder.x_embedder.weight");
    put_one("models/vae/video.safetensors", "decoder.conv_pre.weight");
    put_one("models/loras/turbo_fl2va.safetensors", "diffusion_model.blocks.0.attn.qkv_proj.lora_A.weight");
    put_text("models/tokenizer/vocab.json", "{}");
    char folder_[512];
    snprintf(folder_, sizeof folder_, "%s", at("models"));
    assert_ok(find(&(vx_model_map_params){ .model = folder_ }, &map));
    assert_ends(map.component[VX_TRANSFORMER], "h3_FL2VA_x.safetensors");
    assert_ends(map.component[VX_TEXT_ENCODER], "text_encoders/a.safetensors");
    assert_ends(map.component[VX_VIDEO_VAE], "names_say_nothing.safetensors");
    assert_ends(map.component[VX_AUDIO_VAE], "vae/video.safetensors");
    assert_ends(map.tokenizer, "models/tokenizer");
    assert_int_equal(map.variant, VX_VARIANT_FL2VA);
    assert_string_equal(map.variant_reason, "the file's name");
    vx_model_map_free(&map);
    assert_ok(find(&(vx_model_map_params){ .model = folder_, .variant = VX_VARIANT_REF2VA }, &map));
    assert_ends(map.component[VX_TRANSFORMER], "h3_ref2va_x.safetensors");
    vx_model_map_free(&map);
    // One file of it: the rest lies around.
    char one[600];
    snprintf(one, sizeof one, "%s/diffusion_models/h3_ref2va_x.safetensors", folder_);
    assert_ok(find(&(vx_model_map_params){ .model = one }, &map));
    assert_int_equal(map.variant, VX_VARIANT_REF2VA);
    assert_ends(map.component[VX_VIDEO_VAE], "names_say_nothing.safetensors");
    vx_model_map_free(&map);
    // Two that could be: the user is asked, and told how to answer.
    put_one("models/text_encoders/b.safetensors", "model.embed_tokens.weight");
    vx_status s = find(&(vx_model_map_params){ .model = folder_ }, &map);
    assert_int_equal(s.code, VX_ERR_MODEL_AMBIGUOUS);
    assert_says(s, "text_encoders/a.safetensors, text_encoders/b.safetensors");
    assert_non_null(strstr(s.remedy, "--text-encoder"));
    char encoder[600];
    snprintf(encoder, sizeof encoder, "%s/text_encoders/b.safetensors", folder_);
    assert_ok(find(&(vx_model_map_params){ .model = folder_, .text_encoder = encoder }, &map));
    assert_ends(map.component[VX_TEXT_ENCODER], "b.safetensors");
    vx_model_map_free(&map);
    put_one("models/diffusion_models/h3_fl2va_y.safetensors", "audio_patch_proj.weight");
    s = find(&(vx_model_map_params){ .model = folder_, .text_encoder = encoder }, &map);
    assert_int_equal(s.code, VX_ERR_MODEL_AMBIGUOUS);
    assert_says(s, "h3_FL2VA_x.safetensors");
    assert_non_null(strstr(s.remedy, "--model"));
    assert_ok(find(&(vx_model_map_params){ .model = folder_, .text_encoder = encoder, .stated = VX_VARIANT_REF2VA }, &map));
    vx_model_map_free(&map);
}

static void finds_files_side_by_side(void **state)
{
    (void)state;
    vx_model_map map;
    put_one("flat/dit.safetensors", "audio_patch_proj.weight");
    put_one("flat/te.safetensors", "model.embed_tokens.weight");
    put_text("flat/damaged.safetensors", "version https://git-lfs.github.com/spec/v1\n");
    char folder_[512];
    snprintf(folder_, sizeof folder_, "%s", at("flat"));
    assert_ok(find(&(vx_model_map_params){ .model = folder_ }, &map));
    assert_ends(map.component[VX_TRANSFORMER], "dit.safetensors");
    assert_int_equal(map.variant, VX_VARIANT_UNKNOWN);
    assert_null(map.component[VX_VIDEO_VAE]);
    vx_model_map_free(&map);
    assert_code(find(&(vx_model_map_params){ .model = folder_, .variant = VX_VARIANT_REF2VA }, &map), VX_ERR_MODEL_VARIANT);
    put_text("broken/dit.safetensors", "version https://git-lfs.github.com/spec/v1\n");
    assert_code(find(&(vx_model_map_params){ .model = at("broken") }, &map), VX_ERR_FILE_POINTER);
    put_text("none/x.txt", "");
    assert_code(find(&(vx_model_map_params){ .model = at("none") }, &map), VX_ERR_MODEL_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_the_order_of_the_rows),       cmocka_unit_test(reads_grouped_rows_of_gguf),
        cmocka_unit_test(understands_llama_names),           cmocka_unit_test(tells_of_quantised_norms),
        cmocka_unit_test(finds_the_files_of_a_comfy_folder), cmocka_unit_test(finds_files_side_by_side),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
