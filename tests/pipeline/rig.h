// A demonstration model in a scratch folder, a picture beside it, and models of it whose device the test wraps.
#ifndef VX_TESTS_PIPELINE_RIG_H
#define VX_TESTS_PIPELINE_RIG_H

#include "base/scratch.h"
#include "pipeline/internal.h"
#include "testing.h"
#include "weights/safetensors.h"

enum { SIDE = 64 };

typedef struct rig {
    scratch files;
    char model_path[600], picture[600], sound[600], lora[600], bank[600]; // the last three: of tests that fill them
    vx_context *context;
} rig;

static rig *rig_create(void)
{
    static uint8_t pixels[SIDE * SIDE * 3];
    rig *r = calloc(1, sizeof *r);
    r->files = scratch_create();
    snprintf(r->model_path, sizeof r->model_path, "%s", scratch_path(&r->files, "model"));
    snprintf(r->picture, sizeof r->picture, "%s", scratch_path(&r->files, "picture.safetensors"));
    assert_ok(vx_context_create(&r->context, &(vx_context_params){ VX_INIT(vx_context_params), .threads = 2 }));
    assert_ok(
        vx_demo_model_write(r->context, r->model_path, &(vx_demo_model_params){ VX_INIT(vx_demo_model_params), .random = true }));
    for (int i = 0; i < SIDE * SIDE * 3; i++) pixels[i] = (uint8_t)(i * 7 % 251);
    vx_safetensors_tensor picture = { "pixels", VX_U8, 4, { 1, SIDE, SIDE, 3 }, pixels };
    assert_ok(vx_safetensors_write(r->picture, true, &picture, 1, &(vx_safetensors_pair){ "fps", "24" }, 1));
    return r;
}

// A second of sound beside the picture, for those who want it.
static inline void rig_sound(rig *r)
{
    enum { SAMPLES = 32000 };
    static float wave[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) wave[i] = (float)(i % 200) / 400.0f - 0.25f;
    snprintf(r->sound, sizeof r->sound, "%s", scratch_path(&r->files, "sound.safetensors"));
    vx_safetensors_tensor sound = { "waveform", VX_F32, 2, { 1, SAMPLES }, wave };
    assert_ok(vx_safetensors_write(r->sound, true, &sound, 1, &(vx_safetensors_pair){ "sample_rate", "32000" }, 1));
}

static int close_rig(void **state)
{
    rig *r = *state;
    vx_context_destroy(&r->context);
    scratch_destroy(&r->files);
    free(r);
    return 0;
}

// A model on the processor.
static vx_model *rig_model(rig *r)
{
    vx_model *model;
    assert_ok(vx_model_open(r->context, &model,
                            &(vx_model_params){ VX_INIT(vx_model_params), .path = r->model_path, .device = "cpu" }));
    return model;
}

// From here on the model computes on `device`, which it owns.
static void rig_move(vx_model *model, vx_device *device)
{
    model->device = device;
    assert_ok(vx_device_plan_create(&model->planner, device));
}

#endif
