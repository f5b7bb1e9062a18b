// An adapter, any bytes as its file, onto modules of the shapes that it has itself: bases of both row orders, pruned and not.
//
// Promises (checkpoints specification 5.4, reliability specification T25): an answer of class 3000 or memory; what is accepted has
// pairs of one rank and finite alphas; what is added lies within the module's columns; a number that is none is found; nothing
// beyond the file is read.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "weights/adapter_inside.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 1 << 12 };

static void must(bool condition)
{
    if (!condition) abort();
}

static void check_facts(const vx_adapter *a)
{
    const vx_adapter_facts *f = vx_adapter_facts_of(a);
    must(f->keys >= 1 && f->modules >= 1 && f->modules <= f->keys && f->unknown < f->keys);
    must((f->unknown > 0) == (f->first_unknown != NULL));
    must(f->rank_min <= f->rank_max && f->alpha_min <= f->alpha_max);
    must(isfinite(f->alpha_min) && isfinite(f->alpha_max));
    for (int i = 0; i < a->slots; i++) {
        const vx_adapter_slot *s = &a->slot[i];
        must(!s->entry[VX_ROLE_A] == !s->entry[VX_ROLE_B]);
        if (s->entry[VX_ROLE_A]) must(s->entry[VX_ROLE_A]->shape[0] == s->entry[VX_ROLE_B]->shape[1]);
    }
}

// The quick look agrees with one number after the other.
static void check_numbers(const vx_adapter *a)
{
    bool finite = true;
    for (int i = 0; i < a->slots; i++)
        for (int r = 0; r < VX_ROLES; r++) {
            const vx_safetensors_entry *e = a->slot[i].entry[r];
            if (!e || (e->dtype != VX_F32 && e->dtype != VX_BF16 && e->dtype != VX_F16)) continue;
            const int64_t count = (int64_t)(e->bytes / (e->dtype == VX_F32 ? 4 : 2));
            for (int64_t n = 0; n < count; n++) finite = finite && isfinite(vx_adapter_number(e, n));
        }
    must(vx_adapter_check_numbers(a).code == (finite ? VX_OK : VX_ERR_NOT_FINITE));
}

// A base on which this place fits.
static bool make_target(const vx_adapter_slot *s, int variant, vx_adapter_target *t)
{
    const vx_safetensors_entry *const *e = s->entry;
    *t = (vx_adapter_target){ .module = s->module, .n = 6, .k = 4, .gate_first = variant & 1 };
    if (e[VX_ROLE_B]) t->n = e[VX_ROLE_B]->shape[0];
    else if (e[VX_ROLE_DIFF]) t->n = e[VX_ROLE_DIFF]->shape[0];
    else if (e[VX_ROLE_DIFF_BIAS]) t->n = e[VX_ROLE_DIFF_BIAS]->shape[0];
    if (e[VX_ROLE_A]) t->k = e[VX_ROLE_A]->shape[1];
    else if (e[VX_ROLE_DIFF]) t->k = e[VX_ROLE_DIFF]->shape[1];
    else if (e[VX_ROLE_BANK]) t->k = e[VX_ROLE_BANK]->shape[e[VX_ROLE_BANK]->rank - 1];
    if (t->n < 1 || t->k < 1 || t->n > MOST || t->k > MOST) return false;
    if (s->module.kind != VX_MODULE_QKV) return true;
    if (s->part != VX_PART_WHOLE) t->n *= 3;
    if (t->n % 3) return false;
    const int64_t width = t->n / 3;
    t->heads = width % 2 ? 1 : 2;
    t->head_dim = width / t->heads;
    t->head_stride = variant & 1 ? 3 * t->head_dim : t->head_dim;
    for (int i = 0; i < 3; i++) t->offset[i] = i * (variant & 1 ? t->head_dim : width);
    return true;
}

static void use(vx_adapter *a, const vx_adapter_target *t)
{
    vx_adapter_memory memory = { .load = true };
    vx_adapter_addition add;
    vx_status s = vx_adapter_add(a, t, &memory, &add);
    must(s.code == VX_OK || s.code == VX_ERR_TENSOR_SHAPE || s.code == VX_ERR_MEMORY);
    if (s.code == VX_OK) {
        float *numbers = vx_alloc_array((size_t)(t->n * t->k + t->n), sizeof *numbers), sum = 0;
        must(numbers && add.branches >= 0 && add.branches <= VX_ADAPTER_MOST);
        for (int i = 0; i < add.branches; i++) {
            const vx_branch *b = &add.branch[i];
            must(b->a.shape[1] == t->k && b->a.shape[0] == b->b.shape[1] && b->column >= 0 && b->column + b->b.shape[0] <= t->n);
            must((uintptr_t)b->a.data % 2 == 0 && (uintptr_t)b->b.data % 2 == 0);
            sum += (float)*((const uint8_t *)b->a.data + vx_tensor_bytes(b->a) - 1);
            sum += (float)*((const uint8_t *)b->b.data + vx_tensor_bytes(b->b) - 1);
        }
        must(sum >= 0);
        vx_adapter_add_bias(a, t, numbers);
        vx_adapter_add_difference(a, t, t->n - 1, numbers);
        const int64_t heads = vx_adapter_bank_heads(a, t);
        if (heads > 0 && heads < MOST) {
            double *weights = vx_alloc_array((size_t)heads, sizeof *weights);
            must(weights != NULL);
            weights[heads - 1] = 1;
            vx_adapter_mix(a, t, weights, numbers, numbers + t->n * t->k);
            vx_free(weights);
        }
        vx_free(numbers);
    }
    vx_adapter_memory_free(&memory, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    const int variant = data[0];
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC), unused;
    must(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)(size - 1));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    vx_adapter *a;
    vx_status s = vx_adapter_open(&a, path, &(vx_adapter_params){ .strength = 0.5f, .alpha = 2, .partial = variant & 2 });
    must((s.code == VX_OK) == (a != NULL));
    must(s.code == VX_OK || s.code == VX_ERR_MEMORY || (s.code / 1000 == 3 && s.message[0]));
    static const float basis[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, mean[4] = { 1, -1, 0.5f, 0 };
    for (int i = 0; a && i < a->slots; i++) {
        vx_adapter_target t;
        if (i == 0) check_facts(a);
        if (!make_target(&a->slot[i], variant, &t)) continue;
        if ((variant & 4) && t.module.kind == VX_MODULE_ADALN && t.k == 4) {
            t.pruned = true;
            t.k = 2;
            t.basis = basis;
            t.mean = mean;
            t.full_k = 4;
        }
        use(a, &t);
    }
    if (a) check_numbers(a);
    if (a) (void)vx_adapter_finish(a, &unused);
    vx_adapter_close(&a);
    close(fd);
    return 0;
}
