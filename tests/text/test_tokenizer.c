// Ids against the reference: the small tokenizer of the repository always, the released one when its files are there.
#include "testing.h"

#include <time.h>

#include "base/alloc.h"
#include "vectors.h"

#define SMALL VX_TEST_DATA "/tokenizer"

// Not by the clock on the wall: other programs run, too.
static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static vx_tokenizer *open_small(void)
{
    vx_tokenizer *t;
    assert_ok(vx_tokenizer_open(&t, SMALL));
    return t;
}

static void check_ids(const vx_tokenizer *t, const json_t *root, const char *member)
{
    size_t i;
    json_t *row;
    const json_t *strings = json_object_get(root, "strings");
    assert_true(json_array_size(strings) > 100);
    json_array_foreach(strings, i, row)
    {
        const json_t *text = json_object_get(row, "text");
        vx_tokens tokens = { 0 };
        assert_ok(vx_tokenizer_encode(t, json_string_value(text), json_string_length(text), &tokens));
        assert_ids(json_string_value(json_object_get(row, "name")), &tokens, json_object_get(row, member));
        vx_free(tokens.ids);
    }
}

typedef struct piece_check {
    const json_t *want;
    const char *name;
    size_t at;
} piece_check;

static void check_piece(void *user, const char *text, size_t size)
{
    piece_check *c = user;
    const json_t *want = json_array_get(c->want, c->at);
    if (!want || json_string_length(want) != size || memcmp(json_string_value(want), text, size) != 0)
        fail_msg("'%s': piece %d is '%.*s', expected '%s'", c->name, (int)c->at, (int)size, text,
                 want ? json_string_value(want) : "(none)");
    c->at++;
}

static void check_pieces(const json_t *root)
{
    const json_t *special = json_object_get(root, "special_tokens");
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(root, "strings"), i, row)
    {
        const json_t *text = json_object_get(row, "text");
        const char *p = json_string_value(text), *end = p + json_string_length(text), *begin = p;
        piece_check c = { json_object_get(row, "pieces"), json_string_value(json_object_get(row, "name")), 0 };
        while (p < end) {
            const char *token;
            size_t size = 0;
            json_t *id;
            json_object_foreach((json_t *)special, token, id)
            {
                if (strlen(token) <= (size_t)(end - p) && memcmp(token, p, strlen(token)) == 0) size = strlen(token);
            }
            if (!size) {
                p++;
                continue;
            }
            assert_ok(vx_tokenizer_pieces(begin, (size_t)(p - begin), check_piece, &c));
            check_piece(&c, p, size);
            begin = p += size;
        }
        assert_ok(vx_tokenizer_pieces(begin, (size_t)(end - begin), check_piece, &c));
        assert_int_equal(c.at, json_array_size(c.want));
    }
}

static void small_tokenizer_gives_the_references_ids(void **state)
{
    (void)state;
    vx_tokenizer *t = open_small();
    json_t *root = load_json(SMALL "/vectors.json");
    check_ids(t, root, "ids");
    check_pieces(root);
    json_decref(root);
    vx_tokenizer_close(&t);
}

static void ids_follow_from_the_merges_without_a_vocabulary(void **state)
{
    (void)state;
    size_t merges_size, config_size;
    char *merges = read_text(SMALL, "merges.txt", &merges_size),
         *config = read_text(SMALL, "tokenizer_config.json", &config_size);
    vx_tokenizer *t;
    assert_ok(vx_tokenizer_parse(&t, NULL, 0, merges, merges_size, config, config_size, "small"));
    json_t *root = load_json(SMALL "/vectors.json");
    check_ids(t, root, "by_rank");
    json_decref(root);
    vx_tokenizer_close(&t);
    vx_free(merges);
    vx_free(config);
}

