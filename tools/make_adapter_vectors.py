#!/usr/bin/env python3
"""Adapters of the random demo model in every spelling, and what diffusers makes of them.

    vortex demo-model DIR --random
    make_adapter_vectors.py DIR/FL2VA tests/data/adapters

One adapter ("one") is written as five producers would: diffusers, PEFT, ComfyUI (query, key and value fused, alpha three times),
kohya, and DiffSynth (rows of the fused matrix head by head, f32). A second one has other ranks and modules, no alpha, and neither
keys nor a whole block. Each is loaded with load_lora_weights of diffusers 0.42.1 and PEFT and run in float32; expected.safetensors
holds the final latents of every case. Every spelling of "one" must give the same numbers, or this program stops.

diffusers takes every head to be 128 wide when it reads DiffSynth's rows; the demo model's are not, so that constant of the
package is replaced by the model's width while its file is loaded.
"""
import argparse
import inspect
import os
import sys

import diffusers
import peft
import torch
from diffusers.loaders import lora_conversion_utils, lora_pipeline
from safetensors.torch import save_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_demo_vectors as demo  # noqa: E402

ALPHA = 1.0


class Sizes:
    def __init__(self, root):
        c = demo.read_json(root, "transformer/config.json")
        self.hidden, self.heads, self.head_dim = c["hidden_size"], c["num_attention_heads"], c["attention_head_dim"]
        self.ffn, self.time, self.text = c["ffn_hidden_size"], c["time_embed_dim"], c["text_dim"]
        self.inner = self.heads * self.head_dim


def factor(g, *shape):
    """Numbers that bf16 holds exactly, so that a file's format changes nothing."""
    return (torch.randn(shape, generator=g) * 0.25).to(torch.bfloat16)


def draw_one(z):
    """{module: (A, B)} by official names; query, key and value separately as [A; A; A]."""
    g = torch.Generator().manual_seed(1)
    out = {}
    for block in ("blocks.0.", "blocks.2.", "token_refiner.blocks.1."):
        out[block + "attn.qkv_proj"] = ([factor(g, 2, z.hidden) for _ in range(3)], [factor(g, z.inner, 2) for _ in range(3)])
        out[block + "attn.out_proj"] = (factor(g, 2, z.inner), factor(g, z.hidden, 2))
        out[block + "mlp.fc1"] = (factor(g, 2, z.hidden), factor(g, 2 * z.ffn, 2))
        out[block + "mlp.fc2"] = (factor(g, 2, z.ffn), factor(g, z.hidden, 2))
    out["blocks.0.adaln_proj.linear"] = (factor(g, 1, z.time), factor(g, 18 * z.hidden, 1))
    out["final_layer.adaln_proj.linear"] = (factor(g, 1, z.time), factor(g, 2 * z.hidden, 1))
    out["condition_proj"] = (factor(g, 2, z.text), factor(g, z.hidden, 2))
    return out


DIFFUSERS = {"token_refiner.blocks.": "token_refiner.refiner_blocks.", "blocks.": "transformer_blocks.", "final_layer.adaln_proj.": "norm_out.",
             "condition_proj": "context_embedder"}
INNER = {"attn.out_proj": "attn.to_out.0", "mlp.fc1": "ff.net.0.proj", "mlp.fc2": "ff.net.2"}


def diffusers_name(name):
    for a, b in DIFFUSERS.items():
        if name.startswith(a):
            name = b + name[len(a):]
            break
    for a, b in INNER.items():
        name = name.replace(a, b)
    return name


def separate(one, infix):
    out = {}
    for name, (a, b) in one.items():
        n = diffusers_name(name)
        if isinstance(a, list):
            for letter, x, y in zip("qkv", a, b):
                part = n.replace("qkv_proj", "to_" + letter)
                out[f"{part}.lora_A{infix}.weight"], out[f"{part}.lora_B{infix}.weight"] = x, y
            continue
        if n.endswith("ff.net.0.proj"):
            gate, value = b.chunk(2)
            b = torch.cat([value, gate])
        out[f"{n}.lora_A{infix}.weight"], out[f"{n}.lora_B{infix}.weight"] = a, b
    return out


def fuse(a, b):
    """[A_q; A_k; A_v] and the block-diagonal B."""
    rank = a[0].shape[0]
    up = torch.zeros(3 * b[0].shape[0], 3 * rank, dtype=b[0].dtype)
    for i, part in enumerate(b):
        up[i * part.shape[0]:(i + 1) * part.shape[0], i * rank:(i + 1) * rank] = part
    return torch.cat(a), up


def fused(one, name_of, down, up):
    out = {}
    for name, (a, b) in one.items():
        alpha = ALPHA
        if isinstance(a, list):
            a, b = fuse(a, b)
            alpha = 3 * ALPHA
        n = name_of(name)
        out[f"{n}.{down}.weight"], out[f"{n}.{up}.weight"], out[n + ".alpha"] = a, b, torch.tensor(alpha)
    return out


