"""Single files and quantised ones: the same clip as from the official folder, or as from the same numbers decoded.

tools/make_formats.py does the same for every format, with the formats' own packages; this needs nothing but Python.
"""
import json
import os
import struct

from harness import SMALL, Case, main, model, read_tensors, run, write_tensors

COMFY = {"config": json.dumps({"transformer": {"image_model": "minimax_h3"}})}


def transformer():
    """The demo transformer's tensors and configuration."""
    folder = os.path.join(model(), "transformer")
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            tensors.update(read_tensors(os.path.join(folder, name))[0])
    with open(os.path.join(folder, "config.json")) as f:
        return tensors, json.load(f)


def component(name):
    folder = os.path.join(model(), name)
    tensors = {}
    for n in sorted(os.listdir(folder)):
        if n.endswith(".safetensors"):
            tensors.update(read_tensors(os.path.join(folder, n))[0])
    return tensors


def grouped(tensors, config):
    heads, dim = config["num_attention_heads"], config["attention_head_dim"]
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        if name.endswith("attn.qkv_proj.weight"):
            row = len(data) // shape[0]
            rows = [data[i * row : (i + 1) * row] for i in range(shape[0])]
            data = b"".join(rows[h * 3 * dim + c * dim + d] for c in range(3) for h in range(heads) for d in range(dim))
        out[name] = (dtype, shape, data)
    return out


def numbers(tensor):
    dtype, _, data = tensor
    if dtype == "F32":
        return struct.unpack(f"<{len(data) // 4}f", data)
    return struct.unpack(f"<{len(data) // 2}f", b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2)))


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def is_block_matrix(name):
    return name.startswith("blocks.") and name.endswith((".qkv_proj.weight", ".out_proj.weight", ".fc1.weight", ".fc2.weight"))


def write_gguf(path, tensors):
    """name -> (ggml's type, shape, bytes), without any metadata."""
    head, data = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), 0), b""
    for name, (kind, shape, raw) in tensors.items():
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


