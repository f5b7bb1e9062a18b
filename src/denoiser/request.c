// A request at the denoiser: everything that its evaluations share, then the evaluations.
//
// What stays for the request, in the arena:
//   text [L, hidden]   cos, sin [S, 48]   modulation [layers][distinct timesteps*3, 6, hidden]   head [distinct, 2, hidden]
//   map [S], time_map [S]: rewritten for each evaluation; the only thing besides the latents that changes between them
//   x, h [S, hidden], wide: activations
//
// An evaluation is stretches of operators that a device may record and replay (device.h), for this request or for a later one that
// looks the same to the device. What the operators of a stretch may depend on is in `stretch` and nowhere else: they are handed
// nothing of the request but this, and the recording is found by comparing all of its bytes.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "denoiser/network.h"

// Rows of the packed sequence that come from one place of the visual or the audio rows.
typedef struct run {
    int64_t audio; // or visual: 0
    int64_t packed, source, rows;
} run;

// Blocks of a stretch. Between two of them a device looks for a cancellation, and the host is one ahead of the one that runs: 0.4 s
// of the 5.2 s that an evaluation of the canonical request takes on an H200.
enum { STRETCH = 2 };

// Between the uploads and the look at the flags stand the same calls with the same arguments at every evaluation: here is all that
// they are made of. No member may have padding or depend on where the struct itself lies.
typedef struct stretch {
    int64_t begin, end; // blocks; the first stretch embeds, too, and the last one has the heads
    const vx_denoiser *denoiser;
    uint64_t stamp; // of its weights: what it was opened from and which adapters lie on it
    vx_denoiser_buffers buffers;
    vx_tensor text, cos, sin;
    vx_tensor modulation, head; // [layers, timesteps*3, VX_MODULATIONS, hidden], [timesteps, 2, hidden]
    vx_tensor map, time_map;    // [rows] i32
    vx_tensor flags;            // i32: the packed input, each block, the heads
    vx_tensor video_rows, audio_rows, video_velocity, audio_velocity;
    const vx_weight *video_head, *audio_head; // NULL: they differ between evaluations and are not part of it
    int64_t text_rows, video_begin, audio_begin;
    int64_t run_count;
    run runs[];
} stretch;

struct vx_denoiser_request {
    const vx_denoiser *denoiser;
    vx_device *dev;
    const vx_layout *layout;
    vx_dtype act;
    int64_t evaluations;
    void (*block_done)(void *user, int64_t block);
    void *user;

    stretch *s;
    size_t stretch_bytes;
    vx_denoiser_keep *keep;  // NULL: nothing stays
    vx_recording *recording; // where nothing stays
    vx_denoiser_reuse reuse;

    int64_t visual_rows, sound_rows;
    float *t; // [timesteps] distinct, ascending
    int64_t timesteps;
    int32_t (*clock)[VX_CLOCKS]; // [evaluations] the timestep of each clock
    int32_t *host_map;           // [2*rows]
    int32_t *host_flags;
};

static int64_t flag_count(const vx_denoiser *d)
{
    return d->config.layers + 2;
}

// ---- what the evaluations share ----

// The stretches of rows that follow one clock, from the conditions on; counts them where out is NULL.
static int64_t find_runs(vx_denoiser_request *r, run *out)
{
    const vx_layout *l = r->layout;
    int64_t count = 0, next[2] = { 0, 0 };
    for (int64_t row = l->text_rows; row < l->rows;) {
        int64_t end = row + 1;
        while (end < l->rows && l->clock[end] == l->clock[row]) end++;
        const bool audio = l->tag[row] == VX_MODALITY_AUDIO;
        if (out) out[count] = (run){ audio, row, next[audio], end - row };
        next[audio] += end - row;
        count++;
        row = end;
    }
    r->visual_rows = next[0];
    r->sound_rows = next[1];
    return count;
}

static int64_t position_of(const float *t, int64_t count, float value)
{
    int64_t lo = 0, hi = count;
    while (lo < hi) {
        int64_t middle = lo + (hi - lo) / 2;
        if (t[middle] < value) lo = middle + 1;
        else hi = middle;
    }
    return lo;
}

