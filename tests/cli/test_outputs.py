#!/usr/bin/env python3
"""Outputs: complete under their final name or not there (T18-T20, public reports P39, P40, P55); folders that are
read-only, full or vanish; names that are in use, long, strange or the same."""
import ctypes
import json
import os
import resource
import shutil
import subprocess
import time
import unittest

from harness import SLOW, SMALL, VORTEX, Case, environment, main, model, run, start, tree

NOBODY = 65534


def as_nobody():
    """Permissions mean nothing to root."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def small_disk(folder, size, options=""):
    """In the child: a memory file system of `size` bytes on the folder, in a mount name space of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    clone_newns, ms_rec_private = 0x20000, 0x4000 | 0x40000
    if libc.unshare(clone_newns) or libc.mount(None, b"/", None, ms_rec_private, None):
        os._exit(77)
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={size}{options}".encode()):
        os._exit(77)


def can_mount():
    folder = "/tmp"
    p = subprocess.run(["true"], preexec_fn=lambda: small_disk(folder, 65536))
    return p.returncode == 0


CAN_MOUNT = os.getuid() == 0 and can_mount()


class Names(Case):
    def test_an_existing_file_is_kept_unless_asked(self):
        for flag, name in (("-o", "a.mp4"), ("--save-latents", "l.safetensors"), ("--dump-tensors", "d.safetensors")):
            with open(self.path(name), "w") as f:
                f.write("mine")
            self.refused("VX-4001", "generate", "-m", model(), *SMALL, flag, self.path(name))
            with open(self.path(name)) as f:
                self.assertEqual(f.read(), "mine")
            self.generate("-y", flag, self.path(name))
            self.assertGreater(os.path.getsize(self.path(name)), 100)

    def test_a_later_clip_that_exists_is_found_before_the_first_is_made(self):
        with open(self.path("c2.mp4"), "w") as f:
            f.write("mine")
        self.refused("VX-4001", "generate", "-m", model(), *SMALL, "--outputs", "3", "-o", self.path("c%d.mp4"))

    def test_one_name_for_two_things(self):
        self.generate("--save-latents", self.path("l.safetensors"), "--dump-tensors", self.path("d.safetensors"))
        os.link(self.path("d.safetensors"), self.path("hard.safetensors"))
        os.symlink("d.safetensors", self.path("soft.safetensors"))
        os.mkdir(self.path("x"))
        m, l, d = model(), self.path("l.safetensors"), self.path("d.safetensors")
        for args in (
            ["generate", "--save-latents", self.path("n"), "--dump-tensors", self.path("n")],
            ["generate", "--save-latents", self.path("n"), "--dump-tensors", self.path("x/../n")],
            ["generate", "-o", self.path("n.mp4"), "--dump-tensors", self.path("n.mp4"), "-y"],
            ["generate", "--save-latents", d, "--dump-tensors", self.path("hard.safetensors"), "-y"],
            ["generate", "--save-latents", d, "--dump-tensors", self.path("soft.safetensors"), "-y"],
            ["generate", "--prompt-embeds", d, "--save-latents", d, "-y"],
            ["generate", "--prompt-embeds", d, "--save-latents", self.path("hard.safetensors"), "-y"],
            ["generate", "--log-file", self.path("n.mp4"), "-o", self.path("n.mp4"), "-y"],
        ):
            with self.subTest(args=args):
                r = run(*args[:1], "-m", m, *SMALL, *args[1:])
                self.error_of(r, "VX-2005")
        self.refused("VX-2005", "decode", "-m", m, "--latents", l, "--save-tensors", l, "-y")
        self.refused("VX-2005", "decode", "-m", m, "--latents", l, "-o", self.path("n.mp4"), "--save-tensors", self.path("n.mp4"))

    def test_latents_beside_the_clip_go_when_it_stands(self):
        self.generate("-o", self.path("a.mp4"))
        self.generate("--outputs", "2", "-o", self.path("%d.mp4"))
        self.assertEqual(sorted(os.listdir(self.tmp)), ["0.mp4", "1.mp4", "a.mp4"])

    def test_latents_beside_the_clip_take_nobodys_name(self):
        """A file, a link to one and to nowhere, a folder: all stay as they are, with -y too."""
        kept, other = self.path("a.mp4.latents.safetensors"), self.path("other")
        with open(other, "w") as f:
            f.write("precious")
        for make in (lambda: shutil.copy(other, kept), lambda: os.symlink(other, kept), lambda: os.symlink(self.path("nowhere"), kept), lambda: os.mkdir(kept)):
            make()
            before = tree(self.tmp)
            for flags in ([], ["-y"]):
                self.generate("-o", self.path("a.mp4"), *flags)
                os.remove(self.path("a.mp4"))
                self.assertEqual(tree(self.tmp), before)
            os.rmdir(kept) if os.path.isdir(kept) else os.remove(kept)

    def test_latents_that_cannot_be_beside_the_clip_do_not_cost_it(self):
        name = "n" * 251 + ".mp4"
        r = self.ok("generate", "-m", model(), *SMALL, "-o", self.path(name))
        self.assertRegex(r.err, "vortex: warning: no latents are kept while the clip is decoded: .*File name too long")
        self.assertEqual(os.listdir(self.tmp), [name])

    def test_names_that_cannot_be_written(self):
        os.mkdir(self.path("folder.mp4"))
        with open(self.path("file"), "w"):
            pass
        for code, name in (("VX-4002", self.path("none/a.mp4")), ("VX-4002", self.path("file/a.mp4")), ("VX-4002", self.path("folder.mp4")), ("VX-4002", self.path("n" * 252 + ".mp4")),
                           ("VX-4002", "/dev/full/a.mp4"), ("VX-4002", "/proc/a.mp4"), ("VX-2002", "/dev/full"), ("VX-2002", self.path("a.avi")), ("VX-2002", self.path(".mp4")[:-4]),
                           ("VX-2002", ""), ("VX-2006", "-"), ("VX-2002", self.path("a.mp4/")), ("VX-4002", self.path("d" * 4000 + "/a.mp4"))):
            with self.subTest(name=name[-40:]):
                self.refused((code, "VX-4001", "VX-4002", "VX-2002") if name.endswith("/") else code, "generate", "-m", model(), *SMALL, "-y", "-o", name)
        for flag in ("--save-latents", "--dump-tensors"):
            for code, name in (("VX-4002", self.path("none/l")), ("VX-4002", self.path("folder.mp4")), ("VX-4002", "/dev/full"), ("VX-2006", "-"), ("VX-4002", self.path("n" * 256))):
                with self.subTest(flag=flag, name=name[-40:]):
                    self.refused(code, "generate", "-m", model(), *SMALL, "-y", flag, name)

    def test_names_of_every_language_and_length(self):
        for name in ("Željko.mp4", "u\u0308.mp4", "\u00fc.mp4", "картинка 映像.mp4", "🎬.mp4", "new\nline.mp4", "-dash.mp4", " .mp4", "%s%n%x.mp4", "n" * 251 + ".mp4", "ü" * 125 + ".mp4", "..a.mp4"):
            with self.subTest(name=name[:20]):
                self.ok("generate", "-m", model(), *SMALL, "-q", "--json", "-o", self.path(name))
                self.assertEqual(os.listdir(self.tmp), [name])
                self.assertEqual(self.ok("inspect", self.path(name), "--json").json["video"]["frames"], 22)
                os.remove(self.path(name))
        r = self.ok("generate", "-m", model(), *SMALL, "-q", "--json", "-o", os.fsencode(self.path("b")) + b"\xff.mp4")
        self.assertIn("\\xff", r.json["output"])

    def test_a_model_below_a_folder_of_any_name(self):
        for name in ("Željko", "with space", "new\nline"):
            folder = shutil.copytree(model(), self.path(name))
            self.ok("generate", "-m", folder, *SMALL, "-q", "--save-latents", self.path("l"), "-y")

    def test_a_link_is_written_through_and_stays(self):
        os.mkdir(self.path("real"))
        with open(self.path("real/a.mp4"), "w") as f:
            f.write("old")
        os.symlink("real/a.mp4", self.path("a.mp4"))
        os.symlink("real", self.path("folder"))
        self.generate("-y", "-o", self.path("a.mp4"))
        self.assertTrue(os.path.islink(self.path("a.mp4")))
        self.assertGreater(os.path.getsize(self.path("real/a.mp4")), 1000)
        self.generate("-o", self.path("folder/b.mp4"))
        self.assertEqual(sorted(os.listdir(self.path("real"))), ["a.mp4", "b.mp4"])

    def test_relative_names(self):
        self.ok("generate", "-m", model(), *SMALL, "-q", "-o", "a.mp4", "--save-latents", "./l.safetensors", cwd=self.tmp)
        self.assertEqual(sorted(os.listdir(self.tmp)), ["a.mp4", "l.safetensors"])


