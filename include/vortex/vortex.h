// libvortex: MiniMax H3 in your process. From a prompt to a video with sound.
//
//   vx_context  threads and log               one per process is usual
//   vx_model    an opened checkpoint           headers only until a job runs; many jobs, one after the other
//   vx_job      one request on one model       run it, then write its MP4 or take its latents
//
// Conventions
// - Every struct begins with struct_size: fill it with VX_INIT(type). All other members may stay zero: zero is the default.
//   A later version may append members; yours stay valid. Strings are UTF-8, read during the call only.
// - Functions that can fail return vx_status (status.h). Outputs are untouched on failure, handles NULL.
// - create/destroy and open/close pair up; destroy takes the address, accepts NULL in it, leaves NULL.
// - Text that a function returns through `char **` is yours: vx_text_free.
// - Sizes in bytes, times in seconds, frames at 24 per second, sound at 32000 samples per second and channel.
// Threads: one call at a time per context, and the handles made from it. vx_job_cancel alone may come from any thread or
// signal handler at any time during the job's life.
#ifndef VORTEX_H
#define VORTEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vortex/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define VX_API        __attribute__((visibility("default")))
#define VX_INIT(type) .struct_size = sizeof(type)

VX_API const char *vx_version(void); // "0.1.0"
VX_API const char *vx_commit(void);  // of the source, "4f0ca1d-dirty"; "" where it was not under git
VX_API const char *vx_build(void);   // "RelWithDebInfo, CUDA for 90a"
VX_API void vx_text_free(char *text);
VX_API int vx_exit_status(vx_code code);       // what a program ends with: 0, 1..7 by class, 130 when cancelled
VX_API const char *vx_code_text(vx_code code); // one line, as in docs/errors.md
VX_API const char *vx_code_help(vx_code code); // the remedy of a status that has no better one; "" of most codes
// Removes the temporary files of outputs that are under way. Async-signal-safe: for a handler that ends the process.
VX_API void vx_abandon_outputs(void);

// ---- context ----
typedef struct vx_context vx_context;
typedef struct vx_context_params {
    size_t struct_size;
    void (*log)(void *user, int level, const char *text); // level 0 error, 1 warning, 2 information, 3 detail; NULL: silent
    void *log_user;
    int threads;     // 0 = one per processor that this process may use; 1..1024
    int rank, ranks; // 0, 0 or 0, 1: one process. Several ranks are refused in this version.
    const char *isa; // NULL = best; "generic", "avx2", "avx512", "avx512bf16" leave newer instructions alone (tests)
} vx_context_params;
VX_API vx_status vx_context_create(vx_context **out, const vx_context_params *params);
VX_API void vx_context_destroy(vx_context **context);

// ---- model ----
typedef struct vx_model vx_model;
typedef struct vx_model_params {
    size_t struct_size;
    const char *path; // official root or partition, diffusers folder, folder of ComfyUI, or the transformer's file; required
    const char *text_encoder, *video_vae, *audio_vae, *tokenizer; // components that are not in path
    const char *variant;    // "fl2va" or "ref2va": which partition path is, where nothing says it
    const char *device;     // NULL or "auto": the first GPU if it can be used, else the processor; "cpu"; "cuda[:N]"
    const char *attention;  // NULL or "auto"; "own" or "cudnn": which attention a GPU runs
    bool no_graphs;         // a GPU launches operators one by one: the same bits, for comparison and debugging
    const char *vision;     // the text encoder's vision tower, where that is a file by itself
    const char *qkv_layout; // "grouped", "interleaved": order of the transformer's QKV rows; NULL or "auto": as the files say
} vx_model_params;
// Finds the components by names, indexes and configuration files. What a job needs is opened by the job, headers first.
VX_API vx_status vx_model_open(vx_context *context, vx_model **out, const vx_model_params *params);
VX_API void vx_model_close(vx_model **model);
// Token ids of a text, as the model's tokenizer gives them: no presentation around it. *ids is freed with vx_ids_free.
VX_API vx_status vx_model_tokenize(vx_model *model, const char *text, size_t size, int32_t **ids, int64_t *count);
VX_API void vx_ids_free(int32_t *ids);

