// What a path holds, and what is wrong with it. Problems are reported, not returned: the point is to see all of them.
#include "pipeline/inspect.h"

#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "weights/census.h"

// ---- a model ----

static void inspect_one(json_t *list, vx_inspection *i, vx_model *m, vx_component_kind kind, bool verify)
{
    vx_component *c = m->component[kind];
    if (!c) {
        vx_inspection_add(i, vx_model_map_need(&m->map, kind));
        return;
    }
    json_array_append_new(list, vx_inspect_component(c, kind));
    if (verify) vx_inspect_verify(i, c);
}

static const char *variant_word(vx_variant v)
{
    return v == VX_VARIANT_FL2VA ? "fl2va" : v == VX_VARIANT_REF2VA ? "ref2va" : "unknown";
}

static void set_variant(json_t *o, vx_variant variant, const char *reason)
{
    json_object_set_new(o, "variant", json_string(variant_word(variant)));
    json_object_set_new(o, "variant_by", reason ? json_string(reason) : json_null());
}

static vx_status inspect_model(vx_context *context, const vx_inspect_params *p, json_t *o, vx_inspection *i)
{
    vx_model *m = NULL;
    VX_TRY(vx_model_open(context, &m,
                         &(vx_model_params){ VX_INIT(vx_model_params), .path = p->path, .device = "cpu", .vision = p->vision,
                                             .qkv_layout = p->qkv_layout }));
    json_t *components = json_array();
    vx_inspection_add(i, vx_model_text(m));
    vx_inspection_add(i, vx_model_denoiser(m));
    vx_inspection_add(i, vx_model_vaes(m, true, false));
    vx_inspection_add(i, vx_model_vaes(m, false, true));
    // The encoders are for keyframes and references: a model without them makes clips from prompts.
    vx_status vision = vx_model_encoders(m, true, false, false), video = vx_model_encoders(m, false, true, false),
              audio = vx_model_encoders(m, false, false, true);
    json_object_set_new(o, "encoders",
                        json_pack("{s:b, s:b, s:b}", "vision", !vision.code, "video", !video.code, "audio", !audio.code));
    uint64_t bytes = 0;
    for (int k = 0; k < VX_COMPONENT_KINDS; k++) {
        inspect_one(components, i, m, (vx_component_kind)k, p->verify);
        if (m->component[k]) bytes += vx_component_bytes(m->component[k]);
    }
    json_object_set_new(o, "kind", json_string("model"));
    json_object_set_new(o, "layout", json_string(m->map.layout == VX_LAYOUT_DIFFUSERS ? "diffusers" : "official"));
    set_variant(o, m->map.variant, m->map.variant_reason);
    json_object_set_new(o, "shift", json_pack("{s:f, s:f}", "video", m->map.flow_shift, "audio", m->map.audio_flow_shift));
    json_object_set_new(o, "components", components);
    json_object_set_new(o, "dimensions", vx_inspect_dimensions(m));
    json_object_set_new(o, "bytes", json_integer((json_int_t)bytes));
    json_object_set_new(o, "memory_available_bytes", json_integer((json_int_t)vx_memory_available()));
    json_object_set_new(o, "gpus", vx_inspect_memory(m));
    vx_file_warnings(i->warnings, m);
    vx_model_close(&m);
    return vx_ok();
}

// ---- one file ----

// A text encoder's vision tower that was published by itself.
static bool is_tower(const vx_component *c)
{
    return !vx_component_has(c, "model.language_model.embed_tokens.weight") &&
           vx_component_has(c, "model.visual.pos_embed.weight");
}

static vx_status bind(vx_model *m, vx_component_kind kind)
{
    vx_component *c = m->component[kind];
    switch (kind) {
    case VX_TRANSFORMER: return vx_denoiser_open(&m->denoiser, c);
    case VX_TEXT_ENCODER: return is_tower(c) ? vx_vision_open(&m->vision, c) : vx_language_open(&m->language, c);
    case VX_VIDEO_VAE: return vx_video_decoder_open(&m->video, c);
    default: return vx_audio_decoder_bind(&m->audio, c);
    }
}

