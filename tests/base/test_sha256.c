#include "testing.h"

#include "base/sha256.h"

// The examples of FIPS 180-4's companion (NIST "SHA-256 examples") and of NIST's CAVP short messages (lengths 0, 8, 24),
// then lengths around the padding's edges, from Python's hashlib.sha256(b"a" * n).
static const struct {
    const char *text;
    const char *want;
} vectors[] = {
    { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
    { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
    { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
    { "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
      "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
    { "\xd3", "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1" },
    { "\xb4\x19\x0e", "dff2e73091f6c05e528896c4c831b9448653dc2ff043528f6769437bc7b975c2" },
};

static const struct {
    size_t n;
    const char *want;
} lengths[] = {
    { 54, "a3f01b6939256127582ac8ae9fb47a382a244680806a3f613a118851c1ca1d47" },
    { 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318" },
    { 56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a" },
    { 57, "f13b2d724659eb3bf47f2dd6af1accc87b81f09f59f2b75e5c0bed6589dfe8c6" },
    { 63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34" },
    { 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb" },
    { 65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0" },
    { 119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb" },
    { 120, "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c" },
    { 128, "6836cf13bac400e9105071cd6af47084dfacad4e5e302c94bfed24e013afb73e" },
};

static void matches_the_standard(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        vx_sha256 s;
        char hex[65];
        vx_sha256_init(&s);
        vx_sha256_put(&s, vectors[i].text, strlen(vectors[i].text));
        vx_sha256_hex(&s, hex);
        assert_string_equal(hex, vectors[i].want);
    }
}

static void pads_every_length(void **state)
{
    (void)state;
    char text[128];
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        vx_sha256 s;
        char hex[65];
        vx_sha256_init(&s);
        vx_sha256_put(&s, text, lengths[i].n);
        vx_sha256_hex(&s, hex);
        assert_string_equal(hex, lengths[i].want);
    }
}

static void does_not_care_how_bytes_arrive(void **state)
{
    (void)state;
    // FIPS 180-4's example of one million times "a".
    static char text[1000000];
    memset(text, 'a', sizeof text);
    static const size_t pieces[] = { 1, 3, 63, 64, 65, 1000, sizeof text };
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        vx_sha256 s;
        char hex[65];
        vx_sha256_init(&s);
        vx_sha256_put(&s, NULL, 0);
        for (size_t at = 0; at < sizeof text; at += pieces[i])
            vx_sha256_put(&s, text + at, sizeof text - at < pieces[i] ? sizeof text - at : pieces[i]);
        vx_sha256_hex(&s, hex);
        assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_the_standard),
        cmocka_unit_test(pads_every_length),
        cmocka_unit_test(does_not_care_how_bytes_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
