// The CUDA device's life: memory, copies, errors that leave the process alive.
#include "card.h"

#include <stdbool.h>

static vx_device *card;

static void the_device_tells_what_it_is(void **state)
{
    (void)state;
    vx_cuda_info info;
    assert_true(vx_cuda_built());
    assert_ok(vx_cuda_query(&info, 0));
    printf("  %s, sm_%d, driver %s, runtime %s, cuBLASLt %s, cuDNN %s, %llu of %llu bytes free\n", info.name, info.sm,
           info.driver, info.runtime, info.cublas, info.cudnn, (unsigned long long)info.memory_free,
           (unsigned long long)info.memory_total);
    assert_true(info.devices >= 1 && info.sm >= 80 && info.name[0] && info.driver[0] && info.driver_cuda[0] && info.runtime[0] &&
                info.cublas[0]);
    assert_true(info.memory_free > 0 && info.memory_free <= info.memory_total);
    assert_string_equal(vx_device_name(card), "cuda");
    char isa[16];
    snprintf(isa, sizeof isa, "sm_%d", info.sm);
    assert_string_equal(vx_device_isa(card), isa);
    assert_false(vx_device_is_plan(card));
    assert_code(vx_cuda_query(&info, info.devices), VX_ERR_DEVICE_NONE);
    vx_device *none;
    assert_code(vx_device_cuda_create(&none, &(vx_cuda_params){ .ordinal = info.devices }), VX_ERR_DEVICE_NONE);
    assert_null(none);
}

static void what_goes_up_comes_down(void **state)
{
    (void)state;
    static const int64_t sizes[] = {
        1, 3, 4096, VX_CUDA_CHUNK - 1, VX_CUDA_CHUNK, VX_CUDA_CHUNK + 1, 9 * (int64_t)VX_CUDA_CHUNK + 17
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t n = sizes[i];
        vx_arena *arena;
        assert_ok(vx_arena_create(card, &arena, (size_t)n + 64));
        uint8_t *from = vx_alloc((size_t)n), *to = vx_alloc((size_t)n);
        assert_true(from && to);
        const vx_tensor t = vx_arena_tensor(arena, VX_U8, n);
        memset(to, 0xaa, (size_t)n);
        assert_ok(vx_download(card, to, t));
        for (int64_t j = 0; j < n; j++) assert_int_equal(to[j], 0); // fresh memory is zero
        uint64_t seed = 3;
        for (int64_t j = 0; j < n; j++) from[j] = (uint8_t)(next_number(&seed) * 127);
        assert_ok(vx_upload(card, t, from));
        memset(to, 0xaa, (size_t)n);
        assert_ok(vx_download(card, to, t));
        assert_memory_equal(from, to, (size_t)n);
        // The host's memory is its owner's again as soon as upload returns.
        assert_ok(vx_upload(card, t, from));
        memset(from, 0x55, (size_t)n);
        memset(to + n - 1, 0x55, 1);
        uint8_t *again = vx_alloc((size_t)n);
        assert_ok(vx_download(card, again, t));
        assert_memory_equal(again, to, (size_t)n - 1);
        vx_free(from), vx_free(to), vx_free(again);
        vx_arena_destroy(&arena);
    }
}

static void too_much_memory_is_refused_with_numbers(void **state)
{
    (void)state;
    vx_cuda_info info;
    assert_ok(vx_cuda_query(&info, 0));
    vx_arena *arena = NULL;
    const vx_status s = vx_arena_create(card, &arena, info.memory_total + 4096);
    assert_int_equal(s.code, VX_ERR_MEMORY);
    char number[32];
    snprintf(number, sizeof number, "%llu", (unsigned long long)info.memory_total + 4096);
    assert_non_null(strstr(s.message, number));
    assert_true(s.remedy[0] != 0);
    assert_code(vx_device_reserve(card, info.memory_total + 4096), VX_ERR_MEMORY);
    assert_ok(vx_arena_create(card, &arena, 4096)); // and the device works on
    vx_arena_destroy(&arena);
    assert_ok(vx_device_sync(card));
}

// y = x x^T, anything that a device must be alive for.
static vx_status work(vx_device *dev, vx_arena *arena, const void *weight)
{
    vx_arena_reset(arena, 0);
    const vx_tensor x = vx_arena_tensor(arena, VX_BF16, 64, 64), y = vx_arena_tensor(arena, VX_BF16, 64, 64);
    const vx_weight w = {
        .n = 64, .k = 64, .segments = 1, .segment = { { .weight = vx_tensor_of((void *)(uintptr_t)weight, VX_BF16, 64, 64) } }
    };
    VX_TRY(vx_linear(dev, y, x, &w));
    return vx_device_sync(dev);
}

