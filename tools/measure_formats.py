#!/usr/bin/env python3
"""What each format costs beside bf16, and how far its results are from bf16's.

    make_formats.py make PARTITION OUT --no-twins [CASE ...]
    measure_formats.py error VORTEX OUT [CASE ...]                     relative L2 of the first velocity and of the final latents, against PARTITION
    measure_formats.py cost VORTEX OUT [--size WxH] [--rounds N] [CASE ...]   time of an evaluation, memory, time to open, against PARTITION

Costs: bf16's run and the format's take turns, on one thread; a ratio is the median over rounds of (the format's processor time / bf16's of
the same round), opening and the prompt included, which takes nothing from the difference and little from the ratio. Memory: the largest RssAnon of a run with latents only, less bf16's. Opening: the
median time of `vortex inspect`, process and all. Errors are of transformers and text encoders, costs of transformers.
"""
import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from safetensors.numpy import load_file

REQUEST = ["--prompt", "A lighthouse in fog.", "--frames", "22", "--seed", "5", "--device", "cpu"]


def words(options):
    return [x for pair in options.items() for x in pair]


def cases(out, wanted, kinds=("transformer",)):
    """-> options of the bf16 folder, [(case, options)]"""
    found, bf16 = [], None
    for file in sorted(out.glob("*/twin.json")):
        twin = json.loads(file.read_text())
        if twin.get("kind") not in kinds or file.parent.name == "comfy_tree":
            continue
        bf16 = {"--model": str(pathlib.Path(twin["case"]["--video-vae"]).parent)}
        if not wanted or file.parent.name in wanted:
            found.append((file.parent.name, twin["case"]))
    return bf16, found


def size_of(options):
    path = pathlib.Path(options["--model"])
    if path.is_dir():
        return sum(f.stat().st_size for f in (path / "transformer").glob("*.safetensors"))
    return path.stat().st_size


# ---- error ----
def results(vortex, options, folder, o):
    a, b = str(folder / "latents"), str(folder / "tensors")
    r = subprocess.run([vortex, "generate", *words(options), *REQUEST, "--size", o.size, "--steps", str(o.steps), "--precision", o.precision, "-q", "-y", "--save-latents", a, "--dump-tensors", b],
                       capture_output=True, text=True)
    if r.returncode:
        sys.exit(r.stderr)
    return load_file(b), load_file(a)


def relative(mine, theirs, names):
    up = sum(float(((mine[n].astype("f8") - theirs[n].astype("f8")) ** 2).sum()) for n in names)
    return (up / sum(float((theirs[n].astype("f8") ** 2).sum()) for n in names)) ** 0.5


def error(o):
    bf16, found = cases(pathlib.Path(o.out), o.case, ("transformer", "text"))
    print(f"{'case':24s} {'video velocity':>14s} {'audio velocity':>14s} {'final latents':>14s}")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        tensors, latents = results(o.vortex, bf16, folder, o)
        names = [n for n in latents if latents[n].dtype.kind == "f"]
        for case, options in found:
            t, l = results(o.vortex, options, folder, o)
            print(f"{case:24s} {relative(t, tensors, ['velocity.video.0']):14.2e} {relative(t, tensors, ['velocity.audio.0']):14.2e} {relative(l, latents, names):14.2e}", flush=True)


# ---- cost ----
def evaluation(vortex, options, o):
    """Processor seconds of an evaluation on one thread: a busy machine stretches the clock, not this."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([vortex, "bench", "denoiser", *words(options), *REQUEST, "--size", o.size, "--steps", str(o.steps), "--runs", "1", "--threads", "1", "-q"],
                   check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / (2 * o.steps)  # a warm-up and a run


def anonymous(vortex, options, o):
    p = subprocess.Popen([vortex, "generate", *words(options), *REQUEST, "--size", o.size, "--steps", "2", "-q", "-y", "--save-latents", o.latents])
    most = 0
    while p.poll() is None:
        try:
            with open(f"/proc/{p.pid}/status") as f:
                most = max([most] + [int(line.split()[1]) * 1024 for line in f if line.startswith("RssAnon:")])
        except OSError:
            pass
        time.sleep(0.002)
    if p.returncode:
        sys.exit(f"{options}: exit {p.returncode}")
    return most


def opening(vortex, options):
    times = []
    for _ in range(5):
        began = time.monotonic()
        subprocess.run([vortex, "inspect", options["--model"], "-q"], stdout=subprocess.DEVNULL, check=True)
        times.append(time.monotonic() - began)
    return statistics.median(times)


def cost(o):
    bf16, found = cases(pathlib.Path(o.out), o.case)
    with tempfile.TemporaryDirectory() as folder:
        o.latents = folder + "/latents"
        base = statistics.median(anonymous(o.vortex, bf16, o) for _ in range(3))
        print(f"bf16: {size_of(bf16) / 2**20:.0f} MiB, {base / 2**20:.1f} MiB anonymous, {evaluation(o.vortex, bf16, o):.3f} s an evaluation")
        print(f"{'case':24s} {'file':>6s} {'evaluation':>11s} {'(least..most)':>14s} {'memory':>10s} {'open':>8s}")
        for case, options in found:
            ratios = []
            for _ in range(o.rounds):
                before = evaluation(o.vortex, bf16, o)
                ratios.append(evaluation(o.vortex, options, o) / before)
            memory = statistics.median(anonymous(o.vortex, options, o) for _ in range(3)) - base
            print(f"{case:24s} {size_of(options) / size_of(bf16):6.2f} {statistics.median(ratios):11.2f} {min(ratios):7.2f}..{max(ratios):.2f} {memory / 2**20:+8.1f} M {opening(o.vortex, options):6.3f} s", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["error", "cost"])
    p.add_argument("vortex")
    p.add_argument("out")
    p.add_argument("case", nargs="*")
    p.add_argument("--size", default="64x64")
    p.add_argument("--steps", type=int, default=4, help="evaluations")
    p.add_argument("--precision", default="exact", choices=["exact", "float32"], help="of the errors' runs")
    p.add_argument("--rounds", type=int, default=5)
    o = p.parse_intermixed_args()
    (error if o.what == "error" else cost)(o)


if __name__ == "__main__":
    main()
