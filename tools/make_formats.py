#!/usr/bin/env python3
"""One small checkpoint in every layout and quantised format in circulation, and the same numbers decoded.

    make_formats.py make PARTITION OUT [--no-twins] [CASE ...]   PARTITION: an official FL2VA folder (the golden one, or `vortex demo-model --random`)
    make_formats.py check VORTEX OUT [--dump FILE] [CASE ...]    runs each case and its decoded twin in float32 and compares the latents;
                                                                 FILE, the build's tests/dump_weights: also every decoded weight, bit by bit
    make_formats.py reference VORTEX OUT [CASE ...]              runs each case and diffusers on its decoded twin (formats_reference.py), in float32,
                                                                 and compares embeddings, velocities, latents and, for VAEs, what they decode;
                                                                 transformers also with an adapter. Exit status 1 above 1e-5

Written for comfy-kitchen 0.2.40, gguf 0.19.0, safetensors and torch 2.15.0 (CPU). A case is a folder OUT/CASE with files as
ComfyUI keeps them and `twin.json`: the options that run the case, those that run its decoded twin, and how the twin's numbers stand
to what the package itself decodes: tensors equal bit for bit, and those where our definition rounds otherwise (quant.h says how).
A folder `diffusers` beside that of the partitions is a layout more. The K formats of GGUF are quantised here by plain rounding, as the
package only decodes them: llama.cpp's search gives smaller errors.
"""
import json
import pathlib
import struct
import subprocess
import sys

import gguf
import numpy as np
import torch
from comfy_kitchen.backends.eager import convrot_w4a4, quantization, w4a8_int8
from safetensors import safe_open
from safetensors.torch import load_file, save_file

torch.set_grad_enabled(False)
GRID, RANK = 1025, 8
GGUF = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K".split()


# ---- reading -----------------------------------------------------------------------------------------------------------------
def load(folder):
    out = {}
    for file in sorted(folder.glob("*.safetensors")):
        out |= load_file(file)
    return out


def regroup(w, heads, dim):
    """Rows q0 k0 v0 q1 ... to q0 q1 ... k0 k1 ... v0 v1 ..."""
    return w.reshape(heads, 3, dim, *w.shape[1:]).transpose(0, 1).reshape(w.shape).contiguous()


class Model:
    def __init__(self, partition):
        self.partition = partition
        self.transformer = load(partition / "transformer")
        self.text = load(partition / "text_encoder")
        self.video = load(partition / "video_vae" / "source")
        self.audio = load(partition / "audio_vae")
        config = json.loads((partition / "transformer" / "config.json").read_text())
        self.heads, self.dim = config["num_attention_heads"], config["attention_head_dim"]
        self.comfy = {k: regroup(v, self.heads, self.dim) if k.endswith("attn.qkv_proj.weight") else v for k, v in self.transformer.items()}
        self.blocks = config["num_layers"]
        self.config = {"transformer": {"image_model": "minimax_h3", "hidden_size": config["hidden_size"], "sigma_shift_video": 12, "sigma_shift_audio": 3}}


# ---- formats: stored tensors by their endings, the marker, and what they mean in f32 ------------------------------------------
def rotation(k):
    return next(g for g in (256, 64, 16) if k % g == 0)


def unrotate(q, scale, group):
    n, k = q.shape
    h = quantization._build_hadamard(group, dtype=torch.float64)
    return (q.double().reshape(n, -1, group) @ h).reshape(n, k).float() * scale.float()


def rotate(w, group):
    return unrotate(w, torch.ones(1), group)


def by_row(w, most):
    scale = (w.float().abs().amax(1, keepdim=True) / most).clamp(min=1e-30)
    return scale


