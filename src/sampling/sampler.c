// The sampling loop: one evaluation of the network per step and a blend of states with host scalars. Nothing is allocated
// after the first step begins.
#include "sampling/sampler.h"

#include "device/operators.h"

#include <math.h>

// One stream's tensors: the state that is stepped, what the network sees, its velocity (which becomes the denoised
// estimate in place) and the estimate of the step before.
typedef struct stream {
    vx_tensor state, seen, velocity, before;
} stream;

// ---- the official step ----

// In exactly the reference's f32 operations (specification 6.1): it recovers sigma from the timestep, and that rounding is
// part of the result.
static vx_status official_step(vx_device *dev, const stream *s, float sigma, float next)
{
    float t = 1 - sigma;
    vx_tensor x0 = s->velocity;
    VX_TRY(vx_blend(dev, x0, (vx_term[]){ { 1, s->state }, { 1 - t, s->velocity } }, 2));
    float r = next / sigma;
    return vx_blend(dev, s->state, (vx_term[]){ { r, s->state }, { 1 - r, x0 } }, 2);
}

static vx_status plain_step(vx_device *dev, const stream *s, float sigma, float next)
{
    return vx_blend(dev, s->state, (vx_term[]){ { 1, s->state }, { sigma - next, s->velocity } }, 2);
}

static vx_status run_official(vx_device *dev, const vx_sampler_params *p, stream *video, stream *audio, vx_velocity_fn velocity,
                              void *user)
{
    const vx_sigmas *sigmas = p->sigmas;
    vx_status (*step)(vx_device *, const stream *, float, float) = p->step == VX_STEP_PLAIN ? plain_step : official_step;
    for (int k = 0; k + 1 < sigmas->count; k++) {
        VX_TRY(velocity(user, k, video->state, audio->state, video->velocity, audio->velocity));
        VX_TRY(step(dev, video, sigmas->video[k], sigmas->video[k + 1]));
        VX_TRY(step(dev, audio, sigmas->audio[k], sigmas->audio[k + 1]));
    }
    return vx_ok();
}

// ---- ComfyUI's samplers ----

typedef struct coefficients {
    float state, denoised, before; // x = state*x + denoised*D + before*D_previous
} coefficients;

// Specification 6.5, in f64 on the f32 sigmas. res_multistep is the exponential multistep method of order 2 (arXiv
// 2308.02157); without a previous estimate, and down to zero, it is Euler's step.
static coefficients step_coefficients(vx_sampler sampler, const float *sigma, int k)
{
    double s = sigma[k], next = sigma[k + 1];
    if (sampler == VX_SAMPLER_EULER || k == 0 || next == 0) return (coefficients){ (float)(next / s), (float)(1 - next / s), 0 };
    double h = log(s / next);
    double c2 = -log((double)sigma[k - 1] / s) / h;
    double phi1 = expm1(-h) / -h;
    double phi2 = (phi1 - 1) / -h;
    double b1 = phi1 - phi2 / c2, b2 = phi2 / c2;
    if (isnan(b1)) b1 = 0;
    if (isnan(b2)) b2 = 0;
    return (coefficients){ (float)exp(-h), (float)(h * b1), (float)(h * b2) };
}

static vx_status comfyui_step(vx_device *dev, const stream *s, coefficients c)
{
    vx_term terms[] = { { c.state, s->state }, { c.denoised, s->velocity }, { c.before, s->before } };
    return vx_blend(dev, s->state, terms, c.before == 0 ? 2 : 3);
}

static void swap(vx_tensor *a, vx_tensor *b)
{
    vx_tensor t = *a;
    *a = *b;
    *b = t;
}

