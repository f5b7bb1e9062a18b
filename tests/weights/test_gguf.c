// GGUF: what is read, and one file for every way of being wrong (public bugs P21, P22; reliability specification 1.2).
#include "gguf_file.h"

#include "base/alloc.h"
#include "tensor/quant.h"
#include "weights/gguf.h"

static bytes file;

static vx_status parse(void)
{
    vx_gguf *g;
    unsigned char *copy = malloc(file.size ? file.size : 1); // of its own: a sanitizer sees what is read behind its end
    assert_non_null(copy);
    memcpy(copy, file.data, file.size);
    vx_status s = vx_gguf_parse(&g, copy, file.size, "test.gguf");
    if (s.code == VX_OK) {
        for (int i = 0; i < vx_gguf_count(g); i++) {
            const vx_safetensors_entry *e = vx_gguf_at(g, i);
            assert_true(e->offset + e->bytes <= file.size);
        }
    } else {
        assert_null(g);
    }
    vx_gguf_close(&g);
    free(copy);
    return s;
}

static void reads_names_shapes_and_types(void **state)
{
    (void)state;
    vx_gguf *g;
    add_head(&file, 3, 3, 4);
    add_text(&file, "general.architecture");
    add_number(&file, 8, 4);
    add_text(&file, "qwen3vl");
    add_text(&file, "general.alignment");
    add_number(&file, 4, 4);
    add_number(&file, 64, 4);
    add_text(&file, "a.list");
    add_number(&file, 9, 4);
    add_number(&file, 8, 4);
    add_number(&file, 2, 8);
    add_text(&file, "one");
    add_text(&file, "");
    add_text(&file, "comfy.gguf.orig_shape.folded");
    add_number(&file, 9, 4);
    add_number(&file, 5, 4);
    add_number(&file, 3, 8);
    for (int i = 0; i < 3; i++) add_number(&file, (uint64_t)(const int[]){ 2, 1, 32 }[i], 4);
    add_tensor(&file, "w", NE(64, 3), 8, 128);
    add_tensor(&file, "v", NE(5), 0, 0);
    add_tensor(&file, "folded", NE(32, 2), 1, 384);
    add_data(&file, 64, 384 + 128);
    put("a.gguf", file.data, file.size);
    assert_ok(vx_gguf_open(&g, at("a.gguf")));
    assert_int_equal(vx_gguf_count(g), 3);
    const vx_safetensors_entry *v = vx_gguf_at(g, 0), *w = vx_gguf_at(g, 1), *folded = vx_gguf_at(g, 2);
    assert_string_equal(v->name, "v");
    assert_true(v->dtype == VX_F32 && v->rank == 1 && v->shape[0] == 5 && v->bytes == 20 && v->ggml == 0);
    assert_string_equal(w->name, "w"); // PyTorch's order: rows first
    assert_true(w->dtype == VX_U8 && w->ggml == 8 && w->rank == 2 && w->shape[0] == 3 && w->shape[1] == 64);
    assert_int_equal(w->bytes, 3 * 2 * 34);
    assert_int_equal((w->offset - v->offset), 128);
    assert_int_equal(((const unsigned char *)w->data)[0], 128 & 0xff);
    assert_true(folded->rank == 3 && folded->shape[0] == 2 && folded->shape[1] == 1 && folded->shape[2] == 32);
    size_t size;
    const char *text = vx_gguf_text(g, "general.architecture", &size);
    assert_int_equal(size, 7);
    assert_memory_equal(text, "qwen3vl", 7);
    assert_null(vx_gguf_text(g, "general.alignment", &size));
    assert_null(vx_gguf_text(g, "absent", &size));
    assert_ok(vx_gguf_check(g));
    vx_gguf_close(&g);
}

static void needs_no_metadata(void **state)
{
    (void)state;
    add_head(&file, 2, 1, 0);
    add_tensor(&file, "w", NE(32, 2), 2, 0);
    add_data(&file, 32, 36);
    assert_ok(parse());
    add_head(&file, 3, 0, 0);
    assert_ok(parse());
}

// ---- one damaged file for each finding ----

typedef struct fault {
    const char *says;
    void (*make)(void);
    vx_code want;
    const char *part;
} fault;

