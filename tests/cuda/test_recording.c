// Recorded stretches: replayed or not, the bits are the same.
#include "card.h"

#include <stdbool.h>

#include "base/clock.h"

enum { SIDE = 256, ROWS = 48, LAYERS = 3 };

static vx_device *card;
static vx_arena *arena;
static void *weight[LAYERS];
static vx_tensor x, y, z;
static const size_t out_bytes = (size_t)ROWS * SIDE * 2;

typedef enum interlude { NOTHING, UPLOAD, ALLOCATION, SYNC, PREFETCH, FAILURE } interlude;

static vx_status layer(int i, vx_tensor out, vx_tensor in)
{
    const vx_weight w = {
        .n = SIDE, .k = SIDE, .segments = 1, .segment = { { .weight = vx_tensor_of(weight[i], VX_BF16, SIDE, SIDE) } }
    };
    return vx_linear(card, out, in, &w);
}

static vx_status between(interlude what)
{
    vx_arena *more;
    void *fresh;
    switch (what) {
    case UPLOAD:
        fresh = make_numbers(VX_BF16, ROWS * SIDE, 0, 1234);
        assert_ok(vx_upload(card, z, fresh));
        vx_free(fresh);
        return vx_ok();
    case ALLOCATION:
        assert_ok(vx_arena_create(card, &more, 1 << 20));
        vx_arena_destroy(&more);
        return vx_ok();
    case SYNC: return vx_device_sync(card);
    case PREFETCH: return vx_device_prefetch(card, vx_tensor_of(weight[2], VX_BF16, SIDE, SIDE));
    case FAILURE: return vx_fail(VX_ERR_CANCELLED, "in the middle");
    case NOTHING: break;
    }
    return vx_ok();
}

static vx_status stretch(interlude what)
{
    VX_TRY(layer(0, y, x));
    VX_TRY(between(what));
    VX_TRY(layer(1, z, y));
    return layer(2, y, z);
}

// x from `seed` on, the stretch once through the recorder, and y.
static void *once(vx_recording **slot, const void *identity, size_t bytes, uint64_t seed, interlude what, bool *replayed)
{
    void *start = make_numbers(VX_BF16, ROWS * SIDE, 0, seed);
    assert_ok(vx_upload(card, x, start));
    vx_free(start);
    assert_ok(vx_device_record(card, slot, identity, bytes, replayed));
    if (!*replayed) {
        const vx_status s = vx_device_record_end(card, slot, stretch(what));
        assert_int_equal(s.code, what == FAILURE ? VX_ERR_CANCELLED : VX_OK);
    }
    return fetch(card, y);
}

static void *plainly(uint64_t seed)
{
    void *start = make_numbers(VX_BF16, ROWS * SIDE, 0, seed);
    assert_ok(vx_upload(card, x, start));
    vx_free(start);
    assert_ok(stretch(NOTHING));
    return fetch(card, y);
}

static void assert_run(vx_recording **slot, const void *identity, size_t bytes, uint64_t seed, interlude what, int want_replayed)
{
    bool replayed;
    void *got = once(slot, identity, bytes, seed, what, &replayed), *want = plainly(seed);
    if (want_replayed >= 0) assert_int_equal(replayed, want_replayed);
    if (what != FAILURE) assert_memory_equal(got, want, out_bytes);
    vx_free(got), vx_free(want);
}

static int begin(void **state)
{
    (void)state;
    vx_device_graphs(card, true);
    vx_device_forget(card, NULL, 0);
    return vx_device_weight_budget(card, 0).code != VX_OK;
}

static void the_third_time_is_replayed(void **state)
{
    (void)state;
    vx_recording *slot = NULL;
    const void *key[] = { x.data, y.data };
    for (uint64_t i = 0; i < 8; i++) assert_run(&slot, key, sizeof key, i, NOTHING, i >= 2);
    vx_device_record_free(card, &slot);
    assert_null(slot);
}

static void nothing_is_recorded_when_graphs_are_off(void **state)
{
    (void)state;
    vx_recording *slot = NULL;
    const void *key[] = { x.data };
    vx_device_graphs(card, false);
    for (uint64_t i = 0; i < 4; i++) assert_run(&slot, key, sizeof key, i, NOTHING, 0);
    vx_device_record_free(card, &slot);
}

