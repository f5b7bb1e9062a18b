// The audio decoder on small networks: against diffusers' outputs, the fold, the chunks, and what is refused and reported.
#include "small_model.h"

#include "base/alloc.h"
#include "base/log.h"
#include "vae/audio_internal.h"

static size_t sound_plan(const vx_audio_decoder *d, const vx_device *like, vx_tensor wave, vx_tensor z, int64_t chunk)
{
    vx_device *plan = NULL;
    vx_arena *arena = NULL;
    assert_ok(vx_device_plan_create(&plan, like));
    assert_ok(vx_arena_create(plan, &arena, 0));
    wave.data = z.data = NULL;
    assert_ok(vx_audio_decoder_run_chunked(d, plan, arena, wave, z, false, chunk));
    size_t high = vx_arena_high(arena);
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    return high;
}

static vx_status sound(const vx_audio_decoder *d, vx_device *dev, vx_tensor z, bool denormalised, int64_t chunk, vx_tensor *wave)
{
    vx_arena *arena = NULL;
    *wave = vx_tensor_of(NULL, VX_F32, z.shape[0], z.shape[2] * vx_audio_decoder_config_of(d)->hop);
    wave->data = calloc(1, vx_tensor_bytes(*wave));
    assert_ok(vx_arena_create(dev, &arena, sound_plan(d, dev, *wave, z, chunk)));
    vx_status s = vx_audio_decoder_run_chunked(d, dev, arena, *wave, z, denormalised, chunk);
    assert_int_equal(vx_arena_mark(arena), 0);
    vx_arena_destroy(&arena);
    return s;
}

// out = the wave of the named case from `m`, which is opened and closed.
static void sound_of(small_model *m, const small_audio *a, const char *name, int64_t latents, vx_tensor *wave)
{
    vx_device *dev = cpu_device(2);
    vx_audio_decoder *d;
    assert_ok(small_audio_open(m, a, dev, &d));
    vx_tensor z = SMALL_LATENT(name, 2, a->channels, latents);
    assert_ok(sound(d, dev, z, false, 1000, wave));
    free(z.data);
    vx_audio_decoder_close(&d);
    small_close(m);
    vx_device_destroy(&dev);
}

static double error_of(const char *name, vx_tensor wave)
{
    vx_safetensors *file = NULL;
    assert_ok(vx_safetensors_open(&file, VX_TEST_DATA "/vae.safetensors", NULL));
    const vx_safetensors_entry *want = vx_safetensors_find(file, name);
    assert_int_equal(want->shape[0], wave.shape[0]);
    assert_int_equal(want->shape[1], wave.shape[1]);
    double error = relative_error(wave.data, want->data, vx_tensor_count(wave));
    vx_safetensors_close(&file);
    return error;
}

static const struct {
    const char *name;
    const small_audio *model;
    int64_t latents;
} cases[] = { { "audio.two", &small_audio_two, 150 }, { "audio.three", &small_audio_three, 61 } };
enum { CASES = sizeof cases / sizeof *cases };

// Their files hold no filters, so the table's are used; diffusers designs its own.
static void small_decoders_give_the_references_sound(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        vx_tensor wave;
        sound_of(small_audio_tensors(cases[i].model), cases[i].model, cases[i].name, cases[i].latents, &wave);
        double error = error_of(cases[i].name, wave);
        print_message("%s: relative L2 %.2e\n", cases[i].name, error);
        assert_true(error <= 1e-5);
        free(wave.data);
    }
}

static void chunks_give_the_bits_of_the_whole(void **state)
{
    (void)state;
    static const int64_t chunks[] = { 1, 7, 20, 37, 60, 75 };
    vx_device *dev = cpu_device(2);
    for (int i = 0; i < CASES; i++) {
        small_model *m = small_audio_tensors(cases[i].model);
        vx_audio_decoder *d;
        assert_ok(small_audio_open(m, cases[i].model, dev, &d));
        vx_tensor z = SMALL_LATENT("chunks", 2, cases[i].model->channels, cases[i].latents), whole, parts;
        assert_ok(sound(d, dev, z, false, 1000, &whole));
        for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
            assert_ok(sound(d, dev, z, false, chunks[k], &parts));
            assert_memory_equal(parts.data, whole.data, vx_tensor_bytes(whole));
            free(parts.data);
        }
        free(whole.data);
        free(z.data);
        vx_audio_decoder_close(&d);
        small_close(m);
    }
    vx_device_destroy(&dev);
}

