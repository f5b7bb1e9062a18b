// The module's side of media/input.h.
#include <stdio.h>

#include "base/alloc.h"
#include "base/file.h"
#include "clip.h"

// What the file is. Pictures stay mapped in *map; of a clip only the name of its demuxer is needed further.
static vx_status open_source(vx_mapping **map, vx_source *source, const char **demuxer, const char *path)
{
    VX_TRY(vx_file_map(map, path, VX_ERR_INPUT_OPEN));
    *source = vx_sniff(demuxer, vx_mapping_data(*map), vx_mapping_size(*map));
    if (*source == VX_SOURCE_REFUSED) return vx_source_refused(path, *demuxer);
    if (*source == VX_SOURCE_UNKNOWN) return vx_source_unknown(path, vx_mapping_size(*map));
    if (*source != VX_SOURCE_CLIP) return vx_ok();
    bool cut = vx_container_cut(*demuxer, vx_mapping_data(*map), vx_mapping_size(*map));
    vx_file_unmap(map);
    return cut ? vx_fail(VX_ERR_INPUT_FORMAT, "%s: is cut off", path) : vx_ok();
}

static vx_status probe_picture(vx_input_facts *out, const vx_mapping *map, const char *path)
{
    vx_picture p = { .name = path, .bytes = vx_mapping_data(map), .size = vx_mapping_size(map) };
    VX_TRY(vx_picture_read(&p, false));
    VX_TRY(vx_file_check(map));
    bool turned = vx_orientation_turns(p.orientation);
    out->kind = VX_INPUT_PICTURE;
    out->width = turned ? p.height : p.width;
    out->height = turned ? p.width : p.height;
    snprintf(out->format, sizeof out->format, "%s", p.format);
    snprintf(out->codec, sizeof out->codec, "%s", p.format);
    return vx_ok();
}

static void tell_clip(vx_input_facts *out, const vx_clip *c)
{
    const AVStream *main = c->video ? c->video : c->audio;
    out->kind = c->video ? VX_INPUT_VIDEO : VX_INPUT_SOUND;
    out->fps_den = 1;
    if (c->video) {
        bool turned = vx_orientation_turns(c->orientation);
        out->width = turned ? c->video->codecpar->height : c->video->codecpar->width;
        out->height = turned ? c->video->codecpar->width : c->video->codecpar->height;
        out->fps_num = c->rate.num;
        out->fps_den = c->rate.den;
        out->video_s = c->video_s;
    }
    out->sound = c->audio != NULL;
    if (c->audio) {
        out->sample_rate = c->audio->codecpar->sample_rate;
        out->channels = c->audio->codecpar->ch_layout.nb_channels;
        out->sound_s = c->sound_s;
    }
    snprintf(out->format, sizeof out->format, "%s", c->demuxer);
    snprintf(out->codec, sizeof out->codec, "%s", avcodec_get_name(main->codecpar->codec_id));
}

static vx_status probe_clip(vx_input_facts *out, const char *path, const char *demuxer)
{
    vx_clip c;
    vx_status s = vx_clip_open(&c, path, demuxer);
    if (s.code == VX_OK) s = vx_clip_scan(&c);
    if (s.code == VX_OK) tell_clip(out, &c);
    vx_clip_close(&c);
    return s;
}

vx_status vx_entry_probe(vx_input_facts *out, const char *path)
{
    vx_mapping *map = NULL;
    vx_source source;
    const char *demuxer;
    *out = (vx_input_facts){ .fps_den = 1 };
    vx_status s = open_source(&map, &source, &demuxer, path);
    if (s.code == VX_OK) s = source == VX_SOURCE_CLIP ? probe_clip(out, path, demuxer) : probe_picture(out, map, path);
    vx_file_unmap(&map);
    return s;
}

vx_status vx_entry_picture(uint8_t **rgb, int64_t *width, int64_t *height, const char *path)
{
    vx_mapping *map = NULL;
    *rgb = NULL;
    VX_TRY(vx_file_map(&map, path, VX_ERR_INPUT_OPEN));
    vx_status s = vx_picture_decode(rgb, width, height, vx_mapping_data(map), vx_mapping_size(map), path);
    if (s.code == VX_OK) s = vx_file_check(map);
    if (s.code != VX_OK) {
        vx_free(*rgb);
        *rgb = NULL;
    }
    vx_file_unmap(&map);
    return s;
}

// A clip that was scanned, at its start again. Opened twice: not every container can be wound back.
static vx_status open_scanned(vx_clip *c, const char *path)
{
    vx_mapping *map = NULL;
    vx_source source;
    const char *demuxer;
    vx_status s = open_source(&map, &source, &demuxer, path);
    vx_file_unmap(&map);
    *c = (vx_clip){ 0 };
    if (s.code == VX_OK && source != VX_SOURCE_CLIP)
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: is a picture, not a video or sound", path);
    VX_TRY(s);
    vx_clip first;
    s = vx_clip_open(&first, path, demuxer);
    if (s.code == VX_OK) s = vx_clip_scan(&first);
    vx_clip_close(&first);
    VX_TRY(s);
    VX_TRY(vx_clip_open(c, path, demuxer));
    c->frames = first.frames;
    c->rate = first.rate;
    c->constant_rate = first.constant_rate;
    return vx_ok();
}

vx_status vx_entry_frames(const char *path, int64_t max_slots, vx_input_frame_fn frame, void *user, int64_t *slots)
{
    vx_clip c;
    *slots = 0;
    vx_status s = open_scanned(&c, path);
    if (s.code == VX_OK) s = c.video ? vx_clip_frames(&c, max_slots, frame, user, slots) : vx_clip_without(&c, "video");
    vx_clip_close(&c);
    return s;
}

vx_status vx_entry_sound(float **planar, int64_t *channels, int64_t *samples, int64_t *sample_rate, const char *path,
                         int64_t max_samples)
{
    vx_clip c;
    *planar = NULL;
    *channels = *samples = *sample_rate = 0;
    vx_status s = open_scanned(&c, path);
    if (s.code == VX_OK)
        s = c.audio ? vx_clip_sound(&c, planar, channels, samples, sample_rate, max_samples) : vx_clip_without(&c, "sound");
    vx_clip_close(&c);
    return s;
}
