// Running the audio decoder (audio VAE specification, A6, A11): one channel after the other, each in chunks that carry enough
// of their neighbours that the samples kept have the bits of a run over the whole clip. Where a chunk touches an end of the
// clip, the operators' own padding is the clip's.
#include "base/checked.h"
#include "vae/audio_internal.h"

// Clips of 15 seconds have 603 latents: one chunk, and about 110 MB for the released model. Longer ones pay twice the context
// per chunk.
enum { CHUNK = 640 };

typedef struct run {
    const vx_audio_decoder *decoder;
    vx_device *dev;
    bool denormalised;
    vx_tensor std, mean, flag, latent;
    vx_tensor h, a, b, block[VX_AUDIO_BLOCKS]; // flat; see `shaped`
} run;

// Samples that an alias-free activation reads beside one of its own: up2 and down2 together.
enum { ACTIVATION_REACH = 5 };

static int64_t block_reach(const vx_audio_block *b)
{
    int64_t reach = 2 * b->pairs * ACTIVATION_REACH;
    for (int64_t l = 0; l < b->pairs; l++) reach += (b->kernel - 1) / 2 * (b->dilation[l] + 1);
    return reach;
}

// From the last sample back to the latents. A transposed convolution's output n reads inputs floor((n + p - k + 1)/u) to
// floor((n + p)/u); its left reach is the longer one.
int64_t vx_audio_context(const vx_audio_decoder *d)
{
    int64_t reach = (d->post.weight.shape[2] - 1) / 2 + ACTIVATION_REACH;
    for (int64_t i = d->config.stages - 1; i >= 0; i--) {
        const vx_audio_stage *s = &d->stage[i];
        int64_t widest = 0, padding = (s->kernel - s->rate) / 2;
        for (int r = 0; r < d->blocks; r++) widest = vx_max_i64(widest, block_reach(&s->block[r]));
        reach += widest;
        reach = vx_max_i64((reach + s->kernel - 1 - padding) / s->rate, (reach + padding - 1) / s->rate + 1);
    }
    return reach + (d->pre.weight.shape[2] - 1) / 2;
}

static vx_tensor shaped(vx_tensor flat, int64_t channels, int64_t length)
{
    return vx_tensor_of(flat.data, VX_F32, channels, length);
}

static vx_status activate(const run *r, vx_tensor out, vx_tensor x, const vx_audio_activation *a)
{
    return vx_snake_alias_free(r->dev, out, x, a->alpha, a->beta, a->up, a->down);
}

static vx_status convolve(const run *r, vx_tensor out, vx_tensor x, const vx_audio_conv *conv, int64_t dilation,
                          vx_tensor residual)
{
    const vx_conv1d_params p = {
        .padding = (conv->weight.shape[2] - 1) / 2 * dilation, .dilation = dilation, .bias = conv->bias, .residual = residual
    };
    return vx_conv1d(r->dev, out, x, conv->weight, &p);
}

static vx_status run_block(const run *r, const vx_audio_block *block, vx_tensor out, vx_tensor h)
{
    vx_tensor a = shaped(r->a, h.shape[0], h.shape[1]), b = shaped(r->b, h.shape[0], h.shape[1]), x = h;
    for (int64_t l = 0; l < block->pairs; l++) {
        VX_TRY(activate(r, a, x, &block->activation[l][0]));
        VX_TRY(convolve(r, b, a, &block->conv[l][0], block->dilation[l], (vx_tensor){ 0 }));
        VX_TRY(activate(r, a, b, &block->activation[l][1]));
        VX_TRY(convolve(r, out, a, &block->conv[l][1], 1, x));
        x = out;
    }
    return vx_ok();
}

// The blocks' mean, left in block[0].
static vx_status run_stage(const run *r, const vx_audio_stage *s, vx_tensor x, vx_tensor *out)
{
    const int blocks = r->decoder->blocks;
    vx_tensor h = shaped(r->h, s->channels, x.shape[1] * s->rate);
    const vx_conv1d_params up = { .stride = s->rate, .padding = (s->kernel - s->rate) / 2, .bias = s->up.bias };
    VX_TRY(vx_conv_transpose1d(r->dev, h, x, s->up.weight, &up));
    vx_term term[VX_AUDIO_BLOCKS] = { 0 };
    for (int k = 0; k < blocks; k++) {
        term[k] = (vx_term){ 1.0f / (float)blocks, shaped(r->block[k], h.shape[0], h.shape[1]) };
        VX_TRY(run_block(r, &s->block[k], term[k].x, h));
    }
    *out = term[0].x;
    return vx_blend(r->dev, *out, term, blocks);
}

// latent [channels, n], any row stride, to samples [1, hop*n] before the clamp, in scratch.
static vx_status run_latents(const run *r, vx_tensor latent, vx_tensor *samples)
{
    const vx_audio_decoder *d = r->decoder;
    int64_t n = latent.shape[1];
    if (!r->denormalised) {
        vx_tensor z = shaped(r->latent, latent.shape[0], n);
        VX_TRY(vx_affine(r->dev, z, latent, r->std, r->mean, 0));
        latent = z;
    }
    vx_tensor wide = shaped(r->a, d->config.latent_dim, n), x = shaped(r->block[0], d->config.decoder_dim, n);
    VX_TRY(convolve(r, wide, latent, &d->in_proj, 1, (vx_tensor){ 0 }));
    VX_TRY(convolve(r, x, wide, &d->pre, 1, (vx_tensor){ 0 }));
    for (int64_t i = 0; i < d->config.stages; i++) VX_TRY_IN(run_stage(r, &d->stage[i], x, &x), "stage %d", (int)i);
    vx_tensor a = shaped(r->a, x.shape[0], x.shape[1]);
    VX_TRY(activate(r, a, x, &d->last));
    *samples = shaped(r->b, 1, x.shape[1]);
    return convolve(r, *samples, a, &d->post, 1, (vx_tensor){ 0 });
}

