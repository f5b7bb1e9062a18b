// Copies of weights, found by the address in the mapped file that they were made from.
//
// Held copies have memory of their own and stay. Beyond the budget a weight streams: its bytes go into a ring on the card, over
// what came longest ago, on a stream of their own, so that they travel while the card computes. A pass over a model meets its
// weights in the same order again and again; the first ones are held, and the others go by. A held copy that a whole pass did
// without gives way to one that the pass needed. Where a copy lies never changes a result: every copy begins at the same
// alignment.
//
// Events: `ready` when the bytes are there, which the computing stream awaits before the first use; `done` behind the last use,
// which the copying stream awaits before it writes over the bytes.
#include "base/alloc.h"
#include "base/checked.h"
#include "device/cuda/cuda.h"
#include "device/cuda/kernels/convert.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    ALIGN = 512,
    MARGIN = 512 << 20,   // of free memory that copies leave alone when no budget was set
    RING_SMALL = 1 << 20, // beside two of the largest: norms and biases
};

enum place { AWAY, HELD, RING };

struct vx_weight_copy {
    const char *begin;
    size_t bytes;      // in the file
    vx_dtype from, to; // equal: the bytes as they are
    enum place place;
    char *device;
    size_t device_bytes;
    cudaEvent_t ready, done;
    bool awaited; // by the computing stream
    bool used;    // since it was copied
    bool fenced;  // `done` stands behind the last use
    bool drop;    // held only until the operator is through
    bool once;
    bool recorded;           // its address may be part of a recording
    float mean, deviation;   // of made-up numbers
    int64_t number;          // in the order of their first use
    int64_t operation, last; // of the last use: the operator's number, and a count of uses
};

struct vx_cuda_weights {
    cudaStream_t stream;
    vx_weight_copy **copy; // by address
    int count, room;
    size_t longest; // bytes, of all copies that were ever there
    size_t largest; // bytes on the device, of one
    char *ring;
    size_t ring_size, head;
    vx_weight_copy **queue; // what lies in the ring, oldest first
    int queued, queue_room;
    int drops;
    bool made_up; // numbers come from `seed` and the copy, not from the file
    uint64_t seed;
    int64_t records; // ever made
    char *bounce;    // VX_CUDA_CHUNK bytes of a file before their conversion
    uint64_t budget, held, copied;
    int64_t hits, misses, uses;
};

vx_status vx_cuda_weights_open(vx_cuda *cuda)
{
    vx_cuda_weights *w = vx_alloc_array(1, sizeof *w);
    VX_NEED_MEMORY(w, "the CUDA device");
    cuda->weights = w;
    return vx_cuda_status(cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking), "CUDA device");
}

// ---- giving back ----
static void leave_ring(vx_cuda_weights *w, vx_weight_copy *c)
{
    for (int i = 0; i < w->queued; i++) {
        if (w->queue[i] != c) continue;
        memmove(w->queue + i, w->queue + i + 1, sizeof(void *) * (size_t)(w->queued - i - 1));
        w->queued--;
        return;
    }
}

static void synchronize(vx_cuda *cuda)
{
    (void)vx_cuda_pause(cuda);
    (void)cudaStreamSynchronize(cuda->stream);
    (void)cudaStreamSynchronize(cuda->weights->stream);
}

// Both streams must be through with it.
static void send_away(vx_cuda *cuda, vx_weight_copy *c)
{
    vx_cuda_weights *w = cuda->weights;
    if (c->place == RING) leave_ring(w, c);
    if (c->place == HELD) {
        vx_cuda_free(cuda, c->device, c->device_bytes);
        w->held -= c->device_bytes;
        if (c->recorded) cuda->epoch++;
        c->recorded = false;
    }
    if (c->drop) w->drops--;
    c->drop = false;
    c->place = AWAY;
    c->device = NULL;
}

static void free_copy(vx_weight_copy *c)
{
    if (c->ready) (void)cudaEventDestroy(c->ready);
    if (c->done) (void)cudaEventDestroy(c->done);
    vx_free(c);
}

static void free_ring(vx_cuda *cuda)
{
    vx_cuda_weights *w = cuda->weights;
    while (w->queued > 0) send_away(cuda, w->queue[w->queued - 1]);
    vx_cuda_free(cuda, w->ring, w->ring_size);
    w->ring = NULL;
    w->ring_size = w->head = 0;
}

