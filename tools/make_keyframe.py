#!/usr/bin/env python3
"""The picture that `make demo` gives as first frame: an evening sky over the sea, drawn from formulas.

    make_keyframe.py examples/keyframe.png
"""
import math
import struct
import sys
import zlib

WIDTH, HEIGHT, HORIZON = 96, 64, 40


def mix(a, b, t):
    return tuple(x + (y - x) * t for x, y in zip(a, b))


def pixel(x, y):
    if y < HORIZON:
        colour = mix((40, 60, 140), (250, 170, 90), (y / HORIZON) ** 1.5)
        sun = math.hypot(x - 66, y - 30)
        return mix((255, 245, 200), colour, min(1.0, max(0.0, (sun - 6) / 10)) ** 0.5)
    depth = (y - HORIZON) / (HEIGHT - HORIZON)
    colour = mix((120, 130, 140), (10, 60, 90), depth)
    return mix((250, 200, 130), colour, min(1.0, abs(x - 66) / (4 + 12 * depth)) ** 0.7)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def main():
    rows = b"".join(b"\0" + bytes(round(v) for x in range(WIDTH) for v in pixel(x, y)) for y in range(HEIGHT))
    # every row as its difference to the one above: smooth pictures pack better that way
    stride = 1 + 3 * WIDTH
    packed = b""
    for y in range(HEIGHT):
        row, above = rows[y * stride + 1:(y + 1) * stride], rows[(y - 1) * stride + 1:y * stride] if y else bytes(3 * WIDTH)
        packed += b"\2" + bytes((a - b) & 255 for a, b in zip(row, above))
    with open(sys.argv[1], "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0))
                + chunk(b"IDAT", zlib.compress(packed, 9)) + chunk(b"IEND", b""))


if __name__ == "__main__":
    main()
