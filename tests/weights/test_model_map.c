// Finding components: the official partitions, the root above them, diffusers' folder, single files, overrides.
#include "testing.h"

#include "base/alloc.h"
#include "files.h"
#include "weights/model_map.h"

#define INDEX(partition)                                                                                      \
    "{\"_class_name\":\"MiniMaxH3Pipeline\",\"_minimax_h3\":{\"schema_version\":1,\"partition\":\"" partition \
    "\",\"sigma_shift_scales\":{\"video\":12.0,\"audio\":3.0}}}"
#define OFFICIAL  "{\"_class_name\":\"MiniMaxH3DiTModel\"}"
#define DIFFUSERS "{\"_class_name\":\"MiniMaxH3Transformer3DModel\"}"
#define ONE(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}"

static void put_partition(const char *parent, const char *index)
{
    static const char *const names[] = { "text_encoder/config.json", "video_vae/config.json", "audio_vae/config.json",
                                         "tokenizer/vocab.json" };
    char name[256];
    for (size_t i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s/%s", parent, names[i]);
        put_text(name, "{}");
    }
    snprintf(name, sizeof name, "%s/transformer/config.json", parent);
    put_text(name, OFFICIAL);
    snprintf(name, sizeof name, "%s/model_index.json", parent);
    if (index) put_text(name, index);
}

static int make_trees(void **state)
{
    if (make_folder(state) != 0) return -1;
    put_partition("root/FL2VA", INDEX("fl2va"));
    put_partition("root/Ref2VA", INDEX("ref2va"));
    put_partition("renamed", INDEX("ref2va"));
    put_partition("odd/REF2VA", NULL);
    put_partition("only/FL2VA", INDEX("fl2va"));
    put_partition("bad_index", INDEX("t2v"));
    put_partition("bad_shift", "{\"_minimax_h3\":{\"partition\":\"fl2va\",\"sigma_shift_scales\":{\"video\":0}}}");
    put_partition("shifts", "{\"_minimax_h3\":{\"partition\":\"fl2va\",\"sigma_shift_scales\":{\"video\":7,\"audio\":2.5}}}");
    put_partition("shared/FL2VA", INDEX("fl2va"));
    put_text("shared/Ref2VA/transformer/config.json", OFFICIAL);
    put_text("shared/Ref2VA/model_index.json", INDEX("ref2va"));
    put_partition("dangling", INDEX("fl2va"));
    remove(at("dangling/text_encoder/config.json"));
    rmdir(at("dangling/text_encoder"));
    put_link("dangling/text_encoder", "../nowhere");
    put_text("diffusers/transformer/config.json", DIFFUSERS);
    put_text("diffusers/transformer_ref/config.json", DIFFUSERS);
    put_text("diffusers/vae/config.json", "{}");
    put_text("diffusers/audio_vae/config.json", "{}");
    put_text("diffusers/text_encoder/vocab.json", "{}");
    put_text("diffusers/scheduler/scheduler_config.json", "{\"shift\":11.5}");
    put_text("diffusers/audio_scheduler/scheduler_config.json", "{\"shift\":4}");
    put_text("diffusers/modular_model_index.json", "{}");
    put_text("half/transformer/config.json", DIFFUSERS);
    put_text("empty/readme.txt", "nothing");
    put_container("files/minimax_h3_fl2va_bf16.safetensors", ONE("audio_patch_proj.weight"), 0);
    put_container("files/MiniMax_H3_Ref2V.safetensors", ONE("transformer.audio_patch_proj.weight"), 0);
    put_container("files/model.safetensors", ONE("audio_proj_in.weight"), 0);
    put_container(
        "files/partition.safetensors",
        "{\"__metadata__\":{\"partition\":\"Ref2VA\",\"config\":\"{\\\"transformer\\\":{\\\"sigma_shift_video\\\":9,\\\"sigma_"
        "shift_audio\\\":2}}\"},\"audio_patch_proj.weight\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
        0);
    put_container("Ref2VA/transformer/model.safetensors", ONE("audio_patch_proj.weight"), 0);
    put_container("files/vae.safetensors", ONE("decoder.x_embedder.weight"), 0);
    put_text("files/model.pth", "x");
    put_container("parts/text_encoder/model.safetensors", ONE("model.language_model.layers.0.self_attn.q_norm.weight"), 0);
    put_text("parts/text_encoder/config.json", "{}");
    put_text("parts/sharded/model.safetensors.index.json",
             "{\"weight_map\":{\"model.language_model.layers.0.self_attn.q_norm.weight\":\"model-00001-of-00002.safetensors\"}}");
    put_text("parts/sharded/config.json", "{}");
    put_text("parts/video_vae/config.json", "{\"source_path\":\"source\"}");
    put_container("parts/video_vae/source/model.safetensors", ONE("decoder.x_embedder.weight"), 0);
    put_container("parts/audio_vae/model.safetensors", ONE("decoder.conv_pre.weight_v"), 0);
    put_text("parts/audio_vae/config.json", "{}");
    put_text("parts/tokenizer/tokenizer.json", "{}");
    put_partition("Ref2VA", INDEX("fl2va"));
    put_partition("later", "{\"_minimax_h3\":{\"partition\":\"fl2va\",\"schema_version\":2}}");
    put_container("comfy/diffusion_models/h3_fl2va.safetensors", ONE("audio_patch_proj.weight"), 0);
    put_text("comfy/diffusion_models/torn.safetensors", "torn");
    put_link("files/link.safetensors", "blob");
    return 0;
}

