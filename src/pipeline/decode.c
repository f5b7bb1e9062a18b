// From latents to sound and pictures. The sound comes first (it is small and the muxer wants both side by side), then the
// picture window by window: memory does not grow with the clip. Where it goes is a sink: callbacks, an MP4, a tensor file.
// Files are written by a thread of their own while the next window is decoded (base/handoff.h); callbacks are the user's code
// and stay on the user's thread.
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/handoff.h"
#include "base/str.h"
#include "device/operators.h"
#include "pipeline/internal.h"
#include "weights/safetensors_stream.h"

typedef struct sink {
    // sound: [2, samples], everything the model made; picture: frames first.. as bytes, or as floats where `floats` is set.
    vx_status (*sound)(void *self, const float *samples, int64_t count);
    vx_status (*picture)(void *self, int64_t first, int64_t count, const void *frames);
    bool floats;
    bool aside; // `picture` is ours and may run on another thread, one call at a time and in order
    void *self;
} sink;

typedef struct picture_run {
    vx_job *job;
    vx_device *dev;
    const sink *to;
    vx_tensor bytes;     // one delivery of frames, on the device
    vx_handoff *handoff; // of a sink aside: two buffers of VX_PIECE_FRAMES
    void *host;          // of another: one delivery
    double inside;       // seconds spent in such a sink
} picture_run;

// Of a failed sink the decoder learns tile by tile: a window can take minutes on the processor.
static vx_status tiles_done(void *user, int64_t done, int64_t total)
{
    const picture_run *run = user;
    vx_job_progress(run->job, "decode_video", VX_STAGE_DECODE_VIDEO, done, total);
    return run->handoff ? vx_handoff_check(run->handoff) : vx_ok();
}

// frames [count, height, width, 3] as the sink wants them, on the device.
static vx_status deliver_here(picture_run *run, int64_t first, vx_tensor frames)
{
    VX_TRY(vx_download(run->dev, run->host, frames));
    VX_TRY(vx_model_check(run->job->model));
    double began = vx_clock_s();
    vx_status s = run->to->picture(run->to->self, first, frames.shape[0], run->host);
    run->inside += vx_clock_s() - began;
    return s;
}

static vx_status deliver_aside(picture_run *run, int64_t first, vx_tensor frames)
{
    for (int64_t done = 0; done < frames.shape[0]; done += VX_PIECE_FRAMES) {
        const int64_t end = vx_min_i64(done + VX_PIECE_FRAMES, frames.shape[0]);
        void *host;
        VX_TRY(vx_handoff_room(run->handoff, &host));
        VX_TRY(vx_download(run->dev, host, vx_tensor_slice(frames, 0, done, end)));
        VX_TRY(vx_model_check(run->job->model));
        vx_handoff_put(run->handoff, first + done, end - done);
    }
    return vx_ok();
}

static vx_status deliver(void *user, int64_t first, vx_tensor frames)
{
    picture_run *run = user;
    int64_t count = frames.shape[0];
    if (count > VX_DELIVERY_FRAMES) return vx_fail(VX_ERR_INTERNAL, "%lld frames came at once", (long long)count);
    if (!run->to->floats) {
        vx_tensor bytes = vx_tensor_make(run->bytes.data, VX_U8, 4, frames.shape);
        VX_TRY(vx_to_u8(run->dev, bytes, frames));
        frames = bytes;
    }
    return run->handoff ? deliver_aside(run, first, frames) : deliver_here(run, first, frames);
}

static vx_status run_decoder(picture_run *run)
{
    vx_job *job = run->job;
    vx_model *m = job->model;
    vx_stage_need need;
    vx_plan_counts counts;
    VX_TRY(vx_need_video(job, &need, &counts));
    vx_arena *arena = NULL;
    vx_status s = vx_stage_enter(m, VX_VIDEO_VAE, &need, &arena);
    if (!s.code) {
        vx_tensor latent = vx_arena_take(arena, VX_F32, 4, job->video_shape);
        run->bytes = vx_delivery_bytes(arena, job->video_shape);
        s = vx_upload(run->dev, latent, job->video);
        vx_video_decode decode_params = vx_decode_of(job, latent);
        decode_params.frames = deliver;
        decode_params.user = run;
        decode_params.progress = tiles_done;
        if (!s.code) s = vx_video_decoder_run(m->video, run->dev, arena, &decode_params);
    }
    vx_stage_leave(m, &arena);
    return s;
}

