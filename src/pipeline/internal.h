// What the files of this room share. The public handles are these structs.
#ifndef VX_PIPELINE_INTERNAL_H
#define VX_PIPELINE_INTERNAL_H

#include <jansson.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/status.h"
#include "denoiser/denoiser.h"
#include "device/arena.h"
#include "media/media.h"
#include "pipeline/conditions.h"
#include "sampling/noise.h"
#include "sampling/sampler.h"
#include "text/language.h"
#include "text/presentation.h"
#include "text/vision.h"
#include "vae/audio_decoder.h"
#include "vae/audio_encoder.h"
#include "vae/video_decoder.h"
#include "vae/video_encoder.h"
#include "vortex/vortex.h"
#include "weights/model_map.h"

enum { VX_SOUND_CHANNELS = 2, VX_NATIVE_FPS = 24, VX_MAX_NOTES = 16 };
enum { VX_STAGE_TEXT, VX_STAGE_ENCODE, VX_STAGE_DENOISE, VX_STAGE_DECODE_AUDIO, VX_STAGE_DECODE_VIDEO, VX_STAGE_MUX, VX_STAGES };

// Warnings of a request, in the order they arose. Texts are owned.
typedef struct vx_notes {
    char *text[VX_MAX_NOTES];
    int count;
    bool quiet; // not logged until vx_notes_say
} vx_notes;
void vx_note(vx_notes *notes, const char *format, ...) VX_PRINTF(2, 3);
void vx_notes_say(vx_notes *notes);
void vx_notes_free(vx_notes *notes);

struct vx_context {
    vx_device *device;
    vx_device *plan; // plans for `device`
    int threads;
};

// The result of the last text stage: a prompt is encoded once for any number of clips.
typedef struct vx_prompt_cache {
    char *prompt;
    vx_dtype act;
    void *embeds; // [rows, text_dim] act
    size_t embed_bytes;
    char conditions[65]; // their key: the presentation shows them
} vx_prompt_cache;

// The encoded conditions of the last job, likewise.
typedef struct vx_cached_latent {
    float *latent, *audio;
    size_t latent_bytes, audio_bytes;
    int64_t shape[4], audio_frames;
} vx_cached_latent;
typedef struct vx_condition_cache {
    char key[65];
    bool parts; // encoded with products by parts
    vx_cached_latent *item;
    int count;
} vx_condition_cache;
void vx_condition_cache_free(vx_condition_cache *cache);

// The adapters that lie on a model's denoiser: those of the last job that was prepared or run.
typedef struct vx_model_adapters {
    char *key; // what they depend on; NULL: none
    bool loaded;
    int count;
    vx_adapter *adapter[VX_MAX_LORAS];
    vx_denoiser_adapter_use use[VX_MAX_LORAS];
    uint64_t bytes; // owned memory that they take when loaded
} vx_model_adapters;

struct vx_model {
    vx_context *context;
    vx_device *device, *planner; // where its jobs run and what plans for it: the context's, or its own (a GPU)
    vx_model_map map;
    vx_component *component[VX_COMPONENT_KINDS];
    vx_tokenizer *tokenizer;
    vx_language *language;
    vx_denoiser *denoiser;
    vx_denoiser_keep *keep; // of the denoiser, on the device; NULL before the first job ran
    vx_video_decoder *video;
    vx_audio_decoder *audio;
    vx_vision *vision;
    vx_video_encoder *video_encoder;
    vx_audio_encoder *audio_encoder;
    vx_prompt_cache cache;
    vx_condition_cache conditions;
    vx_model_adapters adapters;
    char *path[6]; // as opened: model, text encoder, video VAE, audio VAE, tokenizer, vision tower (owned)
    vx_variant stated;
    vx_qkv_statement qkv;
    double load_s;                           // spent opening, so far
    bool made_up;                            // its device makes up the weights: a bench
    vx_component_kind stage;                 // whose weights the running stage works with
    uint64_t stage_peak[VX_COMPONENT_KINDS]; // device memory that the last such stage took, weights aside
    uint64_t stage_before;                   // that others held when the running one began
    uint64_t device_peak;                    // of all stages, with weights
};