// The distinct timesteps of all evaluations, ascending, and where each clock finds its own.
static vx_status collect_timesteps(vx_denoiser_request *r, const vx_denoiser_params *p)
{
    r->t = vx_alloc_array((size_t)p->evaluations, VX_CLOCKS * sizeof *r->t);
    r->clock = vx_alloc_array((size_t)p->evaluations, sizeof *r->clock);
    if (!r->t || !r->clock) return vx_fail(VX_ERR_MEMORY, "no memory for the timesteps");
    float distinct[VX_CLOCKS];
    int index[VX_CLOCKS];
    for (int64_t k = 0; k < p->evaluations; k++) {
        if (!isfinite(p->t_video[k]) || !isfinite(p->t_audio[k]))
            return vx_fail(VX_ERR_VALUE, "timesteps %g and %g of evaluation %lld", (double)p->t_video[k], (double)p->t_audio[k],
                           (long long)k);
        int count = vx_layout_timesteps(r->layout, p->t_video[k], p->t_audio[k], distinct, index);
        for (int i = 0; i < count; i++) {
            int64_t at = position_of(r->t, r->timesteps, distinct[i]);
            if (at < r->timesteps && r->t[at] == distinct[i]) continue;
            memmove(r->t + at + 1, r->t + at, (size_t)(r->timesteps - at) * sizeof *r->t);
            r->t[at] = distinct[i];
            r->timesteps++;
        }
    }
    for (int64_t k = 0; k < p->evaluations; k++) {
        vx_layout_timesteps(r->layout, p->t_video[k], p->t_audio[k], distinct, index);
        for (int c = 0; c < VX_CLOCKS; c++)
            r->clock[k][c] = index[c] < 0 ? 0 : (int32_t)position_of(r->t, r->timesteps, distinct[index[c]]);
    }
    return vx_ok();
}

static vx_status check_params(const vx_denoiser *d, const vx_denoiser_params *p)
{
    if (p->act != VX_BF16 && p->act != VX_F32)
        return vx_fail(VX_ERR_DTYPE,
                       "denoiser: activations are BF16 or F32, not %s: f16 ends at 65504 and the residual stream does not",
                       vx_dtype_name(p->act));
    const vx_tensor e = p->prompt_embeds;
    if (e.rank != 2 || e.shape[0] != p->layout->text_rows || e.shape[1] != d->config.text_dim) {
        char text[96];
        return vx_fail(VX_ERR_SHAPE, "denoiser: prompt embeddings are %s, expected [%lld,%lld]", vx_shape_text(text, e),
                       (long long)p->layout->text_rows, (long long)d->config.text_dim);
    }
    if (p->evaluations < 1) return vx_fail(VX_ERR_VALUE, "denoiser: %lld evaluations", (long long)p->evaluations);
    return vx_ok();
}

static vx_status take_host(vx_denoiser_request *r)
{
    const vx_layout *l = r->layout;
    const int64_t runs = find_runs(r, NULL);
    r->stretch_bytes = sizeof *r->s + (size_t)runs * sizeof *r->s->runs;
    r->s = vx_alloc_array(1, r->stretch_bytes);
    r->host_map = vx_alloc_array((size_t)l->rows, 2 * sizeof *r->host_map);
    r->host_flags = vx_alloc_array((size_t)flag_count(r->denoiser), sizeof *r->host_flags);
    if (!r->s || !r->host_map || !r->host_flags)
        return vx_fail(VX_ERR_MEMORY, "no memory for a denoiser request of %lld rows", (long long)l->rows);
    r->s->denoiser = r->denoiser;
    r->s->stamp = r->denoiser->stamp;
    r->s->text_rows = l->text_rows;
    r->s->video_begin = l->video_begin;
    r->s->audio_begin = l->audio_begin;
    r->s->run_count = find_runs(r, r->s->runs);
    return vx_ok();
}

