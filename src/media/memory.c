// How much memory the writer takes, without the writer: plans are made where FFmpeg need not be.
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "media/media.h"
uint64_t vx_movie_memory(const vx_movie_params *p)
{
    return (uint64_t)p->width * (uint64_t)p->height * 3 * 60;
}
