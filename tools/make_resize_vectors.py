#!/usr/bin/env python3
"""Writes tests/data/media/resize.txt and resample.txt: what Pillow, torchvision and torchaudio make of inputs that a formula gives, as hashes
and a few samples. Made with Pillow 13.0.0, torch 2.15, torchvision 0.29.2, torchaudio 2.11.1 on a CPU.

resize.txt    filter width height out_width out_height FNV-1a-64 of the RGB bytes   (filter "cover": scaled to cover, centre cut out)
resample.txt  from to samples count, then count "index value" pairs, about 60 of them spread over the whole, the last included"""
import pathlib
import random

import numpy as np
import torch
import torchaudio
from PIL import Image
from torchvision.transforms.v2 import functional as F

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "media"


def picture(width, height):
    """Blocks of 16 pixels, in turn a slope and noise."""
    y, x, c = np.meshgrid(np.arange(height, dtype=np.uint32), np.arange(width, dtype=np.uint32), np.arange(3, dtype=np.uint32), indexing="ij")
    h = x * np.uint32(374761393) + y * np.uint32(668265263) + c * np.uint32(2246822519)
    h ^= h >> np.uint32(13)
    h *= np.uint32(1274126177)
    h ^= h >> np.uint32(16)
    slope = np.uint32(3) * x + np.uint32(2) * y + np.uint32(40) * c
    noisy = ((x >> np.uint32(4)) + (y >> np.uint32(4))) & np.uint32(1)
    return np.where(noisy == 1, h, slope).astype(np.uint32).astype(np.uint8)


def fnv(array):
    value = 0xCBF29CE484222325
    for byte in np.ascontiguousarray(array).tobytes():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def resize(kind, pixels, width, height):
    if kind == "torch":
        tensor = torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
        return F.resize(tensor, [height, width], interpolation=F.InterpolationMode.BICUBIC, antialias=True).permute(1, 2, 0).numpy()
    image = Image.fromarray(pixels)
    if kind == "cover":
        w, h = image.size
        scale = max(width / w, height / h)
        rw, rh = max(width, round(w * scale)), max(height, round(h * scale))
        left, top = max(0, (rw - width) // 2), max(0, (rh - height) // 2)
        return np.asarray(image.resize((rw, rh), Image.Resampling.LANCZOS).crop((left, top, left + width, top + height)))
    return np.asarray(image.resize((width, height), {"lanczos": Image.Resampling.LANCZOS, "bicubic": Image.Resampling.BICUBIC}[kind]))


def sizes():
    yield from ((97, 160, 96, 64), (160, 97, 64, 96), (8, 1, 5, 1), (1, 1, 40, 30), (40, 30, 1, 1), (64, 64, 64, 64), (64, 64, 64, 20), (64, 64, 20, 64),
                (100, 100, 50, 50), (100, 100, 99, 98), (100, 100, 99, 97), (500, 3, 7, 90), (3, 500, 90, 7))
    draw = random.Random(13)
    side = lambda: draw.choice((draw.randint(1, 20), draw.randint(1, 240), draw.randint(20, 120)))
    for _ in range(187):
        yield side(), side(), side(), side()


def write_resize():
    with open(DATA / "resize.txt", "w") as f:
        for width, height, out_width, out_height in sizes():
            pixels = picture(width, height)
            for kind in ("lanczos", "bicubic", "torch", "cover"):
                if kind == "cover" and max(out_width / width, out_height / height) * max(width, height) > 2000:
                    continue
                if kind == "torch" and 1 in (width, height, out_width, out_height):
                    continue  # an axis of 1 makes its choice of memory layout ambiguous, and an assertion of its own fail
                f.write(f"{kind} {width} {height} {out_width} {out_height} {fnv(resize(kind, pixels, out_width, out_height)):016x}\n")


def write_resample():
    with open(DATA / "resample.txt", "w") as f:
        for source, target, samples in ((44100, 32000, 3000), (48000, 32000, 3000), (96000, 32000, 3000), (22050, 32000, 1500), (24000, 32000, 1500),
                                        (16000, 32000, 1500), (8000, 32000, 700), (11025, 32000, 700), (44100, 32000, 1), (44056, 32000, 2500),
                                        (32000, 32000, 100), (192000, 32000, 4000), (1000, 32000, 40), (32000, 48000, 1000), (384000, 1000, 5000)):
            i = np.arange(samples, dtype=np.int64)
            x = ((((i * 7919) % 2003) - 1001) / np.float32(1001)).astype(np.float32)
            y = torchaudio.transforms.Resample(source, target)(torch.from_numpy(x)[None])[0].numpy()
            picks = sorted({*range(0, len(y), max(1, len(y) // 55)), len(y) - 1, min(1, len(y) - 1)})
            f.write(f"{source} {target} {samples} {len(y)} {len(picks)}\n" + "".join(f"{p} {y[p]:.9g}\n" for p in picks))


write_resize()
write_resample()
