// Arithmetic on sizes that come from files or requests: false on overflow, result untouched.
#ifndef VX_BASE_CHECKED_H
#define VX_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool vx_mul_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
static inline bool vx_add_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
static inline bool vx_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
static inline int64_t vx_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t vx_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline int64_t vx_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
} // a >= 0, b > 0
static inline size_t vx_align_up(size_t a, size_t to)
{
    return (a + to - 1) & ~(to - 1);
} // to a power of two

#endif
