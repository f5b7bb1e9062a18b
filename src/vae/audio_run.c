// Running the audio decoder (audio VAE specification, A6, A11): all channels of the clip at once, as lines of every operator, in
// chunks that carry enough of their neighbours that the samples kept have the bits of a run over the whole clip. Where a chunk
// touches an end of the clip, the operators' own padding is the clip's.
#include "base/alloc.h"
#include "base/checked.h"
#include "vae/audio_internal.h"

// Latents of all channels together. 15 seconds of stereo have 2 x 603: one chunk, and about 220 MB for the released model. Longer
// clips pay twice the context per chunk.
enum { CHUNK = 1280 };

typedef struct run {
    const vx_audio_decoder *decoder;
    vx_device *dev;
    bool denormalised;
    int64_t lines; // channels of the clip
    int32_t *bad;  // host, what is in `flag`: of each line
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

static vx_tensor shaped(const run *r, vx_tensor flat, int64_t channels, int64_t length)
{
    return vx_tensor_of(flat.data, VX_F32, channels, r->lines, length);
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
    vx_tensor a = shaped(r, r->a, h.shape[0], h.shape[2]), b = shaped(r, r->b, h.shape[0], h.shape[2]), x = h;
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
    vx_tensor h = shaped(r, r->h, s->channels, x.shape[2] * s->rate);
    const vx_conv1d_params up = { .stride = s->rate, .padding = (s->kernel - s->rate) / 2, .bias = s->up.bias };
    VX_TRY(vx_conv_transpose1d(r->dev, h, x, s->up.weight, &up));
    vx_term term[VX_AUDIO_BLOCKS] = { 0 };
    for (int k = 0; k < blocks; k++) {
        term[k] = (vx_term){ 1.0f / (float)blocks, shaped(r, r->block[k], h.shape[0], h.shape[2]) };
        VX_TRY(run_block(r, &s->block[k], term[k].x, h));
    }
    *out = term[0].x;
    return vx_blend(r->dev, *out, term, blocks);
}

// latent [channels, lines, n], any strides, to samples [1, lines, hop*n] before the clamp, in scratch.
static vx_status run_latents(const run *r, vx_tensor latent, vx_tensor *samples)
{
    const vx_audio_decoder *d = r->decoder;
    int64_t n = latent.shape[2];
    if (!r->denormalised) {
        vx_tensor z = shaped(r, r->latent, latent.shape[0], n);
        VX_TRY(vx_affine(r->dev, z, latent, r->std, r->mean, 0));
        latent = z;
    }
    vx_tensor wide = shaped(r, r->a, d->config.latent_dim, n), x = shaped(r, r->block[0], d->config.decoder_dim, n);
    VX_TRY(convolve(r, wide, latent, &d->in_proj, 1, (vx_tensor){ 0 }));
    VX_TRY(convolve(r, x, wide, &d->pre, 1, (vx_tensor){ 0 }));
    for (int64_t i = 0; i < d->config.stages; i++) VX_TRY_IN(run_stage(r, &d->stage[i], x, &x), "stage %d", (int)i);
    vx_tensor a = shaped(r, r->a, x.shape[0], x.shape[2]);
    VX_TRY(activate(r, a, x, &d->last));
    *samples = shaped(r, r->b, 1, x.shape[2]);
    return convolve(r, *samples, a, &d->post, 1, (vx_tensor){ 0 });
}

// wave [lines, samples], latent [lines, channels, latents]
static vx_status run_chunk(const run *r, vx_tensor wave, vx_tensor latent, int64_t begin, int64_t end)
{
    const vx_audio_decoder *d = r->decoder;
    int64_t hop = d->config.hop, first = vx_max_i64(0, begin - d->context), last = vx_min_i64(latent.shape[2], end + d->context);
    vx_tensor samples;
    VX_TRY(run_latents(r, vx_tensor_permute(vx_tensor_slice(latent, 2, first, last), (const int[]){ 1, 0, 2 }), &samples));
    samples = vx_tensor_row(vx_tensor_slice(samples, 2, (begin - first) * hop, (end - first) * hop), 0);
    for (int64_t i = 0; i < r->lines; i++) VX_TRY(vx_mark_not_finite(r->dev, r->flag, i, vx_tensor_slice(samples, 0, i, i + 1)));
    VX_TRY(vx_download(r->dev, r->bad, r->flag));
    VX_TRY(vx_component_check(d->weights.component));
    for (int64_t i = 0; i < r->lines; i++)
        if (r->bad[i])
            return vx_fail(VX_ERR_NOT_FINITE, "channel %d: the sound of latents %lld to %lld holds NaN or infinity", (int)i,
                           (long long)begin, (long long)end - 1);
    return vx_clamp(r->dev, vx_tensor_slice(wave, 1, begin * hop, end * hop), samples, -1.0f, 1.0f);
}

static vx_status prepare(run *r, vx_arena *arena, int64_t window)
{
    const vx_audio_decoder *d = r->decoder;
    const vx_audio_decoder_config *g = &d->config;
    int64_t length = window * r->lines, most = length * vx_max_i64(g->latent_dim, g->decoder_dim);
    for (int64_t i = 0; i < g->stages; i++) {
        length *= d->stage[i].rate;
        most = vx_max_i64(most, length * d->stage[i].channels);
    }
    r->std = vx_arena_tensor(arena, VX_F32, g->latent_channels);
    r->mean = vx_arena_tensor(arena, VX_F32, g->latent_channels);
    r->flag = vx_arena_tensor(arena, VX_I32, r->lines);
    r->latent = vx_arena_tensor(arena, VX_F32, g->latent_channels * r->lines * window);
    r->h = vx_arena_tensor(arena, VX_F32, most);
    r->a = vx_arena_tensor(arena, VX_F32, most);
    r->b = vx_arena_tensor(arena, VX_F32, most);
    for (int k = 0; k < d->blocks; k++) r->block[k] = vx_arena_tensor(arena, VX_F32, most);
    VX_TRY(vx_upload(r->dev, r->std, g->latents_std));
    VX_TRY(vx_upload(r->dev, r->mean, g->latents_mean));
    return vx_upload(r->dev, r->flag, r->bad);
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
    VX_TRY_IN(check(decoder, waveform, latent), "audio decoder");
    run r = { .decoder = decoder, .dev = dev, .denormalised = denormalised, .lines = latent.shape[0] };
    r.bad = vx_alloc_array((size_t)r.lines, sizeof *r.bad);
    VX_NEED_MEMORY(r.bad, "the audio decoder's flags");
    int64_t total = latent.shape[2], chunks = vx_ceil_div(total, chunk), even = vx_ceil_div(total, chunks);
    int64_t window = chunks == 1 ? total : vx_min_i64(total, even + 2 * decoder->context);
    size_t mark = vx_arena_mark(arena);
    vx_status s = prepare(&r, arena, window);
    for (int64_t begin = 0; s.code == VX_OK && begin < total; begin += even)
        s = run_chunk(&r, waveform, latent, begin, vx_min_i64(total, begin + even));
    vx_arena_reset(arena, mark);
    vx_free(r.bad);
    return vx_within(s, "audio decoder");
}

vx_status vx_audio_decoder_run(const vx_audio_decoder *decoder, vx_device *dev, vx_arena *arena, vx_tensor waveform,
                               vx_tensor latent, bool denormalised)
{
    const int64_t chunk = latent.rank ? CHUNK / vx_max_i64(1, latent.shape[0]) : CHUNK;
    return vx_audio_decoder_run_chunked(decoder, dev, arena, waveform, latent, denormalised, vx_max_i64(1, chunk));
}
