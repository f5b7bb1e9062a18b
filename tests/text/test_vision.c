// The vision tower, and the language model behind it, against transformers: a tiny model whose weights come from a formula
// (tools/make_vision_vectors.py), and the golden checkpoint when it is there.
#include "testing.h"

#include "base/alloc.h"
#include "checkpoint.h"
#include "text/vision.h"

enum { TOWER = 48, TOWER_HEADS = 2, DEPTH = 5, WIDE = 40, TABLE = 49, MOST_BLOCKS = 4 };

static const char CONFIG[] =
    "{\"model_type\": \"qwen3_vl\", \"text_config\": {\"attention_bias\": false, \"head_dim\": 16, \"hidden_act\": \"silu\","
    "\"hidden_size\": 32, \"intermediate_size\": 40, \"num_attention_heads\": 4, \"num_hidden_layers\": 51,"
    "\"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, \"rope_scaling\": {\"mrope_interleaved\": true, \"mrope_section\":"
    "[4, 2, 2], \"rope_type\": \"default\"}, \"rope_theta\": 5000000, \"vocab_size\": 64}, \"vision_config\": {"
    "\"deepstack_visual_indexes\": [%s], \"depth\": 5, \"hidden_act\": \"%s\", \"hidden_size\": 48, \"in_channels\": 3,"
    "\"intermediate_size\": 40, \"num_heads\": %d, \"num_position_embeddings\": %d, \"out_hidden_size\": 32, \"patch_size\": %d,"
    "\"spatial_merge_size\": 2, \"temporal_patch_size\": 2}}";

typedef struct variant {
    const char *says;
    const char *deep, *act;      // NULL: 0, 2, 3 and gelu_pytorch_tanh
    int heads, positions, patch; // 0: 2, 49, 16
    bool no_tower;
    const char *without, *extra; // a tensor left out, one put in
    const char *infinite;        // a tensor whose first element is infinite
    bool no_positions;           // the table of positions is zero
    const char *loud;            // of the layers that add to the residual stream, the only one that does ("": none)
    int fold;                    // of the patch embedding's kernel: 2 or 4 axes; -1: its two frames apart
    vx_code want;
    const char *message;
} variant;

// ---- a checkpoint from a formula ----
static void put_part(checkpoint *c, const char *base, const char *part, int64_t n, int64_t k)
{
    char name[96];
    snprintf(name, sizeof name, "model.visual.%s%s.weight", base, part);
    put(c, name, n, k);
    snprintf(name, sizeof name, "model.visual.%s%s.bias", base, part);
    put(c, name, n, 0);
}

static void put_merger(checkpoint *c, const char *base, int64_t norm)
{
    put_part(c, base, "norm", norm, 0);
    put_part(c, base, "linear_fc1", 4 * TOWER, 4 * TOWER);
    put_part(c, base, "linear_fc2", HIDDEN, 4 * TOWER);
}

static void put_tower(checkpoint *c)
{
    char base[64];
    put_shaped(c, "model.visual.patch_embed.proj.weight", 5, (const int64_t[]){ TOWER, 3, 2, 16, 16 });
    put(c, "model.visual.patch_embed.proj.bias", TOWER, 0);
    put(c, "model.visual.pos_embed.weight", TABLE, TOWER);
    for (int i = 0; i < DEPTH; i++) {
        snprintf(base, sizeof base, "blocks.%d.", i);
        put_part(c, base, "norm1", TOWER, 0);
        put_part(c, base, "norm2", TOWER, 0);
        put_part(c, base, "attn.qkv", 3 * TOWER, TOWER);
        put_part(c, base, "attn.proj", TOWER, TOWER);
        put_part(c, base, "mlp.linear_fc1", WIDE, TOWER);
        put_part(c, base, "mlp.linear_fc2", TOWER, WIDE);
    }
    put_merger(c, "merger.", TOWER);
    for (int k = 0; k < 3; k++) {
        snprintf(base, sizeof base, "deepstack_merger_list.%d.", k);
        put_merger(c, base, 4 * TOWER);
    }
}

static size_t bytes_of(const vx_safetensors_tensor *t)
{
    size_t bytes = sizeof(uint16_t);
    for (int i = 0; i < t->rank; i++) bytes *= (size_t)t->shape[i];
    return bytes;
}

static bool adds_to_stream(const char *name)
{
    return strstr(name, "blocks.") && (strstr(name, "attn.proj") || strstr(name, "mlp.linear_fc2"));
}

