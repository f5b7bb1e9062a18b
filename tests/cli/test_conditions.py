#!/usr/bin/env python3
"""Keyframes, references and `vortex encode` as a user meets them: what is refused and by which words, that the same picture
given in another way gives the same bits, that partitions and tasks go together, and that conditions are encoded once.

Pictures, sounds and videos are written here byte by byte, so that what they hold is known without another program."""
import json
import math
import os
import random
import signal
import struct
import time
import unittest
import wave
import zlib

from harness import GOLDEN, Case, floats, main, model, read_tensors, run, start, tree, write_tensors

SMALL = ["--size", "96x64", "--frames", "22", "--steps", "1", "--seed", "1"]
EDGES = ["--reference-short-edge", "64", "--canvas-short-edge", "64", "--canvas-max-pixels", "8192"]
MEDIA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/media/input")


def names_of(folder):
    """Names of all tensors below a folder."""
    found = set()
    for root, _, files in os.walk(folder):
        for name in files:
            if name.endswith(".safetensors"):
                with open(os.path.join(root, name), "rb") as f:
                    found.update(json.loads(f.read(struct.unpack("<Q", f.read(8))[0])))
    return found


def find_root():
    """A folder with both partitions and the encoders: the demo's as soon as it has them, else the reference's data."""
    root = os.path.dirname(model())
    part = os.path.join(root, "FL2VA")
    if os.path.isdir(os.path.join(root, "Ref2VA")) and os.path.isdir(part):
        vae, audio, text = (names_of(os.path.join(part, n)) for n in ("video_vae", "audio_vae", "text_encoder"))
        if any(n.startswith("encoder.") for n in vae) and any(n.startswith("encoder.") for n in audio) and any("visual" in n for n in text):
            return root
    return os.path.join(GOLDEN, "official") if GOLDEN else None


_root = []


def root():
    if not _root:
        _root.append(find_root())
    if not _root[0]:
        raise unittest.SkipTest("the demo model has no encoders, and VORTEX_GOLDEN_DATA is not set")
    return _root[0]


# ---- files, byte by byte ----
def pixel(x, y, t=0):
    return ((x * 7 + t * 11) % 256, (y * 5 + x) % 256, (x * y + 3 * t) % 256)


def picture(width, height, t=0):
    return b"".join(bytes(pixel(x, y, t)) for y in range(height) for x in range(width))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_bytes(width, height, rgb, colour=2, more=b""):
    row = width * (4 if colour == 6 else 3)
    lines = b"".join(b"\0" + rgb[y * row:(y + 1) * row] for y in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)) + more + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def ebml(name, *parts):
    body = b"".join(parts)
    return bytes.fromhex(name) + struct.pack(">Q", len(body) | 1 << 56) + body


def number(name, value, size=8):
    return ebml(name, value.to_bytes(size, "big"))


def mkv_bytes(width, height, frames, times, end, sound=None, rate=32000, channels=1):
    """Raw RGB frames in Matroska at these milliseconds; the last one lasts until `end`. `sound`: 16-bit samples, interleaved."""
    tracks = []
    if frames:
        tracks.append(ebml("ae", number("d7", 1), number("73c5", 1), number("83", 1), ebml("86", b"V_UNCOMPRESSED"),
                           ebml("e0", number("b0", width), number("ba", height), ebml("2eb524", b"RGB\x18"))))
    if sound is not None:
        tracks.append(ebml("ae", number("d7", 2), number("73c5", 2), number("83", 2), ebml("86", b"A_PCM/INT/LIT"),
                           ebml("e1", ebml("b5", struct.pack(">d", rate)), number("9f", channels), number("6264", 16))))
    blocks = []
    for i, (at, rgb) in enumerate(zip(times, frames)):
        lasts = (times[i + 1] if i + 1 < len(times) else end) - at
        blocks.append((at, ebml("a0", ebml("a1", b"\x81" + struct.pack(">hB", at, 0) + rgb), number("9b", lasts))))
    if sound is not None:
        step = 2 * channels * rate // 20
        for i in range(0, len(sound), step):
            at = i // (2 * channels) * 1000 // rate
            blocks.append((at, ebml("a3", b"\x82" + struct.pack(">hB", at, 0x80) + sound[i:i + step])))
    blocks.sort(key=lambda b: b[0])
    head = ebml("1a45dfa3", number("4286", 1), number("42f7", 1), number("42f2", 4), number("42f3", 8), ebml("4282", b"matroska"), number("4287", 4), number("4285", 2))
    info = ebml("1549a966", number("2ad7b1", 1000000), ebml("4489", struct.pack(">d", float(end))), ebml("4d80", b"t"), ebml("5741", b"t"))
    return head + ebml("18538067", info, ebml("1654ae6b", *tracks), ebml("1f43b675", number("e7", 0), *[b for _, b in blocks]))


def tone(seconds, rate=32000, channels=1):
    return b"".join(struct.pack("<h", int(9000 * math.sin(2 * math.pi * 440 * i / rate + c))) for i in range(int(seconds * rate + 0.5)) for c in range(channels))


class Conditions(Case):
    def put(self, name, data):
        with open(os.fsencode(self.path(name)), "wb") as f:
            f.write(data)
        return self.path(name)

    def png(self, name="a.png", width=48, height=32, t=0):
        return self.put(name, png_bytes(width, height, picture(width, height, t)))

    def wav(self, name="a.wav", seconds=0.5, rate=32000, channels=1):
        with wave.open(self.path(name), "wb") as w:
            w.setnchannels(channels)
            w.setsampwidth(2)
            w.setframerate(rate)
            w.writeframes(tone(seconds, rate, channels))
        return self.path(name)

    def mkv(self, name="a.mkv", count=24, width=48, height=32, sound=None, channels=1, times=None, end=None):
        times = times or [round(i * 1000 / 24) for i in range(count)]
        end = end or round(count * 1000 / 24)
        return self.put(name, mkv_bytes(width, height, [picture(width, height, t) for t in range(count)], times, end, sound, channels=channels))

    def samples(self, name="a.safetensors", frames=None, width=48, height=32, sound=None, fps="24", rate="32000", dtype="U8"):
        tensors, metadata = {}, {}
        if frames:
            tensors["pixels"] = (dtype, [len(frames), height, width, 3], b"".join(frames))
            metadata["fps"] = fps
        if sound:
            tensors["waveform"] = ("F32", [len(sound), len(sound[0])], b"".join(floats(c) for c in sound))
            metadata["sample_rate"] = rate
        write_tensors(self.path(name), tensors, metadata)
        return self.path(name)

    def made(self, *args, model=None, prompt="a"):
        """Hashes of the latents of a small clip."""
        r = self.ok("generate", "-m", model or root(), *SMALL, "-p", prompt, "-q", "--json", "--save-latents", self.path("latents"), "-y", *args)
        return r.json["latents_sha256"]

    def plan(self, *args, prompt="a"):
        return self.ok("plan", "-m", root(), *SMALL, *EDGES, "-p", prompt, "--json", *args).json

    def no(self, code, field, *args, command="plan", **kw):
        r = self.refused(code, command, "-m", root(), *SMALL, *EDGES, "-p", "a", *args, **kw)
        self.assertEqual(r.json["error"]["field"], field, str(r))
        return r.json["error"]["message"]