static void channels_do_not_know_of_each_other(void **state)
{
    (void)state;
    static const int64_t chunks[] = { 1000, 20 };
    vx_device *dev = cpu_device(3), *single = cpu_device(1);
    for (int i = 0; i < CASES; i++) {
        small_model *m = small_audio_tensors(cases[i].model);
        vx_audio_decoder *d;
        assert_ok(small_audio_open(m, cases[i].model, dev, &d));
        for (int64_t channels = 2; channels <= 3; channels++)
            for (int k = 0; k < 4; k++) {
                const bool denormalised = k / 2;
                vx_tensor z = SMALL_LATENT("stereo", channels, cases[i].model->channels, 61), all, one;
                assert_ok(sound(d, dev, z, denormalised, chunks[k % 2], &all));
                for (int64_t c = 0; c < channels; c++) {
                    assert_ok(sound(d, single, vx_tensor_slice(z, 0, c, c + 1), denormalised, 1000, &one));
                    assert_memory_equal(vx_tensor_row(all, c).data, one.data, vx_tensor_bytes(one));
                    free(one.data);
                }
                free(all.data);
                free(z.data);
            }
        vx_audio_decoder_close(&d);
        small_close(m);
    }
    vx_device_destroy(&dev);
    vx_device_destroy(&single);
}

// 28.62 latents measured on the released network (audio VAE specification, A6), so 29 (A11).
static void the_released_decoder_reaches_29_latents(void **state)
{
    (void)state;
    vx_audio_decoder *d = calloc(1, sizeof *d);
    static const int64_t rate[] = { 5, 5, 2, 2, 2, 2, 2 }, kernel[] = { 3, 7, 11 };
    d->config.stages = 7;
    d->blocks = 3;
    d->pre.weight = vx_tensor_of(NULL, VX_F32, 1024, 2048, 7);
    d->post.weight = vx_tensor_of(NULL, VX_F32, 1, 8, 7);
    for (int i = 0; i < 7; i++) {
        d->stage[i].rate = rate[i];
        d->stage[i].kernel = 2 * rate[i] - rate[i] % 2;
        for (int r = 0; r < 3; r++)
            d->stage[i].block[r] = (vx_audio_block){ .kernel = kernel[r], .pairs = 3, .dilation = { 1, 3, 5 } };
    }
    assert_int_equal(vx_audio_context(d), 29);
    free(d);
}

static void memory_is_bounded_by_the_chunk(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(1);
    small_model *m = small_audio_tensors(&small_audio_three);
    vx_audio_decoder *d;
    assert_ok(small_audio_open(m, &small_audio_three, dev, &d));
    size_t bytes[2];
    for (int k = 0; k < 2; k++) {
        int64_t latents = k ? 12800 : 1280;
        bytes[k] =
            sound_plan(d, dev, vx_tensor_of(NULL, VX_F32, 2, 20 * latents), vx_tensor_of(NULL, VX_F32, 2, 6, latents), 640);
    }
    assert_int_equal(bytes[0], bytes[1]);
    vx_audio_decoder_close(&d);
    small_close(m);
    vx_device_destroy(&dev);
}

