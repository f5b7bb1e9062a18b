#!/usr/bin/env python3
"""Failures of the system at every call (T06, T19-T21): the k-th open, read, write, sync, rename, map or allocation fails,
once or for ever, or is the process's last. One error with its code, or a clip as if nothing had been; never a half one."""
import os
import unittest

from harness import FAULTS, SLOW, SMALL, Case, main, model, run, tree

CALLS = ("open", "openat", "read", "write", "fsync", "rename", "unlink", "ftruncate", "mmap")
ERRORS = {"open": "EMFILE", "openat": "EACCES", "read": "EIO", "write": "ENOSPC", "fsync": "EIO", "rename": "EROFS", "unlink": "EIO", "ftruncate": "ENOSPC", "mmap": "ENOMEM"}


@unittest.skipUnless(FAULTS, "VORTEX_FAULT_LIBRARY names no library")
class Faults(Case):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("out"))
        self.output = self.path("out/clip.mp4")

    def run_with(self, fault, *, path=None, counts=None, args=()):
        env = {"LD_PRELOAD": FAULTS, "VORTEX_FAULT": fault or "", "VORTEX_FAULT_PATH": path or ""}
        if counts:
            env["VORTEX_FAULT_COUNTS"] = counts
        output = ["-o", self.output] if self.output else []
        return run("generate", "-m", model(), *SMALL, "-q", "--threads", "2", *output, *args, env=env)

    def count(self, *, path=None, args=(), fault=None):
        file = self.path("counts")
        r = self.run_with(fault, path=path, counts=file, args=args)
        self.assertEqual(r.code, 0, str(r))
        with open(file) as f:
            numbers = {name: int(n) for name, n in (line.split() for line in f)}
        os.remove(file)
        self.clear()
        return numbers

    def clear(self):
        for name in os.listdir(self.path("out")):
            os.remove(self.path("out", name))

    def judge(self, r, what, *, codes=(3, 4, 5), killed=False):
        """The invariants after any fault: what has its final name is complete, nothing else is left. The folder is emptied."""
        files = sorted(os.listdir(self.path("out")))
        final = [f for f in files if not f.startswith(".")]
        if killed and r.code == -9:
            self.assertLessEqual(set(final), {"clip.mp4", "l.safetensors", "clip.mp4.latents.safetensors"}, f"{what}: {r}")
        elif r.code == 0:
            self.assertIn("clip.mp4", final, f"{what}: {r}")
        else:
            self.error_of(r)
            self.assertIn(r.code, codes, f"{what}: {r}")
        for f in final:
            info = self.ok("inspect", self.path("out", f), "--json").json
            if f.endswith(".mp4"):
                self.assertEqual(info["video"]["frames"], 22, what)
        if not killed:
            self.assertEqual([f for f in files if f.startswith(".")], [], f"{what}: {r}")
        self.clear()

    def places(self, n, most):
        """1..n, or `most` of them, early ones more often."""
        most *= 20 if SLOW else 1
        if n <= most:
            return range(1, n + 1)
        return sorted({round(1 + (n - 1) * (i / (most - 1)) ** 2) for i in range(most)})

    def test_kill_at_each_call_of_the_outputs(self):
        for args in ((), ("--save-latents", self.path("out/l.safetensors"))):
            calls = self.count(path="/out/|clip.mp4|l.safetensors", args=args)
            self.assertGreater(calls["any"], 15)
            for k in self.places(calls["any"], 24):
                r = self.run_with(f"any:{k}:kill", path="/out/|clip.mp4|l.safetensors", args=args)
                self.assertIn(r.code, (-9, 0), str(r))  # the number of calls differs a little from run to run
                self.judge(r, f"killed at call {k}", killed=True)

    def test_errors_of_each_call_on_the_outputs(self):
        args = ("--save-latents", self.path("out/l.safetensors"))
        path = "/out/|clip.mp4|l.safetensors"
        calls = self.count(path=path, args=args)
        for call in CALLS:
            for k in self.places(calls[call], 8):
                for plus in ("", "+"):
                    what = f"{call}:{k}{plus}:{ERRORS[call]}"
                    r = self.run_with(what, path=path, args=args)
                    if call == "unlink":  # nothing can be done about a temporary file that cannot be removed
                        self.clear()
                        self.assertGreaterEqual(r.code, 0)
                        continue
                    self.judge(r, what)

    def test_errors_of_each_call_on_the_model(self):
        calls = self.count(path="/model/")
        self.assertGreater(calls["open"], 10)
        for call in ("open", "read", "mmap"):
            for k in self.places(calls[call], 10):
                for plus, error in (("", ERRORS[call]), ("+", ERRORS[call]), ("", "EACCES" if call == "open" else "EIO")):
                    what = f"{call}:{k}{plus}:{error}"
                    r = self.run_with(what, path="/model/")
                    self.judge(r, what)
                    self.assertIn(r.code, (0, 3, 5), f"{what}: {r}")

    def test_interruptions_and_short_counts_are_invisible(self):
        for what, path in (("read:1+:short", "/model/"), ("write:1+:short", "/out/"), ("write:1:EINTR", "/out/"), ("read:1:EINTR", "/model/"), ("write:3:EINTR", "/out/"), ("read:2:EINTR", "/out/")):
            r = self.run_with(what, path=path)
            self.assertEqual(r.code, 0, f"{what}: {r}")
            self.judge(r, what)

    def test_a_sync_that_fails_is_never_a_success(self):
        calls = self.count(path="/out")
        self.assertGreaterEqual(calls["fsync"], 4)  # of the latents beside it and of the clip, the file and its folder
        for k in range(1, calls["fsync"] + 1):
            r = self.run_with(f"fsync:{k}:EIO", path="/out")
            self.assertEqual(r.code, 0 if k <= 2 else 4, str(r))
            self.assertEqual("clip.mp4" in os.listdir(self.path("out")), k <= 2)
            self.judge(r, f"fsync {k}")

    def test_a_full_disk_at_each_write(self):
        calls = self.count(path="clip.mp4")
        for k in self.places(calls["write"], 20):
            r = self.run_with(f"write:{k}+:ENOSPC", path=".part")
            if r.code:
                self.error_of(r, "VX-4003")
            self.judge(r, f"write {k}")

    def test_failed_allocations_are_errors_of_memory(self):
        # Jansson does not always tell a lack of memory from a bad text.
        for callers, codes in (("/vortex|libvortex", (5,)), ("libjansson", (3, 5))):
            n = self.count(path=callers, fault="malloc:1000000000:ENOMEM")["malloc"]
            self.assertGreater(n, 500)
            for plus in ("", "+"):
                for k in self.places(n, 30):
                    what = f"malloc:{k}{plus}:ENOMEM by {callers}"
                    self.judge(self.run_with(what.split()[0], path=callers), what, codes=codes)

    def test_a_lack_of_memory_says_how_much_and_what_helps(self):
        """In text and in JSON, also where there is no memory to make JSON."""
        for fault, callers, message in (("malloc:200:ENOMEM", "/vortex|libvortex", r"\(\d+ bytes\)"), ("malloc:200+:ENOMEM", "/vortex|libvortex|libjansson", "memory")):
            r = self.run_with(fault, path=callers, args=("--json",))
            self.error_of(r, "VX-5001")
            self.assertRegex(r.err, message)
            self.assertIn("close other programs", r.err)
            self.assertIn("close other programs", r.json["error"]["remedy"])

    def test_maps_without_memory(self):
        calls = self.count(path="anonymous")
        for k in self.places(calls["mmap"], 16):
            r = self.run_with(f"mmap:{k}:ENOMEM", path="anonymous")
            self.judge(r, f"map {k}")

    def test_steps_allocate_nothing(self):
        """Whatever the number of evaluations, the same number of allocations (progress off: printing may allocate)."""
        self.output = None
        numbers = [self.count(args=("--steps", str(steps), "--progress", "none", "--save-latents", self.path("out/l")), path="/vortex", fault="malloc:1000000000:ENOMEM")["malloc"] for steps in (3, 3, 40)]
        self.assertEqual(numbers[0], numbers[1])
        self.assertEqual(numbers[0], numbers[2])


if __name__ == "__main__":
    main()
