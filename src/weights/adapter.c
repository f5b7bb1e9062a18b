// Opening an adapter: every key gets its place, every place is held to the rules, every pair gets its scale.
#include "weights/adapter_inside.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "weights/census.h"
#include "weights/foreign.h"
#include "weights/names.h"

enum { PLACES = VX_MODULE_KINDS * 2 * VX_ADAPTER_BLOCKS * VX_ADAPTER_PARTS, MOST_METADATA = 1 << 20 };

// ---- places ----

static size_t place(vx_adapter_module m, vx_adapter_part part)
{
    return (((size_t)m.kind * 2 + m.refiner) * VX_ADAPTER_BLOCKS + (size_t)m.block) * VX_ADAPTER_PARTS + part;
}

vx_adapter_slot *vx_adapter_slot_of(const vx_adapter *a, vx_adapter_module module, vx_adapter_part part)
{
    const int32_t i = a->index[place(module, part)];
    return i < 0 ? NULL : &a->slot[i];
}

const char *vx_adapter_where(char out[320], const vx_adapter *a, const vx_adapter_slot *s, vx_adapter_role role)
{
    char name[64];
    const char *file = vx_short_path(a->path);
    if (role < VX_ROLES && s->entry[role]) snprintf(out, 320, "%s: '%.200s'", file, s->entry[role]->name);
    else snprintf(out, 320, "%s: module %s", file, vx_adapter_module_name(name, s->module));
    return out;
}

float vx_adapter_number(const vx_safetensors_entry *e, int64_t i)
{
    const char *p = e->data;
    float x;
    uint16_t h;
    if (e->dtype == VX_F32) {
        memcpy(&x, p + 4 * i, 4);
        return x;
    }
    memcpy(&h, p + 2 * i, 2);
    return e->dtype == VX_BF16 ? vx_bf16_to_f32(h) : vx_f16_to_f32(h);
}

// What the spelling tells about the file as a whole.
typedef struct spelling {
    bool official, diffusers, flat, interleaved, reference;
} spelling;

static vx_status put_key(vx_adapter *a, const vx_adapter_key *key, const vx_safetensors_entry *e, spelling *seen)
{
    int32_t *index = &a->index[place(key->module, key->part)];
    if (*index < 0) {
        *index = a->slots;
        a->slot[a->slots++] = (vx_adapter_slot){ .module = key->module, .part = key->part };
    }
    vx_adapter_slot *s = &a->slot[*index];
    if (s->entry[key->role])
        return vx_fail(VX_ERR_TENSOR_DUPLICATE, "%s: '%.160s' and '%.160s' are for the same place", vx_short_path(a->path),
                       s->entry[key->role]->name, e->name);
    s->entry[key->role] = e;
    s->value_first[key->role] = key->value_first;
    // DiffSynth trains on the official rows, and alone writes PEFT's "default" behind official names.
    s->interleaved = s->interleaved || (key->default_ && !key->diffusers);
    seen->diffusers = seen->diffusers || key->diffusers;
    seen->official = seen->official || !key->diffusers;
    seen->flat = seen->flat || key->flat;
    seen->interleaved = seen->interleaved || (key->default_ && !key->diffusers);
    seen->reference = seen->reference || key->reference;
    return vx_ok();
}

static vx_status put_keys(vx_adapter *a, spelling *seen)
{
    vx_adapter_facts *f = &a->facts;
    f->keys = vx_safetensors_count(a->st);
    for (int i = 0; i < f->keys; i++) {
        const vx_safetensors_entry *e = vx_safetensors_at(a->st, i);
        vx_adapter_key key;
        const char *what = NULL;
        f->bytes += e->bytes;
        switch (vx_adapter_key_parse(&key, e->name, &what)) {
        case VX_KEY_KNOWN: VX_TRY(put_key(a, &key, e, seen)); break;
        case VX_KEY_UNKNOWN:
            if (f->unknown++ == 0) f->first_unknown = e->name;
            break;
        case VX_KEY_REFUSED:
            return vx_fail_remedy(VX_ERR_MODEL_LAYOUT, "use an adapter of plain low-rank factors (LoRA)",
                                  "%s: %s is not supported: found '%.200s'", vx_short_path(a->path), what, e->name);
        }
    }
    return vx_ok();
}