def fp8(w, row=False):
    scale = by_row(w, 448) if row else (w.float().abs().max() / 448).reshape(())
    q = (w.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    theirs = None if row else quantization.dequantize_per_tensor_fp8(q, scale, torch.float32)
    return {"weight": q, "weight_scale": scale}, {"format": "float8_e4m3fn"}, q.float() * scale, theirs


def int8(w, rotated=True, group=None):
    group = group or rotation(w.shape[1])
    r = rotate(w, group) if rotated else w.float()
    scale = by_row(r, 127)
    q = (r / scale).round().clamp(-128, 127).to(torch.int8)
    marker = {"format": "int8_tensorwise"} | ({"convrot": True, "convrot_groupsize": group} if rotated else {})
    theirs = quantization.dequantize_int8_convrot_weight(q, scale, group) if rotated else quantization.dequantize_int8_simple(q, scale)
    return {"weight": q, "weight_scale": scale}, marker, unrotate(q, scale, group) if rotated else q.float() * scale, theirs


def int8_tensor(w):
    scale = (w.float().abs().max() / 127).reshape(1)
    q = (w.float() / scale).round().clamp(-128, 127).to(torch.int8)
    return {"weight": q, "weight_scale": scale}, {"format": "int8_tensorwise"}, q.float() * scale, quantization.dequantize_int8_simple(q, scale)


def nvfp4(w, awq=None):
    w = w.float() if awq is None else w.float() / awq.float()
    n, k = w.shape
    scale = (w.abs().max() / 2688).reshape(())
    q, blocks = quantization.quantize_nvfp4(w, scale)
    f32 = quantization.dequantize_nvfp4(q, scale, blocks, torch.float32)[:n, :k]
    stored = {"weight": q, "weight_scale": blocks, "weight_scale_2": scale}
    if awq is not None:
        stored["pre_quant_scale"], f32 = awq, f32 * awq.float()
    theirs = f32 if awq is None else None  # the factor is of the activation
    return stored, {"format": "nvfp4"} | ({"full_precision_matrix_mult": True} if awq is not None else {}), f32, theirs


def nvfp4_awq(w):
    return nvfp4(w, torch.rand(w.shape[1], generator=torch.Generator().manual_seed(w.shape[0])).add(0.5).to(torch.bfloat16))


def mxfp8(w):
    q, blocks = quantization.quantize_mxfp8(w.float())
    f32 = quantization.dequantize_mxfp8(q, blocks, torch.float32)
    return {"weight": q, "weight_scale": blocks.view(torch.uint8)}, {"format": "mxfp8"}, f32, f32


def w4a4(w):
    group = rotation(w.shape[1])
    r = rotate(w, group)
    scale = by_row(r, 7)
    q = (r / scale).round().clamp(-7, 7).to(torch.int8)
    packed = ((q[:, 0::2] & 15) | ((q[:, 1::2] & 15) << 4)).to(torch.int8)
    return ({"weight": packed, "weight_scale": scale.reshape(-1)}, {"format": "convrot_w4a4", "convrot_groupsize": group}, unrotate(q, scale, group),
            convrot_w4a4.dequantize_convrot_w4a4_weight(packed, scale.reshape(-1), group))


def w4a8(w):
    group = rotation(w.shape[1])
    r = rotate(w, group)
    channel = by_row(r, 127)
    ints = (r / channel).reshape(len(r), -1, 16)
    rel = (ints.abs().amax(2) / 7).clamp(min=2**-6).to(torch.float8_e4m3fn)
    codes = (ints / rel.float()[:, :, None]).round().clamp(-8, 7).to(torch.int16).reshape(len(r), -1) + 8
    packed = (codes[:, 0::2] | (codes[:, 1::2] << 4)).to(torch.uint8).view(torch.int8)
    i8 = w4a8_int8._dequant_int4_grouped_to_int8(packed, rel, None, 16)
    return ({"weight": packed, "weight_s_rel": rel, "weight_s_channel": channel.reshape(-1)},
            {"format": "asym_w4a8_int8", "convrot_groupsize": group, "group_size": 16}, unrotate(i8, channel, group),
            w4a8_int8.dequantize_w4a8_int8_weight(packed, rel, channel.reshape(-1), None, None, 16, group, torch.float32))


def blob(marker):
    return torch.tensor(list(json.dumps(marker).encode()), dtype=torch.uint8)


class Package:
    """How the twins' numbers stand to the packages' own decoding, case by case."""

    def __init__(self):
        self.equal = self.other = 0
        self.worst = 0.0

    def see(self, f32, theirs):
        if theirs is None:
            return
        theirs = theirs.reshape(f32.shape).float()
        if torch.equal(f32.view(torch.int32), theirs.contiguous().view(torch.int32)) or torch.equal(f32, theirs):
            self.equal += 1
        else:
            self.other += 1
            self.worst = max(self.worst, float((f32 - theirs).abs().max() / theirs.abs().max()))

    def take(self):
        seen = {"equal": self.equal, "other": self.other, "worst": self.worst}
        self.__init__()
        return seen


PACKAGE = Package()


def quantise(tensors, layers, how):
    """-> stored (with markers), markers, decoded"""
    stored, decoded, markers = dict(tensors), dict(tensors), {}
    for layer in layers:
        parts, markers[layer], f32, theirs = how(tensors[layer + ".weight"])
        PACKAGE.see(f32, theirs)
        stored |= {f"{layer}.{k}": v.contiguous() for k, v in parts.items()}
        stored[layer + ".comfy_quant"] = blob(markers[layer])
        decoded[layer + ".weight"] = f32.contiguous()
    return stored, markers, decoded


# ---- GGUF --------------------------------------------------------------------------------------------------------------------
def halves(x):
    return x.astype(np.float16)[:, None].view(np.uint8)


def divided(x, by):
    return np.rint(np.divide(x, by, out=np.zeros(np.broadcast(x, by).shape, np.float32), where=by != 0))


def k_blocks(x, kind):
    """Blocks of 256 by plain rounding: a scale (and a least value) a group, themselves in whole parts of the block's."""
    least = kind in ("Q2_K", "Q4_K", "Q5_K")
    groups = 8 if kind in ("Q4_K", "Q5_K") else 16
    y = x.reshape(len(x), groups, -1)
    top, steps = {"Q2_K": (3, 15), "Q3_K": (3, 31), "Q4_K": (15, 63), "Q5_K": (31, 63), "Q6_K": (31, 127)}[kind]
    low = np.minimum(y.min(2), 0) if least else 0 * y.min(2)
    scale = ((y.max(2) - low) if least else np.abs(y).max(2)) / top
    d, dmin = (scale.max(1) / steps).astype(np.float16), ((-low).max(1) / steps).astype(np.float16)
    sc = np.clip(divided(scale, d.astype(np.float32)[:, None]), 0, steps)
    mn = np.clip(divided(-low, dmin.astype(np.float32)[:, None]), 0, steps)
    q = divided(y + (dmin.astype(np.float32)[:, None] * mn)[:, :, None], (d.astype(np.float32)[:, None] * sc)[:, :, None])
    q = np.clip(q, 0 if least else -top - 1, top).astype(np.int16).reshape(len(x), 256)
    sc, mn = sc.astype(np.int16), mn.astype(np.int16)

    def pack(parts):
        return np.concatenate([p.astype(np.uint8) for p in parts], 1)

    if kind in ("Q4_K", "Q5_K"):
        c = q.reshape(len(x), 4, 2, 32)
        scales = [sc[:, :4] | (sc[:, 4:] >> 4) << 6, mn[:, :4] | (mn[:, 4:] >> 4) << 6, (sc[:, 4:] & 15) | (mn[:, 4:] & 15) << 4]
        high = [sum((c[:, i, j] >> 4) << (2 * i + j) for i in range(4) for j in range(2))] if kind == "Q5_K" else []
        return pack([halves(d), halves(dmin), *scales, *high, ((c[:, :, 0] & 15) | (c[:, :, 1] & 15) << 4).reshape(len(x), 128)])
    if kind == "Q6_K":
        c = (q + 32).reshape(len(x), 2, 4, 32)
        low4 = np.stack([(c[:, :, 0] & 15) | (c[:, :, 2] & 15) << 4, (c[:, :, 1] & 15) | (c[:, :, 3] & 15) << 4], 2).reshape(len(x), 128)
        return pack([low4, sum((c[:, :, j] >> 4) << 2 * j for j in range(4)).reshape(len(x), 64), sc, halves(d)])
    c = q.reshape(len(x), 2, 4, 32)
    two = sum(((c[:, :, j] + (0 if least else 4 * (c[:, :, j] < 0))) & 3) << 2 * j for j in range(4)).reshape(len(x), 64)
    if kind == "Q2_K":
        return pack([sc | mn << 4, two, halves(d), halves(dmin)])
    mask = sum((c[:, h, j] >= 0).astype(np.int16) << (4 * h + j) for h in range(2) for j in range(4))
    six = sc + 32
    high2 = sum((six[:, 4 * i : 4 * i + 4] >> 4) << 2 * i for i in range(4))
    return pack([mask, two, (six[:, :8] & 15) | (six[:, 8:] & 15) << 4, high2, halves(d)])


def ggml(w, kind):
    """-> (type, shape, bytes), decoded"""
    t = gguf.GGMLQuantizationType[kind]
    if kind in ("F32", "F16"):
        a = w.float().numpy().astype(np.float32 if kind == "F32" else np.float16)
        PACKAGE.see(torch.from_numpy(a.astype(np.float32)), torch.from_numpy(gguf.quants.dequantize(a, t)))
        return (t, w.shape, a.tobytes()), torch.from_numpy(a.astype(np.float32))
    if kind == "BF16":
        h = w.to(torch.bfloat16)
        raw = h.contiguous().view(torch.int16).numpy().view(np.uint8)
        PACKAGE.see(h.float(), torch.from_numpy(gguf.quants.dequantize(raw, t).copy()))
        return (t, w.shape, raw.tobytes()), h.float()
    if kind.endswith("_K"):  # the package only decodes these
        raw = k_blocks(w.float().numpy().reshape(-1, 256), kind).reshape(*w.shape[:-1], -1)
    else:
        raw = gguf.quants.quantize(w.float().numpy(), t)
    f32 = gguf.quants.dequantize(raw, t).reshape(w.shape).astype(np.float32)
    assert np.abs(f32 - w.float().numpy()).max() < 0.7 * np.abs(w.float().numpy()).max(), kind
    PACKAGE.see(torch.from_numpy(f32), torch.from_numpy(f32))
    return (t, w.shape, raw.tobytes()), torch.from_numpy(f32)


def text_kv(key, value):
    k, v = key.encode(), value.encode()
    return struct.pack("<Q", len(k)) + k + struct.pack("<IQ", 8, len(v)) + v


def shape_kv(key, values):
    k = key.encode()
    return struct.pack("<Q", len(k)) + k + struct.pack("<IIQ", 9, 5, len(values)) + struct.pack(f"<{len(values)}i", *values)


def write_gguf(path, tensors, kv=()):
    """name -> (type, shape, bytes); zero values of metadata, as stable-diffusion.cpp writes, unless given"""
    head, data = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(kv)) + b"".join(kv), b""
    for name, (t, shape, raw) in tensors.items():
        n = name.encode()
        head += struct.pack("<Q", len(n)) + n + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        head += struct.pack("<IQ", int(t), len(data))
        data += raw + bytes(-len(raw) % 32)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + bytes(-len(head) % 32) + data)


