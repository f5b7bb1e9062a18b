// What all devices share: the calls that are no operators go through here to the back end's table.
#include "device/check.h"

void vx_device_destroy(vx_device **dev)
{
    if (!dev || !*dev) return;
    (*dev)->ops->destroy(*dev);
    *dev = NULL;
}

const char *vx_device_name(const vx_device *dev)
{
    return dev->name;
}
const char *vx_device_isa(const vx_device *dev)
{
    return dev->ops->isa(dev);
}
int vx_device_threads(const vx_device *dev)
{
    return dev->ops->threads(dev);
}
bool vx_device_is_plan(const vx_device *dev)
{
    return !dev->computes;
}
void vx_device_watch(vx_device *dev, const volatile int *flag)
{
    dev->watch = flag;
}

void vx_device_parts(vx_device *dev, bool on)
{
    dev->parts = on;
}

bool vx_device_has_parts(const vx_device *dev)
{
    return dev->has_parts;
}

vx_status vx_device_reserve(vx_device *dev, size_t scratch_bytes)
{
    return dev->ops->reserve(dev, scratch_bytes);
}
void vx_device_release(vx_device *dev)
{
    dev->ops->release(dev);
}
vx_status vx_device_sync(vx_device *dev)
{
    return dev->ops->sync(dev);
}

vx_status vx_upload(vx_device *dev, vx_tensor to, const void *from)
{
    VX_NEED_SHAPE(vx_tensor_contiguous(to), to);
    if (vx_tensor_count(to) == 0) return vx_ok();
    VX_NEED_DATA(dev, to);
    return dev->ops->upload(dev, to, from);
}

vx_status vx_download(vx_device *dev, void *to, vx_tensor from)
{
    VX_NEED_SHAPE(vx_tensor_contiguous(from), from);
    if (vx_tensor_count(from) == 0) return vx_ok();
    VX_NEED_DATA(dev, from);
    return dev->ops->download(dev, to, from);
}

vx_status vx_device_weight_budget(vx_device *dev, uint64_t bytes)
{
    return dev->ops->weight_budget ? dev->ops->weight_budget(dev, bytes) : vx_ok();
}
vx_status vx_device_prefetch(vx_device *dev, vx_tensor weight)
{
    return dev->ops->prefetch ? dev->ops->prefetch(dev, weight) : vx_ok();
}
void vx_device_forget(vx_device *dev, const void *begin, size_t bytes)
{
    if (dev->ops->forget) dev->ops->forget(dev, begin, bytes);
}
vx_weight_stats vx_device_weights(const vx_device *dev)
{
    return dev->ops->weights ? dev->ops->weights(dev) : (vx_weight_stats){ 0 };
}

void vx_device_trim(vx_device *dev)
{
    if (dev->ops->trim) dev->ops->trim(dev);
}

vx_status vx_device_made_up(vx_device *dev, uint64_t seed)
{
    if (!dev->ops->made_up) return vx_fail(VX_ERR_UNSUPPORTED, "device %s reads weights where they are", dev->name);
    return dev->ops->made_up(dev, seed);
}
vx_device_memory vx_device_memory_of(const vx_device *dev)
{
    return dev->ops->memory ? dev->ops->memory(dev) : (vx_device_memory){ 0 };
}
void vx_device_memory_reset(vx_device *dev)
{
    if (dev->ops->memory_reset) dev->ops->memory_reset(dev);
}
bool vx_device_far(const vx_device *dev)
{
    return dev->far;
}

void vx_device_shed(vx_device *dev)
{
    if (dev->ops->shed) dev->ops->shed(dev);
}

vx_status vx_device_record(vx_device *dev, vx_recording **slot, const void *identity, size_t bytes, bool *replayed)
{
    *replayed = false;
    return dev->ops->record ? dev->ops->record(dev, slot, identity, bytes, replayed) : vx_ok();
}
vx_status vx_device_record_end(vx_device *dev, vx_recording **slot, vx_status inside)
{
    return dev->ops->record_end ? dev->ops->record_end(dev, slot, inside) : inside;
}
void vx_device_record_free(vx_device *dev, vx_recording **slot)
{
    if (dev->ops->record_free) dev->ops->record_free(dev, slot);
}
void vx_device_graphs(vx_device *dev, bool on)
{
    if (dev->ops->graphs) dev->ops->graphs(dev, on);
}

// A table is looked at once, when its device is made: a gap is a mistake of ours and must not surface in the middle of work.
vx_status vx_device_born(const vx_device *dev)
{
    const struct vx_ops *ops = dev->ops;
    const char *gap = NULL;
#define GAP(member) \
    if (!ops->member) gap = #member;
    GAP(destroy)
    GAP(isa)
    GAP(threads)
    GAP(memory_alloc)
    GAP(memory_free)
    GAP(reserve)
    GAP(release)
    GAP(upload)
    GAP(download)
    GAP(sync)
    VX_OPERATORS(GAP)
#undef GAP
    if (gap) return vx_fail(VX_ERR_INTERNAL, "back end %s has no %s", dev->name, gap);
    return vx_ok();
}
