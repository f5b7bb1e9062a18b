// What --dump-tensors keeps: inputs and outputs of every evaluation, for parity checks and bug reports.
#include <string.h>

#include "base/str.h"
#include "pipeline/internal.h"
#include "weights/safetensors.h"

void vx_record_free(vx_record *r)
{
    if (!r) return;
    for (int i = 0; i < r->evaluations; i++) {
        if (r->video) vx_free(r->video[i]);
        if (r->audio) vx_free(r->audio[i]);
        if (r->timestep) vx_free(r->timestep[i]);
    }
    vx_free(r->video);
    vx_free(r->audio);
    vx_free(r->timestep);
    vx_free(r->timesteps);
    vx_free(r->first_video);
    vx_free(r->first_audio);
    vx_free(r->embeds);
    vx_free(r);
}

uint64_t vx_record_bytes(const vx_job *job)
{
    if (!job->request.record) return 0;
    const vx_denoiser_config *c = vx_denoiser_config_of(job->model->denoiser);
    uint64_t evaluation = (uint64_t)job->layout.video_rows * 4 * (uint64_t)c->latent_channels +
                          (uint64_t)job->layout.audio_rows * (uint64_t)c->audio_channels;
    return (uint64_t)(job->request.evaluations + 1) * evaluation * sizeof(float); // and the inputs of the first
}

vx_record *vx_record_create(const vx_job *job)
{
    const vx_denoiser_config *c = vx_denoiser_config_of(job->model->denoiser);
    size_t n = (size_t)job->request.evaluations, video = (size_t)job->layout.video_rows * 4 * (size_t)c->latent_channels,
           audio = (size_t)job->layout.audio_rows * (size_t)c->audio_channels;
    vx_record *r = vx_alloc_array(1, sizeof *r);
    if (!r) return NULL;
    r->evaluations = (int)n;
    r->video = vx_alloc_array(n, sizeof *r->video);
    r->audio = vx_alloc_array(n, sizeof *r->audio);
    r->timestep = vx_alloc_array(n, sizeof *r->timestep);
    r->timesteps = vx_alloc_array(n, sizeof *r->timesteps);
    int64_t condition_video, condition_audio;
    vx_condition_row_counts(job, &condition_video, &condition_audio);
    r->first_video = vx_alloc_array(video + (size_t)condition_video * 4 * (size_t)c->latent_channels, sizeof(float));
    r->first_audio = vx_alloc_array(audio + (size_t)condition_audio * (size_t)c->audio_channels, sizeof(float));
    bool ok = r->video && r->audio && r->timestep && r->timesteps && r->first_video && r->first_audio;
    for (size_t i = 0; ok && i < n; i++) {
        r->video[i] = vx_alloc_array(video, sizeof(float));
        r->audio[i] = vx_alloc_array(audio, sizeof(float));
        r->timestep[i] = vx_alloc_array(VX_CLOCKS, sizeof(float));
        ok = r->video[i] && r->audio[i] && r->timestep[i];
    }
    if (ok) return r;
    vx_record_free(r);
    return NULL;
}

// Grows with what is added; names and arrays made here are owned.
typedef struct dump {
    vx_safetensors_tensor *tensors;
    char **names;
    void **owned;
    int count, capacity;
    bool failed;
} dump;

static void add(dump *d, const char *name, vx_dtype dtype, int rank, const int64_t *shape, const void *data, void *owned)
{
    if (d->count == d->capacity) d->failed = true;
    if (d->failed) {
        vx_free(owned);
        return;
    }
    vx_safetensors_tensor *t = &d->tensors[d->count];
    *t = (vx_safetensors_tensor){ .dtype = dtype, .rank = rank, .data = data };
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    t->name = d->names[d->count] = vx_strdup(name);
    d->owned[d->count++] = owned;
    if (!t->name || !data) d->failed = true;
}

static void add_indices(dump *d, const char *name, const vx_layout *l, int tag)
{
    int64_t n = vx_layout_indices(l, tag, NULL);
    int32_t *indices = vx_alloc_array((size_t)n, sizeof *indices);
    if (indices) vx_layout_indices(l, tag, indices);
    add(d, name, VX_I32, 1, &n, indices, indices);
}

static void add_layout(dump *d, vx_job *job, const float *distinct, const int *index)
{
    const vx_layout *l = &job->layout;
    (void)distinct;
    add(d, "layout.token_tags", VX_I32, 1, &l->rows, l->tag, NULL);
    int32_t *timestep = vx_alloc_array((size_t)l->rows, sizeof *timestep);
    for (int64_t i = 0; timestep && i < l->rows; i++) timestep[i] = index[l->clock[i]];
    add(d, "layout.timestep_indices", VX_I32, 1, &l->rows, timestep, timestep);
    add_indices(d, "layout.text_indices", l, VX_TAG_TEXT);
    add_indices(d, "layout.audio_indices", l, VX_TAG_AUDIO);
    add_indices(d, "layout.video_indices", l, VX_TAG_VIDEO);
    const int64_t shape[2] = { l->rows, 3 };
    float *position = vx_alloc_array((size_t)l->rows * 3, sizeof *position);
    for (int64_t i = 0; position && i < 3 * l->rows; i++) position[i] = (float)l->position[i];
    add(d, "first_call.position_ids", VX_F32, 2, shape, position, position);
}

