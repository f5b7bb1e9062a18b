// An opened model: where its components are, and the networks bound to them, each when a job first needs it. Binding reads
// headers only, so that a request that cannot run is refused before anything large is touched.
#include <string.h>

#include "base/clock.h"
#include "pipeline/internal.h"

vx_status vx_model_open(vx_context *context, vx_model **out, const vx_model_params *params)
{
    vx_model_params p = { 0 };
    if (!params || !params->struct_size || params->struct_size > sizeof p)
        return vx_fail(VX_ERR_USAGE, "the model parameters were not initialised with VX_INIT");
    memcpy(&p, params, params->struct_size);
    if (!p.path || !*p.path)
        return vx_remedy(vx_fail_field(VX_ERR_REQUIRED, "model", "no model was named"), "give --model PATH or set VORTEX_MODEL");
    if (p.device && strcmp(p.device, "auto") && strcmp(p.device, "cpu")) {
        if (!strncmp(p.device, "cuda", 4))
            return vx_remedy(vx_fail_field(VX_ERR_DEVICE_NONE, "device", "device %s: this build has no CUDA back end", p.device),
                             "use --device cpu");
        return vx_fail_field(VX_ERR_VALUE, "device", "device '%.40s' is none of auto, cpu, cuda[:N]", p.device);
    }
    vx_variant stated = VX_VARIANT_UNKNOWN;
    if (p.variant) {
        if (!strcmp(p.variant, "fl2va")) stated = VX_VARIANT_FL2VA;
        else if (!strcmp(p.variant, "ref2va")) stated = VX_VARIANT_REF2VA;
        else return vx_fail_field(VX_ERR_VALUE, "variant", "variant '%.40s' is none of fl2va, ref2va", p.variant);
    }
    double began = vx_clock_s();
    vx_model *m = vx_alloc_array(1, sizeof *m);
    VX_NEED_MEMORY(m, "a model");
    m->context = context;
    vx_status s = vx_model_map_find(&m->map, &(vx_model_map_params){ .model = p.path,
                                                                     .text_encoder = p.text_encoder,
                                                                     .video_vae = p.video_vae,
                                                                     .audio_vae = p.audio_vae,
                                                                     .tokenizer = p.tokenizer,
                                                                     .variant = VX_VARIANT_FL2VA,
                                                                     .stated = stated });
    if (s.code) {
        vx_free(m);
        return s;
    }
    m->load_s = vx_clock_s() - began;
    *out = m;
    return vx_ok();
}

void vx_model_close(vx_model **model)
{
    if (!model || !*model) return;
    vx_model *m = *model;
    vx_free(m->cache.prompt);
    vx_free(m->cache.embeds);
    vx_presentation_free(&m->cache.presentation);
    vx_audio_decoder_close(&m->audio);
    vx_video_decoder_close(&m->video);
    vx_denoiser_close(&m->denoiser);
    vx_language_close(&m->language);
    vx_tokenizer_close(&m->tokenizer);
    for (int i = 0; i < VX_COMPONENT_KINDS; i++) vx_component_close(&m->component[i]);
    vx_model_map_free(&m->map);
    vx_free(m);
    *model = NULL;
}

static vx_status open_component(vx_model *m, vx_component_kind kind)
{
    if (m->component[kind]) return vx_ok();
    VX_TRY(vx_model_map_need(&m->map, kind));
    return vx_component_open(&m->component[kind], kind, m->map.component[kind]);
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

vx_status vx_model_check(const vx_model *m)
{
    for (int i = 0; i < VX_COMPONENT_KINDS; i++)
        if (m->component[i]) VX_TRY(vx_component_check(m->component[i]));
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
