#!/usr/bin/env python3
"""Options, ranges, conflicts and prompts: every range of the command-line contract at and beyond both ends, as a newcomer
or an attacker would type them."""
import json
import os
import re

from harness import SMALL, Case, main, model, run


class Ranges(Case):
    # (flag, accepted, refused, code): planned, not run; the plan makes the same checks and reads headers only.
    TABLE = [
        ("--frames", ["6", "22", "23", "362"], ["0", "1", "5", "363", "-1", "99999999999999999999", "-99999999999999999999"], "VX-2003"),
        ("--frames", [], ["", "x", "22x", "2e1", "22.0", " 22", "0x16", "nan"], "VX-2002"),
        ("--seconds", ["0.3", "0.9167", "5", "15", "15.08"], ["15.1", "0", "-1", "1e300", "inf", "nan", "0.2"], "VX-2003"),
        ("--seconds", [], ["", "five", "5s", "5,0"], "VX-2002"),
        ("--steps", ["1", "1000"], ["0", "-1", "1001", "2147483648", "9223372036854775808"], "VX-2003"),
        ("--num-inference-steps", ["2", "1001"], ["1", "0", "1002", "-2"], "VX-2003"),
        ("--size", ["32x32", "128x32", "32x128", "4032x1024", "2688x1536"],
         ["0x0", "31x32", "33x32", "32x48", "160x32", "32x160", "4128x1024", "4096x1056", "2720x1536", "-64x64", "99999999999x32"], "VX-2003"),
        ("--size", [], ["", "64", "x", "64x", "x64", "64x64x64", "64*64", "64 x 64", "axb", "64X64"], "VX-2002"),
        ("--aspect", ["1:4", "4:1", "16:9", "2.39:1", "1:1"], ["1:4.1", "41:10", "1:1000000"], "VX-2003"),
        ("--aspect", [], ["", "16", "16/9", ":", "1:", ":1", "0:1", "1:0", "-1:1", "nan:1", "inf:1", "a:b"], "VX-2002"),
        ("--seed", ["0", "9223372036854775807"], ["-1", "9223372036854775808", "18446744073709551616"], "VX-2003"),
        ("--seed", [], ["", "1.0", "0x1", "random", "1e3"], "VX-2002"),
        ("--shift", ["0.000001", "12", "100"], ["0", "-0.1", "100.001", "nan", "inf", "-inf", "1e39"], "VX-2003"),
        ("--audio-shift", ["0.5", "100"], ["0", "101", "nan"], "VX-2003"),
        ("--shift", [], ["", "x", "1,2", "12 "], "VX-2002"),
        ("--sigmas", ["1,0", "0.9,0.5,0", ",".join(str(1 - i / 1000) for i in range(1001))],
         ["0", "1,0.5", "0.5,0.5,0", "0.1,0.2,0", "1.01,0", "1,-0.1", "nan,0", "1,nan,0", "inf,0", "1,0,0"], ("VX-2003", "VX-2002")),
        ("--sigmas", [], ["", ",", "1,,0", "1;0", "1,0,", ",".join(str(1 - i / 1001) for i in range(1002))], ("VX-2003", "VX-2002")),
        ("--fps", ["1", "23.976", "120"], ["0.99", "0", "121", "-24", "nan", "inf"], "VX-2003"),
        ("--crf", ["0", "51"], ["-1", "52"], "VX-2003"),
        ("--audio-bitrate", ["32000", "32k", "512k", "512000"], ["31999", "31k", "513k", "512001", "0", "-1"], "VX-2003"),
        ("--outputs", ["1", "100"], ["0", "101", "-1"], "VX-2003"),
        ("--threads", ["1"], ["0", "-1", "1025", "99999999999999999999"], "VX-2003"),
        ("--threads", [], ["", "two", "1.5", "1 2"], "VX-2002"),
        ("--canvas-short-edge", ["32", "4096"], ["31", "4097"], "VX-2003"),
        ("--canvas-max-pixels", ["1024", "4128768"], ["1023", "4128769"], "VX-2003"),
    ]
    WITHOUT = {"--seconds": "--frames", "--num-inference-steps": "--steps", "--sigmas": "--steps", "--aspect": "--size",
               "--canvas-short-edge": "--size", "--canvas-max-pixels": "--size"}

    def request(self, flag):
        """A small request without what the flag replaces."""
        base, drop = list(SMALL), [flag, self.WITHOUT.get(flag)]
        for name in drop:
            if name in base:
                at = base.index(name)
                del base[at:at + 2]
        return base

    def test_values_within_their_range_are_planned(self):
        for flag, accepted, _, _ in self.TABLE:
            for value in accepted:
                with self.subTest(flag=flag, value=value[:40]):
                    r = run("plan", "-m", model(), *self.request(flag), flag, value, "--json")
                    if r.code == 5:  # more memory than this machine has: the value itself was accepted
                        self.error_of(r, "VX-5002")
                        continue
                    self.assertEqual(r.code, 0, str(r))
                    self.assertIn("host_bytes", r.json)

    def test_values_beyond_their_range_are_refused_and_the_range_is_named(self):
        for flag, _, refused, code in self.TABLE:
            for value in refused:
                with self.subTest(flag=flag, value=value[:40]):
                    r = self.refused(code, "generate", "-m", model(), *self.request(flag), "-o", self.path("a.mp4"), flag, value)
                    field = json.loads(r.out)["error"]["field"]
                    self.assertTrue(field.replace("_", "-") in flag or field in ("size", "aspect", "frames", "canvas_short_edge"), str(r))

    def test_frames_are_aligned_up_and_that_is_said(self):
        for asked, becomes in (("6", 22), ("22", 22), ("23", 39), ("107", 107), ("108", 124), ("345", 345), ("346", 362)):
            r = self.ok("plan", "-m", model(), *self.request("--frames"), "--frames", asked, "--json")
            self.assertEqual(r.json["frames"], becomes)
            said = [w for w in r.json["warnings"] if "aligned" in w]
            self.assertEqual(len(said), int(asked) != becomes, r.json["warnings"])
            trained = [w for w in r.json["warnings"] if "trained" in w]
            self.assertEqual(len(trained), becomes < 107 or becomes > 345, r.json["warnings"])

    def test_large_canvases_are_warned_about(self):
        for size, warned in (("1344x768", False), ("1376x768", True)):
            r = run("plan", "-m", model(), *self.request("--size"), "--size", size, "--json")
            if r.code == 0:
                self.assertEqual(any("larger" in w for w in r.json["warnings"]), warned, str(r))


