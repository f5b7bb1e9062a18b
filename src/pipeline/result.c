// Reports: the result object of --json, the request that latents and movies carry, and the plan as JSON.
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/sha256.h"
#include "base/str.h"
#include "pipeline/inspect.h"
#include "weights/census.h"

vx_status vx_json_text(json_t *object, char **text)
{
    char *dumped = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    *text = dumped ? vx_strdup(dumped) : NULL;
    free(dumped); // Jansson's own
    return *text ? vx_ok() : vx_fail(VX_ERR_MEMORY, "no memory for a report");
}

json_t *vx_json_name(const char *text)
{
    size_t size = strlen(text), bad;
    vx_str s = { 0 };
    while (!vx_utf8_valid(text, size, &bad)) {
        vx_str_put(&s, text, bad);
        vx_str_print(&s, "\\x%02x", (unsigned char)text[bad]);
        text += bad + 1;
        size -= bad + 1;
    }
    vx_str_put(&s, text, size);
    json_t *v = json_string(s.data ? s.data : "");
    vx_str_free(&s);
    return v;
}

static const char *variant_name(vx_variant v)
{
    return v == VX_VARIANT_FL2VA ? "fl2va" : v == VX_VARIANT_REF2VA ? "ref2va" : "unknown";
}

// How the weights are stored, part by part, the format of most bytes first.
static json_t *formats_object(const vx_model *m)
{
    json_t *o = json_object();
    for (int k = 0; k < VX_COMPONENT_KINDS; k++) {
        if (!m->component[k]) continue;
        vx_format_count count[VX_MOST_FORMATS];
        const int n = vx_component_formats(m->component[k], count);
        json_t *list = json_array();
        for (int i = 0; i < n; i++) json_array_append_new(list, json_string(count[i].name));
        json_object_set_new(o, vx_component_words[k], list);
    }
    return o;
}

// Where each part came from: `path` is only what --model named.
static json_t *parts_object(const vx_model *m)
{
    json_t *o = json_object();
    for (int k = 0; k < VX_COMPONENT_KINDS; k++)
        if (m->component[k]) json_object_set_new(o, vx_component_words[k], vx_json_name(vx_component_path(m->component[k])));
    if (m->component[VX_TEXT_ENCODER] && m->map.vision) json_object_set_new(o, "vision", vx_json_name(m->map.vision));
    if (m->tokenizer) json_object_set_new(o, "tokenizer", vx_json_name(m->map.tokenizer));
    return o;
}

json_t *vx_model_object(const vx_model *m)
{
    return json_pack("{s:o, s:o, s:s, s:s, s:o}", "path", vx_json_name(m->map.root), "parts", parts_object(m), "variant",
                     variant_name(m->map.variant), "layout", m->map.layout == VX_LAYOUT_DIFFUSERS ? "diffusers" : "official",
                     "formats", formats_object(m));
}

static json_t *model_of(const vx_job *job)
{
    return job->about_model ? json_deep_copy(job->about_model) : vx_model_object(job->model);
}

// The request's own, then those of the model's files, which are opened once for many jobs.
static json_t *warnings_array(const vx_job *job)
{
    json_t *a = json_array();
    for (int i = 0; i < job->notes.count; i++) json_array_append_new(a, vx_json_name(job->notes.text[i]));
    vx_file_warnings(a, job->model);
    return a;
}

// Kinds, places and sizes; never the paths (a finished clip does not tell where its maker keeps things).
static json_t *conditions_array(const vx_job *job)
{
    static const char *const kinds[] = { [VX_CONDITION_KEYFRAME] = "keyframe",
                                         [VX_CONDITION_IMAGE] = "image",
                                         [VX_CONDITION_VIDEO] = "video",
                                         [VX_CONDITION_AUDIO] = "audio" };
    json_t *a = json_array();
    for (int i = 0; i < job->conditions.count; i++) {
        const vx_prepared *p = &job->conditions.item[i];
        const vx_condition_rows *r = &job->rows[i];
        json_t *o = json_pack("{s:s}", "kind", kinds[p->kind]);
        if (p->kind == VX_CONDITION_KEYFRAME) json_object_set_new(o, "frame", json_integer(p->frame));
        if (r->latent_frames) {
            json_object_set_new(o, "width", json_integer(p->width));
            json_object_set_new(o, "height", json_integer(p->height));
            json_object_set_new(o, "frames", json_integer(p->encoded_frames));
        }
        if (r->audio_frames) json_object_set_new(o, "audio_latents", json_integer(r->audio_frames));
        json_array_append_new(a, o);
    }
    return a;
}

