// What can be said of an adapter's file without the model that it goes onto.
#include "weights/adapter_inside.h"

#include <string.h>

#include "base/alloc.h"
#include "tensor/quant.h"
#include "weights/foreign.h"

static const char *const kind_names[VX_MODULE_KINDS] = {
    [VX_MODULE_QKV] = "qkv_proj",
    [VX_MODULE_OUT] = "out_proj",
    [VX_MODULE_FC1] = "fc1",
    [VX_MODULE_FC2] = "fc2",
    [VX_MODULE_ADALN] = "adaln_proj",
    [VX_MODULE_VIDEO_PATCH] = "video_patch_proj",
    [VX_MODULE_AUDIO_PATCH] = "audio_patch_proj",
    [VX_MODULE_CONDITION] = "condition_proj",
    [VX_MODULE_TIME_IN] = "time_embedder.proj_in",
    [VX_MODULE_TIME_OUT] = "time_embedder.proj_out",
    [VX_MODULE_FINAL_ADALN] = "final_layer.adaln_proj",
    [VX_MODULE_VIDEO_OUT] = "final_layer.video_out",
    [VX_MODULE_AUDIO_OUT] = "final_layer.audio_out",
};

static json_t *targets(const vx_adapter *a)
{
    int main_blocks[VX_MODULE_KINDS] = { 0 }, refiner[VX_MODULE_KINDS] = { 0 };
    for (int i = 0; i < a->slots; i++) (a->slot[i].module.refiner ? refiner : main_blocks)[a->slot[i].module.kind]++;
    json_t *o = json_object();
    for (int k = 0; k < VX_MODULE_KINDS; k++) {
        char name[64];
        if (main_blocks[k]) json_object_set_new(o, kind_names[k], json_integer(main_blocks[k]));
        snprintf(name, sizeof name, "token_refiner.%s", kind_names[k]);
        if (refiner[k]) json_object_set_new(o, name, json_integer(refiner[k]));
    }
    return o;
}

static json_t *formats(const vx_adapter *a)
{
    json_t *o = json_object();
    for (int i = 0; i < vx_safetensors_count(a->st); i++) {
        const char *name = vx_dtype_name(vx_safetensors_at(a->st, i)->dtype);
        json_object_set_new(o, name, json_integer(json_integer_value(json_object_get(o, name)) + 1));
    }
    return o;
}

static json_t *range(double lo, double hi)
{
    return json_pack("[f,f]", lo, hi);
}

static json_t *preset(const vx_adapter_preset *p)
{
    json_t *o = json_pack("{s:s, s:i, s:f, s:f, s:f}", "name", p->name, "steps", p->steps, "shift", (double)p->shift,
                          "audio_shift", (double)p->audio_shift, "strength", (double)p->strength);
    if (p->caution) json_object_set_new(o, "caution", json_string(p->caution));
    return o;
}

const char *vx_alpha_source_name(vx_alpha_source source)
{
    static const char *const names[] = { [VX_ALPHA_OF_TENSORS] = "tensors",
                                         [VX_ALPHA_OF_METADATA] = "metadata",
                                         [VX_ALPHA_OF_OPTION] = "option",
                                         [VX_ALPHA_OF_TABLE] = "known file",
                                         [VX_ALPHA_IS_RANK] = "rank" };
    return names[source];
}

static void describe(json_t *o, const vx_adapter *a)
{
    const vx_adapter_facts *f = &a->facts;
    json_object_set_new(o, "spelling", json_string(f->spelling));
    json_object_set_new(o, "keys", json_integer(f->keys));
    json_object_set_new(o, "unknown_keys", json_integer(f->unknown));
    json_object_set_new(o, "bytes", json_integer((json_int_t)f->bytes));
    json_object_set_new(o, "modules", json_integer(f->modules));
    json_object_set_new(o, "targets", targets(a));
    json_object_set_new(o, "formats", formats(a));
    json_object_set_new(o, "rank", json_pack("[I,I]", (json_int_t)f->rank_min, (json_int_t)f->rank_max));
    json_object_set_new(o, "alpha", range(f->alpha_min, f->alpha_max));
    json_object_set_new(o, "alpha_from", json_string(vx_alpha_source_name(f->alpha_source)));
    json_object_set_new(o, "scale", range(f->scale_min, f->scale_max));
    json_object_set_new(o, "variant",
                        json_string(f->variant == VX_VARIANT_REF2VA  ? "ref2va"
                                    : f->variant == VX_VARIANT_FL2VA ? "fl2va"
                                                                     : "unknown"));
    json_object_set_new(o, "bank", json_boolean(f->bank));
    json_object_set_new(o, "preset", f->preset ? preset(f->preset) : json_null());
}

