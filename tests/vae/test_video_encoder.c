// The video encoder on small networks: against diffusers' outputs, and what it refuses, reports and keeps.
#include "small_encoder.h"

#include "base/alloc.h"
#include "tensor/random.h"

// tests/data/vae.safetensors holds every `step`-th value.
static const struct {
    const char *name;
    const small_encoder *model;
    int64_t frames, height, width, step;
} cases[] = {
    { "encode.tiles", &small_encoder_first, 22, 112, 112, 17 }, { "encode.image", &small_encoder_first, 1, 96, 48, 3 },
    { "encode.short", &small_encoder_first, 3, 32, 48, 3 },     { "encode.odd", &small_encoder_first, 36, 32, 32, 5 },
    { "encode.other", &small_encoder_second, 17, 32, 80, 5 },
};

static double error_of(const vx_safetensors *file, const char *name, const char *what, const float *got, int64_t step)
{
    char key[64];
    snprintf(key, sizeof key, "%s.%s", name, what);
    const vx_safetensors_entry *want = vx_safetensors_find(file, key);
    float *some = malloc((size_t)want->shape[0] * sizeof *some);
    for (int64_t i = 0; i < want->shape[0]; i++) some[i] = got[i * step];
    double error = relative_error(some, want->data, want->shape[0]);
    free(some);
    return error;
}

// A float16 step away from the reference where a rounding boundary lies between the two (video VAE specification, 6.1).
static void check_condition(const vx_safetensors *file, const vx_video_encoder *e, const char *name, const moments *m,
                            int64_t step)
{
    char key[64];
    int64_t count = vx_tensor_count(m->mean), unequal = 0;
    float *z = malloc((size_t)count * sizeof *z);
    vx_video_condition(e, m->mean.data, m->logvar.data, count / e->config.latent_channels, z);
    snprintf(key, sizeof key, "%s.condition", name);
    const vx_safetensors_entry *want = vx_safetensors_find(file, key);
    for (int64_t i = 0; i < want->shape[0]; i++) {
        float expected = ((const float *)want->data)[i], difference = fabsf(z[i * step] - expected);
        assert_true(difference <= 4e-3f * (1.0f + fabsf(expected)));
        unequal += difference > 2e-6f * (1.0f + fabsf(expected));
    }
    print_message("%s: %d of %d condition values are a float16 step away\n", name, (int)unequal, (int)want->shape[0]);
    assert_true(unequal * 50 <= want->shape[0]);
    free(z);
}

static void small_encoders_give_the_references_moments(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(2);
    vx_safetensors *file = NULL;
    assert_ok(vx_safetensors_open(&file, VX_TEST_DATA "/vae.safetensors", NULL));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        small_model *m = small_encoder_tensors(cases[i].model);
        vx_video_encoder *e;
        moments got;
        char key[64];
        assert_ok(small_encoder_open(m, cases[i].model, "", &e));
        uint8_t *pixels = small_pixels(cases[i].name, cases[i].frames, cases[i].height, cases[i].width);
        const vx_video_encode clip = clip_of(pixels, cases[i].frames, cases[i].height, cases[i].width);
        assert_ok(encode_run(e, dev, clip, &got));
        snprintf(key, sizeof key, "%s.shape", cases[i].name);
        const int64_t *shape = vx_safetensors_find(file, key)->data;
        for (int k = 0; k < 4; k++) assert_int_equal(got.mean.shape[k], shape[k]);
        double mean = error_of(file, cases[i].name, "mean", got.mean.data, cases[i].step);
        double logvar = error_of(file, cases[i].name, "logvar", got.logvar.data, cases[i].step);
        print_message("%s: relative L2 %.2e, %.2e\n", cases[i].name, mean, logvar);
        assert_true(mean <= 1e-5 && logvar <= 1e-5);
        if (cases[i].frames == 1) check_condition(file, e, cases[i].name, &got, cases[i].step);
        moments_free(&got);
        free(pixels);
        vx_video_encoder_close(&e);
        small_close(m);
    }
    vx_safetensors_close(&file);
    vx_device_destroy(&dev);
}

