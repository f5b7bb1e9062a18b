// The audio VAE's tensors. Files hold a convolution's weight folded (`name.weight`) or as direction and length
// (`weight_v`, `weight_g`, or PyTorch's newer names for the two); sound wants float32, so what is narrower is widened.
// Folding follows PyTorch's weight norm over axis 0, which for a transposed convolution is the INPUT channel (A7).
#include "vae/audio_weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { NAME_SIZE = 128 };

vx_status vx_audio_make_later(vx_audio_weights *w, vx_tensor from, vx_tensor gain, vx_tensor *to)
{
    if (w->count == w->capacity) {
        int64_t capacity = w->capacity ? 2 * w->capacity : 64;
        vx_audio_made *more = vx_realloc(w->made, (size_t)capacity * sizeof *more);
        VX_NEED_MEMORY(more, "the audio VAE's weights");
        w->made = more;
        w->capacity = capacity;
    }
    w->made[w->count++] = (vx_audio_made){ from, gain, to };
    vx_tensor shape = vx_tensor_make(NULL, VX_F32, from.rank, from.shape);
    size_t bytes = vx_tensor_bytes(shape);
    if (bytes > w->largest) w->largest = bytes;
    *to = shape;
    return vx_ok();
}

vx_status vx_audio_widen(vx_audio_weights *w, const char *name, vx_tensor t, vx_tensor *out)
{
    if (t.dtype == VX_F32) {
        *out = t;
        return vx_ok();
    }
    if (!w->warned)
        vx_component_note(w->component, "'%s' is %s: the audio VAE was released in F32, a narrower copy sounds quieter", name,
                          vx_dtype_name(t.dtype));
    w->warned = true;
    return vx_audio_make_later(w, t, (vx_tensor){ 0 }, out);
}

vx_status vx_audio_get(vx_audio_weights *w, const char *name, int rank, const int64_t *shape, vx_tensor *out)
{
    vx_tensor t;
    VX_TRY(vx_component_tensor(w->component, name, VX_DTYPE_NONE, rank, shape, &t));
    return vx_audio_widen(w, name, t, out);
}

static const struct {
    const char *direction, *length;
} spelling[] = {
    { ".weight", NULL },
    { ".weight_v", ".weight_g" },
    { ".parametrizations.weight.original1", ".parametrizations.weight.original0" },
};
enum { SPELLINGS = sizeof spelling / sizeof *spelling };

static int spelling_of(const vx_component *c, const char *name)
{
    char full[NAME_SIZE];
    for (int i = 0; i < SPELLINGS; i++) {
        snprintf(full, sizeof full, "%s%s", name, spelling[i].direction);
        if (vx_component_has(c, full)) return i;
    }
    return 0;
}

void vx_audio_weight_shape(const vx_component *c, const char *name, int *rank, int64_t shape[VX_MAX_RANK])
{
    char full[NAME_SIZE];
    snprintf(full, sizeof full, "%s%s", name, spelling[spelling_of(c, name)].direction);
    *rank = 0;
    vx_component_shape(c, full, rank, shape);
}

vx_status vx_audio_get_conv(vx_audio_weights *w, const char *name, int64_t first, int64_t second, int64_t kernel, int64_t biases,
                            vx_audio_conv *conv)
{
    char full[NAME_SIZE];
    int s = spelling_of(w->component, name);
    const int64_t shape[] = { first, second, kernel }, lengths[] = { first, 1, 1 };
    snprintf(full, sizeof full, "%s%s", name, spelling[s].direction);
    if (spelling[s].length == NULL) {
        VX_TRY(vx_audio_get(w, full, 3, shape, &conv->weight));
    } else {
        vx_tensor v, g;
        VX_TRY(vx_component_tensor(w->component, full, VX_DTYPE_NONE, 3, shape, &v));
        snprintf(full, sizeof full, "%s%s", name, spelling[s].length);
        VX_TRY(vx_component_tensor(w->component, full, VX_DTYPE_NONE, 3, lengths, &g));
        VX_TRY(vx_audio_make_later(w, v, g, &conv->weight));
    }
    if (biases == 0) return vx_ok();
    snprintf(full, sizeof full, "%s.bias", name);
    return vx_audio_get(w, full, 1, &biases, &conv->bias);
}

