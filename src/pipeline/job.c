// A job: create validates and plans, run makes the latents. Stages run one after the other, each in an arena of its own that
// is given back at its end; what passes between them lies on the host.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "pipeline/internal.h"

void vx_job_progress(vx_job *job, const char *stage, int index, int64_t step, int64_t steps)
{
    if (!step) job->stage_began = vx_clock_s();
    if (!job->callbacks.progress) return;
    double elapsed = vx_clock_s() - job->stage_began;
    vx_progress p = { .stage = stage,
                      .stage_index = index,
                      .stage_count = VX_STAGES,
                      .step = step,
                      .steps = steps,
                      .elapsed_s = elapsed,
                      .rate_s = step ? elapsed / (double)step : 0,
                      .eta_s = step ? elapsed / (double)step * (double)(steps - step) : -1 };
    job->callbacks.progress(job->callbacks.user, &p);
}

static vx_status take_callbacks(vx_job *job, const vx_job_callbacks *callbacks)
{
    if (!callbacks) return vx_ok();
    if (!callbacks->struct_size || callbacks->struct_size > sizeof job->callbacks)
        return vx_fail(VX_ERR_USAGE, "the callbacks were not initialised with VX_INIT");
    memcpy(&job->callbacks, callbacks, callbacks->struct_size);
    return vx_ok();
}

// References are called <Picture i>, <Video k>, <Audio j> in the order given; one that the prompt never calls still acts.
static void note_unnamed(vx_job *job)
{
    int picture = 0, video = 0, audio = 0;
    for (int i = 0; i < job->conditions.count; i++) {
        const vx_prepared *p = &job->conditions.item[i];
        char name[2][32] = { "", "" };
        if (p->kind == VX_CONDITION_KEYFRAME) return;
        if (p->sound) snprintf(name[1], sizeof name[1], "<Audio %d>", ++audio);
        if (p->kind == VX_CONDITION_IMAGE) snprintf(name[0], sizeof name[0], "<Picture %d>", ++picture);
        if (p->kind == VX_CONDITION_VIDEO) snprintf(name[0], sizeof name[0], "<Video %d>", ++video);
        const char *own = name[0][0] ? name[0] : name[1];
        if (!strstr(job->request.prompt, own) && !(name[1][0] && strstr(job->request.prompt, name[1])))
            vx_note(&job->notes, "the prompt does not name %s (%s); it is used all the same", own, p->path);
    }
}

// The rows that the text encoder reads, or that a file brings; headers of what they need.
static vx_status present(vx_job *job)
{
    vx_model *m = job->model;
    if (job->request.embeds_path) {
        VX_TRY(vx_model_denoiser(m));
        return vx_embeds_load(job, job->request.embeds_path, vx_denoiser_config_of(m->denoiser)->text_dim);
    }
    bool visual = false;
    vx_shown shown[VX_MAX_CONDITIONS];
    for (int i = 0; i < job->conditions.count; i++) visual = visual || job->conditions.item[i].pixels;
    VX_TRY(vx_model_text(m));
    VX_TRY(vx_model_encoders(m, visual, false, false));
    VX_TRY(vx_model_denoiser(m));
    note_unnamed(job);
    vx_conditions_shown(&job->conditions, shown);
    const char *prompt = job->request.prompt;
    VX_TRY(vx_presentation_show(&job->presentation, m->tokenizer, prompt, strlen(prompt), shown, job->conditions.count));
    job->text_rows = job->presentation.tokens.rows;
    return vx_ok();
}

static vx_status lay_out(vx_job *job)
{
    const vx_resolved *r = &job->request;
    vx_conditions_rows(&job->conditions, job->rows);
    VX_TRY(vx_layout_create(&job->layout, &(vx_layout_params){ .text_rows = job->text_rows,
                                                               .text_tags = job->presentation.tokens.tags,
                                                               .frames = r->frames,
                                                               .width = r->width,
                                                               .height = r->height,
                                                               .conditions = job->rows,
                                                               .condition_count = job->conditions.count }));
    job->has_layout = true;
    const vx_denoiser_config *c = vx_denoiser_config_of(job->model->denoiser);
    const int64_t video[4] = { c->latent_channels, job->layout.latent_frames, job->layout.latent_height,
                               job->layout.latent_width };
    const int64_t audio[3] = { VX_SOUND_CHANNELS, c->audio_channels, job->layout.audio_frames };
    memcpy(job->video_shape, video, sizeof video);
    memcpy(job->audio_shape, audio, sizeof audio);
    return vx_ok();
}