class Folders(Case):
    def test_a_folder_that_may_not_be_written(self):
        os.mkdir(self.path("locked"), 0o555)
        for flag, name in (("-o", "a.mp4"), ("--save-latents", "l")):
            r = run("generate", "-m", model(), *SMALL, flag, self.path("locked", name), before=as_nobody)
            self.error_of(r, "VX-4002")
        self.assertEqual(os.listdir(self.path("locked")), [])

    def test_a_folder_that_vanishes_while_the_clip_is_made(self):
        for away in ("removed", "moved", "replaced"):
            with self.subTest(away=away):
                os.mkdir(self.path("out"))
                p = start("generate", "-m", model(), *SMALL, "--steps", "400", "--progress", "json", "-o", self.path("out/a.mp4"))
                for line in p.stderr:
                    if '"denoise"' in line:
                        break
                if away == "removed":
                    shutil.rmtree(self.path("out"))
                else:
                    os.rename(self.path("out"), self.path("elsewhere"))
                if away == "replaced":
                    os.mkdir(self.path("out"))
                err = p.stderr.read()
                p.stdout.close()
                code = p.wait()
                p.stderr.close()
                if away == "replaced":
                    self.assertEqual(code, 0, err)  # the name leads to a good folder again
                    self.assertEqual(os.listdir(self.path("out")), ["a.mp4"])
                else:
                    self.assertEqual(code, 4, err)
                    self.assertIn("VX-4002", err)
                for root, _, files in os.walk(self.tmp):
                    self.assertFalse([f for f in files if ".part" in f], root)
                shutil.rmtree(self.path("out"), ignore_errors=True)
                shutil.rmtree(self.path("elsewhere"), ignore_errors=True)


