// The text and the denoising stage, each as one function of its device: on the plan device it counts, on the real one it
// computes. Neither allocates device memory of its own: everything is taken from the stage's arena.
#include <string.h>

#include "base/clock.h"
#include "device/operators.h"
#include "media/resize.h"
#include "pipeline/internal.h"

// ---- text ----
static void language_layer(void *user, int layer)
{
    vx_job_progress(user, "text", VX_STAGE_TEXT, layer + 1, VX_LANGUAGE_LAYERS);
}

// Bytes of a vision block's pixels that are resized for the tower: 0 where the condition has the tower's size already.
static size_t tower_room(const vx_prepared *p, const vx_vision_place *place)
{
    int64_t height = place->grid_height * 32, width = place->grid_width * 32;
    if (height == p->height && width == p->width) return 0;
    return (size_t)(height * width) * 3 * (p->kind == VX_CONDITION_VIDEO ? 2 : 1);
}

size_t vx_tower_room(const vx_job *job)
{
    size_t most = 0;
    for (int i = 0; i < job->presentation.place_count; i++) {
        const vx_vision_place *place = &job->presentation.places[i];
        size_t room = tower_room(&job->conditions.item[place->condition], place);
        if (room > most) most = room;
    }
    return most;
}

// The pixels of one frame of a block: the condition's own, or resized into `room`.
static vx_status tower_pixels(const vx_prepared *p, int64_t frame, int64_t height, int64_t width, uint8_t *room,
                              const uint8_t **out)
{
    const uint8_t *rgb = p->pixels + (size_t)(frame * p->height * p->width) * 3;
    *out = room ? room : rgb;
    if (!room) return vx_ok();
    return vx_resize(room, width, height, rgb, p->width, p->height, VX_RESIZE_BICUBIC_TORCH);
}

static vx_status see(vx_job *job, vx_device *dev, vx_arena *arena, const vx_vision_place *place, vx_language_features *out)
{
    const vx_prepared *p = &job->conditions.item[place->condition];
    int64_t dim = vx_vision_config_of(job->model->vision)->out_hidden, height = place->grid_height * 32,
            width = place->grid_width * 32;
    out->row = place->row;
    out->features = vx_arena_tensor(arena, job->request.act, place->rows, dim);
    for (int i = 0; i < 3; i++) out->deep[i] = vx_arena_tensor(arena, job->request.act, place->rows, dim);
    size_t mark = vx_arena_mark(arena), bytes = tower_room(p, place);
    const uint8_t *first = NULL, *second = NULL;
    vx_status s = vx_ok();
    uint8_t *room = NULL;
    if (!vx_device_is_plan(dev)) {
        bool video = p->kind == VX_CONDITION_VIDEO;
        // The last sampled frame is shown twice when their number is odd.
        int64_t next = (place->frame + 1) * VX_SAMPLED_EVERY < p->frames ? place->frame + 1 : place->frame;
        room = bytes ? vx_alloc(bytes) : NULL;
        if (bytes && !room) return vx_no_memory("for pixels");
        s = tower_pixels(p, video ? place->frame * VX_SAMPLED_EVERY : 0, height, width, room, &first);
        if (!s.code && video)
            s = tower_pixels(p, next * VX_SAMPLED_EVERY, height, width, room ? room + bytes / 2 : NULL, &second);
    }
    if (!s.code) s = vx_vision_encode(job->model->vision, dev, arena, out->features, out->deep, first, second, height, width);
    vx_free(room);
    vx_arena_reset(arena, mark);
    return s;
}

vx_status vx_text_stage(vx_job *job, vx_device *dev, vx_arena *arena, vx_tensor out)
{
    const vx_presentation_full *shown = &job->presentation;
    vx_language_features *features = NULL;
    vx_status s = vx_ok();
    if (shown->place_count) {
        features = vx_alloc_array((size_t)shown->place_count, sizeof *features);
        VX_NEED_MEMORY(features, "vision features");
    }
    for (int i = 0; i < shown->place_count && !s.code; i++) {
        s = see(job, dev, arena, &shown->places[i], &features[i]);
        if (s.code) s = vx_within(s, "vision block %d", i);
    }
    if (!s.code)
        s = vx_language_encode(job->model->language, dev, arena, out,
                               &(vx_language_run){ .ids = shown->tokens.ids,
                                                   .positions = shown->positions,
                                                   .rows = job->text_rows,
                                                   .features = features,
                                                   .feature_count = shown->place_count,
                                                   .layer_done = vx_device_is_plan(dev) ? NULL : language_layer,
                                                   .user = job });
    vx_free(features);
    return s;
}

