#!/usr/bin/env python3
"""make_sampler_vectors.py OUT.safetensors: small sampler runs with a toy velocity, for tests/sampling/test_sampler.c.

official.*  diffusers' MiniMaxH3Scheduler (0.42.1, torch 2.15) on both streams, bit for bit
comfyui.*   the sampler formulas of ComfyUI (denoiser specification 6.4, 6.5) in f64 on f32 sigmas

The toy network couples the streams and knows the step: with x video, y audio (as the network sees it), step k, in f32
    v_video = 0.75*x + (0.125*mean8(y) - 0.0625*k)      v_audio = (0.25*x[:8] - 0.5*y) + 0.03125*k
where mean8(y)[i] is y[i mod 8]. Every product and sum is rounded, so that any IEEE machine gives the same numbers.
"""
import sys
import numpy as np
import torch
from diffusers import MiniMaxH3Scheduler
from safetensors.numpy import save_file

F = np.float32
VIDEO, AUDIO = 20, 8


def toy(x, y, k):
    one = F
    y20 = y[np.arange(VIDEO) % AUDIO]
    vv = one(0.75) * x + (one(0.125) * y20 - one(0.0625) * one(k))
    va = (one(0.25) * x[:AUDIO] - one(0.5) * y) + one(0.03125) * one(k)
    return vv.astype(F), va.astype(F)


def start():
    g = torch.Generator().manual_seed(3)
    return torch.randn(VIDEO, generator=g).numpy(), torch.randn(AUDIO, generator=g).numpy()


def audio_sigma(s):
    b = F(s) / (F(12) + F(s) * F(1 - 12))
    return F(3) * b / (F(1) + F(2) * b)


def official(points=None, sigmas=None):
    x, y = (torch.from_numpy(t.copy()) for t in start())
    v, a = MiniMaxH3Scheduler(shift=12.0), MiniMaxH3Scheduler(shift=3.0)
    if sigmas is None:
        v.set_timesteps(points)
        a.set_timesteps(points)
    else:
        v.set_timesteps(sigmas=sigmas)
        a.set_timesteps(sigmas=[float(audio_sigma(s)) for s in sigmas])
    for k in range(len(v.timesteps)):
        vv, va = toy(x.numpy(), y.numpy(), k)
        x = v.step(torch.from_numpy(vv), v.timesteps[k], x, return_dict=False)[0]
        y = a.step(torch.from_numpy(va), a.timesteps[k], y, return_dict=False)[0]
    return x.numpy(), y.numpy()


def comfyui(sampler, sigmas):
    x, y = (t.astype(np.float64) for t in start())
    if sigmas[0] != 1:                     # CONST's noise_scaling of an empty latent
        x, y = x * float(sigmas[0]), y * float(sigmas[0])
    prev = None
    for k in range(len(sigmas) - 1):
        s, s1, sa = float(sigmas[k]), float(sigmas[k + 1]), float(audio_sigma(sigmas[k]))
        seen = y * (sa / s)
        vv, va = toy(x.astype(F), seen.astype(F), k)
        D = (x + s * vv, 4.0 * (seen + sa * va))
        if sampler == "euler" or prev is None or s1 == 0:
            x, y = (t + (t - d) / s * (s1 - s) for t, d in zip((x, y), D))
        else:
            h = np.log(s / s1)
            c2 = -np.log(prev[1] / s) / h
            phi1 = np.expm1(-h) / (-h)
            phi2 = (phi1 - 1) / (-h)
            b1, b2 = phi1 - phi2 / c2, phi2 / c2
            x, y = (np.exp(-h) * t + h * (b1 * d + b2 * dp) for t, d, dp in zip((x, y), D, prev[0]))
        prev = (D, s)
    return x.astype(F), (y / 4).astype(F)


beta = [F(12) * (F(k + 1) / F(1000)) / (F(1) + F(11) * (F(k + 1) / F(1000)))
        for k in (999, 970, 908, 823, 724, 614, 500, 385, 275, 176, 91, 29)] + [F(0)]
late = [F(x) for x in (0.9, 0.7, 0.3125, 0)]
out = {}
out["start.video"], out["start.audio"] = start()
runs = {"official.5": official(5), "official.9": official(9), "official.late": official(sigmas=[float(x) for x in late]),
        "comfyui.euler.beta": comfyui("euler", beta), "comfyui.res_multistep.beta": comfyui("res_multistep", beta),
        "comfyui.res_multistep.late": comfyui("res_multistep", late)}
for n, (x, y) in runs.items():
    out[n + ".video"], out[n + ".audio"] = x, y
out["late.sigmas"] = np.array(late, F)
save_file({k: np.ascontiguousarray(v) for k, v in out.items()}, sys.argv[1], metadata={"torch": torch.__version__})