static void every_added_token_is_known(void **state)
{
    (void)state;
    vx_tokenizer *t = open_small();
    json_t *root = load_json(SMALL "/vectors.json"), *id;
    const char *token;
    int64_t highest = 0;
    json_object_foreach(json_object_get(root, "special_tokens"), token, id)
    {
        assert_int_equal(vx_tokenizer_added(t, token), json_integer_value(id));
        if (json_integer_value(id) > highest) highest = json_integer_value(id);
    }
    assert_int_equal(vx_tokenizer_vocabulary(t), highest + 1);
    assert_int_equal(vx_tokenizer_added(t, "<Picture 1>"), -1);
    json_decref(root);
    vx_tokenizer_close(&t);
}

static void released_tokenizer_gives_the_references_ids(void **state)
{
    (void)state;
    if (!golden_folder()) {
        print_message("skipped: VORTEX_GOLDEN_DATA is not set\n");
        return;
    }
    char folder[512], vectors[512];
    snprintf(folder, sizeof folder, "%s/official/FL2VA/tokenizer", golden_folder());
    if (!golden_tokenizer(vectors)) return;
    vx_tokenizer *t;
    double begin = processor_seconds();
    assert_ok(vx_tokenizer_open(&t, folder));
    double seconds = processor_seconds() - begin;
    print_message("released tokenizer loaded in %.0f ms\n", seconds * 1e3);
    assert_true(seconds < 0.3 * SLOWDOWN); // it counts against the second that a refused request may take
    assert_int_equal(vx_tokenizer_vocabulary(t), 151676);
    json_t *root = load_json(vectors);
    check_ids(t, root, "ids");
    check_pieces(root);
    json_decref(root);
    vx_tokenizer_close(&t);
}

// ---- long texts ----
enum { LONG = 1 << 20 };

static const struct {
    const char *says;
    const char *unit[4]; // repeated in turn
} long_texts[] = {
    { "letters", { "a" } },
    { "spaces", { " " } },
    { "spaces and newlines", { "        ", "\n" } },
    { "combining marks", { "\xcc\x81" } },
    { "combining marks in falling order", { "\xcd\x85", "\xcc\x81", "\xcc\xa3", "\xcc\xb4" } },
    { "CJK", { "\xe6\xb5\xb7", "\xe7\x81\xaf" } },
    { "decomposed Hangul", { "\xe1\x84\x92", "\xe1\x85\xa1", "\xe1\x86\xab" } },
    { "beginnings of added tokens", { "<|vision_star" } },
    { "added tokens", { "<d>" } },
    { "apostrophes", { "'" } },
    { "quarter of an expansion", { "\xe1\xbe\x82" } },
};

static void time_of_long_texts_is_bounded(const vx_tokenizer *t)
{
    char *text = malloc(LONG + 16);
    for (size_t i = 0; i < sizeof long_texts / sizeof *long_texts; i++) {
        size_t size = 0;
        for (int k = 0; size < LONG; k = (k + 1) % 4) {
            const char *unit = long_texts[i].unit[k];
            if (!unit) continue;
            if (size + strlen(unit) > LONG) break;
            memcpy(text + size, unit, strlen(unit));
            size += strlen(unit);
        }
        vx_tokens tokens = { 0 };
        double begin = processor_seconds();
        assert_ok(vx_tokenizer_encode(t, text, size, &tokens));
        double seconds = processor_seconds() - begin;
        print_message("1 MiB of %s: %.3f s, %lld tokens\n", long_texts[i].says, seconds, (long long)tokens.count);
        if (seconds > 1.0 * SLOWDOWN) fail_msg("1 MiB of %s took %.2f s", long_texts[i].says, seconds);
        vx_free(tokens.ids);
    }
    free(text);
}

static void a_mebibyte_of_anything_takes_less_than_a_second(void **state)
{
    (void)state;
    vx_tokenizer *t = open_small();
    time_of_long_texts_is_bounded(t);
    vx_tokenizer_close(&t);
    if (!golden_folder()) return;
    char folder[512];
    snprintf(folder, sizeof folder, "%s/official/FL2VA/tokenizer", golden_folder());
    assert_ok(vx_tokenizer_open(&t, folder));
    time_of_long_texts_is_bounded(t);
    vx_tokenizer_close(&t);
}