static void add_text(dump *d, vx_job *job)
{
    int64_t dim = vx_denoiser_config_of(job->model->denoiser)->text_dim, rows = job->text_rows;
    const int64_t shape[2] = { rows, dim };
    const void *raw = job->embeds ? job->embeds : job->model->cache.embeds;
    float *wide = vx_alloc_array((size_t)(rows * dim), sizeof *wide);
    for (int64_t i = 0; wide && i < rows * dim; i++)
        wide[i] = job->request.act == VX_F32 ? ((const float *)raw)[i] : vx_bf16_to_f32(((const uint16_t *)raw)[i]);
    add(d, "prompt_embeds", VX_F32, 2, shape, wide, wide);
    add(d, "text_token_tags", VX_I32, 1, &rows, job->presentation.tokens.tags, NULL);
    if (job->presentation.tokens.ids) add(d, "token_ids", VX_I32, 1, &rows, job->presentation.tokens.ids, NULL);
}

// Normalised, before condition noise, in packed order; each kind counts from 0. Sound as rows [2A, channels].
static void add_conditions(dump *d, const vx_job *job)
{
    int visual = 0, audible = 0;
    char name[48];
    for (int i = 0; i < job->conditions.count; i++) {
        const vx_prepared *p = &job->conditions.item[i];
        if (p->latent) {
            snprintf(name, sizeof name, "condition_latents.%d", visual++);
            add(d, name, VX_F32, 4, p->latent_shape, p->latent, NULL);
        }
        if (!p->audio_latent) continue;
        int64_t channels = job->audio_shape[1], shape[2] = { VX_SOUND_CHANNELS * p->audio_frames, channels };
        float *rows = vx_alloc_array((size_t)(shape[0] * channels), sizeof *rows);
        for (int64_t r = 0; rows && r < shape[0]; r++)
            for (int64_t c = 0; c < channels; c++)
                rows[r * channels + c] =
                    p->audio_latent[(r / p->audio_frames * channels + c) * p->audio_frames + r % p->audio_frames];
        snprintf(name, sizeof name, "audio_condition_latents.%d", audible++);
        add(d, name, VX_F32, 2, shape, rows, rows);
    }
}

static void add_evaluations(dump *d, vx_job *job)
{
    const vx_record *r = job->record;
    const vx_denoiser_config *c = vx_denoiser_config_of(job->model->denoiser);
    const int64_t video[2] = { job->layout.video_rows, 4 * c->latent_channels },
                  audio[2] = { job->layout.audio_rows, c->audio_channels };
    vx_sampler_params sampler = { .sampler = job->request.sampler,
                                  .step = job->request.step,
                                  .sigmas = &job->request.sigmas,
                                  .shift = job->request.shift,
                                  .audio_shift = job->request.audio_shift };
    float t_video[VX_MAX_SIGMAS], t_audio[VX_MAX_SIGMAS];
    int index[VX_CLOCKS];
    vx_sampler_timesteps(&sampler, t_video, t_audio);
    int64_t condition_video, condition_audio;
    vx_condition_row_counts(job, &condition_video, &condition_audio);
    const int64_t all_video[2] = { condition_video + video[0], video[1] },
                  all_audio[2] = { condition_audio + audio[0], audio[1] };
    add(d, "first_call.hidden_states", VX_F32, 2, all_video, r->first_video, NULL);
    add(d, "first_call.audio_hidden_states", VX_F32, 2, all_audio, r->first_audio, NULL);
    for (int k = 0; k < r->evaluations; k++) {
        char name[48];
        snprintf(name, sizeof name, "velocity.video.%d", k);
        add(d, name, VX_F32, 2, video, r->video[k], NULL);
        snprintf(name, sizeof name, "velocity.audio.%d", k);
        add(d, name, VX_F32, 2, audio, r->audio[k], NULL);
        int64_t distinct = vx_layout_timesteps(&job->layout, t_video[k], t_audio[k], r->timestep[k], index);
        snprintf(name, sizeof name, "timestep.%d", k);
        add(d, name, VX_F32, 1, &distinct, r->timestep[k], NULL);
        if (k == 0) add_layout(d, job, r->timestep[k], index);
    }
}

vx_status vx_job_dump_tensors(vx_job *job, const char *path, bool replace)
{
    if (!job->record || !vx_job_has_latents(job))
        return vx_fail(VX_ERR_USAGE, "no tensors were recorded: set record_tensors and run the job");
    dump d = { .capacity = 16 + 3 * job->record->evaluations + 2 * job->conditions.count };
    d.tensors = vx_alloc_array((size_t)d.capacity, sizeof *d.tensors);
    d.names = vx_alloc_array((size_t)d.capacity, sizeof *d.names);
    d.owned = vx_alloc_array((size_t)d.capacity, sizeof *d.owned);
    d.failed = !d.tensors || !d.names || !d.owned;
    if (!d.failed) {
        add_text(&d, job);
        add_conditions(&d, job);
        add_evaluations(&d, job);
    }
    char *request = NULL;
    vx_status s = d.failed ? vx_no_memory("to write tensors") : vx_json_text(vx_result_object(job), &request);
    if (!s.code)
        s = vx_safetensors_write(path, replace, d.tensors, d.count,
                                 (vx_safetensors_pair[]){ { "request", request }, { "vortex_version", vx_version() } }, 2);
    vx_free(request);
    for (int i = 0; i < d.count; i++) {
        vx_free(d.names[i]);
        vx_free(d.owned[i]);
    }
    vx_free(d.tensors);
    vx_free(d.names);
    vx_free(d.owned);
    return s;
}