vx_status vx_adapter_describe(const char *path, json_t **out, vx_status *problem)
{
    *out = NULL;
    vx_safetensors *st;
    VX_TRY(vx_safetensors_open(&st, path, NULL));
    vx_safetensors_close(&st);
    vx_adapter *a;
    *problem = vx_adapter_open(&a, path, &(vx_adapter_params){ .strength = 1, .partial = true });
    if (problem->code == VX_ERR_MEMORY) return *problem;
    json_t *o = json_pack("{s:s}", "kind", "adapter");
    VX_NEED_MEMORY(o, "a report");
    if (a) describe(o, a);
    if (a && a->facts.unknown)
        *problem = vx_fail(VX_ERR_TENSOR_UNEXPECTED, "%d keys name no module of this transformer, the first is '%.160s'",
                           a->facts.unknown, a->facts.first_unknown);
    vx_adapter_close(&a);
    *out = o;
    return vx_ok();
}

static vx_status verify_entry(const char *path, const vx_safetensors_entry *e)
{
    if (e->dtype != VX_F32 && e->dtype != VX_BF16 && e->dtype != VX_F16) return vx_ok();
    const vx_quant plain = { 0 };
    vx_status s = vx_quant_verify(&plain, vx_tensor_make((void *)(uintptr_t)e->data, e->dtype, e->rank, e->shape));
    return vx_within(s, "%s: tensor '%.160s'", vx_short_path(path), e->name);
}

// All ones in the exponent: NaN or infinity. Bits are copied in pieces of one size, because the data may stand at any byte and
// because a compiler makes vectors of such loops: 298 MB take 43 ms of one core, the first look at the pages among them.
enum { PIECE = 4096 };

static bool has_wide(const uint32_t bits[PIECE / 4])
{
    uint32_t found = 0;
    for (size_t i = 0; i < PIECE / 4; i++) found |= (bits[i] & 0x7f800000) == 0x7f800000;
    return found;
}

static bool has_half(const uint16_t bits[PIECE / 2], uint16_t exponent)
{
    uint16_t found = 0;
    for (size_t i = 0; i < PIECE / 2; i++) found |= (bits[i] & exponent) == exponent;
    return found;
}

static bool is_finite_throughout(const vx_safetensors_entry *e)
{
    const char *at = e->data;
    union {
        uint32_t wide[PIECE / 4];
        uint16_t half[PIECE / 2];
    } piece = { { 0 } };
    for (uint64_t left = e->bytes; left > 0;) {
        const size_t size = left < PIECE ? (size_t)left : PIECE;
        memcpy(&piece, at, size); // behind a short last one stands what was found to be finite
        if (e->dtype == VX_F32 ? has_wide(piece.wide) : has_half(piece.half, e->dtype == VX_F16 ? 0x7c00 : 0x7f80)) return false;
        at += size;
        left -= size;
    }
    return true;
}

vx_status vx_adapter_check_numbers(const vx_adapter *a)
{
    for (int i = 0; i < a->slots; i++)
        for (int r = 0; r < VX_ROLES; r++) {
            const vx_safetensors_entry *e = a->slot[i].entry[r];
            if (!e || (e->dtype != VX_F32 && e->dtype != VX_BF16 && e->dtype != VX_F16) || is_finite_throughout(e)) continue;
            VX_TRY(vx_adapter_check(a)); // numbers of a file that shrank are not its own
            VX_TRY(
                vx_remedy(verify_entry(a->path, e), "the adapter is damaged or was trained so: fetch it again, or leave it out"));
        }
    return vx_ok();
}

vx_status vx_adapter_verify(const char *path, void (*found)(void *user, vx_status fault), void *user)
{
    vx_safetensors *st;
    VX_TRY(vx_safetensors_open(&st, path, NULL));
    vx_status whole = vx_ok();
    for (int i = 0; i < vx_safetensors_count(st) && !whole.code; i++) {
        vx_status s = verify_entry(path, vx_safetensors_at(st, i));
        whole = vx_safetensors_check(st); // numbers of a file that shrank are not its own
        if (s.code && !whole.code) found(user, s);
    }
    vx_safetensors_close(&st);
    return whole;
}
