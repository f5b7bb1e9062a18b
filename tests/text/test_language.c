// The language model against transformers: a tiny encoder whose weights come from a formula (tools/make_language_vectors.py),
// and the golden checkpoint when it is there.
#include "testing.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint.h"
#include "text/language.h"
#include "text/presentation.h"
#include "text/rotary.h"

static const char CONFIG[] =
    "{\"model_type\": \"qwen3_vl\", \"text_config\": {\"attention_bias\": %s, \"head_dim\": %d, \"hidden_act\": \"silu\","
    "\"hidden_size\": 32, \"intermediate_size\": 40, \"num_attention_heads\": 4, \"num_hidden_layers\": 51,"
    "\"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, \"%s\": {\"mrope_interleaved\": %s, \"mrope_section\":"
    "[4, 2, 2], \"rope_type\": \"default\"%s}%s, \"vocab_size\": 64}}";

// ---- a checkpoint from a formula ----
typedef struct variant {
    const char *says;
    int layers;                                                            // 0 = 51
    int head_dim;                                                          // in the configuration; 0 = 16
    const char *bias, *rope, *interleaved, *in_rope, *beside_rope, *extra; // NULL = usual
    bool no_config;
    const char *infinite; // a tensor whose first element is infinite
    bool first_only;      // layers after the first add nothing to the residual stream
    vx_code want;
    const char *message;
} variant;

static void write_checkpoint(checkpoint *c, const variant *v)
{
    begin_checkpoint(c);
    put_language(c, v->layers ? v->layers : LAYERS);
    put(c, "model.language_model.norm.weight", HIDDEN, 0); // not read, and not in the way
    put(c, "lm_head.weight", VOCABULARY, HIDDEN);
    put(c, "model.visual.pos_embed.weight", 4, 8);
    if (v->extra) put(c, v->extra, 4, 8);
    for (int i = 0; i < c->count; i++)
        if (v->infinite && strcmp(v->infinite, c->name[i]) == 0) *(uint16_t *)(uintptr_t)c->tensor[i].data = 0x7f80;
    for (int i = 0; i < c->count && v->first_only; i++) {
        bool adds = strstr(c->name[i], "o_proj") || strstr(c->name[i], "down_proj");
        size_t bytes = (size_t)(c->tensor[i].shape[0] * c->tensor[i].shape[1]) * sizeof(uint16_t);
        if (adds && !strstr(c->name[i], "layers.0.")) memset((void *)(uintptr_t)c->tensor[i].data, 0, bytes);
    }
    char config[1024];
    write_tensors(c);
    snprintf(config, sizeof config, CONFIG, v->bias ? v->bias : "false", v->head_dim ? v->head_dim : HEAD_DIM,
             v->rope ? v->rope : "rope_scaling", v->interleaved ? v->interleaved : "true", v->in_rope ? v->in_rope : "",
             v->beside_rope ? v->beside_rope : ", \"rope_theta\": 5000000");
    if (!v->no_config) write_text(c->folder, "config.json", config);
}

// ---- running ----
static size_t planned_bytes(const vx_language *l, vx_device *dev, vx_dtype act, const vx_language_run *run)
{
    vx_device *plan;
    vx_arena *arena;
    assert_ok(vx_device_plan_create(&plan, dev));
    assert_ok(vx_arena_create(plan, &arena, 0));
    vx_tensor out = vx_arena_tensor(arena, act, run->rows, vx_language_config_of(l)->hidden);
    vx_language_run shapes_only = { .rows = run->rows };
    assert_ok(vx_language_encode(l, plan, arena, out, &shapes_only));
    size_t bytes = vx_arena_high(arena);
    assert_ok(vx_device_reserve(dev, vx_device_plan_counts(plan).scratch));
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    return bytes;
}

