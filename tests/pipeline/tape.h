// A device for tests that records, as a GPU does: the CPU back end with a tape. A stretch of a new identity runs by itself, then is
// put on the tape while it runs, then is played from it: every operator once more with the very arguments that it had, whatever
// the caller means by now. So a stretch that is taken for another one gives wrong numbers, as a CUDA graph would.
//
// Memory that is given back stays at its place for the next one who wants exactly so much, full of NaNs. Until it is taken again
// nobody may look at it.
#ifndef VX_TESTS_TAPE_H
#define VX_TESTS_TAPE_H

#include <stdlib.h>
#include <string.h>

#include "device/backend.h"

enum { TAPE_IDENTITIES = 8, TAPE_IDLE = 8 }; // four shapes of a denoiser of two stretches

typedef struct tape_entry {
    vx_status (*run)(vx_device *inner, const void *args);
    void *args;
    vx_weight weight; // of a linear, which its arguments point to
    vx_branch *branch;
} tape_entry;

typedef struct tape_stretch {
    void *identity;
    size_t bytes;
    bool quiet;
    int epoch;
    tape_entry *entry;
    int entries, room;
    int64_t last;
} tape_stretch;

struct vx_recording {
    tape_stretch stretch[TAPE_IDENTITIES];
    tape_stretch *running;
};

typedef struct tape {
    vx_device base;
    vx_device *inner;
    vx_recording *recording; // that runs now
    bool on, loud, off;      // on: operators are put on the tape; loud: something happened that no tape holds; off: no graphs
    int epoch;
    int64_t uses;
    struct {
        void *p;
        size_t bytes;
    } idle[TAPE_IDLE];
    size_t held, idle_bytes;
    int64_t played, passing; // stretches played; products whose weights pass by once
    vx_recording *slot;      // the last that was used
    uint64_t memory;         // what it says that there is; tapes lie in it, TAPE_BYTES each
} tape;
enum { TAPE_BYTES = 1 << 20 };

static tape *tape_of(vx_device *dev)
{
    return (tape *)dev;
}
static vx_device *tape_inner(const vx_device *dev)
{
    return ((const tape *)dev)->inner;
}

// ---- memory ----
static void tape_drop_idle(tape *t, int i)
{
    free(t->idle[i].p);
    t->idle_bytes -= t->idle[i].bytes;
    memmove(t->idle + i, t->idle + i + 1, sizeof t->idle[0] * (size_t)(TAPE_IDLE - 1 - i));
    t->idle[TAPE_IDLE - 1].p = NULL;
    t->idle[TAPE_IDLE - 1].bytes = 0;
}
static vx_status tape_alloc(vx_device *dev, void **out, size_t bytes)
{
    tape *t = tape_of(dev);
    t->loud = true;
    *out = NULL;
    for (int i = 0; i < TAPE_IDLE && !*out; i++) {
        if (!t->idle[i].p || t->idle[i].bytes != bytes) continue;
        *out = t->idle[i].p;
        t->idle[i].p = NULL;
        tape_drop_idle(t, i);
    }
    if (!*out) *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    memset(*out, 0xff, bytes); // not zero, as device.h promises it: nobody may need that
    t->held += bytes;
    return vx_ok();
}
static void tape_free(vx_device *dev, void *p, size_t bytes)
{
    tape *t = tape_of(dev);
    int i = 0;
    t->loud = true;
    t->held -= bytes;
    while (i < TAPE_IDLE && t->idle[i].p) i++;
    if (i == TAPE_IDLE) tape_drop_idle(t, 0), i--;
    memset(p, 0xff, bytes);
    t->idle[i].p = p;
    t->idle[i].bytes = bytes;
    t->idle_bytes += bytes;
}
static void tape_erase(tape_stretch *s)
{
    for (int i = 0; i < s->entries; i++) {
        free(s->entry[i].args);
        free(s->entry[i].branch);
    }
    s->entries = 0;
}
static void tape_shed(vx_device *dev)
{
    tape *t = tape_of(dev);
    while (t->idle[0].p) tape_drop_idle(t, 0);
    for (int i = 0; i < TAPE_IDENTITIES && t->slot && !t->recording; i++) tape_erase(&t->slot->stretch[i]);
}
static vx_device_memory tape_memory(const vx_device *dev)
{
    const tape *t = (const tape *)dev;
    uint64_t tapes = 0;
    for (int i = 0; i < TAPE_IDENTITIES && t->slot; i++) tapes += t->slot->stretch[i].entries ? TAPE_BYTES : 0;
    return (vx_device_memory){ .total = t->memory, .free = t->memory - t->held - tapes, .held = t->held, .peak = t->held };
}
// A GPU's copies of these weights go: what was recorded with them is worth nothing.
static bool tape_uses(const tape_entry *e, const char *begin, size_t bytes)
{
    for (int i = 0; e->branch && i < e->weight.segments; i++) {
        const char *data = e->weight.segment[i].weight.data;
        if (data >= begin && data < begin + bytes) return true;
    }
    for (int i = 0; e->branch && i < e->weight.branches; i++) {
        const char *data = e->branch[i].a.data;
        if (data >= begin && data < begin + bytes) return true;
    }
    return false;
}
static void tape_forget(vx_device *dev, const void *begin, size_t bytes)
{
    tape *t = tape_of(dev);
    bool used = !begin;
    for (int i = 0; i < TAPE_IDENTITIES && t->slot; i++)
        for (int k = 0; k < t->slot->stretch[i].entries; k++)
            used = used || tape_uses(&t->slot->stretch[i].entry[k], begin, bytes);
    t->epoch += used;
}