# ---- names -------------------------------------------------------------------------------------------------------------------
def diffusers_names(comfy, heads, dim):
    inner = heads * dim
    rules = [("token_refiner.blocks.", "token_refiner.refiner_blocks."), ("blocks.", "transformer_blocks."), ("video_patch_proj.", "proj_in."),
             ("audio_patch_proj.", "audio_proj_in."), ("condition_proj.", "context_embedder."), ("time_embedder.proj_in.", "time_embedder.linear_1."),
             ("time_embedder.proj_out.", "time_embedder.linear_2."), ("final_layer.norm.", "norm_out.norm."),
             ("final_layer.adaln_proj.linear.", "norm_out.linear."), ("final_layer.video_out.", "proj_out."), ("final_layer.audio_out.", "audio_proj_out.")]
    inside = [(".q_norm.", ".norm_q."), (".k_norm.", ".norm_k."), (".attn.out_proj.", ".attn.to_out.0."), (".mlp.fc2.", ".ff.net.2.")]
    out = {}
    for name, w in comfy.items():
        if name == "rope.inv_freq":
            continue
        n = next((new + name[len(old):] for old, new in rules if name.startswith(old)), name)
        for old, new in inside:
            n = n.replace(old, new)
        if ".attn.qkv_proj." in n:
            for i, c in enumerate("qkv"):
                out[n.replace("qkv_proj", "to_" + c)] = w[i * inner : (i + 1) * inner].contiguous()
        elif ".mlp.fc1." in n:
            gate, value = w.chunk(2)
            out[n.replace("mlp.fc1", "ff.net.0.proj")] = torch.cat([value, gate]).contiguous()
        else:
            out[n] = w
    return out


