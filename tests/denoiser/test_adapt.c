// Adapters on the tiny transformer: what is merged is the rounded sum in every bit, whatever layout the base has; what is put on
// comes off again; differences, biases and banks of heads by hand; adapters of other models are refused.
#include "tiny.h"

#include "base/alloc.h"
#include "denoiser/adapt.h"

typedef struct rig {
    tiny_folder folder;
    vx_component *component;
    vx_denoiser *d;
} rig;

static void open_rig(rig *r, bool diffusers)
{
    tiny *t = tiny_make(), *other = diffusers ? tiny_as_diffusers(t) : NULL;
    tiny_write(diffusers ? other : t, &r->folder, diffusers ? tiny_diffusers_config : tiny_official_config);
    if (other) tiny_free(other);
    tiny_free(t);
    assert_ok(vx_component_open(&r->component, VX_TRANSFORMER, r->folder.path));
    assert_ok(vx_denoiser_open(&r->d, r->component));
}

static void close_rig(rig *r)
{
    vx_denoiser_close(&r->d);
    vx_component_close(&r->component);
    tiny_erase(&r->folder);
}

static const char adapter_path[] = "/tmp/vx-denoiser-adapter.safetensors";

// An adapter of tensors given by name and shape; f32 numbers that are a hash of the name, or the test's own.
typedef struct part {
    const char *name;
    int rank;
    int64_t shape[3];
    const float *data; // NULL: of the name
} part;

static vx_adapter *make_adapter(const part *parts, int count, float strength, bool partial)
{
    vx_safetensors_tensor tensor[12];
    float *made[12] = { 0 };
    for (int i = 0; i < count; i++) {
        int64_t n = 1;
        for (int k = 0; k < parts[i].rank; k++) n *= parts[i].shape[k];
        if (!parts[i].data) {
            made[i] = malloc((size_t)n * sizeof(float));
            tiny_values(made[i], parts[i].name, n, 1, 0);
        }
        tensor[i] = (vx_safetensors_tensor){ parts[i].name, VX_F32, parts[i].rank, { 0 }, made[i] ? made[i] : parts[i].data };
        memcpy(tensor[i].shape, parts[i].shape, sizeof parts[i].shape);
    }
    assert_ok(vx_safetensors_write(adapter_path, true, tensor, count, NULL, 0));
    for (int i = 0; i < count; i++) free(made[i]);
    vx_adapter *a;
    assert_ok(vx_adapter_open(&a, adapter_path, &(vx_adapter_params){ .strength = strength, .partial = partial }));
    unlink(adapter_path);
    return a;
}

static const float sigmas[] = { 1, 0.923076928f, 0 }; // shift 12 at 1, 1/2, 0
static vx_status put_on(rig *r, vx_adapter *const *list, int count, bool merge, vx_denoiser_adapter_use *use, uint64_t *bytes)
{
    return vx_denoiser_adapt(
        r->d, NULL,
        &(vx_denoiser_adapt_params){
            .adapter = list, .count = count, .merge = merge, .load = true, .threads = 2, .schedule = { sigmas, 3, 12, 3 } },
        use, bytes);
}

// The weight's row that writes an output column, as f32.
static void row_of(const vx_weight *w, int64_t column, float *row)
{
    for (int i = 0; i < w->segments; i++) {
        const vx_weight_segment *s = &w->segment[i];
        const int64_t r = column - s->column;
        if (r >= 0 && r < s->weight.shape[0]) vx_denoiser_widen(row, s->weight, r * s->weight.stride[0], w->k);
    }
}

#define QKV "blocks.1.attn.qkv_proj"
#define FC1 "blocks.1.mlp.fc1"
static const part pairs[] = {
    { QKV ".lora_A.weight", 2, { 3, TINY_HIDDEN }, NULL },
    { QKV ".lora_B.weight", 2, { 3 * TINY_INNER, 3 }, NULL },
    { FC1 ".lora_A.weight", 2, { 2, TINY_HIDDEN }, NULL },
    { FC1 ".lora_B.weight", 2, { 2 * TINY_FFN, 2 }, NULL },
};

