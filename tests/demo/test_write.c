// The demo model's files: complete, the same for the same seed, small, and in nobody's way.
#include "testing.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/scratch.h"
#include "base/str.h"
#include "demo/demo.h"
#include "vortex/vortex.h"
#include "weights/component.h"
#include "weights/model_map.h"

static const char *const files[] = {
    "FL2VA/model_index.json",
    "FL2VA/transformer/config.json",
    "FL2VA/transformer/model.safetensors.index.json",
    "FL2VA/transformer/model-00001-of-00002.safetensors",
    "FL2VA/transformer/model-00002-of-00002.safetensors",
    "FL2VA/text_encoder/config.json",
    "FL2VA/text_encoder/model.safetensors.index.json",
    "FL2VA/text_encoder/model-00001-of-00002.safetensors",
    "FL2VA/text_encoder/model-00002-of-00002.safetensors",
    "FL2VA/tokenizer/vocab.json",
    "FL2VA/tokenizer/merges.txt",
    "FL2VA/tokenizer/tokenizer_config.json",
    "FL2VA/video_vae/config.json",
    "FL2VA/video_vae/source/config.json",
    "FL2VA/video_vae/source/model.safetensors",
    "FL2VA/audio_vae/config.json",
    "FL2VA/audio_vae/config.yaml",
    "FL2VA/audio_vae/metadata.json",
    "FL2VA/audio_vae/model.safetensors",
    "Ref2VA/model_index.json",
    "Ref2VA/transformer/config.json",
    "Ref2VA/transformer/model.safetensors.index.json",
    "Ref2VA/transformer/model-00001-of-00002.safetensors",
    "Ref2VA/transformer/model-00002-of-00002.safetensors",
};
enum { FILES = sizeof files / sizeof *files };

static void write_model(const char *folder, bool random, uint64_t seed, bool replace)
{
    assert_ok(vx_demo_model_write(
        NULL, folder,
        &(vx_demo_model_params){ VX_INIT(vx_demo_model_params), .random = random, .seed = seed, .replace = replace }));
}

static char *contents(const char *folder, const char *name, size_t *size)
{
    char *path = vx_path_join(folder, name), *text = NULL;
    assert_ok(vx_file_read(&text, size, path, 64 << 20, VX_ERR_INPUT_OPEN));
    vx_free(path);
    return text;
}

// How many of the files differ.
static int differences(const char *a, const char *b)
{
    int found = 0;
    for (int i = 0; i < FILES; i++) {
        size_t n, m;
        char *x = contents(a, files[i], &n), *y = contents(b, files[i], &m);
        found += n != m || memcmp(x, y, n) != 0;
        vx_free(x);
        vx_free(y);
    }
    return found;
}

static void writes_the_same_bytes_for_the_same_seed(void **state)
{
    (void)state;
    for (int random = 0; random < 2; random++) {
        scratch a = scratch_create(), b = scratch_create();
        write_model(a.folder, random, 7, false);
        write_model(b.folder, random, 7, false);
        assert_int_equal(differences(a.folder, b.folder), 0);
        write_model(b.folder, random, 8, true);
        assert_true(differences(a.folder, b.folder) >= 1);
        scratch_destroy(&a);
        scratch_destroy(&b);
    }
}

static void takes_seed_1_unless_told(void **state)
{
    (void)state;
    scratch a = scratch_create(), b = scratch_create();
    assert_ok(vx_demo_model_write(NULL, a.folder, NULL));
    write_model(b.folder, false, 1, false);
    assert_int_equal(differences(a.folder, b.folder), 0);
    scratch_destroy(&a);
    scratch_destroy(&b);
}

static void stays_small(void **state)
{
    (void)state;
    for (int random = 0; random < 2; random++) {
        scratch a = scratch_create();
        write_model(a.folder, random, 1, false);
        uint64_t total = 0;
        for (int i = 0; i < FILES; i++) {
            size_t size;
            vx_free(contents(a.folder, files[i], &size));
            total += size;
        }
        print_message("%s: %.2f MB\n", random ? "random" : "pretty", (double)total / 1e6);
        assert_true(total <= (random ? 14000000 : 16000000));
        scratch_destroy(&a);
    }
}

static void assert_opens(const char *model, vx_variant variant, const char *transformer)
{
    vx_model_map map;
    assert_ok(vx_model_map_find(&map, &(vx_model_map_params){ .model = model, .variant = variant }));
    assert_int_equal(map.variant, variant);
    assert_non_null(map.tokenizer);
    assert_non_null(strstr(map.tokenizer, "FL2VA/tokenizer"));
    for (int kind = 0; kind < VX_COMPONENT_KINDS; kind++) {
        vx_component *c = NULL;
        assert_non_null(map.component[kind]);
        assert_non_null(strstr(map.component[kind], kind == VX_TRANSFORMER ? transformer : "FL2VA/"));
        assert_ok(vx_component_open(&c, (vx_component_kind)kind, map.component[kind]));
        assert_int_equal(vx_component_layout(c), VX_LAYOUT_OFFICIAL);
        assert_non_null(vx_component_config(c));
        vx_component_close(&c);
    }
    vx_model_map_free(&map);
}

static void is_found_as_official_partitions(void **state)
{
    (void)state;
    for (int random = 0; random < 2; random++) {
        scratch a = scratch_create();
        write_model(a.folder, random, 1, false);
        assert_opens(a.folder, VX_VARIANT_FL2VA, "FL2VA/transformer");
        assert_opens(a.folder, VX_VARIANT_REF2VA, "Ref2VA/transformer");
        assert_opens(scratch_path(&a, "FL2VA"), VX_VARIANT_FL2VA, "FL2VA/transformer");
        scratch_destroy(&a);
    }
}

