#include "device/cuda/cudnn_graph.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static const char NAME[] = "libcudnn.so.9", PART[] = "libcudnn_graph.so.9";

// ---- which library ----
// The version as a part of the library spells it, 91900 for 9.19.0; 0 if it does not say. Asking the library itself would load it.
static long version_in_file(const char *folder)
{
    static const char mark[] = "cudnn_version_";
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, PART) >= (int)sizeof path) return 0;
    FILE *f = fopen(path, "rb");
    if (!f) return 0;
    enum { PIECE = 1 << 16, KEEP = 64 };
    char *text = vx_alloc(PIECE + KEEP + 1);
    long version = 0;
    for (size_t kept = 0, got; text && !version && (got = fread(text + kept, 1, PIECE, f)) > 0;) {
        const size_t have = kept + got;
        text[have] = '\0';
        const char *at = memmem(text, have, mark, sizeof mark - 1);
        int major, minor, patch;
        if (at && at + KEEP / 2 < text + have && sscanf(at + sizeof mark - 1, "%d_%d_%d", &major, &minor, &patch) == 3)
            version = major * 10000L + minor * 100L + patch;
        kept = have < KEEP ? have : KEEP;
        memmove(text, text + have - kept, kept);
    }
    vx_free(text);
    (void)fclose(f);
    return version;
}

// The folder of VORTEX_LIBRARY_PATH with the newest library; empty if none has one.
static void newest_folder(char best[PATH_MAX], long *best_version)
{
    best[0] = '\0';
    *best_version = 0;
    const char *list = getenv("VORTEX_LIBRARY_PATH");
    while (list && *list) {
        const size_t n = strcspn(list, ":");
        char folder[PATH_MAX], path[PATH_MAX];
        if (n > 0 && n < sizeof folder && snprintf(folder, sizeof folder, "%.*s", (int)n, list) > 0 &&
            snprintf(path, sizeof path, "%s/%s", folder, NAME) < (int)sizeof path) {
            FILE *f = fopen(path, "rb");
            const long version = f ? version_in_file(folder) : 0;
            if (f && (!best[0] || version > *best_version)) {
                memcpy(best, folder, n + 1);
                *best_version = version;
            }
            if (f) (void)fclose(f);
        }
        list += n + (list[n] == ':');
    }
}

static vx_status find_functions(vx_dnn_library *l)
{
    const struct {
        const char *name;
        void *to;
    } wanted[] = {
        { "cudnnCreate", &l->create },
        { "cudnnDestroy", &l->destroy },
        { "cudnnSetStream", &l->set_stream },
        { "cudnnGetVersion", &l->version },
        { "cudnnGetErrorString", &l->error },
        { "cudnnGetLastErrorString", &l->last_error },
        { "cudnnBackendCreateDescriptor", &l->make },
        { "cudnnBackendDestroyDescriptor", &l->unmake },
        { "cudnnBackendFinalize", &l->finish },
        { "cudnnBackendSetAttribute", &l->set },
        { "cudnnBackendGetAttribute", &l->get },
        { "cudnnBackendExecute", &l->execute },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *const found = dlsym(l->loaded, wanted[i].name);
        if (!found) return vx_fail(VX_ERR_UNSUPPORTED, "%s has no function %s", NAME, wanted[i].name);
        memcpy(wanted[i].to, &found, sizeof found);
    }
    return vx_ok();
}

static void name_library(vx_dnn_library *l)
{
    const long v = (long)l->version();
    Dl_info info;
    void *address;
    memcpy(&address, &l->version, sizeof address);
    const char *path = dladdr(address, &info) && info.dli_fname ? info.dli_fname : NAME;
    snprintf(l->named, sizeof l->named, "%ld.%ld.%ld (%s)", v / 10000, v / 100 % 100, v % 100, path);
}