// ---- rules of a place ----

static bool is_stored(vx_dtype t)
{
    return t == VX_F32 || t == VX_BF16 || t == VX_F16;
}

static vx_status lone(const vx_adapter *a, const vx_adapter_slot *s, vx_adapter_role role, const char *lacks)
{
    char where[320];
    return vx_fail(VX_ERR_TENSOR_MISSING, "%s has no %s beside it", vx_adapter_where(where, a, s, role), lacks);
}

static vx_status check_format(const vx_adapter *a, const vx_adapter_slot *s, vx_adapter_role role, int rank)
{
    const vx_safetensors_entry *e = s->entry[role];
    char where[320], shape[96];
    if (!is_stored(e->dtype))
        return vx_fail(VX_ERR_TENSOR_DTYPE, "%s: number format %s, expected F32, BF16 or F16",
                       vx_adapter_where(where, a, s, role), vx_dtype_name(e->dtype));
    bool empty = e->rank == 0;
    for (int i = 0; i < e->rank; i++) empty = empty || e->shape[i] == 0;
    const bool folded = role == VX_ROLE_BANK && e->rank == 2; // heads and rows in one
    const bool folded_bias = role == VX_ROLE_BANK_BIAS && e->rank == 1;
    if ((e->rank == rank || folded || folded_bias) && !empty) return vx_ok();
    return vx_fail(VX_ERR_TENSOR_SHAPE, "%s: shape %s, expected %d dimensions, none of them 0",
                   vx_adapter_where(where, a, s, role), vx_shape_text(shape, vx_tensor_make(NULL, e->dtype, e->rank, e->shape)),
                   rank);
}

static vx_status check_pair(const vx_adapter *a, const vx_adapter_slot *s)
{
    const vx_safetensors_entry *down = s->entry[VX_ROLE_A], *up = s->entry[VX_ROLE_B];
    if (down && !up) return lone(a, s, VX_ROLE_A, "up factor (lora_B)");
    if (up && !down) return lone(a, s, VX_ROLE_B, "down factor (lora_A)");
    char where[320];
    static const vx_adapter_role wants_pair[] = { VX_ROLE_ALPHA, VX_ROLE_RESHAPE };
    for (int i = 0; i < 2 && !down; i++)
        if (s->entry[wants_pair[i]])
            return vx_fail(VX_ERR_TENSOR_UNEXPECTED, "%s stands without a pair of factors",
                           vx_adapter_where(where, a, s, wants_pair[i]));
    if (!down) return vx_ok();
    VX_TRY(check_format(a, s, VX_ROLE_A, 2));
    VX_TRY(check_format(a, s, VX_ROLE_B, 2));
    if (down->shape[0] == up->shape[1]) return vx_ok();
    return vx_fail(VX_ERR_TENSOR_SHAPE, "%s has rank %" PRId64 ", its up factor [%" PRId64 ",%" PRId64 "] rank %" PRId64,
                   vx_adapter_where(where, a, s, VX_ROLE_A), down->shape[0], up->shape[0], up->shape[1], up->shape[1]);
}