// The same numbers in the shapes that exporters write (public bugs P24).
static void fold(checkpoint *c, int axes)
{
    enum { PATCH = 16 * 16, CHANNELS = 3 * TOWER };
    vx_safetensors_tensor *t = c->tensor;
    while (!strstr(t->name, "patch_embed.proj.weight")) t++;
    static const int64_t flat[] = { TOWER, 6 * PATCH }, four[] = { CHANNELS, 2, 16, 16 }, frame[] = { TOWER, 3, 16, 16 };
    t->rank = axes == 2 ? 2 : 4;
    memcpy(t->shape, axes == 2 ? flat : axes == 4 ? four : frame, (size_t)t->rank * sizeof(int64_t));
    if (axes > 0) return;
    put_shaped(c, "model.visual.patch_embed.proj.weight.1", 4, frame);
    uint16_t *whole = (uint16_t *)(uintptr_t)t->data, *second = (uint16_t *)(uintptr_t)c->tensor[c->count - 1].data;
    for (int i = 0; i < CHANNELS; i++) {
        memcpy(second + i * PATCH, whole + (2 * i + 1) * PATCH, PATCH * sizeof *whole);
        memmove(whole + i * PATCH, whole + 2 * i * PATCH, PATCH * sizeof *whole);
    }
}

static void alter(checkpoint *c, const variant *v)
{
    if (v->fold) fold(c, v->fold);
    for (int i = 0; i < c->count; i++) {
        const char *name = c->tensor[i].name;
        uint16_t *data = (uint16_t *)(uintptr_t)c->tensor[i].data;
        if (v->infinite && strcmp(v->infinite, name) == 0) *data = 0x7f80;
        if (v->loud && adds_to_stream(name) && !(*v->loud && strstr(name, v->loud))) memset(data, 0, bytes_of(&c->tensor[i]));
        if (v->no_positions && strstr(name, "pos_embed")) memset(data, 0, bytes_of(&c->tensor[i]));
        if (!v->without || strcmp(v->without, name) != 0) continue;
        free(data);
        memmove(&c->tensor[i], &c->tensor[i + 1], (size_t)(--c->count - i) * sizeof c->tensor[0]);
        i--;
    }
}

static void write_checkpoint(checkpoint *c, const variant *v)
{
    char config[1280];
    begin_checkpoint(c);
    put_language(c, LAYERS);
    put(c, "model.language_model.norm.weight", HIDDEN, 0);
    put(c, "lm_head.weight", VOCABULARY, HIDDEN);
    if (!v->no_tower) put_tower(c);
    if (v->extra) put(c, v->extra, 4, 8);
    alter(c, v);
    write_tensors(c);
    snprintf(config, sizeof config, CONFIG, v->deep ? v->deep : "0, 2, 3", v->act ? v->act : "gelu_pytorch_tanh",
             v->heads ? v->heads : TOWER_HEADS, v->positions ? v->positions : TABLE, v->patch ? v->patch : 16);
    write_text(c->folder, "config.json", config);
}

typedef struct world {
    checkpoint files;
    vx_component *component;
    vx_vision *vision;
    vx_language *language;
    vx_device *dev;
} world;

static void open_world(world *w, const variant *v, int threads)
{
    write_checkpoint(&w->files, v);
    assert_ok(vx_component_open(&w->component, VX_TEXT_ENCODER, w->files.folder));
    assert_ok(vx_vision_open(&w->vision, w->component));
    assert_ok(vx_language_open(&w->language, w->component));
    assert_ok(vx_device_cpu_create(&w->dev, &(vx_cpu_params){ .threads = threads }));
}

static void close_world(world *w)
{
    vx_device_destroy(&w->dev);
    vx_language_close(&w->language);
    vx_vision_close(&w->vision);
    vx_component_close(&w->component);
    remove_checkpoint(&w->files);
}

static int set_up(void **state)
{
    world *w = calloc(1, sizeof *w);
    open_world(w, &(variant){ 0 }, 2);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    close_world(*state);
    free(*state);
    return 0;
}

// ---- running the tower ----
static const struct shown {
    int64_t frames, height, width;
} SHOWN[][2] = { { { 1, 64, 96 } }, { { 1, 64, 96 }, { 1, 160, 32 } }, { { 3, 96, 64 } }, { { 2, 32, 64 }, { 1, 96, 32 } } };
static const char *const CASES[] = { "picture", "pictures", "video", "mixed" };
enum { CASE_COUNT = 4 };

