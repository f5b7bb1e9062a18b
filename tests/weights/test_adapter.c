// One adapter file: every spelling of its keys, the rules that it is held to, where its scale comes from, and what it gives to a
// module in the base's order of rows. Row orders are checked against the definitions of the checkpoints specification 5.3.
#include "files.h"

#include <math.h>

#include "weights/adapter_inside.h"

// ---- keys ----

static void every_spelling_names_its_module(void **state)
{
    (void)state;
    enum { Q = VX_PART_Q_OF_QKV, K = VX_PART_K_OF_QKV, V = VX_PART_V_OF_QKV, ALL = VX_PART_WHOLE };
    static const struct {
        const char *key, *module;
        int part, role;
        bool value_first, reference;
    } cases[] = {
        { "blocks.3.attn.qkv_proj.lora_A.weight", "blocks.3.attn.qkv_proj", ALL, VX_ROLE_A, false, false },
        { "diffusion_model.blocks.49.attn.out_proj.lora_B.weight", "blocks.49.attn.out_proj", ALL, VX_ROLE_B, false, false },
        { "model.diffusion_model.blocks.0.mlp.fc1.lora_up.weight", "blocks.0.mlp.fc1", ALL, VX_ROLE_B, false, false },
        { "base_model.model.blocks.0.mlp.fc2.lora_A.default.weight", "blocks.0.mlp.fc2", ALL, VX_ROLE_A, false, false },
        { "base_model.model.blocks.0.mlp.fc2.lora_A.my_style.weight", "blocks.0.mlp.fc2", ALL, VX_ROLE_A, false, false },
        { "model.blocks.0.adaln_proj.linear.lora_down.weight", "blocks.0.adaln_proj.linear", ALL, VX_ROLE_A, false, false },
        { "token_refiner.blocks.1.attn.qkv_proj.alpha", "token_refiner.blocks.1.attn.qkv_proj", ALL, VX_ROLE_ALPHA, false,
          false },
        { "transformer.transformer_blocks.3.attn.to_q.lora.down.weight", "blocks.3.attn.qkv_proj", Q, VX_ROLE_A, false, false },
        { "transformer.transformer_blocks.3.attn.to_k.lora.up.weight", "blocks.3.attn.qkv_proj", K, VX_ROLE_B, false, false },
        { "transformer_ref.transformer_blocks.3.attn.to_v.lora.A.weight", "blocks.3.attn.qkv_proj", V, VX_ROLE_A, false, true },
        { "transformer_blocks.3.attn.to_out.0.lora.B.weight", "blocks.3.attn.out_proj", ALL, VX_ROLE_B, false, false },
        { "transformer_blocks.3.ff.net.0.proj.lora_B.weight", "blocks.3.mlp.fc1", ALL, VX_ROLE_B, true, false },
        { "transformer_blocks.3.ff.net.2.lora_B.weight", "blocks.3.mlp.fc2", ALL, VX_ROLE_B, false, false },
        { "token_refiner.refiner_blocks.0.ff.net.2.lora_A.weight", "token_refiner.blocks.0.mlp.fc2", ALL, VX_ROLE_A, false,
          false },
        { "proj_in.lora_A.weight", "video_patch_proj", ALL, VX_ROLE_A, false, false },
        { "audio_proj_in.lora_A.weight", "audio_patch_proj", ALL, VX_ROLE_A, false, false },
        { "context_embedder.lora_A.weight", "condition_proj", ALL, VX_ROLE_A, false, false },
        { "time_embedder.linear_1.lora_A.weight", "time_embedder.proj_in", ALL, VX_ROLE_A, false, false },
        { "time_embedder.linear_2.lora_A.weight", "time_embedder.proj_out", ALL, VX_ROLE_A, false, false },
        { "norm_out.linear.lora_A.weight", "final_layer.adaln_proj.linear", ALL, VX_ROLE_A, false, false },
        { "proj_out.lora_A.weight", "final_layer.video_out", ALL, VX_ROLE_A, false, false },
        { "audio_proj_out.lora_A.weight", "final_layer.audio_out", ALL, VX_ROLE_A, false, false },
        { "proj_out.weight", "final_layer.video_out", ALL, VX_ROLE_BANK, false, false },
        { "audio_proj_out.bias", "final_layer.audio_out", ALL, VX_ROLE_BANK_BIAS, false, false },
        { "final_layer.video_out.reshape_weight", "final_layer.video_out", ALL, VX_ROLE_RESHAPE, false, false },
        { "blocks.0.adaln_proj.linear.diff_b", "blocks.0.adaln_proj.linear", ALL, VX_ROLE_DIFF_BIAS, false, false },
        { "blocks.0.mlp.fc1.diff", "blocks.0.mlp.fc1", ALL, VX_ROLE_DIFF, false, false },
        { "lora_unet_blocks_12_attn_qkv_proj.lora_down.weight", "blocks.12.attn.qkv_proj", ALL, VX_ROLE_A, false, false },
        { "lora_unet_blocks_12_adaln_proj_linear.alpha", "blocks.12.adaln_proj.linear", ALL, VX_ROLE_ALPHA, false, false },
        { "lora_unet_token_refiner_blocks_1_mlp_fc2.lora_up.weight", "token_refiner.blocks.1.mlp.fc2", ALL, VX_ROLE_B, false,
          false },
        { "lora_unet_time_embedder_proj_out.lora_up.weight", "time_embedder.proj_out", ALL, VX_ROLE_B, false, false },
        { "lora_unet_final_layer_video_out.lora_up.weight", "final_layer.video_out", ALL, VX_ROLE_B, false, false },
        // Public report P25.
        { "blocks.0.attn.qkv_proj.lora_A.default.weight", "blocks.0.attn.qkv_proj", ALL, VX_ROLE_A, false, false },
        { "blocks.0_adaln_proj_linear.lora_down.weight", "blocks.0.adaln_proj.linear", ALL, VX_ROLE_A, false, false },
        { "token_refiner.refiner_blocks.0.attn.k_proj.lora_A.weight", "token_refiner.blocks.0.attn.qkv_proj", K, VX_ROLE_A, false,
          false },
        { "token_refiner_blocks.0.attn.q_proj.lora_up.weight", "token_refiner.blocks.0.attn.qkv_proj", Q, VX_ROLE_B, false,
          false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_adapter_key key;
        const char *what = NULL;
        char name[64];
        if (vx_adapter_key_parse(&key, cases[i].key, &what) != VX_KEY_KNOWN) fail_msg("%s is not known", cases[i].key);
        if (strcmp(vx_adapter_module_name(name, key.module), cases[i].module) != 0)
            fail_msg("%s is %s, wanted %s", cases[i].key, name, cases[i].module);
        if ((int)key.part != cases[i].part || (int)key.role != cases[i].role || key.value_first != cases[i].value_first ||
            key.reference != cases[i].reference)
            fail_msg("%s: part %d, role %d", cases[i].key, (int)key.part, (int)key.role);
    }
}

static void other_keys_are_unknown(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "",
        ".",
        "lora_A.weight",
        "blocks.3.attn.qkv_proj",
        "blocks.3.attn.qkv_proj.weight",
        "blocks.03.attn.qkv_proj.lora_A.weight",
        "blocks.256.attn.qkv_proj.lora_A.weight",
        "blocks.99999999999.attn.qkv_proj.lora_A.weight",
        "blocks..attn.qkv_proj.lora_A.weight",
        "blocks.3.attn.qkv_proj.lora_A..weight",
        "blocks.3.attn.qkv_proj.lora_A.a.b.weight",
        "blocks.3.attn.qkv_proj.lora_C.weight",
        "blocks.3.attn.qkv-proj.lora_A.weight",
        "diffusion_model.diffusion_model.blocks.3.attn.qkv_proj.lora_A.weight",
        "token_refiner.blocks.0.adaln_proj.linear.lora_A.weight",
        "blocks.3.norm1.diff",
        "blocks.0.mlp.fc1.reshape_weight",
        "double_blocks.0.img_attn.qkv.lora_A.weight",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        vx_adapter_key key;
        const char *what = NULL;
        if (vx_adapter_key_parse(&key, keys[i], &what) != VX_KEY_UNKNOWN) fail_msg("'%s' was taken", keys[i]);
    }
}