static void one_tensor(int dims, const uint64_t *ne, uint32_t type, uint64_t offset)
{
    add_head(&file, 3, 1, 0);
    add_tensor(&file, "blocks.0.mlp.fc1.weight", dims, ne, type, offset);
    add_data(&file, 32, 4096);
}
static void alignment(uint64_t value)
{
    add_head(&file, 3, 1, 1);
    add_text(&file, "general.alignment");
    add_number(&file, 4, 4);
    add_number(&file, value, 4);
    add_tensor(&file, "w", NE(32), 0, 0);
    add_data(&file, 32, 128);
}
static void second_dimension_wraps(void)
{
    one_tensor(NE(64, 4398046511105), 8, 0);
} // 2^42 + 1
static void product_is_2_63(void)
{
    one_tensor(NE((uint64_t)1 << 32, (uint64_t)1 << 31), 0, 0);
}
static void bytes_wrap(void)
{
    one_tensor(NE((uint64_t)1 << 62), 0, 0);
}
static void dimension_zero(void)
{
    one_tensor(NE(32, 0), 0, 0);
}
static void dimension_negative(void)
{
    one_tensor(NE((uint64_t)-32, 1), 0, 0);
}
static void nine_dimensions(void)
{
    one_tensor(NE(1, 1, 1, 1, 1, 1, 1, 1, 1), 0, 0);
}
static void five_dimensions(void)
{
    one_tensor(NE(1, 1, 1, 1, 1), 0, 0);
}
static void all_the_dimensions(void)
{
    add_head(&file, 3, 1, 0);
    add_text(&file, "w");
    add_number(&file, 0xffffffff, 4);
    add_data(&file, 32, 64);
}
static void alignment_0(void)
{
    alignment(0);
}
static void alignment_3(void)
{
    alignment(3);
}
static void alignment_2_30(void)
{
    alignment(1 << 30);
}
static void alignment_is_text(void)
{
    add_head(&file, 3, 0, 1);
    add_text(&file, "general.alignment");
    add_number(&file, 8, 4);
    add_text(&file, "32");
}
static void key_past_the_end(void)
{
    add_head(&file, 3, 0, 1);
    add_number(&file, 1000, 8);
    add_data(&file, 1, 50);
}
static void key_of_2_64(void)
{
    add_head(&file, 3, 0, 1);
    add_number(&file, UINT64_MAX, 8);
    add_data(&file, 1, 50);
}
static void key_too_long(void)
{
    add_head(&file, 3, 0, 1);
    add_number(&file, 4097, 8);
    for (int i = 0; i < 4097; i++) add_number(&file, 'k', 1);
    add_number(&file, 0, 4);
    add_number(&file, 0, 1);
}
static void value_past_the_end(void)
{
    add_head(&file, 3, 0, 1);
    add_text(&file, "k");
    add_number(&file, 8, 4);
    add_number(&file, 1 << 30, 8);
}
static void list(uint32_t kind, uint64_t count)
{
    add_head(&file, 3, 0, 1);
    add_text(&file, "k");
    add_number(&file, 9, 4);
    add_number(&file, kind, 4);
    add_number(&file, count, 8);
    add_data(&file, 1, 64);
}
static void list_of_a_gigabyte(void)
{
    list(4, 1 << 28);
}
static void list_that_wraps(void)
{
    list(10, (uint64_t)1 << 61);
}
static void list_of_texts_past_the_end(void)
{
    list(8, 1 << 20);
}
static void list_of_lists(void)
{
    list(9, 1);
}
static void kind_13(void)
{
    add_head(&file, 3, 0, 1);
    add_text(&file, "k");
    add_number(&file, 13, 4);
    add_number(&file, 0, 8);
}
static void key_twice(void)
{
    add_head(&file, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        add_text(&file, "k");
        add_number(&file, 0, 4);
        add_number(&file, 1, 1);
    }
}
static void most_pairs(void)
{
    add_head(&file, 3, 0, 65537), add_data(&file, 1, 4096);
}
static void pairs_beyond_the_file(void)
{
    add_head(&file, 3, 0, 60000), add_data(&file, 1, 4096);
}
static void pairs_2_63(void)
{
    add_head(&file, 3, 0, (uint64_t)1 << 63);
}
static void most_tensors(void)
{
    add_head(&file, 3, 65537, 0), add_data(&file, 1, 4096);
}
static void tensors_beyond_the_file(void)
{
    add_head(&file, 3, 60000, 0), add_data(&file, 1, 4096);
}
static void version_1(void)
{
    add_head(&file, 1, 0, 0);
}
static void version_4(void)
{
    add_head(&file, 4, 0, 0);
}
static void big_endian(void)
{
    add_head(&file, 0x03000000, 0, 0);
}
static void name(const char *text, size_t size)
{
    add_head(&file, 3, 1, 0);
    add_number(&file, size, 8);
    add(&file, text, size);
    add_number(&file, 1, 4);
    add_number(&file, 32, 8);
    add_number(&file, 0, 4);
    add_number(&file, 0, 8);
    add_data(&file, 32, 128);
}
static void name_empty(void)
{
    name("", 0);
}
static void name_with_nul(void)
{
    name("a\0b", 3);
}
static void name_no_utf8(void)
{
    name("\xff", 1);
}
static void name_twice(void)
{
    add_head(&file, 3, 2, 0);
    add_tensor(&file, "w", NE(8), 0, 0);
    add_tensor(&file, "w", NE(8), 0, 32);
    add_data(&file, 32, 64);
}
static void half_a_block(void)
{
    one_tensor(NE(48, 1), 8, 0);
}
static void blocks_across_rows(void)
{
    one_tensor(NE(48, 2), 8, 0);
}
static void half_a_super_block(void)
{
    one_tensor(NE(128, 1), 12, 0);
}
static void offset_unaligned(void)
{
    one_tensor(NE(32), 0, 8);
}
static void offset_past_the_end(void)
{
    one_tensor(NE(32), 0, 1 << 20);
}
static void offset_wraps(void)
{
    one_tensor(NE(32), 0, (uint64_t)-32);
}
static void data_cut(void)
{
    one_tensor(NE(2048), 0, 0), file.size -= 4096;
}
static void overlap(void)
{
    add_head(&file, 3, 2, 0);
    add_tensor(&file, "a", NE(32), 0, 0);
    add_tensor(&file, "b", NE(32), 0, 64);
    add_data(&file, 32, 256);
}
static void type_iq(void)
{
    one_tensor(NE(256), 16, 0);
}
static void type_removed(void)
{
    one_tensor(NE(256), 4, 0);
}
static void type_unknown(void)
{
    one_tensor(NE(256), 0xffffffff, 0);
}