static void no_memory_for_one_operator_is_no_end(void **state)
{
    (void)state;
    vx_arena *arena;
    void *weight = make_numbers(VX_BF16, 64 * 64, 0, 1);
    assert_ok(vx_arena_create(card, &arena, 1 << 20));
    vx_cuda_fail_next(card, 1, cudaErrorMemoryAllocation);
    const vx_status s = work(card, arena, weight);
    assert_int_equal(s.code, VX_ERR_MEMORY);
    char number[48];
    snprintf(number, sizeof number, " of %llu bytes are free", (unsigned long long)vx_device_memory_of(card).total);
    assert_non_null(strstr(s.message, number));
    assert_true(s.remedy[0] != 0);
    assert_ok(work(card, arena, weight));
    vx_device_forget(card, weight, 64 * 64 * 2);
    vx_arena_destroy(&arena);
    vx_free(weight);
}

static void a_lost_device_fails_cleanly_for_ever(void **state)
{
    (void)state;
    static const cudaError_t errors[] = { cudaErrorECCUncorrectable, cudaErrorLaunchFailure, cudaErrorIllegalAddress };
    void *weight = make_numbers(VX_BF16, 64 * 64, 0, 1);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        vx_device *dev = make_card();
        vx_arena *arena, *none = NULL;
        assert_ok(vx_arena_create(dev, &arena, 1 << 20));
        assert_ok(work(dev, arena, weight));
        vx_cuda_fail_next(dev, 2, errors[i]); // the operator passes, the sync after it does not
        assert_code(work(dev, arena, weight), VX_ERR_DEVICE);
        for (int j = 0; j < 3; j++) {
            const vx_status s = work(dev, arena, weight);
            assert_int_equal(s.code, VX_ERR_DEVICE);
            assert_non_null(strstr(s.message, cudaGetErrorName(errors[i])));
        }
        uint8_t byte = 0;
        vx_arena_reset(arena, 0);
        const vx_tensor t = vx_arena_tensor(arena, VX_U8, 1);
        assert_code(vx_upload(dev, t, &byte), VX_ERR_DEVICE);
        assert_code(vx_download(dev, &byte, t), VX_ERR_DEVICE);
        assert_code(vx_arena_create(dev, &none, 64), VX_ERR_DEVICE);
        assert_code(vx_device_reserve(dev, 1 << 30), VX_ERR_DEVICE);
        assert_code(vx_device_prefetch(dev, vx_tensor_of(weight, VX_BF16, 64, 64)), VX_ERR_DEVICE);
        vx_device_forget(dev, NULL, 0);
        vx_device_release(dev);
        vx_arena_destroy(&arena);
        vx_device_destroy(&dev);
        dev = make_card(); // the simulated loss hurt nothing else
        assert_ok(vx_arena_create(dev, &arena, 1 << 20));
        assert_ok(work(dev, arena, weight));
        vx_arena_destroy(&arena);
        vx_device_destroy(&dev);
    }
    vx_free(weight);
}

static void a_raised_flag_stops_the_next_operator(void **state)
{
    (void)state;
    vx_arena *arena;
    void *weight = make_numbers(VX_BF16, 64 * 64, 0, 1);
    assert_ok(vx_arena_create(card, &arena, 1 << 20));
    volatile int flag = 1;
    vx_device_watch(card, &flag);
    assert_code(work(card, arena, weight), VX_ERR_CANCELLED);
    vx_device_watch(card, NULL);
    assert_ok(work(card, arena, weight));
    vx_device_forget(card, weight, 64 * 64 * 2);
    vx_arena_destroy(&arena);
    vx_free(weight);
}

static void memory_is_counted(void **state)
{
    (void)state;
    vx_device *dev = make_card();
    vx_arena *arena;
    vx_device_memory_reset(dev);
    const vx_device_memory before = vx_device_memory_of(dev);
    assert_true(before.total > 0 && before.free > 0 && before.free <= before.total);
    assert_int_equal(before.held, before.peak);
    assert_ok(vx_arena_create(dev, &arena, 64 << 20));
    assert_ok(vx_device_reserve(dev, 16 << 20));
    const vx_device_memory in = vx_device_memory_of(dev);
    assert_int_equal(in.held - before.held, 80 << 20);
    assert_true(before.free - in.free >= 80 << 20);
    vx_arena_destroy(&arena);
    vx_device_release(dev);
    const vx_device_memory after = vx_device_memory_of(dev);
    assert_int_equal(after.held, before.held);
    assert_int_equal(after.peak, in.held);
    vx_device_memory_reset(dev);
    assert_int_equal(vx_device_memory_of(dev).peak, before.held);
    vx_device_destroy(&dev);
}