// What --turbo asks for, from the table of known files.
typedef struct vx_turbo {
    int steps;                       // 0: not asked for
    const vx_adapter_preset *preset; // NULL: no adapter of the request is in the table
    float shift, audio_shift;
    bool list; // the preset's list is used
} vx_turbo;
typedef struct vx_resolved_lora {
    char *path; // owned
    float strength;
    double alpha;
    char file[VX_FILE_STATE]; // when the job was made
} vx_resolved_lora;

// A request with every default filled in and every rule checked; what cannot be known without the model comes from it.
typedef struct vx_resolved {
    char *prompt; // owned; NULL when embeddings are given
    char *embeds_path;
    int width, height;
    int64_t frames;
    vx_sampler sampler;
    vx_schedule schedule;
    vx_step step;
    vx_turbo turbo;
    vx_resolved_lora lora[VX_MAX_LORAS];
    int loras;
    bool lora_merge, lora_partial;
    vx_sigmas sigmas;
    int evaluations;
    float shift, audio_shift;
    bool seed_drawn; // nobody chose it
    uint64_t seed;
    vx_noise noise;
    vx_dtype act;
    vx_dtype vae;        // of the picture's decoder: VX_F16 or VX_F32
    bool vae_exact_rope; // of VX_F16
    bool record, latents_only;
    uint64_t memory_limit;
    vx_conditions conditions; // judged, not loaded
    int64_t reference_short_edge, canvas_short_edge, canvas_max_pixels;
} vx_resolved;
// Takes the checkpoint's shifts where the request has none. Draws a seed from the system if none is set. far: jobs run on a GPU.
vx_status vx_resolve(vx_resolved *out, const vx_request *request, const vx_model_map *map, bool far, vx_notes *notes);
// Only how a picture is decoded: of a job that begins with latents.
vx_status vx_resolve_decoder(vx_resolved *out, const vx_request *request, bool far);
void vx_resolved_free(vx_resolved *resolved);
// Adapters and Turbo settings; what the user asks for otherwise stays, with a note.
vx_status vx_resolve_loras(vx_resolved *out, const vx_request *r, vx_notes *notes);
vx_status vx_turbo_sigmas(vx_resolved *out, int points); // the list that the preset says
const char *vx_turbo_list_name(vx_turbo_list list);
const char *vx_sampler_name(vx_sampler s);
const char *vx_schedule_name(vx_schedule s);
const char *vx_noise_name(vx_noise n);

// ---- the model's parts, opened and bound when first needed; headers only ----
vx_status vx_model_text(vx_model *model); // tokenizer and language model
vx_status vx_model_denoiser(vx_model *model);
vx_status vx_model_vaes(vx_model *model, bool video, bool audio);
vx_status vx_model_tokenizer(vx_model *model);
vx_status vx_model_encoders(vx_model *model, bool vision, bool video, bool audio);
// Makes the transformer that of a partition, where the path has both. VX_ERR_MODEL_VARIANT if it is the other one.
vx_status vx_model_partition(vx_model *model, vx_variant wanted, const char *task, vx_notes *notes);
// VX_ERR_FILE_CHANGED if a file of the model was hurt while mapped.
vx_status vx_model_check(const vx_model *model);
// VX_ERR_MODEL_COMPONENT for a checkpoint of holes, unless its weights are made up.
vx_status vx_model_has_numbers(const vx_model *model);

// The job's adapters on the model's denoiser, in place of another job's. load false: shapes alone, for planning.
vx_status vx_job_adapt(vx_job *job, bool load);
void vx_model_drop_adapters(vx_model *model);       // before the denoiser is closed
void vx_model_close_denoiser(vx_model *model);      // with its adapters and what requests left
uint64_t vx_adapter_weights(const vx_model *model); // bytes that a device with memory of its own holds of them, at most
json_t *vx_turbo_object(const vx_job *job);         // for reports, new reference; NULL: not asked for

// ---- jobs ----
// What --dump-tensors writes: recorded as it passes, on the host.
typedef struct vx_record {
    int evaluations;
    float **video, **audio; // velocities per evaluation
    float **timestep;       // distinct, per evaluation
    int *timesteps;
    float *first_video, *first_audio;
    float *embeds; // widened to f32
} vx_record;