static vx_status decode_picture(vx_job *job, const sink *to)
{
    picture_run run = { .job = job, .dev = job->model->device, .to = to };
    const double began = vx_clock_s();
    const size_t frame = (size_t)job->plan.width * (size_t)job->plan.height * 3 * (to->floats ? sizeof(float) : 1);
    vx_job_progress(job, "decode_video", VX_STAGE_DECODE_VIDEO, 0, 1);
    vx_status s = to->aside ? vx_handoff_create(&run.handoff, frame * VX_PIECE_FRAMES, to->picture, to->self)
                            : vx_pages_alloc(&run.host, frame * VX_DELIVERY_FRAMES);
    if (!s.code) s = run_decoder(&run);
    if (run.handoff) {
        // The sink's error is the reason of whatever the decoder says then.
        const vx_status sunk = s.code ? vx_handoff_check(run.handoff) : vx_handoff_finish(run.handoff);
        if (sunk.code) s = sunk;
        run.inside = vx_handoff_waited_s(run.handoff);
        vx_handoff_destroy(&run.handoff);
    }
    vx_pages_free(run.host, frame * VX_DELIVERY_FRAMES);
    job->timings.decode_video += vx_clock_s() - began - run.inside;
    job->timings.mux += run.inside;
    return s;
}

static vx_status decode_sound(vx_job *job, const sink *to)
{
    vx_model *m = job->model;
    vx_device *dev = m->device;
    int64_t samples = job->audio_shape[2] * vx_audio_decoder_config_of(m->audio)->hop;
    size_t bytes = (size_t)samples * VX_SOUND_CHANNELS * sizeof(float);
    vx_stage_need need;
    vx_plan_counts counts;
    double began = vx_clock_s();
    vx_arena *arena = NULL;
    void *wave = NULL;
    vx_job_progress(job, "decode_audio", VX_STAGE_DECODE_AUDIO, 0, 1);
    VX_TRY(vx_audio_decoder_fold(m->audio, dev));
    VX_TRY(vx_need_audio(m, job->audio_shape[2], &need, &counts));
    VX_TRY(vx_pages_alloc(&wave, bytes));
    vx_status s = vx_stage_enter(m, VX_AUDIO_VAE, &need, &arena);
    if (!s.code) {
        vx_tensor latent = vx_arena_take(arena, VX_F32, 3, job->audio_shape),
                  out = vx_arena_tensor(arena, VX_F32, VX_SOUND_CHANNELS, samples);
        s = vx_upload(dev, latent, job->audio);
        if (!s.code) s = vx_audio_decoder_run(m->audio, dev, arena, out, latent, job->denormalised);
        if (!s.code) s = vx_download(dev, wave, out);
    }
    vx_stage_leave(m, &arena);
    job->timings.decode_audio += vx_clock_s() - began;
    if (!s.code) {
        vx_job_progress(job, "decode_audio", VX_STAGE_DECODE_AUDIO, 1, 1);
        s = to->sound(to->self, wave, samples);
    }
    vx_pages_free(wave, bytes);
    return s;
}

static vx_status decode(vx_job *job, const sink *to)
{
    if (!vx_job_has_latents(job)) return vx_fail(VX_ERR_USAGE, "the job has no latents yet: run it first");
    VX_TRY(vx_model_vaes(job->model, job->have_video, job->have_audio));
    VX_TRY(vx_model_has_numbers(job->model));
    vx_device *dev = job->model->device;
    vx_device_watch(dev, job->watched);
    (void)vx_job_parts(job);
    vx_status s = vx_ok();
    if (job->have_audio && to->sound) s = decode_sound(job, to);
    if (s.code) s = vx_within(s, "decode_audio");
    if (!s.code && job->have_video && to->picture) {
        s = decode_picture(job, to);
        if (s.code) s = vx_within(s, "decode_video");
    }
    vx_device_watch(dev, NULL);
    vx_status files = vx_model_check(job->model);
    return files.code ? files : s;
}

