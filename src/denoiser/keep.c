// What a request leaves for the next one. Tables lie on the host, as all that passes between requests does: there they stand in
// no other stage's way, and 12 evaluations' go up as 0.24 GB where the weights that they are made from are 26 GB.
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "denoiser/network.h"

struct vx_denoiser_keep {
    vx_device *dev;
    vx_recording *recording;
    uint64_t stamp;
    vx_dtype act;
    int64_t count;
    float *t; // [count]; NULL: no tables
    void *modulation, *head;
    size_t modulation_bytes, head_bytes;
};

uint64_t vx_denoiser_stamp(void)
{
    static _Atomic uint64_t last;
    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

vx_status vx_denoiser_keep_create(vx_denoiser_keep **out, vx_device *dev)
{
    *out = vx_alloc_array(1, sizeof **out);
    VX_NEED_MEMORY(*out, "a denoiser");
    (*out)->dev = dev;
    return vx_ok();
}

void vx_denoiser_keep_drop(vx_denoiser_keep *k)
{
    vx_free(k->t);
    vx_free(k->modulation);
    vx_free(k->head);
    *k = (vx_denoiser_keep){ .dev = k->dev, .recording = k->recording };
}

void vx_denoiser_keep_destroy(vx_denoiser_keep **keep)
{
    if (!keep || !*keep) return;
    vx_denoiser_keep_drop(*keep);
    if ((*keep)->recording) vx_device_record_free((*keep)->dev, &(*keep)->recording);
    vx_free(*keep);
    *keep = NULL;
}

size_t vx_denoiser_keep_bytes(const vx_denoiser_keep *k)
{
    return k ? k->modulation_bytes + k->head_bytes : 0;
}

vx_denoiser_keep *vx_denoiser_keep_of(vx_denoiser_keep *k, const vx_device *dev)
{
    return k && k->dev == dev ? k : NULL;
}

vx_recording **vx_denoiser_keep_slot(vx_denoiser_keep *k)
{
    return &k->recording;
}

static bool is_of(const vx_denoiser_keep *k, const vx_denoiser_tables *t)
{
    return k->t && k->stamp == t->stamp && k->act == t->head.dtype && k->count == t->count &&
           memcmp(k->t, t->t, (size_t)t->count * sizeof *t->t) == 0;
}

vx_status vx_denoiser_recall(vx_denoiser_keep *k, const vx_denoiser_tables *t, bool *found)
{
    *found = k && is_of(k, t);
    if (!*found) return vx_ok();
    VX_TRY(vx_upload(k->dev, t->modulation, k->modulation));
    return vx_upload(k->dev, t->head, k->head);
}

vx_status vx_denoiser_leave(vx_denoiser_keep *k, const vx_denoiser_tables *t)
{
    if (!k) return vx_ok();
    vx_denoiser_keep_drop(k);
    const size_t bytes = (size_t)t->count * sizeof *t->t;
    k->t = vx_alloc(bytes);
    k->modulation = vx_alloc(vx_tensor_bytes(t->modulation));
    k->head = vx_alloc(vx_tensor_bytes(t->head));
    vx_status s = vx_ok();
    const bool room = k->t && k->modulation && k->head;
    if (room) s = vx_download(k->dev, k->modulation, t->modulation);
    if (room && s.code == VX_OK) s = vx_download(k->dev, k->head, t->head);
    if (!room || s.code != VX_OK) {
        vx_denoiser_keep_drop(k);
        return s;
    }
    memcpy(k->t, t->t, bytes);
    k->stamp = t->stamp;
    k->act = t->head.dtype;
    k->count = t->count;
    k->modulation_bytes = vx_tensor_bytes(t->modulation);
    k->head_bytes = vx_tensor_bytes(t->head);
    return s;
}
