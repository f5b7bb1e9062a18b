// The audio decoder's tensors. Files hold a convolution's weight folded (`name.weight`) or as direction and length
// (`weight_v`, `weight_g`, or PyTorch's newer names for the two); sound wants float32, so what is narrower is widened.
// Folding follows PyTorch's weight norm over axis 0, which for a transposed convolution is the INPUT channel (A7).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "vae/audio_internal.h"

enum { NAME_SIZE = 128 };

// The Kaiser-windowed sinc of A3; the second half mirrors the first.
static const float filter_table[VX_AUDIO_TAPS] = {
    0.0020289646927267313f, 0.009389465674757957f, -0.0255434587597847f,  -0.057657383382320404f,
    0.12857258319854736f,   0.44320979714393616f,  0.44320979714393616f,  0.12857258319854736f,
    -0.057657383382320404f, -0.0255434587597847f,  0.009389465674757957f, 0.0020289646927267313f,
};
static const float filter_tolerance = 1e-6f; // a float64 design differs by 2.6e-8 (A3)

typedef struct binding {
    vx_audio_decoder *d;
    vx_component *c;
    bool warned_narrow, warned_filter;
} binding;

static vx_status make_later(vx_audio_decoder *d, vx_tensor from, vx_tensor gain, vx_tensor *to)
{
    if (d->made_count == d->made_capacity) {
        int64_t capacity = d->made_capacity ? 2 * d->made_capacity : 64;
        vx_audio_made *more = vx_realloc(d->made, (size_t)capacity * sizeof *more);
        VX_NEED_MEMORY(more, "the audio decoder's weights");
        d->made = more;
        d->made_capacity = capacity;
    }
    d->made[d->made_count++] = (vx_audio_made){ from, gain, to };
    vx_tensor shape = vx_tensor_make(NULL, VX_F32, from.rank, from.shape);
    size_t bytes = vx_tensor_bytes(shape);
    if (bytes > d->largest) d->largest = bytes;
    *to = shape;
    return vx_ok();
}

// A tensor as float32: a view of the file where it is that already.
static vx_status get(binding *b, const char *name, int rank, const int64_t *shape, vx_tensor *out)
{
    vx_tensor t;
    VX_TRY(vx_component_tensor(b->c, name, VX_DTYPE_NONE, rank, shape, &t));
    if (t.dtype == VX_F32) {
        *out = t;
        return vx_ok();
    }
    if (!b->warned_narrow)
        vx_log(VX_LOG_WARNING, "%s: '%s' is %s: the audio VAE was released in F32, a narrower copy sounds quieter",
               vx_component_path(b->c), name, vx_dtype_name(t.dtype));
    b->warned_narrow = true;
    return make_later(b->d, t, (vx_tensor){ 0 }, out);
}

static const struct {
    const char *direction, *length;
} spelling[] = {
    { ".weight", NULL },
    { ".weight_v", ".weight_g" },
    { ".parametrizations.weight.original1", ".parametrizations.weight.original0" },
};
enum { SPELLINGS = sizeof spelling / sizeof *spelling };

static int spelling_of(const vx_component *c, const char *name)
{
    char full[NAME_SIZE];
    for (int i = 0; i < SPELLINGS; i++) {
        snprintf(full, sizeof full, "%s%s", name, spelling[i].direction);
        if (vx_component_has(c, full)) return i;
    }
    return 0;
}

void vx_audio_weight_shape(const vx_component *c, const char *name, int *rank, int64_t shape[VX_MAX_RANK])
{
    char full[NAME_SIZE];
    snprintf(full, sizeof full, "%s%s", name, spelling[spelling_of(c, name)].direction);
    *rank = 0;
    vx_component_shape(c, full, rank, shape);
}

