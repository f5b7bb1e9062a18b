// PyTorch's CPU generator, bit for bit.
#include "testing.h"

#include "base/alloc.h"
#include "tensor/random.h"

enum { VIDEO = 24 * 37 * 48 * 84, AUDIO = 13248 }; // the canonical workload's noise

static uint64_t fnv(uint64_t hash, const float *values, int64_t count)
{
    const unsigned char *bytes = (const unsigned char *)values;
    for (int64_t i = 0; i < count * 4; i++) hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    return hash;
}
#define FNV_START UINT64_C(14695981039346656037)

static float *draw(uint64_t seed, int64_t count)
{
    float *out = vx_alloc((size_t)count * sizeof *out);
    assert_non_null(out);
    vx_random r;
    vx_random_seed(&r, seed);
    vx_random_normal(&r, out, count);
    return out;
}

// std::mt19937's check value: the 10,000th word after the default seed 5489 (C++ standard, [rand.predef]).
static void words_are_those_of_mt19937(void **state)
{
    (void)state;
    vx_random r;
    vx_random_seed(&r, 5489);
    uint32_t word = 0;
    for (int i = 0; i < 10000; i++) word = vx_random_u32(&r);
    assert_int_equal(word, 4123659995u);
}

// The table of the denoiser specification 7.2 (nine significant digits name one f32).
static void draws_begin_and_end_as_published(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed;
        int64_t count, from;
        int values;
        float want[8];
    } cases[] = {
        { 0,
          16,
          0,
          8,
          { -1.12583983f, -1.1523602f, -0.250578582f, -0.433878809f, 0.848710358f, 0.692009151f, -0.31601277f, -2.11521935f } },
        { 0,
          8,
          0,
          8,
          { 1.54099607f, -0.293428898f, -2.17878938f, 0.568431258f, -1.08452237f, -1.39859545f, 0.403346837f, 0.838026345f } },
        { 0, 17, 0, 4, { -1.12583983f, -1.6959312f, 0.566650629f, 0.793508351f } },
        { 42, 32, 0, 4, { 1.92691529f, 1.48728406f, 0.900717199f, -2.10552096f } },
        { 440420, VIDEO, 0, 4, { 1.04842591f, 0.583672941f, 0.565790176f, 0.557357967f } },
        { 440420, VIDEO, VIDEO - 3, 3, { 0.290215254f, 0.130905315f, 0.901037633f } },
        { 440420, VIDEO + AUDIO, VIDEO, 4, { 0.311458975f, 0.0316027962f, 0.8493222f, 0.32489267f } },
        { 440420, VIDEO + AUDIO, VIDEO + AUDIO - 1, 1, { 0.206101283f } },
        { 0,
          VIDEO + AUDIO,
          VIDEO - 3,
          6,
          { -0.747189045f, 0.31168139f, -0.711807311f, 0.922783852f, -0.530758023f, -1.38396907f } },
        { 42,
          VIDEO + AUDIO,
          VIDEO - 3,
          6,
          { 0.711576581f, 0.77240634f, 1.56308138f, -0.627652287f, -0.705819964f, 0.48717913f } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float *out = draw(cases[i].seed, cases[i].count);
        assert_memory_equal(out + cases[i].from, cases[i].want, (size_t)cases[i].values * sizeof *out);
        vx_free(out);
    }
}

