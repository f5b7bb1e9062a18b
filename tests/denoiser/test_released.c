// The released model's dimensions, in a sparse file without numbers: its size, and the plan of the canonical request, against
// the denoiser specification (1.1, 2.1, 9). Nothing is computed.
#include "testing.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "denoiser/denoiser.h"

enum { HIDDEN = 5376, LAYERS = 50, REFINER = 2, INNER = 56 * 128, FFN = 14336, TEXT = 5120, T_DIM = 2688 };

typedef struct header {
    vx_str text;
    uint64_t bytes;
    int count;
} header;

static void put(header *h, const char *prefix, const char *name, const char *dtype, long long n, long long k)
{
    const uint64_t bytes = (uint64_t)(n * (k ? k : 1)) * (dtype[0] == 'F' ? 4 : 2);
    vx_str_print(&h->text, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%lld", h->count++ ? "," : "{", prefix, name, dtype, n);
    if (k) vx_str_print(&h->text, ",%lld", k);
    vx_str_print(&h->text, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)h->bytes,
                 (unsigned long long)(h->bytes + bytes));
    h->bytes += bytes;
}

static void put_linear(header *h, const char *prefix, const char *dtype, long long n, long long k)
{
    put(h, prefix, ".weight", dtype, n, k);
    put(h, prefix, ".bias", dtype, n, 0);
}

static void put_block(header *h, const char *prefix)
{
    put(h, prefix, "norm1.weight", "BF16", HIDDEN, 0);
    put(h, prefix, "norm2.weight", "BF16", HIDDEN, 0);
    put(h, prefix, "attn.qkv_proj.weight", "BF16", 3 * INNER, HIDDEN);
    put(h, prefix, "attn.q_norm.weight", "BF16", 128, 0);
    put(h, prefix, "attn.k_norm.weight", "BF16", 128, 0);
    put(h, prefix, "attn.out_proj.weight", "BF16", HIDDEN, INNER);
    put(h, prefix, "mlp.fc1.weight", "BF16", 2 * FFN, HIDDEN);
    put(h, prefix, "mlp.fc2.weight", "BF16", HIDDEN, FFN);
}

static void put_model(header *h)
{
    char prefix[64];
    put_linear(h, "video_patch_proj", "F32", HIDDEN, 96);
    put_linear(h, "audio_patch_proj", "F32", HIDDEN, 32);
    put_linear(h, "condition_proj", "BF16", HIDDEN, TEXT);
    put_linear(h, "time_embedder.proj_in", "F32", HIDDEN, 256);
    put_linear(h, "time_embedder.proj_out", "F32", T_DIM, HIDDEN);
    for (int i = 0; i < REFINER; i++) {
        snprintf(prefix, sizeof prefix, "token_refiner.blocks.%d.", i);
        put_block(h, prefix);
    }
    put(h, "token_refiner.final_norm", ".weight", "BF16", HIDDEN, 0);
    for (int i = 0; i < LAYERS; i++) {
        snprintf(prefix, sizeof prefix, "blocks.%d.", i);
        put_block(h, prefix);
        snprintf(prefix, sizeof prefix, "blocks.%d.adaln_proj.linear", i);
        put_linear(h, prefix, "BF16", 18 * HIDDEN, T_DIM);
    }
    put(h, "final_layer.norm", ".weight", "BF16", HIDDEN, 0);
    put_linear(h, "final_layer.adaln_proj.linear", "BF16", 2 * HIDDEN, T_DIM);
    put_linear(h, "final_layer.video_out", "F32", 96, HIDDEN);
    put_linear(h, "final_layer.audio_out", "F32", 32, HIDDEN);
    vx_str_print(&h->text, "}");
    while (h->text.size % 8 != 0) vx_str_print(&h->text, " ");
}

static const char config[] =
    "{\"_class_name\":\"MiniMaxH3DiTModel\",\"hidden_size\":5376,\"num_layers\":50,\"token_refiner_num_layers\":2,"
    "\"num_attention_heads\":56,\"attention_head_dim\":128,\"ffn_hidden_size\":14336,\"latents_dim\":24,\"audio_latents_dim\":32,"
    "\"patch_size\":[1,2,2],\"text_dim\":5120,\"timestep_input_dim\":256,\"time_embed_hidden_size\":5376,\"time_embed_dim\":2688,"
    "\"adaln_out_features\":96768,\"final_adaln_out_features\":10752,\"rope_inv_freq_len\":16,\"norm_eps\":1e-5,"
    "\"qk_norm_eps\":1e-5,\"final_norm_eps\":1e-5}";

static char folder[64], weights[96], settings[96];

static void erase(void)
{
    unlink(weights);
    unlink(settings);
    rmdir(folder);
}

// False where the file system cannot hold a hole of 66 GB.
static int write_model(uint64_t *bytes)
{
    snprintf(folder, sizeof folder, "/tmp/vx-released-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(weights, sizeof weights, "%s/model.safetensors", folder);
    snprintf(settings, sizeof settings, "%s/config.json", folder);
    header h = { 0 };
    put_model(&h);
    *bytes = h.bytes;
    FILE *f = fopen(settings, "w");
    assert_non_null(f);
    fputs(config, f);
    fclose(f);
    f = fopen(weights, "wb");
    assert_non_null(f);
    const uint64_t size = h.text.size;
    assert_true(fwrite(&size, 8, 1, f) == 1 && fwrite(h.text.data, 1, size, f) == size);
    fflush(f);
    const int held = ftruncate(fileno(f), (off_t)(8 + size + h.bytes)) == 0;
    fclose(f);
    vx_str_free(&h.text);
    if (!held) erase();
    return held;
}

static void the_canonical_request_plans_as_specified(void **state)
{
    (void)state;
    uint64_t bytes;
    if (!write_model(&bytes)) {
        print_message("skipped: no room for a sparse file of 66 GB\n");
        return;
    }
    // total_size of both official indexes, less rope.inv_freq, which is optional.
    assert_true(bytes == 66280430144u - 64);
    vx_component *component;
    vx_denoiser *denoiser;
    const double before = vx_clock_s();
    assert_ok(vx_component_open(&component, VX_TRANSFORMER, folder));
    assert_true(vx_component_bytes(component) == bytes);
    assert_ok(vx_denoiser_open(&denoiser, component));

    int32_t tags[100];
    for (int i = 0; i < 100; i++) tags[i] = VX_MODALITY_TEXT;
    vx_layout l;
    assert_ok(vx_layout_create(&l, &(vx_layout_params){ 100, tags, 124, 1344, 768, NULL, 0 }));
    vx_device *dev;
    vx_arena *arena;
    assert_ok(vx_device_plan_create(&dev, NULL));
    assert_ok(vx_arena_create(dev, &arena, 0));
    vx_tensor video = vx_tensor_of(NULL, VX_F32, 37296, 96), audio = vx_tensor_of(NULL, VX_F32, 414, 32);
    vx_denoiser_request *request;
    const float t_video[] = { 0, 0.002482593f }, t_audio[] = { 0, 0.009856999f };
    assert_ok(vx_denoiser_prepare(&request, denoiser, dev, arena,
                                  &(vx_denoiser_params){ .act = VX_BF16,
                                                         .layout = &l,
                                                         .prompt_embeds = vx_tensor_of(NULL, VX_BF16, 100, TEXT),
                                                         .t_video = t_video,
                                                         .t_audio = t_audio,
                                                         .evaluations = 2 }));
    const double prepared = vx_device_plan_counts(dev).flop;
    vx_device_plan_reset(dev);
    assert_ok(vx_denoiser_evaluate(request, 1, video, audio, video, audio));
    const vx_plan_counts counts = vx_device_plan_counts(dev);
    print_message("evaluation %.1f TFLOP, preparation %.3f TFLOP, arena %.2f GB, planned in %.2f s\n", counts.flop * 1e-12,
                  prepared * 1e-12, (double)vx_arena_high(arena) * 1e-9, vx_clock_s() - before);
    // 50 blocks of 70.13 TFLOP, and 0.04 + 0.04 of embedding and heads.
    assert_true(fabs(counts.flop * 1e-12 - (50 * 70.13 + 0.08)) < 0.3);
    // 50 blocks of 308.3 MB around attention and 462.4 MB of the MLP, these once for each half of the rows; the
    // modulation weights are not read again.
    assert_true(fabs(counts.weight_bytes * 1e-9 - 50 * (0.3083 + 2 * 0.4624)) < 0.02);
    // Refiner 0.154 TFLOP and its attention; 3 timesteps through 26 GB of modulation weights.
    assert_true(fabs(prepared * 1e-12 - (0.154 + 0.078 + 0.006)) < 0.01);
    // x 0.41, q k v 1.63, attention output 0.54 where h was before, tables 3 times 9.7 MB, rotary 7.3 MB.
    assert_true(fabs((double)vx_arena_high(arena) * 1e-9 - (0.4065 + 1.6295 + 0.5420 + 0.029 + 0.0073)) < 0.01);
    vx_denoiser_finish(&request);
    vx_layout_free(&l);
    vx_arena_destroy(&arena);
    vx_device_destroy(&dev);
    vx_denoiser_close(&denoiser);
    vx_component_close(&component);
    erase();
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_canonical_request_plans_as_specified) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
