// Attention by cuDNN's fused engines. A plan belongs to shapes, strides and format; plans are kept. First the node made for
// attention, then the chain of products, maximum, exponential and sum that older engines recognise as such.
#include "base/alloc.h"
#include "device/cuda/cuda.h"
#include "device/cuda/cudnn_graph.h"

#include <stdio.h>
#include <string.h>

enum { KEPT = 32, REASON = 160, Q = 1, K, V, O, SCALE, INNER };

struct key {
    int64_t sq, skv, heads, kv_heads, d, q[2], k[2], v[2], out[2]; // strides of rows and heads
    int64_t dtype;                                                 // vx_dtype, as wide as the rest: keys are compared as bytes
};

struct plan {
    struct key key;
    vx_dnn_descriptor built; // NULL: there is no engine
    int64_t workspace;
    uint64_t used;
    bool captured; // a recorded stretch may hold it: it stays
    bool node;     // by the node for attention
    char why[200]; // there is no engine
};

struct vx_cuda_dnn {
    vx_dnn_library library;
    vx_dnn_handle handle; // made when the first plan is
    vx_status opened;
    struct plan *plans;
    int count, room;
    uint64_t clock;
};

// ---- life ----
void vx_cuda_dnn_open(vx_cuda *cuda)
{
    vx_cuda_dnn *dnn = vx_alloc_array(1, sizeof *dnn);
    cuda->dnn = dnn;
    if (dnn) dnn->opened = vx_dnn_library_open(&dnn->library);
}

void vx_cuda_dnn_close(vx_cuda *cuda)
{
    vx_cuda_dnn *dnn = cuda->dnn;
    if (!dnn) return;
    for (int i = 0; i < dnn->count; i++)
        if (dnn->plans[i].built) (void)dnn->library.unmake(dnn->plans[i].built);
    if (dnn->handle) (void)dnn->library.destroy(dnn->handle);
    vx_free(dnn->plans);
    vx_free(dnn); // the library stays loaded: its parts cannot be unloaded
    cuda->dnn = NULL;
}

vx_status vx_cuda_dnn_found(const vx_cuda *cuda)
{
    if (!cuda->dnn) return vx_fail(VX_ERR_UNSUPPORTED, "cuDNN was not opened");
    return vx_remedy(cuda->dnn->opened, "name the folder of libcudnn.so.9 in VORTEX_LIBRARY_PATH, or use --attention own");
}

const char *vx_cuda_dnn_version(const vx_cuda *cuda)
{
    return cuda->dnn && cuda->dnn->opened.code == VX_OK ? cuda->dnn->library.named : NULL;
}

static vx_status start(const vx_cuda *cuda)
{
    VX_TRY(vx_cuda_dnn_found(cuda));
    vx_cuda_dnn *dnn = cuda->dnn;
    if (dnn->handle) return vx_ok();
    VX_TRY(vx_cuda_status(cudaSetDevice(cuda->ordinal), "attention")); // whoever counts scratch did not
    vx_dnn_status s = dnn->library.create(&dnn->handle);
    if (s == VX_DNN_STATUS_SUCCESS) s = dnn->library.set_stream(dnn->handle, cuda->stream);
    if (s == VX_DNN_STATUS_SUCCESS) return vx_ok();
    char why[REASON];
    vx_dnn_reason(&dnn->library, s, why, sizeof why);
    dnn->opened = vx_fail(VX_ERR_UNSUPPORTED, "cuDNN %s does not start: %s", dnn->library.named, why);
    return vx_cuda_dnn_found(cuda);
}

// ---- graphs ----
struct operands {
    vx_dnn_descriptor q, k, v, out, scale;
    int type;
};

// [1, heads, rows, d], or with d before the rows
static vx_dnn_descriptor view(vx_dnn_builder *b, int64_t id, int type, int64_t heads, int64_t rows, int64_t d,
                              const int64_t stride[2], bool turned)
{
    const int64_t shape[4] = { 1, heads, turned ? d : rows, turned ? rows : d };
    const int64_t strides[4] = { rows * stride[0], stride[1], turned ? 1 : stride[0], turned ? stride[0] : 1 };
    return vx_dnn_tensor(b, id, type, shape, strides, VX_DNN_REAL);
}

static struct operands operands_of(vx_dnn_builder *b, const struct key *key, bool k_turned)
{
    const int64_t one[4] = { 1, 1, 1, 1 };
    const int type = key->dtype == VX_F16 ? VX_DNN_DATA_HALF : VX_DNN_DATA_BFLOAT16;
    return (struct operands){
        .q = view(b, Q, type, key->heads, key->sq, key->d, key->q, false),
        .k = view(b, K, type, key->kv_heads, key->skv, key->d, key->k, k_turned),
        .v = view(b, V, type, key->kv_heads, key->skv, key->d, key->v, false),
        .out = view(b, O, type, key->heads, key->sq, key->d, key->out, false),
        .scale = vx_dnn_tensor(b, SCALE, VX_DNN_DATA_FLOAT, one, one, VX_DNN_BY_VALUE),
        .type = type,
    };
}

