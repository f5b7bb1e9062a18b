// Adapters on the weights, from inside: shared by adapt.c and heads.c.
#ifndef VX_DENOISER_ADAPT_H
#define VX_DENOISER_ADAPT_H

#include "denoiser/network.h"

struct vx_denoiser_adapted {
    vx_adapter_memory memory;
    struct {
        vx_weight *at, original;
    } * saved; // weights that were changed
    int saves;
    vx_branch *branch; // of all weights, one after the other
    int branches;
    vx_weight *head[2]; // of video and sound at each evaluation; NULL: no bank
    int evaluations;
};

// The modules that adapters know, as this model has them.
typedef vx_status (*vx_denoiser_module_fn)(void *user, const vx_adapter_target *target, vx_weight *weight);
vx_status vx_denoiser_each_module(vx_denoiser *d, vx_denoiser_module_fn fn, void *user);

// Mixes the heads of every evaluation, if an adapter has a bank. The weights carry their branches already.
vx_status vx_denoiser_mix_heads(vx_denoiser *d, const vx_denoiser_adapt_params *params);

// Numbers of a plain tensor as f32, and back with one rounding.
void vx_denoiser_widen(float *to, vx_tensor from, int64_t first, int64_t count);
void vx_denoiser_round(vx_tensor to, int64_t first, const float *from, int64_t count);

#endif