// Short, so that a case is a line.
#define F  VX_VARIANT_FL2VA
#define R  VX_VARIANT_REF2VA
#define NO VX_VARIANT_UNKNOWN

static const struct {
    const char *says, *model;
    vx_variant needs, stated;
    vx_code want;
    vx_variant variant;
    const char *transformer, *video_vae; // below the folder
    vx_layout_kind layout;
} cases[] = {
    { "a partition", "root/FL2VA", NO, NO, VX_OK, F, "root/FL2VA/transformer", "root/FL2VA/video_vae", VX_LAYOUT_OFFICIAL },
    { "a partition and its request", "root/Ref2VA", R, NO, VX_OK, R, "root/Ref2VA/transformer", "root/Ref2VA/video_vae",
      VX_LAYOUT_OFFICIAL },
    { "a partition under another name", "renamed/", R, NO, VX_OK, R, "renamed/transformer", "renamed/video_vae",
      VX_LAYOUT_OFFICIAL },
    { "a partition by its folder's name", "odd/REF2VA", NO, NO, VX_OK, R, "odd/REF2VA/transformer", "odd/REF2VA/video_vae",
      VX_LAYOUT_OFFICIAL },
    { "the other partition", "root/FL2VA", R, NO, VX_ERR_MODEL_VARIANT, NO, NULL, NULL, 0 },
    { "a contradiction of --variant", "root/FL2VA", NO, R, VX_ERR_MODEL_VARIANT, NO, NULL, NULL, 0 },
    { "a root", "root", NO, NO, VX_OK, F, "root/FL2VA/transformer", "root/FL2VA/video_vae", VX_LAYOUT_OFFICIAL },
    { "a root for references", "root", R, NO, VX_OK, R, "root/Ref2VA/transformer", "root/Ref2VA/video_vae", VX_LAYOUT_OFFICIAL },
    { "a root with --variant", "root", NO, R, VX_OK, R, "root/Ref2VA/transformer", "root/Ref2VA/video_vae", VX_LAYOUT_OFFICIAL },
    { "a root with one partition", "only", F, NO, VX_OK, F, "only/FL2VA/transformer", "only/FL2VA/video_vae",
      VX_LAYOUT_OFFICIAL },
    { "a root with the other partition only", "only", R, NO, VX_ERR_MODEL_VARIANT, NO, NULL, NULL, 0 },
    { "components shared with the other partition", "shared", R, NO, VX_OK, R, "shared/Ref2VA/transformer",
      "shared/FL2VA/video_vae", VX_LAYOUT_OFFICIAL },
    { "diffusers", "diffusers", NO, NO, VX_OK, F, "diffusers/transformer", "diffusers/vae", VX_LAYOUT_DIFFUSERS },
    { "diffusers for references", "diffusers", R, NO, VX_OK, R, "diffusers/transformer_ref", "diffusers/vae",
      VX_LAYOUT_DIFFUSERS },
    { "diffusers without the transformer asked for", "half", R, NO, VX_ERR_MODEL_VARIANT, NO, NULL, NULL, 0 },
    { "diffusers without VAE", "half", F, NO, VX_OK, F, "half/transformer", NULL, VX_LAYOUT_DIFFUSERS },
    { "a transformer's folder", "root/Ref2VA/transformer", NO, NO, VX_OK, R, "root/Ref2VA/transformer", NULL,
      VX_LAYOUT_OFFICIAL },
    { "a diffusers transformer's folder", "diffusers/transformer_ref", NO, NO, VX_OK, R, "diffusers/transformer_ref", NULL,
      VX_LAYOUT_DIFFUSERS },
    { "a file by its name", "files/minimax_h3_fl2va_bf16.safetensors", F, NO, VX_OK, F, "files/minimax_h3_fl2va_bf16.safetensors",
      NULL, VX_LAYOUT_OFFICIAL },
    { "a file by its name in capitals", "files/MiniMax_H3_Ref2V.safetensors", NO, NO, VX_OK, R,
      "files/MiniMax_H3_Ref2V.safetensors", NULL, VX_LAYOUT_OFFICIAL },
    { "a file by its metadata", "files/partition.safetensors", NO, NO, VX_OK, R, "files/partition.safetensors", NULL,
      VX_LAYOUT_OFFICIAL },
    { "a file by its folder", "Ref2VA/transformer/model.safetensors", NO, NO, VX_OK, R, "Ref2VA/transformer/model.safetensors",
      NULL, VX_LAYOUT_OFFICIAL },
    { "a file of diffusers", "files/model.safetensors", F, NO, VX_OK, NO, "files/model.safetensors", NULL, VX_LAYOUT_DIFFUSERS },
    { "a file that says nothing, stated", "files/model.safetensors", R, R, VX_OK, R, "files/model.safetensors", NULL,
      VX_LAYOUT_DIFFUSERS },
    { "a file that says nothing, for references", "files/model.safetensors", R, NO, VX_ERR_MODEL_VARIANT, NO, NULL, NULL, 0 },
    { "a file of the other partition", "files/minimax_h3_fl2va_bf16.safetensors", R, NO, VX_ERR_MODEL_VARIANT, NO, NULL, NULL,
      0 },
    { "a VAE in place of the transformer", "files/vae.safetensors", NO, NO, VX_ERR_MODEL_UNKNOWN, NO, NULL, NULL, 0 },
    { "a pickle", "files/model.pth", NO, NO, VX_ERR_FILE_PICKLE, NO, NULL, NULL, 0 },
    { "a dangling link", "files/link.safetensors", NO, NO, VX_ERR_MODEL_OPEN, NO, NULL, NULL, 0 },
    { "a dangling component", "dangling", NO, NO, VX_ERR_MODEL_OPEN, NO, NULL, NULL, 0 },
    { "nothing there", "absent", NO, NO, VX_ERR_MODEL_OPEN, NO, NULL, NULL, 0 },
    { "another folder", "empty", NO, NO, VX_ERR_MODEL_UNKNOWN, NO, NULL, NULL, 0 },
    { "an unknown partition", "bad_index", NO, NO, VX_ERR_CONFIG, NO, NULL, NULL, 0 },
    { "a shift of 0", "bad_shift", NO, NO, VX_ERR_CONFIG, NO, NULL, NULL, 0 },
};