static void take_arena(vx_denoiser_request *r, vx_arena *arena)
{
    const vx_denoiser_config *k = &r->denoiser->config;
    const int64_t rows = r->layout->rows, hidden = k->hidden, rotary = VX_ROPE_AXES * VX_ROPE_FREQS;
    stretch *s = r->s;
    s->text = vx_arena_tensor(arena, r->act, r->layout->text_rows, hidden);
    s->cos = vx_arena_tensor(arena, r->act, rows, rotary);
    s->sin = vx_arena_tensor(arena, r->act, rows, rotary);
    s->modulation = vx_arena_tensor(arena, r->act, k->layers, r->timesteps * VX_MODALITIES, VX_MODULATIONS, hidden);
    s->head = vx_arena_tensor(arena, r->act, r->timesteps, 2, hidden);
    s->map = vx_arena_tensor(arena, VX_I32, rows);
    s->time_map = vx_arena_tensor(arena, VX_I32, rows);
    s->flags = vx_arena_tensor(arena, VX_I32, flag_count(r->denoiser));
    s->buffers.x = vx_arena_tensor(arena, r->act, rows, hidden);
    s->buffers.narrow = vx_arena_tensor(arena, r->act, vx_denoiser_narrow(k, rows));
    // The widest of: a block, the prompt cast to act, a chunk of the heads' input in f32.
    int64_t wide = vx_max_i64(vx_denoiser_wide(k, rows), r->layout->text_rows * k->text_dim);
    wide = vx_max_i64(wide, 2 * vx_min_i64(rows, VX_DENOISER_CHUNK) * hidden);
    s->buffers.wide = vx_arena_tensor(arena, r->act, wide);
}

static vx_status clear_flags(vx_denoiser_request *r)
{
    memset(r->host_flags, 0, (size_t)flag_count(r->denoiser) * sizeof *r->host_flags);
    return vx_upload(r->dev, r->s->flags, r->host_flags);
}

// Text rows through the projection and the refiner: they depend on the prompt alone (specification 1.3).
static vx_status refine_text(vx_denoiser_request *r, vx_tensor prompt)
{
    const vx_denoiser *d = r->denoiser;
    const vx_denoiser_config *k = &d->config;
    const vx_tensor text = r->s->text, flags = r->s->flags, wide = r->s->buffers.wide;
    vx_device *dev = r->dev;
    const int64_t rows = r->layout->text_rows;
    vx_tensor in = prompt;
    if (prompt.dtype != r->act) {
        in = vx_tensor_slice(wide, 0, 0, rows * k->text_dim);
        in = vx_tensor_reshape(in, 2, (const int64_t[]){ rows, k->text_dim });
        VX_TRY(vx_copy(dev, in, prompt));
    }
    VX_TRY(vx_linear(dev, text, in, &d->condition));
    const vx_denoiser_buffers b = { text, r->s->buffers.narrow, wide };
    for (int64_t i = 0; i < k->refiner_layers; i++)
        VX_TRY_IN(vx_denoiser_run_plain(dev, k, &d->refiner[i], &b), "refiner block %lld", (long long)i);
    VX_TRY(vx_rms_norm(dev, text, text, d->refiner_norm, k->final_norm_eps, VX_NORM_ROUND_ONCE));
    VX_TRY(clear_flags(r));
    VX_TRY(vx_mark_not_finite(dev, flags, 0, text));
    VX_TRY(vx_download(dev, r->host_flags, flags));
    if (r->host_flags[0]) return vx_fail(VX_ERR_NOT_FINITE, "denoiser: the text rows are not finite after the token refiner");
    return vx_ok();
}

static vx_status prepare(vx_denoiser_request *r, vx_arena *arena, const vx_denoiser_params *p)
{
    VX_TRY(check_params(r->denoiser, p));
    VX_TRY(collect_timesteps(r, p));
    VX_TRY(take_host(r));
    take_arena(r, arena);
    VX_TRY(refine_text(r, p->prompt_embeds));
    const vx_tensor modulation = r->s->modulation, head = r->s->head;
    const vx_denoiser_tables tables = { r->denoiser->stamp, r->t, r->timesteps, modulation, head };
    r->reuse.table_bytes = vx_tensor_bytes(modulation) + vx_tensor_bytes(head);
    VX_TRY(vx_denoiser_rotary(r->dev, r->denoiser, r->layout, r->s->cos, r->s->sin));
    VX_TRY(vx_denoiser_recall(r->keep, &tables, &r->reuse.tables));
    if (!r->reuse.tables)
        VX_TRY_IN(vx_denoiser_modulation(r->dev, arena, r->denoiser, r->t, r->timesteps, modulation, head), "modulation");
    if (vx_device_is_plan(r->dev)) return vx_ok();
    VX_TRY(vx_component_check(r->denoiser->component));
    // Not before the check: a file that shrank reads as zeros.
    return r->reuse.tables || !p->keep_tables ? vx_ok() : vx_denoiser_leave(r->keep, &tables);
}

