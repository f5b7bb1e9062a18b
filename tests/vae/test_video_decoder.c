// The video decoder on small networks: against diffusers' outputs, and what it refuses, reports and keeps.
#include "small_model.h"

#include "base/alloc.h"

// tests/data/vae.safetensors holds every `step`-th value of the frames [count, height, width, 3].
static const struct {
    const char *name;
    const small_video *model;
    int64_t latents, height, width, step;
} cases[] = {
    { "video.tiles", &small_video_first, 12, 7, 6, 331 },
    { "video.off_grid", &small_video_first, 9, 2, 5, 331 },
    { "video.short", &small_video_first, 3, 3, 2, 97 },
    { "video.other", &small_video_second, 8, 5, 4, 331 },
};

static void check_samples(const char *name, const film *f, int64_t step)
{
    vx_safetensors *file = NULL;
    char key[64];
    assert_ok(vx_safetensors_open(&file, VX_TEST_DATA "/vae.safetensors", NULL));
    snprintf(key, sizeof key, "%s.shape", name);
    const int64_t *shape = vx_safetensors_find(file, key)->data;
    assert_int_equal(f->count, shape[0]);
    assert_int_equal(f->height, shape[1]);
    assert_int_equal(f->width, shape[2]);
    snprintf(key, sizeof key, "%s.samples", name);
    const vx_safetensors_entry *want = vx_safetensors_find(file, key);
    float *got = malloc((size_t)want->shape[0] * sizeof *got);
    for (int64_t i = 0; i < want->shape[0]; i++) got[i] = f->data[i * step];
    double error = relative_error(got, want->data, want->shape[0]);
    print_message("%s: relative L2 %.2e\n", name, error);
    assert_true(error <= 1e-6);
    free(got);
    vx_safetensors_close(&file);
}

static void small_decoders_give_the_references_frames(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        small_model *m = small_video_tensors(cases[i].model);
        vx_video_decoder *d;
        assert_ok(small_video_open(m, cases[i].model, &d));
        vx_tensor z = SMALL_LATENT(cases[i].name, 24, cases[i].latents, cases[i].height, cases[i].width);
        film f = { 0 };
        assert_ok(video_run(d, dev, &f, z, false));
        check_samples(cases[i].name, &f, cases[i].step);
        free(f.data);
        free(z.data);
        vx_video_decoder_close(&d);
        small_close(m);
    }
    vx_device_destroy(&dev);
}

static void sizes_come_from_the_configuration_and_the_shapes(void **state)
{
    (void)state;
    small_model *m = small_video_tensors(&small_video_second);
    vx_video_decoder *d;
    assert_ok(small_video_open(m, &small_video_second, &d));
    const vx_video_decoder_config *g = vx_video_decoder_config_of(d);
    assert_int_equal(g->heads, 1);
    assert_int_equal(g->layers, 1);
    assert_int_equal(g->dim, 64);
    assert_int_equal(g->ffn, 192);
    assert_int_equal(g->register_tokens, 2);
    assert_int_equal(g->tile_size, 64);
    assert_int_equal(g->tile_overlap, 16);
    assert_int_equal(g->patch_height, 16);
    assert_int_equal(g->patch_frames, 4);
    vx_video_decoder_close(&d);
    small_close(m);
}

static void a_single_file_needs_no_configuration(void **state)
{
    (void)state;
    small_model *m = small_video_tensors(&small_video_first);
    memcpy(SMALL_ADD(m, "latents_mean", 24), (float[24]){ 0 }, sizeof(float[24])); // is told in the log, and not used
    SMALL_ADD(m, "decoder.mask_token", 1, 1, 128);
    SMALL_ADD(m, "encoder.conv_in.bias", 4);
    assert_ok(small_open(m, VX_VIDEO_VAE, NULL));
    vx_video_decoder *d = NULL;
    assert_ok(vx_video_decoder_open(&d, m->component));
    const vx_video_decoder_config *g = vx_video_decoder_config_of(d);
    assert_int_equal(g->heads, 2);
    assert_int_equal(g->layers, 2);
    assert_int_equal(g->tile_size, 256);
    assert_true(g->latents_mean[0] == 0.858090341f && g->latents_std[23] == 2.61278439f);
    vx_video_decoder_close(&d);
    small_close(m);
}

