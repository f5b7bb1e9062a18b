// What an adapter adds to one module of the base, in the base's order of rows (checkpoints specification 5.3 to 5.6).
#include "weights/adapter_inside.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "weights/foreign.h"

// ---- memory ----

vx_status vx_adapter_take(vx_adapter_memory *m, size_t bytes, void **out)
{
    *out = NULL;
    m->bytes += bytes;
    if (!m->load) return vx_ok();
    if (m->count == m->room) {
        const int room = m->room ? 2 * m->room : 64;
        void **block = vx_realloc(m->block, (size_t)room * sizeof *block);
        if (block) m->block = block;
        size_t *size = vx_realloc(m->size, (size_t)room * sizeof *size);
        if (size) m->size = size;
        if (!block || !size) return vx_no_memory("for an adapter");
        m->room = room;
    }
    VX_TRY_IN(vx_pages_alloc(out, bytes), "an adapter");
    m->block[m->count] = *out;
    m->size[m->count++] = bytes;
    return vx_ok();
}

void vx_adapter_memory_free(vx_adapter_memory *m, vx_device *dev)
{
    for (int i = 0; i < m->count; i++) {
        if (dev) vx_device_forget(dev, m->block[i], m->size[i]);
        vx_pages_free(m->block[i], m->size[i]);
    }
    vx_free(m->block);
    vx_free(m->size);
    *m = (vx_adapter_memory){ 0 };
}

// ---- rows ----

static bool base_is_interleaved(const vx_adapter_target *t)
{
    return t->module.kind == VX_MODULE_QKV && t->head_stride != t->head_dim;
}

static int64_t file_rows(const vx_adapter_slot *s, const vx_adapter_target *t)
{
    return s->part == VX_PART_WHOLE ? t->n : t->n / 3;
}

// The file's row of the base's output column; -1: the file has none (another of q, k, v).
static int64_t file_row(const vx_adapter_slot *s, const vx_adapter_target *t, vx_adapter_role role, int64_t column)
{
    if (t->module.kind == VX_MODULE_FC1) return s->value_first[role] == t->gate_first ? (column + t->n / 2) % t->n : column;
    if (t->module.kind != VX_MODULE_QKV) return column;
    const int64_t width = t->heads * t->head_dim, group = 3 * t->head_dim;
    const bool interleaved = base_is_interleaved(t);
    const int64_t which = interleaved ? column % group / t->head_dim : column / width;
    const int64_t row = interleaved ? column / group * t->head_dim + column % t->head_dim : column % width; // among q, k or v
    if (s->part != VX_PART_WHOLE) return (int64_t)s->part == which ? row : -1;
    return s->interleaved ? row / t->head_dim * group + which * t->head_dim + row % t->head_dim : which * width + row;
}

static bool same_order(const vx_adapter_slot *s, const vx_adapter_target *t, vx_adapter_role role)
{
    if (t->module.kind == VX_MODULE_FC1) return s->value_first[role] != t->gate_first;
    if (t->module.kind != VX_MODULE_QKV) return true;
    return s->part == VX_PART_WHOLE ? s->interleaved == base_is_interleaved(t) : !base_is_interleaved(t);
}

static size_t element(vx_dtype t)
{
    return (size_t)vx_dtype_bits(t) / 8;
}

static vx_tensor view(const vx_safetensors_entry *e)
{
    return vx_tensor_make((void *)(uintptr_t)e->data, e->dtype, e->rank, e->shape);
}

static bool aligned(const vx_safetensors_entry *e)
{
    return (uintptr_t)e->data % element(e->dtype) == 0;
}

// ---- checks ----

static bool is_adaln(const vx_adapter_target *t)
{
    return t->module.kind == VX_MODULE_ADALN || t->module.kind == VX_MODULE_FINAL_ADALN;
}

static vx_status misfit(const vx_adapter *a, const vx_adapter_slot *s, vx_adapter_role role, const vx_adapter_target *t)
{
    char where[320], shape[96], name[64];
    const char *remedy =
        is_adaln(t) ? "pruned and full checkpoints have adapters of their own" : "the adapter was made for another model";
    return vx_fail_remedy(VX_ERR_TENSOR_SHAPE, remedy, "%s is %s, but %s of this model is [%" PRId64 ",%" PRId64 "]",
                          vx_adapter_where(where, a, s, role), vx_shape_text(shape, view(s->entry[role])),
                          vx_adapter_module_name(name, t->module), t->n, t->k);
}

