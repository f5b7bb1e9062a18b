// What an operator does, from its arguments alone: for the plan's counts and the trace's rates.
//
// flop counts the multiply-adds of products, attention and convolutions, two each; other operators are bound by memory and
// count 0. bytes counts each operand once, read or written (in place: both); a table counts the rows there are, except the
// embedding's, which counts the rows read.
#ifndef VX_DEVICE_COST_H
#define VX_DEVICE_COST_H

#include "device/backend.h"

typedef struct vx_cost {
    double flop, bytes, weight_bytes; // weight_bytes are among bytes
    vx_tensor out[2];                 // what was written; rank 0: nothing
} vx_cost;

#define VX_COST_PROTOTYPE(op) vx_cost vx_cost_##op(const vx_##op##_args *args);
VX_OPERATORS(VX_COST_PROTOTYPE)
#undef VX_COST_PROTOTYPE

#endif
