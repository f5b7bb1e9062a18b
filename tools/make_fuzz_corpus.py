#!/usr/bin/env python3
"""Writes the seed corpora of tests/fuzz for safetensors, adapters, config and index, and takes those for picture and clip
from tests/data/media/input. Inputs that fuzzing finds are added by hand
under names that say what they broke, or as reach-*, as tests/fuzz/CMakeLists.txt says; this script never removes a file."""
import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fuzz" / "corpus"


def put(subject, name, data):
    folder = ROOT / subject
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def entry(dtype, shape, begin, end, **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


def headers():
    """name, header text, size of the data"""
    two = {"a": entry("F32", [2], 0, 8), "b": entry("BF16", [1, 3], 8, 14)}
    yield "two", json.dumps(two), 14
    yield "metadata", json.dumps({"__metadata__": {"format": "pt"}, **two}), 14
    yield "empty-metadata", json.dumps({"__metadata__": {}, **two}), 14
    yield "none", "{}", 0
    yield "padded", json.dumps(two) + " " * 64, 14
    yield "trailing", json.dumps(two), 20
    yield "truncated", json.dumps(two), 13
    yield "scalar", json.dumps({"s": entry("F64", [], 0, 8)}), 8
    yield "zero", json.dumps({"z": entry("I32", [0, 5], 0, 0)}), 0
    yield "nibbles", json.dumps({"n": entry("F4", [4], 0, 2)}), 2
    yield "every-dtype", json.dumps({t: entry(t, [0], 0, 0) for t in (
        "F64 F32 F16 BF16 F8_E4M3 F8_E5M2 F8_E8M0 I64 I32 I16 I8 U64 U32 U16 U8 BOOL F4 C64").split()}), 0
    yield "duplicate", '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', 2
    yield "escaped", '{"\\u0061\\"\\\\":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1
    yield "surrogates", '{"\\ud83d\\ude00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1
    yield "overflow", json.dumps({"o": entry("F32", [2**40, 2**40], 0, 8)}), 8
    yield "largest", json.dumps({"o": entry("U8", [2**63 - 1], 0, 2**63 - 1)}), 8
    yield "negative", json.dumps({"o": entry("U8", [-1], 0, 1)}), 1
    yield "hole", json.dumps({"a": entry("U8", [1], 0, 1), "b": entry("U8", [1], 2, 3)}), 3
    yield "overlap", json.dumps({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}), 3
    yield "more-members", json.dumps({"a": entry("U8", [1], 0, 1, x=1)}), 1
    yield "deep", '{"a":' + "[" * 6 + "]" * 6 + "}", 0
    yield "nine-axes", json.dumps({"a": entry("U8", [1] * 9, 0, 1)}), 1


def safetensors():
    for name, text, size in headers():
        put("safetensors", "header-" + name, b"\0" + struct.pack("<I", size) + text.encode())
        put("safetensors", "file-" + name, b"\1" + struct.pack("<Q", len(text)) + text.encode() + bytes(range(size)))
    for name, data in {"lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n", "html": b"<!DOCTYPE html><html></html>",
                       "zip": b"PK\3\4\x14\0\0\0\0\0", "pickle": b"\x80\2}q\0.", "gguf": b"GGUF\3\0\0\0\0\0\0\0", "length-max": b"\xff" * 8,
                       "short": b"\2\0\0"}.items():
        put("safetensors", "file-" + name, b"\1" + data)


def adapter():
    """[variant][file]: adapters by every rule, variants of the base in the first byte."""
    def pair(module, n, k, r=2, down="lora_A", up="lora_B", t="F32"):
        return {f"{module}.{down}.weight": (t, [r, k]), f"{module}.{up}.weight": (t, [n, r])}
    kinds = {
        "official": ({**pair("blocks.0.attn.qkv_proj", 12, 4), **pair("blocks.0.mlp.fc1", 6, 4), "blocks.0.mlp.fc1.alpha": ("F32", [])}, {}),
        "interleaved": (pair("blocks.0.attn.qkv_proj", 12, 4, 1, "lora_A.default", "lora_B.default"), {"alpha": "4"}),
        "diffusers": ({**pair("transformer.transformer_blocks.1.attn.to_q", 4, 4), **pair("transformer.transformer_blocks.1.attn.to_v", 4, 4, t="BF16"),
                       **pair("transformer.transformer_blocks.1.ff.net.0.proj", 6, 4, t="F16")}, {"lora_adapter_metadata": '{"transformer.lora_alpha":8}'}),
        "kohya": ({**pair("lora_unet_token_refiner_blocks_0_attn_out_proj", 4, 4, 2, "lora_down", "lora_up"),
                   "lora_unet_token_refiner_blocks_0_attn_out_proj.alpha": ("F64", [])}, {}),
        "reference": (pair("transformer_ref.proj_in", 4, 4, 1, "lora.down", "lora.up"), {"key_format": "minimax-h3-pdd-ref2va"}),
        "adaln": ({**pair("blocks.0.adaln_proj.linear", 6, 4, 1), "blocks.0.adaln_proj.linear.diff_b": ("F32", [6])}, {}),
        "difference": ({"blocks.0.attn.qkv_proj.diff": ("BF16", [12, 4]), "blocks.0.mlp.fc2.diff": ("F32", [3, 5])}, {}),
        "bank": ({"proj_out.weight": ("F32", [4, 6, 4]), "proj_out.bias": ("F32", [4, 6]), "audio_proj_out.weight": ("F32", [12, 4])}, {}),
        "factors": ({**pair("final_layer.video_out", 12, 4, 1, "lora_down", "lora_up"), "final_layer.video_out.reshape_weight": ("I64", [2])}, {}),
        "half": ({"blocks.0.mlp.fc2.lora_A.weight": ("F32", [2, 4])}, {}),
        "twice": ({**pair("blocks.0.mlp.fc2", 4, 4), **pair("transformer_blocks.0.ff.net.2", 4, 4)}, {}),
        "dora": ({**pair("blocks.0.mlp.fc2", 4, 4), "blocks.0.mlp.fc2.dora_scale": ("F32", [4])}, {}),
        "ranks": ({"blocks.0.mlp.fc2.lora_A.weight": ("F32", [2, 4]), "blocks.0.mlp.fc2.lora_B.weight": ("F32", [4, 3])}, {}),
        "unknown": ({**pair("blocks.0.mlp.fc2", 4, 4), "blocks.0.norm1.diff": ("F32", [4])}, {}),
        "none": (pair("double_blocks.0.img_attn.qkv", 4, 4), {}),
    }
    sizes = {"F64": 8, "I64": 8, "F32": 4, "BF16": 2, "F16": 2}
    for name, (tensors, metadata) in kinds.items():
        header, at = ({"__metadata__": metadata} if metadata else {}), 0
        for key, (t, shape) in tensors.items():
            count = sizes[t]
            for n in shape:
                count *= n
            header[key] = entry(t, shape, at, at + count)
            at += count
        text = json.dumps(header).encode()
        data = struct.pack("<2q", 12, 4) if name == "factors" else b""
        body = bytes(i * 7 % 64 for i in range(at - len(data))) + data
        for variant in (0, 7):
            put("adapter", f"{name}-{variant}", bytes([variant]) + struct.pack("<Q", len(text)) + text + body)


def config():
    put("config", "transformer", json.dumps({"hidden_size": 192, "token_refiner_num_layers": 2, "norm_eps": 1e-5, "patch_size": [1, 2, 2]}))
    put("config", "diffusers", json.dumps({"num_refiner_layers": 2, "decoder_num_attention_heads": 2, "latents_mean": [0.5] * 24}))
    put("config", "nested", json.dumps({"vit_decoder_kwargs": {"heads": 2}, "text_config": {"rope_scaling": {"mrope_section": [24, 20, 20]}},
                                        "vision_config": {"deepstack_visual_indexes": [8, 16, 24]}}))
    for name, value in {"zero": "0", "negative": "-1", "large": "16777217", "huge": "9223372036854775808", "real": "2.0", "exponent": "1e400", "text": '"5"',
                        "null": "null", "true": "true", "list": "[1,2]", "object": "{}"}.items():
        put("config", "value-" + name, '{"hidden_size":%s,"norm_eps":%s,"patch_size":[%s,1,1],"vit_decoder_kwargs":%s}' % ((value,) * 4))
    put("config", "dots", '{"":{"":1},".":2,"a":{"b":{"c":3}}}')
    put("config", "duplicate", '{"hidden_size":1,"hidden_size":2}')
    put("config", "list", "[]")
    put("config", "deep", "[" * 40 + "]" * 40)


def index():
    good = {"a": "1.safetensors", "b": "1.safetensors", "c": "2.safetensors"}
    put("index", "good", json.dumps({"metadata": {"total_size": 15}, "weight_map": good}))
    put("index", "one-file", json.dumps({"weight_map": {"c": "2.safetensors"}}))
    for name, size in {"float": 15.0, "text": "15", "wrong": 16, "null": None, "list": []}.items():
        put("index", "total-" + name, json.dumps({"metadata": {"total_size": size}, "weight_map": good}))
    for name, file in {"above": "../1.safetensors", "absolute": "/1.safetensors", "drive": "c:1.safetensors", "backslash": "a\\1.safetensors", "missing": "3.safetensors",
                       "itself": "model.safetensors.index.json", "empty": "", "number": 1, "dots": "..safetensors", "long": "x" * 300 + ".safetensors"}.items():
        put("index", "file-" + name, json.dumps({"weight_map": {**good, "c": file}}))
    put("index", "not-listed", json.dumps({"weight_map": {"a": "1.safetensors"}}))
    put("index", "swapped", json.dumps({"weight_map": {**good, "a": "2.safetensors"}}))
    put("index", "not-there", json.dumps({"weight_map": {**good, "d": "2.safetensors"}}))
    put("index", "no-map", "{}")
    put("index", "empty-map", '{"weight_map":{}}')
    put("index", "pointer", "version https://git-lfs.github.com/spec/v1\n")
    put("index", "page", "<html></html>")


def media():
    folder = ROOT.parent.parent / "data" / "media" / "input"
    for name in ("exif6.jpg exif-broken.jpg xmp5.jpg s420.jpg s422.jpg progressive.jpg restart.jpg grey.jpg cmyk-adobe.jpg damaged.jpg many.mpo rgba.png la16.png rgb16.png grey1.png grey16.png "
                 "palette2.png palette8.png adam7.png exif8-late.png xmp7.png animated.png damaged.png bomb.png text.png lossy.webp lossless.webp lossy-alpha.webp animated.webp "
                 "animated-inner.webp exif5.webp cut.webp").split():
        put("picture", name, (folder / name).read_bytes())
    for name in ("r24.mp4 turned90.mp4 cut.mp4 talk.mp4 hevc.mp4 untagged.mkv full.mkv av1.mkv vp8.webm vp9.webm mpeg4.avi mjpeg.mov prores.mov aac.m4a mp3.mp3 vorbis.ogg opus.ogg "
                 "u8.wav f64.wav three.wav theora.ogv").split():
        put("clip", name, (folder / name).read_bytes())


def tensors(first, **named):
    """first byte of fuzz_latents, then a file of name=(dtype, shape, data)"""
    header, body = {}, b""
    for name, (dtype, shape, data) in named.items():
        header[name] = entry(dtype, shape, len(body), len(body) + len(data))
        body += data
    text = json.dumps(header).encode()
    return bytes([first]) + struct.pack("<Q", len(text)) + text + body


def latents():
    nan, largest = struct.pack("<f", float("nan")), struct.pack("<I", 0x7F7FFFFF)
    video, audio = ("F32", [1, 7, 2, 2], bytes(112)), ("F32", [2, 1, 3], bytes(24))
    put("latents", "both", tensors(0, video=video, audio=audio))
    put("latents", "video", tensors(0, video=video))
    put("latents", "audio", tensors(0, audio=audio))
    put("latents", "none", tensors(0))
    put("latents", "batched", tensors(0, video=("F32", [1, 1, 1, 7, 2, 2], bytes(112))))
    put("latents", "bf16", tensors(0, video=("BF16", [1, 7, 2, 2], bytes(56))))
    put("latents", "integers", tensors(0, video=("I32", [1, 7, 2, 2], bytes(112))))
    put("latents", "nan", tensors(0, audio=("F32", [2, 1, 3], bytes(20) + nan)))
    put("latents", "six-frames", tensors(0, video=("F32", [1, 6, 2, 2], bytes(96))))
    put("latents", "no-channels", tensors(0, video=("F32", [0, 7, 2, 2], b"")))
    put("latents", "scalar", tensors(0, video=("F32", [], bytes(4))))
    tags = ("I32", [2], struct.pack("<2i", 1, 0))
    for act in (1, 3):
        put("latents", f"embeds-{act}", tensors(act, prompt_embeds=("F32", [2, 8], bytes(64)), text_token_tags=tags))
        # rounds up to infinity in bf16
        put("latents", f"embeds-largest-{act}", tensors(act, prompt_embeds=("F32", [2, 8], bytes(60) + largest), text_token_tags=tags))
    put("latents", "embeds-bf16", tensors(1, prompt_embeds=("BF16", [1, 2, 8], bytes(32)), text_token_tags=tags))
    put("latents", "embeds-tags", tensors(1, prompt_embeds=("F32", [2, 8], bytes(64)), text_token_tags=("I32", [2], struct.pack("<2i", 1, -1))))
    put("latents", "embeds-empty", tensors(1, prompt_embeds=("F32", [0, 8], b""), text_token_tags=("I32", [0], b"")))
    put("latents", "embeds-no-tags", tensors(1, prompt_embeds=("F32", [2, 8], bytes(64))))
    put("latents", "embeds-wide", tensors(1, prompt_embeds=("F32", [2, 9], bytes(72)), text_token_tags=tags))


def gguf_text(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def gguf_file(tensors, pairs=(), version=3, alignment=32, tail=0):
    """name, ggml's axes, type, bytes"""
    head, data = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(pairs)) + b"".join(pairs), b""
    for name, ne, kind, size in tensors:
        head += gguf_text(name) + struct.pack(f"<I{len(ne)}QIQ", len(ne), *ne, kind, len(data))
        data += bytes(range(256)) * (size // 256) + bytes(range(size % 256))
        data += bytes(-len(data) % alignment)
    return head + bytes(-len(head) % alignment) + data[:len(data) - tail]


def gguf():
    number = gguf_text("general.alignment") + struct.pack("<II", 4, 64)
    texts = gguf_text("tokenizer.tokens") + struct.pack("<IIQ", 9, 8, 2) + gguf_text("a") + gguf_text("")
    folded = gguf_text("comfy.gguf.orig_shape.w") + struct.pack("<IIQ3i", 9, 5, 3, 2, 1, 32)
    plain = [("blocks.0.norm1.weight", [8], 0, 32), ("w", [32, 2], 30, 128)]
    put("gguf", "none", gguf_file([]))
    put("gguf", "plain", gguf_file(plain))
    put("gguf", "version-2", gguf_file(plain, version=2))
    put("gguf", "version-1", gguf_file(plain, version=1))
    put("gguf", "aligned-64", gguf_file(plain, [number], alignment=64))
    put("gguf", "texts", gguf_file(plain, [texts, folded, gguf_text("general.architecture") + struct.pack("<I", 8) + gguf_text("qwen3vl")]))
    put("gguf", "cut", gguf_file(plain, tail=64))
    put("gguf", "duplicate", gguf_file([("w", [8], 0, 32), ("w", [8], 0, 32)]))
    put("gguf", "scalar", gguf_file([("w", [], 0, 4)]))
    sizes = {2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210)}
    put("gguf", "every-block", gguf_file([(f"w{k}", [2 * b, 1], k, 2 * s) for k, (b, s) in sizes.items()]))
    put("gguf", "every-number", gguf_file([(f"w{k}", [4], k, 4 * s) for k, s in {0: 4, 1: 2, 24: 1, 25: 2, 26: 4, 27: 8, 28: 8, 30: 2}.items()]))
    put("gguf", "iq", gguf_file([("w", [256], 16, 66)]))
    put("gguf", "wraps", gguf_file([("w", [64, 4398046511105], 8, 68)]))
    put("gguf", "nine-axes", gguf_file([("w", [1] * 9, 0, 4)]))
    every = [gguf_text(f"k{k}") + struct.pack("<I", k) + bytes(s) for k, s in enumerate([1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8])]
    put("gguf", "every-kind", gguf_file(plain, every))
    for name, value in {"0": 0, "3": 3, "2-30": 1 << 30}.items():
        put("gguf", "alignment-" + name, gguf_file(plain, [gguf_text("general.alignment") + struct.pack("<II", 4, value)]))
    # What a component makes of it: names, prefixes, quantised vectors.
    put("markers", "gguf-transformer", b"\2" + gguf_file([("model.diffusion_model.audio_patch_proj.weight", [1, 1], 0, 4), ("model.diffusion_model.blocks.0.norm1.weight", [32], 8, 34),
                                                         ("model.diffusion_model.blocks.0.mlp.fc1.weight", [256, 2], 12, 288)]))
    put("markers", "gguf-llama", b"\3" + gguf_file([("token_embd.weight", [32, 2], 2, 36), ("blk.0.attn_q.weight", [32, 2], 8, 68), ("v.deepstack.8.fc1.weight", [32, 1], 8, 34),
                                                   ("v.deepstack.16.fc1.weight", [32, 1], 8, 34)]))


def markers():
    texts = ['{"format": "int8_tensorwise"}', '{"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": 64}', '{"format": "float8_e4m3fn"}',
             '{"format": "float8_e5m2", "full_precision_matrix_mult": true}', '{"format": "nvfp4"}', '{"format": "mxfp8"}', '{"convrot": true, "convrot_groupsize": 16}',
             '{"format": "convrot_w4a4", "convrot_groupsize": 16, "linear_dtype": "int4"}', '{"format": "asym_w4a8_int8", "group_size": 16, "params": {"convrot_groupsize": 64}}',
             '{"format": "awq_w4a16"}', '{}', '[]', '{"format": 1}', '{"format": "nvfp4", "convrot_groupsize": 4096}', 'null', '{"params": {"format": "int8_tensorwise"}}']
    for i, text in enumerate(texts):
        put("markers", f"tensor-{i}", b"\0" + text.encode())
    names = ("blocks.0.mlp.fc1", "blocks.0.mlp.fc2", "blocks.1.mlp.fc1")
    formats = ("int8_tensorwise", "float8_e4m3fn", "nvfp4")
    layers = {n: {"format": f} for n, f in zip(names, formats)}
    for i, value in enumerate([{"format_version": "1.0", "layers": layers}, {"layers": {}}, {"layers": {"blocks.9": {"format": "nvfp4"}}}, {}, {"layers": []},
                               {"layers": {names[0]: 1}}]):
        put("markers", f"metadata-{i}", b"\1" + json.dumps(value).encode())
    w8, scale = ("F8_E4M3", [16, 32], bytes(512)), ("F32", [], bytes(4))
    files = {"legacy": {"blocks.0.mlp.fc1.weight": w8, "blocks.0.mlp.fc1.scale_weight": scale, "blocks.0.mlp.fc1.scale_input": scale, "scaled_fp8": ("F8_E4M3", [2], bytes(2))},
             "cast": {"blocks.0.mlp.fc1.weight": w8},
             "w4a8": {"blocks.0.mlp.fc1.weight": ("I8", [4, 16], bytes(64)), "blocks.0.mlp.fc1.weight_s_rel": ("F8_E4M3", [4, 2], bytes(8)),
                      "blocks.0.mlp.fc1.weight_s_channel": ("F32", [4], bytes(16)),
                      "blocks.0.mlp.fc1.comfy_quant": ("U8", [46], b'{"format": "asym_w4a8_int8", "convrot": false}')}}
    for name, more in files.items():
        put("markers", "file-" + name, tensors(2, **{"audio_patch_proj.weight": ("F32", [1], bytes(4)), **more}))


safetensors()
adapter()
gguf()
markers()
config()
index()
latents()
media()
