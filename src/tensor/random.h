// PyTorch's CPU random numbers, bit for bit: Mersenne Twister 19937, normal deviates by Box-Muller as ATen's vectorised
// kernel computes them (denoiser specification 7.2; PyTorch, aten/src/ATen/native/cpu/DistributionTemplates.h).
#ifndef VX_TENSOR_RANDOM_H
#define VX_TENSOR_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct vx_random {
    uint32_t state[624];
    int next;       // index of the next word; 624 = refill
    bool has_spare; // the small-size path keeps the second deviate of a pair
    double spare;
} vx_random;

void vx_random_seed(vx_random *r, uint64_t seed); // torch.Generator().manual_seed(seed): the low 32 bits count
uint32_t vx_random_u32(vx_random *r);
// torch.randn(count): counts below 16 take another path than longer ones, so one call is not two.
void vx_random_normal(vx_random *r, float *out, int64_t count);

#endif