class Combinations(Case):
    def test_contradictions_and_unknown_things_are_refused(self):
        o, m = ["-o", self.path("a.mp4")], ["-m", model()]
        table = [
            ("VX-2001", ["generate", *m, *SMALL, *o, "--colour", "red"]),
            ("VX-2001", ["generate", *m, *SMALL, *o, "-z"]),
            ("VX-2001", ["generate", *m, *SMALL, *o, "--" + "x" * 5000]),
            ("VX-2001", ["generate", *m, *SMALL, *o, "stray"]),
            ("VX-2001", ["generate", *m, *SMALL, *o, "--steps"]),
            ("VX-2001", ["generate", *m, *SMALL, *o, "--yes=1"]),
            ("VX-2001", ["generate", *m, *SMALL, "-o"]),
            ("VX-2001", ["nonsense"]),
            ("VX-2001", [""]),
            ("VX-2001", ["help", "nonsense"]),
            ("VX-2001", ["decode", *m, "--prompt", "a"]),
            ("VX-2001", ["tokenize", *m]),
            ("VX-2001", ["tokenize", *m, "a", "b"]),
            ("VX-2001", ["tokenize", *m, "a", "-p", "b"]),
            ("VX-2001", ["inspect"]),
            ("VX-2001", ["inspect", "a", "b"]),
            ("VX-2001", ["bench"]),
            ("VX-2001", ["bench", "nothing"]),
            ("VX-2001", ["demo-model"]),
            ("VX-2003", ["bench", "linear", "--runs", "0"]),
            ("VX-2003", ["bench", "linear", "--runs", "1001"]),
            ("VX-2004", ["bench", "generate"]),
            ("VX-2005", ["bench", "linear", "--size", "64x64"]),
            ("VX-2005", ["bench", "video-vae", "-m", model(), "--size", "64x64", "--steps", "3"]),
            ("VX-2005", ["bench", "audio-vae", "-m", model(), "--vae-precision", "float16"]),
            ("VX-2005", ["bench", "text-encoder", "-m", model(), "--sampler", "euler"]),
            ("VX-2005", ["bench", "audio-encoder", "-m", model(), "--prompt-file", "/nowhere"]),
            ("VX-2008", ["bench", "denoiser", "-m", model(), "--prompt-file", "/nowhere"]),
            ("VX-2004", ["generate", *m, *SMALL]),
            ("VX-2004", ["generate", *SMALL, *o]),
            ("VX-2004", ["generate", "-m", "", *SMALL, *o]),
            ("VX-2004", ["generate", *m, "--size", "96x64", *o]),
            ("VX-2004", ["decode", *m, *o]),
            ("VX-2004", ["decode", *m, "--latents", "x"]),
            ("VX-2004", ["plan", *SMALL]),
            ("VX-2005", ["generate", *m, *SMALL, *o, "--aspect", "1:1"]),
            ("VX-2005", ["generate", *m, *SMALL, *o, "--seconds", "2"]),
            ("VX-2005", ["generate", *m, *SMALL, *o, "--num-inference-steps", "3"]),
            ("VX-2005", ["generate", *m, *SMALL, *o, "--sigmas", "1,0"]),
            ("VX-2005", ["generate", *m, *SMALL, *o, "--prompt-file", "x"]),
            ("VX-2005", ["generate", *m, *o, "--jobs", "-", "--prompt-file", "-"]),
            ("VX-2006", ["generate", *m, *SMALL, *o, "--guidance-scale", "1"]),
            ("VX-2006", ["generate", *m, *SMALL, *o, "--negative-prompt", "bad"]),
            ("VX-2004", ["generate", *m, *SMALL, *o, "--turbo", "4"]),
            ("VX-6001", ["generate", *m, *SMALL, *o, "--device", "cpu", "--no-graphs"]),
            ("VX-6001", ["generate", *m, *SMALL, *o, "--device", "cpu", "--attention", "cudnn"]),
            ("VX-2002", ["generate", *m, *SMALL, *o, "--attention", "flash"]),
            ("VX-2002", ["generate", *m, *SMALL, *o, "--task", "v2v"]),
            ("VX-2002", ["generate", *m, *SMALL, *o, "--sampler", "heun"]),
            ("VX-2002", ["generate", *m, *SMALL, *o, "--sampler", ""]),
            ("VX-2002", ["generate", *m, *SMALL, *o, "--schedule", "karras"]),
            ("VX-2002", ["generate", *m, *SMALL, *o, "--noise", "cuda"]),
            ("VX-2002", ["generate", *m, *SMALL, *o, "--precision", "fast"]),
            ("VX-2002", ["generate", *m, *SMALL, *o, "--video-codec", "av1"]),
            ("VX-2002", ["generate", *m, *SMALL, *o, "--pixel-format", "rgb24"]),
            ("VX-2002", ["generate", *m, *SMALL, *o, "--audio-codec", "mp3"]),
            ("VX-2002", ["generate", *m, *SMALL, *o, "--progress", "loud"]),
            ("VX-2002", ["generate", *m, *SMALL, *o, "--variant", "t2va"]),
            ("VX-2002", ["generate", *m, *SMALL, *o, "--device", "tpu"]),
            ("VX-2002", ["generate", *m, *SMALL, *o, "--isa", "mmx"]),
            ("VX-2002", ["generate", *m, *SMALL, *o, "--outputs", "2"]),
            ("VX-2003", ["generate", *m, *SMALL, "-o", self.path("a%d.mp4"), "--outputs", "2", "--seed", "9223372036854775807"]),
            ("VX-6001", ["generate", *m, *SMALL, *o, "--device", "cuda"]),
            ("VX-6001", ["generate", *m, *SMALL, *o, "--device", "cuda:1"]),
            ("VX-4002", ["generate", *m, *SMALL, *o, "--log-file", self.path("none/log")]),
        ]
        for code, args in table:
            with self.subTest(args=[a[:40] for a in args]):
                self.refused(code, *args)

    def test_the_nearest_option_is_offered(self):
        r = self.refused("VX-2001", "generate", "--num-inference-step", "3")
        self.assertIn("--num-inference-steps", r.err)

    def test_flags_take_both_spellings_and_the_last_one_counts(self):
        r = self.ok("plan", "-m", model(), *SMALL, "--steps=3", "--steps", "5", "--prompt=x=y", "--json")
        self.assertEqual((r.json["evaluations"], r.json["prompt"]), (5, "x=y"))

    def test_a_value_may_look_like_an_option(self):
        r = self.ok("plan", "-m", model(), *SMALL, "-p", "--steps", "--json")
        self.assertEqual(r.json["prompt"], "--steps")

    def test_the_model_comes_from_the_environment_and_through_links(self):
        os.symlink(model(), self.path("link"))
        for path in (model() + "/", model() + "//.", self.path("link"), self.path("link") + "/", os.path.relpath(model())):
            self.ok("plan", "-m", path, *SMALL, "--json")
        self.ok("plan", *SMALL, env={"VORTEX_MODEL": model()})

    def test_steps_count_evaluations_and_inference_steps_sigma_points(self):
        base = Ranges.request(Ranges(), "--num-inference-steps")
        a = self.ok("plan", "-m", model(), *base, "--steps", "4", "--json").json
        b = self.ok("plan", "-m", model(), *base, "--num-inference-steps", "5", "--json").json
        self.assertEqual((a["evaluations"], a["sigma_points"]), (4, 5))
        self.assertEqual((b["evaluations"], b["sigma_points"]), (4, 5))

    def test_a_plan_says_what_cards_can_do_with_the_released_weights(self):
        self.ok("demo-model", self.path("released"), "--released")
        for card in self.ok("plan", "-m", self.path("released"), *SMALL, "--json").json["gpus"]:
            room = card["gpu_gb"]  # the text encoder takes 48 GB and the transformer 40, each alone
            with self.subTest(gb=room):
                self.assertEqual(card["text"], "resident" if room > 50 else "streamed")
                self.assertEqual(card["denoise"], "resident" if room > 42 else "streamed")
                self.assertEqual((card["decode_video"], card["decode_audio"], card["missing_bytes"]), ("resident", "resident", 0))


