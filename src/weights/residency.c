// What a device with memory of its own holds of a component, or will.
#include <string.h>

#include "weights/component_inside.h"
#include "weights/safetensors_stream.h"

uint64_t vx_component_bound_bytes(const vx_component *c, const char *without, uint64_t *largest)
{
    uint64_t bytes = 0;
    *largest = 0;
    for (int i = 0; i < c->count; i++) {
        const vx_component_entry *e = &c->entries[i];
        if (!e->bound || (without && strstr(e->name, without))) continue;
        bytes += e->entry->bytes;
        if (e->entry->bytes > *largest) *largest = e->entry->bytes;
    }
    return bytes;
}

void vx_component_forget(const vx_component *c, vx_device *dev)
{
    for (int i = 0; i < c->count; i++) {
        const vx_component_entry *e = &c->entries[i];
        if (e->bound)
            vx_device_forget(dev, e->copy ? e->copy : e->entry->data, e->copy ? e->copy_bytes : (size_t)e->entry->bytes);
    }
}

bool vx_component_hollow(const vx_component *c)
{
    for (int i = 0; i < c->shards.files; i++)
        if (vx_container_metadata(&c->shards.file[i], VX_HOLLOW_KEY)) return true;
    return false;
}
