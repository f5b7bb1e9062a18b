// The core's side of media/input.h: forwards to the media module.
#include "media/input.h"

#include "media/module.h"

vx_status vx_input_probe(vx_input_facts *out, const char *path)
{
    const vx_media_module *m;
    *out = (vx_input_facts){ .fps_den = 1 };
    VX_TRY(vx_media_module_load(&m));
    return m->input_probe(out, path);
}

vx_status vx_input_picture(uint8_t **rgb, int64_t *width, int64_t *height, const char *path)
{
    const vx_media_module *m;
    *rgb = NULL;
    VX_TRY(vx_media_module_load(&m));
    return m->input_picture(rgb, width, height, path);
}

vx_status vx_input_frames(const char *path, int64_t max_slots, vx_input_frame_fn frame, void *user, int64_t *slots)
{
    const vx_media_module *m;
    *slots = 0;
    VX_TRY(vx_media_module_load(&m));
    return m->input_frames(path, max_slots, frame, user, slots);
}

vx_status vx_input_sound(float **planar, int64_t *channels, int64_t *samples, int64_t *sample_rate, const char *path,
                         int64_t max_samples)
{
    const vx_media_module *m;
    *planar = NULL;
    VX_TRY(vx_media_module_load(&m));
    return m->input_sound(planar, channels, samples, sample_rate, path, max_samples);
}
