#!/usr/bin/env python3
"""The public reference (diffusers on PyTorch) on one GPU: the rows of docs/performance.md, on random weights of the released sizes.

    tools/measure_peer.py [--only PREFIX ...] [--seconds N] [--wheels DIR] [--json FILE]
    tools/measure_peer.py --list
    tools/measure_peer.py --serve      reads names of rows on stdin, answers each with a line of JSON (tools/check_speed_gpu.py)

Rows, most wanted first; R is 37810, 15499 or 73486 packed rows:
    block/R/eager, block/R/compiled    one block of MiniMaxH3Transformer3DModel, bf16, attention by cuDNN
    attention/R/cudnn, attention/R/flash    scaled_dot_product_attention, 56 heads of 128, bf16
    linears/R                          the four products of a block
    video-decode/float16-weights, video-decode/autocast    AutoencoderKLMiniMaxH3, 1344x768, 124 frames, tiles as released
    image-encode, audio-decode, audio-encode    a picture of 1344x768, 5.17 s of stereo; float32, TF32 as PyTorch has it by default
    evaluation/eager, evaluation/compiled    one call of the whole model (50 blocks, 64 GB), canonical request; only when asked for

A figure is the median of at least five runs after warming up (long rows: as many as --row-seconds allow, at least two). Runs are timed by
events on the device and queued at once. The weights are random normal, never zeros: power, hence the clock, depends on the data. A row that fails
says why and the others go on; the exit status is then 1. --tiny: sizes for a processor without a card, to try the script itself.
"""
import argparse
import contextlib
import gc
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--only", action="append", default=[], metavar="PREFIX", help="rows whose name begins so; may be given several times")
p.add_argument("--seconds", type=float, default=120, help="no row begins later than this after the start (120)")
p.add_argument("--row-seconds", type=float, default=2.5, help="about as long a row's timed runs may take (2.5)")
p.add_argument("--runs", type=int, default=5, help="least number of timed runs of a short row (5)")
p.add_argument("--wheels", metavar="DIR", help="folder with wheels of what the machine lacks (pure Python)")
p.add_argument("--json", metavar="FILE", help="write the result there, too")
p.add_argument("--list", action="store_true")
p.add_argument("--serve", action="store_true")
p.add_argument("--tiny", action="store_true")
a = p.parse_args()

ROWS = (37810, 15499, 73486)
SHORT = ("video-decode/float16-weights", "image-encode", "audio-decode", "audio-encode", "video-decode/autocast")
NAMES = ["block/37810/eager", "attention/37810/cudnn", "linears/37810", "attention/37810/flash", "block/37810/compiled", *SHORT,
         "block/15499/eager", "block/73486/eager", "block/15499/compiled", "block/73486/compiled",
         *(f"attention/{r}/cudnn" for r in ROWS[1:]), *(f"linears/{r}" for r in ROWS[1:]), *(f"attention/{r}/flash" for r in ROWS[1:])]
ASKED = ["evaluation/eager", "evaluation/compiled"]
if a.list:
    print("\n".join(NAMES + ASKED))
    sys.exit()

unpacked = None
if a.wheels:
    # A wheel of pure Python is a zip of what lies in site-packages.
    unpacked = tempfile.TemporaryDirectory()
    wheels = sorted(pathlib.Path(a.wheels).glob("*.whl"))
    if not wheels:
        sys.exit(f"measure_peer: no wheels in {a.wheels}")
    for wheel in wheels:
        zipfile.ZipFile(wheel).extractall(unpacked.name)
    sys.path.insert(0, unpacked.name)

import torch
import diffusers
from diffusers.models.attention_dispatch import AttentionBackendName
from diffusers.models.autoencoders.autoencoder_kl_minimax_h3 import AutoencoderKLMiniMaxH3
from diffusers.models.autoencoders.autoencoder_kl_minimax_h3_audio import AutoencoderKLMiniMaxH3Audio
from diffusers.models.transformers.transformer_minimax_h3 import MiniMaxH3RotaryPosEmbed, MiniMaxH3Transformer3DModel, MiniMaxH3TransformerBlock
from torch.nn.attention import SDPBackend, sdpa_kernel