class Full(Case):
    """A disk that fills: exit 4, nothing half under a final name, and what was computed is kept if it fits."""

    def check(self, r, folder_files, limit):
        if r.code == 0:
            self.assertIn("a.mp4", folder_files)
            return "done"
        self.error_of(r, ("VX-4003", "VX-4005", "VX-4004"), 4)
        self.assertLessEqual(set(folder_files), {"a.mp4.latents.safetensors"}, f"{limit}: {r}")
        return "kept" if folder_files else "nothing"

    def test_a_limit_on_the_size_of_files(self):
        ends = []
        for limit in (0, 1000, 30_000, 60_000, 100_000, 109_000, 10_000_000):
            r = run("generate", "-m", model(), *SMALL, "-q", "-o", self.path("a.mp4"), before=lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
            files = os.listdir(self.tmp)
            ends.append(self.check(r, files, limit))
            for f in files:
                os.remove(self.path(f))
        self.assertEqual((ends[0], ends[-1]), ("nothing", "done"))
        self.assertIn("kept", ends)

    @unittest.skipUnless(CAN_MOUNT, "needs a mount name space")
    def test_a_small_file_system(self):
        sizes = range(65536, 16 << 20, 65536) if SLOW else (4096, 8192, 16384, 32768, 49152, 65536, 81920, 98304, 114688, 131072, 163840, 196608, 262144, 393216, 524288, 1 << 20)
        script = 'out=$1; shift; "$@"; code=$?; ls -A "$out" >&2; exit $code'
        ends = []
        for size in sizes:
            out = self.path("disk")
            os.makedirs(out, exist_ok=True)
            p = subprocess.run(["sh", "-c", script, "sh", out, VORTEX, "generate", "-m", model(), *SMALL, "-q", "-o", out + "/a.mp4"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=environment(), preexec_fn=lambda size=size: small_disk(out, size))
            lines = p.stderr.splitlines()
            errors = [line for line in lines if line.startswith("vortex: error")]
            files = [line for line in lines if not line.startswith("vortex:")]
            if p.returncode == 0:
                self.assertEqual((files, errors), (["a.mp4"], []))
            else:
                self.assertEqual((p.returncode, len(errors)), (4, 1), p.stderr)
                self.assertIn("VX-4003", errors[0])
                self.assertLessEqual(set(files), {"a.mp4.latents.safetensors"}, p.stderr)
            ends.append(p.returncode)
        self.assertEqual((ends[0], ends[-1]), (4, 0))

    @unittest.skipUnless(CAN_MOUNT, "needs a mount name space")
    def test_a_full_disk_for_the_latents_does_not_cost_the_clip(self):
        out = self.path("disk")
        os.makedirs(out)
        r = run("generate", "-m", model(), *SMALL, "-q", "-o", self.path("a.mp4"), "--save-latents", out + "/l.safetensors", before=lambda: small_disk(out, 4096))
        self.error_of(r, "VX-4003")
        self.assertGreater(os.path.getsize(self.path("a.mp4")), 1000)
        # They were asked for, and lie where there was room.
        kept = self.path("a.mp4.latents.safetensors")
        self.assertIn(kept[-40:], r.err)
        self.ok("inspect", kept)

    @unittest.skipUnless(CAN_MOUNT, "needs a mount name space")
    def test_a_read_only_file_system(self):
        out = self.path("disk")
        os.makedirs(out)
        r = run("generate", "-m", model(), *SMALL, "-q", "-o", out + "/a.mp4", before=lambda: small_disk(out, 1 << 20, ",mode=0555"))
        if r.code:
            self.error_of(r, "VX-4002")

    def test_the_latents_that_were_kept_make_the_clip(self):
        r = run("generate", "-m", model(), *SMALL, "-q", "-o", self.path("a.mp4"), before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000)))
        self.error_of(r, ("VX-4003", "VX-4005"))
        kept = self.path("a.mp4.latents.safetensors")
        self.assertIn(kept[-40:], r.err)
        self.ok("decode", "-m", model(), "--latents", kept, "-q", "-o", self.path("a.mp4"))
        self.generate("-o", self.path("b.mp4"))
        with open(self.path("a.mp4"), "rb") as a, open(self.path("b.mp4"), "rb") as b:
            self.assertTrue(a.read() == b.read(), "another clip")


