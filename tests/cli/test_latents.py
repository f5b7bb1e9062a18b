#!/usr/bin/env python3
"""Latents, embeddings and tensors as files: round trips, and every way in which such a file can be wrong."""
import json
import os
import struct

from harness import SMALL, Case, floats, main, model, read_tensors, run, write_raw, write_tensors

NAN, INF = floats([float("nan")]), floats([float("inf")])


class Decode(Case):
    @classmethod
    def setUpClass(cls):
        cls.kept = None

    def latents(self):
        """The latents, tensors and metadata of one clip."""
        if Decode.kept is None:
            self.generate("--save-latents", self.path("first.safetensors"), "-o", self.path("first.mp4"))
            Decode.kept = read_tensors(self.path("first.safetensors"))
        return dict(Decode.kept[0]), dict(Decode.kept[1])

    def write(self, tensors, metadata=None, name="l.safetensors"):
        write_tensors(self.path(name), tensors, metadata)
        return self.path(name)

    def decode(self, code, path, *more):
        out = more or ("-o", self.path("a.mp4"))
        return self.refused(code, "decode", "-m", model(), "--latents", path, *out)

    def test_a_decode_of_saved_latents_is_the_clip(self):
        self.generate("--save-latents", self.path("l.safetensors"), "-o", self.path("a.mp4"))
        r = self.ok("decode", "-m", model(), "--latents", self.path("l.safetensors"), "-o", self.path("b.mp4"), "--json", "-q").json
        self.assertEqual(r["seed"], 1)
        with open(self.path("a.mp4"), "rb") as a, open(self.path("b.mp4"), "rb") as b:
            self.assertTrue(a.read() == b.read())
        tensors, metadata = read_tensors(self.path("l.safetensors"))
        self.assertEqual({n: (t[0], t[1]) for n, t in tensors.items()}, {"video": ("F32", [24, 7, 4, 6]), "audio": ("F32", [2, 32, 37])})
        self.assertEqual(json.loads(metadata["request"])["seed"], 1)
        self.assertTrue(metadata["vortex_version"])

    def test_tensors_are_saved_as_the_contract_says(self):
        tensors, _ = self.latents()
        path = self.write(tensors)
        self.ok("decode", "-m", model(), "--latents", path, "--save-tensors", self.path("t.safetensors"), "-q")
        out, _ = read_tensors(self.path("t.safetensors"))
        hop = len(out["waveform"][2]) // 8 // 37
        self.assertEqual({n: (t[0], t[1]) for n, t in out.items()}, {"frames": ("F32", [22, 64, 96, 3]), "waveform": ("F32", [2, 37 * hop])})
        values = struct.unpack(f"<{22 * 64 * 96 * 3}f", out["frames"][2])
        self.assertTrue(all(0 <= v <= 1 for v in values))
        for name in ("video", "audio"):  # either may be alone
            self.write({name: tensors[name]}, name="one.safetensors")
            self.ok("decode", "-m", model(), "--latents", self.path("one.safetensors"), "--save-tensors", self.path("one.out"), "-q", "-y")
            one, _ = read_tensors(self.path("one.out"))
            name = {"video": "frames", "audio": "waveform"}[name]
            self.assertEqual(one, {name: out[name]})
        self.ok("decode", "-m", model(), "--latents", self.write({"video": tensors["video"]}), "-o", self.path("mute.mp4"), "-q")
        self.assertEqual(self.ok("inspect", self.path("mute.mp4"), "--json").json["audio"]["samples"], 0)
        self.decode("VX-7002", self.write({"audio": tensors["audio"]}))
        # a batch axis of other programs
        batched = {n: (t[0], [1] + t[1], t[2]) for n, t in tensors.items()}
        self.ok("decode", "-m", model(), "--latents", self.write(batched), "--save-tensors", self.path("b.out"), "-q")
        self.assertEqual(read_tensors(self.path("b.out"))[0], out)

    def test_standard_input_that_is_a_file(self):
        tensors, _ = self.latents()
        path = self.write(tensors)
        with open(path, "rb") as f:
            self.ok("decode", "-m", model(), "--latents", "-", "-o", self.path("a.mp4"), "-q", stdin=f)
        self.decode("VX-7001", "-", "-o", self.path("b.mp4"))  # a pipe cannot be mapped

    def test_latents_that_are_wrong(self):
        tensors, metadata = self.latents()
        v, a = tensors["video"], tensors["audio"]
        frame = 24 * 4 * 6 * 4  # bytes of a latent frame, all channels

        def video(shape, data=None):
            n = 4
            for d in shape:
                n *= d
            return {"video": ("F32", shape, data if data is not None else b"\0" * n)}
        for says, wrong in {
            "NaN": dict(tensors, video=(v[0], v[1], NAN + v[2][4:])),
            "infinity at the end": dict(tensors, audio=(a[0], a[1], a[2][:-4] + INF)),
            "off the lattice": video([24, 8, 4, 6]),
            "too short": video([24, 2, 4, 6]),
            "too long": video([24, 112, 2, 2]),
            "no frames": video([24, 0, 4, 6]),
            "other channels": video([16, 7, 4, 6]),
            "no channels": video([0, 7, 4, 6]),
            "rank 3": video([24 * 7, 4, 6]),
            "rank 5": video([2, 24, 7, 4, 6]),
            "rank 0": {"video": ("F32", [], floats([0]))},
            "one cell": video([24, 7, 1, 1]),
            "a side too large": video([24, 7, 2, 258]),
            "integers": {"video": ("I32", v[1], v[2])},
            "another name": {"latents": v},
            "nothing": {},
            "mono": dict(tensors, audio=("F32", [1, 32, 37], a[2][: len(a[2]) // 2])),
            "no sound": {"audio": ("F32", [2, 32, 0], b"")},
            "too much sound": {"audio": ("F32", [2, 32, 4097], b"\0" * (2 * 32 * 4097 * 4))},
        }.items():
            with self.subTest(says=says):
                r = self.decode("VX-7002", self.write(wrong))
                self.assertIn("l.safetensors", r.err)

    def test_picture_and_sound_of_different_lengths_are_fitted(self):
        tensors, _ = self.latents()
        for frames in (1, 36, 38, 100):
            audio = ("F32", [2, 32, frames], b"\0" * (2 * 32 * frames * 4))
            self.ok("decode", "-m", model(), "--latents", self.write(dict(tensors, audio=audio)), "-o", self.path("a.mp4"), "-q", "-y")
            info = self.ok("inspect", self.path("a.mp4"), "--json").json
            self.assertEqual(info["video"]["frames"], 22)
            self.assertLessEqual(abs(info["audio"]["samples"] - 22 * 32000 // 24), 1024)

    def test_files_that_are_no_latents(self):
        tensors, _ = self.latents()
        whole = self.write(tensors)
        with open(whole, "rb") as f:
            data = f.read()
        size = 8 + struct.unpack("<Q", data[:8])[0]
        for cut in (0, 1, 7, 8, size - 1, size, size + 1, len(data) - 1):
            with open(self.path("cut"), "wb") as f:
                f.write(data[:cut])
            self.decode("VX-7002", self.path("cut"))
        os.mkfifo(self.path("fifo"))
        os.mkdir(self.path("folder"))
        os.symlink("nowhere", self.path("dangling"))
        for name in ("fifo", "folder", "dangling", "none"):
            self.decode("VX-7001", self.path(name))
        for code, text in (("VX-7002", b"version https://git-lfs.github.com/spec/v1\n"), ("VX-7002", b"<!DOCTYPE html>"), ("VX-7002", b"PK\3\4\0\0\x08\x08" + b"\0" * 99), ("VX-7002", b"\x80\x02}q"), ("VX-7002", b"\xff" * 99)):
            with open(self.path("other"), "wb") as f:
                f.write(text)
            self.decode(code, self.path("other"))
        self.generate("-o", self.path("clip.mp4"))
        self.decode("VX-7002", self.path("clip.mp4"))

    def test_foreign_metadata_is_carried_or_left(self):
        tensors, _ = self.latents()
        for text in ("not json", "[]", "{}", '{"seed":' + "[" * 3000, '{"output":"/etc/passwd","latents_sha256":7}', '"\\u0000"'):
            path = self.write(tensors, {"request": text})
            r = self.ok("decode", "-m", model(), "--latents", path, "-o", self.path("a.mp4"), "-q", "-y", "--json").json
            self.assertEqual(r["output"], self.path("a.mp4"))
            self.ok("inspect", path, "--json")
            self.ok("inspect", path)

    def test_denormalised_latents_act(self):
        tensors, _ = self.latents()
        path = self.write(tensors)
        a = self.ok("decode", "-m", model(), "--latents", path, "--save-tensors", self.path("a"), "-q")
        b = self.ok("decode", "-m", model(), "--latents", path, "--save-tensors", self.path("b"), "-q", "--denormalised")
        self.assertTrue(a and b)
        self.assertNotEqual(read_tensors(self.path("a"))[0]["frames"], read_tensors(self.path("b"))[0]["frames"])


class Embeds(Case):
    def dump(self):
        self.generate("--dump-tensors", self.path("d.safetensors"))
        return read_tensors(self.path("d.safetensors"))[0]

    def test_a_dump_has_the_contracts_tensors_and_its_embeddings_make_the_same_clip(self):
        tensors = self.dump()
        rows = tensors["layout.token_tags"][1][0]
        text = tensors["prompt_embeds"][1][0]
        for name in ("prompt_embeds", "text_token_tags", "token_ids", "layout.token_tags", "layout.timestep_indices", "layout.text_indices", "layout.audio_indices", "layout.video_indices",
                     "first_call.position_ids", "first_call.hidden_states", "first_call.audio_hidden_states", "timestep.0", "timestep.1", "velocity.video.0", "velocity.audio.1"):
            self.assertIn(name, tensors)
        self.assertEqual(tensors["first_call.position_ids"][:2], ("F32", [rows, 3]))
        self.assertEqual(tensors["velocity.video.1"][1], [42, 96])
        self.assertEqual(tensors["velocity.audio.1"][1], [74, 32])
        self.assertEqual(text + 42 + 74, rows)
        direct = self.generate("--save-latents", self.path("a")).json
        for more in ([], ["-p", "words for the metadata"]):
            base = [x for x in SMALL if x not in ("-p", "A lighthouse at dawn.")]
            r = self.ok("generate", "-m", model(), *base, "-q", "--json", "--prompt-embeds", self.path("d.safetensors"), "--save-latents", self.path("b"), "-y", *more).json
            self.assertEqual(r["latents_sha256"], direct["latents_sha256"])

    def test_embeddings_that_are_wrong(self):
        tensors = self.dump()
        e, t = tensors["prompt_embeds"], tensors["text_token_tags"]
        n, dim = e[1]
        for says, wrong in {
            "NaN": {"prompt_embeds": (e[0], e[1], NAN + e[2][4:]), "text_token_tags": t},
            "another width": {"prompt_embeds": ("F32", [n, dim - 1], e[2][: n * (dim - 1) * 4]), "text_token_tags": t},
            "no rows": {"prompt_embeds": ("F32", [0, dim], b""), "text_token_tags": ("I32", [0], b"")},
            "too many rows": {"prompt_embeds": ("BF16", [16385, dim], b"\0" * (16385 * dim * 2)), "text_token_tags": ("I32", [16385], b"\1\0\0\0" * 16385)},
            "no tags": {"prompt_embeds": e},
            "no embeddings": {"text_token_tags": t},
            "other tags": {"prompt_embeds": e, "text_token_tags": ("I32", t[1], b"\7\0\0\0" * n)},
            "negative tags": {"prompt_embeds": e, "text_token_tags": ("I32", t[1], b"\xff\xff\xff\xff" * n)},
            "tags of another length": {"prompt_embeds": e, "text_token_tags": ("I32", [n + 1], b"\1\0\0\0" * (n + 1))},
            "tags as floats": {"prompt_embeds": e, "text_token_tags": ("F32", t[1], t[2])},
            "rank 1": {"prompt_embeds": ("F32", [n * dim], e[2]), "text_token_tags": t},
            "integers": {"prompt_embeds": ("I32", e[1], e[2]), "text_token_tags": t},
        }.items():
            with self.subTest(says=says):
                write_tensors(self.path("e.safetensors"), wrong)
                self.refused("VX-7002", "generate", "-m", model(), *SMALL, "--prompt-embeds", self.path("e.safetensors"), "-o", self.path("a.mp4"))
        for name, code in (("none", "VX-7001"), ("", "VX-2002")):
            self.refused(code, "generate", "-m", model(), *SMALL, "--prompt-embeds", name and self.path(name), "-o", self.path("a.mp4"))


class Inspect(Case):
    def test_everything_odd(self):
        os.mkdir(self.path("empty"))
        os.mkfifo(self.path("fifo"))
        os.symlink(self.path("loop"), self.path("loop"))
        with open(self.path("zero"), "w"):
            pass
        with open(self.path("ftyp"), "wb") as f:
            f.write(b"\0\0\0\x20ftypisom" + b"\xff" * 100)
        for path in (self.path("none"), self.path("empty"), self.path("fifo"), self.path("loop"), self.path("zero"), self.path("ftyp"), "/dev/zero", "/dev/null", "/proc/self/mem", "/", "/etc/passwd", "/proc/1"):
            with self.subTest(path=path):
                self.refused(None, "inspect", path)

    def test_a_name_with_escapes_does_not_reach_the_terminal(self):
        write_tensors(self.path("x.safetensors"), {"a": ("F32", [1], floats([0]))}, {"request": "\x1b]0;owned\x07 \x1b[31m\n"})
        r = self.ok("inspect", self.path("x.safetensors"))
        self.assertNotIn("\x1b", r.out)
        self.assertNotIn("\x07", r.out)
        self.assertIn("\\x1b[31m", r.out)
        write_tensors(self.path("y.safetensors"), {"a\x1b[31m\nb": ("F32", [1], floats([0]))})
        self.assertNotIn("\x1b", self.refused("VX-3101", "inspect", self.path("y.safetensors")).err)

    def test_a_whole_model_and_a_broken_one(self):
        r = self.ok("inspect", model(), "--json").json
        self.assertEqual((r["kind"], r["problems"]), ("model", []))
        self.assertEqual({c["name"] for c in r["components"]}, {"transformer", "text_encoder", "video_vae", "audio_vae"})
        broken = self.copy_model()
        os.remove(os.path.join(broken, "audio_vae/model.safetensors"))
        with open(os.path.join(broken, "tokenizer/vocab.json"), "w") as f:
            f.write("{")
        r = run("inspect", broken, "--json")
        self.assertEqual((r.code, r.err), (3, b"" if isinstance(r.err, bytes) else ""), str(r))  # told in the report, not twice
        r = r.json
        self.assertGreaterEqual(len(r["problems"]), 2, r["problems"])
        self.assertTrue(all(p["code"].startswith("VX-3") and p["message"] for p in r["problems"]))

    def test_metadata_alone_and_empty_metadata(self):
        """Public reports P18, P19."""
        for header in ({"__metadata__": {"k": "v"}}, {"__metadata__": {}}, {}, {"__metadata__": {}, "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}):
            write_raw(self.path("m.safetensors"), header, b"\0" * (4 if "a" in header else 0))
            self.assertEqual(self.ok("inspect", self.path("m.safetensors"), "--json").json["count"], len([k for k in header if k == "a"]))
        e = '{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}'
        write_raw(self.path("m.safetensors"), ('{"key00":' + e % (0, 4) + ',"key00":' + e % (4, 8) + "}").encode(), b"\0" * 8)
        self.refused("VX-3103", "inspect", self.path("m.safetensors"))


if __name__ == "__main__":
    main()
