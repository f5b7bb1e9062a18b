// Arenas: what the plan's arena counted is what the run takes, to the byte.
#include "rig.h"

#include "device/arena.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

static vx_device *cpu;
static vx_device *plan;

static int open_all(void **state)
{
    (void)state;
    cpu = rig_cpu(NULL, 1);
    assert_ok(vx_device_plan_create(&plan, cpu));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    vx_device_destroy(&plan);
    vx_device_destroy(&cpu);
    return 0;
}

// A stage as networks write it: the same function plans and runs.
static vx_status stage(vx_arena *arena, int64_t rows)
{
    vx_device *dev = vx_arena_device(arena);
    const vx_tensor x = vx_arena_tensor(arena, VX_BF16, rows, 40);
    const size_t mark = vx_arena_mark(arena);
    for (int block = 0; block < 3; block++) {
        const vx_tensor h = vx_arena_tensor(arena, VX_BF16, rows, 40), u = vx_arena_tensor(arena, VX_BF16, rows, 80 + 2 * block);
        VX_TRY(vx_rms_norm(dev, h, x, (vx_tensor){ 0 }, 1e-5f, VX_NORM_ROUND_ONCE));
        VX_TRY(vx_swiglu(dev, h, vx_tensor_slice(u, 1, 0, 80), true));
        VX_TRY(vx_add(dev, x, h));
        vx_arena_reset(arena, mark);
    }
    return vx_ok();
}

static void high_water_of_the_plan_is_that_of_the_run(void **state)
{
    (void)state;
    for (int64_t rows = 0; rows < 70; rows += 7) {
        vx_arena *planned = NULL, *real = NULL;
        assert_ok(vx_arena_create(plan, &planned, 0));
        assert_ok(stage(planned, rows));
        const size_t need = vx_arena_high(planned);
        assert_ok(vx_arena_create(cpu, &real, need));
        assert_ok(stage(real, rows));
        assert_int_equal(vx_arena_high(real), need);
        vx_arena_destroy(&real);
        if (rows > 0) { // one block less is too little, and is said
            assert_ok(vx_arena_create(cpu, &real, need - 1));
            const vx_status s = stage(real, rows);
            assert_int_equal(s.code, VX_ERR_INTERNAL);
            assert_non_null(strstr(s.message, "the plan was short"));
            vx_arena_destroy(&real);
        }
        vx_arena_destroy(&planned);
        assert_null(planned);
    }
}

static void blocks_are_aligned_apart_and_whole(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 1, 63, 64, 65, 0, 100 };
    vx_arena *arena = NULL;
    assert_ok(vx_arena_create(cpu, &arena, 8192));
    char *end = NULL;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const vx_tensor t = vx_arena_tensor(arena, VX_U8, sizes[i]);
        assert_non_null(t.data);
        assert_int_equal((uintptr_t)t.data % VX_ARENA_ALIGN, 0);
        assert_true((char *)t.data >= end);
        memset(t.data, 0xff, (size_t)sizes[i]);
        end = (char *)t.data + sizes[i];
    }
    vx_arena_destroy(&arena);
}

static void reset_gives_the_same_place_again(void **state)
{
    (void)state;
    vx_arena *arena = NULL;
    assert_ok(vx_arena_create(cpu, &arena, 8192));
    const vx_tensor a = vx_arena_tensor(arena, VX_F32, 16);
    const size_t mark = vx_arena_mark(arena);
    const vx_tensor b = vx_arena_tensor(arena, VX_F32, 100);
    const size_t high = vx_arena_high(arena);
    vx_arena_reset(arena, mark);
    const vx_tensor c = vx_arena_tensor(arena, VX_BF16, 4, 4);
    assert_ptr_equal(b.data, c.data);
    assert_ptr_not_equal(a.data, c.data);
    assert_int_equal(vx_arena_high(arena), high);
    vx_arena_reset(arena, high + 1000); // ahead of what is taken: nothing to give back
    assert_true(vx_arena_mark(arena) < high);
    vx_arena_destroy(&arena);
}

// Behind a block, and in what was given back, AddressSanitizer sees any access.
static void strangers_are_poisoned(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    vx_arena *arena = NULL;
    assert_ok(vx_arena_create(cpu, &arena, 4096));
    char *a = vx_arena_tensor(arena, VX_U8, 64).data;
    const size_t mark = vx_arena_mark(arena);
    char *b = vx_arena_tensor(arena, VX_U8, 10).data;
    assert_false(__asan_address_is_poisoned(a + 63));
    assert_true(__asan_address_is_poisoned(a + 64));
    assert_false(__asan_address_is_poisoned(b + 9));
    assert_true(__asan_address_is_poisoned(b + 16)); // the shadow counts in eights
    vx_arena_reset(arena, mark);
    assert_true(__asan_address_is_poisoned(b));
    assert_false(__asan_address_is_poisoned(a));
    vx_arena_destroy(&arena);
#else
    print_message("this build has no AddressSanitizer\n");
#endif
}

static void impossible_shapes_give_no_tensor(void **state)
{
    (void)state;
    vx_arena *arena = NULL;
    assert_ok(vx_arena_create(plan, &arena, 0));
    assert_int_equal(vx_arena_tensor(arena, VX_F32, INT64_MAX, 4).rank, 0);
    assert_int_equal(vx_arena_tensor(arena, VX_F32, -1).rank, 0);
    assert_int_equal(vx_arena_tensor(arena, VX_DTYPE_NONE, 4).rank, 0);
    assert_int_equal(vx_arena_high(arena), 0);
    const vx_tensor t = vx_arena_tensor(arena, VX_F32, 5);
    assert_int_equal(t.rank, 1);
    assert_null(t.data);
    vx_arena_destroy(&arena);
    vx_arena_destroy(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(high_water_of_the_plan_is_that_of_the_run), cmocka_unit_test(blocks_are_aligned_apart_and_whole),
        cmocka_unit_test(reset_gives_the_same_place_again),          cmocka_unit_test(strangers_are_poisoned),
        cmocka_unit_test(impossible_shapes_give_no_tensor),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
