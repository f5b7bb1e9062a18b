// Opening the audio decoder: sizes from the tensors, checked against the configuration where there is one (the official
// files state rates and widths, diffusers' also kernels and dilations; a single file states nothing).
#include "base/alloc.h"
#include "base/json.h"
#include "vae/audio_internal.h"
#include "vae/statistics.h"

enum { MAX_CHANNELS = 1 << 16, MAX_BLOCKS = VX_AUDIO_STAGES * VX_AUDIO_BLOCKS, MAX_KERNEL = 255, MAX_DILATION = 1024 };

static vx_status layer_count(const vx_component *c, const char *prefix, const char *suffix, int64_t most, int64_t *count)
{
    VX_TRY(vx_component_layers(c, prefix, suffix, count));
    if (*count < 1) return vx_fail(VX_ERR_TENSOR_MISSING, "%s: '%s0%s' is missing", vx_component_path(c), prefix, suffix);
    if (*count > most)
        return vx_fail(VX_ERR_TENSOR_UNEXPECTED, "%s: '%s' goes up to %lld, at most %lld are known", vx_component_path(c), prefix,
                       (long long)*count - 1, (long long)most - 1);
    return vx_ok();
}

static vx_status read_widths(vx_audio_decoder *d, const vx_component *c)
{
    vx_audio_decoder_config *g = &d->config;
    int rank;
    int64_t in[VX_MAX_RANK], pre[VX_MAX_RANK];
    const int64_t released_rate = 32000;
    vx_audio_weight_shape(c, "dec_in_proj", &rank, in);
    if (rank != 3) return vx_fail(VX_ERR_TENSOR_MISSING, "%s: 'dec_in_proj.weight' of 3 axes is missing", vx_component_path(c));
    vx_audio_weight_shape(c, "decoder.conv_pre", &rank, pre);
    if (rank != 3) return vx_fail(VX_ERR_TENSOR_MISSING, "%s: the weight of 'decoder.conv_pre' is missing", vx_component_path(c));
    VX_TRY(vx_config_int(c, "latent_channels", "vae_latent_channels", &in[1], &g->latent_channels));
    VX_TRY(vx_config_int(c, "latent_dim", NULL, &in[0], &g->latent_dim));
    VX_TRY(vx_config_int(c, "decoder_dim", NULL, &pre[0], &g->decoder_dim));
    VX_TRY(vx_config_int(c, "sample_rate", "sampling_rate", &released_rate, &g->sample_rate));
    VX_TRY(layer_count(c, "decoder.ups.", ".0.bias", VX_AUDIO_STAGES, &g->stages));
    if (g->latent_channels > VX_MAX_LATENT_CHANNELS || g->latent_dim > MAX_CHANNELS || g->decoder_dim > MAX_CHANNELS)
        return vx_fail(VX_ERR_CONFIG, "%s: %lld latent channels, widths %lld and %lld: too large", vx_component_path(c),
                       (long long)g->latent_channels, (long long)g->latent_dim, (long long)g->decoder_dim);
    if (g->latent_dim % g->latent_channels || g->decoder_dim % ((int64_t)1 << g->stages))
        return vx_fail(VX_ERR_CONFIG, "%s: latent_dim %lld must be a multiple of %lld channels, decoder_dim %lld of 2^%lld",
                       vx_component_path(c), (long long)g->latent_dim, (long long)g->latent_channels, (long long)g->decoder_dim,
                       (long long)g->stages);
    return vx_ok();
}

// The original pairs rate u with 2u - (u mod 2) taps, so that taps tell the rate.
static int64_t rate_of_kernel(int64_t kernel)
{
    return (kernel + 1) / 2;
}

