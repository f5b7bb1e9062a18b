// Files that a stranger may hand to `vortex decode` and --prompt-embeds, opened through a memory file.
//
//   [1][file]   bit 0 of the first byte: latents or embeddings; bit 1: activations of embeddings in bf16 or f32
//
// Promises: an error is of the input class, or of memory, and says something; what is accepted is finite, of a shape that
// can be decoded, and has the size that its shape says.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pipeline/internal.h"

enum { TEXT_DIM = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition) abort();
}

static void check_finite(const float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) must(isfinite(values[i]));
}

static void check_latents(const vx_job *job)
{
    const int64_t *v = job->video_shape, *a = job->audio_shape;
    must(job->have_video || job->have_audio);
    if (job->have_video) {
        must(v[1] >= 7 && v[1] % 5 == 2 && v[2] >= 2 && v[3] >= 2 && v[2] * v[3] <= 16128);
        check_finite(job->video, v[0] * v[1] * v[2] * v[3]);
    }
    if (job->have_audio) {
        must(a[0] == 2 && a[2] >= 1);
        check_finite(job->audio, a[0] * a[1] * a[2]);
    }
}

static void check_embeds(const vx_job *job)
{
    must(job->text_rows >= 1 && job->text_rows <= 16384 && job->presentation.tokens.rows == job->text_rows);
    for (int64_t i = 0; i < job->text_rows; i++)
        must(job->presentation.tokens.tags[i] == 0 || job->presentation.tokens.tags[i] == 1);
    if (job->request.act == VX_F32) check_finite(job->embeds, job->text_rows * TEXT_DIM);
    else
        for (int64_t i = 0; i < job->text_rows * TEXT_DIM; i++)
            must(isfinite(vx_bf16_to_f32(((const uint16_t *)job->embeds)[i])));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    must(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)(size - 1));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    vx_job *job = vx_alloc_array(1, sizeof *job);
    must(job != NULL);
    job->request.act = data[0] & 2 ? VX_F32 : VX_BF16;
    bool embeds = data[0] & 1;
    vx_status s = embeds ? vx_embeds_load(job, path, TEXT_DIM) : vx_latents_load(job, path);
    must(s.code == VX_OK || ((s.code / 1000 == 7 || s.code == VX_ERR_MEMORY) && s.message[0]));
    if (s.code == VX_OK && embeds) check_embeds(job);
    else if (s.code == VX_OK) check_latents(job);
    vx_job_destroy(&job);
    close(fd);
    return 0;
}