typedef struct vx_timings {
    double plan, load, text, encode, denoise, decode_video, decode_audio;
    double mux; // that the encoder and the file kept the caller waiting: what runs while frames are decoded is not in it
} vx_timings;

struct vx_job {
    vx_model *model;
    vx_job_callbacks callbacks;
    vx_resolved request;
    vx_notes notes;
    vx_plan plan;
    vx_presentation_full presentation; // tokens.ids are NULL when embeddings came from a file
    vx_conditions conditions;
    vx_condition_rows rows[VX_MAX_CONDITIONS]; // of the conditions
    vx_layout layout;
    bool has_layout;
    void *embeds; // from a file: [rows, text_dim] act, host
    int64_t text_rows;
    float *video, *audio; // latents, host, f32
    int64_t video_shape[4], audio_shape[3];
    bool have_video, have_audio, denormalised;
    json_t *adapters, *approximations; // as reports show them; NULL: none
    json_t *about_model;               // when the job was made: the transformer may be another partition's by now
    char *file_request;                // of a latents file: the request that made it, JSON
    vx_record *record;
    vx_timings timings;
    bool keep_tables; // the plan has room for them
    bool text_reused, conditions_reused;
    vx_denoiser_reuse reuse;
    double *step_s;
    int steps_done;
    const char *video_encoder; // what wrote the MP4
    char *media_json;          // how it was packed
    char *output;
    volatile int cancelled;
    const volatile int *watched; // what ends it: the flag above, or a bench's
    double stage_began;
};

// Resolves the request and fills in everything up to the plan; the job has its model. For planning alone, too.
vx_status vx_job_prepare(vx_job *job, const vx_request *request);
vx_status vx_job_plan(vx_job *job);        // fills job->plan
bool vx_job_parts(const vx_job *job);      // whether its convolutions may go by parts; tells the device
vx_status vx_job_encode_text(vx_job *job); // into the model's cache, unless it is there
void vx_job_progress(vx_job *job, const char *stage, int index, int64_t step, int64_t steps);
uint64_t vx_memory_available(void);
uint64_t vx_condition_bytes(const vx_job *job); // of the decoded conditions, on the host until they are encoded

// Bytes that planning found for one stage, kept so that the run takes the same.
typedef struct vx_stage_need {
    size_t arena, scratch;
} vx_stage_need;
// Takes the memory of a stage that works with the weights of one component, on the model's device, and gives it back. Leave
// may follow a failed enter.
vx_status vx_stage_enter(vx_model *model, vx_component_kind kind, const vx_stage_need *need, vx_arena **arena);
void vx_stage_leave(vx_model *model, vx_arena **arena);
void vx_stage_loop(vx_model *model); // from here on counts for stage_peak
// Bytes of the weights that a stage reads again and again, and of the largest of them.
uint64_t vx_stage_weights(const vx_model *model, vx_component_kind kind, uint64_t *largest);
vx_status vx_need_text(vx_job *job, vx_stage_need *need, vx_plan_counts *counts);
vx_status vx_need_denoise(vx_job *job, vx_stage_need *need, vx_plan_counts *prepare, vx_plan_counts *evaluation);
vx_status vx_need_audio(vx_model *model, int64_t frames, vx_stage_need *need, vx_plan_counts *counts);
vx_status vx_need_video(vx_job *job, vx_stage_need *need, vx_plan_counts *counts);
vx_video_decode vx_decode_of(const vx_job *job, vx_tensor latent); // how the job decodes its picture
enum { VX_DEVICE_RESERVE = 512 << 20 }; // of a GPU: left to the driver, the libraries' handles and fragmentation
enum {
    VX_DELIVERY_FRAMES = 17, // as many as a window hands over at most
    VX_PIECE_FRAMES = 9,     // of them, in one of the two buffers between decoder and file: half, so that two take no more
};
vx_tensor vx_delivery_bytes(vx_arena *arena, const int64_t latent[4]); // room for their bytes, on the device
vx_status vx_need_encode_video(vx_model *model, int64_t frames, int64_t height, int64_t width, vx_stage_need *need,
                               vx_plan_counts *counts);
vx_status vx_need_encode_sound(vx_model *model, int64_t channels, int64_t samples, vx_stage_need *need, vx_plan_counts *counts);