static vx_status run_chunk(const run *r, vx_tensor wave, vx_tensor latent, int64_t begin, int64_t end)
{
    const vx_audio_decoder *d = r->decoder;
    int64_t hop = d->config.hop, first = vx_max_i64(0, begin - d->context), last = vx_min_i64(latent.shape[1], end + d->context);
    vx_tensor samples;
    VX_TRY(run_latents(r, vx_tensor_slice(latent, 1, first, last), &samples));
    samples = vx_tensor_slice(samples, 1, (begin - first) * hop, (end - first) * hop);
    int32_t bad = 0;
    VX_TRY(vx_mark_not_finite(r->dev, r->flag, 0, samples));
    VX_TRY(vx_download(r->dev, &bad, r->flag));
    VX_TRY(vx_component_check(d->weights.component));
    if (bad)
        return vx_fail(VX_ERR_NOT_FINITE, "the sound of latents %lld to %lld holds NaN or infinity", (long long)begin,
                       (long long)end - 1);
    return vx_clamp(r->dev, vx_tensor_slice(wave, 1, begin * hop, end * hop), samples, -1.0f, 1.0f);
}

static vx_status prepare(run *r, vx_arena *arena, int64_t window)
{
    const vx_audio_decoder *d = r->decoder;
    const vx_audio_decoder_config *g = &d->config;
    int64_t most = window * vx_max_i64(g->latent_dim, g->decoder_dim), length = window;
    for (int64_t i = 0; i < g->stages; i++) {
        length *= d->stage[i].rate;
        most = vx_max_i64(most, length * d->stage[i].channels);
    }
    r->std = vx_arena_tensor(arena, VX_F32, g->latent_channels);
    r->mean = vx_arena_tensor(arena, VX_F32, g->latent_channels);
    r->flag = vx_arena_tensor(arena, VX_I32, 1);
    r->latent = vx_arena_tensor(arena, VX_F32, g->latent_channels * window);
    r->h = vx_arena_tensor(arena, VX_F32, most);
    r->a = vx_arena_tensor(arena, VX_F32, most);
    r->b = vx_arena_tensor(arena, VX_F32, most);
    for (int k = 0; k < d->blocks; k++) r->block[k] = vx_arena_tensor(arena, VX_F32, most);
    VX_TRY(vx_upload(r->dev, r->std, g->latents_std));
    VX_TRY(vx_upload(r->dev, r->mean, g->latents_mean));
    return vx_upload(r->dev, r->flag, &(int32_t){ 0 });
}

static vx_status check(const vx_audio_decoder *d, vx_tensor waveform, vx_tensor latent)
{
    char text[96];
    if (latent.dtype != VX_F32 || waveform.dtype != VX_F32)
        return vx_fail(VX_ERR_DTYPE, "audio latent and waveform are %s and %s, expected F32", vx_dtype_name(latent.dtype),
                       vx_dtype_name(waveform.dtype));
    if (latent.rank != 3 || latent.shape[0] < 1 || latent.shape[1] != d->config.latent_channels || latent.shape[2] < 1)
        return vx_fail(VX_ERR_SHAPE, "audio latent is %s, expected [2, %lld, latents]", vx_shape_text(text, latent),
                       (long long)d->config.latent_channels);
    const int64_t samples = latent.shape[2] * d->config.hop;
    if (waveform.rank != 2 || waveform.shape[0] != latent.shape[0] || waveform.shape[1] != samples)
        return vx_fail(VX_ERR_SHAPE, "waveform is %s, expected [%lld, %lld]", vx_shape_text(text, waveform),
                       (long long)latent.shape[0], (long long)samples);
    return vx_ok();
}

vx_status vx_audio_decoder_run_chunked(const vx_audio_decoder *decoder, vx_device *dev, vx_arena *arena, vx_tensor waveform,
                                       vx_tensor latent, bool denormalised, int64_t chunk)
{
    run r = { .decoder = decoder, .dev = dev, .denormalised = denormalised };
    VX_TRY_IN(check(decoder, waveform, latent), "audio decoder");
    int64_t total = latent.shape[2], chunks = vx_ceil_div(total, chunk), even = vx_ceil_div(total, chunks);
    int64_t window = chunks == 1 ? total : vx_min_i64(total, even + 2 * decoder->context);
    size_t mark = vx_arena_mark(arena);
    vx_status s = prepare(&r, arena, window);
    for (int64_t ch = 0; s.code == VX_OK && ch < latent.shape[0]; ch++)
        for (int64_t begin = 0; s.code == VX_OK && begin < total; begin += even) {
            s = run_chunk(&r, vx_tensor_slice(waveform, 0, ch, ch + 1), vx_tensor_row(latent, ch), begin,
                          vx_min_i64(total, begin + even));
            if (s.code != VX_OK) s = vx_within(s, "audio decoder: channel %d", (int)ch);
        }
    vx_arena_reset(arena, mark);
    return s;
}

vx_status vx_audio_decoder_run(const vx_audio_decoder *decoder, vx_device *dev, vx_arena *arena, vx_tensor waveform,
                               vx_tensor latent, bool denormalised)
{
    return vx_audio_decoder_run_chunked(decoder, dev, arena, waveform, latent, denormalised, CHUNK);
}
