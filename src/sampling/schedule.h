// Sigma lists (denoiser specification 6.1-6.3): pure arithmetic on the host, bit-exact where the specification says so.
#ifndef VX_SAMPLING_SCHEDULE_H
#define VX_SAMPLING_SCHEDULE_H

#include "base/status.h"
#include <stdint.h>

typedef enum vx_schedule {
    VX_SCHEDULE_OFFICIAL,
    VX_SCHEDULE_SIMPLE,
    VX_SCHEDULE_BETA,
    VX_SCHEDULE_NORMAL,
    VX_SCHEDULE_EXPLICIT
} vx_schedule;
enum { VX_MAX_SIGMAS = 1001 };

typedef struct vx_sigmas {
    int count; // points including the final 0; evaluations = count - 1
    float video[VX_MAX_SIGMAS], audio[VX_MAX_SIGMAS];
} vx_sigmas;

// points >= 2 counts the final 0 for every schedule. Beta may return fewer points (equal indices are skipped).
// Official lists that lose different numbers of equal neighbours are VX_ERR_VALUE.
vx_status vx_sigmas_make(vx_sigmas *out, vx_schedule schedule, int points, float shift, float audio_shift);
// Explicit: strictly decreasing, first <= 1, last 0, 2..1001 values; audio by 6.3 with both shifts.
vx_status vx_sigmas_explicit(vx_sigmas *out, const float *sigmas, int count, float shift, float audio_shift);
// Rungs of the table of 1000, falling, each shifted for both streams, then 0: the list may begin below 1 (6.8, FastH3).
vx_status vx_sigmas_rungs(vx_sigmas *out, const int *rungs, int count, float shift, float audio_shift);
// Every so-manieth point of a grid of `intervals` in f64, which banks of heads are aligned to; evaluations divide intervals.
vx_status vx_sigmas_coarse(vx_sigmas *out, int intervals, int evaluations, float shift, float audio_shift);
float vx_audio_sigma(float sigma, float shift, float audio_shift); // 6.3 in f32
double vx_beta_ppf(double u, double a, double b);                  // inverse of the regularised incomplete beta function

#endif
