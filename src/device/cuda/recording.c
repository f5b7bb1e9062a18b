// Recorded stretches: CUDA graphs, captured from the stream.
//
// A stretch of a new identity runs by itself the first time: copies of weights are made, scratch grows, algorithms are chosen and
// kernels are loaded, none of which a graph can hold. When it comes again it is captured, unless it did what it will always do and
// what a graph cannot hold either: copies from and to the host, weights that stream. From then on it is replayed. Where something
// unforeseen happens in the middle of a capture, the part captured so far runs as a graph of its own and the rest by itself: what
// the caller sees is the same.
#include "base/alloc.h"
#include "device/cuda/cuda.h"
#include <string.h>

enum { GRAPHS = 4, MAX_KEYS = 64 }; // of a slot; an identity with more addresses is not recorded

struct graph {
    const void **key;
    int keys;
    bool quiet;     // it ran without anything that a graph can never hold
    uint64_t epoch; // then, or when it was captured
    cudaGraphExec_t exec;
    vx_weight_copy **uses;
    int used, room;
    int64_t last;
};

struct vx_recording {
    struct graph graph[GRAPHS];
    struct graph *running;
    int64_t uses;
};

static void drop_exec(vx_cuda *cuda, struct graph *g)
{
    if (!g->exec) return;
    (void)cudaStreamSynchronize(cuda->stream); // it may still run
    (void)cudaGraphExecDestroy(g->exec);
    g->exec = NULL;
}

static void clear(vx_cuda *cuda, struct graph *g)
{
    drop_exec(cuda, g);
    vx_free(g->key);
    vx_free(g->uses);
    *g = (struct graph){ 0 };
}

static struct graph *find(vx_recording *r, const void *const *key, int keys)
{
    for (int i = 0; i < GRAPHS; i++) {
        struct graph *g = &r->graph[i];
        if (g->key && g->keys == keys && memcmp(g->key, key, sizeof *key * (size_t)keys) == 0) return g;
    }
    return NULL;
}

static struct graph *make(vx_cuda *cuda, vx_recording *r, const void *const *key, int keys)
{
    struct graph *oldest = &r->graph[0];
    for (int i = 1; i < GRAPHS && oldest->key; i++)
        if (!r->graph[i].key || r->graph[i].last < oldest->last) oldest = &r->graph[i];
    clear(cuda, oldest);
    oldest->key = vx_alloc(sizeof *key * (size_t)(keys ? keys : 1));
    if (!oldest->key) return NULL;
    memcpy(oldest->key, key, sizeof *key * (size_t)keys);
    oldest->keys = keys;
    return oldest;
}

static vx_status replay(vx_cuda *cuda, struct graph *g)
{
    for (int i = 0; i < g->used; i++) vx_cuda_weights_touch(cuda, g->uses[i]);
    return vx_cuda_status(cudaGraphLaunch(g->exec, cuda->stream), "recorded operators");
}

vx_status vx_cuda_record(vx_device *dev, vx_recording **slot, const void *const *key, int keys, bool *replayed)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    *replayed = false;
    if (!cuda->graphs || cuda->recording || keys > MAX_KEYS) return vx_ok();
    if (!*slot) {
        *slot = vx_alloc_array(1, sizeof **slot);
        VX_NEED_MEMORY(*slot, "a recording");
    }
    vx_recording *r = *slot;
    struct graph *g = find(r, key, keys);
    if (!g) g = make(cuda, r, key, keys);
    VX_NEED_MEMORY(g, "a recording");
    g->last = ++r->uses;
    const bool current = g->quiet && g->epoch == cuda->epoch;
    if (current && g->exec) {
        VX_TRY(replay(cuda, g));
        *replayed = true;
        return vx_ok();
    }
    drop_exec(cuda, g); // addresses in it may be others' by now
    r->running = g;
    cuda->recording = r;
    cuda->unrecordable = false;
    g->used = 0;
    if (!current) return vx_ok();
    VX_TRY(vx_cuda_status(cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeRelaxed), "recording"));
    cuda->capturing = true;
    return vx_ok();
}

void vx_cuda_recording_uses(vx_cuda *cuda, vx_weight_copy *copy)
{
    if (!cuda->capturing) return;
    struct graph *g = cuda->recording->running;
    if (g->used == g->room) {
        const int room = g->room ? 2 * g->room : 32;
        vx_weight_copy **more = vx_realloc(g->uses, sizeof(void *) * (size_t)room);
        if (!more) {
            cuda->unrecordable = true;
            return;
        }
        g->uses = more;
        g->room = room;
    }
    g->uses[g->used++] = copy;
}

// Ends the capture and runs what it holds; keeps it as `exec` where that is asked for.
static vx_status run_captured(vx_cuda *cuda, cudaGraphExec_t *kept)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cuda->capturing = false;
    cudaError_t error = cudaStreamEndCapture(cuda->stream, &graph);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&exec, graph, 0);
    if (error == cudaSuccess) error = cudaGraphLaunch(exec, cuda->stream);
    if (graph) (void)cudaGraphDestroy(graph);
    if (kept && error == cudaSuccess) {
        *kept = exec;
        return vx_ok();
    }
    if (exec && !kept && error == cudaSuccess) error = cudaStreamSynchronize(cuda->stream);
    if (exec) (void)cudaGraphExecDestroy(exec);
    return vx_cuda_status(error, "recorded operators");
}

vx_status vx_cuda_interrupt(vx_cuda *cuda)
{
    cuda->unrecordable = true;
    return cuda->capturing ? run_captured(cuda, NULL) : vx_ok();
}

vx_status vx_cuda_pause(vx_cuda *cuda)
{
    return cuda->capturing ? vx_cuda_interrupt(cuda) : vx_ok();
}

static void abandon(vx_cuda *cuda)
{
    cudaGraph_t graph = NULL;
    cuda->capturing = false;
    (void)cudaStreamEndCapture(cuda->stream, &graph);
    if (graph) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
}

vx_status vx_cuda_record_end(vx_device *dev, vx_recording **slot, vx_status inside)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    if (!cuda->recording || cuda->recording != *slot) return inside;
    struct graph *g = (*slot)->running;
    cuda->recording = NULL;
    (*slot)->running = NULL;
    if (cuda->capturing && inside.code != VX_OK) abandon(cuda);
    if (!cuda->capturing) {
        g->quiet = inside.code == VX_OK && !cuda->unrecordable;
        g->epoch = cuda->epoch;
        return inside;
    }
    g->quiet = !cuda->unrecordable;
    const vx_status s = run_captured(cuda, g->quiet ? &g->exec : NULL);
    if (s.code != VX_OK) g->quiet = false;
    return vx_cuda_settle(cuda, s);
}

void vx_cuda_record_free(vx_device *dev, vx_recording **slot)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    if (!*slot) return;
    (void)cudaSetDevice(cuda->ordinal);
    if (cuda->recording == *slot) {
        if (cuda->capturing) abandon(cuda);
        cuda->recording = NULL;
    }
    for (int i = 0; i < GRAPHS; i++) clear(cuda, &(*slot)->graph[i]);
    vx_free(*slot);
    *slot = NULL;
}

void vx_cuda_graphs(vx_device *dev, bool on)
{
    vx_cuda_of(dev)->graphs = on;
}