static void what_a_graph_cannot_hold_runs_by_itself(void **state)
{
    (void)state;
    static const interlude whats[] = { UPLOAD, ALLOCATION, SYNC };
    for (size_t w = 0; w < sizeof whats / sizeof *whats; w++) {
        vx_recording *slot = NULL;
        const void *key[] = { x.data };
        for (uint64_t i = 0; i < 4; i++) assert_run(&slot, key, sizeof key, i, whats[w], 0);
        // Quiet twice, then something in the middle of the capture.
        assert_run(&slot, key, sizeof key, 10, NOTHING, 0);
        assert_run(&slot, key, sizeof key, 11, whats[w], 0);
        assert_run(&slot, key, sizeof key, 12, NOTHING, 0);
        assert_run(&slot, key, sizeof key, 13, NOTHING, 0);
        assert_run(&slot, key, sizeof key, 14, NOTHING, 1);
        vx_device_record_free(card, &slot);
    }
}

static void an_error_inside_ends_the_recording(void **state)
{
    (void)state;
    vx_recording *slot = NULL;
    const void *key[] = { x.data };
    assert_run(&slot, key, sizeof key, 1, FAILURE, 0);
    assert_run(&slot, key, sizeof key, 2, NOTHING, 0);
    assert_run(&slot, key, sizeof key, 3, FAILURE, 0); // in the middle of the capture
    assert_run(&slot, key, sizeof key, 4, NOTHING, 0);
    assert_run(&slot, key, sizeof key, 5, NOTHING, 0);
    assert_run(&slot, key, sizeof key, 6, NOTHING, 1);
    vx_device_record_free(card, &slot);
}

static void forgotten_weights_take_their_recordings_along(void **state)
{
    (void)state;
    vx_recording *slot = NULL;
    const void *key[] = { x.data };
    for (uint64_t i = 0; i < 4; i++) assert_run(&slot, key, sizeof key, i, NOTHING, -1);
    put(weight[1], VX_BF16, 3, 0.75f);
    vx_device_forget(card, weight[1], (size_t)SIDE * SIDE * 2);
    for (uint64_t i = 0; i < 4; i++) assert_run(&slot, key, sizeof key, i, NOTHING, i >= 2);
    // Scratch that was given back waits for the next one at its place; where it is gone, so are they.
    vx_device_release(card);
    for (uint64_t i = 0; i < 4; i++) assert_run(&slot, key, sizeof key, i, NOTHING, 1);
    vx_device_release(card);
    vx_device_shed(card);
    for (uint64_t i = 0; i < 4; i++) assert_run(&slot, key, sizeof key, i, NOTHING, i >= 2);
    vx_device_record_free(card, &slot);
}

// The block is compared whole and copied: a number in the middle is as good as an address.
static void an_identity_is_all_its_bytes(void **state)
{
    (void)state;
    vx_recording *slot = NULL;
    uint8_t block[3000] = { 0 };
    for (uint64_t i = 0; i < 3; i++) assert_run(&slot, block, sizeof block, i, NOTHING, i == 2);
    static const size_t places[] = { 0, 1, 1500, sizeof block - 1 };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        block[places[i]] ^= 0x80;
        assert_run(&slot, block, sizeof block, 5, NOTHING, 0);
        block[places[i]] ^= 0x80;
        if (i % 2 == 0) assert_run(&slot, block, sizeof block, 6, NOTHING, 1);
    }
    assert_run(&slot, block, sizeof block - 1, 7, NOTHING, 0);
    assert_run(&slot, block, sizeof block, 7, NOTHING, 1);
    vx_device_record_free(card, &slot);
    // A longer one than a request ever has is not recorded.
    void *longest = vx_alloc_array(1, 100000);
    for (uint64_t i = 0; i < 4; i++) assert_run(&slot, longest, 100000, i, NOTHING, 0);
    vx_free(longest);
    vx_device_record_free(card, &slot);
}

// As requests do: x, y and z lie in an arena that goes and comes again.
static void a_recording_outlives_the_memory_it_worked_on(void **state)
{
    (void)state;
    enum { BYTES = 3 << 20 };
    vx_recording *slot = NULL;
    const vx_tensor own[] = { x, y, z };
    for (uint64_t i = 0; i < 6; i++) {
        vx_arena *mine, *other;
        assert_ok(vx_arena_create(card, &mine, BYTES));
        x = vx_arena_tensor(mine, VX_BF16, ROWS, SIDE);
        y = vx_arena_tensor(mine, VX_BF16, ROWS, SIDE);
        z = vx_arena_tensor(mine, VX_BF16, ROWS, SIDE);
        const void *key[] = { x.data, y.data, z.data };
        assert_run(&slot, key, sizeof key, i, NOTHING, i >= 2);
        vx_arena_destroy(&mine);
        // Another size has a place of its own; the same size would have this one.
        assert_ok(vx_arena_create(card, &other, BYTES + 4096));
        assert_ptr_not_equal(vx_arena_tensor(other, VX_U8, 1).data, key[0]);
        vx_arena_destroy(&other);
    }
    x = own[0], y = own[1], z = own[2];
    vx_device_record_free(card, &slot);
}