static uint8_t *pixels_of(const char *name, int index, struct shown s)
{
    char seed_name[64];
    snprintf(seed_name, sizeof seed_name, "pixels.%s.%d", name, index);
    const uint64_t seed = seed_of(seed_name);
    const int64_t count = s.frames * s.height * s.width * 3;
    uint8_t *pixels = malloc((size_t)count);
    for (int64_t i = 0; i < count; i++) pixels[i] = (uint8_t)((uniform(seed, i) + 1.0f) * 128.0f);
    return pixels;
}

// Runs on a plan device first: the arena of the run has exactly the planned size.
static vx_arena *planned_arena(const vx_vision *v, vx_device *dev, vx_dtype act, int64_t tokens, int64_t height, int64_t width)
{
    vx_device *plan;
    vx_arena *arena;
    vx_tensor out[4];
    const int64_t hidden = vx_vision_config_of(v)->out_hidden;
    assert_ok(vx_device_plan_create(&plan, dev));
    assert_ok(vx_arena_create(plan, &arena, 0));
    for (int k = 0; k < 4; k++) out[k] = vx_arena_tensor(arena, act, tokens, hidden);
    for (int k = 0; k < 4; k++) out[k] = vx_tensor_slice(out[k], 0, 0, height * width / 1024);
    assert_ok(vx_vision_encode(v, plan, arena, out[0], out + 1, NULL, NULL, height, width));
    const size_t bytes = vx_arena_high(arena);
    assert_ok(vx_device_reserve(dev, vx_device_plan_counts(plan).scratch));
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    assert_ok(vx_arena_create(dev, &arena, bytes));
    return arena;
}

// One block of patches: [4][tokens][out_hidden] widened; free it.
static float *look(const vx_vision *v, vx_device *dev, vx_dtype act, const uint8_t *first, const uint8_t *second, int64_t height,
                   int64_t width)
{
    const int64_t tokens = height * width / 1024, hidden = vx_vision_config_of(v)->out_hidden;
    vx_arena *arena = planned_arena(v, dev, act, tokens, height, width);
    vx_tensor out[4];
    for (int k = 0; k < 4; k++) out[k] = vx_arena_tensor(arena, act, tokens, hidden);
    const size_t mark = vx_arena_mark(arena);
    assert_ok(vx_vision_encode(v, dev, arena, out[0], out + 1, first, second, height, width));
    assert_int_equal(vx_arena_mark(arena), mark); // scratch is given back
    float *result = malloc((size_t)(4 * tokens * hidden) * sizeof *result);
    for (int k = 0; k < 4; k++) {
        float *one = widen(out[k]);
        memcpy(result + k * tokens * hidden, one, (size_t)(tokens * hidden) * sizeof *one);
        free(one);
    }
    vx_arena_destroy(&arena);
    return result;
}

// All blocks of a case into `all`, four tensors [tokens, HIDDEN].
static void look_at_case(const world *w, vx_arena *arena, int k, vx_tensor all[4])
{
    int64_t token = 0;
    for (int i = 0; i < 2 && SHOWN[k][i].frames; i++) {
        const struct shown s = SHOWN[k][i];
        uint8_t *pixels = pixels_of(CASES[k], i, s);
        const int64_t frame = s.height * s.width * 3, tokens = s.height * s.width / 1024;
        for (int64_t f = 0; f < s.frames; f += 2, token += tokens) {
            const uint8_t *second = f + 1 < s.frames ? pixels + (f + 1) * frame : NULL;
            vx_tensor out[4];
            for (int n = 0; n < 4; n++) out[n] = vx_tensor_slice(all[n], 0, token, token + tokens);
            assert_ok(vx_vision_encode(w->vision, w->dev, arena, out[0], out + 1, pixels + f * frame, second, s.height, s.width));
        }
        free(pixels);
    }
    assert_int_equal(token, all[0].shape[0]);
}

// ---- against transformers ----
static float *vector(const vx_safetensors *st, const char *name, const char *what, bool half, int64_t *rows)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s.%s", name, what, half ? "bfloat16" : "float32");
    return read_floats(st, full, rows, HIDDEN);
}

// f32: two correct programs differ by rounding alone. bf16: two of them are apart at most as far as the reference is from its
// own f32, in each, sqrt(2) of it together.
static void compare(const vx_safetensors *st, const char *name, const char *what, vx_dtype act, const float *got)
{
    const bool half = act == VX_BF16;
    int64_t rows;
    float *want = vector(st, name, what, half, &rows), *other = vector(st, name, what, !half, &rows);
    const double all = relative(got, want, rows * HIDDEN), across = relative(got, other, rows * HIDDEN);
    const double own = relative(want, other, rows * HIDDEN);
    print_message("%s.%s %s: relative L2 %.2e, against the other precision %.2e (the reference's own %.2e)\n", name, what,
                  vx_dtype_name(act), all, across, own);
    if (half ? all > 1.5 * own || across > 1.5 * own : all > 2e-5)
        fail_msg("%s.%s: relative L2 %.2e, against the other %.2e", name, what, all, across);
    free(want);
    free(other);
}

