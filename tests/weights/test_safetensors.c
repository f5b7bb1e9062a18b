// The strict reader: one malformed file per row of checkpoints specification 2.2, and what stands in place of files.
#include "testing.h"

#include <fcntl.h>
#include <time.h>

#include "base/alloc.h"
#include "base/log.h"
#include "files.h"
#include "weights/safetensors.h"

static vx_status open_and_close(const char *path, const vx_safetensors_params *params)
{
    vx_safetensors *st = NULL;
    vx_status s = vx_safetensors_open(&st, path, params);
    if (s.code != VX_OK) assert_null(st);
    vx_safetensors_close(&st);
    return s;
}

// ---- table 2.2 ----

#define ENTRY(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *says, *header;
    size_t data;
    vx_code want;
    const char *part;
} headers[] = {
    { "opens one tensor", "{" ENTRY("a", "F32", "[2]", "[0,8]") "}", 8, VX_OK, "" },
    { "takes spaces before the brace", " \n\t{" ENTRY("a", "F32", "[2]", "[0,8]") "}", 8, VX_OK, "" },
    { "takes padding after the object", "{" ENTRY("a", "F32", "[2]", "[0,8]") "}    ", 8, VX_OK, "" },
    { "takes tensors in any order", "{" ENTRY("a", "F32", "[1]", "[4,8]") "," ENTRY("b", "F32", "[1]", "[0,4]") "}", 8, VX_OK,
      "" },
    { "takes a scalar", "{" ENTRY("a", "F32", "[]", "[0,4]") "}", 4, VX_OK, "" },
    { "takes empty tensors",
      "{" ENTRY("a", "F32", "[0,3]", "[4,4]") "," ENTRY("b", "F32", "[1]", "[0,4]") "," ENTRY("c", "U8", "[0]", "[0,0]") "}", 4,
      VX_OK, "" },
    { "takes odd offsets", "{" ENTRY("a", "U8", "[3]", "[0,3]") "," ENTRY("b", "BF16", "[1]", "[3,5]") "}", 5, VX_OK, "" },
    { "takes whole bytes of four bits", "{" ENTRY("a", "F4", "[2,3]", "[0,3]") "}", 3, VX_OK, "" },
    { "takes the rank of eight", "{" ENTRY("a", "U8", "[1,1,1,1,1,1,1,3]", "[0,3]") "}", 3, VX_OK, "" },
    { "takes escapes in names", "{\"a\\u00e4\\n\":1}", 0, VX_ERR_FILE_FORMAT, "control character 0x0a" },
    { "opens an empty set", "{}", 0, VX_OK, "" },
    { "opens a set of metadata only (P18)", "{\"__metadata__\":{\"k\":\"v\"}}", 0, VX_OK, "" },
    { "takes empty metadata (P19)", "{\"__metadata__\":{}," ENTRY("a", "U8", "[1]", "[0,1]") "}", 1, VX_OK, "" },
    { "3: refuses no JSON", "{\"a\":", 0, VX_ERR_FILE_FORMAT, "line 1" },
    { "3: refuses an empty header", "", 0, VX_ERR_FILE_FORMAT, "" },
    { "3: refuses a list", "[]", 0, VX_ERR_FILE_FORMAT, "not a JSON object" },
    { "3: refuses text after the object", "{} x", 0, VX_ERR_FILE_FORMAT, "" },
    { "3: refuses invalid UTF-8", "{\"\xff\":1}", 0, VX_ERR_FILE_FORMAT, "" },
    { "4: refuses a byte order mark", "\xEF\xBB\xBF{}", 0, VX_ERR_FILE_FORMAT, "" },
    { "5: refuses a tensor named twice (P18)",
      "{" ENTRY("key00", "U8", "[1]", "[0,1]") "," ENTRY("key00", "U8", "[1]", "[1,2]") "}", 2, VX_ERR_TENSOR_DUPLICATE,
      "'key00'" },
    { "5: names a long duplicate",
      "{" ENTRY("blocks.0.attn.qkv_proj.weight", "U8", "[1]", "[0,1]") "," ENTRY("blocks.0.attn.qkv_proj.weight", "U8", "[1]",
                                                                                 "[0,1]") "}",
      1, VX_ERR_TENSOR_DUPLICATE, "'blocks.0.attn.qkv_proj.weight'" },
    { "6: refuses metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, VX_ERR_FILE_FORMAT, "__metadata__" },
    { "6: refuses a number in metadata", "{\"__metadata__\":{\"step\":1}}", 0, VX_ERR_FILE_FORMAT, "'step'" },
    { "6: refuses metadata that is no object", "{\"__metadata__\":\"x\"}", 0, VX_ERR_FILE_FORMAT, "not an object" },
    { "6: refuses metadata that is null", "{\"__metadata__\":null}", 0, VX_ERR_FILE_FORMAT, "not an object" },
    { "6: refuses a key of metadata twice", "{\"__metadata__\":{\"k\":\"a\",\"k\":\"b\"}}", 0, VX_ERR_FILE_FORMAT, "duplicate" },
    { "7: refuses an unknown format", "{" ENTRY("a", "C64", "[1]", "[0,8]") "}", 8, VX_ERR_TENSOR_DTYPE, "'C64'" },
    { "7: refuses a format in small letters", "{" ENTRY("a", "f32", "[1]", "[0,4]") "}", 4, VX_ERR_TENSOR_DTYPE, "'f32'" },
    { "7: refuses a format that is no string", "{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
      VX_ERR_FILE_FORMAT, "'dtype'" },
    { "8: refuses a negative extent", "{" ENTRY("a", "F32", "[-1]", "[0,4]") "}", 4, VX_ERR_FILE_FORMAT, "'shape'" },
    { "8: refuses a fraction", "{" ENTRY("a", "F32", "[1.0]", "[0,4]") "}", 4, VX_ERR_FILE_FORMAT, "'shape'" },
    { "8: refuses an exponent", "{" ENTRY("a", "F32", "[1e0]", "[0,4]") "}", 4, VX_ERR_FILE_FORMAT, "'shape'" },
    { "8: refuses 2^63", "{" ENTRY("a", "F32", "[9223372036854775808]", "[0,4]") "}", 4, VX_ERR_FILE_FORMAT, "" },
    { "8: refuses a shape that is no list", "{" ENTRY("a", "F32", "1", "[0,4]") "}", 4, VX_ERR_FILE_FORMAT, "'shape'" },
    { "8: refuses a negative offset", "{" ENTRY("a", "F32", "[1]", "[-4,0]") "}", 4, VX_ERR_FILE_FORMAT, "'data_offsets'" },
    { "8: refuses three offsets", "{" ENTRY("a", "F32", "[1]", "[0,4,8]") "}", 4, VX_ERR_FILE_FORMAT, "'data_offsets'" },
    { "8: refuses an offset in quotes", "{" ENTRY("a", "F32", "[1]", "[0,\"4\"]") "}", 4, VX_ERR_FILE_FORMAT, "'data_offsets'" },
    { "9: refuses an end before the begin", "{" ENTRY("a", "F32", "[1]", "[4,0]") "}", 4, VX_ERR_FILE_FORMAT,
      "ends before it begins" },
    { "10: refuses an overflowing product", "{" ENTRY("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, VX_ERR_FILE_FORMAT,
      "overflows" },
    { "10: refuses overflowing bits", "{" ENTRY("a", "F32", "[2305843009213693952]", "[0,0]") "}", 0, VX_ERR_FILE_FORMAT,
      "overflows" },
    { "10: refuses overflow beside a 0", "{" ENTRY("a", "U8", "[4294967296,0,4294967296]", "[0,0]") "}", 0, VX_ERR_FILE_FORMAT,
      "overflows" },
    { "11: refuses half a byte", "{" ENTRY("a", "F4", "[3]", "[0,2]") "}", 2, VX_ERR_FILE_FORMAT, "whole number of bytes" },
    { "12: refuses too few bytes", "{" ENTRY("a", "F32", "[2]", "[0,4]") "}", 4, VX_ERR_FILE_FORMAT, "needs 8" },
    { "12: refuses too many bytes", "{" ENTRY("a", "BF16", "[2]", "[0,8]") "}", 8, VX_ERR_FILE_FORMAT, "needs 4" },
    { "13: refuses data beyond the end", "{" ENTRY("a", "F32", "[2]", "[0,8]") "}", 7, VX_ERR_FILE_TRUNCATED,
      "tensor 'a' is cut off" },
    { "13: refuses no data", "{" ENTRY("a", "F32", "[2]", "[0,8]") "}", 0, VX_ERR_FILE_TRUNCATED, "tensor 'a' is cut off" },
    { "14: refuses an overlap", "{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("b", "F32", "[1]", "[2,6]") "}", 6,
      VX_ERR_FILE_FORMAT, "'b' overlaps tensor 'a'" },
    { "14: refuses the same bytes twice", "{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("b", "F32", "[1]", "[0,4]") "}", 4,
      VX_ERR_FILE_FORMAT, "overlaps" },
    { "14: refuses a hole", "{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("b", "F32", "[1]", "[5,9]") "}", 9,
      VX_ERR_FILE_FORMAT, "1 bytes before tensor 'b'" },
    { "14: refuses a first offset above 0", "{" ENTRY("a", "F32", "[1]", "[4,8]") "}", 8, VX_ERR_FILE_FORMAT,
      "4 bytes before tensor 'a'" },
    { "14: refuses a hole before an empty tensor", "{" ENTRY("a", "F32", "[0]", "[4,4]") "}", 4, VX_ERR_FILE_FORMAT,
      "4 bytes before" },
    { "15: takes trailing bytes", "{" ENTRY("a", "F32", "[1]", "[0,4]") "}", 69, VX_OK, "" },
    { "16: refuses other members of an entry", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1,
      VX_ERR_FILE_FORMAT, "other members" },
    { "16: refuses a missing member", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, VX_ERR_FILE_FORMAT, "lacks" },
    { "16: refuses an entry that is no object", "{\"a\":[]}", 0, VX_ERR_FILE_FORMAT, "not an object" },
    { "18: refuses nine axes", "{" ENTRY("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, VX_ERR_FILE_LIMIT, "9 axes" },
    { "18: refuses an empty name", "{" ENTRY("", "U8", "[1]", "[0,1]") "}", 1, VX_ERR_FILE_FORMAT, "empty name" },
    { "18: refuses a NUL in a name", "{" ENTRY("a\\u0000b", "U8", "[1]", "[0,1]") "}", 1, VX_ERR_FILE_FORMAT, "" },
    { "19: refuses deep nesting", "{\"a\":{\"dtype\":\"U8\",\"shape\":[[[1]]],\"data_offsets\":[0,1]}}", 1, VX_ERR_FILE_FORMAT,
      "nested" },
    { "19: refuses half a surrogate", "{" ENTRY("\\ud800", "U8", "[1]", "[0,1]") "}", 1, VX_ERR_FILE_FORMAT, "" },
};

static void reads_headers_strictly(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        const char *path = put_container("a.safetensors", headers[i].header, headers[i].data);
        vx_status s = open_and_close(path, NULL);
        if (s.code != headers[i].want || !strstr(s.message, headers[i].part))
            fail_msg("%s: VX-%d '%s', wanted VX-%d '%s'", headers[i].says, s.code, s.message, headers[i].want, headers[i].part);
        // The same from memory, and as a user's input.
        vx_safetensors *st;
        assert_int_equal(vx_safetensors_parse(&st, headers[i].header, strlen(headers[i].header), headers[i].data, "memory").code,
                         headers[i].want);
        vx_safetensors_close(&st);
        s = open_and_close(path, &(vx_safetensors_params){ .input = true });
        assert_int_equal(s.code, headers[i].want == VX_OK ? VX_OK : VX_ERR_INPUT_FORMAT);
    }
}

