// What a job will need, found by running the very code of its stages on the plan device: no formula here can drift from
// what the stages do.
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"
#include "pipeline/internal.h"

vx_status vx_need_text(vx_job *job, vx_stage_need *need, vx_plan_counts *counts)
{
    vx_device *dev = job->model->planner;
    vx_arena *arena = NULL;
    vx_device_plan_reset(dev);
    VX_TRY(vx_arena_create(dev, &arena, 0));
    vx_tensor out = vx_arena_tensor(arena, job->request.act, job->text_rows, vx_language_config_of(job->model->language)->hidden);
    vx_status s = vx_text_stage(job, dev, arena, out);
    *counts = vx_device_plan_counts(dev);
    *need = (vx_stage_need){ vx_arena_high(arena), counts->scratch };
    vx_arena_destroy(&arena);
    return s;
}

vx_status vx_need_denoise(vx_job *job, vx_stage_need *need, vx_plan_counts *prepare, vx_plan_counts *evaluation)
{
    vx_device *dev = job->model->planner;
    vx_arena *arena = NULL;
    vx_status s = vx_ok();
    for (int evaluations = 0; evaluations < 2 && !s.code;
         evaluations++) { // without a step, then with one: the difference is a step
        vx_device_plan_reset(dev);
        VX_TRY(vx_arena_create(dev, &arena, 0));
        s = vx_denoise_stage(job, dev, arena, &(vx_denoise_io){ 0 }, evaluations);
        *(evaluations ? evaluation : prepare) = vx_device_plan_counts(dev);
        *need = (vx_stage_need){ vx_arena_high(arena), vx_device_plan_counts(dev).scratch };
        vx_arena_destroy(&arena);
    }
    evaluation->flop -= prepare->flop;
    evaluation->bytes -= prepare->bytes;
    evaluation->weight_bytes -= prepare->weight_bytes;
    evaluation->calls -= prepare->calls;
    return s;
}

vx_status vx_need_audio(vx_model *model, int64_t frames, vx_stage_need *need, vx_plan_counts *counts)
{
    vx_device *dev = model->planner;
    const vx_audio_decoder_config *config = vx_audio_decoder_config_of(model->audio);
    vx_arena *arena = NULL;
    vx_device_plan_reset(dev);
    VX_TRY(vx_arena_create(dev, &arena, 0));
    vx_tensor latent = vx_arena_tensor(arena, VX_F32, VX_SOUND_CHANNELS, config->latent_channels, frames);
    vx_tensor wave = vx_arena_tensor(arena, VX_F32, VX_SOUND_CHANNELS, frames * config->hop);
    vx_status s = vx_audio_decoder_run(model->audio, dev, arena, wave, latent, false);
    *counts = vx_device_plan_counts(dev);
    *need = (vx_stage_need){ vx_arena_high(arena), counts->scratch };
    vx_arena_destroy(&arena);
    return s;
}

vx_tensor vx_delivery_bytes(vx_arena *arena, const int64_t latent[4])
{
    return vx_arena_tensor(arena, VX_U8, VX_DELIVERY_FRAMES, latent[2] * 16, latent[3] * 16, 3);
}

// Tiles that a GPU decodes together: enough rows for its products (25,000 at the released sizes), 1.5 GB of activations.
enum { GPU_TILES = 14 };

vx_video_decode vx_decode_of(const vx_job *job, vx_tensor latent)
{
    return (vx_video_decode){ .latent = latent,
                              .denormalised = job->denormalised,
                              .half = job->request.vae == VX_F16,
                              .exact_rope = job->request.vae_exact_rope,
                              .batch = vx_device_far(job->model->device) ? GPU_TILES : 1 };
}

