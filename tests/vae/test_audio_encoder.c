// The audio encoder on small networks: against diffusers' outputs, the chunks, and what is refused and reported.
#include "small_encoder.h"

#include "base/alloc.h"

enum { WHOLE = 100000 };

static const struct {
    const char *name;
    const small_listener *model;
    int64_t channels, samples;
} cases[] = { { "sound.two", &small_listener_two, 2, 597 }, { "sound.three", &small_listener_three, 1, 1830 } };
enum { CASES = sizeof cases / sizeof *cases };

static double error_of(const char *name, vx_tensor mean)
{
    vx_safetensors *file = NULL;
    assert_ok(vx_safetensors_open(&file, VX_TEST_DATA "/vae.safetensors", NULL));
    const vx_safetensors_entry *want = vx_safetensors_find(file, name);
    for (int i = 0; i < 3; i++) assert_int_equal(want->shape[i], mean.shape[i]);
    double error = relative_error(mean.data, want->data, vx_tensor_count(mean));
    vx_safetensors_close(&file);
    return error;
}

// mean of a sound from `m`, which is opened and closed.
static void listen(small_model *m, const small_listener *a, vx_tensor wave, vx_tensor *mean)
{
    vx_device *dev = cpu_device(2);
    vx_audio_encoder *e;
    assert_ok(small_listener_open(m, a, dev, &e));
    assert_ok(listen_run(e, dev, wave, WHOLE, mean));
    vx_audio_encoder_close(&e);
    small_close(m);
    vx_device_destroy(&dev);
}

// The first case is three samples short of whole latents; heads of 16 and 8 are pooled to 8 and 6 channels.
static void small_encoders_give_the_references_latents(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        vx_tensor wave = small_sound(cases[i].name, cases[i].channels, cases[i].samples), mean;
        listen(small_listener_tensors(cases[i].model), cases[i].model, wave, &mean);
        double error = error_of(cases[i].name, mean);
        print_message("%s: relative L2 %.2e\n", cases[i].name, error);
        assert_true(error <= 3e-6);
        free(mean.data);
        free(wave.data);
    }
}

static void chunks_give_the_bits_of_the_whole(void **state)
{
    (void)state;
    static const int64_t chunks[] = { 1, 7, 20, 37, 60, 75 };
    vx_device *dev = cpu_device(2);
    for (int i = 0; i < CASES; i++) {
        small_model *m = small_listener_tensors(cases[i].model);
        vx_audio_encoder *e;
        assert_ok(small_listener_open(m, cases[i].model, dev, &e));
        vx_tensor wave = small_sound("chunks", 1, cases[i].samples), whole, parts;
        assert_ok(listen_run(e, dev, wave, WHOLE, &whole));
        for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
            assert_ok(listen_run(e, dev, wave, chunks[k], &parts));
            assert_memory_equal(parts.data, whole.data, vx_tensor_bytes(whole));
            free(parts.data);
        }
        free(whole.data);
        free(wave.data);
        vx_audio_encoder_close(&e);
        small_close(m);
    }
    vx_device_destroy(&dev);
}

// 9317 samples to the left and 9125 to the right were measured on the released network (audio VAE specification, A4).
static void the_released_encoder_reaches_12_latents(void **state)
{
    (void)state;
    const vx_audio_encoder_config g = { .stages = 5, .hop = 800, .rate = { 2, 4, 4, 5, 5 } };
    assert_int_equal(vx_audio_encoder_context(&g), 12);
}

static void memory_is_bounded_by_the_chunk_and_the_rows(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(1);
    small_model *m = small_listener_tensors(&small_listener_three);
    vx_audio_encoder *e;
    size_t bytes[3];
    assert_ok(small_listener_open(m, &small_listener_three, dev, &e));
    for (int k = 0; k < 3; k++) {
        const int64_t latents = 640 << k;
        vx_tensor mean = vx_tensor_of(NULL, VX_F32, 2, 6, latents), wave = vx_tensor_of(NULL, VX_F32, 2, 30 * latents);
        bytes[k] = listen_plan(e, dev, mean, wave, 320, NULL);
    }
    // Of each channel rows of 24, and of the block 4*24 + 3*6 + 3*12; the convolutions' three buffers of 2 * 348 * 90 do not grow.
    const size_t latent = 2 * (24 + 4 * 24 + 3 * 6 + 3 * 12) * sizeof(float);
    assert_true(bytes[1] - bytes[0] <= 640 * latent);
    assert_int_equal(bytes[2] - bytes[1], 1280 * latent);
    vx_audio_encoder_close(&e);
    small_close(m);
    vx_device_destroy(&dev);
}