vx_status vx_denoiser_prepare(vx_denoiser_request **out, const vx_denoiser *denoiser, vx_device *dev, vx_arena *arena,
                              const vx_denoiser_params *params)
{
    *out = NULL;
    vx_denoiser_request *r = vx_alloc_array(1, sizeof *r);
    VX_NEED_MEMORY(r, "a denoiser request");
    *r = (vx_denoiser_request){ .denoiser = denoiser,
                                .dev = dev,
                                .layout = params->layout,
                                .act = params->act,
                                .evaluations = params->evaluations,
                                .keep = vx_denoiser_keep_of(params->keep, dev),
                                .block_done = params->block_done,
                                .user = params->user };
    const size_t mark = vx_arena_mark(arena);
    vx_status s = prepare(r, arena, params);
    if (s.code != VX_OK) {
        vx_arena_reset(arena, mark);
        vx_denoiser_finish(&r);
        return s;
    }
    *out = r;
    return s;
}

void vx_denoiser_finish(vx_denoiser_request **request)
{
    if (!request || !*request) return;
    vx_denoiser_request *r = *request;
    vx_device_record_free(r->dev, &r->recording);
    vx_free(r->s);
    vx_free(r->t);
    vx_free(r->clock);
    vx_free(r->host_map);
    vx_free(r->host_flags);
    vx_free(r);
    *request = NULL;
}

vx_denoiser_reuse vx_denoiser_reused(const vx_denoiser_request *request)
{
    return request->reuse;
}

// ---- one evaluation ----

static vx_status check_rows(const char *what, vx_tensor t, int64_t rows, int64_t columns)
{
    if (t.rank != 2 || t.shape[0] != rows || t.shape[1] != columns) {
        char text[96];
        return vx_fail(VX_ERR_SHAPE, "denoiser: %s is %s, expected [%lld,%lld]", what, vx_shape_text(text, t), (long long)rows,
                       (long long)columns);
    }
    if (t.dtype != VX_F32) return vx_fail(VX_ERR_DTYPE, "denoiser: %s is %s, expected F32", what, vx_dtype_name(t.dtype));
    return vx_ok();
}

// Which table row each row of the sequence takes at evaluation k: blocks have a row per timestep and modality, the head one
// per timestep.
static vx_status map_rows(vx_denoiser_request *r, int64_t k)
{
    const vx_layout *l = r->layout;
    int32_t *map = r->host_map, *time_map = r->host_map + l->rows;
    for (int64_t i = 0; i < l->rows; i++) {
        time_map[i] = r->clock[k][l->clock[i]];
        map[i] = time_map[i] * VX_MODALITIES + l->tag[i];
    }
    VX_TRY(vx_upload(r->dev, r->s->map, map));
    return vx_upload(r->dev, r->s->time_map, time_map);
}

// The patch projections are f32 and rounded once on their way into the sequence.
static vx_status embed(vx_device *dev, const stretch *s)
{
    const vx_denoiser *d = s->denoiser;
    vx_tensor x = s->buffers.x;
    VX_TRY(vx_copy(dev, vx_tensor_slice(x, 0, 0, s->text_rows), s->text));
    for (int64_t i = 0; i < s->run_count; i++) {
        const run *n = &s->runs[i];
        vx_tensor in = vx_tensor_slice(n->audio ? s->audio_rows : s->video_rows, 0, n->source, n->source + n->rows);
        vx_tensor out = vx_tensor_slice(x, 0, n->packed, n->packed + n->rows);
        VX_TRY(vx_linear(dev, out, in, n->audio ? &d->audio_patch : &d->video_patch));
    }
    return vx_mark_not_finite(dev, s->flags, 0, x);
}