// ---- request ----
// A keyframe or a reference: a media file, or a .safetensors file with decoded samples (pixels U8 [N,H,W,3] with metadata fps,
// waveform F32 [channels, samples] with metadata sample_rate). Keyframes and references exclude each other.
typedef struct vx_condition {
    size_t struct_size;
    const char *kind; // of a reference: "image", "video", "audio"; NULL = by content
    const char *path;
    bool keyframe;
    int64_t frame; // of a keyframe; negative from the end
} vx_condition;

// An adapter (LoRA) of the transformer, in any of the spellings in circulation: safetensors.
enum { VX_MAX_LORAS = 8 };
typedef struct vx_lora {
    size_t struct_size;
    const char *path;
    bool strength_set;
    float strength; // any finite number, 0 = left out; 1 unless strength_set (with turbo: what its maker advises)
    double alpha;   // where the file says none; 0 = of the table of known files, else the rank
} vx_lora;

typedef struct vx_request {
    size_t struct_size;
    const char *task;          // "t2va", "i2va", "l2va", "fl2va", "ref2va"; NULL = from the conditions
    const char *prompt;        // 1 byte..64 KiB, at most 16,384 tokens, verbatim
    const char *prompt_embeds; // safetensors with prompt_embeds and text_token_tags, in place of encoding the prompt (which then
                               // only goes into the metadata)
    const vx_condition *conditions;
    int condition_count;
    int width, height;                            // both or neither; multiples of 32, 32..4096, ratio 1:4..4:1, area <= 4,128,768
    const char *aspect;                           // "16:9": the canvas rule; excludes width and height
    int64_t num_frames;                           // aligned up to 17n+5, then 22..362; 0 = 124
    double seconds;                               // in place of num_frames
    int evaluations;                              // model evaluations, 1..1000; 0 = 49
    int num_inference_steps;                      // sigma points, 2..1001: evaluations + 1; excludes evaluations
    const char *sampler;                          // "euler" (default), "res_multistep"
    const char *schedule;                         // "official" (default), "simple", "beta", "normal"
    const float *sigmas;                          // strictly decreasing to 0; excludes step counts and schedule
    int sigma_count;                              // 2..1001
    float flow_shift, audio_flow_shift;           // > 0, <= 100; 0 = the checkpoint's own (12, 3)
    bool seed_set;                                // false: drawn from the operating system, reported
    uint64_t seed;                                // 0..2^63-1
    const char *noise;                            // "sglang" (default), "diffusers", "comfyui"
    const char *precision;                        // "exact" (default), "float32"
    int64_t canvas_short_edge, canvas_max_pixels; // of the canvas rule; 0 = 768, 1032192
    int64_t reference_short_edge;                 // of reference pictures; 0 = 2048
    bool record_tensors;                          // keep what vx_job_dump_tensors writes
    bool latents_only;                            // nothing will be decoded: the VAEs are neither needed nor planned
    uint64_t memory_limit;                        // bytes that the plan may use; 0 = what the machine has free
    const vx_lora *loras;                         // in the order in which they are added
    int lora_count;                               // at most VX_MAX_LORAS
    bool lora_allow_partial;                      // keys that fit no module are left out, not refused
    const char *lora_mode;     // "auto" (default) and "branch": beside the weights; "merge": into owned copies of plain weights
    int turbo;                 // 4 or 8: steps, shifts, list, alpha and step of a distilled adapter, by the table of known files
    const char *vae_precision; // "auto" (default): of the picture's decoder, float16 on a GPU unless precision is float32
    const char *vae_rope;      // "official" (default), "float32": rotary coordinates of a float16 decoder
} vx_request;

