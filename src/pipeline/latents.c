// Latents and embeddings as files (command-line contract, section 4).
#include <math.h>
#include <string.h>

#include "pipeline/internal.h"
#include "weights/safetensors.h"

enum { MOST_REQUEST = 1 << 20 }; // a prompt is 64 KiB; what is longer is not ours and is left out

// Leading axes of 1 are dropped: other programs keep a batch axis.
static bool squeeze(const vx_safetensors_entry *e, int rank, int64_t *shape)
{
    int skip = 0;
    while (e->rank - skip > rank && e->shape[skip] == 1) skip++;
    if (e->rank - skip != rank) return false;
    for (int i = 0; i < rank; i++) shape[i] = e->shape[skip + i];
    return true;
}

static vx_status load(const vx_safetensors *st, const char *name, int rank, int64_t *shape, float **out, bool *have)
{
    const vx_safetensors_entry *e = vx_safetensors_find(st, name);
    *have = false;
    if (!e) return vx_ok();
    if (!squeeze(e, rank, shape))
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: '%s' has %d axes, expected %d", vx_safetensors_path(st), name, e->rank, rank);
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= shape[i];
    *out = vx_alloc((size_t)count * sizeof **out);
    VX_NEED_MEMORY(*out, "latents");
    VX_TRY(vx_safetensors_read_f32(st, name, e->rank, e->shape, *out));
    for (int64_t i = 0; i < count; i++)
        if (!isfinite((*out)[i]))
            return vx_fail(VX_ERR_INPUT_FORMAT, "%s: '%s' holds NaN or infinity at element %lld", vx_safetensors_path(st), name,
                           (long long)i);
    *have = true;
    return vx_ok();
}

static vx_status check_shapes(const vx_job *job, const char *path)
{
    const int64_t *v = job->video_shape, *a = job->audio_shape;
    if (!job->have_video && !job->have_audio)
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: neither 'video' nor 'audio' is there", path);
    if (job->have_video && (v[1] < 7 || v[1] % 5 != 2 || v[1] > 107))
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: 'video' has %lld latent frames, expected 5n+2 from 7 to 107", path,
                       (long long)v[1]);
    if (job->have_video && (v[2] < 2 || v[3] < 2 || v[2] > 256 || v[3] > 256 || v[2] * v[3] > 4128768 / 256))
        return vx_fail(VX_ERR_INPUT_FORMAT,
                       "%s: 'video' is %lldx%lld latent cells, expected 2..256 a side and at most 16128 in all", path,
                       (long long)v[3], (long long)v[2]);
    if (job->have_audio && (a[0] != VX_SOUND_CHANNELS || a[2] < 1 || a[2] > 4096))
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: 'audio' is [%lld,%lld,%lld], expected [2,32,A] with A from 1 to 4096", path,
                       (long long)a[0], (long long)a[1], (long long)a[2]);
    return vx_ok();
}

vx_status vx_latents_load(vx_job *job, const char *path)
{
    vx_safetensors *st = NULL;
    VX_TRY(vx_safetensors_open(&st, path, &(vx_safetensors_params){ .input = true }));
    vx_status s = load(st, "video", 4, job->video_shape, &job->video, &job->have_video);
    if (!s.code) s = load(st, "audio", 3, job->audio_shape, &job->audio, &job->have_audio);
    if (!s.code) s = check_shapes(job, path);
    const char *request = vx_safetensors_metadata(st, "request");
    if (!s.code && request && strlen(request) <= MOST_REQUEST && !(job->file_request = vx_strdup(request)))
        s = vx_no_memory("for metadata");
    if (!s.code) s = vx_safetensors_check(st);
    vx_safetensors_close(&st);
    if (s.code) return s;
    // The VAEs say how many channels they want; a network that differs is found when the tensors meet.
    if (job->have_video && job->model) {
        VX_TRY(vx_model_vaes(job->model, true, false));
        int64_t want = vx_video_decoder_config_of(job->model->video)->latent_channels;
        if (job->video_shape[0] != want)
            return vx_fail(VX_ERR_INPUT_FORMAT, "%s: 'video' has %lld channels, the model %lld", path,
                           (long long)job->video_shape[0], (long long)want);
    }
    if (job->have_audio && job->model) {
        VX_TRY(vx_model_vaes(job->model, false, true));
        int64_t want = vx_audio_decoder_config_of(job->model->audio)->latent_channels;
        if (job->audio_shape[1] != want)
            return vx_fail(VX_ERR_INPUT_FORMAT, "%s: 'audio' has %lld channels, the model %lld", path,
                           (long long)job->audio_shape[1], (long long)want);
    }
    return vx_ok();
}