// ---- the rules of a file ----

// {"name":{dtype, shape}} with offsets filled in; data are 0, 1, 2, ...
static const char *adapter_file(const char *name, const char *const (*tensors)[3], int count, const char *metadata)
{
    char header[4096];
    size_t offset = 0;
    int n = snprintf(header, sizeof header, "{");
    if (metadata) n += snprintf(header + n, sizeof header - (size_t)n, "\"__metadata__\":{%s},", metadata);
    for (int i = 0; i < count; i++) {
        const char *type = tensors[i][1];
        size_t bytes = strstr(type, "64") ? 8 : strstr(type, "32") ? 4 : strstr(type, "16") ? 2 : 1;
        for (const char *p = tensors[i][2]; *p; p++)
            if (*p >= '0' && *p <= '9') {
                char *end;
                bytes *= (size_t)strtol(p, &end, 10);
                p = end - 1;
            }
        n += snprintf(header + n, sizeof header - (size_t)n,
                      "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", i ? "," : "", tensors[i][0], type,
                      tensors[i][2], offset, offset + bytes);
        offset += bytes;
    }
    snprintf(header + n, sizeof header - (size_t)n, "}");
    return put_container(name, header, offset);
}

#define OUT_A "blocks.0.attn.out_proj.lora_A.weight"
#define OUT_B "blocks.0.attn.out_proj.lora_B.weight"
#define PAIR                 \
    { OUT_A, "F32", "2,6" }, \
    {                        \
        OUT_B, "F32", "4,2"  \
    }