// The rows of every run of pads become one set of features.
static int features_of(vx_language_features out[MOST_BLOCKS], const int32_t *ids, int64_t rows, const vx_tensor all[4])
{
    int count = 0;
    int64_t token = 0;
    for (int64_t i = 0; i < rows; i++) {
        if (ids[i] != 62) continue; // a begin marker
        int64_t end = i + 1;
        while (ids[end] != 63) end++;
        const int64_t pads = end - i - 1;
        vx_language_features *f = &out[count++];
        *f = (vx_language_features){ .row = i + 1, .features = vx_tensor_slice(all[0], 0, token, token + pads) };
        for (int k = 0; k < 3; k++) f->deep[k] = vx_tensor_slice(all[k + 1], 0, token, token + pads);
        token += pads;
    }
    return count;
}

static void compare_case(const world *w, const vx_safetensors *st, int k, vx_dtype act)
{
    char name[64];
    vx_arena *arena;
    vx_tensor all[4];
    vx_language_features features[MOST_BLOCKS];
    snprintf(name, sizeof name, "%s.ids", CASES[k]);
    const vx_safetensors_entry *ids = vx_safetensors_find(st, name);
    snprintf(name, sizeof name, "%s.positions", CASES[k]);
    const int64_t *positions = vx_safetensors_find(st, name)->data;
    snprintf(name, sizeof name, "%s.features.float32", CASES[k]);
    const int64_t tokens = vx_safetensors_find(st, name)->shape[1], rows = ids->shape[0];
    assert_ok(vx_arena_create(w->dev, &arena, 4 << 20));
    float *seen = malloc((size_t)(4 * tokens * HIDDEN) * sizeof *seen);
    for (int n = 0; n < 4; n++) all[n] = vx_arena_tensor(arena, act, tokens, HIDDEN);
    look_at_case(w, arena, k, all);
    for (int n = 0; n < 4; n++) {
        float *one = widen(all[n]);
        memcpy(seen + n * tokens * HIDDEN, one, (size_t)(tokens * HIDDEN) * sizeof *one);
        free(one);
    }
    compare(st, CASES[k], "features", act, seen);
    vx_tensor out = vx_arena_tensor(arena, act, rows, HIDDEN);
    const vx_language_run run = { .ids = ids->data,
                                  .positions = positions,
                                  .rows = rows,
                                  .features = features,
                                  .feature_count = features_of(features, ids->data, rows, all) };
    assert_ok(vx_language_encode(w->language, w->dev, arena, out, &run));
    float *hidden = widen(out);
    compare(st, CASES[k], "hidden", act, hidden);
    free(hidden);
    free(seen);
    vx_arena_destroy(&arena);
}

static void equals_transformers_on_a_tiny_model(void **state)
{
    vx_safetensors *st;
    assert_ok(vx_safetensors_open(&st, VX_TEST_DATA "/vision.safetensors", NULL));
    for (int k = 0; k < CASE_COUNT; k++)
        for (int half = 0; half < 2; half++) compare_case(*state, st, k, half ? VX_BF16 : VX_F32);
    vx_safetensors_close(&st);
}

static void knows_every_shape_of_the_patch_embedding(void **state)
{
    const world *plain = *state;
    const struct shown s = SHOWN[0][0];
    uint8_t *pixels = pixels_of("fold", 0, s);
    const size_t bytes = (size_t)(4 * (s.height * s.width / 1024) * HIDDEN) * sizeof(float);
    float *want = look(plain->vision, plain->dev, VX_F32, pixels, pixels, s.height, s.width);
    static const int folds[] = { 2, 4, -1 };
    for (int i = 0; i < 3; i++) {
        world w = { 0 };
        open_world(&w, &(variant){ .fold = folds[i] }, 2);
        float *got = look(w.vision, w.dev, VX_F32, pixels, pixels, s.height, s.width);
        assert_memory_equal(got, want, bytes);
        free(got);
        close_world(&w);
    }
    free(want);
    free(pixels);
}