// ---- passed on ----
static void tape_destroy(vx_device *dev)
{
    tape_shed(dev);
    free(dev);
}
static const char *tape_isa(const vx_device *dev)
{
    return vx_device_isa(tape_inner(dev));
}
static int tape_threads(const vx_device *dev)
{
    return vx_device_threads(tape_inner(dev));
}
static vx_status tape_reserve(vx_device *dev, size_t bytes)
{
    return vx_device_reserve(tape_inner(dev), bytes);
}
static void tape_release(vx_device *dev)
{
    vx_device_release(tape_inner(dev));
}
static vx_status tape_upload(vx_device *dev, vx_tensor to, const void *from)
{
    tape_of(dev)->loud = true;
    return vx_upload(tape_inner(dev), to, from);
}
static vx_status tape_download(vx_device *dev, void *to, vx_tensor from)
{
    tape_of(dev)->loud = true;
    return vx_download(tape_inner(dev), to, from);
}
static vx_status tape_sync(vx_device *dev)
{
    tape_of(dev)->loud = true;
    return vx_device_sync(tape_inner(dev));
}

// ---- operators ----
static void tape_put(tape *t, vx_status (*run)(vx_device *, const void *), const void *args, size_t bytes, bool linear)
{
    tape_stretch *s = t->recording->running;
    if (s->entries == s->room) {
        s->room = s->room ? 2 * s->room : 64;
        s->entry = realloc(s->entry, sizeof *s->entry * (size_t)s->room);
    }
    tape_entry *e = &s->entry[s->entries++];
    *e = (tape_entry){ .run = run, .args = malloc(bytes) };
    memcpy(e->args, args, bytes);
    if (!linear) return;
    e->weight = *((const vx_linear_args *)args)->weight;
    const size_t branches = sizeof *e->branch * (size_t)e->weight.branches;
    e->branch = malloc(branches + 1);
    if (branches) memcpy(e->branch, e->weight.branch, branches);
}
#define TAPE_OP(op)                                                                           \
    static vx_status tape_run_##op(vx_device *inner, const void *args)                        \
    {                                                                                         \
        return inner->ops->op(inner, args);                                                   \
    }                                                                                         \
    static vx_status tape_##op(vx_device *dev, const vx_##op##_args *args)                    \
    {                                                                                         \
        tape *t = tape_of(dev);                                                               \
        const bool linear = !strcmp(#op, "linear");                                           \
        if (linear) t->passing += ((const vx_linear_args *)(const void *)args)->weight->once; \
        if (t->on) tape_put(t, tape_run_##op, args, sizeof *args, linear);                    \
        return t->inner->ops->op(t->inner, args);                                             \
    }
VX_OPERATORS(TAPE_OP)
#undef TAPE_OP
#define TAPE_SCRATCH(op)                                                                \
    static size_t tape_##op##_scratch(const vx_device *dev, const vx_##op##_args *args) \
    {                                                                                   \
        const vx_device *inner = tape_inner(dev);                                       \
        return inner->ops->op##_scratch(inner, args);                                   \
    }
VX_SCRATCH_OPERATORS(TAPE_SCRATCH)
#undef TAPE_SCRATCH

// ---- recording ----
static void tape_clear(tape_stretch *s)
{
    tape_erase(s);
    free(s->entry);
    free(s->identity);
    *s = (tape_stretch){ 0 };
}
static vx_status tape_play(tape *t, tape_stretch *s)
{
    for (int i = 0; i < s->entries; i++) {
        tape_entry *e = &s->entry[i];
        if (e->branch) {
            e->weight.branch = e->branch;
            ((vx_linear_args *)e->args)->weight = &e->weight;
        }
        VX_TRY(e->run(t->inner, e->args));
    }
    t->played++;
    return vx_ok();
}
static tape_stretch *tape_find(vx_recording *r, const void *identity, size_t bytes)
{
    tape_stretch *oldest = &r->stretch[0];
    for (int i = 0; i < TAPE_IDENTITIES; i++) {
        tape_stretch *s = &r->stretch[i];
        if (s->identity && s->bytes == bytes && !memcmp(s->identity, identity, bytes)) return s;
        if (s->last < oldest->last) oldest = s;
    }
    tape_clear(oldest);
    oldest->identity = malloc(bytes);
    oldest->bytes = bytes;
    memcpy(oldest->identity, identity, bytes);
    return oldest;
}
static vx_status tape_record(vx_device *dev, vx_recording **slot, const void *identity, size_t bytes, bool *replayed)
{
    tape *t = tape_of(dev);
    *replayed = false;
    if (t->off || t->recording) return vx_ok();
    if (!*slot) *slot = calloc(1, sizeof **slot);
    t->slot = *slot;
    tape_stretch *s = tape_find(*slot, identity, bytes);
    s->last = ++t->uses;
    const bool current = s->quiet && s->epoch == t->epoch;
    if (current && s->entries) {
        *replayed = true;
        return tape_play(t, s);
    }
    tape_erase(s);
    (*slot)->running = s;
    t->recording = *slot;
    t->on = current;
    t->loud = false;
    return vx_ok();
}
static vx_status tape_record_end(vx_device *dev, vx_recording **slot, vx_status inside)
{
    tape *t = tape_of(dev);
    if (!t->recording || t->recording != *slot) return inside;
    tape_stretch *s = (*slot)->running;
    s->quiet = !inside.code && !t->loud;
    s->epoch = t->epoch;
    if (!s->quiet) tape_erase(s);
    t->recording = NULL;
    t->on = false;
    return inside;
}
static void tape_record_free(vx_device *dev, vx_recording **slot)
{
    if (!*slot) return;
    for (int i = 0; i < TAPE_IDENTITIES; i++) tape_clear(&(*slot)->stretch[i]);
    free(*slot);
    tape_of(dev)->slot = *slot = NULL;
}
static void tape_graphs(vx_device *dev, bool on)
{
    tape_of(dev)->off = !on;
}

static const struct vx_ops tape_ops = { .destroy = tape_destroy,
                                        .isa = tape_isa,
                                        .threads = tape_threads,
                                        .memory_alloc = tape_alloc,
                                        .memory_free = tape_free,
                                        .reserve = tape_reserve,
                                        .release = tape_release,
                                        .upload = tape_upload,
                                        .download = tape_download,
                                        .sync = tape_sync,
                                        .memory = tape_memory,
                                        .forget = tape_forget,
                                        .shed = tape_shed,
                                        .record = tape_record,
                                        .record_end = tape_record_end,
                                        .record_free = tape_record_free,
                                        .graphs = tape_graphs,
#define TAPE_MEMBER(op) .op = tape_##op,
                                        VX_OPERATORS(TAPE_MEMBER)
#undef TAPE_MEMBER
#define TAPE_MEMBER(op) .op##_scratch = tape_##op##_scratch,
                                            VX_SCRATCH_OPERATORS(TAPE_MEMBER)
#undef TAPE_MEMBER
};

// Borrows the CPU device.
static tape *tape_create(vx_device *inner)
{
    tape *t = calloc(1, sizeof *t);
    t->base = (vx_device){ .ops = &tape_ops, .name = "tape", .computes = true, .far = true };
    t->inner = inner;
    t->memory = (uint64_t)24 << 30;
    return t;
}

#endif