// Decoded before any network is opened: what is wrong with an input is found first.
static vx_status load_conditions(vx_job *job)
{
    vx_resolved *r = &job->request;
    job->conditions = r->conditions;
    r->conditions = (vx_conditions){ 0 };
    if (!job->conditions.count) return vx_ok();
    bool visual = false, sound = false;
    VX_TRY(vx_conditions_load(&job->conditions,
                              &(vx_condition_rules){ .frames = r->frames,
                                                     .reference_short_edge = r->reference_short_edge,
                                                     .canvas_short_edge = r->canvas_short_edge,
                                                     .canvas_max_pixels = r->canvas_max_pixels },
                              r->width, r->height));
    for (int i = 0; i < job->conditions.count; i++) {
        visual = visual || job->conditions.item[i].pixels;
        sound = sound || job->conditions.item[i].sound;
    }
    return vx_model_encoders(job->model, false, visual, sound);
}

static vx_status take_partition(vx_model *m, vx_task task, vx_notes *notes)
{
    return vx_model_partition(m, task == VX_TASK_REF2VA ? VX_VARIANT_REF2VA : VX_VARIANT_FL2VA, vx_task_name(task), notes);
}

// The task says which partition, and the partition has sigma shifts of its own.
static vx_status resolve(vx_job *job, const vx_request *request)
{
    vx_model *m = job->model;
    const bool far = vx_device_far(m->device);
    const vx_variant before = m->map.variant;
    job->notes.quiet = true;
    vx_status s = vx_resolve(&job->request, request, &m->map, far, &job->notes);
    if (!s.code) s = take_partition(m, job->request.conditions.task, &job->notes);
    if (!s.code && m->map.variant != before) {
        vx_resolved_free(&job->request);
        vx_notes_free(&job->notes);
        job->notes.quiet = true;
        s = vx_resolve(&job->request, request, &m->map, far, &job->notes);
    }
    vx_notes_say(&job->notes);
    return s;
}

vx_status vx_job_prepare(vx_job *job, const vx_request *request)
{
    vx_model *m = job->model;
    VX_TRY(resolve(job, request));
    VX_TRY(load_conditions(job));
    VX_TRY(present(job));
    if (!job->request.latents_only) VX_TRY(vx_model_vaes(m, true, true));
    VX_TRY(vx_job_adapt(job, false));
    VX_TRY(lay_out(job));
    job->about_model = vx_model_object(m);
    return vx_job_plan(job);
}

vx_status vx_job_create(vx_model *model, const vx_request *request, const vx_job_callbacks *callbacks, vx_job **out)
{
    vx_job *job = vx_alloc_array(1, sizeof *job);
    VX_NEED_MEMORY(job, "a job");
    double began = vx_clock_s();
    job->model = model;
    job->watched = &job->cancelled;
    vx_status s = take_callbacks(job, callbacks);
    if (!s.code) s = vx_job_prepare(job, request);
    if (!s.code && job->request.record) {
        job->record = vx_record_create(job);
        if (!job->record) s = vx_no_memory("to record tensors");
    }
    if (!s.code && !(job->step_s = vx_alloc_array((size_t)job->request.evaluations, sizeof *job->step_s)))
        s = vx_no_memory("for a job");
    if (s.code) {
        vx_job_destroy(&job);
        return s;
    }
    job->timings.plan = vx_clock_s() - began;
    *out = job;
    return vx_ok();
}

vx_status vx_job_from_latents(vx_model *model, const char *path, bool denormalised, const vx_request *request,
                              const vx_job_callbacks *callbacks, vx_job **out)
{
    vx_job *job = vx_alloc_array(1, sizeof *job);
    VX_NEED_MEMORY(job, "a job");
    job->model = model;
    job->watched = &job->cancelled;
    job->denormalised = denormalised;
    vx_status s = take_callbacks(job, callbacks);
    if (!s.code) s = vx_resolve_decoder(&job->request, request, vx_device_far(model->device));
    if (!s.code) s = vx_latents_load(job, path);
    if (!s.code) s = vx_model_vaes(model, job->have_video, job->have_audio);
    if (!s.code) s = vx_job_plan(job);
    if (s.code) {
        vx_job_destroy(&job);
        return s;
    }
    *out = job;
    return vx_ok();
}

