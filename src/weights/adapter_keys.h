// The spelling of adapters' keys (checkpoints specification 5.2), inside this room only. At most one prefix is taken off and one
// suffix split off; what is left must be a module of the closed list, in official, diffusers' or flattened spelling: every '.' of a
// module's name may be written '_', as kohya's tools do, and nothing is ever split at a '_'.
#ifndef VX_WEIGHTS_ADAPTER_KEYS_H
#define VX_WEIGHTS_ADAPTER_KEYS_H

#include "weights/adapter.h"

typedef enum vx_adapter_role {
    VX_ROLE_A, // down, [r, k]
    VX_ROLE_B, // up, [n, r]
    VX_ROLE_ALPHA,
    VX_ROLE_DIFF,      // of the weight, [n, k]
    VX_ROLE_DIFF_BIAS, // [n]
    VX_ROLE_RESHAPE,   // I64 [2]: the weight grows to this shape, with zeros, before the pair is added
    VX_ROLE_BANK,      // a head for every stretch of the schedule, [heads, n, k]
    VX_ROLE_BANK_BIAS,
    VX_ROLES
} vx_adapter_role;

typedef enum vx_adapter_part {
    VX_PART_Q_OF_QKV,
    VX_PART_K_OF_QKV,
    VX_PART_V_OF_QKV,
    VX_PART_WHOLE,
    VX_ADAPTER_PARTS
} vx_adapter_part;

typedef struct vx_adapter_key {
    vx_adapter_module module;
    vx_adapter_part part;
    vx_adapter_role role;
    bool flat;        // some '.' was written '_'
    bool diffusers;   // a name that only diffusers has
    bool default_;    // PEFT's name of an adapter, "default", stands in the key
    bool value_first; // fc1: the value's half stands first
    bool reference;   // the prefix names the Ref2VA partition
} vx_adapter_key;

typedef enum vx_key_answer {
    VX_KEY_KNOWN,
    VX_KEY_UNKNOWN,
    VX_KEY_REFUSED, // of a method that is not LoRA: *what says which
} vx_key_answer;
vx_key_answer vx_adapter_key_parse(vx_adapter_key *out, const char *name, const char **what);

#endif
