#!/usr/bin/env python3
"""make_ops_vectors.py OUT: PyTorch's eager results of the element-wise and row operators, for tests/device.

Written with torch 2.15.0 (CPU): tests/data/ops.safetensors. Inputs hold signed zeros, subnormals and large values; a
name ends in .y or .out for a result. All random numbers come from one seeded generator.
"""
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.set_grad_enabled(False)
bf16 = torch.bfloat16
gen = torch.Generator().manual_seed(20260829)
ROWS, DIM, FFN, HEADS, HEAD_DIM = 29, 192, 320, 2, 128
t = {}


def normal(*shape, scale=1.0):
    return torch.randn(*shape, generator=gen) * scale


def hard(*shape, scale=1.0):
    """bf16 with a start that trips rounding, sign and range."""
    x = normal(*shape, scale=scale).to(bf16)
    x.view(-1)[:6] = torch.tensor([0.0, -0.0, 1e-39, -3e38, 65504.0, 2.0**-20]).to(bf16)
    return x


def norms():
    x, w, b = normal(ROWS, DIM, scale=3).to(bf16), (1 + normal(DIM, scale=0.2)).to(bf16), normal(DIM).to(bf16)
    t["norm.x"], t["norm.weight"], t["norm.bias"] = x, w, b
    t["norm.rms.y"] = F.rms_norm(x, (DIM,), w, 1e-5)
    h = x.float()  # the language model's: rounded before the weight, and after
    t["norm.rms_twice.y"] = w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(bf16)
    t["norm.layer.y"] = F.layer_norm(x, (DIM,), w, b, 1e-6)
    t["norm.f32.rms.y"] = F.rms_norm(x.float(), (DIM,), w.float(), 1e-5)
    t["norm.f32.layer.y"] = F.layer_norm(x.float(), (DIM,), w.float(), b.float(), 1e-6)
    x, w = normal(4, 5376, scale=2).to(bf16), (1 + normal(5376, scale=0.2)).to(bf16)
    t["wide.x"], t["wide.weight"], t["wide.y"] = x, w, F.rms_norm(x, (5376,), w, 1e-5)


def elementwise():
    row = torch.arange(ROWS) % 3
    n, scale, shift = hard(ROWS, DIM), hard(3, DIM, scale=0.5), hard(3, DIM)
    t["row"] = row.to(torch.int32)
    t["modulate.x"], t["modulate.scale"], t["modulate.shift"] = n, scale, shift
    t["modulate.y"] = n * (1 + scale[row]) + shift[row]
    x, y, gate = hard(ROWS, DIM), hard(ROWS, DIM), hard(3, DIM)
    t["gate_add.x"], t["gate_add.y"], t["gate_add.gate"] = x, y, gate
    t["gate_add.out"], t["gate_add.first_row.out"] = x + gate[row] * y, x + gate[0] * y
    t["add.out"] = x + y
    u = hard(ROWS, 2 * FFN, scale=4)
    first, second = u.chunk(2, -1)
    t["swiglu.u"], t["swiglu.value_first.y"], t["swiglu.gate_first.y"] = u, first * F.silu(second), F.silu(first) * second
    e = normal(ROWS, 112, scale=4)
    t["silu.x"], t["silu.bf16.y"] = e, F.silu(e).to(bf16)
    t["copy.bf16.y"], t["copy.f16.y"] = e.to(bf16), e.to(torch.float16)


def rope(q, cos, sin, pairs):
    h = q[..., : 2 * pairs]
    turned = torch.cat([-h[..., pairs:], h[..., :pairs]], -1)
    c, s = torch.cat([cos, cos], -1)[:, None], torch.cat([sin, sin], -1)[:, None]
    return torch.cat([h * c + turned * s, q[..., 2 * pairs :]], -1)


def attention_inputs():
    q, w = hard(ROWS, HEADS, HEAD_DIM), (1 + normal(HEAD_DIM, scale=0.2)).to(bf16)
    angle = torch.rand(ROWS, 48, generator=gen) * 3000
    cos, sin = angle.cos().to(bf16), angle.sin().to(bf16)
    t["rope.q"], t["rope.cos"], t["rope.sin"], t["rope.y"] = q, cos, sin, rope(q, cos, sin, 48)
    q = normal(ROWS, HEADS, HEAD_DIM, scale=2).to(bf16)
    n = F.rms_norm(q, (HEAD_DIM,), w, 1e-6)
    t["qk.q"], t["qk.weight"], t["qk.norm.y"], t["qk.y"] = q, w, n, rope(n, cos, sin, 48)


norms()
elementwise()
attention_inputs()
save_file({k: v.contiguous().clone() for k, v in t.items()}, sys.argv[1],
          metadata={"torch": torch.__version__, "script": "tools/make_ops_vectors.py"})