// ---- callbacks ----
static vx_status sound_to_callback(void *self, const float *samples, int64_t count)
{
    vx_job *job = self;
    return job->callbacks.sound(job->callbacks.user, samples, count)
               ? vx_ok()
               : vx_fail(VX_ERR_CANCELLED, "cancelled by the receiver of the sound");
}

static vx_status picture_to_callback(void *self, int64_t first, int64_t count, const void *frames)
{
    vx_job *job = self;
    return job->callbacks.frames(job->callbacks.user, first, count, frames)
               ? vx_ok()
               : vx_fail(VX_ERR_CANCELLED, "cancelled by the receiver of the frames");
}

vx_status vx_job_decode(vx_job *job)
{
    return decode(job, &(sink){ .sound = job->callbacks.sound ? sound_to_callback : NULL,
                                .picture = job->callbacks.frames ? picture_to_callback : NULL,
                                .self = job });
}

// ---- MP4 ----
typedef struct movie_sink {
    vx_movie *movie;
    int64_t samples; // per channel in the file
} movie_sink;

// The picture decides: sound is cut or padded with silence to the picture's length (audio specification, C5 "video").
static vx_status sound_to_movie(void *self, const float *samples, int64_t count)
{
    movie_sink *to = self;
    int64_t want = to->samples, copied = vx_min_i64(count, want);
    float *fitted = vx_alloc_array((size_t)want * VX_SOUND_CHANNELS, sizeof *fitted);
    VX_NEED_MEMORY(fitted, "the sound");
    for (int64_t c = 0; c < VX_SOUND_CHANNELS; c++)
        memcpy(fitted + c * want, samples + c * count, (size_t)copied * sizeof *fitted);
    vx_status s = vx_movie_put_sound(to->movie, fitted);
    vx_free(fitted);
    return s;
}

static vx_status picture_to_movie(void *self, int64_t first, int64_t count, const void *frames)
{
    movie_sink *to = self;
    (void)first;
    return vx_movie_put_frames(to->movie, frames, count);
}

static vx_status movie_params(vx_movie_params *out, const vx_job *job, const vx_media_params *media)
{
    vx_media_params p = { 0 };
    if (!job->plan.width)
        return vx_fail(VX_ERR_INPUT_FORMAT, "the latents hold no picture: an MP4 cannot be made of sound alone");
    if (media) {
        if (!media->struct_size || media->struct_size > sizeof p)
            return vx_fail(VX_ERR_USAGE, "the media parameters were not initialised with VX_INIT");
        memcpy(&p, media, media->struct_size);
    }
    double fps = p.fps != 0 ? p.fps : VX_NATIVE_FPS;
    if (!(fps >= 1 && fps <= 120)) return vx_fail_field(VX_ERR_RANGE, "fps", "fps %g is not within 1..120", fps);
    int crf = p.crf_set ? p.crf : 18;
    if (crf < 0 || crf > 51) return vx_fail_field(VX_ERR_RANGE, "crf", "crf %d is not within 0..51", crf);
    const char *pixel_format = p.pixel_format ? p.pixel_format : "yuv420p", *codec = p.video_codec ? p.video_codec : "h264",
               *audio = p.audio_codec ? p.audio_codec : "aac";
    if (strcmp(codec, "h264"))
        return vx_fail_field(VX_ERR_VALUE, "video_codec", "video_codec '%.40s' is not known; h264 is", codec);
    if (strcmp(pixel_format, "yuv420p") && strcmp(pixel_format, "yuv444p"))
        return vx_fail_field(VX_ERR_VALUE, "pixel_format", "pixel_format '%.40s' is none of yuv420p, yuv444p", pixel_format);
    if (strcmp(audio, "aac") && strcmp(audio, "none"))
        return vx_fail_field(VX_ERR_VALUE, "audio_codec", "audio_codec '%.40s' is none of aac, none", audio);
    int bitrate = p.audio_bitrate ? p.audio_bitrate : 192000;
    if (bitrate < 32000 || bitrate > 512000)
        return vx_fail_field(VX_ERR_RANGE, "audio_bitrate", "audio_bitrate %d is not within 32000..512000", bitrate);
    // Rates like 23.976 become exact thousandths (24000/1001 would need another spelling: 23.976 means 23976/1000).
    bool whole = fps == floor(fps);
    bool sound = job->audio_shape[2] && strcmp(audio, "none");
    *out = (vx_movie_params){ .width = job->plan.width,
                              .height = job->plan.height,
                              .fps_num = whole ? (int)fps : (int)nearbyint(fps * 1000),
                              .fps_den = whole ? 1 : 1000,
                              .frames = job->plan.num_frames,
                              .video_codec = codec,
                              .crf = crf,
                              .pixel_format = pixel_format,
                              .audio_codec = sound ? "aac" : NULL,
                              .audio_bitrate = bitrate,
                              .sample_rate = 32000,
                              .channels = VX_SOUND_CHANNELS,
                              .samples = (int64_t)job->plan.output_samples,
                              .threads = job->model->context->threads };
    return vx_ok();
}

