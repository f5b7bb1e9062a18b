// A byte-level BPE of the released kind, small: 256 byte symbols, merges of frequent English pairs, the added tokens of the
// released configuration (text encoder specification 1.2). Ids differ from the released ones, so that a reader who takes
// them from constants is found out.
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "demo/demo.h"

// By frequency, roughly: word beginnings ("Ġ" is a space) before endings, parts before wholes.
static const char *const merges[] = {
    "Ġ t",     "h e",  "i n",   "r e",   "o n",    "e r",  "a t", "Ġ a",   "Ġt he",   "e n",  "o r", "a n",   "e s",  "i s",
    "Ġ s",     "o u",  "Ġ w",   "i t",   "a r",    "in g", "Ġ o", "Ġo f",  "Ġ c",     "Ġ b",  "Ġ m", "Ġ f",   "e d",  "a l",
    "l e",     "n d",  "Ġa nd", "s t",   "r o",    "l l",  "Ġ d", "Ġ p",   "i c",     "Ġ in", "Ġ l", "i g",   "ig h", "igh t",
    "Ġl ight", "Ġ g",  "u r",   "a s",   "o m",    "e l",  "v e", "Ġ h",   "Ġ n",     "c h",  "e a", "Ġs ea", "o w",  "a y",
    "s h",     "T he", "Ġ on",  "Ġw it", "Ġwit h", "Ġs l", "t h", "Ġw at", "Ġwat er", "l o",  "o o", "Ġb l",  "Ġs k", "Ġsk y",
};

typedef struct added {
    const char *text;
    bool special, listed; // listed among "additional_special_tokens"
} added;

static const added added_tokens[] = {
    { "<|endoftext|>", true, false },     { "<|im_start|>", true, true },
    { "<|im_end|>", true, true },         { "<|object_ref_start|>", true, true },
    { "<|object_ref_end|>", true, true }, { "<|box_start|>", true, true },
    { "<|box_end|>", true, true },        { "<|quad_start|>", true, true },
    { "<|quad_end|>", true, true },       { "<|vision_start|>", true, true },
    { "<|vision_end|>", true, true },     { "<|vision_pad|>", true, true },
    { "<|image_pad|>", true, true },      { "<|video_pad|>", true, true },
    { "<tool_call>", false, false },      { "</tool_call>", false, false },
    { "<|fim_prefix|>", false, false },   { "<|fim_middle|>", false, false },
    { "<|fim_suffix|>", false, false },   { "<|fim_pad|>", false, false },
    { "<|repo_name|>", false, false },    { "<|file_sep|>", false, false },
    { "<tool_response>", false, false },  { "</tool_response>", false, false },
    { "<think>", false, false },          { "</think>", false, false },
};

// In the list of special tokens only: readers number them after the highest id, in this order.
static const char *const unnumbered[] = {
    "<d>", "</d>", "<|cutoff|>", "<|lyrics_start|>", "<|lyrics_end|>", "<|caption_start|>", "<|caption_end|>"
};

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

// GPT-2's byte symbols in GPT-2's order: printable bytes stand for themselves, the others follow as U+0100, U+0101, ...
static int byte_symbol(int index, char out[4])
{
    int code = 0x100;
    for (int pass = 1; pass >= 0; pass--)
        for (int b = 0; b < 256; b++) {
            bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
            if (printable != (bool)pass) continue;
            int symbol = printable ? b : code++;
            if (index-- > 0) continue;
            if (symbol < 0x80) {
                out[0] = (char)symbol;
                return 1;
            }
            out[0] = (char)(0xc0 | symbol >> 6); // all are below U+0800
            out[1] = (char)(0x80 | (symbol & 0x3f));
            return 2;
        }
    return 0;
}

static json_t *vocabulary(void)
{
    json_t *v = json_object();
    for (int i = 0; i < 256; i++) {
        char symbol[4] = { 0 };
        byte_symbol(i, symbol);
        json_object_set_new(v, symbol, json_integer(i));
    }
    for (int i = 0; i < COUNT(merges); i++) {
        char made[32];
        const char *space = strchr(merges[i], ' ');
        snprintf(made, sizeof made, "%.*s%s", (int)(space - merges[i]), merges[i], space + 1);
        json_object_set_new(v, made, json_integer(256 + i));
    }
    return v;
}

static json_t *settings(json_t *special)
{
    json_t *decoder = json_object(), *list = json_array();
    int id = 256 + COUNT(merges);
    for (int i = 0; i < COUNT(added_tokens); i++, id++) {
        const added *t = &added_tokens[i];
        char key[16];
        snprintf(key, sizeof key, "%d", id);
        json_object_set_new(decoder, key,
                            json_pack("{s:s, s:b, s:b, s:b, s:b, s:b}", "content", t->text, "lstrip", 0, "normalized", 0,
                                      "rstrip", 0, "single_word", 0, "special", t->special));
        json_object_set_new(special, t->text, json_integer(id));
        if (t->listed) json_array_append_new(list, json_string(t->text));
    }
    for (int i = 0; i < COUNT(unnumbered); i++, id++) {
        json_array_append_new(list, json_string(unnumbered[i]));
        json_object_set_new(special, unnumbered[i], json_integer(id));
    }
    return json_pack("{s:b, s:b, s:o, s:o, s:n, s:b, s:s, s:s, s:i, s:s, s:b, s:s, s:n}", "add_bos_token", 0, "add_prefix_space",
                     0, "added_tokens_decoder", decoder, "additional_special_tokens", list, "bos_token",
                     "clean_up_tokenization_spaces", 0, "eos_token", "<|im_end|>", "errors", "replace", "model_max_length",
                     262144, "pad_token", "<|endoftext|>", "split_special_tokens", 0, "tokenizer_class", "Qwen2Tokenizer",
                     "unk_token");
}

vx_status vx_demo_tokenizer_write(const char *folder, bool replace, int64_t *ids, json_t **special)
{
    vx_str lines = { 0 };
    for (int i = 0; i < COUNT(merges); i++) vx_str_print(&lines, "%s\n", merges[i]);
    vx_status s =
        lines.failed ? vx_no_memory("for a tokenizer") : vx_demo_text_file(folder, "merges.txt", lines.data, lines.size, replace);
    vx_str_free(&lines);
    VX_TRY(s);
    VX_TRY(vx_demo_json_file(folder, "vocab.json", vocabulary(), replace));
    json_t *found = json_object();
    if (!found) return vx_fail(VX_ERR_MEMORY, "no memory for a tokenizer");
    s = vx_demo_json_file(folder, "tokenizer_config.json", settings(found), replace);
    if (s.code != VX_OK) {
        json_decref(found);
        return s;
    }
    *ids = 256 + COUNT(merges) + COUNT(added_tokens) + COUNT(unnumbered);
    *special = found;
    return vx_ok();
}