static void widen(float *out, vx_tensor t)
{
    int64_t n = vx_tensor_count(t);
    const uint16_t *half = t.data;
    if (t.dtype == VX_F32) memcpy(out, t.data, (size_t)n * sizeof *out);
    else if (t.dtype == VX_BF16)
        for (int64_t i = 0; i < n; i++) out[i] = vx_bf16_to_f32(half[i]);
    else
        for (int64_t i = 0; i < n; i++) out[i] = vx_f16_to_f32(half[i]);
}

void vx_audio_fold(float *out, const float *v, const float *g, int64_t rows, int64_t row)
{
    for (int64_t i = 0; i < rows; i++) {
        double square = 0.0;
        for (int64_t j = 0; j < row; j++) square += (double)v[i * row + j] * (double)v[i * row + j];
        double gain = (double)g[i] / sqrt(square);
        for (int64_t j = 0; j < row; j++) out[i * row + j] = (float)((double)v[i * row + j] * gain);
    }
}

static vx_status make_all(const vx_audio_weights *w, vx_arena *arena, vx_device *dev)
{
    float *host = vx_alloc(w->largest), *gain = vx_alloc(w->largest);
    vx_status s = host && gain ? vx_ok() : vx_no_memory("to fold the audio VAE's weights");
    for (int64_t i = 0; i < w->count && s.code == VX_OK; i++) {
        const vx_audio_made *m = &w->made[i];
        *m->to = vx_arena_take(arena, VX_F32, m->from.rank, m->from.shape);
        widen(host, m->from);
        if (m->gain.rank) {
            widen(gain, m->gain);
            int64_t rows = m->from.shape[0];
            vx_audio_fold(host, host, gain, rows, vx_tensor_count(m->from) / rows);
        }
        s = vx_upload(dev, *m->to, host);
    }
    vx_free(host);
    vx_free(gain);
    return s;
}

// The arena knows best what it needs for all of them.
static vx_status plan(const vx_audio_weights *w, vx_device *dev, size_t *bytes)
{
    vx_device *plan = NULL;
    vx_arena *planned = NULL;
    VX_TRY(vx_device_plan_create(&plan, dev));
    vx_status s = vx_arena_create(plan, &planned, 0);
    for (int64_t i = 0; i < w->count && s.code == VX_OK; i++)
        vx_arena_take(planned, VX_F32, w->made[i].from.rank, w->made[i].from.shape);
    if (s.code == VX_OK) *bytes = vx_arena_high(planned);
    vx_arena_destroy(&planned);
    vx_device_destroy(&plan);
    return s;
}

vx_status vx_audio_weights_bytes(const vx_audio_weights *w, vx_device *dev, size_t *kept, size_t *passing)
{
    *kept = *passing = 0;
    if (w->arena) return vx_ok();
    *passing = w->largest;
    return plan(w, dev, kept);
}

vx_status vx_audio_weights_make(vx_audio_weights *w, vx_device *dev)
{
    if (w->arena) return vx_ok();
    vx_arena *arena = NULL;
    size_t bytes;
    VX_TRY(plan(w, dev, &bytes));
    VX_TRY(vx_arena_create(dev, &arena, bytes));
    vx_status s = make_all(w, arena, dev);
    if (s.code == VX_OK) w->arena = arena;
    else vx_arena_destroy(&arena);
    return s;
}

void vx_audio_weights_free(vx_audio_weights *w)
{
    vx_arena_destroy(&w->arena);
    vx_free(w->made);
}