static void damaged_files_are_refused_with_their_reason(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        int count;
        const char *tensors[4][3];
        const char *metadata;
        vx_code code;
        const char *message;
    } cases[] = {
        { "sound", 2, { PAIR }, NULL, VX_OK, "" },
        { "A without B", 1, { { OUT_A, "F32", "2,6" } }, NULL, VX_ERR_TENSOR_MISSING, "up factor" },
        { "B without A", 1, { { OUT_B, "F32", "4,2" } }, NULL, VX_ERR_TENSOR_MISSING, "down factor" },
        { "alpha without a pair",
          3,
          { PAIR, { "blocks.1.mlp.fc2.alpha", "F32", "" } },
          NULL,
          VX_ERR_TENSOR_UNEXPECTED,
          "without a pair" },
        { "two keys for one place",
          3,
          { PAIR, { "transformer.transformer_blocks.0.attn.to_out.0.lora_A.weight", "F32", "2,6" } },
          NULL,
          VX_ERR_TENSOR_DUPLICATE,
          "same place" },
        { "fused and separate",
          4,
          { { "blocks.0.attn.qkv_proj.lora_A.weight", "F32", "2,6" },
            { "blocks.0.attn.qkv_proj.lora_B.weight", "F32", "12,2" },
            { "blocks.0.attn.to_q.lora_A.weight", "F32", "2,6" },
            { "blocks.0.attn.to_q.lora_B.weight", "F32", "4,2" } },
          NULL,
          VX_ERR_TENSOR_DUPLICATE,
          "separate query" },
        { "ranks differ", 2, { { OUT_A, "F32", "2,6" }, { OUT_B, "F32", "4,3" } }, NULL, VX_ERR_TENSOR_SHAPE, "rank 3" },
        { "rank 0", 2, { { OUT_A, "F32", "0,6" }, { OUT_B, "F32", "4,0" } }, NULL, VX_ERR_TENSOR_SHAPE, "none of them 0" },
        { "three dimensions",
          2,
          { { OUT_A, "F32", "2,6,1" }, { OUT_B, "F32", "4,2" } },
          NULL,
          VX_ERR_TENSOR_SHAPE,
          "2 dimensions" },
        { "integers", 2, { { OUT_A, "I32", "2,6" }, { OUT_B, "F32", "4,2" } }, NULL, VX_ERR_TENSOR_DTYPE, "I32" },
        { "alpha of two numbers",
          3,
          { PAIR, { "blocks.0.attn.out_proj.alpha", "F32", "2" } },
          NULL,
          VX_ERR_TENSOR_SHAPE,
          "one number" },
        { "alpha of integers", 3, { PAIR, { "blocks.0.attn.out_proj.alpha", "I64", "" } }, NULL, VX_ERR_TENSOR_DTYPE, "I64" },
        { "metadata alpha no number", 2, { PAIR }, "\"alpha\":\"eight\"", VX_ERR_CONFIG, "'eight'" },
        { "metadata alpha not finite", 2, { PAIR }, "\"lora_alpha\":\"inf\"", VX_ERR_CONFIG, "'inf'" },
        { "diffusers' metadata no JSON", 2, { PAIR }, "\"lora_adapter_metadata\":\"{\"", VX_ERR_CONFIG, "" },
        { "rsLoRA",
          2,
          { PAIR },
          "\"lora_adapter_metadata\":\"{\\\"transformer.use_rslora\\\":true}\"",
          VX_ERR_MODEL_LAYOUT,
          "rsLoRA" },
        { "alphas by module",
          2,
          { PAIR },
          "\"lora_adapter_metadata\":\"{\\\"transformer.alpha_pattern\\\":{\\\"a\\\":1}}\"",
          VX_ERR_MODEL_LAYOUT,
          "each module" },
        { "DoRA", 3, { PAIR, { "blocks.0.attn.out_proj.dora_scale", "F32", "4" } }, NULL, VX_ERR_MODEL_LAYOUT, "DoRA" },
        { "LoHa", 1, { { "blocks.0.attn.out_proj.hada_w1_a", "F32", "4,2" } }, NULL, VX_ERR_MODEL_LAYOUT, "LoHa" },
        { "LoKr", 1, { { "blocks.0.attn.out_proj.lokr_w1", "F32", "4,2" } }, NULL, VX_ERR_MODEL_LAYOUT, "LoKr" },
        { "LoCon", 3, { PAIR, { "blocks.0.attn.out_proj.lora_mid.weight", "F32", "2,2" } }, NULL, VX_ERR_MODEL_LAYOUT, "middle" },
        { "replaced weights", 1, { { "blocks.0.norm1.set_weight", "F32", "4" } }, NULL, VX_ERR_MODEL_LAYOUT, "replaced" },
        { "no key that is known",
          1,
          { { "double_blocks.0.img_attn.qkv.lora_A.weight", "F32", "2,6" } },
          NULL,
          VX_ERR_TENSOR_UNEXPECTED,
          "none of its 1 keys" },
        { "some unknown keys",
          3,
          { PAIR, { "blocks.0.norm1.diff", "F32", "6" } },
          NULL,
          VX_ERR_TENSOR_UNEXPECTED,
          "1 of 3 keys" },
        { "a bank's bias alone", 1, { { "proj_out.bias", "F32", "8,4" } }, NULL, VX_ERR_TENSOR_MISSING, "weight" },
        { "a bank and a pair",
          3,
          { { "proj_out.weight", "F32", "8,4,6" },
            { "proj_out.lora_A.weight", "F32", "2,6" },
            { "proj_out.lora_B.weight", "F32", "4,2" } },
          NULL,
          VX_ERR_TENSOR_DUPLICATE,
          "bank" },
        { "reshape that does not fit",
          3,
          { { "proj_out.lora_A.weight", "F32", "2,6" },
            { "proj_out.lora_B.weight", "F32", "4,2" },
            { "proj_out.reshape_weight", "I64", "2" } },
          NULL,
          VX_ERR_TENSOR_SHAPE,
          "the factors make" },
        { "reshape of one number",
          3,
          { { "proj_out.lora_A.weight", "F32", "2,6" },
            { "proj_out.lora_B.weight", "F32", "4,2" },
            { "proj_out.reshape_weight", "I64", "1" } },
          NULL,
          VX_ERR_TENSOR_SHAPE,
          "two I64" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = adapter_file("a.safetensors", cases[i].tensors, cases[i].count, cases[i].metadata);
        vx_adapter *a;
        vx_status s = vx_adapter_open(&a, path, &(vx_adapter_params){ .strength = 1 });
        if (s.code != cases[i].code)
            fail_msg("%s: VX-%d %s, wanted VX-%d", cases[i].says, (int)s.code, s.message, (int)cases[i].code);
        if (s.code && !strstr(s.message, cases[i].message))
            fail_msg("%s: '%s' does not say '%s'", cases[i].says, s.message, cases[i].message);
        if (s.code && !strstr(s.message, "a.safetensors")) fail_msg("%s: '%s' does not name the file", cases[i].says, s.message);
        assert_true((s.code == VX_OK) == (a != NULL));
        vx_adapter_close(&a);
    }
}

