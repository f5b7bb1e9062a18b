// Running the audio encoder (audio VAE specification, A4, A5, A11): one channel after the other. The convolutions run in
// chunks that carry enough of their neighbours that the latents kept have the bits of a run over the whole clip; what they
// leave is a row for each latent, over which the attention block goes once. Convolutions work on [channels, length], the
// block on [latents, channels].
#include "base/alloc.h"
#include "base/checked.h"
#include "vae/audio_encoder_internal.h"

// 16 seconds have 640 latents: two chunks, and about 200 MB for the released model.
enum { CHUNK = 320 };
static const float norm_eps = 1e-5f;
const int64_t vx_audio_unit_dilation[VX_ENCODER_UNITS] = { 1, 3, 9 };

typedef struct run {
    const vx_audio_encoder *encoder;
    vx_device *dev;
    vx_arena *arena;
    int64_t latents, window; // of the clip, and the most of a chunk with its neighbours
    float *zero;             // host, as many as anybody needs
    vx_tensor flag, rows;    // [latents, latent_dim]
} run;

// Rate s has 2s taps from -padding on, so that a stage's output n depends on inputs s*n - padding to s*n - padding + 2s - 1.
static int64_t padding_of(int64_t rate)
{
    return (rate + 1) / 2;
}

// From a latent back to samples, to the left of its first and to the right of its last one.
int64_t vx_audio_encoder_context(const vx_audio_encoder_config *g)
{
    int64_t left = (VX_LAST_KERNEL - 1) / 2, right = left, units = 0;
    for (int i = 0; i < VX_ENCODER_UNITS; i++) units += (VX_UNIT_KERNEL - 1) / 2 * vx_audio_unit_dilation[i];
    for (int64_t i = g->stages - 1; i >= 0; i--) {
        left = left * g->rate[i] + padding_of(g->rate[i]) + units;
        right = right * g->rate[i] + 2 * g->rate[i] - 1 - padding_of(g->rate[i]) + units;
    }
    left += (VX_UNIT_KERNEL - 1) / 2;
    right += (VX_UNIT_KERNEL - 1) / 2 - (g->hop - 1);
    return vx_ceil_div(vx_max_i64(left, right), g->hop);
}

// ---- convolutions ----

typedef struct buffers {
    vx_tensor wave, x, a, b; // flat
} buffers;

static vx_tensor shaped(vx_tensor flat, int64_t channels, int64_t length)
{
    return vx_tensor_of(flat.data, VX_F32, channels, length);
}

static void swap(vx_tensor *a, vx_tensor *b)
{
    vx_tensor t = *a;
    *a = *b;
    *b = t;
}

static buffers take_buffers(const run *r)
{
    const vx_audio_encoder_config *g = &r->encoder->config;
    int64_t length = r->window * g->hop, most = g->encoder_dim * length;
    buffers to = { .wave = vx_arena_tensor(r->arena, VX_F32, length) };
    for (int64_t i = 0; i < g->stages; i++) {
        length /= g->rate[i];
        most = vx_max_i64(most, (g->encoder_dim << (i + 1)) * length);
    }
    most = vx_max_i64(most, g->latent_dim * length);
    to.x = vx_arena_tensor(r->arena, VX_F32, most);
    to.a = vx_arena_tensor(r->arena, VX_F32, most);
    to.b = vx_arena_tensor(r->arena, VX_F32, most);
    return to;
}

static vx_status convolve(const run *r, vx_tensor out, vx_tensor x, const vx_audio_conv *conv, int64_t dilation,
                          vx_tensor residual)
{
    const vx_conv1d_params p = {
        .padding = (conv->weight.shape[2] - 1) / 2 * dilation, .dilation = dilation, .bias = conv->bias, .residual = residual
    };
    return vx_conv1d(r->dev, out, x, conv->weight, &p);
}

