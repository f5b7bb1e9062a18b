// The plan back end: the same network code, run on shapes alone. It computes nothing, counts everything, and can be told to
// fail, so it is also the dummy of the tests.
#include "base/alloc.h"
#include "device/cost.h"

enum {
#define KIND(op) KIND_##op,
    VX_OPERATORS(KIND)
#undef KIND
        KINDS
};

static const char *const kind_names[KINDS] = {
#define NAME(op) #op,
    VX_OPERATORS(NAME)
#undef NAME
};

struct plan {
    vx_device base;
    const vx_device *like; // NULL: scratch is not counted
    vx_plan_counts total, kind[KINDS];
    int64_t fail_in; // operators until the one that fails; 0: none
    vx_code fail_code;
};

static void plan_destroy(vx_device *dev)
{
    vx_free(dev);
}

static const char *plan_isa(const vx_device *dev)
{
    const struct plan *p = (const struct plan *)dev;
    return p->like ? p->like->ops->isa(p->like) : "none";
}

static int plan_threads(const vx_device *dev)
{
    const struct plan *p = (const struct plan *)dev;
    return p->like ? p->like->ops->threads(p->like) : 1;
}

static vx_status plan_memory_alloc(vx_device *dev, void **out, size_t bytes)
{
    (void)dev;
    (void)bytes;
    *out = NULL;
    return vx_ok();
}

static void plan_memory_free(vx_device *dev, void *p, size_t bytes)
{
    (void)dev;
    (void)p;
    (void)bytes;
}

static vx_status plan_reserve(vx_device *dev, size_t scratch_bytes)
{
    (void)dev;
    (void)scratch_bytes;
    return vx_ok();
}

static void plan_release(vx_device *dev)
{
    (void)dev;
}

static vx_status plan_upload(vx_device *dev, vx_tensor to, const void *from)
{
    (void)dev;
    (void)to;
    (void)from;
    return vx_ok();
}

static vx_status plan_download(vx_device *dev, void *to, vx_tensor from)
{
    (void)dev;
    (void)to;
    (void)from;
    return vx_ok();
}

static vx_status plan_sync(vx_device *dev)
{
    (void)dev;
    return vx_ok();
}

static void add_counts(vx_plan_counts *counts, const vx_cost *cost, size_t scratch)
{
    counts->calls++;
    counts->flop += cost->flop;
    counts->bytes += cost->bytes;
    counts->weight_bytes += cost->weight_bytes;
    if (scratch > counts->scratch) counts->scratch = scratch;
}

static vx_status count(vx_device *dev, int kind, vx_cost cost, size_t scratch)
{
    struct plan *p = (struct plan *)dev;
    if (p->fail_in > 0 && --p->fail_in == 0)
        return vx_fail(p->fail_code, "%s: the plan device was told to fail here", kind_names[kind]);
    add_counts(&p->total, &cost, scratch);
    add_counts(&p->kind[kind], &cost, scratch);
    return vx_ok();
}

// Operators without scratch, and those that ask `like` for theirs.
#define PLAIN(op)                                                          \
    static vx_status plan_##op(vx_device *dev, const vx_##op##_args *args) \
    {                                                                      \
        return count(dev, KIND_##op, vx_cost_##op(args), 0);               \
    }
#define WITH_SCRATCH(op)                                                                                  \
    static vx_status plan_##op(vx_device *dev, const vx_##op##_args *args)                                \
    {                                                                                                     \
        const vx_device *like = ((struct plan *)dev)->like;                                               \
        const size_t scratch = like && like->ops->op##_scratch ? like->ops->op##_scratch(like, args) : 0; \
        return count(dev, KIND_##op, vx_cost_##op(args), scratch);                                        \
    }

VX_SCRATCH_OPERATORS(WITH_SCRATCH)
PLAIN(rms_norm)
PLAIN(rms_norm_modulate)
PLAIN(layer_norm)
PLAIN(add)
PLAIN(gate_add)
PLAIN(gate_add_norm)
PLAIN(swiglu)
PLAIN(silu)
PLAIN(gelu)
PLAIN(copy)
PLAIN(blend)
PLAIN(affine)
PLAIN(embed)
PLAIN(embed_blend)
PLAIN(mark_not_finite)
PLAIN(qk_norm_rope)
PLAIN(snake)
PLAIN(group_norm)
PLAIN(fade)
PLAIN(clamp)
PLAIN(to_u8)

static const struct vx_ops plan_ops = { .destroy = plan_destroy,
                                        .isa = plan_isa,
                                        .threads = plan_threads,
                                        .memory_alloc = plan_memory_alloc,
                                        .memory_free = plan_memory_free,
                                        .reserve = plan_reserve,
                                        .release = plan_release,
                                        .upload = plan_upload,
                                        .download = plan_download,
                                        .sync = plan_sync,
#define MEMBER(op) .op = plan_##op,
                                        VX_OPERATORS(MEMBER)
#undef MEMBER
};

vx_status vx_device_plan_create(vx_device **out, const vx_device *like)
{
    *out = NULL;
    struct plan *p = vx_alloc_array(1, sizeof *p);
    VX_NEED_MEMORY(p, "a plan device");
    p->base = (vx_device){ .ops = &plan_ops, .name = "plan", .far = like && like->far };
    p->like = like;
    *out = &p->base;
    return vx_device_born(*out);
}

static bool is_plan(const vx_device *dev)
{
    return dev->ops == &plan_ops;
}

vx_plan_counts vx_device_plan_counts(const vx_device *dev)
{
    return is_plan(dev) ? ((const struct plan *)dev)->total : (vx_plan_counts){ 0 };
}

int vx_device_plan_kinds(void)
{
    return KINDS;
}

vx_plan_counts vx_device_plan_kind(const vx_device *dev, int kind, const char **op)
{
    if (kind < 0 || kind >= KINDS) return (vx_plan_counts){ 0 };
    if (op) *op = kind_names[kind];
    return is_plan(dev) ? ((const struct plan *)dev)->kind[kind] : (vx_plan_counts){ 0 };
}

void vx_device_plan_reset(vx_device *dev)
{
    if (!is_plan(dev)) return;
    struct plan *p = (struct plan *)dev;
    p->total = (vx_plan_counts){ 0 };
    for (int i = 0; i < KINDS; i++) p->kind[i] = (vx_plan_counts){ 0 };
}

void vx_device_plan_fail(vx_device *dev, int64_t call, vx_code code)
{
    if (!is_plan(dev)) return;
    struct plan *p = (struct plan *)dev;
    p->fail_in = call;
    p->fail_code = code;
}
