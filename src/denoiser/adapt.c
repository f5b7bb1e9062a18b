// Adapters on the weights of an open denoiser: beside them, as branches of the products, or merged into copies that are owned
// here. The weights of the files are never written to.
#include "denoiser/adapt.h"

#include <string.h>

#include "base/alloc.h"
#include "base/pool.h"
#include "tensor/quant.h"

typedef struct job {
    vx_denoiser *d;
    const vx_denoiser_adapt_params *p;
    vx_denoiser_adapter_use *use;
    vx_pool *pool; // merging
    vx_tensor basis, mean;
    bool pruned;
} job;

// ---- modules ----

static vx_adapter_target target_of(vx_adapter_kind kind, bool refiner, int64_t block, const vx_weight *w)
{
    return (vx_adapter_target){ .module = { kind, refiner, (int)block }, .n = w->n, .k = w->k };
}

static vx_status block_modules(const vx_denoiser *d, vx_denoiser_block *b, bool refiner, int64_t index, vx_denoiser_module_fn fn,
                               void *user)
{
    vx_adapter_target t = target_of(VX_MODULE_QKV, refiner, index, &b->qkv.weight);
    t.heads = d->config.heads;
    t.head_dim = d->config.head_dim;
    t.head_stride = b->qkv.head_stride;
    memcpy(t.offset, b->qkv.offset, sizeof t.offset);
    VX_TRY(fn(user, &t, &b->qkv.weight));
    t = target_of(VX_MODULE_OUT, refiner, index, &b->out_proj);
    VX_TRY(fn(user, &t, &b->out_proj));
    t = target_of(VX_MODULE_FC1, refiner, index, &b->fc1);
    t.gate_first = b->gate_first;
    VX_TRY(fn(user, &t, &b->fc1));
    t = target_of(VX_MODULE_FC2, refiner, index, &b->fc2);
    VX_TRY(fn(user, &t, &b->fc2));
    if (refiner) return vx_ok();
    t = target_of(VX_MODULE_ADALN, false, index, &b->adaln);
    return fn(user, &t, &b->adaln);
}

vx_status vx_denoiser_each_module(vx_denoiser *d, vx_denoiser_module_fn fn, void *user)
{
    const struct {
        vx_adapter_kind kind;
        vx_weight *weight;
    } single[] = {
        { VX_MODULE_VIDEO_PATCH, &d->video_patch }, { VX_MODULE_AUDIO_PATCH, &d->audio_patch },
        { VX_MODULE_CONDITION, &d->condition },     { VX_MODULE_TIME_IN, &d->time_in },
        { VX_MODULE_TIME_OUT, &d->time_out },       { VX_MODULE_FINAL_ADALN, &d->final_adaln },
        { VX_MODULE_VIDEO_OUT, &d->video_out },     { VX_MODULE_AUDIO_OUT, &d->audio_out },
    };
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
        if (single[i].weight->segments == 0) continue; // a pruned file has no time embedder
        const vx_adapter_target t = target_of(single[i].kind, false, 0, single[i].weight);
        VX_TRY(fn(user, &t, single[i].weight));
    }
    for (int64_t i = 0; i < d->config.refiner_layers && i < VX_ADAPTER_BLOCKS; i++)
        VX_TRY(block_modules(d, &d->refiner[i], true, i, fn, user));
    for (int64_t i = 0; i < d->config.layers && i < VX_ADAPTER_BLOCKS; i++)
        VX_TRY(block_modules(d, &d->blocks[i], false, i, fn, user));
    return vx_ok();
}

static vx_status count_module(void *user, const vx_adapter_target *target, vx_weight *weight)
{
    (void)target, (void)weight;
    ++*(int *)user;
    return vx_ok();
}

// ---- numbers ----

void vx_denoiser_widen(float *to, vx_tensor from, int64_t first, int64_t count)
{
    const float *f = from.data;
    const uint16_t *h = from.data;
    for (int64_t i = 0; i < count; i++)
        to[i] = from.dtype == VX_F32    ? f[first + i]
                : from.dtype == VX_BF16 ? vx_bf16_to_f32(h[first + i])
                                        : vx_f16_to_f32(h[first + i]);
}

