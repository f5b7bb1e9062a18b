// One GGUF file, read strictly: metadata and tensor table are checked whole against the file before a byte of data is
// touched, and nothing is allocated whose size the bytes left cannot pay for (reliability specification 1.2).
// Format: checkpoints specification 4.1; little-endian, versions 2 and 3.
//
// Entries have PyTorch's order of axes (the reverse of ggml's); comfy.gguf.orig_shape.NAME is followed where it is there.
#ifndef VX_WEIGHTS_GGUF_H
#define VX_WEIGHTS_GGUF_H

#include "weights/safetensors.h"

typedef struct vx_gguf vx_gguf;

vx_status vx_gguf_open(vx_gguf **out, const char *path);
// From memory (for fuzzing): the whole file, borrowed until close.
vx_status vx_gguf_parse(vx_gguf **out, const void *bytes, size_t size, const char *path);
void vx_gguf_close(vx_gguf **g);

bool vx_gguf_is(const void *bytes, size_t size); // by the first four bytes
const char *vx_gguf_path(const vx_gguf *g);
int vx_gguf_count(const vx_gguf *g);
const vx_safetensors_entry *vx_gguf_at(const vx_gguf *g, int i); // in order of offset
int vx_gguf_metadata_count(const vx_gguf *g);
// A text of the metadata, not terminated; NULL if there is none of this key.
const char *vx_gguf_text(const vx_gguf *g, const char *key, size_t *size);
vx_status vx_gguf_check(const vx_gguf *g); // VX_ERR_FILE_CHANGED if the mapping was hurt
void vx_gguf_prefetch(const vx_gguf *g, uint64_t offset, uint64_t bytes);

#endif
