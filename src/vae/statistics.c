// The tables are those of MiniMaxAI/MiniMax-H3's configuration files (video_vae/config.json, audio_vae/config.json), as
// printed in the specifications (video-vae 2, audio-vae A1), rounded once to float.
#include "vae/statistics.h"

#include <math.h>
#include <string.h>

const float vx_video_latents_mean[24] = {
    0.858090341f,  -0.960659146f,  1.06616402f,  -0.509032547f, -0.272758186f,  -1.36754143f,  -0.255325496f, -0.269075543f,
    -0.537684083f, -0.0464097299f, 0.665737033f, 0.196901277f,  -0.546060801f,  -0.403534204f, -0.236830249f, 0.259284526f,
    -0.301339447f, 0.211341992f,   -1.12068486f, 0.358193338f,  -0.0422514379f, 0.260482997f,  0.228640929f,  0.705603182f,
};

const float vx_video_latents_std[24] = {
    1.22237742f,  1.27672637f,  1.68317747f, 1.75494552f,  1.56362164f,  2.19414353f,  0.965313792f, 1.0569886f,
    0.841948926f, 0.772995293f, 1.89559376f, 0.946841836f, 0.799680948f, 0.449889004f, 0.719739974f, 0.693629324f,
    2.96109509f,  2.76941991f,  3.04961848f, 2.10880542f,  3.27622628f,  3.1627357f,   2.2816813f,   2.61278439f,
};

const float vx_audio_latents_mean[32] = {
    -0.0202116873f, 0.387646645f,  -0.0439827964f, -0.285915136f,  0.0817968622f,  -0.357826412f, 0.0406238101f,  -0.0155253448f,
    -0.223362476f,  0.182100683f,  0.29417789f,    -0.0790116787f, -0.0568150729f, -0.369902819f, -0.316163152f,  0.590595126f,
    -0.0521395691f, 0.0136731602f, -0.0369164795f, 0.0973266065f,  -0.339466244f,  -0.306856781f, -0.24504599f,   -0.0346985236f,
    0.0286803227f,  -0.212177798f, -0.16782631f,   0.322128803f,   -0.122305587f,  0.435660481f,  -0.0502599217f, 0.397925824f,
};

const float vx_audio_latents_std[32] = {
    1.68955243f, 2.76263738f, 1.79453444f, 1.68016815f, 1.63902271f, 2.77882981f, 1.76590896f, 1.61997581f,
    2.63365245f, 1.85393572f, 2.50564981f, 1.81101918f, 1.95796573f, 1.66854978f, 1.49224699f, 3.29867029f,
    1.94918048f, 1.87200034f, 1.833408f,   1.64880705f, 1.61769581f, 1.91314495f, 1.56952453f, 1.69436598f,
    1.83184206f, 1.5540638f,  1.93449306f, 1.59919822f, 1.71804595f, 1.63072193f, 1.8661226f,  1.56137681f,
};

vx_status vx_statistics_check(const vx_component *c, int64_t channels, const float *mean, const float *std)
{
    for (int64_t i = 0; i < channels; i++)
        if (!isfinite(mean[i]) || !isfinite(std[i]) || !(std[i] > 0.0f))
            return vx_fail(VX_ERR_CONFIG,
                           "%s: latents_mean and latents_std of channel %d are %g and %g: a deviation must be above 0",
                           vx_component_path(c), (int)i, (double)mean[i], (double)std[i]);
    return vx_ok();
}

vx_status vx_statistics_read(const vx_component *c, int64_t channels, const float *table_mean, const float *table_std,
                             int64_t table_channels, float *mean, float *std)
{
    bool has_mean = false, has_std = false;
    VX_TRY(vx_config_floats(c, "latents_mean", (int)channels, mean, &has_mean));
    VX_TRY(vx_config_floats(c, "latents_std", (int)channels, std, &has_std));
    if (has_mean != has_std)
        return vx_fail(VX_ERR_CONFIG, "%s: of latents_mean and latents_std only one is there", vx_component_path(c));
    if (!has_mean) {
        if (vx_component_config(c) != NULL || channels != table_channels)
            return vx_fail(VX_ERR_CONFIG, "%s: latents_mean and latents_std of %d channels are missing from the configuration",
                           vx_component_path(c), (int)channels);
        memcpy(mean, table_mean, (size_t)channels * sizeof *mean);
        memcpy(std, table_std, (size_t)channels * sizeof *std);
    }
    return vx_statistics_check(c, channels, mean, std);
}
