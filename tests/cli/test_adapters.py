#!/usr/bin/env python3
"""Adapters and Turbo as a user meets them: what is printed and kept, what is refused, what inspect says."""
import json
import math
import os
import struct

from harness import Case, SMALL, floats, main, model, read_tensors, run, write_tensors

HIDDEN, TIME = 84, 36  # of the random demo model


def numbers(count, seed):
    return floats([math.sin(seed + 0.7 * i) * 0.2 for i in range(count)])


def pair(module, n, k, rank=2, seed=1, down="lora_A", up="lora_B"):
    return {f"{module}.{down}.weight": ("F32", [rank, k], numbers(rank * k, seed)),
            f"{module}.{up}.weight": ("F32", [n, rank], numbers(n * rank, seed + 1))}


OUT = "blocks.0.attn.out_proj"
INNER = 3 * 104


class Adapters(Case):
    def adapter(self, tensors=None, metadata=None, name="style.safetensors"):
        write_tensors(self.path(name), tensors or {**pair(OUT, HIDDEN, INNER), **pair("blocks.2.attn.out_proj", HIDDEN, INNER, 4)}, metadata)
        return self.path(name)

    def latents(self, *args):
        r = self.ok("generate", "-m", model(), *SMALL, "--precision", "float32", "--json", "-q", "-y", "--save-latents", self.path("l.safetensors"), *args)
        return r.json, read_tensors(self.path("l.safetensors"))

    def test_counts_and_scales_are_printed_and_kept(self):
        a = self.adapter(metadata={"alpha": "1"})
        r = self.ok("generate", "-m", model(), *SMALL, "--lora", a + ":0.5", "-o", self.path("a.mp4"), "--save-latents", self.path("l.safetensors"))
        self.assertIn("style.safetensors: 2 modules, 0 left out, effective scale 0.125 to 0.25 (alpha from metadata)", r.out + r.err)
        for kept in (self.ok("inspect", self.path("a.mp4"), "--json").json, json.loads(read_tensors(self.path("l.safetensors"))[1]["request"])):
            kept = kept.get("request", kept)
            self.assertEqual(kept["adapters"][0]["name"], "style.safetensors")
            self.assertEqual(kept["adapters"][0]["scale"], [0.125, 0.25])
            self.assertEqual((kept["adapters"][0]["modules"], kept["adapters"][0]["mode"]), (2, "branch"))
            self.assertNotIn(self.tmp, json.dumps(kept["adapters"]))

    def test_strength_0_changes_nothing_and_others_do(self):
        a = self.adapter()
        plain, (tensors, _) = self.latents()
        for strength in ("0", "-0", "0.0"):
            self.assertEqual(self.latents("--lora", f"{a}:{strength}")[1][0], tensors)
        seen = {plain["latents_sha256"]["video"]}
        for more in (["--lora", a], ["--lora", a + ":-1"], ["--lora", a, "--lora", a], ["--lora", a, "--lora-alpha", "7"], ["--lora", a, "--lora-mode", "merge"]):
            seen.add(self.latents(*more)[0]["latents_sha256"]["video"])
        self.assertEqual(len(seen), 6)
        one, two = (self.latents("--lora", a + ":0.5", "--lora", a + ":0.5")[0], self.latents("--lora", a + ":0.5", "--lora", a + ":0.5", "--threads", "1")[0])
        self.assertEqual(one["latents_sha256"], two["latents_sha256"])

    def test_jobs_take_adapters_as_objects(self):
        a = self.adapter()
        base = {"prompt": "A.", "size": "96x64", "frames": 22, "steps": 2, "seed": 1, "save_latents": self.path("j.safetensors")}
        lines = [{**base, "lora": [{"name": a, "strength": 0.5, "alpha": 4}]}, {**base, "lora": a + ":0.5", "save_latents": self.path("k.safetensors")},
                 {**base, "save_latents": self.path("m.safetensors")}, {**base, "lora": [{"path": a, "width": 1}]}, {**base, "lora": [{"strength": 1}]}]
        with open(self.path("jobs"), "w", encoding="utf-8") as f:
            f.write("\n".join(map(json.dumps, lines)))
        rows = [json.loads(line) for line in run("generate", "-m", model(), "--jobs", self.path("jobs"), "-q").out.splitlines()]
        self.assertEqual(rows[0]["adapters"][0]["alpha"], 4)
        self.assertEqual(rows[1]["adapters"][0]["alpha_from"], "rank")
        self.assertNotIn("adapters", rows[2])
        self.assertEqual([row["error"]["code"] for row in rows[3:]], ["VX-2002", "VX-2004"])

    def test_damaged_and_foreign_files_are_refused(self):
        good = pair(OUT, HIDDEN, INNER)
        first, second = list(good)
        table = [
            ("VX-3105", {first: good[first]}, None),
            ("VX-3105", {second: good[second]}, None),
            ("VX-3106", {**good, "blocks.1.mlp.fc2.alpha": ("F32", [], floats([1]))}, None),
            ("VX-3103", {**good, "diffusion_model." + first: good[first]}, None),
            ("VX-3104", pair(OUT, HIDDEN, INNER + 1), None),
            ("VX-3104", pair(OUT, HIDDEN + 1, INNER), None),
            ("VX-3104", {first: good[first], second: pair(OUT, HIDDEN, INNER, 3)[second]}, None),
            ("VX-3201", {**good, OUT + ".alpha": ("F32", [], floats([float("nan")]))}, None),
            ("VX-3201", good, {"alpha": "lots"}),
            ("VX-3106", pair("double_blocks.0.img_attn.proj", HIDDEN, INNER), None),
            ("VX-3106", {**good, "text_model.x.lora_A.weight": ("F32", [1], floats([1]))}, None),
            ("VX-3106", {**good, **pair("blocks.44.attn.out_proj", HIDDEN, INNER)}, None),
            ("VX-3005", {**good, OUT + ".dora_scale": ("F32", [1], floats([1]))}, None),
            ("VX-3004", good, {"key_format": "minimax-h3-pdd-ref2va"}),
            ("VX-3104", {"blocks.0.adaln_proj.linear.lora_A.weight": ("F32", [1, 8], numbers(8, 1)),
                         "blocks.0.adaln_proj.linear.lora_B.weight": ("F32", [18 * HIDDEN, 1], numbers(18 * HIDDEN, 1))}, None),
        ]
        for code, tensors, metadata in table:
            with self.subTest(code=code, keys=list(tensors)):
                self.refused(code, "generate", "-m", model(), *SMALL, "-o", self.path("a.mp4"), "--lora", self.adapter(tensors, metadata))
        self.refused("VX-3001", "generate", "-m", model(), *SMALL, "-o", self.path("a.mp4"), "--lora", self.path("none.safetensors"))
        path = self.adapter()
        for size in (0, 4, 100, os.path.getsize(path) - 1):
            os.truncate(path, size) if size < os.path.getsize(path) else None
            self.refused(("VX-3101", "VX-3102"), "generate", "-m", model(), *SMALL, "-o", self.path("a.mp4"), "--lora", path)
            path = self.adapter()
        for name in ("a.pt", "a.bin", "a.ckpt"):
            with open(self.path(name), "wb") as f:
                f.write(b"\x80\x02}q\x00.")
            self.refused("VX-3111", "generate", "-m", model(), *SMALL, "-o", self.path("a.mp4"), "--lora", self.path(name))

    def test_a_part_of_a_model_is_no_adapter(self):
        table = [("transformer", "--model"), ("text_encoder", "--text-encoder"), ("video_vae", "--video-vae"), ("audio_vae", "--audio-vae")]
        for part, option in table:
            for more in ([], ["--lora-allow-partial"]):
                with self.subTest(part=part, more=more):
                    files = [os.path.join(folder, n) for folder, _, names in os.walk(os.path.join(model(), part)) for n in names if n.endswith(".safetensors")]
                    r = self.refused("VX-3005", "generate", "-m", model(), *SMALL, "-o", self.path("a.mp4"), *more, "--lora", files[0])
                    self.assertIn(f"give it with {option}", r.err)

    def test_partial_adapters_are_taken_when_asked_for(self):
        a = self.adapter({**pair(OUT, HIDDEN, INNER), **pair("blocks.44.attn.out_proj", HIDDEN, INNER), "blocks.0.norm1.diff": ("F32", [1], floats([1]))})
        r = self.ok("generate", "-m", model(), *SMALL, "-q", "--json", "--lora", a, "--lora-allow-partial", "--save-latents", self.path("l.safetensors")).json
        self.assertEqual((r["adapters"][0]["modules"], r["adapters"][0]["modules_left_out"], r["adapters"][0]["keys_left_out"]), (1, 1, 1))
        self.assertTrue(any("style.safetensors" in line for line in r["approximations"]), r["approximations"])

    def test_what_is_not_done_is_said_once(self):
        plain = ["generate", "-m", model(), *SMALL, "--json", "-y", "--save-latents", self.path("l.safetensors")]
        partial = self.adapter({**pair(OUT, HIDDEN, INNER), **pair("blocks.44.attn.out_proj", HIDDEN, INNER)}, name="partial.safetensors")
        table = [
            (["--lora", partial, "--lora-allow-partial"], "partial.safetensors: 1 of its 2 modules are not in this model"),
            (["--lora", self.adapter(metadata={"alpha": "1"}), "--lora-alpha", "3"], "style.safetensors: your alpha 3 is not used, the file says its own"),
            (["--lora-mode", "merge"], "lora_mode merge: no adapter is given, nothing to merge"),
            (["--lora-allow-partial"], "lora_allow_partial: no adapter is given"),
        ]
        for more, warning in table:
            with self.subTest(more=more):
                r = self.ok(*plain, *more)
                self.assertEqual((r.err.count(warning), r.json["warnings"].count(warning)), (1, 1), r)
        r = self.ok(*plain, "--lora", self.adapter(), "--lora-alpha", "3", "--lora-mode", "branch")
        self.assertNotIn("alpha", str(r.json["warnings"]))

    def test_one_file_given_twice_is_said(self):
        a, b = self.adapter(), self.path("link.safetensors")
        os.symlink(a, b)
        plain = ["generate", "-m", model(), *SMALL, "--json", "-y", "--save-latents", self.path("l.safetensors")]
        for more, name in (([a, b + ":0.5"], "link.safetensors"), ([a, a + ":0.5"], "style.safetensors")):
            warning = f"{name} is given more than once: every time counts, here with strengths 1 and 0.5"
            r = self.ok(*plain, *[x for f in more for x in ("--lora", f)])
            self.assertEqual((r.err.count(warning), r.json["warnings"].count(warning)), (1, 1), r)
        other = self.adapter(name="other.safetensors")
        self.assertNotIn("more than once", str(self.ok(*plain, "--lora", a, "--lora", other)))

    def test_numbers_that_are_none_are_named_before_they_are_used(self):
        key = f"{OUT}.lora_B.weight"
        a = self.adapter({**pair(OUT, HIDDEN, INNER), key: ("F32", [HIDDEN, 2], floats([0.1] * (2 * HIDDEN - 1) + [float("nan")]))})
        self.ok("plan", "-m", model(), *SMALL, "--lora", a)  # reads headers
        self.ok("generate", "-m", model(), *SMALL, "-q", "--save-latents", self.path("l.safetensors"), "--lora", a + ":0")
        for mode in ("branch", "merge"):
            r = self.refused("VX-1201", "generate", "-m", model(), *SMALL, "-o", self.path("a.mp4"), "--lora", a, "--lora-mode", mode)
            self.assertIn(f"style.safetensors: tensor '{key}': F32: row {HIDDEN - 1}, column 1 is nan", r.err)
            self.assertIn("leave it out", r.err)

    def test_requests_say_what_an_adapter_is(self):
        table = [("null", "lora: null is no value: leave the member out"), ("[null]", "lora: null is no value"), ("5", "lora: a file's name, {name, strength, alpha}, or a list of these is wanted"),
                 ('{"path":"a","strength":"x"}', "'strength' of an adapter: wanted are"), ('{"path":"a","width":1}', "'width' of an adapter: wanted are"),
                 ('{"path":"a","strength":1e39}', "strength is no finite number")]
        for value, says in table:
            with self.subTest(value=value):
                r = run("generate", "-m", model(), "-q", "--jobs", "-", stdin=b'{"prompt":"A.","output":"x.mp4","lora":' + value.encode() + b"}\n")
                self.assertEqual(r.code, 2, r)
                self.assertIn(says, r.json["error"]["message"])
        for strength in ("nan", "inf", "-1e39"):
            r = self.refused("VX-2003", "generate", "-m", model(), *SMALL, "-o", self.path("a.mp4"), "--lora", f"a:{strength}")
            self.assertIn(f"--lora: 'a:{strength}': the strength is no finite number", r.err)

    def test_a_strength_that_is_no_number_is_named(self):
        r = self.refused("VX-3001", "generate", "-m", model(), *SMALL, "-o", self.path("a.mp4"), "--lora", self.adapter() + ":0,5")
        self.assertIn("if '0,5' was meant as a strength", r.err)

    def test_results_say_how_the_weights_are_stored(self):
        r = self.ok("generate", "-m", model(), *SMALL, "--json", "-q", "--save-latents", self.path("l.safetensors"), "-o", self.path("a.mp4")).json
        formats = r["model"]["formats"]
        parts = {k: os.path.join(model(), k) for k in ("transformer", "text_encoder", "video_vae", "audio_vae", "tokenizer")}
        self.assertEqual(r["model"]["parts"], parts)
        self.assertEqual(sorted(formats), ["audio_vae", "text_encoder", "transformer", "video_vae"])
        self.assertIn("BF16", formats["transformer"])
        kept = self.ok("inspect", self.path("a.mp4"), "--json").json["request"]["model"]
        self.assertEqual(kept["formats"], formats)
        self.assertFalse({"path", "parts"} & set(kept), kept)  # a clip does not tell where its maker keeps things
        again = self.ok("decode", "-m", model(), "--latents", self.path("l.safetensors"), "-o", self.path("b.mp4"), "--json", "-q")
        self.assertEqual(self.ok("inspect", self.path("b.mp4"), "--json").json["request"]["model"]["formats"], formats, again)

    def test_turbo_sets_what_its_adapter_was_made_for(self):
        a = self.adapter(name="minimax-h3-fl2v-turbo-4step-v1.0_768p.safetensors")
        plain = ["generate", "-m", model(), "-p", "A.", "--size", "96x64", "--frames", "22", "--seed", "1", "-q", "--json", "-y", "--save-latents", self.path("l.safetensors")]
        r = self.ok(*plain, "--lora", a, "--turbo", "4").json
        self.assertEqual((r["evaluations"], r["shift"], r["audio_shift"]), (4, 6, 3))
        wanted = {"sigmas": [1, 0.947368443, 0.857142866, 0.666666687, 0], "audio_sigmas": [1, 0.899999976, 0.75, 0.5, 0]}
        for name, values in wanted.items():
            self.assertEqual([struct.pack("<f", v) for v in r["turbo"][name]], [struct.pack("<f", v) for v in values])
        self.assertEqual(r["turbo"]["step"], "x + (sigma - next) * v")
        self.assertEqual((r["adapters"][0]["alpha"], r["adapters"][0]["alpha_from"]), (128, "known file"))
        r = self.ok(*plain, "--lora", a, "--turbo", "4", "--steps", "6", "--shift", "12").json
        self.assertEqual((r["evaluations"], r["shift"]), (6, 12))
        self.assertEqual(len([w for w in r["warnings"] if w.startswith("turbo 4: your")]), 2, r["warnings"])
        self.assertTrue(any("--turbo 4" in w for w in self.ok(*plain, "--lora", a, "--steps", "2").json["warnings"]))
        self.refused("VX-2005", *plain[:-3], "-o", self.path("a.mp4"), "--lora", a, "--turbo", "8")
        self.refused("VX-2004", *plain[:-3], "-o", self.path("a.mp4"), "--turbo", "4")

    def test_a_name_of_the_other_partition_is_a_warning(self):
        a = self.adapter(name="ref2v_turbo_4step_v0.1.safetensors")
        r = self.ok("generate", "-m", model(), *SMALL, "-q", "--json", "--lora", a, "--save-latents", self.path("l.safetensors")).json
        self.assertTrue(any("made for Ref2VA" in w for w in r["warnings"]), r["warnings"])

    def test_a_plan_reads_headers_and_counts_the_copies(self):
        big = pair(OUT, HIDDEN, INNER), pair("transformer_blocks.0.attn.to_q", INNER, HIDDEN, 8)
        a = self.adapter({**big[0], **big[1]})
        plan = ["plan", "-m", model(), *SMALL, "--json"]
        without, beside, merged = (self.ok(*plan, *more).json for more in ([], ["--lora", a], ["--lora", a, "--lora-mode", "merge"]))
        stage = [next(s for s in p["stages"] if s["name"] == "denoise") for p in (without, beside, merged)]
        self.assertEqual(beside["adapters"][0]["modules"], 2)
        self.assertLess(stage[0]["host_bytes"], stage[1]["host_bytes"])
        self.assertLess(stage[1]["host_bytes"], stage[2]["host_bytes"])
        self.assertLess(stage[0]["flop"], stage[1]["flop"])

    def test_a_bank_of_heads_needs_steps_that_divide_it(self):
        bank = {"proj_out.weight": ("F32", [32, 96, HIDDEN], numbers(32 * 96 * HIDDEN, 1)), "proj_out.bias": ("F32", [32, 96], numbers(32 * 96, 2)),
                "audio_proj_out.weight": ("F32", [32, 32, HIDDEN], numbers(32 * 32 * HIDDEN, 3)), "audio_proj_out.bias": ("F32", [32, 32], numbers(32 * 32, 4)),
                **pair("transformer_blocks.0.attn.to_q", INNER, HIDDEN, 2, 5, "lora_down", "lora_up")}
        a = self.adapter(bank, {"key_format": "minimax-h3-pdd-fl2va", "lora_alpha": "2", "pdd_num_steps": "32"}, "MiniMax-H3-FL2VA-Acc-8Step.safetensors")
        plain = ["generate", "-m", model(), "-p", "A.", "--size", "96x64", "--frames", "22", "--seed", "1", "-q", "-y"]
        r = self.ok(*plain, "--json", "--save-latents", self.path("l.safetensors"), "--lora", a, "--turbo", "8").json
        self.assertEqual((r["evaluations"], r["turbo"]["list"], r["adapters"][0]["modules"]), (8, "bank", 3))
        self.refused("VX-2005", *plain, "-o", self.path("a.mp4"), "--lora", a, "--steps", "6")

    def test_no_adapter_is_written_over(self):
        a = self.adapter(name="style.mp4")
        self.refused(("VX-2005", "VX-4001"), "generate", "-m", model(), *SMALL, "-o", a, "--lora", a)

    def test_inspect_says_what_an_adapter_is(self):
        about = self.ok("inspect", self.adapter(metadata={"alpha": "1"}), "--json").json
        text = json.dumps(about)
        for part in ("adapter", "out_proj", "metadata"):
            self.assertIn(part, text)

    def test_verify_reads_the_numbers_of_an_adapter(self):
        key = f"{OUT}.lora_B.weight"
        values = [0.1] * (2 * HIDDEN - 1) + [float("inf")]
        a = self.adapter({**pair(OUT, HIDDEN, INNER), key: ("F32", [HIDDEN, 2], floats(values))})
        self.ok("inspect", a)
        r = run("inspect", a, "--verify", "--json")
        self.assertEqual((r.code, [p["code"] for p in r.json["problems"]]), (1, ["VX-1201"]), r)
        self.assertIn(f"style.safetensors: tensor '{key}': F32: row {HIDDEN - 1}, column 1 is inf", r.json["problems"][0]["message"])
        self.ok("inspect", self.adapter(), "--verify")


if __name__ == "__main__":
    main()