// ComfyUI packs both streams into one vector on the video's clock. For audio to be an ordinary flow variable there it is
// carried as y = (sigma_video/sigma_audio)*x, whose clean value is scale*x0 (specification 6.4). The model always sees x.
static vx_status run_comfyui(vx_device *dev, const vx_sampler_params *p, stream *video, stream *audio, vx_velocity_fn velocity,
                             void *user)
{
    const vx_sigmas *sigmas = p->sigmas;
    const float scale = (float)((double)p->shift / (double)p->audio_shift);
    // A list that begins below 1 begins with less noise.
    if (sigmas->video[0] != 1) {
        VX_TRY(vx_blend(dev, video->state, &(vx_term){ sigmas->video[0], video->state }, 1));
        VX_TRY(vx_blend(dev, audio->state, &(vx_term){ sigmas->video[0], audio->state }, 1));
    }
    for (int k = 0; k + 1 < sigmas->count; k++) {
        float sigma = sigmas->video[k], sigma_audio = sigmas->audio[k];
        VX_TRY(vx_blend(dev, audio->seen, &(vx_term){ sigma_audio / sigma, audio->state }, 1));
        VX_TRY(velocity(user, k, video->state, audio->seen, video->velocity, audio->velocity));
        VX_TRY(vx_blend(dev, video->velocity, (vx_term[]){ { 1, video->state }, { sigma, video->velocity } }, 2));
        VX_TRY(vx_blend(dev, audio->velocity, (vx_term[]){ { 1, audio->seen }, { sigma_audio, audio->velocity } }, 2));
        VX_TRY(vx_blend(dev, audio->velocity, &(vx_term){ scale, audio->velocity }, 1));
        coefficients c = step_coefficients(p->sampler, sigmas->video, k);
        VX_TRY(comfyui_step(dev, video, c));
        VX_TRY(comfyui_step(dev, audio, c));
        swap(&video->velocity, &video->before);
        swap(&audio->velocity, &audio->before);
    }
    return vx_blend(dev, audio->state, &(vx_term){ 1 / scale, audio->state }, 1);
}

// ---- public ----

static vx_status check(const vx_sampler_params *p, vx_tensor video, vx_tensor audio)
{
    if (!p->sigmas || p->sigmas->count < 2 || p->sigmas->count > VX_MAX_SIGMAS)
        return vx_fail(VX_ERR_VALUE, "sampler: no list of sigmas");
    if (p->step && p->sampler != VX_SAMPLER_EULER)
        return vx_fail_field(VX_ERR_CONFLICT, "sampler",
                             "the official step on two lists is Euler's; res_multistep steps one list");
    if (!p->step && !(p->shift > 0 && p->audio_shift > 0))
        return vx_fail(VX_ERR_RANGE, "sampler: shifts %g and %g must be positive", (double)p->shift, (double)p->audio_shift);
    if (video.dtype != VX_F32 || audio.dtype != VX_F32 || !vx_tensor_contiguous(video) || !vx_tensor_contiguous(audio))
        return vx_fail(VX_ERR_DTYPE, "sampler: the state must be contiguous f32");
    return vx_ok();
}

vx_status vx_sampler_run(vx_device *dev, vx_arena *arena, const vx_sampler_params *params, vx_tensor video, vx_tensor audio,
                         vx_velocity_fn velocity, void *user)
{
    VX_TRY(check(params, video, audio));
    size_t mark = vx_arena_mark(arena);
    stream v = { .state = video, .seen = video }, a = { .state = audio, .seen = audio };
    v.velocity = vx_arena_take(arena, VX_F32, video.rank, video.shape);
    a.velocity = vx_arena_take(arena, VX_F32, audio.rank, audio.shape);
    if (!params->step) {
        v.before = vx_arena_take(arena, VX_F32, video.rank, video.shape);
        a.before = vx_arena_take(arena, VX_F32, audio.rank, audio.shape);
        a.seen = vx_arena_take(arena, VX_F32, audio.rank, audio.shape);
    }
    vx_status s =
        params->step ? run_official(dev, params, &v, &a, velocity, user) : run_comfyui(dev, params, &v, &a, velocity, user);
    vx_arena_reset(arena, mark);
    return s;
}

void vx_sampler_timesteps(const vx_sampler_params *params, float *t_video, float *t_audio)
{
    const vx_sigmas *sigmas = params->sigmas;
    for (int k = 0; k + 1 < sigmas->count; k++) {
        if (params->step) {
            t_video[k] = 1 - sigmas->video[k];
            t_audio[k] = 1 - sigmas->audio[k];
            continue;
        }
        // ComfyUI passes a timestep of sigma*1000 to the model, which goes back, and finds the audio's in f64.
        float sigma = fmaxf(sigmas->video[k] * 1000 / 1000, 1e-6f);
        double shift = params->shift, audio_shift = params->audio_shift;
        double base = sigma / (shift + sigma * (1 - shift));
        double sigma_audio = audio_shift * base / (1 + (audio_shift - 1) * base);
        t_video[k] = (float)(1 - (double)sigma);
        t_audio[k] = (float)(1 - sigma_audio);
    }
}
