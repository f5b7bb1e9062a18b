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

const char *vx_component_entry_text(char out[320], const vx_component_entry *e)
{
    const char *file = vx_short_path(vx_container_path(e->file));
    if (strcmp(e->name, e->entry->name) == 0) snprintf(out, 320, "%s: tensor '%s'", file, e->name);
    else snprintf(out, 320, "%s: tensor '%s' ('%s' in the file)", file, e->name, e->entry->name);
    return out;
}

static vx_status check_shape(const vx_component_entry *e, int rank, const int64_t *shape)
{
    char who[320], found[96], wanted[96];
    vx_tensor have = { 0 }, want = { .rank = rank };
    vx_component_entry_shape(e, &have.rank, have.shape);
    bool same = have.rank == rank;
    for (int i = 0; same && i < rank; i++) same = have.shape[i] == shape[i];
    if (same) return vx_ok();
    for (int i = 0; i < rank && i < VX_MAX_RANK; i++) want.shape[i] = shape[i];
    return vx_fail(VX_ERR_TENSOR_SHAPE, "%s: shape %s, expected %s", vx_component_entry_text(who, e), vx_shape_text(found, have),
                   vx_shape_text(wanted, want));
}

static vx_status check_dtype(const vx_component_entry *e, vx_dtype dtype)
{
    char who[320];
    const vx_dtype is = vx_component_view(e).rank ? vx_component_view(e).dtype : e->entry->dtype;
    bool fits = dtype == VX_DTYPE_NONE ? is == VX_F32 || is == VX_BF16 || is == VX_F16 : is == dtype;
    if (fits) return vx_ok();
    return vx_fail(VX_ERR_TENSOR_DTYPE, "%s: number format %s, expected %s", vx_component_entry_text(who, e), vx_dtype_name(is),
                   dtype == VX_DTYPE_NONE ? "F32, BF16 or F16" : vx_dtype_name(dtype));
}

vx_status vx_component_align(vx_component_entry *e)
{
    size_t element = (size_t)vx_dtype_bits(e->entry->dtype) / 8;
    if (e->copy || e->entry->bytes == 0 || element < 2 || (uintptr_t)e->entry->data % element == 0) return vx_ok();
    char who[320], size[24];
    VX_TRY_IN(vx_pages_alloc(&e->copy, (size_t)e->entry->bytes), "%s", vx_component_entry_text(who, e));
    e->copy_bytes = (size_t)e->entry->bytes;
    memcpy(e->copy, e->entry->data, e->copy_bytes);
    vx_log(VX_LOG_INFO, "%s: its data is misaligned in the file; %s were copied", vx_component_entry_text(who, e),
           vx_bytes_text(size, e->entry->bytes));
    return vx_ok();
}

static vx_status missing(const vx_component *c, const char *name, int rank, const int64_t *shape)
{
    char wanted[96];
    vx_tensor want = { .rank = rank };
    for (int i = 0; i < rank && i < VX_MAX_RANK; i++) want.shape[i] = shape[i];
    return vx_fail(VX_ERR_TENSOR_MISSING, "%s: tensor '%s' %s is missing", vx_short_path(c->path), name,
                   vx_shape_text(wanted, want));
}

vx_status vx_component_tensor(vx_component *c, const char *name, vx_dtype dtype, int rank, const int64_t *shape, vx_tensor *out)
{
    vx_component_entry *e = vx_component_entry_of(c, name);
    if (!e) return missing(c, name, rank, shape);
    VX_TRY(check_shape(e, rank, shape));
    if (e->layer) VX_TRY(vx_component_decode(c, e));
    VX_TRY(check_dtype(e, dtype));
    VX_TRY(vx_component_align(e));
    e->bound = true;
    *out = vx_component_view(e);
    return vx_ok();
}

static void widen(float *out, vx_tensor t)
{
    const uint16_t *half = t.data;
    const int64_t count = vx_tensor_count(t);
    for (int64_t i = 0; i < count; i++)
        out[i] = t.dtype == VX_F32 ? vx_f32_of(t)[i] : t.dtype == VX_BF16 ? vx_bf16_to_f32(half[i]) : vx_f16_to_f32(half[i]);
}

static vx_status join(vx_component_entry *e, const vx_tensor part[2], int axis, vx_tensor *out)
{
    const int64_t count = vx_tensor_count(part[0]);
    int64_t outer = 1, inner, shape[VX_MAX_RANK];
    for (int i = 0; i < axis; i++) outer *= part[0].shape[i];
    inner = outer ? count / outer : 0;
    for (int i = 0; i <= part[0].rank; i++) shape[i] = i < axis ? part[0].shape[i] : i == axis ? 2 : part[0].shape[i - 1];
    float *wide = vx_alloc_array((size_t)count, sizeof *wide);
    VX_NEED_MEMORY(wide, e->name);
    void *memory = NULL;
    vx_status s = vx_pages_alloc(&memory, (size_t)count * 2 * sizeof *wide);
    for (int p = 0; p < 2 && s.code == VX_OK; p++) {
        widen(wide, part[p]);
        for (int64_t o = 0; o < outer; o++)
            memcpy((float *)memory + (o * 2 + p) * inner, wide + o * inner, (size_t)inner * sizeof *wide);
    }
    vx_free(wide);
    VX_TRY(s);
    if (e->copy) vx_pages_free(e->copy, e->copy_bytes);
    e->copy = memory;
    e->copy_bytes = (size_t)count * 2 * sizeof *wide;
    e->made = vx_tensor_make(memory, VX_F32, part[0].rank + 1, shape);
    *out = e->made;
    return vx_container_check(e->file);
}

