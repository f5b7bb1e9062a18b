#!/usr/bin/env python
"""Reference outputs of small VAE decoders and encoders, for tests/vae: diffusers' modules (0.42.1 and newer) on weights that a formula gives.

usage: make_vae_vectors.py OUT.safetensors          (the repository has it as tests/data/vae.safetensors)

Weight i of the tensor `name` is  offset + scale * r(i),  r in -1..1 from SplitMix64 of FNV-1a(name) + (i+1)*GOLDEN; offset and
scale follow from the name (`rule`). tests/vae/small_model.h has the same formulas, so no weights need to be stored.
Tensors have the official names and layout; they are brought into diffusers' layout here.
"""
import math
import sys

import numpy as np
import torch
from diffusers.models.autoencoders.autoencoder_kl_minimax_h3 import AutoencoderKLMiniMaxH3
from diffusers.models.autoencoders.autoencoder_kl_minimax_h3_audio import AutoencoderKLMiniMaxH3Audio
from safetensors.torch import save_file

torch.set_grad_enabled(False)
torch.set_num_threads(2)
IMAGENET_MEAN, IMAGENET_STD = torch.tensor([.485, .456, .406]), torch.tensor([.229, .224, .225])
GOLDEN = 0x9E3779B97F4A7C15


def numbers(name, count):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(h) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)


def rule(name, shape):
    """offset, scale"""
    if name.endswith((".bias", ".beta")):
        return 0.0, 0.1
    if name.endswith(".alpha"):
        return 0.0, 0.5
    if name.endswith((".scale1", ".scale2")):
        return 0.5, 0.3
    if "norm" in name:
        return 1.0, 0.2
    if name == "decoder.conv_post.weight_g":
        return 0.1, 0.0  # so that few samples are clamped
    if name.endswith("weight_g"):
        return 1.0, 0.3
    if name.endswith("register_tokens"):
        return 0.0, 1.0
    return 0.0, math.sqrt(3.0 / math.prod(shape[1:]))


def tensor(name, shape):
    offset, scale = rule(name, shape)
    x = np.float32(offset) + np.float32(scale) * numbers(name, math.prod(shape))
    return torch.from_numpy(x.reshape(shape))


def latent_numbers(name, shape):
    return torch.from_numpy((np.float32(1.7) * numbers(name, math.prod(shape))).reshape(shape))


def statistics(channels):
    return numbers("latents_mean", channels) * np.float32(0.5), np.float32(1.25) + numbers("latents_std", channels) * np.float32(0.5)


def video(heads, layers, registers, ffn_mult, tile, overlap):
    vae = AutoencoderKLMiniMaxH3(block_out_channels=(32,) * 6, layers_per_block=1, decoder_num_layers=layers, decoder_num_attention_heads=heads,
                                 decoder_num_register_tokens=registers, decoder_ffn_mult=ffn_mult)
    vae.enable_tiling(tile, tile, overlap, overlap)
    dim, ffn, d = heads * 64, heads * 64 * ffn_mult, {}
    for n in ("weight", "bias"):
        d["post_quant_conv." + n] = tensor("post_quant_conv." + n, (24, 24, 1, 1, 1) if n == "weight" else (24,))
        d["decoder.proj_in." + n] = tensor("decoder.x_embedder." + n, (dim, 24) if n == "weight" else (dim,))
        d["decoder.norm_out." + n] = tensor("decoder.norm_out." + n, (dim,))
        d["decoder.proj_out." + n] = tensor("decoder.proj_out." + n, (3072, dim) if n == "weight" else (3072,))
    d["decoder.register_tokens"] = tensor("decoder.register_tokens", (1, registers, dim))
    for i in range(layers):
        p = f"decoder.transformer_blocks.{i}."
        for n in ("norm1.weight", "scale1", "norm2.weight", "scale2"):
            d[p + n] = tensor(p + n, (dim,))
        for n in ("weight", "bias"):
            two = n == "weight"
            qkv = tensor(p + "attn.to_qkv." + n, (3 * dim, dim) if two else (3 * dim,)).reshape(heads, 3, 64, -1)
            for c in range(3):
                t = qkv[:, c].reshape(dim, -1)
                d[p + f"attn.to_{'qkv'[c]}." + n] = t if two else t[:, 0]
            d[p + "attn.to_out.0." + n] = tensor(p + "attn.to_out." + n, (dim, dim) if two else (dim,))
            gate, value = tensor(p + "ff.w1." + n, (2 * ffn, dim) if two else (2 * ffn,)).chunk(2)
            d[p + "ff.net.0.proj." + n] = torch.cat([value, gate])
            d[p + "ff.net.2." + n] = tensor(p + "ff.w2." + n, (dim, ffn) if two else (dim,))
    missing, unexpected = vae.load_state_dict(d, strict=False)
    assert not unexpected and all(k.startswith(("encoder.", "quant_conv.")) for k in missing), (missing, unexpected)
    return vae.eval()