// The stages as functions of their device: on the plan device they count, on the real one they compute.
vx_status vx_text_stage(vx_job *job, vx_device *dev, vx_arena *arena, vx_tensor out); // out [text_rows, hidden] act
size_t vx_tower_room(const vx_job *job); // bytes on the host that the text stage takes for resized pictures
typedef struct vx_denoise_io {
    const void *embeds;
    const float *video_noise, *audio_noise;
    float *const *conditions; // visual ones, noised, in latent order
    float *video, *audio;
} vx_denoise_io;
vx_status vx_denoise_stage(vx_job *job, vx_device *dev, vx_arena *arena, const vx_denoise_io *io, int evaluations);

// ---- files and reports ----
vx_status vx_latents_load(vx_job *job, const char *path);
vx_status vx_embeds_load(vx_job *job, const char *path, int64_t text_dim);
vx_status vx_encode_conditions(vx_job *job);
bool vx_has_samples(const vx_job *job); // of its conditions, which are given back when all are encoded
// Through the encoders, for the time it takes: the results are dropped.
vx_status vx_encode_picture_once(vx_model *model, const uint8_t *rgb, int64_t height, int64_t width);
vx_status vx_encode_sound_once(vx_model *model, const float *sound, int64_t samples);

// ---- benches ----
typedef struct vx_bench_run vx_bench_run;
enum { VX_BENCH_RUNS = 1000 };
// The request that everybody's figures are given for.
enum { VX_CANONICAL_WIDTH = 1344, VX_CANONICAL_HEIGHT = 768, VX_CANONICAL_FRAMES = 124, VX_CANONICAL_SEED = 440420 };
struct vx_bench_run {
    const vx_bench_params *params;
    int runs;
    double sample[VX_BENCH_RUNS];
    double flop, bytes; // of a run
    json_t *report;
};
double vx_bench_median(const double *samples, int count);
json_t *vx_bench_samples(const double *samples, int count);
// Operators of a piece of work on a model whose device is traced meanwhile. The tally is the caller's to vx_free, also after a
// failure; what happens while it is paused does not count.
typedef struct vx_bench_tally vx_bench_tally;
typedef vx_status vx_bench_work(vx_model *m, vx_bench_tally *tally, void *user);
vx_status vx_bench_trace(vx_model *m, vx_bench_tally **tally, vx_bench_work *work, void *user);
void vx_bench_pause(vx_bench_tally *tally, bool pause);
json_t *vx_bench_operators(const vx_bench_tally *tally);
void vx_bench_tell_blocks(const vx_bench_tally *tally, int64_t blocks, json_t *report); // of one evaluation of the denoiser
void vx_bench_tell_choices(json_t *report, const vx_device *device); // which programs computed, where it chooses
vx_status vx_bench_operator(vx_bench_run *run, vx_device *device);
vx_status vx_bench_stage(vx_bench_run *run, vx_model *model);
vx_status vx_bench_encoder(vx_bench_run *run, vx_model *model);
// The released model without files of its own: made-up weights on a GPU. Close takes the files away.
typedef struct vx_bench_model {
    vx_model *model;
    char *folder;
} vx_bench_model;
vx_status vx_bench_model_open(vx_bench_model *out, vx_context *context, const vx_bench_params *params);
void vx_bench_model_close(vx_bench_model *model);
// The device that params name, of a model or of its own (then *owned).
vx_status vx_open_device(vx_context *context, const char *device, const char *attention, bool no_graphs, vx_device **out,
                         vx_device **planner);
void vx_condition_row_counts(const vx_job *job, int64_t *video, int64_t *audio); // packed rows of all conditions
vx_record *vx_record_create(const vx_job *job);
uint64_t vx_record_bytes(const vx_job *job); // what it will take
void vx_record_free(vx_record *record);
json_t *vx_model_object(const vx_model *model); // new reference, as the next two
json_t *vx_result_object(const vx_job *job);
json_t *vx_request_object(const vx_job *job);        // what a latents file and an MP4 carry
json_t *vx_json_name(const char *text);              // of a file: bytes that are not UTF-8 become \xNN; new reference
vx_status vx_json_text(json_t *object, char **text); // steals the reference

#endif
