// Quantised weights on CUDA: the decoder's bits are vx_quant_decode's, and products are those of the decoded matrix.
#include "card.h"

#include "device/quantised.h"

static vx_device *card;

// The one weight of a segment, with nothing else around.
static vx_weight_segment segment_of(const matrix *m)
{
    return (vx_weight_segment){ .weight = m->values, .quant = m->quant };
}

static float *decoded(const matrix *m, bool as_bf16)
{
    const int64_t n = m->values.shape[0], k = m->quant.k;
    float *p = vx_alloc((size_t)(n * k) * 4);
    assert_non_null(p);
    for (int64_t r = 0; r < n; r++) vx_quant_decode(&m->quant, m->values, r, 0, k, as_bf16, p + r * k);
    return p;
}

static void every_format_decodes_to_the_same_bits(void **state)
{
    (void)state;
    static const vx_dtype to[] = { VX_F32, VX_BF16, VX_F16 };
    for (int i = 0; i < FORMATS; i++) {
        const int64_t n = 37, k = odd_width(&formats[i]), skip = 5;
        matrix m = make_matrix(&formats[i], n, k, 127, 3 + (uint64_t)i);
        const vx_weight_segment segment = segment_of(&m);
        for (int t = 0; t < 3; t++) {
            vx_arena *arena;
            assert_ok(vx_arena_create(card, &arena, (size_t)(n * k) * 4 + 64));
            const vx_tensor far = vx_arena_tensor(arena, to[t], n, k);
            assert_ok(vx_cuda_begin(vx_cuda_of(card), "test"));
            assert_ok(vx_cuda_decode(vx_cuda_of(card), &segment, skip, n - skip, to[t], false, far.data));
            void *got = fetch(card, far);
            float *want = decoded(&m, to[t] == VX_BF16);
            for (int64_t j = 0; j < (n - skip) * k; j++) {
                const float w = want[skip * k + j], g = get(got, to[t], j);
                const float rounded = to[t] == VX_F16 ? vx_f16_to_f32(vx_f32_to_f16(w)) : w;
                if (isnan(g) ? !isnan(rounded) : memcmp(&g, &rounded, 4) != 0)
                    fail_msg("%s to %s, element %lld: %.9g, expected %.9g", formats[i].says, vx_dtype_name(to[t]), (long long)j,
                             (double)g, (double)rounded);
            }
            vx_free(got), vx_free(want);
            vx_arena_destroy(&arena);
        }
        vx_device_forget(card, NULL, 0);
        free_matrix(&m);
    }
}

static void products_are_those_of_the_decoded_matrix(void **state)
{
    (void)state;
    static const vx_dtype acts[] = { VX_BF16, VX_F32 };
    vx_arena *arena;
    assert_ok(vx_arena_create(card, &arena, 16 << 20));
    for (int i = 0; i < FORMATS; i++) {
        const int64_t m_rows = 19, n = 48, k = formats[i].kind == VX_QUANT_GGUF ? 768 : odd_width(&formats[i]);
        matrix m = make_matrix(&formats[i], n, k, 0, 11 + (uint64_t)i);
        for (int a = 0; a < 2; a++) {
            const vx_dtype act = acts[a];
            vx_arena_reset(arena, 0);
            float *want = decoded(&m, act == VX_BF16);
            void *plain = vx_alloc((size_t)(n * k) * 4), *x = make_numbers(act, m_rows * k, 0, 5);
            for (int64_t j = 0; j < n * k; j++) put(plain, act, j, want[j]);
            void *scaled = vx_alloc((size_t)(m_rows * k) * 4);
            for (int64_t j = 0; j < m_rows * k; j++) {
                const float v = get(x, act, j);
                put(scaled, act, j, m.quant.pre_scale.rank ? v * vx_f32_of(m.quant.pre_scale)[j % k] : v);
            }
            const vx_weight quantised = { .n = n, .k = k, .segments = 1, .segment = { segment_of(&m) } };
            const vx_weight same = { .n = n, .k = k, .segments = 1, .segment = { { .weight = vx_tensor_of(plain, act, n, k) } } };
            const vx_tensor y = vx_arena_tensor(arena, act, m_rows, n), z = vx_arena_tensor(arena, act, m_rows, n);
            assert_ok(vx_linear(card, y, put_on_card(card, arena, act, m_rows, k, x), &quantised));
            assert_ok(vx_linear(card, z, put_on_card(card, arena, act, m_rows, k, scaled), &same));
            void *got = fetch(card, y), *expected = fetch(card, z);
            assert_same_bits(got, expected, m_rows * n, act, formats[i].says);
            vx_device_forget(card, NULL, 0);
            vx_free(want), vx_free(plain), vx_free(x), vx_free(scaled), vx_free(got), vx_free(expected);
        }
        free_matrix(&m);
    }
    vx_arena_destroy(&arena);
}

static void embeds_the_rows_asked_for(void **state)
{
    (void)state;
    static const int32_t ids[] = { 36, 0, 7, 7, 20 };
    static const vx_dtype outs[] = { VX_F32, VX_BF16 };
    vx_arena *arena;
    assert_ok(vx_arena_create(card, &arena, 1 << 20));
    for (int i = 0; i < FORMATS; i++) {
        const int64_t k = odd_width(&formats[i]);
        matrix m = make_matrix(&formats[i], 37, k, 127, 50 + (uint64_t)i);
        m.quant.pre_scale = (vx_tensor){ 0 };
        for (int t = 0; t < 2; t++) {
            vx_arena_reset(arena, 0);
            const vx_tensor out = vx_arena_tensor(arena, outs[t], 5, k), where = vx_arena_tensor(arena, VX_I32, 5);
            assert_ok(vx_upload(card, where, ids));
            assert_ok(vx_embed(card, out, m.values, &m.quant, where));
            void *got = fetch(card, out);
            float *want = decoded(&m, outs[t] == VX_BF16);
            for (int64_t j = 0; j < 5 * k; j++) {
                const float w = want[ids[j / k] * k + j % k], g = get(got, outs[t], j);
                if (isnan(g) ? !isnan(w) : memcmp(&g, &w, 4) != 0)
                    fail_msg("%s to %s, element %lld: %.9g, expected %.9g", formats[i].says, vx_dtype_name(outs[t]), (long long)j,
                             (double)g, (double)w);
            }
            vx_free(got), vx_free(want);
        }
        vx_device_forget(card, NULL, 0);
        free_matrix(&m);
    }
    vx_arena_destroy(&arena);
}

int main(void)
{
    card = make_card();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_decodes_to_the_same_bits),
        cmocka_unit_test(products_are_those_of_the_decoded_matrix),
        cmocka_unit_test(embeds_the_rows_asked_for),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vx_device_destroy(&card);
    return failed;
}
