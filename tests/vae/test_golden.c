// Both decoders on the small checkpoint of the golden folder, in both layouts, against diffusers' outputs in float32.
#include "rig.h"

static const struct {
    const char *says, *video, *audio;
} layouts[] = {
    { "official", "official/FL2VA/video_vae", "official/FL2VA/audio_vae" },
    { "diffusers", "diffusers/vae", "diffusers/audio_vae" },
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

typedef struct golden {
    const char *folder;
    vx_safetensors *vae, *t2va;
} golden;

static bool golden_open(golden *g)
{
    char path[512];
    *g = (golden){ .folder = golden_folder() };
    if (!g->folder) {
        print_message("skipped: VORTEX_GOLDEN_DATA is not set\n");
        return false;
    }
    snprintf(path, sizeof path, "%s/expected/vae.float32.safetensors", g->folder);
    assert_ok(vx_safetensors_open(&g->vae, path, NULL));
    snprintf(path, sizeof path, "%s/expected/t2va.float32.safetensors", g->folder);
    assert_ok(vx_safetensors_open(&g->t2va, path, NULL));
    return true;
}

static void golden_close(golden *g)
{
    vx_safetensors_close(&g->vae);
    vx_safetensors_close(&g->t2va);
}

static vx_component *component(const golden *g, vx_component_kind kind, const char *name)
{
    char path[512];
    vx_component *c = NULL;
    snprintf(path, sizeof path, "%s/%s", g->folder, name);
    assert_ok(vx_component_open(&c, kind, path));
    return c;
}

static const vx_safetensors_entry *entry(const vx_safetensors *file, const char *name)
{
    const vx_safetensors_entry *e = vx_safetensors_find(file, name);
    if (!e) fail_msg("no tensor %s", name);
    return e;
}

static vx_tensor tensor(const vx_safetensors *file, const char *name)
{
    const vx_safetensors_entry *e = entry(file, name);
    return vx_tensor_make((void *)(uintptr_t)e->data, e->dtype, e->rank, e->shape);
}

// Rounding as the pipeline's: half to even. At least 99.9 % equal, none off by more than one step.
static void check_bytes(const film *f, const int64_t *frames, int64_t count, vx_tensor want)
{
    int64_t size = f->height * f->width * 3, unequal = 0;
    assert_int_equal(vx_tensor_count(want), count * size);
    for (int64_t k = 0; k < count; k++) {
        const float *got = film_frame(f, frames[k]);
        const uint8_t *expected = (const uint8_t *)want.data + k * size;
        for (int64_t i = 0; i < size; i++) {
            int difference = abs((int)nearbyintf(got[i] * 255.0f) - (int)expected[i]);
            if (difference > 1) fail_msg("frame %d, value %d: off by %d", (int)frames[k], (int)i, difference);
            unequal += difference;
        }
    }
    print_message("%d of %d bytes differ\n", (int)unequal, (int)(count * size));
    assert_true(unequal * 1000 <= count * size);
}

static void for_each_layout(void (*check)(const golden *, vx_video_decoder *, vx_device *))
{
    golden g;
    if (!golden_open(&g)) return;
    vx_device *dev = cpu_device(0);
    for (int i = 0; i < LAYOUTS; i++) {
        vx_component *c = component(&g, VX_VIDEO_VAE, layouts[i].video);
        vx_video_decoder *d = NULL;
        assert_ok(vx_video_decoder_open(&d, c));
        check(&g, d, dev);
        vx_video_decoder_close(&d);
        vx_component_close(&c);
    }
    vx_device_destroy(&dev);
    golden_close(&g);
}

static void check_two_tiles(const golden *g, vx_video_decoder *d, vx_device *dev)
{
    film f = { 0 };
    assert_ok(video_run(d, dev, &f, tensor(g->vae, "decode.latents_denormalised"), true));
    assert_int_equal(f.count, 22);
    vx_tensor want = tensor(g->vae, "decode.frame_float.9");
    double error = relative_error(film_frame(&f, 9), want.data, vx_tensor_count(want));
    print_message("frame 9: relative L2 %.2e\n", error);
    assert_true(error <= 1e-5);
    check_bytes(&f, (const int64_t[]){ 0, 9, 21 }, 3, tensor(g->vae, "decode.frames_uint8.0.9.21"));
    free(f.data);
}

static void check_three_tiles(const golden *g, vx_video_decoder *d, vx_device *dev)
{
    film f = { 0 };
    assert_ok(video_run(d, dev, &f, tensor(g->vae, "decode3.latents_denormalised"), true));
    assert_int_equal(f.count, 39);
    check_bytes(&f, (const int64_t[]){ 20 }, 1, tensor(g->vae, "decode3.frame_uint8.20"));
    free(f.data);
}

static void check_request(const golden *g, vx_video_decoder *d, vx_device *dev)
{
    film f = { 0 };
    assert_ok(video_run(d, dev, &f, tensor(g->t2va, "video"), false));
    assert_int_equal(f.count, 124);
    vx_tensor first = tensor(g->t2va, "frame_float.0"), last = tensor(g->t2va, "frame_float.last");
    assert_close(film_frame(&f, 0), first.data, vx_tensor_count(first), 1e-5);
    assert_close(film_frame(&f, 123), last.data, vx_tensor_count(last), 1e-5);
    int64_t frames[16];
    for (int i = 0; i < 16; i++) frames[i] = 8 * i;
    check_bytes(&f, frames, 16, tensor(g->t2va, "frames_uint8.every8"));
    free(f.data);
}

static void video_of_two_by_two_tiles_is_the_references(void **state)
{
    (void)state;
    for_each_layout(check_two_tiles);
}

static void video_of_three_by_three_tiles_and_two_windows_is_the_references(void **state)
{
    (void)state;
    for_each_layout(check_three_tiles);
}

static void video_of_a_whole_request_is_the_references(void **state)
{
    (void)state;
    for_each_layout(check_request);
}

static void check_sound(vx_audio_decoder *d, vx_device *dev, vx_tensor latent, vx_tensor want)
{
    vx_device *plan = NULL;
    vx_arena *arena = NULL;
    vx_tensor none = want, nothing = latent;
    none.data = nothing.data = NULL;
    assert_ok(vx_device_plan_create(&plan, dev));
    assert_ok(vx_arena_create(plan, &arena, 0));
    assert_ok(vx_audio_decoder_run(d, plan, arena, none, nothing, false));
    size_t bytes = vx_arena_high(arena);
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    assert_ok(vx_arena_create(dev, &arena, bytes));
    vx_tensor wave = vx_tensor_make(malloc(vx_tensor_bytes(want)), VX_F32, want.rank, want.shape);
    assert_ok(vx_audio_decoder_run(d, dev, arena, wave, latent, false));
    double error = relative_error(wave.data, want.data, vx_tensor_count(want));
    print_message("sound: relative L2 %.2e\n", error);
    assert_true(error <= 1e-5);
    free(wave.data);
    vx_arena_destroy(&arena);
}

static void sound_is_the_references(void **state)
{
    (void)state;
    golden g;
    if (!golden_open(&g)) return;
    vx_device *dev = cpu_device(0);
    for (int i = 0; i < LAYOUTS; i++) {
        vx_component *c = component(&g, VX_AUDIO_VAE, layouts[i].audio);
        vx_audio_decoder *d = NULL;
        assert_ok(vx_audio_decoder_open(&d, c, dev));
        assert_int_equal(vx_audio_decoder_config_of(d)->hop, 800);
        assert_int_equal(vx_audio_decoder_config_of(d)->sample_rate, 32000);
        check_sound(d, dev, tensor(g.vae, "audio.decode.latents_normalised"), tensor(g.vae, "audio.decode.waveform"));
        check_sound(d, dev, tensor(g.t2va, "audio"), tensor(g.t2va, "waveform"));
        vx_audio_decoder_close(&d);
        vx_component_close(&c);
    }
    vx_device_destroy(&dev);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(video_of_two_by_two_tiles_is_the_references),
        cmocka_unit_test(video_of_three_by_three_tiles_and_two_windows_is_the_references),
        cmocka_unit_test(video_of_a_whole_request_is_the_references),
        cmocka_unit_test(sound_is_the_references),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