static void finds_components(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_model_map map;
        vx_status s = vx_model_map_find(
            &map, &(vx_model_map_params){ .model = at(cases[i].model), .variant = cases[i].needs, .stated = cases[i].stated });
        if (s.code != cases[i].want) fail_msg("%s: VX-%d %s", cases[i].says, s.code, s.message);
        if (s.code != VX_OK) {
            assert_null(map.root);
            continue;
        }
        if (map.variant != cases[i].variant || map.layout != cases[i].layout)
            fail_msg("%s: variant %d, layout %d", cases[i].says, map.variant, map.layout);
        assert_string_equal(map.component[VX_TRANSFORMER], at(cases[i].transformer));
        if (cases[i].video_vae) assert_string_equal(map.component[VX_VIDEO_VAE], at(cases[i].video_vae));
        else assert_null(map.component[VX_VIDEO_VAE]);
        vx_model_map_free(&map);
    }
}

static void reads_the_checkpoints_shifts(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        double video, audio;
    } shifts[] = { { "root", 12, 3 },
                   { "shifts", 7, 2.5 },
                   { "diffusers", 11.5, 4 },
                   { "half", 12, 3 },
                   { "files/partition.safetensors", 9, 2 },
                   { "files/model.safetensors", 12, 3 } };
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) {
        vx_model_map map;
        assert_ok(vx_model_map_find(&map, &(vx_model_map_params){ .model = at(shifts[i].model) }));
        assert_true(map.flow_shift == shifts[i].video && map.audio_flow_shift == shifts[i].audio);
        vx_model_map_free(&map);
    }
}

