// Memory of the card, and the way to and from it: a ring of pinned pieces. A copy of pageable memory would wait for the card;
// from a pinned piece it runs while the next piece is being filled.
#include "base/alloc.h"
#include "base/checked.h"
#include "base/pool.h"
#include "device/cuda/cuda.h"
#include <stdio.h>
#include <string.h>

enum {
    PIECES = 4,
    SLICE = 1 << 20,    // of a piece, for one thread
    MARGIN = 512 << 20, // that idle memory leaves free, for what CUDA and the libraries take by themselves
    IDLE_SHARE = 8,     // of the card: an eighth may be idle
    MOST_THREADS = 8,   // a mapped file comes at 5 to 10 GB/s a thread, the bus takes up to 55 GB/s
};

struct vx_cuda_stage {
    char *pinned;
    cudaEvent_t free[PIECES]; // the stream has read or written the piece
    int next;
    vx_pool *pool;
};

vx_status vx_cuda_no_memory(const char *what, const char *why)
{
    size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    return vx_fail_remedy(VX_ERR_MEMORY, "close what else uses the card, or ask for fewer frames or a smaller picture",
                          "%s: %s, %zu of %zu bytes are free", what, why, free, total);
}

vx_status vx_cuda_status(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return vx_ok();
    if (error == cudaErrorMemoryAllocation) return vx_cuda_no_memory(what, "out of memory on the CUDA device");
    return vx_fail(VX_ERR_DEVICE, "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

// ---- device memory ----
static void count(vx_cuda *cuda, size_t bytes)
{
    cuda->held += bytes;
    if (cuda->held > cuda->peak) cuda->peak = cuda->held;
}

static void drop_oldest_idle(vx_cuda *cuda)
{
    (void)cudaFree(cuda->idle[0].p); // waits
    memmove(cuda->idle, cuda->idle + 1, sizeof *cuda->idle * (size_t)--cuda->idle_blocks);
}

static cudaError_t counted_malloc(vx_cuda *cuda, void **out, size_t bytes)
{
    size_t free = 0, total = 0;
    *out = NULL;
    while (cuda->idle_blocks > 0 && cudaMemGetInfo(&free, &total) == cudaSuccess && free < bytes + MARGIN) drop_oldest_idle(cuda);
    const cudaError_t error = cudaMalloc(out, bytes);
    if (error == cudaErrorMemoryAllocation) (void)cudaGetLastError(); // it is answered here
    if (error == cudaSuccess) count(cuda, bytes);
    return error;
}

static void free_scratch(vx_cuda *cuda)
{
    if (cuda->scratch) {
        (void)cudaSetDevice(cuda->ordinal);
        (void)cudaFree(cuda->scratch);
        cuda->held -= cuda->reserved;
        cuda->epoch++;
    }
    cuda->scratch = NULL;
    cuda->scratch_size = cuda->reserved = 0;
}

// What is easiest to have again goes first. False: there was nothing. Not in the middle of a capture.
static bool give_way(vx_cuda *cuda)
{
    if (cuda->idle_blocks > 0) {
        drop_oldest_idle(cuda);
        return true;
    }
    if (vx_cuda_drop_graphs(cuda)) return true;
    if (!cuda->scratch || cuda->reserved > 0) return false;
    free_scratch(cuda);
    return true;
}

bool vx_cuda_try_malloc(vx_cuda *cuda, void **out, size_t bytes)
{
    cudaError_t error = counted_malloc(cuda, out, bytes);
    while (error == cudaErrorMemoryAllocation && give_way(cuda)) error = counted_malloc(cuda, out, bytes);
    return error == cudaSuccess;
}

void vx_cuda_free(vx_cuda *cuda, void *p, size_t bytes)
{
    if (!p) return;
    (void)cudaFree(p);
    cuda->held -= bytes;
}

vx_status vx_cuda_malloc(vx_cuda *cuda, void **out, size_t bytes, const char *what)
{
    cudaError_t error = counted_malloc(cuda, out, bytes);
    while (error == cudaErrorMemoryAllocation && (give_way(cuda) || vx_cuda_weights_yield(cuda, bytes)))
        error = counted_malloc(cuda, out, bytes);
    if (error != cudaErrorMemoryAllocation) return vx_cuda_status(error, what);
    char why[64];
    snprintf(why, sizeof why, "%zu bytes of device memory asked for", bytes);
    return vx_cuda_no_memory(what, why);
}

// ---- blocks ----
vx_status vx_cuda_block_take(vx_cuda *cuda, void **out, size_t bytes, const char *what)
{
    for (int i = cuda->idle_blocks - 1; i >= 0; i--) {
        if (cuda->idle[i].bytes != bytes) continue;
        *out = cuda->idle[i].p;
        memmove(cuda->idle + i, cuda->idle + i + 1, sizeof *cuda->idle * (size_t)(--cuda->idle_blocks - i));
        count(cuda, bytes);
        return vx_ok();
    }
    return vx_cuda_malloc(cuda, out, bytes, what);
}

// Who takes it next works on the same stream, behind whoever uses it still.
void vx_cuda_block_return(vx_cuda *cuda, void *p, size_t bytes)
{
    if (!p) return;
    const uint64_t most = cuda->memory / IDLE_SHARE;
    while (cuda->idle_blocks == VX_CUDA_IDLE_BLOCKS || (cuda->idle_blocks > 0 && vx_cuda_idle(cuda) + bytes > most))
        drop_oldest_idle(cuda);
    cuda->held -= bytes;
    if (bytes > most) (void)cudaFree(p);
    else cuda->idle[cuda->idle_blocks++] = (vx_cuda_block){ p, bytes };
}

uint64_t vx_cuda_idle(const vx_cuda *cuda)
{
    uint64_t bytes = cuda->scratch_size - cuda->reserved;
    for (int i = 0; i < cuda->idle_blocks; i++) bytes += cuda->idle[i].bytes;
    return bytes;
}

void vx_cuda_shed(vx_device *dev)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    (void)cudaSetDevice(cuda->ordinal);
    while (!cuda->capturing && give_way(cuda)) {
    }
}

// ---- scratch ----
void vx_cuda_release(vx_device *dev)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    cuda->held -= cuda->reserved;
    cuda->reserved = 0;
    vx_cuda_weights_trim(cuda);
}

