// Samplers (denoiser specification 6.1, 6.4, 6.5) as a loop over a velocity function. The state is f32 rows on the device.
#ifndef VX_SAMPLING_SAMPLER_H
#define VX_SAMPLING_SAMPLER_H

#include "device/arena.h"
#include "sampling/schedule.h"

typedef enum vx_sampler { VX_SAMPLER_EULER, VX_SAMPLER_RES_MULTISTEP } vx_sampler;

// How a step is taken. Official: on two lists (euler with the official or an explicit list). ComfyUI's formulas carry the audio:
// its state is y = (sigma_video/sigma_audio)*x, divided by shift/audio_shift at the end. Plain: on two lists,
// x + (sigma - next) * v in f32, the step that distilled adapters were trained with.
typedef enum vx_step { VX_STEP_COMFYUI, VX_STEP_OFFICIAL, VX_STEP_PLAIN } vx_step;

typedef struct vx_sampler_params {
    vx_sampler sampler;
    vx_step step;
    const vx_sigmas *sigmas;
    float shift, audio_shift;
} vx_sampler_params;

// Evaluates the model at step k on x (the state that the model sees, audio not carried) into v: data-ward velocities.
typedef vx_status (*vx_velocity_fn)(void *user, int64_t k, vx_tensor video, vx_tensor audio, vx_tensor video_velocity,
                                    vx_tensor audio_velocity);

// video, audio: in the noise at sigma 1, out the clean latents (rows), contiguous f32. Scratch comes from the arena before the
// first step and goes back. A list that begins below 1: ComfyUI's samplers scale the noise by its first sigma, the official
// step takes it as it is. Errors: the network's own; VX_ERR_CONFLICT (res_multistep with the official step).
vx_status vx_sampler_run(vx_device *dev, vx_arena *arena, const vx_sampler_params *params, vx_tensor video, vx_tensor audio,
                         vx_velocity_fn velocity, void *user);
// Timesteps that the model sees at each evaluation, t = 1 - sigma in f32 (official) or as ComfyUI computes them.
void vx_sampler_timesteps(const vx_sampler_params *params, float *t_video, float *t_audio);

#endif
