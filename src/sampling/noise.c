// Initial noise by the three conventions in use. They differ in how many generators there are, what is drawn first and how
// audio is laid out; the random numbers themselves are PyTorch's (denoiser specification 7.1, 7.2).
#include "sampling/noise.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "tensor/random.h"

static vx_status count_of(vx_noise_shape s, int64_t *count)
{
    if (s.channels < 1 || s.frames < 1 || s.height < 1 || s.width < 1 || !vx_mul_i64(s.channels, s.frames, count) ||
        !vx_mul_i64(*count, s.height, count) || !vx_mul_i64(*count, s.width, count) || *count > INT64_MAX / 8)
        return vx_fail(VX_ERR_RANGE, "noise for a latent of [%lld,%lld,%lld,%lld]", (long long)s.channels, (long long)s.frames,
                       (long long)s.height, (long long)s.width);
    return vx_ok();
}

static vx_status scratch_of(float **out, int64_t count)
{
    *out = vx_alloc_array((size_t)count, sizeof **out);
    VX_NEED_MEMORY(*out, "noise");
    return vx_ok();
}

// A latent in its own order, from a generator that goes on.
static vx_status draw_latent(vx_random *r, vx_noise_shape shape, float *out)
{
    int64_t count;
    VX_TRY(count_of(shape, &count));
    float *scratch = NULL;
    if (!out) VX_TRY(scratch_of(&scratch, count));
    vx_random_normal(r, out ? out : scratch, count);
    vx_free(scratch);
    return vx_ok();
}

// Audio in the order drawn: rows [2, A, C] (diffusers, SGLang) or ComfyUI's latent [C, 2, A]; out [2, C, A].
static vx_status draw_audio(vx_random *r, const vx_noise_params *p, bool rows, float *out)
{
    const int64_t channels = p->audio_channels, frames = p->audio_frames;
    int64_t count;
    VX_TRY(count_of((vx_noise_shape){ channels, frames, 2, 1 }, &count));
    float *drawn;
    VX_TRY(scratch_of(&drawn, count));
    vx_random_normal(r, drawn, count);
    for (int64_t side = 0; out && side < 2; side++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t k = 0; k < frames; k++)
                out[(side * channels + c) * frames + k] =
                    drawn[rows ? (side * frames + k) * channels + c : (c * 2 + side) * frames + k];
    vx_free(drawn);
    return vx_ok();
}

static vx_status noise_diffusers(const vx_noise_params *p, float *video, float *audio, float *const *conditions)
{
    vx_random r;
    vx_random_seed(&r, p->seed);
    for (int i = 0; i < p->condition_count; i++)
        VX_TRY_IN(draw_latent(&r, p->conditions[i], conditions ? conditions[i] : NULL), "condition %d", i);
    VX_TRY(draw_latent(&r, p->video, video));
    return draw_audio(&r, p, true, audio);
}

// SGLang draws a condition's noise as long as the clip and as many frames more as there are conditions, and keeps the
// beginning of each channel.
static vx_status condition_sglang(const vx_noise_params *p, vx_noise_shape kept, float *out)
{
    vx_noise_shape drawn = kept;
    drawn.frames = p->video.frames + p->condition_count;
    if (kept.frames > drawn.frames)
        return vx_fail(VX_ERR_RANGE, "a condition of %lld latent frames is longer than the clip of %lld", (long long)kept.frames,
                       (long long)p->video.frames);
    int64_t count, keep;
    VX_TRY(count_of(drawn, &count));
    VX_TRY(count_of(kept, &keep));
    float *scratch;
    VX_TRY(scratch_of(&scratch, count));
    vx_random r;
    vx_random_seed(&r, p->seed);
    vx_random_normal(&r, scratch, count);
    int64_t from = count / kept.channels, to = keep / kept.channels;
    for (int64_t c = 0; c < kept.channels; c++)
        for (int64_t i = 0; i < to; i++) out[c * to + i] = scratch[c * from + i];
    vx_free(scratch);
    return vx_ok();
}

// Every stream from a new generator with the same seed: the audio noise repeats the beginning of the video's.
static vx_status noise_sglang(const vx_noise_params *p, float *video, float *audio, float *const *conditions)
{
    for (int i = 0; conditions && i < p->condition_count; i++)
        if (conditions[i]) VX_TRY_IN(condition_sglang(p, p->conditions[i], conditions[i]), "condition %d", i);
    vx_random r;
    vx_random_seed(&r, p->seed);
    if (video) VX_TRY(draw_latent(&r, p->video, video));
    vx_random_seed(&r, p->seed);
    return draw_audio(&r, p, true, audio);
}

// ComfyUI draws a condition's noise as patch rows: [T*(H/2)*(W/2), C*4], a row's element being (channel, dy, dx).
static vx_status condition_comfyui(const vx_noise_params *p, vx_noise_shape s, float *out)
{
    int64_t count;
    VX_TRY(count_of(s, &count));
    if (s.height % 2 != 0 || s.width % 2 != 0)
        return vx_fail(VX_ERR_RANGE, "a latent of %lld x %lld: both must be even", (long long)s.height, (long long)s.width);
    float *rows;
    VX_TRY(scratch_of(&rows, count));
    vx_random r;
    vx_random_seed(&r, p->seed);
    vx_random_normal(&r, rows, count);
    for (int64_t c = 0; c < s.channels; c++)
        for (int64_t t = 0; t < s.frames; t++)
            for (int64_t y = 0; y < s.height; y++)
                for (int64_t x = 0; x < s.width; x++) {
                    int64_t row = (t * (s.height / 2) + y / 2) * (s.width / 2) + x / 2;
                    int64_t element = (c * 2 + y % 2) * 2 + x % 2;
                    out[((c * s.frames + t) * s.height + y) * s.width + x] = rows[row * s.channels * 4 + element];
                }
    vx_free(rows);
    return vx_ok();
}

static vx_status noise_comfyui(const vx_noise_params *p, float *video, float *audio, float *const *conditions)
{
    for (int i = 0; conditions && i < p->condition_count; i++)
        if (conditions[i]) VX_TRY_IN(condition_comfyui(p, p->conditions[i], conditions[i]), "condition %d", i);
    vx_random r;
    vx_random_seed(&r, p->seed);
    VX_TRY(draw_latent(&r, p->video, video));
    return draw_audio(&r, p, false, audio);
}

vx_status vx_noise_draw(const vx_noise_params *params, float *video, float *audio, float *const *conditions)
{
    switch (params->convention) {
    case VX_NOISE_SGLANG: return noise_sglang(params, video, audio, conditions);
    case VX_NOISE_DIFFUSERS: return noise_diffusers(params, video, audio, conditions);
    case VX_NOISE_COMFYUI: return noise_comfyui(params, video, audio, conditions);
    }
    return vx_fail(VX_ERR_VALUE, "noise convention %d", (int)params->convention);
}