// What each weight must be: bf16(w + scale * sum of b a), in f32, in order, from the definition of grouped rows.
static void check_row(const float *before, const float *after, const part *down, const part *up, int64_t row, float scale)
{
    const int64_t rank = down->shape[0], k = down->shape[1];
    float *a = malloc((size_t)(rank * k) * sizeof *a), *b = malloc((size_t)(up->shape[0] * rank) * sizeof *b);
    tiny_values(a, down->name, rank * k, 1, 0);
    tiny_values(b, up->name, up->shape[0] * rank, 1, 0);
    for (int64_t j = 0; j < k; j++) {
        float delta = 0;
        for (int64_t i = 0; i < rank; i++) delta += b[row * rank + i] * a[i * k + j];
        const float want = vx_round_bf16(before[j] + scale * delta);
        if (after[j] != want)
            fail_msg("row %lld, column %lld: %g, wanted %g", (long long)row, (long long)j, (double)after[j], (double)want);
    }
    free(a);
    free(b);
}

static void merges_the_rounded_sum_and_takes_it_off_again(void **state)
{
    (void)state;
    for (int diffusers = 0; diffusers < 2; diffusers++) {
        rig r;
        open_rig(&r, diffusers);
        vx_denoiser_block *b = &r.d->blocks[1];
        const vx_weight qkv = b->qkv.weight, fc1 = b->fc1, out = b->out_proj;
        vx_adapter *a = make_adapter(pairs, 4, -0.7f, false);
        vx_denoiser_adapter_use use;
        uint64_t bytes;
        assert_ok(put_on(&r, &a, 1, true, &use, &bytes));
        assert_int_equal(use.merged, 2);
        assert_true(bytes >= 2 * (3 * TINY_INNER + 2 * TINY_FFN) * TINY_HIDDEN);
        assert_int_equal(b->qkv.weight.branches, 0);
        float before[TINY_HIDDEN], after[TINY_HIDDEN];
        for (int which = 0; which < 3; which++)
            for (int h = 0; h < TINY_HEADS; h++)
                for (int c = 0; c < TINY_HEAD_DIM; c++) {
                    const int64_t column = b->qkv.offset[which] + h * b->qkv.head_stride + c;
                    row_of(&qkv, column, before);
                    row_of(&b->qkv.weight, column, after);
                    check_row(before, after, &pairs[0], &pairs[1], which * TINY_INNER + h * TINY_HEAD_DIM + c, -0.7f);
                }
        for (int row = 0; row < 2 * TINY_FFN; row++) { // official rows: the gate first
            const int64_t column = b->gate_first ? row : (row + TINY_FFN) % (2 * TINY_FFN);
            row_of(&fc1, column, before);
            row_of(&b->fc1, column, after);
            check_row(before, after, &pairs[2], &pairs[3], row, -0.7f);
        }
        assert_memory_equal(&b->out_proj, &out, sizeof out);
        vx_denoiser_unadapt(r.d, NULL);
        assert_memory_equal(&b->qkv.weight, &qkv, sizeof qkv);
        assert_memory_equal(&b->fc1, &fc1, sizeof fc1);
        vx_adapter_close(&a);
        close_rig(&r);
    }
}

