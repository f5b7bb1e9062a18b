#!/usr/bin/env python3
"""`vortex bench` beside the public reference on one GPU, taking turns: the table of docs/performance.md with ratios.

    tools/check_speed_gpu.py [--vortex FILE] [--wheels DIR] [--rounds N] [--only ROW ...] [--steps N] [--bits] [--seconds N] [--json FILE]

The bench makes up the released model's weights on the device; --wheels has what the machine's Python lacks for tools/measure_peer.py. In every
round each row is run by us, then by the peer, so a warm card slows both; a ratio (ours / peer, below 1: we are faster) is the median of the rounds'
ratios, a time the median of the rounds' medians. Exit 1 if a row fails, or does not hold what the table requires.

--steps N: N evaluations instead of 12, whose time is then 12 times a step. --bits: two runs of two evaluations with graphs and one without must have
the same latents. --evaluations measures whole calls of the peer's model, too (64 GB, half a minute); otherwise its 12 evaluations are 600 times its
block. --list names the rows. Ours "one block" is a step's fiftieth: everything that a step does is in it.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--vortex", default="build/cuda/vortex")
p.add_argument("--model", metavar="DIR", help="a checkpoint instead of made-up weights")
p.add_argument("--wheels", metavar="DIR")
p.add_argument("--python", default=sys.executable, help="the Python that has PyTorch (this one)")
p.add_argument("--rounds", type=int, default=1)
p.add_argument("--steps", type=int, metavar="N")
p.add_argument("--bits", action="store_true")
p.add_argument("--only", action="append", default=[], metavar="ROW")
p.add_argument("--seconds", type=float, default=400, help="no row begins later than this after the start (400)")
p.add_argument("--evaluations", action="store_true")
p.add_argument("--no-peer", action="store_true", help="ours alone")
p.add_argument("--json", metavar="FILE")
p.add_argument("--report", action="store_true", help="show what is required without demanding it (another card than the table is for)")
p.add_argument("--list", action="store_true")
p.add_argument("--tiny", action="store_true", help="the peer's small sizes, to try the script")
a = p.parse_args()

BLOCKS, EVALUATIONS = 50, 12
STEPS = ["--steps", str(a.steps)] if a.steps else []
DENOISER = ["denoiser", "--runs", "1", *STEPS]
WIDE = ["denoiser", "--runs", "1", "--steps", "2", "--size", "864x480"]
LONG = ["denoiser", "--runs", "1", "--steps", "1", "--frames", "243"]


# What a row takes of a bench's result, in milliseconds.
def whole(result):
    return 1e3 * result["median_s"]


def block_of(result):
    return 1e3 * result["step_median_s"] / BLOCKS


def evaluations_of(result):
    return 1e3 * result["step_median_s"] * EVALUATIONS if a.steps else whole(result)


class Row:
    """A line of the table. bench: arguments of `vortex bench`; take: the milliseconds in its result; peers: rows of tools/measure_peer.py,
    the first of them the one that a ratio is required to; limits in the unit shown."""

    def __init__(self, name, title, bench, take, peers=(), required=None, goal=None, unit="ms", ratio=None, goal_ratio=None):
        self.name, self.title, self.bench, self.take, self.peers, self.unit = name, title, bench, take, peers, unit
        self.required, self.goal, self.ratio, self.goal_ratio = required, goal, ratio, goal_ratio


def blocks(rows):
    return [f"block/{rows}/eager", f"block/{rows}/compiled"]


ROWS = [
    Row("block", "one block, 37,810 rows, bf16 exact", DENOISER, block_of, blocks(37810), 114, 107, ratio=0.92),
    Row("evaluations", "12 evaluations, canonical", DENOISER, evaluations_of, ["evaluation/eager", "evaluation/compiled"], 69, 64.5, unit="s"),
    Row("attention", "attention alone, 37,810 rows", ["attention", "--runs", "9"], whole, ["attention/37810/cudnn", "attention/37810/flash"], 110, 66),
    Row("attention-cudnn", "the same by cuDNN", ["attention", "--runs", "9", "--attention", "cudnn"], whole, ["attention/37810/cudnn"], 71),
    Row("linears", "the four linears of a block", ["linear", "--runs", "9"], whole, ["linears/37810"], 41, 39.5),
    Row("elementwise", "all class-E operators of a block", ["elementwise", "--runs", "9"], whole, (), 2.6, 2.3),
    Row("block-15499", "one block, 15,499 rows", WIDE, block_of, blocks(15499), 32, 28),
    Row("block-73486", "one block, 73,486 rows", LONG, block_of, blocks(73486), 360, 335),
    Row("video-decode", "video decode 1344x768, 124 frames", ["video-vae", "--runs", "2"], whole,
        ["video-decode/float16-weights", "video-decode/autocast"], 4.5, 3, unit="s"),
    Row("image-encode", "image encode 1344x768", ["image-encoder", "--runs", "5"], whole, ["image-encode"], ratio=1, goal_ratio=0.5),
    Row("audio-decode", "audio decode, 5.17 s of stereo", ["audio-vae", "--runs", "5"], whole, ["audio-decode"], ratio=1, goal_ratio=0.5),
    Row("audio-encode", "audio encode, 5.17 s of stereo", ["audio-encoder", "--runs", "5"], whole, ["audio-encode"], ratio=1, goal_ratio=0.5),
]
BITS = (["denoiser", "--runs", "2", "--steps", "2"], ["denoiser", "--runs", "1", "--steps", "2", "--no-graphs"])
if a.list:
    print("\n".join(f"{r.name:16} {r.title}" for r in ROWS))
    sys.exit()


class Peer:
    """tools/measure_peer.py --serve, one process for all rows."""

    def __init__(self):
        command = [a.python, str(pathlib.Path(__file__).parent / "measure_peer.py"), "--serve"]
        command += ["--wheels", a.wheels] if a.wheels else []
        command += ["--tiny"] if a.tiny else []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        first = self.process.stdout.readline()
        if not first:
            sys.exit("check_speed_gpu: the peer did not start; tools/measure_peer.py says why")
        self.versions = json.loads(first)["versions"]

    def measure(self, name):
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        return json.loads(answer) if answer else {"error": "the peer ended"}

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def bench(arguments):
    command = [a.vortex, "bench", *arguments, "--device", "cuda"] + (["-m", a.model] if a.model else [])
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        return {"error": said[-1][:300] if said else f"exit {done.returncode}"}
    return json.loads(done.stdout)


def round_of(rows, peer, until):
    """Every row once, ours then theirs. What several rows read off one run is run once."""
    ours, theirs = {}, {}
    for row in rows:
        if time.monotonic() > until:
            break
        key = " ".join(row.bench)
        if key not in ours:
            ours[key] = bench(row.bench)
            say(f"ours {key}", ours[key])
        for name in row.peers if peer else ():
            if name in theirs or name.startswith("evaluation/") and not a.evaluations:
                continue
            theirs[name] = peer.measure(name)
            say(f"peer {name}", theirs[name])
    return {"ours": ours, "peer": theirs}


def say(what, result):
    ms = result.get("median_ms", 1e3 * result.get("median_s", 0))
    print(f"{what:48} " + (result["error"] if "error" in result else f"{ms:.3f} ms"), file=sys.stderr, flush=True)


def times_of(row, rounds):
    """Milliseconds of ours in each round, and of each peer; None where a round has none."""
    ours, theirs = [], {name: [] for name in row.peers}
    for r in rounds:
        result = r["ours"].get(" ".join(row.bench), {})
        ours.append(row.take(result) if result and "error" not in result else None)
        for name in row.peers:
            found = r["peer"].get(name, {}).get("median_ms")
            if row.name == "evaluations":
                kind = name.split("/")[1]
                one = r["peer"].get(f"block/37810/{kind}", {}).get("median_ms")
                found = EVALUATIONS * found if found else EVALUATIONS * BLOCKS * one if one else None
            theirs[name].append(found)
    return ours, theirs


def median(values):
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


def shown(ms, unit):
    if ms is None:
        return "—"
    return f"{ms / 1e3:.2f} s" if unit == "s" else f"{ms:.2f} ms" if ms < 100 else f"{ms:.1f} ms"


def line(row, rounds):
    """The table's line, and whether what is required holds (None: not measured)."""
    ours, theirs = times_of(row, rounds)
    time_ms, scale = median(ours), 1e3 if row.unit == "s" else 1
    peers, ratios = [], []
    for name in row.peers:
        ratio = median([o / t for o, t in zip(ours, theirs[name]) if o and t])
        if ratio is not None:
            peers.append(f"{name.split('/')[-1]} {shown(median(theirs[name]), row.unit)}" if len(row.peers) > 1 else shown(median(theirs[name]), row.unit))
            ratios.append(ratio)
    verdict = None
    if time_ms is not None:
        verdict = row.required is None or time_ms <= row.required * scale
        if row.ratio and ratios:
            verdict = verdict and ratios[0] <= row.ratio
        elif row.ratio and not row.required:
            verdict = None
    asks = [f"≤ {row.required:g} {row.unit}"] if row.required else []
    asks += [f"≤ {row.ratio:g} of {row.peers[0].split('/')[-1]}" if len(row.peers) > 1 else f"≤ {row.ratio:g} of the peer"] if row.ratio else []
    goal = f"≤ {row.goal:g} {row.unit}" if row.goal else f"≤ {row.goal_ratio:g} of the peer" if row.goal_ratio else "—"
    cells = [row.title, shown(time_ms, row.unit), ", ".join(peers) or "—", ", ".join(f"{r:.2f}" for r in ratios) or "—", " and ".join(asks), goal,
             {True: "yes", False: "**no**", None: "not measured"}[verdict], f"`vortex bench {' '.join(row.bench)}`"]
    return "| " + " | ".join(cells) + " |", verdict


