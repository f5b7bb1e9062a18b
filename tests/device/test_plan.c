// The plan device counts what was computed by hand here, and fails when told; the trace device tells what passed.
#include "rig.h"

#include "base/alloc.h"
#include "device/arena.h"

static vx_device *cpu;

static int open_all(void **state)
{
    (void)state;
    cpu = rig_cpu(NULL, 2);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    vx_device_destroy(&cpu);
    return 0;
}

#define T(t, ...) vx_tensor_of(NULL, VX_##t, __VA_ARGS__)
#define NONE      ((vx_tensor){ 0 })

static vx_weight weight_of(vx_tensor w, vx_tensor b)
{
    return (vx_weight){ .n = w.shape[0], .k = w.shape[1], .segments = 1, .segment = { { .weight = w, .bias = b } } };
}

static vx_status linear_3x8x6(vx_device *d)
{
    const vx_weight w = weight_of(T(BF16, 6, 8), T(F32, 6));
    return vx_linear(d, T(F32, 3, 6), T(BF16, 3, 8), &w);
}

static vx_status attention_5x7(vx_device *d)
{
    return vx_attention(d, T(BF16, 5, 4, 16), T(BF16, 5, 4, 16), T(BF16, 7, 2, 16), T(BF16, 7, 2, 16), NULL);
}

static vx_status attention_causal(vx_device *d)
{
    const vx_tensor t = T(F32, 5, 2, 8);
    return vx_attention(d, t, t, t, t, &(vx_attention_params){ .causal = true });
}

static vx_status norm(vx_device *d)
{
    return vx_rms_norm(d, T(BF16, 4, 8), T(BF16, 4, 8), T(F32, 8), 1, VX_NORM_ROUND_ONCE);
}
static vx_status gate_add(vx_device *d)
{
    return vx_gate_add(d, T(BF16, 4, 8), T(BF16, 4, 8), T(BF16, 3, 8), T(I32, 4));
}
static vx_status gate_add_norm(vx_device *d)
{
    const vx_tensor x = T(BF16, 4, 8), table = T(BF16, 3, 8);
    return vx_gate_add_norm(d, T(BF16, 4, 8), x, T(BF16, 4, 8),
                            &(vx_gate_add_norm_params){ table, T(F32, 8), table, table, T(I32, 4), 1 });
}
static vx_status swiglu(vx_device *d)
{
    return vx_swiglu(d, T(BF16, 4, 8), T(BF16, 4, 16), true);
}
static vx_status embed(vx_device *d)
{
    return vx_embed(d, T(F32, 4, 8), T(BF16, 1000, 8), NULL, T(I32, 4));
}
static vx_status bytes(vx_device *d)
{
    return vx_to_u8(d, T(U8, 10), T(F32, 10));
}

static vx_status conv(vx_device *d)
{
    return vx_conv1d(d, T(F32, 5, 14), T(F32, 3, 20), T(F32, 5, 3, 7), &(vx_conv1d_params){ .bias = T(F32, 5) });
}

static vx_status conv_transpose(vx_device *d)
{
    return vx_conv_transpose1d(d, T(F32, 5, 80), T(F32, 3, 20), T(F32, 3, 5, 8),
                               &(vx_conv1d_params){ .stride = 4, .padding = 2 });
}

// Weights are read once for all lines.
static vx_status conv_lines(vx_device *d)
{
    return vx_conv1d(d, T(F32, 5, 2, 14), T(F32, 3, 2, 20), T(F32, 5, 3, 7), &(vx_conv1d_params){ .bias = T(F32, 5) });
}
static vx_status conv_transpose_lines(vx_device *d)
{
    return vx_conv_transpose1d(d, T(F32, 5, 2, 80), T(F32, 3, 2, 20), T(F32, 3, 5, 8),
                               &(vx_conv1d_params){ .stride = 4, .padding = 2 });
}

static vx_status heads(vx_device *d)
{
    return vx_qk_norm_rope(d, T(BF16, 4, 2, 8), T(BF16, 4, 1, 8),
                           &(vx_qk_norm_rope_params){ .q_weight = T(BF16, 8), .cos = T(BF16, 4, 3), .sin = T(BF16, 4, 3) });
}