// The result widened to f32; free it.
static float *run_on(const vx_language *l, vx_device *dev, vx_dtype act, const vx_language_run *run)
{
    vx_arena *arena;
    size_t bytes = planned_bytes(l, dev, act, run);
    assert_ok(vx_arena_create(dev, &arena, bytes));
    int64_t hidden = vx_language_config_of(l)->hidden, count = run->rows * hidden;
    vx_tensor out = vx_arena_tensor(arena, act, run->rows, hidden);
    size_t mark = vx_arena_mark(arena);
    assert_ok(vx_language_encode(l, dev, arena, out, run));
    assert_int_equal(vx_arena_high(arena), bytes); // the plan takes the same path
    assert_int_equal(vx_arena_mark(arena), mark);  // scratch is given back
    float *result = malloc((size_t)count * sizeof *result);
    for (int64_t i = 0; i < count; i++)
        result[i] = act == VX_BF16 ? vx_bf16_to_f32(((uint16_t *)out.data)[i]) : vx_f32_of(out)[i];
    vx_arena_destroy(&arena);
    return result;
}

static float *run_with(const vx_language *l, vx_dtype act, const vx_language_run *run, int threads)
{
    vx_device *dev;
    assert_ok(vx_device_cpu_create(&dev, &(vx_cpu_params){ .threads = threads }));
    float *result = run_on(l, dev, act, run);
    vx_device_destroy(&dev);
    return result;
}

// f32: two correct programs differ by rounding alone. bf16: a relative change of 1e-6 in the exponentials of the softmax moves
// a row as far as f32 is away (text-encoder specification, 9), so two bf16 programs are at most the reference's own distance
// from f32 apart in each of them, sqrt(2) of it together. Row 0 sees neither softmax nor rotation and must be equal.
static void compare(const char *name, const float *got, const float *want, const float *other, int64_t rows, int64_t columns,
                    vx_dtype act)
{
    double all = relative(got, want, rows * columns), across = relative(got, other, rows * columns);
    double own = relative(want, other, rows * columns);
    print_message("%s: relative L2 %.2e, against the other precision %.2e (the reference's own %.2e)\n", name, all, across, own);
    if (act == VX_F32) {
        if (all > 1e-5) fail_msg("%s: relative L2 is %.2e", name, all);
        return;
    }
    for (int64_t i = 0; i < columns; i++)
        if (got[i] != want[i])
            fail_msg("%s: row 0, column %d is %.9g, expected %.9g", name, (int)i, (double)got[i], (double)want[i]);
    if (all > 1.5 * own || across > 1.5 * own) fail_msg("%s: relative L2 %.2e, against f32 %.2e", name, all, across);
}

static void equals_transformers_on_a_tiny_encoder(void **state)
{
    (void)state;
    // The second variant writes the configuration as transformers 5 does.
    static const variant variants[] = {
        { .says = "rope_scaling" },
        { .says = "rope_parameters", .rope = "rope_parameters", .in_rope = ", \"rope_theta\": 5000000", .beside_rope = "" },
    };
    for (int k = 0; k < 2; k++) {
        checkpoint *c = malloc(sizeof *c);
        write_checkpoint(c, &variants[k]);
        vx_component *component;
        vx_language *l;
        vx_safetensors *st;
        assert_ok(vx_component_open(&component, VX_TEXT_ENCODER, c->folder));
        assert_ok(vx_language_open(&l, component));
        assert_int_equal(vx_language_config_of(l)->layers_in_file, LAYERS);
        assert_ok(vx_safetensors_open(&st, VX_TEST_DATA "/language.safetensors", NULL));
        static const char *const cases[] = { "text", "positions" };
        for (int i = 0; i < 2; i++)
            for (int half = 0; half < 2; half++) {
                char name[64], other_name[64];
                int64_t rows;
                snprintf(name, sizeof name, "%s.%s", cases[i], half ? "bfloat16" : "float32");
                snprintf(other_name, sizeof other_name, "%s.%s", cases[i], half ? "float32" : "bfloat16");
                float *want = read_floats(st, name, &rows, HIDDEN), *other = read_floats(st, other_name, &rows, HIDDEN);
                snprintf(name, sizeof name, "%s.ids", cases[i]);
                const int32_t *ids = vx_safetensors_find(st, name)->data;
                snprintf(name, sizeof name, "%s.positions", cases[i]);
                const int64_t *positions = vx_safetensors_find(st, name)->data;
                vx_language_run run = { .ids = ids, .positions = i ? positions : NULL, .rows = rows };
                float *got = run_with(l, half ? VX_BF16 : VX_F32, &run, 2);
                snprintf(name, sizeof name, "%s.%s", cases[i], half ? "bfloat16" : "float32");
                compare(name, got, want, other, rows, HIDDEN, half ? VX_BF16 : VX_F32);
                free(got);
                free(want);
                free(other);
            }
        vx_safetensors_close(&st);
        vx_language_close(&l);
        vx_component_close(&component);
        remove_checkpoint(c);
        free(c);
    }
}

