"""Makes tests/data/vision.safetensors: what transformers' Qwen3VLModel computes for pictures and videos with a tiny vision tower
and a tiny language model of 50 layers.

The weights are not stored: tests/text/checkpoint.h makes the same from the formula of make_language_vectors.py, and the pixels
are bytes of that formula. Patches come from transformers' own image and video processors, positions from get_rope_index.
  picture   one picture of 64 x 96 (grids are not square: rows and columns cannot be taken for each other)
  pictures  two of 64 x 96 and 160 x 32
  video     three sampled frames of 96 x 64: two vision blocks, the last frame shown twice
  mixed     a video of two frames before a picture: features are routed by kind, rows stand in order
Per case: ids, positions, the features of all its vision blocks in order (V, D0, D1, D2) and the residual stream after 50 layers,
each with f32 activations (*.float32) and in bf16 (*.bfloat16, kept as bf16).
  picture.still, picture.turned, picture.fed: V in bf16 where no block adds anything, where only the first block's attention does,
  and where only its MLP does: there roundings have not been multiplied yet, and the test can count them.

usage: make_vision_vectors.py TESTS/DATA/vision.safetensors [GOLDEN/official/FL2VA/text_encoder GOLDEN/inputs/motion.safetensors]
With a golden checkpoint: also golden.*, the features of the first two frames of that video.
(made with torch 2.15.0, transformers 5.24.0, torchvision 0.29.2, on the CPU)
"""
import json
import sys

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLConfig, Qwen3VLVisionConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel, Qwen3VLVisionModel
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

from make_language_vectors import (EPS, HEAD_DIM, HEADS, HIDDEN, INTERMEDIATE, KV_HEADS, LAYERS, SECTION, TAKEN, THETA, VOCABULARY,
                                   uniform, weight)

PICTURE, FRAMES, BEGIN, END = 60, 61, 62, 63  # ids of the pads and markers
VISION = dict(hidden_size=48, num_heads=2, depth=5, intermediate_size=40, out_hidden_size=HIDDEN, num_position_embeddings=49,
              deepstack_visual_indexes=[0, 2, 3], patch_size=16, temporal_patch_size=2, spatial_merge_size=2, in_channels=3,
              hidden_act='gelu_pytorch_tanh')
CASES = {  # each condition: frames, height, width
    'picture': [(1, 64, 96)],
    'pictures': [(1, 64, 96), (1, 160, 32)],
    'video': [(3, 96, 64)],
    'mixed': [(2, 32, 64), (1, 96, 32)],
}
MEAN = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3, do_resize=False)


def pixels(case, index, frames, height, width):
    u = uniform('pixels.%s.%d' % (case, index), frames * height * width * 3)
    return torch.from_numpy(((u + 1) * 128).astype(np.uint8).reshape(frames, height, width, 3))


def patches(frames, video):
    x = frames.permute(0, 3, 1, 2)
    if not video:
        r = Qwen2VLImageProcessor(**MEAN, patch_size=16, merge_size=2)([x[0]], return_tensors='pt')
        return r['pixel_values'], r['image_grid_thw']
    r = Qwen3VLVideoProcessor(**MEAN, do_sample_frames=False, patch_size=16, merge_size=2)([x], return_tensors='pt')
    return r['pixel_values_videos'], r['video_grid_thw']


def model(dtype, quiet=()):
    config = Qwen3VLConfig(
        text_config=dict(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=INTERMEDIATE, num_hidden_layers=LAYERS,
            num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, rms_norm_eps=EPS, attention_bias=False,
            hidden_act='silu', pad_token_id=None,
            rope_parameters={'rope_type': 'default', 'rope_theta': THETA, 'mrope_section': SECTION, 'mrope_interleaved': True}),
        vision_config=VISION, image_token_id=PICTURE, video_token_id=FRAMES, vision_start_token_id=BEGIN, vision_end_token_id=END)
    config._attn_implementation = 'sdpa'
    config.text_config._attn_implementation = config.vision_config._attn_implementation = 'sdpa'
    m = Qwen3VLModel(config)
    with torch.no_grad():
        for name, p in m.named_parameters():
            w = weight('model.' + name, tuple(p.shape)).float()
            p.copy_(torch.zeros_like(w) if any(q in name for q in quiet) else w)
    # Parameters only: casting the module would also round the tables of frequencies (text-encoder specification, 3.3).
    for p in m.parameters(): p.data = p.data.to(dtype)
    return m.eval()