static void the_canonical_noise_has_the_published_rows_and_sums(void **state)
{
    (void)state;
    float *video = draw(440420, VIDEO + AUDIO);
    const float *audio = video + VIDEO;
    double sum = 0, audio_sum = 0;
    for (int i = 0; i < VIDEO; i++) sum += video[i];
    for (int i = 0; i < AUDIO; i++) audio_sum += audio[i];
    assert_float_equal(sum, -3355.5121872665, 1e-9);
    assert_float_equal(audio_sum, -129.3960907444, 1e-9);
    // ComfyUI's audio is [1,32,2,A]: row 0 packed takes channels 0..3 of side 0; patchified video row 0 takes 2 x 2 pixels.
    const float audio_row[4] = { 0.311458975f, 0.150295436f, 1.00392556f, 0.0522306412f };
    const float video_row[4] = { 1.04842591f, 0.583672941f, 0.709158719f, 0.115994155f };
    for (int c = 0; c < 4; c++) assert_float_equal(audio[c * (AUDIO / 32)], audio_row[c], 0);
    for (int k = 0; k < 4; k++) assert_float_equal(video[k / 2 * 84 + k % 2], video_row[k], 0);
    vx_free(video);
}

// Made with PyTorch 2.15:
//   for seed in (0, 42, 440420, 2**40 + 5):
//     for n in (1, 8, 15, 16, 17, 31, 32, 100, 13248, 3593664):
//       print(seed, n, hex(fnv1a64(torch.randn(n, generator=torch.Generator().manual_seed(seed)).numpy().tobytes())))
static void draws_have_the_hashes_of_pytorchs(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed;
        int64_t count;
        uint64_t hash;
    } cases[] = {
        { UINT64_C(0), 1, UINT64_C(0x1877733c12d64cbc) },
        { UINT64_C(0), 8, UINT64_C(0x8a5583d05d3ca727) },
        { UINT64_C(0), 15, UINT64_C(0x52b8f3bcc098f4b9) },
        { UINT64_C(0), 16, UINT64_C(0x28d49f8f92bf21d6) },
        { UINT64_C(0), 17, UINT64_C(0x9151e09be6bcf07a) },
        { UINT64_C(0), 31, UINT64_C(0x3e39671abab4a234) },
        { UINT64_C(0), 32, UINT64_C(0x96cdff5c281baa04) },
        { UINT64_C(0), 100, UINT64_C(0x6b680134d3d69e1b) },
        { UINT64_C(0), 13248, UINT64_C(0x8e9e549be92eb367) },
        { UINT64_C(0), 3593664, UINT64_C(0x7ba4db090a01e19a) },
        { UINT64_C(42), 1, UINT64_C(0x339a81d29fc978d3) },
        { UINT64_C(42), 8, UINT64_C(0x76e861bea02d1bc9) },
        { UINT64_C(42), 15, UINT64_C(0x4c7fdcb26081ae6b) },
        { UINT64_C(42), 16, UINT64_C(0x080ffa5fbeb15154) },
        { UINT64_C(42), 17, UINT64_C(0x91ae8bd790a50356) },
        { UINT64_C(42), 31, UINT64_C(0xbcc1254f5a30e3c3) },
        { UINT64_C(42), 32, UINT64_C(0x286932daaf3a819a) },
        { UINT64_C(42), 100, UINT64_C(0x7ea02704af7a98a3) },
        { UINT64_C(42), 13248, UINT64_C(0x9ec1ff2c151ea0fa) },
        { UINT64_C(42), 3593664, UINT64_C(0x738990c1c7572471) },
        { UINT64_C(440420), 1, UINT64_C(0xfe9a6b10be57be2c) },
        { UINT64_C(440420), 8, UINT64_C(0xfb234f6daf0e1644) },
        { UINT64_C(440420), 15, UINT64_C(0x7c93a7eb366de5f1) },
        { UINT64_C(440420), 16, UINT64_C(0xb8ec152d20d6e73d) },
        { UINT64_C(440420), 17, UINT64_C(0xc352c6de8db40f40) },
        { UINT64_C(440420), 31, UINT64_C(0xe4cc537d03e524fc) },
        { UINT64_C(440420), 32, UINT64_C(0xbd85143cb4dd5a33) },
        { UINT64_C(440420), 100, UINT64_C(0xc0c15b4c9841e674) },
        { UINT64_C(440420), 13248, UINT64_C(0x35f45ab7f62149b5) },
        { UINT64_C(440420), 3593664, UINT64_C(0x15ea412c30fd9e0c) },
        { UINT64_C(1099511627781), 1, UINT64_C(0x98e5cffa3bb28dc7) },
        { UINT64_C(1099511627781), 8, UINT64_C(0x454fcb99919b93ea) },
        { UINT64_C(1099511627781), 15, UINT64_C(0x2ba446d6f6e8dcbb) },
        { UINT64_C(1099511627781), 16, UINT64_C(0x3c61a7c281fb0730) },
        { UINT64_C(1099511627781), 17, UINT64_C(0x41fad463f58112d2) },
        { UINT64_C(1099511627781), 31, UINT64_C(0x39dbe9c6f5d1d00f) },
        { UINT64_C(1099511627781), 32, UINT64_C(0x6094c5c646b5320b) },
        { UINT64_C(1099511627781), 100, UINT64_C(0x821693f9a621b93a) },
        { UINT64_C(1099511627781), 13248, UINT64_C(0x34f094250931965f) },
        { UINT64_C(1099511627781), 3593664, UINT64_C(0xd0926bb278789583) },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float *out = draw(cases[i].seed, cases[i].count);
        const uint64_t hash = fnv(FNV_START, out, cases[i].count);
        if (hash != cases[i].hash)
            fail_msg("seed %llu, %lld values: %016llx, expected %016llx", (unsigned long long)cases[i].seed,
                     (long long)cases[i].count, (unsigned long long)hash, (unsigned long long)cases[i].hash);
        vx_free(out);
    }
}