static bool ring_is_in_use(const vx_cuda *cuda)
{
    const vx_cuda_weights *w = cuda->weights;
    for (int i = 0; i < w->queued; i++)
        if (w->queue[i]->used && w->queue[i]->operation == cuda->operation) return true;
    return false;
}

void vx_cuda_weights_trim(vx_cuda *cuda)
{
    vx_cuda_weights *w = cuda->weights;
    if (!w->ring && !w->bounce && w->drops == 0) return;
    (void)cudaSetDevice(cuda->ordinal);
    synchronize(cuda);
    for (int i = 0; i < w->count && w->drops > 0; i++)
        if (w->copy[i]->drop) send_away(cuda, w->copy[i]);
    free_ring(cuda);
    vx_cuda_free(cuda, w->bounce, VX_CUDA_CHUNK);
    w->bounce = NULL;
}

void vx_cuda_weights_close(vx_cuda *cuda)
{
    vx_cuda_weights *w = cuda->weights;
    synchronize(cuda);
    vx_cuda_weights_trim(cuda);
    for (int i = 0; i < w->count; i++) {
        send_away(cuda, w->copy[i]);
        free_copy(w->copy[i]);
    }
    if (w->stream) (void)cudaStreamDestroy(w->stream);
    vx_free(w->copy);
    vx_free(w->queue);
    vx_free(w);
    cuda->weights = NULL;
}

// The held copy that was used longest ago, before use `before`; none of the running operator.
static vx_weight_copy *stalest(const vx_cuda *cuda, int64_t before)
{
    const vx_cuda_weights *w = cuda->weights;
    vx_weight_copy *found = NULL;
    for (int i = 0; i < w->count; i++) {
        vx_weight_copy *c = w->copy[i];
        if (c->place != HELD || c->last >= before || (c->used && c->operation == cuda->operation)) continue;
        if (!found || c->last < found->last) found = c;
    }
    return found;
}

bool vx_cuda_weights_yield(vx_cuda *cuda, size_t bytes)
{
    size_t freed = 0;
    bool any = false;
    synchronize(cuda);
    for (vx_weight_copy *c; freed < bytes && (c = stalest(cuda, INT64_MAX)) != NULL; any = true) {
        freed += c->device_bytes;
        send_away(cuda, c);
    }
    if (any || !cuda->weights->ring || ring_is_in_use(cuda)) return any;
    free_ring(cuda);
    return true;
}

static void sweep(vx_cuda *cuda)
{
    vx_cuda_weights *w = cuda->weights;
    if (w->drops == 0) return;
    synchronize(cuda);
    for (int i = 0; i < w->count; i++)
        if (w->copy[i]->drop && w->copy[i]->operation < cuda->operation) send_away(cuda, w->copy[i]);
}

void vx_cuda_forget(vx_device *dev, const void *begin, size_t bytes)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    vx_cuda_weights *w = cuda->weights;
    const char *first = begin;
    (void)cudaSetDevice(cuda->ordinal);
    bool waited = false;
    int kept = 0;
    for (int i = 0; i < w->count; i++) {
        vx_weight_copy *c = w->copy[i];
        if (first && (c->begin >= first + bytes || c->begin + c->bytes <= first)) {
            w->copy[kept++] = c;
            continue;
        }
        if (!waited && c->place != AWAY) {
            synchronize(cuda);
            waited = true;
        }
        send_away(cuda, c);
        free_copy(c);
    }
    w->count = kept;
    if (!begin) vx_cuda_weights_trim(cuda);
}

vx_status vx_cuda_weight_budget(vx_device *dev, uint64_t bytes)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    vx_cuda_weights *w = cuda->weights;
    w->budget = bytes;
    if (bytes == 0 || w->held + w->ring_size <= bytes) return vx_ok();
    vx_cuda_weights_trim(cuda);
    synchronize(cuda);
    for (vx_weight_copy *c; w->held > bytes && (c = stalest(cuda, INT64_MAX)) != NULL;) send_away(cuda, c);
    return vx_ok();
}

vx_weight_stats vx_cuda_weight_stats(const vx_device *dev)
{
    const vx_cuda_weights *w = vx_cuda_of_const(dev)->weights;
    return (vx_weight_stats){
        .budget = w->budget, .resident = w->held + w->ring_size, .copied = w->copied, .hits = w->hits, .misses = w->misses
    };
}