static void half_precision_weights_are_used_as_stored(void **state)
{
    (void)state;
    vx_device *dev = cpu_device(2);
    vx_tensor z = SMALL_LATENT("video.short", 24, 3, 3, 2);
    film narrow = { 0 }, wide = { 0 };
    for (int k = 0; k < 2; k++) {
        small_model *m = small_video_tensors(&small_video_first);
        for (int i = m->count - 1; i >= 0; i--) {
            vx_safetensors_tensor *t = &m->tensor[i];
            vx_dtype to = i % 2 ? VX_F16 : VX_BF16;
            int64_t count = 1;
            for (int a = 0; a < t->rank; a++) count *= t->shape[a];
            float *x = small_data(m, t->name);
            for (int64_t e = 0; e < count; e++) x[e] = to == VX_F16 ? vx_f16_to_f32(vx_f32_to_f16(x[e])) : vx_round_bf16(x[e]);
            if (k == 0) small_narrow(m, m->name[i], to);
        }
        vx_video_decoder *d;
        assert_ok(small_video_open(m, &small_video_first, &d));
        assert_ok(video_run(d, dev, k ? &wide : &narrow, z, false));
        vx_video_decoder_close(&d);
        small_close(m);
    }
    assert_memory_equal(narrow.data, wide.data, (size_t)(narrow.count * narrow.height * narrow.width * 3) * sizeof(float));
    free(narrow.data);
    free(wide.data);
    free(z.data);
    vx_device_destroy(&dev);
}

static void the_number_of_threads_changes_no_bit(void **state)
{
    (void)state;
    small_model *m = small_video_tensors(&small_video_first);
    vx_video_decoder *d;
    assert_ok(small_video_open(m, &small_video_first, &d));
    vx_tensor z = SMALL_LATENT("video.off_grid", 24, 9, 2, 5);
    film f[3] = { 0 };
    for (int k = 0; k < 3; k++) {
        vx_device *dev = cpu_device(k + 1);
        assert_ok(video_run(d, dev, &f[k], z, false));
        vx_device_destroy(&dev);
    }
    size_t bytes = (size_t)(f[0].count * f[0].height * f[0].width * 3) * sizeof(float);
    assert_memory_equal(f[0].data, f[1].data, bytes);
    assert_memory_equal(f[0].data, f[2].data, bytes);
    for (int k = 0; k < 3; k++) free(f[k].data);
    free(z.data);
    vx_video_decoder_close(&d);
    small_close(m);
}

static void decode_with(const vx_video_decoder *d, vx_tensor z, vx_video_decode how, film *f)
{
    vx_device *dev = cpu_device(2), *plan = NULL;
    vx_arena *arena = NULL;
    how.latent = z;
    how.latent.data = NULL;
    assert_ok(vx_device_plan_create(&plan, dev));
    assert_ok(vx_arena_create(plan, &arena, 0));
    assert_ok(vx_video_decoder_run(d, plan, arena, &how));
    const size_t bytes = vx_arena_high(arena);
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    assert_ok(vx_arena_create(dev, &arena, bytes));
    how.latent = z;
    how.frames = film_take;
    how.user = f;
    f->dev = dev;
    assert_ok(vx_video_decoder_run(d, dev, arena, &how));
    vx_arena_destroy(&arena);
    vx_device_destroy(&dev);
}

// Tiles share calls, not values; and 2^-11 of rounding after every operation stays that small in the picture (diffusers under
// float16 autocast: 3e-4 on the golden checkpoint).
static void batches_of_tiles_change_no_bit_and_half_precision_little(void **state)
{
    (void)state;
    small_model *m = small_video_tensors(&small_video_first);
    vx_video_decoder *d;
    assert_ok(small_video_open(m, &small_video_first, &d));
    vx_tensor z = SMALL_LATENT("video.off_grid", 24, 9, 2, 5);
    film f[5] = { 0 };
    decode_with(d, z, (vx_video_decode){ 0 }, &f[0]);
    decode_with(d, z, (vx_video_decode){ .batch = 3 }, &f[1]);
    decode_with(d, z, (vx_video_decode){ .half = true }, &f[2]);
    decode_with(d, z, (vx_video_decode){ .half = true, .batch = 100 }, &f[3]);
    decode_with(d, z, (vx_video_decode){ .half = true, .exact_rope = true }, &f[4]);
    const int64_t count = f[0].count * f[0].height * f[0].width * 3;
    assert_memory_equal(f[0].data, f[1].data, (size_t)count * sizeof(float));
    assert_memory_equal(f[2].data, f[3].data, (size_t)count * sizeof(float));
    assert_close(f[2].data, f[0].data, count, 2e-3);
    assert_close(f[4].data, f[0].data, count, 1e-3);
    assert_memory_not_equal(f[2].data, f[4].data, (size_t)count * sizeof(float));
    for (int k = 0; k < 5; k++) free(f[k].data);
    free(z.data);
    vx_video_decoder_close(&d);
    small_close(m);
}

