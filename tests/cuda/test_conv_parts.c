// Convolutions by parts on CUDA: bits that depend on nothing but the numbers, samples of any size, NaN and infinity, scratch.
#include "conv_rig.h"

// A line of 300 numbers of 272 channels (nine blocks, the last one half empty), 18 channels out, nine taps: two segments.
enum { CI = 272, CO = 18, TAPS = 9, LENGTH = 300 };
typedef struct line_rig {
    vx_arena *arena;
    both x, w, bias, out;
    vx_k_conv c;
} line_rig;

static line_rig new_line(float sample)
{
    line_rig r = { .arena = new_arena() };
    r.x = make(r.arena, VX_F32, CI * LENGTH);
    r.w = make(r.arena, VX_F32, CO * CI * TAPS);
    r.bias = make(r.arena, VX_F32, CO);
    r.out = make(r.arena, VX_F32, CO * LENGTH);
    for (int64_t i = 0; i < r.x.span; i++) ((float *)r.x.host)[i] *= sample;
    assert_ok(vx_upload(cuda, r.x.far, r.x.host));
    r.c = (vx_k_conv){
        .x = r.x.far.data, .x_channel = LENGTH, .x_frame = LENGTH, .x_row = LENGTH, .ci = CI, .frames = 1, .rows = 1
    };
    r.c.columns = r.c.out_columns = LENGTH;
    r.c.out = r.out.far.data;
    r.c.out_channel = r.c.out_frame = r.c.out_row = LENGTH;
    r.c.co = CO;
    r.c.out_frames = r.c.out_rows = 1;
    r.c.w = r.w.far.data;
    r.c.taps[0] = r.c.taps[1] = 1, r.c.taps[2] = TAPS;
    for (int i = 0; i < 3; i++) r.c.stride[i] = 1;
    r.c.pad[2] = TAPS / 2;
    r.c.dilation = 1;
    r.c.packed = vx_arena_tensor(r.arena, VX_F32, (int64_t)vx_k_parts_scratch(&r.c, true) / 4 + 1).data;
    return r;
}
static void drop_line(line_rig *r)
{
    both *all[] = { &r->x, &r->w, &r->bias, &r->out };
    for (int i = 0; i < 4; i++) drop(all[i]);
    vx_arena_destroy(&r->arena);
}
static float *run_rig(line_rig *r, vx_k_parts_tile tile, bool each)
{
    float *found = vx_alloc((size_t)r->out.span * 4);
    assert_non_null(found);
    poison(&r->out);
    assert_int_equal(vx_k_parts_run(&r->c, tile, each, vx_cuda_of(cuda)->stream), cudaSuccess);
    assert_ok(vx_download(cuda, found, r->out.far));
    return found;
}

// Tiles and the way of adding segments change no bit, nor does doing it once more.
static void parts_have_the_same_bits_in_every_tile(void **state)
{
    (void)state;
    line_rig r = new_line(1);
    assert_int_equal(vx_k_parts_segments(&r.c), 2);
    for (int family = 0; family < (vx_cuda_of(cuda)->groups ? 2 : 1); family++) {
        const int begin = family ? VX_K_PARTS_GROUP_128X128 : 0, end = family ? VX_K_PARTS_TILES : VX_K_PARTS_GROUP_128X128;
        float *first = run_rig(&r, (vx_k_parts_tile)begin, false);
        for (int i = 4 * begin; i < 4 * end; i++) {
            float *again = run_rig(&r, (vx_k_parts_tile)(i / 4), i % 2);
            for (int64_t n = 0; n < r.out.span; n++)
                if (memcmp(&again[n], &first[n], 4) != 0)
                    fail_msg("tile %d, each %d: number %lld is %.9g, was %.9g", i / 4, i % 2, (long long)n, (double)again[n],
                             (double)first[n]);
            vx_free(again);
        }
        vx_free(first);
    }
    drop_line(&r);
}

// What stands far away changes no bit, be it 2^20 times as large: a clip in pieces has the bits of the whole.
static void parts_do_not_depend_on_other_positions(void **state)
{
    (void)state;
    line_rig r = new_line(0.02f);
    float *x = r.x.host;
    float *first = run_rig(&r, VX_K_PARTS_64X64, false);
    for (int i = 0; i < CI; i++) x[i * LENGTH + 299] = 20000.0f;
    assert_ok(vx_upload(cuda, r.x.far, x));
    float *louder = run_rig(&r, VX_K_PARTS_64X64, false);
    r.c.columns = r.c.out_columns = 150;
    float *half = run_rig(&r, VX_K_PARTS_128X128, true);
    for (int o = 0; o < CO; o++) {
        assert_memory_equal(&first[o * LENGTH], &louder[o * LENGTH], (LENGTH - TAPS) * sizeof *first);
        assert_memory_equal(&first[o * LENGTH], &half[o * LENGTH], (150 - TAPS) * sizeof *first);
    }
    vx_free(first);
    vx_free(louder);
    vx_free(half);
    drop_line(&r);
}