// Two frames in front: of three frames the first meets one tap, the second two, the third three.
static vx_status conv3d(vx_device *d)
{
    return vx_conv3d(d, T(F32, 5, 3, 4, 6), T(F32, 2, 3, 4, 6), T(BF16, 5, 2, 3, 3, 3),
                     &(vx_conv3d_params){ .pad_begin = { 2, 1, 1 }, .pad_end = { 0, 1, 1 }, .reflect = true, .bias = T(F32, 5) });
}

// One frame: a third of the weight is read.
static vx_status conv3d_of_one_frame(vx_device *d)
{
    return vx_conv3d(d, T(F32, 5, 1, 4, 6), T(F32, 2, 1, 4, 6), T(F32, 5, 2, 3, 3, 3),
                     &(vx_conv3d_params){ .pad_begin = { 2, 1, 1 }, .pad_end = { 0, 1, 1 }, .reflect = true });
}

static vx_status group_norm(vx_device *d)
{
    return vx_group_norm(d, T(F32, 4, 2, 3, 5), T(F32, 4, 2, 3, 5), T(BF16, 4), T(BF16, 4), 2, 1e-6f, true);
}
static vx_status gelu(vx_device *d)
{
    return vx_gelu(d, T(BF16, 4, 8), T(BF16, 4, 8), true);
}
static vx_status embed_blend(vx_device *d)
{
    return vx_embed_blend(d, T(F32, 4, 8), T(BF16, 1000, 8), T(I32, 4, 4), T(F32, 4, 4));
}
static vx_status snake(vx_device *d)
{
    return vx_snake(d, T(F32, 3, 20), T(F32, 3, 20), T(F32, 3));
}

static const struct {
    const char *op;
    vx_status (*run)(vx_device *);
    double flop, bytes, weight_bytes;
} cases[] = {
    { "linear", linear_3x8x6, 2 * 3 * 8 * 6, 3 * 6 * 4 + 3 * 8 * 2 + 6 * 8 * 2 + 6 * 4, 6 * 8 * 2 + 6 * 4 },
    { "attention", attention_5x7, 4 * 5 * 7 * 4 * 16, 2 * (5 * 4 * 16 * 2) + 2 * (7 * 2 * 16 * 2), 0 },
    { "attention", attention_causal, 4 * (1 + 2 + 3 + 4 + 5) * 2 * 8, 4 * (5 * 2 * 8 * 4), 0 },
    { "rms_norm", norm, 0, 2 * 64 + 32, 32 },
    { "gate_add", gate_add, 0, 3 * 64 + 48 + 16, 0 },
    { "gate_add_norm", gate_add_norm, 0, 4 * 64 + 3 * 48 + 16 + 32, 32 },
    { "swiglu", swiglu, 0, 64 + 128, 0 },
    { "embed", embed, 0, 4 * 8 * 4 + 4 * 8 * 2 + 4 * 4, 4 * 8 * 2 },
    { "to_u8", bytes, 0, 10 + 40, 0 },
    { "conv1d", conv, 2 * 5 * 3 * 7 * 14, 4 * (5 * 14 + 3 * 20 + 5 * 3 * 7 + 5), 4 * (5 * 3 * 7 + 5) },
    { "conv_transpose1d", conv_transpose, 2 * 3 * 5 * 8 * 20, 4 * (5 * 80 + 3 * 20 + 3 * 5 * 8), 4 * 3 * 5 * 8 },
    { "conv1d", conv_lines, 2 * 2 * 5 * 3 * 7 * 14, 4 * (2 * 5 * 14 + 2 * 3 * 20 + 5 * 3 * 7 + 5), 4 * (5 * 3 * 7 + 5) },
    { "conv_transpose1d", conv_transpose_lines, 2 * 2 * 3 * 5 * 8 * 20, 4 * (2 * 5 * 80 + 2 * 3 * 20 + 3 * 5 * 8),
      4 * 3 * 5 * 8 },
    { "conv3d", conv3d, 2 * 5 * 2 * 9 * (1 + 2 + 3) * 24, 4 * (5 * 3 * 24 + 2 * 3 * 24) + 2 * 5 * 2 * 27 + 4 * 5,
      2 * 5 * 2 * 27 + 4 * 5 },
    { "conv3d", conv3d_of_one_frame, 2 * 5 * 2 * 9 * 24, 4 * (5 * 24 + 2 * 24 + 5 * 2 * 9), 4 * 5 * 2 * 9 },
    { "group_norm", group_norm, 0, 2 * 4 * (4 * 2 * 15) + 2 * 2 * 4, 2 * 2 * 4 },
    { "gelu", gelu, 0, 2 * 64, 0 },
    { "embed_blend", embed_blend, 0, 4 * 8 * 4 + 4 * (4 * 8 * 2) + 2 * (4 * 4 * 4), 4 * (4 * 8 * 2) },
    { "snake", snake, 0, 2 * 4 * 60 + 4 * 3, 4 * 3 },
    { "qk_norm_rope", heads, 0, 2 * (4 * 2 * 8 * 2) + 2 * (4 * 8 * 2) + 2 * (4 * 3 * 2) + 16, 16 },
};
enum { CASES = sizeof cases / sizeof *cases };

