// cuBLASLt, loaded at run time. A product's shape, formats, strides and alignment decide its algorithm once; it is kept as long as
// the device lives, so that equal calls give equal bits. Algorithms that reduce over k in the output's format or in an order of
// their own are not taken.
#include "base/alloc.h"
#include "device/cuda/cuda.h"
#include <cublasLt.h>
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROPOSALS = 8, MOST_PROPOSALS = 32, ROUNDS = 2, TIMED_MS = 60 };

#define FUNCTIONS(X)                        \
    X(cublasLtGetVersion)                   \
    X(cublasLtCreate)                       \
    X(cublasLtDestroy)                      \
    X(cublasLtMatmul)                       \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutDestroy)          \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatmulAlgoGetHeuristic)       \
    X(cublasLtMatmulAlgoConfigGetAttribute)

struct functions {
#define MEMBER(name) __typeof__(&name) name;
    FUNCTIONS(MEMBER)
#undef MEMBER
};

// What decides an algorithm. Compared as bytes.
struct shape {
    int64_t m, n, k, out_stride, x_stride, w_stride;
    int32_t out_type, in_type, bias;
    int32_t out_align, x_align, w_align; // bytes, at most 16: what the widest copies need
};

struct choice {
    int32_t id, split;
    uint32_t tile, stages, swizzle, custom, reduction;
    uint16_t inner, cluster;
};

struct plan {
    struct shape shape;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t w, x, out;
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    char text[4096];
};

struct vx_cuda_blas {
    void *library;
    struct functions call;
    cublasLtHandle_t handle;
    char version[96];
    struct plan *plan;
    int plans, room, candidates;
};

// ---- the library ----
static const char *const names[] = { "libcublasLt.so.13", "libcublasLt.so.12" };

struct library {
    void *loaded;
    struct functions call;
    size_t version; // 130100 for 13.1.0
};

static bool find_functions(struct library *l)
{
#define LOOK(name)                                     \
    do {                                               \
        void *symbol = dlsym(l->loaded, #name);        \
        if (!symbol) return false;                     \
        memcpy(&l->call.name, &symbol, sizeof symbol); \
    } while (0);
    FUNCTIONS(LOOK)
#undef LOOK
    return true;
}

// Opens the library at `path` and keeps it in place of an older one.
static void consider(struct library *best, const char *path)
{
    struct library l = { .loaded = dlopen(path, RTLD_LAZY | RTLD_LOCAL) };
    if (!l.loaded) return;
    if (find_functions(&l)) l.version = l.call.cublasLtGetVersion();
    if (l.version <= best->version) {
        (void)dlclose(l.loaded);
        return;
    }
    if (best->loaded) (void)dlclose(best->loaded);
    *best = l;
}

static void consider_folder(struct library *best, const char *folder, size_t length)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (length > 0 && snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, names[i]) < (int)sizeof path)
            consider(best, path);
    }
}

