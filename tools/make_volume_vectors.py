#!/usr/bin/env python3
"""Prints tests/device/conv3d_vectors.h and tests/device/gelu_vectors.h: PyTorch's numbers for the operators of the encoders.

Convolutions: inputs are small multiples of 1/8, so every sum is exact in f32 and no order of adding matters. Padding as in
the video VAE: mirrored rows and columns (all around, or only below and to the right), zero frames in front.
GELU: PyTorch's f32 results and the f64 results rounded to f32.  Usage: make_volume_vectors.py conv3d|gelu
"""
import sys

import torch
import torch.nn.functional as F

# says, ci, co, kt, kh, kw, t, h, w, strides, half
CASES = [
    ("same size", 2, 2, 3, 3, 3, 3, 3, 4, 1, 1, 1, 0),
    ("one frame", 2, 3, 3, 3, 3, 1, 3, 3, 1, 1, 1, 0),
    ("half the size", 2, 2, 3, 3, 3, 3, 4, 6, 1, 2, 2, 1),
    ("half the size and frames", 2, 2, 3, 3, 3, 5, 4, 4, 2, 2, 2, 1),
    ("pointwise", 3, 2, 1, 1, 1, 2, 2, 3, 1, 1, 1, 0),
]


def eighths(seed, *shape):
    n = torch.Size(shape).numel()
    return torch.tensor([((7 * i * i + 3 * i + seed) % 17 - 8) / 8 for i in range(n)], dtype=torch.float32).reshape(shape)


def numbers(t):
    return ", ".join(f"{v:.9g}f" if "." in f"{v:.9g}" or "e" in f"{v:.9g}" else f"{v:.9g}.0f" for v in t.flatten().tolist())


def conv3d():
    rows, most = [], 0
    for says, ci, co, kt, kh, kw, t, h, w, st, sh, sw, half in CASES:
        x = eighths(1, ci, t, h, w)[None]
        if kw > 1:
            x = F.pad(x, (0, 1, 0, 1, 0, 0) if half else (1, 1, 1, 1, 0, 0), mode="reflect")
        x = F.pad(x, (0, 0, 0, 0, kt - 1, 0))
        y = F.conv3d(x, eighths(2, co, ci, kt, kh, kw), eighths(3, co), stride=(st, sh, sw))[0]
        most = max(most, y.numel())
        d = ", ".join(map(str, (ci, co, kt, kh, kw, t, h, w, st, sh, sw, half)))
        out = ", ".join(map(str, y.shape[1:]))
        rows.append(f'    {{ "{says}", {{ {d} }}, {{ {out} }}, {{ {numbers(y)} }} }},')
    x, w, b = eighths(1, 4, 2, 2, 3), eighths(2, 4), eighths(3, 4)
    y = F.group_norm(x.double().transpose(0, 1), 2, w.double(), b.double(), 1e-6).transpose(0, 1)
    norms = [y, F.silu(y)]
    print(f"// tools/make_volume_vectors.py conv3d, PyTorch {torch.__version__}.")
    print(f"enum {{ CONV3D_MOST = {most} }};")
    print("static const struct {\n    const char *says;\n    int64_t d[12], out[3];\n    float y[CONV3D_MOST];\n} conv3d_vectors[] = {")
    print("\n".join(rows) + "\n};")
    print("// In f64, rounded once.\nstatic const float group_norm_vector[2][48] = {")
    print("\n".join(f"    {{ {numbers(n.float())} }}," for n in norms) + "\n};")


def gelu():
    x = torch.tensor([0.0, -0.0, 1e-3, -1e-3, 0.1, -0.1, 0.5, -0.5, 0.88388348, -0.88388348, 1.0, -1.0, 1.25, -1.5, 2.0, -2.0,
                      2.75, -2.75, 3.5, -3.5, 4.5, -4.5, 5.5, -5.5, 7.0, -7.0, 20.0, -20.0, 100.0, -100.0], dtype=torch.float32)
    print(f"// tools/make_volume_vectors.py gelu, PyTorch {torch.__version__}.")
    print(f"enum {{ GELUS = {x.numel()} }};")
    print(f"static const float gelu_x[GELUS] = {{ {numbers(x)} }};")
    for name, form in (("erf", "none"), ("tanh", "tanh")):
        print(f"static const float gelu_{name}[GELUS] = {{ {numbers(F.gelu(x, approximate=form))} }};")


if __name__ == "__main__":
    {"conv3d": conv3d, "gelu": gelu}[sys.argv[1]]()
