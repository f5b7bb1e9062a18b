// Sigma lists. Each is computed in the number format and the order of operations of the program that it comes from, so
// that the same request gives the same list to the last bit: the official grid as PyTorch's linspace and f32 tensors
// (denoiser specification 6.1), the others as ComfyUI's table of 1000 sigmas (6.2).
#include "sampling/schedule.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

enum { TABLE = 1000 };

// torch.linspace, f32: the first half counts from the start with an fma, the rest from the end. The half is an integer,
// so the middle of an odd number of points belongs to the second form.
static float linspace(float start, float end, int count, int i)
{
    if (count == 1) return start;
    float step = (end - start) / (float)(count - 1);
    if (i < count / 2) return fmaf(step, (float)i, start);
    return end - step * (float)(count - 1 - i);
}

static float shifted(float shift, float u)
{
    if (shift == 1) return u;
    return shift * u / (1 + (shift - 1) * u);
}

float vx_audio_sigma(float sigma, float shift, float audio_shift)
{
    float base = sigma / (shift + sigma * (1 - shift));
    return shifted(audio_shift, base);
}

// ComfyUI's table entry i, 0..999: it goes from a time to a multiplied time and back.
static float table_at(float shift, int i)
{
    float u = (float)(i + 1) / 1000;
    u = u * 1000 / 1000;
    return shifted(shift, u);
}

static int official_list(float *out, int points, float shift)
{
    int n = 0;
    for (int i = 0; i < points; i++) {
        float sigma = shifted(shift, linspace(1, 0, points, i));
        if (n == 0 || sigma != out[n - 1]) out[n++] = sigma;
    }
    return n;
}

static vx_status official(vx_sigmas *out, int points, float shift, float audio_shift)
{
    int video = official_list(out->video, points, shift);
    int audio = official_list(out->audio, points, audio_shift);
    if (video != audio)
        return vx_fail_remedy(VX_ERR_VALUE, "take fewer steps or smaller shifts",
                              "%d steps with shifts %g and %g: equal neighbours leave %d sigmas for video and %d for audio",
                              points, (double)shift, (double)audio_shift, video, audio);
    out->count = video;
    return vx_ok();
}

// ---- ComfyUI ----

static int simple(float *out, int evaluations, float shift)
{
    double stride = (double)TABLE / evaluations;
    for (int i = 0; i < evaluations; i++) out[i] = table_at(shift, TABLE - 1 - (int)(i * stride));
    return evaluations;
}

static int beta(float *out, int evaluations, float shift)
{
    double step = 1.0 / evaluations;
    int n = 0, last = -1;
    for (int i = 0; i < evaluations; i++) {
        int index = (int)rint(vx_beta_ppf(1 - i * step, 0.6, 0.6) * (TABLE - 1));
        if (index != last) out[n++] = table_at(shift, index);
        last = index;
    }
    return n;
}

// The times of this list are shifted sigmas, and it shifts them once more: so ComfyUI does, and so the lists that people
// call "normal" are.
static int normal(float *out, int evaluations, float shift)
{
    float first = table_at(shift, TABLE - 1) * 1000, last = table_at(shift, 0) * 1000;
    for (int i = 0; i < evaluations; i++) out[i] = shifted(shift, linspace(first, last, evaluations, i) / 1000);
    return evaluations;
}

static void finish_with_audio(vx_sigmas *out, int evaluations, float shift, float audio_shift)
{
    out->video[evaluations] = 0;
    out->count = evaluations + 1;
    for (int i = 0; i < out->count; i++) out->audio[i] = vx_audio_sigma(out->video[i], shift, audio_shift);
}

static vx_status check_shift(float shift, const char *field)
{
    if (isfinite(shift) && shift > 0) return vx_ok();
    return vx_fail_field(VX_ERR_RANGE, field, "a shift of %g: it must be positive and finite", (double)shift);
}

static vx_status check_shifts(float shift, float audio_shift)
{
    VX_TRY(check_shift(shift, "flow_shift"));
    return check_shift(audio_shift, "audio_flow_shift");
}

