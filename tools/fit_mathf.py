#!/usr/bin/env python3
"""Prints the constants of src/tensor/mathf_inline.h and src/tensor/mathf.c.

Polynomials are minimax (Remez exchange) in f64 on Taylor series without cancellation; coefficients are rounded to f32 one
after the other, lowest degree first, and the rest is fitted again after each. Needs numpy and mpmath.
"""
from math import factorial

import mpmath
import numpy as np

mpmath.mp.prec = 400
GRID = 40001


def solve(x, f, w, powers):
    """Minimax fit of w*(f - sum c_i x^p_i) on the grid x by Remez exchange; returns the coefficients."""
    n = len(powers)
    basis = np.stack([x**p for p in powers], 1)
    picks = np.round((1 - np.cos(np.pi * np.arange(n + 1) / n)) / 2 * (len(x) - 1)).astype(int)
    for _ in range(60):
        signs = (-1.0) ** np.arange(n + 1)
        rows = np.concatenate([basis[picks] * w[picks, None], signs[:, None]], 1)
        c = np.linalg.lstsq(rows, f[picks] * w[picks], rcond=None)[0][:n]
        error = w * (f - basis @ c)
        runs, start = [], 0  # the largest error of every run of one sign
        for i in range(1, len(x) + 1):
            if i == len(x) or (error[i] > 0) != (error[start] > 0):
                runs.append(start + int(np.argmax(np.abs(error[start:i]))))
                start = i
        while len(runs) > n + 1:
            runs.pop(0 if abs(error[runs[0]]) < abs(error[runs[-1]]) else -1)
        if len(runs) < n + 1 or list(picks) == runs:
            break
        picks = np.array(runs)
    return c


def fit(name, x, f, w, powers):
    fixed, rest = [], list(powers)
    left = f.copy()
    while rest:
        c = np.float32(solve(x, left, w, rest)[0])
        fixed.append(c)
        left = left - float(c) * x ** rest.pop(0)
    print(f"{name}: " + ", ".join(f"{float(c).hex()}f" for c in fixed), f" weighted error {np.abs(w * left).max():.3g}")


def exact(f, x):
    return np.array([float(f(mpmath.mpf(float(v)))) for v in x])


def series(x, first, step, sign):
    return sum(sign**k * x ** (step * k) / factorial(first + step * k) for k in range(16))


def parts(name, value, count):
    out = []
    for _ in range(count):
        c = np.float32(float(value))
        out.append(f"{float(c).hex()}f")
        value -= mpmath.mpf(float(c))
    print(f"{name}: " + ", ".join(out))


def main():
    r = np.linspace(-np.log(2) / 2 * 1.0001, np.log(2) / 2 * 1.0001, GRID)
    fit("exp: (e^r - 1 - r) / r^2", r, series(r, 2, 1, 1), r * r / np.exp(r), [0, 1, 2, 3, 4])
    r = np.linspace(1e-6, np.pi / 4 * 1.002, GRID)
    fit("sin: (sin r - r) / r^3", r, -series(r, 3, 2, -1), r**3 / np.sin(r), [0, 2, 4])
    fit("cos: (cos r - 1 + r^2/2) / r^4", r, series(r, 4, 2, -1), r**4 / np.cos(r), [0, 2, 4])
    x = np.linspace(1e-3, 0.625, 2001)
    fit("tanh: (tanh x - x) / x^3", x, exact(lambda v: (mpmath.tanh(v) - v) / v**3, x), x**3 / np.tanh(x), [0, 2, 4, 6, 8])
    x = np.linspace(1e-3, 0.875, 2001)
    fit("erf: erf x / x - 1", x, exact(lambda v: mpmath.erf(v) / v - 1, x), x / exact(mpmath.erf, x), [0, 2, 4, 6, 8, 10, 12])
    x = np.linspace(0.875, 4.0, 2001)
    weight = exact(lambda v: mpmath.erfc(v) / mpmath.erf(v), x)
    fit("erf: log(1 - erf x)", x, exact(lambda v: mpmath.log(mpmath.erfc(v)), x), weight, range(7))
    parts("log2(e)", 1 / mpmath.log(2), 1)
    parts("ln 2", mpmath.log(2), 2)
    parts("2/pi", 2 / mpmath.pi, 1)
    parts("pi/2", mpmath.pi / 2, 3)
    digits = int(mpmath.floor(2 / mpmath.pi * mpmath.mpf(2) ** 224))
    print("2/pi, 224 bits: " + ", ".join(f"0x{(digits >> (192 - 32 * i)) & 0xffffffff:08x}" for i in range(7)))


if __name__ == "__main__":
    main()