// Video VAE specification, section 7, and the golden requests.
static void frames_become_latents(void **state)
{
    (void)state;
    static const struct {
        int64_t frames, latents;
    } counts[] = { { 0, 0 }, { 1, 1 }, { 2, 2 }, { 5, 2 }, { 17, 2 }, { 18, 7 }, { 22, 7 }, { 34, 7 }, { 39, 12 }, { 124, 37 } };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        assert_int_equal(vx_encoded_frames(counts[i].frames), counts[i].latents);
    for (int64_t n = 0; n < 30; n++) assert_int_equal(vx_encoded_frames(17 * n + 5), 5 * n + 2);
}

// Specification 0.8: a picture costs a third, and is what the clip that starts with it would give.
static void a_picture_is_the_first_latent_of_its_clip(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(2);
    small_model *m = small_encoder_tensors(&small_encoder_first);
    vx_video_encoder *e;
    moments one, clip;
    assert_ok(small_encoder_open(m, &small_encoder_first, "", &e));
    uint8_t *pixels = small_pixels("picture", 18, 32, 80);
    assert_ok(encode_run(e, dev, clip_of(pixels, 1, 32, 80), &one));
    assert_ok(encode_run(e, dev, clip_of(pixels, 18, 32, 80), &clip));
    int64_t plane = 2 * 5, channels = 24, latents = clip.mean.shape[1];
    for (int64_t c = 0; c < channels; c++) {
        const float *a = (const float *)one.mean.data + c * plane, *b = (const float *)clip.mean.data + c * latents * plane;
        for (int64_t i = 0; i < plane; i++) assert_true(a[i] == b[i]);
        a = (const float *)one.logvar.data + c * plane, b = (const float *)clip.logvar.data + c * latents * plane;
        for (int64_t i = 0; i < plane; i++) assert_true(a[i] == b[i]);
    }
    moments_free(&one);
    moments_free(&clip);
    free(pixels);
    vx_video_encoder_close(&e);
    small_close(m);
    vx_device_destroy(&dev);
}

// 3 x 2 tiles, one at a time, in two batches of three and all at once.
static void tiles_of_a_picture_may_go_together(void **state)
{
    (void)state;
    static const int64_t batches[] = { 1, 4, 17 };
    vx_device *dev = cpu_device(2);
    small_model *m = small_encoder_tensors(&small_encoder_first);
    vx_video_encoder *e;
    moments want;
    assert_ok(small_encoder_open(m, &small_encoder_first, "", &e));
    uint8_t *pixels = small_pixels("batches", 1, 112, 80);
    vx_video_encode picture = clip_of(pixels, 1, 112, 80);
    assert_ok(encode_run(e, dev, picture, &want));
    picture.mean = picture.logvar = want.mean;
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        vx_arena *arena = NULL;
        picture.mean.data = calloc(1, vx_tensor_bytes(want.mean));
        picture.logvar.data = calloc(1, vx_tensor_bytes(want.mean));
        assert_ok(vx_arena_create(dev, &arena, 64 << 20));
        assert_ok(vx_video_encoder_run_batched(e, dev, arena, &picture, batches[i]));
        assert_memory_equal(picture.mean.data, want.mean.data, vx_tensor_bytes(want.mean));
        assert_memory_equal(picture.logvar.data, want.logvar.data, vx_tensor_bytes(want.logvar));
        assert_true(vx_arena_high(arena) < (size_t)(32 * 6 * 64 * 64 * 4) * 4);
        vx_arena_destroy(&arena);
        free(picture.mean.data);
        free(picture.logvar.data);
    }
    moments_free(&want);
    free(pixels);
    vx_video_encoder_close(&e);
    small_close(m);
    vx_device_destroy(&dev);
}

