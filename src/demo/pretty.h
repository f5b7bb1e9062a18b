// The constructed weights: what each network of the pretty kind does is told at the top of its file. Together:
//
//   language model   random, gentle: token rows that differ with the words and their order
//   transformer      one step of denoising is a low pass: every noise field is averaged over its neighbourhood, blended into
//                    colours by what the prompt says, and the velocity leads straight to the result
//   video VAE        a latent is a colour with its slopes, a patch the plane through it, softly limited; a picture becomes
//                    the planes that fit it best
//   audio VAE        a latent is the loudness of the notes of a chord; what listens is random
//   vision tower     random, like the language model
#ifndef VX_DEMO_PRETTY_H
#define VX_DEMO_PRETTY_H

#include "demo/demo.h"

void vx_demo_sizes_pretty(vx_demo_sizes *sizes); // vocabulary is left to the tokenizer

vx_status vx_demo_pretty_transformer(vx_demo_tensors *set, const vx_demo_sizes *sizes, uint64_t seed);
vx_status vx_demo_pretty_language(vx_demo_tensors *set, const vx_demo_sizes *sizes, uint64_t seed);
vx_status vx_demo_pretty_video(vx_demo_tensors *set, const vx_demo_sizes *sizes, uint64_t seed);
void vx_demo_pretty_video_encoder(vx_demo_tensors *set); // called by the above
vx_status vx_demo_pretty_audio(vx_demo_tensors *set, const vx_demo_sizes *sizes, uint64_t seed);

// ---- what transformer and video VAE agree on ---------------------------------------------------------------------------
// The latent of a picture: three colours, each with its slopes, and whether the latent stands for one frame alone.
enum { VX_DEMO_COLOURS = 3, VX_DEMO_VALUE = 0, VX_DEMO_SLOPE_X, VX_DEMO_SLOPE_Y, VX_DEMO_SLOPE_T, VX_DEMO_PARTS };
enum { VX_DEMO_LATENT_SINGLE = VX_DEMO_COLOURS * VX_DEMO_PARTS };
// Lengths over which a slope of 1 changes a colour by 1, in the transformer's position units: a canvas of any shape is 32
// units wide on the average, a second is 40 units long (denoiser specification 4.3).
#define VX_DEMO_LENGTH_SPACE 6.0f
#define VX_DEMO_LENGTH_TIME  24.0f
// A latent is two units wide on a canvas of 256 x 256, to which slopes along x and y are brought; a frame is 5/3 units long.
#define VX_DEMO_LATENT_UNITS 2.0f
#define VX_DEMO_FRAME_UNITS  (5.0f / 3.0f)
// RGB is 0.5 for a colour of 0; a colour of 1 adds the contrast. Pixels come and go normalised, as the VAE has them.
#define VX_DEMO_CONTRAST 0.23f
extern const float vx_demo_pixel_mean[VX_DEMO_COLOURS], vx_demo_pixel_std[VX_DEMO_COLOURS];
// The notes: 4:5:6:8 on the fourth multiple of the frame rate of audio latents (40 Hz), so that a latent holds whole periods.
enum { VX_DEMO_NOTES = 4 };
extern const int vx_demo_note_hz[VX_DEMO_NOTES];

// ---- writing into tensors ------------------------------------------------------------------------------------------------
static inline float *vx_demo_at(vx_demo_tensor *t, int64_t row, int64_t column)
{
    return &t->value[row * (t->count / t->shape[0]) + column];
}
void vx_demo_fill(vx_demo_tensor *t, float value);
// +1 or -1.
float vx_demo_sign(uint64_t *stream);

// The time embedder: dimension i of silu(temb) becomes curve i of t = 1 - sigma, by interpolation between knots.
enum { VX_DEMO_CURVE_HEAD = 0, VX_DEMO_CURVE_VIDEO, VX_DEMO_CURVE_AUDIO, VX_DEMO_CURVES };
vx_status vx_demo_pretty_time(vx_demo_tensors *set, const vx_demo_sizes *sizes, float video_gain, float audio_gain);

#endif