// The vector of the audio VAE specification, A3.
static void the_filter_table_gives_the_activations_vector(void **state)
{
    (void)state;
    static const float x[6] = { 0.0f, 1.0f, 0.0f, 0.0f, -0.5f, 0.25f };
    static const float want[6] = { 0.2544714808f, 1.8231542110f, 0.2645235062f, -0.0960652605f, -0.1123674586f, 0.2985931039f };
    vx_device *dev = cpu_device(1);
    small_model *m = small_audio_tensors(&small_audio_two);
    small_data(m, "decoder.activation_post.act.alpha")[0] = 0.2f;
    small_data(m, "decoder.activation_post.act.beta")[0] = -0.3f;
    vx_audio_decoder *d;
    assert_ok(small_audio_open(m, &small_audio_two, dev, &d));
    float y[6], alpha[1] = { 0.2f }, beta[1] = { -0.3f };
    assert_ok(vx_snake_alias_free(dev, vx_tensor_of(y, VX_F32, 1, 6), vx_tensor_of((void *)(uintptr_t)x, VX_F32, 1, 6),
                                  vx_tensor_of(alpha, VX_F32, 1), vx_tensor_of(beta, VX_F32, 1), d->last.up, d->last.down));
    for (int i = 0; i < 6; i++) assert_true(fabsf(y[i] - want[i]) <= 1e-6f);
    vx_audio_decoder_close(&d);
    small_close(m);
    vx_device_destroy(&dev);
}

// v [2 inputs, 3 outputs, 2 taps]: the norm runs over an INPUT channel's six numbers. |v0| = 7 (4+9+36), |v1| = 3 (4+4+1).
static void a_transposed_convolution_is_folded_over_its_input_channels(void **state)
{
    (void)state;
    const float v[12] = { 2, 0, 3, 0, 0, 6, 0, 2, 2, 0, 1, 0 }, g[2] = { 14, 1.5f };
    const float want[12] = { 4, 0, 6, 0, 0, 12, 0, 1, 1, 0, 0.5f, 0 };
    float w[12];
    vx_audio_fold(w, v, g, 2, 6);
    assert_memory_equal(w, want, sizeof want);
    // And in a file: ups.0 is [16 in, 8 out, 4 taps].
    vx_device *dev = cpu_device(1);
    small_model *m = small_audio_tensors(&small_audio_two);
    float *direction = small_data(m, "decoder.ups.0.0.weight_v"), *length = small_data(m, "decoder.ups.0.0.weight_g");
    memset(direction, 0, 16 * 8 * 4 * sizeof *direction);
    for (int i = 0; i < 16; i++) direction[i * 32 + i] = -2.0f, length[i] = (float)i;
    vx_audio_decoder *d;
    assert_ok(small_audio_open(m, &small_audio_two, dev, &d));
    for (int i = 0; i < 16; i++) assert_true(vx_f32_of(d->stage[0].up.weight)[i * 32 + i] == -(float)i);
    vx_audio_decoder_close(&d);
    small_close(m);
    vx_device_destroy(&dev);
}

// Renames g and v as newer PyTorch writes them, or replaces them by the folded weight.
static void respell(small_model *m, bool folded)
{
    for (int i = m->count - 1; i >= 0; i--) {
        char base[SMALL_NAME];
        if (!ends(m->name[i], ".weight_v")) continue;
        snprintf(base, sizeof base, "%.*s", (int)(strlen(m->name[i]) - strlen(".weight_v")), m->name[i]);
        char name[SMALL_NAME];
        snprintf(name, sizeof name, "%.80s.weight_g", base);
        vx_safetensors_tensor *v = &m->tensor[i], *g = small_find(m, name);
        if (!folded) {
            snprintf(m->name[i], SMALL_NAME, "%.50s.parametrizations.weight.original1", base);
            snprintf(m->name[g - m->tensor], SMALL_NAME, "%.50s.parametrizations.weight.original0", base);
            continue;
        }
        float *x = (float *)(uintptr_t)v->data;
        vx_audio_fold(x, x, g->data, v->shape[0], v->shape[1] * v->shape[2]);
        snprintf(m->name[i], SMALL_NAME, "%.80s.weight", base);
        small_drop(m, name);
        i = m->count; // dropping moved the last tensor
    }
}