// Blocks that were given back: their memory counts as free, exactly the same size has its place again, and everything else that
// needs the room gets it.
static void what_is_given_back_waits_for_its_size(void **state)
{
    (void)state;
    enum { BLOCK = 96 << 20 };
    vx_device *dev = make_card();
    vx_arena *arena;
    const uint64_t total = vx_device_memory_of(dev).total;
    void *place = NULL;
    for (int i = 0; i < 4; i++) {
        const vx_device_memory before = vx_device_memory_of(dev);
        assert_ok(vx_arena_create(dev, &arena, BLOCK));
        const vx_tensor t = vx_arena_tensor(arena, VX_U8, BLOCK);
        uint8_t byte = 1;
        assert_ok(vx_download(dev, &byte, vx_tensor_slice(t, 0, BLOCK - 1, BLOCK)));
        assert_int_equal(byte, 0); // zeroed, again
        byte = 255;
        assert_ok(vx_upload(dev, vx_tensor_slice(t, 0, BLOCK - 1, BLOCK), &byte));
        if (place) assert_ptr_equal(t.data, place);
        place = t.data;
        assert_int_equal(vx_device_memory_of(dev).held, before.held + BLOCK);
        vx_arena_destroy(&arena);
        assert_int_equal(vx_device_memory_of(dev).held, before.held);
        if (i > 0) assert_true(vx_device_memory_of(dev).free + (4 << 20) >= before.free);
    }
    // No number of sizes takes more than an eighth of the card, or more than eight places.
    for (int i = 0; i < 40; i++) {
        assert_ok(vx_arena_create(dev, &arena, total / 32 + (size_t)i * 4096));
        vx_arena_destroy(&arena);
        assert_true(vx_cuda_idle((vx_cuda *)dev) <= total / 8);
        assert_true(((vx_cuda *)dev)->idle_blocks <= VX_CUDA_IDLE_BLOCKS);
    }
    assert_true(((vx_cuda *)dev)->idle_blocks > 0);
    // Nearly all that is free, though some of it is idle.
    const vx_device_memory now = vx_device_memory_of(dev);
    assert_ok(vx_arena_create(dev, &arena, now.free - ((uint64_t)1 << 30)));
    vx_arena_destroy(&arena);
    vx_device_shed(dev);
    assert_int_equal(vx_cuda_idle((vx_cuda *)dev), 0);
    vx_device_destroy(&dev);
}

static uint64_t free_now(void)
{
    vx_cuda_info info;
    assert_ok(vx_cuda_query(&info, 0));
    return info.memory_free;
}

static void devices_come_and_go_without_a_trace(void **state)
{
    (void)state;
    void *weight = make_numbers(VX_BF16, 64 * 64, 0, 1);
    uint64_t before = 0;
    for (int i = 0; i < 12; i++) {
        vx_device *dev = make_card();
        vx_arena *arena;
        assert_ok(vx_arena_create(dev, &arena, 64 << 20));
        assert_ok(work(dev, arena, weight));
        vx_arena_destroy(&arena);
        vx_device_destroy(&dev);
        if (i == 3) before = free_now(); // kernels are loaded by then
    }
    assert_true(free_now() + (1 << 20) >= before);
    vx_free(weight);
}

int main(void)
{
    card = make_card();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_tells_what_it_is),
        cmocka_unit_test(what_goes_up_comes_down),
        cmocka_unit_test(too_much_memory_is_refused_with_numbers),
        cmocka_unit_test(no_memory_for_one_operator_is_no_end),
        cmocka_unit_test(a_lost_device_fails_cleanly_for_ever),
        cmocka_unit_test(a_raised_flag_stops_the_next_operator),
        cmocka_unit_test(memory_is_counted),
        cmocka_unit_test(what_is_given_back_waits_for_its_size),
        cmocka_unit_test(devices_come_and_go_without_a_trace),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vx_device_destroy(&card);
    return failed;
}
