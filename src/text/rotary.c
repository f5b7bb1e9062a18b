// Angles reach thousands of radians, so the sine must reduce its argument fully: libm's f64 functions do, and a table of a
// request costs them a few milliseconds on the host.
#include "text/rotary.h"

#include <math.h>

#include "base/alloc.h"
#include "base/checked.h"

int vx_rotary_axis(const int mrope_section[3], int64_t i)
{
    if (i % 3 == 1 && i < 3 * (int64_t)mrope_section[1]) return 1;
    if (i % 3 == 2 && i < 3 * (int64_t)mrope_section[2]) return 2;
    return 0;
}

static void store(void *table, vx_dtype act, int64_t i, float x)
{
    if (act == VX_BF16) ((uint16_t *)table)[i] = vx_f32_to_bf16(x);
    else ((float *)table)[i] = x;
}

// The exponent is an f32 quotient in the reference, and so is the reciprocal of an f32 power.
static float inverse_frequency(const vx_language_config *c, int64_t i)
{
    float exponent = (float)(2 * i) / (float)c->head_dim;
    return 1.0f / (float)pow(c->rope_theta, (double)exponent);
}

static void fill(void *cos_table, void *sin_table, vx_dtype act, int64_t rows, const vx_language_config *c,
                 const int64_t *positions)
{
    int64_t pairs = c->head_dim / 2;
    for (int64_t i = 0; i < pairs; i++) {
        float inverse = inverse_frequency(c, i);
        int axis = vx_rotary_axis(c->mrope_section, i);
        for (int64_t row = 0; row < rows; row++) {
            float angle = (float)(positions ? positions[axis * rows + row] : row) * inverse;
            store(cos_table, act, row * pairs + i, (float)cos((double)angle));
            store(sin_table, act, row * pairs + i, (float)sin((double)angle));
        }
    }
}

vx_status vx_rotary_upload(vx_device *dev, vx_tensor cos, vx_tensor sin, const vx_language_config *config,
                           const int64_t *positions)
{
    size_t bytes = vx_tensor_bytes(cos), both;
    if (!vx_mul_size(bytes, 2, &both)) return vx_fail(VX_ERR_MEMORY, "a rotary table is too large");
    char *host = vx_alloc(both);
    VX_NEED_MEMORY(host, "rotary tables");
    fill(host, host + bytes, cos.dtype, cos.shape[0], config, positions);
    vx_status s = vx_upload(dev, cos, host);
    if (s.code == VX_OK) s = vx_upload(dev, sin, host + bytes);
    vx_free(host);
    return s;
}
