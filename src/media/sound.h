// Sound to what the model takes: torchaudio's resampler (audio-and-media specification B8) and the 24 frames per second grid
// (B7). Host only, planar f32.
#ifndef VX_MEDIA_SOUND_H
#define VX_MEDIA_SOUND_H

#include <stdint.h>

#include "base/status.h"

int64_t vx_resampled_count(int64_t samples, int64_t from, int64_t to); // torchaudio's length: the ceiling of an f32
// out [vx_resampled_count]; equal rates copy. Rates 1000..384000.
vx_status vx_resample(float *out, const float *in, int64_t samples, int64_t from, int64_t to);

// Output slot of frame i of a constant rate num/den on the 24 fps grid: floor(i*24*den/num + 1/2).
int64_t vx_frame_slot(int64_t i, int64_t num, int64_t den);

#endif
