#!/usr/bin/env python3
"""Whole requests on a card beside the processor's, with a small model: the demands that no test of a single operator makes.

    tools/check_card.py VORTEX MODEL [--device cuda]

- Latents in exact precision, relative L2 at most 0.02: 17, 22, 37 and 107 latent frames (public report P29: clean at 17, broken at 22), and
  packed lengths around multiples of 64, 128 and 1024, long enough that matrix units multiply. The text's length is what moves them by one.
- The picture as the device decodes it by default (float16), in both modes of its rotation, against the processor's float32: 40 dB.
- 50 requests in a row: the bits of single runs, with graphs and without, and no more memory at the end than in the middle.

A line for each demand; exit 1 if one fails. With --device cpu, which has neither graphs nor memory of its own, the rest can be tried anywhere.
"""
import argparse
import array
import json
import math
import operator
import os
import struct
import subprocess
import sys
import tempfile

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("vortex")
p.add_argument("model")
p.add_argument("--device", default="cuda")
a = p.parse_args()

CARD = a.device != "cpu"
MOST_L2, LEAST_DB = 0.02, 40
PROMPT = "A lighthouse at dawn."
FRAMES = {17: 56, 22: 73, 37: 124, 107: 362}  # of latents: of the clip
# Packed rows, and a shape that leaves them some text: 13 times 64, 7 times 128, 1024, and enough for the narrowest product, 3 times 1024.
LENGTHS = {832: ("96x64", 124), 896: ("96x64", 124), 1024: ("96x64", 124), 3072: ("128x128", 362)}
SHORT = {"prompt": PROMPT, "size": "96x64", "frames": 22, "steps": 2, "seed": 1}
KINDS = [SHORT, {**SHORT, "size": "64x96"}, {**SHORT, "size": "256x160", "frames": 56}, {**SHORT, "seed": 2}, {**SHORT, "prompt": "The waves rise and fall."},
         {**SHORT, "frames": 39, "steps": 3}, {**SHORT, "precision": "float32"}]
ROW = [i % len(KINDS) for i in range(50)]  # begins and ends with the first kind


class Failure(Exception):
    """What vortex said in place of a result."""


def say(what, holds, found):
    print(f"check_card: {'ok  ' if holds else 'FAIL'} {what}: {found}", flush=True)
    return holds


