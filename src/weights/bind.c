// Binding tensors to a network, and the account of what was bound.
#include "weights/component.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "weights/component_inside.h"
#include "weights/foreign.h"

enum { MOST_LISTED = 10 }; // unexpected tensors in a message

bool vx_component_has(const vx_component *c, const char *name)
{
    return vx_component_entry_of(c, name) != NULL;
}

// ---- layers ----

// The index in prefix<i>suffix, or -1.
static int64_t layer_index(const char *name, const char *prefix, const char *suffix)
{
    const char *digits = name + strlen(prefix);
    if (*digits < '0' || *digits > '9' || (*digits == '0' && digits[1] >= '0' && digits[1] <= '9')) return -1;
    char *end;
    long long index = strtoll(digits, &end, 10);
    return strcmp(end, suffix) == 0 ? (int64_t)index : -1;
}

vx_status vx_component_layers(const vx_component *c, const char *prefix, const char *suffix, int64_t *count)
{
    int64_t found = 0, highest = -1;
    for (int i = vx_component_lower_bound(c, prefix); i < c->count && vx_has_prefix(c->entries[i].name, prefix); i++) {
        int64_t index = layer_index(c->entries[i].name, prefix, suffix);
        if (index < 0) continue;
        found++;
        highest = index > highest ? index : highest;
    }
    *count = found;
    if (found == highest + 1) return vx_ok(); // names are unique, so none is missing
    for (int64_t i = 0;; i++) {
        char name[512];
        snprintf(name, sizeof name, "%s%" PRId64 "%s", prefix, i, suffix);
        if (!vx_component_has(c, name))
            return vx_fail(VX_ERR_TENSOR_MISSING, "%s: tensor '%s' is missing, but '%s%" PRId64 "%s' is there",
                           vx_short_path(c->path), name, prefix, highest, suffix);
    }
}

// ---- one tensor ----

// "file: tensor 'name'", with the file's own spelling where it differs.
static const char *entry_text(char out[320], const vx_component_entry *e)
{
    const char *file = vx_short_path(vx_safetensors_path(e->file));
    if (strcmp(e->name, e->entry->name) == 0) snprintf(out, 320, "%s: tensor '%s'", file, e->name);
    else snprintf(out, 320, "%s: tensor '%s' ('%s' in the file)", file, e->name, e->entry->name);
    return out;
}

static vx_tensor view_of(const vx_component_entry *e)
{
    const void *data = e->copy ? e->copy : e->entry->data;
    return vx_tensor_make((void *)(uintptr_t)data, e->entry->dtype, e->entry->rank, e->entry->shape);
}

static vx_status check_entry(const vx_component_entry *e, vx_dtype dtype, int rank, const int64_t *shape)
{
    char who[320], found[96], wanted[96];
    bool same = e->entry->rank == rank;
    for (int i = 0; same && i < rank; i++) same = e->entry->shape[i] == shape[i];
    if (!same) {
        vx_tensor have = { .rank = e->entry->rank }, want = { .rank = rank };
        memcpy(have.shape, e->entry->shape, sizeof have.shape);
        for (int i = 0; i < rank && i < VX_MAX_RANK; i++) want.shape[i] = shape[i];
        return vx_fail(VX_ERR_TENSOR_SHAPE, "%s: shape %s, expected %s", entry_text(who, e), vx_shape_text(found, have),
                       vx_shape_text(wanted, want));
    }
    vx_dtype is = e->entry->dtype;
    bool fits = dtype == VX_DTYPE_NONE ? is == VX_F32 || is == VX_BF16 || is == VX_F16 : is == dtype;
    if (fits) return vx_ok();
    return vx_fail(VX_ERR_TENSOR_DTYPE, "%s: number format %s, expected %s", entry_text(who, e), vx_dtype_name(is),
                   dtype == VX_DTYPE_NONE ? "F32, BF16 or F16" : vx_dtype_name(dtype));
}

// Files promise no alignment beyond a byte (a header need not be padded), kernels want that of an element.
static vx_status align(vx_component_entry *e)
{
    size_t element = (size_t)vx_dtype_bits(e->entry->dtype) / 8;
    if (e->copy || e->entry->bytes == 0 || element < 2 || (uintptr_t)e->entry->data % element == 0) return vx_ok();
    char who[320], size[24];
    VX_TRY_IN(vx_pages_alloc(&e->copy, (size_t)e->entry->bytes), "%s", entry_text(who, e));
    e->copy_bytes = (size_t)e->entry->bytes;
    memcpy(e->copy, e->entry->data, e->copy_bytes);
    vx_log(VX_LOG_INFO, "%s: its data is misaligned in the file; %s were copied", entry_text(who, e),
           vx_bytes_text(size, e->entry->bytes));
    return vx_ok();
}

vx_status vx_component_tensor(vx_component *c, const char *name, vx_dtype dtype, int rank, const int64_t *shape, vx_tensor *out)
{
    vx_component_entry *e = vx_component_entry_of(c, name);
    if (!e) {
        char wanted[96];
        vx_tensor want = { .rank = rank };
        for (int i = 0; i < rank && i < VX_MAX_RANK; i++) want.shape[i] = shape[i];
        return vx_fail(VX_ERR_TENSOR_MISSING, "%s: tensor '%s' %s is missing", vx_short_path(c->path), name,
                       vx_shape_text(wanted, want));
    }
    VX_TRY(check_entry(e, dtype, rank, shape));
    VX_TRY(align(e));
    e->bound = true;
    *out = view_of(e);
    return vx_ok();
}