// The reference rounds the softmax's probabilities after the division, we before it: a tenth of the elements differ by one
// step of bf16. One rounding too few, in the norm of queries and keys say, makes it half of them.
static void first_layer_equals_transformers_but_for_the_softmax(void **state)
{
    (void)state;
    checkpoint *c = malloc(sizeof *c);
    write_checkpoint(c, &(variant){ .first_only = true });
    vx_component *component;
    vx_language *l;
    vx_safetensors *st;
    assert_ok(vx_component_open(&component, VX_TEXT_ENCODER, c->folder));
    assert_ok(vx_language_open(&l, component));
    assert_ok(vx_safetensors_open(&st, VX_TEST_DATA "/language.safetensors", NULL));
    static const char *const cases[] = { "text", "positions" };
    for (int i = 0; i < 2; i++) {
        char name[64];
        int64_t rows;
        snprintf(name, sizeof name, "%s.first.bfloat16", cases[i]);
        float *want = read_floats(st, name, &rows, HIDDEN);
        snprintf(name, sizeof name, "%s.ids", cases[i]);
        const int32_t *ids = vx_safetensors_find(st, name)->data;
        snprintf(name, sizeof name, "%s.positions", cases[i]);
        const int64_t *positions = vx_safetensors_find(st, name)->data;
        float *got = run_with(l, VX_BF16, &(vx_language_run){ .ids = ids, .positions = positions, .rows = rows }, 1);
        int other = 0;
        for (int64_t k = 0; k < rows * HIDDEN; k++) other += got[k] != want[k];
        double distance = relative(got, want, rows * HIDDEN);
        print_message("%s after one layer: %d of %d differ, relative L2 %.2e\n", cases[i], other, (int)rows * HIDDEN, distance);
        if (other > rows * HIDDEN / 5 || distance > 3e-3)
            fail_msg("%s after one layer: %d of %d differ, relative L2 %.2e", cases[i], other, (int)rows * HIDDEN, distance);
        free(got);
        free(want);
    }
    vx_safetensors_close(&st);
    vx_language_close(&l);
    vx_component_close(&component);
    remove_checkpoint(c);
    free(c);
}

// ---- properties ----
typedef struct fixture {
    checkpoint files;
    vx_component *component;
    vx_language *language;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    write_checkpoint(&f->files, &(variant){ 0 });
    assert_ok(vx_component_open(&f->component, VX_TEXT_ENCODER, f->files.folder));
    assert_ok(vx_language_open(&f->language, f->component));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    vx_language_close(&f->language);
    vx_component_close(&f->component);
    remove_checkpoint(&f->files);
    free(f);
    return 0;
}

enum { ROWS = 37 };
static void some_ids(int32_t ids[ROWS])
{
    for (int i = 0; i < ROWS; i++) ids[i] = (i * 31 + 5) % VOCABULARY;
}

static void a_row_depends_only_on_rows_before_it(void **state)
{
    const fixture *f = *state;
    int32_t ids[ROWS];
    some_ids(ids);
    for (int half = 0; half < 2; half++) {
        float *all = run_with(f->language, half ? VX_BF16 : VX_F32, &(vx_language_run){ .ids = ids, .rows = ROWS }, 2);
        static const int prefixes[] = { 1, 2, 16, 36 };
        for (size_t k = 0; k < sizeof prefixes / sizeof *prefixes; k++) {
            float *part =
                run_with(f->language, half ? VX_BF16 : VX_F32, &(vx_language_run){ .ids = ids, .rows = prefixes[k] }, 1);
            assert_memory_equal(part, all, (size_t)prefixes[k] * HIDDEN * sizeof *part); // also another number of threads
            free(part);
        }
        free(all);
    }
}