def memory_of(rounds):
    """What sampling took beside the weights, and its plan."""
    for result in (r["ours"].get(" ".join(DENOISER), {}) for r in rounds):
        if "stage_bytes" in result:
            taken, planned = result["stage_bytes"], result["stage_bytes_planned"]
            return [f"peak device memory of sampling beyond the weights, tables of the request included: {taken / 1e9:.3f} GB, planned {planned / 1e9:.3f} GB "
                    f"({100 * (planned / taken - 1):+.1f} %)"]
    return []


def bits():
    """A line about the latents of runs that must be equal, and whether they are."""
    runs = [bench(arguments) for arguments in BITS]
    failed = [r["error"] for r in runs if "error" in r]
    if failed:
        return [f"latents with and without graphs: {failed[0]}"], False
    hashes = {json.dumps(x["latents_sha256"], sort_keys=True) for r in runs for x in r["runs"]}
    return ["SHA-256 of the latents, two runs with graphs and one without: " + ("the same" if len(hashes) == 1 else f"**{len(hashes)} different ones**")], len(hashes) == 1


def main():
    rows = [r for r in ROWS if not a.only or r.name in a.only]
    if not rows:
        sys.exit("check_speed_gpu: no such row (--list)")
    if not os.access(a.vortex, os.X_OK):
        sys.exit(f"check_speed_gpu: {a.vortex} is no program (make check-gpu builds it)")
    peer = None if a.no_peer else Peer()
    until = time.monotonic() + a.seconds
    rounds = []
    for n in range(a.rounds):
        if time.monotonic() > until:
            break
        rounds.append(round_of(rows, peer, until))
    if peer:
        peer.close()
    version = subprocess.run([a.vortex, "--version"], capture_output=True, text=True).stdout.strip().replace("\n", ", ")
    print(f"{version}; " + (", ".join(f"{k} {v}" for k, v in peer.versions.items()) if peer else "no peer") + f"; {len(rounds)} rounds, in turn\n")
    print("| figure | ours | peer | ratio | required | goal | holds | command |\n|---|---|---|---|---|---|---|---|")
    verdicts = []
    for row in rows:
        text, verdict = line(row, rounds)
        verdicts.append(verdict)
        print(text)
    lines, same = memory_of(rounds), True
    if a.bits:
        said, same = bits()
        lines += said
    print("\n" + "\n".join(lines))
    failed = [f"{side} {k}: {v['error']}" for r in rounds for side in ("ours", "peer") for k, v in r[side].items() if "error" in v]
    if failed:
        print("\nfailed:\n" + "\n".join(f"- {f}" for f in dict.fromkeys(failed)))
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps({"version": version, "peer": peer.versions if peer else None, "rounds": rounds}) + "\n")
    return bool(failed) or not same or (False in verdicts and not a.report)


sys.exit(main())
