"""The public reference on the decoded twins, Vortex on the files themselves: `make_formats.py reference`.

Needs diffusers 0.42.1 with PEFT beside what make_formats.py needs. The reference gets the numbers that a file means, in float32: it
never sees the file. Its code is run as it is. What diffusers cannot hold is brought to what it can:

  pruned transformers   their curve takes the place of the time embedder. The network feeds it to silu, which is invertible where it
                        is positive: each coordinate goes in as its positive and its negative part, with weights w and -w.
  text encoders         files of 50 layers have no later ones; those are the official file's, and condition nothing.

Text encoders and video VAEs see a first frame, too, so that the vision tower and the encoder run. VAEs are compared by what they
decode. Transformers run a second time with an adapter of every block's products, which PEFT puts on the twin.
"""
import json
import pathlib
import subprocess

import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import make_demo_vectors as demo

REQUEST = {"prompt": "A lighthouse in fog.", "width": 64, "height": 64, "num_frames": 22, "num_inference_steps": 3, "seed": 5}
OPTIONS = ["--prompt", REQUEST["prompt"], "--size", "64x64", "--frames", "22", "--steps", "2", "--seed", "5", "--precision", "float32",
           "--noise", "diffusers", "--device", "cpu", "-q", "-y"]
BOUND, STRENGTH = 1e-5, 0.7


# ---- the reference's parts from a twin's files ---------------------------------------------------------------------------------
class Curve(torch.nn.Module):
    """In place of the time embedder: from t in 0..1 to what silu takes to the curve's positive and negative parts."""

    def __init__(self, table):
        super().__init__()
        self.register_buffer("table", table.double())
        self.register_buffer("format", torch.zeros(1))  # the caller asks for a dtype: f32

    def forward(self, t):
        place = t.double().clamp(0, 1) * (len(self.table) - 1)
        below = place.floor().clamp(max=len(self.table) - 2).long()
        point = torch.lerp(self.table[below], self.table[below + 1], (place - below)[:, None])
        want = torch.cat([point.clamp(min=0), (-point).clamp(min=0)], 1)
        low, high = torch.zeros_like(want), want + 1
        for _ in range(60):
            middle = (low + high) / 2
            small = torch.nn.functional.silu(middle) < want
            low, high = torch.where(small, middle, low), torch.where(small, high, middle)
        return high.float()


def transformer(file, config):
    """Single files hold the rows of query, key and value one after the other."""
    tensors = load_file(file)
    table = tensors.pop("adaln_t_table", None)
    if table is not None:
        config = config | {"time_embed_dim": 2 * table.shape[1]}
        sizes = {"proj_in": (config["time_embed_hidden_size"], config["timestep_input_dim"]), "proj_out": (2 * table.shape[1], config["time_embed_hidden_size"])}
        for name, (n, k) in sizes.items():
            tensors |= {f"time_embedder.{name}.weight": torch.zeros(n, k), f"time_embedder.{name}.bias": torch.zeros(n)}
        for name in [x for x in tensors if x.endswith("adaln_proj.linear.weight")]:
            tensors[name] = torch.cat([tensors[name], -tensors[name]], 1)
    module = demo.transformer_of(config, tensors, lambda t, heads: list(t.chunk(3))).float()
    if table is not None:
        module.time_proj, module.time_embedder = torch.nn.Identity(), Curve(table)
    return module


def text_encoder(folder, partition):
    module = demo.text_encoder(partition).float()
    tensors = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        for name, t in load_file(file).items():
            tensors["model." + name if name.startswith("visual.") else name.replace("model.", "model.language_model.", 1)] = t.float()
    missing, unexpected = module.load_state_dict(tensors, strict=False)
    layers = {int(name.split(".")[3]) for name in missing if ".layers." in name}
    assert not unexpected and min(layers, default=50) >= 50, (missing, unexpected)
    return module


class Reference:
    def __init__(self, partition, first):
        self.partition, self.first = partition, Image.fromarray(load_file(first)["pixels"][0].numpy())
        self.config = json.loads((partition / "transformer" / "config.json").read_text())
        self.official = demo.open_model(partition)
        for name in ("transformer", "text_encoder"):
            self.official[name] = self.official[name].float()
        self.known = {}

    def model(self, twin):
        model = dict(self.official)
        if pathlib.Path(twin["--model"]).is_file():
            model["transformer"] = transformer(twin["--model"], self.config)
        folder = twin.get("--text-encoder")
        if folder and pathlib.Path(folder) != self.partition / "text_encoder":
            model["text_encoder"] = text_encoder(folder, self.partition)
        folder = twin.get("--video-vae")
        if folder and pathlib.Path(folder) != self.partition / "video_vae":
            model["vae"] = demo.video_vae(folder)
        return model

    def results(self, twin, first, lora):
        """Tensors by the names of --dump-tensors, --save-latents and decode --save-tensors."""
        key = json.dumps([twin["--model"], twin.get("--text-encoder"), twin.get("--video-vae"), first, bool(lora)])
        if key not in self.known:
            pipe = demo.pipeline(self.model(twin), "fl2va" if first else "t2va")
            pipe.set_progress_bar_config(disable=True)
            if lora:
                pipe.load_lora_weights(str(lora.parent), weight_name=lora.name, adapter_name="a")
                pipe.set_adapters(["a"], [STRENGTH])
            state, calls = demo.call(pipe, REQUEST | ({"image": self.first} if first else {}))
            if lora:
                pipe.unload_lora_weights()
            out = {"prompt_embeds": state.get("prompt_embeds")[0], "video": state.get("latents")[0], "audio": state.get("audio_latents"),
                   "frames": torch.from_numpy(state.get("videos")[0]), "waveform": state.get("audio")[0]}
            own = (state.get("num_condition_video_rows") or 0) if first else 0  # the frame's rows come first, and nobody reads their velocity
            for i, (_, (video, audio)) in enumerate(calls):
                out[f"velocity.video.{i}"], out[f"velocity.audio.{i}"] = video[0, own:], audio
            self.known[key] = {k: v.double() for k, v in out.items()}
        return self.known[key]