static void every_spelling_of_weight_norm_gives_the_same_bits(void **state)
{
    (void)state;
    vx_tensor wave[3];
    for (int k = 0; k < 3; k++) {
        small_model *m = small_audio_tensors(&small_audio_two);
        if (k > 0) respell(m, k == 2);
        sound_of(m, &small_audio_two, "audio.two", 20, &wave[k]);
    }
    for (int k = 1; k < 3; k++) assert_memory_equal(wave[k].data, wave[0].data, vx_tensor_bytes(wave[0]));
    for (int k = 0; k < 3; k++) free(wave[k].data);
}

static int warnings;
static void count_warnings(void *user, vx_log_level level, const char *text)
{
    (void)user;
    if (level == VX_LOG_WARNING) print_message("%s\n", text), warnings++;
}

static void filters_in_the_file_are_used_with_a_warning_where_they_differ(void **state)
{
    (void)state;
    static const char *const name = "decoder.resblocks.0.activations.1.upsample.filter";
    static const float table[12] = {
        0.0020289646927267313f, 0.009389465674757957f, -0.0255434587597847f,  -0.057657383382320404f,
        0.12857258319854736f,   0.44320979714393616f,  0.44320979714393616f,  0.12857258319854736f,
        -0.057657383382320404f, -0.0255434587597847f,  0.009389465674757957f, 0.0020289646927267313f
    };
    vx_tensor wave[3];
    vx_log_set(count_warnings, NULL);
    for (int k = 0; k < 3; k++) {
        small_model *m = small_audio_tensors(&small_audio_two);
        if (k > 0) memcpy(SMALL_ADD(m, name, 1, 1, 12), table, sizeof table);
        if (k == 2) small_data(m, name)[5] += 2e-3f;
        warnings = 0;
        sound_of(m, &small_audio_two, "audio.two", 20, &wave[k]);
        assert_int_equal(warnings, k == 2);
    }
    vx_log_set(NULL, NULL);
    assert_memory_equal(wave[1].data, wave[0].data, vx_tensor_bytes(wave[0]));
    assert_true(memcmp(wave[2].data, wave[0].data, vx_tensor_bytes(wave[0])) != 0);
    for (int k = 0; k < 3; k++) free(wave[k].data);
}

static void narrower_weights_are_widened_with_a_warning(void **state)
{
    (void)state;
    vx_tensor wave;
    small_model *m = small_audio_tensors(&small_audio_two);
    for (int i = m->count - 1; i >= 0; i--) small_narrow(m, m->name[i], VX_F16);
    warnings = 0;
    vx_log_set(count_warnings, NULL);
    sound_of(m, &small_audio_two, "audio.two", 150, &wave);
    vx_log_set(NULL, NULL);
    assert_int_equal(warnings, 1);
    double error = error_of("audio.two", wave);
    print_message("F16 weights: relative L2 %.2e\n", error);
    assert_true(error > 1e-5 && error < 0.02);
    free(wave.data);
}

static void statistics_of_the_file_come_first(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(1);
    small_model *m = small_audio_tensors(&small_audio_two);
    SMALL_ADD(m, "latents_mean", 8);
    float *std = SMALL_ADD(m, "latents_std", 8);
    for (int i = 0; i < 8; i++) std[i] = 3.0f;
    vx_audio_decoder *d;
    assert_ok(small_audio_open(m, &small_audio_two, dev, &d));
    assert_true(vx_audio_decoder_config_of(d)->latents_std[7] == 3.0f);
    vx_audio_decoder_close(&d);
    small_close(m);
    vx_device_destroy(&dev);
}

