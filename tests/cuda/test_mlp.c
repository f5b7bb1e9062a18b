// The denoiser's MLP by parts of its rows (denoiser/block.c) on the card, at the released widths. A product's bits are its
// algorithm's, and cuBLASLt chooses by the number of rows: so equality is no property of the code but a fact about shapes. It is
// demanded where the performance table measures; rows left over that are too few to fill the card may be summed in another order.
#include "card.h"

#include "base/checked.h"
#include "denoiser/network.h"

enum { HIDDEN = 5376, FFN = 14336, HEAD = 128, MOST_ROWS = 73486 };

static vx_device *card;
static vx_arena *arena;
static vx_denoiser_block block;
static void *input; // [MOST_ROWS, HIDDEN]

// A stretch of a prime length, repeated.
static void *make_bf16(int64_t count, float scale, uint64_t seed)
{
    enum { STRETCH = 1000003 };
    uint16_t *p = vx_alloc_array((size_t)count, sizeof *p);
    assert_non_null(p);
    for (int64_t i = 0; i < vx_min_i64(count, STRETCH); i++) p[i] = vx_f32_to_bf16(scale * next_number(&seed));
    for (int64_t at = STRETCH; at < count; at += STRETCH) memcpy(p + at, p, (size_t)vx_min_i64(STRETCH, count - at) * sizeof *p);
    return p;
}

static vx_weight make_weight(int64_t n, int64_t k, uint64_t seed)
{
    return (vx_weight){
        .n = n, .k = k, .segments = 1, .segment = { { .weight = vx_tensor_of(make_bf16(n * k, 0.02f, seed), VX_BF16, n, k) } }
    };
}

static bool multiplied(int64_t rows)
{
    char start[32];
    const int length = snprintf(start, sizeof start, "m %lld ", (long long)rows);
    const char *text;
    for (int i = 0; (text = vx_cuda_product_choice(card, i)); i++)
        if (strncmp(text, start, (size_t)length) == 0) return true;
    return false;
}

// The output for the first `rows` of the input. Attention as many times narrower than the MLP as there are to be parts.
static uint16_t *run_mlp(int64_t rows, int64_t parts)
{
    const vx_denoiser_config config = { .hidden = HIDDEN, .ffn = FFN, .head_dim = HEAD, .heads = vx_ceil_div(FFN, parts * HEAD) };
    vx_arena_reset(arena, 0);
    const vx_tensor h = put_on_card(card, arena, VX_BF16, rows, HIDDEN, input);
    const vx_tensor wide = vx_arena_tensor(arena, VX_BF16, vx_denoiser_wide(&config, rows));
    assert_non_null(wide.data);
    assert_ok(vx_denoiser_run_mlp(card, &config, &block, h, wide));
    return fetch(card, h);
}

static void parts_have_the_bits_of_the_whole(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, parts, first; // rows of the first part
    } cases[] = {
        { 15499, 2, 8192 },  { 15499, 3, 8192 },  { 37810, 2, 18944 }, // canonical
        { 37810, 3, 12800 }, { 73486, 2, 36864 }, { 73486, 3, 24576 },
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t rows = cases[i].rows;
        uint16_t *whole = run_mlp(rows, 1), *parts = run_mlp(rows, cases[i].parts);
        assert_true(multiplied(rows) && multiplied(cases[i].first));
        if (memcmp(whole, parts, (size_t)(rows * HIDDEN) * sizeof *whole) != 0) {
            print_error("%d rows in %d parts have other bits than in one\n", (int)rows, (int)cases[i].parts);
            failed++;
        }
        vx_free(whole), vx_free(parts);
    }
    assert_int_equal(failed, 0);
}

static void few_rows_left_over_are_near_the_whole(void **state)
{
    (void)state;
    static const int64_t left_over[] = { 1, 2, 64, 256, 1000 };
    for (size_t i = 0; i < sizeof left_over / sizeof *left_over; i++) {
        const int64_t rows = VX_DENOISER_CHUNK + left_over[i];
        uint16_t *whole = run_mlp(rows, 1), *parts = run_mlp(rows, 2);
        int64_t other = 0;
        double difference = 0, size = 0;
        for (int64_t k = 0; k < rows * HIDDEN; k++) {
            const double want = (double)vx_bf16_to_f32(whole[k]), d = (double)vx_bf16_to_f32(parts[k]) - want;
            other += whole[k] != parts[k];
            difference += d * d;
            size += want * want;
        }
        print_message("%d rows and %d: %lld of %lld numbers differ, relative L2 %.1e\n", (int)VX_DENOISER_CHUNK,
                      (int)left_over[i], (long long)other, (long long)(rows * HIDDEN), sqrt(difference / size));
        assert_true(sqrt(difference / size) <= 1e-3); // a wrong row is 1e-2
        vx_free(whole), vx_free(parts);
    }
}

static void free_weight(vx_weight *w)
{
    vx_device_forget(card, w->segment[0].weight.data, vx_tensor_bytes(w->segment[0].weight));
    vx_free(w->segment[0].weight.data);
}

int main(void)
{
    card = make_card();
    const vx_status s = vx_arena_create(card, &arena, (size_t)MOST_ROWS * (HIDDEN + 3 * FFN) * 2 + (1 << 20));
    if (s.code != VX_OK) {
        printf("%s\n", s.message);
        return 1;
    }
    block.fc1 = make_weight(2 * FFN, HIDDEN, 1);
    block.fc2 = make_weight(HIDDEN, FFN, 2);
    input = make_bf16((int64_t)MOST_ROWS * HIDDEN, 1, 3);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_have_the_bits_of_the_whole),
        cmocka_unit_test(few_rows_left_over_are_near_the_whole),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    const char *text;
    for (int i = 0; (text = vx_cuda_product_choice(card, i)); i++) printf("  %s\n", text);
    free_weight(&block.fc1), free_weight(&block.fc2);
    vx_free(input);
    vx_arena_destroy(&arena);
    vx_device_destroy(&card);
    return failed;
}
