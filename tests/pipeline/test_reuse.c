// Requests in turn on one model: what one leaves for the next saves work and never changes a bit, whatever the order. On a device
// that records (tape.h), so that a recording that is taken for another one's shows in the latents.
#include "testing.h"

#include <malloc.h>

#include "pipeline/rig.h"
#include "pipeline/tape.h"

enum { KINDS = 18, HEADS = 4, STRETCHES = 2 }; // of an evaluation of the rig's model, which has four blocks

// An adapter with a head for each of HEADS stretches of the schedule, for pictures alone.
static void write_bank(rig *r)
{
    vx_model *model;
    assert_ok(vx_model_open(r->context, &model, &(vx_model_params){ VX_INIT(vx_model_params), .path = r->model_path }));
    assert_ok(vx_model_denoiser(model));
    const int64_t hidden = vx_denoiser_config_of(model->denoiser)->hidden,
                  out = 4 * vx_denoiser_config_of(model->denoiser)->latent_channels;
    float *weight = malloc((size_t)(HEADS * out * hidden) * sizeof *weight), *bias = calloc((size_t)(HEADS * out), sizeof *bias);
    for (int64_t i = 0; i < HEADS * out * hidden; i++) weight[i] = (float)(i * 37 % 101 - 50) / 500;
    const vx_safetensors_tensor tensors[] = { { "proj_out.weight", VX_F32, 3, { HEADS, out, hidden }, weight },
                                              { "proj_out.bias", VX_F32, 2, { HEADS, out }, bias } };
    const vx_safetensors_pair about[] = { { "key_format", "minimax-h3-pdd-fl2va" }, { "pdd_num_steps", "4" } };
    snprintf(r->bank, sizeof r->bank, "%s", scratch_path(&r->files, "bank.safetensors"));
    assert_ok(vx_safetensors_write(r->bank, true, tensors, 2, about, 2));
    free(weight);
    free(bias);
    vx_model_close(&model);
}

static int open_rig(void **state)
{
    rig *r = rig_create();
    snprintf(r->lora, sizeof r->lora, "%s/adapters/diffusers.safetensors", VX_TEST_DATA);
    write_bank(r);
    *state = r;
    return 0;
}

// A model on a device that records.
static vx_model *open_model(rig *r, tape **t)
{
    vx_model *model = rig_model(r);
    *t = tape_create(r->context->device);
    rig_move(model, &(*t)->base);
    return model;
}

// ---- requests ----
typedef struct asked {
    vx_request request;
    vx_lora lora;
    vx_condition keyframe;
} asked;

// Everything that a recording depends on changes in one of them while as much as can be stays: sizes, the same number of rows in
// another shape, text, steps, format, adapters (all addresses stay), conditions.
static const vx_request *request_of(const rig *r, int kind, asked *a)
{
    vx_request *q = &a->request;
    *q = (vx_request){ VX_INIT(vx_request), .prompt = "A lighthouse.",  .width = SIDE,    .height = SIDE, .num_frames = 22,
                       .evaluations = 3,    .vae_precision = "float32", .seed_set = true, .seed = 7,      .latents_only = true };
    a->lora = (vx_lora){ VX_INIT(vx_lora), .path = r->lora, .strength_set = true, .strength = 1 };
    a->keyframe = (vx_condition){ VX_INIT(vx_condition), .path = r->picture, .keyframe = true };
    switch (kind) {
    case 1: q->seed = 8; break;
    case 2: q->width = 96; break;
    case 3: q->height = 96; break;
    case 4: q->prompt = "A lighthouse on a cliff above the sea, at dawn."; break;
    case 5: q->evaluations = 2; break;
    case 6: q->precision = "float32"; break;
    case 7:
    case 8:
    case 9:
        q->loras = &a->lora;
        q->lora_count = 1;
        if (kind == 8) a->lora.strength = 0.5f;
        if (kind == 9) q->lora_mode = "merge";
        break;
    case 10:
    case 11:
        q->conditions = &a->keyframe;
        q->condition_count = 1;
        if (kind == 11) a->keyframe.frame = -1;
        break;
    case 12: q->sampler = "res_multistep", q->schedule = "beta", q->evaluations = 4; break;
    case 13: q->num_frames = 39; break;
    case 14: q->flow_shift = 5; break;
    case 15: q->flow_shift = 7; break;
    case 16:
        q->evaluations = HEADS;
        a->lora.path = r->bank;
        q->loras = &a->lora;
        q->lora_count = 1;
        break;
    case 17:
        a->keyframe = (vx_condition){ VX_INIT(vx_condition), .kind = "image", .path = r->picture };
        q->conditions = &a->keyframe;
        q->condition_count = 1;
        q->reference_short_edge = SIDE;
        break;
    default: break;
    }
    return q;
}