static vx_status check_reshape(const vx_adapter *a, const vx_adapter_slot *s)
{
    const vx_safetensors_entry *e = s->entry[VX_ROLE_RESHAPE];
    char where[320];
    int64_t shape[2];
    if (!e) return vx_ok();
    if (e->dtype != VX_I64 || e->rank != 1 || e->shape[0] != 2)
        return vx_fail(VX_ERR_TENSOR_SHAPE, "%s: expected two I64 numbers", vx_adapter_where(where, a, s, VX_ROLE_RESHAPE));
    memcpy(shape, e->data, sizeof shape);
    if (shape[0] == s->entry[VX_ROLE_B]->shape[0] && shape[1] == s->entry[VX_ROLE_A]->shape[1]) return vx_ok();
    return vx_fail(VX_ERR_TENSOR_SHAPE, "%s says [%" PRId64 ",%" PRId64 "], the factors make [%" PRId64 ",%" PRId64 "]",
                   vx_adapter_where(where, a, s, VX_ROLE_RESHAPE), shape[0], shape[1], s->entry[VX_ROLE_B]->shape[0],
                   s->entry[VX_ROLE_A]->shape[1]);
}

static vx_status check_bank(const vx_adapter *a, const vx_adapter_slot *s)
{
    const vx_safetensors_entry *bank = s->entry[VX_ROLE_BANK], *bias = s->entry[VX_ROLE_BANK_BIAS];
    char where[320];
    if (bias && !bank) return lone(a, s, VX_ROLE_BANK_BIAS, "weight");
    if (!bank) return vx_ok();
    VX_TRY(check_format(a, s, VX_ROLE_BANK, 3));
    if (bias) VX_TRY(check_format(a, s, VX_ROLE_BANK_BIAS, 2));
    if (!s->entry[VX_ROLE_A] && !s->entry[VX_ROLE_DIFF]) return vx_ok();
    return vx_fail(VX_ERR_TENSOR_DUPLICATE, "%s: a bank of heads and factors for the same module",
                   vx_adapter_where(where, a, s, VX_ROLE_BANK));
}

static vx_status check_slot(const vx_adapter *a, const vx_adapter_slot *s)
{
    char where[320];
    VX_TRY(check_pair(a, s));
    VX_TRY(check_reshape(a, s));
    VX_TRY(check_bank(a, s));
    if (s->entry[VX_ROLE_DIFF]) VX_TRY(check_format(a, s, VX_ROLE_DIFF, 2));
    if (s->entry[VX_ROLE_DIFF_BIAS]) VX_TRY(check_format(a, s, VX_ROLE_DIFF_BIAS, 1));
    if (s->part != VX_PART_WHOLE || s->module.kind != VX_MODULE_QKV) return vx_ok();
    for (int part = 0; part < VX_PART_WHOLE; part++) {
        const vx_adapter_slot *other = vx_adapter_slot_of(a, s->module, (vx_adapter_part)part);
        if (other)
            return vx_fail(VX_ERR_TENSOR_DUPLICATE, "%s is there both in one piece and as separate query, key and value",
                           vx_adapter_where(where, a, s, VX_ROLES));
    }
    return vx_ok();
}

// ---- alpha ----

static vx_status not_a_number(const vx_adapter *a, const char *key, const char *text)
{
    return vx_fail(VX_ERR_CONFIG, "%s: metadata '%s' is '%.60s', expected a finite number", vx_short_path(a->path), key, text);
}

// What diffusers writes: one JSON object, its members prefixed with the component.
static vx_status read_diffusers_metadata(const vx_adapter *a, const char *text, double *alpha, bool *found)
{
    json_t *o = NULL;
    if (strlen(text) > MOST_METADATA) return vx_fail(VX_ERR_FILE_LIMIT, "%s: its metadata is too long", vx_short_path(a->path));
    VX_TRY_IN(vx_json_parse(&o, text, strlen(text), 8, VX_ERR_CONFIG, "lora_adapter_metadata"), "%s", vx_short_path(a->path));
    vx_status s = vx_ok();
    const char *key;
    json_t *value;
    json_object_foreach(o, key, value)
    {
        const bool dora = vx_has_suffix(key, "use_dora"), rslora = vx_has_suffix(key, "use_rslora");
        if ((dora || rslora) && json_is_true(value))
            s = vx_fail(VX_ERR_MODEL_LAYOUT, "%s: %s is not supported", vx_short_path(a->path), dora ? "DoRA" : "rsLoRA");
        if (vx_has_suffix(key, "alpha_pattern") && json_object_size(value) > 0)
            s = vx_fail(VX_ERR_MODEL_LAYOUT, "%s: an alpha for each module in the metadata is not supported",
                        vx_short_path(a->path));
        if (vx_has_suffix(key, "lora_alpha") && json_is_number(value)) {
            *alpha = json_number_value(value);
            *found = true;
        }
        if (s.code != VX_OK) break;
    }
    json_decref(o);
    return s;
}