// g = torch.Generator().manual_seed(7); the bytes of torch.randn(k, generator=g) for k in 3, 16, 2, 33, 1, 15, 48 in a row.
static void the_spare_of_a_short_draw_waits_behind_long_ones(void **state)
{
    (void)state;
    static const int64_t counts[] = { 3, 16, 2, 33, 1, 15, 48 };
    float out[48];
    vx_random r;
    vx_random_seed(&r, 7);
    uint64_t hash = FNV_START;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        vx_random_normal(&r, out, counts[i]);
        hash = fnv(hash, out, counts[i]);
    }
    assert_int_equal(hash, UINT64_C(0xa2c536bd6221e13b));
}

static void seeding_forgets_the_spare(void **state)
{
    (void)state;
    vx_random r;
    float a[3], b[3];
    vx_random_seed(&r, 5);
    vx_random_normal(&r, a, 3);
    vx_random_seed(&r, 5);
    vx_random_normal(&r, b, 3);
    assert_memory_equal(a, b, sizeof a);
}

static void nothing_is_drawn_for_no_values(void **state)
{
    (void)state;
    vx_random r, before;
    vx_random_seed(&r, 5);
    before = r;
    vx_random_normal(&r, NULL, 0);
    assert_int_equal(r.next, before.next);
    assert_int_equal(r.has_spare, before.has_spare);
}

static void whole_blocks_may_be_drawn_in_parts(void **state)
{
    (void)state;
    float *whole = draw(3, 1600), parts[1600];
    vx_random r;
    vx_random_seed(&r, 3);
    vx_random_normal(&r, parts, 992);
    vx_random_normal(&r, parts + 992, 608);
    assert_memory_equal(whole, parts, sizeof parts);
    vx_free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_those_of_mt19937),
        cmocka_unit_test(draws_begin_and_end_as_published),
        cmocka_unit_test(the_canonical_noise_has_the_published_rows_and_sums),
        cmocka_unit_test(draws_have_the_hashes_of_pytorchs),
        cmocka_unit_test(the_spare_of_a_short_draw_waits_behind_long_ones),
        cmocka_unit_test(seeding_forgets_the_spare),
        cmocka_unit_test(nothing_is_drawn_for_no_values),
        cmocka_unit_test(whole_blocks_may_be_drawn_in_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
