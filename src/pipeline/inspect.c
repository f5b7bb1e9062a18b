// What a path holds, and what is wrong with it. Problems are reported, not returned: the point is to see all of them.
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "pipeline/internal.h"

static const char *const component_names[] = { [VX_TRANSFORMER] = "transformer",
                                               [VX_TEXT_ENCODER] = "text_encoder",
                                               [VX_VIDEO_VAE] = "video_vae",
                                               [VX_AUDIO_VAE] = "audio_vae" };

static void add_problem(json_t *problems, vx_status s)
{
    if (!s.code) return;
    char code[16];
    snprintf(code, sizeof code, "VX-%04d", (int)s.code);
    json_array_append_new(problems, json_pack("{s:s, s:o, s:o}", "code", code, "message", vx_json_name(s.message), "remedy",
                                              vx_json_name(s.remedy)));
}

static void inspect_component(json_t *list, json_t *problems, vx_model *m, vx_component_kind kind)
{
    vx_component *c = m->component[kind];
    if (!c) {
        add_problem(problems, vx_model_map_need(&m->map, kind));
        return;
    }
    json_array_append_new(list, json_pack("{s:s, s:o, s:s, s:I}", "name", component_names[kind], "path",
                                          vx_json_name(vx_component_path(c)), "layout",
                                          vx_component_layout(c) == VX_LAYOUT_DIFFUSERS ? "diffusers" : "official", "bytes",
                                          (json_int_t)vx_component_bytes(c)));
}

static json_t *dimensions(const vx_model *m)
{
    json_t *o = json_object();
    if (m->denoiser) {
        const vx_denoiser_config *c = vx_denoiser_config_of(m->denoiser);
        json_object_set_new(o, "transformer",
                            json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "hidden_size", (json_int_t)c->hidden, "num_layers",
                                      (json_int_t)c->layers, "num_attention_heads", (json_int_t)c->heads, "attention_head_dim",
                                      (json_int_t)c->head_dim, "ffn_hidden_size", (json_int_t)c->ffn, "text_dim",
                                      (json_int_t)c->text_dim));
    }
    if (m->language) {
        const vx_language_config *c = vx_language_config_of(m->language);
        json_object_set_new(o, "text_encoder",
                            json_pack("{s:I, s:I, s:I, s:I, s:I}", "hidden_size", (json_int_t)c->hidden, "num_hidden_layers",
                                      (json_int_t)c->layers_in_file, "num_attention_heads", (json_int_t)c->heads,
                                      "num_key_value_heads", (json_int_t)c->kv_heads, "intermediate_size",
                                      (json_int_t)c->intermediate));
    }
    if (m->video) {
        const vx_video_decoder_config *c = vx_video_decoder_config_of(m->video);
        json_object_set_new(o, "video_vae",
                            json_pack("{s:I, s:I, s:I, s:I}", "latent_channels", (json_int_t)c->latent_channels, "num_layers",
                                      (json_int_t)c->layers, "heads", (json_int_t)c->heads, "dim", (json_int_t)c->dim));
    }
    if (m->audio) {
        const vx_audio_decoder_config *c = vx_audio_decoder_config_of(m->audio);
        json_object_set_new(o, "audio_vae",
                            json_pack("{s:I, s:I, s:I, s:I}", "latent_channels", (json_int_t)c->latent_channels, "decoder_dim",
                                      (json_int_t)c->decoder_dim, "hop", (json_int_t)c->hop, "sampling_rate",
                                      (json_int_t)c->sample_rate));
    }
    return o;
}

static vx_status inspect_model(vx_context *context, const char *path, json_t *o, json_t *problems)
{
    vx_model *m = NULL;
    VX_TRY(vx_model_open(context, &m, &(vx_model_params){ VX_INIT(vx_model_params), .path = path }));
    json_t *components = json_array();
    add_problem(problems, vx_model_text(m));
    add_problem(problems, vx_model_denoiser(m));
    add_problem(problems, vx_model_vaes(m, true, false));
    add_problem(problems, vx_model_vaes(m, false, true));
    // The encoders are for keyframes and references: a model without them makes clips from prompts.
    vx_status vision = vx_model_encoders(m, true, false, false), video = vx_model_encoders(m, false, true, false),
              audio = vx_model_encoders(m, false, false, true);
    json_object_set_new(o, "encoders",
                        json_pack("{s:b, s:b, s:b}", "vision", !vision.code, "video", !video.code, "audio", !audio.code));
    uint64_t bytes = 0;
    for (int i = 0; i < VX_COMPONENT_KINDS; i++) {
        inspect_component(components, problems, m, (vx_component_kind)i);
        if (m->component[i]) bytes += vx_component_bytes(m->component[i]);
    }
    json_object_set_new(o, "kind", json_string("model"));
    json_object_set_new(o, "layout", json_string(m->map.layout == VX_LAYOUT_DIFFUSERS ? "diffusers" : "official"));
    json_object_set_new(o, "variant",
                        json_string(m->map.variant == VX_VARIANT_FL2VA    ? "fl2va"
                                    : m->map.variant == VX_VARIANT_REF2VA ? "ref2va"
                                                                          : "unknown"));
    json_object_set_new(o, "shift", json_pack("{s:f, s:f}", "video", m->map.flow_shift, "audio", m->map.audio_flow_shift));
    json_object_set_new(o, "components", components);
    json_object_set_new(o, "dimensions", dimensions(m));
    json_object_set_new(o, "bytes", json_integer((json_int_t)bytes));
    json_object_set_new(o, "memory_available_bytes", json_integer((json_int_t)vx_memory_available()));
    vx_model_close(&m);
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

vx_status vx_inspect(vx_context *context, const char *path, char **json)
{
    json_t *o = json_object(), *problems = json_array();
    json_object_set_new(o, "path", vx_json_name(path));
    vx_status s = vx_ok();
    if (looks_like_mp4(path)) s = inspect_movie(path, o);
    else if (vx_folder_exists(path)) s = inspect_model(context, path, o, problems);
    else s = inspect_tensors(path, o);
    json_object_set_new(o, "problems", problems);
    if (s.code) {
        json_decref(o);
        return s;
    }
    return vx_json_text(o, json);
}