// x += unit(x)
static vx_status run_unit(const run *r, const buffers *buf, const vx_audio_unit *unit, vx_tensor x, int64_t dilation)
{
    vx_tensor a = shaped(buf->a, x.shape[0], x.shape[1]), b = shaped(buf->b, x.shape[0], x.shape[1]);
    VX_TRY(vx_snake(r->dev, a, x, unit->alpha[0]));
    VX_TRY(convolve(r, b, a, &unit->conv[0], dilation, (vx_tensor){ 0 }));
    VX_TRY(vx_snake(r->dev, b, b, unit->alpha[1]));
    return convolve(r, x, b, &unit->conv[1], 1, x);
}

static vx_status run_stage(const run *r, buffers *buf, const vx_audio_encoder_stage *s, int64_t length)
{
    vx_tensor x = shaped(buf->x, s->channels, length), out = shaped(buf->a, 2 * s->channels, length / s->rate);
    for (int u = 0; u < VX_ENCODER_UNITS; u++) VX_TRY(run_unit(r, buf, &s->unit[u], x, vx_audio_unit_dilation[u]));
    VX_TRY(vx_snake(r->dev, x, x, s->alpha));
    const vx_conv1d_params p = { .stride = s->rate, .padding = padding_of(s->rate), .bias = s->down.bias };
    VX_TRY(vx_conv1d(r->dev, out, x, s->down.weight, &p));
    swap(&buf->x, &buf->a);
    return vx_ok();
}

// Samples [begin, end) of a channel [1, samples], with zeros behind its end.
static vx_status load(const run *r, const buffers *buf, vx_tensor wave, int64_t begin, int64_t end, vx_tensor *out)
{
    int64_t there = wave.shape[1] - begin;
    if (there >= end - begin) {
        *out = vx_tensor_slice(wave, 1, begin, end);
        return vx_ok();
    }
    *out = shaped(buf->wave, 1, end - begin);
    VX_TRY(vx_copy(r->dev, vx_tensor_slice(*out, 1, 0, there), vx_tensor_slice(wave, 1, begin, wave.shape[1])));
    return vx_upload(r->dev, vx_tensor_slice(buf->wave, 0, there, end - begin), r->zero);
}

// The rows of latents [begin, end), from those and their neighbours.
static vx_status run_chunk(const run *r, buffers buf, vx_tensor wave, int64_t begin, int64_t end)
{
    const vx_audio_encoder *e = r->encoder;
    const vx_audio_encoder_config *g = &e->config;
    int64_t first = vx_max_i64(0, begin - e->context), last = vx_min_i64(r->latents, end + e->context);
    int64_t length = (last - first) * g->hop, widest = g->encoder_dim << g->stages;
    vx_tensor samples;
    VX_TRY(load(r, &buf, wave, first * g->hop, last * g->hop, &samples));
    VX_TRY(convolve(r, shaped(buf.x, g->encoder_dim, length), samples, &e->first, 1, (vx_tensor){ 0 }));
    for (int64_t i = 0; i < g->stages; i++) {
        VX_TRY_IN(run_stage(r, &buf, &e->stage[i], length), "stage %d", (int)i);
        length /= g->rate[i];
    }
    vx_tensor x = shaped(buf.x, widest, length), y = shaped(buf.a, g->latent_dim, length);
    VX_TRY(vx_snake(r->dev, x, x, e->alpha));
    VX_TRY(convolve(r, y, x, &e->last, 1, (vx_tensor){ 0 }));
    y = vx_tensor_permute(vx_tensor_slice(y, 1, begin - first, end - first), (const int[]){ 1, 0 });
    return vx_copy(r->dev, vx_tensor_slice(r->rows, 0, begin, end), y);
}

static vx_status run_convolutions(const run *r, vx_tensor wave, int64_t step)
{
    buffers buf = take_buffers(r);
    for (int64_t begin = 0; begin < r->latents; begin += step)
        VX_TRY_IN(run_chunk(r, buf, wave, begin, vx_min_i64(r->latents, begin + step)), "latents from %lld", (long long)begin);
    return vx_ok();
}

// ---- the attention block ----