class Formats(Case):
    def parts(self):
        return [x for part in ("text-encoder", "video-vae", "audio-vae", "tokenizer") for x in ("--" + part, os.path.join(model(), part.replace("-", "_")))]

    def latents(self, *options):
        out = self.path("latents.safetensors")
        self.ok("generate", *options, *SMALL, "-q", "-y", "--save-latents", out)
        return {n: t[2] for n, t in read_tensors(out)[0].items()}

    def of_file(self, path, *options):
        return self.latents("-m", path, *self.parts(), *options)

    def test_single_files_give_the_same_bits(self):
        tensors, config = transformer()
        official = self.latents("-m", model())
        comfy = grouped(tensors, config)
        path = self.path("minimax_h3_fl2va_bf16.safetensors")
        for prefix in ("", "model.diffusion_model.", "diffusion_model."):
            with self.subTest(prefix=prefix):
                write_tensors(path, {prefix + n: t for n, t in comfy.items()}, COMFY)
                self.assertEqual(self.of_file(path), official)
        write_tensors(path, comfy)
        self.refused("VX-3006", "generate", "-m", path, *self.parts(), *SMALL, "-q", "--save-latents", self.path("x"))
        self.assertEqual(self.of_file(path, "--qkv-layout", "grouped"), official)
        write_tensors(path, tensors)
        self.assertEqual(self.of_file(path, "--qkv-layout", "interleaved"), official)
        self.refused("VX-2002", "generate", "-m", path, *self.parts(), *SMALL, "--qkv-layout", "random", "-q", "--save-latents", self.path("x"))
        types = {"F32": 0, "F16": 1, "BF16": 30}
        gguf = self.path("fl2va.gguf")
        write_gguf(gguf, {n: (types[d], s, b) for n, (d, s, b) in comfy.items()})
        self.assertEqual(self.of_file(gguf), official)
        r = self.refused("VX-3005", "generate", "-m", model(), *SMALL, "-q", "--save-latents", self.path("x"), "--lora", gguf)
        self.assertIn("it looks like the transformer of MiniMax H3. give it with --model", r.err)

    def test_what_is_odd_about_files_is_in_the_json(self):
        tensors, config = transformer()
        folder = self.path("models", "diffusion_models")
        os.makedirs(folder)
        path = os.path.join(folder, "h3_fl2va.safetensors")
        write_tensors(path, grouped(tensors, config), COMFY)
        with open(os.path.join(folder, "torn.safetensors"), "wb") as f:
            f.write(b"torn")
        plain = ["-m", path, *self.parts(), *SMALL, "--json"]
        layout = "diffusion_models/h3_fl2va.safetensors: --qkv-layout interleaved is used, but ComfyUI's metadata says grouped QKV rows"

        def once(warning, *args):
            r = self.ok(*args)
            said = [w for w in r.json["warnings"] if w.startswith(warning)]
            self.assertEqual((len(said), r.err.count(warning)), (1, 1), str(r))
        once("diffusion_models/torn.safetensors", "generate", *plain, "-y", "--save-latents", self.path("l"))
        for options in (["plan", *plain], ["generate", *plain, "-y", "--save-latents", self.path("l")], ["inspect", path, "--json"]):
            once(layout, *options, "--qkv-layout", "interleaved")
        self.assertEqual(self.ok("inspect", path, "--json").json["warnings"], [])
        self.assertEqual(len(self.ok("plan", "-m", model(), *SMALL, "--json").json["warnings"]), 1)  # a clip shorter than trained ones
        # Every clip of a model that was opened once says it.
        r = self.ok("generate", *plain, "-y", "-q", "--qkv-layout", "interleaved", "--outputs", "2", "--save-latents", self.path("l%d.safetensors"))
        self.assertEqual([json.loads(line)["warnings"].count(layout) for line in r.out.splitlines()], [1, 1])

    def test_a_tower_without_its_configuration_says_what_it_lacks(self):
        folder = self.path("tower")
        os.mkdir(folder)
        tower = {n: t for n, t in component("text_encoder").items() if n.startswith("model.visual.")}
        write_tensors(os.path.join(folder, "tower.safetensors"), tower)
        r = run("inspect", os.path.join(folder, "tower.safetensors"), "--json")
        self.assertEqual((r.code, r.json["kind"]), (3, "vision_tower"), str(r))
        self.assertIn("put the text encoder's config.json beside the file", r.json["problems"][0]["remedy"])
        with open(os.path.join(model(), "text_encoder", "config.json")) as f, open(os.path.join(folder, "config.json"), "w") as g:
            g.write(f.read())
        self.assertEqual(self.ok("inspect", os.path.join(folder, "tower.safetensors"), "--json").json["problems"], [])

    def test_quantised_files_are_their_decoded_twins(self):
        tensors, config = transformer()
        comfy = grouped(tensors, config)
        coded, blocks, twin = {}, {}, {}
        for name, (dtype, shape, data) in comfy.items():
            plain = (dtype, shape, data)
            if not is_block_matrix(name):
                coded[name] = twin[name] = plain
                blocks[name] = ({"F32": 0, "BF16": 30}[dtype], shape, data)
                continue
            w, k = numbers(plain), shape[1]
            ints, scales, values = bytearray(), bytearray(), bytearray()
            for r in range(shape[0]):
                row = w[r * k : (r + 1) * k]
                scale = f32(max(max(map(abs, row)) / 127, 1e-30))
                q = [max(-128, min(127, round(x / scale))) for x in row]
                ints += struct.pack(f"<{k}b", *q)
                scales += struct.pack("<f", scale)
                values += struct.pack(f"<{k}f", *(f32(i * scale) for i in q))
            marker = b'{"format": "int8_tensorwise"}'
            layer = name[: -len("weight")]
            coded[name] = ("I8", shape, bytes(ints))
            coded[layer + "weight_scale"] = ("F32", [shape[0], 1], bytes(scales))
            coded[layer + "comfy_quant"] = ("U8", [len(marker)], marker)
            twin[name] = ("F32", shape, bytes(values))
        path, plain = self.path("fl2va_int8.safetensors"), self.path("fl2va_f32.safetensors")
        write_tensors(path, coded)
        write_tensors(plain, twin, COMFY)
        same = ("--precision", "float32")
        self.assertEqual(self.of_file(path, *same), self.of_file(plain, *same))
        self.of_file(path)  # the exact precision, too
        report = self.ok("inspect", path, "--verify", "--json").json
        self.assertEqual((report["kind"], report["variant"], report["problems"]), ("transformer", "fl2va", []))
        self.assertEqual(report["component"]["origin"], "comfyui")
        self.assertEqual(report["component"]["qkv_rows"], {"order": "grouped", "by": "ComfyUI's markers"})
        self.assertIn("int8", [f["format"] for f in report["component"]["formats"]])
        self.assertEqual([g["gpu_gb"] for g in report["gpus"]], [16, 24, 48, 80, 141])
        self.ok("inspect", path)
        # A scale that is no scale: told by a job and by inspect, with the exit status of model files.
        name = next(n for n in coded if n.endswith("weight_scale"))
        write_tensors(path, dict(coded, **{name: ("F32", coded[name][1], b"\0\0\xc0\x7f" + coded[name][2][4:])}))
        self.refused("VX-3114", "generate", "-m", path, *self.parts(), *SMALL, "-q", "--save-latents", self.path("x"))
        r = run("inspect", path, "--json")
        self.assertEqual((r.code, r.json["problems"][0]["code"]), (3, "VX-3114"))
        # One of 0 over values that are not: opening looks at scales alone, a job at what they stand over.
        write_tensors(path, dict(coded, **{name: ("F32", coded[name][1], bytes(4) + coded[name][2][4:])}))
        self.ok("inspect", path)
        r = self.refused("VX-3114", "generate", "-m", path, *self.parts(), *SMALL, "-q", "--save-latents", self.path("x"))
        self.assertIn("scale 0 is 0", r.err)
        self.assertIn("fetch it again", r.err)
        r = run("inspect", path, "--verify", "--json")
        self.assertEqual((r.code, r.json["problems"][0]["code"]), (3, "VX-3114"))
        # A value that is none, which only --verify looks for.
        write_tensors(plain, dict(twin, **{name.replace("_scale", ""): ("F32",) + (twin[name.replace("_scale", "")][1], b"\0\0\x80\x7f" + twin[name.replace("_scale", "")][2][4:])}), COMFY)
        self.ok("inspect", plain)
        r = run("inspect", plain, "--verify", "--json")
        self.assertEqual((r.code, r.json["problems"][0]["code"]), (1, "VX-1201"))
        # What is not supported is refused by name.
        write_tensors(path, dict(coded, **{next(n for n in coded if n.endswith("comfy_quant")): ("U8", [22], b'{"format": "svdquant"}')}))
        self.assertIn("svdquant", self.refused("VX-3113", "generate", "-m", path, *self.parts(), *SMALL, "-q", "--save-latents", self.path("x")).err)

    def test_pruned_transformers(self):
        tensors, config = transformer()
        comfy = {n: t for n, t in grouped(tensors, config).items() if not n.startswith("time_embedder.")}
        rank = 4
        for name in [n for n in comfy if n.endswith("adaln_proj.linear.weight")]:
            dtype, (rows, k), data = comfy[name]
            row = len(data) // rows
            comfy[name] = (dtype, [rows, rank], b"".join(data[i * row : i * row + row // k * rank] for i in range(rows)))
        table = struct.pack(f"<{1025 * rank}f", *(((i * 37 + j * 11) % 101 - 50) / 500 for i in range(1025) for j in range(rank)))
        pruned = dict(comfy, adaln_t_table=("F32", [1025, rank], table))
        path = self.path("fl2va_pruned.safetensors")
        write_tensors(path, pruned, COMFY)
        first = self.of_file(path)
        self.assertEqual(self.of_file(path), first)
        self.assertNotEqual(first, self.latents("-m", model()))
        report = self.ok("inspect", path, "--json").json
        self.assertEqual(report["dimensions"]["transformer"]["adaln_curve"], {"points": 1025, "rank": rank})
        refused = ["generate", "-m", path, *self.parts(), *SMALL, "-q", "--save-latents", self.path("x")]
        write_tensors(path, dict(pruned, **{n: t for n, t in tensors.items() if n.startswith("time_embedder.")}), COMFY)
        self.refused("VX-3106", *refused)
        write_tensors(path, dict(pruned, adaln_t_table=("F32", [1025, rank + 1], table + bytes(1025 * 4))), COMFY)
        self.refused("VX-3104", *refused)
        write_tensors(path, dict(pruned, adaln_t_table=("F32", [1025, rank], b"\0\0\xc0\x7f" + table[4:])), COMFY)
        self.refused("VX-1201", *refused)
        write_tensors(path, pruned, {"config": json.dumps({"transformer": {"image_model": "minimax_h3", "adaln_curve_grid": 513}})})
        self.refused("VX-3201", *refused)

    def test_a_folder_of_single_files(self):
        tensors, config = transformer()
        root = self.path("models")
        for folder in ("diffusion_models", "text_encoders", "vae", "loras"):
            os.makedirs(os.path.join(root, folder))
        write_tensors(os.path.join(root, "diffusion_models", "h3_fl2va.safetensors"), grouped(tensors, config), COMFY)
        text = {n.replace("model.language_model.", "model.").replace("model.visual.", "visual."): t for n, t in component("text_encoder").items()}
        text = {n: t for n, t in text.items() if not n.startswith("lm_head") and n != "model.norm.weight"}
        write_tensors(os.path.join(root, "text_encoders", "a.safetensors"), text)
        os.symlink(os.path.join(model(), "tokenizer"), os.path.join(root, "tokenizer"))
        vaes = ["--video-vae", os.path.join(model(), "video_vae"), "--audio-vae", os.path.join(model(), "audio_vae")]
        official = self.latents("-m", model())
        self.assertEqual(self.latents("-m", root, *vaes), official)
        self.assertEqual(self.latents("-m", os.path.join(root, "diffusion_models", "h3_fl2va.safetensors"), *vaes), official)
        os.link(os.path.join(root, "text_encoders", "a.safetensors"), os.path.join(root, "text_encoders", "b.safetensors"))
        r = self.refused("VX-3007", "generate", "-m", root, *vaes, *SMALL, "-q", "--save-latents", self.path("x"))
        self.assertIn("--text-encoder", r.err)
        self.assertEqual(self.latents("-m", root, *vaes, "--text-encoder", os.path.join(root, "text_encoders", "b.safetensors")), official)
        self.refused("VX-3004", "generate", "-m", root, *vaes, "--text-encoder", os.path.join(root, "text_encoders", "b.safetensors"), "--variant", "ref2va", *SMALL, "-q",
                     "--save-latents", self.path("x"))
        # A wrong file is named itself, and what to do with it; what is missing is said once.
        dit = os.path.join(root, "diffusion_models", "h3_fl2va.safetensors")
        r = run("inspect", os.path.join(root, "text_encoders", "a.safetensors"), "--vision", dit, "--json")
        self.assertEqual(r.code, 3, str(r))
        self.assertIn("h3_fl2va.safetensors is no vision tower", r.out)
        r = self.refused("VX-3002", "generate", "-m", os.path.join(root, "text_encoders", "a.safetensors"), *self.parts(), *SMALL, "-q", "--save-latents", self.path("x"))
        self.assertIn("give it with --text-encoder", r.err)
        tower = self.path("tower.safetensors")
        write_tensors(tower, {n: t for n, t in text.items() if n.startswith("visual.")})
        r = self.refused("VX-3105", "generate", "-m", model(), "--text-encoder", tower, *SMALL, "-q", "--save-latents", self.path("x"))
        self.assertIn("it is a vision tower: give it with --vision", r.err)
        # A part's folder is looked at by itself.
        for part in ("text_encoder", "video_vae", "audio_vae"):
            report = self.ok("inspect", os.path.join(model(), part), "--json").json
            self.assertEqual((report["kind"], report["problems"]), (part, []))
        self.refused("VX-3002", "inspect", os.path.join(model(), "tokenizer"))
        self.refused("VX-2005", "inspect", dit, "--log-file", dit)
        # No file of a model is written over, by its name or by a link.
        shard = next(os.path.join(model(), "transformer", n) for n in sorted(os.listdir(os.path.join(model(), "transformer"))) if n.endswith(".safetensors"))
        link = self.path("link.safetensors")
        os.symlink(dit, link)
        for victim in (dit, link, shard, os.path.join(root, "text_encoders", "b.safetensors")):
            for flag in ("--save-latents", "--dump-tensors"):
                r = self.refused("VX-2005", "generate", "-m", model(), *SMALL, "-q", "-y", flag, victim)
                self.assertIn("never written over", r.err)
        self.refused("VX-2005", "encode", "-m", model(), "--pixels", dit, "-q", "-y", "--save-tensors", os.path.join(root, "text_encoders", "a.safetensors"))
        r = run("inspect", os.path.join(root, "diffusion_models"), "--json")
        said = [p["message"] for p in json.loads(r.out)["problems"]]
        self.assertTrue(said)
        self.assertEqual(len(said), len(set(said)))


if __name__ == "__main__":
    main()