class Prompts(Case):
    REQUEST = SMALL[:-2]

    def plan(self, *args, **kw):
        return run("plan", "-m", model(), *self.REQUEST, "--json", *args, **kw)

    def file(self, data):
        with open(self.path("prompt.txt"), "wb") as f:
            f.write(data)
        return self.path("prompt.txt")

    def test_what_is_no_prompt_is_refused(self):
        for data in (b"", b"\xff\xfe", b"\xc3\x28", b"ok\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80", b"cut \xe2\x82", b"nul \0 inside", b"<|image_pad|>", b"a<|video_pad|>b"):
            with self.subTest(data=data):
                self.refused("VX-2007", "generate", "-m", model(), *self.REQUEST, "-o", self.path("a.mp4"), "--prompt-file", self.file(data))
                if data and b"\0" not in data:
                    self.refused("VX-2007", "generate", "-m", model(), *self.REQUEST, "-o", self.path("a.mp4"), "-p", data)
        self.refused("VX-2007", "generate", "-m", model(), *self.REQUEST, "-o", self.path("a.mp4"), "-p", "")

    def test_long_prompts_at_and_beyond_the_limits(self):
        self.assertEqual(self.plan("--prompt-file", self.file(b"a" * 4000)).code, 0)
        # 64 KiB of text; this vocabulary is small, so tokens run out first: 16,384 of them.
        for size in (65536, 65537, 100000):
            r = self.plan("--prompt-file", self.file(b"q" * size))
            self.error_of(r, ("VX-2007", "VX-2008"))
            self.refused(("VX-2007",), "generate", "-m", model(), *self.REQUEST, "-o", self.path("a.mp4"), "-p", "q" * size)
        r = self.plan("--prompt-file", self.file(b"q" * 65537))
        self.assertIn("65536", r.err)

    def test_a_prompt_file_is_taken_verbatim_and_may_be_standard_input(self):
        text = "  Zeile\n\tmit Ümläuten, 日本語, 🎬 und <d>Wort</d>  \n"
        from_file = self.plan("--prompt-file", self.file(text.encode()))
        from_stdin = self.plan("--prompt-file", "-", stdin=text.encode())
        from_flag = self.plan("-p", text)
        self.assertEqual(from_file.json["prompt"], text)
        self.assertEqual(from_file.json["prompt"], from_stdin.json["prompt"])
        self.assertEqual(from_file.json["rows"], from_flag.json["rows"])

    def test_files_that_cannot_be_read(self):
        for path in (self.path("none"), self.tmp, "/proc/self/mem"):
            r = self.plan("--prompt-file", path)
            self.error_of(r, "VX-2008")

    def test_tokenize_agrees_with_itself_and_reads_standard_input(self):
        a = self.ok("tokenize", "-m", model(), "hello world").out.split()
        b = self.ok("tokenize", "-m", model(), "--prompt-file", "-", stdin=b"hello world").out.split()
        c = self.ok("tokenize", "-m", model(), "-p", "hello world", "--json").json
        self.assertEqual(a, b)
        self.assertEqual([str(i) for i in c["ids"]], a)
        self.assertEqual(c["count"], len(a))
        self.refused("VX-2007", "tokenize", "-m", model(), b"\xff")


