// Inside the room: what a back end is. The front (front_*.c) checks and completes the arguments and calls the table;
// a back end may rely on everything that operators.h demands of a caller.
//
// What the front guarantees to a back end: shapes and number formats fit; every tensor of a computing back end has data;
// no output is empty; defaults are filled in (attention scale, convolution strides, the row map's rank); the watched flag
// was not set when the operator began.
#ifndef VX_DEVICE_BACKEND_H
#define VX_DEVICE_BACKEND_H

#include "device/operators.h"

// Every operator once: tables, plan, trace and costs are made from this list.
#define VX_OPERATORS(X)  \
    X(linear)            \
    X(rms_norm)          \
    X(rms_norm_modulate) \
    X(layer_norm)        \
    X(add)               \
    X(gate_add)          \
    X(gate_add_norm)     \
    X(swiglu)            \
    X(silu)              \
    X(gelu)              \
    X(copy)              \
    X(blend)             \
    X(affine)            \
    X(embed)             \
    X(embed_blend)       \
    X(mark_not_finite)   \
    X(qk_norm_rope)      \
    X(attention)         \
    X(conv1d)            \
    X(conv_transpose1d)  \
    X(snake_alias_free)  \
    X(snake)             \
    X(conv3d)            \
    X(group_norm)        \
    X(fade)              \
    X(clamp)             \
    X(to_u8)

// Those that ask for scratch, once.
#define VX_SCRATCH_OPERATORS(X) \
    X(linear)                   \
    X(attention)                \
    X(conv1d)                   \
    X(conv_transpose1d)         \
    X(snake_alias_free)         \
    X(conv3d)

typedef struct vx_linear_args {
    vx_tensor out, x; // [m, n], [m, k]; any row stride
    const vx_weight *weight;
    bool as_stored; // inside a back end: f32 and f16 weights beside bf16 x are widened, not rounded (factors of a branch)
} vx_linear_args;

typedef struct vx_rms_norm_args {
    vx_tensor out, x, w; // w of rank 0: ones
    float eps;
    vx_norm_rounding rounding;
} vx_rms_norm_args;

typedef struct vx_rms_norm_modulate_args {
    vx_tensor out, x, w, shift, scale, row;
    float eps;
} vx_rms_norm_modulate_args;

typedef struct vx_layer_norm_args {
    vx_tensor out, x, w, b;
    float eps;
} vx_layer_norm_args;

typedef struct vx_add_args {
    vx_tensor x, y;
} vx_add_args;

typedef struct vx_gate_add_args {
    vx_tensor x, y, gate, row; // row of rank 0: gate row 0 for all
} vx_gate_add_args;

typedef struct vx_gate_add_norm_args {
    vx_gate_add_args add;
    vx_rms_norm_modulate_args norm; // of add's x, by add's row; shift and scale of rank 0: vx_rms_norm, rounded once
} vx_gate_add_norm_args;

typedef struct vx_swiglu_args {
    vx_tensor out, u;
    bool gate_first;
} vx_swiglu_args;

typedef struct vx_silu_args {
    vx_tensor out, x;
} vx_silu_args;

typedef struct vx_gelu_args {
    vx_tensor out, x;
    bool tanh_form;
} vx_gelu_args;

typedef struct vx_copy_args {
    vx_tensor out, x;
} vx_copy_args;

enum { VX_MAX_TERMS = 3 };
typedef struct vx_blend_args {
    vx_tensor out;
    vx_term term[VX_MAX_TERMS];
    int count;
} vx_blend_args;

typedef struct vx_affine_args {
    vx_tensor out, x, scale, shift;
    int axis;
} vx_affine_args;

typedef struct vx_embed_args {
    vx_tensor out, table, ids;
    vx_quant quant; // of the table; kind VX_QUANT_NONE: its rows are numbers
} vx_embed_args;

enum { VX_CORNERS = 4 };
typedef struct vx_embed_blend_args {
    vx_tensor out, table, ids, weights;
} vx_embed_blend_args;

typedef struct vx_mark_not_finite_args {
    vx_tensor flag;
    int64_t index;
    vx_tensor x;
} vx_mark_not_finite_args;

typedef struct vx_qk_norm_rope_args {
    vx_tensor q, k; // [rows, heads, head_dim]; k may be of rank 0: only q
    vx_qk_norm_rope_params params;
} vx_qk_norm_rope_args;

typedef struct vx_attention_args {
    vx_tensor out, q, k, v; // [rows, heads, head_dim], unit last stride; or all with items before that
    float scale;            // never 0
    bool causal;
} vx_attention_args;
static inline int64_t vx_attention_items(const vx_attention_args *args)
{
    return args->q.rank == 4 ? args->q.shape[0] : 1;
}
static inline vx_attention_args vx_attention_item(const vx_attention_args *args, int64_t i)
{
    if (args->q.rank == 3) return *args;
    return (vx_attention_args){ vx_tensor_row(args->out, i),
                                vx_tensor_row(args->q, i),
                                vx_tensor_row(args->k, i),
                                vx_tensor_row(args->v, i),
                                args->scale,
                                args->causal };
}