static vx_plan_counts counts_of(const vx_device *plan, const char *op)
{
    for (int i = 0; i < vx_device_plan_kinds(); i++) {
        const char *name = NULL;
        const vx_plan_counts c = vx_device_plan_kind(plan, i, &name);
        if (strcmp(name, op) == 0) return c;
    }
    fail_msg("no operator '%s'", op);
    return (vx_plan_counts){ 0 };
}

static void plan_counts_as_by_hand(void **state)
{
    (void)state;
    vx_device *plan = NULL;
    double flop = 0, moved = 0, weights = 0;
    assert_ok(vx_device_plan_create(&plan, cpu));
    assert_true(vx_device_is_plan(plan));
    assert_string_equal(vx_device_name(plan), "plan");
    assert_string_equal(vx_device_isa(plan), vx_device_isa(cpu));
    for (int i = 0; i < CASES; i++) {
        const vx_plan_counts before = counts_of(plan, cases[i].op);
        assert_ok(cases[i].run(plan));
        const vx_plan_counts after = counts_of(plan, cases[i].op);
        assert_int_equal(after.calls, before.calls + 1);
        if (after.flop - before.flop != cases[i].flop || after.bytes - before.bytes != cases[i].bytes ||
            after.weight_bytes - before.weight_bytes != cases[i].weight_bytes)
            fail_msg("%s: %g flop, %g bytes, %g of weights; expected %g, %g, %g", cases[i].op, after.flop - before.flop,
                     after.bytes - before.bytes, after.weight_bytes - before.weight_bytes, cases[i].flop, cases[i].bytes,
                     cases[i].weight_bytes);
        flop += cases[i].flop;
        moved += cases[i].bytes;
        weights += cases[i].weight_bytes;
    }
    const vx_plan_counts total = vx_device_plan_counts(plan);
    assert_int_equal(total.calls, CASES);
    assert_true(total.flop == flop && total.bytes == moved && total.weight_bytes == weights);
    vx_device_plan_reset(plan);
    assert_int_equal(vx_device_plan_counts(plan).calls, 0);
    assert_int_equal(counts_of(plan, "linear").calls, 0);
    vx_device_destroy(&plan);
}

static void plan_fails_at_the_call_it_was_told(void **state)
{
    (void)state;
    vx_device *plan = NULL;
    assert_ok(vx_device_plan_create(&plan, NULL));
    for (int call = 1; call <= 4; call++) {
        vx_device_plan_fail(plan, call, VX_ERR_DEVICE);
        for (int i = 1; i <= 6; i++) assert_code(norm(plan), i == call ? VX_ERR_DEVICE : VX_OK);
    }
    vx_device_plan_fail(plan, 2, VX_ERR_MEMORY);
    vx_device_plan_fail(plan, 0, VX_OK); // taken back
    for (int i = 0; i < 4; i++) assert_ok(norm(plan));
    vx_device_destroy(&plan);
}