static void graphs_give_way_where_memory_is_short(void **state)
{
    (void)state;
    vx_recording *slot[2] = { NULL, NULL };
    const void *key[] = { x.data };
    for (uint64_t i = 0; i < 4; i++)
        for (int s = 0; s < 2; s++) assert_run(&slot[s], key, sizeof key, i, NOTHING, i >= 2);
    vx_arena *none = NULL;
    assert_code(vx_arena_create(card, &none, vx_device_memory_of(card).total), VX_ERR_MEMORY);
    // The weights went, too: from the beginning.
    for (uint64_t i = 0; i < 4; i++)
        for (int s = 0; s < 2; s++) assert_run(&slot[s], key, sizeof key, i, NOTHING, s == 0 || i > 0 ? i >= 2 : -1);
    assert_ok(vx_device_reserve(card, 1 << 20)); // scratch stays: only the graphs go, and come again at once
    vx_device_shed(card);
    for (int s = 0; s < 2; s++)
        for (uint64_t i = 0; i < 3; i++) assert_run(&slot[s], key, sizeof key, i, NOTHING, i >= 1);
    for (int s = 0; s < 2; s++) vx_device_record_free(card, &slot[s]);
}

// A graph's memory is the driver's: it must fit into what plans leave alone (512 MiB), five evaluations.
static void the_graphs_of_an_evaluation_are_small(void **state)
{
    (void)state;
    enum { STRETCHES = 25, OPERATORS = 48, MOST = 16 << 20 };
    vx_recording *slot = NULL;
    double took[4];
    uint64_t free[4];
    for (uint64_t i = 0; i < 4; i++) {
        const double began = vx_clock_s();
        for (int64_t n = 0; n < STRETCHES; n++) {
            bool replayed;
            assert_ok(vx_device_record(card, &slot, &n, sizeof n, &replayed));
            assert_int_equal(replayed, i >= 2);
            if (replayed) continue;
            vx_status s = vx_ok();
            for (int k = 0; k < OPERATORS && s.code == VX_OK; k++) s = layer(k % LAYERS, k % 2 ? y : z, k % 2 ? z : y);
            assert_ok(vx_device_record_end(card, &slot, s));
        }
        assert_ok(vx_device_sync(card));
        took[i] = vx_clock_s() - began;
        free[i] = vx_device_memory_of(card).free;
    }
    print_message(
        "%d times %d operators: plain %.2f ms, captured %.2f ms, replayed %.2f and %.2f ms; the graphs take %lld bytes\n",
        STRETCHES, OPERATORS, took[0] * 1e3, took[1] * 1e3, took[2] * 1e3, took[3] * 1e3,
        (long long)free[0] - (long long)free[3]);
    assert_true(free[3] + MOST >= free[0]);
    vx_device_record_free(card, &slot);
}

// Replayed or not, the host may have put one stretch behind the one that runs, and then waits; so a cancellation is heard while
// most of the work is not even asked for, and nothing that runs is broken off.
static void who_cancels_waits_for_two_stretches(void **state)
{
    (void)state;
    enum { STRETCHES = 40, OPERATORS = 3000 };
    for (int graphs = 0; graphs < 2; graphs++) {
        vx_recording *slot = NULL;
        volatile int cancelled = 0;
        const char key = 0;
        double whole = 0;
        vx_device_graphs(card, graphs);
        for (int pass = 0; pass < 4; pass++) { // two until it is replayed; one timed; one that is cancelled
            const double began = vx_clock_s();
            int n = 0;
            vx_status s = vx_ok();
            vx_device_watch(card, &cancelled);
            for (; n < STRETCHES && s.code == VX_OK; n++) {
                bool replayed;
                if (pass == 3 && n == STRETCHES / 2) cancelled = 1;
                s = vx_device_record(card, &slot, &key, sizeof key, &replayed);
                if (s.code == VX_OK && !replayed) {
                    for (int k = 0; k < OPERATORS && s.code == VX_OK; k++) s = layer(k % LAYERS, k % 2 ? y : z, k % 2 ? z : y);
                    s = vx_device_record_end(card, &slot, s);
                }
            }
            const double asked = vx_clock_s() - began;
            vx_device_watch(card, NULL);
            assert_ok(vx_device_sync(card));
            const double ended = vx_clock_s() - began;
            if (pass == 2) {
                whole = ended;
                assert_true(asked > 0.7 * whole); // 38 of 40 had ended
            }
            if (pass == 3) {
                assert_code(s, VX_ERR_CANCELLED);
                assert_int_equal(n, STRETCHES / 2 + 1);
                assert_true(ended < 0.7 * whole);
            } else assert_ok(s);
        }
        vx_device_record_free(card, &slot);
    }
}