// Factors of a full model's width beside a pruned one.
static bool is_full_width(const vx_adapter_slot *s, const vx_adapter_target *t)
{
    const vx_safetensors_entry *e = s->entry[VX_ROLE_A];
    return e && t->pruned && e->shape[1] != t->k && (!t->basis || e->shape[1] == t->full_k);
}

static bool is_head(const vx_adapter_target *t)
{
    return t->module.kind == VX_MODULE_VIDEO_OUT || t->module.kind == VX_MODULE_AUDIO_OUT;
}

static vx_status check_fit(const vx_adapter *a, const vx_adapter_slot *s, const vx_adapter_target *t)
{
    const vx_safetensors_entry *const *e = s->entry;
    const int64_t rows = file_rows(s, t);
    // With reshape_weight the factors are those of several heads, one below the other.
    const int64_t heads = e[VX_ROLE_RESHAPE] ? vx_adapter_bank_heads(a, t) : 1;
    if (e[VX_ROLE_A] && e[VX_ROLE_A]->shape[1] != t->k && !is_full_width(s, t)) return misfit(a, s, VX_ROLE_A, t);
    if (e[VX_ROLE_B] && (heads < 1 || e[VX_ROLE_B]->shape[0] != rows * heads)) return misfit(a, s, VX_ROLE_B, t);
    if (e[VX_ROLE_DIFF] && (e[VX_ROLE_DIFF]->shape[0] != rows || e[VX_ROLE_DIFF]->shape[1] != t->k))
        return misfit(a, s, VX_ROLE_DIFF, t);
    if (e[VX_ROLE_DIFF_BIAS] && e[VX_ROLE_DIFF_BIAS]->shape[0] != rows * heads) return misfit(a, s, VX_ROLE_DIFF_BIAS, t);
    if (e[VX_ROLE_BANK] && vx_adapter_bank_heads(a, t) < 1) return misfit(a, s, VX_ROLE_BANK, t);
    return vx_ok();
}

// ---- branches ----

static vx_status copy_aligned(const vx_safetensors_entry *e, vx_adapter_memory *m, vx_tensor *out)
{
    *out = view(e);
    if (aligned(e)) return vx_ok();
    VX_TRY(vx_adapter_take(m, (size_t)e->bytes, &out->data));
    if (out->data) memcpy(out->data, e->data, (size_t)e->bytes);
    return vx_ok();
}

// The up factor in the base's order. Rows that the file does not have are zeros: what they add is nothing.
static vx_status order_rows(const vx_adapter_slot *s, const vx_adapter_target *t, vx_adapter_memory *m, vx_branch *out)
{
    const vx_safetensors_entry *e = s->entry[VX_ROLE_B];
    const bool part = s->part != VX_PART_WHOLE;
    if (same_order(s, t, VX_ROLE_B)) {
        out->column = part ? t->offset[s->part] : 0;
        return copy_aligned(e, m, &out->b);
    }
    const size_t bytes = (size_t)e->shape[1] * element(e->dtype);
    out->column = 0;
    out->b = vx_tensor_of(NULL, e->dtype, t->n, e->shape[1]);
    VX_TRY(vx_adapter_take(m, (size_t)t->n * bytes, &out->b.data));
    for (int64_t c = 0; out->b.data && c < t->n; c++) {
        const int64_t row = file_row(s, t, VX_ROLE_B, c);
        if (row >= 0) memcpy((char *)out->b.data + (size_t)c * bytes, (const char *)e->data + (size_t)row * bytes, bytes);
    }
    return vx_ok();
}

// x a^T = (z V + mean) a^T for the pruned input z: a' = a V^T, and a constant that goes into the bias. In f64.
static vx_status project(const vx_safetensors_entry *e, const vx_adapter_target *t, vx_adapter_memory *m, vx_tensor *out)
{
    *out = vx_tensor_of(NULL, VX_F32, e->shape[0], t->k);
    VX_TRY(vx_adapter_take(m, vx_tensor_bytes(*out), &out->data));
    for (int64_t r = 0; out->data && r < e->shape[0]; r++)
        for (int64_t i = 0; i < t->k; i++) {
            double sum = 0;
            for (int64_t j = 0; j < t->full_k; j++)
                sum += (double)vx_adapter_number(e, r * t->full_k + j) * (double)t->basis[i * t->full_k + j];
            vx_f32_of(*out)[r * t->k + i] = (float)sum;
        }
    return vx_ok();
}

