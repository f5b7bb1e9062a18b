// Lines over strided tensors.
#include "device/walk.h"

static int64_t magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

static void swap_axes(vx_walk *w, int i, int j)
{
    const int64_t shape = w->shape[i];
    w->shape[i] = w->shape[j];
    w->shape[j] = shape;
    for (int t = 0; t < w->tensors; t++) {
        const int64_t stride = w->stride[t][i];
        w->stride[t][i] = w->stride[t][j];
        w->stride[t][j] = stride;
    }
}

static bool one_piece(const vx_walk *w, int axis)
{
    for (int t = 0; t < w->tensors; t++)
        if (w->stride[t][axis] != w->stride[t][axis + 1] * w->shape[axis + 1]) return false;
    return true;
}

static void merge(vx_walk *w, int axis)
{
    w->shape[axis] *= w->shape[axis + 1];
    for (int t = 0; t < w->tensors; t++) w->stride[t][axis] = w->stride[t][axis + 1];
    w->rank--;
    for (int i = axis + 1; i < w->rank; i++) {
        w->shape[i] = w->shape[i + 1];
        for (int t = 0; t < w->tensors; t++) w->stride[t][i] = w->stride[t][i + 1];
    }
}

vx_walk vx_walk_of(int tensors, const vx_tensor *t)
{
    vx_walk w = { .tensors = tensors };
    for (int i = 0; i < t[0].rank; i++) {
        if (t[0].shape[i] == 1) continue;
        w.shape[w.rank] = t[0].shape[i];
        for (int k = 0; k < tensors; k++) w.stride[k][w.rank] = t[k].stride[i];
        w.rank++;
    }
    if (w.rank == 0) {
        w.shape[0] = 1;
        w.rank = 1;
    }
    for (int i = 1; i < w.rank; i++)
        for (int j = i; j > 0 && magnitude(w.stride[0][j - 1]) < magnitude(w.stride[0][j]); j--) swap_axes(&w, j - 1, j);
    for (int i = w.rank - 2; i >= 0; i--)
        if (one_piece(&w, i)) merge(&w, i);
    return w;
}

vx_tensor vx_along_axis(vx_tensor t, vx_tensor vector, int axis)
{
    vx_tensor along = t;
    along.dtype = vector.dtype;
    along.data = vector.data;
    for (int i = 0; i < t.rank; i++) along.stride[i] = i == axis ? vector.stride[0] : 0;
    return along;
}
