// Every stage on a device whose memory the host cannot read (fence.h): the same bits as on the processor, and nobody on the
// host looks into a tensor. What holds here holds for the pages of a GPU.
#include "testing.h"

#include <unistd.h>

#include "pipeline/fence.h"
#include "pipeline/rig.h"

enum { FRAMES = 22 };

static int open_rig(void **state)
{
    rig *r = rig_create();
    rig_sound(r);
    *state = r;
    return 0;
}

// A model on the processor, or behind a fence.
static vx_model *open_model(rig *r, fence **f)
{
    vx_model *model = rig_model(r);
    if (f) {
        *f = fence_create(r->context->device);
        rig_move(model, &(*f)->base);
    }
    return model;
}

// The latents and everything decoded, as one file.
static void run(rig *r, const vx_request *request, const char *path, bool far)
{
    fence *f = NULL;
    vx_model *model = open_model(r, far ? &f : NULL);
    vx_job *job;
    assert_ok(vx_job_create(model, request, NULL, &job));
    assert_ok(vx_job_run(job));
    assert_ok(vx_job_save_tensors(job, path, true));
    if (far) assert_true(f->uploads > 4 && f->downloads > 4);
    vx_job_destroy(&job);
    vx_model_close(&model);
}

static void assert_same_files(const char *a, const char *b)
{
    FILE *f[2] = { fopen(a, "rb"), fopen(b, "rb") };
    assert_true(f[0] && f[1]);
    for (;;) {
        static char text[2][1 << 16];
        size_t n = fread(text[0], 1, sizeof text[0], f[0]);
        assert_int_equal(fread(text[1], 1, sizeof text[1], f[1]), n);
        if (n == 0) break;
        assert_memory_equal(text[0], text[1], n);
    }
    fclose(f[0]);
    fclose(f[1]);
}

static void same_bits(rig *r, const vx_request *request)
{
    char near_file[600], far_file[600];
    snprintf(near_file, sizeof near_file, "%s", scratch_path(&r->files, "near.safetensors"));
    snprintf(far_file, sizeof far_file, "%s", scratch_path(&r->files, "far.safetensors"));
    run(r, request, near_file, false);
    run(r, request, far_file, true);
    assert_same_files(near_file, far_file);
}

static vx_request request_of(const vx_condition *conditions, int count)
{
    return (vx_request){ VX_INIT(vx_request),
                         .prompt = "A lighthouse, <Picture 1>, at dawn.",
                         .width = SIDE,
                         .height = SIDE,
                         .num_frames = FRAMES,
                         .evaluations = 2,
                         .reference_short_edge = SIDE,
                         .vae_precision = "float32",
                         .seed_set = true,
                         .seed = 7,
                         .conditions = conditions,
                         .condition_count = count };
}

static void from_a_prompt(void **state)
{
    vx_request request = request_of(NULL, 0);
    same_bits(*state, &request);
    request.sampler = "res_multistep";
    request.schedule = "beta";
    request.evaluations = 4;
    request.precision = "float32";
    request.vae_precision = "float16";
    same_bits(*state, &request);
}

static void from_a_keyframe(void **state)
{
    rig *r = *state;
    const vx_condition keyframe = { VX_INIT(vx_condition), .path = r->picture, .keyframe = true };
    vx_request request = request_of(&keyframe, 1);
    same_bits(r, &request);
}

static void from_references(void **state)
{
    rig *r = *state;
    const vx_condition references[] = { { VX_INIT(vx_condition), .kind = "image", .path = r->picture },
                                        { VX_INIT(vx_condition), .kind = "audio", .path = r->sound } };
    vx_request request = request_of(references, 2);
    same_bits(r, &request);
}

// Device memory is held against the plan before anything runs: activations must fit, of the weights only a window.
static void too_little_device_memory(void **state)
{
    rig *r = *state;
    fence *f;
    vx_model *model = open_model(r, &f);
    vx_request request = request_of(NULL, 0);
    vx_plan plan = { VX_INIT(vx_plan) };
    f->memory = VX_DEVICE_RESERVE + (1 << 20);
    vx_status s = vx_plan_request(model, &request, &plan);
    assert_int_equal(s.code, VX_ERR_MEMORY_PLAN);
    assert_non_null(strstr(s.message, "device memory"));
    assert_true(plan.device_least_bytes > plan.device_available_bytes && plan.device_available_bytes == 1 << 20);
    f->memory = VX_DEVICE_RESERVE + plan.device_least_bytes;
    assert_ok(vx_plan_request(model, &request, &plan));
    assert_true(plan.device_bytes >= plan.device_least_bytes);
    vx_model_close(&model);
}

static uint64_t most_of(const vx_plan *p, int first, int last)
{
    uint64_t bytes = 0;
    for (int i = first; i <= last; i++)
        if (p->stage[i].device_bytes > bytes) bytes = p->stage[i].device_bytes;
    return bytes;
}

// What is folded of the sound's weights stays while later stages run; weights as they are in files take nothing here.
static void stages_take_what_the_plan_says(void **state)
{
    rig *r = *state;
    const vx_condition references[] = { { VX_INIT(vx_condition), .kind = "image", .path = r->picture },
                                        { VX_INIT(vx_condition), .kind = "audio", .path = r->sound } };
    for (int conditions = 0; conditions <= 2; conditions += 2) {
        fence *f;
        vx_model *model = open_model(r, &f);
        const vx_request request = request_of(references, conditions);
        vx_job *job;
        assert_ok(vx_job_create(model, &request, NULL, &job));
        const vx_plan plan = job->plan;
        assert_ok(vx_job_run(job));
        assert_int_equal(model->device_peak, most_of(&plan, VX_STAGE_TEXT, VX_STAGE_DENOISE));
        assert_int_equal(model->stage_peak[VX_TRANSFORMER] + f->held, plan.stage[VX_STAGE_DENOISE].device_bytes);
        model->device_peak = 0;
        assert_ok(vx_job_save_tensors(job, scratch_path(&r->files, "decoded.safetensors"), true));
        assert_int_equal(model->device_peak, most_of(&plan, VX_STAGE_DECODE_AUDIO, VX_STAGE_DECODE_VIDEO));
        vx_job_destroy(&job);
        // The second one finds them made; its stages take as much beside them.
        const uint64_t made = f->held;
        assert_true(made > 0);
        assert_int_equal(model->stage_peak[VX_AUDIO_VAE] + made, plan.stage[VX_STAGE_DECODE_AUDIO].device_bytes);
        vx_plan again = { VX_INIT(vx_plan) };
        assert_ok(vx_plan_request(model, &request, &again));
        assert_int_equal(again.stage[VX_STAGE_DECODE_VIDEO].device_bytes + made, plan.stage[VX_STAGE_DECODE_VIDEO].device_bytes);
        vx_model_close(&model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(from_a_prompt), cmocka_unit_test(from_a_keyframe),
                                        cmocka_unit_test(from_references), cmocka_unit_test(too_little_device_memory),
                                        cmocka_unit_test(stages_take_what_the_plan_says) };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