vx_status vx_cuda_reserve(vx_device *dev, size_t bytes)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    if (bytes <= cuda->reserved) return vx_ok();
    if (bytes <= cuda->scratch_size) {
        count(cuda, bytes - cuda->reserved);
        cuda->reserved = bytes;
        return vx_ok();
    }
    VX_TRY(vx_cuda_pause(cuda));
    free_scratch(cuda); // first: the two together might not fit
    VX_TRY(vx_cuda_malloc(cuda, &cuda->scratch, bytes, "scratch"));
    cuda->scratch_size = cuda->reserved = bytes;
    return vx_ok();
}

vx_status vx_cuda_scratch(vx_cuda *cuda, size_t bytes, void **out)
{
    if (bytes > cuda->reserved) {
        VX_TRY(vx_cuda_reserve(&cuda->base, bytes));
        cuda->scratch_growths++;
    }
    *out = cuda->scratch;
    return vx_ok();
}

// ---- pinned pieces ----
vx_status vx_cuda_stage_open(vx_cuda *cuda)
{
    vx_cuda_stage *stage = vx_alloc_array(1, sizeof *stage);
    VX_NEED_MEMORY(stage, "the CUDA device");
    cuda->stage = stage;
    VX_TRY(vx_pool_create(&stage->pool, 0));
    if (vx_pool_threads(stage->pool) > MOST_THREADS) {
        vx_pool_destroy(&stage->pool);
        VX_TRY(vx_pool_create(&stage->pool, MOST_THREADS));
    }
    VX_TRY(vx_cuda_status(cudaMallocHost((void **)&stage->pinned, (size_t)PIECES * VX_CUDA_CHUNK), "pinned memory"));
    for (int i = 0; i < PIECES; i++)
        VX_TRY(vx_cuda_status(cudaEventCreateWithFlags(&stage->free[i], cudaEventDisableTiming), "event"));
    return vx_ok();
}

