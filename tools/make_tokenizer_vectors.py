"""Makes tests/data/tokenizer: a small byte-level BPE tokenizer and strings with the ids that the reference gives.

The reference is Hugging Face's tokenizers library, configured as the released files say: NFC, the Qwen2 split expression,
byte-level symbols, added tokens on the raw text. Two sets of ids:
  ids      with vocab.json, whose ids are a permutation, so that nothing can rely on id = 256 + rank
  by_rank  without vocab.json: byte symbols in GPT-2's order, then 256 + rank
The seed is fixed; the same versions write the same bytes.

usage: make_tokenizer_vectors.py TESTS/DATA/TOKENIZER     (needs tokenizers; made with 0.23.3)
"""
import json
import os
import random
import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
WITH_ID = ['<|endoftext|>', '<|im_start|>', '<|im_end|>', '<|object_ref_start|>', '<|object_ref_end|>', '<|box_start|>',
           '<|box_end|>', '<|quad_start|>', '<|quad_end|>', '<|vision_start|>', '<|vision_end|>', '<|vision_pad|>',
           '<|image_pad|>', '<|video_pad|>', '<tool_call>', '</tool_call>', '<|fim_prefix|>', '<|fim_middle|>',
           '<|fim_suffix|>', '<|fim_pad|>', '<|repo_name|>', '<|file_sep|>', '<tool_response>', '</tool_response>',
           '<think>', '</think>']
WITHOUT_ID = ['<d>', '</d>', '<|cutoff|>', '<|lyrics_start|>', '<|lyrics_end|>', '<|caption_start|>', '<|caption_end|>']
SPACES = '\t\x0b\x0c \x85\xa0\u1680\u2000\u2005\u200a\u2028\u2029\u202f\u205f\u3000\u200b\u180e\ufeff'
MERGES = 480

CORPUS = """A lighthouse at dawn, slow dolly-in; the keeper says: "Hold the line, the line holds!" and the sea answers.
The camera moves slowly over the harbour while rain falls on the wooden boats and the old keeper walks along the pier.
In the first shot the woman in the red coat turns around and looks at the camera; in the second shot she is gone.
overall_soundscape: wind, waves and distant gulls. non_diegetic_music: a slow piano and strings. N/A
# include <stdio.h>    for (int i = 0; i < 10; i++) { printf("%d\\n", i); }
I'm sure they'll say it's what we've had; you'd better see that she doesn't, or they're lost.
La mer est calme au petit matin, le gardien du phare descend l'escalier et la lumi\u00e8re s'\u00e9teint.
Der Leuchtturm steht am Meer, und die M\u00f6wen schreien \u00fcber den Booten; die Stra\u00dfe ist leer.
El faro est\u00e1 en la costa, y la se\u00f1ora camina por la orilla del mar. \u00bfQui\u00e9n vive all\u00ed?
\u706f\u53f0\u3068\u6d77\u3001\u6f6e\u98a8\u306e\u4e2d\u3067\u5973\u306e\u4eba\u304c\u7acb\u3063\u3066\u3044\u308b\u3002\u706f\u53f0\u306e\u706f\u304c\u6d88\u3048\u308b\u3002
\u6d77\u8fb9\u7684\u706f\u5854\uff0c\u6e05\u6668\u7684\u9633\u5149\u3002\u4f60\u597d\uff0c\u4e16\u754c\uff01\u6d77\u6c34\u6162\u6162\u5730\u6d41\u3002
\ub4f1\ub300\uc640 \ubc14\ub2e4, \uc548\ub155\ud558\uc138\uc694. \ubc14\ub2e4\uac00 \uc870\uc6a9\ud569\ub2c8\ub2e4.
\u041c\u0430\u044f\u043a \u0441\u0442\u043e\u0438\u0442 \u043d\u0430 \u0431\u0435\u0440\u0435\u0433\u0443 \u043c\u043e\u0440\u044f, \u0438 \u0432\u043e\u043b\u043d\u044b \u0431\u044c\u044e\u0442 \u043e \u043a\u0430\u043c\u043d\u0438.
\u0645\u0646\u0627\u0631\u0629 \u0639\u0644\u0649 \u0627\u0644\u0628\u062d\u0631 \u0648\u0627\u0644\u0646\u0648\u0631 \u064a\u0646\u0637\u0641\u0626 \u0639\u0646\u062f \u0627\u0644\u0641\u062c\u0631.
\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e, \u0938\u092e\u0941\u0926\u094d\u0930 \u0915\u0947 \u0915\u093f\u0928\u093e\u0930\u0947 \u092a\u094d\u0930\u0915\u093e\u0936 \u0938\u094d\u0924\u0902\u092d.
<Picture 1>: <Video 1>: <Audio 2>: <0.2 seconds><1.2 seconds> <cutoff> <scenetrans> [Shot 1] At 00:03.500,
aaaaaaaa aaaaaaaaaaaaaaaa                 \n\n\n\n    \t\t\t\t ---- ==== //// 1234567890
"""