// Only what the loop reads: a block's modulation weights are a third of it and were used up before.
static void prefetch_block(vx_device *dev, const vx_denoiser *d, int64_t block)
{
    static const char *const parts[] = { "norm", "attn.", "mlp." };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "blocks.%lld.%s", (long long)block, parts[i]);
        vx_component_prefetch(d->component, dev, prefix);
    }
}

typedef struct progress {
    void (*block_done)(void *user, int64_t block); // NULL: nobody asks
    void *user;
} progress;

static vx_status run_blocks(vx_device *dev, const stretch *s, progress told)
{
    const vx_denoiser *d = s->denoiser;
    const int64_t layers = d->config.layers;
    vx_denoiser_rows rows = { vx_tensor_row(s->modulation, s->begin), s->map, s->cos, s->sin }, next = rows;
    if (s->begin == 0) VX_TRY_IN(vx_denoiser_enter(dev, &d->config, &d->blocks[0], &s->buffers, &rows), "block 0");
    for (int64_t i = s->begin; i < s->end; i++, rows = next) {
        prefetch_block(dev, d, (i + 1) % layers);
        const vx_denoiser_block *after = i + 1 < layers ? &d->blocks[i + 1] : NULL;
        if (after) next.modulation = vx_tensor_row(s->modulation, i + 1);
        VX_TRY_IN(vx_denoiser_run_block(dev, &d->config, &d->blocks[i], &s->buffers, &rows, after, &next), "block %lld",
                  (long long)i);
        VX_TRY(vx_mark_not_finite(dev, s->flags, 1 + i, s->buffers.x));
        if (told.block_done) told.block_done(told.user, i);
    }
    return vx_ok();
}

// Final norm, modulation without modality, and an f32 head, of the target rows from `begin` on.
static vx_status head(vx_device *dev, const stretch *s, int64_t begin, const vx_weight *weight, vx_tensor velocity)
{
    const vx_denoiser *d = s->denoiser;
    const int64_t rows = velocity.shape[0], hidden = d->config.hidden;
    vx_tensor shift = vx_denoiser_part(s->head, 0), scale = vx_denoiser_part(s->head, 1);
    for (int64_t at = 0; at < rows; at += VX_DENOISER_CHUNK) {
        const int64_t n = vx_min_i64(VX_DENOISER_CHUNK, rows - at), row = begin + at;
        vx_tensor x = vx_tensor_slice(s->buffers.x, 0, row, row + n);
        vx_tensor h = vx_tensor_of(s->buffers.narrow.data, x.dtype, n, hidden);
        vx_tensor map = vx_tensor_slice(s->time_map, 0, row, row + n);
        VX_TRY(vx_rms_norm_modulate(dev, h, x, d->final_norm, shift, scale, map, d->config.final_norm_eps));
        if (h.dtype != VX_F32) {
            vx_tensor wide = vx_tensor_of(s->buffers.wide.data, VX_F32, n, hidden);
            VX_TRY(vx_copy(dev, wide, h));
            h = wide;
        }
        VX_TRY(vx_linear(dev, vx_tensor_slice(velocity, 0, at, at + n), h, weight));
    }
    return vx_mark_not_finite(dev, s->flags, flag_count(d) - 1, velocity);
}

static vx_status heads(vx_device *dev, const stretch *s, const vx_weight *video, const vx_weight *audio)
{
    VX_TRY_IN(head(dev, s, s->video_begin, video, s->video_velocity), "video head");
    VX_TRY_IN(head(dev, s, s->audio_begin, audio, s->audio_velocity), "audio head");
    return vx_ok();
}

