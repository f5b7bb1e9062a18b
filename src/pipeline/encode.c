// Conditions through the encoders: pictures and videos to normalised latents as the reference samples them, sound to the
// posterior's mean. Once per set of conditions; several clips share the result.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "device/operators.h"
#include "media/resize.h"
#include "media/sound.h"
#include "pipeline/internal.h"
#include "pipeline/source.h"
#include "weights/safetensors.h"

// ---- one condition ----
// On the plan device nothing is read and nothing written: pixels and results may be NULL.
typedef struct posterior {
    float *mean, *logvar; // [24, t, h, w]
    int64_t shape[4];
} posterior;

static void posterior_shape(const vx_model *m, int64_t frames, int64_t height, int64_t width, int64_t shape[4])
{
    const int64_t s[4] = { vx_video_encoder_config_of(m->video_encoder)->latent_channels, vx_encoded_frames(frames), height / 16,
                           width / 16 };
    memcpy(shape, s, sizeof s);
}

typedef struct pixels {
    const uint8_t *rgb;
    int64_t frames, height, width;
} pixels;

static vx_status video_stage(const vx_model *m, vx_device *dev, vx_arena *arena, const pixels *in, posterior *out,
                             void (*progress)(void *, int64_t, int64_t), void *user)
{
    vx_tensor mean = vx_arena_take(arena, VX_F32, 4, out->shape), logvar = vx_arena_take(arena, VX_F32, 4, out->shape);
    VX_TRY(vx_video_encoder_run(m->video_encoder, dev, arena,
                                &(vx_video_encode){ .pixels = in->rgb,
                                                    .frames = in->frames,
                                                    .height = in->height,
                                                    .width = in->width,
                                                    .mean = mean,
                                                    .logvar = logvar,
                                                    .progress = progress,
                                                    .user = user }));
    VX_TRY(vx_download(dev, out->mean, mean));
    return vx_download(dev, out->logvar, logvar);
}

static vx_status sound_stage(const vx_model *m, vx_device *dev, vx_arena *arena, const float *sound, int64_t channels,
                             int64_t samples, float *mean)
{
    const vx_audio_encoder_config *c = vx_audio_encoder_config_of(m->audio_encoder);
    vx_tensor wave = vx_arena_tensor(arena, VX_F32, channels, samples);
    vx_tensor out = vx_arena_tensor(arena, VX_F32, channels, c->latent_channels, vx_ceil_div(samples, c->hop));
    VX_TRY(vx_upload(dev, wave, sound));
    VX_TRY(vx_audio_encoder_run(m->audio_encoder, dev, arena, out, wave));
    return vx_download(dev, mean, out);
}

vx_status vx_need_encode_video(vx_model *m, int64_t frames, int64_t height, int64_t width, vx_stage_need *need,
                               vx_plan_counts *counts)
{
    vx_device *dev = m->planner;
    vx_arena *arena = NULL;
    posterior p = { 0 };
    posterior_shape(m, frames, height, width, p.shape);
    vx_device_plan_reset(dev);
    VX_TRY(vx_arena_create(dev, &arena, 0));
    vx_status s = video_stage(m, dev, arena, &(pixels){ NULL, frames, height, width }, &p, NULL, NULL);
    *counts = vx_device_plan_counts(dev);
    *need = (vx_stage_need){ vx_arena_high(arena), counts->scratch };
    vx_arena_destroy(&arena);
    return s;
}

vx_status vx_need_encode_sound(vx_model *m, int64_t channels, int64_t samples, vx_stage_need *need, vx_plan_counts *counts)
{
    vx_device *dev = m->planner;
    vx_arena *arena = NULL;
    vx_device_plan_reset(dev);
    VX_TRY(vx_arena_create(dev, &arena, 0));
    vx_status s = sound_stage(m, dev, arena, NULL, channels, samples, NULL);
    *counts = vx_device_plan_counts(dev);
    *need = (vx_stage_need){ vx_arena_high(arena), counts->scratch };
    vx_arena_destroy(&arena);
    return s;
}