static void denormalised_latents_are_taken_as_they_are(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(2);
    small_model *m = small_audio_tensors(&small_audio_two);
    vx_audio_decoder *d;
    assert_ok(small_audio_open(m, &small_audio_two, dev, &d));
    const vx_audio_decoder_config *g = vx_audio_decoder_config_of(d);
    vx_tensor z = SMALL_LATENT("denormalised", 2, 8, 30), wave[2];
    assert_ok(sound(d, dev, z, false, 1000, &wave[0]));
    for (int64_t i = 0; i < 2 * 8 * 30; i++) {
        volatile float product = vx_f32_of(z)[i] * g->latents_std[i / 30 % 8]; // two roundings
        vx_f32_of(z)[i] = product + g->latents_mean[i / 30 % 8];
    }
    assert_ok(sound(d, dev, z, true, 1000, &wave[1]));
    assert_memory_equal(wave[0].data, wave[1].data, vx_tensor_bytes(wave[0]));
    for (int k = 0; k < 2; k++) free(wave[k].data);
    free(z.data);
    vx_audio_decoder_close(&d);
    small_close(m);
    vx_device_destroy(&dev);
}

static void sound_that_is_not_finite_is_an_error(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(1);
    vx_tensor z = SMALL_LATENT("finite", 2, 8, 12), wave;
    for (int k = 0; k < 3; k++) {
        small_model *m = small_audio_tensors(&small_audio_two);
        if (k == 0) small_data(m, "decoder.resblocks.1.convs2.0.bias")[0] = NAN;
        if (k == 1) small_data(m, "decoder.ups.1.0.weight_v")[0] = INFINITY;
        if (k == 2) vx_f32_of(z)[8 * 12 + 3] = NAN; // the second channel
        vx_audio_decoder *d;
        assert_ok(small_audio_open(m, &small_audio_two, dev, &d));
        vx_status s = sound(d, dev, z, false, 1000, &wave);
        assert_int_equal(s.code, VX_ERR_NOT_FINITE);
        assert_non_null(strstr(s.message, k == 2 ? "channel 1" : "channel 0"));
        free(wave.data);
        vx_audio_decoder_close(&d);
        small_close(m);
    }
    free(z.data);
    vx_device_destroy(&dev);
}

static void wrong_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *says, *config, *drop, *add;
        vx_code want;
    } rows[] = {
        { "rates that do not fit the taps", "\"decoder_rates\": [2,3]", NULL, NULL, VX_ERR_CONFIG },
        { "rates that contradict the encoder's", "\"decoder_rates\": [2,2], \"encoder_rates\": [2,4]", NULL, NULL,
          VX_ERR_CONFIG },
        { "taps that contradict the tensors", "\"decoder_rates\": [2,2], \"decoder_kernel_sizes\": [4,6]", NULL, NULL,
          VX_ERR_CONFIG },
        { "dilations missing for a pair", "\"resblock_dilation_sizes\": [[1,3],[1]]", NULL, NULL, VX_ERR_CONFIG },
        { "a width that contradicts the tensors", "\"decoder_dim\": 32", NULL, NULL, VX_ERR_TENSOR_SHAPE },
        { "another width that does", "\"latent_dim\": 64", NULL, NULL, VX_ERR_TENSOR_SHAPE },
        { "a missing length", "\"x\": 0", "decoder.conv_post.weight_g", NULL, VX_ERR_TENSOR_MISSING },
        { "a missing bias", "\"x\": 0", "decoder.ups.1.0.bias", NULL, VX_ERR_TENSOR_UNEXPECTED },
        { "a missing activation", "\"x\": 0", "decoder.activation_post.act.beta", NULL, VX_ERR_TENSOR_MISSING },
        { "an unknown tensor", "\"x\": 0", NULL, "decoder.conv_post.bias", VX_ERR_TENSOR_UNEXPECTED },
        { "an encoder beside it", "\"x\": 0", NULL, "pre_block.norm1.bias", VX_OK },
        { "nothing wrong, rates by the taps", "\"x\": 0", NULL, NULL, VX_OK },
    };
    vx_device *dev = cpu_device(1);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        small_audio a = small_audio_two;
        a.config = rows[r].config;
        small_model *m = small_audio_tensors(&a);
        if (rows[r].drop) small_drop(m, rows[r].drop);
        if (rows[r].add) SMALL_ADD(m, rows[r].add, 1);
        vx_audio_decoder *d;
        vx_status s = small_audio_open(m, &a, dev, &d);
        if (s.code != rows[r].want) fail_msg("%s: VX-%d %s", rows[r].says, (int)s.code, s.message);
        if (s.code == VX_OK) assert_int_equal(vx_audio_decoder_config_of(d)->hop, 4);
        vx_audio_decoder_close(&d);
        small_close(m);
    }
    vx_device_destroy(&dev);
}

