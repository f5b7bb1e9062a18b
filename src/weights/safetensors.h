// One safetensors file, read strictly: the header is parsed and checked whole, the data is mapped and not touched.
// Format: 8-byte little-endian header length, JSON header, data (huggingface/safetensors, README). What is refused
// is listed in docs/errors.md; it is every malformed file, not only the dangerous ones.
//
// Threads: open and close from one thread; reading from any. A view stays valid until close.
#ifndef VX_WEIGHTS_SAFETENSORS_H
#define VX_WEIGHTS_SAFETENSORS_H

#include "base/status.h"
#include "tensor/tensor.h"

typedef struct vx_safetensors vx_safetensors;

typedef struct vx_safetensors_entry {
    const char *name;
    vx_dtype dtype;
    int rank; // 0 for a scalar
    int64_t shape[VX_MAX_RANK];
    uint64_t offset, bytes; // in the file
    const void *data;       // mapped; any alignment
    int ggml; // GGUF only: ggml's number of a block format (quant.h); dtype is then U8 and the shape that of the weights. Else 0
} vx_safetensors_entry;

// `input`: the file is a user's input (latents, embeddings), so unreadable and malformed are VX_ERR_INPUT_OPEN and
// VX_ERR_INPUT_FORMAT in place of the 3000s. strict: trailing bytes are refused, not only logged as a warning.
typedef struct vx_safetensors_params {
    bool input, strict;
} vx_safetensors_params;
vx_status vx_safetensors_open(vx_safetensors **out, const char *path, const vx_safetensors_params *params); // NULL = defaults
// The header alone, from memory (for fuzzing and for files in other containers): data_size is what should follow it.
vx_status vx_safetensors_parse(vx_safetensors **out, const void *header, size_t size, uint64_t data_size, const char *path);
void vx_safetensors_close(vx_safetensors **st);

const char *vx_safetensors_path(const vx_safetensors *st);
int vx_safetensors_count(const vx_safetensors *st);
const vx_safetensors_entry *vx_safetensors_at(const vx_safetensors *st, int i);              // in order of offset
const vx_safetensors_entry *vx_safetensors_find(const vx_safetensors *st, const char *name); // NULL if absent
const char *vx_safetensors_metadata(const vx_safetensors *st, const char *key);              // NULL if absent
uint64_t vx_safetensors_header_bytes(const vx_safetensors *st);
uint64_t vx_safetensors_trailing_bytes(const vx_safetensors *st); // behind the last tensor: 0 in a sound file
vx_status vx_safetensors_check(const vx_safetensors *st);         // VX_ERR_FILE_CHANGED if the mapping was hurt
void vx_safetensors_prefetch(const vx_safetensors *st, uint64_t offset, uint64_t bytes);

// Copies an entry's numbers to contiguous f32 (float formats only), shape checked: -1 in `shape` matches anything.
vx_status vx_safetensors_read_f32(const vx_safetensors *st, const char *name, int rank, const int64_t *shape, float *out);

// Writing: tensors are given first, then written in order of decreasing alignment and name, header padded to 8 bytes.
typedef struct vx_safetensors_tensor {
    const char *name;
    vx_dtype dtype;
    int rank;
    int64_t shape[VX_MAX_RANK];
    const void *data;
} vx_safetensors_tensor;
typedef struct vx_safetensors_pair {
    const char *key, *value;
} vx_safetensors_pair;
// Atomic: a temporary file renamed at the end. VX_ERR_OUTPUT_EXISTS unless replace.
vx_status vx_safetensors_write(const char *path, bool replace, const vx_safetensors_tensor *tensors, int count,
                               const vx_safetensors_pair *metadata, int pairs);

#endif