static vx_status read_metadata(const vx_adapter *a, double *alpha, bool *found)
{
    static const char *const keys[] = { "alpha", "lora_alpha" };
    *found = false;
    for (int i = 0; i < 2 && !*found; i++) {
        const char *text = vx_safetensors_metadata(a->st, keys[i]);
        char *end;
        if (!text) continue;
        *alpha = strtod(text, &end);
        if (end == text || *end || !isfinite(*alpha)) return not_a_number(a, keys[i], text);
        *found = true;
    }
    const char *text = vx_safetensors_metadata(a->st, "lora_adapter_metadata");
    if (text && !*found) VX_TRY(read_diffusers_metadata(a, text, alpha, found));
    if (*found && *alpha <= 0) vx_log(VX_LOG_WARNING, "%s: an alpha of %g", vx_short_path(a->path), *alpha);
    return vx_ok();
}

static vx_status read_alpha(const vx_adapter *a, vx_adapter_slot *s)
{
    const vx_safetensors_entry *e = s->entry[VX_ROLE_ALPHA];
    char where[320];
    vx_adapter_where(where, a, s, VX_ROLE_ALPHA);
    int64_t count = 1;
    for (int i = 0; i < e->rank; i++) count = e->shape[i] == 1 ? count : 0;
    if (count != 1) return vx_fail(VX_ERR_TENSOR_SHAPE, "%s is not one number", where);
    if (e->dtype == VX_F64) memcpy(&s->alpha, e->data, sizeof s->alpha);
    else if (is_stored(e->dtype)) s->alpha = (double)vx_adapter_number(e, 0);
    else
        return vx_fail(VX_ERR_TENSOR_DTYPE, "%s: number format %s, expected F64, F32, BF16 or F16", where,
                       vx_dtype_name(e->dtype));
    if (!isfinite(s->alpha)) return vx_fail(VX_ERR_CONFIG, "%s is not a finite number", where);
    if (s->alpha <= 0) vx_log(VX_LOG_WARNING, "%s is %g", where, s->alpha);
    return vx_ok();
}

static void widen_range(double *lo, double *hi, double x, bool first)
{
    if (first || x < *lo) *lo = x;
    if (first || x > *hi) *hi = x;
}

// The rule of precedence: the module's own, the file's, the user's, the table's, the rank.
static vx_status set_scales(vx_adapter *a)
{
    vx_adapter_facts *f = &a->facts;
    double of_file = 0;
    bool in_file, first = true;
    VX_TRY(read_metadata(a, &of_file, &in_file));
    const double of_table = f->preset ? f->preset->alpha : 0;
    const vx_alpha_source common = in_file                ? VX_ALPHA_OF_METADATA
                                   : a->params.alpha != 0 ? VX_ALPHA_OF_OPTION
                                   : of_table != 0        ? VX_ALPHA_OF_TABLE
                                                          : VX_ALPHA_IS_RANK;
    f->alpha_source = VX_ALPHA_OF_TENSORS;
    for (int i = 0; i < a->slots; i++) {
        vx_adapter_slot *s = &a->slot[i];
        if (!s->entry[VX_ROLE_A]) continue;
        const int64_t rank = s->entry[VX_ROLE_A]->shape[0];
        if (s->entry[VX_ROLE_ALPHA]) VX_TRY(read_alpha(a, s));
        else {
            s->alpha = common == VX_ALPHA_OF_METADATA ? of_file
                       : common == VX_ALPHA_OF_OPTION ? a->params.alpha
                       : common == VX_ALPHA_OF_TABLE  ? of_table
                                                      : (double)rank;
            f->alpha_source = common;
        }
        const double scale = (double)a->params.strength * s->alpha / (double)rank;
        s->scale = (float)scale;
        widen_range(&f->alpha_min, &f->alpha_max, s->alpha, first);
        widen_range(&f->scale_min, &f->scale_max, scale, first);
        f->rank_min = first || rank < f->rank_min ? rank : f->rank_min;
        f->rank_max = first || rank > f->rank_max ? rank : f->rank_max;
        first = false;
    }
    if (first) f->alpha_source = VX_ALPHA_IS_RANK; // no pair at all
    return vx_ok();
}