// Nor of the number of threads, nor of where chunks end. The clips end in the middle of a latent.
static void channels_do_not_know_of_each_other(void **state)
{
    (void)state;
    static const int64_t chunks[] = { WHOLE, 7 };
    vx_device *dev = cpu_device(3), *single = cpu_device(1);
    for (int i = 0; i < CASES; i++) {
        small_model *m = small_listener_tensors(cases[i].model);
        vx_audio_encoder *e;
        assert_ok(small_listener_open(m, cases[i].model, dev, &e));
        for (int64_t channels = 2; channels <= 3; channels++)
            for (int k = 0; k < 2; k++) {
                vx_tensor wave = small_sound("stereo", channels, 10 * e->config.hop + 1), all, one;
                assert_ok(listen_run(e, dev, wave, chunks[k], &all));
                for (int64_t c = 0; c < channels; c++) {
                    assert_ok(listen_run(e, single, vx_tensor_slice(wave, 0, c, c + 1), WHOLE, &one));
                    assert_memory_equal(vx_tensor_row(all, c).data, one.data, vx_tensor_bytes(one));
                    free(one.data);
                }
                free(all.data);
                free(wave.data);
            }
        vx_audio_encoder_close(&e);
        small_close(m);
    }
    vx_device_destroy(&dev);
    vx_device_destroy(&single);
}

// A latent is known to those after it only (causal attention), beyond what the convolutions mix.
static void later_sound_changes_no_earlier_latent(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(1);
    small_model *m = small_listener_tensors(&small_listener_two);
    vx_audio_encoder *e;
    assert_ok(small_listener_open(m, &small_listener_two, dev, &e));
    vx_tensor wave = small_sound("later", 1, 400), before, after;
    assert_ok(listen_run(e, dev, wave, WHOLE, &before));
    for (int i = 300; i < 400; i++) vx_f32_of(wave)[i] = 0.0f;
    assert_ok(listen_run(e, dev, wave, WHOLE, &after));
    int64_t same = 300 / 4 - e->context;
    for (int c = 0; c < 8; c++)
        assert_memory_equal((float *)before.data + c * 100, (float *)after.data + c * 100, (size_t)same * sizeof(float));
    assert_true(((float *)before.data)[99] != ((float *)after.data)[99]);
    free(before.data);
    free(after.data);
    free(wave.data);
    vx_audio_encoder_close(&e);
    small_close(m);
    vx_device_destroy(&dev);
}

// ComfyUI's file: folded weights, no configuration. The fold is f64, rounded once, on both sides.
static void a_folded_single_file_gives_the_same_bits(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(1);
    const small_listener eight = { 2, 2, { 2, 2 }, 64, 8, 8 }; // heads and statistics are not in the file
    vx_tensor wave = small_sound("folded", 1, 120), mean[2];
    for (int folded = 0; folded < 2; folded++) {
        small_model *m = small_listener_tensors(&eight);
        for (int i = 0; folded && i < m->count;) {
            char name[SMALL_NAME], other[SMALL_NAME];
            snprintf(name, sizeof name, "%s", m->name[i]);
            if (!ends(name, ".weight_v")) {
                i++;
                continue;
            }
            int64_t shape[3], *from = m->tensor[i].shape;
            for (int k = 0; k < 3; k++) shape[k] = from[k];
            snprintf(other, sizeof other, "%.*sg", (int)strlen(name) - 1, name);
            float *gain = small_data(m, other), *v = small_data(m, name);
            char plain[SMALL_NAME];
            snprintf(plain, sizeof plain, "%.*s", (int)strlen(name) - 2, name);
            float *out = small_add(m, plain, 3, shape);
            vx_audio_fold(out, v, gain, shape[0], shape[1] * shape[2]);
            small_drop(m, name);
            small_drop(m, other);
            i = 0;
        }
        vx_audio_encoder *e;
        if (folded) {
            float *statistics = SMALL_ADD(m, "latents_mean", 8);
            for (int i = 0; i < 8; i++) statistics[i] = 0.5f;
            statistics = SMALL_ADD(m, "latents_std", 8);
            for (int i = 0; i < 8; i++) statistics[i] = 2.0f;
            assert_ok(small_open(m, VX_AUDIO_VAE, NULL));
            assert_ok(vx_audio_encoder_open(&e, m->component, dev));
            assert_int_equal(e->config.stages, 2);
            assert_int_equal(e->config.hop, 4);
            assert_true(e->config.latents_mean[7] == 0.5f && e->config.latents_std[0] == 2.0f);
        } else {
            assert_ok(small_listener_open(m, &eight, dev, &e));
        }
        assert_ok(listen_run(e, dev, wave, WHOLE, &mean[folded]));
        vx_audio_encoder_close(&e);
        small_close(m);
    }
    assert_memory_equal(mean[0].data, mean[1].data, vx_tensor_bytes(mean[0]));
    free(mean[0].data);
    free(mean[1].data);
    free(wave.data);
    vx_device_destroy(&dev);
}