// A component by itself: a model of which only that part is there.
static void inspect_component_file(const vx_inspect_params *p, const vx_file_facts *facts, json_t *o, vx_inspection *i)
{
    vx_model m = { 0 };
    const vx_component_kind kind = facts->kind;
    const vx_qkv_statement qkv = !p->qkv_layout                          ? VX_QKV_BY_FILE
                                 : !strcmp(p->qkv_layout, "grouped")     ? VX_QKV_STATED_GROUPED
                                 : !strcmp(p->qkv_layout, "interleaved") ? VX_QKV_STATED_INTERLEAVED
                                                                         : VX_QKV_BY_FILE;
    json_object_set_new(o, "kind", json_string(vx_component_words[kind]));
    if (kind == VX_TRANSFORMER) set_variant(o, facts->variant, facts->variant_reason);
    vx_status s =
        vx_component_open_as(&m.component[kind], kind, p->path, &(vx_component_params){ .qkv = qkv, .vision = p->vision });
    if (!s.code) s = bind(&m, kind);
    vx_inspection_add(i, s);
    if (m.component[kind] && kind == VX_TEXT_ENCODER && is_tower(m.component[kind]))
        json_object_set_new(o, "kind", json_string("vision_tower"));
    if (m.component[kind]) {
        json_object_set_new(o, "component", vx_inspect_component(m.component[kind], kind));
        json_object_set_new(o, "bytes", json_integer((json_int_t)vx_component_bytes(m.component[kind])));
        if (p->verify) vx_inspect_verify(i, m.component[kind]);
    }
    vx_file_warnings(i->warnings, &m);
    json_object_set_new(o, "dimensions", vx_inspect_dimensions(&m));
    if (m.denoiser || m.language || m.video) json_object_set_new(o, "gpus", vx_inspect_memory(&m));
    vx_denoiser_close(&m.denoiser);
    vx_language_close(&m.language);
    vx_vision_close(&m.vision);
    vx_video_decoder_close(&m.video);
    vx_audio_decoder_close(&m.audio);
    vx_component_close(&m.component[kind]);
}

static vx_status inspect_adapter(const char *path, bool verify, json_t *o, vx_inspection *i)
{
    json_t *about;
    vx_status problem;
    VX_TRY(vx_adapter_describe(path, &about, &problem));
    json_object_update(o, about);
    json_decref(about);
    vx_inspection_add(i, problem);
    if (verify) vx_inspect_verify_adapter(i, path);
    return vx_ok();
}

static json_t *shape_array(const vx_safetensors_entry *e)
{
    json_t *a = json_array();
    for (int i = 0; i < e->rank; i++) json_array_append_new(a, json_integer(e->shape[i]));
    return a;
}

// Latents have tensors named video or audio and no others; whatever else it is, the tensors are listed.
static vx_status inspect_tensors(const char *path, json_t *o)
{
    enum { LISTED = 1000 };
    vx_safetensors *st = NULL;
    VX_TRY(vx_safetensors_open(&st, path, NULL));
    int n = vx_safetensors_count(st);
    bool latents = n > 0;
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        const vx_safetensors_entry *e = vx_safetensors_at(st, i);
        latents = latents && (!strcmp(e->name, "video") || !strcmp(e->name, "audio"));
        if (i < LISTED)
            json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:I}", "name", e->name, "dtype", vx_dtype_name(e->dtype),
                                                  "shape", shape_array(e), "bytes", (json_int_t)e->bytes));
    }
    json_object_set_new(o, "kind", json_string(latents ? "latents" : "tensors"));
    json_object_set_new(o, "count", json_integer(n));
    json_object_set_new(o, "tensors", list);
    const char *request = vx_safetensors_metadata(st, "request");
    json_t *parsed = request ? json_loads(request, 0, NULL) : NULL;
    if (request) json_object_set_new(o, "request", parsed ? parsed : vx_json_name(request));
    vx_safetensors_close(&st);
    return vx_ok();
}

