// Inside the room: float32 tensors of the audio VAE, views of the file where it holds them as they are used, else made once
// (widened, folded) into memory of their own.
#ifndef VX_VAE_AUDIO_WEIGHTS_H
#define VX_VAE_AUDIO_WEIGHTS_H

#include "device/arena.h"
#include "weights/component.h"

typedef struct vx_audio_conv {
    vx_tensor weight, bias; // bias of rank 0: none
} vx_audio_conv;

// `from` widened, and folded with `gain` where that is there.
typedef struct vx_audio_made {
    vx_tensor from, gain;
    vx_tensor *to;
} vx_audio_made;

typedef struct vx_audio_weights {
    vx_component *component; // borrowed
    vx_arena *arena;         // what was made; NULL until then
    vx_audio_made *made;
    int64_t count, capacity;
    size_t largest; // bytes of one of them, widened
    bool warned;    // of a narrow tensor
} vx_audio_weights;

// A tensor by name and shape.
vx_status vx_audio_get(vx_audio_weights *w, const char *name, int rank, const int64_t *shape, vx_tensor *out);
// The same of a tensor that was asked for already; its shape may be another by now.
vx_status vx_audio_widen(vx_audio_weights *w, const char *name, vx_tensor t, vx_tensor *out);
// weight [first, second, kernel] in any spelling; bias [biases], none for 0.
vx_status vx_audio_get_conv(vx_audio_weights *w, const char *name, int64_t first, int64_t second, int64_t kernel, int64_t biases,
                            vx_audio_conv *conv);
// *to has shape, and data once it is made. `from` and `to` must stay until then.
vx_status vx_audio_make_later(vx_audio_weights *w, vx_tensor from, vx_tensor gain, vx_tensor *to);

vx_status vx_audio_weights_bytes(const vx_audio_weights *w, vx_device *dev, size_t *kept, size_t *passing); // 0 once made
vx_status vx_audio_weights_make(vx_audio_weights *w, vx_device *dev);
void vx_audio_weights_free(vx_audio_weights *w);

// Shape of a convolution's weight in any of its spellings; rank 0 if absent.
void vx_audio_weight_shape(const vx_component *c, const char *name, int *rank, int64_t shape[VX_MAX_RANK]);
// One folded weight: w[i] = v[i] * (g[i] / |v[i]|), norm and product in double, rounded once. v [rows, row], g [rows].
void vx_audio_fold(float *out, const float *v, const float *g, int64_t rows, int64_t row);
// A list of the configuration with `count` members of 1..most, or *found = false.
vx_status vx_audio_ints(const vx_component *c, const char *key, int64_t count, int64_t most, int64_t *out, bool *found);
// The file's own, the configuration's or the table's (A7).
vx_status vx_audio_statistics(vx_component *c, int64_t channels, float *mean, float *std);

#endif