static void failed_allocations_are_errors_and_leave_nothing(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(1);
    small_model *m = small_audio_tensors(&small_audio_two);
    vx_audio_decoder *d;
    assert_ok(small_audio_open(m, &small_audio_two, dev, &d));
    vx_audio_decoder_close(&d);
    for (int persistent = 0; persistent < 2; persistent++) {
        bool hit = true;
        for (int64_t k = 1; hit; k++) {
            vx_fault_arm(k, persistent);
            vx_status s = vx_audio_decoder_open(&d, m->component, dev);
            hit = vx_fault_disarm();
            assert_int_equal(s.code, hit ? VX_ERR_MEMORY : VX_OK);
            vx_audio_decoder_close(&d);
        }
    }
    small_close(m);
    vx_device_destroy(&dev);
}

static void every_operators_failure_ends_the_decode(void **state)
{
    (void)state;
    vx_device *plan = NULL, *dev = cpu_device(1);
    vx_arena *arena = NULL;
    small_model *m = small_audio_tensors(&small_audio_two);
    vx_audio_decoder *d;
    assert_ok(small_audio_open(m, &small_audio_two, dev, &d));
    assert_ok(vx_device_plan_create(&plan, dev));
    assert_ok(vx_arena_create(plan, &arena, 0));
    vx_tensor wave = vx_tensor_of(NULL, VX_F32, 2, 4 * 50), z = vx_tensor_of(NULL, VX_F32, 2, 8, 50);
    assert_ok(vx_audio_decoder_run(d, plan, arena, wave, z, false));
    int64_t calls = vx_device_plan_counts(plan).calls;
    assert_true(calls > 40);
    for (int64_t k = 1; k <= calls; k++) {
        vx_device_plan_fail(plan, k, VX_ERR_DEVICE);
        assert_code(vx_audio_decoder_run(d, plan, arena, wave, z, false), VX_ERR_DEVICE);
        assert_int_equal(vx_arena_mark(arena), 0);
    }
    wave.shape[1]--;
    assert_code(vx_audio_decoder_run(d, plan, arena, wave, z, false), VX_ERR_SHAPE);
    z.shape[1]--;
    assert_code(vx_audio_decoder_run(d, plan, arena, wave, z, false), VX_ERR_SHAPE);
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    vx_audio_decoder_close(&d);
    small_close(m);
    vx_device_destroy(&dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_decoders_give_the_references_sound),
        cmocka_unit_test(chunks_give_the_bits_of_the_whole),
        cmocka_unit_test(channels_do_not_know_of_each_other),
        cmocka_unit_test(the_released_decoder_reaches_29_latents),
        cmocka_unit_test(memory_is_bounded_by_the_chunk),
        cmocka_unit_test(the_filter_table_gives_the_activations_vector),
        cmocka_unit_test(a_transposed_convolution_is_folded_over_its_input_channels),
        cmocka_unit_test(every_spelling_of_weight_norm_gives_the_same_bits),
        cmocka_unit_test(filters_in_the_file_are_used_with_a_warning_where_they_differ),
        cmocka_unit_test(narrower_weights_are_widened_with_a_warning),
        cmocka_unit_test(statistics_of_the_file_come_first),
        cmocka_unit_test(denormalised_latents_are_taken_as_they_are),
        cmocka_unit_test(sound_that_is_not_finite_is_an_error),
        cmocka_unit_test(wrong_files_are_refused),
        cmocka_unit_test(failed_allocations_are_errors_and_leave_nothing),
        cmocka_unit_test(every_operators_failure_ends_the_decode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