// ---- denoise ----
// What the model sees at every evaluation: the conditions' rows, which never change, and the target's.
typedef struct loop {
    vx_job *job;
    vx_device *dev;
    vx_denoiser_request *request;
    vx_tensor all_video, all_audio;       // [conditions and target]
    vx_tensor target_video, target_audio; // their last rows
    bool conditioned;
} loop;

static vx_status record_step(vx_job *job, loop *l, int64_t k, vx_tensor video, vx_tensor audio, vx_tensor dv, vx_tensor da)
{
    vx_record *r = job->record;
    if (k == 0) {
        VX_TRY(vx_download(l->dev, r->first_video, video));
        VX_TRY(vx_download(l->dev, r->first_audio, audio));
    }
    VX_TRY(vx_download(l->dev, r->video[k], dv));
    return vx_download(l->dev, r->audio[k], da);
}

static vx_status velocity(void *user, int64_t k, vx_tensor video, vx_tensor audio, vx_tensor dv, vx_tensor da)
{
    loop *l = user;
    vx_job *job = l->job;
    double began = vx_clock_s();
    if (l->conditioned) {
        VX_TRY(vx_copy(l->dev, l->target_video, video));
        VX_TRY(vx_copy(l->dev, l->target_audio, audio));
        video = l->all_video;
        audio = l->all_audio;
    }
    VX_TRY_IN(vx_denoiser_evaluate(l->request, k, video, audio, dv, da), "step %lld", (long long)k + 1);
    if (vx_device_is_plan(l->dev)) return vx_ok();
    if (job->record) VX_TRY(record_step(job, l, k, video, audio, dv, da));
    job->step_s[k] = vx_clock_s() - began;
    job->steps_done = (int)k + 1;
    vx_job_progress(job, "denoise", VX_STAGE_DENOISE, k + 1, job->request.evaluations);
    return vx_model_check(job->model);
}

// Conditions as rows, in packed order: pictures noised to level 0.999 (they come noised, see denoise in job.c), sound clean.
static vx_status place_conditions(vx_job *job, vx_device *dev, vx_arena *arena, loop *l, float *const *noised)
{
    const vx_denoiser_config *c = vx_denoiser_config_of(job->model->denoiser);
    int64_t video_row = 0, audio_row = 0;
    for (int i = 0, visual = 0; i < job->conditions.count; i++) {
        const vx_prepared *p = &job->conditions.item[i];
        size_t mark = vx_arena_mark(arena);
        vx_condition_rows rows = job->rows[i];
        if (rows.audio_frames) {
            int64_t count = VX_SOUND_CHANNELS * rows.audio_frames;
            vx_tensor latent = vx_arena_tensor(arena, VX_F32, VX_SOUND_CHANNELS, c->audio_channels, rows.audio_frames);
            VX_TRY(vx_upload(dev, latent, p->audio_latent));
            VX_TRY(vx_patchify(dev, vx_tensor_slice(l->all_audio, 0, audio_row, audio_row + count), latent));
            audio_row += count;
        }
        if (rows.latent_frames) {
            int64_t count = rows.latent_frames * (rows.latent_height / 2) * (rows.latent_width / 2);
            vx_tensor latent =
                vx_arena_tensor(arena, VX_F32, c->latent_channels, rows.latent_frames, rows.latent_height, rows.latent_width);
            VX_TRY(vx_upload(dev, latent, noised ? noised[visual] : NULL));
            VX_TRY(vx_patchify(dev, vx_tensor_slice(l->all_video, 0, video_row, video_row + count), latent));
            video_row += count;
            visual++;
        }
        vx_arena_reset(arena, mark);
    }
    return vx_ok();
}

void vx_condition_row_counts(const vx_job *job, int64_t *video, int64_t *audio)
{
    *video = *audio = 0;
    for (int i = 0; i < job->conditions.count; i++) {
        const vx_condition_rows *r = &job->rows[i];
        *video += r->latent_frames * (r->latent_height / 2) * (r->latent_width / 2);
        *audio += VX_SOUND_CHANNELS * r->audio_frames;
    }
}