// With blocks that add nothing, or one half block that does, roundings can be counted: elements that differ, by one step where
// sums come in another order. A rotary table in bf16 moves 116 of them.
static void each_rounding_is_the_references(void **state)
{
    (void)state;
    static const struct {
        const char *vector, *loud;
        int most; // of 192 elements
        double distance;
    } cases[] = { { "picture.still", "", 9, 1e-3 },
                  // as in the language model, the reference rounds the softmax's probabilities after the division
                  { "picture.turned", "blocks.0.attn.proj", 76, 3e-3 },
                  { "picture.fed", "blocks.0.mlp", 9, 1e-3 } };
    vx_safetensors *st;
    assert_ok(vx_safetensors_open(&st, VX_TEST_DATA "/vision.safetensors", NULL));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world *w = calloc(1, sizeof *w);
        open_world(w, &(variant){ .loud = cases[i].loud }, 1);
        int64_t rows, other = 0;
        uint8_t *pixels = pixels_of("picture", 0, SHOWN[0][0]);
        float *want = read_floats(st, cases[i].vector, &rows, HIDDEN);
        float *got = look(w->vision, w->dev, VX_BF16, pixels, NULL, SHOWN[0][0].height, SHOWN[0][0].width);
        for (int64_t k = 0; k < rows * HIDDEN; k++) other += got[k] != want[k];
        const double distance = relative(got, want, rows * HIDDEN);
        print_message("%s: %d of %d differ, relative L2 %.2e\n", cases[i].vector, (int)other, (int)rows * HIDDEN, distance);
        if (other > cases[i].most || distance > cases[i].distance)
            fail_msg("%s: %d differ, relative L2 %.2e", cases[i].vector, (int)other, distance);
        free(got);
        free(want);
        free(pixels);
        close_world(w);
        free(w);
    }
    vx_safetensors_close(&st);
}

// ---- properties ----
static void a_picture_is_shown_twice(void **state)
{
    const world *w = *state;
    uint8_t *pixels = pixels_of("twice", 0, (struct shown){ 1, 64, 96 });
    float *once = look(w->vision, w->dev, VX_F32, pixels, NULL, 64, 96),
          *twice = look(w->vision, w->dev, VX_F32, pixels, pixels, 64, 96);
    assert_memory_equal(once, twice, 4 * 6 * HIDDEN * sizeof *once);
    free(once);
    free(twice);
    free(pixels);
}

static void bits_do_not_depend_on_threads(void **state)
{
    const world *w = *state;
    uint8_t *pixels = pixels_of("threads", 0, (struct shown){ 1, 96, 160 });
    vx_device *one;
    assert_ok(vx_device_cpu_create(&one, &(vx_cpu_params){ .threads = 1 }));
    for (int half = 0; half < 2; half++) {
        float *a = look(w->vision, one, half ? VX_BF16 : VX_F32, pixels, NULL, 96, 160);
        float *b = look(w->vision, w->dev, half ? VX_BF16 : VX_F32, pixels, NULL, 96, 160);
        assert_memory_equal(a, b, 4 * 15 * HIDDEN * sizeof *a);
        free(a);
        free(b);
    }
    vx_device_destroy(&one);
    free(pixels);
}

// A tower without positions whose attention adds nothing sees each 32 x 32 pixels alone. 2064 patches are more than are cut and
// widened at one time; every feature must be that of its pixels in a small picture.
static void a_long_picture_is_worked_off_in_parts(void **state)
{
    (void)state;
    enum { LONG = 8256, SHORT = 96, HEIGHT = 64, REPEAT = LONG / SHORT, BAND = SHORT / 32 };
    world *w = calloc(1, sizeof *w);
    open_world(w, &(variant){ .no_positions = true, .loud = "mlp.linear_fc2" }, 2);
    uint8_t *small = pixels_of("long", 0, (struct shown){ 1, HEIGHT, SHORT }), *large = malloc(3 * HEIGHT * LONG);
    for (int y = 0; y < HEIGHT; y++)
        for (int i = 0; i < REPEAT; i++) memcpy(large + 3 * (y * LONG + i * SHORT), small + 3 * y * SHORT, 3 * SHORT);
    float *want = look(w->vision, w->dev, VX_BF16, small, NULL, HEIGHT, SHORT);
    float *got = look(w->vision, w->dev, VX_BF16, large, NULL, HEIGHT, LONG);
    for (int row = 0; row < 4 * HEIGHT / 32; row++) // of all four kinds of features
        for (int i = 0; i < REPEAT; i++)
            assert_memory_equal(got + (row * REPEAT + i) * BAND * HIDDEN, want + row * BAND * HIDDEN,
                                BAND * HIDDEN * sizeof *got);
    free(got);
    free(want);
    free(large);
    free(small);
    close_world(w);
    free(w);
}

