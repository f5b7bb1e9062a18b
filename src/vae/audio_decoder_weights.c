// Which tensors the audio decoder has (audio VAE specification, A7).
#include <math.h>
#include <stdio.h>

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
    bool warned_filter;
} binding;

static vx_status get_filter(binding *b, const char *name, vx_tensor *out)
{
    if (!vx_component_has(b->c, name)) {
        vx_tensor table = vx_tensor_of((void *)filter_table, VX_F32, VX_AUDIO_TAPS);
        return vx_audio_make_later(&b->d->weights, table, (vx_tensor){ 0 }, out);
    }
    vx_tensor t;
    VX_TRY(vx_component_get(b->c, name, VX_F32, &t, 1, 1, VX_AUDIO_TAPS));
    *out = vx_tensor_reshape(t, 1, (const int64_t[]){ VX_AUDIO_TAPS });
    for (int i = 0; i < VX_AUDIO_TAPS && !b->warned_filter; i++) {
        float found = ((const float *)t.data)[i];
        if (fabsf(found - filter_table[i]) <= filter_tolerance) continue;
        vx_component_note(b->c, "'%s' is not the filter that H3 was trained with: tap %d is %g, expected %g; the file's is used",
                          name, i, (double)found, (double)filter_table[i]);
        b->warned_filter = true;
    }
    return vx_ok();
}

static vx_status get_activation(binding *b, const char *name, int64_t channels, vx_audio_activation *a)
{
    char full[NAME_SIZE];
#define FULL(suffix) (snprintf(full, sizeof full, "%s" suffix, name), full)
    VX_TRY(vx_audio_get(&b->d->weights, FULL(".act.alpha"), 1, &channels, &a->alpha));
    VX_TRY(vx_audio_get(&b->d->weights, FULL(".act.beta"), 1, &channels, &a->beta));
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
            VX_TRY(vx_audio_get_conv(&b->d->weights, name, channels, channels, block->kernel, channels, &block->conv[l][k]));
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
    VX_TRY(vx_audio_get_conv(&b->d->weights, "dec_in_proj", g->latent_dim, g->latent_channels, 1, g->latent_dim, &d->in_proj));
    VX_TRY(vx_audio_get_conv(&b->d->weights, "decoder.conv_pre", g->decoder_dim, g->latent_dim, KERNEL, g->decoder_dim, &d->pre));
    int64_t before = g->decoder_dim;
    for (int64_t i = 0; i < g->stages; i++) {
        vx_audio_stage *s = &d->stage[i];
        char name[NAME_SIZE];
        snprintf(name, sizeof name, "decoder.ups.%d.0", (int)i);
        VX_TRY(vx_audio_get_conv(&b->d->weights, name, before, s->channels, s->kernel, s->channels, &s->up));
        for (int r = 0; r < d->blocks; r++) VX_TRY(get_block(b, i * d->blocks + r, s->channels, &s->block[r]));
        before = s->channels;
    }
    VX_TRY(get_activation(b, "decoder.activation_post", before, &d->last));
    return vx_audio_get_conv(&b->d->weights, "decoder.conv_post", 1, before, KERNEL, 0, &d->post);
}

vx_status vx_audio_decoder_weights(vx_audio_decoder *d)
{
    binding b = { .d = d, .c = d->weights.component };
    return bind_all(&b);
}
