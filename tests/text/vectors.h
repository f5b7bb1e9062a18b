// Strings with the pre-tokens and ids that the reference gives, from a JSON file (tools/make_tokenizer_vectors.py).
#ifndef VX_TEST_TEXT_VECTORS_H
#define VX_TEST_TEXT_VECTORS_H

#include "testing.h"

#include <jansson.h>

#include "base/file.h"
#include "base/str.h"
#include "text/tokenizer.h"

static inline json_t *load_json(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!root) fail_msg("%s: line %d: %s", path, error.line, error.text);
    return root;
}

static inline char *read_text(const char *folder, const char *name, size_t *size)
{
    char *path = vx_path_join(folder, name), *text;
    assert_ok(vx_file_read(&text, size, path, 64 << 20, VX_ERR_TOKENIZER));
    free(path);
    return text;
}

// The released tokenizer's vectors, beside the golden data or in the folder that it was prepared from. Says why when there are none.
static inline bool golden_tokenizer(char path[512])
{
    static const char *const variables[] = { "VORTEX_GOLDEN_DATA", "VORTEX_GOLDEN" };
    for (int i = 0; i < 2; i++) {
        const char *folder = getenv(variables[i]);
        if (!folder) continue;
        snprintf(path, 512, "%s/tokenizer.json", folder);
        if (vx_file_exists(path)) return true;
    }
    print_message("skipped: no tokenizer.json in VORTEX_GOLDEN_DATA or VORTEX_GOLDEN\n");
    return false;
}

static inline void assert_ids(const char *name, const vx_tokens *got, const json_t *want)
{
    for (int64_t i = 0; i < got->count && i < (int64_t)json_array_size(want); i++)
        if (got->ids[i] != json_integer_value(json_array_get(want, (size_t)i)))
            fail_msg("'%s': token %d is %d, expected %d", name, (int)i, got->ids[i],
                     (int)json_integer_value(json_array_get(want, (size_t)i)));
    if (got->count != (int64_t)json_array_size(want))
        fail_msg("'%s': %d tokens, expected %d", name, (int)got->count, (int)json_array_size(want));
}

#endif
