// Views: arithmetic on shapes and strides. Whatever cannot be expressed becomes a tensor of rank 0.
#include "tensor/tensor.h"

#include "base/checked.h"
#include <stdio.h>

static const vx_tensor no_tensor = { .dtype = VX_DTYPE_NONE };

vx_tensor vx_tensor_make(void *data, vx_dtype dtype, int rank, const int64_t *shape)
{
    if (rank < 1 || rank > VX_MAX_RANK || vx_dtype_bits(dtype) == 0) return no_tensor;
    vx_tensor t = { .dtype = dtype, .rank = rank, .data = data };
    // Times 64 at the start: then neither elements, bits nor any stride can overflow later. Zeros are counted as ones here,
    // so that [0, huge, huge] is refused whatever the order of its dimensions.
    int64_t room = 64;
    for (int i = 0; i < rank; i++)
        if (shape[i] < 0 || !vx_mul_i64(room, vx_max_i64(shape[i], 1), &room)) return no_tensor;
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        t.shape[i] = shape[i];
        t.stride[i] = stride;
        stride *= shape[i];
    }
    return t;
}

int64_t vx_tensor_count(vx_tensor t)
{
    if (t.rank == 0) return 0;
    int64_t count = 1;
    for (int i = 0; i < t.rank; i++) count *= t.shape[i];
    return count;
}

size_t vx_tensor_bytes(vx_tensor t)
{
    return ((size_t)vx_tensor_count(t) * (size_t)vx_dtype_bits(t.dtype) + 7) / 8;
}

bool vx_tensor_contiguous(vx_tensor t)
{
    int64_t want = 1;
    for (int i = t.rank - 1; i >= 0; i--) {
        if (t.shape[i] == 0) return true;
        if (t.shape[i] != 1 && t.stride[i] != want) return false; // the stride of a single element is never used
        want *= t.shape[i];
    }
    return true;
}

bool vx_same_shape(vx_tensor a, vx_tensor b)
{
    if (a.rank != b.rank) return false;
    for (int i = 0; i < a.rank; i++)
        if (a.shape[i] != b.shape[i]) return false;
    return true;
}

static bool has_axis(vx_tensor t, int axis)
{
    return axis >= 0 && axis < t.rank;
}

// Moves the start by so many elements. False where that is inside a byte (e2m1).
static bool advance(vx_tensor *t, int64_t elements)
{
    const int64_t bits = elements * vx_dtype_bits(t->dtype);
    if (bits % 8 != 0) return false;
    if (t->data) t->data = (char *)t->data + bits / 8;
    return true;
}

static void remove_axis(vx_tensor *t, int axis)
{
    t->rank--;
    for (int i = axis; i < t->rank; i++) {
        t->shape[i] = t->shape[i + 1];
        t->stride[i] = t->stride[i + 1];
    }
    t->shape[t->rank] = t->stride[t->rank] = 0;
}

vx_tensor vx_tensor_slice(vx_tensor t, int axis, int64_t begin, int64_t end)
{
    if (!has_axis(t, axis) || begin < 0 || begin > end || end > t.shape[axis]) return no_tensor;
    // An empty slice keeps the start: at the end of a strided axis it would point past the owner's memory.
    if (begin < end && !advance(&t, begin * t.stride[axis])) return no_tensor;
    t.shape[axis] = end - begin;
    return t;
}

vx_tensor vx_tensor_row(vx_tensor t, int64_t i)
{
    if (t.rank < 2 || i < 0 || i >= t.shape[0] || !advance(&t, i * t.stride[0])) return no_tensor;
    remove_axis(&t, 0);
    return t;
}

vx_tensor vx_tensor_split(vx_tensor t, int axis, int64_t inner)
{
    if (!has_axis(t, axis) || t.rank == VX_MAX_RANK || inner <= 0 || t.shape[axis] % inner != 0) return no_tensor;
    for (int i = t.rank; i > axis + 1; i--) {
        t.shape[i] = t.shape[i - 1];
        t.stride[i] = t.stride[i - 1];
    }
    t.rank++;
    t.shape[axis + 1] = inner;
    t.stride[axis + 1] = t.stride[axis];
    t.shape[axis] /= inner;
    t.stride[axis] *= inner;
    return t;
}

vx_tensor vx_tensor_merge(vx_tensor t, int axis)
{
    if (!has_axis(t, axis) || axis + 1 >= t.rank) return no_tensor;
    const int64_t outer = t.shape[axis], inner = t.shape[axis + 1];
    const bool joined = outer <= 1 || inner == 0 || t.stride[axis] == inner * t.stride[axis + 1];
    if (!joined && inner != 1) return no_tensor;
    if (joined) t.stride[axis] = t.stride[axis + 1];
    t.shape[axis] = outer * inner;
    remove_axis(&t, axis + 1);
    return t;
}

vx_tensor vx_tensor_permute(vx_tensor t, const int *axes)
{
    vx_tensor out = t;
    unsigned seen = 0;
    for (int i = 0; i < t.rank; i++) {
        if (!has_axis(t, axes[i]) || (seen >> axes[i] & 1u)) return no_tensor;
        seen |= 1u << axes[i];
        out.shape[i] = t.shape[axes[i]];
        out.stride[i] = t.stride[axes[i]];
    }
    return out;
}

vx_tensor vx_tensor_reshape(vx_tensor t, int rank, const int64_t *shape)
{
    const vx_tensor out = vx_tensor_make(t.data, t.dtype, rank, shape);
    if (t.rank == 0 || !vx_tensor_contiguous(t) || vx_tensor_count(out) != vx_tensor_count(t)) return no_tensor;
    return out;
}

const char *vx_shape_text(char out[96], vx_tensor t)
{
    size_t used = (size_t)snprintf(out, 96, "[");
    for (int i = 0; i < t.rank && used < 96; i++)
        used += (size_t)snprintf(out + used, 96 - used, "%s%lld", i ? "," : "", (long long)t.shape[i]);
    if (used < 96) snprintf(out + used, 96 - used, "]");
    return out;
}