def reference(vocab, merges):
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), 'isolated'),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    # What the library does with the list of tokenizer_config.json: appended one after the other behind the highest id.
    for name in WITH_ID + WITHOUT_ID:
        assert t.add_special_tokens([AddedToken(name, normalized=False, special=True)]) == 1
    return t


def train():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), 'isolated'),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator(CORPUS.split('\n') + [CORPUS], trainers.BpeTrainer(
        vocab_size=256 + MERGES, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    m = json.loads(t.to_str())['model']['merges']
    return [tuple(x) if isinstance(x, list) else tuple(x.split(' ')) for x in m]


def byte_symbols():
    own = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    rest = [b for b in range(256) if b not in own]
    return [chr(b) for b in own] + [chr(256 + i) for i in range(len(rest))]


def strings(rng):
    out = [('empty', '')]
    for i, s in enumerate([
        'Hello, world!', '\u4f60\u597d\uff0c\u4e16\u754c\uff01', '\U0001f600', '1234567890', '\n\n', 'a \t\n \n\t b', '  leading', "I'M",
        'cafe\u0301 re\u0301sume\u0301', '\u110b\u1161\u11ab\u1102\u1167\u11bc', '\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e',
        '<Picture 1>: ', '<Audio 1>: ', '<Video 1>: ', '<0.2 seconds>',
        'The woman (S1) says: <d>[English] It stopped raining.</d>', '<cutoff> <scenetrans>',
        '<|vision_start|><|image_pad|><|image_pad|><|vision_end|>']):
        out.append(('check %d' % i, s))
    for name, s in {
        'every contraction': "'s 't 're 've 'm 'll 'd 'S 'T 'RE 'Ve 'M 'lL 'D '\u017f x'sy x'tt 'r 'v 'l 'la",
        'contraction after letters': "it's we'VE they'll o'clock rock'n'roll ''s '''d",
        'digits of every kind': '12 \u0663\u0664 \uff11\uff12 x\u00b2 \u2167 \u00bd \u2460 \u0967\u0968 \U0001d7d9',
        'white space of every kind': 'a\u00a0b\u1680c\u2000d\u2009e\u2028f\u2029g\u202fh\u205fi\u3000j\u0085k\x0bl\x0cm\x1cn\u200bo\ufeffp\u180eq',
        'white space doubled, at punctuation and at the end': ''.join('a%s%sb%s.%s,%s%s\n' % ((c,) * 6) for c in SPACES) + 'x\u0085',
        'contractions before letters': "'sa x'Sa x'\u017fa x'\u017f1 x'ta x'rEa x'vea x'lLa x'ma x'da x'sA's",
        'one space glues to punctuation': 'a ,b  ,c \t,d\u00a0,e\u3000\u300c',
        'punctuation then newlines': 'end.\n\nNext!\r\n?\n \n',
        'carriage returns': 'a\rb\r\nc\r\r\n\nd \r e',
        'trailing space': 'word   ', 'trailing newline': 'word\n', 'only spaces': '      ', 'only tabs': '\t\t\t', 'one space': ' ',
        'space before token': 'a   <d>   b', 'newlines around token': 'a \n <d> \n b',
        'nul inside': 'a\0b\0\0c', 'controls': '\x01\x02 \x7f\x80\x9f', 'soft hyphen': 'co\u00adop',
        'composition across a token': 'e<d>\u0301<|d|>', 'mark at the start': '\u0301abc', 'less than with overlay': '<\u0338d> <d>\u0338',
        'marks out of order': 'a\u0315\u0300\u05ae\u0301b\u0323\u0307c\u0307\u0323',
        'long run of marks out of order': 'q' + '\u0301\u0323\u0327\u0345\u0334' * 20 + 'z',
        'compatibility forms stay': '\ufb01 \u2460 \u00bd \ufdfa \u212b \u2126 \uf900',
        'composition exclusions': '\u0958 \u2adc \u0f43 \U0001d15e \ufb1d', 'singletons': '\u0340\u0341\u0343\u0344\u0374\u037e\u0387\u2329',
        'jamo': '\u1100\u1161\u11a8\u1100\u1161 \uac00\u11a8 \u1112\u1175\u11c2\u11c2',
        'emoji': '\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f \U0001f44d\U0001f3fd',
        'right to left': '\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u200f\u202babc\u202c',
        'unassigned and private': '\u0378 \ue000 \U000e0041 \U0010ffff \ufffe \ufffd', 'title case and modifiers': '\u01c5\u02b0\u3005\u0e46 \u2c7c',
        'georgian, deseret': '\u10d0\u1c90\u2d00 \U00010400\U00010428', 'runs': 'a' * 100 + ' ' * 100 + '-' * 100 + '\n' * 50,
        'code': 'for (int i = 0; i < n; i++) {\n\tx[i] = "\\n";\n}\n', 'quoted dialogue': 'A man says, "We leave at dawn."',
        'words': 'the lighthouse keeper, THE LIGHTHOUSE KEEPER, the-lighthouse_keeper the.lighthouse.keeper',
    }.items():
        out.append((name, s))
    for s in WITH_ID + WITHOUT_ID:
        out.append(('token ' + s, '%s, x%sy, %s%s, %s, %s, the end %s' % (s, s, s, s, s[:-1], s[1:], s)))
    pools = {
        'ascii': [chr(c) for c in range(9, 127)], 'words': CORPUS.split(' '), 'space': list(" \t\n\r\u00a0\u3000ab.1'"),
        'marks': [chr(c) for c in range(0x300, 0x370)] + list('aeiouAEIOU \u1100\u1161\u11a8'),
        'low': [chr(c) for c in range(0x20, 0x3000) if c not in (0x7f,)],
        'cjk': [chr(c) for c in range(0x3000, 0x3100)] + [chr(c) for c in range(0x4e00, 0x4f00)] + list('\uf900\uf901\uff0c\uff01'),
        # Letters that are younger than both sides' tables (Unicode 15 here) would only compare versions.
        'any': [chr(c) for c in range(1, 0x30000) if not 0xd800 <= c < 0xe000 and unicodedata.category(chr(c)) != 'Cn'],
        'tokens': WITH_ID + WITHOUT_ID + ['<', '|', '>', '<|', '|>', 'd>', '</', ' ', 'a', '\u0301'],
    }
    for name, pool in pools.items():
        for i in range(18):
            out.append(('random %s %d' % (name, i), ''.join(rng.choice(pool) for _ in range(rng.randint(1, 24)))))
    return out


def pieces_of(text):
    """Pre-tokens after NFC and added tokens, in order."""
    import re
    split = pre_tokenizers.Split(Regex(SPLIT), 'isolated')
    nfc = normalizers.NFC()
    out = []
    names = sorted(WITH_ID + WITHOUT_ID, key=len, reverse=True)
    for part in re.split('(' + '|'.join(re.escape(n) for n in names) + ')', text):
        if part in names: out.append(part)
        elif part: out += [p for p, _ in split.pre_tokenize_str(nfc.normalize_str(part))]
    return out


def main(folder):
    rng = random.Random(20261)
    merges = train()
    order = byte_symbols() + [a + b for a, b in merges]
    assert len(set(order)) == len(order)
    n = len(order)
    step = 7
    while n % step == 0: step += 2
    plain = {s: i for i, s in enumerate(order)}
    shuffled = {s: (i * step + 3) % n for i, s in enumerate(order)}
    assert len(set(shuffled.values())) == n
    given, by_rank = reference(shuffled, merges), reference(plain, merges)
    config = {'add_bos_token': False, 'add_prefix_space': False,
              'added_tokens_decoder': {str(n + i): {'content': s, 'lstrip': False, 'normalized': False, 'rstrip': False,
                                                    'single_word': False, 'special': not s.startswith('<t') and not s.startswith('</t')}
                                       for i, s in enumerate(WITH_ID)},
              'additional_special_tokens': ['<|im_start|>', '<|im_end|>', '<|vision_start|>'] + WITHOUT_ID,
              'tokenizer_class': 'Qwen2Tokenizer'}
    rows = [{'name': k, 'text': s, 'pieces': pieces_of(s), 'ids': given.encode(s, add_special_tokens=False).ids,
             'by_rank': by_rank.encode(s, add_special_tokens=False).ids} for k, s in strings(rng)]
    special = {s: given.token_to_id(s) for s in WITH_ID + WITHOUT_ID}
    assert list(special.values()) == list(range(n, n + len(special)))
    os.makedirs(folder, exist_ok=True)
    def write(name, text):
        with open(os.path.join(folder, name), 'w', encoding='utf-8', newline='') as f: f.write(text)
    write('merges.txt', '#version: 0.2\n' + ''.join('%s %s\n' % m for m in merges))
    write('vocab.json', json.dumps(shuffled, ensure_ascii=False, separators=(',', ':')) + '\n')
    write('tokenizer_config.json', json.dumps(config, indent=1, ensure_ascii=False) + '\n')
    write('vectors.json', '{"tokenizers": "%s", "special_tokens": %s,\n"strings": [\n%s\n]}\n' % (
        tokenizers.__version__, json.dumps(special), ',\n'.join(json.dumps(r, separators=(',', ':')) for r in rows)))
    print('%d strings, %d merges, %d ids' % (len(rows), len(merges), n + len(special)))


if __name__ == '__main__':
    main(sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__))