static vx_status read_stages(vx_audio_decoder *d, const vx_component *c)
{
    vx_audio_decoder_config *g = &d->config;
    bool has_rates, has_kernels;
    int64_t kernels[VX_AUDIO_STAGES];
    VX_TRY(vx_audio_ints(c, "decoder_rates", g->stages, MAX_KERNEL, g->rate, &has_rates));
    VX_TRY(vx_audio_ints(c, "decoder_kernel_sizes", g->stages, MAX_KERNEL, kernels, &has_kernels));
    g->hop = 1;
    for (int64_t i = 0; i < g->stages; i++) {
        char name[64];
        int rank;
        int64_t shape[VX_MAX_RANK];
        snprintf(name, sizeof name, "decoder.ups.%d.0", (int)i);
        vx_audio_weight_shape(c, name, &rank, shape);
        if (rank != 3 || shape[2] < 1 || shape[2] > MAX_KERNEL)
            return vx_fail(VX_ERR_TENSOR_SHAPE, "%s: the weight of '%s' must be [in, out, taps]", vx_component_path(c), name);
        g->kernel[i] = shape[2];
        if (!has_rates) g->rate[i] = rate_of_kernel(shape[2]);
        if (has_kernels && kernels[i] != shape[2])
            return vx_fail(VX_ERR_CONFIG, "%s: '%s' has %d taps, decoder_kernel_sizes says %d", vx_component_path(c), name,
                           (int)shape[2], (int)kernels[i]);
        // Only then is a stage's output exactly `rate` times as long as its input.
        if (g->rate[i] > g->kernel[i] || (g->kernel[i] - g->rate[i]) % 2)
            return vx_fail(VX_ERR_CONFIG, "%s: '%s' of %d taps cannot upsample by %d", vx_component_path(c), name,
                           (int)g->kernel[i], (int)g->rate[i]);
        g->hop *= g->rate[i];
        if (g->hop > MAX_CHANNELS) return vx_fail(VX_ERR_CONFIG, "%s: decoder_rates upsample too far", vx_component_path(c));
        d->stage[i] = (vx_audio_stage){ .rate = g->rate[i], .kernel = g->kernel[i], .channels = g->decoder_dim >> (i + 1) };
    }
    return vx_ok();
}

static vx_status check_encoder_rates(const vx_audio_decoder *d, const vx_component *c)
{
    const json_t *rates = json_object_get(vx_component_config(c), "encoder_rates");
    if (!rates) return vx_ok();
    int64_t hop = 1;
    for (size_t i = 0; i < json_array_size(rates); i++) {
        int64_t rate = json_integer_value(json_array_get(rates, i));
        if (rate < 1 || rate > MAX_KERNEL || hop > MAX_CHANNELS)
            return vx_fail(VX_ERR_CONFIG, "%s: encoder_rates[%d] is %lld", vx_component_path(c), (int)i, (long long)rate);
        hop *= rate;
    }
    if (hop != d->config.hop)
        return vx_fail(VX_ERR_CONFIG, "%s: encoder_rates give %lld samples to a latent, decoder_rates %lld", vx_component_path(c),
                       (long long)hop, (long long)d->config.hop);
    return vx_ok();
}

// resblock_dilation_sizes is a list of lists, one for each block of a stage; without it 1, 3, 5 (audio VAE specification, A1).
static vx_status read_dilations(const vx_component *c, int r, vx_audio_block *block)
{
    static const int64_t released[] = { 1, 3, 5 };
    const json_t *all = json_object_get(vx_component_config(c), "resblock_dilation_sizes");
    const json_t *list = json_array_get(all, (size_t)r);
    for (int64_t l = 0; l < block->pairs; l++) {
        int64_t d = all ? json_integer_value(json_array_get(list, (size_t)l)) : l < 3 ? released[l] : 0;
        if (d < 1 || d > MAX_DILATION || (all && json_array_size(list) != (size_t)block->pairs))
            return vx_fail(VX_ERR_CONFIG, "%s: resblock_dilation_sizes[%d] must hold %d dilations of 1..%d", vx_component_path(c),
                           r, (int)block->pairs, MAX_DILATION);
        block->dilation[l] = d;
    }
    return vx_ok();
}