def draw_adapter(path, config):
    """Rank 4 over the products of every block, as diffusers writes it."""
    hidden, inner, ffn = config["hidden_size"], config["num_attention_heads"] * config["attention_head_dim"], config["ffn_hidden_size"]
    sizes = {"attn.to_q": (inner, hidden), "attn.to_k": (inner, hidden), "attn.to_v": (inner, hidden), "attn.to_out.0": (hidden, inner),
             "ff.net.0.proj": (2 * ffn, hidden), "ff.net.2": (hidden, ffn)}
    g, tensors = torch.Generator().manual_seed(6), {}
    for block in range(config["num_layers"]):
        for name, (n, k) in sizes.items():
            stem = f"transformer.transformer_blocks.{block}.{name}.lora_"
            tensors[stem + "A.weight"] = torch.randn(4, k, generator=g) / k**0.5
            tensors[stem + "B.weight"] = torch.randn(n, 4, generator=g) / 4
    save_file(tensors, path)


# ---- ours ----------------------------------------------------------------------------------------------------------------------
class Refused(Exception):
    pass


def vortex(program, case, out, first, lora, decode):
    options = [x for pair in case.items() for x in pair]
    more = (["--first", str(first)] if first else []) + (["--lora", f"{lora}:{STRENGTH}"] if lora else [])
    files = [str(out / name) for name in ("latents.safetensors", "dump.safetensors", "decoded.safetensors")]
    commands = [[program, "generate", *options, *OPTIONS, *more, "--save-latents", files[0], "--dump-tensors", files[1]]]
    if decode:
        commands.append([program, "decode", *options, "--latents", files[0], "-q", "-y", "--device", "cpu", "--save-tensors", files[2]])
    got = {}
    for command in commands:
        r = subprocess.run(command, capture_output=True, text=True)
        if r.returncode:
            raise Refused(r.stderr.strip())
    for file in files[: 3 if decode else 2]:
        got |= load_file(file)
    return got


def distance(ours, theirs):
    assert ours.numel() == theirs.numel(), (ours.shape, theirs.shape)
    return float((ours.double().flatten() - theirs.flatten()).norm() / theirs.norm())


COLUMNS = (("text", ("prompt_embeds",)), ("velocity", ("velocity.",)), ("latents", ("video", "audio")), ("decoded", ("frames", "waveform")))


def compare(ours, theirs, decode):
    """-> {column: the worst of its tensors}"""
    worst = {}
    for column, names in COLUMNS:
        keys = [k for k in theirs if k in names or k.startswith(tuple(n for n in names if n.endswith(".")))]
        if column != "decoded" or decode:
            worst[column] = max(distance(ours[k], theirs[k]) for k in keys)
    return worst


def reference(program, out, wanted):
    """-> the number of cases beyond the bound"""
    out = out.resolve()
    about = {f.parent.name: json.loads(f.read_text()) for f in sorted(out.glob("*/twin.json"))}
    partition = next(pathlib.Path(x["twin"]["--tokenizer"]).parent for x in about.values() if "--tokenizer" in x["twin"])
    torch.set_num_threads(2)
    them, failed, first = Reference(partition, out / "first.safetensors"), 0, out / "first.safetensors"
    lora = out / "adapter.safetensors"
    draw_adapter(lora, them.config)
    print(f"{'case':28s}" + "".join(f"{name:>10s}" for name, _ in COLUMNS) + f"{'adapter':>10s}", flush=True)
    for case, x in about.items():
        if wanted and case not in wanted:
            continue
        kind = x.get("kind", "tree")
        sees, decode = first if kind in ("text", "video") else None, kind in ("video", "audio", "tree")
        try:
            worst = compare(vortex(program, x["case"], out / case, sees, None, decode), them.results(x["twin"], bool(sees), None), decode)
            if kind == "transformer":
                adapted = compare(vortex(program, x["case"], out / case, None, lora, False), them.results(x["twin"], False, lora), False)
                worst["adapter"] = max(adapted.values())
            told = "".join(f"{worst[k]:10.1e}" if k in worst else f"{'':10s}" for k in [c for c, _ in COLUMNS] + ["adapter"])
            fine = max(worst.values()) <= BOUND
        except Refused as e:
            told, fine = f" {e}", False
        failed += not fine
        print(f"{case:28s}{told}{'' if fine else ' FAILED'}", flush=True)
    return failed