static vx_status encode_pixels(vx_model *m, const pixels *in, posterior *out, void (*progress)(void *, int64_t, int64_t),
                               void *user)
{
    vx_device *dev = m->device;
    vx_stage_need need;
    vx_plan_counts counts;
    vx_arena *arena = NULL;
    posterior_shape(m, in->frames, in->height, in->width, out->shape);
    size_t bytes = vx_tensor_bytes(vx_tensor_make(NULL, VX_F32, 4, out->shape));
    VX_TRY(vx_need_encode_video(m, in->frames, in->height, in->width, &need, &counts));
    out->mean = vx_alloc(bytes);
    out->logvar = vx_alloc(bytes);
    vx_status s = out->mean && out->logvar ? vx_stage_enter(m, VX_VIDEO_VAE, &need, &arena) : vx_no_memory("for a latent");
    if (!s.code) s = video_stage(m, dev, arena, in, out, progress, user);
    vx_stage_leave(m, &arena);
    return s;
}

static vx_status encode_sound(vx_model *m, const float *sound, int64_t channels, int64_t samples, float **mean)
{
    vx_device *dev = m->device;
    const vx_audio_encoder_config *c = vx_audio_encoder_config_of(m->audio_encoder);
    vx_stage_need need;
    vx_plan_counts counts;
    vx_arena *arena = NULL;
    VX_TRY(vx_audio_encoder_fold(m->audio_encoder, dev));
    VX_TRY(vx_need_encode_sound(m, channels, samples, &need, &counts));
    *mean = vx_alloc_array((size_t)(channels * c->latent_channels * vx_ceil_div(samples, c->hop)), sizeof **mean);
    vx_status s = *mean ? vx_stage_enter(m, VX_AUDIO_VAE, &need, &arena) : vx_no_memory("for a latent");
    if (!s.code) s = sound_stage(m, dev, arena, sound, channels, samples, *mean);
    vx_stage_leave(m, &arena);
    return s;
}

vx_status vx_encode_picture_once(vx_model *m, const uint8_t *rgb, int64_t height, int64_t width)
{
    posterior out = { 0 };
    vx_status s = encode_pixels(m, &(pixels){ rgb, 1, height, width }, &out, NULL, NULL);
    vx_free(out.mean);
    vx_free(out.logvar);
    return s;
}

vx_status vx_encode_sound_once(vx_model *m, const float *sound, int64_t samples)
{
    float *mean = NULL;
    vx_status s = encode_sound(m, sound, VX_SOUND_CHANNELS, samples, &mean);
    vx_free(mean);
    return s;
}

// ---- the conditions of a job ----
static void tiles_done(void *user, int64_t done, int64_t total)
{
    vx_job_progress(user, "encode", VX_STAGE_ENCODE, done, total);
}

static vx_status encode_one(vx_job *job, vx_prepared *p)
{
    vx_model *m = job->model;
    if (p->pixels) {
        posterior out = { 0 };
        vx_status s = encode_pixels(m, &(pixels){ p->pixels, p->encoded_frames, p->height, p->width }, &out, tiles_done, job);
        int64_t each = out.shape[1] * out.shape[2] * out.shape[3];
        if (!s.code && !(p->latent = vx_alloc((size_t)(out.shape[0] * each) * sizeof(float)))) s = vx_no_memory("for a latent");
        if (!s.code) {
            memcpy(p->latent_shape, out.shape, sizeof out.shape);
            vx_video_condition(m->video_encoder, out.mean, out.logvar, each, p->latent);
        }
        vx_free(out.mean);
        vx_free(out.logvar);
        VX_TRY_IN(s, "%s", p->path);
    }
    if (!p->sound) return vx_ok();
    const vx_audio_encoder_config *c = vx_audio_encoder_config_of(m->audio_encoder);
    VX_TRY_IN(encode_sound(m, p->sound, VX_SOUND_CHANNELS, p->samples, &p->audio_latent), "%s", p->path);
    p->audio_frames = vx_ceil_div(p->samples, c->hop);
    for (int64_t i = 0; i < VX_SOUND_CHANNELS * c->latent_channels * p->audio_frames; i++) {
        int64_t channel = i / p->audio_frames % c->latent_channels;
        p->audio_latent[i] = (p->audio_latent[i] - c->latents_mean[channel]) / c->latents_std[channel];
    }
    return vx_ok();
}