static void names_the_option_for_what_is_missing(void **state)
{
    (void)state;
    vx_model_map map;
    char encoder[512];
    snprintf(encoder, sizeof encoder, "%s", at("root/FL2VA/text_encoder"));
    assert_ok(vx_model_map_find(
        &map, &(vx_model_map_params){ .model = at("half"), .text_encoder = encoder, .tokenizer = at("root/FL2VA/tokenizer") }));
    assert_ok(vx_model_map_need(&map, VX_TRANSFORMER));
    assert_ok(vx_model_map_need(&map, VX_TEXT_ENCODER));
    assert_string_equal(map.component[VX_TEXT_ENCODER], encoder);
    assert_string_equal(map.tokenizer, at("root/FL2VA/tokenizer"));
    vx_status s = vx_model_map_need(&map, VX_VIDEO_VAE);
    assert_int_equal(s.code, VX_ERR_MODEL_COMPONENT);
    assert_says(s, "video_vae, vae");
    assert_non_null(strstr(s.remedy, "--video-vae"));
    vx_model_map_free(&map);
    assert_code(vx_model_map_find(&map, &(vx_model_map_params){ .model = at("half"), .video_vae = "/absent" }),
                VX_ERR_MODEL_OPEN);
    assert_code(vx_model_map_find(&map, &(vx_model_map_params){ .model = at("half"), .tokenizer = at("files/vae.safetensors") }),
                VX_ERR_MODEL_OPEN);
    assert_ok(vx_model_map_find(&map, &(vx_model_map_params){ .model = at("diffusers") }));
    assert_string_equal(map.tokenizer, at("diffusers/text_encoder"));
    vx_model_map_free(&map);
}

// A folder that is no model says what it is, and which option takes it.
static void names_a_part_alone(void **state)
{
    (void)state;
    static const struct {
        const char *model, *says, *remedy;
    } parts[] = { { "parts/text_encoder", "the text encoder of MiniMax H3 alone", "--text-encoder" },
                  { "parts/sharded", "the text encoder of MiniMax H3 alone", "--text-encoder" },
                  { "parts/video_vae", "the video VAE of MiniMax H3 alone", "--video-vae" },
                  { "parts/audio_vae", "the audio VAE of MiniMax H3 alone", "--audio-vae" },
                  { "parts/tokenizer", "a tokenizer alone", "--tokenizer" },
                  { "empty", "holds no MiniMax H3 model", "the downloaded model's folder" } };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        vx_model_map map;
        const vx_status s = vx_model_map_find(&map, &(vx_model_map_params){ .model = at(parts[i].model) });
        if (s.code != VX_ERR_MODEL_UNKNOWN || !strstr(s.message, parts[i].says) || !strstr(s.remedy, parts[i].remedy))
            fail_msg("%s: VX-%d %s (%s)", parts[i].model, s.code, s.message, s.remedy);
    }
}

