// A job's adapters on the model's denoiser. They stay there until a job comes with others, so that clips and jobs of one kind
// open, copy and merge them once.
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "pipeline/internal.h"

void vx_model_drop_adapters(vx_model *m)
{
    vx_model_adapters *a = &m->adapters;
    if (m->denoiser) vx_denoiser_unadapt(m->denoiser, m->device);
    for (int i = 0; i < a->count; i++) {
        if (m->device) vx_adapter_forget(a->adapter[i], m->device);
        vx_adapter_close(&a->adapter[i]);
    }
    vx_free(a->key);
    *a = (vx_model_adapters){ 0 };
}

uint64_t vx_adapter_weights(const vx_model *m)
{
    uint64_t bytes = m->adapters.bytes;
    for (int i = 0; i < m->adapters.count; i++) bytes += vx_adapter_facts_of(m->adapters.adapter[i])->bytes;
    return bytes;
}

// What the result depends on: the files and not their names alone, for a training may write its next one between two jobs. A bank
// of heads is mixed for one list of sigmas.
static char *key_of(const vx_resolved *r, bool bank)
{
    vx_str key = { 0 };
    vx_str_print(&key, "%d %d", r->lora_merge, r->lora_partial);
    for (int i = 0; i < r->loras; i++)
        vx_str_print(&key, "\n%a %a %s %s", (double)r->lora[i].strength, r->lora[i].alpha, r->lora[i].file, r->lora[i].path);
    for (int i = 0; bank && i < r->sigmas.count; i++) vx_str_print(&key, "\n%a", (double)r->sigmas.video[i]);
    if (bank) vx_str_print(&key, "\n%a %a", (double)r->shift, (double)r->audio_shift);
    return vx_str_take(&key);
}

static bool has_bank(const vx_model_adapters *a)
{
    bool bank = false;
    for (int i = 0; i < a->count; i++) bank = bank || vx_adapter_facts_of(a->adapter[i])->bank;
    return bank;
}

static const char *variant_name(vx_variant v)
{
    return v == VX_VARIANT_REF2VA ? "Ref2VA" : "FL2VA";
}

// Both partitions take each other's adapters without an error, so what the file says counts.
static vx_status check_variant(vx_job *job, const vx_adapter_facts *f)
{
    const vx_variant model = job->model->map.variant;
    if (model == VX_VARIANT_UNKNOWN) return vx_ok();
    if (f->variant != VX_VARIANT_UNKNOWN && f->variant != model)
        return vx_fail_remedy(VX_ERR_MODEL_VARIANT, "use an adapter of the partition that the task needs",
                              "%s says that it was made for %s, this task runs %s", vx_path_name(f->path),
                              variant_name(f->variant), variant_name(model));
    if (f->variant == VX_VARIANT_UNKNOWN && f->preset && f->preset->variant != VX_VARIANT_UNKNOWN && f->preset->variant != model)
        vx_note(&job->notes, "%s: by its name made for %s, this task runs %s", vx_path_name(f->path),
                variant_name(f->preset->variant), variant_name(model));
    return vx_ok();
}

// FILE:0,5 is the name of a file to us, and hardly to who wrote it.
static vx_status hint_strength(vx_status s, const char *path)
{
    const char *colon = strrchr(path, ':');
    if (s.code != VX_ERR_MODEL_OPEN || !colon || strchr(colon, '/')) return s;
    return vx_remedy(s, "if '%.60s' was meant as a strength: it is a number, as in FILE:0.5", colon + 1);
}

static vx_status open_all(vx_job *job)
{
    const vx_resolved *r = &job->request;
    vx_model_adapters *a = &job->model->adapters;
    for (; a->count < r->loras; a->count++) {
        const vx_resolved_lora *l = &r->lora[a->count];
        const vx_adapter_params params = { .strength = l->strength, .alpha = l->alpha, .partial = r->lora_partial };
        VX_TRY(hint_strength(vx_adapter_open(&a->adapter[a->count], l->path, &params), l->path));
    }
    return vx_ok();
}

