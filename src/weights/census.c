#include "weights/census.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "weights/component_inside.h"
#include "weights/foreign.h"
#include "weights/locate.h"
#include "weights/model_file.h"
#include "weights/names.h"
#include "weights/refuse.h"

vx_status vx_file_look(vx_file_facts *out, const char *path)
{
    vx_container file;
    *out = (vx_file_facts){ 0 };
    VX_TRY(vx_container_open(&file, path));
    const int count = vx_container_count(&file);
    const char **names = vx_alloc_array((size_t)count + 1, sizeof *names);
    vx_status s = names ? vx_ok() : vx_no_memory("for tensor names");
    for (int i = 0; s.code == VX_OK && i < count; i++) names[i] = vx_container_at(&file, i)->name;
    if (s.code == VX_OK) {
        out->adapter = vx_refuse_adapter(&file).code != VX_OK;
        out->component = !out->adapter && vx_names_kind(names, count, &out->kind);
        if (out->component && out->kind == VX_TRANSFORMER) out->variant = vx_variant_of_file(&file, path, &out->variant_reason);
    }
    vx_free(names);
    vx_container_close(&file);
    return s;
}

// Of a set of files the index lists the names.
static bool kind_of_index(const char *path, vx_component_kind *kind)
{
    enum { MOST_INDEX = 16 << 20 };
    json_t *index, *value;
    if (vx_json_of_model(&index, path, MOST_INDEX, VX_ERR_INDEX).code != VX_OK) return false;
    json_t *map = json_object_get(index, "weight_map");
    const char **names = vx_alloc_array(json_object_size(map) + 1, sizeof *names), *name;
    int count = 0;
    if (names) json_object_foreach(map, name, value) names[count++] = name;
    const bool known = names && vx_names_kind(names, count, kind);
    vx_free(names);
    json_decref(index);
    return known;
}

bool vx_folder_look(const char *folder, vx_component_kind *kind)
{
    for (int k = 0; k < VX_COMPONENT_KINDS; k++) { // each keeps its weights in another place
        vx_source source;
        vx_file_facts facts = { 0 };
        if (vx_source_find(&source, (vx_component_kind)k, folder).code != VX_OK) continue;
        bool known = source.indexed && kind_of_index(source.weights, kind);
        if (!source.indexed && vx_file_look(&facts, source.weights).code == VX_OK && facts.component) {
            *kind = facts.kind;
            known = true;
        }
        vx_source_free(&source);
        if (known) return true;
    }
    return false;
}

// ---- formats ----

static int by_bytes(const void *a, const void *b)
{
    const vx_format_count *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void count_one(vx_format_count *out, int *count, const char *name, uint64_t bytes)
{
    int i = 0;
    while (i < *count && strcmp(out[i].name, name) != 0) i++;
    if (i == VX_MOST_FORMATS) i--; // more than there are names
    if (i == *count) out[(*count)++] = (vx_format_count){ .name = name };
    out[i].tensors++;
    out[i].bytes += bytes;
}

static const char *format_of(const vx_component_entry *e)
{
    if (!e->layer) return vx_dtype_name(e->entry->dtype);
    vx_quant q = e->layer->quant;
    if (e->layer->part[VX_PART_PRE_SCALE]) q.pre_scale.rank = 1; // before it is bound
    return vx_quant_name(&q, e->entry->dtype);
}

int vx_component_formats(const vx_component *c, vx_format_count out[VX_MOST_FORMATS])
{
    int count = 0;
    for (int i = 0; i < c->count; i++) {
        const vx_component_entry *e = &c->entries[i];
        if (e->companion) continue;
        uint64_t bytes = e->entry->bytes;
        for (int p = 0; e->layer && p < VX_PARTS; p++)
            if (e->layer->part[p]) bytes += e->layer->part[p]->entry->bytes;
        count_one(out, &count, format_of(e), bytes);
    }
    qsort(out, (size_t)count, sizeof *out, by_bytes);
    return count;
}

uint64_t vx_component_bytes_of(const vx_component *c, const char *prefix, const char *without)
{
    uint64_t bytes = 0;
    for (int i = vx_component_lower_bound(c, prefix); i < c->count && vx_has_prefix(c->entries[i].name, prefix); i++)
        if (!without || !strstr(c->entries[i].name, without)) bytes += c->entries[i].entry->bytes;
    return bytes;
}

// ---- every value ----

static vx_status verify_entry(vx_component_entry *e)
{
    char who[320];
    const vx_dtype is = e->entry->dtype;
    if (!e->layer && is != VX_F32 && is != VX_BF16 && is != VX_F16) return vx_ok();
    if (e->layer) VX_TRY(vx_component_bind_layer(e));
    const vx_quant plain = { 0 };
    vx_tensor t = e->layer ? vx_component_values(e)
                           : vx_tensor_make((void *)(uintptr_t)e->entry->data, is, e->entry->rank, e->entry->shape);
    vx_status s = vx_quant_verify(e->layer ? &e->layer->quant : &plain, t);
    return vx_within(s, "%s", vx_component_entry_text(who, e));
}

vx_status vx_component_verify(vx_component *c, void (*found)(void *user, vx_status fault), void *user)
{
    vx_status first = vx_ok();
    for (int i = 0; i < c->count; i++) {
        vx_component_entry *e = &c->entries[i];
        if (e->companion) continue;
        vx_container_prefetch(e->file, e->entry->offset, e->entry->bytes);
        vx_status s = verify_entry(e);
        if (s.code == VX_OK) s = vx_container_check(e->file);
        if (s.code == VX_OK) continue;
        if (first.code == VX_OK) first = s;
        found(user, s);
        if (s.code == VX_ERR_FILE_CHANGED || s.code == VX_ERR_MEMORY) break;
    }
    return first;
}
