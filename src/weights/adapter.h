// Adapters of a transformer (LoRA): one safetensors file in any of the spellings in circulation, held strictly to its rules
// (checkpoints specification 5), and what it adds to a module of the base in the base's own order of rows.
//
// Nothing is converted but factors whose rows stand in another order: those are copied. Everything else is a view into the
// mapped file. Threads: as safetensors.h.
#ifndef VX_WEIGHTS_ADAPTER_H
#define VX_WEIGHTS_ADAPTER_H

#include "device/operators.h"
#include "weights/model_map.h"
#include "weights/safetensors.h"

// ---- modules: the closed list ----
typedef enum vx_adapter_kind {
    VX_MODULE_QKV,
    VX_MODULE_OUT,
    VX_MODULE_FC1,
    VX_MODULE_FC2,
    VX_MODULE_ADALN, // of the main blocks
    VX_MODULE_VIDEO_PATCH,
    VX_MODULE_AUDIO_PATCH,
    VX_MODULE_CONDITION,
    VX_MODULE_TIME_IN,
    VX_MODULE_TIME_OUT,
    VX_MODULE_FINAL_ADALN,
    VX_MODULE_VIDEO_OUT,
    VX_MODULE_AUDIO_OUT,
    VX_MODULE_KINDS
} vx_adapter_kind;
enum { VX_ADAPTER_BLOCKS = 256 }; // more than any model of this family has
typedef struct vx_adapter_module {
    vx_adapter_kind kind;
    bool refiner;
    int block;
} vx_adapter_module;
const char *vx_adapter_module_name(char out[64], vx_adapter_module module); // official

// ---- known files ----
// How the list of sigmas of a distilled adapter is made.
typedef enum vx_turbo_list {
    VX_TURBO_OFFICIAL,
    VX_TURBO_SIMPLE, // ComfyUI's "simple", the sound on its own clock
    VX_TURBO_RUNGS,  // FastH3's, which begins below 1
    VX_TURBO_BANK,   // every fourth point of a grid of 33, to which a bank of heads is aligned
} vx_turbo_list;
typedef struct vx_adapter_preset {
    const char *name;
    const char *piece[4]; // all must be in the file's name, which is compared in small letters without '-', '_' and ' '
    double alpha;         // 0: the rank
    int steps;            // evaluations
    float shift, audio_shift;
    vx_turbo_list list;
    float strength;      // that its maker advises
    vx_variant variant;  // that it was made for; a name is no proof
    const char *caution; // or NULL
} vx_adapter_preset;
const vx_adapter_preset *vx_adapter_preset_of(const char *path); // by file name alone; NULL if none

// ---- one file ----
typedef struct vx_adapter vx_adapter;
typedef enum vx_alpha_source {
    VX_ALPHA_OF_TENSORS,
    VX_ALPHA_OF_METADATA,
    VX_ALPHA_OF_OPTION,
    VX_ALPHA_OF_TABLE,
    VX_ALPHA_IS_RANK
} vx_alpha_source;
const char *vx_alpha_source_name(vx_alpha_source source); // "tensors", "known file", ...
typedef struct vx_adapter_params {
    float strength; // any finite number; 0: checked and then left out
    double alpha;   // the user's, where the file says none; 0: none
    bool partial;   // keys that fit no module are left out with a warning
} vx_adapter_params;

typedef struct vx_adapter_facts {
    const char *path;
    const char *spelling; // "official", "diffusers", "flattened", "interleaved"
    int keys, unknown;    // unknown: fit no name of the closed list
    const char *first_unknown;
    int modules; // pairs, differences and banks, q, k and v each by itself
    int64_t rank_min, rank_max;
    double alpha_min, alpha_max;
    double scale_min, scale_max; // strength * alpha / rank
    vx_alpha_source alpha_source;
    float strength;
    vx_variant variant; // by what the file says itself; UNKNOWN: it does not
    bool bank;          // a head for every stretch of the schedule
    uint64_t bytes;     // of all tensors
    const vx_adapter_preset *preset;
} vx_adapter_facts;