// Reliability specification T25: cut anywhere, the file is refused as what it is.
static void cut_files_are_refused(void **state)
{
    (void)state;
    FILE *f = fopen(VX_TEST_DATA "/adapters/kohya.safetensors", "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    const long size = ftell(f);
    rewind(f);
    unsigned char *all = malloc((size_t)size);
    assert_int_equal(fread(all, 1, (size_t)size, f), size);
    fclose(f);
    uint64_t header;
    memcpy(&header, all, sizeof header);
    for (long cut = 0; cut < size; cut += cut < 4096 ? 13 : cut < 8 + (long)header + 64 ? 1 : 977) {
        vx_adapter *a;
        vx_status s = vx_adapter_open(&a, put("cut.safetensors", all, (size_t)cut), &(vx_adapter_params){ .strength = 1 });
        if (s.code != VX_ERR_FILE_TRUNCATED && s.code != VX_ERR_FILE_FORMAT)
            fail_msg("cut at %ld of %ld: VX-%d %s", cut, size, (int)s.code, s.message);
        assert_null(a);
    }
    free(all);
}

static void unknown_keys_may_be_left_out(void **state)
{
    (void)state;
    static const char *const tensors[][3] = { PAIR, { "blocks.0.norm1.diff", "F32", "6" } };
    vx_adapter *a;
    assert_ok(vx_adapter_open(&a, adapter_file("a.safetensors", tensors, 3, NULL),
                              &(vx_adapter_params){ .strength = 1, .partial = true }));
    const vx_adapter_facts *f = vx_adapter_facts_of(a);
    assert_true(f->keys == 3 && f->unknown == 1 && f->modules == 1);
    assert_string_equal(f->first_unknown, "blocks.0.norm1.diff");
    vx_adapter_close(&a);
}

// The file's own alpha, metadata, the user, the table, the rank: in this order (public report P26: 8 taken for 128).
static void alpha_comes_from_the_first_that_says_it(void **state)
{
    (void)state;
    static const struct {
        const char *file, *metadata;
        double option, alpha;
        vx_alpha_source source;
    } cases[] = {
        { "style.safetensors", NULL, 0, 2, VX_ALPHA_IS_RANK },
        { "style.safetensors", NULL, 5, 5, VX_ALPHA_OF_OPTION },
        { "style.safetensors", "\"alpha\":\"8\"", 5, 8, VX_ALPHA_OF_METADATA },
        { "style.safetensors", "\"lora_alpha\":\"9.5\"", 5, 9.5, VX_ALPHA_OF_METADATA },
        { "style.safetensors", "\"lora_adapter_metadata\":\"{\\\"transformer.lora_alpha\\\":6}\"", 5, 6, VX_ALPHA_OF_METADATA },
        { "Minimax-H3_fl2v_turbo_4step_v1.0_768p.safetensors", NULL, 0, 128, VX_ALPHA_OF_TABLE },
        { "Minimax-H3_fl2v_turbo_4step_v1.2_768p.safetensors", NULL, 0, 8, VX_ALPHA_OF_TABLE },
        { "Minimax-H3_fl2v_turbo_4step_v0.1_alpha16.safetensors", NULL, 0, 16, VX_ALPHA_OF_TABLE },
        { "Minimax-H3_fl2v_turbo_4step_v1.0_768p.safetensors", NULL, 7, 7, VX_ALPHA_OF_OPTION },
    };
    static const char *const tensors[][3] = { PAIR };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_adapter *a;
        assert_ok(vx_adapter_open(&a, adapter_file(cases[i].file, tensors, 2, cases[i].metadata),
                                  &(vx_adapter_params){ .strength = -0.5f, .alpha = cases[i].option }));
        const vx_adapter_facts *f = vx_adapter_facts_of(a);
        if (f->alpha_min != cases[i].alpha || f->alpha_source != cases[i].source || f->scale_max != -0.5 * cases[i].alpha / 2)
            fail_msg("case %zu: alpha %g, source %d, scale %g", i, f->alpha_min, (int)f->alpha_source, f->scale_max);
        vx_adapter_close(&a);
    }
}