static void plan_moves_no_data(void **state)
{
    (void)state;
    vx_device *plan = NULL;
    int host = 7;
    assert_ok(vx_device_plan_create(&plan, NULL));
    assert_ok(vx_upload(plan, T(I32, 1), &host));
    assert_ok(vx_download(plan, &host, T(I32, 1)));
    assert_int_equal(host, 7);
    assert_ok(vx_device_reserve(plan, 1 << 20));
    vx_device_release(plan);
    assert_ok(vx_device_sync(plan));
    vx_device_destroy(&plan);
}

// What the plan says for scratch is enough: with it reserved, no operator allocates.
static void reserved_scratch_is_enough(void **state)
{
    (void)state;
    enum { M = 70, N = 96, K = 136, S = 600 };
    vx_device *plan = NULL, *dev = rig_cpu(NULL, 2);
    assert_ok(vx_device_plan_create(&plan, dev));
    vx_tensor out = rig_tensor(VX_BF16, M, N), x = rig_tensor(VX_BF16, M, K), w = rig_tensor(VX_BF16, N, K);
    vx_tensor qkv = rig_tensor(VX_BF16, S, 2, 32), ctx = rig_like(qkv);
    vx_tensor in = rig_tensor(VX_F32, 6, 50), taps = rig_tensor(VX_F32, 8, 6, 7), sound = rig_tensor(VX_F32, 8, 50);
    const vx_weight weight = weight_of(w, NONE);
    vx_device *devices[] = { plan, dev };
    for (int i = 0; i < 2; i++) {
        vx_device *d = devices[i];
        if (d == dev) assert_ok(vx_device_reserve(dev, vx_device_plan_counts(plan).scratch));
        const uint64_t calls = vx_alloc_calls();
        assert_ok(vx_linear(d, out, x, &weight));
        assert_ok(vx_attention(d, ctx, qkv, qkv, qkv, NULL));
        assert_ok(vx_conv1d(d, sound, in, taps, &(vx_conv1d_params){ .padding = 3 }));
        assert_int_equal(vx_alloc_calls(), calls);
    }
    vx_device_release(dev);
    vx_device_release(dev);
    assert_ok(vx_linear(dev, out, x, &weight)); // without a reservation it takes what it needs
    rig_free(&out);
    rig_free(&x);
    rig_free(&w);
    rig_free(&qkv);
    rig_free(&ctx);
    rig_free(&in);
    rig_free(&taps);
    rig_free(&sound);
    vx_device_destroy(&plan);
    vx_device_destroy(&dev);
}

struct seen {
    int events, not_finite;
    double flop, bytes;
    char ops[256];
};

static void see(void *user, const vx_trace_event *event)
{
    struct seen *s = user;
    s->events++;
    s->not_finite += !event->finite;
    s->flop += event->flop;
    s->bytes += event->bytes;
    assert_true(event->seconds >= 0);
    const size_t size = strlen(s->ops);
    snprintf(s->ops + size, sizeof s->ops - size, "%s%s ", event->op, event->out ? "" : "!");
}

static void trace_tells_operators_and_nan(void **state)
{
    (void)state;
    struct seen seen = { 0 };
    vx_device *trace = NULL;
    assert_ok(vx_device_trace_create(&trace, cpu, &(vx_trace_params){ .event = see, .user = &seen, .check_finite = true }));
    assert_string_equal(vx_device_name(trace), "trace");
    assert_false(vx_device_is_plan(trace));
    vx_tensor x = rig_tensor(VX_BF16, 2, 8), y = rig_tensor(VX_BF16, 2, 8), q = rig_tensor(VX_F32, 2, 1, 8);
    vx_tensor k = rig_tensor(VX_F32, 2, 1, 8), flag = rig_tensor(VX_I32, 1);
    rig_fill(y, 3, 1);
    assert_ok(vx_add(trace, x, y));
    rig_same_bits("the work is done", x, y);
    vx_f32_of(k)[5] = INFINITY;
    assert_ok(vx_qk_norm_rope(trace, q, k, &(vx_qk_norm_rope_params){ .skip_norm = true }));
    assert_ok(vx_mark_not_finite(trace, flag, 0, k));
    assert_string_equal(seen.ops, "add qk_norm_rope qk_norm_rope mark_not_finite! ");
    assert_int_equal(seen.not_finite, 1); // k, not q
    assert_true(seen.bytes == 3 * 32 + 4 * 64 + 64);
    assert_int_equal(*(int32_t *)flag.data, 1);
    assert_code(vx_add(trace, x, q), VX_ERR_SHAPE); // its own front
    assert_int_equal(seen.events, 4);
    rig_free(&x);
    rig_free(&y);
    rig_free(&q);
    rig_free(&k);
    rig_free(&flag);
    vx_device_destroy(&trace);
}

