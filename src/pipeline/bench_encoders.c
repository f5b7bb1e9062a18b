// The encoders of pictures and of sound by themselves: a picture of the canonical size, and as much sound as its clip has.
#include <string.h>

#include "base/clock.h"
#include "pipeline/internal.h"

enum { SAMPLES = VX_CANONICAL_FRAMES * 32000 / 24 };
typedef struct clip {
    bool picture;
    uint8_t *rgb; // [VX_CANONICAL_HEIGHT, VX_CANONICAL_WIDTH, 3]
    float *sound; // [channels, SAMPLES]
} clip;

static vx_status encode_once(vx_model *m, const clip *c)
{
    return c->picture ? vx_encode_picture_once(m, c->rgb, VX_CANONICAL_HEIGHT, VX_CANONICAL_WIDTH)
                      : vx_encode_sound_once(m, c->sound, SAMPLES);
}

static vx_status traced_clip(vx_model *m, vx_bench_tally *tally, void *user)
{
    (void)tally;
    return encode_once(m, user);
}

static vx_status make_clip(clip *c)
{
    c->rgb = vx_alloc((size_t)VX_CANONICAL_WIDTH * VX_CANONICAL_HEIGHT * 3);
    c->sound = vx_alloc_array((size_t)SAMPLES * VX_SOUND_CHANNELS, sizeof *c->sound);
    if (!c->rgb || !c->sound) return vx_no_memory("for samples");
    for (int i = 0; i < VX_CANONICAL_WIDTH * VX_CANONICAL_HEIGHT * 3; i++) c->rgb[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24);
    for (int i = 0; i < SAMPLES * VX_SOUND_CHANNELS; i++)
        c->sound[i] = (float)((uint32_t)i * 2654435761u >> 16) / 65536.0f - 0.5f;
    return vx_ok();
}

static vx_status time_clip(vx_bench_run *run, vx_model *m, clip *c)
{
    json_t *o = run->report;
    vx_bench_tally *tally = NULL;
    VX_TRY(vx_model_encoders(m, false, c->picture, !c->picture));
    for (int i = -1; i < run->runs; i++) { // the first warms up
        const double began = vx_clock_s();
        VX_TRY(encode_once(m, c));
        if (i >= 0) run->sample[i] = vx_clock_s() - began;
    }
    json_object_set_new(o, "shape",
                        c->picture ? json_pack("[i, i, i, i]", 1, VX_CANONICAL_HEIGHT, VX_CANONICAL_WIDTH, 3)
                                   : json_pack("[i, i]", VX_SOUND_CHANNELS, SAMPLES));
    if (vx_device_far(m->device))
        json_object_set_new(o, "stage_bytes", json_integer((json_int_t)m->stage_peak[c->picture ? VX_VIDEO_VAE : VX_AUDIO_VAE]));
    vx_status s = vx_bench_trace(m, &tally, traced_clip, c);
    if (!s.code) json_object_set_new(o, "operators_of_a_run", vx_bench_operators(tally));
    vx_free(tally);
    return s;
}

vx_status vx_bench_encoder(vx_bench_run *run, vx_model *m)
{
    clip c = { .picture = !strcmp(run->params->what, "image-encoder") };
    vx_status s = make_clip(&c);
    vx_device_watch(m->device, run->params->cancelled);
    if (!s.code) s = time_clip(run, m, &c);
    vx_device_watch(m->device, NULL);
    vx_free(c.rgb);
    vx_free(c.sound);
    vx_bench_tell_choices(run->report, m->device);
    return s;
}
