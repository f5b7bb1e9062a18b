// Copies of weights: where they lie never changes a bit; budgets hold; what goes away is forgotten.
#include "card.h"

#include <stdbool.h>

enum { LAYERS = 12, SIDE = 512, ROWS = 64 };

static vx_device *card;
static vx_arena *arena;
static void *weight[LAYERS];
static vx_tensor x, y;
static const size_t weight_bytes = (size_t)SIDE * SIDE * 2;

static void make_layers(void)
{
    for (int i = 0; i < LAYERS; i++) {
        weight[i] = make_numbers(VX_BF16, SIDE * SIDE, 0, (uint64_t)i + 1);
        for (int64_t j = 0; j < SIDE * SIDE; j++) put(weight[i], VX_BF16, j, 0.08f * get(weight[i], VX_BF16, j));
    }
}

// One pass over all layers, as a model does; the result's bytes.
static void *pass(vx_device *dev, bool once, bool ahead)
{
    void *start = make_numbers(VX_BF16, ROWS * SIDE, 0, 99);
    assert_ok(vx_upload(dev, x, start));
    vx_free(start);
    for (int i = 0; i < LAYERS; i++) {
        const vx_weight w = { .n = SIDE,
                              .k = SIDE,
                              .segments = 1,
                              .segment = { { .weight = vx_tensor_of(weight[i], VX_BF16, SIDE, SIDE) } },
                              .once = once };
        if (ahead && i + 1 < LAYERS) assert_ok(vx_device_prefetch(dev, vx_tensor_of(weight[i + 1], VX_BF16, SIDE, SIDE)));
        assert_ok(vx_linear(dev, i % 2 ? x : y, i % 2 ? y : x, &w));
    }
    return fetch(dev, LAYERS % 2 ? y : x);
}

static void assert_pass(const void *want, bool once, bool ahead)
{
    void *got = pass(card, once, ahead);
    assert_memory_equal(got, want, (size_t)ROWS * SIDE * 2);
    vx_free(got);
}

static int begin(void **state)
{
    (void)state;
    vx_device_forget(card, NULL, 0);
    return vx_device_weight_budget(card, 0).code != VX_OK;
}

static void streamed_and_resident_give_the_same_bits(void **state)
{
    (void)state;
    void *want = pass(card, false, false);
    for (size_t budget = 1; budget <= LAYERS * weight_bytes + (4u << 20); budget += 3 * weight_bytes / 2) {
        for (int ahead = 0; ahead < 2; ahead++) {
            vx_device_forget(card, NULL, 0);
            assert_ok(vx_device_weight_budget(card, budget));
            for (int i = 0; i < 4; i++) assert_pass(want, false, ahead != 0);
        }
    }
    vx_device_forget(card, NULL, 0);
    for (int i = 0; i < 3; i++) assert_pass(want, true, false);
    assert_pass(want, true, true);
    assert_pass(want, false, false);
    vx_free(want);
}

static void the_budget_holds(void **state)
{
    (void)state;
    const uint64_t budget = 6 * weight_bytes + (1u << 20);
    assert_ok(vx_device_weight_budget(card, budget));
    const uint64_t before = vx_device_weights(card).copied;
    void *want = pass(card, false, false);
    const vx_weight_stats first = vx_device_weights(card);
    assert_true(first.resident <= budget);
    assert_int_equal(first.copied - before, LAYERS * weight_bytes);
    assert_pass(want, false, false);
    const vx_weight_stats second = vx_device_weights(card);
    assert_true(second.resident <= budget);
    // Some stayed, some came again.
    assert_true(second.copied > first.copied && second.copied - first.copied < LAYERS * weight_bytes);
    vx_free(want);
}

static void everything_stays_where_there_is_room(void **state)
{
    (void)state;
    vx_free(pass(card, false, false));
    const vx_weight_stats first = vx_device_weights(card);
    vx_free(pass(card, false, false));
    const vx_weight_stats second = vx_device_weights(card);
    assert_int_equal(second.copied, first.copied);
    assert_int_equal(second.misses, first.misses);
    assert_int_equal(second.hits, first.hits + LAYERS);
    // A smaller budget sends some away at once.
    assert_ok(vx_device_weight_budget(card, 3 * weight_bytes));
    assert_true(vx_device_weights(card).resident <= 3 * weight_bytes);
}