// ---- finding ----
static int first_behind(const vx_cuda_weights *w, const char *begin)
{
    int low = 0, high = w->count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (w->copy[middle]->begin <= begin) low = middle + 1;
        else high = middle;
    }
    return low;
}

// One that holds these bytes on the device, a larger one too; else the record of exactly these bytes.
static vx_weight_copy *find(const vx_cuda_weights *w, const char *begin, size_t bytes, vx_dtype from, vx_dtype to)
{
    vx_weight_copy *exact = NULL;
    const size_t width = vx_dtype_bits(from) >= 8 ? (size_t)vx_dtype_bits(from) / 8 : 1;
    for (int i = first_behind(w, begin) - 1; i >= 0 && (size_t)(begin - w->copy[i]->begin) < w->longest; i--) {
        vx_weight_copy *c = w->copy[i];
        const size_t offset = (size_t)(begin - c->begin);
        if (c->to != to || c->from != from) continue;
        // Inside a larger copy only where vectors can begin: a product's algorithm depends on it, and its bits must not.
        const size_t on_device = offset / width * (size_t)(vx_dtype_bits(to) / 8);
        if (c->device && offset + bytes <= c->bytes && offset % width == 0 && on_device % 16 == 0) return c;
        if (offset == 0 && c->bytes == bytes) exact = c;
    }
    return exact;
}

// Of made-up numbers: matrices keep the size of what passes through them, vectors (norms, mostly) are near 1.
static void describe(vx_weight_copy *c, vx_tensor t)
{
    const int64_t fan_in = t.rank > 1 ? vx_tensor_count(t) / t.shape[0] : 1;
    c->mean = t.rank > 1 ? 0.0f : 1.0f;
    c->deviation = t.rank > 1 ? 1.0f / sqrtf((float)fan_in) : 0.2f;
}

static vx_status add_record(vx_cuda *cuda, vx_tensor t, size_t bytes, vx_dtype to, vx_weight_copy **out)
{
    vx_cuda_weights *w = cuda->weights;
    const char *begin = t.data;
    const vx_dtype from = t.dtype;
    if (w->count == w->room) {
        const int room = w->room ? 2 * w->room : 256;
        vx_weight_copy **more = vx_realloc(w->copy, sizeof(void *) * (size_t)room);
        VX_NEED_MEMORY(more, "the list of weights");
        w->copy = more;
        w->room = room;
    }
    vx_weight_copy *c = vx_alloc_array(1, sizeof *c);
    VX_NEED_MEMORY(c, "the list of weights");
    *c = (vx_weight_copy){ .begin = begin, .bytes = bytes, .from = from, .to = to, .number = w->records++ };
    describe(c, t);
    c->device_bytes = from == to ? bytes : bytes / (size_t)vx_dtype_bits(from) * (size_t)vx_dtype_bits(to);
    vx_status s = vx_cuda_status(cudaEventCreateWithFlags(&c->ready, cudaEventDisableTiming), "event");
    if (s.code == VX_OK) s = vx_cuda_status(cudaEventCreateWithFlags(&c->done, cudaEventDisableTiming), "event");
    if (s.code != VX_OK) {
        free_copy(c);
        return s;
    }
    const int at = first_behind(w, begin);
    memmove(w->copy + at + 1, w->copy + at, sizeof(void *) * (size_t)(w->count - at));
    w->copy[at] = c;
    w->count++;
    if (bytes > w->longest) w->longest = bytes;
    *out = c;
    return vx_ok();
}

// ---- room on the device ----
static size_t ring_wanted(const vx_cuda_weights *w)
{
    return 2 * vx_align_up(w->largest, ALIGN) + RING_SMALL;
}

// Whether `bytes` more may be held, a ring for what streams set aside.
static bool fits(const vx_cuda *cuda, size_t bytes)
{
    const vx_cuda_weights *w = cuda->weights;
    const size_t wanted = ring_wanted(w), ring = w->ring_size > wanted ? w->ring_size : wanted;
    if (w->budget > 0) return w->held + bytes + ring <= w->budget;
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) return false;
    return free + vx_cuda_idle(cuda) >= bytes + MARGIN + (ring - w->ring_size);
}