// P32 of the public bugs: a clip that was sampled for minutes must not die in its decode because it is long.
static void memory_does_not_grow_with_the_clip(void **state)
{
    (void)state;
    small_model *m = small_video_tensors(&small_video_first);
    vx_video_decoder *d;
    assert_ok(small_video_open(m, &small_video_first, &d));
    vx_device *dev = cpu_device(1);
    size_t few, many, few_scratch, many_scratch;
    few = video_plan(d, dev, vx_tensor_of(NULL, VX_F32, 24, 37, 48, 84), false, &few_scratch);
    many = video_plan(d, dev, vx_tensor_of(NULL, VX_F32, 24, 107, 48, 84), false, &many_scratch);
    assert_true(few > 0);
    assert_int_equal(few, many);
    assert_int_equal(few_scratch, many_scratch);
    vx_device_destroy(&dev);
    vx_video_decoder_close(&d);
    small_close(m);
}

static void a_failure_of_the_receiver_is_passed_on(void **state)
{
    (void)state;
    small_model *m = small_video_tensors(&small_video_first);
    vx_video_decoder *d;
    assert_ok(small_video_open(m, &small_video_first, &d));
    vx_device *dev = cpu_device(1);
    vx_tensor z = SMALL_LATENT("video.off_grid", 24, 9, 2, 5);
    for (int64_t k = 1; k <= 3; k++) { // two windows: frames 0-16, 17-29
        film f = { .fail_at = k };
        vx_status s = video_run(d, dev, &f, z, false);
        assert_int_equal(s.code, k <= 2 ? VX_ERR_STORAGE_FULL : VX_OK);
        assert_int_equal(f.count, k <= 2 ? 17 * (k - 1) : 30);
        if (k == 2) assert_non_null(strstr(s.message, "window 1 of 2: the disk is full"));
        free(f.data);
    }
    free(z.data);
    vx_device_destroy(&dev);
    vx_video_decoder_close(&d);
    small_close(m);
}

static void a_number_that_is_not_finite_is_an_error_naming_the_window(void **state)
{
    (void)state;
    static const struct {
        const char *tensor;
        float value;
    } rows[] = { { "decoder.transformer_blocks.1.ff.w2.bias", NAN }, { "decoder.proj_out.bias", INFINITY } };
    vx_device *dev = cpu_device(1);
    vx_tensor z = SMALL_LATENT("video.off_grid", 24, 9, 2, 5);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        small_model *m = small_video_tensors(&small_video_first);
        small_data(m, rows[r].tensor)[7] = rows[r].value;
        vx_video_decoder *d;
        assert_ok(small_video_open(m, &small_video_first, &d));
        film f = { 0 };
        vx_status s = video_run(d, dev, &f, z, false);
        assert_int_equal(s.code, VX_ERR_NOT_FINITE);
        assert_non_null(strstr(s.message, "window 0"));
        assert_int_equal(f.count, 0);
        vx_video_decoder_close(&d);
        small_close(m);
    }
    vx_f32_of(z)[8 * 10] = NAN; // channel 0 of latent 8, which only the second window sees
    small_model *m = small_video_tensors(&small_video_first);
    vx_video_decoder *d;
    assert_ok(small_video_open(m, &small_video_first, &d));
    film f = { 0 };
    vx_status s = video_run(d, dev, &f, z, false);
    assert_int_equal(s.code, VX_ERR_NOT_FINITE);
    assert_non_null(strstr(s.message, "window 1"));
    assert_int_equal(f.count, 17);
    free(f.data);
    vx_video_decoder_close(&d);
    small_close(m);
    free(z.data);
    vx_device_destroy(&dev);
}