// The newest among the folders of VORTEX_LIBRARY_PATH, the default search and where CUDA installs itself.
static struct library newest(char *version, size_t size)
{
    static const char usual[] = "/usr/local/cuda/lib64";
    struct library best = { 0 };
    for (const char *list = getenv("VORTEX_LIBRARY_PATH"); list && *list;) {
        const size_t n = strcspn(list, ":");
        consider_folder(&best, list, n);
        list += n + (list[n] == ':');
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) consider(&best, names[i]);
    consider_folder(&best, usual, sizeof usual - 1);
    if (!best.loaded) return best;
    struct link_map *map = NULL;
    const bool known = dlinfo(best.loaded, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name;
    snprintf(version, size, "%zu.%zu.%zu (%s)", best.version / 10000, best.version / 100 % 100, best.version % 100,
             known ? map->l_name : "libcublasLt");
    return best;
}

bool vx_cuda_blas_find(char *out, size_t size)
{
    const struct library found = newest(out, size);
    if (!found.loaded) return false;
    (void)dlclose(found.loaded);
    return true;
}

static vx_status blas_status(cublasStatus_t error, const char *what)
{
    if (error == CUBLAS_STATUS_SUCCESS) return vx_ok();
    if (error == CUBLAS_STATUS_ALLOC_FAILED) return vx_cuda_no_memory(what, "cuBLASLt found no memory");
    if (error == CUBLAS_STATUS_NOT_SUPPORTED) return vx_fail(VX_ERR_UNSUPPORTED, "%s: cuBLASLt has no such product", what);
    return vx_fail(VX_ERR_DEVICE, "%s: cuBLASLt answers status %d", what, (int)error);
}

vx_status vx_cuda_blas_open(vx_cuda *cuda)
{
    vx_cuda_blas *blas = vx_alloc_array(1, sizeof *blas);
    VX_NEED_MEMORY(blas, "the CUDA device");
    cuda->blas = blas;
    const struct library found = newest(blas->version, sizeof blas->version);
    blas->library = found.loaded;
    blas->call = found.call;
    if (!blas->library)
        return vx_fail_remedy(VX_ERR_DEVICE_NONE,
                              "install CUDA's cuBLAS, or name the folder of libcublasLt.so.13 in VORTEX_LIBRARY_PATH",
                              "libcublasLt.so.13 or .12, which multiplies matrices on the CUDA device, was not found");
    return blas_status(blas->call.cublasLtCreate(&blas->handle), "cuBLASLt");
}

static void free_plan(const struct functions *call, struct plan *p)
{
    if (p->product) (void)call->cublasLtMatmulDescDestroy(p->product);
    if (p->w) (void)call->cublasLtMatrixLayoutDestroy(p->w);
    if (p->x) (void)call->cublasLtMatrixLayoutDestroy(p->x);
    if (p->out) (void)call->cublasLtMatrixLayoutDestroy(p->out);
}

static void forget_plans(vx_cuda_blas *blas)
{
    for (int i = 0; i < blas->plans; i++) free_plan(&blas->call, &blas->plan[i]);
    blas->plans = 0;
}

void vx_cuda_blas_close(vx_cuda *cuda)
{
    vx_cuda_blas *blas = cuda->blas;
    if (!blas) return;
    forget_plans(blas);
    if (blas->handle) (void)blas->call.cublasLtDestroy(blas->handle);
    if (blas->library) dlclose(blas->library);
    vx_free(blas->plan);
    vx_free(blas);
    cuda->blas = NULL;
}

const char *vx_cuda_blas_version(const vx_cuda *cuda)
{
    return cuda->blas->version;
}

void vx_cuda_blas_tune(vx_device *dev, int candidates)
{
    vx_cuda_blas *blas = vx_cuda_of(dev)->blas;
    blas->candidates = candidates < MOST_PROPOSALS ? candidates : MOST_PROPOSALS;
    forget_plans(blas);
}

const char *vx_cuda_product_choice(const vx_device *dev, int i)
{
    if (strcmp(dev->name, "cuda") != 0) return NULL;
    const vx_cuda_blas *blas = vx_cuda_of_const(dev)->blas;
    return i < blas->plans ? blas->plan[i].text : NULL;
}

// ---- the choice ----
static int32_t alignment(const void *p, int64_t stride, vx_dtype type)
{
    const uintptr_t bits = (uintptr_t)p | (uintptr_t)stride * (uintptr_t)(vx_dtype_bits(type) / 8) | 16;
    return (int32_t)(bits & ~(bits - 1));
}

static struct shape shape_of(const vx_cuda_product *p)
{
    struct shape s;
    memset(&s, 0, sizeof s);
    s.m = p->m, s.n = p->n, s.k = p->k;
    s.out_stride = p->out_stride, s.x_stride = p->x_stride, s.w_stride = p->w_stride;
    s.out_type = (int32_t)p->out_type, s.in_type = (int32_t)p->in_type, s.bias = p->bias != NULL;
    s.out_align = alignment(p->out, p->out_stride, p->out_type);
    s.x_align = alignment(p->x, p->x_stride, p->in_type);
    s.w_align = alignment(p->w, p->w_stride, p->in_type);
    return s;
}

static cudaDataType_t type_of(int32_t type)
{
    return type == VX_F32 ? CUDA_R_32F : type == VX_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

// In cuBLAS's columns: out^T [n,m] = (w^T)^T [n,k] x^T [k,m], each column a row of ours.
static vx_status describe(const struct functions *call, struct plan *p)
{
    const struct shape *s = &p->shape;
    // Pedantic: f32 products without TF32, whatever the environment says.
    const cublasComputeType_t compute = s->in_type == VX_F32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
    const cudaDataType_t in = type_of(s->in_type), out = type_of(s->out_type);
    const cublasOperation_t turn = CUBLAS_OP_T;
    const uint64_t m = (uint64_t)s->m, n = (uint64_t)s->n, k = (uint64_t)s->k;
    VX_TRY(blas_status(call->cublasLtMatmulDescCreate(&p->product, compute, CUDA_R_32F), "linear"));
    VX_TRY(
        blas_status(call->cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_TRANSA, &turn, sizeof turn), "linear"));
    if (s->bias) {
        const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        const int32_t type = (int32_t)out;
        VX_TRY(blas_status(
            call->cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue),
            "linear"));
        VX_TRY(blas_status(
            call->cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type), "linear"));
    }
    VX_TRY(blas_status(call->cublasLtMatrixLayoutCreate(&p->w, in, k, n, s->w_stride), "linear"));
    VX_TRY(blas_status(call->cublasLtMatrixLayoutCreate(&p->x, in, k, m, s->x_stride), "linear"));
    return blas_status(call->cublasLtMatrixLayoutCreate(&p->out, out, n, m, s->out_stride), "linear");
}

