// The transformer: 50 blocks over one packed sequence of text, audio and video rows (denoiser specification, section 1).
// One evaluation is three parts: the rows are embedded, run through the blocks, and through the heads.
//
// A request goes: vx_denoiser_prepare once (text rows, rotary and modulation tables of all evaluations), then
// vx_denoiser_evaluate per evaluation, in any order. Everything works on the plan device. Numbers: docs/numerics.md.
// Threads: an open denoiser may be shared; a request belongs to its device's caller.
#ifndef VX_DENOISER_DENOISER_H
#define VX_DENOISER_DENOISER_H

#include "denoiser/layout.h"
#include "device/arena.h"
#include "weights/adapter.h"
#include "weights/component.h"

typedef struct vx_denoiser vx_denoiser;
typedef struct vx_denoiser_config {
    int64_t hidden, layers, refiner_layers, heads, head_dim, ffn, latent_channels, audio_channels, text_dim;
    int64_t timestep_dim, time_hidden, time_dim, rope_freqs;
    int64_t curve_points; // pruned: points of the table in place of the time embedder, time_dim is then its rank; full: 0
    float norm_eps, qk_norm_eps, final_norm_eps;
} vx_denoiser_config;

// Borrows the component. Errors: VX_ERR_CONFIG naming the member, VX_ERR_TENSOR_* naming the tensor.
vx_status vx_denoiser_open(vx_denoiser **out, vx_component *component);
void vx_denoiser_close(vx_denoiser **denoiser);
const vx_denoiser_config *vx_denoiser_config_of(const vx_denoiser *denoiser);

// ---- adapters ----
// How a request's schedule uses a bank of heads: the video's sigmas with the final 0, and both shifts.
typedef struct vx_denoiser_schedule {
    const float *sigmas;
    int count;
    double shift, audio_shift;
} vx_denoiser_schedule;
typedef struct vx_denoiser_adapt_params {
    vx_adapter *const *adapter; // borrowed until they are taken off again
    int count;
    bool merge; // into owned copies of the weights, rounded once; otherwise run beside them
    bool load;  // false: shapes alone, for planning; nothing of the files is read
    int threads;
    vx_denoiser_schedule schedule;
} vx_denoiser_adapt_params;
typedef struct vx_denoiser_adapter_use {
    int unused;    // modules that this model does not have
    int left_out;  // AdaLN that a pruned model without basis cannot take
    int projected; // AdaLN taken through the basis
    int merged;    // modules whose weights were copied and changed
} vx_denoiser_adapter_use;
// Adds adapters to the weights, in the order given, in place of those before. `use` [count]; *bytes: owned memory that it
// takes (or would). Not while a request is under way. On failure the denoiser has none. Errors: VX_ERR_TENSOR_SHAPE and
// _TENSOR_UNEXPECTED (the adapter is another model's), _UNAVAILABLE (merging into quantised weights), _CONFLICT (a bank of
// heads that the number of steps does not divide).
vx_status vx_denoiser_adapt(vx_denoiser *denoiser, vx_device *dev, const vx_denoiser_adapt_params *params,
                            vx_denoiser_adapter_use *use, uint64_t *bytes);
// Takes them off; dev (may be NULL) drops its copies first.
void vx_denoiser_unadapt(vx_denoiser *denoiser, vx_device *dev);

// ---- what a request leaves for the next one ----
// Recordings of the evaluation (device.h), and the modulation tables of one request, on the host. A request with the same
// timesteps in the same format, at the same denoiser with the same adapters, copies the tables instead of passing all modulation
// weights, a third of the model; and it replays what was recorded if it looks the same to the device in every address and
// number. The bits are the same in any case. Of one device and one request at a time.
typedef struct vx_denoiser_keep vx_denoiser_keep;
vx_status vx_denoiser_keep_create(vx_denoiser_keep **out, vx_device *dev);
void vx_denoiser_keep_destroy(vx_denoiser_keep **keep);      // before the device
void vx_denoiser_keep_drop(vx_denoiser_keep *keep);          // the tables
size_t vx_denoiser_keep_bytes(const vx_denoiser_keep *keep); // of the tables; 0 of NULL
typedef struct vx_denoiser_reuse {
    size_t table_bytes; // of the request's tables
    bool tables;        // they were copied
    int64_t replayed;   // evaluations so far that were replayed
} vx_denoiser_reuse;

// What stays for the whole request, in the caller's arena: refined text rows, rotary tables, modulation tables, row maps.
typedef struct vx_denoiser_request vx_denoiser_request;

typedef struct vx_denoiser_params {
    vx_dtype act;            // VX_BF16 (exact) or VX_F32
    const vx_layout *layout; // borrowed for the request
    vx_tensor prompt_embeds; // [text_rows, text_dim] bf16|f32, on the device
    // Timesteps of every evaluation, f32 on the host: [evaluations] each (t = 1 - sigma).
    const float *t_video, *t_audio;
    int64_t evaluations;
    void (*block_done)(void *user, int64_t block); // progress inside an evaluation, which is then not recorded; may be NULL
    void *user;
    vx_denoiser_keep *keep; // borrowed for the request; NULL, or one of another device: nothing is found and nothing left
    bool keep_tables;       // leave them: there is memory for it
} vx_denoiser_params;

// Takes what it needs from the arena (and gives scratch back): refines the text, builds rotary and modulation tables. The
// arena must not be reset below what it took before vx_denoiser_finish. The parameters are read during the call, the layout
// until the end. Errors: VX_ERR_DTYPE (f16: the residual stream leaves its range), VX_ERR_SHAPE, VX_ERR_NOT_FINITE (text).
vx_status vx_denoiser_prepare(vx_denoiser_request **out, const vx_denoiser *denoiser, vx_device *dev, vx_arena *arena,
                              const vx_denoiser_params *params);
void vx_denoiser_finish(vx_denoiser_request **request);
vx_denoiser_reuse vx_denoiser_reused(const vx_denoiser_request *request);

// One evaluation, index k: velocities (data-ward: x0 = x + sigma*v) of the target rows.
//   video_rows [all visual rows, 4*latent_channels] f32: conditions first, then the target
//   audio_rows [all audio rows, audio_channels] f32: conditions first
//   video_velocity [layout->video_rows, ...], audio_velocity [layout->audio_rows, ...] f32
// NaN or infinity in the residual stream ends in VX_ERR_NOT_FINITE naming the block ("block 17") or the head. No allocation.
vx_status vx_denoiser_evaluate(vx_denoiser_request *request, int64_t k, vx_tensor video_rows, vx_tensor audio_rows,
                               vx_tensor video_velocity, vx_tensor audio_velocity);

// latent [channels, T, H, W] <-> rows [T*(H/2)*(W/2), channels*4]; audio latent [2, channels, A] <-> rows [2*A, channels]. Any
// device.
vx_status vx_patchify(vx_device *dev, vx_tensor rows, vx_tensor latent);
vx_status vx_unpatchify(vx_device *dev, vx_tensor latent, vx_tensor rows);

#endif
