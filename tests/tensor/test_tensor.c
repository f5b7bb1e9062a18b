// Views: what they show, and what they refuse.
#include "testing.h"

#include "tensor/tensor.h"

static float numbers[2 * 3 * 4]; // numbers[i] = i

static vx_tensor cube(void)
{
    for (int i = 0; i < 24; i++) numbers[i] = (float)i;
    return vx_tensor_of(numbers, VX_F32, 2, 3, 4);
}

static float at(vx_tensor t, int64_t i, int64_t j, int64_t k)
{
    const int64_t index[3] = { i, j, k };
    int64_t offset = 0;
    for (int a = 0; a < t.rank; a++) offset += index[a] * t.stride[a];
    return vx_f32_of(t)[offset];
}

static void assert_shape(vx_tensor t, const char *want)
{
    char text[96];
    assert_string_equal(vx_shape_text(text, t), want);
}

static void a_new_tensor_is_contiguous_and_row_major(void **state)
{
    (void)state;
    const vx_tensor t = cube();
    assert_int_equal(t.rank, 3);
    assert_int_equal(t.stride[0], 12);
    assert_int_equal(t.stride[1], 4);
    assert_int_equal(t.stride[2], 1);
    assert_true(vx_tensor_contiguous(t));
    assert_int_equal(vx_tensor_count(t), 24);
    assert_int_equal(vx_tensor_bytes(t), 96);
    assert_float_equal(at(t, 1, 2, 3), 23, 0);
    assert_shape(t, "[2,3,4]");
}