static void wrong_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *says, *more, *drop, *add;
        vx_code want;
    } rows[] = {
        { "decoder tiling switched off", ", \"vae_decoder_tiling\": 0", NULL, NULL, VX_ERR_CONFIG },
        { "encoder tiling switched off", ", \"vae_encoder_tiling\": 0", NULL, NULL, VX_ERR_CONFIG },
        { "another clip length", ", \"vae_clip_length\": 16", NULL, NULL, VX_ERR_CONFIG },
        { "another token drop", ", \"vae_token_drop\": 2", NULL, NULL, VX_ERR_CONFIG },
        { "a causal decoder", ", \"causal_decoder\": true", NULL, NULL, VX_ERR_CONFIG },
        { "another pixel norm", ", \"pixel_norm_type\": \"half\"", NULL, NULL, VX_ERR_CONFIG },
        { "a missing tensor", "", "decoder.norm_out.bias", NULL, VX_ERR_TENSOR_MISSING },
        { "no layer", "", "decoder.transformer_blocks.0.ff.w1.weight", NULL, VX_ERR_TENSOR_MISSING },
        { "an unknown tensor", "", NULL, "decoder.transformer_blocks.0.attn.norm_q.weight", VX_ERR_TENSOR_UNEXPECTED },
        { "nothing wrong", "", NULL, NULL, VX_OK },
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        small_video v = small_video_first;
        v.more = rows[r].more;
        small_model *m = small_video_tensors(&v);
        if (rows[r].drop) small_drop(m, rows[r].drop);
        if (rows[r].add) SMALL_ADD(m, rows[r].add, 64);
        vx_video_decoder *d;
        vx_status s = small_video_open(m, &v, &d);
        if (s.code != rows[r].want) fail_msg("%s: VX-%d %s", rows[r].says, (int)s.code, s.message);
        vx_video_decoder_close(&d);
        small_close(m);
    }
}

static void a_deviation_of_zero_and_odd_tiles_are_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "{\"latents_mean\": [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"
        " \"latents_std\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,0,1,1]}",
        "{\"latents_mean\": [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}",
        "{\"vae_tile_size\": 64}",
        "{\"latents_mean\": [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0], \"vae_tile_size\": 72,"
        " \"latents_std\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}",
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        small_model *m = small_video_tensors(&small_video_first);
        vx_video_decoder *d = NULL;
        assert_ok(small_open(m, VX_VIDEO_VAE, rows[r]));
        assert_code(vx_video_decoder_open(&d, m->component), VX_ERR_CONFIG);
        assert_null(d);
        small_close(m);
    }
}

static void latents_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    small_model *m = small_video_tensors(&small_video_first);
    vx_video_decoder *d;
    assert_ok(small_video_open(m, &small_video_first, &d));
    vx_device *plan = NULL, *dev = cpu_device(1);
    vx_arena *arena = NULL;
    assert_ok(vx_device_plan_create(&plan, dev));
    assert_ok(vx_arena_create(plan, &arena, 0));
    static const struct {
        int64_t shape[4];
        vx_dtype dtype;
        vx_code want;
    } rows[] = {
        { { 24, 2, 4, 4 }, VX_F32, VX_ERR_RANGE },  { { 23, 7, 4, 4 }, VX_F32, VX_ERR_SHAPE },
        { { 24, 7, 1, 4 }, VX_F32, VX_ERR_RANGE },  { { 24, 7, 4, 4000 }, VX_F32, VX_ERR_RANGE },
        { { 24, 7, 4, 4 }, VX_BF16, VX_ERR_DTYPE }, { { 24, 7, 4, 4 }, VX_F32, VX_OK },
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        vx_video_decode decode = { .latent = vx_tensor_make(NULL, rows[r].dtype, 4, rows[r].shape) };
        assert_code(vx_video_decoder_run(d, plan, arena, &decode), rows[r].want);
        assert_int_equal(vx_arena_mark(arena), 0);
    }
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    vx_device_destroy(&dev);
    vx_video_decoder_close(&d);
    small_close(m);
}