// What decides the clip, in the names of the command line; the same members in every report.
static void set_request(json_t *o, const vx_job *job)
{
    const vx_resolved *r = &job->request;
    const vx_plan *p = &job->plan;
    json_object_set_new(o, "task", json_string(vx_task_name(job->conditions.task)));
    if (job->conditions.count) json_object_set_new(o, "conditions", conditions_array(job));
    if (r->prompt && *r->prompt) json_object_set_new(o, "prompt", json_string(r->prompt));
    json_object_set_new(o, "seed", json_integer((json_int_t)r->seed));
    json_object_set_new(o, "noise", json_string(vx_noise_name(r->noise)));
    json_object_set_new(o, "width", json_integer(p->width));
    json_object_set_new(o, "height", json_integer(p->height));
    json_object_set_new(o, "frames", json_integer(p->num_frames));
    json_object_set_new(o, "fps", json_real(VX_NATIVE_FPS));
    json_object_set_new(o, "seconds", json_real((double)p->num_frames / VX_NATIVE_FPS));
    json_object_set_new(o, "evaluations", json_integer(p->evaluations));
    json_object_set_new(o, "sigma_points", json_integer(p->sigma_points));
    json_object_set_new(o, "sampler", json_string(vx_sampler_name(r->sampler)));
    json_object_set_new(o, "schedule", json_string(vx_schedule_name(r->schedule)));
    json_object_set_new(o, "shift", json_real((double)r->shift));
    json_object_set_new(o, "audio_shift", json_real((double)r->audio_shift));
    json_object_set_new(o, "rows",
                        json_pack("{s:I, s:I, s:I, s:I, s:I}", "text", (json_int_t)p->text_rows, "audio",
                                  (json_int_t)p->audio_rows, "video", (json_int_t)p->video_rows, "condition",
                                  (json_int_t)p->condition_rows, "total", (json_int_t)p->rows));
    json_object_set_new(o, "precision", json_string(r->act == VX_F32 ? "float32" : "exact"));
    if (job->adapters) json_object_set(o, "adapters", job->adapters);
    json_t *turbo = vx_turbo_object(job);
    if (turbo) json_object_set_new(o, "turbo", turbo);
    json_object_set_new(o, "approximations", job->approximations ? json_deep_copy(job->approximations) : json_array());
}

static void copy_members(json_t *to, const json_t *from, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        json_t *v = json_object_get(from, names[i]);
        if (v) json_object_set(to, names[i], v);
    }
}

// The latents' parts as their file says, the decoders as they are; in the order of a clip made in one go, to the byte.
static json_t *join_formats(const json_t *file, const json_t *here)
{
    json_t *o = json_object();
    for (int k = 0; k < VX_COMPONENT_KINDS; k++) {
        const bool decoder = k == VX_VIDEO_VAE || k == VX_AUDIO_VAE;
        json_t *v = json_object_get(decoder ? here : file, vx_component_words[k]);
        if (v) json_object_set(o, vx_component_words[k], v);
    }
    return o;
}

// Of a latents file, what set_request put into it; the rest (times, paths, whatever a stranger wrote) goes no further.
static void set_file_request(json_t *o, json_t *model, const char *text)
{
    static const char *const names[] = { "task",     "prompt", "seed",        "noise",       "width",        "height",
                                         "frames",   "fps",    "seconds",     "evaluations", "sigma_points", "sampler",
                                         "schedule", "shift",  "audio_shift", "rows",        "precision",    "approximations",
                                         "adapters", "turbo" };
    static const char *const of_model[] = { "variant", "layout" };
    json_t *file = json_loads(text, 0, NULL);
    copy_members(o, file, names, sizeof names / sizeof *names);
    json_t *made_by = json_object_get(file, "model"), *formats = json_object_get(made_by, "formats");
    copy_members(model, made_by, of_model, sizeof of_model / sizeof *of_model);
    json_object_set_new(model, "formats", join_formats(formats, json_object_get(model, "formats")));
    json_decref(file);
}