static void bytes_follow_the_type(void **state)
{
    (void)state;
    static const struct {
        vx_dtype t;
        size_t bytes; // of 3 x 5
    } cases[] = { { VX_F4_E2M1, 8 }, { VX_F8_E4M3, 15 }, { VX_BF16, 30 }, { VX_F32, 60 }, { VX_I64, 120 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(vx_tensor_bytes(vx_tensor_of(NULL, cases[i].t, 3, 5)), cases[i].bytes);
}

static void shapes_that_cannot_be_are_refused(void **state)
{
    (void)state;
    const int64_t nine[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    assert_int_equal(vx_tensor_make(NULL, VX_F32, 9, nine).rank, 0);
    assert_int_equal(vx_tensor_make(NULL, VX_F32, 8, nine).rank, 8);
    assert_int_equal(vx_tensor_make(NULL, VX_F32, 0, nine).rank, 0);
    assert_int_equal(vx_tensor_make(NULL, VX_F32, -1, nine).rank, 0);
    assert_int_equal(vx_tensor_of(NULL, VX_DTYPE_NONE, 2, 3).rank, 0);
    assert_int_equal(vx_tensor_of(NULL, VX_F32, 2, -3).rank, 0);
    assert_int_equal(vx_tensor_of(NULL, VX_F32, INT64_C(1) << 31, INT64_C(1) << 31).rank, 0);
    assert_int_equal(vx_tensor_of(NULL, VX_F32, 0, INT64_C(1) << 40, INT64_C(1) << 40).rank, 0);
    assert_int_equal(vx_tensor_of(NULL, VX_F32, INT64_MAX).rank, 0);
}

static void no_tensor_has_no_elements(void **state)
{
    (void)state;
    const vx_tensor none = { 0 };
    assert_int_equal(vx_tensor_count(none), 0);
    assert_int_equal(vx_tensor_bytes(none), 0);
    assert_true(vx_tensor_contiguous(none));
    assert_shape(none, "[]");
    assert_int_equal(vx_tensor_slice(none, 0, 0, 0).rank, 0);
    assert_int_equal(vx_tensor_row(none, 0).rank, 0);
    assert_int_equal(vx_tensor_split(none, 0, 1).rank, 0);
    assert_int_equal(vx_tensor_merge(none, 0).rank, 0);
    assert_int_equal(vx_tensor_reshape(none, 1, (const int64_t[]){ 0 }).rank, 0);
}

static void a_slice_moves_the_start_and_keeps_the_strides(void **state)
{
    (void)state;
    const vx_tensor s = vx_tensor_slice(cube(), 1, 1, 3);
    assert_shape(s, "[2,2,4]");
    assert_float_equal(at(s, 0, 0, 0), 4, 0);
    assert_float_equal(at(s, 1, 1, 3), 23, 0);
    assert_false(vx_tensor_contiguous(s));
    assert_true(vx_tensor_contiguous(vx_tensor_slice(cube(), 0, 1, 2)));
    assert_true(
        vx_tensor_contiguous(vx_tensor_slice(vx_tensor_slice(cube(), 0, 1, 2), 1, 0, 2))); // stride of a single row is no matter
}

static void an_empty_slice_stays_inside(void **state)
{
    (void)state;
    const vx_tensor s = vx_tensor_slice(cube(), 2, 4, 4);
    assert_shape(s, "[2,3,0]");
    assert_ptr_equal(s.data, numbers);
    assert_int_equal(vx_tensor_count(s), 0);
    assert_true(vx_tensor_contiguous(s));
}

static void slices_outside_are_refused(void **state)
{
    (void)state;
    static const struct {
        int axis;
        int64_t begin, end;
    } cases[] = { { -1, 0, 1 }, { 3, 0, 1 }, { 1, -1, 1 }, { 1, 0, 4 }, { 1, 2, 1 }, { 1, 4, 4 }, { 1, INT64_MIN, INT64_MAX } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(vx_tensor_slice(cube(), cases[i].axis, cases[i].begin, cases[i].end).rank, 0);
}

static void half_bytes_are_cut_only_at_whole_bytes(void **state)
{
    (void)state;
    uint8_t codes[6] = { 0 };
    const vx_tensor t = vx_tensor_of(codes, VX_F4_E2M1, 2, 6), odd = vx_tensor_of(codes, VX_F4_E2M1, 4, 3);
    assert_ptr_equal(vx_tensor_slice(t, 1, 2, 6).data, codes + 1);
    assert_int_equal(vx_tensor_slice(t, 1, 1, 6).rank, 0);
    assert_ptr_equal(vx_tensor_row(t, 1).data, codes + 3);
    assert_int_equal(vx_tensor_row(odd, 1).rank, 0);
    assert_ptr_equal(vx_tensor_row(odd, 2).data, codes + 3);
}

static void a_row_has_one_rank_less(void **state)
{
    (void)state;
    const vx_tensor r = vx_tensor_row(cube(), 1);
    assert_shape(r, "[3,4]");
    assert_float_equal(at(r, 2, 1, 0), 21, 0);
    assert_int_equal(vx_tensor_row(cube(), 2).rank, 0);
    assert_int_equal(vx_tensor_row(cube(), -1).rank, 0);
    assert_int_equal(vx_tensor_row(vx_tensor_of(numbers, VX_F32, 5), 1).rank, 0); // would be a tensor of rank 0 anyway
}

static void split_and_merge_undo_each_other(void **state)
{
    (void)state;
    const vx_tensor s = vx_tensor_split(cube(), 2, 2);
    assert_shape(s, "[2,3,2,2]");
    assert_int_equal(s.stride[2], 2);
    assert_int_equal(s.stride[3], 1);
    const vx_tensor m = vx_tensor_merge(s, 2), want = cube();
    assert_memory_equal(&m.shape, &want.shape, sizeof m.shape);
    assert_memory_equal(&m.stride, &want.stride, sizeof m.stride);
    assert_int_equal(m.rank, 3);
    assert_shape(vx_tensor_split(cube(), 0, 2), "[1,2,3,4]");
    assert_shape(vx_tensor_split(cube(), 2, 1), "[2,3,4,1]");
}

static void impossible_splits_are_refused(void **state)
{
    (void)state;
    assert_int_equal(vx_tensor_split(cube(), 1, 2).rank, 0);
    assert_int_equal(vx_tensor_split(cube(), 1, 0).rank, 0);
    assert_int_equal(vx_tensor_split(cube(), 1, -3).rank, 0);
    assert_int_equal(vx_tensor_split(cube(), 3, 1).rank, 0);
    assert_int_equal(vx_tensor_split(vx_tensor_of(numbers, VX_F32, 1, 1, 1, 1, 1, 1, 1, 8), 7, 2).rank, 0);
}

static void merge_works_where_strides_allow(void **state)
{
    (void)state;
    assert_shape(vx_tensor_merge(cube(), 0), "[6,4]");
    assert_float_equal(at(vx_tensor_merge(cube(), 0), 5, 3, 0), 23, 0);
    // A slice of the last axis still lets the first two be one; a slice of the middle one does not.
    const vx_tensor columns = vx_tensor_slice(cube(), 2, 1, 3);
    assert_shape(vx_tensor_merge(columns, 0), "[6,2]");
    assert_float_equal(at(vx_tensor_merge(columns, 0), 4, 1, 0), 18, 0);
    assert_int_equal(vx_tensor_merge(columns, 1).rank, 0);
    assert_int_equal(vx_tensor_merge(vx_tensor_slice(cube(), 1, 0, 2), 0).rank, 0);
    assert_int_equal(vx_tensor_merge(vx_tensor_permute(cube(), (const int[]){ 1, 0, 2 }), 0).rank, 0);
    assert_int_equal(vx_tensor_merge(cube(), 2).rank, 0);
    assert_int_equal(vx_tensor_merge(cube(), -1).rank, 0);
    // A single element on either side always merges, with the other side's stride.
    const vx_tensor one = vx_tensor_slice(vx_tensor_permute(cube(), (const int[]){ 2, 0, 1 }), 1, 1, 2); // [4,1,3] strides 1,12,4
    assert_int_equal(vx_tensor_merge(one, 0).stride[0], 1);
    const vx_tensor two = vx_tensor_slice(vx_tensor_slice(cube(), 0, 1, 2), 1, 0, 2); // [1,2,4] strides 12,4,1
    assert_shape(vx_tensor_merge(two, 0), "[2,4]");
    assert_int_equal(vx_tensor_merge(two, 0).stride[0], 4);
    assert_shape(vx_tensor_merge(vx_tensor_slice(vx_tensor_slice(cube(), 1, 0, 2), 2, 0, 0), 1), "[2,0]");
}

static void permute_moves_axes(void **state)
{
    (void)state;
    const vx_tensor p = vx_tensor_permute(cube(), (const int[]){ 2, 0, 1 });
    assert_shape(p, "[4,2,3]");
    assert_float_equal(at(p, 3, 1, 2), 23, 0);
    assert_float_equal(at(p, 1, 1, 0), 13, 0);
    assert_int_equal(vx_tensor_permute(cube(), (const int[]){ 0, 0, 1 }).rank, 0);
    assert_int_equal(vx_tensor_permute(cube(), (const int[]){ 0, 1, 3 }).rank, 0);
    assert_int_equal(vx_tensor_permute(cube(), (const int[]){ -1, 1, 2 }).rank, 0);
}

static void reshape_is_for_contiguous_tensors_of_the_same_size(void **state)
{
    (void)state;
    assert_shape(vx_tensor_reshape(cube(), 2, (const int64_t[]){ 8, 3 }), "[8,3]");
    assert_ptr_equal(vx_tensor_reshape(cube(), 1, (const int64_t[]){ 24 }).data, numbers);
    assert_int_equal(vx_tensor_reshape(cube(), 1, (const int64_t[]){ 23 }).rank, 0);
    assert_int_equal(vx_tensor_reshape(cube(), 1, (const int64_t[]){ -24 }).rank, 0);
    assert_int_equal(vx_tensor_reshape(vx_tensor_permute(cube(), (const int[]){ 1, 0, 2 }), 1, (const int64_t[]){ 24 }).rank, 0);
}

static void views_of_a_plan_have_no_address(void **state)
{
    (void)state;
    const vx_tensor t = vx_tensor_of(NULL, VX_BF16, 6, 8);
    assert_null(vx_tensor_slice(t, 0, 2, 4).data);
    assert_null(vx_tensor_row(t, 3).data);
    assert_int_equal(vx_tensor_slice(t, 0, 2, 4).rank, 2);
}

static void same_shape_compares_extents_only(void **state)
{
    (void)state;
    assert_true(vx_same_shape(cube(), vx_tensor_of(NULL, VX_BF16, 2, 3, 4)));
    assert_false(vx_same_shape(cube(), vx_tensor_of(NULL, VX_F32, 2, 3, 5)));
    assert_false(vx_same_shape(cube(), vx_tensor_of(NULL, VX_F32, 2, 3, 4, 1)));
}

static void a_long_shape_is_cut_not_overrun(void **state)
{
    (void)state;
    struct {
        char text[96];
        char after;
    } box = { .after = 'x' };
    vx_tensor t = { .dtype = VX_F32, .rank = VX_MAX_RANK };
    for (int i = 0; i < VX_MAX_RANK; i++) t.shape[i] = INT64_MAX - i;
    vx_shape_text(box.text, t);
    assert_int_equal(strlen(box.text), 95);
    assert_int_equal(box.after, 'x');
    assert_memory_equal(box.text, "[9223372036854775807,9223372036854775806,", 41);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_tensor_is_contiguous_and_row_major),
        cmocka_unit_test(bytes_follow_the_type),
        cmocka_unit_test(shapes_that_cannot_be_are_refused),
        cmocka_unit_test(no_tensor_has_no_elements),
        cmocka_unit_test(a_slice_moves_the_start_and_keeps_the_strides),
        cmocka_unit_test(an_empty_slice_stays_inside),
        cmocka_unit_test(slices_outside_are_refused),
        cmocka_unit_test(half_bytes_are_cut_only_at_whole_bytes),
        cmocka_unit_test(a_row_has_one_rank_less),
        cmocka_unit_test(split_and_merge_undo_each_other),
        cmocka_unit_test(impossible_splits_are_refused),
        cmocka_unit_test(merge_works_where_strides_allow),
        cmocka_unit_test(permute_moves_axes),
        cmocka_unit_test(reshape_is_for_contiguous_tensors_of_the_same_size),
        cmocka_unit_test(views_of_a_plan_have_no_address),
        cmocka_unit_test(same_shape_compares_extents_only),
        cmocka_unit_test(a_long_shape_is_cut_not_overrun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