static vx_status add_slot(const vx_adapter *a, vx_adapter_slot *s, const vx_adapter_target *t, vx_adapter_memory *m,
                          vx_adapter_addition *out)
{
    VX_TRY(check_fit(a, s, t));
    s->used = true;
    if (a->params.strength == 0 || s->entry[VX_ROLE_RESHAPE]) return vx_ok(); // a bank goes its own way
    out->bias = out->bias || s->entry[VX_ROLE_DIFF_BIAS];
    out->difference = out->difference || s->entry[VX_ROLE_DIFF];
    if (!s->entry[VX_ROLE_A]) return vx_ok();
    const bool full = is_full_width(s, t);
    if (full && !t->basis) {
        out->left_out = true;
        return vx_ok();
    }
    vx_branch *b = &out->branch[out->branches];
    *b = (vx_branch){ .scale = s->scale };
    VX_TRY(full ? project(s->entry[VX_ROLE_A], t, m, &b->a) : copy_aligned(s->entry[VX_ROLE_A], m, &b->a));
    VX_TRY(order_rows(s, t, m, b));
    out->projected = full;
    out->bias = out->bias || full;
    out->branches++;
    return vx_ok();
}

vx_status vx_adapter_add(vx_adapter *a, const vx_adapter_target *t, vx_adapter_memory *m, vx_adapter_addition *out)
{
    *out = (vx_adapter_addition){ 0 };
    for (int part = 0; part < VX_ADAPTER_PARTS; part++) {
        vx_adapter_slot *s = vx_adapter_slot_of(a, t->module, (vx_adapter_part)part);
        if (s) VX_TRY(add_slot(a, s, t, m, out));
    }
    return vx_ok();
}

// ---- bias and difference ----

static void add_mean(const vx_adapter_slot *s, const vx_adapter_target *t, float *bias)
{
    const vx_safetensors_entry *down = s->entry[VX_ROLE_A], *up = s->entry[VX_ROLE_B];
    for (int64_t r = 0; r < down->shape[0]; r++) {
        double dot = 0;
        for (int64_t j = 0; j < t->full_k; j++) dot += (double)vx_adapter_number(down, r * t->full_k + j) * (double)t->mean[j];
        for (int64_t c = 0; c < t->n; c++)
            bias[c] += (float)((double)s->scale * dot * (double)vx_adapter_number(up, c * up->shape[1] + r));
    }
}

void vx_adapter_add_bias(const vx_adapter *a, const vx_adapter_target *t, float *bias)
{
    for (int part = 0; part < VX_ADAPTER_PARTS; part++) {
        const vx_adapter_slot *s = vx_adapter_slot_of(a, t->module, (vx_adapter_part)part);
        if (!s || a->params.strength == 0) continue;
        const vx_safetensors_entry *e = s->entry[VX_ROLE_DIFF_BIAS];
        for (int64_t c = 0; e && !s->entry[VX_ROLE_RESHAPE] && c < t->n; c++) {
            const int64_t row = file_row(s, t, VX_ROLE_DIFF_BIAS, c);
            if (row >= 0) bias[c] += a->params.strength * vx_adapter_number(e, row);
        }
        if (is_full_width(s, t) && t->basis && t->mean) add_mean(s, t, bias);
    }
}

void vx_adapter_add_difference(const vx_adapter *a, const vx_adapter_target *t, int64_t column, float *row)
{
    for (int part = 0; part < VX_ADAPTER_PARTS; part++) {
        const vx_adapter_slot *s = vx_adapter_slot_of(a, t->module, (vx_adapter_part)part);
        const vx_safetensors_entry *e = s ? s->entry[VX_ROLE_DIFF] : NULL;
        const int64_t from = e ? file_row(s, t, VX_ROLE_DIFF, column) : -1;
        for (int64_t i = 0; from >= 0 && i < t->k; i++) row[i] += a->params.strength * vx_adapter_number(e, from * t->k + i);
    }
}

