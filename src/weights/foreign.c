#include "weights/foreign.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"

static const char download_again[] =
    "download the file itself (for git: git lfs pull) and compare its size with the published one";
// Configurations of transformers nest about six deep.
enum { MOST_DEPTH = 32 };

const char *vx_short_path(const char *path)
{
    const char *name = vx_path_name(path);
    if (name - path < 2) return path;
    for (const char *p = name - 2; p >= path; p--)
        if (*p == '/') return p + 1;
    return path;
}

vx_status vx_refuse_pickle_name(const char *path)
{
    static const char *const endings[] = { ".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle" };
    const char *name = vx_path_name(path);
    size_t size = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t ending = strlen(endings[i]);
        if (size >= ending && strcasecmp(name + size - ending, endings[i]) == 0)
            return vx_fail_remedy(VX_ERR_FILE_PICKLE, "use a .safetensors file of the same model",
                                  "%s: files ending in %s are pickled, and unpickling runs code", vx_short_path(path),
                                  endings[i]);
    }
    return vx_ok();
}

static bool starts(const char *text, size_t size, const char *with)
{
    size_t want = strlen(with);
    return size >= want && strncasecmp(text, with, want) == 0;
}

// What a server answers in place of a file.
static bool is_page(const char *text, size_t size)
{
    static const char byte_order_mark[] = "\xEF\xBB\xBF";
    if (starts(text, size, byte_order_mark)) text += 3, size -= 3;
    while (size > 0 && isspace((unsigned char)*text)) text++, size--;
    static const char *const openings[] = {
        "<!doctype",  "<html",        "<head",           "<?xml",           "<error",
        "{\"error\"", "{\"message\"", "Entry not found", "Access to model", "Invalid username"
    };
    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++)
        if (starts(text, size, openings[i])) return true;
    return false;
}

vx_status vx_refuse_foreign(const void *bytes, size_t size, const char *path)
{
    const char *text = bytes;
    const unsigned char *b = bytes;
    const char *file = vx_short_path(path);
    if (starts(text, size, "version https://git-lfs"))
        return vx_fail_remedy(VX_ERR_FILE_POINTER, download_again, "%s is a Git LFS pointer of %zu bytes, not the file", file,
                              size);
    if (is_page(text, size))
        return vx_fail_remedy(VX_ERR_FILE_POINTER, download_again, "%s holds a web page or a server's answer, not the file",
                              file);
    if (size >= 4 && memcmp(b, "PK\3\4", 4) == 0)
        return vx_fail_remedy(VX_ERR_FILE_PICKLE, "use a .safetensors file of the same model",
                              "%s is a zip archive (PyTorch's pickled format), not safetensors", file);
    // Protocols 2 to 5; the byte after the protocol is an opcode, never 0.
    if (size >= 3 && b[0] == 0x80 && b[1] >= 2 && b[1] <= 5 && b[2] != 0)
        return vx_fail_remedy(VX_ERR_FILE_PICKLE, "use a .safetensors file of the same model",
                              "%s is a pickle of protocol %d, not safetensors; unpickling runs code", file, b[1]);
    if (size >= 4 && memcmp(b, "GGUF", 4) == 0)
        return vx_fail(VX_ERR_FILE_FORMAT, "%s is a GGUF file, expected safetensors", file);
    return vx_ok();
}

vx_status vx_refuse_dangling(const char *path, vx_code code)
{
    struct stat link, target;
    if (lstat(path, &link) != 0 || !S_ISLNK(link.st_mode) || stat(path, &target) == 0) return vx_ok();
    char name[256];
    ssize_t size = readlink(path, name, sizeof name - 1);
    name[size > 0 ? size : 0] = 0;
    return vx_fail_remedy(code, "download the file that the link stands for", "%s is a link to '%s', which leads nowhere", path,
                          name);
}

vx_status vx_json_of_model(json_t **out, const char *path, size_t limit, vx_code code)
{
    *out = NULL;
    VX_TRY(vx_refuse_dangling(path, VX_ERR_MODEL_OPEN));
    char *text;
    size_t size;
    VX_TRY(vx_file_read(&text, &size, path, limit, VX_ERR_MODEL_OPEN));
    vx_status s = vx_refuse_foreign(text, size, path);
    if (s.code == VX_OK) s = vx_json_parse(out, text, size, MOST_DEPTH, code, vx_short_path(path));
    vx_free(text);
    if (s.code == VX_OK && !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return vx_fail(code, "%s: expected a JSON object", vx_short_path(path));
    }
    return s;
}