// ---- the file as a whole ----

static void set_facts(vx_adapter *a, const spelling *seen)
{
    vx_adapter_facts *f = &a->facts;
    f->path = a->path;
    f->modules = a->slots;
    f->strength = a->params.strength;
    f->preset = vx_adapter_preset_of(a->path);
    f->spelling = seen->interleaved ? "interleaved" : seen->flat ? "flattened" : seen->diffusers ? "diffusers" : "official";
    const char *format = vx_safetensors_metadata(a->st, "key_format");
    if (seen->reference || (format && strstr(format, "ref2va"))) f->variant = VX_VARIANT_REF2VA;
    else if (format && strstr(format, "fl2va")) f->variant = VX_VARIANT_FL2VA;
    for (int i = 0; i < a->slots; i++) f->bank = f->bank || a->slot[i].entry[VX_ROLE_BANK] || a->slot[i].entry[VX_ROLE_RESHAPE];
}

static vx_status is_part(const char *path, vx_component_kind kind)
{
    return vx_remedy(vx_fail(VX_ERR_MODEL_LAYOUT, "%s is no adapter, it looks like the %s of MiniMax H3", vx_short_path(path),
                             vx_component_kind_name(kind)),
                     "give it with %s, and an adapter with --lora", vx_component_option(kind));
}

// A part of a model has keys that an adapter has too: heads, which a bank replaces.
static vx_status refuse_part(const char *path)
{
    vx_file_facts facts;
    VX_TRY(vx_file_look(&facts, path));
    return facts.component ? is_part(path, facts.kind) : vx_ok();
}

// What stands in the place of an adapter's file, and what to do about it: folders and GGUF files are models' as a rule.
static vx_status refuse_other(vx_status s, const char *path)
{
    vx_file_facts facts;
    vx_component_kind kind;
    if (s.code == VX_ERR_MEMORY) return s;
    if (vx_folder_exists(path))
        return vx_folder_look(path, &kind) ? is_part(path, kind) : vx_remedy(s, "name the adapter's .safetensors file inside it");
    if (s.code == VX_ERR_FILE_FORMAT && vx_file_look(&facts, path).code == VX_OK && facts.component)
        return is_part(path, facts.kind);
    return s.code == VX_ERR_FILE_FORMAT || vx_file_exists(path) ? vx_remedy(s, "an adapter is one .safetensors file") : s;
}

static vx_status check_keys(const vx_adapter *a)
{
    const vx_adapter_facts *f = &a->facts;
    const char *file = vx_short_path(a->path);
    if (a->slots == 0 || f->unknown) VX_TRY(refuse_part(a->path));
    if (a->slots == 0)
        return vx_fail_remedy(VX_ERR_TENSOR_UNEXPECTED, "give an adapter that was made for MiniMax H3",
                              "%s: none of its %d keys names a module of this transformer, the first is '%.160s'", file, f->keys,
                              f->first_unknown ? f->first_unknown : "");
    if (f->unknown == 0) return vx_ok();
    if (a->params.partial) {
        vx_log(VX_LOG_WARNING, "%s: %d of %d keys name no module of this transformer, the first is '%.160s'", file, f->unknown,
               f->keys, f->first_unknown);
        return vx_ok();
    }
    return vx_fail_remedy(VX_ERR_TENSOR_UNEXPECTED, "give --lora-allow-partial to go on without them",
                          "%s: %d of %d keys name no module of this transformer, the first is '%.160s'", file, f->unknown,
                          f->keys, f->first_unknown);
}