// The fields of a request as text, for command lines, job files and forms: one table for all of them.
typedef enum vx_field_kind {
    VX_FIELD_TEXT,
    VX_FIELD_CHOICE,
    VX_FIELD_INTEGER,
    VX_FIELD_NUMBER,
    VX_FIELD_SIZE,
    VX_FIELD_NUMBERS,
    VX_FIELD_SWITCH,
    VX_FIELD_FILE
} vx_field_kind;
typedef enum vx_field_group { VX_GROUP_REQUEST, VX_GROUP_MEDIA, VX_GROUP_DELIVERY } vx_field_group;
typedef struct vx_field {
    const char *name;   // "num_inference_steps": key in JSON (also with '-')
    const char *flag;   // "--num-inference-steps"
    const char *letter; // "-p", or NULL
    vx_field_kind kind;
    vx_field_group group;
    const char *value;    // as help shows it: "N", "FILE"; choices as "a|b"
    const char *range;    // for people and schemas, or NULL
    const char *fallback; // default, or NULL
    const char *help;     // one line
    const char *refusal;  // not NULL: never accepted, and why
} vx_field;
VX_API const vx_field *vx_field_at(int index); // from 0; NULL past the last

// How the finished clip is packed.
typedef struct vx_media_params {
    size_t struct_size;
    double fps;              // presentation only, 1..120; 0 = 24
    const char *video_codec; // "h264" (default)
    bool crf_set;
    int crf;                  // 0..51; 18 unless crf_set
    const char *pixel_format; // "yuv420p" (default), "yuv444p"
    const char *audio_codec;  // "aac" (default), "none"
    int audio_bitrate;        // bits per second, 0 = 192000
    bool no_metadata;         // leave the request out of the file
    bool replace;             // an existing file may be replaced
} vx_media_params;

// What a program does with the results. The library only carries it.
typedef struct vx_delivery {
    size_t struct_size;
    const char *output; // MP4
    const char *save_latents, *dump_tensors;
    int outputs; // clips with seeds seed, seed+1, ...; 0 = 1
} vx_delivery;

// Collects fields given as text and owns the strings of the structs that it hands out.
typedef struct vx_request_builder vx_request_builder;
VX_API vx_status vx_request_builder_create(vx_request_builder **out);
VX_API void vx_request_builder_destroy(vx_request_builder **builder);
// By name, '-' and '_' alike. Errors name the field and its range.
VX_API vx_status vx_request_builder_set(vx_request_builder *builder, const char *name, const char *value);
// One JSON object with the fields as members ("one line of a jobs file"); later settings win over earlier ones.
VX_API vx_status vx_request_builder_json(vx_request_builder *builder, const char *text, size_t size);
VX_API vx_status vx_request_builder_copy(vx_request_builder *to, const vx_request_builder *from);
// Borrowed from the builder until it changes.
VX_API const vx_request *vx_request_builder_request(const vx_request_builder *builder);
VX_API const vx_media_params *vx_request_builder_media(const vx_request_builder *builder);
VX_API const vx_delivery *vx_request_builder_delivery(const vx_request_builder *builder);

// ---- plan ----
// Everything that a job would decide, from headers alone: nothing is computed, no tensor data is read.
typedef struct vx_stage_plan {
    const char *name; // "text", "encode", "denoise", "decode_audio", "decode_video"
    double flop;
    uint64_t weight_bytes; // read from the checkpoint
    uint64_t host_bytes;   // anonymous memory while the stage runs
    // What a GPU would hold; on the processor these are counted too, as its stages work. Activations and scratch; weights that
    // the stage keeps there if it can; the least of them that it can do with.
    uint64_t device_bytes, device_weights, device_least;
} vx_stage_plan;
enum { VX_PLAN_STAGES = 5 };
typedef struct vx_plan {
    size_t struct_size;
    int width, height;
    int64_t num_frames, latent_frames, audio_frames;
    int evaluations, sigma_points;
    int64_t text_rows, condition_rows, audio_rows, video_rows, rows;
    vx_stage_plan stage[VX_PLAN_STAGES];
    double flop;
    uint64_t host_bytes;      // peak of anonymous memory beyond what the opened model holds
    uint64_t available_bytes; // what it was held against
    uint64_t output_samples;  // sound per channel after fitting to the picture
    // On a GPU: the most that any stage takes with all its weights there, and with as few as it can do with; what is free.
    uint64_t device_bytes, device_least_bytes, device_available_bytes;
} vx_plan;
// VX_ERR_MEMORY_PLAN if it cannot fit, with the bytes and what would help. The plan is filled in then, too.
VX_API vx_status vx_plan_request(vx_model *model, const vx_request *request, vx_plan *out);
// The same as JSON with everything resolved (seed null when it would be drawn), the files that would be read, and warnings.
VX_API vx_status vx_plan_json(vx_model *model, const vx_request *request, char **json);