// The latents of the last set of conditions stay with the model, for the next clip that has the same.
static vx_status take_cached(vx_job *job, bool *taken)
{
    const vx_condition_cache *cache = &job->model->conditions;
    *taken =
        cache->count == job->conditions.count && cache->parts == vx_job_parts(job) && !strcmp(cache->key, job->conditions.key);
    for (int i = 0; *taken && i < cache->count; i++) {
        vx_prepared *p = &job->conditions.item[i];
        const vx_cached_latent *c = &cache->item[i];
        memcpy(p->latent_shape, c->shape, sizeof c->shape);
        p->audio_frames = c->audio_frames;
        if (c->latent_bytes && !(p->latent = vx_alloc(c->latent_bytes))) return vx_no_memory("for a latent");
        if (c->audio_bytes && !(p->audio_latent = vx_alloc(c->audio_bytes))) return vx_no_memory("for a latent");
        if (c->latent_bytes) memcpy(p->latent, c->latent, c->latent_bytes);
        if (c->audio_bytes) memcpy(p->audio_latent, c->audio, c->audio_bytes);
    }
    return vx_ok();
}

void vx_condition_cache_free(vx_condition_cache *cache)
{
    for (int i = 0; i < cache->count; i++) {
        vx_free(cache->item[i].latent);
        vx_free(cache->item[i].audio);
    }
    vx_free(cache->item);
    *cache = (vx_condition_cache){ 0 };
}

static void *duplicate(const void *data, size_t bytes)
{
    void *copy = data && bytes ? vx_alloc(bytes) : NULL;
    if (copy) memcpy(copy, data, bytes);
    return copy;
}

// A cache that finds no memory stays empty: the next clip encodes again.
static void keep(vx_job *job)
{
    vx_condition_cache *cache = &job->model->conditions;
    vx_condition_cache_free(cache);
    cache->item = vx_alloc_array((size_t)job->conditions.count, sizeof *cache->item);
    if (!cache->item) return;
    cache->count = job->conditions.count;
    cache->parts = vx_job_parts(job);
    bool whole = true;
    for (int i = 0; i < cache->count; i++) {
        const vx_prepared *p = &job->conditions.item[i];
        vx_cached_latent *c = &cache->item[i];
        const int64_t *s = p->latent_shape;
        c->latent_bytes = p->latent ? (size_t)(s[0] * s[1] * s[2] * s[3]) * sizeof(float) : 0;
        c->audio_bytes =
            p->audio_latent ? (size_t)(VX_SOUND_CHANNELS *
                                       vx_audio_encoder_config_of(job->model->audio_encoder)->latent_channels * p->audio_frames) *
                                  sizeof(float)
                            : 0;
        memcpy(c->shape, s, sizeof c->shape);
        c->audio_frames = p->audio_frames;
        c->latent = duplicate(p->latent, c->latent_bytes);
        c->audio = duplicate(p->audio_latent, c->audio_bytes);
        whole = whole && (c->latent || !c->latent_bytes) && (c->audio || !c->audio_bytes);
    }
    if (whole) memcpy(cache->key, job->conditions.key, sizeof cache->key);
    else vx_condition_cache_free(cache);
}