static vx_status sample(vx_job *job, vx_device *dev, vx_arena *arena, loop *run, vx_tensor embeds, vx_tensor video,
                        vx_tensor audio, int evaluations)
{
    const vx_resolved *r = &job->request;
    float t_video[VX_MAX_SIGMAS], t_audio[VX_MAX_SIGMAS];
    vx_sampler_params sampler = {
        .sampler = r->sampler, .step = r->step, .sigmas = &r->sigmas, .shift = r->shift, .audio_shift = r->audio_shift
    };
    vx_sampler_timesteps(&sampler, t_video, t_audio);
    VX_TRY(vx_denoiser_prepare(&run->request, job->model->denoiser, dev, arena,
                               &(vx_denoiser_params){ .act = r->act,
                                                      .layout = &job->layout,
                                                      .prompt_embeds = embeds,
                                                      .t_video = t_video,
                                                      .t_audio = t_audio,
                                                      .evaluations = r->evaluations,
                                                      .keep = job->model->keep,
                                                      .keep_tables = job->keep_tables }));
    // What passed by for the tables is gone before the loop, whose memory is the stage's figure.
    vx_device_trim(dev);
    if (!vx_device_is_plan(dev)) vx_stage_loop(job->model);
    vx_status s = vx_ok();
    // Planning runs one step of the loop, by a list that holds just that step.
    vx_sigmas *first = NULL;
    if (evaluations < r->evaluations && evaluations > 0) {
        first = vx_alloc(sizeof *first);
        if (!first) s = vx_no_memory("for sigmas");
        else {
            *first = r->sigmas;
            first->count = evaluations + 1;
            sampler.sigmas = first;
        }
    }
    if (!s.code && evaluations > 0) s = vx_sampler_run(dev, arena, &sampler, video, audio, velocity, run);
    vx_free(first);
    job->reuse = vx_denoiser_reused(run->request);
    vx_denoiser_finish(&run->request);
    return s;
}

vx_status vx_denoise_stage(vx_job *job, vx_device *dev, vx_arena *arena, const vx_denoise_io *io, int evaluations)
{
    const vx_layout *l = &job->layout;
    const vx_denoiser_config *c = vx_denoiser_config_of(job->model->denoiser);
    int64_t condition_video, condition_audio;
    vx_condition_row_counts(job, &condition_video, &condition_audio);
    vx_tensor embeds = vx_arena_tensor(arena, job->request.act, job->text_rows, c->text_dim);
    vx_tensor video = vx_arena_tensor(arena, VX_F32, l->video_rows, 4 * c->latent_channels),
              audio = vx_arena_tensor(arena, VX_F32, l->audio_rows, c->audio_channels);
    vx_tensor video_latent = vx_arena_take(arena, VX_F32, 4, job->video_shape),
              audio_latent = vx_arena_take(arena, VX_F32, 3, job->audio_shape);
    loop run = { .job = job, .dev = dev, .conditioned = job->conditions.count > 0 };
    if (run.conditioned) {
        run.all_video = vx_arena_tensor(arena, VX_F32, condition_video + l->video_rows, 4 * c->latent_channels);
        run.all_audio = vx_arena_tensor(arena, VX_F32, condition_audio + l->audio_rows, c->audio_channels);
        run.target_video = vx_tensor_slice(run.all_video, 0, condition_video, condition_video + l->video_rows);
        run.target_audio = vx_tensor_slice(run.all_audio, 0, condition_audio, condition_audio + l->audio_rows);
        VX_TRY(place_conditions(job, dev, arena, &run, io->conditions));
    }
    VX_TRY(vx_upload(dev, embeds, io->embeds));
    VX_TRY(vx_upload(dev, video_latent, io->video_noise));
    VX_TRY(vx_upload(dev, audio_latent, io->audio_noise));
    VX_TRY(vx_patchify(dev, video, video_latent));
    VX_TRY(vx_patchify(dev, audio, audio_latent));
    VX_TRY(sample(job, dev, arena, &run, embeds, video, audio, evaluations));
    VX_TRY(vx_unpatchify(dev, video_latent, video));
    VX_TRY(vx_unpatchify(dev, audio_latent, audio));
    VX_TRY(vx_download(dev, io->video, video_latent));
    return vx_download(dev, io->audio, audio_latent);
}