static vx_status set_bias(const struct functions *call, const struct plan *p, const void *bias)
{
    if (!bias) return vx_ok();
    return blas_status(call->cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
                       "linear");
}

static vx_status prefer(const struct functions *call, cublasLtMatmulPreference_t preference, const struct shape *s)
{
    const size_t workspace = VX_CUDA_BLAS_WORKSPACE;
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; // partial sums in f32, added in order; or none at all
    const uint32_t w = (uint32_t)s->w_align, x = (uint32_t)s->x_align, out = (uint32_t)s->out_align;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t size;
    } attribute[] = {
        { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace },
        { CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &w, sizeof w },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &x, sizeof x },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out, sizeof out },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out, sizeof out },
    };
    for (size_t i = 0; i < sizeof attribute / sizeof *attribute; i++)
        VX_TRY(blas_status(
            call->cublasLtMatmulPreferenceSetAttribute(preference, attribute[i].name, attribute[i].value, attribute[i].size),
            "linear"));
    return vx_ok();
}

static vx_status propose(vx_cuda_blas *blas, struct plan *p, int asked, cublasLtMatmulHeuristicResult_t *found, int *count)
{
    const struct functions *call = &blas->call;
    cublasLtMatmulPreference_t preference;
    VX_TRY(blas_status(call->cublasLtMatmulPreferenceCreate(&preference), "linear"));
    vx_status s = prefer(call, preference, &p->shape);
    *count = 0;
    if (s.code == VX_OK)
        s = blas_status(call->cublasLtMatmulAlgoGetHeuristic(blas->handle, p->product, p->w, p->x, p->out, p->out, preference,
                                                             asked, found, count),
                        "linear");
    (void)call->cublasLtMatmulPreferenceDestroy(preference);
    if (s.code != VX_OK) return s;
    int kept = 0;
    for (int i = 0; i < *count; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS) found[kept++] = found[i];
    *count = kept;
    if (kept == 0) return vx_fail(VX_ERR_UNSUPPORTED, "cuBLASLt proposes no algorithm");
    return vx_ok();
}