// ---- merges against their definition ----
enum { LETTERS = 3, MOST_MERGES = 40, MOST_LETTERS = 60 };

typedef struct table {
    int32_t left[MOST_MERGES], right[MOST_MERGES]; // ids
    char spelling[LETTERS + MOST_MERGES][MOST_LETTERS];
    int merges;
} table;

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u; // Numerical Recipes
    return *state >> 16;
}

static int32_t id_of(int symbol)
{
    return symbol < LETTERS ? 'a' - 33 + symbol : 256 + symbol - LETTERS;
}

// Random pairs of what is there so far, each new product once.
static void make_table(table *t, uint32_t *random)
{
    t->merges = 0;
    for (int i = 0; i < LETTERS; i++) sprintf(t->spelling[i], "%c", 'a' + i);
    for (int tries = 0; t->merges < MOST_MERGES && tries < 1000; tries++) {
        int symbols = LETTERS + t->merges, a = (int)(next_random(random) % (uint32_t)symbols),
            b = (int)(next_random(random) % (uint32_t)symbols);
        char product[2 * MOST_LETTERS];
        strcpy(product, t->spelling[a]);
        strcat(product, t->spelling[b]);
        if (strlen(product) > 6) continue;
        bool fresh = true;
        for (int i = 0; i < symbols; i++) fresh = fresh && strcmp(t->spelling[i], product) != 0;
        if (!fresh) continue;
        memcpy(t->spelling[symbols], product, strlen(product) + 1);
        t->left[t->merges] = id_of(a);
        t->right[t->merges++] = id_of(b);
    }
}

// text-encoder specification, 1.4: the adjacent pair of lowest rank, leftmost on a tie, until none has a rank.
static int merge_by_definition(const table *t, int32_t *id, int n)
{
    for (;;) {
        int best = t->merges, at = 0;
        for (int i = 0; i + 1 < n; i++)
            for (int r = 0; r < best; r++)
                if (t->left[r] == id[i] && t->right[r] == id[i + 1]) best = r, at = i;
        if (best == t->merges) return n;
        id[at] = 256 + best;
        memmove(id + at + 1, id + at + 2, (size_t)(n - at - 2) * sizeof *id);
        n--;
    }
}

static void merges_follow_their_definition(void **state)
{
    (void)state;
    uint32_t random = 20261;
    for (int k = 0; k < 60; k++) {
        table merges;
        char lines[4096], text[MOST_LETTERS + 1];
        size_t size = 0;
        make_table(&merges, &random);
        for (int i = 0; i < merges.merges; i++) {
            int left = merges.left[i] < 256 ? merges.left[i] - ('a' - 33) : merges.left[i] - 256 + LETTERS;
            int right = merges.right[i] < 256 ? merges.right[i] - ('a' - 33) : merges.right[i] - 256 + LETTERS;
            size += (size_t)sprintf(lines + size, "%s %s\n", merges.spelling[left], merges.spelling[right]);
        }
        vx_tokenizer *t;
        assert_ok(vx_tokenizer_parse(&t, NULL, 0, lines, size, "{}", 2, "random"));
        for (int j = 0; j < 60; j++) {
            int n = 1 + (int)(next_random(&random) % MOST_LETTERS);
            int32_t want[MOST_LETTERS];
            for (int i = 0; i < n; i++) {
                text[i] = (char)('a' + next_random(&random) % LETTERS);
                want[i] = text[i] - 33;
            }
            int count = merge_by_definition(&merges, want, n);
            vx_tokens tokens = { 0 };
            assert_ok(vx_tokenizer_encode(t, text, (size_t)n, &tokens));
            if (tokens.count != count || memcmp(tokens.ids, want, (size_t)count * sizeof *want) != 0)
                fail_msg("table %d, '%.*s': %d tokens, expected %d", k, n, text, (int)tokens.count, count);
            vx_free(tokens.ids);
        }
        vx_tokenizer_close(&t);
    }
}