// The finished file must hold what went in (public reports F02: muxers and encoders drop frames without a word).
static vx_status check_movie(const char *path, const vx_movie_params *want)
{
    vx_movie_facts f = { 0 };
    vx_status s = vx_movie_inspect(&f, path, true); // every frame is decoded: a file that opens is not yet one that plays
    if (s.code == VX_ERR_INPUT_OPEN || s.code == VX_ERR_INPUT_FORMAT)
        s.code = VX_ERR_OUTPUT_CHECK; // it is no input of the user's
    VX_TRY(s);
    int64_t slack = 1024; // one AAC frame
    if (f.frames != want->frames)
        s = vx_fail(VX_ERR_OUTPUT_CHECK, "%lld frames were written, %lld are in the file", (long long)want->frames,
                    (long long)f.frames);
    else if (f.width != want->width || f.height != want->height)
        s = vx_fail(VX_ERR_OUTPUT_CHECK, "the file is %dx%d, not %dx%d", f.width, f.height, want->width, want->height);
    else if ((int64_t)f.fps_num * want->fps_den != (int64_t)want->fps_num * f.fps_den || f.first_pts_errors)
        s = vx_fail(VX_ERR_OUTPUT_CHECK, "the file runs at %d/%d with %lld wrong time stamps, not at %d/%d", f.fps_num, f.fps_den,
                    (long long)f.first_pts_errors, want->fps_num, want->fps_den);
    else if (want->audio_codec && (f.sample_rate != want->sample_rate || llabs(f.samples - want->samples) > slack))
        s = vx_fail(VX_ERR_OUTPUT_CHECK, "the file has %lld samples at %d Hz, not %lld at %d", (long long)f.samples,
                    f.sample_rate, (long long)want->samples, want->sample_rate);
    if (!s.code && want->comment && (!f.comment || strcmp(f.comment, want->comment)))
        s = vx_fail(VX_ERR_OUTPUT_CHECK, "the request is not in the file as it was written");
    vx_free(f.comment);
    return s;
}

static vx_status remember_media(vx_job *job, const vx_movie_params *p, const char *path, vx_movie *movie)
{
    json_t *o = json_pack("{s:f, s:s, s:s, s:i, s:s, s:s?, s:i}", "fps", (double)p->fps_num / p->fps_den, "video_codec",
                          p->video_codec, "video_encoder", vx_movie_video_encoder(movie), "crf", p->crf, "pixel_format",
                          p->pixel_format, "audio_codec", p->audio_codec, "audio_bitrate", p->audio_codec ? p->audio_bitrate : 0);
    vx_free(job->media_json);
    job->media_json = NULL;
    VX_TRY(vx_json_text(o, &job->media_json));
    if (vx_movie_warning(movie)) vx_note(&job->notes, "%s", vx_movie_warning(movie));
    vx_free(job->output);
    job->output = vx_strdup(path);
    VX_NEED_MEMORY(job->output, "a path");
    return vx_ok();
}

