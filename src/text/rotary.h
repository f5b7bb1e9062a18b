// Inside the room: cosines and sines of interleaved multi-axis rotary positions (text-encoder specification, 3.3).
#ifndef VX_TEXT_ROTARY_H
#define VX_TEXT_ROTARY_H

#include "text/language.h"

// cos, sin [rows, head_dim/2] act, on the device. positions [3][rows] on the host; NULL = 0..rows-1 on all three axes.
// angle = f32(position) * inv, one f32 product; inv = 1 / theta^(2i/head_dim) in f32; cos and sin of that f32 angle are
// correctly rounded to f32 but for rare ties of libm's f64 value, then rounded to act.
vx_status vx_rotary_upload(vx_device *dev, vx_tensor cos, vx_tensor sin, const vx_language_config *config,
                           const int64_t *positions);

// Axis (0 t, 1 h, 2 w) of channel pair i: interleaved t h w t h w ..., each axis of h and w for as many pairs as its
// section says, all others t.
int vx_rotary_axis(const int mrope_section[3], int64_t i);

#endif