static void no_positions_means_counting_on_all_axes(void **state)
{
    const fixture *f = *state;
    int32_t ids[ROWS];
    int64_t positions[3][ROWS];
    some_ids(ids);
    for (int axis = 0; axis < 3; axis++)
        for (int i = 0; i < ROWS; i++) positions[axis][i] = i;
    float *counted = run_with(f->language, VX_BF16, &(vx_language_run){ .ids = ids, .rows = ROWS }, 1);
    float *given = run_with(f->language, VX_BF16, &(vx_language_run){ .ids = ids, .rows = ROWS, .positions = positions[0] }, 1);
    assert_memory_equal(given, counted, ROWS * HIDDEN * sizeof *given);
    free(given);
    free(counted);
}

static void no_rows_are_no_work(void **state)
{
    const fixture *f = *state;
    float *none = run_with(f->language, VX_F32, &(vx_language_run){ 0 }, 1);
    free(none);
}

static void count_layer(void *user, int layer)
{
    int *count = user;
    assert_int_equal(layer, *count);
    ++*count;
}

static void every_layer_is_reported(void **state)
{
    const fixture *f = *state;
    int32_t ids[ROWS];
    int layers = 0;
    some_ids(ids);
    vx_language_run run = { .ids = ids, .rows = 3, .layer_done = count_layer, .user = &layers };
    free(run_with(f->language, VX_BF16, &run, 1));
    assert_int_equal(layers, VX_LANGUAGE_LAYERS);
}

static void a_failing_operator_is_named_and_scratch_given_back(void **state)
{
    const fixture *f = *state;
    vx_device *dev, *plan;
    vx_arena *arena;
    assert_ok(vx_device_cpu_create(&dev, &(vx_cpu_params){ .threads = 1 }));
    assert_ok(vx_device_plan_create(&plan, dev));
    assert_ok(vx_arena_create(plan, &arena, 0));
    vx_tensor out = vx_arena_tensor(arena, VX_BF16, 4, HIDDEN);
    size_t mark = vx_arena_mark(arena);
    vx_language_run run = { .rows = 4 };
    assert_ok(vx_language_encode(f->language, plan, arena, out, &run));
    int64_t calls = vx_device_plan_counts(plan).calls;
    assert_int_equal(calls,
                     1 + 50 * 12); // embed; norm, linear, rope, attention, linear, add; norm, linear, swiglu, linear, add, mark
    for (int64_t k = 1; k <= calls; k++) {
        vx_device_plan_fail(plan, k, VX_ERR_DEVICE);
        vx_status s = vx_language_encode(f->language, plan, arena, out, &run);
        assert_int_equal(s.code, VX_ERR_DEVICE);
        char layer[40];
        snprintf(layer, sizeof layer, "text encoder layer %d", (int)((k - 2) / 12));
        if (k > 1) assert_non_null(strstr(s.message, layer));
        assert_int_equal(vx_arena_mark(arena), mark);
    }
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    vx_device_destroy(&dev);
}