static const fault faults[] = {
    { "P21: 2^42+1 rows", second_dimension_wraps, VX_ERR_FILE_TRUNCATED, "fc1.weight" },
    { "product of 2^63", product_is_2_63, VX_ERR_FILE_FORMAT, "2^63" },
    { "bytes beyond 2^63", bytes_wrap, VX_ERR_FILE_FORMAT, "2^63" },
    { "a dimension of 0", dimension_zero, VX_ERR_FILE_FORMAT, "dimension of 0" },
    { "a negative dimension", dimension_negative, VX_ERR_FILE_FORMAT, "dimension" },
    { "P22: nine dimensions", nine_dimensions, VX_ERR_FILE_LIMIT, "9 dimensions" },
    { "five dimensions", five_dimensions, VX_ERR_FILE_LIMIT, "5 dimensions" },
    { "P22: 2^32-1 dimensions", all_the_dimensions, VX_ERR_FILE_LIMIT, "4294967295 dimensions" },
    { "P22: alignment 0", alignment_0, VX_ERR_FILE_FORMAT, "alignment is 0" },
    { "P22: alignment 3", alignment_3, VX_ERR_FILE_FORMAT, "alignment is 3" },
    { "P22: alignment 2^30", alignment_2_30, VX_ERR_FILE_FORMAT, "power of two" },
    { "alignment that is a text", alignment_is_text, VX_ERR_FILE_FORMAT, "alignment has type 8" },
    { "P22: a key past the end", key_past_the_end, VX_ERR_FILE_TRUNCATED, "key" },
    { "a key of 2^64-1 bytes", key_of_2_64, VX_ERR_FILE_TRUNCATED, "key" },
    { "a key of 4097 bytes", key_too_long, VX_ERR_FILE_LIMIT, "4097" },
    { "a text of a gigabyte", value_past_the_end, VX_ERR_FILE_TRUNCATED, "text" },
    { "a list of a gigabyte", list_of_a_gigabyte, VX_ERR_FILE_TRUNCATED, "list" },
    { "a list whose bytes wrap", list_that_wraps, VX_ERR_FILE_TRUNCATED, "list" },
    { "texts past the end", list_of_texts_past_the_end, VX_ERR_FILE_TRUNCATED, "list of texts" },
    { "lists in lists", list_of_lists, VX_ERR_FILE_FORMAT, "list of type 9" },
    { "an unknown kind of value", kind_13, VX_ERR_FILE_FORMAT, "type 13" },
    { "a key twice", key_twice, VX_ERR_FILE_FORMAT, "twice" },
    { "65537 values", most_pairs, VX_ERR_FILE_LIMIT, "65537" },
    { "P22: more keys than bytes", pairs_beyond_the_file, VX_ERR_FILE_TRUNCATED, "metadata" },
    { "2^63 values", pairs_2_63, VX_ERR_FILE_LIMIT, "metadata" },
    { "65537 tensors", most_tensors, VX_ERR_FILE_LIMIT, "65537" },
    { "more tensors than bytes", tensors_beyond_the_file, VX_ERR_FILE_TRUNCATED, "table" },
    { "version 1", version_1, VX_ERR_FILE_FORMAT, "version 1" },
    { "version 4", version_4, VX_ERR_FILE_FORMAT, "version 4" },
    { "big-endian", big_endian, VX_ERR_FILE_FORMAT, "big-endian" },
    { "an empty name", name_empty, VX_ERR_FILE_FORMAT, "name" },
    { "a name with NUL", name_with_nul, VX_ERR_FILE_FORMAT, "control" },
    { "a name that is no UTF-8", name_no_utf8, VX_ERR_FILE_FORMAT, "UTF-8" },
    { "a name twice", name_twice, VX_ERR_TENSOR_DUPLICATE, "'w'" },
    { "half a block", half_a_block, VX_ERR_FILE_FORMAT, "rows of 48" },
    { "blocks across rows", blocks_across_rows, VX_ERR_QUANT_FORMAT, "across its rows of 48" },
    { "half a block of 256", half_a_super_block, VX_ERR_FILE_FORMAT, "multiple of 256 for Q4_K" },
    { "an offset off the alignment", offset_unaligned, VX_ERR_FILE_FORMAT, "multiple of 32" },
    { "an offset past the end", offset_past_the_end, VX_ERR_FILE_TRUNCATED, "1048576" },
    { "an offset that wraps", offset_wraps, VX_ERR_FILE_TRUNCATED, "fc1.weight" },
    { "data that is cut off", data_cut, VX_ERR_FILE_TRUNCATED, "8192" },
    { "tensors that overlap", overlap, VX_ERR_FILE_FORMAT, "'b' begins inside" },
    { "an IQ type", type_iq, VX_ERR_QUANT_FORMAT, "IQ2_XXS" },
    { "a removed type", type_removed, VX_ERR_QUANT_FORMAT, "type 4" },
    { "an unknown type", type_unknown, VX_ERR_QUANT_FORMAT, "4294967295" },
};