vx_status vx_sigmas_make(vx_sigmas *out, vx_schedule schedule, int points, float shift, float audio_shift)
{
    *out = (vx_sigmas){ 0 };
    VX_TRY(check_shifts(shift, audio_shift));
    if (points < 2 || points > VX_MAX_SIGMAS)
        return vx_fail_field(VX_ERR_RANGE, "num_inference_steps", "%d points: between 2 and %d, counting the final 0", points,
                             VX_MAX_SIGMAS);
    int evaluations = points - 1;
    switch (schedule) {
    case VX_SCHEDULE_OFFICIAL: return official(out, points, shift, audio_shift);
    case VX_SCHEDULE_SIMPLE: evaluations = simple(out->video, evaluations, shift); break;
    case VX_SCHEDULE_BETA: evaluations = beta(out->video, evaluations, shift); break;
    case VX_SCHEDULE_NORMAL: evaluations = normal(out->video, evaluations, shift); break;
    default: return vx_fail(VX_ERR_VALUE, "schedule %d is not one that can be computed", (int)schedule);
    }
    finish_with_audio(out, evaluations, shift, audio_shift);
    return vx_ok();
}

vx_status vx_sigmas_rungs(vx_sigmas *out, const int *rungs, int count, float shift, float audio_shift)
{
    *out = (vx_sigmas){ 0 };
    VX_TRY(check_shifts(shift, audio_shift));
    if (count < 1 || count >= VX_MAX_SIGMAS) return vx_fail(VX_ERR_VALUE, "%d rungs", count);
    for (int i = 0; i < count; i++) {
        const float u = (float)rungs[i] / TABLE;
        out->video[i] = shifted(shift, u);
        out->audio[i] = shifted(audio_shift, u);
    }
    out->count = count + 1;
    return vx_ok();
}

static float coarse(double shift, int i, int count)
{
    const double u = 1 - (double)i / count;
    return (float)(shift * u / (1 + (shift - 1) * u));
}

vx_status vx_sigmas_coarse(vx_sigmas *out, int intervals, int evaluations, float shift, float audio_shift)
{
    *out = (vx_sigmas){ 0 };
    VX_TRY(check_shifts(shift, audio_shift));
    if (evaluations < 1 || intervals >= VX_MAX_SIGMAS || intervals % evaluations != 0)
        return vx_fail_field(VX_ERR_CONFLICT, "steps", "%d steps do not divide a grid of %d intervals", evaluations, intervals);
    const int stride = intervals / evaluations;
    for (int i = 0; i < evaluations; i++) {
        out->video[i] = coarse((double)shift, i * stride, intervals);
        out->audio[i] = coarse((double)audio_shift, i * stride, intervals);
    }
    out->count = evaluations + 1;
    return vx_ok();
}

vx_status vx_sigmas_explicit(vx_sigmas *out, const float *sigmas, int count, float shift, float audio_shift)
{
    *out = (vx_sigmas){ 0 };
    VX_TRY(check_shifts(shift, audio_shift));
    if (count < 2 || count > VX_MAX_SIGMAS)
        return vx_fail_field(VX_ERR_VALUE, "sigmas", "%d values: between 2 and %d", count, VX_MAX_SIGMAS);
    if (!(sigmas[0] <= 1)) return vx_fail_field(VX_ERR_VALUE, "sigmas", "the first value is %g, at most 1", (double)sigmas[0]);
    for (int i = 1; i < count; i++)
        if (!(sigmas[i] < sigmas[i - 1]))
            return vx_fail_field(VX_ERR_VALUE, "sigmas", "value %d is %g after %g: the list must fall", i, (double)sigmas[i],
                                 (double)sigmas[i - 1]);
    if (sigmas[count - 1] != 0)
        return vx_fail_field(VX_ERR_VALUE, "sigmas", "the last value is %g, it must be 0", (double)sigmas[count - 1]);
    for (int i = 0; i < count - 1; i++) out->video[i] = sigmas[i];
    finish_with_audio(out, count - 1, shift, audio_shift);
    return vx_ok();
}