// Memory of its own; false: it should stream. `before`: what was not used since may be sent away for it.
static bool hold(vx_cuda *cuda, vx_weight_copy *c, int64_t before)
{
    vx_cuda_weights *w = cuda->weights;
    while (!fits(cuda, c->device_bytes)) {
        vx_weight_copy *old = stalest(cuda, before);
        if (!old) return false;
        synchronize(cuda);
        send_away(cuda, old);
    }
    void *p = NULL;
    if (!vx_cuda_try_malloc(cuda, &p, c->device_bytes)) return false;
    c->device = p;
    c->place = HELD;
    w->held += c->device_bytes;
    return true;
}

static vx_status make_ring(vx_cuda *cuda)
{
    vx_cuda_weights *w = cuda->weights;
    const size_t wanted = ring_wanted(w);
    if (w->ring_size >= wanted || (w->ring && ring_is_in_use(cuda))) return vx_ok();
    synchronize(cuda);
    free_ring(cuda);
    while (w->budget > 0 && w->held + wanted > w->budget) {
        vx_weight_copy *old = stalest(cuda, INT64_MAX);
        if (!old) break; // a weight that is needed now may pass the budget: nothing works without it
        send_away(cuda, old);
    }
    void *p;
    VX_TRY(vx_cuda_malloc(cuda, &p, wanted, "weights"));
    w->ring = p;
    w->ring_size = wanted;
    return vx_ok();
}

// What was used in earlier operators is done when the computing stream has come to here.
static vx_status fence(vx_cuda *cuda)
{
    vx_cuda_weights *w = cuda->weights;
    for (int i = 0; i < w->queued; i++) {
        vx_weight_copy *c = w->queue[i];
        if (!c->used || c->fenced || c->operation == cuda->operation) continue;
        VX_TRY(vx_cuda_status(cudaEventRecord(c->done, cuda->stream), "weights"));
        c->fenced = true;
    }
    return vx_ok();
}

static bool lies_in(const vx_cuda_weights *w, const vx_weight_copy *c, size_t begin, size_t end)
{
    const size_t at = (size_t)(c->device - w->ring);
    return at < end && at + c->device_bytes > begin;
}

// The oldest that must go are the first of the queue: how many; -1: one of them is needed.
static int in_the_way(const vx_cuda *cuda, size_t begin, size_t end, bool ahead)
{
    const vx_cuda_weights *w = cuda->weights;
    int last = -1;
    for (int i = 0; i < w->queued; i++)
        if (lies_in(w, w->queue[i], begin, end)) last = i;
    for (int i = 0; i <= last; i++) {
        const vx_weight_copy *c = w->queue[i];
        if (c->used ? !c->fenced : ahead) return -1;
    }
    return last + 1;
}

// A place in the ring; *placed is false where none can be had: `ahead` of its use it must not push out what waits for its own.
static vx_status enter_ring(vx_cuda *cuda, vx_weight_copy *c, bool ahead, bool *placed)
{
    vx_cuda_weights *w = cuda->weights;
    *placed = false;
    VX_TRY(make_ring(cuda));
    VX_TRY(fence(cuda));
    const size_t bytes = vx_align_up(c->device_bytes, ALIGN);
    if (bytes > w->ring_size) return vx_ok();
    const size_t begin = w->head + bytes <= w->ring_size ? w->head : 0;
    const int go = in_the_way(cuda, begin, begin + bytes, ahead);
    if (go < 0) return vx_ok();
    for (int i = 0; i < go; i++) {
        vx_weight_copy *old = w->queue[0];
        if (old->fenced) VX_TRY(vx_cuda_status(cudaStreamWaitEvent(w->stream, old->done, 0), "weights"));
        send_away(cuda, old);
    }
    if (w->queued == w->queue_room) {
        const int room = w->queue_room ? 2 * w->queue_room : 64;
        vx_weight_copy **more = vx_realloc(w->queue, sizeof(void *) * (size_t)room);
        VX_NEED_MEMORY(more, "the list of weights");
        w->queue = more;
        w->queue_room = room;
    }
    w->queue[w->queued++] = c;
    w->head = begin + bytes;
    c->device = w->ring + begin;
    c->place = RING;
    *placed = true;
    return vx_ok();
}

// Where the ring has no room, because the running operator uses what lies in it: memory for this operator alone.
static vx_status hold_briefly(vx_cuda *cuda, vx_weight_copy *c)
{
    void *p;
    VX_TRY(vx_cuda_malloc(cuda, &p, c->device_bytes, "weights"));
    c->device = p;
    c->place = HELD;
    c->drop = true;
    cuda->weights->drops++;
    cuda->weights->held += c->device_bytes;
    return vx_ok();
}