typedef struct outcome {
    float *video, *audio;
    int64_t video_shape[4], audio_shape[3];
    vx_denoiser_reuse reuse;
    bool text, conditions;
} outcome;

static size_t bytes_of(const int64_t *shape, int rank)
{
    size_t bytes = sizeof(float);
    for (int i = 0; i < rank; i++) bytes *= (size_t)shape[i];
    return bytes;
}

static outcome finish(vx_job *job)
{
    outcome o = { .video = NULL };
    assert_ok(vx_job_run(job));
    const float *video = vx_job_video_latent(job, o.video_shape), *audio = vx_job_audio_latent(job, o.audio_shape);
    o.video = malloc(bytes_of(o.video_shape, 4));
    o.audio = malloc(bytes_of(o.audio_shape, 3));
    memcpy(o.video, video, bytes_of(o.video_shape, 4));
    memcpy(o.audio, audio, bytes_of(o.audio_shape, 3));
    o.reuse = job->reuse;
    o.text = job->text_reused;
    o.conditions = job->conditions_reused;
    vx_job_destroy(&job);
    return o;
}

static outcome run_request(vx_model *model, const vx_request *request)
{
    vx_job *job;
    assert_ok(vx_job_create(model, request, NULL, &job));
    return finish(job);
}

static outcome run(const rig *r, vx_model *model, int kind)
{
    asked a;
    return run_request(model, request_of(r, kind, &a));
}

static void outcome_free(outcome *o)
{
    free(o->video);
    free(o->audio);
    *o = (outcome){ .video = NULL };
}

// As the only request of its model, without recordings.
static const outcome *alone(rig *r, int kind)
{
    static outcome known[KINDS];
    if (known[kind].video) return &known[kind];
    tape *t;
    vx_model *model = open_model(r, &t);
    vx_device_graphs(model->device, false);
    known[kind] = run(r, model, kind);
    assert_int_equal(t->played, 0);
    vx_model_close(&model);
    return &known[kind];
}

static outcome compare(rig *r, int kind, outcome got)
{
    const outcome *want = alone(r, kind);
    assert_memory_equal(got.video_shape, want->video_shape, sizeof got.video_shape);
    assert_memory_equal(got.audio_shape, want->audio_shape, sizeof got.audio_shape);
    if (memcmp(got.video, want->video, bytes_of(got.video_shape, 4)) != 0) fail_msg("request %d: another picture", kind);
    if (memcmp(got.audio, want->audio, bytes_of(got.audio_shape, 3)) != 0) fail_msg("request %d: another sound", kind);
    const outcome told = { .reuse = got.reuse, .text = got.text };
    outcome_free(&got);
    return told;
}

static outcome check(rig *r, vx_model *model, int kind)
{
    return compare(r, kind, run(r, model, kind));
}

// ---- tests ----
// Partition, adapters and text are the model's, and each job has its own when it runs.
static void jobs_made_before_others_run_have_their_bits(void **state)
{
    rig *r = *state;
    static const int pairs[][2] = { { 0, 17 }, { 17, 0 }, { 10, 17 }, { 0, 7 }, { 7, 8 }, { 4, 16 } };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        tape *t;
        vx_model *model = open_model(r, &t);
        asked a[2];
        vx_job *job[2];
        for (int k = 0; k < 2; k++) assert_ok(vx_job_create(model, request_of(r, pairs[i][k], &a[k]), NULL, &job[k]));
        for (int k = 0; k < 2; k++) (void)compare(r, pairs[i][k], finish(job[k]));
        vx_model_close(&model);
    }
}

static void rewrite(const char *path, const char *from, const char *to)
{
    static char text[1 << 16], *at;
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    const size_t size = fread(text, 1, sizeof text - 1, f);
    text[size] = 0;
    at = strstr(text, from);
    assert_true(at && strlen(from) == strlen(to));
    memcpy(at, to, strlen(to));
    rewind(f);
    assert_int_equal(fwrite(text, 1, size, f), size);
    fclose(f);
}

static double shift_of(const vx_job *job)
{
    return (double)job->request.shift;
}

// Whichever came before, and told so after others came.
static void a_partition_has_its_own_shift_and_name(void **state)
{
    rig *r = *state;
    char index[700], *json;
    snprintf(index, sizeof index, "%s/Ref2VA/model_index.json", r->model_path);
    rewrite(index, "12.0", "10.5");
    vx_model *model = rig_model(r);
    asked a[2];
    for (int turn = 0; turn < 2; turn++) {
        vx_job *text, *references;
        assert_ok(vx_job_create(model, request_of(r, 0, &a[0]), NULL, &text));
        assert_ok(vx_job_create(model, request_of(r, 17, &a[1]), NULL, &references));
        assert_true(shift_of(text) == 12 && shift_of(references) == 10.5);
        assert_ok(vx_job_result(text, &json));
        assert_non_null(strstr(json, "\"variant\":\"fl2va\""));
        assert_null(strstr(json, "Ref2VA"));
        vx_text_free(json);
        vx_job_destroy(&text);
        vx_job_destroy(&references);
    }
    vx_model_close(&model);
    rewrite(index, "10.5", "12.0");
}

