#!/usr/bin/env python3
"""make_denoiser_vectors.py OUT.safetensors: outputs of diffusers' MiniMax H3 transformer (0.42.1, torch 2.15, CPU) with a
tiny configuration, for tests/denoiser/test_evaluate.c.

Weights and inputs are not stored: both sides compute them from a hash of the tensor's name and the element's index
(`values` below, `tiny_values` in tests/denoiser/tiny.h). Names and orders are the official ones.
"""
import math
import sys
import numpy as np
import torch
from diffusers import MiniMaxH3Transformer3DModel
from safetensors.numpy import save_file

torch.set_grad_enabled(False)
HIDDEN, LAYERS, REFINER, HEADS, HEAD_DIM, FFN, C, AC, TEXT, FREQ, T_HIDDEN, T_DIM = 40, 2, 1, 2, 104, 48, 3, 5, 24, 16, 20, 12
L, FRAMES, HEIGHT, WIDTH = 5, 22, 64, 96
TV, TA = (0.125, 0.75), (0.375, 0.9375)


def values(name, shape, scale=1.0, offset=0.0):
    """f32 in [offset - scale/2, offset + scale/2): 24 hashed bits, so that every step but the last sum is exact."""
    seed = np.uint32(2166136261)
    with np.errstate(over="ignore"):
        for b in name.encode():
            seed = (seed ^ np.uint32(b)) * np.uint32(16777619)
        x = seed + np.arange(int(np.prod(shape)), dtype=np.uint32)
        x ^= x >> np.uint32(16)
        x *= np.uint32(0x85ebca6b)
        x ^= x >> np.uint32(13)
        x *= np.uint32(0xc2b2ae35)
        x ^= x >> np.uint32(16)
    u = (x >> np.uint32(8)).astype(np.float32) * np.float32(2.0 ** -24) - np.float32(0.5)
    return torch.from_numpy((u * np.float32(scale) + np.float32(offset)).reshape(shape))


def weight(name, shape):
    """A tensor of the checkpoint: scales are powers of two near 4/sqrt(fan in)."""
    if name.endswith("norm.weight") or "norm1" in name or "norm2" in name:
        w = values(name, shape, 0.5, 1.0)
    elif name.endswith("bias"):
        w = values(name, shape, 0.25)
    else:
        w = values(name, shape, 2.0 ** round(math.log2(4 / math.sqrt(shape[1]))))
    f32 = name.startswith(("video_patch_proj", "audio_patch_proj", "time_embedder", "final_layer.video_out", "final_layer.audio_out"))
    return w if f32 else w.to(torch.bfloat16)


def state():
    inner, out = HEADS * HEAD_DIM, {}

    def both(official, diffusers, n, k):
        out[diffusers + ".weight"], out[diffusers + ".bias"] = weight(official + ".weight", (n, k)), weight(official + ".bias", (n,))

    def block(o, d):
        for n in ("norm1", "norm2"):
            out[d + n + ".weight"] = weight(o + n + ".weight", (HIDDEN,))
        out[d + "attn.norm_q.weight"] = weight(o + "attn.q_norm.weight", (HEAD_DIM,))
        out[d + "attn.norm_k.weight"] = weight(o + "attn.k_norm.weight", (HEAD_DIM,))
        qkv = weight(o + "attn.qkv_proj.weight", (3 * inner, HIDDEN)).reshape(HEADS, 3, HEAD_DIM, HIDDEN)
        for i, n in enumerate("qkv"):
            out[d + f"attn.to_{n}.weight"] = qkv[:, i].reshape(inner, HIDDEN)
        out[d + "attn.to_out.0.weight"] = weight(o + "attn.out_proj.weight", (HIDDEN, inner))
        gate, value = weight(o + "mlp.fc1.weight", (2 * FFN, HIDDEN)).chunk(2)
        out[d + "ff.net.0.proj.weight"] = torch.cat([value, gate])
        out[d + "ff.net.2.weight"] = weight(o + "mlp.fc2.weight", (HIDDEN, FFN))

    both("video_patch_proj", "proj_in", HIDDEN, 4 * C)
    both("audio_patch_proj", "audio_proj_in", HIDDEN, AC)
    both("condition_proj", "context_embedder", HIDDEN, TEXT)
    both("time_embedder.proj_in", "time_embedder.linear_1", T_HIDDEN, FREQ)
    both("time_embedder.proj_out", "time_embedder.linear_2", T_DIM, T_HIDDEN)
    for i in range(REFINER):
        block(f"token_refiner.blocks.{i}.", f"token_refiner.refiner_blocks.{i}.")
    out["token_refiner.final_norm.weight"] = weight("token_refiner.final_norm.weight", (HIDDEN,))
    for i in range(LAYERS):
        block(f"blocks.{i}.", f"transformer_blocks.{i}.")
        both(f"blocks.{i}.adaln_proj.linear", f"transformer_blocks.{i}.adaln_proj.linear", 18 * HIDDEN, T_DIM)
    out["norm_out.norm.weight"] = weight("final_layer.norm.weight", (HIDDEN,))
    both("final_layer.adaln_proj.linear", "norm_out.linear", 2 * HIDDEN, T_DIM)
    both("final_layer.video_out", "proj_out", 4 * C, HIDDEN)
    both("final_layer.audio_out", "audio_proj_out", AC, HIDDEN)
    return out