// The greatest error, beside 2^-21 of the products' magnitudes and `floor` for each weight's.
static double error_of(line_rig *r, double floor)
{
    const float *x = r->x.host, *w = r->w.host;
    double most = 0;
    float *found = run_rig(r, VX_K_PARTS_64X64, false);
    for (int o = 0; o < CO; o++)
        for (int n = 0; n < LENGTH; n++) {
            double sum = 0, bound = 0;
            for (int i = 0; i < CI; i++)
                for (int k = 0; k < TAPS; k++) {
                    const int at = n + k - TAPS / 2;
                    if (at < 0 || at >= LENGTH) continue;
                    const double weight = w[(o * CI + i) * TAPS + k], product = weight * x[i * LENGTH + at];
                    sum += product;
                    bound += 0x1p-21 * fabs(product) + floor * fabs(weight);
                }
            const double e = fabs(found[o * LENGTH + n] - sum);
            if (bound == 0) assert_true(found[o * LENGTH + n] == 0);
            else if (!(e / bound <= most)) most = e / bound;
        }
    vx_free(found);
    return most;
}

static void parts_take_samples_of_any_size(void **state)
{
    (void)state;
    static const float sizes[] = { 1, 0x1p-7f, 0x1p-40f, 0x1p-100f, 0x1p14f, 0x1p30f, 0x1p100f, 0 };
    for (int i = 0; i < 8; i++) {
        line_rig r = new_line(sizes[i]);
        const double e = error_of(&r, 0);
        if (!(e <= 1)) fail_msg("samples up to %g: %.3g of the allowed error", (double)sizes[i], e);
        drop_line(&r);
    }
    // f32's own subnormals keep what they have; a huge sample leaves 2^-28 of itself to the others.
    line_rig r = new_line(0x1p-130f);
    double e = error_of(&r, 0x1p-149);
    if (!(e <= 1)) fail_msg("subnormal samples: %.3g of the allowed error", e);
    drop_line(&r);
    r = new_line(1);
    ((float *)r.x.host)[7 * LENGTH + 40] = 1e9f;
    assert_ok(vx_upload(cuda, r.x.far, r.x.host));
    e = error_of(&r, 0x1p-28 * 1e9);
    if (!(e <= 1)) fail_msg("beside a sample of 1e9: %.3g of the allowed error", e);
    drop_line(&r);
    // Weights whose channels differ by 2^60.
    r = new_line(1);
    for (int i = 0; i < CO * CI * TAPS; i++) ((float *)r.w.host)[i] *= i / (CI * TAPS) % 2 ? 0x1p-30f : 0x1p30f;
    assert_ok(vx_upload(cuda, r.w.far, r.w.host));
    e = error_of(&r, 0);
    if (!(e <= 1)) fail_msg("channels of weights of different size: %.3g of the allowed error", e);
    drop_line(&r);
}

static void parts_let_nothing_infinite_pass(void **state)
{
    (void)state;
    static const float bad[] = { NAN, INFINITY, -INFINITY, 3e38f };
    for (int i = 0; i < 4; i++)
        for (int weight = 0; weight < 2; weight++) {
            line_rig r = new_line(1);
            if (weight) ((float *)r.w.host)[7 * CI * TAPS + 30] = bad[i];
            else ((float *)r.x.host)[100 * LENGTH + 200] = bad[i];
            assert_ok(vx_upload(cuda, r.x.far, r.x.host));
            assert_ok(vx_upload(cuda, r.w.far, r.w.host));
            float *found = run_rig(&r, VX_K_PARTS_128X64, false);
            for (int o = 0; o < CO; o++)
                for (int n = TAPS; n < LENGTH - TAPS; n++) {
                    const bool meets = weight ? o == 7 : abs(n - 200) <= TAPS / 2;
                    if (!meets) assert_true(isfinite(found[o * LENGTH + n]));
                    else if (i < 3) assert_false(isfinite(found[o * LENGTH + n]));
                }
            vx_free(found);
            drop_line(&r);
        }
}

// What a plan counts is what is taken.
static void parts_take_the_scratch_of_the_plan(void **state)
{
    (void)state;
    vx_device *plan = NULL;
    assert_ok(vx_device_plan_create(&plan, cuda));
    vx_arena *arena = new_arena();
    both x = make(arena, VX_F32, 512 * 300), w = make(arena, VX_F32, 512 * 512 * 7), out = make(arena, VX_F32, 512 * 300);
    for (int parts = 0; parts < 2; parts++) {
        vx_device_parts(cuda, parts);
        vx_device_plan_reset(plan);
        vx_device_release(cuda);
        const int64_t before = vx_cuda_of(cuda)->scratch_growths;
        for (int far = 0; far < 2; far++) {
            assert_ok(vx_conv1d(far ? cuda : plan, far_view(&out, vx_tensor_of(NULL, VX_F32, 512, 300)),
                                far_view(&x, vx_tensor_of(NULL, VX_F32, 512, 300)),
                                far_view(&w, vx_tensor_of(NULL, VX_F32, 512, 512, 7)), &(vx_conv1d_params){ .padding = 3 }));
            if (!far) assert_ok(vx_device_reserve(cuda, vx_device_plan_counts(plan).scratch));
        }
        assert_ok(vx_device_sync(cuda));
        assert_int_equal(vx_cuda_of(cuda)->scratch_growths, before);
        assert_int_equal(vx_cuda_of(cuda)->scratch_size, vx_device_plan_counts(plan).scratch);
    }
    vx_device_parts(cuda, false);
    both *all[] = { &x, &w, &out };
    for (int i = 0; i < 3; i++) drop(all[i]);
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_have_the_same_bits_in_every_tile), cmocka_unit_test(parts_do_not_depend_on_other_positions),
        cmocka_unit_test(parts_take_samples_of_any_size),         cmocka_unit_test(parts_let_nothing_infinite_pass),
        cmocka_unit_test(parts_take_the_scratch_of_the_plan),
    };
    RUN_ON_BOTH(tests);
}
