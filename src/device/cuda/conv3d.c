// vx_conv3d: arguments to vx_k_conv.
#include "device/cuda/conv.h"

#include "base/checked.h"

static vx_k_conv volume_of(const vx_conv3d_args *a)
{
    vx_k_conv c = {
        .x = vx_f32_of(a->x),
        .x_channel = a->x.stride[0],
        .x_frame = a->x.stride[1],
        .x_row = a->x.stride[2],
        .ci = (int)a->x.shape[0],
        .frames = (int)a->x.shape[1],
        .rows = (int)a->x.shape[2],
        .columns = (int)a->x.shape[3],
        .out = vx_f32_of(a->out),
        .out_channel = a->out.stride[0],
        .out_frame = a->out.stride[1],
        .out_row = a->out.stride[2],
        .co = (int)a->out.shape[0],
        .out_frames = (int)a->out.shape[1],
        .out_rows = (int)a->out.shape[2],
        .out_columns = (int)a->out.shape[3],
        .dilation = 1,
        .reflect = a->reflect,
        .first_tap = (int)vx_conv3d_first_tap(a, a->out.shape[1] - 1), // of the last frame: the least
    };
    for (int i = 0; i < 3; i++) {
        c.taps[i] = (int)a->w.shape[2 + i];
        c.stride[i] = (int)a->stride[i];
        c.pad[i] = (int)a->pad[i];
    }
    if (a->residual.rank) {
        c.residual = vx_f32_of(a->residual);
        c.residual_channel = a->residual.stride[0];
        c.residual_frame = a->residual.stride[1];
        c.residual_row = a->residual.stride[2];
    }
    return c;
}

size_t vx_cuda_conv3d_scratch(const vx_device *dev, const vx_conv3d_args *args)
{
    const vx_k_conv c = volume_of(args);
    return vx_cuda_conv_scratch(dev, &c);
}

vx_status vx_cuda_conv3d(vx_device *dev, const vx_conv3d_args *args)
{
    vx_k_conv c = volume_of(args);
    VX_TRY(vx_cuda_conv_check("vx_conv3d", (const vx_tensor[]){ args->out, args->x, args->w }, 3));
    VX_TRY(vx_cuda_conv_weights(vx_cuda_of(dev), &c, args->w, args->bias));
    return vx_cuda_conv_run(vx_cuda_of(dev), &c, "vx_conv3d");
}