json_t *vx_request_object(const vx_job *job)
{
    json_t *o = json_object(), *model = model_of(job);
    if (job->has_layout) set_request(o, job);
    else if (job->file_request) set_file_request(o, model, job->file_request);
    json_object_set_new(o, "vortex_version", json_string(vx_version()));
    json_object_del(model, "path"); // a finished clip does not tell where its maker keeps things
    json_object_del(model, "parts");
    json_object_set_new(o, "model", model);
    return o;
}

static json_t *hash(const float *values, size_t count)
{
    if (!values) return json_null();
    vx_sha256 s;
    char hex[65];
    vx_sha256_init(&s);
    vx_sha256_put(&s, values, count * sizeof *values);
    vx_sha256_hex(&s, hex);
    return json_string(hex);
}

json_t *vx_result_object(const vx_job *job)
{
    json_t *o = json_object();
    json_object_set_new(o, "output", job->output ? vx_json_name(job->output) : json_null());
    if (job->has_layout) set_request(o, job);
    else {
        json_t *from = vx_request_object(job);
        json_object_update_missing(o, from);
        json_decref(from);
    }
    json_object_set_new(o, "device", json_string(vx_device_name(job->model->device)));
    json_object_set_new(o, "instruction_set", json_string(vx_device_isa(job->model->device)));
    json_object_set_new(o, "threads", json_integer(job->model->context->threads));
    json_object_set_new(o, "vae_precision", json_string(job->request.vae == VX_F16 ? "float16" : "float32"));
    json_object_set_new(o, "convolutions", json_string(vx_job_parts(job) ? "float16x3" : "float32"));
    if (job->request.vae == VX_F16)
        json_object_set_new(o, "vae_rope", json_string(job->request.vae_exact_rope ? "float32" : "official"));
    const vx_timings *t = &job->timings;
    double total = t->plan + t->text + t->encode + t->denoise + t->decode_video + t->decode_audio + t->mux;
    json_object_set_new(o, "timings_s",
                        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "plan", t->plan, "load", job->model->load_s,
                                  "text", t->text, "encode", t->encode, "denoise", t->denoise, "decode_video", t->decode_video,
                                  "decode_audio", t->decode_audio, "mux", t->mux, "total", total));
    json_t *steps = json_array();
    for (int i = 0; i < job->steps_done; i++) json_array_append_new(steps, json_real(job->step_s[i]));
    json_object_set_new(o, "step_s", steps);
    json_object_set_new(o, "reused",
                        json_pack("{s:b, s:b, s:b, s:I}", "text", job->text_reused, "conditions", job->conditions_reused,
                                  "tables", job->reuse.tables, "replayed_steps", (json_int_t)job->reuse.replayed));
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    json_object_set_new(
        o, "peak_bytes",
        json_pack("{s:I, s:o}", "host", (json_int_t)usage.ru_maxrss * 1024, "device",
                  vx_device_far(job->model->device) ? json_integer((json_int_t)job->model->device_peak) : json_null()));
    const int64_t *v = job->video_shape, *a = job->audio_shape;
    json_object_set_new(o, "latents_sha256",
                        json_pack("{s:o, s:o}", "video", hash(job->video, (size_t)(v[0] * v[1] * v[2] * v[3])), "audio",
                                  hash(job->audio, (size_t)(a[0] * a[1] * a[2]))));
    json_object_set_new(o, "model", model_of(job));
    if (job->media_json) json_object_set_new(o, "media", json_loads(job->media_json, 0, NULL));
    json_object_set_new(o, "warnings", warnings_array(job));
    return o;
}

vx_status vx_job_result(const vx_job *job, char **json)
{
    return vx_json_text(vx_result_object(job), json);
}

// ---- plan ----
// The public plan functions make a job and throw it away: what they say is what the job would do.
static vx_status planned(vx_model *model, const vx_request *request, vx_job *job)
{
    job->model = model;
    return vx_job_prepare(job, request);
}

vx_status vx_plan_request(vx_model *model, const vx_request *request, vx_plan *out)
{
    vx_job *job = vx_alloc_array(1, sizeof *job);
    VX_NEED_MEMORY(job, "a plan");
    vx_status s = planned(model, request, job);
    if (!s.code || s.code == VX_ERR_MEMORY_PLAN) {
        size_t size = out->struct_size && out->struct_size <= sizeof job->plan ? out->struct_size : sizeof job->plan;
        memcpy(out, &job->plan, size);
        out->struct_size = size;
    }
    vx_job_destroy(&job);
    return s;
}