static vx_dnn_descriptor plan_by_node(vx_dnn_builder *b, const struct key *key)
{
    const struct operands t = operands_of(b, key, false);
    vx_dnn_descriptor d = vx_dnn_make(b, VX_DNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, "the node for attention");
    vx_dnn_set_descriptor(b, d, VX_DNN_ATTR_OPERATION_SDPA_FWD_QDESC, t.q);
    vx_dnn_set_descriptor(b, d, VX_DNN_ATTR_OPERATION_SDPA_FWD_KDESC, t.k);
    vx_dnn_set_descriptor(b, d, VX_DNN_ATTR_OPERATION_SDPA_FWD_VDESC, t.v);
    vx_dnn_set_descriptor(b, d, VX_DNN_ATTR_OPERATION_SDPA_FWD_ODESC, t.out);
    vx_dnn_set_descriptor(b, d, VX_DNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, t.scale);
    vx_dnn_finish(b, d);
    return vx_dnn_plan(b, &d, 1);
}

static vx_dnn_descriptor inner(vx_dnn_builder *b, int64_t id, int type, const struct key *key, int64_t columns)
{
    const int64_t shape[4] = { 1, key->heads, key->sq, columns };
    const int64_t stride[4] = { key->heads * key->sq * columns, key->sq * columns, columns, 1 };
    return vx_dnn_tensor(b, id, type, shape, stride, VX_DNN_VIRTUAL);
}

static vx_dnn_descriptor plan_by_chain(vx_dnn_builder *b, const struct key *key)
{
    enum { SCORES = INNER, SCALED, MOST, LESS, EXPONENTIALS, SUM, LOG, STATISTICS, WEIGHTS };
    const struct operands t = operands_of(b, key, true);
    const int f32 = VX_DNN_DATA_FLOAT;
    vx_dnn_descriptor scores = inner(b, SCORES, f32, key, key->skv), scaled = inner(b, SCALED, f32, key, key->skv);
    vx_dnn_descriptor most = inner(b, MOST, f32, key, 1), less = inner(b, LESS, f32, key, key->skv);
    vx_dnn_descriptor exponentials = inner(b, EXPONENTIALS, f32, key, key->skv), sum = inner(b, SUM, f32, key, 1);
    vx_dnn_descriptor log = inner(b, LOG, f32, key, 1), statistics = inner(b, STATISTICS, f32, key, 1);
    vx_dnn_descriptor weights = inner(b, WEIGHTS, t.type, key, key->skv);
    vx_dnn_descriptor steps[] = {
        vx_dnn_matmul(b, scores, t.q, t.k),
        vx_dnn_pointwise(b, VX_DNN_POINTWISE_MUL, scaled, scores, t.scale),
        vx_dnn_reduce(b, VX_DNN_REDUCE_TENSOR_MAX, most, scaled),
        vx_dnn_pointwise(b, VX_DNN_POINTWISE_SUB, less, scaled, most),
        vx_dnn_pointwise(b, VX_DNN_POINTWISE_EXP, exponentials, less, NULL),
        vx_dnn_reduce(b, VX_DNN_REDUCE_TENSOR_ADD, sum, exponentials),
        // Nobody reads these two, but a chain without them is not recognised.
        vx_dnn_pointwise(b, VX_DNN_POINTWISE_LOG, log, sum, NULL),
        vx_dnn_pointwise(b, VX_DNN_POINTWISE_ADD, statistics, most, log),
        vx_dnn_pointwise(b, VX_DNN_POINTWISE_DIV, weights, exponentials, sum),
        vx_dnn_matmul(b, t.out, weights, t.v),
    };
    return vx_dnn_plan(b, steps, (int)(sizeof steps / sizeof steps[0]));
}

// ---- plans ----
static struct key key_of(const vx_attention_args *args)
{
    struct key key;
    memset(&key, 0, sizeof key); // keys are compared as bytes
    key.sq = args->q.shape[0];
    key.skv = args->k.shape[0];
    key.heads = args->q.shape[1];
    key.kv_heads = args->k.shape[1];
    key.d = args->q.shape[2];
    for (int i = 0; i < 2; i++) {
        key.q[i] = args->q.stride[i];
        key.k[i] = args->k.stride[i];
        key.v[i] = args->v.stride[i];
        key.out[i] = args->out.stride[i];
    }
    key.dtype = args->q.dtype;
    return key;
}

static bool capturing(const vx_cuda *cuda)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(cuda->stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

typedef vx_dnn_descriptor (*way_fn)(vx_dnn_builder *builder, const struct key *key);

static void build(vx_cuda_dnn *dnn, struct plan *p)
{
    static const way_fn ways[] = { plan_by_node, plan_by_chain };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0] && !p->built; i++) {
        vx_dnn_builder b = { .library = &dnn->library, .handle = dnn->handle };
        p->built = ways[i](&b, &p->key);
        p->node = i == 0;
        if (!p->built) {
            char why[REASON];
            vx_dnn_reason(&dnn->library, b.status, why, sizeof why);
            snprintf(p->why, sizeof p->why, "%s: %s", b.failed, why);
        }
        vx_dnn_clear(&b);
    }
    int64_t count = 0;
    if (p->built && dnn->library.get(p->built, VX_DNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, VX_DNN_TYPE_INT64, 1, &count,
                                     &p->workspace) != VX_DNN_STATUS_SUCCESS)
        p->workspace = 0;
}

