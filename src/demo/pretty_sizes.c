// Dimensions of the pretty kind, and the parts that are not made yet.
#include "demo/pretty.h"

static vx_status unavailable(void)
{
    return vx_fail(VX_ERR_UNAVAILABLE, "only the random demo model can be written in this version");
}

void vx_demo_sizes_pretty(vx_demo_sizes *sizes)
{
    vx_demo_sizes_random(sizes, 1);
}

vx_status vx_demo_pretty_transformer(vx_demo_tensors *set, const vx_demo_sizes *sizes, uint64_t seed)
{
    (void)set, (void)sizes, (void)seed;
    return unavailable();
}

vx_status vx_demo_pretty_language(vx_demo_tensors *set, const vx_demo_sizes *sizes, uint64_t seed)
{
    (void)set, (void)sizes, (void)seed;
    return unavailable();
}

vx_status vx_demo_pretty_video(vx_demo_tensors *set, const vx_demo_sizes *sizes, uint64_t seed)
{
    (void)set, (void)sizes, (void)seed;
    return unavailable();
}

vx_status vx_demo_pretty_audio(vx_demo_tensors *set, const vx_demo_sizes *sizes, uint64_t seed)
{
    (void)set, (void)sizes, (void)seed;
    return unavailable();
}