void vx_denoiser_round(vx_tensor to, int64_t first, const float *from, int64_t count)
{
    float *f = to.data;
    uint16_t *h = to.data;
    for (int64_t i = 0; i < count; i++) {
        if (to.dtype == VX_F32) f[first + i] = from[i];
        else h[first + i] = to.dtype == VX_BF16 ? vx_f32_to_bf16(from[i]) : vx_f32_to_f16(from[i]);
    }
}

// ---- merging ----

// W' = round(W + sum over adapters of (strength * difference + scale * b a)), in f32, one row a piece.
typedef struct merge {
    const job *job;
    const vx_adapter_target *target;
    const vx_branch *branch; // to be merged; their down factors in f32
    int branches;
    bool difference;
    vx_weight_segment from;
    vx_tensor to;
    float *rows; // of k numbers, two for each worker
} merge;

static void merge_row(void *ctx, int64_t piece, int worker)
{
    const merge *m = ctx;
    const int64_t k = m->target->k, column = m->from.column + piece;
    float *row = m->rows + 2 * worker * k, *delta = row + k;
    vx_denoiser_widen(row, m->from.weight, piece * m->from.weight.stride[0], k);
    for (int i = 0; m->difference && i < m->job->p->count; i++)
        vx_adapter_add_difference(m->job->p->adapter[i], m->target, column, row);
    for (int i = 0; i < m->branches; i++) {
        const vx_branch *b = &m->branch[i];
        const int64_t from = column - b->column, rank = b->b.shape[1];
        if (from < 0 || from >= b->b.shape[0]) continue;
        memset(delta, 0, (size_t)k * sizeof *delta);
        for (int64_t r = 0; r < rank; r++) {
            float up;
            vx_denoiser_widen(&up, b->b, from * rank + r, 1);
            if (up == 0) continue; // rows that stand for another of q, k and v
            const float *a = vx_f32_of(b->a) + r * k;
            for (int64_t j = 0; j < k; j++) delta[j] += up * a[j];
        }
        for (int64_t j = 0; j < k; j++) row[j] += b->scale * delta[j];
    }
    vx_denoiser_round(m->to, piece * k, row, k);
}

static vx_status merge_segment(merge *m, vx_weight_segment *s, vx_adapter_memory *memory)
{
    m->from = *s;
    m->to = vx_tensor_make(NULL, s->weight.dtype, 2, (const int64_t[]){ s->weight.shape[0], m->target->k });
    VX_TRY(vx_adapter_take(memory, vx_tensor_bytes(m->to), &m->to.data));
    if (m->to.data) vx_pool_run(m->job->pool, s->weight.shape[0], merge_row, m);
    s->weight = m->to;
    return vx_ok();
}

static vx_status merge_loaded(merge *m, vx_weight *w, vx_adapter_memory *memory)
{
    vx_branch *widened = vx_alloc_array((size_t)m->branches + 1, sizeof *widened);
    m->rows = vx_alloc_array(2 * (size_t)vx_pool_threads(m->job->pool), (size_t)m->target->k * sizeof(float));
    vx_status s = widened && m->rows ? vx_ok() : vx_no_memory("to merge adapters");
    for (int i = 0; s.code == VX_OK && i < m->branches; i++) {
        const vx_tensor a = m->branch[i].a;
        widened[i] = m->branch[i];
        widened[i].a = vx_tensor_of(vx_alloc((size_t)vx_tensor_count(a) * sizeof(float)), VX_F32, a.shape[0], a.shape[1]);
        if (!widened[i].a.data) s = vx_no_memory("to merge adapters");
        else vx_denoiser_widen(widened[i].a.data, a, 0, vx_tensor_count(a));
    }
    m->branch = widened;
    for (int i = 0; s.code == VX_OK && i < w->segments; i++) s = merge_segment(m, &w->segment[i], memory);
    for (int i = 0; widened && i < m->branches; i++) vx_free(widened[i].a.data);
    vx_free(widened);
    vx_free(m->rows);
    return s;
}