// Beside the weights: views of the file where the order is the base's, no copy of a weight.
static void branches_take_little_memory(void **state)
{
    (void)state;
    rig r;
    open_rig(&r, true);
    vx_adapter *a = make_adapter(pairs, 4, 1, false);
    vx_denoiser_adapter_use use;
    uint64_t bytes, planned;
    assert_ok(put_on(&r, &a, 1, false, &use, &bytes));
    assert_int_equal(r.d->blocks[1].qkv.weight.branches, 1);
    assert_int_equal(r.d->blocks[0].qkv.weight.branches, 0);
    assert_int_equal(bytes, 2 * TINY_FFN * 2 * 4); // fc1: the halves change places
    assert_ok(vx_denoiser_adapt(
        r.d, NULL, &(vx_denoiser_adapt_params){ .adapter = &a, .count = 1, .schedule = { sigmas, 3, 12, 3 } }, &use, &planned));
    assert_int_equal(planned, bytes);
    assert_null(r.d->blocks[1].fc1.branch[0].b.data);
    vx_denoiser_unadapt(r.d, NULL);
    vx_adapter_close(&a);
    close_rig(&r);
}

// .diff and .diff_b: w + strength * diff, rounded once; the bias in f32.
static void differences_are_added_to_weights_and_biases(void **state)
{
    (void)state;
    static const part parts[] = { { "blocks.0.adaln_proj.linear.diff_b", 1, { 18 * TINY_HIDDEN }, NULL },
                                  { "blocks.0.mlp.fc2.diff", 2, { TINY_HIDDEN, TINY_FFN }, NULL } };
    rig r;
    open_rig(&r, false);
    vx_denoiser_block *b = &r.d->blocks[0];
    float bias[18 * TINY_HIDDEN], added[18 * TINY_HIDDEN], diff[TINY_HIDDEN * TINY_FFN], before[TINY_FFN], after[TINY_FFN];
    vx_denoiser_widen(bias, b->adaln.segment[0].bias, 0, 18 * TINY_HIDDEN);
    tiny_values(added, parts[0].name, 18 * TINY_HIDDEN, 1, 0);
    tiny_values(diff, parts[1].name, TINY_HIDDEN * TINY_FFN, 1, 0);
    const vx_weight fc2 = b->fc2;
    vx_adapter *a = make_adapter(parts, 2, 0.5f, false);
    vx_denoiser_adapter_use use;
    uint64_t bytes;
    assert_ok(put_on(&r, &a, 1, false, &use, &bytes));
    for (int i = 0; i < 18 * TINY_HIDDEN; i++) assert_true(vx_f32_of(b->adaln.segment[0].bias)[i] == bias[i] + 0.5f * added[i]);
    for (int row = 0; row < TINY_HIDDEN; row++) {
        row_of(&fc2, row, before);
        row_of(&b->fc2, row, after);
        for (int i = 0; i < TINY_FFN; i++) assert_true(after[i] == vx_round_bf16(before[i] + 0.5f * diff[row * TINY_FFN + i]));
    }
    assert_int_equal(use.merged, 1);
    vx_denoiser_unadapt(r.d, NULL);
    vx_adapter_close(&a);
    close_rig(&r);
}