static void a_failing_operator_is_named_and_scratch_given_back(void **state)
{
    const world *w = *state;
    vx_device *plan;
    vx_arena *arena;
    vx_tensor out[4];
    assert_ok(vx_device_plan_create(&plan, w->dev));
    assert_ok(vx_arena_create(plan, &arena, 0));
    for (int k = 0; k < 4; k++) out[k] = vx_arena_tensor(arena, VX_BF16, 2, HIDDEN);
    const size_t mark = vx_arena_mark(arena);
    assert_ok(vx_vision_encode(w->vision, plan, arena, out[0], out + 1, NULL, NULL, 32, 64));
    const int64_t calls = vx_device_plan_counts(plan).calls;
    // patches, positions, add; per block norm, qkv, rotation, attention, proj, add, norm, fc1, gelu, fc2, add, mark; four mergers
    assert_int_equal(calls, 3 + DEPTH * 12 + 4 * 4);
    for (int64_t k = 1; k <= calls; k++) {
        vx_device_plan_fail(plan, k, VX_ERR_DEVICE);
        vx_status s = vx_vision_encode(w->vision, plan, arena, out[0], out + 1, NULL, NULL, 32, 64);
        assert_int_equal(s.code, VX_ERR_DEVICE);
        if (k > 3 && k <= calls - 4) assert_non_null(strstr(s.message, "vision block "));
        assert_int_equal(vx_arena_mark(arena), mark);
    }
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
}

static void what_cannot_be_seen_is_refused(void **state)
{
    const world *w = *state;
    static const uint8_t pixels[64 * 64 * 3];
    vx_arena *arena;
    vx_tensor out[4], narrow[4], half[4];
    assert_ok(vx_arena_create(w->dev, &arena, 1 << 20));
    for (int k = 0; k < 4; k++) out[k] = vx_arena_tensor(arena, VX_F32, 4, HIDDEN);
    for (int k = 0; k < 4; k++) narrow[k] = vx_arena_tensor(arena, VX_F32, 4, HIDDEN - 8);
    for (int k = 0; k < 4; k++) half[k] = vx_arena_tensor(arena, k ? VX_BF16 : VX_F32, 4, HIDDEN);
    static const int64_t sides[][2] = { { 64, 48 }, { 48, 64 }, { 0, 64 }, { -32, 64 }, { 64, 65568 }, { INT64_MAX - 31, 64 } };
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        assert_code(vx_vision_encode(w->vision, w->dev, arena, out[0], out + 1, pixels, NULL, sides[i][0], sides[i][1]),
                    VX_ERR_SHAPE);
    assert_code(vx_vision_encode(w->vision, w->dev, arena, out[0], out + 1, pixels, NULL, 64, 32), VX_ERR_SHAPE);
    assert_code(vx_vision_encode(w->vision, w->dev, arena, narrow[0], narrow + 1, pixels, NULL, 64, 64), VX_ERR_SHAPE);
    assert_code(vx_vision_encode(w->vision, w->dev, arena, half[0], half + 1, pixels, NULL, 64, 64), VX_ERR_DTYPE);
    volatile int flag = 1;
    vx_device_watch(w->dev, &flag);
    assert_code(vx_vision_encode(w->vision, w->dev, arena, out[0], out + 1, pixels, NULL, 64, 64), VX_ERR_CANCELLED);
    vx_device_watch(w->dev, NULL);
    assert_ok(vx_vision_encode(w->vision, w->dev, arena, out[0], out + 1, pixels, NULL, 64, 64));
    vx_arena_destroy(&arena);
}

static void a_failed_allocation_leaves_nothing(void **state)
{
    const world *w = *state;
    static const uint8_t pixels[32 * 64 * 3];
    bool hit = true;
    for (int k = 1; hit; k++) {
        vx_arena *arena;
        vx_tensor out[4];
        assert_ok(vx_arena_create(w->dev, &arena, 1 << 20));
        for (int n = 0; n < 4; n++) out[n] = vx_arena_tensor(arena, VX_F32, 2, HIDDEN);
        vx_fault_arm(k, true);
        vx_status s = vx_vision_encode(w->vision, w->dev, arena, out[0], out + 1, pixels, NULL, 32, 64);
        hit = vx_fault_disarm();
        assert_int_equal(s.code, hit ? VX_ERR_MEMORY : VX_OK);
        vx_arena_destroy(&arena);
    }
}

