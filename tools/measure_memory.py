#!/usr/bin/env python3
"""Holds the plan's memory to what a run really takes.

    tools/measure_memory.py VORTEX MODEL [--interval MS] [--limit PERCENT] [generate's options ...]

Runs `vortex generate`, reads RssAnon of the process every few milliseconds, and compares each stage's largest value, less
the value before the first stage began (the program and the opened model; the decoded conditions are planned), with
`vortex plan --json`. With `--device cuda` among the options it is the device's memory instead: the largest that sampling took (peak_bytes of
the result; embeddings of a prompt come from a file, random ones of --text-rows x --text-width, so no text encoder is there) less the weights,
with the plan of that stage; --tables are bytes of modulation tables, taken off for one more figure. Exit 1 if the peak is further from the plan than --limit percent. A stage shorter than the interval is shown without a verdict.
"""
import argparse
import array
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time


def rss_anon(pid):
    """Bytes of anonymous memory, None once the process is gone."""
    try:
        with open(f"/proc/{pid}/status") as f:
            for line in f:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def sample(pid, interval, samples, stop):
    while not stop.is_set():
        value = rss_anon(pid)
        if value is None:
            return
        samples.append((time.monotonic(), value))
        time.sleep(interval)


def run(command, interval):
    """[(time, bytes)] and [(time, stage)] of one run."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    samples, stages, said, stop = [], [], [], threading.Event()
    thread = threading.Thread(target=sample, args=(process.pid, interval, samples, stop))
    thread.start()
    for line in process.stderr:
        now = time.monotonic()
        if line.startswith("{"):
            stage = json.loads(line)["stage"]
            if not stages or stages[-1][1] != stage:
                stages.append((now, stage))
        else:
            said.append(line)
    status = process.wait()
    stop.set()
    thread.join()
    if status:
        sys.exit(f"{' '.join(command)}: exit {status}\n{''.join(said)}")
    return samples, stages


def write_embeds(path, rows, width):
    """A file for --prompt-embeds: random bfloat16 of about unit size, every row a text row."""
    draw, values, tags = random.Random(440420), array.array("H"), array.array("i", [1] * rows)
    for _ in range(rows * width):
        values.append(struct.unpack("<I", struct.pack("<f", draw.gauss(0, 1)))[0] >> 16)
    split = 2 * rows * width
    head = json.dumps({"prompt_embeds": {"dtype": "BF16", "shape": [rows, width], "data_offsets": [0, split]},
                       "text_token_tags": {"dtype": "I32", "shape": [rows], "data_offsets": [split, split + 4 * rows]}}).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + values.tobytes() + tags.tobytes())


def object_of(command):
    """The JSON that a program prints, which must succeed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def on_device(o, request):
    """Sampling alone, planned and measured."""
    with tempfile.TemporaryDirectory() as folder:
        common = ["-m", o.model] + request
        if "--prompt-embeds" not in request:
            embeds = os.path.join(folder, "embeds.safetensors")
            write_embeds(embeds, o.text_rows, o.text_width)
            common += ["--prompt-embeds", embeds]
        plan = object_of([o.vortex, "plan", "--json"] + common)
        run = object_of([o.vortex, "generate", "--save-latents", os.path.join(folder, "latents.safetensors"), "--json", "-q", "-y"] + common)
    stage = next(s for s in plan["stages"] if s["name"] == "denoise")
    peak, weights, planned = run["peak_bytes"]["device"], stage["device_weight_bytes"], stage["device_bytes"]
    beyond = peak - weights
    return {"rows": run["rows"]["total"], "peak_bytes": peak, "weight_bytes": weights, "beyond_weights_bytes": beyond, "planned_bytes": planned,
            "beyond_weights_and_tables_bytes": beyond - o.tables, "error_percent": round(100 * (planned - beyond) / beyond, 2)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("vortex")
    p.add_argument("model")
    p.add_argument("--interval", type=float, default=10, metavar="MS")
    p.add_argument("--limit", type=float, default=10, metavar="PERCENT")
    p.add_argument("--json", action="store_true", help="one object instead of a table")
    p.add_argument("--tables", type=int, default=0, metavar="BYTES")
    p.add_argument("--text-rows", type=int, default=100, metavar="N")
    p.add_argument("--text-width", type=int, default=5120, metavar="N")
    o, request = p.parse_known_args()
    if "--device" in request and request[request.index("--device") + 1].startswith("cuda"):
        found = on_device(o, request)
        if o.json:
            print(json.dumps(found))
        else:
            print(f"sampling, {found['rows']} rows: planned {found['planned_bytes']:,}  measured {found['beyond_weights_bytes']:,} beyond "
                  f"{found['weight_bytes']:,} of weights  {found['error_percent']:+.1f} %  (less tables {found['beyond_weights_and_tables_bytes']:,})")
        return abs(found["error_percent"]) > o.limit
    common = ["-m", o.model, "-p", "A lighthouse at dawn."] + request
    plan = json.loads(subprocess.run([o.vortex, "plan", "--json"] + common, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    planned = {s["name"]: s["host_bytes"] for s in plan["stages"]}
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "clip.mp4")
        samples, stages = run([o.vortex, "generate", "--progress", "json", "-o", output] + common, o.interval / 1000)
    before = [v for t, v in samples if t < stages[0][0]]
    base = (before[-1] if before else samples[0][1]) - plan.get("condition_bytes", 0)
    peak = max(v for _, v in samples) - base
    ends = [t for t, _ in stages[1:]] + [samples[-1][0] + 1]
    rows = []
    for (began, name), end in zip(stages, ends):
        inside = [v for t, v in samples if began <= t < end]
        if name in planned:
            rows.append((name, planned[name], max(inside) - base if len(inside) > 1 else None))
    error = 100 * (plan["host_bytes"] - peak) / peak
    if o.json:
        print(json.dumps({"base_bytes": base, "peak_bytes": peak, "planned_bytes": plan["host_bytes"], "error_percent": round(error, 2), "stages": [dict(zip(("name", "planned_bytes", "peak_bytes"), r)) for r in rows]}))
    else:
        for name, want, found in rows:
            print(f"{name:14} planned {want:12}  measured " + (f"{found:12}  {100 * (want - found) / found if found else 0:+.1f} %" if found is not None else "too short"))
        print(f"{'peak':14} planned {plan['host_bytes']:12}  measured {peak:12}  {error:+.1f} %   (before the request {base})")
    return abs(error) > o.limit


if __name__ == "__main__":
    sys.exit(main())