// Four heads for two steps: each step's head is the mean of two, weighted by what they cover of its timesteps. With shift 12 the
// grid 1, 3/4, 1/2, 1/4, 0 stands at timesteps 0, 1 - 36/37, 1 - 12/13, 1 - 4/5, 1.
static void a_bank_of_heads_is_mixed_for_every_step(void **state)
{
    (void)state;
    enum { N = 4 * TINY_C, K = TINY_HIDDEN };
    static const part whole[] = { { "proj_out.weight", 3, { 4, N, K }, NULL },
                                  { "proj_out.bias", 2, { 4, N }, NULL },
                                  { "audio_proj_out.weight", 3, { 4, TINY_AC, K }, NULL },
                                  { "audio_proj_out.bias", 2, { 4, TINY_AC }, NULL } };
    const double t[5] = { 0, 1 - 36.0 / 37, 1 - 12.0 / 13, 1 - 4.0 / 5, 1 };
    rig r;
    open_rig(&r, false);
    vx_adapter *a = make_adapter(whole, 4, 1, false);
    vx_denoiser_adapter_use use;
    uint64_t bytes;
    assert_ok(put_on(&r, &a, 1, false, &use, &bytes));
    float bank[4 * N * K], bias[4 * N];
    tiny_values(bank, whole[0].name, 4 * N * K, 1, 0);
    tiny_values(bias, whole[1].name, 4 * N, 1, 0);
    for (int step = 0; step < 2; step++) {
        const vx_weight *w = vx_denoiser_head_weight(r.d, false, step);
        const double first = (t[2 * step + 1] - t[2 * step]) / (t[2 * step + 2] - t[2 * step]);
        for (int i = 0; i < N; i++) {
            for (int j = 0; j < K; j++) {
                const double want = first * (double)bank[(2 * step * N + i) * K + j] +
                                    (1 - first) * (double)bank[((2 * step + 1) * N + i) * K + j];
                assert_true(fabs((double)vx_f32_of(w->segment[0].weight)[i * K + j] - want) < 1e-6);
            }
            const double want = first * (double)bias[2 * step * N + i] + (1 - first) * (double)bias[(2 * step + 1) * N + i];
            assert_true(fabs((double)vx_f32_of(w->segment[0].bias)[i] - want) < 1e-6);
        }
        assert_int_equal(vx_denoiser_head_weight(r.d, true, step)->n, TINY_AC);
        assert_true(vx_denoiser_head_weight(r.d, true, step) != &r.d->audio_out);
    }
    static const float three[] = { 1, 0.9f, 0.5f, 0 };
    vx_status s = vx_denoiser_adapt(
        r.d, NULL,
        &(vx_denoiser_adapt_params){ .adapter = &a, .count = 1, .load = true, .threads = 1, .schedule = { three, 4, 12, 3 } },
        &use, &bytes);
    assert_int_equal(s.code, VX_ERR_CONFLICT);
    assert_string_equal(s.field, "steps");
    assert_true(vx_denoiser_head_weight(r.d, false, 0) == &r.d->video_out);
    vx_adapter_close(&a);
    close_rig(&r);
}

// The same bank as factors with reshape_weight: block 0 goes onto the head, the others are offsets to it.
static void a_bank_may_come_as_factors(void **state)
{
    (void)state;
    enum { N = 4 * TINY_C, K = TINY_HIDDEN };
    static const int64_t shape[] = { 2 * N, K };
    static const float one = 1;
    float up[2 * N], down[K], head[N * K];
    tiny_values(up, "up", 2 * N, 1, 0);
    tiny_values(down, "down", K, 1, 0);
    const vx_safetensors_tensor tensor[] = { { "final_layer.video_out.lora_down.weight", VX_F32, 2, { 1, K }, down },
                                             { "final_layer.video_out.lora_up.weight", VX_F32, 2, { 2 * N, 1 }, up },
                                             { "final_layer.video_out.alpha", VX_F32, 0, { 0 }, &one },
                                             { "final_layer.video_out.reshape_weight", VX_I64, 1, { 2 }, shape } };
    rig r;
    open_rig(&r, false);
    vx_denoiser_widen(head, r.d->video_out.segment[0].weight, 0, N * K);
    assert_ok(vx_safetensors_write(adapter_path, true, tensor, 4, NULL, 0));
    vx_adapter *a;
    vx_denoiser_adapter_use use;
    uint64_t bytes;
    assert_ok(vx_adapter_open(&a, adapter_path, &(vx_adapter_params){ .strength = 0.5f }));
    unlink(adapter_path);
    assert_ok(put_on(&r, &a, 1, false, &use, &bytes));
    for (int step = 0; step < 2; step++) {
        const float *w = vx_f32_of(vx_denoiser_head_weight(r.d, false, step)->segment[0].weight);
        for (int i = 0; i < N; i++)
            for (int j = 0; j < K; j++) {
                const double rows = (double)up[i] + (step ? (double)up[N + i] : 0);
                assert_true(fabs((double)w[i * K + j] - ((double)head[i * K + j] + 0.5 * rows * (double)down[j])) < 1e-6);
            }
    }
    vx_denoiser_unadapt(r.d, NULL);
    vx_adapter_close(&a);
    close_rig(&r);
}