vx_status vx_job_save_latents(vx_job *job, const char *path, bool replace)
{
    if (!vx_job_has_latents(job)) return vx_fail(VX_ERR_USAGE, "the job has no latents yet: run it first");
    char *request = NULL;
    VX_TRY(vx_json_text(vx_result_object(job), &request));
    vx_safetensors_tensor tensors[2];
    int count = 0;
    if (job->have_audio)
        tensors[count++] = (vx_safetensors_tensor){
            "audio", VX_F32, 3, { job->audio_shape[0], job->audio_shape[1], job->audio_shape[2] }, job->audio
        };
    if (job->have_video)
        tensors[count++] = (vx_safetensors_tensor){
            "video", VX_F32, 4, { job->video_shape[0], job->video_shape[1], job->video_shape[2], job->video_shape[3] }, job->video
        };
    const vx_safetensors_pair metadata[] = { { "request", request }, { "vortex_version", vx_version() } };
    vx_status s = vx_safetensors_write(path, replace, tensors, count, metadata, 2);
    vx_free(request);
    return s;
}

// prompt_embeds [L, text_dim] in any float format and text_token_tags [L], as --dump-tensors writes them.
vx_status vx_embeds_load(vx_job *job, const char *path, int64_t text_dim)
{
    vx_safetensors *st = NULL;
    VX_TRY(vx_safetensors_open(&st, path, &(vx_safetensors_params){ .input = true }));
    vx_status s = vx_ok();
    float *wide = NULL;
    int64_t shape[2] = { 0 }, tag_shape[1] = { 0 };
    bool have;
    const vx_safetensors_entry *tags = vx_safetensors_find(st, "text_token_tags");
    VX_CATCH(s, done, load(st, "prompt_embeds", 2, shape, &wide, &have));
    if (!have) s = vx_fail_field(VX_ERR_INPUT_FORMAT, "prompt_embeds", "%s: 'prompt_embeds' is missing", path);
    else if (shape[1] != text_dim || shape[0] < 1 || shape[0] > VX_MAX_TOKENS)
        s = vx_fail_field(VX_ERR_INPUT_FORMAT, "prompt_embeds", "%s: 'prompt_embeds' is [%lld,%lld], expected [1..%d,%lld]", path,
                          (long long)shape[0], (long long)shape[1], (int)VX_MAX_TOKENS, (long long)text_dim);
    else if (!tags || tags->dtype != VX_I32 || !squeeze(tags, 1, tag_shape) || tag_shape[0] != shape[0])
        s = vx_fail_field(VX_ERR_INPUT_FORMAT, "prompt_embeds",
                          "%s: 'text_token_tags' I32 [%lld] is missing or has another shape", path, (long long)shape[0]);
    if (s.code) goto done;
    size_t count = (size_t)shape[0] * (size_t)shape[1];
    job->text_rows = shape[0];
    job->presentation.tokens.rows = shape[0];
    job->presentation.tokens.tags = vx_alloc_array((size_t)shape[0], sizeof *job->presentation.tokens.tags);
    job->embeds = vx_alloc(count * (size_t)vx_dtype_bits(job->request.act) / 8);
    if (!job->presentation.tokens.tags || !job->embeds) {
        s = vx_no_memory("for embeddings");
        goto done;
    }
    memcpy(job->presentation.tokens.tags, tags->data, (size_t)shape[0] * sizeof *job->presentation.tokens.tags);
    for (int64_t i = 0; i < shape[0] && !s.code; i++)
        if (job->presentation.tokens.tags[i] != VX_TAG_VIDEO && job->presentation.tokens.tags[i] != VX_TAG_TEXT)
            s = vx_fail_field(VX_ERR_INPUT_FORMAT, "prompt_embeds", "%s: 'text_token_tags' holds %d at row %lld, expected 0 or 1",
                              path, job->presentation.tokens.tags[i], (long long)i);
    for (size_t i = 0; i < count; i++) {
        if (job->request.act == VX_F32) ((float *)job->embeds)[i] = wide[i];
        else ((uint16_t *)job->embeds)[i] = vx_f32_to_bf16(wide[i]);
        if (job->request.act == VX_F32 || isfinite(vx_bf16_to_f32(((const uint16_t *)job->embeds)[i]))) continue;
        s = vx_fail_field(VX_ERR_INPUT_FORMAT, "prompt_embeds", "%s: 'prompt_embeds' holds %g at element %zu, beyond bf16", path,
                          (double)wide[i], i);
        break;
    }
done:
    vx_free(wide);
    vx_safetensors_close(&st);
    return s;
}
