// Inside the room: the parts of the denoiser and what a request holds.
//
//   config.c        dimensions from config.json or, without one, from the tensors' shapes
//   open.c          binds the tensors
//   adapt.c         adapters on the weights; heads.c: banks of heads
//   conditioning.c  what is computed once per request: rotary and modulation tables
//   block.c         one transformer block, of the refiner or of the main stack
//   request.c       prepare and evaluate
//   keep.c          what a request leaves for the next one
//   patchify.c      latents to rows and back
#ifndef VX_DENOISER_NETWORK_H
#define VX_DENOISER_NETWORK_H

#include "denoiser/denoiser.h"

enum { VX_ROPE_AXES = 3, VX_ROPE_FREQS = 16 };

// The six vectors of a block's modulation, in the order of the projection's output.
enum { VX_SHIFT_MSA, VX_SCALE_MSA, VX_GATE_MSA, VX_SHIFT_MLP, VX_SCALE_MLP, VX_GATE_MLP, VX_MODULATIONS };

typedef struct vx_denoiser_block {
    vx_tensor norm1, norm2, q_norm, k_norm;
    vx_qkv qkv;
    vx_weight out_proj, fc1, fc2;
    bool gate_first;
    vx_weight adaln; // main blocks only
} vx_denoiser_block;

struct vx_denoiser {
    vx_component *component;
    uint64_t stamp; // of the weights as they are: another one after every change, never the same for two denoisers
    vx_denoiser_config config;
    float inv_freq[VX_ROPE_FREQS];
    vx_weight video_patch, audio_patch, condition, time_in, time_out;
    vx_tensor curve; // pruned: [curve_points, time_dim] f32, in place of time_in and time_out; else rank 0
    vx_denoiser_block *refiner, *blocks;
    vx_tensor refiner_norm, final_norm;
    vx_weight final_adaln, video_out, audio_out;
    struct vx_denoiser_adapted *adapted; // NULL: no adapters
};

uint64_t vx_denoiser_stamp(void); // a new one

// The weight of a head at evaluation k: the file's, or the mixture of an adapter's bank.
const vx_weight *vx_denoiser_head_weight(const vx_denoiser *d, bool audio, int64_t k);

vx_status vx_denoiser_config_read(vx_denoiser_config *out, vx_component *component);

// Activations of one pass. A block reads x and leaves it updated; narrow and wide hold nothing between blocks.
typedef struct vx_denoiser_buffers {
    vx_tensor x;            // [rows, hidden] act
    vx_tensor narrow, wide; // [elements] act: h [rows, hidden] or attention's output; query, key and value, or a chunk of the MLP
} vx_denoiser_buffers;

// The widest steps, for `rows` rows, in elements of `narrow` and `wide`.
int64_t vx_denoiser_narrow(const vx_denoiser_config *config, int64_t rows);
int64_t vx_denoiser_wide(const vx_denoiser_config *config, int64_t rows);
// Rows that the heads take at a time, and the MLP at least: bounds their buffers; every row is computed by itself.
enum { VX_DENOISER_CHUNK = 8192 };

// How a main block treats its rows; NULL for the refiner's.
typedef struct vx_denoiser_rows {
    vx_tensor modulation; // [table rows, VX_MODULATIONS, hidden] act: this block's
    vx_tensor map;        // [rows] i32: the table row of each row
    vx_tensor cos, sin;   // [rows, 3*freqs] act
} vx_denoiser_rows;

// One of the refiner's blocks.
vx_status vx_denoiser_run_plain(vx_device *dev, const vx_denoiser_config *config, const vx_denoiser_block *block,
                                const vx_denoiser_buffers *buffers);
// The main blocks in turn, each from its modulated input on: `enter` makes the first one's, a block's end the next one's.
vx_status vx_denoiser_enter(vx_device *dev, const vx_denoiser_config *config, const vx_denoiser_block *block,
                            const vx_denoiser_buffers *buffers, const vx_denoiser_rows *rows);
// next, next_rows: NULL behind the last block.
vx_status vx_denoiser_run_block(vx_device *dev, const vx_denoiser_config *config, const vx_denoiser_block *block,
                                const vx_denoiser_buffers *buffers, const vx_denoiser_rows *rows, const vx_denoiser_block *next,
                                const vx_denoiser_rows *next_rows);
// h = fc2(swiglu(fc1(h))), h [rows, hidden], a part of the rows at a time, in `wide`.
vx_status vx_denoiser_run_mlp(vx_device *dev, const vx_denoiser_config *config, const vx_denoiser_block *block, vx_tensor h,
                              vx_tensor wide);
// [table, parts, n] -> [table, n], one of the parts.
vx_tensor vx_denoiser_part(vx_tensor table, int64_t part);

// cos, sin [layout->rows, 3*freqs] act.
vx_status vx_denoiser_rotary(vx_device *dev, const vx_denoiser *d, const vx_layout *layout, vx_tensor cos, vx_tensor sin);
// blocks [layers, count*3, VX_MODULATIONS, hidden], head [count, 2, hidden] act, of the timesteps t [count]. Scratch comes from
// the arena and goes back.
vx_status vx_denoiser_modulation(vx_device *dev, vx_arena *arena, const vx_denoiser *d, const float *t, int64_t count,
                                 vx_tensor blocks, vx_tensor head);

// ---- keep.c; `keep` may be NULL: nothing is found, nothing left ----
// Modulation tables with everything that they depend on.
typedef struct vx_denoiser_tables {
    uint64_t stamp;
    const float *t; // [count]
    int64_t count;
    vx_tensor modulation, head; // of one format; the sizes beside count are the denoiser's
} vx_denoiser_tables;
vx_denoiser_keep *vx_denoiser_keep_of(vx_denoiser_keep *keep, const vx_device *dev); // NULL if it is another device's
vx_recording **vx_denoiser_keep_slot(vx_denoiser_keep *keep);
vx_status vx_denoiser_recall(vx_denoiser_keep *keep, const vx_denoiser_tables *tables, bool *found); // into the tensors
// In place of those before. No memory for it is no error.
vx_status vx_denoiser_leave(vx_denoiser_keep *keep, const vx_denoiser_tables *tables);

#endif