static void the_number_of_threads_changes_no_bit(void **state)
{
    (void)state;
    small_model *m = small_encoder_tensors(&small_encoder_second);
    vx_video_encoder *e;
    moments got[2];
    assert_ok(small_encoder_open(m, &small_encoder_second, "", &e));
    uint8_t *pixels = small_pixels("threads", 5, 32, 80);
    for (int k = 0; k < 2; k++) {
        vx_device *dev = cpu_device(k ? 3 : 1);
        assert_ok(encode_run(e, dev, clip_of(pixels, 5, 32, 80), &got[k]));
        vx_device_destroy(&dev);
    }
    assert_memory_equal(got[0].mean.data, got[1].mean.data, vx_tensor_bytes(got[0].mean));
    assert_memory_equal(got[0].logvar.data, got[1].logvar.data, vx_tensor_bytes(got[0].logvar));
    moments_free(&got[0]);
    moments_free(&got[1]);
    free(pixels);
    vx_video_encoder_close(&e);
    small_close(m);
}

// Three activations of a tile, its moments and edges: more clips and more tiles (beyond a row) add nothing but edges.
static void memory_does_not_grow_with_the_clip(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(1);
    small_model *m = small_encoder_tensors(&small_encoder_first);
    vx_video_encoder *e;
    assert_ok(small_encoder_open(m, &small_encoder_first, "", &e));
    size_t scratch[2], short_clip = encode_plan(e, dev, clip_of(NULL, 22, 112, 80), &scratch[0]);
    assert_int_equal(encode_plan(e, dev, clip_of(NULL, 362, 112, 80), &scratch[1]), short_clip);
    assert_int_equal(scratch[0], scratch[1]);
    assert_true(encode_plan(e, dev, clip_of(NULL, 22, 1024, 80), NULL) <= short_clip); // its overlaps are smaller
    size_t activation = (size_t)(32 * 17 * 64 * 64) * sizeof(float);
    assert_in_range(short_clip, 3 * activation, 3 * activation + activation / 4);
    // A picture needs a seventeenth.
    assert_in_range(encode_plan(e, dev, clip_of(NULL, 1, 112, 80), NULL), 3 * activation / 17, activation / 4);
    vx_video_encoder_close(&e);
    small_close(m);
    vx_device_destroy(&dev);
}

static void the_logarithm_of_the_variance_is_clamped_and_may_be_left_out(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(1);
    small_model *m = small_encoder_tensors(&small_encoder_first);
    float *bias = small_data(m, "quant_conv.bias");
    bias[0] = 100.0f, bias[24] = 100.0f, bias[25] = -100.0f;
    vx_video_encoder *e;
    moments got;
    assert_ok(small_encoder_open(m, &small_encoder_first, "", &e));
    uint8_t *pixels = small_pixels("clamp", 1, 32, 32);
    vx_video_encode clip = clip_of(pixels, 1, 32, 32);
    assert_ok(encode_run(e, dev, clip, &got));
    const float *mean = got.mean.data, *logvar = got.logvar.data;
    for (int i = 0; i < 4; i++) {
        assert_true(mean[i] > 90.0f);
        assert_true(logvar[i] == 20.0f);
        assert_true(logvar[4 + i] == -30.0f);
        assert_true(fabsf(logvar[8 + i]) < 19.0f);
    }
    vx_arena *arena = NULL;
    float *alone = calloc(1, vx_tensor_bytes(got.mean));
    clip.mean = got.mean;
    clip.mean.data = alone;
    assert_ok(vx_arena_create(dev, &arena, encode_plan(e, dev, clip, NULL)));
    assert_ok(vx_video_encoder_run(e, dev, arena, &clip));
    assert_memory_equal(alone, mean, vx_tensor_bytes(got.mean));
    free(alone);
    vx_arena_destroy(&arena);
    moments_free(&got);
    free(pixels);
    vx_video_encoder_close(&e);
    small_close(m);
    vx_device_destroy(&dev);
}

