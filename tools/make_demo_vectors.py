#!/usr/bin/env python3
"""The repository's own golden numbers: what the public reference (diffusers + transformers, CPU) makes of the random demo model.

    vortex demo-model DIR --random
    make_demo_vectors.py DIR/FL2VA tests/data        writes demo_random.float32.safetensors and demo_random.bfloat16.safetensors

Both hold one text-to-video request with the noise convention "diffusers": token ids by the tokenizers library, prompt
embeddings, first inputs, velocities and timesteps of every evaluation, final latents; float32 (every activation f32) also
the layout, three frames as 8 bit and the waveform. The request and the versions of the packages are in the metadata.
Needs torch, diffusers 0.42.1, transformers, safetensors. The model is read in the official layout: this file is the inverse
of the conversion that the released diffusers checkpoint went through.
"""
import argparse
import json
import os

import diffusers
import numpy as np
import safetensors
import tokenizers
import torch
import transformers
from diffusers import AutoencoderKLMiniMaxH3, AutoencoderKLMiniMaxH3Audio, MiniMaxH3Scheduler, MiniMaxH3Transformer3DModel
from diffusers.modular_pipelines import MiniMaxH3Blocks
from safetensors.torch import load_file, save_file
from transformers import (AutoTokenizer, Qwen2VLImageProcessor, Qwen3VLConfig, Qwen3VLForConditionalGeneration,
                          Qwen3VLProcessor, Qwen3VLVideoProcessor)

REQUEST = dict(prompt='The light of a lighthouse on the sea at dawn: <d>"Hold on!"</d> Wasser, 灯台, café.', width=64, height=64,
               num_frames=22, num_inference_steps=3, seed=20240607)
FRAMES = (0, 9, 21)


def read_json(*path):
    with open(os.path.join(*path)) as f:
        return json.load(f)


def read_tensors(folder):
    out = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            out.update(load_file(os.path.join(folder, name)))
    return out


def split_qkv(t, heads):
    """[heads, 3, head_dim] rows to q, k, v"""
    parts = t.reshape(heads, 3, -1, *t.shape[1:])
    return [parts[:, i].reshape(-1, *t.shape[1:]).contiguous() for i in range(3)]


def swap_halves(t):
    gate, value = t.chunk(2)
    return torch.cat([value, gate])


def transformer(root):
    return transformer_of(read_json(root, "transformer/config.json"), read_tensors(os.path.join(root, "transformer")))


def transformer_of(c, tensors, split=split_qkv):
    """Of official names or diffusers' own; split: how the rows of the fused matrix of official names stand."""
    module = MiniMaxH3Transformer3DModel(
        num_attention_heads=c["num_attention_heads"], attention_head_dim=c["attention_head_dim"], hidden_size=c["hidden_size"],
        num_layers=c["num_layers"], num_refiner_layers=c["token_refiner_num_layers"], ffn_dim=c["ffn_hidden_size"],
        in_channels=c["latents_dim"], audio_in_channels=c["audio_latents_dim"], patch_size=tuple(c["patch_size"]),
        text_dim=c["text_dim"], freq_dim=c["timestep_input_dim"], time_embed_hidden_dim=c["time_embed_hidden_size"],
        time_embed_dim=c["time_embed_dim"], rope_freq_dim=c["rope_inv_freq_len"])
    heads = {"video_patch_proj.": "proj_in.", "audio_patch_proj.": "audio_proj_in.", "condition_proj.": "context_embedder.",
             "time_embedder.proj_in.": "time_embedder.linear_1.", "time_embedder.proj_out.": "time_embedder.linear_2.",
             "token_refiner.blocks.": "token_refiner.refiner_blocks.", "blocks.": "transformer_blocks.",
             "final_layer.norm.": "norm_out.norm.", "final_layer.adaln_proj.linear.": "norm_out.linear.",
             "final_layer.video_out.": "proj_out.", "final_layer.audio_out.": "audio_proj_out."}
    inner = {".attn.q_norm.": ".attn.norm_q.", ".attn.k_norm.": ".attn.norm_k.", ".attn.out_proj.": ".attn.to_out.0.",
             ".mlp.fc1.": ".ff.net.0.proj.", ".mlp.fc2.": ".ff.net.2."}
    out, formats = {}, {}
    for name, t in tensors.items():
        if name == "rope.inv_freq":
            continue
        n = next(b + name[len(a):] for a, b in {**heads, "": ""}.items() if name.startswith(a))
        for a, b in inner.items():
            n = n.replace(a, b)
        if ".attn.qkv_proj." in n:
            for letter, part in zip("qkv", split(t, c["num_attention_heads"])):
                out[n.replace("qkv_proj", "to_" + letter)] = part
        else:
            out[n] = swap_halves(t) if ".mlp.fc1." in name else t
    formats = {n: t.dtype for n, t in out.items()}
    module.load_state_dict(out)
    for n, p in module.named_parameters():
        p.data = p.data.to(formats[n])
    return module.eval()