static void folding_is_planned_before_it_is_done(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(1);
    small_model *m = small_listener_tensors(&small_listener_two);
    vx_audio_encoder *e;
    size_t kept, passing;
    assert_ok(small_listener_open(m, &small_listener_two, dev, &e));
    vx_audio_encoder_close(&e);
    assert_ok(vx_audio_encoder_bind(&e, m->component));
    assert_ok(vx_audio_encoder_fold_bytes(e, dev, &kept, &passing));
    assert_true(kept > passing && passing >= 3 * 16 * 32 * sizeof(float)); // the last convolution is the largest
    assert_ok(vx_audio_encoder_fold(e, dev));
    assert_ok(vx_audio_encoder_fold_bytes(e, dev, &kept, &passing));
    assert_int_equal(kept, 0);
    vx_audio_encoder_close(&e);
    small_close(m);
    vx_device_destroy(&dev);
}

static void a_number_that_is_not_finite_is_an_error_naming_the_channel(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(1);
    small_model *m = small_listener_tensors(&small_listener_two);
    vx_audio_encoder *e;
    assert_ok(small_listener_open(m, &small_listener_two, dev, &e));
    vx_tensor wave = small_sound("finite", 2, 90), mean;
    for (int channel = 1; channel >= 0; channel--) { // where both are wrong the first is named
        vx_f32_of(wave)[channel * 90 + 50] = NAN;
        vx_status s = listen_run(e, dev, wave, WHOLE, &mean);
        assert_code(s, VX_ERR_NOT_FINITE);
        assert_non_null(strstr(s.message, channel ? "audio encoder: channel 1" : "audio encoder: channel 0"));
        free(mean.data);
    }
    free(wave.data);
    vx_audio_encoder_close(&e);
    small_close(m);
    vx_device_destroy(&dev);
}

static void missing_tensors_are_named(void **state)
{
    (void)state;
    static const char *const names[] = {
        "encoder.block.0.weight_v",     "encoder.block.1.block.2.block.0.alpha",
        "encoder.block.2.block.4.bias", "encoder.block.3.alpha",
        "pre_block.attn.zero_k_bias",   "pre_block.mlp.w0.weight",
        "pre_block.mlp.norm.bias",      "mean_proj.weight",
        "pre_block.attn.qkv.weight",    "encoder.block.4.weight_v",
    };
    vx_device *dev = cpu_device(1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        small_model *m = small_listener_tensors(&small_listener_two);
        vx_audio_encoder *e;
        small_drop(m, names[i]);
        vx_status s = small_listener_open(m, &small_listener_two, dev, &e);
        assert_code(s, VX_ERR_TENSOR_MISSING);
        if (!strstr(s.message, names[i])) fail_msg("%s: %s", names[i], s.message);
        small_close(m);
    }
    vx_device_destroy(&dev);
}

static void other_networks_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        small_listener config;
        vx_code want;
    } wrong[] = {
        { "a rate that the taps deny", { 4, 2, { 2, 3 }, 32, 8, 2 }, VX_ERR_TENSOR_SHAPE },
        { "a rate of 1", { 4, 2, { 2, 1 }, 32, 8, 2 }, VX_ERR_CONFIG },
        { "a stage that is not there", { 4, 3, { 2, 2, 2 }, 32, 8, 2 }, VX_ERR_TENSOR_MISSING },
        { "heads of 4", { 4, 2, { 2, 2 }, 32, 8, 8 }, VX_ERR_CONFIG },
        { "heads that do not divide", { 4, 2, { 2, 2 }, 32, 8, 3 }, VX_ERR_CONFIG },
        { "statistics of other channels", { 4, 2, { 2, 2 }, 32, 7, 2 }, VX_ERR_CONFIG },
    };
    vx_device *dev = cpu_device(1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        small_model *m = small_listener_tensors(&small_listener_two);
        vx_audio_encoder *e;
        vx_status s = small_listener_open(m, &wrong[i].config, dev, &e);
        if (s.code != wrong[i].want) fail_msg("%s: %d, %s", wrong[i].says, (int)s.code, s.message);
        assert_null(e);
        small_close(m);
    }
    vx_device_destroy(&dev);
}