static void what_cannot_be_encoded_is_refused(void **state)
{
    const fixture *f = *state;
    vx_device *dev;
    vx_arena *arena;
    assert_ok(vx_device_cpu_create(&dev, &(vx_cpu_params){ .threads = 1 }));
    assert_ok(vx_arena_create(dev, &arena, 1 << 20));
    int32_t ids[ROWS];
    some_ids(ids);
    vx_language_run run = { .ids = ids, .rows = 4 };
    assert_code(vx_language_encode(f->language, dev, arena, vx_arena_tensor(arena, VX_BF16, 5, HIDDEN), &run), VX_ERR_SHAPE);
    assert_code(vx_language_encode(f->language, dev, arena, vx_arena_tensor(arena, VX_BF16, 4, HIDDEN + 8), &run), VX_ERR_SHAPE);
    assert_code(vx_language_encode(f->language, dev, arena, vx_arena_tensor(arena, VX_F16, 4, HIDDEN), &run), VX_ERR_DTYPE);
    vx_tensor out = vx_arena_tensor(arena, VX_BF16, 4, HIDDEN);
    ids[2] = VOCABULARY;
    assert_code(vx_language_encode(f->language, dev, arena, out, &run), VX_ERR_CONFIG);
    ids[2] = -1;
    assert_code(vx_language_encode(f->language, dev, arena, out, &run), VX_ERR_CONFIG);
    ids[2] = 0;
    volatile int flag = 1;
    vx_device_watch(dev, &flag);
    assert_code(vx_language_encode(f->language, dev, arena, out, &run), VX_ERR_CANCELLED);
    vx_device_watch(dev, NULL);
    assert_ok(vx_language_encode(f->language, dev, arena, out, &run));
    vx_arena_destroy(&arena);
    vx_device_destroy(&dev);
}

static void a_result_that_is_not_finite_names_its_layer(void **state)
{
    (void)state;
    checkpoint *c = malloc(sizeof *c);
    write_checkpoint(c, &(variant){ .infinite = "model.language_model.layers.7.mlp.down_proj.weight" });
    vx_component *component;
    vx_language *l;
    vx_device *dev;
    vx_arena *arena;
    assert_ok(vx_component_open(&component, VX_TEXT_ENCODER, c->folder));
    assert_ok(vx_language_open(&l, component));
    assert_ok(vx_device_cpu_create(&dev, &(vx_cpu_params){ .threads = 1 }));
    assert_ok(vx_arena_create(dev, &arena, 1 << 20));
    int32_t ids[ROWS];
    some_ids(ids);
    for (int half = 0; half < 2; half++) {
        vx_tensor out = vx_arena_tensor(arena, half ? VX_BF16 : VX_F32, ROWS, HIDDEN);
        vx_status s = vx_language_encode(l, dev, arena, out, &(vx_language_run){ .ids = ids, .rows = ROWS });
        assert_int_equal(s.code, VX_ERR_NOT_FINITE);
        assert_non_null(strstr(s.message, "layer 7 "));
    }
    vx_arena_destroy(&arena);
    vx_device_destroy(&dev);
    vx_language_close(&l);
    vx_component_close(&component);
    remove_checkpoint(c);
    free(c);
}

static void checkpoints_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const variant variants[] = {
        { .says = "exactly 50 layers", .layers = 50, .want = VX_OK },
        { .says = "sizes from the tensors", .no_config = true, .want = VX_OK },
        { .says = "49 layers", .layers = 49, .want = VX_ERR_TENSOR_MISSING, .message = "49 layers, expected at least 50" },
        { .says = "biases", .bias = "true", .want = VX_ERR_CONFIG, .message = "attention_bias" },
        { .says = "contiguous sections", .interleaved = "false", .want = VX_ERR_CONFIG, .message = "mrope_interleaved" },
        { .says = "another rotary type", .in_rope = ", \"rope_type\": \"yarn\"", .want = VX_ERR_CONFIG },
        { .says = "an odd head size", .head_dim = 12, .want = VX_ERR_CONFIG, .message = "head size of 12" },
        { .says = "another head size than the tensors", .head_dim = 8, .want = VX_ERR_TENSOR_SHAPE, .message = "q_proj" },
        { .says = "a foreign tensor",
          .extra = "model.language_model.layers.0.self_attn.bias",
          .want = VX_ERR_TENSOR_UNEXPECTED,
          .message = "layers.0.self_attn.bias" },
    };
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        checkpoint *c = malloc(sizeof *c);
        write_checkpoint(c, &variants[i]);
        vx_component *component = NULL;
        vx_language *l = NULL;
        vx_status s = vx_component_open(&component, VX_TEXT_ENCODER, c->folder);
        if (s.code == VX_OK) s = vx_language_open(&l, component);
        if (s.code != variants[i].want) fail_msg("%s: VX-%d %s", variants[i].says, (int)s.code, s.message);
        if (variants[i].message && !strstr(s.message, variants[i].message)) fail_msg("%s: '%s'", variants[i].says, s.message);
        assert_int_equal(l != NULL, s.code == VX_OK);
        vx_language_close(&l);
        vx_component_close(&component);
        remove_checkpoint(c);
        free(c);
    }
}

