// The files that a command names, against each other: one name for two outputs, or an output over an input, loses work; an
// output that cannot be written is known before the work. The library looks again when it writes.
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

static vx_status none(void)
{
    return (vx_status){ 0 };
}
static bool given(const named_file *f)
{
    return f->path && f->path[0];
}

const char *input_path(const char *path)
{
    return path && !strcmp(path, "-") ? "/dev/stdin" : path;
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// The folder that `path` would stand in; false if that is not there.
static bool stat_folder(const char *path, struct stat *found)
{
    char folder[PATH_MAX];
    size_t size = (size_t)(last_name(path) - path);
    if (size >= sizeof folder) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(folder, path, size);
    folder[size] = 0;
    return stat(size ? folder : ".", found) == 0;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    if (!strcmp(a, b)) return true;
    if (stat(a, &x) == 0 && stat(b, &y) == 0) return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    return !strcmp(last_name(a), last_name(b)) && stat_folder(a, &x) && stat_folder(b, &y) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

// "save_latents" as people type it.
static const char *flag_of(char out[32], const char *field)
{
    snprintf(out, 32, "--%s", field);
    for (char *p = out; *p; p++)
        if (*p == '_') *p = '-';
    return out;
}

static vx_status check_output(const named_file *f, bool replace)
{
    struct stat found;
    char flag[32];
    if (!strcmp(f->path, "-"))
        return usage_error(VX_ERR_UNAVAILABLE, f->field,
                           "%s -: an output is renamed when complete, which standard output cannot be", flag_of(flag, f->field));
    bool there = lstat(f->path, &found) == 0;
    if (!there && errno != ENOENT)
        return usage_error(VX_ERR_OUTPUT, f->field, "'%s' cannot be written: %s", f->path, strerror(errno));
    if (there && !replace) {
        vx_status s = usage_error(VX_ERR_OUTPUT_EXISTS, f->field, "'%s' exists already", f->path);
        snprintf(s.remedy, sizeof s.remedy, "use another name, or -y to replace it");
        return s;
    }
    if (there && S_ISDIR(found.st_mode)) return usage_error(VX_ERR_OUTPUT, f->field, "'%s' is a folder", f->path);
    if (!stat_folder(f->path, &found))
        return usage_error(VX_ERR_OUTPUT, f->field, "'%s' cannot be written: its folder: %s", f->path, strerror(errno));
    return none();
}

vx_status check_files(const named_file *files, int count, bool replace)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) {
            const named_file *a = &files[j], *b = &files[i];
            if (!given(a) || !given(b) || (!a->written && !b->written) || !same_file(a->path, b->path)) continue;
            char one[32], other[32];
            return usage_error(VX_ERR_CONFLICT, b->field, "%s and %s name the same file '%s'", flag_of(one, a->field),
                               flag_of(other, b->field), b->path);
        }
    for (int i = 0; i < count; i++) {
        if (!given(&files[i]) || !files[i].written) continue;
        vx_status s = check_output(&files[i], replace);
        if (s.code) return s;
    }
    return none();
}

// The word for a checkpoint's part or an adapter, by the file's header; NULL for anything else.
static const char *model_part(vx_context *context, const char *path, json_t **report)
{
    static const char *const kinds[] = { "transformer", "text_encoder", "vision_tower", "video_vae", "audio_vae", "adapter" };
    char *json = NULL;
    if (vx_inspect(context, path, &json).code) return NULL;
    *report = json_loads(json, 0, NULL);
    vx_text_free(json);
    const char *kind = json_string_value(json_object_get(*report, "kind"));
    for (size_t i = 0; kind && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kind, kinds[i])) return kinds[i];
    return NULL;
}

vx_status spare_models(vx_context *context, const named_file *files, int count)
{
    for (int i = 0; i < count; i++) {
        struct stat found;
        if (!given(&files[i]) || !files[i].written || stat(files[i].path, &found) != 0 || !S_ISREG(found.st_mode)) continue;
        json_t *report = NULL;
        const char *part = model_part(context, files[i].path, &report);
        json_decref(report);
        if (!part) continue;
        vx_status s = usage_error(VX_ERR_CONFLICT, files[i].field, "'%s' holds a model's %s", files[i].path, part);
        snprintf(s.remedy, sizeof s.remedy, "use another name: checkpoints and adapters are never written over");
        return s;
    }
    return none();
}