static struct choice choice_of(const struct functions *call, const cublasLtMatmulAlgo_t *algo)
{
    struct choice c;
    memset(&c, 0, sizeof c);
#define GET(name, member) \
    (void)call->cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_##name, &c.member, sizeof c.member, NULL);
    GET(ID, id)
    GET(TILE_ID, tile)
    GET(STAGES_ID, stages)
    GET(SPLITK_NUM, split)
    GET(REDUCTION_SCHEME, reduction)
    GET(CTA_SWIZZLING, swizzle)
    GET(CUSTOM_OPTION, custom)
    GET(INNER_SHAPE_ID, inner)
    GET(CLUSTER_SHAPE_ID, cluster)
#undef GET
    return c;
}

static vx_status run(vx_cuda *cuda, const struct plan *p, const cublasLtMatmulAlgo_t *algo, size_t bytes,
                     const vx_cuda_product *args, void *workspace)
{
    const float one = 1, zero = 0;
    return blas_status(cuda->blas->call.cublasLtMatmul(cuda->blas->handle, p->product, &one, args->w, p->w, args->x, p->x, &zero,
                                                       args->out, p->out, args->out, p->out, algo, workspace, bytes,
                                                       cuda->stream),
                       "linear");
}

// The mean of some in a row: under the card's power limit an algorithm's own appetite decides its clock, but not at once.
static vx_status time_one(vx_cuda *cuda, const struct plan *p, const cublasLtMatmulHeuristicResult_t *candidate,
                          const vx_cuda_product *args, void *workspace, const cudaEvent_t event[2], float *ms)
{
    int runs = 1;
    float all = 0;
    for (int again = 0; again < 2; again++) {
        VX_TRY(vx_cuda_status(cudaEventRecord(event[0], cuda->stream), "linear"));
        for (int i = 0; i < runs; i++) VX_TRY(run(cuda, p, &candidate->algo, candidate->workspaceSize, args, workspace));
        VX_TRY(vx_cuda_status(cudaEventRecord(event[1], cuda->stream), "linear"));
        VX_TRY(vx_cuda_status(cudaEventSynchronize(event[1]), "linear"));
        VX_TRY(vx_cuda_status(cudaEventElapsedTime(&all, event[0], event[1]), "linear"));
        *ms = all / (float)runs;
        runs = 1 + (int)(TIMED_MS / (*ms > 0.01f ? *ms : 0.01f));
    }
    return vx_ok();
}

static vx_status time_all(vx_cuda *cuda, const struct plan *p, const cublasLtMatmulHeuristicResult_t *found, int count,
                          const vx_cuda_product *args, void *workspace, const cudaEvent_t event[2], float *ms)
{
    for (int i = 0; i < count; i++) ms[i] = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < count; i++) {
            float once;
            if (time_one(cuda, p, &found[i], args, workspace, event, &once).code != VX_OK) once = 1e9f;
            ms[i] += once / ROUNDS;
        }
    }
    return vx_ok();
}

// The fastest of the candidates on this call's own data.
static vx_status fastest(vx_cuda *cuda, const struct plan *p, const cublasLtMatmulHeuristicResult_t *found, int count,
                         const vx_cuda_product *args, void *workspace, int *best, float *ms)
{
    cudaEvent_t event[2];
    VX_TRY(vx_cuda_status(cudaEventCreate(&event[0]), "linear"));
    vx_status s = vx_cuda_status(cudaEventCreate(&event[1]), "linear");
    if (s.code == VX_OK) {
        s = time_all(cuda, p, found, count, args, workspace, event, ms);
        (void)cudaEventDestroy(event[1]);
    }
    (void)cudaEventDestroy(event[0]);
    *best = 0;
    for (int i = 1; i < count; i++)
        if (ms[i] < ms[*best]) *best = i;
    return s;
}