void vx_component_shape(const vx_component *c, const char *name, int *rank, int64_t shape[VX_MAX_RANK])
{
    const vx_component_entry *e = vx_component_entry_of(c, name);
    *rank = e ? e->entry->rank : 0;
    for (int i = 0; i < *rank; i++) shape[i] = e->entry->shape[i];
}

// ---- linears ----

static vx_status too_long(const vx_component *c, const char *name)
{
    return vx_fail(VX_ERR_INTERNAL, "%s: the name '%.100s' is too long", vx_short_path(c->path), name);
}

// name.weight [rows, k] and name.bias [rows] as the next segment of `w`.
static vx_status add_segment(vx_component *c, const char *name, int64_t rows, int64_t k, bool bias, vx_weight *w)
{
    char full[512];
    vx_weight_segment *s = &w->segment[w->segments];
    *s = (vx_weight_segment){ .column = w->n };
    if (snprintf(full, sizeof full, "%s.weight", name) >= (int)sizeof full) return too_long(c, name);
    VX_TRY(vx_component_get(c, full, VX_DTYPE_NONE, &s->weight, rows, k));
    if (bias) {
        snprintf(full, sizeof full, "%s.bias", name);
        VX_TRY(vx_component_get(c, full, VX_DTYPE_NONE, &s->bias, rows));
    }
    w->segments++;
    w->n += rows;
    return vx_ok();
}

vx_status vx_component_linear(vx_component *c, const char *name, int64_t n, int64_t k, bool bias, vx_weight *out)
{
    *out = (vx_weight){ .k = k };
    return add_segment(c, name, n, k, bias, out);
}

// Three matrices in place of the fused one: the last component of its name gives way to to_q, to_k, to_v.
static vx_status bind_split(vx_component *c, const char *name, int64_t rows, int64_t k, bool bias, vx_weight *out)
{
    static const char *const parts[] = { "to_q", "to_k", "to_v" };
    const char *dot = strrchr(name, '.');
    int stem = dot ? (int)(dot - name) + 1 : 0;
    for (int i = 0; i < 3; i++) {
        char part[512];
        if (snprintf(part, sizeof part, "%.*s%s", stem, name, parts[i]) >= (int)sizeof part) return too_long(c, name);
        VX_TRY(add_segment(c, part, rows, k, bias, out));
    }
    return vx_ok();
}

vx_status vx_component_qkv(vx_component *c, const char *name, int64_t heads, int64_t head_dim, int64_t k, bool bias, vx_qkv *out)
{
    int64_t width = heads * head_dim;
    *out = (vx_qkv){ .weight = { .k = k } };
    if (c->qkv == VX_QKV_SPLIT) VX_TRY(bind_split(c, name, width, k, bias, &out->weight));
    else VX_TRY(add_segment(c, name, 3 * width, k, bias, &out->weight));
    bool interleaved = c->qkv == VX_QKV_INTERLEAVED;
    for (int i = 0; i < 3; i++) out->offset[i] = i * (interleaved ? head_dim : width);
    out->head_stride = interleaved ? 3 * head_dim : head_dim;
    return vx_ok();
}

vx_status vx_component_swiglu(vx_component *c, const char *name, int64_t n, int64_t k, bool bias, vx_weight *out,
                              bool *gate_first)
{
    *gate_first = c->layout == VX_LAYOUT_OFFICIAL; // ff.net.0.proj holds the value first
    return vx_component_linear(c, name, 2 * n, k, bias, out);
}

// ---- the account ----

void vx_component_ignore(vx_component *c, const char *prefix)
{
    for (int i = vx_component_lower_bound(c, prefix); i < c->count && vx_has_prefix(c->entries[i].name, prefix); i++)
        c->entries[i].ignored = true;
}

vx_status vx_component_finish(vx_component *c)
{
    vx_str names = { 0 };
    int unexpected = 0;
    const vx_component_entry *first = NULL;
    for (int i = 0; i < c->count; i++) {
        const vx_component_entry *e = &c->entries[i];
        if (e->bound || e->ignored) continue;
        if (!first) first = e;
        if (unexpected++ < MOST_LISTED) vx_str_print(&names, "%s'%s'", unexpected > 1 ? ", " : "", e->entry->name);
    }
    vx_status s = vx_ok();
    if (names.failed) s = vx_fail(VX_ERR_MEMORY, "no memory for a message");
    else if (unexpected > 0)
        s = vx_fail(VX_ERR_TENSOR_UNEXPECTED, "%s: %d tensor%s not belong to this model: %s%s",
                    vx_short_path(vx_safetensors_path(first->file)), unexpected, unexpected == 1 ? " does" : "s do", names.data,
                    unexpected > MOST_LISTED ? ", ..." : "");
    vx_str_free(&names);
    return s;
}

void vx_component_prefetch(const vx_component *c, vx_device *dev, const char *prefix)
{
    if (dev && vx_device_is_plan(dev)) return;
    for (int i = vx_component_lower_bound(c, prefix); i < c->count && vx_has_prefix(c->entries[i].name, prefix); i++) {
        const vx_component_entry *e = &c->entries[i];
        if (!e->bound) continue;
        if (!e->copy) vx_safetensors_prefetch(e->file, e->entry->offset, e->entry->bytes);
        // A hint: what it cannot begin is said when the operator needs it.
        if (dev && vx_device_far(dev)) (void)vx_device_prefetch(dev, view_of(e));
    }
}