// Each module's own alpha wins, in any float format.
static void alphas_of_tensors(void **state)
{
    (void)state;
    const float a[12] = { 0 }, b[8] = { 0 }, four = 4;
    const uint16_t half = vx_f32_to_f16(3), brain = vx_f32_to_bf16(5);
    const double wide = 6, infinite = INFINITY;
    const struct {
        vx_dtype type;
        const void *data;
        double alpha;
    } cases[] = {
        { VX_F32, &four, 4 }, { VX_F16, &half, 3 }, { VX_BF16, &brain, 5 }, { VX_F64, &wide, 6 }, { VX_F64, &infinite, 0 }
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const vx_safetensors_tensor tensors[] = { { OUT_A, VX_F32, 2, { 2, 6 }, a },
                                                  { OUT_B, VX_F32, 2, { 4, 2 }, b },
                                                  { "blocks.0.attn.out_proj.alpha", cases[i].type, 0, { 0 }, cases[i].data } };
        const char *path = at("alpha.safetensors");
        vx_adapter *adapter;
        assert_ok(vx_safetensors_write(path, true, tensors, 3, &(vx_safetensors_pair){ "alpha", "100" }, 1));
        vx_status s = vx_adapter_open(&adapter, path, &(vx_adapter_params){ .strength = 1 });
        if (cases[i].alpha == 0) {
            assert_int_equal(s.code, VX_ERR_CONFIG);
            assert_says(s, "not a finite number");
            continue;
        }
        assert_int_equal(s.code, VX_OK);
        assert_true(vx_adapter_facts_of(adapter)->alpha_max == cases[i].alpha);
        assert_int_equal(vx_adapter_facts_of(adapter)->alpha_source, VX_ALPHA_OF_TENSORS);
        vx_adapter_close(&adapter);
    }
}

// Wherever the one number stands, in every float format: the key and the place are named.
static void numbers_that_are_none_are_named(void **state)
{
    (void)state;
    enum { ROWS = 2, COLUMNS = 3000 };
    static uint32_t wide[ROWS * COLUMNS];
    static uint16_t half[ROWS * COLUMNS], up[8];
    static const struct {
        vx_dtype type;
        uint32_t bits;
        bool finite;
    } values[] = { { VX_F32, 0x7fc00000, false }, { VX_F32, 0xff800000, false }, { VX_F32, 0x7f7fffff, true },
                   { VX_F32, 0xff7fffff, true },  { VX_BF16, 0x7f80, false },    { VX_BF16, 0xffc1, false },
                   { VX_BF16, 0x7f7f, true },     { VX_BF16, 0x7c00, true },     { VX_F16, 0x7c00, false },
                   { VX_F16, 0xfe00, false },     { VX_F16, 0x7bff, true },      { VX_F16, 0xfbff, true } };
    static const int places[] = { 0, 2047, 2048, ROWS * COLUMNS - 1 };
    for (size_t v = 0; v < sizeof values / sizeof *values; v++)
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            memset(wide, 0, sizeof wide);
            memset(half, 0, sizeof half);
            wide[places[p]] = values[v].bits;
            half[places[p]] = (uint16_t)values[v].bits;
            const vx_safetensors_tensor tensors[] = {
                { OUT_B, VX_BF16, 2, { 4, 2 }, up },
                { OUT_A, values[v].type, 2, { ROWS, COLUMNS }, values[v].type == VX_F32 ? (void *)wide : half }
            };
            char place[64];
            snprintf(place, sizeof place, "row %d, column %d", places[p] / COLUMNS, places[p] % COLUMNS);
            vx_adapter *a;
            assert_ok(vx_safetensors_write(at("n.safetensors"), true, tensors, 2, NULL, 0));
            assert_ok(vx_adapter_open(&a, at("n.safetensors"), &(vx_adapter_params){ .strength = 1 }));
            const vx_status s = vx_adapter_check_numbers(a);
            if (s.code != (values[v].finite ? VX_OK : VX_ERR_NOT_FINITE))
                fail_msg("%x: VX-%d %s", values[v].bits, s.code, s.message);
            if (s.code && (!strstr(s.message, "n.safetensors: tensor '" OUT_A "'") || !strstr(s.message, place)))
                fail_msg("%x at %d: %s", values[v].bits, places[p], s.message);
            vx_adapter_close(&a);
        }
}