static void a_result_that_is_not_finite_names_its_block(void **state)
{
    (void)state;
    world *w = calloc(1, sizeof *w);
    static const uint8_t pixels[32 * 64 * 3];
    open_world(w, &(variant){ .infinite = "model.visual.blocks.3.mlp.linear_fc2.bias" }, 1);
    for (int half = 0; half < 2; half++) {
        vx_arena *arena;
        vx_tensor out[4];
        assert_ok(vx_arena_create(w->dev, &arena, 1 << 20));
        for (int n = 0; n < 4; n++) out[n] = vx_arena_tensor(arena, half ? VX_BF16 : VX_F32, 2, HIDDEN);
        vx_status s = vx_vision_encode(w->vision, w->dev, arena, out[0], out + 1, pixels, NULL, 32, 64);
        assert_int_equal(s.code, VX_ERR_NOT_FINITE);
        assert_non_null(strstr(s.message, "vision block 3 "));
        vx_arena_destroy(&arena);
    }
    close_world(w);
    free(w);
}

static void towers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const variant variants[] = {
        { .says = "as written", .want = VX_OK },
        { .says = "no tower", .no_tower = true, .want = VX_ERR_MODEL_COMPONENT, .message = "no vision tower" },
        { .says = "a bias is missing",
          .without = "model.visual.blocks.4.attn.qkv.bias",
          .want = VX_ERR_TENSOR_MISSING,
          .message = "blocks.4.attn.qkv.bias" },
        { .says = "a foreign tensor",
          .extra = "model.visual.blocks.0.attn.q_norm.weight",
          .want = VX_ERR_TENSOR_UNEXPECTED,
          .message = "q_norm" },
        { .says = "two deep-stack features", .deep = "0, 2", .want = VX_ERR_CONFIG, .message = "deepstack_visual_indexes" },
        { .says = "a block beyond the last", .deep = "0, 2, 5", .want = VX_ERR_CONFIG, .message = "below 5" },
        { .says = "features out of order", .deep = "2, 0, 3", .want = VX_ERR_CONFIG, .message = "increasing" },
        { .says = "another activation", .act = "quick_gelu", .want = VX_ERR_CONFIG, .message = "hidden_act" },
        { .says = "odd heads", .heads = 4, .want = VX_ERR_CONFIG, .message = "multiple of 8" },
        { .says = "heads that do not divide", .heads = 5, .want = VX_ERR_CONFIG, .message = "5 vision heads" },
        { .says = "no square table", .positions = 48, .want = VX_ERR_CONFIG, .message = "no square" },
        { .says = "another table than the tensor", .positions = 64, .want = VX_ERR_TENSOR_SHAPE, .message = "pos_embed" },
        { .says = "another patch", .patch = 14, .want = VX_ERR_CONFIG, .message = "14 pixels" },
    };
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        checkpoint *c = malloc(sizeof *c);
        vx_component *component = NULL;
        vx_vision *v = NULL;
        write_checkpoint(c, &variants[i]);
        assert_ok(vx_component_open(&component, VX_TEXT_ENCODER, c->folder));
        vx_status s = vx_vision_open(&v, component);
        if (s.code != variants[i].want) fail_msg("%s: VX-%d %s", variants[i].says, (int)s.code, s.message);
        if (variants[i].message && !strstr(s.message, variants[i].message)) fail_msg("%s: '%s'", variants[i].says, s.message);
        assert_int_equal(v != NULL, s.code == VX_OK);
        vx_vision_close(&v);
        vx_component_close(&component);
        remove_checkpoint(c);
        free(c);
    }
}

// ---- features in the language model ----
static void features_that_do_not_fit_are_refused(void **state)
{
    const world *w = *state;
    enum { ROWS = 5 };
    static const int32_t ids[ROWS] = { 1, 2, 3, 4, 5 };
    vx_arena *arena;
    assert_ok(vx_arena_create(w->dev, &arena, 1 << 20));
    vx_tensor out = vx_arena_tensor(arena, VX_F32, ROWS, HIDDEN);
    const vx_tensor two = vx_arena_tensor(arena, VX_F32, 2, HIDDEN), wide = vx_arena_tensor(arena, VX_F32, 2, HIDDEN + 8);
    const vx_tensor half = vx_arena_tensor(arena, VX_BF16, 2, HIDDEN), three = vx_arena_tensor(arena, VX_F32, 3, HIDDEN);
    memset(two.data, 0, vx_tensor_bytes(two));
    const struct {
        int64_t row;
        vx_tensor features, deep;
        vx_code want;
    } cases[] = { { 0, two, two, VX_OK },
                  { 3, two, two, VX_OK },
                  { 4, two, two, VX_ERR_SHAPE },
                  { -1, two, two, VX_ERR_SHAPE },
                  { INT64_MAX, two, two, VX_ERR_SHAPE },
                  { 0, wide, wide, VX_ERR_SHAPE },
                  { 0, two, three, VX_ERR_SHAPE },
                  { 0, half, half, VX_ERR_DTYPE },
                  { 0, two, half, VX_ERR_DTYPE } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const vx_language_features f = { cases[i].row, cases[i].features, { two, two, cases[i].deep } };
        const vx_language_run run = { .ids = ids, .rows = ROWS, .features = &f, .feature_count = 1 };
        vx_status s = vx_language_encode(w->language, w->dev, arena, out, &run);
        if (s.code != cases[i].want) fail_msg("case %d: VX-%d %s", (int)i, (int)s.code, s.message);
    }
    vx_arena_destroy(&arena);
}