static void streamed_weights_are_never_recorded(void **state)
{
    (void)state;
    vx_recording *slot = NULL;
    const void *key[] = { x.data };
    assert_ok(vx_device_weight_budget(card, 1));
    for (uint64_t i = 0; i < 5; i++) assert_run(&slot, key, sizeof key, i, i % 2 ? PREFETCH : NOTHING, 0);
    vx_device_record_free(card, &slot);
}

static void the_oldest_makes_room(void **state)
{
    (void)state;
    vx_recording *slot = NULL;
    const char names[VX_CUDA_GRAPHS + 1] = { 0 };
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < VX_CUDA_GRAPHS; i++) {
            const void *key[] = { &names[i] };
            assert_run(&slot, key, sizeof key, (uint64_t)i, NOTHING, round == 2);
        }
    }
    const void *another[] = { &names[VX_CUDA_GRAPHS] }, *first[] = { &names[0] }, *last[] = { &names[VX_CUDA_GRAPHS - 1] };
    assert_run(&slot, another, sizeof another, 9, NOTHING, 0);
    assert_run(&slot, last, sizeof last, 9, NOTHING, 1);
    assert_run(&slot, first, sizeof first, 9, NOTHING, 0);
    vx_device_record_free(card, &slot);
}

static void a_recording_within_a_recording_is_part_of_it(void **state)
{
    (void)state;
    vx_recording *outer = NULL, *inner = NULL;
    const void *key[] = { x.data };
    void *want = plainly(5);
    for (int i = 0; i < 4; i++) {
        void *start = make_numbers(VX_BF16, ROWS * SIDE, 0, 5);
        assert_ok(vx_upload(card, x, start));
        vx_free(start);
        bool replayed, inside;
        assert_ok(vx_device_record(card, &outer, key, sizeof key, &replayed));
        assert_int_equal(replayed, i >= 2);
        if (!replayed) {
            assert_ok(vx_device_record(card, &inner, key, sizeof key, &inside));
            assert_false(inside);
            assert_ok(vx_device_record_end(card, &inner, stretch(NOTHING)));
            assert_ok(vx_device_record_end(card, &outer, vx_ok()));
        }
        void *got = fetch(card, y);
        assert_memory_equal(got, want, out_bytes);
        vx_free(got);
    }
    vx_free(want);
    vx_device_record_free(card, &outer);
    vx_device_record_free(card, &inner);
}

int main(void)
{
    card = make_card();
    if (vx_arena_create(card, &arena, 4 << 20).code != VX_OK) return 1;
    x = vx_arena_tensor(arena, VX_BF16, ROWS, SIDE);
    y = vx_arena_tensor(arena, VX_BF16, ROWS, SIDE);
    z = vx_arena_tensor(arena, VX_BF16, ROWS, SIDE);
    for (int i = 0; i < LAYERS; i++) weight[i] = make_numbers(VX_BF16, SIDE * SIDE, 0, (uint64_t)i + 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_third_time_is_replayed, begin),
        cmocka_unit_test_setup(nothing_is_recorded_when_graphs_are_off, begin),
        cmocka_unit_test_setup(what_a_graph_cannot_hold_runs_by_itself, begin),
        cmocka_unit_test_setup(an_error_inside_ends_the_recording, begin),
        cmocka_unit_test_setup(forgotten_weights_take_their_recordings_along, begin),
        cmocka_unit_test_setup(an_identity_is_all_its_bytes, begin),
        cmocka_unit_test_setup(a_recording_outlives_the_memory_it_worked_on, begin),
        cmocka_unit_test_setup(the_graphs_of_an_evaluation_are_small, begin),
        cmocka_unit_test_setup(who_cancels_waits_for_two_stretches, begin),
        cmocka_unit_test_setup(graphs_give_way_where_memory_is_short, begin),
        cmocka_unit_test_setup(streamed_weights_are_never_recorded, begin),
        cmocka_unit_test_setup(the_oldest_makes_room, begin),
        cmocka_unit_test_setup(a_recording_within_a_recording_is_part_of_it, begin),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vx_arena_destroy(&arena);
    vx_device_destroy(&card);
    for (int i = 0; i < LAYERS; i++) vx_free(weight[i]);
    return failed;
}