static void refuses_trailing_bytes_when_strict(void **state)
{
    (void)state;
    const char *path = put_container("a.safetensors", "{" ENTRY("a", "F32", "[1]", "[0,4]") "}", 69);
    vx_status s = open_and_close(path, &(vx_safetensors_params){ .strict = true });
    assert_int_equal(s.code, VX_ERR_FILE_FORMAT);
    assert_says(s, "65 bytes follow");
}

static int warnings;
static void count_warnings(void *user, vx_log_level level, const char *text)
{
    (void)user, (void)text;
    warnings += level == VX_LOG_WARNING;
}

static void warns_of_trailing_bytes(void **state)
{
    (void)state;
    warnings = 0;
    vx_log_set(count_warnings, NULL);
    assert_ok(open_and_close(put_container("a.safetensors", "{" ENTRY("a", "F32", "[1]", "[0,4]") "}", 5), NULL));
    vx_log_set(NULL, NULL);
    assert_int_equal(warnings, 1);
}

// Row 2 and P17: the limit is inclusive, and the message says found and allowed. One file of spaces, cut shorter and shorter.
static void limits_the_header(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        off_t size; // of what follows the length
        vx_code want;
        const char *part;
    } cases[] = {
        { 132095296, 132095296, VX_ERR_FILE_LIMIT, "at most 100000000" }, // the file of P17; its tail is a hole
        { 100000001, 100000001, VX_ERR_FILE_LIMIT, "100000001" },
        { 100000000, 100000000, VX_OK, "" },
        { 99999999, 99999999, VX_OK, "" },
        { 8388608, 8388608, VX_OK, "" }, // published merges have exactly this
        { UINT64_C(1) << 63, 50, VX_ERR_FILE_LIMIT, "9223372036854775808" },
        { UINT64_MAX, 50, VX_ERR_FILE_LIMIT, "18446744073709551615" },
        { UINT64_MAX - 7, 50, VX_ERR_FILE_LIMIT, "at most" },
        { 99999999, 50, VX_ERR_FILE_TRUNCATED, "100000007" },
        { 100, 50, VX_ERR_FILE_TRUNCATED, "ends at 108" },
    };
    size_t spaces = 100000000, total;
    char *text = malloc(spaces);
    assert_non_null(text);
    memset(text, ' ', spaces);
    memcpy(text, "{}", 2);
    unsigned char *all = container(text, spaces, 0, &total);
    char path[512];
    snprintf(path, sizeof path, "%s", put("a.safetensors", all, total));
    free(all);
    free(text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char length[8];
        for (int b = 0; b < 8; b++) length[b] = (unsigned char)(cases[i].length >> 8 * b);
        int fd = open(path, O_WRONLY);
        assert_true(fd >= 0 && pwrite(fd, length, 8, 0) == 8 && ftruncate(fd, 8 + cases[i].size) == 0);
        close(fd);
        vx_status s = open_and_close(path, NULL);
        assert_int_equal(s.code, cases[i].want);
        assert_says(s, cases[i].part);
    }
}