vx_status vx_component_stack(vx_component *c, const char *first, const char *second, int rank, const int64_t *shape, int axis,
                             vx_tensor *out)
{
    vx_component_entry *e = vx_component_entry_of(c, first);
    if (e && e->made.rank == rank + 1) return *out = e->made, vx_ok(); // bound before
    vx_tensor part[2];
    VX_TRY(vx_component_tensor(c, first, VX_DTYPE_NONE, rank, shape, &part[0]));
    VX_TRY(vx_component_tensor(c, second, VX_DTYPE_NONE, rank, shape, &part[1]));
    return join(e, part, axis, out);
}

void vx_component_shape(const vx_component *c, const char *name, int *rank, int64_t shape[VX_MAX_RANK])
{
    const vx_component_entry *e = vx_component_entry_of(c, name);
    *rank = 0;
    if (e) vx_component_entry_shape(e, rank, shape);
}

// ---- linears ----

static vx_status too_long(const vx_component *c, const char *name)
{
    return vx_fail(VX_ERR_INTERNAL, "%s: the name '%.100s' is too long", vx_short_path(c->path), name);
}

// Whole groups of these kinds are stored, the last rows and columns filled up.
static int64_t padded(vx_quant_kind kind, int64_t n)
{
    const int64_t step = kind == VX_QUANT_NVFP4 ? 16 : kind == VX_QUANT_MXFP8 ? 32 : 1;
    return (n + step - 1) / step * step;
}

// A quantised matrix as it is.
static vx_status bind_quantised(vx_component_entry *e, int64_t rows, int64_t k, vx_weight_segment *s)
{
    const vx_quant_kind kind = e->layer->quant.kind;
    VX_TRY(check_shape(e, 2, (const int64_t[]){ padded(kind, rows), padded(kind, k) }));
    VX_TRY(vx_component_bind_layer(e));
    e->bound = true;
    s->weight = vx_tensor_slice(vx_component_view(e), 0, 0, rows);
    s->quant = e->layer->quant;
    s->quant.k = k;
    return vx_ok();
}

vx_status vx_component_rows(vx_component *c, const char *name, int64_t rows, int64_t k, bool bias, vx_weight *w)
{
    char full[512];
    vx_weight_segment *s = &w->segment[w->segments];
    *s = (vx_weight_segment){ .column = w->n };
    if (snprintf(full, sizeof full, "%s.weight", name) >= (int)sizeof full) return too_long(c, name);
    vx_component_entry *e = vx_component_entry_of(c, full);
    if (e && e->layer) VX_TRY(bind_quantised(e, rows, k, s));
    else VX_TRY(vx_component_get(c, full, VX_DTYPE_NONE, &s->weight, rows, k));
    if (bias) {
        snprintf(full, sizeof full, "%s.bias", name);
        VX_TRY(vx_component_get(c, full, VX_DTYPE_NONE, &s->bias, rows));
    }
    w->segments++;
    w->n += rows;
    w->k = k;
    return vx_ok();
}

vx_status vx_component_linear(vx_component *c, const char *name, int64_t n, int64_t k, bool bias, vx_weight *out)
{
    *out = (vx_weight){ .k = k };
    return vx_component_rows(c, name, n, k, bias, out);
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
        VX_TRY(vx_component_rows(c, part, rows, k, bias, out));
    }
    return vx_ok();
}

vx_status vx_component_qkv(vx_component *c, const char *name, int64_t heads, int64_t head_dim, int64_t k, bool bias, vx_qkv *out)
{
    int64_t width = heads * head_dim;
    *out = (vx_qkv){ .weight = { .k = k } };
    if (c->qkv == VX_QKV_SPLIT) VX_TRY(bind_split(c, name, width, k, bias, &out->weight));
    else VX_TRY(vx_component_rows(c, name, 3 * width, k, bias, &out->weight));
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
        if (e->bound || e->ignored || e->companion) continue;
        if (!first) first = e;
        if (unexpected++ < MOST_LISTED) vx_str_print(&names, "%s'%s'", unexpected > 1 ? ", " : "", e->entry->name);
    }
    vx_status s = vx_ok();
    if (names.failed) s = vx_no_memory("for a message");
    else if (unexpected > 0)
        s = vx_fail(VX_ERR_TENSOR_UNEXPECTED, "%s: %d tensor%s not belong to this model: %s%s",
                    vx_short_path(vx_container_path(first->file)), unexpected, unexpected == 1 ? " does" : "s do", names.data,
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
        if (!e->copy) vx_container_prefetch(e->file, e->entry->offset, e->entry->bytes);
        // A hint: what it cannot begin is said when the operator needs it.
        if (dev && vx_device_far(dev)) (void)vx_device_prefetch(dev, vx_component_view(e));
    }
}