def diffsynth(one, z):
    """No alpha for a module; the metadata's is for all, so the fused factors carry a third of it in B."""
    out = {}
    for name, (a, b) in one.items():
        if isinstance(a, list):
            a, b = fuse(a, b)
            b = 3 * b.float()
            b = b.reshape(3, z.heads, z.head_dim, -1).transpose(0, 1).reshape(3 * z.inner, -1)
        out[name + ".lora_A.default.weight"], out[name + ".lora_B.default.weight"] = a.float(), b.float()
    return out


def draw_two(z):
    g = torch.Generator().manual_seed(2)
    out = {}
    for block, rank in (("transformer_blocks.1.", 1), ("transformer_blocks.2.", 3)):
        for name, n, k in (("attn.to_q", z.inner, z.hidden), ("attn.to_v", z.inner, z.hidden), ("ff.net.0.proj", 2 * z.ffn, z.hidden)):
            out[f"transformer.{block}{name}.lora_A.weight"] = factor(g, rank, k).float()
            out[f"transformer.{block}{name}.lora_B.weight"] = factor(g, n, rank).float()
    return out


def head_width(width):
    """The conversion of diffusers with the width of this model's heads."""
    source = inspect.getsource(lora_conversion_utils._convert_non_diffusers_minimax_h3_lora_to_diffusers)
    assert source.count("head_dim = 128") == 1
    space = {"re": __import__("re"), "torch": torch}
    exec(source.replace("head_dim = 128", f"head_dim = {width}"), space)
    lora_pipeline._convert_non_diffusers_minimax_h3_lora_to_diffusers = space["_convert_non_diffusers_minimax_h3_lora_to_diffusers"]


def run(model, adapters, folder):
    """Latents with [(file, strength)] loaded in order."""
    pipe = demo.pipeline(model)
    for i, (name, _) in enumerate(adapters):
        pipe.load_lora_weights(folder, weight_name=name + ".safetensors", adapter_name=f"a{i}")
    if adapters:
        pipe.set_adapters([f"a{i}" for i in range(len(adapters))], [s for _, s in adapters])
    state, _ = demo.call(pipe, demo.REQUEST)
    out = state.get("latents")[0].float().clone(), state.get("audio_latents").float().clone()
    for i in range(len(adapters)):
        pipe.delete_adapters(f"a{i}")
    if adapters:
        pipe.unload_lora_weights()
    return out


def distance(a, b):
    return float((a - b).norm() / b.norm())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    a = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.set_num_threads(2)
    os.makedirs(a.out, exist_ok=True)
    z = Sizes(a.model)
    one = draw_one(z)
    metadata = {"alpha": str(ALPHA)}
    files = {
        "diffusers": ({"transformer." + k: v for k, v in separate(one, "").items()}, metadata),
        "peft": (separate(one, ".default"), metadata),
        "comfy": (fused(one, lambda n: "diffusion_model." + n, "lora_A", "lora_B"), {}),
        "kohya": (fused(one, lambda n: "lora_unet_" + n.replace(".", "_"), "lora_down", "lora_up"), {}),
        "diffsynth": (diffsynth(one, z), metadata),
        "two": (draw_two(z), {}),
    }
    for name, (tensors, meta) in files.items():
        save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(a.out, name + ".safetensors"),
                  metadata={"made_by": "tools/make_adapter_vectors.py", **meta})
    model = demo.open_model(a.model)
    for k in ("transformer", "text_encoder"):
        model[k] = model[k].float()
    head_width(z.head_dim)
    cases = {"none": [], "two:1": [("two", 1.0)], "diffusers:0.7,two:-0.5": [("diffusers", 0.7), ("two", -0.5)]}
    cases.update({f"diffusers:{s:g}": [("diffusers", s)] for s in (-0.5, 0.7, 1.0)})
    expected = {}
    for name, adapters in cases.items():
        video, audio = run(model, adapters, a.out)
        expected[name + ".video"], expected[name + ".audio"] = video, audio
        if adapters:
            print(f"{name}: {distance(video, expected['none.video']):.3f} from none")
    for spelling in ("peft", "comfy", "kohya", "diffsynth"):
        video, audio = run(model, [(spelling, 0.7)], a.out)
        off = max(distance(video, expected["diffusers:0.7.video"]), distance(audio, expected["diffusers:0.7.audio"]))
        print(f"{spelling}: {off:.1e} from diffusers")
        assert off < 2e-6, spelling
    save_file({k: v.contiguous() for k, v in expected.items()}, os.path.join(a.out, "expected.safetensors"),
              metadata={"made_by": "tools/make_adapter_vectors.py", "diffusers": diffusers.__version__, "peft": peft.__version__,
                        "torch": torch.__version__})


if __name__ == "__main__":
    main()