bool vx_has_samples(const vx_job *job)
{
    for (int i = 0; i < job->conditions.count; i++)
        if (job->conditions.item[i].pixels || job->conditions.item[i].sound) return true;
    return false;
}

// Of a run that failed before all was encoded.
static void drop_latents(vx_job *job)
{
    for (int i = 0; i < job->conditions.count; i++) {
        vx_prepared *p = &job->conditions.item[i];
        vx_free(p->latent);
        vx_free(p->audio_latent);
        p->latent = p->audio_latent = NULL;
    }
}

vx_status vx_encode_conditions(vx_job *job)
{
    if (!vx_has_samples(job)) return vx_ok();
    bool taken;
    double began = vx_clock_s();
    drop_latents(job);
    VX_TRY(take_cached(job, &taken));
    vx_job_progress(job, "encode", VX_STAGE_ENCODE, 0, job->conditions.count);
    for (int i = 0; !taken && i < job->conditions.count; i++) VX_TRY(encode_one(job, &job->conditions.item[i]));
    job->conditions_reused = taken;
    if (!taken) keep(job);
    for (int i = 0; i < job->conditions.count; i++) { // the samples have done their work
        vx_free(job->conditions.item[i].pixels);
        vx_free(job->conditions.item[i].sound);
        job->conditions.item[i].pixels = NULL;
        job->conditions.item[i].sound = NULL;
    }
    job->timings.encode = vx_clock_s() - began;
    return vx_ok();
}

// ---- vortex encode ----
static int64_t to_32(int64_t side)
{
    return (int64_t)fmax(32, 32 * nearbyint((double)side / 32));
}

typedef struct frames {
    uint8_t *rgb;
    int64_t count, height, width;
    vx_status status;
} frames;

static bool take_frame(void *user, int64_t slot, int64_t count, const uint8_t *rgb, int64_t width, int64_t height)
{
    frames *f = user;
    size_t bytes = (size_t)(f->width * f->height) * 3;
    f->status = vx_resize(f->rgb + (size_t)slot * bytes, f->width, f->height, rgb, width, height, VX_RESIZE_LANCZOS);
    for (int64_t i = 1; i < count && !f->status.code; i++)
        memcpy(f->rgb + (size_t)(slot + i) * bytes, f->rgb + (size_t)slot * bytes, bytes);
    return !f->status.code;
}

enum { MOST_FRAMES = 362 };

// What encoding so many frames takes beside the model, against what there is.
static vx_status check_room(vx_model *m, const char *input, int64_t count, int64_t height, int64_t width, uint64_t held)
{
    vx_stage_need need;
    vx_plan_counts counts;
    int64_t shape[4];
    posterior_shape(m, count, height, width, shape);
    VX_TRY(vx_need_encode_video(m, count, height, width, &need, &counts));
    uint64_t bytes = held + need.arena + need.scratch + 2 * vx_tensor_bytes(vx_tensor_make(NULL, VX_F32, 4, shape)),
             available = vx_memory_available();
    if (bytes <= available) return vx_ok();
    return vx_remedy(vx_fail(VX_ERR_MEMORY_PLAN, "%s: encoding needs %llu bytes of memory and free are %llu", input,
                             (unsigned long long)bytes, (unsigned long long)available),
                     "give a smaller picture or a shorter clip");
}

// Frames that the file may have, from its headers: a clip's own seconds are measured there, not believed.
static int64_t frames_at_most(const vx_source *source)
{
    const vx_input_facts *f = vx_source_facts(source);
    if (f->kind != VX_INPUT_VIDEO) return 1;
    return f->video_s > 0 ? vx_min_i64(MOST_FRAMES, (int64_t)ceil(f->video_s * VX_NATIVE_FPS) + 2) : MOST_FRAMES;
}

