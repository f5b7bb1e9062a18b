// The constructed weights: what each network of the pretty kind is made to do is told above its function.
#ifndef VX_DEMO_PRETTY_H
#define VX_DEMO_PRETTY_H

#include "demo/demo.h"

void vx_demo_sizes_pretty(vx_demo_sizes *sizes); // vocabulary is left to the tokenizer

vx_status vx_demo_pretty_transformer(vx_demo_tensors *set, const vx_demo_sizes *sizes, uint64_t seed);
vx_status vx_demo_pretty_language(vx_demo_tensors *set, const vx_demo_sizes *sizes, uint64_t seed);
vx_status vx_demo_pretty_video(vx_demo_tensors *set, const vx_demo_sizes *sizes, uint64_t seed);
vx_status vx_demo_pretty_audio(vx_demo_tensors *set, const vx_demo_sizes *sizes, uint64_t seed);

#endif