def comfy_text_names(text):
    """ComfyUI's file: 50 layers, no final norm, no head."""
    out = {}
    for name, w in text.items():
        n = name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")
        if n.startswith("model.layers.") and int(n.split(".")[2]) >= 50 or n == "model.norm.weight" or n.startswith("lm_head"):
            continue
        out[n] = w
    return out


LLAMA = [("model.embed_tokens.", "token_embd."), ("model.layers.", "blk."), (".self_attn.q_proj.", ".attn_q."), (".self_attn.k_proj.", ".attn_k."),
         (".self_attn.v_proj.", ".attn_v."), (".self_attn.o_proj.", ".attn_output."), (".self_attn.q_norm.", ".attn_q_norm."),
         (".self_attn.k_norm.", ".attn_k_norm."), (".input_layernorm.", ".attn_norm."), (".post_attention_layernorm.", ".ffn_norm."),
         (".mlp.gate_proj.", ".ffn_gate."), (".mlp.up_proj.", ".ffn_up."), (".mlp.down_proj.", ".ffn_down.")]
LLAMA_VISION = [("visual.blocks.", "v.blk."), ("visual.merger.norm.", "v.post_ln."), ("visual.merger.linear_fc1.", "mm.0."), ("visual.merger.linear_fc2.", "mm.2."),
                ("visual.pos_embed.", "v.position_embd."), (".attn.qkv.", ".attn_qkv."), (".attn.proj.", ".attn_out."), (".mlp.linear_fc1.", ".ffn_up."),
                (".mlp.linear_fc2.", ".ffn_down."), (".norm1.", ".ln1."), (".norm2.", ".ln2."), (".linear_fc1.", ".fc1."), (".linear_fc2.", ".fc2.")]


def llama_names(comfy, deep):
    language, vision = {}, {}
    for name, w in comfy.items():
        n = name
        for old, new in LLAMA_VISION if name.startswith("visual.") else LLAMA:
            n = n.replace(old, new)
        for i, block in enumerate(deep):
            n = n.replace(f"visual.deepstack_merger_list.{i}.", f"v.deepstack.{block}.")
        if name == "visual.patch_embed.proj.weight":
            vision["v.patch_embd.weight"], vision["v.patch_embd.weight.1"] = w[:, :, 0].contiguous(), w[:, :, 1].contiguous()
        elif name == "visual.patch_embed.proj.bias":
            vision["v.patch_embd.bias"] = w
        else:
            (vision if name.startswith("visual.") else language)[n] = w
    return language, vision


# ---- other forms -------------------------------------------------------------------------------------------------------------
def prune(comfy):
    """Wan2GP's recipe: the curve silu(time embedding) over 1025 points, cut to a few dimensions."""
    t = torch.linspace(0, 1, GRID, dtype=torch.float64)
    half = comfy["time_embedder.proj_in.weight"].shape[1] // 2
    freqs = torch.exp(-np.log(10000.0) * torch.arange(half, dtype=torch.float64) / half)
    wave = torch.cat([torch.cos(t[:, None] * freqs), torch.sin(t[:, None] * freqs)], 1)
    silu = torch.nn.functional.silu

    def linear(x, name):
        return x @ comfy[name + ".weight"].double().T + comfy[name + ".bias"].double()

    curve = silu(linear(silu(linear(wave, "time_embedder.proj_in")), "time_embedder.proj_out"))
    mean = curve.mean(0)
    u, s, v = torch.linalg.svd(curve - mean, full_matrices=False)
    out = {k: w for k, w in comfy.items() if not k.startswith("time_embedder.")}
    out["adaln_t_table"] = (u * s)[:, :RANK].float().contiguous()
    for name in comfy:
        if name.endswith("adaln_proj.linear.weight"):
            w, stem = comfy[name].double(), name[: -len("weight")]
            out[name] = (w @ v[:RANK].T).half().contiguous()
            out[stem + "bias"] = (comfy[stem + "bias"].double() + w @ mean).half()
    return out


