// Small encoders, their weights from the formulas of small_model.h, and runs of encoders in planned memory.
#ifndef VX_TEST_VAE_SMALL_ENCODER_H
#define VX_TEST_VAE_SMALL_ENCODER_H

#include "small_model.h"

#include "vae/audio_encoder_internal.h"
#include "vae/video_encoder_internal.h"

// ---- video ----

typedef struct small_encoder {
    int levels, blocks, tile, overlap, width[8], space[8], time[8];
} small_encoder;

// The encoders of tools/make_vae_vectors.py's main(), first and second.
static const small_encoder small_encoder_first = {
    6, 1, 64, 32, { 32, 64, 32, 32, 64, 32 }, { 2, 2, 2, 2, 1, 1 }, { 1, 2, 2, 1, 1, 1 },
};
static const small_encoder small_encoder_second = {
    5, 2, 64, 16, { 64, 32, 32, 32, 32 }, { 2, 2, 1, 2, 2 }, { 2, 1, 1, 2, 1 },
};

static inline void small_conv3d(small_model *m, const char *name, int64_t out, int64_t in, int64_t taps)
{
    char full[SMALL_NAME];
    snprintf(full, sizeof full, "%.80s.weight", name);
    SMALL_ADD(m, full, out, in, taps, taps, taps);
    snprintf(full, sizeof full, "%.80s.bias", name);
    SMALL_ADD(m, full, out);
}

static inline void small_norm(small_model *m, const char *name, int64_t n)
{
    char full[SMALL_NAME];
    snprintf(full, sizeof full, "%.80s.weight", name);
    SMALL_ADD(m, full, n);
    snprintf(full, sizeof full, "%.80s.bias", name);
    SMALL_ADD(m, full, n);
}

static inline small_model *small_encoder_tensors(const small_encoder *v)
{
    small_model *m = calloc(1, sizeof *m);
    char name[SMALL_NAME];
    int64_t in = v->width[0];
#define NAME(...) (snprintf(name, sizeof name, __VA_ARGS__), name)
    small_conv3d(m, "encoder.conv_in", in, 3, 3);
    for (int i = 0; i < v->levels; i++) {
        int64_t out = v->width[i];
        for (int b = 0; b < v->blocks; b++, in = out) {
            small_norm(m, NAME("encoder.down.%d.block.%d.norm1", i, b), in);
            small_conv3d(m, NAME("encoder.down.%d.block.%d.conv1", i, b), out, in, 3);
            small_norm(m, NAME("encoder.down.%d.block.%d.norm2", i, b), out);
            small_conv3d(m, NAME("encoder.down.%d.block.%d.conv2", i, b), out, out, 3);
            if (in != out) small_conv3d(m, NAME("encoder.down.%d.block.%d.nin_shortcut", i, b), out, in, 1);
        }
        if (v->space[i] == 2) small_conv3d(m, NAME("encoder.down.%d.downsample.conv", i), out, out, 3);
    }
    small_norm(m, "encoder.norm_out", in);
    small_conv3d(m, "encoder.conv_out", 48, in, 3);
    small_conv3d(m, "quant_conv", 48, 48, 1);
    SMALL_ADD(m, "decoder.x_embedder.weight", 64, 24); // the decoder's, by which the files of a video VAE are known
#undef NAME
    return m;
}

static inline void small_list(char *out, size_t size, const char *name, const int *list, int count)
{
    size_t used = (size_t)snprintf(out, size, ", \"%s\": [", name);
    for (int i = 0; i < count; i++) used += (size_t)snprintf(out + used, size - used, "%s%d", i ? "," : "", list[i]);
    snprintf(out + used, size - used, "]");
}

static inline vx_status small_encoder_open(small_model *m, const small_encoder *v, const char *more, vx_video_encoder **e)
{
    char statistics[2048], widths[128], space[128], time[128], config[4096];
    small_statistics(statistics, sizeof statistics, 24);
    small_list(widths, sizeof widths, "block_out_channels", v->width, v->levels);
    small_list(space, sizeof space, "space_down", v->space, v->levels);
    small_list(time, sizeof time, "temporal_downsample_factors", v->time, v->levels);
    snprintf(config, sizeof config, "{%s, \"latent_channels\": 24, \"vae_tile_size\": %d, \"vae_tile_overlap_min\": %d%s%s%s%s}",
             statistics, v->tile, v->overlap, widths, space, time, more);
    *e = NULL;
    VX_TRY(small_open(m, VX_VIDEO_VAE, config));
    return vx_video_encoder_open(e, m->component);
}

