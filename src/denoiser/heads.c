// Banks of heads (checkpoints specification 5.6, denoiser specification 3.3): an adapter that has a head for every stretch of a
// fine grid of n intervals. An evaluation covers some of them; its head is their mean, weighted by the timesteps that each
// covers. The heads are linear, so the mixture is made once.
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "denoiser/adapt.h"

const vx_weight *vx_denoiser_head_weight(const vx_denoiser *d, bool audio, int64_t k)
{
    const struct vx_denoiser_adapted *a = d->adapted;
    if (a && a->head[audio] && k < a->evaluations) return &a->head[audio][k];
    return audio ? &d->audio_out : &d->video_out;
}

// Where a sigma stands on the fine grid: shifted back, counted from the start.
static double place(double sigma, double shift, int64_t n)
{
    return round((1 - sigma / (shift + sigma * (1 - shift))) * (double)n);
}

static double timestep(double shift, int64_t n, int64_t i)
{
    const double g = 1 - (double)i / (double)n;
    return 1 - shift * g / (1 + (shift - 1) * g);
}

static void mixture(const vx_denoiser_schedule *s, double shift, int64_t n, int k, double *weights)
{
    const int64_t start = (int64_t)fmin(place((double)s->sigmas[k], s->shift, n), (double)(n - 1));
    const int64_t stop = (int64_t)fmax(place((double)s->sigmas[k + 1], s->shift, n), (double)(start + 1));
    const double span = timestep(shift, n, stop) - timestep(shift, n, start);
    for (int64_t i = 0; i < n; i++)
        weights[i] = i >= start && i < stop ? (timestep(shift, n, i + 1) - timestep(shift, n, i)) / span : 0;
}

static vx_status mix_one(const vx_denoiser_adapt_params *p, const vx_adapter_target *t, double shift, int64_t n, int k,
                         double *weights, vx_weight *head, vx_adapter_memory *memory)
{
    vx_weight_segment *s = &head->segment[0];
    const vx_weight_segment from = *s;
    s->weight = vx_tensor_of(NULL, VX_F32, t->n, t->k);
    s->bias = vx_tensor_of(NULL, VX_F32, t->n);
    VX_TRY(vx_adapter_take(memory, vx_tensor_bytes(s->weight), &s->weight.data));
    VX_TRY(vx_adapter_take(memory, vx_tensor_bytes(s->bias), &s->bias.data));
    if (!memory->load) return vx_ok();
    for (int64_t i = 0; i < t->n; i++)
        vx_denoiser_widen(vx_f32_of(s->weight) + i * t->k, from.weight, i * from.weight.stride[0], t->k);
    if (from.bias.rank) vx_denoiser_widen(vx_f32_of(s->bias), from.bias, 0, t->n);
    mixture(&p->schedule, shift, n, k, weights);
    for (int i = 0; i < p->count; i++)
        if (vx_adapter_bank_heads(p->adapter[i], t) == n)
            vx_adapter_mix(p->adapter[i], t, weights, vx_f32_of(s->weight), vx_f32_of(s->bias));
    return vx_ok();
}

static vx_status check_bank(const vx_denoiser_adapt_params *p, const vx_weight *w, int64_t n)
{
    const int evaluations = p->schedule.count - 1;
    if (w->segments != 1 || w->segment[0].quant.kind != VX_QUANT_NONE)
        return vx_fail(VX_ERR_UNAVAILABLE, "an adapter with a bank of heads needs the plain head of an unquantised file");
    if (evaluations >= 1 && n % evaluations == 0) return vx_ok();
    vx_status s = vx_fail_field(VX_ERR_CONFLICT, "steps",
                                "the adapter has a head for each of %lld stretches of the schedule: %d steps do not divide them",
                                (long long)n, evaluations);
    return vx_remedy(s, "give --turbo 8, or a number of --steps that divides %lld", (long long)n);
}

static vx_status mix_stream(vx_denoiser *d, const vx_denoiser_adapt_params *p, bool audio)
{
    struct vx_denoiser_adapted *a = d->adapted;
    const vx_weight *w = audio ? &d->audio_out : &d->video_out;
    const vx_adapter_target t = { .module = { audio ? VX_MODULE_AUDIO_OUT : VX_MODULE_VIDEO_OUT, false, 0 },
                                  .n = w->n,
                                  .k = w->k };
    int64_t n = 0;
    for (int i = 0; i < p->count; i++) {
        const int64_t heads = vx_adapter_bank_heads(p->adapter[i], &t);
        if (heads && n && heads != n)
            return vx_fail(VX_ERR_CONFLICT, "two adapters have banks of %lld and %lld heads", (long long)n, (long long)heads);
        if (heads) n = heads;
    }
    if (n == 0) return vx_ok();
    VX_TRY(check_bank(p, w, n));
    const int evaluations = p->schedule.count - 1;
    double *weights = vx_alloc_array((size_t)n, sizeof *weights);
    a->head[audio] = vx_alloc_array((size_t)evaluations, sizeof *a->head[audio]);
    a->evaluations = evaluations;
    vx_status s = weights && a->head[audio] ? vx_ok() : vx_no_memory("for a bank of heads");
    for (int k = 0; s.code == VX_OK && k < evaluations; k++) {
        a->head[audio][k] = *w;
        s = mix_one(p, &t, audio ? p->schedule.audio_shift : p->schedule.shift, n, k, weights, &a->head[audio][k], &a->memory);
    }
    vx_free(weights);
    return s;
}

vx_status vx_denoiser_mix_heads(vx_denoiser *d, const vx_denoiser_adapt_params *p)
{
    VX_TRY(mix_stream(d, p, false));
    return mix_stream(d, p, true);
}