static void any_order_has_the_bits_of_single_requests(void **state)
{
    rig *r = *state;
    tape *t;
    vx_model *model = open_model(r, &t);
    uint32_t random = 1;
    // Pairs that differ in one thing first, there and back; then as it comes.
    for (int kind = 1; kind < KINDS; kind++) {
        (void)check(r, model, 0);
        (void)check(r, model, kind);
    }
    for (int i = 0; i < 60; i++) {
        random = random * 1664525u + 1013904223u;
        (void)check(r, model, (int)(random >> 16) % (i < 30 ? KINDS : 4));
    }
    assert_true(t->played > 100);
    vx_model_close(&model);
}

static void a_request_of_a_known_shape_is_replayed_from_its_first_step(void **state)
{
    rig *r = *state;
    // Steps that are replayed, tables and text that are not made again, for requests in this order.
    static const struct {
        const char *says;
        int kind, replayed;
        bool tables, text;
    } turns[] = {
        { "by itself, recorded, replayed", 0, 1, false, false },
        { "another seed", 1, 3, true, true },
        { "the same", 0, 3, true, true },
        { "wider: other addresses, the same tables", 2, 1, true, true },
        { "A", 0, 3, true, true },
        { "B", 2, 3, true, true },
        { "A", 1, 3, true, true },
        { "taller instead: as many rows, the same operators", 3, 3, true, true },
        { "another text", 4, 1, true, false },
        { "two steps: other tables", 5, 0, false, false },
        { "three again", 0, 3, false, true },
        { "an adapter: other numbers at the same addresses", 7, 1, false, true },
        { "less of it", 8, 1, false, true },
        { "the same", 8, 3, true, true },
        { "without it", 0, 1, false, true },
        { "another shift", 14, 1, false, true },
        { "other timesteps, as many", 15, 3, false, true },
        { "in float32", 6, 1, false, false },
        { "another head at every step", 16, HEADS - 2, false, false },
        { "again", 16, HEADS, true, true },
    };
    tape *t;
    vx_model *model = open_model(r, &t);
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        const int64_t played = t->played, passing = t->passing;
        const outcome o = check(r, model, turns[i].kind);
        if (o.reuse.replayed != turns[i].replayed || o.reuse.tables != turns[i].tables || o.text != turns[i].text)
            fail_msg("turn %zu (%s): %d replayed, tables %d, text %d", i, turns[i].says, (int)o.reuse.replayed, o.reuse.tables,
                     o.text);
        assert_int_equal(t->played - played, STRETCHES * turns[i].replayed);
        if (turns[i].tables) assert_int_equal(t->passing, passing); // no modulation weight was looked at
        else assert_true(t->passing > passing);
    }
    vx_model_close(&model);
}

static void a_shape_gives_way_to_four_others(void **state)
{
    rig *r = *state;
    tape *t;
    vx_model *model = open_model(r, &t);
    static const int turns[][2] = { { 0, 1 }, { 2, 1 }, { 6, 1 }, { 4, 1 }, { 0, 3 }, { 13, 1 }, { 4, 3 }, { 0, 3 }, { 2, 1 } };
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++)
        assert_int_equal(check(r, model, turns[i][0]).reuse.replayed, turns[i][1]);
    vx_model_close(&model);
}

static void without_graphs_tables_are_reused_alone(void **state)
{
    rig *r = *state;
    tape *t;
    vx_model *model = open_model(r, &t);
    vx_device_graphs(model->device, false);
    assert_false(check(r, model, 0).reuse.tables);
    const outcome o = check(r, model, 1);
    assert_true(o.reuse.tables && o.text);
    assert_int_equal(o.reuse.replayed, 0);
    vx_model_close(&model);
}

static void conditions_are_encoded_once(void **state)
{
    rig *r = *state;
    tape *t;
    vx_model *model = open_model(r, &t);
    asked a;
    vx_request request = *request_of(r, 10, &a);
    for (int i = 0; i < 3; i++) {
        request.seed = (uint64_t)i;
        outcome o = run_request(model, &request);
        assert_int_equal(o.conditions, i > 0);
        assert_int_equal(o.text, i > 0);
        outcome_free(&o);
    }
    vx_model_close(&model);
}

