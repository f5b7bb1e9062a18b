// Both encoders on the small checkpoint of the golden folder, in both layouts, against diffusers' outputs in float32.
#include "small_encoder.h"

static const struct {
    const char *says, *video, *audio;
} layouts[] = {
    { "official", "official/FL2VA/video_vae", "official/FL2VA/audio_vae" },
    { "diffusers", "diffusers/vae", "diffusers/audio_vae" },
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static vx_safetensors *golden_open(const char *name)
{
    char path[512];
    vx_safetensors *file = NULL;
    if (!golden_folder()) {
        print_message("skipped: VORTEX_GOLDEN_DATA is not set\n");
        return NULL;
    }
    snprintf(path, sizeof path, "%s/%s.safetensors", golden_folder(), name);
    assert_ok(vx_safetensors_open(&file, path, NULL));
    return file;
}

static vx_component *component(vx_component_kind kind, const char *name)
{
    char path[512];
    vx_component *c = NULL;
    snprintf(path, sizeof path, "%s/%s", golden_folder(), name);
    assert_ok(vx_component_open(&c, kind, path));
    return c;
}

static vx_tensor tensor(const vx_safetensors *file, const char *name)
{
    const vx_safetensors_entry *e = vx_safetensors_find(file, name);
    if (!e) fail_msg("no tensor %s", name);
    return vx_tensor_make((void *)(uintptr_t)e->data, e->dtype, e->rank, e->shape);
}

static void check(const char *says, vx_tensor got, vx_tensor want, double limit)
{
    assert_int_equal(vx_tensor_count(got), vx_tensor_count(want));
    double error = relative_error(got.data, want.data, vx_tensor_count(want));
    print_message("%s: relative L2 %.2e\n", says, error);
    assert_true(error <= limit);
}

static void check_pictures(const vx_video_encoder *e, vx_device *dev, const vx_safetensors *file)
{
    static const struct {
        const char *pixels, *mean, *logvar;
        int64_t frames;
    } clips[] = {
        { "encode.pixels_uint8", "encode.image.mean", "encode.image.logvar", 1 },
        { "encode.pixels_uint8", "encode.video.mean", "encode.video.logvar", 22 },
        { "encode3.pixels_uint8", "encode3.image.mean", NULL, 1 },
    };
    for (size_t i = 0; i < sizeof clips / sizeof *clips; i++) {
        vx_tensor pixels = tensor(file, clips[i].pixels);
        moments got;
        assert_ok(encode_run(e, dev, clip_of(pixels.data, clips[i].frames, pixels.shape[1], pixels.shape[2]), &got));
        check(clips[i].mean, got.mean, tensor(file, clips[i].mean), 1e-5);
        if (clips[i].logvar) check(clips[i].logvar, got.logvar, tensor(file, clips[i].logvar), 1e-5);
        moments_free(&got);
    }
}

static void moments_are_the_references(void **state)
{
    (void)state;
    vx_safetensors *file = golden_open("expected/vae.float32");
    if (!file) return;
    vx_device *dev = cpu_device(0);
    for (int i = 0; i < LAYOUTS; i++) {
        vx_component *c = component(VX_VIDEO_VAE, layouts[i].video);
        vx_video_encoder *e = NULL;
        assert_ok(vx_video_encoder_open(&e, c));
        check_pictures(e, dev, file);
        vx_video_encoder_close(&e);
        vx_component_close(&c);
    }
    vx_device_destroy(&dev);
    vx_safetensors_close(&file);
}

static void sound_is_the_references(void **state)
{
    (void)state;
    static const char *const sounds[][2] = { { "audio.encode.waveform", "audio.encode.mean" },
                                             { "audio.encode_odd.waveform", "audio.encode_odd.mean" } };
    vx_safetensors *file = golden_open("expected/vae.float32");
    if (!file) return;
    vx_device *dev = cpu_device(0);
    for (int i = 0; i < LAYOUTS; i++) {
        vx_component *c = component(VX_AUDIO_VAE, layouts[i].audio);
        vx_audio_encoder *e = NULL;
        assert_ok(vx_audio_encoder_open(&e, c, dev));
        for (int k = 0; k < 2; k++) {
            vx_tensor mean;
            assert_ok(listen_run(e, dev, tensor(file, sounds[k][0]), 320, &mean));
            check(sounds[k][1], mean, tensor(file, sounds[k][1]), 3e-6);
            free(mean.data);
        }
        vx_audio_encoder_close(&e);
        vx_component_close(&c);
    }
    vx_device_destroy(&dev);
    vx_safetensors_close(&file);
}

// Of 45 frames at 30 a second those that 24 a second show (media specification, B7): frame i fills slots up to that of i+1.
static uint8_t *at_24(vx_tensor pixels, int64_t slots)
{
    size_t frame = (size_t)(pixels.shape[1] * pixels.shape[2] * 3);
    uint8_t *out = malloc((size_t)slots * frame);
    for (int64_t i = 0, slot = 0; i < pixels.shape[0]; i++)
        for (; slot < (48 * (i + 1) + 30) / 60 && slot < slots; slot++)
            memcpy(out + (size_t)slot * frame, (const uint8_t *)pixels.data + (size_t)i * frame, frame);
    return out;
}

// The reference video of the golden ref2va request, which needs no resizing.
static void condition_of_a_video_is_the_references(void **state)
{
    (void)state;
    vx_safetensors *file = golden_open("inputs/motion");
    if (!file) return;
    vx_safetensors *expected = golden_open("expected/ref2va.float32");
    vx_device *dev = cpu_device(0);
    vx_component *c = component(VX_VIDEO_VAE, "diffusers/vae");
    vx_video_encoder *e = NULL;
    moments m;
    assert_ok(vx_video_encoder_open(&e, c));
    vx_tensor pixels = tensor(file, "pixels"), want = tensor(expected, "condition_latents.1");
    uint8_t *frames = at_24(pixels, 22);
    assert_ok(encode_run(e, dev, clip_of(frames, 22, pixels.shape[1], pixels.shape[2]), &m));
    int64_t count = vx_tensor_count(want), unequal = 0;
    assert_int_equal(count, vx_tensor_count(m.mean));
    float *z = malloc((size_t)count * sizeof *z);
    vx_video_condition(e, m.mean.data, m.logvar.data, count / 24, z);
    for (int64_t i = 0; i < count; i++) {
        float expect = vx_f32_of(want)[i], difference = fabsf(z[i] - expect);
        assert_true(difference <= 4e-3f * (1.0f + fabsf(expect))); // one step of float16, on 2 % of them (6.1)
        unequal += difference > 1e-6f * (1.0f + fabsf(expect));
    }
    print_message("%d of %d condition values are a float16 step away\n", (int)unequal, (int)count);
    assert_true(unequal * 50 <= count);
    free(z);
    free(frames);
    moments_free(&m);
    vx_video_encoder_close(&e);
    vx_component_close(&c);
    vx_device_destroy(&dev);
    vx_safetensors_close(&expected);
    vx_safetensors_close(&file);
}

// The stereo reference of the golden ref2va_talk request, at 32 kHz already: rows [channel, latent], normalised.
static void condition_of_a_sound_is_the_references(void **state)
{
    (void)state;
    vx_safetensors *file = golden_open("inputs/stereo");
    if (!file) return;
    vx_safetensors *expected = golden_open("expected/ref2va_talk.float32");
    vx_device *dev = cpu_device(0);
    vx_component *c = component(VX_AUDIO_VAE, "diffusers/audio_vae");
    vx_audio_encoder *e = NULL;
    vx_tensor mean, want = tensor(expected, "audio_condition_latents.1");
    assert_ok(vx_audio_encoder_open(&e, c, dev));
    assert_ok(listen_run(e, dev, tensor(file, "waveform"), 320, &mean));
    const vx_audio_encoder_config *g = vx_audio_encoder_config_of(e);
    vx_tensor rows = vx_tensor_of(malloc(vx_tensor_bytes(mean)), VX_F32, want.shape[0], want.shape[1]);
    for (int64_t r = 0; r < rows.shape[0]; r++)
        for (int64_t k = 0; k < rows.shape[1]; k++) {
            int64_t t = mean.shape[2], ch = r / t;
            float mu = vx_f32_of(mean)[(ch * rows.shape[1] + k) * t + r % t];
            vx_f32_of(rows)[r * rows.shape[1] + k] = (mu - g->latents_mean[k]) / g->latents_std[k];
        }
    check("audio_condition_latents.1", rows, want, 3e-6);
    free(rows.data);
    free(mean.data);
    vx_audio_encoder_close(&e);
    vx_component_close(&c);
    vx_device_destroy(&dev);
    vx_safetensors_close(&expected);
    vx_safetensors_close(&file);
}

// One component serves both halves, in either order.
static void decoder_and_encoder_open_from_one_component(void **state)
{
    (void)state;
    vx_safetensors *file = golden_open("expected/vae.float32");
    if (!file) return;
    vx_device *dev = cpu_device(1);
    for (int order = 0; order < 2; order++) {
        vx_component *video = component(VX_VIDEO_VAE, layouts[order].video);
        vx_component *audio = component(VX_AUDIO_VAE, layouts[order].audio);
        vx_video_decoder *vd = NULL;
        vx_video_encoder *ve = NULL;
        vx_audio_decoder *ad = NULL;
        vx_audio_encoder *ae = NULL;
        if (order) assert_ok(vx_video_encoder_open(&ve, video));
        assert_ok(vx_video_decoder_open(&vd, video));
        if (!order) assert_ok(vx_video_encoder_open(&ve, video));
        if (order) assert_ok(vx_audio_encoder_open(&ae, audio, dev));
        assert_ok(vx_audio_decoder_open(&ad, audio, dev));
        if (!order) assert_ok(vx_audio_encoder_open(&ae, audio, dev));
        assert_int_equal(vx_audio_encoder_config_of(ae)->hop, vx_audio_decoder_config_of(ad)->hop);
        vx_video_encoder_close(&ve);
        vx_video_decoder_close(&vd);
        vx_audio_encoder_close(&ae);
        vx_audio_decoder_close(&ad);
        vx_component_close(&video);
        vx_component_close(&audio);
    }
    vx_device_destroy(&dev);
    vx_safetensors_close(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_are_the_references),
        cmocka_unit_test(sound_is_the_references),
        cmocka_unit_test(condition_of_a_video_is_the_references),
        cmocka_unit_test(condition_of_a_sound_is_the_references),
        cmocka_unit_test(decoder_and_encoder_open_from_one_component),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