vx_status vx_dnn_library_open(vx_dnn_library *out)
{
    *out = (vx_dnn_library){ 0 };
    char folder[PATH_MAX], path[PATH_MAX];
    long version;
    newest_folder(folder, &version);
    // The default search is asked where its file lies without loading the parts: the library itself is a small shell.
    out->loaded = dlopen(NAME, RTLD_NOW | RTLD_LOCAL);
    if (out->loaded && folder[0]) {
        Dl_info info;
        void *const address = dlsym(out->loaded, "cudnnGetVersion");
        char found[PATH_MAX];
        long here = 0;
        if (address && dladdr(address, &info) && info.dli_fname && strlen(info.dli_fname) < sizeof found) {
            strcpy(found, info.dli_fname);
            char *const slash = strrchr(found, '/');
            if (slash) *slash = '\0';
            here = slash ? version_in_file(found) : 0;
        }
        if (here <= version) {
            (void)dlclose(out->loaded);
            out->loaded = NULL;
        }
    }
    if (!out->loaded && folder[0]) {
        if (snprintf(path, sizeof path, "%s/%s", folder, NAME) < (int)sizeof path)
            out->loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (!out->loaded) return vx_fail(VX_ERR_UNSUPPORTED, "no %s was found", NAME);
    const vx_status s = find_functions(out);
    if (s.code == VX_OK) name_library(out);
    return s;
}

void vx_dnn_reason(const vx_dnn_library *library, vx_dnn_status status, char *out, size_t size)
{
    enum { LONGEST = 256 };
    char last[LONGEST] = "";
    library->last_error(last, sizeof last);
    last[strcspn(last, "\n")] = '\0';
    snprintf(out, size, "%s%s%s", library->error(status), last[0] ? ": " : "", last);
}

// ---- the builder ----
static bool went(vx_dnn_builder *b, vx_dnn_status status, const char *what)
{
    if (b->status == VX_DNN_STATUS_SUCCESS && status != VX_DNN_STATUS_SUCCESS) {
        b->status = status;
        b->failed = what;
    }
    return status == VX_DNN_STATUS_SUCCESS;
}

vx_dnn_descriptor vx_dnn_make(vx_dnn_builder *b, int type, const char *what)
{
    if (b->status != VX_DNN_STATUS_SUCCESS) return NULL;
    if (b->count == (int)(sizeof b->made / sizeof b->made[0])) {
        (void)went(b, VX_DNN_STATUS_NOT_SUPPORTED, what);
        return NULL;
    }
    vx_dnn_descriptor d = NULL;
    if (!went(b, b->library->make(type, &d), what)) return NULL;
    b->made[b->count++] = d;
    return d;
}

void vx_dnn_set(vx_dnn_builder *b, vx_dnn_descriptor d, int name, int type, int64_t count, const void *values)
{
    if (b->status == VX_DNN_STATUS_SUCCESS) (void)went(b, b->library->set(d, name, type, count, values), "an attribute");
}

void vx_dnn_set_descriptor(vx_dnn_builder *b, vx_dnn_descriptor d, int name, vx_dnn_descriptor value)
{
    vx_dnn_set(b, d, name, VX_DNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void vx_dnn_finish(vx_dnn_builder *b, vx_dnn_descriptor d)
{
    if (b->status == VX_DNN_STATUS_SUCCESS) (void)went(b, b->library->finish(d), "a descriptor");
}

void vx_dnn_clear(vx_dnn_builder *b)
{
    while (b->count > 0) (void)b->library->unmake(b->made[--b->count]);
}

vx_dnn_descriptor vx_dnn_tensor(vx_dnn_builder *b, int64_t id, int type, const int64_t shape[4], const int64_t stride[4],
                                vx_dnn_kind kind)
{
    const int64_t alignment = kind == VX_DNN_BY_VALUE ? 4 : 16;
    const bool yes = true;
    vx_dnn_descriptor d = vx_dnn_make(b, VX_DNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor");
    vx_dnn_set(b, d, VX_DNN_ATTR_TENSOR_UNIQUE_ID, VX_DNN_TYPE_INT64, 1, &id);
    vx_dnn_set(b, d, VX_DNN_ATTR_TENSOR_DATA_TYPE, VX_DNN_TYPE_DATA_TYPE, 1, &type);
    vx_dnn_set(b, d, VX_DNN_ATTR_TENSOR_BYTE_ALIGNMENT, VX_DNN_TYPE_INT64, 1, &alignment);
    vx_dnn_set(b, d, VX_DNN_ATTR_TENSOR_DIMENSIONS, VX_DNN_TYPE_INT64, 4, shape);
    vx_dnn_set(b, d, VX_DNN_ATTR_TENSOR_STRIDES, VX_DNN_TYPE_INT64, 4, stride);
    if (kind == VX_DNN_VIRTUAL) vx_dnn_set(b, d, VX_DNN_ATTR_TENSOR_IS_VIRTUAL, VX_DNN_TYPE_BOOLEAN, 1, &yes);
    if (kind == VX_DNN_BY_VALUE) vx_dnn_set(b, d, VX_DNN_ATTR_TENSOR_IS_BY_VALUE, VX_DNN_TYPE_BOOLEAN, 1, &yes);
    vx_dnn_finish(b, d);
    return d;
}

vx_dnn_descriptor vx_dnn_matmul(vx_dnn_builder *b, vx_dnn_descriptor out, vx_dnn_descriptor x, vx_dnn_descriptor y)
{
    const int f32 = VX_DNN_DATA_FLOAT;
    vx_dnn_descriptor how = vx_dnn_make(b, VX_DNN_BACKEND_MATMUL_DESCRIPTOR, "a product");
    vx_dnn_set(b, how, VX_DNN_ATTR_MATMUL_COMP_TYPE, VX_DNN_TYPE_DATA_TYPE, 1, &f32);
    vx_dnn_finish(b, how);
    vx_dnn_descriptor d = vx_dnn_make(b, VX_DNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "a product");
    vx_dnn_set_descriptor(b, d, VX_DNN_ATTR_OPERATION_MATMUL_ADESC, x);
    vx_dnn_set_descriptor(b, d, VX_DNN_ATTR_OPERATION_MATMUL_BDESC, y);
    vx_dnn_set_descriptor(b, d, VX_DNN_ATTR_OPERATION_MATMUL_CDESC, out);
    vx_dnn_set_descriptor(b, d, VX_DNN_ATTR_OPERATION_MATMUL_DESC, how);
    vx_dnn_finish(b, d);
    return d;
}

vx_dnn_descriptor vx_dnn_pointwise(vx_dnn_builder *b, int mode, vx_dnn_descriptor out, vx_dnn_descriptor x, vx_dnn_descriptor y)
{
    const int f32 = VX_DNN_DATA_FLOAT;
    vx_dnn_descriptor how = vx_dnn_make(b, VX_DNN_BACKEND_POINTWISE_DESCRIPTOR, "a pointwise step");
    vx_dnn_set(b, how, VX_DNN_ATTR_POINTWISE_MODE, VX_DNN_TYPE_POINTWISE_MODE, 1, &mode);
    vx_dnn_set(b, how, VX_DNN_ATTR_POINTWISE_MATH_PREC, VX_DNN_TYPE_DATA_TYPE, 1, &f32);
    vx_dnn_finish(b, how);
    vx_dnn_descriptor d = vx_dnn_make(b, VX_DNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "a pointwise step");
    vx_dnn_set_descriptor(b, d, VX_DNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    vx_dnn_set_descriptor(b, d, VX_DNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (y) vx_dnn_set_descriptor(b, d, VX_DNN_ATTR_OPERATION_POINTWISE_BDESC, y);
    vx_dnn_set_descriptor(b, d, VX_DNN_ATTR_OPERATION_POINTWISE_YDESC, out);
    vx_dnn_finish(b, d);
    return d;
}

vx_dnn_descriptor vx_dnn_reduce(vx_dnn_builder *b, int op, vx_dnn_descriptor out, vx_dnn_descriptor x)
{
    const int f32 = VX_DNN_DATA_FLOAT;
    vx_dnn_descriptor how = vx_dnn_make(b, VX_DNN_BACKEND_REDUCTION_DESCRIPTOR, "a reduction");
    vx_dnn_set(b, how, VX_DNN_ATTR_REDUCTION_OPERATOR, VX_DNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
    vx_dnn_set(b, how, VX_DNN_ATTR_REDUCTION_COMP_TYPE, VX_DNN_TYPE_DATA_TYPE, 1, &f32);
    vx_dnn_finish(b, how);
    vx_dnn_descriptor d = vx_dnn_make(b, VX_DNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "a reduction");
    vx_dnn_set_descriptor(b, d, VX_DNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    vx_dnn_set_descriptor(b, d, VX_DNN_ATTR_OPERATION_REDUCTION_YDESC, out);
    vx_dnn_set_descriptor(b, d, VX_DNN_ATTR_OPERATION_REDUCTION_DESC, how);
    vx_dnn_finish(b, d);
    return d;
}

// ---- plans ----
static bool same_bits_every_time(const vx_dnn_library *l, vx_dnn_descriptor config)
{
    vx_dnn_descriptor engine = NULL;
    if (l->make(VX_DNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != VX_DNN_STATUS_SUCCESS) return false;
    enum { NOTES = 32 };
    int notes[NOTES];
    int64_t count = 0;
    bool same = l->get(config, VX_DNN_ATTR_ENGINECFG_ENGINE, VX_DNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine) ==
                    VX_DNN_STATUS_SUCCESS &&
                l->get(engine, VX_DNN_ATTR_ENGINE_NUMERICAL_NOTE, VX_DNN_TYPE_NUMERICAL_NOTE, NOTES, &count, notes) ==
                    VX_DNN_STATUS_SUCCESS;
    for (int64_t i = 0; same && i < count; i++) same = notes[i] != VX_DNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    (void)l->unmake(engine);
    return same;
}

static vx_dnn_descriptor build(const vx_dnn_library *l, vx_dnn_descriptor config)
{
    vx_dnn_descriptor plan = NULL;
    if (l->make(VX_DNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) != VX_DNN_STATUS_SUCCESS) return NULL;
    if (l->set(plan, VX_DNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, VX_DNN_TYPE_BACKEND_DESCRIPTOR, 1, &config) ==
            VX_DNN_STATUS_SUCCESS &&
        l->finish(plan) == VX_DNN_STATUS_SUCCESS)
        return plan;
    (void)l->unmake(plan);
    return NULL;
}

vx_dnn_descriptor vx_dnn_plan(vx_dnn_builder *b, const vx_dnn_descriptor *operations, int count)
{
    enum { CONFIGS = 16 };
    const int mode = VX_DNN_HEUR_MODE_A;
    vx_dnn_descriptor graph = vx_dnn_make(b, VX_DNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "the graph");
    vx_dnn_set(b, graph, VX_DNN_ATTR_OPERATIONGRAPH_HANDLE, VX_DNN_TYPE_HANDLE, 1, &b->handle);
    vx_dnn_set(b, graph, VX_DNN_ATTR_OPERATIONGRAPH_OPS, VX_DNN_TYPE_BACKEND_DESCRIPTOR, count, operations);
    vx_dnn_finish(b, graph);
    vx_dnn_descriptor heuristics = vx_dnn_make(b, VX_DNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "the choice of an engine");
    vx_dnn_set_descriptor(b, heuristics, VX_DNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    vx_dnn_set(b, heuristics, VX_DNN_ATTR_ENGINEHEUR_MODE, VX_DNN_TYPE_HEUR_MODE, 1, &mode);
    vx_dnn_finish(b, heuristics);
    vx_dnn_descriptor configs[CONFIGS], plan = NULL;
    for (int i = 0; i < CONFIGS; i++) configs[i] = vx_dnn_make(b, VX_DNN_BACKEND_ENGINECFG_DESCRIPTOR, "an engine");
    if (b->status != VX_DNN_STATUS_SUCCESS) return NULL;
    int64_t found = 0;
    (void)went(
        b, b->library->get(heuristics, VX_DNN_ATTR_ENGINEHEUR_RESULTS, VX_DNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS, &found, configs),
        "the choice of an engine");
    for (int64_t i = 0; b->status == VX_DNN_STATUS_SUCCESS && !plan && i < found && i < CONFIGS; i++)
        if (same_bits_every_time(b->library, configs[i])) plan = build(b->library, configs[i]);
    if (!plan) (void)went(b, VX_DNN_STATUS_NOT_SUPPORTED, "an engine for this shape");
    return plan;
}
