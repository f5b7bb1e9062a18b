#!/usr/bin/env python3
"""Vortex beside the public reference (diffusers + transformers + PyTorch) on the same checkpoint, machine and threads, stage by stage.

    python3 -m venv v && v/bin/pip install diffusers==0.42.1 transformers==5.24.0 torch==2.15.0 accelerate
    v/bin/python tools/compare_speed.py --official DIR --diffusers DIR [--vortex FILE] [--size 256x256] [--precision exact|float32]

Both sides are warm and take turns, run by run; a stage's figure is the median, a ratio is ours / theirs (below 1: we are faster).
--encoders: ours is timed as a whole process (vortex encode, opening the model included), theirs as the call alone; text_and_picture is
the tower and the 50 layers on a presentation with one picture. Stages: text (the prompt through 50 layers), evaluation (one call of the denoiser), decode_video, decode_audio, total of a request with
--steps evaluations. DIR are the two layouts of one checkpoint: an official partition, a diffusers folder.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--official", required=True)
p.add_argument("--diffusers", required=True)
p.add_argument("--vortex", default="build/release/vortex")
p.add_argument("--size", default="256x256")
p.add_argument("--frames", type=int, default=124)
p.add_argument("--steps", type=int, default=4)
p.add_argument("--runs", type=int, default=5)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--precision", default="exact", choices=["exact", "float32"])
p.add_argument("--prompt", default='A lighthouse at dawn. "Hold the line," she says.')
p.add_argument("--encoders", action="store_true", help="also the encoders of conditions: one picture and 22 frames at --size, 2 s of stereo, the vision tower on that picture")
p.add_argument("--json")
a = p.parse_args()
width, height = map(int, a.size.split("x"))

import torch, diffusers, transformers
from diffusers import AutoencoderKLMiniMaxH3, AutoencoderKLMiniMaxH3Audio, MiniMaxH3Transformer3DModel
from transformers import Qwen3VLForConditionalGeneration

torch.set_grad_enabled(False)
torch.set_num_threads(a.threads)
T, H, W = 5 * (a.frames - 5) // 17 + 2, height // 16, width // 16
A = round(a.frames / 24 * 40)


class Reference:
    """The reference's stages, each on inputs of the request's shapes."""

    def __init__(self):
        act = torch.bfloat16 if a.precision == "exact" else torch.float32
        self.dit = MiniMaxH3Transformer3DModel.from_pretrained(a.diffusers + "/transformer").eval()
        self.te = Qwen3VLForConditionalGeneration.from_pretrained(a.diffusers + "/text_encoder", dtype=act).eval()
        self.vae = AutoencoderKLMiniMaxH3.from_pretrained(a.diffusers + "/vae").eval()
        self.audio = AutoencoderKLMiniMaxH3Audio.from_pretrained(a.diffusers + "/audio_vae").eval()
        if a.precision == "float32":
            self.dit = self.dit.float()
        else:                                       # the dtypes of a released file: f32 islands stay
            for name, q in self.dit.named_parameters():
                if not name.startswith(("proj_in.", "audio_proj_in.", "time_embedder.", "proj_out.", "audio_proj_out.")):
                    q.data = q.data.to(torch.bfloat16)
        self.ids = self.tokens()
        g = torch.Generator().manual_seed(1)
        L, n = len(self.ids), (H // 2) * (W // 2)
        S = L + 2 * A + T * n
        text, audio, video = torch.arange(L), L + torch.arange(2 * A), L + 2 * A + torch.arange(T * n)
        tags = torch.cat([torch.ones(L), torch.full((2 * A,), 2), torch.zeros(T * n)]).long()
        self.call = dict(hidden_states=torch.randn(1, T * n, 96, generator=g), audio_hidden_states=torch.randn(1, 2 * A, 32, generator=g),
                         encoder_hidden_states=torch.randn(1, L, self.dit.config.text_dim, generator=g).to(act), timestep=torch.tensor([0.1, 0.3]),
                         timestep_indices=(tags == 2).long(), position_ids=torch.rand(S, 3, generator=g, dtype=torch.float64) * 100, token_tags=tags,
                         video_indices=video, audio_indices=audio, text_indices=text, return_dict=False)
        self.z = torch.randn(1, 24, T, H, W, generator=g)
        self.za = torch.randn(2, 32, A, generator=g)
        self.rows = S

    def tokens(self):
        out = subprocess.run([a.vortex, "tokenize", "-m", a.official, "--json", a.prompt], capture_output=True, text=True, check=True)
        return json.loads(out.stdout)["ids"]

    def run(self):
        stages = {}
        ids = torch.tensor([self.ids])

        def timed(name, f):
            t = time.perf_counter()
            f()
            stages[name] = time.perf_counter() - t
        timed("text", lambda: self.te.model(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True, use_cache=False))
        timed("evaluation", lambda: self.dit(**self.call))
        timed("decode_video", lambda: self.vae.decode(self.z, return_dict=False))
        timed("decode_audio", lambda: self.audio.decode(self.za, return_dict=False))
        return stages


def vortex():
    with tempfile.TemporaryDirectory() as d:
        job = json.dumps({"prompt": a.prompt, "output": d + "/%d.mp4", "outputs": 1})
        # Two jobs on one loaded model, another prompt first so that nothing is cached: the second is warm.
        jobs = json.dumps({"prompt": "warm up", "output": d + "/warm.mp4"}) + "\n" + json.dumps({"prompt": a.prompt, "output": d + "/clip.mp4"}) + "\n"
        open(d + "/jobs", "w").write(jobs)
        out = subprocess.run([a.vortex, "generate", "-m", a.official, "--size", a.size, "--frames", str(a.frames), "--steps", str(a.steps), "--seed", "1", "--threads", str(a.threads),
                              "--precision", a.precision, "--jobs", d + "/jobs", "--progress", "none", "-q"], capture_output=True, text=True, check=True)
        r = json.loads(out.stdout.splitlines()[-1])
        t = r["timings_s"]
        return dict(text=t["text"], evaluation=statistics.median(r["step_s"]), decode_video=t["decode_video"], decode_audio=t["decode_audio"])


def safetensors(path, name, dtype, shape, raw, meta):
    head = json.dumps({"__metadata__": meta, name: dict(dtype=dtype, shape=shape, data_offsets=[0, len(raw)])}).encode()
    head += b" " * (-len(head) % 8)
    open(path, "wb").write(len(head).to_bytes(8, "little") + head + raw)


class Encoders:
    """The same samples for both sides; ours through files."""

    def __init__(self, ref, folder):
        g = torch.Generator().manual_seed(2)
        self.ref, self.folder = ref, folder
        self.px = torch.randint(0, 256, (22, height, width, 3), generator=g, dtype=torch.uint8)
        self.wav = torch.rand(2, 64000, generator=g) - 0.5
        for name, n in (("picture", 1), ("clip", 22)):
            safetensors(f"{folder}/{name}.safetensors", "pixels", "U8", [n, height, width, 3], self.px[:n].numpy().tobytes(), {"fps": "24"})
        safetensors(f"{folder}/sound.safetensors", "waveform", "F32", [2, 64000], self.wav.numpy().tobytes(), {"sample_rate": "32000"})

    def process(self, *args):
        t = time.perf_counter()
        out = subprocess.run([a.vortex, *args, "-m", a.official, "--threads", str(a.threads), "-y"], capture_output=True, text=True, check=True).stdout
        return time.perf_counter() - t, out

    def text_and_picture(self):
        jobs = "".join(json.dumps({"prompt": x}) + "\n" for x in ("warm up", a.prompt))
        open(self.folder + "/jobs", "w").write(jobs)
        _, out = self.process("generate", "--size", a.size, "--frames", "22", "--steps", "1", "--seed", "1", "--precision", a.precision, "--first", self.folder + "/picture.safetensors",
                              "--save-latents", self.folder + "/l", "--jobs", self.folder + "/jobs", "--progress", "none", "-q")
        return json.loads(out.splitlines()[-1])["timings_s"]["text"]

    def ours(self):
        out = ["--save-tensors", self.folder + "/o", "-q"]
        return dict(encode_picture=self.process("encode", "--pixels", self.folder + "/picture.safetensors", *out)[0],
                    encode_clip=self.process("encode", "--pixels", self.folder + "/clip.safetensors", *out)[0],
                    encode_sound=self.process("encode", "--waveform", self.folder + "/sound.safetensors", *out)[0], text_and_picture=self.text_and_picture())

    def theirs(self):
        r, stages = self.ref, {}
        x = (self.px.permute(3, 0, 1, 2)[None].float() / 255 - 0.45) / 0.225
        patches = torch.randn(height // 16 * (width // 16), 1536).to(r.te.dtype)
        grid, c = torch.tensor([[1, height // 16, width // 16]]), r.te.config
        ids = torch.tensor([[c.vision_start_token_id] + [c.image_token_id] * (height // 32 * (width // 32)) + [c.vision_end_token_id] + r.ids])
        see = dict(input_ids=ids, attention_mask=torch.ones_like(ids), mm_token_type_ids=(ids == c.image_token_id).int(), pixel_values=patches, image_grid_thw=grid,
                   output_hidden_states=True, use_cache=False)
        for name, f in (("encode_picture", lambda: r.vae.encode(x[:, :, :1], return_dict=False)), ("encode_clip", lambda: r.vae.encode(x, return_dict=False)),
                        ("encode_sound", lambda: r.audio.encode(self.wav[:, None], return_dict=False)), ("text_and_picture", lambda: r.te.model(**see))):
            t = time.perf_counter()
            f()
            stages[name] = time.perf_counter() - t
        return stages


ref = Reference()
ref.run()
scratch = tempfile.TemporaryDirectory()
encoders = Encoders(ref, scratch.name) if a.encoders else None
if encoders:
    encoders.theirs()
ours, theirs = [], []
for _ in range(a.runs):
    ours.append(vortex())
    theirs.append(ref.run())
    if encoders:
        ours[-1].update(encoders.ours())
        theirs[-1].update(encoders.theirs())
table = {}
for name in ours[0]:
    o, t = statistics.median(x[name] for x in ours), statistics.median(x[name] for x in theirs)
    table[name] = dict(ours_s=o, reference_s=t, ratio=o / t, ours_all=[x[name] for x in ours], reference_all=[x[name] for x in theirs])
total = [sum(table[n][k] * (a.steps if n == "evaluation" else 1) for n in ("text", "evaluation", "decode_video", "decode_audio")) for k in ("ours_s", "reference_s")]
table["total"] = dict(ours_s=total[0], reference_s=total[1], ratio=total[0] / total[1])
print(f"{a.precision}, {a.size}, {a.frames} frames, {ref.rows} rows, {a.threads} threads, {a.runs} runs each, in turn; torch {torch.__version__}, diffusers {diffusers.__version__}, transformers {transformers.__version__}")
print(f"{'stage':14s} {'vortex s':>10s} {'reference s':>12s} {'ratio':>7s}")
for n, v in table.items():
    print(f"{n:14s} {v['ours_s']:10.3f} {v['reference_s']:12.3f} {v['ratio']:7.2f}")
if a.json:
    json.dump(table, open(a.json, "w"), indent=1)