static void refuses_every_damage(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        faults[i].make();
        vx_status s = parse();
        if (s.code != faults[i].want || !strstr(s.message, faults[i].part))
            fail_msg("%s: VX-%d '%s'", faults[i].says, s.code, s.message);
    }
}

// T25: cut at every byte.
static void refuses_every_cut(void **state)
{
    (void)state;
    add_head(&file, 3, 2, 2);
    add_text(&file, "a");
    add_number(&file, 9, 4);
    add_number(&file, 2, 4);
    add_number(&file, 3, 8);
    for (int i = 0; i < 3; i++) add_number(&file, 7, 2);
    add_text(&file, "b");
    add_number(&file, 12, 4);
    add_number(&file, 1, 8);
    add_tensor(&file, "one", NE(32, 2), 8, 0);
    add_tensor(&file, "two", NE(3), 30, 96);
    add_data(&file, 32, 102);
    assert_ok(parse());
    for (const size_t whole = file.size; file.size > 0;) {
        file.size--;
        vx_status s = parse();
        if (s.code != VX_ERR_FILE_TRUNCATED && !(file.size < 4 && s.code == VX_ERR_FILE_FORMAT))
            fail_msg("%d of %d bytes: VX-%d '%s'", (int)file.size, (int)whole, s.code, s.message);
    }
}

// T26: every bit of a small file; what is still accepted lies inside it (parse checks that).
static void survives_every_flipped_bit(void **state)
{
    (void)state;
    add_head(&file, 3, 1, 1);
    add_text(&file, "general.alignment");
    add_number(&file, 4, 4);
    add_number(&file, 32, 4);
    add_tensor(&file, "w", NE(32, 2), 2, 0);
    add_data(&file, 32, 36);
    for (size_t i = 0; i < 8 * file.size; i++) {
        file.data[i / 8] ^= (unsigned char)(1 << i % 8);
        vx_status s = parse();
        if (s.code != VX_OK && (s.code / 1000 != 3 || !s.message[0])) fail_msg("bit %d: VX-%d", (int)i, s.code);
        file.data[i / 8] ^= (unsigned char)(1 << i % 8);
    }
}

static void gives_memory_back_whichever_allocation_fails(void **state)
{
    (void)state;
    add_head(&file, 3, 1, 1);
    add_text(&file, "k");
    add_number(&file, 0, 4);
    add_number(&file, 1, 1);
    add_tensor(&file, "w", NE(32, 2), 2, 0);
    add_data(&file, 32, 36);
    for (int64_t k = 1, hit = 1; hit; k++) {
        vx_fault_arm(k, false);
        vx_status s = parse();
        hit = vx_fault_disarm();
        if (s.code != (hit ? VX_ERR_MEMORY : VX_OK)) fail_msg("allocation %d: VX-%d %s", (int)k, s.code, s.message);
        assert_true(k < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_names_shapes_and_types), cmocka_unit_test(needs_no_metadata),
        cmocka_unit_test(refuses_every_damage),         cmocka_unit_test(refuses_every_cut),
        cmocka_unit_test(survives_every_flipped_bit),   cmocka_unit_test(gives_memory_back_whichever_allocation_fails),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