static vx_status put_on(vx_job *job, bool load)
{
    const vx_resolved *r = &job->request;
    vx_model *m = job->model;
    vx_model_adapters *a = &m->adapters;
    // Here, where they are about to be read: a plan takes no number from a file, and a NaN found later has no name.
    for (int i = 0; load && i < a->count; i++)
        if (r->lora[i].strength != 0) VX_TRY(vx_adapter_check_numbers(a->adapter[i]));
    VX_TRY(vx_denoiser_adapt(m->denoiser, m->device,
                             &(vx_denoiser_adapt_params){ .adapter = a->adapter,
                                                          .count = a->count,
                                                          .merge = r->lora_merge,
                                                          .load = load,
                                                          .threads = m->context->threads,
                                                          .schedule = { .sigmas = r->sigmas.video,
                                                                        .count = r->sigmas.count,
                                                                        .shift = (double)r->shift,
                                                                        .audio_shift = (double)r->audio_shift } },
                             a->use, &a->bytes));
    a->loaded = load;
    return vx_ok();
}

static vx_status adapt(vx_job *job, bool load)
{
    vx_model *m = job->model;
    vx_model_adapters *a = &m->adapters;
    char *key = key_of(&job->request, has_bank(a));
    VX_NEED_MEMORY(key, "adapters");
    const bool same = a->key && !strcmp(a->key, key);
    vx_free(key);
    if (same && (a->loaded || !load)) return vx_ok();
    if (!same) {
        vx_model_drop_adapters(m);
        VX_TRY(open_all(job));
    }
    VX_TRY(put_on(job, load));
    vx_free(a->key);
    a->key = key_of(&job->request, has_bank(a));
    return a->key ? vx_ok() : vx_no_memory("for adapters");
}

// ---- reports ----

// One number where all modules have the same.
static json_t *range(double lo, double hi)
{
    return lo == hi ? json_real(lo) : json_pack("[f,f]", lo, hi);
}

static json_t *report(const vx_job *job, int i)
{
    const vx_model_adapters *a = &job->model->adapters;
    const vx_adapter_facts *f = vx_adapter_facts_of(a->adapter[i]);
    const vx_denoiser_adapter_use *u = &a->use[i];
    json_t *o = json_object();
    // The name alone: a finished clip does not tell where its maker keeps things.
    json_object_set_new(o, "name", vx_json_name(vx_path_name(f->path)));
    json_object_set_new(o, "strength", json_real((double)f->strength));
    if (f->rank_max > 0) {
        json_object_set_new(o, "rank", range((double)f->rank_min, (double)f->rank_max));
        json_object_set_new(o, "alpha", range(f->alpha_min, f->alpha_max));
        json_object_set_new(o, "alpha_from", json_string(vx_alpha_source_name(f->alpha_source)));
        json_object_set_new(o, "scale", range(f->scale_min, f->scale_max));
    }
    json_object_set_new(o, "spelling", json_string(f->spelling));
    json_object_set_new(o, "modules", json_integer(f->modules - u->unused - u->left_out));
    json_object_set_new(o, "modules_left_out", json_integer(u->unused + u->left_out));
    json_object_set_new(o, "keys", json_integer(f->keys));
    json_object_set_new(o, "keys_left_out", json_integer(f->unknown));
    json_object_set_new(o, "mode", json_string(f->strength == 0 ? "off" : job->request.lora_merge ? "merge" : "branch"));
    return o;
}

static void say(json_t *array, const char *name, const char *format, int count)
{
    char text[320];
    vx_str line = { 0 };
    snprintf(text, sizeof text, format, count); // NOLINT(clang-diagnostic-format-nonliteral)
    vx_str_print(&line, "%s: %s", name, text);
    if (line.data) json_array_append_new(array, vx_json_name(line.data));
    vx_str_free(&line);
}

static void report_approximations(const vx_job *job, int i, json_t *array)
{
    const vx_model_adapters *a = &job->model->adapters;
    const vx_adapter_facts *f = vx_adapter_facts_of(a->adapter[i]);
    const vx_denoiser_adapter_use *u = &a->use[i];
    const char *name = vx_path_name(f->path);
    if (f->strength == 0) return;
    if (u->left_out)
        say(array, name, "%d AdaLN modules left out: the pruned checkpoint does not say how to take them", u->left_out);
    if (u->projected) say(array, name, "%d AdaLN modules projected onto the curve of the pruned checkpoint", u->projected);
    if (f->unknown) say(array, name, "%d keys that fit no module left out", f->unknown);
    if (u->unused) say(array, name, "%d modules that this model does not have left out", u->unused);
    if (u->merged) say(array, name, "merged into the weights of %d modules, each rounded once", u->merged);
    if (f->preset && f->preset->caution) say(array, name, f->preset->caution, 0);
}

