// How much memory the writer takes, without the writer: plans are made where FFmpeg need not be.
//
// Nearly all of it is x264's. Its default ("medium") looks 40 frames ahead and holds every one of them. What it keeps of a
// frame, P = (width + 64) * (height + 64) for the borders of 32 pixels around each plane:
//   waiting     luma and chroma: 1.5 P (3 P for 4:4:4); four half-size planes, with borders of their own, for the
//               lookahead; 110 bytes of vectors and costs for each macroblock
//   reference   luma and three copies of it at half-pixel positions, chroma once: 4.5 P (12 P for 4:4:4)
// How many: frames 40 of the lookahead, 3 B-frames, 2 in hand, one a thread, and 4 between lookahead and encoder once there
// are threads; 3 references, and 1.75 a thread (each has its own frame and scratch). 4.5 MB are the rest: FFmpeg's tables,
// AAC, muxer; loading the libraries takes another 5 MB once, which is not counted. This meets 19 measurements of RssAnon
// (128x64 to 2048x2016, 22 to 362 frames, 1 to 24 threads, both pixel formats; x264 r3095) within 10 %, the smallest
// (6 MB) within 15 %; tests/media/test_memory.c holds it to 20 %.
#include <sched.h>
#include <string.h>

#include "base/checked.h"
#include "media/module.h"

enum { MACROBLOCK = 16, BORDER = 64, LOOKAHEAD = 40 + 3 + 2, SYNC_LOOKAHEAD = 4, BYTES_PER_MACROBLOCK = 110 };

static int processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// x264's own choice for 0: one and a half threads a processor. More than one thread for two rows of macroblocks costs
// quality and gains nothing; that bound is kept for any number.
int vx_movie_threads(const vx_movie_params *p)
{
    int64_t most = vx_max_i64(1, vx_ceil_div(p->height, MACROBLOCK) / 2);
    return (int)vx_min_i64(p->threads > 0 ? p->threads : vx_max_i64(1, processors() * 3 / 2), most);
}

uint64_t vx_movie_memory(const vx_movie_params *p)
{
    uint64_t w = (uint64_t)vx_max_i64(p->width, 0), h = (uint64_t)vx_max_i64(p->height, 0),
             threads = (uint64_t)vx_movie_threads(p);
    bool full = p->pixel_format && strcmp(p->pixel_format, "yuv444p") == 0;
    uint64_t plane = (w + BORDER) * (h + BORDER), low = 4 * (w / 2 + BORDER) * (h / 2 + BORDER);
    uint64_t blocks = (w / MACROBLOCK) * (h / MACROBLOCK);
    uint64_t waiting = plane * (full ? 6 : 3) / 2 + low + BYTES_PER_MACROBLOCK * blocks;
    uint64_t reference = plane * (full ? 24 : 9) / 2;
    int64_t held = LOOKAHEAD + (int64_t)threads + (threads > 1 ? SYNC_LOOKAHEAD : 0);
    if (p->frames > 0) held = vx_min_i64(held, p->frames);
    uint64_t sound = p->audio_codec ? (uint64_t)vx_max_i64(p->samples, 0) * (uint64_t)p->audio_bitrate / 8 /
                                          (uint64_t)vx_max_i64(p->sample_rate, 1)
                                    : 0;
    uint64_t picture = w * h * 3 + plane * 3 / 2; // the copy and its YUV
    return 4500000 + (uint64_t)held * waiting + reference * (12 + 7 * threads) / 4 + sound + picture;
}