# Packing (denoiser specification 4.3) of: text, an image reference [1, 4, 4], a voice of 3 latents, target audio, target video.
R, SPAN = 5.0 / 3.0, [1, 4, 4, 4, 4]


def grid(d, q):
    ratio = d / q
    return np.linspace((1 - ratio) / 2, (1 - ratio) / 2 + ratio, d // 2, endpoint=False) * 32


def video(frames, h, w, origin):
    t, rows = 0.0, []
    for j in range(frames):
        rows += [(origin + t, y, x) for y in grid(h, math.sqrt(h * w)) for x in grid(w, math.sqrt(h * w))]
        t += R * SPAN[j % 5]
    return rows


def audio(n, origin, w):
    return [(origin + k, 0.0, w[i]) for i in (0, -1) for k in range(n)]


def packed():
    h, w = HEIGHT // 16, WIDTH // 16
    edge = grid(w, math.sqrt(h * w))
    a = round(FRAMES / 24 * 40)
    parts = [("t", [(float(i), 0.0, 0.0) for i in range(L)]), ("cv", video(1, 4, 4, float(L))), ("ca", audio(3, L + 1.0, edge)),
             ("a", audio(a, L + 4.0, edge)), ("v", video(5 * (FRAMES - 5) // 17 + 2, h, w, L + 4.0))]
    kind = [k for k, rows in parts for _ in rows]
    return np.array([r for _, rows in parts for r in rows]), np.array(kind)


position, kind = packed()
index = lambda *k: torch.from_numpy(np.concatenate([np.where(kind == x)[0] for x in k]))
tags = torch.tensor([{"t": 1, "v": 0, "cv": 0, "a": 2, "ca": 2}[k] for k in kind])
tags[1:3] = 0                                        # a vision block in the presentation
vi, ai, ti = index("cv", "v"), index("ca", "a"), index("t")
rows_v, rows_a = values("video_rows", (len(vi), 4 * C), 4.0), values("audio_rows", (len(ai), AC), 4.0)
prompt = values("prompt_embeds", (L, TEXT), 4.0)
targets_v, targets_a = int((kind == "v").sum()), int((kind == "a").sum())
out = {}
for precision in ("float32", "bfloat16"):
    m = MiniMaxH3Transformer3DModel(num_attention_heads=HEADS, attention_head_dim=HEAD_DIM, hidden_size=HIDDEN, num_layers=LAYERS,
                                    num_refiner_layers=REFINER, ffn_dim=FFN, in_channels=C, audio_in_channels=AC, text_dim=TEXT,
                                    freq_dim=FREQ, time_embed_hidden_dim=T_HIDDEN, time_embed_dim=T_DIM, rope_freq_dim=16).eval()
    m.load_state_dict(state(), assign=True)
    if precision == "float32":
        m = m.float()
    for k in range(2):
        per = {"t": TV[k], "v": TV[k], "a": TA[k], "cv": max(TV[k], float(np.float32(0.999))), "ca": 1.0}
        dist = sorted(set(per.values()))
        tidx = torch.tensor([dist.index(per[x]) for x in kind])
        v, a = m(hidden_states=rows_v[None], audio_hidden_states=rows_a[None],
                 encoder_hidden_states=prompt.to(torch.bfloat16 if precision == "bfloat16" else torch.float32)[None],
                 timestep=torch.tensor(dist, dtype=torch.float32), timestep_indices=tidx, token_tags=tags,
                 position_ids=torch.from_numpy(position), video_indices=vi, audio_indices=ai, text_indices=ti, return_dict=False)
        out[f"{precision}.video.{k}"] = v[0, -targets_v:].float().numpy()
        out[f"{precision}.audio.{k}"] = a[0, -targets_a:].float().numpy()
out["position_ids"] = position
for n in list(out):
    if n.startswith("float32"):
        b = out[n.replace("float32", "bfloat16")]
        print(n, out[n].shape, float(out[n].std()), "bf16 differs by", float(np.linalg.norm(b - out[n]) / np.linalg.norm(out[n])))
save_file({k: np.ascontiguousarray(v) for k, v in out.items()}, sys.argv[1], metadata={"torch": torch.__version__})