static vx_status merge_module(const job *j, const vx_adapter_target *t, vx_weight *w, int branches, bool difference)
{
    char name[64];
    for (int i = 0; i < w->segments; i++)
        if (w->segment[i].quant.kind != VX_QUANT_NONE)
            return vx_fail_remedy(VX_ERR_UNAVAILABLE, "run it beside them: --lora-mode branch",
                                  "an adapter cannot be merged into the %s weights of %s%s",
                                  vx_quant_name(&w->segment[i].quant, w->segment[i].weight.dtype),
                                  vx_adapter_module_name(name, t->module),
                                  difference ? " (its file has differences of whole weights)" : "");
    merge m = { .job = j, .target = t, .branch = w->branch, .branches = branches, .difference = difference };
    vx_adapter_memory *memory = &j->d->adapted->memory;
    if (memory->load) return merge_loaded(&m, w, memory);
    for (int i = 0; i < w->segments; i++) VX_TRY(merge_segment(&m, &w->segment[i], memory));
    return vx_ok();
}

// ---- one module ----

// Biases become f32: what is added is not rounded to the file's format.
static vx_status change_bias(const job *j, const vx_adapter_target *t, vx_weight *w)
{
    vx_adapter_memory *memory = &j->d->adapted->memory;
    float *all = memory->load ? vx_alloc_array((size_t)t->n, sizeof *all) : NULL;
    if (memory->load && !all) return vx_no_memory("for a bias");
    for (int i = 0; all && i < j->p->count; i++) vx_adapter_add_bias(j->p->adapter[i], t, all);
    vx_status s = vx_ok();
    for (int i = 0; s.code == VX_OK && i < w->segments; i++) {
        vx_weight_segment *seg = &w->segment[i];
        const int64_t rows = seg->weight.shape[0];
        vx_tensor bias = vx_tensor_of(NULL, VX_F32, rows);
        s = vx_adapter_take(memory, vx_tensor_bytes(bias), &bias.data);
        if (bias.data && seg->bias.rank) vx_denoiser_widen(bias.data, seg->bias, 0, rows);
        for (int64_t r = 0; bias.data && r < rows; r++) vx_f32_of(bias)[r] += all[seg->column + r];
        seg->bias = bias;
    }
    vx_free(all);
    return s;
}

static void save(struct vx_denoiser_adapted *a, vx_weight *w)
{
    a->saved[a->saves].at = w;
    a->saved[a->saves++].original = *w;
}

static vx_status adapt_module(void *user, const vx_adapter_target *given, vx_weight *w)
{
    const job *j = user;
    struct vx_denoiser_adapted *a = j->d->adapted;
    vx_adapter_target t = *given;
    const bool adaln = t.module.kind == VX_MODULE_ADALN || t.module.kind == VX_MODULE_FINAL_ADALN;
    t.pruned = adaln && j->pruned;
    if (t.pruned && j->basis.rank && j->basis.shape[0] == t.k) {
        t.basis = vx_f32_of(j->basis);
        t.mean = vx_f32_of(j->mean);
        t.full_k = j->basis.shape[1];
    }
    vx_branch *mine = a->branch + a->branches;
    bool bias = false, difference = false;
    int branches = 0;
    for (int i = 0; i < j->p->count; i++) {
        vx_adapter_addition add;
        VX_TRY(vx_adapter_add(j->p->adapter[i], &t, &a->memory, &add));
        memcpy(mine + branches, add.branch, (size_t)add.branches * sizeof *mine);
        branches += add.branches;
        bias = bias || add.bias;
        difference = difference || add.difference;
        j->use[i].left_out += add.left_out;
        j->use[i].projected += add.projected;
        j->use[i].merged += add.difference || (j->p->merge && add.branches > 0);
    }
    if (branches == 0 && !bias && !difference) return vx_ok();
    save(a, w);
    w->branch = mine;
    w->branches = branches;
    if (bias) VX_TRY(change_bias(j, &t, w));
    const bool merge_all = j->p->merge && branches > 0;
    if (merge_all || difference) VX_TRY(merge_module(j, &t, w, merge_all ? branches : 0, difference));
    if (merge_all) {
        w->branch = NULL;
        w->branches = 0;
    } else a->branches += branches;
    return vx_ok();
}

