#!/usr/bin/env python3
"""The same request has the same bits: run again, with other thread counts and address layouts, from mapped or copied
files, decoded at once or later, from either layout of the checkpoint."""
import ctypes
import os
import shutil
import unittest

from harness import GOLDEN, SMALL, Case, main, model, read_tensors, run

ADDR_NO_RANDOMIZE = 0x0040000


class SameBits(Case):
    def bits(self, *more, where=None, size=SMALL, **kw):
        """Hashes of the latents, and every decoded value."""
        out = [self.path("l"), self.path("t")]
        r = self.ok("generate", "-m", where or model(), *size, "-q", "--json", "--save-latents", out[0], *more, **kw).json
        threads = more[more.index("--threads"):][:2] if "--threads" in more else []
        self.ok("decode", "-m", where or model(), "--latents", out[0], "--save-tensors", out[1], "-q", *threads, **kw)
        tensors, _ = read_tensors(out[1])
        for f in out:
            os.remove(f)
        return r["latents_sha256"], tensors

    def test_runs_threads_and_addresses(self):
        first = self.bits()
        self.assertEqual(self.bits(), first, "run again")
        for n in ("1", "2", "3", "4", "16"):
            self.assertEqual(self.bits("--threads", n), first, n + " threads")
        libc = ctypes.CDLL(None)
        self.assertEqual(self.bits(before=lambda: libc.personality(ADDR_NO_RANDOMIZE)), first, "without address randomisation")
        self.assertEqual(self.bits(before=lambda: libc.personality(0)), first, "with it")
        self.assertNotEqual(self.bits("--seed", "2")[0], first[0])

    def test_precisions_and_samplers_repeat_themselves_too(self):
        for more in (["--precision", "float32"], ["--sampler", "res_multistep"], ["--schedule", "beta"], ["--noise", "comfyui"], ["--noise", "diffusers"]):
            with self.subTest(more=more):
                self.assertEqual(self.bits(*more, "--threads", "1")[0], self.bits(*more, "--threads", "4")[0])

    def test_copies_links_and_parts_in_other_places(self):
        first = self.bits()
        copied = self.copy_model("copied")
        self.assertEqual(self.bits(where=copied), first)
        linked = self.path("linked")
        os.mkdir(linked)
        for name in os.listdir(copied):
            os.symlink(os.path.join("../copied", name), os.path.join(linked, name))
        self.assertEqual(self.bits(where=linked), first, "every part a link")
        parts = self.path("parts")
        os.mkdir(parts)
        for part in ("text_encoder", "video_vae", "audio_vae", "tokenizer"):
            shutil.move(os.path.join(copied, part), parts)
        r = self.ok("generate", "-m", copied, *SMALL, "-q", "--json", "--save-latents", self.path("l"), "--text-encoder", os.path.join(parts, "text_encoder"), "--tokenizer", os.path.join(parts, "tokenizer")).json
        self.assertEqual(r["latents_sha256"], first[0])

    def test_metadata_of_the_transformer_does_not_matter(self):
        """Public report P19: a header with empty metadata."""
        from harness import write_tensors
        first = self.bits()
        copied = self.copy_model("copied")
        path = os.path.join(copied, "transformer/model-00002-of-00002.safetensors")
        tensors, _ = read_tensors(path)
        write_tensors(path, tensors, {})
        self.assertEqual(self.bits(where=copied), first)

    def test_instruction_sets_agree_within_rounding(self):
        """Not the same bits by contract; the clip must be the same to the eye."""
        import struct
        a = self.bits()[1]["frames"][2]
        for isa in ("generic", "avx2", "avx512"):
            r = run("generate", "-m", model(), *SMALL, "-q", "--save-latents", self.path("l"), "--isa", isa)
            if r.code == 6 or (r.code == 2 and "isa" in r.err):
                continue  # not on this machine
            self.assertEqual(r.code, 0, str(r))
            self.ok("decode", "-m", model(), "--latents", self.path("l"), "--save-tensors", self.path("t"), "--isa", isa, "-q")
            b = read_tensors(self.path("t"))[0]["frames"][2]
            n = len(a) // 4
            worst = max(abs(x - y) for x, y in zip(struct.unpack(f"<{n}f", a), struct.unpack(f"<{n}f", b)))
            self.assertLess(worst, 0.1, isa)
            os.remove(self.path("l"))
            os.remove(self.path("t"))

    @unittest.skipUnless(GOLDEN, "VORTEX_GOLDEN_DATA is not set")
    def test_both_layouts_of_the_reference_checkpoint(self):
        size = ["--size", "96x64", "--frames", "22", "--steps", "2", "--seed", "5", "-p", "A paper boat."]
        official = self.bits(where=os.path.join(GOLDEN, "official/FL2VA"), size=size)
        self.assertEqual(self.bits(where=os.path.join(GOLDEN, "official"), size=size), official, "the root")
        self.assertEqual(self.bits(where=os.path.join(GOLDEN, "diffusers"), size=size), official, "diffusers")


if __name__ == "__main__":
    main()
