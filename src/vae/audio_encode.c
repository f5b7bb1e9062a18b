// Running the audio encoder (audio VAE specification, A4, A5, A11): all channels of the clip at once, as lines of the convolutions
// and as rows of the block behind them. The convolutions run in chunks that carry enough of their neighbours that the latents kept
// have the bits of a run over the whole clip; what they leave is a row for each latent, over which the attention block goes once:
// all rows together, but attention, which each channel's rows have among themselves.
#include "base/alloc.h"
#include "base/checked.h"
#include "vae/audio_encoder_internal.h"

// Latents of all channels together. 16 seconds of stereo have 2 x 640: two chunks, and about 430 MB for the released model.
enum { CHUNK = 640 };
static const float norm_eps = 1e-5f;
const int64_t vx_audio_unit_dilation[VX_ENCODER_UNITS] = { 1, 3, 9 };

typedef struct run {
    const vx_audio_encoder *encoder;
    vx_device *dev;
    vx_arena *arena;
    int64_t lines, latents, window; // channels of the clip, latents of one, and the most of a chunk with its neighbours
    int32_t *bad;                   // host, what is in `flag`: of each line
    vx_tensor flag, zero, rows;     // one 0; [lines * latents, latent_dim]
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

static vx_tensor shaped(const run *r, vx_tensor flat, int64_t channels, int64_t length)
{
    return vx_tensor_of(flat.data, VX_F32, channels, r->lines, length);
}

static vx_status clear(const run *r, vx_tensor t)
{
    vx_tensor zeros = t;
    zeros.data = r->zero.data;
    for (int i = 0; i < t.rank; i++) zeros.stride[i] = 0;
    return vx_copy(r->dev, t, zeros);
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
    int64_t length = r->lines * r->window * g->hop, most = g->encoder_dim * length;
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
    vx_tensor a = shaped(r, buf->a, x.shape[0], x.shape[2]), b = shaped(r, buf->b, x.shape[0], x.shape[2]);
    VX_TRY(vx_snake(r->dev, a, x, unit->alpha[0]));
    VX_TRY(convolve(r, b, a, &unit->conv[0], dilation, (vx_tensor){ 0 }));
    VX_TRY(vx_snake(r->dev, b, b, unit->alpha[1]));
    return convolve(r, x, b, &unit->conv[1], 1, x);
}

static vx_status run_stage(const run *r, buffers *buf, const vx_audio_encoder_stage *s, int64_t length)
{
    vx_tensor x = shaped(r, buf->x, s->channels, length), out = shaped(r, buf->a, 2 * s->channels, length / s->rate);
    for (int u = 0; u < VX_ENCODER_UNITS; u++) VX_TRY(run_unit(r, buf, &s->unit[u], x, vx_audio_unit_dilation[u]));
    VX_TRY(vx_snake(r->dev, x, x, s->alpha));
    const vx_conv1d_params p = { .stride = s->rate, .padding = padding_of(s->rate), .bias = s->down.bias };
    VX_TRY(vx_conv1d(r->dev, out, x, s->down.weight, &p));
    swap(&buf->x, &buf->a);
    return vx_ok();
}

// Samples [begin, end) of `wave` [lines, samples] as [1, lines, length], with zeros behind its end.
static vx_status load(const run *r, const buffers *buf, vx_tensor wave, int64_t begin, int64_t end, vx_tensor *out)
{
    int64_t there = wave.shape[1] - begin;
    wave = vx_tensor_split(wave, 0, r->lines);
    if (there >= end - begin) {
        *out = vx_tensor_slice(wave, 2, begin, end);
        return vx_ok();
    }
    *out = shaped(r, buf->wave, 1, end - begin);
    VX_TRY(vx_copy(r->dev, vx_tensor_slice(*out, 2, 0, there), vx_tensor_slice(wave, 2, begin, begin + there)));
    return clear(r, vx_tensor_slice(*out, 2, there, end - begin));
}

// The rows of latents [begin, end) of every line, from those and their neighbours.
static vx_status run_chunk(const run *r, buffers buf, vx_tensor wave, int64_t begin, int64_t end)
{
    const vx_audio_encoder *e = r->encoder;
    const vx_audio_encoder_config *g = &e->config;
    int64_t first = vx_max_i64(0, begin - e->context), last = vx_min_i64(r->latents, end + e->context);
    int64_t length = (last - first) * g->hop, widest = g->encoder_dim << g->stages;
    vx_tensor samples;
    VX_TRY(load(r, &buf, wave, first * g->hop, last * g->hop, &samples));
    VX_TRY(convolve(r, shaped(r, buf.x, g->encoder_dim, length), samples, &e->first, 1, (vx_tensor){ 0 }));
    for (int64_t i = 0; i < g->stages; i++) {
        VX_TRY_IN(run_stage(r, &buf, &e->stage[i], length), "stage %d", (int)i);
        length /= g->rate[i];
    }
    vx_tensor x = shaped(r, buf.x, widest, length), y = shaped(r, buf.a, g->latent_dim, length);
    VX_TRY(vx_snake(r->dev, x, x, e->alpha));
    VX_TRY(convolve(r, y, x, &e->last, 1, (vx_tensor){ 0 }));
    y = vx_tensor_permute(vx_tensor_slice(y, 2, begin - first, end - first), (const int[]){ 1, 2, 0 });
    return vx_copy(r->dev, vx_tensor_slice(vx_tensor_split(r->rows, 0, r->latents), 1, begin, end), y);
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

// h += attn(norm1(rows))   u [rows, latent_dim], v as h: scratch
static vx_status attend(const run *r, vx_tensor h, vx_tensor u, vx_tensor v)
{
    const vx_audio_encoder *e = r->encoder;
    int64_t dim = e->config.latent_dim, head_dim = dim / e->config.heads, rows = r->lines * r->latents;
    vx_tensor qkv = vx_arena_tensor(r->arena, VX_F32, rows, 3 * dim), part[3];
    VX_TRY(normalise(r, u, r->rows, &e->norm1));
    VX_TRY(vx_linear(r->dev, qkv, u, &e->qkv));
    for (int64_t first = 0; first < rows; first += r->latents) {
        vx_tensor line = vx_tensor_slice(qkv, 0, first, first + r->latents),
                  out = vx_tensor_slice(u, 0, first, first + r->latents);
        for (int i = 0; i < 3; i++) part[i] = vx_tensor_split(vx_tensor_slice(line, 1, i * dim, (i + 1) * dim), 1, head_dim);
        VX_TRY(vx_attention(r->dev, vx_tensor_split(out, 1, head_dim), part[0], part[1], part[2],
                            &(vx_attention_params){ .causal = true }));
    }
    vx_tensor pooled = vx_arena_tensor(r->arena, VX_F32, rows, e->config.latent_channels);
    VX_TRY(vx_linear(r->dev, pooled, u, &e->pooling));
    VX_TRY(vx_linear(r->dev, v, pooled, &e->attention_out));
    return vx_add(r->dev, h, v);
}

// h += mlp(norm2(h)), whose own norm comes on top (A5)   v as h: scratch
static vx_status feed_forward(const run *r, vx_tensor h, vx_tensor v)
{
    const vx_audio_encoder *e = r->encoder;
    int64_t rows = h.shape[0];
    vx_tensor gate = vx_arena_tensor(r->arena, VX_F32, rows, e->ffn);
    vx_tensor value = vx_arena_tensor(r->arena, VX_F32, rows, e->ffn);
    vx_tensor zero = vx_arena_tensor(r->arena, VX_F32, rows * e->ffn);
    VX_TRY(normalise(r, v, h, &e->norm2));
    VX_TRY(normalise(r, v, v, &e->mlp_norm));
    VX_TRY(vx_linear(r->dev, gate, v, &e->gate));
    VX_TRY(vx_gelu(r->dev, gate, gate, true));
    VX_TRY(vx_linear(r->dev, value, v, &e->value));
    // Element by element: every one is a channel of its own.
    gate = vx_tensor_merge(gate, 0);
    VX_TRY(clear(r, zero));
    VX_TRY(vx_affine(r->dev, gate, gate, vx_tensor_merge(value, 0), zero, 0));
    VX_TRY(vx_linear(r->dev, v, vx_tensor_split(gate, 0, e->ffn), &e->down));
    return vx_add(r->dev, h, v);
}

// mean [lines, latent_channels, latents] from the rows
static vx_status run_block(const run *r, vx_tensor mean)
{
    const vx_audio_encoder *e = r->encoder;
    int64_t rows = r->rows.shape[0];
    vx_tensor u = vx_arena_tensor(r->arena, VX_F32, rows, e->config.latent_dim);
    vx_tensor h = vx_arena_tensor(r->arena, VX_F32, rows, e->config.latent_channels);
    vx_tensor v = vx_arena_tensor(r->arena, VX_F32, rows, e->config.latent_channels);
    VX_TRY(normalise(r, u, r->rows, &e->norm3));
    VX_TRY(vx_linear(r->dev, h, u, &e->proj));
    VX_TRY_IN(attend(r, h, u, v), "attention");
    VX_TRY_IN(feed_forward(r, h, v), "feed forward");
    VX_TRY(vx_linear(r->dev, v, h, &e->mean));
    for (int64_t i = 0; i < r->lines; i++)
        VX_TRY(vx_mark_not_finite(r->dev, r->flag, i, vx_tensor_slice(v, 0, i * r->latents, (i + 1) * r->latents)));
    return vx_copy(r->dev, mean, vx_tensor_permute(vx_tensor_split(v, 0, r->latents), (const int[]){ 0, 2, 1 }));
}

// ---- all ----

static vx_status run_clip(const run *r, vx_tensor mean, vx_tensor wave, int64_t step)
{
    VX_TRY(vx_upload(r->dev, r->zero, &(float){ 0 }));
    VX_TRY(vx_upload(r->dev, r->flag, r->bad));
    size_t mark = vx_arena_mark(r->arena);
    VX_TRY(run_convolutions(r, wave, step));
    vx_arena_reset(r->arena, mark); // the rows are all that is left
    VX_TRY(run_block(r, mean));
    VX_TRY(vx_download(r->dev, r->bad, r->flag));
    VX_TRY(vx_component_check(r->encoder->weights.component));
    for (int64_t i = 0; i < r->lines; i++)
        if (r->bad[i]) return vx_fail(VX_ERR_NOT_FINITE, "channel %d: the latents hold NaN or infinity", (int)i);
    return vx_ok();
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
    run r = { .encoder = encoder, .dev = dev, .arena = arena, .lines = mean.shape[0], .latents = total, .window = window };
    r.bad = vx_alloc_array((size_t)r.lines, sizeof *r.bad);
    VX_NEED_MEMORY(r.bad, "the audio encoder's flags");
    size_t mark = vx_arena_mark(arena);
    r.flag = vx_arena_tensor(arena, VX_I32, r.lines);
    r.zero = vx_arena_tensor(arena, VX_F32, 1);
    r.rows = vx_arena_tensor(arena, VX_F32, r.lines * total, encoder->config.latent_dim);
    vx_status s = run_clip(&r, mean, waveform, even);
    vx_arena_reset(arena, mark);
    vx_free(r.bad);
    return vx_within(s, "audio encoder");
}

vx_status vx_audio_encoder_run(const vx_audio_encoder *encoder, vx_device *dev, vx_arena *arena, vx_tensor mean,
                               vx_tensor waveform)
{
    const int64_t chunk = mean.rank ? CHUNK / vx_max_i64(1, mean.shape[0]) : CHUNK;
    return vx_audio_encoder_run_chunked(encoder, dev, arena, mean, waveform, vx_max_i64(1, chunk));
}
