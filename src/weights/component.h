// One component of a checkpoint (transformer, text encoder, video VAE, audio VAE) as a set of canonical tensors, whatever
// files, shards and spelling it comes in. Nothing is converted: views point into the mapped files.
//
// Canonical names are the official ones (checkpoints specification 2.1, 6; audio: as in the files). A network binds its
// tensors by asking for them with the shapes that its configuration implies; what it never asks for is refused by
// vx_component_finish, so the networks' code is the one statement of what a checkpoint holds.
#ifndef VX_WEIGHTS_COMPONENT_H
#define VX_WEIGHTS_COMPONENT_H

#include "device/operators.h"
#include "weights/safetensors.h"
#include <jansson.h>

typedef enum vx_component_kind {
    VX_TRANSFORMER,
    VX_TEXT_ENCODER,
    VX_VIDEO_VAE,
    VX_AUDIO_VAE,
    VX_COMPONENT_KINDS
} vx_component_kind;
// Whose names a file has. LLAMA is llama.cpp's spelling of text encoders.
typedef enum vx_layout_kind { VX_LAYOUT_OFFICIAL, VX_LAYOUT_DIFFUSERS, VX_LAYOUT_LLAMA } vx_layout_kind;

typedef struct vx_component vx_component;

// path: a folder with config.json and one file or an indexed set, or one .safetensors or .gguf file. Only headers are read, and
// the markers of quantised layers. Refused by name: formats of other quantisers, sparse-attention and PDD checkpoints, adapters,
// pickles, a transformer's file whose QKV order nothing tells (VX_ERR_QUANT_FORMAT, _MODEL_LAYOUT, _FILE_PICKLE, _MODEL_QKV);
// another component or model (VX_ERR_MODEL_UNKNOWN).
vx_status vx_component_open(vx_component **out, vx_component_kind kind, const char *path);
typedef enum vx_qkv_statement { VX_QKV_BY_FILE, VX_QKV_STATED_GROUPED, VX_QKV_STATED_INTERLEAVED } vx_qkv_statement;
typedef struct vx_component_params {
    vx_qkv_statement qkv; // --qkv-layout: believed before anything that a file says
    const char *vision;   // text encoder: the file of its vision tower, where that is another one; NULL: none
} vx_component_params;
vx_status vx_component_open_as(vx_component **out, vx_component_kind kind, const char *path, const vx_component_params *params);
void vx_component_close(vx_component **c);

vx_component_kind vx_component_kind_of(const vx_component *c);
vx_layout_kind vx_component_layout(const vx_component *c);
const char *vx_component_path(const vx_component *c);
// config.json of the folder; for the official VAEs the wrapper's and the source's members in one object (video:
// config.json + source/config.json; audio: config.json + metadata.json's kwargs). For a single file: the config.json beside it,
// if it is one of this kind. NULL where there is none.
const json_t *vx_component_config(const vx_component *c);

// Members of that configuration. `name` is the official spelling and `other_name` the diffusers one (NULL = the same); the
// first that is there counts. A dot goes into an object: "text_config.hidden_size". `fallback` NULL = required. A single file
// without a configuration has no members. Errors: VX_ERR_CONFIG naming the file, the member and what it should be.
// Whole numbers are sizes and counts: 1..VX_CONFIG_MAX (in a list also 0). Reals must be finite.
#define VX_CONFIG_MAX ((int64_t)1 << 24)
vx_status vx_config_int(const vx_component *c, const char *name, const char *other_name, const int64_t *fallback, int64_t *out);
vx_status vx_config_float(const vx_component *c, const char *name, const char *other_name, const double *fallback, double *out);
// A list of exactly `count` numbers. Absent: *found is false and `out` untouched; found NULL = required.
vx_status vx_config_ints(const vx_component *c, const char *name, int count, int64_t *out, bool *found);
vx_status vx_config_floats(const vx_component *c, const char *name, int count, float *out, bool *found);

uint64_t vx_component_bytes(const vx_component *c); // of all tensors in its files
// Who wrote the files: "official", "diffusers", "comfyui", "gguf", "lightx2v", "deepbeepmeep".
const char *vx_component_origin(const vx_component *c);
// "interleaved", "grouped", "separate" rows of QKV, and how that was told.
const char *vx_component_qkv_order(const vx_component *c, const char **reason);
// Looks at some rows of a transformer, once, and notes where they contradict that order. Reads about 20 MB of the full model.
void vx_component_check_qkv(vx_component *c);
// What is odd about the files, a line each; "" if nothing.
const char *vx_component_notes(const vx_component *c);
// One line more, which is also logged as a warning, behind the file's name.
void vx_component_note(vx_component *c, const char *format, ...) VX_PRINTF(2, 3);
vx_status vx_component_check(const vx_component *c); // VX_ERR_FILE_CHANGED if a file was hurt while mapped