// A pruned file with its basis takes a full model's AdaLN adapter; without it, it leaves it out.
static void pruned_files_take_adaln_by_their_basis(void **state)
{
    (void)state;
    enum { CURVE = 3, OUT = 18 * TINY_HIDDEN };
    static const part parts[] = { { "blocks.1.adaln_proj.linear.lora_A.weight", 2, { 2, TINY_T_DIM }, NULL },
                                  { "blocks.1.adaln_proj.linear.lora_B.weight", 2, { OUT, 2 }, NULL },
                                  { "blocks.1.mlp.fc2.lora_A.weight", 2, { 1, TINY_FFN }, NULL },
                                  { "blocks.1.mlp.fc2.lora_B.weight", 2, { TINY_HIDDEN, 1 }, NULL } };
    static const char *const embedder[] = { "time_embedder.proj_in.weight", "time_embedder.proj_in.bias",
                                            "time_embedder.proj_out.weight", "time_embedder.proj_out.bias" };
    static const char *const adaln[] = { "blocks.0.adaln_proj.linear.weight", "blocks.1.adaln_proj.linear.weight",
                                         "final_layer.adaln_proj.linear.weight" };
    float basis[CURVE * TINY_T_DIM], mean[TINY_T_DIM], a[2 * TINY_T_DIM], b[OUT * 2];
    tiny_values(basis, "adaln_basis", CURVE * TINY_T_DIM, 1, 0);
    tiny_values(mean, "adaln_mean", TINY_T_DIM, 1, 0);
    tiny_values(a, parts[0].name, 2 * TINY_T_DIM, 1, 0);
    tiny_values(b, parts[1].name, OUT * 2, 1, 0);
    for (int with_basis = 0; with_basis < 2; with_basis++) {
        tiny *t = tiny_make();
        for (int i = 0; i < 4; i++) tiny_remove(t, embedder[i]);
        for (int i = 0; i < 3; i++) tiny_find(t, adaln[i])->shape[1] = CURVE;
        float *table = malloc(1025 * CURVE * sizeof *table);
        tiny_values(table, "adaln_t_table", 1025 * CURVE, 1, 0);
        tiny_put(t, "adaln_t_table", VX_F32, 2, 1025, CURVE, table);
        if (with_basis) {
            tiny_put(t, "adaln_basis", VX_F32, 2, CURVE, TINY_T_DIM, memcpy(malloc(sizeof basis), basis, sizeof basis));
            tiny_put(t, "adaln_mean", VX_F32, 1, TINY_T_DIM, 0, memcpy(malloc(sizeof mean), mean, sizeof mean));
        }
        rig r = { .d = NULL };
        tiny_write(t, &r.folder, tiny_official_config);
        tiny_free(t);
        assert_ok(vx_component_open(&r.component, VX_TRANSFORMER, r.folder.path));
        assert_ok(vx_denoiser_open(&r.d, r.component));
        vx_adapter *adapter = make_adapter(parts, 4, 0.5f, false);
        vx_denoiser_adapter_use use;
        uint64_t bytes;
        float before[OUT];
        vx_weight *w = &r.d->blocks[1].adaln;
        vx_denoiser_widen(before, w->segment[0].bias, 0, OUT);
        assert_ok(put_on(&r, &adapter, 1, false, &use, &bytes));
        assert_int_equal(use.left_out, !with_basis);
        assert_int_equal(use.projected, with_basis);
        assert_int_equal(w->branches, with_basis);
        assert_int_equal(r.d->blocks[1].fc2.branches, 1);
        for (int i = 0; with_basis && i < 2 * CURVE; i++) {
            double sum = 0;
            for (int j = 0; j < TINY_T_DIM; j++)
                sum += (double)a[i / CURVE * TINY_T_DIM + j] * (double)basis[i % CURVE * TINY_T_DIM + j];
            assert_true(fabs((double)vx_f32_of(w->branch[0].a)[i] - sum) < 1e-6);
        }
        for (int i = 0; with_basis && i < OUT; i++) {
            double sum = 0;
            for (int j = 0; j < TINY_T_DIM; j++)
                sum += ((double)b[2 * i] * (double)a[j] + (double)b[2 * i + 1] * (double)a[TINY_T_DIM + j]) * (double)mean[j];
            assert_true(fabs((double)vx_f32_of(w->segment[0].bias)[i] - ((double)before[i] + 0.5 * sum)) < 1e-5);
        }
        vx_denoiser_unadapt(r.d, NULL);
        vx_adapter_close(&adapter);
        close_rig(&r);
    }
}