vx_status vx_need_video(vx_job *job, vx_stage_need *need, vx_plan_counts *counts)
{
    vx_model *model = job->model;
    const int64_t *shape = job->video_shape;
    vx_device *dev = model->planner;
    vx_arena *arena = NULL;
    vx_device_plan_reset(dev);
    VX_TRY(vx_arena_create(dev, &arena, 0));
    vx_tensor latent = vx_arena_take(arena, VX_F32, 4, shape);
    vx_delivery_bytes(arena, shape);
    const vx_video_decode decode = vx_decode_of(job, latent);
    vx_status s = vx_video_decoder_run(model->video, dev, arena, &decode);
    *counts = vx_device_plan_counts(dev);
    *need = (vx_stage_need){ vx_arena_high(arena), counts->scratch };
    vx_arena_destroy(&arena);
    return s;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

// What a limit of the process leaves; `field` of /proc/self/statm is what counts towards it, in pages.
static uint64_t left_of_limit(int limit, int field)
{
    struct rlimit r;
    unsigned long long pages[7] = { 0 };
    char *text = NULL;
    size_t size;
    if (getrlimit(limit, &r) != 0 || r.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
    if (vx_file_read(&text, &size, "/proc/self/statm", 256, VX_ERR_INTERNAL).code) return UINT64_MAX;
    (void)sscanf(text, "%llu %llu %llu %llu %llu %llu %llu", &pages[0], &pages[1], &pages[2], &pages[3], &pages[4], &pages[5],
                 &pages[6]);
    vx_free(text);
    uint64_t used = pages[field] * (uint64_t)sysconf(_SC_PAGESIZE);
    return used < r.rlim_cur ? r.rlim_cur - used : 0;
}

// MemAvailable, and the limits of the control group and of the process if they are lower.
uint64_t vx_memory_available(void)
{
    uint64_t available = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    char *text = NULL;
    size_t size;
    if (!vx_file_read(&text, &size, "/proc/meminfo", 1 << 16, VX_ERR_INTERNAL).code) {
        const char *line = strstr(text, "MemAvailable:");
        unsigned long long kib;
        if (line && sscanf(line, "MemAvailable: %llu kB", &kib) == 1) available = kib * 1024;
        vx_free(text);
    }
    unsigned long long limit = 0, used = 0;
    if (!vx_file_read(&text, &size, "/sys/fs/cgroup/memory.max", 64, VX_ERR_INTERNAL).code) {
        if (sscanf(text, "%llu", &limit) != 1) limit = 0;
        vx_free(text);
    }
    if (limit && !vx_file_read(&text, &size, "/sys/fs/cgroup/memory.current", 64, VX_ERR_INTERNAL).code) {
        if (sscanf(text, "%llu", &used) == 1 && used < limit && limit - used < available) available = limit - used;
        vx_free(text);
    }
    enum { ADDRESS_SPACE = 0, DATA = 5 };
    available = least(available, left_of_limit(RLIMIT_AS, ADDRESS_SPACE));
    return least(available, left_of_limit(RLIMIT_DATA, DATA));
}

static const char *const stage_names[VX_PLAN_STAGES] = {
    [VX_STAGE_TEXT] = "text",
    [VX_STAGE_ENCODE] = "encode",
    [VX_STAGE_DENOISE] = "denoise",
    [VX_STAGE_DECODE_AUDIO] = "decode_audio",
    [VX_STAGE_DECODE_VIDEO] = "decode_video",
};

// Streaming works with a window over the weights: the one in use, the next, and one on its way.
enum { STREAM_WINDOW = 3 };

// `host`: what the stage holds on the host whatever the device; its own memory lies there too, or on the GPU.
static void set_stage(const vx_model *m, vx_stage_plan *stage, vx_component_kind kind, const vx_plan_counts *counts,
                      vx_stage_need need, uint64_t host)
{
    bool far = vx_device_far(m->device);
    uint64_t own = need.arena + need.scratch, largest;
    stage->flop = counts->flop;
    stage->weight_bytes = (uint64_t)counts->weight_bytes;
    stage->host_bytes = host + (far ? 0 : own);
    stage->device_bytes = own;
    stage->device_weights = vx_stage_weights(m, kind, &largest);
    stage->device_least = least(stage->device_weights, STREAM_WINDOW * largest);
}

enum { MOST_TABLES = 1 << 30 }; // bytes of modulation tables that are kept: 110 timesteps of the released model in bf16

static uint64_t tables_before(const vx_model *m)
{
    return vx_denoiser_keep_bytes(m->keep);
}

// Tables lie on the host from the sampling on, in place of the last request's; before it, those of the last one. Which are only
// kept while there is room for them.
static void plan_tables(vx_job *job)
{
    vx_plan *p = &job->plan;
    const uint64_t before = tables_before(job->model), own = job->reuse.table_bytes;
    job->keep_tables = job->has_layout && own <= MOST_TABLES;
    for (int i = 0; i < VX_PLAN_STAGES; i++)
        if (p->stage[i].host_bytes > 0)
            p->stage[i].host_bytes += job->keep_tables && i >= VX_STAGE_DENOISE ? most(own, before) : before;
}

static void settle_host(vx_job *job)
{
    vx_plan *p = &job->plan;
    const vx_resolved *r = &job->request;
    const uint64_t before = tables_before(job->model), own = job->keep_tables ? most(job->reuse.table_bytes, before) : before;
    for (int tried = 0; tried < 2; tried++) {
        p->host_bytes = 0;
        for (int i = 0; i < VX_PLAN_STAGES; i++) p->host_bytes = most(p->host_bytes, p->stage[i].host_bytes);
        // The conditions lie in memory already, and are counted in the stages; so do the last request's tables.
        p->available_bytes =
            r->memory_limit ? r->memory_limit : vx_memory_available() + vx_condition_bytes(job) + tables_before(job->model);
        if (p->host_bytes <= p->available_bytes || tried) return;
        job->keep_tables = false;
        if (job->model->keep) vx_denoiser_keep_drop(job->model->keep);
        for (int i = 0; i < VX_PLAN_STAGES; i++)
            if (p->stage[i].host_bytes > 0) p->stage[i].host_bytes -= i >= VX_STAGE_DENOISE ? own : before;
    }
}

static vx_status check_memory(const vx_plan *p, uint64_t limit)
{
    if (p->host_bytes <= p->available_bytes) return vx_ok();
    int worst = 0;
    for (int i = 1; i < VX_PLAN_STAGES; i++)
        if (p->stage[i].host_bytes > p->stage[worst].host_bytes) worst = i;
    char need[24], have[24];
    return vx_remedy(vx_fail(VX_ERR_MEMORY_PLAN, "stage %s needs %s of memory (%llu bytes) and %s %s (%llu bytes)",
                             p->stage[worst].name, vx_bytes_text(need, p->host_bytes), (unsigned long long)p->host_bytes,
                             limit ? "the limit is" : "free are", vx_bytes_text(have, p->available_bytes),
                             (unsigned long long)p->available_bytes),
                     worst == VX_STAGE_ENCODE ? "ask for a smaller --reference-short-edge or --canvas-short-edge, or free memory"
                                              : "ask for a smaller --size or fewer --frames, or free memory");
}

static uint64_t device_available(const vx_model *m)
{
    const uint64_t bytes = vx_device_memory_of(m->device).free + vx_device_weights(m->device).resident;
    return bytes - least(bytes, VX_DEVICE_RESERVE);
}

static vx_status check_device(const vx_model *m, vx_plan *p)
{
    VX_TRY(vx_device_sync(m->device)); // a lost device has nothing free: the loss is the reason, not the size
    p->device_available_bytes = device_available(m);
    if (p->device_least_bytes <= p->device_available_bytes) return vx_ok();
    vx_device_shed(m->device); // recordings are the driver's memory and not counted as free
    p->device_available_bytes = device_available(m);
    if (p->device_least_bytes <= p->device_available_bytes) return vx_ok();
    int worst = 0;
    for (int i = 1; i < VX_PLAN_STAGES; i++)
        if (p->stage[i].device_bytes + p->stage[i].device_least > p->stage[worst].device_bytes + p->stage[worst].device_least)
            worst = i;
    char need[24], have[24];
    return vx_remedy(
        vx_fail(VX_ERR_MEMORY_PLAN,
                "stage %s needs at least %s of device memory (%llu bytes, of which %llu for weights that pass by) and free "
                "are %s (%llu bytes)",
                p->stage[worst].name, vx_bytes_text(need, p->device_least_bytes), (unsigned long long)p->device_least_bytes,
                (unsigned long long)p->stage[worst].device_least, vx_bytes_text(have, p->device_available_bytes),
                (unsigned long long)p->device_available_bytes),
        "ask for a smaller --size or fewer --frames, free device memory, or use --device cpu");
}

uint64_t vx_condition_bytes(const vx_job *job)
{
    uint64_t bytes = 0;
    for (int i = 0; i < job->conditions.count; i++) {
        const vx_prepared *p = &job->conditions.item[i];
        bytes += (uint64_t)(p->frames * p->height * p->width * 3) + (uint64_t)p->samples * VX_SOUND_CHANNELS * sizeof(float);
    }
    return bytes;
}

// The encoding stage: conditions one after the other, so the largest counts; their samples lie on the host meanwhile.
static vx_status plan_encode(vx_job *job, uint64_t held, uint64_t *latents, uint64_t *folded)
{
    vx_stage_plan *stage = &job->plan.stage[VX_STAGE_ENCODE];
    bool far = vx_device_far(job->model->device);
    uint64_t host = 0, own = 0, largest;
    *latents = *folded = 0;
    for (int i = 0; i < job->conditions.count; i++) {
        const vx_prepared *p = &job->conditions.item[i];
        const vx_condition_rows *rows = &job->rows[i];
        vx_stage_need need;
        vx_plan_counts counts;
        uint64_t latent = (uint64_t)(rows->latent_frames * rows->latent_height * rows->latent_width) *
                          (uint64_t)job->video_shape[0] * sizeof(float);
        *latents += latent + (uint64_t)(rows->audio_frames * VX_SOUND_CHANNELS * job->audio_shape[1]) * sizeof(float);
        if (p->pixels) {
            VX_TRY(vx_need_encode_video(job->model, p->encoded_frames, p->height, p->width, &need, &counts));
            stage->flop += counts.flop;
            stage->weight_bytes = (uint64_t)counts.weight_bytes;
            own = most(own, need.arena + need.scratch);
            host = most(host, latent + (far ? 0 : need.arena + need.scratch));
        }
        if (p->sound) {
            size_t kept, passing;
            VX_TRY(vx_audio_encoder_fold_bytes(job->model->audio_encoder, job->model->device, &kept, &passing));
            VX_TRY(vx_need_encode_sound(job->model, VX_SOUND_CHANNELS, p->samples, &need, &counts));
            stage->flop += counts.flop;
            *folded = kept;
            own = most(own, need.arena + need.scratch + kept);
            host = most(host, most(passing, far ? 0 : need.arena + need.scratch));
        }
    }
    if (!job->conditions.count) return vx_ok();
    stage->host_bytes = host + held + vx_condition_bytes(job) + *latents + (far ? 0 : *folded);
    stage->device_bytes = own;
    stage->device_weights = vx_stage_weights(job->model, VX_VIDEO_VAE, &largest);
    stage->device_least = least(stage->device_weights, STREAM_WINDOW * largest);
    return vx_ok();
}

// The device's setting is the last one's that asked: whoever plans or computes for a job asks first.
bool vx_job_parts(const vx_job *job)
{
    const bool parts = job->request.act != VX_F32;
    vx_device_parts(job->model->device, parts);
    return parts && vx_device_has_parts(job->model->device);
}

vx_status vx_job_plan(vx_job *job)
{
    vx_model *m = job->model;
    (void)vx_job_parts(job);
    vx_plan *p = &job->plan;
    const vx_resolved *r = &job->request;
    bool far = vx_device_far(m->device);
    *p = (vx_plan){ VX_INIT(vx_plan), .width = (int)job->video_shape[3] * 16, .height = (int)job->video_shape[2] * 16,
                    .latent_frames = job->video_shape[1], .audio_frames = job->audio_shape[2] };
    uint64_t held = ((uint64_t)vx_tensor_count(vx_tensor_make(NULL, VX_F32, 4, job->video_shape)) +
                     (uint64_t)vx_tensor_count(vx_tensor_make(NULL, VX_F32, 3, job->audio_shape))) *
                    sizeof(float);
    uint64_t made = 0; // folded weights: they stay, on the host or on the device
    vx_stage_need need;
    vx_plan_counts counts, step;
    if (job->has_layout) {
        const vx_layout *l = &job->layout;
        p->num_frames = r->frames;
        p->evaluations = r->evaluations;
        p->sigma_points = r->sigmas.count;
        p->text_rows = l->text_rows, p->condition_rows = l->condition_rows, p->audio_rows = l->audio_rows,
        p->video_rows = l->video_rows, p->rows = l->rows;
        uint64_t embeds = (uint64_t)job->text_rows * (uint64_t)vx_denoiser_config_of(m->denoiser)->text_dim *
                          (uint64_t)vx_dtype_bits(r->act) / 8;
        uint64_t layout = (uint64_t)l->rows * (sizeof *l->tag + 3 * sizeof *l->position + sizeof *l->clock);
        if (m->language && !job->embeds) {
            VX_TRY_IN(vx_need_text(job, &need, &counts), "plan of text");
            set_stage(m, &p->stage[VX_STAGE_TEXT], VX_TEXT_ENCODER, &counts, need, embeds + layout);
        }
        held += embeds + layout + vx_record_bytes(job);
        uint64_t latents, folded;
        VX_TRY_IN(plan_encode(job, held, &latents, &folded), "plan of encode");
        if (p->stage[VX_STAGE_TEXT].flop > 0) p->stage[VX_STAGE_TEXT].host_bytes += vx_condition_bytes(job) + vx_tower_room(job);
        held += 2 * latents + (far ? 0 : folded); // the job's and the cache's
        made = folded;
        if (!m->adapters.loaded) held += m->adapters.bytes; // they stay on the weights
        VX_TRY_IN(vx_need_denoise(job, &need, &counts, &step), "plan of denoise");
        counts.flop += step.flop * r->evaluations;
        set_stage(m, &p->stage[VX_STAGE_DENOISE], VX_TRANSFORMER, &counts, need, held + latents); // and noised
        p->stage[VX_STAGE_DENOISE].device_bytes += made;
    }
    if (!p->num_frames && job->video_shape[1]) p->num_frames = vx_decoded_frames(job->video_shape[1]);
    p->output_samples = (uint64_t)((double)p->num_frames * 32000 / VX_NATIVE_FPS + 0.5);
    for (int i = 0; i < VX_PLAN_STAGES; i++) p->stage[i].name = stage_names[i];
    if (!r->latents_only && m->audio && job->audio_shape[2]) {
        VX_TRY_IN(vx_need_audio(m, job->audio_shape[2], &need, &counts), "plan of decode_audio");
        size_t folded, passing;
        VX_TRY(vx_audio_decoder_fold_bytes(m->audio, m->device, &folded, &passing));
        uint64_t wave = (uint64_t)job->audio_shape[2] * (uint64_t)vx_audio_decoder_config_of(m->audio)->hop * VX_SOUND_CHANNELS *
                        sizeof(float);
        // Weights are folded before the stage's own memory is taken; the sound is gone before the picture begins.
        uint64_t run = far ? wave : need.arena + need.scratch + wave;
        set_stage(m, &p->stage[VX_STAGE_DECODE_AUDIO], VX_AUDIO_VAE, &counts, need, 0);
        p->stage[VX_STAGE_DECODE_AUDIO].host_bytes = (run > passing ? run : passing) + held + (far ? 0 : folded);
        held += far ? 0 : folded;
        made += folded;
        p->stage[VX_STAGE_DECODE_AUDIO].device_bytes += made;
    }
    if (!r->latents_only && m->video && job->video_shape[1]) {
        VX_TRY_IN(vx_need_video(job, &need, &counts), "plan of decode_video");
        uint64_t frames = (uint64_t)p->width * (uint64_t)p->height * 3 * 2 * VX_PIECE_FRAMES; // on their way to the encoder
        uint64_t movie = vx_movie_memory(&(vx_movie_params){ .width = p->width,
                                                             .height = p->height,
                                                             .frames = p->num_frames,
                                                             .pixel_format = "yuv420p",
                                                             .audio_codec = job->audio_shape[2] ? "aac" : NULL,
                                                             .audio_bitrate = 192000,
                                                             .sample_rate = 32000,
                                                             .samples = (int64_t)p->output_samples,
                                                             .threads = m->context->threads });
        set_stage(m, &p->stage[VX_STAGE_DECODE_VIDEO], VX_VIDEO_VAE, &counts, need, held + frames + movie);
        p->stage[VX_STAGE_DECODE_VIDEO].device_bytes += made;
    }
    for (int i = 0; i < VX_PLAN_STAGES; i++) {
        p->flop += p->stage[i].flop;
        const vx_stage_plan *stage = &p->stage[i];
        p->device_bytes = most(p->device_bytes, stage->device_bytes + stage->device_weights);
        p->device_least_bytes = most(p->device_least_bytes, stage->device_bytes + stage->device_least);
    }
    plan_tables(job);
    settle_host(job);
    VX_TRY(check_memory(p, r->memory_limit));
    return far ? check_device(m, p) : vx_ok();
}
