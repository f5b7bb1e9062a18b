// The symbols of a piece form a doubly linked list; a heap of (rank, position) gives the next merge. An entry of the heap
// is stale, and skipped, when the pair at its position has another rank by now: rank[] says which.
#include "text/bpe.h"

#include "base/alloc.h"
#include "base/checked.h"

enum { NONE = -1, SMALLEST_WORK = 256 };

static uint64_t slot_of(uint64_t pair, uint64_t mask)
{
    pair *= 0x9e3779b97f4a7c15u; // 2^64 over the golden ratio (Knuth, volume 3, 6.4)
    return (pair ^ pair >> 32) & mask;
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

vx_status vx_bpe_init(vx_bpe *bpe, int64_t merges)
{
    *bpe = (vx_bpe){ 0 };
    size_t slots = 16;
    while (slots < (size_t)merges * 2) slots *= 2;
    bpe->merged = vx_alloc_array((size_t)merges + 1, sizeof *bpe->merged);
    bpe->slot = vx_alloc_array(slots, sizeof *bpe->slot);
    if (!bpe->merged || !bpe->slot) {
        vx_bpe_free(bpe);
        return vx_no_memory("for %lld merges", (long long)merges);
    }
    for (size_t i = 0; i < slots; i++) bpe->slot[i].rank = NONE;
    bpe->mask = slots - 1;
    return vx_ok();
}

bool vx_bpe_add(vx_bpe *bpe, int32_t left, int32_t right, int32_t merged)
{
    uint64_t pair = pair_of(left, right), i = slot_of(pair, bpe->mask);
    for (; bpe->slot[i].rank != NONE; i = (i + 1) & bpe->mask)
        if (bpe->slot[i].pair == pair) return false;
    bpe->slot[i] = (vx_bpe_slot){ pair, (int32_t)bpe->merges };
    bpe->merged[bpe->merges++] = merged;
    return true;
}

void vx_bpe_free(vx_bpe *bpe)
{
    vx_free(bpe->merged);
    vx_free(bpe->slot);
    *bpe = (vx_bpe){ 0 };
}

static int32_t rank_of(const vx_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t pair = pair_of(left, right), i = slot_of(pair, bpe->mask);
    for (; bpe->slot[i].rank != NONE; i = (i + 1) & bpe->mask)
        if (bpe->slot[i].pair == pair) return bpe->slot[i].rank;
    return NONE;
}

void vx_bpe_work_free(vx_bpe_work *w)
{
    vx_free(w->id);
    vx_free(w->next);
    vx_free(w->prev);
    vx_free(w->rank);
    vx_free(w->heap);
    *w = (vx_bpe_work){ 0 };
}

// For n symbols. A merge takes one entry from the heap and adds at most two: n - 1 at first and n - 1 merges need 2n.
static vx_status reserve(vx_bpe_work *w, size_t n)
{
    if (n <= w->capacity) return vx_ok();
    if (n > INT32_MAX / 2) return vx_fail(VX_ERR_PROMPT, "a word of %zu bytes is too long", n);
    if (n < SMALLEST_WORK) n = SMALLEST_WORK;
    vx_bpe_work_free(w);
    w->id = vx_alloc(n * sizeof *w->id);
    w->next = vx_alloc(n * sizeof *w->next);
    w->prev = vx_alloc(n * sizeof *w->prev);
    w->rank = vx_alloc(n * sizeof *w->rank);
    w->heap = vx_alloc(2 * n * sizeof *w->heap);
    if (!w->id || !w->next || !w->prev || !w->rank || !w->heap) {
        vx_bpe_work_free(w);
        return vx_no_memory("to merge %zu bytes", n);
    }
    w->capacity = n;
    return vx_ok();
}

// ---- a binary heap, smallest first: rank in the upper half, so that equal ranks come from left to right ----
static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t x = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= x) break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t x)
{
    size_t i = (*n)++;
    for (; i > 0 && heap[(i - 1) / 2] > x; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = x;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
    uint64_t top = heap[0];
    heap[0] = heap[--*n];
    if (*n) sift_down(heap, *n, 0);
    return top;
}

// Finds the rank of the pair that begins at i and queues it.
static void consider(const vx_bpe *bpe, vx_bpe_work *w, int32_t i, size_t *queued)
{
    int32_t j = w->next[i];
    w->rank[i] = j == NONE ? NONE : rank_of(bpe, w->id[i], w->id[j]);
    if (w->rank[i] != NONE) heap_push(w->heap, queued, (uint64_t)w->rank[i] << 32 | (uint32_t)i);
}

static void merge_all(const vx_bpe *bpe, vx_bpe_work *w, size_t queued)
{
    while (queued > 0) {
        uint64_t top = heap_pop(w->heap, &queued);
        int32_t i = (int32_t)(uint32_t)top, rank = (int32_t)(top >> 32);
        if (w->rank[i] != rank) continue;
        int32_t j = w->next[i], after = w->next[j];
        w->id[i] = bpe->merged[rank];
        w->rank[j] = NONE;
        w->next[i] = after;
        if (after != NONE) w->prev[after] = i;
        consider(bpe, w, i, &queued);
        if (w->prev[i] != NONE) consider(bpe, w, w->prev[i], &queued);
    }
}

vx_status vx_bpe_apply(const vx_bpe *bpe, vx_bpe_work *w, const char *bytes, size_t n, vx_tokens *out)
{
    if (n == 0) return vx_ok();
    if (n == 1) return vx_tokens_put(out, bpe->byte_id[(uint8_t)bytes[0]]);
    VX_TRY(reserve(w, n));
    for (size_t i = 0; i < n; i++) {
        w->id[i] = bpe->byte_id[(uint8_t)bytes[i]];
        w->prev[i] = (int32_t)i - 1;
        w->next[i] = i + 1 < n ? (int32_t)i + 1 : NONE;
    }
    size_t queued = 0;
    for (size_t i = 0; i < n; i++) {
        w->rank[i] = i + 1 < n ? rank_of(bpe, w->id[i], w->id[i + 1]) : NONE;
        if (w->rank[i] != NONE) w->heap[queued++] = (uint64_t)w->rank[i] << 32 | (uint32_t)i;
    }
    for (size_t i = queued / 2; i-- > 0;) sift_down(w->heap, queued, i);
    merge_all(bpe, w, queued);
    for (int32_t i = 0; i != NONE; i = w->next[i]) VX_TRY(vx_tokens_put(out, w->id[i]));
    return vx_ok();
}

vx_status vx_tokens_put(vx_tokens *t, int32_t id)
{
    if (t->count == t->capacity) {
        size_t bytes;
        int64_t capacity = t->capacity < 64 ? 64 : t->capacity;
        if (!vx_mul_i64(capacity, 2, &capacity) || !vx_mul_size((size_t)capacity, sizeof *t->ids, &bytes))
            return vx_fail(VX_ERR_PROMPT, "too many tokens");
        int32_t *ids = vx_realloc(t->ids, bytes);
        VX_NEED_MEMORY(ids, "token ids");
        t->ids = ids;
        t->capacity = capacity;
    }
    t->ids[t->count++] = id;
    return vx_ok();
}
