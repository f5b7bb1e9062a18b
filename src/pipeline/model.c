// An opened model: where its components are, and the networks bound to them, each when a job first needs it. Binding reads
// headers only, so that a request that cannot run is refused before anything large is touched.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "pipeline/internal.h"

enum { MODEL_PATHS = 6 };

static vx_status find(const vx_model *m, vx_variant wanted, vx_model_map *out)
{
    return vx_model_map_find(out, &(vx_model_map_params){ .model = m->path[0],
                                                          .text_encoder = m->path[1],
                                                          .video_vae = m->path[2],
                                                          .audio_vae = m->path[3],
                                                          .tokenizer = m->path[4],
                                                          .vision = m->path[5],
                                                          .variant = wanted,
                                                          .stated = m->stated });
}

vx_status vx_model_open(vx_context *context, vx_model **out, const vx_model_params *params)
{
    vx_model_params p = { 0 };
    if (!params || !params->struct_size || params->struct_size > sizeof p)
        return vx_fail(VX_ERR_USAGE, "the model parameters were not initialised with VX_INIT");
    memcpy(&p, params, params->struct_size);
    if (!p.path || !*p.path)
        return vx_remedy(vx_fail_field(VX_ERR_REQUIRED, "model", "no model was named"), "give --model PATH or set VORTEX_MODEL");
    vx_variant stated = VX_VARIANT_UNKNOWN;
    if (p.variant) {
        if (!strcmp(p.variant, "fl2va")) stated = VX_VARIANT_FL2VA;
        else if (!strcmp(p.variant, "ref2va")) stated = VX_VARIANT_REF2VA;
        else return vx_fail_field(VX_ERR_VALUE, "variant", "variant '%.40s' is none of fl2va, ref2va", p.variant);
    }
    vx_qkv_statement qkv = VX_QKV_BY_FILE;
    if (p.qkv_layout && strcmp(p.qkv_layout, "auto")) {
        if (!strcmp(p.qkv_layout, "grouped")) qkv = VX_QKV_STATED_GROUPED;
        else if (!strcmp(p.qkv_layout, "interleaved")) qkv = VX_QKV_STATED_INTERLEAVED;
        else
            return vx_fail_field(VX_ERR_VALUE, "qkv_layout", "qkv layout '%.40s' is none of auto, grouped, interleaved",
                                 p.qkv_layout);
    }
    double began = vx_clock_s();
    vx_model *m = vx_alloc_array(1, sizeof *m);
    VX_NEED_MEMORY(m, "a model");
    m->context = context;
    m->device = context->device;
    m->planner = context->plan;
    m->stated = stated;
    m->qkv = qkv;
    const char *const given[MODEL_PATHS] = { p.path, p.text_encoder, p.video_vae, p.audio_vae, p.tokenizer, p.vision };
    vx_status s = vx_open_device(context, p.device, p.attention, p.no_graphs, &m->device, &m->planner);
    for (int i = 0; i < MODEL_PATHS && !s.code; i++)
        if (given[i] && !(m->path[i] = vx_strdup(given[i]))) s = vx_no_memory("for a path");
    if (!s.code) s = find(m, VX_VARIANT_UNKNOWN, &m->map);
    if (s.code) {
        vx_model_close(&m);
        return s;
    }
    m->load_s = vx_clock_s() - began;
    *out = m;
    return vx_ok();
}

void vx_model_close_denoiser(vx_model *m)
{
    vx_model_drop_adapters(m);
    vx_denoiser_keep_destroy(&m->keep);
    vx_denoiser_close(&m->denoiser);
}

