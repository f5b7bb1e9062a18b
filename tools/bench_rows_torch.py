#!/usr/bin/env python3
"""bench_rows_torch.py [THREADS] [RUNS]: PyTorch's eager times for the shapes of tests/bench/bench_rows.c, least of some runs."""
import sys
import time

import torch
import torch.nn.functional as F

torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter  # one thread: the others' work does not count
RUNS = int(sys.argv[2]) if len(sys.argv) > 2 else 15
torch.set_grad_enabled(False)
ROWS, DIM, FFN, HEADS, HEAD_DIM, PAIRS = 2850, 1024, 2816, 8, 128, 48
b = torch.bfloat16
x, y, u = torch.randn(ROWS, DIM).to(b), torch.randn(ROWS, DIM).to(b), torch.randn(ROWS, 2 * FFN).to(b)
w, table, row = torch.randn(DIM).to(b), torch.randn(3, DIM).to(b), torch.arange(ROWS) * 3 // ROWS
cos = torch.randn(ROWS, PAIRS).to(b)
f, g = torch.randn(ROWS, DIM), torch.randn(ROWS, DIM)
ramp = (torch.arange(ROWS) / ROWS)[:, None]


def rope(q):
    h = q[..., : 2 * PAIRS]
    turned = torch.cat([-h[..., PAIRS:], h[..., :PAIRS]], -1)
    c = torch.cat([cos, cos], -1)[:, None]
    return torch.cat([h * c + turned * c, q[..., 2 * PAIRS :]], -1)


def heads(t):
    return rope(F.rms_norm(t.view(ROWS, HEADS, HEAD_DIM), (HEAD_DIM,), w[:HEAD_DIM], 1e-6))


def swiglu():
    gate, value = u.chunk(2, -1)
    return F.silu(gate) * value


cases = {
    "rms_norm": lambda: F.rms_norm(x, (DIM,), w, 1e-5),
    "rms_norm_modulate": lambda: F.rms_norm(x, (DIM,), w, 1e-5) * (1 + table[row]) + table[row],
    "layer_norm": lambda: F.layer_norm(x, (DIM,), w, w, 1e-5),
    "rms_norm f32": lambda: F.rms_norm(f, (DIM,), w.float(), 1e-5),
    "layer_norm f32": lambda: F.layer_norm(f, (DIM,), w.float(), w.float(), 1e-5),
    "add": lambda: x.add_(y),
    "gate_add": lambda: x + table[row] * y,
    "swiglu": swiglu,
    "silu": lambda: F.silu(x),
    "qk_norm_rope": lambda: (heads(x), heads(y)),
    "copy bf16": lambda: y.copy_(x),
    "copy bf16 to f32": lambda: f.copy_(x),
    "copy f32 to bf16": lambda: x.copy_(f),
    "copy f32 transposed": lambda: f.view(DIM, ROWS).copy_(g.t()),
    "fade f32": lambda: f * (1 - ramp) + g * ramp,
    "clamp f32": lambda: torch.clamp(f, -1, 1),
    "blend f32": lambda: 0.5 * f + 0.25 * g,
}
for name, run in cases.items():
    least = 1e9
    for _ in range(RUNS):
        x.copy_(torch.randn(1)[0]) if name == "add" else None
        begin = clock()
        run()
        least = min(least, clock() - begin)
    print(f"{name:24s} {least * 1e3:8.3f} ms")