static void describe_choice(const struct functions *call, struct plan *p, const cublasLtMatmulHeuristicResult_t *found, int count,
                            int best, const float *ms)
{
    const struct shape *s = &p->shape;
    int used = snprintf(p->text, sizeof p->text, "m %lld n %lld k %lld %s to %s%s: proposal %d of %d", (long long)s->m,
                        (long long)s->n, (long long)s->k, vx_dtype_name((vx_dtype)s->in_type),
                        vx_dtype_name((vx_dtype)s->out_type), s->bias ? " with bias" : "", best, count);
    for (int i = 0; i < count && used < (int)sizeof p->text; i++) {
        if (!ms && i != best) continue;
        const struct choice c = choice_of(call, &found[i].algo);
        used += snprintf(
            p->text + used, sizeof p->text - (size_t)used,
            "%s algorithm %d tile %u stages %u inner %u cluster %u swizzle %u custom %u split %d reduction %u workspace %zu",
            ms ? "\n   " : ",", c.id, c.tile, c.stages, c.inner, c.cluster, c.swizzle, c.custom, c.split, c.reduction,
            found[i].workspaceSize);
        if (ms && used < (int)sizeof p->text)
            used += snprintf(p->text + used, sizeof p->text - (size_t)used, ": %.3f ms", (double)ms[i]);
    }
}

static vx_status choose(vx_cuda *cuda, struct plan *p, const vx_cuda_product *args, void *workspace)
{
    vx_cuda_blas *blas = cuda->blas;
    cublasLtMatmulHeuristicResult_t found[MOST_PROPOSALS];
    float ms[MOST_PROPOSALS];
    int count = 0, best = 0;
    VX_TRY(vx_cuda_pause(cuda));
    VX_TRY(describe(&blas->call, p));
    VX_TRY(set_bias(&blas->call, p, args->bias));
    VX_TRY_IN(propose(blas, p, blas->candidates > 0 ? blas->candidates : PROPOSALS, found, &count),
              "linear of %lld rows, %lld by %lld, %s to %s", (long long)args->m, (long long)args->n, (long long)args->k,
              vx_dtype_name(args->in_type), vx_dtype_name(args->out_type));
    if (blas->candidates > 1) VX_TRY(fastest(cuda, p, found, count, args, workspace, &best, ms));
    p->algo = found[best].algo;
    p->workspace = found[best].workspaceSize;
    describe_choice(&blas->call, p, found, count, best, blas->candidates > 1 ? ms : NULL);
    return vx_ok();
}

static vx_status plan_for(vx_cuda *cuda, const vx_cuda_product *args, void *workspace, const struct plan **out)
{
    vx_cuda_blas *blas = cuda->blas;
    const struct shape s = shape_of(args);
    for (int i = 0; i < blas->plans; i++) {
        if (memcmp(&blas->plan[i].shape, &s, sizeof s) != 0) continue;
        *out = &blas->plan[i];
        return vx_ok();
    }
    if (blas->plans == blas->room) {
        const int room = blas->room ? 2 * blas->room : 64;
        struct plan *more = vx_realloc(blas->plan, sizeof *more * (size_t)room);
        VX_NEED_MEMORY(more, "the products' plans");
        blas->plan = more;
        blas->room = room;
    }
    struct plan *p = &blas->plan[blas->plans];
    memset(p, 0, sizeof *p);
    p->shape = s;
    const vx_status chosen = choose(cuda, p, args, workspace);
    if (chosen.code != VX_OK) {
        free_plan(&blas->call, p);
        return chosen;
    }
    blas->plans++;
    *out = p;
    return vx_ok();
}

vx_status vx_cuda_blas_product(vx_cuda *cuda, const vx_cuda_product *args, void *workspace)
{
    const struct plan *p = NULL;
    if (args->m == 0 || args->n == 0) return vx_ok();
    VX_TRY(plan_for(cuda, args, workspace, &p));
    VX_TRY(set_bias(&cuda->blas->call, p, args->bias));
    return run(cuda, p, &p->algo, p->workspace, args, workspace);
}