torch.set_grad_enabled(False)
cuda = torch.cuda.is_available()
if not cuda and not a.tiny:
    sys.exit("measure_peer: PyTorch sees no CUDA device (--tiny tries the script on the processor)")
device = torch.device("cuda" if cuda else "cpu")

# The released sizes; --tiny keeps every ratio that the code asks for.
HEADS, WIDTH, HIDDEN, FFN, TIME, BLOCKS = (56, 128, 5376, 14336, 2688, 50) if not a.tiny else (2, 128, 256, 512, 64, 3)
TEXT = 100 if not a.tiny else 5
SCALE = 1 if not a.tiny else 100
# What a number of rows is made of: frames of latents, patches of a frame, steps of the audio latent.
GRIDS = {37810: (37, 24, 42, 207), 15499: (37, 15, 27, 207), 73486: (72, 24, 42, 405)}
VIDEO = (37, 768, 1344) if not a.tiny else (7, 64, 64)
AUDIO = 207 if not a.tiny else 4
SAMPLES = 165334 if not a.tiny else 3200


def normal(*shape, dtype=torch.bfloat16, std=1.0):
    return torch.empty(*shape, dtype=dtype, device=device).normal_(0, std)


def fill(module, std=0.02):
    """Random weights; those of norms lie around one."""
    for name, parameter in module.named_parameters():
        parameter.normal_(0, std)
        if "norm" in name and name.endswith("weight"):
            parameter.add_(1)


def attend_by(module, backend):
    """Sets the attention of every module below. Not by set_attention_backend, which changes the default of other models, too."""
    for m in module.modules():
        processor = getattr(m, "processor", None)
        if hasattr(processor, "_attention_backend"):
            processor._attention_backend = AttentionBackendName(backend) if cuda else None