// Row 18, and that names cost no more than n log n.
static void limits_the_number_and_length_of_names(void **state)
{
    (void)state;
    static const struct {
        int count, length;
        vx_code want;
    } cases[] = { { 65536, 24, VX_OK },
                  { 65537, 24, VX_ERR_FILE_LIMIT },
                  { 100000, 24, VX_ERR_FILE_LIMIT },
                  { 1, 4096, VX_OK },
                  { 1, 4097, VX_ERR_FILE_LIMIT } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t room = (size_t)cases[i].count * (size_t)(cases[i].length + 80) + 16, used = 0;
        char *text = malloc(room);
        assert_non_null(text);
        text[used++] = '{';
        for (int n = 0; n < cases[i].count; n++)
            used +=
                (size_t)snprintf(text + used, room - used, "%s\"%0*d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                                 n ? "," : "", cases[i].length, n, n, n + 1);
        text[used++] = '}';
        clock_t begin = clock();
        vx_safetensors *st;
        vx_status s = vx_safetensors_parse(&st, text, used, (uint64_t)cases[i].count, "many");
        assert_int_equal(s.code, cases[i].want);
        if (st) {
            char name[8192];
            snprintf(name, sizeof name, "%0*d", cases[i].length, cases[i].count / 2);
            assert_int_equal(vx_safetensors_find(st, name)->offset, 8 + used + (size_t)cases[i].count / 2);
            assert_null(vx_safetensors_find(st, "absent"));
        }
        double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
        if (seconds > 1.0 * SLOWDOWN) fail_msg("%d names took %.2f s", cases[i].count, seconds);
        vx_safetensors_close(&st);
        free(text);
    }
}

// What would make a parser take much more memory than the header's own.
static void limits_the_values_of_a_header(void **state)
{
    (void)state;
    static const struct {
        const char *unit;
        int count;
        vx_code want;
    } cases[] = { { "{},", 300000, VX_ERR_FILE_LIMIT },
                  { "[],", 300000, VX_ERR_FILE_LIMIT },
                  { "0,", 2000001, VX_ERR_FILE_LIMIT },
                  { "0,", 1999999, VX_ERR_FILE_LIMIT },
                  { "{},", 1000, VX_ERR_FILE_FORMAT } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t unit = strlen(cases[i].unit), room = unit * (size_t)cases[i].count + 128;
        char *text = malloc(room);
        assert_non_null(text);
        size_t used = (size_t)snprintf(text, room, "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,0],\"shape\":[");
        for (int n = 0; n < cases[i].count; n++, used += unit) memcpy(text + used, cases[i].unit, unit);
        used += (size_t)snprintf(text + used, room - used, "0]}}");
        vx_safetensors *st;
        if (i == 4) used = (size_t)snprintf(text, room, "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,0],\"shape\":[{}]}}");
        assert_int_equal(vx_safetensors_parse(&st, text, used, 0, "values").code, cases[i].want);
        assert_null(st);
        free(text);
    }
}

// ---- what stands in place of a file (P20, T28) ----

static void tells_what_stands_in_place_of_a_file(void **state)
{
    (void)state;
    static const struct {
        const char *says, *bytes;
        size_t size;
        vx_code want;
        const char *part;
    } cases[] = {
#define TEXT(s) s, sizeof(s) - 1
        { "pointer",
          TEXT("version https://git-lfs.github.com/spec/v1\noid "
               "sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 5207808496\n"),
          VX_ERR_FILE_POINTER, "LFS pointer" },
        { "page", TEXT("<!DOCTYPE html>\n<html><head><title>404</title></head></html>"), VX_ERR_FILE_POINTER, "web page" },
        { "page after space", TEXT("\n\n  <html lang=\"en\">.............................."), VX_ERR_FILE_POINTER, "web page" },
        { "answer", TEXT("{\"error\":\"Repository not found\"}"), VX_ERR_FILE_POINTER, "answer" },
        { "answer as text", TEXT("Entry not found, please check"), VX_ERR_FILE_POINTER, "answer" },
        { "zip", TEXT("PK\3\4\x14\0\0\0\x08\0archive/data.pkl"), VX_ERR_FILE_PICKLE, "zip" },
        { "pickle", TEXT("\x80\x02}q\0(X\x05\0\0\0step0q\x01K\0u."), VX_ERR_FILE_PICKLE, "pickle of protocol 2" },
        { "GGUF", TEXT("GGUF\x03\0\0\0\x10\0\0\0\0\0\0\0"), VX_ERR_FILE_FORMAT, "GGUF" },
        { "empty", TEXT(""), VX_ERR_FILE_TRUNCATED, "0 bytes" },
        { "seven bytes", TEXT("\2\0\0\0\0\0\0"), VX_ERR_FILE_TRUNCATED, "7 bytes, expected at least 8" },
        { "length only", TEXT("\2\0\0\0\0\0\0\0"), VX_ERR_FILE_TRUNCATED, "8 bytes, its header alone ends at 10" },
#undef TEXT
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_status s = open_and_close(put("a.safetensors", cases[i].bytes, cases[i].size), NULL);
        if (s.code != cases[i].want || !strstr(s.message, cases[i].part))
            fail_msg("%s: VX-%d '%s'", cases[i].says, s.code, s.message);
        s = open_and_close(at("a.safetensors"), &(vx_safetensors_params){ .input = true });
        assert_int_equal(s.code, VX_ERR_INPUT_FORMAT);
    }
    // A header of 640 bytes begins like a pickle of protocol 2.
    char text[640];
    memset(text, ' ', sizeof text);
    memcpy(text, "{}", 2);
    size_t size;
    unsigned char *all = container(text, sizeof text, 0, &size);
    assert_int_equal(all[0], 0x80);
    assert_int_equal(all[1], 2);
    assert_ok(open_and_close(put("a.safetensors", all, size), NULL));
    assert_int_equal(open_and_close(put("a.safetensors", all, 500), NULL).code, VX_ERR_FILE_TRUNCATED);
    free(all);
}

static void refuses_names_of_pickles_and_what_is_no_file(void **state)
{
    (void)state;
    static const char *const names[] = { "a.pt", "a.pth", "a.bin", "a.ckpt", "a.PT" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        vx_status s = open_and_close(put_container(names[i], "{}", 0), NULL);
        assert_int_equal(s.code, VX_ERR_FILE_PICKLE);
        assert_says(s, names[i]);
    }
    put_link("dangling.safetensors", "../blobs/0123abcd");
    put_link("loop.safetensors", "loop.safetensors");
    mkdir(at("folder.safetensors"), 0777);
    mkfifo(at("fifo.safetensors"), 0666);
    static const struct {
        const char *name, *part;
    } cases[] = { { "absent.safetensors", "absent" },
                  { "dangling.safetensors", "../blobs/0123abcd" },
                  { "loop.safetensors", "loop.safetensors" },
                  { "folder.safetensors", "a folder" },
                  { "fifo.safetensors", "a FIFO" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_status s = open_and_close(at(cases[i].name), NULL);
        assert_int_equal(s.code, VX_ERR_MODEL_OPEN);
        assert_says(s, cases[i].part);
        assert_int_equal(open_and_close(at(cases[i].name), &(vx_safetensors_params){ .input = true }).code, VX_ERR_INPUT_OPEN);
    }
    put_container("blob", "{" ENTRY("a", "F32", "[1]", "[0,4]") "}", 4);
    put_link("linked.safetensors", "blob"); // hub caches
    assert_ok(open_and_close(at("linked.safetensors"), NULL));
}

// ---- truncation and flips (T25, T26) ----

static const char three[] = "{" ENTRY("first", "F32", "[100,3]", "[0,1200]") "," ENTRY(
    "second", "BF16", "[7]", "[1200,1214]") "," ENTRY("third", "U8", "[2900]", "[1214,4114]") "}";

static void refuses_every_truncation(void **state)
{
    (void)state;
    size_t size;
    unsigned char *all = container(three, sizeof three - 1, 4114, &size);
    assert_true(size > 4096);
    for (size_t cut = 0; cut <= size; cut++) {
        vx_status s = open_and_close(put("a.safetensors", all, cut), NULL);
        if (cut == size) {
            assert_ok(s);
            break;
        }
        char found[32];
        snprintf(found, sizeof found, " %zu bytes", cut);
        if (s.code != VX_ERR_FILE_TRUNCATED || !strstr(s.message, found))
            fail_msg("cut at %zu: VX-%d %s", cut, s.code, s.message);
        if (cut < 8 + sizeof three - 1) continue;
        char expected[32];
        snprintf(expected, sizeof expected, "says %zu", size);
        assert_says(s, expected);
        size_t data = cut - 8 - (sizeof three - 1);
        assert_says(s, data < 1200 ? "'first'" : data < 1214 ? "'second'" : "'third'");
    }
    free(all);
}

// Whatever bit of the header flips: an error, or a file that still tiles its data.
static void survives_every_flipped_bit_of_the_header(void **state)
{
    (void)state;
    char text[sizeof three];
    for (size_t bit = 0; bit < 8 * (sizeof three - 1); bit++) {
        memcpy(text, three, sizeof text);
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        vx_safetensors *st = NULL;
        vx_status s = vx_safetensors_parse(&st, text, sizeof three - 1, 4114, "flipped");
        if (s.code != VX_OK) {
            assert_null(st);
            continue;
        }
        uint64_t end = 8 + sizeof three - 1;
        for (int i = 0; i < vx_safetensors_count(st); i++) {
            assert_int_equal(vx_safetensors_at(st, i)->offset, end);
            end += vx_safetensors_at(st, i)->bytes;
        }
        assert_true(end <= 8 + sizeof three - 1 + 4114);
        vx_safetensors_close(&st);
    }
}

static void reports_a_file_that_shrank(void **state)
{
    (void)state;
    size_t size = 1 << 20;
    char header[128];
    snprintf(header, sizeof header, "{" ENTRY("a", "U8", "[%zu]", "[0,%zu]") "}", size, size);
    vx_safetensors *st;
    const char *path = put_container("a.safetensors", header, size);
    assert_ok(vx_safetensors_open(&st, path, NULL));
    assert_ok(vx_safetensors_check(st));
    assert_int_equal(truncate(path, 4096), 0);
    const volatile unsigned char *data = vx_safetensors_find(st, "a")->data;
    unsigned sum = 0;
    for (size_t i = 0; i < size; i += 512) sum += data[i];
    assert_true(sum < 1 << 20);
    assert_code(vx_safetensors_check(st), VX_ERR_FILE_CHANGED);
    vx_safetensors_close(&st);
}

// ---- looking, copying, writing ----

static void gives_entries_in_order_of_offset(void **state)
{
    (void)state;
    const char *path = put_container(
        "a.safetensors",
        "{\"__metadata__\":{\"format\":\"pt\"}," ENTRY("a", "U8", "[3]", "[8,11]") "," ENTRY("z", "F32", "[1,2]", "[0,8]") "}",
        11);
    vx_safetensors *st;
    assert_ok(vx_safetensors_open(&st, path, NULL));
    assert_int_equal(vx_safetensors_count(st), 2);
    const vx_safetensors_entry *z = vx_safetensors_at(st, 0), *a = vx_safetensors_at(st, 1);
    assert_string_equal(z->name, "z");
    assert_int_equal(z->dtype, VX_F32);
    assert_int_equal(z->rank, 2);
    assert_int_equal(z->shape[1], 2);
    assert_int_equal(z->offset, 8 + vx_safetensors_header_bytes(st));
    assert_int_equal(((const unsigned char *)z->data)[5], 5);
    assert_int_equal(((const unsigned char *)a->data)[2], 10);
    assert_null(vx_safetensors_at(st, 2));
    assert_null(vx_safetensors_at(st, -1));
    assert_string_equal(vx_safetensors_metadata(st, "format"), "pt");
    assert_null(vx_safetensors_metadata(st, "absent"));
    assert_null(vx_safetensors_find(st, "__metadata__"));
    assert_string_equal(vx_safetensors_path(st), path);
    vx_safetensors_prefetch(st, 0, 1 << 30);
    vx_safetensors_close(&st);
}

static void writes_what_it_reads(void **state)
{
    (void)state;
    static const float f[3] = { 1.5f, -2, 1e-3f };
    static const uint16_t b[2] = { 0x3fc0, 0xc000 }, h[1] = { 0x3e00 }; // 1.5, -2; 1.5
    static const uint8_t u[3] = { 1, 2, 3 };
    static const double d[1] = { 0.5 };
    const vx_safetensors_tensor tensors[] = {
        { "u", VX_U8, 1, { 3 }, u },  { "half", VX_F16, 1, { 1 }, h },       { "bf \"q\"", VX_BF16, 2, { 1, 2 }, b },
        { "f", VX_F32, 1, { 3 }, f }, { "none", VX_F32, 2, { 0, 4 }, NULL }, { "d", VX_F64, 0, { 0 }, d },
    };
    const vx_safetensors_pair pairs[] = { { "vortex_version", "0.1.0" }, { "request", "{\"seed\":7}" } };
    const char *path = at("out.safetensors");
    assert_ok(vx_safetensors_write(path, false, tensors, 6, pairs, 2));
    vx_safetensors *st;
    assert_ok(vx_safetensors_open(&st, path, &(vx_safetensors_params){ .strict = true }));
    assert_int_equal(vx_safetensors_count(st), 6);
    assert_int_equal(vx_safetensors_header_bytes(st) % 8, 0);
    static const char *const order[] = { "d", "f", "none", "bf \"q\"", "half", "u" }; // wider formats first, then by name
    for (int i = 0; i < 6; i++) {
        const vx_safetensors_entry *e = vx_safetensors_at(st, i);
        if (e->bytes) assert_int_equal(e->offset % (uint64_t)(vx_dtype_bits(e->dtype) / 8), 0);
        assert_non_null(vx_safetensors_find(st, order[i]));
        if (i < 1 || i > 2) assert_string_equal(e->name, order[i]); // an empty tensor may stand on either side
    }
    assert_string_equal(vx_safetensors_metadata(st, "request"), "{\"seed\":7}");
    float out[3];
    assert_ok(vx_safetensors_read_f32(st, "f", 1, (int64_t[]){ 3 }, out));
    assert_memory_equal(out, f, sizeof f);
    assert_ok(vx_safetensors_read_f32(st, "bf \"q\"", 2, (int64_t[]){ 1, -1 }, out));
    assert_true(out[0] == 1.5f && out[1] == -2);
    assert_ok(vx_safetensors_read_f32(st, "half", 1, (int64_t[]){ -1 }, out));
    assert_true(out[0] == 1.5f);
    assert_ok(vx_safetensors_read_f32(st, "d", 0, NULL, out));
    assert_true(out[0] == 0.5f);
    assert_code(vx_safetensors_read_f32(st, "u", 1, (int64_t[]){ 3 }, out), VX_ERR_TENSOR_DTYPE);
    assert_code(vx_safetensors_read_f32(st, "f", 1, (int64_t[]){ 4 }, out), VX_ERR_TENSOR_SHAPE);
    assert_code(vx_safetensors_read_f32(st, "f", 2, (int64_t[]){ 3, 1 }, out), VX_ERR_TENSOR_SHAPE);
    assert_code(vx_safetensors_read_f32(st, "g", 1, (int64_t[]){ 3 }, out), VX_ERR_TENSOR_MISSING);
    vx_safetensors_close(&st);

    assert_code(vx_safetensors_write(path, false, tensors, 6, pairs, 2), VX_ERR_OUTPUT_EXISTS);
    assert_ok(vx_safetensors_write(path, true, tensors, 0, NULL, 0));
    assert_ok(vx_safetensors_open(&st, path, &(vx_safetensors_params){ .strict = true, .input = true }));
    assert_int_equal(vx_safetensors_count(st), 0);
    assert_code(vx_safetensors_read_f32(st, "f", 1, (int64_t[]){ 3 }, out), VX_ERR_INPUT_FORMAT);
    vx_safetensors_close(&st);
}

static void refuses_to_write_what_it_would_not_read(void **state)
{
    (void)state;
    static const uint8_t u[3] = { 1, 2, 3 };
    const vx_safetensors_tensor twice[] = { { "a", VX_U8, 1, { 3 }, u },
                                            { "b", VX_U8, 1, { 1 }, u },
                                            { "a", VX_U8, 1, { 2 }, u } };
    assert_code(vx_safetensors_write(at("bad"), false, twice, 3, NULL, 0), VX_ERR_TENSOR_DUPLICATE);
    const vx_safetensors_tensor names[] = { { "", VX_U8, 1, { 3 }, u },
                                            { "__metadata__", VX_U8, 1, { 3 }, u },
                                            { "\xff", VX_U8, 1, { 3 }, u },
                                            { "a", VX_DTYPE_NONE, 1, { 3 }, u },
                                            { "a", VX_U8, 1, { -3 }, u } };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_code(vx_safetensors_write(at("bad"), false, &names[i], 1, NULL, 0), VX_ERR_INTERNAL);
    assert_int_equal(access(at("bad"), F_OK), -1);
}

// A data offset of 3: bf16 numbers at odd addresses.
static void copies_misaligned_numbers(void **state)
{
    (void)state;
    size_t size;
    static const char header[] =
        "{" ENTRY("m", "U8", "[1]", "[0,1]") "," ENTRY("x", "BF16", "[2]", "[1,5]") "," ENTRY("y", "F32", "[1]", "[5,9]") "}";
    unsigned char *all = container(header, sizeof header - 1, 9, &size);
    static const unsigned char numbers[9] = { 0, 0xc0, 0x3f, 0x00, 0xc0, 0, 0, 0x80, 0x3f }; // 1.5, -2, 1.0f
    memcpy(all + 8 + sizeof header - 1, numbers, 9);
    vx_safetensors *st;
    assert_ok(vx_safetensors_open(&st, put("a.safetensors", all, size), NULL));
    free(all);
    float out[2];
    assert_ok(vx_safetensors_read_f32(st, "x", 1, (int64_t[]){ 2 }, out));
    assert_true(out[0] == 1.5f && out[1] == -2);
    assert_ok(vx_safetensors_read_f32(st, "y", 1, (int64_t[]){ 1 }, out));
    assert_true(out[0] == 1);
    vx_safetensors_close(&st);
}

static void gives_memory_back_whichever_allocation_fails(void **state)
{
    (void)state;
    put_container("a.safetensors", three, 4114);
    char path[512];
    snprintf(path, sizeof path, "%s", at("a.safetensors"));
    for (int persistent = 0; persistent < 2; persistent++)
        for (int64_t k = 1, hit = 1; hit; k++) {
            vx_safetensors *st;
            vx_fault_arm(k, persistent);
            vx_status s = vx_safetensors_open(&st, path, NULL);
            hit = vx_fault_disarm();
            assert_int_equal(s.code, hit ? VX_ERR_MEMORY : VX_OK);
            vx_safetensors_close(&st);
            assert_true(k < 100);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_a_file_that_shrank), // first: the first mapping installs its handler above cmocka's
        cmocka_unit_test(reads_headers_strictly),
        cmocka_unit_test(refuses_trailing_bytes_when_strict),
        cmocka_unit_test(warns_of_trailing_bytes),
        cmocka_unit_test(limits_the_header),
        cmocka_unit_test(limits_the_number_and_length_of_names),
        cmocka_unit_test(limits_the_values_of_a_header),
        cmocka_unit_test(tells_what_stands_in_place_of_a_file),
        cmocka_unit_test(refuses_names_of_pickles_and_what_is_no_file),
        cmocka_unit_test(refuses_every_truncation),
        cmocka_unit_test(survives_every_flipped_bit_of_the_header),
        cmocka_unit_test(gives_entries_in_order_of_offset),
        cmocka_unit_test(writes_what_it_reads),
        cmocka_unit_test(refuses_to_write_what_it_would_not_read),
        cmocka_unit_test(copies_misaligned_numbers),
        cmocka_unit_test(gives_memory_back_whichever_allocation_fails),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