void vx_cuda_stage_close(vx_cuda *cuda)
{
    vx_cuda_stage *stage = cuda->stage;
    if (!stage) return;
    for (int i = 0; i < PIECES; i++)
        if (stage->free[i]) (void)cudaEventDestroy(stage->free[i]);
    if (stage->pinned) (void)cudaFreeHost(stage->pinned);
    if (stage->pool) vx_pool_destroy(&stage->pool);
    vx_free(stage);
    cuda->stage = NULL;
}

struct slices {
    char *to;
    const char *from;
    size_t bytes;
};

static void copy_slice(void *ctx, int64_t piece, int worker)
{
    (void)worker;
    const struct slices *job = ctx;
    const size_t begin = (size_t)piece * SLICE;
    const size_t rest = job->bytes - begin;
    memcpy(job->to + begin, job->from + begin, rest < SLICE ? rest : SLICE);
}

static void copy_host(vx_cuda_stage *stage, void *to, const void *from, size_t bytes)
{
    struct slices job = { to, from, bytes };
    vx_pool_run(stage->pool, vx_ceil_div((int64_t)bytes, SLICE), copy_slice, &job);
}

static char *piece(vx_cuda_stage *stage, int i)
{
    return stage->pinned + (size_t)i * VX_CUDA_CHUNK;
}

vx_status vx_cuda_stage_in(vx_cuda *cuda, const void *host, size_t bytes, void **pinned)
{
    vx_cuda_stage *stage = cuda->stage;
    VX_TRY(vx_cuda_status(cudaEventSynchronize(stage->free[stage->next]), "copy to the device"));
    *pinned = piece(stage, stage->next);
    copy_host(stage, *pinned, host, bytes);
    return vx_ok();
}

vx_status vx_cuda_staged(vx_cuda *cuda, cudaStream_t stream)
{
    vx_cuda_stage *stage = cuda->stage;
    const int i = stage->next;
    stage->next = (i + 1) % PIECES;
    return vx_cuda_status(cudaEventRecord(stage->free[i], stream), "copy to the device");
}

// ---- uploads and downloads ----
static size_t part(size_t done, size_t bytes)
{
    return bytes - done < VX_CUDA_CHUNK ? bytes - done : VX_CUDA_CHUNK;
}

vx_status vx_cuda_upload(vx_device *dev, vx_tensor to, const void *from)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    const size_t bytes = vx_tensor_bytes(to);
    VX_TRY(vx_cuda_interrupt(cuda));
    for (size_t done = 0; done < bytes; done += VX_CUDA_CHUNK) {
        void *pinned;
        VX_TRY(vx_cuda_stage_in(cuda, (const char *)from + done, part(done, bytes), &pinned));
        VX_TRY(vx_cuda_status(
            cudaMemcpyAsync((char *)to.data + done, pinned, part(done, bytes), cudaMemcpyHostToDevice, cuda->stream), "upload"));
        VX_TRY(vx_cuda_staged(cuda, cuda->stream));
    }
    return vx_ok();
}

vx_status vx_cuda_download(vx_device *dev, void *to, vx_tensor from)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    vx_cuda_stage *stage = cuda->stage;
    const size_t bytes = vx_tensor_bytes(from);
    const int first = stage->next;
    VX_TRY(vx_cuda_interrupt(cuda));
    // Up to PIECES pieces are under way; the oldest is emptied when all are.
    size_t asked = 0, done = 0;
    int ask = first, empty = first, under_way = 0;
    while (done < bytes) {
        if (asked < bytes && under_way < PIECES) {
            VX_TRY(vx_cuda_status(cudaEventSynchronize(stage->free[ask]), "download"));
            VX_TRY(vx_cuda_status(cudaMemcpyAsync(piece(stage, ask), (const char *)from.data + asked, part(asked, bytes),
                                                  cudaMemcpyDeviceToHost, cuda->stream),
                                  "download"));
            VX_TRY(vx_cuda_status(cudaEventRecord(stage->free[ask], cuda->stream), "download"));
            asked += part(asked, bytes);
            ask = (ask + 1) % PIECES;
            under_way++;
            continue;
        }
        VX_TRY(vx_cuda_status(cudaEventSynchronize(stage->free[empty]), "download"));
        copy_host(stage, (char *)to + done, piece(stage, empty), part(done, bytes));
        done += part(done, bytes);
        empty = (empty + 1) % PIECES;
        under_way--;
    }
    stage->next = ask;
    return vx_ok();
}