static vx_status normalise(const run *r, vx_tensor out, vx_tensor x, const vx_audio_norm *norm)
{
    return vx_layer_norm(r->dev, out, x, norm->weight, norm->bias, norm_eps);
}

// h += attn(norm1(rows))   u [latents, latent_dim], v as h: scratch
static vx_status attend(const run *r, vx_tensor h, vx_tensor u, vx_tensor v)
{
    const vx_audio_encoder *e = r->encoder;
    int64_t dim = e->config.latent_dim, head_dim = dim / e->config.heads;
    vx_tensor qkv = vx_arena_tensor(r->arena, VX_F32, r->latents, 3 * dim), part[3];
    VX_TRY(normalise(r, u, r->rows, &e->norm1));
    VX_TRY(vx_linear(r->dev, qkv, u, &e->qkv));
    for (int i = 0; i < 3; i++) part[i] = vx_tensor_split(vx_tensor_slice(qkv, 1, i * dim, (i + 1) * dim), 1, head_dim);
    VX_TRY(vx_attention(r->dev, vx_tensor_split(u, 1, head_dim), part[0], part[1], part[2],
                        &(vx_attention_params){ .causal = true }));
    vx_tensor pooled = vx_arena_tensor(r->arena, VX_F32, r->latents, e->config.latent_channels);
    VX_TRY(vx_linear(r->dev, pooled, u, &e->pooling));
    VX_TRY(vx_linear(r->dev, v, pooled, &e->attention_out));
    return vx_add(r->dev, h, v);
}

// h += mlp(norm2(h)), whose own norm comes on top (A5)   v as h: scratch
static vx_status feed_forward(const run *r, vx_tensor h, vx_tensor v)
{
    const vx_audio_encoder *e = r->encoder;
    int64_t count = r->latents * e->ffn;
    vx_tensor gate = vx_arena_tensor(r->arena, VX_F32, r->latents, e->ffn);
    vx_tensor value = vx_arena_tensor(r->arena, VX_F32, r->latents, e->ffn);
    vx_tensor zero = vx_arena_tensor(r->arena, VX_F32, count);
    VX_TRY(normalise(r, v, h, &e->norm2));
    VX_TRY(normalise(r, v, v, &e->mlp_norm));
    VX_TRY(vx_linear(r->dev, gate, v, &e->gate));
    VX_TRY(vx_gelu(r->dev, gate, gate, true));
    VX_TRY(vx_linear(r->dev, value, v, &e->value));
    // Element by element: every one is a channel of its own.
    gate = vx_tensor_merge(gate, 0);
    VX_TRY(vx_upload(r->dev, zero, r->zero));
    VX_TRY(vx_affine(r->dev, gate, gate, vx_tensor_merge(value, 0), zero, 0));
    VX_TRY(vx_linear(r->dev, v, vx_tensor_split(gate, 0, e->ffn), &e->down));
    return vx_add(r->dev, h, v);
}

// mean [latent_channels, latents] from the rows
static vx_status run_block(const run *r, vx_tensor mean)
{
    const vx_audio_encoder *e = r->encoder;
    vx_tensor u = vx_arena_tensor(r->arena, VX_F32, r->latents, e->config.latent_dim);
    vx_tensor h = vx_arena_tensor(r->arena, VX_F32, r->latents, e->config.latent_channels);
    vx_tensor v = vx_arena_tensor(r->arena, VX_F32, r->latents, e->config.latent_channels);
    VX_TRY(normalise(r, u, r->rows, &e->norm3));
    VX_TRY(vx_linear(r->dev, h, u, &e->proj));
    VX_TRY_IN(attend(r, h, u, v), "attention");
    VX_TRY_IN(feed_forward(r, h, v), "feed forward");
    VX_TRY(vx_linear(r->dev, v, h, &e->mean));
    VX_TRY(vx_mark_not_finite(r->dev, r->flag, 0, v));
    return vx_copy(r->dev, mean, vx_tensor_permute(v, (const int[]){ 1, 0 }));
}