// mean + exp(logvar/2)*eps, to float16, minus the mean, over the deviation; by hand where the noise cannot matter.
static void a_condition_is_sampled_rounded_and_normalised(void **state)
{
    (void)state;
    enum { PER_CHANNEL = 6, COUNT = 24 * PER_CHANNEL };
    small_model *m = small_encoder_tensors(&small_encoder_first);
    vx_video_encoder *e;
    assert_ok(small_encoder_open(m, &small_encoder_first, "", &e));
    float mean[COUNT], logvar[COUNT], noise[COUNT], out[COUNT];
    vx_random random;
    vx_random_seed(&random, 42);
    vx_random_normal(&random, noise, COUNT);
    for (int i = 0; i < COUNT; i++) {
        mean[i] = i % 2 ? 1.0f + 0x1p-12f : 0.0f; // the odd ones are rounded to 1
        logvar[i] = i % 2 ? -30.0f : 0.0f;        // 3e-7 of noise, and 1 of it
    }
    vx_video_condition(e, mean, logvar, PER_CHANNEL, out);
    for (int i = 0; i < COUNT; i++) {
        const vx_video_encoder_config *g = vx_video_encoder_config_of(e);
        int c = i / PER_CHANNEL;
        float z = i % 2 ? 1.0f : vx_f16_to_f32(vx_f32_to_f16(noise[i]));
        assert_true(out[i] == (z - g->latents_mean[c]) / g->latents_std[c]);
    }
    assert_true(fabsf(noise[0] - 1.926915f) < 1e-6f); // torch.randn of seed 42 (specification 6.1)
    vx_video_encoder_close(&e);
    small_close(m);
}

static void a_number_that_is_not_finite_is_an_error_naming_the_clip(void **state)
{
    (void)state;
    static const struct {
        const char *tensor;
        int64_t at;
        float value;
    } bad[] = { { "encoder.conv_in.bias", 3, NAN }, { "quant_conv.bias", 30, INFINITY } }; // clamped, it would look well
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        vx_device *dev = cpu_device(1);
        small_model *m = small_encoder_tensors(&small_encoder_first);
        small_data(m, bad[i].tensor)[bad[i].at] = bad[i].value;
        vx_video_encoder *e;
        moments got;
        assert_ok(small_encoder_open(m, &small_encoder_first, "", &e));
        uint8_t *pixels = small_pixels("finite", 2, 32, 32);
        vx_status s = encode_run(e, dev, clip_of(pixels, 2, 32, 32), &got);
        assert_code(s, VX_ERR_NOT_FINITE);
        assert_non_null(strstr(s.message, "clip 0 of 1"));
        moments_free(&got);
        free(pixels);
        vx_video_encoder_close(&e);
        small_close(m);
        vx_device_destroy(&dev);
    }
}

static void missing_tensors_are_named(void **state)
{
    (void)state;
    static const char *const names[] = {
        "encoder.conv_in.weight", "encoder.down.1.block.0.nin_shortcut.bias", "encoder.down.3.downsample.conv.weight",
        "encoder.norm_out.bias",  "encoder.down.2.block.0.conv2.weight",      "quant_conv.weight",
        "encoder.conv_out.bias",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        small_model *m = small_encoder_tensors(&small_encoder_first);
        vx_video_encoder *e;
        small_drop(m, names[i]);
        vx_status s = small_encoder_open(m, &small_encoder_first, "", &e);
        assert_code(s, VX_ERR_TENSOR_MISSING);
        assert_non_null(strstr(s.message, names[i]));
        small_close(m);
    }
}

