// One input as decoded samples: a media file through the media module, or a .safetensors file that holds the samples.
#ifndef VX_PIPELINE_SOURCE_H
#define VX_PIPELINE_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "media/input.h"

typedef struct vx_source vx_source;

// Headers only: kind, sizes, rates. A .safetensors file has `pixels` U8 [N,H,W,3] with metadata fps, and/or `waveform` F32
// [channels, samples] with metadata sample_rate.
vx_status vx_source_open(vx_source **out, const char *path);
// Only a file with decoded samples; a rate that it does not name is 24 frames per second and 32 kHz.
vx_status vx_source_open_samples(vx_source **out, const char *path);
const uint8_t *vx_source_pixels(const vx_source *source); // of decoded samples, borrowed
void vx_source_close(vx_source **source);
const vx_input_facts *vx_source_facts(const vx_source *source);
int64_t vx_source_frames(const vx_source *source); // of decoded samples; 0 for a media file

// As in media/input.h, for both kinds of file.
vx_status vx_source_picture(const vx_source *source, uint8_t **rgb, int64_t *width, int64_t *height);
vx_status vx_source_each_frame(const vx_source *source, int64_t max_slots, vx_input_frame_fn frame, void *user, int64_t *slots);
vx_status vx_source_sound(const vx_source *source, float **planar, int64_t *channels, int64_t *samples, int64_t *sample_rate,
                          int64_t max_samples);

#endif
