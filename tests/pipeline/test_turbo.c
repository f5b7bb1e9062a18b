// --turbo: settings by the table of known files, lists against the denoiser specification 6.8 in every bit, and what is said
// when the user asks for something else.
#include "testing.h"

#include "pipeline/internal.h"

static const float list_4_shift_6[] = { 1, 0.947368443f, 0.857142866f, 0.666666687f, 0 };
static const float list_4_shift_12[] = { 1, 0.972972989f, 0.923076928f, 0.800000012f, 0 };
static const float sound_4[] = { 1, 0.899999976f, 0.75f, 0.5f, 0 };
static const float list_8[] = {
    1, 0.988235295f, 0.972972989f, 0.952380955f, 0.923076928f, 0.878048778f, 0.800000012f, 0.631578922f, 0
};
static const float sound_8[] = { 1, 0.954545438f, 0.899999976f, 0.833333313f, 0.75f, 0.642857134f, 0.5f, 0.300000012f, 0 };
static const float fast[] = { 0.999899864f, 0.985788345f, 0.967575252f,
                              0.943168104f, 0.909090936f, 0.857142866f,
                              0.769230783f, 0.588235319f, 0 };
static const float fast_sound[] = { 0.999666393f, 0.954148412f, 0.899519563f,
                                    0.832740128f, 0.75f,        0.642857134f,
                                    0.5f,         0.300000012f, 0 };

static const struct {
    const char *file;
    int steps;
    float shift;
    const float *video, *audio;
    bool near; // by another arithmetic than the printed list: one unit in the last place
} known[] = {
    { "minimax-h3-fl2v-turbo-4step-v1.0_768p.safetensors", 4, 6, list_4_shift_6, sound_4, false },
    { "Minimax-h3_fl2v_turbo_4step_v1.1_768p_comfyui_bf16.safetensors", 4, 6, list_4_shift_6, sound_4, false },
    { "fl2v_turbo_4step_v1.2_768p.safetensors", 4, 6, list_4_shift_6, sound_4, false },
    { "fl2v_turbo_4step_v0.1.safetensors", 4, 12, list_4_shift_12, sound_4, true },
    { "ref2v_turbo_4step_v0.1.safetensors", 4, 12, list_4_shift_12, sound_4, true },
    { "fl2v_turbo_8step_v1.0.safetensors", 8, 12, list_8, sound_8, false },
    { "fl2v_turbo_8step_v1.0_768p.safetensors", 8, 12, list_8, sound_8, false },
    { "ref2v_turbo_8step_v1.0_768p.safetensors", 8, 12, list_8, sound_8, false },
    { "MiniMax-H3-FL2VA-Acc-8Step.safetensors", 8, 12, list_8, sound_8, true },
    { "FastH3-8step-v2.safetensors", 8, 10, fast, fast_sound, false },
    { "something_of_my_own.safetensors", 8, 12, list_8, sound_8, false },
};

static vx_code resolve(vx_request r, const vx_lora *lora, vx_resolved *out, vx_notes *notes)
{
    r.struct_size = sizeof r;
    r.prompt = "a";
    r.num_frames = 124;
    r.seed_set = true;
    r.loras = lora;
    r.lora_count = lora ? 1 : 0;
    *notes = (vx_notes){ 0 };
    return vx_resolve(out, &r, NULL, false, notes).code;
}

static void is_list(const char *file, const float *got, int count, const float *want, int wanted, bool near)
{
    if (count != wanted) fail_msg("%s: %d sigmas, wanted %d", file, count, wanted);
    for (int i = 0; i < count; i++) {
        const int32_t off = (int32_t)(vx_f32_bits(got[i]) - vx_f32_bits(want[i]));
        if (off < -near || off > near) fail_msg("%s: sigma %d is %.9g, wanted %.9g", file, i, (double)got[i], (double)want[i]);
    }
}

static void known_files_have_their_lists(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const vx_lora lora = { VX_INIT(vx_lora), .path = known[i].file };
        vx_resolved r;
        vx_notes notes;
        assert_int_equal(resolve((vx_request){ .turbo = known[i].steps }, &lora, &r, &notes), VX_OK);
        is_list(known[i].file, r.sigmas.video, r.sigmas.count, known[i].video, known[i].steps + 1, known[i].near);
        is_list(known[i].file, r.sigmas.audio, r.sigmas.count, known[i].audio, known[i].steps + 1, known[i].near);
        if (r.shift != known[i].shift || r.audio_shift != 3 || r.step != VX_STEP_PLAIN || r.evaluations != known[i].steps)
            fail_msg("%s: shift %g, audio shift %g, step %d, %d steps", known[i].file, (double)r.shift, (double)r.audio_shift,
                     (int)r.step, r.evaluations);
        vx_resolved_free(&r);
        vx_notes_free(&notes);
    }
}

static bool says(const vx_notes *notes, const char *part)
{
    for (int i = 0; i < notes->count; i++)
        if (strstr(notes->text[i], part)) return true;
    return false;
}