def fold(audio):
    """Weight norm folded, as ComfyUI's file has it; norms in double, rounded once."""
    out = {}
    for name, w in audio.items():
        if name.endswith(".weight_g"):
            continue
        if name.endswith(".weight_v"):
            g, v = audio[name[:-1] + "g"].double(), w.double()
            norm = v.flatten(1).norm(dim=1).reshape(-1, *[1] * (v.dim() - 1))
            out[name[: -len("_v")]] = (v * (g / norm)).float()
        else:
            out[name] = w
    return out


# ---- cases -------------------------------------------------------------------------------------------------------------------
class Writer:
    def __init__(self, model, out, wanted=(), twins=True):
        self.m, self.out, self.wanted, self.twins = model, out, wanted, twins
        self.shared = {"--text-encoder": str(model.partition / "text_encoder"), "--video-vae": str(model.partition / "video_vae"),
                       "--audio-vae": str(model.partition / "audio_vae"), "--tokenizer": str(model.partition / "tokenizer")}
        block = [f"blocks.{i}.{part}" for i in range(model.blocks) for part in ("attn.qkv_proj", "attn.out_proj", "mlp.fc1", "mlp.fc2")]
        self.layers, self.adaln = block, [f"blocks.{i}.adaln_proj.linear" for i in range(model.blocks)]

    def file(self, name, tensors, metadata=None):
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({k: v.contiguous() for k, v in tensors.items()}, path, metadata)
        return str(path)

    def wants(self, case):
        return not self.wanted or case in self.wanted

    def twin(self, case, options, twin, kind="transformer"):
        """What runs the case, and what runs the same numbers without the format."""
        (self.out / case).mkdir(parents=True, exist_ok=True)
        about = {"case": self.shared | options, "twin": self.shared | twin, "kind": kind, "package": PACKAGE.take()}
        (self.out / case / "twin.json").write_text(json.dumps(about, indent=1))

    def plain(self, case, decoded):
        if not self.twins:
            return str(self.m.partition)
        return self.file(f"{case}/decoded_fl2va.safetensors", decoded, {"config": json.dumps(self.m.config)})

    def transformer(self, case, stored, decoded, metadata=None, name="minimax_h3_fl2va.safetensors"):
        mine = self.file(f"{case}/diffusion_models/{name}", stored, metadata)
        self.twin(case, {"--model": mine}, {"--model": self.plain(case, decoded)})

    def configured(self, folder):
        """Small models need what the released one's shapes imply: heads, blocks of the deep-stack features."""
        (self.out / folder).mkdir(parents=True, exist_ok=True)
        (self.out / folder / "config.json").write_text((self.m.partition / "text_encoder" / "config.json").read_text())
        return str(self.out / folder)

    def text(self, case, stored, decoded):
        self.file(f"{case}/coded/text.safetensors", stored)
        self.file(f"{case}/decoded/text.safetensors", decoded)
        self.twin(case, {"--model": str(self.m.partition), "--text-encoder": self.configured(f"{case}/coded")},
                  {"--model": str(self.m.partition), "--text-encoder": self.configured(f"{case}/decoded")}, "text")


def layouts(w):
    """The same bytes under other names, in other orders, in other files: bits do not change."""
    m, config = w.m, {"config": json.dumps(w.m.config)}
    official = {"--model": str(m.partition)}
    bf16 = {"comfy_bf16": (m.comfy, config, {}), "official_rows": (m.transformer, None, {"--qkv-layout": "interleaved"}),
            "diffusers_names": (diffusers_names(m.comfy, m.heads, m.dim), None, {})}
    for prefix in ("model.diffusion_model.", "diffusion_model.", "transformer.", "model."):
        bf16["prefix_" + prefix[:-1]] = ({prefix + k: v for k, v in m.comfy.items()}, config, {})
    for case, (tensors, metadata, options) in bf16.items():
        if w.wants(case):
            w.twin(case, {"--model": w.file(f"{case}/diffusion_models/fl2va.safetensors", tensors, metadata)} | options, official)
    diffusers = m.partition.parent.parent / "diffusers"
    if diffusers.is_dir() and w.wants("diffusers_folder"):
        w.twin("diffusers_folder", {"--model": str(diffusers)}, official)


def lightx2v(names, how):
    layers = [k[: -len(".weight")] for k in names if k.startswith("transformer_blocks.") and (".attn.to_" in k or ".ff.net" in k) and k.endswith(".weight")]
    stored, _, decoded = quantise(names, layers, how)
    return {k: v for k, v in stored.items() if not k.endswith(".comfy_quant")}, decoded