static void sounds_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(1), *plan = NULL;
    vx_arena *arena = NULL;
    small_model *m = small_listener_tensors(&small_listener_two);
    vx_audio_encoder *e;
    assert_ok(small_listener_open(m, &small_listener_two, dev, &e));
    assert_ok(vx_device_plan_create(&plan, dev));
    assert_ok(vx_arena_create(plan, &arena, 0));
    vx_tensor mean = vx_tensor_of(NULL, VX_F32, 2, 8, 10);
    assert_ok(vx_audio_encoder_run(e, plan, arena, mean, vx_tensor_of(NULL, VX_F32, 2, 37)));
    assert_code(vx_audio_encoder_run(e, plan, arena, mean, vx_tensor_of(NULL, VX_F32, 2, 36)), VX_ERR_SHAPE);
    assert_code(vx_audio_encoder_run(e, plan, arena, mean, vx_tensor_of(NULL, VX_F32, 1, 40)), VX_ERR_SHAPE);
    assert_code(vx_audio_encoder_run(e, plan, arena, mean, vx_tensor_of(NULL, VX_F32, 2, 0)), VX_ERR_RANGE);
    assert_code(vx_audio_encoder_run(e, plan, arena, mean, vx_tensor_of(NULL, VX_F32, 0, 40)), VX_ERR_RANGE);
    assert_code(vx_audio_encoder_run(e, plan, arena, mean, vx_tensor_of(NULL, VX_BF16, 2, 40)), VX_ERR_DTYPE);
    vx_device_plan_reset(plan);
    assert_ok(vx_audio_encoder_run_chunked(e, plan, arena, mean, vx_tensor_of(NULL, VX_F32, 2, 37), 3));
    int64_t calls = vx_device_plan_counts(plan).calls;
    for (int64_t k = 1; k <= calls; k++) {
        vx_device_plan_fail(plan, k, VX_ERR_CANCELLED);
        assert_code(vx_audio_encoder_run_chunked(e, plan, arena, mean, vx_tensor_of(NULL, VX_F32, 2, 37), 3), VX_ERR_CANCELLED);
        assert_int_equal(vx_arena_mark(arena), 0);
    }
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    vx_audio_encoder_close(&e);
    small_close(m);
    vx_device_destroy(&dev);
}

static void failed_allocations_are_errors_and_leave_nothing(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(1);
    small_model *m = small_listener_tensors(&small_listener_two);
    vx_audio_encoder *e;
    assert_ok(small_listener_open(m, &small_listener_two, dev, &e));
    vx_audio_encoder_close(&e);
    bool hit = true;
    for (int64_t k = 1; hit; k++) {
        vx_fault_arm(k, true);
        vx_status s = vx_audio_encoder_open(&e, m->component, dev);
        hit = vx_fault_disarm();
        assert_code(s, hit ? VX_ERR_MEMORY : VX_OK);
        if (hit) assert_null(e);
    }
    vx_audio_encoder_close(&e);
    small_close(m);
    vx_device_destroy(&dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_encoders_give_the_references_latents),
        cmocka_unit_test(chunks_give_the_bits_of_the_whole),
        cmocka_unit_test(the_released_encoder_reaches_12_latents),
        cmocka_unit_test(memory_is_bounded_by_the_chunk_and_the_rows),
        cmocka_unit_test(channels_do_not_know_of_each_other),
        cmocka_unit_test(later_sound_changes_no_earlier_latent),
        cmocka_unit_test(a_folded_single_file_gives_the_same_bits),
        cmocka_unit_test(folding_is_planned_before_it_is_done),
        cmocka_unit_test(a_number_that_is_not_finite_is_an_error_naming_the_channel),
        cmocka_unit_test(missing_tensors_are_named),
        cmocka_unit_test(other_networks_are_refused),
        cmocka_unit_test(sounds_that_do_not_fit_are_refused),
        cmocka_unit_test(failed_allocations_are_errors_and_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
