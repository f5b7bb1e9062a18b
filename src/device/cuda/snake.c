// vx_snake_alias_free: arguments to vx_k_snake.
#include "device/cuda/kernels/snake.h"
#include "device/cuda/cuda.h"

// Numbers of a file, on the device.
static vx_status place(vx_cuda *cuda, vx_tensor t, const float **data, int64_t *stride)
{
    VX_TRY(vx_cuda_resident(cuda, &t, false));
    *data = vx_f32_of(t);
    *stride = t.stride[0];
    return vx_ok();
}

size_t vx_cuda_snake_alias_free_scratch(const vx_device *dev, const vx_snake_alias_free_args *args)
{
    (void)dev, (void)args;
    return 0;
}

vx_status vx_cuda_snake_alias_free(vx_device *dev, const vx_snake_alias_free_args *args)
{
    vx_cuda *cuda = vx_cuda_of(dev);
    if (vx_tensor_count(args->x) > INT32_MAX)
        return vx_fail(VX_ERR_SHAPE, "vx_snake_alias_free: %lld numbers in one tensor, the CUDA device takes up to %d",
                       (long long)vx_tensor_count(args->x), INT32_MAX);
    vx_k_snake s = {
        .out = vx_f32_of(args->out),
        .x = vx_f32_of(args->x),
        .out_stride = args->out.stride[0],
        .x_stride = args->x.stride[0],
        .out_line = args->out.stride[1],
        .x_line = args->x.stride[1],
        .channels = (int)args->x.shape[0],
        .lines = (int)args->x.shape[1],
        .length = (int)args->x.shape[2],
    };
    VX_TRY(place(cuda, args->alpha, &s.alpha, &s.alpha_stride));
    VX_TRY(place(cuda, args->beta, &s.beta, &s.beta_stride));
    VX_TRY(place(cuda, args->up, &s.up, &s.up_stride));
    VX_TRY(place(cuda, args->down, &s.down, &s.down_stride));
    return vx_cuda_status(vx_k_snake_alias_free(&s, cuda->stream), "vx_snake_alias_free");
}