// Where a new plan goes: beside the others, or in the place of the one longest unused.
static vx_status place(const vx_cuda *cuda, struct plan **out)
{
    vx_cuda_dnn *dnn = cuda->dnn;
    struct plan *oldest = NULL;
    for (int i = 0; dnn->count >= KEPT && i < dnn->count; i++) {
        struct plan *p = &dnn->plans[i];
        if (!p->captured && (!oldest || p->used < oldest->used)) oldest = p;
    }
    if (oldest && !capturing(cuda)) {
        VX_TRY(vx_cuda_status(cudaStreamSynchronize(cuda->stream), "attention"));
        if (oldest->built) (void)dnn->library.unmake(oldest->built);
        *out = oldest;
        return vx_ok();
    }
    if (dnn->count == dnn->room) {
        const int room = dnn->room ? 2 * dnn->room : KEPT;
        struct plan *more = vx_realloc(dnn->plans, (size_t)room * sizeof *more);
        VX_NEED_MEMORY(more, "plans of cuDNN");
        dnn->plans = more;
        dnn->room = room;
    }
    *out = &dnn->plans[dnn->count++];
    return vx_ok();
}

static vx_status find_or_build(const vx_cuda *cuda, const struct key *key, struct plan **out)
{
    VX_TRY(start(cuda));
    vx_cuda_dnn *dnn = cuda->dnn;
    *out = NULL;
    for (int i = 0; i < dnn->count && !*out; i++)
        if (memcmp(&dnn->plans[i].key, key, sizeof *key) == 0) *out = &dnn->plans[i];
    if (!*out) {
        VX_TRY(place(cuda, out));
        memset(*out, 0, sizeof **out);
        memcpy(&(*out)->key, key, sizeof *key);
        build(dnn, *out);
    }
    (*out)->used = ++dnn->clock;
    return (*out)->built ? vx_ok() : vx_fail(VX_ERR_UNSUPPORTED, "cuDNN %s: %s", dnn->library.named, (*out)->why);
}

static vx_status plan_of(const vx_cuda *cuda, const vx_attention_args *args, struct plan **out)
{
    enum { WIDEST = 128 };
    if (args->causal || args->scale <= 0 || (args->q.dtype != VX_BF16 && args->q.dtype != VX_F16) || args->q.shape[2] > WIDEST)
        return vx_fail(VX_ERR_UNSUPPORTED, "cuDNN takes bf16 and f16, not causal, scales above 0, at most %d wide", WIDEST);
    const struct key key = key_of(args);
    // The library allocates and loads code when it starts and plans. A recording does not mind, but CUDA forbids it by default
    // while one is made.
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    const vx_status s = find_or_build(cuda, &key, out);
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    return s;
}

size_t vx_cuda_dnn_attention_scratch(const vx_cuda *cuda, const vx_attention_args *args)
{
    struct plan *p;
    return plan_of(cuda, args, &p).code == VX_OK ? (size_t)p->workspace : 0;
}

vx_status vx_cuda_dnn_attention(vx_cuda *cuda, const vx_attention_args *args)
{
    struct plan *p;
    VX_TRY(plan_of(cuda, args, &p));
    void *workspace = NULL;
    if (p->workspace > 0) VX_TRY(vx_cuda_scratch(cuda, (size_t)p->workspace, &workspace));
    const vx_cuda_dnn *dnn = cuda->dnn;
    const int64_t ids[] = { Q, K, V, O, SCALE };
    float scale = args->scale;
    void *const data[] = { args->q.data, args->k.data, args->v.data, args->out.data, &scale };
    vx_dnn_builder b = { .library = &dnn->library };
    vx_dnn_descriptor pack = vx_dnn_make(&b, VX_DNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "the operands");
    vx_dnn_set(&b, pack, VX_DNN_ATTR_VARIANT_PACK_UNIQUE_IDS, VX_DNN_TYPE_INT64, 5, ids);
    vx_dnn_set(&b, pack, VX_DNN_ATTR_VARIANT_PACK_DATA_POINTERS, VX_DNN_TYPE_VOID_PTR, 5, data);
    vx_dnn_set(&b, pack, VX_DNN_ATTR_VARIANT_PACK_WORKSPACE, VX_DNN_TYPE_VOID_PTR, 1, &workspace);
    vx_dnn_finish(&b, pack);
    p->captured = p->captured || capturing(cuda);
    vx_dnn_status s = b.status;
    if (s == VX_DNN_STATUS_SUCCESS) s = dnn->library.execute(dnn->handle, p->built, pack);
    vx_dnn_clear(&b);
    if (s == VX_DNN_STATUS_SUCCESS) return vx_ok();
    char why[REASON];
    vx_dnn_reason(&dnn->library, s, why, sizeof why);
    return vx_fail(VX_ERR_DEVICE, "attention: cuDNN %s: %s", dnn->library.named, why);
}