static void modules_that_are_not_there_are_an_error_or_counted(void **state)
{
    (void)state;
    static const part parts[] = { { "blocks.0.mlp.fc2.lora_A.weight", 2, { 1, TINY_FFN }, NULL },
                                  { "blocks.0.mlp.fc2.lora_B.weight", 2, { TINY_HIDDEN, 1 }, NULL },
                                  { "blocks.7.mlp.fc2.lora_A.weight", 2, { 1, TINY_FFN }, NULL },
                                  { "blocks.7.mlp.fc2.lora_B.weight", 2, { TINY_HIDDEN, 1 }, NULL } };
    rig r;
    open_rig(&r, false);
    for (int partial = 0; partial < 2; partial++) {
        vx_adapter *a = make_adapter(parts, 4, 1, partial), *none = make_adapter(parts + 2, 2, 1, partial);
        vx_denoiser_adapter_use use;
        uint64_t bytes;
        vx_status s = put_on(&r, &a, 1, false, &use, &bytes);
        assert_int_equal(s.code, partial ? VX_OK : VX_ERR_TENSOR_UNEXPECTED);
        if (!partial) assert_non_null(strstr(s.message, "blocks.7.mlp.fc2"));
        else assert_int_equal(use.unused, 1);
        // One that fits nothing at all is refused in any case: it would do nothing, in silence.
        assert_int_equal(put_on(&r, &none, 1, false, &use, &bytes).code, VX_ERR_TENSOR_UNEXPECTED);
        assert_null(r.d->adapted);
        assert_int_equal(r.d->blocks[0].fc2.branches, 0);
        vx_adapter_close(&a);
        vx_adapter_close(&none);
    }
    close_rig(&r);
}

static void running_out_of_memory_leaves_the_weights_as_they_were(void **state)
{
    (void)state;
    rig r;
    open_rig(&r, true);
    const vx_weight qkv = r.d->blocks[1].qkv.weight;
    vx_adapter *a = make_adapter(pairs, 4, 1, false);
    vx_denoiser_adapter_use use;
    uint64_t bytes;
    for (int k = 1;; k++) {
        vx_fault_arm(k, false);
        vx_status s = put_on(&r, &a, 1, true, &use, &bytes);
        if (!vx_fault_disarm()) {
            assert_int_equal(s.code, VX_OK);
            break;
        }
        assert_int_equal(s.code, VX_ERR_MEMORY);
        assert_null(r.d->adapted);
        assert_memory_equal(&r.d->blocks[1].qkv.weight, &qkv, sizeof qkv);
    }
    vx_denoiser_unadapt(r.d, NULL);
    vx_adapter_close(&a);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_the_rounded_sum_and_takes_it_off_again),
        cmocka_unit_test(branches_take_little_memory),
        cmocka_unit_test(differences_are_added_to_weights_and_biases),
        cmocka_unit_test(a_bank_of_heads_is_mixed_for_every_step),
        cmocka_unit_test(a_bank_may_come_as_factors),
        cmocka_unit_test(pruned_files_take_adaln_by_their_basis),
        cmocka_unit_test(modules_that_are_not_there_are_an_error_or_counted),
        cmocka_unit_test(running_out_of_memory_leaves_the_weights_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