// What people give in the place of an adapter's file.
static void other_things_are_named(void **state)
{
    (void)state;
    put_container("part/model.safetensors",
                  "{\"decoder.x_embedder.weight\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0);
    put_text("folder/readme.txt", "");
    put_text("text.safetensors", "nothing of the kind");
    put("empty.gguf", "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
    assert_int_equal(mkfifo(at("fifo.safetensors"), 0600), 0);
    static const struct {
        const char *name;
        vx_code code;
        const char *says, *remedy;
    } cases[] = { { "part", VX_ERR_MODEL_LAYOUT, "it looks like the video VAE", "give it with --video-vae" },
                  { "folder", VX_ERR_MODEL_OPEN, "is a folder", "name the adapter's .safetensors file inside it" },
                  { "fifo.safetensors", VX_ERR_MODEL_OPEN, "is a FIFO", "an adapter is one .safetensors file" },
                  { "text.safetensors", VX_ERR_FILE_LIMIT, "may not be safetensors", "an adapter is one .safetensors file" },
                  { "empty.gguf", VX_ERR_FILE_FORMAT, "is a GGUF file", "an adapter is one .safetensors file" },
                  { "none.safetensors", VX_ERR_MODEL_OPEN, "No such file", "" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_adapter *a;
        const vx_status s = vx_adapter_open(&a, at(cases[i].name), &(vx_adapter_params){ .strength = 1 });
        if (s.code != cases[i].code || !strstr(s.message, cases[i].says) || !strstr(s.remedy, cases[i].remedy))
            fail_msg("%s: VX-%d %s (%s)", cases[i].name, s.code, s.message, s.remedy);
        assert_null(a);
    }
}

static void a_file_may_say_its_partition(void **state)
{
    (void)state;
    static const char *const plain[][3] = { PAIR };
    static const char *const reference[][3] = { { "transformer_ref.transformer_blocks.0.ff.net.2.lora_A.weight", "F32", "2,6" },
                                                { "transformer_ref.transformer_blocks.0.ff.net.2.lora_B.weight", "F32", "4,2" } };
    const struct {
        const char *const (*tensors)[3];
        const char *metadata;
        vx_variant variant;
    } cases[] = {
        { plain, NULL, VX_VARIANT_UNKNOWN },
        { reference, NULL, VX_VARIANT_REF2VA },
        { plain, "\"key_format\":\"minimax-h3-pdd-fl2va\"", VX_VARIANT_FL2VA },
        { plain, "\"key_format\":\"minimax-h3-pdd-ref2va\"", VX_VARIANT_REF2VA },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_adapter *a;
        assert_ok(vx_adapter_open(&a, adapter_file("v.safetensors", cases[i].tensors, 2, cases[i].metadata),
                                  &(vx_adapter_params){ .strength = 1 }));
        assert_int_equal(vx_adapter_facts_of(a)->variant, cases[i].variant);
        vx_adapter_close(&a);
    }
}

static void what_inspect_says(void **state)
{
    (void)state;
    static const char *const good[][3] = { PAIR };
    static const char *const bad[][3] = { { OUT_A, "F32", "2,6" } };
    json_t *o;
    vx_status problem;
    assert_ok(vx_adapter_describe(adapter_file("fl2v_turbo_4step_v1.0.safetensors", good, 2, NULL), &o, &problem));
    assert_int_equal(problem.code, VX_OK);
    assert_string_equal(json_string_value(json_object_get(o, "kind")), "adapter");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "targets"), "out_proj")), 1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "preset"), "steps")), 4);
    assert_true(json_number_value(json_array_get(json_object_get(o, "scale"), 0)) == 64); // 128 / 2
    json_decref(o);
    assert_ok(vx_adapter_describe(adapter_file("b.safetensors", bad, 1, NULL), &o, &problem));
    assert_int_equal(problem.code, VX_ERR_TENSOR_MISSING);
    json_decref(o);
    assert_code(vx_adapter_describe(put_text("c.safetensors", "no"), &o, &problem), VX_ERR_FILE_TRUNCATED);
    assert_null(o);
}

// ---- what a module gets ----

enum { HEADS = 2, DIM = 3, WIDTH = HEADS * DIM, COLUMNS = 3 * WIDTH, HIDDEN = 4, RANK = 2 };

// A number for q, k or v of a head's channel; the rows of every spelling are made of it.
static float number(int which, int head, int channel, int r)
{
    return (float)(1000 * (which + 1) + 100 * head + 10 * channel + r);
}

static void put_rows(float *b, int order, int which_only)
{
    for (int which = 0; which < 3; which++)
        for (int h = 0; h < HEADS; h++)
            for (int d = 0; d < DIM; d++)
                for (int r = 0; r < RANK; r++) {
                    const int row = order == 0   ? which * WIDTH + h * DIM + d
                                    : order == 1 ? h * 3 * DIM + which * DIM + d
                                                 : h * DIM + d;
                    if (order == 2 && which != which_only) continue;
                    b[row * RANK + r] = number(which, h, d, r);
                }
}

static vx_adapter_target qkv_target(bool interleaved)
{
    vx_adapter_target t = { .module = { VX_MODULE_QKV, false, 0 },
                            .n = COLUMNS,
                            .k = HIDDEN,
                            .heads = HEADS,
                            .head_dim = DIM,
                            .head_stride = interleaved ? 3 * DIM : DIM };
    for (int i = 0; i < 3; i++) t.offset[i] = i * (interleaved ? DIM : WIDTH);
    return t;
}