def text_encoder(root):
    c = read_json(root, "text_encoder/config.json")
    module = Qwen3VLForConditionalGeneration(Qwen3VLConfig(
        text_config=c["text_config"], vision_config=c["vision_config"], image_token_id=c["image_token_id"], video_token_id=c["video_token_id"],
        vision_start_token_id=c["vision_start_token_id"], vision_end_token_id=c["vision_end_token_id"], tie_word_embeddings=False))
    missing, unexpected = module.load_state_dict({n: t.float() for n, t in read_tensors(os.path.join(root, "text_encoder")).items()}, strict=False)
    assert not unexpected and all(n.startswith(("model.visual.", "lm_head.", "model.language_model.norm.")) for n in missing), (missing, unexpected)
    for p in module.parameters():  # parameters only: the rotary table stays f32, as after loading a released file
        p.data = p.data.to(torch.bfloat16)
    return module.eval()


def video_vae(folder):
    w, c = read_json(folder, "config.json"), read_json(folder, "source/config.json")
    v = c["vit_decoder_kwargs"]
    tensors = load_file(os.path.join(folder, "source/model.safetensors"))
    module = AutoencoderKLMiniMaxH3(
        block_out_channels=tuple(c["ch"] * m for m in c["ch_mult"]), layers_per_block=c["num_res_blocks"], latent_channels=w["latent_channels"],
        spatial_downsample_factors=tuple(c["space_down"]), temporal_downsample_factors=tuple(c["time_down"]),
        decoder_num_layers=v["num_layers"], decoder_num_attention_heads=v["heads"], decoder_attention_head_dim=v["dim_head"],
        decoder_num_register_tokens=tensors["decoder.register_tokens"].shape[1], decoder_ffn_mult=4, clip_length=w["vae_clip_length"],
        token_drop=w["vae_token_drop"], latents_mean=w["latents_mean"], latents_std=w["latents_std"])
    out = {}
    for n, t in tensors.items():
        if n.startswith("encoder.down."):
            level, rest = n[len("encoder.down."):].split(".", 1)
            n = f"encoder.down_blocks.{level}." + rest.replace("block.", "resnets.").replace("nin_shortcut.", "conv_shortcut.").replace("downsample.", "downsamplers.0.")
        n = n.replace("decoder.x_embedder.", "decoder.proj_in.").replace(".attn.to_out.", ".attn.to_out.0.")
        n = n.replace(".ff.w1.", ".ff.net.0.proj.").replace(".ff.w2.", ".ff.net.2.")
        if ".attn.to_qkv." in n:
            for letter, part in zip("qkv", split_qkv(t, v["heads"])):
                out[n.replace("to_qkv", "to_" + letter)] = part
        elif n != "decoder.mask_token":
            out[n] = swap_halves(t) if ".ff.net.0.proj." in n else t
    module.load_state_dict(out)
    return module.eval()


def audio_vae(root):
    w, c = read_json(root, "audio_vae/config.json"), read_json(root, "audio_vae/metadata.json")["metadata"]["kwargs"]
    module = AutoencoderKLMiniMaxH3Audio(
        encoder_dim=c["encoder_dim"], encoder_rates=tuple(c["encoder_rates"]), latent_dim=c["latent_dim"], latent_channels=w["latent_channels"],
        **{k: c[k] for k in ("num_attention_heads",) if k in c}, decoder_dim=c["decoder_dim"], decoder_rates=tuple(c["decoder_rates"]),
        decoder_kernel_sizes=tuple(2 * r - r % 2 for r in c["decoder_rates"]), resblock_kernel_sizes=(3, 7, 11),
        resblock_dilation_sizes=((1, 3, 5),) * 3, sampling_rate=w["sample_rate"], latents_mean=w["latents_mean"], latents_std=w["latents_std"])
    module.load_state_dict(load_file(os.path.join(root, "audio_vae/model.safetensors")))
    return module.eval()