vx_status vx_model_partition(vx_model *m, vx_variant wanted, const char *task, vx_notes *notes)
{
    if (m->map.variant == wanted) return vx_ok();
    if (m->map.variant == VX_VARIANT_UNKNOWN && wanted == VX_VARIANT_FL2VA) {
        vx_note(notes, "nothing says which partition %s is; taken as FL2VA", m->map.root);
        return vx_ok();
    }
    vx_model_map other;
    vx_status s = find(m, wanted, &other);
    if (s.code) return s.field[0] ? s : (snprintf(s.field, sizeof s.field, "task"), vx_within(s, "task %s", task));
    // The partitions share every component but the transformer: only that one changes hands.
    vx_model_close_denoiser(m);
    vx_device_forget(m->device, NULL, 0);
    vx_component_close(&m->component[VX_TRANSFORMER]);
    vx_free(m->map.component[VX_TRANSFORMER]);
    m->map.component[VX_TRANSFORMER] = other.component[VX_TRANSFORMER];
    other.component[VX_TRANSFORMER] = NULL;
    m->map.variant = other.variant;
    m->map.variant_reason = other.variant_reason;
    m->map.layout = other.layout;
    vx_str_free(&m->map.notes); // the same files were looked at
    m->map.notes = other.notes;
    other.notes = (vx_str){ 0 };
    m->map.flow_shift = other.flow_shift;
    m->map.audio_flow_shift = other.audio_flow_shift;
    vx_model_map_free(&other);
    return vx_ok();
}

void vx_model_close(vx_model **model)
{
    if (!model || !*model) return;
    vx_model *m = *model;
    vx_free(m->cache.prompt);
    vx_free(m->cache.embeds);
    vx_condition_cache_free(&m->conditions);
    for (int i = 0; i < MODEL_PATHS; i++) vx_free(m->path[i]);
    vx_audio_encoder_close(&m->audio_encoder);
    vx_video_encoder_close(&m->video_encoder);
    vx_vision_close(&m->vision);
    vx_audio_decoder_close(&m->audio);
    vx_video_decoder_close(&m->video);
    vx_model_close_denoiser(m);
    vx_language_close(&m->language);
    vx_tokenizer_close(&m->tokenizer);
    if (m->device != m->context->device) { // before the files that it has copies of
        vx_device_destroy(&m->planner);
        vx_device_destroy(&m->device);
    }
    for (int i = 0; i < VX_COMPONENT_KINDS; i++) vx_component_close(&m->component[i]);
    vx_model_map_free(&m->map);
    vx_free(m);
    *model = NULL;
}

static vx_status open_component(vx_model *m, vx_component_kind kind)
{
    if (m->component[kind]) return vx_ok();
    VX_TRY(vx_model_map_need(&m->map, kind));
    return vx_component_open_as(
        &m->component[kind], kind, m->map.component[kind],
        &(vx_component_params){ .qkv = m->qkv, .vision = kind == VX_TEXT_ENCODER ? m->map.vision : NULL });
}

vx_status vx_model_tokenizer(vx_model *m)
{
    if (m->tokenizer) return vx_ok();
    if (!m->map.tokenizer)
        return vx_remedy(vx_fail(VX_ERR_MODEL_COMPONENT, "%s: no tokenizer folder was found", m->map.root),
                         "give --tokenizer PATH");
    double began = vx_clock_s();
    VX_TRY(vx_tokenizer_open(&m->tokenizer, m->map.tokenizer));
    m->load_s += vx_clock_s() - began;
    return vx_ok();
}

vx_status vx_model_text(vx_model *m)
{
    VX_TRY(vx_model_tokenizer(m));
    if (m->language) return vx_ok();
    double began = vx_clock_s();
    VX_TRY(open_component(m, VX_TEXT_ENCODER));
    VX_TRY(vx_language_open(&m->language, m->component[VX_TEXT_ENCODER]));
    int64_t rows = vx_language_config_of(m->language)->vocabulary;
    if (vx_tokenizer_vocabulary(m->tokenizer) > rows) {
        vx_language_close(&m->language);
        return vx_fail(VX_ERR_CONFIG, "%s: the tokenizer has %lld ids, the text encoder's table only %lld rows", m->map.tokenizer,
                       (long long)vx_tokenizer_vocabulary(m->tokenizer), (long long)rows);
    }
    m->load_s += vx_clock_s() - began;
    return vx_ok();
}