def video_case(out, name, vae, shape, step):
    mean, std = (torch.from_numpy(t)[:, None, None, None] for t in statistics(24))
    y = vae.decode((latent_numbers(name, (24, *shape)) * std + mean)[None]).sample[0].permute(1, 2, 3, 0)
    frames = (y * IMAGENET_STD + IMAGENET_MEAN).clamp(0, 1)
    inside = float(((frames > 0) & (frames < 1)).float().mean())
    print(name, tuple(frames.shape), f"{inside:.3f} of the values are not clamped")
    out[name + ".shape"] = torch.tensor(frames.shape, dtype=torch.int64)
    out[name + ".samples"] = frames.reshape(-1)[::step].contiguous()


def audio(channels, width, decoder_dim, rates, kernels, blocks, dilations):
    vae = AutoencoderKLMiniMaxH3Audio(encoder_dim=4, encoder_rates=rates, latent_dim=width, latent_channels=channels, num_attention_heads=2,
                                      decoder_dim=decoder_dim, decoder_rates=rates, decoder_kernel_sizes=kernels,
                                      resblock_kernel_sizes=blocks, resblock_dilation_sizes=dilations)
    d = vae.state_dict()
    for n, t in d.items():
        if n.startswith(("dec_in_proj", "decoder")) and not n.endswith("filter"):
            t.copy_(tensor(n, tuple(t.shape)))
    vae.load_state_dict(d)
    return vae.eval()


def audio_case(out, name, vae, channels, latents):
    mean, std = (torch.from_numpy(t)[:, None] for t in statistics(channels))
    y = vae.decode(latent_numbers(name, (2, channels, latents)) * std + mean).sample[:, 0]
    print(name, tuple(y.shape), f"{float((y.abs() < 1).float().mean()):.3f} of the samples are not clamped")
    out[name] = y.contiguous()


def video_encoder(widths, layers, space, time, tile, overlap):
    vae = AutoencoderKLMiniMaxH3(block_out_channels=widths, layers_per_block=layers, spatial_downsample_factors=space, temporal_downsample_factors=time,
                                 decoder_num_layers=1, decoder_num_attention_heads=1)
    vae.enable_tiling(tile, tile, overlap, overlap)
    d = {}
    for n, t in vae.state_dict().items():
        if n.startswith(("encoder", "quant_conv")):
            official = n.replace("down_blocks", "down").replace("resnets", "block").replace("conv_shortcut", "nin_shortcut").replace("downsamplers.0", "downsample")
            d[n] = tensor(official, tuple(t.shape))
    missing, unexpected = vae.load_state_dict(d, strict=False)
    assert not unexpected and all(k.startswith(("decoder.", "post_quant_conv.")) for k in missing), (missing, unexpected)
    return vae.eval()