static void check_qkv(const char *says, const char *path, bool interleaved, const bool there[3])
{
    vx_adapter *a;
    vx_adapter_memory memory = { .load = true };
    vx_adapter_addition add;
    vx_adapter_target t = qkv_target(interleaved);
    assert_ok(vx_adapter_open(&a, path, &(vx_adapter_params){ .strength = 0.5f }));
    assert_ok(vx_adapter_add(a, &t, &memory, &add));
    float got[COLUMNS][RANK] = { { 0 } };
    for (int i = 0; i < add.branches; i++) {
        const vx_branch *b = &add.branch[i];
        assert_true(b->scale == 0.5f && b->b.dtype == VX_F32 && b->column + b->b.shape[0] <= COLUMNS);
        for (int64_t row = 0; row < b->b.shape[0]; row++)
            for (int r = 0; r < RANK; r++) got[b->column + row][r] += vx_f32_of(b->b)[row * RANK + r];
    }
    for (int which = 0; which < 3; which++)
        for (int h = 0; h < HEADS; h++)
            for (int d = 0; d < DIM; d++)
                for (int r = 0; r < RANK; r++) {
                    const float want = there[which] ? number(which, h, d, r) : 0;
                    const float is = got[t.offset[which] + h * t.head_stride + d][r];
                    if (is != want)
                        fail_msg("%s, base %s: %d of head %d, channel %d is %g, wanted %g", says,
                                 interleaved ? "interleaved" : "grouped", which, h, d, (double)is, (double)want);
                }
    int unused;
    assert_ok(vx_adapter_finish(a, &unused));
    assert_int_equal(unused, 0);
    vx_adapter_memory_free(&memory, NULL);
    vx_adapter_close(&a);
}

static void rows_of_qkv_find_their_columns(void **state)
{
    (void)state;
    float down[RANK * HIDDEN] = { 0 }, grouped[COLUMNS * RANK], mixed[COLUMNS * RANK], part[3][WIDTH * RANK];
    put_rows(grouped, 0, 0);
    put_rows(mixed, 1, 0);
    for (int i = 0; i < 3; i++) put_rows(part[i], 2, i);
    const vx_safetensors_tensor files[][6] = {
        { { "blocks.0.attn.qkv_proj.lora_A.weight", VX_F32, 2, { RANK, HIDDEN }, down },
          { "blocks.0.attn.qkv_proj.lora_B.weight", VX_F32, 2, { COLUMNS, RANK }, grouped } },
        { { "blocks.0.attn.qkv_proj.lora_A.default.weight", VX_F32, 2, { RANK, HIDDEN }, down },
          { "blocks.0.attn.qkv_proj.lora_B.default.weight", VX_F32, 2, { COLUMNS, RANK }, mixed } },
        { { "transformer_blocks.0.attn.to_q.lora_A.weight", VX_F32, 2, { RANK, HIDDEN }, down },
          { "transformer_blocks.0.attn.to_q.lora_B.weight", VX_F32, 2, { WIDTH, RANK }, part[0] },
          { "transformer_blocks.0.attn.to_k.lora_A.weight", VX_F32, 2, { RANK, HIDDEN }, down },
          { "transformer_blocks.0.attn.to_k.lora_B.weight", VX_F32, 2, { WIDTH, RANK }, part[1] },
          { "transformer_blocks.0.attn.to_v.lora_A.weight", VX_F32, 2, { RANK, HIDDEN }, down },
          { "transformer_blocks.0.attn.to_v.lora_B.weight", VX_F32, 2, { WIDTH, RANK }, part[2] } },
        // PEFT's "default" behind diffusers' names says nothing about rows; query and value alone are legal.
        { { "transformer_blocks.0.attn.to_q.lora_A.default.weight", VX_F32, 2, { RANK, HIDDEN }, down },
          { "transformer_blocks.0.attn.to_q.lora_B.default.weight", VX_F32, 2, { WIDTH, RANK }, part[0] },
          { "transformer_blocks.0.attn.to_v.lora_A.default.weight", VX_F32, 2, { RANK, HIDDEN }, down },
          { "transformer_blocks.0.attn.to_v.lora_B.default.weight", VX_F32, 2, { WIDTH, RANK }, part[2] } },
    };
    static const char *const says[] = { "grouped", "interleaved", "separate", "two of three" };
    static const int counts[] = { 2, 2, 6, 4 };
    for (int i = 0; i < 4; i++) {
        const bool there[3] = { true, i != 3, true };
        assert_ok(vx_safetensors_write(at("q.safetensors"), true, files[i], counts[i], NULL, 0));
        check_qkv(says[i], at("q.safetensors"), false, there);
        check_qkv(says[i], at("q.safetensors"), true, there);
    }
}

static void halves_of_fc1_are_told_by_the_name(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        { "blocks.0.mlp.fc1.lora_A.weight", "blocks.0.mlp.fc1.lora_B.weight" },
        { "transformer_blocks.0.ff.net.0.proj.lora_A.weight", "transformer_blocks.0.ff.net.0.proj.lora_B.weight" },
    };
    const float down[2] = { 0 }, up[4] = { 1, 2, 3, 4 }; // the first half, the second half
    for (int diffusers = 0; diffusers < 2; diffusers++)
        for (int gate_first = 0; gate_first < 2; gate_first++) {
            const vx_safetensors_tensor tensors[] = { { names[diffusers][0], VX_F32, 2, { 1, 2 }, down },
                                                      { names[diffusers][1], VX_F32, 2, { 4, 1 }, up } };
            assert_ok(vx_safetensors_write(at("f.safetensors"), true, tensors, 2, NULL, 0));
            vx_adapter *a;
            vx_adapter_memory memory = { .load = true };
            vx_adapter_addition add;
            assert_ok(vx_adapter_open(&a, at("f.safetensors"), &(vx_adapter_params){ .strength = 1 }));
            assert_ok(vx_adapter_add(
                a, &(vx_adapter_target){ .module = { VX_MODULE_FC1, false, 0 }, .n = 4, .k = 2, .gate_first = gate_first },
                &memory, &add));
            // Official names put the gate first, diffusers' the value.
            const bool as_is = (diffusers == 0) == (gate_first == 1);
            assert_int_equal(add.branches, 1);
            assert_true(vx_f32_of(add.branch[0].b)[0] == (as_is ? 1 : 3));
            assert_true(vx_f32_of(add.branch[0].b)[3] == (as_is ? 4 : 2));
            assert_true(as_is ? memory.bytes == 0 : memory.bytes > 0);
            vx_adapter_memory_free(&memory, NULL);
            vx_adapter_close(&a);
        }
}

