#!/usr/bin/env python3
"""make_quant_vectors.py OUT: quantised matrices and what the formats' own packages decode them to, for tests/tensor.

Written with comfy-kitchen 0.2.40's eager back end, gguf 0.19.0 and torch 2.15.0 (CPU): tests/data/quant.safetensors.
CASE.values and the companions are the stored bytes, CASE.f32 and CASE.bf16 the package's results. Random bytes stand for weights
wherever any bytes are legal; scales of several magnitudes. Where our definition differs from the package's (NVFP4 to bf16: one
rounding; rotation: sums of integers before the scale), the result here is of our definition, computed in float64 where that is exact.
"""
import sys

import gguf
import numpy as np
import torch
from comfy_kitchen.backends.eager import convrot_w4a4, quantization, w4a8_int8
from safetensors.torch import save_file

torch.set_grad_enabled(False)
gen = torch.Generator().manual_seed(20261129)
t = {}


def data(rows, columns):
    return torch.randint(0, 256, (rows, columns), generator=gen, dtype=torch.int32).to(torch.uint8)


def scales(*shape):
    return torch.exp(torch.randn(*shape, generator=gen)) * 0.01


def put(name, f32, bf16, **stored):
    for key, value in stored.items():
        t[f"{name}.{key}"] = value.contiguous().clone()
    t[f"{name}.f32"], t[f"{name}.bf16"] = f32.float().clone(), bf16.to(torch.bfloat16).clone()


def fp8():
    for name, dtype, nan in (("e4m3", torch.float8_e4m3fn, (0x7F,)), ("e5m2", torch.float8_e5m2, (0x7C, 0x7D, 0x7E, 0x7F))):
        b = data(3, 100)
        for code in nan:
            b[(b & 0x7F) == code] = 0x33
        w, s = b.view(dtype), scales(1)
        dq = quantization.dequantize_per_tensor_fp8
        put(f"fp8_{name}", dq(w, s, torch.float32), dq(w, s, torch.bfloat16), values=w, scale=s)
    b = data(4, 96)
    b[(b & 0x7F) == 0x7F] = 0x11
    w, s = b.view(torch.float8_e4m3fn), scales(4)
    full = w.float() * s[:, None]  # LightX2V's: w * scale[n], a scale for each row
    put("fp8_rows", full, full, values=w, scale=s)


def hadamard(group):
    return quantization._build_hadamard(group, dtype=torch.float64)


def unrotate(q, s, group):
    """(q H) * s: the sum is exact in float64, the scale rounds once."""
    n, k = q.shape
    return (q.double().reshape(n, -1, group) @ hadamard(group)).reshape(n, k).float() * s.float()


def int8():
    q = data(5, 96).view(torch.int8)
    for name, s in (("int8", scales(1)), ("int8_rows", scales(5))):
        by = s if len(s) == 1 else s[:, None]
        put(name, quantization.dequantize_int8_simple(q, by), quantization.dequantize_int8_simple_dtype(q, by, 2), values=q, scale=s)
    for group, k in ((4, 64), (16, 80), (64, 192), (256, 768)):
        q, s = data(3, k).view(torch.int8), scales(3)
        ours, theirs = unrotate(q, s[:, None], group), quantization.dequantize_int8_convrot_weight(q, s[:, None], group)
        # The package multiplies first and adds in the order of its matrix product.
        assert (ours - theirs).abs().max() <= 2e-6 * theirs.abs().max()
        put(f"int8_rotated_{group}", ours, ours, values=q, scale=s)


def int4():
    for group, k in ((64, 128), (256, 512)):
        q, s = data(3, k // 2).view(torch.int8), scales(3)
        ints = convrot_w4a4._unpack_int4_row_major(q)
        ours, theirs = unrotate(ints, s[:, None], group), convrot_w4a4.dequantize_convrot_w4a4_weight(q, s, group)
        assert (ours - theirs).abs().max() <= 2e-6 * theirs.abs().max()
        put(f"int4_{group}", ours, ours, values=q, scale=s)


def w4a8():
    n, k = 3, 512
    q, s_rel, s = data(n, k // 2).view(torch.int8), (torch.rand(n, k // 16, generator=gen) * 120 + 4).to(torch.float8_e4m3fn), scales(n)
    book = torch.sort(torch.rand(16, generator=gen) * 2 - 1).values
    correction = torch.randn(k // 16, n, generator=gen) * 0.01
    for name, rel, code, corr in (("w4a8", s_rel, None, None), ("w4a8_book", s_rel, book, None), ("w4a8_f32", s_rel.float() * 0.1, book, None),
                                  ("w4a8_correction", s_rel, book, correction)):
        ints = w4a8_int8._dequant_int4_grouped_to_int8(q, rel, code, 16)
        theirs = w4a8_int8.dequantize_w4a8_int8_weight(q, rel, s, code, corr, 16, 256, torch.float32)
        stored = dict(values=q, block_scale=rel, scale=s)
        if code is not None:
            stored["codebook"] = code
        if corr is not None:
            stored["correction"] = corr
            put(name, theirs, theirs, **stored)  # compared within a few steps: the butterfly has an order of its own
            continue
        ours = unrotate(ints, s[:, None], 256)
        assert (ours - theirs).abs().max() <= 2e-6 * theirs.abs().max()
        put(name, ours, ours, **stored)


def nvfp4():
    w = torch.randn(144, 80, generator=gen)
    w[3] = 0
    s = (w.abs().max() / 2688).reshape(())
    q, blocks = quantization.quantize_nvfp4(w, s)
    f32 = quantization.dequantize_nvfp4(q, s, blocks, torch.float32)[:144, :80]
    put("nvfp4", f32, f32, values=q, block_scale=blocks, scale=s.reshape(1))  # bf16: one rounding, as the package's CUDA kernel


def mxfp8():
    w = torch.randn(64, 96, generator=gen) * torch.exp(torch.randn(64, 1, generator=gen) * 8)
    w[5] = 0
    q, blocks = quantization.quantize_mxfp8(w)
    dq = quantization.dequantize_mxfp8
    put("mxfp8", dq(q, blocks, torch.float32), dq(q, blocks, torch.bfloat16), values=q, block_scale=blocks.view(torch.uint8))


def ggml():
    for name in "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K".split():
        kind = gguf.GGMLQuantizationType[name]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        raw = data(3, 512 // block * size).numpy()
        halves = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,)}
        for at in halves.get(name, (0,)):  # scales of any sign; no NaN among them
            d = (torch.randn(3, 512 // block, generator=gen) * 0.02).to(torch.float16).numpy().view(np.uint8).reshape(3, -1, 2)
            raw.reshape(3, -1, size)[:, :, at : at + 2] = d
        f32 = torch.from_numpy(gguf.quants.dequantize(raw, kind).reshape(3, 512).astype(np.float32))
        put(name, f32, f32, values=torch.from_numpy(raw))


for make in (fp8, int8, int4, w4a8, nvfp4, mxfp8, ggml):
    make()
save_file(t, sys.argv[1])
