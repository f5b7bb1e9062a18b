// The trace back end: passes every operator on to another one, and tells what it took and whether what came out is finite.
// It is a device like any other, so a run without it pays nothing.
#include "base/alloc.h"
#include "base/clock.h"
#include "device/cost.h"

struct trace {
    vx_device base;
    vx_device *inner;
    vx_trace_params params;
    vx_tensor flag; // one i32 in the inner device's memory
};

enum { FLAG_BYTES = sizeof(int32_t) };

static vx_device *inner_of(const vx_device *dev)
{
    return ((const struct trace *)dev)->inner;
}

static void trace_destroy(vx_device *dev)
{
    struct trace *t = (struct trace *)dev;
    if (t->flag.data) t->inner->ops->memory_free(t->inner, t->flag.data, FLAG_BYTES);
    vx_free(t);
}

static const char *trace_isa(const vx_device *dev)
{
    return inner_of(dev)->ops->isa(inner_of(dev));
}
static int trace_threads(const vx_device *dev)
{
    return inner_of(dev)->ops->threads(inner_of(dev));
}

static vx_status trace_memory_alloc(vx_device *dev, void **out, size_t bytes)
{
    return inner_of(dev)->ops->memory_alloc(inner_of(dev), out, bytes);
}

static void trace_memory_free(vx_device *dev, void *p, size_t bytes)
{
    inner_of(dev)->ops->memory_free(inner_of(dev), p, bytes);
}

static vx_status trace_reserve(vx_device *dev, size_t bytes)
{
    return inner_of(dev)->ops->reserve(inner_of(dev), bytes);
}
static void trace_release(vx_device *dev)
{
    inner_of(dev)->ops->release(inner_of(dev));
}

static vx_status trace_upload(vx_device *dev, vx_tensor to, const void *from)
{
    return inner_of(dev)->ops->upload(inner_of(dev), to, from);
}

static vx_status trace_download(vx_device *dev, void *to, vx_tensor from)
{
    return inner_of(dev)->ops->download(inner_of(dev), to, from);
}

static vx_status trace_sync(vx_device *dev)
{
    return inner_of(dev)->ops->sync(inner_of(dev));
}

static vx_device_memory trace_memory(const vx_device *dev)
{
    return vx_device_memory_of(inner_of(dev));
}
static vx_status trace_weight_budget(vx_device *dev, uint64_t bytes)
{
    return vx_device_weight_budget(inner_of(dev), bytes);
}
static vx_status trace_prefetch(vx_device *dev, vx_tensor weight)
{
    return vx_device_prefetch(inner_of(dev), weight);
}
static void trace_forget(vx_device *dev, const void *begin, size_t bytes)
{
    vx_device_forget(inner_of(dev), begin, bytes);
}
static void trace_shed(vx_device *dev)
{
    vx_device_shed(inner_of(dev));
}
static void trace_trim(vx_device *dev)
{
    vx_device_trim(inner_of(dev));
}
static vx_weight_stats trace_weights(const vx_device *dev)
{
    return vx_device_weights(inner_of(dev));
}

static vx_status check_finite(struct trace *t, vx_tensor out, bool *finite)
{
    vx_device *inner = t->inner;
    *finite = true;
    if (!t->params.check_finite || !inner->computes || vx_tensor_count(out) == 0) return vx_ok();
    if (out.dtype != VX_F32 && out.dtype != VX_BF16 && out.dtype != VX_F16) return vx_ok();
    int32_t flag = 0;
    VX_TRY(inner->ops->upload(inner, t->flag, &flag));
    VX_TRY(inner->ops->mark_not_finite(inner, &(vx_mark_not_finite_args){ t->flag, 0, out }));
    VX_TRY(inner->ops->download(inner, &flag, t->flag));
    *finite = flag == 0;
    return vx_ok();
}

// One event per output; the work is told with the first.
static vx_status report(struct trace *t, const char *op, double seconds, const vx_cost *cost)
{
    for (int i = 0; i < 2; i++) {
        if (i > 0 && cost->out[i].rank == 0) break;
        vx_trace_event event = { .op = op, .finite = true };
        if (i == 0) {
            event.seconds = seconds;
            event.flop = cost->flop;
            event.bytes = cost->bytes;
        }
        if (cost->out[i].rank > 0) {
            event.out = &cost->out[i];
            VX_TRY(check_finite(t, cost->out[i], &event.finite));
        }
        t->params.event(t->params.user, &event);
    }
    return vx_ok();
}

#define TRACED(op)                                                          \
    static vx_status trace_##op(vx_device *dev, const vx_##op##_args *args) \
    {                                                                       \
        struct trace *t = (struct trace *)dev;                              \
        const double begin = vx_clock_s();                                  \
        VX_TRY(t->inner->ops->op(t->inner, args));                          \
        VX_TRY(t->inner->ops->sync(t->inner));                              \
        const double seconds = vx_clock_s() - begin;                        \
        const vx_cost cost = vx_cost_##op(args);                            \
        return report(t, #op, seconds, &cost);                              \
    }
VX_OPERATORS(TRACED)
#undef TRACED

#define SCRATCH(op)                                                                      \
    static size_t trace_##op##_scratch(const vx_device *dev, const vx_##op##_args *args) \
    {                                                                                    \
        const vx_device *inner = inner_of(dev);                                          \
        return inner->ops->op##_scratch ? inner->ops->op##_scratch(inner, args) : 0;     \
    }
VX_SCRATCH_OPERATORS(SCRATCH)
#undef SCRATCH

static const struct vx_ops trace_ops = { .destroy = trace_destroy,
                                         .isa = trace_isa,
                                         .threads = trace_threads,
                                         .memory_alloc = trace_memory_alloc,
                                         .memory_free = trace_memory_free,
                                         .reserve = trace_reserve,
                                         .release = trace_release,
                                         .upload = trace_upload,
                                         .download = trace_download,
                                         .sync = trace_sync,
                                         .memory = trace_memory,
                                         .shed = trace_shed,
                                         .weight_budget = trace_weight_budget,
                                         .prefetch = trace_prefetch,
                                         .forget = trace_forget,
                                         .weights = trace_weights,
                                         .trim = trace_trim,
#define MEMBER(op) .op = trace_##op,
                                         VX_OPERATORS(MEMBER)
#undef MEMBER
#define MEMBER(op) .op##_scratch = trace_##op##_scratch,
                                             VX_SCRATCH_OPERATORS(MEMBER)
#undef MEMBER
};

vx_status vx_device_trace_create(vx_device **out, vx_device *inner, const vx_trace_params *params)
{
    *out = NULL;
    if (!params || !params->event) return vx_fail(VX_ERR_INTERNAL, "a trace device without an event function");
    struct trace *t = vx_alloc_array(1, sizeof *t);
    VX_NEED_MEMORY(t, "a trace device");
    t->base = (vx_device){ .ops = &trace_ops, .name = "trace", .computes = inner->computes, .far = inner->far };
    t->inner = inner;
    t->params = *params;
    void *flag = NULL;
    const vx_status s = inner->ops->memory_alloc(inner, &flag, FLAG_BYTES);
    if (s.code != VX_OK) {
        vx_free(t);
        return s;
    }
    t->flag = vx_tensor_of(flag, VX_I32, 1);
    *out = &t->base;
    return vx_device_born(*out);
}
