// Operators on tensors of any strides, against loops over indices written here and numbers by hand.
#include "rig.h"

static vx_device *dev;

static int open_all(void **state)
{
    (void)state;
    dev = rig_cpu(NULL, 3);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    vx_device_destroy(&dev);
    return 0;
}

// Element by its place in row-major order.
static int64_t offset_of(vx_tensor t, int64_t place)
{
    int64_t at = 0;
    for (int i = t.rank - 1; i >= 0; i--) {
        at += place % t.shape[i] * t.stride[i];
        place /= t.shape[i];
    }
    return at;
}

static float at(vx_tensor t, int64_t place)
{
    const int64_t i = offset_of(t, place);
    return t.dtype == VX_F32 ? vx_f32_of(t)[i] : vx_bf16_to_f32(((uint16_t *)t.data)[i]);
}

// Shapes with the order of the output's axes and the input's: transposes small and large, patches, rows with gaps.
static const struct {
    int rank;
    int64_t shape[5];  // of the operands
    int out[5], in[5]; // stored axis i is axis out[i], in[i]
} layouts[] = {
    { 1, { 100 }, { 0 }, { 0 } },
    { 1, { 70000 }, { 0 }, { 0 } },
    { 2, { 3, 5 }, { 0, 1 }, { 1, 0 } },
    { 2, { 130, 75 }, { 0, 1 }, { 1, 0 } },
    { 2, { 130, 75 }, { 1, 0 }, { 0, 1 } },
    { 3, { 4, 33, 40 }, { 0, 1, 2 }, { 2, 0, 1 } },
    { 3, { 1, 64, 1 }, { 0, 1, 2 }, { 2, 1, 0 } },
    { 4, { 3, 40, 5, 37 }, { 0, 1, 2, 3 }, { 3, 1, 0, 2 } },
    { 5, { 4, 3, 2, 5, 2 }, { 0, 1, 2, 3, 4 }, { 1, 3, 0, 2, 4 } },
    { 5, { 24, 3, 4, 6, 2 }, { 1, 2, 3, 0, 4 }, { 0, 1, 2, 3, 4 } },
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

// A tensor of layout l's shape whose memory has the axes in the order told; `block` owns it.
static vx_tensor laid_out(vx_tensor *block, vx_dtype t, int l, const int *order)
{
    int64_t shape[5];
    int back[5];
    for (int i = 0; i < layouts[l].rank; i++) {
        shape[i] = layouts[l].shape[order[i]];
        back[order[i]] = i;
    }
    *block = rig_make(t, layouts[l].rank, shape);
    return vx_tensor_permute(*block, back);
}

static void copies_between_any_strides(void **state)
{
    (void)state;
    static const vx_dtype types[][2] = { { VX_F32, VX_F32 },   { VX_BF16, VX_F32 }, { VX_F32, VX_BF16 },
                                         { VX_BF16, VX_BF16 }, { VX_U8, VX_U8 },    { VX_I32, VX_I32 } };
    for (int l = 0; l < LAYOUTS; l++)
        for (int k = 0; k < 6; k++) {
            vx_tensor to, from;
            const vx_tensor out = laid_out(&to, types[k][0], l, layouts[l].out),
                            x = laid_out(&from, types[k][1], l, layouts[l].in);
            rig_fill(from, (uint32_t)(l * 10 + k), 3);
            assert_ok(vx_copy(dev, out, x));
            for (int64_t i = 0; i < vx_tensor_count(x); i++) {
                const int64_t o = offset_of(out, i), f = offset_of(x, i);
                if (x.dtype == VX_U8) assert_int_equal(((uint8_t *)out.data)[o], ((uint8_t *)x.data)[f]);
                else if (x.dtype == VX_I32) assert_int_equal(((int32_t *)out.data)[o], ((int32_t *)x.data)[f]);
                else if (out.dtype == VX_BF16) assert_int_equal(((uint16_t *)out.data)[o], vx_f32_to_bf16(at(x, i)));
                else assert_int_equal(vx_f32_bits(at(out, i)), vx_f32_bits(at(x, i)));
            }
            rig_free(&to);
            rig_free(&from);
        }
}

static void a_stride_of_zero_repeats(void **state)
{
    (void)state;
    float one = 3.25f, row[4] = { 1, -2, 3, -4 }, out[40 * 4];
    vx_tensor x = vx_tensor_of(&one, VX_F32, 40, 4);
    x.stride[0] = x.stride[1] = 0;
    assert_ok(vx_copy(dev, vx_tensor_of(out, VX_F32, 40, 4), x));
    for (int i = 0; i < 40 * 4; i++) assert_true(out[i] == one);
    x = vx_tensor_of(row, VX_F32, 40, 4);
    x.stride[0] = 0;
    assert_ok(vx_copy(dev, vx_tensor_of(out, VX_F32, 40, 4), x));
    for (int i = 0; i < 40 * 4; i++) assert_true(out[i] == row[i % 4]);
    x = vx_tensor_of(row, VX_F32, 4, 40);
    x.stride[0] = 1, x.stride[1] = 0;
    assert_ok(vx_copy(dev, vx_tensor_of(out, VX_F32, 4, 40), x));
    for (int i = 0; i < 40 * 4; i++) assert_true(out[i] == row[i / 40]);
}

static void affine_fade_and_clamp_of_any_strides(void **state)
{
    (void)state;
    for (int l = 0; l < LAYOUTS; l++)
        for (int axis = 0; axis < layouts[l].rank; axis++) {
            vx_tensor to, first, second;
            const vx_tensor out = laid_out(&to, VX_F32, l, layouts[l].out), a = laid_out(&first, VX_F32, l, layouts[l].in);
            const vx_tensor b = laid_out(&second, VX_F32, l, layouts[l].out);
            const int64_t extent = out.shape[axis];
            vx_tensor scale = rig_tensor(VX_F32, extent), shift = rig_tensor(VX_F32, extent);
            int64_t inner = 1;
            for (int i = axis + 1; i < out.rank; i++) inner *= out.shape[i];
            rig_fill(first, (uint32_t)l, 3);
            rig_fill(second, (uint32_t)l + 50, 3);
            rig_fill(scale, 1, 2);
            rig_fill(shift, 2, 2);

            assert_ok(vx_affine(dev, out, a, scale, shift, axis));
            for (int64_t i = 0; i < vx_tensor_count(out); i++) {
                const int64_t c = i / inner % extent;
                const float product = at(a, i) * vx_f32_of(scale)[c];
                assert_int_equal(vx_f32_bits(at(out, i)), vx_f32_bits(product + vx_f32_of(shift)[c]));
            }
            assert_ok(vx_fade(dev, out, a, b, axis));
            for (int64_t i = 0; i < vx_tensor_count(out); i++) {
                const float w = (float)(i / inner % extent) / (float)extent;
                const float left = at(a, i) * (1 - w), right = at(b, i) * w;
                assert_int_equal(vx_f32_bits(at(out, i)), vx_f32_bits(left + right));
            }
            assert_ok(vx_clamp(dev, out, a, -0.5f, 1.25f));
            for (int64_t i = 0; i < vx_tensor_count(out); i++) {
                const float v = at(a, i), want = v < -0.5f ? -0.5f : v > 1.25f ? 1.25f : v;
                assert_int_equal(vx_f32_bits(at(out, i)), vx_f32_bits(want));
            }
            vx_tensor block;
            const vx_tensor bytes = laid_out(&block, VX_U8, l, layouts[l].in);
            assert_ok(vx_to_u8(dev, bytes, a));
            for (int64_t i = 0; i < vx_tensor_count(out); i++) {
                const float v = at(a, i), in = v < 0 ? 0 : v > 1 ? 1 : v;
                assert_int_equal(((uint8_t *)bytes.data)[offset_of(bytes, i)], lrintf(in * 255.0f));
            }
            rig_free(&block);
            rig_free(&to);
            rig_free(&first);
            rig_free(&second);
            rig_free(&scale);
            rig_free(&shift);
        }
}

static void fade_may_write_over_either_input(void **state)
{
    (void)state;
    vx_tensor a = rig_tensor(VX_F32, 3, 200), b = rig_like(a), want = rig_like(a);
    rig_fill(a, 1, 1);
    rig_fill(b, 2, 1);
    assert_ok(vx_fade(dev, want, a, b, 0));
    vx_tensor copy = rig_copy(a);
    assert_ok(vx_fade(dev, copy, copy, b, 0));
    rig_same_bits("over a", copy, want);
    rig_free(&copy);
    copy = rig_copy(b);
    assert_ok(vx_fade(dev, copy, a, copy, 0));
    rig_same_bits("over b", copy, want);
    rig_free(&copy);
    rig_free(&a);
    rig_free(&b);
    rig_free(&want);
}

static void nan_passes_the_clamp_and_is_black_as_a_byte(void **state)
{
    (void)state;
    // 0.5/255, 1.5/255 and 2.5/255 lie beside ties; exact ties need 255 x = n + 1/2, which only 0.5 = 127.5/255 gives.
    static const struct {
        float x;
        uint8_t byte;
    } cases[] = { { 0, 0 },          { 1, 255 },    { 0.5f, 128 }, { -3, 0 },  { 7, 255 },        { 0.25f, 64 },
                  { 1 / 255.0f, 1 }, { 0.7f, 178 }, { -0.0f, 0 },  { NAN, 0 }, { INFINITY, 255 }, { -INFINITY, 0 } };
    enum { CASES = sizeof cases / sizeof *cases };
    vx_tensor x = rig_tensor(VX_F32, CASES), bytes = rig_tensor(VX_U8, CASES), out = rig_tensor(VX_F32, CASES);
    for (int i = 0; i < CASES; i++) vx_f32_of(x)[i] = cases[i].x;
    assert_ok(vx_to_u8(dev, bytes, x));
    assert_ok(vx_clamp(dev, out, x, 0, 1));
    for (int i = 0; i < CASES; i++) {
        assert_int_equal(((uint8_t *)bytes.data)[i], cases[i].byte);
        assert_true(isnan(vx_f32_of(out)[i]) == isnan(cases[i].x));
    }
    rig_free(&x);
    rig_free(&bytes);
    rig_free(&out);
}

static void blends_one_to_three_terms(void **state)
{
    (void)state;
    enum { N = 1000 };
    vx_tensor x[3], out = rig_tensor(VX_F32, 10, 100);
    vx_term terms[3];
    for (int k = 0; k < 3; k++) {
        x[k] = rig_like(out);
        rig_fill(x[k], (uint32_t)k, 2);
        terms[k] = (vx_term){ 0.3f * (float)(k + 1), x[k] };
    }
    for (int count = 1; count <= 3; count++) {
        assert_ok(vx_blend(dev, out, terms, count));
        for (int i = 0; i < N; i++) {
            float want = terms[0].c * vx_f32_of(x[0])[i];
            for (int k = 1; k < count; k++) {
                const float product = terms[k].c * vx_f32_of(x[k])[i];
                want = want + product;
            }
            assert_int_equal(vx_f32_bits(vx_f32_of(out)[i]), vx_f32_bits(want));
        }
    }
    vx_tensor want = rig_copy(out);
    assert_ok(vx_blend(dev, x[1], terms, 3)); // over one of its terms
    rig_same_bits("in place", x[1], want);
    for (int k = 0; k < 3; k++) rig_free(&x[k]);
    rig_free(&want);
    rig_free(&out);
}

static void marks_what_is_not_finite(void **state)
{
    (void)state;
    static const struct {
        float value;
        int32_t want;
    } cases[] = { { 1, 0 }, { -3e38f, 0 }, { 1e-40f, 0 }, { NAN, 1 }, { INFINITY, 1 }, { -INFINITY, 1 } };
    static const vx_dtype types[] = { VX_F32, VX_BF16 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int t = 0; t < 2; t++)
            for (int place = 0; place < 3; place++) {
                vx_tensor x = rig_tensor(types[t], 300, 70), flag = rig_tensor(VX_I32, 3);
                const int64_t index = place == 0 ? 0 : place == 1 ? 300 * 70 - 1 : 9999;
                if (types[t] == VX_F32) vx_f32_of(x)[index] = cases[i].value;
                else ((uint16_t *)x.data)[index] = vx_f32_to_bf16(cases[i].value);
                const vx_tensor turned = vx_tensor_permute(x, (const int[]){ 1, 0 });
                assert_ok(vx_mark_not_finite(dev, flag, 1, place == 2 ? turned : x));
                assert_int_equal(((int32_t *)flag.data)[0], 0);
                assert_int_equal(((int32_t *)flag.data)[1], cases[i].want);
                assert_int_equal(((int32_t *)flag.data)[2], 0);
                // The flag stays when the next tensor is finite.
                assert_ok(vx_mark_not_finite(dev, flag, 1, vx_tensor_slice(x, 0, 100, 101)));
                assert_int_equal(((int32_t *)flag.data)[1], cases[i].want);
                rig_free(&x);
                rig_free(&flag);
            }
}

static void embed_takes_rows_and_rounds(void **state)
{
    (void)state;
    vx_tensor table = rig_tensor(VX_F32, 4, 70), ids = rig_tensor(VX_I32, 3), out = rig_tensor(VX_BF16, 3, 70);
    static const int32_t want[] = { 3, 0, 3 };
    rig_fill(table, 1, 1);
    memcpy(ids.data, want, sizeof want);
    assert_ok(vx_embed(dev, out, table, NULL, ids));
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < 70; i++)
            assert_int_equal(((uint16_t *)out.data)[r * 70 + i], vx_f32_to_bf16(vx_f32_of(table)[want[r] * 70 + i]));
    rig_free(&table);
    rig_free(&ids);
    rig_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_between_any_strides),
        cmocka_unit_test(a_stride_of_zero_repeats),
        cmocka_unit_test(affine_fade_and_clamp_of_any_strides),
        cmocka_unit_test(fade_may_write_over_either_input),
        cmocka_unit_test(nan_passes_the_clamp_and_is_black_as_a_byte),
        cmocka_unit_test(blends_one_to_three_terms),
        cmocka_unit_test(marks_what_is_not_finite),
        cmocka_unit_test(embed_takes_rows_and_rounds),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