static vx_status check_finite(vx_denoiser_request *r)
{
    VX_TRY(vx_download(r->dev, r->host_flags, r->s->flags));
    const int64_t last = flag_count(r->denoiser) - 1;
    for (int64_t i = 0; i <= last; i++) {
        if (!r->host_flags[i]) continue;
        if (i == 0) return vx_fail(VX_ERR_NOT_FINITE, "denoiser: the packed input is not finite");
        if (i == last) return vx_fail(VX_ERR_NOT_FINITE, "denoiser: the velocity is not finite after the head");
        return vx_fail(VX_ERR_NOT_FINITE, "denoiser: the residual stream is not finite after block %lld", (long long)(i - 1));
    }
    return vx_ok();
}

static vx_status check_evaluation(const vx_denoiser_request *r, int64_t k, vx_tensor video_rows, vx_tensor audio_rows,
                                  vx_tensor video_velocity, vx_tensor audio_velocity)
{
    const vx_denoiser_config *c = &r->denoiser->config;
    if (k < 0 || k >= r->evaluations)
        return vx_fail(VX_ERR_INTERNAL, "denoiser: evaluation %lld of %lld", (long long)k, (long long)r->evaluations);
    VX_TRY(check_rows("video_rows", video_rows, r->visual_rows, 4 * c->latent_channels));
    VX_TRY(check_rows("audio_rows", audio_rows, r->sound_rows, c->audio_channels));
    VX_TRY(check_rows("video_velocity", video_velocity, r->layout->video_rows, 4 * c->latent_channels));
    return check_rows("audio_velocity", audio_velocity, r->layout->audio_rows, c->audio_channels);
}

static vx_status operators(vx_device *dev, const stretch *s, progress told)
{
    if (s->begin == 0) VX_TRY_IN(embed(dev, s), "embedding");
    VX_TRY(run_blocks(dev, s, told));
    const bool last = s->end == s->denoiser->config.layers;
    return last && s->video_head ? heads(dev, s, s->video_head, s->audio_head) : vx_ok();
}

// Somebody who is told of every block wants every block to be run.
static vx_status run_stretch(vx_denoiser_request *r, bool *replayed)
{
    const progress told = { r->block_done, r->user };
    *replayed = false;
    if (told.block_done) return operators(r->dev, r->s, told);
    vx_recording **slot = r->keep ? vx_denoiser_keep_slot(r->keep) : &r->recording;
    VX_TRY(vx_device_record(r->dev, slot, r->s, r->stretch_bytes, replayed));
    return *replayed ? vx_ok() : vx_device_record_end(r->dev, slot, operators(r->dev, r->s, told));
}

static vx_status run_stretches(vx_denoiser_request *r)
{
    const int64_t layers = r->denoiser->config.layers;
    bool all = true, replayed;
    for (int64_t begin = 0; begin < layers; begin += STRETCH) {
        r->s->begin = begin;
        r->s->end = vx_min_i64(begin + STRETCH, layers);
        VX_TRY(run_stretch(r, &replayed));
        all = all && replayed;
    }
    r->reuse.replayed += all;
    return vx_ok();
}

vx_status vx_denoiser_evaluate(vx_denoiser_request *request, int64_t k, vx_tensor video_rows, vx_tensor audio_rows,
                               vx_tensor video_velocity, vx_tensor audio_velocity)
{
    vx_denoiser_request *r = request;
    const vx_denoiser *d = r->denoiser;
    VX_TRY(check_evaluation(r, k, video_rows, audio_rows, video_velocity, audio_velocity));
    VX_TRY(clear_flags(r));
    VX_TRY(map_rows(r, k));
    const vx_weight *video = vx_denoiser_head_weight(d, false, k), *audio = vx_denoiser_head_weight(d, true, k);
    const bool banks = video != &d->video_out || audio != &d->audio_out;
    stretch *s = r->s;
    s->video_rows = video_rows;
    s->audio_rows = audio_rows;
    s->video_velocity = video_velocity;
    s->audio_velocity = audio_velocity;
    s->video_head = banks ? NULL : video;
    s->audio_head = banks ? NULL : audio;
    VX_TRY(run_stretches(r));
    if (banks) VX_TRY(heads(r->dev, s, video, audio));
    if (!vx_device_is_plan(r->dev)) VX_TRY(vx_component_check(d->component));
    return check_finite(r);
}
