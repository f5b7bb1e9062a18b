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
        cmocka_unit_test(decoder_and_encoder_open_from_one_component),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