static void other_networks_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *says, *more;
        vx_code want;
    } wrong[] = {
        { "zero padding", ", \"padding_mode\": \"zeros\"", VX_ERR_CONFIG },
        { "zero padding, diffusers' name", ", \"spatial_padding_mode\": \"constant\"", VX_ERR_CONFIG },
        { "frames that see the future", ", \"causal_encoder\": false", VX_ERR_CONFIG },
        { "statistics over all frames", ", \"use_t_isolated_gn\": false", VX_ERR_CONFIG },
        { "other groups", ", \"norm_num_groups\": 16", VX_ERR_CONFIG },
        { "more blocks than there are", ", \"num_res_blocks\": 3", VX_ERR_TENSOR_MISSING },
        { "a list that is too short", ", \"time_down\": [1,2,2,1]", VX_ERR_CONFIG },
        { "strides that do not give 4", ", \"time_down\": [1,1,2,1,1,1]", VX_ERR_CONFIG },
        { "time halved where space is not", ", \"time_down\": [1,2,1,1,2,1]", VX_ERR_CONFIG },
        { "a stride of 3", ", \"time_down\": [1,3,2,1,1,1]", VX_ERR_CONFIG },
        { "widths that are not the tensors'", ", \"ch\": 32, \"ch_mult\": [1,1,1,1,2,1]", VX_ERR_TENSOR_SHAPE },
        { "widths without groups", ", \"ch\": 16, \"ch_mult\": [1,4,2,2,4,2]", VX_ERR_CONFIG },
        { "no tiling", ", \"vae_encoder_tiling\": 0", VX_ERR_CONFIG },
        { "another clip length", ", \"clip_length\": 33", VX_ERR_CONFIG },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        small_model *m = small_encoder_tensors(&small_encoder_first);
        vx_video_encoder *e;
        vx_status s = small_encoder_open(m, &small_encoder_first, wrong[i].more, &e);
        if (s.code != wrong[i].want) fail_msg("%s: %d, %s", wrong[i].says, (int)s.code, s.message);
        assert_null(e);
        small_close(m);
    }
}

// The official spelling, with other multiples; and a single file, of which everything but time is in the tensors.
static void sizes_come_in_either_spelling_or_from_the_shapes(void **state)
{
    (void)state;
    small_model *m = small_encoder_tensors(&small_encoder_first);
    vx_video_encoder *e;
    assert_ok(small_encoder_open(m, &small_encoder_first,
                                 ", \"ch\": 32, \"ch_mult\": [1,2,1,1,2,1], \"num_res_blocks\": 1, \"time_down\": [1,2,2,1,1,1]",
                                 &e));
    assert_int_equal(vx_video_encoder_config_of(e)->channels[4], 64);
    vx_video_encoder_close(&e);
    small_close(m);
    m = small_encoder_tensors(&small_encoder_first);
    assert_ok(small_open(m, VX_VIDEO_VAE, NULL));
    assert_ok(vx_video_encoder_open(&e, m->component));
    const vx_video_encoder_config *g = vx_video_encoder_config_of(e);
    assert_int_equal(g->levels, 6);
    assert_int_equal(g->blocks, 1);
    assert_int_equal(g->tile_size, 256);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(g->channels[i], small_encoder_first.width[i]);
        assert_int_equal(g->space_stride[i], small_encoder_first.space[i]);
        assert_int_equal(g->time_stride[i], small_encoder_first.time[i]);
    }
    vx_video_encoder_close(&e);
    small_close(m);
}

static void clips_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        int64_t frames, height, width, latents;
        vx_code want;
    } wrong[] = {
        { "no frame", 0, 32, 32, 0, VX_ERR_RANGE },
        { "a side of 16", 1, 32, 16, 1, VX_ERR_RANGE },
        { "a side that is not a multiple of 16", 1, 40, 32, 1, VX_ERR_RANGE },
        { "an output for more frames", 1, 32, 32, 2, VX_ERR_SHAPE },
        { "more than 64 tiles", 1, 32, 64 * 64, 1, VX_ERR_RANGE },
    };
    vx_device *dev = cpu_device(1), *plan = NULL;
    vx_arena *arena = NULL;
    small_model *m = small_encoder_tensors(&small_encoder_first);
    vx_video_encoder *e;
    assert_ok(small_encoder_open(m, &small_encoder_first, "", &e));
    assert_ok(vx_device_plan_create(&plan, dev));
    assert_ok(vx_arena_create(plan, &arena, 0));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        vx_video_encode clip = clip_of(NULL, wrong[i].frames, wrong[i].height, wrong[i].width);
        clip.mean = vx_tensor_of(NULL, VX_F32, 24, wrong[i].latents, wrong[i].height / 16, wrong[i].width / 16);
        assert_code(vx_video_encoder_run(e, plan, arena, &clip), wrong[i].want);
    }
    vx_video_encode clip = clip_of(NULL, 1, 32, 32);
    clip.mean = clip.logvar = vx_tensor_of(NULL, VX_F32, 24, 1, 2, 2);
    clip.logvar.dtype = VX_BF16;
    assert_code(vx_video_encoder_run(e, plan, arena, &clip), VX_ERR_DTYPE);
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    vx_device_destroy(&dev);
    vx_video_encoder_close(&e);
    small_close(m);
}