static void features_are_planned(void **state)
{
    const world *w = *state;
    vx_device *plan;
    vx_arena *arena;
    assert_ok(vx_device_plan_create(&plan, w->dev));
    assert_ok(vx_arena_create(plan, &arena, 0));
    vx_tensor out = vx_arena_tensor(arena, VX_BF16, 9, HIDDEN), four = vx_arena_tensor(arena, VX_BF16, 4, HIDDEN);
    const vx_language_features f[2] = { { 1, four, { four, four, four } }, { 5, four, { four, four, four } } };
    int64_t calls[2];
    for (int i = 0; i < 2; i++) {
        vx_device_plan_reset(plan);
        assert_ok(vx_language_encode(w->language, plan, arena, out,
                                     &(vx_language_run){ .rows = 9, .features = f, .feature_count = 2 * i }));
        calls[i] = vx_device_plan_counts(plan).calls;
    }
    assert_int_equal(calls[1] - calls[0], 2 * (1 + 3)); // a copy and three additions each
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
}

// The golden checkpoint's own tower on two frames that need no resizing.
static void golden_tower_is_reproduced(void **state)
{
    (void)state;
    if (!golden_folder()) {
        print_message("skipped: VORTEX_GOLDEN_DATA is not set\n");
        return;
    }
    char path[512];
    vx_component *component;
    vx_vision *v;
    vx_device *dev;
    vx_safetensors *st, *motion;
    snprintf(path, sizeof path, "%s/official/FL2VA/text_encoder", golden_folder());
    assert_ok(vx_component_open(&component, VX_TEXT_ENCODER, path));
    assert_ok(vx_vision_open(&v, component));
    assert_int_equal(vx_vision_config_of(v)->grid_side, 48);
    snprintf(path, sizeof path, "%s/inputs/motion.safetensors", golden_folder());
    assert_ok(vx_safetensors_open(&motion, path, NULL));
    assert_ok(vx_safetensors_open(&st, VX_TEST_DATA "/vision.safetensors", NULL));
    assert_ok(vx_device_cpu_create(&dev, &(vx_cpu_params){ .threads = 2 }));
    const vx_safetensors_entry *frames = vx_safetensors_find(motion, "pixels");
    const int64_t height = frames->shape[1], width = frames->shape[2];
    const uint8_t *first = frames->data;
    for (int half = 0; half < 2; half++) {
        float *got = look(v, dev, half ? VX_BF16 : VX_F32, first, first + 3 * height * width, height, width);
        compare(st, "golden", "features", half ? VX_BF16 : VX_F32, got);
        free(got);
    }
    vx_device_destroy(&dev);
    vx_safetensors_close(&st);
    vx_safetensors_close(&motion);
    vx_vision_close(&v);
    vx_component_close(&component);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(equals_transformers_on_a_tiny_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(knows_every_shape_of_the_patch_embedding, set_up, tear_down),
        cmocka_unit_test(each_rounding_is_the_references),
        cmocka_unit_test_setup_teardown(a_picture_is_shown_twice, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bits_do_not_depend_on_threads, set_up, tear_down),
        cmocka_unit_test(a_long_picture_is_worked_off_in_parts),
        cmocka_unit_test_setup_teardown(a_failing_operator_is_named_and_scratch_given_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_seen_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failed_allocation_leaves_nothing, set_up, tear_down),
        cmocka_unit_test(a_result_that_is_not_finite_names_its_block),
        cmocka_unit_test(towers_that_do_not_fit_are_refused),
        cmocka_unit_test_setup_teardown(features_that_do_not_fit_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(features_are_planned, set_up, tear_down),
        cmocka_unit_test(golden_tower_is_reproduced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