void vx_job_destroy(vx_job **pointer)
{
    if (!pointer || !*pointer) return;
    vx_job *job = *pointer;
    vx_resolved_free(&job->request);
    vx_notes_free(&job->notes);
    vx_presentation_full_free(&job->presentation);
    vx_conditions_free(&job->conditions);
    vx_layout_free(&job->layout);
    vx_record_free(job->record);
    json_decref(job->adapters);
    json_decref(job->about_model);
    json_decref(job->approximations);
    vx_free(job->embeds);
    vx_free(job->video);
    vx_free(job->audio);
    vx_free(job->file_request);
    vx_free(job->step_s);
    vx_free(job->media_json);
    vx_free(job->output);
    vx_free(job);
    *pointer = NULL;
}

void vx_job_cancel(vx_job *job)
{
    job->cancelled = 1;
}
uint64_t vx_job_seed(const vx_job *job)
{
    return job->request.seed;
}
bool vx_job_has_latents(const vx_job *job)
{
    return job->have_video || job->have_audio;
}

const float *vx_job_video_latent(const vx_job *job, int64_t shape[4])
{
    memcpy(shape, job->video_shape, sizeof job->video_shape);
    return job->have_video ? job->video : NULL;
}

const float *vx_job_audio_latent(const vx_job *job, int64_t shape[3])
{
    memcpy(shape, job->audio_shape, sizeof job->audio_shape);
    return job->have_audio ? job->audio : NULL;
}

// ---- text ----
vx_status vx_job_encode_text(vx_job *job)
{
    vx_model *m = job->model;
    vx_prompt_cache *cache = &m->cache;
    vx_device *dev = m->device;
    if (cache->prompt && cache->act == job->request.act && !strcmp(cache->prompt, job->request.prompt) &&
        !strcmp(cache->conditions, job->conditions.key)) {
        job->text_reused = true;
        return vx_ok();
    }
    if (job->presentation.place_count && !vx_has_samples(job))
        return vx_fail(VX_ERR_USAGE,
                       "the pictures of this job are gone and another job took the place of its text: make it anew");
    vx_free(cache->prompt);
    vx_free(cache->embeds);
    cache->prompt = NULL;
    cache->embeds = NULL;
    vx_stage_need need;
    vx_plan_counts counts;
    VX_TRY(vx_need_text(job, &need, &counts));
    vx_job_progress(job, "text", VX_STAGE_TEXT, 0, VX_LANGUAGE_LAYERS);
    vx_arena *arena = NULL;
    VX_TRY(vx_stage_enter(m, VX_TEXT_ENCODER, &need, &arena));
    vx_tensor out = vx_arena_tensor(arena, job->request.act, job->text_rows, vx_language_config_of(m->language)->hidden);
    vx_status s = vx_text_stage(job, dev, arena, out);
    cache->embed_bytes = vx_tensor_bytes(out);
    if (!s.code && !(cache->embeds = vx_alloc(cache->embed_bytes))) s = vx_no_memory("for the encoded prompt");
    if (!s.code) s = vx_download(dev, cache->embeds, out);
    if (!s.code && !(cache->prompt = vx_strdup(job->request.prompt))) s = vx_no_memory("for the prompt");
    cache->act = job->request.act;
    memcpy(cache->conditions, job->conditions.key, sizeof cache->conditions);
    vx_stage_leave(m, &arena);
    return s;
}

// ---- denoise ----
typedef struct drawing {
    float *conditions[VX_MAX_CONDITIONS]; // visual ones, noised, in latent order
    vx_noise_shape shape[VX_MAX_CONDITIONS];
    int count;
} drawing;

static void drawing_free(drawing *d)
{
    for (int i = 0; i < d->count; i++) vx_free(d->conditions[i]);
}

