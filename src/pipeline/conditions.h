// Keyframes and references of a request: judged by the task's rules, decoded, sized as the reference sizes them, and held on
// the host until the stages need them (text-encoder specification 2; video VAE 13; audio and media B1-B8).
#ifndef VX_PIPELINE_CONDITIONS_H
#define VX_PIPELINE_CONDITIONS_H

#include "denoiser/layout.h"
#include "text/presentation.h"
#include "vortex/vortex.h"

enum { VX_MAX_CONDITIONS = 64, VX_SAMPLED_EVERY = 12 }; // the conditioner sees 2 of 24 frames per second

typedef enum vx_task { VX_TASK_T2VA, VX_TASK_I2VA, VX_TASK_L2VA, VX_TASK_FL2VA, VX_TASK_REF2VA } vx_task;
const char *vx_task_name(vx_task t);

// One condition, in the order of the packed sequence: keyframes by frame, references as given.
typedef struct vx_prepared {
    vx_condition_kind kind;
    char *path;
    int64_t frame;                 // keyframes
    int64_t frames, height, width; // of pixels
    uint8_t *pixels;               // [frames, height, width, 3] RGB at the size that the VAE takes; NULL for sound alone
    int64_t encoded_frames;        // how many the VAE takes: the rest only the conditioner sees
    float *sound;                  // [2, samples] at 32 kHz; NULL without
    int64_t samples;
    // Filled by the encoding stage: what the denoiser gets, normalised.
    float *latent; // [24, t, h, w]
    int64_t latent_shape[4];
    float *audio_latent; // [2, 32, A]
    int64_t audio_frames;
} vx_prepared;

typedef struct vx_conditions {
    vx_task task;
    vx_prepared *item;
    int count;
    char key[65]; // SHA-256 of everything that encoding depends on
} vx_conditions;

// What a request says about its conditions, with defaults filled in.
typedef struct vx_condition_rules {
    const char *task;          // NULL: inferred
    const vx_condition *given; // in the request's order
    int count;
    int64_t frames; // of the target, aligned
    int64_t reference_short_edge, canvas_short_edge, canvas_max_pixels;
} vx_condition_rules;

// The task and the order of the conditions, from the request alone: kinds that only content tells are left open. Sets item[].path,
// kind and frame. VX_ERR_CONFLICT, VX_ERR_RANGE, VX_ERR_VALUE name the field and what is legal.
vx_status vx_conditions_judge(vx_conditions *out, const vx_condition_rules *rules);
// Size of the earliest keyframe's picture as it stands in its file, for the canvas; false without keyframes.
vx_status vx_conditions_anchor(const vx_conditions *conditions, bool *there, int64_t *width, int64_t *height);
// Decodes and sizes everything for a canvas. VX_ERR_INPUT_*, VX_ERR_RANGE.
vx_status vx_conditions_load(vx_conditions *conditions, const vx_condition_rules *rules, int64_t width, int64_t height);
void vx_conditions_free(vx_conditions *conditions);

// For the presentation and the layout; arrays of `count` (the caller's).
void vx_conditions_shown(const vx_conditions *conditions, vx_shown *out);
void vx_conditions_rows(const vx_conditions *conditions, vx_condition_rows *out);
// Latent frames of a visual condition (1 for pictures), audio frames of its sound.
int64_t vx_prepared_latent_frames(const vx_prepared *p);
int64_t vx_prepared_audio_frames(const vx_prepared *p);

#endif