static void shapes_of_another_model_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        vx_code code;
    } cases[] = { { "2,6", "4,2", VX_OK }, { "2,7", "4,2", VX_ERR_TENSOR_SHAPE }, { "2,6", "5,2", VX_ERR_TENSOR_SHAPE } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const tensors[][3] = { { OUT_A, "BF16", cases[i].a }, { OUT_B, "BF16", cases[i].b } };
        vx_adapter *a;
        vx_adapter_memory memory = { .load = true };
        vx_adapter_addition add;
        // Strength 0 is checked like any other.
        assert_ok(vx_adapter_open(&a, adapter_file("s.safetensors", tensors, 2, NULL), &(vx_adapter_params){ .strength = 0 }));
        vx_status s =
            vx_adapter_add(a, &(vx_adapter_target){ .module = { VX_MODULE_OUT, false, 0 }, .n = 4, .k = 6 }, &memory, &add);
        assert_int_equal(s.code, cases[i].code);
        if (s.code) assert_says(s, "[4,6]");
        else assert_int_equal(add.branches, 0);
        vx_adapter_memory_free(&memory, NULL);
        vx_adapter_close(&a);
    }
}

// A full model's AdaLN onto a pruned one: (z V + m) A^T B^T for the curve's z, as a branch of z and a bias.
static void adaln_is_projected_onto_the_basis(void **state)
{
    (void)state;
    enum { FULL = 5, CURVE = 2, OUT = 3 };
    const float basis[CURVE * FULL] = { 1, 0, 2, 0, -1, 0, 3, 0, 1, 0 }, mean[FULL] = { 0.5f, 1, -1, 2, 0 };
    const float down[FULL] = { 1, 2, 3, 4, 5 }, up[OUT] = { 1, -1, 0.5f };
    const vx_safetensors_tensor tensors[] = { { "blocks.0.adaln_proj.linear.lora_A.weight", VX_F32, 2, { 1, FULL }, down },
                                              { "blocks.0.adaln_proj.linear.lora_B.weight", VX_F32, 2, { OUT, 1 }, up } };
    assert_ok(vx_safetensors_write(at("p.safetensors"), true, tensors, 2, NULL, 0));
    vx_adapter_target t = { .module = { VX_MODULE_ADALN, false, 0 }, .n = OUT, .k = CURVE, .pruned = true };
    vx_adapter *a;
    vx_adapter_memory memory = { .load = true };
    vx_adapter_addition add;
    assert_ok(vx_adapter_open(&a, at("p.safetensors"), &(vx_adapter_params){ .strength = 2 }));
    assert_ok(vx_adapter_add(a, &t, &memory, &add));
    assert_true(add.left_out && add.branches == 0 && !add.bias);
    t.basis = basis;
    t.mean = mean;
    t.full_k = FULL;
    assert_ok(vx_adapter_add(a, &t, &memory, &add));
    assert_true(add.projected && add.branches == 1 && add.bias);
    assert_true(vx_f32_of(add.branch[0].a)[0] == 1 + 2 * 3 - 5 && vx_f32_of(add.branch[0].a)[1] == 2 * 3 + 4);
    float bias[OUT] = { 10, 10, 10 };
    vx_adapter_add_bias(a, &t, bias);
    const float dot = 0.5f + 2 - 3 + 8; // a . mean
    for (int i = 0; i < OUT; i++) assert_true(bias[i] == 10 + 2 * dot * up[i]);
    // A full base takes no factors of a pruned one's width, nor the other way round.
    t = (vx_adapter_target){ .module = { VX_MODULE_ADALN, false, 0 }, .n = OUT, .k = FULL + 1 };
    vx_status s = vx_adapter_add(a, &t, &memory, &add);
    assert_int_equal(s.code, VX_ERR_TENSOR_SHAPE);
    assert_non_null(strstr(s.remedy, "pruned"));
    vx_adapter_memory_free(&memory, NULL);
    vx_adapter_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling_names_its_module),
        cmocka_unit_test(other_keys_are_unknown),
        cmocka_unit_test(damaged_files_are_refused_with_their_reason),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(unknown_keys_may_be_left_out),
        cmocka_unit_test(alpha_comes_from_the_first_that_says_it),
        cmocka_unit_test(alphas_of_tensors),
        cmocka_unit_test(numbers_that_are_none_are_named),
        cmocka_unit_test(other_things_are_named),
        cmocka_unit_test(a_file_may_say_its_partition),
        cmocka_unit_test(what_inspect_says),
        cmocka_unit_test(rows_of_qkv_find_their_columns),
        cmocka_unit_test(halves_of_fc1_are_told_by_the_name),
        cmocka_unit_test(shapes_of_another_model_are_refused),
        cmocka_unit_test(adaln_is_projected_onto_the_basis),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