// ---- what is refused ----
static void text_that_is_not_utf8_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *byte;
        size_t size;
    } cases[] = {
        { "abc\xff", "byte 3", 4 },          // never a byte of UTF-8
        { "\x80", "byte 0", 1 },             // a continuation alone
        { "ab\xc3", "byte 2", 3 },           // cut
        { "\xc0\xaf", "byte 0", 2 },         // overlong
        { "a\xed\xa0\x80", "byte 1", 4 },    // a surrogate
        { "\xf4\x90\x80\x80", "byte 0", 4 }, // above U+10FFFF
        { "<d>x</d>\xfe", "byte 8", 9 },
    };
    vx_tokenizer *t = open_small();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_tokens tokens = { 0 };
        vx_status s = vx_tokenizer_encode(t, cases[i].text, cases[i].size, &tokens);
        assert_int_equal(s.code, VX_ERR_PROMPT);
        assert_non_null(strstr(s.message, cases[i].byte));
        assert_int_equal(tokens.count, 0);
        assert_int_equal(vx_tokenizer_pieces(cases[i].text, cases[i].size, NULL, NULL).code, VX_ERR_PROMPT);
    }
    vx_tokenizer_close(&t);
}

// The 256 byte symbols, as the beginning of a vocabulary.
static size_t put_bytes(char *out)
{
    size_t n = 0;
    int next = 0x100, id = 0;
    for (int printable = 1; printable >= 0; printable--)
        for (int b = 0; b < 256; b++) {
            if (((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174) != printable) continue;
            int c = printable ? b : next++;
            n += (size_t)sprintf(out + n, "%s\"\\u%04x\":%d", id ? "," : "{", c, id);
            id++;
        }
    return n;
}

static void broken_files_are_refused_with_the_place(void **state)
{
    (void)state;
    static const char good[] =
        "{\"added_tokens_decoder\":{\"300\":{\"content\":\"<x>\"}},\"additional_special_tokens\":[\"<y>\"]}";
    static const struct {
        const char *says, *vocab, *merges, *config, *message; // vocab: what follows the byte symbols; NULL = none
    } cases[] = {
        { "merges alone are enough", NULL, "a b\n", good, NULL },
        { "a header and carriage returns pass", NULL, "#version: 0.2\r\na b\r\n# #\r\n", good, NULL },
        { "no merges at all", NULL, "", good, NULL },
        { "vocabulary and merges agree", ",\"ab\":260}", "a b\n", good, NULL },
        { "an added token may be in the vocabulary", ",\"<x>\":300}", "", good, NULL },
        { "a cut end", NULL, "a b\nc d", good, "merges.txt: the last line has no end" },
        { "one symbol", NULL, "a b\nab\n", good, "merges.txt: line 2 is not two symbols" },
        { "three symbols", NULL, "a b c\n", good, "line 1 is not two symbols" },
        { "an empty line", NULL, "a b\n\nc d\n", good, "line 2 is not two symbols" },
        { "a symbol out of nowhere", NULL, "a bc\n", good, "nothing before makes 'bc'" },
        { "the same merge twice", NULL, "a b\na b\n", good, "line 2" },
        { "the same product twice", NULL, "a b\nb c\nab c\na bc\n", good, "line 4: 'abc' is made twice" },
        { "a product without an id", ",\"cd\":256}", "a b\n", good, "'ab' is not in vocab.json" },
        { "a symbol that nothing makes", ",\"ab\":256,\"cd\":257}", "a b\n", good, "no line of merges.txt makes 'cd'" },
        { "an id given twice", ",\"ab\":17}", "a b\n", good, "is taken already" },
        { "a symbol given twice", ",\"a\":300}", "", good, "vocab.json: 'a' is there twice" },
        { "an id that is no number", ",\"ab\":\"256\"}", "a b\n", good, "expected ':' and an id" },
        { "a negative id", ",\"ab\":-1}", "a b\n", good, "expected ':' and an id" },
        { "an id beyond all limits", ",\"ab\":99999999}", "a b\n", good, "expected ':' and an id" },
        { "an id with a fraction", ",\"ab\":256.0}", "a b\n", good, "expected ',' or '}'" },
        { "a cut vocabulary", ",\"ab\":256", "a b\n", good, "the file is cut" },
        { "a cut symbol", ",\"ab", "a b\n", good, "the file is cut" },
        { "more after the end", ",\"ab\":256}]", "a b\n", good, "expected the end of the file" },
        { "an added token with another id", ",\"<x>\":301}", "", good, "is 300 in tokenizer_config.json and 301 in vocab.json" },
        { "an added token on a used id", ",\"ab\":300}", "a b\n", good, "id 300 of '<x>' is taken already" },
        { "no object", NULL, "", "[]", "not a JSON object" },
        { "no JSON", NULL, "", "{", "tokenizer_config.json: line 1" },
        { "trimming tokens", NULL, "", "{\"added_tokens_decoder\":{\"300\":{\"content\":\"<x>\",\"lstrip\":true}}}", "'lstrip'" },
        { "a token without text", NULL, "", "{\"added_tokens_decoder\":{\"300\":{}}}", "is not a string" },
        { "an empty token", NULL, "", "{\"additional_special_tokens\":[\"\"]}", "is empty" },
        { "an id that is a word", NULL, "", "{\"added_tokens_decoder\":{\"x\":{\"content\":\"<x>\"}}}", "'x' is not the id" },
        { "a token twice", NULL, "", "{\"added_tokens_decoder\":{\"300\":{\"content\":\"<x>\"},\"301\":{\"content\":\"<x>\"}}}",
          "is there twice" },
        { "a prefix space", NULL, "", "{\"add_prefix_space\":true}", "add_prefix_space" },
    };
    static char vocab[8192];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t size = put_bytes(vocab);
        if (cases[i].vocab) size += (size_t)sprintf(vocab + size, "%s", cases[i].vocab);
        vx_tokenizer *t;
        vx_status s = vx_tokenizer_parse(&t, cases[i].vocab ? vocab : NULL, size, cases[i].merges, strlen(cases[i].merges),
                                         cases[i].config, strlen(cases[i].config), "folder");
        if (!cases[i].message) {
            if (s.code != VX_OK) fail_msg("%s: %s", cases[i].says, s.message);
        } else if (s.code != VX_ERR_TOKENIZER || !strstr(s.message, cases[i].message) || !strstr(s.message, "folder") || t) {
            fail_msg("%s: VX-%d '%s', expected '%s'", cases[i].says, (int)s.code, s.message, cases[i].message);
        }
        vx_tokenizer_close(&t);
    }
}