def comfy_formats(w):
    m, config = w.m, {"config": json.dumps(w.m.config)}
    for name, how, layers in (("fp8", fp8, w.layers), ("int8_convrot", int8, w.layers + w.adaln), ("int8_convrot_64", lambda x: int8(x, group=64), w.layers),
                              ("int8_plain", lambda x: int8(x, False), w.layers), ("int8_tensor", int8_tensor, w.layers), ("nvfp4", nvfp4, w.layers),
                              ("nvfp4_awq", nvfp4_awq, w.layers), ("mxfp8", mxfp8, w.layers), ("convrot_w4a4", w4a4, w.layers), ("asym_w4a8_int8", w4a8, w.layers)):
        if w.wants(name):
            stored, _, decoded = quantise(m.comfy, layers, how)
            w.transformer(name, stored, decoded)
    stored, markers, decoded = quantise(m.comfy, w.layers, fp8)
    unmarked = {k: v for k, v in stored.items() if not k.endswith(".comfy_quant")}
    PACKAGE.take()
    if w.wants("fp8_metadata"):
        w.transformer("fp8_metadata", unmarked, decoded, config | {"_quantization_metadata": json.dumps({"format_version": "1.0", "layers": markers})})
    if w.wants("fp8_legacy"):
        legacy = {k.replace(".weight_scale", ".scale_weight"): v for k, v in unmarked.items()} | {"scaled_fp8": torch.zeros(2, dtype=torch.float8_e4m3fn)}
        w.transformer("fp8_legacy", legacy | {layer + ".scale_input": torch.ones(1) for layer in w.layers}, decoded)
    if w.wants("fp8_cast"):
        cast = {k: v.to(torch.float8_e4m3fn) if k in {x + ".weight" for x in w.layers} else v for k, v in m.comfy.items()}
        w.transformer("fp8_cast", cast, {k: v.float() if v.dtype == torch.float8_e4m3fn else v for k, v in cast.items()}, config)
    if w.wants("int8_no_format"):
        stored, _, decoded = quantise(m.comfy, w.layers, int8)
        plain8 = {k: blob({"convrot": True, "convrot_groupsize": json.loads(bytes(v.tolist()))["convrot_groupsize"]}) if k.endswith(".comfy_quant") else v
                  for k, v in stored.items()}
        w.transformer("int8_no_format", plain8, decoded)
    if w.wants("mixed"):
        mixed, _, mixed_decoded = quantise(m.comfy, w.layers[:4], nvfp4)
        for layers, how in ((w.layers[4:6], fp8), (w.layers[6:8], int8)):
            more, _, more_decoded = quantise(m.comfy, layers, how)
            mixed |= {k: v for k, v in more.items() if any(k.startswith(x + ".") for x in layers)}
            mixed_decoded |= {x + ".weight": more_decoded[x + ".weight"] for x in layers}
        w.transformer("mixed", mixed, mixed_decoded)
    for name, how in (("lightx2v_fp8", lambda x: fp8(x, True)), ("lightx2v_int8", lambda x: int8(x, False))):
        if w.wants(name):
            w.transformer(name, *lightx2v(diffusers_names(m.comfy, m.heads, m.dim), how))


def pruned_files(w):
    config = {"config": json.dumps(w.m.config)}
    pruned = prune(w.m.comfy)
    PACKAGE.take()
    if w.wants("pruned_bf16"):
        w.transformer("pruned_bf16", pruned, {k: v.float() for k, v in pruned.items()}, config)
    for name, how in (("pruned_fp8", fp8), ("pruned_int8_convrot", int8), ("pruned_nvfp4", nvfp4)):
        if w.wants(name):
            stored, _, decoded = quantise(pruned, w.layers, how)
            w.transformer(name, stored, decoded)


def gguf_files(w):
    for kind in GGUF:
        case, tensors, decoded = f"gguf_{kind}", {}, {}
        if not w.wants(case):
            continue
        for name, x in w.m.comfy.items():  # a K format falls back where a row is no whole number of its blocks, as converters do
            block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][0]
            k = "F32" if x.dim() == 1 or x.dtype == torch.float32 or "adaln" in name and block > 1 else kind
            if k != "F32" and x.shape[-1] % block:
                k = "Q8_0" if x.shape[-1] % 32 == 0 else "F32"
            tensors[name], decoded[name] = ggml(x, k)
        path = w.out / case / "diffusion_models" / "minimax_h3_fl2va.gguf"
        write_gguf(path, tensors)
        w.twin(case, {"--model": str(path)}, {"--model": w.plain(case, decoded)})


