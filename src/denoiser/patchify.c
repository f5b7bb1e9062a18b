// Latents and their rows are two orders of the same numbers, so both ways are one strided copy (specification 1.2).
#include "denoiser/denoiser.h"

static vx_status mismatch(vx_tensor rows, vx_tensor latent)
{
    char a[96], b[96];
    return vx_fail(VX_ERR_SHAPE, "patchify: rows %s do not hold a latent of %s", vx_shape_text(a, rows),
                   vx_shape_text(b, latent));
}

// Views of both in the order of the rows: video [T, H/2, W/2, channels, 2, 2], audio [2, A, channels].
static vx_status in_row_order(vx_tensor *rows, vx_tensor *latent)
{
    const vx_tensor r = *rows, l = *latent;
    if (r.rank == 2 && l.rank == 4 && l.shape[2] % 2 == 0 && l.shape[3] % 2 == 0 && r.shape[1] == 4 * l.shape[0] &&
        r.shape[0] == l.shape[1] * (l.shape[2] / 2) * (l.shape[3] / 2)) {
        vx_tensor cells = vx_tensor_split(vx_tensor_split(l, 2, 2), 4, 2);
        *latent = vx_tensor_permute(cells, (const int[]){ 1, 2, 4, 0, 3, 5 });
        vx_tensor grid = vx_tensor_split(vx_tensor_split(r, 0, l.shape[2] / 2 * (l.shape[3] / 2)), 1, l.shape[3] / 2);
        *rows = vx_tensor_split(vx_tensor_split(grid, 3, 4), 4, 2);
        return vx_ok();
    }
    if (r.rank == 2 && l.rank == 3 && l.shape[0] == 2 && r.shape[1] == l.shape[1] && r.shape[0] == 2 * l.shape[2]) {
        *latent = vx_tensor_permute(l, (const int[]){ 0, 2, 1 });
        *rows = vx_tensor_split(r, 0, l.shape[2]);
        return vx_ok();
    }
    return mismatch(r, l);
}

vx_status vx_patchify(vx_device *dev, vx_tensor rows, vx_tensor latent)
{
    VX_TRY(in_row_order(&rows, &latent));
    return vx_copy(dev, rows, latent);
}

vx_status vx_unpatchify(vx_device *dev, vx_tensor latent, vx_tensor rows)
{
    VX_TRY(in_row_order(&rows, &latent));
    return vx_copy(dev, latent, rows);
}