static void count_tiles(void *user, int64_t done, int64_t total)
{
    int64_t *count = user;
    assert_int_equal(done, ++*count);
    assert_int_equal(total, 12); // two clips of 3 x 2 tiles
}

static void every_operators_failure_ends_the_encode_and_progress_counts_tiles(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(1), *plan = NULL;
    vx_arena *arena = NULL;
    small_model *m = small_encoder_tensors(&small_encoder_first);
    vx_video_encoder *e;
    int64_t tiles = 0;
    assert_ok(small_encoder_open(m, &small_encoder_first, "", &e));
    assert_ok(vx_device_plan_create(&plan, dev));
    assert_ok(vx_arena_create(plan, &arena, 0));
    vx_video_encode clip = clip_of(NULL, 22, 112, 80);
    clip.progress = count_tiles;
    clip.user = &tiles;
    clip.mean = clip.logvar = vx_tensor_of(NULL, VX_F32, 24, 7, 7, 5);
    assert_ok(vx_video_encoder_run(e, plan, arena, &clip));
    assert_int_equal(tiles, 12);
    int64_t calls = vx_device_plan_counts(plan).calls;
    clip.progress = NULL;
    for (int64_t k = 1; k <= calls; k++) {
        vx_device_plan_fail(plan, k, VX_ERR_CANCELLED);
        assert_code(vx_video_encoder_run(e, plan, arena, &clip), VX_ERR_CANCELLED);
        assert_int_equal(vx_arena_mark(arena), 0);
    }
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    vx_device_destroy(&dev);
    vx_video_encoder_close(&e);
    small_close(m);
}

static void failed_allocations_are_errors_and_leave_nothing(void **state)
{
    (void)state;
    small_model *m = small_encoder_tensors(&small_encoder_first);
    vx_video_encoder *e;
    assert_ok(small_encoder_open(m, &small_encoder_first, "", &e));
    vx_video_encoder_close(&e);
    bool hit = true;
    for (int64_t k = 1; hit; k++) {
        vx_fault_arm(k, true);
        vx_status s = vx_video_encoder_open(&e, m->component);
        hit = vx_fault_disarm();
        assert_code(s, hit ? VX_ERR_MEMORY : VX_OK);
        if (hit) assert_null(e);
    }
    vx_video_encoder_close(&e);
    small_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_encoders_give_the_references_moments),
        cmocka_unit_test(frames_become_latents),
        cmocka_unit_test(a_picture_is_the_first_latent_of_its_clip),
        cmocka_unit_test(tiles_of_a_picture_may_go_together),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
        cmocka_unit_test(memory_does_not_grow_with_the_clip),
        cmocka_unit_test(the_logarithm_of_the_variance_is_clamped_and_may_be_left_out),
        cmocka_unit_test(a_condition_is_sampled_rounded_and_normalised),
        cmocka_unit_test(a_number_that_is_not_finite_is_an_error_naming_the_clip),
        cmocka_unit_test(missing_tensors_are_named),
        cmocka_unit_test(other_networks_are_refused),
        cmocka_unit_test(sizes_come_in_either_spelling_or_from_the_shapes),
        cmocka_unit_test(clips_that_do_not_fit_are_refused),
        cmocka_unit_test(every_operators_failure_ends_the_encode_and_progress_counts_tiles),
        cmocka_unit_test(failed_allocations_are_errors_and_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