// Of vx_conv1d and vx_conv_transpose1d. Everything is f32 and contiguous except that x, out and residual, [channels, lines, length]
// (a single line has an axis of 1), may have any stride between channels and between lines. stride, dilation >= 1.
typedef struct vx_conv1d_args {
    vx_tensor out, x, w, bias, residual;
    int64_t stride, padding, dilation;
} vx_conv1d_args;
typedef vx_conv1d_args vx_conv_transpose1d_args;

// out, x [channels, lines, length] as of a convolution
typedef struct vx_snake_alias_free_args {
    vx_tensor out, x, alpha, beta, up, down;
} vx_snake_alias_free_args;

typedef struct vx_snake_args {
    vx_tensor out, x, alpha; // likewise
} vx_snake_args;

// [channels, frames, rows, columns]; only columns stand side by side. Frames, rows, columns in the arrays; strides >= 1.
// What lies beyond the ends of x is zero, or for rows and columns mirrored; how far out goes there, its shape says.
typedef struct vx_conv3d_args {
    vx_tensor out, x, w, bias, residual; // w contiguous [co, ci, kt, kh, kw]
    int64_t stride[3], pad[3];           // pad: in front; pad[0] < kt
    bool reflect, alone;
} vx_conv3d_args;

// Taps kt < this only meet the zero frames in front of output frame `frame`. At least one tap is left.
static inline int64_t vx_conv3d_first_tap(const vx_conv3d_args *args, int64_t frame)
{
    if (args->alone) return args->pad[0]; // the last: all before it meet zeros, whatever frames stand there
    const int64_t before = args->pad[0] - frame * args->stride[0];
    return before > 0 ? before : 0;
}

typedef struct vx_group_norm_args {
    vx_tensor out, x, w, b;
    int64_t groups;
    float eps;
    bool silu;
} vx_group_norm_args;

typedef struct vx_fade_args {
    vx_tensor out, a, b;
    int axis;
} vx_fade_args;

typedef struct vx_clamp_args {
    vx_tensor out, x;
    float lo, hi;
} vx_clamp_args;

typedef struct vx_to_u8_args {
    vx_tensor out, x;
} vx_to_u8_args;

// One per back end. Operators and the first group are required; NULL among the scratch functions means "takes none".
struct vx_ops {
    void (*destroy)(vx_device *dev); // frees dev itself
    const char *(*isa)(const vx_device *dev);
    int (*threads)(const vx_device *dev);
    vx_status (*memory_alloc)(vx_device *dev, void **out, size_t bytes); // zeroed, aligned to a page
    void (*memory_free)(vx_device *dev, void *p, size_t bytes);
    vx_status (*reserve)(vx_device *dev, size_t scratch_bytes);
    void (*release)(vx_device *dev);
    vx_status (*upload)(vx_device *dev, vx_tensor to, const void *from);
    vx_status (*download)(vx_device *dev, void *to, vx_tensor from);
    vx_status (*sync)(vx_device *dev);

#define VX_OPS_MEMBER(op) vx_status (*op)(vx_device * dev, const vx_##op##_args *args);
    VX_OPERATORS(VX_OPS_MEMBER)
#undef VX_OPS_MEMBER

    // Bytes of scratch that the operator will ask for; looks at shapes, formats and strides only, never at data.
#define VX_OPS_SCRATCH(op) size_t (*op##_scratch)(const vx_device *dev, const vx_##op##_args *args);
    VX_SCRATCH_OPERATORS(VX_OPS_SCRATCH)
#undef VX_OPS_SCRATCH

    // Of devices with memory of their own; all or none. See device.h.
    vx_status (*weight_budget)(vx_device *dev, uint64_t bytes);
    vx_status (*prefetch)(vx_device *dev, vx_tensor weight);
    void (*forget)(vx_device *dev, const void *begin, size_t bytes);
    vx_weight_stats (*weights)(const vx_device *dev);
    void (*trim)(vx_device *dev);
    vx_status (*made_up)(vx_device *dev, uint64_t seed);
    vx_device_memory (*memory)(const vx_device *dev);
    void (*memory_reset)(vx_device *dev);
    void (*shed)(vx_device *dev);
    // Of devices that record; all or none.
    vx_status (*record)(vx_device *dev, vx_recording **slot, const void *identity, size_t bytes, bool *replayed);
    vx_status (*record_end)(vx_device *dev, vx_recording **slot, vx_status inside);
    void (*record_free)(vx_device *dev, vx_recording **slot);
    void (*graphs)(vx_device *dev, bool on);
};

struct vx_device {
    const struct vx_ops *ops;
    const char *name;          // "cpu", "plan", "trace"
    bool computes;             // tensors must have data
    bool far;                  // its memory cannot be read by the host
    bool has_parts, parts;     // products by parts: can they be had, are they wanted
    const volatile int *watch; // borrowed; NULL: nobody cancels
};

vx_status vx_device_born(const vx_device *dev); // VX_ERR_INTERNAL if the table has a gap

#endif
