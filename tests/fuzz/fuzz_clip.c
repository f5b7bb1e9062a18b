// Any bytes as a video or sound file, through a memory file: probed, its frames, its sound.
//
// Promises (reliability specification T34): an answer of the kinds that are documented; slots come in order and without
// gaps, all of one size; samples are as many as told, and only if the answer is good.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "media/ffmpeg/internal.h"
#include "media/input/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_SLOTS = 12, MOST_PIXELS = 1 << 20 };

static void must(bool condition)
{
    if (!condition) abort();
}

typedef struct seen {
    int64_t slots, width, height;
    unsigned sum;
} seen;

static bool look(void *user, int64_t slot, int64_t count, const uint8_t *rgb, int64_t width, int64_t height)
{
    seen *s = user;
    must(slot == s->slots && count >= 1 && width >= 1 && height >= 1);
    must(!s->slots || (width == s->width && height == s->height));
    for (int64_t i = 0; i < width * height * 3; i++) s->sum += rgb[i];
    s->slots += count;
    s->width = width;
    s->height = height;
    return true;
}

static void check_code(vx_status s)
{
    must(s.code == VX_OK || s.code == VX_ERR_INPUT_FORMAT || s.code == VX_ERR_RANGE || s.code == VX_ERR_MEMORY);
    must(s.code == VX_OK || s.message[0]);
}

static void try_clip(const char *path)
{
    vx_input_facts facts;
    vx_status s = vx_entry_probe(&facts, path);
    check_code(s);
    if (s.code != VX_OK || facts.kind == VX_INPUT_PICTURE) return;
    must(facts.video_s <= VX_INPUT_MAX_SECONDS + 1 && facts.sound_s <= VX_INPUT_MAX_SECONDS + 1);
    if (facts.width * facts.height > MOST_PIXELS) return;
    seen all = { 0 };
    int64_t slots, channels, samples, rate;
    s = vx_entry_frames(path, MOST_SLOTS, look, &all, &slots);
    check_code(s);
    must(slots == all.slots && slots <= MOST_SLOTS);
    float *planar;
    s = vx_entry_sound(&planar, &channels, &samples, &rate, path, 0);
    check_code(s);
    must((s.code == VX_OK) == (planar != NULL));
    if (planar) must(channels >= 1 && channels <= 2 && samples >= 1 && samples <= rate * (VX_INPUT_MAX_SECONDS + 1));
    vx_free(planar);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    vx_av_log_capture();
    try_clip(path);
    close(fd);
    return 0;
}