// Errors name file and key: VX_ERR_TENSOR_MISSING (half a pair), _TENSOR_UNEXPECTED (no key known, or some without `partial`; an
// alpha without a pair), _TENSOR_DUPLICATE (two keys for one place), _TENSOR_SHAPE (ranks differ), _TENSOR_DTYPE, _CONFIG (an
// alpha that is no number), _MODEL_LAYOUT (DoRA, LoHa, LoKr and others; a part of a model); those of the container.
vx_status vx_adapter_open(vx_adapter **out, const char *path, const vx_adapter_params *params);
void vx_adapter_close(vx_adapter **adapter);
const vx_adapter_facts *vx_adapter_facts_of(const vx_adapter *adapter);
vx_status vx_adapter_check(const vx_adapter *adapter); // VX_ERR_FILE_CHANGED
// Reads every number that a module gets: VX_ERR_NOT_FINITE naming file, key and place of the first that is NaN or infinite.
vx_status vx_adapter_check_numbers(const vx_adapter *adapter);
void vx_adapter_forget(const vx_adapter *adapter, vx_device *dev); // before closing: the device drops its copies

// What `vortex inspect` says of an adapter's file: targets, ranks, scale, partition, preset (new reference). What is wrong with it
// is in *problem, and then only "kind" is told. Fails only where the container cannot be read.
vx_status vx_adapter_describe(const char *path, json_t **out, vx_status *problem);
// Reads every number. `found` is called for each tensor that holds NaN or infinity; fails only where the container cannot be read.
vx_status vx_adapter_verify(const char *path, void (*found)(void *user, vx_status fault), void *user);

// ---- what it adds to a module ----
// Memory for what must be copied. Planning (load false) only counts: tensors then have no data.
typedef struct vx_adapter_memory {
    bool load;
    uint64_t bytes;
    void **block;
    size_t *size;
    int count, room;
} vx_adapter_memory;
vx_status vx_adapter_take(vx_adapter_memory *memory, size_t bytes, void **out); // NULL in *out when planning
void vx_adapter_memory_free(vx_adapter_memory *memory, vx_device *dev);         // dev drops its copies first; NULL: has none

typedef struct vx_adapter_target {
    vx_adapter_module module;
    int64_t n, k;
    // QKV: columns of q, k, v of head h begin at offset[c] + h * head_stride.
    int64_t heads, head_dim, offset[3], head_stride;
    bool gate_first; // FC1
    // AdaLN of a pruned checkpoint, which reads z of k numbers with y = z basis + mean; NULL: the file does not say.
    bool pruned;
    const float *basis, *mean; // [k, full_k], [full_k]
    int64_t full_k;
} vx_adapter_target;

enum { VX_ADAPTER_MOST = 3 }; // branches of one module: q, k and v apart
typedef struct vx_adapter_addition {
    vx_branch branch[VX_ADAPTER_MOST];
    int branches;
    bool bias, difference; // there is something for the two functions below
    bool left_out;         // AdaLN that a pruned base without basis cannot take
    bool projected;        // AdaLN through the basis: exact within its span only
} vx_adapter_addition;
// Marks what it gives as used. Errors: VX_ERR_TENSOR_SHAPE naming file, module, found and expected.
vx_status vx_adapter_add(vx_adapter *adapter, const vx_adapter_target *target, vx_adapter_memory *memory,
                         vx_adapter_addition *out);
// bias[n] += strength * the bias' difference + what the basis' mean adds.
void vx_adapter_add_bias(const vx_adapter *adapter, const vx_adapter_target *target, float *bias);
// row[k] += strength * the weight's difference of one column of the base's output.
void vx_adapter_add_difference(const vx_adapter *adapter, const vx_adapter_target *target, int64_t column, float *row);

// A bank of heads (VIDEO_OUT, AUDIO_OUT) mixed by `weights` [heads]: weight[n, k] and bias[n] hold the base's head and become
// the mixture, in part by strength. heads: 0 if the adapter has none for this module. vx_adapter_add has checked its shapes.
int64_t vx_adapter_bank_heads(const vx_adapter *adapter, const vx_adapter_target *target);
void vx_adapter_mix(const vx_adapter *adapter, const vx_adapter_target *target, const double *weights, float *weight,
                    float *bias);

// Keys of modules that this base does not have: an error without `partial`, else counted.
vx_status vx_adapter_finish(vx_adapter *adapter, int *unused);

#endif
