// The component from inside: shared by the files that open and that bind (inside this room only).
#ifndef VX_WEIGHTS_COMPONENT_INSIDE_H
#define VX_WEIGHTS_COMPONENT_INSIDE_H

#include "base/str.h"
#include "weights/component.h"
#include "weights/shards.h"

typedef enum vx_qkv_order {
    VX_QKV_SPLIT,       // three matrices
    VX_QKV_INTERLEAVED, // rows q0 k0 v0 q1 k1 v1 ..., a head each
    VX_QKV_GROUPED,     // rows q0 q1 ... k0 k1 ... v0 v1 ...
} vx_qkv_order;

typedef struct vx_component_entry vx_component_entry;

// Tensors beside a quantised one, by what they are for.
typedef enum vx_part {
    VX_PART_SCALE,       // of a row or of the tensor
    VX_PART_BLOCK_SCALE, // of a stretch of a row
    VX_PART_PRE_SCALE,
    VX_PART_CODEBOOK,
    VX_PART_CORRECTION,
    VX_PART_INPUT_SCALE, // what an exporter measured: used where activations are quantised, which this program does not do
    VX_PARTS
} vx_part;

// How a tensor that is not plain numbers is read.
typedef struct vx_layer {
    vx_quant quant; // without its companions until they are bound
    vx_component_entry *part[VX_PARTS];
    bool ready;   // companions bound and checked
    bool checked; // scales of blocks, too
} vx_layer;

struct vx_component_entry {
    char *name; // canonical
    const vx_safetensors_entry *entry;
    const vx_container *file;
    vx_layer *layer; // NULL: plain numbers
    void *copy;      // aligned, of a misaligned tensor; or `made`
    vx_tensor made;  // rank 0, or in place of what the file holds: decoded or put together
    size_t copy_bytes;
    bool bound, ignored;
    bool companion; // belongs to another entry and is bound with it
};

struct vx_component {
    vx_component_kind kind;
    vx_layout_kind layout;
    vx_qkv_order qkv;
    const char *qkv_reason; // how the order was told
    bool qkv_checked;       // against the weights
    char *path;             // as opened
    char *config_path;      // NULL: none
    json_t *config;         // NULL: none
    vx_shards shards;
    int count;
    vx_component_entry *entries; // by canonical name
    vx_str notes;                // what is odd about the files, a line each
};

// "file: tensor 'name'", with the file's own spelling where it differs.
const char *vx_component_entry_text(char out[320], const vx_component_entry *e);
// As stored: blocks of GGUF are bytes, [rows, bytes of a row].
vx_tensor vx_component_view(const vx_component_entry *e);
// The same as a matrix [n, stored width]: a convolution's kernel is one row a filter.
vx_tensor vx_component_values(const vx_component_entry *e);
// The shape of the numbers, whatever they are packed in.
void vx_component_entry_shape(const vx_component_entry *e, int *rank, int64_t shape[VX_MAX_RANK]);
// Files promise no alignment beyond a byte (a header need not be padded), kernels want that of an element.
vx_status vx_component_align(vx_component_entry *e);

// quantised.c: markers and companions of all files, without reading more than the markers. Errors: VX_ERR_QUANT_FORMAT,
// VX_ERR_QUANT_SCALE naming the layer.
vx_status vx_component_read_layers(vx_component *c);
// Binds the companions of a quantised entry and checks them.
vx_status vx_component_bind_layer(vx_component_entry *e);
// Decodes a quantised entry to f32, once: for what is no matrix of a product.
vx_status vx_component_decode(vx_component *c, vx_component_entry *e);
void vx_component_free_layers(vx_component *c);

// qkv.c: the order of the rows of a fused query-key-value matrix.
vx_status vx_component_decide_qkv(vx_component *c, vx_qkv_statement stated);

// The entry of a canonical name, or NULL.
vx_component_entry *vx_component_entry_of(const vx_component *c, const char *name);
// The first entry, in order of name, that is not below `name`: those with a prefix follow one another from there.
int vx_component_lower_bound(const vx_component *c, const char *name);

#endif