// ---- job ----
typedef struct vx_job vx_job;
typedef struct vx_progress {
    const char *stage; // "text", "encode", "denoise", "decode_audio", "decode_video", "mux"
    int stage_index, stage_count;
    int64_t step, steps; // finished and all pieces of the stage
    double elapsed_s;    // since the stage began
    double rate_s;       // measured seconds per step; 0 until one is done
    double eta_s;        // of the stage; negative while unknown
} vx_progress;
typedef struct vx_job_callbacks {
    size_t struct_size;
    // All are called on the thread of the call that runs the job, and the job waits for them.
    void (*progress)(void *user, const vx_progress *progress);
    // Frames first..first+count-1 as RGB, [count, height, width, 3]; false stops the job with VX_ERR_CANCELLED. For
    // vx_job_decode.
    bool (*frames)(void *user, int64_t first, int64_t count, const uint8_t *rgb);
    // All of the sound, [2, samples], before the first frame.
    bool (*sound)(void *user, const float *samples, int64_t count);
    void *user;
} vx_job_callbacks;

// Validates and plans; nothing heavy yet. callbacks may be NULL.
VX_API vx_status vx_job_create(vx_model *model, const vx_request *request, const vx_job_callbacks *callbacks, vx_job **out);
// A job whose latents exist already (vortex decode). denormalised: the file holds VAE-scale latents. Either tensor may be alone.
// Of the request only precision, vae_precision and vae_rope count; NULL = defaults.
VX_API vx_status vx_job_from_latents(vx_model *model, const char *path, bool denormalised, const vx_request *request,
                                     const vx_job_callbacks *callbacks, vx_job **out);
VX_API void vx_job_destroy(vx_job **job);
// Text, conditions and denoising: ends with the latents. A job made from latents has nothing to run. A prompt encoded by an earlier job
// of this model with the same prompt, conditions and precision is not encoded again; nor are the same conditions. After an error
// it may be run again, as long as no other job was made: what its stages had finished counts. A cancelled job stays cancelled.
VX_API vx_status vx_job_run(vx_job *job);
VX_API void vx_job_cancel(vx_job *job); // takes effect before the next operator, on a GPU within a few blocks; async-signal-safe
// Decodes into the callbacks; and into a file: streamed, the file appears when it is complete and read back. Frames are encoded and
// written by a thread of the library while the next ones are decoded; it has ended when the call returns.
VX_API vx_status vx_job_decode(vx_job *job);
VX_API vx_status vx_job_write_mp4(vx_job *job, const char *path, const vx_media_params *media);
// Whether vx_job_write_mp4 could begin: the name, the folder, the encoders. For before vx_job_run, so that nothing is computed in
// vain.
VX_API vx_status vx_job_check_mp4(vx_job *job, const char *path, const vx_media_params *media);
// safetensors with frames [N,H,W,3] f32 in 0..1 before 8-bit rounding, and waveform [2, samples] f32.
VX_API vx_status vx_job_save_tensors(vx_job *job, const char *path, bool replace);
VX_API vx_status vx_job_save_latents(vx_job *job, const char *path, bool replace);
VX_API vx_status vx_job_dump_tensors(vx_job *job, const char *path, bool replace); // needs record_tensors
VX_API bool vx_job_has_latents(const vx_job *job);
VX_API uint64_t vx_job_seed(const vx_job *job); // the request's, or the one drawn for it
// Borrowed f32: video [24, T, H/16, W/16], audio [2, 32, A]; NULL before vx_job_run ended well.
VX_API const float *vx_job_video_latent(const vx_job *job, int64_t shape[4]);
VX_API const float *vx_job_audio_latent(const vx_job *job, int64_t shape[3]);
// The result object of the command line's --json (docs: man vortex), as far as the job has come.
VX_API vx_status vx_job_result(const vx_job *job, char **json);