// ---- banks of heads ----

int64_t vx_adapter_bank_heads(const vx_adapter *a, const vx_adapter_target *t)
{
    const vx_adapter_slot *s = is_head(t) ? vx_adapter_slot_of(a, t->module, VX_PART_WHOLE) : NULL;
    if (!s) return 0;
    const vx_safetensors_entry *bank = s->entry[VX_ROLE_BANK], *bias = s->entry[VX_ROLE_BANK_BIAS];
    if (s->entry[VX_ROLE_RESHAPE]) {
        const int64_t rows = s->entry[VX_ROLE_B]->shape[0];
        return rows % t->n == 0 ? rows / t->n : 0;
    }
    if (!bank || bank->shape[bank->rank - 1] != t->k) return 0;
    const int64_t rows = bank->rank == 3 ? bank->shape[0] * bank->shape[1] : bank->shape[0];
    if (rows % t->n || (bank->rank == 3 && bank->shape[1] != t->n)) return 0;
    if (bias && (bias->rank == 2 ? bias->shape[0] * bias->shape[1] : bias->shape[0]) != rows) return 0;
    return rows / t->n;
}

// Heads that stand for themselves: the base's head gives way to their mixture.
static void mix_whole(const vx_adapter *a, const vx_adapter_slot *s, const vx_adapter_target *t, const double *weights,
                      int64_t heads, float *weight, float *bias)
{
    const vx_safetensors_entry *bank = s->entry[VX_ROLE_BANK], *bank_bias = s->entry[VX_ROLE_BANK_BIAS];
    const double strength = (double)a->params.strength;
    for (int64_t i = 0; i < t->n; i++) {
        for (int64_t j = 0; j < t->k; j++) {
            double sum = 0;
            for (int64_t h = 0; h < heads; h++)
                if (weights[h] != 0) sum += weights[h] * (double)vx_adapter_number(bank, (h * t->n + i) * t->k + j);
            weight[i * t->k + j] += (float)(strength * (sum - (double)weight[i * t->k + j]));
        }
        double sum = 0;
        for (int64_t h = 0; bank_bias && h < heads; h++) sum += weights[h] * (double)vx_adapter_number(bank_bias, h * t->n + i);
        if (bank_bias) bias[i] += (float)(strength * (sum - (double)bias[i]));
    }
}

// Kijai's form: factors of the whole bank. Block 0 goes onto the base's head; the others are offsets to it.
static void mix_factors(const vx_adapter *a, const vx_adapter_slot *s, const vx_adapter_target *t, const double *weights,
                        int64_t heads, float *weight, float *bias)
{
    const vx_safetensors_entry *down = s->entry[VX_ROLE_A], *up = s->entry[VX_ROLE_B], *b = s->entry[VX_ROLE_DIFF_BIAS];
    const int64_t rank = down->shape[0];
    for (int64_t i = 0; i < t->n; i++) {
        for (int64_t r = 0; r < rank; r++) {
            double c = 0;
            for (int64_t h = 0; h < heads; h++)
                if (h == 0 || weights[h] != 0)
                    c += (h ? weights[h] : 1) * (double)vx_adapter_number(up, (h * t->n + i) * rank + r);
            const float factor = (float)((double)s->scale * c);
            for (int64_t j = 0; j < t->k; j++) weight[i * t->k + j] += factor * vx_adapter_number(down, r * t->k + j);
        }
        for (int64_t h = 0; b && h < heads; h++)
            bias[i] += (float)((double)a->params.strength * (h ? weights[h] : 1) * (double)vx_adapter_number(b, h * t->n + i));
    }
}

void vx_adapter_mix(const vx_adapter *a, const vx_adapter_target *t, const double *weights, float *weight, float *bias)
{
    const int64_t heads = vx_adapter_bank_heads(a, t);
    const vx_adapter_slot *s = heads ? vx_adapter_slot_of(a, t->module, VX_PART_WHOLE) : NULL;
    if (!s || a->params.strength == 0) return;
    if (s->entry[VX_ROLE_RESHAPE]) mix_factors(a, s, t, weights, heads, weight, bias);
    else mix_whole(a, s, t, weights, heads, weight, bias);
}