// Bytes 0..255 from the same formula.
static inline uint8_t *small_pixels(const char *name, int64_t frames, int64_t height, int64_t width)
{
    int64_t count = frames * height * width * 3;
    float *x = malloc((size_t)count * sizeof *x);
    uint8_t *pixels = malloc((size_t)count);
    small_numbers(name, x, count);
    for (int64_t i = 0; i < count; i++) pixels[i] = (uint8_t)((x[i] + 1.0f) * 128.0f);
    free(x);
    return pixels;
}

static inline vx_video_encode clip_of(const uint8_t *pixels, int64_t frames, int64_t height, int64_t width)
{
    return (vx_video_encode){ .pixels = pixels, .frames = frames, .height = height, .width = width };
}

typedef struct moments {
    vx_tensor mean, logvar;
} moments;

static inline moments moments_of(const vx_video_encoder *e, const vx_video_encode *clip)
{
    vx_tensor t = vx_tensor_of(NULL, VX_F32, e->config.latent_channels, vx_encoded_frames(clip->frames), clip->height / 16,
                               clip->width / 16);
    return (moments){ t, t };
}

static inline size_t encode_plan(const vx_video_encoder *e, const vx_device *like, vx_video_encode clip, size_t *scratch)
{
    vx_device *plan = NULL;
    vx_arena *arena = NULL;
    assert_ok(vx_device_plan_create(&plan, like));
    assert_ok(vx_arena_create(plan, &arena, 0));
    moments m = moments_of(e, &clip);
    clip.pixels = NULL;
    clip.mean = m.mean, clip.logvar = m.logvar;
    clip.progress = NULL;
    assert_ok(vx_video_encoder_run(e, plan, arena, &clip));
    size_t high = vx_arena_high(arena);
    if (scratch) *scratch = vx_device_plan_counts(plan).scratch;
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    return high;
}

// mean and logvar on the heap.
static inline vx_status encode_run(const vx_video_encoder *e, vx_device *dev, vx_video_encode clip, moments *out)
{
    vx_arena *arena = NULL;
    size_t scratch, bytes = encode_plan(e, dev, clip, &scratch);
    *out = moments_of(e, &clip);
    out->mean.data = calloc(1, vx_tensor_bytes(out->mean));
    out->logvar.data = calloc(1, vx_tensor_bytes(out->logvar));
    clip.mean = out->mean, clip.logvar = out->logvar;
    assert_ok(vx_device_reserve(dev, scratch));
    assert_ok(vx_arena_create(dev, &arena, bytes));
    vx_status s = vx_video_encoder_run(e, dev, arena, &clip);
    assert_int_equal(vx_arena_mark(arena), 0);
    vx_arena_destroy(&arena);
    return s;
}

static inline void moments_free(moments *m)
{
    free(m->mean.data);
    free(m->logvar.data);
}

// ---- sound ----

typedef struct small_listener {
    int encoder_dim, stages, rate[4], width, channels, heads;
} small_listener;

static const small_listener small_listener_two = { 4, 2, { 2, 2 }, 32, 8, 2 };
static const small_listener small_listener_three = { 3, 3, { 5, 2, 3 }, 24, 6, 3 };