// Twice is not wrong: the strengths add up. Hardly anybody means it.
static void note_twice(vx_job *job, int i)
{
    const vx_resolved_lora *l = job->request.lora;
    for (int before = 0; before < i; before++) {
        if (!vx_same_file(l[before].path, l[i].path)) continue;
        vx_note(&job->notes, "%s is given more than once: every time counts, here with strengths %g and %g",
                vx_path_name(l[i].path), (double)l[before].strength, (double)l[i].strength);
        return;
    }
}

// What was asked for and is not done.
static void note_ignored(vx_job *job, int i)
{
    const vx_adapter_facts *f = vx_adapter_facts_of(job->model->adapters.adapter[i]);
    const vx_denoiser_adapter_use *u = &job->model->adapters.use[i];
    const char *name = vx_path_name(f->path);
    if (u->left_out)
        vx_note(&job->notes, "%s: %d AdaLN modules are left out: this pruned checkpoint does not say how to take them", name,
                u->left_out);
    if (u->unused) vx_note(&job->notes, "%s: %d of its %d modules are not in this model", name, u->unused, f->modules);
    if (job->request.lora[i].alpha > 0 && (f->alpha_source == VX_ALPHA_OF_TENSORS || f->alpha_source == VX_ALPHA_OF_METADATA))
        vx_note(&job->notes, "%s: your alpha %g is not used, the file says its own", name, job->request.lora[i].alpha);
}

static vx_status make_reports(vx_job *job)
{
    const vx_model_adapters *a = &job->model->adapters;
    json_decref(job->adapters);
    json_decref(job->approximations);
    job->adapters = json_array();
    job->approximations = json_array();
    if (!job->adapters || !job->approximations) return vx_fail(VX_ERR_MEMORY, "no memory for a report");
    for (int i = 0; i < a->count; i++) {
        const vx_adapter_facts *f = vx_adapter_facts_of(a->adapter[i]);
        const vx_denoiser_adapter_use *u = &a->use[i];
        VX_TRY(check_variant(job, f));
        json_array_append_new(job->adapters, report(job, i));
        report_approximations(job, i, job->approximations);
        note_ignored(job, i);
        note_twice(job, i);
        vx_log(VX_LOG_INFO, "%s: %d of %d modules, rank %lld to %lld, scale %g to %g (alpha from %s)", vx_path_name(f->path),
               f->modules - u->unused - u->left_out, f->modules, (long long)f->rank_min, (long long)f->rank_max, f->scale_min,
               f->scale_max, vx_alpha_source_name(f->alpha_source));
    }
    return vx_ok();
}

vx_status vx_job_adapt(vx_job *job, bool load)
{
    vx_model *m = job->model;
    if (!job->request.loras) {
        if (m->adapters.key) vx_model_drop_adapters(m);
        return vx_ok();
    }
    for (int i = 0; i < job->request.loras && !load; i++) vx_file_state(job->request.lora[i].file, job->request.lora[i].path);
    vx_status s = adapt(job, load);
    if (!s.code && !job->adapters) s = make_reports(job);
    if (s.code) {
        vx_model_drop_adapters(m);
        return s.field[0] ? s : (snprintf(s.field, sizeof s.field, "lora"), s);
    }
    return s;
}

static json_t *sigmas(const float *list, int count)
{
    json_t *a = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(a, json_real((double)list[i]));
    return a;
}

json_t *vx_turbo_object(const vx_job *job)
{
    const vx_resolved *r = &job->request;
    const vx_turbo *t = &r->turbo;
    if (!t->steps) return NULL;
    json_t *o = json_pack("{s:i}", "steps", t->steps);
    json_object_set_new(o, "known_file", t->preset ? json_string(t->preset->name) : json_null());
    json_object_set_new(o, "list", json_string(t->list ? vx_turbo_list_name(t->preset->list) : vx_schedule_name(r->schedule)));
    json_object_set_new(o, "step",
                        json_string(r->step == VX_STEP_PLAIN ? "x + (sigma - next) * v" : vx_sampler_name(r->sampler)));
    json_object_set_new(o, "sigmas", sigmas(r->sigmas.video, r->sigmas.count));
    json_object_set_new(o, "audio_sigmas", sigmas(r->sigmas.audio, r->sigmas.count));
    return o;
}