static void trace_of_a_plan_is_a_plan(void **state)
{
    (void)state;
    struct seen seen = { 0 };
    vx_device *plan = NULL, *trace = NULL;
    assert_ok(vx_device_plan_create(&plan, cpu));
    assert_ok(vx_device_trace_create(&trace, plan, &(vx_trace_params){ .event = see, .user = &seen, .check_finite = true }));
    assert_true(vx_device_is_plan(trace));
    assert_ok(linear_3x8x6(trace));
    assert_true(seen.flop == 2 * 3 * 8 * 6);
    assert_int_equal(vx_device_plan_counts(plan).calls, 1);
    vx_device_plan_fail(plan, 1, VX_ERR_DEVICE);
    assert_code(linear_3x8x6(trace), VX_ERR_DEVICE);
    assert_int_equal(seen.events, 1);
    vx_device_destroy(&trace);
    vx_device_destroy(&plan);
}

// A plan of a plan of a trace: the scratch is asked of the device that would take it.
static void scratch_is_asked_through_a_trace(void **state)
{
    (void)state;
    vx_device *straight = NULL, *trace = NULL, *through = NULL;
    struct seen seen = { 0 };
    assert_ok(vx_device_plan_create(&straight, cpu));
    assert_ok(vx_device_trace_create(&trace, cpu, &(vx_trace_params){ .event = see, .user = &seen }));
    assert_ok(vx_device_plan_create(&through, trace));
    assert_ok(attention_5x7(straight));
    assert_ok(attention_5x7(through));
    assert_int_equal(vx_device_plan_counts(straight).scratch, vx_device_plan_counts(through).scratch);
    assert_int_equal(vx_device_threads(through), 2);
    vx_device_destroy(&through);
    vx_device_destroy(&trace);
    vx_device_destroy(&straight);
}

// Every allocation fails once: a device or an arena that could not be made leaves nothing behind.
static void creation_survives_any_failed_allocation(void **state)
{
    (void)state;
    for (int k = 1, hit = 1; hit; k++) {
        vx_device *dev = NULL, *plan = NULL, *trace = NULL;
        vx_arena *arena = NULL;
        struct seen seen = { 0 };
        vx_fault_arm(k, false);
        vx_status s = vx_device_cpu_create(&dev, &(vx_cpu_params){ .threads = 2 });
        if (s.code == VX_OK) s = vx_device_plan_create(&plan, dev);
        if (s.code == VX_OK) s = vx_device_trace_create(&trace, dev, &(vx_trace_params){ .event = see, .user = &seen });
        if (s.code == VX_OK) s = vx_arena_create(trace, &arena, 4096);
        if (s.code == VX_OK) s = vx_device_reserve(dev, 4096);
        hit = vx_fault_disarm();
        assert_int_equal(s.code, hit ? VX_ERR_MEMORY : VX_OK);
        vx_arena_destroy(&arena);
        vx_device_destroy(&trace);
        vx_device_destroy(&plan);
        vx_device_destroy(&dev);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_counts_as_by_hand),
        cmocka_unit_test(plan_fails_at_the_call_it_was_told),
        cmocka_unit_test(plan_moves_no_data),
        cmocka_unit_test(reserved_scratch_is_enough),
        cmocka_unit_test(trace_tells_operators_and_nan),
        cmocka_unit_test(trace_of_a_plan_is_a_plan),
        cmocka_unit_test(scratch_is_asked_through_a_trace),
        cmocka_unit_test(creation_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