class Streams(Case):
    def test_results_that_cannot_be_told_are_errors_of_output(self):
        with open("/dev/full", "wb") as full:
            r = run("plan", "-m", model(), *SMALL, "--json", stdout=full)
        self.error_of(r, "VX-4003")
        with open("/dev/full", "wb") as full:
            r = run("generate", "-m", model(), *SMALL, "-q", "--json", "-o", self.path("a.mp4"), stdout=full)
        self.error_of(r, "VX-4003")
        self.assertGreater(os.path.getsize(self.path("a.mp4")), 1000)  # the clip itself is there
        for command in (["help"], ["help", "--man"], ["help", "--completion"], ["doctor"], ["tokenize", "-m", model(), "a"]):
            with open("/dev/full", "wb") as full:
                self.error_of(run(*command, stdout=full), "VX-4003")

    def test_a_closed_descriptor_is_never_written_into_a_file(self):
        for fds in ([1], [0], [2], [0, 1, 2]):
            with self.subTest(closed=fds):
                out = self.path("c%s.mp4" % "".join(map(str, fds)))
                r = run("generate", "-m", model(), *SMALL, "--json", "-o", out, before=lambda fds=fds: [os.close(fd) for fd in fds])
                self.assertEqual(r.code, 4 if 1 in fds else 0, str(r))
                check = self.ok("inspect", out, "--json").json
                self.assertEqual((check["video"]["frames"], check["request"]["seed"]), (22, 1))

    def test_a_pipe_whose_reader_left_does_not_kill(self):
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as gone:
            r = run("generate", "-m", model(), *SMALL, "-q", "--json", "-o", self.path("a.mp4"), stdout=gone)
        self.error_of(r, "VX-4002")

    def test_help_is_complete(self):
        r = self.ok("help")
        commands = re.findall(r"^  ([a-z-]+)  +\w", r.out, re.M)
        self.assertIn("generate", commands)
        for c in commands:
            one = self.ok("help", c)
            self.assertIn("usage: vortex " + c, one.out)
            self.assertEqual(one.out, self.ok(c, "--help").out)
        self.assertIn("0.", self.ok("--version").out)
        self.assertEqual("cuda" in self.ok("--version").out, self.ok("doctor", "--json").json["cuda"] != "not in this build")
        self.assertIn(re.search(r"none of (.*generate)", self.refused("VX-2001", "bench", "nothing").err)[1], self.ok("help", "bench").out)
        self.assertEqual(run().code, 2)
        for flag in ("--prompt", "--size", "--jobs", "--save-latents", "--threads"):
            self.assertIn(flag.replace("-", "\\-"), self.ok("help", "--man").out)
            self.assertIn(flag, self.ok("help", "--completion").out)

    def test_bytes_that_are_not_utf8_leave_the_error_readable(self):
        name = os.fsencode(self.path("f")) + b"\xff\n\x1b[31m"
        r = self.refused("VX-3001", "generate", "-m", name, *SMALL, "-o", self.path("a.mp4"))
        self.assertIn("\\xff", r.err)
        self.assertNotIn("\x1b", r.err)
        for code, args in (("VX-2001", ["generate", b"--\xff"]), ("VX-2001", [b"\xff\xfe"]), ("VX-2002", ["generate", "-m", "x", "--sampler", b"\xc3("]), ("VX-2008", ["plan", "-m", model(), "--prompt-file", b"/\xff"])):
            self.refused(code, *args)

    def test_nobody_else_writes_to_standard_output(self):
        r = self.ok("generate", "-m", model(), *SMALL, "-v", "--progress", "plain", "--json", "-o", self.path("a.mp4"))
        self.assertEqual(len(r.out.splitlines()), 1)
        self.assertTrue(r.json["latents_sha256"]["video"])
        quiet = self.ok("generate", "-m", model(), *SMALL, "-q", "-o", self.path("b.mp4"))
        self.assertEqual((quiet.out, quiet.err), ("", ""))

    def test_progress_as_json_is_json(self):
        r = self.ok("generate", "-m", model(), *SMALL, "--progress", "json", "-o", self.path("a.mp4"))
        rows = [json.loads(line) for line in r.err.splitlines() if line.startswith("{")]
        self.assertEqual(list(dict.fromkeys(row["stage"] for row in rows)), ["text", "denoise", "decode_audio", "decode_video", "mux"])
        for row in rows:
            self.assertLessEqual({"stage", "step", "steps", "elapsed_s", "eta_s"}, set(row))
            self.assertLessEqual(row["step"], row["steps"])

    def test_the_log_file_is_appended_to(self):
        for _ in range(2):
            self.ok("generate", "-m", model(), *SMALL, "-q", "-y", "--log-file", self.path("log"), "-o", self.path("a.mp4"))
        with open(self.path("log")) as f:
            lines = f.read().splitlines()
        self.assertEqual(len(lines), 2)
        self.assertTrue(all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ warning ", line) for line in lines), lines)


class Results(Case):
    MEMBERS = {"output", "task", "seed", "noise", "width", "height", "frames", "fps", "seconds", "evaluations", "sigma_points", "sampler", "schedule", "shift",
               "audio_shift", "rows", "precision", "device", "approximations", "timings_s", "step_s", "peak_bytes", "latents_sha256", "model", "warnings", "reused"}

    def test_the_result_has_the_contracts_members(self):
        r = self.generate("-o", self.path("a.mp4")).json
        self.assertLessEqual(self.MEMBERS, set(r))
        self.assertEqual(set(r["rows"]), {"text", "audio", "video", "condition", "total"})
        self.assertLessEqual({"plan", "load", "text", "encode", "denoise", "decode_video", "decode_audio", "mux", "total"}, set(r["timings_s"]))
        self.assertEqual(len(r["step_s"]), r["evaluations"])

    def test_a_bench_says_what_its_runs_found_from_the_warm_up(self):
        runs = self.ok("bench", "denoiser", "-m", model(), *SMALL, "--runs", "2").json["runs"]
        self.assertEqual([(r["reused"]["text"], r["reused"]["tables"]) for r in runs], [(False, True)] * 2)

    def test_a_bench_says_what_its_numbers_belong_to(self):
        r = self.ok("bench", "denoiser", "-m", model(), *SMALL, "--steps", "3", "--runs", "1").json
        self.assertLessEqual({"vortex_version", "commit", "build", "device", "instruction_set", "threads", "request", "rows", "runs", "samples_s", "median_s",
                              "gflop_per_s", "steps", "step_median_s", "block_s", "block_median_s", "operators_of_a_step"}, set(r))
        self.assertEqual((r["request"]["width"], r["request"]["evaluations"], r["steps"]), (96, 3, 3))
        layers = sum(o["calls"] for o in r["operators_of_a_step"] if o["operator"] == "attention")
        self.assertEqual(len(r["block_s"]), layers)
        for o in r["operators_of_a_step"]:
            self.assertEqual(len(o["samples_s"]), o["calls"])
            self.assertAlmostEqual(sum(o["samples_s"]), o["seconds"])
        for what in ("audio-vae", "audio-encoder", "text-encoder"):
            r = self.ok("bench", what, "-m", model(), "--runs", "1").json
            self.assertTrue(all(o["calls"] > 0 and o["median_s"] > 0 for o in r["operators_of_a_run"]) and r["operators_of_a_run"])

    def test_a_seed_is_drawn_for_each_clip_and_told(self):
        base = [a for a in SMALL if a not in ("--seed", "1")]
        seeds = [self.ok("generate", "-m", model(), *base, "--json", "-q", "--save-latents", self.path(f"{i}.safetensors")).json["seed"] for i in range(3)]
        self.assertEqual(len(set(seeds)), 3)
        self.assertTrue(all(0 <= s < 2**63 for s in seeds))

    def test_outputs_count_seeds_up_and_number_the_names(self):
        r = self.generate("--outputs", "3", "-o", self.path("clip%d.mp4"), "--save-latents", self.path("l%d.safetensors"))
        rows = [json.loads(line) for line in r.out.splitlines()]
        self.assertEqual([row["seed"] for row in rows], [1, 2, 3])
        self.assertEqual(sorted(os.listdir(self.tmp)), ["clip0.mp4", "clip1.mp4", "clip2.mp4", "l0.safetensors", "l1.safetensors", "l2.safetensors"])
        self.assertEqual(len({row["latents_sha256"]["video"] for row in rows}), 3)
        reused = {"text": True, "conditions": False, "tables": True, "replayed_steps": 0}  # a processor records nothing
        self.assertEqual([row["reused"] for row in rows], [dict(reused, text=False, tables=False), reused, reused])
        one = self.generate("--seed", "2", "--save-latents", self.path("again.safetensors")).json
        self.assertEqual(one["latents_sha256"], rows[1]["latents_sha256"])


class Jobs(Case):
    def jobs(self, text, *args, **kw):
        with open(self.path("jobs.jsonl"), "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())
        return run("generate", "-m", model(), *SMALL, "-q", "--jobs", self.path("jobs.jsonl"), *args, **kw)

    def test_bad_lines_are_told_in_their_place_and_the_others_run(self):
        lines = [json.dumps({"output": self.path("a.mp4"), "seed": 5}), "", "not json", "[]", json.dumps({"output": self.path("b.mp4"), "steps": 0}),
                 json.dumps({"output": self.path("c.mp4"), "nonsense": 1}), json.dumps({"output": self.path("c.mp4"), "guidance_scale": 3}), '{"output":"' + self.path("c.mp4") + '","prompt":"\\ud800"}',
                 '{"prompt":"a","prompt":"b"}', json.dumps({"output": self.path("a.mp4")}), json.dumps({"output": self.path("none/x.mp4")}),
                 "{" * 5000, json.dumps({"save-latents": self.path("d.safetensors"), "num-inference-steps": None}), json.dumps({"save-latents": self.path("d.safetensors")})]
        r = self.jobs("\n".join(lines))
        rows = [json.loads(line) for line in r.out.splitlines()]
        codes = [row["error"]["code"] if "error" in row else row["seed"] for row in rows]
        self.assertEqual(codes, [5, "VX-2002", "VX-2002", "VX-2003", "VX-2001", "VX-2006", "VX-2002", "VX-2002", "VX-4001", "VX-4002", "VX-2002", "VX-2002", 1], str(r))
        self.assertEqual([row["job"] for row in rows if "error" in row], [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13])
        self.assertEqual(r.code, 2)
        self.assertEqual(sorted(os.listdir(self.tmp)), ["a.mp4", "d.safetensors", "jobs.jsonl"])

    def test_a_job_of_a_file_has_the_bits_of_a_run_of_its_own(self):
        r = self.jobs(json.dumps({"save_latents": self.path("a.safetensors"), "seed": 3}) + "\r\n" + json.dumps({"save_latents": self.path("b.safetensors"), "seed": 3, "prompt": "Another."}) + "\n\n")
        self.assertEqual(r.code, 0, str(r))
        rows = [json.loads(line) for line in r.out.splitlines()]
        for row, prompt in zip(rows, ("A lighthouse at dawn.", "Another.")):
            alone = self.generate("--seed", "3", "-p", prompt, "--save-latents", self.path("alone.safetensors"), "-y").json
            self.assertEqual(alone["latents_sha256"], row["latents_sha256"])

    def test_jobs_that_are_no_text(self):
        self.assertEqual(self.jobs(b"").code, 0)
        self.assertEqual(self.jobs(b"\n\n  \n").code, 0)
        for data in (b"\xff\xfe{}", b'{"output":"x.mp4","prompt":"\xff"}', b"\0\0\0", b'{"output":"a\\u0000.mp4"}'):
            r = self.jobs(data)
            self.error_of(r, "VX-2002")
            self.assertEqual(json.loads(r.out)["error"]["code"], "VX-2002")
        self.error_of(run("generate", "-m", model(), "--jobs", self.path("none")), "VX-2008")
        self.error_of(run("generate", "-m", model(), "--jobs", self.tmp), "VX-2008")

    def test_jobs_from_standard_input(self):
        line = json.dumps({"save_latents": self.path("a.safetensors")})
        r = self.ok("generate", "-m", model(), *SMALL, "-q", "--jobs", "-", stdin=line.encode())
        self.assertEqual(json.loads(r.out)["seed"], 1)


if __name__ == "__main__":
    main()