class Finished(Case):
    def test_picture_and_sound_are_as_long_as_planned(self):
        """Public reports P04-P06: counts for several points of the lattice."""
        for frames in (22, 39, 124) + ((175, 226, 277, 328, 362) if SLOW else ()):
            r = self.ok("generate", "-m", model(), "--size", "64x32", "--steps", "1", "--frames", str(frames), "--seed", "1", "-p", "a", "-q", "--json", "-o", self.path("a.mp4"), "-y").json
            info = self.ok("inspect", self.path("a.mp4"), "--json").json
            self.assertEqual((info["video"]["frames"], info["video"]["fps"], info["video"]["width"], info["video"]["height"]), (frames, "24/1", 64, 32))
            self.assertLessEqual(abs(info["audio"]["samples"] - frames * 32000 / 24), 1024)
            self.assertTrue(info["faststart"])
            self.assertEqual(info["request"]["seed"], 1)
            self.assertEqual(r["frames"], frames)

    def test_media_options_act(self):
        info = {}
        for name, args in (("plain", []), ("fps", ["--fps", "30"]), ("slow", ["--fps", "23.976"]), ("mute", ["--audio-codec", "none"]), ("full", ["--pixel-format", "yuv444p"]), ("bare", ["--no-metadata"]), ("fine", ["--crf", "0"])):
            self.generate("-o", self.path(name + ".mp4"), *args)
            info[name] = self.ok("inspect", self.path(name + ".mp4"), "--json").json
        self.assertEqual(info["fps"]["video"]["fps"], "30/1")
        self.assertEqual(info["slow"]["video"]["fps"], "2997/125")
        self.assertEqual(info["mute"]["audio"]["samples"], 0)
        self.assertEqual(info["full"]["video"]["pixel_format"], "yuv444p")
        self.assertIsNone(info["bare"]["request"])
        self.assertGreater(os.path.getsize(self.path("fine.mp4")), os.path.getsize(self.path("plain.mp4")))
        self.assertTrue(all(i["video"]["frames"] == 22 for i in info.values()))
        # What the file says of its making names no folder of the maker.
        self.assertNotIn(model(), json.dumps(info["plain"]["request"]))


if __name__ == "__main__":
    main()