// weight [a, b, kernel]; bias [biases], none for 0.
static vx_status get_conv(binding *b, const char *name, int64_t first, int64_t second, int64_t kernel, int64_t biases,
                          vx_audio_conv *conv)
{
    char full[NAME_SIZE];
    int s = spelling_of(b->c, name);
    const int64_t shape[] = { first, second, kernel }, lengths[] = { first, 1, 1 };
    snprintf(full, sizeof full, "%s%s", name, spelling[s].direction);
    if (spelling[s].length == NULL) {
        VX_TRY(get(b, full, 3, shape, &conv->weight));
    } else {
        vx_tensor v, g;
        VX_TRY(vx_component_tensor(b->c, full, VX_DTYPE_NONE, 3, shape, &v));
        snprintf(full, sizeof full, "%s%s", name, spelling[s].length);
        VX_TRY(vx_component_tensor(b->c, full, VX_DTYPE_NONE, 3, lengths, &g));
        VX_TRY(make_later(b->d, v, g, &conv->weight));
    }
    if (biases == 0) return vx_ok();
    snprintf(full, sizeof full, "%s.bias", name);
    return get(b, full, 1, &biases, &conv->bias);
}

static vx_status get_filter(binding *b, const char *name, vx_tensor *out)
{
    if (!vx_component_has(b->c, name)) {
        vx_tensor table = vx_tensor_of((void *)filter_table, VX_F32, VX_AUDIO_TAPS);
        return make_later(b->d, table, (vx_tensor){ 0 }, out);
    }
    vx_tensor t;
    VX_TRY(vx_component_get(b->c, name, VX_F32, &t, 1, 1, VX_AUDIO_TAPS));
    *out = vx_tensor_reshape(t, 1, (const int64_t[]){ VX_AUDIO_TAPS });
    for (int i = 0; i < VX_AUDIO_TAPS && !b->warned_filter; i++) {
        float found = ((const float *)t.data)[i];
        if (fabsf(found - filter_table[i]) <= filter_tolerance) continue;
        vx_log(VX_LOG_WARNING,
               "%s: '%s' is not the filter that H3 was trained with: tap %d is %g, expected %g; the file's is used",
               vx_component_path(b->c), name, i, (double)found, (double)filter_table[i]);
        b->warned_filter = true;
    }
    return vx_ok();
}

static vx_status get_activation(binding *b, const char *name, int64_t channels, vx_audio_activation *a)
{
    char full[NAME_SIZE];
#define FULL(suffix) (snprintf(full, sizeof full, "%s" suffix, name), full)
    VX_TRY(get(b, FULL(".act.alpha"), 1, &channels, &a->alpha));
    VX_TRY(get(b, FULL(".act.beta"), 1, &channels, &a->beta));
    VX_TRY(get_filter(b, FULL(".upsample.filter"), &a->up));
    return get_filter(b, FULL(".downsample.lowpass.filter"), &a->down);
#undef FULL
}

static vx_status get_block(binding *b, int64_t n, int64_t channels, vx_audio_block *block)
{
    char name[NAME_SIZE];
    int rank;
    int64_t shape[VX_MAX_RANK];
    snprintf(name, sizeof name, "decoder.resblocks.%d.convs1.0", (int)n);
    vx_audio_weight_shape(b->c, name, &rank, shape);
    block->kernel = rank == 3 ? shape[2] : 0;
    if (rank == 3 && block->kernel % 2 == 0)
        return vx_fail(VX_ERR_TENSOR_SHAPE, "%s: '%s' has %d taps: an even number has no middle", vx_component_path(b->c), name,
                       (int)block->kernel);
    for (int64_t l = 0; l < block->pairs; l++)
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "decoder.resblocks.%d.convs%d.%d", (int)n, k + 1, (int)l);
            VX_TRY(get_conv(b, name, channels, channels, block->kernel, channels, &block->conv[l][k]));
            snprintf(name, sizeof name, "decoder.resblocks.%d.activations.%d", (int)n, (int)(2 * l + k));
            VX_TRY(get_activation(b, name, channels, &block->activation[l][k]));
        }
    return vx_ok();
}