static vx_status read_blocks(vx_audio_decoder *d, const vx_component *c)
{
    int64_t total, pairs;
    VX_TRY(layer_count(c, "decoder.resblocks.", ".convs1.0.bias", MAX_BLOCKS, &total));
    if (total % d->config.stages)
        return vx_fail(VX_ERR_TENSOR_MISSING, "%s: %d residual blocks cannot be dealt to %d stages", vx_component_path(c),
                       (int)total, (int)d->config.stages);
    d->blocks = (int)(total / d->config.stages);
    if (d->blocks > VX_AUDIO_BLOCKS)
        return vx_fail(VX_ERR_TENSOR_UNEXPECTED, "%s: %d residual blocks a stage, at most %d are known", vx_component_path(c),
                       d->blocks, VX_AUDIO_BLOCKS);
    for (int64_t i = 0; i < total; i++) {
        vx_audio_block *block = &d->stage[i / d->blocks].block[i % d->blocks];
        char prefix[64];
        snprintf(prefix, sizeof prefix, "decoder.resblocks.%d.convs1.", (int)i);
        VX_TRY(layer_count(c, prefix, ".bias", VX_AUDIO_PAIRS, &pairs));
        block->pairs = pairs;
        VX_TRY(read_dilations(c, (int)(i % d->blocks), block));
    }
    int64_t kernels[VX_AUDIO_BLOCKS];
    bool has_kernels; // the shapes decide; a list of another length is a contradiction all the same
    return vx_audio_ints(c, "resblock_kernel_sizes", d->blocks, MAX_KERNEL, kernels, &has_kernels);
}

static vx_status bind_from(vx_audio_decoder *d, vx_component *c)
{
    VX_TRY(read_widths(d, c));
    VX_TRY(read_stages(d, c));
    VX_TRY(check_encoder_rates(d, c));
    VX_TRY(read_blocks(d, c));
    VX_TRY(vx_audio_statistics(c, d->config.latent_channels, d->config.latents_mean, d->config.latents_std));
    VX_TRY(vx_audio_decoder_weights(d));
    d->context = vx_audio_context(d);
    static const char *const others[] = { "encoder.", "pre_block.", "mean_proj.", "logs_proj." };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) vx_component_ignore(c, others[i]);
    return vx_component_finish(c);
}

vx_status vx_audio_decoder_bind(vx_audio_decoder **out, vx_component *component)
{
    *out = NULL;
    vx_audio_decoder *d = vx_alloc_array(1, sizeof *d);
    VX_NEED_MEMORY(d, "the audio decoder");
    d->weights.component = component;
    vx_status s = bind_from(d, component);
    if (s.code != VX_OK) {
        vx_audio_decoder_close(&d);
        return vx_within(s, "audio VAE");
    }
    *out = d;
    return vx_ok();
}

vx_status vx_audio_decoder_fold(vx_audio_decoder *decoder, vx_device *dev)
{
    return vx_audio_weights_make(&decoder->weights, dev);
}

vx_status vx_audio_decoder_fold_bytes(const vx_audio_decoder *decoder, vx_device *dev, size_t *kept, size_t *passing)
{
    return vx_audio_weights_bytes(&decoder->weights, dev, kept, passing);
}

vx_status vx_audio_decoder_open(vx_audio_decoder **out, vx_component *component, vx_device *dev)
{
    VX_TRY(vx_audio_decoder_bind(out, component));
    vx_status s = vx_audio_decoder_fold(*out, dev);
    if (s.code != VX_OK) vx_audio_decoder_close(out);
    return vx_within(s, "audio VAE");
}

void vx_audio_decoder_close(vx_audio_decoder **decoder)
{
    if (!*decoder) return;
    vx_audio_weights_free(&(*decoder)->weights);
    vx_free(*decoder);
    *decoder = NULL;
}

const vx_audio_decoder_config *vx_audio_decoder_config_of(const vx_audio_decoder *decoder)
{
    return &decoder->config;
}
