#!/usr/bin/env python3
"""Writes the seed corpora of tests/fuzz for safetensors, config and index, and takes those for picture and clip
from tests/data/media/input. Inputs that fuzzing finds are added by hand
under names that say what they broke; this script never removes a file."""
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


safetensors()
config()
index()
latents()
media()