static inline small_model *small_listener_tensors(const small_listener *a)
{
    small_model *m = calloc(1, sizeof *m);
    char name[SMALL_NAME];
    int64_t c = a->encoder_dim, n = a->channels, w = a->width;
#define NAME(...) (snprintf(name, sizeof name, __VA_ARGS__), name)
    small_conv(m, "encoder.block.0", c, 1, 7, c);
    for (int b = 1; b <= a->stages; b++, c *= 2) {
        for (int u = 0; u < 3; u++)
            for (int k = 0; k < 2; k++) {
                SMALL_ADD(m, NAME("encoder.block.%d.block.%d.block.%d.alpha", b, u, 2 * k), 1, c, 1);
                small_conv(m, NAME("encoder.block.%d.block.%d.block.%d", b, u, 2 * k + 1), c, c, k ? 1 : 7, c);
            }
        SMALL_ADD(m, NAME("encoder.block.%d.block.3.alpha", b), 1, c, 1);
        small_conv(m, NAME("encoder.block.%d.block.4", b), 2 * c, c, 2 * a->rate[b - 1], 2 * c);
    }
    SMALL_ADD(m, NAME("encoder.block.%d.alpha", a->stages + 1), 1, c, 1);
    small_conv(m, NAME("encoder.block.%d", a->stages + 2), w, c, 3, w);
    SMALL_ADD(m, "pre_block.attn.qkv.weight", 3 * w, w);
    SMALL_ADD(m, "pre_block.attn.q_bias", w);
    SMALL_ADD(m, "pre_block.attn.zero_k_bias", w);
    SMALL_ADD(m, "pre_block.attn.v_bias", w);
    SMALL_ADD(m, "pre_block.attn.proj.weight", n, n);
    SMALL_ADD(m, "pre_block.attn.proj.bias", n);
    SMALL_ADD(m, "pre_block.proj.weight", n, w);
    SMALL_ADD(m, "pre_block.proj.bias", n);
    small_norm(m, "pre_block.norm1", w);
    small_norm(m, "pre_block.norm2", n);
    small_norm(m, "pre_block.norm3", w);
    small_norm(m, "pre_block.mlp.norm", n);
    for (int i = 0; i < 2; i++) {
        SMALL_ADD(m, NAME("pre_block.mlp.w%d.weight", i), 2 * n, n);
        SMALL_ADD(m, NAME("pre_block.mlp.w%d.bias", i), 2 * n);
    }
    SMALL_ADD(m, "pre_block.mlp.w2.weight", n, 2 * n);
    SMALL_ADD(m, "pre_block.mlp.w2.bias", n);
    SMALL_ADD(m, "mean_proj.weight", n, n, 1);
    SMALL_ADD(m, "mean_proj.bias", n);
    // The decoder's, by which the files of an audio VAE are known.
    SMALL_ADD(m, "dec_in_proj.weight", w, n, 1);
    SMALL_ADD(m, "dec_in_proj.bias", w);
    small_conv(m, "decoder.conv_pre", 8, w, 7, 8);
#undef NAME
    return m;
}

static inline vx_status small_listener_open(small_model *m, const small_listener *a, vx_device *dev, vx_audio_encoder **e)
{
    char statistics[2048], rates[128], config[4096];
    small_statistics(statistics, sizeof statistics, a->channels);
    small_list(rates, sizeof rates, "encoder_rates", a->rate, a->stages);
    snprintf(config, sizeof config, "{%s%s, \"num_attention_heads\": %d}", statistics, rates, a->heads);
    *e = NULL;
    VX_TRY(small_open(m, VX_AUDIO_VAE, config));
    return vx_audio_encoder_open(e, m->component, dev);
}

static inline vx_tensor small_sound(const char *name, int64_t channels, int64_t samples)
{
    vx_tensor t = vx_tensor_of(NULL, VX_F32, channels, samples);
    t.data = malloc(vx_tensor_bytes(t));
    small_numbers(name, t.data, channels * samples);
    return t;
}

static inline size_t listen_plan(const vx_audio_encoder *e, const vx_device *like, vx_tensor mean, vx_tensor wave, int64_t chunk,
                                 size_t *scratch)
{
    vx_device *plan = NULL;
    vx_arena *arena = NULL;
    assert_ok(vx_device_plan_create(&plan, like));
    assert_ok(vx_arena_create(plan, &arena, 0));
    mean.data = wave.data = NULL;
    assert_ok(vx_audio_encoder_run_chunked(e, plan, arena, mean, wave, chunk));
    size_t high = vx_arena_high(arena);
    if (scratch) *scratch = vx_device_plan_counts(plan).scratch;
    vx_arena_destroy(&arena);
    vx_device_destroy(&plan);
    return high;
}

// mean on the heap
static inline vx_status listen_run(const vx_audio_encoder *e, vx_device *dev, vx_tensor wave, int64_t chunk, vx_tensor *mean)
{
    vx_arena *arena = NULL;
    int64_t hop = e->config.hop;
    *mean = vx_tensor_of(NULL, VX_F32, wave.shape[0], e->config.latent_channels, (wave.shape[1] + hop - 1) / hop);
    mean->data = calloc(1, vx_tensor_bytes(*mean));
    size_t scratch, bytes = listen_plan(e, dev, *mean, wave, chunk, &scratch);
    assert_ok(vx_device_reserve(dev, scratch));
    assert_ok(vx_arena_create(dev, &arena, bytes));
    vx_status s = vx_audio_encoder_run_chunked(e, dev, arena, *mean, wave, chunk);
    assert_int_equal(vx_arena_mark(arena), 0);
    vx_arena_destroy(&arena);
    return s;
}

#endif
