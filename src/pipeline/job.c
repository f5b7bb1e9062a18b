// A job: create validates and plans, run makes the latents. Stages run one after the other, each in an arena of its own that
// is given back at its end; what passes between them lies on the host.
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "pipeline/internal.h"

static const char *const stage_names[] = { "text", "denoise", "decode_audio", "decode_video", "mux" };

void vx_job_progress(vx_job *job, const char *stage, int index, int64_t step, int64_t steps)
{
    if (!step) job->stage_began = vx_clock_s();
    if (!job->callbacks.progress) return;
    double elapsed = vx_clock_s() - job->stage_began;
    vx_progress p = { .stage = stage,
                      .stage_index = index,
                      .stage_count = (int)(sizeof stage_names / sizeof *stage_names),
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

// The prompt's rows: from the cache, or tokenised. The pad tokens and limits are the presentation's business.
static vx_status present(vx_job *job)
{
    vx_model *m = job->model;
    if (job->request.embeds_path) {
        VX_TRY(vx_model_denoiser(m));
        return vx_embeds_load(job, job->request.embeds_path, vx_denoiser_config_of(m->denoiser)->text_dim);
    }
    VX_TRY(vx_model_text(m));
    VX_TRY(vx_model_denoiser(m));
    VX_TRY(vx_presentation_prompt(&job->presentation, m->tokenizer, job->request.prompt, strlen(job->request.prompt)));
    job->text_rows = job->presentation.rows;
    return vx_ok();
}

static vx_status lay_out(vx_job *job)
{
    const vx_resolved *r = &job->request;
    VX_TRY(vx_layout_create(&job->layout, &(vx_layout_params){ .text_rows = job->text_rows,
                                                               .text_tags = job->presentation.tags,
                                                               .frames = r->frames,
                                                               .width = r->width,
                                                               .height = r->height }));
    job->has_layout = true;
    const vx_denoiser_config *c = vx_denoiser_config_of(job->model->denoiser);
    const int64_t video[4] = { c->latent_channels, job->layout.latent_frames, job->layout.latent_height,
                               job->layout.latent_width };
    const int64_t audio[3] = { VX_SOUND_CHANNELS, c->audio_channels, job->layout.audio_frames };
    memcpy(job->video_shape, video, sizeof video);
    memcpy(job->audio_shape, audio, sizeof audio);
    return vx_ok();
}

vx_status vx_job_prepare(vx_job *job, const vx_request *request)
{
    vx_model *m = job->model;
    VX_TRY(vx_resolve(&job->request, request, &m->map, &job->notes));
    if (m->map.variant == VX_VARIANT_REF2VA)
        return vx_remedy(vx_fail_field(VX_ERR_MODEL_VARIANT, "task", "%s is the Ref2VA partition, t2va needs FL2VA", m->map.root),
                         "give the FL2VA partition");
    if (m->map.variant == VX_VARIANT_UNKNOWN)
        vx_note(&job->notes, "nothing says which partition %s is; taken as FL2VA", m->map.root);
    VX_TRY(present(job));
    if (!job->request.latents_only) VX_TRY(vx_model_vaes(m, true, true));
    VX_TRY(lay_out(job));
    return vx_job_plan(job);
}

vx_status vx_job_create(vx_model *model, const vx_request *request, const vx_job_callbacks *callbacks, vx_job **out)
{
    vx_job *job = vx_alloc_array(1, sizeof *job);
    VX_NEED_MEMORY(job, "a job");
    double began = vx_clock_s();
    job->model = model;
    vx_status s = take_callbacks(job, callbacks);
    if (!s.code) s = vx_job_prepare(job, request);
    if (!s.code && job->request.record) {
        job->record = vx_record_create(job);
        if (!job->record) s = vx_fail(VX_ERR_MEMORY, "no memory to record tensors");
    }
    if (!s.code && !(job->step_s = vx_alloc_array((size_t)job->request.evaluations, sizeof *job->step_s)))
        s = vx_fail(VX_ERR_MEMORY, "no memory for a job");
    if (s.code) {
        vx_job_destroy(&job);
        return s;
    }
    job->timings.plan = vx_clock_s() - began;
    *out = job;
    return vx_ok();
}

vx_status vx_job_from_latents(vx_model *model, const char *path, bool denormalised, const vx_job_callbacks *callbacks,
                              vx_job **out)
{
    vx_job *job = vx_alloc_array(1, sizeof *job);
    VX_NEED_MEMORY(job, "a job");
    job->model = model;
    job->denormalised = denormalised;
    vx_status s = take_callbacks(job, callbacks);
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
    vx_presentation_free(&job->presentation);
    vx_layout_free(&job->layout);
    vx_record_free(job->record);
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
static void language_layer(void *user, int layer)
{
    vx_job_progress(user, "text", 0, layer + 1, VX_LANGUAGE_LAYERS);
}

static vx_status encode_text(vx_job *job)
{
    vx_model *m = job->model;
    vx_prompt_cache *cache = &m->cache;
    vx_device *dev = m->context->device;
    if (cache->prompt && cache->act == job->request.act && !strcmp(cache->prompt, job->request.prompt)) return vx_ok();
    vx_free(cache->prompt);
    vx_free(cache->embeds);
    cache->prompt = NULL;
    cache->embeds = NULL;
    vx_stage_need need;
    vx_plan_counts counts;
    int64_t hidden = vx_language_config_of(m->language)->hidden;
    VX_TRY(vx_need_text(m, job->text_rows, job->request.act, &need, &counts));
    vx_job_progress(job, "text", 0, 0, VX_LANGUAGE_LAYERS);
    vx_arena *arena = NULL;
    VX_TRY(vx_arena_create(dev, &arena, need.arena));
    vx_status s = vx_device_reserve(dev, need.scratch);
    vx_tensor out = vx_arena_tensor(arena, job->request.act, job->text_rows, hidden);
    if (!s.code)
        s = vx_language_encode(
            m->language, dev, arena, out,
            &(vx_language_run){
                .ids = job->presentation.ids, .rows = job->text_rows, .layer_done = language_layer, .user = job });
    cache->embed_bytes = vx_tensor_bytes(out);
    if (!s.code && !(cache->embeds = vx_alloc(cache->embed_bytes)))
        s = vx_fail(VX_ERR_MEMORY, "no memory for the encoded prompt");
    if (!s.code) s = vx_download(dev, cache->embeds, out);
    if (!s.code && !(cache->prompt = vx_strdup(job->request.prompt))) s = vx_fail(VX_ERR_MEMORY, "no memory for the prompt");
    cache->act = job->request.act;
    vx_arena_destroy(&arena);
    vx_device_release(dev);
    return s;
}

// ---- denoise ----
typedef struct loop {
    vx_job *job;
    vx_device *dev;
    vx_denoiser_request *request;
    double step_began;
} loop;

static vx_status record_step(vx_job *job, vx_device *dev, int64_t k, vx_tensor video, vx_tensor audio, vx_tensor dv, vx_tensor da)
{
    vx_record *r = job->record;
    if (k == 0) {
        VX_TRY(vx_download(dev, r->first_video, video));
        VX_TRY(vx_download(dev, r->first_audio, audio));
    }
    VX_TRY(vx_download(dev, r->video[k], dv));
    return vx_download(dev, r->audio[k], da);
}

static vx_status velocity(void *user, int64_t k, vx_tensor video, vx_tensor audio, vx_tensor dv, vx_tensor da)
{
    loop *l = user;
    vx_job *job = l->job;
    bool real = !vx_device_is_plan(l->dev);
    l->step_began = vx_clock_s();
    VX_TRY_IN(vx_denoiser_evaluate(l->request, k, video, audio, dv, da), "step %lld", (long long)k + 1);
    if (!real) return vx_ok();
    if (job->record) VX_TRY(record_step(job, l->dev, k, video, audio, dv, da));
    job->step_s[k] = vx_clock_s() - l->step_began;
    job->steps_done = (int)k + 1;
    vx_job_progress(job, "denoise", 1, k + 1, job->request.evaluations);
    return vx_model_check(job->model);
}

vx_status vx_denoise_stage(vx_job *job, vx_device *dev, vx_arena *arena, const vx_denoise_io *io, int evaluations)
{
    const vx_resolved *r = &job->request;
    const vx_layout *l = &job->layout;
    const vx_denoiser_config *c = vx_denoiser_config_of(job->model->denoiser);
    float t_video[VX_MAX_SIGMAS], t_audio[VX_MAX_SIGMAS];
    vx_sampler_params sampler = {
        .sampler = r->sampler, .official = r->official, .sigmas = &r->sigmas, .shift = r->shift, .audio_shift = r->audio_shift
    };
    vx_sampler_timesteps(&sampler, t_video, t_audio);
    vx_tensor embeds = vx_arena_tensor(arena, r->act, job->text_rows, c->text_dim);
    vx_tensor video = vx_arena_tensor(arena, VX_F32, l->video_rows, 4 * c->latent_channels),
              audio = vx_arena_tensor(arena, VX_F32, l->audio_rows, c->audio_channels);
    vx_tensor video_latent = vx_arena_take(arena, VX_F32, 4, job->video_shape),
              audio_latent = vx_arena_take(arena, VX_F32, 3, job->audio_shape);
    VX_TRY(vx_upload(dev, embeds, io->embeds));
    VX_TRY(vx_upload(dev, video_latent, io->video_noise));
    VX_TRY(vx_upload(dev, audio_latent, io->audio_noise));
    VX_TRY(vx_patchify(dev, video, video_latent));
    VX_TRY(vx_patchify(dev, audio, audio_latent));
    loop run = { .job = job, .dev = dev };
    VX_TRY(vx_denoiser_prepare(&run.request, job->model->denoiser, dev, arena,
                               &(vx_denoiser_params){ .act = r->act,
                                                      .layout = l,
                                                      .prompt_embeds = embeds,
                                                      .t_video = t_video,
                                                      .t_audio = t_audio,
                                                      .evaluations = r->evaluations }));
    vx_status s = vx_ok();
    // Planning runs one step of the loop, by a list that holds just that step.
    vx_sigmas *first = NULL;
    if (evaluations < r->evaluations && evaluations > 0) {
        first = vx_alloc(sizeof *first);
        if (!first) s = vx_fail(VX_ERR_MEMORY, "no memory for sigmas");
        else {
            *first = r->sigmas;
            first->count = evaluations + 1;
            sampler.sigmas = first;
        }
    }
    if (!s.code && evaluations > 0) s = vx_sampler_run(dev, arena, &sampler, video, audio, velocity, &run);
    vx_free(first);
    vx_denoiser_finish(&run.request);
    VX_TRY(s);
    VX_TRY(vx_unpatchify(dev, video_latent, video));
    VX_TRY(vx_unpatchify(dev, audio_latent, audio));
    VX_TRY(vx_download(dev, io->video, video_latent));
    return vx_download(dev, io->audio, audio_latent);
}

static vx_status denoise(vx_job *job)
{
    vx_device *dev = job->model->context->device;
    const vx_resolved *r = &job->request;
    size_t video_bytes = vx_tensor_bytes(vx_tensor_make(NULL, VX_F32, 4, job->video_shape)),
           audio_bytes = vx_tensor_bytes(vx_tensor_make(NULL, VX_F32, 3, job->audio_shape));
    vx_stage_need need;
    vx_plan_counts prepare, step;
    VX_TRY(vx_need_denoise(job, &need, &prepare, &step));
    vx_job_progress(job, "denoise", 1, 0, r->evaluations);
    vx_arena *arena = NULL;
    float *video = vx_alloc(video_bytes), *audio = vx_alloc(audio_bytes);
    vx_status s = video && audio ? vx_arena_create(dev, &arena, need.arena) : vx_fail(VX_ERR_MEMORY, "no memory for latents");
    if (!s.code) s = vx_device_reserve(dev, need.scratch);
    if (!s.code)
        s = vx_noise_draw(
            &(vx_noise_params){ .convention = r->noise,
                                .seed = r->seed,
                                .video = { job->video_shape[0], job->video_shape[1], job->video_shape[2], job->video_shape[3] },
                                .audio_channels = job->audio_shape[1],
                                .audio_frames = job->audio_shape[2] },
            video, audio, NULL);
    if (!s.code) {
        const void *embeds = job->embeds ? job->embeds : job->model->cache.embeds;
        s = vx_denoise_stage(
            job, dev, arena,
            &(vx_denoise_io){ .embeds = embeds, .video_noise = video, .audio_noise = audio, .video = video, .audio = audio },
            r->evaluations);
    }
    vx_arena_destroy(&arena);
    vx_device_release(dev);
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

vx_status vx_job_run(vx_job *job)
{
    if (vx_job_has_latents(job)) return vx_ok();
    vx_device *dev = job->model->context->device;
    vx_device_watch(dev, &job->cancelled);
    double began = vx_clock_s();
    vx_status s = job->embeds ? vx_ok() : encode_text(job);
    if (s.code) s = vx_within(s, "text");
    if (!s.code) s = vx_model_check(job->model);
    job->timings.text = vx_clock_s() - began;
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