// ---- copying ----
vx_status vx_cuda_made_up(vx_device *dev, uint64_t seed)
{
    vx_cuda_weights *w = vx_cuda_of(dev)->weights;
    vx_cuda_forget(dev, NULL, 0);
    w->made_up = true;
    w->seed = seed;
    w->records = 0;
    return vx_ok();
}

// A hole in a file reads as zeros; a page of them tells enough.
static bool is_hole(const vx_weight_copy *c)
{
    enum { LOOK = 4096 };
    const size_t look = c->bytes < LOOK ? c->bytes : LOOK;
    for (size_t i = 0; i < look; i++)
        if (c->begin[i] != 0) return false;
    return true;
}

static vx_status make_up(vx_cuda *cuda, vx_weight_copy *c)
{
    vx_cuda_weights *w = cuda->weights;
    const uint64_t seed = (w->seed + (uint64_t)c->number) * 0xd6e8feb86659fd93u;
    const int64_t count = (int64_t)(c->device_bytes * 8 / (size_t)vx_dtype_bits(c->to));
    VX_TRY(vx_cuda_status(vx_k_made_up(c->device, c->to, count, c->mean, c->deviation, seed, w->stream), "weights"));
    return vx_cuda_status(cudaEventRecord(c->ready, w->stream), "weights");
}

static vx_status copy_bytes(vx_cuda *cuda, vx_weight_copy *c)
{
    vx_cuda_weights *w = cuda->weights;
    if (w->made_up && is_hole(c)) return make_up(cuda, c);
    const size_t from = (size_t)vx_dtype_bits(c->from), to = (size_t)vx_dtype_bits(c->to);
    for (size_t done = 0; done < c->bytes; done += VX_CUDA_CHUNK) {
        const size_t bytes = c->bytes - done < VX_CUDA_CHUNK ? c->bytes - done : VX_CUDA_CHUNK;
        void *pinned;
        VX_TRY(vx_cuda_stage_in(cuda, c->begin + done, bytes, &pinned));
        char *target = c->from == c->to ? c->device + done : w->bounce;
        VX_TRY(vx_cuda_status(cudaMemcpyAsync(target, pinned, bytes, cudaMemcpyHostToDevice, w->stream), "weights"));
        VX_TRY(vx_cuda_staged(cuda, w->stream));
        if (c->from == c->to) continue;
        const vx_k_matrix x = { w->bounce, c->from, 0 }, out = { c->device + done / from * to, c->to, 0 };
        VX_TRY(vx_cuda_status(vx_k_convert(out, x, 1, (int64_t)(bytes * 8 / from), w->stream), "weights"));
    }
    w->copied += c->bytes;
    return vx_cuda_status(cudaEventRecord(c->ready, w->stream), "weights");
}

static vx_status bring(vx_cuda *cuda, vx_weight_copy *c, bool once, bool ahead)
{
    vx_cuda_weights *w = cuda->weights;
    VX_TRY(vx_cuda_pause(cuda));
    sweep(cuda);
    if (c->from != c->to && !w->bounce) { // first: what makes room for it must not find this copy half made
        void *p;
        VX_TRY(vx_cuda_malloc(cuda, &p, VX_CUDA_CHUNK, "weights"));
        w->bounce = p;
    }
    if (c->device_bytes > w->largest) w->largest = c->device_bytes;
    c->once = once;
    bool placed = !once && hold(cuda, c, c->last);
    if (!placed) VX_TRY(enter_ring(cuda, c, ahead, &placed));
    if (!placed && ahead) return vx_ok();
    if (!placed) VX_TRY(hold_briefly(cuda, c));
    c->awaited = c->used = c->fenced = false;
    c->operation = cuda->operation;
    if (ahead) c->last = ++w->uses;
    w->misses++;
    const vx_status s = copy_bytes(cuda, c);
    if (s.code != VX_OK) {
        synchronize(cuda);
        send_away(cuda, c);
    }
    return s;
}

// ---- use ----
void vx_cuda_weights_touch(vx_cuda *cuda, vx_weight_copy *c)
{
    c->last = ++cuda->weights->uses;
    c->operation = cuda->operation;
}