static void once_is_not_kept(void **state)
{
    (void)state;
    vx_free(pass(card, true, false));
    vx_free(pass(card, true, false));
    const vx_weight_stats stats = vx_device_weights(card);
    assert_true(stats.resident <= 4 * weight_bytes); // the ring
    vx_device_release(card);
    assert_int_equal(vx_device_weights(card).resident, 0);
    // Asked for ahead by somebody who does not know.
    vx_free(pass(card, true, true));
    assert_true(vx_device_weights(card).resident <= 6 * weight_bytes);
    vx_device_release(card);
    assert_int_equal(vx_device_weights(card).resident, 0);
}

static void a_whole_that_is_there_in_parts_is_not_fetched_again(void **state)
{
    (void)state;
    const vx_tensor whole = vx_tensor_of(weight[2], VX_BF16, SIDE, SIDE);
    vx_weight w = { .n = SIDE, .k = SIDE, .segments = 2 };
    for (int i = 0; i < 2; i++) {
        w.segment[i].weight = vx_tensor_slice(whole, 0, i * SIDE / 2, (i + 1) * SIDE / 2);
        w.segment[i].column = i * SIDE / 2;
    }
    assert_ok(vx_linear(card, y, x, &w));
    const uint64_t copied = vx_device_weights(card).copied;
    assert_ok(vx_device_prefetch(card, whole));
    assert_int_equal(vx_device_weights(card).copied, copied);
    // The other way round the parts are found in the whole.
    vx_device_forget(card, NULL, 0);
    assert_ok(vx_device_prefetch(card, whole));
    assert_ok(vx_linear(card, y, x, &w));
    assert_int_equal(vx_device_weights(card).copied, copied + weight_bytes);
}

static void what_a_later_model_needs_displaces_an_earlier_one(void **state)
{
    (void)state;
    enum { FEW = 4 };
    void *other[FEW];
    for (int i = 0; i < FEW; i++) other[i] = make_numbers(VX_BF16, SIDE * SIDE, 0, 50 + (uint64_t)i);
    assert_ok(vx_device_weight_budget(card, (FEW + 2) * weight_bytes + (1u << 20)));
    const int64_t start = vx_device_weights(card).misses;
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < FEW; i++) {
            const vx_weight w = {
                .n = SIDE, .k = SIDE, .segments = 1, .segment = { { .weight = vx_tensor_of(other[i], VX_BF16, SIDE, SIDE) } }
            };
            assert_ok(vx_linear(card, y, x, &w));
        }
    }
    assert_int_equal(vx_device_weights(card).misses - start, FEW); // held since the first round
    for (int round = 0; round < 3; round++) vx_free(pass(card, false, false));
    const int64_t settled = vx_device_weights(card).misses;
    vx_free(pass(card, false, false));
    assert_true(vx_device_weights(card).misses - settled <= LAYERS - FEW + 1); // the earlier model's room is used
    vx_device_forget(card, NULL, 0);
    for (int i = 0; i < FEW; i++) vx_free(other[i]);
}

static void forgotten_memory_is_read_anew(void **state)
{
    (void)state;
    void *want = pass(card, false, false);
    put(weight[5], VX_BF16, 7, 0.5f);
    vx_device_forget(card, weight[5], weight_bytes);
    const int64_t misses = vx_device_weights(card).misses;
    void *got = pass(card, false, false);
    assert_int_equal(vx_device_weights(card).misses, misses + 1);
    assert_memory_not_equal(got, want, (size_t)ROWS * SIDE * 2);
    vx_free(got);
    vx_free(want);
}

static void a_part_of_a_copy_is_found_in_it(void **state)
{
    (void)state;
    vx_free(pass(card, false, false));
    const int64_t misses = vx_device_weights(card).misses;
    vx_tensor part = vx_tensor_slice(vx_tensor_of(weight[3], VX_BF16, SIDE, SIDE), 0, 100, 200);
    const vx_weight w = { .n = 100, .k = SIDE, .segments = 1, .segment = { { .weight = part } } };
    vx_tensor out = vx_tensor_slice(y, 1, 0, 100);
    assert_ok(vx_linear(card, out, x, &w));
    assert_int_equal(vx_device_weights(card).misses, misses);
}