def texts(w):
    m = w.m
    comfy = comfy_text_names(m.text)
    official = {"--model": str(m.partition)}
    w.file("text_bf16/coded/t.safetensors", comfy)
    w.twin("text_bf16", official | {"--text-encoder": w.configured("text_bf16/coded")}, official, "text")
    linears = [k[: -len(".weight")] for k in comfy if k.startswith("model.layers.") and k.endswith("_proj.weight")]
    stored, _, decoded = quantise(comfy, linears, int8)
    w.text("text_int8_convrot", stored, decoded)
    stored, decoded = dict(comfy), dict(comfy)
    gen = torch.Generator().manual_seed(3)
    for layer in linears:
        awq = torch.rand(comfy[layer + ".weight"].shape[1], generator=gen).add(0.5).to(torch.bfloat16) if layer.endswith(("o_proj", "down_proj")) else None
        parts, marker, f32, theirs = nvfp4(comfy[layer + ".weight"], awq)
        PACKAGE.see(f32, theirs)
        marker["full_precision_matrix_mult"] = True
        stored |= {f"{layer}.{k}": v.contiguous() for k, v in parts.items()} | {layer + ".comfy_quant": blob(marker)}
        decoded[layer + ".weight"] = f32
    parts, marker, f32, theirs = int8(comfy["model.embed_tokens.weight"], False)
    PACKAGE.see(f32, theirs)
    stored |= {"model.embed_tokens." + k: v for k, v in parts.items()} | {"model.embed_tokens.comfy_quant": blob(marker)}
    decoded["model.embed_tokens.weight"] = f32
    w.text("text_nvfp4_awq", stored, decoded)
    deep = json.loads((m.partition / "text_encoder" / "config.json").read_text())["vision_config"]["deepstack_visual_indexes"]
    for case, llama in (("text_gguf_hf", False), ("text_gguf_llama", True)):
        language, vision = llama_names(comfy, deep) if llama else (comfy, {})
        tensors, decoded = {}, {}
        back = dict(zip(language, [k for k in comfy if llama is False or not k.startswith("visual.")]))
        for name, x in (language | vision).items():
            kind = "F32" if x.dim() != 2 or x.shape[-1] % 32 else "F16" if back.get(name, "visual").startswith("visual") else "Q8_0"
            if x.dim() == 5:  # ggml knows four axes
                x = x.flatten(0, 1)
            tensors[name], decoded[name] = ggml(x, kind)
        write_gguf(w.out / case / "coded" / "text.gguf", {k: v for k, v in tensors.items() if k not in vision},
                   [text_kv("general.architecture", "qwen3vl")] if llama else ())
        options = official | {"--text-encoder": w.configured(f"{case}/coded")}
        if vision:
            write_gguf(w.out / case / "tower.gguf", {k: v for k, v in tensors.items() if k in vision}, [text_kv("general.architecture", "clip")])
            options["--vision"] = str(w.out / case / "tower.gguf")
        plain = {back.get(k, k): v for k, v in decoded.items() if k not in vision}
        if vision:
            plain |= {k: v.float() for k, v in comfy.items() if k.startswith("visual.")}
            for name, x in vision.items():  # those of two axes went through F16
                if x.dim() == 2 and x.shape[-1] % 32 == 0:
                    origin = next(k for k, v in comfy.items() if v is x)
                    plain[origin] = x.half().float()
        else:
            plain["visual.patch_embed.proj.weight"] = comfy["visual.patch_embed.proj.weight"].float()
        w.file(f"{case}/decoded/text.safetensors", plain)
        w.twin(case, options, official | {"--text-encoder": w.configured(f"{case}/decoded")}, "text")


def vaes(w):
    m = w.m
    official = {"--model": str(m.partition)}
    half = {k: v.half() for k, v in m.video.items()} | {"latents_mean": torch.zeros(24).half(), "latents_std": torch.ones(24).half()}
    half.pop("decoder.mask_token", None)
    folder = m.partition / "video_vae"
    # A file carries no statistics that count: they come from the configuration beside it.
    for name, tensors in (("half", half), ("decoded", {k: v.float() for k, v in half.items() if not k.startswith("latents_")})):
        w.file(f"video_f16/{name}/source/model.safetensors", tensors)
        for config in ("config.json", "source/config.json"):
            (w.out / "video_f16" / name / config).write_text((folder / config).read_text())
    w.twin("video_f16", official | {"--video-vae": str(w.out / "video_f16/half")}, official | {"--video-vae": str(w.out / "video_f16/decoded")}, "video")
    # As Kijai's file: the decoder's linears in INT8, rows of QKV as they were, per head.
    plain = {k: v.half() for k, v in m.video.items() if k != "decoder.mask_token"}
    linears = [k[: -len(".weight")] for k in plain if k.startswith("decoder.transformer_blocks.") and k.endswith(("to_qkv.weight", "to_out.weight", "w1.weight", "w2.weight"))]
    stored, _, decoded = quantise(plain, linears, int8)
    for name, tensors in (("coded", stored), ("decoded", {k: v.float() for k, v in decoded.items()})):
        w.file(f"video_int8_convrot/{name}/source/model.safetensors", tensors)
        for config in ("config.json", "source/config.json"):
            (w.out / "video_int8_convrot" / name / config).write_text((folder / config).read_text())
    w.twin("video_int8_convrot", official | {"--video-vae": str(w.out / "video_int8_convrot/coded")}, official | {"--video-vae": str(w.out / "video_int8_convrot/decoded")}, "video")
    config = json.loads((m.partition / "audio_vae" / "config.json").read_text())
    folded = fold(m.audio) | {"latents_mean": torch.tensor(config["latents_mean"]), "latents_std": torch.tensor(config["latents_std"])}
    w.twin("audio_folded", official | {"--audio-vae": w.file("audio_folded/vae/audio.safetensors", folded)}, official, "audio")


def tree(w):
    """ComfyUI's folder, whole."""
    m, root = w.m, w.out / "comfy_tree"
    w.file("comfy_tree/diffusion_models/minimax_h3_fl2va_bf16.safetensors", m.comfy, {"config": json.dumps(m.config)})
    w.file("comfy_tree/diffusion_models/minimax_h3_ref2va_bf16.safetensors", m.comfy, {"config": json.dumps(m.config)})
    w.file("comfy_tree/text_encoders/qwen3vl.safetensors", comfy_text_names(m.text))
    w.file("comfy_tree/vae/video.safetensors", m.video)
    w.file("comfy_tree/vae/audio.safetensors", m.audio)
    link = root / "tokenizer"
    if not link.exists():
        link.symlink_to(m.partition / "tokenizer")
    (root / "twin.json").write_text(json.dumps({"case": {"--model": str(root), "--video-vae": w.shared["--video-vae"], "--audio-vae": w.shared["--audio-vae"]},
                                                "twin": {"--model": str(m.partition)}}, indent=1))