static void unnumbered_tokens_come_after_the_highest_id(void **state)
{
    (void)state;
    static const char config[] = "{\"additional_special_tokens\":[\"<y>\",\"<x>\",{\"content\":\"<z>\"},\"<y>\"],"
                                 "\"added_tokens_decoder\":{\"900\":{\"content\":\"<x>\"},\"400\":{\"content\":\"<w>\"}}}";
    vx_tokenizer *t;
    assert_ok(vx_tokenizer_parse(&t, NULL, 0, "a b\n", 4, config, strlen(config), "folder"));
    assert_int_equal(vx_tokenizer_added(t, "<x>"), 900);
    assert_int_equal(vx_tokenizer_added(t, "<w>"), 400);
    assert_int_equal(vx_tokenizer_added(t, "<y>"), 901);
    assert_int_equal(vx_tokenizer_added(t, "<z>"), 902);
    assert_int_equal(vx_tokenizer_vocabulary(t), 903);
    vx_tokenizer_close(&t);
}

static void the_longest_added_token_wins(void **state)
{
    (void)state;
    static const char config[] = "{\"additional_special_tokens\":[\"<a\",\"<ab>\",\"b>\"]}";
    vx_tokenizer *t;
    assert_ok(vx_tokenizer_parse(&t, NULL, 0, "", 0, config, strlen(config), "folder"));
    vx_tokens tokens = { 0 };
    assert_ok(vx_tokenizer_encode(t, "<ab><ab", 7, &tokens));
    static const int32_t want[] = { 257, 256, 'b' - 33 };
    assert_int_equal(tokens.count, 3);
    assert_memory_equal(tokens.ids, want, sizeof want);
    vx_free(tokens.ids);
    vx_tokenizer_close(&t);
}