// ---- looking at files and the machine ----
// What a checkpoint folder, a component's file, an adapter, a latents file or an MP4 of ours holds, as JSON; problems are in
// "problems", not errors, unless the path itself cannot be read.
VX_API vx_status vx_inspect(vx_context *context, const char *path, char **json);
typedef struct vx_inspect_params {
    size_t struct_size;
    const char *path;
    bool verify;                     // read everything: values that are NaN or infinite, scales that no quantiser writes
    const char *vision, *qkv_layout; // as of a model
} vx_inspect_params;
// The same with all choices; *problem, if not NULL, is the first of the problems: VX_OK where there is none.
VX_API vx_status vx_inspect_with(vx_context *context, const vx_inspect_params *params, char **json, vx_status *problem);
// Machine, device, libraries, memory, and one remedy per problem, as JSON.
VX_API vx_status vx_doctor(vx_context *context, char **json);
// One input through an encoder, into a safetensors file: mean and logvar F32 [24,T,H/16,W/16] of pictures and videos, mean F32
// [channels,32,A] of sound, un-normalised. Exactly one member is set. image, video, audio: a media file, sized to the nearest
// multiples of 32, on the 24 per second grid, at 32 kHz. pixels (U8 [N,H,W,3]), waveform (F32 [channels,samples] at 32 kHz): a
// safetensors file whose samples are used as they are.
typedef struct vx_encode_params {
    size_t struct_size;
    const char *image, *video, *audio, *pixels, *waveform;
} vx_encode_params;
VX_API vx_status vx_encode(vx_model *model, const vx_encode_params *params, const char *path, bool replace);

typedef struct vx_demo_model_params {
    size_t struct_size;
    bool random;   // weights that make every path matter, all dimensions different, instead of the pretty ones
    uint64_t seed; // 0: 1
    bool replace;  // write into a folder that is not empty
    bool released; // the released model's dimensions in sparse files without numbers: to plan, inspect and bench, not to run
} vx_demo_model_params;
// A complete small checkpoint in the official layout, for every task: folder/FL2VA and folder/Ref2VA, which shares all but its
// transformer. The same bytes for the same seed, everywhere.
VX_API vx_status vx_demo_model_write(vx_context *context, const char *folder, const vx_demo_model_params *params);

typedef struct vx_bench_params {
    size_t struct_size;
    const char *what; // operators: "linear", "attention", "elementwise"; stages: "text-encoder", "denoiser", "video-vae",
                      // "audio-vae", "image-encoder", "audio-encoder", "generate"
    vx_model *model;  // of a stage; NULL: the released dimensions with made-up weights, which needs a GPU
    const vx_request *request; // shape of the workload; NULL = the canonical one (1344x768, 124 frames, 12 evaluations)
    int runs;                  // 0 = 3, after one warm-up
    const char *device;        // without a model: as in vx_model_params, like the two below
    const char *attention;
    bool no_graphs;
    const volatile int *cancelled; // NULL, or where somebody may write 1: then it ends as a cancelled job does
} vx_bench_params;
VX_API vx_status vx_bench(vx_context *context, const vx_bench_params *params, char **json);

#ifdef __cplusplus
}
#endif
#endif