static vx_status bind_all(binding *b)
{
    vx_audio_decoder *d = b->d;
    const vx_audio_decoder_config *g = &d->config;
    enum { KERNEL = 7 };
    VX_TRY(get_conv(b, "dec_in_proj", g->latent_dim, g->latent_channels, 1, g->latent_dim, &d->in_proj));
    VX_TRY(get_conv(b, "decoder.conv_pre", g->decoder_dim, g->latent_dim, KERNEL, g->decoder_dim, &d->pre));
    int64_t before = g->decoder_dim;
    for (int64_t i = 0; i < g->stages; i++) {
        vx_audio_stage *s = &d->stage[i];
        char name[NAME_SIZE];
        snprintf(name, sizeof name, "decoder.ups.%d.0", (int)i);
        VX_TRY(get_conv(b, name, before, s->channels, s->kernel, s->channels, &s->up));
        for (int r = 0; r < d->blocks; r++) VX_TRY(get_block(b, i * d->blocks + r, s->channels, &s->block[r]));
        before = s->channels;
    }
    VX_TRY(get_activation(b, "decoder.activation_post", before, &d->last));
    return get_conv(b, "decoder.conv_post", 1, before, KERNEL, 0, &d->post);
}

static void widen(float *out, vx_tensor t)
{
    int64_t n = vx_tensor_count(t);
    const uint16_t *half = t.data;
    if (t.dtype == VX_F32) memcpy(out, t.data, (size_t)n * sizeof *out);
    else if (t.dtype == VX_BF16)
        for (int64_t i = 0; i < n; i++) out[i] = vx_bf16_to_f32(half[i]);
    else
        for (int64_t i = 0; i < n; i++) out[i] = vx_f16_to_f32(half[i]);
}

void vx_audio_fold(float *out, const float *v, const float *g, int64_t rows, int64_t row)
{
    for (int64_t i = 0; i < rows; i++) {
        double square = 0.0;
        for (int64_t j = 0; j < row; j++) square += (double)v[i * row + j] * (double)v[i * row + j];
        double gain = (double)g[i] / sqrt(square);
        for (int64_t j = 0; j < row; j++) out[i * row + j] = (float)((double)v[i * row + j] * gain);
    }
}

static vx_status make_all(vx_audio_decoder *d, vx_arena *weights, vx_device *dev)
{
    float *host = vx_alloc(d->largest), *gain = vx_alloc(d->largest);
    vx_status s = host && gain ? vx_ok() : vx_fail(VX_ERR_MEMORY, "no memory to fold the audio decoder's weights");
    for (int64_t i = 0; i < d->made_count && s.code == VX_OK; i++) {
        const vx_audio_made *m = &d->made[i];
        *m->to = vx_arena_take(weights, VX_F32, m->from.rank, m->from.shape);
        widen(host, m->from);
        if (m->gain.rank) {
            widen(gain, m->gain);
            int64_t rows = m->from.shape[0];
            vx_audio_fold(host, host, gain, rows, vx_tensor_count(m->from) / rows);
        }
        s = vx_upload(dev, *m->to, host);
    }
    vx_free(host);
    vx_free(gain);
    return s;
}

// The arena knows best what it needs for all of them.
static vx_status plan_weights(const vx_audio_decoder *d, vx_device *dev, size_t *bytes)
{
    vx_device *plan = NULL;
    vx_arena *planned = NULL;
    VX_TRY(vx_device_plan_create(&plan, dev));
    vx_status s = vx_arena_create(plan, &planned, 0);
    for (int64_t i = 0; i < d->made_count && s.code == VX_OK; i++)
        vx_arena_take(planned, VX_F32, d->made[i].from.rank, d->made[i].from.shape);
    if (s.code == VX_OK) *bytes = vx_arena_high(planned);
    vx_arena_destroy(&planned);
    vx_device_destroy(&plan);
    return s;
}

vx_status vx_audio_decoder_fold_bytes(const vx_audio_decoder *d, vx_device *dev, size_t *kept, size_t *passing)
{
    *kept = *passing = 0;
    if (d->weights) return vx_ok();
    *passing = d->largest;
    return plan_weights(d, dev, kept);
}

vx_status vx_audio_decoder_fold(vx_audio_decoder *d, vx_device *dev)
{
    if (d->weights) return vx_ok();
    vx_arena *weights = NULL;
    size_t bytes;
    VX_TRY(plan_weights(d, dev, &bytes));
    VX_TRY(vx_arena_create(dev, &weights, bytes));
    vx_status s = make_all(d, weights, dev);
    if (s.code == VX_OK) d->weights = weights;
    else vx_arena_destroy(&weights);
    return s;
}

vx_status vx_audio_weights_bind(vx_audio_decoder *d, vx_component *c)
{
    binding b = { .d = d, .c = c };
    return bind_all(&b);
}
