// A video or sound file opened by FFmpeg through the allow-lists, and what its packets say before anything is decoded.
#ifndef VX_MEDIA_INPUT_CLIP_H
#define VX_MEDIA_INPUT_CLIP_H

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>

#include "internal.h"

typedef struct vx_clip {
    const char *path, *demuxer;
    double deadline;
    AVFormatContext *format;
    AVStream *video, *audio; // the first of each, attached pictures apart; NULL if none
    AVPacket *packet;
    AVFrame *frame; // what a decoder gives
    int orientation;
    // of the scan
    int64_t frames;
    AVRational rate;    // of frames; 0/1 unknown
    bool constant_rate; // all distances between frames are equal, but for the time base's rounding
    double video_s, sound_s;
} vx_clip;

vx_status vx_clip_open(vx_clip *c, const char *path, const char *demuxer);
void vx_clip_close(vx_clip *c);
// Reads all packets and fills in the facts; the clip is then at its end. Stops at VX_INPUT_MAX_SECONDS with a refusal: what a
// header says of seconds is believed in neither direction.
vx_status vx_clip_scan(vx_clip *c);

// By the allow-list; the context is set up and open.
vx_status vx_clip_decoder(const vx_clip *c, AVCodecContext **out, const AVStream *stream);
// The next packet of one stream into c->packet; *end at the end of the file. The caller unrefs the packet.
vx_status vx_clip_next(vx_clip *c, const AVStream *stream, bool *end);

vx_status vx_clip_refused(const vx_clip *c, int error, const char *format, ...) VX_PRINTF(3, 4);
vx_status vx_clip_too_long(const vx_clip *c);
// "holds no video": it holds `what` not.
vx_status vx_clip_without(const vx_clip *c, const char *what);
bool vx_clip_late(const vx_clip *c);

// ---- clip_frames.c, clip_sound.c: on an opened clip ----
vx_status vx_clip_frames(vx_clip *c, int64_t max_slots, vx_input_frame_fn frame, void *user, int64_t *slots);
vx_status vx_clip_sound(vx_clip *c, float **planar, int64_t *channels, int64_t *samples, int64_t *sample_rate,
                        int64_t max_samples);

#endif