static void keeps_what_is_odd(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        vx_variant needs;
        const char *notes;
    } odd[] = { { "root/FL2VA", NO, NULL },
                { "Ref2VA", NO, "the folder 'Ref2VA' holds the FL2VA partition, as its model_index.json says" },
                { "later", NO, "later/model_index.json: '_minimax_h3.schema_version' is not 1; read all the same" },
                { "files/model.safetensors", F,
                  "files/model.safetensors: nothing says which partition this is; taken for FL2VA" } };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        vx_model_map map;
        assert_ok(vx_model_map_find(&map, &(vx_model_map_params){ .model = at(odd[i].model), .variant = odd[i].needs }));
        const char *notes = map.notes.data;
        if (!odd[i].notes) assert_null(notes);
        else if (!notes || !vx_has_suffix(notes, odd[i].notes) || strchr(notes, '\n'))
            fail_msg("%s: '%s'", odd[i].model, notes ? notes : "");
        vx_model_map_free(&map);
    }
    // A neighbour that cannot be read is passed over, not forgotten.
    vx_model_map map;
    assert_ok(vx_model_map_find(&map, &(vx_model_map_params){ .model = at("comfy") }));
    assert_string_equal(map.component[VX_TRANSFORMER], at("comfy/diffusion_models/h3_fl2va.safetensors"));
    assert_non_null(strstr(map.notes.data, "diffusion_models/torn.safetensors"));
    vx_model_map_free(&map);
}

static void gives_memory_back_whichever_allocation_fails(void **state)
{
    (void)state;
    static const char *const models[] = { "shared", "diffusers", "files/partition.safetensors", "root/Ref2VA/transformer" };
    for (size_t m = 0; m < 4; m++)
        for (int64_t k = 1, hit = 1; hit; k++) {
            vx_model_map map;
            char path[512];
            snprintf(path, sizeof path, "%s", at(models[m]));
            vx_fault_arm(k, false);
            vx_status s = vx_model_map_find(&map, &(vx_model_map_params){ .model = path, .variant = m == 0 ? R : NO });
            hit = vx_fault_disarm();
            if (s.code != (hit ? VX_ERR_MEMORY : VX_OK))
                fail_msg("%s, allocation %d: VX-%d %s", models[m], (int)k, s.code, s.message);
            vx_model_map_free(&map);
            assert_true(k < 1000);
        }
}

static void finds_the_golden_models(void **state)
{
    (void)state;
    if (!golden_folder()) {
        print_message("skipped: VORTEX_GOLDEN_DATA is not set\n");
        return;
    }
    static const struct {
        const char *model;
        vx_variant needs;
        vx_layout_kind layout;
    } models[] = { { "official", F, VX_LAYOUT_OFFICIAL },
                   { "official", R, VX_LAYOUT_OFFICIAL },
                   { "diffusers", F, VX_LAYOUT_DIFFUSERS },
                   { "diffusers", R, VX_LAYOUT_DIFFUSERS },
                   { "official/Ref2VA", R, VX_LAYOUT_OFFICIAL } };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", golden_folder(), models[i].model);
        vx_model_map map;
        assert_ok(vx_model_map_find(&map, &(vx_model_map_params){ .model = path, .variant = models[i].needs }));
        assert_int_equal(map.layout, models[i].layout);
        assert_int_equal(map.variant, models[i].needs);
        assert_non_null(map.tokenizer);
        assert_true(map.flow_shift == 12 && map.audio_flow_shift == 3);
        for (int k = 0; k < VX_COMPONENT_KINDS; k++) {
            vx_component *c;
            assert_ok(vx_model_map_need(&map, k));
            assert_ok(vx_component_open(&c, k, map.component[k]));
            vx_component_close(&c);
        }
        vx_model_map_free(&map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_components),
        cmocka_unit_test(reads_the_checkpoints_shifts),
        cmocka_unit_test(names_the_option_for_what_is_missing),
        cmocka_unit_test(names_a_part_alone),
        cmocka_unit_test(keeps_what_is_odd),
        cmocka_unit_test(gives_memory_back_whichever_allocation_fails),
        cmocka_unit_test(finds_the_golden_models),
    };
    return cmocka_run_group_tests(tests, make_trees, remove_folder);
}
