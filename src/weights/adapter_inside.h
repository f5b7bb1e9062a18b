// The adapter from inside (this room only).
#ifndef VX_WEIGHTS_ADAPTER_INSIDE_H
#define VX_WEIGHTS_ADAPTER_INSIDE_H

#include "weights/adapter_keys.h"

// All that a file holds for one module, or for q, k or v of one.
typedef struct vx_adapter_slot {
    vx_adapter_module module;
    vx_adapter_part part;
    const vx_safetensors_entry *entry[VX_ROLES];
    bool value_first[VX_ROLES];
    bool interleaved; // rows of a whole QKV stand head by head
    double alpha;
    float scale; // strength * alpha / rank
    bool used;
} vx_adapter_slot;

struct vx_adapter {
    char *path;
    vx_safetensors *st;
    vx_adapter_params params;
    vx_adapter_facts facts;
    vx_adapter_slot *slot;
    int slots;
    int32_t *index; // of a slot by module and part, -1: none
};

// NULL if there is none.
vx_adapter_slot *vx_adapter_slot_of(const vx_adapter *a, vx_adapter_module module, vx_adapter_part part);
// "file: 'key'", or the module where no key is at hand.
const char *vx_adapter_where(char out[320], const vx_adapter *a, const vx_adapter_slot *s, vx_adapter_role role);
float vx_adapter_number(const vx_safetensors_entry *e, int64_t i); // of F32, BF16, F16; any alignment

#endif