static vx_status read_frames(vx_model *m, const vx_source *source, const char *input, frames *out)
{
    const vx_input_facts *f = vx_source_facts(source);
    int64_t most = frames_at_most(source);
    out->width = to_32(f->width);
    out->height = to_32(f->height);
    if (out->width > 4096 || out->height > 4096)
        return vx_fail(VX_ERR_RANGE, "%s: %lldx%lld is too large: at most 4096 a side", input, (long long)f->width,
                       (long long)f->height);
    size_t each = (size_t)(out->width * out->height) * 3;
    VX_TRY(check_room(m, input, most, out->height, out->width, (uint64_t)most * each));
    out->rgb = vx_alloc_array((size_t)most, each);
    VX_NEED_MEMORY(out->rgb, "pixels");
    if (f->kind == VX_INPUT_VIDEO) {
        VX_TRY(vx_source_each_frame(source, most, take_frame, out, &out->count));
        VX_TRY(out->status);
        if (!out->count) return vx_fail(VX_ERR_RANGE, "%s: the video is shorter than a frame of 1/24 s", input);
        return vx_ok();
    }
    uint8_t *rgb = NULL;
    int64_t width, height;
    VX_TRY(vx_source_picture(source, &rgb, &width, &height));
    out->count = 1;
    vx_status s = vx_resize(out->rgb, out->width, out->height, rgb, width, height, VX_RESIZE_LANCZOS);
    vx_free(rgb);
    return s;
}

static vx_status save_posterior(const posterior *p, const char *path, bool replace)
{
    vx_safetensors_tensor t[2] = { { "mean", VX_F32, 4, { 0 }, p->mean }, { "logvar", VX_F32, 4, { 0 }, p->logvar } };
    for (int i = 0; i < 2; i++) memcpy(t[i].shape, p->shape, sizeof p->shape);
    return vx_safetensors_write(path, replace, t, 2, (vx_safetensors_pair[]){ { "vortex_version", vx_version() } }, 1);
}

// Pixels that are encoded as they lie in their file.
static vx_status check_pixels(vx_model *m, const vx_source *source, const char *input, const char *kind)
{
    const vx_input_facts *f = vx_source_facts(source);
    if (f->height % 16 || f->width % 16 || f->height < 32 || f->width < 32)
        return vx_fail_field(VX_ERR_RANGE, kind, "%s: %lldx%lld: each side must be a multiple of 16, at least 32", input,
                             (long long)f->width, (long long)f->height);
    return check_room(m, input, vx_source_frames(source), f->height, f->width, 0);
}

static vx_status encode_frames_to(vx_model *m, const vx_source *source, const char *input, const char *kind, const char *path,
                                  bool replace)
{
    frames f = { 0 };
    posterior p = { 0 };
    bool as_is = !strcmp(kind, "pixels");
    vx_input_kind there = vx_source_facts(source)->kind;
    if (there == VX_INPUT_SOUND || (!strcmp(kind, "image") && there != VX_INPUT_PICTURE) ||
        (!strcmp(kind, "video") && there != VX_INPUT_VIDEO))
        return vx_fail_field(VX_ERR_INPUT_FORMAT, kind, "%s: this holds no %s", input, as_is ? "pixels" : kind);
    vx_status s = vx_model_encoders(m, false, true, false);
    if (!s.code && as_is) {
        const vx_input_facts *facts = vx_source_facts(source);
        const pixels own = { vx_source_pixels(source), vx_source_frames(source), facts->height, facts->width };
        s = check_pixels(m, source, input, kind);
        if (!s.code) s = encode_pixels(m, &own, &p, NULL, NULL);
    } else if (!s.code) {
        s = read_frames(m, source, input, &f);
        if (!s.code) s = encode_pixels(m, &(pixels){ f.rgb, f.count, f.height, f.width }, &p, NULL, NULL);
    }
    if (!s.code) s = save_posterior(&p, path, replace);
    vx_free(f.rgb);
    vx_free(p.mean);
    vx_free(p.logvar);
    return s;
}

