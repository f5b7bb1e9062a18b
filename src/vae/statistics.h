// Per-channel mean and deviation of a latent space, in the order configuration, built-in table.
#ifndef VX_VAE_STATISTICS_H
#define VX_VAE_STATISTICS_H

#include "weights/component.h"

enum { VX_MAX_LATENT_CHANNELS = 64 };

// The released model's, for single files without a configuration. float of the published decimals.
extern const float vx_video_latents_mean[24], vx_video_latents_std[24];
extern const float vx_audio_latents_mean[32], vx_audio_latents_std[32];

// Fills mean and std [channels] from the configuration's latents_mean and latents_std; without a configuration from the
// table when it has `channels` entries. VX_ERR_CONFIG where neither is there, and for a deviation that is not above 0.
vx_status vx_statistics_read(const vx_component *c, int64_t channels, const float *table_mean, const float *table_std,
                             int64_t table_channels, float *mean, float *std);
vx_status vx_statistics_check(const vx_component *c, int64_t channels, const float *mean, const float *std);

#endif