// Noise of the target and of every visual condition, in the order of the convention; then the conditions at level 0.999:
// two products and a sum in f32 (specification 4.4). ComfyUI multiplies by the rounded decimals.
static vx_status draw(vx_job *job, float *video, float *audio, drawing *d)
{
    const vx_resolved *r = &job->request;
    const float *latent[VX_MAX_CONDITIONS];
    for (int i = 0; i < job->conditions.count; i++) {
        const vx_prepared *p = &job->conditions.item[i];
        const int64_t *s = p->latent_shape;
        if (!p->latent) continue;
        latent[d->count] = p->latent;
        d->shape[d->count] = (vx_noise_shape){ s[0], s[1], s[2], s[3] };
        d->conditions[d->count] = vx_alloc((size_t)(s[0] * s[1] * s[2] * s[3]) * sizeof(float));
        VX_NEED_MEMORY(d->conditions[d->count], "a condition");
        d->count++;
    }
    VX_TRY(vx_noise_draw(
        &(vx_noise_params){ .convention = r->noise,
                            .seed = r->seed,
                            .video = { job->video_shape[0], job->video_shape[1], job->video_shape[2], job->video_shape[3] },
                            .audio_channels = job->audio_shape[1],
                            .audio_frames = job->audio_shape[2],
                            .conditions = d->shape,
                            .condition_count = d->count },
        video, audio, d->conditions));
    const float keep = 0.999f, rest = r->noise == VX_NOISE_COMFYUI ? 0.001f : 1.0f - keep;
    for (int i = 0; i < d->count; i++) {
        int64_t n = d->shape[i].channels * d->shape[i].frames * d->shape[i].height * d->shape[i].width;
        for (int64_t e = 0; e < n; e++) {
            float clean = keep * latent[i][e], noise = rest * d->conditions[i][e];
            d->conditions[i][e] = clean + noise;
        }
    }
    return vx_ok();
}

static vx_status denoise(vx_job *job)
{
    vx_device *dev = job->model->device;
    const vx_resolved *r = &job->request;
    size_t video_bytes = vx_tensor_bytes(vx_tensor_make(NULL, VX_F32, 4, job->video_shape)),
           audio_bytes = vx_tensor_bytes(vx_tensor_make(NULL, VX_F32, 3, job->audio_shape));
    vx_stage_need need;
    vx_plan_counts prepare, step;
    VX_TRY(vx_job_adapt(job, true));
    if (!job->model->keep) VX_TRY(vx_denoiser_keep_create(&job->model->keep, dev));
    VX_TRY(vx_need_denoise(job, &need, &prepare, &step));
    vx_job_progress(job, "denoise", VX_STAGE_DENOISE, 0, r->evaluations);
    vx_component_check_qkv(job->model->component[VX_TRANSFORMER]);
    vx_arena *arena = NULL;
    float *video = vx_alloc(video_bytes), *audio = vx_alloc(audio_bytes);
    vx_status s = video && audio ? vx_stage_enter(job->model, VX_TRANSFORMER, &need, &arena) : vx_no_memory("for latents");
    drawing drawn = { .count = 0 };
    if (!s.code) s = draw(job, video, audio, &drawn);
    if (!s.code)
        s = vx_denoise_stage(job, dev, arena,
                             &(vx_denoise_io){ .embeds = job->embeds ? job->embeds : job->model->cache.embeds,
                                               .video_noise = video,
                                               .audio_noise = audio,
                                               .conditions = drawn.conditions,
                                               .video = video,
                                               .audio = audio },
                             r->evaluations);
    drawing_free(&drawn);
    vx_stage_leave(job->model, &arena);
    if (s.code) {
        vx_free(video);
        vx_free(audio);
        return s;
    }
    job->video = video;
    job->audio = audio;
    job->have_video = job->have_audio = true;
    return vx_ok();
}

// Other jobs that were made since may have taken the other partition.
static vx_status take_transformer(vx_job *job)
{
    vx_notes said = { .quiet = true }; // when the job was made
    vx_status s = take_partition(job->model, job->conditions.task, &said);
    vx_notes_free(&said);
    return s.code ? s : vx_model_denoiser(job->model);
}

vx_status vx_job_run(vx_job *job)
{
    if (vx_job_has_latents(job)) return vx_ok();
    VX_TRY(take_transformer(job));
    VX_TRY(vx_model_has_numbers(job->model));
    vx_device *dev = job->model->device;
    vx_device_watch(dev, job->watched);
    (void)vx_job_parts(job);
    double began = vx_clock_s();
    vx_status s = job->embeds ? vx_ok() : vx_job_encode_text(job);
    if (s.code) s = vx_within(s, "text");
    if (!s.code) s = vx_model_check(job->model);
    job->timings.text = vx_clock_s() - began;
    if (!s.code) {
        s = vx_encode_conditions(job);
        if (s.code) s = vx_within(s, "encode");
    }
    if (!s.code) {
        began = vx_clock_s();
        s = denoise(job);
        if (s.code) s = vx_within(s, "denoise");
        job->timings.denoise = vx_clock_s() - began;
    }
    vx_device_watch(dev, NULL);
    // A file that shrank explains whatever else went wrong.
    vx_status files = vx_model_check(job->model);
    return files.code ? files : s;
}
