// One component as inspect shows it, and what memory it wants.
#include <string.h>

#include "pipeline/inspect.h"
#include "weights/census.h"
#include "weights/foreign.h"

const char *const vx_component_words[VX_COMPONENT_KINDS] = { [VX_TRANSFORMER] = "transformer",
                                                             [VX_TEXT_ENCODER] = "text_encoder",
                                                             [VX_VIDEO_VAE] = "video_vae",
                                                             [VX_AUDIO_VAE] = "audio_vae" };

void vx_inspection_add(vx_inspection *i, vx_status s)
{
    if (!s.code) return;
    char code[16];
    size_t k;
    json_t *said;
    snprintf(code, sizeof code, "VX-%04d", (int)s.code);
    json_array_foreach(i->problems, k, said) // several questions may end at one missing part
        if (!strcmp(json_string_value(json_object_get(said, "message")), s.message)) return;
    json_array_append_new(i->problems, json_pack("{s:s, s:o, s:o}", "code", code, "message", vx_json_name(s.message), "remedy",
                                                 vx_json_name(s.remedy)));
    if (!i->first.code) i->first = s;
}

// ---- one component ----

static json_t *formats(const vx_component *c)
{
    vx_format_count count[VX_MOST_FORMATS];
    const int n = vx_component_formats(c, count);
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "format", count[i].name, "tensors", (json_int_t)count[i].tensors,
                                              "bytes", (json_int_t)count[i].bytes));
    return list;
}

// `text` line by line, each behind "file: " if there is a file.
static void add_lines(json_t *list, const char *file, const char *text)
{
    while (*text) {
        const size_t size = strcspn(text, "\n");
        char line[1024];
        snprintf(line, sizeof line, "%.300s%s%.*s", file ? file : "", file ? ": " : "", (int)(size < 600 ? size : 600), text);
        json_array_append_new(list, vx_json_name(line));
        text += size + (text[size] == '\n');
    }
}

void vx_file_warnings(json_t *list, const vx_model *m)
{
    if (m->map.notes.data) add_lines(list, NULL, m->map.notes.data);
    for (int k = 0; k < VX_COMPONENT_KINDS; k++)
        if (m->component[k])
            add_lines(list, vx_short_path(vx_component_path(m->component[k])), vx_component_notes(m->component[k]));
}

json_t *vx_inspect_component(vx_component *c, vx_component_kind kind)
{
    static const char *const layouts[] = {
        [VX_LAYOUT_OFFICIAL] = "official", [VX_LAYOUT_DIFFUSERS] = "diffusers", [VX_LAYOUT_LLAMA] = "llama.cpp"
    };
    if (kind == VX_TRANSFORMER) vx_component_check_qkv(c);
    json_t *o = json_pack("{s:s, s:o, s:s, s:s, s:I, s:o}", "name", vx_component_words[kind], "path",
                          vx_json_name(vx_component_path(c)), "layout", layouts[vx_component_layout(c)], "origin",
                          vx_component_origin(c), "bytes", (json_int_t)vx_component_bytes(c), "formats", formats(c));
    if (kind == VX_TRANSFORMER) {
        const char *reason, *order = vx_component_qkv_order(c, &reason);
        json_object_set_new(o, "qkv_rows", json_pack("{s:s, s:s}", "order", order, "by", reason));
        json_object_set_new(o, "pruned", json_boolean(vx_component_has(c, "adaln_t_table")));
    }
    json_t *notes = json_array();
    add_lines(notes, NULL, vx_component_notes(c));
    json_object_set_new(o, "notes", notes);
    return o;
}

static void add_fault(void *user, vx_status fault)
{
    enum { MOST_FAULTS = 50 };
    vx_inspection *i = user;
    if (json_array_size(i->problems) < MOST_FAULTS) vx_inspection_add(i, fault);
}

void vx_inspect_verify(vx_inspection *i, vx_component *c)
{
    (void)vx_component_verify(c, add_fault, i);
}

void vx_inspect_verify_adapter(vx_inspection *i, const char *path)
{
    vx_inspection_add(i, vx_adapter_verify(path, add_fault, i));
}

// ---- dimensions ----

static void language_dimensions(json_t *o, const vx_language_config *c)
{
    json_object_set_new(o, "text_encoder",
                        json_pack("{s:I, s:I, s:I, s:I, s:I}", "hidden_size", (json_int_t)c->hidden, "num_hidden_layers",
                                  (json_int_t)c->layers_in_file, "num_attention_heads", (json_int_t)c->heads,
                                  "num_key_value_heads", (json_int_t)c->kv_heads, "intermediate_size",
                                  (json_int_t)c->intermediate));
}

