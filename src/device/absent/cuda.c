// In place of the CUDA back end where the build has none: the same program, which says so.
#include "device/device.h"

bool vx_cuda_built(void)
{
    return false;
}

const char *vx_cuda_attention_used(const vx_device *dev)
{
    (void)dev;
    return "";
}

const char *vx_cuda_product_choice(const vx_device *dev, int i)
{
    (void)dev, (void)i;
    return NULL;
}

int64_t vx_cuda_launches(const vx_device *dev)
{
    (void)dev;
    return 0;
}

static vx_status absent(void)
{
    return vx_fail_remedy(VX_ERR_DEVICE_NONE, "use --device cpu, or build with -DVORTEX_CUDA=ON where CUDA's nvcc is installed",
                          "this build has no CUDA back end");
}

vx_status vx_device_cuda_create(vx_device **out, const vx_cuda_params *params)
{
    (void)params;
    *out = NULL;
    return absent();
}

vx_status vx_cuda_query(vx_cuda_info *out, int ordinal)
{
    *out = (vx_cuda_info){ .ordinal = ordinal };
    return absent();
}