static void fifty_requests_have_their_bits_and_leave_no_more_than_five(void **state)
{
    rig *r = *state;
    tape *t;
    vx_model *model = open_model(r, &t);
    static const int turns[] = { 0, 2, 1, 4, 5 };
    size_t held = 0, idle = 0, kept = 0, heap = 0;
    for (int i = 0; i < 50; i++) {
        (void)check(r, model, turns[i % 5]);
        assert_int_equal(t->held, 0);
        if (i % 5 != 4 || i < 9) continue;
        if (i == 9) held = t->held, idle = t->idle_bytes, kept = vx_denoiser_keep_bytes(model->keep), heap = mallinfo2().uordblks;
        assert_int_equal(t->held, held);
        assert_int_equal(t->idle_bytes, idle);
        assert_int_equal(vx_denoiser_keep_bytes(model->keep), kept);
        assert_true(mallinfo2().uordblks < heap + (32 << 10));
    }
    vx_model_close(&model);
}

static void tables_are_planned_and_go_where_memory_is_short(void **state)
{
    rig *r = *state;
    tape *t;
    vx_model *model = open_model(r, &t);
    asked a;
    vx_request request = *request_of(r, 0, &a);
    vx_plan plan = { VX_INIT(vx_plan) };
    assert_ok(vx_plan_request(model, &request, &plan));
    const uint64_t all = plan.host_bytes;
    request.memory_limit = all;
    outcome o = run_request(model, &request);
    const size_t kept = vx_denoiser_keep_bytes(model->keep);
    assert_int_equal(kept, o.reuse.table_bytes);
    assert_true(kept > 0);
    outcome_free(&o);
    // A byte less: they are given up, and the request runs all the same.
    request.memory_limit = all - 1;
    o = run_request(model, &request);
    assert_false(o.reuse.tables);
    assert_int_equal(vx_denoiser_keep_bytes(model->keep), 0);
    outcome_free(&o);
    assert_ok(vx_plan_request(model, &request, &plan));
    assert_int_equal(plan.host_bytes, all - kept);
    request.memory_limit = all - kept - 1;
    assert_int_equal(vx_plan_request(model, &request, &plan).code, VX_ERR_MEMORY_PLAN);
    vx_model_close(&model);
}

static void recordings_are_given_back_before_a_request_is_refused(void **state)
{
    rig *r = *state;
    tape *t;
    vx_model *model = open_model(r, &t);
    asked a;
    const vx_request *request = request_of(r, 0, &a);
    (void)check(r, model, 0);
    (void)check(r, model, 2);
    vx_plan plan = { VX_INIT(vx_plan) };
    assert_ok(vx_plan_request(model, request, &plan));
    t->memory = VX_DEVICE_RESERVE + plan.device_least_bytes + 2 * STRETCHES * TAPE_BYTES;
    assert_int_equal(check(r, model, 0).reuse.replayed, 3);
    t->memory -= 1;                                           // too little for two of them
    assert_in_range(check(r, model, 0).reuse.replayed, 1, 2); // as the addresses are the same or not
    t->memory = VX_DEVICE_RESERVE + plan.device_least_bytes - 1;
    assert_int_equal(vx_plan_request(model, request, &plan).code, VX_ERR_MEMORY_PLAN);
    vx_model_close(&model);
}

static void a_request_that_failed_leaves_nothing_wrong(void **state)
{
    rig *r = *state;
    tape *t;
    vx_model *model = open_model(r, &t);
    asked a;
    for (int turn = 0; turn < 3; turn++) {
        vx_job *job;
        assert_ok(vx_job_create(model, request_of(r, 0, &a), NULL, &job));
        vx_job_cancel(job);
        assert_int_equal(vx_job_run(job).code, VX_ERR_CANCELLED);
        vx_job_destroy(&job);
        (void)check(r, model, 0);
        (void)check(r, model, 7);
    }
    vx_model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_made_before_others_run_have_their_bits),
        cmocka_unit_test(a_partition_has_its_own_shift_and_name),
        cmocka_unit_test(any_order_has_the_bits_of_single_requests),
        cmocka_unit_test(a_request_of_a_known_shape_is_replayed_from_its_first_step),
        cmocka_unit_test(a_shape_gives_way_to_four_others),
        cmocka_unit_test(without_graphs_tables_are_reused_alone),
        cmocka_unit_test(conditions_are_encoded_once),
        cmocka_unit_test(fifty_requests_have_their_bits_and_leave_no_more_than_five),
        cmocka_unit_test(tables_are_planned_and_go_where_memory_is_short),
        cmocka_unit_test(recordings_are_given_back_before_a_request_is_refused),
        cmocka_unit_test(a_request_that_failed_leaves_nothing_wrong),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