static vx_status encode_sound_to(vx_model *m, const vx_source *source, const char *input, const char *kind, const char *path,
                                 bool replace)
{
    float *raw = NULL, *sound = NULL, *mean = NULL;
    int64_t channels = 0, samples = 0, rate = 0, count = 0;
    if (!vx_source_facts(source)->sound) return vx_fail_field(VX_ERR_INPUT_FORMAT, kind, "%s: this holds no sound", input);
    VX_TRY(vx_model_encoders(m, false, false, true));
    const vx_audio_encoder_config *c = vx_audio_encoder_config_of(m->audio_encoder);
    bool as_is = !strcmp(kind, "waveform");
    VX_TRY(vx_source_sound(source, &raw, &channels, &samples, &rate, 0));
    vx_status s = vx_ok();
    if (as_is && rate != c->sample_rate)
        s = vx_fail_field(VX_ERR_INPUT_FORMAT, kind, "%s: sample_rate %lld, expected %lld", input, (long long)rate,
                          (long long)c->sample_rate);
    count = as_is ? samples : vx_resampled_count(samples, rate, c->sample_rate);
    if (!s.code && !(sound = vx_alloc_array((size_t)(count * channels), sizeof *sound))) s = vx_no_memory("for a sound");
    for (int64_t i = 0; i < channels && !s.code; i++)
        s = vx_resample(sound + i * count, raw + i * samples, samples, rate, as_is ? rate : c->sample_rate);
    if (!s.code) s = encode_sound(m, sound, channels, count, &mean);
    if (!s.code) {
        vx_safetensors_tensor t = { "mean", VX_F32, 3, { channels, c->latent_channels, vx_ceil_div(count, c->hop) }, mean };
        s = vx_safetensors_write(path, replace, &t, 1, (vx_safetensors_pair[]){ { "vortex_version", vx_version() } }, 1);
    }
    vx_free(raw);
    vx_free(sound);
    vx_free(mean);
    return s;
}

// What is wrong with the input is told of its field.
static vx_status of_input(const char *kind, vx_status s)
{
    if (s.code / 1000 == VX_ERR_INPUT_OPEN / 1000 || s.code == VX_ERR_RANGE)
        if (!s.field[0]) snprintf(s.field, sizeof s.field, "%s", kind);
    return s;
}

vx_status vx_encode(vx_model *model, const vx_encode_params *params, const char *path, bool replace)
{
    vx_encode_params p = { 0 };
    if (!params || !params->struct_size || params->struct_size > sizeof p)
        return vx_fail(VX_ERR_USAGE, "the parameters were not initialised with VX_INIT");
    memcpy(&p, params, params->struct_size);
    const struct {
        const char *kind, *input;
    } given[] = {
        { "image", p.image }, { "video", p.video }, { "audio", p.audio }, { "pixels", p.pixels }, { "waveform", p.waveform }
    };
    int which = -1;
    for (int i = 0; i < 5; i++) {
        if (!given[i].input) continue;
        if (which >= 0)
            return vx_fail_field(VX_ERR_CONFLICT, given[i].kind, "%s and %s exclude each other", given[which].kind,
                                 given[i].kind);
        which = i;
    }
    if (which < 0) return vx_fail_field(VX_ERR_REQUIRED, "image", "one input is needed: image, video, audio, pixels or waveform");
    if (!path || !*path) return vx_fail_field(VX_ERR_REQUIRED, "save_tensors", "no output was named (--save-tensors FILE)");
    vx_source *source = NULL;
    VX_TRY(of_input(given[which].kind, which >= 3 ? vx_source_open_samples(&source, given[which].input)
                                                  : vx_source_open(&source, given[which].input)));
    bool sound = which == 2 || which == 4;
    vx_status s = sound ? encode_sound_to(model, source, given[which].input, given[which].kind, path, replace)
                        : encode_frames_to(model, source, given[which].input, given[which].kind, path, replace);
    vx_source_close(&source);
    return of_input(given[which].kind, s);
}