json_t *vx_inspect_dimensions(const vx_model *m)
{
    json_t *o = json_object();
    if (m->denoiser) {
        const vx_denoiser_config *c = vx_denoiser_config_of(m->denoiser);
        json_t *t = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "hidden_size", (json_int_t)c->hidden, "num_layers",
                              (json_int_t)c->layers, "num_attention_heads", (json_int_t)c->heads, "attention_head_dim",
                              (json_int_t)c->head_dim, "ffn_hidden_size", (json_int_t)c->ffn, "text_dim", (json_int_t)c->text_dim,
                              "time_embed_dim", (json_int_t)c->time_dim);
        if (c->curve_points)
            json_object_set_new(t, "adaln_curve",
                                json_pack("{s:I, s:I}", "points", (json_int_t)c->curve_points, "rank", (json_int_t)c->time_dim));
        json_object_set_new(o, "transformer", t);
    }
    if (m->language) language_dimensions(o, vx_language_config_of(m->language));
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

// ---- memory ----

// 1344x768, 124 frames (checkpoints specification 7.2): residual, normed input, query-key-value and attention's output in bf16.
static const double rows = 37810;
// Of a card's nominal memory; the rest is the driver's.
static const double usable = 0.98;
enum { RING = 3 }; // blocks on their way

// A stage's weights are resident, or its layers pass through while some stay.
static json_t *verdict(double memory, double bytes, double layers_bytes, int64_t layers, double work)
{
    char text[64];
    const double layer = layers > 0 ? layers_bytes / (double)layers : 0;
    const double left = memory - work - (bytes - layers_bytes) - RING * layer;
    if (bytes + work <= memory) snprintf(text, sizeof text, "resident");
    else if (layers > 0 && left >= 0)
        snprintf(text, sizeof text, "streamed, %lld of %lld layers stay", (long long)(left / layer), (long long)layers);
    else snprintf(text, sizeof text, "does not fit");
    return json_string(text);
}

static void add_transformer(json_t *o, const vx_model *m, double memory)
{
    const vx_component *c = m->component[VX_TRANSFORMER];
    const vx_denoiser_config *k = vx_denoiser_config_of(m->denoiser);
    const double inner = (double)(k->heads * k->head_dim), work = rows * 2 * (2 * (double)k->hidden + 4 * inner);
    // The tables of a request are made before its loop: a full model's AdaLN projections need not stay.
    const char *without = k->curve_points ? NULL : "adaln_proj";
    json_object_set_new(o, "transformer",
                        verdict(memory, (double)vx_component_bytes_of(c, "", without),
                                (double)vx_component_bytes_of(c, "blocks.", without), k->layers, work));
}

static void add_text(json_t *o, const vx_model *m, double memory)
{
    const vx_component *c = m->component[VX_TEXT_ENCODER];
    uint64_t unread = vx_component_bytes_of(c, "lm_head.", NULL);
    for (int64_t i = VX_LANGUAGE_LAYERS; i < vx_language_config_of(m->language)->layers_in_file; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "model.language_model.layers.%lld.", (long long)i);
        unread += vx_component_bytes_of(c, prefix, NULL);
    }
    const double layers = (double)(vx_component_bytes_of(c, "model.language_model.layers.", NULL) - unread +
                                   vx_component_bytes_of(c, "lm_head.", NULL));
    json_object_set_new(o, "text_encoder",
                        verdict(memory, (double)(vx_component_bytes_of(c, "", NULL) - unread), layers, VX_LANGUAGE_LAYERS, 1e9));
}

json_t *vx_inspect_memory(const vx_model *m)
{
    static const int sizes[] = { 16, 24, 48, 80, 141 };
    json_t *list = json_array();
    for (int i = 0; i < 5; i++) {
        const double memory = sizes[i] * 1e9 * usable;
        json_t *o = json_pack("{s:i}", "gpu_gb", sizes[i]);
        if (m->denoiser) add_transformer(o, m, memory);
        if (m->language) add_text(o, m, memory);
        if (m->video)
            json_object_set_new(o, "video_vae",
                                verdict(memory, (double)vx_component_bytes(m->component[VX_VIDEO_VAE]), 0, 0, 3e9));
        json_array_append_new(list, o);
    }
    return list;
}
