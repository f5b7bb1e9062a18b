// What the two halves of the audio VAE read alike: lists of the configuration, and the latents' statistics.
#include "vae/audio_weights.h"
#include "vae/statistics.h"

vx_status vx_audio_ints(const vx_component *c, const char *key, int64_t count, int64_t most, int64_t *out, bool *found)
{
    *found = false;
    VX_TRY(vx_config_ints(c, key, (int)count, out, found));
    for (int64_t i = 0; *found && i < count; i++)
        if (out[i] < 1 || out[i] > most)
            return vx_fail(VX_ERR_CONFIG, "%s: %s[%d] is %lld, expected 1..%lld", vx_component_path(c), key, (int)i,
                           (long long)out[i], (long long)most);
    return vx_ok();
}

vx_status vx_audio_statistics(vx_component *c, int64_t channels, float *mean, float *std)
{
    if (!vx_component_has(c, "latents_mean") || !vx_component_has(c, "latents_std"))
        return vx_statistics_read(c, channels, vx_audio_latents_mean, vx_audio_latents_std, 32, mean, std);
    vx_tensor m, s; // the file's own come before the configuration (A7)
    VX_TRY(vx_component_get(c, "latents_mean", VX_F32, &m, channels));
    VX_TRY(vx_component_get(c, "latents_std", VX_F32, &s, channels));
    for (int64_t i = 0; i < channels; i++) {
        mean[i] = vx_f32_of(m)[i];
        std[i] = vx_f32_of(s)[i];
    }
    return vx_statistics_check(c, channels, mean, std);
}