def vortex(command, *arguments, device=a.device):
    """The results that it prints, one a line."""
    done = subprocess.run([a.vortex, command, "-m", a.model, *arguments, "--device", device, "-q"], capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise Failure(f"exit {done.returncode}: " + (done.stderr.strip().splitlines() or ["no message"])[-1][:200])
    return [json.loads(line) for line in done.stdout.splitlines()]


def run(requests, *flags, device=a.device):
    """Results of requests in a row."""
    path = os.path.join(folder, "requests.jsonl")
    with open(path, "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in requests)
    results = vortex("generate", "--jobs", path, "-y", *flags, device=device)
    if len(results) != len(requests):
        raise Failure(f"{len(results)} results of {len(requests)} requests")
    return results


def flags_of(request):
    return [word for key, value in request.items() for word in ("--" + key.replace("_", "-"), str(value))]


def load(path):
    """{name: values} of a file of float32 tensors."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = memoryview(f.read())
    return {name: array.array("f", data[slice(*about["data_offsets"])].tobytes()) for name, about in header.items() if name != "__metadata__"}


def squares(x, y):
    """The sum of (x - y)^2, in pieces that stay in the cache."""
    total, step = 0.0, 1 << 16
    for i in range(0, len(x), step):
        d = list(map(operator.sub, x[i:i + step], y[i:i + step]))
        total += sum(map(operator.mul, d, d))
    return total


def distance(x, want):
    """Relative L2."""
    if len(x) != len(want):
        return math.inf
    return math.sqrt(squares(x, want) / (sum(map(operator.mul, want, want)) or math.nan))


def decibels(x, want):
    """PSNR of frames in [0, 1]."""
    if len(x) != len(want):
        return -math.inf
    difference = squares(x, want)
    return 10 * math.log10(len(want) / difference) if difference else math.inf


# ---- the processor beside the device ----
def of_rows(target):
    """Requests with one packed row less than the target, as many, and one more; a word is a row."""
    size, frames = LENGTHS[target]
    request = {"prompt": "sea", "size": size, "frames": frames, "steps": 2, "seed": 1}
    others = vortex("plan", *flags_of(request), "--json", device="cpu")[0]["rows"]["total"] - 1
    return {rows: {**request, "prompt": " ".join(["sea"] * (rows - others))} for rows in (target - 1, target, target + 1)}


def latents():
    lengths = {rows: request for target in LENGTHS for rows, request in of_rows(target).items()}
    asked = {f"{n} latent frames": {**SHORT, "size": "256x160", "frames": frames} for n, frames in FRAMES.items()}
    asked |= {f"{rows} rows": request for rows, request in lengths.items()}
    files = {side: [os.path.join(folder, f"{side}.{i}") for i in range(len(asked))] for side in ("cpu", "device")}
    for side, device in (("cpu", "cpu"), ("device", a.device)):
        results = run([{**request, "save_latents": path} for request, path in zip(asked.values(), files[side])], device=device)
    rows = [result["rows"]["total"] for result in results][len(FRAMES):]
    holds = say("packed lengths", rows == list(lengths), ", ".join(map(str, rows)))
    for what, near, far in zip(asked, *files.values()):
        want, found = load(near), load(far)
        off = {name: distance(found[name], want[name]) for name in ("video", "audio")}
        holds &= say(what, all(x <= MOST_L2 for x in off.values()), ", ".join(f"{name} {x:.2e}" for name, x in off.items()) + f" of {MOST_L2}")
    return holds


# ---- the picture ----
def picture():
    """Two tiles, three windows."""
    clip, near, far = (os.path.join(folder, name) for name in ("clip", "near", "far"))
    run([{**SHORT, "size": "320x96", "frames": 56, "save_latents": clip}], device="cpu")
    vortex("decode", "--latents", clip, "--save-tensors", near, "--vae-precision", "float32", "-y", device="cpu")
    want, holds = load(near)["frames"], True
    for mode in ("official", "float32"):
        default = [] if CARD else ["--vae-precision", "float16"]
        result = vortex("decode", "--latents", clip, "--save-tensors", far, "--vae-rope", mode, *default, "-y", "--json")[0]
        found, way = decibels(load(far)["frames"], want), (result["vae_precision"], result["vae_rope"])
        holds &= say(f"picture, rotation {mode}", found >= LEAST_DB and way == ("float16", mode), f"{way[0]}, {found:.1f} dB of {LEAST_DB}")
    return holds


# ---- in a row ----
def hashes(results):
    return [tuple(sorted(result["latents_sha256"].items())) for result in results]


def in_a_row():
    kinds = [{**kind, "save_latents": os.path.join(folder, "latents")} for kind in KINDS]
    requests = [kinds[kind] for kind in ROW]
    results = run(requests)
    found, middle = hashes(results), len(ROW) // 2
    alone = [hashes(vortex("generate", *flags_of(kind), "-y", "--json"))[0] for kind in kinds]
    repeats = {kind: {h for k, h in zip(ROW, found) if k == kind} for kind in ROW}
    holds = say("first and last of 50 requests", found[0] == found[-1], "the same SHA-256" if found[0] == found[-1] else "other bits")
    holds &= say("repeats", all(len(h) == 1 for h in repeats.values()) and len(set(found)) == len(KINDS), f"{len(set(found))} results of {len(KINDS)} requests")
    others = sum(h != alone[kind] for kind, h in zip(ROW, found))
    holds &= say("single runs", others == 0, f"{others} of 50 differ")
    if not CARD:
        return holds
    peaks = [result["peak_bytes"]["device"] for result in results]
    first, last = max(peaks[:middle]), max(peaks[middle:])
    holds &= say("device memory, requests 1-25 and 26-50", 0 < last <= first, f"{first / 1e6:.1f} and {last / 1e6:.1f} MB")
    others = sum(x != y for x, y in zip(found, hashes(run(requests, "--no-graphs"))))
    return say("without graphs", others == 0, f"{others} of 50 differ") and holds


def main():
    holds = True
    for part in (latents, picture, in_a_row):
        try:
            holds &= part()
        except Failure as failure:
            holds = say(part.__name__.replace("_", " "), False, failure)
    return not holds


with tempfile.TemporaryDirectory(prefix="vortex-card-") as folder:
    sys.exit(main())