bool vx_component_has(const vx_component *c, const char *name);
// Number of consecutive indices i from 0 for which prefix<i>suffix exists ("blocks.", ".norm1.weight"); a gap is an error.
vx_status vx_component_layers(const vx_component *c, const char *prefix, const char *suffix, int64_t *count);

// A tensor by canonical name and exact shape; f32, bf16 or f16 unless `dtype` says one (VX_DTYPE_NONE = any of these).
// Errors: VX_ERR_TENSOR_MISSING, _SHAPE, _DTYPE naming file, tensor, found and expected. Misaligned data (offset not a
// multiple of the element size) is copied once into aligned memory owned by the component, with an info message.
vx_status vx_component_tensor(vx_component *c, const char *name, vx_dtype dtype, int rank, const int64_t *shape, vx_tensor *out);
#define vx_component_get(c, name, dtype, out, ...)                                                         \
    vx_component_tensor((c), (name), (dtype), (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), \
                        (const int64_t[]){ __VA_ARGS__ }, (out))

// A quantised tensor asked for in this way is decoded to f32, once: right for vectors and small tables, not for matrices.

// Two tensors of one shape as one, along a new axis: llama.cpp keeps the frames of a kernel apart. The component owns the f32
// copy.
vx_status vx_component_stack(vx_component *c, const char *first, const char *second, int rank, const int64_t *shape, int axis,
                             vx_tensor *out);

// name.weight [n, k] and, if `bias`, name.bias [n]. Quantised matrices stay as they are: the segment's quant says how to read
// them, companions (scales) are checked here. Errors: VX_ERR_QUANT_SCALE.
vx_status vx_component_linear(vx_component *c, const char *name, int64_t n, int64_t k, bool bias, vx_weight *out);

// The same as the next segment of `w`, beside those that are there.
vx_status vx_component_rows(vx_component *c, const char *name, int64_t n, int64_t k, bool bias, vx_weight *w);

// The fused query-key-value product of `heads` heads: one matrix interleaved per head (official) or in thirds
// (ComfyUI's files), or three (diffusers).
// The product is [rows, 3*heads*head_dim]; q, k, v of head h start at column offset[c] + h*head_stride.
typedef struct vx_qkv {
    vx_weight weight;
    int64_t offset[3], head_stride;
} vx_qkv;
vx_status vx_component_qkv(vx_component *c, const char *name, int64_t heads, int64_t head_dim, int64_t k, bool bias, vx_qkv *out);

// The fused gate and value product [2*n, k] of a SwiGLU, halves in the order found.
vx_status vx_component_swiglu(vx_component *c, const char *name, int64_t n, int64_t k, bool bias, vx_weight *out,
                              bool *gate_first);

// Shape of a tensor without binding it; rank 0 if absent.
void vx_component_shape(const vx_component *c, const char *name, int *rank, int64_t shape[VX_MAX_RANK]);
// Leaves a tensor, or all with a prefix, out of the final check: present or not, they are not needed.
void vx_component_ignore(vx_component *c, const char *prefix);
// Before a component's first use: every scale of what is bound, once. VX_ERR_QUANT_SCALE naming tensor and place. Reads scales
// only, which are a sixteenth of an NVFP4 matrix: opening does not. GGUF keeps them among the values: vx_component_verify.
vx_status vx_component_check_scales(vx_component *c);
// VX_ERR_TENSOR_UNEXPECTED if a tensor was neither bound nor ignored.
vx_status vx_component_finish(vx_component *c);
// Read-ahead of the bound tensors whose names start with prefix, and the beginning of their way to the device where it has
// memory of its own: a hint before a block runs. Nothing on the plan device; dev NULL: the file's side alone.
void vx_component_prefetch(const vx_component *c, vx_device *dev, const char *prefix);
// Bytes of the bound tensors whose names do not contain `without` (NULL: all), and of the largest.
uint64_t vx_component_bound_bytes(const vx_component *c, const char *without, uint64_t *largest);
// A file of the component is one of holes (demo-model --released): headers without numbers.
bool vx_component_hollow(const vx_component *c);
// The device drops its copies: to make room, and before the component is closed.
void vx_component_forget(const vx_component *c, vx_device *dev);

#endif