def sequence(conditions):
    """Ids, token types of the reference, and per condition its pads' kind: text tokens around every vision block."""
    ids, kinds = [5, 17], [0, 0]
    for i, (frames, height, width) in enumerate(conditions):
        for block in range((frames + 1) // 2):
            pads = height * width // 1024
            ids += [20 + i, 30 + block, BEGIN] + [FRAMES if frames > 1 else PICTURE] * pads + [END]
            kinds += [0, 0, 0] + [2 if frames > 1 else 1] * pads + [0]
    return torch.tensor(ids + [9, 41, 3]), torch.tensor(kinds + [0, 0, 0])


def run(m, case, conditions):
    dtype = next(m.parameters()).dtype
    values, grids = {False: [], True: []}, {False: [], True: []}
    features = []
    for i, (frames, height, width) in enumerate(conditions):
        v, g = patches(pixels(case, i, frames, height, width), frames > 1)
        values[frames > 1].append(v)
        grids[frames > 1].append(g)
        with torch.no_grad(): r = m.visual(v.to(dtype), grid_thw=g)
        features.append(torch.stack([r.pooler_output] + list(r.deepstack_features)))
    ids, kinds = sequence(conditions)
    join = lambda x: torch.cat(x) if x else None
    image, video = join(grids[False]), join(grids[True])
    positions, _ = m.get_rope_index(ids[None], kinds[None], image, video)
    with torch.no_grad():
        r = m(input_ids=ids[None], mm_token_type_ids=kinds[None], pixel_values=join(values[False]), image_grid_thw=image,
              pixel_values_videos=join(values[True]), video_grid_thw=video, use_cache=False, output_hidden_states=True)
    return ids, positions[:, 0], torch.cat(features, 1), r.hidden_states[TAKEN][0]


def golden(out, folder, motion):
    frames = load_file(motion)['pixels'][:2]
    index = json.load(open(folder + '/model.safetensors.index.json'))['weight_map']
    tensors = {}
    for f in sorted({f for n, f in index.items() if n.startswith('model.visual.')}): tensors.update(load_file(folder + '/' + f))
    config = Qwen3VLVisionConfig(**json.load(open(folder + '/config.json'))['vision_config'])
    config._attn_implementation = 'sdpa'
    for dtype in (torch.float32, torch.bfloat16):
        m = Qwen3VLVisionModel(config)
        m.load_state_dict({n[len('model.visual.'):]: t.float() for n, t in tensors.items() if n.startswith('model.visual.')})
        for p in m.parameters(): p.data = p.data.to(dtype)
        v, g = patches(frames, True)
        with torch.no_grad(): r = m.eval()(v.to(dtype), grid_thw=g)
        out['golden.features.' + str(dtype).split('.')[1]] = torch.stack([r.pooler_output] + list(r.deepstack_features))


def main(path, *more):
    out = {}
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).split('.')[1]
        m = model(dtype)
        for case, conditions in CASES.items():
            ids, positions, features, hidden = run(m, case, conditions)
            assert features.dtype == hidden.dtype == dtype
            out[case + '.ids'] = ids.to(torch.int32)
            out[case + '.positions'] = positions.to(torch.int64).contiguous()
            out[case + '.features.' + name] = features.contiguous()
            out[case + '.hidden.' + name] = hidden.contiguous()
    adds = ['visual.blocks.%d.%s' % (i, part) for i in range(VISION['depth']) for part in ('attn.proj', 'mlp.linear_fc2')]
    for name, loud in (('still', None), ('turned', adds[0]), ('fed', adds[1])):
        m = model(torch.bfloat16, [a for a in adds if a != loud])
        out['picture.' + name] = run(m, 'picture', CASES['picture'])[2][0].contiguous()
    if more: golden(out, *more)
    for name in sorted(out):
        if name.endswith('.float32'):
            a, b = out[name], out[name[:-7] + 'bfloat16'].float()
            print(name, tuple(a.shape), 'largest', float(a.abs().max()), 'bf16 against f32', float((a - b).norm() / a.norm()))
    save_file(out, path, {'torch': torch.__version__.split('+')[0]})


if __name__ == '__main__':
    main(*sys.argv[1:]) if len(sys.argv) > 1 else sys.exit(__doc__)