// ---- all of them ----

// A pruned file may say how its AdaLN's input came from the full one.
static vx_status find_basis(job *j)
{
    vx_component *c = j->d->component;
    int rank;
    int64_t shape[VX_MAX_RANK];
    j->pruned = vx_component_has(c, "adaln_t_table");
    vx_component_shape(c, "adaln_basis", &rank, shape);
    if (!j->pruned || rank != 2 || !vx_component_has(c, "adaln_mean")) return vx_ok();
    VX_TRY(vx_component_get(c, "adaln_basis", VX_F32, &j->basis, shape[0], shape[1]));
    return vx_component_get(c, "adaln_mean", VX_F32, &j->mean, shape[1]);
}

static vx_status take_tables(vx_denoiser *d, int adapters)
{
    struct vx_denoiser_adapted *a = d->adapted;
    int modules = 0;
    VX_TRY(vx_denoiser_each_module(d, count_module, &modules));
    a->saved = vx_alloc_array((size_t)modules, sizeof *a->saved);
    a->branch = vx_alloc_array((size_t)modules * (size_t)adapters * VX_ADAPTER_MOST, sizeof *a->branch);
    return a->saved && a->branch ? vx_ok() : vx_no_memory("for adapters");
}

static vx_status adapt(job *j)
{
    VX_TRY(take_tables(j->d, j->p->count));
    VX_TRY(find_basis(j));
    VX_TRY(vx_denoiser_each_module(j->d, adapt_module, j));
    for (int i = 0; i < j->p->count; i++) VX_TRY(vx_adapter_finish(j->p->adapter[i], &j->use[i].unused));
    VX_TRY(vx_denoiser_mix_heads(j->d, j->p));
    if (!j->p->load) return vx_ok();
    for (int i = 0; i < j->p->count; i++) VX_TRY(vx_adapter_check(j->p->adapter[i]));
    return vx_component_check(j->d->component);
}

vx_status vx_denoiser_adapt(vx_denoiser *d, vx_device *dev, const vx_denoiser_adapt_params *params, vx_denoiser_adapter_use *use,
                            uint64_t *bytes)
{
    vx_denoiser_unadapt(d, dev);
    *bytes = 0;
    if (params->count == 0) return vx_ok();
    memset(use, 0, (size_t)params->count * sizeof *use);
    d->adapted = vx_alloc_array(1, sizeof *d->adapted);
    VX_NEED_MEMORY(d->adapted, "adapters");
    d->stamp = vx_denoiser_stamp();
    d->adapted->memory.load = params->load;
    job j = { .d = d, .p = params, .use = use };
    vx_status s = params->load ? vx_pool_create(&j.pool, params->threads) : vx_ok();
    if (s.code == VX_OK) s = adapt(&j);
    vx_pool_destroy(&j.pool);
    *bytes = d->adapted->memory.bytes;
    if (s.code != VX_OK) vx_denoiser_unadapt(d, dev);
    return s;
}

void vx_denoiser_unadapt(vx_denoiser *d, vx_device *dev)
{
    struct vx_denoiser_adapted *a = d->adapted;
    if (!a) return;
    d->stamp = vx_denoiser_stamp();
    for (int i = 0; i < a->saves; i++) *a->saved[i].at = a->saved[i].original;
    vx_adapter_memory_free(&a->memory, dev);
    for (int i = 0; i < 2; i++) vx_free(a->head[i]);
    vx_free(a->saved);
    vx_free(a->branch);
    vx_free(a);
    d->adapted = NULL;
}