vx_status vx_job_write_mp4(vx_job *job, const char *path, const vx_media_params *media)
{
    vx_movie_params params;
    if (!vx_job_has_latents(job)) return vx_fail(VX_ERR_USAGE, "the job has no latents yet: run it first");
    VX_TRY(movie_params(&params, job, media));
    bool replace = media && media->replace, keep = !(media && media->no_metadata);
    char *comment = NULL;
    if (keep) {
        VX_TRY(vx_json_text(vx_request_object(job), &comment));
        params.comment = comment;
    }
    vx_output *output = NULL;
    movie_sink to = { .samples = params.samples };
    vx_status s = vx_output_begin(&output, path, replace);
    if (!s.code) s = vx_movie_create(&to.movie, vx_output_temporary(output), &params);
    if (!s.code)
        s = decode(job, &(sink){ .sound = params.audio_codec ? sound_to_movie : NULL,
                                 .picture = picture_to_movie,
                                 .aside = true,
                                 .self = &to });
    double began = vx_clock_s();
    if (!s.code) s = vx_movie_finish(to.movie);
    if (!s.code) s = check_movie(vx_output_temporary(output), &params);
    if (!s.code && *job->watched) s = vx_fail(VX_ERR_CANCELLED, "cancelled");
    if (!s.code) s = remember_media(job, &params, path, to.movie);
    vx_movie_destroy(&to.movie);
    if (!s.code) s = vx_output_commit(&output);
    vx_output_discard(&output);
    vx_free(comment);
    job->timings.mux += vx_clock_s() - began;
    if (!s.code) vx_job_progress(job, "mux", VX_STAGE_MUX, 1, 1);
    return s;
}

// ---- tensors ----
static vx_status sound_to_tensor(void *self, const float *samples, int64_t count)
{
    return vx_safetensors_stream_put(self, samples, (size_t)count * VX_SOUND_CHANNELS * sizeof *samples);
}

typedef struct tensor_sink {
    vx_safetensors_stream *stream;
    size_t frame_bytes;
} tensor_sink;
static vx_status sound_to_stream(void *self, const float *samples, int64_t count)
{
    return sound_to_tensor(((tensor_sink *)self)->stream, samples, count);
}
static vx_status picture_to_stream(void *self, int64_t first, int64_t count, const void *frames)
{
    tensor_sink *to = self;
    (void)first;
    return vx_safetensors_stream_put(to->stream, frames, (size_t)count * to->frame_bytes);
}

vx_status vx_job_save_tensors(vx_job *job, const char *path, bool replace)
{
    if (!vx_job_has_latents(job)) return vx_fail(VX_ERR_USAGE, "the job has no latents yet: run it first");
    vx_safetensors_tensor tensors[2];
    int count = 0;
    VX_TRY(vx_model_vaes(job->model, job->have_video, job->have_audio));
    if (job->have_audio)
        tensors[count++] = (vx_safetensors_tensor){ "waveform",
                                                    VX_F32,
                                                    2,
                                                    { VX_SOUND_CHANNELS,
                                                      job->audio_shape[2] * vx_audio_decoder_config_of(job->model->audio)->hop },
                                                    NULL };
    if (job->have_video)
        tensors[count++] = (vx_safetensors_tensor){
            "frames", VX_F32, 4, { vx_decoded_frames(job->video_shape[1]), job->plan.height, job->plan.width, 3 }, NULL
        };
    tensor_sink to = { .frame_bytes = (size_t)job->plan.height * (size_t)job->plan.width * 3 * sizeof(float) };
    VX_TRY(vx_safetensors_stream_begin(&to.stream, path, replace, tensors, count, NULL, 0));
    vx_status s = decode(
        job, &(sink){ .sound = sound_to_stream, .picture = picture_to_stream, .floats = true, .aside = true, .self = &to });
    if (s.code) {
        vx_safetensors_stream_discard(&to.stream);
        return s;
    }
    return vx_safetensors_stream_finish(&to.stream);
}

vx_status vx_job_check_mp4(vx_job *job, const char *path, const vx_media_params *media)
{
    vx_movie_params params;
    VX_TRY(movie_params(&params, job, media));
    if (!path || !*path) return vx_fail_field(VX_ERR_REQUIRED, "output", "no output file was named");
    if (!vx_has_suffix(path, ".mp4"))
        return vx_remedy(vx_fail_field(VX_ERR_VALUE, "output", "%s: only .mp4 files are written", path),
                         "name the output something.mp4");
    vx_output *output = NULL;
    vx_movie *movie = NULL;
    VX_TRY(vx_output_begin(&output, path, media && media->replace));
    vx_status s = vx_movie_create(&movie, vx_output_temporary(output), &params);
    vx_movie_destroy(&movie);
    vx_output_discard(&output);
    return s;
}