def encode_case(out, name, vae, frames, height, width, step):
    pixels = torch.from_numpy(((numbers(name, frames * height * width * 3) + 1) * 128).astype(np.uint8)).reshape(frames, height, width, 3)
    x = ((pixels.float() / 255 - IMAGENET_MEAN) / IMAGENET_STD).permute(3, 0, 1, 2)[None]
    posterior = vae.encode(x).latent_dist
    mean, logvar = posterior.mean[0], posterior.logvar[0]
    print(name, tuple(mean.shape), f"deviation of the mean {float(mean.std()):.2f}, of the logarithm of the variance {float(logvar.std()):.2f}")
    out[name + ".shape"] = torch.tensor(mean.shape, dtype=torch.int64)
    out[name + ".mean"] = mean.reshape(-1)[::step].contiguous()
    out[name + ".logvar"] = logvar.reshape(-1)[::step].contiguous()
    if frames == 1:
        m, s = (torch.from_numpy(t)[:, None, None, None] for t in statistics(24))
        z = posterior.sample(generator=torch.Generator().manual_seed(42))[0].half().float()
        out[name + ".condition"] = ((z - m) / s).reshape(-1)[::step].contiguous()


def audio_encoder(encoder_dim, rates, width, channels, heads):
    vae = AutoencoderKLMiniMaxH3Audio(encoder_dim=encoder_dim, encoder_rates=rates, latent_dim=width, latent_channels=channels, num_attention_heads=heads,
                                      decoder_dim=2 ** len(rates), decoder_rates=rates, decoder_kernel_sizes=tuple(2 * r - r % 2 for r in rates))
    d = vae.state_dict()
    for n, t in d.items():
        if n.startswith(("encoder", "pre_block", "mean_proj")):
            t.copy_(tensor(n, tuple(t.shape)))
    vae.load_state_dict(d)
    return vae.eval()


def sound_case(out, name, vae, sounds, samples):
    y = vae.encode(torch.from_numpy(numbers(name, sounds * samples).reshape(sounds, 1, samples))).latent_dist.mode()
    print(name, tuple(y.shape), f"deviation {float(y.std()):.2f}")
    out[name] = y.contiguous()


def main():
    out = {}
    vae = video(heads=2, layers=2, registers=4, ffn_mult=4, tile=64, overlap=32)
    video_case(out, "video.tiles", vae, (12, 7, 6), 331)     # 3 x 2 tiles; two overlaps of one tile add up to more than the tile
    video_case(out, "video.off_grid", vae, (9, 2, 5), 331)   # 80 wide: two tiles; 30 frames
    video_case(out, "video.short", vae, (3, 3, 2), 97)       # one smaller tile, one window, 9 frames
    vae = video(heads=1, layers=1, registers=2, ffn_mult=3, tile=64, overlap=16)
    video_case(out, "video.other", vae, (8, 5, 4), 331)
    audio_case(out, "audio.two", audio(8, 32, 16, (2, 2), (4, 4), (3, 7), ((1, 3), (1, 3))), 8, 150)
    audio_case(out, "audio.three", audio(6, 24, 32, (5, 2, 2), (9, 4, 4), (3, 7, 11), ((1, 3, 5),) * 3), 6, 61)
    vae = video_encoder((32, 64, 32, 32, 64, 32), 1, (2, 2, 2, 2, 1, 1), (1, 2, 2, 1, 1, 1), tile=64, overlap=32)
    encode_case(out, "encode.tiles", vae, 22, 112, 112, 17)  # 3 x 3 tiles with overlaps of 48 and 32, two clips; two overlaps of one tile add up to more than the tile
    encode_case(out, "encode.image", vae, 1, 96, 48, 3)      # two tiles above each other
    encode_case(out, "encode.short", vae, 3, 32, 48, 3)      # the last frame twice more, two latents
    encode_case(out, "encode.odd", vae, 36, 32, 32, 5)       # three clips, two frames in the last
    vae = video_encoder((64, 32, 32, 32, 32), 2, (2, 2, 1, 2, 2), (2, 1, 1, 2, 1), tile=64, overlap=16)
    encode_case(out, "encode.other", vae, 17, 32, 80, 5)     # a full clip, of which two latents stay
    sound_case(out, "sound.two", audio_encoder(4, (2, 2), 32, 8, 2), 2, 150 * 4 - 3)
    sound_case(out, "sound.three", audio_encoder(3, (5, 2, 3), 24, 6, 3), 1, 61 * 30)  # heads of 8 pooled to 6 channels: bins overlap
    save_file(out, sys.argv[1], metadata={"made_by": "tools/make_vae_vectors.py", "torch": torch.__version__})


if __name__ == "__main__":
    main()