static json_t *files_array(const vx_model *m)
{
    json_t *a = json_array();
    for (int i = 0; i < VX_COMPONENT_KINDS; i++)
        if (m->component[i])
            json_array_append_new(a, json_pack("{s:o, s:I}", "path", vx_json_name(vx_component_path(m->component[i])), "bytes",
                                               (json_int_t)vx_component_bytes(m->component[i])));
    if (m->tokenizer) json_array_append_new(a, json_pack("{s:o}", "path", vx_json_name(m->map.tokenizer)));
    return a;
}

// What cards of the usual sizes could do with the request, stage by stage: weights stay, or pass through a window, or not even
// that fits. The stages' own memory is as planned for the model's device; a GPU decodes more tiles at once if it has the room.
static const char *verdict_of(const vx_stage_plan *stage, uint64_t room)
{
    if (stage->device_bytes + stage->device_weights <= room) return "resident";
    return stage->device_bytes + stage->device_least <= room ? "streamed" : "does not fit";
}

static json_t *cards_array(const vx_plan *plan)
{
    static const int sizes[] = { 24, 48, 80, 96, 141 }; // GB
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint64_t room = (uint64_t)sizes[i] * 1000000000u - VX_DEVICE_RESERVE;
        json_t *card = json_pack("{s:i}", "gpu_gb", sizes[i]);
        for (int k = 0; k < VX_PLAN_STAGES; k++)
            if (plan->stage[k].flop > 0)
                json_object_set_new(card, plan->stage[k].name, json_string(verdict_of(&plan->stage[k], room)));
        json_object_set_new(card, "missing_bytes",
                            json_integer(plan->device_least_bytes > room ? (json_int_t)(plan->device_least_bytes - room) : 0));
        json_array_append_new(list, card);
    }
    return list;
}

vx_status vx_plan_json(vx_model *model, const vx_request *request, char **json)
{
    vx_job *job = vx_alloc_array(1, sizeof *job);
    VX_NEED_MEMORY(job, "a plan");
    vx_status s = planned(model, request, job);
    if (!s.code) {
        json_t *o = json_object(), *stages = json_array();
        const bool far = vx_device_far(model->device);
        set_request(o, job);
        if (job->request.seed_drawn) json_object_set_new(o, "seed", json_null());
        for (int i = 0; i < VX_PLAN_STAGES; i++) {
            const vx_stage_plan *st = &job->plan.stage[i];
            json_t *stage = json_pack("{s:s, s:f, s:I, s:I}", "name", st->name, "flop", st->flop, "weight_bytes",
                                      (json_int_t)st->weight_bytes, "host_bytes", (json_int_t)st->host_bytes);
            if (far) {
                json_object_set_new(stage, "device_bytes", json_integer((json_int_t)st->device_bytes));
                json_object_set_new(stage, "device_weight_bytes", json_integer((json_int_t)st->device_weights));
                json_object_set_new(stage, "device_least_weight_bytes", json_integer((json_int_t)st->device_least));
            }
            json_array_append_new(stages, stage);
        }
        json_object_set_new(o, "stages", stages);
        json_object_set_new(o, "flop", json_real(job->plan.flop));
        json_object_set_new(o, "host_bytes", json_integer((json_int_t)job->plan.host_bytes));
        json_object_set_new(o, "condition_bytes", json_integer((json_int_t)vx_condition_bytes(job)));
        json_object_set_new(o, "available_bytes", json_integer((json_int_t)job->plan.available_bytes));
        json_object_set_new(o, "device", json_string(vx_device_name(model->device)));
        if (far) {
            json_object_set_new(o, "device_bytes", json_integer((json_int_t)job->plan.device_bytes));
            json_object_set_new(o, "device_least_bytes", json_integer((json_int_t)job->plan.device_least_bytes));
            json_object_set_new(o, "device_available_bytes", json_integer((json_int_t)job->plan.device_available_bytes));
        }
        json_object_set_new(o, "gpus", cards_array(&job->plan));
        json_object_set_new(o, "model", model_of(job));
        json_object_set_new(o, "files", files_array(model));
        json_object_set_new(o, "warnings", warnings_array(job));
        s = vx_json_text(o, json);
    }
    vx_job_destroy(&job);
    return s;
}