// ---- all ----

static vx_status run_channel(const run *r, vx_tensor mean, vx_tensor wave, int64_t step)
{
    size_t mark = vx_arena_mark(r->arena);
    VX_TRY(run_convolutions(r, wave, step));
    vx_arena_reset(r->arena, mark); // the rows are all that is left
    VX_TRY(run_block(r, mean));
    vx_arena_reset(r->arena, mark);
    int32_t bad = 0;
    VX_TRY(vx_download(r->dev, &bad, r->flag));
    VX_TRY(vx_component_check(r->encoder->weights.component));
    return bad ? vx_fail(VX_ERR_NOT_FINITE, "the latents hold NaN or infinity") : vx_ok();
}

static vx_status check(const vx_audio_encoder *e, vx_tensor mean, vx_tensor waveform)
{
    char text[96];
    if (mean.dtype != VX_F32 || waveform.dtype != VX_F32)
        return vx_fail(VX_ERR_DTYPE, "audio latent and waveform are %s and %s, expected F32", vx_dtype_name(mean.dtype),
                       vx_dtype_name(waveform.dtype));
    if (waveform.rank != 2)
        return vx_fail(VX_ERR_SHAPE, "waveform is %s, expected [channels, samples]", vx_shape_text(text, waveform));
    if (waveform.shape[0] < 1 || waveform.shape[1] < 1)
        return vx_fail(VX_ERR_RANGE, "waveform is %s: there is no sound to encode", vx_shape_text(text, waveform));
    const int64_t latents = vx_ceil_div(waveform.shape[1], e->config.hop);
    if (mean.rank != 3 || mean.shape[0] != waveform.shape[0] || mean.shape[1] != e->config.latent_channels ||
        mean.shape[2] != latents)
        return vx_fail(VX_ERR_SHAPE, "audio latent is %s, expected [%lld,%lld,%lld]", vx_shape_text(text, mean),
                       (long long)waveform.shape[0], (long long)e->config.latent_channels, (long long)latents);
    return vx_ok();
}

vx_status vx_audio_encoder_run_chunked(const vx_audio_encoder *encoder, vx_device *dev, vx_arena *arena, vx_tensor mean,
                                       vx_tensor waveform, int64_t chunk)
{
    VX_TRY_IN(check(encoder, mean, waveform), "audio encoder");
    int64_t total = mean.shape[2], chunks = vx_ceil_div(total, chunk), even = vx_ceil_div(total, chunks);
    int64_t window = chunks == 1 ? total : vx_min_i64(total, even + 2 * encoder->context);
    run r = { .encoder = encoder, .dev = dev, .arena = arena, .latents = total, .window = window };
    r.zero = vx_alloc_array((size_t)vx_max_i64(encoder->config.hop, total * encoder->ffn), sizeof *r.zero);
    VX_NEED_MEMORY(r.zero, "the audio encoder's zeros");
    size_t mark = vx_arena_mark(arena);
    r.flag = vx_arena_tensor(arena, VX_I32, 1);
    r.rows = vx_arena_tensor(arena, VX_F32, total, encoder->config.latent_dim);
    vx_status s = vx_upload(dev, r.flag, &(int32_t){ 0 });
    for (int64_t ch = 0; s.code == VX_OK && ch < mean.shape[0]; ch++) {
        s = run_channel(&r, vx_tensor_row(mean, ch), vx_tensor_slice(waveform, 0, ch, ch + 1), even);
        if (s.code != VX_OK) s = vx_within(s, "audio encoder: channel %d", (int)ch);
    }
    vx_arena_reset(arena, mark);
    vx_free(r.zero);
    return s;
}

vx_status vx_audio_encoder_run(const vx_audio_encoder *encoder, vx_device *dev, vx_arena *arena, vx_tensor mean,
                               vx_tensor waveform)
{
    return vx_audio_encoder_run_chunked(encoder, dev, arena, mean, waveform, CHUNK);
}
