// The size rules of the tower's image and video processors (text-encoder specification, 4.2). The limits are those of the
// released preprocessor_config.json and video_preprocessor_config.json.
#include <math.h>

#include "text/vision_inside.h"

static const double PICTURE_LEAST = 65536, PICTURE_MOST = 16777216; // pixels
static const double VIDEO_LEAST = 4096, VIDEO_MOST = 25165824;      // pixels of all sampled frames together

// To a multiple of the side, halves to the even one: Python's round.
static int64_t nearest(int64_t x)
{
    return (int64_t)nearbyint((double)x / VX_VISION_SIDE) * VX_VISION_SIDE;
}

static int64_t down(double x)
{
    int64_t n = (int64_t)floor(x / VX_VISION_SIDE) * VX_VISION_SIDE;
    return n < VX_VISION_SIDE ? VX_VISION_SIDE : n;
}

static int64_t up(double x)
{
    return (int64_t)ceil(x / VX_VISION_SIDE) * VX_VISION_SIDE;
}

// rounded_frames counts the volume of the rounded size, `frames` that of the size as it came.
static void fit(double frames, double rounded_frames, double least, double most, int64_t height, int64_t width,
                int64_t *to_height, int64_t *to_width)
{
    const double volume = frames * (double)height * (double)width;
    *to_height = nearest(height);
    *to_width = nearest(width);
    const double rounded = rounded_frames * (double)*to_height * (double)*to_width;
    if (rounded > most) {
        double beta = sqrt(volume / most);
        *to_height = down((double)height / beta);
        *to_width = down((double)width / beta);
    } else if (rounded < least) {
        double beta = sqrt(least / volume);
        *to_height = up((double)height * beta);
        *to_width = up((double)width * beta);
    }
}

void vx_vision_picture_size(int64_t height, int64_t width, int64_t *to_height, int64_t *to_width)
{
    fit(1, 1, PICTURE_LEAST, PICTURE_MOST, height, width, to_height, to_width);
}

// An odd number of frames is counted with the repeated one. Newer processors round it to even instead, which only moves videos
// of 25 sampled frames at the largest canvas.
void vx_vision_video_size(int64_t frames, int64_t height, int64_t width, int64_t *to_height, int64_t *to_width)
{
    fit((double)frames, (double)(frames + frames % VX_VISION_FRAMES), VIDEO_LEAST, VIDEO_MOST, height, width, to_height,
        to_width);
}
