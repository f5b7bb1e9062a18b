"""Makes tests/data/language.safetensors: what transformers' Qwen3VLTextModel computes with a tiny text encoder.

The weights are not stored: tests/text/test_language.c makes the same from the formula below (splitmix64 of the tensor's name
and the element's index, f32 arithmetic, rounded to bf16). Stored are, for two sequences, the residual stream after 50 layers
with f32 activations (*.float32) and in bf16 (*.bfloat16, widened), ids and positions.
  text       24 tokens at positions 0..23
  positions  20 tokens with three different axes, as pictures make them, up to some thousands
and the same after the first layer alone (*.first.bfloat16), where roundings have not yet been multiplied by fifty layers: the
test reaches it by layers that add nothing.

usage: make_language_vectors.py TESTS/DATA/language.safetensors   (made with torch 2.15.0, transformers 5.24.0, on the CPU)
"""
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLTextConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextModel

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, VOCABULARY, LAYERS = 32, 4, 2, 16, 40, 64, 51
SECTION, THETA, EPS = [4, 2, 2], 5000000.0, 1e-6
TAKEN = 50


def uniform(name, count):
    """In [-1, 1), multiples of 2^-23."""
    seed = np.uint64(14695981039346656037)
    with np.errstate(over='ignore'):
        for b in name.encode():
            seed = (seed ^ np.uint64(b)) * np.uint64(1099511628211)
        z = seed + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0 ** -23) - np.float32(1)


def weight(name, shape):
    u = uniform(name, int(np.prod(shape)))
    if name.endswith('bias'): x = np.float32(0.25) * u
    elif 'norm' in name: x = np.float32(1) + np.float32(0.25) * u
    else: x = u * np.float32(0.0625 if 'patch_embed' in name else 1.0 if 'embed' in name else 0.25)
    return torch.from_numpy(x.reshape(shape)).to(torch.bfloat16)


def model(dtype):
    config = Qwen3VLTextConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=INTERMEDIATE, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, rms_norm_eps=EPS, attention_bias=False,
        hidden_act='silu', pad_token_id=None,
        rope_parameters={'rope_type': 'default', 'rope_theta': THETA, 'mrope_section': SECTION, 'mrope_interleaved': True})
    config._attn_implementation = 'sdpa'
    m = Qwen3VLTextModel(config)
    with torch.no_grad():
        for name, p in m.named_parameters():
            p.copy_(weight('model.language_model.' + name, tuple(p.shape)).float())
    # Parameters only: casting the module would also round the table of frequencies (text-encoder specification, 3.3).
    for p in m.parameters(): p.data = p.data.to(dtype)
    return m.eval()


def main(path):
    ids = {'text': torch.tensor([(i * 29 + 7) % VOCABULARY for i in range(24)]),
           'positions': torch.tensor([(i * 23 + 11) % VOCABULARY for i in range(20)])}
    positions = {'text': torch.arange(24).expand(3, 24).contiguous(),
                 'positions': torch.stack([torch.tensor([i // 3 * 5 for i in range(20)]),
                                           torch.tensor([i * i for i in range(20)]),
                                           torch.tensor([(i * 7919) % 4001 for i in range(20)])])}
    out = {}
    for dtype in (torch.float32, torch.bfloat16):
        m = model(dtype)
        for case in ids:
            with torch.no_grad():
                r = m(input_ids=ids[case][None], position_ids=positions[case][:, None], use_cache=False, output_hidden_states=True)
            h = r.hidden_states[TAKEN][0]
            assert h.dtype == dtype and len(r.hidden_states) == LAYERS + 1
            out['%s.%s' % (case, str(dtype).split('.')[1])] = h.float().contiguous()
            if dtype == torch.bfloat16: out[case + '.first.bfloat16'] = r.hidden_states[1][0].float().contiguous()
    for case in ids:
        out[case + '.ids'] = ids[case].to(torch.int32)
        out[case + '.positions'] = positions[case].to(torch.int64).contiguous()
        a, b = out[case + '.float32'], out[case + '.bfloat16']
        print(case, 'largest', float(a.abs().max()), 'bf16 against f32', float((a - b).norm() / a.norm()))
    save_file(out, path, {'torch': torch.__version__.split('+')[0]})


if __name__ == '__main__':
    main(sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__))