def make(partition, out, wanted, twins):
    w = Writer(Model(partition.resolve()), out.resolve(), wanted, twins)
    w.file("first.safetensors", {"pixels": torch.randint(0, 256, (1, 64, 64, 3), generator=torch.Generator().manual_seed(4), dtype=torch.uint8)}, {"fps": "24"})
    for part in (layouts, comfy_formats, pruned_files, gguf_files):
        part(w)
    if not wanted:
        for part in (texts, vaes, tree):
            part(w)


# ---- checking ----------------------------------------------------------------------------------------------------------------
REQUEST = ["--prompt", "A lighthouse in fog.", "--size", "64x64", "--frames", "22", "--steps", "2", "--seed", "5", "--precision", "float32"]


def run(vortex, options, out, decode, first):
    command = [vortex, "generate", *[x for pair in options.items() for x in pair], *REQUEST, *first, "-q", "-y", "--device", "cpu", "--save-latents", out]
    r = subprocess.run(command, capture_output=True, text=True)
    if r.returncode:
        return r.stderr.strip()
    if decode:
        command = [vortex, "decode", *[x for pair in options.items() for x in pair], "--latents", out, "-q", "-y", "--device", "cpu", "--save-tensors", out + ".decoded"]
        r = subprocess.run(command, capture_output=True, text=True)
        if r.returncode:
            return r.stderr.strip()
    return None


def difference(a, b):
    worst = 0.0
    with safe_open(a, "pt") as x, safe_open(b, "pt") as y:
        for name in x.keys():
            p, q = x.get_tensor(name).double(), y.get_tensor(name).double()
            worst = max(worst, float((p - q).norm() / q.norm().clamp(min=1e-30)))
    return worst


PLACES = {"transformer": ("--model", "transformer"), "text": ("--text-encoder", ""), "video": ("--video-vae", ""), "audio": ("--audio-vae", "")}


def dumped(dump, kind, options, out):
    """The component's tensors, decoded: an error's text in place of None."""
    option, inside = PLACES[kind]
    path = pathlib.Path(options[option])
    path = path / inside if inside and path.is_dir() else path
    r = subprocess.run([dump, kind, str(path), out, *([options["--qkv-layout"]] if "--qkv-layout" in options else [])], capture_output=True, text=True)
    return r.stderr.strip() if r.returncode else None


def same_bits(a, b):
    """-> tensors whose bits are the same, tensors of both files"""
    x, y = load_file(a), load_file(b)
    both = [k for k in x if k in y]
    return sum(torch.equal(x[k].flatten().view(torch.int32), y[k].flatten().view(torch.int32)) for k in both), len(both)


def check(vortex, out, dump, wanted):
    failed = 0
    print(f"{'case':28s} {'twin = package':>18s} {'Vortex = twin':>15s} {'latents':>9s}", flush=True)
    for file in sorted(out.glob("*/twin.json")):
        case = file.parent.name
        if wanted and case not in wanted:
            continue
        twin = json.loads(file.read_text())
        a, b = str(file.parent / "a.safetensors"), str(file.parent / "b.safetensors")
        package, weights, fine = twin.get("package", {"equal": 0, "other": 0}), "", True
        said = f"{package['equal']} equal" if package["equal"] else ""
        if package["other"]:
            said += f" {package['other']} within {package['worst']:.0e}"
        fault = None
        if dump and case != "comfy_tree":
            fault = dumped(dump, twin["kind"], twin["case"], a + ".weights") or dumped(dump, twin["kind"], twin["twin"], b + ".weights")
            if not fault:
                same, both = same_bits(a + ".weights", b + ".weights")
                weights, fine = f"{same} of {both}", same == both
        decode = case.startswith(("video", "audio", "comfy_tree"))
        first = ["--first", str(out / "first.safetensors")] if case.startswith(("text", "video")) else []  # through the vision tower, the encoder
        fault = fault or run(vortex, twin["case"], a, decode, first) or run(vortex, twin["twin"], b, decode, first)
        worst = None if fault else difference(a, b)
        if decode and not fault:
            worst = max(worst, difference(a + ".decoded", b + ".decoded"))
        fine = fine and not fault and worst <= 1e-5
        failed += not fine
        print(f"{case:28s} {said:>18s} {weights:>15s} {fault or f'{worst:9.2e}'} {'' if fine else 'FAILED'}", flush=True)
    return failed


def main():
    words = sys.argv[2:]
    if sys.argv[1] == "make":
        twins = "--no-twins" not in words
        words = [x for x in words if x != "--no-twins"]
        return make(pathlib.Path(words[0]), pathlib.Path(words[1]), words[2:], twins)
    if sys.argv[1] == "reference":
        import formats_reference  # needs diffusers, which making and checking do without

        return formats_reference.reference(words[0], pathlib.Path(words[1]), words[2:]) > 0
    dump = None
    if "--dump" in words:
        at = words.index("--dump")
        dump = words.pop(at + 1)
        words.pop(at)
    return check(words[0], pathlib.Path(words[1]), dump, words[2:]) > 0


if __name__ == "__main__":
    sys.exit(main())
