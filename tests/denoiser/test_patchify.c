// Rows of latents against the formulas of the denoiser specification (1.2), on views and both ways.
#include "testing.h"

#include "denoiser/denoiser.h"

enum { C = 3, T = 2, H = 4, W = 6, A = 5 };

typedef struct fixture {
    vx_device *dev;
    float latent[C * T * H * W], rows[C * T * H * W], audio[2 * C * A], audio_rows[2 * C * A];
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_ok(vx_device_cpu_create(&f->dev, &(vx_cpu_params){ .threads = 1 }));
    for (int i = 0; i < C * T * H * W; i++) f->latent[i] = (float)i;
    for (int i = 0; i < 2 * C * A; i++) f->audio[i] = (float)i;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    vx_device_destroy(&f->dev);
    free(f);
    return 0;
}

static vx_tensor video_latent(float *x)
{
    return vx_tensor_of(x, VX_F32, C, T, H, W);
}
static vx_tensor video_rows(float *x)
{
    return vx_tensor_of(x, VX_F32, T * (H / 2) * (W / 2), C * 4);
}

static void a_row_holds_a_patch_of_every_channel(void **state)
{
    fixture *f = *state;
    assert_ok(vx_patchify(f->dev, video_rows(f->rows), video_latent(f->latent)));
    for (int c = 0; c < C; c++)
        for (int t = 0; t < T; t++)
            for (int y = 0; y < H; y++)
                for (int x = 0; x < W; x++) {
                    const int row = (t * (H / 2) + y / 2) * (W / 2) + x / 2, element = c * 4 + y % 2 * 2 + x % 2;
                    assert_true(f->rows[row * C * 4 + element] == f->latent[((c * T + t) * H + y) * W + x]);
                }
    float back[C * T * H * W];
    assert_ok(vx_unpatchify(f->dev, video_latent(back), video_rows(f->rows)));
    assert_memory_equal(back, f->latent, sizeof back);
}

static void audio_rows_are_channel_major(void **state)
{
    fixture *f = *state;
    const vx_tensor latent = vx_tensor_of(f->audio, VX_F32, 2, C, A), rows = vx_tensor_of(f->audio_rows, VX_F32, 2 * A, C);
    assert_ok(vx_patchify(f->dev, rows, latent));
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < A; k++)
            for (int c = 0; c < C; c++) assert_true(f->audio_rows[(side * A + k) * C + c] == f->audio[(side * C + c) * A + k]);
    float back[2 * C * A];
    assert_ok(vx_unpatchify(f->dev, vx_tensor_of(back, VX_F32, 2, C, A), rows));
    assert_memory_equal(back, f->audio, sizeof back);
}

// ComfyUI stores audio as [C, 2, A]: a permuted view of it is as good.
static void views_are_taken_as_they_are(void **state)
{
    fixture *f = *state;
    const vx_tensor comfy = vx_tensor_permute(vx_tensor_of(f->audio, VX_F32, C, 2, A), (const int[]){ 1, 0, 2 });
    assert_ok(vx_patchify(f->dev, vx_tensor_of(f->audio_rows, VX_F32, 2 * A, C), comfy));
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < A; k++)
            for (int c = 0; c < C; c++) assert_true(f->audio_rows[(side * A + k) * C + c] == f->audio[(c * 2 + side) * A + k]);
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    fixture *f = *state;
    const struct {
        const char *says;
        vx_tensor rows, latent;
    } cases[] = {
        { "too few rows", vx_tensor_of(f->rows, VX_F32, 11, 12), video_latent(f->latent) },
        { "too wide rows", vx_tensor_of(f->rows, VX_F32, 9, 16), video_latent(f->latent) },
        { "an odd height", vx_tensor_of(f->rows, VX_F32, 6, 12), vx_tensor_of(f->latent, VX_F32, 3, 2, 3, 4) },
        { "three sides", vx_tensor_of(f->audio_rows, VX_F32, 6, 5), vx_tensor_of(f->audio, VX_F32, 3, 5, 2) },
        { "rows of rank 1", vx_tensor_of(f->rows, VX_F32, 144), video_latent(f->latent) },
        { "no latent", video_rows(f->rows), (vx_tensor){ 0 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_status s = vx_patchify(f->dev, cases[i].rows, cases[i].latent);
        if (s.code != VX_ERR_SHAPE) fail_msg("%s: VX-%d %s", cases[i].says, (int)s.code, s.message);
        s = vx_unpatchify(f->dev, cases[i].latent, cases[i].rows);
        if (s.code != VX_ERR_SHAPE) fail_msg("%s: VX-%d %s", cases[i].says, (int)s.code, s.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_row_holds_a_patch_of_every_channel, setup, teardown),
        cmocka_unit_test_setup_teardown(audio_rows_are_channel_major, setup, teardown),
        cmocka_unit_test_setup_teardown(views_are_taken_as_they_are, setup, teardown),
        cmocka_unit_test_setup_teardown(shapes_that_do_not_fit_are_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