static vx_status use(vx_cuda *cuda, vx_weight_copy *c, bool once)
{
    vx_cuda_weights *w = cuda->weights;
    if (c->place == RING || c->drop) VX_TRY(vx_cuda_interrupt(cuda));
    if (!c->awaited) VX_TRY(vx_cuda_pause(cuda));
    if (!c->awaited) VX_TRY(vx_cuda_status(cudaStreamWaitEvent(cuda->stream, c->ready, 0), "weights"));
    c->awaited = c->used = true;
    c->fenced = false;
    if (once && c->place == HELD && !c->drop) {
        c->drop = true; // it was asked for ahead, by a caller who did not know
        w->drops++;
    }
    vx_cuda_weights_touch(cuda, c);
    c->recorded = c->recorded || cuda->capturing;
    vx_cuda_recording_uses(cuda, c);
    return vx_ok();
}

static vx_status is_on_device(const void *p, bool *out)
{
    struct cudaPointerAttributes attributes;
    VX_TRY(vx_cuda_status(cudaPointerGetAttributes(&attributes, p), "weights"));
    *out = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    return vx_ok();
}

// Bytes from the first element to the last.
static size_t extent(vx_tensor t)
{
    int64_t last = 0;
    for (int i = 0; i < t.rank; i++) last += (t.shape[i] - 1) * t.stride[i];
    return (size_t)vx_ceil_div((last + 1) * vx_dtype_bits(t.dtype), 8);
}

static vx_status residence(vx_cuda *cuda, vx_tensor *t, vx_dtype dtype, bool once)
{
    if (t->rank == 0 || !t->data || vx_tensor_count(*t) == 0) return vx_ok();
    bool there;
    VX_TRY(is_on_device(t->data, &there));
    if (there && dtype == t->dtype) return vx_ok();
    if (there)
        return vx_fail(VX_ERR_UNSUPPORTED, "a weight on the device is %s, expected %s", vx_dtype_name(t->dtype),
                       vx_dtype_name(dtype));
    vx_cuda_weights *w = cuda->weights;
    const char *begin = t->data;
    const size_t bytes = extent(*t);
    if (!cuda->capturing) sweep(cuda);
    vx_weight_copy *c = find(w, begin, bytes, t->dtype, dtype);
    if (!c) VX_TRY(add_record(cuda, *t, bytes, dtype, &c));
    if (c->device) w->hits++;
    else VX_TRY(bring(cuda, c, once, false));
    VX_TRY(use(cuda, c, once));
    const size_t offset = (size_t)(begin - c->begin);
    t->data = c->device + (t->dtype == dtype ? offset : offset / (size_t)vx_dtype_bits(t->dtype) * (size_t)vx_dtype_bits(dtype));
    t->dtype = dtype;
    return vx_ok();
}

vx_status vx_cuda_resident(vx_cuda *cuda, vx_tensor *t, bool once)
{
    return residence(cuda, t, t->dtype, once);
}

vx_status vx_cuda_resident_as(vx_cuda *cuda, vx_tensor *t, vx_dtype dtype, bool once)
{
    return residence(cuda, t, dtype, once);
}

static bool has_parts(const vx_cuda_weights *w, const char *begin, size_t bytes)
{
    for (int i = first_behind(w, begin - 1); i < w->count && w->copy[i]->begin < begin + bytes; i++)
        if (w->copy[i]->device) return true;
    return false;
}

vx_status vx_cuda_prefetch(vx_device *dev, vx_tensor weight)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    vx_cuda_weights *w = cuda->weights;
    if (weight.rank == 0 || !weight.data || vx_tensor_count(weight) == 0) return vx_ok();
    bool there;
    VX_TRY(is_on_device(weight.data, &there));
    if (there) return vx_ok();
    const char *begin = weight.data;
    const size_t bytes = extent(weight);
    static const vx_dtype targets[] = { VX_DTYPE_NONE, VX_F32, VX_BF16, VX_F16 }; // the first stands for the bytes as they are
    vx_weight_copy *c = NULL;
    for (int i = 0; i < 4 && !c; i++) c = find(w, begin, bytes, weight.dtype, i == 0 ? weight.dtype : targets[i]);
    if (c) return c->device ? vx_ok() : bring(cuda, c, c->once, true);
    // Parts of it are there: operators take it in parts. And f32 or f16 will most often be converted, nobody knows yet to what.
    if (has_parts(w, begin, bytes) || weight.dtype == VX_F32 || weight.dtype == VX_F16) return vx_ok();
    VX_TRY(add_record(cuda, weight, bytes, weight.dtype, &c));
    return bring(cuda, c, false, true);
}