static vx_status read(vx_adapter *a)
{
    spelling seen = { 0 };
    const int count = vx_safetensors_count(a->st);
    a->slot = vx_alloc_array((size_t)count + 1, sizeof *a->slot);
    a->index = vx_alloc_array(PLACES, sizeof *a->index);
    if (!a->slot || !a->index) return vx_no_memory("for an adapter");
    for (size_t i = 0; i < PLACES; i++) a->index[i] = -1;
    VX_TRY(put_keys(a, &seen));
    VX_TRY(check_keys(a));
    for (int i = 0; i < a->slots; i++) VX_TRY(check_slot(a, &a->slot[i]));
    set_facts(a, &seen);
    VX_TRY(set_scales(a));
    return vx_safetensors_check(a->st);
}

vx_status vx_adapter_open(vx_adapter **out, const char *path, const vx_adapter_params *params)
{
    *out = NULL;
    vx_adapter *a = vx_alloc_array(1, sizeof *a);
    VX_NEED_MEMORY(a, "an adapter");
    a->params = *params;
    vx_status s = vx_safetensors_open(&a->st, path, NULL);
    if (s.code != VX_OK) s = refuse_other(s, path);
    if (s.code == VX_OK && !(a->path = vx_strdup(path))) s = vx_no_memory("for a path");
    if (s.code == VX_OK) s = read(a);
    if (s.code != VX_OK) vx_adapter_close(&a);
    else *out = a;
    return s;
}

void vx_adapter_close(vx_adapter **adapter)
{
    if (!adapter || !*adapter) return;
    vx_adapter *a = *adapter;
    vx_safetensors_close(&a->st);
    vx_free(a->slot);
    vx_free(a->index);
    vx_free(a->path);
    vx_free(a);
    *adapter = NULL;
}

const vx_adapter_facts *vx_adapter_facts_of(const vx_adapter *adapter)
{
    return &adapter->facts;
}

vx_status vx_adapter_check(const vx_adapter *adapter)
{
    return vx_safetensors_check(adapter->st);
}

void vx_adapter_forget(const vx_adapter *a, vx_device *dev)
{
    for (int i = 0; i < vx_safetensors_count(a->st); i++) {
        const vx_safetensors_entry *e = vx_safetensors_at(a->st, i);
        vx_device_forget(dev, e->data, (size_t)e->bytes);
    }
}

vx_status vx_adapter_finish(vx_adapter *a, int *unused)
{
    const vx_adapter_slot *first = NULL;
    *unused = 0;
    for (int i = 0; i < a->slots; i++) {
        if (a->slot[i].used) continue;
        if (!first) first = &a->slot[i];
        ++*unused;
    }
    if (!first) return vx_ok();
    char name[64];
    vx_adapter_module_name(name, first->module);
    if (*unused == a->slots || !a->params.partial)
        return vx_fail_remedy(VX_ERR_TENSOR_UNEXPECTED,
                              *unused == a->slots ? "give an adapter that was made for this model"
                                                  : "give --lora-allow-partial to go on without them",
                              "%s: %d of its %d modules are not in this model, the first is %s", vx_short_path(a->path), *unused,
                              a->slots, name);
    // The plan asks too: who reports warns, once.
    vx_log(VX_LOG_INFO, "%s: %d of its %d modules are not in this model, the first is %s", vx_short_path(a->path), *unused,
           a->slots, name);
    return vx_ok();
}