static void a_missing_folder_is_named(void **state)
{
    (void)state;
    vx_tokenizer *t;
    vx_status s = vx_tokenizer_open(&t, VX_TEST_DATA "/no-such-folder");
    assert_int_equal(s.code, VX_ERR_TOKENIZER);
    assert_non_null(strstr(s.message, "no-such-folder"));
    assert_null(t);
}

static void every_cut_of_the_files_is_refused_or_still_whole(void **state)
{
    (void)state;
    size_t size[3];
    char *text[3] = { read_text(SMALL, "vocab.json", &size[0]), read_text(SMALL, "merges.txt", &size[1]),
                      read_text(SMALL, "tokenizer_config.json", &size[2]) };
    for (int f = 0; f < 3; f++)
        for (size_t cut = 0; cut + 1 < size[f]; cut += cut < 512 || cut + 64 > size[f] ? 1 : 37) { // the last byte is a newline
            size_t n[3] = { size[0], size[1], size[2] };
            n[f] = cut;
            vx_tokenizer *t;
            vx_status s = vx_tokenizer_parse(&t, text[0], n[0], text[1], n[1], text[2], n[2], "small");
            if (s.code != VX_ERR_TOKENIZER) fail_msg("file %d cut at %zu of %zu: VX-%d", f, cut, size[f], (int)s.code);
            vx_tokenizer_close(&t);
        }
    for (int f = 0; f < 3; f++) vx_free(text[f]);
}

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    static const char text[] = "caf\xc3\xa9 e\xcc\x81 <d>aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa</d> \xe6\xb5\xb7";
    for (int persistent = 0; persistent < 2; persistent++) {
        bool hit = true;
        for (int k = 1; hit; k++) {
            vx_tokenizer *t = NULL;
            vx_tokens tokens = { 0 };
            vx_fault_arm(k, persistent);
            vx_status s = vx_tokenizer_open(&t, SMALL);
            if (s.code == VX_OK) s = vx_tokenizer_encode(t, text, sizeof text - 1, &tokens);
            hit = vx_fault_disarm();
            assert_int_equal(s.code, hit ? VX_ERR_MEMORY : VX_OK);
            vx_free(tokens.ids);
            vx_tokenizer_close(&t);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_tokenizer_gives_the_references_ids),
        cmocka_unit_test(ids_follow_from_the_merges_without_a_vocabulary),
        cmocka_unit_test(every_added_token_is_known),
        cmocka_unit_test(released_tokenizer_gives_the_references_ids),
        cmocka_unit_test(a_mebibyte_of_anything_takes_less_than_a_second),
        cmocka_unit_test(merges_follow_their_definition),
        cmocka_unit_test(text_that_is_not_utf8_is_refused),
        cmocka_unit_test(broken_files_are_refused_with_the_place),
        cmocka_unit_test(unnumbered_tokens_come_after_the_highest_id),
        cmocka_unit_test(the_longest_added_token_wins),
        cmocka_unit_test(a_missing_folder_is_named),
        cmocka_unit_test(every_cut_of_the_files_is_refused_or_still_whole),
        cmocka_unit_test(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