def tags_of(rows):
    frames, height, width, audio = GRIDS[rows]
    patches = frames * height * width
    assert TEXT + 2 * audio + patches == rows or a.tiny
    return torch.cat([torch.ones(TEXT), torch.full((2 * audio // SCALE,), 2), torch.zeros(patches // SCALE)]).long().to(device)


def kept_float32(model, name):
    """Whether from_pretrained leaves a weight float32 when it is asked for another type."""
    return any(kept in name.split(".") for kept in model._keep_in_fp32_modules)


class Block:
    """One block with inputs of a request: noise levels 0.1 for video and 0.3 for audio."""

    def __init__(self, rows):
        with torch.device("meta"):
            self.block = MiniMaxH3TransformerBlock(HIDDEN, HEADS, WIDTH, FFN, TIME, 1e-5, 1e-5).to(torch.bfloat16)
        self.block.to_empty(device=device).eval().requires_grad_(False)
        fill(self.block)
        attend_by(self.block, "_native_cudnn")
        tags = tags_of(rows)
        self.rows = len(tags)
        self.x = normal(1, self.rows, HIDDEN)
        self.temb = normal(2, TIME, dtype=torch.float32)
        self.index = (tags == 2).long() * 3 + tags
        self.rope = MiniMaxH3RotaryPosEmbed(16, 10000.0).to(device)(torch.rand(self.rows, 3, device=device) * 100)
        self.flop = flop_of_linears(self.rows) + flop_of_attention(self.rows)
        self.weights = sum(w.numel() * w.element_size() for w in self.block.parameters())

    def run(self):
        return self.block(self.x, self.temb, self.index, self.rope)


def shapes_of_linears():
    inner = HEADS * WIDTH
    return (("qkv", 3 * inner, HIDDEN), ("out", HIDDEN, inner), ("fc1", 2 * FFN, HIDDEN), ("fc2", HIDDEN, FFN))


def flop_of_linears(rows):
    return sum(2 * rows * n * k for _, n, k in shapes_of_linears())


def flop_of_attention(rows):
    return 4 * rows * rows * HEADS * WIDTH


def card_now():
    """Clock and power while the queue is being worked off."""
    try:
        return {"clock_mhz": torch.cuda.clock_rate(), "power_w": round(torch.cuda.power_draw() / 1000)}
    except Exception:
        return {}


def timed(run, least=None, estimate=None):
    """Milliseconds of each of some runs of a function, and what the card did meanwhile. Everything is queued at once, so the device never
    waits for Python. With an estimate (seconds of one run) the caller has warmed up."""
    least = least or a.runs
    done, began, last = 0, time.perf_counter(), estimate
    while estimate is None and (done < 2 or time.perf_counter() - began < 0.4):
        start = time.perf_counter()
        run()
        synchronize()
        last, done = time.perf_counter() - start, done + 1
    more = {} if estimate else {"warm_up_runs": done}
    if not cuda:
        samples = []
        for _ in range(least):
            start = time.perf_counter()
            run()
            samples.append(1e3 * (time.perf_counter() - start))
        return samples, more
    n = max(least, min(50, int(a.row_seconds / max(last, 1e-6))))
    synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(n)]
    for i, (begin, end) in enumerate(marks):
        begin.record()
        run()
        end.record()
        if i == n // 2:
            more.update(card_now())
    synchronize()
    more["peak_bytes"] = torch.cuda.max_memory_allocated() - before
    return [begin.elapsed_time(end) for begin, end in marks], more


def synchronize():
    if cuda:
        torch.cuda.synchronize()


def figures(samples, flop=None, **more):
    median = statistics.median(samples)
    result = {"median_ms": median, "samples_ms": [round(s, 4) for s in samples]}
    if flop:
        result["tflops"] = flop / median * 1e-9
    return {**result, **more}


def checked(tensor):
    """Numbers that are all finite and not all the same."""
    t = tensor.float()
    return {"finite": bool(t.isfinite().all()), "rms": float(t.square().mean().sqrt())}


def difference(x, ref):
    return float((x.float() - ref.float()).norm() / ref.float().norm())


def compiled(function):
    """torch.compile as diffusers advises it, one full graph; where that cannot be traced, with breaks, and that is said."""
    torch._dynamo.reset()
    began = time.perf_counter()
    try:
        f = torch.compile(function, fullgraph=True, dynamic=False)
        result = f()
        how = "full graph"
    except Exception as error:
        said = str(error).strip().splitlines()
        torch._dynamo.reset()
        f = torch.compile(function, dynamic=False)
        result = f()
        how = "with breaks: " + (said[0] if said else type(error).__name__)[:200]
    synchronize()
    return f, result, {"graph": how, "compile_s": round(time.perf_counter() - began, 2)}


def block(rows, mode):
    b = Block(rows)
    out = b.run()
    more = {"rows": b.rows, "weight_bytes": b.weights, **checked(out)}
    if mode == "eager":
        del out
        samples, card = timed(b.run)
        return figures(samples, b.flop, **more, **card)
    f, result, how = compiled(b.run)
    more["relative_l2_to_eager"] = difference(result, out)
    more["bit_equal_to_eager"] = bool(torch.equal(result, out))
    del out, result
    samples, card = timed(f)
    return figures(samples, b.flop, **more, **how, **card)


def attention(rows, kind):
    n = rows // SCALE
    q, k, v = (normal(1, HEADS, n, WIDTH) for _ in range(3))
    backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[kind]

    def run():
        with sdpa_kernel(backend) if cuda else contextlib.nullcontext():
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)
    more = checked(run())
    samples, card = timed(run)
    return figures(samples, flop_of_attention(n), rows=n, **more, **card)


def linears(rows):
    """The four in turn, as a block runs them; a sample is the sum of a round."""
    n = rows // SCALE
    pairs = [(name, normal(n, k), normal(m, k, std=0.02)) for name, m, k in shapes_of_linears()]
    marks = []

    def run():
        for name, x, w in pairs:
            if cuda:
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
            torch.nn.functional.linear(x, w)
            if cuda:
                end.record()
                marks.append((name, begin, end))
    samples, card = timed(run)
    parts = {}
    for name, begin, end in marks[-4 * len(samples):]:
        parts.setdefault(name, []).append(begin.elapsed_time(end))
    parts = {name: figures(s, 2 * n * m * k) for (name, m, k) in shapes_of_linears() if (s := parts.get(name))}
    return figures(samples, flop_of_linears(n), rows=n, parts=parts, **card)


def video_vae(dtype=None):
    more = dict(block_out_channels=(32, 32, 32, 32, 32, 32), decoder_num_layers=2, decoder_num_attention_heads=2) if a.tiny else {}
    with device:
        vae = AutoencoderKLMiniMaxH3(**more).eval()
    for name, parameter in vae.named_parameters():
        if name.endswith(("scale1", "scale2", "register_tokens")):
            parameter.normal_(0, 0.1)  # the class begins with zeros
        if dtype and not kept_float32(vae, name):
            parameter.data = parameter.data.to(dtype)
    attend_by(vae.decoder, "_native_cudnn")
    return vae


def video_decode(kind):
    vae = video_vae(torch.float16 if kind == "float16-weights" else None)
    frames, height, width = VIDEO
    z = normal(1, 24, frames, height // 16, width // 16, dtype=torch.float32)

    def run(latents=z):
        # One region of autocast for all tiles: the weights are cast once in it.
        with torch.autocast(device.type, torch.float16) if kind == "autocast" else contextlib.nullcontext():
            return vae.decode(latents, return_dict=False)[0]
    window = z[:, :, :7]  # one window of time has every shape of the decoder
    more = checked(run(window))
    synchronize()
    began = time.perf_counter()
    run(window)
    synchronize()
    samples, card = timed(run, least=2, estimate=7 * (time.perf_counter() - began))
    return figures(samples, 1.89e15 if not a.tiny else None, **more, **card)


def image_encode():
    vae = video_vae()
    del vae.decoder
    x = normal(1, 3, 1, *VIDEO[1:], dtype=torch.float32)
    run = lambda: vae.encode(x, return_dict=False)[0].mode()
    more = checked(run())
    samples, card = timed(run)
    return figures(samples, **more, **card)


def audio(what):
    more = dict(encoder_dim=8, latent_dim=128, decoder_dim=128) if a.tiny else {}
    with device:
        vae = AutoencoderKLMiniMaxH3Audio(**more).eval()
    if what == "decode":
        x = normal(2, 32, AUDIO, dtype=torch.float32)
        run = lambda: vae.decode(x, return_dict=False)[0]
    else:
        x = normal(2, 1, SAMPLES, dtype=torch.float32, std=0.2)
        run = lambda: vae.encode(x, return_dict=False)[0].mode()
    more = checked(run())
    samples, card = timed(run)
    return figures(samples, **more, **card)


def evaluation(mode):
    """A call of the whole model, mixed precision as it is loaded."""
    sizes = dict(num_attention_heads=2, hidden_size=HIDDEN, num_layers=BLOCKS, ffn_dim=FFN, text_dim=64, time_embed_hidden_dim=64, time_embed_dim=TIME) if a.tiny else {}
    with torch.device("meta"):
        model = MiniMaxH3Transformer3DModel(**sizes).eval().requires_grad_(False)
        for name, parameter in model.named_parameters():
            if not kept_float32(model, name):
                parameter.data = parameter.data.to(torch.bfloat16)
    model.to_empty(device=device)
    fill(model)
    model.rope = MiniMaxH3RotaryPosEmbed(16, 10000.0).to(device)
    attend_by(model, "_native_cudnn")
    weights = sum(w.numel() * w.element_size() for w in model.parameters())
    tags = tags_of(37810)
    index = torch.arange(len(tags), device=device)
    text, video, sound = (index[tags == t] for t in (1, 0, 2))
    call = dict(hidden_states=normal(1, len(video), 96, dtype=torch.float32), audio_hidden_states=normal(1, len(sound), 32, dtype=torch.float32),
                encoder_hidden_states=normal(1, len(text), model.config.text_dim), timestep=torch.tensor([0.1, 0.3], device=device),
                timestep_indices=(tags == 2).long(), token_tags=tags, position_ids=torch.rand(len(tags), 3, device=device) * 100, video_indices=video,
                audio_indices=sound, text_indices=text, return_dict=False)
    if mode == "compiled":
        torch._dynamo.reset()
        model.compile_repeated_blocks(fullgraph=True, dynamic=False)
    run = lambda: model(**call)
    began = time.perf_counter()
    more = checked(run()[0])
    synchronize()
    first = time.perf_counter() - began
    began = time.perf_counter()
    run()
    synchronize()
    samples, card = timed(run, least=3, estimate=time.perf_counter() - began)
    more.update(rows=len(tags), weight_bytes=weights, first_call_s=round(first, 2), **card)
    result = figures(samples, BLOCKS * (flop_of_linears(len(tags)) + flop_of_attention(len(tags))), **more)
    result["evaluations_12_s"] = 12e-3 * result["median_ms"]
    return result


def measure(name):
    """A row's figures, or why there are none."""
    words = name.split("/")
    began = time.perf_counter()
    try:
        if words[0] in ("block", "attention"):
            result = {"block": block, "attention": attention}[words[0]](int(words[1]), words[2])
        elif words[0] == "linears":
            result = linears(int(words[1]))
        elif words[0] in ("video-decode", "evaluation"):
            result = {"video-decode": video_decode, "evaluation": evaluation}[words[0]](words[1])
        elif name == "image-encode":
            result = image_encode()
        elif words[0] == "audio-decode" or words[0] == "audio-encode":
            result = audio(words[0][6:])
        else:
            return {"error": f"no row is called {name}"}
        if not result.get("finite", True) or not result.get("rms", 1) > 0:
            result["error"] = "the result is not finite or all zeros"
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"[:500], "where": traceback.format_exc().splitlines()[-6:]}
    # The next row, or the program that takes turns with this one, finds the memory free.
    torch._dynamo.reset()
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
    result["row_s"] = round(time.perf_counter() - began, 1)
    return result


def versions():
    found = {"python": sys.version.split()[0], "torch": torch.__version__, "diffusers": diffusers.__version__, "cuda": torch.version.cuda}
    with contextlib.suppress(Exception):
        found["cudnn"] = torch.backends.cudnn.version()
    with contextlib.suppress(Exception):
        import triton
        found["triton"] = triton.__version__
    if cuda:
        properties = torch.cuda.get_device_properties(0)
        found.update(device=properties.name, compute_capability=f"{properties.major}.{properties.minor}", memory_bytes=properties.total_memory)
        with contextlib.suppress(Exception):
            asked = ["nvidia-smi", "--query-gpu=driver_version,power.limit,clocks.max.sm", "--format=csv,noheader"]
            found["driver"], found["power_limit"], found["clock_limit"] = (s.strip() for s in subprocess.run(
                asked, capture_output=True, text=True, timeout=10).stdout.splitlines()[0].split(","))
    return found


def line(name, r):
    if "median_ms" not in r:
        return f"{name:32} {r['error'][:160]}"
    spread = 100 * (max(r["samples_ms"]) - min(r["samples_ms"])) / r["median_ms"]
    rate = f"{r['tflops']:7.1f} TFLOP/s" if "tflops" in r else " " * 15
    return f"{name:32} {r['median_ms']:11.3f} ms {rate}  {len(r['samples_ms']):3} runs, spread {spread:.1f} %  " + " ".join(
        f"{k} {r[k]}" for k in ("clock_mhz", "power_w", "graph", "bit_equal_to_eager", "error") if k in r)


def serve():
    """One name in, one line of JSON out."""
    print(json.dumps({"versions": versions()}), flush=True)
    for name in sys.stdin:
        print(json.dumps({"name": name.strip(), **measure(name.strip())}), flush=True)


def main():
    began = time.perf_counter()
    wanted = [n for n in NAMES + ASKED if any(n.startswith(o) for o in a.only)] if a.only else NAMES
    if not wanted:
        sys.exit(f"measure_peer: no row begins with {' or '.join(a.only)} (--list shows them)")
    result = {"versions": versions(), "rows": {}, "skipped": []}
    print(" ".join(f"{k} {v}" for k, v in result["versions"].items()), file=sys.stderr, flush=True)
    for name in wanted:
        if time.perf_counter() - began > a.seconds:
            result["skipped"].append(name)
            print(f"{name:32} skipped: {a.seconds:.0f} s are over", file=sys.stderr)
            continue
        result["rows"][name] = measure(name)
        print(line(name, result["rows"][name]), file=sys.stderr, flush=True)
    result["wall_s"] = round(time.perf_counter() - began, 1)
    text = json.dumps(result)
    print(text)
    if a.json:
        pathlib.Path(a.json).write_text(text + "\n")
    return any("error" in r for r in result["rows"].values())


sys.exit(serve() if a.serve else main())
