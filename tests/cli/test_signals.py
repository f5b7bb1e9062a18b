#!/usr/bin/env python3
"""SIGINT and SIGTERM in every stage: exit 130 within one operator, nothing left but latents that were asked for; and a
process that is killed leaves no half file under a final name, and its latents once it has some."""
import json
import os
import signal
import time

from harness import SMALL, Case, main, model, run, start, tree

LONG = "A lighthouse keeper walks down to the harbour and tells a long story about the sea. " * 60


class Signals(Case):
    # stage, request that makes it last, lines of its progress to wait for
    STAGES = {
        "text": ["--size", "96x64", "--frames", "22", "--steps", "1", "-p", LONG],
        "denoise": ["--size", "96x64", "--frames", "22", "--steps", "1000", "-p", "a"],
        "decode_audio": ["--size", "32x32", "--frames", "362", "--steps", "1", "-p", "a"],
        "decode_video": ["--size", "512x512", "--frames", "39", "--steps", "1", "-p", "a"],
    }

    def interrupted_at(self, stage, number, *more, out="a.mp4"):
        p = start("generate", "-m", model(), "--seed", "1", "--progress", "json", "-o", self.path(out), *self.STAGES[stage], *more)
        seen = None
        for line in p.stderr:
            if line.startswith("{") and json.loads(line)["stage"] == stage:
                seen = json.loads(line)
                break
        self.assertTrue(seen)
        began = time.monotonic()
        p.send_signal(number)
        out, err = p.communicate(timeout=60)
        return p.returncode, out, err, time.monotonic() - began

    def test_every_stage_ends_at_once(self):
        for stage in self.STAGES:
            for number in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(stage=stage, number=number):
                    code, out, err, seconds = self.interrupted_at(stage, number, "--json")
                    self.assertEqual(code, 130, err)
                    self.assertEqual(json.loads(out)["error"]["code"], "VX-8001")
                    self.assertEqual(err.count("vortex: error VX-8001"), 1, err)
                    self.assertLess(seconds, 10)
                    stages = {json.loads(line)["stage"] for line in err.splitlines() if line.startswith("{")}
                    self.assertLessEqual(stages, {stage}, "the next stage began")
                    self.assertEqual(tree(self.tmp), {})

    def test_finished_latents_are_kept_where_asked(self):
        code, _, err, _ = self.interrupted_at("decode_video", signal.SIGINT, "--save-latents", self.path("l.safetensors"))
        self.assertEqual(code, 130, err)
        self.assertEqual(list(tree(self.tmp)), ["l.safetensors"])
        self.ok("inspect", self.path("l.safetensors"))

    def test_latents_of_a_killed_decode_make_the_clip(self):
        """Public report P32: what took the time is on the disk before decoding begins, whatever ends the process but a user who cancels."""
        for stage, number, ends in (("decode_audio", signal.SIGKILL, -signal.SIGKILL), ("decode_video", signal.SIGKILL, -signal.SIGKILL),
                                    ("decode_video", signal.SIGHUP, 130)):
            with self.subTest(stage=stage, number=number):
                code, _, err, _ = self.interrupted_at(stage, number)
                self.assertEqual(code, ends, err)
                kept = self.path("a.mp4.latents.safetensors")
                self.assertEqual([n for n in os.listdir(self.tmp) if not n.startswith(".")], [os.path.basename(kept)])
                self.ok("decode", "-m", model(), "--latents", kept, "-q", "-o", self.path("a.mp4"))
                self.ok("generate", "-m", model(), "--seed", "1", "-q", "-o", self.path("b.mp4"), *self.STAGES[stage])
                with open(self.path("a.mp4"), "rb") as a, open(self.path("b.mp4"), "rb") as b:
                    self.assertTrue(a.read() == b.read(), "another clip")
                for name in os.listdir(self.tmp):
                    os.remove(self.path(name))

    def test_a_second_signal_does_not_wait(self):
        for stage in ("denoise", "decode_video"):
            p = start("generate", "-m", model(), "--seed", "1", "--progress", "json", "-o", self.path("a.mp4"), *self.STAGES[stage])
            for line in p.stderr:
                if f'"{stage}"' in line:
                    break
            p.send_signal(signal.SIGINT)
            p.send_signal(signal.SIGTERM)
            p.communicate(timeout=60)
            self.assertEqual(p.returncode, 130)
            self.assertEqual(tree(self.tmp), {})

    def test_before_any_work_too(self):
        """While the program waits for a prompt or a model is being opened."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            r, w = os.pipe()
            p = start("generate", "-m", model(), "--jobs", "/dev/fd/%d" % r, "--json", pass_fds=(r,))
            os.close(r)
            time.sleep(0.5)
            p.send_signal(number)
            out, err = p.communicate(timeout=60)
            os.close(w)
            self.assertEqual(p.returncode, 130, err)
            self.assertEqual(json.loads(out)["error"]["code"], "VX-8001")

    def test_a_bench_ends_in_order(self):
        for arguments in (["linear"], ["audio-encoder", "-m", model()], ["denoiser", "-m", model(), *SMALL]):
            p = start("bench", *arguments, "--runs", "1000")
            time.sleep(0.5)
            p.send_signal(signal.SIGINT)
            out, err = p.communicate(timeout=60)
            self.assertEqual(p.returncode, 130, err)
            self.assertIn("VX-8001", err)
            self.assertNotIn("samples_s", out)

    def test_random_moments(self):
        """Whenever it comes, the clip is complete or not there."""
        began = time.monotonic()
        self.generate("-o", self.path("whole.mp4"))
        whole = time.monotonic() - began
        os.remove(self.path("whole.mp4"))
        for i in range(12):
            p = start("generate", "-m", model(), *SMALL, "-q", "-o", self.path("a.mp4"))
            time.sleep(whole * i / 12)
            p.send_signal(signal.SIGTERM if i % 2 else signal.SIGINT)
            _, err = p.communicate(timeout=60)
            files = list(tree(self.tmp))
            if p.returncode == 0:
                self.assertEqual(files, ["a.mp4"])
                self.assertEqual(self.ok("inspect", self.path("a.mp4"), "--json").json["video"]["frames"], 22)
                os.remove(self.path("a.mp4"))
            elif p.returncode < 0:  # before the program took the signals over
                self.assertLess(i, 3)
                self.assertEqual(files, [])
            else:
                self.assertEqual(p.returncode, 130, err)
                self.assertEqual(files, [])

    def test_a_series_stops_between_clips_and_keeps_what_is_done(self):
        lines = [json.dumps({"save_latents": self.path(f"{i}.safetensors"), "steps": 20}) for i in range(300)]
        with open(self.path("jobs"), "w") as f:
            f.write("\n".join(lines))
        p = start("generate", "-m", model(), *SMALL, "--jobs", self.path("jobs"), "--progress", "none")
        first = p.stdout.readline()
        p.send_signal(signal.SIGINT)
        rest, err = p.communicate(timeout=120)
        self.assertEqual(p.returncode, 130, err)
        done = [json.loads(line) for line in (first + rest).splitlines()]
        finished = [d for d in done if "latents_sha256" in d]
        self.assertEqual(len([n for n in os.listdir(self.tmp) if n.endswith(".safetensors")]), len(finished))
        self.assertLess(len(finished), 300)
        self.assertGreaterEqual(len(finished), 1)

    def test_killed_processes_leave_no_half_file_under_a_final_name(self):
        for i in range(8):
            p = start("generate", "-m", model(), *SMALL, "-q", "-o", self.path("a.mp4"), "--save-latents", self.path("l.safetensors"))
            time.sleep(0.06 * i)
            p.kill()
            p.communicate()
            for name in os.listdir(self.tmp):
                if not name.startswith("."):
                    self.ok("inspect", self.path(name))
                os.remove(self.path(name))

    def test_demo_model_too(self):
        p = start("demo-model", self.path("m"))
        time.sleep(0.05)
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=60)
        self.assertIn(p.returncode, (0, 130, -signal.SIGTERM))
        for root, _, files in os.walk(self.tmp):
            self.assertFalse([f for f in files if f.endswith(".part")], files)


if __name__ == "__main__":
    main()