// A pass whose every operator needs several weights, more than the ring has room for.
static void an_operator_may_need_more_than_the_ring(void **state)
{
    (void)state;
    vx_weight w = { .n = SIDE, .k = SIDE, .segments = VX_MAX_SEGMENTS };
    for (int i = 0; i < VX_MAX_SEGMENTS; i++) {
        w.segment[i].weight = vx_tensor_slice(vx_tensor_of(weight[i], VX_BF16, SIDE, SIDE), 0, 0, SIDE / VX_MAX_SEGMENTS);
        w.segment[i].column = i * (SIDE / VX_MAX_SEGMENTS);
    }
    void *start = make_numbers(VX_BF16, ROWS * SIDE, 0, 98);
    assert_ok(vx_upload(card, x, start));
    assert_ok(vx_linear(card, y, x, &w));
    void *want = fetch(card, y);
    // A ring of a quarter of it: the largest weight so far is small.
    vx_device_forget(card, NULL, 0);
    assert_ok(vx_device_weight_budget(card, 1));
    for (int i = 0; i < 4; i++) {
        assert_ok(vx_linear(card, y, x, &w));
        void *got = fetch(card, y);
        assert_memory_equal(got, want, (size_t)ROWS * SIDE * 2);
        vx_free(got);
    }
    vx_free(start), vx_free(want);
}

// Each conversion, value by value.
static void conversions_round_to_nearest(void **state)
{
    (void)state;
    static const vx_dtype types[] = { VX_F32, VX_BF16, VX_F16 };
    enum { COUNT = 5 << 20 }; // more than one pinned piece of f32
    vx_cuda *cuda = vx_cuda_of(card);
    for (int i = 0; i < 3; i++) {
        void *from = make_numbers(types[i], COUNT, 0, 3);
        for (int j = 0; j < 3; j++) {
            for (int once = 0; once < 2; once++) {
                vx_tensor t = vx_tensor_of(from, types[i], COUNT);
                assert_ok(vx_cuda_begin(cuda, "test"));
                assert_ok(vx_cuda_resident_as(cuda, &t, types[j], once != 0));
                assert_int_equal(t.dtype, types[j]);
                void *got = fetch(card, t);
                for (int64_t e = 0; e < COUNT; e++) {
                    const float v = get(from, types[i], e);
                    float want = v;
                    if (types[j] == VX_BF16) want = vx_round_bf16(v);
                    if (types[j] == VX_F16) want = vx_f16_to_f32(vx_f32_to_f16(v));
                    if (get(got, types[j], e) != want)
                        fail_msg("element %lld of %s to %s", (long long)e, vx_dtype_name(types[i]), vx_dtype_name(types[j]));
                }
                vx_free(got);
            }
        }
        vx_device_forget(card, from, (size_t)COUNT * 4);
        vx_free(from);
    }
}

int main(void)
{
    card = make_card();
    make_layers();
    if (vx_arena_create(card, &arena, 8 << 20).code != VX_OK) return 1;
    x = vx_arena_tensor(arena, VX_BF16, ROWS, SIDE);
    y = vx_arena_tensor(arena, VX_BF16, ROWS, SIDE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(streamed_and_resident_give_the_same_bits, begin),
        cmocka_unit_test_setup(the_budget_holds, begin),
        cmocka_unit_test_setup(everything_stays_where_there_is_room, begin),
        cmocka_unit_test_setup(once_is_not_kept, begin),
        cmocka_unit_test_setup(a_whole_that_is_there_in_parts_is_not_fetched_again, begin),
        cmocka_unit_test_setup(what_a_later_model_needs_displaces_an_earlier_one, begin),
        cmocka_unit_test_setup(forgotten_memory_is_read_anew, begin),
        cmocka_unit_test_setup(a_part_of_a_copy_is_found_in_it, begin),
        cmocka_unit_test_setup(an_operator_may_need_more_than_the_ring, begin),
        cmocka_unit_test_setup(conversions_round_to_nearest, begin),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vx_arena_destroy(&arena);
    vx_device_destroy(&card);
    for (int i = 0; i < LAYERS; i++) vx_free(weight[i]);
    return failed;
}
