#!/usr/bin/env python3
"""Holds the plan's memory to what a run really takes.

    tools/measure_memory.py VORTEX MODEL [--interval MS] [--limit PERCENT] [generate's options ...]

Runs `vortex generate`, reads RssAnon of the process every few milliseconds, and compares each stage's largest value, less
the value before the first stage began (the program and the opened model; the decoded conditions are planned), with
`vortex plan --json`. Exit 1 if the peak is further from the plan than --limit percent. A stage shorter than the interval is shown without a verdict.
"""
import argparse
import json
import os
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


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("vortex")
    p.add_argument("model")
    p.add_argument("--interval", type=float, default=10, metavar="MS")
    p.add_argument("--limit", type=float, default=10, metavar="PERCENT")
    p.add_argument("--json", action="store_true", help="one object instead of a table")
    o, request = p.parse_known_args()
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