class BadInput(Conditions):
    def test_numbers_of_references(self):
        a, v, s = self.png(), self.mkv(count=14), self.wav()
        self.assertIn("9", self.no("VX-2003", "ref", *["--ref", a] * 10))
        self.assertIn("3", self.no("VX-2003", "ref", *["--ref", v] * 4))
        self.assertIn("3", self.no("VX-2003", "ref", "--ref", a, *["--ref", s] * 4))
        self.assertIn("12", self.no("VX-2003", "ref", *["--ref", a] * 9, *["--ref", v] * 3, "--ref", s))
        p = self.plan(*["--ref", a] * 9, *["--ref", v] * 3)  # the most there may be
        self.assertEqual(len(p["conditions"]), 12)
        p = self.plan("--ref", a, *["--ref", s] * 3)
        self.assertEqual([c["kind"] for c in p["conditions"]], ["image"] + ["audio"] * 3)

    def test_sound_alone(self):
        s = self.wav()
        self.assertIn("alone", self.no("VX-2005", "ref", "--ref", s))
        self.no("VX-2005", "ref", "--ref", "audio:" + s, "--ref", s)
        self.no("VX-2005", "ref", "--ref", "audio:" + self.mkv(sound=tone(0.5)))

    def test_lengths(self):
        """Public reports P10, P34, P38."""
        a = self.png()
        self.assertIn("13", self.no("VX-2003", "ref", "--ref", self.mkv("one.mkv", count=1)))
        for count in (2, 4, 5, 12):
            self.assertIn(f"{count} frames", self.no("VX-2003", "ref", "--ref", self.mkv("short.mkv", count=count)))
        self.assertEqual(self.plan("--ref", self.mkv("least.mkv", count=13))["conditions"][0]["frames"], 13)
        self.assertIn("15", self.no("VX-2003", "ref", "--ref", a, "--ref", self.wav("long.wav", 16, 8000)))
        self.assertIn("15", self.no("VX-2003", "ref", "--ref", self.mkv("long.mkv", 384, 32, 32)))
        seven = [picture(32, 32)] * 168
        self.assertIn("15", self.no("VX-2003", "ref", *["--ref", self.samples("seven.safetensors", seven, 32, 32)] * 3))  # 21 s in all
        self.assertIn("15", self.no("VX-2003", "ref", "--ref", a, *["--ref", self.wav("eight.wav", 8, 8000)] * 2))
        self.no("VX-2003", "ref", "--ref", a, "--ref", self.wav("long.wav", 15.5, 8000))
        self.plan("--ref", a, "--ref", self.wav("fifteen.wav", 15.008, 8000))
        self.plan("--ref", a, *["--ref", self.wav("half.wav", 7.504, 8000)] * 2)
        self.plan("--ref", self.mkv("fifteen.mkv", 360, 32, 32, end=15008))
        # Shorter than the clip is normal; less than one latent of 800 samples is nothing.
        self.assertEqual(self.plan("--ref", a, "--ref", self.wav("latent.wav", 0.025))["conditions"][1]["audio_latents"], 1)
        self.no("VX-2003", "ref", "--ref", a, "--ref", self.put("less.wav", self.wav_of(799)))

    def wav_of(self, samples):
        self.wav("some.wav", samples / 32000)
        with open(self.path("some.wav"), "rb") as f:
            return f.read()

    def test_channels(self):
        a = self.png()
        self.assertIn("3 channels", self.no("VX-2003", "ref", "--ref", a, "--ref", self.wav("three.wav", channels=3)))
        self.no("VX-2003", "ref", "--ref", self.mkv("three.mkv", sound=tone(0.5, channels=3), channels=3))
        loud = [[0.5] * 1600] * 3
        self.assertIn("3 channels", self.no("VX-2003", "ref", "--ref", a, "--ref", self.samples("three.safetensors", sound=loud)))
        for channels in (1, 2):
            self.plan("--ref", a, "--ref", self.wav("ok.wav", channels=channels))

    def test_ratios(self):
        for size in ((160, 32), (32, 160)):
            p = self.png("5.png", *size)
            for flags, field in ((["--ref"], "ref"), (["--first"], "keyframe"), (["--first", self.png(), "--last"], "keyframe")):
                self.assertIn("1:4..4:1", self.no("VX-2003", field, *flags, p))
            self.assertIn("1:4..4:1", self.no("VX-2003", "ref", "--ref", self.mkv("5.mkv", 14, *size)))
        self.plan("--ref", self.png("4.png", 128, 32))
        self.plan("--first", self.png("4.png", 32, 128))

    def test_files_that_are_not_what_they_should_be(self):
        a, m = self.png(), self.mkv(count=30)
        with open(m, "rb") as f:
            whole = f.read()
        with open(self.wav(), "rb") as f:
            sound = f.read()
        with open(a, "rb") as f:
            good = f.read()
        hurt = bytearray(good)
        hurt[len(good) // 2] ^= 255
        bomb = chunk(b"IHDR", struct.pack(">IIBBBBB", 30000, 30000, 8, 2, 0, 0, 0))
        files = [
            self.put("empty.png", b""), self.put("text.png", b"This is no picture.\n" * 20), self.put("cut.png", good[:-60]), self.put("hurt.png", bytes(hurt)),
            self.put("bomb.png", b"\x89PNG\r\n\x1a\n" + bomb + chunk(b"IDAT", zlib.compress(b"\0" * 90003)) + chunk(b"IEND", b"")),
            self.put("cut.mkv", whole[:len(whole) // 2]), self.put("cut.wav", sound[:len(sound) // 2]), os.path.join(MEDIA, "damaged.mkv"), os.path.join(MEDIA, "theora.ogv"),
            self.put("empty.safetensors", b""), self.samples("none.safetensors"), self.put("header.safetensors", struct.pack("<Q", 1 << 40) + b"{}"),
        ]
        for path in files:
            with self.subTest(path=path):
                self.no("VX-7002", "ref", "--ref", path)
                if path.endswith(".png"):
                    self.no("VX-7002", "keyframe", "--first", path)
        with self.subTest("the message says what there is"):
            self.assertIn("30000x30000", self.no("VX-7002", "ref", "--ref", self.path("bomb.png")))
            self.assertIn("empty", self.no("VX-7002", "ref", "--ref", self.path("empty.png")))

    def test_files_that_cannot_be_read(self):
        a = self.png()
        os.mkdir(self.path("folder.png"))
        os.symlink("nowhere", self.path("link.png"))
        for name in ("none.png", "folder.png", "link.png"):
            self.no("VX-7001", "ref", "--ref", a, "--ref", self.path(name))
            self.no("VX-7001", "keyframe", "--last", self.path(name))
        if os.geteuid():
            os.chmod(a, 0)
            self.no("VX-7001", "ref", "--ref", a)

    def test_kinds_told_wrongly_and_streams_that_are_missing(self):
        a, m, s = self.png(), self.mkv(), self.wav()
        for told in (["image:" + m], ["image:" + s], ["video:" + a], ["video:" + s, "--ref", a], ["audio:" + a], [a, "--ref", "audio:" + m]):
            self.no("VX-7002", "ref", "--ref", *told)
        for flags in (["--first", m], ["--last", s], ["--keyframe", "4=" + m]):
            self.no("VX-7002", "keyframe", *flags)
        self.no("VX-7001", "ref", "--ref", "text:" + a)  # no kind: a name with a colon
        p = self.plan("--ref", a, "--ref", "audio:" + self.mkv("sounding.mkv", sound=tone(0.5)))
        self.assertEqual([c["kind"] for c in p["conditions"]], ["image", "audio"])

    def test_frames_of_keyframes(self):
        a = self.png()
        for frame in ("22", "-23", "362", "-9223372036854775808"):
            self.assertIn("0..21", self.no("VX-2003", "keyframe", "--keyframe", f"{frame}={a}"))
        # Pixel frames 0 | 1-4 | 5-8 | 9-12 | 13-16 | 17 | 18-21 share a latent frame.
        for one, other in ((0, 0), (1, 4), (5, 8), (9, 12), (13, 16), (18, 21), (18, -1), (17, -5)):
            self.assertIn("one latent frame", self.no("VX-2005", "keyframe", "--keyframe", f"{one}={a}", "--keyframe", f"{other}={a}"))
        self.no("VX-2005", "keyframe", "--first", a, "--keyframe", "0=" + a)
        self.no("VX-2005", "keyframe", "--last", a, "--keyframe", "20=" + a)
        for one, other in ((0, 1), (4, 5), (8, 9), (12, 13), (16, 17), (17, 18)):
            p = self.plan("--keyframe", f"{other}={a}", "--keyframe", f"{one}={a}")
            self.assertEqual([c["frame"] for c in p["conditions"]], [one, other])  # by frame, not as given
        for bad in (a, "=" + a, "1.5=" + a, "x=" + a, "0="):
            self.no("VX-2002", "keyframe", "--keyframe", bad)

    def test_nothing_is_loaded(self):
        """From the checkpoint's names alone: its weights are gone, and the refusal is the same."""
        broken = self.path("model")
        for part in ("FL2VA", "Ref2VA"):
            for where, _, files in os.walk(os.path.join(root(), part)):
                here = os.path.join(broken, part, os.path.relpath(where, os.path.join(root(), part)))
                os.makedirs(here, exist_ok=True)
                for name in files:
                    if name.endswith(".safetensors"):
                        open(os.path.join(here, name), "wb").close()
                    else:
                        os.symlink(os.path.join(where, name), os.path.join(here, name))
        a = self.png()
        cases = [("VX-2003", ["--ref", a] * 10), ("VX-2005", ["--ref", self.wav()]), ("VX-2003", ["--first", self.png("5.png", 160, 32)]),
                 ("VX-7002", ["--first", self.put("text.png", b"text")]), ("VX-2002", ["--task", "v2va", "--first", a]),
                 ("VX-2003", ["--keyframe", "22=" + a]), ("VX-2005", ["--first", a, "--keyframe", "0=" + a])]
        for code, flags in cases:
            began = time.monotonic()
            self.refused(code, "generate", "-m", broken, *SMALL, *EDGES, "-p", "a", "-o", self.path("a.mp4"), *flags)
            self.assertLess(time.monotonic() - began, 10)
        r = run("generate", "-m", broken, *SMALL, *EDGES, "-p", "a", "-o", self.path("a.mp4"), "--first", a)
        self.assertEqual(r.code, 3, f"the weights are gone: {r}")


    def test_sizes_of_no_canvas(self):
        """Public report P01: refused by the request alone, with or without a keyframe, and with the nearest size."""
        a = self.png()
        for flags in ([], ["--first", a], ["--ref", a]):
            r = self.refused("VX-2003", "plan", "-m", root(), "--size", "496x640", "--frames", "22", "-p", "a", *flags)
            self.assertEqual(r.json["error"]["field"], "size")
            self.assertIn("512x640", r.json["error"]["remedy"])
            self.ok("plan", "-m", root(), "--size", "512x640", "--frames", "22", "--steps", "1", "-p", "a", "-q", *flags, *EDGES)

    def test_seconds(self):
        """Public report P02: aligned first, then one range; what was made of the request is said."""
        for seconds, frames in (("4", 107), ("15", 362), ("5", 124)):
            p = self.ok("plan", "-m", root(), "--size", "64x64", "--seconds", seconds, "--steps", "1", "-p", "a", "--json", "--last", self.png()).json
            self.assertEqual((p["frames"], p["conditions"][0]["frame"]), (frames, frames - 1))
            self.assertTrue(any("aligned" in w for w in p["warnings"]), p["warnings"])

    def test_prompts_with_conditions(self):
        """Public report P15; and pads typed by hand would be counted as pictures (P13)."""
        a = self.png()
        for flags in (["--first", a], ["--ref", a, *EDGES]):
            for prompt in ("", "<|image_pad|>", "a <|video_pad|> b"):
                self.refused("VX-2007", "plan", "-m", root(), *SMALL, "-p", prompt, *flags)
            self.refused("VX-2006", "plan", "-m", root(), *SMALL, "-p", "a", *flags, "--guidance-scale", "7")
            self.refused("VX-2006", "plan", "-m", root(), *SMALL, "-p", "a", *flags, "--negative-prompt", "b")

    def test_tiles_are_no_choice(self):
        """Public report P31."""
        for option in ("--tile-size", "--vae-tile-size", "--tile-overlap"):
            self.refused("VX-2001", "plan", "-m", root(), *SMALL, "-p", "a", option, "512")

    def test_a_sound_of_many_hours(self):
        """Public report P35: hours in a hole of the file; nobody reads them to know that they are too long."""
        size = 3 << 30
        head = b"RIFF" + struct.pack("<I", size + 36) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8) + b"data" + struct.pack("<I", size)
        path = self.put("hours.wav", head)
        os.truncate(path, len(head) + size)
        began = time.monotonic()
        self.no("VX-2003", "ref", "--ref", self.png(), "--ref", path)
        self.assertLess(time.monotonic() - began, 10)
        # A header that says less than there is: only what it says is there.
        short = b"RIFF" + struct.pack("<I", 36 + 8000) + head[8:-4] + struct.pack("<I", 8000)
        path = self.put("short.wav", short)
        os.truncate(path, len(short) + (1 << 20))
        p = self.plan("--ref", self.png(), "--ref", path)
        self.assertEqual(p["conditions"][1]["audio_latents"], 37)  # of the clip, 22/24 s


class Tasks(Conditions):
    def test_every_task_with_every_input(self):
        a, b = self.png(), self.png("b.png", t=5)
        inputs = {
            (): "t2va",
            ("--first", a): "i2va",
            ("--last", a): "l2va",
            ("--first", a, "--last", b): "fl2va",
            ("--keyframe", "9=" + a): "fl2va",
            ("--ref", a): "ref2va",
        }
        words = {"t2va": "no keyframes and no references", "i2va": "frame 0", "l2va": "last frame", "fl2va": "one or more keyframes", "ref2va": "one or more references"}
        for given, natural in inputs.items():
            self.assertEqual(self.plan(*given)["task"], natural)
            for task in words:
                with self.subTest(given=given, task=task):
                    if task == natural or (task == "fl2va" and natural in ("i2va", "l2va")):
                        self.assertEqual(self.plan(*given, "--task", task)["task"], natural)
                    else:
                        self.assertIn(words[task], self.no("VX-2005", "task", *given, "--task", task))
        message = self.no("VX-2002", "task", "--task", "v2va")
        for task in words:
            self.assertIn(task, message)
        self.no("VX-2006", "conditions", "--first", a, "--ref", b)

    def test_absent_means_absent(self):
        """Public reports P07, P08, P09: rows reserved are rows delivered, and nobody fills in what was not given."""
        a, b = self.png(), self.png("b.png", t=5)
        for flags, count in (([], 0), (["--first", a], 1), (["--last", a], 1), (["--first", a, "--last", b], 2)):
            self.ok("generate", "-m", root(), *SMALL, "-p", "a", "-q", "--dump-tensors", self.path("d"), "-y", *flags)
            t, _ = read_tensors(self.path("d"))
            tags = struct.unpack(f"<{t['layout.token_tags'][1][0]}i", t["layout.token_tags"][2])
            self.assertEqual(t["first_call.hidden_states"][1][0], (7 + count) * 6)
            self.assertEqual(sum(n.startswith("condition_latents.") for n in t), count)
            self.assertEqual(len(tags), t["prompt_embeds"][1][0] + 2 * 37 + (7 + count) * 6)
        p = self.plan("--ref", a, "--ref", b)
        self.assertEqual(p["rows"]["condition"], sum(c["width"] * c["height"] // 1024 for c in p["conditions"]))

    def test_the_wrong_partition(self):
        a = self.png()
        fl, ref = (os.path.join(root(), n) for n in ("FL2VA", "Ref2VA"))
        for part, flags in ((ref, []), (ref, ["--first", a]), (ref, ["--task", "t2va"]), (fl, ["--ref", a]), (fl, ["--ref", a, "--task", "ref2va"])):
            r = self.refused("VX-3004", "plan", "-m", part, *SMALL, *EDGES, "-p", "a", *flags)
            self.assertEqual(r.json["error"]["field"], "task", str(r))
        for part, variant, flags in ((fl, "ref2va", []), (ref, "fl2va", ["--ref", a])):
            self.refused("VX-3004", "plan", "-m", part, "--variant", variant, *SMALL, *EDGES, "-p", "a", *flags)
        self.ok("plan", "-m", fl, "--variant", "fl2va", *SMALL, "-p", "a", "-q")
        self.refused("VX-3004", "plan", "-m", root(), "--variant", "ref2va", *SMALL, "-p", "a")
        self.refused("VX-2002", "plan", "-m", fl, "--variant", "both", *SMALL, "-p", "a")

    def test_a_folder_of_both_switches_per_job(self):
        a, b, s = self.png(), self.png("b.png", 40, 40, 3), self.wav()
        jobs = [
            {}, {"ref": [a, "audio:" + s]}, {"first": a}, {"keyframe": [f"0={a}", f"-1={b}"]}, {"refs": b}, {},
            {"keyframes": [{"uri": a, "frame_index": 0}, {"uri": b, "frame_index": -1}]},
            {"conditions": [{"type": "image", "uri": a, "role": "reference"}, {"type": "audio", "uri": s}]},
            {"conditions": [{"uri": a, "role": "keyframe", "frame_index": 0}]},
        ]
        lines = [json.dumps(dict(j, save_latents=self.path(f"{i}.latents"))) for i, j in enumerate(jobs)]
        r = self.ok("generate", "-m", root(), *SMALL, *EDGES, "-p", "a", "-q", "--jobs", self.put("jobs", "\n".join(lines).encode()))
        results = [json.loads(line) for line in r.out.splitlines()]
        self.assertEqual([x["task"] for x in results], ["t2va", "ref2va", "i2va", "fl2va", "ref2va", "t2va", "fl2va", "ref2va", "i2va"])
        hashes = [x["latents_sha256"] for x in results]
        self.assertEqual(hashes[0], hashes[5])  # public report P28: what ran between leaves nothing behind
        self.assertEqual(hashes[3], hashes[6])
        self.assertEqual(hashes[1], hashes[7])
        self.assertEqual(hashes[2], hashes[8])
        self.assertEqual(len({json.dumps(h) for h in hashes}), 5)
        self.assertEqual(hashes[1], self.made("--ref", a, "--ref", s, *EDGES))  # alone
        self.assertEqual([x["model"]["variant"] for x in results][:3], ["fl2va", "ref2va", "fl2va"])

    def test_jobs_that_are_wrong(self):
        a = self.png()
        cases = [
            ("VX-2001", "conditions", {"conditions": [{"uri": a, "weight": 1}]}),
            ("VX-2002", "conditions", {"conditions": [{"type": "image"}]}),
            ("VX-2002", "conditions", {"conditions": [{"uri": a, "type": "text"}]}),
            ("VX-2002", "conditions", {"conditions": [{"uri": a, "role": "style"}]}),
            ("VX-2002", "conditions", {"conditions": [{"uri": a, "frame_index": "0"}]}),
            ("VX-2004", "conditions", {"conditions": [{"uri": a, "role": "keyframe"}]}),
            ("VX-2006", "conditions", {"conditions": [{"uri": a, "start_time_seconds": 2}]}),
            ("VX-2002", "conditions", {"conditions": {}}), ("VX-2002", "conditions", {"conditions": [[a]]}), ("VX-2002", "ref", {"ref": [[a]]}), ("VX-2002", "ref", {"ref": [{"uri": a}]}),
            ("VX-2001", "keyframe", {"keyframe": [{"uri": a, "frame": 0, "x": 0}]}), ("VX-2003", "keyframe", {"keyframe": [{"uri": a, "frame_index": 22}]}),
            ("VX-2002", "ref", {"ref": ""}), ("VX-2001", "reference", {"reference": a}), ("VX-2002", "", {"conditions": [{"uri": a + "\0"}]}),
        ]
        self.put("jobs", "\n".join(json.dumps(dict(j, save_latents=self.path("l"))) for _, _, j in cases).encode())
        before = tree(self.tmp)
        r = run("generate", "-m", root(), *SMALL, *EDGES, "-p", "a", "--jobs", self.path("jobs"))
        errors = [json.loads(line)["error"] for line in r.out.splitlines()]
        self.assertEqual([(e["code"], e["field"]) for e in errors], [(c, f) for c, f, _ in cases], str(r))
        self.assertEqual(tree(self.tmp), before)

    def test_a_job_replaces_the_conditions_of_the_command_line(self):
        a, b = self.png(), self.png("b.png", t=9)
        self.put("jobs", "\n".join(json.dumps(dict(j, save_latents=self.path(f"{i}"))) for i, j in enumerate([{}, {"ref": b}, {"conditions": []}])).encode())
        r = self.ok("generate", "-m", root(), *SMALL, *EDGES, "-p", "a", "-q", "--ref", a, "--jobs", self.path("jobs"))
        results = [json.loads(line) for line in r.out.splitlines()]
        self.assertEqual([len(x.get("conditions", [])) for x in results], [1, 1, 0])
        self.assertNotEqual(results[0]["latents_sha256"], results[1]["latents_sha256"])


class Same(Conditions):
    """The same input, given in another way, gives the same bits; another input gives others."""

    def test_keyframes(self):
        a, b = self.png(width=96, height=64), self.png("b.png", 96, 64, 9)
        first, last = self.made("--first", a), self.made("--last", a)
        self.assertEqual(first, self.made("--keyframe", "0=" + a))
        self.assertEqual(first, self.made("--keyframe", "-22=" + a))
        self.assertEqual(last, self.made("--keyframe", "21=" + a))
        self.assertEqual(last, self.made("--keyframe", "-1=" + a))
        both = self.made("--first", a, "--last", b)
        self.assertEqual(both, self.made("--keyframe", "21=" + b, "--keyframe", "0=" + a))
        seen = [first, last, both, self.made("--keyframe", "8=" + a), self.made("--first", b), self.made("--first", b, "--last", a), self.made()]
        self.assertEqual(len({json.dumps(s) for s in seen}), len(seen))

    def test_positions_of_keyframes(self):
        """o + 5/3 of a unit for every pixel frame, o the number of text rows; three points of the lattice, by hand. The last
        frame is where the clip ends, less one frame."""
        a = self.png()
        for frames, points in ((22, {0: 0, 3: 5, 12: 20, 21: 35}), (39, {0: 0, 6: 10, 18: 30, 38: 63 + 1 / 3}), (124, {3: 5, 60: 100, 99: 165, 123: 205})):
            flags = [x for f in points for x in ("--keyframe", f"{f}={a}")]
            self.ok("generate", "-m", root(), *SMALL, "--size", "64x64", "--frames", str(frames), "-p", "a", "-q", "--dump-tensors", self.path("d"), "-y", *flags)
            t, _ = read_tensors(self.path("d"))
            text = t["prompt_embeds"][1][0]
            dtype, shape, data = t["first_call.position_ids"]
            values = struct.unpack(f"<{shape[0] * 3}{'d' if dtype == 'F64' else 'f'}", data)
            for i, (frame, at) in enumerate(sorted(points.items())):
                for row in range(4):  # 64x64: two by two patches
                    self.assertAlmostEqual(values[3 * (text + 4 * i + row)], text + at, delta=1e-4, msg=f"frame {frame} of {frames}")

    def test_pictures_and_samples(self):
        """Public report P37: alpha is dropped, not composited. P36: the orientation is applied before the ratio is read."""
        rgb = picture(48, 32)
        a = self.png()
        alpha = self.put("alpha.png", png_bytes(48, 32, b"".join(rgb[i:i + 3] + b"\0" for i in range(0, len(rgb), 3)), colour=6))
        samples = self.samples("s.safetensors", [rgb])
        turned = b"".join(rgb[3 * (48 * y + x):][:3] for x in range(47, -1, -1) for y in range(32))  # 90 degrees the other way
        exif = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
        phone = self.put("phone.png", png_bytes(32, 48, turned, more=chunk(b"eXIf", exif)))
        for flag, more in (("--first", []), ("--ref", EDGES)):
            want = self.made(flag, a, *more)
            for other in (alpha, samples, phone):
                self.assertEqual(want, self.made(flag, other, *more), other)
        self.assertEqual((self.no_size("--first", phone)["width"], self.no_size("--first", phone)["height"]), (96, 64))
        upright = self.put("upright.png", png_bytes(48, 32, rgb, more=chunk(b"eXIf", exif)))  # shown 32 wide, 48 high
        self.assertEqual((self.no_size("--first", upright)["width"], self.no_size("--first", upright)["height"]), (64, 96))

    def no_size(self, *flags):
        return self.ok("plan", "-m", root(), "--frames", "22", "--steps", "1", "-p", "a", "--seed", "1", *EDGES, *flags, "--json").json

    def test_canvas(self):
        """The canvas is that of the earliest keyframe, references never bind it; --size of another ratio stretches."""
        a, b = self.png(width=64, height=64), self.png("b.png", 96, 48)
        for flags, size in ((["--first", a], (64, 64)), (["--last", a], (64, 64)), (["--last", a, "--first", b], (128, 64)), (["--keyframe", "9=" + a, "--last", b], (64, 64)), (["--ref", a], (128, 64))):
            p = self.no_size(*flags)
            self.assertEqual((p["width"], p["height"]), (size if flags[0] != "--ref" else self.ratio()), flags)
        p = self.plan("--first", a)
        self.assertEqual((p["width"], p["height"]), (96, 64))
        self.assertEqual(p["conditions"][0]["width"], 96)
        self.assertEqual(self.no_size("--first", a, "--aspect", "2:1")["width"], 128)
        for trap, canvas in (((784, 768), (768, 768)), ((768, 784), (768, 768))):  # halves go to even (public reports, section 2)
            path = self.put("trap.png", png_bytes(*trap, bytes(3 * trap[0] * trap[1])))
            p = self.ok("plan", "-m", root(), "--frames", "22", "--steps", "1", "-p", "a", "--seed", "1", "--first", path, "--json").json
            self.assertEqual((p["width"], p["height"]), canvas)

    def ratio(self):
        p = self.no_size()
        return p["width"], p["height"]

    def test_a_video_by_its_time_stamps(self):
        """Public report P38. Frames at 0, 40, 210, 250, 500 ms ... fill the slots of 1/24 s from round(24 t) on."""
        times = [0, 40, 210, 250, 500, 520, 640, 800, 1000]
        frames = [picture(64, 64, t) for t in range(9)]
        starts = [math.floor(t * 24 / 1000 + 0.5) for t in times] + [29]  # until 1210 ms
        self.assertEqual(starts, [0, 1, 5, 6, 12, 12, 15, 19, 24, 29])
        held = [f for f, a, b in zip(frames, starts, starts[1:]) for _ in range(b - a)]
        self.assertEqual(len(held), 29)
        video = self.put("v.mkv", mkv_bytes(64, 64, frames, times, 1210))
        by_samples = self.samples("v.safetensors", held, 64, 64)
        self.assertEqual(self.made("--ref", video, *EDGES), self.made("--ref", by_samples, *EDGES))
        constant = self.samples("c.safetensors", frames, 64, 64, fps="7.4")  # 1216 ms at an average rate
        self.assertNotEqual(self.made("--ref", constant, *EDGES), self.made("--ref", by_samples, *EDGES))

    def test_frame_rates(self):
        """24 and the others by floor(24 i / fps + 1/2); what lies beyond the clip is not there."""
        for fps, count in (("12", 10), ("23.976", 20), ("30000/1001", 40), ("60", 60), ("120", 100)):
            rate = eval(fps)
            frames = [picture(64, 64, t) for t in range(count)]
            slots = [math.floor(24 * i / rate + 0.5) for i in range(count + 1)]
            held = [f for f, a, b in zip(frames, slots, slots[1:]) for _ in range(b - a)][:22]
            one = self.ok("plan", "-m", root(), *SMALL, *EDGES, "-p", "a", "--json", "--ref", self.samples("a.safetensors", frames, 64, 64, fps=fps)).json
            other = self.ok("plan", "-m", root(), *SMALL, *EDGES, "-p", "a", "--json", "--ref", self.samples("b.safetensors", held, 64, 64)).json
            self.assertEqual(one["rows"], other["rows"], fps)
        self.assertEqual(self.made("--ref", self.path("a.safetensors"), *EDGES), self.made("--ref", self.path("b.safetensors"), *EDGES))

    def test_sounds(self):
        """Mono is heard on both sides with gain 1; sound counts in samples of its own rate, whatever the file."""
        a = ["--ref", self.png(), *EDGES]
        mono = self.wav("m.wav", 0.5)
        values = [v[0] / 32768 for v in struct.iter_unpack("<h", tone(0.5))]
        want = self.made(*a, "--ref", mono)
        self.assertEqual(want, self.made(*a, "--ref", self.samples("s.safetensors", sound=[values])))
        self.assertEqual(want, self.made(*a, "--ref", self.samples("d.safetensors", sound=[values, values])))
        self.assertEqual(want, self.made(*a, "--ref", "audio:" + self.mkv("a.mkv", 14, sound=tone(0.5))))
        self.assertNotEqual(want, self.made(*a, "--ref", self.samples("o.safetensors", sound=[values, [0.0] * len(values)])))
        self.assertNotEqual(want, self.made(*a, "--ref", self.samples("f.safetensors", sound=[values], rate="16000")))  # public report P33
        # Cut to the clip's length, 22/24 s = 29333 samples, before anything else.
        long = [math.sin(i / 9) for i in range(40000)]
        self.assertEqual(self.made(*a, "--ref", self.samples("l.safetensors", sound=[long])), self.made(*a, "--ref", self.samples("c.safetensors", sound=[long[:29333]])))

    def test_samples_with_picture_and_sound(self):
        frames = [picture(64, 64, t) for t in range(14)]
        sound = [[math.sin(i / 7) for i in range(16000)]]
        p = self.plan("--ref", self.samples("both.safetensors", frames, 64, 64, sound), prompt="<Video 1> sings <Audio 1>.")
        self.assertEqual(p["conditions"], [{"kind": "video", "width": 64, "height": 64, "frames": 14, "audio_latents": 20}])
        pcm = b"".join(struct.pack("<h", round(v * 32767)) for v in sound[0])
        exact = [[v[0] / 32768 for v in struct.iter_unpack("<h", pcm)]]
        same = self.samples("both.safetensors", frames, 64, 64, exact)
        movie = self.put("both.mkv", mkv_bytes(64, 64, frames, [round(i * 1000 / 24) for i in range(14)], 583, pcm))
        self.assertEqual(self.made("--ref", same, *EDGES), self.made("--ref", movie, *EDGES))
        self.assertNotEqual(self.made("--ref", same, *EDGES), self.made("--ref", self.samples("mute.safetensors", frames, 64, 64), *EDGES))
        p = self.plan("--ref", "image:" + self.png(), "--ref", "audio:" + same)
        self.assertEqual([c["kind"] for c in p["conditions"]], ["image", "audio"])

    def test_names(self):
        """Everything behind the first '=' and behind a known kind is the name, as bytes."""
        a = self.png(width=96, height=64)
        want, ref = self.made("--first", a), self.made("--ref", a, *EDGES)
        for name in ("k=0=v.png", "image:b.png", "a b\n.png", "картинка.png", b"caf\xe9.png", "n" * 200 + ".png", "%d.png", "-1=x"):
            path = os.path.join(os.fsencode(self.tmp), os.fsencode(name))
            os.symlink(os.fsencode(a), path)
            with self.subTest(name=name):
                self.assertEqual(want, self.made(b"--keyframe=0=" + path))
                self.assertEqual(want, self.made(b"--first", path))
                self.assertEqual(ref, self.made(b"--ref", b"image:" + path, *EDGES))
        run_in = dict(cwd=self.tmp)
        self.ok("plan", "-m", root(), *SMALL, *EDGES, "-p", "a", "-q", "--ref", "image:image:b.png", **run_in)
        self.ok("plan", "-m", root(), *SMALL, *EDGES, "-p", "a", "-q", "--ref", "./image:b.png", **run_in)

    def test_the_order_of_references(self):
        """Public reports P12, P16: they are numbered and packed in the order given."""
        a, b, s, v = self.png(), self.png("b.png", 48, 48, 7), self.wav(), self.mkv("v.mkv", 14, sound=tone(0.5))
        ids = []
        for order in ((a, b), (b, a), (a, v, s), (v, s, a), (s, a, v)):
            flags = [x for f in order for x in ("--ref", f)]
            self.ok("generate", "-m", root(), *SMALL, *EDGES, "-p", "a", "-q", "--dump-tensors", self.path("d"), "-y", *flags)
            t, _ = read_tensors(self.path("d"))
            ids.append(t["token_ids"][2])
            kinds = [c["kind"] for c in self.plan(*flags)["conditions"]]
            self.assertEqual(kinds, [{a: "image", b: "image", s: "audio", v: "video"}[f] for f in order])
        self.assertEqual(len(set(ids)), len(ids))
        self.assertNotEqual(self.made("--ref", a, "--ref", b, *EDGES), self.made("--ref", b, "--ref", a, *EDGES))
        twice = self.plan("--ref", a, "--ref", a)
        self.assertEqual(twice["rows"]["condition"], 2 * self.plan("--ref", a)["rows"]["condition"])
        self.assertNotEqual(self.made("--ref", a, "--ref", a, *EDGES), self.made("--ref", a, *EDGES))

    def test_a_voice_acts(self):
        """Public report P12: another sound is another clip, of picture and of sound."""
        a = ["--ref", self.png(), *EDGES, "--ref"]
        one, other = self.made(*a, self.wav("x.wav", 0.5)), self.made(*a, self.samples("y.safetensors", sound=[[random.Random(1).uniform(-1, 1) for _ in range(16000)]]))
        self.assertNotEqual(one["video"], other["video"])
        self.assertNotEqual(one["audio"], other["audio"])

    def test_distinct_timesteps(self):
        """Public report P11: picture, sound, visual condition at 0.999, sound condition at 1: what is there is counted."""
        a, s = self.png(), self.wav()
        for flags, count in (([], 2), (["--first", a], 3), (["--ref", a], 3), (["--ref", a, "--ref", s], 4)):
            self.ok("generate", "-m", root(), *SMALL, *EDGES, "--steps", "2", "-p", "a", "-q", "--dump-tensors", self.path("d"), "-y", *flags)
            t, _ = read_tensors(self.path("d"))
            values = struct.unpack(f"<{t['timestep.1'][1][0]}f", t["timestep.1"][2])
            self.assertEqual(len(values), count, flags)
            if count > 2:
                self.assertAlmostEqual(sorted(values)[2], 0.999, delta=1e-6)


    def test_noise_of_conditions(self):
        """Pictures enter as 0.999 latent + 0.001 noise, sound as it is."""
        self.ok("generate", "-m", root(), *SMALL, *EDGES, "-p", "a", "-q", "--dump-tensors", self.path("d"), "--ref", self.png(), "--ref", self.wav())
        t, _ = read_tensors(self.path("d"))

        def values(name, count=None):
            v = struct.unpack(f"<{len(t[name][2]) // 4}f", t[name][2])
            return sorted(v[:count])
        latent, sound = values("condition_latents.0"), values("audio_condition_latents.0")
        rows, heard = values("first_call.hidden_states", len(latent)), values("first_call.audio_hidden_states", len(sound))
        self.assertEqual(sound, heard)
        self.assertNotEqual(latent, rows)
        for a, b in zip(latent, rows):
            self.assertAlmostEqual(0.999 * a, b, delta=0.005)  # five deviations of the noise


class Runs(Conditions):
    def test_a_reference_that_is_not_named(self):
        a, s = self.png(), self.wav()
        p = self.plan("--ref", a, "--ref", s, prompt="<Picture 1> walks.")
        found = [w for w in p["warnings"] if "does not name" in w]
        self.assertEqual(len(found), 1, found)
        self.assertIn("<Audio 1>", found[0])
        self.assertEqual(len(p["conditions"]), 2)
        self.assertEqual([w for w in self.plan("--ref", a, "--ref", s, prompt="<Picture 1> says <Audio 1>.")["warnings"] if "name" in w], [])
        self.assertEqual([w for w in self.plan("--first", a)["warnings"] if "name" in w], [])
        self.assertNotEqual(self.made("--ref", a, "--ref", s, *EDGES), self.made("--ref", a, *EDGES))

    def test_conditions_are_encoded_once(self):
        v, s = self.mkv(count=22, sound=tone(0.5)), self.wav()
        flags = ["--ref", v, "--ref", s, *EDGES]
        r = self.ok("generate", "-m", root(), *SMALL, "-p", "a", "-q", "--json", "--outputs", "3", "--save-latents", self.path("%d.latents"), *flags)
        results = [json.loads(line) for line in r.out.splitlines()]
        self.assertEqual([x["seed"] for x in results], [1, 2, 3])
        times = [x["timings_s"] for x in results]
        for t in times[1:]:
            self.assertLess(t["encode"], 0.2 * times[0]["encode"], times)
            self.assertLess(t["text"], 0.2 * times[0]["text"], times)
        self.assertEqual(results[1]["latents_sha256"], self.made(*flags, "--seed", "2"))
        self.assertEqual(len({x["latents_sha256"]["video"] for x in results}), 3)
        # Another picture under the same name is another condition.
        a = self.png("a.png")
        jobs = "\n".join(json.dumps({"ref": x, "save_latents": self.path(f"j{i}")}) for i, x in enumerate((a, self.png("b.png", t=4), a)))
        r = self.ok("generate", "-m", root(), *SMALL, *EDGES, "-p", "a", "-q", "--jobs", self.put("jobs", jobs.encode()))
        h = [json.loads(line)["latents_sha256"] for line in r.out.splitlines()]
        self.assertEqual(h[0], h[2])
        self.assertNotEqual(h[0], h[1])
        self.assertEqual(h[1], self.made("--ref", self.path("b.png"), *EDGES))

    def test_embeddings_with_references(self):
        a = self.png()
        flags = ["--ref", a, *EDGES]
        self.ok("generate", "-m", root(), *SMALL, "-p", "<Picture 1>", "-q", "--precision", "float32", "--dump-tensors", self.path("d"), *flags)
        want = self.made(*flags, "--precision", "float32", prompt="<Picture 1>")
        r = self.ok("generate", "-m", root(), *SMALL, "--prompt-embeds", self.path("d"), "--precision", "float32", "-q", "--json", "--save-latents", self.path("l"), *flags)
        self.assertEqual(r.json["latents_sha256"], want)
        self.assertEqual([w for w in r.json["warnings"] if "name" in w], [])

    def test_cancelled_while_encoding(self):
        frames = [picture(64, 64, t) for t in range(124)]
        v = self.samples("v.safetensors", frames, 64, 64)
        for number in (signal.SIGINT, signal.SIGTERM):
            p = start("generate", "-m", root(), "--size", "96x64", "--frames", "124", "--steps", "1", "--seed", "1", "-p", "a", "--progress", "json", "--json",
                      "--canvas-short-edge", "256", "--ref", v, "-o", self.path("a.mp4"))
            seen = False
            for line in p.stderr:
                if line.startswith("{") and json.loads(line)["stage"] == "encode":
                    seen = True
                    break
            self.assertTrue(seen)
            began = time.monotonic()
            p.send_signal(number)
            out, err = p.communicate(timeout=60)
            self.assertEqual(p.returncode, 130, err)
            self.assertEqual(json.loads(out)["error"]["code"], "VX-8001")
            self.assertLess(time.monotonic() - began, 15)
            self.assertEqual(list(tree(self.tmp)), ["v.safetensors"])

    def test_an_output_over_an_input(self):
        a = self.png("in.mp4")  # a picture, whatever its name
        for flags in (["--first", a], ["--ref", a], ["--keyframe", "3=" + a]):
            r = self.refused("VX-2005", "generate", "-m", root(), *SMALL, *EDGES, "-p", "a", "-y", "-o", a, *flags)
            self.assertEqual(r.json["error"]["field"], "output", str(r))

    def test_a_whole_clip(self):
        """All the way to a file that is a reference itself."""
        a = self.png()
        for i, flags in enumerate((["--first", a, "--last", a], ["--ref", a, "--ref", self.wav()])):
            out = self.path(f"{i}.mp4")
            r = self.ok("generate", "-m", root(), *SMALL, *EDGES, "-p", "a", "-q", "--json", "-o", out, *flags)
            self.assertEqual(r.json["frames"], 22)
            p = self.plan("--ref", out)
            self.assertEqual((p["conditions"][0]["kind"], p["conditions"][0]["frames"]), ("video", 22))
            self.assertGreaterEqual(p["conditions"][0]["audio_latents"], 36)
            text = json.dumps(self.ok("inspect", "--json", out).json)
            self.assertNotIn("a.png", text)  # a clip does not tell where its maker keeps things

    @unittest.skipUnless(GOLDEN, "VORTEX_GOLDEN_DATA is not set")
    def test_the_released_edges(self):
        """18,596 rows of the reference's three inputs at 96x64, with edges 2048 and 768."""
        inputs = os.path.join(GOLDEN, "inputs")
        with open(os.path.join(GOLDEN, "requests.json")) as f:
            prompt = json.load(f)["ref2va"]["prompt"]
        flags = [x for n in ("subject.png", "motion.mkv", "voice.wav") for x in ("--ref", os.path.join(inputs, n))]
        p = self.ok("plan", "-m", os.path.join(GOLDEN, "official/Ref2VA"), "-p", prompt, "--size", "96x64", "--json", *flags).json
        self.assertEqual(p["rows"]["total"], 18596)
        self.assertEqual([(c.get("width"), c.get("height")) for c in p["conditions"]], [(2720, 2048), (1024, 768), (None, None)])


class Encode(Conditions):
    def encode(self, *args):
        self.ok("encode", "-m", os.path.join(root(), "FL2VA"), "--save-tensors", self.path("out"), "-y", "-q", *args)
        return read_tensors(self.path("out"))[0]

    def test_shapes_and_equal_inputs(self):
        rgb = picture(64, 32)
        t = self.encode("--image", self.put("a.png", png_bytes(64, 32, rgb)))
        self.assertEqual({n: (x[0], x[1]) for n, x in t.items()}, {n: ("F32", [24, 1, 2, 4]) for n in ("mean", "logvar")})
        self.assertEqual(t, self.encode("--pixels", self.samples("a.safetensors", [rgb], 64, 32)))
        self.assertEqual(t, self.encode("--image", self.path("a.safetensors")))
        frames = [picture(64, 32, i) for i in range(24)]
        t = self.encode("--video", self.put("a.mkv", mkv_bytes(64, 32, frames, [round(i * 1000 / 24) for i in range(24)], 1000)))
        self.assertEqual(t["mean"][1], [24, 7, 2, 4])  # two groups of 17 are 10, less 3
        self.assertEqual(t, self.encode("--pixels", self.samples("v.safetensors", frames, 64, 32)))
        t = self.encode("--audio", self.wav(seconds=0.5))
        self.assertEqual({n: (x[0], x[1]) for n, x in t.items()}, {"mean": ("F32", [1, 32, 20])})
        values = [v[0] / 32768 for v in struct.iter_unpack("<h", tone(0.5))]
        self.assertEqual(t, self.encode("--waveform", self.samples("w.safetensors", sound=[values])))
        self.assertEqual(self.encode("--audio", self.wav(seconds=0.5, channels=2))["mean"][1], [2, 32, 20])
        self.assertEqual(self.encode("--audio", self.wav(seconds=1.03, rate=44100))["mean"][1], [1, 32, 42])  # 32960 samples

    def refuse(self, code, field, *args):
        r = self.refused(code, "encode", "-m", os.path.join(root(), "FL2VA"), *args)
        self.assertEqual(r.json["error"]["field"], field, str(r))

    def test_what_is_refused(self):
        a, m, s = self.png(), self.mkv(), self.wav()
        out = ["--save-tensors", self.path("out")]
        self.refuse("VX-2004", "image", *out)
        self.refuse("VX-2004", "save_tensors", "--image", a)
        self.refuse("VX-2005", "audio", "--image", a, "--audio", s, *out)
        for code, kind, path in (("VX-7002", "image", m), ("VX-7002", "video", a), ("VX-7002", "audio", a), ("VX-7002", "audio", m), ("VX-7002", "image", s),
                                 ("VX-7001", "image", self.path("none.png")), ("VX-7002", "image", self.put("e.png", b"")), ("VX-7002", "video", os.path.join(MEDIA, "damaged.mkv")),
                                 ("VX-7002", "audio", os.path.join(MEDIA, "damaged.flac")), ("VX-2003", "audio", self.wav("three.wav", channels=3)), ("VX-2003", "audio", self.wav("long.wav", 16, 8000)),
                                 ("VX-7002", "pixels", a), ("VX-2003", "pixels", self.samples("odd.safetensors", [picture(48, 30)], 48, 30)), ("VX-7002", "waveform", self.path("odd.safetensors")),
                                 ("VX-7002", "waveform", self.samples("rate.safetensors", sound=[[0.0] * 900], rate="16000")), ("VX-7002", "waveform", self.samples("nan.safetensors", sound=[[math.nan] * 900])),
                                 ("VX-2003", "video", self.samples("fast.safetensors", [picture(32, 32)] * 2, 32, 32, fps="1000"))):
            with self.subTest(kind=kind, path=path):
                self.refuse(code, kind, "--" + kind, path, *out)
        self.put("out", b"mine")
        self.refuse("VX-4001", "save_tensors", "--image", a, *out)
        self.refuse("VX-2005", "save_tensors", "--image", a, "--save-tensors", a, "-y")
        self.refuse("VX-4002", "save_tensors", "--image", a, "--save-tensors", self.path("none/out"))


if __name__ == "__main__":
    main()