static json_int_t id_of(const json_t *tokens, const char *content)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)tokens, key,
                        value) if (strcmp(json_string_value(json_object_get(value, "content")), content) == 0) return atoll(key);
    return -1;
}

// The released ids (text encoder specification 1.2) would be found in constants, these only in the files.
static void numbers_its_special_tokens_itself(void **state)
{
    (void)state;
    scratch a = scratch_create();
    write_model(a.folder, true, 1, false);
    char *config_path = vx_path_join(a.folder, "FL2VA/text_encoder/config.json"),
         *tokens_path = vx_path_join(a.folder, "FL2VA/tokenizer/tokenizer_config.json");
    json_t *config, *tokens;
    assert_ok(vx_json_read(&config, config_path, 1 << 20, 32, VX_ERR_CONFIG));
    assert_ok(vx_json_read(&tokens, tokens_path, 1 << 20, 32, VX_ERR_CONFIG));
    const json_t *decoder = json_object_get(tokens, "added_tokens_decoder");
    json_int_t image = json_integer_value(json_object_get(config, "image_token_id"));
    assert_int_equal(image, id_of(decoder, "<|image_pad|>"));
    assert_int_not_equal(image, 151655);
    assert_int_equal(json_integer_value(json_object_get(config, "vision_end_token_id")), id_of(decoder, "<|vision_end|>"));
    assert_int_equal(json_object_size(decoder), 26);
    assert_int_equal(json_array_size(json_object_get(tokens, "additional_special_tokens")), 20);
    assert_int_equal(id_of(decoder, "<d>"), -1); // the seven of H3 are listed without ids
    json_decref(config);
    json_decref(tokens);
    vx_free(config_path);
    vx_free(tokens_path);
    scratch_destroy(&a);
}

static void leaves_a_folder_with_something_in_it_alone(void **state)
{
    (void)state;
    scratch a = scratch_create();
    char *note = vx_path_join(a.folder, "note");
    FILE *f = fopen(note, "w");
    assert_non_null(f);
    fclose(f);
    assert_code(vx_demo_model_write(NULL, a.folder, NULL), VX_ERR_OUTPUT_EXISTS);
    char *index = vx_path_join(a.folder, "FL2VA/model_index.json");
    assert_false(vx_file_exists(index));
    write_model(a.folder, true, 1, true);
    assert_true(vx_file_exists(index));
    assert_true(vx_file_exists(note));
    vx_free(index);
    vx_free(note);
    scratch_destroy(&a);
}

static void says_what_it_cannot_write(void **state)
{
    (void)state;
    scratch a = scratch_create();
    char *file = vx_path_join(a.folder, "file"), *missing = vx_path_join(a.folder, "no/such");
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fclose(f);
    assert_code(vx_demo_model_write(NULL, file, NULL), VX_ERR_OUTPUT);
    assert_code(vx_demo_model_write(NULL, missing, NULL), VX_ERR_OUTPUT);
    assert_code(vx_demo_model_write(NULL, "", NULL), VX_ERR_REQUIRED);
    assert_code(vx_demo_model_write(NULL, a.folder, &(vx_demo_model_params){ .random = true }), VX_ERR_USAGE);
    unlink(file);
    if (geteuid() != 0) { // root may write anywhere
        chmod(a.folder, 0555);
        assert_code(vx_demo_model_write(NULL, a.folder, NULL), VX_ERR_OUTPUT);
        chmod(a.folder, 0755);
    }
    assert_code(vx_demo_model_write(NULL, "/proc/vortex-demo", NULL), VX_ERR_OUTPUT);
    vx_free(file);
    vx_free(missing);
    scratch_destroy(&a);
}

static void fails_whole_when_memory_runs_out(void **state)
{
    (void)state;
    for (int64_t k = 1; k < 6000; k = k < 40 ? k + 1 : k * 5 / 4) {
        scratch a = scratch_create();
        vx_fault_arm(k, true);
        vx_status s =
            vx_demo_model_write(NULL, a.folder, &(vx_demo_model_params){ VX_INIT(vx_demo_model_params), .random = true });
        bool hit = vx_fault_disarm();
        assert_int_equal(s.code, hit ? VX_ERR_MEMORY : VX_OK);
        scratch_destroy(&a);
        if (!hit) break;
    }
}

// splitmix64 from state 0: the published first words.
static void draws_splitmix64(void **state)
{
    (void)state;
    uint64_t s = 0;
    assert_true(vx_demo_next(&s) == 0xe220a8397b1dcdafu);
    assert_true(vx_demo_next(&s) == 0x6e789e6aa1b965f4u);
    assert_true(vx_demo_next(&s) == 0x06c45d188009454fu);
}

static void draws_near_normal_deviates(void **state)
{
    (void)state;
    enum { N = 100000 };
    uint64_t s = vx_demo_stream(3, "x");
    double sum = 0, square = 0;
    for (int i = 0; i < N; i++) {
        double x = (double)vx_demo_normal(&s);
        assert_true(x * 4 == (double)(int)(x * 4));
        sum += x;
        square += x * x;
    }
    assert_true(sum / N < 0.02 && sum / N > -0.02);
    assert_true(square / N < 1.02 && square / N > 0.98);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_the_same_bytes_for_the_same_seed),
        cmocka_unit_test(takes_seed_1_unless_told),
        cmocka_unit_test(stays_small),
        cmocka_unit_test(is_found_as_official_partitions),
        cmocka_unit_test(numbers_its_special_tokens_itself),
        cmocka_unit_test(leaves_a_folder_with_something_in_it_alone),
        cmocka_unit_test(says_what_it_cannot_write),
        cmocka_unit_test(fails_whole_when_memory_runs_out),
        cmocka_unit_test(draws_splitmix64),
        cmocka_unit_test(draws_near_normal_deviates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