static void what_the_user_asks_for_stays_and_is_said(void **state)
{
    (void)state;
    static const float own[] = { 1, 0.5f, 0 };
    const struct {
        vx_request r;
        const char *says;
        int steps;
        float shift;
        vx_step step;
    } cases[] = {
        { { .evaluations = 6 }, "your 6 steps", 6, 6, VX_STEP_PLAIN },
        { { .flow_shift = 12 }, "your shift 12", 4, 12, VX_STEP_PLAIN },
        { { .audio_flow_shift = 4 }, "your audio shift 4", 4, 6, VX_STEP_PLAIN },
        { { .schedule = "beta" }, "your schedule beta", 4, 6, VX_STEP_COMFYUI },
        { { .sampler = "res_multistep" }, "your sampler res_multistep", 4, 6, VX_STEP_COMFYUI },
        { { .sigmas = own, .sigma_count = 3 }, "your sigmas", 2, 6, VX_STEP_PLAIN },
    };
    const vx_lora lora = { VX_INIT(vx_lora), .path = "fl2v_turbo_4step_v1.0_768p.safetensors" };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_request request = cases[i].r;
        vx_resolved r;
        vx_notes notes;
        request.turbo = 4;
        assert_int_equal(resolve(request, &lora, &r, &notes), VX_OK);
        if (!says(&notes, cases[i].says)) fail_msg("nothing says '%s'", cases[i].says);
        if (r.evaluations != cases[i].steps || r.shift != cases[i].shift || r.step != cases[i].step)
            fail_msg("%s: %d steps, shift %g, step %d", cases[i].says, r.evaluations, (double)r.shift, (int)r.step);
        vx_resolved_free(&r);
        vx_notes_free(&notes);
    }
    // The same values as the table's are no difference.
    vx_resolved r;
    vx_notes notes;
    assert_int_equal(resolve((vx_request){ .turbo = 4, .evaluations = 4, .flow_shift = 6 }, &lora, &r, &notes), VX_OK);
    assert_int_equal(notes.count, 0);
    vx_resolved_free(&r);
}

static void contradictions_are_refused(void **state)
{
    (void)state;
    const vx_lora four = { VX_INIT(vx_lora), .path = "fl2v_turbo_4step_v1.0_768p.safetensors" };
    const vx_lora infinite = { VX_INIT(vx_lora), .path = "a", .strength_set = true, .strength = 1.0f / 0.0f };
    const vx_lora none = { VX_INIT(vx_lora) }, negative = { VX_INIT(vx_lora), .path = "a", .alpha = -1 };
    const struct {
        vx_request r;
        const vx_lora *lora;
        vx_code code;
    } cases[] = {
        { { .turbo = 8 }, &four, VX_ERR_CONFLICT },       { { .turbo = 4 }, NULL, VX_ERR_REQUIRED },
        { { .turbo = 5 }, &four, VX_ERR_RANGE },          { { .prompt = "a" }, &infinite, VX_ERR_RANGE },
        { { .prompt = "a" }, &none, VX_ERR_REQUIRED },    { { .prompt = "a" }, &negative, VX_ERR_RANGE },
        { { .lora_mode = "both" }, &four, VX_ERR_VALUE },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_resolved r;
        vx_notes notes;
        vx_code code = resolve(cases[i].r, cases[i].lora, &r, &notes);
        if (code != cases[i].code) fail_msg("case %zu: VX-%d, wanted VX-%d", i, (int)code, (int)cases[i].code);
        vx_notes_free(&notes);
    }
}

// A strength is the maker's unless the user gives one; without --turbo a known file only earns a hint.
static void strengths_and_hints(void **state)
{
    (void)state;
    vx_lora lora = { VX_INIT(vx_lora), .path = "MiniMax-H3-Turbo-Lora_ckpt850.safetensors" };
    vx_resolved r;
    vx_notes notes;
    assert_int_equal(resolve((vx_request){ .turbo = 4 }, &lora, &r, &notes), VX_OK);
    assert_true(r.lora[0].strength == 0.5f && r.schedule == VX_SCHEDULE_SIMPLE && r.step == VX_STEP_PLAIN);
    vx_resolved_free(&r);
    vx_notes_free(&notes);
    lora.strength_set = true;
    lora.strength = 1;
    assert_int_equal(resolve((vx_request){ .turbo = 4 }, &lora, &r, &notes), VX_OK);
    assert_true(r.lora[0].strength == 1 && says(&notes, "its maker advises 0.5"));
    vx_resolved_free(&r);
    vx_notes_free(&notes);
    assert_int_equal(resolve((vx_request){ .prompt = "a" }, &lora, &r, &notes), VX_OK);
    assert_true(r.evaluations == 49 && r.step == VX_STEP_OFFICIAL && says(&notes, "--turbo 4"));
    vx_resolved_free(&r);
    vx_notes_free(&notes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_files_have_their_lists),
        cmocka_unit_test(what_the_user_asks_for_stays_and_is_said),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(strengths_and_hints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
