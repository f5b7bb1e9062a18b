// Recorded stretches: CUDA graphs, captured from the stream.
//
// A stretch of a new identity runs by itself the first time: copies of weights are made, scratch grows, algorithms are chosen and
// kernels are loaded, none of which a graph can hold. When it comes again it is captured, unless it did what it will always do and
// what a graph cannot hold either: copies from and to the host, weights that stream. From then on it is replayed. Where something
// unforeseen happens in the middle of a capture, the part captured so far runs as a graph of its own and the rest by itself: what
// the caller sees is the same.
//
// An identity is compared whole. What a graph holds beyond it is this device's own affair: copies of weights and scratch, whose
// loss advances `epoch`; the choice of kernels, which depends on shapes and on the device; workspaces, which are scratch; plans
// of cuDNN, which stay. So a graph lives on when the memory that its identity names is given back: whoever comes with the same
// addresses owns what lies there.
//
// The card's memory that graphs take is the driver's and counts nowhere; a graph gives way where memory is short, its identity
// stays, and it is captured again.
//
// Between two stretches, recorded or not, is where a cancellation is looked for. The host is never further ahead than the stretch
// that runs and the one behind it: the card does not wait, and who cancels waits for no more than these two.
#include <string.h>

#include "base/alloc.h"
#include "device/check.h"
#include "device/cuda/cuda.h"

enum { MOST_BYTES = 64 << 10 }; // of an identity, a longer one is not recorded

struct graph {
    char *identity;
    size_t bytes;
    bool quiet;     // it ran without anything that a graph can never hold
    uint64_t epoch; // then, or when it was captured
    cudaGraphExec_t exec;
    size_t launches;
    vx_cuda_attention_way attention; // that it computes last
    vx_weight_copy **uses;
    int used, room;
    int64_t last;
};

struct vx_recording {
    vx_recording *next; // of the device's
    struct graph graph[VX_CUDA_GRAPHS];
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
    vx_free(g->identity);
    vx_free(g->uses);
    *g = (struct graph){ 0 };
}

static struct graph *find(vx_recording *r, const void *identity, size_t bytes)
{
    for (int i = 0; i < VX_CUDA_GRAPHS; i++) {
        struct graph *g = &r->graph[i];
        if (g->identity && g->bytes == bytes && memcmp(g->identity, identity, bytes) == 0) return g;
    }
    return NULL;
}

static struct graph *make(vx_cuda *cuda, vx_recording *r, const void *identity, size_t bytes)
{
    struct graph *oldest = &r->graph[0];
    for (int i = 1; i < VX_CUDA_GRAPHS && oldest->identity; i++)
        if (!r->graph[i].identity || r->graph[i].last < oldest->last) oldest = &r->graph[i];
    clear(cuda, oldest);
    oldest->identity = vx_alloc(bytes);
    if (!oldest->identity) return NULL;
    memcpy(oldest->identity, identity, bytes);
    oldest->bytes = bytes;
    return oldest;
}

static vx_status replay(vx_cuda *cuda, struct graph *g)
{
    for (int i = 0; i < g->used; i++) vx_cuda_weights_touch(cuda, g->uses[i]);
    cuda->attention_ran = g->attention;
    cuda->launches += (int64_t)g->launches;
    return vx_cuda_status(cudaGraphLaunch(g->exec, cuda->stream), "recorded operators");
}

static vx_status open_slot(vx_cuda *cuda, vx_recording **slot)
{
    *slot = vx_alloc_array(1, sizeof **slot);
    VX_NEED_MEMORY(*slot, "a recording");
    (*slot)->next = cuda->recordings;
    cuda->recordings = *slot;
    return vx_ok();
}

vx_status vx_cuda_pace_open(vx_cuda *cuda)
{
    for (int i = 0; i < 2; i++)
        VX_TRY(vx_cuda_status(cudaEventCreateWithFlags(&cuda->pace[i], cudaEventDisableTiming | cudaEventBlockingSync),
                              "CUDA device"));
    return vx_ok();
}

void vx_cuda_pace_close(vx_cuda *cuda)
{
    for (int i = 0; i < 2; i++)
        if (cuda->pace[i]) (void)cudaEventDestroy(cuda->pace[i]);
}

// Lets the stretch before the last one end.
static vx_status keep_pace(vx_cuda *cuda)
{
    VX_TRY(vx_cuda_status(cudaEventRecord(cuda->pace[cuda->stretches % 2], cuda->stream), "stretch"));
    cuda->stretches++;
    VX_TRY(vx_cuda_status(cudaEventSynchronize(cuda->pace[cuda->stretches % 2]), "stretch"));
    VX_NEED_GOING(&cuda->base);
    return vx_ok();
}

vx_status vx_cuda_record(vx_device *dev, vx_recording **slot, const void *identity, size_t bytes, bool *replayed)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    *replayed = false;
    if (cuda->recording) return vx_ok();
    VX_TRY(keep_pace(cuda));
    if (!cuda->graphs || bytes > MOST_BYTES) return vx_ok();
    if (!*slot) VX_TRY(open_slot(cuda, slot));
    vx_recording *r = *slot;
    struct graph *g = find(r, identity, bytes);
    if (!g) g = make(cuda, r, identity, bytes);
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

// Ends the capture and runs what it holds; keeps it where that is asked for.
static vx_status run_captured(vx_cuda *cuda, struct graph *keep)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cuda->capturing = false;
    cudaError_t error = cudaStreamEndCapture(cuda->stream, &graph);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&exec, graph, 0);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        vx_cuda_shed(&cuda->base);
        error = cudaGraphInstantiate(&exec, graph, 0);
    }
    if (error == cudaSuccess) error = cudaGraphLaunch(exec, cuda->stream);
    if (error == cudaSuccess && keep) error = cudaGraphGetNodes(graph, NULL, &keep->launches);
    if (graph) (void)cudaGraphDestroy(graph);
    if (keep && error == cudaSuccess) {
        keep->exec = exec;
        return vx_ok();
    }
    if (exec && !keep && error == cudaSuccess) error = cudaStreamSynchronize(cuda->stream);
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
    g->attention = cuda->attention_ran;
    const vx_status s = run_captured(cuda, g->quiet ? g : NULL);
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
    for (int i = 0; i < VX_CUDA_GRAPHS; i++) clear(cuda, &(*slot)->graph[i]);
    for (vx_recording **at = &cuda->recordings; *at; at = &(*at)->next) {
        if (*at != *slot) continue;
        *at = (*slot)->next;
        break;
    }
    vx_free(*slot);
    *slot = NULL;
}

bool vx_cuda_drop_graphs(vx_cuda *cuda)
{
    bool any = false;
    for (vx_recording *r = cuda->recordings; r; r = r->next)
        for (int i = 0; i < VX_CUDA_GRAPHS; i++) {
            any = any || r->graph[i].exec;
            drop_exec(cuda, &r->graph[i]);
        }
    return any;
}

int64_t vx_cuda_launches(const vx_device *dev)
{
    return strcmp(dev->name, "cuda") == 0 ? vx_cuda_of_const(dev)->launches : 0;
}

void vx_cuda_graphs(vx_device *dev, bool on)
{
    vx_cuda_of(dev)->graphs = on;
}