vx_status vx_model_denoiser(vx_model *m)
{
    if (!m->denoiser) {
        double began = vx_clock_s();
        VX_TRY(open_component(m, VX_TRANSFORMER));
        VX_TRY(vx_denoiser_open(&m->denoiser, m->component[VX_TRANSFORMER]));
        m->load_s += vx_clock_s() - began;
    }
    if (!m->language) return vx_ok();
    int64_t text = vx_denoiser_config_of(m->denoiser)->text_dim, hidden = vx_language_config_of(m->language)->hidden;
    if (text == hidden) return vx_ok();
    return vx_fail(VX_ERR_CONFIG, "%s: the transformer wants text rows of %lld values, the text encoder makes %lld",
                   m->map.component[VX_TRANSFORMER], (long long)text, (long long)hidden);
}

vx_status vx_model_vaes(vx_model *m, bool video, bool audio)
{
    double began = vx_clock_s();
    if (video && !m->video) {
        VX_TRY(open_component(m, VX_VIDEO_VAE));
        VX_TRY(vx_video_decoder_open(&m->video, m->component[VX_VIDEO_VAE]));
    }
    if (audio && !m->audio) {
        VX_TRY(open_component(m, VX_AUDIO_VAE));
        VX_TRY(vx_audio_decoder_bind(&m->audio, m->component[VX_AUDIO_VAE]));
    }
    m->load_s += vx_clock_s() - began;
    return vx_ok();
}

vx_status vx_model_encoders(vx_model *m, bool vision, bool video, bool audio)
{
    double began = vx_clock_s();
    if (vision && !m->vision) {
        VX_TRY(vx_model_text(m));
        VX_TRY(vx_vision_open(&m->vision, m->component[VX_TEXT_ENCODER]));
        int64_t rows = vx_vision_config_of(m->vision)->out_hidden, hidden = vx_language_config_of(m->language)->hidden;
        if (rows != hidden)
            return vx_fail(VX_ERR_CONFIG, "%s: the vision tower makes rows of %lld values, the language model takes %lld",
                           m->map.component[VX_TEXT_ENCODER], (long long)rows, (long long)hidden);
    }
    if (video && !m->video_encoder) {
        VX_TRY(open_component(m, VX_VIDEO_VAE));
        VX_TRY(vx_video_encoder_open(&m->video_encoder, m->component[VX_VIDEO_VAE]));
    }
    if (audio && !m->audio_encoder) {
        VX_TRY(open_component(m, VX_AUDIO_VAE));
        VX_TRY(vx_audio_encoder_bind(&m->audio_encoder, m->component[VX_AUDIO_VAE]));
    }
    m->load_s += vx_clock_s() - began;
    return vx_ok();
}

vx_status vx_model_check(const vx_model *m)
{
    for (int i = 0; i < VX_COMPONENT_KINDS; i++)
        if (m->component[i]) VX_TRY(vx_component_check(m->component[i]));
    return vx_ok();
}

vx_status vx_model_has_numbers(const vx_model *m)
{
    for (int i = 0; i < VX_COMPONENT_KINDS && !m->made_up; i++)
        if (m->component[i] && vx_component_hollow(m->component[i]))
            return vx_fail_remedy(VX_ERR_MODEL_COMPONENT, "plan, inspect and bench work with it; running needs the real files",
                                  "%s: the files have the released dimensions and no numbers",
                                  vx_component_path(m->component[i]));
    return vx_ok();
}

vx_status vx_model_tokenize(vx_model *m, const char *text, size_t size, int32_t **ids, int64_t *count)
{
    VX_TRY(vx_model_tokenizer(m));
    vx_tokens tokens = { 0 };
    vx_status s = vx_tokenizer_encode(m->tokenizer, text, size, &tokens);
    if (s.code) {
        vx_free(tokens.ids);
        return s;
    }
    *ids = tokens.ids;
    *count = tokens.count;
    return vx_ok();
}

void vx_ids_free(int32_t *ids)
{
    vx_free(ids);
}