static void rotary_axes_interleave(void **state)
{
    (void)state;
    static const int released[3] = { 24, 20, 20 };
    int count[3] = { 0 };
    for (int64_t i = 0; i < 64; i++) count[vx_rotary_axis(released, i)]++;
    for (int axis = 0; axis < 3; axis++) assert_int_equal(count[axis], released[axis]);
    // text-encoder specification, 3.3: h if i % 3 == 1 and i < 60, w if i % 3 == 2 and i < 60, else t
    for (int64_t i = 0; i < 64; i++) assert_int_equal(vx_rotary_axis(released, i), i < 60 ? i % 3 : 0);
}

// -- the golden checkpoint
// --------------------------------------------------------------------------------------------------------
static void golden_prompt_is_reproduced(void **state)
{
    (void)state;
    if (!golden_folder()) {
        print_message("skipped: VORTEX_GOLDEN_DATA is not set\n");
        return;
    }
    char path[512];
    json_t *requests;
    const char *prompt;
    vx_tokenizer *t;
    vx_presentation p;
    vx_component *component;
    vx_language *l;
    snprintf(path, sizeof path, "%s/requests.json", golden_folder());
    assert_ok(vx_json_read(&requests, path, 1 << 20, 16, VX_ERR_CONFIG));
    assert_ok(vx_json_string(json_object_get(requests, "t2va"), "prompt", NULL, &prompt, path));
    snprintf(path, sizeof path, "%s/official/FL2VA/tokenizer", golden_folder());
    assert_ok(vx_tokenizer_open(&t, path));
    assert_ok(vx_presentation_prompt(&p, t, prompt, strlen(prompt)));
    snprintf(path, sizeof path, "%s/official/FL2VA/text_encoder", golden_folder());
    assert_ok(vx_component_open(&component, VX_TEXT_ENCODER, path));
    assert_ok(vx_language_open(&l, component));
    int64_t hidden = vx_language_config_of(l)->hidden, rows;
    float *want[2];
    for (int half = 0; half < 2; half++) {
        vx_safetensors *st;
        snprintf(path, sizeof path, "%s/expected/t2va.%s.safetensors", golden_folder(), half ? "bfloat16" : "float32");
        assert_ok(vx_safetensors_open(&st, path, NULL));
        want[half] = read_floats(st, "prompt_embeds", &rows, hidden);
        assert_int_equal(rows, p.rows);
        const int32_t *tags = vx_safetensors_find(st, "text_token_tags")->data;
        assert_memory_equal(p.tags, tags, (size_t)rows * sizeof *tags);
        vx_safetensors_close(&st);
    }
    for (int half = 0; half < 2; half++) {
        float *got = run_with(l, half ? VX_BF16 : VX_F32, &(vx_language_run){ .ids = p.ids, .rows = p.rows }, 2);
        compare(half ? "golden bfloat16" : "golden float32", got, want[half], want[!half], rows, hidden, half ? VX_BF16 : VX_F32);
        free(got);
    }
    free(want[0]);
    free(want[1]);
    vx_language_close(&l);
    vx_component_close(&component);
    vx_presentation_free(&p);
    vx_tokenizer_close(&t);
    json_decref(requests);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_transformers_on_a_tiny_encoder),
        cmocka_unit_test(first_layer_equals_transformers_but_for_the_softmax),
        cmocka_unit_test_setup_teardown(a_row_depends_only_on_rows_before_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_positions_means_counting_on_all_axes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_rows_are_no_work, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_layer_is_reported, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failing_operator_is_named_and_scratch_given_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_encoded_is_refused, set_up, tear_down),
        cmocka_unit_test(a_result_that_is_not_finite_names_its_layer),
        cmocka_unit_test(checkpoints_that_do_not_fit_are_refused),
        cmocka_unit_test(rotary_axes_interleave),
        cmocka_unit_test(golden_prompt_is_reproduced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