// Every allocation of open and run fails once, then from there on; ends when a run meets no fault.
static void failed_allocations_are_errors_and_leave_nothing(void **state)
{
    (void)state;
    small_model *m = small_video_tensors(&small_video_second);
    vx_video_decoder *d;
    assert_ok(small_video_open(m, &small_video_second, &d));
    vx_video_decoder_close(&d);
    vx_device *plan = NULL, *dev = cpu_device(1);
    vx_arena *arena = NULL;
    assert_ok(vx_device_plan_create(&plan, dev));
    assert_ok(vx_arena_create(plan, &arena, 0));
    vx_video_decode decode = { .latent = vx_tensor_of(NULL, VX_F32, 24, 7, 4, 4) };
    for (int persistent = 0; persistent < 2; persistent++) {
        bool hit = true;
        for (int64_t k = 1; hit; k++) {
            vx_fault_arm(k, persistent);
            vx_status s = vx_video_decoder_open(&d, m->component);
            if (s.code == VX_OK) s = vx_video_decoder_run(d, plan, arena, &decode);
            hit = vx_fault_disarm();
            assert_int_equal(s.code, hit ? VX_ERR_MEMORY : VX_OK);
            vx_video_decoder_close(&d);
        }
    }
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    vx_device_destroy(&dev);
    small_close(m);
}

static vx_status count_tiles(void *user, int64_t done, int64_t total)
{
    int64_t *seen = user;
    assert_int_equal(done, ++seen[0]);
    seen[1] = total;
    return done == seen[2] ? vx_fail(VX_ERR_STORAGE_FULL, "that will do") : vx_ok();
}

static void every_operators_failure_ends_the_decode_and_progress_counts_tiles(void **state)
{
    (void)state;
    small_model *m = small_video_tensors(&small_video_second);
    vx_video_decoder *d;
    assert_ok(small_video_open(m, &small_video_second, &d));
    vx_device *plan = NULL, *dev = cpu_device(1);
    vx_arena *arena = NULL;
    assert_ok(vx_device_plan_create(&plan, dev));
    assert_ok(vx_arena_create(plan, &arena, 0));
    int64_t seen[3] = { 0 }; // done, total, where to end
    vx_video_decode decode = { .latent = vx_tensor_of(NULL, VX_F32, 24, 9, 7, 6), .user = seen, .progress = count_tiles };
    assert_ok(vx_video_decoder_run(d, plan, arena, &decode));
    assert_int_equal(seen[1], 2 * 2 * 2); // windows, rows, columns
    assert_int_equal(seen[0], seen[1]);
    int64_t calls = vx_device_plan_counts(plan).calls;
    for (int64_t k = 1; k <= seen[1]; k++) { // whoever counts may end it, too
        seen[0] = 0, seen[2] = k;
        assert_code(vx_video_decoder_run(d, plan, arena, &decode), VX_ERR_STORAGE_FULL);
        assert_int_equal(seen[0], k);
    }
    decode.progress = NULL;
    for (int64_t k = 1; k <= calls; k++) {
        vx_device_plan_fail(plan, k, VX_ERR_DEVICE);
        assert_code(vx_video_decoder_run(d, plan, arena, &decode), VX_ERR_DEVICE);
        assert_int_equal(vx_arena_mark(arena), 0);
    }
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    vx_device_destroy(&dev);
    vx_video_decoder_close(&d);
    small_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_decoders_give_the_references_frames),
        cmocka_unit_test(sizes_come_from_the_configuration_and_the_shapes),
        cmocka_unit_test(a_single_file_needs_no_configuration),
        cmocka_unit_test(half_precision_weights_are_used_as_stored),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
        cmocka_unit_test(batches_of_tiles_change_no_bit_and_half_precision_little),
        cmocka_unit_test(memory_does_not_grow_with_the_clip),
        cmocka_unit_test(a_failure_of_the_receiver_is_passed_on),
        cmocka_unit_test(a_number_that_is_not_finite_is_an_error_naming_the_window),
        cmocka_unit_test(wrong_files_are_refused),
        cmocka_unit_test(a_deviation_of_zero_and_odd_tiles_are_refused),
        cmocka_unit_test(latents_that_do_not_fit_are_refused),
        cmocka_unit_test(failed_allocations_are_errors_and_leave_nothing),
        cmocka_unit_test(every_operators_failure_ends_the_decode_and_progress_counts_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
