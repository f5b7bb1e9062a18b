// The packed sequence of a request: which rows there are, in which order, with which tag, timestep and position
// (denoiser specification, sections 4 and 5). Pure arithmetic on the host.
#ifndef VX_DENOISER_LAYOUT_H
#define VX_DENOISER_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

// Modality of a row: which of the three sets of modulation vectors of a timestep it takes (specification 1.8). These are
// the numbers of the checkpoint, and so the same as the presentation's VX_TAG_*.
enum { VX_MODALITY_VIDEO = 0, VX_MODALITY_TEXT = 1, VX_MODALITY_AUDIO = 2, VX_MODALITIES = 3 };

// Geometry of a clip.
int64_t vx_align_frames(int64_t frames);        // up to 17n+5
int64_t vx_video_latent_frames(int64_t frames); // 5n+2; fewer than 5 frames are one picture: 1
int64_t vx_audio_latent_frames(int64_t frames); // round half to even of frames/24*40
// Canvas of a ratio: short edge, area cap, each side to the nearest 32 with ties to even; false if the ratio is outside 1:4..4:1.
int vx_canvas_size(double ratio_width, double ratio_height, int64_t short_edge, int64_t max_pixels, int64_t *width,
                   int64_t *height);

// A condition in packed order (issue of keyframes and references; t2va has none).
typedef enum vx_condition_kind {
    VX_CONDITION_KEYFRAME,
    VX_CONDITION_IMAGE,
    VX_CONDITION_VIDEO,
    VX_CONDITION_AUDIO
} vx_condition_kind;
typedef struct vx_condition_rows {
    vx_condition_kind kind;
    int64_t frame;                                      // keyframes: pixel frame, 0..frames-1; a clip begins there
    int64_t latent_frames, latent_height, latent_width; // visual kinds; a keyframe has the target's height and width
    int64_t audio_frames; // of the soundtrack or clip; 0 = none. Its rows come before the visual rows
} vx_condition_rows;

typedef struct vx_layout_params {
    int64_t text_rows;
    const int32_t *text_tags;      // [text_rows] VX_MODALITY_TEXT, or _VIDEO for the rows of a vision block
    int64_t frames, width, height; // of the target: 17n+5, multiples of 32
    const vx_condition_rows *conditions;
    int condition_count;
} vx_layout_params;

enum { VX_CLOCK_VIDEO, VX_CLOCK_AUDIO, VX_CLOCK_VISUAL_CONDITION, VX_CLOCK_AUDIO_CONDITION, VX_CLOCKS };

typedef struct vx_layout {
    int64_t rows;                                              // S
    int64_t text_rows, condition_rows, audio_rows, video_rows; // audio and video: the target's; condition_rows of both kinds
    int64_t condition_begin, audio_begin, video_begin;
    int64_t latent_frames, latent_height, latent_width, audio_frames;
    int32_t *tag;     // [rows] VX_MODALITY_*
    double *position; // [rows][3]  (t, h, w)
    // Which clock a row follows: its timestep is found per step by vx_layout_timesteps.
    uint8_t *clock;           // [rows] VX_CLOCK_*
    bool followed[VX_CLOCKS]; // some row follows it
} vx_layout;

// Errors: VX_ERR_RANGE naming what does not fit, VX_ERR_MEMORY. The conditions are read during the call only.
vx_status vx_layout_create(vx_layout *out, const vx_layout_params *params);
void vx_layout_free(vx_layout *layout);

// The distinct timesteps of a step in ascending order (f32 equality) and, for each clock, the index of its own.
// t = 1 - sigma in f32; visual conditions max(t_video, 0.999), audio conditions 1. Only clocks that some row follows count;
// the index of the others is -1. Returns how many are distinct.
int vx_layout_timesteps(const vx_layout *layout, float t_video, float t_audio, float distinct[VX_CLOCKS], int index[VX_CLOCKS]);

// Rows of one kind, conditions first, as the reference's index lists: VX_MODALITY_VIDEO (patch rows), _AUDIO, or _TEXT (the
// presentation's rows, whatever their tags). Returns how many; out is the caller's array, or NULL to only count.
int64_t vx_layout_indices(const vx_layout *layout, int tag, int32_t *out);

#endif
