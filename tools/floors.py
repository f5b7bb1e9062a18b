#!/usr/bin/env python3
"""Holds the includes to the floors: a file of src/ROOM may include its own room and the rooms named here for it."""
import os, re, sys

BELOW = {"base": "", "tensor": "base", "device": "base tensor", "weights": "base tensor device", "media": "base tensor",
         "text": "base tensor device weights", "denoiser": "base tensor device weights", "vae": "base tensor device weights",
         "sampling": "base tensor device", "demo": "base tensor weights",
         "pipeline": "base tensor device weights media text denoiser vae sampling demo", "cli": ""}
bad = []
for folder, _, files in os.walk("src"):
    room = folder.split(os.sep)[1] if os.sep in folder else ""
    for name in sorted(files):
        if not name.endswith((".c", ".h", ".inc")):
            continue
        path = os.path.join(folder, name)
        for line in open(path, encoding="utf-8"):
            m = re.match(r'\s*#include "([a-z]+)/', line)
            if m and m[1] != "vortex" and m[1] != room and m[1] not in BELOW.get(room, "").split():
                bad.append(f"{path}: {line.strip()}: floor {room} must not know {m[1]}")
if bad:
    sys.exit("\n".join(bad))
print("lint: every include looks down")