def open_model(root):
    tokenizer = AutoTokenizer.from_pretrained(os.path.join(root, "tokenizer"))
    # as the released preprocessor_config.json
    pictures = Qwen2VLImageProcessor(size={"shortest_edge": 65536, "longest_edge": 16777216}, patch_size=16, temporal_patch_size=2, merge_size=2,
                                     image_mean=[0.5] * 3, image_std=[0.5] * 3)
    processor = Qwen3VLProcessor(image_processor=pictures, tokenizer=tokenizer, video_processor=Qwen3VLVideoProcessor())
    return dict(transformer=transformer(root), text_encoder=text_encoder(root), vae=video_vae(os.path.join(root, "video_vae")), audio_vae=audio_vae(root),
                tokenizer=tokenizer, processor=processor, scheduler=MiniMaxH3Scheduler(shift=12.0), audio_scheduler=MiniMaxH3Scheduler(shift=3.0))


def pipeline(model, workflow="t2va"):
    pipe = MiniMaxH3Blocks().get_workflow(workflow).init_pipeline()
    type(pipe).min_duration = property(lambda self: 0.5)  # the model is sold for 5 s and more; 22 frames make the same path
    names = {pipe.get_component_spec(n).name for n in pipe.component_names}
    pipe.update_components(**{k: v for k, v in model.items() if k in names})
    return pipe


def call(pipe, request):
    """The pipeline's state at the end, and what each evaluation was given and made."""
    calls = []

    def before(module, args, kwargs):  # the scheduler updates its rows in place: copy what goes in
        calls.append([{k: t.clone() for k, t in kwargs.items() if torch.is_tensor(t)}, None])

    def after(module, args, kwargs, output):
        calls[-1][1] = output if isinstance(output, tuple) else (output.sample, output.audio_sample)
    dit = pipe.transformer
    hooks = [dit.register_forward_pre_hook(before, with_kwargs=True), dit.register_forward_hook(after, with_kwargs=True)]
    state = pipe(prompt=request["prompt"], num_inference_steps=request["num_inference_steps"], height=request["height"], width=request["width"],
                 num_frames=request["num_frames"], output_type="np", generator=torch.Generator().manual_seed(request["seed"]),
                 **({"image": request["image"]} if "image" in request else {}))
    for h in hooks:
        h.remove()
    return state, calls


def run(model, request):
    """Tensors of one request by the names of --dump-tensors."""
    state, calls = call(pipeline(model), request)
    ids = model["tokenizer"](request["prompt"], add_special_tokens=False)["input_ids"]
    out = {"token_ids": torch.tensor(ids, dtype=torch.int32), "prompt_embeds": state.get("prompt_embeds")[0].float(),
           "text_token_tags": state.get("text_token_tags").to(torch.int32)}
    for k, t in calls[0][0].items():
        if not t.is_floating_point():
            out["layout." + k] = t.to(torch.int32)
        elif k in ("hidden_states", "audio_hidden_states", "position_ids"):
            out["first_call." + k] = t.float()
    for i, (k, v) in enumerate(calls):
        out[f"velocity.video.{i}"], out[f"velocity.audio.{i}"] = v[0].float(), v[1].float()
        out[f"timestep.{i}"] = k["timestep"].float()
    out["video"], out["audio"] = state.get("latents")[0].float(), state.get("audio_latents").float()
    frames = np.asarray(state.get("videos"))[0]
    out["frames_uint8"] = torch.from_numpy(np.rint(frames[list(FRAMES)] * 255).astype("uint8"))
    out["waveform"] = state.get("audio")[0].float()
    return {k: t.detach().contiguous().clone() for k, t in out.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    a = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.set_num_threads(2)
    model = open_model(a.model)
    versions = {m.__name__: m.__version__ for m in (torch, diffusers, transformers, tokenizers, safetensors, np)}
    for precision in ("bfloat16", "float32"):
        if precision == "float32":
            for k in ("transformer", "text_encoder"):
                model[k] = model[k].float()
        out = run(model, REQUEST)
        print(precision, {k: (tuple(t.shape), round(float(t.float().std()), 4)) for k, t in out.items()})
        print("clipped samples:", float((out["waveform"].abs() >= 1).float().mean()), "clipped pixels:",
              float(((out["frames_uint8"] == 0) | (out["frames_uint8"] == 255)).float().mean()))
        if precision == "bfloat16":  # float32 holds what does not depend on the format
            out = {k: t for k, t in out.items() if not k.startswith(("layout.", "frames", "waveform", "first_call."))}
        save_file(out, os.path.join(a.out, f"demo_random.{precision}.safetensors"),
                  metadata={"made_by": "tools/make_demo_vectors.py", "request": json.dumps(REQUEST, ensure_ascii=False), "frames": str(list(FRAMES)),
                            "precision": precision, **versions})


if __name__ == "__main__":
    main()