static vx_status inspect_movie(const char *path, json_t *o)
{
    vx_movie_facts f = { 0 };
    VX_TRY(vx_movie_inspect(&f, path, true));
    char fps[32];
    snprintf(fps, sizeof fps, "%d/%d", f.fps_num, f.fps_den);
    json_object_set_new(o, "kind", json_string("mp4"));
    json_object_set_new(o, "video",
                        json_pack("{s:s, s:s, s:s, s:i, s:i, s:s, s:I, s:f}", "codec", f.video_codec, "pixel_format",
                                  f.pixel_format, "color", f.color, "width", f.width, "height", f.height, "fps", fps, "frames",
                                  (json_int_t)f.frames, "seconds", f.video_s));
    json_object_set_new(o, "audio",
                        json_pack("{s:s, s:i, s:I, s:f}", "codec", f.audio_codec, "sample_rate", f.sample_rate, "samples",
                                  (json_int_t)f.samples, "seconds", f.audio_s));
    json_object_set_new(o, "faststart", json_boolean(f.moov_first));
    json_t *request = f.comment ? json_loads(f.comment, 0, NULL) : NULL;
    json_object_set_new(o, "request", request ? request : json_null());
    vx_free(f.comment);
    return vx_ok();
}

// "ftyp" at byte 4 marks the family of MP4.
static bool looks_like_mp4(const char *path)
{
    vx_mapping *m = NULL;
    if (vx_file_map(&m, path, VX_ERR_INPUT_OPEN).code) return false;
    bool yes = vx_mapping_size(m) > 12 && !memcmp(vx_mapping_data(m) + 4, "ftyp", 4);
    vx_file_unmap(&m);
    return yes;
}

static vx_status inspect_file(const vx_inspect_params *p, json_t *o, vx_inspection *i)
{
    vx_file_facts facts;
    VX_TRY(vx_file_look(&facts, p->path));
    if (facts.adapter) return inspect_adapter(p->path, p->verify, o, i);
    if (!facts.component) return inspect_tensors(p->path, o);
    inspect_component_file(p, &facts, o, i);
    return vx_ok();
}

static vx_status inspect_folder(vx_context *context, const vx_inspect_params *p, json_t *o, vx_inspection *i)
{
    vx_file_facts facts = { .component = true };
    const vx_status s = inspect_model(context, p, o, i);
    if (s.code != VX_ERR_MODEL_UNKNOWN || !vx_folder_look(p->path, &facts.kind)) return s;
    inspect_component_file(p, &facts, o, i);
    return vx_ok();
}

vx_status vx_inspect_with(vx_context *context, const vx_inspect_params *params, char **json, vx_status *problem)
{
    vx_inspect_params p = { 0 };
    if (!params || !params->struct_size || params->struct_size > sizeof p)
        return vx_fail(VX_ERR_USAGE, "the parameters of inspect were not initialised with VX_INIT");
    memcpy(&p, params, params->struct_size);
    json_t *o = json_object();
    vx_inspection i = { .problems = json_array(), .warnings = json_array() };
    json_object_set_new(o, "path", vx_json_name(p.path));
    vx_status s = vx_ok();
    if (looks_like_mp4(p.path)) s = inspect_movie(p.path, o);
    else if (vx_folder_exists(p.path)) s = inspect_folder(context, &p, o, &i);
    else s = inspect_file(&p, o, &i);
    json_object_set_new(o, "warnings", i.warnings);
    json_object_set_new(o, "problems", i.problems);
    if (s.code) {
        json_decref(o);
        return s;
    }
    if (problem) *problem = i.first;
    return vx_json_text(o, json);
}

vx_status vx_inspect(vx_context *context, const char *path, char **json)
{
    return vx_inspect_with(context, &(vx_inspect_params){ VX_INIT(vx_inspect_params), .path = path }, json, NULL);
}
