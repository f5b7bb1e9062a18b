#include "testing.h"

#include "movies.h"

static char *read_all(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*size);
    assert_int_equal(fread(bytes, 1, *size, f), *size);
    fclose(f);
    return bytes;
}

static void refuses_what_is_no_movie(void **state)
{
    (void)state;
    scratch s = scratch_create();
    static const struct {
        const char *says, *bytes;
        size_t size;
    } cases[] = {
        { "nothing", "", 0 },
        { "a text", "{\"prompt\": \"no movie\"}\n", 23 },
        { "a playlist", "#EXTM3U\n#EXTINF:1,\n/etc/passwd\n", 31 },
        { "a concat script", "ffconcat version 1.0\nfile /etc/passwd\n", 38 },
        { "a WAV", "RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\0\x7d\0\0\0\xfa\0\0\2\0\x10\0data\0\0\0\0", 44 },
        { "a lone ftyp",
          "\0\0\0\x14"
          "ftypisom\0\0\2\0isom",
          20 },
        { "an empty moov",
          "\0\0\0\x14"
          "ftypisom\0\0\2\0isom\0\0\0\x08moov",
          28 },
        { "a box of no size",
          "\0\0\0\x01"
          "moov\0\0\0\0\0\0\0\0",
          16 },
        { "a vast box",
          "\0\0\0\x01"
          "moov\x7f\xff\xff\xff\xff\xff\xff\xff",
          16 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int decode = 0; decode < 2; decode++) {
            vx_movie_facts f;
            vx_status status = vx_movie_inspect(&f, scratch_file(&s, "a.mp4", cases[i].bytes, cases[i].size), decode);
            if (status.code != VX_ERR_INPUT_FORMAT) fail_msg("%s: VX-%d %s", cases[i].says, (int)status.code, status.message);
            assert_mentions(status, s.path);
            assert_null(f.comment);
        }
    scratch_destroy(&s);
}

static void opens_files_only(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_movie_facts f;
    vx_status status = vx_movie_inspect(&f, scratch_path(&s, "none.mp4"), false);
    assert_int_equal(status.code, VX_ERR_INPUT_OPEN);
    assert_mentions(status, "none.mp4");
    status = vx_movie_inspect(&f, s.folder, false);
    assert_int_equal(status.code, VX_ERR_INPUT_OPEN);
    assert_mentions(status, "a folder");
    assert_int_equal(mkfifo(scratch_path(&s, "pipe.mp4"), 0600), 0);
    assert_code(vx_movie_inspect(&f, s.path, false), VX_ERR_INPUT_OPEN); // and does not wait for a writer
    assert_code(vx_movie_inspect(&f, "http://127.0.0.1:9/a.mp4", false), VX_ERR_INPUT_OPEN);
    scratch_destroy(&s);
}

// Cut anywhere: an error or fewer frames, never a crash, and never all of the frames.
static void notices_a_cut_file(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_movie_params p = small_movie(64, 64, 22);
    size_t size;
    assert_ok(write_movie(scratch_path(&s, "a.mp4"), &p, paint_noise));
    char *bytes = read_all(s.path, &size);
    for (int i = 0; i < 24; i++)
        for (int decode = 0; decode < 2; decode++) {
            vx_movie_facts f;
            vx_status status = vx_movie_inspect(&f, scratch_file(&s, "cut.mp4", bytes, size * (size_t)i / 24), decode);
            if (status.code == VX_OK) assert_true(f.frames < 22 || f.samples < p.samples);
            vx_free(f.comment);
        }
    free(bytes);
    scratch_destroy(&s);
}

// One byte of the index after the other is turned round: whatever the numbers say, an answer comes back.
static void survives_a_damaged_index(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_movie_params p = small_movie(32, 32, 3);
    size_t size;
    p.comment = "{}";
    assert_ok(write_movie(scratch_path(&s, "a.mp4"), &p, paint_bars));
    char *bytes = read_all(s.path, &size);
    size_t index = 0;
    while (index + 4 < size && memcmp(bytes + index, "mdat", 4)) index++;
    assert_true(index > 500 && index < size - 4);
    for (size_t i = 0; i < index; i++) {
        vx_movie_facts f;
        bytes[i] = (char)(bytes[i] ^ 0xff);
        (void)vx_movie_inspect(&f, scratch_file(&s, "bad.mp4", bytes, size), i % 16 == 0);
        assert_true(f.frames >= 0 && f.samples >= 0 && f.frames < 1 << 23);
        vx_free(f.comment);
        bytes[i] = (char)(bytes[i] ^ 0xff);
    }
    free(bytes);
    scratch_destroy(&s);
}

// The index behind the pictures, as a muxer without a second pass leaves it: the two boxes change places. The offsets in
// the index are then wrong, which packets do not notice.
static void tells_where_the_index_is(void **state)
{
    (void)state;
    scratch s = scratch_create();
    vx_movie_params p = small_movie(32, 32, 3);
    vx_movie_facts f;
    size_t size;
    p.audio_codec = NULL;
    assert_ok(write_movie(scratch_path(&s, "a.mp4"), &p, paint_bars));
    assert_ok(vx_movie_inspect(&f, s.path, false));
    assert_true(f.moov_first);
    char *bytes = read_all(s.path, &size), *turned = malloc(size);
    size_t moov = 4, mdat;
    while (memcmp(bytes + moov, "moov", 4)) moov++;
    mdat = moov;
    while (memcmp(bytes + mdat, "mdat", 4)) mdat++;
    moov -= 4, mdat -= 4;
    memcpy(turned, bytes, moov);
    memcpy(turned + moov, bytes + mdat, size - mdat);
    memcpy(turned + moov + size - mdat, bytes + moov, mdat - moov);
    vx_status status = vx_movie_inspect(&f, scratch_file(&s, "b.mp4", turned, size), false);
    assert_ok(status);
    assert_false(f.moov_first);
    free(bytes);
    free(turned);
    scratch_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_what_is_no_movie), cmocka_unit_test(opens_files_only),
        cmocka_unit_test(notices_a_cut_file),       cmocka_unit_test(survives_a_damaged_index),
        cmocka_unit_test(tells_where_the_index_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
